"""The replay: it starts a trace's rows on the wire when they are due, on a virtual clock that skips
what needs no packets.

    virtual time   |== compute ==|-- flows --|== compute ==|- rewire -|-- flows --|
    wall clock                   |-- flows --|             |- rewire -|-- flows --|  x time dilation

Compute rows cost no wall time: when no flow is in flight and nothing is being planned or rewired,
the clock jumps to the next row that is due. Of a folded loop it may send only a share of the
repetitions. A row's seconds on the wire then stand for those of all, and what waits for the row
waits that much longer, on a clock that jumps. The wire, the control plane and the watch over the
host are arguments; nothing here knows of Mininet.
"""

import heapq
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np

from ..control.client import Committed
from ..errors import RunError
from ..fabric import Fabric
from ..fabric.cabling import cabling_of
from ..optics import Circuits, Decision, RewireRecord, Timing
from ..optics.rewiring import NONE, Rewiring
from ..report.result import Scale
from ..routing.schemes import ECMP, Routing
from ..trace import PLAN_AHEAD, Scene, Stage, Trace, begins, stages
from ..trace.packets import PAYLOAD
from ..trace.pairs import PairWays
from ..units import transfer_seconds
from .clock import Clock
from .network import fastest_line
from .planning import Answered, BothWays, Control, ScenePlanner
from .sampling import samples_of
from .wire import Arrival, Carrier

STALL = 20.0  # s of wall clock without a byte arriving while flows should be moving: something died
POLL = 0.05  # s, the longest sleep: how late a broken run is noticed
TOGETHER = 1e-6  # s: stages that begin no further apart ask together
# virtual s: how late the end of a plan or a rewire is noticed while flows are in flight
CONTROL_POLL = 5e-4


@dataclass
class Replayed:
    """What the replay measured: s on the virtual clock, by rows of the unscaled trace."""

    start: np.ndarray
    finish: np.ndarray
    rewires: list[RewireRecord]
    epochs: list[tuple[float, Circuits]]
    late: np.ndarray | float = 0.0  # s of wall clock between due and started, by row
    # bytes by directed link that would have been carried had every repetition been sent
    unsent: np.ndarray | float = 0.0


class Replay:
    """One replay of one trace on one wire; `run` does it once and returns what was measured."""

    def __init__(
        self,
        fabric: Fabric,
        trace: Trace,
        wire: Carrier,
        control: Control | None,
        circuits: Circuits,
        scale: Scale,
        timing: Timing = Timing(),
        progress: Callable[[dict], None] | None = None,
        watch: Callable[[Collection[int], PairWays], None] | None = None,
        routing: Routing = ECMP,
        granularity: str = "per-phase",
        share: np.ndarray | None = None,
        blur: float = 0.0,
    ):
        self.fabric, self.trace, self.wire, self.control, self.timing = (
            fabric,
            trace,
            wire,
            control,
            timing,
        )
        self.line = fastest_line(fabric)  # bit/s
        self.scale, self.progress, self.watch = (
            scale,
            progress or (lambda _: None),
            watch or (lambda *_: None),
        )
        n = len(trace)
        self.share = np.ones(n) if share is None else share  # of each row's bytes that go out
        # s within which two NICs that receive a sample count as equally fast
        self.blur = blur
        self.bytes = np.ceil(trace.size * scale.bandwidth * self.share).astype(np.int64)
        self.samples = samples_of(trace, self.share)  # by row
        self.start, self.finish = np.full(n, np.nan), np.full(n, np.nan)
        self.unmet = np.diff(trace.after_offsets)
        offsets, self.followers = trace.followers
        self.follower_offsets = offsets.tolist()
        self.due: list[tuple[float, int]] = []
        self.landing: list[tuple[float, int]] = []  # rows that end then: others may wait for them
        self.busy_until = 0.0  # s, virtual: cables have packets till then
        # bit/s by directed link, the last one for rows without a path
        self.rates = np.append(np.repeat(cabling_of(fabric).rate, 2), np.inf)
        self.delays = np.append(cabling_of(fabric).delay, 0.0)  # s, alike
        # of a row's delay: once for each repetition that it stands for
        self.times = trace.origin.times if trace.origin else np.ones(n, int)
        self.flying: set[int] = set()
        self.contract = Rewiring(fabric, timing, circuits)
        self.planner = ScenePlanner(fabric, trace, control, routing, self.contract)
        self.one_shot = granularity == "one-shot"
        self.waiting = stages(trace, granularity)  # stages that have not begun
        self.stage_of = begins(self.waiting)
        self.opens = sorted(
            (float(trace.start[r]), r) for r in self.stage_of if not len(trace.waits_for(r))
        )
        self.planning: tuple[Scene, Future] | None = None
        self.answer: Answered | None = None
        self.planned_ahead = False  # the plan under way, or the answer that came of it
        self.asked, self.plan_takes = 0.0, 0.0  # s of wall clock: when the last began; how long
        self.looks_ahead = False  # for circuits of the stages that come next
        self.commit: Future | None = None
        # s, virtual: nothing has been in flight since, while a plan is made
        self.idle_since: float | None = None
        self.starting: list[tuple[int, float]] = []  # rows to be sent, and when they were due
        self.alone_since: float | None = None  # s, virtual: nothing but these has been in flight
        self.paused: list[int] = []
        self.emptied: list[int] = []  # of them, those under way on circuits that change
        self.parked: list[int] = []  # rows that are due and wait for their circuits
        self.late, self.done_bytes = np.zeros(n), 0
        # rows of the stages that ask: they wait for the answer, which takes a moment
        self.unanswered: set[int] = set()
        self.sampled: list[int] = []  # rows sent in part since the paths changed
        self.unsent = np.zeros(2 * len(fabric.links))
        self._take_ways(self.planner.ways_under(circuits))

    def run(self) -> Replayed:
        """Replay to the end. Raises RunError when the run broke, and whatever `watch` raises."""
        self.pool = ThreadPoolExecutor(1, "control")
        try:
            self.clock = Clock(self.scale.dilation)
            self._plan_ahead()
            if self.planning:
                self.planning[1].exception()  # the first plan stands before the clock starts
            self.clock = Clock(self.scale.dilation)
            for row in np.flatnonzero(self.unmet == 0).tolist():
                self._is_ready(row, float(self.trace.start[row]))
            self._loop()
        finally:
            # a call to a dead controller must not hold up the end
            self.pool.shutdown(wait=False, cancel_futures=True)
        contract = self.contract
        self._count_unsent()
        return Replayed(
            self.start, self.finish, contract.records, contract.epochs, self.late, self.unsent
        )

    def _loop(self) -> None:
        received, moved_at, total = -1, time.monotonic(), int(self.trace.size.sum())
        while self.due or self.landing or self.flying or self._steering() or self.parked:
            moves = self.due or self.landing or self.flying or self._steering()
            if not (moves or self._unblocked()):
                raise RunError(self._stranded())
            self._land()
            self._start_due()
            self._steer()
            if self.looks_ahead:  # with all that is due sent: it takes the interpreter
                self._plan_ahead()
            self._jump_if_idle()
            for arrival in self._arrivals():
                self._has_arrived(arrival)
            # what stands still for a rewire is held up by no cable
            self.watch(() if self.contract.under_way else self.flying, self.ways[0])
            if (
                (now_received := self.wire.bytes_received) != received
                or not self.flying
                or self.contract.under_way
            ):
                received, moved_at = now_received, time.monotonic()
            elif time.monotonic() - moved_at > STALL:
                raise RunError(self._stalled())
            self.progress(
                {
                    "stage": "run",
                    "phase": self._current(),
                    "done_bytes": self.done_bytes,
                    "total_bytes": total,
                    "circuits": len(self.contract.circuits),
                    "clock_s": self.clock.now(),
                }  # fmt: skip
            )

    # rows: ready -> due -> flying -> finished

    def _is_ready(self, row: int, at: float) -> None:
        if len(self.trace.waits_for(row)):
            self._begin_stages(row)
        heapq.heappush(
            self.due, (max(float(self.trace.start[row]), at + float(self.trace.gap[row])), row)
        )

    def _begin_stages(self, row: int) -> None:
        """Begin the stages of an entry row: when what it waits for is done, or at its `start` if it
        waits for nothing.
        """
        for stage in self.stage_of.get(row, ()):
            if stage in self.waiting:
                self.waiting.remove(stage)
                asks = bool(self.control) and not self.one_shot
                self.contract.begin(
                    stage, stage.rows[self.trace.size[stage.rows] > 0], self.clock.now(), asks
                )
                if asks:
                    self.unanswered.update(stage.rows.tolist())

    def _start_due(self) -> None:
        """Start what is due. Compute rows come first; they finish at the very instant they were
        due, however late the loop looks. Then stages that begin at one instant ask for circuits
        together, before the first of them sends.
        """
        flows = []
        while self.opens and self.opens[0][0] <= self.clock.now():
            self._begin_stages(self.opens.pop(0)[1])
        while self.due and self.due[0][0] <= self.clock.now():
            at, row = heapq.heappop(self.due)
            if not self.bytes[row]:
                self.start[row] = at
                self._has_finished(row, at)
            else:
                flows.append((at, row))
        if flows:
            self._steer()  # a phase that has just begun takes its circuits before it sends
        for at, row in flows:
            if self._must_wait(row):
                self.start[row] = at  # the wait for its circuits is part of its time
                self.parked.append(row)
            else:
                self._send(row, at)
        self._flush()

    def _send(self, row: int, due: float) -> None:
        self.idle_since = None
        if not (self.starting or self.flying or self._steering()):
            self.alone_since = self.clock.now()
        self.starting.append((row, due))
        self.flying.add(row)
        if self.share[row] < 1:
            self.sampled.append(row)
        hosts = self.trace.hosts
        self.wire.send(
            row, hosts[self.trace.src[row]], hosts[self.trace.dst[row]], int(self.bytes[row])
        )

    def _flush(self) -> None:
        """What is to be sent goes out, and is as late as the last of it."""
        if self.starting:
            if self.alone_since is not None:  # that it was made ready held up nothing else
                self.clock.stood(self.alone_since)
                self.alone_since = None
            begin = self.clock.now()
            for row, _ in self.starting:
                if np.isnan(self.start[row]):
                    self.start[row] = begin
                if sample := self.samples.get(row):
                    sample.begin = min(sample.begin, begin)
            self.wire.flush()
            now = self.clock.now()
            for row, due in self.starting:
                self.late[row] = (now - due) * self.scale.dilation
            self.starting.clear()

    def _has_arrived(self, arrival: Arrival) -> None:
        """Everything that was sent of a row has arrived. Rows sent as a sample finish together,
        when the whole of them would have arrived.
        """
        row = arrival.flow
        self.late[row] += arrival.late
        at = self.clock.at(arrival.at) + self._last_packet(row)
        self.busy_until = max(self.busy_until, at)
        sample = self.samples.get(row)
        if sample is None:
            self._has_finished(row, at + self._delay(row))
            return
        self.flying.discard(row)
        self.contract.finished(row)
        sample.arrived.append((row, at))
        card, begun = sample.cards[int(self.trace.dst[row])], self.clock.at(arrival.begun)
        card.add(int(self.bytes[row]), begun, arrival.early, at)
        if len(sample.arrived) == sample.rows:
            rest = sample.seconds(self.blur) * (1 / sample.share - 1)
            for other, arrived in sample.arrived:
                self._has_finished(other, arrived + rest + self._delay(other))

    def _has_finished(self, row: int, at: float) -> None:
        self.finish[row] = at
        self.flying.discard(row)
        self.done_bytes += int(self.trace.size[row])
        heapq.heappush(self.landing, (at, row))
        self._land()

    def _last_packet(self, row: int) -> float:
        """Virtual s that the last packet of a row takes on the slowest cable of its path.

        Shaping hands a packet on when its time on a cable begins; a real cable does when it ends.
        """
        last = (int(self.bytes[row]) - 1) % PAYLOAD + 1
        slowest = self.slowest[self.ways[0].pairs.of[row]] * self.scale.bandwidth
        return float(transfer_seconds(last, slowest))

    def _delay(self, row: int) -> float:
        """Virtual s of the cables on a row's path: packets were not held up for them."""
        return float(self.delay[self.ways[0].pairs.of[row]] * self.times[row])

    def _land(self) -> None:
        """Rows have ended by now: no rewire waits for them, and their followers are ready."""
        while self.landing and self.landing[0][0] <= self.clock.now():
            _, row = heapq.heappop(self.landing)
            self.contract.finished(row)
            for follower in self.followers[
                self.follower_offsets[row] : self.follower_offsets[row + 1]
            ].tolist():
                self.unmet[follower] -= 1
                if not self.unmet[follower]:
                    waits = self.trace.waits_for(follower)
                    self._is_ready(follower, float(self.finish[waits].max()))

    # circuits: intent -> plan -> pause or drain -> commit -> usable

    def _steering(self) -> bool:
        return bool(self.contract.asking or self.planning or self.contract.under_way)

    def _steer(self) -> None:
        """Take every step of planning and rewiring that is due now, without blocking."""
        if self.planning and self.planning[1].done():
            self.answer, self.planning = self.planning[1].result(), None
            self.plan_takes = time.monotonic() - self.asked
        if self.contract.blocked:  # what has arrived may still have a packet on its slowest cable
            self.contract.ask_again(np.where(self.finish <= self.clock.now(), self.finish, np.nan))
        if self.contract.asking and not self.planning:
            self._take_circuits()
        if self.contract.quiet and not self.commit and self._is_quiet():
            self.ordered, self.commit = (
                self.clock.now(),
                self.pool.submit(self.control.commit, self.answer.epoch),
            )
        if self.commit and self.commit.done():
            done, self.commit = self.commit.result(), None
            self._usable(done)

    def _scene(self, asking: tuple[Stage, ...], after: frozenset[int] = frozenset()) -> Scene:
        """The decision for the stages that ask, as of when the rows of `after` have finished."""
        left, now = {}, max([self.clock.now(), *(s.begin for s in asking)])
        whole = {s: s.rows[self.trace.size[s.rows] > 0] for s in asking}
        for stage, rows in (whole | self.contract.seen(self.finish)).items():
            rows = rows[[row not in after for row in rows.tolist()]] if after else rows
            if len(rows):
                left[stage] = rows, np.array([self._left(row) for row in rows.tolist()])
        coming = tuple(s for s in self.waiting if s not in asking)[:PLAN_AHEAD]
        return Scene(asking, left, coming, self.contract.circuits, now, dict(self.contract.since))

    def _left(self, row: int) -> float:
        """Bytes of the trace that a row has still to send."""
        sent = self.wire.progress(row)[1] if row in self.flying else 0
        return float(self.trace.size[row]) * (1 - sent / max(int(self.bytes[row]), 1))

    def _plan_ahead(self) -> None:
        """Ask for the next stage's plan while the present one runs, since the schedule is known."""
        self.looks_ahead = False
        if self.control and self.waiting and not self.planning and not self.one_shot:
            soon = min(stage.begin for stage in self.waiting) + TOGETHER
            asking = tuple(stage for stage in self.waiting if stage.begin <= soon)
            self._plan(self._scene(asking, self._unfinished_before(asking)), ahead=True)

    def _unfinished_before(self, some: tuple[Stage, ...]) -> frozenset[int]:
        """The unfinished rows that these stages wait for: they will have sent everything when the
        stages begin. Of a loop a turn waits for the one before, too, which is the stage's own.
        """
        before, open_ = set(), [row for stage in some for row in stage.entries.tolist()]
        while open_:
            waits = self.trace.waits_for(open_.pop())
            new = [row for row in waits[np.isnan(self.finish[waits])].tolist() if row not in before]
            before.update(new)
            open_ += new
        return frozenset(before.difference(*(stage.rows.tolist() for stage in some)))

    def _plan(self, scene: Scene, ahead: bool = False) -> None:
        self.answer, self.planned_ahead, self.asked = None, ahead, time.monotonic()
        self.planning = (
            scene,
            self.pool.submit(self.planner.answer, scene, self.clock.now(), self.ways),
        )

    def _count_unsent(self) -> None:
        """Count what was not sent of rows sent in part, on the cables of their paths."""
        rows = np.array(self.sampled, dtype=np.int64)
        offsets, links = self.ways[0].of(rows)
        left = np.repeat(self.trace.size[rows] * (1 - self.share[rows]), np.diff(offsets))
        self.unsent += np.bincount(links, left, minlength=len(self.unsent))[: len(self.unsent)]
        self.sampled = []

    def _take_ways(self, ways: BothWays) -> None:
        sends = np.flatnonzero(self.trace.size > 0)
        self.ways, self.lost = ways, np.zeros(len(self.trace), bool)
        # by pair: bit/s of the slowest cable of its way, and s of delay of all
        self.slowest, self.delay = ways[0].least(self.rates), ways[0].sums(self.delays)
        # rows without a way, or whose acknowledgements have none
        self.lost[sends] = ways[0].lost(sends) | ways[1].lost(sends)

    def _take_circuits(self) -> None:
        scene = self._scene(self.contract.asking)
        if not self.answer or not self.answer.scene.fits(scene) or self._is_stale(scene):
            self._plan(scene)
            self.idle_since = None if self.flying else self.clock.now()
            return
        # what comes is known, so planning takes none of the network's time
        if self.idle_since is not None:
            self.clock.stood(self.idle_since)
            self.idle_since = None
        decision = self.answer.decision
        self.unanswered.clear()
        if decision.rewire:
            self._rewire(decision)
            return
        self.answer = None  # who asks again asks because something is other than it was
        if decision.wait:
            self.contract.wait()
        else:
            self.contract.stay()
            self.looks_ahead = True
        self._release()

    def _unblocked(self) -> bool:
        """Whether a stage asks again for rows without a path, now that nothing can be sent."""
        asks = bool(self.control) and not self.one_shot
        return asks and self.contract.unblock(np.array(self.parked, dtype=np.int64))

    def _is_stale(self, scene: Scene) -> bool:
        """Whether other stages have sent much more by now than the plan made ahead counted with: by
        more seconds than it takes to plan again.
        """
        if not self.planned_ahead:
            return False
        drift = self.answer.scene.drift(scene, self.trace.src)
        return transfer_seconds(drift, self.line) > self.plan_takes / self.scale.dilation

    def _rewire(self, decision: Decision) -> None:
        """Request the rewire; flows in flight that it concerns are paused, or waited for."""
        self.contract.take(decision, self.clock.now())
        now = self._crossing(self.ways)
        self.concerned = now | self._crossing(self.answer.ways)
        flying = np.array(sorted(self.flying), dtype=np.int64)
        flying = flying[self.concerned[flying]]
        self.paused = self.contract.concern(flying[now[flying]], flying[~now[flying]]).tolist()
        self.emptied = [row for row in self.paused if now[row]]
        if self.paused:
            self.wire.pause(self.paused)
        self._release()

    def _release(self) -> None:
        """Send what no longer has to wait."""
        parked, self.parked = self.parked, []
        for row in parked:
            if self._must_wait(row):
                self.parked.append(row)
            else:
                self._send(row, self.clock.now())
        self._flush()

    def _is_quiet(self) -> bool:
        """Whether circuits that go dark are empty: what held senders had on them has arrived, and
        so have all acknowledgements of flows that ended.
        """
        return not self.wire.unacked([row for row in self.emptied if row in self.flying])

    def _usable(self, done: Committed) -> None:
        if self.timing.in_flight == "drop":
            flying = [row for row in self.flying if self.concerned[row]]
            self.contract.concern(NONE, np.array(flying, dtype=np.int64), dark=True)
        # With nothing in flight the order's way to the controller does not count, nor what comes
        # after circuits are usable: they are verified while flows use them.
        told = 0.0 if self.flying else self.clock.at(done.requested) - self.ordered
        times = (self.clock.at(t) - told for t in (done.programmed, done.dark_until, done.usable))
        usable = self.contract.done(*times, self.start, done.lost_bytes, self.answer.epoch).usable
        if not self.flying:
            self.clock.stood(usable)
        self._count_unsent()
        self._take_ways(self.answer.ways)
        if self.paused:
            self._go_on([row for row in self.paused if row in self.flying])
        self.paused = []
        self._release()
        self.looks_ahead = True

    def _go_on(self, rows: list[int]) -> None:
        self.wire.resume(rows)
        stood = self.clock.now() - self.contract.records[-1].requested
        for sample in {id(s): s for row in rows if (s := self.samples.get(row))}.values():
            sample.stood(stood)

    def _must_wait(self, row: int) -> bool:
        """Whether a row that is due cannot be sent yet: its stage waits for an answer, the rewire
        under way concerns it, or it has no path at all.
        """
        some = np.array([row])
        if row in self.unanswered:
            return True
        if self.contract.under_way and self.concerned[row]:
            return bool(len(self.contract.concern(NONE, some)))
        return bool(self.lost[row])

    def _crossing(self, ways: BothWays) -> np.ndarray:
        """Rows whose path by `ways`, or that of their acknowledgements, crosses a cable of the
        rewire under way: bool[rows].
        """
        crossing, sends = np.zeros(len(self.trace), bool), np.flatnonzero(self.trace.size > 0)
        for some in ways:
            crossing[sends] |= some.crossing(sends, self.contract.under_way.cables)
        return crossing

    # time

    def _jump_if_idle(self) -> None:
        queues = [queue for queue in (self.due, self.landing, self.opens) if queue]
        idle = not self.flying and self.clock.now() >= self.busy_until
        if (self.due or self.landing) and idle and not self._steering():
            self.clock.jump(min(queue[0][0] for queue in queues))
            self._land()

    def _arrivals(self) -> list[Arrival]:
        """What arrives until the loop must look again; with nothing in flight, until the controller
        has answered.

        Polling instead would take the processor from the controller and the switches, for which
        everything waits.
        """
        asked = self.commit or (self.planning and self.planning[1])
        if self.flying or not asked:
            return self.wire.poll(
                self._patience(CONTROL_POLL * self.scale.dilation if self._steering() else POLL)
            )
        wait([asked], self._patience(POLL))
        return self.wire.poll(0.0)

    def _patience(self, most: float) -> float:
        """Seconds of wall clock until a row is due or ends, but at most `most`."""
        now, dilation = self.clock.now(), self.scale.dilation
        until = ((queue[0][0] - now) * dilation for queue in (self.due, self.landing) if queue)
        return min(max(min(until, default=most), 0.0), most)

    def _current(self) -> str:
        row = next(iter(self.flying), None)
        return (
            f"{self.trace.phases[self.trace.phase[row]]}/{self.trace.step[row]}"
            if row is not None
            else ""
        )

    def _stranded(self) -> str:
        ends = (self.trace.hosts[side[self.parked[0]]] for side in (self.trace.src, self.trace.dst))
        first = " -> ".join(ends)
        return f"{len(self.parked)} flows can never be sent, first {first}: no path carries them"

    def _stalled(self) -> str:
        row = min(self.flying)
        ends = f"{self.trace.hosts[self.trace.src[row]]} -> {self.trace.hosts[self.trace.dst[row]]}"
        return (
            f"no byte arrived for {STALL:g} s while {len(self.flying)} flows are in flight "
            f"(first: row {row}, {ends}); a switch, the controller or a link of this run has "
            "stopped"
        )

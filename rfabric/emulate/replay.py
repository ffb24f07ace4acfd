"""The replay: a trace's rows started on the wire when they are due, on a virtual clock that skips what needs no packets.

    virtual time   |== compute ==|-- flows --|== compute ==|- rewire -|-- flows --|
    wall clock                   |-- flows --|             |- rewire -|-- flows --|      x time dilation

Compute rows cost no wall time: when no flow is in flight and nothing is being planned or rewired, the clock jumps to the next
row that is due. The wire, the control plane and the watch over the host are given; nothing here knows of Mininet.
"""

import heapq
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ..control.client import Committed, Planned
from ..errors import RunError
from ..fabric import Fabric, Routes
from ..fabric.schemes import ECMP, Routing
from ..optics import Circuits, Demand, RewireRecord, Timing, changed_cables
from ..report.result import Scale
from ..trace import PLAN_AHEAD, PhaseKey, Stage, Trace, begins, stage_demand, stages

STALL = 20.0  # s of wall clock without a byte arriving while flows should be moving: something died
POLL = 0.05  # s, the longest sleep: how late a broken run is noticed
CONTROL_POLL = 5e-4  # s, while a plan or a rewire is under way: how late its end is noticed


class Wire(Protocol):
    """What carries flows: see `emulate.wire.Wire`. Times are CLOCK_MONOTONIC seconds."""

    def send(self, flow: int, src: str, dst: str, nbytes: int) -> None: ...
    def poll(self, timeout: float) -> list: ...  # of what has `flow` and `at`
    def pause(self, flows: list[int]) -> None: ...
    def resume(self, flows: list[int]) -> None: ...
    def unacked(self, flows: list[int]) -> int: ...

    bytes_received: int


class Control(Protocol):
    """What rewires: see `emulate.worker`. Both calls block and may run in a thread."""

    def plan(self, demand: Demand, pairs: list[tuple[str, str]], now: float, upcoming: list[Demand]) -> Planned: ...
    def commit(self, epoch: int) -> Committed: ...


class Clock:
    """Virtual seconds, `dilation` times slower than CLOCK_MONOTONIC, that can be moved forward."""

    def __init__(self, dilation: float):
        self.dilation = dilation
        self._wall, self._virtual = time.monotonic(), 0.0

    def now(self) -> float:
        return self.at(time.monotonic())

    def at(self, wall: float) -> float:
        """The virtual time of a recent monotonic instant (after the last jump)."""
        return self._virtual + (wall - self._wall) / self.dilation

    def jump(self, virtual: float) -> None:
        """Move forward to `virtual`; an instant already past leaves the clock as it is."""
        now = self.now()
        self._wall, self._virtual = time.monotonic(), max(virtual, now)


@dataclass
class Replayed:
    """What the replay measured, on the virtual clock (s) and in unscaled rows."""

    start: np.ndarray
    finish: np.ndarray
    rewires: list[RewireRecord]
    epochs: list[tuple[float, Circuits]]
    worst_lateness: float = 0.0  # s of wall clock between due and started


@dataclass
class _Rewiring:
    """A rewire under way: the cables it darkens, rows in flight that were paused, and rows that wait to be sent."""

    stage: Stage
    plan: Planned
    requested: float
    cables: frozenset[int]
    routes: Routes  # after it
    paused: list[int] = field(default_factory=list)
    parked: list[int] = field(default_factory=list)
    commit: Future | None = None


class Replay:
    """One replay of one trace on one wire; `run` does it once and returns what was measured."""

    def __init__(
        self, fabric: Fabric, trace: Trace, wire: Wire, control: Control | None, circuits: Circuits, scale: Scale,
        timing: Timing = Timing(), progress: Callable[[dict], None] | None = None, watch: Callable[[], None] | None = None,
        routing: Routing = ECMP, granularity: str = "per-phase",
    ):  # fmt: skip
        self.fabric, self.trace, self.wire, self.control, self.timing = fabric, trace, wire, control, timing
        self.scale, self.progress, self.watch = scale, progress or (lambda _: None), watch or (lambda: None)
        n = len(trace)
        self.bytes = np.ceil(trace.size * scale.bandwidth).astype(np.int64)
        self.start, self.finish = np.full(n, np.nan), np.full(n, np.nan)
        self.unmet = np.diff(trace.after_offsets)
        offsets, self.followers = trace.followers
        self.follower_offsets = offsets.tolist()
        self.due: list[tuple[float, int]] = []
        self.flying: set[int] = set()
        self.records: list[RewireRecord] = []
        self.epochs = [(0.0, circuits)]
        self.routing, self.one_shot = routing, granularity == "one-shot"
        self.waiting = stages(trace, granularity)  # stages that have not begun
        self.stage_of = begins(self.waiting)
        self.opens = sorted((float(trace.start[r]), r) for r in self.stage_of if not len(trace.waits_for(r)))
        self.intents: list[Stage] = []  # stages that have begun and wait for their circuits
        self.planning: tuple[Stage, Future] | None = None
        self.ahead: tuple[Stage, Planned, Routes] | None = None
        self.rewiring: _Rewiring | None = None
        self.worst_lateness, self.done_bytes = 0.0, 0
        self.routes = Routes(fabric, circuits, routing)
        self.demanded: dict[PhaseKey, list[tuple[str, str]]] = {}

    def run(self) -> Replayed:
        """Replay to the end; RunError when the run broke, and whatever `watch` raises."""
        self.pool = ThreadPoolExecutor(1, "control")
        try:
            self._plan_ahead()
            if self.planning:
                self.planning[1].exception()  # the first plan stands before the clock starts
            self.clock = Clock(self.scale.dilation)
            for row in np.flatnonzero(self.unmet == 0).tolist():
                self._is_ready(row, float(self.trace.start[row]))
            self._loop()
        finally:
            self.pool.shutdown(wait=False, cancel_futures=True)  # a call to a dead controller must not hold up the end
        return Replayed(self.start, self.finish, self.records, self.epochs, self.worst_lateness)

    def _loop(self) -> None:
        received, moved_at, total = -1, time.monotonic(), int(self.trace.size.sum())
        while self.due or self.flying or self._steering():
            self._start_due()
            self._steer()
            self._jump_if_idle()
            for arrival in self.wire.poll(self._patience()):
                self._has_finished(arrival.flow, self.clock.at(arrival.at))
            self.watch()
            if (now_received := self.wire.bytes_received) != received or not self.flying or self.rewiring:
                received, moved_at = now_received, time.monotonic()
            elif time.monotonic() - moved_at > STALL:
                raise RunError(self._stalled())
            self.progress(
                {
                    "stage": "run",
                    "phase": self._current(),
                    "done_bytes": self.done_bytes,
                    "total_bytes": total,
                    "circuits": len(self.epochs[-1][1]),
                    "clock_s": self.clock.now(),
                }  # fmt: skip
            )

    # rows: ready -> due -> flying -> finished

    def _is_ready(self, row: int, at: float) -> None:
        if len(self.trace.waits_for(row)):
            self._begin_stages(row)
        heapq.heappush(self.due, (max(float(self.trace.start[row]), at + float(self.trace.gap[row])), row))

    def _begin_stages(self, row: int) -> None:
        """The stages of an entry row begin: when what it waits for is done, or at its `start` if it waits for nothing."""
        for stage in self.stage_of.get(row, ()):
            if stage in self.waiting:
                self.waiting.remove(stage)
                if self.control and not self.one_shot:
                    self.intents.append(stage)

    def _start_due(self) -> None:
        """Start what is due. Compute rows finish at the very instant they were due, however late the loop looks."""
        while self.opens and self.opens[0][0] <= self.clock.now():
            self._begin_stages(self.opens.pop(0)[1])
        while self.due and self.due[0][0] <= self.clock.now():
            at, row = heapq.heappop(self.due)
            if not self.bytes[row]:
                self.start[row] = at
                self._has_finished(row, at)
                continue
            self._steer()  # a phase that has just begun takes its circuits before it sends
            if self.rewiring and self.timing.in_flight != "drop" and self._must_wait(row):
                self.start[row] = at  # the wait for its circuits is part of its time
                self.rewiring.parked.append(row)
            else:
                self._send(row, at)

    def _send(self, row: int, due: float) -> None:
        now = self.clock.now()
        self.worst_lateness = max(self.worst_lateness, (now - due) * self.scale.dilation)
        if np.isnan(self.start[row]):
            self.start[row] = now
        self.flying.add(row)
        hosts = self.trace.hosts
        self.wire.send(row, hosts[self.trace.src[row]], hosts[self.trace.dst[row]], int(self.bytes[row]))

    def _has_finished(self, row: int, at: float) -> None:
        self.finish[row] = at
        self.flying.discard(row)
        self.done_bytes += int(self.trace.size[row])
        for follower in self.followers[self.follower_offsets[row] : self.follower_offsets[row + 1]].tolist():
            self.unmet[follower] -= 1
            if not self.unmet[follower]:
                self._is_ready(follower, float(self.finish[self.trace.waits_for(follower)].max()))

    # circuits: intent -> plan -> pause or drain -> commit -> usable

    def _steering(self) -> bool:
        return bool(self.intents or self.planning or self.rewiring)

    def _steer(self) -> None:
        """Take every step of planning and rewiring that is due now; none of them blocks."""
        if self.planning and self.planning[1].done():
            self.ahead, self.planning = (self.planning[0], *self.planning[1].result()), None
        if self.intents and not self.rewiring and not self.planning:
            self._take_circuits(self.intents[0])
        if self.rewiring and not self.rewiring.commit and self._is_quiet():
            self.rewiring.commit = self.pool.submit(self.control.commit, self.rewiring.plan.epoch)
        if self.rewiring and self.rewiring.commit and self.rewiring.commit.done():
            self._usable(self.rewiring.commit.result())

    def _plan_ahead(self) -> None:
        """Ask for the plan of the stage to come while the present one runs: the schedule is known."""
        if self.control and self.waiting and not self.planning and not self.one_shot:
            self._plan(self.waiting[0])

    def _plan(self, stage: Stage) -> None:
        now = self.records[-1].usable if self.records else 0.0
        self.ahead = None
        upcoming = [s for s in self.waiting if s is not stage][:PLAN_AHEAD]
        self.planning = stage, self.pool.submit(self._ask, stage, now, upcoming, self.epochs[-1][1])

    def _ask(self, stage: Stage, now: float, upcoming: list[Stage], circuits: Circuits) -> tuple[Planned, Routes]:
        """The controller's plan and the ways after it; in a thread, as both take a while."""
        if stage.key not in self.demanded:
            self.demanded[stage.key] = self.trace.pairs(self.trace.rows(stage.key))
        demand, *later = (stage_demand(self.trace, self.fabric, s) for s in (stage, *upcoming))
        plan = self.control.plan(demand, self.demanded[stage.key], now, later)
        after = Routes(self.fabric, plan.rewire.apply(circuits), self.routing)
        if plan.rewire and self.demanded[stage.key]:
            after.links(*self.demanded[stage.key][0])  # places all pairs
        return plan, after

    def _take_circuits(self, stage: Stage) -> None:
        if not self.ahead or self.ahead[0] is not stage:
            self._plan(stage)
            return
        _, plan, after = self.ahead
        self.ahead = None
        self.intents.remove(stage)
        if not plan.rewire:
            self._plan_ahead()
            return
        cables = changed_cables(self.fabric, plan.rewire)
        self.rewiring = _Rewiring(stage, plan, self.clock.now(), cables, after)
        if self.timing.in_flight != "drop":
            self.rewiring.paused = [row for row in sorted(self.flying) if self._must_wait(row)]
        if self.timing.in_flight == "hold":
            self.wire.pause(self.rewiring.paused)

    def _is_quiet(self) -> bool:
        """Whether nothing is under way on the circuits that change: held senders are empty, drained flows are done."""
        if self.timing.in_flight == "drain":
            return not self.flying & set(self.rewiring.paused)
        return not self.wire.unacked([row for row in self.rewiring.paused if row in self.flying])

    def _usable(self, done: Committed) -> None:
        exposed = self._exposed(self.rewiring, done)
        rewiring, self.rewiring = self.rewiring, None
        times = (self.clock.at(t) for t in (done.programmed, done.dark_until, done.usable))
        self.records.append(
            RewireRecord(
                rewiring.plan.epoch,
                str(rewiring.stage),
                rewiring.requested,
                *times,
                rewiring.plan.rewire.size,
                done.lost_bytes,
                rewiring.plan.why,
                exposed,
            )  # fmt: skip
        )
        circuits = rewiring.plan.rewire.apply(self.epochs[-1][1])
        self.epochs.append((self.records[-1].usable, circuits))
        self.routes = rewiring.routes
        if self.timing.in_flight == "hold":
            self.wire.resume([row for row in rewiring.paused if row in self.flying])
        for row in rewiring.parked:
            self._send(row, self.clock.now())
        self._plan_ahead()

    def _exposed(self, rewiring: _Rewiring, done: Committed) -> float:
        """Seconds from request (where senders go on: from programmed) to usable in which a row that was due got nowhere."""
        usable, held, halt = self.clock.at(done.usable), [*rewiring.paused, *rewiring.parked], rewiring.requested
        if self.timing.in_flight == "drop":
            held, halt = [row for row in self.flying if self._must_wait(row)], self.clock.at(done.programmed)
        since = min((float(self.start[row]) for row in held), default=usable)
        return max(usable - max(since, halt), 0.0)

    def _must_wait(self, row: int) -> bool:
        """Whether the way of a row or of its acknowledgements, now or after, crosses a cable of the rewire under way."""
        ends = self.trace.hosts[self.trace.src[row]], self.trace.hosts[self.trace.dst[row]]
        ways = [routes.links(*pair) for routes in (self.routes, self.rewiring.routes) for pair in (ends, ends[::-1])]
        return any(not way or any(link // 2 in self.rewiring.cables for link in way) for way in ways)

    # time

    def _jump_if_idle(self) -> None:
        if self.due and not self.flying and not self._steering():
            self.clock.jump(min(queue[0][0] for queue in (self.due, self.opens) if queue))

    def _patience(self) -> float:
        """Seconds (wall) the wire may wait for bytes before the loop must look again."""
        if self._steering():
            return CONTROL_POLL
        until_due = (self.due[0][0] - self.clock.now()) * self.scale.dilation if self.due else POLL
        return min(max(until_due, 0.0), POLL)

    def _current(self) -> str:
        row = next(iter(self.flying), None)
        return f"{self.trace.phases[self.trace.phase[row]]}/{self.trace.step[row]}" if row is not None else ""

    def _stalled(self) -> str:
        row = min(self.flying)
        ends = f"{self.trace.hosts[self.trace.src[row]]} -> {self.trace.hosts[self.trace.dst[row]]}"
        return (
            f"no byte arrived for {STALL:g} s while {len(self.flying)} flows are in flight (first: row {row}, {ends}); "
            f"a switch, the controller or a link of this run has stopped"
        )

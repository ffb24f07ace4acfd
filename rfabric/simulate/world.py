"""A trace on a fabric under a policy, in the flow-level world: what the emulator does, without
packets.

    stage begins -> policy decides -> planner applies the window rule -> circuits go dark -> routes
    follow -> flows go on

Without OCSes nothing is decided: the engine plays the whole trace at once, its groups of rows side
by side (`core.cpp`).

A stage is a phase, or what the policy's granularity makes of the trace (`trace.stages`). It begins
when the first of its rows is ready. Its flows take the routes of the circuits in force. During a
rewire, flows whose path, before or after it, crosses a circuit that changes stand still; all others
go on.

Time-slotted policies turn to the next circuits of the stage's cycle at the end of every slot in
which something was sent. The turn is known a slot ahead, so it takes no control time and no guard.
Inside a collective circuits may turn in rounds (`playing`), where that is predicted to end sooner
than any one set of circuits. If a stage begins meanwhile, everything in flight is decided again.

Under the routing `split` a row sends in parts, each on a path of its own (`trace.pairs`, `parted`);
everything else sees rows. A row stands still as a whole if one of its parts meets the dark.

Loops of a trace are folded before (`Trace.folded`), and its rows are simulated one by one. Merging
rows was considered:

- No two of the 880,640 rows with bytes of `grpo-65536` are alike (ends, size, start, gap, what they
  wait for), so rows of weight n would save nothing.
- One ring for n disjoint ones would be exact only while they share no cable with anything, run on
  cables of one rate and begin together. Barriers, hashed routes and rewires tie them to each other.
  To prove it row by row costs what the engine costs, and that is a tenth of such a run, because in
  lockstep a step of a ring takes over the rates of the one before.

A caller that knows flows to be identical can say so by the `weight` of `Engine.add`.
"""

import heapq
import time
from collections import deque
from dataclasses import replace
from functools import cache, partial
from weakref import WeakKeyDictionary, WeakMethod

import numpy as np

from .. import native
from ..errors import RFabricError, RunError
from ..fabric import Fabric
from ..optics import Circuits, Decision, Rewire, Timing, intend, parse_policy
from ..optics.circuits import together
from ..optics.outlook import Foresight, Prospect
from ..optics.planner import refuse_cut, turn
from ..optics.policies import spelled
from ..optics.rewiring import NONE, Rewiring
from ..report.result import Progress, Result, Scale
from ..routing.schemes import DEFAULT_SCHEME, SPLIT, one_way
from ..trace import PLAN_AHEAD, Demands, PhaseKey, Scene, Stage, Trace, begins, routing_of, stages
from ..trace.beforehand import first_circuits
from ..trace.packets import PAYLOAD
from ..trace.pairs import KnownWays, Pairs, PairWays
from .folding import folding_of
from .loading import idle_engine, load, packet_engine
from .packets import refuse_hosts, refuse_long, refuse_part, share_of
from .playing import RunningRounds, best_rounds
from .transport import FLUID, TCP, TRANSPORTS, TransportOutlook, known_transport

REPETITIONS = {"folded": "folded", "all": "unrolled", "whole": "whole"}
BREATH_S = 0.5  # least time between two messages inside a phase
PACKETS = "ns3"
PACKETS_NOTE = (
    "packets are ns-3's TCP over queues that lose nothing; its wheel has no RDMA, so it is not RoCE"
)
SLOW_NOTE = "each flow has a connection of its own, which starts slowly"
NO_LOSS = (
    "a fluid loses no bytes: flows on circuits that drop stand still here, and the bytes lost are "
    "not modelled"
)


def simulate(
    fabric: Fabric,
    trace: Trace,
    policy: str = "own",
    *,
    routing: str = DEFAULT_SCHEME,
    timing: Timing = Timing(),
    traffic: str = "",
    seed: int = 0,
    repetitions: str = "folded",
    engine: str = "simulate",
    share: float = 0.0,
    transport: str = FLUID,
    progress: Progress | None = None,
) -> Result:
    """Run `trace` on `fabric` with max-min fair sharing, or with packets if `engine` is `ns3`
    (`packets`). `policy` is what `optics.parse_policy` reads, `routing` a scheme.

    repetitions: loops of the trace are played `folded` in blocks, with `all` of their repetitions,
    or `whole`, as packets do; the result is that of the played trace. share: the part of all bytes
    that packets send (0: as many as take less than a minute). transport: what a message takes
    beyond a fluid's seconds, one of `transport.TRANSPORTS`; packets set out as it says.

    RFabricError when the trace does not fit the fabric or a plan disconnects a pair with demand.
    RunError when flows can never finish, or something was done sooner than computing and NICs
    allow.
    """
    policy, trace = spelled(policy, fabric), _rows_played(trace, repetitions)
    if engine == PACKETS:
        one_way(routing)
    tell = progress or (lambda _: None)
    transport, trace = known_transport(transport), trace.fit(fabric)
    world = _World(fabric, trace, policy, routing, timing, tell, engine, share, transport)
    world.run()
    result, known, outlook = world.result(traffic, seed), world.known, world.outlook
    # the engine and the routes under each set of circuits are larger than all that follows
    del world
    known.settle()
    native.give_back()
    result.check().check_floor()
    result = result.noted(outlook.notes(result) if outlook else ())
    folded = trace.origin and trace.origin.how != "unrolled"
    return _with_folding(result, known) if folded else result


def _with_folding(result: Result, known: KnownWays) -> Result:
    """The result of a folded trace, with a bound on its error."""
    folding = folding_of(result, known)
    name = result.fabric.spec or result.fabric.name
    note = folding.note(name, result.exposed_seconds, bool(result.rewires))
    return result.noted([note], folding)


def _rows_played(trace: Trace, repetitions: str) -> Trace:
    """The rows that stand for `trace`."""
    if repetitions not in REPETITIONS:
        raise RFabricError(
            f"unknown repetitions {repetitions!r}; there are {', '.join(REPETITIONS)}"
        )
    return trace.played(REPETITIONS[repetitions])


KNOWN = 16  # sets of circuits whose paths are kept: phases come back to the same few


class _World:
    def __init__(
        self,
        fabric: Fabric,
        trace: Trace,
        policy: str,
        routing: str,
        timing: Timing,
        progress: Progress,
        engine: str = "simulate",
        share: float = 0.0,
        transport: str = FLUID,
    ):
        self.fabric, self.trace, self.progress = fabric, trace, progress
        self.spelled, self.policy = policy, parse_policy(policy, fabric)
        self.routing = routing_of(routing, fabric, trace)
        self.pairs = Pairs(fabric, trace, self.routing)
        tell = WeakMethod(self._tell)  # a circle would keep the world beyond its run
        self.phase, self.told = "", time.monotonic()
        self.slotted = self.policy.granularity == "time-slotted" and bool(fabric.ocses)
        self.in_rounds = self.policy.granularity == "intra-collective" and bool(fabric.ocses)
        if self.in_rounds and routing == SPLIT:
            raise RFabricError(
                f"policy {self.policy.name}: in a round a pair sends on the circuit that joins it, "
                f"routing {SPLIT} on all its paths; choose another routing (placed), or "
                "granularity=per-collective"
            )
        self.timing = replace(timing, control=0.0, guard=0.0) if self.slotted else timing
        start = first_circuits(fabric, trace, self.policy, self.routing)
        self.contract = Rewiring(fabric, self.timing, start)
        # of the rewire under way: programmed, dark until, usable
        self.times: tuple[float, ...] = ()
        self.halt = np.inf  # when senders that were not told to pause come to a halt
        # stages that have not begun; without circuits there is nothing to decide at their begin
        self.waiting = stages(trace, self.policy.granularity) if fabric.ocses else []
        self.stage_of = begins(self.waiting)
        self.opens = self._opens()
        self.demands = Demands(trace, fabric)
        self.wakes: list[float] = []  # heap: when rows with a gap start, where slots or rounds turn
        self.running: RunningRounds | None = None  # the rounds that are on
        self.before = start  # the circuits from which rounds were last begun
        self.cycle: list[Circuits] = []  # of the stage under way, where slots turn
        # the slot that ends next, while something is being sent
        self.turn, self.next_slot = 0, np.inf
        self.moved = NONE, NONE  # rows in flight as the cycle began, and what each had left
        # with slots a cycle comes back to all of its circuits
        most = np.inf if self.slotted else KNOWN
        self.known = KnownWays(fabric, self.pairs, self.routing, most)
        self.ways = self.known.under(start)
        # of stages to come, by the ways that they would take: they come nearer and nearer
        self.foreseen: WeakKeyDictionary[PairWays, dict[Stage, Foresight]] = WeakKeyDictionary()
        self.share, self.transport = 1.0, transport
        self.outlook: TransportOutlook | None = None  # of a fluid: what a transport could add
        if engine == PACKETS:
            refuse_hosts(fabric)
            self.share = share or share_of(trace, self.ways)
            if transport == TCP:
                refuse_part(self.share)
            # who says how much is sent may wait for that, but not for connections
            chosen = 0.0 if share else self.share
            refuse_long(trace, self.ways, chosen, each=transport == TCP)
            self.engine = packet_engine(fabric, self.share, transport, lambda *so: tell()(*so))
        else:
            parted = self.routing.scheme == SPLIT
            self.engine = idle_engine(fabric, trace, self.pairs, parted, lambda *so: tell()(*so))
            if transport == FLUID:
                self.outlook = TransportOutlook(fabric, trace, self.ways)
        self.name = engine
        trace.settle()
        load(self.engine, fabric, trace, self.pairs, self.ways, transport)
        self.finish_times = cache(self.engine.finish_times)  # asked for often between two runs
        self._watch_begins()

    def result(self, traffic: str, seed: int) -> Result:
        """What came out, not yet checked."""
        engine, trace, contract = self.engine, self.trace, self.contract
        return Result(
            engine=self.name,
            scale=Scale(bandwidth=self.share),
            fabric=self.fabric,
            policy=self.spelled if self.fabric.ocses else "ecmp",
            trace=trace,
            traffic=traffic,
            seed=seed,
            routing=self.routing.scheme,
            start=engine.start_times(),
            finish=engine.finish_times(),
            link_bytes=engine.link_bytes()[:-1],
            sent=trace.size,
            received=trace.size,
            rewires=tuple(contract.records),
            epochs=tuple(contract.epochs),
            notes=self.notes(),
            transport=self.transport,
        )

    def notes(self) -> tuple[str, ...]:
        """What a reader must know: what is not modelled."""
        said = [NO_LOSS] if self.timing.in_flight == "drop" and self.fabric.ocses else []
        if self.name == PACKETS:
            slow = (SLOW_NOTE,) if self.transport == TCP else ()
            return (*said, PACKETS_NOTE, *slow, self._sent())
        if self.transport != FLUID:
            said.append(f"transport {self.transport}: {TRANSPORTS[self.transport]}")
        return tuple(said)

    def _sent(self) -> str:
        sizes = self.trace.size[self.trace.size > 0] * self.share
        many = np.median(np.ceil(sizes / PAYLOAD)) if len(sizes) else 0
        return (
            f"{self.fabric.name}: {self.share:.3g} of all bytes at {self.share:.3g} of all rates, "
            f"{many:,.0f} packets a flow in the median; of few packets a flow is slower than a "
            "fluid, for they go cable by cable"
        )

    def _opens(self) -> deque[tuple[float, int]]:
        """When rows that wait for nothing may begin a stage (s, row), in this order; without slots
        and rounds only the first of each stage, as the engine stops there.
        """
        trace = self.trace
        alone = [row for row in self.stage_of if not len(trace.waits_for(row))]
        line = sorted(zip(trace.start[alone].tolist(), alone, strict=True))
        if self.slotted or self.in_rounds:
            return deque(line)
        firsts: dict[Stage, int] = {}
        for _, row in line:
            for stage in self.stage_of[row]:
                firsts.setdefault(stage, row)
        begin = set(firsts.values())
        return deque(one for one in line if one[1] in begin)

    def _watch_begins(self) -> None:
        """Stop where a stage that waits for rows begins; with slots, wherever something is sent."""
        trace = self.trace
        late = sorted(row for row in self.stage_of if len(trace.waits_for(row)))
        watched = np.array(late, dtype=np.int64)
        sends = np.flatnonzero(trace.size > 0)
        self.engine.watch(np.union1d(watched, sends) if self.slotted else watched)

    def run(self) -> None:
        """Advance from one decision to the next until nothing is left to do."""
        while True:
            self._turned_round()  # the clock of a round may have to start
            events = self.engine.run(min(self._until(), self.opens[0][0] if self.opens else np.inf))
            self.finish_times = cache(self.engine.finish_times)
            seen = events["flow"].tolist()
            while self.opens and self.opens[0][0] <= self.engine.now:
                seen.append(self.opens.popleft()[1])
            if (self.slotted or self.running) and seen:
                self._wake(seen)
            for row in seen:
                self.contract.finished(row)
                for stage in self.stage_of.get(row, ()):
                    if stage in self.waiting:
                        self._begin(stage)
            if not self._steered() and not seen and not self._unblocked():
                return self._finish()
            if self.contract.blocked:
                self.contract.ask_again(self.finish_times())
            while self.contract.asking:
                self._decide()

    def _until(self) -> float:
        """The next instant at which circuits or slots change."""
        if self.contract.under_way:
            return min(self.halt, self.times[-1] if self.times else np.inf)
        round_end = (
            self.running.until if self.running and self.running.until is not None else np.inf
        )
        until = min(self.next_slot, round_end, self.wakes[0] if self.wakes else np.inf)
        return max(until, self.engine.now)  # a slot may have ended while circuits were dark

    def _steered(self) -> bool:
        """Take the step of the rewire or of the slots that is due; False if none is."""
        now = self.engine.now
        if self.times and now >= self.times[-1]:
            self._usable()
        elif now >= self.halt:
            self.halt = np.inf
            self._stop(self.contract.concern(NONE, self._concerned(), dark=True))
        elif self.contract.quiet and not self.times:
            self._go_dark()
        elif self._turns(now):
            self._turn()
        elif self._turned_round():
            pass
        elif self.wakes and now >= self.wakes[0]:
            self._wake([])
        else:
            return False
        return True

    def _unblocked(self) -> bool:
        """Whether a stage asks again for rows in flight that have no way, now that nothing more can
        happen.
        """
        active = self.engine.active()
        asks = not self.slotted and self.policy.granularity != "one-shot"
        return asks and self.contract.unblock(active[self.ways.lost(active)])

    def _finish(self) -> None:
        stuck = np.flatnonzero(~np.isfinite(self.finish_times()))
        if len(stuck):
            hosts, row = self.trace.hosts, int(stuck[0])
            pair = f"{hosts[self.trace.src[row]]} -> {hosts[self.trace.dst[row]]}"
            raise RunError(
                f"{len(stuck)} rows can never finish, first row {row} ({pair}): no "
                "path carries them"
            )
        self._tell(finish=self.finish_times())

    # --- slots ------------------------------------------------------------------------------------

    def _wake(self, rows: list[int]) -> None:
        """Count slots while something is sent. `rows` are ready or done; a row that waits for its
        gap wakes the slots after it.
        """
        now = self.engine.now
        for start in {self._begins(row) for row in rows}:
            heapq.heappush(self.wakes, start)
        while self.wakes and self.wakes[0] <= now:
            heapq.heappop(self.wakes)
        if self.slotted and np.isinf(self.next_slot):
            self.next_slot = self._slot_end()

    def _begins(self, row: int) -> float:
        """When a row that is ready now, or waits for nothing, begins to send."""
        trace = self.trace
        ready = self.engine.now if len(trace.waits_for(row)) else float(trace.start[row])
        return max(float(trace.start[row]), ready + float(trace.gap[row]))

    def _slot_end(self) -> float:
        return self.policy.slot * (np.floor(self.engine.now / self.policy.slot + 1e-9) + 1)

    def _turns(self, now: float) -> bool:
        """Whether a slot ends now. A stage that begins at the same instant is answered first: a
        turn would pass for its answer.
        """
        return now >= self.next_slot and not self.contract.under_way and not self.contract.asking

    def _turn(self) -> None:
        """A slot ends: go on to the next circuits of the cycle if something is being sent;
        otherwise the slots rest, as they do after a cycle in which nothing moved.
        """
        active = self.engine.active()
        if not len(active) or self._idle_cycle(active):
            self.next_slot = np.inf
            return
        self.next_slot = self._slot_end()
        if self.cycle:
            self.turn += 1
            wanted = self.cycle[self.turn % len(self.cycle)]
            decision = turn(
                self.fabric,
                self.policy.name,
                wanted,
                self.policy.slot,
                self.contract.circuits,
                self.timing,
            )
            if decision.rewire:
                self._rewire(decision, self.known.under(decision.circuits))

    def _idle_cycle(self, active: np.ndarray) -> bool:
        """Whether a cycle ends in which the rows in flight were the same and sent nothing: further
        ones would be like it.
        """
        if self.turn % max(len(self.cycle), 1):
            return False
        before, self.moved = self.moved, (active, self.engine.remaining(active))
        return all(map(np.array_equal, before, self.moved))

    # --- rounds -----------------------------------------------------------------------------------

    def _begin_rounds(self, rounds: RunningRounds) -> None:
        """Begin with the first round."""
        self.engine.watch(rounds.rows)
        self.before = self.before if self.running else self.contract.circuits
        self.running = rounds
        self._to_round(0, control=self.timing.control)

    def _turned_round(self) -> bool:
        """Whether the present round is over, or its clock has started or run out."""
        if not self.running or self.contract.under_way or self.contract.asking:
            return False
        running, until = self.running, self.running.until
        if not running.is_over(self.engine):
            return running.until != until
        number = running.next_round(self.engine)
        if number is None:
            self._end_rounds()
        else:
            running.turn(number)
            self._to_round(number, control=0.0)
        return self._turned_round() or True

    def _to_round(self, number: int, control: float) -> None:
        running, circuits = self.running, self.contract.circuits
        wanted, ways = running.rounds.circuits[number], running.ways[number]
        rewire = Rewire.between(circuits, wanted)
        why = (
            f"{self.policy.name}: round {number + 1} of {len(running.ways)}, {rewire.size} "
            "circuits change"
        )
        if rewire:
            self._rewire(Decision(rewire, why, wanted), ways, control)
        else:
            self.contract.stay()
            self._take_ways(ways)

    def _end_rounds(self) -> None:
        """From now on every row takes its ordinary path."""
        if self.running:
            self.running = None
            self._take_ways(self.known.under(self.contract.circuits))

    # --- stages and circuits ----------------------------------------------------------------------

    def _begin(self, stage: Stage) -> None:
        self.waiting.remove(stage)
        self.phase = str(stage)
        self._tell(finish=self.finish_times())
        rows = stage.rows[self.trace.size[stage.rows] > 0]
        self.contract.begin(stage, rows, self.engine.now, self.policy.granularity != "one-shot")
        stands = self._concerned(rows)
        if len(stands):
            stands = self.contract.concern(
                NONE, stands, dark=bool(self.times) and np.isinf(self.halt)
            )
            self._stop(stands)
        self._reroute(rows[~np.isin(rows, stands)])

    def _tell(
        self, now: float = 0.0, ended: int = 0, flows: int = 1, finish: np.ndarray | None = None
    ) -> None:
        """Tell of progress: as a phase begins and at the end, when `finish` of rows is known, and
        while the engine works, which says how many of its `flows` have `ended`.
        """
        if finish is None and time.monotonic() - self.told < BREATH_S:
            return
        self.told, engine = time.monotonic(), self.engine
        sizes, finish = self.trace.size, engine.finish_times() if finish is None else finish
        total, done = int(sizes.sum()), int(sizes.sum(where=np.isfinite(finish)))
        self.progress(
            {
                "stage": "run",
                "phase": self.phase if self.fabric.ocses else self._latest(),
                "clock_s": engine.now,
                "circuits": len(self.contract.circuits),
                # of groups of rows that are played side by side only their number is known
                "done_bytes": done or total * ended // flows,
                "total_bytes": total,
            }
        )

    def _latest(self) -> str:
        """The phase of the row that began last; '' where that is not known yet."""
        start, trace = self.engine.start_times(), self.trace
        if np.isnan(start).all():
            return ""
        row = int(np.nanargmax(start))
        return str(PhaseKey(int(trace.step[row]), trace.phases[trace.phase[row]]))

    def _decide(self) -> None:
        """Answer the stages that ask, all at once."""
        scene = self._scene()
        if self.slotted:
            self._new_cycle(scene)
            return
        decision, rounds = self._chosen(scene)
        if rounds:
            self._begin_rounds(rounds)
        elif decision.rewire:
            self._rewire(decision, self.known.under(decision.circuits))
            self.running = None
        elif decision.wait:
            if not scene.sending:
                refuse_cut(self.fabric, scene.circuits, self.demands.told(scene)[:1])
            self.engine.watch(np.concatenate([rows for rows, _ in scene.open.values()]))
            self.contract.wait()
        else:
            self.contract.stay()
            self._end_rounds()

    def _scene(self) -> Scene:
        """What there is to decide now."""
        contract, coming = self.contract, tuple(self.waiting[:PLAN_AHEAD])
        seen = contract.seen(self.finish_times())
        open_ = {stage: (rows, self.engine.remaining(rows)) for stage, rows in seen.items()}
        return Scene(
            contract.asking, open_, coming, contract.circuits, self.engine.now, contract.since
        )

    def _new_cycle(self, scene: Scene) -> None:
        """The cycle serves everything that sends, not only the stages that begin."""
        demand, sending, _ = self.demands.told(scene)
        self.turn, self.moved = 0, (NONE, NONE)
        self.cycle = self.policy.cycle(together([demand, *sending]), scene.circuits) or self.cycle
        self.contract.stay()

    def _chosen(self, scene: Scene) -> tuple[Decision, RunningRounds | None]:
        """What the policy asks for, weighed by the paths of every flow; and rounds, where they are
        better still.
        """
        demand, sending, coming = self.demands.told(scene)
        rounds, lasts = self.in_rounds, demand.window > self.timing.least_window(self.fabric)
        back = (*((self.before,) if rounds else ()), *self.contract.back) if lasts else ()
        decision = intend(
            self.fabric,
            self.policy,
            demand,
            scene.circuits,
            scene.now,
            coming,
            self.timing,
            sending,
            in_turn=rounds,
            also=back,
        )
        prospect = cache(partial(self._prospect, scene))
        if not decision.wait:
            decision = self.contract.weigh(decision, back, prospect, scene.begins)
        if not rounds or not scene.line:
            return decision, None
        stay, after = (prospect(circuits).now for circuits in (scene.circuits, decision.circuits))
        ends = self.contract.ends(decision, stay, after, scene.begins.now)
        mine = {*scene.asking, *(self.running.stages if self.running else ())}
        known = self.trace, self.pairs, self.routing
        return decision, best_rounds(
            self.contract, self.policy, *known, scene, mine, ends, decision, coming
        )

    def _prospect(self, scene: Scene, circuits: Circuits) -> Prospect:
        """What flows may expect of `circuits`."""
        ways = self.known.under(circuits)
        foreseen = self.foreseen.setdefault(ways, {})

        def later() -> Foresight:
            for stage in scene.coming:
                if stage not in foreseen:
                    alone = replace(scene, asking=(), open={}, coming=(stage,))
                    foreseen[stage] = self.demands.prospect(alone, ways).later
            return Foresight.of([foreseen[stage] for stage in scene.coming])

        return Prospect(self.demands.prospect(scene, ways).now, later)

    def _open(self) -> dict[Stage, np.ndarray]:
        """Unfinished rows with bytes of the stages that have begun."""
        return self.contract.open(self.finish_times())

    def _rewire(self, decision: Decision, after: PairWays, control: float | None = None) -> None:
        """Request the rewire. `control`: s, where it is not the timing's.

        Rows in rounds stop by themselves.
        """
        going = self.contract.take(
            decision, self.engine.now, self.running.stages if self.running else ()
        )
        self.after, self.control = after, self.timing.control if control is None else control
        rows = self._concerned()
        flying = np.isin(rows, self.engine.active()) & self.ways.crossing(rows, going.cables)
        flying &= ~self.ways.lost(rows)  # who has no way never ends by itself
        if self.running:
            flying &= ~np.isin(rows, self.running.rows)
        self._stop(self.contract.concern(rows[flying], rows[~flying]))
        if going.waits_for:
            self.engine.watch(np.array(sorted(going.waits_for), dtype=np.int64))
        else:
            self._go_dark()

    def _rows_of(self, some: tuple[Stage, ...]) -> np.ndarray:
        begun = self.contract.begun
        return np.concatenate([NONE, *(begun[s] for s in some if s in begun)])

    def _concerned(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Those of `rows` (default: all open ones) whose path, now or afterwards, the rewire under
        way darkens.
        """
        going = self.contract.under_way
        if rows is None:
            rows = self._rows_of(tuple(self._open()))
        if not going:
            return rows[:0]
        return rows[
            self.ways.crossing(rows, going.cables) | self.after.crossing(rows, going.cables)
        ]

    def _go_dark(self) -> None:
        programmed = self.engine.now + self.control
        dark_until = programmed + self.fabric.reconfig_delay
        self.times = programmed, dark_until, dark_until + self.timing.settle
        self.halt = programmed if self.timing.in_flight == "drop" else np.inf

    def _usable(self) -> None:
        times, self.times, self.halt = self.times, (), np.inf
        self.contract.done(*times, self.engine.start_times())
        self._take_ways(self.after)

    def _take_ways(self, ways: PairWays) -> None:
        """All open rows take `ways` from now on."""
        self.ways = ways
        self._reroute(self._rows_of(tuple(self._open())))

    def _stop(self, rows: np.ndarray) -> None:
        """Stop rows: put them where nothing is carried."""
        self.engine.reroute(rows, *self.ways.dark(rows))

    def _reroute(self, rows: np.ndarray) -> None:
        if self.running:
            stands = self.running.stands(rows)
            self._stop(rows[stands])
            rows = rows[~stands]
        self.engine.reroute(rows, *self.ways.of(rows))

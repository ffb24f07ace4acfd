"""A trace on a fabric under a policy, in the flow-level world: what the emulator does, without packets.

    stage begins -> policy decides -> planner applies the window rule -> circuits go dark -> routes follow -> flows go on

A stage is a phase, or what the policy's granularity makes of the trace (`trace.stages`); it begins when the first of its rows is
ready. Its flows take the routes of the circuits in force; while a rewire is under way, flows whose way, before it or after,
leads over a circuit that changes stand still, others go on. Time-slotted policies turn to the next circuits of the stage's cycle
at the end of every slot in which something was sent; as the turn is known a slot ahead, it takes no control time and no guard.

Loops of a trace are folded before (`Trace.folded`); its rows are simulated one by one. Of the 880,640 rows with bytes of
`grpo-65536` no two are alike (ends, size, start, gap, what they wait for), so rows of weight n would save nothing. One ring
for n disjoint ones would be exact only while they share no cable with anything, on cables of one rate, and begin together;
barriers, hashed routes and rewires tie them, and to prove it row by row costs what the engine does, which takes a tenth of such
a run: in lockstep a step of a ring takes over the rates of the one before. Who knows that flows are identical says so by the
`weight` of `Engine.add`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from ..errors import RFabricError, RunError
from ..fabric import Fabric
from ..fabric.schemes import DEFAULT_SCHEME, MOST_PLACED, Routing
from ..fabric.ways import offsets_of, spread
from ..optics import Circuits, Decision, Demand, RewireRecord, Timing, intend, parse_policy
from ..optics.planner import weigh
from ..optics.policies import spelled
from ..report.result import Folding, Result
from ..trace import PLAN_AHEAD, PhaseKey, Stage, Trace, begins, routing_of, stage_demand, stages
from .flows import Engine
from .folding import error_bound

Progress = Callable[[dict], None]
REPETITIONS = ("folded", "all")
BREATH_S = 0.5  # least time between two messages inside a phase
TOO_MANY = f"{{pairs:,}} pairs are more than the {MOST_PLACED:,} that are placed: all were left to the hash (ecmp)"
NO_LOSS = "a fluid loses no bytes: flows on circuits that drop stand still here, and the bytes lost are not modelled"


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
    progress: Progress | None = None,
) -> Result:
    """Run `trace` on `fabric` with max-min fair sharing; `policy` is what `optics.parse_policy` reads, `routing` a scheme.

    Loops of the trace are played `folded`, each turn once, or `all` of their repetitions; the result is of the played trace.

    RFabricError when the trace does not fit the fabric or a plan disconnects a pair with demand; RunError when flows can never
    finish.
    """
    policy, trace = spelled(policy, fabric), _played(trace, repetitions)
    world = _World(fabric, trace.fit(fabric), policy, routing, timing, progress or (lambda _: None))
    world.run()
    engine = world.engine
    result = Result(
        engine="simulate", fabric=fabric, policy=policy if fabric.ocses else "ecmp", trace=trace, traffic=traffic, seed=seed,
        routing=world.routing.scheme,
        start=engine.start_times(), finish=engine.finish_times(), link_bytes=engine.link_bytes()[:-1],
        sent=trace.size, received=trace.size, rewires=tuple(world.records), epochs=tuple(world.epochs),
        notes=world.notes(routing),
    ).check()  # fmt: skip
    return _with_folding(result, world.routing) if trace.origin and trace.origin.how == "folded" else result


def _with_folding(result: Result, routing: Routing) -> Result:
    """The result of a folded trace, with how far it may be off."""
    looped = result.trace.origin.looped
    loops, kinds = looped.loops, looped.communication()
    names = dict.fromkeys(
        f"{phase} {label}".strip() for (_, phase, label), rows in kinds.items() if looped.loop[rows].max() >= 0
    )
    collectives = sum(len(loop.between) for loop in loops)
    repetitions = sum(loop.repeat * len(loop.between) for loop in loops)
    found = Folding(collectives, repetitions, tuple(names), error_bound(result, routing))
    name, exposed = result.fabric.spec or result.fabric.name, sum(phase.exposed for phase in result.phases)
    return replace(result, folding=found, notes=(*result.notes, found.note(name, exposed, bool(result.rewires))))


def _played(trace: Trace, repetitions: str) -> Trace:
    """The rows that stand for `trace`; RunError where only an emulation can play it."""
    if trace.stretches:
        raise RunError(
            "a sampled trace leaves repetitions out, for an emulation to stretch; simulate the one it came from"
        )
    if repetitions not in REPETITIONS:
        raise RFabricError(f"no way to play repetitions {repetitions!r}; there are {', '.join(REPETITIONS)}")
    return trace.folded() if repetitions == "folded" else trace.unrolled()


@dataclass
class _Rewiring:
    """A rewire under way: its stage, the cables it darkens, the ways after it, flows in flight that must finish first."""

    stage: Stage
    decision: Decision
    requested: float
    cables: np.ndarray  # a mask
    ways: "_Ways"
    waits_for: set[int]
    held: list[np.ndarray] = field(default_factory=list)  # rows that stood still for it, or would have
    dark_from: float = np.inf  # when senders that were not told to pause come to a halt
    usable: float = np.inf

    @property
    def next_change(self) -> float:
        return min(self.dark_from, self.usable)


class _Pairs:
    """The host pairs that send in a trace: numbers of both ends in the fabric, and which pair each row is (-1: no bytes)."""

    def __init__(self, fabric: Fabric, trace: Trace):
        host = np.array([fabric.host_index[name] for name in trace.hosts], dtype=np.int64)
        sends = np.flatnonzero(trace.size > 0)
        codes, which = np.unique(host[trace.src[sends]] << 32 | host[trace.dst[sends]], return_inverse=True)
        self.src, self.dst = codes >> 32, codes & 0xFFFFFFFF
        self.of = np.full(len(trace), -1, dtype=np.int64)
        self.of[sends] = which


class _Ways:
    """The directed links of host pairs under one set of circuits, `nowhere` where nothing connects one; each found once."""

    def __init__(self, fabric: Fabric, pairs: _Pairs, circuits: Circuits, routing: Routing):
        self.routes, self.pairs = fabric.routes(circuits, routing), pairs
        self.nowhere = 2 * len(fabric.links)
        self.first = np.full(len(pairs.src), -1, dtype=np.int64)
        self.count = np.zeros(len(pairs.src), np.int64)
        self.links = np.zeros(0, np.int32)

    def of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """CSR (offsets, links) of the ways of `rows`, which send."""
        pairs = self.pairs.of[rows]
        self._find(np.unique(pairs[self.first[pairs] < 0]))
        counts = self.count[pairs]
        return offsets_of(counts), self.links[spread(self.first[pairs], counts)]

    def _find(self, pairs: np.ndarray) -> None:
        offsets, links = self.routes.links_of(self.pairs.src[pairs], self.pairs.dst[pairs])
        dark = offsets[1:] == offsets[:-1]
        links = np.insert(links, offsets[:-1][dark], self.nowhere)
        self.count[pairs] = np.diff(offsets) + dark
        self.first[pairs] = len(self.links) + offsets_of(self.count[pairs])[:-1]
        self.links = np.concatenate((self.links, links))

    def crossing(self, rows: np.ndarray, cables: np.ndarray) -> np.ndarray:
        """Which of `rows` cross one of `cables` (a mask), as a mask."""
        offsets, links = self.of(rows)
        hit = np.append(cables, False)[links // 2]
        return np.diff(np.concatenate(([0], np.cumsum(hit)))[offsets]) > 0


class _World:
    def __init__(
        self, fabric: Fabric, trace: Trace, policy: str, routing: str, timing: Timing, progress: Progress
    ):  # fmt: skip
        self.fabric, self.trace, self.timing, self.progress = fabric, trace, timing, progress
        self.policy = parse_policy(policy, fabric)
        self.routing = routing_of(routing, fabric, trace)
        start = self._first_circuits()
        self.circuits = start
        self.epochs: list[tuple[float, Circuits]] = [(0.0, start)]
        self.records: list[RewireRecord] = []
        self.held: list[np.ndarray] = []  # rows that each rewire made wait
        # the last link has no capacity: flows stand on it while their way is dark
        rates = np.append(np.repeat([k.rate for k in fabric.links], 2), 0.0)
        self.engine = Engine(rates, progress=lambda *_: self._tell())
        self.phase, self.told = "", time.monotonic()
        self.slotted = self.policy.granularity == "time-slotted" and bool(fabric.ocses)
        self.timing = replace(timing, control=0.0, guard=0.0) if self.slotted else timing
        self.waiting = stages(trace, self.policy.granularity)  # stages that have not begun
        self.stage_of = begins(self.waiting)
        alone = (r for r in self.stage_of if not len(trace.waits_for(r)))
        self.opens = sorted((float(trace.start[r]), r) for r in alone)
        self.begun = np.zeros(0, np.int64)  # rows with bytes of the stages that have
        self.intents: list[Stage] = []
        self.demanded: dict[PhaseKey, list[tuple[str, str]]] = {}
        self.wakes: list[float] = []  # when rows with a gap start, where slots turn
        self.cycle: list[Circuits] = []  # of the stage under way, where slots turn
        self.turn, self.next_slot = 0, np.inf  # the slot that ends next, while something is being sent
        self.rewiring: _Rewiring | None = None
        self.pairs = _Pairs(fabric, trace)
        self.ways = _Ways(fabric, self.pairs, start, self.routing)
        self.known = {start: self.ways} if self.slotted else {}  # a cycle comes back to the same circuits
        self._fill()

    def notes(self, asked: str) -> tuple[str, ...]:
        """What a reader must know: what is not modelled, and a routing that was not followed."""
        found = (NO_LOSS,) if self.timing.in_flight == "drop" and self.fabric.ocses else ()
        return found if self.routing.scheme == asked else (*found, TOO_MANY.format(pairs=len(self.pairs.src)))

    def _first_circuits(self) -> Circuits:
        """What is lit before the job: the mesh of all racks, or the one plan of a policy asked one-shot."""
        fabric = self.fabric
        if not fabric.ocses:
            return Circuits()
        idle = Demand(fabric.racks, np.zeros((len(fabric.racks),) * 2))
        start = parse_policy("static", fabric).decide(idle, Circuits(), 0.0)
        if self.policy.granularity != "one-shot":
            return start
        (job,) = stages(self.trace, "one-shot")
        demand, pairs = stage_demand(self.trace, fabric, job), self.trace.pairs()
        return intend(fabric, self.policy, demand, start, 0.0, (), self.timing, pairs).circuits

    def _fill(self) -> None:
        trace, sends = self.trace, np.flatnonzero(self.trace.size > 0)
        ends, links = self.ways.of(sends)
        delay = np.append(np.repeat([k.delay for k in self.fabric.links], 2), 0.0)
        counts, latency = np.zeros(len(trace), np.int64), np.zeros(len(trace))
        counts[sends] = np.diff(ends)
        latency[sends] = np.diff(np.concatenate(([0.0], np.cumsum(delay[links])))[ends])
        if trace.origin:  # every repetition has it, also of those that one row sends
            latency *= trace.origin.times
        alone = np.diff(trace.after_offsets) == 0  # the engine counts a gap from what a row waits for
        self.engine.add(
            path_offsets=offsets_of(counts), path_links=links, size=trace.size.astype(float),
            start=trace.start + np.where(alone, trace.gap, 0.0), after_offsets=trace.after_offsets, after=trace.after,
            gap=trace.gap, latency=latency,
        )  # fmt: skip
        watched = np.array(sorted(r for r in self.stage_of if not alone[r]), dtype=np.int64)
        self.engine.watch(np.union1d(watched, sends) if self.slotted else watched)

    def run(self) -> None:
        """Advance from one decision to the next until nothing is left to do."""
        while True:
            until = (
                self.rewiring.next_change
                if self.rewiring
                else min(self.next_slot, self.wakes[0] if self.wakes else np.inf)
            )
            until = max(until, self.engine.now)  # a slot may have ended while circuits were dark
            events = self.engine.run(min(until, self.opens[0][0] if self.opens else np.inf))
            seen = events["flow"].tolist()
            while self.opens and self.opens[0][0] <= self.engine.now:
                seen.append(self.opens.pop(0)[1])
            if self.slotted and seen:
                self._wake(seen)
            for row in seen:
                if self.rewiring:
                    self.rewiring.waits_for.discard(row)
                for stage in self.stage_of.get(row, ()):
                    if stage in self.waiting:
                        self._begin(stage)
            if self.rewiring and self.engine.now >= self.rewiring.next_change:
                self._dark_or_usable()
            elif self.rewiring and not self.rewiring.waits_for and self.rewiring.usable == np.inf:
                self._go_dark()
            elif not self.rewiring and self.engine.now >= self.next_slot:
                self._turn()
            elif self.wakes and self.engine.now >= self.wakes[0]:
                self._wake([])
            elif not seen:
                return self._finish()
            while self.intents and not self.rewiring:
                self._decide(self.intents.pop(0))

    def _finish(self) -> None:
        stuck = np.flatnonzero(~np.isfinite(self.engine.finish_times()))
        if len(stuck):
            hosts, row = self.trace.hosts, int(stuck[0])
            pair = f"{hosts[self.trace.src[row]]} -> {hosts[self.trace.dst[row]]}"
            raise RunError(f"{len(stuck)} rows can never finish, first row {row} ({pair}): no path carries them")
        begin = self.engine.start_times()
        for i, rows in enumerate(self.held):
            record = self.records[i]
            halt = record.programmed if self.timing.in_flight == "drop" else record.requested
            since = max(float(begin[rows].min(initial=np.inf)), halt)
            self.records[i] = replace(record, exposed=max(record.usable - since, 0.0))

    def _wake(self, rows: list[int]) -> None:
        """Slots count while something is sent: `rows` are ready or done; one that waits for its gap wakes us after it."""
        now, trace = self.engine.now, self.trace
        self.wakes = sorted(
            {t for t in self.wakes if t > now} | {now + float(trace.gap[r]) for r in rows if trace.gap[r] > 0}
        )
        if np.isinf(self.next_slot):
            self.next_slot = self._slot_end()

    def _slot_end(self) -> float:
        return self.policy.slot * (np.floor(self.engine.now / self.policy.slot + 1e-9) + 1)

    def _turn(self) -> None:
        """A slot ends: on to the next circuits of the cycle, if something is being sent; else slots rest."""
        if not len(self.engine.active()):
            self.next_slot = np.inf
            return
        self.next_slot = self._slot_end()
        if self.cycle:
            self.turn += 1
            wanted = self.cycle[self.turn % len(self.cycle)]
            decision = weigh(self.fabric, self.policy.name, wanted, self.policy.slot, self.circuits, self.timing)
            if decision.rewire:
                self._rewire(self.stage, decision)

    def _begin(self, stage: Stage) -> None:
        self.waiting.remove(stage)
        rows = stage.rows[self.trace.size[stage.rows] > 0]
        self.phase = str(stage)
        self._tell(at_once=True)
        if self.fabric.ocses:
            self.begun = np.concatenate((self.begun, rows))
            parked = self._parked(rows)
            if parked.any():
                self._park(rows[parked])
            self._reroute(rows[~parked])
            if self.policy.granularity != "one-shot":
                self.intents.append(stage)

    def _tell(self, at_once: bool = False) -> None:
        """Say how far the run is: as a phase begins, and now and then while the engine works."""
        if not at_once and time.monotonic() - self.told < BREATH_S:
            return
        self.told, engine = time.monotonic(), self.engine
        sizes = self.trace.size
        done = int(sizes[np.isfinite(engine.finish_times())].sum())
        self.progress({
            "stage": "run", "phase": self.phase, "clock_s": engine.now, "circuits": len(self.circuits),
            "done_bytes": done, "total_bytes": int(sizes.sum()),
        })  # fmt: skip

    def _decide(self, stage: Stage) -> None:
        plan = [stage_demand(self.trace, self.fabric, s) for s in self.waiting[:PLAN_AHEAD]]
        demand, pairs = stage_demand(self.trace, self.fabric, stage), self._phase_pairs(stage)
        if self.slotted:
            self.stage, self.turn = stage, 0
            self.cycle = self.policy.cycle(demand, self.circuits) or self.cycle
            return
        now = self.engine.now
        decision = intend(self.fabric, self.policy, demand, self.circuits, now, plan, self.timing, pairs)
        if decision.rewire:
            self._rewire(stage, decision)

    def _phase_pairs(self, stage: Stage) -> list[tuple[str, str]]:
        """The host pairs of the phase a stage belongs to: a plan must leave a way to all of them, others may still be sending."""
        if stage.key not in self.demanded:
            self.demanded[stage.key] = self.trace.pairs(self.trace.rows(stage.key))
        return self.demanded[stage.key]

    def _rewire(self, stage: Stage, decision: Decision) -> None:
        after = self.known.get(decision.circuits)
        if after is None:
            after = _Ways(self.fabric, self.pairs, decision.circuits, self.routing)
        if self.slotted:
            self.known[decision.circuits] = after
        before, then = self.ways.routes.lights.cross, after.routes.lights.cross
        cables = (before != then).reshape(-1, 2).any(1)  # those of `changed_cables`, as a mask
        self.rewiring = _Rewiring(stage, decision, self.engine.now, cables, after, set())
        rows = self._open()
        rows = rows[self._parked(rows)]
        if self.timing.in_flight == "drain":
            flying = np.isin(rows, self.engine.active())
            self.engine.watch(rows[flying])
            self.rewiring.waits_for = set(rows[flying].tolist())
            rows = rows[~flying]
        if self.timing.in_flight != "drop":  # who drops goes on until the circuits are gone
            self._park(rows)
        else:
            self.rewiring.held.append(rows)
        if not self.rewiring.waits_for:
            self._go_dark()

    def _parked(self, rows: np.ndarray) -> np.ndarray:
        """Which of `rows` have a way, now or after, over a cable that the rewire under way darkens; a mask."""
        if not self.rewiring:
            return np.zeros(len(rows), bool)
        cables = self.rewiring.cables
        return self.ways.crossing(rows, cables) | self.rewiring.ways.crossing(rows, cables)

    def _open(self) -> np.ndarray:
        """Rows with bytes of the phases that have begun, not finished."""
        self.begun = self.begun[~np.isfinite(self.engine.finish_times()[self.begun])]
        return self.begun

    def _go_dark(self) -> None:
        rewiring, now = self.rewiring, self.engine.now
        programmed = now + self.timing.control
        dark_until = programmed + self.fabric.reconfig_delay
        rewiring.usable = dark_until + self.timing.settle
        if self.timing.in_flight == "drop":
            rewiring.dark_from = programmed
        self.records.append(
            RewireRecord(
                len(self.records) + 1, str(rewiring.stage), rewiring.requested, programmed, dark_until, rewiring.usable,
                rewiring.decision.rewire.size, 0, rewiring.decision.why,
            )
        )  # fmt: skip

    def _dark_or_usable(self) -> None:
        rows = self._open()
        if self.engine.now < self.rewiring.usable:
            self.rewiring.dark_from = np.inf
            self._park(rows[self._parked(rows)])
            return
        self.held.append(np.concatenate((*self.rewiring.held, np.zeros(0, np.int64))))
        self.circuits = self.rewiring.decision.circuits
        self.epochs.append((self.engine.now, self.circuits))
        self.ways, self.rewiring = self.rewiring.ways, None
        self._reroute(rows)

    def _park(self, rows: np.ndarray) -> None:
        self.rewiring.held.append(rows)
        nowhere = np.full(len(rows), 2 * len(self.fabric.links), dtype=np.int32)
        self.engine.reroute(rows, np.arange(len(rows) + 1), nowhere)

    def _reroute(self, rows: np.ndarray) -> None:
        self.engine.reroute(rows, *self.ways.of(rows))

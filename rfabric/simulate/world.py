"""A trace on a fabric under a policy, in the flow-level world: what the emulator does, without packets.

    phase begins -> policy decides -> planner applies the window rule -> circuits go dark -> routes follow -> flows go on

A phase begins when the first of its rows is ready. Its flows take the routes of the circuits in force; while a rewire is under
way, flows whose way, before it or after, leads over a circuit that changes stand still, others go on.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import RunError
from ..fabric import Fabric, Routes
from ..optics import Circuits, Decision, Demand, RewireRecord, Timing, changed_cables, intend, parse_policy
from ..report.result import Result
from ..trace import PhaseKey, Trace
from .flows import Engine

Progress = Callable[[dict], None]


def simulate(
    fabric: Fabric,
    trace: Trace,
    policy: str = "demand",
    *,
    timing: Timing = Timing(),
    traffic: str = "",
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Run `trace` on `fabric` with max-min fair sharing; `policy` names one of `optics.POLICIES`.

    RFabricError when the trace does not fit the fabric or a plan disconnects a pair with demand; RunError when flows can never
    finish.
    """
    world = _World(fabric, trace.fit(fabric), policy, timing, progress or (lambda _: None))
    world.run()
    engine = world.engine
    return Result(
        engine="simulate", fabric=fabric, policy=policy if fabric.ocses else "ecmp", trace=trace, traffic=traffic, seed=seed,
        start=engine.start_times(), finish=engine.finish_times(), link_bytes=engine.link_bytes()[:-1],
        sent=trace.size, received=trace.size, rewires=tuple(world.records), epochs=tuple(world.epochs),
    ).check()  # fmt: skip


@dataclass
class _Rewiring:
    """A rewire under way: for which phase, the cables it darkens, and the flows in flight that must finish before it starts."""

    key: PhaseKey
    decision: Decision
    requested: float
    cables: frozenset[int]
    ways: "_Ways"  # after it
    waits_for: set[int]
    dark_from: float = np.inf  # when senders that were not told to pause come to a halt
    usable: float = np.inf

    @property
    def next_change(self) -> float:
        return min(self.dark_from, self.usable)


class _Ways:
    """The directed links of each host pair of a trace under one set of circuits; `nowhere` where nothing connects it."""

    def __init__(self, fabric: Fabric, trace: Trace, circuits: Circuits):
        self.routes, self.trace = Routes(fabric, circuits), trace
        self.nowhere = (2 * len(fabric.links),)
        self.found: dict[tuple[int, int], tuple[int, ...]] = {}

    def __call__(self, row: int) -> tuple[int, ...]:
        pair = int(self.trace.src[row]), int(self.trace.dst[row])
        if pair not in self.found:
            self.found[pair] = self.routes.links(*(self.trace.hosts[i] for i in pair)) or self.nowhere
        return self.found[pair]


class _World:
    def __init__(self, fabric: Fabric, trace: Trace, policy: str, timing: Timing, progress: Progress):
        self.fabric, self.trace, self.timing, self.progress = fabric, trace, timing, progress
        self.policy = parse_policy(policy, fabric)
        idle = Demand(fabric.racks, np.zeros((len(fabric.racks),) * 2))
        start = parse_policy("static", fabric).decide(idle, Circuits(), 0.0) if fabric.ocses else Circuits()
        self.circuits = start
        self.epochs: list[tuple[float, Circuits]] = [(0.0, start)]
        self.records: list[RewireRecord] = []
        self.nowhere = 2 * len(fabric.links)  # a link without capacity: where flows stand while their way is dark
        self.engine = Engine(np.append(np.repeat([k.rate for k in fabric.links], 2), 0.0))
        self.key_of = {int(r): k for k in trace.phase_keys for r in trace.entries(k)}
        self.opens = sorted((float(trace.start[r]), r) for r in self.key_of if not len(trace.waits_for(r)))
        self.waiting = list(trace.phase_keys)  # phases that have not begun
        self.begun: list[int] = []  # rows with bytes of the phases that have
        self.intents: list[PhaseKey] = []
        self.rewiring: _Rewiring | None = None
        self.path = _Ways(fabric, trace, start)
        self._fill()

    def _fill(self) -> None:
        trace = self.trace
        paths = [self.path(r) if size else () for r, size in enumerate(trace.size.tolist())]
        delay = np.repeat([k.delay for k in self.fabric.links], 2).tolist() + [0.0]
        alone = np.diff(trace.after_offsets) == 0  # the engine counts a gap from what a row waits for
        self.engine.add(
            path_offsets=np.concatenate(([0], np.cumsum([len(p) for p in paths]))),
            path_links=np.array([link for p in paths for link in p], dtype=np.int32),
            size=trace.size.astype(float),
            start=trace.start + np.where(alone, trace.gap, 0.0),
            after_offsets=trace.after_offsets,
            after=trace.after,
            gap=trace.gap,
            latency=np.array([sum(delay[link] for link in p) for p in paths]),
        )
        follows = [r for r in self.key_of if len(trace.waits_for(r))]
        self.engine.watch(np.array(sorted(follows), dtype=np.int64))

    def run(self) -> None:
        """Advance from one decision to the next until nothing is left to do."""
        while True:
            until = self.rewiring.next_change if self.rewiring else np.inf
            events = self.engine.run(min(until, self.opens[0][0] if self.opens else np.inf))
            began = events["flow"].tolist()
            while self.opens and self.opens[0][0] <= self.engine.now:
                began.append(self.opens.pop(0)[1])
            for row in began:
                if self.rewiring:
                    self.rewiring.waits_for.discard(row)
                if self.key_of.get(row) in self.waiting:
                    self._begin(self.key_of[row])
            if self.rewiring and self.engine.now >= self.rewiring.next_change:
                self._dark_or_usable()
            elif self.rewiring and not self.rewiring.waits_for and self.rewiring.usable == np.inf:
                self._go_dark()
            elif not began:
                return self._finish()
            if self.intents and not self.rewiring:
                self._decide(self.intents.pop(0))

    def _finish(self) -> None:
        stuck = np.flatnonzero(~np.isfinite(self.engine.finish_times()))
        if len(stuck):
            hosts, row = self.trace.hosts, int(stuck[0])
            pair = f"{hosts[self.trace.src[row]]} -> {hosts[self.trace.dst[row]]}"
            raise RunError(f"{len(stuck)} rows can never finish, first row {row} ({pair}): no path carries them")

    def _begin(self, key: PhaseKey) -> None:
        self.waiting.remove(key)
        rows = self.trace.rows(key)
        rows = rows[self.trace.size[rows] > 0].tolist()
        self.begun += rows
        self.progress({"stage": "run", "phase": str(key), "clock_s": self.engine.now, "circuits": len(self.circuits)})
        if self.fabric.ocses:
            parked = set(self._parked(rows))
            self._park(sorted(parked))
            self._reroute([r for r in rows if r not in parked])
            self.intents.append(key)

    def _decide(self, key: PhaseKey) -> None:
        plan = [self.trace.demand(self.fabric, k) for k in self.waiting]
        demand, pairs = self.trace.demand(self.fabric, key), self.trace.pairs(self.trace.rows(key))
        now = self.engine.now
        decision = intend(self.fabric, self.policy, demand, self.circuits, now, plan, self.timing, pairs)
        if not decision.rewire:
            return
        after = _Ways(self.fabric, self.trace, decision.rewire.apply(self.circuits))
        self.rewiring = _Rewiring(key, decision, now, changed_cables(self.fabric, decision.rewire), after, set())
        parked = self._parked(self._open())
        if self.timing.in_flight == "drain":
            flying = set(self.engine.active().tolist()) & set(parked)
            self.engine.watch(np.array(sorted(flying), dtype=np.int64))
            self.rewiring.waits_for = flying
            parked = [r for r in parked if r not in flying]
        if self.timing.in_flight != "drop":  # who drops goes on until the circuits are gone
            self._park(parked)
        if not self.rewiring.waits_for:
            self._go_dark()

    def _parked(self, rows: list[int]) -> list[int]:
        """Those of `rows` whose way, now or after, crosses a cable that the rewire under way darkens."""
        if not self.rewiring:
            return []
        cables, ways = self.rewiring.cables, (self.path, self.rewiring.ways)
        return [r for r in rows if any(link // 2 in cables for way in ways for link in way(r))]

    def _open(self) -> list[int]:
        """Rows with bytes of the phases that have begun, not finished."""
        finish = self.engine.finish_times()
        self.begun = [r for r in self.begun if not np.isfinite(finish[r])]
        return self.begun

    def _go_dark(self) -> None:
        rewiring, now = self.rewiring, self.engine.now
        programmed = now + self.timing.control
        dark_until = programmed + self.fabric.reconfig_delay
        rewiring.usable = dark_until + self.timing.settle
        if self.timing.in_flight == "drop":
            self.rewiring.dark_from = programmed
        self.records.append(
            RewireRecord(
                len(self.records) + 1,
                str(rewiring.key),
                rewiring.requested,
                programmed,
                dark_until,
                rewiring.usable,
                rewiring.decision.rewire.size,
                0,
                rewiring.decision.why,
            )  # fmt: skip
        )

    def _dark_or_usable(self) -> None:
        if self.engine.now < self.rewiring.usable:
            self.rewiring.dark_from = np.inf
            self._park(self._parked(self._open()))
            return
        self.circuits = self.rewiring.decision.rewire.apply(self.circuits)
        self.epochs.append((self.engine.now, self.circuits))
        self.path, self.rewiring = self.rewiring.ways, None
        self._reroute(self._open())

    def _park(self, rows: list[int]) -> None:
        n = len(rows)
        self.engine.reroute(np.array(rows, dtype=np.int64), np.arange(n + 1), np.full(n, self.nowhere, dtype=np.int32))

    def _reroute(self, rows: list[int]) -> None:
        if not self.fabric.ocses or not rows:
            return
        paths = [self.path(r) for r in rows]
        offsets = np.concatenate(([0], np.cumsum([len(p) for p in paths])))
        self.engine.reroute(
            np.array(rows, dtype=np.int64), offsets, np.array([k for p in paths for k in p], dtype=np.int32)
        )

"""A trace on a fabric under a policy, in the flow-level world: what the emulator does, without packets.

    phase begins -> policy decides -> planner applies the window rule -> circuits go dark -> routes follow -> flows go on

A phase begins when the first of its rows is ready. Its flows take the routes of the circuits in force; while a rewire is under
way, flows whose way, before it or after, leads over a circuit that changes stand still, others go on.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import RunError
from ..fabric import Fabric
from ..fabric.ways import offsets_of, spread
from ..optics import Circuits, Decision, Demand, RewireRecord, Timing, intend, parse_policy
from ..report.result import Result
from ..trace import PhaseKey, Trace
from .flows import Engine

Progress = Callable[[dict], None]
BREATH_S = 0.5  # least time between two messages inside a phase
NO_LOSS = "a fluid loses no bytes: flows on circuits that drop stand still here, and the bytes lost are not modelled"


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
        notes=(NO_LOSS,) if timing.in_flight == "drop" and fabric.ocses else (),
    ).check()  # fmt: skip


@dataclass
class _Rewiring:
    """A rewire under way: its phase, the cables it darkens, the ways after it, flows in flight that must finish first."""

    key: PhaseKey
    decision: Decision
    requested: float
    cables: np.ndarray  # a mask
    ways: "_Ways"
    waits_for: set[int]
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

    def __init__(self, fabric: Fabric, pairs: _Pairs, circuits: Circuits):
        self.ways, self.pairs = fabric.routes(circuits).ways, pairs
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
        offsets, links = self.ways.links(self.pairs.src[pairs], self.pairs.dst[pairs])
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
    def __init__(self, fabric: Fabric, trace: Trace, policy: str, timing: Timing, progress: Progress):
        self.fabric, self.trace, self.timing, self.progress = fabric, trace, timing, progress
        self.policy = parse_policy(policy, fabric)
        idle = Demand(fabric.racks, np.zeros((len(fabric.racks),) * 2))
        start = parse_policy("static", fabric).decide(idle, Circuits(), 0.0) if fabric.ocses else Circuits()
        self.circuits = start
        self.epochs: list[tuple[float, Circuits]] = [(0.0, start)]
        self.records: list[RewireRecord] = []
        # the last link has no capacity: flows stand on it while their way is dark
        rates = np.append(np.repeat([k.rate for k in fabric.links], 2), 0.0)
        self.engine = Engine(rates, progress=lambda *_: self._tell())
        self.phase, self.told = "", time.monotonic()
        self.key_of = {int(r): k for k in trace.phase_keys for r in trace.entries(k)}
        alone = (r for r in self.key_of if not len(trace.waits_for(r)))
        self.opens = sorted((float(trace.start[r]), r) for r in alone)
        self.waiting = list(trace.phase_keys)  # phases that have not begun
        self.begun = np.zeros(0, np.int64)  # rows with bytes of the phases that have
        self.intents: list[PhaseKey] = []
        self.rewiring: _Rewiring | None = None
        self.pairs = _Pairs(fabric, trace)
        self.ways = _Ways(fabric, self.pairs, start)
        self._fill()

    def _fill(self) -> None:
        trace, sends = self.trace, np.flatnonzero(self.trace.size > 0)
        ends, links = self.ways.of(sends)
        delay = np.append(np.repeat([k.delay for k in self.fabric.links], 2), 0.0)
        counts, latency = np.zeros(len(trace), np.int64), np.zeros(len(trace))
        counts[sends] = np.diff(ends)
        latency[sends] = np.diff(np.concatenate(([0.0], np.cumsum(delay[links])))[ends])
        alone = np.diff(trace.after_offsets) == 0  # the engine counts a gap from what a row waits for
        self.engine.add(
            path_offsets=offsets_of(counts), path_links=links, size=trace.size.astype(float),
            start=trace.start + np.where(alone, trace.gap, 0.0), after_offsets=trace.after_offsets, after=trace.after,
            gap=trace.gap, latency=latency,
        )  # fmt: skip
        self.engine.watch(np.array(sorted(r for r in self.key_of if not alone[r]), dtype=np.int64))

    def run(self) -> None:
        """Advance from one decision to the next until nothing is left to do."""
        while True:
            until = self.rewiring.next_change if self.rewiring else np.inf
            events = self.engine.run(min(until, self.opens[0][0] if self.opens else np.inf))
            seen = events["flow"].tolist()
            while self.opens and self.opens[0][0] <= self.engine.now:
                seen.append(self.opens.pop(0)[1])
            for row in seen:
                if self.rewiring:
                    self.rewiring.waits_for.discard(row)
                if self.key_of.get(row) in self.waiting:
                    self._begin(self.key_of[row])
            if self.rewiring and self.engine.now >= self.rewiring.next_change:
                self._dark_or_usable()
            elif self.rewiring and not self.rewiring.waits_for and self.rewiring.usable == np.inf:
                self._go_dark()
            elif not seen:
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
        rows = rows[self.trace.size[rows] > 0]
        self.phase = str(key)
        self._tell(at_once=True)
        if self.fabric.ocses:
            self.begun = np.concatenate((self.begun, rows))
            parked = self._parked(rows)
            self._park(rows[parked])
            self._reroute(rows[~parked])
            self.intents.append(key)

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

    def _decide(self, key: PhaseKey) -> None:
        plan = [self.trace.demand(self.fabric, k) for k in self.waiting]
        demand, pairs = self.trace.demand(self.fabric, key), self.trace.pairs(self.trace.rows(key))
        now = self.engine.now
        decision = intend(self.fabric, self.policy, demand, self.circuits, now, plan, self.timing, pairs)
        if not decision.rewire:
            return
        after = _Ways(self.fabric, self.pairs, decision.circuits)
        before, then = (self.fabric.routes(c).lights.cross for c in (self.circuits, decision.circuits))
        cables = (before != then).reshape(-1, 2).any(1)  # those of `changed_cables`, as a mask
        self.rewiring = _Rewiring(key, decision, now, cables, after, set())
        rows = self._open()
        rows = rows[self._parked(rows)]
        if self.timing.in_flight == "drain":
            flying = np.isin(rows, self.engine.active())
            self.engine.watch(rows[flying])
            self.rewiring.waits_for = set(rows[flying].tolist())
            rows = rows[~flying]
        if self.timing.in_flight != "drop":  # who drops goes on until the circuits are gone
            self._park(rows)
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
                len(self.records) + 1, str(rewiring.key), rewiring.requested, programmed, dark_until, rewiring.usable,
                rewiring.decision.rewire.size, 0, rewiring.decision.why,
            )
        )  # fmt: skip

    def _dark_or_usable(self) -> None:
        rows = self._open()
        if self.engine.now < self.rewiring.usable:
            self.rewiring.dark_from = np.inf
            self._park(rows[self._parked(rows)])
            return
        self.circuits = self.rewiring.decision.circuits
        self.epochs.append((self.engine.now, self.circuits))
        self.ways, self.rewiring = self.rewiring.ways, None
        self._reroute(rows)

    def _park(self, rows: np.ndarray) -> None:
        nowhere = np.full(len(rows), 2 * len(self.fabric.links), dtype=np.int32)
        self.engine.reroute(rows, np.arange(len(rows) + 1), nowhere)

    def _reroute(self, rows: np.ndarray) -> None:
        self.engine.reroute(rows, *self.ways.of(rows))

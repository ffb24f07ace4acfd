"""The parts of a trace for which circuits are chosen at once, by granularity.

Both worlds ask their policy as a stage begins.

    one-shot         the whole trace, decided before it begins
    per-phase        a phase of a step (training/0)
    per-collective   a communication phase in turn: rows of a phase in the order in which they could
                     start on a network without delay, cut where the label changes (all-to-all,
                     reduce-scatter, all-gather, all-to-all, ...), and before rows that wait for
                     what begins later in another phase; all repetitions of a loop are one, as the
                     circuits that serve the first serve the others
    intra-collective as per-collective; rounds may turn inside a stage
    time-slotted     as per-phase; slots turn inside a stage

Whoever plans knows how long phases compute only as far as it was foreseen (`Trace.foreseen`): what
stages say of time is by that.

A stage's window is the time it is predicted to keep its demand: a phase's is what the trace says; a
collective's lasts until the next one could start, beside its own time at the busiest network card.
"""

from dataclasses import dataclass, replace

import numpy as np

from ..errors import RFabricError
from ..fabric import Fabric
from ..optics import GRANULARITIES, Demand
from ..routing.rows import begins as begins_of
from ..routing.rows import mixed
from .model import PhaseKey, Trace

INSTANT = 9  # decimals of a second to which two instants are one
PLAN_AHEAD = 4  # stages to come that a policy is told of


@dataclass(frozen=True, eq=False)
class Stage:
    """Rows that share their circuits; it begins when the first of `entries` is ready.

    `label` is of a collective, else ''.

    A collective begins with the compute right before it, which hides the rewire: what it waits for
    has been sent by then. `lead` is how long that computing takes: from `begin` to the first byte,
    s on a network without delay. `number` is its place among the stages of its trace, `follows` are
    those that its first byte waits for with no other between; `gap` is what is computed between the
    last byte of them all and `begin`, s. `waves`, int32 by row: how many of the stage wait one for
    the other before it.
    """

    key: PhaseKey
    label: str
    rows: np.ndarray
    entries: np.ndarray
    until_next: float | None = None  # s on a network without delay; None: the phase's window counts
    lead: float = 0.0
    begin: float = 0.0
    number: int = 0
    follows: tuple[int, ...] = ()
    gap: float = 0.0
    waves: np.ndarray | None = None

    def __str__(self) -> str:
        return f"{self.key} {self.label}".strip()


def stages(trace: Trace, granularity: str) -> list[Stage]:
    """The stages of `trace` that send bytes or are phases, in the order in which they could begin.
    RFabricError for another granularity.
    """
    if granularity not in GRANULARITIES:
        raise RFabricError(f"no granularity {granularity!r}; there are {', '.join(GRANULARITIES)}")
    trace = trace.foreseen
    if granularity == "one-shot":
        every = np.arange(len(trace))
        (entries,) = _entries(trace, [every])
        return [Stage(PhaseKey(int(trace.step.min(initial=0)), "all"), "", every, entries)]
    ready, finish = trace.compute_only()
    if granularity in ("per-collective", "intra-collective"):
        return _in_line(trace, _collectives(trace, ready), finish)
    by_phase = trace.rows_by_phase
    firsts, phases = _firsts(trace, list(by_phase.values())), []
    for (key, rows), entries in zip(by_phase.items(), firsts, strict=True):
        lead = _lead(trace, ready, rows, entries)
        phases.append(Stage(key, "", rows, entries, None, lead, float(ready[entries].min())))
    level = _levels(trace)
    phases.sort(key=lambda stage: (stage.begin, level[stage.entries].min()))
    return _in_line(trace, phases, finish)


def stage_demand(
    trace: Trace,
    fabric: Fabric,
    stage: Stage,
    rows: np.ndarray | None = None,
    left: np.ndarray | None = None,
) -> Demand:
    """Rack to rack bytes of a stage, what the network cards need for them, its window and its lead.

    rows, left: those of its rows that still send, and the bytes each has left; it has begun then,
    its lead is the caller's.
    """
    window = trace.windows.get(stage.key, float("inf"))
    if rows is not None:
        return trace.demand_of(fabric, rows, window, stage.key.phase, left)
    demand = trace.demand_of(fabric, stage.rows, window, stage.key.phase)
    if stage.until_next is not None:
        window = stage.until_next + demand.floor
    return replace(demand, window=window, lead=stage.lead)


def waves(trace: Trace, rows: np.ndarray) -> int:
    """At how many instants some of `rows` begin to send on a network without delay; rows that
    follow others count anew.
    """
    ready, _ = trace.compute_only()
    first = np.maximum(ready[rows] + trace.gap[rows], trace.start[rows]).round(INSTANT)
    level = _levels(trace)
    return np.unique(np.stack((first, level[rows])), axis=1).shape[1]


def _levels(trace: Trace) -> np.ndarray:
    """How many rows wait one for the other before each: int64[n]."""
    level = np.zeros(len(trace), np.int64)
    for depth, some in enumerate(trace.levels):
        level[some] = depth
    return level


def _lead(trace: Trace, ready: np.ndarray, rows: np.ndarray, entries: np.ndarray) -> float:
    """Seconds from the first of `entries` to the first byte of `rows`."""
    sends = rows[trace.size[rows] > 0]
    if not len(sends):
        return 0.0
    first = np.maximum(ready[sends] + trace.gap[sends], trace.start[sends]).min()
    return max(float(first - ready[entries].min()), 0.0)


def _collectives(trace: Trace, ready: np.ndarray) -> list[Stage]:
    runs: list[tuple[float, PhaseKey, str, np.ndarray]] = []
    for key, rows in trace.rows_by_phase.items():
        rows = rows[trace.size[rows] > 0]
        loop = trace.loop_of[rows]
        order = np.lexsort((loop, _first_ready(ready[rows], loop)))
        rows, loop = rows[order], loop[order]
        # a loop is one stage, though its turns may differ in label
        changed = np.where(loop[1:] >= 0, 0, np.diff(trace.label[rows]))
        cuts = np.flatnonzero(changed | np.diff(loop)) + 1
        runs += [
            (float(ready[part[0]]), key, trace.labels[trace.label[part[0]]], np.sort(part))
            for part in np.split(rows, cuts)
            if len(part)
        ]
    runs = _unwound(trace, runs, ready)
    # each ends as the next begins; [] where nothing is sent
    ends = [*(begin for begin, *_ in runs[1:]), float("inf")][: len(runs)]
    stages = []
    firsts = _entries(trace, [rows for *_, rows in runs])
    for (begin, key, label, rows), end, first in zip(runs, ends, firsts, strict=True):
        entries = _before(trace, first)
        lead = _lead(trace, ready, rows, entries)
        loop = int(trace.loop_of[rows[0]])
        # folded or not, one repetition's computing comes before its first byte; where it has none,
        # what was computed before the loop does
        if loop >= 0 and (between := trace.looped.loops[loop].between[0]):
            lead = min(lead, between)
        stages.append(
            Stage(key, label, rows, entries, end - begin, lead, float(ready[entries].min()))
        )
    return stages


def _unwound(
    trace: Trace, runs: list[tuple[float, PhaseKey, str, np.ndarray]], ready: np.ndarray
) -> list[tuple[float, PhaseKey, str, np.ndarray]]:
    """Runs (begin, phase, label, rows) by begin; of those at one instant, what others wait for is
    first. One whose rows wait for a run that begins after it is cut before them: they cannot be
    sent beside it. A loop is never cut.
    """
    level, known = _levels(trace), -1
    while True:
        runs.sort(key=lambda one: (one[0], level[one[3]].min()))
        if len(runs) == known:
            return runs
        known, latest = len(runs), trace.latest(_numbered(trace, [rows for *_, rows in runs]))
        runs = [
            (float(ready[part].min()), key, label, part)
            for i, (_, key, label, rows) in enumerate(runs)
            for part in _cut_before(rows, latest[rows] > i, trace.loop_of[rows[0]] >= 0)
        ]


def _cut_before(rows: np.ndarray, late: np.ndarray, whole: bool) -> list[np.ndarray]:
    """`rows`, those that are `late` by themselves."""
    if whole or not late.any() or late.all():
        return [rows]
    return [rows[~late], rows[late]]


def _in_line(trace: Trace, every: list[Stage], finish: np.ndarray) -> list[Stage]:
    """The same, told which of them it follows; `finish`: s, of each row on a network without
    delay.
    """
    sends = [stage.rows[trace.size[stage.rows] > 0] for stage in every]
    numbers = _numbered(trace, sends)
    latest, depths = trace.latest(numbers), trace.depths(numbers)
    first = np.zeros(len(trace), bool)
    for rows in sends:
        first[rows] = latest[rows] == latest[rows].min(initial=len(every))
    nearest, none = trace.nearest(numbers, first), np.zeros(0, np.int64)
    ends = [float(finish[rows].max(initial=0.0)) for rows in sends]
    told = []
    for i, stage in enumerate(every):
        follows = tuple(k for k in nearest.get(i, none).tolist() if k < i)
        gap = max(stage.begin - max(ends[k] for k in follows), 0.0) if follows else 0.0
        waves = depths[stage.rows].astype(np.int32)
        told.append(replace(stage, number=i, follows=follows, gap=gap, waves=waves))
    return told


def _numbered(trace: Trace, groups: list[np.ndarray]) -> np.ndarray:
    """Which of `groups` each row is in, -1: none: int64[n]."""
    numbers = np.full(len(trace), -1, np.int64)
    for i, rows in enumerate(groups):
        numbers[rows] = i
    return numbers


def _first_ready(ready: np.ndarray, loop: np.ndarray) -> np.ndarray:
    """When each row is ready; all rows of a loop (-1: none) with its first, so that nothing comes
    between its repetitions.
    """
    first_ready, some = ready.copy(), loop >= 0
    if some.any():
        which = loop[some] - loop[some].min()
        first = np.full(which.max() + 1, np.inf)
        np.minimum.at(first, which, ready[some])
        first_ready[some] = first[which]
    return first_ready


def begins(every: list[Stage]) -> dict[int, list[Stage]]:
    """The stages that may begin as a row is ready, by row."""
    by_row: dict[int, list[Stage]] = {}
    for stage in every:
        for row in stage.entries.tolist():
            by_row.setdefault(row, []).append(stage)
    return by_row


def _before(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """The compute rows right before `rows`, past rows that take no time; where a row waits for
    bytes or nothing, the row.
    """
    before, seen, sends = set(), set(rows.tolist()), trace.size > 0
    open_ = [(row, row) for row in sorted(seen)]
    while open_:
        row, first = open_.pop()
        parents = trace.waits_for(row)
        send = sends[parents]
        if not len(parents) or send.any():
            before.add(first)
        for parent in parents[~send].tolist():
            if trace.gap[parent] > 0:
                before.add(parent)
            elif parent not in seen:
                open_.append((parent, first))
            seen.add(parent)
    return np.array(sorted(before), dtype=np.int64)


def _firsts(trace: Trace, groups: list[np.ndarray]) -> list[np.ndarray]:
    """Of each group of rows those that wait for no other of it."""
    numbers = _numbered(trace, groups)
    owner = trace.owner
    inside = numbers[owner] == numbers[trace.after]
    follows = np.zeros(len(trace), bool)
    follows[owner[inside]] = True
    return [rows[~follows[rows]] for rows in groups]


def _entries(trace: Trace, groups: list[np.ndarray]) -> list[np.ndarray]:
    """Of each group of rows those that wait for no other of it; of those that wait for the same
    rows and start at one time the first alone.
    """
    counts = np.diff(trace.after_offsets).astype(np.uint64)
    sums = np.concatenate(
        ([np.uint64(0)], np.cumsum(mixed(trace.after.astype(np.uint64)), dtype=np.uint64))
    )
    waits = sums[trace.after_offsets[1:]] - sums[trace.after_offsets[:-1]]
    alike, entries = (trace.start.view(np.uint64), counts, waits), []
    for first in _firsts(trace, groups):
        first = first[np.lexsort([column[first] for column in alike])]  # of equal ones in order
        entries.append(np.sort(first[begins_of(*(column[first] for column in alike))]))
    return entries

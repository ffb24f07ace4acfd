"""Repetitions as data: a loop says once what a job sends again and again, and this file makes rows
of it.

    one run of turn t  computes between[t] s, then sends all rows of the turn at once and computes
                       beside[t] s meanwhile
    the body           its turns in order; the loop is the body `repeat` times, one after the other

    unrolled  head -> [gate -> flows, beside]... -> barrier -> [gate -> flows, beside]... -> barrier
              for every repetition
    folded    the same, each block of repetitions as one, with all their bytes and computing: 1, 1,
              2, 4, ... of them
    whole     all repetitions in one block

A gate is a row that computes what stands between, a barrier one that takes no time; both send
nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import RFabricError
from ..routing.rows import distinct, in_order, offsets_of, spread

MOST_SECONDS = 1e9  # so that times keep microseconds
# rows a folded trace may have more than it must: what plays and is written in seconds
MOST_FOLDED = 1 << 19
# rows: about 30 GB, at some 300 bytes a flow in the engine and 150 in a trace
MOST_PLAYED = 1 << 26
HELPERS = ("computing", "computing beside", "barrier")  # labels of rows that no file names
BETWEEN, BESIDE, BARRIER = range(len(HELPERS))
LOOPED = ("step", "phase", "start", "gap")  # columns in which the rows of a loop are the same


@dataclass(frozen=True)
class Loop:
    """A body of turns that runs `repeat` times.

    between: s of computing before each turn, while the loop sends nothing; beside: s of computing
    beside each turn, which is over when both its flows and this are done (none given: none).
    """

    repeat: int
    between: tuple[float, ...]
    beside: tuple[float, ...] = ()

    def __post_init__(self):
        object.__setattr__(self, "between", tuple(map(float, self.between)))
        object.__setattr__(
            self, "beside", tuple(map(float, self.beside)) or (0.0,) * len(self.between)
        )
        if self.repeat != int(self.repeat) or self.repeat < 1:
            raise RFabricError(f"loop: repeat {self.repeat} must be 1 or more, a whole number")
        object.__setattr__(self, "repeat", int(self.repeat))
        if not self.between or len(self.between) != len(self.beside):
            raise RFabricError(
                f"loop: {len(self.between)} turns with computing between, {len(self.beside)} "
                f"with computing beside; give both for every turn, at least one"
            )
        for name in ("between", "beside"):
            bad = [seconds for seconds in getattr(self, name) if not 0 <= seconds <= MOST_SECONDS]
            if bad:
                raise RFabricError(
                    f"loop: {name} {bad[0]} s must be finite and not negative, "
                    f"at most {MOST_SECONDS:g}"
                )
        if not self.compute_seconds <= MOST_SECONDS:
            raise RFabricError(
                f"loop: repeat {self.repeat} takes {self.compute_seconds:g} s of computing, at "
                f"most {MOST_SECONDS:g}"
            )

    def paced(self, pace: float) -> "Loop":
        """The same, where all computing takes `pace` times as long."""
        times = ([pace * s for s in some] for some in (self.between, self.beside))
        return Loop(self.repeat, *map(tuple, times))

    @property
    def compute_seconds(self) -> float:
        """s that all repetitions take on a network without delay."""
        return self.repeat * (sum(self.between) + sum(self.beside))


def check_loops(
    loops: Sequence[Loop], columns: dict[str, np.ndarray], offsets: np.ndarray, after: np.ndarray
) -> None:
    """RFabricError where rows do not make the loops they say they belong to; `columns` are a
    trace's, by name.
    """
    loop, turn, size = columns["loop"], columns["turn"], columns["size"]
    beyond = np.flatnonzero((loop < -1) | (loop >= len(loops)))
    if len(beyond):
        raise RFabricError(f"trace row {beyond[0]}: loop {loop[beyond[0]]}, there are {len(loops)}")
    rows = np.flatnonzero(loop >= 0)
    turns = {number: np.unique(turn[part]).tolist() for number, part in rows_of_loops(loop).items()}
    for number, one in enumerate(loops):
        if number not in turns:
            raise RFabricError(f"loop {number} has no rows; leave it out")
        if turns[number] != list(range(len(one.between))):
            raise RFabricError(
                f"loop {number}: its rows have turns {', '.join(map(str, turns[number]))}; it "
                f"has {len(one.between)}, numbered from 0, and each must send something"
            )
    silent = rows[size[rows] == 0]
    if len(silent):
        raise RFabricError(
            f"trace row {silent[0]}: size 0 in a loop; give what computes as between or beside"
        )
    if len(rows):
        _alike(rows, columns, offsets, after)


def _alike(
    rows: np.ndarray, columns: dict[str, np.ndarray], offsets: np.ndarray, after: np.ndarray
) -> None:
    """RFabricError where rows of one loop differ in what a loop has once, or wait for their own
    loop.
    """
    loop = columns["loop"]
    first = np.full(loop[rows].max() + 1, -1, dtype=np.int64)
    first[loop[rows[::-1]]] = rows[::-1]
    first = first[loop[rows]]
    for name in LOOPED:
        _same(rows, first, columns[name][rows] != columns[name][first], name)
    counts = np.diff(offsets)
    _same(rows, first, counts[rows] != counts[first], "after")
    owner = np.repeat(rows, counts[rows])
    mine, other = (after[spread(offsets[which], counts[rows])] for which in (rows, first))
    own = np.flatnonzero(loop[mine] == loop[owner])
    if len(own):
        raise RFabricError(
            f"trace row {owner[own[0]]} waits for row {mine[own[0]]} of its own "
            "loop; turns go in order"
        )
    differ = mine[np.lexsort((mine, owner))] != other[np.lexsort((other, owner))]
    _same(owner, np.repeat(first, counts[rows]), differ, "after")


def _same(rows: np.ndarray, first: np.ndarray, differ: np.ndarray, name: str) -> None:
    bad = np.flatnonzero(differ)
    if len(bad):
        raise RFabricError(
            f"trace row {rows[bad[0]]}: {name} differs from that of row {first[bad[0]]} of the "
            "same loop; a loop has one"
        )


def rows_of_loops(loop: np.ndarray) -> dict[int, np.ndarray]:
    """The rows of each loop, ascending."""
    rows = np.flatnonzero(loop >= 0)
    rows = rows[np.argsort(loop[rows], kind="stable")]
    parts = np.split(rows, np.flatnonzero(np.diff(loop[rows])) + 1) if len(rows) else []
    return {int(loop[part[0]]): part for part in parts}


@dataclass(frozen=True, eq=False)
class PlayedRows:
    """Rows of a trace with its loops played: n rows, by what they stand for in the trace they come
    from.

    origin: int32[n] row, -1 of a helper; like: int32[n] the row whose sender, step and phase a
    helper shares; kind: int8[n] of a helper, into HELPERS; folded: int32[n] the loop of whose
    folded blocks a row is part, -1 for none; spans: int64[loops that fold, 2] the row after which
    the first such block begins, and the last row; times: int64[n] bytes are so many times the
    row's; gap, start: float64[n] s; after as CSR.
    """

    origin: np.ndarray
    like: np.ndarray
    kind: np.ndarray
    folded: np.ndarray
    spans: np.ndarray
    times: np.ndarray
    gap: np.ndarray
    start: np.ndarray
    after_offsets: np.ndarray
    after: np.ndarray


@dataclass(frozen=True, eq=False)
class _Body:
    """One repetition: n rows, numbered from 0; -1 is the row before it.

    owner, entry: which row waits for which.
    """

    origin: np.ndarray
    like: np.ndarray
    kind: np.ndarray
    gap: np.ndarray
    owner: np.ndarray
    entry: np.ndarray

    def __len__(self) -> int:
        return len(self.origin)


def play(
    loops: Sequence[Loop],
    columns: dict[str, np.ndarray],
    offsets: np.ndarray,
    after: np.ndarray,
    how: str,
) -> PlayedRows:
    """The rows of a trace with every repetition of its loops as rows (unrolled), blocks of them
    (folded), or all as one (whole).

    A loop takes the place of its first row. What waits for a row of a loop waits for the loop's
    end. RFabricError for too many rows.
    """
    loop = columns["loop"]
    parts = rows_of_loops(loop)
    bodies = {k: _body(loops[k], rows, columns["turn"][rows]) for k, rows in parts.items()}
    room = (MOST_FOLDED - len(loop)) // max(sum(map(len, bodies.values())), 1)
    most = {"unrolled": 0, "folded": max(room, 1), "whole": 1}[how]
    width = (loop < 0).astype(np.int64)
    for k, rows in parts.items():
        turns = len(blocks(loops[k].repeat, most)) if most else loops[k].repeat
        width[rows[0]] = 1 + turns * len(bodies[k])
    if width.sum() > MOST_PLAYED:
        raise RFabricError(
            f"the repetitions are {int(width.sum()):,} rows, more than {MOST_PLAYED:,}; fold them"
        )
    runs = {k: blocks(loops[k].repeat, most) for k in parts}
    place = np.cumsum(width) - width
    ends = place.copy()  # of each row the one whose finish is its own
    for rows in parts.values():
        ends[rows] = place[rows[0]] + width[rows[0]] - 1
    out = _Out(int(width.sum()))
    heads = np.array([rows[0] for rows in parts.values()], dtype=np.int64)
    kept = np.sort(np.concatenate((np.flatnonzero(loop < 0), heads)))
    out.keep(kept, place, ends, columns, offsets, after)
    out.kind[place[heads]], out.origin[place[heads]] = BARRIER, -1
    for k, rows in parts.items():
        out.repeat(int(place[rows[0]]) + 1, bodies[k], runs[k])
    return out.done()


def blocks(repeat: int, most: int) -> np.ndarray:
    """How many repetitions each block folds, int64: one at first, then ever more, in at most so
    many blocks; 0: each by itself.

    What a loop meets as it begins (the rewire for it, the tail of what came before) it meets as it
    would in full; what runs beside it for long meets blocks that are short against it.
    """
    if not most:
        return np.ones(repeat, np.int64)
    count = min(most, 1 + int(np.ceil(np.log2(repeat)))) if repeat > 1 else 1
    steps = np.arange(count) / max(count - 1, 1)
    ends = np.unique(
        np.append(np.round(repeat**steps).astype(np.int64)[:-1] if count > 1 else [], repeat)
    )
    return np.diff(ends, prepend=0).astype(np.int64)


def _body(loop: Loop, rows: np.ndarray, turn: np.ndarray) -> _Body:
    """One repetition."""
    columns: list[tuple] = []  # (origin, like, kind, gap) of runs of rows
    owners, entries, before, n = [], [], np.array([-1]), 0

    def helper(kind: int, like: int, gap: float, waits: np.ndarray) -> np.ndarray:
        nonlocal n
        columns.append(([-1], [like], [kind], [gap]))
        owners.append(np.full(len(waits), n))
        entries.append(waits)
        n += 1
        return np.array([n - 1])

    for number, (between, beside) in enumerate(zip(loop.between, loop.beside, strict=True)):
        flows = rows[turn == number]
        like = int(flows[0])
        gate = helper(BETWEEN, like, between, before)
        columns.append((flows, flows, np.full(len(flows), -1), np.zeros(len(flows))))
        before = np.arange(n, n + len(flows))
        owners.append(before)
        entries.append(np.repeat(gate, len(flows)))
        n += len(flows)
        if beside:
            before = np.append(before, helper(BESIDE, like, beside, gate))
    helper(BARRIER, like, 0.0, before)
    return _Body(
        *map(np.concatenate, zip(*columns, strict=True)),
        np.concatenate(owners),
        np.concatenate(entries),
    )


class _Out:
    """Columns of a played trace, being filled."""

    def __init__(self, n: int):
        self.origin, self.like = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
        self.kind, self.times = np.full(n, -1, np.int8), np.ones(n, np.int64)
        self.folded, self.spans = np.full(n, -1, np.int32), []
        self.gap, self.start = np.zeros(n), np.zeros(n)
        self.owners: list[np.ndarray] = []
        self.entries: list[np.ndarray] = []

    def keep(
        self,
        rows: np.ndarray,
        place: np.ndarray,
        ends: np.ndarray,
        columns: dict,
        offsets: np.ndarray,
        after: np.ndarray,
    ) -> None:
        """Rows that are played as they are; of what they wait for each end once."""
        at = place[rows]
        self.origin[at] = self.like[at] = rows
        self.gap[at] = columns["gap"][rows]
        if columns["start"].any():  # zeros that nobody writes take no memory
            self.start[at] = columns["start"][rows]
        counts = np.diff(offsets)[rows]
        entries = ends[after[spread(offsets[rows], counts)]]
        waits = distinct(np.repeat(at, counts) << 32 | entries)
        self.owners.append(waits >> 32)
        self.entries.append(waits & 0xFFFFFFFF)

    def repeat(self, at: int, body: _Body, times: np.ndarray) -> None:
        """A body from row `at` on for each block of `times` repetitions."""
        every = slice(at, at + len(times) * len(body))
        for name in ("origin", "like", "kind", "gap"):
            getattr(self, name)[every] = np.tile(getattr(body, name), len(times))
        self.times[every] = np.repeat(times, len(body))
        self.gap[every] *= self.times[every]
        if (times > 1).any():
            begin, end = at + len(body) * int(np.argmax(times > 1)), at + len(body) * len(times)
            self.folded[begin:end] = len(self.spans)
            self.spans.append((begin - 1, end - 1))
        first = at + len(body) * np.arange(len(times))[:, None]
        self.owners.append((first + body.owner).ravel())
        self.entries.append((first + body.entry).ravel())

    def done(self) -> PlayedRows:
        spans = np.array(self.spans, dtype=np.int64).reshape(-1, 2)
        owner, entry = np.concatenate(self.owners), np.concatenate(self.entries)
        order = in_order(owner)
        counts = np.bincount(owner, minlength=len(self.origin))
        return PlayedRows(
            self.origin,
            self.like,
            self.kind,
            self.folded,
            spans,
            self.times,
            self.gap,
            self.start,
            offsets_of(counts),
            entry[order],
        )

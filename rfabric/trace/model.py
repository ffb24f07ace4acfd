"""What must be sent: flows with dependencies (closed loop) or start times (open loop), as columns.

    row  src  dst  size_bytes  after  gap_s  phase     label
    0    h1   h1   0                  12.5   training  backward        compute row: 12.5 s, no bytes
    1    h1   h9   6.4e9       0      0      training  reduce-scatter  starts when row 0 is done
    2    h9   h1   6.4e9       0      0      training  reduce-scatter
    3    h1   h1   0           1 2    0.8    training  optimizer       0.8 s after both are done

A row is ready when everything in `after` has finished (where it waits for nothing: at its `start`).
It starts `gap` seconds later, not before its `start`, and finishes when its last byte has arrived;
a row of size 0 finishes when it starts. Rows of one (step, phase) are a phase; rows of one (step,
phase, label) that send bytes are a *communication phase*, the unit in which the two worlds are
compared.

Rows of a *loop* run again and again (`loops.Loop`): `turn` by `turn`, all rows of a turn at once.
Their `size` is what one repetition sends, `total` what all do; `after`, `gap` and `start` say when
the loop begins. What waits for a row of a loop waits for the whole loop. Such a trace is not run
itself but played: `folded`, `unrolled` or `whole`.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ..errors import RFabricError
from ..fabric import Fabric
from ..fabric.cabling import cabling_of, host_numbers
from ..fabric.called import hosts_called
from ..optics import Demand
from ..routing.rows import Entries, begins, distinct, in_order, numbered, spread
from ..routing.schemes import Routing, Sent
from ..units import show_size, transfer_seconds
from . import sweeps
from .loops import HELPERS, MOST_SECONDS, Loop, check_loops, play

PHASES = ("generation", "training", "weight_sync")
PLAYS = ("folded", "unrolled", "whole")
MOST_PACE = 1e6  # of seconds foreseen over those that computing takes
MOST_NAMES = 1 << 15  # phases, and labels, that numbers of 16 bits tell apart
MOST_BYTES = 1e18  # so that sums of bytes stay whole numbers of 64 bits


@dataclass(frozen=True)
class PhaseKey:
    """One phase of one step."""

    step: int
    phase: str

    def __str__(self) -> str:
        return f"{self.phase}/{self.step}"

    @classmethod
    def of(cls, text: str) -> "PhaseKey":
        """The key that is written `text`.

        >>> PhaseKey.of("training/0")
        PhaseKey(step=0, phase='training')
        """
        phase, _, step = text.rpartition("/")
        return cls(int(step), phase)


def rack_demand(
    fabric: Fabric,
    src: np.ndarray,
    dst: np.ndarray,
    size: np.ndarray,
    window: float = float("inf"),
    phase: str = "",
) -> Demand:
    """Rack to rack bytes of flows between hosts (numbers in the fabric), and what the busiest
    network card needs for them.
    """
    cabled = cabling_of(fabric)
    rack, hosts = cabled.host_rack, len(cabled.host_rack)
    away = rack[src] != rack[dst]  # traffic inside a rack asks for no circuit
    sent = Entries.summed(rack[src[away]], rack[dst[away]], size[away], len(fabric.racks))
    nic = cabled.rate[cabled.host_link]
    cards = (np.bincount(ends, size, minlength=hosts) for ends in (src, dst))
    floor = max(float(transfer_seconds(load, nic).max(initial=0.0)) for load in cards)
    return Demand(fabric.racks, sent, window, phase, floor)


@dataclass(frozen=True, eq=False)
class Trace:
    """Columns of n rows; ids in `after` are row numbers.

    hosts: names; src, dst: int32[n] into hosts; size: int64[n] bytes; start: float64[n] s;
    gap: float64[n] s; after_offsets: int64[n+1], after: int32 (CSR); step: int32[n];
    phase: int16[n] into phases; label: int16[n] into labels; loop: int32[n] into loops, -1 of a
    row that runs once; turn: int16[n], which turn of its loop a row belongs to.

    `windows` gives the predicted seconds of a phase where its maker knows them; `paces`, of phases
    whose end was forecast, the seconds of computing that were foreseen over those it takes.
    `provenance` says where all this comes from, `origin` which looped trace it plays.

    >>> from rfabric.trace import TraceBuilder
    >>> job = TraceBuilder(["h1", "h2"])
    >>> rows = job.flows([0, 1], [1, 0], [1e6, 2e6], phase="training")
    >>> trace = job.build()
    >>> trace.phase_keys, trace.size.tolist()
    ((PhaseKey(step=0, phase='training'),), [1000000, 2000000])
    >>> trace.pairs()
    [('h1', 'h2'), ('h2', 'h1')]
    """

    hosts: tuple[str, ...]
    src: np.ndarray
    dst: np.ndarray
    size: np.ndarray
    start: np.ndarray
    gap: np.ndarray
    after_offsets: np.ndarray
    after: np.ndarray
    step: np.ndarray
    phase: np.ndarray
    label: np.ndarray
    phases: tuple[str, ...]
    labels: tuple[str, ...]
    windows: dict[PhaseKey, float] = field(default_factory=dict)
    provenance: dict = field(default_factory=dict)
    loop: np.ndarray | None = None
    turn: np.ndarray | None = None
    loops: tuple[Loop, ...] = ()
    origin: "Origin | None" = None
    paces: dict[PhaseKey, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        sent = show_size(float(self.total.sum()))
        rows, hosts, phases = len(self.src), len(self.hosts), len(self.phase_keys)
        return f"<Trace: {rows} rows, {hosts} hosts, {phases} phases, {sent}>"

    def __post_init__(self):
        types = {
            "src": np.int32,
            "dst": np.int32,
            "size": np.int64,
            "start": float,
            "gap": float,
            "after_offsets": np.int64,
            "after": np.int32,
            "step": np.int32,
            "phase": np.int16,
            "label": np.int16,
            "loop": np.int32,
            "turn": np.int16,
        }
        for name in ("phases", "labels"):
            if len(getattr(self, name)) > MOST_NAMES:
                raise RFabricError(
                    f"trace: {len(getattr(self, name)):,} {name}, at most {MOST_NAMES:,}; let "
                    "rows share them"
                )
        for name, value in (("loop", -1), ("turn", 0)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, np.full(len(self.size), value))
        self._check_places()
        for name, dtype in types.items():
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=dtype))
        self._check()

    def _check(self) -> None:
        n = len(self)
        for name in ("src", "dst", "start", "gap", "step", "phase", "label", "loop", "turn"):
            if getattr(self, name).shape != (n,):
                raise RFabricError(
                    f"trace: column {name} has {len(getattr(self, name))} rows, size has {n}"
                )
        for name, most in (("size", MOST_BYTES), ("start", MOST_SECONDS), ("gap", MOST_SECONDS)):
            column = getattr(self, name)
            bad = np.flatnonzero(~((column >= 0) & (column <= most)))
            if len(bad):
                way = "; count from the first row" * (name == "start")
                raise RFabricError(
                    f"trace row {bad[0]}: {name} {column[bad[0]]} must be finite and not "
                    f"negative, at most {most:g}{way}"
                )
        same = np.flatnonzero((self.src == self.dst) & (self.size > 0))
        if len(same):
            raise RFabricError(
                f"trace row {same[0]}: {self.hosts[self.src[same[0]]]} sends to itself; leave it "
                "out, or give it 0 bytes: then it computes"
            )
        self._check_forecasts()
        check_loops(self.loops, self._columns, self.after_offsets, self.after)
        if np.multiply(self.size, self.times_sent, dtype=float).sum() > MOST_BYTES:
            raise RFabricError(f"trace: more than {MOST_BYTES:g} bytes in all; split it")
        if not self.in_order:  # else there is no cycle
            self.levels  # noqa: B018  a cycle raises here

    def _check_forecasts(self) -> None:
        for key, window in self.windows.items():
            if not window >= 0:
                raise RFabricError(f"trace: window {key} is {window!r} s; it must be 0 or more")
        for key, pace in self.paces.items():
            if not 0 <= pace <= MOST_PACE:
                raise RFabricError(
                    f"trace: pace {key} is {pace!r}; it must be from 0 to {MOST_PACE:g}: seconds "
                    "of computing foreseen over those it takes"
                )

    def _check_places(self) -> None:
        """What names hosts and rows, before narrow types cut it."""
        hosts = len(self.hosts)
        for name, limit in (("src", hosts), ("dst", hosts), ("after", len(self))):
            column = np.asarray(getattr(self, name))
            bad = np.flatnonzero((column < 0) | (column >= limit))
            if len(bad):
                raise RFabricError(f"trace: {name} names {column[bad[0]]}, there are {limit}")

    def __len__(self) -> int:
        return len(self.size)

    @property
    def _columns(self) -> dict[str, np.ndarray]:
        """What loops are made from."""
        return {
            name: getattr(self, name)
            for name in ("loop", "turn", "size", "step", "phase", "start", "gap")
        }

    @property
    def times_sent(self) -> np.ndarray:
        """How often each row sends its bytes in truth: int64[n]."""
        return np.append([one.repeat for one in self.loops], 1).astype(np.int64)[self.loop]  # -1: 1

    @property
    def looped(self) -> "Trace":
        """The trace with the loops that this one plays; self where it plays none."""
        return self.origin.looped if self.origin else self

    @cached_property
    def loop_of(self) -> np.ndarray:
        """The loop each row belongs to, of this trace or of the one it plays; -1 for none:
        int32[n].
        """
        if self.origin is None:
            return self.loop
        return np.where(self.origin.rows >= 0, self.origin.looped.loop[self.origin.rows], -1)

    @cached_property
    def total(self) -> np.ndarray:
        """Bytes of each row in all its repetitions: int64[n]."""
        return self.size * self.times_sent if self.loops else self.size

    def folded(self) -> "Trace":
        """Blocks of repetitions, each as one with the bytes and the computing of them all: what
        plays fast.

        Exact where nobody else shares a cable with the loop while it runs: max-min fair shares do
        not depend on how much is left to send, so that a turn of r times the bytes ends after r
        times its seconds, and the order of turns changes no sum. Order and mean load are kept as
        they are; what differs is only the competition with flows outside the loop.
        """
        return self.played("folded")

    def unrolled(self) -> "Trace":
        """Every repetition as rows of its own."""
        return self.played("unrolled")

    def whole(self) -> "Trace":
        """All repetitions of a loop as one block: the fewest rows, for packets."""
        return self.played("whole")

    def played(self, how: str) -> "Trace":
        """`folded`, `unrolled` or `whole`; self where nothing is repeated, else the same object
        each time: runs share it. RFabricError for another word.
        """
        if how not in PLAYS:
            raise RFabricError(f"a trace is not played {how!r}; there are {', '.join(PLAYS)}")
        if not self.loops:
            return self
        if how not in self._plays:
            self._plays[how] = self._play(how)
            self._forget()
        return self._plays[how]

    def _forget(self) -> None:
        """Drop what was worked out and can be again: runs ask the trace that is played."""
        for name, kind in vars(Trace).items():
            if isinstance(kind, cached_property) and name != "_plays":
                vars(self).pop(name, None)

    def settle(self) -> None:
        """Let go of what is asked before a run alone, and large: who asks again waits again."""
        for name in ("levels", "_sending"):
            vars(self).pop(name, None)

    @cached_property
    def _plays(self) -> dict[str, "Trace"]:
        return {}

    def _play(self, how: str) -> "Trace":
        made = play(self.loops, self._columns, self.after_offsets, self.after, how)
        like, helps = made.like, made.origin < 0
        labels = (*self.labels, *(name for name in HELPERS if name not in self.labels))
        names = np.array([labels.index(name) for name in HELPERS])
        return replace(
            self,
            src=self.src[like],
            dst=np.where(helps, self.src[like], self.dst[like]),
            size=np.where(helps, 0, self.size[like] * made.times),
            start=made.start,
            gap=made.gap,
            after_offsets=made.after_offsets,
            after=made.after,
            step=self.step[like],
            phase=self.phase[like],
            label=np.where(helps & (made.kind >= 0), names[made.kind], self.label[like]),
            labels=labels,
            loop=None,
            turn=None,
            loops=(),
            origin=Origin(self, made.origin, made.folded, made.spans, how, made.times),
        )

    @cached_property
    def levels(self) -> tuple[np.ndarray, ...]:
        """Rows by depth: each level waits for rows of earlier levels only; a cycle is an
        RFabricError naming a row.
        """
        if self.in_order and len(self) and sweeps.core():
            depth = self.depths(np.zeros(len(self), np.int64))
            return tuple(np.split(in_order(depth), np.cumsum(np.bincount(depth))[:-1]))
        offsets, followers = self.followers
        unmet, followed = self._waits.copy(), np.diff(offsets)
        level, levels = np.flatnonzero(unmet == 0), []
        while len(level):
            levels.append(level)
            met = np.sort(followers[spread(offsets[level], followed[level])])
            first = np.flatnonzero(begins(met))
            rows = met[first]
            unmet[rows] -= np.diff(first, append=len(met))
            level = rows[unmet[rows] == 0].astype(np.int64)
        if sum(map(len, levels)) != len(self):
            row = np.flatnonzero(unmet > 0)[0]
            raise RFabricError(f"trace row {row} waits for itself: its `after` form a cycle")
        return tuple(levels)

    @cached_property
    def in_order(self) -> bool:
        """Whether every row waits for rows before it alone."""
        return not (self.after >= self.owner).any()

    @property
    def owner(self) -> np.ndarray:
        """For each entry of `after`, the row that waits: int32."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self._waits)

    @cached_property
    def _waits(self) -> np.ndarray:
        """How many rows each row waits for: int32[n]."""
        return np.diff(self.after_offsets).astype(np.int32)

    @cached_property
    def _waiting(self) -> sweeps.WaitingRows:
        """What rows wait for, as the compiled core passes over it."""
        line = None if self.in_order else np.concatenate(self.levels).astype(np.int32)
        return sweeps.WaitingRows(self.after_offsets, self.after, line)

    @property
    def followers(self) -> tuple[np.ndarray, np.ndarray]:
        """CSR of the rows that wait for each row: the transpose of `after`."""
        offsets = np.concatenate(([0], np.cumsum(np.bincount(self.after, minlength=len(self)))))
        return offsets, self.owner[in_order(self.after)]

    def waits_for(self, row: int) -> np.ndarray:
        """The rows that `row` waits for."""
        return self.after[self.after_offsets[row] : self.after_offsets[row + 1]]

    @cached_property
    def phase_keys(self) -> tuple[PhaseKey, ...]:
        """The (step, phase) pairs of the trace, in the order of their first rows."""
        codes = self.step.astype(np.int64) * len(self.phases) + self.phase
        first = np.sort(np.unique(codes, return_index=True)[1])
        return tuple(PhaseKey(int(self.step[i]), self.phases[self.phase[i]]) for i in first)

    @cached_property
    def rows_by_phase(self) -> dict[PhaseKey, np.ndarray]:
        """The rows of each phase, ascending, phases in the order of their first rows."""
        codes = self.step.astype(np.int64) * len(self.phases) + self.phase
        order = np.argsort(codes, kind="stable")
        runs = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(self) else []
        rows = {PhaseKey(int(self.step[r[0]]), self.phases[self.phase[r[0]]]): r for r in runs}
        return {key: rows[key] for key in self.phase_keys}

    def rows(self, key: PhaseKey) -> np.ndarray:
        """The rows of one phase; none of one that is not there."""
        return self.rows_by_phase.get(key, np.zeros(0, np.int64))

    def entries(self, key: PhaseKey) -> np.ndarray:
        """The rows of a phase that wait for no row of the same phase: the phase begins when the
        first of them may start.
        """
        inside = np.zeros(len(self), bool)
        inside[self.rows(key)] = True
        follows = np.bincount(self.owner[inside[self.after]], minlength=len(self)) > 0
        return np.flatnonzero(inside & ~follows)

    def pairs(self, rows: np.ndarray | None = None) -> list[tuple[str, str]]:
        """The ordered host pairs that send bytes, each once, ascending."""
        rows = np.arange(len(self)) if rows is None else rows
        rows = rows[self.size[rows] > 0]
        codes = np.unique(self.src[rows].astype(np.int64) << 32 | self.dst[rows])
        return [(self.hosts[c >> 32], self.hosts[c & 0xFFFFFFFF]) for c in codes.tolist()]

    def demand(self, fabric: Fabric, key: PhaseKey) -> Demand:
        """Rack to rack bytes of one phase and the window it is predicted to last."""
        return self.demand_of(
            fabric, self.rows(key), self.windows.get(key, float("inf")), key.phase
        )

    def demand_of(
        self,
        fabric: Fabric,
        rows: np.ndarray,
        window: float = float("inf"),
        phase: str = "",
        left: np.ndarray | None = None,
    ) -> Demand:
        """Rack to rack bytes of these rows (`left`: what each still sends), and what the busiest
        network card needs for them.
        """
        size = self.total[rows] if left is None else left
        host = host_numbers(fabric, self.hosts)
        ends = host[self.src[rows]], host[self.dst[rows]]
        return rack_demand(fabric, *ends, size, window, phase)

    def sending(self, fabric: Fabric) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(rows that send bytes; int64, the pairs of hosts that do, src << 32 | dst by numbers in
        the fabric, each once, ascending; int32, which of them each row is of).
        """
        rows, codes, which = self._sending
        host = host_numbers(fabric, self.hosts)
        pairs = host[codes >> 32] << 32 | host[codes & 0xFFFFFFFF]
        if (np.diff(pairs) > 0).all():
            return rows, pairs, which
        order = np.argsort(pairs)
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order))
        return rows, pairs[order], place[which]

    @cached_property
    def _sending(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same, by the numbers of hosts in the trace."""
        rows = np.flatnonzero(self.size > 0)
        codes = self.src[rows].astype(np.int64) << 32 | self.dst[rows]
        pairs, which = numbered(codes)
        return rows, pairs, which.astype(np.int32)

    def sent(self, fabric: Fabric) -> Sent:
        """What host pairs send, by communication phase (phase, label), steps added up: what routing
        places.
        """
        rows, pairs, which = self.sending(fabric)
        names, kind = numbered(self.phase[rows].astype(np.int64) << 16 | self.label[rows])
        shape = len(names), len(pairs)
        sent = np.bincount(
            kind * len(pairs) + which, self.total[rows], minlength=shape[0] * shape[1]
        ).reshape(shape)
        return Sent(pairs >> 32, pairs & 0xFFFFFFFF, sent)

    def fit(self, fabric: Fabric) -> "Trace":
        """The trace, its hosts called as `fabric` calls them, where it calls them as the file of
        the fabric does, or knows that they are called so (`hosts` of its provenance); RFabricError
        where it names one that `fabric` lacks.
        """
        told = self.provenance.get("hosts")
        told = told if isinstance(told, dict) else {}
        hosts = hosts_called(fabric, self.hosts, told)
        if hosts == self.hosts:
            return self
        origin = self.origin and replace(self.origin, looped=self.origin.looped.fit(fabric))
        truly = (told.get(name, name) for name in self.hosts)
        called = {"hosts": dict(zip(hosts, truly, strict=True))}
        return replace(self, hosts=hosts, origin=origin, provenance=self.provenance | called)

    def compute_only(self) -> tuple[np.ndarray, np.ndarray]:
        """(ready, finish) of every row on a network that takes no time: what the step costs without
        any communication.

        Rows of a loop are ready when it is, and finish with it.
        """
        return self.times(self.computing)

    @property
    def computing(self) -> np.ndarray:
        """What each row computes after it has begun, s: what its loop does, else nothing."""
        return np.append([one.compute_seconds for one in self.loops], 0.0)[self.loop]

    @cached_property
    def foreseen(self) -> "Trace":
        """The trace as whoever plans ahead knows it: computing of a phase whose end was forecast
        takes what was foreseen, in every row the same share; self where nothing was forecast.
        """
        if not self.paces:
            return self
        paces = np.ones((len(self.phases), int(self.step.max(initial=0)) + 1))
        for key, pace in self.paces.items():
            if key.phase in self.phases and 0 <= key.step < paces.shape[1]:
                paces[self.phases.index(key.phase), key.step] = pace
        each = paces[self.phase, self.step]
        of_loop = np.ones(len(self.loops) + 1)
        of_loop[self.loop] = each  # a loop is in one phase; those that run once come last
        loops = tuple(map(Loop.paced, self.loops, of_loop.tolist()))
        return replace(self, gap=self.gap * each, loops=loops, paces={})

    def times(
        self, spent: np.ndarray, apart: bool = False, others: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(ready, finish) of every row, where each takes `spent` (float64[n], s) from its start on.

        apart: each phase by itself, as if it began at 0 s and waited for no other and for no clock.
        others: float64[n], s: each phase by itself, rows of others finish then.
        """
        none = np.zeros(len(self)) if apart else None
        start, elsewhere = (none, none) if apart else (self.start, others)
        return self._passed(start, self.gap, spent, elsewhere)

    def chains(self, spent: np.ndarray) -> np.ndarray:
        """float64[n]: of all chains of rows of one phase that end with a row, each waiting for the
        one before, the most that they spend; each row `spent` (float64[n], none below 0).
        """
        none = np.zeros(len(self))
        return self._passed(none, none, spent, none)[1]

    def _passed(
        self, start: np.ndarray, gap: np.ndarray, spent: np.ndarray, elsewhere: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(ready, finish) of rows that begin `gap` after they are ready, not before `start`, and
        take `spent`; rows of other phases finish `elsewhere`, where that is told.
        """
        phase = None
        if elsewhere is not None:
            phase = self.step.astype(np.int64) * len(self.phases) + self.phase
        if sweeps.core():
            return self._waiting.times(start, gap, spent, phase, elsewhere)
        ready, finish = start.copy(), start + gap + spent
        for level in self.levels[1:]:
            counts = self._waits[level]
            waits = self.after[spread(self.after_offsets[level], counts)]
            before = finish[waits]
            if phase is not None:
                same = phase[waits] == np.repeat(phase[level], counts)
                before = np.where(same, before, elsewhere[waits])
            ready[level] = np.maximum.reduceat(before, np.cumsum(counts) - counts)
            finish[level] = np.maximum(start[level], ready[level] + gap[level]) + spent[level]
        return ready, finish

    @cached_property
    def in_turn(self) -> bool:
        """Whether no phase waits for one whose first row comes after its own: none waits, through
        another, for itself.
        """
        numbers = np.empty(len(self), np.int64)
        for number, rows in enumerate(self.rows_by_phase.values()):
            numbers[rows] = number
        return bool((self.latest(numbers) <= numbers).all())

    def latest(self, numbers: np.ndarray) -> np.ndarray:
        """For each row the largest of `numbers` (int64[n], -1: none) of all rows it waits for, at
        any remove; -1 where there are none.
        """
        if sweeps.core():
            return self._waiting.latest(numbers)
        latest = np.full(len(self), -1, np.int64)
        for level in self.levels[1:]:
            counts = self._waits[level]
            before = self.after[spread(self.after_offsets[level], counts)]
            latest[level] = np.maximum.reduceat(
                np.maximum(latest[before], numbers[before]), np.cumsum(counts) - counts
            )
        return latest

    def nearest(self, numbers: np.ndarray, asked: np.ndarray) -> dict[int, np.ndarray]:
        """By number, which others some rows wait for with no other between, ascending; `numbers`:
        int64[n] from 0, -1: none, `asked`: mask of the rows meant, each of which has one.
        """
        begin, count = np.zeros(len(self), np.int64), np.zeros(len(self), np.int64)
        kept, used, nearest = np.zeros(len(self) + 1, np.int64), 0, [np.zeros(0, np.int64)]
        for level in self.levels[1:]:
            level = level[asked[level] | (numbers[level] < 0)]
            waits = self._waits[level]
            before = self.after[spread(self.after_offsets[level], waits)]
            place, own = np.repeat(np.arange(len(level)), waits), numbers[before] >= 0
            many = count[before[~own]]
            inner = kept[spread(begin[before[~own]], many)]
            place = np.concatenate((place[own], np.repeat(place[~own], many)))
            code = distinct(place << 32 | np.concatenate((numbers[before[own]], inner)))
            place, one = code >> 32, code & 0xFFFFFFFF
            count[level] = np.bincount(place, minlength=len(level))
            begin[level] = used + np.cumsum(count[level]) - count[level]
            who = numbers[level[place]]
            nearest.append(distinct(who[who >= 0] << 32 | one[who >= 0]))
            if used + len(one) > len(kept):
                kept = np.concatenate((kept, np.zeros(len(kept) + len(one), np.int64)))
            kept[used : used + len(one)] = one
            used += len(one)
        some = distinct(np.concatenate(nearest))
        who, which = some >> 32, some & 0xFFFFFFFF
        ends = np.flatnonzero(np.diff(who, prepend=-1))
        return dict(zip(who[ends].tolist(), np.split(which, ends)[1:], strict=True))

    def depths(self, numbers: np.ndarray) -> np.ndarray:
        """For each row how many of its own number (int64[n], -1: none) wait one for the other
        before it, with no larger number between: int64[n].
        """
        if sweeps.core():
            return self._waiting.depths(numbers)
        depths, carried = np.zeros(len(self), np.int64), np.full(len(self), -1, np.int64)
        for level in self.levels:
            own, counts = numbers[level], self._waits[level]
            before = carried[self.after[spread(self.after_offsets[level], counts)]]
            most = np.full(len(level), -1, np.int64)
            if len(before):
                firsts = np.cumsum(counts) - counts
                mine = np.where(before >> 32 == np.repeat(own, counts), before & 0xFFFFFFFF, 0)
                depths[level] = np.maximum.reduceat(mine, firsts)
                most = np.maximum.reduceat(before, firsts)
            carried[level] = np.where(own >= 0, own << 32 | depths[level] + 1, most)
        return depths

    def communication(self) -> dict[tuple[int, str, str], np.ndarray]:
        """Rows that send bytes, by (step, phase, label)."""
        return dict(self._communication)

    @cached_property
    def _communication(self) -> dict[tuple[int, str, str], np.ndarray]:
        rows = np.flatnonzero(self.size > 0)
        codes = (
            self.step[rows].astype(np.int64) << 32
            | self.phase[rows].astype(np.int64) << 16
            | self.label[rows]
        )
        kinds, which = numbered(codes)
        order = in_order(which)
        runs = np.split(rows[order], np.cumsum(np.bincount(which))[:-1]) if len(rows) else []
        keys = [
            (code >> 32, self.phases[code >> 16 & 0xFFFF], self.labels[code & 0xFFFF])
            for code in kinds.tolist()
        ]
        return {keys[i]: runs[i] for i in np.argsort([run[0] for run in runs]).tolist()}


@dataclass(frozen=True, eq=False)
class Origin:
    """Where the rows of a played trace come from.

    rows: int32[n] rows of `looped`, -1 of those that only compute or wait for the loop; folded:
    int32[n] the loop of whose folded blocks a row is part, -1 for none; spans: int64[loops that
    fold, 2] the row after which the first such block begins, and the last row; how: folded,
    unrolled or whole; times: int64[n] repetitions whose bytes and computing a row holds.
    """

    looped: Trace
    rows: np.ndarray
    folded: np.ndarray
    spans: np.ndarray
    how: str
    times: np.ndarray


def routing_of(scheme: str, fabric: Fabric, trace: Trace) -> Routing:
    """The Routing of a scheme for a trace: `placed` is told what the pairs send."""
    return Routing(scheme, trace.sent(fabric) if scheme == "placed" else None)

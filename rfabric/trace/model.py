"""What must be sent: flows with dependencies (closed loop) or start times (open loop), as columns.

    row  src  dst  size_bytes  after     gap_s   phase     label
    0    h1   h1   0                     12.5    training  backward          a compute row: nothing is sent, 12.5 s pass
    1    h1   h9   6.4e9       0         0       training  reduce-scatter    starts when row 0 is done
    2    h9   h1   6.4e9       0         0       training  reduce-scatter
    3    h1   h1   0           1 2       0.8     training  optimizer         starts when both are done, takes 0.8 s

A row is ready when everything in `after` has finished (where it waits for nothing: at its `start`). It starts `gap` seconds
later, not before its `start`, and finishes when its last byte has arrived; a row of size 0 finishes when it starts.
Rows of one (step, phase) are a phase; rows of one (step, phase, label) that send bytes are a *communication phase*, the
unit in which the two worlds are compared.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..errors import RFabricError
from ..fabric import Fabric
from ..fabric.schemes import Routing, Sent
from ..fabric.ways import offsets_of, spread
from ..optics import Demand
from ..units import transfer_seconds

PHASES = ("generation", "training", "weight_sync")
SHARED = ("start", "gap", "step", "phase", "label")  # columns in which rows added together are the same
MOST_BYTES, MOST_SECONDS = 1e18, 1e9  # so that sums of bytes stay whole numbers of 64 bits, and times keep microseconds


@dataclass(frozen=True)
class PhaseKey:
    """One phase of one step."""

    step: int
    phase: str

    def __str__(self) -> str:
        return f"{self.phase}/{self.step}"


@dataclass(frozen=True, eq=False)
class Trace:
    """Columns of n rows; ids in `after` are row numbers.

    hosts: names; src, dst: int32[n] into hosts; size: int64[n] bytes; start: float64[n] s; gap: float64[n] s;
    after_offsets: int64[n+1], after: int64 (CSR); step: int32[n]; phase: int16[n] into phases; label: int16[n] into labels.
    `windows` gives the predicted seconds of a phase where its maker knows them. `provenance` says where all this comes from.
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

    def __post_init__(self):
        types = {
            "src": np.int32, "dst": np.int32, "size": np.int64, "start": float, "gap": float, "after_offsets": np.int64,
            "after": np.int64, "step": np.int32, "phase": np.int16, "label": np.int16,
        }  # fmt: skip
        if np.asarray(self.size, dtype=float).sum() > MOST_BYTES:
            raise RFabricError(f"trace: more than {MOST_BYTES:g} bytes in all; split it")
        for name, dtype in types.items():
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=dtype))
        self._check()

    def _check(self) -> None:
        n = len(self)
        for name in ("src", "dst", "start", "gap", "step", "phase", "label"):
            if getattr(self, name).shape != (n,):
                raise RFabricError(f"trace: column {name} has {len(getattr(self, name))} rows, size has {n}")
        for name, most in (("size", MOST_BYTES), ("start", MOST_SECONDS), ("gap", MOST_SECONDS)):
            column = getattr(self, name)
            bad = np.flatnonzero(~((column >= 0) & (column <= most)))
            if len(bad):
                raise RFabricError(
                    f"trace row {bad[0]}: {name} {column[bad[0]]} must be finite and not negative, at most {most:g}"
                )
        for name, limit in (("src", len(self.hosts)), ("dst", len(self.hosts)), ("after", n)):
            column = getattr(self, name)
            bad = np.flatnonzero((column < 0) | (column >= limit))
            if len(bad):
                raise RFabricError(f"trace: {name} names {column[bad[0]]}, there are {limit}")
        same = np.flatnonzero((self.src == self.dst) & (self.size > 0))
        if len(same):
            raise RFabricError(f"trace row {same[0]}: {self.hosts[self.src[same[0]]]} sends to itself")
        if (self.after >= self.owner).any():  # else every row waits for earlier ones, which is no cycle
            self.levels  # noqa: B018  a cycle raises here

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def levels(self) -> tuple[np.ndarray, ...]:
        """Rows by depth: each level waits for rows of earlier levels only; a cycle is an RFabricError naming a row."""
        offsets, followers = self.followers
        unmet = np.diff(self.after_offsets)
        level, found = np.flatnonzero(unmet == 0), []
        while len(level):
            found.append(level)
            met = followers[spread(offsets[level], np.diff(offsets)[level])]
            np.subtract.at(unmet, met, 1)
            level = np.unique(met[unmet[met] == 0])
        if sum(map(len, found)) != len(self):
            row = np.flatnonzero(unmet > 0)[0]
            raise RFabricError(f"trace row {row} waits for itself: its `after` form a cycle")
        return tuple(found)

    @cached_property
    def owner(self) -> np.ndarray:
        """For each entry of `after`, the row that waits."""
        return np.repeat(np.arange(len(self)), np.diff(self.after_offsets))

    @cached_property
    def followers(self) -> tuple[np.ndarray, np.ndarray]:
        """CSR of the rows that wait for each row: the transpose of `after`."""
        offsets = np.concatenate(([0], np.cumsum(np.bincount(self.after, minlength=len(self)))))
        return offsets, self.owner[np.argsort(self.after, kind="stable")]

    def waits_for(self, row: int) -> np.ndarray:
        """The rows that `row` waits for."""
        return self.after[self.after_offsets[row] : self.after_offsets[row + 1]]

    @cached_property
    def phase_keys(self) -> tuple[PhaseKey, ...]:
        """The (step, phase) pairs of the trace, in the order of their first rows."""
        codes = self.step.astype(np.int64) * len(self.phases) + self.phase
        first = np.sort(np.unique(codes, return_index=True)[1])
        return tuple(PhaseKey(int(self.step[i]), self.phases[self.phase[i]]) for i in first)

    def rows(self, key: PhaseKey) -> np.ndarray:
        """The rows of one phase."""
        return np.flatnonzero((self.step == key.step) & (self.phase == self.phases.index(key.phase)))

    def entries(self, key: PhaseKey) -> np.ndarray:
        """The rows of a phase that wait for no row of the same phase: the phase begins when the first of them may start."""
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
        return self.demand_of(fabric, self.rows(key), self.windows.get(key, float("inf")), key.phase)

    def demand_of(
        self, fabric: Fabric, rows: np.ndarray, window: float = float("inf"), phase: str = "", left: np.ndarray | None = None
    ) -> Demand:  # fmt: skip
        """Rack to rack bytes of these rows (`left`: what each still sends), and what the busiest network card needs for them."""
        size = self.size[rows] if left is None else left
        host = np.array([fabric.host_index[name] for name in self.hosts], dtype=np.int64)
        rack, n = fabric.cabling.host_rack[host], len(fabric.racks)
        src, dst = self.src[rows], self.dst[rows]
        sent = np.bincount(rack[src] * n + rack[dst], size, minlength=n * n).reshape(n, n)
        np.fill_diagonal(sent, 0.0)  # traffic inside a rack asks for no circuit
        nic = fabric.cabling.rate[fabric.cabling.host_link[host]]
        cards = (np.bincount(ends, size, minlength=len(host)) for ends in (src, dst))
        floor = max(float(transfer_seconds(load, nic).max(initial=0.0)) for load in cards)
        return Demand(fabric.racks, sent, window, phase, floor)

    def sent(self, fabric: Fabric) -> Sent:
        """What host pairs send, by communication phase (phase, label), steps added up: what routing places."""
        rows = np.flatnonzero(self.size > 0)
        host = np.array([fabric.host_index[name] for name in self.hosts], dtype=np.int64)
        pairs, which = np.unique(host[self.src[rows]] << 32 | host[self.dst[rows]], return_inverse=True)
        names, kind = np.unique(self.phase[rows].astype(np.int64) << 16 | self.label[rows], return_inverse=True)
        shape = len(names), len(pairs)
        sent = np.bincount(kind * len(pairs) + which, self.size[rows], minlength=shape[0] * shape[1]).reshape(shape)
        return Sent(pairs >> 32, pairs & 0xFFFFFFFF, sent)

    def fit(self, fabric: Fabric) -> "Trace":
        """Self, when `fabric` has every host that the trace names; else an RFabricError."""
        missing = [h for h in self.hosts if h not in fabric.rack_of]
        if missing:
            raise RFabricError(
                f"the trace names {len(missing)} hosts that {fabric.spec or fabric.name} lacks, first {missing[0]}; "
                f"the fabric has {len(fabric.hosts)} hosts, {fabric.hosts[0]} to {fabric.hosts[-1]}"
            )
        return self

    def compute_only(self) -> tuple[np.ndarray, np.ndarray]:
        """(ready, finish) of every row on a network that takes no time: what the step costs without any communication."""
        ready, finish = self.start.copy(), self.start + self.gap
        for level in self.levels[1:]:
            counts = np.diff(self.after_offsets)[level]
            before = finish[self.after[spread(self.after_offsets[level], counts)]]
            ready[level] = np.maximum.reduceat(before, np.cumsum(counts) - counts)
            finish[level] = np.maximum(self.start[level], ready[level] + self.gap[level])
        return ready, finish

    def communication(self) -> dict[tuple[int, str, str], np.ndarray]:
        """Rows that send bytes, by (step, phase, label)."""
        return dict(self._communication)

    @cached_property
    def _communication(self) -> dict[tuple[int, str, str], np.ndarray]:
        rows = np.flatnonzero(self.size > 0)
        codes = self.step[rows].astype(np.int64) << 32 | self.phase[rows].astype(np.int64) << 16 | self.label[rows]
        kinds, first, which = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(which, kind="stable")
        parts = np.split(rows[order], np.cumsum(np.bincount(which))[:-1]) if len(rows) else []
        found = {}
        for i in np.argsort(first):
            code = int(kinds[i])
            found[code >> 32, self.phases[code >> 16 & 0xFFFF], self.labels[code & 0xFFFF]] = parts[i]
        return found


def routing_of(scheme: str, fabric: Fabric, trace: Trace) -> Routing:
    """The Routing of a scheme for a trace: `placed` is told what the pairs send."""
    return Routing(scheme, trace.sent(fabric) if scheme == "placed" else None)


@dataclass(frozen=True)
class _Batch:
    """Rows that were added together: their columns, and what they share."""

    src: np.ndarray
    dst: np.ndarray
    size: np.ndarray
    shared: dict[str, float]
    after: tuple[int, ...]


class TraceBuilder:
    """Collects rows; `build` makes the Trace. Every method returns row numbers to use in `after`."""

    def __init__(self, hosts: Sequence[str]):
        self.hosts = tuple(hosts)
        self._batches: list[_Batch] = []
        self._rows = 0
        self._names: dict[str, dict[str, int]] = {"phase": {}, "label": {}}

    def __len__(self) -> int:
        return self._rows

    def flows(
        self,
        src: Iterable[int],
        dst: Iterable[int],
        size: Iterable[float] | float,
        *,
        after: Sequence[int] = (),
        gap: float = 0.0,
        start: float = 0.0,
        step: int = 0,
        phase: str = "",
        label: str = "",
    ) -> list[int]:
        """Rows src[i] -> dst[i] (host indices) of size[i] bytes (rounded up), all after the same rows."""
        src, dst = (np.asarray(ends if isinstance(ends, np.ndarray) else list(ends)) for ends in (src, dst))
        sizes = [size] * len(src) if isinstance(size, (int, float)) else list(size)
        if not len(src) == len(dst) == len(sizes):
            raise RFabricError(f"flows: {len(src)} sources, {len(dst)} destinations, {len(sizes)} sizes")
        codes = {kind: names.setdefault(name, len(names)) for kind, name, names in self._named(phase, label)}
        shared = {"start": start, "gap": gap, "step": step} | codes
        self._batches.append(_Batch(src, dst, whole_bytes(sizes), shared, tuple(after)))
        self._rows += len(src)
        return list(range(self._rows - len(src), self._rows))

    def compute(self, host: int, seconds: float, **kind) -> int:
        """One row that sends nothing and takes `seconds` on `host`."""
        return self.flows([host], [host], 0, gap=seconds, **kind)[0]

    def build(self, windows: dict[PhaseKey, float] | None = None, provenance: dict | None = None) -> Trace:
        batches = self._batches
        rows = np.array([len(b.src) for b in batches], dtype=np.int64)
        waits = np.array([len(b.after) for b in batches], dtype=np.int64)
        own = {
            name: np.concatenate([getattr(b, name) for b in batches]) if batches else []
            for name in ("src", "dst", "size")
        }
        shared = {name: np.repeat([b.shared[name] for b in batches], rows) for name in SHARED}
        first = np.cumsum(waits) - waits
        entries = np.fromiter((row for b in batches for row in b.after), np.int64, int(waits.sum()))
        counts = np.repeat(waits, rows)
        return Trace(
            self.hosts, **own, **shared, after_offsets=offsets_of(counts),
            after=entries[spread(np.repeat(first, rows), counts)], phases=tuple(self._names["phase"]),
            labels=tuple(self._names["label"]), windows=windows or {}, provenance=provenance or {},
        )  # fmt: skip

    def _named(self, phase: str, label: str) -> Iterable[tuple[str, str, dict[str, int]]]:
        return (("phase", phase, self._names["phase"]), ("label", label, self._names["label"]))


def whole_bytes(sizes: list) -> np.ndarray:
    """Sizes (bytes) rounded up to whole ones: int64."""
    column = np.asarray(sizes)
    if column.dtype.kind in "iu":
        return column.astype(np.int64)
    column = np.ceil(column.astype(float))
    bad = np.flatnonzero(~(np.abs(column) < MOST_BYTES))
    if len(bad):
        raise RFabricError(f"flows: {sizes[bad[0]]} bytes are no number, or more than {MOST_BYTES:g}; split the flow")
    return column.astype(np.int64)

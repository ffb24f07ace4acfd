"""Making a trace row by row: what is added together shares step, phase, label, and what it waits
for.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ..errors import RFabricError
from ..routing.rows import offsets_of, spread
from .collectives import Flows
from .loops import Loop
from .model import MOST_BYTES, PhaseKey, Trace

# columns that hold one value for all rows of a batch
SHARED = ("start", "gap", "step", "phase", "label", "loop", "turn")


@dataclass(frozen=True)
class _AddedRows:
    """Rows that were added together: their columns, and what they share."""

    src: np.ndarray
    dst: np.ndarray
    size: np.ndarray
    shared: dict[str, float]
    after: tuple[int, ...]


class TraceBuilder:
    """Collects rows; `build` makes the Trace.

    Every method returns row numbers to use in `after`.

    >>> job = TraceBuilder(["h1", "h2"])
    >>> job.flows([0], [1], 1e6, after=[job.compute(0, 2.5)])
    [1]
    >>> job.build()
    <Trace: 2 rows, 2 hosts, 1 phases, 1 MB>
    """

    def __init__(self, hosts: Sequence[str]):
        self.hosts = tuple(hosts)
        self._batches: list[_AddedRows] = []
        self._rows = 0
        self._loops: list[Loop] = []
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
        """Rows src[i] -> dst[i] (host indices) of size[i] bytes (rounded up), all after the same
        rows.
        """
        return self._add(
            src, dst, size, after, phase, label, start=start, gap=gap, step=step, loop=-1, turn=0
        )

    def loop(
        self,
        turns: Sequence[Flows],
        repeat: int,
        between: Sequence[float],
        beside: Sequence[float] = (),
        *,
        after: Sequence[int] = (),
        gap: float = 0.0,
        start: float = 0.0,
        step: int = 0,
        phase: str = "",
        label: str | Sequence[str] = "",
    ) -> list[int]:
        """Rows of a Loop whose turn t sends turns[t] (src, dst, size as in `flows`); `label`: one
        of each turn, or one of all. RFabricError where their numbers do not fit, or a turn sends
        nothing.
        """
        made = Loop(repeat, tuple(between), tuple(beside))
        labels = [label] * len(turns) if isinstance(label, str) else list(label)
        if not len(turns) == len(labels) == len(made.between):
            raise RFabricError(
                f"loop: {len(turns)} turns, {len(made.between)} between, {len(labels)} labels; "
                "give one each"
            )
        self._loops.append(made)
        shared = {"start": start, "gap": gap, "step": step, "loop": len(self._loops) - 1}
        rows = []
        for turn, (one, name) in enumerate(zip(turns, labels, strict=True)):
            added = self._add(*one, after, phase, name, **shared, turn=turn)
            if not added:
                raise RFabricError(
                    f"loop: turn {turn} sends nothing; leave it out, and compute its seconds "
                    "between others"
                )
            rows += added
        return rows

    def _add(
        self,
        src: Iterable[int],
        dst: Iterable[int],
        size: Iterable[float] | float,
        after: Sequence[int],
        phase: str,
        label: str,
        **shared: float,
    ) -> list[int]:
        src, dst = (
            np.asarray(ends if isinstance(ends, np.ndarray) else list(ends)) for ends in (src, dst)
        )
        sizes = [size] * len(src) if isinstance(size, (int, float)) else size
        sizes = sizes if isinstance(sizes, np.ndarray) else list(sizes)
        if not len(src) == len(dst) == len(sizes):
            raise RFabricError(
                f"flows: {len(src)} sources, {len(dst)} destinations, {len(sizes)} sizes"
            )
        codes = {
            kind: names.setdefault(name, len(names))
            for kind, name, names in self._named(phase, label)
        }
        if not len(src):
            return []
        self._batches.append(_AddedRows(src, dst, whole_bytes(sizes), shared | codes, tuple(after)))
        self._rows += len(src)
        return list(range(self._rows - len(src), self._rows))

    def compute(self, host: int, seconds: float, **kind) -> int:
        """One row that sends nothing and takes `seconds` on `host`."""
        return self.flows([host], [host], 0, gap=seconds, **kind)[0]

    def build(
        self, windows: dict[PhaseKey, float] | None = None, provenance: dict | None = None
    ) -> Trace:
        """The trace of all batches so far."""
        batches = self._batches
        rows = np.array([len(b.src) for b in batches], dtype=np.int64)
        waits = np.array([len(b.after) for b in batches], dtype=np.int64)
        own = {
            name: np.concatenate([getattr(b, name) for b in batches]) if batches else []
            for name in ("src", "dst", "size")
        }
        shared = {name: np.repeat([b.shared[name] for b in batches], rows) for name in SHARED}
        if not shared["start"].any():
            shared["start"] = np.zeros(len(shared["start"]))  # not written: takes no memory
        first = np.cumsum(waits) - waits
        entries = np.fromiter(chain.from_iterable(b.after for b in batches), np.int64, waits.sum())
        counts = np.repeat(waits, rows)
        return Trace(
            self.hosts,
            **own,
            **shared,
            after_offsets=offsets_of(counts),
            after=entries[spread(np.repeat(first, rows), counts)],
            phases=tuple(self._names["phase"]),
            labels=tuple(self._names["label"]),
            windows=windows or {},
            provenance=provenance or {},
            loops=tuple(self._loops),
        )

    def _named(self, phase: str, label: str) -> Iterable[tuple[str, str, dict[str, int]]]:
        return (("phase", phase, self._names["phase"]), ("label", label, self._names["label"]))


def whole_bytes(sizes: list | np.ndarray) -> np.ndarray:
    """Sizes (bytes) rounded up to whole ones: int64. RFabricError for what is no number."""
    column = np.asarray(sizes)
    if column.dtype.kind in "iu":
        return column.astype(np.int64)
    column = np.ceil(column.astype(float))
    bad = np.flatnonzero(~(np.abs(column) < MOST_BYTES))
    if len(bad):
        raise RFabricError(
            f"flows: {sizes[bad[0]]} bytes are no number, or more than "
            f"{MOST_BYTES:g}; split the flow"
        )
    return column.astype(np.int64)

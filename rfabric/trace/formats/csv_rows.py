"""CSV of our own, which people read and edit:

    # rfabric-trace 1
    # provenance: {"recipe": "grpo-64", "seed": 1}
    # window training/0: 31.2
    # pace training/0: 0.97
    id,src,dst,size_bytes,start_s,after,gap_s,step,phase,label
    0,h1,h1,0,0,,12.5,0,training,backward
    1,h1,h9,6400000000,0,0,0,0,training,reduce-scatter

Rows that run again and again have five columns more:

    id,src,dst,size_bytes,after,label,loop,turn,repeat,between_s,beside_s
    1,h1,h9,4000000,0,dispatch,experts,0,48,0.002,
    2,h9,h1,4000000,0,dispatch,experts,0,,,
    3,h1,h9,4000000,0,combine,experts,1,,0,0.001

`records.py` says what the columns mean.
"""

import csv
import json
import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from ...errors import RFabricError
from ...files import lines_of, open_text, parse_json
from ...routing.rows import begins, spread
from ..model import Trace
from .base import TraceFormat, first_line
from .columns import Cells, Words, blocks, ended, lines, quoted
from .records import (
    COLUMNS,
    LOOP_COLUMNS,
    VERSION,
    Columns,
    check_version,
    loop_cells,
    loop_heads,
    trace_of,
)

log = logging.getLogger(__name__)

BLOCK = 1 << 14  # rows read at once
ALIKE = ("start", "gap", "step", "phase", "label", "loop", "turn")  # most rows as the one before


def _read(path: Path) -> Trace:
    with open_text(path) as file:
        body, head = _divided(file)
    # a barrier waits for tens of thousands of rows, all in one cell
    before = csv.field_size_limit(1 << 30)
    try:
        columns = _columns(csv.reader(body, strict=True))
    finally:
        csv.field_size_limit(before)
    del body
    if columns.pop("", None) is not None:  # pandas' index, or what a comma at the end makes
        log.warning("%s: a column without a name left out", path.name)
    return trace_of(path, columns, head)


def _divided(file: TextIO) -> tuple[list[str], dict]:
    """The lines of the table, and what the `#` lines say."""
    head: dict = {"windows": {}, "paces": {}}
    body = []
    for line in lines_of(file):
        if line.startswith("#"):
            _head_line(line[1:].strip(), head)
        elif line.strip():
            body.append(line)
    return body, head


def _columns(reader) -> Columns:
    """The columns below the header, whose names each stand once and are as many as any row has
    cells; equal cells are one object, which keeps a million rows small.
    """
    header = [_column(name) for name in next(reader, [])]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise RFabricError(f"column {twice[0]!r} stands twice in the header; keep one")
    columns: Columns = {name: [] for name in header}
    known: list[dict] = [{} for _ in header]
    done = 0
    while block := list(islice(reader, BLOCK)):
        for number, row in enumerate(block, done + 1):
            if len(row) != len(header):
                _fill(row, header, number)
        for cells, seen, new in zip(columns.values(), known, zip(*block, strict=True), strict=True):
            cells += [seen.setdefault(cell, cell) for cell in new] if len(seen) < BLOCK else new
        done += len(block)
    return columns


def _column(name: str) -> str:
    """A column as it stands, or in small letters, where that is one of ours."""
    plain = name.strip()
    return plain.lower() if plain.lower() in (*COLUMNS, *LOOP_COLUMNS) else plain


def _fill(row: list, header: list[str], number: int) -> None:
    """A short row says nothing of its last columns."""
    if len(row) > len(header):
        raise RFabricError(f"record {number}: {len(row)} cells, the header has {len(header)}")
    row += [None] * (len(header) - len(row))


def _head_line(text: str, head: dict) -> None:
    key, colon, value = text.partition(":")
    if key == "provenance":
        head["provenance"] = parse_json(value)
    elif key.startswith(("window ", "pace ")) and colon:
        kind, _, name = key.partition(" ")
        said = head[f"{kind}s"]
        if name in said:
            raise RFabricError(f"{kind} {name} stands twice; keep one")
        said[name] = value
    elif key.startswith("rfabric-trace"):
        check_version(key.removeprefix("rfabric-trace").strip())


def _write(trace: Trace, path: Path) -> None:
    with path.open("wb") as file:
        file.writelines(text.encode() for text in ended(_head(trace)))
        file.writelines(_rows(trace))


def _head(trace: Trace) -> Iterable[str]:
    yield f"# rfabric-trace {VERSION}"
    yield f"# provenance: {json.dumps(trace.provenance)}"
    for key, seconds in trace.windows.items():
        yield f"# window {key}: {float(seconds)!r}"
    for key, pace in trace.paces.items():
        yield f"# pace {key}: {float(pace)!r}"
    yield ",".join((*COLUMNS, *(LOOP_COLUMNS if trace.loops else ())))


def _rows(trace: Trace) -> Iterable[bytes]:
    hosts, heads = Words(map(quoted, trace.hosts)), loop_heads(trace)
    for rows in blocks(len(trace)):
        new = _differ(trace, rows)
        for row in heads:  # stands alone, between others that say less
            new[max(row - rows.start, 0) : max(row - rows.start + 2, 0)] = True
        runs = np.flatnonzero(new)
        yield lines(
            rows.start,
            Cells(hosts, trace.src[rows]),
            Cells(hosts, trace.dst[rows]),
            Cells.of(trace.size[rows]),
            Cells.in_runs(_alike(trace, rows.start + runs, heads), runs, len(new)),
        )


def _differ(trace: Trace, rows: slice) -> np.ndarray:
    """bool by row: where it is unlike the one before in more than ends and size."""
    differ = begins(*(getattr(trace, name)[rows] for name in ALIKE))
    counts = np.diff(trace.after_offsets[rows.start : rows.stop + 1])
    differ[1:] |= counts[1:] != counts[:-1]
    same = np.flatnonzero(~differ & (counts > 0))  # as many; are they the same ones?
    many, at = counts[same], trace.after_offsets[rows][same]
    entries = spread(at, many)
    others = trace.after[entries] != trace.after[entries - np.repeat(many, many)]
    differ[np.repeat(same, many)[others]] = True
    return differ


def _alike(trace: Trace, rows: np.ndarray, heads: dict[int, dict]) -> Iterable[str]:
    """What the lines of these rows say behind the size."""
    phases, labels = (list(map(quoted, names)) for names in (trace.phases, trace.labels))
    looped = (_loop_texts(trace, row, heads) for row in rows.tolist()) if trace.loops else None
    columns = (
        Cells.of(trace.start[rows]).texts,
        _waits(trace, rows),
        Cells.of(trace.gap[rows]).texts,
        Cells.of(trace.step[rows]).texts,
        (phases[phase] for phase in trace.phase[rows].tolist()),
        (labels[label] for label in trace.label[rows].tolist()),
        *([looped] if looped else []),
    )
    return map(",".join, zip(*columns, strict=True))


def _waits(trace: Trace, rows: np.ndarray) -> Iterator[str]:
    """What each of these rows waits for."""
    first = trace.after_offsets[rows]
    counts = trace.after_offsets[rows + 1] - first
    every = map(str, trace.after[spread(first, counts)].tolist())
    return (" ".join(islice(every, count)) for count in counts.tolist())


def _loop_texts(trace: Trace, row: int, heads: dict[int, dict]) -> str:
    said = loop_cells(trace, row, heads)
    return ",".join(str(said.get(name, "")) for name in LOOP_COLUMNS)


def _sniff(head: bytes) -> bool:
    names = {name.strip().lower() for name in first_line(head, "#").split(",")}
    return head.startswith(b"# rfabric-trace") or {"src", "dst", "size_bytes"} <= names


CSV = TraceFormat(
    "csv", "rows of our own, which people read and edit: src,dst,size_bytes and more columns",
    (".csv",), _sniff, _read, _write, lines=True,
)  # fmt: skip

"""CSV of our own, which people read and edit:

    # rfabric-trace 1
    # provenance: {"recipe": "grpo-64", "seed": 1}
    # window training/0: 31.2
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
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from ...errors import RFabricError
from ...files import lines_of, open_text, parse_json
from ..model import Trace
from .base import TraceFormat, first_line, written
from .columns import blocks, lines, quoted, texts
from .records import COLUMNS, VERSION, Columns, check_version, loop_cells, trace_of

BLOCK = 1 << 14  # rows read at once


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
    return trace_of(path, columns, head)


def _divided(file: TextIO) -> tuple[list[str], dict]:
    """The lines of the table, and what the `#` lines say."""
    head: dict = {"windows": {}}
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
    header = [name.strip() for name in next(reader, [])]
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


def _fill(row: list, header: list[str], number: int) -> None:
    """A short row says nothing of its last columns."""
    if len(row) > len(header):
        raise RFabricError(f"record {number}: {len(row)} cells, the header has {len(header)}")
    row += [None] * (len(header) - len(row))


def _head_line(text: str, head: dict) -> None:
    key, colon, value = text.partition(":")
    if key == "provenance":
        head["provenance"] = parse_json(value)
    elif key.startswith("window ") and colon:
        name = key.removeprefix("window ")
        if name in head["windows"]:
            raise RFabricError(f"window {name} stands twice; keep one")
        head["windows"][name] = value
    elif key.startswith("rfabric-trace"):
        check_version(key.removeprefix("rfabric-trace").strip())


def _write(trace: Trace, path: Path) -> None:
    written(path, _lines(trace))


def _lines(trace: Trace) -> Iterable[str]:
    yield f"# rfabric-trace {VERSION}"
    yield f"# provenance: {json.dumps(trace.provenance)}"
    for key, seconds in trace.windows.items():
        yield f"# window {key}: {seconds!r}"
    more = loop_cells(trace)
    yield ",".join((*COLUMNS, *more))
    hosts, phases, labels = (
        np.array(list(map(quoted, n)), object) for n in (trace.hosts, trace.phases, trace.labels)
    )
    for rows in blocks(len(trace)):
        yield from lines(
            map(str, range(rows.start, rows.stop)),
            hosts[trace.src[rows]],
            hosts[trace.dst[rows]],
            texts(trace.size[rows]),
            texts(trace.start[rows]),
            _after_texts(trace, rows),
            texts(trace.gap[rows]),
            texts(trace.step[rows]),
            phases[trace.phase[rows]],
            labels[trace.label[rows]],
            *(
                ["" if cell is None else str(cell) for cell in cells[rows]]
                for cells in more.values()
            ),
        )


def _after_texts(trace: Trace, rows: slice) -> list[str]:
    first, last = (trace.after_offsets[i : rows.stop + i][rows.start :] for i in (0, 1))
    known = texts(trace.after[first[0] : last[-1]])
    return [
        " ".join(known[a:b])
        for a, b in zip((first - first[0]).tolist(), (last - first[0]).tolist(), strict=True)
    ]


def _sniff(head: bytes) -> bool:
    names = {name.strip() for name in first_line(head, "#").split(",")}
    return head.startswith(b"# rfabric-trace") or {"src", "dst", "size_bytes"} <= names


CSV = TraceFormat(
    "csv", "rows of our own, which people read and edit: src,dst,size_bytes and more columns",
    (".csv",), _sniff, _read, _write, lines=True,
)  # fmt: skip

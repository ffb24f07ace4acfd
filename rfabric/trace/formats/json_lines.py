"""JSON lines of our own: each row an object with the columns of `records.py` as keys.

The first line may be a head:

    {"rfabric-trace": 1, "provenance": {"recipe": "grpo-64"}, "windows": {"training/0": 31.2}}
    {"id": 1, "src": "h1", "dst": "h9", "size_bytes": 6400000000, "label": "reduce-scatter"}
"""

import json
from collections.abc import Iterable
from pathlib import Path

from ...files import json_objects, lines_of, open_text
from ..model import Trace
from .base import TraceFormat, first_line, written
from .records import COLUMNS, VERSION, check_version, columns_of, loop_cells, loop_heads, trace_of


def _read(path: Path) -> Trace:
    with open_text(path) as file:
        records = [said for _, said in json_objects(lines_of(file))]
    head = records.pop(0) if records and "rfabric-trace" in records[0] else {}
    if head:
        check_version(str(head["rfabric-trace"]))
    return trace_of(path, columns_of(records), head)


def _write(trace: Trace, path: Path) -> None:
    written(path, _lines(trace))


def _lines(trace: Trace) -> Iterable[str]:
    windows, paces = ({str(k): v for k, v in d.items()} for d in (trace.windows, trace.paces))
    head = {"rfabric-trace": VERSION, "provenance": trace.provenance, "windows": windows}
    yield json.dumps(head | ({"paces": paces} if paces else {}))
    heads = loop_heads(trace)
    for i, cells in enumerate(_cells(trace)):
        yield json.dumps(dict(zip(COLUMNS, cells, strict=True)) | loop_cells(trace, i, heads))


def _cells(trace: Trace) -> Iterable[tuple]:
    for i in range(len(trace)):
        yield (
            i,
            trace.hosts[trace.src[i]],
            trace.hosts[trace.dst[i]],
            int(trace.size[i]),
            float(trace.start[i]),
            " ".join(map(str, trace.waits_for(i))),
            float(trace.gap[i]),
            int(trace.step[i]),
            trace.phases[trace.phase[i]],
            trace.labels[trace.label[i]],
        )


def _sniff(head: bytes) -> bool:
    line = first_line(head)
    return line.startswith("{") and ('"rfabric-trace"' in line or '"size_bytes"' in line)


JSON_LINES = TraceFormat(
    "jsonl", "JSON lines of our own: a row an object, with the keys of the CSV's columns",
    (".jsonl",), _sniff, _read, _write,
)  # fmt: skip

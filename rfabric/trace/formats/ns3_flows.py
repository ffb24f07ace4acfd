"""The flow lists of ns-3's RDMA simulators (HPCC's `flow.txt`, which SimAI and others took over).

    2                              flows
    0 1 3 100 1000000 2.000005     src, dst, priority group, port, bytes, start in seconds

Nodes are numbered from 0 as in their topology text: node n is our h(n+1). All flows are of one
priority here, and connect to whatever port, which ConWeave's lists leave out.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ...errors import RFabricError
from ...files import lines_of, open_text
from ..model import Trace
from .base import TraceFormat, understood, whole, written
from .records import columns_of, trace_of

EXPECTED = "`src dst group port bytes start` is expected, as in `0 1 3 100 1000000 2.0`"
FLOW = re.compile(r"\s*(?:\d+\s+){5}[\d.]+(?:e-?\d+)?\s*")
PORTLESS = re.compile(r"\s*(?:\d+\s+){4}\d*\.\d+\s*")  # a start is never written as a whole number
GROUP, PORT = 3, 100  # as HPCC's own traffic generator writes them


def _read(path: Path) -> Trace:
    with open_text(path) as file:
        lines = ((number, line) for number, line in enumerate(lines_of(file), 1) if line.strip())
        head = next(lines, (1, ""))[1]
        said = whole(head.strip(), "line 1, the number of flows")
        records, groups, form = [], set(), FLOW
        for number, line in lines:
            if not records and PORTLESS.fullmatch(line):
                form = PORTLESS
            words = _words(number, line, form)
            groups.add(int(words[2]))
            records.append(_record(words))
    if len(records) != said:
        raise RFabricError(f"{len(records)} flows, line 1 says {said}; is the file whole?")
    trace = trace_of(path, columns_of(records), {})
    several = f"{len(groups)} priority groups, played as one"
    return understood(trace, "ns3-flows", path, [several] if len(groups) > 1 else [])


def _words(number: int, line: str, form: re.Pattern) -> list[str]:
    if not form.fullmatch(line):
        raise RFabricError(f"line {number}: {line.strip()[:60]!r}: {EXPECTED}")
    return line.split()


def _record(words: list[str]) -> dict:
    src, dst, *_, size, start = words
    ends = {"src": f"h{int(src) + 1}", "dst": f"h{int(dst) + 1}"}
    return ends | {"size_bytes": int(size), "start_s": f"{start}s"}


def _write(trace: Trace, path: Path) -> None:
    written(path, _lines(trace.unrolled()))


def _lines(trace: Trace) -> Iterator[str]:
    """By start, as the simulators read them."""
    _check_writable(trace)
    node = [int(name[1:]) - 1 for name in trace.hosts]
    yield str(len(trace))
    for row in np.argsort(trace.start, kind="stable").tolist():
        ends = f"{node[trace.src[row]]} {node[trace.dst[row]]}"
        yield f"{ends} {GROUP} {PORT} {trace.size[row]} {trace.start[row]:.9f}"


def _check_writable(trace: Trace) -> None:
    named = _first(not re.fullmatch(r"h[1-9]\d*", name) for name in trace.hosts)
    if named is not None:
        raise RFabricError(f"host {trace.hosts[named]}: ns-3 has numbers; name hosts h1, h2, ...")
    waits = _first(len(trace.waits_for(row)) > 0 for row in range(len(trace)))
    computes = _first(((trace.size == 0) | (trace.gap > 0)).tolist())
    for row, what in ((waits, "waits for others"), (computes, "computes")):
        if row is not None:
            raise RFabricError(
                f"row {row} {what}, which ns-3's flow list cannot say; write .csv or .et"
            )


def _first(each: Iterable[bool]) -> int | None:
    """The place of the first that is true."""
    return next((place for place, one in enumerate(each) if one), None)


def _sniff(head: bytes) -> bool:
    lines = [ln for ln in head.decode("utf-8-sig", "replace").splitlines() if ln.strip()][:2]
    listed = any(form.fullmatch(line) for form in (FLOW, PORTLESS) for line in lines[1:])
    return len(lines) == 2 and lines[0].strip().isdecimal() and listed


NS3_FLOWS = TraceFormat(
    "ns3-flows", "flow lists of ns-3's RDMA simulators (HPCC): `src dst 3 100 bytes start_s`",
    (".flow", ".txt"), _sniff, _read, _write, lines=True,
)  # fmt: skip

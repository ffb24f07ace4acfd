"""Connection matrices of htsim (csg-htsim, UEC): who sends how much to whom, from a time on or when
another transfer is done.

    Nodes 16
    Connections 3
    Triggers 1
    7->5 id 1 start 0 size 2000000 send_done_trigger 1
    8->5 id 2 start 1000000 size 2000000
    9->5 id 3 trigger 1 size 2000000
    trigger id 1 oneshot

Node n is our h(n+1). `start` is picoseconds, `size` bytes. A trigger fires when the transfers that
name it are done: `oneshot` with the first, `barrier count N` with the N-th. Sent and received are
one moment here, which htsim parts by the way of the last acknowledgement. `Failures` and its lines
are of links of htsim's own Fat-Tree: a trace has no links, so they are left out, with a note.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ...errors import RFabricError
from ...files import lines_of, open_text
from ...units import parse_time
from ..builder import TraceBuilder
from ..model import MOST_BYTES, Trace
from .base import TraceFormat, first_line, understood, whole, written

PICOSECOND = 1e12
FIRES = ("send_done_trigger", "recv_done_trigger")
KEYS = ("id", "start", "trigger", "size", *FIRES)
FAILURE = "failure"
COUNTS = ("Nodes", "Connections", "Triggers", "Failures")
KINDS = ("oneshot", "multishot", "barrier")


def _read(path: Path, start_unit: str = "ps") -> Trace:
    unit = parse_time(f"1{start_unit}", "start_unit") if start_unit != "ps" else 1 / PICOSECOND
    counts: dict[str, int] = {}
    links: list[tuple[int, int, int, dict]] = []
    triggers: dict[int, tuple[str, int]] = {}
    dropped: dict[str, int] = {}
    with open_text(path) as file:
        for number, line in enumerate(lines_of(file), 1):
            words = line.split("#")[0].split()
            if words:
                _line(f"line {number}", words, counts, links, triggers, dropped)
    failed = dropped.pop(FAILURE, 0)
    held_by = {"Connections": len(links), "Triggers": len(triggers), "Failures": failed}
    for name, held in held_by.items():
        if counts.get(name, held) != held:
            raise RFabricError(f"says {name} {counts[name]} and holds {held}; is the file whole?")
    said = [f"{n:,} times {key!r} left out" for key, n in dropped.items()]
    if failed:
        said.append(f"{failed:,} failed links left out: no link of the fabric here fails")
    return understood(_trace(links, triggers, unit), HTSIM_MATRIX.name, path, said)


def _line(where: str, words: list[str], counts, links, triggers, dropped) -> None:
    if words[0] in COUNTS and len(words) == 2:
        counts[words[0]] = whole(words[1], f"{where}: {words[0]}", 1 if words[0] == "Nodes" else 0)
    elif words[0] == "trigger" and words[1:2] == ["id"] and words[3:4]:
        number = whole(words[2], f"{where}: trigger id")
        if number in triggers or words[3] not in KINDS:
            why = "stands twice" if number in triggers else f"is {words[3]!r}, not of {KINDS}"
            raise RFabricError(f"{where}: trigger {number} {why}")
        last = "".join(words[5:6])
        count = whole(last, f"{where}: count", 1) if words[4:5] == ["count"] else 0
        triggers[number] = words[3], count
    elif words[0] == FAILURE and words[1:]:
        dropped[FAILURE] = dropped.get(FAILURE, 0) + 1
    elif re.fullmatch(r"\d+->\d+", words[0]):
        links.append(_link(where, words, counts, dropped))
    else:
        raise RFabricError(
            f"{where}: {' '.join(words)[:60]!r} is neither `7->5 id 1 start 0 size 2000000`, nor "
            "`trigger id 1 oneshot`, nor a count"
        )


def _link(where: str, words: list[str], counts: dict, dropped: dict) -> tuple:
    """(line, source, destination, what is said of it)"""
    if len(words) % 2 == 0:
        raise RFabricError(f"{where}: {words[-1]!r} has no value; is the line whole?")
    nodes = counts.get("Nodes", 2**31)
    ends = [whole(w, f"{where}: node", 0, nodes - 1) for w in words[0].split("->")]
    pairs = dict(zip(words[1::2], words[2::2], strict=True))
    for key in pairs.keys() - set(KEYS):
        dropped[key] = dropped.get(key, 0) + 1
    said = {k: whole(v, f"{where}: {k}") for k, v in pairs.items() if k in KEYS}
    size = said.get("size", 0)
    if not 0 < size <= MOST_BYTES:
        raise RFabricError(
            f"{where}: size {size} sends without end in htsim; give 1 to {MOST_BYTES:.0g} bytes"
        )
    if ends[0] == ends[1]:
        raise RFabricError(f"{where}: node {ends[0]} sends to itself")
    return int(where.split()[1]), *ends, said


def _trace(links: list, triggers: dict, unit: float) -> Trace:
    if not links:
        raise RFabricError("holds no connection")
    fired: dict[int, list[int]] = {}
    for row, (*_, said) in enumerate(links):
        for number in {said[key] for key in FIRES if key in said}:
            fired.setdefault(number, []).append(row)
    hosts = sorted({end for link in links for end in link[1:3]})
    index = {node: i for i, node in enumerate(hosts)}
    b = TraceBuilder([f"h{node + 1}" for node in hosts])
    for line, src, dst, said in links:
        begins = said.get("trigger")
        after = () if begins is None else _waits(f"line {line}", begins, triggers, fired)
        start = said.get("start", 0)
        start = start / PICOSECOND if unit == 1 / PICOSECOND else start * unit
        b.flows([index[src]], [index[dst]], said["size"], after=after, start=start)
    return b.build()


def _waits(where: str, number: int, triggers: dict, fired: dict) -> tuple[int, ...]:
    """The rows whose end fires a trigger."""
    if number not in triggers or number not in fired:
        what = "is not defined" if number not in triggers else "is fired by no connection"
        raise RFabricError(f"{where}: trigger {number} {what}; add it, or give a start")
    (kind, count), rows = triggers[number], fired[number]
    if kind == "barrier" and count not in (0, len(rows)):
        raise RFabricError(
            f"{where}: trigger {number} waits for {count} of {len(rows)} connections; rfabric "
            "waits for all"
        )
    if kind != "barrier" and len(rows) > 1:
        raise RFabricError(
            f"{where}: {kind} trigger {number} is fired by {len(rows)} connections, the first of "
            "which starts it; make it a barrier"
        )
    return tuple(rows)


def _write(trace: Trace, path: Path) -> None:
    trace = trace.unrolled()
    written(path, _lines(trace, _nodes(trace)))


def _nodes(trace: Trace) -> list[int]:
    for name in trace.hosts:
        if not re.fullmatch(r"h[1-9]\d*", name):
            raise RFabricError(f"host {name}: htsim has numbers; name hosts h1, h2, ...")
    return [int(name[1:]) - 1 for name in trace.hosts]


def _lines(trace: Trace, nodes: list[int]) -> Iterable[str]:
    waits = [tuple(trace.waits_for(row).tolist()) for row in range(len(trace))]
    _check_writable(trace, waits)
    numbers: dict[tuple[int, ...], int] = {}
    for after in filter(None, waits):
        numbers.setdefault(after, len(numbers) + 1)
    fires: dict[int, list[int]] = {}
    for after, number in numbers.items():
        for row in after:
            fires.setdefault(row, []).append(number)
    crowded = next((row for row, own in fires.items() if len(own) > 2), None)
    if crowded is not None:
        raise RFabricError(
            f"row {crowded}: {len(fires[crowded])} sets of rows wait for it, htsim has two "
            "triggers a connection; write .csv or .et"
        )
    yield from (f"Nodes {max(nodes) + 1}", f"Connections {len(trace)}")
    if numbers:
        yield f"Triggers {len(numbers)}"
    starts = np.rint(trace.start * PICOSECOND).astype(object)
    for row, after in enumerate(waits):
        begins = f"trigger {numbers[after]}" if after else f"start {int(starts[row])}"
        then = "".join(
            f" {k} {n}" for k, n in zip(FIRES, fires.get(row, ()), strict=False)
        )  # of two triggers, as many as it fires
        ends = f"{nodes[trace.src[row]]}->{nodes[trace.dst[row]]}"
        yield f"{ends} id {row + 1} {begins} size {trace.size[row]}{then}"
    for after, number in numbers.items():
        kind = "oneshot" if len(after) == 1 else f"barrier count {len(after)}"
        yield f"trigger id {number} {kind}"


def _check_writable(trace: Trace, waits: list) -> None:
    for row in np.flatnonzero((trace.size == 0) | (trace.gap > 0)).tolist():
        raise RFabricError(f"row {row} computes, which htsim cannot say; write .csv or .et")
    for row in np.flatnonzero(trace.start > 0).tolist():
        if waits[row]:
            raise RFabricError(f"row {row} has a start and waits, htsim has one of both")


def _sniff(head: bytes) -> bool:
    line = first_line(head, "#")
    return bool(re.fullmatch(r"(Nodes|Connections)\s+\d+", line))


HTSIM_MATRIX = TraceFormat(
    "htsim-matrix", "connection matrices of htsim: `7->5 id 1 start 0 size 2000000`, triggers",
    (".cm",), _sniff, _read, _write, lines=True,
)  # fmt: skip

"""Chakra execution traces (MLCommons, ASTRA-sim): `PREFIX.RANK.et`, one protobuf file a rank.

A folder is read whole; of a file, all ranks beside it. Schemas 0.0.4 to 1.1.1-chakra.0.0.4. What is
written runs in ASTRA-sim: sends, receives and computing in whole microseconds, rounded up; what
Chakra has no word for (exact gaps, starts, phases, labels) stands in attributes `rfabric`, so that
we read back what was written. A wait for another host's row is a message of one byte.

`chakra_wire` has the bytes, `chakra_graph` what the graphs of ranks mean together.
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

from ...errors import RFabricError
from ...files import kind_of, open_bytes, parse_json
from ...protobuf import varint
from ..model import Trace
from ..recorded import MOST_RANKS
from .base import TraceFormat, understood, whole
from .chakra_dimensions import sizes_of
from .chakra_graph import MICRO, put_together
from .chakra_rows import OURS
from .chakra_wire import COMPUTE, RECEIVE, SEND, ChakraNode, Graph, decoded, encoded

SCHEMA = re.compile(r"((1\.0\.[1-9]|1\.1\.[01])-chakra\.)?0\.0\.4")
WRITTEN = "1.1.1-chakra.0.0.4"
NAMED = re.compile(r"(.*?)[._-]?(\d+)((?:\.[A-Za-z]\w*)*)")


def _read(path: Path, ranks_per_host: int = 1, ranks: int = 0, dims: str = "") -> Trace:
    return read_ranks(path, CHAKRA, _graph, ranks_per_host, ranks, dims)


def read_ranks(
    path: Path,
    form: TraceFormat,
    graph_of: Callable[[Path], Graph],
    ranks_per_host: object,
    ranks: object,
    dims: str,
) -> Trace:
    """The trace of all ranks' files; `graph_of` reads one."""
    per_host = whole(ranks_per_host, "ranks_per_host", 1, MOST_RANKS)
    files, lists = _files(path, form)
    groups = {k: v for one in lists.values() for k, v in one.items()}
    graphs = {rank: graph_of(file) for rank, file in sorted(files.items())}
    for graph in graphs.values():
        graph.groups.update({k: v for k, v in groups.items() if k not in graph.groups})
    if any(OURS in graph.facts for graph in graphs.values()):
        per_host = 1
    ranks = whole(ranks, "ranks", 0, MOST_RANKS)
    trace, notes = put_together(graphs, per_host, ranks, sizes_of(dims))
    nodes = sum(len(graph.nodes) for graph in graphs.values())
    said = f"{nodes:,} nodes of {len(graphs)} ranks, {per_host} a host"
    return understood(trace, form.name, path, [said, *notes])


def files_read(path: Path, form: TraceFormat) -> list[Path]:
    """The files of all ranks, and those that list their process groups."""
    files, lists = _files(path, form)
    return [*files.values(), *lists]


def _files(path: Path, form: TraceFormat) -> tuple[dict[int, Path], dict[Path, dict]]:
    """The file of each rank, and the process groups that each JSON file beside them lists."""
    wanted = None if path.is_dir() else _prefix(path)[0]
    if wanted is not None and _prefix(path)[1] is None:
        return {0: path}, {}
    workloads: dict[str, dict[int, Path]] = {}
    lists: dict[Path, dict] = {}
    for file in sorted((path if path.is_dir() else path.parent).iterdir()):
        prefix, rank = _prefix(file)
        if not file.is_file() or (wanted not in (None, prefix) and file.suffix != ".json"):
            continue
        with open_bytes(file) as opened:
            head = opened.read(4096)
        if rank is not None and wanted in (None, prefix) and form.sniff(head):
            if rank in workloads.setdefault(prefix, {}):
                raise RFabricError(f"{file.name}: a second file of rank {rank}; keep one")
            workloads[prefix][rank] = file
        elif file.suffix == ".json" and head[:1] == b"{" and not form.sniff(head):
            lists[file] = _groups(file)
        elif rank is not None and wanted in (None, prefix) and kind_of(file) in form.suffixes:
            workloads.setdefault(prefix, {})[rank] = file  # whose reader says what is wrong
    if len(workloads) > 1:
        names = ", ".join(f"{name}.*" for name in workloads)
        raise RFabricError(f"holds {len(workloads)} workloads: {names}; name a file of one")
    if not workloads:
        raise RFabricError("holds no file that is named after its rank, such as step.0.et")
    return next(iter(workloads.values())), {file: some for file, some in lists.items() if some}


def _prefix(file: Path) -> tuple[str, int | None]:
    named = NAMED.fullmatch(file.name)
    if not named or re.search(r"\d\.\d\.?$", named[1]):  # a version: 1.0.2
        return file.name, None
    return named[1], int(named[2])


def _groups(file: Path) -> dict:
    """Ranks by process group, as ASTRA-sim's communicator groups list them."""
    try:
        said = parse_json(file.read_bytes())
    except ValueError:
        return {}
    lists = {k: v for k, v in said.items() if isinstance(v, list) and v}
    return {k: v for k, v in lists.items() if all(type(rank) is int for rank in v)}


def _graph(file: Path) -> Graph:
    with open_bytes(file) as opened:
        graph = decoded(file.name, opened.read())
    if not graph.facts:
        raise RFabricError(f"{file.name}: is empty; every file begins with its metadata")
    check_schema(file.name, str(graph.facts.get("schema") or graph.facts["version"]))
    return graph


def check_schema(name: str, schema: str) -> None:
    """RFabricError for a schema that this rfabric does not read."""
    if schema and not SCHEMA.fullmatch(schema):
        raise RFabricError(
            f"{name}: schema {schema[:40]!r}; rfabric reads 0.0.4 and 1.0.1- to {WRITTEN}; "
            "convert it with that release of chakra"
        )


def _sniff(head: bytes) -> bool:
    try:
        at = varint(head, 0)[1]
    except (IndexError, ValueError):
        return False
    if head[at : at + 1] == b"\x0a":
        return bool(re.match(rb"\d+\.\d+\.\d", head[at + 2 : at + 12]))
    return bool(re.match(rb"\x12.{1,3}?\n.[a-z_]{2,}", head[at : at + 16], re.S))


# --- and back ------------------------------------------------------------------------------------


def _write(trace: Trace, path: Path) -> None:
    """A folder with a file for each host; loops are written out."""
    trace = trace.unrolled()
    path.mkdir()
    prefix = re.sub(r"(\.et)?(\.[0-9a-f]{8}\.part)?$", "", path.name)  # see files.replacing
    for rank, nodes in enumerate(_Export(trace).nodes):
        facts = {"version": WRITTEN, "schema": WRITTEN, "rank": rank}
        facts[OURS] = json.dumps(_facts(trace) if rank == 0 else {})
        (path / f"{prefix}.{rank}.et").write_bytes(encoded(facts, nodes))


def _facts(trace: Trace) -> dict:
    return {
        "hosts": trace.hosts,
        "phases": trace.phases,
        "labels": trace.labels,
        "windows": {str(key): seconds for key, seconds in trace.windows.items()},
        "provenance": trace.provenance,
        **({"paces": {str(k): pace for k, pace in trace.paces.items()}} if trace.paces else {}),
    }


class _Export:
    """The nodes of each rank; `ids`: of a row on a rank that it touches."""

    def __init__(self, trace: Trace):
        self.trace, self.nodes = trace, [[] for _ in trace.hosts]
        self.tags = len(trace)
        self.ids: dict[tuple[int, int], int] = {}
        self.next = [0] * len(trace.hosts)
        ends = list(zip(*(c.tolist() for c in (trace.src, trace.dst, trace.size)), strict=True))
        for row, (src, dst, size) in enumerate(ends):
            for rank in (src, dst) if size else (src,):
                self.ids[row, rank] = self._id(rank)
        self.ends = ends
        for row in range(len(trace)):
            self._row(row)

    def _id(self, rank: int) -> int:
        self.next[rank] += 1
        return self.next[rank] - 1

    def _add(self, rank: int, kind: int, deps: list[int], micros=0, number=None, **attrs) -> int:
        number = self._id(rank) if number is None else number
        name = f"{ {SEND: 'send', RECEIVE: 'receive', COMPUTE: 'compute'}[kind] } {number}"
        self.nodes[rank].append(
            ChakraNode(number, name, kind, deps, micros, {"is_cpu_op": kind == COMPUTE} | attrs)
        )
        return number

    def _row(self, row: int) -> None:
        t, (src, dst, size) = self.trace, self.ends[row]
        gap, start = float(t.gap[row]), float(t.start[row])
        deps = [self._local(int(before), src) for before in t.waits_for(row)]
        if gap and (size or start):
            deps = [self._add(src, COMPUTE, deps, _micros(gap), rfabric='{"role": "gap"}')]
        if start:
            deps.append(self._add(src, COMPUTE, [], _micros(start), rfabric='{"role": "start"}'))
        said = {
            "row": row, "gap": gap, "start": start, "step": int(t.step[row]),
            "phase": t.phases[t.phase[row]], "label": t.labels[t.label[row]],
        }  # fmt: skip
        own = self.ids[row, src]
        if not size:
            said |= {"dst": dst} if src != dst else {}
            micros = 0 if start else _micros(gap)
            self._add(src, COMPUTE, deps, micros, own, rfabric=json.dumps(said))
            return
        what = {"comm_size": size, "comm_tag": row}
        self._add(src, SEND, deps, 0, own, comm_dst=dst, **what, rfabric=json.dumps(said))
        self._add(dst, RECEIVE, [], 0, self.ids[row, dst], comm_src=src, **what)

    def _local(self, row: int, rank: int) -> int:
        """The node on this rank after which the row is done: its own, or that of a message."""
        if (row, rank) not in self.ids:
            src, dst, size = self.ends[row]
            there = dst if size else src
            what = {"comm_size": 1, "comm_tag": self.tags, "rfabric": '{"role": "sync"}'}
            self._add(there, SEND, [self.ids[row, there]], comm_dst=rank, **what)
            self.ids[row, rank] = self._add(rank, RECEIVE, [], comm_src=there, **what)
            self.tags += 1
        return self.ids[row, rank]


def _micros(seconds: float) -> int:
    return math.ceil(seconds * MICRO)


CHAKRA = TraceFormat(
    "chakra", "Chakra execution traces (ASTRA-sim): PREFIX.RANK.et in a folder, protobuf; settings "
    "ranks_per_host, ranks, dims",
    (".et",), _sniff, _read, _write, folders=True, reads=lambda path: files_read(path, CHAKRA),
)  # fmt: skip

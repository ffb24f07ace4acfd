"""What nccl-tests print (`all_reduce_perf` and its kin), as rows of the table that `nccl` reads.

    # nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) ... agg iters: 1 ... graph: 0
    #  Rank  0 Group  0 Pid  18204 on     node-1 device  0 [0x07] NVIDIA H100 80GB HBM3
    #       size         count      type   redop    root     time   algbw   busbw #wrong  ...
             1024           256     float     sum      -1    31.20    0.03    0.06      0  ...

A file may hold several runs, lines of NCCL_DEBUG=INFO between, labels of mpirun (`[1,0]<stdout>:`),
srun (`0: `) or a clock before each line. Ranks and hosts are those that the header names; a run
whose header is cut off, or which cannot be compared, is refused as a whole. The time is that of the
first columns (out of place), where they have one. Semantics: doc/PERFORMANCE.md and src/common.cu
of github.com/NVIDIA/nccl-tests.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...compute.communication import KINDS, bus_factor
from ...errors import RFabricError
from ...files import lines_of, open_text
from .tables import CellTexts, RefusedRow

TYPES = {
    "int8": "int8", "uint8": "uint8", "char": "int8", "int32": "int32", "int": "int32",
    "uint32": "uint32", "int64": "int64", "uint64": "uint64", "half": "half", "float": "float",
    "double": "double", "bfloat16": "bfloat16", "f8e4m3": "fp8", "f8e5m2": "fp8",
    "fp8_e4m3": "fp8", "fp8_e5m2": "fp8",
}  # fmt: skip
_LABEL = re.compile(r"\s*(\[[^\[\]\s]*\]<std\w+>|\d+(?!:\d)):")  # 12:59 is a clock
_TEST = re.compile(r"\b([a-z]+(?:_[a-z]+)*)_perf(?:_mpi)?\b(.*)")
_BEGIN = re.compile(r"#\s*nThread\s+(\d+)\s+nGpus\s+(\d+)\b(.*)")
_RANK = re.compile(
    r"#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+"
    r"\[([^\]]+)\]\s+(.*\S)"
)
_COLUMNS = re.compile(r"#\s+size\s+count\s+type\s+(.*)")
_ROW = re.compile(rf"(?:^|(?<=[\s:>]))(\d+)\s+(\d+)\s+({'|'.join(TYPES)})\s+(.*\S)")
_NETWORK = re.compile(r"NCCL INFO Using network (.*\S)")
_BLOCKING = re.compile(r"(?:^|\s)(?:-z|--blocking)[ =]?1\b")
# what tests and their authors call collectives, once nothing but letters stands; those that hold
# others first
NAMES = {
    "reducescatter": "reduce-scatter", "allreduce": "all-reduce", "allgather": "all-gather",
    "alltoall": "all-to-all", "sendrecv": "send-recv", "broadcast": "broadcast",
    "reduce": "reduce", "p2p": "send-recv",
}  # fmt: skip
SLACK = 0.005  # of a printed bandwidth, whose digits are three or more where it counts


@dataclass
class _SweepRun:
    """One run: what its header says, and its rows as they stand, with their lines' numbers."""

    line: int
    each: int = 1  # ranks of a process
    calls: int = 1  # in one group of NCCL
    graph: bool = False
    blocking: bool = False
    named: str = ""  # the test
    ranks: dict[int, tuple[str, str, str]] = field(default_factory=dict)  # host, bus, GPU
    groups: set[str] = field(default_factory=set)
    twice: bool = False
    networks: set[str] = field(default_factory=set)
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[int, re.Match]] = field(default_factory=list)

    @property
    def hosts(self) -> Counter:
        """Ranks by host."""
        return Counter(host for host, _, _ in self.ranks.values())


@dataclass
class _LabelledLines:
    """Lines of one label: what was said for the next run, and the runs."""

    named: list[str] = field(default_factory=list)
    blocking: bool = False
    networks: set[str] = field(default_factory=set)
    runs: list[_SweepRun] = field(default_factory=list)


def table_rows(path: Path) -> list[tuple[str, Callable[[], CellTexts]]]:
    """The rows of all runs of a file, each with its place and a call that gives its cells, or
    raises RefusedRow; of a run that is refused its place alone. RFabricError for a file without a
    run.
    """
    runs = [run for stream in _streams(path) for run in stream.runs]
    if not runs:
        raise RFabricError(
            f"{path.name} holds no `# nThread ... nGpus ...`, with which nccl-tests begin: give "
            "their whole output"
        )
    calls: list[tuple[str, Callable[[], CellTexts]]] = []
    for run in runs:
        try:
            facts = _facts(run, path)
        except RefusedRow as error:
            calls.append((f"run from line {run.line}", lambda error=error: _raise(error)))
            continue
        calls += [
            (f"line {line}", lambda run=run, row=row, facts=facts: _cells(run, row, facts))
            for line, row in run.rows
        ]
    return calls


def is_output(path: Path) -> bool:
    """Whether nccl-tests wrote the text of a file, or some of it: a run begins in it."""
    try:
        with open_text(path) as file:
            return any(_BEGIN.search(line) for line in file)
    except (OSError, ValueError):
        return False  # no text


def kind_of(name: str) -> str:
    """The collective that a test or a table calls `name`; RefusedRow where it is not modelled."""
    letters = re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("perf")
    kind = NAMES.get(letters, letters)
    if kind not in KINDS:
        raise RefusedRow(f"operation {name!r} is not modelled")
    return kind


def _raise(error: RefusedRow) -> CellTexts:
    raise error


def _streams(path: Path) -> list[_LabelledLines]:
    """What each label says, as processes write between one another; no label is one too."""
    streams: dict[str, _LabelledLines] = {}
    with open_text(path) as file:
        for number, line in enumerate(lines_of(file), 1):
            label = _LABEL.match(line)
            stream = streams.setdefault(label[1] if label else "", _LabelledLines())
            _line(stream, number, line[label.end() :] if label else line)
    shared = {name for stream in streams.values() for name in stream.networks}
    for stream in streams.values():
        for run in stream.runs:
            run.networks |= shared
    return list(streams.values())


def _line(stream: _LabelledLines, number: int, line: str) -> None:
    run = stream.runs[-1] if stream.runs else None
    if begun := _BEGIN.search(line):
        names = set(stream.named)
        said = dict(re.findall(r"(\w+(?: iters)?): *(\d+)", begun[3]))
        stream.runs.append(_SweepRun(
            number, int(begun[1]) * int(begun[2]), int(said.get("agg iters", 1)),
            int(said.get("graph", 0)) > 0, stream.blocking, names.pop() if len(names) == 1 else "",
        ))  # fmt: skip
        stream.named, stream.blocking = [], False
    elif used := _NETWORK.search(line):
        stream.networks.add(used[1])
    elif run and (rank := _RANK.search(line)):
        run.twice |= int(rank[1]) in run.ranks
        run.ranks[int(rank[1])] = rank[3], rank[4], rank[5]
        run.groups.add(rank[2] or "0")
    elif run and (columns := _COLUMNS.search(line)):
        run.columns = columns[1].split()
    elif run and (row := _ROW.search(line)):
        run.rows.append((number, row))
    elif (test := _TEST.search(line)) and "concluded" not in line:
        stream.named.append(test[1])
        stream.blocking |= bool(_BLOCKING.search(test[2]))


def _facts(run: _SweepRun, path: Path) -> CellTexts:
    """What all rows of a run have in common; RefusedRow where it is not known, or not modelled."""
    count, hosts = len(run.ranks), run.hosts
    gpus = {gpu for _, _, gpu in run.ranks.values()}
    places = {(host, bus) for host, bus, _ in run.ranks.values()}
    if not run.rows:
        raise RefusedRow("no row of sizes and times follows; did it break off?")
    if not count:
        raise RefusedRow(
            "its header names no ranks (`#  Rank  0 ... on HOST device ...`), so that GPUs and "
            "servers are not known; give the whole output"
        )
    if count == 1:
        raise RefusedRow(
            "one rank, which sends nothing; for several processes nccl-tests are built with MPI=1"
        )
    if sorted(run.ranks) != list(range(count)) or count % run.each or run.twice:
        raise RefusedRow(
            f"its header names {count} ranks, not all from 0 on and each once; give the whole "
            "output of one run"
        )
    if len(run.groups) > 1:
        raise RefusedRow(
            f"{len(run.groups)} groups at once (NCCL_TESTS_SPLIT) share the network, which is not "
            "modelled; run one"
        )
    if len(places) < count:
        raise RefusedRow(
            "two ranks stand on one host and bus id: hosts of one name cannot be told apart"
        )
    if len(set(hosts.values())) > 1:
        raise RefusedRow(f"ranks stand unevenly on hosts: {dict(sorted(hosts.items()))}")
    if len(gpus) > 1:
        raise RefusedRow(f"several kinds of GPU: {', '.join(sorted(gpus))}")
    if run.calls > 1:
        raise RefusedRow(f"agg iters: {run.calls} calls in one group, which are not modelled; -m 1")
    network = " ".join(sorted(run.networks)) if len(hosts) > 1 else ""
    if "socket" in network.lower():
        raise RefusedRow("NCCL used network Socket (TCP of the host), which is not modelled")
    return {
        "device": gpus.pop(), "op_name": _operation(run, path), "num_gpus": str(count),
        "nodes": str(len(hosts)), "network": re.sub("(?i)fastrak", "tcpxo", network),
        "source": path.name, "launch": _launch(run, len(hosts)),
    }  # fmt: skip


def _launch(run: _SweepRun, hosts: int) -> str:
    """`host` where a call's launch is in its time: not in a CUDA graph, nor between servers, where
    it is part of what was fitted on such runs, unless each call is waited for (-z 1).
    """
    return "host" if run.blocking or (hosts == 1 and not run.graph) else ""


def _operation(run: _SweepRun, path: Path) -> str:
    """The test: as a line before the run names it, else the file's name, else what its columns
    leave open.
    """
    if run.named:
        return run.named
    letters = re.sub("[^a-z]", "", path.name.lower())
    found = []
    for name in NAMES:
        found += [name] if name in letters else []
        letters = letters.replace(name, "")
    if len(found) == 1:
        return found[0]
    possible = set.intersection(*({*_possible(run, row)} for _, row in run.rows))
    if len(possible) == 1:
        return possible.pop()
    raise RefusedRow(
        "says not which test it is (such as all_gather_perf); say it in the file's name, as "
        f"all_gather_perf{path.suffix}"
    )


def _possible(run: _SweepRun, row: re.Match) -> Iterator[str]:
    """Tests that have the columns and the bandwidths of such a row."""
    redop, root, figures = _divided(run, row)
    sums = redop not in ("", "none")
    for kind, adds, rooted in (
        ("all-reduce", True, False), ("reduce-scatter", True, False), ("reduce", True, True),
        ("broadcast", False, True), ("all-gather", False, False), ("all-to-all", False, False),
        ("send-recv", False, False),
    ):  # fmt: skip
        named = adds == sums and root in ("", str(0 if rooted else -1))
        if named and _fits(kind, len(run.ranks), *_bandwidths(figures)):
            yield kind


def _fits(kind: str, ranks: int, algorithm: float, bus: float) -> bool:
    """Whether these printed bandwidths are of such a collective of so many ranks."""
    factor = bus_factor(kind, ranks)
    return abs(bus - factor * algorithm) <= 0.005 * (1 + factor) + SLACK * bus


def _divided(run: _SweepRun, row: re.Match) -> tuple[str, str, list[str]]:
    """(redop, root, the figures behind them) of a row; '' where it says none."""
    words, lead = row[4].split(), run.columns
    if not lead:
        raise RefusedRow("no line of column names stands above; give the whole output")
    redop = words.pop(0) if words and re.fullmatch("[a-z]+", words[0]) else ""
    root = words.pop(0) if words and "root" in lead else ""
    return redop, root, words


def _bandwidths(figures: list[str]) -> tuple[float, float]:
    """Algorithm and bus bandwidth (GB/s) of the columns whose time counts."""
    group = _timed(figures)
    try:
        return float(group[1]), float(group[2])
    except ValueError:
        raise RefusedRow(f"{' '.join(group)[:40]!r} are no time and two bandwidths") from None


def _timed(figures: list[str]) -> list[str]:
    """time, algbw, busbw, #wrong: out of place, or in place where that was not run."""
    first, second = figures[:4], figures[4:8]
    if len(first) < 4:
        raise RefusedRow("has fewer figures than columns; is the line cut, or mixed with another?")
    return second if first[0] == "N/A" and len(second) == 4 else first


def _cells(run: _SweepRun, row: re.Match, facts: CellTexts) -> CellTexts:
    """The row as cells of the table."""
    _, _, figures = _divided(run, row)
    time, *_, wrong = _timed(figures)
    algorithm, bus = _bandwidths(figures)
    if row[1] == "0":
        raise RefusedRow("0 bytes, nothing is sent")
    if "#wrong" in run.columns and wrong not in ("0", "N/A"):
        raise RefusedRow(f"#wrong is {wrong}: the results were not right")
    cells = facts | {"message_size": row[1], "nccl_dtype": "int8", "latency_us": time}
    _check(cells, algorithm, bus)
    return cells


def _check(cells: CellTexts, algorithm: float, bus: float) -> None:
    """RefusedRow where bandwidths are not those of the bytes, the time and the ranks."""
    kind, ranks = kind_of(cells["op_name"]), int(cells["num_gpus"])
    try:
        rate = int(cells["message_size"]) / float(cells["latency_us"]) / 1e3
    except (ValueError, ZeroDivisionError):
        return  # who reads the time says what is wrong with it
    if abs(rate - algorithm) > 0.01 + 2 * SLACK * algorithm:
        raise RefusedRow(f"algbw {algorithm:g} GB/s is not its bytes over its time, {rate:.4g}")
    if not _fits(kind, ranks, algorithm, bus):
        raise RefusedRow(
            f"busbw {bus:g} is not {bus_factor(kind, ranks):.4g} x algbw {algorithm:g}, as in "
            f"{kind} of {ranks} ranks: another test, or ranks that the header lacks"
        )

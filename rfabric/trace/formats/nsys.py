"""Nsight Systems: the SQLite file that `nsys export --type sqlite` writes; a file a rank, several
processes in one file, or a folder of them is one job.

    CUPTI_ACTIVITY_KIND_KERNEL   start, end (ns), correlationId, globalPid, shortName -> StringIds
    CUPTI_ACTIVITY_KIND_RUNTIME  start, end, correlationId, globalTid: the launches of kernels
    NVTX_EVENTS                  start, end, text or textId, globalTid, jsonText: NCCL's ranges

NCCL's ranges (`ncclAllReduce`) hold its sizes, in jsonText: "Message size [bytes]", "NCCL
communicator ID", and `ncclCommInitRank` "No. of ranks" and "Rank". A kernel belongs to the range in
which it was launched; one that `ncclGroupEnd` launched, to all calls of its group, such as the
sends and receives of an all-to-all. Sizes are what one rank passes to NCCL: of all-gather,
reduce-scatter, scatter and all-to-all one rank's share.
"""

import json
import sqlite3
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

import numpy as np

from ...errors import RFabricError
from ...files import PACKERS
from ..model import Trace
from ..recorded import RankLog, Recorded, checked_ranks, checked_size, kind_named, trace_of_ranks
from .base import TraceFormat
from .lowering import PER_RANK
from .other_senders import sender_of, told

NS = 1e-9
KERNELS, LAUNCHES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
RANGES, STRINGS = "NVTX_EVENTS", "StringIds"
NEEDED = {
    KERNELS: ("start", "end", "correlationId", "globalPid", "shortName"),
    LAUNCHES: ("start", "correlationId", "globalTid"),
    RANGES: ("start", "end", "text", "globalTid", "jsonText"),
    STRINGS: ("id", "value"),
}
SIZE, COMM, RANKS, RANK = (
    "Message size [bytes]", "NCCL communicator ID", "No. of ranks", "Rank",
)  # fmt: skip
PEER, ROOT = "Peer rank", "Root"
CALLS = ("ncclall", "ncclred", "ncclbro", "ncclsen", "ncclrec", "ncclgat", "ncclsca")
GROUP_BEGINS, GROUP_ENDS = "ncclgroupstart", "ncclgroupend"
SHARES = (*PER_RANK, "scatter", "all-to-all")
MAGIC = b"SQLite format 3\x00"
PROCESS = ~0xFFFFFF  # of a globalTid: what it shares with its globalPid


def _read(path: Path, gpus_per_server: int = 0, skip: str = "") -> Trace:
    files = sorted(f for f in path.iterdir() if f.suffix == ".sqlite") if path.is_dir() else [path]
    if not files:
        raise RFabricError("holds no .sqlite file; nsys export --type sqlite makes them")
    every = [process for file in files for process in _processes(file)]
    if not every:
        raise RFabricError("holds no kernel; record with nsys profile --trace=cuda,nvtx")
    job = _RecordedRanks(every)
    skipped = skip.split("+") if skip else ()
    logs = [process.log(job, skipped) for process in every]
    notes = [f"{p.name}: {count} {what}" for p in every for what, count in p.counts.items()]
    notes += [f"{p.name}: {text}" for p in every for text in told(p.senders)]
    said = {"source": path.name, "format": "nsys", "files": len(files)}
    return trace_of_ranks(logs, job.world, gpus_per_server, said, notes)


class _Process:
    """What one process (a rank) did: NCCL's ranges, kernels, and which range launched which."""

    def __init__(self, name: str, calls: list[dict], kernels: list[dict]):
        self.name, self.kernels, self.counts = name, _each_once(kernels), Counter()
        if again := len(kernels) - len(self.kernels):
            self.counts["kernels that stand twice: once dropped"] = again
        self.senders = Counter(filter(None, (sender_of(k["name"]) for k in kernels)))
        # ns of the first kernel, from which all count
        self.first = min(kernel["start"] for kernel in kernels)
        # communicator: (ranks, rank in it)
        self.comms = {
            c["comm"]: _ranks(c["said"], f"{name}: range {c['text']} at {c['start']} ns")
            for c in calls
            if RANKS in c["said"] and RANK in c["said"]
        }
        self.calls = _with_groups(calls)
        self.number, self.launched = 0, 0  # NCCL's kernels that some call launched

    def seconds(self, ns: int) -> float:
        """s since its first kernel."""
        return (ns - self.first) * NS

    def place(self) -> tuple[int, str, int]:
        """Where it stands among others: by the largest communicator that it is in, and its rank."""
        every = [(-ranks, comm, rank) for comm, (ranks, rank) in self.comms.items()]
        return min(every, default=(0, "", 0))

    def log(self, job: "_RecordedRanks", skip: Sequence[str]) -> RankLog:
        """The collectives of this rank, in ranks of the job, and what else it computed."""
        nccl = [k for k in self.kernels if k["name"].startswith("nccl")]
        rest = [k for k in self.kernels if not k["name"].startswith("nccl")]
        busy = [(self.seconds(k["start"]), self.seconds(k["end"])) for k in rest]
        seen: Counter = Counter()
        launched = sorted(self._launched(nccl), key=lambda one: one[0]["start"])
        every = [self._recorded(job, k, seen, skip) for k in launched]
        made = [one for one in every if one]
        if left := len(nccl) - self.launched:
            self.counts["NCCL kernels without a size dropped"] += left
        if left := len(every) - len(made):
            self.counts["calls of one rank, without a peer or skipped dropped"] += left
        return RankLog(self.number, made, np.array(busy).reshape(-1, 2))

    def _launched(self, nccl: list[dict]) -> Iterator[tuple[dict, dict]]:
        """(kernel, its range) of every kernel that was launched inside one. Of those that the end
        of a group launched, which nobody tells apart, each of its calls has all.
        """
        by_thread: dict[int, list[dict]] = defaultdict(list)
        for call in self.calls:
            by_thread[call["thread"]].append(call)
        starts = {thread: [c["start"] for c in some] for thread, some in by_thread.items()}
        grouped: dict[int, tuple[dict, list[dict]]] = {}
        for kernel in nccl:
            some = by_thread.get(kernel["thread"], [])
            at = bisect_right(starts.get(kernel["thread"], []), kernel["launched"]) - 1
            if at < 0 or kernel["launched"] > some[at]["end"]:
                continue
            call = some[at]
            if "group" in call:
                grouped.setdefault(id(call), (call, []))[1].append(kernel)
            elif SIZE in call["said"]:
                self.launched += 1
                yield kernel, call
        for call, kernels in grouped.values():
            told = [one for one in call["group"] if SIZE in one["said"]]
            self.launched += len(kernels) if told else 0
            span = {"start": kernels[0]["start"], "end": max(k["end"] for k in kernels)}
            yield from ((span, one) for one in told)

    def _recorded(
        self, job: "_RecordedRanks", launched: tuple[dict, dict], seen: Counter, skip: Sequence[str]
    ) -> Recorded | None:
        kernel, call = launched
        said, where = call["said"], f"{self.name}: range {call['text']} at {call['start']} ns"
        kind, comm = kind_named(call["text"], where, skip), call["comm"]
        group = job.group(self, comm, where)
        if not kind or len(group) < 2:
            return None
        if kind in ("send", "recv"):
            peer = said.get(PEER)
            if type(peer) is not int or not 0 <= peer < len(group):
                return None
            if group[peer] == self.number:
                return None  # a copy
            pair = (self.number, group[peer])
            group = pair if kind == "send" else pair[::-1]
        size = checked_size(said[SIZE], where) * (len(group) if kind in SHARES else 1)
        key, root = (comm, group), said.get(ROOT)
        seen[key] += 1
        return Recorded(
            kind, checked_size(size, where), group, comm, seen[key],
            self.seconds(kernel["start"]), self.seconds(kernel["end"]), 0,
            group[root] if type(root) is int and 0 <= root < len(group) else None,
        )  # fmt: skip


class _RecordedRanks:
    """Which process is which rank of the job, by the largest communicator; those that are not in it
    take the numbers that it leaves.
    """

    def __init__(self, every: list[_Process]):
        sizes = {comm: n for p in every for comm, (n, _) in p.comms.items()}
        self.members: dict = defaultdict(dict)
        largest = max(sizes, key=lambda comm: sizes[comm], default=None)
        inside = [p for p in every if largest in p.comms]
        taken = {p.comms[largest][1] for p in inside}
        free = (number for number in count() if number not in taken)
        for process in inside:
            process.number = process.comms[largest][1]
        for process in sorted((p for p in every if p not in inside), key=_Process.place):
            process.number = next(free)
        self.world = checked_ranks(max(sizes.get(largest, 1), *(p.number + 1 for p in every)))
        for process in every:
            for comm, (_, rank) in process.comms.items():
                self.members[comm][rank] = process.number

    def group(self, process: _Process, comm, where: str) -> tuple[int, ...]:
        """The ranks of a communicator."""
        ranks = process.comms.get(comm, (self.world, 0))[0]
        if ranks == self.world:
            return tuple(range(self.world))
        members = self.members[comm]
        if len(members) != ranks:
            raise RFabricError(
                f"{where}: communicator {comm} has {ranks} ranks, {len(members)} of them recorded; "
                "give the files of all ranks in one folder"
            )
        return tuple(members[rank] for rank in sorted(members))


def _processes(path: Path) -> Iterator[_Process]:
    """The processes of one file that ran kernels."""
    with open(path, "rb") as file:
        if file.read(4).startswith(PACKERS):
            raise RFabricError(f"{path.name}: is packed, which no database is; unpack it")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as base:
            base.row_factory = sqlite3.Row
            has = _checked(base)
            kernels, calls = _kernels(base), _calls(base, has)
    except sqlite3.Error as error:
        raise RFabricError(
            f"{path.name}: {error}; it may be cut short: export it again with nsys export"
        ) from error
    for pid, some in kernels.items():
        yield _Process(f"{path.name} process {pid:#x}", calls.get(pid, []), some)


def _with_groups(calls: list[dict]) -> list[dict]:
    """The calls that launch kernels, ascending; the end of an outermost group holds those of the
    `group`.
    """
    made, open_ = [], defaultdict(list)  # by thread: the calls of each group that is open
    for call in sorted(calls, key=lambda c: c["start"]):
        text, groups = call["text"].lower(), open_[call["thread"]]
        if text.startswith(CALLS):
            made.append(call)
            if groups:
                groups[-1].append(call)
        elif text.startswith(GROUP_BEGINS):
            groups.append([])
        elif text.startswith(GROUP_ENDS) and groups:
            inner = groups.pop()
            if groups:
                groups[-1] += inner
            else:
                made.append(call | {"group": inner})
    return made


def _checked(base: sqlite3.Connection) -> set[str]:
    """The columns of NVTX_EVENTS; RFabricError for tables or columns that are not there."""
    for table, columns in NEEDED.items():
        has = _columns(base, table)
        missing = [column for column in columns if column not in has]
        if missing:
            what = f"no column {missing[0]}" if has else "not there"
            raise RFabricError(
                f"table {table}: {what}; record with nsys profile --trace=cuda,nvtx and export "
                "with a version of 2023 or later"
            )
    return _columns(base, RANGES)


def _columns(base: sqlite3.Connection, table: str) -> set[str]:
    return {row["name"] for row in base.execute(f"PRAGMA table_info({table})")}


def _kernels(base: sqlite3.Connection) -> dict[int, list[dict]]:
    """Kernels by process, with the thread and time of their launch: that of the runtime's call,
    where the driver's within it has the same number.
    """
    by_process: dict[int, list[dict]] = defaultdict(list)
    asked = base.execute(
        f"SELECT k.start AS start, k.end AS end, k.globalPid AS pid, s.value AS name, "
        f"min(r.start) AS launched, r.globalTid AS thread, k.correlationId AS call "
        f"FROM {KERNELS} k "
        f"JOIN {STRINGS} s ON s.id = k.shortName "
        f"LEFT JOIN {LAUNCHES} r ON r.correlationId = k.correlationId "
        f"AND (r.globalTid & {PROCESS}) = (k.globalPid & {PROCESS}) "
        "GROUP BY k.rowid ORDER BY k.start"
    )
    for row in asked:
        _check_row(KERNELS, row, "pid", "start", "end")
        by_process[row["pid"] & PROCESS].append(dict(row))
    return by_process


def _each_once(kernels: list[dict]) -> list[dict]:
    """The kernels of a process, each once, also where an export was merged with itself."""
    keys = ("start", "end", "name", "call")
    return list({tuple(map(kernel.get, keys)): kernel for kernel in kernels}.values())


def _calls(base: sqlite3.Connection, has: set[str]) -> dict[int, list[dict]]:
    """NCCL's ranges by process."""
    text = "coalesce(n.text, s.value)" if "textId" in has else "n.text"
    join = f"LEFT JOIN {STRINGS} s ON s.id = n.textId" if "textId" in has else ""
    by_process: dict[int, list[dict]] = defaultdict(list)
    for row in base.execute(
        f"SELECT n.start AS start, n.end AS end, {text} AS text, n.globalTid AS thread, "
        f"n.jsonText AS said FROM {RANGES} n {join} WHERE {text} LIKE 'nccl%' AND n.end NOT NULL"
    ):
        _check_row(RANGES, row, "thread", "start", "end")
        said = _payload(row["said"])
        call = dict(row) | {"said": said, "comm": str(said.get(COMM, ""))}
        by_process[row["thread"] & PROCESS].append(call)
    return by_process


def _check_row(table: str, row: sqlite3.Row, *columns: str) -> None:
    """RFabricError where one of these is no whole number, or it ends before it starts."""
    bad = next((column for column in columns if type(row[column]) is not int), None)
    if bad or row["end"] < row["start"]:
        said = f"{bad} is {row[bad]!r}" if bad else f"end is before start, {row['start']}"
        raise RFabricError(f"table {table}: in a row {said}; export it again with nsys export")


def _ranks(said: dict, where: str) -> tuple[int, int]:
    """The ranks of a communicator, and which of them a process is."""
    ranks, rank = said[RANKS], said[RANK]
    if type(ranks) is not int or type(rank) is not int or not 0 <= rank < ranks:
        raise RFabricError(f"{where}: rank {rank!r} of {ranks!r} cannot be; export it again")
    return checked_ranks(ranks, where), rank


def _payload(text: str | None) -> dict:
    """What NCCL says beside a range; its fields may stand in a list of payloads."""
    try:
        said = json.loads(text or "{}")
    except ValueError:
        return {}
    parts = said if isinstance(said, list) else [said]
    return {k: v for part in parts if isinstance(part, dict) for k, v in part.items()}


def _sniff(head: bytes) -> bool:
    return head.startswith(MAGIC)


NSYS = TraceFormat(
    "nsys", "SQLite exports of Nsight Systems with NCCL's ranges: collectives and the computing "
    "between; settings gpus_per_server, skip",
    (".sqlite",), _sniff, _read, folders=True,
)  # fmt: skip

"""NCCL Inspector: a collective a line, as NCCL's profiler plug-in of that name writes it; a file a
process, a folder of them is one job.

    {"header": {"id": "0x7f8c496ae9f661", "rank": 2, "n_ranks": 8, "nnodes": 1},
     "metadata": {"inspector_output_format_version": "v4.0", "dump_timestamp_us": 1748030377748202,
                  "hostname": "node-1", "pid": 1639453},
     "coll_perf": {"coll": "AllReduce", "coll_sn": 1407, "coll_msg_size_bytes": 17179869184,
                   "coll_exec_time_us": 61974, "coll_algobw_gbs": 277.21}}

A rank here is one of its communicator. GPUs of the job are numbered by the largest communicator,
host by host where all of it left lines, and processes beside it by their hosts; there are as many
servers as any communicator is over. Members that left no line are placed as NCCL's ranks usually
lie: servers one after the other, as many GPUs of each. Bytes of S are `coll_algobw_gbs` x time,
where all-gather and reduce-scatter say what one rank holds. A collective ends when it was dumped,
unless verbose lines say when (`event_trace_ts`).
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from ...errors import RFabricError
from ...files import json_objects, lines_of, open_bytes, open_text
from ...units import US
from ..model import Trace
from ..recorded import (
    KINDS,
    RankLog,
    Recorded,
    checked_ranks,
    checked_size,
    kind_named,
    trace_of_ranks,
)
from .base import TraceFormat
from .lowering import PER_RANK

VERSIONS, PERF = ("v4",), "coll_perf"
SHOWN = 3  # ranks in a message
HEAD = 4096  # bytes of a file, by which it is told


def _read(path: Path, gpus_per_server: int = 0, skip: str = "") -> Trace:
    every = sorted(f for f in path.iterdir() if f.is_file()) if path.is_dir() else [path]
    files = [file for file in every if _is_inspected(file)] or every
    beside: Counter = Counter()
    lines = [line for file in files for line in _lines(file, beside)]
    if not lines:
        raise RFabricError("holds no collective of NCCL Inspector")
    job = _RecordedGpus(lines, gpus_per_server)
    skipped = skip.split("+") if skip else ()
    logs: dict[int, list[Recorded]] = {}
    for line in lines:
        if one := line.recorded(job, skipped):
            logs.setdefault(job.ranks[line.process], []).append(one)
    notes = [*job.notes, *(f"{many} lines of {kind} dropped" for kind, many in beside.items())]
    notes += [
        f"{file.name}: not of NCCL Inspector, left out" for file in every if file not in files
    ]
    dropped = len(lines) - sum(map(len, logs.values()))
    if dropped:
        notes.append(f"{dropped} lines dropped: sends and receives name no peer, or skipped")
    if not any(line.timed for line in lines):
        notes.append("no line says when it ran: what lies between two is known by their dumps")
    said = {"source": path.name, "format": "nccl_inspector", "rows": len(lines)}
    ranks = [RankLog(rank, _in_order(some)) for rank, some in sorted(logs.items())]
    return trace_of_ranks(ranks, job.world, job.server, said, notes)


def _is_inspected(file: Path) -> bool:
    with open_bytes(file) as opened:
        return _sniff(opened.read(HEAD))


class _CollectiveLine:
    """One line of a file, its fields checked."""

    def __init__(self, where: str, said: dict):
        self.where = where
        header, meta, perf = (self._part(said, key) for key in ("header", "metadata", PERF))
        version = str(meta.get("inspector_output_format_version", ""))
        if not version.startswith(VERSIONS):
            raise RFabricError(
                f"{where}: inspector_output_format_version {version!r}; {VERSIONS[0]}.x is read: "
                "write it again with a plug-in of that version"
            )
        self.comm = str(header.get("id", ""))
        self.rank, self.ranks, self.nodes = (
            self._whole(header, key) for key in ("rank", "n_ranks", "nnodes")
        )
        if not self.rank < self.ranks or not 1 <= self.nodes <= self.ranks:
            raise RFabricError(
                f"{where}: rank {self.rank} of {self.ranks} on {self.nodes} nodes cannot be"
            )
        checked_ranks(self.ranks, where)
        self.each = -(-self.ranks // self.nodes)  # on a server
        self.process = str(meta.get("hostname", "")), self._whole(meta, "pid")
        self.name, self.number = str(perf.get("coll", "")), self._whole(perf, "coll_sn")
        self.size = checked_size(perf.get("coll_msg_size_bytes"), where)
        self.seconds = self._whole(perf, "coll_exec_time_us") * US
        self.speed = perf.get("coll_algobw_gbs")
        times = perf.get("event_trace_ts") or {}
        self.timed = isinstance(times.get("coll_start_ts"), int)
        self.start_us = (
            times["coll_start_ts"]
            if self.timed
            else self._whole(meta, "dump_timestamp_us") - self._whole(perf, "coll_exec_time_us")
        )

    def _part(self, said: dict, key: str) -> dict:
        part = said.get(key)
        if not isinstance(part, dict):
            raise RFabricError(f"{self.where}: {key} is missing; every line has it")
        return part

    def _whole(self, part: dict, key: str) -> int:
        value = part.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            raise RFabricError(
                f"{self.where}: {key} {str(value)[:40]!r} is no whole number below 2^63"
            )
        return value

    def recorded(self, job: "_RecordedGpus", skip) -> Recorded | None:
        """What the line says, in ranks of the job; None for what is left out."""
        kind = kind_named(self.name, self.where, skip)
        if kind in ("", "send", "recv") or self.ranks < 2:
            return None
        size = self.size * (self.ranks if kind in PER_RANK and not self._is_whole() else 1)
        start = (self.start_us - job.first_us) * US
        # NCCL counts each kind of a communicator by itself
        number = self.number, list(KINDS.values()).index(kind)
        return Recorded(
            kind, checked_size(size, self.where), job.group(self), self.comm, number,
            start, start + self.seconds,
        )  # fmt: skip

    def _is_whole(self) -> bool:
        """Whether the size said is already that of all ranks together: the speed tells."""
        if not isinstance(self.speed, (int, float)) or not self.size:
            return False
        ratio = self.speed * 1e9 * self.seconds / self.size
        return abs(ratio - 1) < abs(ratio - self.ranks)


def _server_by_server(line: _CollectiveLine, each: int) -> int:
    """The rank of the job of one in its largest communicator, of servers of `each` GPUs."""
    return line.rank // line.each * each + line.rank % line.each


def _by_host(members: dict[int, tuple], line: _CollectiveLine) -> dict[int, int]:
    """The ranks of the job of those in its largest communicator, so that those of a host are
    neighbours, as they are not where ranks are dealt to hosts in turn; none where not all hosts are
    known, or they have unequal many.
    """
    first: dict[str, int] = {}
    for rank in sorted(members):
        first.setdefault(members[rank][0], rank)
    hosts = Counter(host for host, _ in members.values())
    if len(members) < line.ranks or set(hosts.values()) != {line.each}:
        return {}
    order = sorted(members, key=lambda rank: (first[members[rank][0]], rank))
    return {rank: place for place, rank in enumerate(order)}


class _RecordedGpus:
    """Which process is which GPU of the job, and who is in a communicator."""

    def __init__(self, lines: list[_CollectiveLine], server: int):
        # from which all count: a float of seconds since 1970 holds no microseconds
        self.first_us = min(line.start_us for line in lines)
        self.members: dict[str, dict[int, tuple]] = {}
        calls: set[tuple] = set()
        for line in lines:
            members = self.members.setdefault(line.comm, {})
            if (call := (line.comm, line.rank, line.name, line.number)) in calls:
                raise RFabricError(
                    f"{line.where}: rank {line.rank} has {line.name} {line.number} of communicator "
                    f"{line.comm} twice; keep one of the two lines or files"
                )
            calls.add(call)
            if members.setdefault(line.rank, line.process) != line.process:
                raise RFabricError(
                    f"{line.where}: rank {line.rank} of communicator {line.comm} is also "
                    f"{members[line.rank]}; give the files of one run"
                )
        # the largest first, of several that over the fewest servers: its ranks are neighbours
        order = sorted(lines, key=lambda line: (-line.ranks, line.nodes, line.comm, line.rank))
        self.each = max(server, *(line.each for line in lines))
        self.server = server or self.each
        nodes = max(line.nodes for line in lines)
        hosts = Counter(host for host, _ in self.members[order[0].comm].values())
        uneven = max(hosts.values()) > order[0].each  # it has all GPUs, of servers of unequal many
        whole = order[0].nodes == nodes and (uneven or order[0].each == self.each)
        self.world = order[0].ranks if whole else max(order[0].ranks, nodes * self.each)
        self.ranks: dict[tuple, int] = {}
        self.servers: dict[str, int] = {}  # number of a host's server
        self.taken: set[int] = set()
        beside = []
        places = _by_host(self.members[order[0].comm], order[0]) if whole else {}
        for line in order:
            if line.process not in self.ranks:
                inside = line.comm == order[0].comm
                own = places.get(line.rank, line.rank)
                own = own if whole else _server_by_server(line, self.each)
                rank = own if inside else self._beside(line)
                beside += [] if inside else [rank]
                self._number(line.process, rank)
        self.notes: list[str] = []
        if len(set(self.servers.values())) < len(self.servers):
            self.notes.append(
                "ranks that are neighbours are on several hosts; they are taken for one server's"
            )
        if beside:
            shown = f"{beside[:SHOWN]}"[1:-1] + ", ..." * (len(beside) > SHOWN)
            self.notes.append(
                f"{len(beside)} processes are in no communicator of the whole job: taken as rank "
                f"{shown}, by their hosts"
            )

    def _number(self, process: tuple, rank: int) -> None:
        self.ranks[process] = rank
        self.taken.add(rank)
        self.servers.setdefault(process[0], rank // self.each)
        self.world = max(self.world, rank + 1)

    def _beside(self, line: _CollectiveLine) -> int:
        """The rank of a process that is not in the largest communicator: on the server of its host,
        else on the first that no process is known of, at its place in its own communicator, if that
        is free.
        """
        known = set(self.servers.values())
        server = self.servers.get(line.process[0], next(n for n in count() if n not in known))
        places = (line.rank % line.each, *range(self.each))
        every = (server * self.each + place for place in places)
        rank = next((rank for rank in every if rank not in self.taken), -1)
        if rank < 0:
            raise RFabricError(
                f"{line.where}: more processes on {line.process[0]!r} than its {self.each} GPUs; "
                "give the files of one run"
            )
        return rank

    def group(self, line: _CollectiveLine) -> tuple[int, ...]:
        """The ranks of a communicator; members without a line are placed."""
        members = self.members[line.comm]
        if line.ranks == self.world:
            return tuple(range(self.world))
        if len(members) == line.ranks:
            return tuple(self.ranks[members[rank]] for rank in range(line.ranks))
        note = f"communicator {line.comm}: {len(members)} of {line.ranks} members left lines; "
        if (text := note + "the others are placed server by server") not in self.notes:
            self.notes.append(text)
        return self._placed(line)

    def _placed(self, line: _CollectiveLine) -> tuple[int, ...]:
        each = min(line.each, self.server)
        mine = self.ranks[line.process]
        first = (mine // self.server - line.rank // each) * self.server
        offset = 0 if each > 1 else mine % self.server
        places = [first + r // each * self.server + offset + r % each for r in range(line.ranks)]
        return tuple(r % self.world for r in places)


def _in_order(some: list[Recorded]) -> list[Recorded]:
    """A rank's collectives, each no sooner than the last of its communicator has ended: a dump
    stamps several alike.
    """
    ends: dict[str, float] = {}
    ordered = []
    for one in sorted(some, key=lambda c: (c.start, c.number)):
        start = max(one.start, ends.get(one.name, one.start))
        ends[one.name] = start + one.end - one.start
        ordered.append(Recorded(one.kind, one.size, one.group, one.name, one.number, start,
                              ends[one.name]))  # fmt: skip
    return ordered


def _lines(path: Path, beside: Counter) -> Iterator[_CollectiveLine]:
    """The lines of collectives; those of sends and receives, `p2p_perf`, are counted `beside`."""
    try:
        with open_text(path) as file:
            for number, said in json_objects(lines_of(file)):
                other = next((key for key in said if key.endswith("_perf")), PERF)
                if PERF not in said and other != PERF:
                    beside[other] += 1
                    continue
                yield _CollectiveLine(f"{path.name}, line {number}", said)
    except RFabricError as error:
        if not _is_inspected(path):
            raise RFabricError(
                f"{path.name} holds no line of NCCL Inspector, NCCL's profiler plug-in; what "
                "NCCL_DEBUG prints is not read: it says not how long calls took"
            ) from error
        where = "" if str(error).startswith(path.name) else f"{path.name}, "
        raise RFabricError(f"{where}{error}") from error


def _sniff(head: bytes) -> bool:
    # not in the first line alone: a rank below a banner is read to it and refused, not left out
    return bool(re.search(rb'"(coll_perf|inspector_output_format_version)"', head))


NCCL_INSPECTOR = TraceFormat(
    "nccl_inspector", "JSON lines of NCCL's profiler plug-in, a file a process or a folder of "
    "them: collectives; settings gpus_per_server, skip",
    (".jsonl", ".log"), _sniff, _read, folders=True,
)  # fmt: skip

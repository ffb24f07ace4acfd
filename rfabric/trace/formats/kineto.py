"""Kineto: what PyTorch's profiler writes, JSON plain or packed; a file a rank, a folder is one job.

    {"distributedInfo": {"rank": 0, "world_size": 128, "pg_config": [...]}, "traceEvents": [
      {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)",
       "ts": 1.5e6, "dur": 2636.7,
       "args": {"Collective name": "allreduce", "In msg nelems": 6637568, "dtype": "Float",
                "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}}, ...]}

Kernels say this since PyTorch 2.3 (before: `kineto_early.py`). A file may be larger than memory.
"""

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import RFabricError
from ...files import open_bytes, open_text
from ...units import US
from ..model import Trace
from ..recorded import RankLog, Recorded, checked_size, kind_named, trace_of_ranks
from .base import TraceFormat
from .kineto_early import EARLY, NCCL, matched
from .kineto_groups import CUT, GUESSED, UNGROUPED, listed
from .kineto_peers import (
    EITHER,
    SaidByGroup,
    counted_in_groups,
    either,
    ends_of,
    message_of,
    root_of,
)
from .kineto_splits import UNSPLIT, SplitParts, parts_of
from .kineto_stream import streamed
from .other_senders import sender_of, told

BUSY = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
HOST, ON_GPU = ("user_annotation", "cpu_op", "operator"), "gpu_user_annotation"
STEP, RANK = re.compile(r"ProfilerStep#(\d+)"), re.compile(r"(?i)rank[-_]?(\d{1,6})(?!\d)")
HEAD = 4096  # bytes of a file, by which it is told
# bytes of an element, by the names that NCCL, c10 and the profiler give types, in small letters
TYPES = {
    1: "byte char bool uint8 int8 unsignedchar signedchar float8_e4m3fn float8_e5m2 "
    "float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu",
    2: "half bfloat16 float16 short int16 uint16 c10::half c10::bfloat16",
    4: "float float32 int int32 uint32 complexhalf",
    8: "double long float64 int64 uint64 complexfloat", 16: "complexdouble",
}  # fmt: skip
WIDTH = {name: width for width, names in TYPES.items() for name in names.split()}


_KnownKernel = tuple[dict, str, tuple[int, ...]]  # an event of NCCL, its kind and its group


def _read(path: Path, gpus_per_server: int = 0, skip: str = "") -> Trace:
    named = sorted(f for f in path.iterdir() if _named(f)) if path.is_dir() else [path]
    files = [f for f in named if _is_profile(f)] or named
    if not files:
        raise RFabricError("holds no .json or .json.gz; give the folder of the profiler's files")
    ranks = [_file(file, skip.split("+") if skip else (), len(files) > 1) for file in files]
    sizes = sorted({one.world for one in ranks if one.world})
    if len(sizes) > 1:
        raise RFabricError(
            f"files of jobs of {sizes[0]} and of {sizes[-1]} ranks; give the files of one run"
        )
    in_group = counted_in_groups([one.messages() for one in ranks])
    logs = [one.log(in_group) for one in ranks]
    notes = [note for one in ranks for note in one.notes]
    notes += [f"{file.name}: no profile, left out" for file in named if file not in files]
    most = max((r + 1 for log in logs for c in log.collectives for r in c.group), default=1)
    world = max(most, *(one.world for one in ranks), *(one.rank + 1 for one in ranks))
    server = gpus_per_server or max(one.devices for one in ranks)
    if server == 1 != gpus_per_server and world > 1:
        notes.append("servers of one GPU, as each process saw one; say gpus_per_server=N")
    said = {"source": path.name, "format": "kineto", "files": len(files)}
    return trace_of_ranks(logs, world, server, said, notes)


def _named(file: Path) -> bool:
    return file.name.endswith((".json", ".json.gz", ".json.zst"))


def _is_profile(file: Path) -> bool:
    with open_bytes(file) as opened:
        return _sniff(opened.read(HEAD))


def _file(path: Path, skip: Sequence[str], several: bool) -> "_File":
    try:
        return _File(path, skip, several)
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise RFabricError(
            f"{path.name}: is no whole profile: what stands there is of another kind ({error}); "
            "export it again"
        ) from error


class _File:
    """One rank's file, read through once."""

    def __init__(self, path: Path, skip: Sequence[str], several: bool):
        self.path, self.skip, self.counts = path, skip, Counter()
        self.busy, self.events = array("d"), 0
        # us of the first event, from which all count: a float of us since 1970 holds no nanoseconds
        self.first: int | None = None
        # begins on the host, and on the GPU, which may be a step behind
        self.steps: tuple[list[tuple[float, int]], ...] = [], []
        self.host: list[dict] = []
        self.kernels: list[dict] = []
        self.senders: Counter[str] = Counter()  # kernels of other libraries that send
        self.seen: set[int] = set()  # NCCL's kernels, by what no two share
        head = self._events()
        self._told(head, several)
        self.placed = self._whole()

    def _events(self) -> dict:
        """Sort all events; what stands beside them."""
        import ijson

        with open_text(self.path) as file:
            try:
                return streamed(file.buffer, self._take)
            except ijson.JSONError as error:
                raise RFabricError(
                    f"{self.path.name}: no valid JSON after event {self.events} or soon "
                    f"after it ({str(error).splitlines()[0]}): it may be cut short; export it again"
                ) from error

    def _take(self, event: dict) -> None:
        self.events += 1
        if not isinstance(event, dict) or event.get("ph") != "X":
            return
        # until PyTorch 1.12 categories were called Kernel, Memcpy, Memset, Operator
        name, kind = str(event.get("name", "")), str(event.get("cat", "")).lower()
        nccl = kind == "kernel" and NCCL.match(name)
        step = STEP.match(name)
        if not (kind in BUSY or step or (name.startswith(EARLY) and kind in HOST)):
            return
        begun, long = event.get("ts"), event.get("dur", 0)
        if not _is_time(begun) or not _is_time(long) or long < 0:
            raise RFabricError(
                f"{self.path.name}: event {self.events} ({name[:40]!r}): ts or dur is no time in "
                "microseconds; export it again"
            )
        self.first = int(begun) if self.first is None else self.first
        start, long = float(begun - self.first), float(long)
        if nccl and self._is_again(event):
            self.counts["NCCL kernels that stand twice: once dropped"] += 1
        elif nccl:
            self.kernels.append(event | {"number": self.events, "ts": start, "dur": long})
        elif kind in BUSY:
            self.busy.extend((start * US, (start + long) * US))
            if sender := sender_of(name):
                self.senders[sender] += 1
        elif step:
            self.steps[kind == ON_GPU].append((start, int(step[1])))
        else:
            self.host.append(event | {"number": self.events, "ts": start})

    def _is_again(self, event: dict) -> bool:
        """Whether an event is one that stood before: a stream runs one kernel at a time."""
        said = (event.get("args") or {}).get("correlation")
        key = hash((*map(event.get, ("ts", "dur", "pid", "tid", "name")), said))
        again = key in self.seen
        self.seen.add(key)
        return again

    def _told(self, head: dict, several: bool) -> None:
        if head.get("schemaVersion", 1) != 1:
            raise RFabricError(
                f"{self.path.name}: schemaVersion {head['schemaVersion']!r}; version 1 is read"
            )
        job = head.get("distributedInfo") or {}
        if several and "rank" not in job and (named := RANK.search(self.path.name)):
            self.counts["rank that only its name says"] += 1
            job = job | {"rank": int(named[1])}
        if several and "rank" not in job:
            raise RFabricError(
                f"{self.path.name}: distributedInfo names no rank; record with torch.distributed "
                "initialised, or give one file alone"
            )
        self.rank, self.world = int(job.get("rank", 0)), int(job.get("world_size", 0))
        if not 0 <= self.rank < (self.world or self.rank + 1):
            raise RFabricError(
                f"{self.path.name}: distributedInfo says rank {self.rank} of a job of "
                f"{self.world}; export it again"
            )
        self.own = self.rank if "rank" in job else None
        self.devices = len(head.get("deviceProperties") or ())
        self.groups = {
            str(one.get("pg_name")): _ranks(one["ranks"], one.get("pg_size"))
            for one in job.get("pg_config") or ()
            if isinstance(one, dict) and one.get("ranks")
        }

    @property
    def notes(self) -> list[str]:
        """What was left out, in words."""
        said = [f"{count} {what}" for what, count in self.counts.items() if count]
        return [f"{self.path.name}: {text}" for text in (*said, *told(self.senders))]

    def _whole(self) -> list[_KnownKernel]:
        """NCCL's kernels of which a size is known, with their kinds and groups."""
        self.kernels.sort(key=lambda e: e["ts"])
        whole = [k for k in self.kernels if "Collective name" in k.get("args", {})]
        rows = whole or matched(self.kernels, self.host, self._kind, self.counts)
        self.counts[UNGROUPED] += 0 if whole else len(rows)
        if left := len(self.kernels) - len(rows):
            what = "NCCL kernels without a size dropped: their time counts as computing"
            self.counts[what] += left
        return [self._placed(k, k["args"]) for k in rows]

    def _placed(self, event: dict, args: dict) -> _KnownKernel:
        kind = self._kind(event, str(args["Collective name"]))
        return event, kind, self._group(args, self._at(event))

    def messages(self) -> SaidByGroup:
        """What its sends and receives say of their ends, by group, and which rank says so."""
        said: dict[tuple[int, ...], list] = {}
        for event, kind, group in self.placed:
            if kind in ("send", "recv"):
                said.setdefault(group, []).append(message_of(kind, event["args"]))
        return self.own, said

    def log(self, in_group: bool) -> RankLog:
        """What the rank did; `in_group`: its messages count their ends in their groups."""
        self.counts[EITHER] += 0 if in_group else either(self.messages())
        seen: Counter = Counter()
        calls = [c for one in self.placed if (c := self._recorded(*one, seen, in_group))]
        busy = np.frombuffer(self.busy).reshape(-1, 2) if self.busy else np.zeros((0, 2))
        return RankLog(self.rank, calls, busy)

    def _recorded(
        self, event: dict, kind: str, group: tuple[int, ...], seen: Counter, in_group: bool
    ) -> Recorded | None:
        where, args, whole = self._at(event), event["args"], group
        if not kind or len(group) < 2:
            self.counts["collectives of one rank, or skipped, dropped"] += 1
            return None
        if kind in ("send", "recv"):
            group = ends_of(message_of(kind, args), group, self.own, in_group)
            if not group:
                self.counts["sends and receives without a peer dropped"] += 1
                return None
        counts = [checked_size(args.get(f"{way} msg nelems", 0), where) for way in ("In", "Out")]
        width = _width(args, where)
        size = _bytes(kind, *counts, len(group)) * width
        parts: SplitParts | None = ((), ())
        if kind == "all-to-all":
            parts = parts_of(args, [n * width for n in counts], len(group), where)
            self.counts[UNSPLIT] += parts is None
        name = str(args.get("Process Group Name", ""))
        # each end counts its own sends and receives; in a group several collectives share a number
        told = args.get("Seq") if kind not in ("send", "recv") else None
        number = seen[name, group, told] if told is None else (told, seen[name, group, told])
        seen[name, group, told] += 1
        start = event["ts"]
        return Recorded(
            kind, checked_size(size, where), group, name, number, start * US,
            (start + event["dur"]) * US, self._step(start), root_of(args, whole),
            *(parts or ()),
        )  # fmt: skip

    def _kind(self, event: dict, name: str) -> str:
        return kind_named(name, self._at(event), self.skip)

    def _at(self, event: dict) -> str:
        return f"{self.path.name}: event {event['number']} ({event['name'][:40]})"

    def _step(self, time: float) -> int:
        steps = self.steps[1] or self.steps[0]
        begun = [number for start, number in steps if start <= time]
        return max(begun, default=min((n for _, n in steps), default=0))

    def _group(self, args: dict, where: str) -> tuple[int, ...]:
        ranks = self.groups.get(str(args.get("Process Group Name")))
        text = str(args.get("Process Group Ranks", ""))
        size = args.get("Group size")
        if ranks is None and text:
            ranks = listed(text, size)
            self.counts[CUT] += ranks is not None and "..." in text
        size = size if size is not None else len(ranks) if ranks else self.world
        if ranks is None or (len(ranks) != size and size == self.world):
            self.counts[GUESSED] += size != self.world
            first = self.rank // size * size if size and size < self.world else 0
            ranks = range(first, first + size)
        if len(set(ranks)) != size or any(type(r) is not int for r in ranks):
            raise RFabricError(
                f"{where}: {len(set(ranks))} ranks of a group of {size} are named; record with a "
                "PyTorch that writes pg_config (2.4 and later)"
            )
        return tuple(ranks)


def _ranks(said: Any, size: object) -> Any:
    """Ranks as a list has them, or a text."""
    return listed(said, size) if isinstance(said, str) else said


def _is_time(value: object) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool) and abs(value) < 1e18


def _bytes(kind: str, sent: int, received: int, ranks: int) -> int:
    """Elements of S, as `collectives` counts it."""
    if kind == "all-gather":
        return max(received, sent * ranks)
    if kind == "gather":
        return sent  # the root alone receives
    return max(sent, received * (ranks if kind in ("reduce-scatter", "scatter") else 1))


def _width(args: dict, where: str) -> int:
    name = str(args.get("dtype", "")).lower().replace(" ", "")
    if name not in WIDTH:
        raise RFabricError(f"{where}: unknown dtype {args.get('dtype')!r}; there are "
                           f"{', '.join(WIDTH)}")  # fmt: skip
    return WIDTH[name]


def _sniff(head: bytes) -> bool:
    return b'"traceEvents"' in head or (
        b'"schemaVersion"' in head and (b'"distributedInfo"' in head or b'"deviceProp' in head)
    )


KINETO = TraceFormat(
    "kineto", "what PyTorch's profiler writes, a file a rank or a folder of them: collectives and "
    "the computing between; settings gpus_per_server, skip",
    (".json",), _sniff, _read, folders=True,
)  # fmt: skip

"""A job as its profiler saw it, rank by rank, made into a trace: collectives, and the computing
between and beside them.

    rank 0   | compute |== all-gather ==|  compute  |===== all-reduce =====|
                       ^ beside it computing goes on: as long as it did, then it waits

- A collective begins when all of its recorded ranks have come to it, and is sent as `collectives`
  lowers it; what stays inside a server sends nothing and takes as long as its last rank saw.
- While no collective runs, all time is computing (so is what the host spends). While one does, only
  kernels are; the rest of the time is waiting, which is what a fabric changes.
- What came after the end of a collective waits for it. So hidden sending stays hidden as far as it
  was, on a slower fabric no further: an upper bound where computing could have gone on.
- Ranks that nobody recorded do as the recorded ones of their group do; groups of which no rank is
  recorded do as the nearest one of the same shape, side by side, of which one is.
- An all-to-all is sent pair by pair where ranks say how they split it; a rank that says nothing
  sends as the others do on the mean, but what a receiver says came from it.

Clocks of different ranks are not compared: a rank's times count from its own first event.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from ..errors import RFabricError
from .builder import MOST_BYTES, TraceBuilder
from .collectives import RING_FACTOR, Flows, all_to_all, broadcast, exchange, point_to_point, ring
from .groups_beside import JobRanks, groups_beside, standing_for
from .model import Trace

log = logging.getLogger(__name__)

USUAL_SERVER = 8  # GPUs, where neither the recording nor the user says
MOST_RANKS = 1 << 20
PHASE = "recorded"
# how the names begin that libraries give collectives (small letters, no dashes); the first row
# that fits counts
KINDS = {
    "allreduce": "all-reduce", "reducescatter": "reduce-scatter", "allgather": "all-gather",
    "alltoall": "all-to-all", "broadcast": "broadcast", "reduce": "reduce", "send": "send",
    "recv": "recv", "barrier": "barrier", "gather": "gather", "scatter": "scatter",
}  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """One collective as one rank saw it.

    size: bytes, S of `collectives`; group: ranks of the job, for send and recv (source,
    destination); name, number: which of which communicator, the same on all its ranks; start, end:
    s on the rank's own clock; root: rank that sends or receives all; sent, received: of an
    all-to-all, bytes to and from each of the group, where its parts are known to be uneven.
    """

    kind: str
    size: float
    group: JobRanks
    name: str
    number: int | tuple[int, int]
    start: float
    end: float
    step: int = 0
    root: int | None = None
    sent: tuple[float, ...] = ()
    received: tuple[float, ...] = ()

    @property
    def key(self) -> tuple:
        """What tells it from every other collective of the job."""
        return self.name, self.group, self.number


@dataclass(frozen=True, eq=False)
class RankLog:
    """What one rank did: its collectives, and when kernels computed (s: n x 2, in any order)."""

    rank: int
    collectives: Sequence[Recorded]
    busy: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))


def kind_named(name: str, where: str, skip: Sequence[str] = ()) -> str:
    """The collective that a library calls `name`; '' for one to leave out; else RFabricError."""
    plain = name.lower().replace("_", "").replace("-", "").removeprefix("nccl")
    if plain in {one.lower().replace("_", "") for one in skip}:
        return ""
    for start, kind in KINDS.items():
        if plain.startswith(start):
            return kind
    raise RFabricError(
        f"{where}: unknown collective {name!r}; there are {', '.join(KINDS)}; leave it out with "
        f"the setting skip={name}"
    )


def checked_size(value: object, where: str) -> int:
    """A size in bytes, or a count of elements, as a recording says it; RFabricError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_BYTES:
        raise RFabricError(
            f"{where}: size {str(value)[:40]} is no whole number of bytes up to {MOST_BYTES:g}; "
            "record it again, or leave out the line"
        )
    return value


def tell(told: dict) -> None:
    """Say in one line what was understood of a recording, and what was left out or assumed."""
    who = f"{told.get('source', 'recording')}: {told.get('format', 'ranks')}"
    log.warning("%s", "; ".join((who, told["understood"], *told["notes"])))


def trace_of_ranks(
    logs: Sequence[RankLog], world: int, server: int, said: dict, notes: Sequence[str] = ()
) -> Trace:
    """The trace of a recorded job of `world` ranks, `server` of them in a server (0: the usual).

    Rank r is host h(r+1). said: of the format, for provenance; notes: what was left out or assumed.
    RFabricError where no collective has a known size.
    """
    if not any(log.collectives for log in logs):
        raise RFabricError("holds no collective of a known size; record with NCCL in use")
    _check_ranks(logs, world)
    if type(server) is not int or server < 0:
        raise RFabricError(f"gpus_per_server {server!r} is no whole number from 1 on")
    notes = list(notes)
    if not server:
        server = min(USUAL_SERVER, world)
        notes.append(f"servers of {server} GPUs are assumed; say gpus_per_server=N")
    if len(logs) < world:
        who = "it" if len(logs) == 1 else "they"
        notes.append(f"{len(logs)} of {world} ranks recorded; the others are taken to do as {who}")
    return _Lowering(logs, world, server, notes).trace(said)


def checked_ranks(ranks: int, where: str = "") -> int:
    """So many ranks of a job, or of a group of it; RFabricError where it cannot have them."""
    if not 1 <= ranks <= MOST_RANKS:
        said = f"{where}: " if where else ""
        raise RFabricError(f"{said}{ranks} ranks; there must be 1 to {MOST_RANKS:,}")
    return ranks


def _check_ranks(logs: Sequence[RankLog], world: int) -> None:
    twice = [rank for rank, count in Counter(log.rank for log in logs).items() if count > 1]
    if twice:
        raise RFabricError(f"rank {twice[0]} is recorded twice; keep one recording of each rank")
    checked_ranks(world)
    for log in logs:
        ranks = {r for c in log.collectives for r in (*c.group, log.rank)}
        if ranks and not 0 <= min(ranks) <= max(ranks) < world:
            raise RFabricError(
                f"rank {log.rank} names rank {max(ranks)} of a job of {world}; "
                "say which ranks there are, or record them again"
            )


class _Lowering:
    """Walks the cuts of all ranks, each to where it waits for a collective that is not yet made."""

    def __init__(self, logs: Sequence[RankLog], world: int, server: int, notes: list[str]):
        self.logs, self.world, self.server, self.notes = logs, world, server, notes
        self.builder = TraceBuilder([f"h{r + 1}" for r in range(world)])
        self.recorded = {log.rank for log in logs}
        self.beside: dict[JobRanks, list[JobRanks]] = {}  # by group, the groups that it stands for
        self.members: dict[tuple, list[Recorded]] = defaultdict(list)
        self.came: dict[tuple, list[int]] = defaultdict(list)  # rows its ranks came by
        self.done: dict[tuple, list[int]] = {}  # rows by which it has ended
        self.splits: dict[tuple, dict[int, Recorded]] = defaultdict(dict)  # of all-to-alls, by rank
        self.counts: Counter = Counter()
        for log in logs:
            for one in log.collectives:
                self.members[one.key].append(one)
                if one.kind == "all-to-all" and log.rank in one.group:
                    self.splits[one.key][log.rank] = one

    def trace(self, said: dict) -> Trace:
        walks = [_Walk(self, log) for log in self.logs]
        while any(walk.left for walk in walks):
            if not any(walk.go() for walk in walks):
                raise RFabricError(
                    f"ranks wait for each other at {walks[0].at()}; the recordings disagree on "
                    "the order of collectives: are they of one run?"
                )
        for walk in walks:
            walk.end()
        told = said | self._understood()
        tell(told)
        return self.builder.build(provenance=told)

    def _understood(self) -> dict:
        seconds = max(_span(log) for log in self.logs)
        texts = {
            "inside": "collectives inside a server send nothing: they take the time recorded",
            "part": "collectives that not all recorded ranks have: sent by those that have them",
            "sizes": "collectives whose ranks differ in size: the largest counts",
            "split": "all-to-alls of uneven parts whose ranks are not all recorded: the others "
            "send as the recorded ones do on the mean",
            "shape": "collectives whose group has no regular shape: other groups are not known",
            "ends": "sends and receives: those of ranks that are not recorded are not known",
        }
        dropped = [f"{self.counts[key]} {text}" for key, text in texts.items() if self.counts[key]]
        return {
            "understood": f"{len(self.members)} collectives of {len(self.logs)} recorded ranks, "
            f"{self.counts['flows']} flows, {self.counts['bytes']} bytes between servers, "
            f"{self.world} hosts, {seconds:g} s",
            "notes": [*self.notes, *dropped],
            "job": {"gpus": self.world, "gpus_per_server": self.server},
            "recorded_s": seconds,
        }

    def arrive(self, one: Recorded, row: int) -> None:
        """A rank has come to it; the last one begins it."""
        self.came[one.key].append(row)
        if len(self.came[one.key]) == len(self.members[one.key]):
            self._send(one.key)

    def _send(self, key: tuple) -> None:
        every, rows = self.members[key], self.came[key]
        one = max(every, key=lambda c: c.size)
        split = any(c.sent for c in every)
        self.counts["sizes"] += not split and one.size != min(c.size for c in every)
        self.counts["split"] += split and len(every) < len(one.group)
        self.counts["part"] += len(every) < len(self.recorded.intersection(one.group))
        kind = {"step": one.step, "phase": PHASE, "label": one.kind}
        flows = self._flows(one)
        host = one.group[0]
        begin = rows[0] if len(rows) == 1 else self.builder.compute(host, 0.0, after=rows, **kind)
        if flows.src:
            sent = self.builder.flows(*flows, after=[begin], **kind)
            self.counts["flows"] += len(sent)
            self.counts["bytes"] += int(np.ceil(flows.size).sum())
            self.done[key] = [self.builder.compute(host, 0.0, after=sent, **kind)]
            return
        # the last to come waited for nobody
        seconds = min(c.end - c.start for c in every)
        self.counts["inside"] += 1
        self.done[key] = [self.builder.compute(host, seconds, after=[begin], **kind)]

    def _flows(self, one: Recorded) -> Flows:
        groups, sizes = self._stands_for(one), self._split(one)
        parts = [
            self._lowered(one, group) if sizes is None else exchange(group, sizes, self.server)
            for group in groups
        ]
        return Flows(*(list(chain.from_iterable(part[i] for part in parts)) for i in range(3)))

    def _stands_for(self, one: Recorded) -> list[JobRanks]:
        """The group of a collective, and those beside it that nobody recorded and that do the same;
        what others send one by one, nobody knows.
        """
        group = one.group
        if len(self.recorded) == self.world:
            return [group]
        if one.kind in ("send", "recv"):
            self.counts["ends"] += 1
            return [group]
        if group not in self.beside:
            whole = len(self.recorded.union(group)) == self.world
            every = [group] if whole else groups_beside(group, self.world)
            self.beside |= {group: []} | standing_for(every, self.recorded)
        self.counts["shape"] += not self.beside[group]
        return self.beside[group] or [group]

    def _split(self, one: Recorded) -> np.ndarray | None:
        """Bytes of each pair of a group (n x n), where its ranks say how they split them."""
        told = {one.group.index(rank): c for rank, c in self.splits[one.key].items()}
        if not any(c.sent for c in told.values()):
            return None
        n = len(one.group)
        rows = {i: c.sent or (c.size / n,) * n for i, c in told.items()}
        sizes = np.tile(np.mean(list(rows.values()), axis=0), (n, 1))
        for i, c in told.items():
            if c.received:
                sizes[:, i] = c.received
        for i, row in rows.items():  # what a sender says of itself counts most
            sizes[i] = row
        return sizes

    def _lowered(self, one: Recorded, group: JobRanks) -> Flows:
        if one.kind in ("send", "recv"):
            return point_to_point([(group[0], group[1])], one.size, self.server)
        if one.kind == "all-to-all":
            return all_to_all(group, one.size, self.server)
        root = group[one.group.index(one.root)] if one.root in one.group else group[0]
        if one.kind == "gather":
            pairs = [(rank, root) for rank in group if rank != root]
            return point_to_point(pairs, one.size, self.server)
        if one.kind == "scatter":
            pairs = [(root, rank) for rank in group if rank != root]
            return point_to_point(pairs, one.size / len(group), self.server)
        if one.kind in ("broadcast", "reduce"):
            flows = broadcast(root, group, one.size, self.server)
            return flows if one.kind == "broadcast" else Flows(flows.dst, flows.src, flows.size)
        kind = one.kind if one.kind in RING_FACTOR else "all-reduce"  # a barrier is a small one
        return ring(kind, group, one.size, self.server)


class _Walk:
    """One rank: its cuts in time, begins and ends of collectives, and the row it has come to."""

    def __init__(self, job: _Lowering, log: RankLog):
        self.job, self.rank = job, log.rank
        self.busy = _merged(log.busy)
        cuts = [(c.start, 1, c) for c in log.collectives] + [
            (max(c.end, c.start), 2 if c.end <= c.start else 0, c) for c in log.collectives
        ]
        self.cuts = sorted(cuts, key=lambda cut: cut[:2])
        first = self.busy[0, 0] if len(self.busy) else np.inf
        self.now = min(self.cuts[0][0], first) if cuts else 0.0
        self.next, self.running = 0, 0
        self.waits: list[int] = []

    @property
    def left(self) -> bool:
        return self.next < len(self.cuts)

    def at(self) -> str:
        """Where it stands, for messages."""
        one = self.cuts[min(self.next, len(self.cuts) - 1)][2]
        return f"{one.kind} {one.number} of communicator {one.name!r}, rank {self.rank}"

    def go(self) -> bool:
        """Walk on to a collective that is not yet made; whether there was a step to take."""
        first = self.next
        while self.left:
            time, place, one = self.cuts[self.next]
            if place != 1 and one.key not in self.job.done:
                break
            self._compute(time, one)
            if place == 1:
                self.running += 1
                self.job.arrive(one, self.waits[0])
            else:
                self.running -= 1
                self.waits += self.job.done[one.key]
            self.next += 1
        return self.next > first

    def end(self) -> None:
        """What is computed after the last cut."""
        if self.cuts and len(self.busy) and self.busy[-1, 1] > self.now:
            self._compute(float(self.busy[-1, 1]), self.cuts[-1][2])

    def _compute(self, until: float, one: Recorded) -> None:
        """Computing from `now` on, a row where it takes time or joins several."""
        spent = until - self.now if not self.running else _covered(self.busy, self.now, until)
        self.now = until
        if spent > 0 or len(self.waits) != 1:
            self.waits = [
                self.job.builder.compute(
                    self.rank, max(spent, 0.0), after=self.waits,
                    step=one.step, phase=PHASE, label="computing",
                )
            ]  # fmt: skip


def _span(log: RankLog) -> float:
    times = [t for c in log.collectives for t in (c.start, c.end)]
    times += [log.busy.min(), log.busy.max()] if len(log.busy) else []
    return float(max(times) - min(times)) if times else 0.0


def _merged(busy: np.ndarray) -> np.ndarray:
    """Spans as ones that do not overlap, ascending: n x 2."""
    if not len(busy):
        return np.zeros((0, 2))
    busy = busy[np.argsort(busy[:, 0], kind="stable")]
    reach = np.maximum.accumulate(busy[:, 1])
    first = np.flatnonzero(np.append(True, busy[1:, 0] > reach[:-1]))
    return np.stack((busy[first, 0], np.append(reach[first[1:] - 1], reach[-1])), axis=1)


def _covered(busy: np.ndarray, begin: float, end: float) -> float:
    """Seconds of [begin, end] that merged spans cover."""
    some = busy[np.searchsorted(busy[:, 1], begin) : np.searchsorted(busy[:, 0], end)]
    return float((np.minimum(some[:, 1], end) - np.maximum(some[:, 0], begin)).sum())

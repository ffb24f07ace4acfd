"""Workloads of AICB for SimAI, and micro benchmarks: a layer a line, times in nanoseconds.

    HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 ... all_gpus: 32 ...
    2                                                       layers; then for each its name, -1,
    mlp -1  750 ALLREDUCE 4096  750 ALLREDUCE 4096  750 NONE 0  100
            forward             input gradient      weight gradient, update

As SimAI plays it, all GPUs in step: forward through the layers, each computing and then waiting for
its collective; backward from the last, where the collective of the input gradient runs beside the
computing of the weight gradient, whose own collective is waited for at the end alone. Forward and
input gradient are among tensor-parallel GPUs, the weight gradient among data-parallel ones;
`_EP` among experts, `_DP_EP` among replicas of an expert. Bytes are of the whole buffer.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from ...errors import RFabricError
from ..builder import TraceBuilder
from ..model import MOST_BYTES, Trace
from ..recorded import MOST_RANKS
from .base import TraceFormat, filled, first_line, understood, whole
from .lowering import lowered

LAYERED = ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_TRANSFORMER")
MICRO = "MICRO"
KINDS = {
    "ALLREDUCE": "all-reduce", "ALLGATHER": "all-gather", "REDUCESCATTER": "reduce-scatter",
    "ALLTOALL": "all-to-all", "BROADCAST": "broadcast", "REDUCE": "reduce",
    "ALLREDUCEALLTOALL": "all-to-all",
}  # fmt: skip
NANOSECOND = 1e9
USUAL_GPUS = 16  # of a file that names none
PASSES = ("forward", "input gradient", "weight gradient")


def groups(gpus: int, members: int, stride: int) -> list[list[int]]:
    """All groups of so many GPUs, `stride` apart, which together are all GPUs. RFabricError where
    they do not divide.
    """
    if gpus % (members * stride):
        raise RFabricError(
            f"{gpus} GPUs are no multiple of {members} x {stride}, as their groups need; say "
            "--set gpus=N"
        )
    return [
        list(range(base + i, base + members * stride, stride))
        for base in range(0, gpus, members * stride)
        for i in range(stride)
    ]


class Player:
    """A step in which all GPUs do the same at once; every verb returns the rows to wait for."""

    def __init__(self, gpus: int, ranks_per_host: int):
        self.gpus, self.per_host = gpus, ranks_per_host
        self.builder = TraceBuilder([f"h{i + 1}" for i in range(-(-gpus // ranks_per_host))])
        self.inside = self.empty = 0
        self._known: dict[tuple, list] = {}

    def compute(self, seconds: float, after: Sequence[int], **kind) -> list[int]:
        """All GPUs compute for `seconds`."""
        return [self.builder.compute(0, seconds, after=after, **kind)] if seconds else list(after)

    def send(self, flows: list[tuple], after: Sequence[int], **kind) -> list[int]:
        """Flows (rank, rank, bytes) at once; all wait for all."""
        if not flows:
            self.inside += 1
            return list(after)
        src, dst, size = zip(*flows, strict=True)
        hosts = ([rank // self.per_host for rank in ends] for ends in (src, dst))
        sent = self.builder.flows(*hosts, size, after=after, **kind)
        return [self.builder.compute(0, 0.0, after=sent, **(kind | {"label": "done"}))]

    def collective(self, kind: str, among: tuple, size: float, after, **named) -> list[int]:
        """One collective in each of `groups(*among)`."""
        if not size:
            self.empty += 1
            return list(after)
        key = kind, among, size
        if key not in self._known:
            every = [ranks for ranks in groups(self.gpus, *among) if len(ranks) > 1]
            parts = (lowered(kind, ranks, size, self.per_host, ranks[0]) for ranks in every)
            self._known[key] = [flow for part in parts for flow in zip(*part, strict=True)]
        return self.send(self._known[key], after, **named)

    def trace(self, name: str, path: Path, said: str, notes: Sequence[str]) -> Trace:
        """What was played, read as the format `name`; RFabricError where it is nothing."""
        if not self.builder:
            raise RFabricError("holds nothing that computes or leaves a host")
        silent = {
            "stay inside hosts, or have one member, and send nothing": self.inside,
            "are of 0 bytes and send nothing": self.empty,
        }
        left = [f"{count:,} collectives {what}" for what, count in silent.items() if count]
        said = f"{said}, {self.per_host} a host, all in step"
        return understood(self.builder.build(), name, path, [said, *notes, *left])


def _read(path: Path, gpus: int = 0, ranks_per_host: int = 1) -> Trace:
    lines = [(number, line.split()) for number, line in filled(path)]
    parallel = lines[0][1][0]
    if parallel not in (*LAYERED, MICRO):
        raise RFabricError(f"line 1: {parallel!r} is not known; there are {MICRO}, {LAYERED[0]}")
    count = whole(" ".join(lines[1][1]) if lines[1:] else "", "line 2: layers", 1, 10**7)
    if len(lines) - 2 != count:
        raise RFabricError(f"says {count} layers and holds {len(lines) - 2}; is the file whole?")
    layers = [_layer(f"line {n}", words) for n, words in lines[2:]]
    head, notes = _head(lines[0][1]), []
    per_host = whole(ranks_per_host, "ranks_per_host", 1, MOST_RANKS)
    total = whole(gpus, "gpus", 0, MOST_RANKS) or head.get("all_gpus", 0)
    if not total:
        total = max(USUAL_GPUS, 2 * head["tp"] * head["pp"])
        notes.append(f"the file names no all_gpus: {total} assumed, --set gpus=N says another")
    player = Player(total, per_host)
    if parallel == MICRO:
        _micro(player, layers)
    else:
        _step(player, layers, _among(head, total))
        notes += _left_out(head)
    return player.trace(AICB.name, path, f"{len(layers)} layers, {total} GPUs", notes)


def _head(words: list[str]) -> dict[str, int]:
    """The numbers behind `key:`, tensor-parallel GPUs as `tp`."""
    numbers = {"ep": 1, "pp": 1, "model_parallel_NPU_group": 1}
    for key, value in re.findall(r"(\w+):\s*(\d+)(?!\S)", " ".join(words[1:])):
        numbers[key] = whole(value, f"line 1: {key}", 0, 2**40)
    for key in ("ep", "pp", "model_parallel_NPU_group"):
        whole(numbers[key], f"line 1: {key}", 1, MOST_RANKS)
    return numbers | {"tp": numbers["model_parallel_NPU_group"]}


def _among(head: dict[str, int], gpus: int) -> dict[str, tuple[int, int]]:
    """(members, stride) of groups: Megatron's order, as SimAI has it."""
    tp, ep, pp = head["tp"], head["ep"], head["pp"]
    for what, size in (("tp x pp", tp * pp), ("tp x ep x pp", tp * ep * pp)):
        if gpus % size:
            raise RFabricError(f"{gpus} GPUs are no multiple of {what} = {size}; say --set gpus=N")
    dp = gpus // tp // pp
    return {"TP": (tp, 1), "DP": (dp, tp), "EP": (ep, tp), "DP_EP": (dp // ep, tp * ep)}


def _left_out(head: dict[str, int]) -> list[str]:
    told = {
        "checkpoints": "checkpoints: computing again what they leave out is not played",
        "pp_comm": "pp_comm: bytes between pipeline stages, which SimAI's simulation leaves out",
    }
    notes = [f"{text} ({head[key]:,})" for key, text in told.items() if head.get(key)]
    return notes + ["pipeline stages play the same layers at once"] * (head["pp"] > 1)


def _layer(where: str, words: list[str]) -> tuple:
    """(name, three passes of (s, kind, group, bytes), seconds of the update)"""
    if len(words) != 12:
        raise RFabricError(f"{where}: {len(words)} words; a layer has 12: is the file whole?")
    passes = []
    for i, what in zip((2, 5, 8), PASSES, strict=True):
        seconds = whole(words[i], f"{where}: {what}", 0, 10**18) / NANOSECOND
        size = whole(words[i + 2], f"{where}: bytes of the {what}", 0, int(MOST_BYTES))
        kind, group = _kind(f"{where}: {what}", words[i + 1], "DP" if i == 8 else "TP")
        passes.append((seconds, kind, group, size))
    return words[0], passes, whole(words[11], f"{where}: update", 0, 10**18) / NANOSECOND


def _kind(where: str, word: str, usual: str) -> tuple[str, str]:
    if word == "NONE":
        return "", usual
    name, _, group = word.partition("_")
    if name not in KINDS or group not in ("", "EP", "DP_EP"):
        raise RFabricError(
            f"{where}: unknown collective {word!r}; there are NONE, {', '.join(KINDS)}, each also "
            "with _EP or _DP_EP"
        )
    return KINDS[name], group or usual


def _micro(player: Player, layers: list[tuple]) -> None:
    done: list[int] = []
    for name, passes, _ in layers:
        for seconds, kind, _, size in passes:
            named = {"phase": "micro"}
            done = player.compute(seconds, done, label=name, **named)
            if kind:
                done = player.collective(kind, (player.gpus, 1), size, done, label=kind, **named)


def _step(player: Player, layers: list[tuple], among: dict) -> None:
    done: list[int] = []
    for name, passes, _ in layers:
        done = _pass(player, passes[0], among, done, "forward", name)
    ends: list[int] = []
    for name, passes, update in reversed(layers):
        seconds, *sent = passes[1]
        ready = player.compute(seconds, done, phase="backward", label=name)
        sent = _pass(player, (0.0, *sent), among, ready, "backward", name)
        ready = player.compute(passes[2][0], ready, phase="backward", label=name)
        if passes[2][1]:
            own = _pass(player, (0.0, *passes[2][1:]), among, ready, "gradients", name)
            ends += player.compute(update, own, phase="gradients", label="update")
        done = list(dict.fromkeys((*sent, *ready)))
    player.compute(0.0, [*ends, *done], phase="gradients", label="end")


def _pass(player: Player, one: tuple, among: dict, after, phase: str, name: str) -> list[int]:
    """Computing, then the collective it ends with."""
    seconds, kind, group, size = one
    ready = player.compute(seconds, after, phase=phase, label=name)
    if not kind:
        return ready
    named = {"phase": phase, "label": f"{kind} {group}"}
    return player.collective(kind, among[group], size, ready, **named)


def _sniff(head: bytes) -> bool:
    words = first_line(head, "#").split()
    micro = words == [MICRO] or words[:1] == [MICRO] and words[-1].isdecimal()
    return bool(words) and (micro or any("model_parallel_NPU_group" in word for word in words))


AICB = TraceFormat(
    "aicb", "AICB/SimAI workloads: layers with forward, input-gradient, weight-gradient passes",
    (".aicb",), _sniff, _read, lines=True,
)  # fmt: skip

"""Workloads of AICB as CSV: what one GPU calls, one call after the other, as all GPUs do.

    [rank0 ~ rank127]
    comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,...
    CommType.all_reduce,CommGroup.tp_group,2,16777216,forward.MegatronRowLinear,None,None,,None,...

Bytes are of the whole buffer. A send in a pipeline goes from each stage to the next, a receive is
of what the next stage sends back. `epoch_end` ends a step. Computing takes its measured
milliseconds; the time that communication took when it was measured is left out.
"""

import csv
import re
from pathlib import Path

from ...errors import RFabricError
from ..model import MOST_BYTES, Trace
from ..recorded import MOST_RANKS
from .aicb import Player, groups
from .base import TraceFormat, filled, first_line, whole

KINDS = {
    "all_reduce": "all-reduce", "all_gather": "all-gather", "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all", "broadcast": "broadcast", "reduce": "reduce", "barrier": "barrier",
    "all_gather_into_tensor": "all-gather", "reduce_scatter_tensor": "reduce-scatter",
    "all_to_all_single": "all-to-all",
}  # fmt: skip
NEEDED = ("comm_type", "comm_group", "comm_group_size", "msg_size", "stage")
GROUPS = ("tp_group", "ep_group", "pp_group")
MILLISECOND = 1e3


def _read(path: Path, gpus: int = 0, ranks_per_host: int = 1) -> Trace:
    lines = filled(path)
    ranks = re.fullmatch(r"\[rank(\d+) ~ rank(\d+)\]\W*", lines[0][1].strip())
    lines = lines[1:] if ranks else lines
    table = csv.DictReader((line for _, line in lines), strict=True)
    lacking = [name for name in NEEDED if name not in (table.fieldnames or ())]
    if lacking:
        raise RFabricError(f"column {lacking[0]!r} is missing; has {table.fieldnames}")
    rows = [(f"line {n}", row) for (n, _), row in zip(lines[1:], table, strict=False)]
    sizes = _sizes(rows)
    named = int(ranks[2]) + 1 if ranks else max(sizes.values(), default=1)
    player = Player(
        whole(gpus, "gpus", 0, MOST_RANKS) or named, whole(ranks_per_host, "ranks_per_host")
    )
    notes = _play(player, rows, sizes)
    return player.trace(AICB_CSV.name, path, f"{len(rows)} calls of {player.gpus} GPUs", notes)


def _sizes(rows: list) -> dict[str, int]:
    """GPUs of each kind of group."""
    sizes: dict[str, int] = {}
    for where, row in rows:
        if None in row.values():
            raise RFabricError(f"{where}: fewer cells than the header; is the file whole?")
        group, text = _word(row["comm_group"]), row["comm_group_size"].strip()
        if text in ("None", ""):
            continue
        size = whole(text, f"{where}: comm_group_size", 1, MOST_RANKS)
        if sizes.setdefault(group, size) != size:
            raise RFabricError(f"{where}: {group} of {size} GPUs, before of {sizes[group]}")
    return sizes


def _word(text: str) -> str:
    """`CommType.all_reduce` -> `all_reduce`"""
    return text.strip().rpartition(".")[2]


def _play(player: Player, rows: list, sizes: dict[str, int]) -> list[str]:
    done: list[int] = []
    step, untimed, several = 0, 0, 0
    for where, row in rows:
        kind, stage = _word(row["comm_type"]), row["stage"].strip()
        named = {"phase": stage.split(".")[0] or "step", "step": step}
        several += (row.get("count") or "").strip() not in ("", "None", "0", "1")
        if kind == "epoch_end":
            step += 1
        elif kind == "computation":
            spent = (row.get("_elapsed_time") or "").strip()
            untimed += spent in ("", "None")
            done = player.compute(_seconds(where, spent), done, label=stage, **named)
        else:
            done = _call(player, where, row, kind, sizes, done, named)
    notes = [f"{several:,} calls of a count above 1, each played once"] if several else []
    if untimed:
        return [*notes, f"{untimed:,} computations have no time and take none"]
    computes = any(_word(row["comm_type"]) == "computation" for _, row in rows)
    return notes if computes else [*notes, "says nothing of computing: calls follow at once"]


def _seconds(where: str, text: str) -> float:
    if text in ("", "None"):
        return 0.0
    try:
        seconds = float(text) / MILLISECOND
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < MOST_BYTES:
        raise RFabricError(f"{where}: _elapsed_time {text[:20]!r} is no number of milliseconds")
    return seconds


def _call(player: Player, where: str, row: dict, kind: str, sizes, done, named) -> list[int]:
    group = _word(row["comm_group"])
    size = whole(row["msg_size"].strip(), f"{where}: msg_size", 0, int(MOST_BYTES))
    label = {"label": f"{kind.replace('_', '-')} {group.removesuffix('_group')}"}
    if kind in ("isend", "irecv", "send", "recv"):
        return player.send(_between_stages(player, kind, size, sizes), done, **label, **named)
    if kind not in KINDS:
        raise RFabricError(
            f"{where}: unknown collective {kind!r}; known: {', '.join(KINDS)}, isend, irecv"
        )
    if not size:
        player.empty += kind != "barrier"
        return done
    among = _among(where, group, sizes, player.gpus)
    return player.collective(KINDS[kind], among, size, done, **label, **named)


def _among(where: str, group: str, sizes: dict, gpus: int) -> tuple[int, int]:
    """(members, stride) of a group, in Megatron's order."""
    tp, ep, pp = (sizes.get(name, 1) for name in GROUPS)
    strides = {
        "tp_group": 1, "all": 1, "dp_group": tp, "ep_group": tp, "ep_dp_group": tp * ep,
        "ep_tp_group": 1, "pp_group": gpus // pp, "embedding_group": gpus // pp * (pp - 1) or 1,
    }  # fmt: skip
    if group not in strides or group not in sizes:
        raise RFabricError(f"{where}: unknown group {group!r}; known: {', '.join(strides)}")
    return sizes[group], strides[group]


def _between_stages(player: Player, kind: str, size: int, sizes: dict) -> list[tuple]:
    stages = sizes.get("pp_group", 1)
    flows = []
    for ranks in groups(player.gpus, stages, player.gpus // stages):
        for a, b in zip(ranks, ranks[1:], strict=False):
            if a // player.per_host != b // player.per_host:
                flows.append((a, b, size) if kind in ("isend", "send") else (b, a, size))
    return flows


def _sniff(head: bytes) -> bool:
    line = first_line(head, "#")
    columns = {name.strip() for name in line.split(",")}
    return line.startswith("[rank0 ~ rank") or {"comm_type", "comm_group"} <= columns


AICB_CSV = TraceFormat(
    "aicb-csv", "AICB workloads as CSV: `comm_type,comm_group,comm_group_size,msg_size,stage`",
    (".csv",), _sniff, _read, lines=True,
)  # fmt: skip

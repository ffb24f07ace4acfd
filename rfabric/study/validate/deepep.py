"""Tokens to experts and back: rl/expert_exchange against DeepEP times as aiconfigurator and
DeepEP's README publish them.

    times      ... device, op_name (normal|ll), node_num, hidden_size, num_token, num_topk,
               num_experts, ..._us ...
    README     kind, ep, dispatch_GBps, dispatch_us, combine_GBps, combine_us, bottleneck;
               the GPU stands in the file's name

A bandwidth of the README counts a token once for each server (NVLink: each GPU) it reaches, its own
among them; in low-latency mode once for each expert. Times hold the exchange of counts (`notify`).
The README's job: hidden 7168, 8 of 256 experts.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from ...compute.communication import RankGroup, network
from ...compute.expert_exchange import DEFAULT_SMS, Exchange, exchange_seconds, reached
from ...compute.gpus import Gpu, find_gpu
from ...errors import RFabricError
from . import Point, PointGroup
from .tables import Refused, attempt, number, rows

MODES = {
    "normal": "normal",
    "ll": "low-latency",
    "low_latency": "low-latency",
    "low latency": "low-latency",
}
DIRECTIONS = ("dispatch", "combine")


def check(path: Path, data: Path) -> Iterable[PointGroup]:
    """A group a mode: normal, low-latency."""
    table = rows(path)
    point = _published if "ep" in table[0] else _timed
    if not any(key.startswith(DIRECTIONS) for key in table[0]):
        raise RFabricError(
            f"{path.name} has columns {', '.join(table[0])}, none of a time or rate of "
            f"{' or '.join(DIRECTIONS)}"
        )
    calls = [
        (f"row {i + 2} {d}", lambda row=row, d=d: point(row, d, path))
        for i, row in enumerate(table)
        for d in DIRECTIONS
        if _has(row, d)
    ]
    made, refused = attempt(calls)
    refused += [
        f"row {i + 2}: neither time nor rate"
        for i, r in enumerate(table)
        if not any(_has(r, d) for d in DIRECTIONS)
    ]
    for i, mode in enumerate(dict.fromkeys(MODES.values())):
        points = tuple(p for m, p in made if m == mode)
        yield PointGroup(
            f"{path.stem} {mode}",
            f"{path.parent.name}/{path.name}",
            points,
            tuple(refused if i == 0 else ()),
        )


def _has(row: dict[str, str], direction: str) -> bool:
    return any(value and key.startswith(direction) for key, value in row.items())


def _timed(row: dict[str, str], direction: str, path: Path) -> tuple[str, Point]:
    gpu = _gpu(row.get("device") or path.stem)
    mode = _mode(row["op_name"])
    nodes = int(number(row, "node_num"))
    what = Exchange(
        *(int(number(row, c)) for c in ("num_token", "hidden_size", "num_topk", "num_experts"))
    )
    sms = int(float(row.get(f"{direction}_sms") or DEFAULT_SMS))
    if row.get(f"{direction}_avg_t_us"):
        measured = number(row, f"{direction}_avg_t_us")
    else:
        measured = number(row, f"{direction}_transmit_us") + float(
            row.get(f"{direction}_notify_us") or 0
        )
    group = _group(nodes * gpu.gpus_per_server, gpu)
    seconds = exchange_seconds(what, direction, group, network(gpu), mode, sms)
    name = f"{gpu.name} {mode} {direction} {group.gpus} GPUs {what.tokens} tokens"
    name = f"{name} {sms} SMs" if mode == "normal" else name
    return mode, Point(name, measured, seconds * 1e6, "us", _part(group))


def _published(row: dict[str, str], direction: str, path: Path) -> tuple[str, Point]:
    gpu = _gpu(path.stem)
    mode = _mode(row["kind"])
    tokens = re.search(r"(\d+)\s*tokens", row["kind"])
    if not tokens:
        raise Refused(f"kind {row['kind']!r} names no tokens")
    what, group = Exchange(int(tokens[1]), 7168, 8, 256), _group(int(number(row, "ep")), gpu)
    seconds = exchange_seconds(what, direction, group, network(gpu), mode)
    name = f"{gpu.name} {mode} {direction} {group.gpus} GPUs {what.tokens} tokens"
    if (row.get(f"{direction}_us") or "").strip():
        return mode, Point(name, number(row, f"{direction}_us"), seconds * 1e6, "us", _part(group))
    gpus, servers = reached(what, group)
    copies = what.topk if mode == "low-latency" else gpus if group.servers == 1 else servers
    rate = what.tokens * what.token_bytes(direction) * copies / seconds
    return mode, Point(name, number(row, f"{direction}_GBps"), rate / 1e9, "GB/s", _part(group))


def _part(group: RankGroup) -> str:
    return f"{group.servers} node{'s' if group.servers > 1 else ''}"


def _gpu(text: str) -> Gpu:
    gpu = find_gpu(text)
    if gpu is None:
        raise Refused(f"{text!r} names no GPU of the catalog")
    return gpu


def _mode(text: str) -> str:
    for start, mode in MODES.items():
        if text.lower().startswith(start):
            return mode
    raise Refused(f"kind {text!r} is neither {' nor '.join(MODES)}")


def _group(gpus: int, gpu: Gpu) -> RankGroup:
    return RankGroup(gpus, -(-gpus // gpu.nvlink_gpus))

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
from dataclasses import dataclass
from pathlib import Path

from ...compute.communication import GpuNetwork, RankGroup, network
from ...compute.expert_exchange import DEFAULT_SMS, Exchange, exchange_seconds, reached
from ...compute.gpus import Gpu, find_gpu
from ...errors import RFabricError
from . import Point, PointGroup
from .tables import RefusedRow, attempt, number, rows

MODES = {
    "normal": "normal",
    "ll": "low-latency",
    "low_latency": "low-latency",
    "low latency": "low-latency",
}
DIRECTIONS = ("dispatch", "combine")


@dataclass(frozen=True)
class MeasuredExchange:
    """One direction of a measured exchange: microseconds, or a bandwidth as the README counts it
    (GB/s).
    """

    gpu: Gpu
    mode: str
    direction: str
    group: RankGroup
    what: Exchange
    value: float
    unit: str
    sms: int = DEFAULT_SMS

    @property
    def name(self) -> str:
        """GPU, mode, direction and size, as tables of rows have it."""
        name = f"{self.gpu.name} {self.mode} {self.direction} {self.group.gpus} GPUs"
        sms = f" {self.sms} SMs" if self.mode == "normal" else ""
        return f"{name} {self.what.tokens} tokens{sms}"

    def seconds(self, net: GpuNetwork | None = None) -> float:
        """As the model has it, over its GPU's own network or over `net`."""
        joined = net or network(self.gpu)
        return exchange_seconds(self.what, self.direction, self.group, joined, self.mode, self.sms)

    def rate(self, seconds: float) -> float:
        """The bandwidth of one that takes so long, as the README counts it (GB/s)."""
        gpus, servers = reached(self.what, self.group)
        copies = gpus if self.group.servers == 1 else servers
        copies = self.what.topk if self.mode == "low-latency" else copies
        return self.what.tokens * self.what.token_bytes(self.direction) * copies / seconds / 1e9

    def point(self, net: GpuNetwork | None = None) -> Point:
        """Beside the model, in the unit of its row."""
        took = self.seconds(net)
        modelled = took * 1e6 if self.unit == "us" else self.rate(took)
        servers = self.group.servers
        part = f"{servers} node{'s' if servers > 1 else ''}"
        return Point(self.name, self.value, modelled, self.unit, part)


def check(path: Path, data: Path) -> Iterable[PointGroup]:
    """A group a mode: normal, low-latency."""
    made, refused = exchanges_of(path)
    for i, mode in enumerate(dict.fromkeys(MODES.values())):
        points = tuple(one.point() for one in made if one.mode == mode)
        yield PointGroup(
            f"{path.stem} {mode}",
            f"{path.parent.name}/{path.name}",
            points,
            tuple(refused if i == 0 else ()),
        )


def exchanges_of(path: Path) -> tuple[list[MeasuredExchange], list[str]]:
    """The measured exchanges of a file, and the rows left out with the reason. RFabricError where
    it has no such columns.
    """
    table = rows(path)
    read = _published if "ep" in table[0] else _timed
    if not any(key.startswith(DIRECTIONS) for key in table[0]):
        raise RFabricError(
            f"{path.name} has columns {', '.join(table[0])}, none of a time or rate of "
            f"{' or '.join(DIRECTIONS)}"
        )
    made, refused = attempt(
        (f"row {i + 2} {d}", lambda row=row, d=d: read(row, d, path))
        for i, row in enumerate(table)
        for d in DIRECTIONS
        if _has(row, d)
    )
    refused += [
        f"row {i + 2}: neither time nor rate"
        for i, r in enumerate(table)
        if not any(_has(r, d) for d in DIRECTIONS)
    ]
    return made, refused


def _has(row: dict[str, str], direction: str) -> bool:
    return any(value and key.startswith(direction) for key, value in row.items())


def _timed(row: dict[str, str], direction: str, path: Path) -> MeasuredExchange:
    gpu = _gpu(row.get("device") or path.stem)
    what = Exchange(
        *(int(number(row, c)) for c in ("num_token", "hidden_size", "num_topk", "num_experts"))
    )
    if row.get(f"{direction}_avg_t_us"):
        measured = number(row, f"{direction}_avg_t_us")
    else:
        measured = number(row, f"{direction}_transmit_us") + float(
            row.get(f"{direction}_notify_us") or 0
        )
    group = _group(int(number(row, "node_num")) * gpu.gpus_per_server, gpu)
    sms = int(float(row.get(f"{direction}_sms") or DEFAULT_SMS))
    return MeasuredExchange(gpu, _mode(row["op_name"]), direction, group, what, measured, "us", sms)


def _published(row: dict[str, str], direction: str, path: Path) -> MeasuredExchange:
    gpu = _gpu(path.stem)
    tokens = re.search(r"(\d+)\s*tokens", row["kind"])
    if not tokens:
        raise RefusedRow(f"kind {row['kind']!r} names no tokens")
    what, group = Exchange(int(tokens[1]), 7168, 8, 256), _group(int(number(row, "ep")), gpu)
    timed = (row.get(f"{direction}_us") or "").strip()
    column, unit = (f"{direction}_us", "us") if timed else (f"{direction}_GBps", "GB/s")
    return MeasuredExchange(
        gpu, _mode(row["kind"]), direction, group, what, number(row, column), unit
    )


def _gpu(text: str) -> Gpu:
    gpu = find_gpu(text)
    if gpu is None:
        raise RefusedRow(f"{text!r} names no GPU of the catalog")
    return gpu


def _mode(text: str) -> str:
    for start, mode in MODES.items():
        if text.lower().startswith(start):
            return mode
    raise RefusedRow(f"kind {text!r} is neither {' nor '.join(MODES)}")


def _group(gpus: int, gpu: Gpu) -> RankGroup:
    return RankGroup(gpus, -(-gpus // gpu.nvlink_gpus))

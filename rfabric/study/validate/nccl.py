"""Collectives inside a server and between servers: compute/communication against NCCL tables such
as aiconfigurator's, and against what nccl-tests print (`nccl_tests`).

Columns `device, op_name, num_gpus, message_size, latency`, between servers also `nodes,
nic_gbps_per_gpu, network, source`; `busbw_GBps`, where it stands, must fit them. message_size
counts elements (of 2 bytes unless `nccl_dtype` says otherwise), latency is in ms, of calls captured
in a CUDA graph, so the host's launch is not in it. Repeated rows are points of their own.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ...compute.between import Rails
from ...compute.communication import (
    HOST_LAUNCH,
    GpuNetwork,
    RankGroup,
    bus_factor,
    collective_seconds,
    network,
)
from ...compute.gpus import Gpu, find_gpu
from ...files import kind_of as suffix_of
from . import Point, PointGroup
from .nccl_tests import kind_of, table_rows
from .tables import CellTexts, RefusedRow, attempt, by_size, number, rows, whole

ELEMENT_BYTES = {
    "half": 2,
    "float16": 2,
    "bfloat16": 2,
    "bf16": 2,
    "fp16": 2,
    "float": 4,
    "float32": 4,
    "fp32": 4,
    "int32": 4,
    "uint32": 4,
    "double": 8,
    "float64": 8,
    "int64": 8,
    "int8": 1,
    "uint8": 1,
    "fp8": 1,
    "float8": 1,
}
OTHER_UNITS = 1.5  # bandwidths further apart are of other units
LEAST_GBPS = 0.05  # smaller ones may be rounded
LATENCIES = {"latency": 1.0, "latency_ms": 1.0, "latency_us": 1e-3}  # columns, and ms of their unit


def check(path: Path, data: Path) -> Iterable[PointGroup]:
    """Two groups: messages from 1 MiB on, and smaller ones, where latencies rule."""
    made, refused = attempt(
        (name, lambda row=row: _point(row()))
        for name, row in rows_of(path, "device", "op_name", "message_size")
    )
    return by_size(path.stem, path, made, refused)


def rows_of(path: Path, *needed: str) -> list[tuple[str, Callable[[], CellTexts]]]:
    """The rows of a table that has the `needed` columns, or of the output of nccl-tests: each with
    its place and a call that gives it, or raises RefusedRow. RFabricError where there are none.
    """
    if suffix_of(path) != ".csv":
        return table_rows(path)
    return [(f"row {i + 2}", lambda row=row: row) for i, row in enumerate(rows(path, *needed))]


@dataclass(frozen=True)
class Call:
    """One measured collective: bytes, seconds, where it ran; `system` is who measured on what."""

    kind: str
    size: float
    seconds: float
    group: RankGroup
    net: GpuNetwork
    system: str
    transport: str

    @property
    def name(self) -> str:
        """GPU, kind, GPUs and bytes."""
        return f"{self.net.gpu.name} {self.kind} {self.group.gpus} GPUs {self.size:.0f} B"

    def modelled(self, rails: Rails | None = None) -> float:
        """Seconds by the model, with other constants between servers where given."""
        net = replace(self.net, rails=rails) if rails else self.net
        return collective_seconds(self.kind, self.size, self.group, net)


def _point(row: dict[str, str]) -> tuple[float, Point]:
    call = call_of(row)
    part = f"{call.kind}, {call.group.gpus} GPUs"
    return call.size, Point(call.name, call.seconds * 1e3, call.modelled() * 1e3, "ms", part)


def call_of(row: dict[str, str]) -> Call:
    """The collective of a row; RefusedRow with the reason where it is not modelled."""
    gpu = find_gpu(row["device"])
    if gpu is None:
        raise RefusedRow(f"GPU {row['device']!r} is not in the catalog")
    gpus, transport = whole(row, "num_gpus"), _transport(row)
    net = _net(row, gpu, transport)
    group = RankGroup(gpus, _servers(row, gpus, net))
    system = f"{gpu.name} {transport}, {row.get('source') or 'source not stated'}"
    kind = kind_of(row["op_name"])
    call = Call(kind, _bytes(row), _seconds(row), group, net, system, transport)
    _check_bandwidth(row, call)
    return call


def _check_bandwidth(row: dict[str, str], call: Call) -> None:
    """RefusedRow where the bus bandwidth that a row states is of other bytes, seconds or GPUs."""
    try:
        if not float(row.get("busbw_GBps") or 0):
            return  # a small one, rounded away
    except ValueError:
        return  # such as n/a: not stated
    stated = number(row, "busbw_GBps")
    read = call.size / call.seconds * bus_factor(call.kind, call.group.gpus) / 1e9
    if stated >= LEAST_GBPS and max(read / stated, stated / read) > OTHER_UNITS:
        raise RefusedRow(
            f"busbw_GBps {stated:g} is not the {read:.4g} of {call.size:.0f} bytes in "
            f"{call.seconds * 1e6:.4g} us: are sizes bytes (nccl_dtype int8), or elements of "
            "another type?"
        )


def _servers(row: dict[str, str], gpus: int, net: GpuNetwork) -> int:
    """NVLink domains: of nodes that share one (NVL72) as many as they fill, else the nodes."""
    if not row.get("nodes"):
        return -(-gpus // net.domain)
    nodes, each = whole(row, "nodes"), net.gpu.gpus_per_server
    return -(-nodes * each // net.domain) if net.domain > each else nodes


def _bytes(row: dict[str, str]) -> float:
    told = row.get("nccl_dtype") or row.get("dtype") or "half"
    element = ELEMENT_BYTES.get(re.split(r"[.:]", told.lower())[-1].split("_e")[0])
    if element is None:
        raise RefusedRow(f"element type {told!r} is not known")
    return number(row, "message_size") * element


def _seconds(row: dict[str, str]) -> float:
    column, ms = next(
        ((c, scale) for c, scale in LATENCIES.items() if row.get(c)), ("latency", 1.0)
    )
    return number(row, column) * ms / 1e3


def _transport(row: dict[str, str]) -> str:
    words = row.get("network", "").lower()
    return next((name for name in ("tcpxo", "tcpx") if name in words), "rdma")


def _net(row: dict[str, str], gpu: Gpu, transport: str) -> GpuNetwork:
    """The NICs that a row names, else those of the catalog; `launch`: whether the host's is in its
    time.
    """
    gbps = number(row, "nic_gbps_per_gpu") if row.get("nic_gbps_per_gpu") else None
    launch = HOST_LAUNCH if row.get("launch") == "host" else 0.0
    return network(gpu, gbps and gbps * 1e9, launch=launch, transport=transport)

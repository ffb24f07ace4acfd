"""Collectives inside a server: compute/communication against NCCL tables as aiconfigurator
publishes them.

Columns `device, op_name, num_gpus, message_size, latency`: message_size counts elements (of 2 bytes
unless `nccl_dtype` says otherwise), latency is in ms, of calls captured in a CUDA graph, so the
host's launch is not in it. Repeated rows are points of their own.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from ...compute.communication import KINDS, RankGroup, collective_seconds, network
from ...compute.gpus import find_gpu
from . import Point, PointGroup
from .tables import Refused, number, rows, split_by_size, whole

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
LATENCIES = {"latency": 1.0, "latency_ms": 1.0, "latency_us": 1e-3}  # columns, and ms of their unit
NAMES = {
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all-to-all",
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "sendrecv": "send-recv",
    "p2p": "send-recv",
}


def check(path: Path, data: Path) -> Iterable[PointGroup]:
    """Two groups: messages from 1 MiB on, and smaller ones, where latencies rule."""
    return split_by_size(
        path.stem, path, [(row, _point) for row in rows(path, "device", "op_name", "message_size")]
    )


def _point(row: dict[str, str]) -> tuple[float, Point]:
    gpu = find_gpu(row["device"])
    if gpu is None:
        raise Refused(f"GPU {row['device']!r} is not in the catalog")
    op = re.sub(r"[^a-z0-9]", "", row["op_name"].lower()).removesuffix("perf")
    kind = NAMES.get(op, op)
    if kind not in KINDS:
        raise Refused(f"operation {row['op_name']!r} is not modelled")
    told = row.get("nccl_dtype") or row.get("dtype") or "half"
    element = ELEMENT_BYTES.get(re.split(r"[.:]", told.lower())[-1].split("_e")[0])
    if element is None:
        raise Refused(f"element type {told!r} is not known")
    gpus, size = whole(row, "num_gpus"), number(row, "message_size") * element
    net = network(gpu)
    seconds = collective_seconds(kind, size, RankGroup(gpus, -(-gpus // net.domain)), net)
    column, ms = next(
        ((c, scale) for c, scale in LATENCIES.items() if row.get(c)), ("latency", 1.0)
    )
    return size, Point(
        (f"{gpu.name} {kind} {gpus} GPUs {size:.0f} B"),
        number(row, column) * ms,
        seconds * 1e3,
        "ms",
    )

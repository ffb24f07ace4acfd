"""Collectives inside a server: the model of rl/communication against NCCL tables as aiconfigurator publishes them.

Columns `device, op_name, num_gpus, message_size, latency`: message_size counts elements (of 2 bytes unless `nccl_dtype` says
otherwise), latency is in ms, of calls captured in a CUDA graph, so the host's launch is not in it. Repeated rows are points
of their own.
"""

from collections.abc import Iterable
from pathlib import Path

from ...rl.communication import KINDS, Group, collective_seconds, network
from ...rl.gpus import find_gpu
from . import Group as Points
from . import Point
from .tables import Refused, number, rows, split_by_size

ELEMENT_BYTES = {
    "half": 2,
    "float16": 2,
    "bfloat16": 2,
    "bf16": 2,
    "fp16": 2,
    "float": 4,
    "float32": 4,
    "int8": 1,
    "fp8": 1,
}
NAMES = {
    "alltoall": "all-to-all",
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
}


def check(path: Path, data: Path) -> Iterable[Points]:
    """Two groups: messages from 1 MiB on, and smaller ones, where latencies rule."""
    return split_by_size(path.stem, path, [(row, _point) for row in rows(path)])


def _point(row: dict[str, str]) -> tuple[float, Point]:
    gpu = find_gpu(row["device"])
    if gpu is None:
        raise Refused(f"GPU {row['device']!r} is not in the catalog")
    kind = NAMES.get(row["op_name"], row["op_name"].replace("_", "-"))
    if kind not in KINDS:
        raise Refused(f"operation {row['op_name']!r} is not modelled")
    element = ELEMENT_BYTES.get(row.get("nccl_dtype") or row.get("dtype") or "half")
    if element is None:
        raise Refused(f"element type {row.get('nccl_dtype') or row.get('dtype')!r} is not known")
    gpus, size = int(number(row, "num_gpus")), number(row, "message_size") * element
    net = network(gpu)
    seconds = collective_seconds(kind, size, Group(gpus, -(-gpus // net.domain)), net)
    return size, Point(f"{gpu.name} {kind} {gpus} GPUs {size:.0f} B", number(row, "latency"), seconds * 1e3, "ms")

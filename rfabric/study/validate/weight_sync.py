"""Weight sync seconds of published systems: compute/sync_time against `weight_sync/measured*.csv`.

Columns `source, model, weights, trainer, rollout, gpu, network, transport, seconds, extra`;
`trainer_layout`, `rollout_layout` (`EP8xPP2`) may stand in place of counts. Seconds such as 5.5-6.0
are a range: its middle counts. A note `receive only` holds for all rows of its source, which
publishes them as one table.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from ...compute.communication import Network, network
from ...compute.gpus import find_gpu
from ...compute.layout import Layout, layout
from ...compute.named import find_model
from ...compute.sync_time import Sync, tensors_of, weight_sync_seconds
from ...errors import RFabricError
from . import Point, PointGroup
from .tables import Refused, attempt, rows

PRECISIONS = (
    ("FP8", "fp8_block"),
    ("NVFP4", "nvfp4"),
    ("FP4", "mxfp4"),
    ("INT4", "int4"),
    ("INT8", "int8"),
    ("FP32", "fp32"),
)


def check(path: Path, data: Path) -> Iterable[PointGroup]:
    """One group of the whole file; extra: the share of rows within a factor of two."""
    table = rows(path)
    received = {
        row.get("source") for row in table if "receive only" in (row.get("extra") or "").lower()
    }
    calls = [
        (
            (f"row {i + 2} {row.get('model')}"),
            lambda row=row: _point(row, data, row.get("source") in received),
        )
        for i, row in enumerate(table)
    ]
    made, refused = attempt(calls)
    near = sum(0.5 <= p.modelled / p.measured <= 2 for p in made) / len(made) if made else 0.0
    file = f"{path.parent.name}/{path.name}"
    return [
        PointGroup(
            (f"weight sync {path.stem}"),
            file,
            tuple(made),
            tuple(refused),
            extra=(("within_2x", near),),
        )
    ]


def _point(row: dict[str, str], data: Path, receive_only: bool) -> Point:
    model = find_model(row["model"], (data / "models",))
    if model is None:
        raise Refused(f"no config of {row['model']!r} in models/ or traffic/models/")
    trainer, rollout = _layout(row, "trainer"), _layout(row, "rollout")
    precision = _precision(row)
    sync = Sync(
        model.weight_bytes_at(precision),
        tensors_of(model, precision),
        trainer,
        rollout,
        _network(row),
        _transport(row),
        one_place="same" in (row.get("network") or "").lower()
        or _made_by(row).startswith("checkpoint-engine"),
        offloaded="offload on" in (row.get("extra") or "").lower(),
        receive_only=receive_only,
    )
    name = f"{row['model']} {trainer.gpus} -> {rollout.gpus} {row['gpu']}, {row['transport']}"
    return Point(name, _seconds(row["seconds"]), weight_sync_seconds(sync), "s", sync.transport)


def _layout(row: dict[str, str], side: str) -> Layout:
    """Degrees where they stand, GPUs from the count where there is one."""
    texts = [(row.get(column) or "").strip() for column in (side, f"{side}_layout")]
    if not any(texts):
        raise Refused(f"neither {side} nor {side}_layout is given")
    known = [layout(text) for text in texts if text]
    return Layout.over(known[0].gpus, known[-1].tp, known[-1].pp, known[-1].ep)


def _precision(row: dict[str, str]) -> str:
    text = (row.get("weights") or "BF16").upper()
    text = text.split("->")[-1].split("→")[-1]  # sent as the engine wants it
    return next((precision for key, precision in PRECISIONS if key in text), "bf16")


def _network(row: dict[str, str]) -> Network:
    gpu = find_gpu(row["gpu"])
    if gpu is None:
        raise Refused(f"GPU {row['gpu']!r} is not in the catalog")
    rate = re.search(
        r"(\d+(?:\.\d+)?)\s*(G|T)(?:b(?:it)?(?:/s|ps)?|bE)?\b(?!iB|B)",
        row.get("network") or "",
        re.I,
    )
    nic = float(rate[1]) * (1e12 if rate[2].upper() == "T" else 1e9) if rate else None
    return network(gpu, nic)


def _made_by(row: dict[str, str]) -> str:
    return (row.get("source") or "").lower().replace(" ", "-")


def _transport(row: dict[str, str]) -> str:
    """What the row's words mean, as the transports of sync_time."""
    text = (row.get("transport") or "").lower().replace("_", "-")
    if "delta" in text or "sparse" in text:
        return "delta"
    if re.search(r"(without|w/o|no) checkpoint-engine|per-tensor|tensor by tensor", text):
        return "tensors"
    point = re.search(r"p2p|point-to-point|rdma|shard-to-shard", text)
    if "checkpoint-engine" in text or _made_by(row).startswith("checkpoint-engine"):
        return "host-p2p" if point else "host"
    if re.search(r"nixl|mooncake|relay|store|object|disk", text):
        return "store"
    if point:
        return "p2p"
    if re.search(r"nccl|broadcast|all-?gather|ipc|cuda", text):
        return "broadcast"
    raise Refused(f"transport {row.get('transport')!r} is not modelled")


def _seconds(text: str) -> float:
    values = [float(v) for v in re.findall(r"\d+(?:\.\d+)?", text)]
    if not values:
        raise RFabricError(f"seconds {text!r} is no number")
    return sum(values[:2]) / len(values[:2])

"""Weight sync seconds of published systems: compute/sync_time against `weight_sync/measured*.csv`.

Columns `source, model, weights, trainer, rollout, gpu, network, transport, seconds, extra`;
`trainer_layout`, `rollout_layout` (`EP8xPP2`) may stand in place of counts. Seconds such as 5.5-6.0
are a range: its middle counts. A note `receive only` holds for all rows of its source, which
publishes them as one table.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...compute.communication import GpuNetwork, network
from ...compute.gpus import find_gpu
from ...compute.layout import Layout, layout
from ...compute.models import STORED_BYTES, Model
from ...compute.named import find_model
from ...compute.sync_time import (
    SOFTWARE,
    Software,
    Sync,
    expert_tensors,
    tensors_of,
    weight_sync_seconds,
)
from ...errors import RFabricError
from . import Point, PointGroup
from .parameters import stated_in
from .tables import CellTexts, RefusedRow, attempt, rows

PRECISIONS = (
    ("FP8", "fp8_block"),
    ("NVFP4", "nvfp4"),
    ("FP4", "mxfp4"),
    ("INT4", "int4"),
    ("INT8", "int8"),
    ("FP32", "fp32"),
)


# Of a source whose network is not stated and whose rows imply a tenth of what its GPUs' servers
# usually have: predicted with the usual one, and not fitted on where the network counts.
_NETWORK_UNKNOWN = "verl delta_weight_sync (second table)"
# The document and the pull request publish one implementation on one cluster.
_SAME_SYSTEM = {"NeMo RL nccl-reshard-refit.md": "NeMo-RL PR 2971 (NCCL-Reshard)"}
FILES = "weight_sync/measured*.csv"


@dataclass(frozen=True)
class Synced:
    """One published weight sync: `seconds` measured, and the `sync` that is to explain them.

    fits: whether constants may be fitted on it.
    """

    name: str
    system: str
    seconds: float
    sync: Sync
    fits: bool = True

    def modelled(self, software: Software = SOFTWARE) -> float:
        """Seconds by these constants."""
        return weight_sync_seconds(self.sync, software)

    def point(self, software: Software = SOFTWARE) -> Point:
        """Measured beside modelled."""
        return Point(self.name, self.seconds, self.modelled(software), "s")


def check(path: Path, data: Path) -> Iterable[PointGroup]:
    """One group of the whole file; extra: the share of rows within a factor of two."""
    made, refused = syncs_of(path, data)
    file = f"{path.parent.name}/{path.name}"
    return [
        group_of(f"weight sync {path.stem}", file, tuple(s.point() for s in made), tuple(refused))
    ]


def group_of(
    name: str, file: str, points: tuple[Point, ...], refused: tuple[str, ...] = ()
) -> PointGroup:
    """A group with its share of points within a factor of two."""
    near = sum(0.5 <= p.modelled / p.measured <= 2 for p in points) / len(points) if points else 0.0
    return PointGroup(name, file, points, refused, extra=(("within_2x", near),))


def syncs_of(path: Path, data: Path) -> tuple[list[Synced], list[str]]:
    """The rows of a file that can be modelled, and the others, each with its reason."""
    table = rows(path)
    received = {row.get("source") for row in table if _receives_only(row)} - {None, ""}
    named = [(f"row {i + 2} {row.get('model')}", row) for i, row in enumerate(table)]
    named += [(f"{name}, with checkpoint-engine", other) for name, row in named
              if (other := _with_engine(row))]  # fmt: skip
    return attempt(
        (
            name,
            lambda row=row: _synced(
                row, data, _receives_only(row) or row.get("source") in received
            ),
        )
        for name, row in named
    )


def _receives_only(row: CellTexts) -> bool:
    return "receive only" in (row.get("extra") or "").lower()


def _with_engine(row: CellTexts) -> CellTexts | None:
    """The second figure of a row that was measured without checkpoint-engine and, says `extra`,
    `with` it.
    """
    second = re.search(r"\bwith: *([\d.]+)", row.get("extra") or "")
    if not second:
        return None
    return row | {"transport": "checkpoint-engine", "seconds": second[1], "extra": ""}


def _synced(row: CellTexts, data: Path, receive_only: bool) -> Synced:
    extra = (row.get("extra") or "").lower()
    if "paged back" in extra:
        raise RefusedRow("FSDP1 pages the model back to the GPU first; at what rate is not stated")
    transport, source = _transport(row), row.get("source") or ""
    model, precision = find_model(row["model"], (data / "models",)), _precision(row)
    trainer, rollout = _sides(row, transport)
    sync = Sync(
        model.weight_bytes_at(precision) if model else _size(row, transport),
        tensors_of(model, precision) if model else 0,
        trainer,
        rollout,
        _network(row),
        transport,
        one_place="same" in (row.get("network") or "").lower()
        or _made_by(row).startswith("checkpoint-engine"),
        offloaded="offload on" in extra,
        receive_only=receive_only,
        expert_tensors=expert_tensors(model) if model else 0,
        quantised=_matrices(model)
        if model and transport == "shards" and precision != "bf16"
        else 0,
        rest=_rest(model) if model and _packs_rest(row) else 0.0,
    )
    name = f"{row['model']} {trainer.gpus} -> {rollout.gpus} {row['gpu']}, {row['transport']}"
    unknown = source == _NETWORK_UNKNOWN and transport == "broadcast"
    system = _SAME_SYSTEM.get(source, source)
    return Synced(name, system, _seconds(row["seconds"]), sync, not unknown)


def _size(row: CellTexts, transport: str) -> float:
    """Bytes of a model of which only its name is known; RFabricError where the mechanism counts
    tensors as well.
    """
    stated = [one for one in stated_in(row["model"]) if one.kind == "total"]
    if not stated or transport not in ("buckets", "host-write", "host", "host-p2p"):
        raise RefusedRow(f"no config of {row['model']!r} in models/ or traffic/models/")
    return stated[0].billions * 1e9 * STORED_BYTES[_precision(row)]


def _sides(row: CellTexts, transport: str) -> tuple[Layout, Layout]:
    """Trainer and rollout; shard to shard the GPUs of the larger for both, where degrees alone are
    given: EP8xDP2 beside TP8xDP2 are 16 as well.
    """
    trainer, rollout = _layout(row, "trainer"), _layout(row, "rollout")
    if transport != "shards" or row.get("trainer") or row.get("rollout"):
        return trainer, rollout
    gpus = max(trainer.gpus, rollout.gpus)
    return _widened(trainer, gpus), _widened(rollout, gpus)


def _widened(layout: Layout, gpus: int) -> Layout:
    return Layout.over(gpus, layout.tp, layout.pp, layout.ep)


def _matrices(model: Model) -> int:
    """Matrices in layers: q, k, v, o, and the MLPs'."""
    sparse = model.experts.layers if model.experts else 0
    return 4 * model.layers + 3 * (model.layers - sparse) + expert_tensors(model)


def _packs_rest(row: CellTexts) -> bool:
    """NeMo-RL's NCCL-Reshard sends MLPs alone from shard to shard."""
    return "dominant" in row["transport"] or "nccl-reshard" in (row.get("source") or "")


def _rest(model: Model) -> float:
    """Share of the weights beside MLPs: 33.1 % of Qwen3-4B, 5.0 % of Qwen3-30B-A3B, as the document
    states.
    """
    mlps = model.expert_parameters or 3 * model.hidden * model.intermediate * model.layers
    return 1 - mlps / model.parameters


def _layout(row: CellTexts, side: str) -> Layout:
    """Degrees where they stand, GPUs from the count where there is one."""
    texts = [
        (row.get(column) or "").removesuffix("updated").strip().removesuffix(".0")
        for column in (side, f"{side}_layout")
    ]
    if not any(texts):
        raise RefusedRow(f"neither {side} nor {side}_layout is given")
    known = [layout(text) for text in texts if text]
    return Layout.over(known[0].gpus, known[-1].tp, known[-1].pp, known[-1].ep)


def _precision(row: CellTexts) -> str:
    text = (row.get("weights") or "BF16").upper()
    text = text.split("->")[-1].split("→")[-1]  # sent as the engine wants it
    return next((precision for key, precision in PRECISIONS if key in text), "bf16")


def _network(row: CellTexts) -> GpuNetwork:
    gpu = find_gpu(row["gpu"])
    if gpu is None:
        raise RefusedRow(f"GPU {row['gpu']!r} is not in the catalog")
    rate = re.search(
        r"(\d+(?:\.\d+)?)\s*(G|T)(?:b(?:it)?(?:/s|ps)?|bE)?\b(?!iB|B)",
        row.get("network") or "",
        re.I,
    )
    nic = float(rate[1]) * (1e12 if rate[2].upper() == "T" else 1e9) if rate else None
    return network(gpu, nic)


def _made_by(row: CellTexts) -> str:
    return (row.get("source") or "").lower().replace(" ", "-")


def _transport(row: CellTexts) -> str:
    """What the row's words mean, as the transports of sync_time."""
    text = (row.get("transport") or "").lower().replace("_", "-")
    if _made_by(row).startswith("miles"):
        return "host-write" if "p2p" in text else "buckets"
    if re.search(r"shard-to-shard|nccl[ -]reshard", text):
        return "shards"
    if "bucket" in text:
        return "buckets"
    if "delta" in text or "sparse" in text:
        return "delta"
    if re.search(r"(without|w/o|no) checkpoint-engine|per-tensor|tensor by tensor", text):
        return "tensors"
    point = re.search(r"p2p|point-to-point|rdma", text)
    if "checkpoint-engine" in text or _made_by(row).startswith("checkpoint-engine"):
        return "host-p2p" if point else "host"
    if re.search(r"nixl|mooncake|relay|store|object|disk", text):
        return "store"
    if point:
        return "p2p"
    if re.search(r"nccl|broadcast|all-?gather|ipc|cuda", text):
        return "broadcast"
    raise RefusedRow(f"transport {row.get('transport')!r} is not modelled")


def _seconds(text: str) -> float:
    values = [float(v) for v in re.findall(r"\d+(?:\.\d+)?", text)]
    if not values:
        raise RFabricError(f"seconds {text!r} is no number")
    return sum(values[:2]) / len(values[:2])

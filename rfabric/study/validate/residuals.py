"""The table of residuals (`compute/spread`), made anew from a folder of measurements.

Each row of _MADE names the rows of one comparison that speak for a kind of prediction. Of their
ratios, measured over predicted seconds, eight in ten lie between `low` and `high`: the 10 % and the
90 % quantile, to two decimals. Communication is compared with the least that the bytes that leave a
server take on its network cards at their rate, which is what flows on an idle fabric take; below
LEAST_BYTES latencies rule, and TCPX and TCPXO are transports of one cloud.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...compute.spread import COLUMNS, OTHER, SAME
from ...errors import RFabricError
from ...units import transfer_seconds
from . import Point, PointGroup, validate
from .leave_one_out import FILES, calls_between, leave_one_out
from .nccl import Call

LEAST_BYTES = 64 * 2**20
_AT_NIC_RATE = "collectives at NIC rate"
_RATES = ("tokens/s", "GB/s")  # units of which more is faster
_SILICON = "ai-dynamo/aiconfigurator silicon_sample.csv"
_BRIDGE = "Megatron Bridge performance summary (measured/training_megatron_bridge_by_model.csv)"


@dataclass(frozen=True)
class _Made:
    """A row of the table: which `part` of the points of which `groups` it is made of."""

    kind: str
    basis: str
    of: str
    gpus: str
    most_gpus: int  # of a job among those rows
    groups: tuple[str, ...]
    source: str
    part: str = ""


_MADE = (
    _Made(
        "decode", SAME, "dense", "H100;H200", 64, ("serving TPOT",),
        f"{_SILICON}: Qwen3-32B, Llama-3.1-8B (measured/serving_ttft_tpot.csv)", "dense",
    ),
    _Made(
        "decode", OTHER, "dense", "", 64, ("serving TPOT more",),
        "the same: other engines and GPUs, dense (measured/serving_ttft_tpot_more.csv)", "dense",
    ),
    _Made(
        "decode", OTHER, "MoE", "", 64, ("serving TPOT", "serving TPOT more"),
        "both files: DeepSeek-V3, and gpt-oss-120b, of which 61 rows were fitted on", "MoE",
    ),
    _Made(
        "first token", SAME, "dense", "H100;H200", 64, ("serving TTFT",),
        f"{_SILICON}: Qwen3-32B, Llama-3.1-8B (measured/serving_ttft_tpot.csv)", "dense",
    ),
    _Made(
        "first token", OTHER, "", "", 64, ("first tokens, each system left out",),
        "both serving files: each system left out of the fit",
    ),
    _Made(
        "training", SAME, "dense", "H100", 64, ("training mfu_llm_foundry_h100",),
        "mosaicml/llm-foundry scripts/train/benchmarking: MPT "
        "(measured/training_mfu_llm_foundry_h100.csv)",
    ),
    _Made(
        "training", OTHER, "dense", "", 64, ("training megatron_bridge_by_model",),
        _BRIDGE, "dense",
    ),
    _Made(
        "training", OTHER, "MoE", "", 64, ("training of mixtures, each model left out",),
        f"{_BRIDGE}: each model left out of the fit",
    ),
    _Made(
        "weight sync", OTHER, "", "", 4096, ("weight sync, each system left out",),
        "published weight syncs, each system left out of the fit (weight_sync/measured*.csv)",
    ),
    _Made(
        "communication", OTHER, "", "", 32, (_AT_NIC_RATE,),
        "nccl-tests between 2 and 4 servers over RDMA, 64 MiB and more "
        "(measured/nccl_multinode_*.csv)",
    ),
)  # fmt: skip


def residuals(folder: str | Path) -> str:
    """The table as CSV text; RFabricError where the folder lacks what a row is made of."""
    groups = [*validate(folder), *leave_one_out(folder), _at_nic_rate(Path(folder))]
    by_name = {group.name: group for group in groups}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_row(made, by_name) for made in _MADE)
    return text.getvalue()


def _row(made: _Made, groups: Mapping[str, PointGroup]) -> Sequence[object]:
    missing = [name for name in made.groups if name not in groups]
    points = [
        point
        for name in made.groups
        if name in groups
        for point in groups[name].points
        if made.part in point.part
    ]
    if missing or not points:
        raise RFabricError(
            f"residuals of {made.kind} ({made.basis}): no rows of "
            f"{', '.join(missing or made.groups)} in this folder; give one that has them all"
        )
    low, high = np.quantile(_ratios(points), [0.1, 0.9])
    named = made.kind, made.basis, made.of, made.gpus, made.most_gpus
    return *named, f"{low:.2f}", f"{high:.2f}", len(points), made.source


def _ratios(points: Iterable[Point]) -> list[float]:
    """Measured over predicted seconds; of rates the other way round."""
    return [
        p.modelled / p.measured if p.unit.startswith(_RATES) else p.measured / p.modelled
        for p in points
    ]


def _at_nic_rate(folder: Path) -> PointGroup:
    """Large collectives beside the least that their bytes take between servers."""
    calls, _ = calls_between(folder)
    points = tuple(
        Point(call.name, call.seconds, least_seconds(call), "s")
        for call in calls
        if call.transport == "rdma" and call.size >= LEAST_BYTES
    )
    return PointGroup(_AT_NIC_RATE, FILES, points)


def least_seconds(call: Call) -> float:
    """What the bytes of a collective that leave a server take on its network cards (s): of all that
    are sent those for other servers, of an all-reduce twice, as parts come back.
    """
    others = 1 - 1 / call.group.servers
    sent = {
        "send-recv": call.size,
        "all-to-all": others * call.size,
        "all-reduce": 2 * others * call.size / call.group.local,
    }
    each = sent.get(call.kind, others * call.size / call.group.local)
    return float(transfer_seconds(each, call.net.nic_bps))

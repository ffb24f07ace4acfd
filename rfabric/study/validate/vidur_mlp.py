"""One GPU's kernels of a layer, alone: `measured/vidur_*mlp*.csv` of microsoft/vidur, milliseconds
by tokens and tensor ranks.

Matmuls (QKV, output, MLP up with gate, MLP down) and memory-bound kernels (norms, rotation,
activation, residual) are two groups. The GPU stands in the file's name.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...compute.gpus import Gpu, find_gpu
from ...compute.models import BF16_BYTES
from ...compute.training import matmul_seconds, moved_seconds
from . import Point, PointGroup
from .tables import BROKEN, flag, reason, rows, whole

MS = 1e-3  # the unit of the file


@dataclass(frozen=True)
class _LayerShape:
    """Shape of a layer on one of `tp` ranks, and its tokens."""

    tokens: int
    hidden: int
    queries: int
    keys: int
    mlp: int
    gated: bool

    @classmethod
    def read(cls, row: dict) -> "_LayerShape":
        tp, hidden, heads = (
            whole(row, key) for key in ("num_tensor_parallel_workers", "n_embd", "n_head")
        )
        keys = max(1, whole(row, "n_kv_head") // tp) * hidden // heads
        mlp = whole(row, "n_expanded_embd") // tp
        gated = flag(row["use_gated_mlp"])
        return cls(whole(row, "num_tokens"), hidden, hidden // tp, keys, mlp, gated)


def check(path: Path, data: Path) -> Iterable[PointGroup]:
    """Two groups: matmuls and memory-bound kernels. Rows that raise one of BROKEN are left out."""
    gpu, left, matmuls, moved = find_gpu(path.stem), [], [], []
    for number, row in enumerate(rows(path), 2):
        try:
            if gpu is None:
                raise ValueError(f"no GPU is known by {path.stem!r}")
            shape = _LayerShape.read(row)
            matmuls += _points(row, _matmuls(shape, gpu))
            moved += _points(row, _moved(shape, gpu))
        except BROKEN as error:
            left.append(f"line {number}: {reason(error)}")
    of = path.stem.removeprefix("vidur_")
    where = str(path.relative_to(data))
    note = "one kernel alone"
    yield PointGroup(f"vidur matmul {of}", where, tuple(matmuls), tuple(left), note)
    yield PointGroup(f"vidur memory-bound {of}", where, tuple(moved), tuple(left), note)


def _points(row: dict, seconds: dict[str, float]) -> list[Point]:
    where = f"{row['num_tokens']} tokens, tp {row['num_tensor_parallel_workers']}"
    measured = {op: float(row[f"time_stats.{op}.median"] or 0) for op in seconds}
    return [
        Point(f"{op}, {where}", measured[op], s / MS, "ms")
        for op, s in seconds.items()
        if measured[op] > 0
    ]


def _matmuls(r: _LayerShape, gpu: Gpu) -> dict[str, float]:
    up = r.mlp * (2 if r.gated else 1)
    return {
        "attn_pre_proj": matmul_seconds(gpu, r.tokens, r.hidden, r.queries + 2 * r.keys),
        "attn_post_proj": matmul_seconds(gpu, r.tokens, r.queries, r.hidden),
        "mlp_up_proj": matmul_seconds(gpu, r.tokens, r.hidden, up),
        "mlp_down_proj": matmul_seconds(gpu, r.tokens, r.mlp, r.hidden),
    }


def _moved(r: _LayerShape, gpu: Gpu) -> dict[str, float]:
    columns = {
        "input_layernorm": 2 * r.hidden,
        "post_attention_layernorm": 2 * r.hidden,
        "attn_rope": 2 * (r.queries + r.keys),
        "mlp_act": (3 if r.gated else 2) * r.mlp,
        "add": 3 * r.hidden,
    }
    return {op: moved_seconds(gpu, BF16_BYTES * r.tokens * count) for op, count in columns.items()}

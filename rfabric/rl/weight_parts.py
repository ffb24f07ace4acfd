"""Which part of the weights each GPU of a generation replica takes: its tp-th of what all tokens
pass, its experts, or what its side holds where the FFN stands apart.
"""

from functools import lru_cache

from ..compute.pipeline_stages import StageBytes, sent_bytes
from ..trace.collectives import by_server
from .workload import Workload

STORED_AS = {"bf16": "bf16", "fp8": "fp8_block"}  # weight_sync.precision, as `compute` has it


def sent_as(w: Workload) -> str:
    """How matrices are sent. Adapters alone are not quantised: engines hold them in the format of
    activations (vLLM's lora_dtype).
    """
    return "bf16" if w.synced < 1 else STORED_AS[w.weight_sync.precision]


def copy_bytes(w: Workload) -> float:
    """Bytes of one copy of the weights as they are sent."""
    return w.model.weight_bytes_at(sent_as(w))


@lru_cache(2)
def stages_of_copy(w: Workload) -> list[StageBytes]:
    """What of such a copy each training stage sends."""
    return sent_bytes(w.model, w.layout, w.synced, sent_as(w))


def needs(w: Workload, k: int, stage: int) -> tuple[float, tuple[int, int], tuple[int, int] | None]:
    """Of what all tokens pass in a training stage, the bytes of a copy that GPU `k` of a replica
    has a part of, and which part of how many; and of the experts (None: no part).
    """
    g, dense = w.generation, stages_of_copy(w)[stage].dense
    if not g.ffn_gpus:
        return dense, (k % g.tp, g.tp), (k, g.gpus)
    mlps = stages_of_copy(w)[stage].mlps
    if k < g.attending:
        return dense - mlps, (k % g.tp, g.tp), None
    part = (k - g.attending, g.ffn_gpus)
    return mlps, part, part


def slices(w: Workload, k: int, n: int) -> list[tuple[int, float]]:
    """Which of n slices of a copy GPU `k` of a replica pulls from, and how much of a copy.

    Experts that are dealt lie behind what all tokens pass, and are taken from there alone.
    """
    g = w.generation
    if g.gpus == g.tp:
        return overlaps(k, g.tp, n)
    # apart, MLPs lie behind what attention needs as well
    behind = [stage.experts + stage.mlps * bool(g.ffn_gpus) for stage in stages_of_copy(w)]
    dense = 1 - sum(behind) / copy_bytes(w)
    if g.ffn_gpus:
        j = k - g.attending
        runs = [(0.0, dense, k % g.tp, g.tp)] if j < 0 else [(dense, 1 - dense, j, g.ffn_gpus)]
    else:
        runs = [(0.0, dense, k % g.tp, g.tp), (dense, 1 - dense, k, g.gpus)]
    own = [(at + of * i / parts, at + of * i / parts + of / parts) for at, of, i, parts in runs]
    return [
        (i, min(last, (i + 1) / n) - max(first, i / n))
        for first, last in own
        for i in range(n)
        if first < (i + 1) / n and i / n < last
    ]


def overlaps(k: int, parts: int, n: int) -> list[tuple[int, float]]:
    """Which of n equal slices the k-th of so many equal parts lies in, and how much of the whole
    in each.
    """
    return [
        (i, min((i + 1) / n, (k + 1) / parts) - max(i / n, k / parts))
        for i in range(k * n // parts, -(-(k + 1) * n // parts))
    ]


def taken(w: Workload, stage: int, gpus: range) -> list[tuple[int, int, float]]:
    """(from, to, how many such parts the experts of a stage are) of what each of the `gpus` of a
    server takes from others where training and generation are colocated: the experts that none of
    them trains. Groups of GPUs that hold all experts are dealt in turn, and so are the GPUs of a
    group in one server.
    """
    first, wide, n = w.rank(stage, 0), w.training.expert_gpus, w.stage_gpus
    lacks = set(range(wide)) - {(gpu - first) % wide for gpu in gpus if 0 <= gpu - first < n}
    group = {gpu: first + gpu // wide * wide % n for gpu in gpus}
    parts = {
        begin: by_server([begin + place for place in lacks], w.gpus_per_server)
        for begin in set(group.values())
    }
    return [
        (part[gpu % len(part)], gpu, wide / len(part)) for gpu in gpus for part in parts[group[gpu]]
    ]

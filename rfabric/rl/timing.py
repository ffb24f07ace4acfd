"""How long a job's own computing takes: what `compute` says of its model, GPUs and layout."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from ..compute.by_rank import ByRank
from ..compute.ffn_apart import Sides, sides_of
from ..compute.layout import ALL_REDUCES_PER_LAYER
from ..compute.models import BF16_BYTES
from ..compute.requests import in_turns
from ..compute.roofline import MATMUL_SHARE, DecodeStep, Server, step_of
from ..compute.serving import Batching, ReplicaTime, serve
from ..compute.spread import Spread, spread
from ..compute.training import RL, PassSeconds, Trainer, backward, forward
from .workload import Workload


def server_of(w: Workload) -> Server:
    """The GPUs of a generation replica of `w` that attend; what its all-reduces send between
    servers are flows of its trace, not seconds here.
    """
    g = w.generation
    return Server(
        w.served,
        w.generation_gpu,
        g.tp,
        dp=g.attention_replicas,
        ep=g.ep,
        weights=g.precision,
        expert_weights=g.precision,
        utilisation=g.memory_utilisation,
        domain=w.gpus_per_server,
        hbm=w.efficiency.hbm,
        matmul=w.efficiency.matmul * MATMUL_SHARE,
        local=True,
        length=w.usual_context,
    )


@lru_cache(2)  # each replica asks for it
def decode_step(w: Workload) -> DecodeStep | Sides:
    """The roofline of one generation replica of `w`; with generation.ffn_gpus, of its two sides."""
    s, ffn = server_of(w), w.generation.ffn_gpus
    return sides_of(s, ffn) if ffn else step_of(s)


def prefill_seconds(w: Workload, prompt: float) -> float:
    """Seconds to prefill a prompt of so many tokens alone on one replica."""
    return decode_step(w).mixed(0, 0, prompt, prompt**2 / 2)


def all_reduce_bytes_per_token(w: Workload) -> int:
    """Bytes that tensor parallelism all-reduces for one token of a forward pass."""
    return ALL_REDUCES_PER_LAYER * w.model.layers * w.model.hidden * BF16_BYTES


def replica_time(
    w: Workload, prompts: np.ndarray, outputs: np.ndarray, step: DecodeStep | Sides | None = None
) -> ReplicaTime:
    """Continuous batching of responses with `prompts` and `outputs` tokens (int64[n]) on one
    replica of `w`.

    All are there at the start, groups in a row; with generation.turns, an environment answers
    between the turns of each; with generation.prefill_gpus, the KV of their prompts is there.
    `step`: another roofline than the replica's own.
    """
    g = w.generation
    requests = in_turns(
        prompts, outputs, g.turns, g.environment_latency, g.observation, g.group_size
    )
    served = serve(
        step or decode_step(w),
        w.kv_capacity_tokens,
        Batching(max_num_seqs=w.slots),
        requests,
        np.full(len(requests), bool(w.prefilling)),
    )
    return ReplicaTime(
        served.prefill, served.decode, served.peak_kv_tokens, served.idle, served.preempted
    )


def trainer_of(w: Workload) -> Trainer:
    """The training ranks of a job; what they send between servers are flows of its trace, not
    seconds here.
    """
    t = w.training
    return Trainer(
        w.model,
        w.gpu,
        w.layout,
        t.precision,
        t.recompute,
        RL,
        t.grad_bytes,
        w.nic_bps,
        w.gpus_per_server,
        between_servers=False,
        context_exchange=t.context_exchange,
        learns=w.learns,
    )


def passes_of(
    w: Workload, tokens: ByRank, squares: ByRank, micro_batches: int, imbalance: float = 1.0
) -> tuple[PassSeconds, PassSeconds]:
    """A job's forward and backward pass over these tokens on one data-parallel rank, or on each of
    many; `imbalance`: see Trainer.

    With `efficiency.training` given they take their FLOPs at that share of the peak, and nothing
    else.
    """
    t = replace(trainer_of(w), expert_imbalance=imbalance)
    if not w.efficiency.training:
        passed = t, tokens, squares, micro_batches
        return forward(*passed), backward(*passed)
    gpus = t.layout.tp * t.layout.cp * t.layout.pp
    chosen = w.model.active_parameters - w.model.dense_parameters
    flops = w.model.forward_flops(tokens, squares) + (imbalance - 1) * 2 * chosen * tokens
    rate = gpus * w.gpu.bf16_flops * w.efficiency.training
    once, logits = flops / rate, 2 * w.model.logits_parameters * tokens / rate
    twice, again = 1 + w.learns, (t.recompute == "full") * (once - logits)  # layers alone
    return PassSeconds(matmul=once, logits=logits), PassSeconds(
        matmul=twice * once + again, logits=twice * logits
    )


# The kind of prediction of what a phase computes, and of what its bytes add.
PHASE_KINDS = {"generation": "decode", "training": "training", "weight_sync": "weight sync"}
COMMUNICATION = "communication"


def residuals(w: Workload, kind: str) -> Spread:
    """How far measurements lie from a prediction of `kind` for this job."""
    if kind in ("decode", "first token"):
        return spread(kind, w.model, w.generation_gpu, server_of(w).gpus)
    return spread(kind, w.model, w.gpu, w.cluster.training_gpus)


def phase_within(w: Workload, phase: str, seconds: float, comm: float) -> tuple[float, float]:
    """(low, high) s of a phase that computes so long and waits `comm` s for bytes: each by the
    residuals of its kind, both off in the same direction.
    """
    own, sent = (residuals(w, kind) for kind in (PHASE_KINDS[phase], COMMUNICATION))
    return own.low * seconds + sent.low * comm, own.high * seconds + sent.high * comm

"""How long GPUs compute: rooflines of decode, prefill and training. Pure functions of model, GPU and token counts.

    decode step, n responses with C tokens of context in all:
        max( (weights + C kv) / tp over HBM, (2 N n + attention C) / tp over FLOP/s ) + latency of kernels, all-reduces

    With experts, N is what a token passes and the weights are those that n tokens touch: each of E experts a layer is
    left out with probability (1 - k/E)^n, as tokens choose evenly and independently.

Between two events of a replica - a response ends, others join - n is constant and C grows by n a step, so the steps
between are one closed sum: a replica costs O(responses log responses), not O(tokens). `Efficiency` holds the rest.
"""

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import memory
from .memory import OPTIMIZER_BYTES, kv_shards
from .models import BF16_BYTES

if TYPE_CHECKING:
    from .workload import Workload

# A kernel in a CUDA graph takes 3 us at least (aiconfigurator h100_sxm.yaml, mem_empirical_constant_latency); a layer
# has about seven: two norms, QKV, attention, output, gate-and-up with its activation, down.
LAYER_LATENCY_S = 7 * 3e-6
# Small NCCL all-reduce on NVLink: 6.2, 9.7, 15.6 us for 2, 4, 8 GPUs (aiconfigurator, h100_sxm, NCCL 2.27.3).
ALL_REDUCE_BASE_S, ALL_REDUCE_PER_GPU_S = 3.1e-6, 1.56e-6
# One message between servers: 10 us (aiconfigurator h100_sxm.yaml, p2p_latency).
HOP_LATENCY_S = 10e-6
ALL_REDUCES_PER_LAYER = 2  # forward: after attention and after the MLP (Megatron-LM, arXiv 1909.08053)


@dataclass(frozen=True)
class DecodeStep:
    """Seconds of one decode step of n responses with C tokens of context:

    max(m0 + e0 (1 - miss^n) + m1 C, f0 n + f1 C) + l0 + l1 n.
    """

    m0: float
    m1: float
    f0: float
    f1: float
    l0: float
    l1: float
    e0: float = 0.0
    miss: float = 1.0

    def seconds(self, n: int, context: float, steps: int = 1) -> float:
        """Seconds of `steps` steps in a row; `context` is C at the first, and grows by n a step."""
        experts = self.e0 * (1 - self.miss**n)
        memory = _Line(self.m0 + experts + self.m1 * context, self.m1 * n)
        compute = _Line(self.f0 * n + self.f1 * context, self.f1 * n)
        return _sum_of_max(memory, compute, steps) + steps * (self.l0 + self.l1 * n)


class _Line(NamedTuple):
    start: float
    slope: float

    def sum(self, first: int, last: int) -> float:
        """Sum over steps first .. last - 1."""
        return (last - first) * (self.start + self.slope * (first + last - 1) / 2)


def _sum_of_max(a: _Line, b: _Line, steps: int) -> float:
    """Sum over steps 0 .. steps - 1 of the larger of two lines."""
    if a.start < b.start or (a.start == b.start and a.slope < b.slope):
        a, b = b, a  # a is the larger at first
    if b.slope <= a.slope:
        return a.sum(0, steps)
    turn = min(steps, int(min(steps, (a.start - b.start) / (b.slope - a.slope))) + 1)
    return a.sum(0, turn) + b.sum(turn, steps)


def decode_step(w: "Workload") -> DecodeStep:
    """The decode roofline of one replica of `w`."""
    model, gpu, tp, eff = w.model, w.gpu, w.generation.tp, w.efficiency
    hbm, flops = gpu.hbm_bytes_per_s * eff.hbm, gpu.bf16_flops * eff.matmul * tp
    latency, per_token = _all_reduces(w)
    chosen = model.active_parameters - model.dense_parameters
    return DecodeStep(
        m0=BF16_BYTES * (model.matmul_parameters - chosen) / tp / hbm,
        m1=model.kv_bytes_per_token / kv_shards(model, tp) / hbm,
        f0=2 * model.matmul_parameters / flops,
        f1=model.attention_flops_per_context_token / flops,
        l0=model.layers * LAYER_LATENCY_S + latency,
        l1=per_token,
        e0=BF16_BYTES * model.expert_parameters / tp / hbm,
        miss=1 - model.experts.per_token / model.experts.count if model.experts else 1.0,
    )


def prefill_seconds(w: "Workload", prompt: float) -> float:
    """Seconds to prefill a prompt of so many tokens on one replica."""
    latency, per_token = _all_reduces(w)
    flops = w.gpu.bf16_flops * w.efficiency.matmul * w.generation.tp
    compute = w.model.forward_flops(prompt, prompt**2) / flops
    return compute + prompt * per_token + w.model.layers * LAYER_LATENCY_S + latency


def all_reduce_bytes_per_token(w: "Workload") -> int:
    """Bytes that tensor parallelism all-reduces for one token of a forward pass."""
    return ALL_REDUCES_PER_LAYER * w.model.layers * w.model.hidden * BF16_BYTES


def _all_reduces(w: "Workload") -> tuple[float, float]:
    """(seconds a step, seconds a token) of a replica's all-reduces; bytes between servers are flows, not here."""
    tp, server = w.generation.tp, w.gpus_per_server
    if tp == 1:
        return 0.0, 0.0
    inside = min(tp, server)
    once = ALL_REDUCE_BASE_S + ALL_REDUCE_PER_GPU_S * inside + 2 * (-(-tp // server) - 1) * HOP_LATENCY_S
    per_token = all_reduce_bytes_per_token(w) * 2 * (inside - 1) / inside / w.gpu.nvlink_bytes_per_s
    return ALL_REDUCES_PER_LAYER * w.model.layers * once, per_token


class ReplicaTime(NamedTuple):
    """Seconds a replica spends in prefill and in decode, and the most tokens of KV cache it held."""

    prefill: float
    decode: float
    peak_kv_tokens: int

    @property
    def seconds(self) -> float:
        return self.prefill + self.decode


def replica_time(w: "Workload", prompts: np.ndarray, outputs: np.ndarray) -> ReplicaTime:
    """Continuous batching of responses with `prompts` and `outputs` tokens (int64[n]) on one replica.

    First come, first served, up to max_num_seqs and the KV cache; a response is let in when all the KV it will need
    fits, so none is preempted. Responses that join are prefilled while decode waits, a group's prompt once (prefix
    caching).
    """
    step, capacity, most = decode_step(w), w.kv_capacity_tokens, w.generation.max_num_seqs
    need = (prompts + outputs).tolist()  # tokens of KV cache at the end
    ends: list[tuple[int, int]] = []  # (decode step at which it ends, response)
    joined = clock = context = held = peak = 0
    prefill = decode = 0.0
    while joined < len(outputs) or ends:
        while joined < len(outputs) and len(ends) < most and held + need[joined] <= capacity:
            prompt, output = int(prompts[joined]), int(outputs[joined])
            if joined % w.generation.group_size == 0:
                prefill += prefill_seconds(w, prompt)
            heapq.heappush(ends, (clock + output - 1, joined))  # the prefill yields the first token
            context, held, joined = context + prompt + 1, held + need[joined], joined + 1
        peak = max(peak, held)
        end, response = heapq.heappop(ends)
        decode += step.seconds(len(ends) + 1, context, end - clock)
        context += (len(ends) + 1) * (end - clock) - need[response]
        held, clock = held - need[response], end
    return ReplicaTime(prefill, decode, peak)


def forward_seconds(w: "Workload", tokens: float, squares: float) -> float:
    """Seconds of a forward pass over these tokens on one data-parallel rank: its tp x cp x pp GPUs."""
    gpus = w.training.tp * w.training.cp * w.training.pp
    return w.model.forward_flops(tokens, squares) / (gpus * w.gpu.bf16_flops * w.efficiency.training)


def backward_factor(w: "Workload") -> float:
    """Backward over forward: twice its FLOPs, and the forward pass again where all activations are recomputed."""
    return 3.0 if w.training.recompute == "full" else 2.0


def optimizer_seconds(w: "Workload") -> float:
    """Adam on one GPU's share, bound by HBM: gradient and states read, states and bf16 parameters written."""
    t = w.training
    shards = memory.training_shards(w.model, t, w.dp)
    share = sum(shard / (ranks if t.optimizer == "distributed" else 1) for shard, ranks in shards)
    touched = share * (t.grad_bytes + 2 * OPTIMIZER_BYTES + BF16_BYTES)
    return touched / (w.gpu.hbm_bytes_per_s * w.efficiency.hbm)

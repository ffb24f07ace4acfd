"""How long training computes: forward, backward, pipeline bubbles, the collectives that hide
behind them, the optimizer.

    matmul (m x k by k x n)  2 k (m n + WAVE x tile x SMs) / (tuned matmul x SUSTAINED)
    matmul of experts        the same / GROUPED
    attention                FLOPs / what the stack's kernel reaches; backward 2.5 x: scores anew
    memory-bound operations  bytes read and written / HBM: norms, residuals, activations, loss,
                             casts
    tensor, context, expert  collectives of `communication`, less what the stack hides
    host                     what the host takes to launch all of that, where a GPU is done sooner
    pipeline                 (pp - 1) / (vp x micro-batches) of bubble, and what the slowest stage,
                             such as the last with its logits, takes longer than the mean
    data                     gradients and parameters, less the computing they run beside

    trainer = Trainer(model, GPUS["H100"], Layout(tp=4, pp=8, vp=5, dp=2))
    training_step(trainer, sequences=128, length=8192).seconds

A time is one GPU's, of the average pipeline stage; what the slowest takes longer is in the
pipeline's term, and data and optimizer are those of the stage that takes the longest for them. The
passes of many data-parallel ranks, each with its own tokens, are worked out at once (`by_rank`).
Everything follows from the model's shape, the GPU's catalog row and the constants below; a
recompute of all activations costs one more forward pass of the layers.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from statistics import fmean

import numpy as np

from ..errors import RFabricError
from .by_rank import ByRank, most, of_rank
from .communication import GpuNetwork, RankGroup, collective_seconds, network
from .context_exchange import CONTEXT_BACKWARD, context_bytes
from .expert_exchange import DISPATCH_AND_COMBINE, Exchange, exchange_seconds
from .gpus import HBM_SHARE, KERNEL_S, PRECISIONS, Gpu
from .layout import ALL_REDUCES_PER_LAYER, Layout
from .memory import OPTIMIZER_BYTES, RESERVED_BYTES, parameter_bytes, training_shards
from .models import BF16_BYTES, FP32_BYTES, Model
from .pipeline_play import played
from .pipeline_stages import held, learning

# Share of a tuned matmul's FLOP/s that training sustains: at full power clocks fall, and kernels
# are chosen, not tuned. Fitted on llm-foundry's table of H100 (github.com/mosaicml/llm-foundry
# scripts/train/benchmarking), with FSDP's attention below.
SUSTAINED = 0.67
# Share of the last wave of output tiles (128 x 256, one a streaming multiprocessor) that idles, and
# the share of the best matmul that a single one reaches: fitted on the matmuls of microsoft/vidur
# data/profiling/compute/h100, Llama-2-70B.
WAVE, SINGLE = 0.25, 0.90
TILE, TILE_ROWS = 128 * 256, 128  # output elements, rows: CUTLASS's default for Hopper
SMS = 132  # streaming multiprocessors, H100 SXM data sheet (A100 108, B200 148)
# streaming multiprocessors that a collective beside computing takes: NCCL's channels on NVLink 4
CHANNELS = 24
# Flash attention's backward pass has five matmuls, its forward pass two (Dao, arXiv 2307.08691).
ATTENTION_BACKWARD = 2.5
# Cross entropy: logits written, upcast, read by softmax, gradient written and cast (2 + 2+4 + 4 + 4
# + 4+2 bytes, fp32).
LOSS_BYTES = 22
# Experts with biases (gpt-oss) under Megatron-Core 0.16, transformer/moe/experts.py and
# fusions/fused_bias_geglu.py: what is added and clamped there runs operation by operation. Bytes a
# column of a token's copy, forward and backward. The output's bias x the router's fp32 probability,
# the sum, pieces joined, cast to bf16: 4 + 10 + 8 + 6; cast twice, gradients of bias and of
# probability, pieces joined: 6 + 6 + 12 + 12 + 4. The activation's two inputs clamped and joined:
# 2 x (4 + 4); compared with one limit or two, chosen, joined: 2 x (11 + 4).
EXPERT_BIAS_BYTES, CLAMP_BYTES = 68, 46
# A cast to 8 bits: bf16 read, one copy by rows and one by columns written (arXiv 2209.05433, the
# layouts Hopper needs).
CAST_BYTES = 4
# Share of the FLOP/s of other matmuls that those of experts sustain, grouped into one kernel: each
# has few rows, as many as tokens happen to choose it. Fitted on Megatron Bridge's performance
# summary; gpt-oss-120b and Qwen3-30B-A3B, each alone, ask for the same.
GROUPED = 0.6
# Seconds that the host takes to launch the kernels of a layer with experts for one micro-batch,
# forward and backward: a GPU that is done sooner waits. Fitted on Megatron Bridge's performance
# summary, Qwen3-30B-A3B on 8 B200 with one sequence of 4,096 tokens a micro-batch: 8.8 ms in
# container 26.02 and 9.2 ms in 25.11, where the GPU needs 4.
HOST_LAYER_S = 9.0e-3
# ... of which a forward pass takes one of so many parts: a backward pass launches twice as much.
HOST_PARTS = 3
# Parameters/s that Adam updates on the CPUs of one server: 10 billion in 2.57 s on a DGX-2's two
# Xeon Platinum 8168 (ZeRO-Offload, arXiv 2101.06840, table 4).
HOST_ADAM = 10e9 / 2.57
PCIE_BYTES_PER_S = 63e9  # PCIe 5.0, 16 lanes, one way (PCI-SIG)


@dataclass(frozen=True)
class Stack:
    """Software that trains.

    attention: share of the bf16 peak its kernel reaches, and FLOP/s it never exceeds;
    hides_tensor: whether tensor-parallel collectives run beside their matmuls, chunk by chunk.
    """

    name: str
    attention: float
    attention_most: float
    hides_tensor: bool


# FlashAttention-3 and cuDNN, forward and backward together: 0.6 of the bf16 peak (arXiv 2407.08608,
# figures 5 and 6).
MEGATRON = Stack("Megatron-LM, tensor-parallel overlap", 0.6, float("inf"), True)
# What RL frameworks start: the same kernels, Megatron's tp_comm_overlap left off.
RL = Stack("Megatron-LM or FSDP under an RL framework", 0.6, float("inf"), False)
# Triton's flash attention of that time has no Hopper path: 200 TFLOP/s at sequence 65,536 (fitted
# on llm-foundry's table).
FSDP = Stack("PyTorch FSDP, llm-foundry", 0.6, 200e12, False)


@dataclass(frozen=True)
class Trainer:
    """A model in training on GPUs of one kind.

    recompute: `none` or `selective` (flash attention), `full`: all activations.
    recomputed_share: of the layers, those whose activations do not fit and are recomputed all the
    same (`share_recomputed`); expert_imbalance: how many times an even share of the tokens the
    busiest GPU's experts take, for which the others of its group wait; context_exchange: `ring` or
    `ulysses`, see context_exchange.py; learns: share of the parameters that learn, those of
    adapters beside others that stay as they are (`adapters`); grouped: as GROUPED; host_layer: as
    HOST_LAYER_S.
    """

    model: Model
    gpu: Gpu
    layout: Layout
    precision: str = "bf16"
    recompute: str = "selective"
    stack: Stack = MEGATRON
    gradient_bytes: int = BF16_BYTES
    nic_bps: float | None = None
    gpus_per_server: int | None = None
    # False: what tensor and expert ranks send between servers is left to a fabric
    between_servers: bool = True
    recomputed_share: float = 0.0
    expert_imbalance: float = 1.0
    context_exchange: str = "ring"
    learns: float = 1.0
    grouped: float = GROUPED
    host_layer: float = HOST_LAYER_S

    def __post_init__(self):
        if self.precision not in PRECISIONS:
            raise RFabricError(
                f"precision {self.precision!r} is not known; use one of {', '.join(PRECISIONS)}"
            )
        if self.recompute not in ("none", "selective", "full"):
            raise RFabricError(
                f"recompute {self.recompute!r} is not known; use none, selective or full"
            )

    @cached_property
    def network(self) -> GpuNetwork:
        """What joins its GPUs: NVLink as in the catalog, or in servers of `gpus_per_server`."""
        return network(self.gpu, self.nic_bps, self.gpus_per_server)

    @cached_property
    def held(self) -> list[list[tuple[float, int]]]:
        """By stage, (parameters on one of its GPUs, GPUs that hold the same): of what all tokens
        pass, of experts.
        """
        stages = held(self.model, self.layout)
        return [training_shards(self.model, self.layout, stage) for stage in stages]

    @cached_property
    def learning(self) -> list[list[tuple[float, int]]]:
        """The same of the parameters a share of which learns."""
        stages = learning(self.model, self.layout, self.learns)
        return [training_shards(self.model, self.layout, stage) for stage in stages]

    def matmul_flops(self, precision: str = "bf16") -> float:
        """FLOP/s that large matmuls sustain."""
        return self.gpu.peak(precision) * self.gpu.matmul_share(precision) * SUSTAINED

    @property
    def attention_flops(self) -> float:
        """FLOP/s of the attention kernel."""
        return min(self.gpu.bf16_flops * self.stack.attention, self.stack.attention_most)

    @property
    def hbm(self) -> float:
        """bytes/s of memory that kernels reach."""
        return self.gpu.hbm_bytes_per_s * HBM_SHARE


@dataclass(frozen=True)
class PassSeconds:
    """Seconds of passes on one GPU, of a rank or of each of many (`by_rank`), by what takes them;
    `tensor`, `context`, `experts`: what collectives add; `host`: what the GPU, done with all that,
    waits for its host. `logits`: so many of all these, the mean over stages, make logits and the
    loss, which the last stage does alone.
    """

    matmul: ByRank = 0.0
    attention: ByRank = 0.0
    memory: ByRank = 0.0
    tensor: ByRank = 0.0
    context: ByRank = 0.0
    experts: ByRank = 0.0
    host: ByRank = 0.0
    logits: ByRank = 0.0

    @property
    def seconds(self) -> ByRank:
        """All of them, s."""
        return sum(getattr(self, f.name) for f in fields(self) if f.name != "logits")

    @property
    def logits_share(self) -> ByRank:
        """Share of them that make logits and the loss."""
        return self.logits / most(self.seconds, sys.float_info.min)

    def of_rank(self, rank: int) -> "PassSeconds":
        """Those of one rank."""
        return PassSeconds(*(of_rank(getattr(self, f.name), rank) for f in fields(self)))

    def __rmul__(self, share: float) -> "PassSeconds":
        return PassSeconds(*(share * getattr(self, f.name) for f in fields(self)))

    def __add__(self, other: "PassSeconds") -> "PassSeconds":
        return PassSeconds(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def matmul_seconds(gpu: Gpu, m: int, k: int, n: int, precision: str = "bf16") -> float:
    """Seconds of one matmul m x k by k x n alone on a cool GPU: its tiles, bytes and launch."""
    flops = gpu.peak(precision) * gpu.matmul_share(precision) * SINGLE
    moved = BF16_BYTES * (m * k + k * n + m * n)
    computed = 2 * k * (m * n + WAVE * TILE * SMS) / flops
    return max(computed, moved_seconds(gpu, moved) - KERNEL_S) + KERNEL_S


def moved_seconds(gpu: Gpu, size: float) -> float:
    """Seconds of a kernel that reads and writes `size` bytes of HBM in all."""
    return size / (gpu.hbm_bytes_per_s * HBM_SHARE) + KERNEL_S


def forward(t: Trainer, tokens: ByRank, squares: ByRank, micro_batches: int = 1) -> PassSeconds:
    """A forward pass over `tokens` of a data-parallel rank in so many micro-batches; `squares`: sum
    of lengths squared. Of each of many ranks: arrays of both.
    """
    return _hosted(t, _forward, (tokens, squares, micro_batches), 1)


def backward(t: Trainer, tokens: ByRank, squares: ByRank, micro_batches: int = 1) -> PassSeconds:
    """The backward pass of that forward pass: twice its matmuls; with full recomputation layers
    again, not logits and loss, which are no part of what frameworks checkpoint (Megatron-LM's
    TransformerBlock, Hugging Face's GradientCheckpointingLayer). What does not learn has no
    gradient of its weights, which is half of those matmuls.

    Collectives are those of the forward pass the other way round, as `rl.exchanges` sends them:
    where one gathers, the other scatters, and experts' tokens come and go once. Rings of keys and
    values turn for their gradients as well. With sequence parallel Megatron gathers inputs once
    more for gradients of weights, beside the matmuls of the others: left out.
    """
    launches = HOST_PARTS - 1 + _recomputed(t)
    return _hosted(t, _backward, (tokens, squares, micro_batches), launches)


_PassTokens = tuple[ByRank, ByRank, int]  # tokens, squares, micro-batches


def _hosted(
    t: Trainer,
    passed: Callable[[Trainer, _PassTokens], PassSeconds],
    batch: _PassTokens,
    launches: float,
) -> PassSeconds:
    """A pass with what the GPU waits for its host, which launches as much as in so many forward
    passes. What is left to a fabric keeps the GPU busy as well, for as long as without other
    traffic; exchanges of experts keep all ranks as long as the one with the most tokens.
    """
    e, computed = t.model.experts, passed(t, batch)
    layers = e.layers / t.layout.pp if e else 0.0
    host = launches / HOST_PARTS * t.host_layer * layers * batch[2]
    if np.all(host <= computed.seconds):
        return computed
    busy = computed if t.between_servers else passed(replace(t, between_servers=True), batch)
    together = float(np.max(busy.experts)) - busy.experts
    return replace(computed, host=most(0.0, host - busy.seconds - together))


def _recomputed(t: Trainer) -> float:
    """How much of a forward pass the backward pass repeats."""
    return 1.0 if t.recompute == "full" else t.recomputed_share


def _forward(t: Trainer, batch: _PassTokens) -> PassSeconds:
    tokens, squares, micro = batch
    matmul, attention = _matmul(t, tokens, micro), _attention(t, tokens, squares)
    memory = _memory_bound(t, tokens) + pass_kernels(t) * micro * KERNEL_S
    logits = sum(_logits(t, tokens))
    return _exchanged(t, batch, PassSeconds(matmul, attention, memory, logits=logits))


def _logits(t: Trainer, tokens: ByRank) -> tuple[ByRank, ByRank]:
    """Seconds of a forward pass that make logits, and the loss, the mean over stages."""
    ranks = t.layout.tp * t.layout.cp * t.layout.pp
    matmul = 2 * t.model.logits_parameters * tokens / ranks / t.matmul_flops()
    return matmul, LOSS_BYTES / 3 * t.model.vocab * tokens / ranks / t.hbm


def _backward(t: Trainer, batch: _PassTokens) -> PassSeconds:
    once = _forward(t, batch)
    matmul, loss = _logits(t, batch[0])
    computed = PassSeconds(
        (1 + t.learns) * once.matmul,
        ATTENTION_BACKWARD * once.attention,
        2 * once.memory,
        logits=(1 + t.learns) * matmul + 2 * loss,
    )
    turns = CONTEXT_BACKWARD[t.context_exchange]
    layers = replace(once, matmul=once.matmul - matmul, memory=once.memory - loss, logits=0.0)
    return _recomputed(t) * layers + _exchanged(t, batch, computed, turns)


def _exchanged(
    t: Trainer, batch: _PassTokens, computed: PassSeconds, turns: int = 1
) -> PassSeconds:
    """A pass with what its collectives add; context ranks exchange `turns` times what they do in a
    forward pass.
    """
    tokens, _, micro = batch
    return replace(
        computed,
        tensor=_tensor(t, tokens, micro, computed.matmul),
        context=_context(t, tokens, micro, computed.attention, turns),
        experts=_experts(t, tokens, micro),
    )


@dataclass(frozen=True)
class Breakdown:
    """Seconds of one optimizer step: the passes' parts, the pipeline's bubble, parameters and
    gradients, the optimizer.
    """

    passes: PassSeconds
    bubble: float
    data: float
    optimizer: float

    @property
    def seconds(self) -> float:
        """The whole optimizer step, s."""
        return self.passes.seconds + self.bubble + self.data + self.optimizer


def training_step(t: Trainer, sequences: int, length: int, micro_batch: int = 1) -> Breakdown:
    """One optimizer step over `sequences` of `length` tokens, `micro_batch` of them at a time on a
    data-parallel rank. RFabricError where the sequences do not divide among the ranks.
    """
    if sequences % (t.layout.dp * micro_batch):
        raise RFabricError(
            f"training step: {sequences} sequences do not divide into {t.layout.dp} "
            f"data-parallel ranks x micro-batches of {micro_batch}; use a multiple of "
            f"{t.layout.dp * micro_batch}"
        )
    micro = sequences // (t.layout.dp * micro_batch)
    each = micro_batch * length
    passed = t, micro * each, micro * each * length, micro
    ahead, back = forward(*passed), backward(*passed)
    both = ahead + back
    bubble = bubble_share(t.layout, micro, both.logits_share) * both.seconds
    data = data_seconds(t, ahead.seconds / micro, back.seconds / micro, micro)
    return Breakdown(both, bubble, data, optimizer_seconds(t))


def bubble_share(
    layout: Layout, micro_batches: int, logits: ByRank = 0.0, backward: bool = True
) -> ByRank:
    """How much longer a pipeline takes than its work: pp - 1 micro-batches fill and drain it, cut
    by vp when interleaved (Narayanan et al., arXiv 2104.04473, section 2.2).

    The last stage alone makes logits and loss, a share `logits` of what all take for a micro-batch:
    where layers are dealt evenly it is the slowest, w times the mean, and the others wait for it.
    They compute for m w, and fill and drain the pipeline with a chunk of each other stage, (pp - w)
    / vp: over the work, m, that is 1 + (w - 1) + (pp - w) / (vp m), gradients or none.

    Where layers are dealt unevenly, what stands behind the slowest stage hides, and chunks starve:
    these are played operation by operation (`pipeline_play`).

    >>> bubble_share(Layout(pp=4, vp=2), micro_batches=8)
    0.1875
    >>> round(bubble_share(Layout(pp=2), 5, 0.1), 9)  # stages of 9 and 11: 20 + 4 x 11, not 5 x 10
    0.28
    """
    whole = layout.whole_rounds(micro_batches)
    if layout.widest > 1:
        return played(layout, whole, logits, backward) / whole - 1
    slowest = layout.slowest(logits)
    return (layout.pp - slowest) / (layout.vp * whole) + (slowest - 1)


def data_seconds(t: Trainer, ahead: float, back: float, micro_batches: int) -> float:
    """What parameters and gradients among data-parallel ranks add to a step whose micro-batch takes
    `ahead` + `back` s in the mean stage; the stage to which they add the most counts.

    Sharded (FSDP): every micro-batch gathers parameters twice and scatters gradients, which copies
    (HSDP) then all-reduce. Else once a step: gradients beside the last backward pass, parameters
    beside the first forward pass. One layer's worth is never hidden.
    """
    times = [t.layout.times(stage) for stage in range(t.layout.pp)]
    return max(
        _data_seconds(t, stage, some * ahead, some * back, micro_batches)
        for stage, some in enumerate(times)
    )


def _data_seconds(t: Trainer, stage: int, ahead: float, back: float, micro_batches: int) -> float:
    """The same of one stage, in which a micro-batch takes `ahead` + `back` s."""
    layers = t.model.layers / t.layout.pp * t.layout.times(stage)
    whole, learning = t.held[stage], t.learning[stage]
    scatter = t.learns * sum(_among_data_ranks(t, "reduce-scatter", learning, t.gradient_bytes))
    if not t.layout.sharded:
        gather = t.learns * sum(_among_data_ranks(t, "all-gather", learning, BF16_BYTES))
        return _exposed(gather, ahead, layers) + _exposed(scatter, back, layers)
    gather = sum(_among_data_ranks(t, "all-gather", whole, BF16_BYTES))
    summed = t.learns * sum(_among_copies(t, learning))
    return micro_batches * (
        _exposed(gather, ahead, layers) + _exposed(gather + scatter + summed, back, layers)
    )


def optimizer_seconds(t: Trainer, replicated: bool = False) -> float:
    """Adam on one GPU's share, through HBM: gradient and states read, states and bf16 parameters
    written.

    The stage with the largest share counts. replicated: every data-parallel rank holds all states,
    none a part of them.
    """
    share = max(_updated(t, replicated))
    return share * (t.gradient_bytes + 2 * OPTIMIZER_BYTES + BF16_BYTES) / t.hbm


def _updated(t: Trainer, replicated: bool) -> list[float]:
    """Parameters that a GPU of each stage updates."""
    return [
        t.learns * sum(size / (1 if replicated else ranks) for size, ranks in shards)
        for shards in t.learning
    ]


def host_optimizer_seconds(t: Trainer, replicated: bool = False) -> float:
    """Adam on the CPUs of the servers, whose GPUs it serves one after the other; gradients come and
    bf16 parameters go over PCIe. replicated: as `optimizer_seconds`.

    Where pipeline stages share a server, PCIe takes as long as for the GPU that updates the most,
    its CPUs as for the mean of its GPUs; the last server to update counts.
    """
    shares, gpus = _updated(t, replicated), t.gpus_per_server or t.gpu.gpus_per_server
    each = (t.gradient_bytes + BF16_BYTES) / PCIE_BYTES_PER_S
    servers = ([shares[stage] for stage in stages] for stages in t.layout.stages_by_server(gpus))
    return max(max(some) * each + fmean(some) * gpus / HOST_ADAM for some in servers)


def share_recomputed(t: Trainer, micro_batch: float, micro_batches: float = math.inf) -> float:
    """Share of the layers that must recompute their activations, 0 to 1, so that a GPU's HBM holds
    the others', in the stage that must the most.

    micro_batch: tokens of one; micro_batches: of a step. It is Megatron's --recompute-method block,
    with no more layers than needed.
    """
    stages = range(t.layout.pp)
    room = [t.gpu.hbm_bytes - RESERVED_BYTES - state_bytes(t, stage) for stage in stages]
    kept = [activation_bytes(t, micro_batch, stage, micro_batches) for stage in stages]
    needed = (1 - room[stage] / kept[stage] for stage in stages)
    return min(1.0, max(0.0, *needed))


def state_bytes(t: Trainer, stage: int = 0) -> float:
    """Bytes on one GPU of a stage of parameters, gradients added up in fp32, and Adam's states,
    which data-parallel ranks share; adapters alone have these two, and stand beside all parameters.
    Megatron keeps a bf16 copy of its master where it shards them, too (Megatron-FSDP).
    """
    each, adam = parameter_bytes(t.layout.sharded and t.stack is not MEGATRON)

    added = FP32_BYTES * t.learns

    def of(shards: list[tuple[float, int]], whole: float, shared: float) -> float:
        """Bytes of so many a parameter, and of so many of which each rank has a part."""
        return sum(
            size * (whole / (ranks if t.layout.sharded else 1) + shared / ranks)
            for size, ranks in shards
        )

    if t.learns == 1:
        return of(t.held[stage], each + added, adam)
    beside = of(t.learning[stage], t.learns * each + added, t.learns * adam)
    return of(t.held[stage], each, 0.0) + beside


def activation_bytes(
    t: Trainer, micro_batch: float, stage: int = 0, micro_batches: float = math.inf
) -> float:
    """Bytes that the backward pass needs of the micro-batches on their way through a stage of the
    pipeline, of so many of a step, of which the first holds the most where all are alike.

    What matmuls, norms, flash attention and activations read, once each, 8-bit matmuls' inputs in 8
    bits (the accounting of arXiv 2205.05198); tokens copied for their experts; and in the last
    stage the logits with their gradient.
    """
    m, lay = t.model, t.layout
    (queries, keys), stored = attention_columns(m), BF16_BYTES if t.precision == "bf16" else 1
    copies = m.experts.per_token * m.experts.layers / m.layers if m.experts else 0
    # two norms, and what QKV and the MLP read
    columns = 2 * BF16_BYTES * m.hidden + 2 * stored * m.hidden
    columns += 2 * BF16_BYTES * (queries + keys)  # q, k, v and the output
    columns += (3 if m.gated else 2) * BF16_BYTES * m.mlp_columns + copies * (
        2 * BF16_BYTES + stored
    ) * m.hidden
    waiting = lay.times(stage) * lay.in_flight(stage, micro_batches)
    tokens = micro_batch / (lay.cp * lay.tp)
    logits = 3 * BF16_BYTES * m.vocab if stage == lay.pp - 1 else 0
    return tokens * (columns * m.layers / lay.pp * waiting + logits)


def attention_columns(model: Model) -> tuple[int, int]:
    """Columns of the queries of all heads, and of keys or values."""
    if model.latent:
        return model.heads * (
            model.latent.nope + model.latent.rope
        ), model.heads * model.latent.value
    return model.heads * model.head_dim, model.kv_heads * model.head_dim


def _matmul(t: Trainer, tokens: ByRank, micro: int) -> ByRank:
    m, lay = t.model, t.layout
    ranks = lay.tp * lay.cp * lay.pp
    head = m.vocab * m.hidden
    chosen = m.active_parameters - m.dense_parameters
    queries, _ = attention_columns(m)
    depth = 2 * m.hidden + (queries + m.mlp_columns) / lay.tp  # k of its four matmuls
    waves = 2 * WAVE * TILE * SMS * depth * m.layers / lay.pp * micro
    inside = (
        2 * (m.matmul_parameters - head - chosen) * tokens / ranks
        + waves
        + _expert_flops(t, tokens, micro)
    )
    return inside / t.matmul_flops(t.precision) + 2 * head * tokens / ranks / t.matmul_flops()


def _expert_flops(t: Trainer, tokens: ByRank, micro: int) -> ByRank:
    """FLOPs of a GPU's experts, each a matmul of its own; its rows are filled up to whole tiles,
    half a tile on average. As many as other matmuls would do in the time that these take.

    Where etp cuts experts, each GPU multiplies the rows of all etp by its part of the columns.
    """
    e, lay = t.model.experts, t.layout
    if not e:
        return 0.0
    local = e.count / lay.ep * micro
    one = 2 * t.model.expert_parameters / e.count / e.layers / lay.etp
    sent = tokens * e.per_token / (lay.tp * lay.cp)
    rows = lay.etp * sent * t.expert_imbalance + TILE_ROWS / 2 * local
    waves = 2 * WAVE * TILE * SMS * (t.model.hidden + e.intermediate / lay.etp) * local
    return (one * rows + waves) * e.layers / lay.pp / t.grouped


def _attention(t: Trainer, tokens: ByRank, squares: ByRank) -> ByRank:
    """Layers with a window leave out the pairs beyond it, of sequences as long as a token meets on
    average.
    """
    m, lay = t.model, t.layout
    if m.windowed:
        squares = squares - m.windowed / m.kv_layers * most(0.0, squares - 2 * m.window * tokens)
    return m.forward_flops(0, squares) / (lay.tp * lay.cp * lay.pp) / t.attention_flops


def _memory_bound(t: Trainer, tokens: ByRank) -> ByRank:
    m, lay = t.model, t.layout
    (queries, keys), mlp = attention_columns(m), m.mlp_columns
    copies = m.experts.per_token * m.experts.layers / m.layers if m.experts else 0
    # two norms, two residuals, rotation of queries and keys
    columns = 10 * m.hidden + 2 * (queries + keys)
    columns += (3 if m.gated else 2) * mlp  # activation
    # tokens sorted for their experts, sorted again where they arrive, and back; etp gathers there
    columns += 2 * copies * (1 + lay.etp) * m.hidden
    cast = (
        CAST_BYTES * (2 * m.hidden + copies * m.hidden + queries + mlp)
        if t.precision != "bf16"
        else 0
    )
    # these come once, a forward pass counts for itself and twice for the backward one
    once = LOSS_BYTES * m.vocab
    if m.experts and m.experts.biased:
        each = EXPERT_BIAS_BYTES * m.hidden + CLAMP_BYTES * m.experts.intermediate
        once += copies * m.layers * each
    return (
        (m.layers * (BF16_BYTES * columns + cast) + once / 3)
        * tokens
        / (lay.tp * lay.cp * lay.pp)
        / t.hbm
    )


def pass_kernels(t: Trainer) -> float:
    """Kernels of a micro-batch's forward pass, counted: 12 a layer, as many for routing and
    permuting, and three for each expert.
    """
    e = t.model.experts
    sparse = e.layers * (12 + 3 * e.count / t.layout.ep) if e else 0
    return (12 * t.model.layers + sparse) / t.layout.pp


def _tensor(t: Trainer, tokens: ByRank, micro: int, matmul: ByRank) -> ByRank:
    """Two all-reduces a layer and pass, one where experts follow attention (sequence parallel:
    gather and scatter, the same bytes).
    """
    m, lay = t.model, t.layout
    if lay.tp == 1:
        return 0.0
    after_experts = m.experts.layers if m.experts else 0
    count = (ALL_REDUCES_PER_LAYER * m.layers - after_experts) / lay.pp * micro
    size = tokens / micro / lay.cp * m.hidden * BF16_BYTES
    ranks = lay.tp if t.between_servers else min(lay.tp, t.network.domain)
    took = count * collective_of(t, "all-reduce", size, ranks, ranks)
    return took / lay.tp + most(0.0, took - matmul) if t.stack.hides_tensor else took


def _context(t: Trainer, tokens: ByRank, micro: int, attention: ByRank, turns: int) -> ByRank:
    """What context ranks exchange: keys and values, ring by ring beside attention, or all-to-alls
    of queries, keys, values and of the output, beside nothing.
    """
    m, lay = t.model, t.layout
    span = lay.tp * lay.cp
    if lay.cp == 1 or (t.network.domain % span and not t.between_servers):
        return 0.0
    ring = t.context_exchange == "ring"
    size = tokens / micro * context_bytes(t.context_exchange, m, lay.tp, lay.cp) / (lay.cp - 1)
    one = collective_of(t, "all-gather" if ring else "all-to-all", size, lay.cp, span)
    took = turns * m.kv_layers / lay.pp * micro * one
    return most(0.0, took - attention) if ring else took


def _experts(t: Trainer, tokens: ByRank, micro: int) -> ByRank:
    """Dispatch and combine of a pass, bf16 both ways, tokens dealt to tp x cp GPUs (sequence
    parallel); between them, where etp cuts experts, an all-gather of what arrived at its GPUs, and
    a reduce-scatter of what they made of it.
    """
    e, lay = t.model.experts, t.layout
    if not e:
        return 0.0
    own = tokens / micro / (lay.tp * lay.cp)
    each = _among_cut(t, own) + _among_dealt(t, own)
    return DISPATCH_AND_COMBINE * e.layers / lay.pp * micro * each


def _among_dealt(t: Trainer, own: ByRank) -> ByRank:
    """One exchange of `own` tokens of each GPU among those that whole experts are dealt to, which
    stand etp apart.
    """
    e, lay, domain = t.model.experts, t.layout, t.network.domain
    if lay.ep == 1 or (lay.expert_gpus > domain and not t.between_servers):
        return 0.0
    what = Exchange(own, t.model.hidden, e.per_token, e.count)
    group = RankGroup(lay.ep, min(lay.ep, -(-lay.expert_gpus // domain)))
    return exchange_seconds(what, "combine", group, t.network)


def _among_cut(t: Trainer, own: ByRank) -> ByRank:
    """One gather, or scatter, of the copies of tokens at the GPUs that cut experts: as many as
    were sent, on average.
    """
    e, etp = t.model.experts, t.layout.etp
    if etp == 1:
        return 0.0
    size = etp * own * e.per_token * t.model.hidden * BF16_BYTES
    return collective_of(t, "all-gather", size, etp, etp)


def _among_data_ranks(
    t: Trainer, kind: str, shards: list[tuple[float, int]], bytes_per_parameter: float
) -> list[float]:
    lay = t.layout
    span = lay.tp * lay.cp * lay.dp // lay.copies
    return [
        collective_of(t, kind, size * bytes_per_parameter, ranks, span) for size, ranks in shards
    ]


def _among_copies(t: Trainer, shards: list[tuple[float, int]]) -> list[float]:
    """All-reduces of the gradients that a GPU holds, among the GPUs that hold the same of every
    copy.
    """
    copies, stage = t.layout.copies, t.layout.gpus // t.layout.pp
    sizes = [size / ranks * t.gradient_bytes for size, ranks in shards]
    return [collective_of(t, "all-reduce", size, copies, stage) for size in sizes]


def _exposed(communication: float, computing: float, pieces: float) -> float:
    """What a collective in `pieces` beside computing adds: one piece at least, all that does not
    fit, and what it slows down.
    """
    if not communication:
        return 0.0
    left = max(communication / pieces, communication - computing)
    return left + CHANNELS / SMS * (communication - left)


def collective_of(t: Trainer, kind: str, size: ByRank, ranks: int, span: int) -> ByRank:
    """Seconds of a collective among `ranks` GPUs, evenly spaced over `span` GPUs in a row."""
    return collective_seconds(
        kind, size, RankGroup(ranks, min(ranks, -(-span // t.network.domain))), t.network
    )

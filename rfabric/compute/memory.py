"""What fits in HBM: KV cache beside the weights of an engine; parameters, states and activations of
a training rank.

    engine:    weights / (tp pp), those of experts / (ep pp), + KV cache / its shards + what CUDA
               and NCCL hold
    training:  shards of a pipeline stage with gradients and Adam's states + activations of the
               micro-batches that are on their way through it

Bytes on one GPU unless said otherwise. A latent (MLA) cache has no heads to cut, so all tp GPUs
hold all of it.
"""

import math

from .gpus import Gpu
from .layout import Layout
from .models import BF16_BYTES, FP32_BYTES, STORED_BYTES, Model
from .pipeline_stages import StageParameters, held, in_layers, learning, roots

# Share of HBM that an engine takes: the default of vLLM's gpu_memory_utilization.
UTILISATION = 0.9

# CUDA context, NCCL buffers, graphs, workspace: aiconfigurator's h100_sxm.yaml, other_mem.
RESERVED_BYTES = 3_758_096_384
# fp32 master copy and two Adam moments: Rajbhandari et al., ZeRO, arXiv 1910.02054.
OPTIMIZER_BYTES = 12
# Gradients that ZeRO-2 collects before it sums them: DeepSpeed's reduce_bucket_size
# (runtime/zero/config.py).
BUCKET = 5e8
# Activations a token and layer, in hidden bytes / tp, with sequence parallelism: selective
# recomputation (or flash attention) and full recomputation. Korthikanti et al., arXiv 2205.05198,
# Table 2.
ACTIVATION_BYTES = {"selective": 34, "full": 2}


def kv_capacity_tokens(
    model: Model,
    gpu: Gpu,
    tp: int,
    utilisation: float,
    pp: int = 1,
    ep: int | None = None,
    precision: str = "bf16",
    length: float | None = None,
) -> int:
    """Tokens of KV cache that tp x pp GPUs hold beside the weights, in sequences of `length`;
    negative when the weights do not fit.
    """
    weights = engine_weight_bytes(model, tp, pp, ep, precision)
    return int(room_for_kv(gpu, utilisation, weights) // kv_bytes_per_gpu(model, tp, pp, length))


def room_for_kv(gpu: Gpu, utilisation: float, weight_bytes: float) -> float:
    """Bytes of HBM that an engine leaves its KV cache on one GPU; negative when the weights do not
    fit.
    """
    return gpu.hbm_bytes * utilisation - RESERVED_BYTES - weight_bytes


def engine_weight_bytes(
    model: Model,
    tp: int,
    pp: int = 1,
    ep: int | None = None,
    precision: str = "bf16",
    expert_precision: str | None = None,
) -> float:
    """Weights on one GPU of an engine; experts are cut or dealt to `ep` GPUs, those of its tp where
    not said.
    """
    experts = model.expert_parameters * STORED_BYTES[expert_precision or precision]
    others = model.weight_bytes_at(precision) - STORED_BYTES[precision] * model.expert_parameters
    return others / (tp * pp) + experts / ((ep or tp) * pp)


def kv_bytes_per_gpu(model: Model, tp: int, pp: int = 1, length: float | None = None) -> float:
    """KV cache of one token on each GPU that holds a part of it, in all layers with attention.

    length: the mean over a sequence of so many tokens, as engines hold it that tell kinds of layers
    apart (vLLM's hybrid KV cache manager): those with a window keep no more than that, those
    without attention a state however long it is, whose heads all tp GPUs share.
    """
    each = model.kv_bytes_per_token / (kv_shards(model, tp) * pp)
    if length is None:
        return each
    beyond = model.windowed / model.kv_layers * max(0.0, 1 - model.window / length)
    return each * (1 - beyond) + model.state_bytes / (tp * pp * length)


def kv_shards(model: Model, tp: int) -> int:
    """In how many parts `tp` GPUs cut the KV cache: no finer than its heads, beyond which they are
    copied.
    """
    return 1 if model.latent else min(tp, model.kv_heads)


def fewest_gpus(
    model: Model, gpu: Gpu, tokens: int, utilisation: float = UTILISATION, precision: str = "bf16"
) -> int | None:
    """The least power of two of GPUs that serve the model with room for so many tokens of KV cache;
    None: not 1,024 either.

    Tensor parallelism inside a server, then a pipeline over servers.
    """
    for n in (2**i for i in range(11)):
        tp = min(n, gpu.gpus_per_server)
        if (
            n // tp <= model.layers
            and kv_capacity_tokens(model, gpu, tp, utilisation, n // tp, None, precision, tokens)
            >= tokens
        ):
            return n
    return None


def fewest_training_gpus(model: Model, gpu: Gpu) -> int | None:
    """The least power of two of GPUs whose HBM holds parameters, gradients and Adam's states, all
    sharded, without activations.
    """
    states = (sum(parameter_bytes(sharded=True)) + FP32_BYTES) * model.parameters
    return next(
        (n for n in (2**i for i in range(17)) if states / n + RESERVED_BYTES <= gpu.hbm_bytes), None
    )


def parameter_bytes(sharded: bool) -> tuple[int, int]:
    """Bytes of a parameter in training, and of Adam's states beside it.

    Megatron holds a bf16 copy of its fp32 master. Sharded, the master is the parameter, of which
    each layer is gathered in bf16 (PyTorch's `fully_shard`, MixedPrecisionPolicy). With an fp32
    gradient that makes 16 bytes, as many as ZeRO-3's 2 + 2 + 12 (arXiv 1910.02054, section 3.1).

    >>> parameter_bytes(sharded=False), parameter_bytes(sharded=True)
    ((2, 12), (4, 8))
    """
    held = FP32_BYTES if sharded else BF16_BYTES
    return held, OPTIMIZER_BYTES - FP32_BYTES * sharded


def training_bytes(
    model: Model,
    layout: Layout,
    micro_batch_tokens: int,
    grad_bytes: int = FP32_BYTES,
    recompute: str = "selective",
    replicated: bool = False,
    on_host: bool = False,
    critic: bool = False,
    learns: float = 1.0,
    stage: int = 0,
    micro_batches: float = math.inf,
    own_gradients: bool = False,
    ends_apart: bool = False,
    whole_gradients: bool = False,
) -> dict[str, float]:
    """Bytes on one training GPU of a pipeline stage, by what takes them. The first holds the most
    micro-batches at a time (`Layout.in_flight`), and the embedding; the last alone has logits.

    micro_batch_tokens: of one context-parallel rank; grad_bytes: of a gradient that is sent, which
    is held so too, but in fp32 beside a sharded parameter; replicated: every data-parallel rank
    holds all of Adam's states; on_host: none does, they and the master are in the hosts' memory,
    where gradients of what is sharded go as they are made (ZeRO-Offload, arXiv 2101.06840); critic:
    a second model of the same shape, which trains when the first has; learns: share of the
    parameters that have gradients and states, those of adapters (`adapters`), which are held beside
    all others; micro_batches: of an update, at most; own_gradients: a rank has its part of the
    gradients alone, beside a bucket that is on its way (ZeRO-2); ends_apart: embedding and logits
    of sharded parameters are gathered one without the other; whole_gradients: beside a sharded
    parameter those of several micro-batches are added up before they are sent (FSDP's no_sync).
    """
    shards = training_shards(model, layout, held(model, layout)[stage])
    taught = training_shards(model, layout, learning(model, layout, learns)[stage])
    gathers = layout.sharded and any(ranks > 1 for _, ranks in shards)
    kept, learnt = (_shared(some, layout.sharded) for some in (shards, taught))
    states, grads = learns * _shared(taught, not replicated), learns * grad_bytes
    root = _root(model, layout, stage, ends_apart) / layout.tp
    inside = training_shards(model, layout, in_layers(model, layout)[stage])
    layer = sum(size for size, _ in inside) / (model.layers / layout.pp * layout.times(stage))
    each, adam = parameter_bytes(layout.sharded and not on_host)
    adam = 0.0 if on_host else adam * states
    parts = layout.sharded or own_gradients
    added = learns * FP32_BYTES if layout.sharded else grads
    added = 0.0 if parts and on_host else added * _shared(taught, parts)
    if whole_gradients and micro_batches > 1:
        added = grads * _shared(taught, False)
    activation = ACTIVATION_BYTES[recompute] * model.hidden * micro_batch_tokens / layout.tp
    passing = layout.times(stage) * layout.in_flight(stage, micro_batches) / layout.pp
    logits = FP32_BYTES * model.vocab * micro_batch_tokens / layout.tp
    return {
        "parameters": each * (kept + learns * (learns < 1) * learnt),
        "gradients": added,
        "optimizer": adam,
        "activations": activation * model.layers * passing,
        **({"logits": logits} if stage == layout.pp - 1 else {}),
        "reserved": RESERVED_BYTES,
        **({"critic": each * kept + adam} if critic else {}),
        **({"bucket": min(BUCKET, learns * learnt) * grad_bytes} if own_gradients else {}),
        # The layer that computes and the one that is gathered beside it, and a layer's gradients
        # before they are scattered; what is outside of layers, with its gradients in the format of
        # matmuls, from the forward pass to the end of the backward pass.
        **(
            {"gathered": (2 * BF16_BYTES + grads) * layer + (1 + learns) * BF16_BYTES * root}
            if gathers
            else {}
        ),
    }


def _root(model: Model, layout: Layout, stage: int, apart: bool) -> float:
    """Parameters outside of a stage's layers that are gathered at a time."""
    both = roots(model, layout)[stage].dense
    most = max(model.parameters_before_layers, model.logits_parameters)
    return min(both, most) if apart else both


def _shared(shards: list[tuple[float, int]], among_ranks: bool) -> float:
    """Parameters of one GPU, which has all of its shards or its part of what all ranks hold."""
    return sum(size / (ranks if among_ranks else 1) for size, ranks in shards)


def training_shards(
    model: Model, layout: Layout, stage: StageParameters
) -> list[tuple[float, int]]:
    """(parameters on one training GPU of a stage that holds these, how many GPUs hold the same, in
    one copy of what is sharded): of what all tokens pass, and of experts.

    Experts are dealt to `ep` GPUs and not cut by tp, but by `etp` (Megatron's
    expert_tensor_parallel_size), so the GPUs of a stage hold dp x cp x tp / (ep x etp) copies.
    """
    ranks = layout.dp * layout.cp // layout.copies
    shards = [(stage.dense / layout.tp, ranks)]
    if model.experts:
        shards.append((stage.experts / layout.expert_gpus, ranks * layout.tp // layout.expert_gpus))
    return shards

"""What fits in HBM: KV cache beside the weights of an engine; parameters, states and activations of a training rank."""

from typing import TYPE_CHECKING

from .gpus import Gpu
from .models import BF16_BYTES, Model

if TYPE_CHECKING:
    from .workload import Training

# CUDA context, NCCL buffers, graphs, workspace: aiconfigurator's h100_sxm.yaml, other_mem.
RESERVED_BYTES = 3_758_096_384
# fp32 master copy and two Adam moments: Rajbhandari et al., ZeRO, arXiv 1910.02054.
OPTIMIZER_BYTES = 12
# Activations a token and layer, in hidden bytes / tp, with sequence parallelism: selective recomputation (or flash
# attention) and full recomputation. Korthikanti et al., arXiv 2205.05198, Table 2.
ACTIVATION_BYTES = {"selective": 34, "full": 2}


def kv_capacity_tokens(model: Model, gpu: Gpu, tp: int, utilisation: float) -> int:
    """Tokens of KV cache that `tp` GPUs hold beside the weights; negative when the weights do not fit."""
    free = gpu.hbm_bytes * utilisation - RESERVED_BYTES - model.weight_bytes / tp
    return int(free // (model.kv_bytes_per_token / kv_shards(model, tp)))


def kv_shards(model: Model, tp: int) -> int:
    """In how many parts `tp` GPUs cut the KV cache: no finer than its heads, beyond which they are copied."""
    return min(tp, model.kv_heads)


def training_bytes(model: Model, training: "Training", dp: int, recompute: str | None = None) -> dict[str, float]:
    """Bytes on one training GPU, by what takes them; the first stage of a pipeline holds pp micro-batches at a time."""
    t = training
    shards = training_shards(model, t, dp)
    shard = sum(size for size, _ in shards)
    states = sum(size / (ranks if t.optimizer == "distributed" else 1) for size, ranks in shards)
    activation = ACTIVATION_BYTES[recompute or t.recompute] * model.hidden * t.micro_batch_tokens / t.tp
    return {
        "parameters": BF16_BYTES * shard,
        "gradients": t.grad_bytes * shard,
        "optimizer": OPTIMIZER_BYTES * states,
        "activations": activation * model.layers,  # pp micro-batches of layers / pp layers each
        "logits": 4 * model.vocab * t.micro_batch_tokens / t.tp,
        "reserved": RESERVED_BYTES,
    }


def training_shards(model: Model, training: "Training", dp: int) -> list[tuple[float, int]]:
    """(parameters on one training GPU, how many GPUs hold the same): of what all tokens pass, and of experts.

    Experts are dealt to `ep` GPUs and not cut by tp (Megatron's expert_tensor_parallel_size 1), so the GPUs of a stage hold
    dp x cp x tp / ep copies.
    """
    t = training
    shards = [(model.dense_parameters / (t.tp * t.pp), dp * t.cp)]
    if model.experts:
        shards.append((model.expert_parameters / (t.ep * t.pp), dp * t.cp * t.tp // t.ep))
    return shards

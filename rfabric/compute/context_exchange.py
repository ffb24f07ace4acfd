"""What the GPUs of a context-parallel group exchange in each layer with attention, of which each
holds an equal part of a sequence's tokens.

    ring      keys and values go round, cp - 1 steps beside attention; backward they go round once
              more, and their gradients with them (ring attention, arXiv 2310.01889; Megatron-LM's
              context parallelism, which deals a rank one early and one late piece of a sequence,
              so that causal attention takes all ranks the same)
    ulysses   all-to-all: tokens for heads before attention, heads for tokens after it, nothing
              beside either (DeepSpeed-Ulysses, arXiv 2309.14509; verl's
              ulysses_sequence_parallel_size); backward the same with gradients
"""

from .models import BF16_BYTES, Model

CONTEXT_EXCHANGES = ("ring", "ulysses")
# Bytes of a backward pass in those of a forward pass.
CONTEXT_BACKWARD = {"ring": 2, "ulysses": 1}


def context_bytes(kind: str, model: Model, tp: int, cp: int) -> float:
    """Bytes (bf16) that a GPU sends to others of its group for each of its own tokens, in one layer
    of a forward pass.
    """
    queries, keys_and_values, output = _columns(model, tp, cp if kind == "ulysses" else 1)
    if kind == "ring":
        return (cp - 1) * keys_and_values * BF16_BYTES
    return (cp - 1) / cp * (queries + keys_and_values + output) * BF16_BYTES


def _columns(model: Model, tp: int, least_heads: int) -> tuple[float, float, float]:
    """Columns on one of `tp` GPUs of queries, of keys and values, of the output; heads of keys are
    copied where there are fewer than `least_heads` on a GPU.
    """
    if m := model.latent:  # expanded to the keys and values of all heads
        heads = model.heads / tp
        return heads * (m.nope + m.rope), heads * (m.nope + m.rope + m.value), heads * m.value
    queries = model.heads / tp * model.head_dim
    return queries, 2 * max(least_heads, model.kv_heads / tp) * model.head_dim, queries

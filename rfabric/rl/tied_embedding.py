"""Gradients of a tied embedding, which the first pipeline stage looks up and the last multiplies
with: both have a part of them.

    first stage   |.. last backward ..|- buckets -|<== embedding ==>|.. optimizer ..
    last stage    |.. last backward ..|- buckets -|<== embedding ==>|.. optimizer ..

Once an update, when gradients are summed over data-parallel ranks, each GPU of the first stage and
the one at its place in the last sum theirs, whole: Megatron-LM's _allreduce_word_embedding_grads
(megatron/core/distributed/finalize_model_grads.py). Where parameters are sharded in every
micro-batch, and where adapters learn, there is none; nor of a critic, whose value head has one
column in place of a vocabulary (verl builds it with share_embeddings_and_output_weights=False).
"""

from functools import lru_cache

from ..trace import Flows, point_to_point
from .flows import NONE, arrays
from .workload import Workload

LABEL = "embedding"


def is_summed(w: Workload) -> bool:
    """Whether two stages have gradients of one embedding."""
    t = w.training
    return w.model.tied and t.pp > 1 and w.learns == 1 and t.optimizer != "sharded"


def gradient_size(w: Workload) -> float:
    """Bytes that each of the two GPUs sends the other: of two, an all-reduce sends all once."""
    return w.training.grad_bytes * w.model.logits_parameters / w.training.tp


@lru_cache(2)
def summed(w: Workload) -> Flows:
    """What goes between servers."""
    if not is_summed(w):
        return NONE
    last = w.rank(w.training.pp - 1, 0)
    pairs = [(gpu, last + gpu) for gpu in range(w.stage_gpus)]
    both = pairs + [(b, a) for a, b in pairs]
    return arrays(point_to_point(both, gradient_size(w), w.gpus_per_server))

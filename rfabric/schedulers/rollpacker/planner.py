"""The parallelism planner: tensor parallelism of the rollout after the preemptions of the KV cache.

    preemptions rose by more than 1.05 x           -> twice the GPUs a replica
    none in 4 steps since the last change          -> half of them
    else                                           -> as it was

The offline default is the recipe's generation.tp. A replica stays within one server, and a change
that the job does not allow (heads, weights and the longest sequence in HBM, prompts for every
replica) is not made.
"""

from collections.abc import Sequence
from dataclasses import replace

from ...errors import RFabricError
from ...rl.workload import Workload

RISE, QUIET_STEPS = 1.05, 4  # RollPacker (arXiv 2509.21009): thresholds of doubling and of halving


def replanned(tp: int, preempted: Sequence[int]) -> int:
    """The rule alone: tp after the preemptions of the steps since it last changed, the latest
    last.
    """
    if len(preempted) > 1 and preempted[-1] > RISE * preempted[-2]:
        return 2 * tp
    if len(preempted) >= QUIET_STEPS and not any(preempted[-QUIET_STEPS:]):
        return max(tp // 2, 1)
    return tp


def with_tp(w: Workload, tp: int) -> Workload | None:
    """The job with replicas of `tp` GPUs; None where they would leave a server or the job
    refuses.
    """
    if tp > w.gpus_per_server:
        return None
    try:
        return replace(w, generation=replace(w.generation, tp=tp))
    except RFabricError:
        return None

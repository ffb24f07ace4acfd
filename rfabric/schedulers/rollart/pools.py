"""Which engines there are, and which tasks go to which: replicas of the recipe, affinity of tasks
to kinds of GPUs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...compute.gpus import GPUS
from ...errors import RFabricError
from ...rl.timing import server_of
from ...rl.workload import Workload
from .engines import Pool
from .tasks import Task


def affinity(tasks: Sequence[Task], prefill: str, decode: str) -> dict[str, str]:
    """hw_mapping by what tasks are heavy in."""
    return {task.name: prefill if task.heavy == "prefill" else decode for task in tasks}


def with_affinity(
    pools: Sequence[Pool], hw_mapping: Mapping[str, str], tasks: Sequence[Task]
) -> list[Pool]:
    """The pools, each with the tasks that go to its kind of GPU: `hw_mapping` says which, by task
    or as `default`.

    RFabricError for a kind that no pool has.
    """
    kinds = {pool.server.gpu.name for pool in pools}
    for task, kind in hw_mapping.items():
        if kind not in kinds:
            raise RFabricError(
                f"affinity {task}: {kind} is in no pool; there are {', '.join(sorted(kinds))}"
            )
    home = {task.name: hw_mapping.get(task.name, hw_mapping.get("default")) for task in tasks}
    return [
        replace(p, tasks=tuple(t for t, kind in home.items() if kind in (None, p.server.gpu.name)))
        for p in pools
    ]


def pools_of(
    w: Workload, tasks: Sequence[Task], decode_gpu: str | None, decode_gpus: int
) -> list[Pool]:
    """The replicas of the recipe; the last of them on `decode_gpu` where one is named.

    RFabricError for an unknown GPU, or a count that replicas do not divide.
    """
    tp, all_gpus = w.generation.tp, w.cluster.generation_gpus
    if (decode_gpu is None) != (decode_gpus == 0):
        raise RFabricError(
            "scheduler rollart: decode_gpu and decode_gpus go together, such as "
            "decode_gpu=H20,decode_gpus=8"
        )
    server = server_of(w)
    if decode_gpu is None:
        return [Pool(w.gpu.name, server, len(w.replicas))]
    if decode_gpu not in GPUS:
        raise RFabricError(
            f"scheduler rollart: decode_gpu {decode_gpu!r} is not known; use "
            f"one of {', '.join(GPUS)}"
        )
    if decode_gpus % tp or not 0 < decode_gpus < all_gpus:
        raise RFabricError(
            f"scheduler rollart: decode_gpus={decode_gpus} must be a multiple of generation.tp "
            f"{tp} below the {all_gpus} generation GPUs"
        )
    pools = [
        Pool(w.gpu.name, server, (all_gpus - decode_gpus) // tp),
        Pool(decode_gpu, replace(server, gpu=GPUS[decode_gpu]), decode_gpus // tp),
    ]
    if len(tasks) < 2:
        return pools
    return with_affinity(pools, affinity(tasks, w.gpu.name, decode_gpu), tasks)

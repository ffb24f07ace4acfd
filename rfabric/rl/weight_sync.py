"""Weight sync: how the new weights reach the generation replicas, as levels of flows. One interface, a name a strategy.

    flat      training ====> every replica                      each pulls its own copy (verl)    R x S bytes
    tree      training ====> pod 1 ====> pod 2, pod 3, ...      RFabric, arXiv 2601.01209         R x S
    scatter   training ----> S/n to each GPU, then all-gather   Weave, OSDI'26: one copy crosses  S + servers (n-1)/n S

R replicas, S bytes of one bf16 copy, n generation GPUs in several servers. A level begins flow by flow, when what it
passes on has arrived. The shards of training ranks are made whole over NVLink first, which costs the fabric nothing.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..trace import Flows, ring

if TYPE_CHECKING:
    from .workload import Workload


@dataclass(frozen=True)
class Level:
    """Flows that go out together: flow i passes on flow `waits[i]` of the level before; None: all of them."""

    label: str
    flows: Flows
    waits: tuple[int, ...] | None = None


def flat(w: "Workload") -> list[Level]:
    """Every replica pulls its own copy: each GPU its tensor shard from one training GPU, sources spread evenly."""
    return [Level("weights", _pull(w, w.replicas))]


def tree(w: "Workload") -> list[Level]:
    """The replicas of the first generation pod pull; each passes its shards on to replicas of the other pods."""
    first, others = w.pods[0], w.pods[1:]
    fed = [(i % len(first), replica) for pod in others for i, replica in enumerate(pod)]
    tp = w.generation.tp
    src = [first[i][k] for i, _ in fed for k in range(tp)]
    dst = [gpu for _, replica in fed for gpu in replica]
    waits = tuple(i * tp + k for i, _ in fed for k in range(tp))
    levels = [Level("weights", _pull(w, first))]
    return levels + ([Level("fan-out", Flows(src, dst, [_shard(w)] * len(dst)), waits)] if fed else [])


def scatter(w: "Workload") -> list[Level]:
    """Every generation GPU receives its own n-th of the weights; a ring all-gather of their servers the rest."""
    gpus = [gpu for replica in w.replicas for gpu in replica]
    size = w.model.weight_bytes
    across = Flows(_sources(w, len(gpus)), gpus, [size / len(gpus)] * len(gpus))
    local = ring("all-gather", gpus, size, w.gpus_per_server)
    return [Level("weights", across)] + ([Level("fan-out", local)] if local.src else [])


STRATEGIES = {"flat": flat, "tree": tree, "scatter": scatter}


def _pull(w: "Workload", replicas: list[list[int]]) -> Flows:
    gpus = [gpu for replica in replicas for gpu in replica]
    return Flows(_sources(w, len(gpus)), gpus, [_shard(w)] * len(gpus))


def _sources(w: "Workload", count: int) -> list[int]:
    """`count` training GPUs, each taken as often as the others, one more at most."""
    return [i * w.cluster.training_gpus // count for i in range(count)]


def _shard(w: "Workload") -> float:
    return w.model.weight_bytes / w.generation.tp

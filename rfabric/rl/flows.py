"""What each operation of a job sends between servers: flows, with repeated identical transfers of a phase merged.

By label:

    reduce-scatter  gradients of a stage among the ranks that hold it      (n-1)/n x gradient bytes an edge
    all-gather      bf16 parameters the other way                          (n-1)/n x 2 bytes
    all-reduce      gradients, where the optimizer is replicated           2 (n-1)/n x gradient bytes
    tensor          all-reduces of activations, where tp is wider than a server
    pipeline        activations and their gradients between stages, where stages stand in two servers
    experience      tokens and log-probabilities from a replica to a training server
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from ..trace import Flows, point_to_point, ring
from ..units import transfer_seconds
from .models import BF16_BYTES
from .roofline import all_reduce_bytes_per_token

if TYPE_CHECKING:
    from .workload import Workload

NONE = Flows([], [], [])
# int64 token id and fp32 log-probability: what verl's DataProto carries for each token of a response.
EXPERIENCE_BYTES_PER_TOKEN = 12


def gradients(w: "Workload") -> Flows:
    """One of the `buckets` in which the gradients of an update leave."""
    kind = gradient_collective(w)
    return _among_data_ranks(w, kind, w.training.grad_bytes / w.training.buckets)


def gradient_collective(w: "Workload") -> str:
    """The collective that sums gradients: its name is the label of its flows."""
    return "reduce-scatter" if w.training.optimizer == "distributed" else "all-reduce"


def parameters(w: "Workload") -> Flows:
    """The all-gather of bf16 parameters after an update, where the optimizer is distributed."""
    return _among_data_ranks(w, "all-gather", BF16_BYTES) if w.training.optimizer == "distributed" else NONE


def pipeline(w: "Workload", tokens: Sequence[float], forward: int, backward: int) -> Flows:
    """Activations of `tokens` (one count a data-parallel rank) between stages, so often forward and backward."""
    t = w.training
    found = []
    for stage in range(t.pp - 1):
        for d, count in enumerate(tokens):
            size = count * w.model.hidden * BF16_BYTES / (t.tp * t.cp)  # sequence parallel: a rank sends its part
            pairs = [(a, a + w.rank(1, 0)) for a in w.model_ranks(stage, d)]
            if forward:
                found.append(point_to_point(pairs, size * forward, w.gpus_per_server))
            if backward:
                found.append(point_to_point([(b, a) for a, b in pairs], size * backward, w.gpus_per_server))
    return join(found)


def tensor_training(w: "Workload", tokens: Sequence[float], passes: float) -> Flows:
    """All-reduces of `passes` passes over `tokens` (one count a data-parallel rank), where tp leaves a server."""
    t = w.training
    per_token = passes * all_reduce_bytes_per_token(w) / (t.cp * t.pp)
    return join(
        ring("all-reduce", w.tensor_group(stage, d, c), count * per_token, w.gpus_per_server, turn=d % 2)
        for stage in range(t.pp)
        for d, count in enumerate(tokens)
        for c in range(t.cp)
    )


def tensor_generation(w: "Workload", replica: int, tokens: int) -> Flows:
    """All-reduces of a replica's prefill and decode of `tokens`, where tp leaves a server."""
    size = float(tokens) * all_reduce_bytes_per_token(w)
    return ring("all-reduce", w.replicas[replica], size, w.gpus_per_server, turn=replica % 2)


def experience(w: "Workload", replica: int, tokens: int) -> Flows:
    """A replica's responses to the training server whose turn it is: replicas are dealt to servers one by one."""
    servers = w.cluster.training_gpus // w.gpus_per_server
    sink = replica % servers * w.gpus_per_server + replica // servers % w.gpus_per_server
    return Flows([w.replicas[replica][0]], [sink], [float(tokens) * EXPERIENCE_BYTES_PER_TOKEN])


def join(parts: Iterable[Flows]) -> Flows:
    """All the flows of `parts`, in order."""
    parts = list(parts)
    return Flows(*(list(chain.from_iterable(getattr(p, column) for p in parts)) for column in Flows._fields))


def wire_seconds(w: "Workload", flows: Flows) -> float:
    """Seconds `flows` take when nothing but the NICs limits them: the most bytes that a GPU sends or receives."""
    if not flows.src:
        return 0.0
    busiest = max(np.bincount(ends, flows.size).max() for ends in (flows.src, flows.dst))
    return transfer_seconds(float(busiest), w.nic_bps)


def _among_data_ranks(w: "Workload", kind: str, bytes_per_parameter: float) -> Flows:
    """A ring collective in every data-parallel group at once, neighbouring groups opposite ways round."""
    t = w.training
    size = bytes_per_parameter * w.model.parameters / (t.tp * t.pp)
    return join(
        ring(kind, group, size, w.gpus_per_server, turn=i % 2)
        for stage in range(t.pp)
        for i, group in enumerate(w.data_groups(stage))
    )

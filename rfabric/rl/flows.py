"""What each operation of a job sends between servers: flows, with repeated identical transfers of a
phase merged.

By label:

    reduce-scatter  gradients of a stage among ranks that hold it  (n-1)/n x gradient bytes an edge
    all-gather      bf16 parameters the other way                 (n-1)/n x 2 bytes
                    sharded: in every micro-batch, layers twice, of passes for
                    log-probabilities once; others once a micro-batch, or a pass
    all-reduce      gradients, where the optimizer is replicated, or DeepSpeed's: zero2 in every
                    micro-batch                                   2 (n-1)/n x gradient bytes
                    sharded in several copies: in every micro-batch, of each shard among these
    tensor          all-reduces of activations, where tp is wider than a server
    context         keys and values round a ring, or queries, keys, values and the output all to
                    all, where cp is wider than a server: `context_exchange`
    all-to-all      tokens to the GPUs of their experts and back, forward and backward in training,
                    where ep is wider than a server
    ffn             tokens from attention to MLPs and experts and back, in generation, where
                    generation.ffn_gpus hold them
    pipeline        activations and their gradients between stages that stand in two servers
    KV              of prompts, from the GPUs that read them to those that decode, each a part
    embedding       gradients of a tied one, between the first and the last stage: tied_embedding
    experience      tokens and log-probabilities from a replica to a training server
    gather          parameters, where they are sharded, before a weight sync sends them
    weights         where generation is colocated: the parts of a replica's weights that no GPU of
                    its server trains
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np

from ..compute.context_exchange import CONTEXT_BACKWARD, context_bytes
from ..compute.expert_exchange import DISPATCH_AND_COMBINE
from ..compute.models import BF16_BYTES
from ..compute.pipeline_stages import StageParameters
from ..trace import Flows, point_to_point, ring
from ..trace.collectives import all_to_all, by_server
from ..units import transfer_seconds
from .timing import all_reduce_bytes_per_token
from .weight_parts import taken
from .workload import Workload

NONE = Flows([], [], [])
# int64 token id and fp32 log-probability: what verl's DataProto carries for each token of
# a response
EXPERIENCE_BYTES_PER_TOKEN = 12


@lru_cache(2)  # the same for every bucket of every update
def gradients(w: Workload) -> Flows:
    """One of the `buckets` in which the gradients of an update leave; none where those of every
    micro-batch do.
    """
    if w.training.sums_each_micro_batch:
        return NONE
    each = gradient_bytes(w) / w.training.buckets
    return arrays(_among_data_ranks(w, w.training.gradient_collective, w.stages_learning, each))


def gradient_bytes(w: Workload) -> float:
    """Bytes of gradients for a parameter, the mean over those that learn and those that do not."""
    return w.learns * w.training.grad_bytes


@lru_cache(2)
def parameters(w: Workload) -> Flows:
    """The all-gather of bf16 parameters after an update, where ranks update a part each."""
    if not w.training.gathers_updated:
        return NONE
    return arrays(_among_data_ranks(w, "all-gather", w.stages_learning, w.learns * BF16_BYTES))


def gathered(w: Workload) -> Flows:
    """The all-gather of sharded parameters before a weight sync sends them, as verl's; none where
    ranks hold them whole.
    """
    if w.training.optimizer != "sharded":
        return NONE
    return _among_data_ranks(w, "all-gather", w.stages_sent, w.synced * BF16_BYTES)


@lru_cache(2)
def sharded(w: Workload) -> dict[str, Flows]:
    """The all-gather of all parameters of a stage, as a forward pass needs them, the reduce-scatter
    of their gradients and the all-reduce of what each GPU has of these among copies, as a backward
    pass does; where gradients alone are sharded, their all-reduce.
    """
    of, size = w.stages_learning, gradient_bytes(w)
    if w.training.optimizer == "zero2":
        return {"all-reduce": _among_data_ranks(w, "all-reduce", of, size)}
    return {
        "all-gather": _among_data_ranks(w, "all-gather", w.stages_held, BF16_BYTES),
        "reduce-scatter": _among_data_ranks(w, "reduce-scatter", of, size),
        "all-reduce": _among_data_ranks(w, "all-reduce", of, size, copies=True),
    }


@lru_cache(2)
def gathered_again(w: Workload) -> Flows:
    """The all-gather of sharded parameters that a backward pass needs: those of layers. The others
    are FSDP's root, unless training.ends says otherwise, which stays gathered after its forward
    pass (`_post_forward_reshard` in torch/distributed/fsdp/_runtime_utils.py, `_lazy_init` in
    _fully_shard/_fsdp_state.py).
    """
    return arrays(_among_data_ranks(w, "all-gather", w.stages_again, BF16_BYTES))


def pipeline(w: Workload, tokens: Sequence[float], forward: int, backward: int) -> Flows:
    """Activations of `tokens` (one count a data-parallel rank) between stages, so often forward and
    backward, and each time once a chunk (`Layout.handed_on`).
    """
    t = w.training
    if not forward and not backward:
        return NONE
    # sequence parallel: a rank sends its part
    size = np.asarray(tokens, float) * w.model.hidden * BF16_BYTES / (t.tp * t.cp)
    chunks = w.layout.handed_on
    gpus = np.arange(len(chunks) * w.stage_gpus).reshape(-1, w.dp, 1, t.tp * t.cp)
    onward = (gpus + w.stage_gpus) % (t.pp * w.stage_gpus)
    ways = (gpus, onward, forward), (onward, gpus, backward)
    size = np.multiply.outer(chunks, size)[:, :, None, None]
    # stage by stage, rank by rank, one way after the other
    hops = [
        (src, dst, np.broadcast_to(size * times, gpus.shape)) for src, dst, times in ways if times
    ]
    sent = (np.concatenate(column, axis=2).ravel() for column in zip(*hops, strict=True))
    return leaving(w, Flows(*sent))


def tensor_training(w: Workload, tokens: Sequence[float], passes: float) -> Flows:
    """All-reduces of `passes` passes over `tokens` (one count a data-parallel rank), where tp
    leaves a server.

    After experts, which tp does not cut here, there is none: their tokens are dealt instead.
    """
    t, experts = w.training, w.model.experts
    if not w.gpus_per_server % t.tp:
        return NONE  # each group in one server: they begin at multiples of tp
    dealt = experts.layers * w.model.hidden * BF16_BYTES if experts else 0
    per_token = passes * (all_reduce_bytes_per_token(w) - dealt) / (t.cp * t.pp)
    return join(
        ring(
            "all-reduce",
            w.tensor_group(stage, d, c),
            count * per_token * w.stage_times[stage],
            w.gpus_per_server,
            turn=d % 2,
        )
        for stage in range(t.pp)
        for d, count in enumerate(tokens)
        for c in range(t.cp)
    )


def context_training(w: Workload, tokens: Sequence[float], ahead: int, back: int) -> Flows:
    """What context-parallel groups exchange in so many forward and backward passes over `tokens`
    (one count a data-parallel rank), where they leave a server.

    A ring goes from rank to rank, so that only those beside another server use their NICs.
    """
    t = w.training
    if t.cp == 1:
        return NONE
    each = context_bytes(t.context_exchange, w.model, t.tp, t.cp) * w.model.kv_layers / t.pp
    each *= (ahead + back * CONTEXT_BACKWARD[t.context_exchange]) / t.cp
    groups = [
        (w.context_group(stage, d, k), count * each * w.stage_times[stage])
        for stage in range(t.pp)
        for d, count in enumerate(tokens)
        for k in range(t.tp)
    ]
    return join(_among_context_ranks(w, group, size) for group, size in groups)


def _among_context_ranks(w: Workload, group: list[int], size: float) -> Flows:
    """What each GPU of a group sends, `size` bytes of it in all."""
    if w.training.context_exchange == "ulysses":
        whole = size * len(group) / (len(group) - 1)  # with what it keeps
        return all_to_all(group, whole, w.gpus_per_server)
    following = [*group[1:], group[0]]
    pairs = list(zip(group, following, strict=True))
    return point_to_point(pairs, size, w.gpus_per_server)


def experts_training(w: Workload, tokens: Sequence[float], passes: float) -> Flows:
    """Tokens to their experts and back in `passes` passes over `tokens` (one count a data-parallel
    rank).

    Each GPU sends every token of its own to `per_token` experts, which stand evenly on the ep GPUs
    of its group, and gets the results back: between two GPUs goes what one dispatches and what it
    returns to the other. Sequence parallel: the tp x cp GPUs of a data-parallel rank hold equal
    parts of its tokens. One flow a pair stands for all layers of a stage.
    """
    there = dispatch(w, tokens, passes)
    back = dispatch(w, tokens, passes, back=True)
    return Flows(there.src, there.dst, np.add(there.size, back.size)) if len(there.src) else NONE


def dispatch(
    w: Workload,
    tokens: Sequence[float],
    passes: float,
    shares: np.ndarray | None = None,
    back: bool = False,
) -> Flows:
    """Tokens to their experts in `passes` passes, and the results back where `back`: as
    `experts_training`, one way.

    shares: of all tokens, by stage, what the experts of each GPU of a group take (float64[pp, ep]);
    left out: even.
    """
    t, m = w.training, w.model
    if not m.experts or t.ep == 1:
        return NONE
    per_token = passes * m.experts.layers / t.pp * m.experts.per_token * m.hidden * BF16_BYTES
    own = np.repeat(np.asarray(tokens, dtype=float) / (t.tp * t.cp), t.tp * t.cp) * per_token
    own = np.concatenate([own * times for times in w.stage_times])
    pairs = _expert_pairs(w)
    if not len(pairs.src):
        return NONE
    token_of, expert_of = (pairs.dst, pairs.src) if back else (pairs.src, pairs.dst)
    taken = 1 / t.ep
    if shares is not None:
        taken = shares[expert_of // w.stage_gpus, expert_of // t.etp % t.ep]
    return Flows(pairs.src, pairs.dst, own[token_of] * taken)


@lru_cache(1)  # the same for every pass
def _expert_pairs(w: Workload) -> Flows:
    """The pairs of GPUs in two servers that hold experts of one group, stage by stage, as flows of
    nothing (int32). Where experts are cut, those of a group hold the same part of each.
    """
    t = w.training
    gpus = np.arange(t.pp * w.stage_gpus, dtype=np.int32).reshape(-1, t.ep, t.etp)
    groups = gpus.swapaxes(1, 2).reshape(-1, t.ep)
    src, dst = np.repeat(groups, t.ep, axis=1).ravel(), np.tile(groups, t.ep).ravel()
    leaves = src // w.gpus_per_server != dst // w.gpus_per_server
    return Flows(src[leaves], dst[leaves], [])


def experts_generation(w: Workload, replica: int, tokens: int) -> Flows:
    """Tokens of a replica's prefill and decode to their experts and back, where generation.ep is
    wider than a server: as `experts_training`, each GPU `tokens` / ep of its own.
    """
    experts, group = w.model.experts, w.replicas[replica]
    if experts is None or not w.generation.deals_experts:
        return NONE
    passes = DISPATCH_AND_COMBINE * experts.layers * experts.per_token
    own = float(tokens) / len(group) * passes * w.model.hidden * BF16_BYTES
    return all_to_all(group, own, w.gpus_per_server)


def ffn_generation(w: Workload, replica: int, tokens: int) -> Flows:
    """Tokens of a replica's prefill and decode from attention to the FFN and back, in all layers,
    where generation.ffn_gpus hold it; each attention GPU has an equal part of them.

    A token goes to the GPU of each of its experts, which are chosen evenly; of an MLP that all pass
    each server of the FFN gets a copy, a part to each GPU, and returns its sum.
    """
    g, m = w.generation, w.model
    if not g.ffn_gpus:
        return NONE
    attention, ffn = w.replicas[replica][: g.attending], w.replicas[replica][g.attending :]
    chosen = m.experts.layers * m.experts.per_token / len(ffn) if m.experts else 0.0
    value = float(tokens) / len(attention) * m.hidden * BF16_BYTES
    sent = []
    for mates in by_server(ffn, w.gpus_per_server):
        size = value * (chosen + m.mlp_layers_passed / len(mates))
        pairs = [(a, b) for a in attention for b in mates]
        sent += [
            point_to_point(way, size, w.gpus_per_server)
            for way in (pairs, [(b, a) for a, b in pairs])
        ]
    return join(sent)


def tensor_generation(w: Workload, replica: int, tokens: int) -> Flows:
    """All-reduces of a replica's prefill and decode of `tokens`, where tp leaves a server.

    None where a replica is more than tp GPUs: attention replicas stay inside servers.
    """
    if w.generation.gpus > w.generation.tp:
        return NONE
    size = float(tokens) * all_reduce_bytes_per_token(w)
    return ring("all-reduce", w.replicas[replica], size, w.gpus_per_server, turn=replica % 2)


def experience(w: Workload, replica: int, tokens: int) -> Flows:
    """A replica's responses to the training server whose turn it is: replicas are dealt to servers
    one by one.
    """
    return point_to_point(
        [(w.replicas[replica][0], w.response_sink(replica))],
        float(tokens) * EXPERIENCE_BYTES_PER_TOKEN,
        w.gpus_per_server,
    )


def reshard(w: Workload) -> Flows:
    """Weights that colocated replicas gather from other servers: each GPU its tp-th of every stage,
    of every expert.

    A server whose GPUs train a part gets it over NVLink; other parts come from the GPU at the same
    place in their stage, or in turn from the servers that hold its experts. Sharded parameters are
    gathered by all that train, as verl does.
    """
    each = w.synced * BF16_BYTES / w.generation.tp
    of_expert = w.synced * BF16_BYTES / w.generation.gpus
    stages = list(enumerate(w.stages_sent))
    parts = [_stage_weights(w, stage, each * what.dense) for stage, what in stages]
    if w.model.experts:
        parts += [_expert_weights(w, stage, of_expert * what.experts) for stage, what in stages]
    return join([*parts, gathered(w)])


def _stage_weights(w: Workload, stage: int, size: float) -> Flows:
    server, first = w.gpus_per_server, w.rank(stage, 0)
    held = range(first // server, -(-(first + w.stage_gpus) // server))
    pairs = [
        (first + gpu % w.stage_gpus, gpu) for gpu in range(w.gpus) if gpu // server not in held
    ]
    return point_to_point(pairs, size, server)


def _expert_weights(w: Workload, stage: int, size: float) -> Flows:
    server = w.gpus_per_server
    servers = (range(gpu, min(gpu + server, w.gpus)) for gpu in range(0, w.gpus, server))
    sent = [(*ends, size / parts) for gpus in servers for *ends, parts in taken(w, stage, gpus)]
    return Flows(*map(list, zip(*sent, strict=True))) if sent else NONE


def join(parts: Iterable[Flows]) -> Flows:
    """All the flows of `parts`, in order."""
    parts = list(parts)
    return Flows(
        *(list(chain.from_iterable(getattr(p, column) for p in parts)) for column in Flows._fields)
    )


def arrays(flows: Flows) -> Flows:
    """The same flows in arrays: what is read again and again is made of lists once."""
    return Flows(*map(np.asarray, flows)) if len(flows.src) else NONE


def leave(w: Workload, flows: Flows) -> np.ndarray:
    """Which of `flows` leave a server, as a mask."""
    src, dst = (np.asarray(ends, np.int64) // w.gpus_per_server for ends in (flows.src, flows.dst))
    return src != dst


def leaving(w: Workload, flows: Flows) -> Flows:
    """Those of `flows` that leave a server."""
    kept = np.flatnonzero(leave(w, flows))
    return Flows(*(np.asarray(column)[kept] for column in flows)) if len(kept) else NONE


def wire_seconds(w: Workload, flows: Flows) -> float:
    """Seconds `flows` take when nothing but the NICs limits them: the most bytes that a GPU sends
    or receives.
    """
    if not len(flows.src):
        return 0.0
    busiest = max(np.bincount(ends, flows.size).max() for ends in (flows.src, flows.dst))
    return transfer_seconds(float(busiest), w.nic_bps)


def _among_data_ranks(
    w: Workload,
    kind: str,
    of: Sequence[StageParameters],
    bytes_per_parameter: float,
    copies: bool = False,
) -> Flows:
    """A ring collective `of` these parameters of each stage in each copy of every data-parallel
    group at once, or of what each GPU has among the `copies`; neighbouring groups go opposite ways
    round.
    """
    t = w.training
    kinds = [(w.data_groups, [bytes_per_parameter * stage.dense / t.tp for stage in of])]
    if w.model.experts:
        sizes = [bytes_per_parameter * stage.experts / t.expert_gpus for stage in of]
        kinds.append((w.expert_groups, sizes))
    held = (
        (i, w.of_copies(group), size)
        for groups, sizes in kinds
        for stage, size in enumerate(sizes)
        for i, group in enumerate(groups(stage))
    )
    return join(
        ring(kind, ranks, size / len(each[0]) if copies else size, w.gpus_per_server, turn=i % 2)
        for i, each, size in held
        if len(each) > 1 or not copies
        for ranks in (map(list, zip(*each, strict=True)) if copies else each)
    )

"""Bytes that each label of a step sends between servers, by closed form: what a trace must come to,
worked out without a flow.

    collective of n ranks in m servers, m > 1    factor (n-1)/n S on each of m server to server
                                                 edges: m factor (n-1)/n S
    pipeline          (tokens x hidden x 2 bytes) / (tp cp) for each GPU whose next stage is in
                      another server, there and back; x vp, from the last to the first x (vp - 1)
    context           ring: a collective of the keys and values of a group's tokens, n = cp, forward
                      once and backward twice; ulysses: of queries, keys, values and output
                      1 - (sum over servers of (GPUs there / cp)^2), forward and backward
    all-to-all        tokens x experts a token x hidden x 2 bytes, there and back, of what goes to
                      experts outside the server, in training and where generation.ep is wider than
                      one
    ffn               tokens x hidden x 2 bytes, there and back, for each expert of a token and each
                      server of the FFN whose MLP it passes, of attention GPUs in other servers
    KV                prompt tokens x KV bytes a token, of a window in layers that have one, and
                      states, of the GPUs whose partner that reads is in another server
    action            text of all tokens but those of last turns, ceil(tokens / turns) a response
    observation       (min(turns, tokens) - 1) x (text of an observation + what it holds beside)
    reward            text of prompts and responses + what calls carry beside
    experience        12 bytes a token of each replica whose sink is in another server
    embedding         gradients of vocabulary x hidden / tp, there and back, for each GPU of the
                      first stage whose place in the last is in another server
    all-reduce        sharded in several copies: a collective of S / (tp pp n), n = GPUs of a copy,
                      among the GPUs that hold the same shard
    gather            sharded parameters before they are sent: S / (tp pp) in a data-parallel group
    weights           flat, delta, p2p: R x C; tree: the first pod's replicas x C; rank0: C;
                      scatter: S; relay: pods x S
    fan-out           what replicas, or servers, pass on to other servers

S, R: bytes of a copy, replicas; C: what a replica takes, S but where generation.ep shares experts
among attention replicas: each its own copy of the rest. Where stages of a pipeline share a server,
what colocated replicas take over has no closed form.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ..compute.expert_exchange import DISPATCH_AND_COMBINE
from ..compute.layout import ALL_REDUCES_PER_LAYER
from ..compute.models import BF16_BYTES, STORED_BYTES
from ..compute.pipeline_stages import StageParameters
from ..errors import RunError
from ..trace import Trace
from ..trace.collectives import RING_FACTOR
from . import flows, tied_embedding
from .exchanges import EXPERTS, FFN, training_passes
from .phases import Step, Trained
from .weight_parts import sent_as
from .weight_sync import sync_bytes
from .workload import Workload

ROUNDING = 1e-9  # relative: of sums in another order


def check_bytes(trace: Trace, w: Workload, steps: Sequence[Step], phases: Iterable[str]) -> None:
    """RunError where a label of one of `phases` sends in some step other than its formula says,
    sizes rounded up to bytes.
    """
    kinds = {
        "generation": generation_bytes,
        "training": training_bytes,
        "weight_sync": sync_bytes_of,
    }
    sent = trace.communication()
    for step in steps:
        for phase in phases:
            said = kinds[phase](w, step)
            labels = {
                label for number, kind, label in sent if (number, kind) == (step.number, phase)
            }
            for label in labels | said.keys():
                rows = sent.get((step.number, phase, label), np.zeros(0, np.int64))
                _same(f"{phase}/{step.number} {label}", said.get(label, 0.0), trace, rows)


def _same(name: str, said: float | None, trace: Trace, rows: np.ndarray) -> None:
    if said is None:
        return
    total, rounded = int(trace.total[rows].sum()), int(trace.times_sent[rows].sum())
    slack = ROUNDING * said + 1  # a byte: of nothing, too, sums leave a rest
    if not said - slack <= total <= said + rounded + slack:
        raise RunError(f"{name}: the trace sends {total:,} bytes, its formula says {said:,.0f}")


def generation_bytes(w: Workload, step: Step) -> dict[str, float]:
    """Of each label of generation."""
    sent, made = Counter(), step.generated
    training_servers = -(-w.cluster.training_gpus // w.gpus_per_server)
    for r, replica in enumerate(w.decoding):
        if w.prefilling:
            reader = w.prefilling[r % len(w.prefilling)]
            kept = _kept(w, made.prompts[r][:: w.generation.group_size])
            sent["KV"] += kept * _apart(w, [(reader, replica)]) / w.generation.gpus
        all_reduced = ALL_REDUCES_PER_LAYER * w.model.layers * w.model.hidden * BF16_BYTES
        tokens = made.computed_tokens(r, w.generation.group_size)
        if w.generation.ffn_gpus:
            sent[FFN] += tokens * _to_ffn_and_back(w, replica)
        elif w.generation.gpus == w.generation.tp:
            sent["tensor"] += _ring(w, "all-reduce", replica, tokens * all_reduced)
        else:
            sent[EXPERTS] += _served_by_experts(w, replica, tokens)
        if replica[0] // w.gpus_per_server != r % training_servers:
            sent["experience"] += made.response_tokens(r) * flows.EXPERIENCE_BYTES_PER_TOKEN
    return sent | _to_cpu_servers(w, np.concatenate(made.prompts), np.concatenate(made.outputs))


def _kept(w: Workload, prompts: np.ndarray) -> float:
    """KV cache and states of prompts once they are read."""
    m = w.served
    seen = m.windowed * np.minimum(prompts, m.window) + (m.kv_layers - m.windowed) * prompts
    return float(seen.sum()) * m.kv_layer_bytes + len(prompts) * m.state_bytes


def _to_cpu_servers(w: Workload, prompts: np.ndarray, outputs: np.ndarray) -> dict[str, float]:
    """Of environments and rewards."""
    e, g = w.environments, w.generation
    if not e.servers:
        return {}
    last = -(-outputs // g.turns)  # tokens of the last turn, after which nobody is asked
    answers = int(np.minimum(outputs, g.turns).sum()) - len(outputs)
    texts = int(prompts.sum() + outputs.sum()) * e.text_bytes
    return {
        "action": float((outputs - last).sum()) * e.text_bytes,
        "observation": answers * (g.observation * e.text_bytes + e.observation_bytes),
        "reward": (texts + len(outputs) * e.reward_bytes) if e.rewards else 0.0,
    }


def _served_by_experts(w: Workload, replica: Sequence[int], tokens: int) -> float:
    """Tokens of a replica to experts in other servers and back."""
    here = np.bincount([gpu // w.gpus_per_server for gpu in replica]) / len(replica)
    passes = w.model.experts.layers * w.model.experts.per_token * (1 - float((here**2).sum()))
    return DISPATCH_AND_COMBINE * tokens * passes * w.model.hidden * BF16_BYTES


def _to_ffn_and_back(w: Workload, replica: Sequence[int]) -> float:
    """Of a token, what crosses between servers in all layers."""
    m, size, attending = w.model, w.gpus_per_server, w.generation.attending
    attention, ffn = (
        Counter(gpu // size for gpu in some) for some in (replica[:attending], replica[attending:])
    )
    here = {server: attention[server] / attending for server in ffn}
    copies = m.mlp_layers_passed * sum(1 - share for share in here.values())
    if m.experts:
        stays = sum(share * ffn[server] for server, share in here.items()) / w.generation.ffn_gpus
        copies += m.experts.layers * m.experts.per_token * (1 - stays)
    return DISPATCH_AND_COMBINE * copies * m.hidden * BF16_BYTES


def training_bytes(w: Workload, step: Step) -> dict[str, float]:
    """Of each label of training, all updates together."""
    t, trained, sent = w.training, step.trained, Counter()
    ahead, updates = t.log_prob_passes, len(trained.mini_batches)
    micro = sum(b.micro_batches for b in trained.mini_batches)
    both = [
        (trained.log_prob_tokens, ahead, ahead, 0),
        *((b.tokens, training_passes(w), 2, 1) for b in trained.mini_batches),
    ]
    for tokens, passes, hops, back in both:
        sent["context"] += _context(w, tokens, passes, back)
        sent["pipeline"] += hops * _between_stages(w, tokens)
        sent["tensor"] += passes * _tensor(w, tokens)
        sent[EXPERTS] += passes * _to_experts(w, tokens, trained)
    of, grads = w.stages_learning, flows.gradient_bytes(w)
    sums = micro if t.sums_each_micro_batch else updates
    if t.optimizer == "sharded":
        layers = 2 * micro + ahead * trained.log_prob_micro_batches
        again = _data_parallel(w, "all-gather", w.stages_again, BF16_BYTES)
        root = _data_parallel(w, "all-gather", w.stages_held, BF16_BYTES) - again
        sent["all-gather"] += layers * again + (micro + ahead) * root
        sent["reduce-scatter"] += sums * _data_parallel(w, "reduce-scatter", of, grads)
        sent["all-reduce"] += sums * _copies_summed(w, of, grads)
        return sent
    sent[t.gradient_collective] += sums * _data_parallel(w, t.gradient_collective, of, grads)
    policies = sum(not batch.critic for batch in trained.mini_batches)
    sent[tied_embedding.LABEL] += policies * _embedding_summed(w)
    if t.gathers_updated:
        sent["all-gather"] += updates * _data_parallel(w, "all-gather", of, w.learns * BF16_BYTES)
    return sent


def sync_bytes_of(w: Workload, step: Step) -> dict[str, float | None]:
    """Of each label of a weight sync, the same in every step; None where there is no closed
    form.
    """
    if w.colocated:
        return {"weights": _taken_over(w)}
    if w.cluster.training_gpus % w.gpus_per_server:  # a server that trains and generates: some of
        return dict.fromkeys(("weights", "fan-out", "gather"))  # the weights stay inside
    gathers = w.training.optimizer == "sharded" and w.weight_sync.strategy != "p2p"
    return _copies(w) | (_gathered(w) if gathers else {})


def _gathered(w: Workload) -> dict[str, float]:
    return {"gather": _data_parallel(w, "all-gather", w.stages_sent, w.synced * BF16_BYTES)}


def _copies(w: Workload) -> dict[str, float]:
    """What the strategy sends."""
    size, replicas, strategy = sync_bytes(w), w.replicas, w.weight_sync.strategy
    parts = _engine_parts(w)
    engine = size * sum(parts)  # its own copies of what all tokens pass, experts once
    if strategy == "scatter":
        return {
            "weights": size,
            "fan-out": _ring(w, "all-gather", range(w.first_generation_gpu, w.gpus), size),
        }
    if strategy == "relay":
        apart = sum(
            (_servers(w, [gpu, pod[0][0]]) - 1) * part
            for pod in w.pods
            for replica in pod
            for gpu, part in zip(replica, parts, strict=True)
        )
        return {"weights": len(w.pods) * size, "fan-out": apart * size}
    if strategy == "tree":
        first, *others = w.pods
        fed = [(first[i % len(first)], replica) for pod in others for i, replica in enumerate(pod)]
        return {"weights": len(first) * engine, "fan-out": _apart(w, fed, parts) * size}
    # in each level, replica i of those that have it feeds the i-th of those that have not
    if strategy == "rank0":
        fed = [
            (replicas[i - (1 << i.bit_length() - 1)], replicas[i]) for i in range(1, len(replicas))
        ]
        return {"weights": engine, "fan-out": _apart(w, fed, parts) * size}
    return {"weights": len(replicas) * engine}


def _engine_parts(w: Workload) -> list[float]:
    """The share of a copy that each GPU of a replica takes."""
    g, m, stored = w.generation, w.model, sent_as(w)
    each = STORED_BYTES[stored] / m.weight_bytes_at(stored)  # of a matrix in a layer
    experts = each * m.expert_parameters
    if not g.ffn_gpus:
        return [(1 - experts) / g.tp + experts / g.gpus] * g.gpus
    ffn = experts + each * m.mlp_parameters
    return [(1 - ffn) / g.tp] * g.attending + [ffn / g.ffn_gpus] * g.ffn_gpus


def _servers(w: Workload, gpus: Iterable[int]) -> int:
    return len({gpu // w.gpus_per_server for gpu in gpus})


def _ring(w: Workload, kind: str, gpus: Sequence[int], size: float) -> float:
    """Bytes between servers of a collective of `size` bytes."""
    servers = _servers(w, gpus)
    return servers * RING_FACTOR[kind] * (len(gpus) - 1) / len(gpus) * size if servers > 1 else 0.0


def _apart(
    w: Workload,
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    parts: Sequence[float] | None = None,
) -> float:
    """How many GPUs of replicas are fed from another server; with `parts`, each GPU's counts."""
    parts = parts or [1.0] * w.generation.gpus
    return sum(
        (_servers(w, (x, y)) - 1) * part
        for a, b in pairs
        for x, y, part in zip(a, b, parts, strict=True)
    )


def _data_parallel(
    w: Workload, kind: str, of: Sequence[StageParameters], bytes_per_parameter: float
) -> float:
    """A collective `of` these parameters of each stage, or of their gradients, in each copy of
    every data-parallel group.
    """
    return sum(
        _ring(w, kind, group[first : first + len(group) // w.copies], size)
        for group, size in _held_alike(w, of, bytes_per_parameter)
        for first in range(0, len(group), len(group) // w.copies)
    )


def _copies_summed(w: Workload, of: Sequence[StageParameters], bytes_per_parameter: float) -> float:
    """All-reduces of each shard among the copies."""
    return sum(
        _ring(w, "all-reduce", group[shard :: len(group) // w.copies], size * w.copies / len(group))
        for group, size in _held_alike(w, of, bytes_per_parameter)
        for shard in range(len(group) // w.copies)
    )


def _held_alike(
    w: Workload, of: Sequence[StageParameters], bytes_per_parameter: float
) -> Iterator[tuple[list[int], float]]:
    """The GPUs of every data-parallel group, and the bytes of what they hold."""
    for stage, what in enumerate(of):
        for groups, parameters, ways in (
            (w.data_groups, what.dense, w.training.tp),
            (w.expert_groups, what.experts, w.training.expert_gpus),
        ):
            for group in groups(stage) if parameters else ():
                yield group, bytes_per_parameter * parameters / ways


def _embedding_summed(w: Workload) -> float:
    """A tied embedding's gradients, to and from the first stage and the last."""
    if not tied_embedding.is_summed(w):
        return 0.0
    away = w.rank(w.training.pp - 1, 0)
    apart = sum(_servers(w, (gpu, gpu + away)) - 1 for gpu in range(w.stage_gpus))
    return 2 * apart * w.training.grad_bytes * w.model.vocab * w.model.hidden / w.training.tp


def _between_stages(w: Workload, tokens: np.ndarray) -> float:
    """Activations of one pass, one way."""
    t, server = w.training, np.arange(w.training.pp * w.stage_gpus) // w.gpus_per_server
    leaves = server != np.roll(server, -w.stage_gpus)
    each = leaves.reshape(t.pp, w.dp, t.tp * t.cp).mean(axis=2)  # of a rank's tp x cp GPUs
    times = np.where(np.arange(t.pp) < t.pp - 1, t.vp, t.vp - 1)
    return float(times @ (each * tokens).sum(axis=1)) * w.model.hidden * BF16_BYTES


def _tensor(w: Workload, tokens: np.ndarray) -> float:
    """All-reduces of activations in one pass; none after experts."""
    t, m = w.training, w.model
    reduces = ALL_REDUCES_PER_LAYER * m.layers - (m.experts.layers if m.experts else 0)
    each = reduces * m.hidden * BF16_BYTES / (t.cp * t.pp)
    ranks = ((stage, d, c) for stage in range(t.pp) for d in range(w.dp) for c in range(t.cp))
    return sum(
        _ring(
            w,
            "all-reduce",
            w.tensor_group(*rank),
            float(tokens[rank[1]]) * each * w.stage_times[rank[0]],
        )
        for rank in ranks
    )


def _context(w: Workload, tokens: np.ndarray, passes: int, back: int) -> float:
    """Keys and values round context-parallel rings, or tokens for heads, in so many passes of which
    `back` go backward.
    """
    t, m = w.training, w.model
    if t.cp == 1:
        return 0.0
    keys, values = (
        (m.latent.nope + m.latent.rope, m.latent.value) if m.latent else (m.head_dim, m.head_dim)
    )
    ring = t.context_exchange == "ring"
    own = m.heads if m.latent else max(m.kv_heads, t.tp if ring else t.tp * t.cp)
    columns = own * (keys + values) + (0 if ring else m.heads * (keys + values))
    mean = columns / t.tp * BF16_BYTES * m.kv_layers / t.pp * (passes + (back if ring else 0))
    total = 0.0
    for stage, times in enumerate(w.stage_times):
        token = mean * times
        for rank, count in enumerate(tokens):
            group = w.context_group(stage, rank, 0)
            stays = np.bincount([gpu // w.gpus_per_server for gpu in group]) / t.cp
            leaves = (1 - float((stays**2).sum())) * float(count) * token
            total += _ring(w, "all-gather", group, float(count) * token) if ring else leaves
    return t.tp * total


def _to_experts(w: Workload, tokens: np.ndarray, trained: Trained) -> float:
    """Tokens to experts in other servers and back, in one pass."""
    t, experts = w.training, w.model.experts
    if not experts or t.ep == 1:
        return 0.0
    shares = np.full((1, t.pp, t.ep), 1 / t.ep) if trained.routing is None else trained.routing
    own = np.repeat(tokens / (t.tp * t.cp), t.tp * t.cp)
    place = np.arange(w.stage_gpus)
    leaving = 0.0
    # of all tokens, what the experts of each GPU of a group take
    for stage, share in enumerate(shares.mean(axis=0)):
        gpu = place + w.rank(stage, 0)
        group = place // t.expert_gpus * t.etp + place % t.etp  # the same part of each expert
        beside, here = np.unique(group * w.gpus + gpu // w.gpus_per_server, return_inverse=True)
        stays = np.bincount(here, share[place // t.etp % t.ep], minlength=len(beside))[here]
        leaving += float((own * (1 - stays)).sum()) * w.stage_times[stage]
    layers = experts.layers / t.pp
    return DISPATCH_AND_COMBINE * leaving * layers * experts.per_token * w.model.hidden * BF16_BYTES


def _taken_over(w: Workload) -> float | None:
    """Weights that colocated replicas take from other servers, where no server holds two stages, or
    parts of several groups of experts.
    """
    t, m, server = w.training, w.model, w.gpus_per_server
    if w.stage_gpus % server or (server % t.expert_gpus and t.expert_gpus % server):
        return None
    each, total = w.synced * BF16_BYTES / (w.generation.tp * t.pp), 0.0
    of_expert = w.synced * BF16_BYTES / (w.generation.gpus * t.pp)
    total += t.pp * (w.gpus - w.stage_gpus) * each * m.dense_parameters
    if m.experts:
        # servers over which the experts of a stage lie: one of them is a GPU's own
        homes = -(-t.expert_gpus // server)
        total += (t.pp * w.gpus - w.gpus / homes) * of_expert * m.expert_parameters
    return total + (
        _data_parallel(w, "all-gather", w.stages_sent, w.synced * BF16_BYTES)
        if t.optimizer == "sharded"
        else 0.0
    )

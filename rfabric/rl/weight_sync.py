"""Weight sync: how the new weights reach the generation replicas, as levels of flows.

One interface, a name a strategy:

    name     how                                       who, arXiv             bytes
    flat     training ==> every replica, each its own  verl                   R x S
    tree     training ==> pod 1 ==> pod 2, pod 3, ...  RFabric, 2601.01209    R x S
    scatter  training --> S/n to each GPU, all-gather  Weave, OSDI'26: one    S + servers (n-1)/n S
                                                       copy crosses
    rank0    DP rank 0 ==> replica 1, which and who    StreamRL, 2504.15930   R x S, S of it crosses
             has it ==> another, doubling each time
    relay    training --> one server's memory a pod    RollArt, 2512.22560;   pods x S, then what
             ==> replicas pull when it is whole        Laminar, 2510.12633    is pulled elsewhere
    p2p      each shard straight from a GPU that       Perplexity, le.qun.ch  R x S
             holds it                                  2025-09-17
    delta    as flat, but only what changed            SparrowRL, 2602.11456  R x S x delta_factor

R replicas, S bytes of one copy, n generation GPUs in several servers. A level begins flow by flow,
when what it passes on has arrived. A stage of the pipeline has its own layers, the first the
embedding and the last the matrix of the logits; where experts or tensors are dealt to more than one
server, a server has its own part of them: every byte comes from a GPU that holds it. Shards that
ranks of one server hold are made whole over NVLink first, which costs the fabric nothing (not in
p2p, where each rank sends what it holds). Parameters that training shards over servers are gathered
by a level of their own before these (`traffic.weight_levels`).

Who sends: all GPUs that hold a part share its wire, one a stage packs. `weight_sync.senders` names
so many GPUs of a stage that gather, pack and send, each through `weight_sync.nics` NICs of its
server. In rank0 and p2p who sends is the strategy's own.

Besides the wire there is software, calibrated in sync_time:

    seconds = set-up + max(wire, packing) + gathering + loading
    packing    S / PACK by one sender; by all training GPUs together in scatter and p2p
    gathering  tensor by tensor, the rest of S / UNPACK and TENSOR for each matrix of an expert, by
               the senders each its own part; none in p2p, which writes in place
    loading    S / LOAD; an n-th of S / UNPACK with gathering in scatter; none in p2p
    comparing  in delta, each rank its shard with what was sent last, from host memory

With `weight_sync.gather=bucket` training gathers over NVLink what fills a bucket at once: packing
is what a pair of GPUs sends through a NIC, and neither set-up nor gathering is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..compute.between import NIC_REACHED
from ..compute.models import BF16_BYTES
from ..compute.sync_time import (
    GROUP_SETUP,
    LOAD,
    PACK,
    UNPACK,
    comparing,
    expert_tensors,
    one_pair,
    unpacking,
)
from ..trace import Flows, ring
from .flows import NONE, join, leaving, wire_seconds
from .weight_parts import copy_bytes, needs, overlaps, slices, stages_of_copy
from .workload import Workload


@dataclass(frozen=True)
class Level:
    """Flows that go out together: flow i begins after flow `waits[i]` of the level before, which
    brought what it passes on or kept its sender busy; None: after all of them.
    """

    label: str
    flows: Flows
    waits: tuple[int, ...] | None = None


@dataclass(frozen=True)
class HeldShare:
    """A `share` of the weights, and the GPUs that hold it or can make it whole over NVLink.

    taken: the share that a GPU takes of it, times generation.tp: less than `share` where
    generation.ep deals experts to more. experts, mlps: the share that is experts, and MLPs that all
    tokens pass.
    """

    share: float
    gpus: tuple[int, ...]
    taken: float
    experts: float
    mlps: float

    def of_gpus(self, w: Workload) -> list[float]:
        """Bytes that each GPU of a replica takes of it."""
        g, size = w.generation, sync_bytes(w)
        if not g.ffn_gpus:
            return [size / g.tp * self.taken] * g.gpus
        attends = (self.share - self.experts - self.mlps) / g.tp
        ffn = (self.experts + self.mlps) / g.ffn_gpus
        return [size * attends] * g.attending + [size * ffn] * g.ffn_gpus


def flat(w: Workload) -> list[Level]:
    """Every replica pulls its own copy: each GPU its tensor shard from GPUs that hold it, sources
    spread evenly.
    """
    return [Level("weights", _pull(w, w.replicas, held_shares(w)))]


def tree(w: Workload) -> list[Level]:
    """The replicas of the first generation pod pull; each passes its shards on to replicas of the
    other pods.
    """
    first, others = w.pods[0], w.pods[1:]
    held = held_shares(w)
    fed = [(i % len(first), replica) for pod in others for i, replica in enumerate(pod)]
    pulled = len(first) * w.generation.gpus
    return [
        Level("weights", _pull(w, first, held)),
        *_pass_on(w, held, [(first[i], r, i) for i, r in fed], pulled),
    ]


def scatter(w: Workload) -> list[Level]:
    """Every generation GPU receives its own n-th of the weights; a ring all-gather of their servers
    the rest.
    """
    gpus = [gpu for replica in w.replicas for gpu in replica]
    local = ring("all-gather", gpus, sync_bytes(w), w.gpus_per_server)
    return [Level("weights", _dealt(w, gpus))] + (
        [Level("fan-out", local)] if len(local.src) else []
    )


def rank0(w: Workload) -> list[Level]:
    """Data-parallel rank 0 sends one copy; those replicas that have it pass it on, twice as many
    each time.
    """
    held, done, pulled = held_shares(w, first_rank=True), 1, w.generation.gpus
    levels = [Level("weights", _pull(w, w.replicas[:1], held))]
    while done < len(w.replicas):
        fed = w.replicas[done : 2 * done]
        # replica i sends after it received from, or sent to, the pair i of the level before
        before = max(done // 2, 1)
        levels += _pass_on(
            w, held, [(w.replicas[i], r, i % before) for i, r in enumerate(fed)], pulled
        )
        done, pulled = done + len(fed), len(fed) * w.generation.gpus
    return levels


def relay(w: Workload) -> list[Level]:
    """One copy goes to a server's memory in each pod, over all its NICs; replicas on other servers
    pull from there.
    """
    pushed, pulled = [], []
    for pod in w.pods:
        store = _server_mates(w, pod[0][0])
        pushed.append(_dealt(w, store))
        pulled += [_from_store(w, store, replica) for replica in pod]
    fan_out = join(pulled)
    return [Level("weights", join(pushed))] + (
        [Level("fan-out", fan_out)] if len(fan_out.src) else []
    )


def p2p(w: Workload) -> list[Level]:
    """Every training rank sends what it holds of each shard straight to the GPU that needs it;
    ranks take turns.
    """
    shards = [
        _shards(w, r, k, gpu)
        for r, replica in enumerate(w.replicas)
        for k, gpu in enumerate(replica)
    ]
    return [Level("weights", join(shards))]


STRATEGIES = {
    "flat": flat,
    "tree": tree,
    "scatter": scatter,
    "rank0": rank0,
    "relay": relay,
    "p2p": p2p,
    "delta": flat,
}


@lru_cache(2)
def levels(w: Workload) -> tuple[Level, ...]:
    """What the job's strategy sends, made once: software, plan and trace read the same."""
    return tuple(STRATEGIES[w.weight_sync.strategy](w))


def sync_bytes(w: Workload) -> float:
    """Bytes of one copy as it is sent: at the precision of weight_sync, only what changed where the
    strategy is `delta`.
    """
    sync = w.weight_sync
    return w.synced * copy_bytes(w) * (sync.delta_factor if sync.strategy == "delta" else 1)


@lru_cache(2)  # of every step
def software_seconds(w: Workload) -> float:
    """What set-up, packing and unpacking add to the seconds on the wire; what the recipe's
    efficiency leaves, where it has one.
    """
    return sum(software_parts(w).values())


def software_parts(w: Workload) -> dict[str, float]:
    """The seconds of `software_seconds` by what takes them; `pack`: beyond those on the wire."""
    wire = sum(wire_seconds(w, leaving(w, level.flows)) for level in levels(w))
    if w.weight_sync.efficiency:
        return {"efficiency": wire * (1 / w.weight_sync.efficiency - 1)}
    setup, packing, rest = _software(w)
    return {"setup": setup, "pack": max(wire / NIC_REACHED, packing) - wire, **rest}


def _software(w: Workload) -> tuple[float, float, dict[str, float]]:
    """Seconds of set-up, of packing, and of what follows by its name."""
    t, strategy, size = w.training, w.weight_sync.strategy, sync_bytes(w)
    largest = t.pp * max(stage.total for stage in stages_of_copy(w)) / copy_bytes(w)
    senders = packers(w) / largest  # those of the largest stage are done last
    if strategy == "p2p":
        return 0.0, size / (PACK * senders), {}
    if w.weight_sync.gather == "bucket":
        sent = size / (one_pair(w.nic_bps) * senders * w.weight_sync.nics)
        return 0.0, sent, _compared(w) | {"load": size / LOAD}
    if strategy == "scatter":
        return 0.0, size / (PACK * senders), {"load": size / (UNPACK * w.cluster.generation_gpus)}
    setup = 0.0 if strategy == "relay" else GROUP_SETUP
    # matrices that a sender of the stage with most layers gathers, beside bytes of the largest
    whole = expert_tensors(w.model) * w.layout.widest / largest
    whole = 0.0 if strategy == "delta" else whole
    return setup, size / (PACK * senders), _compared(w) | unpacking(size, senders, whole)


def _compared(w: Workload) -> dict[str, float]:
    if w.weight_sync.strategy != "delta":
        return {}
    shards = w.cluster.training_gpus // w.copies
    largest = w.training.pp * max(stage.total for stage in w.stages_sent)
    return {"compare": comparing(w.synced * BF16_BYTES * largest, shards)}


def packers(w: Workload) -> int:
    """GPUs that pack at once: those named of each stage, else one a stage, all in scatter and
    p2p.
    """
    if w.weight_sync.senders:
        return w.weight_sync.senders * w.training.pp
    return (
        w.cluster.training_gpus if w.weight_sync.strategy in ("scatter", "p2p") else w.training.pp
    )


def held_shares(w: Workload, first_rank: bool = False) -> list[HeldShare]:
    """The weights by who holds them: stage by stage, and server by server where tp or ep is wider
    than one.

    first_rank: only the GPUs of data-parallel rank 0.
    """
    t, g, whole = w.training, w.generation, copy_bytes(w)
    share_of: dict[tuple[int, ...], np.ndarray] = {}
    for stage, what in enumerate(stages_of_copy(w)):
        # bytes; of which GPUs take so many times generation.tp, are experts, are MLPs
        kinds = (
            (t.tp, (what.dense, what.dense, 0.0, what.mlps)),
            (t.expert_gpus, (what.experts, what.experts * g.tp / g.gpus, what.experts, 0.0)),
        )
        for wide, sizes in kinds:
            gpus = range(
                w.rank(stage, 0),
                w.rank(stage, 0) + (max(wide, t.tp * t.cp) if first_rank else w.stage_gpus),
            )
            servers = -(-wide // w.gpus_per_server)
            for server in range(servers) if sizes[0] else ():
                key = tuple(
                    g
                    for g in gpus
                    if servers == 1 or (g - gpus[0]) % wide // w.gpus_per_server == server
                )
                more = np.array(sizes) / whole / servers
                share_of[key] = share_of.get(key, 0.0) + more
    return [
        HeldShare(shares[0], _senders(w, gpus), *shares[1:])
        for gpus, shares in ((gpus, each.tolist()) for gpus, each in share_of.items())
    ]


def _senders(w: Workload, gpus: tuple[int, ...]) -> tuple[int, ...]:
    """Those of `gpus` through whose NICs they send: of each sender so many as it stripes over, next
    to one another; senders as far apart as there is room.
    """
    count, nics = w.weight_sync.senders, w.weight_sync.nics
    if count is None:
        return gpus
    blocks = [gpus[i : i + nics] for i in range(0, len(gpus), nics)]
    return tuple(gpu for block in _evenly(blocks, count) for gpu in block)


def _pull(w: Workload, replicas: list[list[int]], held: list[HeldShare]) -> Flows:
    """Each GPU of `replicas` its shard, part by part."""
    gpus = [gpu for replica in replicas for gpu in replica]
    return join(
        Flows(_evenly(part.gpus, len(gpus)), gpus, part.of_gpus(w) * len(replicas)) for part in held
    )


def _pass_on(
    w: Workload, held: list[HeldShare], pairs: list[tuple[list[int], list[int], int]], before: int
) -> list[Level]:
    """The level in which replica a passes its shards on to b for each (a, b, i), i being a's place
    in the level before.

    HeldShare by part, as each arrived: `before` flows of the level before carry one part.
    """
    if not pairs:
        return []
    size, flows, waits = w.generation.gpus, [], []
    for p, part in enumerate(held):
        flows += [Flows(a, b, part.of_gpus(w)) for a, b, _ in pairs]
        waits += [p * before + i * size + k for _, _, i in pairs for k in range(size)]
    return [Level("fan-out", join(flows), tuple(waits))]


def _dealt(w: Workload, gpus: list[int]) -> Flows:
    """Each of `gpus` its own n-th of the weights, from GPUs that hold that n-th."""
    size, n, src, dst, sizes, begin = sync_bytes(w), len(gpus), [], [], [], 0.0
    for part in held_shares(w):
        end = begin + part.share
        first, last = int(begin * n + 1e-9), min(n, int(-(-(end * n - 1e-9) // 1)))
        for i, source in zip(range(first, last), _evenly(part.gpus, last - first), strict=True):
            src.append(source)
            dst.append(gpus[i])
            sizes.append((min(end, (i + 1) / n) - max(begin, i / n)) * size)
        begin = end
    return Flows(src, dst, sizes)


def _from_store(w: Workload, store: list[int], replica: list[int]) -> Flows:
    """What the GPUs of a replica pull from a server whose GPU i has the i-th slice behind its NIC;
    none on that server.
    """
    n, size = len(store), sync_bytes(w)
    pulls = [
        (store[i], gpu, share * size)
        for k, gpu in enumerate(replica)
        if gpu // w.gpus_per_server != store[0] // w.gpus_per_server
        for i, share in slices(w, k, n)
    ]
    return Flows(*(list(column) for column in zip(*pulls, strict=True))) if pulls else NONE


def _server_mates(w: Workload, gpu: int) -> list[int]:
    """The generation GPUs on the server of `gpu`."""
    first = gpu // w.gpus_per_server * w.gpus_per_server
    return list(range(max(first, w.cluster.training_gpus), min(first + w.gpus_per_server, w.gpus)))


def _shards(w: Workload, replica: int, k: int, gpu: int) -> Flows:
    """What GPU `k` of a replica gets: its part of the tensors of each stage, and of every expert
    from who holds it.
    """
    t = w.training
    times = sync_bytes(w) / copy_bytes(w)
    src, sizes = [], []
    for stage, what in enumerate(stages_of_copy(w)):
        dense, cut, experts = needs(w, k, stage)
        first = w.rank(stage, 0)
        of = first + replica % (w.stage_gpus // t.tp) * t.tp
        for j, share in overlaps(*cut, t.tp):
            src.append(of + j)
            sizes.append(share * dense * times)
        if what.experts and experts:
            of = first + replica % (w.stage_gpus // t.expert_gpus) * t.expert_gpus
            for place, share in _expert_sources(w, k, experts):
                src.append(of + place)
                sizes.append(what.experts * share * times)
    return Flows(src, [gpu] * len(src), sizes)


def _expert_sources(w: Workload, k: int, experts: tuple[int, int]) -> list[tuple[int, float]]:
    """Where in a group of experts GPU `k` of a replica gets what share of them all: the part
    `experts` of so many whole, or else its tp-th of each.
    """
    t, g = w.training, w.generation
    if g.gpus > g.tp:
        parts, dealt = [(j, 1 / t.etp) for j in range(t.etp)], overlaps(*experts, t.ep)
    else:
        parts, dealt = overlaps(k, g.tp, t.etp), [(e, 1 / t.ep) for e in range(t.ep)]
    return [(e * t.etp + j, share * part) for e, share in dealt for j, part in parts]


def _evenly(gpus: Sequence[Any], count: int) -> list[Any]:
    """`count` of `gpus`, or runs of them, each taken as often as the others, one more at most."""
    return [gpus[i * len(gpus) // count] for i in range(count)]

"""How long a weight sync takes: what systems do between two steps, from layouts, GPUs, network and
mechanism. Seconds, bytes.

    transport  who does it                       senders    seconds, besides set-up
    broadcast  NCCL, gathered tensor by tensor   1 a stage  S / GATHER + E x TENSOR + max(S / PACK,
               (verl; NeMo-RL packed)                       S / link) + S / LOAD
    buckets    NCCL, gathered bucket by bucket   1 a stage  S / one pair of NICs + S / LOAD
               over NVLink (slime, miles)
    tensors    NCCL tensor by tensor             1          T x TENSOR + S / min(PACK, link)
    store      NIXL, Mooncake, relays            1          as broadcast, no NCCL group each time
    host       checkpoint-engine: pinned memory  all        S / STAGE where trainers are others,
               -> broadcast -> engine                       S / LOAD: each GPU sees it all
    host-p2p   the same, from another's memory   all        ... and S through the NICs of a server
    host-write an engine's copy in host memory,  all        S / STAGE + S through the NICs of the
               written by RDMA (miles)                      smaller side
    p2p        static, shard to shard            all        max(S / (senders x PACK), busiest NIC)
    shards     NCCL, tensor by tensor, copies    all        T x SEND + Q x QUANTISE + S once into
               spread over NVLink (NeMo-RL)                 every server; `rest` by a packed
                                                            broadcast
    delta      what changed, in buckets          1          a rank's shard / RESTORE + as broadcast,
                                                            of S x factor

S is a copy as it is sent, T its tensors, E those of experts, Q matrices that are quantised. Each
rollout replica of p2p gets its own copy. Constants are of software: `Software` says what each is
and what it was fitted on. `rfabric validate FOLDER --leave-one-out` fits them again, each system
left out in turn.
"""

import math
from dataclasses import dataclass

from ..errors import RFabricError
from ..units import bytes_in
from .between import NIC_ONE_PAIR
from .communication import GpuNetwork
from .layout import Layout
from .models import Model

# SparrowRL (arXiv 2602.11456): about 1 % of the parameters change in a step, 79 times less is sent,
# without loss.
DELTA_FACTOR = 1 / 79

# of the HBM, by weights of a replica at most: assumed, the rest is KV cache, activations and
# buffers
HELD = 0.75

# of a decoder as Hugging Face saves it: q, k, v with biases, o, gate, up, down, two norms
_TENSORS_A_LAYER = 12


@dataclass(frozen=True)
class Software:
    """What software adds: bytes/s, and seconds of a sync or of one tensor.

    pack: one sender casts, packs and sends. Fitted on verl checkpoint_engine/README.md (30 B,
    received only). Not fitted: RollArt's Mooncake (arXiv 2512.22560) 6.5e9; each of Perplexity's
    256 trainers, 2.05 TB in about 1.1 s, 7.3e9.
    unpack: one sender's tensors, gathered there and loaded here, one bucket after the other. Fitted
    on verl docs/advance/delta_weight_sync.md, dense, 7 B to 72 B over 400 Gbit/s.
    load: what engines take in from a broadcast, all seeing all of it. Fitted on
    MoonshotAI/checkpoint-engine README, GLM-4.5-Air to Kimi-K2 on 8 H800 and 16 H20.
    tensor: one tensor gathered, sent and loaded by a call of its own between servers; of
    `broadcast` one of an expert, as `unpack` holds those of dense models. Fitted on verl's
    Qwen3-30B-A3B and 235B-A22B in delta_weight_sync.md and fully_async_policy/README.md.
    local_tensor: the same inside one server. verl fully_async_policy/README.md, 339 tensors of 7 B
    on 8 H20 within 0.12 s.
    stage: device memory to host memory. Assumed, a copy by one thread of the host; miles' RDMA
    writes (github.com/radixark/miles pull 976) came to 26 to 30e9.
    restore: bf16 bytes/s with which a shard that waits in host memory comes back to its GPU, fp32
    with it; and with which it is compared with what was sent last. verl delta_weight_sync.md, with
    and without offload.
    setup: building an NCCL group over servers, which registers its buffers with the NICs, and
    pausing engines, each sync: verl delta_weight_sync.md. Who registers once (transfer engines,
    pinned buckets) pays before the first sync.
    metadata: gathering what goes where: checkpoint-engine README.
    plan, send: of a transfer shard to shard, in all and for a tensor. Fitted on NeMo-RL pull 2808,
    4 B and 30 B.
    quantise: one matrix to blockwise fp8 by the receiver, a dozen small kernels. Fitted on NeMo-RL
    pull 2971.
    """

    pack: float = 9.0e9
    unpack: float = 11e9
    load: float = 75e9
    tensor: float = 0.55e-3
    local_tensor: float = 0.25e-3
    stage: float = 25e9
    restore: float = 1.1e9
    setup: float = 1.0
    metadata: float = 0.5
    plan: float = 0.06
    send: float = 21e-6
    quantise: float = 0.13e-3

    @property
    def gather(self) -> float:
        """Of `unpack` an engine's loading takes 1 / load. The rest is taken to be the trainer's,
        where each stage of a pipeline gathers its own tensors: assumed, as `unpack` was fitted on
        trainers without one.
        """
        return 1 / max(1 / self.unpack - 1 / self.load, 1e-15)


SOFTWARE = Software()
PACK, UNPACK, LOAD, GATHER = SOFTWARE.pack, SOFTWARE.unpack, SOFTWARE.load, SOFTWARE.gather
GROUP_SETUP = SOFTWARE.setup


@dataclass(frozen=True)
class Sync:
    """One weight sync: `size` bytes a copy in `tensors`, from `trainer` to `rollout` over `net`.

    one_place: trainer and rollout are the same GPUs; offloaded: the trainer's weights wait in host
    memory; receive_only: groups stand, engines are paused already, and buckets are not unpacked.
    expert_tensors: of `tensors`; quantised: matrices that a receiver quantises; rest: of `size`, by
    a broadcast where the rest goes shard to shard.
    """

    size: float
    tensors: int
    trainer: Layout
    rollout: Layout
    net: GpuNetwork
    transport: str
    one_place: bool = False
    offloaded: bool = False
    receive_only: bool = False
    delta_factor: float = DELTA_FACTOR
    expert_tensors: int = 0
    quantised: int = 0
    rest: float = 0.0

    def __post_init__(self):
        if self.transport not in TRANSPORTS:
            raise RFabricError(
                f"weight sync: no transport {self.transport!r}; there are {', '.join(TRANSPORTS)}"
            )

    @property
    def in_one_domain(self) -> bool:
        """Whether NVLink joins all its GPUs."""
        gpus = (
            max(self.trainer.gpus, self.rollout.gpus)
            if self.one_place
            else self.trainer.gpus + self.rollout.gpus
        )
        return gpus <= self.net.domain

    @property
    def link(self) -> float:
        """Bytes/s that a GPU sends to the others."""
        return self.net.nvlink if self.in_one_domain else self.net.nic


def tensors_of(model: Model, precision: str = "bf16") -> int:
    """Tensors of a checkpoint; one more of scales for each that is quantised."""
    own = _TENSORS_A_LAYER * model.layers + 3
    routers = model.experts.layers if model.experts else 0
    once = precision in ("bf16", "fp16", "fp32")
    return (own + routers + expert_tensors(model)) * (1 if once else 2)


def expert_tensors(model: Model) -> int:
    """Matrices of a checkpoint's experts: gate, up and down of each."""
    e = model.experts
    return (3 if model.gated else 2) * e.count * e.layers if e else 0


def weight_sync_parts(sync: Sync, software: Software = SOFTWARE) -> dict[str, float]:
    """Seconds of each part of a sync; they add up to `weight_sync_seconds`."""
    seconds = _MECHANISMS[sync.transport](sync, software)
    if sync.offloaded:
        seconds["onload"] = _shard(sync) / software.restore
    return seconds


def weight_sync_seconds(sync: Sync, software: Software = SOFTWARE) -> float:
    """Seconds of a weight sync, engines paused."""
    return math.fsum(weight_sync_parts(sync, software).values())


def unpacking(
    size: float, senders: float, expert_tensors: float = 0.0, software: Software = SOFTWARE
) -> dict[str, float]:
    """Seconds that the trainer gathers `size` bytes, `senders` at once each its own part, and that
    an engine loads them.
    """
    gathered = size / software.gather + expert_tensors * software.tensor
    return {"gather": gathered / senders, "load": size / software.load}


def _shard(sync: Sync) -> float:
    """Bytes of bf16 that one trainer holds."""
    return sync.size / sync.trainer.gpus


def _sending(sync: Sync, size: float, c: Software) -> float:
    """Packed by one sender a stage while the link takes what is packed."""
    return max(size / (c.pack * sync.trainer.pp), size / sync.link)


def _setup(sync: Sync, c: Software) -> float:
    return 0.0 if sync.receive_only or sync.in_one_domain else c.setup


def _broadcast(sync: Sync, c: Software) -> dict[str, float]:
    parts = {"setup": _setup(sync, c), "pack and send": _sending(sync, sync.size, c)}
    return parts | _unpack(sync, c)


def _unpack(sync: Sync, c: Software) -> dict[str, float]:
    if sync.receive_only:
        return {}
    return unpacking(sync.size, sync.trainer.pp, sync.expert_tensors, c)


def _buckets(sync: Sync, c: Software) -> dict[str, float]:
    pair = sync.net.nvlink if sync.in_one_domain else one_pair(sync.net.nic_bps)
    sent = max(sync.size / (pair * sync.trainer.pp), sync.size / sync.link)
    return {"send": sent, "load": sync.size / c.load}


def one_pair(nic_bps: float) -> float:
    """Bytes/s that one GPU sends another through one NIC of `nic_bps` bit/s."""
    return bytes_in(nic_bps, 1) * NIC_ONE_PAIR


def _tensors(sync: Sync, c: Software) -> dict[str, float]:
    if sync.in_one_domain:
        return {"calls": sync.tensors * c.local_tensor, "send": sync.size / sync.link}
    rate = min(c.pack, sync.link)
    return {"calls": sync.tensors * c.tensor, "pack and send": sync.size / rate}


def _store(sync: Sync, c: Software) -> dict[str, float]:
    return {"pack and send": max(sync.size / c.pack, sync.size / sync.link), **_unpack(sync, c)}


def _host(sync: Sync, c: Software) -> dict[str, float]:
    seconds = {"setup": c.metadata, "load": sync.size / c.load}
    if not sync.one_place:
        seconds["stage"] = sync.size / c.stage
    if sync.transport == "host-p2p":
        seconds["pull"] = sync.size / (sync.net.nic * min(sync.rollout.gpus, sync.net.domain))
    return seconds


def _host_write(sync: Sync, c: Software) -> dict[str, float]:
    nics = min(sync.trainer.gpus, sync.rollout.gpus)
    return {"stage": sync.size / c.stage, "write": sync.size / (sync.net.nic * nics)}


def _p2p(sync: Sync, c: Software) -> dict[str, float]:
    busiest = _copies(sync) * sync.size / min(sync.trainer.gpus, sync.rollout.gpus)
    return {"pack and send": max(sync.size / (c.pack * sync.trainer.gpus), busiest / sync.link)}


def _shards(sync: Sync, c: Software) -> dict[str, float]:
    """NeMo-RL's 8 GB came into each of 8 GPUs within 0.08 s, half of what their NICs need for a
    copy each: one copy enters a server.
    """
    servers = math.ceil(sync.rollout.gpus / sync.net.domain)
    out = servers * sync.size / sync.trainer.gpus
    into = sync.size / min(sync.rollout.gpus, sync.net.domain)
    rest = sync.rest * sync.size
    return {
        "setup": c.plan,
        "calls": sync.tensors * c.send,
        "send": (1 - sync.rest) * max(out, into) / sync.link,
        "quantise": sync.quantised * c.quantise,
        "pack and send the rest": max(rest / c.pack, rest / sync.link),
    }


def _delta(sync: Sync, c: Software) -> dict[str, float]:
    sent = sync.size * sync.delta_factor
    return {
        "setup": _setup(sync, c),
        "compare": comparing(sync.size, sync.trainer.gpus, c),
        "pack and send": _sending(sync, sent, c),
        **({} if sync.receive_only else unpacking(sent, sync.trainer.pp, 0, c)),
    }


def comparing(size: float, trainers: int, software: Software = SOFTWARE) -> float:
    """Seconds in which each trainer compares its shard with the one sent last, which waits in host
    memory.
    """
    return size / trainers / software.restore


def _copies(sync: Sync) -> int:
    """Replicas of the rollout; where it counts GPUs alone, each as few of them, by powers of two,
    as hold a copy.
    """
    rollout = sync.rollout
    if (rollout.tp, rollout.pp, rollout.ep) != (1, 1, 1):
        return rollout.replicas
    fewest = 2 ** max(0, math.ceil(math.log2(sync.size / (HELD * sync.net.gpu.hbm_bytes))))
    return max(1, rollout.gpus // fewest)


_MECHANISMS = {
    "broadcast": _broadcast,
    "buckets": _buckets,
    "tensors": _tensors,
    "store": _store,
    "host": _host,
    "host-p2p": _host,
    "host-write": _host_write,
    "p2p": _p2p,
    "shards": _shards,
    "delta": _delta,
}
TRANSPORTS = tuple(_MECHANISMS)

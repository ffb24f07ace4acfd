"""How long a weight sync takes: what systems do between two steps, from layouts, GPUs, network and
transport. Seconds, bytes.

    seconds = set-up + T tensors x cost of one + max(packing, wire) + unpacking or loading

    transport  who does it                       senders    what limits it
    broadcast  NCCL in buckets (verl, slime)     1 a stage  packing by senders, gathering, loading
    tensors    NCCL tensor by tensor             1          packing and T calls; NVLink alone inside
                                                            one server
    store      NIXL, Mooncake, relays            1          as broadcast, no NCCL group each time
    host       checkpoint-engine: pinned memory  all        loading, S / LOAD: each GPU sees it all
               -> broadcast -> engine
    host-p2p   the same, from another's memory   all        ... after S through the NICs of a server
    p2p        static, shard to shard            all        S / (senders x PACK), or the busiest NIC
    delta      what changed, in buckets          1          as broadcast, of S x factor

S is a copy as it is sent; each rollout replica of p2p gets its own. PACK, UNPACK, LOAD and the rest
are software: they are fitted once on the files named beside them, over models from 7 to 1026 B
parameters, and take the place of an efficiency.
"""

import math
from dataclasses import dataclass

from ..errors import RFabricError
from .communication import Network
from .layout import Layout
from .models import Model

# Fitted on verl checkpoint_engine/README.md (30 B, received only): one sender gathers, casts, packs
# and sends so many bytes/s. Not fitted: RollArt's Mooncake (arXiv 2512.22560) 6.5e9; each of
# Perplexity's 256 trainers, 2.05 TB in about 1.1 s, 7.3e9.
PACK = 9.0e9
# Fitted on verl docs/advance/delta_weight_sync.md (7 B to 72 B over 400 Gbit/s):
UNPACK = 11e9  # of one sender's tensors: gathered there and loaded here, one bucket after the other
GROUP_SETUP = 1.0  # building an NCCL group over servers and pausing engines, each sync
OFFLOADED = 1.1e9  # bf16 bytes/s with which an offloaded shard comes back to its GPU, fp32 with it
# One call, gathered and loaded: verl fully_async_policy/README.md, 339 tensors of 7 B in one server
# of H20 within 0.12 s.
TENSOR = 0.25e-3
# Fitted on MoonshotAI/checkpoint-engine README (GLM-4.5-Air to Kimi-K2 on 8 H800 and 16 H20):
LOAD = 75e9  # what engines take in from a broadcast, all seeing all of it
# Of UNPACK an engine's loading takes 1 / LOAD. The rest is taken to be the trainer's, where each
# stage of a pipeline gathers its own tensors: assumed, as UNPACK was fitted on trainers without
# one.
GATHER = 1 / (1 / UNPACK - 1 / LOAD)
METADATA = 0.5  # gathering what goes where
# Device memory to pageable host memory, where trainers are others than rollouts: assumed, a copy by
# one host thread.
STAGE = 25e9

# SparrowRL (arXiv 2602.11456): about 1 % of the parameters change in a step, 79 times less is sent,
# without loss.
DELTA_FACTOR = 1 / 79

# of the HBM, by weights of a replica at most: assumed, the rest is KV cache, activations and
# buffers
HELD = 0.75

TRANSPORTS = ("broadcast", "tensors", "store", "host", "host-p2p", "p2p", "delta")
# of a decoder as Hugging Face saves it: q, k, v with biases, o, gate, up, down, two norms
_TENSORS_A_LAYER = 12


@dataclass(frozen=True)
class Sync:
    """One weight sync: `size` bytes a copy in `tensors`, from `trainer` to `rollout` over `net`.

    one_place: trainer and rollout are the same GPUs; offloaded: the trainer's weights wait in host
    memory; receive_only: groups stand, engines are paused already, and buckets are not unpacked.
    """

    size: float
    tensors: int
    trainer: Layout
    rollout: Layout
    net: Network
    transport: str
    one_place: bool = False
    offloaded: bool = False
    receive_only: bool = False
    delta_factor: float = DELTA_FACTOR

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
    experts = (3 * model.experts.count + 1) * model.experts.layers if model.experts else 0
    return (own + experts) * (1 if precision in ("bf16", "fp16", "fp32") else 2)


def weight_sync_parts(sync: Sync) -> dict[str, float]:
    """Seconds of each part of a sync; they add up to `weight_sync_seconds`."""
    seconds = {
        "broadcast": _broadcast,
        "tensors": _tensors,
        "store": _store,
        "host": _host,
        "host-p2p": _host,
        "p2p": _p2p,
        "delta": _broadcast,
    }[sync.transport](sync)
    if sync.offloaded:
        seconds["onload"] = sync.size / sync.trainer.gpus / OFFLOADED
    return seconds


def weight_sync_seconds(sync: Sync) -> float:
    """Seconds of a weight sync, engines paused."""
    return math.fsum(weight_sync_parts(sync).values())


def _sent(sync: Sync) -> float:
    return sync.size * (sync.delta_factor if sync.transport == "delta" else 1)


def _broadcast(sync: Sync) -> dict[str, float]:
    setup = 0.0 if sync.receive_only or sync.in_one_domain else GROUP_SETUP
    packed = _sent(sync) / (PACK * sync.trainer.pp)
    return {"setup": setup, "pack and send": max(packed, _sent(sync) / sync.link), **_unpack(sync)}


def _unpack(sync: Sync) -> dict[str, float]:
    return {} if sync.receive_only else unpacking(_sent(sync), sync.trainer.pp)


def unpacking(size: float, stages: int) -> dict[str, float]:
    """Seconds that the trainer gathers `size` bytes, its pipeline stages at once, and that an
    engine loads them.
    """
    return {"gather": size / (GATHER * stages), "load": size / LOAD}


def _tensors(sync: Sync) -> dict[str, float]:
    rate = sync.link if sync.in_one_domain else min(PACK, sync.link)
    return {"calls": sync.tensors * TENSOR, "pack and send": sync.size / rate}


def _store(sync: Sync) -> dict[str, float]:
    return {"pack and send": max(sync.size / PACK, sync.size / sync.link), **_unpack(sync)}


def _host(sync: Sync) -> dict[str, float]:
    seconds = {"setup": METADATA, "load": sync.size / LOAD}
    if not sync.one_place:
        seconds["stage"] = sync.size / STAGE
    if sync.transport == "host-p2p":
        seconds["pull"] = sync.size / (sync.net.nic * min(sync.rollout.gpus, sync.net.domain))
    return seconds


def _p2p(sync: Sync) -> dict[str, float]:
    busiest = _copies(sync) * sync.size / min(sync.trainer.gpus, sync.rollout.gpus)
    return {"pack and send": max(sync.size / (PACK * sync.trainer.gpus), busiest / sync.link)}


def _copies(sync: Sync) -> int:
    """Replicas of the rollout; where it counts GPUs alone, each as few of them, by powers of two,
    as hold a copy.
    """
    rollout = sync.rollout
    if (rollout.tp, rollout.pp, rollout.ep) != (1, 1, 1):
        return rollout.replicas
    fewest = 2 ** max(0, math.ceil(math.log2(sync.size / (HELD * sync.net.gpu.hbm_bytes))))
    return max(1, rollout.gpus // fewest)

"""How long collectives take, inside a server and across servers: alpha-beta terms per level, NCCL's
algorithms and protocols.

    seconds = launch + base + hops x latency + bytes on the busiest link / its rate
              + own part / copy rate

    kind            bytes S mean                   sent by each of n GPUs
    all-reduce      the buffer each GPU holds      ring 2 (n-1)/n S    NVLS (n+1)/n S    tree 2 S
    all-gather      the whole, when gathered       ring (n-1)/n S
    reduce-scatter  the whole, before              ring (n-1)/n S
    all-to-all      what each GPU holds            (n-1)/n S, or hierarchical: NVLink first, then
                                                   one rail to each server
    broadcast       the buffer                     chain, pipelined: S    reduce: the same way back
    send-recv       what one GPU sends to another  S

NCCL takes the fastest of its algorithms (ring, tree, NVLS, NVLS tree) and protocols by a model of
its own, src/graph/tuning.cc and src/graph/topo.h of github.com/NVIDIA/nccl 2.27, whose constants
are restated here:

    LL      8-byte stores with a flag: half the rate, lowest latency
    LL128   120 of 128 bytes; one NVLink hop 1.9 us
    Simple  full rate, synchronised chunk by chunk

Rates are bytes/s; sizes bytes and times seconds, of one group or of many alike (`by_rank`). Two
levels: NVLink among the GPUs that share it, one rail of NICs per GPU beyond.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, log2

import numpy as np

from ..errors import RFabricError
from ..nccl import NVLINK
from ..units import US, bytes_in
from .between import NIC_ONE_PAIR, RAILS, Rails
from .by_rank import ByRank, least, most
from .gpus import Gpu

GB = 1e9
KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "broadcast",
    "reduce",
    "send-recv",
)

# tuning.cc: baseLat and hwLat (us) by algorithm, for LL, LL128, Simple; hops between servers are in
# `between`.
BASE = {"ring": (6.6, 14.0, 8.4), "tree": (6.8, 14.0, 8.4)}
NVLINK_HOP = {"ring": (0.6, 1.9, 3.4), "tree": (0.6, 1.25, 4.0)}
# tuning.cc: rate of a protocol as a share of the links' (LL128 moves 120 of 128 bytes; trees reduce
# on the way).
RING_SHARE = (0.5, 0.92, 1.0)
TREE_SHARE = (1 / 3.8, 7 / 9, 0.92)


@dataclass(frozen=True)
class NcclTuning:
    """What NCCL knows of an architecture: NVLink share it plans with, LL's most bytes/s on 1, 2,
    more servers, NVLS share.

    nvlink_share: topo.h SMxx_NVLINK_BW over the data sheet's rate of a link; ll_most: tuning.cc
    llMaxBws; nvls_share: tuning.cc nvlsEfficiency, 0 where the NVSwitch cannot reduce.
    """

    nvlink_share: float
    ll_most: tuple[float, float, float]
    nvls_share: float


AMPERE = NcclTuning(NVLINK[80] / 25, (87.7 * GB, 22.5 * GB, 19.0 * GB), 0.0)
HOPPER = NcclTuning(NVLINK[90] / 25, (141 * GB, 45 * GB, 35 * GB), 0.85)
BLACKWELL = NcclTuning(NVLINK[100] / 50, (282 * GB, 90 * GB, 70 * GB), 0.74)


def tuning_of(gpu: Gpu) -> NcclTuning:
    """The architecture behind a GPU's name: A for Ampere and Ada, H for Hopper, B and GB for
    Blackwell.
    """
    return {"H": HOPPER, "B": BLACKWELL, "G": BLACKWELL}.get(gpu.name[0].upper(), AMPERE)


# Fitted on aiconfigurator's NCCL 2.27.3 table of 8 H100 (ai-dynamo/aiconfigurator
# systems/data/h100_sxm/comm/nccl):
REACHED = 0.97  # of the rate NCCL plans with, by any algorithm
# fitted there too; NCCL plans with 25: it is the rest of a time whose other part grows with the
# bytes
NVLS_START = 70 * US
# fitted there too: a group of sends and receives, the all-to-all
P2P_START = {"LL": 6.6 * US, "Simple": 13 * US}
P2P_LL_RATE = 20 * GB  # ... and what LL moves there
# of the HBM's peak: a rank's own part is read and written within its memory, by NCCL's few SMs
COPY_SHARE = 0.3
# Calling NCCL from PyTorch and waiting on the host: what 8 H200 need beyond NCCL's own 15 us for 32
# kB (stas00/ml-engineering network, all_reduce_bench). Captured in a CUDA graph it is 0.
HOST_LAUNCH = 25 * US


@dataclass(frozen=True)
class GpuNetwork:
    """What joins GPUs: `domain` of them share NVLink, beyond it each has `nic_bps` of NICs with
    the constants of a transport; seconds of a `launch`.
    """

    gpu: Gpu
    nic_bps: float
    domain: int
    launch: float = 0.0
    tuning: NcclTuning = field(default=HOPPER)
    rails: Rails = RAILS["rdma"]

    @property
    def nvlink(self) -> float:
        """Bytes/s that a GPU sends over NVLink in a collective."""
        return self.gpu.nvlink_bytes_per_s * self.tuning.nvlink_share * REACHED

    @property
    def nic(self) -> float:
        """Bytes/s that a GPU sends through its NICs."""
        return bytes_in(self.nic_bps, 1) * self.rails.share

    @property
    def copy(self) -> float:
        """Bytes/s of a copy within the HBM."""
        return self.gpu.hbm_bytes_per_s * COPY_SHARE


def network(
    gpu: Gpu,
    nic_bps: float | None = None,
    domain: int | None = None,
    launch: float = 0.0,
    transport: str = "rdma",
) -> GpuNetwork:
    """The network of servers of `gpu` as in the catalog, or with other NICs (bit/s a GPU) or
    another NVLink domain; `transport` between servers is one of RAILS.
    """
    rate, shared = nic_bps or gpu.nic_bps, domain or gpu.nvlink_gpus
    return GpuNetwork(gpu, rate, shared, launch, tuning_of(gpu), RAILS[transport])


@dataclass(frozen=True)
class RankGroup:
    """`gpus` ranks that stand evenly in `servers` NVLink domains."""

    gpus: int
    servers: int = 1

    def __post_init__(self):
        if not 1 <= self.servers <= self.gpus:
            raise RFabricError(
                f"a group of {self.gpus} GPUs in {self.servers} servers: every server needs a "
                f"GPU; use 1 to {self.gpus}"
            )

    @property
    def local(self) -> float:
        """GPUs in a server."""
        return self.gpus / self.servers


def group_of(gpus: int | Sequence[int] | RankGroup, net: GpuNetwork) -> RankGroup:
    """A count of GPUs that fill one NVLink domain after the other, or the GPU numbers themselves,
    as a RankGroup.
    """
    if isinstance(gpus, RankGroup):
        return gpus
    if isinstance(gpus, int):
        return RankGroup(gpus, ceil(gpus / net.domain))
    return RankGroup(len(gpus), len({g // net.domain for g in gpus}))


def collective_seconds(
    kind: str,
    size: ByRank,
    gpus: int | Sequence[int] | RankGroup,
    net: GpuNetwork,
    algorithm: str | None = None,
) -> ByRank:
    """Seconds of one collective of `size` bytes, all ranks ready at once, nothing else on the
    links.

    algorithm: the fastest when None; else one of `algorithms(kind, ...)`. RFabricError for negative
    bytes, or an algorithm that the group does not have.
    """
    group = group_of(gpus, net)
    smallest = size.min() if isinstance(size, np.ndarray) else size
    if smallest < 0:
        raise RFabricError(f"{kind}: {smallest} bytes must not be negative")
    if group.gpus == 1:
        return 0.0
    seconds_by = algorithms(kind, size, group, net)
    if algorithm and algorithm not in seconds_by:
        raise RFabricError(
            f"{kind} has no algorithm {algorithm!r} for {group}; there are {', '.join(seconds_by)}"
        )
    took = seconds_by[algorithm] if algorithm else least(*seconds_by.values())
    return (size > 0) * (net.launch + took)


def algorithms(kind: str, size: ByRank, group: RankGroup, net: GpuNetwork) -> dict[str, ByRank]:
    """Seconds by algorithm, each with its best protocol. RFabricError for a collective that is not
    known.
    """
    kind = kind.replace("_", "-")
    if kind not in KINDS:
        raise RFabricError(f"no collective {kind!r}; there are {', '.join(KINDS)}")
    return {
        "all-reduce": _all_reduce,
        "all-gather": _gather,
        "reduce-scatter": _gather,
        "all-to-all": _all_to_all,
        "broadcast": _chain,
        "reduce": _chain,
        "send-recv": _send,
    }[kind](size, group, net)


def bus_factor(kind: str, gpus: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests define it (doc/PERFORMANCE.md).

    >>> bus_factor("all-reduce", 8)
    1.75
    """
    share = (gpus - 1) / gpus
    return {
        "all-reduce": 2 * share,
        "all-gather": share,
        "reduce-scatter": share,
        "all-to-all": share,
    }.get(kind, 1.0)


def bus_bandwidth(
    kind: str,
    size: float,
    gpus: int | Sequence[int] | RankGroup,
    net: GpuNetwork,
    algorithm: str | None = None,
) -> float:
    """Bytes/s of a collective as nccl-tests report them: bus bandwidth."""
    group = group_of(gpus, net)
    rate = size / collective_seconds(kind, size, group, net, algorithm)
    return rate * bus_factor(kind.replace("_", "-"), group.gpus)


def _all_reduce(size: ByRank, group: RankGroup, net: GpuNetwork) -> dict[str, ByRank]:
    seconds = {"ring": _ring(2, size, group, net), "tree": _tree(size, group, net)}
    if net.tuning.nvls_share and group.local > 1:
        seconds["nvls" if group.servers == 1 else "nvls-tree"] = _nvls(size, group, net)
    return seconds


def _gather(size: ByRank, group: RankGroup, net: GpuNetwork) -> dict[str, ByRank]:
    return {"ring": _ring(1, size, group, net)}


def _ring(rounds: int, size: ByRank, group: RankGroup, net: GpuNetwork) -> ByRank:
    """The fastest protocol of a ring that goes round `rounds` times."""
    n, m = group.gpus, group.servers
    steps, between = rounds * (n - 1), 0 if m == 1 else (2 * m if rounds == 2 else m - 1)
    own, sent = size / n, rounds * (n - 1) / n * size
    times = (
        _piped(
            (BASE["ring"][p] + (steps - between) * NVLINK_HOP["ring"][p]) * US,
            between * net.rails.hop("ring", p),
            sent / _protocol_rate(p, RING_SHARE, group, net),
            group,
            net,
        )
        + own / net.copy
        for p in range(3)
    )
    return least(*times)


def _piped(
    inside: float, between: float, sent: ByRank, group: RankGroup, net: GpuNetwork
) -> ByRank:
    """Seconds of latencies `inside` and `between` servers and of what is `sent`, in chunks where
    it crosses servers.
    """
    if group.servers == 1:
        return inside + sent
    return net.rails.start + net.rails.seconds(inside + between, sent)


def _tree(size: ByRank, group: RankGroup, net: GpuNetwork) -> ByRank:
    """Double binary trees over servers, a chain inside each: two servers exchange once, more pass
    on to two others.
    """
    m = group.servers
    sent = 2 * size
    times = (
        _piped(
            (BASE["tree"][p] + 2 * (group.local - 1) * NVLINK_HOP["tree"][p]) * US,
            2 * log2(m) * net.rails.hop("tree", p),
            most(
                sent / min(net.nvlink * TREE_SHARE[p], *_ll_most(p, m, net)),
                size * min(2, m - 1) / (group.local * net.nic * TREE_SHARE[p]),
            ),
            group,
            net,
        )
        for p in range(3)
    )
    return least(*times)


def _nvls(size: ByRank, group: RankGroup, net: GpuNetwork) -> ByRank:
    """The NVSwitch reduces and multicasts: a GPU sends its buffer once and its part of the sum
    once; then over rails.
    """
    inside = size * (1 + 1 / group.local) / (net.nvlink * net.tuning.nvls_share)
    if group.servers == 1:
        return NVLS_START + inside
    rail = size / group.local * min(2, group.servers - 1) / net.nic
    between = 2 * log2(group.servers) * net.rails.hop("nvls", 2)
    return net.rails.start + net.rails.seconds(net.rails.nvls_start + between, most(inside, rail))


def _chain(size: ByRank, group: RankGroup, net: GpuNetwork) -> dict[str, ByRank]:
    n, m = group.gpus, group.servers
    times = [
        _piped(
            (BASE["ring"][p] + (n - m) * NVLINK_HOP["ring"][p]) * US,
            (m - 1) * net.rails.hop("ring", p),
            size / _protocol_rate(p, RING_SHARE, group, net),
            group,
            net,
        )
        for p in range(3)
    ]
    return {"chain": least(*times)}


def _all_to_all(size: ByRank, group: RankGroup, net: GpuNetwork) -> dict[str, ByRank]:
    n, m, local = group.gpus, group.servers, group.local
    inside, outside, own = (local - 1) / n * size, (n - local) / n * size, size / n / net.copy
    if m == 1:
        slow = P2P_START["LL"] + inside / P2P_LL_RATE
        return {"direct": least(slow, P2P_START["Simple"] + inside / net.nvlink + own)}
    pair = bytes_in(net.nic_bps, 1) * NIC_ONE_PAIR  # a group of sends: a channel to each peer
    rail, gathered = outside / pair, (local - 1) / local * size / net.nvlink
    inner = NVLINK_HOP["ring"][2] * US
    direct = net.rails.start + _sends(most(inside / net.nvlink, rail), net)
    two_levels = inner + net.rails.start + _sends(rail, net)
    return {"direct": direct + own, "hierarchical": two_levels + gathered + own}


def _sends(sent: ByRank, net: GpuNetwork) -> ByRank:
    """Sends to GPUs of other servers at once: LL while they are small, then Simple."""
    times = (
        net.rails.seconds(P2P_START[name] + net.rails.hop("ring", p), sent / RING_SHARE[p])
        for name, p in (("LL", 0), ("Simple", 2))
    )
    return least(*times)


def _send(size: ByRank, group: RankGroup, net: GpuNetwork) -> dict[str, ByRank]:
    if group.servers == 1:
        slow = P2P_START["LL"] + size / P2P_LL_RATE
        start = (BASE["ring"][2] + NVLINK_HOP["ring"][2]) * US
        return {"direct": least(slow, start + size / net.nvlink)}
    rate = bytes_in(net.nic_bps, 1) * NIC_ONE_PAIR
    return {"direct": _sends(size / rate, net)}


def _ring_rate(group: RankGroup, net: GpuNetwork) -> float:
    """Bytes/s of a ring: NVLink inside a server, the NICs of all its ranks beyond."""
    return net.nvlink if group.servers == 1 else min(net.nvlink, group.local * net.nic)


def _protocol_rate(p: int, shares: tuple[float, ...], group: RankGroup, net: GpuNetwork) -> float:
    return min(_ring_rate(group, net) * shares[p], *_ll_most(p, group.servers, net))


def _ll_most(p: int, servers: int, net: GpuNetwork) -> tuple[float, ...]:
    return (float("inf"), net.tuning.ll_most[min(servers, 3) - 1] if p == 0 else float("inf"))

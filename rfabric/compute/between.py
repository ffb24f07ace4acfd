"""What crossing servers adds to a collective: latency of a hop by protocol, chunks in a pipeline.

    seconds = start + latency + sent + min(2 fill sqrt(latency x sent), depth)

with latency = start-up of NCCL, hops inside and hops between servers, and sent = bytes / rate.

A message goes through its L seconds of latency in chunks. With chunks of c seconds on the wire it
takes (L / l + sent / c)(l + c): small chunks pay the latency of each, large ones fill the pipeline
late. The best c gives (sqrt(L) + sqrt(sent))^2, so the mixed term is 2 sqrt(L x sent). NCCL's
chunks are not the best: `fill`; and they stop growing: `depth`.

All seconds. RAILS is fitted, a transport at a time, on nccl-tests sweeps of 2 and 4 servers as
dstack, NVIDIA/nccl-tests issue 309, Crusoe, Oracle, Vultr and Google's cluster-toolkit published
them (470 rows, 8 B to 16 GiB; TCPX from 1 MiB on). `rfabric validate FOLDER --leave-one-out` fits
it again and prints how well each system is predicted by the others of its transport; a transport
that nobody measured is not predicted.
"""

from dataclasses import dataclass

from ..units import US
from .by_rank import ByRank, least

# tuning.cc of NCCL 2.27 (hwLat, NET; us): a hop between servers, for LL, LL128, Simple
NET_HOP = {"ring": (2.7, 4.0, 14.0), "tree": (5.0, 8.5, 14.0), "nvls": (18.0, 18.0, 18.0)}
# Of a NIC's line rate: slope of DeepEP's low-latency times on two servers, 47.2 to 49.7 of 50 GB/s
# (aiconfigurator systems/data/h100_sxm/comm/sglang), headers included.
NIC_REACHED = 0.95
# ... and by one pair of GPUs through one NIC, one proxy thread and channel: 32 to 36 of 50 GB/s
# between 8 and 64 MB (microsoft/vidur data/profiling/network/h100_dgx/send_recv.csv).
NIC_ONE_PAIR = 0.70


@dataclass(frozen=True)
class Rails:
    """Constants of a transport between servers; seconds, but for `hops` (of tuning.cc's latencies),
    `fill` and `share` (of a NIC's line rate).

    start: of a collective, whose channels' proxies wake up; a send to one peer does without.
    nvls_start: what takes NVLS_START's place where the NVSwitch's sums go on over the rails.
    """

    start: float
    nvls_start: float
    fill: float
    depth: float
    hops: float = 1.0
    share: float = NIC_REACHED

    def hop(self, algorithm: str, p: int) -> float:
        """Seconds of a hop by protocol: 0 LL, 1 LL128, 2 Simple."""
        return self.hops * NET_HOP[algorithm][p] * US

    def seconds(self, latency: float, sent: ByRank) -> ByRank:
        """Seconds of a message of `sent` seconds on its busiest link."""
        if not latency:
            return sent
        return latency + sent + least(2 * self.fill * (latency * sent) ** 0.5, self.depth)


# Where a fit begins and what it is drawn to with a tenth of a row's weight: tuning.cc's latencies,
# chunks of the best size, no more than one buffer of 4 MiB a channel (NCCL_BUFFSIZE) at 25 GB/s.
PRIOR = Rails(10 * US, 70 * US, 1.0, 160 * US)
# What is fitted: TCP's hops are of the host's making and part of `start`, its share of a NIC the
# host's; RDMA's share is DeepEP's.
FITTED = {
    "rdma": ("start", "nvls_start", "fill", "depth", "hops"),
    "tcpx": ("start", "nvls_start", "fill", "depth", "share"),
    "tcpxo": ("start", "nvls_start", "fill", "depth", "share"),
}
# Fitted, a transport at a time, on the nccl-tests sweeps that stand above.
RAILS = {
    "rdma": Rails(21.1 * US, 35.4 * US, 0.934, 205 * US, hops=0.169),
    "tcpx": Rails(12.2 * US, 70.0 * US, 15.1, 713 * US, share=0.626),
    "tcpxo": Rails(117 * US, 567 * US, 2.96, 145 * US, share=0.969),
}

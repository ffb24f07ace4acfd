"""How long tokens take to their experts and back: the dispatch and combine kernels of DeepEP,
github.com/deepseek-ai/DeepEP.

    normal       a token crosses once to each server that holds one of its experts (NIC), then goes
                 on over NVLink:
                 seconds = start + max(NIC bytes / NIC, copies / what the SMs copy, NVLink bytes /
                 NVLink); each doubling of the servers adds to the start
    low latency  a token goes straight to each of its experts: topk copies, over NVLink in the
                 server, over the NIC beyond

Dispatch carries fp8 (one fp32 scale for 128 values), combine bf16. Experts are drawn evenly;
DeepSeek-V3's routing keeps a token within 4 servers. Sizes bytes, times seconds. Source of the
layout of times: aiconfigurator (ai-dynamo/aiconfigurator systems/data/h100_sxm/comm/sglang, 8 to
32 H100), on which the constants are fitted; the table of DeepEP's README (H800, 8 to 64 GPUs) is
for checking.
"""

from dataclasses import dataclass
from math import log2

from ..errors import RFabricError
from ..units import US
from .by_rank import ByRank, most
from .communication import GB, GpuNetwork, RankGroup

DISPATCH_AND_COMBINE = 2  # exchanges of a layer with experts: tokens go to them, and back
MOST_SERVERS = 4  # DeepSeek-V3 (arXiv 2412.19437) section 2.1.2: node-limited routing
# Of a kernel in one server, and in several with the exchange of counts before it. Fitted on
# aiconfigurator's table of 8 to 32 H100.
STARTS = {
    ("normal", "dispatch"): (37 * US, 63 * US),
    ("normal", "combine"): (50 * US, 86 * US),
    ("low-latency", "dispatch"): (15 * US, 22 * US),
    ("low-latency", "combine"): (13 * US, 26 * US),
}
# ... and more at each doubling of the servers beyond two, as counts are exchanged over more hops;
# low latency has none to exchange. Fitted on 2 and 4 servers.
DOUBLING = {"dispatch": 26 * US, "combine": 36 * US}
# Bytes/s that one SM copies to and from NVLink buffers; putting a token on the NIC costs an SM less
# than an NVLink copy. Fitted on 2 and 4 servers with 4 SMs, where nothing else limits.
SM_RATE = {"dispatch": 14.2 * GB, "combine": 11.4 * GB}
NIC_COPY = 0.7  # of an NVLink copy
# ... of what NCCL reaches over NVLink, fitted on the same table
NVLINK_REACHED = {"normal": 0.84, "low-latency": 0.62}
DEFAULT_SMS = 24  # DeepEP README: Buffer.set_num_sms(24)


@dataclass(frozen=True)
class Exchange:
    """`tokens` of a GPU (`by_rank`), each of `hidden` values, to `topk` of `experts`."""

    tokens: ByRank
    hidden: int
    topk: int
    experts: int

    def token_bytes(self, direction: str) -> float:
        """Bytes of one token on the wire."""
        return self.hidden * 2 if direction == "combine" else self.hidden * (1 + 4 / 128)


def exchange_seconds(
    what: Exchange,
    direction: str,
    group: RankGroup,
    net: GpuNetwork,
    mode: str = "normal",
    sms: int = DEFAULT_SMS,
) -> ByRank:
    """Seconds of one `dispatch` or `combine` in `normal` or `low-latency` mode, every GPU of
    `group` with as many tokens. RFabricError for another mode or direction, or fewer experts than
    GPUs.
    """
    if (mode, direction) not in STARTS:
        raise RFabricError(
            f"no exchange {mode!r} {direction!r}; there are "
            f"{', '.join(' '.join(k) for k in STARTS)}"
        )
    if what.experts < group.gpus:
        raise RFabricError(
            f"{what.experts} experts on {group.gpus} GPUs leave some without; use "
            f"{what.experts} at most"
        )
    start = STARTS[mode, direction][group.servers > 1]
    nvlink, nic = _copies(what, group, mode)
    size = what.tokens * what.token_bytes(direction)
    inside = nvlink * size / (net.nvlink * NVLINK_REACHED[mode])
    forward = 0.0
    if mode == "normal" and group.servers > 1:
        start += DOUBLING[direction] * (log2(group.servers) - 1)
        copies = NIC_COPY * nic + reached(what, group)[0]
        forward = copies * size / (sms * SM_RATE[direction])
    return start + most(inside, nic * size / net.nic, forward)


def reached(what: Exchange, group: RankGroup) -> tuple[float, float]:
    """How many GPUs, and how many servers, a token reaches on average, its own among them."""
    servers = min(group.servers, MOST_SERVERS)
    return _distinct(what.topk, servers * group.local), _distinct(what.topk, servers)


def _copies(what: Exchange, group: RankGroup, mode: str) -> tuple[float, float]:
    """Copies of a token that a GPU sends over NVLink and through the NIC."""
    away = 1 - 1 / group.servers
    if mode == "low-latency":
        return what.topk * (1 / group.servers - 1 / group.gpus), what.topk * away
    gpus, servers = reached(what, group)
    return gpus * (1 - 1 / group.local), servers * away


def _distinct(draws: int, bins: float) -> float:
    """How many of `bins` are hit by `draws` even draws."""
    return bins * (1 - (1 - 1 / bins) ** draws)

"""Collectives of somebody else's workload, lowered to flows among ranks that share hosts.

Sizes: all-reduce, reduce-scatter, broadcast, reduce, scatter: the whole buffer; all-gather: what
each rank has at the end; all-to-all: what each rank sends, to all; gather: what each rank has.
"""

from collections.abc import Sequence
from itertools import pairwise

from ...errors import RFabricError
from ..collectives import RING_FACTOR, Flows, all_to_all, by_server, point_to_point, ring, scatter

KINDS = (*RING_FACTOR, "all-to-all", "broadcast", "reduce", "gather", "scatter", "barrier")
PER_RANK = ("all-gather", "reduce-scatter")  # profilers log the bytes of one rank


def lowered(kind: str, ranks: Sequence[int], size: float, per_host: int, root: int) -> Flows:
    """The flows between hosts of one collective among `ranks`, rank r on host r // per_host; a
    broadcast and a reduce go along a chain of hosts, as NCCL's ring has them. RFabricError for a
    kind that is not known.
    """
    if kind in RING_FACTOR:
        return ring(kind, ranks, size, per_host)
    if kind == "all-to-all":
        return all_to_all(ranks, size, per_host)
    if kind in ("broadcast", "reduce"):
        return _chain(kind, ranks, size, per_host, root)
    others = [rank for rank in ranks if rank != root]
    if kind == "gather":
        return point_to_point([(rank, root) for rank in others], size, per_host)
    if kind == "scatter":
        parts = zip(*scatter([root], ranks, size), strict=True)
        return _columns([part for part in parts if part[0] // per_host != part[1] // per_host])
    if kind == "barrier":
        return Flows([], [], [])
    raise RFabricError(f"no collective {kind!r}; there are {', '.join(KINDS)}")


def _chain(kind: str, ranks: Sequence[int], size: float, per_host: int, root: int) -> Flows:
    servers = by_server(ranks, per_host)
    first = next((i for i, s in enumerate(servers) if root // per_host == s[0] // per_host), 0)
    order = servers[first:] + servers[:first]
    channels = min(map(len, servers))
    edges = [(a[c], b[c]) for c in range(channels) for a, b in pairwise(order)]
    if kind == "reduce":
        edges = [(b, a) for a, b in edges]
    return _columns([(a, b, size / channels) for a, b in edges])


def _columns(flows: list[tuple]) -> Flows:
    return Flows(*map(list, zip(*flows, strict=True))) if flows else Flows([], [], [])

"""Collectives lowered to the flows that leave servers: who sends how many bytes to whom.

GPUs of one server talk over NVLink, so only the edges between servers become flows. A ring over n GPUs in m servers runs as g
channels, one per GPU that a server has in the group, as NCCL does with a NIC per GPU; neighbouring channels run opposite ways
round, so both directions of every cable carry. The 2(n-1) identical steps of a ring are merged into one flow per edge.

    ring all-reduce      each edge carries 2 (n-1)/n S        reduce-scatter, all-gather: (n-1)/n S
    tree all-reduce      two binary trees over m servers, half of S each, up and down: 2 (m-1) edges of S/2 either way
    halving-doubling     m a power of two: a server swaps S/2 with the one m/2 away, S/4 with m/4 ..., then back: 2 (m-1)/m S
    broadcast            a chain or a tree over servers: m - 1 edges of S
    all-to-all           each ordered pair carries S/n; hierarchical: by NVLink to the GPU on the receiver's rail, then there

S: bytes each GPU holds (all-to-all) or the whole buffer (others). All but rings reduce or spread within a server over NVLink
first, so that channel c moves the c-th part of S.
"""

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

from ..errors import RFabricError

RING_FACTOR = {"all-reduce": 2, "reduce-scatter": 1, "all-gather": 1}


class Flows(NamedTuple):
    """Three columns of equal length: source and destination GPU, bytes."""

    src: list[int]
    dst: list[int]
    size: list[float]


def ring(kind: str, gpus: Sequence[int], size: float, gpus_per_server: int, turn: int = 0) -> Flows:
    """A ring collective of `size` bytes among `gpus`; `turn` 1 runs channel 0 the other way round."""
    if kind not in RING_FACTOR:
        raise RFabricError(f"no ring collective {kind!r}; there are {', '.join(RING_FACTOR)}")
    servers = by_server(gpus, gpus_per_server)
    if len(servers) < 2:
        return Flows([], [], [])
    channels = min(len(members) for members in servers)
    share = RING_FACTOR[kind] * (len(gpus) - 1) / len(gpus) * size / channels
    src, dst = [], []
    for c in range(channels):
        order = servers if (c + turn) % 2 == 0 else servers[::-1]
        src += [members[c] for members in order]
        dst += [members[c] for members in [*order[1:], order[0]]]
    return Flows(src, dst, [share] * len(src))


def tree_all_reduce(gpus: Sequence[int], size: float, gpus_per_server: int) -> Flows:
    """An all-reduce of `size` bytes over double binary trees: who passes on in one tree is a leaf of the other."""
    servers = by_server(gpus, gpus_per_server)
    edges = [edge for tree in double_tree(len(servers)) for edge in tree]
    return _by_channel(servers, [*edges, *((b, a) for a, b in edges)], size / 2)


def double_tree(count: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Edges (child, parent) of two binary trees over 0 .. count - 1: the second is the first mirrored, or turned by one.

    Source: P. Sanders, J. Speck, J. L. Traff, Two-tree algorithms for full bandwidth broadcast, reduction and scan (2009).
    """
    first = [(node, _parent(node, count)) for node in range(1, count)]
    moved = [count - 1 - node for node in range(count)] if count % 2 == 0 else [(n + 1) % count for n in range(count)]
    return first, [(moved[a], moved[b]) for a, b in first]


def _parent(node: int, count: int) -> int:
    """In the binary tree whose level a node's lowest set bit tells; 0 is the root."""
    bit = node & -node
    up = node ^ bit | bit << 1
    return up if up < count else node ^ bit


def halving_doubling(kind: str, gpus: Sequence[int], size: float, gpus_per_server: int) -> Flows:
    """A collective of `size` bytes by recursive halving (reduce-scatter), doubling (all-gather), or both (all-reduce)."""
    if kind not in RING_FACTOR:
        raise RFabricError(f"no halving-doubling {kind!r}; there are {', '.join(RING_FACTOR)}")
    servers = by_server(gpus, gpus_per_server)
    m = len(servers)
    if m & (m - 1):
        raise RFabricError(
            f"halving-doubling: {m} servers are no power of two; use {1 << m.bit_length() - 1}, or a ring"
        )
    parts = [
        _by_channel(servers, [(i, i ^ m >> k) for i in range(m)], RING_FACTOR[kind] * size / 2**k)
        for k in range(1, m.bit_length())
    ]
    return _joined(parts)


def broadcast(
    gpus: Sequence[int], size: float, gpus_per_server: int, root: int | None = None, tree: bool = False
) -> Flows:
    """`size` bytes from the server of GPU `root` (the first's) to all others, along a chain or down a binary tree."""
    servers = by_server(gpus, gpus_per_server)
    first = 0 if root is None else _server_with(servers, root)
    order = servers[first:] + servers[:first]
    pairs = [(_parent(i, len(order)) if tree else i - 1, i) for i in range(1, len(order))]
    return _by_channel(order, pairs, size)


def _server_with(servers: list[list[int]], gpu: int) -> int:
    found = [i for i, members in enumerate(servers) if gpu in members]
    if not found:
        raise RFabricError(f"broadcast: GPU {gpu} is not in the group; use one of its members")
    return found[0]


def scatter(sources: Sequence[int], gpus: Sequence[int], size: float) -> Flows:
    """Each of `gpus` receives its own n-th of `size` bytes; `sources` are taken evenly."""
    src = [sources[i * len(sources) // len(gpus)] for i in range(len(gpus))]
    return Flows(src, list(gpus), [size / len(gpus)] * len(gpus))


def _by_channel(servers: list[list[int]], pairs: Sequence[tuple[int, int]], size: float) -> Flows:
    """`size` bytes from server a to server b for each pair, over as many channels as the smallest server has GPUs."""
    channels = min(map(len, servers), default=0)
    ends = [(servers[a][c], servers[b][c]) for c in range(channels) for a, b in pairs]
    return Flows([a for a, _ in ends], [b for _, b in ends], [size / channels] * len(ends) if ends else [])


def _joined(parts: Sequence[Flows]) -> Flows:
    return Flows(*([value for part in parts for value in part[column]] for column in range(3)))


def hierarchical_all_to_all(gpus: Sequence[int], size: float, gpus_per_server: int) -> Flows:
    """Every GPU sends size/n bytes to every other, gathered over NVLink on the GPU of the receiver's rail: fewer flows."""
    servers = by_server(gpus, gpus_per_server)
    found = [
        (own[j % len(own)], gpu, len(own) * size / len(gpus))
        for a, own in enumerate(servers)
        for b, members in enumerate(servers)
        for j, gpu in enumerate(members)
        if a != b
    ]
    return Flows([f[0] for f in found], [f[1] for f in found], [f[2] for f in found])


def all_to_all(gpus: Sequence[int], size: float, gpus_per_server: int) -> Flows:
    """Every GPU sends size/n bytes to every other; pairs within a server stay on NVLink."""
    pairs = [(a, b) for a, b in permutations(gpus, 2) if a // gpus_per_server != b // gpus_per_server]
    return Flows([a for a, _ in pairs], [b for _, b in pairs], [size / len(gpus)] * len(pairs))


def point_to_point(pairs: Sequence[tuple[int, int]], size: float, gpus_per_server: int) -> Flows:
    """`size` bytes from a to b for each pair that spans two servers."""
    crossing = [(a, b) for a, b in pairs if a // gpus_per_server != b // gpus_per_server]
    return Flows([a for a, _ in crossing], [b for _, b in crossing], [size] * len(crossing))


def by_server(gpus: Sequence[int], gpus_per_server: int) -> list[list[int]]:
    """The GPUs of each server that holds some, in order of servers."""
    servers: dict[int, list[int]] = {}
    for gpu in sorted(gpus):
        servers.setdefault(gpu // gpus_per_server, []).append(gpu)
    return list(servers.values())

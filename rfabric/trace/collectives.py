"""Collectives lowered to the flows that leave servers: who sends how many bytes to whom.

GPUs of one server talk over NVLink, so only the edges between servers become flows. A ring over n
GPUs in m servers runs as g channels, one per GPU that a server has in the group, as NCCL does with
a NIC per GPU; neighbouring channels run opposite ways round, so both directions of every cable
carry. The 2(n-1) identical steps of a ring are merged into one flow per edge.

    ring all-reduce      each edge carries 2 (n-1)/n S        reduce-scatter, all-gather: (n-1)/n S
    all-to-all           each ordered pair of GPUs carries S/n, or its own bytes (exchange)
    scatter              each GPU receives its own S/n, from sources taken evenly
    broadcast            each edge of a chain of servers, from the root's on, carries S

S: bytes each GPU holds (all-to-all) or the whole buffer (others).
"""

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np

from ..errors import RFabricError

RING_FACTOR = {"all-reduce": 2, "reduce-scatter": 1, "all-gather": 1}


class Flows(NamedTuple):
    """Three columns of equal length, lists or (where there may be millions) arrays: source and
    destination GPU, bytes.
    """

    src: list[int] | np.ndarray
    dst: list[int] | np.ndarray
    size: list[float] | np.ndarray


def ring(kind: str, gpus: Sequence[int], size: float, gpus_per_server: int, turn: int = 0) -> Flows:
    """A ring collective of `size` bytes among `gpus`; `turn` 1 runs channel 0 the other way
    round. RFabricError for another kind.

    >>> ring("all-reduce", [0, 1, 8, 9], 1e6, gpus_per_server=8)
    Flows(src=[0, 8, 9, 1], dst=[8, 0, 1, 9], size=[750000.0, 750000.0, 750000.0, 750000.0])
    """
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


def scatter(sources: Sequence[int], gpus: Sequence[int], size: float) -> Flows:
    """Each of `gpus` receives its own n-th of `size` bytes; `sources` are taken evenly.

    >>> scatter([0], [8, 9], 4e6)
    Flows(src=[0, 0], dst=[8, 9], size=[2000000.0, 2000000.0])
    """
    src = [sources[i * len(sources) // len(gpus)] for i in range(len(gpus))]
    return Flows(src, list(gpus), [size / len(gpus)] * len(gpus))


def broadcast(root: int, gpus: Sequence[int], size: float, gpus_per_server: int) -> Flows:
    """All of `gpus` receive the `size` bytes of `root`: server by server, as a pipelined chain.

    >>> broadcast(8, [0, 8, 16], 1e6, gpus_per_server=8)
    Flows(src=[8, 16], dst=[16, 0], size=[1000000.0, 1000000.0])
    """
    servers = by_server(gpus, gpus_per_server)
    first = next((i for i, members in enumerate(servers) if root in members), 0)
    order = servers[first:] + servers[:first]
    channels = min(map(len, servers), default=0)
    edges = [(a[c], b[c]) for c in range(channels) for a, b in zip(order, order[1:], strict=False)]
    return Flows([a for a, _ in edges], [b for _, b in edges], [size / channels] * len(edges))


def all_to_all(gpus: Sequence[int], size: float, gpus_per_server: int) -> Flows:
    """Every GPU sends size/n bytes to every other; pairs within a server stay on NVLink.

    >>> all_to_all([0, 1, 8], 3e6, gpus_per_server=8)
    Flows(src=[0, 1, 8, 8], dst=[8, 8, 0, 1], size=[1000000.0, 1000000.0, 1000000.0, 1000000.0])
    """
    pairs = [
        (a, b) for a, b in permutations(gpus, 2) if a // gpus_per_server != b // gpus_per_server
    ]
    return Flows([a for a, _ in pairs], [b for _, b in pairs], [size / len(gpus)] * len(pairs))


def exchange(gpus: Sequence[int], sizes: np.ndarray, gpus_per_server: int) -> Flows:
    """An all-to-all of uneven parts: `sizes[i, j]` bytes (n x n) from the i-th GPU to the j-th."""
    server = np.array(gpus) // gpus_per_server
    i, j = np.nonzero((server[:, None] != server) & (sizes > 0))
    return Flows([gpus[k] for k in i], [gpus[k] for k in j], sizes[i, j].tolist())


def point_to_point(pairs: Sequence[tuple[int, int]], size: float, gpus_per_server: int) -> Flows:
    """`size` bytes from a to b for each pair that spans two servers.

    >>> point_to_point([(0, 1), (0, 8)], 1e6, gpus_per_server=8)
    Flows(src=[0], dst=[8], size=[1000000.0])
    """
    crossing = [(a, b) for a, b in pairs if a // gpus_per_server != b // gpus_per_server]
    return Flows([a for a, _ in crossing], [b for _, b in crossing], [size] * len(crossing))


def by_server(gpus: Sequence[int], gpus_per_server: int) -> list[list[int]]:
    """The GPUs of each server that holds some, in order of servers.

    >>> by_server([9, 0, 8], gpus_per_server=8)
    [[0], [8, 9]]
    """
    servers: dict[int, list[int]] = {}
    for gpu in sorted(gpus):
        servers.setdefault(gpu // gpus_per_server, []).append(gpu)
    return list(servers.values())

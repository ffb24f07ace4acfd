"""Which core OCS carries which pair of pods, where one core OCS has too few ports for a plane.

    pod 1 : : : :    `tors` up-cables a pod, an equal, even share of them to each core OCS
           : :  : :
         c1     c2   every set of pairs in which no pod stands more than `tors` times can be dealt

Why it always works (Petersen 1891, Koenig 1916): walk the pairs along closed tours and each pod is
left as often as entered, at most tors/2 times; left and entered sides form a bipartite graph of
that degree, whose edges take as many colours; pairs of one colour meet a pod twice at most, so a
core with a share of 2q cables carries q colours.

By the compiled core (`dealing.cpp`), or where that was never built by Python: the same cores,
twenty times as slow.
"""

import ctypes
from collections.abc import Sequence
from functools import cache

import numpy as np

from .. import native
from ..routing.inner import ARRAY, COUNT, NO_MEMORY, at

PodPair = tuple[int, int]  # their numbers
Used = tuple[list[list[int]], list[list[int]]]


def cores_of(pods: np.ndarray, cables: int, cores: int) -> np.ndarray:
    """int64[pairs]: the core of each pair of pods (their numbers, int64[2, pairs]); no pod has more
    than `cables` / `cores` pairs at one core.

    No pod may stand in more than `cables` pairs (ValueError), and `cables` / `cores` must be even.
    MemoryError where there is no room.

    >>> cores_of(np.array([[0, 0, 0, 0], [1, 1, 1, 1]]), 4, 2).tolist()
    [0, 0, 1, 1]
    """
    colours = cables // 2
    each = colours // cores  # colours a core carries
    return (by_core if _core() else by_python)(pods, colours) // each


def by_core(pods: np.ndarray, colours: int) -> np.ndarray:
    """int64[pairs]: a colour for each pair, none more than twice at a pod; by the compiled core.

    ValueError where a pod stands in more pairs; MemoryError where there is no room.
    """
    one, other = np.ascontiguousarray(pods, np.int64)
    colour, count = np.empty(len(one), np.int64), int(pods.max(initial=-1)) + 1
    done = _core().rf_deal(count, len(one), at(one), at(other), colours, at(colour))
    if done == NO_MEMORY:
        raise MemoryError(f"no room to deal {len(one):,} pairs of {count:,} pods")
    if done:
        raise ValueError(f"a pod stands in more than {2 * colours} pairs")
    return colour


def by_python(pods: np.ndarray, colours: int) -> np.ndarray:
    """`by_core`, without it."""
    pairs = list(zip(*pods.tolist(), strict=True))
    return np.array(_coloured(_oriented(pairs), colours), np.int64)


def _oriented(pairs: Sequence[PodPair]) -> list[PodPair]:
    """The pairs, each turned so that every pod is left and entered equally often, give or take
    one.
    """
    edges = [*pairs, *_evening(pairs)]
    at: dict[int, list[int]] = {}
    for i, (a, b) in enumerate(edges):
        at.setdefault(a, []).append(i)
        at.setdefault(b, []).append(i)
    oriented: list[PodPair | None] = [None] * len(edges)
    for start in sorted(at):
        here = start
        while at[here]:  # every degree is even: a walk ends where it began
            i = at[here].pop()
            if oriented[i] is None:
                a, b = edges[i]
                oriented[i] = (a, b) if a == here else (b, a)
                here = oriented[i][1]
    return oriented[: len(pairs)]


def _evening(pairs: Sequence[PodPair]) -> list[PodPair]:
    """Pairs of the pods that stand in an odd number of pairs: with them every pod stands in an even
    number.
    """
    count: dict[int, int] = {}
    for pair in pairs:
        for pod in pair:
            count[pod] = count.get(pod, 0) + 1
    odd = sorted(pod for pod, n in count.items() if n % 2)
    return list(zip(odd[::2], odd[1::2], strict=True))


def _coloured(edges: Sequence[PodPair], colours: int) -> list[int]:
    """A colour for each directed edge: none twice out of a pod, none twice into one (Koenig, by
    alternating chains).
    """
    colour: list[int] = []
    pods = range(max(map(max, edges), default=-1) + 1)
    # the edge of each colour out of each pod, and into each; -1 where it is free
    used: Used = [[-1] * colours for _ in pods], [[-1] * colours for _ in pods]
    for i, (a, b) in enumerate(edges):
        out, into = used[0][a], used[1][b]
        free = out.index(-1)
        if into[free] >= 0:
            _flip(edges, colour, used, b, free, into.index(-1))
        colour.append(free)
        out[free] = into[free] = i
    return colour


def _flip(
    edges: Sequence[PodPair], colour: list[int], used: Used, pod: int, a: int, b: int
) -> None:
    """Swap colours `a` and `b` along the chain that begins with the edge of colour `a` into a pod
    where `b` is free.
    """
    chain, side, want = [], 1, a
    while (edge := used[side][pod][want]) >= 0:
        chain.append(edge)
        side, want = 1 - side, b if want == a else a
        pod = edges[edge][side]
    for edge in chain:
        for side, pod in enumerate(edges[edge]):
            used[side][pod][colour[edge]] = -1
    for edge in chain:
        colour[edge] = b if colour[edge] == a else a
        for side, pod in enumerate(edges[edge]):
            used[side][pod][colour[edge]] = edge


@cache
def _core() -> ctypes.CDLL | None:
    """The core with its dealing declared; None where it was never built."""
    library = native.core()
    if library is not None:
        library.rf_deal.restype = ctypes.c_int
        library.rf_deal.argtypes = [COUNT, COUNT, ARRAY, ARRAY, COUNT, ARRAY]
    return library

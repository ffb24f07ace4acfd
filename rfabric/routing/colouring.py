"""Edges of a bipartite multigraph coloured so that every vertex has equally many of each colour,
give or take one.

    racks that send    racks that receive
         a ===.    .--- x
         b ----+--<---- y
         c ---'    `=== z

An edge is a pair of hosts, a colour the spine (plane, core) it crosses. Where no vertex has more
edges than there are colours, none has two of one colour (Koenig 1916); with more, none has more
than its share, rounded up (de Werra 1971).

Split in two, again and again (Euler): at each vertex the edges are paired; from mate to mate on one
side, then on the other, they form rings of even length, and every second edge of a ring goes to the
other half. Then every vertex has its edges halved, and so has each of its groups whose edges were
paired among themselves: those of one size, of one kind. An odd number of colours begins with any
deal; the edges of two colours of which a vertex has two more of one than of the other are split
anew. Each time the sum of the squares falls, so it ends. All of it is arrays: a split takes time
linear in edges but for a logarithm.
"""

from collections.abc import Sequence

import numpy as np

from .inner import halves, loops, mates
from .rows import begins, in_order, ranks


class _Side:
    """One side of the graph: its edges by vertex, then by group, coarse groups first, and how they
    pair.

    columns: int64[n] each, the last ones that which should be paired first.
    """

    def __init__(self, columns: Sequence[np.ndarray]):
        self.columns = tuple(columns)
        self.order = in_order(*self.columns)
        self._rows = np.column_stack(self.columns) if loops() else None

    def sorted(self, part: np.ndarray, some: np.ndarray) -> np.ndarray:
        """The edges of a mask by part, then in their order."""
        order = self.order[some[self.order]]
        return order[in_order(part[order])]

    def mates(self, part: np.ndarray, some: np.ndarray) -> np.ndarray:
        """int64[n + 1]: mates of the edges of a mask, as alike as can be; n that of one left over,
        others their own.
        """
        if self._rows is not None:
            return mates(self.sorted(part, some), part, self._rows)
        mate, rest = np.arange(len(part) + 1), self.sorted(part, some)
        columns = (np.zeros_like(part), part, *self.columns)
        for depth in range(len(columns), 0, -1):
            new, rank = (
                of(*(column[rest] for column in columns[:depth])) for of in (begins, ranks)
            )
            first = np.flatnonzero((rank % 2 == 0)[:-1] & ~new[1:])
            mate[rest[first]], mate[rest[first + 1]] = rest[first + 1], rest[first]
            rest = np.delete(rest, np.concatenate((first, first + 1)))
        if len(rest):
            mate[rest[0]], mate[-1] = len(part), rest[0]
        return mate


def coloured(
    left: np.ndarray, right: np.ndarray, colours: int, groups: Sequence[np.ndarray] = ()
) -> np.ndarray:
    """int64[n]: the colour, 0 to `colours` - 1, of each edge left[i] - right[i] (numbers of
    vertices).

    groups: int64[n] each, coarse first; the edges of a vertex that share the first of them are
    spread evenly too.
    """
    if colours == 1:
        return np.zeros(len(left), np.int64)
    sides = _Side((left, *groups, right)), _Side((right, *groups, left))
    part, every, odd = np.zeros(len(left), np.int16), np.ones(len(left), bool), colours
    while odd % 2 == 0:
        part = (2 * part + _halves(sides, part, every)).astype(np.int16)
        odd //= 2
    return (
        part.astype(np.int64) * odd + _dealt(sides, part, odd) if odd > 1 else part.astype(np.int64)
    )


def _halves(sides: Sequence[_Side], part: np.ndarray, some: np.ndarray) -> np.ndarray:
    """bool[n]: to which half each edge of a mask goes, part by part; False for the others."""
    left, right = (side.mates(part, some) for side in sides)
    if loops():
        return halves(left, right)
    step = right[left]  # two edges on along the ring: those of one half
    moving = np.flatnonzero(step != np.arange(len(step)))
    place = np.zeros(len(step), np.int64)
    place[moving] = np.arange(len(moving))
    jump, low = place[step[moving]], np.arange(len(moving))
    while (low[jump] != low).any():  # to the lowest edge of each half, by jumps that double
        low, jump = np.minimum(low, low[jump]), jump[jump]
    name = np.arange(len(step))
    name[moving] = moving[low]
    return (name > name[left])[:-1]


def _dealt(sides: Sequence[_Side], part: np.ndarray, colours: int) -> np.ndarray:
    """The same within each part, for any number of colours: dealt by turns, then pairs of colours
    split anew.
    """
    every = np.ones(len(part), bool)
    order = sides[0].sorted(part, every)
    colour = np.empty(len(part), np.int64)
    colour[order] = ranks(part[order], sides[0].columns[0][order]) % colours
    groups = [_numbered((part, *side.columns[:depth])) for side in sides for depth in (1, 2)]
    while True:
        other = _to_split(groups, colour, colours)
        some = other[colour] >= 0
        if not some.any():
            return colour
        low = np.minimum(colour, other[colour])
        half = _halves(sides, part.astype(np.int64) * colours + low, some)
        colour = np.where(some, np.where(half, other[low], low), colour)


def _to_split(groups: Sequence[np.ndarray], colour: np.ndarray, colours: int) -> np.ndarray:
    """int64[colours]: with which other colour each is to be split, -1 for none; most unequal groups
    first.
    """
    votes = np.zeros((colours, colours), np.int64)
    for group in groups:
        counts = np.bincount(
            group * colours + colour, minlength=(group.max(initial=-1) + 1) * colours
        )
        counts = counts.reshape(-1, colours)
        most, least = counts.argmax(1), counts.argmin(1)
        uneven = np.flatnonzero(counts.max(1) - counts.min(1) > 1)
        np.add.at(votes, (most[uneven], least[uneven]), 1)
    votes, other = np.triu(votes + votes.T), np.full(colours, -1)
    while votes.any():
        a, b = np.unravel_index(votes.argmax(), votes.shape)
        other[a], other[b] = b, a
        votes[[a, b]] = votes[:, [a, b]] = 0
    return other


def _numbered(columns: Sequence[np.ndarray]) -> np.ndarray:
    """int64[n]: equal rows of the columns have equal numbers."""
    order = in_order(*columns)
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(begins(*(column[order] for column in columns)))
    return number

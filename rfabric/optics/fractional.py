"""A matching of maximum weight: by the library, or where edges are many by an assignment first.

Where racks have two sides and every edge leads across, an assignment of one side to the other is
the matching. Else an assignment of all racks to all is a fractional matching, which may take halves
of edges: racks assigned to each other are a whole edge, longer cycles are halves. A cycle of even
length is two matchings, each as heavy as its halves; so where no cycle is odd, this is a matching
of maximum weight. Else prices say what may differ from it:

    price[a] + price[b] >= 2 weight    of every edge (a, b); what it is more is the edge's slack
    sum of price = 2 weight            of the fractional matching, which no matching exceeds
    how far a matching falls short     = slack of its edges + price of racks it leaves alone

Another matching differs by alternating paths and cycles, and by those that touch no odd cycle it
gains nothing. Along a path, the slack of its edges and the price of what it leaves alone at its
ends add up; what they are at least on any path through an edge is the edge's detour. So edges of a
longer detour than a known matching falls short are in no heavier one, and the library decides on
the few that remain.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import rustworkx

MANY = 1000  # edges: up to so many, the library is as fast
THIN = 8  # cells of the table of all pairs to an edge: from so many on, the library is as fast
MOST_TRIED = 0.5  # of all edges: beyond it the library alone is as fast


def matched(edges: np.ndarray) -> np.ndarray:
    """Positions, ascending, of a matching of maximum weight among rows (end, higher end, weight >=
    0) of whole numbers; no two rows have the same ends.

    >>> matched(np.array([(0, 1, 4), (1, 2, 7), (2, 3, 4)])).tolist()
    [0, 2]
    """
    if len(edges) <= MANY:
        return by_library(edges)
    side, racks = sides(edges), int(edges[:, 1].max()) + 1
    if side is not None:
        return across(edges, side)
    return by_halves(edges) if racks * racks < THIN * len(edges) else by_library(edges)


def by_library(edges: np.ndarray) -> np.ndarray:
    """`matched`, by rustworkx."""
    rows = edges.tolist()
    place = {(low, high): i for i, (low, high, _) in enumerate(rows)}
    graph = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(max(map(max, place)) + 1))
    graph.add_edges_from(list(map(tuple, rows)))
    pairs = rustworkx.max_weight_matching(graph, weight_fn=int)
    return np.sort(np.array([place[min(pair), max(pair)] for pair in pairs], dtype=np.int64))


def sides(edges: np.ndarray) -> np.ndarray | None:
    """Which of two sides each rack is on, such that every edge leads across; None: not so."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    (low, high, _), racks = edges.T, int(edges[:, 1].max()) + 1
    # each rack twice, every edge from one copy to the other: a rack meets its own copy only over an
    # odd number of edges
    ends = np.concatenate((low, high)), np.concatenate((high, low)) + racks
    twice = csr_array((np.ones(len(ends[0])), ends), shape=(2 * racks, 2 * racks))
    part = connected_components(twice, directed=False)[1].reshape(2, racks)
    return part[0] > part[1] if (part[0] != part[1]).all() else None


def across(edges: np.ndarray, side: np.ndarray) -> np.ndarray:
    """`matched`, where every edge leads from one side to the other."""
    from scipy.optimize import linear_sum_assignment

    low, high, weight = edges.T
    place = np.where(side, np.cumsum(side), np.cumsum(~side)) - 1
    row, column = (place[np.where(side[low] == which, low, high)] for which in (False, True))
    table = np.zeros((int((~side).sum()), int(side.sum())))
    table[row, column] = weight
    to = np.full(len(table), -1)
    some, theirs = linear_sum_assignment(table, maximize=True)
    to[some] = theirs
    return np.flatnonzero(to[row] == column)


def by_halves(edges: np.ndarray) -> np.ndarray:
    """`matched`, by the fractional matching."""
    to, took = _assigned(edges)
    mate, odd = _mates(to)
    if not odd.any():
        return np.flatnonzero(mate[edges[:, 0]] == edges[:, 1])
    return Fraction(edges, mate, odd, _prices(edges, to, took)).mended()


def _assigned(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """To which rack each is assigned, itself for none, and at what weight. Whole numbers this small
    are exact as floats.
    """
    from scipy.optimize import linear_sum_assignment

    (low, high, weight), racks = edges.T, int(edges[:, 1].max()) + 1
    table = np.full((racks, racks), -racks * (float(weight.max()) + 1))  # no pair is that bad
    table[low, high] = table[high, low] = weight
    np.fill_diagonal(table, 0)
    to = linear_sum_assignment(table, maximize=True)[1]
    return to, table[np.arange(racks), to].astype(np.int64)


def _mates(to: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rack that each is joined to, itself for none, and which are on cycles of odd length, so
    that they are left over.
    """
    mate, odd = to.copy(), np.zeros(len(to), bool)
    for cycle in _cycles(to):
        if len(cycle) % 2:
            mate[cycle], odd[cycle] = cycle, True
        else:
            mate[cycle[::2]], mate[cycle[1::2]] = cycle[1::2], cycle[::2]
    return mate, odd


def _cycles(to: np.ndarray) -> list[list[int]]:
    """The cycles of a permutation that are longer than two."""
    follows = to.tolist()
    rest = dict.fromkeys(np.flatnonzero(to[to] != np.arange(len(to))).tolist())
    cycles: list[list[int]] = []
    while rest:
        rack = next(iter(rest))
        cycles.append([])
        while rack in rest:
            del rest[rack]
            cycles[-1].append(rack)
            rack = follows[rack]
    return cycles


def _prices(edges: np.ndarray, to: np.ndarray, took: np.ndarray) -> np.ndarray:
    """int64[racks]: prices that fit an assignment. Each rack has one as a row of the table and one
    as a column, which add up to what the assigned take, and to no less than any edge weighs.
    """
    (low, high, weight), every = edges.T, np.arange(len(to))
    rows, columns = np.concatenate((low, high, every)), np.concatenate((high, low, every))
    holder = np.argsort(to)[columns]
    less = took[holder] - np.concatenate((weight, weight, np.zeros_like(every)))
    row = -_nearest(-(took // 2), holder, rows, less)
    column = np.empty_like(row)
    column[to] = took - row
    return row + column


def _nearest(
    far: np.ndarray, tails: np.ndarray, heads: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    """How far each rack is along arcs, where `far` says how far at most."""
    order, far = np.argsort(heads, kind="stable"), far.copy()
    heads, tails, lengths = heads[order], tails[order], lengths[order]
    first = np.flatnonzero(np.diff(heads, prepend=-1))
    ends = heads[first]
    while len(ends):
        nearer = np.minimum.reduceat(far[tails] + lengths, first)
        if (nearer >= far[ends]).all():
            break
        far[ends] = np.minimum(far[ends], nearer)
    return far


@dataclass(frozen=True, eq=False)
class Fraction:
    """A fractional matching of maximum weight with odd cycles, and its prices."""

    edges: np.ndarray
    mate: np.ndarray
    odd: np.ndarray
    price: np.ndarray

    @cached_property
    def slack(self) -> np.ndarray:
        """int64[edges]: what the price of the ends is above twice the weight."""
        low, high, weight = self.edges.T
        return self.price[low] + self.price[high] - 2 * weight

    @cached_property
    def pairs(self) -> np.ndarray:
        """Which edges are whole: a mask."""
        return self.mate[self.edges[:, 0]] == self.edges[:, 1]

    def mended(self) -> np.ndarray:
        """Positions of a matching of maximum weight, ascending; by the library alone where too many
        edges may be in it, as where many weigh the same.
        """
        low, weight = self.edges[:, 0], self.edges[:, 2]
        some, short, tried = 3 * len(self.mate) // 4, np.inf, 0
        while True:
            rank = np.partition(self.slack, some)[some] if some < len(self.slack) else np.inf
            limit = min(short, rank)
            near, inside = self._around(limit)
            tried += len(inside)
            if tried > MOST_TRIED * len(self.edges):
                return by_library(self.edges)
            best = self._best(inside, limit)
            short = self.price[near].sum() - 2 * weight[best].sum()
            if short <= limit:
                return np.sort(np.concatenate((best, np.flatnonzero(self.pairs & ~near[low]))))
            some = np.count_nonzero(self.slack <= limit) * 3 // 2 + 1

    def _around(self, limit: float) -> tuple[np.ndarray, np.ndarray]:
        """Which racks a matching may join otherwise if it falls no further short than `limit`: a
        mask; and the positions of the edges it may have there.
        """
        (low, high, _), changed = self.edges.T, self._detours(limit) <= limit
        near = self.odd.copy()
        near[low[changed]] = near[high[changed]] = True
        near |= near[self.mate]
        return near, np.flatnonzero(changed | (self.pairs & near[low]))

    def _detours(self, limit: float) -> np.ndarray:
        """float64[edges]: the detour of each; inf beyond `limit` and for whole edges."""
        some = np.flatnonzero((self.slack <= limit) & ~self.pairs)
        (low, high, _), slack, mate = self.edges[some].T, self.slack[some], self.mate
        far = _nearest(
            np.where(self.odd, 0, self.price[mate]),
            np.concatenate((low, high)),
            mate[np.concatenate((high, low))],
            np.concatenate((slack, slack)),
        )
        detour = np.full(len(self.edges), np.inf)
        detour[some] = far[low] + slack + far[high]
        return detour

    def _best(self, inside: np.ndarray, limit: float) -> np.ndarray:
        """Positions of the best matching among the edges `inside`, if it falls no further short
        than `limit`.

        Such a matching leaves no rack alone whose price is higher. So prices may be cut there, with
        which the library is sooner done: whole edges all weigh about the same.
        """
        ends, number = np.unique(self.edges[inside, :2], return_inverse=True)
        price = np.minimum(self.price[ends], limit + 1).astype(np.int64)
        low, high = number.reshape(-1, 2).T
        worth = price[low] + price[high] - self.slack[inside]
        return inside[by_library(np.stack((low, high, worth), axis=1))]

"""Ways up and down through tiers of packet switches: which plane, then which core, a pair of hosts
crosses.

    tier 0   t1      t5
    tier 1  a1 a2   a3 a4
    tier 2    c1  c2

Without the tier that the pairs have reached, what is above falls apart: into planes above the
racks, into single cores above the aggregation of a plane. Both ends of a pair go up into the same
part, so the parts colour the graph of who sends to whom, tier by tier (`colouring`).

Where a switch of a tier has one bundle to each part, all of one rate, every colouring that is fair
at each switch is as good as any routing can be, for pairs of one size. Pairs of other shapes of
fabric are left to who asked.
"""

import numpy as np

from .choices import Bundles
from .colouring import coloured
from .rows import closed_up, in_order, ranks


def tiered(
    bundles: Bundles, start: np.ndarray, end: np.ndarray, groups: tuple[np.ndarray, ...]
) -> np.ndarray:
    """int64[pairs, longest]: bundles from switch start[i] to end[i] (rows), `nowhere` beyond their
    end and where none fits.

    groups: int64[pairs] each, coarse first: pairs alike, which are spread evenly among themselves.
    """
    below = np.zeros(bundles.switches, bool)
    tier = np.concatenate((start, end))
    at, to = start.copy(), end.copy()
    going, ups, downs = np.flatnonzero(at != to), [], []
    while len(going):
        below[tier] = True
        parts = _Parts(bundles, below, tier)
        fits = parts.alike(at[going], to[going])
        lost, going = going[~fits], going[fits]
        at[lost] = to[lost] = -1
        up, down = (np.full(len(start), bundles.nowhere) for _ in range(2))
        up[going], down[going] = parts.crossed(
            at[going], to[going], tuple(group[going] for group in groups)
        )
        ups.append(up)
        downs.append(down)
        at[going], to[going] = bundles.leads[up[going]], bundles.leaves[down[going]]
        tier = np.concatenate((at[going], to[going]))
        going = going[at[going] != to[going]]
    rows = np.column_stack([*ups, *downs[::-1]]) if ups else np.zeros((len(start), 0), np.int64)
    rows[at < 0] = bundles.nowhere
    return closed_up(rows, bundles.nowhere)


class _Parts:
    """The parts of a fabric above a tier of switches, and by which bundles those are joined to
    them.

    ports[row] is how many parts a switch reaches; its bundles up to them stand in `up` from
    first[row] on, by part; those down in `down` alike. `shape` is equal for switches that reach the
    same parts, -1 where their bundles differ.
    """

    def __init__(self, bundles: Bundles, below: np.ndarray, tier: np.ndarray):
        inside = np.zeros(bundles.switches, bool)
        inside[tier] = True
        part = _joined(bundles, ~below)
        up = np.flatnonzero(inside[bundles.leaves] & ~below[bundles.leads])
        self.up = up[in_order(bundles.leaves[up], part[bundles.leads[up]])]
        leaves, of = bundles.leaves[self.up], part[bundles.leads[self.up]]
        self.first = np.searchsorted(leaves, np.arange(bundles.switches + 1))
        self.ports = np.diff(self.first)
        self.down = bundles.across(bundles.leads[self.up], leaves)
        rate = bundles.rate[self.up] * bundles.width[self.up]
        odd = (
            (ranks(leaves, of) > 0)
            | (rate != rate[self.first[leaves]])
            | (self.down == bundles.nowhere)
            | (bundles.equal != bundles.width)[self.up]
        )
        self.shape = self._shapes(of)
        self.shape[leaves[odd]] = -1

    def _shapes(self, of: np.ndarray) -> np.ndarray:
        """int64[switches]: the lowest switch that reaches the same parts; -1 for switches that
        reach none.
        """
        names: dict[bytes, int] = {}
        shape = np.full(len(self.ports), -1)
        for row in np.flatnonzero(self.ports).tolist():
            shape[row] = names.setdefault(of[self.first[row] : self.first[row + 1]].tobytes(), row)
        return shape

    def alike(self, at: np.ndarray, to: np.ndarray) -> np.ndarray:
        """Which pairs of switches reach the same parts, over one bundle each, all of one rate: a
        mask.
        """
        return (self.shape[at] == self.shape[to]) & (self.shape[at] >= 0)

    def crossed(
        self, at: np.ndarray, to: np.ndarray, groups: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The bundles up from at[i] and down to to[i]: every switch uses its parts evenly."""
        colour = np.zeros(len(at), np.int64)
        for count in np.flatnonzero(np.bincount(self.ports[at])).tolist():
            some = np.flatnonzero(self.ports[at] == count)
            colour[some] = coloured(
                at[some], to[some], count, tuple(group[some] for group in groups)
            )
        return self.up[self.first[at] + colour], self.down[self.first[to] + colour]


def _joined(bundles: Bundles, inside: np.ndarray) -> np.ndarray:
    """int64[switches]: the lowest switch that each one inside is joined to, over others inside."""
    lowest = np.arange(bundles.switches)
    some = np.flatnonzero(inside[bundles.leaves] & inside[bundles.leads])
    a, b = bundles.leaves[some], bundles.leads[some]
    while (lowest[a] != lowest[b]).any():
        np.minimum.at(lowest, a, lowest[b])
        lowest = lowest[lowest]
    return lowest

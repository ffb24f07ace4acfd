"""Rings of equal cost around each rack: on which one every switch stands.

Dijkstra from all switches at once: a ring settled at cost D reaches, over the light paths of one
rate, the ring at D + their cost. A fabric has few rates, hence few rings; the switches that reach
one are a row of bits, in words of 64.
"""

from typing import NamedTuple

import numpy as np

from ..errors import RFabricError
from .inner import NEAR, at, loops
from .rows import begins, distinct

# the ring of switches from which no way leads: few fabrics have so many rings that a byte is short
FAR = (1 << 16) - 1


class Join(NamedTuple):
    """Light paths of one cost: the switches (`rows`) that they lead to, and where the part of each
    begins (`first`) in `leaves`, the switches that they come from.
    """

    rows: np.ndarray
    first: np.ndarray
    leaves: np.ndarray


class Met:
    """The switches that reach each, sets as rows of words: `seen` so far, of `all` there are.
    bool[switches]: `some`, whether the last front brought any; `missing`, whether one might.
    """

    def __init__(self, alone: np.ndarray):
        self.all, self.seen = np.bitwise_or.reduce(alone), np.zeros_like(alone)
        self.some, self.missing = np.ones((2, len(alone)), bool)

    def fresh(self, front: np.ndarray) -> None:
        """Leave in `front` what was not seen before, and see it. A row that is left without `some`
        may hold anything.
        """
        if core := loops():
            sets = at(self.all), at(front), at(self.seen)
            core.rf_fresh(*front.shape, *sets, at(self.some), at(self.missing))
            return
        front &= ~self.seen
        self.seen |= front
        self.some = front.any(axis=1)

    def joined(self, front: np.ndarray, new: np.ndarray, join: Join) -> None:
        """Add to `front` what is `new` where light paths come from; rows of which none is missing
        need nothing.
        """
        rows, first, leaves = join
        if core := loops():
            ends = np.append(first, len(leaves))
            sets = at(new), at(self.some), at(self.missing), at(front)
            core.rf_join(len(rows), at(rows), at(ends), at(leaves), new.shape[1], *sets)
        else:
            front[rows] |= np.bitwise_or.reduceat(new[leaves], first, axis=0)

    def settle(self, rings: np.ndarray, rows: np.ndarray, new: np.ndarray, number: int) -> None:
        """Write `number` where new[rows[i]] holds a column of rings[i]."""
        if core := loops():
            narrow, wide = (rings, None) if rings.itemsize == 1 else (None, rings)
            words = rings.shape[1], new.shape[1], at(new), at(self.some)
            core.rf_settle(len(rows), at(rows), *words, number, at(narrow), at(wide))
            return
        bits = np.unpackbits(
            new[rows].view(np.uint8), axis=1, count=rings.shape[1], bitorder="little"
        )
        np.copyto(rings, rings.dtype.type(number), where=bits.view(bool))


def grown(
    racks: np.ndarray, switches: int, leaves: np.ndarray, leads: np.ndarray, step: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(uint8 or, of many rings, uint16[racks, switches], the ring each switch stands on around each
    rack, the highest number where no way leads; float64, its cost).

    racks: the switch that each is, int64; leaves, leads: the switches that light paths join, step:
    what each costs.
    """
    rings, costs = np.full((len(racks), switches), NEAR, np.uint8), np.full(FAR + 1, np.inf)
    joins, fronts, number = _joins(switches, leaves, leads, step), {0.0: _alone(switches)}, 0
    met = Met(fronts[0.0])
    while fronts and met.missing[racks].any():
        cost = min(fronts)
        new = fronts.pop(cost)
        met.fresh(new)
        if met.some[racks].any():
            rings = _with_room(rings, number)
            met.settle(rings, racks, new, number)
            costs[number], number = cost, number + 1
        for more, join in joins.items() if met.some.any() else ():
            then = round(cost + more, 9)
            if then not in fronts:
                fronts[then] = np.zeros_like(new)
            met.joined(fronts[then], new, join)
    # a copy: a slice would keep the whole array alive
    return rings, costs[: np.iinfo(rings.dtype).max + 1].copy()


def _joins(
    switches: int, leaves: np.ndarray, leads: np.ndarray, step: np.ndarray
) -> dict[float, Join]:
    """Light paths by their cost."""
    by_cost = {}
    for cost in distinct(step).tolist():
        some = step == cost
        codes = distinct(leads[some] * switches + leaves[some])
        first = np.flatnonzero(begins(codes // switches))
        by_cost[cost] = Join(codes[first] // switches, first, codes % switches)
    return by_cost


def _alone(switches: int) -> np.ndarray:
    """Sets of switches: each alone in its own."""
    own = np.arange(switches)
    bits = np.zeros((switches, 8 * -(-switches // 64)), np.uint8)
    bits[own, own // 8] = 1 << own % 8
    return bits.view(np.uint64)


def _with_room(rings: np.ndarray, number: int) -> np.ndarray:
    """Rings, as wide as this number needs."""
    if number == FAR:
        raise RFabricError(
            f"paths of more than {FAR} different costs; give the links fewer different rates"
        )
    if number == NEAR and rings.itemsize == 1:
        return np.where(rings < NEAR, rings, np.uint16(FAR))
    return rings

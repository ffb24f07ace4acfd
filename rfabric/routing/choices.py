"""The ways that a scheme may choose among, for many pairs of racks at once, as rows of bundles.

t1 ===== a1 ===== c1 ----- a3 ----- t5  === a bundle: light paths side by side
   `---- a2 ----- c2 ----- a4 -----'    --- a bundle of one

A way is a row of bundles; the switches on it are all different.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .inner import ARRAY, at, loops
from .rows import begins, distinct, in_order, mixed, offsets_of, ranks, spread, widened
from .ways import Ways

# ways looked at for one pair of racks: a ToR has no more uplinks in the fabrics built here
MOST_WAYS = 128


class Bundles:
    """Light paths between packet switches, side by side: `leaves`, `leads` rows; arcs of bundle b:
    first[b] to first[b + 1], the fastest first.

    `rate` float64[bundles] is that of its fastest light path, `width` how many it has, `equal` how
    many of them are as fast; `path` is the light path of each arc, `arc_rate` its rate. `nowhere`,
    one more than the last bundle, stands where a shorter way has no more.
    """

    def __init__(self, ways: Ways):
        codes = ways.leaves * ways.switches + ways.leads
        order = in_order(codes, np.searchsorted(distinct(ways.step), ways.step))
        self.path, self.switches = ways.path[order], ways.switches
        first = np.flatnonzero(begins(codes[order]))
        self.codes = codes[order][first]
        self.first, self.nowhere = np.append(first, len(order)), len(self.codes)
        self.leaves, self.leads = self.codes // ways.switches, self.codes % ways.switches
        self.width = np.diff(self.first)
        self.arc_rate, self.step = ways.lights.rate[self.path], ways.step[order][first]
        self.rate = self.arc_rate[first]
        fast = self.arc_rate == np.repeat(self.rate, self.width)
        self.equal = np.add.reduceat(fast, first, dtype=np.int64) if len(first) else self.width
        self.out = np.searchsorted(self.leaves, np.arange(ways.switches + 1))

    def across(self, row: np.ndarray, to: np.ndarray) -> np.ndarray:
        """The bundle from each switch to each other (rows); `nowhere` where there is none."""
        code = row * self.switches + to
        place = np.searchsorted(self.codes, code)
        there = self.codes[np.minimum(place, self.nowhere - 1)] == code
        return np.where(there, place, self.nowhere)


@dataclass(frozen=True, eq=False)
class Offers:
    """Ways of pairs of racks: pair i has the rows first[i] to first[i + 1] of `rows` (bundles,
    int64[ways, longest]).
    """

    first: np.ndarray
    rows: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """How many ways each pair is offered: int[n]."""
        return np.diff(self.first)


class Choices:
    """The ways between racks under one set of circuits; `calm` are the ways of the same fabric, all
    dark.
    """

    def __init__(self, ways: Ways, calm: Ways | None = None):
        self.ways, self.calm = ways, calm
        self.bundles = Bundles(ways)
        self._known: dict[Ways, np.ndarray] = {}

    def cheapest(self, rack: np.ndarray, to: np.ndarray, most: int = MOST_WAYS) -> Offers:
        """The cheapest ways from racks to racks (numbers); where there are more than `most`, those
        a fixed hash picks.
        """
        return self._offers(len(rack), most, self._descend(self.ways, rack, to, most))

    def direct(self, rack: np.ndarray, to: np.ndarray) -> Offers:
        """The cheapest ways, and those that pass no third rack: the direct circuits, the electrical
        path.
        """
        every, near = self.every(rack, to), self.cheapest(rack, to).counts
        third = np.append(np.isin(self.bundles.leads, self.ways.cabling.rack_row), False)
        passed = third[every.rows].sum(1) > 1  # the last rack on a way is the destination
        key = np.repeat(np.arange(len(rack)), every.counts)
        keep = ~passed | (np.arange(len(key)) - every.first[key] < near[key])
        return Offers(offsets_of(np.bincount(key[keep], minlength=len(rack))), every.rows[keep])

    def every(self, rack: np.ndarray, to: np.ndarray, most: int = MOST_WAYS) -> Offers:
        """The cheapest ways, all of one or two bundles, and the cheapest on cables alone; each
        once, at most `most`.
        """
        ways = [self._descend(self.ways, rack, to, most), self._short(rack, to)]
        if self.calm is not None:
            ways.append(self._descend(self.calm, rack, to, most))
        return self._offers(len(rack), most, *ways)

    def _offers(self, count: int, most: int, *ways: tuple[np.ndarray, np.ndarray]) -> Offers:
        """Rows of bundles by key: each once, those of the first of `ways` before the others."""
        (first, mine), *others = ways
        if not others:
            counts = np.bincount(first, minlength=count)
            if counts.max(initial=0) <= most and (first[1:] >= first[:-1]).all():
                return Offers(offsets_of(counts), mine)  # 100 MB of rows are not copied
        elif loops():
            return _put_together(ways, count, most, self.bundles.nowhere)
        longest = max(rows.shape[1] for _, rows in ways)
        key = np.concatenate([key for key, _ in ways])
        rows = np.concatenate([self._padded(rows, longest) for _, rows in ways])
        if len(ways) > 1:
            name = mixed(key.astype(np.uint64))
            for column in rows.T:
                name = mixed(name ^ column.astype(np.uint64))
            once = np.sort(np.unique(name, return_index=True)[1])
            key, rows = key[once], rows[once]
        order = np.argsort(key, kind="stable")
        order = order[ranks(key[order]) < most]
        return Offers(offsets_of(np.bincount(key[order], minlength=count)), rows[order])

    def _padded(self, rows: np.ndarray, longest: int) -> np.ndarray:
        return widened(rows, longest, self.bundles.nowhere)

    def _short(self, rack: np.ndarray, to: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(key, row) of the ways of one or two bundles: straight to the rack, or over any one
        switch.
        """
        some, c = self.bundles, self.ways.cabling
        start, end = c.rack_row[rack], c.rack_row[to]
        if loops():
            return _short_in_core(some, start, end)
        counts = some.out[start + 1] - some.out[start]
        bundle, key = spread(some.out[start], counts), np.repeat(np.arange(len(rack)), counts)
        on = some.across(some.leads[bundle], end[key])
        on[some.leads[bundle] == end[key]] = some.nowhere
        fits = (on < some.nowhere) | (some.leads[bundle] == end[key])
        key, rows = key[fits], np.column_stack((bundle[fits], on[fits]))
        order = np.lexsort((rows[:, 1] < some.nowhere, key))  # the straight one first
        return key[order], rows[order]

    def _bundles_of(self, ways: Ways) -> np.ndarray:
        """The bundle of each arc of `ways`."""
        if ways not in self._known:
            self._known[ways] = self.bundles.across(ways.leaves, ways.leads)
        return self._known[ways]

    def _descend(
        self, ways: Ways, rack: np.ndarray, to: np.ndarray, most: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """(key, row of bundles) of the cheapest ways of `ways`, switch by switch, those of one key
        by their hops; none that leads where `self.ways` do not.
        """
        if loops():
            return ways.walks(rack, to, most, self._bundles_of(ways), self.bundles.nowhere)
        start, end = (ways.cabling.rack_row[ends] for ends in (rack, to))
        key, walked, arrived = np.arange(len(rack)), start[:, None], []
        while len(key):
            there = walked[:, -1] == end[key]
            arrived.append((key[there], walked[there]))
            key, walked = key[~there], walked[~there]
            owner, leads = ways.onward_many(walked[:, -1], to[key], key, most)
            key, walked = key[owner], np.column_stack((walked[owner], leads))
        keys = [np.zeros(0, np.int64), *(key for key, _ in arrived)]
        rows = [np.zeros((0, len(arrived)), np.int64)]
        for hops, (_, row) in enumerate(arrived):
            rows.append(self._padded(self.bundles.across(row[:, :-1], row[:, 1:]), len(arrived)))
            whole = (rows[-1] < self.bundles.nowhere).sum(1) == hops
            keys[hops + 1], rows[-1] = keys[hops + 1][whole], rows[-1][whole]
        return np.concatenate(keys), np.concatenate(rows)


def _short_in_core(
    some: Bundles, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`Choices._short` from switches to switches."""
    counts, most = np.empty(len(start), np.int64), int(np.diff(some.out)[start].sum())
    rows = np.empty((most, 2), np.int64)
    columns = map(at, (start, end, some.out, some.leads))
    found = loops().rf_short(len(start), *columns, some.nowhere, at(counts), at(rows))
    return np.repeat(np.arange(len(start)), counts), rows[:found]


def _put_together(
    ways: Sequence[tuple[np.ndarray, np.ndarray]], count: int, most: int, nowhere: int
) -> Offers:
    """`Choices._offers` of lists whose keys ascend."""
    first = [offsets_of(np.bincount(key, minlength=count)) for key, _ in ways]
    rows = [np.ascontiguousarray(some, np.int64) for _, some in ways]
    longest = np.array([some.shape[1] for some in rows])
    every = np.empty((sum(map(len, rows)), longest.max()), np.int64)
    counts, pointers = np.empty(count, np.int64), ARRAY * len(ways)
    lists = pointers(*map(at, first)), pointers(*map(at, rows)), at(longest)
    shape = every.shape[1], nowhere, most
    found = loops().rf_offers(count, len(ways), *lists, *shape, at(counts), at(every))
    return Offers(offsets_of(counts), every[:found])

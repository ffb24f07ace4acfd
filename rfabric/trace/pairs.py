"""The ways of a trace's host pairs under one set of circuits, worked out once a pair: both worlds
read them.

A pair sends in *parts*: one, or under the routing `split` several at once. A part is a fixed piece
of every flow of its pair, as the bytes of a flow are dealt before circuits change under it; under
any circuits it takes the way on which its middle falls when the ways lie side by side, each as wide
as its share. Without OCSes the parts are the ways, and all is exact; with them there are PARTS
equal ones, and what a way carries is off by less than one.
"""

from collections.abc import Iterator
from copy import copy
from functools import cached_property, partial

import numpy as np

from ..errors import RFabricError
from ..fabric import Fabric
from ..fabric.cabling import cabling_of
from ..optics import Circuits
from ..optics.outlook import Load
from ..routing import Routes, routes_of
from ..routing.paths import forget
from ..routing.rows import offsets_of, spread
from ..routing.schemes import ECMP, SPLIT, Routing, SplitPairs, split
from .model import Trace

# 1, 2, 3, 4, 6, 8, 12 and 24 equal ways share them evenly; 5 and 7 are off by 4 and 17 % on their
# busiest
PARTS = 24
MOST_PARTS = 1 << 23  # of all flows together: some 5 GB in all
AT_ONCE = 1 << 12  # pairs whose ways are laid out together: at most 128 each


class Pairs:
    """The host pairs that send in a trace: numbers of both ends in the fabric, and which pair each
    row is (-1: no bytes).

    Pair i sends in the parts first[i] to first[i + 1] (int64[n + 1]); `share` float64[parts] of its
    bytes is in each.
    """

    def __init__(self, fabric: Fabric, trace: Trace, routing: Routing = ECMP):
        sends, codes, which = trace.sending(fabric)
        self.src, self.dst = codes >> 32, codes & 0xFFFFFFFF
        self.label = trace.label
        self.of = np.full(len(trace), -1, dtype=np.int32)
        self.of[sends] = which
        self.first, self.share = np.arange(len(codes) + 1), np.ones(len(codes))
        if routing.scheme == SPLIT:
            self._divide(fabric, routing, np.bincount(which, minlength=len(codes)))

    def _divide(self, fabric: Fabric, routing: Routing, rows: np.ndarray) -> None:
        """Give pairs, of which each sends so many `rows`, the parts of routing split."""
        counts, shares, total = [np.zeros(0, np.int64)], [np.zeros(0)], 0
        for some, count, share in _shares(fabric, routing, self):
            total += int(rows[some] @ count)
            if total > MOST_PARTS:
                raise RFabricError(
                    f"routing {SPLIT}: the {rows.sum()} flows of this trace take more than "
                    f"{MOST_PARTS} paths on fabric {fabric.name}, each a flow of its own; choose "
                    "a routing with one path a pair (placed), or a smaller job"
                )
            counts.append(count)
            shares.append(share)
        self.first, self.share = offsets_of(np.concatenate(counts)), np.concatenate(shares)

    @property
    def back(self) -> "Pairs":
        """The same rows the other way: where acknowledgements go."""
        back = copy(self)
        back.src, back.dst = self.dst, self.src
        return back

    @property
    def counts(self) -> np.ndarray:
        """int64[rows]: how many parts each row of the trace has; one, of no bytes, where it sends
        nothing.
        """
        counts = np.ones(len(self.of), np.int64)
        sends = self.of >= 0
        counts[sends] = np.diff(self.first)[self.of[sends]]
        return counts

    def parts(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(how many parts each of `rows` has, these parts row by row) of rows that send."""
        if len(self.share) == len(self.src):
            return np.ones(len(rows), np.int64), self.of[rows]
        first = self.first[self.of[rows]]
        counts = self.first[self.of[rows] + 1] - first
        return counts, spread(first, counts)


def _shares(
    fabric: Fabric, routing: Routing, pairs: Pairs
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(pairs, how many parts each has, shares of these parts), batch by batch: by the ways, or
    evenly where ways change.
    """
    if fabric.ocses:
        rack = cabling_of(fabric).host_rack
        counts = np.where(rack[pairs.src] == rack[pairs.dst], 1, PARTS)
        yield np.arange(len(counts)), counts, np.repeat(1.0 / counts, counts)
        return
    every, routes = np.arange(len(pairs.src)), routes_of(fabric, Circuits(), routing)
    for some, ways in _laid_out(routes, pairs, every):
        counts = np.diff(ways.first)
        dark = counts == 0
        yield some, counts + dark, np.insert(ways.share, ways.first[:-1][dark], 1.0)


def _laid_out(
    routes: Routes, pairs: Pairs, which: np.ndarray
) -> Iterator[tuple[np.ndarray, SplitPairs]]:
    """All ways of pairs, AT_ONCE pairs at a time."""
    for begin in range(0, len(which), AT_ONCE):
        some = which[begin : begin + AT_ONCE]
        yield some, split(routes.choices, pairs.src[some], pairs.dst[some])


def _taken(ways: SplitPairs, first: np.ndarray, share: np.ndarray) -> np.ndarray:
    """The way that each part (CSR `first`, `share`) of each pair takes, -1 where nothing connects
    it.
    """
    of_way, of_part = (np.repeat(np.arange(len(f) - 1), np.diff(f)) for f in (ways.first, first))
    ends = _upto(ways.first, ways.share) + of_way
    # sums of shares are off by an ulp
    ends[ways.first[1:][np.diff(ways.first) > 0] - 1] = np.unique(of_way) + 1.0
    middle = _upto(first, share) - share / 2 + of_part
    way = np.searchsorted(ends, middle, side="right")
    return np.where(np.diff(ways.first)[of_part] > 0, way, -1)


def _upto(first: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Running sums of shares within each pair."""
    sums = np.concatenate(([0.0], np.cumsum(share)))
    return sums[1:] - np.repeat(sums[first[:-1]], np.diff(first))


class PairWays:
    """The directed links of host pairs under one set of circuits, part by part; link `nowhere`
    where nothing connects one.
    """

    def __init__(self, fabric: Fabric, pairs: Pairs, circuits: Circuits, routing: Routing):
        self._routes_of, self.pairs = partial(routes_of, fabric, circuits, routing), pairs
        self.several = routing.scheme == SPLIT
        self.nowhere = 2 * len(fabric.links)
        self.unknown = np.ones(len(pairs.src), bool)
        self.first = np.full(len(pairs.share), -1, np.int32)
        self.count = np.zeros(len(pairs.share), np.int32)
        self.links = np.zeros(0, np.int32)

    @cached_property
    def routes(self) -> Routes:
        """Where ways are looked for: much larger than the ways that are known."""
        return self._routes_of()

    def of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """CSR (offsets, links) of the ways of the parts of `rows`, which send, row by row."""
        self._find_new(rows)
        _, parts = self.pairs.parts(rows)
        counts = self.count[parts]
        return offsets_of(counts), self.links[spread(self.first[parts], counts)]

    def sums(self, values: np.ndarray) -> np.ndarray:
        """What `values` of links (float64[nowhere + 1]) come to on the way of each part:
        float64[parts].
        """
        self._find_rest()
        upto = np.concatenate(([0.0], np.cumsum(values[self.links])))
        return upto[self.first + self.count] - upto[self.first]

    def least(self, values: np.ndarray) -> np.ndarray:
        """The least of `values` on the way of each part, as for `sums`."""
        self._find_rest()
        order, least = np.argsort(self.first), np.zeros(len(self.first))
        if len(order):  # ways lie one behind the other
            least[order] = np.minimum.reduceat(values[self.links], self.first[order])
        return least

    def dark(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same while `rows` stand still: every part on the link `nowhere`."""
        parts = int(self.pairs.parts(rows)[0].sum())
        return np.arange(parts + 1), np.full(parts, self.nowhere, np.int32)

    def _find_new(self, rows: np.ndarray) -> None:
        """Find the ways of those of `rows` that nobody has asked for."""
        if not self.unknown.any():
            return
        asked = np.zeros(len(self.unknown), bool)
        asked[self.pairs.of[rows]] = True
        if len(new := np.flatnonzero(asked & self.unknown)):
            self._find(new)

    def _find_rest(self) -> None:
        """Find the ways of all pairs that nobody has asked for."""
        if self.unknown.any():
            self._find(np.flatnonzero(self.unknown))

    def _find(self, pairs: np.ndarray) -> None:
        for some, offsets, links in self._lay(pairs):
            first = self.pairs.first
            parts = spread(first[some], first[some + 1] - first[some])
            dark = offsets[1:] == offsets[:-1]
            links = np.insert(links, offsets[:-1][dark], self.nowhere)
            self.count[parts] = np.diff(offsets) + dark
            self.first[parts] = len(self.links) + offsets_of(self.count[parts])[:-1]
            self.links = np.concatenate((self.links, links))
            self.unknown[some] = False

    def _lay(self, pairs: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(pairs, CSR offsets and links of the ways of their parts), batch by batch."""
        if not self.several:
            yield pairs, *self.routes.links_of(self.pairs.src[pairs], self.pairs.dst[pairs])
            return
        for some, ways in _laid_out(self.routes, self.pairs, pairs):
            counts = np.diff(self.pairs.first)[some]
            way = _taken(
                ways, offsets_of(counts), self.pairs.share[spread(self.pairs.first[some], counts)]
            )
            long = np.append(np.diff(ways.offsets), 0)[way]
            yield some, offsets_of(long), ways.links[spread(ways.offsets[way], long)]

    def crossing(self, rows: np.ndarray, cables: np.ndarray) -> np.ndarray:
        """Which of `rows` cross one of `cables` (a mask) with some part, or have no way, as a
        mask.
        """
        offsets, links = self.of(rows)
        hit = np.append(cables, True)[links // 2]
        ends = offsets[offsets_of(self.pairs.parts(rows)[0])]
        return np.diff(np.concatenate(([0], np.cumsum(hit)))[ends]) > 0

    def lost(self, rows: np.ndarray) -> np.ndarray:
        """Which of `rows` have no way, as a mask."""
        offsets, links = self.of(rows)
        return links[offsets[offsets_of(self.pairs.parts(rows)[0])[:-1]]] == self.nowhere

    def load(self, rows: np.ndarray, left: np.ndarray, kind: np.ndarray | None = None) -> Load:
        """What `rows` still send (`left`, bytes; of every part alike) on their ways; `kind` of
        each, else its label.
        """
        self._find_new(rows)
        counts, parts = self.pairs.parts(rows)
        kind = self.pairs.label[rows] if kind is None else kind
        ways = self.first[parts], self.count[parts], self.links
        if not self.several:
            return Load(*ways, left, kind)
        size = np.repeat(left, counts) * self.pairs.share[parts]
        return Load(*ways, size, np.repeat(kind, counts))


class KnownWays:
    """The PairWays of a run by their circuits; the last `most` are kept, as phases come back to the
    same few.
    """

    def __init__(self, fabric: Fabric, pairs: Pairs, routing: Routing, most: float):
        self.fabric, self.pairs, self.routing, self.most = fabric, pairs, routing, most
        self._known: dict[Circuits, PairWays] = {}

    def under(self, circuits: Circuits) -> PairWays:
        """Those under these circuits."""
        if circuits not in self._known:
            while len(self._known) >= self.most:
                self._known.pop(next(iter(self._known)))
            self._known[circuits] = PairWays(self.fabric, self.pairs, circuits, self.routing)
        return self._known[circuits]

    def settle(self) -> None:
        """Let go of all but the ways that are known: what is asked beyond is looked for again."""
        for ways in self._known.values():
            ways.__dict__.pop("routes", None)
        forget(self.fabric)

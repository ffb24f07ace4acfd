"""Cheapest ways over light paths as arrays, for fabrics of 100,000 cables and more.

Ports and directed links are numbered as in `lightpaths`. `paths.Routes` gives the same answers one
pair at a time.
"""

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from ..fabric.cabling import cabling_of
from ..fabric.kept import kept_last
from ..fabric.model import Fabric
from .inner import Net, ParallelArcs, laid, loops
from .lightpaths import Lights
from .rings import grown
from .rows import (
    Entries,
    begins,
    distinct,
    in_order,
    leads_nearer,
    mixed,
    numbered,
    offsets_of,
    some_of,
    spread,
    summed,
)

# (hop, destination) candidates taken in one go: they stay in the cache, four times as fast as 2^22
MOST_CANDIDATES = 1 << 17
# bytes of rings kept for one fabric, over all sets of circuits: those of 4,096 racks take 18 MB
MOST_RINGS = 4 << 25
# sets of circuits whose rings are kept, however small: a controller meets new ones while it lives
MOST_RINGED = 256
# what a planner asks of one set of circuits comes again: the same stages, instant after instant
KEPT_LOADS = 8


class Ways:
    """Cheapest ways of many host pairs at once, over `lights`; `reference` (bit/s) over a light
    path's rate is its cost.
    """

    def __init__(self, fabric: Fabric, lit: Lights, reference: float):
        c = cabling_of(fabric)
        self.cabling, self.lights = c, lit
        leaves, leads = c.row[c.node[lit.out]], c.row[c.node[lit.into]]
        arcs = np.flatnonzero((leaves >= 0) & (leads >= 0))
        # the light path of each arc; arcs are in order of their switch, then of their port
        self.path = arcs[in_order(leaves[arcs])]
        self.leaves, self.leads = leaves[self.path], leads[self.path]
        self.step = reference / lit.rate[self.path]
        self.switches = int(c.row.max(initial=-1)) + 1
        self.first = np.searchsorted(self.leaves, np.arange(self.switches + 1))
        self.salt = mixed(np.flatnonzero(c.row >= 0).astype(np.uint64) + np.uint64(1))
        self._loads: dict[tuple[bytes, ...], np.ndarray] = {}
        self._around: tuple[np.ndarray, np.ndarray] | None = None
        self._held: Net | None = None  # as long as its rings
        # the sets of circuits whose rings are kept, the one asked last at the end
        self._recent: dict[Ways, None] = fabric.memo.setdefault("rings", {})

    def cost(self, row: np.ndarray, rack: np.ndarray) -> np.ndarray:
        """What the cheapest way from packet switch row[i] to rack[i] costs (float64); inf without
        one.
        """
        ring, costs = self._rings
        return costs[ring[rack, row]]

    @property
    def _net(self) -> Net:
        """The same arrays, as the compiled core takes them."""
        rings = self._rings
        self._held = self._held or Net(self._sides, rings)
        return self._held

    @cached_property
    def _sides(self) -> ParallelArcs:
        """Arcs side by side: they leave one switch for one other at one cost."""
        costs = distinct(self.step)
        kind = np.searchsorted(costs, self.step)
        order = in_order(self.leaves, self.leads, kind)
        begin = np.flatnonzero(begins(*(c[order] for c in (self.leaves, self.leads, kind))))
        arc, ends = order[begin], np.append(begin, len(order))
        first = np.searchsorted(self.leaves[arc], np.arange(self.switches + 1))
        return ParallelArcs(first, ends, order, self.leads[arc], kind[arc], costs)

    @property
    def reach(self) -> np.ndarray:
        """bool[racks, racks]: from which rack some way leads to which."""
        ring, costs = self._rings
        return np.isfinite(costs)[ring[:, self.cabling.rack_row]].T

    @property
    def joins_all(self) -> bool:
        """Whether some way leads from every rack to every other: the ring of none is the
        highest.
        """
        ring, costs = self._rings
        if not ring.size or np.isfinite(costs[ring.max()]):  # as from every switch
            return True
        return bool(np.isfinite(costs[ring[:, self.cabling.rack_row].max()]))

    @property
    def _rings(self) -> tuple[np.ndarray, np.ndarray]:
        """See `rings.grown`.

        They are large and soon grown: of many sets of circuits only those asked last keep theirs.
        """
        rings = self._around = self._around or grown(
            self.cabling.rack_row, self.switches, self.leaves, self.leads, self.step
        )
        self._recent.pop(self, None)
        self._recent[self] = None
        kept = min(MOST_RINGS // sum(array.nbytes for array in rings), MOST_RINGED)
        while len(self._recent) > max(kept, 1):
            oldest = next(iter(self._recent))
            del self._recent[oldest]
            oldest._around = oldest._held = None
        return rings

    def onward(self, row: int, rack: int) -> np.ndarray:
        """The light paths on the cheapest ways from switch `row` to a rack, in order of their
        ports.
        """
        return self.path[self.fitting(row, rack)]

    def fitting(self, row: int, rack: int) -> np.ndarray:
        """The arcs on the cheapest ways from switch `row` to a rack, in order of their ports."""
        return self._fitting(np.array([row]), np.array([rack]))[1]

    def fitting_many(self, row: np.ndarray, rack: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(which of the given, arc) of every arc on a cheapest way from switch row[i] to rack[i],
        by i, then by port.
        """
        batches = ((part, *self._fitting(row[part], rack[part])) for part in self._batches(row))
        return _gathered(batches)

    def onward_many(
        self, row: np.ndarray, rack: np.ndarray, key: np.ndarray, most: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """(which of the given, next switch) on the cheapest ways from switch row[i] to rack[i], by
        i, then by switch; of those of one key (ascending) at most so many.
        """
        owner, arcs = self.fitting_many(row, rack)
        codes = distinct(owner * self.switches + self.leads[arcs])
        owner, leads = codes // self.switches, codes % self.switches
        keep = some_of(key[owner], most)
        return owner[keep], leads[keep]

    def walks(
        self, rack: np.ndarray, to: np.ndarray, most: int, bundle: np.ndarray, nowhere: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """`Choices._descend` from racks to racks in the compiled core, by the `bundle` of each arc:
        (which of the given, its ways).
        """
        start, end = (self.cabling.rack_row[ends] for ends in (rack, to))
        counts, rows = self._net.walks(start, to, end, most, bundle, nowhere)
        return np.repeat(np.arange(len(rack)), counts), rows

    def links(self, src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """CSR (int64 offsets, int32 directed links) of the ways of host pairs (numbers); empty
        where nothing connects one.
        """
        c = self.cabling
        at, rack, pair = c.rack_row[c.host_rack[src]], c.host_rack[dst], mixed(_coded(src, dst))
        target, joined = c.rack_row[rack], np.ones(len(src), bool)
        going, hops = np.flatnonzero(at != target), []
        while len(going):
            arc = self._chosen(at[going], rack[going], pair[going])
            joined[going[arc < 0]] = False
            going, arc = going[arc >= 0], arc[arc >= 0]
            hop = np.full(len(src), -1, dtype=np.int64)
            hop[going], at[going] = self.path[arc], self.leads[arc]
            hops.append(hop)
            going = going[at[going] != target[going]]
        rows = np.stack(hops, 1) if hops else np.zeros((len(src), 0), np.int64)
        return self._laid(src, dst, joined, rows)

    def links_along(
        self, src: np.ndarray, dst: np.ndarray, chosen: np.ndarray, hashed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same where a scheme has chosen: chosen[i] are the light paths of pair i, -1 beyond; a
        mask is left to the hash.
        """
        c, hashed = self.cabling, np.flatnonzero(hashed)
        offsets, links = self.links(src[hashed], dst[hashed])
        joined = c.host_rack[src] == c.host_rack[dst]
        if chosen.shape[1]:
            joined |= chosen[:, 0] >= 0
        joined[hashed] = False
        ends, cables = self._laid(src, dst, joined, chosen)
        if not len(hashed):
            return ends, cables
        counts = np.diff(ends)
        counts[hashed] = np.diff(offsets)
        every = offsets_of(counts)
        merged = np.empty(every[-1], np.int32)
        merged[spread(every[:-1][joined], counts[joined])] = cables
        merged[spread(every[:-1][hashed], counts[hashed])] = links
        return every, merged

    def _laid(
        self, src: np.ndarray, dst: np.ndarray, joined: np.ndarray, hops: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """CSR of links of the pairs that are `joined`: the source's cable, the light paths of the
        row of `hops` (-1: none), the destination's cable.
        """
        lit, cable = self.lights, self.cabling.host_link
        first, last = cable[src], cable[dst] ^ 1
        if loops():
            return laid(first, last, joined, hops, lit.offsets, lit.links)
        lengths = np.diff(lit.offsets)
        taken = [np.where(joined & (hop >= 0), lengths[hop], 0) for hop in hops.T]
        offsets = offsets_of(sum(taken, 2 * joined))
        links, place = np.empty(offsets[-1], np.int32), offsets[:-1].copy()
        links[place[joined]] = first[joined]
        links[offsets[1:][joined] - 1] = last[joined]
        place += 1
        for hop, counts in zip(hops.T, taken, strict=True):
            links[spread(place, counts)] = lit.links[spread(lit.offsets[hop], counts)]
            place += counts
        return offsets, links

    def reaches(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Which of these host pairs (numbers) some way connects: bool."""
        c = self.cabling
        return np.isfinite(self.cost(c.rack_row[c.host_rack[src]], c.host_rack[dst]))

    def loads(self, sent: Entries) -> np.ndarray:
        """Bytes on each light path (float64[n]) when racks send each other `sent`, split evenly
        over equal ways.

        All inf where nothing joins two of them. The last few answers are kept.
        """
        name = tuple(column.tobytes() for column in sent)
        load = kept_last(self._loads, name, lambda: self._by_arc(sent), KEPT_LOADS)
        by_path = np.full(len(self.lights), 0.0 if load.ndim else np.inf)
        # the others are the hosts' own, most of them, and carry nothing here
        by_path[self.path] = load
        return by_path

    def _by_arc(self, sent: Entries) -> np.ndarray:
        """The same of each arc; a single inf for all.

        From the farthest inwards: what waits at a switch has all come when its turn is.
        """
        load, racks = np.zeros(len(self.path)), len(self.cabling.rack_row)
        if loops():
            rows = self.cabling.rack_row[sent.rows]
            return self._net.evenly(rows, sent.columns, sent.bytes, MOST_CANDIDATES)
        # by ring: (switch and rack as one number, bytes)
        waiting: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        self._queue(waiting, self.cabling.rack_row[sent.rows] * racks + sent.columns, sent.bytes)
        if np.iinfo(self._rings[0].dtype).max in waiting:
            return np.array(np.inf)
        while ring := max(waiting, default=0):
            spots, held = summed(*map(np.concatenate, zip(*waiting.pop(ring), strict=True)))
            row, rack = spots // racks, spots % racks
            for part in self._batches(row):
                owner, arcs = self._fitting(row[part], rack[part])
                share = (held[part] / np.bincount(owner, minlength=len(part)))[owner]
                load += np.bincount(arcs, share, minlength=len(load))
                self._queue(waiting, self.leads[arcs] * racks + rack[part][owner], share)
        return load

    def _queue(self, waiting: dict[int, list], spots: np.ndarray, sent: np.ndarray) -> None:
        """Let bytes wait, each on the ring of its switch around its rack."""
        ring = self._rings[0][spots % len(self._rings[0]), spots // len(self._rings[0])]
        order = np.argsort(ring, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(ring[order])) + 1):
            if len(part):
                waiting.setdefault(int(ring[part[0]]), []).append((spots[part], sent[part]))

    def _batches(self, row: np.ndarray) -> list[np.ndarray]:
        """The places of `row` in parts, each with MOST_CANDIDATES arcs that leave its switches."""
        cuts = np.cumsum(np.diff(self.first)[row]) // MOST_CANDIDATES
        return np.split(np.arange(len(row)), np.flatnonzero(np.diff(cuts)) + 1)

    def _chosen(self, row: np.ndarray, rack: np.ndarray, pair: np.ndarray) -> np.ndarray:
        """The arc that each pair takes at its switch, -1 where none leads on: the hash of the pair
        picks among equals.
        """
        racks = len(self.cabling.rack_row)
        keys, which = numbered(row * racks + rack)
        arc = np.full(len(row), -1, dtype=np.int64)
        for part in self._batches(keys // racks):
            owner, fits = self._fitting(keys[part] // racks, keys[part] % racks)
            counts = np.bincount(owner, minlength=len(part))
            mine = np.flatnonzero((which >= part[0]) & (which <= part[-1]))
            key = which[mine] - part[0]
            mine, key = mine[counts[key] > 0], key[counts[key] > 0]
            choice = mixed(pair[mine] ^ self.salt[row[mine]]) % counts[key].astype(np.uint64)
            arc[mine] = fits[offsets_of(counts)[key] + choice.astype(np.int64)]
        return arc

    def _fitting(self, row: np.ndarray, rack: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(which of the given, arc) of every arc that leaves row[i] on a cheapest way to rack[i],
        by i, then by port.
        """
        counts = self.first[row + 1] - self.first[row]
        if loops():
            return self._net.fitting(row, rack, int(counts.sum()))
        arcs, owner = spread(self.first[row], counts), np.repeat(np.arange(len(row)), counts)
        here = self.cost(row, rack)[owner]
        there = self.cost(self.leads[arcs], rack[owner]) + self.step[arcs]
        with np.errstate(invalid="ignore"):  # inf - inf where nothing leads on
            fits = leads_nearer(there, here, self.step[arcs])
        fits &= np.isfinite(here)
        return owner[fits], arcs[fits]


def _coded(src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    return src.astype(np.uint64) << np.uint64(32) | dst.astype(np.uint64)


def _gathered(
    batches: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """(which of the given, value) of batches (which of the given, owners among them, values)."""
    given, owner, values = zip(*batches, strict=True)
    return np.concatenate([a[b] for a, b in zip(given, owner, strict=True)]), np.concatenate(values)

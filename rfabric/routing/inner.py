"""The inner loops of `ways` and `placing` in the compiled core (`ways.cpp`), through ctypes: arrays
in, arrays out.

They do what Python does there, to the last bit; `loops()` is None where the core was never built.

MemoryError where there is no room for the answer.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from .. import native
from .rows import leads_nearer

COUNT, ARRAY = ctypes.c_int64, ctypes.c_void_p
NO_WAY, NO_MEMORY = 1, -1
NEAR = (1 << 8) - 1  # the ring of switches from which no way leads, where rings are bytes


@cache
def loops() -> ctypes.CDLL | None:
    """The core with these loops declared."""
    core = native.core()
    if core is None:
        return None
    for name, result, arguments in (
        ("rf_fitting", COUNT, [ARRAY, COUNT, *[ARRAY] * 4]),
        ("rf_walk", ARRAY, [ARRAY, COUNT, *[ARRAY] * 3, COUNT, ARRAY, COUNT, ARRAY, ARRAY]),
        ("rf_walked", None, [ARRAY, ARRAY]),
        ("rf_fresh", None, [COUNT, COUNT, *[ARRAY] * 5]),
        ("rf_join", None, [COUNT, *[ARRAY] * 3, COUNT, *[ARRAY] * 4]),
        ("rf_settle", None, [COUNT, ARRAY, COUNT, COUNT, ARRAY, ARRAY, COUNT, ARRAY, ARRAY]),
        ("rf_lights", COUNT, [COUNT, *[ARRAY] * 4, COUNT, *[ARRAY] * 5]),
        ("rf_short", COUNT, [COUNT, *[ARRAY] * 4, COUNT, ARRAY, ARRAY]),
        ("rf_offers", COUNT, [COUNT, COUNT, *[ARRAY] * 3, COUNT, COUNT, COUNT, ARRAY, ARRAY]),
        ("rf_evenly", ctypes.c_int, [ARRAY, COUNT, *[ARRAY] * 3, COUNT, ARRAY]),
        (
            "rf_cheapest",
            None,
            [ARRAY, COUNT, *[ARRAY] * 5, COUNT, ARRAY, COUNT, ARRAY, COUNT, *[ARRAY] * 4],
        ),
        ("rf_cost", None, [ARRAY, COUNT, ARRAY, ARRAY, COUNT, ARRAY, COUNT, ARRAY, ARRAY]),
        ("rf_lay", None, [ARRAY, COUNT, ARRAY, ARRAY, COUNT, ctypes.c_double]),
        ("rf_asked", ctypes.c_double, [COUNT, *[ARRAY] * 5, COUNT, ARRAY, ARRAY]),
        ("rf_claims", None, [COUNT, COUNT, ARRAY, COUNT, ARRAY, ARRAY]),
        ("rf_least", ctypes.c_int, [ARRAY, COUNT, ARRAY, ARRAY, COUNT, ARRAY, ARRAY]),
        (
            "rf_greedy",
            ctypes.c_int,
            [ARRAY, ARRAY, COUNT, ARRAY, ARRAY, COUNT, *[ARRAY] * 5, COUNT, ARRAY, COUNT, COUNT]
            + [ARRAY] * 2,
        ),
        ("rf_lateness", None, [ARRAY, COUNT, ARRAY, ARRAY, COUNT, ARRAY, ARRAY, ARRAY]),
        ("rf_mates", None, [COUNT, ARRAY, COUNT, COUNT, *[ARRAY] * 4]),
        ("rf_laid", None, [COUNT, *[ARRAY] * 3, COUNT, *[ARRAY] * 5]),
        ("rf_halves", None, [COUNT, *[ARRAY] * 3]),
    ):
        function = getattr(core, name)
        function.restype, function.argtypes = result, arguments
    return core


def at(array: np.ndarray | None) -> int | None:
    """Where the entries of a contiguous array begin."""
    return None if array is None else array.ctypes.data


def laid(
    up: np.ndarray,
    down: np.ndarray,
    joined: np.ndarray,
    hops: np.ndarray,
    offsets: np.ndarray,
    links: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """`Ways._laid` of pairs whose hosts leave by link up[i] and are reached by down[i]; CSR of the
    links of light paths.
    """
    up, down, offsets = (np.ascontiguousarray(column, np.int64) for column in (up, down, offsets))
    hops = np.ascontiguousarray(hops, np.int32)
    every, many = np.empty(len(up) + 1, np.int64), (len(up), at(up), at(down), at(joined))
    lit = hops.shape[1], at(hops), at(offsets), at(links), at(every)
    loops().rf_laid(*many, *lit, None)
    laid = np.empty(every[-1], np.int32)
    loops().rf_laid(*many, *lit, at(laid))
    return every, laid


def mates(rest: np.ndarray, part: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """`colouring._Side.mates` of the edges `rest`, in order; columns: int64[n, depth], of all."""
    rest, part = (np.ascontiguousarray(column, np.int64) for column in (rest, part))
    columns, (edges, depth) = np.ascontiguousarray(columns, np.int64), columns.shape
    mate, open_ = np.empty(edges + 1, np.int64), np.empty(depth + 2, np.int64)
    ends = map(at, (part, columns, open_, mate))
    loops().rf_mates(len(rest), at(rest), edges, depth, *ends)
    return mate


def halves(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """`colouring._halves` of edges with these mates (int64[n + 1])."""
    half = np.empty(len(left), bool)
    loops().rf_halves(len(left), at(left), at(right), at(half))
    return half[:-1]


def asked(
    first: np.ndarray,
    count: np.ndarray,
    size: np.ndarray,
    kind: np.ndarray,
    links: np.ndarray,
    rate: np.ndarray,
    seconds: np.ndarray,
) -> float:
    """`optics.outlook._ask` of flows ordered by their kind."""
    first, count, kind = (np.ascontiguousarray(column, np.int64) for column in (first, count, kind))
    size, links = np.ascontiguousarray(size, float), np.ascontiguousarray(links, np.int32)
    columns = (at(column) for column in (first, count, size, kind, links))
    least = loops().rf_asked(len(first), *columns, len(rate), at(rate), at(seconds))
    if least < 0:
        raise MemoryError(f"no memory to weigh what {len(first)} flows ask of their links")
    return least


class _Held:
    """A struct of counts and pointers to columns (None: a null pointer), which it keeps alive;
    `handle` is what the core takes.
    """

    def __init__(self, columns: Sequence[tuple[np.ndarray | None, type]], *counts: int):
        self._columns = [
            None if column is None else np.ascontiguousarray(column, kind)
            for column, kind in columns
        ]
        self._words = np.array([*counts, *(at(column) or 0 for column in self._columns)], np.int64)
        self.handle = at(self._words)


class ParallelArcs(NamedTuple):
    """Arcs side by side: `first` of each switch, whose ends order[ends[i]:ends[i + 1]] are (arcs,
    by port); the switch it `leads` to, ascending, and the `kind` of its cost, of `costs`.
    """

    first: np.ndarray
    ends: np.ndarray
    order: np.ndarray
    leads: np.ndarray
    kind: np.ndarray
    costs: np.ndarray


KINDS, NO_RING = 256, 1 << 15  # a row of `_nearer`; what no ring of a byte is


class Net(_Held):
    """`sides`, and `rings` (uint8 or uint16[racks, switches], float64 cost of each): see
    `ways.Ways`.
    """

    def __init__(self, sides: ParallelArcs, rings: tuple[np.ndarray, np.ndarray]):
        ring, cost = rings
        narrow, wide = (ring, None) if ring.itemsize == 1 else (None, ring)
        nearer = None if narrow is None else _nearer(cost, sides.costs)
        columns = (
            (sides.first, np.int64),
            (sides.ends, np.int64),
            (sides.order, np.int64),
            (sides.leads, np.int32),
            (sides.costs[sides.kind], float),
            (narrow, np.uint8),
            (wide, np.uint16),
            (cost, float),
            (None if nearer is None else sides.kind, np.uint8),
            (nearer, np.uint16),
        )
        super().__init__(columns, *ring.shape[::-1])
        self._arcs, self._first_arc = len(sides.order), sides.order[sides.ends[:-1]]

    def fitting(
        self, row: np.ndarray, rack: np.ndarray, most: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """`Ways._fitting`, which looks at `most` arcs."""
        row, rack = (np.ascontiguousarray(ends, np.int64) for ends in (row, rack))
        owner, arcs = np.empty(most, np.int64), np.empty(most, np.int64)
        n = loops().rf_fitting(self.handle, len(row), at(row), at(rack), at(owner), at(arcs))
        return owner[:n].copy(), arcs[:n].copy()

    def walks(
        self,
        row: np.ndarray,
        rack: np.ndarray,
        end: np.ndarray,
        most: int,
        bundle: np.ndarray,
        nowhere: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """`Choices._descend` from switch row[i] to rack[i], at switch end[i]: how many ways each
        has, and these, one after the other; `bundle` of each arc.
        """
        columns = row, rack, end, bundle[self._first_arc]
        columns = [np.ascontiguousarray(column, np.int64) for column in columns]
        counts, said = np.empty(len(row), np.int64), np.empty(2, np.int64)
        *ends, names = map(at, columns)
        held = loops().rf_walk(
            self.handle, len(row), *ends, most, names, nowhere, at(counts), at(said)
        )
        if held is None:
            raise MemoryError(f"no memory to follow the paths of {len(row)} pairs of racks")
        rows = np.empty(said.tolist(), np.int64)
        loops().rf_walked(held, at(rows))
        return counts, rows

    def evenly(self, row: np.ndarray, rack: np.ndarray, sent: np.ndarray, most: int) -> np.ndarray:
        """`Ways._by_arc`; sums are formed in parts of `most` candidates."""
        row, rack = (np.ascontiguousarray(ends, np.int64) for ends in (row, rack))
        sent, load = np.ascontiguousarray(sent, float), np.zeros(self._arcs)
        done = loops().rf_evenly(self.handle, len(row), at(row), at(rack), at(sent), most, at(load))
        if done == NO_MEMORY:
            raise MemoryError(f"no memory to spread what {len(row)} pairs of racks send")
        return np.array(np.inf) if done == NO_WAY else load


def _nearer(cost: np.ndarray, steps: np.ndarray) -> np.ndarray | None:
    """uint16[rings, KINDS]: from which ring (of so much `cost`) an arc of which cost (of `steps`)
    leads to which, on a cheapest way; NO_RING where to none. None where rings are too near each
    other to tell, or costs too many.
    """
    cost = cost[np.isfinite(cost)]
    if len(steps) > KINDS:
        return None
    there, here = cost + steps[:, None], cost[:, None, None]
    fits = leads_nearer(there, here, steps[:, None])
    if (fits.sum(2) > 1).any():
        return None
    nearer = np.full((NEAR + 1, KINDS), NO_RING, np.uint16)
    nearer[: len(cost), : len(steps)] = np.where(fits.any(2), fits.argmax(2), NO_RING)
    return nearer


class Wide(_Held):
    """Bundles of several arcs: `first` of each bundle, and the bundle of each arc; CSR of the kinds
    of each signature.
    """

    def __init__(
        self, first: np.ndarray, bundle_of: np.ndarray, kinds: tuple[np.ndarray, np.ndarray]
    ):
        columns = [(column, np.int64) for column in (first, bundle_of, *kinds)]
        super().__init__(columns, len(first) - 1, len(kinds[0]) - 1)


class Laid(_Held):
    """What pairs send, and what of it is laid on arcs: `first`, `kind`, `bytes`, `seconds_a_byte`
    and `load` of `placing.Placer`.
    """

    def __init__(self, first, kind, bytes, seconds_a_byte, load: np.ndarray):
        columns = (
            (first, np.int64),
            (kind, np.int64),
            (bytes, float),
            (seconds_a_byte, float),
            (load, float),
        )
        super().__init__(columns, load.shape[1])
        self._taken = np.zeros(load.shape[1], np.int64)  # what `claims` marks, all 0 between calls

    def cheapest(self, pairs, signature, key, offers, best, now) -> tuple[np.ndarray, np.ndarray]:
        """`Placer._cheapest`."""
        pairs, key = (np.ascontiguousarray(column, np.int64) for column in (pairs, key))
        first, rows = (
            np.ascontiguousarray(column, np.int64) for column in (offers.first, offers.rows)
        )
        cost, arcs = np.empty(len(pairs)), np.empty((len(pairs), rows.shape[1]), np.int64)
        way, need = np.empty(rows.shape[1], np.int64), np.empty(rows.shape[1] + 8)
        loops().rf_cheapest(
            self.handle,
            len(pairs),
            at(pairs),
            at(signature),
            at(key),
            at(first),
            at(rows),
            rows.shape[1],
            at(best),
            best.shape[1],
            at(now),
            0 if now is None else now.shape[1],
            at(way),
            at(need),
            at(cost),
            at(arcs),
        )
        return cost, arcs

    def cost(self, pairs: np.ndarray, arcs: np.ndarray, own: np.ndarray) -> np.ndarray:
        """`Placer._cost` of one row of arcs a pair."""
        pairs, arcs, own = (np.ascontiguousarray(column, np.int64) for column in (pairs, arcs, own))
        cost, need = np.empty(len(pairs)), np.empty(arcs.shape[1] + 8)
        ways = at(pairs), at(arcs), arcs.shape[1], at(own), own.shape[1]
        loops().rf_cost(self.handle, len(pairs), *ways, at(need), at(cost))
        return cost

    def lay(self, pairs: np.ndarray, arcs: np.ndarray, sign: int) -> None:
        """Add (or take away) the bytes of pairs on rows of arcs."""
        pairs, arcs = (np.ascontiguousarray(column, np.int64) for column in (pairs, arcs))
        loops().rf_lay(self.handle, len(pairs), at(pairs), at(arcs), arcs.shape[1], sign)

    def claims(self, arcs: np.ndarray) -> np.ndarray:
        """`Placer._claims`."""
        arcs, free = np.ascontiguousarray(arcs, np.int64), np.empty(len(arcs), bool)
        loops().rf_claims(*arcs.shape, at(arcs), len(self._taken) - 1, at(self._taken), at(free))
        return free

    def greedy(
        self,
        pairs: np.ndarray,
        parts: Sequence[np.ndarray],
        signature: np.ndarray,
        key: np.ndarray,
        offers,
        best: np.ndarray,
        patience: int,
        wide: Wide | None,
    ) -> np.ndarray:
        """`Placer._greedy` of `pairs`, part by part (places in `pairs`): the arcs of each."""
        pairs, key, first, rows = (
            np.ascontiguousarray(column, np.int64)
            for column in (pairs, key, offers.first, offers.rows)
        )
        order = np.ascontiguousarray(np.concatenate(parts), np.int64)
        ends = np.concatenate(([0], np.cumsum([len(part) for part in parts], dtype=np.int64)))
        arcs = np.empty((len(pairs), rows.shape[1]), np.int64)
        turns = len(parts), at(ends), at(order), len(pairs)
        columns = map(at, (pairs, signature, key, first, rows))
        bundles = rows.shape[1], at(best), best.shape[1]
        state = self.handle, wide.handle if wide else None
        made = patience, at(self._taken), at(arcs)
        done = loops().rf_greedy(*state, *turns, *columns, *bundles, *made)
        if done == NO_MEMORY:
            raise MemoryError(f"no memory to place {len(pairs)} pairs")
        return arcs

    def least(self, pairs: np.ndarray, arcs: np.ndarray, wide: Wide, best: np.ndarray) -> None:
        """`Placer._least_loaded` of the bundles in rows of arcs."""
        pairs, arcs = (np.ascontiguousarray(column, np.int64) for column in (pairs, arcs))
        rows = len(pairs), at(pairs), at(arcs), arcs.shape[1]
        if loops().rf_least(self.handle, *rows, wide.handle, at(best)) == NO_MEMORY:
            raise MemoryError(f"no memory to place {len(pairs)} pairs")

    def lateness(
        self, pairs: np.ndarray, arcs: np.ndarray, limit: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """`Placer._lateness`."""
        pairs, limit = np.ascontiguousarray(pairs, np.int64), np.ascontiguousarray(limit, float)
        late, arc = np.empty(len(pairs)), np.empty(len(pairs), np.int64)
        loops().rf_lateness(
            self.handle,
            len(pairs),
            at(pairs),
            at(arcs),
            arcs.shape[1],
            at(limit),
            at(late),
            at(arc),
        )
        return late, arc

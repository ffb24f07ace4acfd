"""Which way each pair of hosts takes, where hashing over the cheapest ways is not enough: the routing schemes.

    ecmp      the hash of the pair picks at every switch among the cheapest next hops (`ways.Ways.links`)
    wcmp      the hash picks a way, faster and wider ways more often: direct circuits, the cheapest ways, the electrical path
    valiant   the hash picks a rack half-way: cheapest way there, cheapest way on (Valiant 1982; RotorNet's two hops)
    placed    heaviest pairs first, each on the way whose busiest cable is least loaded; then pairs move off the busiest

A *way* is a row of light paths from a source's ToR to the destination's; switches on it are all different, so a way is free of
loops by construction. Between two switches several light paths may run side by side: a *bundle*. Schemes choose among
bundles first, then a light path of each bundle. The choice for a pair is a pure function of fabric, circuits and what all
pairs send, and becomes rules for that pair: simulator and switches take it from the same object.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import RFabricError
from ..units import transfer_seconds
from .routing import mix
from .ways import Ways, mixed

SCHEMES = ("ecmp", "wcmp", "placed", "valiant")
DEFAULT_SCHEME = "placed"
MOST_PLACED = (
    16_384  # pairs: placing takes up to a millisecond each where a ToR has 128 uplinks; beyond, hashing serves
)
MOST_WAYS = 128  # bundle rows looked at for one pair of racks: a ToR has no more uplinks in the fabrics built here
MOST_ROUNDS = 12  # rounds of moving pairs off the busiest cables; on the fabrics and recipes shipped five are enough
GAIN = 1e-3  # a pair moves where that shortens its own busiest cable by more than this share


@dataclass(frozen=True, eq=False)
class Sent:
    """What host pairs send: `bytes[kind, i]` go from host src[i] to dst[i] (numbers) in each kind of communication.

    What is of one kind is sent at one time (the reduce-scatters of training); pairs are distinct, ascending.
    """

    src: np.ndarray
    dst: np.ndarray
    bytes: np.ndarray

    def __post_init__(self):
        src, dst = (np.asarray(ends, dtype=np.int64) for ends in (self.src, self.dst))
        sent = np.atleast_2d(np.asarray(self.bytes, dtype=float))
        if src.shape != dst.shape or sent.shape[1:] != src.shape or not np.isfinite(sent).all() or (sent < 0).any():
            raise RFabricError(f"sent: {len(src)} pairs need finite bytes >= 0 per kind; got shape {sent.shape}")
        order = np.argsort(src << 32 | dst, kind="stable")
        for name, value in (("src", src[order]), ("dst", dst[order]), ("bytes", sent[:, order])):
            object.__setattr__(self, name, value)
        if (np.diff(self.codes) == 0).any():
            raise RFabricError("sent: a pair stands twice; add its bytes up")

    @cached_property
    def codes(self) -> np.ndarray:
        """int64[n]: a pair as one number, ascending."""
        return self.src << 32 | self.dst


@dataclass(frozen=True, eq=False)
class Routing:
    """A scheme and, for `placed`, what it places; the same object gives the simulator its ways and the switches their rules."""

    scheme: str = "ecmp"
    sent: Sent | None = None

    def __post_init__(self):
        if self.scheme not in SCHEMES:
            raise RFabricError(f"no routing {self.scheme!r}; there are {', '.join(SCHEMES)}")
        if self.scheme == "placed" and self.sent is None:
            raise RFabricError("routing placed: it must know what the pairs send")


ECMP = Routing()


class Bundles:
    """Light paths between packet switches, side by side: `leaves`, `leads` rows; arcs of bundle b: first[b] to first[b + 1].

    `rate` float64[bundles] is that of one light path (the slowest), `width` how many there are, `path` the light path of each
    arc. `across(u, v)` is the bundle from row u to row v, -1 where there is none.
    """

    def __init__(self, ways: Ways):
        codes = ways.leaves * ways.switches + ways.leads
        order = np.argsort(codes, kind="stable")
        self.path = ways.path[order]
        self.switches = ways.switches
        self.codes, first = np.unique(codes[order], return_index=True)
        self.first = np.append(first, len(order))
        self.leaves, self.leads = self.codes // ways.switches, self.codes % ways.switches
        self.width = np.diff(self.first)
        self.arc_rate = ways.lights.rate[self.path]
        self.rate = np.minimum.reduceat(self.arc_rate, first) if len(first) else np.zeros(0)
        self.out = np.searchsorted(self.leaves, np.arange(ways.switches + 1))
        self.by_code = {code: b for b, code in enumerate(self.codes.tolist())}

    def across(self, row: int, to: int) -> int:
        return self.by_code.get(row * self.switches + to, -1)

    def from_row(self, row: int) -> range:
        """The bundles that leave a switch."""
        return range(self.out[row], self.out[row + 1])


class Choices:
    """The ways between racks under one set of circuits, as rows of bundles; `calm` are the ways of the same fabric, all dark."""

    def __init__(self, ways: Ways, calm: Ways | None = None):
        self.ways, self.calm = ways, calm
        self.bundles = Bundles(ways)
        self._cheapest: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        self._every: dict[tuple[int, int], list[tuple[int, ...]]] = {}

    def cheapest(self, rack: int, to: int) -> list[tuple[int, ...]]:
        """The cheapest ways from rack to rack (numbers)."""
        key = rack, to
        if key not in self._cheapest:
            rows = self._descend(self.ways, int(self.ways.cabling.rack_row[rack]), to)
            self._cheapest[key] = [row for row in map(self._bundled, rows) if row]
        return self._cheapest[key]

    def direct(self, rack: int, to: int) -> list[tuple[int, ...]]:
        """The cheapest ways, and those that pass no third rack: the direct circuits, the electrical path."""
        racks = set(self.ways.cabling.rack_row.tolist())
        lead = self.bundles.leads.tolist()
        found = [row for row in self.every(rack, to) if not racks & {lead[b] for b in row[:-1]}]
        return list(dict.fromkeys([*self.cheapest(rack, to), *found]))

    def every(self, rack: int, to: int) -> list[tuple[int, ...]]:
        """The cheapest ways, all of one or two bundles, and the cheapest on cables alone; each once, at most MOST_WAYS."""
        key = rack, to
        if key not in self._every:
            found = [*self.cheapest(rack, to), *self._short(rack, to)]
            if self.calm is not None:
                rows = self._descend(self.calm, int(self.ways.cabling.rack_row[rack]), to)
                found += [row for row in map(self._bundled, rows) if row]
            self._every[key] = list(dict.fromkeys(found))[:MOST_WAYS]
        return self._every[key]

    def _short(self, rack: int, to: int) -> list[tuple[int, ...]]:
        some, c = self.bundles, self.ways.cabling
        start, end = int(c.rack_row[rack]), int(c.rack_row[to])
        direct = some.across(start, end)
        found = [(direct,)] if direct >= 0 else []
        for b in some.from_row(start):
            on = some.across(int(some.leads[b]), end)
            if on >= 0 and some.leads[b] not in (start, end):
                found.append((b, on))
        return found

    def _descend(self, ways: Ways, row: int, rack: int) -> list[tuple[int, ...]]:
        """Switch rows of the cheapest ways; where there are more than MOST_WAYS, those a fixed hash picks."""
        end, found, open_ = int(ways.cabling.rack_row[rack]), [], [(row,)]
        while open_:
            longer = []
            for way in open_:
                if way[-1] == end:
                    found.append(way)
                else:
                    longer += [(*way, lead) for lead in self._onward(ways, way[-1], rack)]
            open_ = longer if len(longer) <= MOST_WAYS else _some(longer, MOST_WAYS)
        return found

    def _onward(self, ways: Ways, row: int, rack: int) -> list[int]:
        key = id(ways), row, rack
        if key not in self._hops:
            arcs = ways.fitting(row, rack)
            self._hops[key] = np.unique(ways.leads[arcs]).tolist()
        return self._hops[key]

    @cached_property
    def _hops(self) -> dict[tuple[int, int, int], list[int]]:
        return {}

    def _bundled(self, rows: Sequence[int]) -> tuple[int, ...]:
        """A row of switches as a row of bundles; () where the ways of another set of circuits lead where these do not."""
        found = tuple(self.bundles.across(a, b) for a, b in zip(rows, rows[1:], strict=False))
        return () if -1 in found else found


def _some(rows: list, count: int) -> list:
    """`count` of them, spread evenly over the hash order: the same ones every time, no corner of the fabric preferred."""
    order = np.argsort(mixed(np.arange(len(rows), dtype=np.uint64)), kind="stable")[:count]
    return [rows[i] for i in np.sort(order).tolist()]


def chosen(choices: Choices, scheme: str, sent: Sent) -> dict[int, tuple[int, ...]]:
    """The light paths of all pairs of `sent` (by code) under a scheme other than ecmp; () inside a rack, and where none leads."""
    c = choices.ways.cabling
    racks = c.host_rack[sent.src], c.host_rack[sent.dst]
    some = np.flatnonzero((racks[0] != racks[1]) & choices.ways.reaches(sent.src, sent.dst))
    found = dict.fromkeys(sent.codes.tolist(), ())
    rows = CHOOSERS[scheme](
        choices, Sent(sent.src[some], sent.dst[some], sent.bytes[:, some]), racks[0][some], racks[1][some]
    )
    return found | dict(zip(sent.codes[some].tolist(), rows, strict=True))


# --- the schemes: light paths of each pair ---------------------------------------------------------------------------------


def _weighted(choices: Choices, sent: Sent, rack: np.ndarray, to: np.ndarray) -> list[tuple[int, ...]]:
    """wcmp: a way is chosen as often as it is wide, a light path of a bundle as often as any other of it."""
    some, found = choices.bundles, []
    for pair, a, b in zip(sent.codes.tolist(), rack.tolist(), to.tolist(), strict=True):
        ways = choices.direct(a, b)
        wide = np.cumsum([min(some.rate[x] * some.width[x] for x in way) for way in ways])
        key = _hashed(pair, 0)
        way = ways[int(np.searchsorted(wide, key / 2**64 * wide[-1], side="right"))]
        found.append(_hashed_paths(some, way, pair))
    return found


def _two_hops(choices: Choices, sent: Sent, rack: np.ndarray, to: np.ndarray) -> list[tuple[int, ...]]:
    """valiant: over a rack the hash picks, where both halves together pass no switch twice; else over the next one."""
    some, racks, found = choices.bundles, len(choices.ways.cabling.rack_row), []
    for pair, a, b in zip(sent.codes.tolist(), rack.tolist(), to.tolist(), strict=True):
        start, way = _hashed(pair, 0) % racks, None
        for turn in range(racks):
            middle = (start + turn) % racks
            way = _over(choices, a, middle, b, pair)
            if way:
                break
        found.append(_hashed_paths(some, way or choices.cheapest(a, b)[0], pair))
    return found


def _over(choices: Choices, rack: int, middle: int, to: int, pair: int) -> tuple[int, ...] | None:
    if middle in (rack, to):
        return None
    some, halves = choices.bundles, (choices.cheapest(rack, middle), choices.cheapest(middle, to))
    if not all(halves):
        return None
    first, second = (ways[_hashed(pair, i + 1) % len(ways)] for i, ways in enumerate(halves))
    rows = [int(some.leads[b]) for b in (*first, *second)]
    start = int(choices.ways.cabling.rack_row[rack])
    return (*first, *second) if len({start, *rows}) == len(rows) + 1 else None


def _hashed_paths(some: Bundles, way: Sequence[int], pair: int) -> list[int]:
    picks = [some.first[b] + _hashed(pair, 100 + i) % int(some.width[b]) for i, b in enumerate(way)]
    return tuple(some.path[picks].tolist())


def _hashed(pair: int, salt: int) -> int:
    return mix(mix(pair) ^ salt)


class Placer:
    """Places the pairs of `sent` one after another. Its state: bytes by kind on each arc, and the arcs each pair takes.

    What a way costs a pair: for each kind that the pair sends in, the seconds that the busiest arc of the way would then need,
    added up. Pairs that send in the same kinds share a *signature*, and with it the least loaded arc of each bundle.
    """

    def __init__(self, choices: Choices, sent: Sent, rack: np.ndarray, to: np.ndarray):
        self.choices, self.bundles = choices, choices.bundles
        self.ends = list(zip(rack.tolist(), to.tolist(), strict=True))
        some = self.bundles
        nowhere = len(some.path)  # stands where a shorter way has no more arcs
        self.rate = np.append(some.arc_rate, np.inf)
        self.load = np.zeros((len(sent.bytes), nowhere + 1))
        patterns, self.signature = np.unique(sent.bytes.T > 0, axis=0, return_inverse=True)
        self.kinds = [np.flatnonzero(pattern) for pattern in patterns]
        self.bytes = [sent.bytes[self.kinds[s], i] for i, s in enumerate(self.signature.tolist())]
        self.best = np.tile(np.append(some.first[:-1], nowhere), (len(patterns), 1))
        self.touching = [
            [t for t, other in enumerate(patterns) if (other & pattern).any()] for pattern in patterns
        ]  # whose least loaded arcs a pair of this signature may change
        self.arcs: list[np.ndarray] = [np.zeros(0, np.int64)] * len(self.ends)
        self.enough = self._enough(sent)
        self._rows: dict[tuple, np.ndarray] = {}

    def _enough(self, sent: Sent) -> np.ndarray:
        """Seconds of each kind at the busiest network card: a cable that needs no more holds nobody up."""
        c = self.choices.ways.cabling
        nic = c.rate[c.host_link]
        busiest = [np.bincount(ends, kind, minlength=len(nic)) for kind in sent.bytes for ends in (sent.src, sent.dst)]
        seconds = [transfer_seconds(load, nic).max(initial=0.0) for load in busiest]
        return np.array(seconds).reshape(len(sent.bytes), 2).max(1)

    def run(self) -> list[tuple[int, ...]]:
        """Light paths of every pair."""
        heaviest = np.array([sizes.sum() for sizes in self.bytes])
        for i in np.argsort(-heaviest, kind="stable").tolist():
            self._put(i, self._cheapest_now(i, self.choices.cheapest)[1])
        for _ in range(MOST_ROUNDS):
            if not self._move():
                break
        path = self.bundles.path
        return [tuple(path[arcs].tolist()) for arcs in self.arcs]

    def _move(self) -> int:
        """Move pairs off cables that need longer than the network cards; how many moved."""
        late = np.array([self._lateness(i) for i in range(len(self.ends))])
        moved = 0
        for i in np.argsort(-late, kind="stable")[: int((late > GAIN).sum())].tolist():
            before = self.arcs[i]
            was = self._seconds(i, before[None])[0]
            self._add(i, before, -1)
            cost, arcs = self._cheapest_now(i, self.choices.every)
            better = cost < was * (1 - GAIN)
            self._put(i, arcs if better else before)
            moved += better
        return moved

    def _lateness(self, i: int) -> float:
        """By what share the busiest arc of a pair needs longer than the network cards, in its worst kind."""
        kinds, arcs = self.kinds[self.signature[i]], self.arcs[i]
        if not len(kinds):
            return 0.0
        seconds = transfer_seconds(self.load[kinds][:, arcs], self.rate[arcs]).max(1)
        return float((seconds / self.enough[kinds]).max() - 1)

    def _seconds(self, i: int, arcs: np.ndarray, more: np.ndarray | float = 0.0) -> np.ndarray:
        """What each row of arcs costs a pair, with `more` bytes of each kind on them."""
        held = self.load[self.kinds[self.signature[i]]][:, arcs]
        need = transfer_seconds(held + np.reshape(more, (-1, 1, 1)), self.rate[arcs])
        return need.max(2).sum(0) + 1e-6 * need.sum((0, 2))  # of equals the shorter, less used one

    def _cheapest_now(self, i: int, offered: Callable) -> tuple[float, np.ndarray]:
        rows = self._bundle_rows(i, offered)
        arcs = self.best[self.signature[i]][rows]
        cost = self._seconds(i, arcs, self.bytes[i])
        least = int(cost.argmin())
        return float(cost[least]), arcs[least][arcs[least] < len(self.bundles.path)]

    def _bundle_rows(self, i: int, offered: Callable) -> np.ndarray:
        key = offered.__name__, *self.ends[i]
        if key not in self._rows:
            ways = offered(*self.ends[i])
            rows = np.full((len(ways), max(map(len, ways))), len(self.bundles.codes), dtype=np.int64)
            for row, way in zip(rows, ways, strict=True):
                row[: len(way)] = way
            self._rows[key] = rows
        return self._rows[key]

    def _put(self, i: int, arcs: np.ndarray) -> None:
        self.arcs[i] = arcs
        self._add(i, arcs, 1)

    def _add(self, i: int, arcs: np.ndarray, sign: int) -> None:
        """Add (or take away) a pair's bytes, and see which arcs of these bundles are the least loaded now."""
        signature, first = self.signature[i], self.bundles.first
        self.load[self.kinds[signature][:, None], arcs] += sign * self.bytes[i][:, None]
        for b in (np.searchsorted(first, arcs, side="right") - 1).tolist():
            if self.bundles.width[b] > 1:
                part = slice(first[b], first[b + 1])
                for other in self.touching[signature]:
                    held = self.load[self.kinds[other], part].sum(0) / self.rate[part]
                    self.best[other, b] = part.start + int(held.argmin())


def _placed(choices: Choices, sent: Sent, rack: np.ndarray, to: np.ndarray) -> list[tuple[int, ...]]:
    """placed: see the module docstring."""
    return Placer(choices, sent, rack, to).run() if len(rack) else []


CHOOSERS: dict[str, Callable[..., list[tuple[int, ...]]]] = {"wcmp": _weighted, "valiant": _two_hops, "placed": _placed}

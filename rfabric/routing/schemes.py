"""Which way each pair of hosts takes, where hashing over the cheapest ways is not enough: the
routing schemes.

`SCHEMES` and `SEVERAL` say what each does. Several ways at once are what packet spraying and
multi-path RDMA come to: the rules of a switch do not say it, the simulator alone carries it.

A *way* is a row of light paths from a source's ToR to the destination's; switches on it are all
different, so a way is free of loops by construction. Between two switches several light paths may
run side by side: a *bundle*. Schemes choose among bundles first, then a light path of each bundle.
The choice for a pair is a pure function of fabric, circuits and what all pairs send, and becomes
rules for that pair: simulator and switches take it from the same object.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from ..errors import RFabricError, meant
from ..plugins import KINDS, called, entry, file_of, is_file, place_of
from .choices import Bundles, Choices, Offers
from .placing import Kinds, Placer
from .rows import closed_up, mixed, numbered, offsets_of, spread, widened

SCHEMES = {  # one way a pair
    "ecmp": "the hash of the pair picks at every switch among the cheapest next hops",
    "wcmp": "the hash picks a path, faster and wider ones more often: direct circuits, the "
    "cheapest paths, the electrical path",
    "placed": "by what all pairs send: spread evenly over planes and cores, elsewhere on the "
    "least loaded path; then pairs move off the busiest cables",
    "valiant": "the hash picks a rack half-way: cheapest path there, cheapest path on (Valiant "
    "1982; RotorNet's two hops)",
}
SPLIT = "split"
SEVERAL = {
    SPLIT: "every pair over all its cheapest paths at once, each with its share of the bytes"
}
DEFAULT_SCHEME = "placed"
# kinds of communication, and sets of them that pairs send in, beyond which all are placed as one
MOST_KINDS, MOST_COMBINED = 64, 512


def known_scheme(scheme: str, names: Iterable[str]) -> str:
    """The scheme, when it is one of `names` or stands in a file; else an RFabricError."""
    if is_file(scheme):
        entry(scheme, "routings")
    elif scheme not in names:
        raise RFabricError(
            f"no routing {scheme!r}{meant(scheme, names)}; there are {', '.join(names)}"
        )
    return scheme


@dataclass(frozen=True, eq=False)
class Sent:
    """What host pairs send: `bytes[kind, i]` go from host src[i] to dst[i] (numbers) in each kind
    of communication.

    What is of one kind is sent at one time (the reduce-scatters of training); pairs are distinct,
    ascending.
    """

    src: np.ndarray
    dst: np.ndarray
    bytes: np.ndarray

    def __post_init__(self):
        src, dst = (np.asarray(ends, dtype=np.int64) for ends in (self.src, self.dst))
        sent = np.atleast_2d(np.asarray(self.bytes, dtype=float))
        if (
            src.shape != dst.shape
            or sent.shape[1:] != src.shape
            or not np.isfinite(sent).all()
            or (sent < 0).any()
        ):
            raise RFabricError(
                f"sent: {len(src)} pairs need finite bytes >= 0 per kind; got shape {sent.shape}"
            )
        order = np.argsort(src << 32 | dst, kind="stable")
        for name, value in (("src", src[order]), ("dst", dst[order]), ("bytes", sent[:, order])):
            object.__setattr__(self, name, value)
        if (np.diff(self.codes) == 0).any():
            raise RFabricError("sent: a pair stands twice; add its bytes up")

    def part(self, some: np.ndarray) -> "Sent":
        """Pairs some[0], some[1], ... of them, ascending; the last answer is kept: circuits change,
        but seldom which pairs have a way.
        """
        kept = self.__dict__.get("_part")
        if kept is None or not np.array_equal(kept[0], some):
            part = object.__new__(Sent)  # nothing that was not checked
            for name in ("src", "dst", "bytes"):
                object.__setattr__(part, name, getattr(self, name)[..., some])
            kept = self.__dict__["_part"] = some, part
        return kept[1]

    @cached_property
    def kinds(self) -> Kinds:
        """The same for who places it."""
        return Kinds(self.bytes)

    @cached_property
    def codes(self) -> np.ndarray:
        """int64[n]: a pair as one number, ascending."""
        return self.src << 32 | self.dst


@dataclass(frozen=True, eq=False)
class Routing:
    """A scheme and, for `placed`, what it places; the same object gives the simulator its ways and
    the switches their rules.
    """

    scheme: str = "ecmp"
    sent: Sent | None = None

    def __post_init__(self):
        known_scheme(self.scheme, (*SCHEMES, *SEVERAL))
        if self.scheme == "placed" and self.sent is None:
            raise RFabricError("routing placed: it must know what the pairs send")


ECMP = Routing()


def one_way(scheme: str) -> str:
    """The scheme, when it gives every pair one way, which the rules of switches can say; else an
    RFabricError.
    """
    if scheme == SPLIT:
        raise RFabricError(
            f"routing {SPLIT}: a pair takes several paths at once, which the rules of a switch "
            f"cannot express; simulate it, or choose one of {', '.join(SCHEMES)}"
        )
    return known_scheme(scheme, SCHEMES)


@dataclass(frozen=True, eq=False)
class Chosen:
    """The ways of pairs: `codes` int64[n] ascending; hops[first[i]:first[i + 1]] (int32) are the
    light paths of pair i, most of which have few of the `longest`.
    """

    codes: np.ndarray
    first: np.ndarray
    hops: np.ndarray
    longest: int

    @classmethod
    def laid(cls, codes: np.ndarray, some: np.ndarray, hops: np.ndarray) -> "Chosen":
        """Those that hops[i] (-1 beyond the last) say of codes[some[i]]; of the others none."""
        there, counts = hops >= 0, np.zeros(len(codes), np.int64)
        counts[some] = there.sum(1)
        first = offsets_of(counts).astype(np.int32)
        return cls(codes, first, hops[there].astype(np.int32), int(counts.max(initial=0)))

    def of(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(light paths, int32[n, longest], -1 beyond the last; whether the pair is known) of pairs
        by code.
        """
        place = np.searchsorted(self.codes, codes)
        known = place < len(self.codes)
        known[known] = self.codes[place[known]] == codes[known]
        place = place[known]
        counts = np.zeros(len(codes), np.int64)
        counts[known] = self.first[place + 1] - self.first[place]
        hops = np.full((len(codes), self.longest), -1, np.int32)
        hops[np.arange(self.longest) < counts[:, None]] = self.hops[
            spread(self.first[place], counts[known])
        ]
        return hops, known


def chosen(choices: Choices, scheme: str, sent: Sent) -> Chosen:
    """The light paths of all pairs of `sent` under a scheme other than ecmp; none inside a rack,
    and where none leads.
    """
    c = choices.ways.cabling
    racks = c.host_rack[sent.src], c.host_rack[sent.dst]
    some = np.flatnonzero((racks[0] != racks[1]) & choices.ways.reaches(sent.src, sent.dst))
    if not len(some):
        return Chosen.laid(sent.codes, some, np.zeros((0, 0), np.int32))
    asked = sent.part(some)
    ends = racks[0][some], racks[1][some]
    if is_file(scheme):
        paths = _from_file(scheme, choices, asked, *ends)
    else:
        paths = CHOOSERS[scheme](choices, asked, *ends)
    return Chosen.laid(sent.codes, some, paths)


@dataclass(frozen=True, eq=False)
class SplitPairs:
    """Pairs of hosts that spread every flow over several ways at once, as packet spraying and
    multi-path RDMA do.

    Pair i has the ways first[i] to first[i + 1] (int64[n + 1]); `share` float64[ways] of its bytes
    takes each, they add up to 1; the directed links of way w are links[offsets[w]:offsets[w + 1]].
    """

    first: np.ndarray
    share: np.ndarray
    offsets: np.ndarray
    links: np.ndarray


def split(choices: Choices, src: np.ndarray, dst: np.ndarray) -> SplitPairs:
    """All cheapest ways of host pairs (numbers), the fastest light paths of their bundles alike; no
    way where nothing connects a pair.
    """
    some, c, ways = choices.bundles, choices.ways.cabling, choices.ways
    racks = c.host_rack[src], c.host_rack[dst]
    offers, key = _by_racks(choices.cheapest, *racks)
    row, pair = (
        spread(offers.first[key], offers.counts[key]),
        np.repeat(np.arange(len(src)), offers.counts[key]),
    )
    rows, width = offers.rows[row], np.append(some.equal, 1)
    beside = np.lcm.reduce(width[rows], axis=1) if rows.size else np.ones(len(rows), np.int64)
    turn = spread(np.zeros(len(rows), np.int64), beside)
    wide = np.append(some.rate * some.equal, np.inf)[rows].min(1, initial=np.inf)
    wide[(rows == some.nowhere).all(1)] = 1.0  # inside a rack
    share = np.repeat(wide / np.bincount(pair, wide, minlength=len(src))[pair] / beside, beside)
    pair, rows = np.repeat(pair, beside), np.repeat(rows, beside, axis=0)
    hops = np.append(some.path, -1)[some.first[rows] + turn[:, None] % width[rows]]
    offsets, links = ways.links_along(src[pair], dst[pair], hops, np.zeros(len(pair), bool))
    return SplitPairs(offsets_of(np.bincount(pair, minlength=len(src))), share, offsets, links)


# --- the schemes: light paths of each pair (int64[pairs, longest], -1 beyond the last) ------------


def _weighted(choices: Choices, sent: Sent, rack: np.ndarray, to: np.ndarray) -> np.ndarray:
    """wcmp: a way is chosen as often as it is wide, of a bundle its fastest light paths alike."""
    some, (offers, key) = choices.bundles, _by_racks(choices.direct, rack, to)
    wide = np.append(some.rate * some.equal, np.inf)[offers.rows].min(1)
    upto = np.concatenate(([0.0], np.cumsum(wide)))
    begin, end = upto[offers.first[key]], upto[offers.first[key + 1]]
    wanted = begin + _hashed(sent.codes, 0) / 2**64 * (end - begin)
    row = np.clip(
        np.searchsorted(upto, wanted, side="right") - 1,
        offers.first[key],
        offers.first[key + 1] - 1,
    )
    return _hashed_paths(some, offers.rows[row], sent.codes)


def _two_hops(choices: Choices, sent: Sent, rack: np.ndarray, to: np.ndarray) -> np.ndarray:
    """valiant: over a rack the hash picks, where both halves together pass no switch twice; else
    over the next one.
    """
    some, racks = choices.bundles, len(choices.ways.cabling.rack_row)
    start = (_hashed(sent.codes, 0) % np.uint64(racks)).astype(np.int64)
    rows = np.full((len(rack), 0), some.nowhere)
    waiting = np.arange(len(rack))
    for turn in range(racks):
        middle = (start[waiting] + turn) % racks
        over = _over(choices, rack[waiting], middle, to[waiting], sent.codes[waiting])
        rows = _laid(rows, waiting, over, some.nowhere)
        waiting = waiting[(over == some.nowhere).all(1)] if over.size else waiting
        if not len(waiting):
            break
    offers, key = _by_racks(choices.cheapest, rack[waiting], to[waiting])
    rows = _laid(rows, waiting, offers.rows[offers.first[key]], some.nowhere)
    return _hashed_paths(some, rows, sent.codes)


def _laid(rows: np.ndarray, at: np.ndarray, new: np.ndarray, fill: int) -> np.ndarray:
    """Rows with `new` in the rows `at`, the narrower ones filled up."""
    wide = max(rows.shape[1], new.shape[1])
    rows = widened(rows, wide, fill)
    rows[at] = widened(new, wide, fill)
    return rows


def _over(
    choices: Choices, rack: np.ndarray, middle: np.ndarray, to: np.ndarray, codes: np.ndarray
) -> np.ndarray:
    """Rows of bundles from racks over others, each half one of the cheapest ways; `nowhere` where
    there is no such row.
    """
    some, here, c = choices.bundles, (middle != rack) & (middle != to), choices.ways.cabling
    halves = []
    for i, (a, b) in enumerate(((rack, middle), (middle, to))):
        offers, key = _by_racks(choices.cheapest, a[here], b[here])
        counts = offers.counts[key]
        pick = _hashed(codes[here], i + 1) % np.maximum(counts, 1).astype(np.uint64)
        row = np.append(offers.rows, np.full((1, offers.rows.shape[1]), some.nowhere), 0)
        halves.append(row[np.where(counts > 0, offers.first[key] + pick.astype(np.int64), -1)])
    both = np.concatenate(halves, 1)
    whole = np.all([(half < some.nowhere).any(1) for half in halves], 0)
    passed = np.column_stack((c.rack_row[rack[here]], np.append(some.leads, -1)[both]))
    passed = np.sort(passed, 1)
    whole &= ~((passed[:, 1:] == passed[:, :-1]) & (passed[:, 1:] >= 0)).any(1)
    rows = np.full((len(rack), both.shape[1]), some.nowhere)
    rows[np.flatnonzero(here)[whole]] = both[whole]
    return closed_up(rows, some.nowhere)


def _by_racks(
    offered: Callable[..., Offers], rack: np.ndarray, to: np.ndarray
) -> tuple[Offers, np.ndarray]:
    """What is offered between the racks of pairs, each two racks asked once, and which of the
    offers are each pair's.
    """
    keys, key = numbered(rack << 32 | to)
    return offered(keys >> 32, keys & 0xFFFFFFFF), key


def _hashed_paths(some: Bundles, rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """One of the fastest light paths of each bundle of rows, by the hash of the pair."""
    width, arcs = np.append(some.equal, 1).astype(np.uint64), np.empty_like(rows)
    for hop, bundle in enumerate(rows.T):
        arcs[:, hop] = some.first[bundle] + (_hashed(codes, 100 + hop) % width[bundle]).astype(
            np.int64
        )
    return np.append(some.path, -1)[arcs]


def _hashed(codes: np.ndarray, salt: int) -> np.ndarray:
    return mixed(mixed(codes.astype(np.uint64)) ^ np.uint64(salt))


def _placed(choices: Choices, sent: Sent, rack: np.ndarray, to: np.ndarray) -> np.ndarray:
    """placed: see `placing`.

    A cable that needs no longer than the busiest network card of its kind holds nobody up.
    """
    c = choices.ways.cabling
    nic = c.rate[c.host_link]
    kinds = _lumped(sent).kinds
    cards = np.maximum(*(kinds.busiest(ends, nic) for ends in (sent.src, sent.dst)))
    return Placer(choices, kinds, rack, to).run(cards)


def _lumped(sent: Sent) -> Sent:
    """What is sent, as one kind where pairs send in too many combinations of kinds to look at each,
    as those of hundreds of coflows do.
    """
    if len(sent.bytes) <= MOST_KINDS:
        return sent
    combined = np.unique(np.packbits(sent.bytes > 0, axis=0), axis=1).shape[1]
    return sent if combined <= MOST_COMBINED else replace(sent, bytes=sent.bytes.sum(0)[None])


class Chooser(Protocol):
    """Which way each pair of hosts takes: a function, which `routings` of a FILE.py holds by name.

        def mine(choices: Choices, sent: Sent, rack: np.ndarray, to: np.ndarray) -> np.ndarray: ...

        routings = {"mine": mine}            # --routing FILE.py:mine

    Pair i goes from a host of rack[i] to one of to[i] (numbers); sent.codes[i] names the two hosts,
    for a hash. What they send is known to `placed` alone: sent.bytes are 0 elsewhere. `choices`
    offers the ways as rows of bundles (`choices.Offers`: cheapest, direct, every). The answer,
    int64[pairs, longest], has a row of light paths a pair (`choices.bundles.path`), -1 beyond the
    last. It is a pure function: simulator and switches ask it apart.
    """

    def __call__(
        self, choices: Choices, sent: Sent, rack: np.ndarray, to: np.ndarray, /
    ) -> np.ndarray: ...


CHOOSERS: dict[str, Chooser] = {"wcmp": _weighted, "valiant": _two_hops, "placed": _placed}


def _from_file(
    scheme: str, choices: Choices, sent: Sent, rack: np.ndarray, to: np.ndarray
) -> np.ndarray:
    """What a stranger's chooser answers, when every row is a way without a loop."""
    paths = called(scheme, "routings", np.ndarray, choices, sent, rack, to)
    example = KINDS["routings"].example
    where = place_of(file_of(scheme), entry(scheme, "routings"))
    if paths.ndim != 2 or len(paths) != len(rack) or not np.issubdtype(paths.dtype, np.integer):
        wanted = f"whole numbers of shape ({len(rack)}, longest)"
        raise RFabricError(
            f"{where}: returned {paths.dtype} of shape {paths.shape}, not {wanted}; see {example}"
        )
    wrong = np.flatnonzero(~_leads(choices, paths, rack, to))
    if len(wrong):
        i = int(wrong[0])
        raise RFabricError(
            f"{where}: row {i}, {paths[i].tolist()}, is no path from rack {rack[i]} to rack "
            f"{to[i]} (numbers) that passes no switch twice; see {example}"
        )
    return paths


def _leads(choices: Choices, paths: np.ndarray, rack: np.ndarray, to: np.ndarray) -> np.ndarray:
    """bool[pairs]: whether each row leads from rack to rack, and nowhere twice."""
    c, lit = choices.ways.cabling, choices.ways.lights
    at = c.rack_row[rack]
    good, passed, over = np.ones(len(paths), bool), [at], np.zeros(len(paths), bool)
    for path in paths.T:
        over |= path == -1
        good &= (path >= -1) & (path < len(lit)) & (over == (path == -1))
        here = np.where(good & ~over, path, 0)
        good &= over | (c.row[c.node[lit.out[here]]] == at)
        at = np.where(over, at, c.row[c.node[lit.into[here]]])
        good &= at >= 0  # hosts, which have no row, pass nothing on
        passed.append(np.where(over, -1 - len(passed), at))
    rows = np.sort(np.column_stack(passed), axis=1)
    return good & (at == c.rack_row[to]) & (rows[:, 1:] != rows[:, :-1]).all(1)

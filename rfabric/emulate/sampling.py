"""Loops of which a share goes out: which, and what the seconds of the rows sent say of all
repetitions.

What a sample took stands for all repetitions, so nothing else may change meanwhile. A loop that
meets others on a cable goes out in full:

    loop     ########........................    a sample, and the rest of its repetitions
    another      ~~~~                            held up the sample, not the rest
    another                  ~~~~                meets nobody: there are no packets to meet
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np

from ..fabric import Fabric
from ..fabric.cabling import cabling_of, host_numbers
from ..optics import Circuits
from ..report.result import Result
from ..trace import Trace, routing_of
from ..trace.packets import PAYLOAD
from ..trace.pairs import Pairs, PairWays
from ..units import transfer_seconds

# of a loop: what is done before the last of its sample must not be over in the whole loop by then
MOST_SAMPLED = 0.5
# of the time of a loop: it does not meet what crosses a cable with it for less, at its beginning
# or end
TOUCH = 0.01


def loop_seconds(trace: Trace, fabric: Fabric) -> np.ndarray:
    """float64[loops]: seconds that the busiest NIC needs for all repetitions of each loop that
    `trace` plays.
    """
    rows = np.flatnonzero(trace.loop_of >= 0)
    host = host_numbers(fabric, trace.hosts)
    nic = cabling_of(fabric).rate[cabling_of(fabric).host_link[host]]
    loops, hosts = len(trace.looped.loops), len(trace.hosts)
    cards = (
        np.bincount(
            trace.loop_of[rows] * hosts + ends[rows], trace.size[rows], minlength=loops * hosts
        ).reshape(loops, hosts)
        for ends in (trace.src, trace.dst)
    )
    return np.maximum(*(transfer_seconds(load, nic).max(axis=1, initial=0.0) for load in cards))


def shares(trace: Trace, fabric: Fabric, sample: float, whole: Collection[int] = ()) -> np.ndarray:
    """float64[rows]: the share of each row's bytes that is sent. Of each loop `sample` s, in whole
    repetitions, at least one.

    A loop is sent in full where that would be more than MOST_SAMPLED of it, and those of `whole`
    are (see `meeting`).
    """
    share, looped = np.ones(len(trace)), np.flatnonzero(trace.loop_of >= 0)
    repeat = np.array([loop.repeat for loop in trace.looped.loops])
    if len(looped):
        part = np.minimum(sample / np.maximum(loop_seconds(trace, fabric), 1e-12), 1.0)
        part = np.maximum(np.round(repeat * part), 1) / repeat
        part[sorted(whole)] = 1.0
        share[looped] = np.where(part > MOST_SAMPLED, 1.0, part)[trace.loop_of[looped]]
    return share


def what_was_sent(trace: Trace, share: np.ndarray) -> list[str]:
    """A note where of some rows less than all was sent; share: float64[rows] of their bytes."""
    if not (left := share < 1).any():
        return []
    sent = (trace.size * share)[left].sum() / trace.size[left].sum()
    return [
        f"of repeated collectives {sent:.1%} of the bytes were sent; their seconds stand for all "
        "repetitions"
    ]


def meeting(expected: Result) -> frozenset[int]:
    """The loops of a simulation that meet others on a cable, by number."""
    if expected not in _MEETING:
        _MEETING[expected] = _meeting(expected) if expected.trace.looped.loops else frozenset()
    return _MEETING[expected]


_MEETING: WeakKeyDictionary[Result, frozenset[int]] = WeakKeyDictionary()


def _meeting(expected: Result) -> frozenset[int]:
    trace = expected.trace
    loops = len(trace.looped.loops)
    link, row, begin, end = map(np.concatenate, zip(*_crossings(expected), strict=True))
    # a row of no loop is one of its own
    of = np.where(trace.loop_of >= 0, trace.loop_of, loops + np.arange(len(trace)))[row]
    order = np.lexsort((of, link))
    link, of, begin, end = link[order], of[order], begin[order], end[order]
    first = np.flatnonzero((np.diff(link, prepend=-1) != 0) | (np.diff(of, prepend=-1) != 0))
    link, of = link[first], of[first]
    spans = np.minimum.reduceat(begin, first), np.maximum.reduceat(end, first)
    met = of[_overlaps(link, *spans)]
    return frozenset(met[met < loops].tolist())


def _crossings(expected: Result) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Directed cables, the rows that cross them, from when and till when (s), by circuits."""
    trace, fabric = expected.trace, expected.fabric
    sends, routing = np.flatnonzero(trace.size > 0), routing_of(expected.routing, fabric, trace)
    pairs, epochs = Pairs(fabric, trace, routing), expected.epochs or ((0.0, Circuits()),)
    ends = [*(at for at, _ in epochs[1:]), np.inf]
    for (begin, circuits), end in zip(epochs, ends, strict=True):
        rows = sends[(expected.start[sends] < end) & (expected.finish[sends] > begin)]
        offsets, links = PairWays(fabric, pairs, circuits, routing).of(rows)
        row = np.repeat(rows, np.diff(offsets))
        since, until = np.maximum(expected.start, begin), np.minimum(expected.finish, end)
        yield links, row, since[row], until[row]


def _overlaps(link: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Which of these spans (s) another of the same link overlaps, by more than TOUCH of them."""
    order = np.lexsort((begin, link))
    link, begin, end = link[order], begin[order], end[order]
    touch = TOUCH * (end - begin)
    same = np.diff(link) == 0
    later = np.append(same & (begin[1:] < (end - touch)[:-1]), False)
    # the latest end so far; those of a link lie above all of the links before
    shift = link * (end.max(initial=0.0) + 1.0)
    latest = np.maximum.accumulate(end + shift)[:-1] - shift[1:]
    earlier = np.append(False, same & (latest > (begin + touch)[1:]))
    overlaps = np.zeros(len(link), bool)
    overlaps[order] = later | earlier
    return overlaps


@dataclass
class Card:
    """What a network card received of a sample, in bytes.

    The first `early` of them came at `begun`, the last at `end` (s).
    """

    begun: float = np.inf
    early: int = 0
    bytes: int = 0
    end: float = 0.0

    @property
    def late(self) -> int:
        """Those that came from `begun` to `end`: of the first packets the last had just begun."""
        return self.bytes - self.early + min(self.early, PAYLOAD)

    def add(self, nbytes: int, begun: float, early: int, end: float) -> None:
        """A flow of `nbytes` is there: `early` bytes at `begun`, the last at `end` (s)."""
        if begun < self.begun:
            self.begun, self.early = begun, early
        self.bytes, self.end = self.bytes + nbytes, max(self.end, end)


@dataclass
class LoopSample:
    """Rows of one turn of a loop, of which a share goes out.

    Their seconds, waits for circuits taken off, stand for the rest.
    """

    rows: int
    share: float
    begin: float = np.inf
    arrived: list[tuple[int, float]] = field(default_factory=list)
    cards: dict[int, Card] = field(default_factory=lambda: defaultdict(Card))

    def seconds(self, blur: float = 0.0) -> float:
        """What the slowest card needs for its bytes, at its rate while they came.

        That leaves out how long packets are on their way: of the emulation's slow lines it is a
        good part of a short sample, and of all repetitions next to nothing. Cards less than `blur`
        s faster than the slowest are no different from it but for the turns of their packets: their
        mean counts.
        """
        each = np.array(
            [
                c.bytes * (c.end - c.begun) / c.late if c.bytes > c.early else c.end - self.begin
                for c in self.cards.values()
            ]
        )
        return float(each[each >= each.max() - blur].mean())

    def stood(self, seconds: float) -> None:
        """Its flows stood still for a rewire."""
        self.begin += seconds
        for card in self.cards.values():
            card.begun += seconds


def samples_of(trace: Trace, share: np.ndarray) -> dict[int, LoopSample]:
    """By row, the turn of a loop that each row sent in part belongs to.

    share: float64[rows], of its bytes.
    """
    rows = np.flatnonzero(share < 1)
    if not len(rows):
        return {}
    turn = trace.loop_of[rows].astype(np.int64) << 16 | trace.looped.turn[trace.origin.rows[rows]]
    samples = {}
    for together in (rows[turn == number].tolist() for number in np.unique(turn)):
        samples |= dict.fromkeys(together, LoopSample(len(together), float(share[together[0]])))
    return samples

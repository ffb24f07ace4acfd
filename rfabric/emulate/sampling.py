"""Loops of which a share goes out: what the seconds of the rows sent say of all repetitions."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from ..trace import Trace


@dataclass
class Card:
    """What a network card received of a sample, in bytes.

    The first `early` of them came at `begun`, the last at `end` (s).
    """

    begun: float = np.inf
    early: int = 0
    bytes: int = 0
    end: float = 0.0

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
        """What the slowest card needs for its bytes, at the rate from its first packet to its last.

        That leaves out how long packets are on their way: of the emulation's slow lines it is a
        good part of a short sample, and of all repetitions next to nothing. Cards less than `blur`
        s faster than the slowest are no different from it but for the turns of their packets: their
        mean counts.
        """
        each = np.array(
            [
                c.bytes * (c.end - c.begun) / (c.bytes - c.early)
                if c.bytes > c.early
                else c.end - self.begin
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

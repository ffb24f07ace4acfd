"""Patterns whose seconds are known: `SECONDS` of a card, by the sizes chosen here."""

from collections.abc import Callable, Sequence

import numpy as np

from ..trace import Trace, TraceBuilder, all_to_all, ring
from ..units import bytes_in

SECONDS = 0.1  # that the busiest card of a pattern is busy
RATE = 400e9  # bit/s of a card, on all fabrics of the self-test
FULL = bytes_in(RATE, SECONDS)
# times as long as the others, where flows are short ones: those that wait for each other, and those
# to all others at once, of which each has a small share of its card
LEVELS_LONGER, ALL_LONGER = 4, 24
# hosts: a datapath that two processors carry leaves each of the 65,280 flows of 256 hosts a handful
# of packets, which are in flight at once
TO_ALL, MOST_TO_ALL = "all-to-all", 64


def patterns(hosts: Sequence[str]) -> Trace:
    """The trace of all patterns, each after the one before; of more than MOST_TO_ALL hosts without
    the all-to-all.
    """
    made, last = TraceBuilder(hosts), ()
    for label in (label for label in PATTERNS if label != TO_ALL or len(hosts) <= MOST_TO_ALL):
        lay = PATTERNS[label]
        first = [made.compute(0, SECONDS / 10, after=last, phase="test", label="pause")]
        last = tuple(lay(made, len(hosts), first, label))
    return made.build()


def _one(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    return made.flows([0], [n - 1], FULL, after=after, phase="test", label=label)


def _incast(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    return made.flows(range(4), [n - 1] * 4, FULL / 4, after=after, phase="test", label=label)


def _pairs(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    """Three of one host and one of another into one card: a quarter each, not half a host."""
    ends = [0, 0, 0, 1], [n - 1] * 4
    return made.flows(*ends, FULL / 4, after=after, phase="test", label=label)


def _permutation(seed: int) -> Callable[..., list[int]]:
    def lay(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
        order = np.random.default_rng(seed).permutation(n)
        ends = order.tolist(), np.roll(order, 1).tolist()  # one circle: nobody sends to itself
        return made.flows(*ends, FULL, after=after, phase="test", label=label)

    return lay


def _ring(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    flows = ring("all-reduce", range(n), FULL * n / (2 * (n - 1)), 1)
    return made.flows(*flows, after=after, phase="test", label=label)


def _tree(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    """Up a binary tree and down again, a level at a time: a host's children are 2i+1 and 2i+2."""
    levels = [range(2**k - 1, min(2 ** (k + 1) - 1, n)) for k in range(n.bit_length())]
    levels = [level for level in levels[1:] if level]
    share, last = LEVELS_LONGER * FULL / (4 * len(levels)), list(after)
    for level, up in [(one, True) for one in levels[::-1]] + [(one, False) for one in levels]:
        ends = list(level), [(i - 1) // 2 for i in level]
        last = made.flows(
            *(ends if up else ends[::-1]), share, after=last, phase="test", label=label
        )
    return last


def _exchange(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    flows = all_to_all(range(n), ALL_LONGER * FULL * n / (n - 1), 1)
    return made.flows(*flows, after=after, phase="test", label=label)


def _broadcast(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    """A quarter of the hosts send all they have to three others each."""
    src = [i for i in range(n // 4) for _ in range(3)]
    dst = range(n // 4, n // 4 + len(src))
    return made.flows(src, dst, FULL / 3, after=after, phase="test", label=label)


def _staggered(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    rows: list[int] = []
    for i in range(3):
        rows += made.flows(
            [4 * i % (n - 1)], [n - 1], FULL / 3,
            after=after, gap=i * SECONDS / 4, phase="test", label=label,
        )  # fmt: skip
    return rows


def _parking_lot(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    """Three into one card, a third each; one beside the first of them has what that leaves."""
    ends = [0, 1, 2, 0], [n - 1, n - 1, n - 1, n - 2]
    sizes = [FULL / 3] * 3 + [FULL * 2 / 3]
    return made.flows(*ends, sizes, after=after, phase="test", label=label)


PATTERNS: dict[str, Callable[..., list[int]]] = {
    "one flow": _one,
    "incast 4:1": _incast,
    "incast 3+1": _pairs,
    "permutation 1": _permutation(1),
    "permutation 2": _permutation(2),
    "ring all-reduce": _ring,
    "tree all-reduce": _tree,
    TO_ALL: _exchange,
    "weight broadcast": _broadcast,
    "staggered starts": _staggered,
    "parking lot": _parking_lot,
}


def closed() -> dict[str, float]:
    """s of each pattern where nothing but cards holds it up: on the Fat-Tree, but for permutations,
    trees and broadcasts, of whose flows two may meet on one way.
    """
    meet = "permutation 1", "permutation 2", "tree all-reduce", "weight broadcast"
    cards = dict.fromkeys((name for name in PATTERNS if name not in meet), SECONDS)
    return cards | {TO_ALL: ALL_LONGER * SECONDS}

"""How coarse packets make the times of single flows, before any is sent.

    a flow of 20 packets                     is true to one of them: 5 %
    beside 60 that something far away        those first send what they may have under way, two
    holds up, at the same card               packets each, while the fluid lets them trickle: with
                                             three flows of 36 packets that stay near, 110 %

Of the self-test's flows with 64 hosts 74 in 22,082 were over 10 % and over twice that off. Counted
are windows of two packets, as cards of many flows have; a card of few gives each more. What others
do on cables further on is not counted (docs/packets.md).
"""

import numpy as np

from ..report.result import Result, Scale
from ..trace.packets import PAYLOAD
from .sampling import meeting, shares
from .windows import LEAST

COARSE = 0.1  # of a flow's time: more is worth a word
ALIKE = 0.9  # times the next faster rate, or more: neither is held up for the other


def grain(expected: Result, scale: Scale) -> np.ndarray:
    """float64[rows]: the share of its time that packets alone may make of a flow's error; nan where
    no flow is sent, or a sample stands for it.
    """
    trace = expected.trace
    share = shares(trace, expected.fabric, scale.sample, meeting(expected))
    rows = np.flatnonzero((trace.size > 0) & (share == 1.0))
    coarse = np.full(len(trace), np.nan)
    packets = np.maximum(trace.size[rows] * scale.bandwidth / PAYLOAD, 1e-9)
    seconds = np.maximum((expected.finish - expected.start)[rows], 1e-12)
    card = np.stack([trace.src[rows], np.round(expected.start[rows] * 1e6)])
    coarse[rows] = 1 / packets + _behind(packets / seconds, *card) / seconds
    return coarse


def _behind(rate: np.ndarray, card: np.ndarray, at: np.ndarray) -> np.ndarray:
    """float64[flows]: seconds for which a flow waits while slower ones, which begin `at` the same
    time at the same card, fill their windows.

    rate: packets/s of each. One of half the rate is ahead by half a window.
    """
    if not len(rate):
        return rate
    order = np.lexsort((-rate, at, card))
    rate, card, at = rate[order], card[order], at[order]
    new = (np.diff(card, prepend=-1) != 0) | (np.diff(at, prepend=-1) != 0)
    alike = new | (rate < ALIKE * np.roll(rate, 1))
    (first, end), (_, upto) = _runs(new), _runs(alike)  # upto: the flow and those no slower
    so_far = np.append(0.0, np.cumsum(rate))
    faster, slower = so_far[upto] - so_far[first], so_far[end] - so_far[upto]
    behind = np.empty(len(rate))
    behind[order] = LEAST * (end - upto - slower / rate) / faster
    return behind


def _runs(new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the run that each place is in begins, and where it ends."""
    bounds = np.append(np.flatnonzero(new), len(new))
    count = np.diff(bounds)
    return np.repeat(bounds[:-1], count), np.repeat(bounds[1:], count)


def few_packets(expected: Result, scale: Scale, resolution: float = 0.0) -> list[str]:
    """A note on the flows whose own times are COARSE, of phases longer than `resolution` (s)."""
    coarse, seconds = grain(expected, scale), expected.communication
    groups = expected.trace.communication().items()
    each = [(key[2] or key[1], coarse[rows]) for key, rows in groups if seconds[key] > resolution]
    each = [(name, own) for name, own in each if (own > COARSE).any()]
    if not each:
        return []
    every = np.concatenate([own for _, own in each])
    of = ", ".join(filter(None, dict(each)))  # a trace need not name its phases
    return [
        f"{expected.fabric.name}: {(every > COARSE).sum():,} of the {len(every):,} flows"
        f"{of and f' of {of}'} have few packets, or few beside those that others of their NIC have "
        f"under way: one by one they may be {np.nanmax(every):.0%} off; more packets, in a longer "
        "run (--patience), make it less"
    ]

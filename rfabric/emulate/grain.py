"""How coarse packets make the times of single flows, before any is sent.

    a flow of 20 packets                     is true to one of them: 5 %
    beside 60 that something further on      those first send what they may have under way, two
    holds up, on the same cable              packets each, while the fluid lets them trickle: with
                                             three flows of 36 packets that stay near, 110 %

Only flows that begin at one instant are compared. Where circuits change, nobody knows beforehand
which flows meet on which cable: those of one card are, but for flows that begin in the dark.
"""

import numpy as np

from ..fabric import Pair
from ..fabric.cabling import cabling_of
from ..report.result import Result, Scale
from ..routing.rows import begins, offsets_of, spread
from ..trace.packets import PAYLOAD
from .foreseen import ways
from .network import windows_of
from .sampling import meeting, shares
from .windows import window_of

COARSE = 0.1  # of a flow's time: more is worth a word
ALIKE = 0.9  # times the next faster rate, or more: neither is held up for the other


def grain(expected: Result, scale: Scale) -> np.ndarray:
    """float64[rows]: the share of its time that packets alone may make of a flow's error; nan where
    no flow is sent, or a sample stands for it.
    """
    trace = expected.trace
    share = shares(trace, expected.fabric, scale.sample, meeting(expected))
    rows = np.flatnonzero((trace.size > 0) & (share == 1.0) & np.isfinite(expected.finish))
    coarse = np.full(len(trace), np.nan)
    packets = np.maximum(trace.size[rows] * scale.bandwidth / PAYLOAD, 1e-9)
    seconds = np.maximum((expected.finish - expected.start)[rows], 1e-12)
    coarse[rows] = 1 / packets + _behind(expected, scale, rows, packets, seconds) / seconds
    return coarse


def _behind(
    expected: Result, scale: Scale, rows: np.ndarray, packets: np.ndarray, seconds: np.ndarray
) -> np.ndarray:
    """float64[rows]: seconds for which a flow waits, on the cable where that is longest, while
    slower ones, which begin at the same time and are held up further on, fill their windows. One of
    half the rate is ahead by half a window; and in turns of a packet by half the flow's packets, at
    the most.
    """
    if not len(rows):
        return seconds
    known, at = ways(expected), np.round(expected.start[rows] * 1e6)
    flow, place, cable = _crossed(expected, rows, known)
    rate = packets / np.maximum(seconds - _delays(expected, rows, flow, cable, known), 1e-12)
    order = np.lexsort((-rate[flow], at[flow], cable))
    flow, place, cable = flow[order], place[order], cable[order]
    rates, new = rate[flow], begins(cable, at[flow])
    first, end = _runs(new)  # of those that begin on this cable at this time, the fastest first
    _, upto = _runs(new | (rates < ALIKE * np.roll(rates, 1)))  # the flow and those no slower
    filled = np.minimum(_windows(expected, scale, rows, at, known), packets)[flow]
    if known is None:
        filled *= ~_dark(expected, rows)[flow]
    else:
        line = np.append(np.repeat(cabling_of(expected.fabric).rate, 2), np.inf)  # the last: no way
        full = _between(first, end, rates) / line[cable]
        filled *= place < _held(flow, place, np.where(upto == upto[first], full, 0.0))
    slower = _between(upto, end, filled) - _between(upto, end, filled * rates) / rates
    some = (filled > 0).astype(float)
    turns = _between(upto, end, some) - _between(upto, end, some * rates) / rates
    behind = np.zeros(len(rows))
    late = np.minimum(
        slower / _between(first, upto, rates), turns * packets[flow] / _between(first, end, rates)
    )
    np.maximum.at(behind, flow, late)
    return behind


def _dark(expected: Result, rows: np.ndarray) -> np.ndarray:
    """bool[rows]: which begin while a rewire is under way, and may have to wait for it."""
    start = expected.start[rows]
    dark = np.zeros(len(rows), bool)
    for rewire in expected.rewires:
        dark |= (rewire.requested <= start) & (start < rewire.usable)
    return dark


def _delays(
    expected: Result,
    rows: np.ndarray,
    flow: np.ndarray,
    cable: np.ndarray,
    known: dict[Pair, list[int]] | None,
) -> np.ndarray:
    """float64[rows]: s of their time that cables delay them, where ways are known."""
    if known is None:
        return np.zeros(len(rows))
    trace, each = expected.trace, np.append(cabling_of(expected.fabric).delay, 0.0)
    times = trace.origin.times[rows] if trace.origin else 1
    return np.bincount(flow, each[cable], minlength=len(rows)) * times


def _crossed(
    expected: Result, rows: np.ndarray, known: dict[Pair, list[int]] | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(flows, at which place of their way, directed cable), flow by flow; where ways are not known
    the card alone, by the number of the host.
    """
    trace = expected.trace
    if known is None:
        return np.arange(len(rows)), np.zeros(len(rows), int), trace.src[rows]
    number = {pair: i for i, pair in enumerate(known)}
    each = [number[trace.hosts[trace.src[r]], trace.hosts[trace.dst[r]]] for r in rows.tolist()]
    counts = np.array([len(way) for way in known.values()])
    places = np.concatenate([np.arange(count) for count in counts])
    cables, which = (
        np.concatenate(list(known.values())),
        spread(offsets_of(counts)[each], counts[each]),
    )
    return np.repeat(np.arange(len(rows)), counts[each]), places[which], cables[which]


def _windows(
    expected: Result,
    scale: Scale,
    rows: np.ndarray,
    at: np.ndarray,
    known: dict[Pair, list[int]] | None,
) -> np.ndarray:
    """Packets that each of `rows` may have under way as it starts."""
    trace = expected.trace
    most = windows_of(expected.fabric, scale.bandwidth / scale.dilation, known)
    _, card, together = np.unique(
        np.stack([trace.src[rows], at]), axis=1, return_inverse=True, return_counts=True
    )
    return window_of(
        1 / together[card.ravel()], np.array([most[h] for h in trace.hosts])[trace.src[rows]]
    )


def _held(flow: np.ndarray, place: np.ndarray, full: np.ndarray) -> np.ndarray:
    """The place at which the flow of each entry is held up: the last of those that are fullest."""
    order = np.lexsort((place, np.round(full / full.max(), 6), flow))  # but for rounding
    last = np.flatnonzero(np.diff(flow[order], append=-1))
    at = np.zeros(flow.max() + 1, int)
    at[flow[order][last]] = place[order][last]
    return at[flow]


def _between(first: np.ndarray, end: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The sum of values[first:end] of each."""
    so_far = np.append(0.0, np.cumsum(values))
    return so_far[end] - so_far[first]


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
    most = float(np.nanmax(every))
    of = ", ".join(filter(None, dict(each)))  # a trace need not name its phases
    return [
        f"{expected.fabric.name}: {(every > COARSE).sum():,} of the {len(every):,} flows"
        f"{of and f' of {of}'} have few packets, or few beside those that others on their way have "
        f"under way: one by one they may be {'over ' * (most > 1)}{min(most, 1):.0%} off; more "
        "packets, in a longer run (--patience), make it less"
    ]

"""How coarse packets make the times of single flows, before any is sent.

    a flow of 20 packets                     is true to one of them: 5 %
    beside 60 that something further on      those first send what they may have under way, two
    holds up, on the same cable              packets each, while the fluid lets them trickle: with
                                             three flows of 36 packets that stay near, 110 %

Only flows that begin at one instant are compared. Where circuits change, nobody knows beforehand
which flows meet on which cable: those of one card are, but for flows that begin in the dark.
"""

import numpy as np

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
    if len(rows):
        sent = _SentWhole(expected, scale, rows)
        coarse[rows] = 1 / sent.packets + _behind(sent) / sent.seconds
    return coarse


class _SentWhole:
    """The flows of `rows`, as they were simulated and will be sent.

    ways: the directed cables of each pair, None where circuits change; at: when each begins (us);
    packets, seconds: of each.
    """

    def __init__(self, expected: Result, scale: Scale, rows: np.ndarray):
        self.expected, self.trace, self.rows = expected, expected.trace, rows
        self.cabling, self.ways = cabling_of(expected.fabric), ways(expected)
        self.factor = scale.bandwidth / scale.dilation
        self.src, self.at = self.trace.src[rows], np.round(expected.start[rows] * 1e6)
        self.packets = np.maximum(self.trace.size[rows] * scale.bandwidth / PAYLOAD, 1e-9)
        self.seconds = np.maximum((expected.finish - expected.start)[rows], 1e-12)

    def crossed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(flows, at which place of their way, directed cable), flow by flow; where ways are not
        known the card alone, by the number of the host.
        """
        every = np.arange(len(self.rows))
        if self.ways is None:
            return every, np.zeros_like(every), self.src
        number, hosts = {pair: i for i, pair in enumerate(self.ways)}, self.trace.hosts
        ends = zip(self.src.tolist(), self.trace.dst[self.rows].tolist(), strict=True)
        pair = np.array([number[hosts[a], hosts[b]] for a, b in ends])
        cables = np.concatenate(list(self.ways.values()))
        first = offsets_of(np.array(list(map(len, self.ways.values()))))
        counts = np.diff(first)[pair]
        which = spread(first[pair], counts)
        return np.repeat(every, counts), which - np.repeat(first[pair], counts), cables[which]

    def windows(self) -> np.ndarray:
        """float64[rows]: packets that each may have under way as it starts."""
        most = windows_of(self.expected.fabric, self.factor, self.ways)
        _, card, together = np.unique(
            np.stack([self.src, self.at]), axis=1, return_inverse=True, return_counts=True
        )
        lone = np.array([most[host] for host in self.trace.hosts])[self.src]
        return np.minimum(window_of(1 / together[card.ravel()], lone), self.packets)

    def delays(self, flow: np.ndarray, cable: np.ndarray) -> np.ndarray:
        """float64[rows]: s that cables delay them, where ways are known."""
        if self.ways is None:
            return np.zeros(len(self.rows))
        each = np.append(self.cabling.delay, 0.0)  # the last: no way
        times = self.trace.origin.times[self.rows] if self.trace.origin else 1
        return np.bincount(flow, each[cable], minlength=len(self.rows)) * times

    def dark(self) -> np.ndarray:
        """bool[rows]: which begin while a rewire is under way, and may have to wait for it."""
        start = self.expected.start[self.rows]
        dark = np.zeros(len(self.rows), bool)
        for rewire in self.expected.rewires:
            dark |= (rewire.requested <= start) & (start < rewire.usable)
        return dark


def _behind(sent: _SentWhole) -> np.ndarray:
    """float64[rows]: seconds for which a flow waits, on the cable where that is longest, while
    slower ones, which begin at the same time and are held up further on, fill their windows. One of
    half the rate is ahead by half a window, at most by half as many packets as the flow has: they
    take turns.
    """
    flow, place, cable = sent.crossed()
    rate = sent.packets / np.maximum(sent.seconds - sent.delays(flow, cable), 1e-12)
    order = np.lexsort((-rate[flow], sent.at[flow], cable))
    flow, place, cable = flow[order], place[order], cable[order]
    rates, new = rate[flow], begins(cable, sent.at[flow])
    first, end = _runs(new)  # of those that begin on this cable at this time, the fastest first
    _, upto = _runs(new | (rates < ALIKE * np.roll(rates, 1)))  # the flow and those no slower
    filled = sent.windows()[flow]
    if sent.ways is None:
        filled *= ~sent.dark()[flow]
    else:
        line = np.append(np.repeat(sent.cabling.rate, 2), np.inf)  # the last: no way
        full = _between(first, end, rates) / line[cable]
        filled *= place < _held(flow, place, np.where(upto == upto[first], full, 0.0))

    def ahead(packets: np.ndarray) -> np.ndarray:
        return _between(upto, end, packets) - _between(upto, end, packets * rates) / rates

    waits = np.minimum(
        ahead(filled) / _between(first, upto, rates),
        ahead((filled > 0).astype(float)) * sent.packets[flow] / _between(first, end, rates),
    )
    behind = np.zeros(len(sent.rows))
    np.maximum.at(behind, flow, waits)
    return behind


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

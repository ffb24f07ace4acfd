"""What an emulation is told of the simulation of the same traffic: how to lay its cables out, and
which loops no sample will do for. What it measures owes nothing to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..fabric import Pair
from ..optics import Circuits
from ..report.result import Result
from ..trace import routing_of
from ..trace.pairs import Pairs, PairWays
from .sampling import meeting


@dataclass(frozen=True)
class SimulatedTraffic:
    """Of pairs of hosts that send: how many flows are `at_once` under way, at most, and the
    directed cables (2 x link, and 1 more from its end b) of their `ways`, None where circuits may
    change them. whole: loops that go out in full (`sampling.meeting`).
    """

    at_once: Mapping[Pair, int] = field(default_factory=dict)
    ways: Mapping[Pair, list[int]] | None = None
    whole: frozenset[int] = frozenset()

    def to_json(self) -> dict:
        """Plain values."""
        at_once, ways = (
            None if some is None else [[*pair, value] for pair, value in some.items()]
            for some in (self.at_once, self.ways)
        )
        return {"at_once": at_once, "ways": ways, "whole": sorted(self.whole)}

    @classmethod
    def from_json(cls, told: dict) -> "SimulatedTraffic":
        """The inverse of `to_json`."""
        at_once, ways = (
            None if some is None else {(src, dst): value for src, dst, value in some}
            for some in (told["at_once"], told["ways"])
        )
        return cls(at_once, ways, frozenset(told["whole"]))


def foreseen(expected: Result) -> SimulatedTraffic:
    """All of it, of a simulation."""
    return SimulatedTraffic(at_once(expected), ways(expected), meeting(expected))


def at_once(expected: Result) -> dict[Pair, int]:
    """How many flows of each two hosts are under way together, at most."""
    trace = expected.trace
    rows = np.flatnonzero(trace.size > 0)
    pairs = trace.src[rows] * len(trace.hosts) + trace.dst[rows]
    pairs, step = np.tile(pairs, 2), np.repeat([1, -1], len(rows))
    times = np.concatenate([expected.start[rows], expected.finish[rows]])
    order = np.lexsort((step, times, pairs))  # of one instant the ends come first
    under_way = np.cumsum(step[order])  # 0 again after the last of each pair
    first = np.flatnonzero(np.diff(pairs[order], prepend=-1))
    most = np.maximum.reduceat(under_way, first) if len(first) else under_way
    most = np.maximum(most, 1)  # so short that it begins and ends at one instant
    ends = (divmod(pair, len(trace.hosts)) for pair in pairs[order][first].tolist())
    return {
        (trace.hosts[src], trace.hosts[dst]): several
        for (src, dst), several in zip(ends, most.tolist(), strict=True)
    }


def ways(expected: Result) -> dict[Pair, list[int]] | None:
    """The directed cables that flows of each two hosts cross, where circuits stand still."""
    trace, fabric = expected.trace, expected.fabric
    if fabric.ocses and str(expected.policy) != "static":
        return None
    routing = routing_of(expected.routing, fabric, trace)
    pairs, circuits = Pairs(fabric, trace, routing), dict(expected.epochs).get(0.0, Circuits())
    rows = np.flatnonzero(trace.size > 0)
    rows = rows[np.unique(pairs.of[rows], return_index=True)[1]]
    offsets, links = PairWays(fabric, pairs, circuits, routing).of(rows)
    ends = ((trace.hosts[trace.src[row]], trace.hosts[trace.dst[row]]) for row in rows.tolist())
    cables = np.split(links, offsets[1:-1]) if len(rows) else []
    return {pair: some.tolist() for pair, some in zip(ends, cables, strict=True)}

"""A trace into the flow engine: its links, and its rows with the ways of the start."""

from collections.abc import Callable

import numpy as np

from ..fabric import Fabric
from ..fabric.cabling import cabling_of
from ..routing.rows import offsets_of
from ..trace import Trace
from ..trace.pairs import Pairs, PairWays
from .flows import Engine
from .packets import PacketEngine
from .parted import PartedEngine
from .transport import FLUID, TCP, messages


def idle_engine(
    fabric: Fabric, trace: Trace, pairs: Pairs, parted: bool, progress: Callable[..., None]
) -> Engine | PartedEngine:
    """The engine before the first row.

    Its last link has no capacity: flows stand on it while their way is dark.

    parted: rows send in parts, each on a way of its own.
    """
    rates = np.append(cabling_of(fabric).rate, 0.0)
    engine = Engine(rates, progress=progress)
    if not parted:
        return engine
    counts, sends = pairs.counts, trace.size > 0
    share = np.ones(counts.sum())
    share[np.repeat(sends, counts)] = pairs.share[pairs.parts(np.flatnonzero(sends))[1]]
    return PartedEngine(engine, counts, share)


def packet_engine(
    fabric: Fabric, share: float, transport: str, progress: Callable[..., None]
) -> Engine:
    """The same of packets, all bytes and rates `share` times as large."""
    rates = np.append(cabling_of(fabric).rate, 0.0)
    return Engine(rates, progress=progress, engine=PacketEngine(fabric, share, transport == TCP))


def load(
    engine: Engine | PartedEngine,
    fabric: Fabric,
    trace: Trace,
    pairs: Pairs,
    ways: PairWays,
    transport: str = FLUID,
) -> None:
    """Hand all rows to the engine; those that send go by `ways` and wait for their cables' delay,
    and for what `transport` adds.
    """
    sends = np.flatnonzero(trace.size > 0)
    ends, links = ways.of(sends)
    delay = np.append(cabling_of(fabric).delay, 0.0)
    row = np.repeat(np.arange(len(trace)), pairs.counts)  # of each part
    sent = trace.size[row] > 0
    counts, latency = np.zeros(len(row), np.int64), np.zeros(len(row))
    counts[sent] = np.diff(ends)
    latency[sent] = np.diff(np.concatenate(([0.0], np.cumsum(delay[links])))[ends])
    if transport != FLUID:
        latency[sent] += messages(fabric, trace, ways).beyond(transport)
    if trace.origin:  # every repetition has it, also of those that one row sends
        latency *= trace.origin.times[row]
    offsets, start = offsets_of(counts), trace.start.copy()
    del sends, ends, row, sent, counts  # the engine's own tables come on top
    alone = np.flatnonzero(np.diff(trace.after_offsets) == 0)
    start[alone] += trace.gap[alone]  # the engine counts a gap from what a row waits for
    engine.add(
        path_offsets=offsets,
        path_links=links,
        size=trace.size,
        start=start,
        after_offsets=trace.after_offsets,
        after=trace.after,
        gap=trace.gap,
        latency=latency,
    )

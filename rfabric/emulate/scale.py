"""How small and how slow an emulation must be for its host to carry it.

Three numbers decide: what the datapath moves (packet-hops a second, calibrated), what the trace asks for at its busiest
(byte-hops a second, from its simulation) and how long one is ready to wait.

    sample                                          of the repetitions of a loop, so many that time can be dilated at all
    rate factor = bandwidth_scale / time_dilation   so small that the busiest moment takes SHARE of the datapath
    time_dilation                                   as large as the patience allows: longer flows are truer flows
    bandwidth_scale = rate factor x time_dilation   bytes shrink with it, so times stay what they were, x dilation
"""

from collections.abc import Sequence

import numpy as np

from ..errors import RFabricError
from ..report.result import Result, Scale
from ..trace import Trace
from ..units import BITS_PER_BYTE, show_rate
from .network import MAX_RATE, MIN_RATE, MTU, PAYLOAD, fastest_line

SHARE = 0.3  # of the calibrated datapath at the busiest moment; the endpoints need the same cores
ACKS = 1.5  # packets per data packet: one acknowledgement for every two
PATIENCE = 25.0  # s of wall clock that the traffic of one fabric may take
MAX_DILATION = 64.0
LEAST_SAMPLE = 0.01  # a hundredth of the repetitions still goes out
DILATION = 10.0  # below it control and pipelines blur flows: repetitions are left out before time is dilated less
PIPELINE = 24  # packets of line rate: below it a flow's time is the pipeline's, not its bytes'


def choose_sample(expected: Sequence[Result], patience: float = PATIENCE) -> float:
    """The share of a loop's repetitions that is sent, for all runs of a comparison: all where patience allows DILATION."""
    wanted = []
    for result in expected:
        looped, others = _seconds_awake(result)
        wanted.append((patience / DILATION - others) / looped if looped else 1.0)
    return _two_digits(float(np.clip(min(wanted), LEAST_SAMPLE, 1.0)))


def choose_scale(
    expected: Sequence[Result], packet_hops: float, patience: float = PATIENCE, sample: float = 1.0
) -> Scale:
    """One scale for all runs of a comparison, from their simulations and the host's `packet_hops` (1/s).

    RFabricError when no scale fits: the cables would be too slow to shape.
    """
    busiest = max(_byte_hops(result) for result in expected)
    longest = max(sample * looped + others for looped, others in map(_seconds_awake, expected))
    rates = [link.rate for result in expected for link in result.fabric.links]
    _check_span(min(rates), max(rates))
    factor = min(SHARE * packet_hops / ACKS * PAYLOAD / busiest if busiest else np.inf, MAX_RATE / max(rates))
    if factor * min(rates) < MIN_RATE:
        raise RFabricError(
            f"this host moves {packet_hops:.3g} packet-hops/s; the slowest cable would be shaped to "
            f"{show_rate(factor * min(rates))}, the least is {show_rate(MIN_RATE)}: use a smaller fabric or trace"
        )
    dilation = float(np.clip(patience / longest if longest else 1.0, 1.0, MAX_DILATION))
    return Scale(bandwidth=_two_digits(factor * dilation), dilation=_two_digits(dilation), sample=sample)


def shares(trace: Trace, sample: float) -> np.ndarray:
    """float64[rows] of a folded trace: the share of each row's bytes that is sent, whole repetitions, one of a loop at least."""
    found = np.ones(len(trace))
    if trace.origin:
        repeat = np.array([loop.repeat for loop in trace.origin.looped.loops])
        loop = trace.loop_of
        found[loop >= 0] = (np.maximum(np.round(repeat * sample), 1) / repeat)[loop[loop >= 0]]
    return found


def _check_span(slowest: float, fastest: float) -> None:
    """All cables of a comparison are shaped by one factor: the slowest must not fall below what HTB shapes at any."""
    if slowest * MAX_RATE < fastest * MIN_RATE:
        raise RFabricError(
            f"cables from {show_rate(slowest)} to {show_rate(fastest)} cannot be shaped by one factor to between "
            f"{show_rate(MIN_RATE)} and {show_rate(MAX_RATE)}: the fastest may be {MAX_RATE / MIN_RATE:g} times the slowest"
        )


def resolution(result: Result) -> float:
    """The shortest communication (s, virtual) that an emulation at the result's scale resolves: its pipeline of packets."""
    fastest = fastest_line(result.fabric) * result.scale.bandwidth / result.scale.dilation
    return PIPELINE * MTU * BITS_PER_BYTE / fastest / result.scale.dilation


def _byte_hops(result: Result) -> float:
    """Bytes a second times cables crossed, at the busiest communication phase."""
    trace = result.trace
    hops = result.link_bytes.sum() / max(trace.size.sum(), 1)
    loads = [
        trace.size[rows].sum() * hops / seconds
        for key, rows in trace.communication().items()
        if (seconds := result.communication[key])
    ]
    return float(max(loads, default=0.0))


def _seconds_awake(result: Result) -> tuple[float, float]:
    """What the clock cannot skip: flows of loops; other flows and the dark time of rewires, a second where NICs come up anew."""
    looped = result.trace.loop_of >= 0
    groups, seconds = result.trace.communication(), result.communication
    repeated = sum(seconds[key] for key, rows in groups.items() if looped[rows].any())
    return repeated, sum(seconds.values()) - repeated + result.dark_seconds


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")

"""How small and how slow an emulation must be for its host to carry it.

Three numbers decide: what the datapath can move (packet-hops a second, calibrated), what the trace
needs at its busiest (byte-hops a second, from its simulation) and how long the user will wait.

    sample                                         seconds of each loop that are sent: few enough
                                                   that time can be dilated at all
    rate factor = bandwidth_scale / time_dilation  small enough that the busiest moment takes only
                                                   SHARE of the datapath
    time_dilation                                  as large as the patience allows, because longer
                                                   flows are more accurate; larger where many flows
                                                   begin at one instant, because each takes a moment
                                                   to start; and where a sample has few packets
    bandwidth_scale = rate factor x time_dilation  bytes shrink with it, so times stay what they
                                                   were, x dilation
"""

from collections.abc import Sequence

import numpy as np

from ..control.schema import LIMITS, MAX_HOLD_S
from ..errors import RFabricError
from ..fabric import Fabric
from ..report.result import Result, Scale
from ..trace.packets import MTU, PAYLOAD, WAY
from ..units import show_rate, transfer_seconds
from .guard import LATE_LIMIT, LATE_SHARE
from .network import MAX_RATE, MIN_RATE, fastest_line
from .sampling import MOST_SAMPLED, loop_seconds, meeting, shares

SHARE = 0.3  # of the calibrated datapath at the busiest moment; the endpoints need the same cores
ACKS = 1.5  # packets per data packet: one acknowledgement for every two
PATIENCE = 40.0  # s of wall clock that the traffic of one fabric may take
MAX_DILATION = 64.0
# s of wall clock that packets should move for, at least: time dilates more for a short trace, as
# long as no byte of it must be sent twice and no rewire is dark for longer. An incast of 0.24 ms
# took 25 % longer in 15 ms.
LEAST_MOVING_S = 2.0
LEAST_SAMPLE = 0.02  # s of a loop at least
# that a NIC sends of a sample at its line's rate; time is dilated more where a user chose a shorter
# one. With 24 an all-to-all over the six cables of a Fat-Tree's paths took 10 % longer
LEAST_PACKETS = 64
# below it control and pipelines blur flows, so repetitions are left out before time dilates less
DILATION = 16.0
# s of wall clock to start a flow. Of 4,032 at one instant the last was 80 ms late on a quiet host;
# three times as much, for slower ones, and for what else a host does meanwhile
START_S = 6e-5
SETUP_S = 25.0  # s of wall clock around the packets: to bring up, connect and warm 64 hosts
SLOWER = 2**0.5  # times fewer bytes and longer seconds, where a host did not keep pace
PIPELINE = 24  # packets at line rate: below it the pipeline, not the bytes, makes a flow's time


def choose_sample(
    expected: Sequence[Result], patience: float = PATIENCE, least: float = LEAST_SAMPLE
) -> float:
    """Seconds of each loop to send, for all runs of a comparison: what patience allows at DILATION,
    `least` at least; inf: all of it.
    """
    awake = patience / DILATION
    return min((_sample(result, awake, least) for result in expected), default=np.inf)


def least_sample(expected: Sequence[Result], packet_hops: float, most: float = np.inf) -> float:
    """The seconds of a loop in which a NIC sends LEAST_PACKETS at DILATION. With less, time would
    be dilated more, for all that is no loop too, and the run would take longer.

    packet_hops, most, RFabricError: as of `choose_scale`.
    """
    packet = _packet_seconds(expected, _rate_factor(expected, packet_hops, most))
    return float(np.ceil(max(LEAST_SAMPLE, LEAST_PACKETS * packet / DILATION) * 1e3) / 1e3)


def _sample(result: Result, awake: float, least: float) -> float:
    """The most seconds of each loop with which everything sent takes `awake` s; `least` at
    least.
    """
    whole, loops = _loops(result)
    left = awake - _seconds_awake(result) - whole
    if not len(loops) or loops.sum() <= left:  # only loops are sent in part
        return np.inf
    low, high = least, float(loops.max())
    while high - low > 0.01 * low:  # what is sent grows with the sample, in leaps
        middle = (low + high) / 2
        low, high = (middle, high) if _seconds_sent(loops, middle) <= left else (low, middle)
    return float(np.floor(low * 1e3 + 1e-6) / 1e3)  # not one less of what is whole


def choose_scale(
    expected: Sequence[Result],
    packet_hops: float,
    patience: float = PATIENCE,
    sample: float = np.inf,
    most: float = np.inf,
) -> Scale:
    """One scale for all runs of a comparison, from their simulations and the host's `packet_hops`
    (1/s). `most`: an upper limit on the factor of rates, set by something else.

    RFabricError when no scale fits, because cables would be too slow to shape.
    """
    factor = _rate_factor(expected, packet_hops, most)
    longest = max(_seconds_moving(result, sample) for result in expected)
    wanted = max(
        patience / longest if longest else 1.0,
        LEAST_PACKETS * _packet_seconds(expected, factor) / sample,
        *(_least_dilation(r, sample) for r in expected),
    )
    dark = max(result.fabric.reconfig_delay for result in expected)
    enough = min(LEAST_MOVING_S / max(longest, dark), 1 / factor) if longest else 1.0
    dilation = float(np.clip(wanted, 1.0, max(MAX_DILATION, enough)))
    bandwidth, dilation = _two_digits(factor * dilation), _two_digits(dilation)
    rates = [link.rate for result in expected for link in result.fabric.links]
    if bandwidth / dilation * max(rates) > MAX_RATE:  # by what two digits leave out
        bandwidth = _two_digits(0.95 * MAX_RATE / max(rates) * dilation)
    return Scale(bandwidth, dilation, sample)


def _rate_factor(expected: Sequence[Result], packet_hops: float, most: float) -> float:
    """Bandwidth scale / time dilation: as large as the host carries all of `expected`."""
    busiest = max(_byte_hops(result) for result in expected)
    rates = [link.rate for result in expected for link in result.fabric.links]
    slowest = min(
        (rate for result in expected for rate in loaded_rates(result)), default=max(rates)
    )
    _check_span(slowest, max(rates))
    factor = min(
        SHARE * packet_hops / ACKS * PAYLOAD / busiest if busiest else np.inf,
        MAX_RATE / max(rates),
        most,
    )
    if factor * slowest < MIN_RATE:
        raise RFabricError(
            f"this host moves {packet_hops:.3g} packet-hops/s; the slowest cable that carries "
            f"traffic would be shaped to {show_rate(factor * slowest)}, the least is "
            f"{show_rate(MIN_RATE)}: use a smaller fabric or trace"
        )
    return factor


def _packet_seconds(expected: Sequence[Result], factor: float) -> float:
    """s of wall clock that a packet is on the fastest line, of the fabric where that is slowest."""
    return max(transfer_seconds(MTU, fastest_line(r.fabric) * factor) for r in expected)


def check_rates_of(result: Result, scale: Scale) -> None:
    """RFabricError if a cable with traffic would get a lower rate than HTB shapes accurately."""
    rates = loaded_rates(result)
    slowest = rates.min(initial=np.inf) * scale.bandwidth / scale.dilation
    if slowest < MIN_RATE:
        raise RFabricError(
            f"{result.fabric.name}: at bandwidth x {scale.bandwidth:.3g} and time x "
            f"{scale.dilation:.3g} a cable that carries traffic is shaped to {show_rate(slowest)}, "
            f"the least is {show_rate(MIN_RATE)}: bandwidth x "
            f"{MIN_RATE / rates.min() * scale.dilation:.3g} would do"
        )


def loaded_rates(result: Result) -> np.ndarray:
    """bit/s of the cables that carried anything in a simulation, in either direction."""
    carries = result.link_bytes.reshape(-1, 2).any(axis=1)
    return np.array([link.rate for link in result.fabric.links])[carries]


def slower(scale: Scale) -> Scale:
    """Half the rates: fewer packets, and longer for each."""
    bandwidth = _two_digits(scale.bandwidth / SLOWER)
    return Scale(bandwidth, _two_digits(scale.dilation * SLOWER), scale.sample)


def run_seconds(result: Result, scale: Scale) -> float:
    """About how many s of wall clock it takes to emulate what `result` simulated."""
    return SETUP_S + _seconds_moving(result, scale.sample) * scale.dilation


def _seconds_moving(result: Result, sample: float) -> float:
    """Seconds of the run's clock with packets under way, or in the dark."""
    whole, loops = _loops(result)
    return _seconds_awake(result) + whole + _seconds_sent(loops, sample)


def _loops(result: Result) -> tuple[float, np.ndarray]:
    """Seconds of the loops that are sent in full because they meet others, of all together; and of
    each of the rest.
    """
    seconds = loop_seconds(result.trace, result.fabric)
    meet = np.isin(np.arange(len(seconds)), list(meeting(result)))
    return float(seconds[meet].sum()), seconds[~meet]


def _least_dilation(result: Result, sample: float) -> float:
    """The least dilation with which flows that begin at one instant are all under way within
    LATE_SHARE of the time of the shortest. Where they take no more than LATE_LIMIT, any will do.
    """
    rows = np.flatnonzero(result.trace.size > 0)
    part = shares(result.trace, result.fabric, sample, meeting(result))[rows]
    took = (result.finish - result.start)[rows] * part
    _, group, count = np.unique(
        result.start[rows].round(6), return_inverse=True, return_counts=True
    )
    shortest = np.full(len(count), np.inf)
    np.minimum.at(shortest, group, took)
    late = count * START_S
    needed = np.where(late > LATE_LIMIT, late / (LATE_SHARE * shortest), 0.0)
    return float(needed.max(initial=0.0))


def _seconds_sent(loops: np.ndarray, sample: float) -> float:
    """Seconds that are sent of loops of these lengths (s)."""
    return float(np.where(loops * MOST_SAMPLED < sample, loops, sample).sum())


def _check_span(slowest: float, fastest: float) -> None:
    """RFabricError if one factor cannot shape all cables of a comparison: the slowest must not fall
    below what HTB can shape.
    """
    if slowest * MAX_RATE < fastest * MIN_RATE:
        raise RFabricError(
            f"cables from {show_rate(slowest)} to {show_rate(fastest)} cannot be shaped by one "
            f"factor to between {show_rate(MIN_RATE)} and {show_rate(MAX_RATE)}: the fastest "
            f"may be {MAX_RATE / MIN_RATE:g} times the slowest"
        )


def resolution(result: Result) -> float:
    """The shortest communication (virtual s) that an emulation at the result's scale can resolve:
    its pipeline of packets.
    """
    return PIPELINE * transfer_seconds(MTU, fastest_line(result.fabric) * result.scale.bandwidth)


def blur(fabric: Fabric, scale: Scale) -> float:
    """Virtual seconds that a packet takes through WAY cables, one after the other. Two ends that
    are closer cannot be told apart.
    """
    return WAY * transfer_seconds(MTU, fastest_line(fabric) * scale.bandwidth)


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


def _seconds_awake(result: Result) -> float:
    """Seconds besides loops that the clock cannot skip: other flows, and the dark time of rewires
    (a second where NICs restart).
    """
    looped, groups = result.trace.loop_of >= 0, result.trace.communication()
    alone = (
        seconds for key, seconds in result.communication.items() if not looped[groups[key]].any()
    )
    return sum(alone) + result.dark_seconds


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


def refuse_long_dark(fabric: Fabric, policy: str, dilation: float) -> None:
    """RFabricError for what the controller would refuse once all is built."""
    if not fabric.ocses:
        return
    least, dark = LIMITS["time_dilation"].least, dilation * fabric.reconfig_delay
    if dilation < least and policy != "static":
        raise RFabricError(
            f"time dilation {dilation:g}: circuits are rewired no faster than in real time; use "
            f"{least:g} or more, or policy static"
        )
    if not dark <= MAX_HOLD_S:
        raise RFabricError(
            f"an OCS delay of {fabric.reconfig_delay:g} s, {dilation:g} times as long here, keeps "
            f"circuits dark for {dark:g} s; the limit is {MAX_HOLD_S:g} s: use a shorter delay, or "
            "a lower --time-dilation"
        )

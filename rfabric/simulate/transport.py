"""What a message takes beyond a fluid's seconds: packets that go cable by cable, and what TCP does
before it knows the way. The flow engine adds it to the latency of each row, where one asks for it.

    fluid   nothing: the bytes at their fair rate, the last of them over the cables' delay
    rdma    + each cable after the first sends the last packet once more (store and forward)
    tcp     + the handshake of a connection of its own, and the pauses of slow start

                  S / r       relay, cable by cable          handshake   slow start
    seconds  =  fluid's  +  sum of p / R - p / r  (rdma)  +     D     +  sum of (T - 2^i W / r)

with p the bytes of a packet, at most PAYLOAD, R the rate of each cable and r the least of them, D
the delay of the way there and back, T = D + sum of p / R until the first packet is acknowledged,
and W the first window. Round i pauses where its window is sent before T is over and bytes are left;
each window is twice the one before.

Sources: RFC 6928 (W is ten segments), RFC 5681 section 3.1 (slow start: a segment more for each
that is acknowledged; here each is, without delay), RFC 9293 (data after one round trip). A queue
pair of RDMA sends at line rate as soon as it is asked; its connection stands since the job began
(InfiniBand Architecture Specification 1, chapter 9; DCQCN, SIGCOMM 2015, section 3: no slow start).
TCP on a connection that stands, its window open, is `rdma` here.

Valid where nothing is lost and a message has the way to itself: beside others on its cables the
pauses of slow start are filled by them, and what is added is too much by these. Not in it:
seconds of NICs, drivers and kernels; queues that overflow, and so every incast into shallow
buffers; the steps of a ring collective, which are one row; switches that cut through, which relay
faster. Ways are those of the start, as for the cables' delay; a row without one has no addition.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..errors import RFabricError
from ..fabric import Fabric
from ..fabric.cabling import cabling_of
from ..report.result import Result
from ..routing.rows import offsets_of, spread
from ..trace import PhaseKey, Trace
from ..trace.packets import FIRST_SEGMENTS, PAYLOAD, UNSCALED_WINDOW
from ..trace.pairs import PairWays
from ..units import show_time, transfer_seconds

FLUID, RDMA, TCP = "fluid", "rdma", "tcp"
TRANSPORTS = {
    FLUID: "nothing beyond bytes and the cables' delay",
    RDMA: "packets go cable by cable; no handshake, no slow start",
    TCP: "packets go cable by cable; each flow shakes hands, and starts slowly",
}
MATTERS = 0.01  # of a phase, and of a message: less is not worth a word


def known_transport(name: str) -> str:
    """`name`, when it is one of TRANSPORTS; else an RFabricError."""
    if name not in TRANSPORTS:
        raise RFabricError(f"no transport {name!r}; there are {', '.join(TRANSPORTS)}")
    return name


@dataclass(frozen=True, eq=False)
class Messages:
    """Messages and the cables of their ways: float64[n] each.

    size: bytes; delay: s of all cables, one way; relay: s of one packet over all cables, one after
    the other; rate: bit/s of the slowest cable.
    """

    size: np.ndarray
    delay: np.ndarray
    relay: np.ndarray
    rate: np.ndarray

    @property
    def seconds(self) -> np.ndarray:
        """Of a fluid that is alone."""
        return transfer_seconds(self.size, self.rate) + self.delay

    def beyond(self, transport: str) -> np.ndarray:
        """Seconds that each takes beyond a fluid's."""
        if transport == FLUID:
            return np.zeros(len(self.size))
        packet = np.minimum(self.size, PAYLOAD)
        relayed = self.relay - transfer_seconds(packet, self.rate)
        return relayed if transport == RDMA else relayed + 2 * self.delay + self._pauses()

    def _pauses(self) -> np.ndarray:
        """Seconds in which slow start waits for acknowledgements."""
        answered, pauses, sent = 2 * self.delay + self.relay, np.zeros(len(self.size)), 0
        window = FIRST_SEGMENTS * PAYLOAD
        flight = min(window, UNSCALED_WINDOW)
        while True:
            sent += flight
            idle = answered - transfer_seconds(flight, self.rate)
            waits = (self.size > sent) & (idle > 0)
            if not waits.any():
                return pauses
            pauses[waits] += idle[waits]
            window += flight  # as much more as was acknowledged
            flight = window


def messages(fabric: Fabric, trace: Trace, ways: PairWays) -> Messages:
    """What rows with bytes send, part by part, each part with the size of its row: a message that
    is sprayed over several ways has one window. Of repeated rows one repetition.
    """
    rows = np.flatnonzero(trace.size > 0)
    size = trace.size[rows] / (trace.origin.times[rows] if trace.origin else 1)
    size = np.repeat(size, ways.pairs.parts(rows)[0])
    delay = np.append(cabling_of(fabric).delay, 0.0)
    # the link without capacity stands for no way at all
    rate = np.append(cabling_of(fabric).rate, np.inf)
    relay = np.minimum(size, PAYLOAD) * ways.sums(rows, transfer_seconds(1, rate))
    return Messages(size, ways.sums(rows, delay), relay, ways.least(rows, rate))


class TransportOutlook:
    """What transports could add to a fluid's result, known before it is played: by row, and on the
    longest chains of rows that wait for each other.
    """

    def __init__(self, fabric: Fabric, trace: Trace, ways: PairWays):
        self._trace, rows = trace, np.flatnonzero(trace.size > 0)
        self._sent, self._rows = messages(fabric, trace, ways), rows
        self._first = offsets_of(ways.pairs.parts(rows)[0])[:-1]

    def notes(self, result: Result) -> Iterator[str]:
        """For each kind of phase where a transport could matter: how many messages are small, and
        by how much at most the phase would be longer, in the step where that is most: by all that
        is added on its longest chain. Messages that come later may also meet others that they
        missed before, or miss some that they met: that is not in it.
        """
        if not len(self._rows):
            return
        tcp = self.longest(TCP)
        share = {p.key: tcp[p.key] / p.seconds for p in result.phases if p.seconds > 0}
        open_ = {key: share[key] for key in share if share[key] > MATTERS}
        if not open_:
            return
        rdma, small = self.longest(RDMA), self._small()
        for name in dict.fromkeys(key.phase for key in open_):
            steps = [key for key in open_ if key.phase == name]
            key = max(steps, key=open_.__getitem__)
            mine, seconds = self._trace.rows(key), tcp[key] / share[key]
            of = f"{name or 'flows'}/{key.step}"
            also = f" (and in {len(steps) - 1} other steps)" if len(steps) > 1 else ""
            yield (
                f"{result.fabric.name}: {of}{also}: {np.count_nonzero(small[mine]):,} of "
                f"{np.count_nonzero(self._trace.size[mine]):,} flows send messages so small that "
                f"what a fluid leaves out shows: at most {_share(rdma[key], seconds)} longer with "
                f"packets that go cable by cable (--transport rdma), {_share(tcp[key], seconds)} "
                "with a TCP connection for each (--transport tcp)"
            )

    def _small(self) -> np.ndarray:
        """Which rows TCP lets take MATTERS longer, alone: bool[n]."""
        added, alone = self._sent.beyond(TCP), self._sent.seconds
        small = np.zeros(len(self._trace), bool)
        small[self._rows] = np.logical_or.reduceat(added > MATTERS * alone, self._first)
        return small

    def longest(self, transport: str) -> dict[PhaseKey, float]:
        """Seconds that the rows of a phase's longest chain take beyond a fluid's."""
        added = np.zeros(len(self._trace))
        added[self._rows] = np.maximum.reduceat(self._sent.beyond(transport), self._first)
        if self._trace.origin:
            added *= self._trace.origin.times
        chains = longest_chains(self._trace, added)
        return {key: float(chains[rows].max()) for key, rows in self._trace.rows_by_phase.items()}


def _share(seconds: float, of: float) -> str:
    return f"{show_time(seconds)} ({seconds / of:.1%})"


def longest_chains(trace: Trace, spent: np.ndarray) -> np.ndarray:
    """float64[n]: of all chains of rows of one phase that end with a row, each waiting for the one
    before, the most that they spend.
    """
    phase = trace.step.astype(np.int64) * len(trace.phases) + trace.phase
    chain, counts = spent.copy(), np.diff(trace.after_offsets)
    for level in trace.levels[1:]:
        many = counts[level]
        waits = trace.after[spread(trace.after_offsets[level], many)]
        before = np.where(phase[waits] == np.repeat(phase[level], many), chain[waits], 0.0)
        chain[level] += np.maximum.reduceat(before, np.cumsum(many) - many)
    return chain

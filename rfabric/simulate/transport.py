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
from ..routing.rows import offsets_of
from ..trace import PhaseKey, Trace
from ..trace.packets import FIRST_SEGMENTS, PAYLOAD, UNSCALED_WINDOW
from ..trace.pairs import Pairs, PairWays
from ..units import show_time, transfer_seconds

FLUID, RDMA, TCP = "fluid", "rdma", "tcp"
TRANSPORTS = {
    FLUID: "nothing beyond bytes and the cables' delay",
    RDMA: "packets go cable by cable; no handshake, no slow start",
    TCP: "packets go cable by cable; each flow shakes hands, and starts slowly",
}
MATTERS = 0.01  # of a phase, and of a message: less is not worth a word
MOST_NOTES = 8  # kinds of phases that have a note each


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


@dataclass(frozen=True, eq=False)
class Cables:
    """The cables on the ways of pairs, part by part: float64[parts] each.

    delay: s of all, one way; byte: s of one over all, one after the other; rate: bit/s of the
    slowest.
    """

    delay: np.ndarray
    byte: np.ndarray
    rate: np.ndarray

    @classmethod
    def of(cls, fabric: Fabric, ways: PairWays) -> "Cables":
        """Those of `ways`."""
        delay = np.append(cabling_of(fabric).delay, 0.0)
        # the link without capacity stands for no way at all
        rate = np.append(cabling_of(fabric).rate, np.inf)
        return cls(ways.sums(delay), ways.sums(transfer_seconds(1, rate)), ways.least(rate))

    def messages(self, trace: Trace, pairs: Pairs) -> Messages:
        """What rows with bytes send, part by part, each part with the size of its row: a message
        that is sprayed over several ways has one window. Of repeated rows one repetition.
        """
        rows = np.flatnonzero(trace.size > 0)
        size = trace.size[rows] / (trace.origin.times[rows] if trace.origin else 1)
        counts, parts = pairs.parts(rows)
        size = np.repeat(size, counts)
        relay = np.minimum(size, PAYLOAD) * self.byte[parts]
        return Messages(size, self.delay[parts], relay, self.rate[parts])


def messages(fabric: Fabric, trace: Trace, ways: PairWays) -> Messages:
    """What rows with bytes send, part by part."""
    return Cables.of(fabric, ways).messages(trace, ways.pairs)


class TransportOutlook:
    """What transports could add to a fluid's result, by row, and on the longest chains of rows that
    wait for each other.
    """

    def __init__(self, fabric: Fabric, trace: Trace, ways: PairWays):
        self._trace, self._pairs, self._cables = trace, ways.pairs, Cables.of(fabric, ways)

    def notes(self, result: Result) -> Iterator[str]:
        """For each kind of phase where a transport could matter: how many messages are small, and
        by how much at most the phase would be longer, in the step where that is most: by all that
        is added on its longest chain. Messages that come later may also meet others that they
        missed before, or miss some that they met: that is not in it.
        """
        sent = self._cables.messages(self._trace, self._pairs)
        if not len(sent.size):
            return
        added = sent.beyond(TCP)
        tcp = self._longest(added)
        share = {p.key: tcp[p.key] / p.seconds for p in result.phases if p.seconds > 0}
        open_ = {key: share[key] for key in share if share[key] > MATTERS}
        if not open_:
            return
        rdma = self._longest(sent.beyond(RDMA))
        small = self._by_row(added > MATTERS * sent.seconds)  # they take so much longer, alone
        kinds = _by_kind(open_)
        for name, (key, steps) in kinds[:MOST_NOTES]:
            mine, seconds = self._trace.rows(key), tcp[key] / share[key]
            of = f"{name or 'flows'}/{key.step}"
            also = f" (and in {steps - 1} other steps)" if steps > 1 else ""
            yield (
                f"{result.fabric.name}: {of}{also}: {np.count_nonzero(small[mine]):,} of "
                f"{np.count_nonzero(self._trace.size[mine]):,} flows send messages so small that "
                f"what a fluid leaves out shows: at most {_share(rdma[key], seconds)} longer with "
                f"packets that go cable by cable (--transport rdma), {_share(tcp[key], seconds)} "
                "with a TCP connection for each (--transport tcp)"
            )
        if len(kinds) > MOST_NOTES:
            yield (
                f"{result.fabric.name}: {len(kinds) - MOST_NOTES:,} more kinds of phases send such "
                "small messages; those above would change most"
            )

    def _longest(self, added: np.ndarray) -> dict[PhaseKey, float]:
        """Seconds that are added (to each part) to the rows of a phase's longest chain."""
        by_row = self._by_row(added)
        if self._trace.origin:
            by_row *= self._trace.origin.times
        chains = self._trace.chains(by_row)
        return {key: float(chains[rows].max()) for key, rows in self._trace.rows_by_phase.items()}

    def _by_row(self, of_parts: np.ndarray) -> np.ndarray:
        """The most of all parts of each row; 0 of rows that send nothing."""
        rows = np.flatnonzero(self._trace.size > 0)
        first = offsets_of(self._pairs.parts(rows)[0])[:-1]
        by_row = np.zeros(len(self._trace), of_parts.dtype)
        by_row[rows] = np.maximum.reduceat(of_parts, first)
        return by_row


def _by_kind(share: dict[PhaseKey, float]) -> list[tuple[str, tuple[PhaseKey, int]]]:
    """(name, (the step with the largest share, how many steps there are)) of each kind of phase:
    those with the largest share first, where they are many; else as they come.
    """
    steps: dict[str, list[PhaseKey]] = {}
    for key in share:
        steps.setdefault(key.phase, []).append(key)
    kinds = [(n, (max(keys, key=share.__getitem__), len(keys))) for n, keys in steps.items()]
    if len(kinds) > MOST_NOTES:
        kinds.sort(key=lambda kind: -share[kind[1][0]])
    return kinds


def _share(seconds: float, of: float) -> str:
    return f"{show_time(seconds)} ({seconds / of:.1%})"

"""Did the host keep pace? Samples of the datapath's backlog, the processors, lost packets, late
starts; a verdict.

The user-space datapath polls its ports, so its CPU share says nothing: it is one core as soon as
anything moves. What says whether it keeps up is how long packets wait for it at the switch ports.
By Little's law that is

    wait per hop (s) = bytes waiting in its receive sockets / bytes it moves per second

Below the time of a packet on the wire it is the pipeline of a real switch; above it, the host is
the bottleneck and not the fabric. Measured with 32 flows over 5 switches: at 1 packet time flows
take 1 % longer, at 3 they take 5 to 10 % longer, at 10 twice as long.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..report.result import Pace
from ..units import show_time, transfer_seconds
from .network import MTU, EmulatedNetwork, fastest_line
from .sandbox import Sandbox

# packet times of the fastest cable outside servers that a packet may wait at a switch, in the mean
# over a sample
WAIT_LIMIT = 1.5
SLOW_SHARE = 0.2  # of the samples with traffic that may be over it
BUSY_SHARE = 0.02  # of the fastest cable: a sample with less traffic says nothing about the wait
# s of wall clock that a start may be late: more says that the event loop did not get its core,
LATE_LIMIT = 0.05
# unless it is no more than this of the time that the flow takes: it ends so much later at most
LATE_SHARE = 0.05
STEAL_LIMIT = 0.2  # of the processors that the hypervisor may have given to others
RESENT_LIMIT = 0.01  # of the packets: queues hold whole windows, so nothing needs sending again
# the advice never asks for less than a third of the rates at once, nor for a step too small to help
RELIEF = 0.3, 0.7


@dataclass(frozen=True)
class Sample:
    """The host between two looks: s a packet waited per hop, and bytes/s that reached the switch
    ports.
    """

    wait: float
    bytes_per_s: float


@dataclass(frozen=True)
class HostLoad:
    """The host over the whole run: shares of all processors, and packets lost or sent again."""

    busy: float
    steal: float
    softnet_dropped: int
    port_dropped: int
    resent: int
    sent: int


class Guard:
    """Watches a started EmulatedNetwork: `sample()` a few times a second, `verdict()` at the end.

    `may_drop` where a rewire policy drops what is under way, so that packets sent again are no sign
    of trouble.
    """

    def __init__(self, sandbox: Sandbox, network: EmulatedNetwork, may_drop: bool = False):
        self.sandbox, self.network, self.may_drop = sandbox, network, may_drop
        self.packet_time = transfer_seconds(
            MTU, fastest_line(network.fabric) * network.bandwidth_scale
        )
        self.samples: list[Sample] = []
        self._ports = {
            port.interface
            for node in network.fabric.switches
            for port in network.fabric.ports[node.name]
        }
        self._ticks, self._softnet, self._tcp = _cpu_ticks(), _softnet_dropped(), self._segments()
        moved, self._dropped = self._ports_counted()
        self._last = time.monotonic(), moved

    def sample(self) -> Sample:
        """Look once; the sample covers the time since the look before."""
        (then, before), (now, moved) = self._last, (time.monotonic(), self._ports_counted()[0])
        rate = (moved - before) / max(now - then, 1e-6)
        self._last = now, moved
        self.samples.append(Sample(_waiting_bytes() / rate if rate else 0.0, rate))
        return self.samples[-1]

    def verdict(self, late: np.ndarray, took: np.ndarray, bandwidth_scale: float) -> Pace:
        """The pace of the run so far; where it is not ok, the reasons and the scale to use instead.

        late, took: float64[flows], s of wall clock.
        """
        resent, sent = (b - a for a, b in zip(self._tcp, self._segments(), strict=True))
        shares, dropped = (
            _shares(self._ticks, _cpu_ticks()),
            self._ports_counted()[1] - self._dropped,
        )
        load = HostLoad(*shares, _softnet_dropped() - self._softnet, dropped, resent, sent)
        return judge(
            self.samples, load, self.packet_time, late, took, bandwidth_scale, self.may_drop
        )

    def _ports_counted(self) -> tuple[int, int]:
        """(bytes that arrived, packets dropped in and out) at the switch ports so far."""
        rows = (
            line.split(":", 1)
            for line in Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]
        )
        counts = [
            [int(n) for n in text.split()] for name, text in rows if name.strip() in self._ports
        ]
        return sum(c[0] for c in counts), sum(c[3] + c[11] for c in counts)

    def _segments(self) -> tuple[int, int]:
        """(segments sent again, segments sent) by all hosts so far."""
        again = sent = 0
        for namespace in self.network.namespaces.values():
            with namespace:
                rows = Path("/proc/thread-self/net/snmp").read_text().splitlines()
            names, values = (row.split() for row in rows if row.startswith("Tcp:"))
            table = dict(zip(names, values, strict=True))
            again, sent = again + int(table["RetransSegs"]), sent + int(table["OutSegs"])
        return again, sent


def judge(
    samples: Sequence[Sample],
    load: HostLoad,
    packet_time: float,
    late: np.ndarray,
    took: np.ndarray,
    bandwidth_scale: float,
    may_drop: bool = False,
) -> Pace:
    """The verdict on what was sampled; `packet_time` (s) is the fastest cable's.

    Pure, so that it can be tested.
    """
    waits = [s.wait for s in samples if s.bytes_per_s > BUSY_SHARE * MTU / packet_time]
    slow = [wait for wait in waits if wait > WAIT_LIMIT * packet_time]
    reasons = []
    if len(slow) > max(1, SLOW_SHARE * len(waits)):
        reasons.append(
            f"the datapath fell behind in {len(slow)} of {len(waits)} samples: packets waited "
            f"up to {show_time(max(slow))} at a switch, a packet takes {show_time(packet_time)} on "
            "the wire"
        )
    if load.softnet_dropped:
        reasons.append(
            f"the kernel dropped {load.softnet_dropped} packets from its backlog (softnet_stat)"
        )
    if load.port_dropped > max(RESENT_LIMIT * load.sent, 50):
        reasons.append(
            f"the switch ports dropped {load.port_dropped} packets, the limit is {RESENT_LIMIT:.0%}"
        )
    if load.resent > max(RESENT_LIMIT * load.sent, 50) and not may_drop:
        reasons.append(
            f"TCP sent {load.resent} of {load.sent} packets again, the limit is {RESENT_LIMIT:.0%}"
        )
    limit = np.maximum(LATE_LIMIT, LATE_SHARE * took)
    if (late > limit).any():
        worst = int(np.argmax(late / limit))
        reasons.append(
            f"a flow of {show_time(took[worst])} started {show_time(late[worst])} late, the "
            f"limit is {show_time(limit[worst])}"
        )
    if load.steal > STEAL_LIMIT:
        reasons.append(
            f"the hypervisor took {load.steal:.0%} of the processors, the limit is "
            f"{STEAL_LIMIT:.0%}"
        )
    scale = bandwidth_scale * _relief(waits, packet_time)
    advice = (
        f"let nothing else run beside it, or use --bandwidth-scale {scale:.2g}" if reasons else ""
    )
    return Pace(not reasons, load.busy, float(late.max(initial=0.0)), tuple(reasons), advice)


def _relief(waits: Sequence[float], packet_time: float) -> float:
    """By how much the rates must shrink: as much as the worst tenth of the waits was over the
    limit, within reason.
    """
    worst = sorted(waits)[int(0.9 * (len(waits) - 1))] if waits else 0.0
    least, most = RELIEF
    return min(max(WAIT_LIMIT * packet_time / worst, least), most) if worst else most


def _waiting_bytes() -> int:
    """Bytes in the receive sockets of the user-space datapath (column Rmem): at a switch port, not
    yet taken by OVS.
    """
    rows = Path("/proc/thread-self/net/packet").read_text().splitlines()[1:]
    return sum(int(row.split()[6]) for row in rows)


def _cpu_ticks() -> tuple[int, ...]:
    """(user, nice, system, idle, iowait, irq, softirq, steal) of all processors since boot, in
    ticks (proc(5)).
    """
    return tuple(int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])


def _shares(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[float, float]:
    """(busy, stolen) shares of all processors between two looks."""
    spent = [b - a for a, b in zip(before, after, strict=True)]
    total = max(sum(spent), 1)
    return 1 - (spent[3] + spent[4]) / total, spent[7] / total


def _softnet_dropped() -> int:
    """Packets all processors dropped from their backlogs so far (second column, hexadecimal)."""
    return sum(
        int(row.split()[1], 16) for row in Path("/proc/net/softnet_stat").read_text().splitlines()
    )

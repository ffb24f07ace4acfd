"""Did the host keep pace? Samples of the datapath's backlog, the processors, lost packets and late
starts, and a verdict.

The user-space datapath polls its ports, so its CPU share says nothing: it takes a whole core as
soon as anything moves. Whether it keeps up shows in how long packets wait for it at the switch
ports. By Little's law that is

    wait per hop (s) = bytes waiting in its receive sockets / bytes it moves per second

Up to the time of a packet on the wire, this is the pipeline of a real switch. Above it, the host is
the bottleneck and not the fabric. Measured with 32 flows over 5 switches: at 1 packet time flows
take 1 % longer, at 3 they take 5 to 10 % longer, at 10 twice as long.

Three more signs do not depend on where packets wait: what other programs than this world took of
the processors, the time in which flows were under way but no cable that they cross was full
(`fullness`), and the time in which the datapath was ready and had to wait for a processor: what it
could not send meanwhile a full cable never makes up for.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..report.result import Pace
from ..trace.packets import MTU
from ..units import show_time, transfer_seconds
from .counters import PortCounters
from .lost import Lost
from .network import EmulatedNetwork, fastest_line
from .processors import Processors, busy_and_stolen, cpu_ticks, run_delay, steal_seconds
from .sandbox import DATAPATH, Sandbox

# how long a packet may wait at a switch, mean over a sample, in packet times of the fastest cable
# outside servers
WAIT_LIMIT = 1.5
SLOW_SHARE = 0.2  # of the samples with traffic may be over it
BUSY_SHARE = 0.02  # of the fastest cable: a sample with less traffic says nothing about the wait
# s of wall clock that a start may be late; more means that the event loop did not get its core,
LATE_LIMIT = 0.05
# unless it is at most this share of the flow's time: the flow ends no later than by that
LATE_SHARE = 0.05
# of the processors may go to others on this host while packets move: between 3 and 16 % results
# were within 1.5 % of the simulation; a busy loop on each of two cores takes 53 %
FOREIGN_LIMIT = 0.25
FOREIGN_S = 2.0  # s between two looks at them, because ticks are coarse
IDLE_LIMIT = 0.05  # of a communication phase may pass with no cable that holds its flows up
# of a communication phase the datapath may wait for a processor: 1 to 5 % on a quiet host of two
# cores, where rings, whose flows cross busy cables one by one, took up to 2 % longer than
# simulated; 3 % at 6 to 7 %, 3 to 6 % at 8 to 12 %, 7 to 11 % at 15 to 18 %
WAITED_LIMIT = 0.08
# of a look: then its own processor is somebody else's too, who does not go elsewhere
CROWDED = 0.4
STEAL_LIMIT = 0.2  # of the processors may be given to others by the hypervisor
RESENT_LIMIT = 0.01  # of the packets: queues hold whole windows, so nothing needs sending again
RESENT_FEW = 50  # packets: no run is refused for so few
# the advice never asks for less than a third of the rates at once, nor for a step too small to help
RELIEF = 0.3, 0.7


@dataclass(frozen=True)
class Sample:
    """The host between two looks: how long a packet waited per hop (s), and bytes/s that reached
    the switch ports.
    """

    wait: float
    bytes_per_s: float


@dataclass(frozen=True)
class HostLoad:
    """The host over the whole run: shares of all processors, and packets lost or sent again.

    foreign: the share of the processors that others had while packets moved.
    """

    busy: float
    steal: float
    softnet_dropped: int
    port_dropped: int
    resent: int
    sent: int
    foreign: float = 0.0


class Guard:
    """Watches a started EmulatedNetwork: `sample()` a few times a second, `verdict()` at the end.

    may_drop: a rewire drops what is under way, so packets that are sent again are no sign of
    trouble.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        network: EmulatedNetwork,
        may_drop: bool = False,
        ports: PortCounters | None = None,
    ):
        self.sandbox, self.network, self.may_drop = sandbox, network, may_drop
        self.packet_time = transfer_seconds(
            MTU, fastest_line(network.fabric) * network.bandwidth_scale
        )
        self.samples: list[Sample] = []
        self._ports = ports or PortCounters(network.fabric)
        self._ticks, self._softnet, self._tcp = cpu_ticks(), _softnet_dropped(), self._segments()
        self.frames, self._dropped = self._ports.read()
        self._last = time.monotonic()
        self.waited, self._stolen = 0.0, self._not_run()  # s; as of the last look
        self._taken = self._last, Processors.now(), self.frames.sum()
        self._foreign: list[tuple[float, float]] = []  # (s, share) while packets moved

    def sample(self) -> Sample:
        """Look once; the sample covers the time since the last look."""
        now, (frames, _) = time.monotonic(), self._ports.read()
        elapsed = max(now - self._last, 1e-6)
        rate = float((frames - self.frames)[:, 0].sum()) / elapsed
        self.frames, self._last = frames, now
        stolen = self._not_run()
        waited = max(0.0, stolen - self._stolen)  # another datapath begins at 0
        self.waited, self._stolen = self.waited + waited, stolen
        if waited > CROWDED * elapsed:
            self.sandbox.share()
        self._look_at_others(now)
        self.samples.append(Sample(_waiting_bytes() / rate if rate else 0.0, rate))
        return self.samples[-1]

    def _look_at_others(self, now: float) -> None:
        then, before, moved = self._taken
        if now - then < FOREIGN_S:
            return
        taken, total = Processors.now(), self.frames.sum()
        self._taken = now, taken, total
        if (total - moved) / (now - then) > BUSY_SHARE * MTU / self.packet_time:
            self._foreign.append((now - then, taken.foreign_since(before)))

    def foreign(self) -> float:
        """The share of the processors that others had while packets moved."""
        seconds = sum(s for s, _ in self._foreign)
        return sum(s * share for s, share in self._foreign) / seconds if seconds else 0.0

    def verdict(
        self, late: np.ndarray, took: np.ndarray, bandwidth_scale: float, lost: Lost = Lost()
    ) -> Pace:
        """The pace of the run so far; if it is not ok, the reasons and the scale to use instead.

        late, took: float64[flows], s of wall clock.
        """
        resent, sent = (b - a for a, b in zip(self._tcp, self._segments(), strict=True))
        shares = busy_and_stolen(self._ticks, cpu_ticks())
        dropped = self._ports.read()[1] - self._dropped
        gone = _softnet_dropped() - self._softnet, dropped, resent, sent
        load = HostLoad(*shares, *gone, self.foreign())
        facts = self.packet_time, late, took, bandwidth_scale, self.may_drop, lost
        return judge(self.samples, load, *facts)

    def opinion(
        self, late: np.ndarray, took: np.ndarray, bandwidth_scale: float, lost: Lost = Lost()
    ) -> Pace:
        """As `verdict`, in the middle of a run. It leaves out what hosts sent again and ports
        dropped, because that takes too long to read.
        """
        gone = _softnet_dropped() - self._softnet, 0, 0, 0
        load = HostLoad(*busy_and_stolen(self._ticks, cpu_ticks()), *gone, self.foreign())
        facts = self.packet_time, late, took, bandwidth_scale, self.may_drop, lost
        return judge(self.samples, load, *facts)

    def _not_run(self) -> float:
        """For how many s so far the datapath was not given a processor, or that was not given
        to this host.
        """
        return run_delay(self.sandbox.children[DATAPATH].pid) + steal_seconds()

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
    lost: Lost = Lost(),
) -> Pace:
    """The verdict on the samples; `packet_time` (s) is that of the fastest cable.

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
    if load.port_dropped > max(RESENT_LIMIT * load.sent, RESENT_FEW):
        reasons.append(
            f"the switch ports dropped {load.port_dropped} packets, the limit is {RESENT_LIMIT:.0%}"
        )
    if load.resent > max(RESENT_LIMIT * load.sent, RESENT_FEW) and not may_drop:
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
    if load.foreign > FOREIGN_LIMIT:
        reasons.append(
            f"others on this host took {load.foreign:.0%} of the processors while packets moved, "
            f"the limit is {FOREIGN_LIMIT:.0%}"
        )
    idle, waited = _worst(lost.idle), _worst(lost.waited)
    # where a rewire drops, senders wait for what was lost
    if idle.share > IDLE_LIMIT and not may_drop:
        reasons.append(
            f"in {idle.share:.1%} of {idle.phase} no cable that its flows cross was full, the "
            f"limit is {IDLE_LIMIT:.0%}"
        )
    if waited.share > WAITED_LIMIT:
        reasons.append(
            f"in {waited.share:.1%} of {waited.phase} the switches waited for a processor, the "
            f"limit is {WAITED_LIMIT:.0%}"
        )
    scale = bandwidth_scale * _relief(waits, packet_time)
    advice = (
        f"let nothing else run beside it, or use --bandwidth-scale {scale:.2g}" if reasons else ""
    )
    shares = {"foreign": load.foreign, "idle": idle.share, "waited": waited.share}
    latest = float(late.max(initial=0.0))
    return Pace(
        not reasons, load.busy, latest, tuple(reasons), advice, **shares, resent=load.resent
    )


class _Worst(NamedTuple):
    phase: str
    share: float


def _worst(shares: Mapping[str, float]) -> _Worst:
    """The phase that lost most of its time."""
    phase = max(shares, key=lambda name: shares[name], default="")
    return _Worst(phase, shares.get(phase, 0.0))


def _relief(waits: Sequence[float], packet_time: float) -> float:
    """The factor by which rates must shrink: as far as the worst tenth of the waits was over the
    limit, within RELIEF.
    """
    worst = sorted(waits)[int(0.9 * (len(waits) - 1))] if waits else 0.0
    least, most = RELIEF
    return min(max(WAIT_LIMIT * packet_time / worst, least), most) if worst else most


def _waiting_bytes() -> int:
    """Bytes in the receive sockets of the user-space datapath (column Rmem): arrived at a switch
    port, but not yet taken by OVS.
    """
    rows = Path("/proc/thread-self/net/packet").read_text().splitlines()[1:]
    return sum(int(row.split()[6]) for row in rows)


def _softnet_dropped() -> int:
    """Packets all processors dropped from their backlogs so far (second column, hexadecimal)."""
    return sum(
        int(row.split()[1], 16) for row in Path("/proc/net/softnet_stat").read_text().splitlines()
    )

"""A fabric brought up on several machines: tunnels tried, the network between the machines held
against what is asked of it, every part built.
"""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...control.addresses import OFP_PORT
from ...errors import RFabricError
from ...fabric import Fabric
from ...report.result import Result
from ...trace.packets import MTU
from ...units import bytes_in, show_rate
from ..live import READY_S
from ..sandbox import Sandbox
from ..shaping import ETHERNET, OVERHEAD
from .far import FarWire
from .leader import Leader
from .slices import Slices, sliced
from .tunnels import CABLES, HEADERS, UDP_PORT
from .watch import FarCounters, FarGuard

MachinePair = tuple[int, int]  # their numbers
BUILT_S = 120.0  # s that a part may take to come up
ROOM = 0.7  # of what the network between two machines was seen to carry
LEAST_POURED, MOST_POURED = 1e7, 2e9  # bit/s: the first and the last step of the measurement
TRIES = 3
POURED_S = 0.3  # s of a step
ARRIVES_S = 0.1  # s for the last frame to come through
LOST = 0.01  # of the frames of a step: more is too much


@dataclass(frozen=True)
class Between:
    """What the network between machines carries, bit/s of frames each way, by pair of numbers."""

    rates: Mapping[MachinePair, float]

    def most(self, slices: Slices) -> float:
        """The largest factor on the cables' rates with which all tunnels of `slices` fit in."""
        asked = asked_of(slices, 1.0)
        return min((ROOM * self.rates[pair] / rate for pair, rate in asked.items()), default=np.inf)


def asked_of(slices: Slices, factor: float) -> dict[MachinePair, float]:
    """bit/s of frames that each pair of machines must carry, each way, when all its tunnels are
    full.
    """
    around = (MTU + HEADERS) / (MTU + ETHERNET) * OVERHEAD
    links = slices.fabric.links
    return {
        pair: sum(links[number].rate for number in numbers) * factor * around
        for pair, numbers in slices.between().items()
    }


class SpreadFabric:
    """`fabric`, every rate times `factor`, on the machines of `leader`, whose controller is in
    `box`.
    """

    network = None  # of this world's own: there is none

    def __init__(self, leader: Leader, box: Sandbox, fabric: Fabric, factor: float):
        self.leader, self.box, self.fabric, self.factor = leader, box, fabric, factor
        self.slices = sliced(fabric, len(leader.agents))
        self.names = [agent.name for agent in leader.agents]

    def start(self, addresses: Sequence[str], at_once: Mapping[tuple[str, str], int]) -> None:
        """Bring every part up, for so many flows of each pair together; RFabricError where the
        machines cannot carry it.
        """
        self.plug(addresses)
        self._check_between()
        self.box.wait_port(OFP_PORT, "controller", READY_S)
        datapath = self.leader.agents[0].facts["datapath"]
        flows = [[*pair, several] for pair, several in at_once.items()]
        words = {"scale": self.factor, "datapath": datapath, "at_once": flows}
        said = self.leader.ask("build", BUILT_S, wait=READY_S, **words)
        self.unlit = next(filter(None, said), "")  # where light is late, why

    def plug(self, addresses: Sequence[str]) -> None:
        """Make every world and every tunnel, and send a full packet through each, both ways.
        RFabricError for too many tunnels, or one through which no packet comes.
        """
        if len(self.slices.tunnels) > CABLES:
            raise RFabricError(
                f"{self.fabric.name}: {len(self.slices.tunnels)} cables would be cut, the limit is "
                f"{CABLES}"
            )
        words = {"fabric": self.fabric.to_json(), "addresses": list(addresses)}
        words["vni"] = CABLES * (1 + secrets.randbelow(CABLES - 1))
        machines = range(len(self.names))
        self.leader.ask_each("plug", [words | {"machine": number} for number in machines], BUILT_S)
        for number, silent in enumerate(self.leader.ask("try_tunnels")):
            for interface in silent:
                raise RFabricError(self._silent(number, interface))

    def _silent(self, number: int, interface: str) -> str:
        port = next(p for p in self.fabric.peer if p.interface == interface)
        other = self.names[self.slices.place[self.fabric.peer[port][1].node]]
        return (
            f"nothing comes from machine {other} to {self.names[number]} through the tunnel of "
            f"cable {port}: let UDP port {UDP_PORT} pass between them, or give addresses that "
            "reach (--on HOST=ADDRESS); packets of "
            f"{MTU + HEADERS} bytes may need to go in fragments"
        )

    def _check_between(self) -> None:
        """Every pair carries, with room, what all its tunnels together may ask of it."""
        asked = asked_of(self.slices, self.factor)
        for pair, wanted in asked.items():
            if not self.fits({pair: wanted / ROOM})[pair]:
                a, b = (self.names[i] for i in pair)
                raise RFabricError(
                    f"the network between machines {a} and {b} loses packets at "
                    f"{show_rate(wanted / ROOM)}, which the cables cut between them need with room "
                    "to spare; leave the scale to rfabric, or give a smaller --bandwidth-scale"
                )

    def measured(self) -> Between:
        """Steps of twice the rate, all pairs at once, until each has lost something. RFabricError
        where packets are lost at the least rate.
        """
        rates, left, step = {}, set(self.slices.between()), LEAST_POURED
        while left and step <= MOST_POURED:
            fits = self.fits(dict.fromkeys(left, step))
            rates |= {pair: step for pair in left if fits[pair]}
            left, step = {pair for pair in left if fits[pair]}, 2 * step
        if missing := set(self.slices.between()) - set(rates):
            a, b = (self.names[i] for i in min(missing))
            raise RFabricError(
                f"the network between machines {a} and {b} loses packets at "
                f"{show_rate(LEAST_POURED)}; a fabric is not cut there"
            )
        return Between(rates)

    def fits(self, rates: Mapping[MachinePair, float]) -> dict[MachinePair, bool]:
        """Whether each pair carries so much: once of TRIES is enough, for a host that is busy for a
        moment loses packets too.
        """
        carried = dict.fromkeys(rates, False)
        for _ in range(TRIES):
            left = {pair: rate for pair, rate in rates.items() if not carried[pair]}
            if left:
                carried |= self.pour(left)
        return carried

    def pour(self, rates: Mapping[MachinePair, float]) -> dict[MachinePair, bool]:
        """Send so much (bit/s) between each pair, both ways, for a moment: did all come through?"""
        ends = {pair: self._ends(pair) for pair in rates}
        before = self._poured(ends)
        rate = max(rates.values())
        words = [
            {"interfaces": [e[1] for pair in ends for e in ends[pair] if e[0] == number]}
            for number in range(len(self.names))
        ]
        sent = self.leader.ask_each(
            "pour", [w | {"rate": rate, "seconds": POURED_S} for w in words], BUILT_S
        )
        time.sleep(ARRIVES_S)
        came = self._poured(ends)
        least = (1 - 5 * LOST) * bytes_in(rate, POURED_S) / (MTU + ETHERNET)
        through = {}
        for pair, ((a, at_a), (b, at_b)) in ends.items():
            ways = ((sent[a][at_a], (b, at_b)), (sent[b][at_b], (a, at_a)))
            through[pair] = all(
                came[end] - before[end] >= (1 - LOST) * count and count >= least
                for count, end in ways
            )
        return through

    def _ends(self, pair: MachinePair) -> list[tuple[int, str]]:
        """(machine, interface) of both ends of the first tunnel of a pair."""
        number = self.slices.between()[pair][0]
        cable, places = self.fabric.links[number], self.slices.ends(number)
        return sorted([(places[0], cable.a.interface), (places[1], cable.b.interface)])

    def _poured(
        self, ends: Mapping[MachinePair, list[tuple[int, str]]]
    ) -> dict[tuple[int, str], int]:
        words = [
            {"interfaces": [e[1] for some in ends.values() for e in some if e[0] == number]}
            for number in range(len(self.names))
        ]
        answers = self.leader.ask_each("poured", words)
        return {(n, name): count for n, one in enumerate(answers) for name, count in one.items()}

    def wire(self) -> FarWire:
        """What sends and receives."""
        return FarWire(self.leader, self.slices)

    def ports(self) -> FarCounters:
        """What the switches counted."""
        return FarCounters(self.leader)

    def guard(self, wire: FarWire, may_drop: bool) -> FarGuard:
        """What watches all machines, from now on."""
        return FarGuard(self.leader, wire, self.fabric, self.factor, may_drop)


def hops_carried(expected: Result, hops: Sequence[float]) -> float:
    """Packet-hops a second of the whole fabric when the busiest machine is at its limit; `hops` by
    machine.
    """
    slices = sliced(expected.fabric, len(hops))
    carried, total = np.zeros(len(hops)), expected.link_bytes.sum()
    for number, count in enumerate(expected.link_bytes):
        carried[list(set(slices.ends(number // 2)))] += count
    busy = carried > 0
    return float(min(np.array(hops)[busy] * total / carried[busy], default=max(hops)))

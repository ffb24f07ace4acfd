"""Flows of a fabric that several machines carry, as if it were one's."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from ..wire import Arrival, warmed
from .leader import FarAgent, Leader
from .slices import Slices

FRESH_S = 0.005  # s for which what has arrived is taken to be known


@dataclass(eq=False)
class FarLane:
    """A connection between two hosts, and the flow it carries."""

    number: int
    src: str
    dst: str
    size: int = 0


class FarWire:
    """As `wire.Wire`, of hosts on several machines; times are of the clock here."""

    def __init__(self, leader: Leader, slices: Slices):
        self.leader, self.slices = leader, slices
        self.bytes_received = 0
        self._free: dict[tuple[str, str], list[tuple[int, FarLane]]] = defaultdict(list)  # heaps
        self._flows: dict[int, FarLane] = {}
        self._waiting: list[int] = []  # flows to be sent at the next look
        self._lanes = 0
        self._progress: tuple[float, dict[int, int]] = 0.0, {}

    def open(self, lanes: Mapping[tuple[str, str], int]) -> None:
        """Open so many lanes for each ordered host pair, all at once."""
        some = [
            FarLane(self._lanes + i, *pair)
            for i, pair in enumerate(pair for pair, count in lanes.items() for _ in range(count))
        ]
        self._lanes += len(some)
        hosts = {lane.dst for lane in some}
        self._ask("listen", "hosts", [(self._at(host), host) for host in hosts])
        told = [(self._at(lane.src), [lane.number, lane.src, lane.dst]) for lane in some]
        ports = [iter(numbers or ()) for numbers in self._ask("connect", "lanes", told)]
        told = [
            (self._at(lane.dst), [lane.number, lane.src, lane.dst, next(ports[self._at(lane.src)])])
            for lane in some
        ]
        self._ask("accept", "lanes", told)
        for lane in some:
            self._release(lane)

    def _release(self, lane: FarLane) -> None:
        heappush(self._free[lane.src, lane.dst], (lane.number, lane))

    def warm(self, timeout: float = 30.0) -> None:
        """As `Wire.warm`."""
        warmed(self, [pair for pair, lanes in self._free.items() for _ in lanes], timeout)

    def send(self, flow: int, src: str, dst: str, nbytes: int) -> None:
        """Start a flow with the next `flush`."""
        if not self._free[src, dst]:
            self.open({(src, dst): 1})
        _, lane = heappop(self._free[src, dst])
        lane.size = nbytes
        self._flows[flow] = lane
        self._waiting.append(flow)

    def poll(self, timeout: float) -> list[Arrival]:
        """Wait for up to `timeout` s, or until a flow completes; returns what completed."""
        self.flush()
        if not self.leader.arrived:
            self.leader.hear(timeout)
        told, self.leader.arrived = self.leader.arrived, []
        return [self._has_arrived(agent, *one) for agent, some in told for one in some]

    def _has_arrived(self, by: FarAgent, flow: int, at: float, begun: float, early: int) -> Arrival:
        lane = self._flows.pop(flow)
        self._release(lane)
        return Arrival(flow, at - by.offset, begun - by.offset, early)

    def flush(self) -> None:
        """What was sent is announced to receivers, then ordered of senders, by one instant."""
        if not self._waiting:
            return
        flows, self._waiting = [(flow, self._flows[flow]) for flow in self._waiting], []
        told = [[flow, lane.number, lane.size] for flow, lane in flows]
        due = time.monotonic() + self.leader.lead
        for side, do in (("dst", "expect"), ("src", "start")):
            groups: dict[int, list] = defaultdict(list)
            for (_, lane), words in zip(flows, told, strict=True):
                groups[self._at(getattr(lane, side))].append(words)
            for number, some in groups.items():
                agent = self.leader.agents[number]
                at = {"at": due + agent.offset} if do == "start" else {}
                self.leader.tell(agent, do, flows=some, **at)

    def pause(self, flows: Iterable[int]) -> None:
        """As `Wire.pause`."""
        self._order("pause", flows)

    def resume(self, flows: Iterable[int]) -> None:
        """As `Wire.resume`."""
        self._order("resume", flows)

    def _order(self, do: str, flows: Iterable[int]) -> None:
        self.flush()
        some = [flow for flow in flows if flow in self._flows]
        self._ask(do, "flows", [(self._at(self._flows[flow].src), flow) for flow in some])

    def in_flight(self) -> list[int]:
        """The flows that are not complete."""
        return list(self._flows)

    def unacked(self, flows: Iterable[int]) -> int:
        """As `Wire.unacked`."""
        held = sum(self.leader.ask("held", flows=list(flows)))
        if held:
            self.leader.ask("acknowledge")
        return held

    def progress(self, flow: int) -> tuple[int, int]:
        """As `Wire.progress`: what was read, some ms ago at most, stands for what was sent too."""
        if time.monotonic() - self._progress[0] > FRESH_S:
            self.flush()
            answers = self.leader.ask("arriving")
            known = {int(flow): count for one in answers for flow, count in one.items()}
            self._progress = time.monotonic(), known
        # what is no more on its way there has arrived
        count = self._progress[1].get(flow, self._flows[flow].size)
        return count, count

    def counted(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """As `Wire.counted`."""
        answers = self.leader.ask("counted")
        return self._column(answers, "sent", n), self._column(answers, "got", n)

    def lag(self) -> float:
        """The most seconds between when a flow was to start on its machine and when it did."""
        return max(self.leader.ask("lag"))

    @staticmethod
    def _column(answers: list[dict], name: str, n: int) -> np.ndarray:
        column = np.zeros(n, np.int64)
        for one in answers:
            for flow, value in one[name].items():
                if 0 <= int(flow) < n:
                    column[int(flow)] = value
        return column

    def close(self) -> None:
        """The sockets are closed with their worlds."""

    def _at(self, host: str) -> int:
        return self.slices.place[host]

    def _ask(self, do: str, name: str, told: Iterable[tuple[int, object]]) -> list:
        """Ask each machine with the words of which it is the first."""
        groups: dict[int, list] = defaultdict(list)
        for number, word in told:
            groups[number].append(word)
        machines = range(len(self.leader.agents))
        return self.leader.ask_each(
            do, [{name: groups[i]} if i in groups else None for i in machines]
        )

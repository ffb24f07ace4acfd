"""The ends of flows that one machine has: senders of some, receivers of others, of some both.

A lane between two machines has its number from the leader, who knows which are free. Flows are
announced to the receiver before they are sent, so that it knows how much will come.
"""

import contextlib
import os
import select
import socket
import time
from collections.abc import Iterable, Sequence

from ...errors import RunError
from ..network import EmulatedNetwork
from ..wire import Arrival, Lane, Wire, outq

FINE = 0.002  # s before a start from which on it is not slept: the kernel wakes to the millisecond


class Ends(Wire):
    """The ends here; `wake` is a descriptor that becomes readable when there is something to do."""

    def __init__(self, network: EmulatedNetwork, wake: int):
        super().__init__(network)
        self._wake = wake
        self._epoll.register(wake, select.EPOLLIN)
        self.out: dict[int, Lane] = {}  # by number of the lane
        self.into: dict[int, Lane] = {}
        self._coming: dict[int, Lane] = {}  # by flow
        self.sent: dict[int, int] = {}  # bytes, by flow that is through
        self.got: dict[int, int] = {}

    def listen(self, hosts: Iterable[str]) -> None:
        """Take connections to these hosts."""
        for host in hosts:
            self._listen(host)

    def connect(self, lanes: Sequence[tuple[int, str, str]], timeout: float = 10.0) -> list[int]:
        """Open the sending ends of lanes (number, src, dst); returns their local ports. RunError
        where one does not connect in time.
        """
        self._check_files(len(lanes))
        waiting, ports = {}, []
        with contextlib.closing(select.epoll()) as poller:
            for number, src, dst in lanes:
                with self.network.namespaces[src]:
                    sock = self._connect(src, dst)
                self.out[number] = self._lane(src, dst, sock, None)
                ports.append(sock.getsockname()[1])
                waiting[sock.fileno()] = (src, dst, sock)
                poller.register(sock, select.EPOLLOUT)
            limit = time.monotonic() + timeout
            while waiting and time.monotonic() < limit:
                for fd, _ in poller.poll(max(0.0, limit - time.monotonic())):
                    src, dst, sock = waiting.pop(fd)
                    poller.unregister(fd)
                    if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                        raise RunError(f"{src} -> {dst} does not connect: {os.strerror(code)}")
        if waiting:
            src, dst, _ = next(iter(waiting.values()))
            raise RunError(
                f"{len(waiting)} connections are not up after {timeout:g} s, first {src} -> {dst}"
            )
        return ports

    def accept(self, lanes: Sequence[tuple[int, str, str, int]]) -> None:
        """Open the receiving ends of lanes (number, src, dst, the sender's port)."""
        for number, src, dst, port in lanes:
            receiver = self._accept(dst, (self.network.ip[src], port))
            self.into[number] = self._lane(src, dst, None, receiver)

    def expect(self, flows: Iterable[tuple[int, int, int]]) -> None:
        """Flows (flow, lane, bytes) will come."""
        for flow, number, size in flows:
            lane = self.into[number]
            lane.flow, lane.size, lane.sent, lane.received = flow, size, size, 0
            self._coming[flow] = lane
            self._set_wake(lane)

    def start(self, flows: Iterable[tuple[int, int, int]], due: float) -> None:
        """Send flows (flow, lane, bytes), which were to start at `due`."""
        for flow, number, size in flows:
            lane = self.out[number]
            lane.flow, lane.size, lane.sent, lane.paused = flow, size, 0, False
            self._ended.discard(lane)
            self._flows[flow] = lane
            self._begin(lane)
        self.flush()
        self.lag = max(self.lag, time.monotonic() - due)

    def poll(self, timeout: float) -> list[Arrival]:
        """Move bytes for up to `timeout` s, or until a flow completes or there is something to do.

        The last FINE s of it are not slept.
        """
        limit = time.monotonic() + timeout
        while True:
            self._watch_changed()
            left, woken = limit - time.monotonic(), False
            for fd, _ in self._epoll.poll(max(0.0, left - FINE), 256):
                if fd == self._wake:
                    woken = True
                    continue
                self._serve(fd)
            if self._done or woken or time.monotonic() >= limit:
                done, self._done = self._done, []
                return done

    def held(self, flows: Iterable[int]) -> int:
        """As `unacked`, of the flows and of those that have ended whose senders are here."""
        lanes = {*self._lanes(flows), *self._ended}
        held = {lane: count for lane in lanes if (count := outq(lane.sender))}
        self._ended &= held.keys()
        return sum(held.values())

    def acknowledge(self) -> None:
        """Have the receivers here acknowledge what they have."""
        for lane in self.into.values():
            lane.receiver.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def arriving(self) -> dict[int, int]:
        """Bytes read so far of each flow under way to here."""
        return {flow: lane.received for flow, lane in self._coming.items()}

    def _push(self, lane: Lane) -> None:
        super()._push(lane)
        if lane.flow is not None and lane.sent == lane.size:
            self.sent[lane.flow] = lane.sent
            self._flows.pop(lane.flow, None)
            self._windows[lane.src].end(lane)
            lane.flow = None
            self._ended.add(lane)

    def _pull(self, lane: Lane) -> None:
        if lane.flow is not None:  # else it is yet to be announced, and is read then
            super()._pull(lane)

    def _complete(self, lane: Lane) -> None:
        self.got[lane.flow] = lane.received
        del self._coming[lane.flow]
        lane.flow = None

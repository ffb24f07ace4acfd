"""The endpoints: every host's TCP connections in one process and one event loop, on one clock.

    wire.open({("h1", "h5"): 2})      two lanes (TCP connections), made inside the hosts' namespaces
                                      beforehand
    wire.send(7, "h1", "h5", nbytes)  flow 7 starts with the next poll, on a free lane
    wire.poll(0.01)                   -> [Arrival(flow=7, at=..., begun=..., early=...)]: its last
                                      byte was read at h5

A lane carries one flow at a time, so bytes need no framing: both ends count them, and the counts
must agree. They are zeros that the kernel copies in and discards at the far end (MSG_TRUNC). A
sender keeps little unsent data in the kernel, so that a paused one stops within milliseconds; a
receiver is woken when a good piece, or the rest of the flow, has arrived.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import select
import socket
import struct
import termios
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

import numpy as np

from ..errors import RFabricError, RunError
from ..trace.packets import PAYLOAD
from ..units import bytes_in, transfer_seconds
from .network import WINDOW, EmulatedNetwork
from .shaping import bucket, port_of
from .windows import Windows

PORT = 5001  # iperf's, by habit; each host has its own namespace
UNSENT_S = 0.004  # seconds of line rate that may wait unsent in the kernel
FEW = 3  # packets that warm a lane
AT_ONCE = 3  # lanes of a host that are warmed at once: with one its card waits for their last
PIECE_S = 0.02  # seconds of line rate after which a receiver is woken
NEVER = 1e6  # s
# s that a packet needs through the switches and processes of a host, by which a flow is late: of
# flows among 16 hosts 1 ms in a rack, 1.3 to 2.5 ms over six cables; and for each that starts with
# it, whose first packet has to pass too (60 us to send, and some 20 us a cable)
PASSES_S, FIRST_S = 0.002, 1.5e-4
HANDSHAKE = 5.0  # s for the last packet of a connection's handshake
# bytes; fixed, so that the kernel does not tune it. Where fewer than WINDOW packets may be under
# way it is as many, for TCP offers what has room.
RECEIVE_BUFFER = 4 << 20
SCRATCH = 1 << 20  # bytes handed to the kernel at once, at most
ZEROS = bytes(SCRATCH)
# The calls themselves, which never block here: a socket's method would hand the interpreter to the
# thread that plans at every flow that starts, and wait to have it back.
_LIBC = ctypes.PyDLL(None, use_errno=True)
SEND = _LIBC.send
SEND.argtypes = ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
SEND.restype = ctypes.c_ssize_t
TFD_TIMER_ABSTIME, TFD_NONBLOCK, TFD_CLOEXEC = 1, 0o4000, 0o2000000  # sys/timerfd.h
TCP_NOTSENT_LOWAT, TCP_CONGESTION = 25, 13  # linux/tcp.h
SIOCOUTQ = termios.TIOCOUTQ


@dataclass(frozen=True)
class Arrival:
    """Flow `flow` is complete: the receiver read its last byte `at`, the first `early` bytes
    `begun` (s, time.monotonic). late: s after it should have, the sender sent its first.
    """

    flow: int
    at: float
    begun: float
    early: int
    late: float = 0.0


@dataclass(eq=False, slots=True)
class Lane:
    """One TCP connection and the flow it carries now (`flow` is None while it is free).

    Byte counts are the flow's.
    """

    src: str
    dst: str
    sender: socket.socket
    receiver: socket.socket
    unsent: int
    piece: int
    port: int = 0  # the sender's, where both ends are here
    flow: int | None = None
    size: int = 0
    sent: int = 0
    received: int = 0
    begun: float = 0.0
    early: int = 0
    paused: bool = False
    watched: bool = False
    wake_at: int = 1
    late: float = 0.0  # s; see Arrival
    window: int = 0  # packets that may be under way; 0 while nothing says so


Egress = tuple[str, float]  # what a host sends by, in its server or out of it: (host, bit/s)


class _Instant(ctypes.Structure):
    """struct itimerspec that comes once."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "s", "ns")]


class Alarm:
    """A descriptor that is readable from an instant on. An epoll's own timeouts end with the next
    whole millisecond, which each flow of a chain would wait for.
    """

    def __init__(self) -> None:
        self.fd = _LIBC.timerfd_create(time.CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        if self.fd < 0:
            raise _failed()

    def set(self, at: float) -> None:
        """It rings at `at` (s, time.monotonic), at once where that is over, and not before.
        RunError where the kernel refuses.
        """
        whole, part = divmod(at, 1)
        instant = _Instant(0, 0, int(whole), max(int(1e9 * part), 1))  # all 0 would disarm it
        if _LIBC.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, ctypes.byref(instant), None):
            raise _failed()

    def close(self) -> None:
        """No more."""
        os.close(self.fd)


class Wire:
    """TCP between the hosts of a started EmulatedNetwork.

    Times are time.monotonic() seconds, sizes bytes.
    """

    def __init__(self, network: EmulatedNetwork):
        self.network = network
        self._epoll = select.epoll()
        self._alarm, self._holds = Alarm(), Alarm()
        for alarm in (self._alarm, self._holds):
            self._epoll.register(alarm.fd, select.EPOLLIN)
        self._listeners: dict[str, socket.socket] = {}
        self._accepted: dict[tuple[str, tuple[str, int]], socket.socket] = {}
        self._free: dict[tuple[str, str], list[tuple[int, Lane]]] = defaultdict(list)  # heaps
        self._opened: Counter[tuple[str, str]] = Counter()
        # (lane, whether the descriptor is its sender)
        self._by_fd: dict[int, tuple[Lane, bool]] = {}
        self._flows: dict[int, Lane] = {}
        self._starting: list[Lane] = []  # they send at the next turn
        self._held: dict[Egress, tuple[float, list[Lane]]] = {}  # they send from then on
        self._busy: dict[Egress, float] = {}  # until when, were its bucket empty
        self._windows: dict[str, Windows] = {}  # by host
        self._changed: set[Lane] = set()  # lanes that are watched otherwise than the kernel knows
        self._ended: set[Lane] = set()  # lanes whose last flow may still lack an acknowledgement
        self._scratch = bytearray(SCRATCH)
        self._done: list[Arrival] = []
        self._counts: dict[int, tuple[int, int]] = {}
        self.bytes_sent = 0
        self.bytes_received = 0
        self.lag = 0.0  # s, the most between when a flow was to start and when it did

    # --- lanes ------------------------------------------------------------------------------------

    def open(self, lanes: Mapping[tuple[str, str], int], timeout: float = 10.0) -> None:
        """Open so many lanes for each ordered host pair, all at once; RunError names a pair that
        does not connect.
        """
        self._check_files(sum(lanes.values()))
        waiting: dict[int, tuple[str, str, socket.socket]] = {}
        for src, dst in lanes:
            self._check_pair(src, dst)
            self._listen(dst)
        poller = select.epoll()
        for (src, dst), count in lanes.items():
            with self.network.namespaces[src]:
                for _ in range(count):
                    sock = self._connect(src, dst)
                    waiting[sock.fileno()] = (src, dst, sock)
                    poller.register(sock, select.EPOLLOUT)
        limit = time.monotonic() + timeout
        with contextlib.closing(poller):
            while waiting:
                for fd, _ in poller.poll(max(0.0, limit - time.monotonic())):
                    src, dst, sock = waiting.pop(fd)
                    poller.unregister(fd)
                    self._add_lane(src, dst, sock)
                if waiting and time.monotonic() >= limit:
                    src, dst, _ = next(iter(waiting.values()))
                    raise RunError(
                        f"{len(waiting)} connections are not up after {timeout:g} s, the first "
                        f"is {src} -> {dst}; do the switches have rules for both directions of "
                        "the pair?"
                    )

    def warm(self, timeout: float = 30.0) -> None:
        """Send a few packets through every free lane: what TCP and switches learn of a way with its
        first, they know then.

        RunError where nothing arrives for `timeout` s.
        """
        warmed(self, [pair for pair, lanes in self._free.items() for _ in lanes], timeout)

    def _check_files(self, lanes: int) -> None:
        """Two sockets a lane, a listener and a namespace a host, and some to spare."""
        needed = len(self._by_fd) + 2 * lanes + 2 * len(self.network.ip) + 256
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if needed > limit:
            raise RFabricError(
                f"{lanes} connections more need {needed} open files, the limit is {limit}; "
                f"raise it (ulimit -Hn), or use a smaller fabric or a trace with fewer host pairs"
            )

    def _check_pair(self, src: str, dst: str) -> None:
        for host in (src, dst):
            if host not in self.network.ip:
                raise RFabricError(f"no host {host!r} in fabric {self.network.fabric.name}")
        if src == dst:
            raise RFabricError(f"{src} -> {dst}: a flow needs two hosts")

    def _listen(self, host: str) -> None:
        if host not in self._listeners:
            with self.network.namespaces[host]:
                sock = socket.socket()
            few = self.network.window(host)
            buffer = few * PAYLOAD if few < WINDOW else RECEIVE_BUFFER
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            sock.bind((self.network.ip[host], PORT))
            sock.listen(4096)
            sock.settimeout(HANDSHAKE)
            self._listeners[host] = sock

    def _connect(self, src: str, dst: str) -> socket.socket:
        # Nothing paces it: the kernel would by round trips of the flows before, so that one after
        # an all-to-all of 64 hosts, which had waited in long queues, took 87 % longer.
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"cubic")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one port for each receiver
        try:
            sock.bind((self.network.ip[src], self._port(src, dst)))
        except OSError as error:
            raise RunError(f"{src} -> {dst} cannot send: {error.strerror}") from error
        code = sock.connect_ex((self.network.ip[dst], PORT))
        if code not in (0, errno.EINPROGRESS):
            raise RunError(f"{src} -> {dst}: {errno.errorcode[code]}")
        return sock

    def _port(self, src: str, dst: str) -> int:
        """The sender's, of the pair's next lane."""
        number = self._opened[src, dst]
        self._opened[src, dst] += 1
        return port_of(number, self.network.at_once.get((src, dst), 1))

    def _add_lane(self, src: str, dst: str, sender: socket.socket) -> None:
        code = sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise RunError(f"{src} -> {dst} does not connect: {errno.errorcode.get(code, code)}")
        own = sender.getsockname()
        lane = self._lane(src, dst, sender, self._accept(dst, own))
        lane.port = own[1]
        self._release(lane)

    def _release(self, lane: Lane) -> None:
        """Whoever sends next takes the lane of the lowest port: the first of a pair have turns of
        their own.
        """
        heappush(self._free[lane.src, lane.dst], (lane.port, lane))

    def _lane(
        self, src: str, dst: str, sender: socket.socket | None, receiver: socket.socket | None
    ) -> Lane:
        """A lane of these ends; of one between two machines each has one."""
        rate = self.network.rate(src)
        unsent = max(2 * PAYLOAD, int(bytes_in(rate, UNSENT_S)))
        piece = self.network.window(dst) // 2 * PAYLOAD
        if self.network.window(dst) == WINDOW:  # the buffer has room for more than is under way
            piece = max(piece, int(bytes_in(rate, PIECE_S)))
        lane = Lane(src, dst, sender, receiver, unsent, min(piece, SCRATCH, RECEIVE_BUFFER // 4))
        if sender:
            sender.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, unsent)
            self._by_fd[sender.fileno()] = (lane, True)
            self._epoll.register(sender, 0)
        if receiver:
            receiver.setblocking(False)
            self._by_fd[receiver.fileno()] = (lane, False)
            self._epoll.register(receiver, select.EPOLLIN)
        return lane

    def _accept(self, host: str, peer: tuple[str, int]) -> socket.socket:
        """The receiving end of the connection from `peer`; the others that wait are kept for their
        own turn.
        """
        while (host, peer) not in self._accepted:
            try:
                sock, address = self._listeners[host].accept()
            except TimeoutError as error:
                way = f"{peer[0]} -> {host}"
                raise RunError(
                    f"{way}: no acknowledgement in {HANDSHAKE:g} s; is the path still up?"
                ) from error
            self._accepted[host, address] = sock
        return self._accepted.pop((host, peer))

    # --- flows ------------------------------------------------------------------------------------

    def send(self, flow: int, src: str, dst: str, nbytes: int) -> None:
        """Have flow `flow` of `nbytes` start with the next `flush` or `poll`, on a free lane of the
        pair; opens one more where all are busy. RFabricError for one that is under way, or for no
        bytes.
        """
        if flow in self._flows:
            raise RFabricError(f"flow {flow} is already under way")
        if nbytes < 1:
            raise RFabricError(f"flow {flow}: {nbytes} bytes cannot be sent; 1 is the least")
        if not self._free[src, dst]:
            self.open({(src, dst): 1})
        _, lane = heappop(self._free[src, dst])
        lane.flow, lane.size, lane.sent, lane.received, lane.paused = flow, nbytes, 0, 0, False
        lane.late = 0.0
        self._ended.discard(lane)
        self._flows[flow] = lane
        self._set_wake(lane)
        self._begin(lane)

    def _begin(self, lane: Lane) -> None:
        if lane.src not in self._windows:
            self._windows[lane.src] = Windows(self.network.window(lane.src))
        self._windows[lane.src].begin(lane)
        self._starting.append(lane)

    def flush(self) -> None:
        """Start all that is to be sent, at one instant: none takes the NIC as if it were alone."""
        starting, self._starting = self._starting, []
        by_egress = defaultdict(list)
        for lane in starting:
            self._windows[lane.src].open(lane)
            by_egress[lane.src, self.network.line(lane.src, lane.dst)].append(lane)
        for egress, lanes in by_egress.items():
            self._start(egress, lanes, PASSES_S + FIRST_S * len(starting))
        self._let_go()

    def _start(self, egress: Egress, lanes: list[Lane], late: float) -> None:
        """Have lanes send, or wait until a cable would have sent what a full bucket lets go; so
        much less as packets are `late` (s) anyway.
        """
        now, last = time.monotonic(), max((lane.size - 1) % PAYLOAD + 1 for lane in lanes)
        wait = self._at_rest(egress, sum(lane.size for lane in lanes), last, now) - late
        if egress in self._held:
            self._held[egress][1].extend(lanes)
        elif wait > 0:
            self._held[egress] = now + wait, lanes
        else:
            for lane in lanes:
                self._push(lane)

    def _at_rest(self, egress: Egress, nbytes: int, last: int, now: float) -> float:
        """s that a cable takes for what `egress`, if it was at rest, lets go at once of `nbytes`.
        They would end as much too early.

        The `last` bytes, those of the last packet, count elsewhere: what arrives has yet to take
        its time on a cable.
        """
        _, rate = egress
        busy = self._busy.get(egress, 0.0)
        self._busy[egress] = max(busy, now) + transfer_seconds(nbytes, rate)
        return 0.0 if busy > now else transfer_seconds(min(bucket(rate), nbytes - last), rate)

    def _let_go(self) -> None:
        """Those that were held long enough send; the others' time will ring."""
        if not self._held:
            return
        now = time.monotonic()
        for egress in [egress for egress, (at, _) in self._held.items() if at <= now]:
            at, lanes = self._held.pop(egress)
            for lane in lanes:
                lane.late = time.monotonic() - at
                self.lag = max(self.lag, lane.late)
                self._push(lane)
        self._holds.set(min((at for at, _ in self._held.values()), default=now + NEVER))

    def poll(self, timeout: float) -> list[Arrival]:
        """Move bytes for up to `timeout` s, or until a flow completes; returns what completed."""
        limit = time.monotonic() + timeout
        self.flush()
        self._alarm.set(limit)
        while True:
            self._watch_changed()
            for fd, _ in self._epoll.poll(-1 if timeout > 0 else 0, 256):
                if fd != self._alarm.fd:
                    self._serve(fd)
            if self._done or time.monotonic() >= limit:
                done, self._done = self._done, []
                return done

    def _serve(self, fd: int) -> None:
        """What the kernel says of this descriptor has come."""
        if fd == self._holds.fd:
            self._let_go()
            return
        lane, is_sender = self._by_fd[fd]
        (self._push if is_sender else self._pull)(lane)

    def pause(self, flows: Iterable[int]) -> None:
        """Hand no more bytes of these flows to the kernel; what it holds goes out (see
        `unacked`).
        """
        for lane in self._lanes(flows):
            lane.paused = True
            self._watch(lane, False)

    def resume(self, flows: Iterable[int]) -> None:
        """Go on with paused flows."""
        for lane in self._lanes(flows):
            if lane.paused:
                lane.paused = False
                self._push(lane)

    def in_flight(self) -> list[int]:
        """The flows that are not complete, paused ones too."""
        return list(self._flows)

    def unacked(self, flows: Iterable[int]) -> int:
        """Bytes of these flows, and of those that have ended, the senders' kernels still hold:
        unsent, or sent and not acknowledged (SIOCOUTQ).

        Asks the receivers to acknowledge what they have: they hold the acknowledgement of a last
        odd packet for 40 ms.
        """
        held = {
            lane: held
            for lane in (*self._lanes(flows), *self._ended)
            if (held := outq(lane.sender))
        }
        for lane in held:
            lane.receiver.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        self._ended &= held.keys()
        return sum(held.values())

    def progress(self, flow: int) -> tuple[int, int]:
        """(bytes handed to the kernel at the source, bytes read at the destination) of a flow under
        way.
        """
        lane = self._flows[flow]
        return lane.sent, lane.received

    def counted(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """(bytes handed to the kernel, bytes read), int64[n], of completed flows 0 to n-1; 0 where
        none was sent.
        """
        counts = np.array(
            [self._counts.get(flow, (0, 0)) for flow in range(n)], dtype=np.int64
        ).reshape(n, 2)
        return counts[:, 0], counts[:, 1]

    def close(self) -> None:
        """Close every socket; flows under way are lost."""
        for lane, is_sender in self._by_fd.values():
            (lane.sender if is_sender else lane.receiver).close()
        for sock in self._listeners.values():
            sock.close()
        self._epoll.close()
        for alarm in (self._alarm, self._holds):
            alarm.close()

    def _lanes(self, flows: Iterable[int]) -> list[Lane]:
        return [self._flows[flow] for flow in flows if flow in self._flows]

    def _push(self, lane: Lane) -> None:
        if lane.flow is None or lane.paused:
            self._watch(lane, False)
            return
        try:
            while lane.sent < lane.size:
                count = _sent(lane.sender, min(lane.size - lane.sent, lane.unsent, SCRATCH))
                lane.sent += count
                self.bytes_sent += count
                self._windows[lane.src].moved(lane, count)
        except BlockingIOError:
            self._watch(lane, True)
            return
        except OSError as error:
            raise RunError(
                f"flow {lane.flow} {lane.src} -> {lane.dst}: sending failed: {error.strerror}"
            ) from error
        self._watch(lane, False)

    def _watch(self, lane: Lane, on: bool) -> None:
        if lane.watched != on:
            lane.watched = on
            self._changed.add(lane)

    def _watch_changed(self) -> None:
        """Tell the kernel whose buffers are waited for: all at once, as each call hands on the
        interpreter.
        """
        for lane in self._changed:
            self._epoll.modify(lane.sender, select.EPOLLOUT if lane.watched else 0)
        self._changed.clear()

    def _pull(self, lane: Lane) -> None:
        try:
            count = lane.receiver.recv_into(self._scratch, SCRATCH, socket.MSG_TRUNC)
        except BlockingIOError:
            return
        except OSError as error:
            raise RunError(
                f"flow {lane.flow} {lane.src} -> {lane.dst}: receiving failed: {error.strerror}"
            ) from error
        now = time.monotonic()
        if not lane.received:
            lane.begun, lane.early = now, count
        lane.received += count
        self.bytes_received += count
        if lane.flow is None or count == 0 or lane.received > lane.sent:
            raise RunError(
                f"lane {lane.src} -> {lane.dst}, flow {lane.flow}: {lane.sent} bytes sent but "
                f"{lane.received} received{' and the connection closed' if count == 0 else ''}"
            )
        if lane.received == lane.size:
            self._done.append(Arrival(lane.flow, now, lane.begun, lane.early, lane.late))
            self._complete(lane)
        else:
            self._set_wake(lane)

    def _complete(self, lane: Lane) -> None:
        self._counts[lane.flow] = lane.sent, lane.received
        del self._flows[lane.flow]
        self._windows[lane.src].end(lane)
        lane.flow = None
        self._ended.add(lane)
        self._release(lane)

    def _set_wake(self, lane: Lane) -> None:
        """Wake the receiver at the first packet, then after a piece or at the flow's end, whichever
        comes first.
        """
        want = min(lane.piece, lane.size - lane.received) if lane.received else 1
        if want != lane.wake_at:
            lane.wake_at = want
            lane.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, want)


class Carrier(Protocol):
    """What carries flows: a Wire, or the wires of several machines."""

    def open(self, lanes: Mapping[tuple[str, str], int]) -> None:
        """Open so many lanes for each ordered host pair."""

    def warm(self) -> None:
        """Send a few packets through every free lane."""

    def send(self, flow: int, src: str, dst: str, nbytes: int) -> None:
        """Have a flow start with the next `flush` or `poll`."""

    def flush(self) -> None:
        """Start all that is to be sent, at one instant."""

    def poll(self, timeout: float) -> list[Arrival]:
        """Move bytes for up to `timeout` s, or until a flow completes; returns what completed."""

    def in_flight(self) -> list[int]:
        """The flows that are not complete, paused ones too."""

    def pause(self, flows: Iterable[int]) -> None:
        """Hand no more bytes of these flows to the kernel."""

    def resume(self, flows: Iterable[int]) -> None:
        """Go on with paused flows."""

    def unacked(self, flows: Iterable[int]) -> int:
        """Bytes of these flows, and of those that have ended, that senders' kernels still hold."""

    def progress(self, flow: int) -> tuple[int, int]:
        """(bytes sent, bytes received) of a flow under way."""

    def counted(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """(bytes sent, bytes received), int64[n], of completed flows 0 to n-1."""

    @property
    def bytes_received(self) -> int:
        """Bytes read so far, as far as is known here."""


def warmed(wire: Carrier, lanes: Sequence[tuple[str, str]], timeout: float) -> None:
    """Send a few packets through so many free lanes of these pairs; see `Wire.warm`.

    AT_ONCE of a host at once, of neighbours with other senders and receivers: the first packets of
    a way keep a switch busy, and a lane whose packets were late for it would send them again, and
    few at once from then on. Lanes of one pair go together, or one of them would go twice.

    RunError where nothing arrives for `timeout` s.
    """
    lanes = sorted(lanes, key=_diagonals(lanes))
    most = AT_ONCE * len({host for pair in lanes for host in pair})
    limit, sent, under_way = time.monotonic() + timeout, 0, 0
    while sent < len(lanes) or under_way:
        while sent < len(lanes) and (under_way < most or lanes[sent] == lanes[sent - 1]):
            sent, under_way = sent + 1, under_way + 1
            wire.send(-sent, *lanes[sent - 1], FEW * PAYLOAD)
        if arrived := len(wire.poll(0.1)):
            under_way, limit = under_way - arrived, time.monotonic() + timeout
        elif time.monotonic() > limit and (left := wire.in_flight()):
            src, dst = lanes[-1 - left[0]]
            raise RunError(
                f"{len(left)} lanes carry nothing after {timeout:g} s, first {src} -> {dst}"
            )


def _diagonals(pairs: Iterable[tuple[str, str]]) -> Callable[[tuple[str, str]], tuple[int, int]]:
    """A key that sorts pairs so that neighbours have other senders and other receivers."""
    hosts = sorted({host for pair in pairs for host in pair})
    number = {host: i for i, host in enumerate(hosts)}
    return lambda pair: ((number[pair[1]] - number[pair[0]]) % len(hosts), number[pair[0]])


def _sent(sock: socket.socket, size: int) -> int:
    """Bytes of `size` that the kernel took; BlockingIOError where it takes none now."""
    count = SEND(sock.fileno(), ZEROS, size, socket.MSG_NOSIGNAL)
    if count < 0:
        raise _failed()
    return count


def _failed() -> OSError:
    """What the last call was refused for."""
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))


def outq(sock: socket.socket) -> int:
    """Bytes that the kernel holds of what a socket sends: unsent, or not acknowledged."""
    return struct.unpack("i", fcntl.ioctl(sock, SIOCOUTQ, b"\0\0\0\0"))[0]

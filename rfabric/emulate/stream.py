"""A stream of small packets between many hosts: what a fault loses, and how long; and TCP flows,
which lose nothing.

    every PERIOD_S one packet of each pair, numbered     --> which arrived, by round and pair
    lost       packets that never came
    silent     from the first lost packet of a pair to its next that came, the longest of all pairs

One thread sends and listens; the sockets lie in the hosts' namespaces.
"""

import contextlib
import os
import select
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .network import EmulatedNetwork

PORT = 5002  # beside the replay's own
PERIOD_S = 0.02  # s between two packets of a pair: what is silent for less is not seen
SETTLE_S = 0.5  # s a packet may be on its way
NUMBER = struct.Struct("!II")  # round and pair
LOOK_S = 0.2  # s in which nothing may be lost where all is well
BATCH = 2048  # bytes; no packet of this stream is longer
CHUNK = 8192  # bytes that a TCP flow writes every PERIOD_S: about one packet
READ = 1 << 20  # bytes, at the most, at one go


@dataclass(frozen=True)
class Loss:
    """Of `sent` packets `lost` never came; the longest that a pair was silent for it, in s."""

    sent: int
    lost: int
    silent: float


Round = tuple[float, bytearray]  # when it was sent (s), and for each pair whether it came


class Stream:
    """Packets between `pairs` of a network that is up, as long as the block lasts."""

    def __init__(self, network: EmulatedNetwork, pairs: Sequence[tuple[str, str]]):
        self.network, self.pairs = network, pairs
        self._sockets: dict[str, socket.socket] = {}
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._first = 0  # the number of the first round since the mark
        self._rounds: list[Round] = []

    def __enter__(self) -> "Stream":
        for host in {host for pair in self.pairs for host in pair}:
            self._sockets[host] = self._socket(host)
        self.mark()
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._ended.set()
        self._thread.join()
        for sock in self._sockets.values():
            sock.close()

    def mark(self) -> None:
        """Forget what was: what `loss` tells begins now."""
        with self._lock:
            self._first += len(self._rounds)
            self._rounds = []

    def loss(self) -> Loss:
        """What was lost since the mark; packets that may still be on their way are waited for."""
        with self._lock:
            rounds = list(self._rounds)
        return _settled(rounds)

    def works(self, within: float) -> bool:
        """Whether within so many s there comes a time in which nothing is lost."""
        limit = time.monotonic() + within
        while time.monotonic() < limit:
            if not self._looked().lost:
                return True
        return False

    def _looked(self) -> Loss:
        """What is lost just now; the mark stays."""
        with self._lock:
            at = len(self._rounds)
        time.sleep(LOOK_S)
        with self._lock:
            rounds = self._rounds[at:]
        return _settled(rounds)

    def _socket(self, host: str) -> socket.socket:
        with self.network.namespaces[host]:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setblocking(False)
        sock.bind((self.network.ip[host], PORT))
        return sock

    def _run(self) -> None:
        poller = select.epoll()
        by_fd = {sock.fileno(): sock for sock in self._sockets.values()}
        for fd in by_fd:
            poller.register(fd, select.EPOLLIN)
        due = time.monotonic()
        with contextlib.closing(poller):
            while not self._ended.is_set():
                if time.monotonic() >= due:
                    due = max(due + PERIOD_S, time.monotonic())
                    self._send()
                for fd, _ in poller.poll(max(0.0, due - time.monotonic())):
                    self._read(by_fd[fd])

    def _send(self) -> None:
        with self._lock:
            number = self._first + len(self._rounds)
            self._rounds.append((time.monotonic(), bytearray(len(self.pairs))))
        for pair, (src, dst) in enumerate(self.pairs):
            with contextlib.suppress(OSError):  # a cable that is down takes nothing: it is lost
                to = self.network.ip[dst], PORT
                self._sockets[src].sendto(NUMBER.pack(number, pair), to)

    def _read(self, sock: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                number, pair = NUMBER.unpack(sock.recv(BATCH))
                with self._lock:
                    if number >= self._first:
                        self._rounds[number - self._first][1][pair] = 1


def _settled(rounds: Sequence[Round]) -> Loss:
    """What is lost of these rounds, when all that is on its way has come."""
    time.sleep(SETTLE_S)
    return lost_of([at for at, _ in rounds], [bytes(got) for _, got in rounds])


def lost_of(at: Sequence[float], got: Sequence[bytes]) -> Loss:
    """What is lost of rounds sent `at` (s), of which each pair's byte says whether it came."""
    if not at:
        return Loss(0, 0, 0.0)
    came = np.frombuffer(b"".join(got), np.uint8).reshape(len(at), -1) > 0
    silent = max(_longest(np.asarray(at), column) for column in ~came.T)
    return Loss(came.size, int((~came).sum()), silent)


def _longest(times: np.ndarray, lost: np.ndarray) -> float:
    """The longest time from a lost packet to the next that came, or to the last of all."""
    edges = np.flatnonzero(np.diff(np.r_[False, lost, False].astype(np.int8)))
    begins, ends = edges[::2], np.minimum(edges[1::2], len(times) - 1)
    return float((times[ends] - times[begins]).max(initial=0.0))


class TcpFlow:
    """A TCP connection from `src` to `dst` of a network that is up."""

    def __init__(self, network: EmulatedNetwork, src: str, dst: str):
        self.name = f"{src} -> {dst}"
        self.written = self.read = 0  # bytes
        self._sums = [0, 0]  # of what was written, and read
        self.error = ""
        with network.namespaces[dst]:
            listener = socket.create_server((network.ip[dst], 0))
        with network.namespaces[src]:
            self._out = socket.create_connection(listener.getsockname())
        self._in, _ = listener.accept()
        listener.close()
        for sock in (self._out, self._in):
            sock.setblocking(False)

    @property
    def whole(self) -> bool:
        """Whether all that was written has been read, the same bytes in the same order."""
        return self.read == self.written and self._sums[0] == self._sums[1]

    def write(self) -> None:
        """As much of a CHUNK as the socket takes."""
        chunk = os.urandom(CHUNK)
        taken = self._out.send(chunk)
        self.written += taken
        self._sums[0] = zlib.crc32(chunk[:taken], self._sums[0])

    def hear(self) -> None:
        """All that has come."""
        while data := self._in.recv(READ):
            self.read += len(data)
            self._sums[1] = zlib.crc32(data, self._sums[1])

    def close(self) -> None:
        """Both ends."""
        self._out.close()
        self._in.close()


class TcpFlows:
    """TCP flows between `pairs` of a network that is up, as long as the block lasts."""

    def __init__(self, network: EmulatedNetwork, pairs: Sequence[tuple[str, str]]):
        self.network, self.pairs = network, pairs
        self.flows: list[TcpFlow] = []
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._writes = True

    def __enter__(self) -> "TcpFlows":
        self.flows = [TcpFlow(self.network, *pair) for pair in self.pairs]
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._ended.set()
        self._thread.join()
        for flow in self.flows:
            flow.close()

    def short(self, within: float) -> list[str]:
        """Stop writing until all has arrived; what has not after so many s, in words."""
        with self._lock:
            self._writes = False
        limit = time.monotonic() + within
        while not all(flow.whole for flow in self.flows) and time.monotonic() < limit:
            time.sleep(PERIOD_S)
        with self._lock:
            self._writes = True
            return [
                f"of a TCP flow {flow.name} {flow.read:,} of {flow.written:,} bytes arrived"
                + (f" ({flow.error})" if flow.error else "")
                for flow in self.flows
                if not flow.whole
            ]

    def _run(self) -> None:
        while not self._ended.wait(PERIOD_S):
            with self._lock:
                for flow in self.flows:
                    for do in (flow.write, flow.hear) if self._writes else (flow.hear,):
                        self._do(flow, do)

    @staticmethod
    def _do(flow: TcpFlow, do: Callable[[], None]) -> None:
        try:
            do()
        except BlockingIOError:
            pass
        except OSError as error:
            flow.error = str(error)

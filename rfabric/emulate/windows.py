"""How many packets of a flow may be under way: as many as its share of its card needs.

    a lone flow              as many as its way may hold (`network.packets_under_way`)
    one of n, none held up   2/n of that, and two at least
    one held up far away     two, as its share of the card shrinks; the others' shares grow

A flow that is held up far away takes its turns at its own card until all that it may have under
way waits there, and flows that end nearby end later by as many packets. In an all-to-all of 16
hosts whose uplinks are oversubscribed (MixNet) one flow in ten was 4.8 % off or more with a window
for each that a lone flow needs, now 0.9 %.
"""

import socket
from functools import lru_cache
from typing import Protocol

import numpy as np

from ..trace.packets import PAYLOAD

LEAST = 2  # packets: one that waits for its turn while the other is acknowledged
SLACK = 2  # what a flow of that rate needs is a guess, and its round trips differ
ROUNDS = 4  # packets of each flow, in the mean, after which shares are worked out again
# bytes that the kernel counts for a packet beside its payload, and of the last packet that it may
# take what must be free: it says that there is room when a third of the buffer is
KEPT, ROOM = 1280, 0.4
SENDS = 4 << 20  # bytes of buffer of a flow that may have as many packets as its way holds


def window_of(share: float | np.ndarray, most: int | np.ndarray) -> np.ndarray:
    """Packets that a flow with such a share of its card may have under way, where a lone one may
    have `most`.
    """
    return np.minimum(np.maximum(np.ceil(SLACK * most * share), LEAST), most)


class Sender(Protocol):
    """What sends one flow at a time: a lane."""

    sender: socket.socket
    window: int


class Windows:
    """The windows of the flows that one card sends; `most`: packets of a lone one."""

    def __init__(self, most: int):
        self.most = most
        self._sent: dict[Sender, int] = {}  # bytes since shares were worked out
        self._all = 0

    def begin(self, lane: Sender) -> None:
        """A flow will start on this lane. Where several start at one instant all are to begin
        before the first of them sends.
        """
        self._sent[lane] = 0

    def open(self, lane: Sender) -> None:
        """All that start now have begun, and this one may send."""
        self._set(lane, 1 / len(self._sent))

    def moved(self, lane: Sender, nbytes: int) -> None:
        """The card took `nbytes` more of this flow."""
        if lane not in self._sent:
            return
        self._sent[lane] += nbytes
        self._all += nbytes
        if self._all >= ROUNDS * PAYLOAD * max(len(self._sent), self.most):
            for one, sent in self._sent.items():
                self._set(one, sent / self._all)
                self._sent[one] = 0
            self._all = 0

    def end(self, lane: Sender) -> None:
        """The flow on this lane has been sent."""
        self._all -= self._sent.pop(lane, 0)

    def _set(self, lane: Sender, share: float) -> None:
        window = _whole(share, self.most)
        if window != lane.window:
            lane.window = window
            lane.sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._buffer(window) // 2)

    def _buffer(self, window: int) -> int:
        """Bytes in which the kernel keeps so many packets, and no more; it doubles what it is
        told.
        """
        return SENDS if window == self.most else round((window - ROOM) * (PAYLOAD + KEPT))


@lru_cache(256)  # flows that start together have one share, and each waits for those before it
def _whole(share: float, most: int) -> int:
    return int(window_of(share, most))

"""What the controller needs of switches and of a clock: OpenFlow in `app`, memory in `fake`."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .flowmods import Entry
from .seam import Push

PortMap = dict[int, int]  # in-port -> out-port of one OCS
HeldFlows = dict[tuple, Entry]  # all that a switch holds, by Entry.key
# s: eventlet's sleep ends up to a millisecond late (epoll counts whole ones); the rest is waited
# for awake
SPIN = 1.5e-3


class Switches(Protocol):
    """What `Core` needs of the switches; all by datapath id."""

    def present(self) -> set[int]:
        """Those that are connected."""

    def push(self, messages: Mapping[int, Sequence[bytes]], timeout_s: float) -> Push:
        """Send to all in a burst, and wait for all their barriers."""

    def flows(self, asked: Mapping[int, Sequence[bytes]], timeout_s: float) -> dict[int, HeldFlows]:
        """What those hold that answer, of what they are asked for (`flowmods.ask_flows`)."""

    def received(self, dpid: int) -> Mapping[int, int]:
        """Bytes that each port had received when a `flowmods.count_ports()` reached the switch
        last.
        """

    def lost(self, dpid: int) -> Mapping[int, int] | None:
        """Of an OCS that times its dark itself (`flowmods.move`): bytes that met the dark, by
        in-port, as it told last; None of every other.
        """


def crossbar_of(flows: HeldFlows) -> PortMap:
    """The crossbar among the flows of an OCS; 0 for an in-port that leads nowhere."""
    return {
        fields["in_port"]: entry.out or 0
        for entry in flows.values()
        if "in_port" in (fields := dict(entry.match))
    }


@dataclass(frozen=True)
class SystemClock:
    """CLOCK_MONOTONIC, and a sleep that ends on the instant rather than at the next tick.

    `sleep` lets others run.
    """

    sleep: Callable[[float], None] = time.sleep

    def now(self) -> float:
        """s."""
        return time.monotonic()

    def sleep_until(self, instant: float) -> None:
        """Return at `instant` (s of `now`), not before; at once where it has passed."""
        while (left := instant - time.monotonic()) > 0:
            self.sleep(left - SPIN if left > SPIN else 0)

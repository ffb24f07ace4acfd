"""What the ports of the switches have counted so far, by directed cable; read in one go.

Every segment has the same headers, whether it carries data or acknowledges: so bytes and packets
together say how many bytes of payload went by, whatever acknowledgements came along.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from ..errors import RunError
from ..fabric import Fabric
from ..trace.packets import HEADERS
from .shaping import ETHERNET

# of the columns of /proc/net/dev (proc(5)) after the name: bytes and packets in, then out
RX, TX = slice(0, 2), slice(8, 10)
DROPS = (3, 11)


class PortCounters:
    """The counters of a fabric's switch ports, as the network namespace of this thread has them.

    hidden: bytes of each packet sent that some interfaces do not count.
    """

    def __init__(self, fabric: Fabric, hidden: Mapping[str, int] = MappingProxyType({})):
        self.hidden = hidden
        self.directed = 2 * len(fabric.links)
        self.sends: dict[str, int] = {}  # by interface, the directed cable it sends on
        self.gets: dict[str, int] = {}  # the same of what comes from hosts, which count elsewhere
        for node in fabric.switches:
            for port in fabric.ports[node.name]:
                link, other = fabric.peer[port]
                self.sends[port.interface] = link
                if fabric.node[other.node].kind == "host":
                    self.gets[port.interface] = link ^ 1

    def read(self) -> tuple[np.ndarray, int]:
        """(bytes and packets of frames by directed cable, int64[2m, 2]; packets dropped)."""
        counted, dropped = np.zeros((self.directed, 2), np.int64), 0
        for name, counts in _rows():
            if name in self.sends:
                counted[self.sends[name]] = counts[TX]
                counted[self.sends[name], 0] += self.hidden.get(name, 0) * counts[TX][1]
                dropped += sum(counts[column] for column in DROPS)
            if name in self.gets:
                counted[self.gets[name]] = counts[RX]
        return counted, dropped


def settle(
    read: Callable[[], tuple[np.ndarray, int]],
    unacked: Callable[[], int],
    still: float,
    timeout: float = 60.0,
) -> None:
    """Wait until no sender waits for an acknowledgement and, for `still` s, no port has sent: what
    TCP sent again though it had only waited long would count for what comes next.

    read: as `PortCounters.read`. RunError where that takes more than `timeout` s.
    """
    limit = time.monotonic() + timeout
    seen, since = read()[0], time.monotonic()
    while (now := time.monotonic()) - since < still:
        if now > limit:
            raise RunError(f"packets are under way {timeout:g} s after all had arrived")
        time.sleep(min(still / 4, 0.05))
        counted = read()[0]
        if unacked() or not np.array_equal(counted, seen):
            seen, since = counted, time.monotonic()


def payload(counted: np.ndarray) -> np.ndarray:
    """Bytes of payload in frames, float64[2m]; `counted` as `PortCounters.read` gives them."""
    return (counted[:, 0] - (ETHERNET + HEADERS) * counted[:, 1]).astype(float)


def _rows() -> list[tuple[str, list[int]]]:
    rows = Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]
    split = (row.split(":", 1) for row in rows)
    return [(name.strip(), [int(n) for n in text.split()]) for name, text in split]

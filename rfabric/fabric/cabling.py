"""A fabric as arrays.

A port is named by the directed link that leaves it: 2i at end a of cable i, 2i + 1 at end b. The
port at the other end of its cable is then p ^ 1, and p ^ 1 is the link that comes back.
"""

from functools import cached_property

import numpy as np

from .kept import kept
from .model import Fabric


@kept
def cabling_of(fabric: Fabric) -> "Cabling":
    """The arrays of a fabric, made once."""
    return Cabling(fabric)


def host_numbers(fabric: Fabric, names: tuple[str, ...]) -> np.ndarray:
    """int64[names]: the number of each host in the fabric; those that were asked for last are
    kept.
    """
    if (kept := fabric.memo.get("host numbers")) is None or kept[0] != names:
        numbers = np.array([fabric.host_index[name] for name in names], dtype=np.int64)
        numbers.flags.writeable = False
        fabric.memo["host numbers"] = kept = names, numbers
    return kept[1]


class Cabling:
    """A fabric's ports, nodes and hosts by number.

    node, number: int64[2m], owner (index into `nodes`) and OpenFlow number of each port; rate,
    delay: float64[2m] bit/s and s; is_ocs: bool[nodes]; place: int64[nodes], that of each name
    among all of them, ascending; packet_ports: the ports of hosts and packet switches, ascending as
    Ports; row: int64[nodes], which packet switch a node is, -1 for others; rack: int64[nodes],
    which rack it is, likewise; host_link: the link that leaves each host; host_rack: the number of
    its rack.
    """

    def __init__(self, fabric: Fabric):
        self._names = [node.name for node in fabric.nodes]
        index = {node.name: i for i, node in enumerate(fabric.nodes)}
        ends = [end for link in fabric.links for end in (link.a, link.b)]
        self.node = np.array([index[end.node] for end in ends], dtype=np.int64)
        self.number = np.array([end.number for end in ends], dtype=np.int64)
        self.rate = np.repeat([link.rate for link in fabric.links], 2).astype(float)
        self.delay = np.repeat([link.delay for link in fabric.links], 2).astype(float)
        self.is_ocs = np.array([node.kind == "ocs" for node in fabric.nodes])
        self.place = np.argsort(np.argsort(np.array(self._names)))
        self.packet_ports = self.ascending(np.flatnonzero(~self.is_ocs[self.node]))
        self.row = self._count(np.array([node.kind == "eps" for node in fabric.nodes]))
        self.rack = np.full(len(fabric.nodes), -1, dtype=np.int64)
        self.rack[[index[name] for name in fabric.racks]] = np.arange(len(fabric.racks))
        host = self._count(np.array([node.kind == "host" for node in fabric.nodes]))
        leaves = np.flatnonzero(host[self.node] >= 0)
        self.host_link = np.empty(len(fabric.hosts), np.int64)
        self.host_link[host[self.node[leaves]]] = leaves
        self.host_rack = self.rack[self.node[self.host_link ^ 1]]
        self.rack_row = self.row[[index[name] for name in fabric.racks]]

    @property
    def degree(self) -> np.ndarray:
        """int64[nodes]: how many cables each has."""
        return np.bincount(self.node, minlength=len(self._names))

    @cached_property
    def reaches_ocs(self) -> np.ndarray:
        """bool[2m]: whether the cable at each port leads to an OCS."""
        return self.is_ocs[self.node[np.arange(len(self.node)) ^ 1]]

    @cached_property
    def order(self) -> np.ndarray:
        """int64[2m]: all ports, `ascending`."""
        return self.ascending(np.arange(len(self.node)))

    @cached_property
    def rank(self) -> np.ndarray:
        """int64[2m]: where each port stands in `order`."""
        return np.argsort(self.order)

    def ascending(self, ports: np.ndarray) -> np.ndarray:
        """These ports in the order of Ports: by the name of their node, then by number."""
        return ports[np.lexsort((self.number[ports], self.place[self.node[ports]]))]

    def spelled(self, ports: np.ndarray) -> list[str]:
        """Each as a Port prints: `o2:3`."""
        return self._spelled[ports].tolist()

    @cached_property
    def _spelled(self) -> np.ndarray:
        ends = zip(self.node.tolist(), self.number.tolist(), strict=True)
        return np.array([f"{self._names[node]}:{number}" for node, number in ends], object)

    @staticmethod
    def _count(of: np.ndarray) -> np.ndarray:
        return np.where(of, np.cumsum(of) - 1, -1)

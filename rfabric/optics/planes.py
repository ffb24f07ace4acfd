"""From "join these racks in this plane" to circuits of the OCSes on the way.

In one plane of RFabric a ToR has one uplink, to its pod's aggregation OCS. Two ToRs of a pod are joined by one circuit there; two
ToRs of different pods by three: aggregation, core, aggregation. There are as many cables to the core as ToRs in a pod, so
every matching of ToRs can be lit; the up-cable is the ToR's own number, hence lighting one pair never moves another.
"""

from collections.abc import Iterable

from ..errors import RFabricError
from ..fabric import Fabric, Port
from .circuits import Circuit, Circuits

Pair = tuple[str, str]


def planes(fabric: Fabric) -> list[int]:
    """The planes that hold OCSes, ascending."""
    return sorted({n.plane for n in fabric.ocses})


def light(fabric: Fabric, matchings: dict[int, Iterable[Pair]]) -> Circuits:
    """The circuits that join, in each plane, the pairs of racks of its matching; each rack at most once a plane."""
    circuits: set[Circuit] = set()
    for plane, pairs in matchings.items():
        uplink = _uplinks(fabric, plane)
        used: set[str] = set()
        for a, b in pairs:
            for rack in (a, b):
                if rack in used or rack not in uplink:
                    raise RFabricError(f"plane {plane}: rack {rack} has one uplink, it cannot be joined twice")
                used.add(rack)
            circuits |= _join(fabric, uplink[a], uplink[b])
    return Circuits(frozenset(circuits))


def _uplinks(fabric: Fabric, plane: int) -> dict[str, Port]:
    """The aggregation port (OCS side) of each rack's uplink in this plane."""
    return {
        fabric.peer[port][1].node: port
        for node in fabric.ocses
        if node.plane == plane
        for port in fabric.ports[node.name]
        if fabric.peer[port][1].node in fabric.rack_index
    }


def _join(fabric: Fabric, a: Port, b: Port) -> set[Circuit]:
    if a.node == b.node:
        return {Circuit.of(a, b)}
    up_a, up_b = _own_uplink(fabric, a), _own_uplink(fabric, b)
    core_a, core_b = fabric.peer[up_a][1], fabric.peer[up_b][1]
    return {Circuit.of(a, up_a), Circuit.of(core_a, core_b), Circuit.of(up_b, b)}


def _own_uplink(fabric: Fabric, port: Port) -> Port:
    """The core-facing port kept for the ToR at `port`: ToR ports and core ports of an aggregation OCS pair up in order."""
    ports = fabric.ports[port.node]
    below = [p for p in ports if fabric.peer[p][1].node in fabric.rack_index]
    above = [p for p in ports if fabric.peer[p][1].node not in fabric.rack_index]
    return above[below.index(port)]

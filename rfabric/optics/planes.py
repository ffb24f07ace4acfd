"""From "join these racks in this plane" to circuits of the OCSes on the way.

In one plane of RFabric a ToR has one uplink, to its pod's aggregation OCS. Two ToRs of a pod are joined by one circuit there; two
ToRs of different pods by three: aggregation, core, aggregation. There are as many cables to the core as ToRs in a pod, so
every matching of ToRs can be lit; the up-cable is the ToR's own number, hence lighting one pair never moves another.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ..errors import RFabricError
from ..fabric import Fabric, Port
from .circuits import Circuit, Circuits

Pair = tuple[str, str]


def planes(fabric: Fabric) -> list[int]:
    """The planes that hold OCSes, ascending."""
    return sorted({n.plane for n in fabric.ocses})


def light(fabric: Fabric, matchings: dict[int, Iterable[Pair]]) -> Circuits:
    """The circuits that join, in each plane, the pairs of racks of its matching; each rack at most once a plane."""
    circuits: list[Circuit] = []
    every = uplinks(fabric)
    for plane, pairs in matchings.items():
        uplink = every.get(plane, {})
        used: set[str] = set()
        for a, b in pairs:
            for rack in (a, b):
                if rack in used or rack not in uplink:
                    raise RFabricError(f"plane {plane}: rack {rack} has one uplink, it cannot be joined twice")
                used.add(rack)
            circuits += _join(uplink[a], uplink[b])
    return Circuits(frozenset(circuits))


class Uplink(NamedTuple):
    """A rack's way up in one plane: its port at the aggregation OCS; with a core, the circuit up and the core's port."""

    port: Port
    up: Circuit | None
    core: Port | None


def uplinks(fabric: Fabric) -> dict[int, dict[str, Uplink]]:
    """By plane and rack. The core-facing port kept for a ToR: ToR ports and core ports of an aggregation OCS pair up in order."""
    if "uplinks" not in fabric.memo:
        fabric.memo["uplinks"] = _uplinks(fabric)
    return fabric.memo["uplinks"]


def _uplinks(fabric: Fabric) -> dict[int, dict[str, Uplink]]:
    found: dict[int, dict[str, Uplink]] = {}
    for node in fabric.ocses:
        ports = fabric.ports[node.name]
        racks = [(port, fabric.peer[port][1].node) for port in ports]
        below = [(port, rack) for port, rack in racks if rack in fabric.rack_index]
        above = [port for port, rack in racks if rack not in fabric.rack_index]
        kept = [*above, *[None] * (len(below) - len(above))]
        for (port, rack), up in zip(below, kept, strict=False):
            way = (Circuit.of(port, up), fabric.peer[up][1]) if up else (None, None)
            found.setdefault(node.plane, {})[rack] = Uplink(port, *way)
    return found


def _join(a: Uplink, b: Uplink) -> tuple[Circuit, ...]:
    if a.port.node == b.port.node:
        return (Circuit.of(a.port, b.port),)
    return a.up, Circuit.of(a.core, b.core), b.up

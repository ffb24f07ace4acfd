"""From "join these racks in this plane" to circuits of the OCSes on the way.

In one plane of RFabric a ToR has one uplink, to its pod's aggregation OCS. Two ToRs of a pod are
joined by one circuit there; two ToRs of different pods by three: aggregation, core, aggregation.
There are as many cables to the core as ToRs in a pod, so every matching of ToRs can be lit; the
up-cable is the ToR's own number, hence lighting one pair never moves another. Where a plane needs
several core OCSes, `cores` says which pair crosses which. A fabric may hold OCSes that nothing
joins (one per region): `regions` says which racks a plane can join at all.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..errors import RFabricError
from ..fabric import Fabric, Port
from ..routing.lightpaths import note_ends
from .circuits import Circuit, Circuits
from .cores import cores_of

Pair = tuple[str, str]


def planes(fabric: Fabric) -> list[int]:
    """The planes that hold OCSes, ascending."""
    return sorted({n.plane for n in fabric.ocses})


def light(fabric: Fabric, matchings: dict[int, Iterable[Pair]]) -> Circuits:
    """The circuits that join, in each plane, the pairs of racks of its matching; each rack at most
    once a plane.
    """
    circuits: list[Circuit] = []
    ports: list[int] = []  # the two of each circuit, by number
    every = uplinks(fabric)
    for plane, pairs in matchings.items():
        pairs = _checked(fabric, plane, pairs)
        uplink, cores = every.get(plane, {}), _cores(fabric).get(plane, {})
        pairs = sorted(pairs) if len(cores) > 1 else pairs
        ends = [(uplink[a], uplink[b]) for a, b in pairs]
        near = [(a, b) for a, b in ends if a.port.node == b.port.node]
        far = [(a, b) for a, b in ends if a.port.node != b.port.node]
        circuits += [Circuit.of(a.port, b.port) for a, b in near]
        ports += [up.number for both in near for up in both]
        if len(cores) > 1:
            found = _through_cores(fabric, far, cores)
        else:
            found = [(_join(a, b), (a.above, b.above)) for a, b in far]
        circuits += [circuit for three, _ in found for circuit in three]
        for (a, b), (_, (over, under)) in zip(far, found, strict=True):
            ports += (a.number, over, over ^ 1, under ^ 1, b.number, under)
    lit = Circuits(frozenset(circuits))
    note_ends(fabric, lit, np.array(ports, np.int32).reshape(-1, 2).T)
    return lit


def regions(fabric: Fabric) -> dict[int, dict[str, int]]:
    """By plane and rack, the number of the optical network its uplink leads to: only racks of one
    number can be joined there.
    """
    if "regions" not in fabric.memo:
        fabric.memo["regions"] = {
            plane: _regions(fabric, racks) for plane, racks in uplinks(fabric).items()
        }
    return fabric.memo["regions"]


def _regions(fabric: Fabric, racks: dict[str, "Uplink"]) -> dict[str, int]:
    """An OCS without a way up is an optical network of its own; those with one meet in the core, of
    one OCS or several.
    """
    first = {rack: "" if up.core else up.port.node for rack, up in racks.items()}
    number = {name: i for i, name in enumerate(dict.fromkeys(first.values()))}
    return {rack: number[name] for rack, name in first.items()}


def _checked(fabric: Fabric, plane: int, pairs: Iterable[Pair]) -> list[Pair]:
    """The pairs, when every rack has an uplink in the plane, stands once, and can reach its
    partner.
    """
    used: set[str] = set()
    region, pairs = regions(fabric).get(plane, {}), list(pairs)
    for a, b in pairs:
        for rack in (a, b):
            if rack in used or rack not in region:
                raise RFabricError(
                    f"plane {plane}: rack {rack} has one uplink, it cannot be joined twice"
                )
            used.add(rack)
        if region[a] != region[b]:
            raise RFabricError(
                f"plane {plane}: no OCS joins {a} and {b}; they lie in different regions "
                "(optics.regions)"
            )
    return pairs


class Uplink(NamedTuple):
    """A rack's way up in one plane: its port at the aggregation OCS; with a core, the circuit up
    and the core's port. `number` and `above` are those of the ports that this circuit joins.
    """

    port: Port
    up: Circuit | None
    core: Port | None
    number: int
    above: int


def uplinks(fabric: Fabric) -> dict[int, dict[str, Uplink]]:
    """By plane and rack.

    The core-facing port kept for a ToR: ToR ports and core ports of an aggregation OCS pair up in
    order.
    """
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
            numbers = fabric.peer[port][0], fabric.peer[up][0] if up else -1
            found.setdefault(node.plane, {})[rack] = Uplink(port, *way, *numbers)
    return found


def _join(a: Uplink, b: Uplink) -> tuple[Circuit, ...]:
    return a.up, Circuit.of(a.core, b.core), b.up


def _cores(fabric: Fabric) -> dict[int, dict[str, dict[str, list[Port]]]]:
    """By plane, core OCS and aggregation OCS: the ports of the latter whose cables lead to that
    core.
    """
    if "cores" not in fabric.memo:
        found: dict[int, dict[str, dict[str, list[Port]]]] = {}
        for node in fabric.ocses:
            for port in fabric.ports[node.name]:
                peer = fabric.peer[port][1].node
                if node.tier == "aggregation" and fabric.node[peer].kind == "ocs":
                    found.setdefault(node.plane, {}).setdefault(peer, {}).setdefault(
                        node.name, []
                    ).append(port)
        fabric.memo["cores"] = found
    return fabric.memo["cores"]


def _through_cores(
    fabric: Fabric, pairs: list[tuple[Uplink, Uplink]], cores: dict[str, dict[str, list[Port]]]
) -> list[tuple[tuple[Circuit, ...], tuple[int, int]]]:
    """The circuits of each pair of different aggregation OCSes through several core OCSes, and the
    numbers of both ports up.
    """
    number = {
        agg: i
        for i, agg in enumerate(dict.fromkeys(agg for below in cores.values() for agg in below))
    }
    names = list(cores)
    cables = sum(len(below[next(iter(number))]) for below in cores.values())
    free = {
        core: {agg: iter(ports) for agg, ports in below.items()} for core, below in cores.items()
    }
    found = []
    chosen = cores_of(
        [(number[a.port.node], number[b.port.node]) for a, b in pairs], cables, len(names)
    )
    for (a, b), i in zip(pairs, chosen, strict=True):
        over, under = (next(free[names[i]][end.port.node]) for end in (a, b))
        (m, top), (n, other) = fabric.peer[over], fabric.peer[under]
        three = Circuit.of(a.port, over), Circuit.of(top, other), Circuit.of(b.port, under)
        found.append((three, (m, n)))
    return found

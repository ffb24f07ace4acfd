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
from ..fabric import Fabric
from ..fabric.cabling import cabling_of
from ..fabric.kept import kept
from ..routing.rows import distinct, offsets_of, ranks
from .circuits import Circuits
from .cores import cores_of
from .numbered import NumberedCircuits

RackPair = tuple[str, str]  # their names


def planes(fabric: Fabric) -> list[int]:
    """The planes in which racks have uplinks to OCSes, ascending; a core may stand in none."""
    return list(uplinks(fabric))


def light(fabric: Fabric, matchings: dict[int, Iterable[RackPair]]) -> Circuits:
    """The circuits that join, in each plane, the pairs of racks of its matching; each rack at most
    once a plane.
    """
    return join(fabric, {plane: numbers(fabric, plane, p) for plane, p in matchings.items()})


def numbers(fabric: Fabric, plane: int, pairs: Iterable[RackPair]) -> np.ndarray:
    """Pairs of racks of a plane as numbers of racks, int64[2, pairs]; RFabricError for a name that
    is no rack's.
    """
    index, pairs = fabric.rack_index, list(pairs)
    try:
        return np.array([(index[a], index[b]) for a, b in pairs], np.int64).reshape(-1, 2).T
    except KeyError as error:
        raise RFabricError(
            f"plane {plane}: fabric {fabric.name} has no rack {error.args[0]!r}"
        ) from None


def join(fabric: Fabric, matchings: dict[int, np.ndarray]) -> Circuits:
    """`light`, of pairs as numbers of racks, int64[2, pairs]."""
    ends = [np.zeros((2, 0), np.int64)]
    for plane, racks in matchings.items():
        if racks.size:
            _check(fabric, plane, racks)
            ends += _ends(fabric, plane, racks)
    return NumberedCircuits(fabric, np.concatenate(ends, axis=1))


def _ends(fabric: Fabric, plane: int, racks: np.ndarray) -> list[np.ndarray]:
    """The ports that circuits join (int64[2, n]) for pairs of racks (numbers, int64[2, pairs]):
    those of one OCS there; others up, in the core, and up on the other side.
    """
    up, cores, c = uplinks(fabric)[plane], _cores(fabric).get(plane), cabling_of(fabric)
    several = cores is not None and cores.count > 1
    if several:
        name = c.place[np.flatnonzero(c.rack >= 0)][racks]
        racks = racks[:, np.lexsort((name[1], name[0]))]
    ports = up.port[racks]
    far = c.node[ports[0]] != c.node[ports[1]]
    below = ports[:, far]
    above = _through_cores(c.node[below], cores) if several else up.above[racks[:, far]]
    return [ports[:, ~far], *np.stack((below, above), axis=1), above ^ 1]


@kept
def regions(fabric: Fabric) -> dict[int, dict[str, int]]:
    """By plane and rack, the number of the optical network its uplink leads to: only racks of one
    number can be joined there.
    """
    return {plane: _regions(fabric, up) for plane, up in uplinks(fabric).items()}


def _regions(fabric: Fabric, up: "Uplinks") -> dict[str, int]:
    """An OCS without a way up is an optical network of its own; those with one meet in the core, of
    one OCS or several.
    """
    racks, ocs = up.racks, cabling_of(fabric).node[up.port[up.racks]]
    lies = _first_come(np.where(up.above[racks] >= 0, -1, ocs))
    return {fabric.racks[rack]: i for rack, i in zip(racks.tolist(), lies.tolist(), strict=True)}


@kept
def region_table(fabric: Fabric) -> np.ndarray:
    """int64[planes, racks]: racks of one number can be joined in that plane; -1 where a rack has no
    uplink.
    """
    by_plane, racks = regions(fabric), fabric.racks
    rows = [[by_plane[plane].get(rack, -1) for rack in racks] for plane in planes(fabric)]
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(racks))


def _check(fabric: Fabric, plane: int, racks: np.ndarray) -> None:
    """RFabricError unless every rack has an uplink in the plane, stands once, and can reach its
    partner.
    """
    every, names = planes(fabric), fabric.racks
    table = region_table(fabric)[every.index(plane)] if plane in every else np.full(len(names), -1)
    a, b = table[racks]
    if (a == b).all() and (a >= 0).all() and len(distinct(racks.ravel())) == racks.size:
        return
    used: set[int] = set()
    for pair in racks.T.tolist():
        for rack in pair:
            if table[rack] < 0:
                raise RFabricError(f"plane {plane}: rack {names[rack]} has no uplink to an OCS")
            if rack in used:
                raise RFabricError(
                    f"plane {plane}: rack {names[rack]} has one uplink, it cannot be joined twice"
                )
            used.add(rack)
        if table[pair[0]] != table[pair[1]]:
            one, other = (names[rack] for rack in pair)
            raise RFabricError(
                f"plane {plane}: no OCS joins {one} and {other}; they lie in different regions "
                "(optics.regions)"
            )


class Uplinks(NamedTuple):
    """The racks' ways up in one plane: the `racks` that have one (numbers), in the order of the
    OCSes' ports; of each rack (int64[racks]) the `port` at the aggregation OCS its cable leads to,
    and the core-facing port kept for it there, `above`; by number, -1 for none.
    """

    racks: np.ndarray
    port: np.ndarray
    above: np.ndarray


@kept
def uplinks(fabric: Fabric) -> dict[int, Uplinks]:
    """By plane, ascending. RFabricError where a rack has several in one.

    The core-facing port kept for a ToR: ToR ports and core ports of an aggregation OCS pair up in
    order.
    """
    c, ports = cabling_of(fabric), _ocs_ports(fabric)
    rack = c.rack[c.node[ports ^ 1]]
    below, above = ports[rack >= 0], ports[rack < 0]
    turn = ranks(c.node[below])
    first = np.searchsorted(c.node[above], np.arange(len(fabric.nodes) + 1))
    facing = np.append(above, -1)[
        np.where(turn < np.diff(first)[c.node[below]], first[c.node[below]] + turn, -1)
    ]
    plane = _planes(fabric)[c.node[below]]
    by_plane = {}
    for number in distinct(plane).tolist():
        here, table = plane == number, np.full((2, len(fabric.racks)), -1, np.int64)
        racks = c.rack[c.node[below[here] ^ 1]]
        _refuse_twice(fabric, number, racks)
        table[:, racks] = below[here], facing[here]
        by_plane[number] = Uplinks(racks, *table)
    return by_plane


def _refuse_twice(fabric: Fabric, plane: int, racks: np.ndarray) -> None:
    """RFabricError for a rack with several uplinks in a plane, of which one would be used."""
    counts = np.bincount(racks)
    if counts.max() > 1:
        rack = int(counts.argmax())
        raise RFabricError(
            f"plane {plane}: rack {fabric.racks[rack]} has {counts[rack]} uplinks to its OCSes; "
            "in a plane it has one, so number the planes of the OCSes, or divide the OCS"
        )


def _ocs_ports(fabric: Fabric) -> np.ndarray:
    """The cabled ports of the OCSes, one OCS after another, ascending."""
    c = cabling_of(fabric)
    ports = np.flatnonzero(c.is_ocs[c.node])
    return ports[np.lexsort((c.number[ports], c.node[ports]))]


def _planes(fabric: Fabric) -> np.ndarray:
    return np.array([node.plane for node in fabric.nodes])


class Cores(NamedTuple):
    """The core OCSes of one plane: how many (`count`), and the `cables` an aggregation OCS has to
    them; `pod`: the number of each node that is such an OCS.

    ports[first[k]:first[k + 1]], k = core * pods + pod, are those whose cables lead there.
    """

    count: int
    cables: int
    pod: np.ndarray
    first: np.ndarray
    ports: np.ndarray


@kept
def _cores(fabric: Fabric) -> dict[int, Cores]:
    """By plane."""
    c, ports = cabling_of(fabric), _ocs_ports(fabric)
    rises = np.array([node.tier == "aggregation" for node in fabric.nodes])[c.node[ports]]
    ports = ports[rises & c.is_ocs[c.node[ports ^ 1]]]
    plane = _planes(fabric)[c.node[ports]]
    return {
        number: _cores_at(c.node, ports[plane == number], len(fabric.nodes))
        for number in distinct(plane).tolist()
    }


def _cores_at(node: np.ndarray, ports: np.ndarray, nodes: int) -> Cores:
    """The cores that these ports lead to, and the OCSes they are of, numbered as they come."""
    core = _first_come(node[ports ^ 1])
    order = np.argsort(core, kind="stable")
    core, ports = core[order], ports[order]
    of, pod = _first_come(node[ports]), np.full(nodes, -1, np.int64)
    pod[node[ports]] = of
    count, pods = int(core.max()) + 1, int(of.max()) + 1
    place = core * pods + of
    first = offsets_of(np.bincount(place, minlength=count * pods))
    ports = ports[np.argsort(place, kind="stable")]
    return Cores(count, len(ports) // pods, pod, first, ports)


def _first_come(values: np.ndarray) -> np.ndarray:
    """int64[n]: values numbered in the order in which they first stand."""
    _, first, which = np.unique(values, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[which]


def _through_cores(ocs: np.ndarray, cores: Cores) -> np.ndarray:
    """The ports up (int64[2, pairs]) of pairs of different aggregation OCSes (nodes), through
    several core OCSes.
    """
    pod, pods = cores.pod[ocs], len(cores.first) // cores.count
    chosen = np.array(cores_of(list(zip(*pod.tolist(), strict=True)), cores.cables, cores.count))
    place = (chosen.astype(np.int64) * pods + pod).T.ravel()
    order, turn = np.argsort(place, kind="stable"), np.empty(len(place), np.int64)
    turn[order] = ranks(place[order])
    return cores.ports[cores.first[place] + turn].reshape(-1, 2).T

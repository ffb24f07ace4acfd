"""From "join these racks in this plane" to circuits of the OCSes on the way.

In one plane of RFabric a ToR has one uplink, to its pod's aggregation OCS. Two ToRs of a pod are
joined by one circuit there; two ToRs of different pods by three: aggregation, core, aggregation.
There are as many cables to the core as ToRs in a pod, so every matching of ToRs can be lit; the
up-cable is the ToR's own number, hence lighting one pair never moves another. Where a plane needs
several core OCSes, `cores` says which pair crosses which. A fabric may hold OCSes that nothing
joins (one per region), or that several cores join in groups: `regions` says which racks a plane can
join at all. Above aggregation OCSes may also stand a packet switch: it passes on between the
circuits that lead there, and needs none of its own.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..errors import RFabricError
from ..fabric import Fabric
from ..fabric.cabling import cabling_of
from ..fabric.kept import kept
from ..routing.rows import distinct, in_order, offsets_of, ranks
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
    mates = np.full((len(planes(fabric)), len(fabric.racks)), -1)
    for plane, pairs in matchings.items():
        racks = numbers(fabric, plane, pairs)
        if racks.size:
            check_pairs(fabric, plane, racks)
            mates[planes(fabric).index(plane)][racks] = racks[::-1]
    return join(fabric, mates)


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


def join(fabric: Fabric, mates: np.ndarray) -> Circuits:
    """The circuits that join each rack to mates[plane, rack], -1 for nobody (int64[planes, racks]):
    those of one OCS there; others up, in the core, and up on the other side.
    """
    (circuits,) = join_each(fabric, mates[None])
    return circuits


def join_each(fabric: Fabric, slots: np.ndarray) -> list[Circuits]:
    """`join` of each of several mates: int64[slots, planes, racks]."""
    c, (port, rises) = cabling_of(fabric), _uplink_table(fabric)
    slot, plane, racks = _pairs(fabric, slots)
    ports = port[plane, racks]
    far = c.node[ports[0]] != c.node[ports[1]]
    below, above, near, slot = ports[:, far], rises[plane, racks][:, far], slot[~far], slot[far]
    for number, several in _cores(fabric).items():
        for cores in several:
            here = plane[far] == planes(fabric).index(number)
            here &= (cores.pod[c.node[below[0]]] >= 0) & c.is_ocs[c.node[above[0] ^ 1]]
            above[:, here] = _through_cores(c.node[below[:, here]], slot[here], cores)
    core = above ^ 1
    light = c.is_ocs[c.node[core]].all(0)
    one, other = np.stack((below, above), axis=1)
    ends = (ports[:, ~far], near), (one, slot), (other, slot), (core[:, light], slot[light])
    parts = [_by_slot(some, of, len(slots)) for some, of in ends]
    every = zip(*parts, strict=True)
    return [NumberedCircuits(fabric, np.concatenate(some, axis=1)) for some in every]


def _by_slot(ends: np.ndarray, slot: np.ndarray, slots: int) -> list[np.ndarray]:
    """The columns of `ends` of each slot; `slot` of each column, ascending."""
    first = np.searchsorted(slot, np.arange(slots + 1)).tolist()
    return [ends[:, a:b] for a, b in pairwise(first)]


def _pairs(fabric: Fabric, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The slot, the plane and the racks of each pair, int64[2, pairs]; by slot, then plane, then as
    the racks' names are ordered, where cores are dealt by these.
    """
    order = np.arange(slots.shape[-1])
    if any(_cores(fabric).values()):
        c = cabling_of(fabric)
        order = np.argsort(c.place[np.flatnonzero(c.rack >= 0)])
        slots = np.where(slots >= 0, np.argsort(order)[slots], -1)[..., order]
    slot, plane, low = np.nonzero(slots > np.arange(slots.shape[-1]))
    return slot, plane, order[np.stack((low, slots[slot, plane, low]))]


@kept
def _uplink_table(fabric: Fabric) -> np.ndarray:
    """int64[2, planes, racks]: `port` and `above` of `uplinks`."""
    every = uplinks(fabric).values()
    table = [[up.port for up in every], [up.above for up in every]]
    return np.array(table, np.int64).reshape(2, len(every), len(fabric.racks))


def joinable(fabric: Fabric, mates: np.ndarray) -> np.ndarray:
    """`mates` (int64[..., planes, racks]), without those that a plane cannot join."""
    region = region_table(fabric)
    met = (region == _of_mates(region, mates)) & (region >= 0)
    return np.where((mates >= 0) & met, mates, -1)


def lights_alone(fabric: Fabric, mates: np.ndarray) -> np.ndarray:
    """`mates` (int64[planes, racks]) whose circuits are one light path, not two to a packet switch
    above.
    """
    ocs, optical = _light_table(fabric)
    if optical.all():
        return mates
    met = (ocs == _of_mates(ocs, mates)) | (optical & _of_mates(optical, mates))
    return np.where((mates >= 0) & met, mates, -1)


@kept
def _light_table(fabric: Fabric) -> tuple[np.ndarray, np.ndarray]:
    """Of each rack in each plane the OCS (int64[planes, racks]), and whether another one is above
    it (bool[planes, racks]).
    """
    c, (port, rises) = cabling_of(fabric), _uplink_table(fabric)
    return c.node[port], c.is_ocs[c.node[rises ^ 1]]


def _of_mates(table: np.ndarray, mates: np.ndarray) -> np.ndarray:
    """What a table [planes, racks] says of each rack's mate."""
    return table[np.arange(len(table))[:, None], mates]


@kept
def regions(fabric: Fabric) -> dict[int, dict[str, int]]:
    """By plane and rack, the number of the optical network its uplink leads to: only racks of one
    number can be joined there.
    """
    return {plane: _regions(fabric, up) for plane, up in uplinks(fabric).items()}


def _regions(fabric: Fabric, up: "Uplinks") -> dict[str, int]:
    """An OCS without a way up is an optical network of its own; those with one meet those with
    which they share a core, of one OCS or several. A packet switch that a way up leads to is one.
    """
    racks, c, nodes = up.racks, cabling_of(fabric), len(fabric.nodes)
    ocs, above = c.node[up.port[racks]], up.above[racks]
    core = c.node[above ^ 1]
    light = (above >= 0) & c.is_ocs[core]
    meets = nodes + np.where(light, _parts(ocs[light], core[light], nodes)[ocs], core)
    lies = _first_come(np.where(above >= 0, meets, ocs))
    return {fabric.racks[rack]: i for rack, i in zip(racks.tolist(), lies.tolist(), strict=True)}


def _parts(low: np.ndarray, high: np.ndarray, nodes: int) -> np.ndarray:
    """int64[nodes]: the lowest node that cables from low[i] to high[i] join each one to."""
    part, before = np.arange(nodes), np.full(nodes, -1)
    while not np.array_equal(part, before):
        before = part.copy()
        np.minimum.at(part, high, before[low])
        np.minimum.at(part, low, part[high])
    return part


@kept
def region_table(fabric: Fabric) -> np.ndarray:
    """int64[planes, racks]: racks of one number can be joined in that plane; -1 where a rack has no
    uplink.
    """
    by_plane, racks = regions(fabric), fabric.racks
    rows = [[by_plane[plane].get(rack, -1) for rack in racks] for plane in planes(fabric)]
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(racks))


@kept
def site_table(fabric: Fabric) -> np.ndarray:
    """int64[planes, racks]: racks of one number hang on one OCS of that plane, so they can be
    joined there whatever their regions; -1 where a rack has no uplink.
    """
    node, made = cabling_of(fabric).node, []
    for up in uplinks(fabric).values():
        made.append(np.full(len(fabric.racks), -1, np.int64))
        made[-1][up.racks] = _first_come(node[up.port[up.racks]])
    return np.array(made, dtype=np.int64).reshape(len(made), len(fabric.racks))


@kept
def reach_table(fabric: Fabric) -> np.ndarray:
    """int64[planes, racks]: racks of one number could be joined in that plane by some circuits, if
    not by those that `light` chooses: it keeps a cable up for some racks, where there are fewer. -1
    where a rack has no uplink.
    """
    node, (_, above), made = cabling_of(fabric).node, _ocs_ports(fabric), []
    for number, up in uplinks(fabric).items():
        ways = above[_planes(fabric)[node[above]] == number]
        part = _parts(node[ways], node[ways ^ 1], len(fabric.nodes))
        made.append(np.full(len(fabric.racks), -1, np.int64))
        made[-1][up.racks] = _first_come(part[node[up.port[up.racks]]])
    return np.array(made, dtype=np.int64).reshape(len(made), len(fabric.racks))


def check_pairs(fabric: Fabric, plane: int, racks: np.ndarray) -> None:
    """RFabricError unless every rack has an uplink in the plane, stands once, and can reach its
    partner.
    """
    every, names = planes(fabric), fabric.racks
    table, site = (
        some(fabric)[every.index(plane)] if plane in every else np.full(len(names), -1)
        for some in (region_table, site_table)
    )
    (a, b), (c, d) = table[racks], site[racks]
    met = ((a == b) | (c == d)) & (a >= 0) & (b >= 0)
    if met.all() and len(distinct(racks.ravel())) == racks.size:
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
        if table[pair[0]] != table[pair[1]] and site[pair[0]] != site[pair[1]]:
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
    order. Where racks hang on an OCS, it is no other one's core.
    """
    c, (below, above) = cabling_of(fabric), _ocs_ports(fabric)
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


def _ocs_ports(fabric: Fabric) -> tuple[np.ndarray, np.ndarray]:
    """The ports of OCSes to racks, and of the same OCSes to the core: switches of that tier, or on
    which no rack hangs. One OCS after another, ascending.
    """
    c = cabling_of(fabric)
    ports = np.flatnonzero(c.is_ocs[c.node])
    ports = ports[np.lexsort((c.number[ports], c.node[ports]))]
    node, peer = c.node[ports], c.node[ports ^ 1]
    below, holds = c.rack[peer] >= 0, np.zeros(len(fabric.nodes), bool)
    holds[node[below]] = True
    core = np.array([node.tier == "core" for node in fabric.nodes])
    rises = ~holds[peer] | (core[peer] & ~core[node])
    return ports[below], ports[~below & holds[node] & rises]


def _planes(fabric: Fabric) -> np.ndarray:
    return np.array([node.plane for node in fabric.nodes])


class Cores(NamedTuple):
    """Several core OCSes of one plane that the same OCSes below lead to: how many (`count`), and
    the `cables` each of those has to them; `pod`: the number of each node that is one, else -1.

    ports[first[k]:first[k + 1]], k = core * pods + pod, are those whose cables lead there.
    """

    count: int
    cables: int
    pod: np.ndarray
    first: np.ndarray
    ports: np.ndarray


@kept
def _cores(fabric: Fabric) -> dict[int, list[Cores]]:
    """By plane, those of each of its parts that has several; RFabricError where they have unequal
    or odd shares of the cables.
    """
    c, (_, ports) = cabling_of(fabric), _ocs_ports(fabric)
    ports = ports[c.is_ocs[c.node[ports ^ 1]]]
    plane, ocs, core = _planes(fabric)[c.node[ports]], c.node[ports], c.node[ports ^ 1]
    found: dict[int, list[Cores]] = {}
    for number in distinct(plane).tolist():
        here = plane == number
        part = _parts(ocs[here], core[here], len(fabric.nodes))[ocs[here]]
        each = [ports[here][part == one] for one in distinct(part).tolist()]
        found[number] = [
            _cores_at(fabric, number, some) for some in each if len(distinct(c.node[some ^ 1])) > 1
        ]
    return found


def _cores_at(fabric: Fabric, plane: int, ports: np.ndarray) -> Cores:
    """The cores that these ports lead to, and the OCSes they are of, numbered as they come."""
    node, nodes = cabling_of(fabric).node, len(fabric.nodes)
    core = _first_come(node[ports ^ 1])
    order = np.argsort(core, kind="stable")
    core, ports = core[order], ports[order]
    of, pod = _first_come(node[ports]), np.full(nodes, -1, np.int64)
    pod[node[ports]] = of
    count, pods = int(core.max()) + 1, int(of.max()) + 1
    place = core * pods + of
    shares = np.bincount(place, minlength=count * pods)
    _refuse_shares(fabric, plane, shares.reshape(count, pods), node[ports ^ 1], node[ports])
    ports = ports[np.argsort(place, kind="stable")]
    return Cores(count, len(ports) // pods, pod, offsets_of(shares), ports)


def _refuse_shares(
    fabric: Fabric, plane: int, shares: np.ndarray, cores: np.ndarray, below: np.ndarray
) -> None:
    """RFabricError unless all shares (cables[core, pod]) are one even number: only then every
    matching can be dealt. `cores`, `below`: the nodes at either end of each cable.
    """
    bad = np.argwhere((shares != shares[0, 0]) | (shares % 2 > 0))
    if not len(bad):
        return
    core, ocs = (
        fabric.nodes[ends[np.flatnonzero(_first_come(ends) == number)[0]]].name
        for ends, number in zip((cores, below), bad[0].tolist(), strict=True)
    )
    raise RFabricError(
        f"plane {plane}: {len(shares)} core OCSes join its pods, and {shares[tuple(bad[0])]} of "
        f"{ocs}'s cables lead to {core}; every OCS of a pod needs one even number of cables to "
        "each of them, or give each core a plane of its own"
    )


def _first_come(values: np.ndarray) -> np.ndarray:
    """int64[n]: values numbered in the order in which they first stand."""
    _, first, which = np.unique(values, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[which]


def _through_cores(ocs: np.ndarray, slot: np.ndarray, cores: Cores) -> np.ndarray:
    """The ports up (int64[2, pairs]) of pairs of different aggregation OCSes (nodes), through
    several core OCSes; those of each slot have these to themselves.
    """
    pod, pods = cores.pod[ocs], len(cores.first) // cores.count
    every = _by_slot(pod, slot, int(slot.max(initial=-1)) + 1)
    dealt = [cores_of(pairs, cores.cables, cores.count) for pairs in every]
    chosen = np.concatenate([np.zeros(0, np.int64), *dealt])
    slot, place = np.repeat(slot, 2), (chosen * pods + pod).T.ravel()
    order, turn = in_order(slot, place), np.empty(len(place), np.int64)
    turn[order] = ranks(slot[order], place[order])
    return cores.ports[cores.first[place] + turn].reshape(-1, 2).T

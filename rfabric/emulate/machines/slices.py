"""Which machine carries which part of a fabric, and which cables become tunnels.

    h1 .. h4 -- t1 ==|== a1 -- c1        ==|== cables between racks and what is above them, the only
    h5 .. h8 -- t2 ==|== a1                    ones that are cut

A rack stays whole, and so does what hangs together above the racks: a plane with its OCSes and
core switches. Racks are dealt out in order, as many hosts to each machine as can be; planes go one
after another to the machine that has the fewest cables of planes, and, among equals, to the one
whose racks they have most cables to.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import networkx as nx

from ...errors import RFabricError
from ...fabric import Fabric

ABOVE = ("aggregation", "core", "electrical")  # tiers that are no rack's


@dataclass(frozen=True)
class Slices:
    """Parts of `fabric`, by machine: `place[node]` is the number of the machine that carries it."""

    fabric: Fabric
    place: dict[str, int]
    machines: int

    @cached_property
    def tunnels(self) -> tuple[int, ...]:
        """The cables, by number, whose ends are on two machines."""
        return tuple(i for i in range(len(self.fabric.links)) if len(set(self.ends(i))) == 2)

    def ends(self, link: int) -> tuple[int, int]:
        """The machines of a cable's ends a and b."""
        cable = self.fabric.links[link]
        return self.place[cable.a.node], self.place[cable.b.node]

    def nodes(self, machine: int) -> frozenset[str]:
        """What one machine carries."""
        return frozenset(name for name, at in self.place.items() if at == machine)

    def between(self) -> dict[tuple[int, int], list[int]]:
        """The tunnels of each pair of machines that has any, the smaller number first."""
        by_pair: dict[tuple[int, int], list[int]] = {}
        for link in self.tunnels:
            by_pair.setdefault(tuple(sorted(self.ends(link))), []).append(link)
        return by_pair


def sliced(fabric: Fabric, machines: int) -> Slices:
    """`fabric` cut into a part for each of so many machines; RFabricError where it has fewer racks
    that can be told apart.
    """
    low, high = _units(fabric)
    if machines > len(low):
        raise RFabricError(
            f"{fabric.name} cannot be cut for {machines} machines: cables are cut between a ToR "
            f"and what is above it, and that leaves {len(low)} part{'s' * (len(low) > 1)} with "
            "hosts; name fewer machines with --on"
        )
    place = _dealt(fabric, low, machines)
    cables = [0] * machines
    for unit in sorted(high, key=lambda unit: -_cables(fabric, unit)):
        near = _neighbours(fabric, unit, place)
        at = min(range(machines), key=lambda m: (cables[m], -near[m], m))
        cables[at] += _cables(fabric, unit)
        place |= dict.fromkeys(unit, at)
    return Slices(fabric, place, machines)


def _units(fabric: Fabric) -> tuple[list[frozenset[str]], list[frozenset[str]]]:
    """What is never cut: parts with hosts, in the order of these, and parts without."""
    graph = nx.Graph()
    graph.add_nodes_from(node.name for node in fabric.nodes)
    for link in fabric.links:
        a, b = fabric.node[link.a.node], fabric.node[link.b.node]
        if {a.tier in ABOVE, b.tier in ABOVE} != {True, False} or "server" in (a.tier, b.tier):
            graph.add_edge(a.name, b.name)
    parts = [frozenset(part) for part in nx.connected_components(graph)]
    first = {
        part: min((i for i, host in enumerate(fabric.hosts) if host in part), default=-1)
        for part in parts
    }
    low = sorted((part for part in parts if first[part] >= 0), key=first.__getitem__)
    return low, [part for part in parts if first[part] < 0]


def _dealt(fabric: Fabric, units: Sequence[frozenset[str]], machines: int) -> dict[str, int]:
    """Units with hosts, in order, each machine's hosts as near an equal share as whole units
    allow; none goes without.
    """
    hosts, place, before, at = set(fabric.hosts), {}, 0, -1
    for number, unit in enumerate(units):
        left, middle = len(units) - number, before + len(unit & hosts) / 2
        wanted = int(middle * machines / len(hosts))
        # one machine on at most, and so many units left as machines that have none
        at = max(0, min(max(wanted, at), at + 1))
        at = max(at, machines - left)
        place |= dict.fromkeys(unit, at)
        before += len(unit & hosts)
    return place


def _cables(fabric: Fabric, unit: frozenset[str]) -> int:
    return sum(len(fabric.ports[name]) for name in unit)


def _neighbours(fabric: Fabric, unit: frozenset[str], place: dict[str, int]) -> Counter[int]:
    """How many cables go from a unit to what each machine has."""
    ends = (fabric.peer[port][1].node for name in unit for port in fabric.ports[name])
    return Counter(place[node] for node in ends if node in place)

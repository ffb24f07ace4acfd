"""What all switches hold, as rules, and the flow-mods from one such table to another.

Pure: nothing is sent from here.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..fabric import Fabric, Port
from ..optics import Circuits
from ..routing import Routes, Rule, circuit_rules
from . import flowmods
from .flowmods import Entry
from .switches import Flows

Pair = tuple[str, str]
Wires = dict[int, list[bytes]]  # by datapath id
Table = dict[tuple[str, tuple], Rule]  # by switch and match


@dataclass(frozen=True)
class Change:
    """From one table to another, serialised.

    `down` and `up` are for crossbars, `routes` for packet switches.
    """

    old: Table
    new: Table
    down: Wires
    routes: Wires
    up: Wires

    @property
    def ocses(self) -> set[int]:
        """The OCSes that change."""
        return set(self.down) | set(self.up)

    @property
    def touched(self) -> set[int]:
        """All switches that change."""
        return self.ocses | set(self.routes)


def table_of(circuits: Circuits, routes: Routes, pairs: Iterable[Pair]) -> Table:
    """The crossbar rules of `circuits`, and the rules that `routes` gives the pairs."""
    return {
        (r.switch, r.match): r for r in (*circuit_rules(circuits), *routes.rules(sorted(pairs)))
    }


def change_of(
    fabric: Fabric, address: Mapping[str, str], old: Table, new: Table, epoch: int
) -> Change:
    """What takes the switches from `old` to `new`; rules that stay are not touched.

    address: IPv4 address by host; epoch: the cookie of new rules.
    """
    down, routes, up = defaultdict(list), defaultdict(list), defaultdict(list)
    for key, rule in old.items():
        if new.get(key) != rule:
            node = fabric.node[rule.switch]
            if node.kind == "ocs":
                down[node.dpid].append(flowmods.delete(rule, address.__getitem__))
            elif key not in new:
                routes[node.dpid].append(flowmods.delete(rule, address.__getitem__))
    for key, rule in new.items():
        if old.get(key) != rule:
            node, wire = fabric.node[rule.switch], flowmods.add(rule, address.__getitem__, epoch)
            (up if node.kind == "ocs" else routes)[node.dpid].append(wire)
    return Change(old, new, dict(down), dict(routes), dict(up))


def repair(wanted: Iterable[bytes], held: Flows) -> tuple[list[bytes], list[bytes]]:
    """What takes a switch from what it holds to what these flow-mods would make of an empty one:
    what to strike, what to add after that. Flows that are as they should be are not touched.

    Drops of pairs without a path are left to end by themselves. Where somebody else's flows are
    among them, which match other fields, all begins anew.
    """
    made = {entry.key: (entry.out, wire) for entry, wire in map(_read, wanted)}
    if any(name not in flowmods.NAMES.values() for e in held.values() for name, _ in e.match):
        return [flowmods.delete_all()], [wire for _, wire in made.values()]
    fits = {key for key, e in held.items() if key in made and made[key][0] == e.out}
    strikes = [flowmods.strike(e) for key, e in held.items() if key not in fits and _goes(e, made)]
    return strikes, [wire for key, (_, wire) in made.items() if key not in fits]


def _read(wire: bytes) -> tuple[Entry, bytes]:
    return flowmods.decode(wire)[1], wire


def _goes(entry: Entry, made: Mapping[tuple, object]) -> bool:
    """Whether an entry must be struck: a route is written over, a circuit goes before one comes."""
    crossbar = any(name == "in_port" for name, _ in entry.match)
    return entry.priority != flowmods.UNREACHABLE_PRIORITY and (crossbar or entry.key not in made)


def without(fabric: Fabric, ports: frozenset[Port]) -> Fabric:
    """The fabric without the cables at these ports; hosts keep theirs, each has one."""
    gone = {fabric.peer[p][0] // 2 for p in ports if p in fabric.peer}
    gone -= {fabric.peer[fabric.ports[host][0]][0] // 2 for host in fabric.hosts if gone}
    links = tuple(link for i, link in enumerate(fabric.links) if i not in gone)
    return replace(fabric, links=links) if gone else fabric

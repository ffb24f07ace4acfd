"""What all switches hold, as rules, and the flow-mods from one such table to another.

Pure: nothing is sent from here.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..fabric import Fabric
from ..optics import Circuits
from ..routing import Routes, Rule, circuit_rules
from . import flowmods
from .switches import Crossbar

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


def crossbars_of(table: Table) -> dict[str, Crossbar]:
    """The crossbar of every OCS with a circuit, by name, as `table` has it."""
    found: dict[str, Crossbar] = defaultdict(dict)
    for (switch, match), rule in table.items():
        if match[0] == "port":
            found[switch][match[1]] = rule.out
    return found

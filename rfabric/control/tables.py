"""What all switches hold, as rules, and the flow-mods from one such table to another.

Pure: nothing is sent from here.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ..fabric import Fabric, Pair, Port
from ..optics import Circuits
from ..routing import Routes, Rule, circuit_rules
from . import flowmods
from .flowmods import Entry
from .switches import HeldFlows

Wires = dict[int, list[bytes]]  # by datapath id
Key = tuple[str, tuple]  # switch and match
RuleTable = dict[Key, Rule]


@dataclass(frozen=True)
class Change:
    """From one table to another, serialised.

    `down` and `up` are for crossbars, `routes` for packet switches. `late` too, of pairs that the
    change of the crossbars does not darken: their old ways are as good until there is light, and
    the new ones may be full until others have left them. `left`: keys of `new` that no pair needs,
    only packets under way. `swept`: deletions of what was left before.
    """

    old: RuleTable
    new: RuleTable
    down: Wires
    routes: Wires
    up: Wires
    late: Wires
    swept: Wires
    left: frozenset[Key]

    @property
    def ocses(self) -> set[int]:
        """The OCSes that change."""
        return set(self.down) | set(self.up)

    @property
    def touched(self) -> set[int]:
        """All switches that must answer; what `swept` deletes harms nobody where it stays."""
        return self.ocses | set(self.routes) | set(self.late)


def table_of(circuits: Circuits, routes: Routes, pairs: Iterable[Pair]) -> RuleTable:
    """The crossbar rules of `circuits`, and the rules that `routes` gives the pairs."""
    return {
        (r.switch, r.match): r for r in (*circuit_rules(circuits), *routes.rules(sorted(pairs)))
    }


def change_of(
    fabric: Fabric,
    address: Mapping[str, str],
    old: RuleTable,
    new: RuleTable,
    epoch: int,
    lit: Callable[[Pair], bool] | None = None,
    left: frozenset[Key] = frozenset(),
) -> Change:
    """What takes the switches from `old` to `new`; rules that stay are not touched.

    address: IPv4 address by host; epoch: the cookie of new rules. lit: of a rewire, whether it does
    not darken a pair, which goes on sending; asked for pairs whose rules change. What only its old
    way needs is kept for packets under way (`left`); what the rewire before kept is deleted now.
    Without `lit` all is changed at once.
    """
    down, routes, up, late, swept = (defaultdict(list) for _ in range(5))
    stay: RuleTable = {}
    for key, rule in old.items():
        node = fabric.node[rule.switch]
        if new.get(key) == rule or node.kind != "ocs" and key in new:
            continue
        if lit and key not in left and passes(fabric, rule) and lit(rule.match[1:]):
            stay[key] = rule
            continue
        where = down if node.kind == "ocs" else swept if lit and key in left else routes
        where[node.dpid].append(flowmods.delete(rule, address.__getitem__))
    for key, rule in new.items():
        if old.get(key) != rule:
            node, wire = fabric.node[rule.switch], flowmods.add(rule, address.__getitem__, epoch)
            used = lit and key in old and key not in left and rule.match[0] == "pair"
            turns = late if used and lit(rule.match[1:]) else routes
            (up if node.kind == "ocs" else turns)[node.dpid].append(wire)
    wires = (dict(some) for some in (down, routes, up, late, swept))
    return Change(old, new | stay, *wires, frozenset(stay))


def passes(fabric: Fabric, rule: Rule) -> bool:
    """Whether packets of a pair meet the rule on their way: it is not where they come from."""
    return rule.match[0] == "pair" and rule.switch != fabric.rack_of[rule.match[1]]


def repair(wanted: Iterable[bytes], held: HeldFlows) -> tuple[list[bytes], list[bytes]]:
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

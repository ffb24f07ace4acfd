"""The checker beside planner and routing: does every demanded pair arrive, in an epoch and while a rewire is under way?

faults          every circuit on cabled ports of one OCS, no port twice; every rule out of a cabled port; a packet of every
                pair, walked from switch to switch by the rules, arrives, passes no switch twice, and is not dropped
faults_during   the same while circuits that change are dark, for the pairs that are not held: whose way, before and after,
                avoids them; their packets arrive by the old rules and by the new ones
"""

from collections.abc import Iterable, Sequence

from ..errors import RFabricError
from ..fabric import Fabric, Port, Routes, Rule
from ..fabric.schemes import ECMP, Routing
from .circuits import Circuits, Rewire
from .planner import changed_cables

Pair = tuple[str, str]


def faults(fabric: Fabric, circuits: Circuits, pairs: Iterable[Pair], routing: Routing = ECMP) -> list[str]:
    """What is wrong in one epoch, in words; [] where nothing is."""
    try:
        circuits.check(fabric)
    except RFabricError as error:
        return [str(error)]
    pairs = list(pairs)
    rules = fabric.routes(circuits, routing).rules(pairs)
    return [*_bad_ports(fabric, rules), *_lost(fabric, rules, circuits, pairs)]


def faults_during(
    fabric: Fabric, old: Circuits, new: Circuits, pairs: Iterable[Pair], routing: Routing = ECMP
) -> tuple[list[Pair], list[str]]:
    """The pairs that are held while `old` becomes `new`, and what is wrong for the others meanwhile."""
    cables = changed_cables(fabric, Rewire.between(old, new))
    pairs = list(pairs)
    before, after = (fabric.routes(circuits, routing) for circuits in (old, new))
    for routes in (before, after):
        routes.ask(pairs)
    held = [pair for pair in pairs if _crosses(before, pair, cables) or _crosses(after, pair, cables)]
    flowing = sorted(set(pairs) - set(held))
    lit = Circuits(old.items & new.items)
    return held, [text for routes in (before, after) for text in _lost(fabric, routes.rules(flowing), lit, flowing)]


def _crosses(routes: Routes, pair: Pair, cables: frozenset[int]) -> bool:
    links = routes.links(*pair)
    return not links or any(link // 2 in cables for link in links)


def _bad_ports(fabric: Fabric, rules: Sequence[Rule]) -> list[str]:
    bad = [rule for rule in rules if Port(rule.switch, rule.out) not in fabric.peer]
    return [f"rule {rule.match} of {rule.switch} sends out of port {rule.out}, which has no cable" for rule in bad]


def _lost(fabric: Fabric, rules: Sequence[Rule], circuits: Circuits, pairs: Iterable[Pair]) -> list[str]:
    table = {(rule.switch, rule.match): rule.out for rule in rules}
    cross = {a: b for c in circuits for a, b in ((c.a, c.b), (c.b, c.a))}
    walked = ((pair, _walk(fabric, table, cross, *pair)) for pair in pairs)
    return [f"{src} -> {dst}: {what}" for (src, dst), what in walked if what]


def _walk(fabric: Fabric, table: dict[tuple, int], cross: dict[Port, Port], src: str, dst: str) -> str:
    """'' when a packet arrives, else where it is dropped or meets a packet switch again."""
    port, seen = fabric.ports[src][0], set()
    while True:
        into = fabric.peer[port][1]
        if into.node == dst:
            return ""
        if fabric.node[into.node].kind == "ocs":
            port = cross.get(into)
        else:
            if into.node in seen:
                return f"loop at {into.node}"
            seen.add(into.node)
            out = table.get((into.node, ("to", dst)), table.get((into.node, ("pair", src, dst))))
            port = out and Port(into.node, out)
        if port is None or port not in fabric.peer:
            return f"dropped at {into}"

"""The checker beside planner and routing: does every demanded pair arrive, in an epoch and while a
rewire is under way?

    faults         every circuit on cabled ports of one OCS, no port twice; every rule out of a
                   cabled port; a packet of every pair, walked from switch to switch by the rules,
                   arrives, passes no switch twice, and is not dropped
    faults_during  the same while circuits that change are dark, for the pairs that are not held,
                   whose way avoids these circuits before and after: their packets arrive by the
                   old rules and by the new ones

Pairs that take several ways at once (`split`) are walked once a way, by the rules that would lead
along it, and are held where one of their ways is dark.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from ..errors import RFabricError
from ..fabric import Fabric, Pair, Port
from ..routing import Rule, routes_of, where_lost
from ..routing.schemes import ECMP, SPLIT, Routing, split
from .circuits import Circuits, Rewire
from .planner import changed_cables


def faults(
    fabric: Fabric, circuits: Circuits, pairs: Iterable[Pair], routing: Routing = ECMP
) -> list[str]:
    """What is wrong in one epoch, in words; [] where nothing is."""
    try:
        circuits.check(fabric)
    except RFabricError as error:
        return [str(error)]
    return [
        text
        for some, rules in _ruled(fabric, circuits, list(pairs), routing)
        for text in (*_bad_ports(fabric, rules), *_lost(fabric, rules, circuits, some))
    ]


def faults_during(
    fabric: Fabric, old: Circuits, new: Circuits, pairs: Iterable[Pair], routing: Routing = ECMP
) -> tuple[list[Pair], list[str]]:
    """The pairs that are held while `old` becomes `new`, and what is wrong for the others
    meanwhile.
    """
    cables = changed_cables(fabric, Rewire.between(old, new))
    pairs = list(pairs)
    ways = [_ways(fabric, circuits, pairs, routing) for circuits in (old, new)]
    held = [
        pair
        for pair, *both in zip(pairs, *ways, strict=True)
        if any(_crosses(some, cables) for some in both)
    ]
    flowing = sorted(set(pairs) - set(held))
    lit = Circuits(old.items & new.items)
    return held, [
        text
        for circuits in (old, new)
        for some, rules in _ruled(fabric, circuits, flowing, routing)
        for text in _lost(fabric, rules, lit, some)
    ]


def _ways(
    fabric: Fabric, circuits: Circuits, pairs: Sequence[Pair], routing: Routing
) -> list[list[tuple[int, ...]]]:
    """The directed links of every way of each pair; [] where nothing connects it."""
    routes = routes_of(fabric, circuits, routing)
    if routing.scheme != SPLIT:
        routes.ask(pairs)
        return [[links] if links else [] for links in (routes.links(*pair) for pair in pairs)]
    src, dst = (
        np.array([[fabric.host_index[host] for host in pair] for pair in pairs], dtype=np.int64)
        .reshape(-1, 2)
        .T
    )
    ways = split(routes.choices, src, dst)
    links = [tuple(way.tolist()) for way in np.split(ways.links, ways.offsets[1:-1])]
    links = links[: len(ways.share)]  # without ways, numpy still splits off one that is empty
    return [links[begin:end] for begin, end in pairwise(ways.first.tolist())]


def _ruled(
    fabric: Fabric, circuits: Circuits, pairs: Sequence[Pair], routing: Routing
) -> Iterator[tuple[Sequence[Pair], list[Rule]]]:
    """Pairs and the rules that lead them; of pairs with several ways once with the first of each,
    once with the second, ...
    """
    if routing.scheme != SPLIT:
        yield pairs, routes_of(fabric, circuits, routing).rules(pairs)
        return
    routes, ways = routes_of(fabric, circuits), _ways(fabric, circuits, pairs, routing)
    below = routes.rules(())
    for turn in range(max(map(len, ways), default=0)):
        some = [(pair, own[turn]) for pair, own in zip(pairs, ways, strict=True) if len(own) > turn]
        rules = [rule for pair, links in some for rule in routes.rules_along(*pair, links)]
        yield [pair for pair, _ in some], below + rules
    yield [pair for pair, own in zip(pairs, ways, strict=True) if not own], below


def _crosses(ways: Sequence[tuple[int, ...]], cables: frozenset[int]) -> bool:
    """Whether one of a pair's ways leads over one of these cables, or it has none."""
    return not ways or any(link // 2 in cables for way in ways for link in way)


def _bad_ports(fabric: Fabric, rules: Sequence[Rule]) -> list[str]:
    bad = [rule for rule in rules if Port(rule.switch, rule.out) not in fabric.peer]
    return [
        (f"rule {rule.match} of {rule.switch} sends out of port {rule.out}, which has no cable")
        for rule in bad
    ]


def _lost(
    fabric: Fabric, rules: Sequence[Rule], circuits: Circuits, pairs: Sequence[Pair]
) -> list[str]:
    """What becomes of the packets that do not arrive."""
    ends = where_lost(rules, fabric, circuits, pairs)
    return [f"{src} -> {dst}: {end}" for (src, dst), end in zip(pairs, ends, strict=True) if end]

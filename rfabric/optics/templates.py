"""Circuit templates: which racks to join in each plane, before any demand is looked at.

Every template returns matchings, a list of rack pairs per plane; `planes.light` turns them into
circuits.

    mesh           union of disjoint perfect matchings of the racks: high bisection, few hops
    isolated pods  a mesh inside each pod, nothing between pods
    bipartite      every source with as many sinks as there are planes, nothing among themselves;
                   where racks answer one another, as attention and FFN, each group by itself
    tree           sources to relay racks, those to all others
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..fabric import Fabric
from .planes import RackPair, planes, regions

Matchings = list[list[RackPair]]


def turns(racks: int) -> int:
    """How many rounds a round-robin tournament of so many has, disjoint matchings that together
    join every pair.
    """
    return max(racks + racks % 2 - 1, 0)


def round_of(racks: Sequence[str], turn: int) -> list[RackPair]:
    """One round: the first rack keeps its seat, the others have moved `turn` seats on; an odd one
    out rests.
    """
    first, *others = [*racks, *[None] * (len(racks) % 2)]
    seats = [first, *others[len(others) - turn :], *others[: len(others) - turn]]
    n = len(seats)
    pairs = ((seats[i], seats[n - 1 - i]) for i in range(n // 2))
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def meeting(racks: int, one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """In which of the rounds of so many racks one[i] and other[i] (their places, which differ)
    meet, and which of that round's pairs they are.
    """
    moving = turns(racks)  # all seats but the first one's
    low, high = np.minimum(one, other) - 1, np.maximum(one, other) - 1
    # in turn t, who is number i of those who move sits in seat 1 + (i + t) % moving; seats of a
    # pair add up to `moving`, an odd number
    half = -(low + high + 2) * ((moving + 1) // 2)
    turn = np.where(low < 0, moving - 1 - high, half) % moving
    seats = [1 + (number + turn) % moving for number in (low, high)]
    return turn, np.where(low < 0, 0, np.minimum(*seats))


def tournaments(groups: Sequence[np.ndarray], racks: int) -> np.ndarray:
    """The rounds of each of these groups of so many racks, by number, side by side: int64[rounds,
    racks], who each meets, -1 for nobody. A smaller group begins again.
    """
    meets = np.full((max((turns(len(group)) for group in groups), default=0), racks), -1)
    for group in groups:
        one, other = np.triu_indices(len(group), 1)
        mine = np.full((turns(len(group)), len(group)), -1)
        turn, _ = meeting(len(group), one, other)
        mine[turn, one], mine[turn, other] = group[other], group[one]
        meets[:, group] = np.take(mine, range(len(meets)), axis=0, mode="wrap")
    return meets


def mesh(racks: Sequence[str], count: int) -> Matchings:
    """One tournament round per plane, started over when there are more planes than rounds."""
    return [_turned(racks, j) for j in range(count)]


def mesh_of_all(fabric: Fabric) -> Matchings:
    """The mesh of all racks; where planes join racks of one region only, a mesh in each region."""
    every = [regions(fabric)[plane] for plane in planes(fabric)]
    if all(set(region.values()) == {0} and len(region) == len(fabric.racks) for region in every):
        return mesh(fabric.racks, len(every))
    return [
        [pair for racks in _by_region(region) for pair in _turned(racks, turn)]
        for turn, region in enumerate(every)
    ]


def _by_region(region: Mapping[str, int]) -> Iterable[list[str]]:
    """The racks of each region of a plane."""
    groups: dict[int, list[str]] = {}
    for rack, number in region.items():
        groups.setdefault(number, []).append(rack)
    return groups.values()


def _turned(racks: Sequence[str], turn: int) -> list[RackPair]:
    """A round of the tournament, which starts over after the last."""
    every = turns(len(racks))
    return round_of(racks, turn % every) if every else []


def bipartite(sources: Sequence[str], sinks: Sequence[str], count: int) -> Matchings:
    """In each plane every rack of the shorter side meets one of the longer, each time another."""
    return [_zip(sources, sinks, j) for j in range(count)]


def answering(pairs: Iterable[RackPair]) -> list[tuple[list[str], list[str]]] | None:
    """The groups of racks that these pairs join, each in two sides so that every pair lies across;
    None where a group has no such sides.

    >>> answering([("a", "x"), ("b", "x"), ("c", "y")])
    [(['a', 'b'], ['x']), (['c'], ['y'])]
    """
    partners: dict[str, list[str]] = {}
    for a, b in pairs:
        partners.setdefault(a, []).append(b)
        partners.setdefault(b, []).append(a)
    side: dict[str, int] = {}
    groups = []
    for first in partners:
        if first in side:
            continue
        side[first], reached = 0, [first]
        for rack in reached:
            for partner in partners[rack]:
                if partner not in side:
                    side[partner] = 1 - side[rack]
                    reached.append(partner)
                elif side[partner] == side[rack]:
                    return None
        groups.append(tuple([r for r in reached if side[r] == which] for which in (0, 1)))
    return groups


def isolated_pods(fabric: Fabric, count: int) -> Matchings:
    """A mesh inside each pod."""
    pods = [[r for r in fabric.racks if fabric.node[r].pod == p] for p in range(fabric.pods)]
    meshes = [mesh(racks, count) for racks in pods if racks]
    return [[pair for m in meshes for pair in m[j]] for j in range(count)]


def tree(
    sources: Sequence[str], relays: Sequence[str], leaves: Sequence[str], count: int
) -> Matchings:
    """Two levels: `sources` feed the `relays` in half of the planes, those feed the `leaves` in the
    rest.

    Ports the tree leaves free (sources without a child, leaves in the first half) are joined
    straight from source to leaf.
    """
    upper = (count + 1) // 2 if leaves else count
    matchings = []
    for j in range(count):
        if j < upper:
            spread = _zip(sources, relays, j)
            matchings.append(spread + _zip(_without(sources, spread), leaves, j))
        else:
            down = _zip(relays, leaves, j - upper)
            matchings.append(down + _zip(sources, _without(leaves, down), j))
    return matchings


def _zip(parents: Sequence[str], children: Sequence[str], turn: int) -> list[RackPair]:
    """Pair the shorter list with as many of the longer, which goes on with every `turn` so that
    none is left out.
    """
    n = min(len(parents), len(children))
    if len(parents) >= len(children):
        return [(parents[(i + turn) % len(parents)], children[i]) for i in range(n)]
    return [(parents[i], children[(i + turn * n) % len(children)]) for i in range(n)]


def _without(racks: Sequence[str], pairs: Sequence[RackPair]) -> list[str]:
    taken = {rack for pair in pairs for rack in pair}
    return [rack for rack in racks if rack not in taken]

"""A circuit policy of your own: the racks make a ring, two planes to a ring, whatever is sent.

    t1 === t2 --- t3 === t4 --- t1      === lit in even planes      --- lit in odd planes

    rfabric simulate --topo rfabric --policy controller/ring_policy.py
    rfabric compare --topo rfabric --policy demand --policy controller/ring_policy.py:ring,skip=2

Copy this file and write another `decide`; `rfabric.optics.CircuitPolicy` says what it gets and what
it must return. In an emulation the controller runs it too: `rfabric emulate` tells it to.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rfabric.optics import CircuitPolicy, Circuits, Demand, planes, regions

Pair = tuple[str, str]


@dataclass(frozen=True)
class Ring(CircuitPolicy):
    """A ring of racks; each further one, where there are planes, passes over `skip` racks more."""

    skip: int = 0

    def decide(
        self, demand: Demand, circuits: Circuits, now: float, plan: Sequence[Demand] = ()
    ) -> Circuits:
        """The same circuits for every demand, but for racks that would have no way at all."""
        joined = [self._half(turn, plane) for turn, plane in enumerate(planes(self.fabric))]
        return self.light(joined, demand, circuits)

    def _half(self, turn: int, plane: int) -> list[Pair]:
        """Every other side of a ring in each region: an OCS joins no racks of two regions."""
        groups: dict[int, list[str]] = {}
        for rack, number in regions(self.fabric)[plane].items():
            groups.setdefault(number, []).append(rack)
        step = 1 + turn // 2 * self.skip
        return [side for racks in groups.values() for side in sides(racks, step)[turn % 2 :: 2]]


def sides(racks: Sequence[str], step: int) -> list[Pair]:
    """The sides of the ring that visits racks by `step`, or by one where that misses some.

    An odd ring, and one of two racks, stay open: their last side would meet the first in its plane.
    """
    order = [racks[i * step % len(racks)] for i in range(len(racks))]
    order = order if len(set(order)) == len(racks) else list(racks)
    closed = len(order) > 2 and len(order) % 2 == 0
    return list(zip(order, [*order[1:], *order[: int(closed)]], strict=False))


policies = {"ring": Ring}

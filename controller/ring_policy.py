"""A circuit policy of your own: the racks form a ring over each two planes, whatever is sent.

    t1 === t2 --- t3 === t4 --- t1      === lit in even planes      --- lit in odd planes

    rfabric simulate --topo rfabric --policy controller/ring_policy.py
    rfabric compare --topo rfabric --policy demand --policy controller/ring_policy.py:ring,skip=2

Copy this file and write another `decide`; `rfabric.optics.CircuitPolicy` says what it gets and must
return. In an emulation the controller runs the file too; `rfabric emulate` sees to that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rfabric.optics import CircuitPolicy, Circuits, Demand, planes, regions

Pair = tuple[str, str]


@dataclass(frozen=True)
class Ring(CircuitPolicy):
    """Rings of racks over pairs of planes; each ring skips `skip` racks more than the last."""

    skip: int = 0

    def decide(
        self, demand: Demand, circuits: Circuits, now: float, upcoming: Sequence[Demand] = ()
    ) -> Circuits:
        """The same circuits for every demand, except for racks that would have no path at all."""
        joined = [self._half(turn, plane) for turn, plane in enumerate(planes(self.fabric))]
        return self.light(joined, demand, circuits)

    def _half(self, turn: int, plane: int) -> list[Pair]:
        """Every other side of a ring in each region, as an OCS joins no racks of two regions."""
        groups: dict[int, list[str]] = {}
        for rack, number in regions(self.fabric)[plane].items():
            groups.setdefault(number, []).append(rack)
        step = 1 + turn // 2 * self.skip
        return [side for racks in groups.values() for side in sides(racks, step)[turn % 2 :: 2]]


def sides(racks: Sequence[str], step: int) -> list[Pair]:
    """The sides of the ring that visits racks in steps of `step`, or of one where that misses some.

    A ring of two racks or of an odd number stays open: its last side would meet the first one in
    its plane.
    """
    order = [racks[i * step % len(racks)] for i in range(len(racks))]
    order = order if len(set(order)) == len(racks) else list(racks)
    closed = len(order) > 2 and len(order) % 2 == 0
    return list(zip(order, [*order[1:], *order[: int(closed)]], strict=False))


policies = {"ring": Ring}

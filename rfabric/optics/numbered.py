"""Circuits of 100,000s as arrays: the numbers of the ports they join, in one fabric.

    ends    [[ 6, 40, ...]    the first ports of circuits, ascending as Ports
             [52, 17, ...]]   the ports they are joined to

A port is named by the directed link that leaves it (`fabric.cabling`). A set takes 8 bytes a
circuit, a tenth of the objects; these are made at the border only, for who looks at `items`.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from ..fabric import Fabric
from ..fabric.cabling import cabling_of
from .circuits import Circuit, Circuits


class NumberedCircuits(Circuits):
    """The circuits that join ports ends[0] to ports ends[1] (integers[2, n]) of `fabric`; checked
    as Circuits are.
    """

    fabric: Fabric
    ends: np.ndarray

    def __init__(self, fabric: Fabric, ends: np.ndarray):
        c = cabling_of(fabric)
        a, b = c.rank[ends]
        low, high = np.minimum(a, b), np.maximum(a, b)
        taken, joined = np.zeros(len(c.rank), bool), np.full(len(c.rank), -1)
        taken[ends], joined[low] = True, high
        if np.count_nonzero(taken) < ends.size:
            self._keep(fabric, ends)
            Circuits(self.items)  # says which port is held twice
        some = np.flatnonzero(joined >= 0)
        self._keep(fabric, c.order[np.stack((some, joined[some]))].astype(np.int32))

    def _keep(self, fabric: Fabric, ends: np.ndarray) -> None:
        object.__setattr__(self, "fabric", fabric)
        object.__setattr__(self, "ends", ends)

    @property
    def items(self) -> frozenset[Circuit]:  # type: ignore[override]
        """The circuits as objects, made anew for who asks."""
        return frozenset(self)

    @property
    def ordered(self) -> tuple[Circuit, ...]:  # type: ignore[override]
        """The same, ascending."""
        return tuple(self)

    def __iter__(self) -> Iterator[Circuit]:
        links = self.fabric.links
        for a, b in self.ends.T.tolist():
            one, other = links[a // 2], links[b // 2]
            yield Circuit(one.b if a % 2 else one.a, other.b if b % 2 else other.a)

    def __len__(self) -> int:
        return self.ends.shape[1]

    def ends_in(self, fabric: Fabric) -> np.ndarray | None:
        """`ends`, where they are ports of `fabric`; None where they are another's."""
        return self.ends if fabric.links is self.fabric.links else None

    def _same(self, other: Circuits) -> bool:
        ends = self._ends_of(other)
        return self.items == other.items if ends is None else np.array_equal(self.ends, ends)

    def _ends_of(self, other: Circuits) -> np.ndarray | None:
        return other.ends_in(self.fabric) if isinstance(other, NumberedCircuits) else None

    @cached_property
    def _hash(self) -> int:
        a, b = cabling_of(self.fabric).number[self.ends]
        return hash((len(self), int(a @ b)))

    def without(self, others: Circuits) -> Circuits:
        """Those that are not among `others`."""
        ends = self._ends_of(others)
        if ends is None:
            return super().without(others)
        joined = np.full(2 * len(self.fabric.links), -1, np.int32)
        joined[ends[0]] = ends[1]
        return self._some(joined[self.ends[0]] != self.ends[1])

    def of(self, ocs: str) -> Circuits:
        """The circuits of one OCS."""
        c = cabling_of(self.fabric)
        number = next((i for i, n in enumerate(self.fabric.nodes) if n.name == ocs), -1)
        return self._some(c.node[self.ends[0]] == number)

    def _some(self, mask: np.ndarray) -> Circuits:
        """Those of the mask."""
        some = object.__new__(NumberedCircuits)
        some._keep(self.fabric, self.ends[:, mask])
        return some

    def check(self, fabric: Fabric) -> Circuits:
        """See `Circuits.check`: ports of this fabric need no look."""
        return self if self.ends_in(fabric) is not None else super().check(fabric)

    def to_json(self) -> list[str]:
        """See `Circuits.to_json`."""
        names = map(cabling_of(self.fabric).spelled, self.ends)
        return [f"{a}-{b}" for a, b in zip(*names, strict=True)]

"""What the OCSes connect now.

A Circuit joins two ports of one OCS, Circuits are a matching, a Rewire leads from one set of
circuits to the next.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from ..errors import RFabricError
from ..fabric import Fabric, Port
from ..routing import LightPath, light_paths
from ..routing.rows import Entries, numbered


class Circuit(NamedTuple):
    """Two ports of one OCS, joined both ways; stored in ascending port order.

    Prints as `a1:3-a1:7`.
    """

    a: Port
    b: Port

    def __str__(self) -> str:
        (node, number), (other, last) = self  # not by way of Port: 100,000s are written
        return f"{node}:{number}-{other}:{last}"

    @classmethod
    def of(cls, a: Port, b: Port) -> "Circuit":
        """The circuit between two ports; they must differ and belong to one switch. RFabricError
        where they do not.
        """
        if a.node != b.node or a == b:
            raise RFabricError(
                f"circuit {a}-{b}: a circuit joins two different ports of one switch"
            )
        return cls(a, b) if a < b else cls(b, a)

    @classmethod
    def parse(cls, text: str) -> "Circuit":
        """The circuit that is written `text`.

        >>> Circuit.parse("a1:3-a1:7") == Circuit.parse("a1:7-3")
        True
        """
        left, _, right = str(text).partition("-")
        a = Port.parse(left)
        return cls.of(a, Port.parse(right if ":" in right else f"{a.node}:{right}"))


@dataclass(frozen=True, eq=False)
class Circuits:
    """A set of circuits in which no port appears twice; checked on construction.

    What a policy lights is `numbered.NumberedCircuits`: equal, but kept as arrays.
    """

    items: frozenset[Circuit] = frozenset()

    def __post_init__(self):
        object.__setattr__(self, "items", frozenset(self.items))
        if len(set(chain.from_iterable(self.items))) < 2 * len(self.items):
            check_ports(sorted(self.items))

    def __repr__(self) -> str:
        return f"<Circuits: {len(self)} lit>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Circuits):
            return NotImplemented
        return self is other or (len(self) == len(other) and self._same(other))

    def __hash__(self) -> int:
        return self._hash

    def _same(self, other: "Circuits") -> bool:
        """Whether `other`, as many circuits, are these."""
        return self.items == other.items

    @cached_property
    def _hash(self) -> int:
        """What arrays of port numbers give as soon as circuits do."""
        return hash((len(self), sum(a.number * b.number for a, b in self.items)))

    @cached_property
    def ordered(self) -> tuple[Circuit, ...]:
        """The circuits, ascending; as no port appears twice, their first ports decide."""
        return tuple(sorted(self.items, key=itemgetter(0)))

    def __iter__(self) -> Iterator[Circuit]:
        return iter(self.ordered)

    def __len__(self) -> int:
        return len(self.items)

    def without(self, others: "Circuits") -> "Circuits":
        """Those that are not among `others`: no port can clash that did not before."""
        rest = object.__new__(Circuits)
        object.__setattr__(rest, "items", self.items - others.items)
        return rest

    def of(self, ocs: str) -> "Circuits":
        """The circuits of one OCS."""
        return Circuits(frozenset(c for c in self.items if c.a.node == ocs))

    def check(self, fabric: Fabric) -> "Circuits":
        """Self, when every port is a cabled port of an OCS of `fabric`; else an RFabricError.

        >>> from rfabric.fabric import parse_fabric
        >>> Circuits.from_json(["a1:1-a1:3"]).check(parse_fabric("rfabric,pods=2"))
        <Circuits: 1 lit>
        >>> Circuits.from_json(["a1:1-a1:99"]).check(parse_fabric("rfabric,pods=2"))
        Traceback (most recent call last):
        rfabric.errors.RFabricError: circuit a1:1-a1:99: no cable at a1:99; a1 has 8
        """
        if "ocs ports" not in fabric.memo:
            fabric.memo["ocs ports"] = {
                port for node in fabric.ocses for port in fabric.ports[node.name]
            }
        ports = fabric.memo["ocs ports"]
        if ports.issuperset(chain.from_iterable(self.items)):
            return self
        for circuit in self:
            node = fabric.node.get(circuit.a.node)
            if node is None or node.kind != "ocs":
                raise RFabricError(
                    f"circuit {circuit}: {circuit.a.node} is not an OCS of {fabric.name}"
                )
            for port in circuit:
                if port not in fabric.peer:
                    raise RFabricError(
                        f"circuit {circuit}: no cable at {port}; {node.name} has "
                        f"{len(fabric.ports[node.name])}"
                    )
        return self

    def to_json(self) -> list[str]:
        """Each circuit as `a1:3-a1:7`, ascending; `from_json` is the inverse.

        >>> Circuits.from_json(["a1:5-2", "a1:1-a1:3"]).to_json()
        ['a1:1-a1:3', 'a1:2-a1:5']
        """
        return [str(c) for c in self]

    @classmethod
    def from_json(cls, data: Iterable[str]) -> "Circuits":
        """Read what `to_json` wrote; RFabricError for text that is not a circuit, or one that is
        listed twice.
        """
        circuits = [Circuit.parse(text) for text in data]
        if len(set(circuits)) != len(circuits):
            raise RFabricError(
                f"circuit {next(c for c in circuits if circuits.count(c) > 1)} is listed twice"
            )
        return cls(frozenset(circuits))


def check_ports(circuits: Iterable[Circuit]) -> None:
    """RFabricError for a port that an earlier one of these circuits already has."""
    for port, holder, late in clashes(circuits):
        raise RFabricError(
            f"port {port} is already in circuit {holder}; tear it down before {late}"
        )


def clashes(circuits: Iterable[Circuit]) -> list[tuple[Port, Circuit, Circuit]]:
    """Ports in two circuits, each with the earlier circuit and the later one: the checker of
    Circuits.
    """
    holder: dict[Port, Circuit] = {}
    taken = []
    for circuit in circuits:
        for port in circuit:
            if port in holder:
                taken.append((port, holder[port], circuit))
            holder[port] = circuit
    return taken


@dataclass(frozen=True)
class Rewire:
    """Circuits to tear down and to set up; circuits that stay are in neither and stay lit."""

    down: Circuits
    up: Circuits

    @classmethod
    def between(cls, old: Circuits, new: Circuits) -> "Rewire":
        """What must go down and come up from old to new."""
        return cls(old.without(new), new.without(old))

    def apply(self, old: Circuits) -> Circuits:
        """The circuits after the rewire of `old`."""
        return Circuits((old.items - self.down.items) | self.up.items)

    def to_json(self) -> dict[str, list[str]]:
        """What goes down and what comes up; `from_json` is the inverse."""
        return {"circuits_down": self.down.to_json(), "circuits_up": self.up.to_json()}

    @classmethod
    def from_json(cls, data: Mapping) -> "Rewire":
        """Read what `to_json` wrote and ignore other keys; RFabricError for text that is not a
        circuit.
        """
        return cls(*(Circuits.from_json(data[key]) for key in ("circuits_down", "circuits_up")))

    def __bool__(self) -> bool:
        return bool(self.size)

    @property
    def size(self) -> int:
        """Circuits changed, down and up together."""
        return len(self.down) + len(self.up)


@dataclass(frozen=True, eq=False)
class Demand:
    """Bytes between racks over a `window` (s).

    sent: a matrix (racks x racks, from rack i to rack j) or its entries. Few of thousands of racks
    send to each other, so only the entries are kept; `bytes` makes the matrix on request.
    window: s for which the phase that sends them is predicted to keep this demand; inf: unknown.
    phase: its name (`generation`, `training`, `weight_sync`, or what the trace says).
    floor: s that the busiest NIC needs. No circuits make it shorter, so a rewire that promises less
    is not worth it.
    lead: s of compute before the first byte is sent; this much of a rewire is hidden.

    Demands to come stand in line behind what is in flight. follows: for each demand that this one
    waits for, how many places it stands before this one (empty: it waits for nothing that is sent).
    ahead: s from the end of all of these, or from now, until this one begins.
    """

    racks: tuple[str, ...]
    sent: Entries
    window: float = float("inf")
    phase: str = ""
    floor: float = 0.0
    lead: float = 0.0
    ahead: float = 0.0
    follows: tuple[int, ...] = (1,)

    def __post_init__(self):
        if not isinstance(self.sent, Entries):
            object.__setattr__(self, "sent", self._entries(np.asarray(self.sent, dtype=float)))
        for name in ("floor", "lead", "ahead"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise RFabricError(f"demand {name} {getattr(self, name)} s must be finite and >= 0")
        for places in self.follows:
            if places < 1:
                raise RFabricError(
                    f"demand follows what stands {places} places before it: at least 1, or none"
                )

    def _entries(self, matrix: np.ndarray) -> Entries:
        n = len(self.racks)
        if matrix.shape != (n, n) or not np.isfinite(matrix).all() or (matrix < 0).any():
            raise RFabricError(
                f"demand must be {n} x {n} finite, non-negative bytes; got shape {matrix.shape}"
            )
        return Entries.of(matrix)

    @classmethod
    def none(cls, racks: Sequence[str]) -> "Demand":
        """Nothing to send."""
        nowhere = np.zeros(0, np.int64)
        return cls(tuple(racks), Entries(nowhere, nowhere, np.zeros(0)))

    @property
    def idle(self) -> bool:
        """Whether nothing is sent."""
        return not len(self.sent.bytes)

    @property
    def bytes(self) -> np.ndarray:
        """float64[racks, racks]: what rack i sends to rack j; 134 MB for 4,096 racks."""
        return self.sent.dense(len(self.racks))

    @property
    def sends(self) -> np.ndarray:
        """bool[racks]: which racks send."""
        return np.bincount(self.sent.rows, minlength=len(self.racks)) > 0

    @property
    def receives(self) -> np.ndarray:
        """bool[racks]: which racks receive."""
        return np.bincount(self.sent.columns, minlength=len(self.racks)) > 0

    @property
    def sinks(self) -> np.ndarray:
        """bool[racks]: which racks receive and do not send."""
        return self.receives & ~self.sends

    @cached_property
    def joint(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(rack, higher rack, what the busier direction sends) of racks that send to each other; by
        rack, then the other.
        """
        n, (rows, columns, sent) = len(self.racks), self.sent
        codes, which = numbered(np.minimum(rows, columns) * n + np.maximum(rows, columns))
        busier = np.zeros(len(codes))
        np.maximum.at(busier, which, sent)
        return codes // n, codes % n, busier

    @property
    def partners(self) -> np.ndarray:
        """int64[racks]: with how many other racks each one sends or receives."""
        low, high, _ = self.joint
        return np.bincount(np.concatenate((low, high[low != high])), minlength=len(self.racks))


def together(demands: Sequence[Demand]) -> Demand:
    """The sum of several demands that are sent at once, with the longest window, the shortest lead
    and the highest floor.
    """
    first, *others = demands
    if not others:
        return first
    columns = (np.concatenate(column) for column in zip(*(d.sent for d in demands), strict=True))
    return Demand(
        first.racks,
        Entries.summed(*columns, len(first.racks)),
        max(d.window for d in demands),
        first.phase,
        max(d.floor for d in demands),
        min(d.lead for d in demands),
    )


def joined(fabric: Fabric, circuits: Iterable[Circuit]) -> dict[frozenset[str], int]:
    """How many optical light paths join each pair of ToRs."""
    count: dict[frozenset[str], int] = {}
    for path in optical_paths(fabric, circuits):
        if path.out < path.into:
            pair = frozenset((path.out.node, path.into.node))
            count[pair] = count.get(pair, 0) + 1
    return count


def optical_paths(fabric: Fabric, circuits: Iterable[Circuit]) -> list[LightPath]:
    """The light paths that cross at least one OCS."""
    return [p for p in light_paths(fabric, circuits) if len(p.links) > 1]

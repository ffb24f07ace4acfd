"""Where packets go: light paths through the OCSes, shortest paths over them, ECMP by one hash for both worlds.

A *light path* leaves an electrical port (of a ToR, a packet switch or a host), crosses any number of OCSes through circuits, and
ends at the next electrical port. A plain cable is the light path that crosses none. Packets choose among light paths:

    cost of a light path = reference rate / its rate     (as OSPF does), so a thin electrical path loses to fast circuits
    next hops            = all light paths on a cheapest way to the destination rack
    choice               = hash(src, dst, switch) mod number of next hops, the same in the simulator and in the switches
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..errors import RFabricError
from .model import Fabric, Port

if TYPE_CHECKING:  # numpy is loaded when paths are computed: `mn` runs topology files without it
    import numpy as np


@dataclass(frozen=True)
class LightPath:
    """From port `out` to port `into`: directed `links` in order, and the slowest `rate` (bit/s) among them."""

    out: Port
    into: Port
    links: tuple[int, ...]
    rate: float


@dataclass(frozen=True)
class Rule:
    """What one switch does with a packet; `controller/` turns it into a flow-mod.

    `match` is `("port", number)` for a crossbar, `("pair", src host, dst host)` or `("to", dst host)` for a packet switch.
    `out` is a port number of the same switch.
    """

    switch: str
    match: tuple
    out: int
    priority: int


PAIR_PRIORITY, HOST_PRIORITY, CIRCUIT_PRIORITY = 200, 300, 100


def light_paths(fabric: Fabric, circuits: Iterable[tuple[Port, Port]] = ()) -> tuple[LightPath, ...]:
    """Every light path that `circuits` complete, both directions, ordered by the port it leaves from."""
    cross = {}
    for a, b in circuits:
        cross[a], cross[b] = b, a
    ocs = {n.name for n in fabric.ocses}
    found = []
    for out in sorted(p for p in fabric.peer if p.node not in ocs):
        path = _follow(fabric, cross, ocs, out)
        if path is not None:
            found.append(path)
    return tuple(found)


def _follow(fabric: Fabric, cross: dict[Port, Port], ocs: set[str], out: Port) -> LightPath | None:
    links, rate, port = [], float("inf"), out
    while True:
        link, into = fabric.peer[port]
        links.append(link)
        rate = min(rate, fabric.links[link // 2].rate)
        if into.node not in ocs:
            return LightPath(out, into, tuple(links), rate)
        if into not in cross or len(links) > len(fabric.links):
            return None  # dark end, or a ring of circuits that holds no packet switch
        port = cross[into]


class Routes:
    """Shortest paths of one fabric under one set of circuits; costs are computed once, next hops when they are asked for."""

    def __init__(self, fabric: Fabric, circuits: Iterable[tuple[Port, Port]] = ()):
        self.fabric = fabric
        self.leaving: dict[str, list[LightPath]] = defaultdict(list)
        for path in light_paths(fabric, circuits):
            self.leaving[path.out.node].append(path)
        self.reference = max((link.rate for link in fabric.links), default=1.0)
        self._row = {node.name: i for i, node in enumerate(n for n in fabric.nodes if n.kind == "eps")}
        self._hops: dict[tuple[str, str], list[LightPath]] = {}
        self._arcs: dict[str, tuple] = {}
        self._index = {host: i for i, host in enumerate(fabric.hosts)}
        self._salt = {node.name: _mix(i + 1) for i, node in enumerate(fabric.nodes)}

    def next_hops(self, node: str, rack: str) -> list[LightPath]:
        """The light paths on the cheapest ways from switch `node` to `rack`, in order of their ports; [] where none leads."""
        key = node, rack
        if key not in self._hops:
            cost, column = self._costs
            paths, into, steps = self._onward(node)
            to = column[rack]
            here = cost[self._row[node], to]
            fits = abs(cost[into, to] + steps - here) <= 1e-6 * here if here < float("inf") else []
            self._hops[key] = [path for path, fit in zip(paths, fits, strict=False) if fit]
        return self._hops[key]

    def _onward(self, node: str) -> "tuple[list[LightPath], np.ndarray, np.ndarray]":
        """The light paths from a switch to other switches: themselves, the row they lead to, their cost."""
        import numpy as np

        if node not in self._arcs:
            paths = [path for path in self.leaving[node] if path.into.node in self._row]
            into = np.array([self._row[path.into.node] for path in paths], dtype=np.int64)
            self._arcs[node] = paths, into, np.array([self.reference / path.rate for path in paths])
        return self._arcs[node]

    @cached_property
    def _costs(self) -> "tuple[np.ndarray, dict[str, int]]":
        """(cost[switch, rack], column of each rack): cheapest ways from every switch to every rack.

        Dijkstra from all racks at once, by rings of equal cost: a ring settled at cost D reaches, over the light paths of one
        rate class, the ring at D + their cost. A fabric has few rates, hence few rings, and each is a product of matrices.
        """
        import numpy as np

        racks, n = self.fabric.racks, len(self._row)
        cost = np.full((n, len(racks)), np.inf)
        rings = {0.0: np.zeros((n, len(racks)), np.float32)}
        for column, rack in enumerate(racks):
            rings[0.0][self._row[rack], column] = 1
        classes = self._rate_classes()
        while rings:
            at = min(rings)
            new = (rings.pop(at) > 0) & np.isinf(cost)
            cost[new] = at
            for step, joins in classes.items() if new.any() else ():
                ahead = round(at + step, 9)
                rings[ahead] = rings.get(ahead, 0) + joins @ new.astype(np.float32)
        return cost, {rack: i for i, rack in enumerate(racks)}

    def _rate_classes(self) -> "dict[float, np.ndarray]":
        """For each cost of a light path: a switches x switches matrix of which switch has such a path to which."""
        import numpy as np

        classes: dict[float, np.ndarray] = {}
        for node, row in self._row.items():
            _, into, steps = self._onward(node)
            for step in np.unique(steps).tolist():
                if step not in classes:
                    classes[step] = np.zeros((len(self._row),) * 2, np.float32)
                classes[step][row, into[steps == step]] = 1
        return classes

    def path(self, src: str, dst: str) -> tuple[LightPath, ...]:
        """The light paths a packet from host `src` to host `dst` takes, or () where nothing connects them."""
        rack_of = self.fabric.rack_of
        if src not in rack_of or dst not in rack_of:
            raise RFabricError(f"no host {src if src not in rack_of else dst!r} in fabric {self.fabric.name}")
        node, rack = rack_of[src], rack_of[dst]
        taken = [self.leaving[src][0]]
        while node != rack:
            choices = self.next_hops(node, rack)
            if not choices:
                return ()
            taken.append(choices[self.choice(src, dst, node, len(choices))])
            node = taken[-1].into.node
        last = self.leaving[dst][0]
        back = LightPath(last.into, last.out, (last.links[0] ^ 1,), last.rate)
        return (*taken, back)

    def links(self, src: str, dst: str) -> tuple[int, ...]:
        """The directed links of `path`, in order."""
        return tuple(link for hop in self.path(src, dst) for link in hop.links)

    def choice(self, src: str, dst: str, node: str, n: int) -> int:
        """Which of `n` equal next hops `node` gives the pair: the hash both worlds share (splitmix64 over the triple)."""
        pair = _mix(self._index[src] << 32 | self._index[dst])
        return _mix(pair ^ self._salt[node]) % n

    def rules(self, pairs: Iterable[tuple[str, str]]) -> list[Rule]:
        """Rules of the packet switches for these ordered host pairs, and for every host below its own ToR."""
        rules = [
            Rule(rack, ("to", host), self.leaving[host][0].into.number, HOST_PRIORITY)
            for host, rack in self.fabric.rack_of.items()
        ]
        for src, dst in pairs:
            for hop in self.path(src, dst)[1:-1]:
                rules.append(Rule(hop.out.node, ("pair", src, dst), hop.out.number, PAIR_PRIORITY))
        return rules


def circuit_rules(circuits: Iterable[tuple[Port, Port]]) -> list[Rule]:
    """Two crossbar rules per circuit: in-port to out-port, both ways; no header is read."""
    return [
        Rule(x.node, ("port", x.number), y.number, CIRCUIT_PRIORITY) for a, b in circuits for x, y in ((a, b), (b, a))
    ]


def unreachable(routes: Routes, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs that no path connects: the checker beside `Routes.path`."""
    return [(s, d) for s, d in pairs if s != d and not routes.path(s, d)]


def where_lost(rules: Sequence[Rule], fabric: Fabric, circuits: Iterable[tuple[Port, Port]], src: str, dst: str) -> str:
    """Walk a packet of (src, dst) through `rules` as an in-memory switch would; '' when it arrives, else what went wrong."""
    table = {(r.switch, r.match): r for r in rules}
    cross = {(x.node, x.number): y.number for a, b in circuits for x, y in ((a, b), (b, a))}
    port, seen = fabric.ports[src][0], set()
    while True:
        into = fabric.peer[port][1]
        if into.node == dst:
            return ""
        if into in seen:
            return f"loop at {into}"
        seen.add(into)
        if fabric.node[into.node].kind == "ocs":
            out = cross.get((into.node, into.number))
        else:
            keys = (("to", dst), ("pair", src, dst))
            out = next((table[into.node, k].out for k in keys if (into.node, k) in table), None)
        if out is None:
            return f"dropped at {into}"
        port = Port(into.node, out)


def _mix(x: int) -> int:
    """splitmix64's finaliser (Steele, Lea, Flood 2014): a public, fast, well-spread 64-bit hash."""
    x = (x + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return x ^ x >> 31

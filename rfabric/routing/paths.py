"""Where packets go: light paths through the OCSes, shortest paths over them, ECMP by one hash for
both worlds.

A *light path* leaves an electrical port (of a ToR, a packet switch or a host), crosses any number
of OCSes through circuits, and ends at the next electrical port. A plain cable is the light path
that crosses none. Packets choose among light paths:

    cost of a light path = reference rate / its rate     (as OSPF does), so a thin electrical path
                                                         loses to fast circuits
    next hops            = all light paths on a cheapest way to the destination rack
    choice               = hash(src, dst, switch) mod number of next hops, the same in the simulator
                         and in the switches

That is the scheme `ecmp`; `schemes` has the others, which choose a whole way for a pair. Either way
a pair's way comes out of one Routes object: the simulator takes its links, the switches its rules.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ..errors import RFabricError
from ..fabric.cabling import cabling_of
from ..fabric.model import Fabric, Port
from .choices import Choices
from .lightpaths import lights
from .rows import SPLITMIX
from .schemes import Chosen, Routing, Sent, chosen, one_way
from .ways import Ways


@dataclass(frozen=True)
class LightPath:
    """From port `out` to port `into`: directed `links` in order, and the slowest `rate` (bit/s)
    among them.
    """

    out: Port
    into: Port
    links: tuple[int, ...]
    rate: float


@dataclass(frozen=True)
class Rule:
    """What one switch does with a packet; `controller/` turns it into a flow-mod.

    `match` is `("port", number)` for a crossbar, `("pair", src host, dst host)` or `("to", dst
    host)` for a packet switch. `out` is a port number of the same switch.
    """

    switch: str
    match: tuple
    out: int
    priority: int


PAIR_PRIORITY, HOST_PRIORITY, CIRCUIT_PRIORITY = 200, 300, 100
WORD = 2**64 - 1


def light_paths(
    fabric: Fabric, circuits: Iterable[tuple[Port, Port]] = ()
) -> tuple[LightPath, ...]:
    """Every light path that `circuits` complete, both directions, ordered by the port it leaves
    from.
    """
    routes = Routes(fabric, circuits)
    return tuple(map(routes.light_path, range(len(routes.lights))))


def routes_of(
    fabric: Fabric, circuits: Iterable[tuple[Port, Port]] = (), routing: "Routing | None" = None
) -> "Routes":
    """The Routes of hashable `circuits`, the last few of a fabric kept, and those that somebody
    holds: policy, planner and world ask for the same ones.
    """
    if "routes" not in fabric.memo:
        fabric.memo["routes"] = lru_cache(8)(partial(_routes, fabric, WeakValueDictionary()))
    return fabric.memo["routes"](circuits, routing)


def forget(fabric: Fabric) -> None:
    """Let go of the routes that `routes_of` keeps, the largest of what is known of a fabric."""
    fabric.memo.pop("routes", None)
    fabric.memo.pop("rings", {}).clear()  # those that know of each other would stay


def _routes(
    fabric: Fabric,
    held: "WeakValueDictionary[tuple, Routes]",
    circuits: Iterable[tuple[Port, Port]],
    routing: "Routing | None",
) -> "Routes":
    known = held.get((circuits, routing))
    if known is None:
        alike = None if routing is None else routes_of(fabric, circuits)
        held[circuits, routing] = known = Routes(fabric, circuits, routing, alike)
    return known


class Routes:
    """The ways of one fabric under one set of circuits and one Routing; worked out when they are
    asked for.

    `routes_of` keeps the last few. `path` answers for one pair of hosts, `links_of` for many at
    once. `alike`: Routes of the same circuits, whose light paths and cheapest ways are these.
    `kept`: what others work out of these and may want again.
    """

    def __init__(
        self,
        fabric: Fabric,
        circuits: Iterable[tuple[Port, Port]] = (),
        routing: "Routing | None" = None,
        alike: "Routes | None" = None,
    ):
        self.fabric, self.routing, self._alike = fabric, routing, alike
        self.lights = alike.lights if alike else lights(fabric, circuits)
        self._seen: dict[int, LightPath] = {}
        self._hops: dict[tuple[str, str], list[LightPath]] = {}
        self._asked: Chosen | None = None  # the pairs asked for last, where a hash chooses
        self.kept: dict[Hashable, Any] = {}

    @cached_property
    def ways(self) -> Ways:
        """The cheapest ways over `lights`."""
        if self._alike:
            return self._alike.ways
        reference = float(cabling_of(self.fabric).rate.max(initial=0.0)) or 1.0
        return Ways(self.fabric, self.lights, reference)

    def light_path(self, number: int) -> LightPath:
        """Light path `number` of `lights`."""
        if number not in self._seen:
            lit = self.lights
            out, into = (self._port(int(ports[number])) for ports in (lit.out, lit.into))
            links = tuple(lit.links[lit.offsets[number] : lit.offsets[number + 1]].tolist())
            self._seen[number] = LightPath(out, into, links, float(lit.rate[number]))
        return self._seen[number]

    def next_hops(self, node: str, rack: str) -> list[LightPath]:
        """The light paths on the cheapest ways from switch `node` to `rack`, in order of their
        ports; [] where none leads.
        """
        key = node, rack
        if key not in self._hops:
            row = int(cabling_of(self.fabric).row[self._index[node]])
            numbers = self.ways.onward(row, self.fabric.rack_index[rack])
            self._hops[key] = [self.light_path(number) for number in numbers.tolist()]
        return self._hops[key]

    def cost(self, node: str, rack: str) -> float:
        """The cost of the cheapest way from switch `node` to `rack`; inf where none leads."""
        return float(
            self.ways.cost(
                cabling_of(self.fabric).row[self._index[node]], self.fabric.rack_index[rack]
            )
        )

    def path(self, src: str, dst: str) -> tuple[LightPath, ...]:
        """The light paths a packet from host `src` to host `dst` takes, or () where nothing
        connects them.
        """
        up, down = (self._cable(host) for host in (src, dst))
        last = LightPath(down.into, down.out, (down.links[0] ^ 1,), down.rate)
        node, rack = up.into.node, down.into.node
        taken, chosen = [up], self._chosen_alone(src, dst)
        if chosen is not None and node != rack:
            return (up, *map(self.light_path, chosen), last) if chosen else ()
        while node != rack:
            choices = self.next_hops(node, rack)
            if not choices:
                return ()
            taken.append(choices[self.choice(src, dst, node, len(choices))])
            node = taken[-1].into.node
        return (*taken, last)

    def _chosen_alone(self, src: str, dst: str) -> list[int] | None:
        """The light paths that the scheme has chosen for one pair; None where the hash picks at
        every switch.
        """
        if self.routing is None or self.routing.scheme == "ecmp":
            return None
        hops, known = self._chosen(np.array([self._host(src) << 32 | self._host(dst)]))
        return hops[0][hops[0] >= 0].tolist() if known[0] else None

    def links(self, src: str, dst: str) -> tuple[int, ...]:
        """The directed links of `path`, in order."""
        return tuple(link for hop in self.path(src, dst) for link in hop.links)

    def links_of(self, src: "np.ndarray", dst: "np.ndarray") -> "tuple[np.ndarray, np.ndarray]":
        """CSR (int64 offsets, int32 directed links) of the ways of host pairs (numbers); empty
        where nothing connects one.
        """
        if self.routing is None or self.routing.scheme == "ecmp":
            return self.ways.links(src, dst)
        hops, known = self._chosen(src.astype("int64") << 32 | dst)
        return self.ways.links_along(src, dst, hops, ~known)

    def _chosen(self, codes: "np.ndarray") -> "tuple[np.ndarray, np.ndarray]":
        """The light paths that the scheme has chosen for pairs (src << 32 | dst), and which it
        knows: others take the hash.
        """
        one_way(self.routing.scheme)
        if self.routing.sent is not None:
            return self._placed.of(codes)
        if self._asked is None or not self._asked.of(codes)[1].all():
            asked = np.unique(codes)
            sent = Sent(asked >> 32, asked & 0xFFFFFFFF, np.zeros((1, len(asked))))
            self._asked = chosen(self.choices, self.routing.scheme, sent)
        return self._asked.of(codes)

    def ask(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Work out the ways of many pairs at once, which costs little more than those of one;
        `path` knows them then.
        """
        if self.routing is not None and self.routing.scheme != "ecmp":
            self._chosen(
                np.array(
                    [self._host(src) << 32 | self._host(dst) for src, dst in pairs], dtype=np.int64
                )
            )

    @cached_property
    def _placed(self):
        """`schemes.Chosen` for all pairs that the routing knows."""
        paths = chosen(self.choices, self.routing.scheme, self.routing.sent)
        self.__dict__.pop("choices")  # large, and seldom asked for again
        return paths

    @cached_property
    def choices(self):
        """`schemes.Choices`: the ways from rack to rack that schemes choose among."""
        calm = routes_of(self.fabric, frozenset()).ways if self.fabric.ocses else None
        return Choices(self.ways, calm)

    def choice(self, src: str, dst: str, node: str, n: int) -> int:
        """Which of `n` equal next hops `node` gives the pair: the hash both worlds share
        (splitmix64 over the triple).
        """
        pair = mix(self._host(src) << 32 | self._host(dst))
        return mix(pair ^ mix(self._index[node] + 1)) % n

    def rules(self, pairs: Iterable[tuple[str, str]]) -> list[Rule]:
        """Rules of the packet switches for these ordered host pairs, and for every host below its
        own ToR.
        """
        rules = [
            Rule(rack, ("to", host), self._cable(host).into.number, HOST_PRIORITY)
            for host, rack in self.fabric.rack_of.items()
        ]
        pairs = list(pairs)
        self.ask(pairs)
        for src, dst in pairs:
            for hop in self.path(src, dst)[1:-1]:
                rules.append(Rule(hop.out.node, ("pair", src, dst), hop.out.number, PAIR_PRIORITY))
        return rules

    def rules_along(self, src: str, dst: str, links: Sequence[int]) -> list[Rule]:
        """Rules of the packet switches that send a pair along these directed links, from host to
        host.
        """
        ports = map(self._port, links[1:])
        return [
            Rule(port.node, ("pair", src, dst), port.number, PAIR_PRIORITY)
            for port in ports
            if self.fabric.node[port.node].kind == "eps"
        ]

    @cached_property
    def joins_all(self) -> bool:
        """Whether some path leads from every rack to every other."""
        return self.ways.joins_all

    def lost(self, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """The host pairs that no path connects."""
        pairs = [pair for pair in pairs if pair[0] != pair[1]]
        numbers = np.array(
            [[self._host(host) for host in pair] for pair in pairs], dtype=np.int64
        ).reshape(-1, 2)
        return [pairs[i] for i in np.flatnonzero(~self.ways.reaches(*numbers.T)).tolist()]

    def _cable(self, host: str) -> LightPath:
        link = int(cabling_of(self.fabric).host_link[self._host(host)])
        return LightPath(
            self._port(link), self._port(link ^ 1), (link,), self.fabric.links[link // 2].rate
        )

    def _port(self, leaving: int) -> Port:
        """The port that a directed link leaves."""
        link = self.fabric.links[leaving // 2]
        return link.b if leaving % 2 else link.a

    def _host(self, name: str) -> int:
        try:
            return self.fabric.host_index[name]
        except KeyError:
            raise RFabricError(f"no host {name!r} in fabric {self.fabric.name}") from None

    @cached_property
    def _index(self) -> dict[str, int]:
        return {node.name: i for i, node in enumerate(self.fabric.nodes)}


def circuit_rules(circuits: Iterable[tuple[Port, Port]]) -> list[Rule]:
    """Two crossbar rules per circuit: in-port to out-port, both ways; no header is read."""
    return [
        Rule(x.node, ("port", x.number), y.number, CIRCUIT_PRIORITY)
        for a, b in circuits
        for x, y in ((a, b), (b, a))
    ]


def unreachable(routes: Routes, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs that no path connects: the checker beside `Routes.path`."""
    return routes.lost(pairs)


def walk(
    fabric: Fabric,
    src: str,
    dst: str,
    leads: Callable[[Port], int | str],
    begun: Sequence[int] = (),
) -> str:
    """Follow a packet from host to host: '' when it arrives, else where it ended and why.

    leads(port): the port by which a packet leaves the switch it entered at `port`, or why it goes
    no further. begun: the ports by which it has left the first switches before.
    """
    port, seen = fabric.ports[src][0], set()
    for out in begun:
        port = Port(fabric.peer[port][1].node, out)
    while True:
        into = fabric.peer[port][1]
        if into.node == dst:
            return ""
        if into in seen:
            return f"loop at {into}"
        if fabric.node[into.node].kind == "host":
            return f"delivered to {into}"
        seen.add(into)
        out = leads(into)
        if isinstance(out, str):
            return f"{out} at {into}"
        port = Port(into.node, out)


def where_lost(
    rules: Sequence[Rule],
    fabric: Fabric,
    circuits: Iterable[tuple[Port, Port]],
    pairs: Iterable[tuple[str, str]],
) -> list[str]:
    """`walk` a packet of each pair through `rules`, as in-memory switches would."""
    table = {(rule.switch, rule.match): rule.out for rule in rules}
    cross = {x: y.number for a, b in circuits for x, y in ((a, b), (b, a))}

    def leads(src: str, dst: str, into: Port) -> int | str:
        if fabric.node[into.node].kind == "ocs":
            return cross.get(into, "dropped")
        keys = (into.node, ("to", dst)), (into.node, ("pair", src, dst))
        out = next((table[key] for key in keys if key in table), None)
        return out if Port(into.node, out) in fabric.peer else "dropped"

    return [walk(fabric, *pair, partial(leads, *pair)) for pair in pairs]


def mix(x: int) -> int:
    """splitmix64's finaliser (Steele, Lea, Flood 2014): a public, fast, well-spread 64-bit hash."""
    step, first, second = SPLITMIX
    x = (x + step) & WORD
    x = ((x ^ x >> 30) * first) & WORD
    x = ((x ^ x >> 27) * second) & WORD
    return x ^ x >> 31

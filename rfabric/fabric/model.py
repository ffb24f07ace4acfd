"""What is cabled: ports, nodes, links, and the immutable Fabric they make.

    h1 --- t1 === a1 === c1 === a2 === t2 --- h5        --- host cable   === uplink cable
           `----------- x1 -----------'                 thin always-on electrical path

A host is one GPU with its own NIC. An `eps` is an electrical packet switch; an `ocs` is an optical
circuit switch: a crossbar that joins port to port and reads no header. A rack is what hosts hang
on: a ToR, or, where OCSes are cabled to servers, the server: the forwarding plane of its NICs, its
GPUs below it over NVLink and PCIe, which is no cable. Cables never move; what an OCS connects is a
set of Circuits (room `optics`). Port numbers are OpenFlow port numbers everywhere, and interface
names are Mininet's (`t1-eth3`).
"""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ..errors import RFabricError
from ..files import parse_json

KINDS = ("host", "eps", "ocs")
TIERS = ("host", "edge", "aggregation", "core", "electrical", "server")
RACKS = ("edge", "server")  # tiers whose packet switches hold hosts: a ToR, or the NICs of a server
LEAST_RATE = 1.0  # bit/s of a cable: below it times lose their digits
MOST_RATE = 1e18  # bit/s: above it sums leave the whole numbers of 64 bits
MOST_DELAY = 1e9  # s: so that times keep microseconds
MOST_PORT = 0xFFFFFF00  # OFPP_MAX (OpenFlow 1.3): numbers above are of no port
MOST_DPID = 2**64 - 1  # a datapath id has 64 bits
OTHERS = "say what else it is by format=NAME (`rfabric list formats`)"  # a JSON that is no Fabric
MAX_NAME = 8  # Linux interface names hold 15 characters: name + "-eth" + three digits

Pair = tuple[str, str]  # names of two hosts: who sends, who receives


class Port(NamedTuple):
    """Port `number` of `node`; prints as `o2:3`.

    The number is the OpenFlow port number and starts at 1.
    """

    node: str
    number: int

    def __str__(self) -> str:
        return f"{self.node}:{self.number}"

    @classmethod
    def parse(cls, text: str) -> "Port":
        """The port that is written NODE:NUMBER; anything else is an RFabricError.

        >>> Port.parse("a1:3")
        Port(node='a1', number=3)
        """
        node, _, number = str(text).partition(":")
        if not node or not number.isascii() or not number.isdigit():
            raise RFabricError(f"port {text!r} is not NODE:NUMBER, for example a1:3")
        if len(number) > len(str(MOST_PORT)) or not 1 <= int(number) <= MOST_PORT:
            raise RFabricError(f"port {str(text)[:40]}: numbers of ports are 1 to {MOST_PORT}")
        return cls(node, int(number))

    @property
    def interface(self) -> str:
        """The interface name Mininet gives this port: `a1-eth3`."""
        return f"{self.node}-eth{self.number}"


@dataclass(frozen=True)
class Node:
    """A host (one GPU and its NIC) or a switch.

    `pod` counts from 0, -1 where a node belongs to no pod; `plane` likewise (a plane is one slice
    of the fabric: one uplink of every ToR, one aggregation switch per pod, one core switch). `dpid`
    is 0 for hosts.
    """

    name: str
    kind: str
    tier: str
    pod: int = -1
    plane: int = -1
    dpid: int = 0

    def __post_init__(self):
        if (
            not isinstance(self.name, str)
            or not self.name.isalnum()
            or not self.name.isascii()
            or len(self.name) > MAX_NAME
        ):
            raise RFabricError(
                f"node name {self.name!r}: use 1 to {MAX_NAME} ASCII letters and digits"
            )
        if self.kind not in KINDS or self.tier not in TIERS:
            raise RFabricError(
                f"node {self.name}: kind {self.kind!r} / tier {self.tier!r} not "
                f"in {KINDS} / {TIERS}"
            )
        if (self.kind == "host") != (self.tier == "host"):
            raise RFabricError(
                f"node {self.name}: kind {self.kind!r} with tier {self.tier!r}; hosts, and they "
                "alone, are of tier host"
            )
        for key in ("pod", "plane", "dpid"):
            if type(getattr(self, key)) is not int:
                raise RFabricError(
                    f"node {self.name}: {key} {getattr(self, key)!r} must be a whole number"
                )
        if not 0 <= self.dpid <= MOST_DPID:
            raise RFabricError(f"node {self.name}: dpid {self.dpid} must be 0 to {MOST_DPID}")


@dataclass(frozen=True)
class Link:
    """A cable between two ports, full duplex: `rate` bit/s each way, `delay` s one way."""

    a: Port
    b: Port
    rate: float
    delay: float = 0.0

    def __post_init__(self):
        if not LEAST_RATE <= self.rate <= MOST_RATE or not 0 <= self.delay <= MOST_DELAY:
            raise RFabricError(
                f"cable {self.a}-{self.b}: rate {self.rate:g} bit/s must be {LEAST_RATE:g} to "
                f"{MOST_RATE:g}, and delay {self.delay:g} s 0 to {MOST_DELAY:g}"
            )


@dataclass(frozen=True)
class Fabric:
    """Nodes, cables and the OCS reconfiguration delay; immutable, checked on construction.

    `spec` is what a user typed (`rfabric,pods=4`), `reconfig_delay` (s) the time a circuit stays
    dark after the switch was told to move. Which GPUs share a server (NVLink) is the workload's
    business, not the fabric's.

    Directed links are numbered: cable i carries a->b as link 2i and b->a as link 2i+1. Both worlds
    use these numbers.
    """

    name: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    reconfig_delay: float = 0.0
    spec: str = ""
    parameters: dict = field(default_factory=dict)

    def __post_init__(self):
        object.__setattr__(self, "nodes", tuple(self.nodes))
        object.__setattr__(self, "links", tuple(self.links))
        if not 0 <= self.reconfig_delay < float("inf"):
            raise RFabricError(
                f"fabric {self.name}: reconfiguration delay {self.reconfig_delay} s must be >= 0"
            )
        if len(self.node) != len(self.nodes):
            raise RFabricError(f"fabric {self.name}: two nodes share a name")
        if len({n.dpid for n in self.switches}) != len(self.switches):
            raise RFabricError(f"fabric {self.name}: two switches share a dpid")
        ends = [end for link in self.links for end in (link.a, link.b)]
        if len(set(ends)) != len(ends):
            twice = next(end for i, end in enumerate(ends) if end in ends[:i])
            raise RFabricError(f"port {twice} holds two cables; unplug one")
        if not {end.node for end in ends} <= self.node.keys():
            end = next(end for end in ends if end.node not in self.node)
            raise RFabricError(f"cable at {end}: the fabric has no node {end.node}")
        if not self.hosts:
            raise RFabricError(f"fabric {self.name}: it has no host")
        for host, ends in self._host_ends.items():
            nodes = [self.node[end.node] for end in ends]
            if len(nodes) != 1 or nodes[0].tier not in RACKS or nodes[0].kind != "eps":
                others = ", ".join(node.name for node in nodes) or "nothing"
                raise RFabricError(
                    f"host {host} is cabled to {others}; it needs one cable, to a ToR (tier "
                    "edge, kind eps)"
                )

    def __repr__(self) -> str:
        kinds = f"{len(self.switches)} switches ({len(self.ocses)} OCSes), {len(self.links)} cables"
        return f"<Fabric {self.spec or self.name}: {len(self.hosts)} hosts, {kinds}>"

    @cached_property
    def node(self) -> dict[str, Node]:
        """Nodes by name."""
        return {n.name: n for n in self.nodes}

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Host names in order: host i is GPU i, its address follows from i."""
        return tuple(n.name for n in self.nodes if n.kind == "host")

    @cached_property
    def switches(self) -> tuple[Node, ...]:
        """All nodes that are no hosts."""
        return tuple(n for n in self.nodes if n.kind != "host")

    @cached_property
    def ocses(self) -> tuple[Node, ...]:
        """The optical circuit switches."""
        return tuple(n for n in self.nodes if n.kind == "ocs")

    @cached_property
    def racks(self) -> tuple[str, ...]:
        """The ToRs (or servers) that hold hosts, in order; the labels of a Demand."""
        return tuple(n.name for n in self.nodes if n.tier in RACKS and n.kind == "eps")

    @cached_property
    def rack_index(self) -> dict[str, int]:
        """The position of each rack in `racks`."""
        return {rack: i for i, rack in enumerate(self.racks)}

    @cached_property
    def peer(self) -> dict[Port, tuple[int, Port]]:
        """`peer[port] = (directed link leaving that port, port at the other end)`."""
        table: dict[Port, tuple[int, Port]] = {}
        for i, link in enumerate(self.links):
            table[link.a] = (2 * i, link.b)
            table[link.b] = (2 * i + 1, link.a)
        return table

    @cached_property
    def ports(self) -> dict[str, tuple[Port, ...]]:
        """The cabled ports of each node, ascending."""
        table: dict[str, list[Port]] = {n.name: [] for n in self.nodes}
        for link in self.links:
            for port in (link.a, link.b):
                table[port.node].append(port)
        return {name: tuple(sorted(ports)) for name, ports in table.items()}

    @cached_property
    def rack_of(self) -> dict[str, str]:
        """The ToR of each host: the switch at the other end of its first cable."""
        return {host: ends[0].node for host, ends in self._host_ends.items()}

    @cached_property
    def _host_ends(self) -> dict[str, list[Port]]:
        """The ports at the other ends of each host's cables."""
        ends: dict[str, list[Port]] = {host: [] for host in self.hosts}
        for link in self.links:
            a, b = link.a, link.b
            if a.node in ends:
                ends[a.node].append(b)
            if b.node in ends:
                ends[b.node].append(a)
        return ends

    @cached_property
    def host_index(self) -> dict[str, int]:
        """The number of each host: 0 for h1."""
        return {host: i for i, host in enumerate(self.hosts)}

    @cached_property
    def memo(self) -> dict:
        """What other rooms have worked out about this fabric and want to keep, by name."""
        return {}

    @cached_property
    def pods(self) -> int:
        """How many pods there are."""
        return 1 + max((n.pod for n in self.nodes), default=-1)

    def __getstate__(self) -> dict:
        """Without what can be worked out again, part of which cannot be pickled."""
        return {k: v for k, v in self.__dict__.items() if k not in ("memo", "_host_ends")}

    def named(self, spec: str) -> "Fabric":
        """The same fabric with this `spec`, which changes nothing that would have to be checked
        again.
        """
        same = copy(self)
        same.__dict__.pop("memo", None)
        object.__setattr__(same, "spec", spec)
        return same

    def rate(self, port: Port) -> float:
        """bit/s of the cable at `port`."""
        return self.links[self.peer[port][0] // 2].rate

    def graph(self, circuits: Iterable[tuple[Port, Port]] = ()):
        """The effective network as a `networkx.MultiDiGraph` of hosts and electrical switches.

        Every cable between them, and every way through OCSes that `circuits` completes, is an edge
        with `rate` (the slowest cable on it), `links` (tuple of directed link numbers, in order)
        and `out` (port it leaves from).
        """
        import networkx as nx

        graph = nx.MultiDiGraph(name=self.name)
        graph.add_nodes_from(
            (n.name, {"tier": n.tier, "pod": n.pod}) for n in self.nodes if n.kind != "ocs"
        )
        joined = {x: y for a, b in circuits for x, y in ((a, b), (b, a))}
        for out in sorted(port for port in self.peer if port.node in graph):
            links, end = self._followed(out, joined)
            if end is not None:
                rate = min(self.links[link // 2].rate for link in links)
                graph.add_edge(out.node, end.node, rate=rate, links=links, out=out)
        return graph

    def _followed(self, out: Port, joined: dict[Port, Port]) -> tuple[tuple[int, ...], Port | None]:
        """The directed links of the light that leaves port `out`, and the electrical port where it
        ends; None: it is dark.
        """
        links: list[int] = []
        leaves: Port | None = out
        while leaves is not None:
            link, end = self.peer[leaves]
            links.append(link)
            if self.node[end.node].kind != "ocs":
                return tuple(links), end
            leaves = joined.get(end)
        return tuple(links), None

    def to_json(self) -> dict:
        """Plain data for another process; `Fabric.from_json` is the inverse."""
        links = [
            {"a": str(k.a), "b": str(k.b), "rate_bps": k.rate, "delay_s": k.delay}
            for k in self.links
        ]
        return self.described | {"links": links}

    @property
    def described(self) -> dict:
        """All of `to_json` but the cables."""
        return {
            "name": self.name,
            "spec": self.spec,
            "reconfig_delay_s": self.reconfig_delay,
            "parameters": self.parameters,
            "nodes": [dict(vars(n)) for n in self.nodes],
        }

    @classmethod
    def from_json(cls, data: dict | str) -> "Fabric":
        """Read what `to_json` wrote; a missing key is an RFabricError."""
        try:
            data = parse_json(data) if isinstance(data, str) else data
            nodes = tuple(Node(**n) for n in data["nodes"])
            links = tuple(
                Link(
                    Port.parse(k["a"]),
                    Port.parse(k["b"]),
                    float(_figure(k, "rate_bps")),
                    float(_figure(k, "delay_s")),
                )
                for k in data["links"]
            )
            parameters = dict(data["parameters"])
            return cls(
                str(data["name"]),
                nodes,
                links,
                _figure(data, "reconfig_delay_s"),
                str(data["spec"]),
                parameters,
            )
        except KeyError as error:
            raise RFabricError(f"fabric file: {error} is missing; {OTHERS}") from error
        except TypeError as error:  # other keys in a node or a link, or no keys
            raise RFabricError(f"fabric file: is none that rfabric wrote; {OTHERS}") from error
        except ValueError as error:
            raise (
                error if isinstance(error, RFabricError) else RFabricError(f"fabric file: {error}")
            ) from error


def _figure(data: dict, key: str) -> float:
    """A number of a fabric file, whose unit the key says."""
    value = data[key]
    # a whole number may have more digits than a float holds
    number = isinstance(value, float) or isinstance(value, int) and abs(value) <= MOST_RATE
    if isinstance(value, bool) or not number:
        raise RFabricError(
            f"fabric file: {key} {value!r} must be a number, {MOST_RATE:g} at most, without a unit"
        )
    return value


def host_ip(index: int) -> str:
    """The IPv4 address of host `index` (0-based), 10.0.0.1 upwards, as Mininet gives it with ipBase
    10.0.0.0/8.
    """
    return f"10.{(index + 1) >> 16 & 255}.{(index + 1) >> 8 & 255}.{(index + 1) & 255}"


def host_mac(index: int) -> str:
    """The MAC address of host `index` (0-based): its number, as `mn --mac` sets it."""
    number = index + 1
    return ":".join(f"{number >> shift & 255:02x}" for shift in range(40, -1, -8))

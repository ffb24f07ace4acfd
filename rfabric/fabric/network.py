"""A network of somebody else's as a Fabric: names become h1, t1, ...; what the file leaves open is
assumed, and said.

    Network: nodes by name, with what the file says they are; cables between names
       |     hosts: said so, or a single cable; tiers: said so, or by the way from the hosts
    Fabric: hosts h1, h2, ... in the order they appear, switches t1.., a1.., c1..;
            `parameters["names"]` keeps what they were called

A host is one GPU with its own NIC: what has several cables becomes as many hosts. Where these lie
in networks that nothing else joins (rails or planes of their own), what they were becomes a server,
which passes on between its NICs.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..errors import RFabricError, meant, some
from ..units import show_rate, show_time
from .builders.parts import CABLE_DELAY, Sketch
from .model import Fabric
from .roles import Role, by_number, named_role

log = logging.getLogger(__name__)

# letters of switches by tier; `edge` first, as they are numbered
LETTERS = {"edge": "t", "server": "s", "aggregation": "a", "core": "c", "electrical": "x"}
MOST_NODES = 1_000_000  # of a network; a few lines of some formats stand for any number


@dataclass(frozen=True)
class NamedCable:
    """Two names as the file has them, bit/s and s; None where it says nothing. where: its line.
    again: one more of the cables that its row or edge stands for.
    """

    a: str
    b: str
    rate: float | None = None
    delay: float | None = None
    where: str = ""
    again: bool = False


@dataclass(frozen=True)
class Network:
    """What a file says of a network. nodes: in the order they appear, those of the cables at least.

    dropped: what was left out or taken in some way, a phrase each. `reconfig_delay`: s.
    """

    name: str
    nodes: Mapping[str, Role]
    cables: tuple[NamedCable, ...]
    dropped: tuple[str, ...] = ()
    reconfig_delay: float = 0.0
    parameters: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Assumed:
    """What a network takes where its file says nothing: bit/s of cables to hosts and of others,
    `hosts` hung below every ToR, the `part` that holds this node.
    """

    rate: float
    uplink_rate: float
    hosts: int = 0
    part: str = ""


def fabric_of(network: Network, form: str, assumed: Assumed) -> Fabric:
    """The fabric that a network is, and a line that says what was understood.

    RFabricError: no host, a host cabled to a host or to itself, parts that no cable joins.
    """
    known = _known(network)
    known = _hung(known, assumed.hosts) if assumed.hosts else _with_hosts(known)
    _refuse_host_to_host(known)
    known = _one_nic_a_host(_whole(known, assumed.part))
    known, counts = _rated(_with_planes(known), assumed)
    nodes, said = by_number(known.nodes)
    known = replace(known, nodes=nodes, dropped=(*known.dropped, *said))
    fabric = _built(_with_tiers(known), assumed)
    _say(fabric, known, form, counts, assumed)
    return fabric


def _known(network: Network) -> Network:
    """With a Role of every end of a cable, and what is said where some cables have no delay; a
    cable from a node to itself is refused.
    """
    nodes = dict(network.nodes)
    for cable in network.cables:
        if cable.a == cable.b:
            at = f"{cable.where}: " if cable.where else ""
            raise RFabricError(f"{at}{cable.b} is joined to itself; remove the cable")
        nodes.setdefault(cable.a, Role())
        nodes.setdefault(cable.b, Role())
    if len(nodes) > MOST_NODES:
        raise RFabricError(f"{len(nodes):,} nodes; {MOST_NODES:,} at most")
    lacking, said = sum(cable.delay is None for cable in network.cables), network.dropped
    if 0 < lacking < len(network.cables):
        took = show_time(CABLE_DELAY)
        said += (f"{lacking:,} cables without a delay took {took}, others say theirs",)
    return replace(network, nodes=nodes, dropped=said)


def _ends(network: Network, rows: bool = False) -> Counter[str]:
    """How many cables end at a node; or `rows` of its file, which may stand for several each."""
    cables = (cable for cable in network.cables if not (rows and cable.again))
    return Counter(name for cable in cables for name in (cable.a, cable.b))


def _with_hosts(network: Network) -> Network:
    """Where the file says of no node that it is a host: those are whose name says so, and what has
    a single cable, unless its name says it is a switch.
    """
    nodes, ends = dict(network.nodes), _ends(network, rows=True)
    told: Counter[str] = Counter()
    if not any(role.kind == "host" for role in nodes.values()):
        for name, role in nodes.items():
            if not role.kind and (how := _why_host(name, ends[name])):
                nodes[name] = replace(role, kind="host", tier="host")
                told[how] += 1
    said = tuple(f"{count:,} hosts told by {how}" for how, count in told.items())
    return replace(
        network, nodes={n: _switch(role) for n, role in nodes.items()},
        dropped=(*network.dropped, *said),
    )  # fmt: skip


def _why_host(name: str, ends: int) -> str:
    """By what an unknown node is a host; '' where it is a switch."""
    role = named_role(name, ends)
    if role is None:
        return "their single cable" if ends == 1 else ""
    return "their names" if role.kind == "host" else ""


def _switch(role: Role) -> Role:
    return role if role.kind else replace(role, kind="eps")


def _hung(network: Network, count: int) -> Network:
    """`count` hosts below every ToR: those that are said to be, else every switch that is not said
    to be above.
    """
    if any(role.kind == "host" for role in network.nodes.values()):
        raise RFabricError(f"hosts={count}: the file names its hosts; leave the setting out")
    switches = {name: _switch(role) for name, role in network.nodes.items()}
    low = _lowest(switches)
    nodes, cables = {}, []
    for name in low:
        switches[name] = replace(switches[name], tier="edge")
        for i in range(count):
            nodes[f"{name}:h{i + 1}"] = Role("host", "host")
            cables.append(NamedCable(f"{name}:h{i + 1}", name))
    said = f"{count} hosts hung below each of {len(low):,} switches ({some(low)})"
    return replace(
        network, nodes=nodes | switches, cables=(*cables, *network.cables),
        dropped=(*network.dropped, said),
    )  # fmt: skip


def _lowest(switches: Mapping[str, Role]) -> list[str]:
    """The ToRs: said to be, else by their names, else all packet switches not said to be above."""
    said = [name for name, role in switches.items() if role.tier == "edge"]
    named = [name for name in switches if (r := named_role(name)) and r.tier == "edge"]
    return said or named or [n for n, r in switches.items() if not r.tier and r.kind == "eps"]


def _whole(network: Network, part: str) -> Network:
    """The one part that holds hosts, or the one that holds the node `part`; what no cable joins to
    it is left out, and said.
    """
    parts = _parts(network)
    if part:
        kept = next((nodes for nodes in parts if part in nodes), None)
        if kept is None:
            raise RFabricError(f"part={part}: no node has that name{meant(part, network.nodes)}")
    else:
        kept = _only(network, parts)
    left = [name for name in network.nodes if name not in kept]
    said = [f"{len(left):,} nodes that no cable joins to it left out ({some(left)})"]
    return replace(
        network,
        nodes={name: role for name, role in network.nodes.items() if name in kept},
        cables=tuple(cable for cable in network.cables if cable.a in kept),
        dropped=(*network.dropped, *(said if left else ())),
    )


def _only(network: Network, parts: list[set[str]]) -> set[str]:
    """The part with hosts, where it is one."""
    hosts = [name for name, role in network.nodes.items() if role.kind == "host"]
    if not hosts:
        raise RFabricError(
            "it has no host: no node is declared as one or named like one (server1), and none "
            f"has a single cable{''.join(f'; {said}' for said in network.dropped)}; "
            "hosts=8 hangs 8 below every ToR"
        )
    held = [nodes for nodes in parts if any(name in nodes for name in hosts)]
    if lone := [name for name in hosts if {name} in held]:
        rest = next((f", or take the rest by part={n}" for n in hosts if n not in lone), "")
        why = "".join(f" ({said})" for said in network.dropped if " down " in said)
        raise RFabricError(f"hosts without a cable: {some(lone)}{why}; cable each to a ToR{rest}")
    if len(held) > 1:
        first, other = (next(n for n in hosts if n in nodes) for nodes in held[:2])
        raise RFabricError(
            f"the network falls into {len(held):,} parts: no path leads from {first} to {other}; "
            f"add the cable, or take one part by part={first}"
        )
    return held[0]


def _parts(network: Network) -> list[set[str]]:
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(network.nodes)
    graph.add_edges_from((cable.a, cable.b) for cable in network.cables)
    return list(nx.connected_components(graph))


def _one_nic_a_host(network: Network) -> Network:
    """A host of several cables as hosts of one: a GPU and its NIC each."""
    ends = _ends(network)
    many = {n for n, role in network.nodes.items() if role.kind == "host" and ends[n] > 1}
    if not many:
        return network
    nodes = {
        new: role
        for name, role in network.nodes.items()
        for new in ([f"{name}:{i + 1}" for i in range(ends[name])] if name in many else [name])
    }
    if len(nodes) != len(network.nodes) + sum(ends[name] - 1 for name in many):
        raise RFabricError("a node has the name that a NIC of another would get, such as a:1")
    nics = {name: iter(range(1, ends[name] + 1)) for name in many}
    cables = tuple(
        replace(cable, **{
            end: f"{name}:{next(nics[name])}"
            for end, name in (("a", cable.a), ("b", cable.b)) if name in many
        })
        for cable in network.cables
    )  # fmt: skip
    total = sum(ends[name] for name in many)
    said = f"{len(many):,} hosts with several cables ({some(many)}) are {total:,} hosts of one NIC"
    split = replace(network, nodes=nodes, cables=cables)
    if (planes := len(_parts(split))) > 1:
        split = _served(network, split, many)
        said += (
            f"; as they alone join its {planes:,} parts, each is a server that passes on between "
            "its NICs"
        )
    return replace(split, dropped=(*network.dropped, said))


def _served(network: Network, split: Network, many: set[str]) -> Network:
    """The NICs of each of `many` behind a server, at their own rates and without a delay; the
    cables of before end there.
    """
    servers = {n: Role("eps", "server", r.pod) for n, r in network.nodes.items() if n in many}
    inside = [
        NamedCable(nic, name, old.rate, 0.0, old.where)
        for old, new in zip(network.cables, split.cables, strict=True)
        for name, nic in ((old.a, new.a), (old.b, new.b)) if name in many
    ]  # fmt: skip
    return replace(split, nodes=split.nodes | servers, cables=(*inside, *network.cables))


def _refuse_host_to_host(network: Network) -> None:
    ends = _ends(network)
    for cable in network.cables:
        if network.nodes[cable.a].kind == network.nodes[cable.b].kind == "host":
            at = f"{cable.where}: " if cable.where else ""
            why = "are both hosts, which pass nothing on; say of one that it is a switch"
            if ends[cable.a] == ends[cable.b] == 1:
                why = "are joined to nothing else; a ToR is missing"
            raise RFabricError(f"{at}{cable.a} and {cable.b} {why}")


def _rated(network: Network, assumed: Assumed) -> tuple[Network, Counter[str]]:
    """With a rate and a delay of every cable; how many were assumed."""
    counts: Counter[str] = Counter()
    cables = []
    for cable in network.cables:
        below = "host" in (network.nodes[cable.a].kind, network.nodes[cable.b].kind)
        usual = assumed.rate if below else assumed.uplink_rate
        counts["below" if below else "above"] += cable.rate is None
        rate = usual if cable.rate is None else cable.rate
        delay = CABLE_DELAY if cable.delay is None else cable.delay
        cables.append(replace(cable, rate=rate, delay=delay))
    return replace(network, cables=tuple(cables)), counts


def _with_tiers(network: Network) -> Network:
    """Edge: has a host. Aggregation: a cable away from an edge. Core: all others; for switches of
    which the file does not say it.
    """
    nodes, near = dict(network.nodes), _neighbours(network)
    hosts = {name for name, role in nodes.items() if role.kind == "host"}
    tiers = {name: role.tier for name, role in nodes.items() if name not in hosts}
    for name in tiers:
        if near[name] & hosts and tiers[name] != "server":
            tiers[name] = "edge"
    edges = {name for name, tier in tiers.items() if tier in ("edge", "server")}
    for name, tier in tiers.items():
        if not tier or tier == "host" or tier == "edge" and not near[name] & hosts:
            tiers[name] = "aggregation" if near[name] & edges - {name} else "core"
    return replace(
        network, nodes={n: replace(role, tier=tiers.get(n, "host")) for n, role in nodes.items()}
    )


def _with_planes(network: Network) -> Network:
    """Where the file says of no OCS in which plane it lies: those that cables join lie in one, and
    so do others to which no switch has cables too.
    """
    nodes, taken = dict(network.nodes), list[set[str]]()
    ocses = {name for name, role in nodes.items() if role.kind == "ocs"}
    if not ocses or any(nodes[name].plane is not None for name in ocses):
        return network
    near, within = _neighbours(network), {n: role for n, role in nodes.items() if n in ocses}
    cables = tuple(cable for cable in network.cables if {cable.a, cable.b} <= ocses)
    for part in _parts(replace(network, nodes=within, cables=cables)):
        below = set().union(*(near[name] for name in part)) - ocses
        plane = next((i for i, held in enumerate(taken) if not held & below), len(taken))
        if plane == len(taken):
            taken.append(set())
        taken[plane] |= below
        nodes |= {name: replace(nodes[name], plane=plane) for name in part}
    said = f"{len(taken)} planes of OCSes told by their cables"
    return replace(network, nodes=nodes, dropped=(*network.dropped, said))


def _neighbours(network: Network) -> dict[str, set[str]]:
    near: dict[str, set[str]] = {name: set() for name in network.nodes}
    for cable in network.cables:
        near[cable.a].add(cable.b)
        near[cable.b].add(cable.a)
    return near


def _built(network: Network, assumed: Assumed) -> Fabric:
    sketch, short = Sketch(), {}
    hosts = {name: role for name, role in network.nodes.items() if role.kind == "host"}
    _add_hosts(sketch, hosts, short)
    for tier, name, i in _numbered(network.nodes):
        role = network.nodes[name]
        pod = role.pod if role.pod is not None else 0 if tier != "core" else -1
        short[name] = sketch.switch(
            f"{LETTERS[tier]}{i + 1}", role.kind, tier, divmod(i, 4096), pod,
            -1 if role.plane is None else role.plane,
        )  # fmt: skip
    for cable in network.cables:
        sketch.cable(short[cable.a], short[cable.b], cable.rate, cable.delay)
    parameters = {"rate_bps": assumed.rate, "uplink_rate_bps": assumed.uplink_rate}
    parameters |= network.parameters | {"names": {new: old for old, new in short.items()}}
    return Fabric(network.name, sketch.nodes, sketch.links, network.reconfig_delay, "", parameters)


def _add_hosts(sketch: Sketch, hosts: Mapping[str, Role], short: dict[str, str]) -> None:
    short |= dict(zip(hosts, sketch.hosts([len(hosts)]), strict=True))
    sketch.nodes[:] = [
        replace(node, pod=role.pod or 0)
        for node, role in zip(sketch.nodes, hosts.values(), strict=True)
    ]


def _numbered(nodes: Mapping[str, Role]) -> Iterator[tuple[str, str, int]]:
    """(tier, name, number in its tier), tier by tier."""
    for tier in LETTERS:
        for i, name in enumerate(name for name, role in nodes.items() if role.tier == tier):
            yield tier, name, i


def _say(
    fabric: Fabric, network: Network, form: str, counts: Counter[str], assumed: Assumed
) -> None:
    """What was understood, assumed and left out, in one line."""
    tiers = len({node.tier for node in fabric.switches})
    rates = [f(link.rate for link in fabric.links) for f in (min, max)]
    shown = " to ".join(dict.fromkeys(show_rate(rate) for rate in rates))
    notes = [
        f"{counts[key]:,} cables {what} took {show_rate(rate)}, which {key_word}= changes"
        for key, what, rate, key_word in (
            ("below", "to hosts without a rate", assumed.rate, "rate"),
            ("above", "between switches without a rate", assumed.uplink_rate, "uplink_rate"),
        )
        if counts[key]
    ]
    log.warning(
        "%s: %s, %s hosts, %s racks, %s tier%s of %s switches, %s cables of %s%s",
        network.name, form, f"{len(fabric.hosts):,}", f"{len(fabric.racks):,}", tiers,
        "s" * (tiers > 1), f"{len(fabric.switches):,}", f"{len(fabric.links):,}", shown,
        "".join(f"; {note}" for note in (*notes, *network.dropped)),
    )  # fmt: skip

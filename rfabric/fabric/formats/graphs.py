"""Graphs of nodes and edges with attributes, and what is common to the formats that hold them.

A node says what it is by `tier`, `role`, `type`, `kind` and the like; an edge its `rate_bps`,
`bandwidth`, `LinkSpeedRaw`, ..., `delay_s`, `latency`. A bare number takes the unit at the end of
its key (`speed_mbps`), or `rate_unit=` and `delay_unit=`. What stands in both directions is one
cable; an edge stands for as many as its `count` or `multiplicity` says, each of its rate, and for
none where its `status` or `state` is `down` (see `states`), in one of its directions at least. What
rfabric writes holds all that a Fabric is, but for its settings.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import RFabricError, some
from ...files import twice
from ..model import Fabric
from ..network import NamedCable, Network
from ..roles import named_role
from .base import (
    ROLE_KEYS,
    Reading,
    copies_of,
    delay_of,
    is_count,
    is_quantity,
    rate_of,
    role_of,
    several,
)
from .states import is_down, is_plain, is_state

OWN_NODE = {*ROLE_KEYS, "id", "name", "key", "label", "pod", "plane"}
PARTS = ("interface", "port", "termination-point")  # of a device, in graphs of an inventory
OWN_EDGE = {"source", "target", "from", "to", "src", "dst", "key", "id", "cable"}


@dataclass(frozen=True)
class Edge:
    """An edge as a file has it: two names, attributes, and what it is called in a message."""

    a: str
    b: str
    attributes: Mapping[str, Any]
    where: str


def network_of(
    name: str,
    nodes: Mapping[str, Mapping[str, Any]],
    edges: Sequence[Edge],
    reading: Reading,
    graph: Mapping[str, Any] = {},
    directed: bool = False,
) -> Network:
    """The Network of nodes and of edges between them; `graph`: attributes of the whole."""
    _refuse_interfaces(nodes)
    nodes, edges, dropped = _standing(nodes, edges)
    roles = {node: role_of(said) for node, said in nodes.items()}
    down = [NamedCable(edge.a, edge.b) for edge in edges if is_down(edge.attributes)]
    edges = [edge for edge in edges if not is_down(edge.attributes)]
    copies = [copies_of(edge.attributes, edge.where) for edge in edges]
    cables = [
        NamedCable(
            edge.a, edge.b, rate_of(edge.attributes, reading, edge.where),
            delay_of(edge.attributes, reading, edge.where), edge.where, again,
        )
        for edge, count in zip(edges, copies, strict=True)
        for again in [False] + [True] * (count - 1)
    ]  # fmt: skip
    dropped += [
        f"attributes of {what} left out: {some(left)}"
        for what, left in (
            ("nodes", _left(map(_unread, nodes.values()), OWN_NODE)),
            (
                "edges",
                {
                    k
                    for k in _left((_unread(e.attributes) for e in edges), OWN_EDGE)
                    if not is_count(k)
                },
            ),
        )
        if left
    ]
    if down:
        dropped.append(f"edges that are down left out: {len(down):,}")
    dropped += several(copies, "edges")
    cables = each_once(cables, dropped, directed, down)
    delay = reading.delay(graph.get("reconfig_delay_s", 0.0), "reconfig_delay_s", 1.0)
    return Network(name, roles, tuple(cables), tuple(dropped), delay)


def _refuse_interfaces(nodes: Mapping[str, Mapping[str, Any]]) -> None:
    """Graphs of an inventory hold interfaces beside devices: as a switch each would have ports.
    What another word says to be a device is one.
    """
    for name, said in nodes.items():
        words = {str(said.get(key, "")).lower(): key for key in ROLE_KEYS}
        word = next(filter(words.get, PARTS), None)
        if word is not None and not role_of(said).kind:
            raise RFabricError(
                f"node {name}: {words[word]} {word!r} is a part of a device; keep the devices, "
                "cabled to one another"
            )


def _standing(
    nodes: Mapping[str, Mapping[str, Any]], edges: Sequence[Edge]
) -> tuple[Mapping[str, Mapping[str, Any]], Sequence[Edge], list[str]]:
    """The nodes that are not down, the edges between these, and what is said."""
    down = [name for name, said in nodes.items() if is_down(said)]
    if not down:
        return nodes, edges, []
    left = {name: said for name, said in nodes.items() if not is_down(said)}
    kept = [edge for edge in edges if edge.a in left and edge.b in left]
    said = f"nodes that are down left out: {len(down):,} ({some(down)}), and "
    return left, kept, [f"{said}{len(edges) - len(kept):,} edges to them"]


def _unread(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Attributes but for states that are known."""
    said = attributes.items()
    return {key: value for key, value in said if not (is_state(key) and is_plain(key, value))}


def _left(every: Iterable[Mapping[str, Any]], own: set[str]) -> set[str]:
    """The attributes that say nothing here."""
    keys = {str(key) for said in every for key in said}
    return {key for key in keys - own if not is_quantity(key)}


def each_once(
    cables: list[NamedCable],
    dropped: list[str],
    directed: bool = False,
    down: Sequence[NamedCable] = (),
) -> list[NamedCable]:
    """A cable for each pair of edges that run both ways, where they have a direction or all stand
    in both, as lists of neighbours have them; else each edge is one, which is said of such pairs.
    `down`: edges that are none of `cables`, nor is what runs the other way.
    """
    ways = Counter((k.a, k.b) for k in (*cables, *down))
    if directed or ways == Counter((k.b, k.a) for k in (*cables, *down)):
        return _one_of_both_ways(cables, dropped, Counter((k.a, k.b) for k in down))
    if pairs := sum((b, a) in ways for a, b in ways) // 2:
        dropped.append(f"{pairs:,} pairs stand in both directions, each time as a cable of its own")
    return cables


def _one_of_both_ways(
    cables: list[NamedCable], dropped: list[str], down: Counter[tuple[str, str]]
) -> list[NamedCable]:
    """Of edges that run both ways between two nodes, a cable for each pair; RFabricError where the
    two ways differ. `down`: edges by their ends whose other way is no cable either.
    """
    ways: dict[tuple[str, str], list[NamedCable]] = {}
    for cable in cables:
        ways.setdefault((cable.a, cable.b), []).append(cable)
    kept, half = [], 0
    for (a, b), every in ways.items():
        others = ways.get((b, a), [])
        if (a, b) > (b, a) and others:
            continue
        there, back = _whole(every, others, down[b, a]), _whole(others, every, down[a, b])
        half += len(every) - len(there) + len(others) - len(back)
        if back and _speeds(there) != _speeds(back):
            raise RFabricError(
                f"{every[0].where}: {a} to {b} and {b} to {a} differ in number, rate or delay; a "
                "cable is the same both ways"
            )
        kept += there
    if half:
        dropped.append(f"edges whose other way is down left out: {half:,}")
    if len(kept) < len(cables) - half:
        dropped.append(f"{len(cables) - half:,} edges of one direction are {len(kept):,} cables")
    if lone := sum((k.b, k.a) not in ways for k in kept):
        dropped.append(f"{lone:,} edges without one back are cables of both ways all the same")
    return kept


def _whole(some: list[NamedCable], others: list[NamedCable], down: int) -> list[NamedCable]:
    """Those of `some` whose other way is one of `others`, where the lacking are `down` at most."""
    lacking = _speeds(some) - _speeds(others)
    if lacking.total() > down:
        return some
    kept = []
    for cable in some:
        speed = cable.rate, cable.delay
        lacking[speed] -= 1
        if lacking[speed] < 0:
            kept.append(cable)
    return kept


def _speeds(cables: list[NamedCable]) -> Counter:
    return Counter((cable.rate, cable.delay) for cable in cables)


def node_attributes(fabric: Fabric) -> dict[str, dict[str, Any]]:
    """What is written of each node, by name."""
    return {
        node.name: {"kind": node.kind, "tier": node.tier, "pod": node.pod, "plane": node.plane}
        for node in fabric.nodes
    }


def edges_of(fabric: Fabric) -> list[tuple[str, str, dict[str, Any]]]:
    """The cables as edges; `cable` is their number, which keeps their order."""
    return [
        (link.a.node, link.b.node, {
            "rate_bps": float(link.rate), "delay_s": float(link.delay), "cable": i,
        })
        for i, link in enumerate(fabric.links)
    ]  # fmt: skip


def graph_of(fabric: Fabric):
    """The fabric as a networkx.MultiGraph, for its writers."""
    import networkx as nx

    graph = nx.MultiGraph(fabric=fabric.name, reconfig_delay_s=float(fabric.reconfig_delay))
    graph.add_nodes_from(node_attributes(fabric).items())
    graph.add_edges_from(edges_of(fabric))
    return graph


def network_from(
    graph, name: str, reading: Reading, node_default: Mapping = {}, edge_default: Mapping = {}
) -> Network:
    """The Network that a networkx graph is; the defaults: what each node or edge says that says
    nothing else.
    """
    names = names_of(dict(graph.nodes(data=True)))
    nodes = {names[node]: {**node_default, **said} for node, said in graph.nodes(data=True)}
    edges = _edges(graph, names, edge_default)
    return network_of(name, nodes, edges, reading, graph.graph, graph.is_directed())


def check_each_once(
    nodes: Sequence[str | None], edges: Sequence[tuple], directed: bool = False
) -> None:
    """RFabricError for what networkx would pass over: a node or an edge (id, two ends) that stands
    twice, an edge to no node. `directed`: networkx counts the edges of each direction by itself.
    """
    if (name := twice(nodes)) is not None:
        raise RFabricError(f"node {name} stands twice; keep one")
    known = set(nodes)
    ends_of = tuple if directed else frozenset
    if (edge := twice((i, ends_of(ends)) for i, *ends in edges if i)) is not None:
        raise RFabricError(f"edge {edge[0]} stands twice; give each an id of its own, or none")
    for _, *ends in edges:
        for end in ends:
            if end not in known:
                raise RFabricError(
                    f"edge {ends[0]} - {ends[1]} ends at {end}, which is no node of the file"
                )


def names_of(nodes: Mapping[Any, Mapping[str, Any]]) -> dict[Any, str]:
    """What each node is called, by its id: its label, which is what a reader sees, or its name
    (igraph, Graphviz), unless its id alone says what it is; with the id where several have that;
    else the id.
    """
    labels = {
        node: _word(said, "label") or _telling(_word(said, "name"), str(node))
        for node, said in nodes.items()
    }
    often = Counter(labels.values())
    names = {
        node: (label if often[label] == 1 else f"{label} ({node})") if label else str(node)
        for node, label in labels.items()
    }
    return names if twice(names.values()) is None else {node: str(node) for node in nodes}


def _word(said: Mapping[str, Any], key: str) -> str:
    """An attribute in one line; '' where it is none or holds others."""
    value = said.get(key)
    return "" if value is None or isinstance(value, (dict, list)) else " ".join(str(value).split())


def _telling(name: str, node: str) -> str:
    """`name`, or '' where it says of no role and the id `node` does: Oslo of server1."""
    return "" if named_role(name) is None and named_role(node) is not None else name


def _edges(graph, names: Mapping[Any, str], default: Mapping) -> list[Edge]:
    return in_order(
        Edge(names[a], names[b], {**default, **said}, f"edge {names[a]} - {names[b]}")
        for a, b, said in graph.edges(data=True)
    )


def in_order(edges: Iterable[Edge]) -> list[Edge]:
    """The edges in the order they were written, where they say it by `cable`; else as they are."""
    kept = list(edges)
    if all(isinstance(edge.attributes.get("cable"), int) for edge in kept):
        kept.sort(key=lambda edge: edge.attributes["cable"])
    return kept

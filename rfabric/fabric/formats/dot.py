"""Graphviz's DOT, as people draw networks, and as Cumulus and NVIDIA Air have them; see `graphs`.

    graph "lab" {
      "leaf01" [function="leaf"];                      `function` as `role`
      "leaf01":"swp1" -- "spine01":"swp3";             nodes with ports
      h1 -- leaf01 [speed="100G"];                     or label="100G", label="2x100G"
    }

A node is called by its id, or by the first line of its label, as `node_link` has it. Edges between
the same two ports are one cable. Nodes of the management network of NVIDIA Air, whose names or
functions begin with `oob-`, are left out. What says only how to draw says nothing here.
"""

import re
from collections.abc import Container, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import RFabricError, some
from ..network import Network
from .base import Reading, TopologyFormat, is_quantity, rate_of, stem_of, text_of
from .dot_text import Drawing, DrawnEdge, drawing_of
from .drawings import graphviz
from .graphs import Edge, in_order, names_of, network_of

HEAD = re.compile(
    r"(?>\s|//[^\n]*|/\*.*?\*/|#[^\n]*(?=\n))*+(?:strict\s+)?(?:di)?graph\b\s*"
    r"(?:\"(?:\\.|[^\"\\])*\"|[\w.-]+)?\s*\{",
    re.I | re.S,
)
LABEL = re.compile(r"(?:(\d{1,4})\s*[x\u00d7*]\s*)?(\d[\d.]*\s*[kKMGT](?:\w|/)*)")
OUTSIDE = "oob-"  # out of band
DRAWN = re.compile(  # attributes that say how to draw, https://graphviz.org/doc/info/attrs.html
    r"shape|\w*style|\w*color|font\w*|\w*label\w*|label|\w*tooltip|\w*target|\w*href|\w*url|pos|"
    r"width|height|penwidth|peripheries|arrow\w*|dir|constraint|weight|len|minlen|\w*port|rank|"
    r"image\w*|margin|fixedsize|sides|same\w+|\w*clip|decorate|ordering|z|_\w+_|xlp|lp|\w*_lp|"
    r"rects|vertices|comment|nojustify|regular|orientation|root|samplepoints|pin",
    re.I,
)


def _sniff(text: str) -> bool:
    return HEAD.match(text) is not None


def _read(path: Path, reading: Reading) -> Network:
    drawn, said = drawing_of(text_of(path)), list[str]()
    nodes = _inside(drawn, said)
    names = names_of({node: {"name": _label(own, node)} for node, own in nodes.items()})
    called = {names[node]: _meant(own) for node, own in nodes.items()}
    joined = []
    for a, b, own, line in _each_once(drawn, nodes, said):
        ends = names[a.node], names[b.node]
        where = f"line {line}, edge {ends[0]} - {ends[1]}"
        joined.append((Edge(*ends, _meant(own), where), own.get("label", "")))
    edges = in_order(_by_label(joined, reading, said))
    network = network_of(stem_of(path), called, edges, reading, drawn.graph, drawn.directed)
    return replace(network, dropped=(*said, *network.dropped))


def _inside(drawn: Drawing, said: list[str]) -> dict[str, dict[str, str]]:
    """The nodes that are seen, and not of the management network."""
    outside = {
        name
        for name, own in drawn.nodes.items()
        if OUTSIDE in (name.lower()[:4], own.get("function", "").lower()[:4])
    }
    unseen = {name for name, own in drawn.nodes.items() if "invis" in own.get("style", "")}
    for names, what in ((outside, "of the management network"), (unseen - outside, "not drawn")):
        if names:
            said.append(f"nodes {what} left out: {len(names):,} ({some(names)})")
    return {name: own for name, own in drawn.nodes.items() if name not in outside | unseen}


def _label(own: Mapping[str, str], node: str) -> str:
    """The first line of a label; '' where it is none, HTML or the fields of a record."""
    text = own.get("label", "")
    if text.startswith("<") or "record" in own.get("shape", "").lower():
        return ""
    return re.split(r"\\[nlr]|\n", text.replace(r"\N", node))[0]


def _meant(own: Mapping[str, str]) -> dict[str, Any]:
    """The attributes that say more than how to draw."""
    said: dict[str, Any] = {key: text for key, text in own.items() if not DRAWN.fullmatch(key)}
    if "function" in said:
        said.setdefault("role", said["function"])
        del said["function"]
    if said.get("cable", "").isdecimal():
        said["cable"] = int(said["cable"])
    return said


def _each_once(drawn: Drawing, nodes: Container[str], said: list[str]) -> list[DrawnEdge]:
    """The edges that are seen between `nodes`, each pair of ports once; of a strict graph each pair
    of nodes. RFabricError where these say different rates or delays.
    """
    inside = [edge for edge in drawn.edges if edge.a.node in nodes and edge.b.node in nodes]
    seen = [edge for edge in inside if "invis" not in edge.said.get("style", "")]
    if unseen := len(inside) - len(seen):
        said.append(f"edges not drawn left out: {unseen:,}")
    kept: dict[object, DrawnEdge] = {}
    for i, edge in enumerate(seen):
        ends: tuple[object, ...] = (edge.a, edge.b)
        if drawn.strict:
            ends = (edge.a.node, edge.b.node)
        elif not (edge.a.port and edge.b.port):
            ends = (i,)
        key = ends if drawn.strict and drawn.directed else frozenset(ends)
        _add_to(kept.setdefault(key, edge), edge)
    if len(kept) < len(seen):
        by = "ends, as the graph is strict" if drawn.strict else "ports"
        said.append(f"{len(seen):,} edges name {len(kept):,} cables by their {by}")
    return list(kept.values())


def _add_to(first: DrawnEdge, other: DrawnEdge) -> None:
    for key in filter(is_quantity, first.said.keys() & other.said.keys()):
        if first.said[key] != other.said[key]:
            raise RFabricError(
                f"line {other.line}, edge {other.a.node} - {other.b.node}: {key} "
                f"{other.said[key]!r}, but {first.said[key]!r} in line {first.line}, of the same "
                "cable; correct one"
            )
    first.said.update(other.said)


def _by_label(edges: list[tuple[Edge, str]], reading: Reading, said: list[str]) -> list[Edge]:
    """With the rate and the number of cables of each edge that says them by its label alone."""
    told, every = 0, []
    for edge, label in edges:
        match = LABEL.fullmatch(label.strip())
        if match and rate_of(edge.attributes, reading, edge.where) is None:
            more = {"rate": match[2]} | ({"count": match[1]} if match[1] else {})
            edge, told = replace(edge, attributes={**more, **edge.attributes}), told + 1
        every.append(edge)
    said += [f"rates of {told:,} edges by their labels"] if told else []
    return every


GRAPHVIZ = TopologyFormat(
    "graphviz", "Graphviz's DOT: nodes and edges with attributes and ports; NVIDIA Air, Cumulus",
    (".dot", ".gv"), _sniff, _read, graphviz,
)  # fmt: skip

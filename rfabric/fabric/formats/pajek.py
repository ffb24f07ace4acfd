"""Pajek's networks: numbered vertices with names, edges and arcs between the numbers; see `graphs`.

    *Vertices 3
    1 "leaf 1"                       behind the name may stand a place, a shape, attributes
    2 h1 0.1 0.2 ellipse role host
    3 h2
    *Edges
    2 1 1 rate 400Gbit/s             two numbers, a weight, attributes
    *Arcslist
    3 1                              a number, and all to which it leads

Read without networkx, which takes comments (`%`) and what later sections hold for edges.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from ...errors import RFabricError
from ..network import MOST_NODES, Network
from .base import Reading, TopologyFormat, stem_of, text_of
from .graphs import Edge, names_of, network_of

HEAD = re.compile(r"(?:\s*%.*\n)*\s*\*(?:network|vertices)\b", re.I)
WORD = re.compile(r'"([^"]*)"|(\S+)')
PAIRS, LISTS = ("edges", "arcs"), ("edgeslist", "arcslist")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def _sniff(text: str) -> bool:
    return HEAD.match(text) is not None


def _read(path: Path, reading: Reading) -> Network:
    nodes: dict[str, dict] = {}
    pairs: list[tuple[str, str, str, dict]] = []
    directed = False
    for where, section, words in _lines(text_of(path), nodes):
        directed = directed or section.startswith("arcs")
        if section == "vertices":
            _end(words[0], nodes, where)
            nodes[words[0]] = _vertex(words)
        elif section in PAIRS:
            if len(words) < 2:
                raise RFabricError(f"{where}: {words[0]!r} is no edge; write two numbers")
            pairs.append((where, words[0], words[1], _edge(words)))
        else:
            pairs += [(where, words[0], end, {}) for end in words[1:]]
    names = names_of(nodes)
    edges = [Edge(names[_end(a, nodes, where)], names[_end(b, nodes, where)], said, where)
             for where, a, b, said in pairs]  # fmt: skip
    called = {names[node]: said for node, said in nodes.items()}
    return network_of(stem_of(path), called, edges, reading, directed=directed)


def _lines(text: str, nodes: dict) -> Iterator[tuple[str, str, list[str]]]:
    """(where it stands, its section, its words) of each line below a heading; `nodes` gets the
    numbers of vertices, of which a file may list some alone.
    """
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        words = [quoted or plain for quoted, plain in WORD.findall(line)]
        where = f"line {number}"
        if not words or line.lstrip().startswith("%"):
            continue
        if not words[0].startswith("*"):
            yield where, section, words
            continue
        section = words[0].removeprefix("*").lower()
        if section == "vertices":
            nodes |= {str(i + 1): {} for i in range(_count(words, where))}
        elif section not in ("network", *PAIRS, *LISTS):
            raise RFabricError(f"{where}: {words[0]} is not read; save the network as edges")


def _count(words: list[str], where: str) -> int:
    text = words[1] if len(words) > 1 else ""
    if not text.isdecimal() or not 0 < int(text[:20]) <= MOST_NODES:
        raise RFabricError(f"{where}: {text[:40]!r} vertices; a whole number up to {MOST_NODES:,}")
    return int(text)


def _end(number: str, nodes: dict, where: str) -> str:
    if number not in nodes:
        raise RFabricError(f"{where}: {number[:40]!r} is no vertex; there are 1 to {len(nodes):,}")
    return number


def _vertex(words: list[str]) -> dict:
    """What a vertex says: behind its name up to three numbers, a shape, and pairs."""
    rest = words[2:]
    while rest and NUMBER.fullmatch(rest[0]):
        rest = rest[1:]
    return {"label": "".join(words[1:2])} | _pairs(rest[len(rest) % 2 :])


def _edge(words: list[str]) -> dict:
    weighed = len(words) > 2 and NUMBER.fullmatch(words[2]) is not None
    return ({"weight": words[2]} if weighed else {}) | _pairs(words[2 + weighed :])


def _pairs(words: list[str]) -> dict:
    return dict(zip(words[::2], words[1::2], strict=False))


PAJEK = TopologyFormat(
    "pajek", "vertices, edges and arcs by number: Pajek, igraph, networkx", (".net", ".pajek"),
    _sniff, _read, lines=True,
)  # fmt: skip

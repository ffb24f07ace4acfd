"""Edge lists, as networkx writes them: two names a line, and attributes of the edge; see `graphs`.

    h1 leaf1 {'rate': '400Gbit/s', 'delay': '500ns'}
    leaf1 spine1                                        # any rate

Told by the suffix alone, as two words a line are of many formats.
"""

from pathlib import Path

from ...errors import RFabricError
from ..network import Network
from .base import Reading, TopologyFormat, never, stem_of, text_of
from .graphs import Edge, in_order, network_of


def _read(path: Path, reading: Reading) -> Network:
    import networkx as nx

    lines = text_of(path).splitlines()
    edges: list[Edge] = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split(None, 2)
        if len(words) == 1:
            raise RFabricError(f"line {number}: {line[:60]!r} is no edge; write two names")
        try:
            # by itself, as an undirected graph would not say in which direction it stood
            edges += [
                Edge(a, b, said, f"edge {a} - {b}")
                for a, b, said in nx.parse_edgelist([line]).edges(data=True)
            ]
        except (TypeError, ValueError) as error:
            raise RFabricError(
                f"line {number}: {line[:60]!r}: behind two names stands a mapping, such as "
                "{'rate': '400Gbit/s'}; numbers alone do not say what they are"
            ) from error
    nodes: dict[str, dict] = {name: {} for edge in edges for name in (edge.a, edge.b)}
    return network_of(stem_of(path), nodes, in_order(edges), reading)


EDGE_LIST = TopologyFormat(
    "edge-list", "two names a line, and {'rate': '400Gbit/s'}: networkx",
    (".edgelist", ".edges"), never, _read, lines=True,
)  # fmt: skip

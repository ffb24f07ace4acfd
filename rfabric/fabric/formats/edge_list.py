"""Edge lists, as networkx writes them: two names a line, and attributes of the edge; see `graphs`.

    h1 leaf1 {'rate': '400Gbit/s', 'delay': '500ns'}
    leaf1 spine1                                        # any rate

Told by the suffix alone, as two words a line are of many formats.
"""

from pathlib import Path

from ...errors import RFabricError
from ..network import Network
from .base import Reading, TopologyFormat, never, stem_of, text_of
from .graphs import network_from


def _read(path: Path, reading: Reading) -> Network:
    import networkx as nx

    lines = text_of(path).splitlines()
    graph = nx.MultiGraph()
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split(None, 2)
        if len(words) == 1:
            raise RFabricError(f"line {number}: {line[:60]!r} is no edge; write two names")
        try:
            graph.add_edges_from(
                nx.parse_edgelist([line], create_using=nx.MultiGraph).edges(data=True)
            )
        except (TypeError, ValueError) as error:
            raise RFabricError(
                f"line {number}: {line[:60]!r}: behind two names stands a mapping, such as "
                "{'rate': '400Gbit/s'}; numbers alone do not say what they are"
            ) from error
    return network_from(graph, stem_of(path), reading)


EDGE_LIST = TopologyFormat(
    "edge-list", "two names a line, and {'rate': '400Gbit/s'}: networkx",
    (".edgelist", ".edges"), never, _read, lines=True,
)  # fmt: skip

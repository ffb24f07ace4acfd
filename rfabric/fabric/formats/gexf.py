"""GEXF, as Gephi and networkx write it; see `graphs`.

The `<default>` of an attribute holds for nodes or edges that say nothing of it. What is drawn
(colours, positions) says nothing here.
"""

import io
import re
from pathlib import Path

from ...errors import RFabricError
from ..network import Network
from .base import Reading, TopologyFormat, stem_of, text_of, xml_of
from .graphs import check_each_once, network_from

SPACE = "{http://www.gexf.net/1.2draft}"


def _sniff(text: str) -> bool:
    return re.search(r"<(?:\w+:)?gexf\b", text[:4096]) is not None


def _read(path: Path, reading: Reading) -> Network:
    import networkx as nx

    root = xml_of(text_of(path))
    check_each_once(
        [node.get("id") for node in root.iterfind(".//{*}node")],
        [tuple(map(edge.get, ("id", "source", "target"))) for edge in root.iterfind(".//{*}edge")],
    )
    try:
        graph = nx.read_gexf(io.StringIO(_plain(root)))
    # the library raises nothing (`raise` alone) for attributes of what is neither node nor edge
    except (nx.NetworkXError, LookupError, AttributeError, TypeError, RuntimeError) as error:
        raise RFabricError(f"is no GEXF that networkx reads: {error}") from error
    defaults = (graph.graph.get(f"{what}_default", {}) for what in ("node", "edge"))
    return network_from(graph, stem_of(path), reading, *defaults)


def _plain(root) -> str:
    """The text of a file in the one namespace that all releases of networkx read, whatever its
    version calls itself, with attributes as text, of whose types they read some.
    """
    from xml.etree.ElementTree import tostring

    for element in root.iter():
        element.tag = SPACE + element.tag.rpartition("}")[2]
    for attribute in root.iter(f"{SPACE}attribute"):
        attribute.set("type", "string")
    return tostring(root, encoding="unicode")


GEXF = TopologyFormat(
    "gexf", "nodes and edges with attributes: Gephi, networkx", (".gexf",), _sniff, _read
)

"""GraphML, as networkx, yEd, Gephi and the Internet Topology Zoo write it; see `graphs`."""

import re
import warnings
from pathlib import Path

from ...errors import RFabricError
from ...files import twice
from ..model import Fabric
from ..network import Network
from .base import Reading, TopologyFormat, stem_of, text_of, xml_of
from .graphs import graph_of, network_from

SPACE = "{http://graphml.graphdrawing.org/xmlns}"


def _sniff(text: str) -> bool:
    return re.search(r"<(?:\w+:)?graphml\b", text[:4096]) is not None


def _read(path: Path, reading: Reading) -> Network:
    import networkx as nx

    text = text_of(path)
    _check(xml_of(text))
    try:
        with warnings.catch_warnings():  # keys without a type and ports, as yEd has them
            warnings.simplefilter("ignore", UserWarning)
            graph = nx.parse_graphml(text)
    except (nx.NetworkXError, LookupError, AttributeError, TypeError) as error:
        raise RFabricError(f"is no GraphML that networkx reads: {error}") from error
    return network_from(graph, stem_of(path), reading)


def _check(root) -> None:
    """What networkx would pass over: nodes or edges twice, edges to no node, several graphs."""
    graphs = root.findall(f"{SPACE}graph")
    if len(graphs) != 1:
        raise RFabricError(
            f"holds {len(graphs)} graphs of xmlns http://graphml.graphdrawing.org/xmlns; keep one"
        )
    keys = {
        tuple(map(key.get, ("id", "attr.name", "attr.type"))) for key in root.iter(f"{SPACE}key")
    }
    if (key := twice(identity for identity, *_ in keys)) is not None:
        raise RFabricError(
            f"key {key} stands twice; give what is said of nodes and edges ids apart"
        )
    names = [node.get("id") for node in graphs[0].iter(f"{SPACE}node")]
    if (name := twice(names)) is not None:
        raise RFabricError(f"node {name} stands twice; keep one")
    known = set(names)
    edges = list(graphs[0].iter(f"{SPACE}edge"))
    ids = [(e.get("id"), frozenset((e.get("source"), e.get("target")))) for e in edges]
    if (edge := twice(each for each in ids if each[0])) is not None:
        raise RFabricError(f"edge {edge[0]} stands twice; give each an id of its own, or none")
    for edge in edges:
        for end in (edge.get("source"), edge.get("target")):
            if end not in known:
                what = f"edge {edge.get('source')} - {edge.get('target')}"
                raise RFabricError(f"{what} ends at {end}, which is no node of the file")


def _write(fabric: Fabric) -> str:
    import networkx as nx

    return "\n".join(nx.generate_graphml(graph_of(fabric), named_key_ids=True)) + "\n"


GRAPHML = TopologyFormat(
    "graphml", "nodes and edges with attributes: networkx, yEd, Gephi, Topology Zoo",
    (".graphml",), _sniff, _read, _write,
)  # fmt: skip

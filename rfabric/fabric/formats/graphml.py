"""GraphML, as networkx, yEd, Gephi and the Internet Topology Zoo write it; see `graphs`.

The `<default>` of a key holds for nodes or edges that say nothing of it. A graph within a node, as
yEd has groups, is part of the whole; a group to which nothing is cabled is no node of it.
"""

import re
import warnings
from pathlib import Path

from ...errors import RFabricError
from ...files import twice
from ..model import Fabric
from ..network import Network
from .base import Reading, TopologyFormat, stem_of, text_of, xml_of
from .graphs import check_each_once, graph_of, network_from

SPACE = "{http://graphml.graphdrawing.org/xmlns}"


def _sniff(text: str) -> bool:
    return re.search(r"<(?:\w+:)?graphml\b", text[:4096]) is not None


def _read(path: Path, reading: Reading) -> Network:
    import networkx as nx

    root = xml_of(text_of(path))
    _check(root)
    node_default, edge_default = _defaults(root, "node"), _defaults(root, "edge")
    groups = [node for node in root.iter(f"{SPACE}node") if node.find(f"{SPACE}graph") is not None]
    try:
        with warnings.catch_warnings():  # keys without a type and ports, as yEd has them
            warnings.simplefilter("ignore", UserWarning)
            graph = nx.parse_graphml(_laid_open(root, groups))
    except (nx.NetworkXError, LookupError, AttributeError, TypeError) as error:
        raise RFabricError(f"is no GraphML that networkx reads: {error}") from error
    names = [node.get("id") for node in groups]
    graph.remove_nodes_from([name for name in names if not graph.degree(name)])
    return network_from(graph, stem_of(path), reading, node_default, edge_default)


def _defaults(root, what: str) -> dict[str, str]:
    """What each `node`, or each `edge`, says that says nothing else, by the names of the keys."""
    every = [(key, key.findtext(f"{SPACE}default")) for key in root.iter(f"{SPACE}key")]
    return {
        key.get("attr.name", ""): text
        for key, text in every
        if text and key.get("for", "all") in (what, "all")
    }


def _laid_open(root, groups: list) -> str:
    """The text of a file with graphs in nodes called as yEd calls them, which networkx reads, and
    without defaults, some of which it does not.
    """
    from xml.etree.ElementTree import tostring

    for node in groups:
        node.set("yfiles.foldertype", "group")
    for key in root.iter(f"{SPACE}key"):
        for default in key.findall(f"{SPACE}default"):
            key.remove(default)
    return tostring(root, encoding="unicode")


def _check(root) -> None:
    """RFabricError for what networkx would pass over: several graphs, and what stands twice."""
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
    check_each_once(
        [node.get("id") for node in graphs[0].iter(f"{SPACE}node")],
        [tuple(map(e.get, ("id", "source", "target"))) for e in graphs[0].iter(f"{SPACE}edge")],
        graphs[0].get("edgedefault") == "directed",
    )


def _write(fabric: Fabric) -> str:
    import networkx as nx

    return "\n".join(nx.generate_graphml(graph_of(fabric), named_key_ids=True)) + "\n"


GRAPHML = TopologyFormat(
    "graphml", "nodes and edges with attributes: networkx, yEd, Gephi, Topology Zoo",
    (".graphml",), _sniff, _read, _write,
)  # fmt: skip

"""Node-link JSON, as networkx and d3 write it: `nodes` and `links` (or `edges`); see `graphs`.

{"directed": false, "nodes": [{"id": "leaf1", "role": "leaf"}, ...],
 "links": [{"source": "h1", "target": "leaf1", "rate": "400Gbit/s"}, ...]}

vis.js calls the ends `from` and `to`. What is said of a node or an edge may stand one deeper, in
its `attributes` (graphology) or `data` (rustworkx, Cytoscape, which puts all of it in `elements`).
"""

import json
import re
from pathlib import Path
from typing import Any

from ...errors import RFabricError
from ..model import Fabric
from ..network import Network
from .base import Reading, TopologyFormat, items, mapping, mapping_of, name_of, stem_of
from .graphs import Edge, edges_of, network_of, node_attributes

DEEPER = ("attributes", "data", "properties")  # where what is said of a node or an edge may stand
ENDS = (("source", "target"), ("from", "to"), ("src", "dst"))


def _sniff(text: str) -> bool:
    return (
        text.lstrip().startswith("{")
        and re.search(r'"nodes"\s*:\s*\[', text) is not None
        and re.search(r'"(?:source|from|src|directed|multigraph)"\s*:', text) is not None
    )


def _read(path: Path, reading: Reading) -> Network:
    data = _laid_open(mapping_of(path))
    both = [data[key] for key in ("links", "edges") if key in data]
    listed = next(filter(None, both), both[0] if both else None)
    if listed is None or "nodes" not in data:
        raise RFabricError("it needs nodes and links")
    nodes: dict[str, dict] = {}
    for i, node in enumerate(items(data["nodes"], "nodes")):
        name = _name(node, i)
        if name in nodes:
            raise RFabricError(f"node {name} stands twice; keep one")
        nodes[name] = _all_said(node) if isinstance(node, dict) else {}
    order = list(nodes)
    by_row = any(isinstance(n, dict) and "id" not in n for n in data["nodes"])
    edges = [
        _edge(link, i, order if by_row else []) for i, link in enumerate(items(listed, "links"))
    ]
    graph = mapping(data.get("graph", {}) or {}, "graph") if "graph" in data else {}
    return network_of(stem_of(path), nodes, edges, reading, graph, bool(data.get("directed")))


def _laid_open(data: dict) -> dict:
    """Cytoscape's elements as others have them; its attributes of the whole are left out."""
    if "elements" not in data:
        return data
    elements = mapping(data["elements"], "elements")
    opened = {
        key: [
            mapping(mapping(one, f"elements.{key}[{i}]").get("data"), f"elements.{key}[{i}].data")
            for i, one in enumerate(items(elements.get(key, []), f"elements.{key}"))
        ]
        for key in ("nodes", "edges")
    }
    return opened | {"directed": data.get("directed")}


def _all_said(one: dict) -> dict:
    """A node or an edge with what stands one deeper beside what it says itself."""
    deeper = {key: one[key] for key in DEEPER if isinstance(one.get(key), dict)}
    said = {key: value for key, value in one.items() if key not in deeper}
    return {key: value for inner in deeper.values() for key, value in inner.items()} | said


def _name(node: Any, i: int) -> str:
    if not isinstance(node, dict):
        return name_of(node, f"nodes[{i}]")
    key = next((key for key in ("id", "name", "key", "label") if key in node), "id")
    return name_of(node.get(key), f"nodes[{i}].{key}")


def _edge(link: Any, i: int, order: list[str]) -> Edge:
    """`order`: the names by row, where links count rows and nodes have no id."""
    said = _all_said(mapping(link, f"links[{i}]"))
    ends = []
    for key in next((keys for keys in ENDS if keys[0] in said), ENDS[0]):
        end = said.get(key)
        if order and isinstance(end, int) and 0 <= end < len(order):
            end = order[end]
        ends.append(name_of(end, f"links[{i}].{key}"))
    return Edge(*ends, said, f"links[{i}] {ends[0]} - {ends[1]}")


def _write(fabric: Fabric) -> str:
    nodes = [{"id": name} | said for name, said in node_attributes(fabric).items()]
    links = [{"source": a, "target": b, "key": said["cable"]} | said
             for a, b, said in edges_of(fabric)]  # fmt: skip
    graph = {"fabric": fabric.name, "reconfig_delay_s": fabric.reconfig_delay}
    return json.dumps({
        "directed": False, "multigraph": True, "graph": graph, "nodes": nodes, "links": links,
    }, indent=1) + "\n"  # fmt: skip


NODE_LINK = TopologyFormat(
    "node-link", "`nodes` and `links` as JSON: networkx, d3, vis.js, Cytoscape",
    (".json", ".cyjs"), _sniff, _read, _write,
)  # fmt: skip

"""Node-link JSON, as networkx and d3 write it: `nodes` and `links` (or `edges`); see `graphs`.

{"directed": false, "nodes": [{"id": "leaf1", "role": "leaf"}, ...],
 "links": [{"source": "h1", "target": "leaf1", "rate": "400Gbit/s"}, ...]}

vis.js calls the ends `from` and `to`. What is said of a node or an edge may stand one deeper, in
its `attributes` (graphology), `metadata` (JSON Graph Format, which puts all of it in `graph`) or
`data` (rustworkx, Cytoscape, which puts all of it in `elements`: a list of nodes and one of edges,
or one of both). networkx's `adjacency` lists what each node is joined to. Edges end at ids; a node
is called by its label or name, unless its id alone says what it is.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import RFabricError
from ..model import Fabric
from ..network import Network
from .base import Reading, TopologyFormat, items, mapping, mapping_of, name_of, stem_of
from .graphs import Edge, edges_of, names_of, network_of, node_attributes

# where what is said of a node or an edge may stand
DEEPER = ("attributes", "data", "properties", "metadata")
ENDS = (("source", "target"), ("from", "to"), ("src", "dst"))


def _sniff(text: str) -> bool:
    return (
        text.lstrip().startswith("{")
        and re.search(r'"(?:nodes|elements)"\s*:\s*[\[{]', text) is not None
        and re.search(r'"(?:source|from|src|directed|multigraph)"\s*:', text) is not None
    )


def _read(path: Path, reading: Reading) -> Network:
    data = _laid_open(mapping_of(path))
    both = [data[key] for key in ("links", "edges") if key in data]
    if len(both) == 2 and all(both) and both[0] != both[1]:
        raise RFabricError("holds links and edges, which differ; keep one list of all cables")
    listed = next(filter(None, both), both[0] if both else None)
    if listed is None or "nodes" not in data:
        raise RFabricError("it needs nodes and links")
    nodes: dict[str, dict] = {}
    for i, node in enumerate(items(data["nodes"], "nodes")):
        key = _id(node, i)
        if key in nodes:
            raise RFabricError(f"node {key} stands twice; keep one")
        nodes[key] = _all_said(node) if isinstance(node, dict) else {}
    names = names_of({key: {"name": _shown(said)} for key, said in nodes.items()})
    by_row = any(isinstance(n, dict) and "id" not in n for n in data["nodes"])
    rows = list(nodes) if by_row else []
    edges = [_edge(link, i, rows, names) for i, link in enumerate(items(listed, "links"))]
    called = {names[key]: said for key, said in nodes.items()}
    graph = mapping(data.get("graph", {}) or {}, "graph") if "graph" in data else {}
    return network_of(stem_of(path), called, edges, reading, graph, bool(data.get("directed")))


def _laid_open(data: dict) -> dict:
    """Cytoscape's elements, networkx's adjacency and JSON Graph Format as others have them;
    Cytoscape's attributes of the whole are left out.
    """
    inner = data.get("graph")
    if "nodes" not in data and isinstance(inner, dict) and "nodes" in inner:
        said = inner["nodes"]
        named = said.items() if isinstance(said, dict) else ()
        nodes = [{**mapping(one, f"nodes.{name}"), "id": name} for name, one in named]
        return inner | {"nodes": nodes or said, "graph": {}}
    if "nodes" in data and "adjacency" in data:
        return data | {"links": list(_adjacent(data))}
    elements = data.get("elements")
    if "nodes" in data or not isinstance(elements, (dict, list)):
        return data
    opened: dict[str, list] = {"nodes": [], "edges": []}
    for where, group, one in _elements(elements):
        said = mapping(one.get("data"), f"{where}.data")
        group = str(group or ("edges" if "source" in said else "nodes"))
        if group not in opened:
            raise RFabricError(f"{where}.group: {group!r} is none of nodes, edges")
        opened[group].append(said)
    return opened | {"directed": data.get("directed")}


def _adjacent(data: dict) -> Iterator[dict]:
    """The links of networkx's adjacency: of each node in its order, those to which it is joined."""
    rows = items(data["adjacency"], "adjacency")
    for i, (node, row) in enumerate(zip(items(data["nodes"], "nodes"), rows, strict=False)):
        for end in items(row, f"adjacency[{i}]"):
            said = mapping(end, f"adjacency[{i}]")
            yield {**said, "source": _id(node, i), "target": said.get("id")}


def _elements(elements: dict | list) -> Iterator[tuple[str, Any, dict]]:
    """Where each of Cytoscape's elements stands, its group where it is said, and the element."""
    if isinstance(elements, list):
        for i, one in enumerate(elements):
            yield f"elements[{i}]", mapping(one, f"elements[{i}]").get("group"), one
        return
    for key in ("nodes", "edges"):
        for i, one in enumerate(items(elements.get(key, []), f"elements.{key}")):
            yield f"elements.{key}[{i}]", key, mapping(one, f"elements.{key}[{i}]")


def _all_said(one: dict) -> dict:
    """A node or an edge with what stands one deeper beside what it says itself."""
    deeper = {key: one[key] for key in DEEPER if isinstance(one.get(key, 0), (dict, type(None)))}
    said = {key: value for key, value in one.items() if key not in deeper}
    return {key: value for inner in deeper.values() for key, value in (inner or {}).items()} | said


def _id(node: Any, i: int) -> str:
    """By what edges call a node."""
    if not isinstance(node, dict):
        return name_of(node, f"nodes[{i}]")
    key = next((key for key in ("id", "name", "key", "label") if key in node), "id")
    return name_of(node.get(key), f"nodes[{i}].{key}")


def _shown(said: Mapping[str, Any]) -> Any:
    """What a drawing writes at a node: here no more than a name, as ids of JSON are often words."""
    return said.get("label") or said.get("name")


def _edge(link: Any, i: int, rows: list[str], names: Mapping[str, str]) -> Edge:
    """`rows`: the nodes by row, where links count rows and nodes have no id."""
    said = _all_said(mapping(link, f"links[{i}]"))
    ends = []
    for key in next((keys for keys in ENDS if said.keys() >= set(keys)), ENDS[0]):
        end = said.get(key)
        if rows and isinstance(end, int) and 0 <= end < len(rows):
            end = rows[end]
        node = name_of(end, f"links[{i}].{key}")
        if node not in names:  # a label of another node may read the same
            raise RFabricError(f"links[{i}].{key} ends at {node}, which is no node of the file")
        ends.append(names[node])
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

"""htsim's `.topo`: a Clos of two or three tiers, all switches of a tier alike.

    Nodes 64
    Tiers 3
    Podsize 16
    Tier 0                       ToRs: cables down and up of each, and what those below have
    Downlink_speed_Gbps 400
    Downlink_Latency_ns 500
    Radix_Up 4
    Radix_Down 4

Keys as csg-htsim's `FatTreeTopology` reads them; `Bundle`: cables between the same two switches. A
fabric that is not so regular has no such text and is refused, with the first switch that differs.
"""

from collections import Counter
from collections.abc import Iterator

from ...errors import RFabricError
from ..model import Fabric, Port
from .base import TopologyFormat, joined_lines, never, no_circuits

ORDER = ("host", "edge", "aggregation", "core")


def _write(fabric: Fabric) -> str:
    no_circuits(fabric, "htsim's topology text")
    tiers = [tier for tier in ORDER[1:] if any(n.tier == tier for n in fabric.switches)]
    other = next((n for n in fabric.switches if n.tier not in ORDER), None)
    if other or len(tiers) < 2 or tiers[0] != "edge":
        what = f"{other.name}, of tier {other.tier}" if other else f"tiers {', '.join(tiers)}"
        raise RFabricError(f"{fabric.name} has {what}: htsim's text is a Clos of 2 or 3 tiers")
    return joined_lines(_lines(fabric, tiers))


def _lines(fabric: Fabric, tiers: list[str]) -> Iterator[str]:
    shapes = [_shape(fabric, tier) for tier in tiers]
    top = max(i for i, shape in enumerate(shapes) if shape["Radix_Down"])
    yield f"Nodes {len(fabric.hosts)}"
    yield f"Tiers {top + 1}"
    yield f"Podsize {_pod_size(fabric) if top == 2 else len(fabric.hosts)}"
    for i, shape in enumerate(shapes):
        yield f"Tier {i}"
        keys = [key for key in shape if key != "Radix_Up" or i < top]
        yield from (f"{key} {shape[key]}" for key in keys)


def _shape(fabric: Fabric, tier: str) -> dict[str, int | str]:
    """What every switch of a tier has; RFabricError names the first that differs."""
    usual: dict[str, int | str] = {}
    first = ""
    for node in fabric.switches:
        if node.tier != tier:
            continue
        shape = _of_one(fabric, node.name, tier)
        if usual and shape != usual:
            raise RFabricError(
                f"{fabric.name}: {node.name} differs from {first} ({_told(shape)}; "
                f"{_told(usual)}): htsim's text has switches of one kind a tier; write "
                "ns3-topology or GraphML"
            )
        usual, first = usual or shape, first or node.name
    return usual


def _told(shape: dict) -> str:
    return ", ".join(f"{key} {value}" for key, value in shape.items())


def _of_one(fabric: Fabric, name: str, tier: str) -> dict[str, int | str]:
    below = [port for port in fabric.ports[name] if _tier(fabric, port) < ORDER.index(tier)]
    same = [port for port in fabric.ports[name] if _tier(fabric, port) == ORDER.index(tier)]
    cables = [fabric.links[fabric.peer[port][0] // 2] for port in below]
    speeds = {cable.rate for cable in cables}
    skipped = {_tier(fabric, port) for port in fabric.ports[name]} - {
        ORDER.index(tier) - 1, ORDER.index(tier) + 1
    }  # fmt: skip
    if same or len(speeds) > 1 or skipped and not _leaf_spine(fabric):
        raise RFabricError(
            f"{fabric.name}: {name} has cables of {len(speeds)} rates below, or to switches that "
            "are no tier away; htsim's text knows no such"
        )
    speed = next(iter(speeds), 0.0) / 1e9
    wide = {*Counter(fabric.peer[port][1].node for port in below).values()} or {1}
    if len(wide) > 1:
        raise RFabricError(f"{fabric.name}: {name} has one cable to some below and more to others")
    bundle = {"Bundle": wide.pop()} if wide != {1} else {}
    return bundle | {
        "Downlink_speed_Gbps": repr(speed).removesuffix(".0"),
        "Downlink_Latency_ns": round(max((c.delay for c in cables), default=0.0) * 1e9),
        "Radix_Up": len(fabric.ports[name]) - len(below),
        "Radix_Down": len(below),
    }


def _leaf_spine(fabric: Fabric) -> bool:
    """Two tiers, whose upper one a builder calls core."""
    return not any(node.tier == "aggregation" for node in fabric.switches)


def _tier(fabric: Fabric, port: Port) -> int:
    """The tier at the other end of a port's cable."""
    return ORDER.index(fabric.node[fabric.peer[port][1].node].tier)


def _pod_size(fabric: Fabric) -> int:
    """Hosts below one set of aggregation switches; RFabricError where these differ."""
    import networkx as nx

    graph = nx.Graph()
    known = {n.name for n in fabric.nodes if n.tier in ("host", "edge", "aggregation")}
    graph.add_nodes_from(known)
    graph.add_edges_from((k.a.node, k.b.node) for k in fabric.links
                         if {k.a.node, k.b.node} <= known)  # fmt: skip
    pods = [
        sum(name in fabric.host_index for name in pod) for pod in nx.connected_components(graph)
    ]
    if len(set(pods)) > 1:
        raise RFabricError(
            f"{fabric.name}: pods of {min(pods)} to {max(pods)} hosts; htsim's text has equal ones"
        )
    return pods[0]


HTSIM_TOPOLOGY = TopologyFormat(
    "htsim-topology", "htsim's Clos of 2 or 3 tiers; regular fabrics alone (written only)",
    (".topo",), never, None, _write,
)  # fmt: skip

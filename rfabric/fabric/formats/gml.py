"""GML, as networkx, Gephi and the Internet Topology Zoo write it; see `graphs`."""

import re
from pathlib import Path

from ...errors import RFabricError
from ..model import Fabric
from ..network import Network
from .base import Reading, TopologyFormat, stem_of, text_of
from .graphs import graph_of, network_from


def _sniff(text: str) -> bool:
    body = re.sub(r"^\s*(?:#.*|(?:Creator|Version|comment)\b.*)$", "", text[:4096], flags=re.M)
    return re.match(r"\s*graph\s*\[", body) is not None


def _read(path: Path, reading: Reading) -> Network:
    import networkx as nx

    try:
        graph = nx.parse_gml(_as_multigraph(text_of(path)), label="id")
    except nx.NetworkXError as error:
        raise RFabricError(f"is no GML that networkx reads: {error}") from error
    except RecursionError:
        raise RFabricError("lists stand within lists, too deep to be read") from None
    except (TypeError, AttributeError, LookupError) as error:
        raise RFabricError(f"is no GML: {type(error).__name__} {error}") from error
    graph.graph["reconfig_delay_s"] = graph.graph.get("reconfigdelays", 0.0)
    return network_from(graph, stem_of(path), reading)


def _as_multigraph(text: str) -> str:
    """Parallel edges, which GML allows, are networkx's only where its own key says so."""
    bare = re.sub(r"^\s*multigraph\s+\d+\s*$", "", text, flags=re.M)
    return re.sub(r"^(\s*graph\s*\[)", r"\1 multigraph 1 ", bare, count=1, flags=re.M)


def _write(fabric: Fabric) -> str:
    """Keys of GML hold letters and digits alone: `rate_bps` as a string with its unit."""
    import networkx as nx

    graph = graph_of(fabric)
    graph.graph = {"fabric": fabric.name, "reconfigdelays": float(fabric.reconfig_delay)}
    for *_, said in graph.edges(data=True):
        said["rate"], said["delay"] = f"{said.pop('rate_bps')!r}bit/s", f"{said.pop('delay_s')!r}s"
    return "\n".join(nx.generate_gml(graph)) + "\n"


GML = TopologyFormat(
    "gml", "nodes and edges with attributes: networkx, Gephi, Topology Zoo",
    (".gml",), _sniff, _read, _write,
)  # fmt: skip

"""Where the nodes of a fabric stand in a picture: hosts below, what serves them above.

core          c1        c2          y = 1
aggregation   a1   a2   a3   a4
edge          t1   t2   t3   t4
host         h1 h2 h3 h4 h5 h6 h7   y = 0
"""

from collections.abc import Sequence

import numpy as np

from ...fabric import Fabric, Node

ROWS = ("host", "server", "edge", "electrical", "aggregation", "core")  # from below


def places(fabric: Fabric) -> dict[str, tuple[float, float]]:
    """x and y of each node, 0..1: hosts rack by rack, switches of a pod above its hosts, those of
    no pod spread over the whole width.
    """
    tiers = [tier for tier in ROWS if any(node.tier == tier for node in fabric.nodes)]
    x = _hosts(fabric)
    spans = _spans(fabric, x)
    for tier in tiers[1:]:
        nodes = [node for node in fabric.nodes if node.tier == tier]
        for pod in dict.fromkeys(node.pod for node in nodes):
            x |= _row([n for n in nodes if n.pod == pod], *spans.get(pod, (0.0, 1.0)))
    top = max(len(tiers) - 1, 1)
    return {n.name: (x[n.name], tiers.index(n.tier) / top) for n in fabric.nodes if n.name in x}


def _hosts(fabric: Fabric) -> dict[str, float]:
    """Hosts side by side, those of a rack and of a pod together."""
    order = {rack: i for i, rack in enumerate(fabric.racks)}
    pod = {node.name: node.pod for node in fabric.nodes}
    rack = fabric.rack_of
    hosts = sorted(rack, key=lambda host: (pod[rack[host]], order[rack[host]]))
    at = np.linspace(0, 1, 2 * len(hosts) + 1)[1::2]
    return dict(zip(hosts, at.tolist(), strict=True))


def _spans(fabric: Fabric, x: dict[str, float]) -> dict[int, tuple[float, float]]:
    """From where to where each pod's hosts stand."""
    hosts_x: dict[int, list[float]] = {}
    pod = {node.name: node.pod for node in fabric.nodes}
    for host, rack in fabric.rack_of.items():
        hosts_x.setdefault(pod[rack], []).append(x[host])
    half = 0.5 / max(len(x), 1)
    return {pod: (min(at) - half, max(at) + half) for pod, at in hosts_x.items() if pod >= 0}


def _row(nodes: Sequence[Node], left: float, right: float) -> dict[str, float]:
    """Nodes evenly between two places."""
    at = np.linspace(left, right, 2 * len(nodes) + 1)[1::2]
    return dict(zip([node.name for node in nodes], at.tolist(), strict=True))

"""Where the nodes of a fabric stand in a picture of its cables, which holds a part of a large one:
all pods that have room, of each the first ToRs and GPUs. The clock draws all: see places.py.

core          c1        c2          y = 3.5
aggregation   a1   a2   a3   a4     y = 2.2
edge          t1   t2   t3   t4     y = 0.95    electrical x1: y = BUS
host         h1 h2 h3 h4 h5 h6 h7   y = 0
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ...fabric import Fabric, Node
from ...fabric.cabling import cabling_of
from ...fabric.model import RACKS

BUS = 1.36  # height at which the electrical path runs along the ToRs
DRAWN_TORS, MOST_TORS, MOST_HOSTS = 24, 8, 8
XY = tuple[float, float]


@dataclass(frozen=True)
class Outline:
    """What is drawn of a fabric.

    at: x and y of each node; cables: numbers of the links between these; over: how high above its
    ends each one rises, 0 for a straight one.
    """

    at: dict[str, XY]
    cables: tuple[int, ...]
    over: tuple[float, ...]


def outline(fabric: Fabric) -> Outline:
    """The pods with their ToRs and hosts, aggregation and core above, every cable between what is
    drawn.
    """
    at = _spots(fabric)
    ends = np.array([node.name in at for node in fabric.nodes])[cabling_of(fabric).node]
    cables = np.flatnonzero(ends.reshape(-1, 2).all(axis=1)).tolist()
    spots = set(at.values())
    width = max(x for x, _ in spots) - min(x for x, _ in spots)
    links = (fabric.links[cable] for cable in cables)
    over = tuple(_over(at[link.a.node], at[link.b.node], spots, width) for link in links)
    return Outline(at, tuple(cables), over)


def _over(a: XY, b: XY, spots: Collection[XY], width: float) -> float:
    """A cable along a row goes over what stands between its ends, which it would else seem to
    join.
    """
    (left, y), (right, to_y) = sorted((a, b))
    if y != to_y or not any(spot[1] == y and left < spot[0] < right for spot in spots):
        return 0.0
    return 0.15 + 0.3 * (right - left) / width


def _spots(fabric: Fabric) -> dict[str, XY]:
    """x, y of the nodes to draw: hosts spread below, switches above the middle of what they
    serve.
    """
    by_pod: dict[tuple[str, int], list[str]] = {}
    for node in fabric.nodes:
        if node.tier != "host":
            tier = "rack" if node.tier in RACKS else node.tier
            by_pod.setdefault((tier, node.pod), []).append(node.name)
    racks = max(len(by_pod.get(("rack", 0), ())), 1)
    shown = range(min(max(fabric.pods, 1), max(DRAWN_TORS // min(racks, MOST_TORS), 1)))
    served: dict[str, list[str]] = {}
    for host, rack in fabric.rack_of.items():
        served.setdefault(rack, []).append(host)
    at: dict[str, XY] = {}
    left = 0.0
    for pod in shown:
        start = left
        for rack in by_pod.get(("rack", pod), [])[:MOST_TORS]:
            hosts = served.get(rack, [])[:MOST_HOSTS]
            for i, host in enumerate(hosts):
                at[host] = (left + 0.22 * i, 0.0)
            at[rack] = (left + 0.11 * max(len(hosts) - 1, 0), 0.95)
            left += 0.22 * max(len(hosts), 2) + 0.25
        end = left - 0.25
        middle = by_pod.get(("aggregation", pod), [])[:MOST_TORS]
        for i, name in enumerate(middle):
            at[name] = (start + (end - start) * (i + 0.5) / len(middle) - 0.1, 2.2)
        left += 0.5
    return at | _above(fabric.nodes, left - 0.75)


def _above(nodes: Sequence[Node], width: float) -> dict[str, XY]:
    """Core over the whole width, and the electrical path beside it."""
    cores = [node.name for node in nodes if node.tier == "core"][: 2 * MOST_TORS]
    thin = [node.name for node in nodes if node.tier == "electrical"][:MOST_TORS]
    above = {name: (width * (i + 1) / (len(cores) + 1), 3.5) for i, name in enumerate(cores)}
    return above | {name: (width + 0.45 + 0.6 * i, BUS) for i, name in enumerate(thin)}

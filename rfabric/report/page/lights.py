"""Light paths between racks, each once, as pages draw them."""

import numpy as np

from ...fabric import Fabric
from ...fabric.cabling import cabling_of
from ...optics import Circuits
from ...routing import routes_of


def light_paths(fabric: Fabric, circuits: Circuits) -> list[tuple]:
    """Light paths that cross an OCS: (rack, rack, plane, directed links)."""
    some, ends = optical_ends(fabric, circuits)
    lights = routes_of(fabric, circuits).lights
    offsets, links = lights.offsets.tolist(), lights.links.tolist()
    each = zip(*racks_of(fabric, ends).tolist(), planes(fabric, ends[0]).tolist(), strict=True)
    return [
        (a, b, plane, tuple(links[offsets[i] : offsets[i + 1]]))
        for i, (a, b, plane) in zip(some.tolist(), each, strict=True)
    ]


def optical_ends(fabric: Fabric, circuits: Circuits) -> tuple[np.ndarray, np.ndarray]:
    """int64[n], int64[2, n]: the light paths between racks that cross an OCS, by their numbers in
    `lights`, and the ports at both ends.
    """
    cabling, lights = cabling_of(fabric), routes_of(fabric, circuits).lights
    ends = np.stack((lights.out, lights.into))
    between = (cabling.rack[cabling.node[ends]] >= 0).all(axis=0)
    once = cabling.rank[ends[0]] < cabling.rank[ends[1]]
    some = np.flatnonzero((np.diff(lights.offsets) > 1) & between & once)
    return some, ends[:, some]


def racks_of(fabric: Fabric, ports: np.ndarray) -> np.ndarray:
    """The number of the rack that each of these ports is of."""
    cabling = cabling_of(fabric)
    return cabling.rack[cabling.node[ports]]


def planes(fabric: Fabric, ports: np.ndarray) -> np.ndarray:
    """The plane of what each of these ports is cabled to."""
    plane = np.array([node.plane for node in fabric.nodes])
    return plane[cabling_of(fabric).node[ports ^ 1]]

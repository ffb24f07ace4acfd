"""What is cabled: nodes, ports, links, fabrics; what they cost."""

from .builders import (
    fat_tree,
    ideal,
    leaf_spine,
    mixnet,
    opus,
    rail_optimized,
    rfabric,
    rotor,
    topoopt,
    two_clusters,
)  # fmt: skip
from .model import Fabric, Link, Node, Port, host_ip, host_mac
from .spec import Needs, fabric_names, parse_fabric

__all__ = [
    "Fabric", "Link", "Needs", "Node", "Port", "fabric_names", "fat_tree", "host_ip", "host_mac", "ideal", "leaf_spine",
    "mixnet", "opus", "parse_fabric", "rail_optimized", "rfabric", "rotor", "topoopt", "two_clusters",
]  # fmt: skip

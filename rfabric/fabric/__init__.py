"""What is cabled: nodes, ports, links, fabrics; where packets go on them; what they cost."""

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
from .routing import LightPath, Routes, Rule, circuit_rules, light_paths, unreachable, where_lost
from .spec import Needs, data_dir, fabric_names, parse_fabric

__all__ = [
    "Fabric", "LightPath", "Link", "Needs", "Node", "Port", "Routes", "Rule", "circuit_rules", "data_dir", "fabric_names",
    "fat_tree", "host_ip", "host_mac", "ideal", "leaf_spine", "light_paths", "mixnet", "opus", "parse_fabric",
    "rail_optimized", "rfabric", "rotor", "topoopt", "two_clusters", "unreachable", "where_lost",
]  # fmt: skip

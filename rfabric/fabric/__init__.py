"""What is cabled: nodes, ports, links, fabrics; what they cost.

The builders are those of `topologies/`: `from rfabric.fabric import fat_tree` opens
topologies/fat_tree.py.
"""

from .model import Fabric, Link, Node, Pair, Port, host_ip, host_mac
from .shipped import BUILDERS, fabric_names
from .spec import Needs, parse_fabric

__all__ = [
    "BUILDERS", "Fabric", "Link", "Needs", "Node", "Pair", "Port", "fabric_names", "host_ip",
    "host_mac", "parse_fabric",
    *(name.replace("-", "_") for name in BUILDERS),
]  # fmt: skip


def __getattr__(name: str):
    """The builder of that name."""
    if (known := name.replace("_", "-")) in BUILDERS:
        return BUILDERS[known]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Builders of fabrics: what gets cabled. Each draws its pod in its file under `topologies/`.

A builder is a function from settings (numbers, quantities as text with units or as floats of the base unit) to a Fabric whose
`parameters` are those settings in base units (`rate` -> `rate_bps`, `delay` -> `delay_s`); `builder.room(hosts, least, given)`
are the settings that hold so many GPUs.
"""

from .optical import mixnet, opus, rfabric, rotor, topoopt
from .packet import fat_tree, ideal, leaf_spine, rail_optimized, two_clusters
from .parts import MAX_PORTS, RADIX, TIER_CODE
from .sizes import shape_for, sized

BUILDERS = {
    "fat-tree": fat_tree, "leaf-spine": leaf_spine, "rail-optimized": rail_optimized, "rfabric": rfabric,
    "topoopt": topoopt, "mixnet": mixnet, "opus": opus, "rotor": rotor, "two-clusters": two_clusters, "ideal": ideal,
}  # fmt: skip

__all__ = [
    "BUILDERS", "MAX_PORTS", "RADIX", "TIER_CODE", "fat_tree", "ideal", "leaf_spine", "mixnet", "opus", "rail_optimized",
    "rfabric", "rotor", "shape_for", "sized", "topoopt", "two_clusters",
]  # fmt: skip

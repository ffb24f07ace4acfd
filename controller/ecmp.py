r"""The controller of a packet-switched fabric: shortest paths, equal-cost multipath by a hash of
the pair.

    ryu-manager controller/ecmp.py
    sudo mn --custom topologies/fat_tree.py --topo fat-tree,pods=2 --controller remote \
        --switch ovsk,protocols=OpenFlow13

    curl -X PUT localhost:8080/pairs -d '{"pairs": [["h1", "h5"]]}'   routes before the first packet

The hash is rfabric's own (`rfabric.routing`), the same in the simulator and here, so a pair takes
the same way in both. Each pair gets one rule a switch; pairs nobody announced get theirs when their
first packet comes by. All are there again after a restart (RFABRIC_JOURNAL=none: not). The fabric
is read from the switches that connect; RFABRIC_TOPO=fat-tree,k=4 names it, as it must any other
fabric of packet switches: leaf-spine, rail-optimized, two-clusters, ideal, a CSV of cables.
"""

from rfabric.control.app import FabricApp


class Ecmp(FabricApp):
    """Packet switches alone."""

    FABRIC = "fat-tree"

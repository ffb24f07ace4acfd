r"""The controller of an optical fabric: crossbars on the OCSes, the routes that follow them, REST.

    ryu-manager controller/ocs.py
    sudo mn --custom topologies/rfabric.py --topo rfabric,pods=2 --controller remote \
        --switch ovsk,protocols=OpenFlow13

    curl localhost:8080/circuits
    curl -X PUT localhost:8080/ocs/a1/circuits -d '{"circuits": ["a1:1-a1:2"]}'      # rewire one
    curl -X POST localhost:8080/plans -d '{"circuits": ["a1:1-a1:2", "a2:1-a2:2"]}'  # plan all
    curl -X POST localhost:8080/plans/2/commit               # and do it, where that was epoch 2

OpenFlow and REST listen on loopback; `rfabric/control/border.py` says how to let others in.

The fabric is read from the switches that connect; RFABRIC_TOPO=rfabric,pods=2,delay=25ms names it
with what cannot be seen there, and must name any other optical fabric: topoopt, mixnet, opus,
rotor. At the first start the OCSes hold the mesh of policy `static`, later what they held last: the
journal lies in ~/.local/state/rfabric (root: /var/lib/rfabric), RFABRIC_JOURNAL=DIR puts it
elsewhere, RFABRIC_JOURNAL=none keeps nothing. Hosts find each other by themselves:
the controller answers ARP, and gives a pair its routes when its first packet comes by. `rfabric
control` runs this file under Ryu or os-ken.

To make your own: copy this file and override `switch_up`. A policy of your own is another file,
controller/ring_policy.py; those that requests may name are listed in RFABRIC_PLUGINS.
"""

from rfabric.control.app import FabricApp


class Ocs(FabricApp):
    """Optical aggregation and core, electrical ToRs."""

    FABRIC = "rfabric"

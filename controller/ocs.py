r"""The controller of an optical fabric: crossbars on the OCSes, routes that follow them, and REST.

    ryu-manager controller/ocs.py
    sudo mn --custom topologies/rfabric.py --topo rfabric,pods=2 --controller remote \
        --switch ovsk,protocols=OpenFlow13

    curl localhost:8080/circuits
    curl -X PUT localhost:8080/ocs/a1/circuits -d '{"circuits": ["a1:1-a1:2"]}'      # rewire one
    curl -X POST localhost:8080/plans -d '{"circuits": ["a1:1-a1:2", "a2:1-a2:2"]}'  # plan all
    curl -X POST localhost:8080/plans/2/commit               # and do it, if that was epoch 2

OpenFlow and REST listen on loopback; `rfabric/control/border.py` says how to open them to others.

The fabric is read from the switches that connect. RFABRIC_TOPO=rfabric,pods=2,delay=25ms names it
with what cannot be seen there; any other optical fabric (topoopt, mixnet, opus, rotor) must be
named. At the first start the OCSes hold the mesh of policy `static`, later what they held last. The
journal is kept in ~/.local/state/rfabric (root: /var/lib/rfabric); RFABRIC_JOURNAL=DIR puts it
elsewhere, RFABRIC_JOURNAL=none keeps nothing. Hosts find each other by themselves: the controller
answers ARP, and installs the routes of a pair when its first packet arrives. `rfabric control` runs
this file under Ryu or os-ken.

To make your own, copy this file and override `switch_up`. For your own policy, copy
controller/ring_policy.py; RFABRIC_PLUGINS lists the policy files that requests may name.
"""

from rfabric.control.app import FabricApp


class Ocs(FabricApp):
    """Optical aggregation and core, electrical ToRs."""

    FABRIC = "rfabric"

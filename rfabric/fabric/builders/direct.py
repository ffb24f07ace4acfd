"""Servers whose NICs go straight to OCSes, as in topoopt, mixnet and opus.

A *server* is the forwarding plane of a server's NICs: its GPUs reach it over NVLink and PCIe
(`inside`, no cable and no part), its uplinks are the ports of its NICs. It forwards what is not for
its own GPUs at line rate, as TopoOpt's RDMA forwarding does; GPUs share the server's NICs. Where an
OCS has too few ports for a plane, a second stage of OCSes joins groups.
"""

from ...errors import RFabricError
from .parts import MAX_PORTS, Sketch, grouped

# NVLink of an H800, one way: 200 GB/s (zartbot/shallowsim device/gpu_info.csv)
INSIDE = "1.6Tbit/s"
# A NIC whose light went away has to bring its link up anew: "seconds" is what MixNet (SIGCOMM 2025)
# saw, 1 s the least of them. The simulators of MixNet and Opus leave it out: reinit=0s.
REINIT = "1s"


def direct(
    name: str, servers: int, gpus: int, planes: int, rate: float, inside: float, ocs_ports: int
) -> Sketch:
    """Servers whose NIC ports go straight to OCSes, one plane each. RFabricError for more ports
    than a server has.
    """
    if gpus + planes > MAX_PORTS:
        raise RFabricError(
            f"{name}: a server would need {gpus + planes} ports, the limit is {MAX_PORTS}; use "
            "fewer GPUs or NICs a server"
        )
    groups, cores = grouped(name, "servers", servers, ocs_ports)
    sketch = Sketch()
    racks = sketch.racks(groups, servers // groups, gpus, inside, "server")
    sketch.planes(racks, planes, "ocs", rate, cores)
    return sketch

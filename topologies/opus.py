r"""Photonic rails (Opus, arXiv 2602.12521): an OCS in place of each rail switch, and no packet
switch.

     a1 a2   a3 a4  ..  a15 a16  OCS: port 1 and port 2 of every NIC of a rail
      : :     : :        : :
     rail 1  rail 2 ..  rail 8   rail i: the NICs of GPU i of every server
      : :     : :        : :
     s1         s2   ..   s8     server: the forwarding plane of its NICs, each of `nic_ports` ports
    |..|       |..|      |..|    inside: NVLink and PCIe, `inside` a GPU; no cable, no part
    h1..h8     h9..h16   ..h64   host: one GPU

    defaults: servers=8,gpus=8,nic_ports=2
    64 hosts, 8 servers, 16 OCSes, 192 cables, 64 of them NVLink

    rfabric simulate --topo opus,reinit=0s --traffic grpo-64
    sudo mn --custom topologies/opus.py --topo opus,servers=4,gpus=2 --controller remote \
        --switch ovsk,protocols=OpenFlow13

Two ports a NIC make a ring of the servers in every rail. A server's GPUs share its rails: what is
to leave by another GPU's rail reaches it over NVLink. A circuit is dark for `delay` + `reinit`: the
NIC at its end has to bring its link up anew.
"""

import sys

# mn executes this file without __file__: the name in its code object tells where the checkout is.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.fabric import Fabric  # noqa: E402
from rfabric.fabric.builders import (  # noqa: E402
    CROSSBARS,
    INSIDE,
    NOTHING,
    REINIT,
    SMALLEST,
    direct,
    ocs_of,
    ocs_ports_of,
    servers_for,
    sized,
    whole,
)
from rfabric.units import parse_rate, parse_time  # noqa: E402

MEMS = CROSSBARS["mems"]


@sized(
    lambda hosts, least=SMALLEST, given=NOTHING: servers_for(
        ocs_ports_of(given, MEMS), hosts, least, given
    )
)
def opus(
    servers: int = 8,
    gpus: int = 8,
    nic_ports: int = 2,
    delay: str | float = "",
    reinit: str | float = REINIT,
    rate: str | float = "400Gbit/s",
    inside: str | float = INSIDE,
    ocs_ports: int = 0,
    ocs: str = "",
) -> Fabric:
    """Photonic rails (Opus, arXiv 2602.12521): OCSes in place of the rail switches.

    GPU i of every server is in rail i. Each NIC of `rate` is split into `nic_ports` ports, two of
    which make a ring; port j of rail i goes to OCS i x nic_ports + j. A circuit is dark for
    `delay` + `reinit`, as the NIC at its end brings the link up anew. `ocs`, a row of `ocs.csv`,
    sets delay and ports, 10 ms and 320 of a 3D-MEMS; `delay` and `ocs_ports` win.
    """
    servers, gpus, nic_ports = (
        whole("servers", servers, 2),
        whole("gpus", gpus, 1),
        whole("nic_ports", nic_ports, 1),
    )
    ocs_ports, seconds, optics = ocs_of("opus", ocs, MEMS, delay, ocs_ports)
    bps, within, again = (
        parse_rate(rate, "rate"),
        parse_rate(inside, "inside"),
        parse_time(reinit, "reinit"),
    )
    sketch = direct("opus", servers, gpus, gpus * nic_ports, bps / nic_ports, within, ocs_ports)
    parameters = {
        "servers": servers,
        "gpus": gpus,
        "nic_ports": nic_ports,
        "reinit_s": again,
        "rate_bps": bps,
        "inside_bps": within,
    } | optics
    return Fabric("opus", sketch.nodes, sketch.links, seconds + again, "", parameters)


fabrics = {"opus": opus}
topos = {"opus": mininet_topo(opus)}

r"""TopoOpt (NSDI 2023): servers joined directly through patch panels that are set once for a job;
no packet switch at all.

     a1  a2  a3  ..  a8       patch panel (or OCS) j takes NIC j of every server
      :   :   :       :       : carries light only where the panel patches it through
      : .:. .:.  ..   :
     s1   s2   s3 ..  s8      server: the forwarding plane of its `degree` NICs; relays for others
    |..| |..| |..|   |..|     inside: NVLink and PCIe, `inside` a GPU; no cable, no part
    h1.. h9.. h17.. h57..h64  host: one GPU

    defaults: servers=8,gpus=8
    64 hosts, 8 servers, 8 panels, 128 cables, 64 of them NVLink

    rfabric simulate --topo topoopt,degree=4 --traffic grpo-64 --policy static
    sudo mn --custom topologies/topoopt.py --topo topoopt,servers=4,gpus=2 --controller remote \
        --switch ovsk,protocols=OpenFlow13

Each plane realises any matching of the servers: `degree` of them make the direct-connect topology,
and who is not joined to a server goes through others. `optics=ocs` puts OCSes of 320 ports and 10
ms in the panels' place.
"""

import sys
from collections.abc import Mapping

# mn executes this file without __file__: the name in its code object tells where the checkout is.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.errors import RFabricError  # noqa: E402
from rfabric.fabric import Fabric  # noqa: E402
from rfabric.fabric.builders import (  # noqa: E402
    CROSSBARS,
    INSIDE,
    NOTHING,
    SMALLEST,
    Crossbar,
    direct,
    ocs_of,
    ocs_ports_of,
    servers_for,
    sized,
    whole,
)
from rfabric.units import parse_rate  # noqa: E402

OPTICS = {"patch-panel": CROSSBARS["robotic"], "ocs": CROSSBARS["mems"]}


def _panel(given: Mapping) -> Crossbar:
    """What stands in the middle of a topoopt of these settings."""
    optics = given.get("optics", "patch-panel")
    if optics not in OPTICS:
        raise RFabricError(f"topoopt: optics={optics!r} is not one of {', '.join(OPTICS)}")
    return OPTICS[optics]


@sized(
    lambda hosts, least=SMALLEST, given=NOTHING: servers_for(
        ocs_ports_of(given, _panel(given)), hosts, least, given
    )
)
def topoopt(
    servers: int = 8,
    gpus: int = 8,
    degree: int = 0,
    optics: str = "patch-panel",
    delay: str | float = "",
    rate: str | float = "400Gbit/s",
    inside: str | float = INSIDE,
    ocs_ports: int = 0,
    ocs: str = "",
) -> Fabric:
    """TopoOpt (NSDI 2023): servers joined by a patch panel that is set once for a job.

    Servers forward. `servers` of `gpus` with `degree` NICs (0: as many as GPUs), NIC j in panel j.
    There is no packet switch. `optics` is `patch-panel` (1008 ports, minutes to set) or `ocs` (320
    ports, 10 ms); `ocs`, a row of `ocs.csv`, `delay` and `ocs_ports` say otherwise.
    """
    servers, gpus = whole("servers", servers, 2), whole("gpus", gpus, 1)
    degree = whole("degree", degree, 0) or gpus
    ocs_ports, seconds, light = ocs_of("topoopt", ocs, _panel({"optics": optics}), delay, ocs_ports)
    bps, within = parse_rate(rate, "rate"), parse_rate(inside, "inside")
    sketch = direct("topoopt", servers, gpus, degree, bps, within, ocs_ports)
    parameters = {
        "servers": servers,
        "gpus": gpus,
        "degree": degree,
        "optics": optics,
        "rate_bps": bps,
        "inside_bps": within,
    } | light
    return Fabric("topoopt", sketch.nodes, sketch.links, seconds, "", parameters)


fabrics = {"topoopt": topoopt}
topos = {"topoopt": mininet_topo(topoopt)}

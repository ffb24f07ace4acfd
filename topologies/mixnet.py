r"""MixNet (SIGCOMM 2025): part of every server's NICs on a regional OCS, the others
on a packet-switched fabric.

     c1 .. c16                    spine: one cable to every region's leaf
      |     |
     l1 ........... l2            leaf: the electrical NICs of its region
      | \            |
      |  \    a1..a4 |   a5..a8   regional OCS: optical NIC j of the region, which no light leaves
      |   \   :  :   |    :  :
     s1 .. s4         s5 .. s8    server: `optical` NICs up to OCSes, the others to the leaf
    |..|  |..|       |..|  |..|   inside: NVLink and PCIe, `inside` a GPU; no cable, no part
    h1.. .. h32      h33.. ..h64  host: one GPU

    defaults: servers=8,gpus=8,region=4: 64 hosts, 8 servers, 8 OCSes, 2 leaves, 16 spines,
              160 cables, 64 of them NVLink

    rfabric simulate --topo mixnet,optical=6,reinit=0s --traffic grpo-64
    sudo mn --custom topologies/mixnet.py --topo mixnet,servers=4,region=2 --controller remote \
        --switch ovsk,protocols=OpenFlow13

A circuit is dark for `delay` + `reinit`: the NIC at its end has to bring its link up anew. More
regions than a spine has ports (`radix`, 64 at 400 Gbit/s), or `tiers=3`, as the paper counts, put
spines b1.. of groups of leaves between these and the cores.
"""

import sys
from dataclasses import replace

# mn executes this file without __file__: the name in its code object tells where the checkout is.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.errors import RFabricError  # noqa: E402
from rfabric.fabric import Fabric  # noqa: E402
from rfabric.fabric.builders import (  # noqa: E402
    CROSSBARS,
    INSIDE,
    NOTHING,
    REINIT,
    SMALLEST,
    Sketch,
    Spine,
    Tiers,
    joined,
    narrow,
    nearest,
    ocs_of,
    radix_at,
    regions_for,
    sized,
    uplinks,
    whole,
)
from rfabric.units import parse_rate, parse_time  # noqa: E402

# the default (25) of MixNet's simulator, read as ms
MIXNET = replace(CROSSBARS["mems"], delay=25e-3)
REGION = 4  # servers below one regional OCS: 32 GPUs, the size of MixNet's prototype (SIGCOMM 2025)


@sized(lambda hosts, least=SMALLEST, given=NOTHING: regions_for(REGION, hosts, least, given))
def mixnet(
    servers: int = 8,
    gpus: int = 8,
    region: int = REGION,
    optical: int = 0,
    oversubscription: float = 1,
    delay: str | float = "",
    reinit: str | float = REINIT,
    rate: str | float = "400Gbit/s",
    inside: str | float = INSIDE,
    ocs_ports: int = 0,
    ocs: str = "",
    radix: int = 0,
    tiers: int = 0,
) -> Fabric:
    """MixNet (SIGCOMM 2025): some NICs of a server on a regional OCS, others on packet switches.

    `servers` of `gpus`, `region` servers below one set of OCSes; `optical` of a server's NICs (0:
    half of them) go there, one a plane, the others to the region's leaf, which has
    1/`oversubscription` as many uplinks to spines. Packet switches have `radix` ports (0: what is
    sold at `rate`); `tiers` of them are 2 where that is enough, 3 beyond or where asked for, as
    the paper counts a Fat-Tree. A circuit is dark for `delay` + `reinit`, as the NIC at its end
    brings the link up anew; `ocs`, a row of `ocs.csv`, sets delay and ports, 25 ms and 320;
    `delay` and `ocs_ports` win.
    """
    servers, gpus, region = (
        whole("servers", servers, 2),
        whole("gpus", gpus, 2),
        whole("region", region, 1),
    )
    optical = whole("optical", optical, 0) or gpus // 2
    ocs_ports, seconds, optics = ocs_of("mixnet", ocs, MIXNET, delay, ocs_ports)
    _check_regions(servers, gpus, region, optical, ocs_ports)
    down, regions = region * (gpus - optical), servers // region
    bps, within, again = (
        parse_rate(rate, "rate"),
        parse_rate(inside, "inside"),
        parse_time(reinit, "reinit"),
    )
    radix = radix_at(radix, bps)
    up, ratio = uplinks("mixnet", down, oversubscription, radix, "cables a leaf")
    narrow(
        "mixnet",
        "a leaf",
        down + up * (regions > 1),
        ("use a smaller region or more optical NICs"),
        radix,
    )
    above = _above(regions, region, radix, tiers)
    sketch = Sketch()
    racks = sketch.racks(regions, region, gpus, within, "server")
    sketch.planes(racks, optical, "ocs", bps, 0)
    leaves = [_leaf(sketch, p, pod, gpus - optical, optical, bps) for p, pod in enumerate(racks)]
    if regions > 1:
        sketch.spines(leaves, above, up, bps, Spine("b", optical + 1, False))
    parameters = {
        "servers": servers,
        "gpus": gpus,
        "region": region,
        "optical": optical,
        "oversubscription": ratio,
        "reinit_s": again,
        "rate_bps": bps,
        "inside_bps": within,
        "radix": radix,
        "tiers": 3 if above.cores else 2,
    } | optics
    return Fabric("mixnet", sketch.nodes, sketch.links, seconds + again, "", parameters)


def _above(regions: int, region: int, radix: int, tiers: int) -> Tiers:
    """What joins the leaves, in so many `tiers` with theirs (0: as many as it takes)."""
    if whole("tiers", tiers, 0) not in (0, 2, 3):
        raise RFabricError(f"mixnet: tiers={tiers} is not 2 or 3, or 0 for as many as it takes")
    if tiers == 3 and regions < 2:
        raise RFabricError(
            "mixnet: one region has nothing above its leaf; use tiers=2, or more servers than "
            "one region"
        )
    above = joined("mixnet", "servers", regions, radix, unit=region, least=2 if tiers == 3 else 1)
    if tiers == 2 and above.cores:
        raise RFabricError(
            f"mixnet: two tiers of switches of {radix} ports end at {radix} regions of "
            f"{region} servers, there are {regions}; use tiers=3 or radix={regions}"
        )
    return above


def _check_regions(servers: int, gpus: int, region: int, optical: int, ocs_ports: int) -> None:
    if optical >= gpus:
        raise RFabricError(
            f"mixnet: optical={optical} leaves no NIC for the packet switches; use "
            f"optical={gpus - 1} at most"
        )
    if region > ocs_ports:
        raise RFabricError(
            f"mixnet: a regional OCS has {ocs_ports} ports; the nearest that works is "
            f"region={ocs_ports}"
        )
    if servers % region:
        near = nearest(servers, lambda n: n >= 2 and not n % region)
        raise RFabricError(
            f"mixnet: servers={servers} do not fill regions of {region}; the nearest that "
            f"works is servers={near}"
        )


def _leaf(
    sketch: Sketch, pod: int, servers: list[str], nics: int, optical: int, rate: float
) -> str:
    """The region's packet switch, `nics` cables to each server."""
    leaf = sketch.switch(f"l{pod + 1}", "eps", "aggregation", (pod, optical), pod)
    for server in servers:
        for _ in range(nics):
            sketch.cable(server, leaf, rate)
    return leaf


fabrics = {"mixnet": mixnet}
topos = {"mixnet": mininet_topo(mixnet)}

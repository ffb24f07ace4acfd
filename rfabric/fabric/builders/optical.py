"""Fabrics with optical circuit switches: at racks (rfabric, rotor) or straight at the servers (topoopt, mixnet, opus).

A *server* is the forwarding plane of a server's NICs: its GPUs reach it over NVLink and PCIe (`inside`, no cable and no part),
its uplinks are the ports of its NICs. It forwards what is not for its own GPUs at line rate, as TopoOpt's RDMA forwarding
does; GPUs share the server's NICs. Where an OCS has too few ports for a plane, a second stage of OCSes joins groups.
"""

from collections.abc import Mapping
from dataclasses import replace

from ...errors import RFabricError
from ...units import parse_rate, parse_time
from ..model import Fabric
from .crossbars import CROSSBARS, Crossbar, ocs_of, ocs_ports_of
from .parts import (
    MAX_PORTS,
    Sketch,
    Spine,
    Tiers,
    core_switches,
    grouped,
    joined,
    narrow,
    nearest,
    radix_at,
    shape,
    uplinks,
    whole,
)
from .sizes import NOTHING, SMALLEST, pods_for, regions_for, rotors_for, servers_for, sized

INSIDE = "1.6Tbit/s"  # NVLink of an H800, one way: 200 GB/s (zartbot/shallowsim device/gpu_info.csv)
# A NIC whose light went away has to bring its link up anew: "seconds" is what MixNet (SIGCOMM 2025) saw, 1 s the least of
# them. The simulators of MixNet and Opus leave it out: reinit=0s.
REINIT = "1s"
MEMS = CROSSBARS["mems"]
MIXNET = replace(MEMS, delay=25e-3)  # the default (25) of MixNet's simulator, read as ms
ROTOR = replace(CROSSBARS["rotor"], ports=512)  # RotorNet's design reaches far beyond the 128 ports of its prototype
OPTICS = {"patch-panel": CROSSBARS["robotic"], "ocs": MEMS}


@sized(lambda hosts, least=SMALLEST, given=NOTHING: pods_for(ocs_ports_of(given, MEMS), hosts, least, given))
def rfabric(
    pods: int = 4,
    tors: int = 4,
    gpus: int = 4,
    planes: int = 0,
    electrical: str | float = "100Gbit/s",
    delay: str | float = "",
    rate: str | float = "400Gbit/s",
    ocs_ports: int = 0,
    ocs: str = "",
    radix: int = 0,
) -> Fabric:
    """RFabric (OrchestrRL, arXiv 2601.01209): electrical ToRs below OCS aggregation (per pod) and OCS core, plane by plane.

    `planes` uplinks a ToR (0: as many as GPUs), one OCS per pod and plane, one core OCS per plane; where that would need more
    than `ocs_ports`, several that share the pods' cables. `electrical` is the rate of each ToR's always-on cable to packet
    switch x1 (0: none), or a small tree of them where there are more ToRs than `radix` (0: what is sold at `rate`). `ocs`, a row
    of `ocs.csv`, sets the OCSes' ports and reconfiguration delay, 320 and 10 ms of a 3D-MEMS; `ocs_ports` and `delay` win.
    """
    pods, tors, gpus = shape("rfabric", pods, tors, gpus)
    planes, bps, thin = (
        whole("planes", planes, 0) or gpus,
        parse_rate(rate, "rate"),
        parse_rate(electrical, "electrical"),
    )
    ocs_ports, seconds, optics = ocs_of("rfabric", ocs, MEMS, delay, ocs_ports)
    radix = radix_at(radix, bps, thin)
    cores = core_switches(pods, tors, ocs_ports)
    if cores is None:
        near = nearest(tors, lambda n: core_switches(pods, n, ocs_ports) is not None, MAX_PORTS)
        way_out = f"the nearest that works is tors={near}" if near else f"use at most pods={ocs_ports // 2}"
        raise RFabricError(
            f"rfabric: OCSes of {ocs_ports} ports do not join {pods} pods of tors={tors}; {way_out}, or a larger ocs_ports"
        )
    narrow("rfabric", "a ToR", gpus + planes + bool(thin), "use fewer GPUs a ToR or planes", radix)
    sketch = Sketch()
    racks = sketch.racks(pods, tors, gpus, bps)
    sketch.planes(racks, planes, "ocs", bps, cores)
    if thin:
        sketch.always_on([rack for pod in racks for rack in pod], thin, radix)
    parameters = {
        "pods": pods, "tors": tors, "gpus": gpus, "planes": planes, "electrical_bps": thin, "rate_bps": bps, "radix": radix,
    } | optics  # fmt: skip
    return Fabric("rfabric", sketch.nodes, sketch.links, seconds, "", parameters)


@sized(lambda hosts, least=SMALLEST, given=NOTHING: rotors_for(ocs_ports_of(given, ROTOR), hosts, least, given))
def rotor(
    tors: int = 16,
    gpus: int = 4,
    planes: int = 0,
    electrical: str | float = 0,
    delay: str | float = "",
    rate: str | float = "400Gbit/s",
    ocs_ports: int = 0,
    ocs: str = "",
    radix: int = 0,
) -> Fabric:
    """RotorNet (SIGCOMM 2017), Opera (NSDI 2020): each of a ToR's `planes` uplinks goes to one rotor switch, which turns blindly.

    What is cabled is here: `planes` (0: as many as GPUs) rotor switches of `tors` ports. That they step through fixed matchings
    whatever the demand is a policy. Their `delay` is 20 us, their ports are 512 (the prototype's 128: ocs=rotor). A rotor switch
    has no second stage. ToRs have `radix` ports (0: what is sold at `rate`).
    """
    _, tors, gpus = shape("rotor", 1, tors, gpus)
    planes = whole("planes", planes, 0) or gpus
    ocs_ports, seconds, optics = ocs_of("rotor", ocs, ROTOR, delay, ocs_ports)
    if tors > ocs_ports:
        raise RFabricError(
            f"rotor: {tors} ToRs are more than a rotor switch has ports, {ocs_ports}; the nearest that works is "
            f"tors={ocs_ports}, or a larger ocs_ports"
        )
    bps, thin = parse_rate(rate, "rate"), parse_rate(electrical, "electrical")
    radix = radix_at(radix, bps, thin)
    narrow("rotor", "a ToR", gpus + planes + bool(thin), "use fewer GPUs a ToR or planes", radix)
    sketch = Sketch()
    racks = sketch.racks(1, tors, gpus, bps)
    sketch.planes(racks, planes, "ocs", bps, 0)
    if thin:
        sketch.always_on(racks[0], thin, radix)
    parameters = {
        "tors": tors, "gpus": gpus, "planes": planes, "electrical_bps": thin, "rate_bps": bps, "radix": radix,
    } | optics  # fmt: skip
    return Fabric("rotor", sketch.nodes, sketch.links, seconds, "", parameters)


@sized(
    lambda hosts, least=SMALLEST, given=NOTHING: servers_for(ocs_ports_of(given, _panel(given)), hosts, least, given)
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
    """TopoOpt (NSDI 2023): servers joined directly through a patch panel that is set once for a job; servers forward.

    `servers` of `gpus` with `degree` NICs (0: as many as GPUs), NIC j in panel j. There is no packet switch. `optics` is
    `patch-panel` (1008 ports, minutes to set) or `ocs` (320 ports, 10 ms); `ocs`, a row of `ocs.csv`, `delay` and `ocs_ports`
    say otherwise.
    """
    servers, gpus = whole("servers", servers, 2), whole("gpus", gpus, 1)
    degree = whole("degree", degree, 0) or gpus
    ocs_ports, seconds, light = ocs_of("topoopt", ocs, _panel({"optics": optics}), delay, ocs_ports)
    bps, within = parse_rate(rate, "rate"), parse_rate(inside, "inside")
    sketch = _direct("topoopt", servers, gpus, degree, bps, within, ocs_ports)
    parameters = {
        "servers": servers, "gpus": gpus, "degree": degree, "optics": optics, "rate_bps": bps, "inside_bps": within,
    } | light  # fmt: skip
    return Fabric("topoopt", sketch.nodes, sketch.links, seconds, "", parameters)


def _panel(given: Mapping) -> Crossbar:
    """What stands in the middle of a topoopt of these settings."""
    optics = given.get("optics", "patch-panel")
    if optics not in OPTICS:
        raise RFabricError(f"topoopt: optics={optics!r} is not one of {', '.join(OPTICS)}")
    return OPTICS[optics]


@sized(lambda hosts, least=SMALLEST, given=NOTHING: servers_for(ocs_ports_of(given, MEMS), hosts, least, given))
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
    """Photonic rails (Opus, arXiv 2602.12521): OCSes in place of the rail switches, GPU i of every server in rail i.

    Each NIC of `rate` is split into `nic_ports` ports, two of which make a ring; port j of rail i goes to OCS i x nic_ports + j.
    A circuit is dark for `delay` + `reinit`, as the NIC at its end brings the link up anew. `ocs`, a row of `ocs.csv`, sets
    delay and ports, 10 ms and 320 of a 3D-MEMS; `delay` and `ocs_ports` win.
    """
    servers, gpus, nic_ports = whole("servers", servers, 2), whole("gpus", gpus, 1), whole("nic_ports", nic_ports, 1)
    ocs_ports, seconds, optics = ocs_of("opus", ocs, MEMS, delay, ocs_ports)
    bps, within, again = parse_rate(rate, "rate"), parse_rate(inside, "inside"), parse_time(reinit, "reinit")
    sketch = _direct("opus", servers, gpus, gpus * nic_ports, bps / nic_ports, within, ocs_ports)
    parameters = {
        "servers": servers, "gpus": gpus, "nic_ports": nic_ports, "reinit_s": again, "rate_bps": bps, "inside_bps": within,
    } | optics  # fmt: skip
    return Fabric("opus", sketch.nodes, sketch.links, seconds + again, "", parameters)


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
    """MixNet (SIGCOMM 2025): part of each server's NICs on a regional OCS, the others on packet switches that join all regions.

    `servers` of `gpus`, `region` servers below one set of OCSes; `optical` of a server's NICs (0: half of them) go there,
    one a plane, the others to the region's leaf, which has 1/`oversubscription` as many uplinks to spines. Packet switches
    have `radix` ports (0: what is sold at `rate`); `tiers` of them are 2 where that is enough, 3 beyond or where asked for, as
    the paper counts a Fat-Tree. A circuit is dark for `delay` + `reinit`, as the NIC at its end brings the link up anew;
    `ocs`, a row of `ocs.csv`, sets delay and ports, 25 ms and 320; `delay` and `ocs_ports` win.
    """
    servers, gpus, region = whole("servers", servers, 2), whole("gpus", gpus, 2), whole("region", region, 1)
    optical = whole("optical", optical, 0) or gpus // 2
    ocs_ports, seconds, optics = ocs_of("mixnet", ocs, MIXNET, delay, ocs_ports)
    _check_regions(servers, gpus, region, optical, ocs_ports)
    down, regions = region * (gpus - optical), servers // region
    up, ratio = uplinks("mixnet", down, oversubscription, "cables a leaf")
    bps, within, again = parse_rate(rate, "rate"), parse_rate(inside, "inside"), parse_time(reinit, "reinit")
    radix = radix_at(radix, bps)
    narrow("mixnet", "a leaf", down + up * (regions > 1), "use a smaller region or more optical NICs", radix)
    above = _above(regions, region, radix, tiers)
    sketch = Sketch()
    racks = sketch.racks(regions, region, gpus, within, "server")
    sketch.planes(racks, optical, "ocs", bps, 0)
    leaves = [_leaf(sketch, p, pod, gpus - optical, optical, bps) for p, pod in enumerate(racks)]
    if regions > 1:
        sketch.spines(leaves, above, up, bps, Spine("b", optical + 1, False))
    parameters = {
        "servers": servers, "gpus": gpus, "region": region, "optical": optical, "oversubscription": ratio,
        "reinit_s": again, "rate_bps": bps, "inside_bps": within, "radix": radix, "tiers": 3 if above.cores else 2,
    } | optics  # fmt: skip
    return Fabric("mixnet", sketch.nodes, sketch.links, seconds + again, "", parameters)


def _above(regions: int, region: int, radix: int, tiers: int) -> Tiers:
    """What joins the leaves, in so many `tiers` of packet switches, theirs among them (0: as many as it takes)."""
    if whole("tiers", tiers, 0) not in (0, 2, 3):
        raise RFabricError(f"mixnet: tiers={tiers} is not 2 or 3, or 0 for as many as it takes")
    if tiers == 3 and regions < 2:
        raise RFabricError(
            "mixnet: one region has nothing above its leaf; use tiers=2, or more servers than one region"
        )
    found = joined("mixnet", "servers", regions, radix, unit=region, least=2 if tiers == 3 else 1)
    if tiers == 2 and found.cores:
        raise RFabricError(
            f"mixnet: two tiers of switches of {radix} ports end at {radix} regions of {region} servers, there are {regions}; "
            f"use tiers=3 or radix={regions}"
        )
    return found


def _check_regions(servers: int, gpus: int, region: int, optical: int, ocs_ports: int) -> None:
    if optical >= gpus:
        raise RFabricError(
            f"mixnet: optical={optical} leaves no NIC for the packet switches; use optical={gpus - 1} at most"
        )
    if region > ocs_ports:
        raise RFabricError(
            f"mixnet: a regional OCS has {ocs_ports} ports; the nearest that works is region={ocs_ports}"
        )
    if servers % region:
        near = nearest(servers, lambda n: n >= 2 and not n % region)
        raise RFabricError(
            f"mixnet: servers={servers} do not fill regions of {region}; the nearest that works is servers={near}"
        )


def _leaf(sketch: Sketch, pod: int, servers: list[str], nics: int, optical: int, rate: float) -> str:
    """The region's packet switch, `nics` cables to each server."""
    leaf = sketch.switch(f"l{pod + 1}", "eps", "aggregation", (pod, optical), pod)
    for server in servers:
        for _ in range(nics):
            sketch.cable(server, leaf, rate)
    return leaf


def _direct(name: str, servers: int, gpus: int, planes: int, rate: float, inside: float, ocs_ports: int) -> Sketch:
    """Servers whose NIC ports go straight to OCSes, one plane each."""
    if gpus + planes > MAX_PORTS:
        raise RFabricError(
            f"{name}: a server would need {gpus + planes} ports, the limit is {MAX_PORTS}; use fewer GPUs or NICs a server"
        )
    groups, cores = grouped(name, "servers", servers, ocs_ports)
    sketch = Sketch()
    racks = sketch.racks(groups, servers // groups, gpus, inside, "server")
    sketch.planes(racks, planes, "ocs", rate, cores)
    return sketch

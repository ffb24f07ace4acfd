"""Fabrics with optical circuit switches: at racks (rfabric, rotor) or straight at the servers (topoopt, mixnet, opus).

A *server* is the forwarding plane of a server's NICs: its GPUs reach it over NVLink and PCIe (`inside`, no cable and no part),
its uplinks are the ports of its NICs. It forwards what is not for its own GPUs at line rate, as TopoOpt's RDMA forwarding
does; GPUs share the server's NICs. Where an OCS has too few ports for a plane, a second stage of OCSes joins groups.
"""

from ...errors import RFabricError
from ...units import parse_rate, parse_time
from ..model import Fabric
from .parts import (
    MAX_PORTS,
    OCS_PORTS,
    PANEL_PORTS,
    SMALLEST,
    Sketch,
    core_switches,
    grouped,
    narrow,
    nearest,
    servers_for,
    shape,
    shape_for,
    sized,
    uplinks,
    whole,
)  # fmt: skip

INSIDE = "1.6Tbit/s"  # NVLink of an H800, one way: 200 GB/s (zartbot/shallowsim device/gpu_info.csv)
# A NIC whose light went away has to bring its link up anew: "seconds" is what MixNet (SIGCOMM 2025) saw, 1 s the least of
# them. The simulators of MixNet and Opus leave it out: reinit=0s.
REINIT = "1s"
MIXNET_DELAY = "25ms"  # the default (25) of MixNet's simulator, read as ms
PANEL_DELAY = "2min"  # "minutes" (TopoOpt, NSDI 2023, of patch panels; Telescent's robot moves one fibre at a time)
MEMS_DELAY = "10ms"  # 3D-MEMS (OrchestrRL, arXiv 2601.01209; TopoOpt)
ROTOR_DELAY = "20us"  # RotorNet (SIGCOMM 2017)
OPTICS = {"patch-panel": (PANEL_PORTS, PANEL_DELAY), "ocs": (OCS_PORTS, MEMS_DELAY)}


def _pods_for(hosts: int, least: int = SMALLEST) -> dict[str, int]:
    """`shape_for`, with as many more ToRs a pod as it takes for core OCSes to share them evenly."""
    found = shape_for(hosts, least)
    while core_switches(found["pods"], found["tors"], OCS_PORTS) is None:
        found["tors"] += 1
    return found


@sized(_pods_for)
def rfabric(
    pods: int = 4,
    tors: int = 4,
    gpus: int = 4,
    planes: int = 0,
    electrical: str | float = "100Gbit/s",
    delay: str | float = MEMS_DELAY,
    rate: str | float = "400Gbit/s",
    ocs_ports: int = OCS_PORTS,
) -> Fabric:
    """RFabric (OrchestrRL, arXiv 2601.01209): electrical ToRs below OCS aggregation (per pod) and OCS core, plane by plane.

    `planes` uplinks a ToR (0: as many as GPUs), one OCS per pod and plane, one core OCS per plane; where that would need more
    than `ocs_ports`, several that share the pods' cables. `electrical` is the rate of each ToR's always-on cable to one packet
    switch x1 (0: none). `delay` is the OCS reconfiguration delay; 10 ms is a 3D-MEMS.
    """
    pods, tors, gpus = shape("rfabric", pods, tors, gpus)
    planes, ocs_ports = whole("planes", planes, 0) or gpus, whole("ocs_ports", ocs_ports, 2)
    bps, thin, seconds = parse_rate(rate, "rate"), parse_rate(electrical, "electrical"), parse_time(delay, "delay")
    cores = core_switches(pods, tors, ocs_ports)
    if cores is None:
        near = nearest(tors, lambda n: core_switches(pods, n, ocs_ports) is not None, MAX_PORTS)
        way_out = f"the nearest that works is tors={near}" if near else f"use at most pods={ocs_ports // 2}"
        raise RFabricError(
            f"rfabric: OCSes of {ocs_ports} ports do not join {pods} pods of tors={tors}; {way_out}, or a larger ocs_ports"
        )
    narrow("rfabric", "a ToR", gpus + planes + bool(thin), "use fewer GPUs a ToR or planes")
    sketch = Sketch()
    racks = sketch.racks(pods, tors, gpus, bps)
    sketch.planes(racks, planes, "ocs", bps, cores, ocs_ports)
    if thin:
        _always_on(sketch, [rack for pod in racks for rack in pod], thin)
    parameters = {
        "pods": pods, "tors": tors, "gpus": gpus, "planes": planes,
        "electrical_bps": thin, "delay_s": seconds, "rate_bps": bps, "ocs_ports": ocs_ports,
    }  # fmt: skip
    return Fabric("rfabric", sketch.nodes, sketch.links, seconds, "", parameters)


def _rotor_for(hosts: int, least: int = SMALLEST) -> dict[str, int]:
    found = shape_for(hosts, least)
    return {"tors": min(found["pods"] * found["tors"], MAX_PORTS), "gpus": found["gpus"]}


@sized(_rotor_for)
def rotor(
    tors: int = 16,
    gpus: int = 4,
    planes: int = 0,
    electrical: str | float = 0,
    delay: str | float = ROTOR_DELAY,
    rate: str | float = "400Gbit/s",
    ocs_ports: int = MAX_PORTS,
) -> Fabric:
    """RotorNet (SIGCOMM 2017), Opera (NSDI 2020): each of a ToR's `planes` uplinks goes to one rotor switch, which turns blindly.

    What is cabled is here: `planes` (0: as many as GPUs) rotor switches of `tors` ports. That they step through fixed matchings
    whatever the demand is a policy. Their `delay` is 20 us. RotorNet's design reaches far beyond 512 ports; a rotor
    switch has no second stage.
    """
    _, tors, gpus = shape("rotor", 1, tors, gpus)
    planes, ocs_ports = whole("planes", planes, 0) or gpus, whole("ocs_ports", ocs_ports, 2)
    if tors > ocs_ports:
        raise RFabricError(
            f"rotor: {tors} ToRs are more than a rotor switch has ports, {ocs_ports}; the nearest that works is "
            f"tors={ocs_ports}, or a larger ocs_ports"
        )
    bps, thin, seconds = parse_rate(rate, "rate"), parse_rate(electrical, "electrical"), parse_time(delay, "delay")
    narrow("rotor", "a ToR", gpus + planes + bool(thin), "use fewer GPUs a ToR or planes")
    sketch = Sketch()
    racks = sketch.racks(1, tors, gpus, bps)
    sketch.planes(racks, planes, "ocs", bps, 0, ocs_ports)
    if thin:
        _always_on(sketch, racks[0], thin)
    parameters = {
        "tors": tors, "gpus": gpus, "planes": planes, "electrical_bps": thin, "delay_s": seconds, "rate_bps": bps,
        "ocs_ports": ocs_ports,
    }  # fmt: skip
    return Fabric("rotor", sketch.nodes, sketch.links, seconds, "", parameters)


@sized(lambda hosts, least=SMALLEST: servers_for(hosts, least, PANEL_PORTS))
def topoopt(
    servers: int = 8,
    gpus: int = 8,
    degree: int = 0,
    optics: str = "patch-panel",
    delay: str | float = "",
    rate: str | float = "400Gbit/s",
    inside: str | float = INSIDE,
    ocs_ports: int = 0,
) -> Fabric:
    """TopoOpt (NSDI 2023): servers joined directly through a patch panel that is set once for a job; servers forward.

    `servers` of `gpus` with `degree` NICs (0: as many as GPUs), NIC j in panel j. There is no packet switch. `optics` is
    `patch-panel` (1008 ports, minutes to set) or `ocs` (320 ports, 10 ms); `delay` and `ocs_ports` say otherwise.
    """
    if optics not in OPTICS:
        raise RFabricError(f"topoopt: optics={optics!r} is not one of {', '.join(OPTICS)}")
    servers, gpus = whole("servers", servers, 2), whole("gpus", gpus, 1)
    degree, ocs_ports = whole("degree", degree, 0) or gpus, whole("ocs_ports", ocs_ports, 0) or OPTICS[optics][0]
    seconds = parse_time(OPTICS[optics][1] if delay == "" else delay, "delay")
    bps, within = parse_rate(rate, "rate"), parse_rate(inside, "inside")
    sketch = _direct("topoopt", servers, gpus, degree, bps, within, ocs_ports)
    parameters = {
        "servers": servers, "gpus": gpus, "degree": degree, "optics": optics, "delay_s": seconds, "rate_bps": bps,
        "inside_bps": within, "ocs_ports": ocs_ports,
    }  # fmt: skip
    return Fabric("topoopt", sketch.nodes, sketch.links, seconds, "", parameters)


@sized(servers_for)
def opus(
    servers: int = 8,
    gpus: int = 8,
    nic_ports: int = 2,
    delay: str | float = MEMS_DELAY,
    reinit: str | float = REINIT,
    rate: str | float = "400Gbit/s",
    inside: str | float = INSIDE,
    ocs_ports: int = OCS_PORTS,
) -> Fabric:
    """Photonic rails (Opus, arXiv 2602.12521): OCSes in place of the rail switches, GPU i of every server in rail i.

    Each NIC of `rate` is split into `nic_ports` ports, two of which make a ring; port j of rail i goes to OCS i x nic_ports + j.
    A circuit is dark for `delay` + `reinit`, as the NIC at its end brings the link up anew.
    """
    servers, gpus, nic_ports = whole("servers", servers, 2), whole("gpus", gpus, 1), whole("nic_ports", nic_ports, 1)
    seconds, again = parse_time(delay, "delay"), parse_time(reinit, "reinit")
    bps, within = parse_rate(rate, "rate"), parse_rate(inside, "inside")
    ocs_ports = whole("ocs_ports", ocs_ports, 2)
    sketch = _direct("opus", servers, gpus, gpus * nic_ports, bps / nic_ports, within, ocs_ports)
    parameters = {
        "servers": servers, "gpus": gpus, "nic_ports": nic_ports, "delay_s": seconds, "reinit_s": again,
        "rate_bps": bps, "inside_bps": within, "ocs_ports": ocs_ports,
    }  # fmt: skip
    return Fabric("opus", sketch.nodes, sketch.links, seconds + again, "", parameters)


REGION = 4  # servers below one regional OCS: 32 GPUs, the size of MixNet's prototype (SIGCOMM 2025)


def _regions_for(hosts: int, least: int = SMALLEST) -> dict[str, int]:
    servers, region = max(-(-max(hosts, least) // 8), 2), REGION
    while servers > region * MAX_PORTS:
        region *= 2
    region = min(region, servers)
    found = {"servers": -(-servers // region) * region, "gpus": 8}
    return found | ({"region": region} if region != REGION else {})


@sized(_regions_for)
def mixnet(
    servers: int = 8,
    gpus: int = 8,
    region: int = REGION,
    optical: int = 0,
    oversubscription: float = 1,
    delay: str | float = MIXNET_DELAY,
    reinit: str | float = REINIT,
    rate: str | float = "400Gbit/s",
    inside: str | float = INSIDE,
    ocs_ports: int = OCS_PORTS,
) -> Fabric:
    """MixNet (SIGCOMM 2025): part of each server's NICs on a regional OCS, the others on packet switches that join all regions.

    `servers` of `gpus`, `region` servers below one set of OCSes; `optical` of a server's NICs (0: half of them) go there,
    one a plane, the others to the region's leaf, which has 1/`oversubscription` as many uplinks to spines. A circuit is dark for
    `delay` + `reinit`, as the NIC at its end brings the link up anew.
    """
    servers, gpus, region = whole("servers", servers, 2), whole("gpus", gpus, 2), whole("region", region, 1)
    optical, ocs_ports = whole("optical", optical, 0) or gpus // 2, whole("ocs_ports", ocs_ports, 2)
    _check_regions(servers, gpus, region, optical, ocs_ports)
    down, regions = region * (gpus - optical), servers // region
    up, ratio = uplinks("mixnet", down, oversubscription, "cables a leaf")
    narrow("mixnet", "a leaf", down + up * (regions > 1), "use a smaller region or more optical NICs")
    seconds, again = parse_time(delay, "delay"), parse_time(reinit, "reinit")
    bps, within = parse_rate(rate, "rate"), parse_rate(inside, "inside")
    sketch = Sketch()
    racks = sketch.racks(regions, region, gpus, within, "server")
    sketch.planes(racks, optical, "ocs", bps, 0, ocs_ports)
    leaves = [_leaf(sketch, p, pod, gpus - optical, optical, bps) for p, pod in enumerate(racks)]
    if regions > 1:
        sketch.spines(leaves, up, bps)
    parameters = {
        "servers": servers, "gpus": gpus, "region": region, "optical": optical, "oversubscription": ratio,
        "delay_s": seconds, "reinit_s": again, "rate_bps": bps, "inside_bps": within, "ocs_ports": ocs_ports,
    }  # fmt: skip
    return Fabric("mixnet", sketch.nodes, sketch.links, seconds + again, "", parameters)


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
    narrow(name, "a server", gpus + planes, "use fewer GPUs or NICs a server")
    groups, cores = grouped(name, "servers", servers, ocs_ports)
    sketch = Sketch()
    racks = sketch.racks(groups, servers // groups, gpus, inside, "server")
    sketch.planes(racks, planes, "ocs", rate, cores, ocs_ports)
    return sketch


def _always_on(sketch: Sketch, racks: list[str], rate: float) -> None:
    """A cable of every rack to one packet switch."""
    sketch.switch("x1", "eps", "electrical", (0, 0))
    for rack in racks:
        sketch.cable(rack, "x1", rate)

"""RFabric (OrchestrRL, arXiv 2601.01209): electrical ToRs below optical aggregation and core,
and a thin electrical path.

    c1  c2  c3  c4           core OCS: one a plane, `tors` cables to each pod
     :   :   :   :
    a1  a2  a3  a4  | pod 2  aggregation OCS: one per pod and plane
     : .:. .:. .:   | ...    : is a cable that carries light only where a circuit joins it
    t1  t2  t3  t4           edge (ToR): electrical; `gpus` hosts, and above an uplink to each plane
    |||| ||||  \\__ x1 __     x1: electrical; one cable of rate `electrical` per ToR, always on
    h1 .. h4  h5 .. h8       host: one GPU and its NIC

    defaults: pods=4,tors=4,gpus=4: 64 hosts, 16 ToRs, 20 OCSes and x1: 37 switches, 208 cables

    rfabric simulate --topo rfabric,pods=4,delay=10ms --traffic grpo-64
    sudo mn --custom topologies/rfabric.py --topo rfabric,pods=2 --controller remote \\
        --switch ovsk,protocols=OpenFlow13

In a plane the aggregation OCSes and the core OCS together can join any ToR to any other, in one pod
or two: every matching of the ToRs is realisable. With four planes the ToRs form any graph of degree
four that is the union of four matchings. No OCS has more than `ocs_ports`: a plane of more racks
has several core OCSes, which share the up-cables of every pod. `ocs=piezo` takes ports and delay
from rfabric/fabric/ocs.csv. Where there are more ToRs than x1 has ports (`radix`), x1.. are a
small tree.
"""

import sys

if __name__ in ("rfabric", "__main__"):  # Python looks for the package in this folder first
    print(
        "rfabric: error: a file rfabric.py in this folder stands before the package of that name; "
        "call the file otherwise, or go to another folder",
        file=sys.stderr,
    )
    sys.exit(2)

# mn executes this file without __file__: the name in its code object tells where the checkout is.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.errors import RFabricError  # noqa: E402
from rfabric.fabric import Fabric  # noqa: E402
from rfabric.fabric.builders import (  # noqa: E402
    CROSSBARS,
    MAX_PORTS,
    NOTHING,
    SMALLEST,
    Sketch,
    core_switches,
    narrow,
    nearest,
    ocs_of,
    ocs_ports_of,
    pods_for,
    radix_at,
    shape,
    sized,
    whole,
)
from rfabric.units import parse_rate  # noqa: E402

MEMS = CROSSBARS["mems"]


@sized(
    lambda hosts, least=SMALLEST, given=NOTHING: pods_for(
        ocs_ports_of(given, MEMS), hosts, least, given
    )
)
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
    """RFabric (OrchestrRL, arXiv 2601.01209): electrical ToRs below OCS aggregation and OCS core.

    Plane by plane: `planes` uplinks a ToR (0: as many as GPUs), one OCS per pod and plane, one
    core OCS per plane; where that would need more than `ocs_ports`, several that share the pods'
    cables. `electrical` is the rate of each ToR's always-on cable to packet switch x1 (0: none),
    or a small tree of them where there are more ToRs than `radix` (0: what is sold at `rate`).
    `ocs`, a row of `ocs.csv`, sets the OCSes' ports and reconfiguration delay, 320 and 10 ms of a
    3D-MEMS; `ocs_ports` and `delay` win.
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
        way_out = (
            f"the nearest that works is tors={near}"
            if near
            else f"use at most pods={ocs_ports // 2}"
        )
        raise RFabricError(
            f"rfabric: OCSes of {ocs_ports} ports do not join {pods} pods of tors={tors}; "
            f"{way_out}, or a larger ocs_ports"
        )
    narrow("rfabric", "a ToR", gpus + planes + bool(thin), "use fewer GPUs a ToR or planes", radix)
    sketch = Sketch()
    racks = sketch.racks(pods, tors, gpus, bps)
    sketch.planes(racks, planes, "ocs", bps, cores)
    if thin:
        sketch.always_on([rack for pod in racks for rack in pod], thin, radix)
    parameters = {
        "pods": pods,
        "tors": tors,
        "gpus": gpus,
        "planes": planes,
        "electrical_bps": thin,
        "rate_bps": bps,
        "radix": radix,
    } | optics
    return Fabric("rfabric", sketch.nodes, sketch.links, seconds, "", parameters)


fabrics = {"rfabric": rfabric}
topos = {"rfabric": mininet_topo(rfabric)}

r"""RotorNet (SIGCOMM 2017), Opera (NSDI 2020): ToRs below rotor switches that step through fixed
matchings, whatever the demand.

     a1   a2   a3   a4       rotor switch j takes uplink j of every ToR               defaults: tors=16,gpus=4
      :    :    :    :       : is a cable that carries light where the rotor stands   64 hosts, 16 ToRs, 4 rotors,
      : .:.  .:.  .: :                                                                128 cables
     t1   t2   t3 .. t16     ToR: `gpus` hosts below, `planes` uplinks above; with `electrical`, a
                             thin cable to x1
    |||| |||| ||||  ||||
    h1..h4 h5..h8 ..  ..h64  host: one GPU and its NIC

    rfabric simulate --topo rotor --traffic grpo-64 --policy static
    sudo mn --custom topologies/rotor.py --topo rotor,tors=4 --controller remote \
        --switch ovsk,protocols=OpenFlow13

The 15 rounds of a tournament of 16 ToRs join every pair once; the rotors show four of them at a
time. What has no circuit now goes over a third ToR, or waits.
"""

import sys
from dataclasses import replace

# mn executes this file without __file__; its name in the code object is all there is to find the
# checkout by.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.errors import RFabricError  # noqa: E402
from rfabric.fabric import Fabric  # noqa: E402
from rfabric.fabric.builders import (  # noqa: E402
    CROSSBARS,
    NOTHING,
    SMALLEST,
    Sketch,
    narrow,
    ocs_of,
    ocs_ports_of,
    radix_at,
    rotors_for,
    shape,
    sized,
    whole,
)
from rfabric.units import parse_rate  # noqa: E402

# RotorNet's design reaches far beyond the 128 ports of its prototype
ROTOR = replace(CROSSBARS["rotor"], ports=512)


@sized(
    lambda hosts, least=SMALLEST, given=NOTHING: rotors_for(
        ocs_ports_of(given, ROTOR), hosts, least, given
    )
)
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
    """RotorNet (SIGCOMM 2017), Opera (NSDI 2020): each uplink of a ToR goes to a rotor switch.

    They turn blindly. What is cabled is here: `planes` (0: as many as GPUs) rotor switches of
    `tors` ports. That they step through fixed matchings whatever the demand is a policy. Their
    `delay` is 20 us, their ports are 512 (the prototype's 128: ocs=rotor). A rotor switch has no
    second stage. ToRs have `radix` ports (0: what is sold at `rate`).
    """
    _, tors, gpus = shape("rotor", 1, tors, gpus)
    planes = whole("planes", planes, 0) or gpus
    ocs_ports, seconds, optics = ocs_of("rotor", ocs, ROTOR, delay, ocs_ports)
    if tors > ocs_ports:
        raise RFabricError(
            f"rotor: {tors} ToRs are more than a rotor switch has ports, {ocs_ports}; the "
            f"nearest that works is tors={ocs_ports}, or a larger ocs_ports"
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
        "tors": tors,
        "gpus": gpus,
        "planes": planes,
        "electrical_bps": thin,
        "rate_bps": bps,
        "radix": radix,
    } | optics
    return Fabric("rotor", sketch.nodes, sketch.links, seconds, "", parameters)


fabrics = {"rotor": rotor}
topos = {"rotor": mininet_topo(rotor)}

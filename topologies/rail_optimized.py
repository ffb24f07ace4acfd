r"""Rail-optimized, NVIDIA style: rail switch i of a pod takes GPU i of every server, spines
join the rails.

      c1     c2     c3     c4      spine: one cable to every rail switch
       |\____|\____|_____/|
      t1     t2     ..     t8      rail switch: GPU 1 of all servers, GPU 2, ...
      | \    | \           | \
     h1  h9 h2  h10 ..    h8  h16  host: one GPU and its NIC; server 1 is h1..h8, server 2 h9..h16
     `----- server 1 -----'

    defaults: pods=2,servers=4,gpus=8: 64 hosts, 20 switches, 128 cables;
              16 rail switches + 4 spines

    rfabric simulate --topo rail-optimized,oversubscription=2 --traffic grpo-64
    sudo mn --custom topologies/rail_optimized.py --topo rail-optimized --controller remote \
        --switch ovsk,protocols=OpenFlow13

Collectives that stay on their rail cross one switch in a pod. NVLink inside a server is not in the
fabric: a transfer between rails crosses a spine, unless the trace has it change rails over NVLink
before it leaves. More rail switches than a spine has ports (`radix`, 64 at 400 Gbit/s: 2,048 GPUs)
are grouped by rail below spines a1.. of their own, and cores c1.. join these.
"""

import sys

# mn executes this file without __file__: the name in its code object tells where the checkout is.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.fabric import Fabric  # noqa: E402
from rfabric.fabric.builders import (  # noqa: E402
    Sketch,
    Spine,
    joined,
    narrow,
    radix_at,
    rails_for,
    sized,
    uplinks,
    whole,
)
from rfabric.units import parse_rate  # noqa: E402


@sized(rails_for)
def rail_optimized(
    pods: int = 2,
    servers: int = 4,
    gpus: int = 8,
    oversubscription: float = 1,
    rate: str | float = "400Gbit/s",
    radix: int = 0,
) -> Fabric:
    """NVIDIA's rails: rail switch i of a pod takes GPU i of every server; spines join all of them.

    `oversubscription` n:1 is taken at the rail switches. Where there are more of these than a
    spine has ports (`radix`; 0: what is sold at `rate`), those of one rail, or of a few, have
    spines of their own, and core switches join these. NVLink inside a server is not in the fabric:
    what crosses rails goes over a spine, unless the trace itself sends it over NVLink first.
    """
    pods, servers, gpus = (
        whole("pods", pods, 1),
        whole("servers", servers, 1),
        whole("gpus", gpus, 1),
    )
    bps, sketch = parse_rate(rate, "rate"), Sketch()
    radix = radix_at(radix, bps)
    up, ratio = uplinks("rail-optimized", servers, oversubscription, radix, "servers a pod")
    narrow("rail-optimized", "a rail switch", servers + up, "use fewer servers a pod", radix)
    tiers = joined("rail-optimized", "pods", pods, radix, leaves=gpus)
    hosts = sketch.hosts([servers * gpus] * pods)
    rails = [
        sketch.switch(f"t{p * gpus + g + 1}", "eps", "edge", (p, g), p)
        for p in range(pods)
        for g in range(gpus)
    ]
    for i, host in enumerate(hosts):
        sketch.cable(host, rails[i // (servers * gpus) * gpus + i % gpus], bps)
    by_rail = [rail for g in range(gpus) for rail in rails[g::gpus]]
    sketch.spines(by_rail if tiers.cores else rails, tiers, up, bps, Spine(in_pod=False))
    parameters = {
        "pods": pods,
        "servers": servers,
        "gpus": gpus,
        "oversubscription": ratio,
        "rate_bps": bps,
        "radix": radix,
    }
    return Fabric("rail-optimized", sketch.nodes, sketch.links, 0.0, "", parameters)


fabrics = {"rail-optimized": rail_optimized}
topos = {"rail-optimized": mininet_topo(rail_optimized)}

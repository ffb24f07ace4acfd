r"""The ideal switch: one non-blocking packet switch with a port for every GPU; nothing but the NICs
holds traffic up.

            t1                 one switch, `gpus` ports                defaults: gpus=64
    / / / | | | \ \ \                                                  64 hosts, 1 switch, 64 cables
    h1 h2 h3 ... h64           host: one GPU and its NIC

    rfabric compare --topo ideal --topo fat-tree --topo rfabric --traffic grpo-64
    sudo mn --custom topologies/ideal.py --topo ideal,gpus=8 --controller remote \
        --switch ovsk,protocols=OpenFlow13

The bound of every fabric of the same NICs. Up to a few hundred ports one can buy it; above, it has
no price.
"""

import sys

# mn executes this file without __file__: the name in its code object tells where the checkout is.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.fabric import Fabric  # noqa: E402
from rfabric.fabric.builders import NOTHING, SMALLEST, Sketch, radix_at, sized, whole  # noqa: E402
from rfabric.units import parse_rate  # noqa: E402


@sized(lambda hosts, least=SMALLEST, given=NOTHING: {"gpus": max(hosts, least)})
def ideal(gpus: int = 64, rate: str | float = "400Gbit/s", radix: int = 0) -> Fabric:
    """One packet switch with a port for every GPU: only NICs hold traffic up. The bound of all.

    A switch of that many ports is sold up to `radix` (0: what is sold at `rate`); above, this is
    an idea and has no price.
    """
    gpus, bps, sketch = whole("gpus", gpus, 2), parse_rate(rate, "rate"), Sketch()
    sketch.racks(1, 1, gpus, bps)
    parameters = {"gpus": gpus, "rate_bps": bps, "radix": radix_at(radix, bps)}
    return Fabric("ideal", sketch.nodes, sketch.links, 0.0, "", parameters)


fabrics = {"ideal": ideal}
topos = {"ideal": mininet_topo(ideal)}

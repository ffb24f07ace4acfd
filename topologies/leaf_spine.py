r"""Leaf-spine: two tiers of electrical packet switches, every leaf cabled once to every spine.

      c1    c2    c3    c4   spine: one cable to every leaf
       |\__ |\__ | ___/|
       |   \|   \|/    |
      t1    t2    t3 .. t16  leaf (ToR): `gpus` hosts below, gpus/oversubscription uplinks above
     ||||  ||||  ||||  ||||
     h1..h4 h5..h8 ..        host: one GPU and its NIC

    defaults: tors=16,gpus=4: 64 hosts, 128 cables, 20 switches, which are 16 leaves + 4 spines

    rfabric simulate --topo leaf-spine,oversubscription=2 --traffic grpo-64
    sudo mn --custom topologies/leaf_spine.py --topo leaf-spine,tors=4 --controller remote \
        --switch ovsk,protocols=OpenFlow13

A spine has as many ports as there are leaves, `radix` at most: with 64 two tiers end at 2,048 GPUs.
More leaves get a third tier: groups of leaves below spines a1.. of their own, cores c1.. above, as
many cables up as down.
"""

import sys

# mn executes this file without __file__: the name in its code object tells where the checkout is.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.fabric import Fabric  # noqa: E402
from rfabric.fabric.builders import (  # noqa: E402
    Sketch,
    joined,
    leaves_for,
    narrow,
    radix_at,
    shape,
    sized,
    uplinks,
)
from rfabric.units import parse_rate  # noqa: E402


@sized(leaves_for)
def leaf_spine(
    tors: int = 16,
    gpus: int = 4,
    oversubscription: float = 1,
    rate: str | float = "400Gbit/s",
    radix: int = 0,
) -> Fabric:
    """Two tiers of packet switches: `tors` leaves of `gpus` hosts, spines above all of them.

    There are gpus/oversubscription spines, each with one cable to every leaf and with `radix`
    ports (0: what is sold at `rate`). More leaves get a third tier: groups of leaves below spines
    of their own, core switches above, as many up-cables as down at each.
    """
    _, tors, gpus = shape("leaf-spine", 1, tors, gpus)
    bps, sketch = parse_rate(rate, "rate"), Sketch()
    radix = radix_at(radix, bps)
    up, ratio = uplinks("leaf-spine", gpus, oversubscription, radix, "GPUs a leaf")
    narrow("leaf-spine", "a leaf", gpus + up, "use fewer GPUs a leaf", radix)
    tiers = joined("leaf-spine", "tors", tors, radix)
    pods = sketch.racks(tiers.groups, tors // tiers.groups, gpus, bps)
    sketch.spines([leaf for pod in pods for leaf in pod], tiers, up, bps)
    parameters = {
        "tors": tors,
        "gpus": gpus,
        "oversubscription": ratio,
        "rate_bps": bps,
        "radix": radix,
    }
    return Fabric("leaf-spine", sketch.nodes, sketch.links, 0.0, "", parameters)


fabrics = {"leaf-spine": leaf_spine}
topos = {"leaf-spine": mininet_topo(leaf_spine)}

r"""Leaf-spine: two tiers of electrical packet switches, every leaf cabled once to every spine.

      c1    c2    c3    c4          spine: one cable to every leaf                      defaults: tors=16,gpus=4
       |\__ |\__ | ___/|                                                                64 hosts, 20 switches, 128 cables
       |   \|   \|/    |                                                                16 leaves + 4 spines
      t1    t2    t3 .. t16         leaf (ToR): `gpus` hosts below, gpus/oversubscription uplinks above
     ||||  ||||  ||||  ||||
     h1..h4 h5..h8 ..               host: one GPU and its NIC

    rfabric simulate --topo leaf-spine,oversubscription=2 --traffic grpo-64
    sudo mn --custom topologies/leaf_spine.py --topo leaf-spine,tors=4 --controller remote --switch ovsk,protocols=OpenFlow13

A spine has as many ports as there are leaves, `radix` at most: with 64 two tiers end at 2,048 GPUs. More leaves get a third tier:
groups of leaves below spines a1.. of their own, cores c1.. above, as many cables up as down.
"""

import sys

# mn executes this file without __file__; its name in the code object is all there is to find the checkout by.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.fabric import leaf_spine  # noqa: E402

fabrics = {"leaf-spine": leaf_spine}
topos = {"leaf-spine": mininet_topo(leaf_spine)}

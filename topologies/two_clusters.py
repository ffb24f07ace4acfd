r"""Two clusters of their own size, GPU and link speed, joined by one slow link: H800 train, H20 generate.

     c1 ------------ join ------------ c2      border switch of each cluster            defaults: training=32,generation=32,
    / | \                            / | \                                              gpus=8: 64 hosts, 26 switches,
   a1 .. a8                        a9 .. a16   spine: one cable to every leaf, one up   145 cables
    |\ /|                           |\ /|
   t1 .. t4                        t5 .. t8    leaf (ToR): `gpus` hosts of its cluster
   ||||  ||||                      ||||  ||||
   h1 .. h32                       h33 .. h64  host: the training GPUs first, then those that generate

    rfabric simulate --topo two-clusters,join=20Gbit/s --traffic grpo-64
    sudo mn --custom topologies/two_clusters.py --topo two-clusters --controller remote --switch ovsk,protocols=OpenFlow13

`rate` and `oversubscription` are the training cluster's, `generation_rate` and `generation_oversubscription` the other's.
A cluster of more leaves than its spines have ports (`radix`, one of them the border's) has cores n1.. between spines and border.
"""

import sys

# mn executes this file without __file__; its name in the code object is all there is to find the checkout by.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.fabric import two_clusters  # noqa: E402

fabrics = {"two-clusters": two_clusters}
topos = {"two-clusters": mininet_topo(two_clusters)}

r"""The ideal switch: one non-blocking packet switch with a port for every GPU; nothing but the NICs holds traffic up.

            t1                 one switch, `gpus` ports                                 defaults: gpus=64
    / / / | | | \ \ \                                                                   64 hosts, 1 switch, 64 cables
    h1 h2 h3 ... h64           host: one GPU and its NIC

    rfabric compare --topo ideal --topo fat-tree --topo rfabric --traffic grpo-64
    sudo mn --custom topologies/ideal.py --topo ideal,gpus=8 --controller remote --switch ovsk,protocols=OpenFlow13

The bound of every fabric of the same NICs. Up to a few hundred ports one can buy it; above, it has no price.
"""

import sys

# mn executes this file without __file__; its name in the code object is all there is to find the checkout by.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.fabric import ideal  # noqa: E402

fabrics = {"ideal": ideal}
topos = {"ideal": mininet_topo(ideal)}

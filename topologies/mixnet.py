r"""MixNet (SIGCOMM 2025): part of every server's NICs on a regional OCS, the others on a packet-switched fabric.

     c1 .. c16                     spine: one cable to every region's leaf              defaults: servers=8,gpus=8,region=4
      |     |                                                                           64 hosts, 8 servers, 8 OCSes,
     l1 ........... l2             leaf: the electrical NICs of its region              2 leaves, 16 spines, 160 cables,
      | \            |                                                                  64 of them NVLink
      |  \    a1..a4 |   a5..a8    regional OCS: optical NIC j of the region's servers; no light leaves a region
      |   \   :  :   |    :  :
     s1 .. s4         s5 .. s8     server: `optical` NICs up to OCSes, the others to the leaf
    |..|  |..|       |..|  |..|    inside: NVLink and PCIe, `inside` a GPU; no cable, no part
    h1.. .. h32      h33.. ..h64   host: one GPU

    rfabric simulate --topo mixnet,optical=6,reinit=0s --traffic grpo-64
    sudo mn --custom topologies/mixnet.py --topo mixnet,servers=4,region=2 --controller remote --switch ovsk,protocols=OpenFlow13

A circuit is dark for `delay` + `reinit`: the NIC at its end has to bring its link up anew. More regions than a spine has ports
(`radix`, 64 at 400 Gbit/s), or `tiers=3`, as the paper counts, put spines b1.. of groups of leaves between these and the cores.
"""

import sys

# mn executes this file without __file__; its name in the code object is all there is to find the checkout by.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.fabric import mixnet  # noqa: E402

fabrics = {"mixnet": mixnet}
topos = {"mixnet": mininet_topo(mixnet)}

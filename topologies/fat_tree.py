"""Fat-Tree (Al-Fares, Loukissas, Vahdat, SIGCOMM 2008) of electrical packet switches.

    c1 c2 c3 c4             core: one switch a plane, `tors` cables to each pod        defaults: pods=4,tors=4,gpus=4
     |  |  |  |                                                                         64 hosts, 36 switches, 192 cables
    a1 a2 a3 a4  | pod 2    aggregation: one switch per pod and plane                   16 ToRs + 16 aggregation + 4 core
     |\\ \\/ / /|  | ...
    t1 t2 t3 t4             edge (ToR): `gpus` hosts below, gpus/oversubscription uplinks above, one to each plane
    |||| |||| ...
    h1 .. h4  h5 .. h8      host: one GPU and its NIC

    rfabric simulate --topo fat-tree,pods=4,oversubscription=2 --traffic grpo-64
    sudo mn --custom topologies/fat_tree.py --topo fat-tree,pods=2 --controller remote --switch ovsk,protocols=OpenFlow13

`k=4` gives the classic k-ary form: k pods of k/2 ToRs with k/2 hosts each. A core switch that would need more than `radix` ports
(64 at 400 Gbit/s) is several, which share the up-cables of every pod; switches of 64 ports end at 65,536 GPUs.
"""

import sys

# mn executes this file without __file__; its name in the code object is all there is to find the checkout by.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.fabric import fat_tree  # noqa: E402

fabrics = {"fat-tree": fat_tree}
topos = {"fat-tree": mininet_topo(fat_tree)}

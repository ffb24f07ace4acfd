"""TopoOpt (NSDI 2023): servers joined directly through patch panels that are set once for a job; no packet switch at all.

     a1  a2  a3  ..  a8        patch panel (or OCS) j takes NIC j of every server       defaults: servers=8,gpus=8
      :   :   :       :        : carries light only where the panel patches it through  64 hosts, 8 servers, 8 panels,
      : .:. .:.  ..   :                                                                 128 cables, 64 of them NVLink
     s1   s2   s3 ..  s8       server: the forwarding plane of its `degree` NICs; passes on what is for others
    |..| |..| |..|   |..|      inside: NVLink and PCIe, `inside` a GPU; no cable, no part
    h1.. h9.. h17.. h57..h64   host: one GPU

    rfabric simulate --topo topoopt,degree=4 --traffic grpo-64 --policy static
    sudo mn --custom topologies/topoopt.py --topo topoopt,servers=4,gpus=2 --controller remote --switch ovsk,protocols=OpenFlow13

Each plane realises any matching of the servers: `degree` of them make the direct-connect topology, and who is not joined to
a server goes through others. `optics=ocs` puts OCSes of 320 ports and 10 ms in the panels' place.
"""

import sys

# mn executes this file without __file__; its name in the code object is all there is to find the checkout by.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.fabric import topoopt  # noqa: E402

fabrics = {"topoopt": topoopt}
topos = {"topoopt": mininet_topo(topoopt)}

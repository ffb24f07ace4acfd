"""Photonic rails (Opus, arXiv 2602.12521): an OCS in place of each rail switch, and no packet switch.

     a1 a2   a3 a4  ..  a15 a16    OCS: port 1 and port 2 of every NIC of a rail        defaults: servers=8,gpus=8,nic_ports=2
      : :     : :        : :                                                            64 hosts, 8 servers, 16 OCSes,
     rail 1  rail 2 ..  rail 8     rail i: the NICs of GPU i of every server            192 cables, 64 of them NVLink
      : :     : :        : :
     s1         s2   ..   s8       server: the forwarding plane of its NICs, each split into `nic_ports`
    |..|       |..|      |..|      inside: NVLink and PCIe, `inside` a GPU; no cable, no part
    h1..h8     h9..h16   ..h64     host: one GPU

    rfabric simulate --topo opus,reinit=0s --traffic grpo-64
    sudo mn --custom topologies/opus.py --topo opus,servers=4,gpus=2 --controller remote --switch ovsk,protocols=OpenFlow13

Two ports a NIC make a ring of the servers in every rail. A server's GPUs share its rails: what is to leave by another GPU's
rail reaches it over NVLink. A circuit is dark for `delay` + `reinit`: the NIC at its end has to bring its link up anew.
"""

import sys

# mn executes this file without __file__; its name in the code object is all there is to find the checkout by.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.fabric import opus  # noqa: E402

fabrics = {"opus": opus}
topos = {"opus": mininet_topo(opus)}

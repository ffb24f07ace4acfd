r"""Rail-optimized, NVIDIA style: rail switch i of a pod takes GPU i of every server, spines join the rails.

      c1     c2     c3     c4        spine: one cable to every rail switch              defaults: pods=2,servers=4,gpus=8
       |\____|\____|_____/|                                                             64 hosts, 20 switches, 128 cables
      t1     t2     ..     t8        rail switch: GPU 1 of all servers, GPU 2, ...      16 rail switches + 4 spines
      | \    | \           | \
     h1  h9 h2  h10 ..    h8  h16    host: one GPU and its NIC; server 1 is h1..h8, server 2 h9..h16
     `----- server 1 -----'

    rfabric simulate --topo rail-optimized,oversubscription=2 --traffic grpo-64
    sudo mn --custom topologies/rail_optimized.py --topo rail-optimized --controller remote --switch ovsk,protocols=OpenFlow13

Collectives that stay on their rail cross one switch in a pod. NVLink inside a server is not in the fabric: a transfer between
rails crosses a spine, unless the trace has it change rails over NVLink before it leaves. More rail switches than a spine has ports
(`radix`, 64 at 400 Gbit/s: 2,048 GPUs) are grouped by rail below spines a1.. of their own, and cores c1.. join these.
"""

import sys

# mn executes this file without __file__; its name in the code object is all there is to find the checkout by.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.fabric import rail_optimized  # noqa: E402

fabrics = {"rail-optimized": rail_optimized}
topos = {"rail-optimized": mininet_topo(rail_optimized)}

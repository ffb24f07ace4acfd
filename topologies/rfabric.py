"""RFabric (OrchestrRL, arXiv 2601.01209): electrical ToRs below optical aggregation and core, and a thin electrical path.

    c1  c2  c3  c4           core OCS: one a plane, `tors` cables to each pod           defaults: pods=4,tors=4,gpus=4
     :   :   :   :                                                                      64 hosts, 16 ToRs, 20 OCSes
    a1  a2  a3  a4  | pod 2  aggregation OCS: one per pod and plane                     and x1: 37 switches, 208 cables
     : .:. .:. .:   | ...    : is a cable that carries light only where a circuit joins it
    t1  t2  t3  t4           edge (ToR): electrical; `gpus` hosts below, `planes` uplinks above, one to each plane
    |||| ||||  \\__ x1 __     x1: electrical switch, one cable of rate `electrical` to every ToR, always on
    h1 .. h4  h5 .. h8       host: one GPU and its NIC

    rfabric simulate --topo rfabric,pods=4,delay=10ms --traffic grpo-64
    sudo mn --custom topologies/rfabric.py --topo rfabric,pods=2 --controller remote --switch ovsk,protocols=OpenFlow13

In a plane the aggregation OCSes and the core OCS together can join any ToR to any other, in one pod or two: every matching
of the ToRs is realisable. With four planes the ToRs form any graph of degree four that is the union of four matchings. No OCS has
more than `ocs_ports`: a plane of more racks has several core OCSes, which share the up-cables of every pod. `ocs=piezo` takes
ports and delay from rfabric/fabric/ocs.csv. Where there are more ToRs than x1 has ports (`radix`), x1.. are a small tree.
"""

import sys

# mn executes this file without __file__; its name in the code object is all there is to find the checkout by.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.fabric import rfabric  # noqa: E402

fabrics = {"rfabric": rfabric}
topos = {"rfabric": mininet_topo(rfabric)}

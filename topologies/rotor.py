"""RotorNet (SIGCOMM 2017), Opera (NSDI 2020): ToRs below rotor switches that step through fixed matchings, whatever the demand.

     a1   a2   a3   a4         rotor switch j takes uplink j of every ToR               defaults: tors=16,gpus=4
      :    :    :    :         : is a cable that carries light where the rotor stands   64 hosts, 16 ToRs, 4 rotors,
      : .:.  .:.  .: :                                                                  128 cables
     t1   t2   t3 .. t16       ToR: `gpus` hosts below, `planes` uplinks above; with `electrical`, a thin cable to x1
    |||| |||| ||||  ||||
    h1..h4 h5..h8 ..  ..h64    host: one GPU and its NIC

    rfabric simulate --topo rotor --traffic grpo-64 --policy static
    sudo mn --custom topologies/rotor.py --topo rotor,tors=4 --controller remote --switch ovsk,protocols=OpenFlow13

The 15 rounds of a tournament of 16 ToRs join every pair once; the rotors show four of them at a time. What has no circuit now goes
over a third ToR, or waits.
"""

import sys

# mn executes this file without __file__; its name in the code object is all there is to find the checkout by.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.fabric import rotor  # noqa: E402

fabrics = {"rotor": rotor}
topos = {"rotor": mininet_topo(rotor)}

"""What circuits that are lit can do at best: the program of `optics.bound`, told the circuits."""

import numpy as np

from rfabric.fabric import Fabric
from rfabric.optics import Circuits, Demand
from rfabric.optics.bound import Program
from rfabric.routing import routes_of


def fluid_seconds(fabric: Fabric, circuits: Circuits, demand: Demand) -> float:
    """The least time under these circuits, every rack's traffic split at will over all ways; inf
    where no way leads.
    """
    lit = LitProgram(fabric, demand, circuits)
    return demand.floor if demand.idle else max(lit.seconds(), demand.floor)


class LitProgram(Program):
    """Light paths as cables, and none left to choose."""

    def __init__(self, fabric: Fabric, demand: Demand, circuits: Circuits):
        super().__init__(fabric, demand)
        ways = routes_of(fabric, circuits).ways
        codes = self.tail * self.nodes + self.head
        at = np.searchsorted(codes, ways.leaves * self.nodes + ways.leads)
        self.cable = np.zeros(len(self.tail))
        np.add.at(self.cable, at, ways.lights.rate[ways.path] / self.unit)

    def _degrees(self):
        degree, most = super()._degrees()
        return degree, np.zeros(len(most))

"""What routing loads cables with, for tests of ways and of schemes."""

import numpy as np

from rfabric.optics.outlook import Outlook
from rfabric.trace.pairs import Pairs, PairWays


def busiest_seconds(fabric, circuits, routing, trace, rows):
    """Seconds that the busiest directed link needs for all bytes of `rows` on the ways that
    `routing` chose.
    """
    ways = PairWays(fabric, Pairs(fabric, trace, routing), circuits, routing)
    load = ways.load(rows, trace.size[rows].astype(float), np.zeros(len(rows), np.int64))
    return float(Outlook.of_flows(fabric, [load]).alone[0])

r"""A torus of ToRs: each cabled to its neighbours in two directions; no other switch.

      |    |    |    |                             defaults: rows=4,columns=4,gpus=4
    --t1---t2---t3---t4--   ToR: `gpus` hosts,      64 hosts, 16 switches, 96 cables
      |    |    |    |      `width` cables to each neighbour
    --t5---t6---t7---t8--   what leaves at one edge comes in at the other
      |    |    |    |
    h1..h4 below t1, h5..h8 below t2, ...

    rfabric simulate --topo torus,rows=2,columns=8 --traffic grpo-64
    sudo mn --custom topologies/torus.py --topo torus,rows=2 --controller remote \
        --switch ovsk,protocols=OpenFlow13

An example of a fabric of your own: this file is all there is to it.
"""

import sys
from itertools import product

# mn executes this file without __file__: the name in its code object tells where the checkout is.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.fabric import Fabric  # noqa: E402
from rfabric.fabric.builders import Sketch, sized, whole  # noqa: E402
from rfabric.units import parse_rate  # noqa: E402


def room(hosts: int, least: int = 64) -> dict[str, int]:
    """The settings that hold so many GPUs: rows of four ToRs of four."""
    return {"rows": max(-(-max(hosts, least) // 16), 2)}


@sized(room)
def torus(
    rows: int = 4, columns: int = 4, gpus: int = 4, width: int = 1, rate: str | float = "400Gbit/s"
) -> Fabric:
    """A torus of `rows` x `columns` ToRs of `gpus` hosts, `width` cables between neighbours."""
    rows, columns = whole("rows", rows, 2), whole("columns", columns, 2)
    gpus, width = whole("gpus", gpus, 1), whole("width", width, 1)
    bps, sketch = parse_rate(rate, "rate"), Sketch()
    tors = sketch.racks(rows, columns, gpus, bps)  # by row
    pairs = set()
    for i, j in product(range(rows), range(columns)):
        for other in (tors[i][(j + 1) % columns], tors[(i + 1) % rows][j]):
            pairs.add(tuple(sorted((tors[i][j], other))))
    for a, b in sorted(pairs) * width:
        sketch.cable(a, b, bps)
    parameters = {"rows": rows, "columns": columns, "gpus": gpus, "width": width, "rate_bps": bps}
    return Fabric("torus", sketch.nodes, sketch.links, 0.0, "", parameters)


fabrics = {"torus": torus}
topos = {"torus": mininet_topo(torus)}

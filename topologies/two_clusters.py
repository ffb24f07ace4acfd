r"""Two clusters of their own size, GPU and link speed, joined by one slow link: H800 train,
H20 generate.

     c1 ------------ join ------------ c2      border switch of each cluster
    / | \                            / | \
   a1 .. a8                        a9 .. a16   spine: one cable to every leaf, one up
    |\ /|                           |\ /|
   t1 .. t4                        t5 .. t8    leaf (ToR): `gpus` hosts of its cluster
   ||||  ||||                      ||||  ||||
   h1 .. h32                       h33 .. h64  host: training GPUs first, then those that generate

    defaults: training=32,generation=32,gpus=8: 64 hosts, 26 switches, 145 cables

    rfabric simulate --topo two-clusters,join=20Gbit/s --traffic grpo-64
    sudo mn --custom topologies/two_clusters.py --topo two-clusters --controller remote \
        --switch ovsk,protocols=OpenFlow13

`rate` and `oversubscription` are the training cluster's, `generation_rate` and
`generation_oversubscription` the other's. A cluster of more leaves than its spines have ports
(`radix`, one of them the border's) has cores n1.. between spines and border.
"""

import sys
from itertools import product

# mn executes this file without __file__: the name in its code object tells where the checkout is.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.fabric import Fabric  # noqa: E402
from rfabric.fabric.builders import (  # noqa: E402
    Sketch,
    Tiers,
    halves_for,
    joined,
    narrow,
    radix_at,
    sized,
    uplinks,
    whole,
)
from rfabric.units import parse_rate, parse_time  # noqa: E402


@sized(halves_for)
def two_clusters(
    training: int = 32,
    generation: int = 32,
    gpus: int = 8,
    oversubscription: float = 1,
    generation_oversubscription: float = 1,
    rate: str | float = "400Gbit/s",
    generation_rate: str | float = "200Gbit/s",
    join: str | float = "200Gbit/s",
    join_delay: str | float = "50us",
    radix: int = 0,
) -> Fabric:
    """Two leaf-spine clusters of their own size and speed behind one slow link: h1.. train.

    `training` and `generation` are GPUs, `gpus` those of a leaf. `rate` and `oversubscription` are
    the training cluster's. `join` joins the two border switches: 200 Gbit/s is the Ethernet that
    RollArt (arXiv 2512.22560) shares between its clusters; `join_delay` of 50 us is 10 km of
    fibre. A cluster of more leaves than its spines have ports (`radix`; 0: what is sold at the
    faster rate) gets a third tier.
    """
    sizes, gpus = (
        (whole("training", training, 1), whole("generation", generation, 1)),
        whole("gpus", gpus, 1),
    )
    ratios = oversubscription, generation_oversubscription
    rates = parse_rate(rate, "rate"), parse_rate(generation_rate, "generation_rate")
    slow, far = parse_rate(join, "join"), parse_time(join_delay, "join_delay")
    radix = radix_at(radix, *rates)
    sketch = Sketch()
    hosts = iter(sketch.hosts(sizes))
    floats = [
        _cluster(sketch, p, hosts, *kind, gpus, radix)
        for p, kind in enumerate(zip(sizes, rates, ratios, strict=True))
    ]
    sketch.cable("c1", "c2", slow, far)
    parameters = {
        "training": training,
        "generation": generation,
        "gpus": gpus,
        "oversubscription": floats[0],
        "generation_oversubscription": floats[1],
        "rate_bps": rates[0],
        "generation_rate_bps": rates[1],
        "join_bps": slow,
        "join_delay_s": far,
        "radix": radix,
    }
    return Fabric("two-clusters", sketch.nodes, sketch.links, 0.0, "", parameters)


def _cluster(
    sketch: Sketch,
    pod: int,
    hosts,
    size: int,
    rate: float,
    oversubscription: float,
    gpus: int,
    radix: int,
) -> float:
    """Leaves, spines and the border switch of one cluster; its oversubscription as a float."""
    key = ("oversubscription", "generation_oversubscription")[pod]
    up, ratio = uplinks("two-clusters", gpus, oversubscription, radix, "GPUs a leaf", key)
    leaves = -(-size // gpus)
    narrow("two-clusters", "a leaf", gpus + up, "use fewer GPUs a leaf", radix)
    tiers = joined(
        "two-clusters", ("training", "generation")[pod], leaves, radix, unit=gpus, spare=1
    )
    first = sketch.standing["edge"]
    names = [
        sketch.switch(f"t{first + i + 1}", "eps", "edge", (pod, i), pod) for i in range(leaves)
    ]
    for i in range(size):
        sketch.cable(next(hosts), names[i // gpus], rate)
    tops = _tops(sketch, pod, names, tiers, up, rate)
    border = sketch.switch(f"c{pod + 1}", "eps", "core", (pod, 0), pod)
    for top in tops[: radix - 1]:  # one port is the join's, which is the slower by far
        sketch.cable(top, border, rate)
    return ratio


def _tops(
    sketch: Sketch, pod: int, leaves: list[str], tiers: Tiers, up: int, rate: float
) -> list[str]:
    """The spines of a cluster or, where they are too few, the core switches above them."""
    before, size = sketch.standing["aggregation"], len(leaves) // tiers.groups
    spines = []
    for j in range(tiers.groups * up):
        spines.append(
            sketch.switch(f"a{before + j + 1}", "eps", "aggregation", (pod, j), pod, j % up)
        )
        for leaf in leaves[j // up * size :][:size]:
            sketch.cable(leaf, spines[-1], rate)
    if not tiers.cores:
        return spines
    before, cores = sketch.standing["core"], []
    for j, i in product(range(up), range(tiers.cores)):
        name = f"n{before + len(cores) + 1}"
        cores.append(sketch.switch(name, "eps", "core", (pod, 1 + j * tiers.cores + i), pod, j))
        for spine, _ in product(spines[j::up], range(size // tiers.cores)):
            sketch.cable(spine, cores[-1], rate)
    return cores


fabrics = {"two-clusters": two_clusters}
topos = {"two-clusters": mininet_topo(two_clusters)}

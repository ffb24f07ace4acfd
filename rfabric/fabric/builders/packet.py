"""Fabrics of packet switches: Fat-Tree, leaf-spine, rail-optimized, two clusters, and the ideal switch that bounds them all."""

from ...errors import RFabricError
from ...units import parse_rate, parse_time
from ..model import Fabric
from .parts import MAX_PORTS, MOST_GPUS, MOST_RACKS, SMALLEST, Sketch, narrow, shape, shape_for, sized, uplinks, whole

RAIL_SERVERS = 32  # servers of a pod on one set of rail switches: NVIDIA's scalable unit, 32 servers x 8 rails


@sized(shape_for)
def fat_tree(
    pods: int = 4,
    tors: int = 4,
    gpus: int = 4,
    oversubscription: float = 1,
    rate: str | float = "400Gbit/s",
    k: int = 0,
) -> Fabric:
    """A Fat-Tree (Al-Fares, SIGCOMM 2008) of packet switches: `pods` x `tors` x `gpus` hosts, or the classic `k`-ary form.

    `oversubscription` n:1 is taken at the ToRs: each has gpus/n uplinks, and above them nothing is oversubscribed further.
    `k` sets pods=k, tors=gpus=k/2 and the classic (k/2)^2 core switches of k ports; the pods form has one core switch a
    plane. `rate` is that of every cable.
    """
    if k:
        pods, tors, gpus = _classic(k, pods, tors, gpus)
    pods, tors, gpus = shape("fat-tree", pods, tors, gpus)
    planes, ratio = uplinks("fat-tree", gpus, oversubscription)
    narrow("fat-tree", "a ToR", gpus + planes, "use fewer GPUs a ToR")
    bps, sketch = parse_rate(rate, "rate"), Sketch()
    cores = 0 if pods == 1 else tors if k else 1
    sketch.planes(sketch.racks(pods, tors, gpus, bps), planes, "eps", bps, cores, MAX_PORTS)
    parameters = {"pods": pods, "tors": tors, "gpus": gpus, "oversubscription": ratio, "rate_bps": bps, "k": k}
    return Fabric("fat-tree", sketch.nodes, sketch.links, 0.0, "", parameters)


def _classic(k: int, *given: int) -> tuple[int, int, int]:
    """pods, tors, gpus of the k-ary form, unless the ones given say otherwise."""
    whole("k", k, 2)
    if k % 2:
        raise RFabricError(f"fat-tree: k={k} must be even; the nearest that works is k={k - 1}")
    made = k, k // 2, k // 2
    if any(value not in (4, own) for value, own in zip(given, made, strict=True)):
        raise RFabricError(f"fat-tree: k={k} sets pods={k}, tors=gpus={k // 2}; leave these out, or k")
    return made


def _leaves_for(hosts: int, least: int = SMALLEST) -> dict[str, int]:
    found = shape_for(hosts, least)
    return {"tors": found["pods"] * found["tors"], "gpus": found["gpus"]}


@sized(_leaves_for)
def leaf_spine(tors: int = 16, gpus: int = 4, oversubscription: float = 1, rate: str | float = "400Gbit/s") -> Fabric:
    """Two tiers of packet switches: `tors` leaves of `gpus` hosts, gpus/oversubscription spines, one cable from leaf to spine."""
    _, tors, gpus = shape("leaf-spine", 1, tors, gpus)
    up, ratio = uplinks("leaf-spine", gpus, oversubscription)
    narrow("leaf-spine", "a leaf", gpus + up, "use fewer GPUs a leaf")
    bps, sketch = parse_rate(rate, "rate"), Sketch()
    (leaves,) = sketch.racks(1, tors, gpus, bps)
    sketch.spines(leaves, up, bps)
    parameters = {"tors": tors, "gpus": gpus, "oversubscription": ratio, "rate_bps": bps}
    return Fabric("leaf-spine", sketch.nodes, sketch.links, 0.0, "", parameters)


def _rails_for(hosts: int, least: int = SMALLEST) -> dict[str, int]:
    hosts, servers = max(hosts, least), RAIL_SERVERS
    if hosts <= 2 * RAIL_SERVERS * 8:
        return {"pods": 2, "servers": max(-(-hosts // 16), 1), "gpus": 8}
    while hosts > servers * MOST_RACKS and servers < MAX_PORTS // 2:
        servers *= 2
    return {"pods": -(-hosts // (8 * servers)), "servers": servers, "gpus": 8}


@sized(_rails_for)
def rail_optimized(
    pods: int = 2, servers: int = 4, gpus: int = 8, oversubscription: float = 1, rate: str | float = "400Gbit/s"
) -> Fabric:
    """NVIDIA's rails: in each pod of `servers` x `gpus`, rail switch i takes GPU i of every server; spines above all of them.

    `oversubscription` n:1 is taken at the rail switches. NVLink inside a server is not in the fabric: what crosses rails goes
    over a spine, unless the trace itself sends it over NVLink first.
    """
    pods, servers, gpus = whole("pods", pods, 1), whole("servers", servers, 1), whole("gpus", gpus, 1)
    up, ratio = uplinks("rail-optimized", servers, oversubscription, "servers a pod")
    narrow("rail-optimized", "a rail switch", servers + up, "use fewer servers a pod")
    bps, sketch = parse_rate(rate, "rate"), Sketch()
    hosts = sketch.hosts([servers * gpus] * pods)
    rails = [sketch.switch(f"t{p * gpus + g + 1}", "eps", "edge", (p, g), p) for p in range(pods) for g in range(gpus)]
    for i, host in enumerate(hosts):
        sketch.cable(host, rails[i // (servers * gpus) * gpus + i % gpus], bps)
    sketch.spines(rails, up, bps)
    parameters = {"pods": pods, "servers": servers, "gpus": gpus, "oversubscription": ratio, "rate_bps": bps}
    return Fabric("rail-optimized", sketch.nodes, sketch.links, 0.0, "", parameters)


def _halves_for(hosts: int, least: int = SMALLEST) -> dict[str, int]:
    half = -(-max(hosts, least) // 16) * 8
    gpus = 8
    while half > gpus * MOST_RACKS and gpus < MOST_GPUS:
        gpus *= 2
    half = -(-half // gpus) * gpus
    return {"training": half, "generation": half, "gpus": gpus}


@sized(_halves_for)
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
) -> Fabric:
    """Two leaf-spine clusters of their own size and link speed behind one slow link: h1.. train, the rest generate.

    `training` and `generation` are GPUs, `gpus` those of a leaf. `rate` and `oversubscription` are the training cluster's.
    `join` joins the two border switches: 200 Gbit/s is the Ethernet that RollArt (arXiv 2512.22560) shares between its
    clusters; `join_delay` of 50 us is 10 km of fibre.
    """
    sizes, gpus = (whole("training", training, 1), whole("generation", generation, 1)), whole("gpus", gpus, 1)
    ratios = oversubscription, generation_oversubscription
    rates = parse_rate(rate, "rate"), parse_rate(generation_rate, "generation_rate")
    slow, far = parse_rate(join, "join"), parse_time(join_delay, "join_delay")
    sketch = Sketch()
    hosts = iter(sketch.hosts(sizes))
    floats = [_cluster(sketch, p, hosts, *kind, gpus) for p, kind in enumerate(zip(sizes, rates, ratios, strict=True))]
    sketch.cable("c1", "c2", slow, far)
    parameters = {
        "training": training, "generation": generation, "gpus": gpus, "oversubscription": floats[0],
        "generation_oversubscription": floats[1], "rate_bps": rates[0], "generation_rate_bps": rates[1],
        "join_bps": slow, "join_delay_s": far,
    }  # fmt: skip
    return Fabric("two-clusters", sketch.nodes, sketch.links, 0.0, "", parameters)


def _cluster(sketch: Sketch, pod: int, hosts, size: int, rate: float, oversubscription: float, gpus: int) -> float:
    """Leaves, spines and the border switch of one cluster; its oversubscription as a float."""
    up, ratio = uplinks("two-clusters", gpus, oversubscription, "GPUs a leaf")
    leaves = -(-size // gpus)
    narrow("two-clusters", "a leaf", gpus + up, "use fewer GPUs a leaf")
    narrow("two-clusters", "a spine", leaves + 1, "use more GPUs a leaf")
    first = sum(node.tier == "edge" for node in sketch.nodes)
    names = [sketch.switch(f"t{first + i + 1}", "eps", "edge", (pod, i), pod) for i in range(leaves)]
    for i in range(size):
        sketch.cable(next(hosts), names[i // gpus], rate)
    before = sum(node.tier == "aggregation" for node in sketch.nodes)
    spines = [sketch.switch(f"a{before + j + 1}", "eps", "aggregation", (pod, j), pod, j) for j in range(up)]
    for spine in spines:
        for name in names:
            sketch.cable(name, spine, rate)
    border = sketch.switch(f"c{pod + 1}", "eps", "core", (pod, 0), pod)
    for spine in spines:
        sketch.cable(spine, border, rate)
    return ratio


@sized(lambda hosts, least=SMALLEST: {"gpus": max(hosts, least)})
def ideal(gpus: int = 64, rate: str | float = "400Gbit/s") -> Fabric:
    """One packet switch with a port for every GPU: nothing but the NICs can hold traffic up. The bound of every fabric.

    A switch of that many ports is sold up to a few hundred; above, this is an idea and has no price.
    """
    gpus, bps, sketch = whole("gpus", gpus, 2), parse_rate(rate, "rate"), Sketch()
    sketch.racks(1, 1, gpus, bps)
    return Fabric("ideal", sketch.nodes, sketch.links, 0.0, "", {"gpus": gpus, "rate_bps": bps})

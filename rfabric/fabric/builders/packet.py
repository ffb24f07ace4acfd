"""Fabrics of packet switches: Fat-Tree, leaf-spine, rail-optimized, two clusters, and the ideal switch that bounds them all."""

from itertools import product

from ...errors import RFabricError
from ...units import parse_rate, parse_time
from ..model import Fabric
from .parts import Sketch, Spine, Tiers, core_switches, joined, narrow, nearest, radix_at, shape, uplinks, whole
from .sizes import NOTHING, SMALLEST, halves_for, leaves_for, rails_for, shape_for, sized


@sized(shape_for)
def fat_tree(
    pods: int = 4,
    tors: int = 4,
    gpus: int = 4,
    oversubscription: float = 1,
    rate: str | float = "400Gbit/s",
    k: int = 0,
    radix: int = 0,
) -> Fabric:
    """A Fat-Tree (Al-Fares, SIGCOMM 2008) of packet switches: `pods` x `tors` x `gpus` hosts, or the classic `k`-ary form.

    `oversubscription` n:1 is taken at the ToRs: each has gpus/n uplinks, and above them nothing is oversubscribed further.
    `k` sets pods=k, tors=gpus=k/2 and the classic (k/2)^2 core switches of k ports; the pods form has one core switch a
    plane, or as many as it takes where that would need more than `radix` ports. `radix` 0: what is sold at `rate`, that of
    every cable.
    """
    if k:
        pods, tors, gpus = _classic(k, pods, tors, gpus)
    pods, tors, gpus = shape("fat-tree", pods, tors, gpus)
    planes, ratio = uplinks("fat-tree", gpus, oversubscription)
    bps, sketch = parse_rate(rate, "rate"), Sketch()
    radix = radix_at(radix, bps)
    narrow("fat-tree", "a ToR", gpus + planes, "use fewer GPUs a ToR", radix)
    cores = _cores(pods, tors, radix)
    sketch.planes(sketch.racks(pods, tors, gpus, bps), planes, "eps", bps, tors if k else cores)
    parameters = {
        "pods": pods, "tors": tors, "gpus": gpus, "oversubscription": ratio, "rate_bps": bps, "k": k, "radix": radix,
    }  # fmt: skip
    return Fabric("fat-tree", sketch.nodes, sketch.links, 0.0, "", parameters)


def _cores(pods: int, tors: int, radix: int) -> int:
    """Core switches a plane, or an error that says which shape fits."""
    found = core_switches(pods, tors, radix, 1)
    if found is None:
        near = nearest(tors, lambda n: core_switches(pods, n, radix, 1) is not None)
        way_out = f"the nearest that works is tors={near}" if near else f"use at most pods={radix}"
        raise RFabricError(
            f"fat-tree: switches of {radix} ports do not join {pods} pods of tors={tors}, the limit is {radix} pods of "
            f"{radix // 2}; {way_out}, or radix={max(pods, 2 * tors if pods > 1 else tors)}"
        )
    return found


def _classic(k: int, *given: int) -> tuple[int, int, int]:
    """pods, tors, gpus of the k-ary form, unless the ones given say otherwise."""
    whole("k", k, 2)
    if k % 2:
        raise RFabricError(f"fat-tree: k={k} must be even; the nearest that works is k={k - 1}")
    made = k, k // 2, k // 2
    if any(value not in (4, own) for value, own in zip(given, made, strict=True)):
        raise RFabricError(f"fat-tree: k={k} sets pods={k}, tors=gpus={k // 2}; leave these out, or k")
    return made


@sized(leaves_for)
def leaf_spine(
    tors: int = 16, gpus: int = 4, oversubscription: float = 1, rate: str | float = "400Gbit/s", radix: int = 0
) -> Fabric:
    """Two tiers of packet switches: `tors` leaves of `gpus` hosts, gpus/oversubscription spines, one cable from leaf to spine.

    A spine has `radix` ports (0: what is sold at `rate`). More leaves get a third tier: groups of leaves below spines of
    their own, core switches above, as many up-cables as down at each.
    """
    _, tors, gpus = shape("leaf-spine", 1, tors, gpus)
    up, ratio = uplinks("leaf-spine", gpus, oversubscription)
    bps, sketch = parse_rate(rate, "rate"), Sketch()
    radix = radix_at(radix, bps)
    narrow("leaf-spine", "a leaf", gpus + up, "use fewer GPUs a leaf", radix)
    tiers = joined("leaf-spine", "tors", tors, radix)
    pods = sketch.racks(tiers.groups, tors // tiers.groups, gpus, bps)
    sketch.spines([leaf for pod in pods for leaf in pod], tiers, up, bps)
    parameters = {"tors": tors, "gpus": gpus, "oversubscription": ratio, "rate_bps": bps, "radix": radix}
    return Fabric("leaf-spine", sketch.nodes, sketch.links, 0.0, "", parameters)


@sized(rails_for)
def rail_optimized(
    pods: int = 2,
    servers: int = 4,
    gpus: int = 8,
    oversubscription: float = 1,
    rate: str | float = "400Gbit/s",
    radix: int = 0,
) -> Fabric:
    """NVIDIA's rails: in each pod of `servers` x `gpus`, rail switch i takes GPU i of every server; spines above all of them.

    `oversubscription` n:1 is taken at the rail switches. Where there are more of these than a spine has ports (`radix`; 0: what
    is sold at `rate`), those of one rail, or of a few, have spines of their own, and core switches join these. NVLink inside
    a server is not in the fabric: what crosses rails goes over a spine, unless the trace itself sends it over NVLink first.
    """
    pods, servers, gpus = whole("pods", pods, 1), whole("servers", servers, 1), whole("gpus", gpus, 1)
    up, ratio = uplinks("rail-optimized", servers, oversubscription, "servers a pod")
    bps, sketch = parse_rate(rate, "rate"), Sketch()
    radix = radix_at(radix, bps)
    narrow("rail-optimized", "a rail switch", servers + up, "use fewer servers a pod", radix)
    tiers = joined("rail-optimized", "pods", pods, radix, leaves=gpus)
    hosts = sketch.hosts([servers * gpus] * pods)
    rails = [sketch.switch(f"t{p * gpus + g + 1}", "eps", "edge", (p, g), p) for p in range(pods) for g in range(gpus)]
    for i, host in enumerate(hosts):
        sketch.cable(host, rails[i // (servers * gpus) * gpus + i % gpus], bps)
    by_rail = [rail for g in range(gpus) for rail in rails[g::gpus]]
    sketch.spines(by_rail if tiers.cores else rails, tiers, up, bps, Spine(in_pod=False))
    parameters = {
        "pods": pods, "servers": servers, "gpus": gpus, "oversubscription": ratio, "rate_bps": bps, "radix": radix,
    }  # fmt: skip
    return Fabric("rail-optimized", sketch.nodes, sketch.links, 0.0, "", parameters)


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
    """Two leaf-spine clusters of their own size and link speed behind one slow link: h1.. train, the rest generate.

    `training` and `generation` are GPUs, `gpus` those of a leaf. `rate` and `oversubscription` are the training cluster's.
    `join` joins the two border switches: 200 Gbit/s is the Ethernet that RollArt (arXiv 2512.22560) shares between its
    clusters; `join_delay` of 50 us is 10 km of fibre. A cluster of more leaves than its spines have ports (`radix`; 0: what is
    sold at the faster rate) gets a third tier.
    """
    sizes, gpus = (whole("training", training, 1), whole("generation", generation, 1)), whole("gpus", gpus, 1)
    ratios = oversubscription, generation_oversubscription
    rates = parse_rate(rate, "rate"), parse_rate(generation_rate, "generation_rate")
    slow, far = parse_rate(join, "join"), parse_time(join_delay, "join_delay")
    radix = radix_at(radix, *rates)
    sketch = Sketch()
    hosts = iter(sketch.hosts(sizes))
    floats = [
        _cluster(sketch, p, hosts, *kind, gpus, radix) for p, kind in enumerate(zip(sizes, rates, ratios, strict=True))
    ]
    sketch.cable("c1", "c2", slow, far)
    parameters = {
        "training": training, "generation": generation, "gpus": gpus, "oversubscription": floats[0],
        "generation_oversubscription": floats[1], "rate_bps": rates[0], "generation_rate_bps": rates[1],
        "join_bps": slow, "join_delay_s": far, "radix": radix,
    }  # fmt: skip
    return Fabric("two-clusters", sketch.nodes, sketch.links, 0.0, "", parameters)


def _cluster(
    sketch: Sketch, pod: int, hosts, size: int, rate: float, oversubscription: float, gpus: int, radix: int
) -> float:
    """Leaves, spines and the border switch of one cluster; its oversubscription as a float."""
    up, ratio = uplinks("two-clusters", gpus, oversubscription, "GPUs a leaf")
    leaves = -(-size // gpus)
    narrow("two-clusters", "a leaf", gpus + up, "use fewer GPUs a leaf", radix)
    tiers = joined("two-clusters", ("training", "generation")[pod], leaves, radix, unit=gpus, spare=1)
    first = sketch.standing["edge"]
    names = [sketch.switch(f"t{first + i + 1}", "eps", "edge", (pod, i), pod) for i in range(leaves)]
    for i in range(size):
        sketch.cable(next(hosts), names[i // gpus], rate)
    tops = _tops(sketch, pod, names, tiers, up, rate)
    border = sketch.switch(f"c{pod + 1}", "eps", "core", (pod, 0), pod)
    for top in tops[: radix - 1]:  # one port is the join's, which is the slower by far
        sketch.cable(top, border, rate)
    return ratio


def _tops(sketch: Sketch, pod: int, leaves: list[str], tiers: Tiers, up: int, rate: float) -> list[str]:
    """The spines above all leaves of a cluster or, where these are too many, its core switches above spines of groups."""
    before, size = sketch.standing["aggregation"], len(leaves) // tiers.groups
    spines = []
    for j in range(tiers.groups * up):
        spines.append(sketch.switch(f"a{before + j + 1}", "eps", "aggregation", (pod, j), pod, j % up))
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


@sized(lambda hosts, least=SMALLEST, given=NOTHING: {"gpus": max(hosts, least)})
def ideal(gpus: int = 64, rate: str | float = "400Gbit/s", radix: int = 0) -> Fabric:
    """One packet switch with a port for every GPU: nothing but the NICs can hold traffic up. The bound of every fabric.

    A switch of that many ports is sold up to `radix` (0: what is sold at `rate`); above, this is an idea and has no price.
    """
    gpus, bps, sketch = whole("gpus", gpus, 2), parse_rate(rate, "rate"), Sketch()
    sketch.racks(1, 1, gpus, bps)
    parameters = {"gpus": gpus, "rate_bps": bps, "radix": radix_at(radix, bps)}
    return Fabric("ideal", sketch.nodes, sketch.links, 0.0, "", parameters)

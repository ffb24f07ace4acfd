"""Builders of fabrics. Each draws its pod in its file under `topologies/`; here is only what gets cabled.

Port numbers: a ToR has its GPUs at ports 1..gpus, then its uplinks by plane, then the thin electrical cable. An aggregation
switch has its ToRs at ports 1..tors, then its uplinks to the core. A core switch has pod p's cables at consecutive ports.
"""

import math
from itertools import product

from ..errors import RFabricError
from ..units import parse_rate, parse_time
from .model import Fabric, Link, Node, Port

HOST_DELAY = 0.5e-6  # s: ~100 m of fibre at 5 ns/m; cable lengths inside a data hall
MAX_PORTS = 512  # the largest OCS radix on the market is 320 (Calient S320) to 1008 (Telescent); beyond it, split
TIER_CODE = {"edge": 1, "aggregation": 2, "core": 3, "electrical": 4}


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
        _whole("k", k, 2)
        if k % 2:
            raise RFabricError(f"fat-tree: k={k} must be even")
        if any(given not in (4, made) for given, made in zip((pods, tors, gpus), (k, k // 2, k // 2), strict=True)):
            raise RFabricError(f"fat-tree: k={k} sets pods={k}, tors=gpus={k // 2}; leave these out, or k")
        pods, tors, gpus = k, k // 2, k // 2
    shape = _shape("fat-tree", pods, tors, gpus)
    ratio = _number("oversubscription", oversubscription)
    planes = gpus / ratio if ratio else 0
    if ratio < 1 or planes < 1 or abs(planes - round(planes)) > 1e-9:
        raise RFabricError(
            f"fat-tree: oversubscription {oversubscription} with {gpus} GPUs a ToR gives {planes:g} uplinks; "
            f"use a divisor of {gpus}, from 1 to {gpus}"
        )
    bps = parse_rate(rate, "rate")
    nodes, links = _two_tiers(*shape, round(planes), "eps", bps, cores=shape[1] if k else 1)
    parameters = {"pods": pods, "tors": tors, "gpus": gpus, "oversubscription": ratio, "rate_bps": bps}
    return Fabric("fat-tree", nodes, links, 0.0, "", parameters)


def rfabric(
    pods: int = 4,
    tors: int = 4,
    gpus: int = 4,
    planes: int = 0,
    electrical: str | float = "100Gbit/s",
    delay: str | float = "10ms",
    rate: str | float = "400Gbit/s",
) -> Fabric:
    """RFabric (OrchestrRL, arXiv 2601.01209): electrical ToRs below OCS aggregation (per pod) and OCS core, plane by plane.

    `planes` uplinks a ToR (0: as many as GPUs), one OCS per pod and plane, one core OCS per plane. `electrical` is the rate of
    each ToR's always-on cable to one packet switch x1 (0: none). `delay` is the OCS reconfiguration delay; 10 ms is a 3D-MEMS.
    """
    shape = _shape("rfabric", pods, tors, gpus)
    planes = _whole("planes", planes, 0) or gpus
    bps, thin = parse_rate(rate, "rate"), parse_rate(electrical, "electrical")
    nodes, links = _two_tiers(*shape, planes, "ocs", bps)
    if thin:
        nodes.append(Node("x1", "eps", "electrical", dpid=_dpid("electrical", 0, 0)))
        racks = [n.name for n in nodes if n.tier == "edge"]
        last = gpus + planes + 1
        links += [Link(Port(t, last), Port("x1", i + 1), thin, HOST_DELAY) for i, t in enumerate(racks)]
    seconds = parse_time(delay, "delay")
    parameters = {
        "pods": pods, "tors": tors, "gpus": gpus, "planes": planes,
        "electrical_bps": thin, "delay_s": seconds, "rate_bps": bps,
    }  # fmt: skip
    return Fabric("rfabric", nodes, links, seconds, "", parameters)


BUILDERS = {"fat-tree": fat_tree, "rfabric": rfabric}


def _two_tiers(
    pods: int, tors: int, gpus: int, planes: int, kind: str, rate: float, cores: int = 1
) -> tuple[list[Node], list[Link]]:
    """Hosts, ToRs, and `planes` slices of one aggregation switch per pod and `cores` core switches; full rate above the ToR."""
    share = tors // cores  # cables of one pod at one core switch
    widest = max(gpus + planes + 1, 2 * tors, pods * share)
    if widest > MAX_PORTS:
        raise RFabricError(
            f"a switch would need {widest} ports, the limit is {MAX_PORTS}; use fewer pods or ToRs a pod"
        )
    nodes, links = [], []
    for p in range(pods):
        for t in range(tors):
            for g in range(gpus):
                nodes.append(Node(f"h{(p * tors + t) * gpus + g + 1}", "host", "host", p))
    for p in range(pods):
        for t in range(tors):
            tor = f"t{p * tors + t + 1}"
            nodes.append(Node(tor, "eps", "edge", p, dpid=_dpid("edge", p, t)))
            for g in range(gpus):
                links.append(Link(Port(f"h{(p * tors + t) * gpus + g + 1}", 1), Port(tor, g + 1), rate, HOST_DELAY))
    for p in range(pods):
        for j in range(planes):
            agg = f"a{p * planes + j + 1}"
            nodes.append(Node(agg, kind, "aggregation", p, j, _dpid("aggregation", p, j)))
            for t in range(tors):
                links.append(Link(Port(f"t{p * tors + t + 1}", gpus + j + 1), Port(agg, t + 1), rate, HOST_DELAY))
    for j, i in product(range(planes), range(cores if pods > 1 else 0)):
        core = f"c{j * cores + i + 1}"
        nodes.append(Node(core, kind, "core", -1, j, _dpid("core", j, i)))
        for p, u in product(range(pods), range(share)):
            ends = Port(f"a{p * planes + j + 1}", tors + i * share + u + 1), Port(core, p * share + u + 1)
            links.append(Link(*ends, rate, HOST_DELAY))
    return nodes, links


def _dpid(tier: str, pod: int, index: int) -> int:
    """A datapath id one can read in hex: 0x<tier><pod, 3 digits><index, 3 digits>."""
    return TIER_CODE[tier] << 24 | pod << 12 | index


def _shape(name: str, pods: int, tors: int, gpus: int) -> tuple[int, int, int]:
    shape = _whole("pods", pods, 1), _whole("tors", tors, 1), _whole("gpus", gpus, 1)
    if math.prod(shape) < 2:
        raise RFabricError(f"{name}: {pods} x {tors} x {gpus} is one GPU; a fabric needs two")
    return shape


def _whole(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise RFabricError(f"{name}={value!r} must be a whole number, {least} or more")
    return value


def _number(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise RFabricError(f"{name}={value!r} must be a number")
    return float(value)

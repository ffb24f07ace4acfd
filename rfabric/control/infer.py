"""Which fabric is it? Read from the switches that connect, so that `ryu-manager controller/ocs.py`
needs no settings.

A datapath id says tier, pod and number (0x<tier><pod, 3 digits><index, 3 digits>, see
`fabric.builders`), a port list how many cables a switch has. Two kinds are read, rfabric and
fat-tree, each where its app runs; any other must be named (`rfabric control --topo`, RFABRIC_TOPO),
but for a rotor fabric, which is cabled as one pod of rfabric. Port counts tell a complete fabric
from one that is still connecting: a ToR's uplinks say how many aggregation switches there must be,
those how many core switches, those how many pods. Rates and the OCS delay cannot be seen: the
defaults are taken, and RFABRIC_TOPO says otherwise.
"""

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from ..errors import RFabricError
from ..fabric import BUILDERS, Fabric
from ..fabric.builders import TIER_CODE

Seen = Mapping[int, Set[int]]  # datapath id -> the port numbers of the switch
TIERS = {code: tier for tier, code in TIER_CODE.items()}
NAME_IT = (
    "name the fabric to the controller as to mn: `rfabric control --topo NAME,...`, or "
    "RFABRIC_TOPO=NAME,..."
)


@dataclass(frozen=True)
class Inferred:
    """The fabric, or None while the switches seen do not make one up; `trouble` says what is
    missing or wrong.
    """

    fabric: Fabric | None
    trouble: str = ""


def infer(kind: str, seen: Seen) -> Inferred:
    """The `kind` of fabric (a name of BUILDERS) that consists of exactly the switches `seen`."""
    if not seen:
        return Inferred(None, "no switch has connected yet")
    strangers = sorted(d for d in seen if d >> 24 not in TIERS)
    if strangers:
        return Inferred(
            None,
            f"switch {strangers[0]:#x} is not of an rfabric topology (ids there read "
            "0x<tier><pod><index>): start mn with --custom "
            f"topologies/{kind.replace('-', '_')}.py --topo {kind}, or {NAME_IT}",
        )
    servers = sorted(d for d in seen if TIERS[d >> 24] == "server")
    if servers:
        return Inferred(
            None,
            f"switch {servers[0]:#x} forwards for a server: fabrics cabled to servers, such as "
            f"mixnet, opus and topoopt, are not read from their switches; {NAME_IT}",
        )
    if missing := _missing_tors(seen):
        return Inferred(None, f"{missing}; {_way_out(kind)}")
    values = _values(kind, seen)
    spec = ",".join([kind, *(f"{k}={v}" for k, v in values.items())])
    try:
        fabric = replace(BUILDERS[kind](**values), spec=spec)
    except (RFabricError, TypeError):  # what it says is of settings that nobody gave
        return Inferred(
            None, f"{len(seen)} switches so far do not make up a {kind} fabric; {_way_out(kind)}"
        )
    wrong = contradiction(fabric, seen, complete=True)
    return Inferred(None, f"{wrong}; {_way_out(kind)}") if wrong else Inferred(fabric)


def contradiction(fabric: Fabric, seen: Seen, complete: bool = False) -> str:
    """What the switches seen say against `fabric`, or ''.

    `complete`: missing switches count as well.
    """
    nodes = {n.dpid: n for n in fabric.switches}
    for dpid, ports in sorted(seen.items()):
        if dpid not in nodes:
            return f"switch {dpid:#x} is not in the fabric {fabric.spec or fabric.name}"
        expected = {p.number for p in fabric.ports[nodes[dpid].name]}
        if ports != expected:
            return (
                f"switch {nodes[dpid].name} ({dpid:#x}) has ports {_brief(ports)}, "
                f"in the fabric {fabric.spec or fabric.name} it has {_brief(expected)}"
            )
    missing = [n.name for d, n in nodes.items() if d not in seen]
    if complete and missing:
        return f"the fabric {fabric.spec or fabric.name} still lacks {', '.join(missing[:8])}"
    return ""


def _missing_tors(seen: Seen) -> str:
    """What is said where ToRs are missing, or ''. Before a fabric is built: one odd id would make
    it one of millions.
    """
    places = [(d >> 12 & 0xFFF, d & 0xFFF) for d in seen if TIERS[d >> 24] == "edge"]
    expected = math.prod(1 + max(numbers) for numbers in zip(*places, strict=True))
    there = len(places)
    return f"{there} of {expected} or more ToRs have connected" if there < expected else ""


def _values(kind: str, seen: Seen) -> dict[str, int | float]:
    """The builder's settings that these switches suggest."""
    place = {d: (TIERS[d >> 24], d >> 12 & 0xFFF, d & 0xFFF) for d in seen}

    def most(tier: str, which: int) -> int:
        return 1 + max((p[which] for p in place.values() if p[0] == tier), default=-1)

    pods, tors, planes = most("edge", 1), most("edge", 2), most("aggregation", 2)
    thin, cores = most("electrical", 2), most("core", 2)

    def widest(tier: str) -> int:
        return max((len(seen[d]) for d, p in place.items() if p[0] == tier), default=0)

    gpus = widest("edge") - planes - (thin > 0)
    if kind == "fat-tree":
        if (pods, gpus, planes, cores) == (2 * tors, tors, tors, tors):
            return {"k": pods}
        # as many as make so many core switches
        several = {"radix": max(map(len, seen.values()))} if cores > 1 else {}
        return _packet(pods, tors, gpus, planes) | several
    values = {"pods": pods, "tors": tors, "gpus": gpus, "planes": planes}
    values |= {"radix": max(widest("edge"), widest("electrical"))} if thin > 1 else {}
    return values if thin else {**values, "electrical": 0}


def _packet(pods: int, tors: int, gpus: int, planes: int) -> dict[str, int | float]:
    ratio = gpus / planes if planes else 0
    whole = int(ratio) if ratio == int(ratio) else ratio
    return {"pods": pods, "tors": tors, "gpus": gpus, "oversubscription": whole}


def _way_out(kind: str) -> str:
    other = "ecmp.py" if kind == "rfabric" else "ocs.py"
    return (
        f"wait for all switches, run controller/{other} if it is the other kind, or, for all "
        f"but rfabric and fat-tree, {NAME_IT}"
    )


def _brief(ports: Set[int]) -> str:
    ordered = sorted(ports)
    if ordered and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]}..{ordered[-1]}"
    return ", ".join(map(str, ordered)) or "none"

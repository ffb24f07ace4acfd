"""Policies: which circuits to have next. Pure: no clock, no I/O; the same object decides in the simulator and in Ryu.

    decide(demand, circuits, now, plan) -> Circuits

`demand` is what the phase that begins will send, `circuits` what is lit, `now` in s, `plan` the Demands of the phases to come.
Whether the answer is worth a rewire is the planner's question (`planner.intend`), not the policy's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import rustworkx

from ..errors import RFabricError
from ..fabric import Fabric
from ..units import transfer_seconds
from . import templates
from .circuits import Circuits, Demand
from .planes import Pair, light, planes
from .templates import Matchings

WEIGHT_STEPS = 10**9  # resolution of a matching's weights


class Policy(Protocol):
    """What every policy offers; `name` is what `--policy` calls it."""

    name: str

    def decide(self, demand: Demand, circuits: Circuits, now: float, plan: Sequence[Demand] = ()) -> Circuits: ...


@dataclass(frozen=True)
class Static:
    """One topology for the whole run: a mesh of all racks, lit at the start."""

    fabric: Fabric
    name: str = "static"

    def decide(self, demand: Demand, circuits: Circuits, now: float, plan: Sequence[Demand] = ()) -> Circuits:
        return circuits if len(circuits) else _lit(self.fabric, templates.mesh(self.fabric.racks, _count(self.fabric)))


@dataclass(frozen=True)
class ByDemand:
    """Plane by plane, the maximum-weight matching of what the planes before it leave worst served.

    A pair's weight is its demand (the busier direction: a circuit is duplex) over the circuits it would then have, as in
    D'Hondt's apportionment: the last circuit goes where it shortens the longest transfer. Circuits stay where that would
    not shorten the phase (`drain_seconds`) by more than the time they are dark.
    """

    fabric: Fabric
    name: str = "demand"

    def decide(self, demand: Demand, circuits: Circuits, now: float, plan: Sequence[Demand] = ()) -> Circuits:
        if not demand.bytes.any():
            return circuits
        wanted = _lit(self.fabric, _least_moved(self.fabric, matchings(demand, _count(self.fabric)), circuits))
        saved = drain_seconds(self.fabric, circuits, demand) - drain_seconds(self.fabric, wanted, demand)
        return wanted if saved > self.fabric.reconfig_delay else circuits


@dataclass(frozen=True)
class ByPhase:
    """A template for each phase: mesh among training racks, isolated pods for generation, a two-level tree for weight sync.

    Other phases, such as those of an imported trace, get the mesh among the racks that talk.
    """

    fabric: Fabric
    name: str = "phase"

    def decide(self, demand: Demand, circuits: Circuits, now: float, plan: Sequence[Demand] = ()) -> Circuits:
        count = _count(self.fabric)
        racks = np.array(demand.racks, dtype=object)
        sends, receives = demand.bytes.any(1), demand.bytes.any(0)
        if demand.phase == "generation":
            found = templates.isolated_pods(self.fabric, count)
        elif not sends.any():
            return circuits
        elif demand.phase == "weight_sync" and (receives & ~sends).any():
            found = templates.tree(*self._levels(racks, sends, receives), count)
        else:
            found = _best_rounds(demand, list(racks[sends | receives]), count)
        return _lit(self.fabric, _least_moved(self.fabric, found, circuits))

    def _levels(self, racks: np.ndarray, sends: np.ndarray, receives: np.ndarray) -> tuple[list[str], ...]:
        """Sources, relays and leaves of a tree: relays pass on what they get; where none does, they are the first pod's."""
        sources, relays, leaves = (
            list(racks[some]) for some in (sends & ~receives, sends & receives, receives & ~sends)
        )
        if not relays:
            pod = self.fabric.node[leaves[0]].pod
            relays = [rack for rack in leaves if self.fabric.node[rack].pod == pod]
            leaves = [rack for rack in leaves if rack not in relays]
        return sources, relays, leaves


POLICIES = {"static": Static, "demand": ByDemand, "phase": ByPhase}


def parse_policy(name: str, fabric: Fabric) -> Policy:
    """The policy called `name`, for `fabric`."""
    if name not in POLICIES:
        raise RFabricError(f"no policy named {name!r}; there are {', '.join(POLICIES)}")
    return POLICIES[name](fabric)


def drain_seconds(fabric: Fabric, circuits: Circuits, demand: Demand) -> float:
    """Seconds until the busiest light path has carried `demand`, split evenly over equal ways; inf where no way leads."""
    routes = fabric.routes(circuits)
    load = routes.ways.loads(demand.bytes)
    return float(transfer_seconds(load, routes.lights.rate).max(initial=0.0))


def matchings(demand: Demand, count: int) -> Matchings:
    """`count` matchings of the racks, each of maximum weight for demand / (circuits so far + 1)."""
    wanted = np.maximum(demand.bytes, demand.bytes.T)
    rows, columns = np.nonzero(np.triu(wanted))
    edge = {pair: i for i, pair in enumerate(zip(rows.tolist(), columns.tolist(), strict=True))}
    wanted, given, found = wanted[rows, columns], np.zeros(len(rows)), []
    for _ in range(count):
        weight = wanted / (given + 1)
        heaviest = weight.max(initial=1.0)
        graph = rustworkx.PyGraph()
        graph.add_nodes_from(demand.racks)
        shares = (weight / heaviest * WEIGHT_STEPS).astype(np.int64)  # the matching wants whole numbers
        graph.add_edges_from([(i, j, share) for (i, j), share in zip(edge, shares.tolist(), strict=True)])
        pairs = sorted(tuple(sorted(pair)) for pair in rustworkx.max_weight_matching(graph, weight_fn=int))
        given[[edge[pair] for pair in pairs]] += 1
        found.append([(demand.racks[i], demand.racks[j]) for i, j in pairs])
    return found


def _best_rounds(demand: Demand, racks: list[str], count: int) -> Matchings:
    """Of the tournament rounds of `racks`, the `count` that carry the most demand, all different while there are enough."""
    index = {r: i for i, r in enumerate(demand.racks)}
    both = demand.bytes + demand.bytes.T
    every = templates.rounds(racks)
    every.sort(key=lambda pairs: -sum(both[index[a], index[b]] for a, b in pairs))
    return [every[j % len(every)] for j in range(count)] if every else [[] for _ in range(count)]


def _count(fabric: Fabric) -> int:
    return len(planes(fabric))


def _lit(fabric: Fabric, found: Matchings) -> Circuits:
    return light(fabric, dict(zip(planes(fabric), found, strict=True)))


def _least_moved(fabric: Fabric, found: Matchings, circuits: Circuits) -> Matchings:
    """The same matchings dealt to planes so that as many circuits as possible stay, and free racks keep the ones they have."""
    lit = _pairs_by_plane(fabric, circuits)
    rest, dealt = [frozenset(map(_ordered, m)) for m in found], []
    for plane in planes(fabric):
        best = max(range(len(rest)), key=lambda i: (len(rest[i] & lit.get(plane, set())), -i))
        taken = rest.pop(best)
        busy = {rack for pair in taken for rack in pair}
        kept = {pair for pair in lit.get(plane, set()) if not busy & set(pair)}
        dealt.append(sorted(taken | kept))
    return dealt


def _pairs_by_plane(fabric: Fabric, circuits: Circuits) -> dict[int, set[Pair]]:
    """In each plane, the racks that `circuits` join."""
    cabling, lit = fabric.cabling, fabric.routes(circuits).lights
    some = np.flatnonzero((np.diff(lit.offsets) > 1) & (lit.out < lit.into))
    ends = (cabling.node[ports[some]].tolist() for ports in (lit.out ^ 1, lit.out, lit.into))
    pairs: dict[int, set[Pair]] = {}
    for first, a, b in zip(*ends, strict=True):
        pair = _ordered((fabric.nodes[a].name, fabric.nodes[b].name))
        pairs.setdefault(fabric.nodes[first].plane, set()).add(pair)
    return pairs


def _ordered(pair: Pair) -> Pair:
    return (min(pair), max(pair))

"""Rounds: a demand met by sets of circuits lit one after another, where a rack has more partners
than uplinks.

    round 0                    round 1                    round 2
    t1=t2 t3=t4  |-- delay --| t1=t3 t2=t4  |-- delay --| t1=t4 t2=t3   one uplink a rack, six pairs

A pair of racks that some round joins sends in those rounds only, its bytes split over them as its
circuits are; nobody relays. A pair that none joins sends on ordinary ways, in each round that has
one for it. A round lasts until its shares are sent; what comes next is known ahead, so a turn takes
no control time, only the OCS delay and settling. The idea of rewiring inside a collective is that
of SWOT (arXiv 2510.19322).

All planes turn together. In the fluid model planes that turn each for itself gain nothing on an
even all-to-all: each plane has the same rounds to light and as many turns to make, and one that
turns meanwhile sends nothing. In the exchanges of grpo-64-moe with ep 16 and 32 and pp 2, on 4
planes and on 2, they would have saved less than 0.02 % of the time that rounds send.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..fabric import Fabric
from ..fabric.cabling import cabling_of
from ..routing import routes_of
from ..routing.lightpaths import crossed
from .circuits import Circuits, Demand
from .policies import Policy
from .solvers import cables_join_all


@dataclass(frozen=True, eq=False)
class Rounds:
    """Circuits of round after round; `weight` int16[rounds, racks, racks]: in which of them a
    pair that is to send does so, and how much; one that is not may in any.
    """

    circuits: tuple[Circuits, ...]
    weight: np.ndarray


def decompositions(
    fabric: Fabric, policy: Policy, demand: Demand, circuits: Circuits
) -> list[Rounds]:
    """The ways in which `policy` would play a demand in rounds, those left out in which a pair
    could never send.
    """
    every = (
        _weighted(fabric, tuple(lit), demand)
        for lit in policy.rounds(demand, circuits)
        if len(lit) > 1
    )
    return [rounds for rounds in every if rounds]


def _weighted(fabric: Fabric, every: tuple[Circuits, ...], demand: Demand) -> Rounds | None:
    """None where a pair could never send."""
    met, racks = _met(fabric, every), len(fabric.racks)
    weight, joined = np.zeros(len(every) * racks**2, np.int16), np.zeros(racks**2, bool)
    np.add.at(weight, met, np.int16(1))
    joined[met % racks**2] = True
    weight, joined = weight.reshape(len(every), racks, racks), joined.reshape(racks, racks)
    rows, columns, _ = demand.sent
    if cables_join_all(fabric) or joined[rows, columns].all():
        weight[:, ~joined] = 1
        return Rounds(every, weight)
    reach = np.array([routes_of(fabric, circuits).ways.reach for circuits in every])
    np.copyto(weight, reach, where=~joined)
    return Rounds(every, weight) if weight[:, rows, columns].any(axis=0).all() else None


def joins(fabric: Fabric, circuits: Circuits) -> np.ndarray:
    """int64[racks, racks]: how many optical light paths lead from rack to rack."""
    racks = len(fabric.racks)
    return np.bincount(_met(fabric, [circuits]), minlength=racks**2).reshape(racks, racks)


def _met(fabric: Fabric, every: Sequence[Circuits]) -> np.ndarray:
    """Of each optical light path between racks the set of circuits, from which rack and to which:
    (set * racks + from) * racks + to. For many sets at once, and without all else that Routes know.
    """
    c, racks = cabling_of(fabric), len(fabric.racks)
    cross = np.array([crossed(fabric, circuits) for circuits in every])
    over = c.node.reshape(-1, 2)[:, ::-1].ravel()  # the node at the other end of the cable
    leaving = np.flatnonzero((c.rack[c.node] >= 0) & c.is_ocs[over])
    port = np.tile(leaving, len(every))
    number, origin = np.repeat(np.arange(len(every)), len(leaving)), c.rack[c.node[port]]
    met = [np.zeros(0, np.int64)]
    while len(port):  # circuits join ports one to one: what begins at a rack goes round no ring
        port = cross[number, port ^ 1]
        there = np.where(port >= 0, over[port], -1)
        rack, on = c.rack[there], (there >= 0) & c.is_ocs[there]
        here = (there >= 0) & (rack >= 0)
        met.append((number[here] * racks + origin[here]) * racks + rack[here])
        port, number, origin = port[on], number[on], origin[on]
    return np.concatenate(met)


def direct(fabric: Fabric, circuits: Circuits) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The optical light paths between racks: from which rack, to which, and the number of the light
    path.
    """
    c, lit = cabling_of(fabric), routes_of(fabric, circuits).lights
    # the last entry is for row -1, which stands for what is no packet switch
    rack_of = np.full(int(c.row.max(initial=-1)) + 2, -1)
    rack_of[c.rack_row] = np.arange(len(c.rack_row))
    src, dst = (rack_of[c.row[c.node[ports]]] for ports in (lit.out, lit.into))
    some = np.flatnonzero((np.diff(lit.offsets) > 1) & (src >= 0) & (dst >= 0))
    return src[some], dst[some], some

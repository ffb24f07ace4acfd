"""What is lit before a job begins, in both worlds: nobody waits for circuits then, however slow the
OCSes are.

    mesh of all racks  every policy starts with it
    one-shot           the policy is asked for the sum of all that the job sends, for what each
                       phase sends, and for the heaviest collectives. Of all that it offers, and
                       the mesh, those circuits are lit with which the job is predicted to spend
                       least time sending, by the ways of all flows
"""

from dataclasses import replace

import numpy as np

from ..fabric import Fabric
from ..optics import Circuits, Demand, Policy, parse_policy, refuse_disconnection
from ..optics.outlook import Outlook
from ..optics.planner import refuse_cut
from ..routing.rows import Entries
from ..routing.schemes import Routing
from .model import Trace
from .pairs import Pairs, PairWays

# the heaviest collectives, so many, that circuits are sought for: training has reduce, gather,
# all-to-all
MOST_COLLECTIVES = 4
# how much the rest of the job counts beside the part that circuits are sought for: not nothing, as
# none of it may be cut off
REST = 1e-3


def first_circuits(fabric: Fabric, trace: Trace, policy: Policy, routing: Routing) -> Circuits:
    """What is lit as the job begins.

    RFabricError when a policy asked one-shot finds nothing that joins all who send.
    """
    if not fabric.ocses:
        return Circuits()
    mesh = parse_policy("static", fabric).decide(Demand.none(fabric.racks), Circuits(), 0.0)
    if policy.granularity != "one-shot":
        return mesh
    answers = [
        lit.check(fabric)
        for demand in _asked(fabric, trace)
        for lit in policy.options(demand, mesh)
    ]
    rows, pairs = np.flatnonzero(trace.size > 0), Pairs(fabric, trace, routing)
    best = min(
        dict.fromkeys([mesh, *answers]),
        key=lambda lit: _seconds(trace, rows, PairWays(fabric, pairs, lit, routing)),
    )
    refuse_cut(fabric, best, [trace.demand_of(fabric, rows)])
    refuse_disconnection(fabric, best, trace.pairs())
    return best


def _asked(fabric: Fabric, trace: Trace) -> list[Demand]:
    """What one set of circuits might be made for: the whole job, each phase, the heaviest
    collectives; steps added up.
    """
    by_name: dict[tuple[str, ...], list[np.ndarray]] = {}
    for (_, phase, label), rows in trace.communication().items():
        for name in ((phase,), (phase, label)):
            by_name.setdefault(name, []).append(rows)
    every = {name: np.concatenate(rows) for name, rows in by_name.items()}
    by_bytes = sorted(every, key=lambda name: -trace.size[every[name]].sum())
    phases, collectives = ([name for name in by_bytes if len(name) == n] for n in (1, 2))
    whole = trace.demand_of(fabric, np.arange(len(trace)), phase="all")
    demands = [whole]
    for name in phases + collectives[:MOST_COLLECTIVES]:
        part = trace.demand_of(fabric, every[name])
        demands.append(replace(part, sent=_beside(part, whole), phase=name[0]))
    return demands


def _beside(part: Demand, whole: Demand) -> Entries:
    """What a part of the job sends, and of the rest of it REST."""
    (rows, columns, sent), racks = whole.sent, len(whole.racks)
    place = np.searchsorted(rows * racks + columns, part.sent.rows * racks + part.sent.columns)
    mine = np.zeros(len(sent))
    mine[place] = part.sent.bytes
    return Entries(rows, columns, mine + REST * (sent - mine))


def _seconds(trace: Trace, rows: np.ndarray, ways: PairWays) -> float:
    """Seconds that the job sends at least: the busiest link of each kind of collective, one kind
    after another; inf: no way.
    """
    kinds = trace.phase[rows].astype(np.int64) << 16 | trace.label[rows]
    load = ways.load(rows, trace.size[rows].astype(float), kinds)
    return float(Outlook.of_flows(ways.routes.fabric, [load]).alone[0])

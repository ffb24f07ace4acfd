"""How long planning takes, beside networkx's matching as the peer: one core, CPU seconds, median of
several.

    decide     a policy's whole answer on a fabric whose circuits are a mesh: solver, connection of
               stranded pairs, circuits with as few moves as possible, the time they need; of slots
               the whole cycle, of rounds every way to play them
    joint      what OrchestrRL's planner decides on the answers of a fabric: JOINT_REQUESTS
               responses on JOINT_SEATS servers; plans proposed and asked for, one chosen
    one plane  the maximum-weight matching of the heaviest edges alone, ours and
               networkx's on the same edges; equal weight is checked

Demands, of which each policy has one that it was made for, and two that are hard to match:

    rings       what data-parallel training sends: each rack to racks 1, 2, 4 and 8 further on
    all-to-all  a log-normal amount between every two racks, the worst a planner can be asked
    answers     generation whose racks answer one another: each of one half and four of the other
    sync        new weights: every eighth rack to all that do not train
    experts     an all-to-all to experts some of whom all ask for much more than for others
    hot         one rack sends each other one much, those send each other little
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from statistics import median
from typing import Any

import numpy as np

from ..errors import RFabricError
from ..fabric import Fabric, rfabric
from ..optics import POLICIES as EVERY
from ..optics import Circuits, Demand, Policy, parse_policy
from ..optics.rounds import decompositions
from ..optics.solvers import asked, best_matching
from ..report.compare import Table
from ..rl import read_recipe
from ..routing.paths import forget
from ..schedulers.networks import foreseen
from ..schedulers.orchestrrl import Tuning, engines_of
from ..schedulers.orchestrrl.negotiation import Alive, Kv, Places, Settled, settle
from ..schedulers.orchestrrl.outlook import forecast, outlook
from ..schedulers.orchestrrl.replanning import Problem, replan
from ..schedulers.orchestrrl.seats import Seats

SHAPES = {
    64: {"pods": 8, "tors": 8},
    128: {"pods": 16, "tors": 8},
    256: {"pods": 16, "tors": 16},
    1024: {"pods": 32, "tors": 32},
}
JOINT_RACKS, JOINT_SEATS, JOINT_REQUESTS = 128, 64, 4096
PLANES = 8
POLICIES = tuple(name for name in EVERY if name != "static")
IN_TURN = "demand,granularity=time-slotted", "demand,granularity=intra-collective"
PHASES = {  # of each demand
    "rings": "training",
    "all-to-all": "training",
    "answers": "generation",
    "sync": "weight_sync",
    "experts": "training",
    "hot": "training",
}
TRIES, LONG_S = 3, 3.0  # s: what takes longer is not tried again
CASES = (
    *(f"planning-{racks}-{kind}" for racks in (64, 256, 1024) for kind in PHASES),
    f"planning-{JOINT_RACKS}-joint",
)
APART = "-in-turn"  # of the name of a case: slots and rounds, some of which take minutes
IN_TURN_CASES = tuple(f"{case}{APART}" for case in CASES[:-1])


@dataclass(frozen=True)
class PlanningRow:
    """One policy on one case: CPU seconds of `decide`, and how many sets of circuits it gave
    (several for slots and rounds); of one plane's matching, ours and the peer's (None: not run).
    """

    case: str
    racks: int
    rack_pairs: int
    policy: str
    decide_s: float
    sets: int
    circuits_changed: int
    plane_s: float | None = None
    networkx_plane_s: float | None = None


def measure(
    cases: Iterable[str] = CASES,
    *,
    peer: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> list[PlanningRow]:
    """Every policy on each case, or every way to take turns; the peer beside `matching`.
    RFabricError for a case that there is not.
    """
    rows = []
    for case in cases:
        if case not in (known := (*CASES, *IN_TURN_CASES)):
            raise RFabricError(f"no benchmark {case!r}: choose from {', '.join(known)}")
        _, racks, kind = case.removesuffix(APART).split("-", 2)
        if kind == "joint":
            progress(case)
            rows.append(_joint(case))
            continue
        fabric, wanted = _fabric(int(racks)), demand(int(racks), kind)
        for policy in IN_TURN if case.endswith(APART) else POLICIES:
            progress(f"{case}, {policy}")
            rows.append(_measured(case, fabric, wanted, policy, peer))
    return rows


def demand(racks: int, kind: str) -> Demand:
    """The demand of a case; the same numbers every time."""
    every, sent = np.arange(racks), np.zeros((racks, racks))
    rng = np.random.default_rng(racks)
    if kind == "rings":
        for far, size in ((1, 4e10), (2, 3e10), (4, 2e10), (8, 1e10)):
            sent[every, (every + far) % racks] = size
    elif kind == "all-to-all":
        sent = 1e9 * rng.lognormal(0, 1, (racks, racks))
    elif kind == "answers":
        half = racks // 2
        for far in range(4):
            one, other = every[:half], half + (every[:half] + far) % half
            sent[one, other] = sent[other, one] = 1e10
    elif kind == "experts":
        wanted = np.outer(rng.lognormal(0, 0.2, racks), (1 + rng.permutation(racks)) ** -0.6)
        sent = 1e9 * wanted * rng.lognormal(0, 0.3, (racks, racks))
    elif kind == "hot":
        sent = 1e8 * rng.random((racks, racks))
        sent[3] = 2e10 * rng.random(racks)
    else:
        sent[: racks // 8, racks // 8 :] = 1e9
    np.fill_diagonal(sent, 0)
    return Demand(_fabric(racks).racks, sent, phase=PHASES[kind])


@cache
def _fabric(racks: int) -> Fabric:
    return rfabric(**SHAPES[racks], gpus=PLANES, planes=PLANES)


def _joint(case: str) -> PlanningRow:
    """One decision, in which the network is found slower than its cards."""
    fabric = _fabric(JOINT_RACKS)
    seats, p, kv = joint(fabric)

    def anew() -> Settled:
        _fresh(fabric)
        return settle(seats, p, kv, lambda some: replan(some, seats.tuning.hysteresis), ())

    seconds, settled = _timed(anew)
    racks = zip(settled.sends.src, settled.sends.dst, strict=True)  # a server each
    pairs = len({(a // PLANES, b // PLANES) for a, b in racks})
    return PlanningRow(case, len(fabric.racks), pairs, "orchestrrl", seconds, 0, 0)


def joint(fabric: Fabric) -> tuple[Seats, Problem, Kv]:
    """The decision of `planning-128-joint`, where a few seats hold most of the responses."""
    half = len(fabric.hosts) // 2
    sizes = (f"cluster.{pool}_gpus={half}" for pool in ("training", "generation"))
    w = read_recipe("grpo-64", [*sizes, "generation.tp=8", "generation.batch=512"])
    seats = Seats(w, engines_of(w), Tuning(), foreseen(fabric))
    rng, n = np.random.default_rng(0), JOINT_REQUESTS
    seat = (JOINT_SEATS * rng.beta(1, 3, n)).astype(int)
    context, made = rng.integers(2000, 12000, n), rng.integers(500, 2000, n)
    expected = forecast([rng.lognormal(8, 1, n).clip(1, 16384)] * 2, 16384)
    seen = outlook(seats.engines, expected, made, context, seats.count, seats.tuning.switch_s)
    cut = np.full(seats.count, len(seats.engines.cuts) - 1)
    at = Places.of_seats(seats)
    every = np.ones(n, bool)
    kv = Kv.of(seats, int(cut[0]), Alive(np.arange(n), seat, context, made, every), at, at)
    room = np.array(seats.engines.kv_tokens, float) * seats.engines.replicas
    p = Problem(
        seen.fixed, seen.work, context.astype(float), room, kv.price(1.0), seat, cut,
        seats.tuning.switch_s,
    )  # fmt: skip
    return seats, p, kv


def _measured(case: str, fabric: Fabric, wanted: Demand, name: str, peer: bool) -> PlanningRow:
    start = parse_policy("static", fabric).decide(Demand.none(fabric.racks), Circuits(), 0.0)
    policy = parse_policy(name, fabric)

    def anew() -> Sequence[Circuits]:
        _fresh(fabric)
        return _planned(fabric, policy, replace(wanted), start)

    seconds, lit = _timed(anew)
    plane = _one_plane(fabric, wanted, peer) if name == "matching" else (None, None)
    changed = len(lit[0].items ^ start.items) if lit else 0
    pairs = len(wanted.sent.bytes)
    return PlanningRow(case, len(fabric.racks), pairs, name, seconds, len(lit), changed, *plane)


def _planned(fabric: Fabric, policy: Policy, wanted: Demand, start: Circuits) -> Sequence[Circuits]:
    """The circuits that a policy wants; of slots those of a cycle, of rounds those of each way."""
    if policy.granularity == "time-slotted":
        return policy.cycle(wanted, start)
    if policy.granularity == "intra-collective":
        ways = decompositions(fabric, policy, wanted, start)
        return [circuits for way in ways for circuits in way.circuits]
    return [policy.decide(wanted, start, 0.0)]


def _fresh(fabric: Fabric) -> None:
    """Forget what was answered, and the ways under circuits seen: a plan works out its own."""
    forget(fabric)
    fabric.memo.pop("policies", None)


def _one_plane(fabric: Fabric, wanted: Demand, peer: bool) -> tuple[float, float | None]:
    a = asked(fabric, wanted)
    edges = np.flatnonzero(a.open_in(0))
    ours, best = _timed(lambda: best_matching(a, edges, a.wanted[edges]))
    if not peer:
        return ours, None
    import networkx as nx

    graph = nx.Graph()
    graph.add_weighted_edges_from(
        zip(
            a.rows[edges].tolist(), a.columns[edges].tolist(), a.wanted[edges].tolist(), strict=True
        )
    )
    theirs, pairs = _timed(lambda: nx.max_weight_matching(graph), tries=0)
    weight = sum(graph.edges[pair]["weight"] for pair in pairs)
    if abs(weight - a.wanted[best].sum()) > 1e-6 * weight:
        raise RFabricError(
            f"matchings differ: networkx {weight:.9g} bytes, ours {a.wanted[best].sum():.9g}"
        )
    return ours, theirs


def _timed(call: Callable, tries: int = TRIES) -> tuple[float, Any]:
    """Seconds and answer of a call. The first time works out what is kept about a fabric, and is no
    try where others follow.
    """
    times: list[float] = []
    while not times or (len(times) <= tries and times[0] < LONG_S):
        begin = time.process_time()
        answer = call()
        times.append(time.process_time() - begin)
    return median(times[1:] or times), answer


def table(rows: Iterable[PlanningRow]) -> Table:
    """Milliseconds, a line for each case and policy."""
    cells = [
        (
            f"{r.racks:,} ToRs x {PLANES} planes",
            r.case.removesuffix(APART).split("-", 2)[2],
            f"{r.rack_pairs:,}",
            r.policy,
            f"{r.sets:,}" if r.sets else "",
            f"{r.circuits_changed:,}",
            *map(_ms, _times(r)),
        )
        for r in rows
    ]
    columns = (
        "fabric",
        "demand",
        "rack pairs",
        "policy",
        "sets",
        "changed",
        "decide",
        "one plane",
        "networkx",
    )
    note = (
        "CPU time of one core. "
        "One plane: one maximum-weight matching, ours and networkx's on the same edges."
    )
    return Table.of("Planning", columns, cells, note, (0, 1, 3))


def _times(row: PlanningRow) -> tuple[float | None, ...]:
    return row.decide_s, row.plane_s, row.networkx_plane_s


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:,.1f} ms"


def to_json(rows: Iterable[PlanningRow]) -> list[dict]:
    """The rows for machines."""
    return [asdict(row) for row in rows]

"""What circuits are worth: stage by stage, the time that they and the ways over them need, beside
what the hardware could do at best.

completion  seconds with a flow of the stage in flight beside all others, its rewires' delay taken
            off, as predicted from what is
            computed and sent, the circuits of each stage, and the ways that routing chose
            (`forecast`)
simulated   the same seconds, as the flow-level world had them
bound       the least time of this fabric's hardware (`optics.bound`); of a fabric without OCS, its
            cut and card bounds
gap         completion / bound - 1
delay       of the stage's rewires, as simulated: hidden beside compute and other flows, or exposed

Every stage is proved (`optics.check`): each pair that sends arrives without a loop under its
circuits, and during its rewire too, unless it is held. RunError where one does not.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ..errors import RFabricError, RunError
from ..fabric import Fabric
from ..optics import Circuits, parse_policy
from ..optics.bound import bound
from ..optics.check import faults, faults_during
from ..report.planning import StageCircuits
from ..report.result import Result, union_seconds
from ..routing.schemes import Routing
from ..trace import Stage, Traffic, routing_of, stage_demand, stages
from .forecast import Forecast, StageRewire, forecast
from .run import Case, RunSettings, simulated

INSTANT = 1e-9  # s: what a run does at one time


def stage_circuits(
    case: Case,
    traffic: Traffic,
    settings: RunSettings = RunSettings(),
    tell: Callable[[dict], None] = lambda _: None,
) -> list[StageCircuits]:
    """Every stage that sends or was rewired for, in the order in which stages begin."""
    fabric, policy = case.fabric, case.policy_name
    asked = parse_policy(case.policy, fabric)
    if asked.granularity == "time-slotted":
        raise RFabricError(
            f"policy {policy}: `rfabric circuits` shows one set of circuits a stage; "
            "`rfabric simulate` turns slots"
        )
    if asked.granularity == "intra-collective":
        raise RFabricError(
            f"policy {policy}: `rfabric circuits` shows one set of circuits a stage; `rfabric "
            "simulate` plays rounds, and --policy demand,granularity=per-collective shows the set "
            "that they are weighed against"
        )
    result = simulated(case, traffic, settings, lambda _, news: tell(news))
    trace = result.trace
    chosen = routing_of(settings.routing, fabric, trace)
    every = stages(trace, asked.granularity)
    turns = _turns(result, every)
    foreseen = forecast(fabric, trace, chosen, every, result.epochs[0][1], turns, settings.timing)
    made = []
    for number, stage in enumerate(every):
        mine = [k for k, turn in enumerate(turns) if turn.stage == number]
        if mine or (trace.size[stage.rows] > 0).any():
            tell({"stage": "bound", "phase": str(stage)})
            made.append(_of_stage(result, chosen, stage, mine, foreseen))
    return made


def _turns(result: Result, every: Sequence[Stage]) -> list[StageRewire]:
    """The rewires of a run, each for the stage of its name that had begun last as it was
    requested.
    """
    begun = [float(result.ready[stage.entries].min(initial=np.inf)) for stage in every]
    turns = []
    for record, (_, circuits) in zip(result.rewires, result.epochs[1:], strict=True):
        named = [i for i, stage in enumerate(every) if str(stage) == record.phase]
        before = [i for i in named if begun[i] <= record.requested + INSTANT]
        turns.append(
            StageRewire(max(before, key=begun.__getitem__) if before else named[0], circuits)
        )
    return turns


def _of_stage(
    result: Result, routing: Routing, stage: Stage, turns: Sequence[int], foreseen: Forecast
) -> StageCircuits:
    """One stage; `turns`: numbers of its rewires.

    RunError where its circuits do not carry what it sends.
    """
    fabric, trace = result.fabric, result.trace
    rows = stage.rows[trace.size[stage.rows] > 0]
    rewires = tuple(result.rewires[k] for k in turns)
    since = rewires[-1].usable if rewires else float(result.start[rows].min())
    circuits, pairs = _lit_at(result.epochs, since), trace.pairs(rows)
    before = _lit_at(result.epochs, rewires[-1].requested) if rewires else None
    _prove(fabric, str(stage), pairs, routing, circuits, before)
    demand = stage_demand(trace, fabric, stage)
    return StageCircuits(
        str(stage),
        demand,
        circuits,
        in_flight(foreseen.start[rows], foreseen.finish[rows], [foreseen.turns[k] for k in turns]),
        in_flight(
            result.start[rows], result.finish[rows], [(r.requested, r.usable) for r in rewires]
        ),
        bound(fabric, demand),
        rewires,
    )


def in_flight(
    start: np.ndarray, finish: np.ndarray, rewires: Sequence[tuple[float, float]] = ()
) -> float:
    """Seconds in which one of the flows was in flight, but those between `requested` and `usable`
    of `rewires`.
    """
    if not np.isfinite(finish).all():
        return float("inf")
    dark = (union_seconds(start.clip(*times), finish.clip(*times)) for times in rewires)
    return union_seconds(start, finish) - sum(dark)


def _prove(
    fabric: Fabric,
    stage: str,
    pairs: Sequence[tuple[str, str]],
    routing: Routing,
    circuits: Circuits,
    before: Circuits | None,
) -> None:
    """RunError where a pair of the stage does not arrive, under its circuits or while they come
    about.
    """
    wrong = faults(fabric, circuits, pairs, routing)
    if before is not None:
        wrong += faults_during(fabric, before, circuits, pairs, routing)[1]
    if wrong:
        raise RunError(f"{stage}: {len(wrong)} faults in its circuits, first {wrong[0]}")


def _lit_at(epochs: Sequence[tuple[float, Circuits]], time: float) -> Circuits:
    return next((circuits for at, circuits in reversed(epochs) if at <= time + INSTANT), Circuits())

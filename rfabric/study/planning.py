"""What a plan is worth: stage by stage, the time its circuits and ways need, beside what the hardware could do at best.

completion   busiest cable of each wave (flows that could start at one time), on the ways that routing chose; waves add up
simulated    seconds in which a flow of the stage was in flight, beside all others, its rewire's delay taken off
bound        the least time of this fabric's hardware (`optics.bound`); of a fabric without OCS, its cut and card bounds
gap          completion / bound - 1
delay        of the stage's rewire, as simulated: hidden beside compute and other flows, or exposed

Every stage is proved (`optics.check`): each pair that sends arrives without a loop under its circuits, and during its rewire too,
unless it is held. RunError where one does not.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ..errors import RFabricError, RunError
from ..fabric import Fabric
from ..fabric.schemes import DEFAULT_SCHEME, Routing
from ..optics import Circuits, RewireRecord, Timing, parse_policy
from ..optics.bound import bound
from ..optics.check import faults, faults_during
from ..optics.outlook import Outlook
from ..report.planning import Planned
from ..report.result import union_seconds
from ..simulate.world import simulate
from ..trace import Stage, Trace, routing_of, stage_demand, stages
from ..trace.pairs import Pairs, PairWays


def plan(
    fabric: Fabric,
    trace: Trace,
    policy: str = "own",
    *,
    routing: str = DEFAULT_SCHEME,
    timing: Timing = Timing(),
    repetitions: str = "folded",
    progress: Callable[[dict], None] | None = None,
) -> list[Planned]:
    """Every stage that sends between racks, in the order in which stages begin."""
    asked = parse_policy(policy, fabric)
    if asked.granularity == "time-slotted":
        raise RFabricError(f"policy {policy}: a plan shows one set of circuits a stage; `rfabric simulate` turns slots")
    if asked.granularity == "intra-collective":
        raise RFabricError(
            f"policy {policy}: a plan shows one set of circuits a stage; `rfabric simulate` plays rounds, and --policy "
            f"demand,granularity=per-collective shows the set that they are weighed against"
        )
    result = simulate(
        fabric, trace, policy, routing=routing, timing=timing, repetitions=repetitions, progress=progress
    )  # fmt: skip
    trace = result.trace
    every = [stage for stage in stages(trace, asked.granularity) if (trace.size[stage.rows] > 0).any()]
    begin = [float(result.start[stage.rows[trace.size[stage.rows] > 0]].min()) for stage in every]
    rewires = {_stage_of(record, every, begin): record for record in result.rewires}
    chosen, found, wave = routing_of(routing, fabric, trace), [], waves(trace)
    for i, stage in enumerate(every):
        demand = stage_demand(trace, fabric, stage)
        if not demand.idle:
            if progress:
                progress({"stage": "bound", "phase": str(stage)})
            record, rows = rewires.get(i), stage.rows[trace.size[stage.rows] > 0]
            circuits = _lit_at(result.epochs, record.usable if record else begin[i])
            pairs = trace.pairs(rows)
            _prove(
                fabric,
                str(stage),
                pairs,
                chosen,
                circuits,
                _lit_at(result.epochs, record.requested) if record else None,
            )
            seconds = completion(fabric, circuits, chosen, trace, rows, wave)
            took = union_seconds(np.maximum(result.start[rows], record.usable if record else 0.0), result.finish[rows])
            found.append(Planned(str(stage), demand, circuits, seconds, took, bound(fabric, demand), record))
    return found


def waves(trace: Trace) -> np.ndarray:
    """int64[rows]: rows of one label that could start at the same microsecond on a network without delay share a number."""
    ready, _ = trace.compute_only()
    start = np.round(np.maximum(ready + trace.gap, trace.start) * 1e6).astype(np.int64)
    return np.unique(np.stack((start, trace.label)), axis=1, return_inverse=True)[1].ravel()


def completion(
    fabric: Fabric, circuits: Circuits, routing: Routing, trace: Trace, rows: np.ndarray, wave: np.ndarray
) -> float:
    """Seconds that `rows` need one `wave` after the other, each as long as its busiest directed link."""
    ways = PairWays(fabric, Pairs(fabric, trace, routing), circuits, routing)
    load = ways.load(rows, trace.size[rows].astype(float), wave[rows])
    return float(Outlook.of_flows(fabric, [load]).least[0])


def _prove(
    fabric: Fabric,
    stage: str,
    pairs: Sequence[tuple[str, str]],
    routing: Routing,
    circuits: Circuits,
    before: Circuits | None,
) -> None:
    """RunError where a pair of the stage does not arrive, under its circuits or while they come about."""
    wrong = faults(fabric, circuits, pairs, routing)
    if before is not None:
        wrong += faults_during(fabric, before, circuits, pairs, routing)[1]
    if wrong:
        raise RunError(f"{stage}: {len(wrong)} faults in its plan, first {wrong[0]}")


def _stage_of(record: RewireRecord, every: Sequence[Stage], begin: Sequence[float]) -> int:
    """The stage a rewire was for: of its name, the first that sent after the request."""
    named = [i for i, stage in enumerate(every) if str(stage) == record.phase]
    return min((i for i in named if begin[i] >= record.requested - 1e-9), key=begin.__getitem__, default=named[-1])


def _lit_at(epochs: Sequence[tuple[float, Circuits]], time: float) -> Circuits:
    return next((circuits for at, circuits in reversed(epochs) if at <= time + 1e-9), Circuits())


def busiest_seconds(fabric: Fabric, circuits: Circuits, routing: Routing, trace: Trace, rows: np.ndarray) -> float:
    """Seconds that the busiest directed link needs for all bytes of `rows` on the ways that `routing` chose."""
    return completion(fabric, circuits, routing, trace, rows, np.zeros(len(trace), np.int64))

"""Whether what a stranger's scheduler returned can be: each of these is an error that names its
file, what is wrong and where to look.
"""

import json
import math
from collections.abc import Sequence
from numbers import Integral, Real

from ..errors import RFabricError
from ..plugins import KINDS, file_of, name_in, place_of
from ..rl.phases import Step
from ..rl.plan import Phase, Plan
from ..rl.workload import Workload
from ..trace import PhaseKey, Span, Trace
from .base import Scheduled

SEE = f"see {KINDS['schedulers'].example}"


def check_made(made: Scheduled, head: str, by: object = None) -> None:
    """RFabricError where a part of it is not what it should be, or is at no time or on no GPU of
    the job; `head`: FILE.py[:NAME], `by`: the scheduler there.
    """
    where = place_of(file_of(head), by)
    who = f"{where}: {name_in(head) or 'it'} returned a Scheduled"
    for part, wanted in (("workload", Workload), ("plan", Plan), ("trace", Trace), ("facts", dict)):
        if not isinstance(value := getattr(made, part), wanted):
            raise RFabricError(f"{who} whose {part} is {value!r}, no {wanted.__name__}; {SEE}")
    _check_tuple(who, "steps", made.steps, Step)
    if len(made.steps) != made.workload.steps:
        raise RFabricError(
            f"{who} of {len(made.steps)} steps, whose workload has {made.workload.steps}; draw "
            f"each of them with `step_of`, or change steps of the workload; {SEE}"
        )
    _check_plan(made, who)
    _check_spans(made, who)
    for key, value in made.facts.items():
        _check_fact(key, value, who)


def _check_tuple(who: str, part: str, every: object, wanted: type) -> None:
    if not isinstance(every, (tuple, list)) or not all(isinstance(x, wanted) for x in every):
        raise RFabricError(f"{who} whose {part} are no tuple of {wanted.__name__}s; {SEE}")


def _check_plan(made: Scheduled, who: str) -> None:
    """RFabricError for a plan of no phases, or forecasts that are no times."""
    _check_tuple(who, "plan.phases", made.plan.phases, Phase)
    if not made.plan.phases:
        raise RFabricError(f"{who} whose plan has no phases; `of_steps` makes them; {SEE}")
    for phase in made.plan.phases:
        where = f"{who} whose plan has {phase.kind} of step {phase.step}, which"
        _check_name(where, "kind", phase.kind)
        _check_step(where, phase.step, made.workload)
        _check_times(where, start=phase.start, seconds=phase.seconds, comm=phase.comm)
        _check_gpus(where, phase.gpus, made.workload)
    for key, window in made.trace.windows.items():
        if not isinstance(key, PhaseKey):
            raise RFabricError(f"{who} whose trace foresees {key!r}, no PhaseKey; {SEE}")
        if not (isinstance(window, Real) and window >= 0):  # they may be without end
            raise RFabricError(
                f"{who} whose trace foresees a window of {window!r} s for {key}; it must be 0 or "
                f"more; {SEE}"
            )


def _check_spans(made: Scheduled, who: str) -> None:
    """RFabricError for what cannot be drawn: of no pool of the job, or on no GPU."""
    _check_tuple(who, "spans", made.spans, Span)
    for span in made.spans:
        where = f"{who} whose span {span.what} of step {span.step}"
        _check_name(where, "what", span.what)
        _check_name(where, "pool", span.pool)
        _check_step(where, span.step, made.workload)
        _check_times(where, start=span.start, seconds=span.seconds)
        _check_gpus(where, span.gpus, made.workload)
        if not span.gpus:
            raise RFabricError(f"{where} is on no GPU; leave it out, or name some; {SEE}")
        if span.pool not in made.pools:
            raise RFabricError(
                f"{where} is of pool {span.pool!r}; the job has {', '.join(made.pools)}; {SEE}"
            )


def _check_name(where: str, part: str, value: object) -> None:
    if not isinstance(value, str):
        raise RFabricError(f"{where} has {part} {value!r}; it must be text; {SEE}")


def _check_step(where: str, step: object, w: Workload) -> None:
    if not (isinstance(step, Integral) and 0 <= step < w.steps):
        raise RFabricError(f"{where} is of no step of the job, 0 to {w.steps - 1}; {SEE}")


def _check_times(where: str, **times: object) -> None:
    for name, value in times.items():
        if not (isinstance(value, Real) and math.isfinite(value) and value >= 0):
            raise RFabricError(f"{where} has {name} {value!r} s; it must be 0 or more; {SEE}")


def _check_gpus(where: str, gpus: object, w: Workload) -> None:
    if not isinstance(gpus, Sequence) or not all(isinstance(gpu, Integral) for gpu in gpus):
        raise RFabricError(f"{where} is on GPUs {gpus!r}; write their numbers, a tuple; {SEE}")
    beyond = [gpu for gpu in gpus if not 0 <= gpu < w.gpus]
    if beyond:
        raise RFabricError(
            f"{where} is on GPU {beyond[0]}; the job has GPUs 0 to {w.gpus - 1}; {SEE}"
        )


def _check_fact(key: object, value: object, who: str) -> None:
    """RFabricError for what a run folder cannot keep; numbers of numpy are no JSON."""
    if not isinstance(key, str):
        raise RFabricError(f"{who} whose facts have the key {key!r}; keys are text; {SEE}")
    try:
        json.dumps({key: value}, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RFabricError(
            f"{who} whose facts are no JSON: {key!r}: {error}; facts are text, numbers, true and "
            "false, lists and dicts of these: say int(...), float(...) or .tolist()"
        ) from error

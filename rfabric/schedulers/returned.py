"""Whether what a stranger's scheduler returned can be: each of these is an error that names its
file, what is wrong and where to look.
"""

import json
import math
from collections.abc import Sequence

from ..errors import RFabricError
from ..plugins import KINDS, file_of, name_in
from ..rl.phases import Step
from ..rl.plan import Plan
from ..rl.workload import Workload
from ..trace import Span, Trace
from .base import Scheduled

SEE = f"see {KINDS['schedulers'].example}"


def check_made(made: Scheduled, head: str) -> None:
    """RFabricError where a part of it is not what it should be, or is at no time or on no GPU of
    the job; `head`: FILE.py[:NAME].
    """
    who = f"{file_of(head)}: {name_in(head) or 'it'} returned a Scheduled"
    for part, wanted in (("workload", Workload), ("plan", Plan), ("trace", Trace), ("facts", dict)):
        if not isinstance(value := getattr(made, part), wanted):
            raise RFabricError(f"{who} whose {part} is {value!r}, no {wanted.__name__}; {SEE}")
    for part, wanted in (("steps", Step), ("spans", Span)):
        every = getattr(made, part)
        if not isinstance(every, (tuple, list)) or not all(isinstance(x, wanted) for x in every):
            raise RFabricError(f"{who} whose {part} are no tuple of {wanted.__name__}s; {SEE}")
    _check_plan(made, who)
    for span in made.spans:
        where = f"{who} whose span {span.what} of step {span.step}"
        _check_times(where, start=span.start, seconds=span.seconds)
        _check_gpus(where, span.gpus, made.workload)
    for key, value in made.facts.items():
        _check_fact(key, value, who)


def _check_plan(made: Scheduled, who: str) -> None:
    """RFabricError for a plan of no phases, or forecasts that are no times."""
    if not made.plan.phases:
        raise RFabricError(f"{who} whose plan has no phases; `of_steps` makes them; {SEE}")
    for phase in made.plan.phases:
        where = f"{who} whose plan has {phase.kind} of step {phase.step}, which"
        _check_times(where, start=phase.start, seconds=phase.seconds, comm=phase.comm)
        _check_gpus(where, phase.gpus, made.workload)
    for key, window in made.trace.windows.items():
        if not window >= 0:  # they may be without end
            raise RFabricError(
                f"{who} whose trace foresees a window of {window!r} s for {key}; it must be 0 or "
                f"more; {SEE}"
            )


def _check_times(where: str, **times: float) -> None:
    for name, value in times.items():
        if not (math.isfinite(value) and value >= 0):
            raise RFabricError(f"{where} has {name} {value!r} s; it must be 0 or more; {SEE}")


def _check_gpus(where: str, gpus: Sequence[int], w: Workload) -> None:
    beyond = [gpu for gpu in gpus if not 0 <= gpu < w.gpus]
    if beyond:
        raise RFabricError(
            f"{where} is on GPU {beyond[0]}; the job has GPUs 0 to {w.gpus - 1}; {SEE}"
        )


def _check_fact(key: object, value: object, who: str) -> None:
    """RFabricError for what a run folder cannot keep; numbers of numpy are no JSON."""
    try:
        json.dumps({key: value}, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RFabricError(
            f"{who} whose facts are no JSON: {key!r}: {error}; facts are text, numbers, true and "
            "false, lists and dicts of these: say int(...), float(...) or .tolist()"
        ) from error

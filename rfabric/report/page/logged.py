"""A run that was logged beside those that were simulated or emulated: "your run" on the page.

    {name, which, phases: [{phase, logged_s, runs: [{predicted_s, error}]}]}

Predicted is the mean of the run's steps; the error is predicted over logged, less 1. A log says
how long a phase took, not when: on the page it begins where it begins on the chosen fabric.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import RFabricError
from ...units import show_time
from ..compare import PHASE_NAMES, Table
from ..result import Result
from ..summary import Run, steps_of

STEP = "step"


@dataclass(frozen=True)
class LoggedRun:
    """Seconds by phase (`generation`, `training`, `weight_sync`, `step`) that a log tells.

    name: of the log. which: of its steps, in words, such as `mean of 12 steps`.
    """

    name: str
    which: str
    seconds: dict[str, float]


def beside(logged: LoggedRun, runs: Sequence[Run]) -> dict:
    """The document of a logged run; RFabricError where the two have no phase in common."""
    every = [_predicted(run.result) for run in runs]
    if any(len(run.result.trace.provenance.get("held", ())) > 1 for run in runs):
        raise RFabricError(
            f"{logged.name}: is the log of one job, the run holds several; simulate that job alone"
        )
    phases = [p for p in every[0] if p in logged.seconds and all(p in one for one in every)]
    if not set(phases) - {STEP}:
        raise RFabricError(
            f"{logged.name}: no phase in common: the log tells {_names(logged.seconds)}, the run "
            f"has {_names(every[0])}; give the log of such a job, or simulate that job's recipe"
        )
    return {
        "name": logged.name,
        "which": logged.which,
        "phases": [_phase(p, logged.seconds[p], [one[p] for one in every]) for p in phases],
    }


def _names(seconds: dict[str, float]) -> str:
    return ", ".join(PHASE_NAMES.get(p, p) for p in seconds if p != STEP) or "none"


def _phase(phase: str, logged: float, predicted: Sequence[float]) -> dict:
    runs = [{"predicted_s": s, "error": s / logged - 1 if logged else None} for s in predicted]
    return {"phase": phase, "logged_s": logged, "runs": runs}


def _predicted(result: Result) -> dict[str, float]:
    """Mean seconds of each phase, and of a step."""
    names = dict.fromkeys(phase.key.phase or "flows" for phase in result.phases)
    means = {
        name: float(np.mean([p.seconds for p in result.phases if (p.key.phase or "flows") == name]))
        for name in names
    }
    return means | {STEP: result.step_seconds / steps_of(result)}


def table(document: dict, names: Sequence[str]) -> Table:
    """Logged seconds beside those of each run, called by `names`, and the error."""
    columns = ["phase", "logged"]
    columns += [text for name in names for text in (name, "error")]
    rows = [
        (
            PHASE_NAMES.get(phase["phase"], phase["phase"]),
            show_time(phase["logged_s"]),
            *_cells(phase["runs"]),
        )
        for phase in document["phases"]
    ]
    note = "Error: predicted over logged, less 1; predicted is the mean of the run's steps."
    title = f"Your run: {document['name']}, {document['which']}"
    return Table.of(title, columns, rows, note)


def _cells(runs: Sequence[dict]) -> list[str]:
    return [
        text
        for one in runs
        for text in (
            show_time(one["predicted_s"]),
            "–" if one["error"] is None else f"{one['error']:+.1%}",
        )
    ]

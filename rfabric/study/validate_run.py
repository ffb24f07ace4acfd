"""A recipe's predicted phases beside those a job logged, and what a faster fabric could shorten.

What a fabric can shorten is the part of a phase in which bytes are awaited: predicted, at the speed
of the network cards. The share that it has of the predicted phase is taken of the logged one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isclose
from pathlib import Path

import numpy as np

from ..report.compare import PHASE_NAMES
from ..rl.plan import step_period, step_within
from ..rl.timing import phase_within
from ..rl.workload import read_recipe
from ..schedulers.table import scheduled
from ..trace import PHASES
from .step_log import StepLog, read_step_log

REST = "bubbles"  # what of a step is none of its phases: waiting, and work outside of them
WORTH = 0.01  # of the logged step: what a faster fabric must at least save to be named


@dataclass(frozen=True)
class PhaseBeside:
    """One phase: predicted seconds (median of steps) beside logged ones; None: not logged.

    fabric_s: of the predicted seconds those in which bytes are awaited; could_save_s: the same
    share of the logged median. low_s, high_s: where eight measurements in ten would be.
    """

    phase: str
    predicted_s: float
    fabric_s: float
    logged_s: float | None = None
    logged_p90_s: float | None = None
    steps: int = 0
    low_s: float | None = None
    high_s: float | None = None

    @property
    def ratio(self) -> float | None:
        """Predicted over logged."""
        return self.predicted_s / self.logged_s if self.logged_s else None

    @property
    def could_save_s(self) -> float | None:
        """Seconds of the logged phase that a fabric without delay would save."""
        if self.logged_s is None or not self.predicted_s:
            return None
        return self.logged_s * self.fabric_s / self.predicted_s

    def to_json(self) -> dict:
        """Its fields, ratio and what could be saved."""
        return asdict(self) | {"ratio": self.ratio, "could_save_s": self.could_save_s}


@dataclass(frozen=True)
class RunBeside:
    """A whole log beside a recipe: a PhaseBeside each phase, the step and its bubbles."""

    phases: tuple[PhaseBeside, ...]
    log: StepLog

    @property
    def shortened(self) -> tuple[PhaseBeside, ...]:
        """The phases that a faster fabric could shorten, most first."""
        step = self._logged_step
        some = [
            p for p in self.phases if p.phase in PHASES and (p.could_save_s or 0) > WORTH * step
        ]
        return tuple(sorted(some, key=lambda p: -(p.could_save_s or 0)))

    @property
    def unknown(self) -> tuple[PhaseBeside, ...]:
        """The phases that are not logged, and that it could shorten if they take what is
        predicted.
        """
        step = next(p.predicted_s for p in self.phases if p.phase == "step")
        return tuple(
            p
            for p in self.phases
            if p.phase in PHASES and p.logged_s is None and p.fabric_s > WORTH * step
        )

    @property
    def notes(self) -> list[str]:
        """What a faster fabric could shorten, and what of the log was left out."""
        notes = [self._worth()]
        if self.unknown:
            names = ", ".join(
                f"{PHASE_NAMES[p.phase]} ({p.fabric_s:.3f} s of the predicted)"
                for p in self.unknown
            )
            notes.append(f"not logged, so what a faster fabric could shorten is open: {names}")
        lacking = [p.phase for p in self.phases if p.logged_s is None]
        if not self.log.tells("step"):
            taken = "phases overlap, so none" if "step" in lacking else "the sum of its phases"
            notes.append(f"the log has no step time: {taken} is taken")
        if lacking:
            names = ", ".join(PHASE_NAMES.get(phase, phase) for phase in lacking)
            notes.append(f"the log tells no time of: {names}")
        if self.log.dropped:
            notes.append(f"{self.log.dropped} lines or rows have no time of a phase: left out")
        if self.log.unused:
            notes.append(f"timings of no phase, left out: {', '.join(self.log.unused)}")
        return notes + list(self.log.notes)

    def _worth(self) -> str:
        logged = [p for p in self.phases if p.phase in PHASES and p.logged_s is not None]
        if not logged:
            return "no phase is logged: what a faster fabric could shorten is not known"
        if self.shortened:
            names = (
                f"{PHASE_NAMES[p.phase]} (up to {p.could_save_s:.3f} s a step)"
                for p in self.shortened
            )
            return f"a faster fabric could shorten {', '.join(names)}"
        which = "a phase" if len(logged) == len(PHASES) else "a logged phase"
        return f"{which} could be shortened by less than 1 % of the step by any faster fabric"

    @property
    def _logged_step(self) -> float:
        """Seconds of a step; where it is not logged, it takes at least its longest phase."""
        logged = {p.phase: p.logged_s for p in self.phases if p.logged_s is not None}
        return logged.get("step", max(logged.values(), default=0.0))


def validate_run(
    log: str | Path, recipe: str, settings: Sequence[str] = (), seed: int = 0
) -> RunBeside:
    """The RunBeside of a log and a recipe, with `settings` put over it."""
    workload = read_recipe(recipe, settings)
    step_log = read_step_log(log, workload.pipeline)
    plan = scheduled(workload, seed).plan
    seconds = {
        kind: _median([(p.seconds, p.comm) for p in plan.phases if p.kind == kind])
        for kind in PHASES
    }
    totals = {kind: sum(parts) for kind, parts in seconds.items()}
    step = step_period(workload, *(totals[kind] for kind in PHASES))
    alone = step_period(workload, *(seconds[kind][0] for kind in PHASES))
    logged = _with_rest(step_log, workload.pipeline)
    rows = [_beside(kind, totals[kind], seconds[kind][1], logged) for kind in PHASES]
    # beside other phases: what is waited for; a rounding error is no wait
    spent = sum(totals.values())
    rest = 0.0 if isclose(step, spent) else max(step - spent, 0.0)
    rows += [_beside(REST, rest, 0.0, logged), _beside("step", step, step - alone, logged)]
    within = {kind: phase_within(workload, kind, *seconds[kind]) for kind in PHASES}
    within["step"] = step_within(workload, seconds)
    return RunBeside(tuple(_within(row, within) for row in rows), step_log)


def _within(row: PhaseBeside, within: Mapping[str, tuple[float, float]]) -> PhaseBeside:
    """The row with its interval; one that is waited for, or takes no time, has none."""
    if row.phase not in within or not row.predicted_s:
        return row
    low, high = within[row.phase]
    return replace(row, low_s=low, high_s=high)


def _median(parts: list[tuple[float, float]]) -> tuple[float, float]:
    seconds, comm = np.median(np.array(parts).reshape(-1, 2), axis=0) if parts else (0.0, 0.0)
    return float(seconds), float(comm)


def _with_rest(log: StepLog, pipeline: str) -> list[dict[str, float]]:
    """Steps with what their phases leave; a step that is not logged is the sum of its phases,
    where these follow each other. There a wait is what no phase takes: slime's trainer waits while
    others generate.
    """
    steps = []
    for step in log.steps:
        spent = sum(step.get(kind, 0.0) for kind in PHASES)
        one = {kind: step[kind] for kind in PHASES if kind in step}
        if "step" in step:
            whole = any(kind in step for kind in PHASES)
            one |= {"step": step["step"]} | (
                {REST: max(step["step"] - spent, 0.0)} if whole else {}
            )
        elif pipeline == "sync":
            one["step"] = spent + step.get("waiting", 0.0)
        if "waiting" in step:
            alone = one.get(REST, np.inf) if pipeline == "sync" else np.inf
            one[REST] = min(step["waiting"], alone)
        steps.append(one)
    return steps


def _beside(
    phase: str, predicted: float, fabric: float, logged: list[dict[str, float]]
) -> PhaseBeside:
    values = [step[phase] for step in logged if phase in step]
    if not values:
        return PhaseBeside(phase, predicted, fabric)
    median, most = np.percentile(values, [50, 90]).tolist()
    return PhaseBeside(phase, predicted, fabric, median, most, len(values))

"""What is expected of a job's next step, by the steps before it: lengths of responses, seconds of
phases.

    lengths   lengths smoothed; phases take what they turn out to take (the default)
    oracle    both as they turn out: what not knowing is priced against
    smoothed  both by Holt's exponential smoothing with a damped trend
    arima     both by ARIMA(0, 1, 1), fitted by statsmodels: simple exponential smoothing whose
              constant is the likeliest. OrchestrRL (arXiv 2601.01209) says ARIMA and no order

A forecast is made of steps that have ended: KNOWN of the same job before the run, and those of the
run. A phase that a scheduler adds by itself (moves of KV) is no forecast: it knows what it does.
Within a phase the share of each row is that which turns out, its sum is forecast; the bytes of a
phase are known as it begins. Seconds are those of computing and network cards, not those that a
fabric makes of them.
"""

import logging
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..errors import RFabricError
from ..rl.phases import Step, step_of
from ..rl.plan import PhaseTimes, phase_seconds
from ..rl.workload import Workload
from ..trace import PHASES, PhaseKey
from .base import Scheduled

FORECASTS = ("lengths", "oracle", "smoothed", "arima")
FORESEEING = ("smoothed", "arima")  # these forecast how long phases take
KNOWN = 12  # steps before the run whose phases are known: assumed
BEFORE = 10**6  # their numbers begin here: no step of a trace has them
LEVEL, TREND, DAMPING = 0.5, 0.1, 0.8  # of Holt's damped smoothing: assumed, the usual middle
LEAST_FITTED = 6  # steps that two parameters are fitted to; fewer are smoothed
# a fact: forecasts of this run for which smoothing stood in, as no model could be fitted
FELL_BACK = "forecast_fell_back"
_LOG = logging.getLogger(__name__)


def check_forecast(how: str, who: str) -> None:
    """RFabricError for a forecast that there is not, or whose library is not installed."""
    if how not in FORECASTS:
        raise RFabricError(f"{who}: no forecast {how!r}; there are {', '.join(FORECASTS)}")
    if how == "arima":
        _statsmodels()


class Expected(NamedTuple):
    """What is expected of k series (float64[k]); `fell_back`: of how many by smoothing, as no model
    could be fitted to them.
    """

    values: np.ndarray
    fell_back: int = 0


def ahead(seen: np.ndarray, how: str = "smoothed") -> Expected:
    """What comes after `seen` (float64[steps, k], oldest first).

    Where a fit gives no number, what smoothing says stands in its place, and a warning says so.
    RFabricError without a step to go by, or for what is not finite.
    """
    if not len(seen):
        raise RFabricError("forecast: nothing to go by; give one step at least")
    if not np.isfinite(seen).all():
        bad = seen[~np.isfinite(seen)][0]
        raise RFabricError(f"forecast: what was seen holds {bad}; it must be finite numbers")
    by_smoothing = smoothed(seen)
    if how != "arima" or len(seen) < LEAST_FITTED:
        return Expected(by_smoothing)
    model = _statsmodels()
    fitted = np.array([_fitted(tuple(series), model) for series in seen.T.tolist()])
    if missing := int((~np.isfinite(fitted)).sum()):
        _LOG.warning(
            "ARIMA gives no forecast for %d of %d series of %d steps: smoothed instead",
            missing,
            len(fitted),
            len(seen),
        )
    return Expected(np.where(np.isfinite(fitted), fitted, by_smoothing), missing)


def smoothed(seen: np.ndarray) -> np.ndarray:
    """Holt's exponential smoothing with a damped trend, column by column."""
    level, trend = seen[0], np.zeros(seen.shape[1])
    for now in seen[1:]:
        expected = level + DAMPING * trend
        new = LEVEL * now + (1 - LEVEL) * expected
        level, trend = new, TREND * (new - level) + (1 - TREND) * DAMPING * trend
    return level + DAMPING * trend


@lru_cache(1 << 16)  # the same steps are looked back on for every fabric
def _fitted(seen: tuple[float, ...], model: type) -> float:
    """What ARIMA(0, 1, 1) says of one series; nan: no fit."""
    series = np.array(seen)
    if np.ptp(series) == 0:
        return float(series[-1])
    scale = float(np.abs(series).max())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a poor fit is told by what it forecasts
        try:
            fit = model(series / scale, order=(0, 1, 1)).fit(cov_type="none")
            return scale * float(fit.forecast(1)[0])
        except (ValueError, np.linalg.LinAlgError):
            return float("nan")


def _statsmodels():
    try:
        from statsmodels.tsa.arima.model import ARIMA
    except ImportError as error:
        raise RFabricError(
            "forecast=arima needs statsmodels: pip install 'rfabric[forecast]'; forecast=smoothed "
            "needs nothing"
        ) from error
    return ARIMA


def earlier_steps(w: Workload, seed: int) -> list[Step]:
    """KNOWN steps of the job before the run, oldest first."""
    return [step_of(w, seed, BEFORE + i) for i in range(KNOWN)]


def foreseen(
    made: Scheduled, earlier: Sequence[Step], how: str, lasts: PhaseTimes = phase_seconds
) -> Scheduled:
    """The same job, with windows and ends of phases as they are expected; its facts say how far
    off.

    earlier: steps before the run; lasts: what a phase takes, where a scheduler has its own way.
    """
    history = {kind: [lasts(made.workload, step, kind) for step in earlier] for kind in PHASES}
    windows, paces, wrong, fell_back = dict(made.trace.windows), {}, {}, 0
    for phase in sorted((p for p in made.plan.phases if p.kind in PHASES), key=lambda p: p.step):
        key, seen = PhaseKey(phase.step, phase.kind), history[phase.kind]
        expected = ahead(np.array(seen), how)
        seconds, comm = np.maximum(expected.values, 0.0).tolist()
        fell_back += expected.fell_back
        seen.append((phase.seconds, phase.comm))
        windows[key] = seconds + comm
        if phase.seconds:
            paces[key] = seconds / phase.seconds
            wrong[str(key)] = round(phase.seconds / seconds - 1, 4) if seconds else None
    trace = replace(made.trace, windows=windows, paces=paces)
    facts = {"forecast": how, "forecast_steps_before": len(earlier), "later_than_forecast": wrong}
    if how == "arima":
        facts[FELL_BACK] = fell_back + made.facts.get(FELL_BACK, 0)
    return replace(made, trace=trace, facts=made.facts | facts)

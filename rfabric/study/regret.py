"""The price of not knowing: a job by forecasts that can be wrong, beside the same job by an oracle.

    regret     seconds that a run takes longer than the oracle's of the same seed: the mean over
               seeds, and half of its paired 95 % interval
    missed     rewires after which flows stood still for longer than was foreseen: what was
               computed before them ended sooner, or others' bytes were later than alone. The
               oracle, who knows computing alone, misses some too
    early      phases of computing that ended before they were expected to, of all
    fell back  forecasts for which smoothing stood in, as no model could be fitted
    told       whether the interval leaves out 0

What is forecast, and from which steps, says `schedulers.forecasts`: errors are those of the job's
own history, none is made up. Both pipelines ask the fabric. `one-step-off` decides by a forecast
when weights leave and which circuits are worth their dark time; `orchestrrl` cuts servers and moves
responses by it as well. An oracle that plans by heuristics is no lower bound: what it knows may
lead its planner to a plan that turns out longer, and then a regret is negative.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..fabric import Fabric
from ..optics import Timing, parse_policy
from ..report.compare import Table
from ..report.grid import interval
from ..report.result import Result
from ..rl.workload import Workload, read_recipe
from ..schedulers import DEFAULT_CIRCUITS
from ..schedulers.base import Scheduled
from ..schedulers.forecasts import FELL_BACK, FORESEEING, check_forecast
from ..schedulers.table import Policies
from ..trace.stages import stages
from .asked import played
from .joint import FABRICS

ORACLE = "oracle"
# what is known, by scheduler: a pipeline without planner has no use for lengths alone
FORECASTS = {"one-step-off": FORESEEING, "orchestrrl": ("lengths", *FORESEEING)}
JOB = ("orchestrrl-64", ("pipeline=one-step-off", "steps=3"))
SEEDS = {"one-step-off": 8, "orchestrrl": 3}  # a planner's run takes 10 s of a core and more
SAME = 1e-6  # s: flows that stand still for no longer have not missed a rewire


@dataclass(frozen=True)
class ForecastRun:
    """A run: seconds of all steps, and what became of what was expected of it."""

    seconds: float
    rewires: int
    missed: int
    early: int
    expected: int
    fell_back: int


@dataclass(frozen=True)
class Regret:
    """A job under one scheduler on one fabric by one forecast, and by an oracle, seed by seed."""

    fabric: str
    scheduler: str
    forecast: str
    runs: tuple[ForecastRun, ...]
    oracle: tuple[ForecastRun, ...]

    @property
    def by_seed(self) -> np.ndarray:
        """Seconds that each run takes longer than the oracle's: float64[seeds]."""
        return np.array(
            [a.seconds - b.seconds for a, b in zip(self.runs, self.oracle, strict=True)]
        )

    @property
    def mean(self) -> float:
        """Of all seeds, s."""
        return float(self.by_seed.mean())

    @property
    def half(self) -> float | None:
        """Half of the 95 % interval of the mean, s; None of one seed."""
        return interval(self.by_seed)[1] if len(self.runs) > 1 else None

    @property
    def told(self) -> str:
        """What may be said of it."""
        if not self.by_seed.any():
            return "the same"
        if self.half is None or abs(self.mean) <= self.half:
            return "not told apart"
        return "longer" if self.mean > 0 else "shorter: the oracle's planner is a heuristic"

    def total(self, what: str) -> int:
        """A count, over all seeds."""
        return sum(getattr(run, what) for run in self.runs)

    def to_json(self) -> dict:
        """With stable keys that carry their units."""
        counts = ("rewires", "missed", "early", "expected", "fell_back")
        return {
            "fabric": self.fabric,
            "scheduler": self.scheduler,
            "forecast": self.forecast,
            "seconds": [run.seconds for run in self.runs],
            "oracle_seconds": [run.seconds for run in self.oracle],
            "oracle_rewires": sum(run.rewires for run in self.oracle),
            "oracle_missed": sum(run.missed for run in self.oracle),
            "regret_s": self.mean,
            "regret_half_s": self.half,
            "told": self.told,
            **{name: self.total(name) for name in counts},
        }


def regrets(seed: int = 0, progress: Callable[[str], None] = lambda _: None) -> Iterator[Regret]:
    """Every forecast of FORECASTS on every one of joint.FABRICS, on SEEDS seeds from `seed` on.

    RFabricError where the library of a forecast is missing.
    """
    for scheduler, forecasts in FORECASTS.items():
        for how in forecasts:
            check_forecast(how, scheduler)
    w = read_recipe(*JOB)
    for spec in FABRICS:
        for scheduler, forecasts in FORECASTS.items():
            progress(f"{scheduler}, {spec}")
            seeds = range(seed, seed + SEEDS[scheduler])
            yield from regrets_of(w, spec, scheduler, forecasts, seeds)


def regrets_of(
    w: Workload, spec: str, scheduler: str, forecasts: Sequence[str], seeds: Sequence[int]
) -> Iterator[Regret]:
    """A job under one scheduler on one fabric, by each of some forecasts."""
    fabric = w.needs.fabric(spec)
    runs = {
        how: tuple(run_of(w, fabric, scheduler, how, seed) for seed in seeds)
        for how in (ORACLE, *forecasts)
    }
    for how in forecasts:
        yield Regret(spec, scheduler, how, runs[how], runs[ORACLE])


def run_of(w: Workload, fabric: Fabric, scheduler: str, how: str, seed: int) -> ForecastRun:
    """One of them, played."""
    asked = Policies(f"{scheduler},network=fabric,forecast={how}", DEFAULT_CIRCUITS)
    made, result = played(w, fabric, asked, seed)
    later = [share for share in made.facts.get("later_than_forecast", {}).values() if share]
    return ForecastRun(
        result.step_seconds,
        len(result.rewires),
        missed_rewires(fabric, made, result),
        sum(share < 0 for share in later),
        len(later),
        made.facts.get(FELL_BACK, 0),
    )


def missed_rewires(fabric: Fabric, made: Scheduled, result: Result) -> int:
    """Rewires after which flows stood still for longer than what was foreseen to be computed before
    them leaves of the time that a rewire takes.
    """
    if not result.rewires:
        return 0
    granularity = parse_policy(DEFAULT_CIRCUITS, fabric).granularity
    leads = {str(stage): stage.lead for stage in stages(made.trace, granularity)}
    takes = Timing().takes(fabric)
    return sum(
        one.exposed > max(takes - leads.get(one.phase, 0.0), 0.0) + SAME for one in result.rewires
    )


# --- shown ----------------------------------------------------------------------------------------


def regret_table(rows: Sequence[Regret]) -> Table:
    """A line for each fabric, scheduler and forecast."""
    columns = (
        "fabric", "scheduler", "forecast", "seeds", "oracle", "all steps", "regret", "of it",
        "told apart", "rewires", "missed", "ended early", "fell back",
    )  # fmt: skip
    note = (
        "Means over seeds; regret with its paired 95 % interval; counts are of all seeds. "
        "Rewires and missed: by the forecast, and by the oracle."
    )
    lines = [(row.fabric, *_cells(row)) for row in rows]
    return Table.of("What not knowing costs", columns, lines, note, (0, 1, 2, 8))


def _cells(row: Regret) -> tuple[str, ...]:
    seconds, known = (np.mean([run.seconds for run in some]) for some in (row.runs, row.oracle))
    give = "" if row.half is None else f" ± {row.half:.2f}"
    return (
        row.scheduler,
        row.forecast,
        f"{len(row.runs)}",
        f"{known:,.2f} s",
        f"{seconds:,.2f} s",
        f"{row.mean:.2f}{give} s",
        f"{row.mean / known:.2%}",
        row.told,
        f"{row.total('rewires')}, {sum(run.rewires for run in row.oracle)}",
        f"{row.total('missed')}, {sum(run.missed for run in row.oracle)}",
        f"{row.total('early')} of {row.total('expected')}" if row.total("expected") else "–",
        f"{row.total('fell_back')}" if row.forecast == "arima" else "–",
    )

"""Compute schedulers: who computes what and when. Each makes a job's steps, its plan and its trace; `--policy` names one.

    --policy demand              the recipe as it stands; `demand` chooses the circuits
    --policy orchestrrl          a compute scheduler; circuits by the default policy
    --policy orchestrrl+phase    both; settings follow each: orchestrrl,period=5s+demand,granularity=per-collective

    sync           static and disaggregated: generation, training and weight sync in turn (verl)
    colocated      all GPUs generate, then all train
    one-step-off   generation one step ahead of training
    async          responses go on over weight updates, `staleness` steps behind at most (default 1)
    orchestrrl     replicas replanned while they generate, responses moved between servers (arXiv 2601.01209)
    rollpacker     short rounds that leave long responses to long rounds (arXiv 2509.21009)
    rollart        trajectories one by one, on the GPUs that suit them, stale by `alpha` updates at most (arXiv 2512.22560)

A scheduler is a function (workload, seed, settings) -> Scheduled; a new one stands in SCHEDULERS. Traffic that several jobs
make together has schedulers of its own: those of `multiplex`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import import_module

from ..errors import RFabricError, meant
from ..optics import POLICIES
from ..trace import Trace
from ..units import parse_time
from .lowering import trace_of_steps
from .phases import Step, step_of
from .plan import Plan, plan_of_steps
from .workload import Workload

GENERATION, TRAINING = "generation", "training"  # the pools of GPUs
DEFAULT_CIRCUITS = "own"
Settings = Mapping[str, str]


@dataclass(frozen=True)
class Span:
    """GPUs of a pool at work from `start` for `seconds`; `what` they do, in which step."""

    pool: str
    gpus: tuple[int, ...]
    start: float
    seconds: float
    what: str
    step: int = 0


@dataclass(frozen=True, eq=False)
class Scheduled:
    """What a scheduler made of a job: the job as it runs, its steps, plan and trace; `spans` draw it.

    facts: what it decided, for people and `--json`; keys carry their units.
    """

    workload: Workload
    steps: tuple[Step, ...]
    plan: Plan
    trace: Trace
    spans: tuple[Span, ...]
    facts: dict = field(default_factory=dict)

    @property
    def pools(self) -> dict[str, tuple[int, ...]]:
        """The GPUs of each pool."""
        w = self.workload
        every = {TRAINING: range(w.cluster.training_gpus), GENERATION: range(w.first_generation_gpu, w.gpus)}
        return {name: tuple(gpus) for name, gpus in every.items() if not (w.colocated and name == GENERATION)}


Scheduler = Callable[[Workload, int, Settings], Scheduled]


def scheduled(w: Workload, seed: int = 0, policy: str = "") -> Scheduled:
    """What the scheduler `NAME[,KEY=VALUE...]` makes of a job; none: the recipe as it stands. Its trace names who made it."""
    name, *texts = [part.strip() for part in policy.split(",")]
    if name and name not in SCHEDULERS:
        several = "; it is for a file of jobs, such as weave-2jobs" if name in schedulers() else meant(name, SCHEDULERS)
        raise RFabricError(
            f"no compute scheduler named {name!r} for one job{several}; there are {', '.join(SCHEDULERS)}"
        )
    settings = dict(_setting(policy, text) for text in texts)
    if len(settings) < len(texts):
        raise RFabricError(f"scheduler {policy}: a setting stands twice; keep one of each")
    found = SCHEDULERS[name](w, seed, settings) if name else as_it_stands(w, seed)
    if name:
        found.trace.provenance.update(scheduler=policy, scheduler_facts=found.facts)
    return found


def as_it_stands(w: Workload, seed: int) -> Scheduled:
    """The recipe's own pipeline and placement, replicas as it says."""
    return of_steps(w, [step_of(w, seed, n) for n in range(w.steps)], seed)


def of_steps(w: Workload, steps: Sequence[Step], seed: int, facts: dict | None = None) -> Scheduled:
    """Steps that are already drawn, in the pipeline of the workload, every replica as the recipe says."""
    plan = plan_of_steps(w, steps)
    return Scheduled(w, tuple(steps), plan, trace_of_steps(w, steps, plan, seed), spans_of(w, steps, plan), facts or {})


def spans_of(w: Workload, steps: Sequence[Step], plan: Plan) -> tuple[Span, ...]:
    """Each replica while it generates, the training GPUs while they train, both while weights change hands."""
    found = []
    for phase in plan.phases:
        pool = TRAINING if w.colocated or phase.kind == TRAINING else GENERATION
        if phase.kind == GENERATION:
            times = zip(w.replicas, steps[phase.step].generated.times, strict=True)
            found += [Span(pool, tuple(r), phase.start, t.seconds, GENERATION, phase.step) for r, t in times]
        else:
            found.append(Span(pool, phase.gpus, phase.start, phase.seconds, phase.kind, phase.step))
    return tuple(found)


# --- baselines -------------------------------------------------------------------------------------------------------


def sync(w: Workload, seed: int, settings: Settings) -> Scheduled:
    """Static and disaggregated: a step generates with the weights of the step before."""
    refuse_settings("sync", settings)
    return as_it_stands(_apart(w, "sync"), seed)


def one_step_off(w: Workload, seed: int, settings: Settings) -> Scheduled:
    """Generation is one step ahead of training."""
    refuse_settings("one-step-off", settings)
    return as_it_stands(_apart(w, "one-step-off"), seed)


def partial_rollouts(w: Workload, seed: int, settings: Settings) -> Scheduled:
    """Responses go on over weight updates; `staleness` bounds how many."""
    refuse_settings("async", settings, "staleness")
    text = settings.get("staleness", str(w.staleness or 1))
    if not text.isdigit() or not int(text):
        raise RFabricError(f"async: staleness {text!r} must be a whole number of weight updates, 1 or more")
    return as_it_stands(_apart(w, "async", int(text)), seed)


def colocated(w: Workload, seed: int, settings: Settings) -> Scheduled:
    """All GPUs of both pools generate, then all of them train."""
    refuse_settings("colocated", settings)
    every = w.cluster.training_gpus if w.colocated else w.gpus
    cluster = replace(w.cluster, training_gpus=every, generation_gpus=every)
    return as_it_stands(replace(w, cluster=cluster, placement="colocated", pipeline="sync", staleness=None), seed)


def _apart(w: Workload, pipeline: str, staleness: int | None = None) -> Workload:
    if w.colocated:
        raise RFabricError(
            f"pipeline {pipeline} needs a pool for each side, but placement is colocated; use scheduler colocated, or placement "
            f"disaggregated"
        )
    return replace(w, pipeline=pipeline, staleness=staleness)


def _of(module: str) -> Scheduler:
    """The function `schedule` of a module of this folder, loaded when it is asked."""

    def run(w: Workload, seed: int, settings: Settings) -> Scheduled:
        return import_module(f".{module}", __package__).schedule(w, seed, settings)

    return run


SCHEDULERS: dict[str, Scheduler] = {
    "sync": sync, "colocated": colocated, "one-step-off": one_step_off, "async": partial_rollouts,
    "orchestrrl": _of("orchestrrl"), "rollpacker": _of("rollpacker"),
    "rollart": _of("rollart"),
}  # fmt: skip


# --- words of the command line ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Policies:
    """What `--policy` says: a compute scheduler ('' for the recipe as it stands) and a circuit policy, with their settings."""

    scheduler: str
    circuits: str


def parse_policies(text: str) -> Policies:
    """`SCHEDULER`, `CIRCUITS` or `SCHEDULER+CIRCUITS`; who is not a scheduler is left to `optics.parse_policy`."""
    first, plus, second = (part.strip() for part in text.partition("+"))
    if not plus and _schedules(first):
        return Policies(first, DEFAULT_CIRCUITS)
    if not plus:
        _refuse_unknown(first)
        return Policies("", first)
    if not _schedules(first):
        known = ", ".join(schedulers())
        raise RFabricError(f"policy {text}: {first!r} is no compute scheduler; before the + stands one of {known}")
    _refuse_unknown(second)
    return Policies(first, second)


def _refuse_unknown(circuits: str) -> None:
    name = circuits.partition(",")[0]
    if name not in (DEFAULT_CIRCUITS, *POLICIES):
        hint = meant(name, (DEFAULT_CIRCUITS, *POLICIES, *schedulers()))
        raise RFabricError(
            f"no policy named {name!r}{hint}; circuits are chosen by {DEFAULT_CIRCUITS}, {', '.join(POLICIES)}, computing is "
            f"scheduled by {', '.join(schedulers())}"
        )


def schedulers() -> tuple[str, ...]:
    """All names, those for several jobs last."""
    from .multiplex import POLICIES as SEVERAL_JOBS

    return (*SCHEDULERS, *SEVERAL_JOBS)


def _schedules(text: str) -> bool:
    return text.partition(",")[0] in schedulers()


def _setting(spec: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise RFabricError(f"scheduler {spec}: {text!r} is not a setting; write KEY=VALUE")
    return key, value


def refuse_settings(name: str, settings: Settings, *known: str) -> None:
    """RFabricError for a setting that the scheduler does not know."""
    for key in settings:
        if key not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise RFabricError(f"scheduler {name}: no setting {key!r}{meant(key, known)}; {has}")


def settings_of(name: str, made, settings: Settings):
    """The dataclass `made` with `settings` put over it: times where the name of a field ends in _s, else numbers.

    The setting of a field `period_s` is called `period` and carries its unit.
    """
    known = {f.name.removesuffix("_s"): f.name for f in fields(made)}
    refuse_settings(name, settings, *known)
    return replace(made, **{known[key]: _read(name, known[key], text) for key, text in settings.items()})


def _read(name: str, key: str, text: str) -> float:
    if key.endswith("_s"):
        return parse_time(text, f"scheduler {name}: {key.removesuffix('_s')}")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RFabricError(f"scheduler {name}: {key}={text} is not a number; write it without a unit, such as {key}=2")
    return value

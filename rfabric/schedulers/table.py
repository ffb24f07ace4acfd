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

A new one stands in SCHEDULERS. Traffic that several jobs make together has schedulers of its own: those of `weave`.
"""

from dataclasses import dataclass

from ..errors import RFabricError, meant
from ..optics import POLICIES
from ..rl.workload import Workload
from . import orchestrrl, rollart, rollpacker, weave
from .base import Scheduled, Scheduler, as_it_stands
from .pipelines import colocated, one_step_off, partial_rollouts, sync

DEFAULT_CIRCUITS = "own"
SCHEDULERS: dict[str, Scheduler] = {
    "sync": sync, "colocated": colocated, "one-step-off": one_step_off, "async": partial_rollouts,
    "orchestrrl": orchestrrl.schedule, "rollpacker": rollpacker.schedule,
    "rollart": rollart.schedule,
}  # fmt: skip


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


def _setting(spec: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise RFabricError(f"scheduler {spec}: {text!r} is not a setting; write KEY=VALUE")
    return key, value


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
    return (*SCHEDULERS, *weave.POLICIES)


def _schedules(text: str) -> bool:
    return text.partition(",")[0] in schedulers()

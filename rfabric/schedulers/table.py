"""Compute schedulers: who computes what and when.

Each makes a job's steps, its plan and its trace; `--policy` names one.

    --policy demand            the recipe as it stands; `demand` chooses the circuits
    --policy orchestrrl        a compute scheduler; circuits by the default policy
    --policy orchestrrl+phase  both; settings follow each:
                               orchestrrl,period=5s+demand,granularity=per-collective
    --policy mine.py:longest   one of your own: `base.Scheduler` says what it must be

A new one stands in SCHEDULERS. Traffic that several jobs make together has schedulers of its own:
those of `weave`.
"""

from dataclasses import dataclass

from ..errors import RFabricError, meant
from ..optics import POLICIES
from ..plugins import called, entry, is_file, offered
from ..rl.workload import Workload
from ..specs import head_of, read_spec
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
    """What the scheduler `NAME[,KEY=VALUE...]` makes of a job; none: the recipe as it stands.

    Its trace names who made it.
    """
    if not policy:
        return as_it_stands(w, seed)
    spec = read_spec(policy, "scheduler")
    if is_file(spec.head):
        found = called(spec.head, "schedulers", Scheduled, w, seed, dict(spec.settings))
    else:
        found = _scheduler(spec.head)(w, seed, spec.settings)
    found.trace.provenance.update(scheduler=policy, scheduler_facts=found.facts)
    return found


def _scheduler(name: str) -> Scheduler:
    if name not in SCHEDULERS:
        several = (
            "; it is for a file of jobs, such as weave-2jobs"
            if name in schedulers()
            else meant(name, SCHEDULERS)
        )
        raise RFabricError(
            f"no compute scheduler named {name!r} for one job{several}; there are "
            f"{', '.join(SCHEDULERS)}"
        )
    return SCHEDULERS[name]


@dataclass(frozen=True)
class Policies:
    """What `--policy` says: a compute scheduler ('' for the recipe as it stands) and a circuit
    policy, with their settings.
    """

    scheduler: str
    circuits: str


def parse_policies(text: str) -> Policies:
    """`SCHEDULER`, `CIRCUITS` or `SCHEDULER+CIRCUITS`; who is not a scheduler is left to
    `optics.parse_policy`.
    """
    first, plus, second = (part.strip() for part in text.partition("+"))
    schedules = _schedules(first, not plus)
    if not plus and schedules:
        return Policies(first, DEFAULT_CIRCUITS)
    if not plus:
        _refuse_unknown(first)
        return Policies("", first)
    if not schedules:
        known = ", ".join(schedulers())
        raise RFabricError(
            f"policy {text}: {first!r} is no compute scheduler; before the + stands one of {known}"
        )
    _refuse_unknown(second)
    return Policies(first, second)


def _refuse_unknown(circuits: str) -> None:
    name = head_of(circuits)
    if is_file(name):
        entry(name, "policies")
    elif name not in (DEFAULT_CIRCUITS, *POLICIES):
        hint = meant(name, (DEFAULT_CIRCUITS, *POLICIES, *schedulers()))
        raise RFabricError(
            f"no policy named {name!r}{hint}; circuits are chosen by {DEFAULT_CIRCUITS}, "
            f"{', '.join(POLICIES)}, computing is scheduled by {', '.join(schedulers())}"
        )


def schedulers() -> tuple[str, ...]:
    """All names, those for several jobs last."""
    return (*SCHEDULERS, *weave.POLICIES)


def _schedules(text: str, alone: bool) -> bool:
    """Whether a spec names a compute scheduler; `alone`: nothing else says whether it does."""
    head = head_of(text)
    if not is_file(head):
        return head in schedulers()
    name = head.partition(":")[2]
    own, circuits = (offered(head, kind) for kind in ("schedulers", "policies"))
    if alone and own and circuits and (not name or name in own and name in circuits):
        raise RFabricError(
            f"policy {head}: the file holds schedulers and circuit policies; name one of them"
        )
    return bool(own) and not (alone and circuits and name not in own)

r"""Compute schedulers: who computes what and when.

Each makes a job's steps, its plan and its trace; `--policy` names one.

    --policy demand            the recipe as it stands; `demand` chooses the circuits
    --policy orchestrrl        a compute scheduler; circuits by the default policy
    --policy orchestrrl+phase  both; settings follow each:
                               orchestrrl,period=5s+demand,granularity=per-collective
    --policy orchestrrl,network=fabric   the same, asking the fabric before it decides; or the
                               controller that steers it: network=http\://127.0.0.1\:8080
    --policy orchestrrl,forecast=arima   the same by forecasts that may be wrong: `forecasts` says
                               whose they are
    --policy mine.py:longest   one of your own: `base.Scheduler` says what it must be

A new one stands in SCHEDULERS. Traffic that several jobs make together has schedulers of its own:
those of `weave`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..errors import RFabricError, meant
from ..optics import POLICIES
from ..plugins import called, entry, is_file, name_in, offered
from ..rl.workload import Workload
from ..specs import Spec, head_of, read_spec, refuse_bare, split_at, unescaped
from . import DEFAULT_CIRCUITS, orchestrrl, rollart, rollpacker, weave
from .base import AnsweringNetwork, Scheduled, Scheduler, as_it_stands
from .forecasts import FORESEEING, check_forecast, earlier_steps, foreseen
from .networks import agreed_start, agreed_sync
from .pipelines import colocated, one_step_off, partial_rollouts, sync
from .returned import check_made

SCHEDULERS: dict[str, Scheduler] = {
    "sync": sync, "colocated": colocated, "one-step-off": one_step_off, "async": partial_rollouts,
    "orchestrrl": orchestrrl.schedule, "rollpacker": rollpacker.schedule,
    "rollart": rollart.schedule,
}  # fmt: skip
# what a scheduler is shown on where no traffic is named
USUAL_TRAFFIC = {"orchestrrl": "orchestrrl-64", **dict.fromkeys(weave.POLICIES, "weave-2jobs")}
# those that propose and decide on the answer: moves and widths orchestrrl alone, weight sync all;
# they also know windows and ends of phases by forecast
NEGOTIATING = ("sync", "one-step-off", "async", "orchestrrl")


def scheduled(
    w: Workload, seed: int = 0, policy: str = "", network: AnsweringNetwork | None = None
) -> Scheduled:
    """What the scheduler `NAME[,KEY=VALUE...]` makes of a job; none: the recipe as it stands.

    Its trace names who made it. network: whom a scheduler with the setting `network` asks;
    RFabricError where it is to ask and there is none.
    """
    if not policy:
        return as_it_stands(w, seed)
    spec = read_spec(policy, "scheduler")
    if is_file(spec.head):
        made = called(spec.head, "schedulers", Scheduled, w, seed, dict(spec.settings))
        check_made(made, spec.head, entry(spec.head, "schedulers"))
    else:
        asks = asked_network(policy)
        made = _answered(w, seed, spec, _answering(policy, asks, network) if asks else None)
    made.trace.provenance.update(scheduler=policy, scheduler_facts=made.facts)
    return made


def usual_traffic(policies: Iterable[str], otherwise: str) -> str:
    """The traffic that all these schedulers (`NAME[,KEY=VALUE...]`, '' for none) are shown on."""
    usual = {USUAL_TRAFFIC.get(head_of(policy), otherwise) for policy in policies}
    return usual.pop() if len(usual) == 1 else otherwise


def asked_network(policy: str) -> str:
    """Whom a scheduler asks before it decides: `fabric`, the address of a controller, or '' for
    nobody.

    RFabricError for what is neither, or a scheduler that asks nobody.
    """
    spec = read_spec(policy, "scheduler") if policy else Spec("")
    asked = "" if is_file(spec.head) else unescaped(spec.settings.get("network", "cards"))
    if asked in ("", "cards"):
        return ""
    if asked != "fabric" and not asked.startswith(("http://", "https://")):
        raise RFabricError(
            f"{spec.head}: network={asked} is neither cards, fabric nor the address of a "
            r"controller, such as http\://127.0.0.1\:8080"
        )
    if spec.head not in NEGOTIATING:
        raise RFabricError(
            f"{spec.head}: it asks no network; network={asked} is for {', '.join(NEGOTIATING)}"
        )
    return asked


def _answering(policy: str, asked: str, network: AnsweringNetwork | None) -> AnsweringNetwork:
    if network is None:
        raise RFabricError(
            f"policy {policy}: network={asked} asks a fabric, and none is given here; name it "
            "(--topo), or leave network out"
        )
    return network


def _answered(w: Workload, seed: int, spec: Spec, network: AnsweringNetwork | None) -> Scheduled:
    """Scheduled with what the network answers, where one is asked, and what is forecast."""
    scheduler = _scheduler(spec.head)
    if spec.head not in NEGOTIATING:
        return scheduler(w, seed, spec.settings)
    settings = {key: value for key, value in spec.settings.items() if key != "network"}
    if spec.head == "orchestrrl":
        made = orchestrrl.schedule(w, seed, settings, network)
    else:
        made = _plain(w, seed, spec.head, settings, network)
    return replace(made, facts={"network": network.name} | made.facts) if network else made


def _plain(
    w: Workload, seed: int, name: str, settings: dict[str, str], network: AnsweringNetwork | None
) -> Scheduled:
    """A pipeline without planner: weight sync as agreed, windows and ends of phases as
    forecast.
    """
    how = settings.pop("forecast", "lengths")
    check_forecast(how, name)
    w, agreed = agreed_sync(w, network) if network else (w, {})
    made = _scheduler(name)(w, seed, settings)
    made = replace(made, facts=made.facts | agreed)
    if how in FORESEEING:
        made = foreseen(made, earlier_steps(made.workload, seed), how)
    return agreed_start(made, seed, network) if network else made


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
    `optics.parse_policy`. RFabricError where what stands before the + is none.
    """
    refuse_bare(text, ",:+")
    first, *rest = (part.strip() for part in split_at(text, "+", 1))
    schedules = _schedules(first, not rest)
    if not rest and schedules:
        return Policies(first, DEFAULT_CIRCUITS)
    if not rest:
        _refuse_unknown(first)
        return Policies("", first)
    if not schedules:
        known = ", ".join(schedulers())
        raise RFabricError(
            f"policy {text}: {first!r} is no compute scheduler; before the + stands one of {known}"
        )
    if head_of(rest[0]) in schedulers():
        raise RFabricError(
            f"policy {text}: {head_of(rest[0])!r} chooses no circuits; after the + stands one of "
            f"{DEFAULT_CIRCUITS}, {', '.join(POLICIES)}"
        )
    _refuse_unknown(rest[0])
    return Policies(first, rest[0])


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
    name = name_in(head)
    circuits, own = (offered(head, kind) for kind in ("policies", "schedulers"))
    if alone and own and circuits and (not name or name in own and name in circuits):
        raise RFabricError(
            f"policy {head}: the file holds schedulers and circuit policies; name one of them"
        )
    return bool(own) and not (alone and circuits and name not in own)

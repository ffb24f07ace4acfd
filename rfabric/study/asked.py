"""What is asked, in words or objects, made ready to be played: the one way there, whoever asks, the
command line, `import rfabric`, a cell of a grid or an experiment.

    AskedRun, RunSettings -> prepared -> Prepared: a traffic, and the cases that play it

    fabric   words of --topo (`rfabric,pods=4`, FILE.py, FILE of a network), or a Fabric
    traffic  words of --traffic (a recipe, FILE.yaml, a trace file), a Workload, Trace or Traffic
    policy   words of --policy (`demand`, `orchestrrl+phase`), or an object
             (`optics.policies.Policy`)

A compute scheduler that asks the network agrees the plan with the fabric before there is a trace.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from pathlib import Path

from ..errors import RFabricError, some
from ..fabric import Fabric, Needs
from ..fabric.match import equal_cost_fat_tree
from ..optics import Policy, Timing, check_policy
from ..report.result import Result
from ..rl import Workload
from ..schedulers.base import Scheduled
from ..schedulers.table import DEFAULT_CIRCUITS, Policies, parse_policies, scheduled
from ..schedulers.traffic import Networks, read_traffic, sent_by, traffic_of_recipe
from ..specs import escaped
from ..trace import Trace, Traffic, needs_of
from .negotiation import FabricFor, one_network
from .run import Case, RunSettings, Tell, cases_of, simulated

AnyFabric = str | Path | Fabric
AnyTraffic = str | Path | Workload | Trace | Traffic
AnyPolicy = str | Path | Policy


@dataclass(frozen=True, eq=False)
class AskedRun:
    """A traffic on fabrics under policies; `settings` go over the keys of its recipe.

    No fabric: `usual_fabrics`. No policy: the one that each fabric was designed for.
    """

    fabrics: Sequence[AnyFabric]
    traffic: AnyTraffic
    policies: Sequence[AnyPolicy] = ()
    settings: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Prepared:
    """A traffic, the fabrics that it fits, and who schedules it and chooses their circuits."""

    traffic: Traffic
    fabrics: tuple[Fabric, ...]
    policies: tuple[Policies, ...]

    @property
    def circuits(self) -> list[str | Policy]:
        """The circuit policies, in the order in which they were asked for."""
        return [policy.circuits for policy in self.policies]

    @property
    def cases(self) -> list[Case]:
        """What is played, each with this traffic."""
        return cases_of(self.fabrics, self.circuits)


def prepared(asked: AskedRun, settings: RunSettings, tell: Tell = lambda *_: None) -> Prepared:
    """Read, schedule and build what is asked.

    RFabricError for words that name nothing, several compute schedulers, or a fabric that is too
    small.
    """
    policies = policies_of(asked.policies)
    name = _name(asked.traffic)
    tell(name, {"stage": "trace"})
    job = asked.traffic, asked.settings, settings.seed
    places = [partial(fabric_of, words) for words in asked.fabrics]
    traffic = traffic_on(*job, policies, places, settings.timing)
    tell(name, {"stage": "fabric"})
    words = asked.fabrics or usual_fabrics(traffic.needs)
    fabrics = tuple(fabric_of(one, traffic.needs) for one in words)
    return Prepared(fitted(traffic, fabrics), fabrics, policies)


def _name(source: AnyTraffic) -> str:
    return str(source) if isinstance(source, (str, Path)) else getattr(source, "name", "trace")


# --- policies -------------------------------------------------------------------------------------


def policies_of(asked: Sequence[AnyPolicy]) -> tuple[Policies, ...]:
    """What was asked for, the default where nothing was."""
    return tuple(_policies(one) for one in asked or [DEFAULT_CIRCUITS])


def _policies(asked: AnyPolicy) -> Policies:
    if isinstance(asked, (str, Path)):
        return parse_policies(_words(asked))
    check_policy(asked)
    return Policies("", asked)


def one_scheduler(asked: Sequence[Policies]) -> str:
    """The compute scheduler of a run: its folder holds one trace. RFabricError where several are
    asked for.
    """
    schedulers = list(dict.fromkeys(policy.scheduler for policy in asked))
    if len(schedulers) > 1:
        names = " and ".join(name or "the recipe's own" for name in schedulers)
        raise RFabricError(
            f"one run has one compute scheduler, not {names}; `rfabric compare` puts several "
            "side by side"
        )
    return schedulers[0]


# --- fabrics --------------------------------------------------------------------------------------


def fabric_of(words: AnyFabric, needs: Needs) -> Fabric:
    """The fabric of these words; if they name no size, with room for what a job needs. RFabricError
    where nothing can be made of them.
    """
    if isinstance(words, Fabric):
        return words
    if not isinstance(words, (str, Path)):
        raise RFabricError(f"fabric {words!r}: give a name, a path or a Fabric")
    return needs.fabric(_words(words))


def _words(named: str | Path) -> str:
    """The words for the command line; a Path to a file is escaped as they require."""
    return escaped(named) if isinstance(named, Path) and named.is_file() else str(named)


def usual_fabrics(needs: Needs) -> tuple[str, ...]:
    """Fat-Tree, a Fat-Tree of about rfabric's cost, leaf-spine, and rfabric."""
    return "fat-tree", equal_cost_fat_tree(needs.fabric("rfabric"))[0].spec, "leaf-spine", "rfabric"


# --- traffic --------------------------------------------------------------------------------------


def traffic_on(
    source: AnyTraffic,
    settings: Sequence[str],
    seed: int,
    policies: Sequence[Policies],
    places: Sequence[FabricFor],
    timing: Timing = Timing(),
) -> Traffic:
    """What a job sends under one compute scheduler, agreed with its one fabric where that asks it.

    RFabricError where several are to be asked, or schedule.
    """
    scheduler = one_scheduler(policies)
    network = one_network(scheduler, places, [policy.circuits for policy in policies], timing)
    return traffic_of(source, settings, seed, scheduler, network)


def traffic_of(
    source: AnyTraffic,
    settings: Sequence[str] = (),
    seed: int = 0,
    scheduler: str = "",
    network: Networks | None = None,
) -> Traffic:
    """What a job sends, whoever brings it; `schedulers.traffic.read_traffic` explains the rest.

    RFabricError for settings, or a scheduler, over what is made already.
    """
    check_whole("seed", seed)
    if scheduler and not isinstance(scheduler, str):
        raise RFabricError(f"scheduler {scheduler!r}: give its name, such as 'sync'")
    if isinstance(source, (str, Path)):
        check_written(settings)
        return read_traffic(str(source), settings, seed, scheduler, network)
    refuse_settings(settings)
    if isinstance(source, Workload):
        return traffic_of_recipe(source, seed, scheduler, network)
    if not isinstance(source, (Trace, Traffic)):
        raise RFabricError(
            f"traffic {source!r}: give a name, a path, a Workload, a Trace or a Traffic"
        )
    if scheduler:
        raise RFabricError(
            f"policy {scheduler} schedules recipes; a trace is given, whose schedule is made"
        )
    return source if isinstance(source, Traffic) else Traffic(source, "trace", (), needs_of(source))


def fitted(traffic: Traffic, fabrics: Sequence[Fabric]) -> Traffic:
    """The traffic with its hosts called as all of these fabrics call them; a note says where it
    called them as their file does. RFabricError where they are other hosts in another fabric.
    """
    traces = [traffic.trace.fit(fabric) for fabric in fabrics]
    for fabric, trace in zip(fabrics, traces, strict=True):
        if trace.hosts != traces[0].hosts:
            one, other = fabrics[0].spec or fabrics[0].name, fabric.spec or fabric.name
            raise RFabricError(
                f"the hosts of {traffic.name} are others by number in {one} than in {other}: "
                f"replay each by itself"
            )
    if traces[0].hosts == traffic.trace.hosts:
        return traffic
    called = (f"{name} is {host}" for host, name in traces[0].provenance["hosts"].items())
    note = f"hosts found by the names of their file: {some(called)}"
    return replace(traffic, trace=traces[0], notes=(*traffic.notes, note))


def check_whole(name: str, value: int) -> None:
    """RFabricError for what is no whole number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise RFabricError(f"{name} {value!r} must be a whole number from 0 on")


def check_written(settings: Sequence[str]) -> None:
    """RFabricError for settings that are no text."""
    for one in settings:
        if not isinstance(one, str):
            raise RFabricError(f"setting {one!r}: write text, such as 'training.pp=2'")


def refuse_settings(settings: Sequence[str]) -> None:
    """RFabricError for settings where there is no recipe to be read."""
    if settings:
        raise RFabricError(
            f"{settings[0]}: settings go over the name of a recipe: recipe(NAME, {settings[0]!r})"
        )


# --- experiments ----------------------------------------------------------------------------------


def scheduled_on(w: Workload, seed: int, policies: Policies, place: FabricFor) -> Scheduled:
    """What a scheduler makes of a job; the fabric answers it where it asks."""
    network = one_network(policies.scheduler, [place], [policies.circuits])
    return scheduled(w, seed, policies.scheduler, network and network(w.needs))


def played(w: Workload, fabric: Fabric, policies: Policies, seed: int) -> tuple[Scheduled, Result]:
    """A job scheduled, and simulated on a fabric."""
    made = scheduled_on(w, seed, policies, lambda _: fabric)
    case = Case(fabric, policies.circuits)
    return made, simulated(case, sent_by(w, made), RunSettings(seed=seed))

"""What `import rfabric` offers: the verbs of the command line as functions. Arguments are the words
of the command line, or objects.

    fabric   words of --topo (`rfabric,pods=4`, FILE.py, FILE of a network), or a Fabric
    traffic  words of --traffic (a recipe, FILE.yaml, a trace file), a Workload, Trace or Traffic
    policy   words of --policy (`demand`, `orchestrrl+phase`), or an object
             (`optics.policies.Policy`)

They raise RFabricError for what cannot be run, RunError and PaceError for a run that broke.
"""

from collections.abc import Sequence
from functools import partial
from math import inf
from numbers import Integral, Real
from pathlib import Path

from ..errors import RFabricError
from ..fabric import Fabric, Needs
from ..folders import as_path
from ..optics import Policy, Timing, check_policy
from ..report.folder import read_folder
from ..report.outcome import Comparison, Outcome
from ..rl import Workload, read_recipe
from ..routing.schemes import DEFAULT_SCHEME
from ..schedulers.table import DEFAULT_CIRCUITS, Policies, parse_policies, scheduled
from ..schedulers.traffic import Networks, read_traffic
from ..specs import escaped
from ..trace import Trace, Traffic, needs_of
from .negotiation import one_network
from .run import RunSettings, Tell, cases_of, one_scheduler, play, require

AnyFabric = str | Path | Fabric
AnyTraffic = str | Path | Workload | Trace | Traffic
AnyPolicy = str | Path | Policy


def fabric(words: AnyFabric, gpus: int = 0) -> Fabric:
    """The fabric of these words; if they name no size, with room for `gpus` (0: the usual size)."""
    _check_whole("gpus", gpus)
    return _fabric(words, Needs(gpus))


def recipe(name: str | Path | Workload, *settings: str) -> Workload:
    """The job of a recipe, with settings such as `training.pp=2` that override its keys."""
    if isinstance(name, Workload):
        _refuse_settings(settings)
        return name
    if not isinstance(name, (str, Path)):
        raise RFabricError(f"recipe {name!r}: give a name, a path or a Workload")
    _check_written(settings)
    return read_recipe(name, settings)


def trace(traffic: AnyTraffic, *settings: str, seed: int = 0, scheduler: str = "") -> Trace:
    """What a job sends. `settings` override keys of its recipe; `scheduler` names who computes what
    when.
    """
    return _traffic(traffic, settings, seed, scheduler).trace


def simulate(
    fabric: AnyFabric,
    traffic: AnyTraffic,
    policy: AnyPolicy = DEFAULT_CIRCUITS,
    *,
    seed: int = 0,
    routing: str = DEFAULT_SCHEME,
    in_flight: str = "hold",
    repetitions: str = "folded",
    transport: str = "fluid",
    tell: Tell = lambda *_: None,
) -> Outcome:
    """One run in the flow-level simulator; `rfabric simulate --help` explains the settings.

    tell: is called with what is played and its news.
    """
    settings = RunSettings(
        "simulate", seed, routing, Timing(in_flight=in_flight), repetitions, transport=transport
    )
    return _compared([fabric], traffic, [policy], settings, tell)[0]


def emulate(
    fabric: AnyFabric,
    traffic: AnyTraffic,
    policy: str = DEFAULT_CIRCUITS,
    *,
    seed: int = 0,
    routing: str = DEFAULT_SCHEME,
    in_flight: str = "hold",
    bandwidth_scale: float = 0.0,
    time_dilation: float = 0.0,
    sample: float = 0.0,
    patience: float = 0.0,
    out: str | Path = "runs",
    tell: Tell = lambda *_: None,
) -> Outcome:
    """One run with real packets (needs root), compared with its simulation.

    bandwidth_scale, time_dilation, sample, patience: 0 chooses what the host can carry. sample: s
    of each repeated collective to send. patience: s of wall clock that the packets may take. out:
    the parent of its folder while it runs. `rfabric emulate --help` explains the rest.
    """
    scale = bandwidth_scale, time_dilation, sample, patience
    settings = RunSettings(
        "emulate", seed, routing, Timing(in_flight=in_flight), "folded", *scale, out
    )
    return _compared([fabric], traffic, [policy], settings, tell)[0]


def compare(
    fabrics: AnyFabric | Sequence[AnyFabric],
    traffic: AnyTraffic,
    policy: AnyPolicy | Sequence[AnyPolicy] = DEFAULT_CIRCUITS,
    *,
    seed: int = 0,
    routing: str = DEFAULT_SCHEME,
    in_flight: str = "hold",
    repetitions: str = "folded",
    transport: str = "fluid",
    tell: Tell = lambda *_: None,
) -> Comparison:
    """Simulate one trace on several fabrics in turn, each under one or several circuit policies."""
    settings = RunSettings(
        "simulate", seed, routing, Timing(in_flight=in_flight), repetitions, transport=transport
    )
    return _compared(_several(fabrics), traffic, _several(policy), settings, tell)


def read_run(folder: str | Path) -> Comparison:
    """Read the runs of a run folder."""
    runs, _ = read_folder(folder)
    inputs = tuple(sorted((Path(folder) / "inputs").glob("*")))
    return Comparison(tuple(Outcome(run.result, run.fidelity, inputs) for run in runs))


def _compared(
    fabrics: Sequence[AnyFabric],
    traffic: AnyTraffic,
    policies: Sequence[AnyPolicy],
    settings: RunSettings,
    tell: Tell,
) -> Comparison:
    _check_settings(settings)
    if not callable(tell):
        raise RFabricError(f"tell {tell!r}: give a function of what is played and its news")
    require(settings)
    for what, some in (("fabric", fabrics), ("policy", policies)):
        if not some:
            raise RFabricError(f"no {what} is given; give one, or a list of them")
    asked = [_policies(policy) for policy in policies]
    scheduler, circuits = one_scheduler(asked), [policy.circuits for policy in asked]
    places = [partial(_fabric, words) for words in fabrics]
    network = one_network(scheduler, places, circuits, settings.timing)
    job = _traffic(traffic, (), settings.seed, scheduler, network)
    made = [_fabric(words, job.needs) for words in fabrics]
    for one in made:
        job.trace.fit(one)
    cases = cases_of(made, [policy.circuits for policy in asked])
    return Comparison(tuple(play(cases, job, settings, tell)))


def _check_settings(settings: RunSettings) -> None:
    """Check what the command line checks as it reads."""
    for name, asked, usual in (
        ("routing", settings.routing, "placed"),
        ("repetitions", settings.repetitions, "folded"),
        ("transport", settings.transport, "rdma"),
    ):
        if type(asked) is not str:
            raise RFabricError(f"{name} {asked!r}: give its name, such as {usual!r}")
    _check_whole("seed", settings.seed)
    scale = settings.bandwidth, settings.dilation, settings.sample
    for name, value in zip(("bandwidth_scale", "time_dilation", "sample"), scale, strict=True):
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value < inf:
            raise RFabricError(f"{name} {value!r} must be a number from 0 on")
    as_path(settings.out, "out")


def _check_written(settings: Sequence[str]) -> None:
    for one in settings:
        if not isinstance(one, str):
            raise RFabricError(f"setting {one!r}: write text, such as 'training.pp=2'")


def _check_whole(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise RFabricError(f"{name} {value!r} must be a whole number from 0 on")


def _policies(asked: AnyPolicy) -> Policies:
    if isinstance(asked, (str, Path)):
        return parse_policies(_words(asked))
    check_policy(asked)
    return Policies("", asked)


def _refuse_settings(settings: Sequence[str]) -> None:
    if settings:
        raise RFabricError(
            f"{settings[0]}: settings go over the name of a recipe: recipe(NAME, {settings[0]!r})"
        )


def _several(asked: object) -> list:
    return list(asked) if isinstance(asked, (list, tuple)) else [asked]


def _words(named: str | Path) -> str:
    """The words for the command line; a Path to a file is escaped as they require."""
    return escaped(named) if isinstance(named, Path) and named.is_file() else str(named)


def _fabric(words: AnyFabric, needs: Needs) -> Fabric:
    if isinstance(words, Fabric):
        return words
    if not isinstance(words, (str, Path)):
        raise RFabricError(f"fabric {words!r}: give a name, a path or a Fabric")
    return needs.fabric(_words(words))


def _traffic(
    source: AnyTraffic,
    settings: Sequence[str],
    seed: int,
    scheduler: str,
    network: Networks | None = None,
) -> Traffic:
    _check_whole("seed", seed)
    if scheduler and not isinstance(scheduler, str):
        raise RFabricError(f"scheduler {scheduler!r}: give its name, such as 'sync'")
    if isinstance(source, (str, Path)):
        _check_written(settings)
        return read_traffic(str(source), settings, seed, scheduler, network)
    _refuse_settings(settings)
    if not isinstance(source, (Workload, Trace, Traffic)):
        raise RFabricError(
            f"traffic {source!r}: give a name, a path, a Workload, a Trace or a Traffic"
        )
    if isinstance(source, Workload):
        answers = network(source.needs) if network else None
        made = scheduled(source, seed, scheduler, answers).trace
        return Traffic(made, source.name, source.files, source.needs)
    if scheduler:
        raise RFabricError(
            f"policy {scheduler} schedules recipes; a trace is given, whose schedule is made"
        )
    if isinstance(source, Traffic):
        return source
    return Traffic(source, "trace", (), needs_of(source))

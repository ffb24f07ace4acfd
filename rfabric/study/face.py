"""What `import rfabric` offers: the verbs of the command line as functions. Arguments are the words
of the command line, or objects; `asked` says which.

They raise RFabricError for what cannot be run, RunError and PaceError for a run that broke.
"""

from collections.abc import Sequence
from math import inf
from numbers import Real
from pathlib import Path

from ..errors import RFabricError
from ..fabric import Fabric, Needs
from ..folders import as_path
from ..report.folder import read_folder
from ..report.outcome import Comparison, Outcome
from ..rl import Workload, read_recipe
from ..routing.schemes import DEFAULT_SCHEME
from ..schedulers import DEFAULT_CIRCUITS
from ..trace import Trace
from .asked import (
    AnyFabric,
    AnyPolicy,
    AnyTraffic,
    AskedRun,
    check_whole,
    check_written,
    fabric_of,
    prepared,
    refuse_settings,
    traffic_of,
)
from .run import RunSettings, Tell, play, require


def fabric(words: AnyFabric, gpus: int = 0) -> Fabric:
    """The fabric of these words; if they name no size, with room for `gpus` (0: the usual size)."""
    check_whole("gpus", gpus)
    return fabric_of(words, Needs(gpus))


def recipe(name: str | Path | Workload, *settings: str) -> Workload:
    """The job of a recipe, with settings such as `training.pp=2` that override its keys."""
    if isinstance(name, Workload):
        refuse_settings(settings)
        return name
    if not isinstance(name, (str, Path)):
        raise RFabricError(f"recipe {name!r}: give a name, a path or a Workload")
    check_written(settings)
    return read_recipe(name, settings)


def trace(traffic: AnyTraffic, *settings: str, seed: int = 0, scheduler: str = "") -> Trace:
    """What a job sends. `settings` override keys of its recipe; `scheduler` names who computes what
    when.
    """
    return traffic_of(traffic, settings, seed, scheduler).trace


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
    settings = RunSettings("simulate", seed, routing, in_flight, repetitions, transport=transport)
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
    settings = RunSettings("emulate", seed, routing, in_flight, "folded", *scale, out)
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
    settings = RunSettings("simulate", seed, routing, in_flight, repetitions, transport=transport)
    return _compared(_several(fabrics), traffic, _several(policy), settings, tell)


def read_run(folder: str | Path) -> Comparison:
    """Read the runs of a run folder."""
    runs, _ = read_folder(folder)
    inputs = sorted((Path(folder) / "inputs").glob("*"))
    return Comparison.of(runs, inputs)


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
    ready = prepared(AskedRun(fabrics, traffic, policies), settings, tell)
    return Comparison(tuple(play(ready.cases, ready.traffic, settings, tell)))


def _check_settings(settings: RunSettings) -> None:
    """Check what the command line checks as it reads."""
    for name, asked, usual in (
        ("routing", settings.routing, "placed"),
        ("repetitions", settings.repetitions, "folded"),
        ("transport", settings.transport, "rdma"),
    ):
        if type(asked) is not str:
            raise RFabricError(f"{name} {asked!r}: give its name, such as {usual!r}")
    check_whole("seed", settings.seed)
    scale = settings.bandwidth, settings.dilation, settings.sample
    for name, value in zip(("bandwidth_scale", "time_dilation", "sample"), scale, strict=True):
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value < inf:
            raise RFabricError(f"{name} {value!r} must be a number from 0 on")
    as_path(settings.out, "out")


def _several(asked: object) -> list:
    return list(asked) if isinstance(asked, (list, tuple)) else [asked]

"""The traffic of a run by name: a recipe in traffic/ or a YAML file, scheduled and lowered to its
trace, or a trace file.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import RFabricError
from ..fabric import Needs
from ..rl.workload import Workload, read_recipe
from ..specs import head_of
from ..trace import Traffic, files_of_trace, is_drawn, is_trace, needs_of, read_trace
from .base import AnsweringNetwork, Scheduled
from .table import asked_network, scheduled
from .weave import POLICIES
from .weave.traffic import is_shared, read_shared

# the network of a job of these needs
Networks = Callable[[Needs], AnsweringNetwork]


def read_traffic(
    name: str,
    settings: Sequence[str] = (),
    seed: int = 0,
    scheduler: str = "",
    network: Networks | None = None,
) -> Traffic:
    """The traffic called `name`; `settings` such as `training.tp=2` are put over a recipe, such as
    `ranks_per_host=8` are those of a trace's format, whose name `format=NAME` may say.

    Same seed, same trace. It is also that of a trace file whose flows are drawn by chance, unless
    its settings say one.

    scheduler: who schedules its computing (`table.scheduled`), of jobs that share nodes each job's,
    or who shares which nodes (`weave`); '': what it says itself. network: whom it asks, where its
    settings say that it does.

    RFabricError for a scheduler over a trace file, or settings that its format has not.
    """
    if _is_trace(name, settings):
        if scheduler:
            raise RFabricError(
                f"policy {scheduler} schedules recipes; {name} is a trace file, "
                "whose schedule is made"
            )
        said = dict(map(_setting, settings))
        if is_drawn(Path(name), said.get("format", "")):
            said.setdefault("seed", str(seed))
        trace = read_trace(name, **said)
        return Traffic(trace, Path(name).stem, _files(name, settings), needs_of(trace))
    if is_shared(name):
        return _shared(name, settings, seed, scheduler)
    return traffic_of_recipe(read_recipe(name, settings), seed, scheduler, network)


def traffic_of_recipe(
    w: Workload, seed: int = 0, scheduler: str = "", network: Networks | None = None
) -> Traffic:
    """The traffic of one job; the rest as for `read_traffic`."""
    answers = network(w.needs) if network and asked_network(scheduler) else None
    return sent_by(w, scheduled(w, seed, scheduler, answers))


def sent_by(w: Workload, made: Scheduled) -> Traffic:
    """What a job sends that is scheduled."""
    return Traffic(made.trace, w.name, w.files, w.needs, _notes(w))


def needs_of_job(name: str, settings: Sequence[str] = ()) -> Needs:
    """What a job asks of a fabric, whoever schedules it; of a recipe nothing is scheduled."""
    if _is_trace(name, settings) or is_shared(name):
        return read_traffic(name, settings).needs
    return read_recipe(name, settings).needs


def inputs_of_job(name: str, settings: Sequence[str] = ()) -> tuple[Path, ...]:
    """The files that a job is read from; a trace's are not read, of a recipe nothing is
    scheduled.
    """
    if _is_trace(name, settings):
        return _files(name, settings)
    if is_shared(name):
        return read_traffic(name, settings).inputs
    return read_recipe(name, settings).files


def _is_trace(name: str, settings: Sequence[str]) -> bool:
    return is_trace(name) or any(one.startswith("format=") for one in settings)


def _files(name: str, settings: Sequence[str]) -> tuple[Path, ...]:
    """The files of a trace."""
    return files_of_trace(Path(name), dict(map(_setting, settings)).get("format", ""))


def _shared(name: str, settings: Sequence[str], seed: int, scheduler: str) -> Traffic:
    """The traffic of a file of jobs: `scheduler` says who shares which nodes, or how each job
    computes on those that the file's own policy gives it.
    """
    if not scheduler or head_of(scheduler) in POLICIES:
        return read_shared(name, settings, seed, scheduler)
    if asked_network(scheduler):
        raise RFabricError(
            f"policy {scheduler} agrees the plan of one job with its fabric, and {name} has "
            "several, whose plans would have to be agreed together; leave network out"
        )
    traffic = read_shared(name, settings, seed, "", lambda w, seed: scheduled(w, seed, scheduler))
    said = traffic.trace.provenance
    said.update(shared_by=said["scheduler"], scheduler=scheduler)
    return traffic


def _notes(w: Workload) -> tuple[str, ...]:
    """That one step of a pipelined job says nothing of how its steps overlap."""
    if w.steps > 1 or not w.steps_ahead:
        return ()
    return (
        f"{w.name} has pipeline {w.pipeline}, and one step of it runs from end to end: its phases "
        "overlap those of other steps; --set steps=4 plays several, `rfabric trace --explain` says "
        "the time from step to step",
    )


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise RFabricError(f"--set {text!r}: say KEY=VALUE, such as ranks_per_host=8")
    return key.strip(), value.strip()

"""The traffic of a run by name: a recipe in traffic/ or a YAML file, scheduled and lowered to its trace, or a trace file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import RFabricError
from ..fabric import Needs
from ..trace import Trace, read_trace

TRACE_SUFFIXES = (".csv", ".jsonl", ".txt", ".htsim", ".flows")


@dataclass(frozen=True, eq=False)
class Traffic:
    """A trace, what to call it, the files it came from, and what its job asks of a fabric: nothing where it is a trace file."""

    trace: Trace
    name: str
    inputs: tuple[Path, ...]
    needs: Needs = Needs()

    @property
    def gpus(self) -> int:
        """GPUs of the job; 0 where nothing says how many."""
        return self.needs.gpus


def read_traffic(name: str, settings: Sequence[str] = (), seed: int = 0, scheduler: str = "") -> Traffic:
    """The traffic called `name`; `settings` such as `training.tp=2` are put over a recipe. Same seed, same trace.

    scheduler: who schedules its computing (`schedule.scheduled`, for jobs that share nodes `multiplex`); '': what it says itself.
    """
    if Path(name).suffix in TRACE_SUFFIXES:
        if scheduler:
            raise RFabricError(f"policy {scheduler} schedules recipes; {name} is a trace file, whose schedule is made")
        if settings:
            raise RFabricError(f"--set changes recipes; {name} is a trace file")
        return Traffic(read_trace(name), Path(name).stem, (Path(name),))
    from .multiplex.traffic import is_shared, read_shared
    from .schedule import scheduled
    from .workload import read_recipe

    if is_shared(name):
        return read_shared(name, settings, seed, scheduler)
    w = read_recipe(name, settings)
    return Traffic(scheduled(w, seed, scheduler).trace, w.name, w.files, w.needs)

"""The traffic of a run by name: a recipe in traffic/ or a YAML file, scheduled and lowered to its
trace, or a trace file.
"""

from collections.abc import Sequence
from pathlib import Path

from ..errors import RFabricError
from ..rl.workload import read_recipe
from ..trace import Traffic, is_trace, read_trace
from .table import scheduled
from .weave.traffic import is_shared, read_shared


def read_traffic(
    name: str, settings: Sequence[str] = (), seed: int = 0, scheduler: str = ""
) -> Traffic:
    """The traffic called `name`; `settings` such as `training.tp=2` are put over a recipe.

    Same seed, same trace.

    scheduler: who schedules its computing (`table.scheduled`, for jobs that share nodes `weave`);
    '': what it says itself.

    RFabricError for a scheduler or settings over a trace file.
    """
    if is_trace(name):
        if scheduler:
            raise RFabricError(
                f"policy {scheduler} schedules recipes; {name} is a trace file, "
                "whose schedule is made"
            )
        if settings:
            raise RFabricError(f"--set changes recipes; {name} is a trace file")
        return Traffic(read_trace(name), Path(name).stem, (Path(name),))
    if is_shared(name):
        return read_shared(name, settings, seed, scheduler)
    w = read_recipe(name, settings)
    return Traffic(scheduled(w, seed, scheduler).trace, w.name, w.files, w.needs)

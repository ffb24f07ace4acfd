"""Traffic: a trace with its name, the files it came from, and what its job asks of a fabric."""

from dataclasses import dataclass
from pathlib import Path

from ..fabric import Needs
from .model import Trace


@dataclass(frozen=True, eq=False)
class Traffic:
    """A trace, what to call it, the files it came from, and what its job asks of a fabric: nothing
    where it is a trace file. `notes`: what who reads a result must know of it.
    """

    trace: Trace
    name: str
    inputs: tuple[Path, ...]
    needs: Needs = Needs()
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs of the job; 0 where nothing says how many."""
        return self.needs.gpus

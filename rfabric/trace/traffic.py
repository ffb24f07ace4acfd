"""Traffic: a trace with its name, the files it came from, and what its job asks of a fabric."""

import re
from dataclasses import dataclass
from pathlib import Path

from ..fabric import Needs
from .model import Trace

USUAL = 64  # hosts of a fabric that says nothing of its size
NUMBERED = re.compile(r"h([1-9]\d{0,8})")


def needs_of(trace: Trace) -> Needs:
    """What a trace file asks of a fabric: room, where it names hosts beyond the usual ones."""
    numbers = [int(name[1]) for name in map(NUMBERED.fullmatch, trace.hosts) if name]
    most = max(numbers, default=0)
    return Needs(most if most > USUAL else 0)


@dataclass(frozen=True, eq=False)
class Traffic:
    """A trace, what to call it, the files it came from, and what its job asks of a fabric (of a
    trace file: `needs_of`). `notes`: what who reads a result must know of it.
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

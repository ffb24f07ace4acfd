"""What the host took of the time of each communication phase."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..trace import Trace

# s of wall clock: what is lost of a shorter phase is told as a share of this, because the kernel
# gives the processor in turns of some milliseconds
LEAST = 0.5


@dataclass(frozen=True)
class Lost:
    """By communication phase, the share of its time in which

    idle: no cable was full that its flows cross (`fullness`);
    waited: the datapath was ready to work and had to wait for a processor.
    """

    idle: Mapping[str, float] = field(default_factory=dict)
    waited: Mapping[str, float] = field(default_factory=dict)


class PhaseSeconds:
    """Seconds of each communication phase of a trace, and how many of them were lost."""

    def __init__(self, trace: Trace):
        phases = trace.communication()
        self.names = [f"{phase}/{step} {label}".strip() for step, phase, label in phases]
        self.phase = np.zeros(len(trace), np.int64)  # of each row
        for number, rows in enumerate(phases.values()):
            self.phase[rows] = number
        self.seconds, self.lost = (np.zeros(len(phases)) for _ in range(2))

    def of(self, rows: Collection[int]) -> np.ndarray:
        """The phases, by number, that rows belong to."""
        return np.unique(self.phase[np.fromiter(rows, np.int64, len(rows))])

    def add(self, phases: np.ndarray, seconds: float, lost: np.ndarray | float) -> None:
        """Another `seconds` s of these phases, of which `lost` s were lost."""
        self.seconds[phases] += seconds
        self.lost[phases] += lost

    def shares(self, known: float = 0.0, least: float = 0.0) -> dict[str, float]:
        """By name, the share of its time that was lost of each phase of which more than `known` s
        are; of one shorter than `least` s, the share of that.
        """
        return {
            name: float(lost / max(seconds, least))
            for name, lost, seconds in zip(self.names, self.lost, self.seconds, strict=True)
            if seconds > known
        }


class Waits:
    """Adds up how long the datapath waited, by phase of the flows in flight.

    A look that sees one phase end and another begin counts for both.
    """

    def __init__(self, trace: Trace):
        self.phases = PhaseSeconds(trace)
        self._before: np.ndarray | None = None
        self._now = self._waited = 0.0

    def look(self, now: float, waited: float, flying: Collection[int]) -> None:
        """One look at `now` (s): how long the datapath has waited so far (s), and the rows in
        flight.
        """
        phases = self.phases.of(flying)
        if self._before is not None:
            both = np.union1d(phases, self._before)
            self.phases.add(both, now - self._now, waited - self._waited)
        self._before, self._now, self._waited = phases, now, waited

    def shares(self) -> dict[str, float]:
        """By phase, the share of its time that the datapath waited."""
        return self.phases.shares(least=LEAST)

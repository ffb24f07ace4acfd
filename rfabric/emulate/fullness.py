"""Was every flow held up by a cable, and by nothing else?

Where flows share fairly, each crosses at least one cable that is full, as long as it is under way.
What of that is missing is time that the host took, whatever the reason: a flow whose fullest cable
carried 90 % of its rate had to do with 90 % of what the fabric would have given it.

    look 1          look 2            look 3         flows in flight at all three, settled by look 2
      |---- settle ----|----- counts -----|          idle += seconds x (1 - fullest cable's share)
"""

from collections.abc import Collection

import numpy as np

from ..fabric import Fabric
from ..report.result import Scale
from ..trace import Trace
from ..trace.packets import MTU
from ..trace.pairs import PairWays
from ..units import bytes_in, transfer_seconds
from .lost import PhaseSeconds
from .network import fastest_line
from .shaping import OVERHEAD

SPAN = 24  # packets of the fastest line in a span that is judged: fewer say too little
LEAST_WATCHED = 1.0  # s of wall clock; of phases of which less was watched nothing is said


class Fullness:
    """Looks at the cables of the flows in flight; `idle_shares` says at the end what was missing.

    Times are s of wall clock.
    """

    def __init__(self, fabric: Fabric, trace: Trace, scale: Scale):
        rates = np.repeat([link.rate for link in fabric.links], 2)
        rates = rates * scale.bandwidth / scale.dilation * OVERHEAD
        self.room = bytes_in(rates, 1.0)  # bytes of frames a second, by directed cable
        line = fastest_line(fabric) * scale.bandwidth / scale.dilation
        self.span = SPAN * transfer_seconds(MTU, line)
        self.phases = PhaseSeconds(trace)
        self._before: frozenset[int] = frozenset()
        self._ways: PairWays | None = None
        self._begin(0.0, np.zeros(len(rates)), ())

    def look(self, now: float, frames: np.ndarray, flying: Collection[int], ways: PairWays) -> None:
        """One look at `now`: bytes of `frames` by directed cable so far, and the rows in flight on
        their ways; none where they stand still for a rewire.
        """
        same = ways is self._ways
        self._ways = ways
        staying = self._rows & frozenset(flying) if same else frozenset()
        if staying and now - self._since < self.span:
            self._rows = staying
            return
        if staying:
            self._count(np.array(sorted(staying)), now, frames, ways)
        settled = self._before & frozenset(flying) if same else frozenset()
        self._before = frozenset(flying)
        self._begin(now, frames, settled)

    def idle_shares(self) -> dict[str, float]:
        """By communication phase, the share of its time in which no cable held its flows up."""
        return self.phases.shares(known=LEAST_WATCHED)

    def _begin(self, now: float, frames: np.ndarray, rows: Collection[int]) -> None:
        self._since, self._frames, self._rows = now, frames, frozenset(rows)

    def _count(self, rows: np.ndarray, now: float, frames: np.ndarray, ways: PairWays) -> None:
        seconds = now - self._since
        full = np.append((frames - self._frames) / (self.room * seconds), 1.0)
        offsets, links = ways.of(rows)
        # no bound at 0: a packet too many in one span is one too few in the next
        missing = 1 - np.maximum.reduceat(full[links], offsets[:-1])
        phase_of = self.phases.phase[rows]
        for phase in np.unique(phase_of):
            self.phases.add(phase, seconds, seconds * float(missing[phase_of == phase].mean()))

"""What a replay under way has come to since the look before, for whoever follows it.

    {"look": {"clock_s", "phase", "rows": [[row, start_s, finish_s]], "circuits": [[time_s, names]],
     "rewires": [...], "under_way": {...}, "load": {"spans", "levels"}, "guard": {...}}}

Rows are those that have started or finished since; a finish that is not yet is null. A level is
the share of its rate, of LEVELS, that a directed cable carried in the spans: the clock skips what
needs no packets, and that is no span. A look takes the replay's interpreter well below a
millisecond and says MOST_ROWS rows at most; the rest comes with the next.
"""

import base64
from collections.abc import Callable

import numpy as np

from ..report.page.records import LEVELS
from ..report.result import Pace
from .replay import Replay

NOISE = 0.5  # of a level: less is acknowledgements, and packets of the look before
MOST_ROWS = 1000
SHORT = 1e-6  # s, virtual: a span that short is none
OPINION_S = 1.0  # s of wall clock between two opinions of the guard


class Looks:
    """Looks at one replay; `say` gets each. `room`: bytes of frames a second, by directed cable."""

    def __init__(self, room: np.ndarray, say: Callable[[dict], None]):
        self.room, self.say = room, say
        self.run: Replay | None = None

    def follow(self, run: Replay) -> None:
        """From now on the looks are at this replay."""
        self.run, self.said = run, np.zeros(len(run.trace), np.int8)
        self.rewires = self.epochs = 0
        self.frames: np.ndarray | None = None
        self.until, self.wall, self.asked = 0.0, 0.0, 0.0

    def look(self, wall: float, frames: np.ndarray, opinion: Callable[[], Pace]) -> None:
        """One look at the instant `wall` of the monotonic clock; `frames`: bytes of frames so far,
        by directed cable.
        """
        told = self._news() | self._load(wall, frames)
        if wall - self.asked > OPINION_S:
            self.asked = wall
            told["guard"] = opinion().to_json()
        self.say({"look": told})

    def end(self) -> None:
        """All that is left to say of a replay that has ended."""
        while self._new_rows().any() or self.rewires < len(self.run.contract.records):
            self.say({"look": self._news()})

    def _new_rows(self) -> np.ndarray:
        """Rows that started or finished and of which that was not said: bool[rows]."""
        return self._state() != self.said

    def _state(self) -> np.ndarray:
        started, finished = (~np.isnan(column) for column in (self.run.start, self.run.finish))
        return started.astype(np.int8) + finished

    def _news(self) -> dict:
        run, contract = self.run, self.run.contract
        rows = np.flatnonzero(self._new_rows())[:MOST_ROWS]
        self.said[rows] = self._state()[rows]
        times = zip(rows.tolist(), run.start[rows].tolist(), run.finish[rows].tolist(), strict=True)
        rewires, epochs = contract.records[self.rewires :], contract.epochs[self.epochs :]
        self.rewires, self.epochs = len(contract.records), len(contract.epochs)
        going = contract.under_way
        return {
            "clock_s": run.clock.now(),
            "rows": [[row, begin, end if end == end else None] for row, begin, end in times],
            "circuits": [[time, circuits.to_json()] for time, circuits in epochs],
            # what they cost in bytes the controller knows, and is asked at the end
            "rewires": [record.to_json() | {"lost_bytes": None} for record in rewires],
            "under_way": going and {
                "phase": str(going.stages[0]) if going.stages else "",
                "requested_s": going.requested,
                "circuits_changed": going.decision.rewire.size,
                "why": going.decision.why,
            },
        }  # fmt: skip

    def _load(self, wall: float, frames: np.ndarray) -> dict:
        """What each cable carried since the look before, as a share of its rate, and when."""
        before, seconds = self.frames, wall - self.wall
        spans = self._spans()
        self.frames, self.wall = frames, wall
        if before is None or not spans or seconds <= 0:
            return {}
        levels = LEVELS * (frames - before) / (self.room * seconds)
        levels = np.where(levels < NOISE, 0, levels).clip(0, LEVELS).round().astype(np.uint8)
        return {"load": {"spans": spans, "levels": base64.b64encode(levels.tobytes()).decode()}}

    def _spans(self) -> list[tuple[float, float]]:
        """From when to when the clock ran since the look before, s."""
        clock, spans, begin = self.run.clock, [], self.until
        for left, reached in clock.jumps:
            if left - begin > SHORT:
                spans.append((begin, left))
            begin = max(begin, reached)
        clock.jumps.clear()
        now = clock.now()
        if now - begin > SHORT:
            spans.append((begin, now))
        self.until = max(begin, now)
        return spans

"""The clock of an emulation: it jumps over what needs no packets."""

import time


class Clock:
    """Virtual seconds, `dilation` times slower than CLOCK_MONOTONIC.

    It can be moved forward, and stand still.
    """

    def __init__(self, dilation: float):
        self.dilation = dilation
        self.jumps: list[tuple[float, float]] = []  # from when to when, s; who reads them clears
        self._wall, self._virtual = time.monotonic(), 0.0

    def now(self) -> float:
        """Virtual seconds since the start."""
        return self.at(time.monotonic())

    def at(self, wall: float) -> float:
        """The virtual time of a recent monotonic instant (after the last jump)."""
        return self._virtual + (wall - self._wall) / self.dilation

    def jump(self, virtual: float) -> None:
        """Move forward to `virtual`; an instant already past leaves the clock as it is."""
        now = self.now()
        self._wall, self._virtual = time.monotonic(), max(virtual, now)
        if virtual > now:
            self.jumps.append((now, virtual))

    def stood(self, since: float) -> None:
        """Take back what has passed since the virtual instant `since`: nothing in it counts."""
        self._wall, self._virtual = time.monotonic(), min(since, self.now())

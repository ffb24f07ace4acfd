"""Who looks after a run while it lasts, and lets it run first."""

import contextlib
import os
import time
from collections.abc import Collection, Iterator

import numpy as np

from ..report.result import Pace, Scale
from ..trace.pairs import PairWays
from .fullness import Fullness
from .guard import Guard
from .looks import Looks
from .lost import Lost, Waits
from .machines.watch import FarGuard
from .sandbox import Sandbox

WATCH_S = 0.25  # s between two looks at the host


@contextlib.contextmanager
def before_others() -> Iterator[None]:
    """Let this thread run whenever it wants to, where the host allows it; threads it starts do not.

    It starts many flows at one instant: where the switches, which each first packet wakes, take its
    processor, most are late.
    """
    usual = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, *usual)


class RunWatch:
    """Looks after a run: every child alive (each turn), the host's load (a few times a second)."""

    def __init__(
        self,
        box: Sandbox,
        watcher: Guard | FarGuard,
        scale: Scale,
        fullness: Fullness,
        waits: Waits,
        looks: Looks | None = None,
    ):
        self.looks = looks
        self.box, self.guard, self.scale = box, watcher, scale
        self.fullness, self.waits, self.looked = fullness, waits, time.monotonic()

    def __call__(self, flying: Collection[int], ways: PairWays) -> None:
        if time.monotonic() - self.looked > WATCH_S:
            self.looked = time.monotonic()
            self.box.check()
            self.guard.sample()
            self.fullness.look(time.monotonic(), self.guard.frames[:, 0], flying, ways)
            self.waits.look(self.looked, self.guard.waited, flying)
            if self.looks:
                self.looks.look(self.looked, self.guard.frames[:, 0], self.opinion)

    def opinion(self) -> Pace:
        """The pace so far, of what is known without asking every host."""
        run = self.looks.run
        rows = ~np.isnan(run.finish)
        took = (run.finish - run.start)[rows] * self.scale.dilation
        return self.guard.opinion(run.late[rows], took, self.scale.bandwidth, self._lost())

    def verdict(self, late: np.ndarray, took: np.ndarray) -> Pace:
        """The pace of the whole run, from how late each row started and how long it took (s of wall
        clock).

        Whoever asked for the run refuses it where the host could not keep it.
        """
        return self.guard.verdict(late, took, self.scale.bandwidth, self._lost())

    def _lost(self) -> Lost:
        return Lost(self.fullness.idle_shares(), self.waits.shares())

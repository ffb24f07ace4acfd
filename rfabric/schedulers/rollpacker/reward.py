"""The reward scheduler: every response is judged as soon as it is there, and no run is waited for
longer than its prompt asks.

    synchronous  rollout |=================|  judges |........|  training
    per sample   rollout |=================|
                 judges    . .. . ... .. .  .|                    what is left after the rollout is
                                                                  all that shows

    time-out = min(max(2 s, 1.5 x anchor), 30 s),  anchor: the slowest correct run of the prompt so
                                                   far

A pool of judges (sandboxes that run tests) serves first come, first served. RollPacker, arXiv
2509.21009.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from ...errors import RFabricError

LEAST_S, MOST_S, FACTOR = 2.0, 30.0, 1.5  # T_min, T_max and lambda


def timeout(
    anchor: float | None, least: float = LEAST_S, most: float = MOST_S, factor: float = FACTOR
) -> float:
    """Seconds that a run may take; no correct run yet (None): the most.

    RFabricError where `least` is not above 0 or exceeds `most`.
    """
    if not 0 < least <= most:
        raise RFabricError(
            f"time-out: least {least:g} s must lie above 0 s and be {most:g} s, the most, or less"
        )
    return most if anchor is None else min(max(least, factor * anchor), most)


@dataclass(frozen=True)
class Judges:
    """A pool of `workers` that run tests: exponential times of mean `seconds`; shares `right`, and
    `hanging` of the wrong.

    A run that hangs ends by its time-out. The defaults are ours, the paper states none of them.

    RFabricError without workers or for shares beyond 0 to 1.
    """

    workers: int
    seconds: float = 1.0
    right: float = 0.5
    hanging: float = 0.2

    def __post_init__(self):
        if self.workers < 1:
            raise RFabricError(f"judges: {self.workers} workers can judge nothing; give 1 or more")
        for name in ("right", "hanging"):
            if not 0 <= getattr(self, name) <= 1:
                raise RFabricError(f"judges: {name} {getattr(self, name)} must be a share, 0 to 1")


def runs(judges: Judges, groups: int, each: int, seed: int, adaptive: bool = True) -> np.ndarray:
    """Seconds of the runs of so many prompts and responses (float64[groups, each]), in the order in
    which they are judged.

    The data set's own solution, one correct run, is the first anchor of a prompt; correct runs of
    its responses raise it.
    """
    random = np.random.default_rng([seed, 5])
    shape = (groups, each)
    seconds = random.exponential(judges.seconds, shape)
    right = random.random(shape) < judges.right
    hangs = ~right & (random.random(shape) < judges.hanging)
    solution = random.exponential(judges.seconds, (groups, 1))
    if not adaptive:
        return np.where(hangs, MOST_S, np.minimum(seconds, MOST_S))
    done = np.where(right, np.minimum(seconds, MOST_S), 0.0)
    anchors = np.maximum.accumulate(np.concatenate([solution, done[:, :-1]], axis=1), axis=1)
    most = np.clip(FACTOR * anchors, LEAST_S, MOST_S)
    return np.where(hangs, most, np.minimum(seconds, most))


def judged(ready: np.ndarray, seconds: np.ndarray, workers: int) -> np.ndarray:
    """When runs that are ready at `ready` and take `seconds` end (float64, of their shape) in a
    pool of so many workers.
    """
    free = [0.0] * min(workers, max(ready.size, 1))
    ends, flat = np.zeros(ready.size), seconds.ravel()
    for i in np.argsort(ready, axis=None, kind="stable").tolist():
        ends[i] = max(float(ready.flat[i]), heapq.heappop(free)) + float(flat[i])
        heapq.heappush(free, ends[i])
    return ends.reshape(ready.shape)

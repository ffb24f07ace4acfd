"""Responses in flight: how far generation may run ahead of the weights, and what that makes of a
step once the pipeline is full.

All frameworks that train asynchronously hold one rule, each under a name of its own:

    begun <= (updates + 1 + ahead) x batch

    ahead    weight updates that generation may lack, parts of one included: AReaL's
             max_head_offpolicyness (StalenessManager.get_capacity), verl's staleness_threshold,
             ROLL's async_generation_ratio, NeMo-RL's max_trajectory_age_steps
    batch    responses that a step is trained on: those that ended first

0 is on-policy: a batch begins when the weights of the one before it are there. Two ways to a step:

    period   closed form for phases that last equally long in every step: the mean of the slowest
             circle of waiting (max-plus algebra: Baccelli et al., Synchronization and Linearity)
    play     event by event, response by response, for lengths that vary: a deeper pipeline hides
             the longest behind the responses of other batches

No pipeline is slower for being deeper: whoever comes first is served first, so that a response
that may begin sooner makes none end later.
"""

import heapq
import math
from dataclasses import dataclass

import numpy as np

from ..errors import RFabricError


def period(generation: float, trained: float, ahead: float) -> float:
    """Seconds from one step to the next of a batch that takes `generation` s on all replicas, and
    `trained` s until its weights are with them.

    What may not begin before the last weights lies between them and the next: all of a batch on
    policy, half of it half an update ahead.

    >>> [period(100.0, 60.0, ahead) for ahead in (0, 0.5, 1, 8)]
    [160.0, 110.0, 100.0, 100.0]
    """
    whole = math.floor(ahead)
    rest = (1 - (ahead - whole)) * generation
    return max(generation, trained, (rest + trained) / (whole + 1))


@dataclass(frozen=True, eq=False)
class PipelineSteps:
    """Steps of a pipeline, by time (s, float64[steps]): when a batch was `ready`, when training of
    it `starts`, when its weights were `published`.

    begun: of each response of those batches, when it began (s, float64[responses], in the order in
    which it ended); lag: updates that its weights lacked when it was trained on (int64[responses]);
    left: responses under way when the last batch was ready.
    """

    ready: np.ndarray
    starts: np.ndarray
    published: np.ndarray
    begun: np.ndarray
    lag: np.ndarray
    left: int

    @property
    def period(self) -> float:
        """Seconds from one step to the next, over the later half of them: the pipeline is full."""
        half = len(self.published) // 2
        return float(self.published[-1] - self.published[half - 1]) / (len(self.published) - half)


def play(lasts: np.ndarray, slots: int, trained: float, ahead: float) -> PipelineSteps:
    """Responses that take `lasts` s each (float64[steps, batch]) on replicas that decode `slots` at
    once, trained on in `trained` s a step.

    RFabricError for fewer than two steps, no slot, and times or a depth below 0.
    """
    steps, batch = lasts.shape
    _check_play(lasts, slots, trained, ahead)
    # those that may begin before the weights of the last step are there
    more = min(lasts.size, math.floor(batch * ahead))
    seconds = np.concatenate([lasts.ravel(), lasts.ravel()[:more]])
    begun, ended = np.empty(len(seconds)), np.empty(len(seconds))
    ready, starts, published = [], [], [0.0]

    def publish(upto: int) -> None:
        """Train on the next batch, of `upto` responses that can have ended before."""
        ready.append(float(np.partition(ended[:upto], at := len(ready) * batch + batch - 1)[at]))
        starts.append(max(ready[-1], published[-1]))
        published.append(starts[-1] + trained)

    free = [0.0] * slots
    for i, each in enumerate(seconds.tolist()):
        lacking = max(0, math.ceil((i + 1) / batch - 1 - ahead))  # updates that must have come
        while len(published) <= lacking:
            publish(i)
        begun[i] = max(heapq.heappop(free), published[lacking])
        ended[i] = begun[i] + each
        heapq.heappush(free, ended[i])
    while len(ready) < steps:
        publish(len(seconds))
    order = np.argsort(ended, kind="stable")[: lasts.size]
    weights = np.searchsorted(published[1:], begun[order], side="right")
    lag = np.maximum(np.repeat(np.arange(steps), batch) - weights, 0)
    left = int(np.count_nonzero((begun < ready[-1]) & (ended > ready[-1])))
    return PipelineSteps(
        np.array(ready), np.array(starts), np.array(published[1:]), begun[order], lag, left
    )


def _check_play(lasts: np.ndarray, slots: int, trained: float, ahead: float) -> None:
    for name, value, least in (
        ("steps", len(lasts), 2),
        ("slots", slots, 1),
        ("the shortest response", float(lasts.min(initial=0.0)), 0),
        ("trained", trained, 0),
        ("ahead", ahead, 0),
    ):
        if not value >= least:
            raise RFabricError(f"in flight: {name} {value:g} must be {least} or more")

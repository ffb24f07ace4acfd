"""Trajectories of the recipe itself: the same responses that every other scheduler draws, in turns
of its environment.
"""

import numpy as np

from ...rl import phases
from ...rl.workload import Workload
from .tasks import Episode, Task

_NEVER = 10**6


class RecipeTrajectories:
    """Trajectories of the recipe itself, the same responses that every other scheduler draws."""

    def __init__(self, w: Workload, task: Task, seed: int, members: int):
        self.w, self.task, self.seed, self.members = w, task, seed, members
        self.drawn: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def episode(self, number: int) -> Episode:
        """Trajectory `number`: its group's prompt, a response of its own in even turns."""
        g = self.w.generation
        group, member = divmod(number, self.members)
        # redundant ones are drawn of a step that never comes
        extra, i = divmod(member, g.group_size)
        step, first = divmod(group * g.group_size, g.responses)
        _, outputs = self._drawn(step + extra * _NEVER)
        parts = _parts(int(outputs[first + i]), g.turns)
        prompt = int(self._drawn(step)[0][first])
        return Episode(number, self.task, group, prompt, parts, self._latencies(number, len(parts)))

    def _drawn(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        if step not in self.drawn:
            self.drawn[step] = phases.responses(self.w, self.seed, step)
        return self.drawn[step]

    def _latencies(self, number: int, turns: int) -> tuple[float, ...]:
        random, t = np.random.default_rng([self.seed, number, 1]), self.task
        latencies = np.maximum(0.0, random.normal(t.latency, t.spread, turns))
        latencies[0] = t.reset + (t.repair if random.random() < t.failure else 0.0)
        return tuple(latencies.tolist())


def _parts(tokens: int, turns: int) -> tuple[int, ...]:
    """A response in as equal turns as whole tokens allow."""
    return tuple(
        part for t in range(turns) if (part := tokens * (t + 1) // turns - tokens * t // turns)
    )

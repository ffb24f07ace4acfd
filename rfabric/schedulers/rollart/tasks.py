"""Agents' tasks: what a trajectory of turns is, how one is drawn, and the tasks that were measured.

    reset -> turn 1 -> environment -> turn 2 -> ... -> last turn -> reward

Tokens, seconds. The same number of the same seed is the same trajectory.
"""

from dataclasses import dataclass

import numpy as np

from ...errors import RFabricError


@dataclass(frozen=True)
class Task:
    """A domain of tasks.

    turns: fewest and most, drawn evenly; output: mean tokens of a turn, as many in all turns of a
    trajectory, log-normal over trajectories with `tail` as sigma.

    latency, spread: of an environment's answer, normal and never below 0; reset: of a new
    environment, which fails with chance `failure` and then takes `repair` more; rewarded: seconds
    of the reward. caches: the next turn's prompt continues this one's; heavy: what the GPUs are
    asked for most, `prefill` or `decode`.

    RFabricError for figures out of bounds.
    """

    name: str
    turns: tuple[int, int]
    prompt: int
    output: float
    tail: float
    observed: int
    latency: float = 0.0
    spread: float = 0.0
    reset: float = 0.0
    failure: float = 0.0
    repair: float = 0.0
    rewarded: float = 0.0
    caches: bool = True
    heavy: str = "decode"

    def __post_init__(self):
        least, most = self.turns
        if not 1 <= least <= most:
            raise RFabricError(
                f"task {self.name}: turns {least} to {most} must be 1 or more, the fewest first"
            )
        for key in ("latency", "spread", "reset", "repair", "rewarded", "observed", "tail"):
            if not getattr(self, key) >= 0:
                raise RFabricError(
                    f"task {self.name}: {key} {getattr(self, key)} must be 0 or more"
                )
        if not 0 <= self.failure < 1:
            raise RFabricError(
                f"task {self.name}: failure {self.failure} is a chance: 0 or more, below 1"
            )
        if self.heavy not in ("prefill", "decode"):
            raise RFabricError(
                f"task {self.name}: heavy {self.heavy!r} is not known; use prefill or decode"
            )
        if not (self.prompt >= 1 and self.output >= 1):
            raise RFabricError(
                f"task {self.name}: prompt {self.prompt} and output {self.output:g} must be 1 "
                "token or more"
            )


@dataclass(frozen=True)
class Episode:
    """One trajectory as it will go if nobody aborts it: tokens of each turn, seconds before each
    (the reset first).
    """

    number: int
    task: Task
    group: int
    prompt: int
    outputs: tuple[int, ...]
    latencies: tuple[float, ...]

    def context(self, turn: int) -> int:
        """Tokens that turn `turn` reads."""
        return self.prompt + sum(self.outputs[:turn]) + self.task.observed * turn

    @property
    def tokens(self) -> int:
        """All it reads and writes: what is trained on."""
        return self.context(len(self.outputs) - 1) + self.outputs[-1]

    @property
    def response(self) -> int:
        """Tokens that it writes."""
        return sum(self.outputs)


def draw(task: Task, number: int, seed: int, longest: int, group_size: int = 1) -> Episode:
    """Trajectory `number` of a task, cut where its context reaches `longest`; the same number is
    the same trajectory.
    """
    random = np.random.default_rng([seed, number])
    turns = int(random.integers(task.turns[0], task.turns[1] + 1))
    drawn = np.exp(task.tail * random.standard_normal() - task.tail**2 / 2)
    outputs = [max(1, round(task.output * drawn))] * turns
    latencies = np.maximum(0.0, random.normal(task.latency, task.spread, turns))
    latencies[0] = task.reset + (task.repair if random.random() < task.failure else 0.0)
    return Episode(
        number,
        task,
        number // group_size,
        task.prompt,
        _cut(task, outputs, longest),
        tuple(latencies.tolist()),
    )


def _cut(task: Task, outputs: list[int], longest: int) -> tuple[int, ...]:
    context, kept = task.prompt, []
    for output in outputs:
        if context >= longest:
            break
        kept.append(min(output, longest - context))
        context += output + task.observed
    if not kept:
        raise RFabricError(
            f"task {task.name}: its prompt of {task.prompt} tokens leaves no room in {longest}"
        )
    return tuple(kept)


# Turns are bimodal, below 5 or above 10, and 48 at most (RollArt, section 3.1 and production); many
# turns are heavy in prefill, few in decode. The longest response of a production batch is 5 to 9
# times the mean: of 512 log-normal ones, 7 times for a sigma of 0.74. Within 32k of context the
# mean is then 4.7k tokens.
TAIL = 0.74
# A reward model held 4 H800 busy for 7.4 % of a step of 366 s on 128 trajectories: 0.85 GPU seconds
# each.
REWARD_S = 0.074 * 366 * 4 / 128
TASKS = {
    # A board and a move a turn; each prompt is rendered anew, so that no context is found cached.
    # Tokens are assumed.
    "FrozenLake": Task("FrozenLake", (10, 20), 512, 100, TAIL, 200, caches=False, heavy="prefill"),
    # Long answers in few turns, judged by a model.
    "GEM-Math": Task("GEM-Math", (1, 4), 512, 32768 / 7 / 2.5, TAIL, 100, rewarded=REWARD_S),
    # Tokens of recorded coding agents (13,234 calls of 242 agents): outputs of 445 tokens in the
    # mean, 407 new tokens between calls in the median. Of a step of 366 s (RollArt) reset takes 15
    # %; generation and training leave 8 % for 48 answers at most; in 1 of 10 iterations of 128 a
    # reset fails, which takes 513 - 366 s more.
    "SWE-bench": Task(
        "SWE-bench",
        (10, 48),
        1024,
        445,
        TAIL,
        407,
        latency=0.08 * 366 / 48,
        spread=0.08 * 366 / 48,
        reset=0.15 * 366,
        failure=1 - 0.9 ** (1 / 128),
        repair=147,
        rewarded=REWARD_S,
        heavy="prefill",
    ),
}


def named_tasks(text: str) -> list[Task]:
    """The tasks that `A/B/C` names. RFabricError for an unknown one."""
    unknown = [name for name in text.split("/") if name not in TASKS]
    if unknown:
        raise RFabricError(
            f"scheduler rollart: no task {unknown[0]!r}; there are {', '.join(TASKS)}, joined by /"
        )
    return [TASKS[name] for name in text.split("/")]

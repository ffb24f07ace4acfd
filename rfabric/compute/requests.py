"""What engines are asked for: requests as columns, all at once, in a closed loop, or in the turns
of agents.

    independent  all are there at the start; groups share their prompt
    closed_loop  clients that each send the next request when the last is answered
    in_turns     a rollout's answer in parts; between two an environment answers, and the context
                 stays cached

Prompts, outputs and contexts are tokens, gaps seconds.
"""

from dataclasses import dataclass

import numpy as np

from ..errors import RFabricError


@dataclass(frozen=True, eq=False)
class Requests:
    """Columns of requests: `prompt` tokens of context before the first of `output` tokens (int64[n]
    both).

    after: the request that each follows, -1 for none; gap: seconds from its end, or from 0
    (float64[n]); cached: tokens of its prompt that the one before left; group: whose prompt is the
    same, -1 for nobody's.
    """

    prompt: np.ndarray
    output: np.ndarray
    after: np.ndarray
    gap: np.ndarray
    cached: np.ndarray
    group: np.ndarray

    def __post_init__(self):
        for name in ("prompt", "output", "after", "cached", "group"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.int64))
        object.__setattr__(self, "gap", np.asarray(self.gap, dtype=float))
        self._check()

    def _check(self) -> None:
        n = len(self.prompt)
        if not n:
            raise RFabricError("requests: there are none; give a prompt and an output at least")
        sizes = [len(getattr(self, name)) for name in ("output", "after", "gap", "cached", "group")]
        if any(size != n for size in sizes):
            raise RFabricError(
                f"requests: {n} prompts, but columns of {sizes}; all must be as long"
            )
        for name, low in (("prompt", 1), ("output", 1), ("cached", 0), ("gap", 0)):
            least = getattr(self, name).min()
            if not least >= low:
                raise RFabricError(f"requests: {name} {least} must be {low} or more")
        if (self.after >= np.arange(n)).any() or (self.after < -1).any():
            raise RFabricError("requests: each must follow an earlier one, or -1 for none")
        if len(set(self.after[self.after >= 0])) < np.count_nonzero(self.after >= 0):
            raise RFabricError(
                "requests: two follow the same one; a turn has one next turn at most"
            )

    def __len__(self) -> int:
        return len(self.prompt)

    @property
    def following(self) -> np.ndarray:
        """int64[n]: the request that follows each, -1 for none."""
        following = np.full(len(self), -1)
        following[self.after[self.after >= 0]] = np.flatnonzero(self.after >= 0)
        return following


def independent(prompt: np.ndarray, output: np.ndarray, group_size: int = 1) -> Requests:
    """Requests that are all there at the start; runs of `group_size` have the same prompt."""
    n = len(prompt)
    group = np.arange(n) // group_size if group_size > 1 else np.full(n, -1)
    return Requests(prompt, output, np.full(n, -1), np.zeros(n), np.zeros(n), group)


def closed_loop(
    concurrency: int, prompt: int, output: int, rounds: int, gap: float = 0.0
) -> Requests:
    """`concurrency` clients that each send `rounds` requests, the next `gap` s after the answer to
    the last.

    >>> closed_loop(2, prompt=100, output=10, rounds=3).after.tolist()
    [-1, -1, 0, 1, 2, 3]
    """
    n = concurrency * rounds
    after = np.maximum(np.arange(n) - concurrency, -1)
    same = (np.full(n, prompt), np.full(n, output))
    return Requests(*same, after, np.where(after >= 0, gap, 0.0), np.zeros(n), np.full(n, -1))


def in_turns(
    prompt: np.ndarray,
    output: np.ndarray,
    turns: int,
    latency: float,
    observed: int,
    group_size: int = 1,
) -> Requests:
    """Rollouts that give their `output` tokens in `turns` parts; between two an environment takes
    `latency` s, says `observed`.

    The context grows by both and stays cached; a rollout with fewer tokens than turns takes as many
    turns as tokens.
    """
    n = len(prompt)
    if turns == 1:
        return independent(prompt, output, group_size)
    turn, rollout = np.divmod(np.arange(n * turns), n)
    parts = (output[rollout] * (turn + 1)) // turns - (output[rollout] * turn) // turns
    before = (output[rollout] * turn) // turns
    keep = parts > 0
    # turns of the rollout before this one
    took = np.cumsum(keep.reshape(turns, n), axis=0).ravel() - 1
    context = prompt[rollout] + before + observed * took
    number = np.cumsum(keep) - 1
    last = np.full(n, -1)
    after = np.full(n * turns, -1)
    for t in range(turns):
        rows = slice(t * n, (t + 1) * n)
        after[rows] = last
        last = np.where(keep[rows], number[rows], last)
    group = np.where((took == 0) & (group_size > 1), rollout // group_size, -1)
    gap = np.where(after >= 0, latency, 0.0)
    cached = np.where(after >= 0, context - observed, 0)
    return Requests(context[keep], parts[keep], after[keep], gap[keep], cached[keep], group[keep])

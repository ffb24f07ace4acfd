"""Groups of ranks side by side, of which some are recorded: who does as whom."""

import numpy as np

JobRanks = tuple[int, ...]  # ranks of the job


def groups_beside(group: JobRanks, world: int) -> list[JobRanks]:
    """The groups of a job of `world` ranks that lie beside `group`, itself among them; none where
    its ranks are not evenly spaced, or such groups would not cover the job.
    """
    n, first = len(group), group[0]
    stride = group[1] - first if n > 1 else 1
    block = stride * n
    even = stride > 0 and group == tuple(range(first, first + block, stride))
    if not even or world % block or first % block >= stride:
        return []
    starts = [b + o for b in range(0, world, block) for o in range(stride)]
    return [tuple(range(a, a + block, stride)) for a in starts]


def standing_for(every: list[JobRanks], recorded: set[int]) -> dict[JobRanks, list[JobRanks]]:
    """By each of these groups of which a rank is recorded, itself and the others of which none is,
    that are nearest to it.
    """
    known = np.flatnonzero([not recorded.isdisjoint(group) for group in every])
    every = every if len(known) else []
    nearest = np.searchsorted((known[1:] + known[:-1]) / 2, np.arange(len(every)))
    stands: dict[JobRanks, list[JobRanks]] = {every[i]: [] for i in known.tolist()}
    for group, i in zip(every, known[nearest].tolist(), strict=True):
        if group == every[i] or recorded.isdisjoint(group):
            stands[every[i]].append(group)
    return stands

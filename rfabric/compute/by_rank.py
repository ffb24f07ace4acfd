"""Numbers of one rank, or of many at once: what takes a float takes an array of them as well, and
gives as many (float64[ranks]). Those of one rank stay Python's floats, which are faster alone.
"""

from functools import reduce

import numpy as np

ByRank = float | np.ndarray


def least(*some: ByRank) -> ByRank:
    """The least of them, rank by rank.

    >>> least(3.0, 2.0), least(np.array([1.0, 4.0]), 2.0).tolist()
    (2.0, [1.0, 2.0])
    """
    return reduce(np.minimum, some) if _of_many(some) else min(some)


def most(*some: ByRank) -> ByRank:
    """The most of them, rank by rank.

    >>> most(3.0, 2.0), most(np.array([1.0, 4.0]), 2.0).tolist()
    (3.0, [2.0, 4.0])
    """
    return reduce(np.maximum, some) if _of_many(some) else max(some)


def of_rank(some: ByRank, rank: int) -> float:
    """One rank's; what is the same for all is its own.

    >>> of_rank(np.array([1.0, 4.0]), 1), of_rank(2.0, 1)
    (4.0, 2.0)
    """
    return float(some[rank]) if isinstance(some, np.ndarray) else some


def _of_many(some: tuple[ByRank, ...]) -> bool:
    return any(isinstance(one, np.ndarray) for one in some)

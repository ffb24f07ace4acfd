"""Matchings one after another, each nearly of maximum weight: the heaviest pair first, then swaps.

    a   x        a - x
    |   |   ->               a pair weighs what it wants over the circuits it has and one more,
    b   y        b - y       and as much as the heaviest on top where it has none and must be met

By the compiled core (`swaps.cpp`), or where that was never built by Python: the same matchings, a
hundred times as slow.
"""

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

from .. import native
from ..routing.inner import ARRAY, COUNT, NO_MEMORY, at

NOBODY = -1


class Wishes(ctypes.Structure):
    """What the core is told; see `Wishes` of swaps.cpp."""

    _fields_ = [
        *((name, COUNT) for name in ("racks", "pairs", "planes", "rounds")),
        *((name, ARRAY) for name in ("rows", "columns", "region", "wanted", "given")),
        ("until_met", COUNT),
    ]


def swapped(
    rows: np.ndarray,
    columns: np.ndarray,
    wanted: np.ndarray,
    region: np.ndarray,
    rounds: int,
    given: np.ndarray,
    until_met: bool = False,
) -> np.ndarray:
    """int64[rounds, planes, racks]: who each rack is joined to, -1 for nobody; pairs i of racks
    rows[i] and columns[i], which want wanted[i] > 0.

    `region[plane]` of a rack: which others that plane can join it to, -1 for none. `given`
    (float64[pairs]): the circuits each pair has; it is counted on. `until_met`: pairs that have
    none come first, and rounds end when there are no such. MemoryError where there is no room.

    >>> rows, columns = np.array([0, 0, 2, 1]), np.array([1, 2, 3, 3])
    >>> wanted, region = np.array([6.0, 5.0, 1.0, 5.0]), np.zeros((1, 4), int)
    >>> swapped(rows, columns, wanted, region, 1, np.zeros(4)).tolist()
    [[[2, 3, 0, 1]]]
    """
    columns_of = (np.ascontiguousarray(column, np.int64) for column in (rows, columns, region))
    asked = *columns_of, wanted / wanted.max(initial=1e-300), rounds, given, until_met
    return (by_core if _core() else by_python)(*asked)


def by_core(
    rows: np.ndarray,
    columns: np.ndarray,
    region: np.ndarray,
    wanted: np.ndarray,
    rounds: int,
    given: np.ndarray,
    until_met: bool,
) -> np.ndarray:
    """`swapped` of what is wanted up to 1, by the compiled core.

    MemoryError where there is no room for it; RFabricError for a core that cannot be used.
    """
    planes, racks = region.shape
    mates = np.empty((rounds, planes, racks), np.int64)
    arrays = map(at, (rows, columns, region, wanted, given))
    wishes = Wishes(racks, len(rows), planes, rounds, *arrays, until_met)
    made = _core().rf_swapped(ctypes.byref(wishes), at(mates))
    if made == NO_MEMORY:
        raise MemoryError(f"no room to match {racks:,} racks by {len(rows):,} pairs")
    return mates[:made]


def by_python(
    rows: np.ndarray,
    columns: np.ndarray,
    region: np.ndarray,
    wanted: np.ndarray,
    rounds: int,
    given: np.ndarray,
    until_met: bool,
) -> np.ndarray:
    """`by_core`, without it."""
    made: list[list[list[int]]] = []
    pairs = list(zip(rows.tolist(), columns.tolist(), strict=True))
    number = {ends: i for i, (a, b) in enumerate(pairs) for ends in ((a, b), (b, a))}
    for _ in range(rounds):
        if until_met and given.all():
            break
        made.append([])
        for here in region.tolist():
            weight = (wanted / (given + 1) + (until_met * (given == 0))).tolist()
            mates = _matched(number, weight, here)
            given[[number[a, b] for a, b in enumerate(mates) if a < b]] += 1
            made[-1].append(mates)
    return np.array(made, np.int64).reshape(len(made), *region.shape)


def _matched(
    number: dict[tuple[int, int], int], weight: list[float], region: list[int]
) -> list[int]:
    """Who each rack is joined to in one plane; `number`: of each pair, either way round."""
    mates = [NOBODY] * len(region)
    partners: list[list[int]] = [[] for _ in region]
    for a, b in sorted(number, key=lambda ends: (-weight[number[ends]], number[ends])):
        if region[a] < 0 or region[a] != region[b]:
            continue
        partners[a].append(b)  # the heaviest first
        if mates[a] == mates[b] == NOBODY:
            mates[a], mates[b] = b, a

    def worth(a: int, b: int) -> float:
        joins = NOBODY not in (a, b) and region[a] == region[b] and (a, b) in number
        return weight[number[a, b]] if joins else 0.0

    for rack in range(len(region)):
        _swap(rack, partners[rack], mates, worth)
    return mates


def _swap(
    rack: int, partners: list[int], mates: list[int], worth: Callable[[int, int], float]
) -> None:
    """The best swap of a rack, where there is one."""
    most, best, had = 0.0, NOBODY, worth(rack, mates[rack])
    for other in partners:
        if (brings := worth(rack, other)) <= had:
            break
        brings += worth(mates[rack], mates[other])
        gain = brings - (had + worth(other, mates[other]))
        if gain > most:
            most, best = gain, other
    if best == NOBODY:
        return
    one, other = mates[rack], mates[best]
    for left in (one, other):
        if left != NOBODY:
            mates[left] = NOBODY
    mates[rack], mates[best] = best, rack
    if worth(one, other):
        mates[one], mates[other] = other, one


@cache
def _core() -> ctypes.CDLL | None:
    """The core with its swaps declared; None where it was never built."""
    library = native.core()
    if library is not None:
        library.rf_swapped.restype = COUNT
        library.rf_swapped.argtypes = [ARRAY, ARRAY]
    return library

"""Intervals of time, s: how many are open, when any is, a clock that runs while any is."""

import numpy as np

from ..routing.rows import distinct


def busy(begin: np.ndarray, end: np.ndarray, most: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """(times, intervals open from each time on); thinned to `most` points, each the highest of its
    bin.
    """
    times = distinct(np.concatenate((begin, end)))
    opened, closed = (np.searchsorted(np.sort(some), times, side="right") for some in (begin, end))
    count = opened - closed
    if len(times) > most:
        bins = np.linspace(0, len(times) - 1, most).astype(int)
        return times[bins], np.maximum.reduceat(count, bins)
    return times, np.maximum(count, 1e-9)


def merged(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The union of intervals as disjoint ones, ascending: float64[n, 2]."""
    order = np.argsort(begin, kind="stable")
    begin, reach = begin[order], np.maximum.accumulate(end[order])
    first = np.concatenate(([True], begin[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.column_stack((begin[first], reach[last]))


def squeezed(times: np.ndarray, bursts: np.ndarray) -> np.ndarray:
    """Seconds of `bursts` that have passed at each of `times`: a clock that stands still in
    between.
    """
    passed = np.concatenate(([0.0], np.cumsum(bursts[:, 1] - bursts[:, 0])))
    index = np.searchsorted(bursts[:, 0], times, side="right") - 1
    inside = np.minimum(
        times - bursts[np.maximum(index, 0), 0], (bursts[:, 1] - bursts[:, 0])[np.maximum(index, 0)]
    )
    return np.where(index < 0, 0.0, passed[np.maximum(index, 0)] + inside)

"""Matchings of maximum weight, part by part of what edges join."""

import numpy as np

from .fractional import matched

WEIGHT_STEPS = 10**9  # resolution of a matching's weights: the library wants whole numbers


class JoinedParts:
    """Edges between racks, part by part of what they join: rows[i] < columns[i], of so many."""

    def __init__(self, racks: int, rows: np.ndarray, columns: np.ndarray):
        part = joined_parts(racks, rows, columns)
        order = np.argsort(part, kind="stable")
        local = np.empty(racks, np.int64)  # the number of a rack within its part
        local[order] = np.arange(racks) - np.searchsorted(part[order], part[order])
        self._order = order = np.argsort(part[rows], kind="stable")
        self._ends = local[rows[order]], local[columns[order]]
        bounds = np.flatnonzero(np.diff(part[rows][order], prepend=-1, append=-1))
        several = np.diff(bounds) > 1
        self._alone = order[bounds[:-1][~several]]  # an edge alone is its part's matching
        self._spans = list(zip(bounds[:-1][several], bounds[1:][several], strict=True))

    def matching(self, weight: np.ndarray) -> np.ndarray:
        """Positions of a matching of maximum weight, ascending; equal parts are matched once."""
        shares = (weight / weight.max(initial=1e-300) * WEIGHT_STEPS).astype(np.int64)
        alike = np.stack((*self._ends, shares[self._order]), axis=1)
        known: dict[bytes, np.ndarray] = {}
        positions = [self._alone]
        for begin, end in self._spans:
            own = alike[begin:end]
            key = own.tobytes() if len(self._spans) > 1 else b""
            if key not in known:
                known[key] = matched(own)
            positions.append(self._order[begin + known[key]])
        return np.sort(np.concatenate(positions))


def joined_parts(racks: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """For each rack the first rack of the part it lies in, where rows[i] and columns[i] are
    joined.
    """
    part = np.arange(racks)
    while ((low := part[rows]) != (high := part[columns])).any():
        np.minimum.at(part, np.maximum(low, high), np.minimum(low, high))
        while (part != (further := part[part])).any():
            part = further
    return part

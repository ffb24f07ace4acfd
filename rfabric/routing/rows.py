"""Rows of unequal length as flat arrays, matrices as their entries, and the hash of many numbers at
once.

CSR: row i holds the entries offsets[i] to offsets[i + 1] of a flat array.
"""

import ctypes
from functools import cache
from typing import NamedTuple

import numpy as np

from .. import native

DIGIT = 16  # bits: numbers so narrow numpy sorts in linear time
SPLITMIX = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # as its finaliser has them


def offsets_of(counts: np.ndarray) -> np.ndarray:
    """CSR offsets (int64[n+1]) of so many entries each."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def summed(codes: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(codes, each once, ascending; float64, the values of each added up in the order in which they
    stand).
    """
    codes, which = numbered(codes)
    return codes, np.bincount(which, values, minlength=len(codes))


def spread(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """first[0], first[0] + 1, ...

    counts[0] times, then from first[1], and so on: the entries of CSR rows.
    """
    if (counts == 1).all():  # as of most rows of a trace
        return np.array(first)
    if core := _core():
        first, counts = (np.ascontiguousarray(column, np.int64) for column in (first, counts))
        entries = np.empty(int(counts.sum()), np.int64)
        core.rf_spread(len(first), *(column.ctypes.data for column in (first, counts, entries)))
        return entries
    ends = np.cumsum(counts, dtype=np.int64)
    entries = np.repeat(first - ends + counts, counts)
    entries += np.arange(len(entries))
    return entries


def widened(rows: np.ndarray, width: int, fill: int) -> np.ndarray:
    """A copy of the rows with so many columns, the new ones holding `fill`."""
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=fill)


def closed_up(rows: np.ndarray, fill: int) -> np.ndarray:
    """Each row with the entries that are `fill` behind the others, which keep their order."""
    return np.take_along_axis(rows, np.argsort(rows == fill, axis=1, kind="stable"), 1)


def begins(*columns: np.ndarray) -> np.ndarray:
    """bool[n]: where a run of equal rows of these columns, sorted, begins."""
    first = np.zeros(len(columns[0]), bool)
    first[:1] = True
    for column in columns:
        first[1:] |= column[1:] != column[:-1]
    return first


def distinct(codes: np.ndarray) -> np.ndarray:
    """Each code once, ascending: numpy's unique hashes first, and is many times slower."""
    codes = np.sort(codes)
    return codes[begins(codes)]


def numbered(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(codes, each once, ascending; int64[n], which of them each is): numpy's unique in
    a quarter of the time, and less where equal ones come in runs.
    """
    runs = np.flatnonzero(begins(codes))
    some = codes[runs]
    order = in_order(some)
    first = begins(some[order])
    which = np.empty(len(runs), np.int64)
    which[order] = np.cumsum(first) - 1
    return some[order[first]], np.repeat(which, np.diff(runs, append=len(codes)))


def in_order(*columns: np.ndarray) -> np.ndarray:
    """int64[n]: rows of these columns of integers by the first, then the second; equal ones as
    they stand: what numpy's lexsort says of whole numbers, many times sooner. Where a number has
    room for a row's columns and its place, such numbers are sorted; else digit by digit.
    """
    place = np.arange(len(columns[0]))
    least = [min(int(column.min(initial=0)), 0) for column in columns]
    bits = [
        (int(column.max(initial=0)) - low).bit_length()
        for column, low in zip(columns, least, strict=True)
    ]
    below = max(len(place) - 1, 0).bit_length()
    if sum(bits) + below < 64:
        row = np.zeros(len(place), np.int64)
        for column, low, wide in zip(columns, least, bits, strict=True):
            row <<= wide
            column = column.astype(np.int64, copy=False)  # uint64 and int64 have no common integer
            row |= column - low if low else column
        if (row[1:] >= row[:-1]).all():
            return place
        row <<= below
        row |= place
        row.sort()
        row &= (1 << below) - 1
        return row
    digits: list[np.ndarray] = []
    for column, low, wide in zip(columns[::-1], least[::-1], bits[::-1], strict=True):
        column = column.astype(np.int64) - low if low else column
        digits += [(column >> at).astype(np.uint16) for at in range(0, max(wide, 1), DIGIT)]
    return np.lexsort(digits)


def ranks(*columns: np.ndarray) -> np.ndarray:
    """int64[n]: the place of each row of these columns, sorted, in its run of equal ones."""
    at = np.arange(len(columns[0]))
    return at - np.maximum.accumulate(np.where(begins(*columns), at, 0))


def some_of(key: np.ndarray, most: int) -> np.ndarray:
    """Of the rows of each key `most`, spread evenly over the hash order: no corner of the fabric is
    preferred.
    """
    rank = ranks(key)
    if not (rank >= most).any():
        return np.arange(len(key))
    order = np.lexsort((mixed(rank.astype(np.uint64)), key))
    return np.sort(order[ranks(key[order]) < most])


def mixed(x: np.ndarray) -> np.ndarray:
    """`paths.mix` of every element (uint64): splitmix64's finaliser."""
    step, first, second = map(np.uint64, SPLITMIX)
    x = x + step
    x = (x ^ x >> np.uint64(30)) * first
    x = (x ^ x >> np.uint64(27)) * second
    return x ^ x >> np.uint64(31)


def leads_nearer(there: np.ndarray, here: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Whether an arc of cost `step` leads on a cheapest way: `there`, what its end costs and itself
    added up, is what it costs from `here`.

    In a sum with the cost of a very slow link, a cheap arc the wrong way is lost: it must not pass
    for one that fits.
    """
    return np.abs(there - here) <= 1e-6 * step + 1e-15 * here


class Entries(NamedTuple):
    """Bytes from rack to rack: a matrix as its entries, int64 `rows` and `columns`, by row, then
    column; float64 `bytes` > 0.
    """

    rows: np.ndarray
    columns: np.ndarray
    bytes: np.ndarray

    @classmethod
    def of(cls, matrix: np.ndarray) -> "Entries":
        """Those of a dense matrix."""
        rows, columns = np.nonzero(matrix)
        return cls(rows, columns, matrix[rows, columns])

    @classmethod
    def summed(
        cls, rows: np.ndarray, columns: np.ndarray, bytes: np.ndarray, racks: int
    ) -> "Entries":
        """Bytes at the same place added up, in the order in which they stand; places of none left
        out.
        """
        codes, sent = summed(rows * racks + columns, bytes)
        codes, sent = codes[sent > 0], sent[sent > 0]
        return cls(codes // racks, codes % racks, sent)

    def dense(self, racks: int) -> np.ndarray:
        """float64[racks, racks]."""
        table = np.zeros((racks, racks))
        table[self.rows, self.columns] = self.bytes
        return table


@cache
def _core() -> ctypes.CDLL | None:
    """The core with its rows declared; None where it was never built."""
    library = native.core()
    if library is not None:
        library.rf_spread.restype = None
        library.rf_spread.argtypes = [ctypes.c_int64, *[ctypes.c_void_p] * 3]
    return library

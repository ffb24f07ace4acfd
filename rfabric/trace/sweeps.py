"""Passes over the rows of a trace, each row after all that it waits for, in the compiled core
(`sweeps.cpp`), through ctypes: arrays in, arrays out.

They do what `Trace` does level by level, to the last bit; `core()` is None where it was never
built.
"""

import ctypes
from functools import cache
from typing import NamedTuple

import numpy as np

from .. import native
from ..routing.inner import ARRAY, at


@cache
def core() -> ctypes.CDLL | None:
    """The core with these passes declared."""
    library = native.core()
    if library is None:
        return None
    for name, arrays in (("rf_pass_times", 8), ("rf_pass_latest", 3), ("rf_pass_depths", 4)):
        function = getattr(library, name)
        function.restype, function.argtypes = None, [ARRAY] * arrays
    return library


class WaitingRows(NamedTuple):
    """What each of n rows waits for: CSR `offsets` (int64[n + 1]) and `after` (int32); `line`: the
    rows, each behind all that it waits for (int32[n]; None: they stand so).
    """

    offsets: np.ndarray
    after: np.ndarray
    line: np.ndarray | None

    def times(
        self,
        start: np.ndarray,
        gap: np.ndarray,
        spent: np.ndarray,
        phase: np.ndarray | None,
        elsewhere: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """`Trace._passed`."""
        columns = [self._column(column, float) for column in (start, gap, spent)]
        columns.append(None if phase is None else self._column(phase, np.int64))
        columns.append(None if elsewhere is None else self._column(elsewhere, float))
        ready, finish = np.empty(self._rows), np.empty(self._rows)
        self._pass("rf_pass_times", *columns, ready, finish)
        return ready, finish

    def latest(self, numbers: np.ndarray) -> np.ndarray:
        """`Trace.latest`."""
        latest = np.empty(self._rows, np.int64)
        self._pass("rf_pass_latest", self._column(numbers, np.int64), latest)
        return latest

    def depths(self, numbers: np.ndarray) -> np.ndarray:
        """`Trace.depths`."""
        carried, depths = np.empty((2, self._rows), np.int64)
        self._pass("rf_pass_depths", self._column(numbers, np.int64), carried, depths)
        return depths

    @property
    def _rows(self) -> int:
        return len(self.offsets) - 1

    def _column(self, values: np.ndarray, kind: type) -> np.ndarray:
        """As the core reads it; ValueError for one of another length: it would read beside it."""
        if values.shape != (self._rows,):
            raise ValueError(f"a column of shape {values.shape} for {self._rows} rows")
        return np.ascontiguousarray(values, kind)

    def _pass(self, name: str, *columns: np.ndarray | None) -> None:
        held = (at(column) or 0 for column in (self.line, self.offsets, self.after))
        own = np.array([self._rows, *held], np.int64)
        getattr(core(), name)(at(own), *map(at, columns))

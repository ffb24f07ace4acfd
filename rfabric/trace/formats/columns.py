"""Columns of a trace or a result as lines of CSV, block by block."""

import ctypes
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from ... import native
from ...routing.rows import numbered, offsets_of

COUNT, ARRAY = ctypes.c_int64, ctypes.c_void_p
SPECIAL = re.compile('[,"\n\r]')  # of what stands in quotes


class Words:
    """Texts, each of which many rows may have."""

    def __init__(self, texts: Iterable[str]):
        self.texts = list(texts)

    @cached_property
    def packed(self) -> tuple[bytes, np.ndarray]:
        """(UTF-8 of the texts one after another, int64[n + 1] where each begins)."""
        data, counts = "".join(self.texts).encode(), list(map(len, self.texts))
        if len(data) != sum(counts):  # letters of more than a byte
            counts = [len(text.encode()) for text in self.texts]
        return data, offsets_of(np.array(counts, np.int64))


class Cells(NamedTuple):
    """A column of text: the words, and which of them each row has (int64[rows])."""

    words: Words
    which: np.ndarray

    @classmethod
    def of(cls, column: np.ndarray, text: Callable[[Any], str] = str) -> "Cells":
        """Each number as `text` writes it; equal ones are written once, which is what makes it
        fast.
        """
        bits = column.view(np.int64) if column.dtype == float else column
        values, which = numbered(bits)
        return cls(Words(map(text, values.view(column.dtype).tolist())), which)

    @classmethod
    def in_runs(cls, texts: Iterable[str], runs: np.ndarray, rows: int) -> "Cells":
        """Of so many rows, where text i stands from row runs[i] to the next run."""
        return cls(Words(texts), repeated(np.arange(len(runs)), runs, rows))

    @property
    def texts(self) -> Iterator[str]:
        """The cell of each row."""
        return map(self.words.texts.__getitem__, self.which.tolist())


def blocks(rows: int, most: int = 1 << 16) -> Iterable[slice]:
    """Slices of so many rows: what is written block by block takes little memory."""
    return (slice(i, min(i + most, rows)) for i in range(0, rows, most))


def lines(first: int, *columns: Cells) -> bytes:
    """CSV lines of columns, each behind its number, that of the first line `first`.

    ValueError for columns that are not of one length; IndexError for a row with a word that its
    column has not: the core would read beside them.
    """
    rows = len(columns[0].which)
    _check(rows, columns)
    if _core():
        return _lines_in_core(first, rows, columns)
    numbers = map(str, range(first, first + rows))
    cells = zip(numbers, *(column.texts for column in columns), strict=True)
    return "".join(map("{}\n".format, map(",".join, cells))).encode()


def _check(rows: int, columns: Sequence[Cells]) -> None:
    for number, (words, which) in enumerate(columns):
        if len(which) != rows:
            raise ValueError(f"column {number} has {len(which)} rows, the first has {rows}")
        if rows and not 0 <= which.min() <= which.max() < len(words.texts):
            least, most, last = which.min(), which.max(), len(words.texts) - 1
            raise IndexError(f"column {number} has words {least} to {most} of 0 to {last}")


@cache
def _core() -> ctypes.CDLL | None:
    """The compiled core with what writes lines declared; None where it was never built."""
    core = native.core()
    if core is not None:
        core.rf_lines.restype = COUNT
        core.rf_lines.argtypes = [COUNT, COUNT, COUNT, *[ARRAY] * 4]
    return core


def _lines_in_core(first: int, rows: int, columns: Sequence[Cells]) -> bytes:
    which = [np.ascontiguousarray(column.which, np.int64) for column in columns]
    packed = [column.words.packed for column in columns]
    texts = (ctypes.c_char_p * len(columns))(*(text for text, _ in packed))
    begin, entries = (
        (ARRAY * len(columns))(*(array.ctypes.data for array in arrays))
        for arrays in ([begin for _, begin in packed], which)
    )
    asked = first, rows, len(columns), texts, begin, entries
    out = np.empty(_core().rf_lines(*asked, None), np.uint8)
    return out[: _core().rf_lines(*asked, out.ctypes.data)].tobytes()


def ended(lines: Iterable[str], most: int = 1 << 12) -> Iterator[str]:
    """The lines, each with its end, as blocks of text: written one by one they take twice as
    long.
    """
    lines = iter(lines)
    while some := list(islice(lines, most)):
        yield "\n".join(some) + "\n"


def repeated(values: np.ndarray, runs: np.ndarray, rows: int) -> np.ndarray:
    """The value of each of so many rows, where value i stands from row runs[i] to the next run."""
    return values if len(runs) == rows else np.repeat(values, np.diff(runs, append=rows))


def quoted(cell) -> str:
    """A cell as CSV wants it."""
    text = str(cell)
    return '"' + text.replace('"', '""') + '"' if SPECIAL.search(text) else text

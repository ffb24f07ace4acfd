"""Columns of a trace or a result as the text of CSV cells, block by block."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from ...routing.rows import begins


def blocks(rows: int, most: int = 1 << 16) -> Iterable[slice]:
    """Slices of so many rows: what is written block by block takes little memory."""
    return (slice(i, min(i + most, rows)) for i in range(0, rows, most))


def lines(*columns: Iterable[str]) -> Iterable[str]:
    """CSV lines of columns of text."""
    return map(",".join, zip(*columns, strict=True))


def ended(lines: Iterable[str], most: int = 1 << 12) -> Iterator[str]:
    """The lines, each with its end, as blocks of text: written one by one they take twice as
    long.
    """
    lines = iter(lines)
    while some := list(islice(lines, most)):
        yield "\n".join(some) + "\n"


def texts(column: np.ndarray, text: Callable[[Any], str] = str) -> list[str]:
    """Each number as `text` writes it; equal ones are written once, which is what makes it fast."""
    runs = np.flatnonzero(begins(column))
    values, which = np.unique(column[runs], return_inverse=True)
    cells = np.array(list(map(text, values.tolist())), object)[which].tolist()
    return repeated(cells, runs, len(column))


def repeated(cells: list[str], runs: np.ndarray, rows: int) -> list[str]:
    """The cell of each of so many rows, where cell i stands from row runs[i] to the next run."""
    if len(runs) == rows:
        return cells
    return np.repeat(np.array(cells, object), np.diff(runs, append=rows)).tolist()


def quoted(cell) -> str:
    """A cell as CSV wants it."""
    text = str(cell)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n\r') else text

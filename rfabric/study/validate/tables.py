"""What the checks share: rows of a CSV, numbers in them, points split at 1 MiB, rows refused with a
reason, groups' names.

Tables come from spreadsheets and other people's scripts: a byte order mark, CRLF, blanks around
cells, rows of commas alone, lines that begin with # and columns in any order are read as if they
were not there. Cells may be divided by tabs or semicolons. Where a column lacks a cell, pandas
writes its whole numbers and truths as 8.0 and 1.0.
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from ...errors import RFabricError
from . import Point, PointGroup

MIB = 2**20
# What a row of someone else's table can break with, and a model of it: the row is named, the others
# go on.
BROKEN = (RFabricError, KeyError, ValueError, IndexError, ArithmeticError)
CellTexts = dict[str, str]
_NO = ("", "0", "false", "n/a", "na", "nan", "none", "-", "no", "1gpu")


class RefusedRow(RFabricError):
    """A row that cannot be modelled; its text is the reason."""


def rows(path: Path, *needed: str) -> list[CellTexts]:
    """The rows of a CSV file, each a mapping of its columns; RFabricError where it has none, or
    lacks a `needed` column.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = (line for line in file if line.strip() and not line.startswith("#"))
            first = next(lines, "")
            mark = next((mark for mark in ",\t;" if mark in first), ",")
            table = csv.DictReader(chain([first], lines), delimiter=mark)
            filled = [row for row in map(_stripped, table) if any(row.values())]
    except (csv.Error, UnicodeDecodeError) as error:
        raise RFabricError(f"{path} is no CSV file of UTF-8 text: {error}") from error
    if not filled:
        raise RFabricError(
            f"{path} has no rows; delete it, or give it a line of column names and one a point"
        )
    lacks = [column for column in needed if column not in filled[0]]
    if lacks:
        raise RFabricError(
            f"{path.name} has columns {_some(filled[0])} but no {' nor '.join(lacks)}: a table "
            f"of another kind; rename it or its columns"
        )
    return filled


def _stripped(row: dict) -> CellTexts:
    """A row without blanks around names and cells; cells that no column names are left, missing
    ones are empty.
    """
    return {key.strip(): (value or "").strip() for key, value in row.items() if key is not None}


def _some(row: CellTexts) -> str:
    names = list(row)
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def number(row: CellTexts, column: str) -> float:
    """The number in a column; RefusedRow where there is none above 0."""
    text = row.get(column)
    if text is None:
        raise RefusedRow(f"no column {column!r}")
    if not text:
        raise RefusedRow(f"{column} is empty")
    try:
        value = float(text)
    except ValueError:
        raise RefusedRow(f"{column} {text!r} is no number") from None
    if not 0 < value < float("inf"):
        raise RefusedRow(f"{column} {text!r} is not above 0")
    return value


def whole(row: CellTexts, column: str) -> int:
    """The whole number above 0 in a column, also where it is written 8.0; RefusedRow where there is
    none.
    """
    value = number(row, column)
    if value != int(value):
        raise RefusedRow(f"{column} {row[column]!r} is no whole number")
    return int(value)


def flag(text: str | None) -> bool:
    """Whether a cell says yes, be it True, 1 or 1.0; an empty one, n/a and 0.0 say no."""
    return (text or "").strip().lower().removesuffix(".0") not in _NO


def named(kind: str, path: Path, usual: str) -> str:
    """A group's name: `kind`, and what the file's name says beyond the `usual` one, so that each
    file's is its own.
    """
    rest = (
        path.name.removesuffix(".csv")
        .removeprefix(usual)
        .strip("_.-")
        .removeprefix(usual.split("_")[0] + "_")
    )
    return f"{kind} {rest}" if rest else kind


def attempt(named: Iterable[tuple[str, Callable[[], object]]]) -> tuple[list, list[str]]:
    """What each call gives, and for those that refuse their name with the reason."""
    made, refused = [], []
    for name, call in named:
        try:
            made.append(call())
        except BROKEN as error:
            refused.append(f"{name}: {reason(error)}")
    return made, refused


def reason(error: Exception) -> str:
    """Why a row cannot be modelled, in a line."""
    return f"no column {error}" if isinstance(error, KeyError) else str(error)


def split_by_size(
    name: str, path: Path, todo: list[tuple[CellTexts, Callable]]
) -> Iterable[PointGroup]:
    """Groups `name >= 1 MiB` and `name < 1 MiB` of points made by `call(row) -> (bytes, Point)`;
    refused rows in the first.
    """
    calls = [
        (f"row {i + 2}", lambda row=row, call=call: call(row)) for i, (row, call) in enumerate(todo)
    ]
    made, refused = attempt(calls)
    return by_size(name, path, made, refused)


def by_size(
    name: str, path: Path, made: list[tuple[float, Point]], refused: list[str]
) -> list[PointGroup]:
    """The two groups of `split_by_size`, from points with their bytes."""
    large, small = split_at(name, str(Path(path.parent.name) / path.name), made)
    return [replace(large, unmodelled=tuple(refused)), small]


def split_at(name: str, file: str, made: list[tuple[float, Point]]) -> tuple[PointGroup, ...]:
    """Points with their bytes as groups from 1 MiB on, and below."""
    large = tuple(point for size, point in made if size >= MIB)
    small = tuple(point for size, point in made if size < MIB)
    return (PointGroup(f"{name} >= 1 MiB", file, large), PointGroup(f"{name} < 1 MiB", file, small))


def same_side(gains: Sequence[Point]) -> float:
    """Share of gains that are gains, and losses that are losses, in the model as measured."""
    return float(np.mean([(gain.measured > 1) == (gain.modelled > 1) for gain in gains]))

"""What the checks of communication share: rows of a CSV, numbers in them, points split at 1 MiB, rows refused with a reason."""

import csv
from collections.abc import Callable, Iterable
from pathlib import Path

from ...errors import RFabricError
from . import Group, Point

MIB = 2**20
Row = dict[str, str]


class Refused(Exception):
    """A row that cannot be modelled; its text is the reason."""


def rows(path: Path) -> list[Row]:
    """The rows of a CSV file, each a mapping of its columns; RFabricError where it has none."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        found = list(csv.DictReader(file))
    if not found:
        raise RFabricError(f"{path} has no rows; delete it, or give it a line of column names and one a point")
    return found


def number(row: Row, column: str) -> float:
    """The number in a column; Refused where there is none above 0."""
    text = row.get(column)
    if text is None:
        raise Refused(f"no column {column!r}")
    try:
        value = float(text)
    except ValueError:
        raise Refused(f"{column} {text!r} is no number") from None
    if not 0 < value < float("inf"):
        raise Refused(f"{column} {text!r} is not above 0")
    return value


def attempt(
    named: Iterable[tuple[str, Callable[[], object]]],
) -> tuple[list, list[str]]:
    """What each call gives, and for those that refuse their name with the reason."""
    made, refused = [], []
    for name, call in named:
        try:
            made.append(call())
        except (Refused, RFabricError) as reason:
            refused.append(f"{name}: {reason}")
        except KeyError as column:
            refused.append(f"{name}: no column {column}")
    return made, refused


def split_by_size(name: str, path: Path, todo: list[tuple[Row, Callable]]) -> Iterable[Group]:
    """Groups `name >= 1 MiB` and `name < 1 MiB` of points made by `call(row) -> (bytes, Point)`; refused rows in the first."""
    calls = [(f"row {i + 2}", lambda row=row, call=call: call(row)) for i, (row, call) in enumerate(todo)]
    made, refused = attempt(calls)
    return by_size(name, path, made, refused)


def by_size(name: str, path: Path, made: list[tuple[float, Point]], refused: list[str], note: str = "") -> list[Group]:
    """The two groups of `split_by_size`, from points with their bytes."""
    large = tuple(point for size, point in made if size >= MIB)
    small = tuple(point for size, point in made if size < MIB)
    file = str(Path(path.parent.name) / path.name)
    return [
        Group(f"{name} >= 1 MiB", file, large, tuple(refused), note),
        Group(f"{name} < 1 MiB", file, small, (), note),
    ]

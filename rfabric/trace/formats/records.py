"""Rows as CSV and JSON lines hold them: a record of named cells for each row of a trace.

Units stand in the names of columns; windows are seconds. `after` holds ids separated by blanks.
`id`, `start_s`, `after`, `gap_s`, `step`, `phase`, `label` may be left out.

`loop` is a name or a number; rows of one loop differ only in ends, bytes, label and turn. Its turns
run in order (left out: 0), all `repeat` times: `between_s` of computing, then all rows of the turn
at once beside `beside_s` of computing. `repeat` is said once a loop, `between_s` and `beside_s`
once a turn (left out: 0), or again with the same value. `size_bytes` is of one repetition.
"""

import re
import unicodedata
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from ...errors import RFabricError
from ...routing.rows import offsets_of
from ...units import parse_size, parse_time
from ..builder import MOST_BYTES, whole_bytes
from ..loops import Loop
from ..model import PhaseKey, Trace

COLUMNS = ("id", "src", "dst", "size_bytes", "start_s", "after", "gap_s", "step", "phase", "label")
LOOP_COLUMNS = ("loop", "turn", "repeat", "between_s", "beside_s")
SECONDS = partial(parse_time, bare=True)  # the names of columns hold the unit
VERSION = 1
LONGEST_NAME = 1000  # characters of hosts, phases, labels
EXACT = 2**53  # beyond, a float skips whole numbers


def trace_of(path: Path, records: list[dict], head: dict) -> Trace:
    """The trace of these rows; `head` may hold provenance and windows in seconds by phase/step."""
    if not records:
        raise RFabricError("holds no flow")
    provenance = {"source": path.name} | _object(head, "provenance")
    return _trace(records, provenance, _object(head, "windows"))


def _trace(records: list[dict], provenance: dict, windows: dict) -> Trace:
    there, known = set().union(*records), (*COLUMNS, *LOOP_COLUMNS)
    unknown = sorted(map(repr, there - set(known)))
    if unknown:
        raise RFabricError(f"unknown columns {', '.join(unknown)}; there are {', '.join(known)}")
    rows = {str(r.get("id", i)): i for i, r in enumerate(records)}
    if len(rows) != len(records):
        raise RFabricError(f"{len(records) - len(rows)} ids stand twice; every id names one row")
    hosts = tuple(sorted(_hosts(records), key=_natural))
    index = {name: i for i, name in enumerate(hosts)}
    seconds = SECONDS
    parsers = {"size_bytes": _size, "gap_s": seconds, "start_s": seconds, "step": _whole}
    # the same text means the same number
    parsed: dict[str, dict] = {column: {} for column in parsers}
    columns: dict[str, list] = {column: [] for column in parsers}
    names: dict[str, dict[str, int]] = {"phase": {}, "label": {}}
    codes: dict[str, list[int]] = {column: [] for column in names}
    after: list[list[int]] = []
    for i, record in enumerate(records):
        row = f"row {record.get('id', i)}"
        for column, parse in parsers.items():
            cell, values = _cell(record, column, 0), parsed[column]
            text = cell if isinstance(cell, str) else (type(cell), repr(cell))
            if text not in values:
                values[text] = parse(cell, f"{row}: {column}")
            columns[column].append(values[text])
        for column, seen in names.items():
            text = str(record.get(column) or "")
            if text not in seen:
                _check_name(text, f"{row}: {column}")
            codes[column].append(seen.setdefault(text, len(seen)))
        after.append([_row(rows, text, row) for text in _ids(record.get("after"))])
    return Trace(
        hosts,
        [index[r["src"]] for r in records],
        [index[r["dst"]] for r in records],
        whole_bytes(columns["size_bytes"]),
        columns["start_s"],
        columns["gap_s"],
        offsets_of(list(map(len, after))),
        list(chain.from_iterable(after)),
        columns["step"],
        codes["phase"],
        codes["label"],
        tuple(names["phase"]),
        tuple(names["label"]),
        {_key(k): seconds(v, f"window {k}") for k, v in windows.items()},
        provenance,
        *(_loops(records) if there & set(LOOP_COLUMNS) else ()),
    )


def _loops(records: list[dict]) -> tuple[list[int], list[int], tuple[Loop, ...]]:
    """Columns loop and turn, and the loops in the order in which rows name them."""
    # numbers by name; what rows say, by loop, column and turn; the last turn by loop
    names, said, last = {}, {}, {}
    loop, turn = [], []
    for i, record in enumerate(records):
        name, row = str(_cell(record, "loop", "")), f"row {record.get('id', i)}"
        there = {c: record[c] for c in LOOP_COLUMNS[1:] if _cell(record, c, None) is not None}
        if there and not name:
            raise RFabricError(
                f"{row}: {next(iter(there))} without a loop; name its loop, or leave it empty"
            )
        number = names.setdefault(name, len(names)) if name else -1
        loop.append(number)
        turn.append(_whole(there.pop("turn", 0), f"{row}: turn", 2**15))
        last[number] = max(last.get(number, 0), turn[-1])
        for column, cell in there.items():
            key = (number, column, turn[-1] if column != "repeat" else 0)
            value = (SECONDS if column != "repeat" else _whole)(cell, f"{row}: {column}")
            if said.setdefault(key, value) != value:
                raise RFabricError(
                    f"{row}: {column} {value} differs from {said[key]} of its loop {name!r}; "
                    "say it once"
                )
    return (
        loop,
        turn,
        tuple(_loop(name, number, said, last[number]) for name, number in names.items()),
    )


def _loop(name: str, number: int, said: dict[tuple, float], last: int) -> Loop:
    if (number, "repeat", 0) not in said:
        raise RFabricError(
            f"loop {name!r}: repeat is missing; say in one of its rows how often it runs"
        )
    seconds = (
        tuple(said.get((number, key, t), 0.0) for t in range(last + 1))
        for key in ("between_s", "beside_s")
    )
    try:
        return Loop(said[number, "repeat", 0], *seconds)
    except RFabricError as error:
        raise RFabricError(f"loop {name!r}: {str(error).removeprefix('loop: ')}") from error


def _hosts(records: list[dict]) -> set[str]:
    for i, record in enumerate(records):
        for column in ("src", "dst"):
            if not isinstance(record.get(column), str) or not record[column]:
                raise RFabricError(
                    f"row {record.get('id', i)}: {column} is missing; name a host such as h1"
                )
            _check_name(record[column], f"row {record.get('id', i)}: {column}")
        if record.get("size_bytes") in (None, ""):
            raise RFabricError(
                f"row {record.get('id', i)}: size_bytes is missing; 0 makes a compute row"
            )
    return {record[column] for record in records for column in ("src", "dst")}


def _check_name(name: str, what: str) -> None:
    if len(name) > LONGEST_NAME or any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        raise RFabricError(
            f"{what[:80]} {name[:20]!r}... is no name: {LONGEST_NAME} characters at most, none of "
            "them a control character"
        )


def _size(cell: str | float, name: str) -> float:
    """Bytes as parsed, which must be a whole number that a float holds."""
    size = parse_size(cell, name, bare=True)
    if size % 1 or EXACT <= size <= MOST_BYTES:  # beyond, `whole_bytes` refuses it
        raise RFabricError(f"{name}: {cell!r} must be a whole number of bytes, less than {EXACT:,}")
    return size


def _cell(record: dict, column: str, default):
    value = record.get(column)
    return (
        default
        if value is None or value == ""
        else value.strip()
        if isinstance(value, str)
        else value
    )


def _ids(after) -> list[str]:
    return (
        [str(a) for a in after]
        if isinstance(after, list)
        else str(after if after is not None else "").split()
    )


def _row(rows: dict[str, int], after: str, name: str) -> int:
    if after not in rows:
        raise RFabricError(f"{name}: waits for {after!r}, which is no id of this trace")
    return rows[after]


def _whole(value, name: str, limit: int = 2**31) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or isinstance(value, bool) or (isinstance(value, float) and number != value):
        raise RFabricError(f"{name} {value!r} is not a whole number")
    if not 0 <= number < limit:
        raise RFabricError(f"{name} {value!r} must lie between 0 and {limit - 1:,}")
    return number


def _key(text: str) -> PhaseKey:
    phase, _, step = text.rpartition("/")
    return PhaseKey(_whole(step, f"window {text}: step"), phase)


def _natural(name: str) -> list:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def _object(head: dict, key: str) -> dict:
    value = head.get(key, {})
    if not isinstance(value, dict):
        raise RFabricError(f"{key} {value!r} is not an object")
    return value


def check_version(version: str) -> None:
    """RFabricError for a version of our own formats that this rfabric does not read."""
    if version != str(VERSION):
        raise RFabricError(f"trace version {version!r}; this rfabric reads version {VERSION}")


def loop_cells(trace: Trace) -> dict[str, list]:
    """Columns of loops, for people: `repeat` in the first row of a loop, seconds in the first of a
    turn; else None.
    """
    cells = {column: [None] * len(trace) for column in LOOP_COLUMNS if trace.loops}
    seen = set()
    for row in np.flatnonzero(trace.loop >= 0).tolist():
        number, turn = int(trace.loop[row]), int(trace.turn[row])
        loop = trace.loops[number]
        cells["loop"][row], cells["turn"][row] = number, turn
        if number not in seen:
            cells["repeat"][row] = loop.repeat
        if (number, turn) not in seen:
            cells["between_s"][row], cells["beside_s"][row] = loop.between[turn], loop.beside[turn]
        seen |= {number, (number, turn)}
    return cells

"""Rows as CSV and JSON lines hold them: a record of named cells for each row of a trace.

Units stand in the names of columns; windows are seconds, paces seconds of computing foreseen of a
phase over those it takes. `after` holds ids separated by blanks.
`id`, `start_s`, `after`, `gap_s`, `step`, `phase`, `label` may be left out.

`loop` is a name or a number; rows of one loop differ only in ends, bytes, label and turn. Its turns
run in order (left out: 0), all `repeat` times: `between_s` of computing, then all rows of the turn
at once beside `beside_s` of computing. `repeat` is said once a loop, `between_s` and `beside_s`
once a turn (left out: 0), or again with the same value. `size_bytes` is of one repetition.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from ...errors import RFabricError
from ...routing.rows import begins, offsets_of
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


Columns = dict[str, list]  # cells by column, as many in each


def trace_of(path: Path, columns: Columns, head: dict) -> Trace:
    """The trace of these columns, None where a row says nothing; `head` may hold provenance,
    windows in seconds and paces by phase/step. RFabricError where there is no flow.
    """
    if not columns or not next(iter(columns.values())):
        raise RFabricError("holds no flow")
    provenance = {"source": path.name} | _object(head, "provenance")
    return _trace(columns, provenance, _object(head, "windows"), _object(head, "paces"))


def columns_of(records: list[dict]) -> Columns:
    """Records turned into columns; who has no id is called by its number."""
    names = dict.fromkeys(name for record in records for name in record)
    columns = {name: [record.get(name) for record in records] for name in names}
    if "id" in columns:
        columns["id"] = [record.get("id", i) for i, record in enumerate(records)]
    return columns


def _trace(columns: Columns, provenance: dict, windows: dict, paces: dict) -> Trace:
    known = (*COLUMNS, *LOOP_COLUMNS)
    unknown = sorted(map(repr, columns.keys() - set(known)))
    if unknown:
        way = "; divide cells by commas" if re.search(r";|\\t", " ".join(unknown)) else ""
        raise RFabricError(
            f"unknown columns {', '.join(unknown)}; there are {', '.join(known)}{way}"
        )
    count = len(next(iter(columns.values())))
    ids = columns["id"] = list(map(str, columns.get("id", range(count))))
    rows = {one: i for i, one in enumerate(ids)}
    if len(rows) != count:
        raise RFabricError(f"{count - len(rows)} ids stand twice; every id names one row")
    hosts = tuple(sorted(_hosts(columns, count), key=_natural))
    index = {name: i for i, name in enumerate(hosts)}
    seconds = SECONDS
    parsers = {"size_bytes": _size, "gap_s": seconds, "start_s": seconds, "step": _whole}
    numbers = {c: _numbers(columns, c, parse, count) for c, parse in parsers.items()}
    names: dict[str, dict[str, int]] = {"phase": {}, "label": {}}
    codes = {column: _codes(columns, column, seen, count) for column, seen in names.items()}
    waits, after = np.zeros(count, np.int64), []
    for i, cell in enumerate(columns.get("after", ())):
        if cell not in ("", None):
            before = [_row(rows, text, f"row {ids[i]}") for text in _ids(cell)]
            waits[i] = len(before)
            after += before
    del rows
    return Trace(
        hosts,
        list(map(index.__getitem__, columns["src"])),
        list(map(index.__getitem__, columns["dst"])),
        whole_bytes(numbers["size_bytes"]),
        numbers["start_s"],
        numbers["gap_s"],
        offsets_of(waits),
        after,
        numbers["step"],
        codes["phase"],
        codes["label"],
        tuple(names["phase"]),
        tuple(names["label"]),
        {_key(k): seconds(v, f"window {k}") for k, v in windows.items()},
        provenance,
        *(_loops(columns, count) if columns.keys() & set(LOOP_COLUMNS) else ()),
        paces={_key(k, "pace"): _pace(v, f"pace {k}") for k, v in paces.items()},
    )


def _numbers(columns: Columns, column: str, parse: Callable, count: int) -> np.ndarray | list:
    """What the cells of a column say; the same text means the same number."""
    seen: dict = {}
    numbers = []
    for i, cell in enumerate(columns.get(column, ())):
        text = cell if type(cell) is str else (type(cell), repr(cell))
        value = seen.get(text)
        if value is None:
            given = _given(cell, 0)
            value = seen[text] = parse(given, f"row {columns['id'][i]}: {column}")
        numbers.append(value)
    return numbers or np.zeros(count, np.int64)


def _codes(columns: Columns, column: str, seen: dict[str, int], count: int) -> np.ndarray | list:
    """Numbers of the names in a column, in the order in which they first stand."""
    codes = []
    for i, cell in enumerate(columns.get(column, ())):
        text = str(cell or "")
        if text not in seen:
            _check_name(text, f"row {columns['id'][i]}: {column}")
        codes.append(seen.setdefault(text, len(seen)))
    if not codes:
        seen[""] = 0
    return codes or np.zeros(count, np.int64)


def _loops(columns: Columns, count: int) -> tuple[list[int], list[int], tuple[Loop, ...]]:
    """Columns loop and turn, and the loops in the order in which rows name them."""
    # numbers by name; what rows say, by loop, column and turn; the last turn by loop
    names, said, last = {}, {}, {}
    loop, turn = [], []
    kept = {name: columns[name] for name in LOOP_COLUMNS if name in columns}
    for i in range(count):
        record = {name: cells[i] for name, cells in kept.items()}
        name, row = str(_cell(record, "loop", "")), f"row {columns['id'][i]}"
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


def _hosts(columns: Columns, count: int) -> set[str]:
    for column in ("src", "dst"):
        cells = columns.setdefault(column, [None] * count)
        if any(type(cell) is int for cell in cells):  # of JSON, as CSV has them in words
            cells = columns[column] = [str(c) if type(c) is int else c for c in cells]
        bad = next((i for i, c in enumerate(cells) if not isinstance(c, str) or not c), None)
        if bad is not None:
            raise RFabricError(
                f"row {columns['id'][bad]}: {column} is missing; name a host such as h1"
            )
        names = dict.fromkeys(cells)
        if any(name != name.strip() for name in names):
            columns[column] = [name.strip() for name in cells]  # `h1, h2`
        for name in names:
            if _is_no_name(name):
                _check_name(name, f"row {columns['id'][cells.index(name)]}: {column}")
    bad = next(
        (i for i, c in enumerate(columns.get("size_bytes", (None,))) if c in ("", None)), None
    )
    if bad is not None:
        raise RFabricError(
            f"row {columns['id'][bad]}: size_bytes is missing; 0 makes a compute row"
        )
    return {*columns["src"], *columns["dst"]}


def _is_no_name(name: str) -> bool:
    return len(name) > LONGEST_NAME or any(unicodedata.category(c) in ("Cc", "Cs") for c in name)


def _check_name(name: str, what: str) -> None:
    if _is_no_name(name):
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
    return _given(record.get(column), default)


def _given(value, default):
    if value is None or value == "":
        return default
    return value.strip() if isinstance(value, str) else value


def _ids(after) -> list[str]:
    return list(map(str, after)) if isinstance(after, list) else str(after).split()


def _row(rows: dict[str, int], after: str, name: str) -> int:
    if after not in rows:
        way = "; put blanks between ids" if re.search(r"[,;]", after) else ""
        raise RFabricError(f"{name}: waits for {after!r}, which is no id of this trace{way}")
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


def _key(text: str, kind: str = "window") -> PhaseKey:
    phase, _, step = text.rpartition("/")
    return PhaseKey(_whole(step, f"{kind} {text}: step"), phase)


def _pace(value, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise RFabricError(f"{name} {value!r} is no number") from error


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


def loop_heads(trace: Trace) -> dict[int, dict]:
    """Rows that say something of their loop, for people: the first of a loop `repeat`, the first of
    a turn its seconds.
    """
    heads: dict[int, dict] = {}
    seen: set = set()
    for row in np.flatnonzero(begins(trace.loop, trace.turn) & (trace.loop >= 0)).tolist():
        number, turn = int(trace.loop[row]), int(trace.turn[row])
        if (number, turn) not in seen:
            loop = trace.loops[number]
            heads[row] = {} if number in seen else {"repeat": loop.repeat}
            heads[row] |= {"between_s": loop.between[turn], "beside_s": loop.beside[turn]}
        seen |= {number, (number, turn)}
    return heads


def loop_cells(trace: Trace, row: int, heads: dict[int, dict]) -> dict:
    """What a row says in the columns of loops; `heads`: `loop_heads` of the trace."""
    if trace.loop[row] < 0:
        return {}
    return {"loop": int(trace.loop[row]), "turn": int(trace.turn[row])} | heads.get(row, {})

"""Trace files that people read and edit: CSV and JSON lines of our own, and the `src dst bytes
start_ns` text of htsim and Opera.

    # rfabric-trace 1
    # provenance: {"recipe": "grpo-64", "seed": 1}
    # window training/0: 31.2
    id,src,dst,size_bytes,start_s,after,gap_s,step,phase,label
    0,h1,h1,0,0,,12.5,0,training,backward
    1,h1,h9,6400000000,0,0,0,0,training,reduce-scatter

Units stand in the names of columns; windows are seconds. `after` holds ids separated by blanks.
`id`, `start_s`, `after`, `gap_s`, `step`, `phase`, `label` may be left out. The same keys make a
JSON line; its first line may be {"rfabric-trace": 1, "provenance": {...}, "windows": {"training/0":
31.2}}.

Rows that run again and again have five columns more:

    id,src,dst,size_bytes,after,label,loop,turn,repeat,between_s,beside_s
    1,h1,h9,4000000,0,dispatch,experts,0,48,0.002,
    2,h9,h1,4000000,0,dispatch,experts,0,,,
    3,h1,h9,4000000,0,combine,experts,1,,0,0.001

`loop` is a name or a number; rows of one loop differ only in ends, bytes, label and turn. Its turns
run in order (left out: 0), all `repeat` times: `between_s` of computing, then all rows of the turn
at once beside `beside_s` of computing. `repeat` is said once a loop, `between_s` and `beside_s`
once a turn (left out: 0), or again with the same value. `size_bytes` is of one repetition.
"""

import csv
import json
import os
import re
import unicodedata
from collections.abc import Iterable
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from ..errors import RFabricError
from ..files import kind_of, lines_of, open_text, parse_json
from ..routing.rows import offsets_of
from ..units import parse_size, parse_time
from .builder import MOST_BYTES, whole_bytes
from .loops import Loop
from .model import PhaseKey, Trace

COLUMNS = ("id", "src", "dst", "size_bytes", "start_s", "after", "gap_s", "step", "phase", "label")
LOOP_COLUMNS = ("loop", "turn", "repeat", "between_s", "beside_s")
SECONDS = partial(parse_time, bare=True)  # the names of columns hold the unit
VERSION = 1
LONGEST_NAME = 1000  # characters of hosts, phases, labels
EXACT = 2**53  # beyond, a float skips whole numbers
TRACE_SUFFIXES = (".csv", ".jsonl", ".txt", ".htsim", ".flows")
BEYOND = None  # the key of cells for which the header has no name


def read_trace(path: str | Path) -> Trace:
    """Read a trace by its suffix: .csv, .jsonl, or .txt/.htsim/.flows for `src dst bytes
    start_ns`; packed by gzip or zstd too, as `trace.csv.gz`.
    """
    path, kind = Path(path), kind_of(path)
    if kind not in TRACE_SUFFIXES:
        raise RFabricError(
            f"{path}: unknown trace suffix {kind!r}; use one of {', '.join(TRACE_SUFFIXES)}"
        )
    readers = {".csv": _read_csv, ".jsonl": _read_jsonl}
    try:
        with open_text(path) as file:
            records, head = readers.get(kind, _read_htsim)(lines_of(file))
        if not records:
            raise RFabricError("holds no flow")
        return _trace(
            records, {"source": path.name} | _object(head, "provenance"), _object(head, "windows")
        )
    except RFabricError as error:
        raise RFabricError(f"{path}: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RFabricError(f"{path}: cannot be read: {error}") from error
    # numbers of thousands of digits, lists within lists
    except (csv.Error, ValueError, RecursionError) as error:
        raise RFabricError(f"{path}: not a valid {kind[1:]} file: {error}") from error


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write .csv or .jsonl, beside the name first and then renamed."""
    path = Path(path)
    lines = {".csv": _csv_lines, ".jsonl": _jsonl_lines}
    if path.suffix not in lines:
        raise RFabricError(f"{path}: a trace is written as .csv or .jsonl")
    beside = path.with_name(path.name + ".part")
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines[path.suffix](trace))
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _read_csv(file) -> tuple[list[dict], dict]:
    head: dict = {"windows": {}}
    body = []
    for line in file:
        if line.startswith("#"):
            _head_line(line[1:].strip(), head)
        elif line.strip():
            body.append(line)
    # a barrier waits for tens of thousands of rows, all in one cell
    before = csv.field_size_limit(1 << 30)
    try:
        return _rows(csv.DictReader(body, restkey=BEYOND, strict=True)), head
    finally:
        csv.field_size_limit(before)


def _rows(reader: csv.DictReader) -> list[dict]:
    """The rows below the header, whose names each stand once and are as many as any row has
    cells.
    """
    header = reader.fieldnames or []
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise RFabricError(f"column {twice[0]!r} stands twice in the header; keep one")
    found = list(reader)
    for number, row in enumerate(found, 1):
        if BEYOND in row:
            cells = len(header) + len(row[BEYOND])
            raise RFabricError(f"record {number}: {cells} cells, the header has {len(header)}")
    return found


def _head_line(text: str, head: dict) -> None:
    key, colon, value = text.partition(":")
    if key == "provenance":
        head["provenance"] = parse_json(value)
    elif key.startswith("window ") and colon:
        name = key.removeprefix("window ")
        if name in head["windows"]:
            raise RFabricError(f"window {name} stands twice; keep one")
        head["windows"][name] = value
    elif key.startswith("rfabric-trace"):
        _check_version(key.removeprefix("rfabric-trace").strip())


def _read_jsonl(file) -> tuple[list[dict], dict]:
    records = [parse_json(line) for line in file if line.strip()]
    bad = next((i for i, r in enumerate(records) if not isinstance(r, dict)), None)
    if bad is not None:
        raise RFabricError(f"record {bad + 1} is not an object")
    head = records.pop(0) if records and "rfabric-trace" in records[0] else {}
    if head:
        _check_version(str(head["rfabric-trace"]))
    return records, head


def _read_htsim(file) -> tuple[list[dict], dict]:
    records = []
    for number, line in enumerate(file, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 4 or not all(re.fullmatch(r"\d+", w) for w in words):
            raise RFabricError(
                f"line {number}: {line.strip()!r} is not `src dst bytes "
                "start_ns`, four whole numbers"
            )
        src, dst, size, start = map(int, words)
        records.append(
            {
                "src": f"h{src + 1}",
                "dst": f"h{dst + 1}",
                "size_bytes": size,
                "start_s": f"{start}ns",
            }
        )
    return records, {"provenance": {"format": "htsim: src dst bytes start_ns; host n is h(n+1)"}}


def _object(head: dict, key: str) -> dict:
    value = head.get(key, {})
    if not isinstance(value, dict):
        raise RFabricError(f"{key} {value!r} is not an object")
    return value


def _check_version(version: str) -> None:
    if version != str(VERSION):
        raise RFabricError(f"trace version {version!r}; this rfabric reads version {VERSION}")


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


def _cells(trace: Trace) -> Iterable[tuple]:
    for i in range(len(trace)):
        yield (
            i,
            trace.hosts[trace.src[i]],
            trace.hosts[trace.dst[i]],
            int(trace.size[i]),
            float(trace.start[i]),
            " ".join(map(str, trace.waits_for(i))),
            float(trace.gap[i]),
            int(trace.step[i]),
            trace.phases[trace.phase[i]],
            trace.labels[trace.label[i]],
        )


def _loop_cells(trace: Trace) -> dict[str, list]:
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


def _csv_lines(trace: Trace) -> Iterable[str]:
    yield f"# rfabric-trace {VERSION}"
    yield f"# provenance: {json.dumps(trace.provenance)}"
    for key, seconds in trace.windows.items():
        yield f"# window {key}: {seconds!r}"
    more = _loop_cells(trace)
    yield ",".join((*COLUMNS, *more))
    hosts, phases, labels = (
        np.array(list(map(quoted, n)), object) for n in (trace.hosts, trace.phases, trace.labels)
    )
    for rows in blocks(len(trace)):
        yield from lines(
            map(str, range(rows.start, rows.stop)),
            hosts[trace.src[rows]],
            hosts[trace.dst[rows]],
            texts(trace.size[rows]),
            texts(trace.start[rows]),
            _after_texts(trace, rows),
            texts(trace.gap[rows]),
            texts(trace.step[rows]),
            phases[trace.phase[rows]],
            labels[trace.label[rows]],
            *(
                ["" if cell is None else str(cell) for cell in cells[rows]]
                for cells in more.values()
            ),
        )


def _after_texts(trace: Trace, rows: slice) -> list[str]:
    first, last = (trace.after_offsets[i : rows.stop + i][rows.start :] for i in (0, 1))
    known = texts(trace.after[first[0] : last[-1]])
    return [
        " ".join(known[a:b])
        for a, b in zip((first - first[0]).tolist(), (last - first[0]).tolist(), strict=True)
    ]


def blocks(rows: int, most: int = 1 << 16) -> Iterable[slice]:
    """Slices of so many rows: what is written block by block takes little memory."""
    return (slice(i, min(i + most, rows)) for i in range(0, rows, most))


def lines(*columns: Iterable[str]) -> Iterable[str]:
    """CSV lines of columns of text."""
    return map(",".join, zip(*columns, strict=True))


def texts(column: np.ndarray) -> list[str]:
    """Each number as Python writes it; equal ones are written once, which is what makes it fast."""
    values, which = np.unique(column, return_inverse=True)
    return np.array(list(map(str, values.tolist())), object)[which].tolist()


def quoted(cell) -> str:
    """A cell as CSV wants it."""
    text = str(cell)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n\r') else text


def _jsonl_lines(trace: Trace) -> Iterable[str]:
    windows = {str(k): v for k, v in trace.windows.items()}
    yield json.dumps({"rfabric-trace": VERSION, "provenance": trace.provenance, "windows": windows})
    more = _loop_cells(trace)
    for i, cells in enumerate(_cells(trace)):
        looped = {column: found[i] for column, found in more.items() if found[i] is not None}
        yield json.dumps(dict(zip(COLUMNS, cells, strict=True)) | looped)

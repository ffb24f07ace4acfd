"""The tables of a run folder as Parquet, where pyarrow is installed.

    emulate-rfabric/flows.parquet   the columns of flows.csv; hosts, phases and labels by number
    emulate-rfabric/links.parquet   the columns of links.csv
    summary.parquet                 a row a run, as `Comparison.to_pandas()` has them

Short ones stand beside their CSV, which is what rfabric reads then; long ones stand alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RFabricError
from ..fabric.cabling import cabling_of
from ..trace.formats.columns import Words, blocks
from .result import Result

ROW_GROUP = 1 << 17  # rows


def is_there() -> bool:
    """Whether pyarrow is installed (rfabric[parquet])."""
    return find_spec("pyarrow") is not None


def write_flows(path: Path, columns: Sequence[str], result: Result) -> None:
    """The flows of a result, a row each."""
    trace = result.trace
    hosts, phases, labels = map(_words, (trace.hosts, trace.phases, trace.labels))

    def part(rows: slice) -> tuple:
        return (
            np.arange(rows.start, rows.stop), _named(trace.src[rows], hosts),
            _named(trace.dst[rows], hosts), trace.size[rows], result.start[rows],
            result.finish[rows], trace.step[rows], _named(trace.phase[rows], phases),
            _named(trace.label[rows], labels), result.sent[rows], result.received[rows],
        )  # fmt: skip

    every = (dict(zip(columns, part(rows), strict=True)) for rows in _blocks(len(trace)))
    _write(path, every, columns[0])


def write_links(path: Path, columns: Sequence[str], result: Result) -> None:
    """What each cable carried, a row a direction."""
    cabling, used = cabling_of(result.fabric), result.utilisation

    def part(rows: slice) -> tuple:
        number = np.arange(rows.start, rows.stop)
        ends, other = (_words(cabling.spelled(ports)) for ports in (number, number ^ 1))
        return number, ends, other, cabling.rate[rows], result.link_bytes[rows], used[rows]

    every = _blocks(len(cabling.rate))
    _write(path, (dict(zip(columns, part(rows), strict=True)) for rows in every), columns[0])


def write_rows(path: Path, rows: Sequence[dict]) -> None:
    """Rows of plain values; what one of them lacks is null."""
    names = dict.fromkeys(name for row in rows for name in row)
    _write(path, [{name: [row.get(name) for row in rows] for name in names}])


def read(path: Path, needed: Sequence[str]) -> dict[str, np.ndarray]:
    """These columns of a file, numbers; RFabricError where it is cut, or pyarrow is missing."""
    if not is_there():
        raise RFabricError(f"{path}: reading it needs pyarrow; pip install 'rfabric[parquet]'")
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if missing := [name for name in needed if name not in file.schema_arrow.names]:
                raise RFabricError(f"{path}: incomplete: no column {', '.join(missing)}")
            table = file.read(columns=list(needed))
    except (OSError, pyarrow.ArrowException) as error:
        raise RFabricError(f"{path}: incomplete: {error}") from error
    return {name: table.column(name).to_numpy() for name in needed}


def _blocks(rows: int) -> Iterable[slice]:
    return blocks(rows, ROW_GROUP) if rows else [slice(0, 0)]


def _named(numbers: np.ndarray, words: Any) -> Any:
    import pyarrow

    return pyarrow.DictionaryArray.from_arrays(_numbers(numbers.astype(np.int32)), words)


# `pyarrow.array` imports pandas wherever that is installed, which takes a small run an eighth of
# its time: what is written here is made of its bytes.


def _column(values: Any) -> Any:
    """Numbers, words or what else pyarrow makes of plain values."""
    import pyarrow

    if isinstance(values, pyarrow.Array):
        return values
    if isinstance(values, np.ndarray):
        return _numbers(values)
    there = np.array([value is not None for value in values], bool)
    kinds = {type(value) for value in values if value is not None}
    if kinds == {str}:
        return _words(values, there)
    if kinds in ({int}, {float}, {int, float}):
        kind = np.int64 if kinds == {int} else np.float64
        return _numbers(np.array([0 if value is None else value for value in values], kind), there)
    return pyarrow.array(list(values)) if kinds else pyarrow.nulls(len(there))


def _numbers(values: np.ndarray, there: np.ndarray | None = None) -> Any:
    import pyarrow

    data = pyarrow.py_buffer(np.ascontiguousarray(values))
    kind = pyarrow.from_numpy_dtype(values.dtype)
    return pyarrow.Array.from_buffers(kind, len(values), [_bitmap(there), data])


def _words(words: Sequence[str | None], there: np.ndarray | None = None) -> Any:
    import pyarrow

    data, ends = Words(word or "" for word in words).packed
    buffers = _bitmap(there), pyarrow.py_buffer(ends.astype(np.int32)), pyarrow.py_buffer(data)
    return pyarrow.Array.from_buffers(pyarrow.string(), len(words), buffers)


def _bitmap(there: np.ndarray | None) -> Any:
    """A bit for each value that is there, or none where all are."""
    import pyarrow

    if there is None or there.all():
        return None
    return pyarrow.py_buffer(np.packbits(there, bitorder="little"))


def _write(path: Path, parts: Iterable[Mapping[str, Any]], number: str = "") -> None:
    """Part after part, a row group each: a run of millions of rows needs no second copy of them.
    The column `number` counts rows, and is written as steps of one. Which names are the first and
    the last of a group nobody asks, and it takes a third of the time to find out; nor are words put
    into a dictionary that are not in one: each stands once.
    """
    import pyarrow.parquet

    writer = None
    try:
        for part in parts:
            table = pyarrow.table({name: _column(values) for name, values in part.items()})
            writer = writer or pyarrow.parquet.ParquetWriter(
                path,
                table.schema,
                use_dictionary=[
                    field.name
                    for field in table.schema
                    if field.name != number and not pyarrow.types.is_string(field.type)
                ],
                write_statistics=[
                    field.name for field in table.schema if pyarrow.types.is_primitive(field.type)
                ],
                column_encoding={number: "DELTA_BINARY_PACKED"} if number else None,
            )
            writer.write_table(table)
    finally:
        if writer:
            writer.close()

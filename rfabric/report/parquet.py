"""The tables of a run folder as Parquet, beside their CSV, where pyarrow is installed.

    emulate-rfabric/flows.parquet   the columns of flows.csv; hosts, phases and labels by number
    emulate-rfabric/links.parquet   the columns of links.csv
    summary.parquet                 a row a run, as `Comparison.to_pandas()` has them

Nothing here reads them back: the CSV is what rfabric reads.
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .result import Result


def is_there() -> bool:
    """Whether pyarrow is installed (rfabric[parquet])."""
    return find_spec("pyarrow") is not None


def write_flows(path: Path, columns: Sequence[str], result: Result) -> None:
    """The flows of a result, a row each."""
    trace = result.trace
    values = (
        np.arange(len(trace)), _named(trace.src, trace.hosts), _named(trace.dst, trace.hosts),
        trace.size, result.start, result.finish, trace.step, _named(trace.phase, trace.phases),
        _named(trace.label, trace.labels), result.sent, result.received,
    )  # fmt: skip
    _write(path, dict(zip(columns, values, strict=True)))


def write_links(path: Path, columns: Sequence[str], result: Result) -> None:
    """What each cable carried, a row a direction."""
    ends = [(link.a, link.b, link.rate) for link in result.fabric.links]
    both = [way for a, b, rate in ends for way in ((str(a), str(b), rate), (str(b), str(a), rate))]
    a, b, rates = map(list, zip(*both, strict=True)) if both else ([], [], [])
    values = np.arange(len(both)), a, b, rates, result.link_bytes, result.utilisation
    _write(path, dict(zip(columns, values, strict=True)))


def write_rows(path: Path, rows: Sequence[dict]) -> None:
    """Rows of plain values; what one of them lacks is null."""
    names = dict.fromkeys(name for row in rows for name in row)
    _write(path, {name: [row.get(name) for row in rows] for name in names})


def _named(numbers: np.ndarray, names: Sequence[str]) -> Any:
    import pyarrow

    words = pyarrow.array(list(names), pyarrow.string())
    return pyarrow.DictionaryArray.from_arrays(numbers.astype(np.int32), words)


def _write(path: Path, columns: Mapping[str, Any]) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(dict(columns)), path)

"""Tables as Parquet: the columns that pyarrow itself makes of these values, without what it imports
for that.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.report.parquet import _write, write_rows

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

RING = Path(__file__).parents[2] / "traffic" / "ring.csv"
WHOLE, BROKEN = st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)
VALUES = (WHOLE, BROKEN, st.integers(-(2**53), 2**53) | BROKEN, st.text(), st.booleans())


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_rows_are_written_as_pyarrow_itself_makes_columns_of_them(tmp_path_factory, data):
    rows = data.draw(st.integers(0, 20))
    table = {
        f"column {i}": data.draw(st.lists(values | st.none(), min_size=rows, max_size=rows))
        for i, values in enumerate(VALUES)
    }
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    write_rows(
        path, [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    )
    if rows:
        assert parquet.read_table(path).equals(pyarrow.table(table))


def test_a_run_imports_neither_pandas_nor_scipy(tmp_path):
    """They take longer than a small run does."""
    code = (
        "import sys; from rfabric.cli import main; main(sys.argv[1:]); "
        "print({'pandas', 'scipy'} & set(sys.modules))"
    )
    words = ["replay", str(RING), "--topo", "rfabric,pods=4", "--no-report", "--no-cache", "-q"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--out", str(tmp_path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "set()"
    assert list(tmp_path.rglob("flows.parquet"))


def test_numbers_of_rows_take_little_and_read_as_they_were(tmp_path):
    path, numbers = tmp_path / "rows.parquet", np.arange(1 << 16)
    words = [f"h{number % 5}" for number in numbers]
    _write(path, [{"id": numbers, "bytes": numbers // 7, "host": words}], "id")
    with parquet.ParquetFile(path) as file:
        group = file.metadata.row_group(0)
        column, told = group.column(0), [group.column(i).is_stats_set for i in range(3)]
        read = file.read().to_pydict()
    assert column.total_compressed_size < 4096 and "DELTA_BINARY_PACKED" in column.encodings
    assert told == [True, True, False]  # the first and last of words take a third of the time
    assert read == {"id": numbers.tolist(), "bytes": (numbers // 7).tolist(), "host": words}


def test_what_is_not_there_is_null_and_nothing_else_is(tmp_path):
    path = tmp_path / "rows.parquet"
    write_rows(path, [{"a": -0.0, "b": ""}, {"c": 3}, {"a": float("nan"), "b": "ä"}])
    read = parquet.read_table(path).to_pydict()
    assert read["b"] == ["", None, "ä"] and read["c"] == [None, 3, None]
    assert np.signbit(read["a"][0]) and read["a"][1] is None and np.isnan(read["a"][2])

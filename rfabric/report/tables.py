"""The tables of a run, flows and links of millions of rows: column by column as lines of CSV, and
their files, of which long ones are Parquet where that can be written.
"""

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RFabricError
from ..fabric.cabling import cabling_of
from ..files import lines_of, open_text
from ..routing.rows import begins
from ..trace import Trace
from ..trace.formats.columns import Cells, Words, blocks, lines, quoted
from . import parquet
from .result import Result

TABLES = "flows", "links"
LONG = 1 << 18  # rows; the CSV of more would take a tenth of a run's time

FLOW_COLUMNS = (
    "id",
    "src",
    "dst",
    "size_bytes",
    "start_s",
    "finish_s",
    "step",
    "phase",
    "label",
    "sent_bytes",
    "received_bytes",
)
LINK_COLUMNS = ("link", "a", "b", "rate_bps", "bytes", "utilisation")


def write_csv(path: Path, columns: Sequence[str], lines: Iterable[bytes]) -> None:
    """A header and these lines, each with its end, or blocks of them."""
    with open(path, "wb") as file:
        file.write((",".join(columns) + "\n").encode())
        file.writelines(lines)


def flow_lines(result: Result) -> Iterator[bytes]:
    """The lines of flows.csv, by FLOW_COLUMNS, in blocks."""
    trace, hosts = result.trace, Words(map(quoted, result.trace.hosts))
    for rows in blocks(len(trace)):
        size = Cells.of(trace.size[rows])
        arrived = (
            size if np.array_equal(column[rows], trace.size[rows]) else Cells.of(column[rows])
            for column in (result.sent, result.received)
        )
        yield lines(
            rows.start,
            Cells(hosts, trace.src[rows]),
            Cells(hosts, trace.dst[rows]),
            size,
            Cells.of(result.start[rows]),
            Cells.of(result.finish[rows]),
            _kinds(trace, rows),
            *arrived,
        )


def _kinds(trace: Trace, rows: slice) -> Cells:
    """Step, phase and label of each row."""
    step, phase, label = (column[rows] for column in (trace.step, trace.phase, trace.label))
    runs = np.flatnonzero(begins(step, phase, label))
    kinds = zip(
        Cells.of(step[runs]).texts,
        (quoted(trace.phases[i]) for i in phase[runs].tolist()),
        (quoted(trace.labels[i]) for i in label[runs].tolist()),
        strict=True,
    )
    return Cells.in_runs(map(",".join, kinds), runs, len(step))


def flow_columns(result: Result) -> dict[str, np.ndarray]:
    """The columns of flows.csv, in memory."""
    trace = result.trace
    hosts, phases, labels_ = (
        np.array(names, object) for names in (trace.hosts, trace.phases, trace.labels)
    )
    columns = (
        np.arange(len(trace)),
        hosts[trace.src],
        hosts[trace.dst],
        trace.size,
        result.start,
        result.finish,
        trace.step,
        phases[trace.phase],
        labels_[trace.label],
        result.sent,
        result.received,
    )
    return dict(zip(FLOW_COLUMNS, columns, strict=True))


def link_lines(result: Result) -> Iterable[bytes]:
    """The lines of links.csv, by LINK_COLUMNS, in one block: two a cable, a direction each."""
    links = result.fabric.links
    ports = np.arange(2 * len(links))
    ends = Words(cabling_of(result.fabric).spelled(ports))
    yield lines(
        0,
        Cells(ends, ports),
        Cells(ends, ports ^ 1),
        Cells.of(np.repeat([link.rate for link in links], 2)),
        Cells.of(result.link_bytes),
        Cells.of(result.utilisation, lambda share: str(round(share, 6))),
    )


# --- files ----------------------------------------------------------------------------------------


def csv_of(folder: Path) -> list[Path]:
    """The files of TABLES as CSV, there or not."""
    return [folder / f"{name}.csv" for name in TABLES]


def write_tables(folder: Path, result: Result) -> None:
    """Flows and links, each as CSV where it is not long, or nothing else can be written."""
    both = parquet.is_there()
    for path, rows in zip(csv_of(folder), (len(result.start), len(result.link_bytes)), strict=True):
        if rows <= LONG or not both:
            write_as_csv(path, path.stem, result)
    if both:
        parquet.write_flows(folder / "flows.parquet", FLOW_COLUMNS, result)
        parquet.write_links(folder / "links.parquet", LINK_COLUMNS, result)


def write_as_csv(path: Path, name: str, result: Result) -> None:
    """One of TABLES."""
    if name == "flows":
        write_csv(path, FLOW_COLUMNS, flow_lines(result))
    else:
        write_csv(path, LINK_COLUMNS, link_lines(result))


def kept_as(folder: Path, name: str) -> Path:
    """The file of a table: Parquet where it stands there alone."""
    text, columns = (folder / f"{name}{suffix}" for suffix in (".csv", ".parquet"))
    return columns if columns.is_file() and not text.is_file() else text


def read_table(folder: Path, name: str, needed: Sequence[str]) -> Mapping[str, Any]:
    """These columns of one of TABLES; RFabricError where its file is cut."""
    path = kept_as(folder, name)
    return read_csv(path, needed) if path.suffix == ".csv" else parquet.read(path, needed)


def read_csv(path: Path, needed: Sequence[str]) -> dict[str, list[str]]:
    """All columns of a file as words, these among them; RFabricError where it is cut."""
    try:
        with open_text(path) as file:
            head, *rows = csv.reader(lines_of(file), strict=True)
    except (ValueError, csv.Error) as error:
        raise RFabricError(f"{path}: incomplete: {error}") from error
    for i, row in enumerate(rows, 1):
        if len(row) != len(head):
            raise RFabricError(f"{path}: incomplete: row {i} has {len(row)} of {len(head)} cells")
    if missing := [name for name in needed if name not in head]:
        raise RFabricError(f"{path}: incomplete: no column {', '.join(missing)}")
    with path.open("rb") as end:
        end.seek(-1, os.SEEK_END)
        if end.read() != b"\n":
            raise RFabricError(f"{path}: incomplete: its last line has no end")
    return {name: [row[i] for row in rows] for i, name in enumerate(head)}

"""The tables of a run as lines of CSV: flows and links of millions of rows, column by column."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ..fabric.cabling import cabling_of
from ..routing.rows import begins
from ..trace import Trace
from ..trace.formats.columns import Cells, Words, blocks, lines, quoted
from .result import Result

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

"""The tables of a run as lines of CSV: flows and links of millions of rows, column by column."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ..fabric.cabling import cabling_of
from ..routing.rows import begins
from ..trace import Trace
from ..trace.formats.columns import blocks, ended, lines, quoted, repeated, texts
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


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[str]) -> None:
    """A header and these lines."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(",".join(columns) + "\n")
        file.writelines(ended(rows))


def flow_lines(result: Result) -> Iterator[str]:
    """The lines of flows.csv, by FLOW_COLUMNS."""
    trace = result.trace
    hosts = np.array(list(map(quoted, trace.hosts)), object)
    for rows in blocks(len(trace)):
        size = texts(trace.size[rows])
        arrived = (
            size if np.array_equal(column[rows], trace.size[rows]) else texts(column[rows])
            for column in (result.sent, result.received)
        )
        yield from lines(
            map(str, range(rows.start, rows.stop)),
            hosts[trace.src[rows]],
            hosts[trace.dst[rows]],
            size,
            texts(result.start[rows]),
            texts(result.finish[rows]),
            _kind_texts(trace, rows),
            *arrived,
        )


def _kind_texts(trace: Trace, rows: slice) -> list[str]:
    """Step, phase and label of each row."""
    step, phase, label = (column[rows] for column in (trace.step, trace.phase, trace.label))
    runs = np.flatnonzero(begins(step, phase, label))
    kinds = lines(
        texts(step[runs]),
        (quoted(trace.phases[i]) for i in phase[runs].tolist()),
        (quoted(trace.labels[i]) for i in label[runs].tolist()),
    )
    return repeated(list(kinds), runs, len(step))


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


def link_lines(result: Result) -> Iterable[str]:
    """The lines of links.csv, by LINK_COLUMNS: two a cable, a direction each."""
    links = result.fabric.links
    ends = cabling_of(result.fabric).spelled(np.arange(2 * len(links)))
    other = ends.copy()
    other[::2], other[1::2] = ends[1::2], ends[::2]
    rates = texts(np.repeat([link.rate for link in links], 2))
    used = texts(result.utilisation, lambda share: str(round(share, 6)))
    return lines(map(str, range(len(ends))), ends, other, rates, texts(result.link_bytes), used)

"""Tables of a cluster as CSV: lines, header and cells, for those with a host and those with a cable
a row.

Cells are divided by commas, tabs, `;` or `|`, whichever the header has; empty lines and lines that
begin with `#` are skipped.
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import RFabricError
from ...files import NOTHING, twice
from .base import is_quantity, spelled_bytes, text_of

HOST_WORDS = (
    "ip", "host", "hostname", "server", "gpu", "machine", "node", "hostip", "serverip", "nodeip",
    "address", "addr", "endpoint",
)  # fmt: skip
TIER_WORDS = (
    ("tor", "asw", "leaf", "edge", "access", "rack", "lsw"),
    ("agg", "aggregation", "psw", "spine", "fabric", "distribution", "dist", "fsw"),
    ("core", "dsw", "superspine", "ssw", "border"),
)
_WHAT = ("node", "device", "switch", "end", "side", "host")  # an end is called such, numbered


def _numbered(*marks: str) -> tuple[str, ...]:
    """`node1`, `1node`, `side1device`"""
    once = [name for what in _WHAT for m in marks for name in (f"{what}{m}", f"{m}{what}")]
    return (*once, *(f"side{m}device" for m in marks))


ENDS = (
    ("a", "src", "source", "from", "local", "localdevice", "srcnode", "sourcenode", "sourcedevice",
     "fromnode", *_numbered("1", "a")),
    ("b", "dst", "target", "to", "remote", "remotedevice", "destination", "neighbor", "neighbour",
     "peer", "z", "dstnode", "targetnode", "targetdevice", "tonode", *_numbered("2", "b", "z")),
)  # fmt: skip
# columns of traces, which are no networks
FLOWS = {"sizebytes", "bytes", "size", "starts", "after", "gaps", "percent", "cdf"}
CsvRow = tuple[int, dict[str, str]]  # line number, cells by column


@dataclass(frozen=True)
class CsvRows:
    """The header in lower case, the rows below it, and what is said of lines left out that may have
    been meant as rows.
    """

    header: list[str]
    rows: list[CsvRow]
    said: tuple[str, ...] = ()


def header_in(text: str) -> list[str]:
    """The header of a table of networks; empty where it is none."""
    header = _header(next(iter(_kept(text)), (1, ""))[1])
    bare = {bare_name(cell) for cell in header}
    return [] if len(header) < 2 or FLOWS & bare else header


def rows_of(path: Path) -> CsvRows:
    """The table in a file; RFabricError for a header of none, a column twice, a row too long."""
    text = text_of(path)
    kept = _kept(text)
    line = f"line {kept[0][0] if kept else 1}"
    if not (header := header_in(text)):
        said = ",".join(_header(kept[0][1])) if kept else "missing"
        raise RFabricError(
            f"{line}: the header must be ip,ToR,agg,core or a,b,rate[,delay], in any order and "
            f"of as many tiers as there are; it is {said}"
        )
    if (column := twice(header)) is not None:
        raise RFabricError(f"{line}: column {column!r} stands twice; keep one")
    rows = [(n, _cells(n, row, header, kept[0][1])) for n, row in kept[1:]]
    return CsvRows(header, rows, _like_rows(text, len(header), kept[0][1]))


def _like_rows(text: str, cells: int, first: str) -> tuple[str, ...]:
    """NetBox labels a cable `#12`, and a row that begins so is taken for a comment."""
    mark = _divided_by(first)
    lines = [line for line in text.splitlines() if line.lstrip().startswith("#")]
    alike = sum(line.count(mark) == cells - 1 for line in lines)
    return (f"rows that begin with # left out as comments: {alike:,}",) if alike else ()


def ends_in(header: Sequence[str]) -> tuple[str, str] | None:
    """The columns of a cable's two ends; None in a table of hosts."""
    return None if is_of_hosts(header) else _ends(header)


def is_of_hosts(header: Sequence[str]) -> bool:
    """Whether a row is a host: a column of hosts, and switches by tier or as two ends are called,
    unless a rate behind those two makes them a cable's.
    """
    host = next((i for i, c in enumerate(header) if bare_name(c) in HOST_WORDS), None)
    if host is None:
        return False
    if any(rank_of(c) is not None for c in header):
        return True
    ends = _ends(header)
    leads = ends is not None and host < min(map(header.index, ends))
    return ends is not None and (leads or not any(map(is_quantity, header)))


def _ends(header: Sequence[str]) -> tuple[str, str] | None:
    """The first columns called as ends are; or, where NetBox has `Side A` for the port, those of
    the devices behind them.
    """
    found = [next((c for c in header if bare_name(c) in words), None) for words in ENDS]
    if not (found[0] and found[1]):
        return None
    devices = [
        next((c for c in header if bare_name(c) == f"{bare_name(end or '')}device"), None)
        for end in found
    ]
    return (devices[0], devices[1]) if devices[0] and devices[1] else (found[0], found[1])


def rank_of(column: str) -> int | None:
    """The tier that a column's name says, lowest first."""
    bare = bare_name(column)
    for rank, words in enumerate(TIER_WORDS):
        if re.fullmatch(rf"({'|'.join(words)})(s|name|switch)?\d?", bare):  # tor1, tor2
            return rank
    numbered = re.fullmatch(r"(?:tier|level|layer|t|l)(\d)", bare)
    return int(numbered[1]) if numbered else None


def bare_name(cell: str) -> str:
    """A column's name without what people put between words."""
    return re.sub(r"[^a-z0-9]", "", cell.lower())


def one_name(n: int, column: str, text: str) -> str:
    """The one name in a cell. RFabricError where there are several."""
    names = names_in(text)
    if len(names) != 1:
        raise RFabricError(
            f"line {n}, column {column}: {text!r} must be one name; blanks, commas, `;` and `|` "
            "divide names, and a host of several cables has a row each in a table of a,b,rate"
        )
    return names[0]


def names_in(text: str, column: str = "") -> list[str]:
    """The names in a cell, without words such as `NaN`, which say that there is none; a mere number
    is one of its column, as tiers count from 1 each.
    """
    every = re.findall(r"[^\s;,|]+", text)
    names = dict.fromkeys(name for name in every if name.lower() not in NOTHING)
    return [f"{column}{name}" if column and name.isdecimal() else name for name in names]


def shown(columns: Sequence[str]) -> str:
    """Columns in a message."""
    return ", ".join(column or "one without a name" for column in columns)


def _kept(text: str) -> list[tuple[int, str]]:
    return [
        (n, line)
        for n, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]


def _divided_by(header: str) -> str:
    return next((mark for mark in (",", "\t", ";", "|") if mark in header), ",")


def _header(line: str) -> list[str]:
    cells = next(csv.reader([line], delimiter=_divided_by(line)))
    return [spelled_bytes(cell.strip()).lower() for cell in cells]


def _cells(number: int, line: str, header: Sequence[str], first: str) -> dict[str, str]:
    try:
        cells = next(csv.reader([line], delimiter=_divided_by(first)))
    except csv.Error as error:
        raise RFabricError(f"line {number}: {error}") from error
    if len(cells) != len(header):
        raise RFabricError(f"line {number}: {len(cells)} cells, the header has {len(header)}")
    return dict(zip(header, (cell.strip() for cell in cells), strict=True))

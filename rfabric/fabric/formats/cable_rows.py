"""CSV with a cable a row; see `csv_rows`.

a,b,rate,delay                    any rates; a name with a single cable is a host, and the
10.1.0.1,leaf-a,400Gbit/s,500ns   switches that hold hosts are ToRs

A column `count` says how many cables a row stands for, each of this rate, and one such as `status`
whether it carries anything (see `states`).
"""

import re
from dataclasses import replace
from pathlib import Path

from ...errors import RFabricError
from ...files import NOTHING
from ..network import NamedCable, Network
from ..roles import Role
from .base import (
    Reading,
    TopologyFormat,
    copies_of,
    delay_of,
    is_count,
    is_quantity,
    rate_of,
    several,
    stem_of,
)
from .csv_rows import CsvRow, CsvRows, bare_name, ends_in, header_in, one_name, rows_of, shown
from .graphs import each_once
from .states import is_down, is_plain, is_state

PORT = re.compile(r"port|interface|intf|ifname")


def _sniff(text: str) -> bool:
    return ends_in(header_in(text)) is not None


def _read(path: Path, reading: Reading) -> Network:
    table = rows_of(path)
    ends = ends_in(table.header)
    if ends is None:
        raise RFabricError("line 1: the header names no two ends of a cable, such as a,b,rate")
    said = list(table.said)
    listed = _each_once(table, ends, said)
    rows = [row for row in listed if not is_down(row[1])]
    if len(rows) < len(listed):
        said.append(f"rows of cables that are down left out: {len(listed) - len(rows):,}")
    copies = [copies_of(row, f"line {n}, column") for n, row in rows]
    cables = [
        replace(_cable(n, row, ends, reading), again=again)
        for (n, row), count in zip(rows, copies, strict=True)
        for again in [False] + [True] * (count - 1)
    ]
    said += several(copies, "rows")
    again = len(rows) - len({tuple(row.items()) for _, row in rows})
    said += [f"{again:,} rows repeat others, each a cable of its own"] if again else []
    down = [NamedCable(row[ends[0]], row[ends[1]]) for _, row in listed if is_down(row)]
    cables = each_once(cables, said, down=down)
    nodes = dict.fromkeys((name for cable in cables for name in (cable.a, cable.b)), Role())
    left = [c for c in table.header if c not in ends and not _is_read(c, table)]
    said += [f"columns left out: {shown(left)}"] if left else []
    return Network(stem_of(path), nodes, tuple(cables), tuple(said))


def _is_read(column: str, table: CsvRows) -> bool:
    """Whether a column says something here, in all of its rows."""
    if is_state(column):
        return all(is_plain(column, row[column]) for _, row in table.rows)
    return is_quantity(column) or is_count(column)


def _each_once(table: CsvRows, ends: tuple[str, str], said: list[str]) -> list[CsvRow]:
    """The rows, without those of a cable that the same two ports named before, either way round, as
    the first of them; it is down where any says so. RFabricError where these say something else.
    """
    named = (c for c in table.header if c not in ends and not is_quantity(c))
    ports = [c for c in named if PORT.search(bare_name(c))]
    if len(ports) != 2:
        return table.rows
    kept: dict[frozenset, CsvRow] = {}
    for n, row in table.rows:
        key = frozenset((row[end], row[port]) for end, port in zip(ends, ports, strict=True))
        key = key if all(row[port] for port in ports) else frozenset({n})
        _agree(kept.setdefault(key, (n, row)), (n, row))
    if len(kept) < len(table.rows):
        said.append(f"{len(table.rows):,} rows name {len(kept):,} cables by their ports")
    return list(kept.values())


def _agree(first: CsvRow, other: CsvRow) -> None:
    """Fill what the first row of a cable does not say by what another says; RFabricError where they
    differ.
    """
    (line, said), (n, row) = first, other
    if is_down(row):
        said |= {column: row[column] for column in row if is_state(column)}
    if is_down(said):
        return
    for column in filter(is_quantity, row):
        if said[column].lower() in NOTHING:
            said[column] = row[column]
        elif row[column].lower() not in NOTHING and row[column] != said[column]:
            raise RFabricError(
                f"line {n}, column {column}: {row[column]!r}, but {said[column]!r} in line {line}, "
                "of the same ports; correct one"
            )


def _cable(n: int, row: dict[str, str], ends: tuple[str, str], reading: Reading) -> NamedCable:
    a, b = (one_name(n, column, row[column]) for column in ends)
    if a == b:
        raise RFabricError(f"line {n}, column {ends[1]}: {b} is joined to itself")
    rate, delay = (of(row, reading, f"line {n}, column") for of in (rate_of, delay_of))
    if delay is not None and not delay:
        raise RFabricError(f"line {n}, column delay: {delay:g} must be above 0")
    return NamedCable(a, b, rate, delay, f"line {n}, column {ends[1]}")


CABLE_ROWS = TopologyFormat(
    "csv-cables", "a cable a row: `a,b,rate,delay`", (".csv", ".tsv"), _sniff, _read, lines=True
)

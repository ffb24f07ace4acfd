"""CSV with a host a row, as clusters are listed; see `csv_rows`.

    ip,DSW,PSW,ASW                    its own name and, in any order, a column of switches a tier;
    10.1.0.1,d-1 d-2,p-1 p-2,a-1      a cell above the ToR may hold several, by blanks or `;`

Cables: host-ToR, and each switch to each of the tier above in the row, each once. Columns are known
by the words people use (ToR, leaf, ASW; agg, spine, PSW; core, DSW; or tier1, tier2, ...), else by
`switch`; of other words the tier with more switches is the lower one, where each of these stands
below the same ones in all its rows, and `tiers=ASW;PSW` says it. A column that is neither is left
out, and said.
"""

from pathlib import Path

from ...errors import RFabricError
from ..network import NamedCable, Network
from ..roles import Role
from .base import Reading, TopologyFormat, is_quantity, stem_of
from .csv_rows import (
    HOST_WORDS,
    CsvRow,
    bare_name,
    header_in,
    is_of_hosts,
    names_in,
    one_name,
    rank_of,
    rows_of,
    shown,
)

SWITCH_WORDS = ("switch", "switchname", "sw")
TIERS = ("edge", "aggregation", "core")


def _sniff(text: str) -> bool:
    return is_of_hosts(header_in(text))


def _read(path: Path, reading: Reading) -> Network:
    table = rows_of(path)
    named = [c for c in table.header if c]  # pandas' index has no name
    host = _host_column(named, table.rows)
    tiers, said = _tier_columns([c for c in named if c != host], table.rows, reading)
    left = [c for c in table.header if c not in (host, *tiers)]
    nodes: dict[str, Role] = {}
    pairs: dict[tuple[str, str], NamedCable] = {}
    for n, row in table.rows:
        _add_row(n, row, host, tiers, nodes, pairs)
    dropped = [f"tiers from below: {', '.join(tiers)}{said}"]
    dropped += table.said
    if left:
        dropped.append(f"columns left out: {shown(left)} (tiers= names those of switches)")
    return Network(stem_of(path), nodes, tuple(pairs.values()), tuple(dropped))


def _add_row(n: int, row: dict, host: str, tiers: list[str], nodes: dict, pairs: dict) -> None:
    below = [one_name(n, host, row[host])]
    if below[0] in nodes:
        raise RFabricError(
            f"line {n}, column {host}: {below[0]} stands in an earlier row; a host has one row"
        )
    nodes[below[0]] = Role("host", "host")
    filled = [i for i, column in enumerate(tiers) if names_in(row[column])]
    for i, column in enumerate(tiers[: max(filled, default=0) + 1]):
        names = names_in(row[column], column)
        if not names and i:
            above = names_in(row[tiers[max(filled)]])[0]
            raise RFabricError(
                f"line {n}, column {column}: empty, but column {tiers[max(filled)]} names "
                f"{above}; what joins them?"
            )
        if not i:
            one_name(n, column, row[column])
        for name in names:
            _add_switch(n, column, name, TIERS[min(i, 2)], nodes)
        for a in below:
            pairs |= {(a, b): NamedCable(a, b, where=f"line {n}") for b in names}
        below = names


def _add_switch(n: int, column: str, name: str, tier: str, nodes: dict) -> None:
    role = nodes.setdefault(name, Role("eps", tier))
    if role.tier != tier:
        raise RFabricError(f"line {n}, column {column}: {name} stands in another column before")


def _host_column(header: list[str], rows: list[CsvRow]) -> str:
    """The column of hosts: by its name, else the one whose cells all differ."""
    named = [c for word in HOST_WORDS for c in header if bare_name(c) == word]
    alone = [c for c in header if len({row[c] for _, row in rows}) == len(rows) > 1]
    column = next((c for c in named if c in alone), None) or next(iter(named), None)
    if column is None and len(alone) != 1:
        raise RFabricError(
            f"no column is called {', '.join(HOST_WORDS[:4])} and "
            f"{'several have' if alone else 'none has'} cells that all differ; name the hosts' ip"
        )
    return column or alone[0]


def _tier_columns(
    columns: list[str], rows: list[CsvRow], reading: Reading
) -> tuple[list[str], str]:
    """The columns of switches, lowest first, and how that was told."""
    if reading.tiers:
        return _told(columns, names_in(reading.tiers.lower())), ", as tiers= says"
    named = {c: rank for c in columns if (rank := rank_of(c)) is not None}
    if named := named or {c: 0 for c in columns if bare_name(c) in SWITCH_WORDS}:
        order = sorted(named, key=lambda c: named[c])
        same = [(a, b) for a, b in zip(order, order[1:], strict=False) if named[a] == named[b]]
        if same:
            raise RFabricError(
                f"columns {same[0][0]} and {same[0][1]} are both of one tier by their names; say "
                f"which are switches, lowest first: tiers={';'.join(order)}; a host of several "
                "cables has a row each in a table of a,b,rate"
            )
        return order, ""
    return _by_counts(columns, rows), ", the one with more switches lower"


def _told(columns: list[str], said: list[str]) -> list[str]:
    for name in said:
        if name not in columns:
            raise RFabricError(f"tiers: there is no column {name!r}; there are {columns}")
    return said


def _by_counts(columns: list[str], rows: list[CsvRow]) -> list[str]:
    counts = {
        c: len({name for _, row in rows for name in names_in(row[c])})
        for c in columns
        if not is_quantity(c)
    }
    order = sorted(counts, key=lambda c: -counts[c])
    for a, b in zip(order, order[1:], strict=False):
        if rows and counts[a] == counts[b]:
            raise RFabricError(
                f"columns {a} and {b} hold {counts[a]:,} switches each, and no name that says "
                "which is above; say it, lowest first: tiers=" + ";".join(order)
            )
        _check_below(a, b, rows)
    if not order:
        raise RFabricError("the header names no column of switches")
    return order


def _check_below(low: str, high: str, rows: list[CsvRow]) -> None:
    """RFabricError where a column was only guessed to be of switches, as of ports and units, which
    count anew in each of the other column.
    """
    above: dict[str, str] = {}
    for n, row in rows:
        for name in names_in(row[low], low):
            if above.setdefault(name, row[high]) != row[high]:
                raise RFabricError(
                    f"line {n}, column {low}: {name} stands beside {row[high]} and, before, "
                    f"{above[name]}; say which columns are of switches, lowest first: tiers={high}"
                )


HOST_ROWS = TopologyFormat(
    "csv-hosts", "a host a row, a column of switches a tier, in any order: `ip,DSW,PSW,ASW`",
    (".csv", ".tsv"), _sniff, _read, lines=True,
)  # fmt: skip

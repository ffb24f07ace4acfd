"""A real network from a CSV of its cables: uneven Clos networks, or any other of packet switches.

Two forms, told apart by the header:

    ip,ToR,agg,core                     one row a host; agg and core may hold several names, by
                                        blanks or `;`
    10.1.0.1,leaf-a,agg-1 agg-2,core-1  cables: host-ToR, ToR to each agg, each agg to each core of
                                        the row, each once

    a,b,rate[,delay]                 one row a cable; a name with a single cable is a host
    10.1.0.1,leaf-a,400Gbit/s,500ns  the switches that hold hosts are ToRs; one cable from a ToR is
                                     aggregation

Hosts become h1, h2, ... in the order they appear, switches t1.., a1.., c1..; `parameters["names"]`
keeps what they were called. Empty lines and lines that begin with `#` are skipped. Every complaint
names file, line and column.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import RFabricError
from ..files import open_text, read_text
from ..units import parse_rate, parse_time
from .builders.parts import CABLE_DELAY, Sketch
from .model import Fabric

HOSTS, PAIRS = ("ip", "tor", "agg", "core"), ("a", "b", "rate", "delay")
HEADERS = HOSTS, HOSTS[:3], PAIRS, PAIRS[:3]
LETTERS = {"edge": "t", "aggregation": "a", "core": "c"}


@dataclass(frozen=True)
class _Cable:
    """Two names as the file has them, bit/s and s."""

    a: str
    b: str
    rate: float
    delay: float


def import_fabric(
    file: str, rate: str | float = "400Gbit/s", uplink_rate: str | float = ""
) -> Fabric:
    """The fabric in `file`.

    `rate` is that of host cables, `uplink_rate` of the others (default: `rate`), where rows give
    none.
    """
    host = parse_rate(rate, "rate")
    above = parse_rate(uplink_rate, "uplink_rate") if uplink_rate != "" else host
    header, rows = _read(file)
    if header[:2] == HOSTS[:2]:
        hosts, tiers, cables = _by_host(file, rows, host, above)
    else:
        hosts, tiers, cables = _by_pairs(file, rows)
    return _fabric(file, hosts, tiers, cables, {"rate_bps": host, "uplink_rate_bps": above})


def is_network(file: str) -> bool:
    """Whether a CSV holds cables, by its header: a trace of flows is a CSV too."""
    try:
        with open_text(file) as lines:
            first = next(
                (line for line in lines if line.strip() and not line.lstrip().startswith("#")), ""
            )
        return _header(first) in HEADERS
    except (OSError, ValueError, csv.Error):  # who reads all of it says what is wrong
        return False


def _header(line: str) -> tuple[str, ...]:
    return tuple(cell.strip().lower() for cell in next(csv.reader([line]), ()))


def _read(file: str) -> tuple[tuple[str, ...], list[tuple[int, dict[str, str]]]]:
    """The header and (line number, cells by column) of every row."""
    try:
        lines = read_text(file).splitlines()
    except (OSError, ValueError) as error:
        raise RFabricError(f"fabric file {file}: {error}") from error
    kept = [
        (n, line)
        for n, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    header = _header(kept[0][1]) if kept else ()
    if header not in HEADERS:
        raise RFabricError(
            f"{file}, line {kept[0][0] if kept else 1}: the header must be ip,ToR,agg,core or "
            f"a,b,rate[,delay]; it is {','.join(header) or 'missing'}"
        )
    return header, [(n, _cells(file, n, line, header)) for n, line in kept[1:]]


def _cells(file: str, number: int, line: str, header: tuple[str, ...]) -> dict[str, str]:
    cells = [cell.strip() for cell in next(csv.reader([line]))]
    if len(cells) != len(header):
        raise RFabricError(
            f"{file}, line {number}: {len(cells)} cells, the header has {len(header)}"
        )
    return dict(zip(header, cells, strict=True))


def _by_host(
    file: str, rows: list, host: float, above: float
) -> tuple[list[str], dict[str, str], list[_Cable]]:
    """Hosts, the tier of each switch, cables each once, of rows `ip,ToR,agg,core`."""
    tiers: dict[str, str] = {}
    hosts: dict[str, None] = {}
    pairs: dict[tuple[str, str], float] = {}
    for n, row in rows:
        ip, tor = (_one(file, n, column, row[column]) for column in ("ip", "tor"))
        if ip in hosts or ip in tiers:
            raise RFabricError(
                f"{file}, line {n}, column ip: {ip} stands in an earlier row; a host has one row"
            )
        hosts[ip] = None
        aggs, cores = _names(row["agg"]), _names(row.get("core", ""))
        if cores and not aggs:
            raise RFabricError(
                f"{file}, line {n}, column agg: empty, but column core names {cores[0]}; what "
                "joins them?"
            )
        for tier, column, found in (
            ("edge", "tor", [tor]),
            ("aggregation", "agg", aggs),
            ("core", "core", cores),
        ):
            for name in found:
                if name in hosts or tiers.setdefault(name, tier) != tier:
                    raise RFabricError(
                        f"{file}, line {n}, column {column}: {name} stands in another column before"
                    )
        pairs |= {(ip, tor): host}
        pairs |= dict.fromkeys(
            [(tor, agg) for agg in aggs] + [(agg, core) for agg in aggs for core in cores], above
        )
    return list(hosts), tiers, [_Cable(*pair, rate, CABLE_DELAY) for pair, rate in pairs.items()]


def _by_pairs(file: str, rows: list) -> tuple[list[str], dict[str, str], list[_Cable]]:
    """The same of rows `a,b,rate[,delay]`: what has one cable is a host."""
    cables = [_pair(file, n, row) for n, row in rows]
    count = Counter(name for cable in cables for name in (cable.a, cable.b))
    hosts = [name for name in count if count[name] == 1]
    for (n, _), cable in zip(rows, cables, strict=True):
        if count[cable.a] == count[cable.b] == 1:
            raise RFabricError(
                f"{file}, line {n}, column b: {cable.a} and {cable.b} are joined to nothing "
                "else; a ToR is missing"
            )
    return hosts, _tiers(cables, hosts), cables


def _pair(file: str, n: int, row: dict[str, str]) -> _Cable:
    a, b = (_one(file, n, column, row[column]) for column in ("a", "b"))
    if a == b:
        raise RFabricError(f"{file}, line {n}, column b: {b} is joined to itself")
    rate = _quantity(file, n, "rate", row["rate"], parse_rate)
    delay = (
        _quantity(file, n, "delay", row["delay"], parse_time) if row.get("delay") else CABLE_DELAY
    )
    return _Cable(a, b, rate, delay)


def _quantity(file: str, n: int, column: str, text: str, parse) -> float:
    try:
        value = parse(text, column)
    except RFabricError as error:
        raise RFabricError(f"{file}, line {n}, column {error}") from None
    if not value:
        raise RFabricError(f"{file}, line {n}, column {column}: {text!r} must be above 0")
    return value


def _tiers(cables: list[_Cable], hosts: list[str]) -> dict[str, str]:
    """Edge: has a host. Aggregation: a cable away from an edge. Core: all others."""
    below = set(hosts)
    found = {name: "core" for cable in cables for name in (cable.a, cable.b) if name not in below}
    for tier in ("edge", "aggregation"):
        near = below if tier == "edge" else {name for name, t in found.items() if t == "edge"}
        for a, b in ((c.a, c.b) for c in cables):
            for here, there in ((a, b), (b, a)):
                if there in near and found.get(here) == "core":
                    found[here] = tier
    return found


def _one(file: str, n: int, column: str, text: str) -> str:
    names = _names(text)
    if len(names) != 1:
        raise RFabricError(f"{file}, line {n}, column {column}: {text!r} must be one name")
    return names[0]


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"[^\s;]+", text)))


def _fabric(
    file: str, hosts: list[str], tiers: dict[str, str], cables: list[_Cable], parameters: dict
) -> Fabric:
    if not hosts:
        raise RFabricError(f"{file}: it has no host")
    sketch, short = Sketch(), {}
    short |= dict(zip(hosts, sketch.hosts([len(hosts)]), strict=True))
    for tier, name, i in _numbered(tiers):
        short[name] = sketch.switch(
            f"{LETTERS[tier]}{i + 1}", "eps", tier, divmod(i, 4096), 0 if tier != "core" else -1
        )
    for cable in cables:
        sketch.cable(short[cable.a], short[cable.b], cable.rate, cable.delay)
    names = {new: old for old, new in short.items()}
    return Fabric(
        Path(file).stem, sketch.nodes, sketch.links, 0.0, "", parameters | {"names": names}
    )


def _numbered(tiers: dict[str, str]) -> Iterator[tuple[str, str, int]]:
    """(tier, name, number in its tier), tier by tier."""
    for tier in LETTERS:
        for i, name in enumerate(name for name, t in tiers.items() if t == tier):
            yield tier, name, i

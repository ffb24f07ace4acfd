"""Distributions of flow sizes, as papers and simulators publish them: flows drawn from one.

    bytes,percent            or, without a header and parted by blanks, `10000 15`; percent or
    0,0                      shares of 1, rising to 100 or 1
    10000,15
    30000000,100

Flows arrive by chance (Poisson) at such a rate that they fill `load` of what the hosts' cards send,
between two hosts taken evenly; sizes lie evenly between two rows. Same seed, same flows: that of
the run (`--seed`), unless the settings say one. A header may say a unit, `size_KB`; sizes in
packets are refused, whose bytes it does not say.
"""

import re
from pathlib import Path

import numpy as np

from ...errors import RFabricError
from ...files import lines_of, open_text
from ...units import bytes_in, parse_rate, parse_size, parse_time
from ..model import MOST_BYTES, Trace
from .base import TraceFormat, understood, whole

MOST_FLOWS = 5_000_000
HEADER = re.compile(r"[A-Za-z_ #()%]+[,\s][A-Za-z_ #()%,]+")
SHARE = r"cdf|perc|prob|share|frac|%"
# the first cell of a header, as it must be in a comment, which else is one
SIZED = re.compile(
    r"(?:flow[ _]?)?(?:sizes?(?:\s+in\s+|\s*[_(]\s*)?\w*\)?|bytes|packets|pkts)", re.I
)
PREFIXED = re.compile(
    r"(?:(?<![A-Za-z])|(?<=[a-z]))(kilo|mega|giga|tera|[kKmMgGT])(i?)(?:[bB]ytes?|[bB])(?![a-z])"
)
OTHERS = re.compile(r"packets?|pkts?|flits?|(?<![a-z])cells?|bits?(?![a-z])", re.I)
ROW = re.compile(r"[\d.eE+-]+(?:\s*,\s*|\s+)[\d.eE+-]+(?:(?:\s*,\s*|\s+)[\d.eE+-]+)?")


THREE = "the first of three columns taken as bytes (ns-2's files count packets: multiply it)"


def _read(
    path: Path,
    load: float = 0.5,
    seed: int = 0,
    duration: str = "10ms",
    hosts: int = 16,
    rate: str = "400Gbit/s",
) -> Trace:
    sizes, shares, three = _rows(path)
    count, seconds = whole(hosts, "hosts", 2, 2**20), parse_time(duration, "duration")
    mean = float(shares[0] * sizes[0] + np.diff(shares) @ ((sizes[1:] + sizes[:-1]) / 2))
    if not 0 < load <= 1 or seconds <= 0:
        raise RFabricError(f"load {load} must lie above 0, at most 1; duration {duration} above 0")
    each = load * count * float(bytes_in(parse_rate(rate, "rate"), 1.0)) / mean
    if each * seconds > MOST_FLOWS:
        raise RFabricError(
            f"{each * seconds:,.0f} flows of {mean:,.0f} bytes in {duration}; {MOST_FLOWS:,} at "
            "most: make duration shorter"
        )
    trace = _drawn(sizes, shares, each, seconds, count, np.random.default_rng(whole(seed, "seed")))
    said = [f"mean {mean:,.0f} bytes", *([THREE] if three else ())]
    wanted = f"load {load:g} of {count} NICs of {rate}, seed {seed}, {duration}"
    return understood(trace, FLOW_SIZES.name, path, [wanted, *said])


def _drawn(sizes, shares, each: float, seconds: float, count: int, chance) -> Trace:
    flows = chance.poisson(each * seconds)
    if not flows:
        raise RFabricError(f"no flow arrives: {each * seconds:.2g} expected; make duration longer")
    start = np.sort(chance.uniform(0, seconds, flows))
    src = chance.integers(0, count, flows)
    dst = (src + chance.integers(1, count, flows)) % count
    size = np.maximum(np.rint(np.interp(chance.random(flows), shares, sizes)), 1)
    none = np.zeros(flows)
    names = tuple(f"h{i + 1}" for i in range(count))
    offsets = np.zeros(flows + 1)
    return Trace(
        names, src, dst, size, start, none, offsets, [], none, none, none, ("flows",), ("drawn",)
    )


def _rows(path: Path) -> tuple[np.ndarray, np.ndarray, bool]:
    """Sizes in bytes and the share of flows up to each, from 0 to 1; whether rows have three
    cells.
    """
    rows, three, unit = [], False, 1.0
    with open_text(path) as file:
        for number, line in enumerate(lines_of(file), 1):
            text = line.split("#")[0].strip()
            header = text or line.strip("\ufeff# \t\r\n")
            if not rows and HEADER.fullmatch(header) and (text or _heads(header)):
                unit = _unit(f"line {number}", header) or unit
            elif text:
                rows.append(_row(f"line {number}", text))
                three = three or len(_cells(text)) == 3
    if len(rows) < 2:
        raise RFabricError(f"{len(rows)} rows; a distribution has two or more")
    sizes, shares = np.array(rows).T * ((unit,), (1.0,))
    for what, column in (("bytes", sizes), ("shares", shares)):
        falls = np.flatnonzero(np.diff(column) < 0)
        if len(falls):
            raise RFabricError(f"row {falls[0] + 2}: {what} fall; a distribution rises")
    if shares[-1] not in (1.0, 100.0):
        raise RFabricError(f"ends at {shares[-1]:.12g}; the last row is 100 (or 1): is it whole?")
    return sizes, shares / shares[-1], three


def _names(header: str) -> list[str]:
    return re.split(rf",|\t|\s(?=\w*(?:{SHARE}))", header, flags=re.I)


def _heads(comment: str) -> bool:
    """Whether a comment names the columns, sizes first."""
    first, *others = _names(comment)
    return bool(SIZED.fullmatch(first.strip()) and re.search(SHARE, " ".join(others), re.I))


def _unit(where: str, header: str) -> float | None:
    """Bytes of one of the sizes below a header, where it says so. RFabricError for packets, or for
    shares first.
    """
    names = _names(header)
    if re.search(SHARE, names[0], re.I):
        raise RFabricError(f"{where}: {header[:40]!r}: sizes stand first, as in `bytes,percent`")
    if other := OTHERS.search(names[0]):
        raise RFabricError(
            f"{where}: {header[:40]!r}: sizes are counted in {other[0]}; write them in bytes"
        )
    said = PREFIXED.search(names[0])
    return parse_size(f"1{said[1][0].upper()}{said[2]}B", "size") if said else None


def _cells(text: str) -> list[str]:
    return re.split(r"\s*,\s*|\s+", text)


def _row(where: str, text: str) -> tuple[float, float]:
    if not ROW.fullmatch(text):
        raise RFabricError(f"{where}: {text[:40]!r} is not `bytes,percent`")
    cells = _cells(text)
    try:
        size, share = float(cells[0]), float(cells[-1])
    except ValueError:
        raise RFabricError(f"{where}: {text[:40]!r} is not `bytes,percent`") from None
    if not (0 <= size <= MOST_BYTES and 0 <= share <= 100):
        raise RFabricError(f"{where}: {text[:40]!r}: bytes 0 to 1e18, percent 0 to 100")
    return size, share


def _sniff(head: bytes) -> bool:
    text = head.decode("utf-8-sig", "replace")
    lines = [line.split("#")[0].strip() for line in text.splitlines()] or [""]
    uncut = len(head) < 4096 and (head.endswith((b"\n", b"\r")) or ROW.fullmatch(lines[-1]))
    if not uncut:
        lines.pop()  # cut
    lines = list(filter(None, lines))
    header = re.match(r"\W*(flow[_ ]?)?(size|bytes)", lines[0], re.I) if lines else None
    rows = lines[1:] if header and HEADER.fullmatch(lines[0]) else lines
    if not rows or not all(map(ROW.fullmatch, rows)):
        return False
    try:
        shares = [float(re.split(r"[,\s]+", row)[-1]) for row in rows]
    except ValueError:
        return False
    return header is not None or (shares == sorted(shares) and shares[-1] in (1.0, 100.0))


FLOW_SIZES = TraceFormat(
    "flow-sizes", "distribution of flow sizes, `bytes,percent`; arrivals by load, seed, duration",
    (".cdf",), _sniff, _read, lines=True,
)  # fmt: skip

"""Units at the border: everything inside rfabric is seconds, bytes and bit/s.

    parse_rate("400Gbit/s") -> 4e11    parse_size("1 GiB") -> 1073741824  parse_time("10ms") -> 0.01

Rates are decimal (1 Gbit/s = 1e9 bit/s, as on every port label); sizes know both kB (1e3) and KiB
(2**10).

Text carries its unit: who writes `delay=10` may mean ms, and gets an error that says so. 0 needs
none. Python code passes floats of the base unit; a file whose column or key has the unit in its
name (`start_s`, `size_bytes`) is read with `bare=True`. This module holds the only 8 of the
project.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .errors import RFabricError, meant

BITS_PER_BYTE = 8
SECONDS_PER_HOUR = 3600.0
US = 1e-6  # s

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": US, "µs": US, "ns": 1e-9, "min": 60.0, "h": SECONDS_PER_HOUR}

_RATES = {p + u: f for p, f in _DECIMAL.items() for u in ("bit/s", "bps", "b/s")} | {
    p + u: f * BITS_PER_BYTE for p, f in _DECIMAL.items() for u in ("B/s", "Bps")
}
# as ports of Ethernet are called
_ETHERNET = {f"{p}{u}": _DECIMAL[p] for p in "MGT" for u in ("bE", "E")}
_SIZES = {p + "B": f for p, f in (_DECIMAL | _BINARY).items()}
_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(\S*)\s*")


@dataclass(frozen=True)
class _Dimension:
    """What a quantity may be: its units with their factors to the base unit, the usual ones,
    examples.
    """

    name: str
    units: dict[str, float]
    usual: tuple[str, str, str]
    examples: str


_RATE = _Dimension(
    "rate",
    _RATES | {p: f for p, f in _DECIMAL.items() if p} | _ETHERNET,
    ("Gbit/s", "Mbit/s", "bit/s"),
    "400Gbit/s, 400G, 50GB/s",
)
_SIZE = _Dimension("size", _SIZES, ("MB", "GiB", "B"), "64MB, 1GiB, 1500B")
_TIME = _Dimension("time", _TIMES, ("ms", "s", "us"), "10ms, 25us, 1.5s")
_NAMED = {"rate": _RATES, "size": _SIZES, "time": _TIMES}


def parse_rate(value: str | float, name: str = "rate", *, bare: bool = False) -> float:
    """A rate in bit/s from `400Gbit/s`, `400G`, `50GB/s`, or from a float of bit/s; `bare`: from
    text without a unit too.

    >>> parse_rate("400Gbit/s"), parse_rate("50GB/s")
    (400000000000.0, 400000000000.0)
    """
    return _parse(value, name, _RATE, bare)


def parse_size(value: str | float, name: str = "size", *, bare: bool = False) -> float:
    """A size in bytes from `64MB`, `1GiB`, or from a float of bytes; `bare`: from text without a
    unit too.

    >>> parse_size("64MB"), parse_size("1GiB")
    (64000000.0, 1073741824.0)
    """
    return _parse(value, name, _SIZE, bare)


def parse_time(value: str | float, name: str = "time", *, bare: bool = False) -> float:
    """A time in seconds from `10ms`, `25us`, `2min`, or from a float of seconds; `bare`: from text
    without a unit too.

    >>> parse_time("10ms"), parse_time("2min")
    (0.01, 120.0)
    """
    return _parse(value, name, _TIME, bare)


def _parse(value: str | float, name: str, kind: _Dimension, bare: bool) -> float:
    text = isinstance(value, str)
    match = _QUANTITY.fullmatch(value) if text else None
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or (text and not match):
        raise RFabricError(
            f"{name}: {value!r} is not a quantity; write for example {kind.examples}"
        )
    number, unit = (float(match[1]), match[2]) if match else (float(value), "")
    result = number * kind.units.get(unit, 1.0)
    if not math.isfinite(result) or result < 0:
        raise RFabricError(
            f"{name}: {value!r} must be finite and not negative; write for example {kind.examples}"
        )
    if unit and unit not in kind.units:
        raise RFabricError(
            f"{name}: {_unknown(match[1], unit, value, kind)}; write for example {kind.examples}"
        )
    if text and not unit and number and not bare:
        raise RFabricError(_unitless(name, match[1], kind))
    return result


def _unitless(name: str, number: str, kind: _Dimension) -> str:
    """What is said of a number alone: `delay=10 has no unit; write delay=10ms (or 10s, 10us)`."""
    first, *others = (number + unit for unit in kind.usual)
    return f"{name}={number} has no unit; write {name.split()[-1]}={first} (or {', '.join(others)})"


def _unknown(number: str, unit: str, value: str, kind: _Dimension) -> str:
    """What is said of a unit that `kind` lacks: whose it is, and which may have been meant."""
    if unit.startswith(","):
        return f"{value!r}: write a decimal point, and no commas between thousands"
    other = next((name for name, units in _NAMED.items() if unit in units), "")
    said = (
        f"{value!r} is a {other}, not a {kind.name}"
        if other
        else f"unknown unit {unit!r} in {value!r}"
    )
    near = _near(unit, kind)
    return said + (
        f", did you mean {number}{near}?" if near else "" if other else meant(unit, kind.units)
    )


def _near(unit: str, kind: _Dimension) -> str:
    """The unit that differs in capitals or in a forgotten `/s` alone; empty where none does.

    `Gb` is of bits, `GB` of bytes.
    """
    folded = {known.casefold(): known for known in reversed(kind.units)}
    whole = f"{unit}/s"
    if whole in kind.units:
        return whole
    return folded.get(unit.casefold(), folded.get(whole.casefold(), ""))


def show_rate(bps: float) -> str:
    """A rate (bit/s) for people.

    >>> show_rate(4e11)
    '400 Gbit/s'
    """
    return _show(bps, "bit/s")


def show_size(size: float) -> str:
    """A size (bytes) for people.

    >>> show_size(1.48e9)
    '1.48 GB'
    """
    return _show(size, "B")


def show_thousands(value: float) -> str:
    """Thousands, as of dollars; to a hundredth where they are few.

    >>> show_thousands(700_345.6), show_thousands(2090), show_thousands(0)
    ('700', '2.09', '0')
    """
    few = 0 < abs(value) < 1e4
    return f"{value / 1e3:,.{2 if few else 0}f}"


def show_time(seconds: float) -> str:
    """Seconds for people; minutes are left in seconds, as schedulers print them.

    >>> show_time(0.0103), show_time(203.4)
    ('10.3 ms', '203.4 s')
    """
    if seconds != 0 and abs(seconds) < 1:
        for factor, unit in ((1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
            if abs(seconds) >= factor:
                return f"{seconds / factor:.3g} {unit}"
    return f"{seconds:.1f} s" if abs(seconds) >= 10 else f"{seconds:.3g} s"


def show_between(low: float, high: float) -> str:
    """An interval of seconds to two digits, rounded outwards, as none is known better.

    >>> show_between(118.2, 239.4)
    '110 to 240 s'
    """
    factor, unit = next(
        ((f, u) for f, u in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if high >= f), (1e-9, "ns")
    )
    return f"{_outwards(low / factor, math.floor)} to {_outwards(high / factor, math.ceil)} {unit}"


def _outwards(value: float, way: Callable[[float], int]) -> str:
    """Two digits of a number, rounded this `way`."""
    if value <= 0:
        return "0"
    power = math.floor(math.log10(value)) - 1
    return f"{way(round(value / 10.0**power, 6)) * 10.0**power:.{max(0, -power)}f}"


def spell_rate(bps: float) -> str:
    """The rate (bit/s) as a fabric's spec says it, read back without loss.

    >>> spell_rate(4e11), spell_rate(0)
    ('400Gbit/s', '0')
    """
    return _spell(bps, {f"{p}bit/s": f for p, f in _DECIMAL.items() if p != "K"})


def spell_time(seconds: float) -> str:
    """The time (s) as a fabric's spec says it, read back without loss.

    >>> spell_time(0.01), spell_time(0)
    ('10ms', '0')
    """
    return _spell(seconds, {unit: _TIMES[unit] for unit in ("ns", "us", "ms", "s")})


def _spell(value: float, units: dict[str, float]) -> str:
    """In the largest of the ascending `units` that it is one or more of and that gives back the
    very number.
    """
    for unit, factor in reversed(units.items()):
        text = f"{value / factor:.15g}"
        if value >= factor and float(text) * factor == value:
            return text + unit
    return f"{value!r}{next(u for u, f in units.items() if f == 1)}" if value else "0"


def _show(value: float, unit: str) -> str:
    for prefix in "PTGMk":
        if abs(value) >= (factor := _DECIMAL[prefix]):
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def transfer_seconds(size: Any, rate: Any) -> Any:
    """Seconds to move `size` bytes at `rate` bit/s: numbers, or arrays of them."""
    return size * BITS_PER_BYTE / rate


def bytes_in(rate: Any, seconds: Any) -> Any:
    """Bytes moved at `rate` bit/s in `seconds`: numbers, or arrays of them."""
    return rate * seconds / BITS_PER_BYTE

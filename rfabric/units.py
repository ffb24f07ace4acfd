"""Units at the border: everything inside rfabric is seconds, bytes and bit/s.

    parse_rate("400Gbit/s") -> 4e11      parse_size("1 GiB") -> 1073741824      parse_time("10ms") -> 0.01

Rates are decimal (1 Gbit/s = 1e9 bit/s, as on every port label); sizes know both kB (1e3) and KiB (2**10).
A bare number is taken in the base unit. This module holds the only 8 of the project.
"""

import math
import re

from .errors import RFabricError

BITS_PER_BYTE = 8

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0, "": 1.0}

_RATES = {p + u: f for p, f in _DECIMAL.items() for u in ("bit/s", "bps", "b/s")} | {
    p + u: f * BITS_PER_BYTE for p, f in _DECIMAL.items() for u in ("B/s", "Bps")
}
_SIZES = {p + "B": f for p, f in (_DECIMAL | _BINARY).items()}
_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(\S*)\s*")


def parse_rate(value: str | float, name: str = "rate") -> float:
    """A rate in bit/s from `400Gbit/s`, `400G`, `50GB/s` or a bare number of bit/s."""
    short = {p: f for p, f in _DECIMAL.items() if p}
    return _parse(value, name, _RATES | short | {"": 1.0}, "400Gbit/s, 400G, 50GB/s")


def parse_size(value: str | float, name: str = "size") -> float:
    """A size in bytes from `64MB`, `1GiB` or a bare number of bytes."""
    return _parse(value, name, _SIZES | {"": 1.0}, "64MB, 1GiB, 1500")


def parse_time(value: str | float, name: str = "time") -> float:
    """A time in seconds from `10ms`, `25us`, `2min` or a bare number of seconds."""
    return _parse(value, name, _TIMES, "10ms, 25us, 1.5s")


def _parse(value: str | float, name: str, units: dict[str, float], examples: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise RFabricError(f"{name}: {value!r} is not a quantity; write for example {examples}")
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if isinstance(value, str) and not match:
        raise RFabricError(f"{name}: {value!r} is not a quantity; write for example {examples}")
    number, unit = (float(match[1]), match[2]) if match else (float(value), "")
    if unit not in units:
        raise RFabricError(f"{name}: unknown unit {unit!r} in {value!r}; write for example {examples}")
    result = number * units[unit]
    if not math.isfinite(result) or result < 0:
        raise RFabricError(f"{name}: {value!r} must be finite and not negative")
    return result


def show_rate(bps: float) -> str:
    """`4e11 -> '400 Gbit/s'`"""
    return _show(bps, "bit/s")


def show_size(size: float) -> str:
    """`1.48e9 -> '1.48 GB'`"""
    return _show(size, "B")


def show_time(seconds: float) -> str:
    """`0.0103 -> '10.3 ms'`; minutes are left in seconds, as schedulers print them."""
    if seconds != 0 and abs(seconds) < 1:
        for factor, unit in ((1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
            if abs(seconds) >= factor:
                return f"{seconds / factor:.3g} {unit}"
    return f"{seconds:.1f} s" if abs(seconds) >= 10 else f"{seconds:.3g} s"


def _show(value: float, unit: str) -> str:
    for prefix, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def transfer_seconds(size: float, rate: float) -> float:
    """Seconds to move `size` bytes at `rate` bit/s."""
    return size * BITS_PER_BYTE / rate


def bytes_in(rate: float, seconds: float) -> float:
    """Bytes moved at `rate` bit/s in `seconds`."""
    return rate * seconds / BITS_PER_BYTE

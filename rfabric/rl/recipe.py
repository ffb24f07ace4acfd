"""Recipe files: YAML with safe tags, no key twice, no aliases, every key known; an error names key,
value, limit and way out.

A section of a recipe is a frozen dataclass whose fields are made by `key(parse, default)`: what it
may hold is said once, and checked on construction, from a file and from Python alike.
"""

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import MISSING, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import RFabricError, meant
from ..files import parse_yaml, read_text
from ..units import parse_rate, parse_time


class Section:
    """Base of a recipe's sections: parses each field by its own rule, so that no instance holds a
    bad value.
    """

    section = ""

    def __post_init__(self):
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None or item.default is not None:
                object.__setattr__(
                    self, item.name, item.metadata["parse"](value, f"{self.section}{item.name}")
                )


def key(parse: Callable[[Any, str], Any], default: Any = MISSING) -> Any:
    """A field of a section: how its value is parsed, and what it is when left out (None: derived
    from other keys).
    """
    return field(default=default, metadata={"parse": parse})


def count(low: int = 1, high: int = 10**9) -> Callable[[Any, str], int]:
    """A whole number from `low` to `high`."""
    return partial(_count, low=low, high=high)


def fraction(value: Any, name: str) -> float:
    """A number above 0, 1 at most. RFabricError for another value."""
    number = _number(value, name)
    if not 0 < number <= 1:
        raise RFabricError(
            f"{name}: {value!r} must lie above 0 and be 1 at most; write for example 0.9"
        )
    return number


def number(low: float, high: float) -> Callable[[Any, str], float]:
    """A number from `low` to `high`."""
    return partial(_between, low=low, high=high)


def counts(value: Any, name: str) -> tuple[int, ...]:
    """Whole numbers from 1, as a list or as text with commas. RFabricError for another value."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not parts:
        raise RFabricError(
            f"{name}: {value!r} is no list of whole numbers; write for example 3,4,4,3"
        )
    whole = (int(p) if isinstance(p, str) and _SHORT.fullmatch(p) else p for p in parts)
    return tuple(_count(part, name, 1, 10**9) for part in whole)


def flag(value: Any, name: str) -> bool:
    """true or false. RFabricError for another value."""
    if not isinstance(value, bool):
        raise RFabricError(f"{name}: {value!r} is neither true nor false; write one of them")
    return value


def choice(*options: str, **others: str) -> Callable[[Any, str], str]:
    """One of `options`; `others`: words of other programs, and which of these they mean."""
    return partial(_choice, options=options, others=others)


def rate(value: Any, name: str) -> float:
    """A rate above 0 with its unit, or a float of bit/s. RFabricError for another value."""
    bps = parse_rate(value, name)
    if bps == 0:
        raise RFabricError(f"{name}: {value} must be above 0; write for example 400Gbit/s")
    return bps


def seconds(value: Any, name: str) -> float:
    """A time with its unit, or a float of s; 0 needs none."""
    return parse_time(value, name)


def instance(kind: type) -> Callable[[Any, str], Any]:
    """Something already read: a Model, a Lengths."""
    return partial(_instance, kind=kind)


def what_may_be(parse: Callable[[Any, str], Any]) -> str:
    """What a key of this rule may hold, in words."""
    if isinstance(parse, partial):
        limits = {name: f"{value:,}" for name, value in parse.keywords.items() if name in _LIMITS}
        return _WORDS[parse.func](parse.keywords | limits)
    return _WORDS[parse]({})


def make(cls: type[Section], values: Any) -> Section:
    """The section `cls` from a mapping; unknown and missing keys are errors. RFabricError for other
    values.
    """
    where = cls.section.rstrip(".")
    if not isinstance(values, dict):
        raise RFabricError(
            f"{where}: {values!r} is not a mapping; its keys are {', '.join(known_keys(cls))}"
        )
    refuse_unknown(values, known_keys(cls), cls.section)
    missing = [f.name for f in fields(cls) if f.default is MISSING and f.name not in values]
    if missing:
        raise RFabricError(f"{cls.section}{missing[0]} is missing; the recipe must say it")
    parse = {f.name: f.metadata["parse"] for f in fields(cls)}
    return cls(**{name: _as_written(value, parse[name]) for name, value in values.items()})


def _as_written(value: Any, parse: Callable[[Any, str], Any]) -> Any:
    """A number where a quantity stands is text without a unit; only Python code may leave the unit
    out.
    """
    bare = (
        isinstance(value, (int, float)) and not isinstance(value, bool) and parse in (rate, seconds)
    )
    return f"{value:.15g}" if bare else value


def known_keys(cls: type[Section]) -> list[str]:
    """The keys a section may hold."""
    return [f.name for f in fields(cls)]


def refuse_unknown(values: dict, known: Iterable[str], section: str = "") -> None:
    """RFabricError naming the first key that is not `known`, and the nearest that is."""
    known = list(known)
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"did you mean {section}{near[0]}?" if near else f"there are {', '.join(known)}"
            raise RFabricError(f"unknown key {section}{name}; {hint}")


def read_yaml(path: Path) -> dict:
    """The mapping in a YAML file. RFabricError where it cannot be read or holds none."""
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise RFabricError(f"recipe {path}: cannot be read: {error}") from error
    try:
        values = parse_yaml(text)
    except RFabricError as error:
        raise RFabricError(f"recipe {path}: {error}") from error
    if not isinstance(values, dict):
        raise RFabricError(f"recipe {path}: holds no mapping; copy one of the files in traffic/")
    return values


def override(values: dict, settings: Iterable[str]) -> dict:
    """A copy of a recipe's mapping with each setting `key.path=value` put in. RFabricError for
    what is no such setting.

    >>> override({"steps": 1, "training": {"tp": 4}}, ["training.tp=2", "pipeline=async"])
    {'steps': 1, 'training': {'tp': 2}, 'pipeline': 'async'}
    """
    result = {k: dict(v) if isinstance(v, dict) else v for k, v in values.items()}
    for setting in settings:
        path, equals, text = setting.partition("=")
        *outer, last = path.strip().split(".")
        if not equals or not last or len(outer) > 1:
            raise RFabricError(
                f"{setting!r} is not a setting; write SECTION.KEY=VALUE, such as training.tp=2"
            )
        target = result.setdefault(outer[0], {}) if outer else result
        if not isinstance(target, dict):
            raise RFabricError(
                f"{setting!r}: {outer[0]} is {target!r}, no section; write {outer[0]}=VALUE"
            )
        try:
            target[last] = parse_yaml(text)
        except RFabricError as error:
            raise RFabricError(f"{setting!r} has no value: {error}") from error
    return result


def _count(value: Any, name: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RFabricError(
            f"{name}: {value!r} is not a whole number; write one such as 8, without a unit"
        )
    if not low <= value <= high:
        raise RFabricError(f"{name}: {value} must be {low} or more and {high:,} at most")
    return value


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RFabricError(f"{name}: {value!r} is not a number; write it without a unit")
    return float(value)


def _between(value: Any, name: str, low: float, high: float) -> float:
    amount = _number(value, name)
    if not low <= amount <= high:
        raise RFabricError(f"{name}: {value!r} must be {low:g} or more and {high:g} at most")
    return amount


def _choice(value: Any, name: str, options: tuple[str, ...], others: dict[str, str]) -> str:
    if value not in options:
        other = others.get(str(value))
        hint = f", did you mean {other}?" if other else meant(value, options)
        raise RFabricError(f"{name}: {value!r} is not known{hint}; use one of {', '.join(options)}")
    return value


def _instance(value: Any, name: str, kind: type) -> Any:
    if not isinstance(value, kind):
        raise RFabricError(
            f"{name}: {value!r} is no {kind.__name__}; make it with {kind.__name__}.read"
        )
    return value


_LIMITS = ("low", "high")
_SHORT = re.compile(r" *[0-9]{1,10} *")  # a whole number as text
_WORDS: dict[Callable, Callable[[dict], str]] = {
    _count: lambda said: f"a whole number from {said['low']} to {said['high']}",
    _between: lambda said: f"a number from {said['low']} to {said['high']}",
    _choice: lambda said: f"one of {', '.join(said['options'])}",
    _instance: lambda said: f"the name or the file of {said['kind'].__name__.lower()}",
    fraction: lambda _: "a number above 0, 1 at most",
    counts: lambda _: "whole numbers from 1, as 3,4,4,3",
    flag: lambda _: "true or false",
    rate: lambda _: "a rate with its unit, as 400Gbit/s",
    seconds: lambda _: "a time with its unit, as 30s",
}

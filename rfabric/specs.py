r"""`NAME[,KEY=VALUE...]`, as fabrics, policies and schedulers are named; what values are read as.

    rfabric,pods=2,delay=10ms        demand,granularity=per-phase        mine.py:ring,slot=50ms

`,`, `:` and `+` divide such words. In the path of a file, and in a value, a backslash before one
takes it as it is: `my\,dir/mine.py:ring`.

What a value must be is read from who takes it: a function's signature, a dataclass's fields.
"""

import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from types import MappingProxyType
from typing import Any

from .errors import RFabricError, meant
from .units import parse_rate, parse_size, parse_time

ValueReader = Callable[[str, str], Any]  # (what was written, what errors call it) -> value
SUFFIXES: dict[str, ValueReader] = {"_s": parse_time, "_bps": parse_rate, "_bytes": parse_size}
FLAGS = {"on": True, "yes": True, "true": True, "1": True} | dict.fromkeys(
    ("off", "no", "false", "0"), False
)


@dataclass(frozen=True)
class Spec:
    """A name and the settings behind it, as they were written; `kind` is what errors call it."""

    head: str
    settings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    kind: str = ""

    def values(self, readers: Mapping[str, ValueReader]) -> dict[str, Any]:
        """The settings, read; RFabricError for a key without a reader, or what its reader says."""
        who = f"{self.kind} {self.head}".strip()
        for key, text in self.settings.items():
            if key not in readers:
                raise _no_setting(who, f"{key}={text}", readers)
        return {key: readers[key](text, f"{who}: {key}") for key, text in self.settings.items()}


def split_at(text: str, mark: str, most: int = 0) -> list[str]:
    """The parts between marks that no backslash stands before; 0: every mark divides."""
    return re.split(rf"(?<!\\){re.escape(mark)}", str(text), maxsplit=most)


def escaped(path: str | os.PathLike) -> str:
    r"""The path as such words name it: `,`, `:` and `+` behind a backslash.

    >>> print(escaped("my,dir/mine.py"))
    my\,dir/mine.py
    """
    return re.sub(r"([,:+])", r"\\\1", os.fspath(path))


def unescaped(text: str) -> str:
    """What was meant: without the backslashes before `,`, `:` and `+`."""
    return re.sub(r"\\([,:+])", r"\1", text)


def refuse_bare(text: str, marks: str = ",:") -> None:
    """RFabricError for the path of a file that one of these marks would divide."""
    if any(mark in text for mark in marks) and os.path.isfile(text):
        raise RFabricError(
            f"{text} is a file whose name would be divided; write {escaped(text)!s}, in a shell "
            "between quotes"
        )


def head_of(text: str) -> str:
    """What stands before the settings.

    >>> head_of("rfabric,pods=2")
    'rfabric'
    """
    refuse_bare(str(text))
    return split_at(text, ",")[0].strip()


def read_spec(text: str, kind: str = "", known: Iterable[str] | None = None) -> Spec:
    """The Spec that `text` says. RFabricError for a setting without `=`, or one that stands twice.

    known: the keys that the error names.

    >>> spec = read_spec("rfabric,pods=2,delay=10ms")
    >>> spec.head, spec.settings
    ('rfabric', {'pods': '2', 'delay': '10ms'})
    """
    refuse_bare(str(text))
    head, *parts = [part.strip() for part in split_at(text, ",")]
    settings: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            raise _no_setting(f"{kind} {head}".strip(), part, known)
        if key in settings:
            raise RFabricError(
                (f"{kind} {head}: a setting stands twice, {key}; keep one of each").strip()
            )
        settings[key] = unescaped(value)
    return Spec(head, settings, kind)


def _no_setting(who: str, part: str, known: Iterable[str] | None) -> RFabricError:
    """What is said of a part that is no setting; `known` None: nobody knows yet which there are."""
    key, equals, _ = part.partition("=")
    names = tuple(known or ())
    way_out = f"write KEY=VALUE with one of {', '.join(names)}" if names else "write KEY=VALUE"
    if known is not None and not names:
        way_out = "it has none"
    hint = meant(key, names) if equals else ""
    return RFabricError(f"{who}: {part!r} is not a setting{hint}; {way_out}")


# --- what values are read as -------------------------------------------------------------------


def by_signature(function: Callable) -> dict[str, ValueReader]:
    """Readers of a function's settings: as written where it `takes_text`, else numbers.

    The function itself checks them: it is called from Python and by `mn` as well.
    """
    return {key: _argument(function, key) for key in inspect.signature(function).parameters}


def _argument(function: Callable, key: str) -> ValueReader:
    if takes_text(function, key):
        return as_written
    default = inspect.signature(function).parameters[key].default
    return _flag if isinstance(default, bool) else _any_number


def takes_text(function: Callable, key: str) -> bool:
    """Whether a setting is a quantity or a name: its default is text, or its annotation."""
    setting = inspect.signature(function).parameters[key]
    return isinstance(setting.default, str) or "str" in str(setting.annotation)


def by_fields(made: Any, *without: str) -> dict[str, ValueReader]:
    """Readers of a dataclass by setting: `period` for a field `period_s`, which carries a unit.

    Times, rates and sizes end in _s, _bps, _bytes; others are read by their type, or by the
    `parse` of their metadata.
    """
    every = [f for f in fields(made) if f.init and f.name not in without]
    return {setting_name(f.name): _reader(f) for f in every}


def field_values(made: Any, spec: Spec, *without: str) -> dict[str, Any]:
    """The settings of a spec by field of the dataclass `made`, read by `by_fields`."""
    name = {setting_name(f.name): f.name for f in fields(made)}
    return {name[key]: value for key, value in spec.values(by_fields(made, *without)).items()}


def setting_name(name: str) -> str:
    """What the setting of a field is called: without the unit in the field's name."""
    return next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), name)


def _reader(item: Field) -> ValueReader:
    if "parse" in item.metadata:
        return item.metadata["parse"]
    by_type = {"str": as_written, "int": _whole, "bool": _flag}
    suffix = next((end for end in SUFFIXES if item.name.endswith(end)), "")
    return SUFFIXES.get(suffix) or by_type.get(getattr(item.type, "__name__", item.type), _number)


def as_written(text: str, name: str) -> str:
    """The text itself."""
    return text


def _any_number(text: str, name: str) -> int | float | str:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _number(text: str, name: str) -> float:
    value = _any_number(text, name)
    if isinstance(value, str) or not math.isfinite(value):
        example = f"{name.split()[-1]}=2"
        raise RFabricError(
            f"{name}={text} is not a number; write it without a unit, such as {example}"
        )
    return float(value)


def _whole(text: str, name: str) -> int:
    value = _any_number(text, name)
    if not isinstance(value, int):
        raise RFabricError(f"{name}={text} must be a whole number")
    return value


def _flag(text: str, name: str) -> bool:
    if text.lower() not in FLAGS:
        raise RFabricError(f"{name}={text} must be on or off")
    return FLAGS[text.lower()]

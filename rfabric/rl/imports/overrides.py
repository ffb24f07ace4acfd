"""The words of a command line that set something: Hydra's overrides and plain flags.

overrides key=value, +key=value, ++key=value, key={a:1,b:[2]}
flags     --key value, --key=value, --flag
"""

import re
from collections.abc import Sequence
from typing import Any

from ...errors import RFabricError
from ...files import parse_yaml
from .yaml_files import flattened

_OVERRIDE = re.compile(r"(?:\+{0,2})([A-Za-z_][\w./@-]*)=(.*)", re.DOTALL)


def set_by(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """What the words of a command set, by key, and the other words.

    >>> set_by(["job.py", "+a.b=2", "--n", "3", "--on"])
    ({'a.b': 2, 'n': 3, 'on': True}, ['job.py'])
    """
    values: dict[str, Any] = {}
    others: list[str] = []
    waiting = ""
    for word in words:
        override = None if word.startswith("--") else _OVERRIDE.fullmatch(word)
        if waiting and (not word.startswith("--") or is_number(word)):
            values[waiting], waiting = scalar(word), ""
        elif word.startswith("--") and len(word) > 2:
            key, equals, value = word[2:].partition("=")
            values[key], waiting = (scalar(value), "") if equals else (True, key)
        elif override:
            values |= _overridden(override[1], override[2])
        else:
            others.append(word)
    return values, others


def _overridden(key: str, text: str) -> dict[str, Any]:
    """What `key=text` sets: one value, or those that a mapping {a:1,b:{c:2}} holds."""
    if not re.fullmatch(r"\{.*\}", text, re.DOTALL):
        return {key: scalar(text)}
    spaced = re.sub(r"([{,]\s*[\w./+@-]+\s*):(?=\S)", r"\1: ", text)
    try:
        held = parse_yaml(spaced)
    except RFabricError:
        return {key: text}
    return flattened({key: held}) if isinstance(held, dict) and held else {key: text}


def is_number(word: str) -> bool:
    """Whether a word is a number."""
    return bool(re.fullmatch(r"-?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d{1,3})?", word))


def scalar(text: str) -> Any:
    """What YAML, and so Hydra, makes of a value."""
    try:
        value = parse_yaml(text)
    except RFabricError:
        return text
    return text if value is None or isinstance(value, dict) else value

"""What a YAML file asks of the environment, `${oc.env:NAME,default}`: told by whoever reads the
job, never by this machine.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

MOST_TEXT = 1000  # characters of a variable
_DECODED = re.compile(r"\$\{oc\.decode:\s*([^{}$]*)\}")
_QUOTED = re.compile(r"^(['\"])(.*)\1\s*$")
_ENVIRONMENT = re.compile(r"\$\{(?:oc\.)?env:\s*([A-Za-z_]\w*)\s*(?:,\s*([^{}]*))?\}")


def with_environment(value: Any, environment: Mapping[str, str]) -> Any:
    """Values in which the environment's variables stand as they were told, never as they are on
    this machine; what was not told keeps its name.
    """
    if isinstance(value, dict):
        return {key: with_environment(each, environment) for key, each in value.items()}
    if isinstance(value, list):
        return [with_environment(each, environment) for each in value]
    if not isinstance(value, str):
        return value
    while (told := _ENVIRONMENT.sub(partial(_set, environment), value)) != value:
        value = told  # a default may name another: ${oc.env:A,${oc.env:B,8}}
    return _DECODED.sub(r"\1", value)


def defaults_taken(values: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[str, ...]:
    """One note of all variables that a file leaves to an environment which does not tell them."""
    texts = (_without_told(str(value), environment) for value in values.values())
    asked = (found for text in texts for found in _ENVIRONMENT.finditer(text))
    defaults = {name: _QUOTED.sub(r"\2", text) for name, text in (f.groups("") for f in asked)}
    said = [f"{name}={text}" for name, text in sorted(defaults.items()) if name not in environment]
    said = [each for each in said if not each.endswith("=")]
    if not said:
        return ()
    return (f"not set in the environment, so by the file's own default: {', '.join(said)}",)


def _without_told(text: str, environment: Mapping[str, str]) -> str:
    """A text without the variables that are told, whose defaults, with all in them, stand for
    nothing.
    """
    kept, at = [], 0
    for found in _DEFAULTED.finditer(text):
        if found[1] in environment and found.start() >= at:
            kept.append(text[at : found.start()])
            at = _closed(text, found.end())
    return "".join([*kept, text[at:]])


_DEFAULTED = re.compile(r"\$\{(?:oc\.)?env:\s*([A-Za-z_]\w*)\s*,")


def _closed(text: str, begin: int) -> int:
    """Where the brace ends that is open at `begin`."""
    still = 1
    for brace in re.compile(r"[{}]").finditer(text, begin):
        still += 1 if brace[0] == "{" else -1
        if not still:
            return brace.end()
    return len(text)


def _set(environment: Mapping[str, str], asked: re.Match) -> str:
    """A variable's text, which is no name of anything; its default, or else its name."""
    text = environment.get(asked[1], _QUOTED.sub(r"\2", asked[2]) if asked[2] else asked[2])
    known = text is not None and len(text) <= MOST_TEXT and "${" not in text
    return text if known else f"${asked[1]}"

"""What a job's file sets, flattened to `dotted.key: value`, and a record of which keys were read.

    YAML      nested mappings; `defaults:` names parents beside the file; ${key} and ${a.b} stand
              for other keys
    overrides Hydra's key=value, +key=value, ~key on a command line
    flags     --key value, --key=value, --flag

Shell scripts are read, never run: line continuations, comments, quotes, NAME=value, NAME=( ... ),
$NAME, ${NAME}, ${NAME:-value}, "${NAME[@]}" and $(( whole-number arithmetic )). What stays unknown
keeps its $ and is reported by whoever needs it.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import RFabricError
from ...files import read_text
from ..recipe import parse_yaml

MOST_BYTES = 4_000_000  # no job's file is larger; what is, is something else
DEPTH, MOST_KEYS = 40, 100_000
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?:\[[@*]\])?(?::?-([^{}]*))?\}|(\w+))")
_INTERPOLATION = re.compile(r"\$\{([\w.]+)\}")
_ARITHMETIC = re.compile(r"\$\(\(([^()]*(?:\([^()]*\)[^()]*)*)\)\)")
_ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)=")
_OVERRIDE = re.compile(r"(?:\+{0,2})([A-Za-z_][\w./@-]*)=(.*)", re.DOTALL)


@dataclass
class Settings:
    """The values of one file by dotted key; `words` are the other words of a command line, `used`
    the keys asked for.
    """

    file: str
    values: dict[str, Any]
    words: tuple[str, ...] = ()
    used: set[str] = field(default_factory=set)

    def find(self, *keys: str) -> tuple[str, Any] | None:
        """The first of `keys` that is set, with its value; all of them count as read."""
        self.used.update(keys)
        return next(
            ((key, self.values[key]) for key in keys if self.values.get(key) is not None), None
        )

    def value(self, *keys: str, default: Any = None) -> Any:
        """The value of the first of `keys` that is set."""
        found = self.find(*keys)
        return found[1] if found else default

    def number(self, *keys: str) -> tuple[str, int | float] | None:
        """The first of `keys` that is set, as a number above or at 0; RFabricError for anything
        else.
        """
        found = self.find(*keys)
        if found is None:
            return None
        key, value = found
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
            raise RFabricError(f"{self.file}: {key} is {shown(value)}, not a number; write it out")
        return key, int(value) if value == int(value) else value

    def flag(self, *keys: str) -> bool:
        """Whether the first of `keys` that is set says yes."""
        value = self.value(*keys)
        return str(value).lower() in ("true", "1", "yes", "on", "")

    def left(self) -> dict[str, Any]:
        """What nobody asked for."""
        return {key: value for key, value in self.values.items() if key not in self.used}


def shown(value: Any) -> str:
    """A value as an error can show it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_settings(path: str | Path) -> Settings:
    """The settings of a YAML file, or of the command lines of a shell script or text file."""
    path = Path(path)
    if path.suffix in (".yaml", ".yml"):
        return Settings(str(path), _resolved(_flat(_yaml(path))))
    return _of_script(path, _text(path))


def _text(path: Path) -> str:
    try:
        text = read_text(path, MOST_BYTES)
    except (OSError, ValueError) as error:
        raise RFabricError(f"{path}: cannot be read: {error}") from error
    if len(text) > MOST_BYTES:
        raise RFabricError(
            f"{path}: is larger than {MOST_BYTES:,} bytes; give the job's YAML "
            "file or launch script"
        )
    if not text.strip():
        raise RFabricError(f"{path}: is empty; give the job's YAML file or launch script")
    return text


# --- YAML -----------------------------------------------------------------------------------------


def _yaml(path: Path, seen: tuple[Path, ...] = ()) -> dict:
    """The mapping of a YAML file over those of its parents."""
    if path.resolve() in seen:
        raise RFabricError(f"{path}: its defaults lead back to itself")
    text = _text(path)
    try:
        found = parse_yaml(text, aliases=True)
    except RFabricError as error:
        raise RFabricError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise RFabricError(f"{path}: holds no mapping; give the job's YAML file")
    merged: dict = {}
    for parent in _parents(path, found.pop("defaults", None)):
        merged = _over(merged, _yaml(parent, (*seen, path.resolve())))
    return _over(merged, found)


def _parents(path: Path, defaults: Any) -> list[Path]:
    """The files beside `path` that `defaults` names, as far as they are there."""
    names = defaults if isinstance(defaults, list) else [defaults]
    texts = [
        name if str(name).endswith((".yaml", ".yml")) else f"{name}.yaml"
        for name in names
        if isinstance(name, str)
    ]
    return [
        path.parent / text
        for text in texts
        if text != "_self_.yaml" and (path.parent / text).is_file()
    ]


def _over(below: dict, above: dict) -> dict:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _over(merged[key], value) if both else value
    return merged


def _flat(values: dict, before: str = "", depth: int = 0) -> dict[str, Any]:
    if depth > DEPTH:
        raise RFabricError(f"{before}: nested deeper than {DEPTH} levels; that is no job's file")
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{before}{key}"
        found |= (
            _flat(value, f"{name}.", depth + 1)
            if isinstance(value, dict) and value
            else {name: value}
        )
        if len(found) > MOST_KEYS:  # aliases of aliases
            raise RFabricError(
                f"{before}: holds more than {MOST_KEYS:,} keys; that is no job's file"
            )
    return found


def _resolved(values: dict[str, Any]) -> dict[str, Any]:
    """OmegaConf's ${key} replaced where the key stands in the file."""
    return {key: _interpolated(values, value) for key, value in values.items()}


def _interpolated(values: dict[str, Any], value: Any, depth: int = 0) -> Any:
    if not isinstance(value, str) or "${" not in value or depth > DEPTH:
        return value
    whole = _INTERPOLATION.fullmatch(value)
    if whole:
        return _interpolated(values, values[whole[1]], depth + 1) if whole[1] in values else value
    text = _bounded(_INTERPOLATION.sub(lambda m: str(values.get(m[1], m[0])), value))
    return value if text == value else _interpolated(values, text, depth + 1)


def _bounded(text: str) -> str:
    """`text`, where it is no longer than a whole file may be: a few names of names stand for
    gigabytes.
    """
    if len(text) > MOST_BYTES:
        raise RFabricError(
            f"{text[:20]!r}...: its variables grow beyond {MOST_BYTES:,} characters; that is "
            "no job's file"
        )
    return text


# --- shell ----------------------------------------------------------------------------------------


def _of_script(path: Path, text: str) -> Settings:
    """Overrides and flags of every command of a script, in its variables' values."""
    variables: dict[str, list[str]] = {}
    values: dict[str, Any] = {}
    words: list[str] = []
    for line in _commands(path, text):
        line = line[1:] if line[:1] == ["export"] else line
        while line and "\0" in line[0]:
            name, _, rest = line.pop(0).partition("\0")
            variables[name] = _expanded(
                shlex.split(rest) if rest.startswith(" ") else [rest], variables
            )
        _take(_expanded(line, variables), values, words)
    if not values and not words:
        raise RFabricError(f"{path}: sets nothing; give the job's YAML file or launch script")
    return Settings(str(path), values, tuple(words))


def _commands(path: Path, text: str) -> Iterator[list[str]]:
    """The words of each command; NAME=value becomes NAME, a zero byte, value, and an array's value
    begins with a blank.
    """
    text = text.replace("\0", "").replace("\\\r\n", " ").replace("\\\n", " ")
    pending, opened = "", 0
    for number, raw in enumerate(text.split("\n"), 1):
        if not pending:
            opened = number
        pending += raw + "\n"
        array = re.match(
            r"\s*(?:export\s+)?([A-Za-z_]\w*)\+?=\((.*)\)\s*(?:#.*)?$", pending, re.DOTALL
        )
        if array:
            inside = _split(array[2])
            if inside is not None:
                yield [f"{array[1]}\0 {shlex.join(inside)}"]
                pending = ""
            continue
        if re.match(r"\s*(?:export\s+)?[A-Za-z_]\w*\+?=\((?!\()", pending):
            continue  # an array that goes on
        words = _split(pending)
        if words is not None:
            yield [
                re.sub(_ASSIGNMENT, r"\1" + "\0", word, count=1)
                if _is_set(word, i, words)
                else word
                for i, word in enumerate(words)
            ]
            pending = ""
    if pending.strip():
        raise RFabricError(f"{path}: line {opened}: a quote or bracket is opened and not closed")


def _is_set(word: str, index: int, words: list[str]) -> bool:
    """Whether a word sets a shell variable: it stands before any command, or after export."""
    return bool(_ASSIGNMENT.match(word)) and all(
        _ASSIGNMENT.match(w) or w == "export" for w in words[:index]
    )


def _split(text: str) -> list[str] | None:
    """The words of a line; None where a quote is still open. $(( )) stays one word."""
    held: list[str] = []

    def hold(match: re.Match) -> str:
        held.append(match[0])
        return f"\1{len(held) - 1}\2"

    try:
        words = shlex.split(_ARITHMETIC.sub(hold, text), comments=True)
    except ValueError:
        return None
    return [
        re.sub("\1(\\d+)\2", lambda m: held[int(m[1])] if int(m[1]) < len(held) else "", word)
        for word in words
    ]


def _expanded(words: list[str], variables: dict[str, list[str]]) -> list[str]:
    found: list[str] = []
    for word in words:
        whole = _VARIABLE.fullmatch(word)
        name = whole and (whole[1] or whole[3])
        if name in variables:  # an array spreads into words
            found += variables[name]
        else:
            found.append(_substituted(word, variables))
    return found


def _substituted(word: str, variables: dict[str, list[str]]) -> str:
    def one(match: re.Match) -> str:
        name = match[1] or match[3]
        if name in variables:
            return " ".join(variables[name])
        return match[0] if match[2] is None else match[2]

    word = _bounded(_VARIABLE.sub(one, word))
    return _ARITHMETIC.sub(lambda m: _worked_out(m, variables), word)


def _worked_out(match: re.Match, variables: dict[str, list[str]]) -> str:
    """$(( )) of whole numbers and known variables; anything else stays as it is."""
    text = re.sub(r"\b[A-Za-z_]\w*\b", lambda m: " ".join(variables.get(m[0], [m[0]])), match[1])
    try:
        return str(_arithmetic(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return match[0]


def _arithmetic(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 10**12:
        return node.value
    operations = {
        ast.Add: int.__add__,
        ast.Sub: int.__sub__,
        ast.Mult: int.__mul__,
        ast.Div: int.__floordiv__,
        ast.Mod: int.__mod__,
    }
    if isinstance(node, ast.BinOp) and type(node.op) in operations:
        return operations[type(node.op)](_arithmetic(node.left), _arithmetic(node.right))
    raise ValueError("not whole-number arithmetic")


def _take(words: list[str], values: dict[str, Any], others: list[str]) -> None:
    """Sort the words of a command into overrides, flags and others."""
    waiting = ""
    for word in words:
        override = None if word.startswith("--") else _OVERRIDE.fullmatch(word)
        if waiting and (not word.startswith("--") or _is_number(word)):
            values[waiting], waiting = _scalar(word), ""
        elif word.startswith("--") and len(word) > 2:
            key, equals, value = word[2:].partition("=")
            values[key], waiting = (_scalar(value), "") if equals else (True, key)
        elif override:
            values[override[1]] = _scalar(override[2])
        else:
            others.append(word)


def _is_number(word: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(\.\d+)?", word))


def _scalar(text: str) -> Any:
    """What YAML, and so Hydra, makes of a value."""
    try:
        value = parse_yaml(text)
    except RFabricError:
        return text
    return text if value is None or isinstance(value, dict) else value

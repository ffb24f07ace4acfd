"""rfabric.toml: what options are where the command line leaves them out.

    seed = 7                        of every verb that has --seed
    out = "/data/runs"
    [simulate]                      of one verb
    topo = ["fat-tree", "rfabric"]
    in-flight = "drain"

The nearest rfabric.toml, or pyproject.toml with a [tool.rfabric], counts: in the working folder,
else in the nearest folder above it. What is typed beats it, lists included. A file of another user
is passed over, since --topo and --policy may name a FILE.py, which is run. RFABRIC_DEFAULTS=none
reads none.
"""

import argparse
import logging
import os
import tomllib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import RFabricError, meant
from .parsing import Parser

OWN, PROJECT = "rfabric.toml", "pyproject.toml"
FLAGS = argparse._StoreTrueAction, argparse._StoreConstAction
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FileDefaults:
    """What a file says of options, checked: `every` of all verbs that have them, `verbs` of one."""

    file: Path | None = None
    every: Mapping[str, Any] = ()
    verbs: Mapping[str, Mapping[str, Any]] = ()

    def of(self, verb: Parser) -> dict[str, Any]:
        """option -> value for this verb."""
        if self.file is None:
            return {}
        there = options(verb)
        shared = {name: value for name, value in self.every.items() if name in there}
        return shared | dict(self.verbs.get(verb.get_default("verb_name"), {}))


def options(verb: Parser) -> dict[str, argparse.Action]:
    """The options of a verb by their long names, without dashes; not --help."""
    return {
        word.removeprefix("--"): action
        for action in verb._actions
        for word in action.option_strings
        if word.startswith("--") and not isinstance(action, argparse._HelpAction)
    }


def read(folder: str, verbs: Mapping[str, Parser]) -> FileDefaults:
    """The defaults that hold in `folder`. RFabricError names file and key of what cannot be."""
    file, values = _nearest(folder)
    if file is None:
        return FileDefaults()
    tables = {key: value for key, value in values.items() if isinstance(value, dict)}
    every = {key: value for key, value in values.items() if key not in tables}
    try:
        for key in every:
            _check_shared(key, verbs)
        for key, table in tables.items():
            _check_table(key, table, verbs)
        for name, verb in verbs.items():
            _check_rivals(name, verb, FileDefaults(file, every, tables).of(verb))
    except RFabricError as error:
        raise RFabricError(f"{file}: {error}") from error
    return FileDefaults(file, every, tables)


def parse(
    words: Sequence[str], verb: Parser, top: Parser, given: FileDefaults
) -> tuple[argparse.Namespace, list[str]]:
    """The namespace of these words, and the words that the file put in for what they leave out."""
    said, known = given.of(verb), options(verb)
    dests = {known[name].dest for name in said}
    for action in (a for a in known.values() if a.dest in dests):
        action.default, action.required = argparse.SUPPRESS, False
    groups = [g for g in verb._mutually_exclusive_groups
              if any(a.dest in dests for a in g._group_actions)]  # fmt: skip
    for group in groups:
        group.required = False
    typed = top.parse_args(words)
    for group in groups:
        _beat(group._group_actions, typed, dests)
    added: list[str] = []
    for name, value in said.items():
        if not hasattr(typed, known[name].dest):
            added += _words(name, value, known[name], given.file)
    read_in = _parsed(verb, [known[name] for name in said], added, given.file)
    for name in said:
        if not hasattr(typed, known[name].dest):
            setattr(typed, known[name].dest, getattr(read_in, known[name].dest, _off(known[name])))
    return typed, added


def _beat(rivals: Sequence[argparse.Action], typed: argparse.Namespace, said: Set[str]) -> None:
    """Of options that exclude each other, the typed one leaves nothing to what the file says."""
    if any(getattr(typed, a.dest, a.default) != a.default for a in rivals):
        for action in rivals:
            if action.dest in said and not hasattr(typed, action.dest):
                setattr(typed, action.dest, _off(action))


def _nearest(folder: str) -> tuple[Path | None, dict]:
    said = os.environ.get("RFABRIC_DEFAULTS", "")
    if said == "none":
        return None, {}
    if said:
        raise RFabricError(
            f"RFABRIC_DEFAULTS: {said!r} must be none, for no file at all, or not be set"
        )
    try:
        here = Path(folder).absolute()
    except FileNotFoundError:  # the working folder has gone
        return None, {}
    for place in (here, *here.parents):
        for name in (OWN, PROJECT):
            values = _table(place / name)
            if values is not None:
                return place / name, values
    return None, {}


def _table(file: Path) -> dict | None:
    """What a file says of rfabric; None where it is not there or says nothing of it."""
    if not os.path.isfile(file):
        return None
    ours = _ours(file)
    try:
        text = file.read_text(encoding="utf-8")
        if file.name == PROJECT and "rfabric" not in text:
            return None
        values = tomllib.loads(text)
    except (OSError, ValueError) as error:
        if not ours:
            return None
        raise RFabricError(f"{file}: cannot be read: {error}") from error
    if file.name == PROJECT:
        tool = values.get("tool")
        values = tool.get("rfabric") if isinstance(tool, dict) else None
    if values is not None and not ours:
        log.warning("%s is not read: it belongs to another user", file)
        return None
    if values is not None and not isinstance(values, dict):
        raise RFabricError(f"{file}: tool.rfabric is no table; write [tool.rfabric]")
    return values


def _ours(file: Path) -> bool:
    """Whether it is of who calls, also by sudo, or of root."""
    caller = os.environ.get("SUDO_UID", "")
    return str(file.stat().st_uid) in (str(os.geteuid()), "0", caller)


def _check_rivals(name: str, verb: Parser, said: Mapping[str, Any]) -> None:
    """Of options that exclude each other a file may give one."""
    known = options(verb)
    for group in verb._mutually_exclusive_groups:
        given = [key for key, value in said.items() if value and known[key] in group._group_actions]
        if len(given) > 1:
            raise RFabricError(f"{' and '.join(given)} exclude each other in {name}: keep one")


def _check_shared(key: str, verbs: Mapping[str, Parser]) -> None:
    if key in verbs:
        raise RFabricError(f"{key} is a verb: its options stand below [{key}], a line each")
    having = {name: options(verb)[key] for name, verb in verbs.items() if key in options(verb)}
    if not having:
        every = {name for verb in verbs.values() for name in options(verb)}
        hint = meant(key, [*every, *verbs])
        raise RFabricError(f"unknown key {key}{hint}; keys are long options without --, and verbs")
    if len({(action.metavar, action.type) for action in having.values()}) > 1:
        raise RFabricError(
            f"{key} is not the same in all verbs; say it of one, as [{next(iter(having))}], of "
            f"{', '.join(having)}"
        )


def _check_table(key: str, table: Mapping, verbs: Mapping[str, Parser]) -> None:
    if key not in verbs:
        there = ", ".join(verbs)
        raise RFabricError(f"unknown table [{key}]{meant(key, verbs)}; there are {there}")
    there = options(verbs[key])
    for name in table:
        if name not in there:
            near = meant(name, there)
            raise RFabricError(
                f"unknown key {name} in [{key}]{near}; there are {', '.join(sorted(there))}"
            )


def _words(name: str, value: Any, action: argparse.Action, file: Path | None) -> list[str]:
    """The words that one would type."""
    where = f"{file}: {name}"
    if isinstance(action, FLAGS):
        if not isinstance(value, bool):
            raise RFabricError(f"{where}: {value!r} is neither true nor false; write one of them")
        return [f"--{name}"] * value
    if isinstance(action, argparse._CountAction):
        if not isinstance(value, int) or not 0 <= value <= 2:
            raise RFabricError(f"{where}: {value!r} must be 0, 1 or 2")
        return [f"--{name}"] * value
    many = isinstance(action, argparse._AppendAction) or action.nargs == "*"
    if isinstance(value, list) and not many:
        raise RFabricError(f"{where}: {value!r}: this verb takes one, not a list")
    texts = [_text(one, where) for one in (value if isinstance(value, list) else [value])]
    return [f"--{name}", *texts] if action.nargs == "*" else [f"--{name}={one}" for one in texts]


def _text(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise RFabricError(f"{where}: {value!r} must be text or a number, as after the option")
    return str(value)


def _parsed(
    verb: Parser, actions: Sequence[argparse.Action], words: Sequence[str], file: Path | None
) -> argparse.Namespace:
    """What words of the file mean, by the verb's own rules."""
    reader = Parser(prog=verb.prog, add_help=False)
    for action in {id(action): action for action in actions}.values():
        reader._add_action(action)
    try:
        return reader.parse_known_args(words)[0]
    except RFabricError as error:
        raise RFabricError(f"{file}: {error}") from error


def _off(action: argparse.Action) -> Any:
    """What an option is that the file says is off, or of which it lists nothing."""
    if isinstance(action, argparse._AppendAction):
        return []
    return {argparse._StoreTrueAction: False, argparse._CountAction: 0}.get(type(action), "")

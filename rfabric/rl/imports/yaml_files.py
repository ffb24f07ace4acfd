"""YAML of a job as OmegaConf and Hydra read it, flattened to `dotted.key: value`.

    defaults:        parents named beside the file, in a list or alone; `_self_` says where the
                     file itself comes; `group: name` is the file group/name.yaml under that key;
                     a section with `_override_: true` stands in place of theirs
    ${a.b} ${.c}     other keys, absolute and relative; ${oc.env:NAME,default}: the environment
    ${mul:a,b}       arithmetic that frameworks register: add sub mul div max min int_div, and eval

Values come out as OmegaConf resolves them; one that depends on what is not there keeps its `${`.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import dirname, normpath
from pathlib import Path
from typing import Any

from ...errors import RFabricError
from ...files import parse_yaml
from ...files import read_text as read_plain
from .arithmetic import whole_number
from .yaml_environment import defaults_taken, with_environment

MOST_BYTES = 4_000_000  # no job's file is larger; what is, is something else
DEPTH, MOST_KEYS = 40, 100_000
_ALONE = "_override_"  # NeMo-RL: nothing of the parents' section stays
_REFERENCE = re.compile(r"\$\{(\.*)([\w.]+)\}")


def read_yaml(
    path: Path,
    environment: Mapping[str, str],
    overrides: Mapping[str, Any] | None = None,
    removed: Sequence[str] = (),
    folder: Path | None = None,
    search: Sequence[str] = (),
    start: Path | None = None,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The values of a YAML file over those of its parents, and notes on parents that are not there;
    `overrides` by dotted key stand above all, and names of them mean their values; `removed` keys
    are taken away before; `folder`: where the file would stand, and its parents with it; `search`:
    folders in which Hydra looks for parents too; `start`: where the job is started from.

    RFabricError where it cannot be read, holds no mapping, or inherits from itself.
    """
    notes: list[str] = []
    over = dict(overrides or {})
    near = tuple(each.resolve() for each in (folder or path.parent, start) if each)
    choices = _GroupChoices({key: v for key, v in over.items() if isinstance(v, str)}, near)
    choices.look_in([*search, *_listed(over.get(_SEARCH))])
    nested = _merged(path, notes, choices, folder=folder)
    for key in removed:
        _take_away(nested, key.split("."))
    for group in choices.taken.keys() & over.keys() & nested.keys():
        if isinstance(nested[group], dict):  # the name of a file is no value of what the file sets
            del over[group]
    nested = _over(nested, _nested(over))
    values = _flat(nested, str(path), environment)
    return values, (*notes, *defaults_taken(flattened(nested), environment))


def resolved(
    values: Mapping[str, Any], file: str, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Values by dotted key, those that name others with what these are."""
    asking = [key for key, value in values.items() if isinstance(value, str) and "${" in value]
    told = _flat(_nested(values), file, environment) if asking else {}
    return {**values, **{key: told[key] for key in asking if key in told}}


def _nested(values: Mapping[str, Any]) -> dict:
    nested: dict = {}
    for key, value in values.items():
        for part in reversed(key.split(".")):
            value = {part: value}
        nested = _over(nested, value)
    return nested


def _flat(nested: dict, file: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Nested values by dotted key, as OmegaConf resolves them."""
    _check_size(nested, file)
    told = with_environment(nested, environment)
    _check_size(told, file)
    return flattened(_resolved(nested, told))


def read_text(path: Path) -> str:
    """The text of a job's file; RFabricError where it is empty, too large or no text."""
    try:
        text = read_plain(path, MOST_BYTES)
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


# --- parents --------------------------------------------------------------------------------------


@dataclass
class _GroupChoices:
    """What is `asked` of groups, by overrides and the command line, which stand above every file;
    what files have `taken` of them, either by the group as it is written there; `search`: folders
    of configs beside that of the first file, the first of `near`; the other is the script's.
    """

    asked: dict[str, str]
    near: tuple[Path, ...]
    taken: dict[str, str] = field(default_factory=dict)
    search: list[str] = field(default_factory=list)

    def look_in(self, folders: Sequence[str]) -> None:
        """Add folders as Hydra's search path names them: plain, file://FOLDER, pkg://a.b.c."""
        for name in map(str, folders):
            kind, sign, rest = name.partition("://")
            self.search.append(rest.replace(".", "/") if kind == "pkg" else rest if sign else name)

    def found(self, name: str) -> Path | None:
        """The file `name` beside the first, or in the first of the folders that has it: two or more
        of a folder's last words count beside the first file and above; one, which many have, beside
        it alone; a folder of one word beside the script too.
        """
        above = (self.near[0], *self.near[0].parents[:_ABOVE])
        files = [self.near[0] / name]
        for folder in self.search:
            parts = [part for part in folder.split("/") if part not in ("", ".", "..")]
            for first in range(len(parts)):
                places = above if len(parts) - first > 1 else self.near[: 1 if first else None]
                files += [one.joinpath(*parts[first:], name) for one in places]
        return next((file for file in files if file.is_file()), None)

    def named(self, text: str) -> str:
        """A file's name without the `${group}` in it."""
        return _CHOICE.sub(lambda m: self.asked.get(m[1]) or self.taken.get(m[1], m[0]), text)


_SEARCH, _ABOVE = "hydra.searchpath", 4  # folders above the first, as a repository has them
_CHOICE = re.compile(r"\$\{(\w+)\}")


def _merged(
    path: Path,
    notes: list[str],
    choices: _GroupChoices,
    seen: tuple[Path, ...] = (),
    folder: Path | None = None,
    group: str = "",
) -> dict:
    """The mapping of a YAML file over those of its parents, in Hydra's order; `group`: the folder
    below that of configs in which it stands.
    """
    if path.resolve() in seen:
        raise RFabricError(f"{path}: its defaults lead back to itself")
    own = _loaded(path)
    if not seen:
        choices.look_in(_listed(flattened(own).get(_SEARCH)))
    merged: dict = {}
    below = True
    for parent, package in _parents(own.pop("defaults", None), choices):
        if parent == "_self_":
            merged, below = _over(merged, own), False
            continue
        name = parent if parent.endswith((".yaml", ".yml")) else f"{parent}.yaml"
        # a folder that a script makes is not there: `..` leads out of it by name alone
        file = Path(normpath(folder / name)) if folder else path.parent / name
        within = normpath(f"{group}/{name}").lstrip("/")
        found = file if file.is_file() else choices.found(within)
        if found is not None:
            notes += [f"defaults: {parent} is read from {found}"] * (found != file)
            lead = (*seen, path.resolve())
            inherited = _merged(found, notes, choices, lead, group=dirname(within))
            package = _own_package(found) if package is None else package
            package = _key_of(package, parent)
            merged = _over(merged, _nested({package: inherited}) if package else inherited)
        else:
            notes.append(f"defaults: {parent} is not beside {path.name}; left out")
    return _over(merged, own) if below else merged


def _listed(value: Any) -> list:
    return value if isinstance(value, list) else []


def _own_package(file: Path) -> str:
    """Where a file of a group says that it goes, in Hydra's `# @package NAME`; else under its
    group's name.
    """
    said = _PACKAGE.match(read_text(file))
    return said[1] if said else "_group_"


def _key_of(package: str, name: str) -> str:
    """The key that one of Hydra's packages means for a file `name`, its group's folder before it.

    >>> _key_of("loss._group_", "algo/ppo"), _key_of("_global_", "algo/ppo")
    ('loss.algo', '')
    """
    group, _, last = name.rpartition("/")
    meant = {"_group_": group.replace("/", "."), "_name_": last, "_global_": "", "_here_": ""}
    return ".".join(filter(None, (meant.get(part, part) for part in package.split("."))))


_PACKAGE = re.compile(r"(?:\s*#(?! *@package).*\n)*\s*# *@package +([\w.]+)")


def _loaded(path: Path) -> dict:
    text = read_text(path)
    try:
        loaded = parse_yaml(text, aliases=True)
    except RFabricError as error:
        raise RFabricError(f"{path}: {error}") from error
    if not isinstance(loaded, dict):
        raise RFabricError(f"{path}: holds no mapping; give the job's YAML file")
    return loaded


def _parents(defaults: Any, choices: _GroupChoices) -> Iterator[tuple[str, str | None]]:
    """Each parent that `defaults` names, and the key it goes under: nothing, or None where the file
    says. An `override` of a group that a parent names is a choice there.
    """
    items = defaults if isinstance(defaults, list) else [defaults]
    groups = [pair for item in items if isinstance(item, dict) for pair in item.items()]
    for group, name in groups:
        if str(group).startswith("override ") and isinstance(name, str):
            choices.asked.setdefault(str(group).removeprefix("override ").strip("/ "), name)
    for item in items:
        if isinstance(item, str):
            name, _, package = item.partition("@")
            yield name, package
        for group, name in item.items() if isinstance(item, dict) else ():
            yield from _chosen(str(group), name, choices)


def _chosen(group: str, name: Any, choices: _GroupChoices) -> Iterator[tuple[str, str | None]]:
    """The file of a group that is taken, and the key it goes under; none of one taken before."""
    again = group.startswith("override ")
    group = group.removeprefix("override ").removeprefix("optional ").strip("/ ")
    if not isinstance(name, str) or (again and group in choices.taken):
        return
    name = choices.named(choices.asked.get(group, name))
    choices.taken.setdefault(group, name)
    folder, sign, package = group.partition("@")
    yield f"{folder}/{name}", package if sign else None


def _take_away(nested: dict, path: list[str]) -> None:
    for part in path[:-1]:
        nested = nested.get(part) if isinstance(nested.get(part), dict) else {}
    nested.pop(path[-1], None)


def _over(below: dict, above: dict) -> dict:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        if both and value.get(_ALONE) is True:
            both, value = False, {k: v for k, v in value.items() if k != _ALONE}
        merged[key] = _over(merged[key], value) if both else value
    return merged


# --- values ---------------------------------------------------------------------------------------


def flattened(values: Mapping, before: str = "", depth: int = 0) -> dict[str, Any]:
    """Nested values by dotted key; RFabricError where they are more than any job's."""
    if depth > DEPTH:
        raise RFabricError(f"{before}: nested deeper than {DEPTH} levels; that is no job's file")
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{before}{key}"
        flat |= (
            flattened(value, f"{name}.", depth + 1)
            if isinstance(value, dict) and value
            else {name: value}
        )
        if len(flat) > MOST_KEYS:  # aliases of aliases
            raise RFabricError(
                f"{before}: holds more than {MOST_KEYS:,} keys; that is no job's file"
            )
    return flat


def _check_size(nested: dict, file: str) -> None:
    """RFabricError where few names of names stand for gigabytes, before anything is resolved."""
    flat = flattened(nested)
    sizes: dict[str, int] = {}

    def size(key: str, depth: int = 0) -> int:
        value = flat.get(key)
        if not isinstance(value, str) or depth > DEPTH:
            return 20
        if key not in sizes:
            sizes[key] = 0  # a name that leads back to itself is OmegaConf's to refuse
            names = [_absolute(key, *match) for match in _REFERENCE.findall(value)]
            sizes[key] = len(value) + sum(size(name, depth + 1) for name in names)
        return sizes[key]

    for key in flat:
        if size(key) > MOST_BYTES:
            raise RFabricError(
                f"{file}: {key}: its names stand for more than {MOST_BYTES:,} characters; that "
                "is no job's file"
            )


def _absolute(key: str, dots: str, name: str) -> str:
    """The key that `${..name}` means where it stands at `key`."""
    parents = key.split(".")[: -len(dots)] if dots else []
    return ".".join([*parents, name])


def _resolved(nested: dict, told: dict) -> dict:
    """What OmegaConf makes of each value, its environment `told`; those that do not resolve stay
    as they are written.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    _register_resolvers()
    try:
        config = OmegaConf.create(told)
    except (OmegaConfBaseException, ValueError, RecursionError):
        return nested

    def walk(node: Any, raw: Any) -> Any:
        if not isinstance(raw, dict):
            return OmegaConf.to_container(node) if OmegaConf.is_config(node) else node
        return {key: step(node, key, value) for key, value in raw.items()}

    def step(node: Any, key: Any, raw: Any) -> Any:
        try:
            value = node[key]
            if OmegaConf.is_config(value) and not isinstance(raw, dict):
                return OmegaConf.to_container(value, resolve=True)
            return walk(value, raw)
        except (OmegaConfBaseException, ValueError, TypeError, ArithmeticError, RecursionError):
            return raw

    return walk(config, nested)


# What frameworks register with OmegaConf (NeMo-RL's mul, ROLL's and others' names for the rest).
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": lambda a, b: a // b if isinstance(a, int) and a % b == 0 else a / b,
    "int_div": operator.floordiv,
    "floor": math.floor,
    "ceil": math.ceil,
    "max": max,
    "min": min,
}


def _register_resolvers() -> None:
    from omegaconf import OmegaConf

    register = getattr(OmegaConf, "register_resolver", OmegaConf.register_new_resolver)
    resolvers = {name: _on_numbers(function) for name, function in _ARITHMETIC.items()}
    for name, function in (resolvers | {"eval": _sum}).items():
        if not OmegaConf.has_resolver(name):
            register(name, function)


def _sum(text: Any) -> int:
    """`${eval:'8 * 2'}`, where it is whole-number arithmetic."""
    value = whole_number(str(text).replace("//", "/"))
    if value is None:
        raise ValueError(f"no arithmetic: {text}")
    return value


def _on_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    def resolver(*values: Any) -> Any:
        values = tuple(int(v) if str(v).isdecimal() else v for v in values)  # of the environment
        if not all(isinstance(value, (int, float)) for value in values):
            raise ValueError(f"not numbers: {values}")
        return function(*values)

    return resolver

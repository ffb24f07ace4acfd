"""Where a number of the model comes from, read where it stands, so that it is written once.

    compute.gpus.HBM_SHARE            a constant: the comment above it, or behind it
    compute.sync_time.Software.pack   a field: its entry in the docstring of its class
    compute.training.bubble_share     a formula: the first words of its docstring
    catalog.H100.nic_bps              a cell of compute/catalog.csv: the source of its row
    recipe.efficiency.hbm             a key of the recipe: its entry in the docstring of its section

`ONE|OTHER` is ONE where the recipe says it, else OTHER.
"""

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from ..compute.gpus import GPUS
from ..errors import RFabricError
from .workload import Workload

PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True)
class Source:
    """A number behind a term: its name as above, its value (a word of the recipe; None: a formula,
    or several numbers), what it rests on and the words that stand beside it.

    basis: `recipe` or its `default`; `catalog`; `formula`; of constants `fitted`, `assumed` or
    `stated` by what `text` cites.
    """

    name: str
    value: float | str | None
    basis: str
    text: str


def said(w: Workload, name: str) -> str:
    """ONE of `ONE|OTHER` where the recipe says it, else OTHER; any other name as it is."""
    one, _, other = name.partition("|")
    return other if other and not _in_recipe(w, one) else one


def source_of(w: Workload, name: str) -> Source:
    """The source behind a name; RFabricError where nothing stands beside the number."""
    room, _, rest = name.partition(".")
    if room == "recipe":
        value, basis, text = _of_recipe(w, rest)
    elif room == "catalog":
        value, basis, text = _of_catalog(rest)
    else:
        value, basis, text = _of_code(name)
    if not text:
        raise RFabricError(f"source of {name}: nothing stands beside it; say where it is from")
    plain = value if isinstance(value, int | float | str) else None
    return Source(name, plain, basis, " ".join(text.split()))


def _in_recipe(w: Workload, name: str) -> bool:
    _, section, key = name.split(".")
    return (w.recipe.get(section) or {}).get(key) is not None


def _of_recipe(w: Workload, rest: str) -> tuple[Any, str, str]:
    section, key = rest.split(".")
    mine = getattr(w, section)
    basis = "recipe" if _in_recipe(w, f"recipe.{rest}") else "default"
    return getattr(mine, key), basis, _entry(type(mine), key) or "as the job says it"


def _of_catalog(rest: str) -> tuple[Any, str, str]:
    gpu, _, column = rest.rpartition(".")
    return getattr(GPUS[gpu], column), "catalog", GPUS[gpu].source


def _of_code(name: str) -> tuple[Any, str, str]:
    """What stands beside a constant, a field or a formula of the library."""
    room, file, first, *more = name.split(".")
    module = import_module(f"{PACKAGE}.{room}.{file}")
    value = getattr(module, first)
    for key in more:
        owner, value = value, getattr(value, key)
    if inspect.isclass(value):
        text = inspect.getdoc(value) or ""
        return None, _basis(text), text
    if callable(value) or isinstance(value, property):
        return None, "formula", (inspect.getdoc(value) or "").partition("\n\n")[0]
    text = _entry(owner, more[-1]) if more else _comments(module).get(first, "")
    return value, _basis(text), text


def _basis(text: str) -> str:
    """What a constant rests on, by the words beside it."""
    for word in ("fitted", "assumed"):
        if re.search(rf"\b{word}\b", text, re.IGNORECASE):
            return word
    return "stated"


def _entry(owner: type, key: str) -> str:
    """What the docstring of a class says of one of its fields: `key: words; other: words`."""
    keys = r"\w+(?:, \w+)*: "
    begins = rf"(?:^|[;,.]\s|\n)(?:\w+, (?:and )?)*{key}(?:, \w+)*: "
    found = re.search(rf"{begins}(.*?)(?=[;.]\s{keys}|\Z)", inspect.getdoc(owner) or "", re.S)
    return found[1] if found else ""


@cache
def _comments(module: ModuleType) -> dict[str, str]:
    """The words beside each constant of a module: the comment above it, and behind its name."""
    source = inspect.getsource(module)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    notes = {t.start[0]: t for t in tokens if t.type == tokenize.COMMENT}
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            text = _beside(notes, node.lineno)
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (each for target in targets for each in ast.walk(target))
            found |= {each.id: text for each in names if isinstance(each, ast.Name)}
    return found


def _beside(notes: Mapping[int, tokenize.TokenInfo], line: int) -> str:
    """The comment lines right above a line, and the comment at its end."""
    first = line
    while first - 1 in notes and not notes[first - 1].line.partition("#")[0].strip():
        first -= 1
    lines = [notes[i].string for i in range(first, line + 1) if i in notes]
    return " ".join(text.lstrip("# ") for text in lines)

"""The fabrics that come with rfabric, and anyone's own: files with `fabrics = {name: builder}`.

Ours lie in `topologies/`, where a user copies them from; they are opened as a stranger's file is.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path

from ..errors import RFabricError, meant
from ..folders import data_dir
from ..plugins import KINDS, checked, entry, file_of, is_file, name_in, running, table_of
from ..specs import escaped
from .model import Fabric

Builder = Callable[..., Fabric]
NAMES = (
    "fat-tree", "leaf-spine", "rail-optimized", "rfabric", "topoopt", "mixnet", "opus", "rotor",
    "two-clusters", "ideal",
)  # fmt: skip


class _Builders(Mapping):
    """The builders of NAMES, each read from its file when it is asked for."""

    def __getitem__(self, name: str) -> Builder:
        if name not in NAMES:
            raise KeyError(name)
        return table_of(_file(name), "fabrics")[name]

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


BUILDERS: Mapping[str, Builder] = _Builders()


def fabric_names() -> list[str]:
    """The names `--topo` knows."""
    files = data_dir("topologies").glob("*.py")
    return sorted(name for file in files for name in table_of(file, "fabrics"))


def load_topology(file: Path) -> dict[str, Builder]:
    """The `fabrics` table of a topology file; mistakes of builders are told by file and line."""
    return {name: _checked(file, name, build) for name, build in table_of(file, "fabrics").items()}


def builder_of(head: str) -> Builder:
    """The builder that NAME or FILE.py[:NAME] names. RFabricError where there is none."""
    if is_file(head):
        file, name = Path(file_of(head)), name_in(head)
        return _checked(file, name or next(iter(table_of(file, "fabrics"))), entry(head, "fabrics"))
    likely = [_file(head)] if _file(head).is_file() else []
    for file in [*likely, *sorted(data_dir("topologies").glob("*.py"))]:
        if head in (table := load_topology(file)):
            return table[head]
    names = fabric_names()
    raise RFabricError(
        f"no fabric named {head!r}{meant(head, names)}; there are {', '.join(names)}, or give "
        "a FILE (`rfabric list formats`)"
    )


def _file(name: str) -> Path:
    """Where a fabric of ours is expected; any file of the folder may hold it."""
    return data_dir("topologies") / f"{name.replace('-', '_')}.py"


def _checked(file: Path, name: str, build: Builder) -> Builder:
    """The builder of a file, whose mistakes are told by file and line."""
    with running(file):
        inspect.signature(build)  # some of Python's own have none

    @wraps(build)
    def build_checked(*args, **settings) -> Fabric:
        with running(file, build):
            made = build(*args, **settings)
        return checked(f"{escaped(file)}:{name}", made, Fabric, KINDS["fabrics"].example, build)

    return build_checked

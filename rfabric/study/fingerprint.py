"""What decides the figures of a run beside its words: this rfabric, its core, its libraries, and
the files that words name.

Equal fingerprints on two machines: the same words give the same figures there.
"""

import hashlib
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path

from .. import __version__, native
from ..compute.named import config_file
from ..fabric.formats import names_topology
from ..folders import data_dir
from ..plugins import either_side, file_of, is_file
from ..specs import head_of, split_at, unescaped

DATA = ("topologies", "controller", "traffic")
CODE = frozenset({".py", ".csv", ".json", ".yaml", ".cpp"})  # what a wheel brings, pages left out
LIBRARIES = ("numpy", "scipy", "networkx", "rustworkx")


@dataclass(frozen=True)
class Code:
    """The code that a process runs: `files` is the SHA-256 of rfabric's own and of the shipped
    folders, `core` that of what the compiled core was built from ('': it has none).
    """

    rfabric: str
    files: str
    core: str
    python: str
    libraries: str

    @property
    def digest(self) -> str:
        """One name for all of it, 16 hex digits."""
        return sha256(repr(self).encode())[:16]

    def differs(self, other: "Code") -> str:
        """What the other has otherwise, in words; '' where nothing."""
        mine, its = asdict(self), asdict(other)
        return "; ".join(
            f"{name} {_short(its[name])} instead of {_short(mine[name])}"
            for name in mine
            if mine[name] != its[name]
        )


def _short(value: str) -> str:
    return (value[:12] if len(value) == 64 else value) or "missing"


@cache
def code_here() -> Code:
    """The code of this process; RFabricError where its core is not built from it."""
    python = ".".join(platform.python_version_tuple()[:2])
    libraries = ", ".join(f"{name} {metadata.version(name)}" for name in LIBRARIES)
    return Code(__version__, _digest_of(_own_files()), native.built_from(), python, libraries)


def _own_files() -> Iterator[tuple[str, Path]]:
    """Each file, and its name wherever rfabric is installed."""
    package = Path(__file__).parents[1]
    for base in (package, *map(data_dir, DATA)):
        for path in sorted(base.rglob("*")):
            if path.suffix in CODE and "__pycache__" not in path.parts:
                yield f"{base.name}/{path.relative_to(base)}", path


def _digest_of(files: Iterator[tuple[str, Path]]) -> str:
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(f"{name}\0{sha256(path.read_bytes())}\n".encode())
    return digest.hexdigest()


def sha256(data: bytes) -> str:
    """In hex."""
    return hashlib.sha256(data).hexdigest()


def digest_of(path: str | Path) -> str:
    """SHA-256 of a file, in hex; read again only where its size or time says that it changed."""
    path = Path(path).resolve()
    stat = path.stat()
    return _read_digest(str(path), stat.st_mtime_ns, stat.st_size)


@lru_cache(4096)
def _read_digest(path: str, _time: int, _size: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_of(words: str) -> list[Path]:
    """The files that a fabric, a policy or a routing names: a topology, a plug-in with the Python
    beside it, a setting that is a file, or the folder of a model.
    """
    files: list[Path] = []
    for spec in _either_side(words):
        head, *settings = split_at(spec, ",")
        files += _behind(head.strip())
        values = (unescaped(text.partition("=")[2].strip()) for text in settings)
        settled = (config_file(Path(value)) for value in values if value)
        files += filter(Path.is_file, settled)
    return list(dict.fromkeys(files))


def _either_side(words: str) -> list[str]:
    """SCHEDULER+CIRCUITS apart; a `+` in the name of a topology divides nothing."""
    return [words] if names_topology(unescaped(head_of(words))) else either_side(words)


def _behind(head: str) -> list[Path]:
    if is_file(head):
        return sorted(Path(file_of(head)).parent.glob("*.py"))
    path = Path(unescaped(head))
    if not names_topology(str(path)):
        return []
    return sorted(filter(Path.is_file, path.rglob("*"))) if path.is_dir() else [path]

"""Plug-ins by file: `FILE.py[:NAME]` stands where a name of ours does, as with Mininet's --custom.

    --topo mine.py:torus,rows=4      fabrics = {"torus": torus}      a builder: topologies/torus.py
    --policy mine.py:ring            policies = {"ring": Ring}       controller/ring_policy.py
    --policy mine.py:longest         schedulers = {"longest": ...}   traffic/longest_first.py
    --routing mine.py:one-path       routings = {"one-path": ...}    controller/one_path.py

Without a NAME the first of the table is meant. A `,`, `:` or `+` in the path stands behind a
backslash (`specs.escaped`). The file is Python and is run: name only files that
you trust. What it raises is told by file and line.
"""

import hashlib
import importlib
import inspect
import os
import reprlib
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

from .errors import RFabricError, meant
from .specs import escaped, head_of, split_at, unescaped

LISTED = "RFABRIC_PLUGINS"  # files that a controller may run when a request names them


_short = reprlib.Repr()
_short.maxother = 60


class PluginKind(NamedTuple):
    """One table of a file: what an entry is called, what it is, and the file to copy."""

    word: str
    entry: str
    example: str


KINDS = MappingProxyType({
    "fabrics": PluginKind("fabric", "builder", "one of the files in topologies/"),
    "policies": PluginKind("policy", "class", "controller/ring_policy.py"),
    "schedulers": PluginKind("scheduler", "function", "traffic/longest_first.py"),
    "routings": PluginKind("routing", "function", "controller/one_path.py"),
})  # fmt: skip


def is_file(head: str) -> bool:
    """Whether a name is `FILE.py[:NAME]`."""
    return file_of(head).endswith(".py")


def file_of(head: str) -> str:
    """The FILE.py of `FILE.py[:NAME]`."""
    return unescaped(split_at(head, ":", 1)[0])


def name_in(head: str) -> str:
    """The NAME of `FILE.py[:NAME]`; '' where it has none."""
    return "".join(split_at(head, ":", 1)[1:])


def entry(head: str, kind: str) -> Callable:
    """What `FILE.py[:NAME]` names in the table `kind` of its file; RFabricError: it has none."""
    path, name = file_of(head), name_in(head)
    table = table_of(Path(path), kind)
    if name and name not in table:
        has = ", ".join(table)
        raise RFabricError(
            f"{path} has no {KINDS[kind].word} {name!r}{meant(name, table)}; it has {has}"
        )
    return table[name] if name else next(iter(table.values()))


def offered(head: str, kind: str) -> dict[str, Callable]:
    """The table `kind` of the file of `FILE.py[:NAME]`; empty where it has none."""
    return getattr(_opened(Path(file_of(head)), kind), kind, {})


def table_of(file: Path, kind: str) -> dict[str, Callable]:
    """The table `kind` of a file: fabrics, policies, schedulers, routings."""
    table = getattr(_opened(file, kind), kind, None)
    if not isinstance(table, dict) or not table or not all(map(callable, table.values())):
        _, made, example = KINDS[kind]
        raise RFabricError(f"{file} offers no {kind} = {{name: {made}}}; copy {example}")
    return table


def _opened(file: Path, kind: str) -> ModuleType:
    if not file.is_file():
        raise RFabricError(f"no {KINDS[kind].word} file {file}")
    with running(file):
        return _run(file.resolve(), file.read_bytes())


@lru_cache(maxsize=64)
def _run(file: Path, source: bytes) -> ModuleType:
    """The file as a module, run once for each content; without a .pyc beside it.

    What another file imported from beside itself goes first: this one may have a helper of the
    same name.
    """
    _let_go(_known.keys() - {file.parent})
    _known.setdefault(file.parent, frozenset(sys.modules))
    module = ModuleType(f"{_MADE}{file.stem}_{hashlib.sha256(source).hexdigest()[:8]}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses look there for their annotations
    before = list(sys.path)
    try:
        exec(compile(source, str(file), "exec"), module.__dict__)
    finally:  # a relative folder could hide our own modules: it goes
        sys.path[:] = [p for p in sys.path if p in before or os.path.isabs(p)]
    return module


_MADE = "rfabric_plugin_"  # how the modules of plug-ins are called
_known: dict[Path, frozenset[str]] = {}  # by folder: what was imported before a plug-in of it ran


def forget() -> None:
    """Run each file anew when it is asked for next, with what it imports from beside itself: a
    process may see many contents of one name.
    """
    _run.cache_clear()
    _let_go(_known)
    importlib.invalidate_caches()


def _let_go(folders: Iterable[Path]) -> None:
    """Let whoever imports them next read the modules that plug-ins found beside themselves."""
    for folder in list(folders):
        before = _known.pop(folder)
        for name in sys.modules.keys() - before:
            where = getattr(sys.modules[name], "__file__", None)
            if where and Path(where).resolve().parent == folder and not name.startswith(_MADE):
                del sys.modules[name]


@contextmanager
def running(file: str | Path, asked: Any = None) -> Iterator[None]:
    """Turns what a plug-in raises, or its exit, into an RFabricError that names its line, else that
    where what is `asked` begins; what it prints is talk, and goes to stderr.
    """
    try:
        with _talk():
            yield
    except RFabricError:
        raise
    except (Exception, SystemExit) as error:
        line = _line(Path(file), error)
        where = f"{file}, line {line}" if line else place_of(file, asked)
        said = error.msg if isinstance(error, SyntaxError) else error
        raise RFabricError(f"{where}: {type(error).__name__}: {said}; correct the file") from error


def _talk() -> AbstractContextManager:
    """stdout is stderr; elsewhere than in the main thread it stays, as all threads share it."""
    main = threading.current_thread() is threading.main_thread()
    return redirect_stdout(sys.stderr) if main else nullcontext()


def _line(file: Path, error: BaseException) -> int | None:
    """The last line of the file that the error came through."""
    if isinstance(error, SyntaxError):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((f.lineno for f in reversed(frames) if f.filename == str(file.resolve())), None)


def place_of(file: str | Path, made: Any) -> str:
    """`FILE.py, line N` where this function, method or class begins; `FILE.py` where it stands in
    no such line.
    """
    try:
        made = inspect.unwrap(made)
        if Path(inspect.getsourcefile(made)).resolve() == Path(file).resolve():
            return f"{file}, line {inspect.getsourcelines(made)[1]}"
    except (OSError, TypeError):  # Python's own, or an object
        pass
    return str(file)


def called(head: str, kind: str, wanted: type, *args: Any, **settings: Any) -> Any:
    """What the plug-in `head` of this kind returns for these arguments, when it is a `wanted`."""
    with running(file_of(head), asked := entry(head, kind)):
        made = asked(*args, **settings)
    return checked(head, made, wanted, KINDS[kind].example, asked)


def checked(head: str, made: Any, wanted: type, example: str, by: Any) -> Any:
    """`made` `by` a function or method of a plug-in, when it is a `wanted`; else an RFabricError
    that says so, and where.
    """
    if not isinstance(made, wanted):
        said = f"{name_in(head) or 'it'} returned {_short.repr(made)}, no {wanted.__name__}"
        where = place_of(file_of(head), by)
        raise RFabricError(f"{where}: {said.replace(chr(10), ' ')}; see {example}")
    return made


# --- who may name them, and what came of them --------------------------------------------------


def refuse_unlisted(spec: str) -> None:
    """RFabricError where a request names a file that its controller was not started with."""
    if is_file(head := head_of(spec)):
        words = split_at(os.environ.get(LISTED, ""), os.pathsep)
        listed = [unescaped(file) for file in words if file]
        if Path(file_of(head)).resolve() not in [Path(file).resolve() for file in listed]:
            raise RFabricError(
                f"{head}: a controller runs only files it was started with; start it with "
                f"{LISTED}={escaped(file_of(head))}, the files separated by {os.pathsep!r}"
            )


def listing(*specs: str) -> dict[str, str]:
    """The environment that lets a controller run the files of these specs."""
    files = dict.fromkeys(escaped(os.path.abspath(file)) for file in _files(specs))
    return {LISTED: os.pathsep.join(files)} if files else {}


def digests(*specs: str) -> dict[str, str]:
    """`sha256:...` of every file that these specs name and that is there, by its path."""
    paths = [path for path in map(Path, _files(specs)) if path.is_file()]
    return {str(p): f"sha256:{hashlib.sha256(p.read_bytes()).hexdigest()}" for p in paths}


def _files(specs: tuple[str, ...]) -> Iterator[str]:
    heads = [head_of(part) for spec in specs for part in either_side(spec)]
    return (file_of(head) for head in heads if is_file(head))


def either_side(spec: str) -> list[str]:
    """SCHEDULER+CIRCUITS apart; a + in the path of a fabric's file divides nothing."""
    file = file_of(head_of(spec))
    return [spec] if "+" in file and os.path.isfile(file) else split_at(spec, "+")

"""From `--topo rfabric,pods=4` to a Fabric, as Mininet's `--topo tree,depth=2` does.

The name is one of `topologies/*.py`, or a path to a file of the user's own: Python that offers `fabrics = {name: builder}`,
a fabric as JSON, or the cables of a network as CSV (`imported`).
"""

import importlib.util
import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path

from ..errors import RFabricError, meant
from ..folders import data_dir
from ..units import spell_rate
from .builders.sizes import RATE, SHAPE, SMALLEST, Room, shape_for
from .imported import import_fabric
from .model import Fabric


@dataclass(frozen=True)
class Needs:
    """What a job asks of a fabric that leaves it open: GPUs, those of one server, bit/s of a network card; 0: it says nothing."""

    gpus: int = 0
    server: int = 0
    nic: float = 0.0

    def fabric(self, spec: str) -> Fabric:
        """The fabric `spec`, as this job needs it."""
        return parse_fabric(spec, self.gpus, server=self.server, nic=self.nic)


def parse_fabric(spec: str, hosts: int = 0, least: int = SMALLEST, *, server: int = 0, nic: float = 0.0) -> Fabric:
    """The fabric that `spec` names: `NAME[,KEY=VALUE...]`, `FILE.py[:NAME][,KEY=VALUE...]`, `FILE.csv[,...]` or a `.json` file.

    Rates and times carry their unit, `delay=10ms`: what a builder takes as text (`takes_text`) reaches it as it was written.
    Where the spec says nothing of size, the fabric is given room for `hosts` GPUs, and for `least` anyhow, by its builder's own
    `room`; 0: its own default. Fabrics whose racks are servers get servers of `server` GPUs; 0: eight.
    Where it says nothing of `rate` and the usual one is the builder's default, network cards have `nic` (bit/s); 0: the usual.
    """
    head, *settings = [part.strip() for part in str(spec).split(",")]
    if head.endswith(".json"):
        return _from_file(head)
    builder = partial(import_fabric, head) if head.endswith(".csv") else _builder(head)
    values = _settings(spec, settings, builder, head)
    rate = inspect.signature(builder).parameters.get("rate")
    if nic and rate and rate.default == RATE and "rate" not in values:
        values["rate"] = spell_rate(nic)
    room = _room(builder)
    if hosts and room and not {*_sizes(room), "k"} & set(values):
        values |= room(hosts, least, values | ({"gpus": server} if server else {}))
    return builder(**values).named(str(spec))


def size_keys(spec: str) -> tuple[str, ...]:
    """The settings that say how large the fabric of `spec` is; none where it cannot be sized."""
    head = str(spec).split(",")[0].strip()
    room = None if head.endswith((".json", ".csv")) else _room(_builder(head))
    return _sizes(room) if room else ()


def _sizes(room: Room) -> tuple[str, ...]:
    """The settings that a room decides."""
    return tuple(room(SMALLEST, SMALLEST))


def with_setting(spec: str, key: str, value: str) -> str:
    """`spec` with `key=value`, where its builder knows the key and the spec leaves it open."""
    head, *settings = [part.strip() for part in str(spec).split(",")]
    known = () if head.endswith(".json") else _known(import_fabric if head.endswith(".csv") else _builder(head))
    if key not in known or any(s.partition("=")[0] == key for s in settings):
        return str(spec)
    return f"{spec},{key}={value}"


def _settings(spec: str, settings: list[str], builder: Callable[..., Fabric], head: str) -> dict:
    pairs = [_setting(s, builder, head) for s in settings]
    if len(dict(pairs)) < len(pairs):
        raise RFabricError(f"{spec}: a setting stands twice; keep one of each")
    return dict(pairs)


def _known(builder: Callable[..., Fabric]) -> tuple[str, ...]:
    """The settings of a builder."""
    return tuple(inspect.signature(builder).parameters)


def takes_text(builder: Callable[..., Fabric], key: str) -> bool:
    """Whether a setting is a quantity or a name, by its default (`"10ms"`) or annotation (`str | float`); others are numbers."""
    setting = inspect.signature(builder).parameters[key]
    return isinstance(setting.default, str) or "str" in str(setting.annotation)


def _room(builder: Callable[..., Fabric]) -> Room | None:
    """How the builder is sized: its own way, or by `shape_for` where it takes pods, tors and gpus."""
    return getattr(builder, "room", shape_for if set(SHAPE) <= set(_known(builder)) else None)


def fabric_names() -> list[str]:
    """The names `--topo` knows."""
    return sorted(name for file in data_dir("topologies").glob("*.py") for name in load_topology(file))


def load_topology(file: Path) -> dict[str, Callable[..., Fabric]]:
    """The `fabrics` table of a topology file."""
    module_spec = importlib.util.spec_from_file_location(f"rfabric_topology_{file.stem}", file)
    module = importlib.util.module_from_spec(module_spec)
    if not file.is_file():
        raise RFabricError(f"no topology file {file}")
    with _running(file):
        module_spec.loader.exec_module(module)
    table = getattr(module, "fabrics", None)
    if not isinstance(table, dict) or not table or not all(map(callable, table.values())):
        raise RFabricError(f"{file} offers no fabrics = {{name: builder}}; copy one of the files in topologies/")
    return {name: _checked(file, name, build) for name, build in table.items()}


def _checked(file: Path, name: str, build: Callable[..., Fabric]) -> Callable[..., Fabric]:
    """The builder of a topology file, whose mistakes are told by file and line."""

    @wraps(build)
    def checked(*args, **settings) -> Fabric:
        with _running(file):
            made = build(*args, **settings)
        if not isinstance(made, Fabric):
            raise RFabricError(f"{file}: {name} returned {made!r}, no Fabric; see the files in topologies/")
        return made

    return checked


@contextmanager
def _running(file: Path) -> Iterator[None]:
    """Turns what a topology file raises, or its wish to exit, into an RFabricError that names its line."""
    try:
        yield
    except RFabricError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename) == file.resolve()]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        where = f"{file}, line {line}" if line else str(file)
        said = error.msg if isinstance(error, SyntaxError) else error
        raise RFabricError(f"{where}: {type(error).__name__}: {said}; mend the file") from error


def _builder(head: str) -> Callable[..., Fabric]:
    path, _, name = head.partition(":")
    if path.endswith(".py"):
        table = load_topology(Path(path))
        if name and name not in table:
            raise RFabricError(f"{path} has no fabric {name!r}{meant(name, table)}; it has {', '.join(table)}")
        return table[name] if name else next(iter(table.values()))
    for file in sorted(data_dir("topologies").glob("*.py")):
        table = load_topology(file)
        if head in table:
            return table[head]
    names = fabric_names()
    raise RFabricError(
        f"no fabric named {head!r}{meant(head, names)}; there are {', '.join(names)}, or give a FILE.py or FILE.csv"
    )


def _setting(text: str, builder: Callable[..., Fabric], head: str) -> tuple[str, int | float | str]:
    key, equals, value = text.partition("=")
    known = _known(builder)
    if not equals or key not in known:
        hint = meant(key, known) if equals else ""
        raise RFabricError(f"{head}: {text!r} is not a setting{hint}; write KEY=VALUE with one of {', '.join(known)}")
    for number in () if takes_text(builder, key) else (int, float):
        try:
            return key, number(value)
        except ValueError:
            continue
    return key, value


def _from_file(path: str) -> Fabric:
    try:
        return Fabric.from_json(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        said = str(error).removeprefix("fabric file: ")
        raise RFabricError(f"fabric file {path}: {said}") from error

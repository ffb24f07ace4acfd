"""From `--topo rfabric,pods=4` to a Fabric, as Mininet's `--topo tree,depth=2` does.

The name is one of `topologies/*.py`, or a path to a file of the user's own; the file offers `fabrics = {name: builder}`.
"""

import importlib.util
import inspect
import sysconfig
from collections.abc import Callable
from pathlib import Path

from ..errors import RFabricError
from .model import Fabric

SHAPE = ("pods", "tors", "gpus")
SMALLEST, MOST_RACKS, MOST_GPUS = 64, 512, 128


def data_dir(name: str) -> Path:
    """The folder `topologies`, `controller` or `traffic`: beside the package in a checkout, in share/rfabric when installed."""
    for base in (Path(__file__).parents[2], Path(sysconfig.get_path("data")) / "share" / "rfabric"):
        if (base / name).is_dir():
            return base / name
    raise RFabricError(f"the folder {name}/ was not installed; run from a checkout or reinstall rfabric")


def parse_fabric(spec: str, hosts: int = 0) -> Fabric:
    """Build the fabric that `spec` names: `NAME[,KEY=VALUE...]` or `FILE.py[:NAME][,KEY=VALUE...]`, or a `.json` file.

    Where the spec says nothing of size, the fabric is given room for `hosts` GPUs (see `shape_for`); 0: its own default.
    """
    head, *settings = [part.strip() for part in str(spec).split(",")]
    if head.endswith(".json"):
        return _from_file(head)
    builder = _builder(head)
    known = inspect.signature(builder).parameters
    pairs = [_setting(s, known, head) for s in settings]
    values = dict(pairs)
    if len(values) < len(pairs):
        raise RFabricError(f"{spec}: a setting stands twice; keep one of each")
    if hosts and set(SHAPE) <= set(known) and not {*SHAPE, "k"} & set(values):
        values |= shape_for(hosts)
    return builder(**values).named(str(spec))


def shape_for(hosts: int) -> dict[str, int]:
    """`pods`, `tors`, `gpus` for so many GPUs: 4 x 4 x 4 up to 64; beyond, racks of a server or more, at most 512 racks.

    A rack of 128 GPUs needs a ToR of 256 ports (102.4 Tbit/s switches have them at 400 Gbit/s), 512 racks an OCS of 512.
    """
    if hosts <= SMALLEST:
        return dict(zip(SHAPE, (4, 4, 4), strict=True))
    gpus = 8
    if hosts > MOST_RACKS * MOST_GPUS:
        raise RFabricError(
            f"the traffic names GPU h{hosts}; {MOST_RACKS * MOST_GPUS:,} at most get a fabric by themselves: "
            f"state its size, {', '.join(f'{key}=N' for key in SHAPE)}"
        )
    while hosts > gpus * MOST_RACKS:
        gpus *= 2
    racks = -(-hosts // gpus)
    pods = 2 ** (racks.bit_length() // 2)
    return dict(zip(SHAPE, (pods, -(-racks // pods), gpus), strict=True))


def fabric_names() -> list[str]:
    """The names `--topo` knows."""
    return sorted(name for file in data_dir("topologies").glob("*.py") for name in load_topology(file))


def load_topology(file: Path) -> dict[str, Callable[..., Fabric]]:
    """The `fabrics` table of a topology file."""
    module_spec = importlib.util.spec_from_file_location(f"rfabric_topology_{file.stem}", file)
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except FileNotFoundError as error:
        raise RFabricError(f"no topology file {file}") from error
    table = getattr(module, "fabrics", None)
    if not isinstance(table, dict) or not table:
        raise RFabricError(f"{file} offers no fabrics = {{name: builder}}; copy one of the files in topologies/")
    return table


def _builder(head: str) -> Callable[..., Fabric]:
    path, _, name = head.partition(":")
    if path.endswith(".py"):
        table = load_topology(Path(path))
        if name and name not in table:
            raise RFabricError(f"{path} has no fabric {name!r}; it has {', '.join(table)}")
        return table[name] if name else next(iter(table.values()))
    for file in sorted(data_dir("topologies").glob("*.py")):
        table = load_topology(file)
        if head in table:
            return table[head]
    raise RFabricError(f"no fabric named {head!r}; there are {', '.join(fabric_names())}, or give a FILE.py")


def _setting(text: str, known: dict, head: str) -> tuple[str, int | float | str]:
    key, equals, value = text.partition("=")
    if not equals or key not in known:
        raise RFabricError(f"{head}: {text!r} is not a setting; write KEY=VALUE with one of {', '.join(known)}")
    for number in (int, float):
        try:
            return key, number(value)
        except ValueError:
            continue
    return key, value


def _from_file(path: str) -> Fabric:
    try:
        return Fabric.from_json(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise error if isinstance(error, RFabricError) else RFabricError(f"fabric file {path}: {error}") from error

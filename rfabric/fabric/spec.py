"""From `--topo rfabric,pods=4` to a Fabric, as Mininet's `--topo tree,depth=2` does.

The name is one of `topologies/*.py`, or a path to a file of the user's own: Python that offers
`fabrics = {name: builder}`, a fabric as JSON, or a network in one of the `formats`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..errors import RFabricError
from ..files import kind_of, read_text
from ..specs import by_signature, head_of, read_spec, split_at, unescaped
from ..units import spell_rate
from .builders.sizes import RATE, SHAPE, SMALLEST, Room, shape_for
from .formats import is_topology, names_topology, read_network
from .model import Fabric
from .shipped import Builder, builder_of


@dataclass(frozen=True)
class Needs:
    """What a job asks of a fabric that leaves it open: GPUs, those of one server, bit/s of a
    network card; 0: it says nothing.
    """

    gpus: int = 0
    server: int = 0
    nic: float = 0.0

    def fabric(self, spec: str) -> Fabric:
        """The fabric `spec`, as this job needs it."""
        return parse_fabric(spec, self.gpus, server=self.server, nic=self.nic)


def parse_fabric(
    spec: str, hosts: int = 0, least: int = SMALLEST, *, server: int = 0, nic: float = 0.0
) -> Fabric:
    """The fabric that `spec` names: `NAME[,KEY=VALUE...]`, `FILE.py[:NAME][,KEY=VALUE...]`, or
    `FILE[,...]` of one of the `formats`; a `.json` file of none of them is a Fabric's own.

    Rates and times carry their unit, `delay=10ms`: what a builder takes as text (`takes_text`)
    reaches it as it was written. Where the spec says nothing of size, the fabric is given room for
    `hosts` GPUs, and for `least` anyhow, by its builder's own `room`; 0: its own default. Fabrics
    whose racks are servers get servers of `server` GPUs; 0: eight. Where it says nothing of `rate`
    and the usual one is the builder's default, network cards have `nic` (bit/s); 0: the usual.

    >>> parse_fabric("fat-tree,k=4")
    <Fabric fat-tree,k=4: 16 hosts, 20 switches (0 OCSes), 48 cables>
    """
    head = head_of(spec)
    if _is_own(spec):
        fabric = _from_file(unescaped(head))
        read_spec(spec, known=()).values({})
        return fabric
    builder = _builder(head)
    readers = by_signature(builder)
    values = read_spec(spec, known=readers).values(readers)
    rate = inspect.signature(builder).parameters.get("rate")
    if nic and rate and rate.default == RATE and "rate" not in values:
        values["rate"] = spell_rate(nic)
    room = _room(builder)
    if hosts and room and not {*_sizes(room), "k"} & set(values):
        values |= room(hosts, least, values | ({"gpus": server} if server else {}))
    return builder(**values).named(str(spec))


def _sizes(room: Room) -> tuple[str, ...]:
    """The settings that a room decides."""
    return tuple(room(SMALLEST, SMALLEST))


def with_setting(spec: str, key: str, value: str) -> str:
    """`spec` with `key=value`, where its builder knows the key and the spec leaves it open."""
    head = head_of(spec)
    known = () if _is_own(spec) else by_signature(_builder(head))
    if key not in known or key in read_spec(spec, known=known).settings:
        return str(spec)
    return f"{spec},{key}={value}"


def _builder(head: str) -> Builder:
    file = unescaped(head)
    return partial(read_network, file) if names_topology(file) else builder_of(head)


def _is_own(spec: str) -> bool:
    """Whether it is a fabric as rfabric writes it, and no JSON of others, nor said to be."""
    head, said = head_of(spec), any(one.startswith("format=") for one in split_at(spec, ",")[1:])
    return kind_of(head) == ".json" and not said and not is_topology(unescaped(head))


def _room(builder: Callable[..., Fabric]) -> Room | None:
    """How the builder is sized: its own way, or by `shape_for` where it takes pods, tors and
    gpus.
    """
    return getattr(builder, "room", shape_for if set(SHAPE) <= set(by_signature(builder)) else None)


def _from_file(path: str) -> Fabric:
    try:
        return Fabric.from_json(read_text(path))
    except (OSError, ValueError) as error:
        said = str(error).removeprefix("fabric file: ")
        raise RFabricError(f"fabric file {path}: {said}") from error

"""MiniEdit's networks (`.mn`), as the editor that comes with Mininet saves them.

    {"version": "2", "hosts": [{"number": "1", "opts": {"hostname": "h1"}, ...}],
     "switches": [{"number": "1", "opts": {"hostname": "s1", "switchType": "default"}, ...}],
     "links": [{"src": "h1", "dest": "s1", "opts": {"bw": 10, "delay": "5ms"}}], ...}

`bw` is Mbit/s, a `delay` without a unit microseconds, as `tc` has it, which Mininet hands both to.
What else a link does to packets (loss, jitter, queues) is left out. Routers are switches. Nodes of
files before MiniEdit wrote names are called by their number.
"""

import re
from pathlib import Path
from typing import Any

from ...errors import RFabricError, some
from ...files import twice
from ...units import US
from ..network import NamedCable, Network
from ..roles import Role
from .base import Reading, TopologyFormat, items, mapping, mapping_of, name_of, stem_of

NODES = {"hosts": ("h", Role("host", "host")), "switches": ("s", Role("eps"))}
MBIT = 1e6  # bit/s
READ = ("bw", "delay")
TC_SECONDS = re.compile(r"(?<=\d)\s*(m|u|)secs?")  # as tc also writes ms, us and s


def _sniff(text: str) -> bool:
    return text.lstrip().startswith("{") and all(
        re.search(rf'"{key}"\s*:\s*\[', text) for key in ("hosts", "switches", "links")
    )


def _read(path: Path, reading: Reading) -> Network:
    data = mapping_of(path)
    named = [
        (_name(mapping(one, f"{kind}[{i}]"), letter, f"{kind}[{i}]"), role)
        for kind, (letter, role) in NODES.items()
        for i, one in enumerate(items(data.get(kind), kind))
    ]
    if (name := twice(name for name, _ in named)) is not None:
        raise RFabricError(f"{name} stands twice; give each node a name of its own")
    nodes, left = dict(named), set[str]()
    cables = tuple(
        _cable(mapping(link, f"links[{i}]"), f"links[{i}]", nodes, reading, left)
        for i, link in enumerate(items(data.get("links"), "links"))
    )
    said = (f"{some(left)} of links left out",) if left else ()
    return Network(stem_of(path), nodes, cables, said)


def _name(node: dict, letter: str, where: str) -> str:
    options = mapping(node.get("opts") or {}, f"{where}.opts")
    if "hostname" in options:
        return name_of(options["hostname"], f"{where}.opts.hostname")
    return f"{letter}{name_of(node.get('number'), f'{where}.number')}"


def _cable(
    link: dict, where: str, nodes: dict[str, Role], reading: Reading, left: set[str]
) -> NamedCable:
    """The cable of a link; `left` gets what it says besides."""
    ends = [name_of(link.get(key), f"{where}.{key}") for key in ("src", "dest")]
    for name in ends:
        if name not in nodes:
            raise RFabricError(f"{where} ends at {name}, which is no host and no switch of it")
    said = mapping(link.get("opts") or {}, f"{where}.opts")
    left |= said.keys() - set(READ)
    return NamedCable(*ends, *_speed(said, f"{where}.opts.", reading), where)


def _speed(said: dict[str, Any], where: str, reading: Reading) -> tuple[float | None, float | None]:
    """bit/s and s; None each where nothing is said."""
    rate, delay = (said.get(key) for key in READ)
    speed = None if rate in (None, "") else reading.rate(rate, f"{where}bw", MBIT)
    if speed == 0:
        raise RFabricError(f"{where}bw: {rate!r} must be above 0")
    if isinstance(delay, str):
        delay = TC_SECONDS.sub(r"\1s", delay)
    return speed, None if delay in (None, "") else reading.delay(delay, f"{where}delay", US)


MINIEDIT = TopologyFormat(
    "miniedit", "MiniEdit's hosts, switches and links, as Mininet's editor saves them", (".mn",),
    _sniff, _read,
)  # fmt: skip

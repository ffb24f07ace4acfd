"""InfraGraph, JSON or YAML: devices with components, instances of them, edges between these.

    devices:   [{name: server, components: [{name: nic, count: 8, choice: nic}, ...], ...}, ...]
    instances: [{name: host, device: server, count: 4}, {name: tor, device: switch, count: 2}]
    links:     [{name: fibre, physical: {bandwidth: {gigabits_per_second: 400}}}]
    edges:     [{ep1: {instance: "host[0:4]", component: "nic[0]"},
                 ep2: {instance: "tor[0]", component: "port[0:4]"}, scheme: one2one, link: fibre}]

A device with GPUs or NICs (`xpu`, `nic`) is a server: each of its NICs with a cable is a host. All
others are packet switches. What joins the components inside a device is left out. one2one of more
ends with fewer makes as many cables as the fewer, as InfraGraph's own service does (zip). A cable
from a switch to itself, as its de Bruijn graphs have them, carries nothing and is left out.
"""

import re
from itertools import product
from pathlib import Path
from typing import Any

from ...errors import RFabricError, meant, some
from ...files import twice
from ..network import MOST_NODES, NamedCable, Network
from ..roles import Role
from .base import Reading, TopologyFormat, items, mapping, mapping_of, name_of, stem_of

SERVER_PARTS = ("xpu", "nic")
DEEPEST = 8  # devices within devices
BANDWIDTHS = {"gigabits_per_second": "Gbit/s", "gigabytes_per_second": "GB/s"}
LATENCIES = ("ms", "us", "ns")


def _sniff(text: str) -> bool:
    return all(
        re.search(rf'^[\s{{]*"?{key}"?\s*:|"{key}"\s*:\s*\[', text, re.M)
        for key in ("devices", "instances", "edges")
    )


def _read(path: Path, reading: Reading) -> Network:
    data = mapping_of(path)
    missing = [key for key in ("devices", "instances", "edges") if key not in data]
    if missing:
        raise RFabricError(f"{missing[0]} is missing; an InfraGraph needs it")
    devices = _by_name(data["devices"], "devices")
    instances = _by_name(data["instances"], "instances")
    said = [f"what is inside {len(devices):,} kinds of device left out"]
    rates = {name: _physical(link, name, reading, said)
             for name, link in _by_name(data.get("links", []), "links").items()}  # fmt: skip
    nodes: dict[str, Role] = {}
    cables: list[NamedCable] = []
    uneven: list[str] = []
    loops = 0
    for i, edge in enumerate(items(data["edges"], "edges")):
        where = f"edges[{i}]"
        for a, b in _joined(mapping(edge, where), where, instances, devices, uneven):
            if a[0] == b[0]:
                loops += 1
                continue
            nodes |= {end[0]: end[1] for end in (a, b) if end[0] not in nodes}
            cables.append(NamedCable(a[0], b[0], *_link(edge.get("link"), where, rates), where))
            if len(cables) > MOST_NODES:
                raise RFabricError(f"{where}: more than {MOST_NODES:,} cables")
    hosts = sum(role.kind == "host" for role in nodes.values())
    said.append(f"each of {hosts:,} NICs of servers is a host")
    if loops:
        said.append(f"{loops:,} cables from a switch to itself left out")
    if uneven:
        said.append(
            f"{len(uneven):,} edges one2one of more ends with fewer ({some(uneven)}): as many "
            "cables as the fewer"
        )
    return Network(stem_of(path), nodes, tuple(cables), tuple(said))


def _link(name: Any, where: str, rates: dict) -> tuple[float | None, float | None]:
    if name is None:
        return None, None
    if name not in rates:
        raise RFabricError(f"{where}: there is no link {name!r}{meant(str(name), rates)}")
    return rates[name]


def _by_name(listed: Any, what: str) -> dict[str, dict]:
    elements = [mapping(one, f"{what}[{i}]") for i, one in enumerate(items(listed, what))]
    names = [name_of(one.get("name"), f"{what}[{i}].name") for i, one in enumerate(elements)]
    if (name := twice(names)) is not None:
        raise RFabricError(f"{what}: {name} stands twice; keep one")
    return dict(zip(names, elements, strict=True))


def _physical(
    link: dict, name: str, reading: Reading, said: list[str]
) -> tuple[float | None, float | None]:
    """bit/s and s of a link; None each where it says nothing."""
    physical = mapping(link.get("physical") or {}, f"links {name}.physical")
    band = mapping(physical.get("bandwidth") or {}, f"links {name}.bandwidth")
    late = mapping(physical.get("latency") or {}, f"links {name}.latency")
    rate = next((f"{band[k]}{unit}" for k, unit in BANDWIDTHS.items() if band.get(k)), None)
    delay = next((f"{late[unit]}{unit}" for unit in LATENCIES if late.get(unit)), None)
    if "gigatransfers_per_second" in band:
        said.append(f"the gigatransfers of link {name} left out: without lanes they are no rate")
    return (
        None if rate is None else reading.rate(rate, f"links {name}.bandwidth"),
        None if delay is None else reading.delay(delay, f"links {name}.latency"),
    )


def _joined(edge: dict, where: str, instances: dict, devices: dict, uneven: list[str]):
    """Pairs of (name, Role) that an edge joins; `uneven` gets one of more ends than the other."""
    ends = []
    for key in ("ep1", "ep2"):
        at = f"{where}.{key}"
        ends.append(_expanded(mapping(edge.get(key), at), at, instances, devices))
    scheme = edge.get("scheme") or "one2one"
    if scheme == "many2many":
        if len(ends[0]) * len(ends[1]) > MOST_NODES:
            raise RFabricError(f"{where}: more than {MOST_NODES:,} cables")
        return list(product(*ends))
    if scheme == "one2one":
        if len(ends[0]) != len(ends[1]):
            uneven.append(f"{where} of {len(ends[0])} and {len(ends[1])}")
        return list(zip(*ends, strict=False))
    if scheme == "ring" and ends[0] == ends[1] and len(ends[0]) > 2:
        return list(zip(ends[0], [*ends[0][1:], ends[0][0]], strict=True))
    raise RFabricError(f"{where}: scheme {scheme!r} is none of one2one, many2many")


def _expanded(end: dict, where: str, instances: dict, devices: dict) -> list[tuple[str, Role]]:
    """The nodes of an end: `host[0:4]` and `nic[0]` as its NICs, a switch once for each port."""
    said = name_of(end.get("instance"), f"{where}.instance")
    name = said.partition("[")[0]
    if name not in instances:
        raise RFabricError(f"{where}: there is no instance {name!r}")
    device = instances[name].get("device")
    if device not in devices:
        raise RFabricError(f"{where}: instance {name} is of device {device!r}, which there is not")
    parts = _parts(devices, device)
    server = _is_server(parts, devices)
    component = name_of(end.get("component"), f"{where}.component")
    return [
        (f"{name}.{i}.{place}", Role("host", "host")) if server else (f"{name}.{i}", Role("eps"))
        for i in _rows(said, instances[name].get("count"), where)
        for place in _places(component, device, devices, where)
    ]


def _parts(devices: dict, device: str) -> dict[str, dict]:
    return _by_name(devices[device].get("components", []), f"device {device}.components")


def _is_server(parts: dict[str, dict], devices: dict, depth: int = 0) -> bool:
    """Whether GPUs or NICs are among the components, or among those of devices within."""
    if depth > DEEPEST:
        raise RFabricError(f"devices stand within devices, more than {DEEPEST} deep")
    within = [_parts(devices, name) for name, part in parts.items() if name in devices]
    return any(part.get("choice") in SERVER_PARTS for part in parts.values()) or any(
        _is_server(inner, devices, depth + 1) for inner in within
    )


def _places(component: str, device: str, devices: dict, where: str) -> list[str]:
    """`cx5[0:2].port[0]` as cx5.0.port.0 and cx5.1.port.0."""
    paths = [""]
    for element in component.split("."):
        name = element.partition("[")[0]
        parts = _parts(devices, device) if device in devices else {}
        if name not in parts:
            raise RFabricError(f"{where}: device {device} has no component {name!r}")
        rows = _rows(element, parts[name].get("count"), where)
        paths = [f"{head}{name}.{i}." for head in paths for i in rows]
        if len(paths) > MOST_NODES:
            raise RFabricError(f"{where}: more than {MOST_NODES:,} components")
        device = name
    return [text.rstrip(".") for text in paths]


def _rows(text: str, count: Any, where: str) -> range:
    """The indices that `nic`, `nic[3]`, `nic[0:4]` or `nic[:]` mean, of so many."""
    if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= MOST_NODES:
        raise RFabricError(f"{where}: {text}: count {count!r} must be 1 to {MOST_NODES:,}")
    match = re.fullmatch(r"[^\[\]]+(?:\[(\d{0,9})(:?)(\d{0,9})\])?", text)
    if not match or match[0].endswith("[]"):
        raise RFabricError(f"{where}: {text!r} is no NAME, NAME[3], NAME[0:4]")
    first, colon, last = match.groups()
    if not first and not colon:
        return range(count)
    low = int(first or 0)
    high = int(last or count) if colon else low + 1
    if not low < high <= count:
        raise RFabricError(f"{where}: {text} is beyond its count, {count}")
    return range(low, high)


INFRAGRAPH = TopologyFormat(
    "infragraph", "devices, instances and edges as JSON or YAML: a host for each NIC of a server",
    (".yaml", ".yml", ".json"), _sniff, _read,
)  # fmt: skip

"""netlab's topologies, YAML: nodes, and links in any of the ways that netlab takes them.

    defaults.device: eos
    nodes: {leaf1: , spine1: , h1: {device: linux}}     or a list of names, or of mappings
    links:
    - h1-leaf1                                          as many names as the link has ends
    - {leaf1: , spine1: , bandwidth: 100G}              nodes and attributes
    - {interfaces: [h2, {node: leaf1}]}                 or a list of names alone

A node is what its `role` says; else one whose device, be it its own, that of a group or of all, is
`linux` is a host, and any other device a switch. Groups have `members`, nodes or other groups, and
nodes their `group`. A link of three ends or more is a switch of its own, and one of a single end is
left out. A bare `bandwidth`, of a link or of an end of it, is in kbit/s (netlab's manual, Links),
unless `rate_unit` says another.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import RFabricError
from ..network import NamedCable, Network
from ..roles import Role
from .base import (
    Reading,
    TopologyFormat,
    delay_of,
    items,
    mapping,
    mapping_of,
    name_of,
    rate_of,
    stem_of,
)

ROLES = {"host": Role("host", "host")} | dict.fromkeys(("router", "bridge", "gateway"), Role("eps"))


def _sniff(text: str) -> bool:
    return all(re.search(rf"^{key}\s*:", text, re.M) for key in ("nodes", "links"))


def _read(path: Path, reading: Reading) -> Network:
    data = mapping_of(path)
    nodes = _named(data.get("nodes"), "nodes")
    groups = _groups(data, nodes)
    usual = mapping(data.get("defaults") or {}, "defaults").get("device")
    roles = {name: _role([said, *_above(name, groups)], data.get("defaults.device", usual))
             for name, said in nodes.items()}  # fmt: skip
    reading = replace(reading, rate_unit=reading.rate_unit or "kbit/s")
    cables: list[NamedCable] = []
    said: list[str] = []
    stubs = wide = slowed = 0
    for where, link in _links(items(data.get("links") or [], "links"), "links"):
        ends, attributes = _ends(link, where, nodes)
        own = _of_interfaces(link, ends)
        if len(ends) < 2 or attributes.get("disable"):
            stubs += 1
            continue
        slowed += any(str(key).partition(".")[0] == "tc" for key in attributes)
        rates = [rate_of({**attributes, **one}, reading, where) for one in own]
        delay = delay_of(attributes, reading, where)
        if len(ends) > 2:
            wide += 1
            roles[where] = Role("eps", "aggregation")  # no ToR, unless hosts are on it
            cables += [
                NamedCable(end, where, rate, delay, where)
                for end, rate in zip(ends, rates, strict=True)
            ]
            continue
        if rates[0] != rates[1]:
            raise RFabricError(
                f"{where}: {ends[0]} and {ends[1]} differ in bandwidth; a cable is the same both "
                "ways, say it of the link"
            )
        cables.append(NamedCable(ends[0], ends[1], rates[0], delay, where))
    said += [f"{stubs:,} links of one end, or disabled, left out"] if stubs else []
    said += [f"{wide:,} links of several ends are a switch each"] if wide else []
    said += [f"tc of {slowed:,} links left out"] if slowed else []
    return Network(str(data.get("name") or stem_of(path)), roles, tuple(cables), tuple(said))


def _named(said: Any, what: str) -> dict[str, dict]:
    """Nodes by name, of a mapping, or of a list of names and mappings."""
    if isinstance(said, dict):
        named = [(name_of(name, what), one) for name, one in said.items()]
    else:
        each = [one if isinstance(one, dict) else {"name": one} for one in items(said, what)]
        named = [(name_of(one.get("name"), f"{what}[{i}].name"), one) for i, one in enumerate(each)]
    return {name: mapping(one or {}, f"{what}.{name}") for name, one in named}


def _groups(data: dict, nodes: dict) -> dict[str, dict]:
    """The groups by name, each with all its `members`; RFabricError for a member that is none."""
    listed = mapping(data.get("groups") or {}, "groups")
    groups = {
        str(name): {"members": said} if isinstance(said, list) else dict(said)
        for name, said in listed.items()
        if isinstance(said, (dict, list)) and not str(name).startswith("_")
    }
    for name, said in groups.items():
        members = said.get("members") or []
        said["members"] = list(map(str, items(members, f"groups.{name}.members")))
        for member in said["members"]:
            if member not in nodes and member not in groups:
                raise RFabricError(
                    f"groups.{name}.members: {member[:40]!r} is no node and no group of the file"
                )
    for name, said in nodes.items():
        own = said.get("group") or []
        for group in [own] if isinstance(own, str) else items(own, f"nodes.{name}.group"):
            groups.setdefault(str(group), {"members": []})["members"].append(name)
    return groups


def _above(name: str, groups: dict[str, dict]) -> list[dict]:
    """The groups that a node is in, and those that these are in; the nearest first."""
    names, above = [name], dict[str, dict]()
    for one in names:  # grows
        new = [g for g, said in groups.items() if one in said["members"] and g not in above]
        above |= {group: groups[group] for group in new}
        names += new
    return list(above.values())


def _role(own: list[dict], usual: Any) -> Role:
    """By role or device, the node's own or those of its groups, else the `usual` device."""
    role = next((str(one["role"]) for one in own if one.get("role")), "")
    if role in ROLES:
        return ROLES[role]
    device = next((str(one["device"]) for one in own if one.get("device")), usual)
    if device is None:
        return Role()
    return ROLES["host" if device == "linux" else "router"]


def _links(listed: list, where: str) -> Iterator[tuple[str, Any]]:
    """Every link with where it stands, those of groups too."""
    for i, link in enumerate(listed):
        at = f"{where}[{i + 1}]"
        if isinstance(link, dict) and "members" in link:
            yield from _links(items(link["members"], f"{at}.members"), at)
        else:
            yield at, link


def _ends(link: Any, where: str, nodes: dict) -> tuple[list[str], dict]:
    """The nodes of a link, and its attributes."""
    attributes: dict = {}
    if isinstance(link, str):
        ends = [end.strip() for end in link.split("-")]
    elif isinstance(link, dict) and "interfaces" not in link:
        # a name of which nothing is said is no attribute, though there is no such node
        ends = [str(name) for name, said in link.items() if str(name) in nodes or said is None]
        attributes = {key: value for key, value in link.items() if str(key) not in ends}
    else:
        attributes = link if isinstance(link, dict) else {}
        listed = items(attributes.get("interfaces", link), f"{where}.interfaces")
        ends = [name_of(end.get("node") if isinstance(end, dict) else end, where) for end in listed]
    for end in ends:
        if end not in nodes:
            raise RFabricError(f"{where} ends at {end[:40]!r}, which is no node of the file")
    return ends, attributes


def _of_interfaces(link: Any, ends: list[str]) -> list[dict]:
    """What a link says of each of its ends."""
    said: list[Any] = [None] * len(ends)
    if isinstance(link, dict):
        by_name = {str(name): one for name, one in link.items()}
        said = link.get("interfaces") or [by_name.get(end) for end in ends]
    elif isinstance(link, list):
        said = link
    return [one if isinstance(one, dict) else {} for one in said]


NETLAB = TopologyFormat(
    "netlab", "netlab's nodes and links as YAML; devices `linux` are hosts", (".yml", ".yaml"),
    _sniff, _read,
)  # fmt: skip

"""Clusters of a SimGrid platform: a switch with its hosts, or a fat tree; and what is common to the
attributes of a platform. RFabricError for what is missing, of no unit or no such shape.
"""

import math
import re
from itertools import product

from ...errors import RFabricError
from ...units import parse_rate
from ..network import MOST_NODES, NamedCable
from ..roles import Role
from .base import Reading

HOST, SWITCH = Role("host", "host"), Role("eps")
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}  # of a byte, as in MiBps
DUPLEX = "SPLITDUPLEX"  # a link whose two ways are apart; SHARED, SimGrid's default, has one
LIMITS = ("bb_bw", "bb_lat", "limiter_link")  # of a cluster, which no cable has
PARAMETERS = re.compile(r"\d{1,2}(;\d{1,5}(,\d{1,5})*){3}")


def said_in(element, key: str) -> str:
    """An attribute that an element must have."""
    if not (value := element.get(key, "")):
        raise RFabricError(f"a <{element.tag}> without {key}; give it one")
    return value


def rate_in(text: str, where: str) -> float:
    """bit/s; a bare number is in bytes/s."""
    said = text.strip()
    if binary := re.fullmatch(r"([\d.eE+-]+)([KMGT]i)(B|b)ps", said):
        number, prefix, unit = binary.groups()
        said = f"{float(parse_rate(number, where, bare=True)) * BINARY[prefix]}{unit}ps"
    rate = Reading("B/s").rate(said, where)
    if not rate:
        raise RFabricError(f"{where}: {text!r} must be above 0")
    return rate


def delay_in(text: str, where: str) -> float:
    """s; a bare number is in s."""
    return Reading(delay_unit="s").delay(text, where)


def cluster_of(element, said: list[str]) -> tuple[dict[str, Role], list[NamedCable]]:
    """Nodes and cables of a `<cluster>`: its hosts below a switch, or below those of a fat tree.
    `said` gets what is left out.
    """
    name, shape = said_in(element, "id"), element.get("topology", "FLAT").upper()
    prefix, suffix = element.get("prefix", ""), element.get("suffix", "")
    hosts = [f"{prefix}{i}{suffix}" for i in _numbers(said_in(element, "radical"), name)]
    rate = rate_in(said_in(element, "bw"), f"cluster {name} bw")
    delay = delay_in(said_in(element, "lat"), f"cluster {name} lat")
    if shape == "FLAT":
        router = element.get("router_id") or f"{prefix}{name}_router{suffix}"
        pairs = [(host, router) for host in hosts]
    elif shape == "FAT_TREE":
        pairs = _fat_tree(name, hosts, element.get("topo_parameters", ""))
    else:
        raise RFabricError(f"cluster {name}: topology {shape} is not read; FLAT and FAT_TREE are")
    if left := [f"{key} {element.get(key)}" for key in LIMITS if element.get(key)]:
        said.append(f"{', '.join(left)} of cluster {name} left out")
    if element.get("sharing_policy", DUPLEX).upper() != DUPLEX:
        said.append(f"links of cluster {name} that both ways share have its rate each way")
    nodes = dict.fromkeys(hosts, HOST) | dict.fromkeys((above for _, above in pairs), SWITCH)
    return nodes, [NamedCable(a, b, rate, delay, f"cluster {name}") for a, b in pairs]


def _numbers(radical: str, name: str) -> list[int]:
    """The numbers of `0-3,7`; RFabricError for anything else, and for one that stands twice."""
    numbers: list[int] = []
    for part in radical.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < first + MOST_NODES:
            raise RFabricError(f"cluster {name}: radical {radical[:40]!r} is none such as 0-3,7")
        numbers += range(first, last + 1)
    if len(set(numbers)) < len(numbers):
        raise RFabricError(f"cluster {name}: radical {radical[:40]!r} names a host twice")
    return numbers


def _fat_tree(name: str, hosts: list[str], text: str) -> list[tuple[str, str]]:
    """The cables, lower end first, of `2;4,4;1,2;1,2`: levels, and at each of them children of a
    switch, parents of a child, cables between the two.

    A node has a digit for each level: its place among the parents up to its own, among the children
    above (Zahavi's parallel-ports generalised fat tree, by which SimGrid builds it). Hosts stand in
    order, the digit of the lowest level fastest.
    """
    children, parents, cables = _levels(name, text)
    if math.prod(children) != len(hosts):
        raise RFabricError(
            f"cluster {name}: topo_parameters {text} make {math.prod(children):,} hosts, and its "
            f"radical {len(hosts):,}"
        )
    places = [digits[::-1] for digits in product(*map(range, children[::-1]))]
    below = dict(zip(places, hosts, strict=True))
    pairs: list[tuple[str, str]] = []
    for level, wide in enumerate(parents):
        if len(pairs) + len(below) * wide * cables[level] > MOST_NODES:
            raise RFabricError(f"cluster {name}: more than {MOST_NODES:,} cables")
        above: dict[tuple[int, ...], str] = {}
        for digits, child in below.items():
            for place in range(wide):
                upper = (*digits[:level], place, *digits[level + 1 :])
                called = f"{name}.{level + 1}.{'.'.join(map(str, upper))}"
                pairs += [(child, above.setdefault(upper, called))] * cables[level]
        below = above
    return pairs


def _levels(name: str, text: str) -> list[list[int]]:
    """Children, parents and cables by level."""
    parts = [list(map(int, part.split(","))) for part in text.split(";")] if (
        PARAMETERS.fullmatch(text)
    ) else []  # fmt: skip
    if not parts or any(len(part) != parts[0][0] for part in parts[1:]) or 0 in sum(parts, []):
        raise RFabricError(
            f"cluster {name}: topo_parameters {text[:40]!r} is none such as 2;4,4;1,2;1,2: levels, "
            "children, parents, cables"
        )
    return parts[1:]

"""InfiniBand fabrics as `ibnetdiscover` prints them: each node, and what is behind each port.

    Switch  40 "S-b859"       # "MF0;ibsw1:MQM8700/U1" enhanced port 0 lid 1 lmc 0
    [1]     "H-0c42"[1](0c43)            # "node1 mlx5_0" lid 3 4xHDR
    [21]    "S-b860"[1]                  # "MF0;ibsw2:MQM8700/U1" lid 2 4xHDR

    Ca      1 "H-0c42"        # "node1 mlx5_0"
    [1](0c43)   "S-b859"[1]              # lid 3 lmc 0 "MF0;ibsw1:MQM8700/U1" lid 1 4xHDR

A cable stands at both its ends and is one. The adapters that say one machine's name are its NICs;
those that say none, as before a driver names them, are a host each. What switches hold for
themselves (SHARP's aggregation nodes) is no host. Rates are those of data, as the lanes' speeds
are named: 4xHDR is 200 Gbit/s, 4xQDR 32. Ports that are down are not in such a list.
"""

import re
from collections import Counter
from pathlib import Path

from ...errors import RFabricError, some
from ..network import NamedCable, Network
from ..roles import Role
from .base import Reading, TopologyFormat, stem_of, text_of

NODE = re.compile(r'(?:Switch|Ca|Rt)\s+\d+\s+"([SHR]-[0-9a-fA-F]+)"\s*(?:#\s*"([^"]*)")?')
PLACE = r"\[(\d+)\](?:\[ext [^\]]*\])?(?:\([0-9a-fA-F]+\))?"
PORT = re.compile(rf'{PLACE}\s+"([SHR]-[0-9a-fA-F]+)"{PLACE}\s*(?:#(.*))?')
WIDTH = re.compile(r"\b(\d+)x([SDQFEHNX]DR(?:10)?)\b")
# Gbit/s of data on a lane, less what 8b/10b and 64b/66b add: InfiniBand Trade Association, roadmap
LANES = {"SDR": 2.0, "DDR": 4.0, "QDR": 8.0, "FDR10": 10.0, "FDR": 13.64, "EDR": 25.0,
         "HDR": 50.0, "NDR": 100.0, "XDR": 200.0}  # fmt: skip
GBIT = 1e9
ADAPTER = re.compile(r"(\S+)\s+(?:HCA-\d+|mlx\d+_\w+|hfi\d+_\d+|ibp\S+|roce\S+)")
NO_NAME = ("localhost", "localhost.localdomain", "(none)")
INSIDE = re.compile(r"aggregation node|sharp", re.I)  # adapters of switches themselves


def _sniff(text: str) -> bool:
    return re.search(r'^(?:Switch|Ca)\s+\d+\s+"[SH]-[0-9a-fA-F]+"', text, re.M) is not None


def _read(path: Path, reading: Reading) -> Network:
    said: dict[str, str] = {}  # how nodes describe themselves, by their GUIDs
    cables: dict[frozenset, tuple[str, str, float | None, str]] = {}
    here = ""
    for n, line in enumerate(text_of(path).splitlines(), 1):
        text = line.strip()
        if node := NODE.match(text):
            here = node[1]
            said[here] = node[2] or said.get(here, "")
        elif text.startswith("["):
            port = PORT.match(text)
            if port is None or not here:
                raise RFabricError(f'line {n}: {text[:60]!r}: `[1] "S-b860"[2] # ...` is expected')
            said.setdefault(port[2], next(iter(re.findall('"([^"]*)"', port[4] or "")), ""))
            _port(f"line {n}", here, port, cables)
    inside = {guid for guid, text in said.items() if _is_adapter(guid) and INSIDE.search(text)}
    notes = []
    if inside:
        left = sorted({said.pop(guid) for guid in inside})
        notes.append(f"{len(inside):,} adapters of switches left out ({some(left)})")
    names = _names(said, notes)
    roles = {names[guid]: Role("host", "host") if _is_adapter(guid) else Role("eps")
             for guid in said}  # fmt: skip
    kept = (one for one in cables.values() if not inside & set(one[:2]))
    made = tuple(NamedCable(names[a], names[b], rate, None, at) for a, b, rate, at in kept)
    return Network(stem_of(path), roles, made, tuple(notes))


def _is_adapter(guid: str) -> bool:
    return guid.startswith("H")


def _port(where: str, here: str, port: re.Match, cables: dict) -> None:
    """Keep the cable of a port; RFabricError where its other end says another rate."""
    own, there, other, comment = port.groups()
    width = WIDTH.findall(comment or "")
    rate = int(width[-1][0]) * LANES[width[-1][1]] * GBIT if width else None
    key = frozenset({(here, int(own)), (there, int(other))})
    known = cables.setdefault(key, (here, there, rate, where))
    if known[2] is None:
        cables[key] = (*known[:2], rate, known[3])
    elif rate not in (None, known[2]):
        raise RFabricError(
            f"{where}: {rate / GBIT:g} Gbit/s, but {known[2] / GBIT:g} in {known[3]}, of the same "
            "ports; list it again"
        )


def _names(said: dict[str, str], notes: list[str]) -> dict[str, str]:
    """What each node is called, by its GUID: adapters by their machine, switches by their name, or
    by the GUID where several have that.
    """
    often = Counter(said.values())
    called = {guid: _called(guid, text, often[text]) for guid, text in said.items()}
    chips = Counter(name for guid, name in called.items() if not _is_adapter(guid))
    names = {
        guid: guid if not name or (not _is_adapter(guid) and chips[name] > 1) else name
        for guid, name in called.items()
    }
    if alone := sum(_is_adapter(guid) and not name for guid, name in called.items()):
        notes.append(f"{alone:,} adapters name no machine of their own, each a host")
    machines = {name for guid, name in names.items() if _is_adapter(guid)}
    if both := machines & {name for guid, name in names.items() if not _is_adapter(guid)}:
        raise RFabricError(f"{some(sorted(both))}: machines and switches of one name")
    return names


def _called(guid: str, said: str, often: int) -> str:
    """`node1` of "node1 mlx5_0", unless another adapter says the same; `ibsw1` of
    "MF0;ibsw1:MQM8700/U1"; '' where it says no name.
    """
    if _is_adapter(guid):
        found = ADAPTER.fullmatch(said)
        return found[1] if found and found[1] not in NO_NAME and often == 1 else ""
    managed = re.fullmatch(r"[^;]*;([^:;]+):.*", said)
    return managed[1] if managed else said if re.fullmatch(r"[\w.-]+", said) else ""


IBNETDISCOVER = TopologyFormat(
    "ibnetdiscover", "InfiniBand's nodes and ports, as `ibnetdiscover` prints them",
    (".ibnet", ".lst"), _sniff, _read,
)  # fmt: skip

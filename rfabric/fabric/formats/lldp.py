r"""Neighbours as switches see them: LLDP tables of SONiC, `lldpctl -f json`, SONiC's config_db.

    admin@leaf1:~$ show lldp table                  the prompt says whose table it is; else
    LocalPort    RemoteDevice    RemotePortID  ...  the name of the file: leaf1.txt. A folder
    -----------  --------------  ------------       holds a file a switch.
    Ethernet0    server1         eth0
    Ethernet64   spine1          Ethernet4

A cable seen from both ends is one. What has a table is a switch; a neighbour without one is a host,
unless config_db (`DEVICE_NEIGHBOR_METADATA`) or its own name say otherwise (`spine1`, or `server1`,
as hosts may have a table too). Rates are those of config_db's PORT, and a port that is down there
has no cable.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import RFabricError, some
from ...files import PACKED, parse_json
from ..network import NamedCable, Network
from ..roles import Role, named_role
from .base import Reading, TopologyFormat, items, mapping, name_of, role_of, stem_of, text_of
from .states import is_down

HEADER = re.compile(r"^LocalPort\s+RemoteDevice\b", re.M)
PROMPT = re.compile(r"^(?:\w[\w.-]*@)([\w.-]+)[:#~]")
MOST_FILES = 10_000  # of a folder
MANAGEMENT = re.compile(r"(?i)eth0|mgmt\d*|ma\d|management\S*")
ENDING = re.compile(r"^(?:-{3,}|Total entries|Capability codes|\s*$)")


@dataclass(frozen=True)
class _Neighbour:
    """One neighbour as `local` sees it at a port; bit/s where it is said. down: the port is; far:
    the neighbour's port, where it is called as its own table has it.
    """

    local: str
    port: str
    remote: str
    rate: float | None
    where: str
    down: bool = False
    far: str = ""


def _sniff(text: str) -> bool:
    head = text[:65536]
    return HEADER.search(head) is not None or (
        head.lstrip().startswith("{")
        and ('"DEVICE_NEIGHBOR"' in text or re.match(r'\s*\{\s*"lldp"\s*:', head) is not None)
    )


def _read(path: Path, reading: Reading) -> Network:
    roles: dict[str, Role] = {}
    files = _files(path) if path.is_dir() else [path]
    seen = [one for file in files for one in _one_file(file, reading, roles)]
    if not seen:
        raise RFabricError("holds no neighbour")
    said: list[str] = []
    seen = _without_down(_of_the_fabric(_one_name_each(seen), said), said)
    cables = _cables(seen, said)
    tables = {one.local for one in seen}
    ends = Counter(name for cable in cables for name in (cable.a, cable.b))
    for name in dict.fromkeys(end for one in seen for end in (one.local, one.remote)):
        roles.setdefault(name, _by_name(name, name in tables, ends[name]))
    hosts = [name for name in tables if roles[name].kind == "host"]
    said += [f"{len(hosts):,} with a table are hosts ({some(hosts)})"] if hosts else []
    said.append(f"neighbours of {len(tables) - len(hosts):,} switches; names of ports left out")
    nodes = {name: roles[name] for one in seen for name in (one.local, one.remote)}
    return Network(stem_of(path), nodes, tuple(cables), tuple(said))


def _one_name_each(seen: list[_Neighbour]) -> list[_Neighbour]:
    """Neighbours by the names of their tables: `leaf1` is `leaf1.dc1.example.com` to others, or the
    other way round.
    """
    tables = {one.local for one in seen}
    short: dict[str, list[str]] = {}
    for name in tables:
        short.setdefault(name.partition(".")[0], []).append(name)
    return [replace(one, remote=_table_name(one.remote, tables, short)) for one in seen]


def _table_name(name: str, tables: set[str], short: dict[str, list[str]]) -> str:
    near = [] if name in tables else short.get(name.partition(".")[0], [])
    alike = [n for n in near if f"{n}.".startswith(f"{name}.") or f"{name}.".startswith(f"{n}.")]
    return alike[0] if len(alike) == 1 else name


def _of_the_fabric(seen: list[_Neighbour], said: list[str]) -> list[_Neighbour]:
    """Each neighbour once, without those of management ports where a switch has others; a port with
    two neighbours is refused.
    """
    others = {one.local for one in seen if not MANAGEMENT.fullmatch(one.port)}
    kept: dict[tuple[str, str], _Neighbour] = {}
    left = 0
    for one in seen:
        if MANAGEMENT.fullmatch(one.port) and one.local in others:
            left += 1
            continue
        known = kept.setdefault((one.local, one.port), one)
        if known.remote != one.remote:
            raise RFabricError(
                f"{one.where}: port {one.port} of {one.local} has two neighbours, {known.remote} "
                f"and {one.remote}; keep one"
            )
    if left:
        said.append(f"{left:,} neighbours of management ports left out")
    return list(kept.values())


def _without_down(seen: list[_Neighbour], said: list[str]) -> list[_Neighbour]:
    """Without the neighbours of ports that are down, at the other end too."""
    down = {(one.local, one.port) for one in seen if one.down}
    down |= {(one.remote, one.far) for one in seen if one.down and one.far}
    kept = [one for one in seen if (one.local, one.port) not in down]
    if len(kept) < len(seen):
        said.append(f"neighbours of ports that are down left out: {len(seen) - len(kept):,}")
    if not kept:
        raise RFabricError("all ports that have a neighbour are down")
    return kept


def _cables(seen: list[_Neighbour], said: list[str]) -> list[NamedCable]:
    """A cable for each neighbour. Where both ends have a table they name each other's ports in ways
    of their own: the end that sees more of them counts.
    """
    ways: dict[tuple[str, str], list[_Neighbour]] = {}
    for one in seen:
        ways.setdefault((one.local, one.remote), []).append(one)
    cables, uneven, slower = [], [], []
    for (a, b), there in ways.items():
        back = ways.get((b, a), [])
        if len(back) > len(there) or len(back) == len(there) and (b, a) < (a, b):
            continue
        if back and len(back) < len(there):
            uneven.append(f"{a} and {b}")
        rates = [one.rate for one in there]
        others = [one.rate for one in back] if len(back) == len(there) else rates
        if None in rates:
            rates = others
        elif None not in others and sorted(rates) != sorted(others):
            slower.append(f"{a} and {b}")
            rates = list(map(min, sorted(rates), sorted(others)))
        cables += [NamedCable(one.local, one.remote, rate, None, one.where)
                  for one, rate in zip(there, rates, strict=True)]  # fmt: skip
    if slower:
        said.append(f"two ends say different rates, the lower taken: {some(slower)}")
    if uneven:
        said.append(f"two ends see different numbers of cables, the larger taken: {some(uneven)}")
    return cables


def _files(path: Path) -> list[Path]:
    files = sorted(file for file in path.iterdir() if file.is_file())
    if len(files) > MOST_FILES:
        raise RFabricError(f"{len(files):,} files; {MOST_FILES:,} at most")
    return files


def _by_name(name: str, has_table: bool, ends: int) -> Role:
    """`server1` and `spine1` are what they are called; of others what has a table is a switch."""
    return named_role(name, ends) or (Role("eps") if has_table else Role("host", "host"))


def _one_file(path: Path, reading: Reading, roles: dict[str, Role]) -> Iterator[_Neighbour]:
    text = text_of(path)
    local = _asked(path)
    try:
        if not text.lstrip().startswith("{"):
            yield from _table(text, local)
            return
        data = mapping(parse_json(text), "the file")
        yield from _lldpctl(data, local) if "lldp" in data else _config(data, local, reading, roles)
    except (RFabricError, OSError, ValueError) as error:
        raise RFabricError(f"{path.name}: {error}") from error


def _asked(path: Path) -> str:
    """Whose table a file is by its name: `leaf1.dc1` of `leaf1.dc1.json.gz`."""
    bare = path.name
    for end in (*PACKED, *LLDP.suffixes):
        bare = bare.removesuffix(end)
    return bare or path.name


def _table(text: str, local: str) -> Iterator[_Neighbour]:
    """The rows of `show lldp table`, by the columns of its header; a prompt names who is asked."""
    columns: list[int] = []
    headed = False
    for number, line in enumerate(text.splitlines(), 1):
        if prompt := PROMPT.match(line):
            local, columns = prompt[1], []
        elif HEADER.match(line):
            columns, headed = [m.start() for m in re.finditer(r"\S+", line)], True
        elif columns and not ENDING.match(line):
            ends = [*columns[1:], None]
            cells = [line[a:b].strip() for a, b in zip(columns, ends, strict=True)]
            if not cells[0] or not cells[1]:
                raise RFabricError(
                    f"line {number}: {line.strip()[:60]!r} names no port and device; cut it away"
                )
            yield _Neighbour(local, cells[0], cells[1], None, f"line {number}")
    if not headed:
        raise RFabricError("no header `LocalPort RemoteDevice RemotePortID`; is the file whole?")


def _lldpctl(data: dict, local: str) -> Iterator[_Neighbour]:
    """`lldpctl -f json`: interfaces as a list, or as one mapping; `json0`, a list of all."""
    if isinstance(data["lldp"], list):
        yield from _json0(data["lldp"], local)
        return
    listed = mapping(data["lldp"], "lldp").get("interface", [])
    every = listed if isinstance(listed, list) else [{k: v} for k, v in mapping(
        listed, "lldp.interface").items()]  # fmt: skip
    for i, entry in enumerate(every):
        for port, said in mapping(entry, f"interface[{i}]").items():
            said = mapping(said, f"interface {port}")
            chassis = mapping(said.get("chassis"), f"interface {port}.chassis")
            remote = next(iter(chassis), None)
            if remote in ("id", "name", "descr"):  # a chassis without a name
                remote = chassis.get("name") or mapping(
                    chassis.get("id") or {}, f"interface {port}.chassis.id"
                ).get("value")
            name = name_of(remote, f"interface {port}.chassis")
            yield _Neighbour(local, str(port), name, None, f"interface {port}")


def _json0(every: list, local: str) -> Iterator[_Neighbour]:
    """`lldpctl -f json0`: a list wherever there may be several, names beside what they name."""
    listed = [one for said in every for one in items(mapping(said, "lldp").get("interface", []),
                                                     "lldp.interface")]  # fmt: skip
    for i, said in enumerate(listed):
        port = name_of(mapping(said, f"interface[{i}]").get("name"), f"interface[{i}].name")
        where = f"interface {port}"
        chassis = _only(said, "chassis", where)
        named = (_only(chassis, key, where).get("value") for key in ("name", "id"))
        remote = name_of(next(filter(None, named), None), f"{where}.chassis")
        yield _Neighbour(local, port, remote, None, where)


def _only(said: dict, key: str, where: str) -> dict:
    """The first mapping of a list of them; an empty one where there is none."""
    return next((mapping(one, f"{where}.{key}") for one in items(said.get(key, []), key)), {})


def _config(
    data: dict, local: str, reading: Reading, roles: dict[str, Role]
) -> Iterator[_Neighbour]:
    """SONiC's config_db.json."""
    of = {key: mapping(data.get(key) or {}, key) for key in (
        "DEVICE_METADATA", "DEVICE_NEIGHBOR", "DEVICE_NEIGHBOR_METADATA", "PORT")}  # fmt: skip
    me = mapping(of["DEVICE_METADATA"].get("localhost") or {}, "localhost")
    local = str(me.get("hostname") or local)
    for name, said in (*of["DEVICE_NEIGHBOR_METADATA"].items(), (local, me)):
        role = role_of({"type": mapping(said, f"neighbour {name}").get("type", "")})
        if role.kind:
            roles[str(name)] = role
    for port, said in of["DEVICE_NEIGHBOR"].items():
        said = mapping(said, f"DEVICE_NEIGHBOR {port}")
        name = name_of(said.get("name"), f"DEVICE_NEIGHBOR {port}.name")
        own = of["PORT"].get(port)
        rate, down = _speed(own, f"PORT {port}", reading), isinstance(own, dict) and is_down(own)
        yield _Neighbour(
            local, str(port), name, rate, f"port {port}", down, str(said.get("port") or "")
        )


def _speed(said: Any, where: str, reading: Reading) -> float | None:
    """bit/s of a port: SONiC writes Mbit/s."""
    speed = said.get("speed") if isinstance(said, Mapping) else None
    return None if speed is None else reading.rate(speed, f"{where}: speed", 1e6)


LLDP = TopologyFormat(
    "lldp", "neighbours: SONiC `show lldp table`, config_db.json, `lldpctl -f json`; a folder too",
    (".txt", ".lldp", ".json"), _sniff, _read, folders=True,
)  # fmt: skip

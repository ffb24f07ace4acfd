"""Rules as OpenFlow 1.3 bytes (ONF TS-006), packed with struct: no framework, no switch, a few
microseconds each.

Ryu's classes take some 0.15 ms for one flow-mod; the routes of a rewire of 64 hosts are thousands.
The tests hold these bytes equal to what Ryu's classes make. Transaction numbers are set when
messages are sent. The cookie is the epoch that set the rule.

    crossbar (OCS)          in_port -> output                                     priority 100
    packet switch           IPv4 to a local host -> output                        300
                            IPv4 pair -> output                                   200
                            IPv4 pair without a path -> drop, for a second        150
                            other IPv4, ARP -> controller                         2, 1
    both                    everything else -> drop                               0

An OCS that times its dark itself, to the microsecond, says so when it connects: by LOST, an
experimenter message of this project. It is then told by MOVE which ports go dark, and for how long,
and answers with LOST; light comes back where its rules lead by then.

    MOVE   ns of dark: u64, in-ports: u32 each          LOST   for each in-port: u64 port, u64 bytes
"""

import contextlib
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..routing import Rule

VERSION, FLOW_MOD, MULTIPART_REQUEST, FLOW_STATS, PORT_STATS = 4, 14, 18, 1, 4
ROLE_REQUEST, MASTER, SLAVE = 24, 2, 3
EXPERIMENTER, MOVE, LOST = 4, 1, 2
PROJECT = 0x025246  # who defines these two: an OUI of the locally administered ones (IEEE 802)
ADD, DELETE, DELETE_STRICT = 0, 3, 4
ANY = NO_BUFFER = 0xFFFFFFFF
ALL_TABLES = 0xFF
TO_CONTROLLER, WHOLE_PACKET, MAX_LEN = 0xFFFFFFFD, 0xFFFF, 0xFFE5
IPV4, ARP = 0x0800, 0x0806
IN_PORT, ETH_TYPE, IPV4_SRC, IPV4_DST = 0, 5, 11, 12  # OXM fields
OPENFLOW_BASIC = 0x8000
MISS_PRIORITY, ARP_PRIORITY, UNKNOWN_PRIORITY, UNREACHABLE_PRIORITY = 0, 1, 2, 150
UNREACHABLE_S = 1  # how long a pair without a path is not asked about again

Address = Callable[[str], str]
# as Ryu and os-ken call the fields, and as Entry does
FIELDS = {"in_port": "in_port", "eth_type": "eth_type", "ipv4_src": "src", "ipv4_dst": "dst"}
NAMES = {IN_PORT: "in_port", ETH_TYPE: "eth_type", IPV4_SRC: "src", IPV4_DST: "dst"}


@dataclass(frozen=True)
class Entry:
    """One flow of a table: what it matches (of in_port, eth_type, src, dst) and the port it leads
    to.
    """

    priority: int
    match: tuple[tuple[str, int | str], ...]
    out: int | None
    cookie: int = 0

    @property
    def key(self) -> tuple:
        """What tells it from every other flow of its table."""
        return self.priority, self.match


def add(rule: Rule, address: Address, epoch: int = 0) -> bytes:
    """The flow-mod that installs `rule`, over one with the same match; `address(host)` is its IPv4
    address.
    """
    return _flow_mod(
        ADD, rule.priority, _match(rule.match, address), _output(rule.out), cookie=epoch
    )


def delete(rule: Rule, address: Address) -> bytes:
    """The flow-mod that removes exactly `rule`."""
    return _flow_mod(DELETE_STRICT, rule.priority, _match(rule.match, address))


def delete_all() -> bytes:
    """The flow-mod that empties a switch."""
    return _flow_mod(DELETE, 0, _oxm(), table=ALL_TABLES)


def strike(entry: Entry) -> bytes:
    """The flow-mod that removes exactly `entry`."""
    number = {name: field for field, name in NAMES.items()}
    fields = ((number[name], _value(name, value)) for name, value in entry.match)
    return _flow_mod(DELETE_STRICT, entry.priority, _oxm(*fields))


def base(kind: str, epoch: int = 0) -> list[bytes]:
    """What a switch holds besides rules: the table-miss drop, and on an `eps` the way to the
    controller.
    """
    wires = [_flow_mod(ADD, MISS_PRIORITY, _oxm(), cookie=epoch)]
    if kind == "eps":
        ask = _output(TO_CONTROLLER, WHOLE_PACKET)
        for priority, kind_of_packet in ((ARP_PRIORITY, ARP), (UNKNOWN_PRIORITY, IPV4)):
            match = _oxm((ETH_TYPE, struct.pack("!H", kind_of_packet)))
            wires.append(_flow_mod(ADD, priority, match, ask, cookie=epoch))
    return wires


def count_ports() -> bytes:
    """The request for the counters of all ports of a switch."""
    return struct.pack("!BBHIHH4xI4x", VERSION, MULTIPART_REQUEST, 24, 0, PORT_STATS, 0, ANY)


def ask_flows(cookie: int | None = None, port: int | None = None) -> bytes:
    """The request for the flows of a switch: all, those with a cookie, or those that match on an
    in-port.
    """
    match = _oxm() if port is None else _oxm((IN_PORT, port.to_bytes(4, "big")))
    mask = 0 if cookie is None else (1 << 64) - 1
    head = struct.pack("!BBHIHH4x", VERSION, MULTIPART_REQUEST, 48 + len(match), 0, FLOW_STATS, 0)
    return head + struct.pack("!B3xII4xQQ", ALL_TABLES, ANY, ANY, cookie or 0, mask) + match


def asks_for(request: bytes, entry: Entry) -> bool:
    """Whether a switch tells of an entry when it gets this `ask_flows`."""
    cookie, mask = struct.unpack_from("!QQ", request, 32)
    fields = set(_fields(request[52 : 48 + struct.unpack_from("!H", request, 50)[0]]))
    return entry.cookie & mask == cookie & mask and fields <= set(entry.match)


def move(ports: Iterable[int], dark: float) -> bytes:
    """The order that these ports go dark, at once and for `dark` s; without ports a question."""
    numbers = list(ports)
    body = struct.pack(f"!Q{len(numbers)}I", round(dark * 1e9), *numbers)
    return _experiment(MOVE, body)


def lost(counted: Mapping[int, int]) -> bytes:
    """The answer to `move`: bytes that ever met the dark, by in-port."""
    return _experiment(LOST, b"".join(struct.pack("!QQ", *one) for one in counted.items()))


def is_move(wire: bytes) -> bool:
    """Whether a message is a `move`."""
    return wire[1] == EXPERIMENTER and struct.unpack_from("!II", wire, 8) == (PROJECT, MOVE)


def decode_move(wire: bytes) -> tuple[tuple[int, ...], float]:
    """The ports and the s of a `move`."""
    ns, *ports = struct.unpack_from(f"!Q{(len(wire) - 24) // 4}I", wire, 16)
    return tuple(ports), ns / 1e9


def lost_of(told: Any) -> dict[int, int] | None:
    """Bytes by in-port of a `lost`, an OFPExperimenter of Ryu or os-ken; None: something else."""
    if (told.experimenter, told.exp_type) != (PROJECT, LOST):
        return None
    return dict(struct.iter_unpack("!QQ", told.data))


def _experiment(kind: int, body: bytes) -> bytes:
    head = struct.pack("!BBHIII", VERSION, EXPERIMENTER, 16 + len(body), 0, PROJECT, kind)
    return head + body


def role(wanted: int, generation: int) -> bytes:
    """The request to be MASTER, the one controller that may change a switch, or SLAVE.

    generation: how many masters there were; a switch refuses one that is older than it has seen.
    """
    return struct.pack("!BBHII4xQ", VERSION, ROLE_REQUEST, 24, 0, wanted, generation)


def unreachable(src: str, dst: str, address: Address) -> bytes:
    """The flow-mod that drops a pair for a second, so that a pair without a path does not ask at
    its full rate.
    """
    return _flow_mod(
        ADD, UNREACHABLE_PRIORITY, _match(("pair", src, dst), address), hard_timeout=UNREACHABLE_S
    )


def _match(match: tuple, address: Address) -> bytes:
    kind, *values = match
    if kind == "port":
        return _oxm((IN_PORT, struct.pack("!I", values[0])))
    fields = (IPV4_DST,) if kind == "to" else (IPV4_SRC, IPV4_DST)
    hosts = ((f, socket.inet_aton(address(h))) for f, h in zip(fields, values, strict=True))
    return _oxm((ETH_TYPE, struct.pack("!H", IPV4)), *hosts)


def _oxm(*fields: tuple[int, bytes]) -> bytes:
    body = b"".join(
        struct.pack("!HBB", OPENFLOW_BASIC, field << 1, len(value)) + value
        for field, value in fields
    )
    size = 4 + len(body)
    return struct.pack("!HH", 1, size) + body + bytes(-size % 8)


def _output(port: int, max_len: int = MAX_LEN) -> bytes:
    """One apply-actions instruction with one output action."""
    return struct.pack("!HH4xHHIH6x", 4, 24, 0, 16, port, max_len)


def _flow_mod(
    command: int,
    priority: int,
    match: bytes,
    instructions: bytes = b"",
    cookie: int = 0,
    table: int = 0,
    hard_timeout: int = 0,
) -> bytes:
    body = struct.pack(
        "!QQBBHHHIIIH2x",
        cookie,
        0,
        table,
        command,
        0,
        hard_timeout,
        priority,
        NO_BUFFER,
        ANY,
        ANY,
        0,
    )
    size = 8 + len(body) + len(match) + len(instructions)
    return struct.pack("!BBHI", VERSION, FLOW_MOD, size, 0) + body + match + instructions


def decode(wire: bytes) -> tuple[int, Entry]:
    """The command and the entry of a flow-mod as it is packed here. ValueError where it is none."""
    version, kind, size = struct.unpack_from("!BBH", wire)
    if (version, kind, size) != (VERSION, FLOW_MOD, len(wire)):
        raise ValueError(f"not one OpenFlow 1.3 flow-mod of {len(wire)} bytes: {wire[:8].hex()}")
    cookie, command, priority = struct.unpack_from("!Q9xB4xH", wire, 8)
    match, rest = _matched(wire, 48)
    out = struct.unpack_from("!I", wire, rest + 12)[0] if len(wire) > rest else None
    return command, Entry(priority, match, out, cookie)


def _matched(data: bytes, at: int) -> tuple[tuple[tuple[str, int | str], ...], int]:
    """The match that begins there, and where it ends."""
    size = struct.unpack_from("!2xH", data, at)[0]
    return tuple(_fields(data[at + 4 : at + size])), at + size + -size % 8


def entry_of(told: Any) -> Entry:
    """A flow as Ryu and os-ken tell it (OFPFlowStats)."""
    match = {FIELDS.get(name, f"foreign {name}"): value for name, value in told.match.items()}
    known = {name: match.pop(name) for name in NAMES.values() if name in match}
    fields = tuple({**known, **match}.items())
    return Entry(told.priority, fields, _leads_to(told), told.cookie)


def entries_of(told: bytes) -> Iterator[Entry]:
    """The flows in one message of an answer to `ask_flows`, but for those that match fields which
    nothing here does.
    """
    at = 16
    while at < len(told):
        size, priority, cookie = struct.unpack_from("!H10xH10xQ", told, at)
        with contextlib.suppress(KeyError):
            match, end = _matched(told, at + 48)
            out = struct.unpack_from("!I", told, end + 12)[0] if at + size > end else None
            yield Entry(priority, match, out, cookie)
        at += size


def refused(error: bytes) -> Entry | None:
    """What a switch would not take, of the message in which it says so, without where it would
    lead; None where that was no flow-mod.
    """
    if len(error) < 76 or error[13] != FLOW_MOD:  # it cites 64 bytes at least
        return None
    return Entry(struct.unpack_from("!H", error, 42)[0], _matched(error, 60)[0], None)


def _leads_to(told: Any) -> int | None:
    """The port a flow leads to; None where it leads nowhere."""
    return next(
        (
            a.port
            for i in told.instructions
            for a in getattr(i, "actions", ())
            if hasattr(a, "port")
        ),
        None,
    )


def _fields(data: bytes) -> Iterable[tuple[str, int | str]]:
    while data:
        name, size = NAMES[data[2] >> 1], data[3]
        value = data[4 : 4 + size]
        yield (
            name,
            socket.inet_ntoa(value) if name in ("src", "dst") else int.from_bytes(value, "big"),
        )
        data = data[4 + size :]


def _value(name: str, value: int | str) -> bytes:
    if isinstance(value, str):
        return socket.inet_aton(value)
    return value.to_bytes(2 if name == "eth_type" else 4, "big")

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
"""

import socket
import struct
from collections.abc import Callable

from ..routing import Rule

VERSION, FLOW_MOD, MULTIPART_REQUEST, PORT_STATS = 4, 14, 18, 4
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

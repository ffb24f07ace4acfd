"""The few bytes of Ethernet, ARP and IPv4 the controller reads and writes itself (RFC 826, RFC
791).
"""

import socket
import struct
from dataclasses import dataclass

from ..fabric import Fabric, host_ip, host_mac
from .flowmods import ARP, IPV4

ARP_REQUEST, ARP_REPLY = 1, 2


@dataclass(frozen=True)
class Packet:
    """What the controller needs of a frame: kind and IPv4 addresses, for ARP the sender's and the
    one asked for.
    """

    kind: int
    src: str
    dst: str
    src_mac: bytes
    request: bool = False


def parse(frame: bytes) -> Packet | None:
    """An IPv4 packet or an ARP message; None for everything else and for what is cut short."""
    if len(frame) < 34:
        return None
    kind = struct.unpack_from("!H", frame, 12)[0]
    if kind == IPV4:
        return Packet(
            kind, socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34]), frame[6:12]
        )
    if kind == ARP and len(frame) >= 42:
        request = struct.unpack_from("!H", frame, 20)[0] == ARP_REQUEST
        return Packet(
            kind,
            socket.inet_ntoa(frame[28:32]),
            socket.inet_ntoa(frame[38:42]),
            frame[22:28],
            request,
        )
    return None


def arp_reply(mac: str, ip: str, to_mac: bytes, to_ip: str) -> bytes:
    """`ip` is at `mac`, told to the one who asked."""
    own = bytes.fromhex(mac.replace(":", ""))
    head = to_mac + own + struct.pack("!H", ARP)
    body = (
        struct.pack("!HHBBH", 1, IPV4, 6, 4, ARP_REPLY)
        + own
        + socket.inet_aton(ip)
        + to_mac
        + socket.inet_aton(to_ip)
    )
    return head + body + bytes(60 - len(head) - len(body))  # the least Ethernet frame


class Hosts:
    """Who has which address."""

    def __init__(self, fabric: Fabric):
        self._by_ip = {host_ip(i): (h, host_mac(i)) for i, h in enumerate(fabric.hosts)}

    def name(self, ip: str) -> str | None:
        """The host at `ip`."""
        return self._by_ip[ip][0] if ip in self._by_ip else None

    def mac(self, ip: str) -> str | None:
        """The MAC address of the host at `ip`."""
        return self._by_ip[ip][1] if ip in self._by_ip else None

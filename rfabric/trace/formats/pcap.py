"""Packet captures, pcap and pcapng: conversations become flows.

Packets of one way of a 5-tuple (addresses, protocol, ports) are one flow, until nothing came for
`gap` seconds: then a new one begins. Its bytes are those of the packets on the wire, with all
headers, as the capture says (not cut to what it kept); it starts with its first packet. Flows of
less than `threshold` bytes are left out, and so is what goes to many hosts at once (multicast,
broadcast, an address that got a broadcast and never sends). Addresses are hosts in the order in
which they first appear, the first is h1, unless the file of the network has them. A packet that is
captured at several places, such as by `tcpdump -i any` on a machine that forwards it, counts each
time; a note tells it by its number.

    setting     default
    gap         1s        nothing for so long ends a flow
    threshold   0B        least bytes of a flow
"""

from collections import Counter
from pathlib import Path
from socket import AF_INET, AF_INET6, inet_ntop

from ...errors import RFabricError
from ...units import parse_size, parse_time
from ..builder import TraceBuilder
from ..model import Trace
from ..recorded import tell
from .base import TraceFormat
from .pcap_packets import packets_of

PCAP_MAGIC = (b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1")
NG_MAGIC, NG_ORDER = b"\x0a\x0d\x0d\x0a", (b"\x1a\x2b\x3c\x4d", b"\x4d\x3c\x2b\x1a")
# link type: where its EtherType stands; LINKTYPE_ numbers of tcpdump.org
ETHERTYPE_AT = {1: 12, 113: 14, 276: 0}
# link type: where and how its header says that a packet goes to all: an address, a type of packet
TO_ALL = {1: (0, b"\xff" * 6), 113: (0, b"\x00\x01"), 276: (10, b"\x01")}
PAST = {276: 20}  # bytes of the header where IP does not follow the EtherType
RAW_IP = (12, 14, 101, 228, 229)
IPV4, IPV6 = b"\x08\x00", b"\x86\xdd"
VLAN = (b"\x81\x00", b"\x88\xa8", b"\x91\x00")
EXTENSIONS = (0, 43, 60)  # headers of IPv6 before the ports: hop by hop, routing, destination
FRAGMENT = 44
WITH_PORTS = (6, 17, 132)  # TCP, UDP, SCTP
OTHER = "packets that are not of IP dropped"
TO_MANY = "packets to many hosts (multicast, broadcast) dropped"
LATER = "later fragments counted to a flow without ports"
AGAIN = "packets again, as of captures at several places: each counts; `editcap -d` leaves one"
NEAR = 1 << 16  # packets among which copies are sought
TIMELESS = "packets without a time (simple packet blocks) put at that of the packet before"


def _read(path: Path, threshold: str = "0", gap: str = "1s") -> Trace:
    least = parse_size(threshold, "threshold", bare=True)
    pause = parse_time(gap, "gap")
    talks, counts, before, many = _Talks(pause), Counter(), 0.0, set[bytes]()
    seen: dict[bytes, None] = {}
    for link, data, wire, told in packets_of(path):
        counts["packets"] += 1
        counts[TIMELESS] += told is None
        time = before = before if told is None else told
        key = _tuple_of(link, data, counts)
        if key and _to_many(link, data, _hosts(key)[1]):
            counts[TO_MANY] += 1
            many.add(_hosts(key)[1])
        elif key:
            talks.add(key, time, wire)
            counts[AGAIN] += _is_copy(data, _ip_at(link, data), seen)
    flows = _to_one(talks.all(), many, counts)
    return _trace(path, flows, counts, least, f"gap {gap}, threshold {threshold}")


class _Talks:
    """Conversations, each way for itself: (5-tuple, first, last, bytes, packets)."""

    def __init__(self, gap: float):
        self.gap, self.open, self.closed = gap, {}, []

    def add(self, key: bytes, time: float, size: int) -> None:
        one = self.open.get(key)
        if one is None:
            self.open[key] = [key, time, time, size, 1]
        elif time - one[2] > self.gap or one[1] - time > self.gap:  # captures one behind another
            self.closed.append(one)
            self.open[key] = [key, time, time, size, 1]
        else:
            one[1], one[2] = min(one[1], time), max(one[2], time)
            one[3] += size
            one[4] += 1

    def all(self) -> list[list]:
        """Every flow, by its start."""
        return sorted((*self.closed, *self.open.values()), key=lambda one: one[1])


def _trace(path: Path, flows: list[list], counts: Counter, least: float, how: str) -> Trace:
    between = [one for one in flows if _hosts(one[0])[0] != _hosts(one[0])[1]]
    kept = [one for one in between if one[3] >= least]
    if not kept:
        raise RFabricError(_no_flow(counts, flows, between, least))
    index: dict[bytes, int] = {}
    ends = [[index.setdefault(h, len(index)) for h in _hosts(one[0])] for one in kept]
    first, sizes = kept[0][1], [one[3] for one in kept]
    builder = TraceBuilder([f"h{i + 1}" for i in range(len(index))])
    for (src, dst), (key, start, _, size, _) in zip(ends, kept, strict=True):
        builder.flows([src], [dst], size, start=start - first, label=_protocol(key))
    packets = counts.pop("packets")
    small = len(flows) - len(kept)
    lost = sum(one[3] for one in flows) - sum(sizes)
    notes = [f"{packets} packets aggregated to {len(flows)} flows ({how})"]
    notes += [f"{small} flows ({lost} bytes) below the threshold or to itself dropped"] * (
        small > 0
    )
    notes += [f"{count} {what}" for what, count in counts.items() if count]
    span = max(one[2] for one in kept) - first
    told = {
        "source": path.name,
        "format": "pcap",
        "understood": f"{len(kept)} flows, {sum(sizes)} bytes, {len(index)} hosts, {span:g} s",
        "notes": notes,
    }
    tell(told)
    addresses = {f"h{i + 1}": _address(raw) for raw, i in index.items()}
    return builder.build(provenance=told | {"hosts": addresses})


def _no_flow(counts: Counter, flows: list, between: list, least: float) -> str:
    """Why a capture holds no flow, and the way out."""
    packets = counts.pop("packets", 0)
    said = [f"{count} {what}" for what, count in counts.items() if count]
    said += [f"{len(flows) - len(between)} conversations of a host with itself"] * (
        len(flows) > len(between)
    )
    if between:
        most = max(one[3] for one in between)
        said += [
            f"{len(between)} conversations, the largest of {most} bytes, are below {least:g}; "
            "lower threshold"
        ]
    return f"holds no flow: {packets} packets; {'; '.join(said) or 'capture while hosts send'}"


def _to_many(link: int, data: bytes, dst: bytes) -> bool:
    """Whether a packet goes to many: by its IP address, or by the header before it, which says so
    of a subnet's broadcast too. A unicast IP address may have a multicast one of Ethernet (NLB).
    """
    first = dst[0] == 255 if len(dst) == 16 else 224 <= dst[0] < 240 or dst == b"\xff" * 4
    at, told = TO_ALL.get(link, (0, b""))
    return first or bool(told) and data[at : at + len(told)] == told


def _to_one(flows: list[list], many: set[bytes], counts: Counter) -> list[list]:
    """Without the flows to those of `many`, which got packets to many, that send nothing as a host
    does: of what its own machine sends a cooked capture does not say whether it goes to all.
    """
    silent = many - {_hosts(one[0])[0] for one in flows}
    counts[TO_MANY] += sum(one[4] for one in flows if _hosts(one[0])[1] in silent)
    return [one for one in flows if _hosts(one[0])[1] not in silent]


def _tuple_of(link: int, data: bytes, counts: Counter) -> bytes:
    """Addresses, protocol and ports of a packet; none for what is not of IP."""
    at = _ip_at(link, data)
    version = data[at] >> 4 if 0 <= at < len(data) else 0
    if version == 4 and len(data) >= at + 20:
        protocol, ports = data[at + 9], at + 4 * (data[at] & 15)
        key = data[at + 12 : at + 20] + bytes((protocol,))
        if (data[at + 6] & 31) or data[at + 7]:
            counts[LATER] += 1
            return key
    elif version == 6 and len(data) >= at + 40:
        protocol, ports, later = _past_extensions(data, at)
        key = data[at + 8 : at + 40] + bytes((protocol,))
        if later:
            counts[LATER] += 1
            return key
    else:
        counts[OTHER] += 1
        return b""
    return key + data[ports : ports + 4] if protocol in WITH_PORTS else key


def _is_copy(data: bytes, at: int, seen: dict[bytes, None]) -> bool:
    """Whether a packet of IPv4 is among those lately `seen`, and note it there: by its number, of
    which 0 is none, and all that routers leave as it is, to the number of TCP's bytes.
    """
    if data[at] >> 4 != 4 or data[at + 4 : at + 6] == b"\0\0":
        return False
    ports = at + 4 * (data[at] & 15)
    own = data[at + 2 : at + 8] + data[at + 9 : at + 10] + data[at + 12 : at + 20]
    own += data[ports : ports + 12]
    if own in seen:
        return True
    seen[own] = None
    if len(seen) > NEAR:
        del seen[next(iter(seen))]
    return False


def _past_extensions(data: bytes, at: int) -> tuple[int, int, bool]:
    """The protocol that IPv6 carries, where it begins, and whether this is a later fragment."""
    protocol, at = data[at + 6], at + 40
    while protocol in (*EXTENSIONS, FRAGMENT) and at + 8 <= len(data):
        if protocol == FRAGMENT and int.from_bytes(data[at + 2 : at + 4], "big") >> 3:
            return data[at], at + 8, True
        long = 0 if protocol == FRAGMENT else data[at + 1]  # of 8 bytes, but the first
        protocol, at = data[at], at + 8 * (long + 1)
    return protocol, at, False


def _ip_at(link: int, data: bytes) -> int:
    """Where the IP header begins; -1: nowhere."""
    if link in RAW_IP:
        return 0
    at = ETHERTYPE_AT.get(link)
    if at is None:
        raise RFabricError(
            f"link type {link} is not known; there are Ethernet (1), Linux cooked (113, 276) and "
            "raw IP (101): capture on a NIC"
        )
    while (kind := data[at : at + 2]) in VLAN:
        at += 4
    return PAST.get(link, at + 2) if kind in (IPV4, IPV6) else -1


def _hosts(key: bytes) -> tuple[bytes, bytes]:
    long = 16 if len(key) >= 33 else 4
    return key[:long], key[long : 2 * long]


def _address(raw: bytes) -> str:
    return inet_ntop(AF_INET6 if len(raw) == 16 else AF_INET, raw)


def _protocol(key: bytes) -> str:
    number = key[2 * len(_hosts(key)[0])]
    return {6: "tcp", 17: "udp", 132: "sctp"}.get(number, f"protocol {number}")


def _sniff(head: bytes) -> bool:
    return head[:4] in PCAP_MAGIC or (head[:4] == NG_MAGIC and head[8:12] in NG_ORDER)


PCAP = TraceFormat(
    "pcap", "packet captures, pcap and pcapng: a conversation each way a flow; settings "
    "threshold=0, gap=1s",
    (".pcap", ".pcapng", ".cap"), _sniff, _read,
)  # fmt: skip

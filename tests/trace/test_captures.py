"""Packet captures as people have them: packets to many hosts, captures without a flow."""

import gzip
import struct

import pytest

from rfabric.errors import RFabricError
from rfabric.trace.formats.pcap import PCAP

pytest.importorskip("scapy")
SOME, ALL = b"\x02\0\0\0\0\1", b"\xff" * 6


def packet(src, dst, mac=SOME, kind=b"\x08\0"):
    """A frame of UDP between two addresses."""
    told = struct.pack("!BBHHHBBH", 0x45, 0, 28, 0, 0, 64, 17, 0)
    ends = bytes(map(int, f"{src}.{dst}".split(".")))
    return mac + SOME + kind + told + ends + struct.pack("!HHHH", 1, 2, 8, 0)


def packet6(dst):
    told = struct.pack("!BBHHBB", 0x60, 0, 0, 8, 17, 64) + bytes(15) + b"\1" + dst
    return SOME + SOME + b"\x86\xdd" + told + struct.pack("!HHHH", 1, 2, 8, 0)


def capture(path, *frames, link=1):
    told = (struct.pack("<IIII", 5, i, len(f), len(f)) + f for i, f in enumerate(frames))
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 96, link) + b"".join(told))
    return path


def test_who_is_sent_to_with_many_others_is_no_host(tmp_path):
    many = [packet("10.0.0.1", "224.0.0.251"), packet("10.0.0.1", "255.255.255.255"),
            packet("10.0.0.1", "10.0.0.255", ALL), packet6(b"\xff\2" + bytes(14))]  # fmt: skip
    trace = PCAP.read(capture(tmp_path / "t.pcap", *many, packet("10.0.0.1", "10.0.0.2")))
    assert trace.hosts == ("h1", "h2") and trace.size.tolist() == [42]
    assert "4 packets to many hosts (multicast, broadcast) dropped" in trace.provenance["notes"]


def test_a_host_with_a_multicast_address_of_ethernet_is_one(tmp_path):
    """As clusters of Windows' network load balancing have it, whose IP address is one host's."""
    frame = packet("10.0.0.9", "10.0.0.1", bytes.fromhex("0100bf0a0001"))
    trace = PCAP.read(capture(tmp_path / "t.pcap", frame))
    assert trace.size.tolist() == [42] and trace.provenance["hosts"]["h2"] == "10.0.0.1"


def cooked(link, kind, frame):
    """A frame's IP behind a header of Linux: kind 0 is to this machine, 1 to all, 4 from it."""
    if link == 113:
        return struct.pack("!HHH8sH", kind, 1, 6, bytes(8), 0x800) + frame[14:]
    return struct.pack("!HHIHBB8s", 0x800, 0, 2, 1, kind, 6, bytes(8)) + frame[14:]


@pytest.mark.parametrize("link", [113, 276])
def test_the_broadcast_of_a_cooked_capture_is_no_host(tmp_path, link):
    """Nor where this machine sends to it, of which the header says no more than that."""
    one = [cooked(link, 4, packet("10.0.0.2", "10.0.0.255"))]
    one += [cooked(link, 0, packet("10.0.0.1", "10.0.0.2"))]
    one += [cooked(link, 1, packet("10.0.0.1", ip)) for ip in ("10.0.0.255", "10.0.0.2")]
    trace = PCAP.read(capture(tmp_path / "t.pcap", *one, link=link))
    assert trace.provenance["hosts"] == {"h1": "10.0.0.1", "h2": "10.0.0.2"}
    assert "3 packets to many hosts (multicast, broadcast) dropped" in trace.provenance["notes"]


@pytest.mark.parametrize("frames, why", [
    ([packet("10.0.0.1", "10.0.0.2", kind=b"\x08\6")] * 3, "3 packets; 3 packets that are not of"),
    ([packet("10.0.0.1", "10.0.0.1")] * 2, "1 conversations of a host with itself"),
    ([packet("10.0.0.1", "224.0.0.5")], "1 packets to many hosts"),
    ([], "0 packets; capture while hosts send"),
])  # fmt: skip
def test_a_capture_without_a_flow_says_why(tmp_path, frames, why):
    with pytest.raises(RFabricError, match=f"holds no flow: .*{why}") as error:
        PCAP.read(capture(tmp_path / "t.pcap", *frames))
    assert "lower threshold" not in str(error.value)


def test_a_threshold_above_all_flows_says_the_largest(tmp_path):
    path = capture(tmp_path / "t.pcap", *[packet("10.0.0.1", "10.0.0.2")] * 3)
    with pytest.raises(RFabricError, match="the largest of 126 bytes, are below 1000; lower thr"):
        PCAP.read(path, threshold="1kB")


@pytest.mark.parametrize("newer", [False, True])
def test_nanoseconds_are_kept(tmp_path, newer):
    """Of a day of ours, too: a float of seconds since 1970 holds no less than 240 ns."""
    frame, at = THERE, (999_999_900, 1_000_000_000)
    back, second = BACK, 1_760_000_000
    if newer:
        told = section() + interface(9)
        for one, time in zip((frame, back), at, strict=True):
            told += sent(one, second * 10**9 + time)
    else:
        told = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 96, 1)
        for one, time in zip((frame, back), at, strict=True):
            whole, part = divmod(time, 10**9)
            told += struct.pack("<IIII", second + whole, part, len(one), len(one)) + one
    (tmp_path / "t.pcap").write_bytes(told)
    assert PCAP.read(tmp_path / "t.pcap").start.tolist() == pytest.approx([0, 1e-7], rel=1e-6)


def block(kind, body, order="<"):
    """A block of pcapng."""
    body += bytes(-len(body) % 4)
    size = struct.pack(f"{order}I", len(body) + 12)
    return struct.pack(f"{order}I", kind) + size + body + size


def section(order="<"):
    return block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(resolution=6, offset=0, order="<"):
    options = struct.pack(f"{order}HHBxxx", 9, 1, resolution)
    options += struct.pack(f"{order}HHq", 14, 8, offset)
    return block(1, struct.pack(f"{order}HHI", 1, 0, 0) + options + bytes(4), order)


def sent(frame, ticks, number=0, order="<"):
    told = struct.pack(f"{order}IIIII", number, *divmod(ticks, 1 << 32), *[len(frame)] * 2)
    return block(6, told + frame, order)


THERE, BACK = packet("10.0.0.1", "10.0.0.2"), packet("10.0.0.2", "10.0.0.1")


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("resolution, ticks", [(6, 10**6), (9, 10**9), (0, 1), (0x80 + 10, 1024)])
def test_each_interface_has_a_clock_of_its_own(tmp_path, order, resolution, ticks):
    """In units of 10 or 2, from an offset, in sections of either byte order: 0.5 s later, or 1 s
    where the clock has whole seconds.
    """
    later = 1_760_000_001 * ticks if ticks == 1 else 1_760_000_000 * ticks + ticks // 2
    told = section() + interface(6) + sent(THERE, 1_760_000_000 * 10**6)
    other = interface(6, 0, order) + interface(resolution, -3600, order)
    told += section(order) + other + sent(BACK, later + 3600 * ticks, 1, order)
    (tmp_path / "t.pcapng").write_bytes(told)
    assert PCAP.read(tmp_path / "t.pcapng").start.tolist() == [0, 1 if ticks == 1 else 0.5]


@pytest.mark.parametrize("cut", [2, 4, 8, 20, -1])
def test_a_capture_that_ends_within_a_block_is_refused(tmp_path, cut):
    """At whatever byte, of which scapy tells some alone; or with a length that cannot be."""
    whole = section() + interface() + sent(THERE, 1)
    left = sent(BACK, 2)[:cut] if cut > 0 else sent(BACK, 2)[:-4] + bytes(4) + sent(THERE, 3)
    (tmp_path / "t.pcapng").write_bytes(whole + left)
    with pytest.raises(RFabricError, match="after packet 1: the file ends early, or what follows"):
        PCAP.read(tmp_path / "t.pcapng")


def test_a_packed_capture_that_ends_early_is_refused(tmp_path):
    frames = [packet("10.0.0.1", f"10.0.{i}.{j}") for i in range(99) for j in range(1, 99)]
    whole = gzip.compress(capture(tmp_path / "t.pcap", *frames).read_bytes())
    (tmp_path / "t.pcap.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RFabricError, match="cannot be read after byte .* ended before"):
        PCAP.read(tmp_path / "t.pcap.gz")


def test_a_packet_of_no_interface_is_refused(tmp_path):
    (tmp_path / "t.pcapng").write_bytes(section() + interface() + sent(THERE, 1, 1))
    with pytest.raises(RFabricError, match="after packet 0: the next is of interface 1, which is"):
        PCAP.read(tmp_path / "t.pcapng")


def test_packets_captured_at_several_places_are_said(tmp_path):
    """Two hosts' captures merged: the bytes of each packet count twice, as copies differ in their
    TTL alone. Packets without a number may be sent alike.
    """
    one = [packet("10.0.0.1", "10.0.0.2") for _ in range(3)]
    one = [f[:18] + struct.pack("!H", n) + f[20:] for n, f in enumerate(one, 1)]
    routed = [f[:22] + b"\x3f" + f[23:] for f in one]
    both = [f for pair in zip(one, routed, strict=True) for f in pair]
    for frames, copies in ((one, 0), (both, 3), ([packet("10.0.0.1", "10.0.0.2")] * 3, 0)):
        trace = PCAP.read(capture(tmp_path / "t.pcap", *frames))
        assert trace.size.sum() == 42 * len(frames)
        said = [n for n in trace.provenance["notes"] if "captures at several places" in n]
        assert [n.partition(" ")[0] for n in said] == ["3"] * (copies > 0)

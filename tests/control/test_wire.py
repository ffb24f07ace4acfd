"""Messages byte by byte, as the specifications lay them out: OpenFlow 1.3 (ONF TS-006) and ARP (RFC
826). Nothing here is computed by what it checks, and no framework is needed.
"""

import socket
from types import SimpleNamespace

import pytest

from rfabric.control import flowmods, frames
from rfabric.control.flowmods import Entry, decode
from rfabric.routing import Rule

NONE_OF_THEM = "ffffffff " * 3  # buffer, out port, out group
IN_PORT_3 = "0001 000c  8000 00 04 00000003  00000000"
ANYTHING = "0001 0004  00000000"
CIRCUIT = Rule("a1", ("port", 3), 7, 100)


def octets(*words: str) -> bytes:
    return bytes.fromhex("".join("".join(words).split()))


def address(host: str) -> str:
    return {"h1": "10.0.0.1", "h2": "10.0.1.2"}[host]


def flow_mod(length: str, cookie: str, table: str, command: str, hard: str, priority: str) -> str:
    """The header and what precedes the match; idle time-out, cookie mask and flags are 0."""
    head = f"04 0e {length} 00000000  {cookie:0>16} {'0' * 16}"
    return f"{head} {table} {command} 0000 {hard} {priority} {NONE_OF_THEM} 0000 0000 "


def to_port(port: str, most: str) -> str:
    """Apply-actions with one output."""
    return f"0004 0018 00000000  0000 0010 {port} {most} 000000000000"


FLOW_MODS = [
    (
        flowmods.add(CIRCUIT, address, epoch=5),
        [flow_mod("0058", "5", "00", "00", "0000", "0064"), IN_PORT_3, to_port("00000007", "ffe5")],
    ),
    (
        flowmods.delete(CIRCUIT, address),
        [flow_mod("0040", "0", "00", "04", "0000", "0064"), IN_PORT_3],
    ),
    (
        flowmods.strike(Entry(100, (("in_port", 3),), 7, 5)),
        [flow_mod("0040", "0", "00", "04", "0000", "0064"), IN_PORT_3],
    ),
    (flowmods.delete_all(), [flow_mod("0038", "0", "ff", "03", "0000", "0000"), ANYTHING]),
    (
        flowmods.unreachable("h1", "h2", address),
        [
            flow_mod("0050", "0", "00", "00", "0001", "0096"),
            "0001 001a  8000 0a 02 0800  8000 16 04 0a000001  8000 18 04 0a000102  000000000000",
        ],
    ),
    (
        flowmods.add(Rule("t1", ("to", "h2"), 4, 300), address),
        [
            flow_mod("0060", "0", "00", "00", "0000", "012c"),
            "0001 0012  8000 0a 02 0800  8000 18 04 0a000102  000000000000",
            to_port("00000004", "ffe5"),
        ],
    ),
]


@pytest.mark.parametrize(("wire", "laid_out"), FLOW_MODS)
def test_flow_mods_are_laid_out_as_specified(wire, laid_out):
    assert wire == octets(*laid_out)


def test_what_a_switch_holds_besides_rules():
    miss = octets(flow_mod("0038", "3", "00", "00", "0000", "0000"), ANYTHING)
    ask = to_port("fffffffd", "ffff")  # the controller, the whole packet
    arp, ip = (
        octets(
            flow_mod("0058", "3", "00", "00", "0000", priority),
            f"0001 000a  8000 0a 02 {kind}  000000000000",
            ask,
        )
        for priority, kind in (("0001", "0806"), ("0002", "0800"))
    )
    assert flowmods.base("eps", 3) == [miss, arp, ip] and flowmods.base("ocs", 3) == [miss]


def test_questions_and_roles_are_laid_out_as_specified():
    flows = "04 12 {} 00000000  0001 0000 00000000  ff 000000 ffffffff ffffffff 00000000 {} {} {}"
    no = "0" * 16
    assert flowmods.ask_flows() == octets(flows.format("0038", no, no, ANYTHING))
    five = f"{5:016x}"
    assert flowmods.ask_flows(cookie=5) == octets(flows.format("0038", five, "f" * 16, ANYTHING))
    assert flowmods.ask_flows(port=3) == octets(flows.format("0040", no, no, IN_PORT_3))
    ports = "04 12 0018 00000000  0004 0000 00000000  ffffffff 00000000"
    assert flowmods.count_ports() == octets(ports)
    for role, number in ((flowmods.MASTER, 2), (flowmods.SLAVE, 3)):
        told = f"04 18 0018 00000000  {number:08x} 00000000 {7:016x}"
        assert flowmods.role(role, 7) == octets(told)


def test_orders_to_who_times_its_dark_itself_are_experimenter_messages():
    half = f"{500_000_000:016x}"
    move = octets("04 04 0020 00000000  00025246 00000001 ", half, " 00000001 00000002")
    assert flowmods.move([1, 2], 0.5) == move and flowmods.decode_move(move) == ((1, 2), 0.5)
    assert flowmods.move((), 0.0) == octets("04 04 0018 00000000  00025246 00000001", "0" * 16)
    lost = octets(f"04 04 0020 00000000  00025246 00000002  {3:016x} {9:016x}")
    assert flowmods.lost({3: 9}) == lost
    assert flowmods.is_move(move) and not flowmods.is_move(lost)
    assert not flowmods.is_move(octets(*FLOW_MODS[0][1]))
    for experimenter, kind, known in ((0x025246, 2, {3: 9}), (0x025246, 1, None), (1, 2, None)):
        told = SimpleNamespace(experimenter=experimenter, exp_type=kind, data=lost[16:])
        assert flowmods.lost_of(told) == known


def test_flow_mods_are_read_as_they_are_laid_out():
    add, delete, _, wipe, drop, to = (octets(*laid_out) for _, laid_out in FLOW_MODS)
    circuit, pair = (("in_port", 3),), (("eth_type", 0x800), ("src", "10.0.0.1"))
    assert decode(add) == (0, Entry(100, circuit, 7, 5))
    assert decode(delete) == (4, Entry(100, circuit, None))
    assert decode(wipe) == (3, Entry(0, (), None))
    assert decode(drop) == (0, Entry(150, (*pair, ("dst", "10.0.1.2")), None))
    assert decode(to) == (0, Entry(300, (("eth_type", 0x800), ("dst", "10.0.1.2")), 4))


def test_flows_that_a_switch_tells_are_read_as_they_are_laid_out():
    """One that leads to a port, one that matches what nothing here does, one that drops."""

    def stats(length: str, priority: str, cookie: str, *rest: str) -> str:
        times = f"00000001 00000002 {priority} 0000 0000 0000 00000000"
        counted = f"{11:016x} {12:016x}"
        return f"{length} 00 00 {times} {cookie:0>16} {counted}" + "".join(rest)

    metadata = "0001 0010  8000 04 08 0000000000000001"  # field 2; 16 bytes, none to fill up
    told = octets(
        "04 13 0000 00000000  0001 0000 00000000",
        stats("0058", "0064", "5", IN_PORT_3, to_port("00000007", "ffe5")),
        stats("0040", "0001", "6", metadata),
        stats("0038", "0000", "3", ANYTHING),
    )
    circuit = Entry(100, (("in_port", 3),), 7, 5)
    assert list(flowmods.entries_of(told)) == [circuit, Entry(0, (), None, 3)]


def test_what_a_switch_refuses_is_read_of_the_message_it_cites():
    cited = octets(*FLOW_MODS[0][1])
    error = octets("04 01 0000 00000000  0005 0001") + cited  # flow-mod failed, table full
    assert flowmods.refused(error) == Entry(100, (("in_port", 3),), None)
    assert flowmods.refused(error[:76]) == Entry(100, (("in_port", 3),), None)
    assert flowmods.refused(error[:75]) is None
    assert flowmods.refused(error[:12] + flowmods.role(2, 7) + bytes(64)) is None


# --- ARP ------------------------------------------------------------------------------------------

WHO = octets(
    "ffffffffffff 020000000001 0806  0001 0800 06 04 0001 ",
    "020000000001 0a000001  000000000000 0a000102",
)


def test_who_asks_for_an_address_gets_the_reply_of_the_specification():
    asked = frames.parse(WHO)
    assert (asked.kind, asked.src, asked.dst) == (0x806, "10.0.0.1", "10.0.1.2")
    assert asked.request and asked.src_mac == octets("020000000001")
    reply = octets(
        "020000000001 020000000002 0806  0001 0800 06 04 0002 ",
        "020000000002 0a000102  020000000001 0a000001",
    )
    made = frames.arp_reply("02:00:00:00:00:02", asked.dst, asked.src_mac, asked.src)
    assert made == reply + bytes(18) and len(made) == 60  # the least Ethernet frame
    assert not frames.parse(made).request


def test_frames_are_read_from_the_byte_on_where_all_is_there():
    ip = octets("020000000002 020000000001 0800  45") + bytes(11)
    ip += socket.inet_aton("10.0.0.1") + socket.inet_aton("10.0.1.2")
    packet = frames.parse(ip)
    assert (packet.kind, packet.src, packet.dst) == (0x800, "10.0.0.1", "10.0.1.2")
    assert packet.src_mac == octets("020000000001") and not packet.request
    for frame, least in ((ip, 34), (WHO, 42)):
        assert len(frame) == least and frames.parse(frame) is not None
        assert frames.parse(frame[:-1]) is None

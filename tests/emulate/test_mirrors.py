"""The mirrors of emulated OCSes: what they hear, and what light they make of it."""

import asyncio
import random
import socket
import struct

import pytest

from rfabric.control import flowmods, seam
from rfabric.control.fake import apply
from rfabric.emulate import crossbar, mirrors
from rfabric.emulate.mirrors import Mirrors, SwitchConnection, join
from rfabric.emulate.network import MIRRORS_PORT, EmulatedNetwork
from rfabric.fabric import fat_tree, rfabric
from rfabric.routing import Rule

PORTS = {n: f"o1-eth{n}" for n in range(1, 7)}
DPID = 0x21


class Light:
    """A crossbar that remembers what it was told."""

    def __init__(self):
        self.leads, self.dark, self.met = {}, {}, {}

    def lead(self, interface, to):
        self.leads[interface] = to

    def darken(self, interface, seconds):
        self.dark[interface] = seconds

    def lost(self, interface):
        return self.met.get(interface, 0)

    def shown(self):
        name = {interface: number for number, interface in PORTS.items()}
        return {name[a]: name[b] for a, b in self.leads.items() if b}


@pytest.fixture
def line():
    """A connection of one OCS that has said who it is."""
    light = Light()
    line = SwitchConnection({DPID: Mirrors(PORTS, light)})
    on, back = line.told(message(mirrors.FEATURES_REPLY, struct.pack("!Q16x", DPID)))
    assert len(on) > 32 and not back
    line.light = light
    return line


def message(kind, body=b"", xid=7):
    return struct.pack("!BBHI", flowmods.VERSION, kind, 8 + len(body), xid) + body


def numbered(wire, xid):
    return wire[:4] + struct.pack("!I", xid) + wire[8:]


def circuit(a, b):
    return Rule("o1", ("port", a), b, 100)


def order(line, *wires):
    return [line.ordered(numbered(wire, 100 + i)) for i, wire in enumerate(wires)]


def add(a, b):
    return flowmods.add(circuit(a, b), str)


def gone(a):
    return flowmods.delete(circuit(a, 0), str)


def flow_stats(entries, xid, more=False):
    """What Open vSwitch answers to `ask_flows`, one message of it."""
    told = b""
    for entry in entries:
        match = flowmods.strike(entry)[48:]
        out = b"" if entry.out is None else flowmods._output(entry.out)
        size = 48 + len(match) + len(out)
        told += struct.pack("!H10xH10xQ16x", size, entry.priority, entry.cookie) + match + out
    head = struct.pack("!HH4x", flowmods.FLOW_STATS, int(more))
    return message(mirrors.MULTIPART_REPLY, head + told, xid)


# --- the wire -------------------------------------------------------------------------------------


def test_moves_and_losses_are_experimenter_messages_of_openflow():
    wire = flowmods.move((3, 4), 0.01)
    read = seam.decode(wire)
    assert (read.experimenter, read.exp_type) == (flowmods.PROJECT, flowmods.MOVE)
    assert flowmods.is_move(wire) and flowmods.decode_move(wire) == ((3, 4), 0.01)
    assert flowmods.decode_move(flowmods.move((), 0)) == ((), 0)
    counted = {1: 0, 2: 1 << 40}
    assert flowmods.lost_of(seam.decode(flowmods.lost(counted))) == counted
    assert flowmods.lost_of(read) is None
    assert not flowmods.is_move(flowmods.lost(counted)) and not flowmods.is_move(add(1, 2))


def test_flows_read_from_bytes_are_what_the_framework_reads():
    rules = [circuit(1, 2), circuit(2, 1), Rule("o1", ("pair", "h1", "h2"), 3, 200)]
    address = {"h1": "10.0.0.1", "h2": "10.0.0.2"}.__getitem__
    wires = [flowmods.add(rule, address, 5) for rule in rules] + flowmods.base("ocs", 5)
    entries = [flowmods.decode(wire)[1] for wire in wires]
    answer = flow_stats(entries, 9)
    assert list(flowmods.entries_of(answer)) == entries
    assert [flowmods.entry_of(told) for told in seam.decode(answer).body] == entries


# --- what they hear -------------------------------------------------------------------------------


def test_light_is_what_a_switch_would_do_after_any_orders(line):
    rng, table = random.Random(3), {}
    for _ in range(300):
        a, b = rng.sample(sorted(PORTS), 2)
        wire = rng.choices([add(a, b), gone(a), flowmods.delete_all()], [6, 3, 0.3])[0]
        assert order(line, wire) == [(numbered(wire, 100), b"")]  # the switch hears it too
        apply(table, wire)
        held = {dict(e.match)["in_port"]: e.out for e in table.values()}
        assert line.light.shown() == held


def test_a_move_is_dark_until_told_where_to_and_the_next_barrier_is_theirs(line):
    order(line, add(1, 2), add(2, 1), add(3, 4), add(4, 3))
    line.light.met = {PORTS[3]: 900}
    barrier = message(mirrors.BARRIER_REQUEST)
    wires = flowmods.move((1, 2), 0.01), gone(1), add(1, 5), barrier
    (on, back), *rest, (_, done) = order(line, *wires)
    assert on == b"" and flowmods.lost_of(seam.decode(back))[3] == 900
    assert [told for told, _ in rest] == [numbered(gone(1), 101), numbered(add(1, 5), 102)]
    assert done == message(mirrors.BARRIER_REPLY, xid=103)
    assert line.light.shown() == {1: 5, 3: 4, 4: 3}  # 2 leads nowhere: nobody said where
    assert line.light.dark == {PORTS[1]: 0.01, PORTS[2]: 0.01}
    assert order(line, barrier) == [(numbered(barrier, 100), b"")]  # the switch's again


def test_what_the_switch_holds_counts(line):
    order(line, add(1, 2), flowmods.move((3,), 1.0))
    asked = numbered(flowmods.ask_flows(), 50)
    entries = [flowmods.decode(add(a, b))[1] for a, b in ((3, 4), (4, 3), (5, 6))]
    line.ordered(asked)
    line.told(flow_stats(entries[:2], 50, more=True))
    assert line.light.shown() == {1: 2}  # not before all is told
    line.told(flow_stats(entries[2:], 50))
    assert line.light.shown() == {3: 4, 4: 3, 5: 6}
    line.ordered(asked)
    order(line, add(1, 2))  # an answer may be older than that
    line.told(flow_stats([], 50))
    assert line.light.shown() == {1: 2, 3: 4, 4: 3, 5: 6}
    line.ordered(numbered(flowmods.ask_flows(cookie=3), 51))  # of some flows it tells little
    line.told(flow_stats([], 51))
    assert line.light.shown() == {1: 2, 3: 4, 4: 3, 5: 6}


def test_a_circuit_that_the_switch_refuses_is_dark(line):
    order(line, add(1, 2), add(2, 1))
    error = struct.pack("!HH", 5, 1) + add(1, 2)[:64]  # FLOW_MOD_FAILED, TABLE_FULL
    assert line.told(message(mirrors.ERROR, error))[0]
    assert line.light.shown() == {2: 1}
    for other in (message(18, bytes(80)), message(18, bytes(16)), b""):
        line.told(message(mirrors.ERROR, struct.pack("!HH", 1, 1) + other))
    assert line.light.shown() == {2: 1}


def test_what_somebody_else_put_into_a_switch_is_no_circuit(line):
    """A flow that matches a field which nothing here does (OXM 3, a MAC address)."""
    entry = flowmods.decode(add(1, 2))[1]
    foreign = flow_stats([entry], 50).replace(b"\x80\x00\x00\x04", b"\x80\x00\x06\x04")
    assert foreign != flow_stats([entry], 50) and not list(flowmods.entries_of(foreign))
    order(line, flowmods.add(Rule("o1", ("to", "h1"), 3, 300), lambda _: "10.0.0.1"))
    assert line.light.shown() == {}


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 16])
def test_messages_come_whole_however_they_are_cut(size):
    sent = [add(1, 2), message(2), flowmods.move((1,), 0.5), message(mirrors.BARRIER_REQUEST)]
    data, rest, whole = b"".join(sent), b"", []
    for at in range(0, len(data), size):
        some, rest = mirrors._split(rest + data[at : at + size])
        whole += some
    assert whole == sent and rest == b""


def test_a_switch_that_does_not_read_holds_up_no_other():
    asyncio.run(asyncio.wait_for(beside_one_that_is_stopped(), 20.0))


async def beside_one_that_is_stopped():
    calls = []

    async def controller(reader, writer):
        calls.append(writer)
        while data := await reader.read(1 << 16):
            writer.write(data)

    served = await asyncio.start_server(controller, "127.0.0.1", 0)
    port = served.sockets[0].getsockname()[1]
    met = await asyncio.start_server(lambda r, w: join({}, port, r, w), "127.0.0.1", 0)
    at = met.sockets[0].getsockname()
    stopped, well = [await asyncio.open_connection(*at) for _ in range(2)]
    stopped[1].write(message(2, bytes(60000)) * 200)  # and never reads what comes back
    for _ in range(20):
        well[1].write(message(2, b"abc"))
        assert await asyncio.wait_for(well[0].readexactly(11), 5.0) == message(2, b"abc")
    for writer in (stopped[1], well[1], *calls):
        writer.close()
    for server in (met, served):
        server.close()


@pytest.mark.parametrize("answers", [False, True])
def test_without_a_controller_the_switch_is_let_go_to_try_again(monkeypatch, answers):
    """One that has gone, and one that takes no calls."""
    monkeypatch.setattr(mirrors, "CONNECT_S", 0.2)
    with socket.socket() as controller:
        controller.bind(("127.0.0.1", 0))
        full = []
        if answers:
            controller.listen(0)
            full = [calling(controller.getsockname()) for _ in range(3)]
        asyncio.run(asyncio.wait_for(let_go(controller.getsockname()[1]), 10.0))
        for sock in full:
            sock.close()


def calling(address):
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(address)
    return sock


async def let_go(port):
    met = await asyncio.start_server(lambda r, w: join({}, port, r, w), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*met.sockets[0].getsockname())
    assert await reader.read() == b""
    writer.close()
    met.close()


# --- where the kernel has no crossbar -------------------------------------------------------------


@pytest.mark.parametrize("lacking", ["", "bpf(28): Invalid argument"])
def test_switches_find_their_controller_with_mirrors_and_without(monkeypatch, lacking):
    monkeypatch.setattr(crossbar, "lacking", lambda: lacking)
    up = EmulatedNetwork(None, rfabric(pods=2, tors=2, gpus=2), 1e-3, controller_port=6653)
    assert up.unlit == lacking and up.asks("t1") == 6653
    assert up.asks("a1") == (6653 if lacking else MIRRORS_PORT)
    packets = EmulatedNetwork(None, fat_tree(pods=2), 1e-3, controller_port=6653)
    assert packets.unlit == "" and not packets.ocses


def test_a_kernel_without_programs_says_so(monkeypatch):
    monkeypatch.setattr(crossbar.platform, "machine", lambda: "mips")
    assert crossbar.lacking() == "no eBPF on mips; it is known on x86_64, aarch64"
    monkeypatch.undo()
    monkeypatch.setattr(crossbar, "MAP_CREATE", 9999)
    assert crossbar.lacking().startswith("bpf(9999): ")

"""What the controller's event loop hears and what it makes of it, without a framework running."""

import queue
from types import SimpleNamespace

import pytest
from ground import SMALL, controlled

from rfabric.control import app, flowmods, frames
from rfabric.control.app import Down, FabricApp, Unknown
from rfabric.control.seam import Push
from rfabric.fabric import host_ip, host_mac


def hearing(**more) -> SimpleNamespace:
    """An app that knows one switch, 7, and a stranger who says to be it."""
    own, other = SimpleNamespace(id=7, sent=[]), SimpleNamespace(id=7)
    own.send = own.sent.append
    self = SimpleNamespace(
        switches={7: own}, own=own, other=other, core=None, hosts=frames.Hosts(SMALL), refused={},
        counters={}, _flows={}, _lost={}, _inbox=queue.Queue(), out=[],
        call=lambda work, *_: work(), logger=SimpleNamespace(warning=lambda *_: None),
    )  # fmt: skip
    self._ours = lambda datapath: FabricApp._ours(self, datapath)
    self._send_out = lambda *what: self.out.append(what)
    vars(self).update(more)
    return self


def message(datapath, **more) -> SimpleNamespace:
    return SimpleNamespace(msg=SimpleNamespace(datapath=datapath, **more))


def test_answers_count_where_the_switch_itself_gives_them():
    self = hearing()
    port = SimpleNamespace(port_no=3, rx_bytes=50, tx_bytes=60)
    FabricApp._ports_told(self, message(self.other, body=[port]))
    assert FabricApp.received(self, 7) == {}
    FabricApp._ports_told(self, message(self.own, body=[port]))
    assert FabricApp.received(self, 7) == {3: 50} and self.counters[7][1] == {3: (50, 60)}


def test_what_met_the_dark_is_known_of_who_told_it_while_he_is_connected():
    self = hearing()
    told = {"experimenter": flowmods.PROJECT, "exp_type": flowmods.LOST}
    data = flowmods.lost({3: 9})[16:]
    FabricApp._lost_told(self, message(self.own, data=data, **told | {"exp_type": 1}))
    assert FabricApp.lost(self, 7) is None
    FabricApp._lost_told(self, message(self.own, data=data, **told))
    assert FabricApp.lost(self, 7) == {3: 9}
    self.switches[7] = self.other  # another connection by now
    assert FabricApp.lost(self, 7) is None


def test_a_port_is_told_of_once_it_is_known_whose_it_is():
    core, _ = controlled()
    reader, dpid = core.watch.read(), min(core.name_of)
    datapath = SimpleNamespace(id=dpid, ofproto=SimpleNamespace(OFPPR_DELETE=1, OFPPS_LINK_DOWN=1))
    down = message(datapath, desc=SimpleNamespace(port_no=3, state=1), reason=2)
    FabricApp._port_told(hearing(), down)
    assert reader.waiting.empty()
    FabricApp._port_told(hearing(core=core), down)
    about = reader.waiting.get_nowait().about
    assert about == {"switch": core.name_of[dpid], "port": 3, "up": False}


def test_flows_are_those_of_the_last_answer_in_several_messages(monkeypatch):
    monkeypatch.setattr(app.flowmods, "entry_of", lambda entry: entry)
    self = hearing()
    one, two, three = (flowmods.Entry(n, (), n) for n in (1, 2, 3))
    FabricApp._flows_told(self, message(self.own, body=[one]))

    def push(asked, _):
        FabricApp._flows_told(self, message(self.other, body=[one]))
        for body in ([two], [three]):
            FabricApp._flows_told(self, message(self.own, body=body))
        return Push(0.0, {7: 1.0, 8: 1.0})

    self.push = push
    assert FabricApp.flows(self, {7: [], 8: []}, 1.0) == {7: {two.key: two, three.key: three}}


@pytest.mark.parametrize(("core", "busy", "asks"), [(0, 0, 0), (1, 0, 1), (1, 1, 0)])
def test_ports_are_counted_while_no_circuits_are_moved(core, busy, asks):
    known = SimpleNamespace(epochs=SimpleNamespace(under_way=busy or None))
    self = hearing(core=known if core else None)
    FabricApp.count(self)
    assert self.own.sent == [flowmods.count_ports()] * asks


def test_strangers_are_told_why_and_the_first_of_them_are_kept():
    core, _ = controlled()
    self = hearing(core=core)
    assert FabricApp.stranger(hearing(), 99) == FabricApp.stranger(self, min(core.name_of)) == ""
    strangers = range(0xABC0, 0xABC0 + 25)
    for dpid in strangers:
        assert f"switch {dpid:#x} is not in the fabric" in FabricApp.stranger(self, dpid)
    assert list(self.refused) == list(strangers[:20])


def test_a_switch_of_the_fabric_that_goes_is_told_to_the_worker():
    core, _ = controlled()
    self, dpid = hearing(core=core), min(core.name_of)
    FabricApp.switch_down(hearing(), dpid)
    FabricApp.switch_down(self, 0xABC)
    assert self._inbox.empty() and core.ready
    FabricApp.switch_down(self, dpid)
    assert self._inbox.get_nowait() == Down(dpid) and core.name_of[dpid] in core.waiting_for


def arp(asks: int, kind: int = 1) -> bytes:
    own, there = bytes.fromhex(host_mac(0).replace(":", "")), bytes(6)
    ends = [bytes(map(int, host_ip(i).split("."))) for i in (0, asks)]
    head = bytes(6) + own + bytes.fromhex("0806 0001 0800 06 04") + kind.to_bytes(2, "big")
    return head + own + ends[0] + there + ends[1]


def test_who_asks_for_a_host_is_answered_at_once_where_he_stands():
    self = hearing()
    for frame in (arp(1), arp(1, kind=2), arp(len(SMALL.hosts))):  # a reply; nobody's address
        FabricApp._asked(self, message(self.own, data=frame, match={"in_port": 5}))
    FabricApp._asked(self, message(self.other, data=arp(1), match={"in_port": 5}))
    ((datapath, port, reply),) = self.out
    assert (datapath, port) == (self.own, 5) and self._inbox.empty()
    told = frames.parse(reply)
    assert (told.src, told.dst, told.request) == (host_ip(1), host_ip(0), False)


def test_pairs_that_no_rule_knows_wait_up_to_a_limit():
    self = hearing()

    def packet(src: int, dst: int) -> bytes:
        ends = b"".join(bytes(map(int, host_ip(i).split("."))) for i in (src, dst))
        return bytes(12) + b"\x08\x00" + bytes(12) + ends

    for frame in (packet(0, 0), packet(0, len(SMALL.hosts)), *[packet(0, 1)] * 1001):
        FabricApp._asked(self, message(self.own, data=frame, match={"in_port": 5}))
    waiting = [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]
    assert waiting == [Unknown(7, 5, *SMALL.hosts[:2], packet(0, 1))] * 1000 and not self.out
    blind = hearing(hosts=None)
    FabricApp._asked(blind, message(blind.own, data=packet(0, 1), match={"in_port": 5}))
    assert blind._inbox.empty()

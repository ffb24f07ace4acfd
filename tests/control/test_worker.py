"""What the controller's app makes of what its event loop put into the inbox: over switches in
memory, no framework running.
"""

import gc
import logging
import os
import queue
from pathlib import Path
from types import SimpleNamespace

import pytest
from ground import SMALL

from rfabric.control import app, flowmods, seam
from rfabric.control.app import Down, FabricApp, Replugged, Unknown, Up
from rfabric.control.fake import FakeSwitches
from rfabric.control.infer import infer
from rfabric.control.journal import Journal
from rfabric.control.seam import Push
from rfabric.errors import RFabricError, RunError
from rfabric.fabric import Port, fat_tree

LOCAL = 0xFFFFFFFE  # OFPP_LOCAL: the switch itself, which is no port of the fabric
MOST = 0xFFFFFF00  # OFPP_MAX: the highest number of a port


class Enough(BaseException):
    """Ends a worker, who goes on for ever."""


def switch(fabric, node):
    """A connection of a switch, with its ports."""
    lit = {number: SimpleNamespace(state=0) for number in (*numbers(fabric, node.name), LOCAL)}
    made = SimpleNamespace(id=node.dpid, ports=lit, address=("127.0.0.1", 6), closed=False)
    made.close = lambda: vars(made).update(closed=True)
    return made


def numbers(fabric, name):
    return [port.number for port in fabric.ports[name]]


def working(fabric=SMALL, kind="rfabric", known=True, **more):
    """An app to which all switches of a fabric have connected."""
    self, fake = object.__new__(FabricApp), FakeSwitches(fabric)
    vars(self).update(
        core=None, hosts=None, trouble="", _complained="", refused={}, generation=0, leader=0,
        counters={}, _flows={}, _lost={}, _inbox=queue.Queue(), FABRIC=kind, out=[], fake=fake,
        switches={node.dpid: switch(fabric, node) for node in fabric.switches},
        push=lambda wires, timeout_s=5.0: fake.push(wires, timeout_s), flows=fake.flows,
        call=lambda fn, *_: fn(), logger=logging.getLogger("worker"),
    )  # fmt: skip
    self._send_out = lambda *what: self.out.append(what)
    if known:
        self._lead(fabric, None)
    vars(self).update(more)
    return self


@pytest.fixture(autouse=True)
def _no_freeze(monkeypatch):
    monkeypatch.setattr(gc, "freeze", lambda: None)


@pytest.fixture
def naps(monkeypatch):
    """For how long the worker has slept, which takes no time."""
    slept = []
    monkeypatch.setattr(seam.hub, "sleep", slept.append)
    return slept


def served(self, *batches):
    """Have the worker take these batches, one after the other."""
    turns = iter(batches)

    def gather():
        if (batch := next(turns, None)) is None:
            raise Enough
        return batch

    self._gather = gather
    with pytest.raises(Enough):
        self._work()


def said(caplog):
    """What the app itself has logged, from warnings up."""
    return [r for r in caplog.records if r.name == "worker" and r.levelno >= logging.WARNING]


def dpid(name, fabric=SMALL):
    return fabric.node[name].dpid


# --- what the worker does -------------------------------------------------------------------------


def test_switches_that_come_get_their_rules_and_those_that_go_are_missed():
    self = working()
    assert not self.core.ready
    served(self, [Up(d) for d in self.switches])
    assert self.core.ready and self.trouble == ""
    gone = dpid("a1")
    del self.switches[gone]
    served(self, [Down(gone)])
    assert self.core.waiting_for == ["a1"] and self.core.out == {"a1"}


def test_packets_and_ports_are_dealt_with_in_one_batch():
    self = working()
    served(self, [Up(d) for d in self.switches])
    self.switches[dpid("a1")].ports[1].state = 1  # OFPPS_LINK_DOWN
    packet = Unknown(dpid("t1"), 1, "h1", "h5", b"frame")
    served(self, [packet, Replugged()])
    assert self.core.dead == {Port("a1", 1)} and {("h1", "h5"), ("h5", "h1")} <= self.core.pairs


def test_what_is_wrong_is_said_once_when_nothing_comes_any_more(caplog):
    self = working()
    self.switches[dpid("t1")].ports.pop(1)
    served(self, [Up(d) for d in self.switches])
    assert "has ports 2..5" in self.trouble and not said(caplog)  # more may be on its way
    served(self, [], [])
    assert [r.getMessage() for r in said(caplog)] == [self.trouble]
    self.switches[dpid("t1")].ports[1] = SimpleNamespace(state=0)
    served(self, [])
    self.switches[dpid("t2")].ports.pop(1)
    served(self, [], [])
    assert len(said(caplog)) == 2 and "switch t2" in said(caplog)[1].getMessage()


def test_switches_that_had_failed_are_brought_back_when_nothing_comes():
    self = working()
    self.fake.moods["a1"] = "silent"
    served(self, [Up(d) for d in self.switches])
    assert self.core.waiting_for == ["a1"]
    self.fake.moods.clear()
    served(self, [])
    assert self.core.ready


@pytest.mark.parametrize("error", [RunError("a1 is slow"), KeyError("a1")])
def test_the_worker_outlives_what_goes_wrong(error, caplog):
    self = working()
    up = [Up(d) for d in self.switches]

    def fails(dpids):
        del self.core.connected
        raise error

    self.core.connected = fails
    served(self, up[:5], up)
    (line,) = said(caplog)
    assert self.core.ready and "a1" in caplog.text
    assert (line.exc_info is None) is isinstance(error, RunError)
    shown = line.getMessage()
    if line.exc_info:  # what it could not handle, but not all of a burst
        assert "could not handle" in shown and [repr(up[i]) in shown for i in (2, 3)] == [1, 0]


@pytest.mark.parametrize(
    ("known", "first", "slept"),
    [(True, Up(1), 1), (True, Down(1), 0), (False, Down(1), 1), (False, Replugged(), 1)],
)
def test_a_burst_is_taken_at_once(naps, known, first, slept):
    """Switches connect in bursts, and before the fabric is known all that comes is of one."""
    self = working(known=known)
    for item in (first, Up(2), Down(3)):
        self._inbox.put(item)
    assert self._gather() == [first, Up(2), Down(3)] and self._inbox.empty()
    assert naps == [app.GATHER_S] * slept


def test_nothing_is_gathered_where_nothing_comes(monkeypatch):
    monkeypatch.setattr(app, "PATIENCE_S", 0.01)
    assert working()._gather() == []


# --- which fabric ---------------------------------------------------------------------------------


def test_the_fabric_is_known_when_its_last_switch_is_there(caplog):
    self = working(known=False)
    self.logger = logging.Logger("of this test alone", logging.INFO)
    self.logger.addHandler(caplog.handler)
    last = self.switches.pop(dpid("c1"))
    served(self, [], [Down(last.id)])
    assert self.trouble == ""  # nobody has come of whom to say something
    served(self, [Up(d) for d in self.switches])
    assert self.core is None and "still lacks c1" in self.trouble
    self.switches[last.id] = last
    served(self, [Up(last.id)])
    assert self.core.ready and self.trouble == ""  # those that came before have their rules, too
    assert self.core.fabric.nodes == SMALL.nodes and self.hosts.name("10.0.0.1") == "h1"
    assert "the switches make up rfabric,pods=2,tors=2,gpus=2" in caplog.text


def test_ports_that_come_late_complete_the_fabric():
    self = working(known=False)
    late = self.switches[dpid("t2")].ports.pop(5)
    served(self, [Up(d) for d in self.switches], [Replugged()])
    assert self.core is None and self.trouble
    self.switches[dpid("t2")].ports[5] = late
    served(self, [Replugged()])
    assert self.core.ready


def test_strangers_that_came_before_the_fabric_was_known_are_turned_away():
    self = working()
    odd = SimpleNamespace(id=0xABC, ports={}, address=("127.0.0.1", 7), close=lambda: None)
    odd.close = lambda: vars(odd).update(closed=True)
    self.switches[odd.id] = odd
    served(self, [Up(d) for d in self.switches])
    assert odd.closed and list(self.refused) == [odd.id] and self.core.ready
    assert not any(made.closed for made in self.switches.values() if made is not odd)


def test_only_numbers_that_ports_may_have_are_ports():
    self = working(known=False)
    self.switches[dpid("t1")].ports[MOST] = SimpleNamespace(state=0)
    seen = self._seen()
    assert seen[dpid("t1")] == {*numbers(SMALL, "t1"), MOST}
    assert seen[dpid("t2")] == set(numbers(SMALL, "t2"))


def test_a_switch_that_has_gone_by_then_is_told_nothing():
    self = working()
    gone = self.switches.pop(dpid("t1"))
    served(self, [Up(gone.id), Up(dpid("t2")), Up(0xABC)])
    assert self.core.synced == {"t2"}


@pytest.mark.parametrize(("state", "lit"), [(0, True), (4, True), (1, False), (5, False)])
def test_light_is_there_unless_a_port_says_it_is_not(state, lit):
    """OFPPS_LINK_DOWN is bit 0 of a port's state, OFPPS_LIVE bit 2."""
    self = working()
    self.switches[dpid("a2")].ports[3].state = state
    assert self._unlit() == (set() if lit else {Port("a2", 3)})
    del self.switches[dpid("a2")].ports[3]
    assert self._unlit() == {Port("a2", 3)}
    self.switches[0xABC] = SimpleNamespace(ports={})  # a stranger has no ports that count
    assert self._unlit() == {Port("a2", 3)}


@pytest.mark.parametrize(
    ("kind", "fabric", "fits"),
    [
        ("rfabric", SMALL, True), ("rfabric", fat_tree(k=4), True),
        ("fat-tree", fat_tree(k=4), True), ("fat-tree", SMALL, False),
    ],
)  # fmt: skip
def test_an_app_without_circuits_takes_no_fabric_that_has_them(kind, fabric, fits):
    self = working(fabric, kind, known=False)
    if fits:
        self._take(fabric)
        assert self.core.fabric is fabric
    else:
        with pytest.raises(RFabricError, match="has optical switches; run controller/ocs.py"):
            self._take(fabric)


def test_what_keeps_a_fabric_from_being_taken_is_told(monkeypatch):
    self = working(known=False)

    def refuses(fabric):
        raise RFabricError("its journal is held")

    self._take = refuses
    served(self, [Up(d) for d in self.switches])
    assert self.trouble == "its journal is held" and self.core is None


# --- packets --------------------------------------------------------------------------------------


def test_a_packet_that_no_rule_knew_goes_on_where_its_pair_leads():
    self = working()
    served(self, [Up(d) for d in self.switches])
    to_h2 = self.core.out_port("t1", "h1", "h2") or 2
    packets = [
        Unknown(dpid("t1"), 1, "h1", "h5", b"first"),
        Unknown(dpid("t2"), 1, "h1", "h5", b"astray"),  # no rule of this pair leads from there
        Unknown(dpid("t1"), to_h2, "h1", "h2", b"back"),  # it would go where it came from
        Unknown(0xABC, 1, "h1", "h5", b"nowhere"),
    ]
    gone = self.switches.pop(dpid("t3"))
    packets.append(Unknown(gone.id, 1, "h5", "h1", b"gone"))
    self._packets_came(packets)
    port = self.core.out_port("t1", "h1", "h5")
    assert self.out == [(self.switches[dpid("t1")], port, b"first")] and port not in (None, 1)


def test_packets_wait_for_no_fabric():
    self = working(known=False)
    self._packets_came([Unknown(dpid("t1"), 1, "h1", "h5", b"first")])
    assert not self.out


# --- who leads ------------------------------------------------------------------------------------


class Told(list):
    """What switches were sent; those of `unwilling` refuse it."""

    def __init__(self, *unwilling):
        self.unwilling = unwilling

    def push(self, wires, timeout_s=5.0):
        self.append(wires)
        refused = tuple((d, 0, "STALE") for d in wires if d in self.unwilling)
        return Push(0.0, dict.fromkeys(wires, 0.1), refused)


@pytest.mark.parametrize("generation", [0, 3])
def test_switches_are_told_who_leads_where_there_is_a_journal(generation, caplog):
    told = Told(8)
    self = working(push=told.push, generation=generation)
    self._play(flowmods.MASTER, [7])
    self._play(flowmods.MASTER, [8])
    wire = [flowmods.role(flowmods.MASTER, generation)]
    assert told == ([{7: wire}, {8: wire}] if generation else [])
    assert ("role 2 not taken: switch 0x8 refused" in caplog.text) is bool(generation)
    assert "0x7" not in caplog.text


def test_each_controller_of_a_journal_is_a_generation_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("RFABRIC_JOURNAL", str(tmp_path))
    for generation in (1, 2):
        self = working(known=False)
        self._take(SMALL)
        assert self.generation == generation and self.core.journal.read()["generation"] == (
            generation
        )
        self.core.journal.close()


def test_who_stands_by_says_so_and_leads_when_the_leader_has_ended(
    tmp_path, monkeypatch, naps, caplog
):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("RFABRIC_JOURNAL", str(tmp_path))
    fabric, waits = infer("rfabric", working(known=False)._seen()).fabric, []
    leader = Journal(tmp_path, fabric)
    monkeypatch.setattr(seam.hub, "spawn", lambda *what: waits.append(what))
    with pytest.raises(RFabricError, match="is under the control of process"):
        working(known=False)._take(fabric)
    monkeypatch.setenv("RFABRIC_STANDBY", "1")
    self = working(known=False)
    served(self, [Up(d) for d in self.switches])
    ((wait, *words),) = waits
    assert self.core is None and self.leader == os.getpid()
    health = self.health()
    assert health["role"] == health["trouble"] == f"stands by for process {self.leader}"
    self.switches.popitem()
    served(self, [Up(d) for d in self.switches], [Replugged()], [])
    assert self.trouble == "" and len(waits) == 1  # nothing is asked of switches, or said of them

    def sleep(seconds):
        naps.append(seconds)
        if len(naps) == 3:
            leader.close()

    monkeypatch.setattr(seam.hub, "sleep", sleep)
    wait(*words)
    assert naps == [app.WATCH_S] * 3 and self.core.journal and self.generation == 1
    assert self.health()["role"] == "leads" and not self.core.ready
    assert f"process {os.getpid()} has ended: taking over" in caplog.text
    came = [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]
    assert came == [Up(d) for d in self.switches]
    self.core.journal.close()


def test_who_stands_by_says_what_keeps_it_from_leading(tmp_path, monkeypatch, naps):
    self, tries = working(known=False), iter([RFabricError("not a database"), None, "journal"])

    def journal(folder, fabric):
        if isinstance(got := next(tries), Exception):
            raise got
        return got

    self._journal, led = journal, []
    self._lead = lambda *what: led.append((self.trouble, *what))
    self._stand_by(tmp_path, SMALL)
    assert led == [("not a database", SMALL, "journal")] and len(naps) == 3


# --- what is said of it ---------------------------------------------------------------------------


def test_health_is_ready_where_every_switch_holds_its_rules_and_nothing_is_wrong():
    self = working(refused={0xABC: "switch 0xabc is not in the fabric"})
    waits = self.health()
    assert not waits["ready"] and waits["trouble"] == self.refused[0xABC]
    assert len(waits["waiting_for"]) == waits["connected"] == waits["expected"]
    served(self, [Up(d) for d in self.switches])
    good = self.health()
    assert good["ready"] and good["trouble"] == "" and good["role"] == "leads"
    assert good["refused"] == [self.refused[0xABC]] and good["waiting_for"] == []
    assert (good["epoch"], good["out"], good["dark_ports"]) == (0, [], [])
    assert good["fabric"] == "rfabric" and good["journal"] is None
    self.core.dead, self.core.out = {Port("a1", 2)}, {"a2"}
    self.trouble = "switch t1 has ports 1..2"
    bad = self.health()
    assert not bad["ready"] and bad["trouble"] == self.trouble
    assert (bad["out"], bad["dark_ports"]) == (["a2"], ["a1:2"])
    unknown = working(known=False).health()
    assert [unknown[k] for k in ("ready", "fabric", "expected", "epoch")] == [False, *[None] * 3]
    assert unknown["waiting_for"] == unknown["decisions"] == []


def test_an_app_begins_as_the_environment_says(monkeypatch, tmp_path):
    served_at, began = [], []
    monkeypatch.setattr(app, "serve", lambda *what: served_at.append(what[1:]) or ("h", 1))
    monkeypatch.setattr(seam.hub, "spawn", lambda fn, *_: began.append(fn.__name__))
    monkeypatch.setattr(app, "_number_legibly", lambda: None)
    for name in ("RFABRIC_TOPO", "RFABRIC_REST_HOST", "RFABRIC_REST_PORT", "RFABRIC_LIVE"):
        monkeypatch.delenv(name, raising=False)
    bare = FabricApp()
    assert bare.core is None and served_at == [(8080, "127.0.0.1")] and began == ["_work"]
    assert bare.generation == bare.leader == 0 and bare.health()["role"] == "leads"
    monkeypatch.setenv("RFABRIC_TOPO", "rfabric,pods=1")
    monkeypatch.setenv("RFABRIC_REST_PORT", "65535")
    monkeypatch.setenv("RFABRIC_REST_HOST", "::1")
    reading, writing = os.pipe()
    monkeypatch.setenv("RFABRIC_LIVE", str(writing))
    assert FabricApp().core.fabric.spec == "rfabric,pods=1"
    os.close(reading)
    os.close(writing)
    assert served_at[1:] == [(65535, "::1")] and began[1:] == ["_work", "tell"]


@pytest.mark.parametrize("text", ["0", "65536", "-1", "", "x", "80.0"])
def test_a_rest_port_is_a_number_that_tcp_has(text):
    assert [app._port(fits) for fits in ("1", "65535")] == [1, 65535]
    with pytest.raises(RFabricError, match=f"RFABRIC_REST_PORT={text!r}: choose a port from 1"):
        app._port(text)


def test_the_first_message_of_a_connection_has_a_number_that_is_text(monkeypatch):
    """Its first is 32, an ASCII blank, whatever the framework begins with."""

    class Datapath:
        def __init__(self, begin):
            self.xid = begin

    loaded = []
    monkeypatch.setattr(
        app.importlib, "import_module",
        lambda name: loaded.append(name) or SimpleNamespace(Datapath=Datapath),
    )  # fmt: skip
    app._number_legibly()
    begin = Datapath.__init__
    app._number_legibly()  # an app more
    assert Datapath.__init__ is begin and Datapath(9999).xid + 1 == 32
    assert set(loaded) == {f"{seam.PACKAGES[seam.flavour()]}.controller.controller"}


def test_the_journal_of_a_leader_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("RFABRIC_JOURNAL", str(tmp_path))
    self = working(known=False)
    self._take(SMALL)
    assert Path(self.health()["journal"]).parent == tmp_path
    self.core.journal.close()

"""The seam without a controller running: which framework it takes, what its doors let through, and
what it makes of switches that come, answer and go.
"""

import logging
import struct
import sys
import time
from types import SimpleNamespace

import pytest

from rfabric.control import flowmods, seam
from rfabric.control.seam import Doors, Push
from rfabric.errors import RFabricError, RunError

FLOW_MOD, BARRIER = 14, 20


# --- which framework ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "wanted", "taken"),
    [
        ({"ryu", "os_ken"}, "", "ryu"), ({"os_ken"}, "", "os-ken"), ({"ryu"}, "ryu", "ryu"),
        ({"ryu", "os_ken"}, "os-ken", "os-ken"), ({"ryu"}, "os-ken", None),
        ({"os_ken"}, "ryu", None), (set(), "", None), ({"ryu", "os_ken"}, "pox", None),
    ],
)  # fmt: skip
def test_ryu_is_taken_where_it_is_installed_unless_another_is_wanted(
    there, wanted, taken, monkeypatch
):
    monkeypatch.setenv("RFABRIC_SDN", wanted)
    monkeypatch.setattr(seam.importlib.util, "find_spec", lambda name: name in there or None)
    if taken:
        assert seam.flavour() == taken
    else:
        with pytest.raises(RFabricError, match="make setup" if wanted != "pox" else "unknown"):
            seam.flavour()


@pytest.mark.parametrize(
    ("beside", "sdn", "taken"),
    [(True, None, True), (True, "ryu", True), (True, "os-ken", False), (False, None, False)],
)
def test_ryu_has_a_python_of_its_own_beside_the_package(beside, sdn, taken, monkeypatch, tmp_path):
    python = tmp_path / ".venv-ryu/bin/python"
    python.parent.mkdir(parents=True)
    if beside:
        python.touch()
    monkeypatch.setattr(seam, "__file__", str(tmp_path / "rfabric/control/seam.py"))
    monkeypatch.setattr(seam, "flavour", lambda: "os-ken")
    monkeypatch.delenv("RFABRIC_CONTROL_PYTHON", raising=False)
    monkeypatch.delenv("RFABRIC_SDN", raising=False)
    if sdn:
        monkeypatch.setenv("RFABRIC_SDN", sdn)
    assert seam.interpreter() == (str(python) if taken else sys.executable)
    monkeypatch.setenv("RFABRIC_CONTROL_PYTHON", "/mine/python")
    assert seam.interpreter() == "/mine/python"


@pytest.mark.parametrize(
    ("package", "hub", "said"),
    [
        ({"version": "4.34"}, "eventlet", "ryu 4.34 on eventlet 0.1"),
        ({"version": "no", "__version__": "5"}, "native", "ryu 5 on threads"),
    ],
)
def test_what_runs_is_told_with_its_version_and_hub(package, hub, said, monkeypatch):
    monkeypatch.setitem(sys.modules, "ryu", SimpleNamespace(**package))
    monkeypatch.setitem(sys.modules, "eventlet", SimpleNamespace(__version__="0.1"))
    made = SimpleNamespace(name="ryu", hub=SimpleNamespace(HUB_TYPE=hub))
    monkeypatch.setattr(seam, "framework", lambda: made)
    assert seam.version() == said


def test_the_seam_has_the_names_of_the_framework_and_no_others():
    stack = seam.framework()
    for name in ("hub", "ofproto", "parser", "MAIN_DISPATCHER", "set_ev_cls", "AppBase"):
        assert getattr(seam, name) is getattr(stack, name)
    assert issubclass(seam.App, Doors) and issubclass(seam.App, stack.AppBase)
    with pytest.raises(AttributeError, match=r"rfabric.control.seam has no attribute AppManager$"):
        _ = seam.AppManager


def test_a_message_keeps_the_number_it_has():
    message = seam.parser.OFPBarrierRequest(seam.offline())
    assert struct.unpack_from("!I", seam.wire(message), 4) == (0,)
    message.xid = 7
    assert struct.unpack_from("!I", seam.wire(message), 4) == (7,)


# --- the doors ------------------------------------------------------------------------------------


class Switch:
    """A connection that answers in the midst of the write: `willing`, `refusing` its flow-mods,
    `silent`, `closing` at the barrier.
    """

    def __init__(self, doors, dpid, mood="willing"):
        self.doors, self.id, self.mood, self.heard = doors, dpid, mood, []
        self.xid, self.ofproto = 0, SimpleNamespace(MAX_XID=0xFFFFFFFF)
        self.state, self.address, self.closed = seam.MAIN_DISPATCHER, ("127.0.0.1", 6), False

    def send(self, data):
        while data:
            kind, size, xid = struct.unpack_from("!xBHI", data)
            self.heard.append((kind, xid))
            self.answer(kind, xid)
            data = data[size:]

    def answer(self, kind, xid):
        if kind == BARRIER and self.mood == "closing":
            self.doors._switch_changed(changed(self, seam.DEAD_DISPATCHER))
        elif kind == BARRIER and self.mood != "silent":
            self.doors._barrier_replied(told(self, xid))
        elif self.mood == "refusing":
            self.doors._switch_refused(told(self, xid, type=5, code=1))

    def close(self):
        self.closed = True


def told(datapath, xid, **more):
    return SimpleNamespace(msg=SimpleNamespace(datapath=datapath, xid=xid, **more))


def changed(datapath, state):
    return SimpleNamespace(datapath=datapath, state=state)


class Open(Doors):
    """Doors whose event loop is at once where it is asked."""

    def __init__(self, *moods):
        self.name, self.logger, self.came = "Open", logging.getLogger("doors"), []
        self._loop, self._pending, self.unwanted = None, {}, {}
        self.switches = {n: Switch(self, n, mood) for n, mood in enumerate(moods, 1)}

    def _send_event(self, event, state):
        self._do_work(event)

    def stranger(self, dpid):
        return self.unwanted.get(dpid, "")

    def switch_up(self, dpid):
        self.came.append(("up", dpid))

    def switch_down(self, dpid):
        self.came.append(("down", dpid))


RULES = [flowmods.delete_all(), flowmods.delete_all()]


def test_switches_that_take_all_are_done():
    doors, began = Open("willing", "willing"), time.monotonic()
    push = doors.push({1: RULES, 2: []}, 60.0)
    assert push.ok and set(push.done_s) == {1, 2} and push.silent == push.refused == ()
    assert began <= push.started_s <= push.programmed_s <= time.monotonic() < began + 30
    kinds = [FLOW_MOD, FLOW_MOD, BARRIER]
    assert doors.switches[1].heard == [(kind, n) for n, kind in enumerate(kinds, 1)]
    assert doors.switches[2].heard == [(BARRIER, 1)]
    assert not any(doors._pending.values())
    doors.push({1: RULES})
    assert [n for _, n in doors.switches[1].heard] == [1, 2, 3, 4, 5, 6]


def test_who_refuses_keeps_silent_goes_or_is_not_there_is_named():
    doors = Open("willing", "refusing", "silent", "closing")
    push = doors.push(dict.fromkeys((1, 2, 3, 4, 9), RULES), 0.1)
    assert set(push.done_s) == {1, 2} and push.silent == (3, 4, 9) and not push.ok
    assert [(dpid, index) for dpid, index, _ in push.refused] == [(2, 0), (2, 1)]
    assert "TABLE_FULL" in push.refused[0][2] and "FLOW_MOD_FAILED" in push.refused[0][2]
    assert 4 not in doors.switches and doors.came == [("down", 4)]
    assert not any(doors._pending.values())  # who answers later is not heard


def test_nobody_waits_for_a_switch_that_has_gone():
    began = time.monotonic()
    push = Open("closing").push({1: RULES}, 60.0)
    assert push.silent == (1,) and time.monotonic() - began < 30


def test_what_is_answered_to_another_push_or_connection_does_not_count():
    doors = Open("silent")
    own, answers = doors.switches[1], seam.hub.Queue()
    (batch,) = doors._send({1: RULES, 7: RULES}, answers).values()
    assert (batch.first, batch.last) == (1, 3) and doors._pending == {1: [batch]}
    twin = Switch(doors, 1)
    for datapath, number in ((twin, 3), (own, 2), (own, 4), (own, 0)):
        doors._barrier_replied(told(datapath, number))
    for datapath, number in ((twin, 1), (own, 0), (own, 4)):
        doors._switch_refused(told(datapath, number, type=5, code=1))
    doors._switch_changed(changed(twin, seam.DEAD_DISPATCHER))
    assert answers.empty() and doors.switches == {1: own} and not doors.came
    doors._switch_refused(told(own, 1, type=5, code=1))
    doors._switch_refused(told(own, 3, type=5, code=1))
    assert [answers.get_nowait()[:2] for _ in range(2)] == [(1, 0), (1, 2)]
    doors._barrier_replied(told(own, 3))
    dpid, index, reason, at = answers.get_nowait()
    assert (dpid, index, reason) == (1, None, None) and at <= time.monotonic()
    assert doors._pending == {1: []}
    doors._barrier_replied(told(own, 3))
    assert answers.empty()


@pytest.mark.parametrize(("dpid", "name"), [(0x1A, "0x1a"), (None, "0x0")])
def test_errors_that_nobody_waits_for_are_logged(dpid, name, caplog):
    """A switch that has not said yet who it is is 0x0."""
    doors = Open()
    doors._switch_refused(told(Switch(doors, dpid), 5, type=5, code=1))
    assert caplog.messages[0].startswith(f"switch {name}: OFPET_FLOW_MOD_FAILED")


def test_a_call_runs_in_the_loop_and_returns_or_raises_what_comes_of_it():
    doors, seen = Open(), []
    assert doors.call(lambda: seen.append(1) or 7) == 7 and seen == [1]
    with pytest.raises(ZeroDivisionError):
        doors.call(lambda: 1 // 0)
    doors._send_event = None  # in the loop itself nothing is sent
    doors._loop = seam._here()
    assert doors.call(lambda: 8) == 8
    with pytest.raises(RunError, match="that its own loop must read"):
        doors.push({})


@pytest.mark.parametrize("begins", [True, False])
def test_a_call_that_takes_too_long_is_given_up_and_not_begun_after_that(begins):
    doors, late, ran = Open(), [], []

    def keep(event, state):
        event.work.begun = begins
        late.append(event)

    doors._send_event = keep
    why = "began it, which goes on" if begins else "was busy with other work; this is dropped"
    with pytest.raises(RunError, match=f"controller Open: no result in 0.01 s: its loop {why}"):
        doors.call(lambda: ran.append(1), 0.01)
    doors._do_work(late[0])
    assert not ran


def test_a_push_says_what_became_of_it():
    fine = Push(5.0, {1: 5.002, 2: 5.004, 3: 5.001})
    assert fine.ok and fine.programmed_s == 5.004 and str(fine) == "3 switches in 4.0 ms"
    assert Push(5.0, {}).programmed_s == 5.0
    refused = Push(5.0, {1: 5.1}, ((1, 2, "TABLE_FULL"),))
    silent = Push(5.0, {}, (), (9,))
    assert not refused.ok and str(refused) == "switch 0x1 refused message 2: TABLE_FULL"
    assert not silent.ok and str(silent) == "switch 0x9 did not answer"


# --- who comes and goes ---------------------------------------------------------------------------


def test_a_switch_is_admitted_when_it_is_ready_and_forgotten_when_it_goes():
    doors = Open()
    own = Switch(doors, 5)
    doors._switch_changed(changed(own, seam.MAIN_DISPATCHER))
    assert doors.switches == {5: own} and doors.came == [("up", 5)]
    doors._switch_changed(changed(own, seam.MAIN_DISPATCHER))  # it says so once more
    assert doors.switches == {5: own} and not own.closed
    doors._switch_changed(changed(own, seam.DEAD_DISPATCHER))
    assert doors.switches == {} and doors.came[-1] == ("down", 5)


def test_strangers_and_the_dead_are_not_admitted(caplog):
    doors = Open()
    doors.unwanted[6] = "it is not of this fabric"
    odd, dead = Switch(doors, 6), Switch(doors, 7)
    dead.state = seam.DEAD_DISPATCHER
    for datapath in (odd, dead):
        doors._switch_changed(changed(datapath, seam.MAIN_DISPATCHER))
    assert not doors.switches and not doors.came and odd.closed and not dead.closed
    assert "switch 0x6 from ('127.0.0.1', 6) refused: it is not of this fabric" in caplog.text


def test_a_second_connection_of_a_switch_is_disputed_aside(monkeypatch):
    doors, disputes = Open("willing"), []
    monkeypatch.setattr(seam.framework().hub, "spawn", lambda *what: disputes.append(what))
    holder, newcomer = doors.switches[1], Switch(doors, 1)
    doors._switch_changed(changed(newcomer, seam.MAIN_DISPATCHER))
    assert disputes == [(doors._dispute, holder, newcomer)] and doors.switches == {1: holder}


@pytest.mark.parametrize(
    ("holder", "stays"), [("answers", True), ("busy", True), ("silent", False), ("gone", False)]
)
def test_the_first_connection_keeps_its_place_while_it_answers(holder, stays):
    doors = Open("willing")
    first, newcomer = doors.switches[1], Switch(doors, 1)

    def push(messages, timeout_s):
        if holder == "busy":
            raise RunError("the event loop is busy")
        if holder == "gone":
            del doors.switches[1]
        return Push(0.0, {} if holder == "silent" else {1: 0.1})

    doors.push = push
    doors._dispute(first, newcomer)
    assert doors.switches == {1: first if stays else newcomer}
    assert (first.closed, newcomer.closed) == (not stays, stays)
    assert doors.came == ([] if stays else [("up", 1)])


# --- REST -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [("127.0.0.1", 50_001), ("::1", 50_001, 0, 0)])
def test_http_is_served_at_any_free_port_where_none_is_named(address, monkeypatch):
    made, claimed, begun = [], [], []

    class Server:
        def __init__(self, where, handle):
            made.append((where, handle))
            self.server = SimpleNamespace(getsockname=lambda: address)

        def serve_forever(self):
            raise AssertionError("not here")

    hub = SimpleNamespace(StreamServer=Server, spawn=begun.append)
    monkeypatch.setattr(seam, "framework", lambda: SimpleNamespace(hub=hub))
    monkeypatch.setattr(seam, "claim_port", lambda *what: claimed.append(what))

    def handler(connection, peer, app):
        raise TimeoutError(f"{app} waits for {peer}")

    assert seam.serve_http(handler, "the app") == address[:2]
    assert made[0][0] == ("127.0.0.1", 0) and not claimed and len(begun) == 1
    closed = []
    made[0][1](SimpleNamespace(close=lambda: closed.append(1)), "a peer")  # he went away
    assert closed == [1]
    seam.serve_http(handler, "the app", 8080, "::1")
    assert made[1][0] == ("::1", 8080) and claimed == [("REST address", "::1", 8080)]

"""What the controller decides, one thing at a time: small cases worked out by hand, over fake
switches and a clock that is told.
"""

import json
import threading
import time
from types import SimpleNamespace

import pytest
from ground import SMALL, Served, controlled, explicit, other_circuits

from rfabric.control import border, flowmods, frames, launch, openapi, rest, schema, seam, watch
from rfabric.control.core import Core, RolledBackError
from rfabric.control.epochs import (
    MESSAGE_S,
    Epochs,
    NotFoundError,
    RewirePlan,
    StateError,
    violations,
)
from rfabric.control.fake import FakeClock, FakeSwitches
from rfabric.control.faults import LONGEST_WAIT_S
from rfabric.control.recovery import judge
from rfabric.control.rest import answer
from rfabric.control.seam import Push
from rfabric.control.switches import SPIN, SystemClock
from rfabric.control.tables import repair
from rfabric.control.watch import Watch, exposition
from rfabric.errors import RFabricError, RunError
from rfabric.fabric import fat_tree, host_ip, host_mac, rfabric
from rfabric.optics import Circuit, Circuits, Rewire
from rfabric.routing import Rule

OLD, NEW = Circuits.from_json(["a1:1-2", "a1:3-4"]), Circuits.from_json(["a1:1-3", "a2:1-2"])


def plan_in(state: str, epoch: int = 1, **more) -> RewirePlan:
    return RewirePlan(epoch, 0, Rewire.between(OLD, NEW), 0.01, state=state, **more)


# --- after a crash --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "finish", "seen"),
    [
        ({}, False, "rolled back: 0 of 2 old and 0 of 2 new circuits were lit"),
        ({"a1": {1: 2, 2: 1}}, False, "rolled back: 1 of 2 old and 0 of 2 new"),
        ({"a1": {1: 3}}, True, "finished: 0 of 2 old and 1 of 2 new"),  # one direction is enough
        ({"a1": {3: 1, 4: 3}, "a2": {1: 2}}, True, "finished: 1 of 2 old and 2 of 2 new"),
        ({"a2": {3: 4, 4: 3}}, False, "rolled back: 0 of 2 old and 0 of 2 new"),
    ],
)
def test_a_plan_that_was_cut_short_is_finished_where_any_new_circuit_is_lit(held, finish, seen):
    done, why = judge(plan_in("LIGHTING"), held)
    assert done is finish and why.startswith(seen)
    back, why = judge(plan_in("ROLLBACK"), held)
    assert not back and why.startswith("rolled back: its rollback had begun")


# --- epochs ---------------------------------------------------------------------------------------


def test_a_plan_waits_as_long_as_it_lives_and_no_longer():
    books = Epochs(OLD, plans={1: plan_in("PREPARED", made=100.0)})
    for now, waits in ((100.0, True), (107.0, True), (107.1, False), (99.9, False)):
        kept = books.expired(now, 7.0)
        assert (kept.plan(1).state == "PREPARED") is waits and (kept is books) is waits
    running = Epochs(OLD, plans={1: plan_in("DARK", made=0.0)})
    assert running.expired(1e9, 7.0) is running


def test_what_was_cut_short_and_finished_lost_no_bytes_that_anybody_counted():
    books = Epochs(OLD, plans={1: plan_in("DARK")}).resumed(1, True, "seen")
    assert (
        books.verified(1).plan(1).lost_bytes == 0 and books.verified(1, 7).plan(1).lost_bytes == 7
    )


def test_a_rollback_names_the_switches_that_do_not_hold_the_circuits_before():
    core, switches = controlled()
    plan, _, _ = core.plan(explicit(other_circuits(SMALL)))
    switches.moods["a1"] = "refusing"
    with pytest.raises(RolledBackError, match=r"epoch 0 are back but at a1, which will get all"):
        core.commit(plan.epoch)
    switches.moods.clear()
    core.restore()
    plan, _, _ = core.plan(explicit(other_circuits(SMALL)))
    core._verify = lambda _: 1 // 0  # all switches do as they are told
    with pytest.raises(RolledBackError, match=r"circuits of epoch 0 are back$"):
        core.commit(plan.epoch)


def test_books_that_are_out_of_order_are_told():
    times = {"requested": 1.0, "programmed": 2.0, "dark_until": 3.0, "usable": 4.0}
    fine = Epochs(NEW, 1, {1: plan_in("ACTIVE", **times), 2: plan_in("PROGRAMMING", 2)})
    assert violations(fine) == violations(Epochs(OLD)) == []
    back = Epochs(NEW, 1, {1: plan_in("ACTIVE", **{**times, "usable": 2.5})})
    assert [text for text in violations(back) if "run backwards" in text] == violations(back) != []
    two = Epochs(OLD, plans={1: plan_in("DARK"), 2: plan_in("ROLLBACK", 2)})
    assert violations(two) == ["plans [1, 2] are under way at once"]
    assert violations(Epochs(NEW, 2, {1: plan_in("ACTIVE")})) == [
        "plans [1] are ACTIVE, the epoch is 2"
    ]
    late = Epochs(NEW, 1, {1: plan_in("ACTIVE", **times), 2: plan_in("PREPARED", 2)})
    assert violations(late) == ["plan 2 for epoch 0 is still open in epoch 1"]


def test_only_a_plan_that_is_dark_waits_for_the_light():
    for state in ("PLANNED", "PREPARED", "VERIFYING", "ABORTED"):
        with pytest.raises(StateError, match=f"plan 1 is {state} and can become .*, not LIGHTING"):
            Epochs(OLD, plans={1: plan_in(state)}).light(1, 0.0)


def test_an_ocs_that_is_not_there_is_told_with_the_first_that_are():
    core, _ = controlled(fat_tree(k=4))
    with pytest.raises(NotFoundError, match="no OCS 'a1' in fat-tree; there are none$"):
        core.port_states("a1")
    wide = rfabric(pods=2, tors=2, gpus=1, planes=4)
    first = ", ".join(node.name for node in wide.ocses[:8])
    assert len(wide.ocses) > 8
    with pytest.raises(NotFoundError, match=f"no OCS 't1' in rfabric; there are {first}$"):
        controlled(wide)[0].port_states("t1")


def test_of_many_that_fail_at_once_the_first_eight_are_told():
    core, switches = controlled()
    ports = sorted(port for name in ("a1", "a2", "c1") for port in SMALL.ports[name])
    core.unlit(ports)
    first = ", ".join(map(str, ports[:8]))
    assert f"light has gone at {first}" in core.said and len(ports) > 8
    core.unlit(ports[1:])
    assert f"light has come back at {ports[0]}" in core.said
    dpids = sorted(core.name_of)[:9]
    named = [f"{core.name_of[d]} did not answer within 2 s" for d in dpids]
    assert core._said(Push(0.0, {}, (), tuple(dpids)), 2.0) == "; ".join(named[:8])


# --- patience -------------------------------------------------------------------------------------


class Patient(FakeSwitches):
    """Keeps for how long it was asked to wait."""

    def push(self, messages, timeout_s):
        self.__dict__.setdefault("pushed", []).append((sum(map(len, messages.values())), timeout_s))
        return super().push(messages, timeout_s)

    def flows(self, asked, timeout_s):
        self.__dict__.setdefault("asked", []).append(timeout_s)
        return super().flows(asked, timeout_s)


def test_a_step_has_its_time_out_and_who_comes_back_ten_times_as_long():
    """And each message adds its own time to either."""
    switches = Patient(SMALL, FakeClock(step=1e-3))
    core = Core(SMALL, switches, switches.clock, timeout=0.25)
    core.connected(core.name_of)
    assert switches.asked == [2.5, 0.25]  # what all hold; what OCSes hold that were told
    assert switches.pushed == [(n, 2.5 + MESSAGE_S * n) for n, _ in switches.pushed]
    switches.pushed.clear()
    switches.asked.clear()
    plan, _, _ = core.plan(explicit(other_circuits(SMALL)))
    core.commit(plan.epoch)
    assert switches.asked == [0.25]  # what changed is read back
    assert switches.pushed == [(n, 0.25 + MESSAGE_S * n) for n, _ in switches.pushed]


@pytest.mark.parametrize("what", [{"delay": 3600.0}, {"control": 3600.0}])
def test_an_hour_is_the_longest_that_one_rewire_may_keep_others_waiting(what):
    core, _ = controlled()
    assert LONGEST_WAIT_S == 3600
    assert core.plan(explicit(other_circuits(SMALL), **what))[0] is not None
    with pytest.raises(RFabricError, match="time_dilation 1.1: the .* would take 3960 s"):
        core.plan(explicit(other_circuits(SMALL), time_dilation=1.1, **what))


def test_nobody_sleeps_longer_than_an_hour():
    core, switches = controlled()
    core._wait_until(switches.clock.now() + 3600.0)
    with pytest.raises(RunError, match="a step would take"):
        core._wait_until(switches.clock.now() + 3600.1)


def test_a_clock_sleeps_to_just_before_the_instant_and_then_only_lets_others_run():
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        time.sleep(seconds)

    clock = SystemClock(sleep)
    until = clock.now() + 0.02
    clock.sleep_until(until)
    assert clock.now() >= until and 0 < slept[0] <= 0.02 - SPIN
    assert all(seconds == 0 for seconds in slept[1:] if seconds <= SPIN) and sum(slept) <= 0.02
    slept.clear()
    clock.sleep_until(clock.now() - 1.0)
    assert slept == []


def test_messages_of_a_switch_are_numbered_on_and_begin_anew_before_numbers_run_out():
    """And all of them go in one write."""
    sent = []
    doors = SimpleNamespace(_pending={})
    switch = SimpleNamespace(
        xid=6, id=3, ofproto=SimpleNamespace(MAX_XID=12), send=lambda data: sent.append(data)
    )
    messages = [flowmods.count_ports(), flowmods.role(flowmods.MASTER, 1), flowmods.delete_all()]
    for first in (7, 10, 1):  # the last number is 12
        batch = seam.Doors._send_one(doors, switch, messages, None)
        numbers = [first + i for i in range(3)]
        told = [
            m[:4] + n.to_bytes(4, "big") + m[8:] for m, n in zip(messages, numbers, strict=True)
        ]
        assert sent.pop() == b"".join(told) and not sent
        assert (batch.first, batch.last) == (first, first + 2)
    assert len(doors._pending[3]) == 3


def test_ocses_are_told_plane_by_plane():
    core, _ = controlled()
    order = core._in_order({n.dpid for n in SMALL.ocses})
    plane = {n.dpid: n.plane for n in SMALL.ocses}
    assert [plane[d] for d in order] == sorted(plane.values()) and set(order) == set(plane)
    assert core._in_order({order[-1]}) == [order[-1]]


# --- what is told ---------------------------------------------------------------------------------


def told(of: Watch) -> list[tuple[str, dict]]:
    """Kind and contents of all events so far, but for their time."""
    events = [event.wire().decode().split("\n") for event in of.recent]
    assert [int(lines[0].removeprefix("id: ")) for lines in events] == list(
        range(1, len(events) + 1)
    )
    return [(lines[1].removeprefix("event: "), json.loads(lines[2][6:])) for lines in events]


def test_switches_are_told_as_they_come_go_and_hold_their_rules():
    core, switches = controlled()
    seen = Watch()
    seen.look(core)  # the first look has nothing to compare with
    seen.look(core)
    assert told(seen) == []
    switches.away.add("t1")
    core.disconnected(next(d for d, name in core.name_of.items() if name == "t1"))
    seen.look(core)
    switches.away.clear()
    seen.look(core)
    core.connected(core.name_of)
    seen.look(core)
    kinds, about = zip(*told(seen), strict=True)
    assert set(kinds) == {"switch"} and {one["switch"] for one in about} == {"t1"}
    states = [(one["connected"], one["programmed"]) for one in about]
    assert states == [(False, False), (True, False), (True, True)]
    assert seen.counted["events"] == 3


@pytest.mark.parametrize(("reason", "state", "up"), [(2, 0, True), (2, 1, False), (1, 0, False)])
def test_a_port_is_up_where_it_is_there_and_its_link_is(reason, state, up):
    """OFPPR_DELETE is 1, OFPPR_MODIFY 2; OFPPS_LINK_DOWN is bit 0."""
    core, _ = controlled()
    of = SimpleNamespace(OFPPR_DELETE=1, OFPPS_LINK_DOWN=1)
    dpid, name = next(iter(core.name_of.items()))
    port = SimpleNamespace(state=state, port_no=7)
    datapath = SimpleNamespace(ofproto=of, id=dpid)
    seen = Watch()
    seen.replugged(core, SimpleNamespace(datapath=datapath, desc=port, reason=reason))
    ((kind, about),) = told(seen)
    assert kind == "link" and about["up"] is up
    assert (about["switch"], about["port"]) == (name, 7)


def test_hosts_are_known_by_address_and_have_the_addresses_they_are_given():
    hosts = frames.Hosts(SMALL)
    for i, host in enumerate(SMALL.hosts):
        assert hosts.name(host_ip(i)) == host and hosts.mac(host_ip(i)) == host_mac(i)
    assert hosts.name("192.0.2.1") is None and hosts.mac("192.0.2.1") is None


def test_readers_go_on_after_the_event_they_saw_last(monkeypatch):
    monkeypatch.setattr(watch, "MAX_READERS", 3)
    seen = Watch()
    for number in range(1, 5):
        seen.tell("link", {"n": number})
    new, all_of_it, some = seen.read(), seen.read(after=0), seen.read(after=2)
    assert seen.read() is None  # three are the limit
    numbers = [[event.number for event in r.waiting.queue] for r in (new, all_of_it, some)]
    assert numbers == [[], [1, 2, 3, 4], [3, 4]]
    seen.leave(new)
    assert seen.readers == [all_of_it, some] and seen.read() is not None
    seen.tell("link", {"n": 5})
    assert some.waiting.queue[-1].number == 5 and not len(new.waiting.queue)


def test_a_stream_tells_all_that_waits_and_that_it_lives_while_nothing_does(monkeypatch):
    core, _ = controlled()
    monkeypatch.setattr(watch, "POLL_S", 0.005)
    monkeypatch.setattr(watch, "ALIVE_S", 0.02)
    reader = core.watch.read()
    pieces, began = watch.stream(core, reader), time.monotonic()
    assert next(pieces).startswith(b": events of rfabric\nretry: 2000\n")
    for _ in range(2):
        assert next(pieces) == b": alive\n\n"
    assert time.monotonic() - began >= 0.04
    monkeypatch.setattr(watch, "ALIVE_S", 60.0)
    later = threading.Timer(0.03, core.watch.tell, ("link", {"n": 1}))
    later.start()
    assert b"event: link\n" in next(pieces)  # no word before it
    later.join()
    for n in range(2):
        core.watch.tell("link", {"n": n})
    reader.dropped = True
    rest_of_it = list(pieces)
    assert [b"event: link\n" in piece for piece in rest_of_it] == [True, True, False]
    assert rest_of_it[-1] == b": dropped: too slow\n\n"


def test_a_port_of_who_has_not_said_who_he_is_is_told():
    core, _ = controlled()
    of = SimpleNamespace(OFPPR_DELETE=1, OFPPS_LINK_DOWN=1)
    for dpid, name in ((None, "0x0"), (0xABC, "0xabc")):
        core.watch.replugged(
            core,
            SimpleNamespace(
                datapath=SimpleNamespace(ofproto=of, id=dpid), reason=0,
                desc=SimpleNamespace(state=0, port_no=7),
            ),
        )  # fmt: skip
        assert core.watch.recent[-1].about == {"switch": name, "port": 7, "up": True}


def values(text: str) -> dict[str, float]:
    """Metrics by name and labels, without the prefix."""
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name.removeprefix("rfabric_"): float(value) for name, value in rows}


def test_metrics_are_what_happened():
    """One rewire of 10 ms that is verified and one that fails; an OCS that has gone by the end."""
    core, switches = controlled()
    assert values(exposition(None, {("GET", "200"): 3}, False)) == {
        "ready": 0, 'http_requests_total{method="GET",status="200"}': 3,
    }  # fmt: skip
    request = explicit(other_circuits(SMALL))
    plan, _, _ = core.plan(request)
    done = core.commit(plan.epoch)
    other, _, _ = core.plan(explicit(Circuits()))
    switches.moods["a1"] = "refusing"
    with pytest.raises(RolledBackError):
        core.commit(other.epoch)
    switches.moods.clear()
    switches.away.add("a1")
    now = values(exposition(core, {}, True))
    assert now["ready"] == 1 and now["epoch"] == 1 and now["rewire_under_way"] == 0
    assert now["circuits"] == len(core.epochs.circuits) == len(request.circuits)
    assert now["switches"] == len(SMALL.switches) == now["switches_connected"] + 1
    assert now["switches_programmed"] == len(core.synced)
    assert now["plans_total"] == 2
    assert now['rewires_total{result="verified"}'] == 1
    assert now['rewires_total{result="rolled_back"}'] == 1
    assert now["circuits_changed_total"] == plan.rewire.size + other.rewire.size
    assert now["dark_seconds_total"] == pytest.approx(0.01, abs=1e-9)
    assert now["rewire_seconds_total"] == pytest.approx(done.usable - done.requested)
    assert now["events_total"] == len(core.watch.recent) and now["event_readers"] == 0
    assert now['plans_kept{state="ACTIVE"}'] == now['plans_kept{state="ABORTED"}'] == 1


# --- rules of a switch ----------------------------------------------------------------------------


def address(host: str) -> str:
    return f"10.0.0.{host[1:]}"


def held(*rules: Rule, **cookie: int) -> dict:
    """What a switch tells that has taken these."""
    entries = (flowmods.decode(flowmods.add(rule, address, **cookie))[1] for rule in rules)
    return {entry.key: entry for entry in entries}


def test_a_switch_gets_what_it_lacks_and_loses_what_it_should_not_have():
    """A circuit that leads elsewhere goes before it comes; a route is written over."""
    pair, other, circuit = ("pair", "h1", "h2"), ("pair", "h2", "h1"), ("port", 3)
    route, moved = (Rule("t1", pair, out, 200) for out in (4, 5))
    stays, gone = Rule("t1", other, 6, 200), Rule("t1", ("to", "h9"), 7, 300)
    wires = [flowmods.add(rule, address) for rule in (moved, stays)]
    strikes, adds = repair(wires, held(route, stays, gone, epoch=9))
    assert [flowmods.decode(w)[1].key for w in strikes] == list(held(gone)) and adds == wires[:1]
    lit, turned = (Rule("a1", circuit, out, 100) for out in (7, 8))
    wires = [flowmods.add(turned, address)]
    strikes, adds = repair(wires, held(lit))
    assert [flowmods.decode(w)[1].key for w in strikes] == list(held(lit)) and adds == wires
    assert repair(wires, held(turned)) == ([], [])
    drop = flowmods.decode(flowmods.unreachable("h1", "h2", address))[1]
    assert repair([], {drop.key: drop}) == ([], [])  # ends by itself
    foreign = flowmods.Entry(7, (("foreign eth_src", 1),), None)
    assert repair(wires, held(turned) | {foreign.key: foreign}) == ([flowmods.delete_all()], wires)


# --- REST and the command line --------------------------------------------------------------------


def status(served: Served, method: str, path: str, body: object = None) -> int:
    return answer(served, method, path, b"" if body is None else json.dumps(body).encode()).status


def test_every_error_has_the_status_that_http_gives_its_kind(monkeypatch):
    served = Served()
    circuits = {"circuits": other_circuits(SMALL).to_json()}
    assert status(served, "GET", "/plans/7") == 404
    assert status(served, "PATCH", "/plans") == 405
    assert status(served, "POST", "/plans", {"circuits": 3}) == 400
    assert status(served, "POST", "/plans", circuits) == 200
    served.switches.moods["a1"] = "refusing"
    assert status(served, "POST", "/plans/1/commit") == 500
    served.switches.moods.clear()
    assert status(served, "POST", "/plans/1/commit") == 409  # it has ended
    served.core.restore()
    assert status(served, "POST", "/plans", circuits) == 200
    served.switches.away.add("a1")
    assert status(served, "POST", "/plans/2/commit") == 503
    monkeypatch.setattr(Core, "plan", lambda *_: 1 // 0)  # a bug of ours
    assert status(served, "POST", "/plans", circuits) == 500


@pytest.mark.parametrize("key", ["delay_s", "control_s"])
def test_what_others_wait_for_has_a_limit_that_is_just_allowed(key):
    """The delay of the OCSes, 10 ms, counts where a plan has none of its own."""
    rest_of_it = 0.0 if key == "delay_s" else SMALL.reconfig_delay
    for beyond, code in ((0.0, 200), (0.01, 400)):
        seconds = schema.MAX_HOLD_S - rest_of_it + beyond
        body = {"circuits": other_circuits(SMALL).to_json(), key: seconds}
        assert status(Served(), "POST", "/plans", body) == code


@pytest.mark.parametrize(
    ("code", "tag", "kind"),
    [
        (400, "invalid-value", "application"), (401, "access-denied", "application"),
        (403, "access-denied", "application"), (404, "invalid-value", "application"),
        (405, "operation-not-supported", "application"), (409, "in-use", "application"),
        (500, "operation-failed", "rpc"), (503, "operation-failed", "rpc"),
    ],
)  # fmt: skip
def test_errors_of_restconf_have_the_tags_of_its_specification(code, tag, kind):
    """RFC 8040, section 7."""
    body = rest._error(code, "so it is", path="/restconf/data/x").body
    (said,) = body["ietf-restconf:errors"]["error"]
    assert said == {"error-type": kind, "error-tag": tag, "error-message": "so it is"}
    assert "ietf-restconf:errors" not in rest._error(code, "so it is", path="/plans").body


def test_refusals_that_any_request_may_meet_stand_in_the_document_with_each():
    """By their numbers in RFC 9110: of what is asked, and of who asks how and how often."""
    errors = {400, 401, 403, 405, 408, 411, 413, 421, 429, 503}
    for methods in openapi.document()["paths"].values():
        for method in methods.keys() & {"get", "put", "post", "delete", "patch"}:
            codes = set(map(int, methods[method]["responses"]))
            more = {200, 404} if "parameters" in methods else {200}
            assert codes == errors | more | ({409, 500} if method != "get" else set())


@pytest.mark.parametrize(
    ("code", "header"), [(200, ""), (401, "WWW-Authenticate: Bearer"), (429, "Retry-After: 1")]
)
def test_who_is_refused_is_told_what_to_do(code, header):
    """RFC 9110, section 11.6.1, and RFC 6585, section 4."""
    written = []
    handler = SimpleNamespace(
        responses=rest.Handler.responses, close_connection=False, command="GET", _note=id,
        connection=SimpleNamespace(settimeout=id), wfile=SimpleNamespace(write=written.append),
    )  # fmt: skip
    rest.Handler._send(handler, rest.HttpAnswer(code, {"a": 1}))
    head, body = b"".join(written).decode().split("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {code} ") and json.loads(body) == {"a": 1}
    assert f"Content-Length: {len(body)}\r\n" in head and "Connection" not in head
    for name in ("WWW-Authenticate", "Retry-After"):
        assert (name in head) is header.startswith(name)
    assert header in head


@pytest.mark.parametrize(
    ("host", "named"), [("127.0.0.1", ""), ("0.0.0.0", "0.0.0.0"), ("", "all addresses")]
)
@pytest.mark.parametrize("tls", [False, True])
def test_openflow_without_tls_is_warned_of_where_others_reach_it(
    host, named, tls, monkeypatch, caplog
):
    """To listen at no host is to listen at all."""
    told, module = {}, SimpleNamespace(StreamServer="plain")
    conf = SimpleNamespace(ofp_listen_host=host, set_default=told.__setitem__)
    made = SimpleNamespace(cfg=SimpleNamespace(CONF=conf), controller=module)
    monkeypatch.setattr(border.seam, "framework", lambda: made)
    monkeypatch.setattr(border.seam, "hub_module", lambda name: None)
    monkeypatch.setattr(border, "read_tls", lambda words, *_: words or None)
    monkeypatch.setattr(border, "_limited", lambda server: server)
    border.keep_openflow_home({"RFABRIC_OFP_TLS": "cert=a,key=b"} if tls else {})
    assert told == {"ofp_listen_host": "127.0.0.1"}
    warned = f"OpenFlow on {named} without --ofp-tls: whoever reaches it can pose as a switch"
    assert caplog.messages == ([warned] if named and not tls else [])
    assert (module.StreamServer == "plain") is not tls


@pytest.mark.parametrize("speaks", [True, False])
def test_only_switches_that_speak_tls_are_heard_where_it_is_asked_for(speaks, monkeypatch):
    heard = []
    monkeypatch.setattr(border, "wrapped", lambda tls, link, peer: (tls, link) if speaks else None)
    serve = border._server_in_tls(lambda address, handle: (address, handle), "tls")
    address, handle = serve("here", lambda *what: heard.append(what), certfile="not ours")
    handle("link", "peer")
    assert address == "here" and heard == ([(("tls", "link"), "peer")] if speaks else [])


@pytest.mark.parametrize(("tls", "speaks"), [("tls", True), ("tls", False), (None, False)])
def test_only_clients_that_speak_tls_are_served_where_it_is_asked_for(tls, speaks, monkeypatch):
    served, asked = [], []

    class Recording:
        def __init__(self, *what):
            served.append(what)

    monkeypatch.setattr(border, "keep_openflow_home", lambda: None)
    monkeypatch.setattr(rest.seam, "hub_module", lambda name: None)
    monkeypatch.setattr(border, "from_environment", lambda module: border.Border({}, tls=tls))
    monkeypatch.setattr(border, "wrapped", lambda *_: "inside" if speaks else None)
    monkeypatch.setattr(rest, "Handler", Recording)
    monkeypatch.setattr(rest.seam, "serve_http", lambda *what: asked.append(what) or ("::", 9))
    assert rest.serve("app", 8080, "host") == ("https://[::]:9" if tls else "http://[::]:9")
    ((handle, *where),) = asked
    handle("plain", "peer", "app")
    assert where == ["app", 8080, "host"]
    wire = ("inside" if speaks else None) if tls else "plain"
    assert served == ([(wire, "peer", "app")] if wire else [])


@pytest.mark.parametrize("name", ["ssl", "socket"])
@pytest.mark.parametrize(("hub", "package"), [("eventlet", "eventlet.green."), ("native", "")])
def test_sockets_let_others_run_under_either_hub(hub, package, name, monkeypatch):
    made = SimpleNamespace(hub=SimpleNamespace(HUB_TYPE=hub))
    monkeypatch.setattr(rest.seam, "framework", lambda: made)
    monkeypatch.setattr(rest.seam.importlib, "import_module", lambda name: name)
    assert rest.seam.hub_module(name) == package + name


def test_errors_of_rest_are_those_of_grpc():
    """As google.rpc.Code maps its codes to HTTP, but that 409 is of a state that does not fit."""
    pytest.importorskip("grpc")
    from rfabric.control import gnmi

    assert {code: status.name for code, status in gnmi.CODES.items()} == {
        401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
        409: "FAILED_PRECONDITION", 429: "RESOURCE_EXHAUSTED",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "around", "optical"),
    [
        ("", "", True), ("fat-tree,k=4", "", False), ("", "fat-tree,k=4", False),
        ("rfabric", "fat-tree,k=4", True), ("fat-tree,k=4", "rfabric", False),
    ],
)  # fmt: skip
def test_the_fabric_that_is_said_goes_before_that_of_the_environment(
    said, around, optical, monkeypatch
):
    started = []
    monkeypatch.setattr(launch.os, "environ", {"RFABRIC_TOPO": around})
    monkeypatch.setattr(launch.seam, "interpreter", lambda: launch.sys.executable)
    monkeypatch.setattr(launch, "run_apps", lambda apps, *_: started.extend(apps))
    launch.run(topo=said)
    (app,) = started
    assert app.endswith("controller/ocs.py" if optical else "controller/ecmp.py")
    assert launch.os.environ["RFABRIC_TOPO"] == (said or around)


@pytest.mark.parametrize("port", [-1, 0, 65536])
def test_a_port_is_a_number_that_tcp_has(port):
    with pytest.raises(RFabricError, match=f"port {port}: choose one from 1 to 65535"):
        launch._listener("127.0.0.1", port)


def test_what_is_lit_of_another_ocs_stays_where_one_is_told():
    core, _ = controlled()
    one = next(iter(core.epochs.circuits)).a.node
    free = Circuit.parse(f"{one}:1-2")
    before = core.epochs.circuits
    plan, decision, _ = core.plan(explicit([free], ocs=one))
    assert decision.circuits.of(one) == Circuits(frozenset([free]))
    assert decision.circuits.without(decision.circuits.of(one)) == before.without(before.of(one))
    assert plan is not None

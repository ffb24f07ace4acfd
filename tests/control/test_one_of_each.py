"""One controller a port and one a fabric; what its journal keeps; and what it is to be without some
of its cables.
"""

import contextlib
import logging
import os
import re
import socket
from types import SimpleNamespace

import pytest
from ground import SMALL, Served, ask, controlled

from rfabric.control import alone, logs, views
from rfabric.control.alone import HeldError, claim_port, listen, lock, refuse_taken
from rfabric.control.epochs import Epochs
from rfabric.control.journal import Journal
from rfabric.control.tables import without
from rfabric.control.views import TooManyError
from rfabric.errors import RFabricError
from rfabric.fabric import Port
from rfabric.optics import Circuit, Circuits, Rewire

# --- ports and fabrics ----------------------------------------------------------------------------


def test_a_lock_says_who_holds_it_and_no_more(tmp_path):
    path = tmp_path / "x.lock"
    path.write_text("4194304 was here before")
    with lock(path, "fabric x"):
        with pytest.raises(HeldError, match=f"control of process {os.getpid()} ") as held:
            lock(path, "fabric x")
        assert held.value.pid == os.getpid() and path.read_text() == str(os.getpid())
        path.write_text("")  # it has not said yet
        with pytest.raises(HeldError, match="under the control of process unknown") as held:
            lock(path, "fabric x")
        assert held.value.pid == 0
    lock(path, "fabric x").close()


@contextlib.contextmanager
def claims():
    """What is claimed here ends with the block."""
    before = len(alone._claims)
    try:
        yield
    finally:
        while len(alone._claims) > before:
            alone._claims.pop().close()


def free(host, family):
    with socket.socket(family) as wire:
        wire.bind((host, 0))
        return wire.getsockname()[1]


@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)]
)
def test_a_port_is_claimed_once_and_not_where_others_listen(host, family):
    try:
        port, other = free(host, family), free(host, family)
    except OSError:
        pytest.skip(f"no {host} here")
    with claims(), socket.socket(family) as listener:
        claim_port("REST address", host, port)
        with pytest.raises(
            HeldError, match=f"the controller of process {os.getpid()} has it"
        ) as at:
            claim_port("REST address", host, port)
        assert at.value.pid == os.getpid()
        listener.bind((host, other))
        listener.listen()
        for taken in (refuse_taken, claim_port, claim_port):  # its mark went with the error
            where = re.escape(f"[{host}]:{other}" if ":" in host else f"{host}:{other}")
            with pytest.raises(RFabricError, match=f"REST address {where}: Addr"):
                taken("REST address", host, other)


@pytest.mark.parametrize(("host", "by"), [("::", "127.0.0.1"), ("::", "::1"), ("", "127.0.0.1")])
def test_all_addresses_are_those_of_both_kinds(host, by):
    try:
        port = free("::1", socket.AF_INET6)
    except OSError:
        pytest.skip("no ::1 here")
    with claims(), listen("OpenFlow address", host, port):
        socket.create_connection((by, port), timeout=5).close()


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("256.1.1.1", "256.1.1.1:1: .*; name an address of this machine"),
        ("192.0.2.1", "192.0.2.1:1: .*; name an address of this machine"),
        ("2001:db8::1", r"\[2001:db8::1\]:1: .*; name an address of this machine"),
    ],
)
def test_an_address_of_nobody_here_is_no_matter_of_ports(host, said):
    with pytest.raises(RFabricError, match=said):
        refuse_taken("REST", host, 1)


def test_who_holds_a_port_and_does_not_answer_is_unknown():
    port = free("127.0.0.1", socket.AF_INET)
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(f"\0rfabric control 127.0.0.1 {port}")
        with pytest.raises(HeldError, match="the controller of process unknown has it") as held:
            claim_port("REST address", "127.0.0.1", port)
    assert held.value.pid == 0


# --- the journal ----------------------------------------------------------------------------------


def test_ten_thousand_decisions_are_kept_and_the_last_twenty_told(tmp_path):
    journal = Journal(tmp_path, SMALL)
    assert re.fullmatch(r"rfabric-[0-9a-f]{12}\.sqlite", journal.path.name)
    with journal._file as file:
        rows = ((float(n), f"decision {n}") for n in range(10_003))
        file.executemany("INSERT INTO decisions VALUES (?, ?)", rows)
    journal.close()
    journal = Journal(tmp_path, SMALL)
    assert journal.decisions() == [f"decision {n}" for n in range(9_983, 10_003)]
    assert journal.decisions(10**6)[0] == "decision 3"
    journal.close()


# --- what is told ---------------------------------------------------------------------------------


def test_log_lines_become_json_where_that_is_asked_for(monkeypatch):
    handler = logging.StreamHandler()
    root = SimpleNamespace(handlers=[handler])
    monkeypatch.setattr(logs, "logging", SimpleNamespace(getLogger=lambda: root))
    for wanted in ({}, {"RFABRIC_LOG": "text"}):
        logs.write_json_lines(lambda: 7, wanted)
        assert handler.formatter is None
    logs.write_json_lines(lambda: 7, {"RFABRIC_LOG": "json"})
    assert isinstance(handler.formatter, logs.JsonLines)


def test_sixty_four_plans_may_wait():
    lit = Circuits(frozenset([Circuit.parse("a1:1-a1:2")]))
    epochs = Epochs(lit)
    for n in range(1, 67):
        epochs = epochs.propose(Rewire(lit, Circuits()), 0.0).ready(n)
        epochs = epochs.abort(n) if n < 3 else epochs
        if n < 66:
            views._check_room(epochs)
    with pytest.raises(TooManyError, match="plans: 64 wait for their commit; the limit is 64"):
        views._check_room(epochs)


def test_switches_are_told_with_how_many_rules_they_have_and_whether_they_are_there():
    served = Served()
    served.core.set_pairs([("h1", "h5")])
    served.switches.away.add("a1")
    served.core.disconnected(SMALL.node["a1"].dpid)
    served.core.synced.discard("t2")
    told = {one["name"]: one for one in ask(served, "GET", "/switches")[1]["switches"]}
    for name, one in told.items():
        assert one["rules"] == sum(switch == name for switch, _ in served.core.table)
        assert one["connected"] is (name != "a1")
        assert one["programmed"] is (name not in ("a1", "t2"))
    assert told["t1"]["rules"] > 0 and 0 in {one["rules"] for one in told.values()}
    ports = ask(served, "GET", "/ocs/a2")[1]["ports"]
    assert [p["cable"] for p in ports] == [str(SMALL.peer[p][1]) for p in SMALL.ports["a2"]]


# --- SONiC's tables -------------------------------------------------------------------------------

TABLE = "/ocs/a1/restconf/data/sonic-ocs:sonic-ocs/OCS_CROSS_CONNECT"


def patched(value, name="1A-3B"):
    edit = {"operation": "merge", "target": f"/OCS_CROSS_CONNECT_LIST={name}", "value": value}
    return {"ietf-yang-patch:yang-patch": {"edit": [edit]}}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, ""), ({}, ""),
        ({"OCS_CROSS_CONNECT_LIST": [{"cross_connect_id": "1A-3B", "b_side": "3B"}]}, ""),
        ({"sonic-ocs:OCS_CROSS_CONNECT_LIST": [{"cross_connect_id": "1A-4B"}]}, "are two"),
        ({"OCS_CROSS_CONNECT_LIST": [{"cross_connect_id": "1A-3B"}] * 2}, "limit is 1 cross-conn"),
        ({"colour": []}, "unknown key 'colour'"),
    ],
)  # fmt: skip
def test_the_value_of_an_edit_says_what_its_target_says(value, said):
    """1A-3B is there already: nothing changes."""
    status, reply = ask(Served(), "PATCH", TABLE, patched(value))
    assert (status, said in reply.get("error", "")) == (400 if said else 200, True)
    assert said or reply["result"] == "UNCHANGED" and reply["circuits_changed"] == 0


@pytest.mark.parametrize("rows", [5, {"1A-2B": 5}, [{}]])
def test_tables_are_objects_of_objects(rows):
    status, reply = ask(Served(), "PUT", "/ocs/a1/config_db", {"OCS_CROSS_CONNECT": rows})
    assert status == 400 and "OCS_CROSS_CONNECT: expected an object of objects" in reply["error"]


@pytest.mark.parametrize("word", [None, "normal", "blocked", "", "Normal"])
def test_ports_that_are_not_to_be_normal_are_refused_and_nothing_moves(word):
    served = Served()
    tables = ask(served, "GET", "/ocs/a1/config_db")[1]
    row = {} if word is None else {"config_status": word}
    tables = {"OCS_CROSS_CONNECT": tables["OCS_CROSS_CONNECT"], "OCS_PORT": {"1A": row}}
    status, reply = ask(served, "PUT", "/ocs/a1/config_db", tables)
    if word in (None, "normal"):
        assert status == 200 and reply["result"] == "UNCHANGED"
    else:
        said = f"OCS_PORT 1A: config_status {word!r} cannot be set here; the ports of a1 are normal"
        assert status == 400 and said in reply["error"] and not served.core.epochs.plans


def test_what_is_deleted_of_an_ocs_without_circuits_is_told_that_there_are_none():
    served = Served()
    ask(served, "PUT", "/ocs/a1/circuits", {"circuits": []})
    edit = {"operation": "delete", "target": "/OCS_CROSS_CONNECT_LIST=1A-3B"}
    status, reply = ask(served, "PATCH", TABLE, {"ietf-yang-patch:yang-patch": {"edit": [edit]}})
    assert status == 409 and reply["error"].endswith("no such cross-connect; there are none")


def test_an_epoch_that_begins_in_between_is_not_overwritten():
    served = Served()
    core, plan = served.core, served.core.plan

    def overtaken(request):
        core.plan = plan
        ask(served, "PUT", "/ocs/a2/circuits", {"circuits": []})
        return plan(request)

    core.plan = overtaken
    rows = {"OCS_CROSS_CONNECT_LIST": []}
    status, reply = ask(served, "PUT", TABLE, {"sonic-ocs:OCS_CROSS_CONNECT": rows})
    assert status == 409 and "epoch 1 began while epoch 0 was being changed" in reply["error"]
    assert core.epochs.active == 1 and len(core.epochs.circuits.of("a1")) == 2
    assert core.epochs.last.state == "ABORTED"


# --- cables ---------------------------------------------------------------------------------------


def test_a_fabric_without_light_at_a_port_lacks_its_cable_and_no_other():
    cable = next(link for link in SMALL.links if "a1" in (link.a.node, link.b.node))
    for port in cable.a, cable.b:
        assert set(SMALL.links) - set(without(SMALL, frozenset([port])).links) == {cable}
    host = SMALL.ports["h3"][0]
    far = SMALL.peer[host][1]
    nowhere = Port("a1", 99)
    for ports in ([], [host], [far], [nowhere], [host, nowhere]):
        assert without(SMALL, frozenset(ports)) is SMALL  # a host keeps the only cable it has
    both = without(SMALL, frozenset([far, cable.a, nowhere]))
    assert set(SMALL.links) - set(both.links) == {cable}


def test_a_restart_of_one_switch_gives_it_what_it_lacks_and_the_others_nothing():
    core, switches = controlled()
    core.set_pairs([("h1", "h5")])
    name = "t1"
    before = dict(switches.tables[SMALL.node[name].dpid])
    switches.tables[SMALL.node[name].dpid].clear()
    switches.sent.clear()
    core.connected([SMALL.node[name].dpid])
    assert switches.tables[SMALL.node[name].dpid].keys() == before.keys()
    assert dict(switches.sent) == {name: len(before)}

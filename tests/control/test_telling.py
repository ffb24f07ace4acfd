"""What a controller tells its live page: looks, the pipe, and both processes with real OpenFlow."""

import base64
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ground import SMALL, all_pairs, explicit, other_circuits
from peers import Peers
from real import (
    ROOT,
    RYU_PYTHON,
    WITHOUT_RYU,
    child,
    crossed,
    free_port,
    in_namespace,
    network_under_control,
    ping,
    until,
)

from rfabric.control import telling
from rfabric.control.client import Client
from rfabric.control.core import Core, RolledBackError
from rfabric.control.fake import FakeClock, FakeSwitches
from rfabric.errors import RFabricError
from rfabric.fabric import Port, parse_fabric
from rfabric.optics import Circuits, Demand, Rewire, parse_policy

SPEC = "rfabric,pods=2,tors=2,gpus=2"
PATIENCE = 60.0
OTHER = other_circuits(SMALL)
USUAL = parse_policy("static", SMALL).decide(Demand.none(SMALL.racks), Circuits(), 0.0)


def app(fabric=SMALL):
    """An app around a core whose switches are in memory."""
    core = Core(fabric, FakeSwitches(fabric, FakeClock(step=1e-3)))
    core.connected(core.name_of)
    return SimpleNamespace(core=core, counters={}, health=lambda: {"ready": True}, count=bool)


def rewired(core, times=1):
    """That many rewires, between two sets of circuits."""
    for _ in range(times):
        wanted = OTHER if core.epochs.circuits != OTHER else USUAL
        plan, *_ = core.plan(explicit(wanted))
        core.commit(plan.epoch)


# --- looks ----------------------------------------------------------------------------------------


def test_every_rewire_is_told_once_however_many_come_between_two_looks():
    one = app()
    rewired(one.core, 3)
    teller = telling.Teller(one, one.core)
    first, told = teller.first(), []
    for many in (0, 1, 200, 0, 2):
        rewired(one.core, many)
        look = teller.look()
        assert len(look["ended"]) == many and look["under_way"] is None
        told += look["ended"]
    assert [plan["epoch"] for plan in told] == list(range(4, 4 + 203))
    lit = Circuits.from_json(first["circuits"])
    for plan in told:
        lit = Rewire.from_json(plan).apply(lit)
    assert lit == one.core.epochs.circuits and first["epoch"] == 3


def test_a_rewire_that_is_rolled_back_is_told_with_its_error():
    one = app()
    teller = telling.Teller(one, one.core)
    teller.first()
    plan, *_ = one.core.plan(explicit(OTHER))
    one.core.switches.moods = dict.fromkeys((n.name for n in SMALL.ocses), "refusing")
    with pytest.raises(RolledBackError):
        one.core.commit(plan.epoch)
    (told,) = teller.look()["ended"]
    assert told["state"] == "ABORTED" and "TABLE_FULL" in told["error"]
    assert teller.look()["ended"] == []


def test_rewires_are_told_in_the_order_in_which_they_began_and_plans_are_none():
    one = app()
    teller = telling.Teller(one, one.core)
    given_up, late, early = (one.core.plan(explicit(c))[0] for c in (OTHER, OTHER, Circuits()))
    one.core.abort(given_up.epoch)
    assert teller.look()["ended"] == []
    one.core.switches.moods = dict.fromkeys((n.name for n in SMALL.ocses), "refusing")
    with pytest.raises(RolledBackError):
        one.core.commit(early.epoch)
    one.core.switches.moods = {}
    one.core.restore()
    one.core.commit(late.epoch)
    assert [plan["epoch"] for plan in teller.look()["ended"]] == [early.epoch, late.epoch]


def test_a_look_in_the_midst_of_a_rewire_tells_of_it():
    one = app()
    teller, looks = telling.Teller(one, one.core), []
    push = one.core.switches.push
    one.core.switches.push = lambda *what: looks.append(teller.look()) or push(*what)
    rewired(one.core)
    busy = [look["under_way"] for look in looks if look["under_way"]]
    assert {plan["epoch"] for plan in busy} == {1} and busy[0]["state"] == "PROGRAMMING"
    assert teller.look()["under_way"] is None


def levels(told):
    return list(base64.b64decode(told["levels"]))


def counted(at, sent, fabric=SMALL):
    """Counters at `at` of switches between which each directed cable has carried sent(i) bytes."""
    ports = {node.name: {} for node in fabric.switches}
    for i, link in enumerate(fabric.links):
        for port, bytes_ in ((link.a, (2 * i + 1, 2 * i)), (link.b, (2 * i, 2 * i + 1))):
            if port.node in ports:
                ports[port.node][port.number] = tuple(map(sent, bytes_))
    return {node.dpid: (at, ports[node.name]) for node in fabric.switches}


def test_rates_are_the_bytes_between_two_answers_over_the_seconds_between_them():
    rates = telling.Rates(SMALL)
    nothing = rates.since(counted(5.0, lambda i: 1000))
    assert set(levels(nothing)) == {0} and nothing["to_hosts_bps"] == 0
    rate = [link.rate for link in SMALL.links for _ in range(2)]
    told = rates.since(counted(7.0, lambda i: 1000 + 2.0 * rate[i] / 8 * (i % 5) / 4))
    assert levels(told) == [50 * (i % 5) for i in range(len(rate))]
    hosts = set(SMALL.hosts)
    into = [x for link in SMALL.links for x in (link.b.node in hosts, link.a.node in hosts)]
    expected = sum(r * (i % 5) / 4 for i, r in enumerate(rate) if into[i])
    assert told["to_hosts_bps"] == pytest.approx(expected)


def test_no_rate_is_told_of_who_has_not_answered_or_counts_anew():
    rates = telling.Rates(SMALL)
    rates.since(counted(5.0, lambda i: 10**12))
    same = rates.since(counted(5.0, lambda i: 10**12))
    anew = rates.since(counted(6.0, lambda i: 7))
    gone = rates.since({})
    back = rates.since(counted(9.0, lambda i: 10**13))
    assert not any(any(levels(told)) for told in (same, anew, gone, back))
    assert [told["to_hosts_bps"] for told in (same, anew, gone, back)] == [0.0] * 4
    strange = {dpid: (10.0, {}) for dpid in counted(0, float)}  # ports have gone
    assert not any(levels(rates.since(strange)))


# --- the pipe -------------------------------------------------------------------------------------


def test_a_reader_that_stops_holds_nothing_up_and_loses_nothing(monkeypatch):
    """The pipe is full for a while; then all that has come is told."""
    one, (reading, writing) = app(), os.pipe()
    waits, stop = [], threading.Event()

    def rest(seconds):
        waits.append(seconds)
        if stop.is_set():
            raise OSError("enough")
        time.sleep(1e-4)

    teller = threading.Thread(target=telling.tell, args=(one, writing, rest), daemon=True)
    teller.start()
    until(lambda: telling.FULL_S in waits, "the pipe to be full")
    rewired(one.core, 300)  # no commit waits for the reader
    heard = []
    with os.fdopen(reading, "rb") as lines:
        heard.append(json.loads(lines.readline()))
        while sum(len(look["ended"]) for look in heard[1:]) < 300:
            heard.append(json.loads(lines.readline()))
        stop.set()
        threading.Thread(target=lines.read, daemon=True).start()
        teller.join(PATIENCE)
        os.close(writing)
    told = [plan["epoch"] for look in heard[1:] for plan in look["ended"]]
    assert told == list(range(1, 301)) and not teller.is_alive()


def test_a_reader_that_goes_ends_it_with_a_word(caplog):
    one, (reading, writing) = app(), os.pipe()
    os.close(reading)
    telling.tell(one, writing, lambda seconds: None)
    os.close(writing)
    assert "the live page is gone" in caplog.text


@pytest.mark.parametrize("text", ["x", "-1", "1e3", "99999", "9" * 40, "0x3"])
def test_what_is_no_pipe_is_refused(text):
    with pytest.raises(RFabricError, match="RFABRIC_LIVE=.* is no pipe of this process"):
        telling.pipe_of(text)


def test_large_fabrics_are_asked_less_often(monkeypatch):
    assert telling.Teller(app(), app().core).pause == telling.LOOK_S
    monkeypatch.setattr(telling, "CABLES_PER_S", 4.0)
    assert telling.Teller(app(), app().core).pause == len(SMALL.links) / 4


def test_two_thousand_cables_are_asked_for_in_a_second(monkeypatch):
    monkeypatch.setattr(telling, "Rates", lambda fabric: None)
    for cables, pause in ((1, 1.0), (2000, 1.0), (5000, 2.5)):
        core = SimpleNamespace(fabric=SimpleNamespace(links=range(cables)))
        assert telling.Teller(app(), core).pause == pause


# --- processes ------------------------------------------------------------------------------------


def address_in(said):
    return re.search(r"http://127.0.0.1:\d+/[\w-]+/", said)[0]


class Served:
    """`rfabric control --live` over OpenFlow peers."""

    def __init__(self, sdn="os-ken", spec=SPEC, before=(), **process):
        self.ofp, self.rest = free_port(), free_port()
        line = f"control --port {self.rest} --ofp-port {self.ofp} --no-journal --sdn {sdn} --live"
        words = [*before, sys.executable, "-m", "rfabric", *line.split()]
        words += ["--topo", spec] if spec else []
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        if sdn == "ryu":
            env["RFABRIC_CONTROL_PYTHON"] = str(RYU_PYTHON)
        process |= {"stderr": subprocess.PIPE, "text": True, "env": env}
        self.process = subprocess.Popen(words, **process)
        said = self.process.stderr.readline()
        self.address = address_in(said)
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.client = Client(f"http://127.0.0.1:{self.rest}", timeout=20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def get(self, name=""):
        return get(self.address, name)

    def viewer(self):
        return viewer(self.process)

    def gone(self):
        return gone(self.address)


def get(address, name=""):
    """What the page's server answers."""
    _, _, host, *rest = address.split("/")
    connection = http.client.HTTPConnection(host, timeout=PATIENCE)
    connection.request("GET", "/" + "/".join(rest) + name)
    return connection.getresponse()


def viewer(controller):
    """The process that serves the page."""
    with open(f"/proc/{controller.pid}/task/{controller.pid}/children") as listed:
        return int(listed.read().split()[0])


def gone(address):
    try:
        get(address)
    except OSError:
        return True
    return False


def events(stream):
    """The records of a stream, one by one; the last word as {"end": ...}."""
    kind = "record"
    for raw in stream:
        line = raw.decode().rstrip("\n")
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data = json.loads(line.removeprefix("data: "))
            yield {kind: data} if kind == "end" else data


def first_that(records, true):
    heard = []
    for record in records:
        heard.append(record)
        if true(record):
            return heard
    raise AssertionError("the stream has ended")


@pytest.mark.parametrize("sdn", ["os-ken", pytest.param("ryu", marks=WITHOUT_RYU)])
def test_a_page_hears_of_every_rewire_and_of_bytes_until_the_controller_is_killed(sdn):
    with Served(sdn) as one:
        page = one.get().read().decode()
        peers = Peers(SMALL, one.ofp)
        try:
            one.client.wait_ready(30)
            one.client.put_pairs(all_pairs(SMALL))
            for i in range(4):
                plan = one.client.plan_circuits([OTHER, USUAL][i % 2])
                one.client.commit(plan.epoch)
            records = events(one.get("events"))
            heard = first_that(records, lambda r: 4 in [x["epoch"] for x in r.get("rewires", ())])
            told = [x for r in heard for x in r.get("rewires", ())]
            assert heard[0] == {"turn": 0} and [x["epoch"] for x in told] == [1, 2, 3, 4]
            plans = {plan["epoch"]: plan for plan in one.client.plans()}
            for rewire in told:
                plan = plans[rewire["epoch"]]
                dark = rewire["dark_until_s"] - rewire["programmed_s"]
                assert dark == pytest.approx(plan["dark_until_s"] - plan["programmed_s"])
                assert rewire["exposed_s"] is None and rewire["lost_bytes"] == plan["lost_bytes"]
            lit = [c for r in heard for c in r.get("circuits", ())]
            assert [Circuits.from_json(c["names"]) for c in lit] == [OTHER, USUAL, OTHER, USUAL]
            link = SMALL.links[0]
            into = Port(link.a.node, link.a.number) if link.a.node in peers.held.names else link.b
            peers.bytes[into] = (int(1e12), 0)
            first_that(records, lambda r: any(base64.b64decode(r["load"]["levels"])))
            assert "waits for it" in page or "under control" in page
            one.process.send_signal(signal.SIGKILL)
            last = first_that(records, lambda r: "end" in r)[-1]
            assert last["end"] == {"error": "the controller has ended", "report": False}
            until(one.gone, "the page to be gone")
        finally:
            peers.close()


NO_STDIN = ("sh", "-c", 'exec "$@" <&-', "sh")


@pytest.mark.parametrize("before", [(), NO_STDIN], ids=["", "stdin closed"])
def test_a_controller_outlives_its_page_and_waits_for_its_switches(before):
    """Its fabric is read from the switches: until then the page says that it waits."""
    with Served(spec="", before=before) as one:
        assert "does not know its fabric yet" in one.get().read().decode()
        peers = Peers(SMALL, one.ofp)
        try:
            until(lambda: "under control" in one.get().read().decode(), "the fabric", PATIENCE)
            os.kill(one.viewer(), signal.SIGKILL)
            until(one.gone, "the page to be gone")
            time.sleep(2 * telling.LOOK_S)
            plan = one.client.plan_circuits(OTHER)
            one.client.commit(plan.epoch)
            assert one.client.epoch() == plan.epoch and one.process.poll() is None
        finally:
            peers.close()


def test_two_controllers_have_two_pages_and_a_taken_port_is_refused_at_once():
    with Served() as one, Served() as other:
        assert one.address != other.address
        port = one.address.split(":")[2].partition("/")[0]
        words = [sys.executable, "-m", "rfabric", "control", "--topo", SPEC, "--live", port]
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        late = subprocess.run(words, capture_output=True, text=True, env=env, timeout=PATIENCE)
        assert late.returncode == 2
        assert f"--live {port}: Address already in use; give another port" in late.stderr


# --- real switches --------------------------------------------------------------------------------

REAL = "rfabric,pods=2,tors=2,gpus=1,rate=100Mbit/s,electrical=10Mbit/s"


def page_of_real_switches(folder):
    """In namespaces of its own: pings and rewires on a page; the controller is killed, then the
    next one's page.
    """
    words = [sys.executable, "-m", "rfabric", "control", "--topo", REAL, "--live"]
    out, told = Path(folder, "next.out"), {}
    with network_under_control(folder, REAL, words=words) as (net, client, controller, straight):
        fabric, address = parse_fabric(REAL), address_in(Path(folder, "control.out").read_text())
        told["page"] = "under control" in get(address).read().decode()
        turned = crossed(fabric, straight)
        records = events(get(address, "events"))
        done = client.commit(client.plan_circuits(turned).epoch)
        heard = first_that(records, lambda r: done.epoch in epochs(r))
        lit = [c for r in heard for c in r.get("circuits", ())][-1]
        told["lit"] = Circuits.from_json(lit["names"]) == turned
        flood = ["mnexec", "-a", str(net["h1"].pid), "ping", "-f", "-q", "-s1400", net["h4"].IP()]
        with child(flood, f"{folder}/flood.out"):
            busy = first_that(records, lambda r: loads(r).max(initial=0) > 0)[-1]
            told["loads"] = loaded(fabric, loads(busy))
        told["before"] = ping(net, fabric)  # it answers who asks for an address
        controller.kill()
        controller.wait()
        told["last"] = first_that(records, lambda r: "end" in r)[-1]["end"]
        until(lambda: gone(address), "the page to be gone")
        told["without"] = ping(net, fabric)
        with child(words, out) as after:
            client.wait_ready(30)
            address = address_in(out.read_text())
            until(lambda: "under control" in get(address).read().decode(), "the next page")
            os.kill(viewer(after), signal.SIGKILL)
            until(lambda: gone(address), "the next page to be gone")
            client.put_pairs(all_pairs(fabric))
            for wanted in (straight, turned):  # whichever it has lit, one is another
                if (plan := client.plan_circuits(wanted)).rewire:
                    client.commit(plan.epoch)
            time.sleep(2 * telling.LOOK_S)
            told["after"] = [after.poll(), ping(net, fabric)]
    print(json.dumps(told))


def epochs(record):
    return [rewire["epoch"] for rewire in record.get("rewires", ())]


def loads(record):
    """Of each directed cable its load, 0..1."""
    column = base64.b64decode(record["load"]["levels"]) if "load" in record else b""
    return np.frombuffer(column, np.uint8) / telling.LEVELS


def loaded(fabric, shares):
    """The hosts whose cables carry something."""
    ends = [name for link in fabric.links for name in [(link.a.node, link.b.node)] * 2]
    busy = {name for pair, share in zip(ends, shares, strict=True) if share > 0 for name in pair}
    return sorted(busy & set(fabric.hosts))


@pytest.mark.root
@pytest.mark.beside
def test_a_page_follows_real_switches_past_kill_9_of_the_controller_and_of_itself(run_dir):
    """Rewires and bytes as Open vSwitch counts them; packets pass whoever is killed."""
    told = in_namespace(page_of_real_switches, run_dir)
    assert told["page"] and told["lit"] and told["loads"] == ["h1", "h4"]
    assert told["last"] == {"error": "the controller has ended", "report": False}
    assert told["before"] == told["without"] == [12, 12] and told["after"] == [None, [12, 12]]

"""The wire layer of the emulation: private worlds, shaped cables, TCP endpoints, the guard.

Root tests use real packets.

Inside a world this file runs itself: `world(run_dir, "scenario")` launches it, the scenario prints
one JSON line.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric.emulate import calibrate, foreseen, guard, network, sandbox, shaping
from rfabric.emulate.wire import AT_ONCE, Alarm, Wire, warmed
from rfabric.errors import RFabricError, RunError
from rfabric.fabric import fat_tree, parse_fabric, rfabric
from rfabric.simulate.world import simulate
from rfabric.study import selftest
from rfabric.trace import TraceBuilder, packets
from rfabric.units import transfer_seconds

RATE = 20e6  # bit/s of a cable in the root tests
SMALL = {"pods": 2, "tors": 2, "gpus": 2}
FEW = 1, 2, 3, 5, 9, 15  # packets of flows
LIMIT = 90.0  # s after which a world that hangs is ended


# --- inside a world -------------------------------------------------------------------------------


@contextlib.contextmanager
def small_network(run_dir, rate=RATE, **more):

    fabric = fat_tree(**SMALL)
    with sandbox.Sandbox(run_dir) as box:
        net = network.EmulatedNetwork(box, fabric, rate / 400e9, **more)
        net.start()
        calibrate.install_rules(net, [(a, b) for a in fabric.hosts for b in fabric.hosts if a != b])
        wire = Wire(net)
        yield box, net, wire
        wire.close()
        net.stop()


def transfer(wire, flows):
    """Send (src, dst, bytes) flows at once; seconds to each one's last byte, in order."""
    begin, took = time.monotonic(), {}
    for number, flow in enumerate(flows):
        wire.send(number, *flow)
    while wire.in_flight():
        took |= {a.flow: a.at - begin for a in wire.poll(0.5)}
    return [took[i] for i in range(len(flows))]


def transfers(run_dir, datapath):
    """How long flows take, over the ideal; what pausing does; what the guard thinks of it."""
    with small_network(run_dir, datapath=datapath) as (box, net, wire):
        h = net.fabric.hosts
        second = round(RATE / 8)
        cases = {
            "lone": [(h[0], h[4], second)],
            "ring": [(a, b, second) for a, b in zip(h[:4], (*h[1:4], h[0]), strict=True)],
            "incast": [(a, h[7], second // 4) for a in h[:4]],
            # the first is free and has what the second, held up far away, leaves of their card
            "beside": [(h[0], h[5], 3 * second // 4), *((a, h[6], second // 4) for a in h[:4])],
            # the last packet of each is as short as an acknowledgement
            "tails": [
                (a, h[7], second // 4 // packets.PAYLOAD * packets.PAYLOAD + 20) for a in h[:4]
            ],
        }
        wire.open({(src, dst): 1 for flows in cases.values() for src, dst, _ in flows})
        wire.warm()
        # it leaves no trace
        assert not wire.in_flight() and not any(count.any() for count in wire.counted(4))
        watch = guard.Guard(box, net)
        ratios = {name: transfer(wire, flows) for name, flows in cases.items()}
        resent = watch._segments()[0] - watch._tcp[0]
        watch.sample()

        wire.send(1, h[0], h[4], second)
        wire.poll(0.2)
        wire.pause([1])
        begin = time.monotonic()
        while wire.unacked([1]) and time.monotonic() - begin < 5:
            wire.poll(0.001)
        quiet = time.monotonic() - begin
        held = wire.progress(1)
        wire.poll(0.2)
        still = wire.progress(1)
        wire.resume([1])
        while wire.in_flight():
            wire.poll(0.5)
        sent, received = wire.counted(2)
        return {
            "ratios": ratios,
            "quiet": quiet,
            "held": held,
            "still": still,
            "size": second,
            "sent": int(sent[1]),
            "received": int(received[1]),
            "resent": resent,
            "queue_drops": queue_drops(),
            "asked": datapath,
            "datapath": sandbox.run(
                ["ovs-vsctl", "get", "Bridge", net.switches[0].name, "datapath_type"]
            ),
            "wait": max(s.wait for s in watch.samples) / watch.packet_time,
        }


def afterwards(run_dir):
    """How long flows take that come after long queues, over the ideal."""
    rate = 3 * RATE
    with small_network(run_dir, rate, lossless=True) as (_, net, wire):
        *others, last = net.fabric.hosts
        wire.open({(host, last): 40 for host in others})
        wire.warm()
        few, took = 20 * packets.PAYLOAD, []
        for host in others[-3:] * 2:  # whose flows wait longest
            transfer(wire, [(other, last, few // 5) for other in others for _ in range(40)])
            took += transfer(wire, [(host, last, few)])
        return {"ratios": [seconds / transfer_seconds(few, rate) for seconds in took]}


def queue_drops():
    text = sandbox.run(["tc", "-s", "qdisc", "show"])
    return sum(
        int(line.split("dropped ")[1].split(",")[0])
        for line in text.splitlines()
        if "dropped " in line
    )


def overload(run_dir):
    """Asks the datapath for more than any host moves; the verdict must say so."""
    with small_network(run_dir, network.MAX_RATE) as (box, net, wire):
        h = net.fabric.hosts
        pairs = [(h[i], h[i + 4]) for i in range(4)]
        wire.open(dict.fromkeys(pairs, 1))
        watch = guard.Guard(box, net)
        for flow, pair in enumerate(pairs):
            wire.send(flow, *pair, 1 << 40)
        for _ in range(6):
            wire.poll(0.25)
            watch.sample()
        return watch.verdict(*late(0.0), 0.005).to_json()


def dead_switch(run_dir):
    """Kills the datapath in mid-run."""
    with small_network(run_dir) as (box, _, _):
        box.check()
        os.kill(box.children[sandbox.DATAPATH].pid, signal.SIGKILL)
        time.sleep(0.2)
        try:
            box.check()
        except RunError as error:
            return str(error)


def rested(run_dir):
    """Packets by which flows of a card that was at rest are late, by how many packets they have."""
    with small_network(run_dir) as (_, net, wire):
        src, dst = net.fabric.hosts[0], net.fabric.hosts[-1]
        wire.open({(src, dst): 1})
        wire.warm()
        packet, late = transfer_seconds(packets.PAYLOAD, RATE), {}
        for count in FEW:
            wire.poll(0.1)  # it rests
            (took,) = transfer(wire, [(src, dst, count * packets.PAYLOAD)])
            late[count] = took / packet + 1 - count  # what has come has yet to be on a cable
        return late


def no_way(run_dir):
    """A pair whose rules are missing does not connect, and is named."""
    with small_network(run_dir) as (_, net, wire):
        for switch in net.fabric.switches:
            sandbox.run(["ovs-ofctl", "-OOpenFlow13", "del-flows", switch.name])
        try:
            wire.open({("h1", "h8"): 1}, timeout=1.0)
        except RunError as error:
            return str(error)


def wait(run_dir):
    """A world that says that it is up, where, and then stays."""
    with small_network(run_dir) as (box, net, _):
        links = sorted(os.listdir("/sys/class/net"))
        print(
            json.dumps({"links": links, "pids": [box.children[sandbox.DATAPATH].pid]}), flush=True
        )
        time.sleep(LIMIT)


SCENARIOS = {
    f.__name__: f for f in (transfers, overload, dead_switch, no_way, wait, afterwards, rested)
}


# --- outside --------------------------------------------------------------------------------------


def start(run_dir, scenario, *words):
    return sandbox.launch(
        [sys.executable, __file__, scenario, str(run_dir), *words], run_dir,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def world(run_dir, scenario, *words):
    """The answer of a scenario, which gets these words too, run in a private world."""
    process = start(run_dir, scenario, *words)
    try:
        out, err = process.communicate(timeout=LIMIT)
    finally:
        sandbox.end(process, run_dir)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def processes_of(run_dir):
    """Command lines that name the folder: what is left of a run."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(run_dir) in line and f"/proc/{os.getpid()}/" not in str(path):
                lines.append(line)
    return lines


def gone(run_dir, patience=15.0):
    limit = time.monotonic() + patience
    while processes_of(run_dir) and time.monotonic() < limit:
        time.sleep(0.1)
    return not processes_of(run_dir)


@pytest.fixture(scope="module", params=["user", "kernel"])
def moved(request, tmp_path_factory):
    """What flows did in each datapath that this host has; a test's name says which it took."""
    if request.param == "kernel" and sandbox.datapath() != "kernel":
        pytest.skip("no kernel datapath here: `modprobe openvswitch` where the kernel has it")
    return world(tmp_path_factory.mktemp("transfers"), "transfers", request.param)


@pytest.mark.root
def test_flows_take_their_fair_share_of_time(moved):
    """One second at line rate each; wide bounds, for a shared machine may be late, but never early
    by much.
    """
    for name, seconds in moved["ratios"].items():
        assert min(seconds) > 0.85 and max(seconds) < 1.6, f"{name}: {seconds}"


@pytest.mark.root
def test_bridges_are_of_the_datapath_that_was_asked_for(moved):
    """`netdev` is the one in user space (ovs-vswitchd.conf.db(5)); the kernel's is the default."""
    assert moved["datapath"].strip() == {"user": "netdev", "kernel": '""'}[moved["asked"]]


@pytest.mark.root
def test_nothing_is_lost_in_the_queues_of_an_incast(moved):
    assert moved["queue_drops"] == 0


@pytest.mark.root
def test_nothing_is_sent_again(moved):
    """Nothing overtakes the packets of a flow, not even its own last one of a few bytes: all four
    would send again what is under way. A shared machine may hold each up for a time-out.
    """
    assert moved["resent"] <= 4


@pytest.mark.root
def test_a_flow_after_a_long_queue_has_its_cable_at_once(run_dir):
    """However long the round trips of its connection were: paced by these most took twice as long
    or longer. A shared machine may be late, now and then.
    """
    ratios = world(run_dir, "afterwards")["ratios"]
    assert 0.85 < np.median(ratios) < 1.4, ratios


@pytest.mark.root
def test_a_flow_of_a_card_at_rest_takes_its_packets_time(run_dir):
    """Its card's bucket lets two packets more than one go at once: flows that did not wait for the
    time of these ended as much too early. A shared machine may be late.
    """
    late = world(run_dir, "rested")
    assert len(late) == len(FEW) and min(late.values()) > -0.9, late
    assert np.median(list(late.values())) < 1.5, late


def a_batch():
    """(s after the one before, bytes of its flows)."""
    sizes = st.integers(1, 400_000) | st.integers(1, 4).map(lambda n: n * packets.PAYLOAD)
    return st.tuples(st.floats(0.0, 0.1), st.lists(sizes, min_size=1, max_size=6))


@given(st.floats(1e6, 1e9), st.lists(a_batch(), min_size=1, max_size=20))
def test_what_waits_for_its_card_ends_as_on_a_cable_without_a_bucket(rate, batches):
    """Flows given to a card, some s after the last: HTB lets a packet go while its bucket is not in
    debt. The last of a batch, and its own time, ends when the fluid does; of several flows up to
    two packets from it, of those that find the card busy up to a bucket before.
    """
    wire = object.__new__(Wire)
    wire._busy = {}
    packet, most = transfer_seconds(packets.PAYLOAD, rate), shaping.bucket(rate)
    saved, at, now, fluid = most, 0.0, 0.0, 0.0  # at: when `saved` bytes were in the bucket
    for pause, sizes in batches:
        now += pause
        rests, fluid = fluid <= now, max(fluid, now) + transfer_seconds(sum(sizes), rate)
        last = max((size - 1) % packets.PAYLOAD + 1 for size in sizes)
        sends = now + wire._at_rest(("h1", rate), sum(sizes), last, now)
        for size in sizes:
            left = size
            while left:
                sent = min(left, packets.PAYLOAD)
                begin = max(sends, at)
                saved = min(saved + (begin - at) * rate / 8, most)
                at = begin + max(-saved, 0.0) * 8 / rate
                saved, left = max(saved, 0.0) - sent, left - sent
        off = at + transfer_seconds(sent, rate) - fluid
        assert -8 * most * (not rests) / rate - packet * (len(sizes) > 1) - 1e-9 <= off
        assert off <= packet * (len(sizes) > 1 or not rests) + 1e-9


def test_a_held_flow_that_is_sent_late_says_so(monkeypatch):
    """As from a host whose processors others have: each takes 10 ms to send, the third is late by
    what the two before took; and all of it counts that passed since they should have.
    """
    wire, sent = object.__new__(Wire), []
    wire._busy, wire._held, wire.lag = {}, {}, 0.0
    wire._holds = SimpleNamespace(set=lambda at: sent.append(("rings", at)))
    lanes = [SimpleNamespace(size=10 * packets.PAYLOAD, late=0.0) for _ in range(3)]
    wire._push = lambda lane: (time.sleep(0.01), sent.append(lane))
    wire._start(("h1", 1e7), lanes[:2], 0.001)
    wire._start(("h1", 1e7), lanes[2:], 0.001)  # it joins those that are held
    wire._let_go()
    ((_, at),) = sent
    assert at == pytest.approx(time.monotonic() + shaping.STALL_S - 0.001, abs=5e-3)
    time.sleep(0.03)
    wire._let_go()
    late = [lane.late for lane in lanes]
    assert sent[1:4] == lanes and np.diff(late).min() > 0.009 and 0.015 < late[0] < 0.1
    assert wire.lag == late[-1] and not wire._held


@pytest.mark.root
def test_a_paused_flow_falls_silent_and_completes_after_resume(moved):
    assert moved["quiet"] < 1.0
    assert moved["held"] == moved["still"], "bytes moved while paused"
    assert 0 < moved["held"][0] < moved["size"]
    assert moved["sent"] == moved["received"] == moved["size"]


@pytest.mark.root
def test_an_overrun_datapath_is_told_so_with_the_scale_to_use(run_dir):
    pace = world(run_dir, "overload")
    assert not pace["ok"]
    assert any("the datapath fell behind in" in reason for reason in pace["reasons"]), pace
    assert "use --bandwidth-scale 0.00" in pace["advice"]


@pytest.mark.root
def test_death_of_the_switches_names_them(run_dir):
    assert world(run_dir, "dead_switch").startswith("ovs-vswitchd ")


@pytest.mark.root
@pytest.mark.beside
def test_a_pair_without_a_way_is_named(run_dir):
    assert "the first is h1 -> h8; do the switches have rules" in world(run_dir, "no_way")


@pytest.mark.root
def test_two_worlds_live_side_by_side_and_end_by_id_or_with_their_caller(run_dir):
    first, second = run_dir / "first", run_dir / "second"
    before = set(os.listdir("/sys/class/net"))
    caller = subprocess.Popen(
        [sys.executable, __file__, "caller", str(second)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process = start(first, "wait")
    try:
        links = [json.loads(p.stdout.readline())["links"] for p in (process, caller)]
        assert links[0] == links[1] and {"t1-eth1", "a1-eth1"} < set(links[0])
        assert set(os.listdir("/sys/class/net")) == before, "interfaces of the host changed"
        assert sandbox.runs(run_dir) == {"first": True, "second": True}
        with pytest.raises(RFabricError, match="no unfinished run 'third' in .*: first, second"):
            sandbox.clean(run_dir, "third")
        assert sandbox.clean(run_dir) == [], "clean without an id leaves living runs alone"

        caller.kill()  # as `kill -9` of the command line
        caller.wait()
        assert gone(second), processes_of(second)
        assert sandbox.runs(run_dir) == {"first": True, "second": False}
        assert sandbox.clean(run_dir) == ["second"]

        assert sandbox.clean(run_dir, "first") == ["first"]
        assert process.wait(15) != 0 and gone(first), processes_of(first)
        assert sandbox.runs(run_dir) == {}
    finally:
        caller.kill()
        sandbox.end(process, first)
        caller.communicate()
        process.communicate()


@pytest.mark.root
def test_calibration_counts_packet_hops(run_dir):
    answer = world(run_dir, "calibration")
    assert 1e3 < answer < 1e8


def calibration(run_dir):
    with sandbox.Sandbox(run_dir) as box:
        return calibrate.packet_hops(box, fat_tree(**SMALL))


def caller(run_dir):
    """What a command line does: launch, and wait."""
    process = start(run_dir, "wait")
    print(process.stdout.readline(), end="", flush=True)
    process.wait()


SCENARIOS |= {"calibration": calibration, "caller": caller}


# --- without root ---------------------------------------------------------------------------------


def test_not_root_and_missing_programs_say_the_way_out(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RFabricError, match="needs root .*run it with sudo"):
        sandbox.require()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        sandbox, "which", lambda program: None if program in ("mnexec", "tc") else program
    )
    with pytest.raises(
        RFabricError, match="missing programs: tc, mnexec; .*apt-get install iproute2 mininet"
    ):
        sandbox.require()
    monkeypatch.setattr(sandbox, "which", lambda program: program)
    monkeypatch.setattr(sandbox, "find_spec", lambda module: None)
    with pytest.raises(RFabricError, match="has no mininet.*apt-get install mininet.*-m venv"):
        sandbox.require()


def test_clean_forgets_stale_runs_and_spares_a_process_that_took_the_pid(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            for name, pid, ticks in (("reused", other.pid, 1), ("dead", 2**22 - 1, 5)):
                (tmp_path / name).mkdir()
                state = {"run_id": name, "pid": pid, "pid_start_ticks": ticks}
                (tmp_path / name / sandbox.STATE_FILE).write_text(json.dumps(state))
            (tmp_path / "broken").mkdir()
            (tmp_path / "broken" / sandbox.STATE_FILE).write_text("{")
            (tmp_path / "finished").mkdir()
            assert sandbox.runs(tmp_path) == {"reused": False, "dead": False, "broken": False}
            assert sorted(sandbox.clean(tmp_path)) == ["broken", "dead", "reused"]
            assert other.poll() is None, "clean killed a process that is not its own"
            assert sandbox.runs(tmp_path) == {}
        finally:
            other.kill()


def test_clean_by_id_ends_a_living_run(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as process:
        (tmp_path / "mine").mkdir()
        state = {
            "run_id": "mine",
            "pid": process.pid,
            "pid_start_ticks": sandbox._start_ticks(process.pid),
        }
        (tmp_path / "mine" / sandbox.STATE_FILE).write_text(json.dumps(state))
        assert sandbox.clean(tmp_path) == [] and process.poll() is None
        assert sandbox.clean(tmp_path, "mine") == ["mine"]
        assert process.wait(5) == -signal.SIGKILL


def test_private_files_never_hide_what_the_run_needs(monkeypatch, tmp_path):
    shared, spare = tmp_path / "shm", tmp_path / "spare"
    shared.mkdir()
    spare.mkdir()
    monkeypatch.setattr(sandbox, "COVERS", (str(shared), str(spare)))
    assert sandbox._cover(tmp_path / "run") == shared
    assert sandbox._cover(shared / "run") == spare
    monkeypatch.setattr(sandbox, "COVERS", (str(shared),))
    with pytest.raises(RFabricError, match="put the run folder elsewhere"):
        sandbox._cover(shared / "run")


def test_cables_carry_their_rate_as_payload():
    lines = shaping.shaping("t1-eth3", 20e6, shaping.Turns(64, range(64), 15))
    rates = {word for line in lines for word in line.split() if word.endswith("bit")}
    assert rates == {"20000000bit", "1kbit"}
    frame = packets.PAYLOAD + packets.HEADERS + shaping.ETHERNET
    assert f"stab overhead -{frame - packets.PAYLOAD} " in lines[0]
    assert all("dev t1-eth3" in line for line in lines)


def test_what_is_held_up_is_paced_after_that_and_counted_alike():
    """The kernel takes a table of sizes at the root alone ("STAB not supported on a non root")."""
    words = "t1-eth3", 20e6, shaping.Turns(64, range(64), 15)
    at_once, (held, paced, *late) = shaping.shaping(*words), shaping.shaping(*words, 0.02)
    assert held == f"qdisc replace dev t1-eth3 root handle 2: {shaping.COUNTED} " + (
        f"netem delay 20000us limit {shaping.MOST_DELAYED}"
    )
    assert paced == "qdisc replace dev t1-eth3 parent 2:1 handle 1: htb default 1 r2q 1"
    assert late == at_once[1:]


def test_cables_hold_packets_up_where_nothing_is_measured_and_it_matters():
    fabric = rfabric(pods=2, tors=2, gpus=2)
    (ocs, *_) = fabric.ocses
    long = {fabric.links[fabric.peer[fabric.ports[ocs.name][0]][0] // 2]: 0.02}
    links = tuple(replace(one, delay=long.get(one, one.delay)) for one in fabric.links)
    fabric = replace(fabric, links=links)
    ends = {end for one in links if one.delay == 0.02 for end in (one.a, one.b)}
    for delays in (False, True):
        net = network.EmulatedNetwork(None, fabric, 1e-4, delays=delays)
        for port in fabric.peer:
            lines = net._queueing(port)
            held = delays and port in ends
            assert sum("netem" in line for line in lines) == held
            assert any("htb" in line for line in lines) == (port in net.turns)


def test_a_full_bucket_sends_no_more_at_once_than_a_stall_may_hold_back():
    for rate in (2.5e5, 5e6, 1e8, 2e9):
        lines = shaping.shaping("t1-eth3", rate, shaping.Turns(8, range(8), 3))
        (bucket,) = {
            int(after[:-1])
            for line in lines
            for word, after in pairwise(line.split())
            if word == "cburst"
        }
        stalled = bucket * 8 / rate  # s
        assert bucket == shaping.MOST_BURST or stalled == pytest.approx(shaping.STALL_S, rel=0.01)
        assert stalled <= 1.01 * shaping.STALL_S


def test_a_cable_of_a_host_has_the_turns_that_its_pairs_take():
    fabric = fat_tree(**SMALL)
    flows = {("h1", "h3"): 1, ("h2", "h3"): 2}
    some = network.EmulatedNetwork(None, fabric, 1e-4, at_once=flows)
    sent_in = {host: some.turns[fabric.ports[host][0]] for host in fabric.hosts}
    got_in = {host: some.turns[fabric.peer[fabric.ports[host][0]][1]] for host in fabric.hosts}
    of = sent_in["h1"].of
    step = shaping.STEPS[of]
    assert sent_in["h1"].taken == {(1 + step * 3) % of}
    other = (2 + step * 3 + shaping.FLOW_STEP) % of
    assert got_in["h3"] == (of, {other} | {(host + step * 3) % of for host in (1, 2)}, step)
    assert not sent_in["h3"].taken and not got_in["h4"].taken
    assert some.leaving == {"h1": 1, "h2": 2} and some.coming == {"h3": 3}
    neighbours = {"h1": {"h3"}, "h2": {"h3"}, "h3": {"h1", "h2"}}  # who sends gets acknowledgments
    assert some.peers == {host: neighbours.get(host, set()) for host in fabric.hosts}
    classes = _classes(shaping.shaping("h3-eth0", 20e6, got_in["h3"]))
    assert classes == {0xFFFF, shaping.SHORT_CLASS, 1} | {t + 1 for t in got_in["h3"].taken}
    every = network.EmulatedNetwork(None, fabric, 1e-4)
    others = len(fabric.hosts) - 1
    own = {len(every.turns[fabric.ports[host][0]].taken) for host in fabric.hosts}
    assert own == {others}
    assert {*every.leaving.values(), *every.coming.values()} == {others}
    assert {len(peers) for peers in every.peers.values()} == {others}


def to_all(fabric, several=1):
    return dict.fromkeys(permutations(fabric.hosts, 2), several)


@pytest.mark.parametrize("turns", shaping.STEPS)
def test_flows_of_two_hosts_take_a_turn_each(turns):
    for at_once in range(1, turns + 1):
        known = [shaping.turn_of(3, 5, flow, turns, 7) for flow in range(at_once)]
        assert len(set(known)) == at_once
        # more than were known of take theirs, each another port
        ports = [shaping.port_of(number, at_once) for number in range(3 * at_once)]
        taken = [shaping.turn_of(3, 5, port, turns, 7) for port in ports]
        assert taken == 3 * known and len(set(ports)) == len(ports)


@pytest.mark.parametrize(("hosts", "at_once"), [(16, 4), (24, 4), (32, 4), (64, 2)])
def test_flows_of_an_all_to_all_share_turns_evenly(hosts, at_once):
    """A flow alone in its turn would have twice what two get that share one."""
    for one in range(1, hosts + 1):
        flows = [(one, b, f) for b in range(1, hosts + 1) if b != one for f in range(at_once)]
        sent = Counter(shaping.turn_of(*flow, 256, shaping.STEPS[256]) for flow in flows)
        got = Counter(shaping.turn_of(b, a, f, 256, shaping.STEPS[256]) for a, b, f in flows)
        assert max(sent.values()) == max(got.values()) == 1


class Slow:
    """Carries flows of which two arrive at each look."""

    def __init__(self):
        self.under_way, self.sent, self.most = [], [], 0

    def send(self, flow, src, dst, nbytes):
        self.under_way.append(flow)
        self.sent.append((src, dst))
        self.most = max(self.most, len(self.under_way))

    def poll(self, timeout):
        arrived, self.under_way = self.under_way[:2], self.under_way[2:]
        return arrived


@pytest.mark.parametrize("hosts", [2, 3, 7, 16])
def test_lanes_are_warmed_a_few_at_once(hosts):
    names = [f"h{i}" for i in range(hosts)]
    lanes = [*permutations(names, 2), (names[0], names[-1]), (names[0], names[-1])]
    carrier = Slow()
    warmed(carrier, lanes, timeout=30)
    assert sorted(carrier.sent) == sorted(lanes) and not carrier.under_way
    assert carrier.most <= AT_ONCE * hosts + 2  # lanes of one pair go together
    first = carrier.sent[:hosts]
    if hosts > 3:
        assert len({src for src, _ in first}) == len({dst for _, dst in first}) == hosts
    several = [i for i, pair in enumerate(carrier.sent) if pair == (names[0], names[-1])]
    assert np.ptp(several) == 2
    warmed(carrier, [], timeout=30)


def test_an_alarm_rings_sooner_than_an_epolls_own_timeout_and_not_before_its_instant():
    alarm, epoll, late, own = Alarm(), select.epoll(), [], []
    epoll.register(alarm.fd, select.EPOLLIN)
    for wait in (0.0001, 0.0011, 0.0021) * 7:
        at = time.monotonic() + wait
        assert epoll.poll(wait) == []
        own.append(time.monotonic() - at)
        at = time.monotonic() + wait
        alarm.set(at)
        assert [fd for fd, _ in epoll.poll(5)] == [alarm.fd]
        late.append(time.monotonic() - at)
        alarm.set(time.monotonic() + 60)  # it rings no more for what is over
    assert min(late) >= 0 and sorted(late)[10] < sorted(own)[10]
    alarm.set(0.0)
    assert epoll.poll(5)
    alarm.close()


def test_connections_without_end_have_ports_of_the_kernels_choice():
    most = shaping.LAST_PORT - shaping.FIRST_PORT + 1
    ports = [shaping.port_of(number, 10_000) for number in range(most + 5)]
    assert len(set(ports[:most])) == most and min(ports[:most]) == shaping.FIRST_PORT
    assert ports[most:] == [0] * 5


def test_flows_of_a_host_share_few_turns_with_several_a_pair():
    """Fifteen receivers and three flows to each: 45 of 256 turns."""
    fabric = selftest.fabrics(16)["leaf-spine"]
    for port, turns in shaping.turns_of(fabric, to_all(fabric, 3)).items():
        if port.node in fabric.hosts:
            assert turns.of == 256 and len(turns.taken) == 45


def _classes(lines):
    return {int(line.split("classid 1:")[1].split()[0], 16) for line in lines if "classid" in line}


@pytest.mark.parametrize("turns", shaping.STEPS)
def test_the_flows_of_one_host_take_a_turn_each(turns):
    step, others = shaping.STEPS[turns], range(1, turns + 1)
    for a in range(1, 65):
        assert len({shaping.turn_of(a, b, 0, turns, step) for b in others}) == turns
        assert len({shaping.turn_of(b, a, 0, turns, step) for b in others}) == turns


@pytest.mark.parametrize(("hosts", "least"), [(16, 16), (32, 32), (64, 48)])
def test_flows_of_a_shift_take_a_turn_each_of_256(hosts, least):
    """Each host sends to the one so many further on, as rings over rails and pipelines do."""
    for further in (1, 2, 4, 8, hosts // 2):
        for sign in (1, -1):
            pairs = [(a, (a - 1 + sign * further) % hosts + 1) for a in range(1, hosts + 1)]
            taken = {shaping.turn_of(*pair, 0, 256, shaping.STEPS[256]) for pair in pairs}
            assert len(taken) >= least


@pytest.mark.parametrize("name", ["leaf-spine", "rotor", "rfabric"])
def test_flows_out_of_a_rack_and_into_it_share_as_few_turns_as_can_be(name):
    """64 hosts send to all. Where there are as many turns as flows of a rack, each has one to
    itself, whichever cable it takes; where there are fewer, none is empty.
    """
    fabric = selftest.fabrics(64)[name]
    number = {host: i for i, host in enumerate(fabric.hosts, 1)}
    turns = shaping.turns_of(fabric, to_all(fabric))
    rack, looked_at = fabric.rack_of, 0
    for port, (of, taken, step) in turns.items():
        for node, end in ((port.node, 0), (fabric.peer[port][1].node, 1)):
            other = fabric.peer[port][1].node if end == 0 else port.node
            if node in fabric.racks and other not in number:
                flows = [
                    (number[a], number[b])
                    for a, b in permutations(fabric.hosts, 2)
                    if (rack[a] == node, rack[b] == node) == (end == 0, end == 1)
                ]
                used = {shaping.turn_of(a, b, 0, of, step) for a, b in flows}
                assert used <= set(taken) and len(used) == min(len(flows), of)
                looked_at += 1
    assert looked_at >= 2 * len(fabric.racks)


@given(st.data())
def test_a_step_for_a_rack_is_never_worse_than_the_usual_one(data):
    turns = data.draw(st.sampled_from(list(shaping.STEPS)))
    hosts = data.draw(st.integers(1, 12))
    one = st.tuples(st.integers(1, 64), st.integers(1, 64), st.integers(0, 3))
    flows = np.array(data.draw(st.lists(one, min_size=1)), np.int64)
    step = shaping._least_shared(flows, hosts, turns)
    used = [
        len({shaping.turn_of(*flow, turns, one) for flow in flows.tolist()})
        for one in (step, shaping.STEPS[turns])
    ]
    assert used[0] >= used[1]


@pytest.mark.parametrize("turns", [*shaping.STEPS, 4096, shaping.MOST_TURNS])
def test_the_filter_tells_classes_as_the_network_does(turns):
    """The program that the kernel runs, run here."""
    for step in (13, 4, turns // 4):
        program = shaping.class_of_packet(turns, step).strip('"').split(",")[1:]
        for src, dst, connection in [(1, 2, 0), (7, 200, 2), (255, 3, 7)]:
            port = shaping.port_of(connection, at_once=3)
            ends = {26: 0x0A000000 + src, 30: 0x0A000000 + dst, 34: port}
            turn = shaping.turn_of(src, dst, connection % 3, turns, step)
            assert _run(program, 9014, ends) == 0x10001 + turn
        first = 0x10001 + shaping.turn_of(src, dst, 0, turns, step)
        for port in (0, 5001, shaping.FIRST_PORT - 1, shaping.LAST_PORT + 1, 65535):
            assert _run(program, 9014, ends | {34: port}) == first


@given(st.integers(5, 15), st.integers(0, 400))
def test_packets_without_data_go_first_and_no_others(words, data):
    """The last packet of a flow must not overtake those before it, however few bytes it carries."""
    program = shaping.class_of_packet(64, 15).strip('"').split(",")[1:]
    size = 20 + 4 * words + data
    packet = {16: size, 23: shaping.TCP, 26: 0x0A000001, 30: 0x0A000002, 34: 0, 46: words << 4}
    first = 0x10000 + shaping.SHORT_CLASS
    assert (_run(program, 14 + size, packet) == first) == (data == 0)
    udp = packet | {23: 17}
    assert (_run(program, 14 + size, udp) == first) == (14 + size < shaping.SHORT)


def _run(program, length, words):
    """What a classic BPF program (linux/filter.h) returns for a frame of this length and words."""
    a = x = at = 0
    while True:
        code, true, false, k = map(int, program[at].split())
        at += 1
        match code:
            case 0x80:
                a = length
            case 0x20 | 0x28 | 0x30:
                a = words[k]
            case 0x74:
                a >>= k
            case 0x1C:
                a = (a - x) % 2**32
            case 0x15:
                at += true if a == k else false
            case 0x24:
                a = a * k % 2**32
            case 0x07:
                x = a
            case 0x0C:
                a = (a + x) % 2**32
            case 0x54:
                a &= k
            case 0x04:
                a = (a + k) % 2**32
            case 0x35:
                at += true if a >= k else false
            case 0x25:
                at += true if a > k else false
            case 0x00:
                a = k
            case 0x06:
                return k
            case 0x16:
                return a


def test_what_is_under_way_lasts_as_long_as_a_host_may_stall():
    rates = [2.5e5, 1e6, 2e7, 5e7, 1e8, 2e9]
    under_way = [network.packets_under_way(rate) for rate in rates]
    assert under_way == sorted(under_way) and under_way[0] == network.LEAST_WINDOW
    assert under_way[-1] == network.WINDOW
    for rate, few in zip(rates, under_way, strict=True):
        lasts = few * network.PAYLOAD * 8 / rate
        assert lasts >= network.STALL_S or few == network.WINDOW


def test_what_is_under_way_lasts_while_acknowledgements_wait_at_slower_cables():
    few = {}
    for rate in (400, 200, 100):
        spec = f"rfabric,electrical={rate}Gbit/s"
        up = network.EmulatedNetwork(None, parse_fabric(spec), 2e-5)
        few[rate] = up.window("h1")
        waits = network.LEAST_WINDOW * transfer_seconds(packets.MTU, rate * 1e9 * 2e-5)
        lasts = transfer_seconds(few[rate] * packets.MTU, up.rate("h1"))
        assert lasts >= waits or few[rate] == network.WINDOW
    assert few[400] == network.LEAST_WINDOW < few[200] < few[100]
    # NVLink is faster than what its server's packets leave by, and that is as fast as all others
    inside = network.EmulatedNetwork(None, parse_fabric("mixnet"), 2e-5)
    assert inside.window("h1") == network.packets_under_way(inside.rate("h1"))


def test_every_cable_of_the_longest_way_may_hold_a_packet_of_a_lane():
    ways = {
        "fat-tree": 6,
        "fat-tree,oversubscription=4": 6,
        "leaf-spine": 4,
        "ideal": 2,
        "rfabric": 3,  # what leaves an OCS waits at none of its ports
        "two-clusters": 7,
    }
    for spec, cables in ways.items():
        fabric = parse_fabric(spec)
        assert network.longest_way(fabric) == pytest.approx(cables), spec
        up = network.EmulatedNetwork(None, fabric, 2e-5)
        assert up.window("h1") >= max(cables, network.LEAST_WINDOW)


@pytest.mark.parametrize("spec", ["rfabric,pods=4,tors=2,gpus=2", "rotor,tors=8,gpus=2"])
def test_circuits_that_stand_still_may_make_longer_ways_than_any_others_would(spec):
    """A packet waits once wherever a host or switch sends it, but at no OCS."""
    fabric = parse_fabric(spec)
    made = TraceBuilder(fabric.hosts)
    for src, dst in permutations(range(len(fabric.hosts)), 2):
        made.flows([src], [dst], 1e6, phase="all", label="all")
    known = foreseen.ways(simulate(fabric, made.build(), "static", repetitions="whole"))
    optical = {node.name for node in fabric.ocses}
    sender = [port.node for link in fabric.links for port in (link.a, link.b)]
    waits = [sum(sender[cable] not in optical for cable in way) for way in known.values()]
    assert network.longest_way(fabric, known) == pytest.approx(max(waits))
    assert network.longest_way(fabric, {}) == network.longest_way(fabric) < max(waits)


def test_a_part_of_a_fabric_has_the_windows_of_the_whole():
    fabric = parse_fabric("two-clusters")
    hosts = fabric.hosts[0], fabric.hosts[-1]  # of 400 and 200 Gbit/s, as the cable between
    whole = network.EmulatedNetwork(None, fabric, 2e-5)
    part = network.EmulatedNetwork(None, fabric, 2e-5, here=frozenset(hosts))
    fast, slow = (whole.window(host) for host in hosts)
    assert (part.window(hosts[0]), part.window(hosts[1])) == (fast, slow)
    assert (fast, slow) == (2 * network.LEAST_WINDOW, network.longest_way(fabric))


def test_small_fabrics_have_more_turns_and_large_ones_no_more_classes_than_may_be():
    """All hosts send to all, on fabrics of 8, 64 and 256. In their own cables flows have a turn
    each as long as there are as many classes.
    """
    most = []
    for spec in ("fat-tree,pods=2,tors=2,gpus=2", "rfabric", "fat-tree", "rfabric,pods=16"):
        fabric = parse_fabric(spec)
        turns = shaping.turns_of(fabric, to_all(fabric))
        assert sum(len(port.taken) for port in turns.values()) <= shaping.MOST_CLASSES
        own = {fabric.ports[host][0] for host in fabric.hosts}
        if len(fabric.hosts) <= 64:
            assert {len(turns[port].taken) for port in own} == {len(fabric.hosts) - 1}
        most.append(max(turn.of for port, turn in turns.items() if port.node not in fabric.hosts))
    assert most == sorted(most, reverse=True) and most[0] == max(shaping.STEPS) > most[-1]


def test_the_fewest_turns_are_set_up_where_even_they_are_too_many():
    fabric = fat_tree(**SMALL)
    turns = shaping.turns_of(fabric, to_all(fabric), most=1)
    assert {turn.of for turn in turns.values()} == {min(shaping.STEPS)}
    assert set(turns) == set(fabric.peer)


def test_only_ports_of_ocses_that_a_faster_cable_may_fill_are_shaped():
    """Circuits join any two cables of an OCS; what comes in is held to the rate of its own."""
    assert shaping.paced(fat_tree()) == set(fat_tree().peer)
    kind = {node.name: node.kind for node in parse_fabric("rfabric").nodes}
    alike = shaping.paced(parse_fabric("rfabric"))
    assert {port.node for port in alike} == {name for name in kind if kind[name] != "ocs"}

    slow = parse_fabric("rfabric")
    cable = next(k for k in slow.links if kind[k.a.node] == kind[k.b.node] == "ocs")
    links = tuple(replace(k, rate=k.rate / 2) if k == cable else k for k in slow.links)
    shaped = shaping.paced(replace(slow, links=links))
    assert shaped - alike == {cable.a, cable.b}


@pytest.mark.parametrize("scale", [1e-9, 1.0])
def test_a_scale_that_cannot_be_shaped_names_those_that_can(scale):
    with pytest.raises(RFabricError, match="lies between 6.25e-07 and 0.005"):
        network.check_rates(fat_tree(), scale)


CALM = guard.HostLoad(busy=0.6, steal=0.0, softnet_dropped=0, port_dropped=0, resent=0, sent=10_000)
PACKET = 3.6e-3  # s: 9000 bytes at 20 Mbit/s


def test_what_the_kernel_takes_is_counted_and_what_it_refuses_is_an_error():
    from rfabric.emulate.wire import SCRATCH, _sent

    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        took = _sent(here, 100)
        assert took == len(there.recv(1000)) == 100
        with pytest.raises(BlockingIOError):
            for _ in range(10_000):
                _sent(here, SCRATCH)
        there.close()
        with pytest.raises(BrokenPipeError):
            _sent(here, 100)


def samples(*waits, bytes_per_s=1e7):
    return [guard.Sample(wait * PACKET, bytes_per_s) for wait in waits]


def late(seconds, took=1.0):
    """One flow that started so late and took so long."""
    return np.array([seconds]), np.array([took])


def test_a_calm_run_keeps_pace():
    pace = guard.judge(samples(*[0.5] * 9, 5.0), CALM, PACKET, *late(0.001), 1e-4)
    assert pace.ok and not pace.reasons and not pace.advice and pace.cpu == 0.6


def test_idle_samples_say_nothing_about_the_wait():
    assert guard.judge(samples(*[50.0] * 9, bytes_per_s=100.0), CALM, PACKET, *late(0.0), 1e-4).ok


@pytest.mark.parametrize(
    ("change", "lateness", "reason"),
    [
        ({"softnet_dropped": 3}, 0.0, "dropped 3 packets"),
        ({"port_dropped": 500}, 0.0, "the switch ports dropped 500 packets"),
        ({"resent": 500}, 0.0, "sent 500 of 10000 packets again, the limit is 1%"),
        ({"steal": 0.4}, 0.0, "took 40% of the processors, the limit is 20%"),
        ({}, 0.2, "a flow of 1 s started 200 ms late, the limit is 50 ms"),
    ],
)
def test_each_sign_of_an_overrun_host_is_a_reason(change, lateness, reason):
    load = guard.HostLoad(**(vars(CALM) | change))
    pace = guard.judge(samples(0.5), load, PACKET, *late(lateness), 1e-4)
    assert (
        not pace.ok
        and reason in pace.reasons[0]
        and pace.advice.endswith("or use --bandwidth-scale 7e-05")
    )


def test_how_late_a_start_may_be_depends_on_what_its_flow_takes():
    assert guard.judge(samples(0.5), CALM, PACKET, *late(0.2, took=20.0), 1e-4).ok
    assert not guard.judge(
        samples(0.5), CALM, PACKET, np.array([0.2, 0.1]), np.array([20.0, 1.0]), 1e-4
    ).ok


def test_packets_sent_again_are_expected_where_a_rewire_drops():
    resent = guard.HostLoad(0.5, 0.0, 0, 0, 500, 10_000)
    assert guard.judge(samples(0.5), resent, PACKET, *late(0.0), 1e-4, may_drop=True).ok


def test_the_advice_grows_with_the_overrun():
    advice = [
        guard.judge(samples(*[w] * 10), CALM, PACKET, *late(0.0), 1e-4).advice
        for w in (2.5, 4.0, 40.0)
    ]
    assert advice == [
        f"let nothing else run beside it, or use --bandwidth-scale {x}"
        for x in ("6e-05", "3.8e-05", "3e-05")
    ]


def test_the_probe_tells_what_there_is():
    host = calibrate.probe_host()
    assert host.cores >= 1 and host.datapath in ("kernel", "user") and host.memory_bytes > 1e8
    assert host.netem == ("netem" in host.qdiscs) and set(host.programs) == set(calibrate.VERSIONS)


if __name__ == "__main__":
    answer = SCENARIOS[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
    print(json.dumps(answer), flush=True)

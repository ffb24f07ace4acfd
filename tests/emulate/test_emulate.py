"""The Mininet world end to end: real packets, real OpenFlow, against the simulator; and every way
in which a run can break.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_replay import waiting_for_each_other

from rfabric.control.alone import HeldError
from rfabric.control.client import RefusedError
from rfabric.emulate import world
from rfabric.emulate.network import fastest_line
from rfabric.emulate.scale import PATIENCE, choose_scale, resolution
from rfabric.emulate.worker import joined, lanes
from rfabric.errors import BY_NAME, PaceError, RFabricError, RunError, told
from rfabric.fabric import fat_tree, parse_fabric, rfabric
from rfabric.optics import Circuits, RewireRecord, Timing
from rfabric.report.result import Scale, fidelity
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder, ring, write_trace

SCALE = Scale(1e-4, 2.0)  # 20 Mbit/s cables
SMALL = {"pods": 2, "tors": 2, "gpus": 2}
# 12 Mbit/s; flows of hundreds of packets, whose own time is not their pipeline's
LONGER = Scale(3e-4, 10.0)
UNEVEN = """a,b,rate
s1,leaf-a,400Gbit/s
s2,leaf-a,400Gbit/s
s3,leaf-a,400Gbit/s
s4,leaf-b,200Gbit/s
s5,leaf-b,200Gbit/s
s6,leaf-c,400Gbit/s
leaf-a,spine-1,400Gbit/s
leaf-a,spine-2,400Gbit/s
leaf-b,spine-1,200Gbit/s
leaf-b,spine-2,400Gbit/s
leaf-c,spine-2,400Gbit/s
"""
# s: a machine that does other work beside may take ten times as long as an idle one
PATIENCE_BUSY = 150.0


def step(fabric, size=2e9):
    """An all-reduce among the first half of the hosts and weight sync to the other half, with
    compute around.
    """
    half = len(fabric.hosts) // 2
    b = TraceBuilder(fabric.hosts)
    work = b.compute(0, 20.0, phase="training", label="backward")
    sends = b.flows(
        *ring("all-reduce", range(half), size, 1),
        after=[work],
        phase="training",
        label="all-reduce",
    )
    done = b.compute(0, 5.0, after=sends, phase="training", label="optimizer")
    b.flows(
        range(half), range(half, 2 * half), size, after=[done], phase="weight_sync", label="weights"
    )
    return b.build()


def collectives(fabric):
    """Three collectives of 16 hosts, each among other racks: two behind compute, one right behind
    the other.
    """
    b = TraceBuilder(fabric.hosts)
    t1, t2, t3, t4 = (range(i, i + 4) for i in range(0, 16, 4))
    work = b.compute(0, 2.0, phase="training", label="forward")
    sent = b.flows([*t1, *t2], [*t2, *t1], 4e9, after=[work], phase="training", label="all-to-all")
    work = b.compute(0, 1.0, after=sent, phase="training", label="backward")
    sent = b.flows(
        [*t1, *t3], [*t3, *t1], 4e9, after=[work], phase="training", label="reduce-scatter"
    )
    b.flows(t1, t4, 4e9, after=sent, phase="weight_sync", label="weights")
    return b.build()


def emulated(fabric, trace, policy="own", scale=LONGER, **kind):
    """An emulation; at half the rates where it says that it was disturbed, as by another suite on
    the same machine.
    """
    for _ in range(2):
        try:
            return world.emulate(fabric, trace, policy, scale=scale, **kind)
        except PaceError:
            scale = Scale(scale.bandwidth / 2, scale.dilation)
    return world.emulate(fabric, trace, policy, scale=scale, **kind)


def same_ways(result, expected):
    """Whether every cable carried what the simulator says, but for acknowledgements."""
    ours, theirs = result.link_bytes, expected.link_bytes
    return bool((np.abs(ours - theirs) <= 0.06 * theirs + 0.03 * theirs.max()).all())


# --- the scale ------------------------------------------------------------------------------------


def test_scale_keeps_the_busiest_moment_below_the_datapath_and_the_run_within_patience():
    results = [simulate(f, step(f)) for f in (fat_tree(), rfabric())]
    scale = choose_scale(results, 2e5)
    in_flight = max(sum(r.communication.values()) for r in results)
    assert scale.dilation >= 1 and in_flight * scale.dilation <= PATIENCE * 1.06
    half = choose_scale(results, 1e5)
    assert (
        half.bandwidth == pytest.approx(scale.bandwidth / 2, rel=0.06)
        and half.dilation == scale.dilation
    )


def test_a_host_too_slow_for_the_fabric_is_told_so():
    with pytest.raises(
        RFabricError, match="this host moves 1e.03 packet-hops/s.*use a smaller fabric or trace"
    ):
        choose_scale([simulate(rfabric(), step(rfabric()))], 1e3)


def test_cables_of_very_different_rates_cannot_be_shaped_by_one_factor():
    far = parse_fabric("two-clusters,training=4,generation=4,gpus=2,join=40Mbit/s")
    with pytest.raises(
        RFabricError,
        match="40 Mbit/s to 400 Gbit/s cannot be shaped .* may be 8000 times the slowest",
    ):
        choose_scale([simulate(far, step(far))], 2e5)


def test_the_scale_keeps_the_slowest_cable_of_unequal_ones_above_what_can_be_shaped():
    two = parse_fabric("two-clusters,training=4,generation=4,gpus=2,join=10Gbit/s")
    scale = choose_scale([simulate(two, step(two))], 2e5)
    assert 10e9 * scale.bandwidth / scale.dilation >= 0.95e6  # two digits
    with pytest.raises(
        RFabricError, match="this host moves 5e.03 packet-hops/s; the slowest cable"
    ):
        choose_scale([simulate(two, step(two))], 5e3)


def test_slow_rewires_count_into_the_patience():
    rails = parse_fabric("opus,servers=4,gpus=2")  # dark for 1.01 s
    dark = RewireRecord(1, "training/0", 0.0, 0.005, 1.015, 1.015, 7)
    result = replace(simulate(rails, step(rails, 2e10)), rewires=(dark,))
    assert result.dark_seconds > 1
    assert choose_scale([result], 2e5).dilation * result.dark_seconds <= PATIENCE * 1.06


def test_nvlink_inside_servers_is_no_line():
    assert fastest_line(parse_fabric("mixnet,servers=4,gpus=2,region=2")) == 400e9
    assert fastest_line(parse_fabric("opus,servers=4,gpus=2")) == 200e9
    assert fastest_line(fat_tree()) == 400e9
    assert max(k.rate for k in parse_fabric("opus,servers=4,gpus=2").links) == 1.6e12


def test_rotors_are_refused_before_anything_else_with_the_way_out(tmp_path):
    rotor = parse_fabric("rotor,tors=4,gpus=2")
    with pytest.raises(
        RFabricError,
        match=(
            "policy rotor: its circuits turn every 100 ms .* --policy demand,granularity=per-phase"
        ),
    ):
        world.emulatable(rotor, "own")
    assert (
        world.emulatable(rotor, "static") == "static"
        and world.emulatable(fat_tree(), "own") == "demand"
    )


def test_resolution_is_a_few_packets_of_the_fastest_cable():
    result = simulate(fat_tree(), step(fat_tree()))
    # 10 Mbit/s, a packet takes 7.2 ms, 1.8 ms of virtual time
    object.__setattr__(result, "scale", Scale(1e-4, 4.0))
    assert resolution(result) == pytest.approx(24 * 1.8e-3)


def test_emulation_without_root_says_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RFabricError, match="needs root .*run it with sudo"):
        world.emulate(fat_tree(), step(fat_tree()), scale=SCALE, out=tmp_path)
    assert not list(tmp_path.iterdir())


# --- one run --------------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.parametrize("build", [fat_tree, rfabric])
def test_a_step_with_real_packets_takes_what_the_simulator_says(build, tmp_path):
    fabric = build(**SMALL)
    trace = step(fabric)
    expected = simulate(fabric, trace, "demand")
    seen = []
    result = emulated(fabric, trace, "demand", SCALE, progress=seen.append, out=tmp_path)
    assert (result.sent == trace.size).all() and (result.received == trace.size).all()
    # a shared machine; the bench measures how good it is
    assert fidelity(result, expected)["worst_error"] < 0.35
    assert result.pace.ok and {m["stage"] for m in seen} >= {"build", "run"}
    assert not list(tmp_path.iterdir())
    if fabric.ocses:
        assert [r.phase for r in result.rewires] == [
            r.phase for r in expected.rewires
        ] and result.rewires
        for r in result.rewires:
            assert r.requested <= r.programmed < r.dark_until <= r.usable
            assert r.dark_until - r.programmed == pytest.approx(0.010, abs=1e-6)
        assert result.lost_bytes == 0  # held traffic loses nothing
        assert result.epochs[-1][1] == expected.epochs[-1][1]
    into_hosts = [2 * i + 1 for i, k in enumerate(fabric.links) if k.a.node.startswith("h")]
    assert result.link_bytes[into_hosts].sum() == pytest.approx(trace.size.sum(), rel=0.05)


@pytest.mark.root
def test_drop_loses_bytes_and_says_how_many(tmp_path):
    fabric = rfabric(**SMALL)
    b = TraceBuilder(fabric.hosts)
    b.flows([0, 1], [6, 7], 5e10, phase="a", label="long")
    b.flows([2, 3], [0, 1], 5e10, start=0.4, phase="b", label="late")
    result = emulated(
        fabric, b.build(), "demand", SCALE, timing=Timing(in_flight="drop"), out=tmp_path
    )
    assert (result.sent == result.received).all()
    assert len(result.rewires) == 2 and result.rewires[1].lost_bytes > 0


@pytest.mark.root
@pytest.mark.parametrize(
    "spec",
    [
        "two-clusters,training=4,generation=4,gpus=2,join=200Gbit/s",
        "mixnet,servers=4,gpus=2,region=2,reinit=0s",
        "opus,servers=4,gpus=2,reinit=0s",
        "uneven.csv",
    ],
)
def test_packets_take_the_simulators_ways_on_every_kind_of_fabric(spec, tmp_path):
    """Unequal rates, servers that forward beside a regional OCS, photonic rails, a network from a
    file.
    """
    (tmp_path / "uneven.csv").write_text(UNEVEN)
    fabric = parse_fabric(str(tmp_path / spec) if spec.endswith(".csv") else spec)
    trace = step(fabric)
    expected = simulate(fabric, trace)
    result = emulated(fabric, trace, out=tmp_path / "runs")
    assert (result.sent == trace.size).all() and (result.received == trace.size).all()
    assert [c for _, c in result.epochs] == [c for _, c in expected.epochs]
    assert same_ways(result, expected)
    assert fidelity(result, expected, resolution(result))["worst_error"] < 0.35


@pytest.mark.root
def test_circuits_turn_with_every_collective_and_placed_routes_follow(tmp_path):
    fabric = rfabric(pods=2, tors=2, gpus=4)
    trace = collectives(fabric)
    expected = simulate(fabric, trace)
    result = emulated(fabric, trace, out=tmp_path)
    assert (
        (result.sent == trace.size).all()
        and (result.received == trace.size).all()
        and result.lost_bytes == 0
    )
    assert result.routing == "placed" and result.policy == "demand"
    assert [r.phase for r in result.rewires] == [r.phase for r in expected.rewires]
    assert [c for _, c in result.epochs] == [c for _, c in expected.epochs] and len(
        result.rewires
    ) == 3
    for r in result.rewires:
        assert r.requested <= r.programmed < r.dark_until <= r.usable
        assert r.exposed + r.hidden == pytest.approx(r.usable - r.requested)
    hidden, beside, waited = result.rewires
    assert hidden.exposed == beside.exposed == 0  # seconds of compute before them
    # nothing between it and what was sent before
    assert waited.exposed > 0.9 * fabric.reconfig_delay
    assert same_ways(result, expected)
    # the comparison can tell
    assert not same_ways(result, simulate(fabric, trace, routing="valiant"))


def test_who_has_no_way_at_the_start_gets_its_connection_later():
    fabric = parse_fabric("topoopt,servers=4,gpus=2,degree=1,optics=ocs")
    trace = waiting_for_each_other(fabric.hosts)
    wanted, epochs = lanes(trace), simulate(fabric, trace, "tree").epochs
    there, back = {("h1", "h7"): 2}, {("h6", "h1"): 1}
    assert wanted == there | back
    assert [joined(wanted, fabric, lit) for _, lit in epochs] == [there, back, there]
    assert joined(wanted, fat_tree(), Circuits()) == wanted


@pytest.mark.root
def test_packets_that_all_others_wait_for_get_circuits_as_in_the_simulator(tmp_path):
    fabric = parse_fabric("topoopt,servers=4,gpus=2,degree=1,optics=ocs")
    trace = waiting_for_each_other(fabric.hosts)
    expected = simulate(fabric, trace, "tree")
    result = emulated(fabric, trace, "tree", out=tmp_path)
    assert (result.sent == trace.size).all() and (result.received == trace.size).all()
    assert [r.phase for r in result.rewires] == [r.phase for r in expected.rewires]
    assert [c for _, c in result.epochs] == [c for _, c in expected.epochs]
    assert result.rewires and same_ways(result, expected)
    assert fidelity(result, expected, resolution(result))["worst_error"] < 0.35


# --- bad days -------------------------------------------------------------------------------------


@contextlib.contextmanager
def cli(tmp_path, size=40e9):
    """`rfabric replay` of a trace that lasts a minute, and the processes of its world once packets
    move.
    """
    write_trace(step(rfabric(**SMALL), size), tmp_path / "long.csv")
    command = [
        "env",
        "--default-signal=INT",  # which background jobs ignore
        sys.executable,
        "-m",
        "rfabric",
        "replay",
        str(tmp_path / "long.csv"),
        "--engine",
        "emulate",
        "--out",
        str(tmp_path / "runs"),
        "--topo",
        "rfabric,pods=2,tors=2,gpus=2",
        "--bandwidth-scale",
        "1e-4",
        "--time-dilation",
        "2",
        "-v",
    ]
    with (tmp_path / "talk").open("w") as talk:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=talk)
    try:
        until(lambda: "run training" in said(tmp_path) or process.poll() is not None)
        assert process.poll() is None, said(tmp_path)
        assert in_world(process.pid, "rfabric.emulate.worker") and in_world(
            process.pid, "rfabric.control"
        )
        yield process
    finally:
        process.kill()
        process.wait()


def said(tmp_path):
    return (tmp_path / "talk").read_text()


def descendants(pid):
    """{pid: command line} of all processes below `pid`."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
    below, more = set(), {pid}
    while more:
        more = {p for p, parent in parents.items() if parent in more} - below
        below |= more
    return {p: text for p in below if (text := command_of(p))}


def command_of(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def in_world(pid, word):
    return [p for p, text in descendants(pid).items() if word in text and "unshare" not in text]


def until(condition, timeout=PATIENCE_BUSY):
    limit = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < limit, "timed out"
        time.sleep(0.1)


def left(pids):
    return [command_of(p) for p in pids if command_of(p)]


@pytest.mark.root
@pytest.mark.beside
def test_ctrl_c_ends_the_run_with_a_message_and_leaves_nothing(tmp_path):
    with cli(tmp_path) as process:
        world_of_it = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_BUSY)
        talk = said(tmp_path)
        assert process.returncode == 130 and "interrupted" in talk and "Traceback" not in talk
        until(lambda: not left(world_of_it))
        assert not list((tmp_path / "runs").glob("*"))


@pytest.mark.root
@pytest.mark.beside
def test_kill_9_of_the_command_takes_its_world_along_and_the_next_command_cleans(tmp_path):
    with cli(tmp_path) as process:
        world_of_it = descendants(process.pid)
        process.kill()
        process.wait()
        until(lambda: not left(world_of_it))
        assert [p for p in (tmp_path / "runs").glob("*") if p.name.startswith("emulation-")]
    done = subprocess.run(
        [sys.executable, "-m", "rfabric", "clean", "--out", str(tmp_path / "runs")]
    )
    assert done.returncode == 0 and not list((tmp_path / "runs").glob("emulation-*"))


@pytest.mark.root
@pytest.mark.beside
@pytest.mark.parametrize("victim", ["ovs-vswitchd", "rfabric.control"])
def test_kill_9_inside_the_run_ends_it_with_a_message(victim, tmp_path):
    with cli(tmp_path) as process:
        world_of_it = descendants(process.pid)
        os.kill(in_world(process.pid, victim)[0], signal.SIGKILL)
        process.wait(PATIENCE_BUSY)
        talk = said(tmp_path)
        assert process.returncode == 1 and "Traceback" not in talk
        assert "killed by signal 9" in talk or "died in mid-run" in talk
        until(lambda: not left(world_of_it))


@pytest.mark.parametrize("kind", [RFabricError, RunError, PaceError, RefusedError, HeldError])
def test_an_error_of_any_kind_is_told_by_a_kind_that_its_listener_knows(kind):
    """As where the controller refuses what a world asks of it."""
    error = kind.__new__(kind, "no")
    message = told(error)
    assert message["error"] == str(error)
    assert issubclass(kind, BY_NAME[message["kind"]])
    assert (message["kind"] == "RunError") == issubclass(kind, RunError)


@pytest.mark.root
def test_a_datapath_that_dies_while_switches_are_made_is_named_and_not_waited_for(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("OVS_CTL_TIMEOUT", "3")  # s; Mininet's ovs-vsctl would wait for it for ever

    def kill():
        until(lambda: in_world(os.getpid(), "mininet:") or ended.is_set())
        for pid in in_world(os.getpid(), "ovs-vswitchd"):
            os.kill(pid, signal.SIGKILL)

    ended, killer = threading.Event(), threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(RunError, match="ovs-vswitchd was killed by signal 9"):
            world.emulate(rfabric(**SMALL), step(rfabric(**SMALL), 40e9), scale=SCALE, out=tmp_path)
    finally:
        ended.set()
        killer.join()
    assert not list(tmp_path.iterdir())


@pytest.mark.root
def test_two_runs_at_once(tmp_path):
    fabric = fat_tree(pods=1, tors=2, gpus=1)
    write_trace(step(fabric, 1e9), tmp_path / "t.csv")
    command = [
        sys.executable,
        "-m",
        "rfabric",
        "replay",
        str(tmp_path / "t.csv"),
        "--engine",
        "emulate",
        "--out",
        str(tmp_path / "runs"),
        "--topo",
        "fat-tree,pods=1,tors=2,gpus=1",
        "--bandwidth-scale",
        "4e-5",
        "--time-dilation",
        "2",
        "-q",
    ]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [p.communicate(timeout=120) for p in both]
    assert [p.returncode for p in both] == [0, 0], said
    assert len(list((tmp_path / "runs").glob("*/summary.json"))) == 2


@pytest.mark.root
@pytest.mark.beside
def test_an_error_inside_the_world_reaches_the_caller(tmp_path):
    with pytest.raises(
        RFabricError,
        match="bandwidth_scale / time_dilation is 1e-09: .* between 6.25e-07 and 0.005",
    ):
        world.emulate(
            fat_tree(**SMALL), step(fat_tree(**SMALL)), scale=Scale(1e-9, 1.0), out=tmp_path
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.root
@pytest.mark.beside
def test_a_world_that_says_nothing_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RunError, match="ended without a result .exit code 1"):
        world.emulate(fat_tree(**SMALL), step(fat_tree(**SMALL)), scale=SCALE, out=tmp_path)


def test_a_state_file_from_elsewhere_deletes_nothing_outside_and_no_whole_run(tmp_path):
    out, victim, whole = (
        tmp_path / "runs",
        tmp_path / "victim",
        tmp_path / "runs" / "20250101-000000-abcd",
    )
    for folder in (out / "emulation-1-abcd", victim, whole):
        folder.mkdir(parents=True)
    (victim / "precious").touch()
    (whole / "summary.json").touch()
    for folder in (out / "emulation-1-abcd", whole):
        (folder / "run.state.json").write_text(
            '{"run_id": "../victim", "pid": 0, "pid_start_ticks": 1}'
        )
    world.sweep(out)
    assert (victim / "precious").exists() and (whole / "summary.json").exists()
    assert not (out / "emulation-1-abcd").exists()

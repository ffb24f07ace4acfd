"""The Mininet world end to end: real packets, real OpenFlow, against the simulator; and every way in which a run can break."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rfabric.emulate import world
from rfabric.emulate.scale import PATIENCE, choose_scale, resolution
from rfabric.errors import RFabricError, RunError
from rfabric.fabric import fat_tree, rfabric
from rfabric.optics import Timing
from rfabric.report.result import Scale, fidelity
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder, ring, write_trace

SCALE = Scale(1e-4, 2.0)  # 20 Mbit/s cables
SMALL = {"pods": 2, "tors": 2, "gpus": 2}


def step(fabric, size=2e9):
    """An all-reduce among the first half of the hosts and weight sync to the other half, with compute around."""
    half = len(fabric.hosts) // 2
    b = TraceBuilder(fabric.hosts)
    work = b.compute(0, 20.0, phase="training", label="backward")
    sends = b.flows(*ring("all-reduce", range(half), size, 1), after=[work], phase="training", label="all-reduce")
    done = b.compute(0, 5.0, after=sends, phase="training", label="optimizer")
    b.flows(range(half), range(half, 2 * half), size, after=[done], phase="weight_sync", label="weights")
    return b.build()


# --- the scale ---------------------------------------------------------------------------------------------------------


def test_scale_keeps_the_busiest_moment_below_the_datapath_and_the_run_within_patience():
    results = [simulate(f, step(f)) for f in (fat_tree(), rfabric())]
    scale = choose_scale(results, 2e5)
    in_flight = max(sum(r.communication.values()) for r in results)
    assert scale.dilation >= 1 and in_flight * scale.dilation <= PATIENCE * 1.06
    half = choose_scale(results, 1e5)
    assert half.bandwidth == pytest.approx(scale.bandwidth / 2, rel=0.06) and half.dilation == scale.dilation


def test_a_host_too_slow_for_the_fabric_is_told_so():
    with pytest.raises(RFabricError, match="this host moves 1e.03 packet-hops/s.*use a smaller fabric or trace"):
        choose_scale([simulate(rfabric(), step(rfabric()))], 1e3)


def test_resolution_is_a_few_packets_of_the_fastest_cable():
    result = simulate(fat_tree(), step(fat_tree()))
    object.__setattr__(result, "scale", Scale(1e-4, 4.0))  # 10 Mbit/s, a packet takes 7.2 ms, 1.8 ms of virtual time
    assert resolution(result) == pytest.approx(24 * 1.8e-3)


def test_emulation_without_root_says_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RFabricError, match="needs root .*run it with sudo"):
        world.emulate(fat_tree(), step(fat_tree()), scale=SCALE, out=tmp_path)
    assert not list(tmp_path.iterdir())


# --- one run -----------------------------------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.parametrize("build", [fat_tree, rfabric])
def test_a_step_with_real_packets_takes_what_the_simulator_says(build, tmp_path):
    fabric = build(**SMALL)
    trace = step(fabric)
    expected = simulate(fabric, trace, "demand")
    seen = []
    result = world.emulate(fabric, trace, "demand", scale=SCALE, progress=seen.append, out=tmp_path)
    assert (result.sent == trace.size).all() and (result.received == trace.size).all()
    assert fidelity(result, expected)["worst_error"] < 0.35  # a shared machine; the bench measures how good it is
    assert result.pace.ok and {m["stage"] for m in seen} >= {"build", "run"}
    assert not list(tmp_path.iterdir())
    if fabric.ocses:
        assert [r.phase for r in result.rewires] == [r.phase for r in expected.rewires] and result.rewires
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
    b.flows([0, 1], [6, 7], 2e9, phase="a", label="long")
    b.flows([2, 3], [0, 1], 1e9, start=0.4, phase="b", label="late")
    result = world.emulate(fabric, b.build(), "demand", scale=SCALE, timing=Timing(in_flight="drop"), out=tmp_path)
    assert (result.sent == result.received).all()
    assert len(result.rewires) == 2 and result.rewires[1].lost_bytes > 0


# --- bad days ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def cli(tmp_path, size=40e9):
    """`rfabric replay` of a trace that lasts a minute, and the processes of its world once packets move."""
    write_trace(step(rfabric(**SMALL), size), tmp_path / "long.csv")
    command = [
        sys.executable, "-m", "rfabric", "replay", str(tmp_path / "long.csv"), "--engine", "emulate", "--out",
        str(tmp_path / "runs"), "--topo", "rfabric,pods=2,tors=2,gpus=2", "--bandwidth-scale", "1e-4",
        "--time-dilation", "2", "-v",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: in_world(process.pid, "rfabric.emulate.worker") and in_world(process.pid, "rfabric.control"))
        time.sleep(3.0)
        yield process
    finally:
        process.kill()
        process.wait()


def descendants(pid):
    """{pid: command line} of all processes below `pid`."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
    found, more = set(), {pid}
    while more:
        more = {p for p, parent in parents.items() if parent in more} - found
        found |= more
    return {p: text for p in found if (text := command_of(p))}


def command_of(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def in_world(pid, word):
    return [p for p, text in descendants(pid).items() if word in text and "unshare" not in text]


def until(condition, timeout=40.0):
    limit = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < limit, "timed out"
        time.sleep(0.1)


def left(pids):
    return [command_of(p) for p in pids if command_of(p)]


@pytest.mark.root
def test_ctrl_c_ends_the_run_with_a_message_and_leaves_nothing(tmp_path):
    with cli(tmp_path) as process:
        world_of_it = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        _, talk = process.communicate(timeout=30)
        assert process.returncode == 130 and "interrupted" in talk and "Traceback" not in talk
        until(lambda: not left(world_of_it), 10)
        assert not list((tmp_path / "runs").glob("*"))


@pytest.mark.root
def test_kill_9_of_the_command_takes_its_world_along_and_the_next_command_cleans(tmp_path):
    with cli(tmp_path) as process:
        world_of_it = descendants(process.pid)
        process.kill()
        until(lambda: not left(world_of_it), 10)
        assert [p for p in (tmp_path / "runs").glob("*") if p.name.startswith("emulation-")]
    done = subprocess.run([sys.executable, "-m", "rfabric", "clean", "--out", str(tmp_path / "runs")])
    assert done.returncode == 0 and not list((tmp_path / "runs").glob("emulation-*"))


@pytest.mark.root
@pytest.mark.parametrize("victim", ["ovs-vswitchd", "rfabric.control"])
def test_kill_9_inside_the_run_ends_it_with_a_message(victim, tmp_path):
    with cli(tmp_path) as process:
        world_of_it = descendants(process.pid)
        os.kill(in_world(process.pid, victim)[0], signal.SIGKILL)
        _, talk = process.communicate(timeout=40)
        assert process.returncode == 1 and "Traceback" not in talk
        assert "killed by signal 9" in talk or "died in mid-run" in talk
        until(lambda: not left(world_of_it), 10)


@pytest.mark.root
def test_two_runs_at_once(tmp_path):
    fabric = fat_tree(pods=1, tors=2, gpus=1)
    write_trace(step(fabric, 1e9), tmp_path / "t.csv")
    command = [
        sys.executable, "-m", "rfabric", "replay", str(tmp_path / "t.csv"), "--engine", "emulate", "--out",
        str(tmp_path / "runs"), "--topo", "fat-tree,pods=1,tors=2,gpus=1", "--bandwidth-scale", "4e-5",
        "--time-dilation", "2", "-q",
    ]  # fmt: skip
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [p.communicate(timeout=120) for p in both]
    assert [p.returncode for p in both] == [0, 0], said
    assert len(list((tmp_path / "runs").glob("*/summary.json"))) == 2


@pytest.mark.root
def test_an_error_inside_the_world_reaches_the_caller(tmp_path):
    with pytest.raises(RFabricError, match="bandwidth_scale / time_dilation is 1e-09: .* between 2.5e-06 and 0.005"):
        world.emulate(fat_tree(**SMALL), step(fat_tree(**SMALL)), scale=Scale(1e-9, 1.0), out=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.root
def test_a_world_that_says_nothing_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RunError, match="ended without a result .exit code 1"):
        world.emulate(fat_tree(**SMALL), step(fat_tree(**SMALL)), scale=SCALE, out=tmp_path)


def test_a_state_file_from_elsewhere_deletes_nothing_outside_and_no_whole_run(tmp_path):
    out, victim, whole = tmp_path / "runs", tmp_path / "victim", tmp_path / "runs" / "20250101-000000-abcd"
    for folder in (out / "emulation-1-abcd", victim, whole):
        folder.mkdir(parents=True)
    (victim / "precious").touch()
    (whole / "summary.json").touch()
    for folder in (out / "emulation-1-abcd", whole):
        (folder / "run.state.json").write_text('{"run_id": "../victim", "pid": 0, "pid_start_ticks": 1}')
    world.sweep(out)
    assert (victim / "precious").exists() and (whole / "summary.json").exists()
    assert not (out / "emulation-1-abcd").exists()

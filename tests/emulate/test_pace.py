"""What refuses a run: others on the host, time that no cable accounts for, bytes on other cables;
and what is done then.
"""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric.cli import main
from rfabric.emulate import guard, processors
from rfabric.emulate.counters import payload, settle
from rfabric.emulate.foreseen import at_once
from rfabric.emulate.fullness import Fullness
from rfabric.emulate.lost import Lost, Waits
from rfabric.emulate.network import MIN_RATE, check_rates, fastest_line
from rfabric.emulate.scale import (
    DILATION,
    LATE_SHARE,
    LEAST_MOVING_S,
    LEAST_PACKETS,
    LEAST_SAMPLE,
    MAX_DILATION,
    PATIENCE,
    SETUP_S,
    START_S,
    check_rates_of,
    choose_sample,
    choose_scale,
    least_sample,
    refuse_long_dark,
    run_seconds,
    slower,
)
from rfabric.emulate.shaping import ETHERNET
from rfabric.errors import PaceError, RFabricError, RunError
from rfabric.fabric import Port, fat_tree, parse_fabric
from rfabric.optics import Circuit, Circuits, RewireRecord
from rfabric.report.result import Pace, Scale
from rfabric.schedulers.traffic import read_traffic
from rfabric.simulate.world import simulate
from rfabric.study import run as study
from rfabric.study.run import RunSettings, check_link_bytes
from rfabric.trace import TraceBuilder, Traffic, write_trace
from rfabric.trace.packets import HEADERS, MTU, PAYLOAD
from rfabric.units import show_time, transfer_seconds

SMALL = fat_tree(pods=2, tors=2, gpus=2)
SCALE = Scale(1e-4, 10.0)


def pairs(fabric, size=1e9):
    """Half of the hosts send to the other half."""
    made, half = TraceBuilder(fabric.hosts), len(fabric.hosts) // 2
    made.flows(range(half), range(half, 2 * half), size, phase="a", label="flows")
    return made.build()


# --- the guard ------------------------------------------------------------------------------------


def ticks(user, kernel, own_user, own_kernel, total):
    return processors.Processors(user, kernel, own_user, own_kernel, total)


@pytest.mark.parametrize(
    ("after", "share"),
    [
        (ticks(100, 40, 100, 40, 200), 0.0),  # all is ours
        (ticks(160, 40, 60, 40, 200), 0.5),  # a busy loop
        (ticks(60, 80, 60, 20, 200), 0.3),  # a busy kernel
        # ticks are sampled and our own are not: less than nothing is nothing
        (ticks(50, 40, 60, 40, 200), 0.0),
    ],
)
def test_what_others_take_is_what_is_not_ours(after, share):
    assert after.foreign_since(ticks(0, 0, 0, 0, 0)) == pytest.approx(share)


def judged(foreign=0.0, may_drop=False, **lost):
    load = guard.HostLoad(0.9, 0.0, 0, 0, 0, 10_000, foreign)
    nothing = np.zeros(1), np.ones(1)
    return guard.judge([], load, 3.6e-3, *nothing, 1e-4, may_drop, Lost(**lost))


def test_others_on_the_host_refuse_a_run_whose_packets_never_waited():
    pace = judged(foreign=0.5)
    assert not pace.ok and pace.foreign == 0.5
    assert "others on this host took 50% of the processors" in pace.reasons[0]
    assert judged(foreign=0.09).ok


def test_time_without_a_full_cable_refuses_a_run():
    pace = judged(idle={"a/0 x": 0.02, "b/0 y": 0.07})
    assert not pace.ok and pace.idle == 0.07
    assert "in 7.0% of b/0 y no cable that its flows cross was full" in pace.reasons[0]
    assert judged(idle={"a/0 x": 0.049}).ok
    assert judged(idle={"b/0 y": 0.07}, may_drop=True).ok


def test_a_datapath_that_waits_for_a_processor_refuses_a_run():
    pace = judged(waited={"a/0 x": 0.02, "b/0 y": 0.125})
    assert not pace.ok and pace.waited == 0.125
    assert "in 12.5% of b/0 y the switches waited for a processor, the limit is 8%" in pace.reasons
    assert judged(waited={"a/0 x": 0.079}).ok


def test_what_the_datapath_waited_counts_for_the_phases_that_were_in_flight():
    """A look between two phases counts for both; one with nothing in flight for none."""
    made = TraceBuilder(SMALL.hosts)
    for phase in ("a", "b", "c"):
        made.flows([0], [1], 1e8, phase=phase, label="x")
    waits = Waits(made.build())
    looks = [(0, []), (1, [0]), (3, [0]), (4, [1]), (6, [1]), (7, []), (9, []), (9.25, [2])]
    waited = [0.0, 0.1, 0.1, 0.2, 0.6, 0.6, 1.6, 1.7]
    for (now, flying), so_far in zip(looks, waited, strict=True):
        waits.look(now, so_far, flying)
    shares = waits.shares()
    assert shares == {
        "a/0 x": pytest.approx(0.2 / 4),  # from 0 to 4
        "b/0 x": pytest.approx(0.5 / 4),  # from 3 to 7
        "c/0 x": pytest.approx(0.1 / 0.5),  # too short to be told apart from its least
    }


def test_a_process_that_two_others_keep_from_its_processor_has_waited():
    """As the kernel counts it, of a process that shares one processor with two busy ones."""
    busy = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\nwhile True: pass"
    several = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(3)]
    try:
        limit = time.monotonic() + 20
        while (waited := processors.run_delay(several[0].pid)) < 0.1 and time.monotonic() < limit:
            time.sleep(0.05)
    finally:
        for one in several:
            one.kill()
            one.wait()
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel does not count how long processes wait (CONFIG_SCHED_INFO)")
    assert waited >= 0.1 and processors.run_delay(several[0].pid) == 0.0  # it has gone


def test_the_processor_to_reserve_is_one_that_has_nothing_to_do(monkeypatch):
    """Of ticks that each had to spare in one second: 0 was at work, 2 all but free."""
    looks = [{0: 0, 1: 50, 2: 70, 3: 0}, {0: 60, 1: 150, 2: 165, 3: 100}]
    hertz = os.sysconf("SC_CLK_TCK") / 100
    for chosen, allowed in [({1, 2, 3}, {0, 1, 2, 3}), ({0}, {0})]:
        again = iter([{p: ticks * hertz for p, ticks in look.items()} for look in looks] * 40)
        monkeypatch.setattr(processors, "_spare_ticks", lambda again=again: next(again))
        monkeypatch.setattr(processors.time, "sleep", lambda seconds: None)
        assert {processors.idlest(allowed, 1.0) for _ in range(40)} == chosen


def test_every_processor_of_this_host_is_looked_at():
    assert set(processors._spare_ticks()) >= os.sched_getaffinity(0)


def test_the_main_thread_gets_its_processor_and_all_else_the_others(tmp_path):
    """Of a world in which there are two processes, one of two threads."""
    everyone = os.sched_getaffinity(0)
    if len(everyone) < 2:
        pytest.skip("one processor, nothing to share")
    own, others = min(everyone), everyone - {min(everyone)}
    neighbour = subprocess.Popen(["sleep", "60"])
    two = "import threading; threading.Thread(target=input).start(); print('up', flush=True)"
    child = subprocess.Popen(
        [sys.executable, "-c", two], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        child.stdout.readline()
        for process in (child, neighbour):
            (tmp_path / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        (tmp_path / "999999999/task/999999999").mkdir(parents=True)  # one that has ended
        processors.reserve(child.pid, own, everyone, str(tmp_path))
        threads = {int(t): os.sched_getaffinity(int(t)) for t in threads_of(child.pid)}
        assert threads.pop(child.pid) == {own} and list(threads.values()) == [others]
        assert os.sched_getaffinity(neighbour.pid) == others
        assert os.sched_getaffinity(0) == everyone
    finally:
        neighbour.kill()
        neighbour.wait()
        child.communicate(b"\n")


def threads_of(pid):
    return os.listdir(f"/proc/{pid}/task")


def test_a_process_is_preferred_by_its_session_too():
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        processors.prefer(child.pid, 5)
        assert os.getpriority(os.PRIO_PROCESS, child.pid) == 5
        group = Path(f"/proc/{child.pid}/autogroup")
        assert not group.exists() or group.read_text().split()[1:] in ([], ["nice", "5"])
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(("share", "given_up"), [(0.3, 0), (0.6, 1)])
def test_a_processor_that_somebody_else_stays_on_is_given_up(share, given_up, monkeypatch):
    """share: of a look, what the datapath waited."""
    clock, calls = [100.0], []
    monkeypatch.setattr(guard.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(guard, "run_delay", lambda pid: share * (clock[0] - 100.0))
    monkeypatch.setattr(guard, "steal_seconds", lambda: 0.0)
    box = SimpleNamespace(
        children={guard.DATAPATH: SimpleNamespace(pid=1)}, share=lambda: calls.append(1)
    )
    net = SimpleNamespace(fabric=SMALL, bandwidth_scale=1e-4, namespaces={})
    counted = SimpleNamespace(read=lambda: (np.zeros((2 * len(SMALL.links), 2), np.int64), 0))
    watcher = guard.Guard(box, net, ports=counted)
    clock[0] += 0.5
    watcher.sample()
    assert watcher.waited == pytest.approx(0.5 * share) and len(calls) == given_up


def test_an_opinion_under_way_is_the_verdict_without_what_hosts_are_asked_for(monkeypatch):
    """Of the flows that have ended: another that is under way has no end to be late for."""
    monkeypatch.setattr(guard, "_softnet_dropped", lambda: 3)
    watcher = object.__new__(guard.Guard)
    watcher.packet_time, watcher.may_drop, watcher.samples = 3.6e-3, False, []
    watcher._softnet, watcher._ticks, watcher._foreign = 3, processors.cpu_ticks(), [(2.0, 0.1)]
    pace = watcher.opinion(np.array([0.01]), np.ones(1), 1e-4)
    assert pace.ok and pace.worst_lateness == 0.01 and pace.foreign == pytest.approx(0.1)
    watcher._foreign.append((2.0, 0.9))
    pace = watcher.opinion(np.array([0.01, 0.2]), np.ones(2), 1e-4, Lost({"a/0 x": 0.2}))
    assert len(pace.reasons) == 3 and not pace.ok
    watcher._softnet = 1
    assert (
        "dropped 2 packets from its backlog"
        in watcher.opinion(np.zeros(0), np.zeros(0), 1e-4).reasons[0]
    )


def test_the_processors_of_this_host_are_read():
    before = processors.Processors.now()
    sum(range(10**6))
    after = processors.Processors.now()
    assert after.total >= before.total and after.own_user >= before.own_user >= 0


# --- full cables ----------------------------------------------------------------------------------


def watched(shares):
    """What is said of a phase whose flows' first cable carries `shares` of its rate, by span."""
    trace = pairs(SMALL)
    fullness = Fullness(SMALL, trace, SCALE)
    first = np.array([SMALL.host_index[h] for h in trace.hosts])
    ways = SimpleNamespace(of=lambda rows: (np.arange(len(rows) + 1), 2 * first[trace.src[rows]]))
    frames, now = np.zeros(2 * len(SMALL.links)), 0.0
    flying = range(len(trace))
    fullness.look(now, frames, flying, ways)
    for share in [1.0, *shares]:  # the first span is settled in
        now += fullness.span
        frames = frames + share * fullness.room * fullness.span
        fullness.look(now, frames, flying, ways)
    return fullness.idle_shares()


def test_a_full_cable_accounts_for_all_the_time():
    assert watched([1.0] * 40) == {"a/0 flows": pytest.approx(0.0, abs=1e-9)}


def test_what_a_slow_host_leaves_of_a_cable_is_missing():
    assert watched([1.0, 0.8] * 20) == {"a/0 flows": pytest.approx(0.1, rel=0.06)}


def test_of_a_moment_nothing_is_said():
    assert watched([0.5]) == {}


def test_acknowledgements_are_no_payload():
    data, acks = 20, 10
    frames = data * (MTU + ETHERNET) + acks * (ETHERNET + HEADERS)
    assert payload(np.array([[frames, data + acks]])) == data * PAYLOAD


# --- the scale ------------------------------------------------------------------------------------


def test_a_slow_cable_that_carries_nothing_does_not_hold_the_others_up():
    two = parse_fabric("two-clusters,training=4,generation=4,gpus=2,join=1Gbit/s")
    inside, across = TraceBuilder(two.hosts), TraceBuilder(two.hosts)
    for made in (inside, across):
        made.flows([0, 1], [2, 3], 1e9, phase="a", label="inside")
    across.flows([0], [len(two.hosts) - 1], 1e9, phase="a", label="across")
    kept = simulate(two, inside.build())
    scale = choose_scale([kept], 1e4)
    check_rates_of(kept, scale)
    with pytest.raises(RFabricError, match="slowest cable that carries traffic"):
        choose_scale([simulate(two, across.build())], 1e4)


def test_a_scale_by_hand_that_shapes_traffic_too_slowly_names_one_that_does_not():
    result = simulate(SMALL, pairs(SMALL))
    slow = Scale(MIN_RATE / 400e9 / 2 * 10, 10.0)
    with pytest.raises(RFabricError, match="a cable that carries traffic is shaped to 125 kbit/s"):
        check_rates_of(result, slow)
    check_rates_of(result, Scale(2.01 * slow.bandwidth, 10.0))


def test_many_flows_that_begin_together_need_a_slower_clock():
    fabric, made = fat_tree(), TraceBuilder(fat_tree().hosts)
    n = len(fabric.hosts)
    ends = [(a, b) for a in range(n) for b in range(n) if a != b]
    made.flows(*zip(*ends, strict=True), 1e8, phase="a", label="all-to-all")
    few, many = simulate(fabric, pairs(fabric, 6.3e9)), simulate(fabric, made.build())
    slow, quick = (choose_scale([r], 8e4, patience=1.0).dilation for r in (many, few))
    shortest = (many.finish - many.start).min()
    assert len(ends) * START_S <= LATE_SHARE * shortest * slow * 1.06 and slow > 2 * quick


def test_patience_and_estimate_go_together():
    result = simulate(SMALL, pairs(SMALL, 1e11))
    short, long = (choose_scale([result], 8e4, patience=p) for p in (10.0, 100.0))
    assert long.dilation == pytest.approx(10 * short.dilation, rel=0.06)
    assert run_seconds(result, long) - run_seconds(result, short) == pytest.approx(90, rel=0.06)


def test_a_sample_takes_what_patience_allows_with_loops_that_go_out_whole():
    """Loops of which over half would be sampled are sent in full, and that counts too."""
    made = TraceBuilder(SMALL.hosts)
    last = ()
    for i, repeat in enumerate([20] * 6 + [2000]):  # 0.08 s each, and 8 s
        turn = [i % 4], [4 + i % 4], 2e8
        last = made.loop([turn], repeat, [0.0], after=last, phase="a", label=f"loop {i}")
    result = simulate(SMALL, made.build())
    for patience in (2.0, 8.0, 12.0, 40.0):
        sample = choose_sample([result], patience)
        scale = Scale(1e-4, DILATION, sample)
        moving = run_seconds(result, scale) - SETUP_S
        assert sample >= LEAST_SAMPLE
        assert moving <= patience * 1.01 or sample == LEAST_SAMPLE


def test_time_is_dilated_until_a_network_card_sends_packets_enough_of_a_sample():
    made = TraceBuilder(SMALL.hosts)
    made.loop([([0, 1], [4, 5], 2e8)], 2000, [0.0], phase="a", label="loop")
    result = simulate(SMALL, made.build())
    for patience in (1.0, 40.0):
        sample = choose_sample([result], patience)
        scale = choose_scale([result], 8e4, patience, sample)
        line = fastest_line(SMALL) * scale.bandwidth / scale.dilation
        packets = sample * scale.dilation / transfer_seconds(MTU, line)
        assert packets >= 0.95 * LEAST_PACKETS or scale.dilation == MAX_DILATION
        assert choose_scale([result], 8e4, patience).dilation <= scale.dilation


@pytest.mark.parametrize("patience", [2.0, 15.0, 40.0])
@pytest.mark.parametrize("packet_hops", [4e4, 2e5])
def test_a_sample_has_its_packets_before_all_else_is_dilated_for_them(patience, packet_hops):
    """With a shorter one the run takes longer: what is no loop is sent in full."""
    made = TraceBuilder(SMALL.hosts)
    last = made.loop([([0, 1], [4, 5], 2e8)], 2000, [0.0], phase="a", label="loop")
    made.flows([0, 1], [4, 5], 1e11, after=last, phase="b", label="whole")
    some = [simulate(SMALL, made.build())]
    least = least_sample(some, packet_hops)
    short, enough = (choose_sample(some, patience, s) for s in (LEAST_SAMPLE, least))
    dilated, scale = (choose_scale(some, packet_hops, patience, s) for s in (short, enough))
    assert short <= enough and scale.dilation <= dilated.dilation
    assert run_seconds(some[0], scale) <= 1.06 * run_seconds(some[0], dilated)
    moving = run_seconds(some[0], scale) - SETUP_S
    assert moving <= 1.06 * patience or scale.dilation <= 1.06 * DILATION


def test_what_has_no_loop_is_sent_whole_however_little_patience_there_is():
    """A scheduler's plan whose step takes its computing in one go: there is nothing to sample."""
    result = simulate(SMALL, pairs(SMALL))
    assert choose_sample([result], 1e-3) == np.inf
    assert choose_scale([result], 1e5, 1e-3).dilation >= 1


@pytest.mark.parametrize("spec", ["fat-tree", "mixnet", "rfabric", "two-clusters,join=2Tbit/s"])
def test_what_sends_nothing_has_a_scale_too(spec):
    """As a job on one server, whose traffic stays in it."""
    fabric = parse_fabric(spec, 16)
    b = TraceBuilder(fabric.hosts)
    b.compute(0, 1.0, phase="training", label="forward")
    scale = choose_scale([simulate(fabric, b.build(), "static")], 8e4)
    check_rates(fabric, scale.bandwidth / scale.dilation)


@pytest.mark.parametrize("size", [1e3, 4e6, 1e8, 1e11])
@pytest.mark.parametrize("spec", ["fat-tree", "rfabric", "mixnet", "topoopt"])
def test_a_short_trace_takes_its_time_but_sends_no_byte_twice(spec, size):
    """Nor is a rewire longer dark than that, unless it is with the usual dilation."""
    fabric = parse_fabric(spec, 16)
    b = TraceBuilder(fabric.hosts)
    b.flows([1, 2, 3], [0, 0, 0], size, phase="t", label="incast")
    result = simulate(fabric, b.build(), "static")
    scale = choose_scale([result], 8e4)
    longest = max(result.step_seconds, fabric.reconfig_delay) * scale.dilation
    assert scale.bandwidth <= 1 and scale.dilation >= 1
    check_rates(fabric, scale.bandwidth / scale.dilation)
    if scale.dilation > MAX_DILATION:
        assert longest <= 1.1 * LEAST_MOVING_S
    elif scale.dilation < MAX_DILATION:
        assert longest >= 0.9 * LEAST_MOVING_S or scale.bandwidth > 0.9


@pytest.mark.parametrize("spec", ["fat-tree", "rfabric", "mixnet"])
@pytest.mark.parametrize(
    "job", ["grpo-64", "grpo-64-h20", "grpo-64-moe", "orchestrrl-64", "weave-2jobs"]
)
def test_every_job_of_64_gpus_has_a_scale_at_which_two_cores_carry_it(job, spec, monkeypatch):
    """Chosen by the command, cables fast enough, in six minutes: of a host that is half as fast as
    they usually are.
    """
    monkeypatch.setattr("rfabric.emulate.world.calibrate", lambda **_: 4e4)
    traffic, settings, said = read_traffic(job), RunSettings("emulate"), []
    fabric = traffic.needs.fabric(spec)
    expected = study.simulated(study.Case(fabric, "own"), traffic, settings)
    scale = study.chosen_scale([expected], settings, lambda _, news: said.append(news["stage"]))
    seconds = run_seconds(expected, scale)
    assert SETUP_S < seconds < 360
    # no more is dilated for a sample's few packets than must be
    assert seconds - SETUP_S <= 1.06 * PATIENCE or scale.dilation <= 1.06 * DILATION
    assert said == [f"a run takes about {show_time(seconds)}"]


def test_slower_is_half_the_rates():
    scale = slower(SCALE)
    assert scale.bandwidth / scale.dilation == pytest.approx(
        SCALE.bandwidth / SCALE.dilation / 2, rel=0.05
    )


# --- a run that was refused -----------------------------------------------------------------------


def played(monkeypatch, refusals, **settings):
    """(outcome, scales tried) where the first `refusals` runs do not keep pace."""
    trace, scales = pairs(SMALL), []

    def emulate(fabric, trace, policy, *, scale, **_):
        scales.append(scale)
        result = replace(simulate(fabric, trace), engine="emulate", scale=scale)
        if len(scales) <= refusals:
            bad = replace(result, pace=Pace(False, reasons=("too slow",)))
            raise PaceError("the host did not keep pace", [bad])
        return result

    monkeypatch.setattr("rfabric.emulate.world.emulate", emulate)
    monkeypatch.setattr("rfabric.emulate.world.calibrate", lambda **_: 8e4)
    cases = [study.Case(SMALL, "own")]
    settings = RunSettings("emulate", **settings)
    try:
        return study.play(cases, Traffic(trace, "mine", ()), settings)[0], scales
    except PaceError as error:
        return error, scales


def test_a_refused_run_is_tried_again_slower_and_what_it_measured_is_told(monkeypatch, tmp_path):
    run, scales = played(monkeypatch, 2)
    assert len(scales) == 3 and scales[1] == slower(scales[0]) and scales[2] == slower(scales[1])
    assert len(run.refused) == 2 and run.result.scale == scales[2]
    assert sum("not kept: too slow" in note for note in run.result.notes) == 2
    folder = run.save(tmp_path / "saved")
    kept = sorted(p.name for p in (folder / "not-kept").iterdir())
    assert kept == ["emulate-fat-tree-1", "emulate-fat-tree-2"]
    assert '"kept": false' in (folder / "not-kept" / kept[0] / "pace.json").read_text()


def test_after_two_tries_more_it_is_given_up(monkeypatch):
    error, scales = played(monkeypatch, 9)
    assert isinstance(error, PaceError) and len(scales) == len(error.refused) == 3


def test_a_scale_by_hand_is_tried_once(monkeypatch):
    error, scales = played(monkeypatch, 1, bandwidth=1e-4, dilation=10.0)
    assert isinstance(error, PaceError) and len(scales) == 1


def too_slow(result):
    bad = replace(result, pace=Pace(False, reasons=("too slow",)))
    raise PaceError("the host did not keep pace: too slow", [bad])


def other_ways(result):
    return replace(result, link_bytes=1.1 * result.link_bytes)


@pytest.mark.parametrize("verb", ["replay", "compare"])
@pytest.mark.parametrize(
    ("outcome", "measured", "why"), [(too_slow, 3, "too slow"), (other_ways, 1, "other paths")]
)
def test_what_a_refused_run_measured_is_kept_in_a_folder_that_the_message_names(
    verb, outcome, measured, why, monkeypatch, tmp_path, capsys
):
    def emulate(fabric, trace, policy, *, scale, **_):
        return outcome(replace(simulate(fabric, trace), engine="emulate", scale=scale))

    monkeypatch.setattr("rfabric.emulate.world.emulate", emulate)
    monkeypatch.setattr("rfabric.emulate.world.calibrate", lambda **_: 8e4)
    monkeypatch.setattr("rfabric.emulate.sandbox.require", lambda: None)
    mine, out = tmp_path / "mine.csv", tmp_path / "runs"
    write_trace(pairs(SMALL, 1e11), mine)
    spec = "fat-tree,pods=2,tors=2,gpus=2"  # as SMALL is
    other = ["--topo", "leaf-spine,tors=2,gpus=4"]
    takes = [str(mine)] if verb == "replay" else ["--traffic", str(mine), *other]
    words = [verb, *takes, "--topo", spec, "--engine", "emulate", "--out", str(out), "-q"]
    assert main(words) == 1
    said = capsys.readouterr().err
    place = Path(re.search(r"are kept in (\S+)", said)[1])
    assert place.is_relative_to(out) and why in said
    told = sorted(place.glob("*/pace.json"))
    # all cells of a comparison have one scale, at which each is tried once
    assert len(told) == (measured if verb == "replay" else 2)
    assert all(why in file.read_text() and file.with_name("flows.csv").is_file() for file in told)


# --- bytes on cables ------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "ok"), [(1.005, True), (1.03, False), (0.97, False)])
def test_a_cable_that_carried_other_bytes_ends_the_run(share, ok):
    expected = simulate(SMALL, pairs(SMALL, 1e11))
    carried = expected.link_bytes.copy()
    carried[np.argmax(carried)] *= share
    result = replace(expected, engine="emulate", link_bytes=carried, scale=Scale(1e-3, 10.0))
    if ok:
        assert check_link_bytes(result, expected) is result
    else:
        with pytest.raises(RunError, match="simulated 100 GB .1 such cables.: packets took other"):
            check_link_bytes(result, expected)


@pytest.mark.parametrize(("resent", "share", "ok"), [(10**6, 1.015, True), (10**6, 1.025, False),
                                                     (0, 1.015, False)])  # fmt: skip
def test_what_tcp_sent_again_may_be_on_a_cable_within_what_the_guard_allows(resent, share, ok):
    expected = simulate(SMALL, pairs(SMALL, 1e11))
    carried = expected.link_bytes.copy()
    carried[np.argmax(carried)] *= share
    result = replace(
        expected, link_bytes=carried, scale=Scale(1e-3, 10.0), pace=Pace(resent=resent)
    )
    if ok:
        assert check_link_bytes(result, expected) is result
    else:
        with pytest.raises(RunError, match="carried"):
            check_link_bytes(result, expected)


@pytest.mark.parametrize(("resent", "share", "ok"), [(12, 1.06, True), (2, 1.06, False),
                                                     (12, 0.94, False)])  # fmt: skip
def test_a_few_packets_sent_again_are_no_other_ways_where_few_were_sent(resent, share, ok):
    """A cable of 157 packets, of which 9 are the share: sent again, they only ever add."""
    expected = simulate(SMALL, pairs(SMALL, 1e11))
    carried = expected.link_bytes.copy()
    carried[np.argmax(carried)] *= share
    scale, pace = Scale(1.4e-5, 10.0), Pace(resent=resent)
    result = replace(expected, link_bytes=carried, scale=scale, pace=pace)
    if ok:
        assert check_link_bytes(result, expected) is result
    else:
        with pytest.raises(RunError, match="packets took other paths"):
            check_link_bytes(result, expected)


def test_bytes_are_not_compared_where_circuits_changed_under_flows_and_that_is_said():
    expected = simulate(SMALL, pairs(SMALL, 1e11))
    middle = float(expected.finish.max()) / 2
    rewire = RewireRecord(1, "a/0", middle, middle, middle, middle, 2)
    result = replace(expected, link_bytes=0 * expected.link_bytes, rewires=(rewire,))
    assert "circuits changed under flows" in check_link_bytes(result, expected).notes[-1]
    before = replace(rewire, requested=0.0, programmed=0.0, dark_until=0.0, usable=0.0)
    with pytest.raises(RunError, match="packets took other paths"):
        check_link_bytes(replace(result, rewires=(before,)), expected)


def test_the_note_names_the_rewires_and_circuits_that_were_not_simulated():
    expected = simulate(SMALL, pairs(SMALL, 1e11))
    first, other = Circuits(), Circuits({Circuit(Port("o1", 1), Port("o1", 2))})

    def run(*rewires):
        records = [RewireRecord(i, who, 0, 0, 0, 0, 2) for i, (who, _) in enumerate(rewires, 1)]
        epochs = [(0.0, first), *((0.0, circuits) for _, circuits in rewires)]
        return replace(expected, rewires=tuple(records), epochs=tuple(epochs))

    def said(ours, theirs):
        return check_link_bytes(run(*ours), run(*theirs)).notes[-1].rpartition("simulation: ")[2]

    assert said([("a/0", other)], [("b/0", other), ("b/0", first)]) == (
        "rewired for a/0, simulated for b/0 x 2"
    )
    assert said([], [("b/0", other)]) == "rewired for nothing, simulated for b/0"
    assert said([("a/0", other)], [("a/0", first)]) == (
        "other circuits than simulated came into force for a/0"
    )


def test_packets_of_before_are_waited_for_so_that_they_count_for_nothing_later():
    sent, held = [5, 6, 6, 7, 7, 7], [2, 2, 1, 1, 0, 0]  # by look; the last goes on

    def read():
        return np.array([[sent.pop(0) if len(sent) > 1 else sent[0]]]), 0

    settle(read, lambda: held.pop(0) if len(held) > 1 else held[0], still=0.02)
    assert (sent, held) == ([7], [0])
    forever = iter(range(10**6))
    with pytest.raises(RunError, match="packets are under way"):
        settle(lambda: (np.array([[next(forever)]]), 0), lambda: 0, still=0.01, timeout=0.05)
    with pytest.raises(RunError, match="packets are under way"):
        settle(lambda: (np.zeros((1, 1)), 0), lambda: 1, still=0.01, timeout=0.05)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(3, 4), st.integers(0, 9), st.integers(1, 4)),
        max_size=12,
    )
)
def test_flows_of_two_hosts_that_are_under_way_together_are_counted(flows):
    """(src, dst, start, seconds), against a count at the middle of each second."""
    made = TraceBuilder(fat_tree().hosts)
    for src, dst, *_ in flows:
        made.flows([src], [dst], 1e6, phase="a", label="x")
    made.compute(0, 1.0, phase="a", label="y")
    start = np.array([float(at) for *_, at, _ in flows] + [0.0])
    finish = start + np.array([float(seconds) for *_, seconds in flows] + [1.0])
    most: Counter[tuple[str, str]] = Counter()
    for middle in np.arange(0.5, 14):
        under_way = Counter(
            (made.hosts[src], made.hosts[dst])
            for src, dst, at, seconds in flows
            if at < middle < at + seconds
        )
        most |= under_way
    expected = SimpleNamespace(trace=made.build(), start=start, finish=finish)
    assert at_once(expected) == most


@pytest.mark.parametrize(
    ("delay", "policy", "dilation", "said"),
    [
        ("1e300s", "demand", 64.0, "an OCS delay of 1e\\+300 s, 64 times as long here"),
        ("1e300s", "static", 1.0, "the limit is 3600 s"),
        ("60s", "demand", 64.0, "keeps circuits dark for 3840 s"),
        ("10ms", "demand", 0.5, "no faster than in real time"),
    ],
)
def test_what_the_controller_would_refuse_is_told_before_anything_is_built(
    delay, policy, dilation, said
):
    fabric = parse_fabric(f"rfabric,pods=2,tors=2,gpus=2,delay={delay}")
    with pytest.raises(RFabricError, match=said):
        refuse_long_dark(fabric, policy, dilation)
    refuse_long_dark(parse_fabric("fat-tree,k=4"), "demand", 0.5)
    refuse_long_dark(parse_fabric("rfabric,pods=2,tors=2,gpus=2"), "static", 0.5)

"""The replay loop on a wire and a controller of our own: order, clock, hold and drain, and what it
says when a run breaks.
"""

import time
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from rfabric.control.client import Committed, PlannedRewire
from rfabric.emulate import replay as module
from rfabric.emulate.clock import Clock
from rfabric.emulate.replay import Replay
from rfabric.emulate.sampling import LoopSample
from rfabric.emulate.wire import Arrival
from rfabric.errors import RunError
from rfabric.fabric import fat_tree, parse_fabric, rfabric
from rfabric.optics import Circuits, Rewire, Timing, intend, parse_policy
from rfabric.report.result import Scale
from rfabric.simulate.world import simulate
from rfabric.trace import PhaseKey, TraceBuilder
from rfabric.trace.packets import PAYLOAD


@dataclass
class FakeWire:
    """Every flow takes `seconds` of wall clock, pauses included, after `readying`."""

    seconds: float = 0.02
    log: list = field(default_factory=list)
    starting: list = field(default_factory=list)
    ends: dict = field(default_factory=dict)
    paused: dict = field(default_factory=dict)
    bytes_received: int = 0
    late: float = 0.0
    readying: float = 0.0  # s of wall clock

    def send(self, flow, src, dst, nbytes):
        self.log.append(("send", flow, src, dst, nbytes))
        self.starting.append(flow)
        time.sleep(self.readying)

    def flush(self):
        self.ends |= dict.fromkeys(self.starting, time.monotonic() + self.seconds)
        self.starting.clear()

    def poll(self, timeout):
        time.sleep(min(timeout, 1e-3))
        now = time.monotonic()
        done = [(f, t) for f, t in self.ends.items() if t <= now and f not in self.paused]
        for flow, _ in done:
            del self.ends[flow]
            self.bytes_received += 1
        return [Arrival(f, t, t - self.seconds, 0, self.late) for f, t in done]

    def pause(self, flows):
        self.log.append(("pause", *flows))
        self.paused |= {f: time.monotonic() for f in flows}

    def resume(self, flows):
        self.log.append(("resume", *flows))
        for f in flows:
            self.ends[f] += time.monotonic() - self.paused.pop(f)

    def unacked(self, flows):
        return 0

    def progress(self, flow):
        return 0, 0


@dataclass
class FakeControl:
    """Plans with the real policy, commits after a real while."""

    fabric: object
    circuits: Circuits
    wire: FakeWire
    delay: float = 0.01
    fail: str = ""
    verifying: float = 0.0  # s from usable to the answer
    planning: float = 0.0
    policy: str = "demand"

    def abort(self, epoch):
        self.rewire = None

    def plan(self, demand, pairs, now, upcoming, sending, also):
        time.sleep(self.planning)
        policy = parse_policy(self.policy, self.fabric)
        decision = intend(
            self.fabric, policy, demand, self.circuits, now, upcoming, Timing(), sending, also=also
        )
        return self.planned(
            decision.rewire, decision.why, decision.later, decision.wait, decision.others
        )

    def plan_circuits(self, circuits, pairs):
        return self.planned(Rewire.between(self.circuits, circuits), "asked for")

    def planned(self, rewire, *about):
        self.rewire = rewire
        return PlannedRewire(
            len(self.wire.log) + 1, "PREPARED", rewire, about[0], 0.016, *about[1:]
        )

    def commit(self, epoch):
        if self.fail:
            raise RunError(self.fail)
        self.wire.log.append(("commit", epoch))
        programmed = time.monotonic()
        time.sleep(self.delay)
        self.circuits = self.rewire.apply(self.circuits)
        dark_until, usable = programmed + self.delay, time.monotonic()
        time.sleep(self.verifying)
        return Committed(epoch, programmed, programmed, dark_until, usable, self.rewire.size, 0)


def two_phases(fabric, compute=30.0):
    b = TraceBuilder(fabric.hosts)
    work = b.compute(0, compute, phase="training", label="backward")
    rows = b.flows([0, 1], [16, 17], 1e9, after=[work], phase="training", label="all-reduce")
    b.flows([0, 1], [48, 49], 1e9, after=rows, phase="weight_sync", label="weights")
    return b.build()


def one_then_another(fabric):
    """After computing a host sends to a second, then to a third, of racks that one circuit at a
    time joins.
    """
    b = TraceBuilder(fabric.hosts)
    work = b.compute(0, 30.0, phase="training", label="backward")
    first = b.flows([0], [1], 1e9, after=[work], phase="training", label="all-reduce")
    b.flows([0], [2], 1e9, after=first, phase="weight_sync", label="weights")
    return b.build()


def play(fabric, trace, wire, control=None, scale=Scale(1e-6, 1.0), **kind):
    start = parse_policy("static", fabric).decide(
        trace.demand(fabric, trace.phase_keys[0]), Circuits(), 0.0
    )
    if control:
        control.circuits = start
    return Replay(
        fabric, trace, wire, control, start if fabric.ocses else Circuits(), scale, **kind
    )


def test_compute_takes_no_wall_time_and_bytes_are_scaled_up_to_a_whole():
    wire, trace = FakeWire(), two_phases(fat_tree())
    began = time.monotonic()
    done = play(fat_tree(), trace, wire).run()
    assert time.monotonic() - began < 15  # of 30 s of compute
    assert done.finish[0] == 30.0 and done.start[1] >= 30.0
    assert [entry[2:] for entry in wire.log] == [
        ("h1", "h17", 1000), ("h2", "h18", 1000), ("h1", "h49", 1000), ("h2", "h50", 1000),
    ]  # fmt: skip
    assert (done.start[3:] >= done.finish[1:3].max()).all()


@pytest.mark.parametrize("others", [False, True])
def test_what_flows_take_to_be_made_ready_counts_only_where_others_are_under_way(others):
    fabric, n = fat_tree(), 8
    b = TraceBuilder(fabric.hosts)
    if others:
        b.flows([20], [40], 1e9, start=29.9, phase="training", label="before")
    work = [b.compute(0, 30.0, phase="training", label="backward")]
    ends = range(n), range(60, 60 - n, -1)
    many = b.flows(*ends, 1e9, after=work, phase="training", label="many")
    done = play(fabric, b.build(), FakeWire(seconds=0.3, readying=0.03)).run()
    late = np.asarray(done.late)[many]
    assert (late > 0.2).all() if others else (late < 0.1).all()
    assert np.ptp(done.start[many]) == 0.0
    assert (done.finish - done.start)[many] == pytest.approx(0.3, abs=0.1)


def test_dilation_stretches_the_wall_clock_only():
    wire = FakeWire(seconds=0.06)
    done = play(fat_tree(), two_phases(fat_tree()), wire, scale=Scale(1e-6, 3.0)).run()
    assert 0.019 < done.finish[1] - done.start[1] < 0.06


def test_clock_never_goes_back():
    clock = Clock(2.0)
    clock.jump(5.0)
    clock.jump(1.0)
    assert clock.now() >= 5.0


def test_with_nothing_in_flight_planning_and_verifying_take_no_time():
    fabric, wire = rfabric(pods=1, tors=3, gpus=1, electrical=0), FakeWire()
    done = play(
        fabric,
        one_then_another(fabric),
        wire,
        FakeControl(fabric, Circuits(), wire, verifying=0.4, planning=0.4),
    ).run()
    assert len(done.rewires) == 2  # each planned and verified while nothing is in flight
    assert done.finish[2] < 30.4


def test_rewires_are_planned_ahead_and_flows_wait_for_their_circuits():
    fabric, wire = rfabric(pods=1, tors=3, gpus=1, electrical=0), FakeWire()
    done = play(fabric, one_then_another(fabric), wire, FakeControl(fabric, Circuits(), wire)).run()
    assert [r.phase for r in done.rewires] == ["training/0", "weight_sync/0"]
    for r in done.rewires:
        assert r.requested <= r.programmed <= r.dark_until <= r.usable
    assert done.start[1] >= 30.0 > done.rewires[0].usable  # hidden behind the compute
    parked = next(e for e in wire.log if e[:2] == ("send", 2))
    # its circuit did not exist
    assert wire.log.index(parked) > [e[0] for e in wire.log].index("commit", 2)
    assert done.start[2] == pytest.approx(done.finish[1], abs=0.02)  # the wait for it counts
    assert [e[0] for e in wire.log if e[0] in ("commit", "send")] == [
        "commit",
        "send",
        "commit",
        "send",
    ]
    assert len(done.epochs) == 3


class SteadyWire(FakeWire):
    """Of a flow that says how much it has sent, by the clock."""

    def send(self, flow, src, dst, nbytes):
        super().send(flow, src, dst, nbytes)
        self.sizes = getattr(self, "sizes", {}) | {flow: nbytes}

    def progress(self, flow):
        left = (self.ends[flow] - time.monotonic()) / self.seconds
        return 0, int(self.sizes[flow] * min(1.0, 1.0 - left))


class SlowWire(FakeWire):
    """It takes a while to start what was to be sent."""

    def flush(self):
        time.sleep(0.05)
        super().flush()


def test_a_start_is_as_late_as_the_wire_takes_to_send_it():
    trace = two_phases(fat_tree())
    done = play(fat_tree(), trace, SlowWire(seconds=0.1)).run()
    assert (done.late[trace.size > 0] >= 0.05).all()


@dataclass
class ListeningControl(FakeControl):
    """Notes what each plan was told that others still send, bytes."""

    told: list = field(default_factory=list)

    def plan(self, demand, pairs, now, upcoming, sending, also):
        self.told.append(sum(float(d.bytes.sum()) for d in sending))
        return super().plan(demand, pairs, now, upcoming, sending, also)


@pytest.mark.parametrize("wire", [SteadyWire(seconds=1.0), FakeWire(seconds=1.0)])
def test_a_plan_made_ahead_is_made_again_where_others_have_sent_since(wire):
    fabric, size = rfabric(), 5e10
    b = TraceBuilder(fabric.hosts)
    b.flows(range(4), range(60, 64), size, phase="a", label="long")
    b.flows(range(4), range(16, 20), size, start=0.7, phase="b", label="late")
    control = ListeningControl(fabric, Circuits(), wire)
    play(fabric, b.build(), wire, control).run()
    assert max(control.told) > 3 * size  # ahead, as all but nothing was sent
    assert (min(t for t in control.told if t) < 2 * size) == isinstance(wire, SteadyWire)


@dataclass
class AskedControl(FakeControl):
    """Notes of which phase each plan is, and the bytes that are to be sent."""

    asked: list = field(default_factory=list)

    def plan(self, demand, pairs, now, upcoming, sending, also):
        self.asked.append((demand.phase, float(demand.sent[2].sum())))
        return super().plan(demand, pairs, now, upcoming, sending, also)


@pytest.mark.parametrize("granularity", ["per-phase", "per-collective"])
def test_a_loop_is_planned_ahead_with_all_its_turns(granularity):
    """Each turn waits for the one before, of which nothing is sent either when the loop begins."""
    fabric, wire, b = rfabric(), FakeWire(), TraceBuilder(rfabric().hosts)
    turns = [(range(4), range(16, 20), 1e9), (range(4), range(32, 36), 3e9)]
    last = b.flows([0], [16], 1e9, phase="a", label="first")
    for _ in range(2):
        last = b.loop(turns, 5, [1.0, 1.0], after=last, phase="b", label=["there", "far"])
    trace, control = b.build().whole(), AskedControl(fabric, Circuits(), wire)
    play(fabric, trace, wire, control, granularity=granularity).run()
    loop = 5 * 4 * (1e9 + 3e9)
    assert {size for phase, size in control.asked if phase == "b"} == (
        {2 * loop} if granularity == "per-phase" else {loop}
    )


@pytest.mark.parametrize("in_flight", ["hold", "drain", "drop"])
def test_traffic_in_flight_follows_the_stated_policy(in_flight):
    fabric, wire = rfabric(), FakeWire(seconds=1.0)
    b = TraceBuilder(fabric.hosts)
    b.flows(
        range(4), range(60, 64), 5e10, phase="a", label="long"
    )  # a rack's four cards: one circuit would hold them up
    b.flows(range(4), range(16, 20), 5e10, start=0.05, phase="b", label="late")
    control = FakeControl(fabric, Circuits(), wire, delay=0.03)
    done = play(fabric, b.build(), wire, control, timing=Timing(in_flight=in_flight)).run()
    names = [e[0] for e in wire.log]
    late = next(r for r in done.rewires if r.phase == "b/0")
    assert 0 < late.exposed <= late.usable - late.requested and late.hidden >= 0
    if in_flight == "hold":
        assert all(
            any(e[0] == word and 0 in e[1:] for e in wire.log) for word in ("pause", "resume")
        )
        assert done.finish[0] > late.usable
    else:
        assert "resume" not in names
    if in_flight == "drain":
        assert late.programmed >= done.finish[0]
    if in_flight == "drop":
        assert late.programmed < done.finish[0]


def in_turn(fabric):
    """A host sends, and meanwhile wants to send to another, as others do: one circuit a host."""
    b = TraceBuilder(fabric.hosts)
    b.flows([0], [5], 5e9, phase="a", label="first")
    b.flows([2, 0], [3, 4], 5e9, start=0.08, phase="b", label="second")
    return b.build()


def test_of_a_stage_without_a_path_what_has_one_is_sent_and_the_rest_when_others_have_ended():
    fabric, wire = rfabric(pods=1, tors=6, gpus=1, electrical=0), SteadyWire(seconds=0.3)
    trace = in_turn(fabric)
    done = play(fabric, trace, wire, FakeControl(fabric, Circuits(), wire)).run()
    expected = simulate(fabric, trace, "demand")
    assert [circuits for _, circuits in done.epochs] == [c for _, c in expected.epochs]
    for result in (done, expected):
        (rewire,) = result.rewires
        assert result.start[1] < result.finish[0] <= rewire.requested < result.finish[2]
    assert [entry[1] for entry in wire.log if entry[0] == "send"] == [0, 1, 2]


def waiting_for_each_other(hosts):
    """Training sends, then waits for an answer of generation; a server has one circuit."""
    b = TraceBuilder(hosts)
    answer = b.flows([5], [0], 5e9, start=10.0, phase="generation", label="a")
    b.flows([0], [6], 5e9, phase="training", label="b")
    b.flows([0], [6], 5e9, after=answer, phase="training", label="c")
    return b.build()


def test_where_all_others_wait_for_a_stage_without_a_path_it_goes_first_as_in_the_simulator():
    """Training keeps the only circuit for a row that waits for generation, which needs it."""
    fabric = parse_fabric("topoopt,servers=4,gpus=2,degree=1,optics=ocs,delay=1ms")
    trace, wire = waiting_for_each_other(fabric.hosts), FakeWire(seconds=0.1)
    done = play(fabric, trace, wire, FakeControl(fabric, Circuits(), wire, policy="tree")).run()
    expected = simulate(fabric, trace, "tree")
    assert [circuits for _, circuits in done.epochs] == [c for _, c in expected.epochs]
    assert [r.phase for r in done.rewires] == [r.phase for r in expected.rewires]
    assert done.finish[0] <= done.start[2] and np.isfinite(done.finish).all()


def test_a_failed_commit_ends_the_run():
    fabric, wire = rfabric(), FakeWire()
    control = FakeControl(fabric, Circuits(), wire, fail="the controller does not answer")
    with pytest.raises(RunError, match="the controller does not answer"):
        play(fabric, two_phases(fabric), wire, control).run()


def test_a_stall_is_noticed_and_named(monkeypatch):
    monkeypatch.setattr(module, "STALL", 0.2)
    with pytest.raises(
        RunError,
        match="no byte arrived for 0.2 s while 2 flows are in flight .first: row 1, h1 -> h17",
    ):
        play(fat_tree(), two_phases(fat_tree()), FakeWire(seconds=1e9)).run()


def test_open_loop_starts_are_kept():
    b = TraceBuilder(fat_tree().hosts)
    b.flows([0], [5], 1e9, start=100.0)
    b.flows([1], [6], 1e9, start=100.3)
    done = play(fat_tree(), b.build(), FakeWire()).run()
    assert done.start == pytest.approx([100.0, 100.3], abs=0.05) and done.late.max() < 0.2


def test_what_a_wire_sends_late_is_late():
    b = TraceBuilder(fat_tree().hosts)
    b.flows([0], [5], 1e9)
    done = play(fat_tree(), b.build(), FakeWire(late=0.25)).run()
    assert 0.25 <= done.late[0] < 0.35


def test_progress_reports_phase_and_bytes():
    seen = []
    play(fat_tree(), two_phases(fat_tree()), FakeWire(), progress=seen.append).run()
    assert seen[-1]["done_bytes"] == seen[-1]["total_bytes"] == 4e9
    assert {"training/0", "weight_sync/0"} <= {e["phase"] for e in seen}
    assert np.all(np.diff([e["clock_s"] for e in seen]) >= 0) and PhaseKey(0, "training")


@pytest.mark.parametrize("latency", [0.0, 0.3])
@pytest.mark.parametrize(("packets", "early"), [(2, 1), (75, 1), (75, 3)])
def test_a_sample_stands_for_the_rest_at_the_rate_of_its_slowest_card(latency, packets, early):
    """Packets of 1 s: one card gets one after another, another only every second of its own. A
    packet comes when its time on the cable begins, and the last ends with its own.
    """
    sample, left = LoopSample(rows=2, share=0.1, begin=5.0), packets - early + 1
    for card, each in ((0, 1.0), (1, 2.0)):
        first = 5.0 + latency + each
        sample.cards[card].add(PAYLOAD * packets, first, early * PAYLOAD, first + left * each)
    assert sample.seconds() == pytest.approx(2.0 * packets)
    # too close to tell one from the other
    assert sample.seconds(blur=packets + 1) == pytest.approx(1.5 * packets)
    sample.stood(0.5)  # a rewire: it is not the rate's fault
    assert sample.seconds() == pytest.approx((2.0 * left - 0.5) * packets / left)


def test_of_a_sample_of_one_packet_only_its_time_is_known():
    sample = LoopSample(rows=1, share=0.5, begin=5.0)
    sample.cards[0].add(800, 5.7, 800, 5.7)
    assert sample.seconds() == pytest.approx(0.7)


def test_a_flow_ends_later_by_the_delays_of_its_cables_for_each_repetition():
    """Both worlds: two flows, one after the other, and a loop of ten; cables of 1 s one way."""
    near = fat_tree()
    far = replace(near, links=tuple(replace(link, delay=1.0) for link in near.links))
    b = TraceBuilder(near.hosts)
    last = b.flows([0], [60], 5e10, phase="a", label="first")
    last = b.flows([60], [0], 5e10, after=last, phase="b", label="second")
    b.loop([([0], [1], 5e9)], 10, [0.0], after=last, phase="c", label="loop")
    trace, took = b.build().whole(), []
    for fabric in (near, far):
        done = play(fabric, trace, FakeWire(seconds=0.02), None).run()
        took.append((done.finish - done.start)[trace.size > 0])
    way = [6.0, 6.0, 20.0]  # cables to the other pod and back, and to the next host ten times
    assert took[1] - took[0] == pytest.approx(way, abs=0.5)
    model = [simulate(f, trace, "static") for f in (near, far)]
    each = [(one.finish - one.start)[trace.size > 0] for one in model]
    assert each[1] - each[0] == pytest.approx(way, abs=1e-3)


def test_a_flow_ends_as_its_last_packet_is_off_the_slowest_cable_and_others_wait_for_that():
    fabric, wire = fat_tree(), FakeWire(seconds=0.02)
    b = TraceBuilder(fabric.hosts)
    first = b.flows([0], [60], 5e10, phase="a", label="first")
    b.flows([60], [0], 5e10, after=first, phase="b", label="second")
    replay = play(fabric, b.build(), wire, None)
    done = replay.run()
    last = (int(replay.bytes[0]) - 1) % PAYLOAD + 1
    slowest = min(link.rate for link in fabric.links) * replay.scale.bandwidth
    assert done.finish[0] - done.start[0] >= 0.02 / replay.scale.dilation + last * 8 / slowest
    assert done.start[1] >= done.finish[0]

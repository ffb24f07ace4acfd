"""The flow-level world against closed forms, and rewires on its clock."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from rfabric.errors import RFabricError, RunError
from rfabric.fabric import fat_tree, parse_fabric, rfabric
from rfabric.optics import Timing
from rfabric.report.result import ends_without, fidelity, union_seconds
from rfabric.report.summary import Run, exposed_of, run_summary
from rfabric.simulate.world import _World, simulate
from rfabric.trace import Demands, PhaseKey, TraceBuilder, ring
from rfabric.trace.pairs import PairWays
from rfabric.units import transfer_seconds

RATE = 4e11


def trace_of(*flows, hosts=64, **kind):
    b = TraceBuilder([f"h{i + 1}" for i in range(hosts)])
    for src, dst, size in flows:
        b.flows([src], [dst], size, **kind)
    return b.build()


def steps(fabric, times=1):
    """Two steps of training all-reduce among h1..h32 and weight sync to h33..h64, 10 s of compute
    between.
    """
    b, last = TraceBuilder(fabric.hosts), []
    for step in range(2):
        work = b.compute(0, 10.0, after=last, step=step, phase="training", label="backward")
        sends = []
        for turn in range(4):
            flows = ring("all-reduce", range(turn, 32, 4), times * 5e9, 8, turn)
            sends += b.flows(*flows, after=[work], step=step, phase="training", label="all-reduce")
        done = b.compute(0, 0.5, after=sends, step=step, phase="training", label="optimizer")
        last = b.flows(
            range(32),
            range(32, 64),
            times * 2e9,
            after=[done],
            step=step,
            phase="weight_sync",
            label="weights",
        )
    return b.build()


def test_one_flow_takes_size_over_rate():
    result = simulate(fat_tree(), trace_of((0, 63, 5e9)))
    assert result.finish[0] == pytest.approx(transfer_seconds(5e9, RATE), rel=1e-4)
    assert result.link_bytes.sum() == pytest.approx(6 * 5e9) and (result.link_bytes > 0).sum() == 6


def test_incast_shares_the_last_cable():
    result = simulate(fat_tree(), trace_of(*((i, 0, 1e9) for i in range(1, 5))))
    assert result.finish.max() == pytest.approx(4 * transfer_seconds(1e9, RATE), rel=1e-4)


def test_ring_all_reduce_on_an_idle_fabric_takes_the_closed_form():
    b = TraceBuilder([f"h{i + 1}" for i in range(64)])
    b.flows(*ring("all-reduce", [0, 1, 2, 3], 4e9, 1))
    result = simulate(fat_tree(), b.build())
    assert result.step_seconds == pytest.approx(transfer_seconds(2 * 3 / 4 * 4e9, RATE), rel=1e-4)


def test_a_pair_without_circuits_goes_through_the_thin_electrical_path():
    dark = rfabric(planes=1, electrical="50Gbit/s")
    through = simulate(dark, trace_of((0, 32, 1e9)), "static")
    direct = simulate(dark, trace_of((0, 32, 1e9)), "demand")
    assert through.finish[0] == pytest.approx(transfer_seconds(1e9, 50e9), rel=1e-3)
    assert direct.finish[0] < through.finish[0]


@pytest.mark.parametrize("in_flight", ["hold", "drain", "drop"])
def test_rewires_have_ordered_timestamps_and_the_configured_dark_time(in_flight):
    fabric = rfabric(delay="25ms")
    timing = Timing(control=0.004, settle=0.001, in_flight=in_flight)
    result = simulate(fabric, steps(fabric), "demand,granularity=per-phase", timing=timing)
    assert [r.phase for r in result.rewires] == [
        "training/0",
        "weight_sync/0",
        "training/1",
        "weight_sync/1",
    ]
    for r in result.rewires:
        assert r.programmed - r.requested >= 0.004 - 1e-12
        assert r.dark_until - r.programmed == pytest.approx(0.025)
        assert r.usable - r.dark_until == pytest.approx(0.001)
    assert [e[0] for e in result.epochs[1:]] == [r.usable for r in result.rewires]
    assert result.dark_seconds == pytest.approx(4 * 0.026)


def test_a_rewire_at_the_start_of_compute_is_hidden_and_before_weight_sync_exposed():
    slow, fast = (rfabric(delay=d) for d in ("200ms", "1ms"))
    a, b = (simulate(f, steps(f, 20), "demand,granularity=per-phase") for f in (slow, fast))
    exposed = {p.key: p.exposed - q.exposed for p, q in zip(a.phases, b.phases, strict=True)}
    assert exposed[PhaseKey(0, "training")] == pytest.approx(0.0, abs=1e-9)
    # flows on circuits that stay go on meanwhile
    assert 0.1 < exposed[PhaseKey(0, "weight_sync")] <= 0.1991


def test_bytes_are_conserved_over_rewires():
    fabric = rfabric()
    trace = steps(fabric)
    for policy in ("static", "demand", "phase"):
        result = simulate(fabric, trace, policy)
        into_hosts = [2 * i + 1 for i, k in enumerate(fabric.links) if k.a.node.startswith("h")]
        assert result.link_bytes[into_hosts].sum() == pytest.approx(trace.size.sum(), rel=1e-9)


def test_the_window_rule_holds_in_the_world():
    """Of phases that end before circuits could follow; whose bytes take longer, lasts longer."""
    fabric = rfabric(delay="10ms")
    trace = steps(fabric)
    short = replace(trace, windows=dict.fromkeys(trace.phase_keys, 0.001))
    few = replace(short, size=trace.size // 1000)
    policy = "demand,granularity=per-phase"
    assert simulate(fabric, few, policy).rewires == ()
    assert simulate(fabric, short, policy).rewires == simulate(fabric, trace, policy).rewires != ()


def test_a_flow_in_flight_is_held_and_keeps_its_bytes():
    fabric = rfabric(delay="50ms", electrical="100Gbit/s")
    b = TraceBuilder(fabric.hosts)
    b.flows(range(4), range(60, 64), 20e9, phase="a", label="long")
    b.flows(range(4), range(16, 20), 20e9, start=0.1, phase="b", label="late")
    result = simulate(fabric, b.build(), "demand")
    held = result.rewires[-1]
    assert (
        held.phase == "b/0 late"
        and result.start[0] < held.requested < held.usable < result.finish[0]
    )
    assert np.isfinite(result.finish).all()
    assert result.finish[0] > transfer_seconds(20e9, RATE) + 0.05


@pytest.mark.parametrize(
    ("in_flight", "programmed", "a", "b"),
    [
        ("hold", 0.505, 0.515 + 0.515 * 400, 0.515 + 2 * 400 / 399),
        ("drain", 1.02, 1.015, 3.03),
        ("drop", 0.505, 0.515 + 0.510 * 400, 0.515 + 2 * 400 / 399),
    ],
)
def test_who_waits_for_a_rewire_in_closed_form(in_flight, programmed, a, b):
    """Two pairs send for 1 s once their circuits are lit (15 ms); at 0.5 s two others ask for the
    only circuits, for 2 s. Whoever has none goes on at 1 Gbit/s, out of the same cards.
    """
    fabric = rfabric(pods=1, tors=4, gpus=1, planes=1, electrical="1Gbit/s")
    builder = TraceBuilder(fabric.hosts)
    builder.flows([0, 2], [1, 3], 5e10, phase="a")
    builder.flows([0, 1], [2, 3], 1e11, start=0.5, phase="b")
    result = simulate(fabric, builder.build(), "demand", timing=Timing(in_flight=in_flight))
    assert [r.requested for r in result.rewires] == pytest.approx([0.0, 0.5])
    assert result.rewires[1].programmed == pytest.approx(programmed, rel=1e-3)
    assert result.finish == pytest.approx([a, a, b, b], rel=1e-3)


@pytest.mark.parametrize("in_flight", ["hold", "drain"])
@pytest.mark.parametrize("granularity", ["per-phase", "per-collective"])
def test_a_phase_alone_drains_nobody(in_flight, granularity):
    fabric = rfabric(pods=1, tors=4, gpus=1, planes=1, electrical="1Gbit/s")
    trace = trace_of((0, 2, 5e10), (1, 3, 5e10), hosts=4)
    timing = Timing(in_flight=in_flight)
    result = simulate(fabric, trace, f"demand,granularity={granularity}", timing=timing)
    assert result.step_seconds == pytest.approx(1.015, rel=1e-4)


def test_nobody_drains_a_flow_whose_circuits_stay():
    """A flow crawls on the electrical path at 10 Gbit/s, 40 s long; a rewire that gives it a
    circuit does not wait until it needs none.
    """
    fabric = rfabric(pods=2, tors=2, gpus=1, planes=1, electrical="10Gbit/s")
    b = TraceBuilder(fabric.hosts)
    b.flows([1, 1], [2, 3], 5e9, start=2.0, phase="a", label="a")
    b.flows([2, 2, 1], [0, 0, 0], 5e10, phase="b", label="b")
    took = {
        how: simulate(fabric, b.build(), "demand", timing=Timing(in_flight=how)).step_seconds
        for how in ("hold", "drain")
    }
    assert took["drain"] < 2 * took["hold"] < 25


def test_a_rewire_that_gains_nothing_by_the_ways_of_its_flows_is_not_taken():
    """The policy sees racks, and would bring more circuits to one that its four cards cannot
    fill.
    """
    fabric = rfabric(pods=2, tors=2, gpus=4, planes=4, delay="10ms", electrical="100Gbit/s")
    b = TraceBuilder(fabric.hosts)
    first = b.flows([8], [12], 1e9, phase="a", label="one")
    b.flows([15, 3, 7, 0], [11, 7, 3, 4], 5e9, after=first, phase="b", label="four")
    result = simulate(fabric, b.build(), "demand,granularity=per-phase")
    assert result.rewires == ()
    assert result.step_seconds == pytest.approx(transfer_seconds(6e9, RATE), rel=1e-3)


def test_a_phase_that_begins_as_a_slot_ends_gets_circuits():
    """The cycle of the first phase joins h1 with h2 and h3; the second joins others."""
    rotor = parse_fabric("rotor,tors=4,gpus=1,planes=1")
    b = TraceBuilder(rotor.hosts)
    b.flows([0, 0], [1, 2], [2e11, 2e11], phase="training", label="a")
    b.flows([1], [3], [1e9], start=1.0, phase="weight_sync", label="b")
    result = simulate(rotor, b.build(), "greedy,granularity=time-slotted,slot=1s")
    assert result.finish[2] < 6


def test_a_phase_whose_rest_waits_for_another_does_not_keep_circuits_from_it():
    """One circuit a server. Training has a row left that waits for generation, which has no way
    beside it: generation goes first, then training gets its circuit back.
    """
    fabric = parse_fabric("topoopt,servers=4,gpus=2,degree=1,optics=ocs,delay=1ms")
    b = TraceBuilder(fabric.hosts)
    answer = b.flows([5], [0], [5e9], start=10.0, phase="generation", label="a")
    b.flows([0], [6], [5e9], phase="training", label="b")
    b.flows([0], [6], [5e9], after=answer, phase="training", label="c")
    result = simulate(fabric, b.build(), "tree")
    dark, size = 1e-3 + Timing().control, transfer_seconds(5e9, RATE)
    assert result.finish[0] == pytest.approx(10.0 + dark + size, rel=1e-3)
    assert result.finish[2] == pytest.approx(result.finish[0] + dark + size, rel=1e-3)


def test_slots_come_to_every_pair_also_where_racks_have_many_partners():
    """One uplink and four partners each: more than slots look at, where all have some way."""
    rotor = parse_fabric("rotor,tors=6,gpus=1,planes=1")
    pairs = [(a, b) for a in (4, 5) for b in (0, 2, 3)] + [(5, 4)]
    trace = trace_of(*((a, b, 1e6) for a, b in pairs), hosts=6)
    result = simulate(rotor, trace, "bipartite,granularity=time-slotted,slot=1s")
    assert result.step_seconds < len(pairs) + 1


def test_slots_that_move_nothing_end_the_run():
    rotor = parse_fabric("rotor,tors=4,gpus=1,planes=1")
    # a mesh of one plane joins two racks each: of three pairs one has a way
    trace = trace_of(*((0, far, 1e9) for far in (1, 2, 3)), hosts=4)
    with pytest.raises(RunError, match="2 rows can never finish.*no path carries them"):
        simulate(rotor, trace, "static,granularity=time-slotted,slot=1s")


def test_slots_rest_while_nothing_is_sent_and_go_on_in_step_with_the_clock():
    rotor = parse_fabric("rotor,tors=4,gpus=1,planes=1")  # slots of 0.1 s, 20 us of dark between
    b = TraceBuilder(rotor.hosts)
    first = b.flows([0], [1], 1e9)
    b.flows([0], [3], 1e9, after=first, gap=1.0)
    result, size = simulate(rotor, b.build()), transfer_seconds(1e9, RATE)
    lit = 0.2 + rotor.reconfig_delay  # the round of the tournament in which h1 meets h2, then h4
    assert result.finish[0] == pytest.approx(lit + size, abs=1e-5)
    assert result.start[1] == pytest.approx(result.finish[0] + 1.0, abs=1e-5)
    assert [r.requested for r in result.rewires] == pytest.approx([0.1, 0.2, 1.3])
    assert result.finish[1] == pytest.approx(1.3 + rotor.reconfig_delay + size, abs=1e-5)


def test_no_path_at_all_is_refused_before_anything_moves():
    fabric = rfabric(pods=2, tors=2, gpus=1, electrical=0)
    flows = [(0, 1, 1e9), (0, 2, 1e9), (0, 3, 1e9)]
    with pytest.raises(RFabricError, match="disconnects"):
        simulate(fabric, trace_of(*flows, hosts=4), "demand")


def test_rows_that_can_never_finish_are_named():
    whole = fat_tree(pods=2, tors=1, gpus=1)
    split = replace(whole, links=tuple(k for k in whole.links if k.a.node not in ("a1", "a2")))
    with pytest.raises(RunError, match="1 rows can never finish, first row 0 .h1 -> h2.: no path"):
        simulate(split, trace_of((0, 1, 1e9), hosts=2))


def in_turns(fabric, times=4):
    """Steps whose three phases want other circuits each; what comes is the same step after step."""
    b, last = TraceBuilder(fabric.hosts), []
    for step in range(times):
        for phase, far in (("generation", 16), ("training", 32), ("weight_sync", 48)):
            work = b.compute(0, 0.01, after=last, step=step, phase=phase, label="work")
            to = [(i + far) % 64 for i in range(64)]
            sizes = [1e8 * (1 + i % 5) for i in range(64)]
            last = b.flows(range(64), to, sizes, after=[work], step=step, phase=phase)
    return b.build()


@pytest.mark.parametrize("routing", ["placed", "ecmp", "split"])
@pytest.mark.parametrize("policy", ["own", "greedy,granularity=per-phase"])
def test_what_is_foreseen_is_what_flows_ask_of_their_ways_then(policy, routing, monkeypatch):
    fabric, told = rfabric(electrical="100Gbit/s", delay="1ms"), Counter()
    kept = _World._prospect

    def prospect(world, scene, circuits):
        foreseen = kept(world, scene, circuits)
        anew = PairWays(fabric, world.pairs, circuits, world.routing)
        later = Demands(world.trace, fabric).prospect(scene, anew).later
        assert foreseen.later.alone.tolist() == later.alone.tolist()
        assert np.array_equal(foreseen.later.cables, later.cables)
        told.update((circuits, stage) for stage in scene.coming)
        return foreseen

    monkeypatch.setattr(_World, "_prospect", prospect)
    result = simulate(fabric, in_turns(fabric), policy, routing=routing)
    assert len(result.rewires) > 1 and max(told.values()) > 1


def test_same_input_same_bytes_out():
    fabric = rfabric()
    a, b = (simulate(fabric, steps(fabric), "phase") for _ in range(2))
    assert (
        a.finish.tobytes() == b.finish.tobytes()
        and a.link_bytes.tobytes() == b.link_bytes.tobytes()
    )
    assert a.rewires == b.rewires


def test_phase_times_add_up():
    fabric = fat_tree()
    result = simulate(fabric, steps(fabric))
    assert sum(p.seconds for p in result.phases) == pytest.approx(result.step_seconds)
    assert all(p.exposed == pytest.approx(p.comm) for p in result.phases)
    assert fidelity(result, result)["worst_error"] == 0.0


def late_beside_compute():
    """Weight sync begins 1 s late, for the flow of training before it, and computes 5 s beside it
    from the start on.
    """
    b = TraceBuilder(["h1", "h2", "h3", "h4"])
    sent = b.flows([0], [1], [5e10], phase="training", label="a")
    b.flows([1], [2], [5e9], after=sent, phase="weight_sync", label="b")
    b.compute(3, 5.0, phase="weight_sync", label="c")
    return b.build()


def test_what_is_exposed_is_what_a_phase_would_end_sooner_without_its_bytes():
    result = simulate(parse_fabric("ideal,gpus=4"), late_beside_compute())
    exposed = [phase.exposed for phase in result.phases]
    assert exposed == pytest.approx([1.0, 0.0], rel=1e-3)  # the sync ends with its computing
    b = TraceBuilder(["h1", "h2", "h3", "h4"])
    there = b.flows([0], [1], [5e10], phase="training", label="a")
    back = b.flows([1], [0], [1e11], after=there, phase="weight_sync", label="b")
    b.compute(0, 1.0, after=back, phase="training", label="c")
    result = simulate(parse_fabric("ideal,gpus=4"), b.build())
    # training's second row comes 1 s sooner without its first, weight sync's between them 2 s
    assert [p.exposed for p in result.phases] == pytest.approx([1.0, 2.0], rel=1e-3)
    assert [p.seconds for p in result.phases] == pytest.approx([4.0, 2.0], rel=1e-3)


def test_phases_that_come_in_turn_are_worked_out_at_once():
    result = simulate(fat_tree(), steps(fat_tree()))
    trace, seconds = result.trace, result.row_seconds
    assert trace.in_turn
    for key, end in ends_without(trace, seconds).items():
        rows, free = trace.rows(key), seconds.copy()
        free[rows] = 0.0
        assert end == pytest.approx(trace.times(free)[1][rows].max())


def test_no_more_is_exposed_than_flows_were_in_flight():
    result = simulate(parse_fabric("ideal,gpus=4"), late_beside_compute())
    assert result.check_floor() is result
    with pytest.raises(RunError, match=r"training/0 exposes 1.* were in flight for 0\.1"):
        replace(result, start=np.array([0.9, 1.0, 5.0])).check_floor()


def test_phases_that_overlap_expose_no_more_than_the_run():
    """Three phases of 1 s of bytes each, at once: each would end 1 s sooner, and so would all."""
    b = TraceBuilder([f"h{n}" for n in range(1, 7)])
    for phase, host in (("generation", 0), ("training", 2), ("weight_sync", 4)):
        b.flows([host], [host + 1], [5e10], phase=phase, label="a")
    result = simulate(parse_fabric("ideal,gpus=6"), b.build())
    assert [p.exposed for p in result.phases] == pytest.approx([1.0] * 3, rel=1e-3)
    assert result.exposed_seconds == pytest.approx(result.step_seconds)
    entry = run_summary(Run(result))
    assert exposed_of(entry) == result.exposed_seconds
    assert exposed_of({**entry, "exposed_s": 0.25}) == 0.25


def test_a_run_exposes_what_no_phase_does_alone():
    """Bytes of 1 s hide in their own phase, whose computing takes as long, but the next waits."""
    b = TraceBuilder(["h1", "h2", "h3"])
    sent = b.flows([0], [1], [5e10], phase="generation", label="a")
    b.compute(2, 1.1, phase="generation", label="b")
    b.compute(1, 1.0, after=sent, phase="training", label="c")
    result = simulate(parse_fabric("ideal,gpus=3"), b.build())
    assert [p.exposed for p in result.phases] == [0.0, 0.0]
    # the run would end with generation's own computing, at 1.1 s
    assert (result.step_seconds, result.exposed_seconds) == pytest.approx((2.0, 0.9), rel=1e-3)
    with pytest.raises(RunError, match=r"the run exposes 0\.9.* were in flight for 0\.1"):
        replace(result, start=np.array([0.9, 1.0, 1.0])).check_floor()


def test_union_of_intervals():
    assert union_seconds(
        np.array([0.0, 1.0, 5.0, 0.5]), np.array([2.0, 3.0, 6.0, 0.6])
    ) == pytest.approx(4.0)
    assert union_seconds(np.zeros(0), np.zeros(0)) == 0.0

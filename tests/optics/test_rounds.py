"""Rounds inside a collective, against closed forms and against one set of circuits; what is lit
before a job.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.control.schema import plan_request
from rfabric.emulate.live import Controller
from rfabric.emulate.world import emulatable
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric, rfabric
from rfabric.fabric.cabling import cabling_of
from rfabric.optics import Circuits, Demand, Timing, parse_policy
from rfabric.optics.planes import join, joinable, lights_alone, planes
from rfabric.optics.policies import CircuitPolicy, _partners
from rfabric.optics.rounds import decompositions, direct, joins
from rfabric.report.result import Scale
from rfabric.routing import routes_of
from rfabric.simulate.world import simulate
from rfabric.study.planning import stage_circuits
from rfabric.study.run import Case
from rfabric.trace import TraceBuilder, Traffic, routing_of, waves
from rfabric.trace.beforehand import first_circuits
from rfabric.units import transfer_seconds

RATE = 4e11
AT_ONCE = Timing(control=0.0, guard=0.0)
INTRA, COLLECTIVE, STATIC = (
    "demand,granularity=intra-collective",
    "demand,granularity=per-collective",
    "static",
)


def exchange(fabric, size, builder=None, **kind):
    """All-to-all of all hosts, `size` bytes from rack to rack, nothing inside a rack."""
    b, c = builder or TraceBuilder(fabric.hosts), cabling_of(fabric)
    src, dst = np.nonzero(c.host_rack[:, None] != c.host_rack)
    each = size / (len(fabric.hosts) / len(fabric.racks)) ** 2
    b.flows(src, dst, each, phase="training", label="all-to-all", **kind)
    return b


def test_rounds_that_are_the_same_are_proposed_once():
    """With one uplink a rack every matching is a round of its own: one way by the tournament, one
    by the solver, each already as even as can be.
    """
    fabric = rfabric(pods=2, tors=2, gpus=1, planes=1, electrical=0)
    wanted = Demand(fabric.racks, 1e9 * (1 - np.eye(4)))
    ways = parse_policy(INTRA, fabric).rounds(wanted, Circuits())
    assert list(map(len, ways)) == [3, 3]


@pytest.mark.parametrize(("racks", "uplinks"), [(4, 1), (6, 2), (8, 2), (8, 3), (16, 4)])
@pytest.mark.parametrize("delay", [0.0, 0.03])
def test_an_all_to_all_takes_its_rounds_and_the_turns_between(racks, uplinks, delay):
    fabric = rfabric(
        pods=2, tors=racks // 2, gpus=uplinks, planes=uplinks, electrical=0, delay=delay
    )
    rounds = -(-(racks - 1) // uplinks)
    result = simulate(fabric, exchange(fabric, 4e9).build(), INTRA, timing=AT_ONCE)
    most = rounds * transfer_seconds(4e9, RATE) + (rounds - 1) * delay
    # finer rounds come nearer to it where turns are free
    cards = (racks - 1) / uplinks * transfer_seconds(4e9, RATE)
    assert cards - 1e-9 <= result.step_seconds <= most + 1e-4
    if delay:
        assert result.step_seconds == pytest.approx(most, abs=1e-4)
        assert len(result.rewires) == rounds - 1  # the first is the mesh of the start
        assert all(
            r.exposed == pytest.approx(delay) and r.programmed == r.requested
            for r in result.rewires
        )


def test_racks_that_one_set_of_circuits_cuts_off_meet_in_rounds():
    fabric = rfabric(pods=2, tors=2, gpus=1, planes=1, electrical=0)
    trace = exchange(fabric, 4e9).build()
    with pytest.raises(RFabricError, match="disconnects"):
        simulate(fabric, trace, COLLECTIVE)
    assert np.isfinite(simulate(fabric, trace, INTRA).finish).all()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 5), st.floats(0, 0.1), st.floats(1e-4, 0.1), st.sampled_from([INTRA, COLLECTIVE])
)
def test_alternating_matchings_expose_what_computing_does_not_hide(turns, compute, delay, policy):
    fabric = rfabric(pods=1, tors=4, gpus=2, planes=1, electrical=0, delay=delay)
    b, last, size = TraceBuilder(fabric.hosts), [], 4e9
    pairs = {1: (1, 0, 3, 2), 0: (2, 3, 0, 1)}  # neither is what is lit at the start
    for i in range(turns):
        work = b.compute(0, compute, after=last, phase="training", label="compute")
        src, to = range(0, 8, 2), [2 * rack for rack in pairs[i % 2]]
        last = b.flows(src, to, size, after=[work], phase="training", label=f"matching {i % 2}")
    result = simulate(fabric, b.build(), policy, timing=AT_ONCE)
    exposed = turns * (max(0.0, delay - compute) + transfer_seconds(size, RATE))
    assert result.step_seconds - turns * compute == pytest.approx(exposed, abs=1e-4)


FABRICS = (
    "rfabric,pods=2,tors=3,gpus=2,planes=2",
    "opus,servers=5,gpus=2,reinit=0s",
    "mixnet,servers=4,gpus=4,reinit=0s",
)
FLOWS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 9), st.floats(1e7, 1e10)), min_size=1, max_size=30
)


def drawn(fabric, *collectives):
    """Flows among the first ten hosts, one list a collective: from whom, how far on, bytes."""
    b = TraceBuilder(fabric.hosts)
    for i, flows in enumerate(collectives):
        src, far, size = (np.array(column) for column in zip(*flows, strict=True))
        b.flows(src, (src + far) % 10, size.tolist(), phase="training", label=f"exchange {i}")
    return b.build()


@settings(max_examples=30, deadline=None)
@given(FLOWS, st.sampled_from(FABRICS))
def test_turns_that_cost_nothing_lose_nothing(flows, spec):
    fabric = parse_fabric(f"{spec},delay=0s")
    trace = drawn(fabric, flows)
    rounds, one = (
        simulate(fabric, trace, policy, timing=AT_ONCE) for policy in (INTRA, COLLECTIVE)
    )
    assert rounds.step_seconds <= one.step_seconds * (1 + 1e-6)


@settings(max_examples=30, deadline=None)
@given(FLOWS, st.sampled_from(FABRICS), st.sampled_from(["10us", "1ms", "10ms", "100ms"]))
def test_rounds_never_lose_to_leaving_circuits_alone(flows, spec, delay):
    fabric = parse_fabric(f"{spec},delay={delay}")
    trace = drawn(fabric, flows)
    rounds, alone = (simulate(fabric, trace, policy) for policy in (INTRA, STATIC))
    assert rounds.step_seconds <= alone.step_seconds * 1.01


@pytest.mark.parametrize("in_flight", ["hold", "drain", "drop"])
@pytest.mark.parametrize("late", [0.1, 0.25])
def test_a_stage_that_begins_while_rounds_are_on_is_served_and_all_bytes_arrive(in_flight, late):
    fabric = rfabric(pods=2, tors=4, gpus=2, planes=2, electrical=0, delay="1ms")
    b = exchange(fabric, 4e9)
    b.flows(range(4), range(12, 16), 4e9, start=late, phase="weight_sync", label="weights")
    trace = b.build()
    result = simulate(fabric, trace, INTRA, timing=Timing(in_flight=in_flight))
    assert any("round" in r.why for r in result.rewires)
    into = [2 * i + 1 for i, k in enumerate(fabric.links) if k.a.node.startswith("h")]
    assert result.link_bytes[into].sum() == pytest.approx(trace.size.sum(), rel=1e-9)
    for r in result.rewires:
        assert r.requested <= r.programmed <= r.dark_until <= r.usable
        assert r.hidden >= 0 and r.hidden + r.exposed == pytest.approx(r.usable - r.requested)


def test_others_in_flight_keep_their_circuits():
    """Racks 1 to 4 exchange in rounds; a long flow between racks 5 and 8 is neither moved nor
    held.
    """
    fabric = rfabric(pods=2, tors=4, gpus=2, planes=1, electrical=0, delay="1ms")
    alone = TraceBuilder(fabric.hosts)
    far = {"phase": "weight_sync", "label": "weights"}
    alone.flows([8], [14], 4e10, **far)
    b = TraceBuilder(fabric.hosts)
    b.flows([8], [14], 4e10, **far)
    racks = [(a, c) for a in range(4) for c in range(4) if a != c]
    b.flows(
        [2 * a for a, _ in racks],
        [2 * c for _, c in racks],
        4e9,
        start=0.1,
        phase="training",
        label="all-to-all",
    )
    with_rounds = simulate(fabric, b.build(), INTRA)
    assert sum("round" in r.why for r in with_rounds.rewires) >= 2
    assert with_rounds.finish[0] == pytest.approx(
        simulate(fabric, alone.build(), INTRA).finish[0], abs=1e-9
    )


SMALL = rfabric(pods=2, tors=3, gpus=2, planes=2, electrical=0)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(1, 1e12)), min_size=1, max_size=20
    )
)
def test_every_pair_meets_in_some_round_and_no_rack_has_more_circuits_than_uplinks(entries):
    sent = np.zeros((6, 6))
    for a, c, size in entries:
        sent[a, c] = size * (a != c)
    wanted = Demand(SMALL.racks, sent)
    for rounds in decompositions(SMALL, parse_policy(INTRA, SMALL), wanted, Circuits()):
        met = sum(joins(SMALL, circuits) for circuits in rounds.circuits)
        assert (met[sent > 0] > 0).all() and rounds.weight.any(axis=0).all()
        assert all(joins(SMALL, circuits).sum(axis=1).max() <= 2 for circuits in rounds.circuits)


BROUGHT = (
    "rfabric,pods=3,tors=3,gpus=2,planes=2",
    "mixnet,servers=8,gpus=4",
    "opus,servers=6,gpus=2",
    "topoopt,servers=24,gpus=2,degree=2,ocs_ports=16",
    "rotor,tors=6",
)


@pytest.mark.parametrize("spec", BROUGHT)
def test_racks_joined_are_those_that_light_paths_join(spec):
    """Counted port by port, from all light paths, and by who was to be joined."""
    fabric = parse_fabric(spec)
    rng = np.random.default_rng(0)
    racks, count = len(fabric.racks), len(planes(fabric))
    for _ in range(5):
        mates = np.full((count, racks), -1)
        for row in mates:
            a, b = rng.permutation(racks)[: racks // 2 * 2].reshape(2, -1)
            row[a], row[b] = b, a
        mates = joinable(fabric, mates)
        circuits = join(fabric, mates)
        src, dst, _ = direct(fabric, circuits)
        light = np.zeros((racks, racks), int)
        np.add.at(light, (src, dst), 1)
        np.testing.assert_array_equal(joins(fabric, circuits), light)
        np.testing.assert_array_equal(_partners(fabric, circuits), lights_alone(fabric, mates))
        plane, a = np.nonzero(lights_alone(fabric, mates) >= 0)
        np.testing.assert_array_equal(np.bincount(a, minlength=racks), light.sum(axis=1))
        assert mates.max() >= 0


def test_waves_are_counted_by_instant_and_by_what_follows_what():
    b = TraceBuilder(SMALL.hosts)
    first = b.flows([0, 1], [2, 3], 1e9, label="x")
    b.flows([4], [5], 1e9, start=1.0, label="x")
    b.flows([2], [0], 1e9, after=first, label="x")
    trace = b.build()
    assert [waves(trace, np.array(rows)) for rows in ([0, 1], [0, 1, 2], [0, 1, 2, 3])] == [1, 2, 3]


def test_rounds_are_neither_emulated_nor_planned():
    with pytest.raises(
        RFabricError, match="a share at a time and pause.*granularity=per-collective"
    ):
        emulatable(SMALL, INTRA)
    with pytest.raises(RFabricError, match="`rfabric simulate` plays rounds"):
        stage_circuits(Case(SMALL, INTRA), Traffic(exchange(SMALL, 4e9).build(), "mine", ()))


@settings(max_examples=25, deadline=None)
@given(FLOWS, FLOWS, st.sampled_from(["demand", "bvn", "greedy", "phase"]))
def test_one_shot_is_predicted_no_worse_than_the_mesh_of_the_start(first, second, name):
    fabric = parse_fabric("topoopt,servers=5,gpus=2")
    trace = drawn(fabric, first, second)
    routing = routing_of("placed", fabric, trace)
    mesh, chosen = (
        first_circuits(fabric, trace, parse_policy(f"{name}{when}", fabric), routing)
        for when in ("", ",granularity=one-shot")
    )
    assert _busiest(fabric, trace, chosen, routing) <= _busiest(fabric, trace, mesh, routing) * (
        1 + 1e-9
    )


def test_what_one_shot_chose_is_lit_before_an_emulation_without_a_wait():
    """The worker asks the controller for exactly these circuits, dark for no time, and commits."""
    fabric = parse_fabric("topoopt,servers=5,gpus=2")
    trace, done = exchange(fabric, 4e9).build(), []

    class Rest:
        def plan_circuits(self, circuits, **options):
            done.append(plan_request({"circuits": circuits.to_json(), **options}, fabric))
            return SimpleNamespace(rewire=True, epoch=7)

        def commit(self, epoch):
            done.append(epoch)

    policy = parse_policy("own", fabric)
    wanted = first_circuits(fabric, trace, policy, routing_of("placed", fabric, trace))
    Controller(Rest(), "own", Scale(), Timing()).before_the_job(wanted, trace.pairs())
    assert done[0].circuits == wanted and done[0].delay == 0.0 and done[1] == 7


def _busiest(fabric, trace, circuits, routing):
    """Seconds of the busiest link of each label, added up."""
    seconds = 0.0
    for rows in trace.communication().values():
        offsets, links = routes_of(fabric, circuits, routing).links_of(
            trace.src[rows].astype(int), trace.dst[rows].astype(int)
        )
        load = np.bincount(
            links, np.repeat(trace.size[rows], np.diff(offsets)), minlength=2 * len(fabric.links)
        )
        seconds += float(transfer_seconds(load, cabling_of(fabric).rate).max())
    return seconds


def test_one_shot_sees_the_collectives_that_the_sum_of_all_hides():
    """Servers exchange evenly, and in pairs more at another time: circuits for the pairs leave the
    exchange its share.
    """
    fabric = parse_fabric("topoopt,servers=6,gpus=3,degree=4")
    b, size = exchange(fabric, 4e9), 4e11
    other = [3 * (gpu // 3 ^ 1) + gpu % 3 for gpu in range(18)]
    b.flows(range(18), other, size, start=5.0, phase="weight_sync", label="weights")
    once, mesh = (simulate(fabric, b.build(), policy) for policy in ("own", STATIC))
    assert once.step_seconds < mesh.step_seconds and not once.rewires


@pytest.mark.parametrize(
    ("pods", "tors", "count", "slots", "often"),
    [(1, 6, 3, 5, 3), (2, 3, 5, 1, 1), (1, 4, 4, 3, 4), (8, 6, 8, 6, 1), (3, 3, 4, 9, 4)],
)
def test_slots_of_an_even_exchange_join_all_pairs_alike(pods, tors, count, slots, often):
    """Each pair `often`, where so many slots are not too many; else once, a few twice."""
    fabric = rfabric(pods=pods, tors=tors, gpus=count, planes=count)
    racks = pods * tors
    even = 1e9 * (1 - np.eye(racks))
    policy = parse_policy("demand,granularity=time-slotted", fabric)
    cycle = policy.cycle(Demand(fabric.racks, even), Circuits())
    joined = sum(joins(fabric, lit) for lit in cycle)[~np.eye(racks, dtype=bool)]
    assert len(cycle) == slots and joined.min() == often
    assert joined.max() == (often if slots != 6 else 2)
    even[0, 1] = even[1, 0] = 1.1e9  # no longer even: pairs by what they want
    uneven = policy.cycle(Demand(fabric.racks, even), Circuits())
    assert uneven != cycle and sum(joins(fabric, lit)[0, 1] for lit in uneven) >= 1


def test_slots_of_an_even_exchange_serve_it_no_later_than_matchings(monkeypatch):
    """Six racks on three planes: two rounds of five in every slot would be lit twice as long."""
    fabric = parse_fabric("rfabric,pods=1,tors=6,gpus=3,planes=3,delay=100us,electrical=1Gbit/s")
    trace = exchange(fabric, 9 * 2e9).build()
    policy = "demand,granularity=time-slotted,slot=10ms"
    even = simulate(fabric, trace, policy).step_seconds
    monkeypatch.setattr(CircuitPolicy, "_even_slots", lambda *_: [])
    assert even <= simulate(fabric, trace, policy).step_seconds

from dataclasses import replace

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.errors import RFabricError
from rfabric.fabric import Port, parse_fabric, rfabric
from rfabric.optics import (  # fmt: skip
    POLICIES,
    Circuit,
    Circuits,
    Decision,
    Demand,
    Rewire,
    Timing,
    changed_cables,
    clashes,
    intend,
    joined,
    light,
    optical_paths,
    parse_policy,
    planes,
)
from rfabric.optics.numbered import NumberedCircuits
from rfabric.optics.outlook import Begins, Outlook, Prospect, gain
from rfabric.optics.planner import STAY
from rfabric.optics.policies import drain_seconds, spelled
from rfabric.optics.rewiring import MOST_BACK, Rewiring
from rfabric.optics.solvers import Asked, best_matching, joined_parts, matching
from rfabric.optics.templates import isolated_pods, mesh, round_of, tree, turns
from rfabric.routing import Routes, unreachable
from rfabric.routing.lightpaths import ends_of, lights
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder

FABRIC = rfabric()


def demand(entries, fabric=FABRIC, **kind):
    matrix = np.zeros((len(fabric.racks),) * 2)
    for a, b, size in entries:
        matrix[fabric.rack_index[a], fabric.rack_index[b]] = size
    return Demand(fabric.racks, matrix, **kind)


def start(fabric=FABRIC):
    return parse_policy("static", fabric).decide(demand([], fabric), Circuits(), 0.0)


def test_a_port_in_two_circuits_is_refused_with_both():
    one, two = Circuit.parse("a1:3-a1:5"), Circuit.parse("a1:3-6")
    assert clashes([one, two]) == [(Port("a1", 3), one, two)]
    with pytest.raises(
        RFabricError, match=("port a1:3 is already in circuit a1:3-a1:5; tear it down")
    ):
        Circuits(frozenset({one, two}))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a1:3-a2:5", "one switch"),
        ("a1:3-a1:3", "different ports"),
        ("a1:x-a1:4", "not NODE:NUMBER"),
        ("a1", "NODE"),
    ],
)
def test_bad_circuits(text, why):
    with pytest.raises(RFabricError, match=why):
        Circuit.parse(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("t1:1-t1:2", "t1 is not an OCS"),
        ("a1:1-a1:99", "no cable at a1:99"),
        ("z1:1-z1:2", "z1 is not"),
    ],
)
def test_circuits_must_fit_the_fabric(text, why):
    with pytest.raises(RFabricError, match=why):
        Circuits.from_json([text]).check(FABRIC)


def test_a_circuit_listed_twice_is_refused():
    with pytest.raises(RFabricError, match="listed twice"):
        Circuits.from_json(["a1:1-a1:2", "a1:2-a1:1"])


def test_rewire_leaves_unchanged_circuits_alone():
    old, new = Circuits.from_json(["a1:1-2", "a1:3-4"]), Circuits.from_json(["a1:1-2", "a1:3-5"])
    rewire = Rewire.between(old, new)
    assert (rewire.down.to_json(), rewire.up.to_json()) == (["a1:3-a1:4"], ["a1:3-a1:5"])
    assert rewire.apply(old) == new and not Rewire.between(old, old)


def test_one_circuit_in_a_pod_three_between_pods():
    assert len(light(FABRIC, {0: [("t1", "t2")]})) == 1
    far = light(FABRIC, {0: [("t1", "t16")]})
    assert sorted({c.a.node for c in far}) == ["a1", "a13", "c1"]
    assert [(p.out.node, p.into.node) for p in optical_paths(FABRIC, far)] == [
        ("t1", "t16"),
        ("t16", "t1"),
    ]


def test_a_rack_cannot_be_joined_twice_in_a_plane():
    with pytest.raises(RFabricError, match="rack t1 has one uplink"):
        light(FABRIC, {0: [("t1", "t2"), ("t1", "t3")]})


@given(st.integers(0, 17))
def test_tournament_rounds_join_every_pair_once(n):
    racks = [f"t{i}" for i in range(n)]
    pairs = [frozenset(p) for t in range(turns(len(racks))) for p in round_of(racks, t)]
    assert len(pairs) == len(set(pairs)) == n * (n - 1) // 2


def test_isolated_pods_stay_isolated_and_tree_reaches_every_sink():
    pods = isolated_pods(FABRIC, 4)
    assert all(FABRIC.node[a].pod == FABRIC.node[b].pod for m in pods for a, b in m)
    sources, sinks = FABRIC.racks[:8], FABRIC.racks[8:]
    circuits = light(FABRIC, dict(enumerate(tree(sources, sinks[:4], sinks[4:], 4))))
    reached = {b for pair in joined(FABRIC, circuits) for b in pair}
    assert set(sinks) <= reached


@pytest.mark.parametrize(("parents", "children"), [(2, 4), (4, 4), (8, 4), (3, 8)])
def test_a_tree_leaves_no_leaf_out_when_planes_suffice(parents, children):
    relays, leaves = FABRIC.racks[:parents], FABRIC.racks[8 : 8 + children]
    down = tree([], relays, leaves, 8)[4:]
    assert {b for pairs in down for _, b in pairs} == set(leaves)


@pytest.mark.parametrize("count", range(1, 8))
def test_a_tree_feeds_relays_in_one_half_of_the_planes_and_leaves_in_the_other(count):
    """Of an odd number the relays have one more; without leaves they have all."""
    sources, relays, leaves = FABRIC.racks[:2], FABRIC.racks[4:6], FABRIC.racks[8:10]

    def planes_that_join(some, ends, others):
        return [any(a in ends and b in others for a, b in pairs) for pairs in some]

    both, upper = tree(sources, relays, leaves, count), tree(sources, relays, [], count)
    half = -(-count // 2)
    first = [True] * half + [False] * (count - half)
    assert planes_that_join(both, sources, relays) == first
    assert planes_that_join(both, relays, leaves) == [not joins for joins in first]
    assert planes_that_join(upper, sources, relays) == [True] * count


def test_the_tree_of_a_relayed_weight_sync_joins_those_who_talk():
    """Training racks feed the first generation pod, its racks feed the next: circuits on both
    levels, none across.
    """
    pod = [FABRIC.racks[i : i + 4] for i in range(0, 16, 4)]
    talk = [
        (a, b, 1e9)
        for src, dst in ((pod[0], pod[2]), (pod[2], pod[3]))
        for a, b in zip(src, dst, strict=True)
    ]
    lit = parse_policy("phase", FABRIC).decide(demand(talk, phase="weight_sync"), Circuits(), 0.0)
    pairs = set(joined(FABRIC, lit))
    for level in ((pod[0], pod[2]), (pod[2], pod[3])):
        reached = {b for b in level[1] if any(frozenset((a, b)) in pairs for a in level[0])}
        assert reached == set(level[1])


def test_demand_gives_a_lone_pair_every_plane():
    circuits = parse_policy("demand", FABRIC).decide(demand([("t1", "t9", 1e9)]), Circuits(), 0.0)
    assert joined(FABRIC, circuits) == {frozenset(("t1", "t9")): 4}


def test_demand_shares_planes_in_proportion():
    wanted = demand([("t1", "t2", 3e9), ("t1", "t3", 1e9)])
    count = joined(FABRIC, parse_policy("demand", FABRIC).decide(wanted, Circuits(), 0.0))
    assert count[frozenset(("t1", "t2"))] == 3 and count[frozenset(("t1", "t3"))] == 1


def test_demand_keeps_lit_circuits_that_are_not_in_the_way():
    before = start()
    after = parse_policy("demand", FABRIC).decide(demand([("t1", "t9", 1e9)]), before, 0.0)
    assert len(before.items & after.items) >= len(before) * 0.6


def test_demand_does_not_move_what_already_fits():
    wanted = demand([("t1", "t9", 1e9), ("t2", "t10", 1e9), ("t3", "t11", 5e8)])
    policy = parse_policy("demand", FABRIC)
    once = policy.decide(wanted, start(), 0.0)
    assert policy.decide(wanted, once, 1.0) == once


def test_a_rewire_that_takes_longer_than_it_saves_is_not_asked_for():
    policy = parse_policy("demand", FABRIC)
    small, large = (demand([("t1", "t2", size)]) for size in (2e8, 1e10))
    few, many = (intend(FABRIC, policy, wanted, start(), 0.0) for wanted in (small, large))
    assert (
        not few.rewire
        and few.why.startswith("predicted to end")
        and few.why.endswith("later: circuits stay")
    )
    assert many.rewire
    hidden = replace(small, lead=0.015)  # beside computing it costs nothing
    assert intend(FABRIC, policy, hidden, start(), 0.0).rewire


def test_drain_time_is_that_of_the_busiest_light_path():
    lit = light(FABRIC, {0: [("t1", "t2")], 1: [("t1", "t2")], 2: [("t2", "t3")]})
    direct = demand([("t1", "t2", 1e9)])
    assert drain_seconds(FABRIC, lit, direct) == pytest.approx(1e9 * 8 / 8e11)  # two circuits
    relayed = demand([("t1", "t3", 1e9), ("t2", "t3", 1e9)])
    # one circuit carries both
    assert drain_seconds(FABRIC, lit, relayed) == pytest.approx(2e9 * 8 / 4e11)
    thin = demand([("t5", "t6", 1e9)])
    assert drain_seconds(FABRIC, lit, thin) == pytest.approx(1e9 * 8 / 1e11)
    assert drain_seconds(rfabric(electrical=0), Circuits(), demand([("t1", "t2", 1.0)])) == float(
        "inf"
    )


def test_phase_policy_uses_the_template_of_the_phase():
    policy = parse_policy("phase", FABRIC)
    generation = policy.decide(demand([], phase="generation"), start(), 0.0)
    pods = {rack: FABRIC.node[rack].pod for rack in FABRIC.racks}
    assert all(len({pods[r] for r in pair}) == 1 for pair in joined(FABRIC, generation))
    training = policy.decide(
        demand([("t1", "t5", 1e9), ("t3", "t7", 1e9)], phase="training"), generation, 0.0
    )
    assert {frozenset(("t1", "t5")), frozenset(("t3", "t7"))} <= set(joined(FABRIC, training))


def test_window_rule_keeps_the_topology():
    wanted = demand([("t1", "t9", 1e11)], window=0.012)
    decision = intend(FABRIC, parse_policy("demand", FABRIC), wanted, start(), 0.0)
    assert not decision.rewire and decision.why == "window 12 ms is not above 16 ms: circuits stay"
    longer = demand([("t1", "t9", 1e11)], window=0.017)
    assert intend(FABRIC, parse_policy("demand", FABRIC), longer, start(), 0.0).rewire


def test_a_plan_that_disconnects_demand_is_refused():
    bare = rfabric(electrical=0)
    wanted = demand([("t1", "t9", 1e9)], bare)
    with pytest.raises(
        RFabricError,
        match=(
            r"disconnects 1 pairs with demand, first h5 -> h40; "
            r"give the ToRs an elect"
        ),
    ):
        intend(bare, parse_policy("demand", bare), wanted, Circuits(), 0.0, pairs=[("h5", "h40")])


def test_changed_cables_are_those_at_changed_ports():
    rewire = Rewire.between(Circuits(), light(FABRIC, {0: [("t1", "t2")]}))
    ends = {FABRIC.links[i].a.node for i in changed_cables(FABRIC, rewire)}
    assert ends == {"t1", "t2"}


@pytest.mark.parametrize("bad", [np.ones((2, 2)), -np.ones((16, 16)), np.full((16, 16), np.nan)])
def test_bad_demand(bad):
    with pytest.raises(RFabricError, match="demand must be 16 x 16"):
        Demand(FABRIC.racks, bad)


@pytest.mark.parametrize(
    ("fabric", "asked", "same"),
    [
        ("rfabric", "own", "demand"),
        ("rfabric", "own,granularity=per-phase", "demand,granularity=per-phase"),
        ("topoopt", "own", "demand,granularity=one-shot"),
        ("topoopt", "own,granularity=per-phase", "demand,granularity=per-phase"),
        ("rotor", "own,slot=50ms", "rotor,slot=50ms"),
    ],
)
def test_own_takes_the_settings_of_what_it_stands_for(fabric, asked, same):
    made = parse_fabric(fabric)
    assert spelled(asked, made) == same
    assert parse_policy(asked, made) == parse_policy(same, made)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("own,period=1s", "policy demand: 'period=1s' is not a setting; write KEY=VALUE with one"),
        ("own,granularity", "policy own: 'granularity' is not a setting; write KEY=VALUE with one"),
        ("own,slot=1s,slot=2s", "policy own: a setting stands twice, slot"),
    ],
)
def test_settings_that_own_cannot_have_are_named(asked, why):
    with pytest.raises(RFabricError, match=why):
        parse_policy(asked, FABRIC)


def test_unknown_policy_and_in_flight_name_the_choices():
    with pytest.raises(RFabricError, match="there are own, static, demand, phase"):
        parse_policy("best", FABRIC)
    with pytest.raises(RFabricError, match="hold, drain, drop"):
        Timing(in_flight="pray")


SMALL = rfabric(pods=2, tors=3, gpus=2, planes=3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(0, 1e12)), max_size=12),
    st.data(),
)
def test_any_demand_gives_valid_connected_circuits(entries, data):
    racks = SMALL.racks
    phase = data.draw(st.sampled_from(["", "generation", "training", "weight_sync"]))
    wanted = demand([(racks[a], racks[b], s) for a, b, s in entries if a != b], SMALL, phase=phase)
    for name in POLICIES:
        circuits = parse_policy(name, SMALL).decide(wanted, start(SMALL), 0.0).check(SMALL)
        assert not clashes(circuits)
        pairs = [(SMALL.hosts[0], h) for h in SMALL.hosts[1:]]
        assert not unreachable(Routes(SMALL, circuits), pairs)
        assert all(n <= len(planes(SMALL)) for n in joined(SMALL, circuits).values())


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(1, 1e12)), min_size=1, max_size=12
    )
)
def test_matchings_serve_the_heaviest_pair_first(entries):
    wanted = demand([(SMALL.racks[a], SMALL.racks[b], s) for a, b, s in entries if a != b], SMALL)
    both = np.maximum(wanted.bytes, wanted.bytes.T)
    if both.any():
        first = matching(wanted, SMALL)[0]
        weight = sum(both[SMALL.rack_index[a], SMALL.rack_index[b]] for a, b in first)
        assert weight >= both.max() * (1 - 1e-12)


@pytest.mark.parametrize("n", [2, 5, 8])
def test_mesh_gives_each_rack_one_partner_a_plane(n):
    for pairs in mesh([f"t{i}" for i in range(n)], 9):
        flat = [r for p in pairs for r in p]
        assert len(flat) == len(set(flat)) == n - n % 2


# --- what comes -----------------------------------------------------------------------------------


def begins(now=(0.0,), ahead=(0.0,), lead=(0.0,), follows=((0,),)):
    return Begins(*(np.array(some, dtype=float) for some in (now, ahead, lead)), follows)


def one_link(*seconds):
    """Stages that each send for so long on one directed link of their own, of one cable each."""
    return Outlook(np.kron(np.diag(seconds), [[1.0, 0.0]]), np.zeros(len(seconds)))


def prospects(now, later):
    """Of stages whose seconds on their cables are those: first what sends, then what comes."""
    every, n = one_link(*now, *later), len(now)
    return Prospect(
        Outlook(every.seconds[:n], every.least[:n]),
        lambda: Outlook(every.seconds[n:], every.least[n:]),
    )


def test_what_comes_begins_after_what_it_follows_or_at_an_instant_of_its_own():
    told = begins(ahead=(1.0, 0.5, 2.0), lead=(0.0, 0.25, 0.0), follows=((0,), (), (1,)))
    seconds = np.array([3.0, 1.0, 2.0])
    np.testing.assert_allclose(told.ends(np.array([4.0]), seconds), [8.0, 1.75, 12.0])
    np.testing.assert_allclose(told.ends(np.array([4.0]), seconds, 6.0), [9.0, 7.0, 13.0])


@given(st.floats(0, 200), st.floats(0, 200), st.floats(0, 200))
def test_a_dark_time_costs_what_of_it_is_left_as_what_comes_wants_to_send(dark, ahead, lead):
    before, after, told = (
        prospects([1e-6], [0.8]),
        prospects([1e-6], [0.4]),
        begins((0.0,), (ahead,), (lead,), ((),)),
    )
    touched, other = np.array([False, True]), np.array([True, False])
    better = min(0.4, max(dark - lead, 0.0))
    wait = max(dark - ahead - lead, 0.0)
    gained = gain(before, after, told, touched, dark)
    assert gained.seconds == pytest.approx(better - wait)
    assert gain(before, after, told, other, dark).later == pytest.approx(better)


def test_what_waits_for_several_begins_after_the_last_of_them():
    told = begins((0.0, 0.0), (1.0, 0.0), (0.0, 0.0), ((0, 1), (1, 2)))
    for now, ends in (((4.0, 2.0), [8.0, 9.0]), ((2.0, 9.0), [13.0, 14.0])):
        np.testing.assert_allclose(told.ends(np.array(now), np.array([3.0, 1.0])), ends)


def test_a_delay_is_worth_it_where_a_queue_behind_another_ends_sooner():
    """The first of a queue ends 5 s sooner, another 1 s later; the next of the queue waits for
    both, or for the other alone.
    """
    before, after = prospects([10.0, 2.0], [3.0]), prospects([5.0, 3.0], [3.0])
    untouched = np.zeros(3, bool)
    queue = gain(before, after, begins((0.0, 8.0), (0.0,), (0.0,), ((0, 1),)), untouched, 0.0)
    other = gain(before, after, begins((0.0, 8.0), (0.0,), (0.0,), ((1,),)), untouched, 0.0)
    assert queue.seconds == other.seconds == -1.0  # the other ends last
    queue = gain(before, after, begins((0.0, 0.0), (0.0,), (0.0,), ((0, 1),)), untouched, 0.0)
    other = gain(before, after, begins((0.0, 6.0), (0.0,), (0.0,), ((1,),)), untouched, 0.0)
    assert queue.seconds == 4.0 and other.seconds == -1.0


@given(st.floats(0, 4), st.floats(0.1, 5), st.floats(0.1, 5))
def test_stages_share_a_link_only_while_both_send(later, one, two):
    outlook = Outlook(np.array([[one, 0.0], [two, 0.0]]), np.zeros(2))
    apart, together = outlook.ends_from(np.array([0.0, later])), outlook.ends_from(np.zeros(2))
    assert (apart >= np.array([one, later + two]) * (1 - 1e-9)).all()
    assert (apart <= (together + np.array([0.0, later])) * (1 + 1e-9)).all()
    if later >= together[0]:
        np.testing.assert_allclose(apart, [one, later + two])
    np.testing.assert_array_equal(outlook.ends_from(np.full(2, later)), together + later)


@given(
    st.lists(st.floats(0.1, 9), min_size=6, max_size=6),
    st.lists(st.floats(0, 3), min_size=2, max_size=2),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.sampled_from([(), (0,)]),
    st.floats(0, 4),
    st.floats(-20, 20),
)
def test_who_asks_for_a_least_gain_gets_what_is_gained_where_it_is_that_much(
    seconds, leads, dark, follows, takes, least
):
    before, after = (prospects(s[:1], s[1:]) for s in (seconds[:3], seconds[3:]))
    told = begins((0.0,), leads, leads, (follows, (0, 1)))
    exact = gain(before, after, told, np.array(dark), takes)
    gained = gain(before, after, told, np.array(dark), takes, least)
    assert gained == exact or (exact.seconds < least and gained.seconds == -np.inf)


def test_what_comes_is_not_foretold_where_it_cannot_decide():
    def unasked():
        raise AssertionError("asked")

    before, after = (Prospect(one_link(seconds), unasked) for seconds in (5.0, 4.0))
    args = begins(), np.array([True]), 2.0
    # 2 s dark lose 1 s; what comes has 2 s at stake
    assert gain(before, after, *args, 1.5).seconds == -np.inf
    with pytest.raises(AssertionError, match="asked"):
        gain(before, after, *args, 0.5)


@pytest.mark.parametrize(
    "spec", ["rfabric", "mixnet", "opus", "rotor,tors=6", "topoopt,servers=24,gpus=1,ocs_ports=16"]
)
def test_ports_are_known_by_number_as_they_are_looked_up(spec):
    fabric = parse_fabric(spec)
    circuits = parse_policy("static", fabric).decide(Demand.none(fabric.racks), Circuits(), 0.0)
    known = ends_of(fabric, circuits)
    assert known is not None and known.shape == (2, len(circuits))
    np.testing.assert_array_equal(
        lights(fabric, circuits).cross, lights(fabric, list(circuits)).cross
    )


@given(first=st.integers(0, 1 << 20), second=st.integers(0, 1 << 20))
def test_numbered_circuits_are_what_circuits_are(first, second):
    static, idle = parse_policy("static", FABRIC), Demand.none(FABRIC.racks)
    mesh = static.decide(idle, Circuits(), 0.0)
    random = [np.random.default_rng(seed).random(len(mesh)) < 0.5 for seed in (first, second)]
    one, two = (NumberedCircuits(FABRIC, mesh.ends[::-1, mask]) for mask in random)
    plain, other = (Circuits(frozenset(some)) for some in (one, two))
    assert one == plain and plain == one and hash(one) == hash(plain) and len(one) == len(plain)
    assert (one == two) == (plain == other) and list(one) == list(plain)
    assert one.to_json() == plain.to_json() and one.of("a1") == plain.of("a1")
    for left, right in ((one, two), (one, other), (plain, two)):
        assert left.without(right) == plain.without(other)
        assert Rewire.between(left, right).apply(left) == other
    assert one.check(FABRIC) is one and one.check(rfabric()) == plain


def test_numbered_circuits_hold_no_port_twice():
    ends = parse_policy("static", FABRIC).decide(Demand.none(FABRIC.racks), Circuits(), 0.0).ends
    with pytest.raises(RFabricError, match="is already in circuit"):
        NumberedCircuits(FABRIC, np.array([ends[0, :2], ends[1, [0, 0]]]))


def test_what_follows_in_line_waits_for_a_dark_time_once():
    before, after = prospects([10.0], [10.0]), prospects([4.0], [4.0])
    in_line = gain(before, after, begins(), np.array([True, True]), 2.0)
    # a rewire of its own would cost the second 2 s
    assert in_line.seconds == pytest.approx((10.0 - (2.0 + 4.0)) + 2.0)
    beside = gain(before, after, begins(follows=((),)), np.array([True, True]), 2.0)
    assert beside.seconds == pytest.approx((10.0 - 6.0) + ((4.0 + 2.0) - (2.0 + 4.0)))


@pytest.mark.parametrize(("later", "seconds"), [(0.02, 5.0 - 0.02), (0.5, -0.5)])
def test_a_delay_of_the_last_counts_alone_unless_it_is_slight_beside_what_others_gain(
    later, seconds
):
    told = begins((0.0, 20.0), (), (), ())
    before, after = prospects([10.0, 0.1], []), prospects([5.0, 0.1 + later], [])
    assert gain(before, after, told, np.array([False, False]), 0.0).seconds == pytest.approx(
        seconds
    )


def small_then_large(fabric, src, dst):
    """A few bytes at once, and half a second later many between racks."""
    b = TraceBuilder(fabric.hosts)
    b.flows([src], [dst], 1000, phase="a", label="small")
    b.flows(range(4), range(16, 20), 20e9, start=0.5, phase="b", label="large")
    return b.build()


TEMPLATES_AND_SOLVERS = pytest.mark.parametrize("policy", ["phase", "tree", "mesh", "bvn"])


@pytest.mark.parametrize("first", [(0, 16), (0, 1)], ids=["between racks", "in a rack"])
@TEMPLATES_AND_SOLVERS
def test_circuits_are_not_lit_ahead_for_what_they_would_keep_waiting(first, policy):
    fabric = parse_fabric("rfabric,delay=2min")
    trace = small_then_large(fabric, *first)
    assert (
        simulate(fabric, trace, policy).step_seconds
        == simulate(fabric, trace, "static").step_seconds
    )


@TEMPLATES_AND_SOLVERS
def test_circuits_are_lit_ahead_for_what_comes_later_than_the_dark_time(policy):
    fabric = parse_fabric("rfabric,delay=10ms")
    trace = small_then_large(fabric, 0, 1)
    rewired = simulate(fabric, trace, policy)
    assert rewired.rewires[0].usable < 0.5
    assert rewired.step_seconds < simulate(fabric, trace, "static").step_seconds


# --- the contract ---------------------------------------------------------------------------------


def test_who_has_no_way_asks_again_once_another_has_ended():
    contract, finish = Rewiring(FABRIC, Timing(), start()), np.full(4, np.inf)
    contract.begin("first", np.array([0, 1]), 0.0)
    contract.stay()
    contract.begin("second", np.array([2, 3]), 0.5)
    contract.wait()
    contract.ask_again(finish)
    assert contract.asking == ()
    finish[:2] = 1.0
    assert list(contract.open(finish)) == ["second"]  # whoever looks before changes nothing
    contract.ask_again(finish)
    assert contract.asking == ("second",) and not contract.blocked


def test_who_has_no_way_goes_first_once_for_each_set_of_circuits_where_nothing_moves():
    contract, finish = Rewiring(FABRIC, Timing(), start()), np.full(4, np.inf)
    contract.begin("first", np.array([0, 1]), 0.0)
    contract.begin("second", np.array([2, 3]), 0.5)
    contract.wait()
    assert not contract.unblock(np.array([7]))  # of no stage
    for answered in (contract.stay, contract.wait):
        assert contract.unblock(np.array([1, 2])) and contract.asking == ("first",)
        assert contract.blocked == ["second"]
        assert {s: rows.tolist() for s, rows in contract.seen(finish).items()} == {"first": [1]}
        answered()
        assert list(contract.seen(finish)) == ["first", "second"]
        assert not contract.unblock(np.array([1, 2])) and not contract.asking  # in vain
        contract.take(Decision(STAY, "on", start()), 1.0, ("other",))
        contract.done(1.1, 1.2, 1.3, np.zeros(4))


def test_circuits_to_return_to_are_the_last_few_and_those_of_the_start():
    contract = Rewiring(FABRIC, Timing(), start())
    once = Demand(FABRIC.racks, np.zeros((16, 16)))
    cycle = list(dict.fromkeys(parse_policy("rotor", FABRIC).cycle(once, Circuits())))
    every = [*cycle[:2], Circuits(), Circuits(frozenset(cycle[0].ordered[:3])), cycle[0]]
    every += [Circuits(frozenset(cycle[1].ordered[:n])) for n in (1, 2)]
    for i, wanted in enumerate(every):
        contract.take(Decision(Rewire.between(contract.circuits, wanted), "on", wanted), float(i))
        contract.done(i + 0.1, i + 0.2, i + 0.3, np.zeros(1))
        last = [lit for lit in dict.fromkeys([*every[:i][::-1], start()]) if lit != wanted]
        beyond = [start()] if start() in last[MOST_BACK:] else []
        assert contract.back == (*last[:MOST_BACK], *beyond)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 30), st.integers(0, 2**32 - 1))
def test_a_matching_found_part_by_part_weighs_as_much_as_that_of_the_whole(racks, seed):
    rng = np.random.default_rng(seed)
    a, b = np.triu_indices(racks, 1)
    some = rng.random(len(a)) < 1.5 / racks  # many parts, some alike
    weight = rng.integers(1, 4, some.sum()).astype(float)
    thin, region = np.zeros(racks), np.zeros((1, racks), np.int64)
    edges = Asked(tuple(map(str, range(racks))), region, 1.0, thin, a[some], b[some], weight)
    best = best_matching(edges, np.arange(some.sum()), weight)
    ends = np.concatenate((edges.rows[best], edges.columns[best]))
    assert len(set(ends.tolist())) == len(ends) and (np.diff(best) > 0).all()
    graph = networkx.Graph()
    graph.add_weighted_edges_from(
        zip(edges.rows.tolist(), edges.columns.tolist(), weight.tolist(), strict=True)
    )
    whole = networkx.max_weight_matching(graph)
    assert weight[best].sum() == sum(graph.edges[pair]["weight"] for pair in whole)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), st.integers(0, 80), st.integers(0, 2**32 - 1))
def test_racks_lie_in_one_part_where_pairs_join_them(racks, pairs, seed):
    rows, columns = np.random.default_rng(seed).integers(0, racks, (2, pairs))
    graph = networkx.Graph(zip(rows.tolist(), columns.tolist(), strict=True))
    graph.add_nodes_from(range(racks))
    first = {rack: min(part) for part in networkx.connected_components(graph) for rack in part}
    assert joined_parts(racks, rows, columns).tolist() == [first[rack] for rack in range(racks)]

"""Which circuits are chosen, by relations: templates against what is sent, solvers against demands
made of matchings, and policies of others.
"""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from few_racks import mates_of
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.errors import RFabricError
from rfabric.fabric import Fabric, Link, Node, Port, parse_fabric, rfabric
from rfabric.optics import (
    Circuit,
    Circuits,
    Decision,
    Demand,
    Rewire,
    RewireRecord,
    Timing,
    light,
    outlook,
    parse_policy,
    planes,
    policies,
    regions,
)
from rfabric.optics import joined as circuits_of
from rfabric.optics.bound import Program, bound
from rfabric.optics.check import faults
from rfabric.optics.cores import cores_of
from rfabric.optics.guarded import check_policy
from rfabric.optics.outlook import Load, _ask
from rfabric.optics.planes import join, region_table, uplinks
from rfabric.optics.policies import CircuitPolicy, _best_rounds, _partners, drain_seconds
from rfabric.optics.rewiring import MOST_BACK, Rewiring
from rfabric.optics.rounds import direct, joins
from rfabric.optics.solvers import SOLVERS, _heaviest, bridged, thin_rates
from rfabric.optics.templates import meeting, mesh, round_of, tree, turns
from rfabric.routing.schemes import Routing
from rfabric.units import transfer_seconds

RATE = 4e11
SIX = rfabric(pods=1, tors=6, gpus=3, planes=3, electrical=0)


def demand_of(fabric: Fabric, pairs: dict[tuple[str, str], float], phase: str = "") -> Demand:
    sent = np.zeros((len(fabric.racks),) * 2)
    for (a, b), size in pairs.items():
        sent[fabric.rack_index[a], fabric.rack_index[b]] += size
    return Demand(fabric.racks, sent, phase=phase)


def joined(fabric: Fabric, matchings) -> Counter:
    """How many planes join each two racks."""
    return Counter(
        tuple(sorted(fabric.rack_index[rack] for rack in pair))
        for some in matchings
        for pair in some
    )


# --- templates ------------------------------------------------------------------------------------


def test_a_mesh_takes_the_first_rounds_whatever_is_sent_and_rounds_those_that_carry_most():
    """Six racks meet in five rounds, of which three planes light three. What is sent in the last
    two rounds alone finds no circuit in the mesh.
    """
    last = {pair: 1e9 for turn in (3, 4) for pair in round_of(list(SIX.racks), turn)}
    even = {(a, b): 1e9 for a in SIX.racks for b in SIX.racks if a != b}
    policy = parse_policy("mesh", SIX)
    first = light(SIX, dict(enumerate(mesh(list(SIX.racks), 3))))
    for pairs in (last, even):
        demand = demand_of(SIX, pairs)
        assert set(policy.decide(demand, Circuits(), 0.0)) == set(first)
        best = _best_rounds(demand, list(SIX.racks), 3)
        ours = light(SIX, dict(enumerate(best)))
        assert drain_seconds(SIX, ours, demand) <= drain_seconds(SIX, first, demand)
    demand = demand_of(SIX, last)
    assert best and joined(SIX, _best_rounds(demand, list(SIX.racks), 2)) == joined(SIX, [last])
    assert not np.isfinite(
        drain_seconds(SIX, light(SIX, {0: list(last)[:3]}), demand_of(SIX, even))
    )


@given(st.lists(st.integers(0, 9), min_size=30, max_size=30), st.integers(1, 8))
def test_no_other_rounds_carry_more_and_none_comes_again_too_soon(sizes, count):
    racks = list(SIX.racks)
    pairs = dict(
        zip(((a, b) for a in racks for b in racks if a != b), map(float, sizes), strict=True)
    )
    demand = demand_of(SIX, pairs)

    def carried(matching) -> float:
        return sum(pairs[a, b] + pairs[b, a] for a, b in matching)

    every = sorted((carried(round_of(racks, i)) for i in range(turns(6))), reverse=True)
    chosen = [carried(matching) for matching in _best_rounds(demand, racks, count)]
    assert chosen == [every[i % len(every)] for i in range(count)]


@given(st.integers(2, 33))
def test_two_racks_meet_in_the_round_and_pair_that_a_table_of_all_rounds_gives(count):
    racks = list(range(count))
    table = {
        frozenset(pair): (turn, seat)
        for turn in range(turns(count))
        for seat, pair in enumerate(round_of([*racks, *[-1] * (count % 2)], turn))
    }
    one, other = np.nonzero(~np.eye(count, dtype=bool))
    turn, seat = meeting(count, one, other)
    for a, b, *where in zip(*(column.tolist() for column in (one, other, turn, seat)), strict=True):
        assert table[frozenset((a, b))] == tuple(where)


def test_a_round_of_nobody_is_empty():
    assert _best_rounds(demand_of(SIX, {}), [], 3) == [[], [], []]


@pytest.mark.parametrize("name", ["bipartite", "phase"])
def test_racks_of_a_generation_that_answer_one_another_have_each_other_on_every_plane(name):
    """t1 and t4 answer one another, and t2 and t5: two groups, three circuits each."""
    talk = {("t1", "t4"): 2e9, ("t4", "t1"): 1e9, ("t2", "t5"): 1e9, ("t5", "t2"): 1e9}
    policy = parse_policy(name, SIX)
    lit = policy.decide(demand_of(SIX, talk, "generation"), Circuits(), 0.0)
    assert circuits_of(SIX, lit) == {frozenset(("t1", "t4")): 3, frozenset(("t2", "t5")): 3}


@pytest.mark.parametrize("name", ["bipartite", "phase", "demand"])
def test_what_stays_in_a_rack_changes_nothing_of_who_answers_whom(name):
    talk = {pair: 1e9 for a, b in (("t1", "t4"), ("t2", "t5")) for pair in ((a, b), (b, a))}
    inside = {(rack, rack): 9e9 for pair in talk for rack in pair}
    alone, beside = (
        parse_policy(name, SIX).decide(demand_of(SIX, some, "generation"), Circuits(), 0.0)
        for some in (talk, talk | inside)
    )
    assert alone and beside == alone


def test_outside_a_generation_senders_meet_each_receiver_in_turn():
    one_way = {("t1", "t4"): 1e9, ("t2", "t5"): 1e9}
    policy = parse_policy("bipartite", SIX)
    for phase in ("generation", "training"):
        lit = circuits_of(SIX, policy.decide(demand_of(SIX, one_way, phase), Circuits(), 0.0))
        pairs = {("t1", "t4"): 2, ("t2", "t5"): 2, ("t1", "t5"): 1, ("t2", "t4"): 1}
        assert lit == {frozenset(pair): n for pair, n in pairs.items()}
    both = {pair: 1e9 for a, b in one_way for pair in ((a, b), (b, a))}
    rounds = policy.decide(demand_of(SIX, both, "training"), Circuits(), 0.0)
    four = ["t1", "t2", "t4", "t5"]
    wanted = joined(SIX, _best_rounds(demand_of(SIX, both), four, 3))
    names = {frozenset(SIX.racks[i] for i in pair): n for pair, n in wanted.items()}
    assert circuits_of(SIX, rounds) == names


@pytest.mark.parametrize("seed", range(6))
def test_a_phase_is_sent_as_soon_as_by_its_template_at_least(seed):
    """Two racks send to two others, these to the last two: for training the rounds that carry most
    are often the soonest.
    """
    fabric = rfabric(pods=2, tors=3, gpus=2, planes=2, electrical=0)
    sent, random = np.zeros((6, 6)), np.random.default_rng(seed)
    sent[:2, 2:4], sent[2:4, 4:] = (1e10 * random.integers(1, 4, (2, 2)) for _ in range(2))
    for phase in ("training", "weight_sync"):
        wanted = Demand(fabric.racks, sent, phase=phase)
        template = parse_policy("tree", fabric).decide(wanted, Circuits(), 0.0)
        if phase == "training":
            rounds = mates_of(fabric, _best_rounds(wanted, list(fabric.racks), 2))
            template = join(fabric, bridged(fabric, rounds, wanted))
        lit = parse_policy("phase", fabric).decide(wanted, Circuits(), 0.0)
        soonest = drain_seconds(fabric, template, wanted)
        assert drain_seconds(fabric, lit, wanted) <= soonest * (1 + 1e-9)


def test_a_cable_from_rack_to_rack_is_no_circuit():
    """Two racks with a cable between them and an uplink each."""
    nodes = [Node(f"t{i}", "eps", "edge", dpid=i) for i in (1, 2)]
    nodes += [Node(f"h{i}", "host", "host") for i in (1, 2)]
    nodes.append(Node("a1", "ocs", "aggregation", dpid=3, plane=0))
    links = [Link(Port(f"t{i}", 1), Port(f"h{i}", 1), RATE) for i in (1, 2)]
    links += [Link(Port("t1", 2), Port("t2", 2), RATE)]
    links += [Link(Port(f"t{i}", 3), Port("a1", i), RATE) for i in (1, 2)]
    fabric = Fabric("cabled", nodes, links)
    assert not joins(fabric, Circuits()).any() and (_partners(fabric, Circuits()) == -1).all()
    lit = light(fabric, {0: [("t1", "t2")]})
    assert set(lit) == {Circuit.parse("a1:1-2")}
    assert joins(fabric, lit).tolist() == [[0, 1], [1, 0]]
    src, dst, _ = direct(fabric, lit)
    assert sorted(zip(src.tolist(), dst.tolist(), strict=True)) == [(0, 1), (1, 0)]
    assert _partners(fabric, lit).tolist() == [[1, 0]]


def test_a_rack_without_an_uplink_in_a_plane_has_none_in_its_tables():
    """t1 has an uplink in planes 0 and 1, t2 in plane 0 alone; no OCS leads on to a core."""
    nodes = [Node(f"t{i}", "eps", "edge", dpid=i) for i in (1, 2)]
    nodes += [Node(f"h{i}", "host", "host") for i in (1, 2)]
    nodes += [Node(f"a{i}", "ocs", "aggregation", dpid=2 + i, plane=i - 1) for i in (1, 2)]
    links = [Link(Port(f"t{i}", 1), Port(f"h{i}", 1), RATE) for i in (1, 2)]
    links += [Link(Port(f"t{i}", 2), Port("a1", i), RATE) for i in (1, 2)]
    links.append(Link(Port("t1", 3), Port("a2", 1), RATE))
    fabric = Fabric("uneven", nodes, links)
    both, one = uplinks(fabric)[0], uplinks(fabric)[1]
    assert both.racks.tolist() == [0, 1] and (both.port >= 0).all()
    assert one.racks.tolist() == [0] and one.port[0] >= 0 and one.port[1] == -1
    assert both.above.tolist() == one.above.tolist() == [-1, -1]
    here, there = region_table(fabric).tolist()
    assert here[0] == here[1] >= 0 and there[0] >= 0 and there[1] == -1
    with pytest.raises(RFabricError, match="plane 1: rack t2 has no uplink to an OCS"):
        light(fabric, {1: [("t1", "t2")]})
    with pytest.raises(RFabricError, match="plane 2: rack t1 has no uplink to an OCS"):
        light(fabric, {2: [("t1", "t2")]})
    assert light(fabric, {1: []}) == Circuits()


def test_racks_meet_in_the_core_in_whatever_order_cables_are_listed():
    """Two pods of a rack each; the cables to the core stand first."""
    nodes = [Node(f"t{i}", "eps", "edge", dpid=i, pod=i - 1) for i in (1, 2)]
    nodes += [Node(f"h{i}", "host", "host", pod=i - 1) for i in (1, 2)]
    nodes += [Node(f"a{i}", "ocs", "aggregation", dpid=2 + i, plane=0, pod=i - 1) for i in (1, 2)]
    nodes.append(Node("c1", "ocs", "core", dpid=5, plane=0))
    links = [Link(Port(f"a{i}", 2), Port("c1", i), RATE) for i in (1, 2)]
    links += [Link(Port(f"t{i}", 1), Port(f"h{i}", 1), RATE) for i in (1, 2)]
    links += [Link(Port(f"t{i}", 2), Port(f"a{i}", 1), RATE) for i in (1, 2)]
    for some in (links, links[::-1]):
        fabric = Fabric("two pods", nodes, some)
        assert len(set(regions(fabric)[0].values())) == 1
        lit = light(fabric, {0: [("t1", "t2")]})
        assert set(lit) == {Circuit.parse(text) for text in ("a1:1-2", "a2:1-2", "c1:1-2")}


@pytest.mark.parametrize("core", [-1, 1, 7])
def test_a_core_may_stand_in_any_plane_or_in_none_and_serve_several(core):
    """Two pods of a rack each, two planes of uplinks, one core OCS for both."""
    nodes = [Node(f"t{i}", "eps", "edge", dpid=i, pod=i - 1) for i in (1, 2)]
    nodes += [Node(f"h{i}", "host", "host", pod=i - 1) for i in (1, 2)]
    nodes += [
        Node(f"a{i}", "ocs", "aggregation", dpid=2 + i, plane=(i - 1) // 2, pod=(i - 1) % 2)
        for i in (1, 2, 3, 4)
    ]
    nodes.append(Node("c1", "ocs", "core", dpid=9, plane=core))
    links = [Link(Port(f"t{i}", 1), Port(f"h{i}", 1), RATE) for i in (1, 2)]
    for i in (1, 2, 3, 4):
        links.append(Link(Port(f"t{2 - i % 2}", 2 + (i - 1) // 2), Port(f"a{i}", 1), RATE))
        links.append(Link(Port(f"a{i}", 2), Port("c1", i), RATE))
    fabric = Fabric("one core", nodes, links)
    assert planes(fabric) == [0, 1] and region_table(fabric).tolist() == [[0, 0], [0, 0]]
    one = {"a1:1-2", "a2:1-2", "c1:1-2"}
    assert set(light(fabric, {0: [("t1", "t2")]})) == {Circuit.parse(text) for text in one}
    wanted = demand_of(fabric, {("t1", "t2"): 1e9})
    for name in ("static", "demand", "rotor", "mesh"):
        lit = parse_policy(name, fabric).decide(wanted, Circuits(), 0.0)
        assert circuits_of(fabric, lit) == {frozenset(("t1", "t2")): 2}
    assert bound(fabric, wanted).seconds == pytest.approx(transfer_seconds(1e9, 2 * RATE))


# --- cores ----------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([(4, 2), (8, 2), (6, 3), (4, 1)]),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=30),
)
def test_no_pod_has_more_pairs_at_a_core_than_cables_to_it(shape, drawn):
    cables, cores = shape
    used, pairs = Counter(), []
    for a, b in drawn:
        if a != b and max(used[a], used[b]) < cables:
            used.update((a, b))
            pairs.append((a, b))
    chosen = cores_of(np.array(pairs, int).reshape(-1, 2).T, cables, cores).tolist()
    assert len(chosen) == len(pairs) and set(chosen) <= set(range(cores))
    there = Counter((pod, core) for pair, core in zip(pairs, chosen, strict=True) for pod in pair)
    assert max(there.values(), default=0) <= cables // cores


# --- solvers --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(1, 16)), st.sets(st.integers(0, 14), max_size=12), st.integers(1, 5))
def test_a_pair_is_looked_at_where_it_is_among_the_heaviest_of_one_of_its_racks(
    weights, left_out, most
):
    """Six racks, up to 15 pairs, no two of one weight."""
    pairs = [pair for i, pair in enumerate(combinations(range(6), 2)) if i not in left_out]
    weight = dict(zip(pairs, map(float, weights), strict=False))
    heaviest = {
        pair
        for rack in range(6)
        for pair in sorted((p for p in pairs if rack in p), key=weight.get, reverse=True)[:most]
    }
    rows, columns = np.array(pairs).reshape(-1, 2).T
    some = _heaviest(rows, columns, np.array([weight[p] for p in pairs]), 6, most)
    assert {pair for pair, taken in zip(pairs, some, strict=True) if taken} == heaviest


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_solvers_join_racks_that_a_plane_can_join_and_no_others(solver):
    """MixNet's OCSes join the racks of a region each: what goes to another region finds none."""
    fabric = parse_fabric("mixnet")
    region = [regions(fabric)[plane] for plane in planes(fabric)]
    everybody = {(a, b): 1e9 for a in fabric.racks for b in fabric.racks if a != b}
    matchings = SOLVERS[solver](demand_of(fabric, everybody), fabric)
    for here, pairs in zip(region, matchings, strict=True):
        assert pairs and all(here[a] == here[b] for a, b in pairs)
    assert light(fabric, dict(zip(planes(fabric), matchings, strict=True)))
    apart = {(a, b): 1e9 for a, b in everybody if all(here[a] != here[b] for here in region)}
    assert apart and not any(SOLVERS[solver](demand_of(fabric, apart), fabric))


def test_uplinks_left_over_go_where_a_circuit_carries_most():
    """A hub of three equal partners: five uplinks are one each, and one more for two of them; of
    unequal ones the heaviest gets the first, and the second as long as half of it is the most.
    """
    for many, sizes, counts in (
        (4, (4, 4, 4), [1, 1, 2]), (5, (4, 4, 4), [1, 2, 2]), (6, (4, 4, 4), [2, 2, 2]),
    ):  # fmt: skip
        fabric = rfabric(pods=1, tors=4, gpus=1, planes=many, electrical=0)
        hub = {("t1", f"t{i}"): 1e11 * size for i, size in zip((2, 3, 4), sizes, strict=True)}
        wanted = joined(fabric, SOLVERS["bvn"](demand_of(fabric, hub), fabric))
        assert sorted(wanted.values()) == counts


@pytest.mark.parametrize("heavy", [1.2, 2.75, 4.5, 10])
@pytest.mark.parametrize("many", [4, 6, 7])
def test_uplinks_left_over_are_shared_as_seats_are(many, heavy):
    """t1 and t2 need every plane for the least time; t3 serves t4 and t5 with one circuit each, and
    each more goes to who has most bytes a circuit with it (D'Hondt).
    """
    fabric = rfabric(pods=1, tors=5, gpus=1, planes=many, electrical=0)
    sizes = {("t3", "t4"): heavy * 1e9, ("t3", "t5"): 1e9}
    wanted = demand_of(fabric, sizes | {("t1", "t2"): 1e12})
    seats = dict.fromkeys(sizes, 1)
    for _ in range(many - 2):
        seats[max(sizes, key=lambda pair: sizes[pair] / (seats[pair] + 1))] += 1
    counts = circuits_of(fabric, light(fabric, dict(enumerate(SOLVERS["bvn"](wanted, fabric)))))
    assert counts == {frozenset(pair): n for pair, n in (*seats.items(), (("t1", "t2"), many))}


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("solver", ["matching", "bvn"])
def test_what_is_made_of_as_many_matchings_as_planes_gets_a_circuit_for_each(solver, count):
    """A plane carries a matching: a demand that is the sum of some has no better circuits. Plane by
    plane they are found while planes are few.
    """
    fabric = rfabric(pods=1, tors=6, gpus=count, planes=count, electrical=0)
    for seed in range(8):
        random, sent, wanted = np.random.default_rng(seed), np.zeros((6, 6)), Counter()
        for _ in range(count):
            for a, b in random.permutation(6).reshape(3, 2).tolist():
                sent[a, b] += 1e9
                wanted[min(a, b), max(a, b)] += 1
        demand = Demand(fabric.racks, sent)
        assert joined(fabric, SOLVERS[solver](demand, fabric)) == wanted


def test_what_leaves_a_rack_without_a_circuit_counts_every_neighbour_once():
    """Three racks in a row, each with a host: cables to hosts count for nothing."""
    nodes = [Node(f"t{i}", "eps", "edge", dpid=i) for i in (1, 2, 3)]
    nodes += [Node(f"h{i}", "host", "host") for i in (1, 2, 3)]
    links = [Link(Port(f"t{i}", 1), Port(f"h{i}", 1), 7e11) for i in (1, 2, 3)]
    links += [Link(Port(f"t{i}", 2), Port(f"t{i + 1}", 3), i * 1e11) for i in (1, 2)]
    assert thin_rates(Fabric("row", nodes, links)).tolist() == [1e11, 3e11, 2e11]


# --- policies -------------------------------------------------------------------------------------


def test_circuits_stay_where_others_would_be_as_good():
    """t1 sends t2 twice what t3 sends t4: two circuits and one take the same time. A second one for
    t3 and t4 would shorten nothing.
    """
    fabric = rfabric(pods=1, tors=4, gpus=2, planes=2, electrical=0)
    wanted = demand_of(fabric, {("t1", "t2"): 2e9, ("t3", "t4"): 1e9})
    lit = light(fabric, {0: [("t1", "t2"), ("t3", "t4")], 1: [("t1", "t2")]})
    policy = parse_policy("demand", fabric)
    assert policy.decide(wanted, lit, 0.0) == lit
    assert all(len(some) == 4 for some in policy.options(wanted, lit))
    slow = light(fabric, {0: [("t1", "t2"), ("t3", "t4")]})
    assert len(policy.decide(wanted, slow, 0.0)) == 4
    one = transfer_seconds(2e9, RATE)
    for floor, stays in ((0.6 * one, False), (0.99 * one, False), (one, True), (2 * one, True)):
        limited = replace(wanted, floor=floor)  # by cards
        assert (policy.decide(limited, slow, 0.0) == slow) == stays


@pytest.mark.parametrize(("limit", "whole"), [(8, True), (7, False)])
def test_slots_come_to_every_pair_up_to_so_many_racks(limit, whole, monkeypatch):
    """One uplink, no cables: what is sent among the first six hides the little that goes to the
    last two, whom a rack's few heaviest partners leave out.
    """
    fabric = rfabric(pods=1, tors=8, gpus=1, planes=1, electrical=0)
    racks = fabric.racks
    sizes = dict.fromkeys(combinations(racks[:6], 2), 1e9)
    sizes |= {(a, b): 1e3 for a in racks[:6] for b in racks[6:]}
    monkeypatch.setattr(policies, "MOST_RACKS_COMPARED", limit)
    monkeypatch.setattr(policies, "bridged", lambda fabric, mates, demand: mates)
    cycle = parse_policy("bvn", fabric).cycle(demand_of(fabric, sizes), Circuits())
    met = {frozenset(pair) for lit in cycle for pair in circuits_of(fabric, lit)}
    assert ({frozenset(pair) for pair in sizes} <= met) == whole and len(cycle) <= 16


@pytest.mark.parametrize("relayed", [True, False])
def test_a_tree_has_relays_that_receive_and_send_or_else_the_first_pod_of_those_that_receive(
    relayed,
):
    """Pods of two racks: the first sends to the second, that to the third; or to both itself."""
    fabric = rfabric(pods=3, tors=2, gpus=2, planes=2)
    a, b, c = (fabric.racks[i : i + 2] for i in (0, 2, 4))
    levels = [(a, b), (b if relayed else a, c)]
    sent = {pair: 1e9 for up, down in levels for pair in zip(up, down, strict=True)}
    lit = parse_policy("tree", fabric).decide(demand_of(fabric, sent), Circuits(), 0.0)
    first, second = (
        {frozenset(pair) for pair in circuits_of(fabric, light(fabric, {plane: some}))}
        for plane, some in enumerate(tree(list(a), list(b), list(c), 2))
    )
    assert set(circuits_of(fabric, lit)) == first | second
    back = {(high, low): size for (low, high), size in sent.items()}
    rounds = parse_policy("tree", fabric).decide(demand_of(fabric, sent | back), Circuits(), 0.0)
    best = _best_rounds(demand_of(fabric, sent | back), list(fabric.racks), 2)
    assert set(rounds) == set(light(fabric, dict(enumerate(best))))  # nobody only receives


def test_the_last_few_answers_are_kept():
    """A question that is asked again counts as the latest."""
    fabric, asked = rfabric(pods=1, tors=2, gpus=1, planes=1), []

    def answer(question):
        return policies._kept(fabric, (question,), lambda: asked.append(question) or question)

    for question in (*range(policies.KEPT), 0):
        assert answer(question) == question
    assert asked == list(range(policies.KEPT))
    answer("one more")  # takes the place of 1, not of 0
    assert [answer(0), answer(2)] == [0, 2] and asked[-1] == "one more"
    assert answer(1) == asked[-1] == 1


def test_the_program_is_solved_up_to_its_largest_size():
    """A triangle of one uplink each takes more than any rack's cut says."""
    fabric = rfabric(pods=1, tors=3, gpus=1, planes=1, electrical=0)
    ring = {("t1", "t2"): 1e12, ("t2", "t3"): 1e12, ("t3", "t1"): 1e12}
    wanted = demand_of(fabric, ring)
    size = Program(fabric, wanted).size
    assert size == 1 + 3 * 6 + 3  # one number, three sources on six arcs, three pairs
    solved, not_solved = (bound(fabric, wanted, most=most) for most in (size, size - 1))
    assert (solved.why, not_solved.why) == ("lp", "cut")
    assert solved.seconds > not_solved.seconds == pytest.approx(transfer_seconds(1e12, RATE))


# --- what loads ask, and what is kept -------------------------------------------------------------


@pytest.mark.parametrize("compiled", [True, False])
def test_kinds_ask_one_after_another_and_flows_of_a_kind_at_once(compiled, monkeypatch):
    """Links 0 and 1; kind 5 sends 1 GB over both and 2 GB over link 1, kind 6 4 GB over link 0."""
    if not compiled:
        monkeypatch.setattr(outlook, "loops", lambda: None)
    columns = [0, 1, 0], [2, 1, 1], [0, 1], [1e9, 2e9, 4e9], [5, 5, 6]
    first, count, links, size, kind = (np.array(column) for column in columns)
    load, seconds = Load(first, count, links.astype(np.int32), size, kind), np.zeros(2)
    least = _ask(load, np.full(2, RATE), seconds)
    one = transfer_seconds(1e9, RATE)
    assert seconds == pytest.approx([5 * one, 3 * one]) and least == pytest.approx(7 * one)
    again = Load(first[::-1], count[::-1], load.links, size[::-1], kind[::-1])
    assert _ask(again, np.full(2, RATE), np.zeros(2)) == pytest.approx(least)
    beyond = Load(first, count, load.links + np.int32(1), size, kind)
    assert _ask(beyond, np.full(2, RATE), np.zeros(2)) == np.inf


@pytest.mark.parametrize("met", [1, MOST_BACK, MOST_BACK + 1, MOST_BACK + 2, MOST_BACK + 5])
def test_the_last_circuits_and_those_of_the_start_are_kept_to_return_to(met):
    """Each once, the latest first, the present ones left out."""
    pairs = [(a, b) for a in SIX.racks for b in SIX.racks if a < b]
    every = [light(SIX, {0: [pair]}) for pair in pairs[: met + 1]]
    kept = SimpleNamespace(epochs=list(enumerate(every)), circuits=every[-1])
    start = [] if met <= MOST_BACK else every[:1]
    assert list(Rewiring.back.fget(kept)) == every[-2::-1][:MOST_BACK] + start


def test_a_blocked_stage_that_asks_again_leaves_the_others_blocked():
    made = Rewiring(SIX, Timing(), Circuits())
    for row, stage in enumerate(("one", "two", "three")):
        made.begin(stage, np.array([row]), 0.0)
    made.wait()
    assert made.blocked == ["one", "two", "three"] and made.asking == ()
    assert made.unblock(np.array([1]))
    assert made.blocked == ["one", "three"] and made.asking == ("two",)


def test_rewires_are_numbered_as_they_come_unless_a_controller_has_a_number():
    """Nothing is lost where nothing is said of it."""
    made, start = Rewiring(SIX, Timing(), Circuits()), np.zeros(1)
    for turn, epoch in enumerate((0, 0, 7, 0)):
        wanted = light(SIX, {0: [("t1", SIX.racks[turn + 1])]})
        made.take(Decision(Rewire.between(made.circuits, wanted), "test", wanted), float(turn))
        made.done(turn + 0.1, turn + 0.2, turn + 0.2, start, epoch=epoch)
    assert [(r.epoch, r.lost_bytes) for r in made.records] == [(1, 0), (2, 0), (7, 0), (4, 0)]
    assert [r.circuits_changed for r in made.records] == [1, 2, 2, 2]
    plain = RewireRecord(1, "training", 0.0, 1.0, 2.0, 3.0, 4)
    assert (plain.lost_bytes, plain.why, plain.hidden, plain.dark) == (0, "", 3.0, 2.0)


def test_a_demand_follows_the_one_before_it_where_nothing_is_said():
    wanted = demand_of(SIX, {("t1", "t2"): 1.0})
    assert wanted.follows == (1,) and wanted.window == np.inf
    assert (wanted.floor, wanted.lead, wanted.ahead) == (0.0, 0.0, 0.0)


# --- policies of others, and names that are none --------------------------------------------------


class Bare(CircuitPolicy):
    """Keeps what it finds."""

    def decide(self, demand, circuits, now, upcoming=()):
        return circuits


class Named(Bare):
    """Has all that a policy has, but is not made yet."""

    name = "named"


def test_an_object_is_a_policy_where_it_has_all_that_a_policy_has():
    made = Bare(SIX, "bare")
    check_policy(made)
    same = parse_fabric("rfabric,pods=2,tors=2,gpus=2,planes=2")
    with pytest.raises(RFabricError, match="is a class: give one made from it"):
        check_policy(Named)
    with pytest.raises(RFabricError, match="lacks .*decide"):
        check_policy(SimpleNamespace(name="x"))
    with pytest.raises(RFabricError, match="its name must be text"):
        check_policy(Bare(SIX, 7))
    with pytest.raises(RFabricError, match="policy bare was made for"):
        parse_policy(made, same)
    lit = light(SIX, {0: [("t1", "t2")]})
    for fabric in (SIX, rfabric(pods=1, tors=6, gpus=3, planes=3, electrical=0)):  # equal is enough
        assert parse_policy(made, fabric).decide(demand_of(SIX, {}), lit, 0.0) == lit


class Elsewhere(CircuitPolicy):
    """Lights what is no circuit of the fabric it is for."""

    def decide(self, demand, circuits, now, upcoming=()):
        return Circuits.from_json(["z1:1-z1:2"])


def test_answers_of_a_strangers_object_are_checked_and_those_of_ours_taken_as_they_are():
    stranger, ours = parse_policy(Elsewhere(SIX, "elsewhere"), SIX), parse_policy("demand", SIX)
    with pytest.raises(RFabricError, match="elsewhere: circuit .*z1 is not an OCS"):
        stranger.decide(demand_of(SIX, {}), Circuits(), 0.0)
    for known in (stranger, ours):  # nobody is guarded twice
        assert parse_policy(known, SIX) is known


FORGETFUL = """
from rfabric.optics import CircuitPolicy
class Mine(CircuitPolicy):
    def __init__(self, fabric, name, **more):
        for key, value in {kept}.items():
            object.__setattr__(self, key, value)
    def decide(self, demand, circuits, now, upcoming=()):
        return circuits
policies = {{"mine": Mine}}
"""


@pytest.mark.parametrize("kept", ["dict(fabric=fabric)", "dict(name=name)", "dict()"])
def test_a_policy_of_a_file_must_keep_its_fabric_and_its_name(kept, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(FORGETFUL.format(kept=kept))
    with pytest.raises(RFabricError, match="its __init__ keeps no fabric and name"):
        parse_policy(f"{file}:mine", SIX)


def test_a_slot_is_said_of_a_policy_of_a_file_where_it_is_asked_by_the_slot(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(FORGETFUL.format(kept="dict(fabric=fabric, name=name, **more)"))
    assert parse_policy(f"{file}:mine", SIX).granularity == "per-phase"
    turning = parse_policy(f"{file}:mine,granularity=time-slotted,slot=1s", SIX)
    assert (turning.granularity, turning.slot) == ("time-slotted", 1.0)
    with pytest.raises(RFabricError, match="slot goes with granularity=time-slotted"):
        parse_policy(f"{file}:mine,slot=1s", SIX)


def test_a_rack_that_is_none_is_named():
    with pytest.raises(RFabricError, match="plane 0: fabric rfabric has no rack 't99'"):
        light(SIX, {0: [("t1", "t99")]})


def test_every_way_of_a_split_pair_is_followed():
    """One pair with one way, one with two, one with none: none that has ways is at fault."""
    lit = light(SIX, {0: [("t1", "t2"), ("t3", "t4")], 1: [("t3", "t4")]})
    first = {rack: next(h for h in SIX.hosts if SIX.rack_of[h] == rack) for rack in SIX.racks}
    pairs = [(first[a], first[b]) for a, b in (("t1", "t2"), ("t3", "t4"), ("t1", "t6"))]
    told = faults(SIX, lit, pairs, Routing("split"))
    assert len(told) == 1 and told[0].startswith(f"{pairs[2][0]} -> {pairs[2][1]}: dropped")
    assert faults(SIX, lit, pairs[:2], Routing("split")) == []

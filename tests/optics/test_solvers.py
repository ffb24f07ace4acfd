"""Solvers, bounds and templates pinned: closed forms, hand-made figures, brute force."""

from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from few_racks import FOUR, LONELY, RATE, THIN, asks, lit, mates_of, pairs_of
from fluid import fluid_seconds
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rfabric.fabric import Fabric, fat_tree, parse_fabric, rfabric
from rfabric.optics import Circuits, Demand, Rewire, joined, light, parse_policy, planes, regions
from rfabric.optics.bound import Bound, bound
from rfabric.optics.planes import join
from rfabric.optics.policies import drain_seconds
from rfabric.optics.rounds import decompositions, joins
from rfabric.optics.solvers import (
    SOLVERS,
    _circuits_within,
    _whole_circuits,
    best_matching,
    bridged,
    greedy,
    slots,
    slots_of,
    thin_rates,
)
from rfabric.optics.solvers import asked as edges_of
from rfabric.optics.templates import (
    bipartite,
    mesh,
    mesh_of_all,
    round_of,
    tournaments,
    tree,
    turns,
)
from rfabric.units import bytes_in, transfer_seconds

# --- solvers --------------------------------------------------------------------------------------


def heaviest(weight, racks):
    """The weight of the heaviest matching of four racks, by looking at each."""
    pairs = list(combinations(range(racks), 2))
    other = [(a, b) for a, b in combinations(pairs, 2) if not set(a) & set(b)]
    return max(
        *(weight.get(p, 0) for p in pairs), *(weight.get(a, 0) + weight.get(b, 0) for a, b in other)
    )


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(list(combinations(range(4), 2))), st.integers(1, 20), min_size=1
    )
)
def test_a_plane_gets_the_heaviest_matching_there_is(weight):
    wanted = asks(LONELY, *((a, b, 1e9 * n) for (a, b), n in weight.items()))
    a = edges_of(LONELY, wanted, every=True)
    edges = np.arange(len(a.wanted))
    best = best_matching(a, edges, a.wanted)
    assert a.wanted[best].sum() == pytest.approx(1e9 * heaviest(weight, 4))


def test_each_solver_shares_planes_as_apportionment_does():
    """Three planes, a hub of two partners: at 5 to 2 D'Hondt gives 2 and 1, at 7 to 2 3 and 0."""
    fabric = rfabric(pods=1, tors=3, gpus=1, planes=3)
    for sizes, counts in (((5e11, 2e11), (2, 1)), ((7e11, 2e11), (3, 0))):
        wanted = asks(fabric, (0, 1, sizes[0]), (2, 0, sizes[1]))
        for name in ("greedy", "matching"):
            count = joined(fabric, light(fabric, dict(enumerate(SOLVERS[name](wanted, fabric)))))
            pairs = [frozenset(("t1", other)) for other in ("t2", "t3")]
            assert tuple(count.get(pair, 0) for pair in pairs) == counts, name


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_what_stays_in_a_rack_asks_for_no_circuit(solver):
    pairs = (0, 1, 3e9), (2, 0, 2e9), (3, 2, 1e9)
    inside = ((rack, rack, 9e9) for rack in range(4))
    alone, beside = asks(LONELY, *pairs), asks(LONELY, *pairs, *inside)
    assert SOLVERS[solver](beside, LONELY) == SOLVERS[solver](alone, LONELY)


def test_greedy_takes_the_heaviest_pair_into_the_first_free_plane():
    wanted = asks(LONELY, (0, 1, 9e9), (0, 2, 8e9), (0, 3, 7e9), (1, 2, 1e9))
    assert greedy(wanted, LONELY) == [[("t1", "t2")], [("t1", "t3")]]


@pytest.mark.parametrize(("beyond", "circuits"), [(0.5e11, [2.0]), (1e11, [2.0]), (1.1e11, None)])
def test_a_pair_whose_circuits_are_full_sends_the_rest_by_cable_where_it_has_room(beyond, circuits):
    """In 8 s a circuit carries 4e11 bytes and the thin cable 1e11; each rack has two uplinks."""
    found = _circuits_within(edges_of(FOUR, asks(FOUR, (0, 1, 8e11 + beyond))), 8.0)
    assert (found if found is None else found.tolist()) == circuits


PAIRS_OF_FOUR = st.lists(st.integers(0, 40), min_size=6, max_size=6).map(
    lambda sizes: [
        (a, b, size * 1e10) for (a, b), size in zip(combinations(range(4), 2), sizes, strict=True)
    ]
)


@given(PAIRS_OF_FOUR, st.floats(0.5, 20))
@example([(0, 1, 30e10), (0, 2, 5e10), (0, 3, 5e10)], 5.0)  # the cable has room for one rest
def test_circuits_found_within_a_time_fit_the_uplinks_and_the_rest_fits_the_cables(pairs, seconds):
    edges = edges_of(FOUR, asks(FOUR, *pairs), every=True)
    found = _circuits_within(edges, seconds)
    if found is None:
        return
    beyond = np.maximum(edges.wanted - found * bytes_in(RATE, seconds), 0.0)
    for rack in range(4):
        mine = (edges.rows == rack) | (edges.columns == rack)
        assert found[mine].sum() <= edges.uplinks[rack]
        assert beyond[mine].sum() <= bytes_in(THIN, seconds) * (1 + 1e-6)


@given(PAIRS_OF_FOUR.filter(lambda pairs: any(size for *_, size in pairs)))
def test_whole_circuits_are_those_of_the_least_time(pairs):
    """Without cables a pair of k circuits takes its bytes over k: some such time is the least."""
    fabric = rfabric(pods=1, tors=4, gpus=1, planes=4, electrical=0)
    edges = edges_of(fabric, asks(fabric, *pairs), every=True)
    need = _whole_circuits(edges)

    def circuits_at(rack, counts):
        return counts[(edges.rows == rack) | (edges.columns == rack)].sum()

    def fits(most):  # bytes that a circuit carries at most
        counts = np.ceil(edges.wanted / most - 1e-9)
        return all(circuits_at(rack, counts) <= 4 for rack in range(4))

    least = min(most for k in range(1, 5) for most in edges.wanted / k if fits(most))
    assert all(circuits_at(rack, need) <= 4 for rack in range(4))
    assert (need >= 1).all() and (edges.wanted / need).max() <= least * (1 + 1e-3)


@pytest.mark.parametrize("hub", range(4))
def test_of_more_partners_than_uplinks_who_is_sent_least_goes_by_cable(hub):
    """Two uplinks, three partners, the lightest of which the thin cable can serve in 8 s."""
    others = [rack for rack in range(4) if rack != hub]
    edges = edges_of(FOUR, asks(FOUR, *((hub, r, (3 - i) * 1e11) for i, r in enumerate(others))))
    found = _circuits_within(edges, 8.0)
    circuits = {tuple(sorted((hub, r))): float(i < 2) for i, r in enumerate(others)}
    ends = zip(edges.rows.tolist(), edges.columns.tolist(), strict=True)
    assert dict(zip(ends, found.tolist(), strict=True)) == circuits


def test_whole_circuits_leave_what_the_cable_can_take_and_spend_the_rest_where_it_helps():
    """Five planes; 2 to 1 are owed one each at least time; the heavier gets what is left."""
    fabric = rfabric(pods=1, tors=3, gpus=1, planes=5, electrical=0)
    wanted = asks(fabric, (0, 1, 4e11), (0, 2, 1e11))
    count = joined(fabric, light(fabric, dict(enumerate(SOLVERS["bvn"](wanted, fabric)))))
    assert count[frozenset(("t1", "t2"))] == 4 and count[frozenset(("t1", "t3"))] == 1


def test_what_leaves_a_rack_without_a_circuit_is_its_thin_cables():
    """The first rack's as well as the last's; cables to hosts do not count."""
    assert thin_rates(FOUR).tolist() == [THIN] * 4 and thin_rates(LONELY).tolist() == [0.0] * 4
    tree_of_two = fat_tree(pods=2, tors=1, gpus=2)
    assert thin_rates(tree_of_two).tolist() == [2 * RATE] * 2


def test_slots_are_as_many_as_partners_need_and_none_for_nothing():
    assert not len(slots(Demand.none(LONELY.racks), LONELY))
    wanted = asks(LONELY, *((a, b, 1e9) for a, b in permutations(range(4), 2)))
    assert len(slots(wanted, LONELY)) == 2  # three partners, two uplinks
    assert [len(slots_of(edges_of(LONELY, wanted), n)) for n in (0, 3, 1)] == [2, 3, 2]
    single = asks(LONELY, (0, 1, 1e9))
    assert len(slots(single, LONELY)) == 1


def test_slots_go_by_weight_until_every_partner_could_have_been_met_then_by_who_had_none():
    """One uplink and three partners, one of which is sent eight times as much as either other: half
    and a third of it are still the most. Two more rounds join those left out.
    """
    fabric = rfabric(pods=1, tors=4, gpus=1, planes=1, electrical=0)
    hub = asks(fabric, (0, 1, 8e9), (0, 2, 1e9), (0, 3, 1e9))
    met = [pair for slot in slots(hub, fabric) for (pair,) in pairs_of(fabric, slot)]
    assert met[:3] == [("t1", "t2")] * 3 and sorted(met[3:]) == [("t1", "t3"), ("t1", "t4")]


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_slots_end_at_their_limit_whoever_is_left_out(most):
    """Six racks of one uplink need five rounds to meet."""
    fabric = rfabric(pods=1, tors=6, gpus=1, planes=1, electrical=0)
    everybody = asks(fabric, *((a, b, 1e9) for a, b in permutations(range(6), 2)))
    assert len(slots(everybody, fabric, every=True, most=most)) == most
    edges = edges_of(fabric, everybody, every=True)
    assert [len(slots_of(edges, least, most)) for least in (0, 9)] == [most, most]


@given(st.lists(st.integers(1, 10**9), min_size=10, max_size=10))
def test_slots_beyond_the_fewest_bring_who_was_left_out(sizes):
    """Five racks of one uplink have four partners each but meet in five rounds: whatever they send,
    a round after the fourth joins some pair that no round before did.
    """
    fabric = rfabric(pods=1, tors=5, gpus=1, planes=1, electrical=0)
    ends = combinations(range(5), 2)
    wanted = asks(fabric, *((a, b, float(n)) for (a, b), n in zip(ends, sizes, strict=True)))
    met = set()
    for number, slot in enumerate(slots(wanted, fabric, every=True)):
        now = {frozenset(pair) for pairs in pairs_of(fabric, slot) for pair in pairs}
        assert number < 4 or now - met
        met |= now
    assert len(met) == 10


@pytest.mark.parametrize("spec", ["mixnet", "rfabric", "opus", "topoopt", "rotor,tors=6"])
def test_a_mesh_of_all_joins_racks_that_a_plane_can_join(spec):
    fabric = parse_fabric(spec)
    for plane, pairs in zip(planes(fabric), mesh_of_all(fabric), strict=True):
        number = regions(fabric)[plane]
        assert pairs and all(number[a] == number[b] for a, b in pairs)


def test_bridges_spare_the_planes_before_the_last():
    """Two islands on each plane and a demand between them: the last plane joins them, the first
    stays.
    """
    islands = [[("t1", "t2"), ("t3", "t4")]] * 2
    wanted = asks(LONELY, (0, 2, 1e9))
    mates = mates_of(LONELY, islands)
    first, last = pairs_of(LONELY, bridged(LONELY, mates, wanted))
    assert first == islands[0] and len(last) == 1
    assert {rack in ("t1", "t2") for rack in last[0]} == {True, False}
    assert bridged(LONELY, mates, asks(LONELY, (0, 1, 1e9))) is mates


@pytest.mark.parametrize("tors", [3, 5])
def test_three_or_more_islands_are_joined_by_a_tree(tors):
    fabric = rfabric(pods=1, tors=2 * tors, gpus=1, planes=3, electrical=0)
    island = [(fabric.racks[2 * i], fabric.racks[2 * i + 1]) for i in range(tors)]
    wanted = asks(fabric, *((2 * i, 2 * i + 2, 1e9) for i in range(tors - 1)))
    bridges = join(fabric, bridged(fabric, mates_of(fabric, [island] * 3), wanted))
    assert np.isfinite(drain_seconds(fabric, bridges, wanted))


# --- bounds ---------------------------------------------------------------------------------------


def test_the_program_finds_what_the_closed_form_says():
    """Of an even all-to-all of n racks with u uplinks each the cut says (n - 1) S / (u rate), and
    it is met.
    """
    fabric = rfabric(pods=1, tors=4, gpus=2, planes=3, electrical=0)
    wanted = asks(fabric, *((a, b, 1e12) for a, b in permutations(range(4), 2)))
    assert bound(fabric, wanted).seconds == pytest.approx(transfer_seconds(3e12, 3 * RATE))
    mesh_of_three = lit(fabric, [(0, 1), (2, 3)], [(0, 2), (1, 3)], [(0, 3), (1, 2)])
    assert fluid_seconds(fabric, mesh_of_three, wanted) == pytest.approx(
        transfer_seconds(1e12, RATE)
    )
    assert bound(fabric, wanted, whole=True).seconds == pytest.approx(transfer_seconds(1e12, RATE))


@pytest.mark.parametrize("fast", [("a1",), ("a3",), ("a1", "a2")])
def test_planes_of_another_rate_are_bounded_by_themselves(fast):
    """Three planes of two rates: a pair may have all of either kind, and their rates add up."""
    even = rfabric(pods=1, tors=4, gpus=1, planes=3, electrical=0)
    cables = [
        replace(cable, rate=RATE / 2) if cable.b.node in {"a1", "a2", "a3"} - {*fast} else cable
        for cable in even.links
    ]
    fabric = Fabric("two-rates", even.nodes, cables)
    wanted = asks(fabric, (2, 3, 1e12))
    rate = RATE * (len(fast) + (3 - len(fast)) / 2)
    assert bound(fabric, wanted).seconds == pytest.approx(transfer_seconds(1e12, rate))
    assert edges_of(fabric, wanted).rate == RATE / 2  # solvers count with the slowest


def test_where_no_rack_sends_to_another_cards_alone_are_the_bound():
    assert bound(FOUR, asks(FOUR, floor=2.0)) == Bound(2.0, "nic")
    assert bound(FOUR, asks(FOUR)) == Bound(0.0, "nothing")


def test_nobody_sends_where_nothing_is_asked_for():
    nothing, zeros = Demand.none(FOUR.racks), asks(FOUR)
    assert nothing.idle and not nothing.sends.any() and not nothing.receives.any()
    assert [len(column) for column in nothing.sent] == [len(column) for column in zeros.sent]
    np.testing.assert_array_equal(nothing.bytes, zeros.bytes)


def test_circuits_that_are_lit_are_not_chosen_anew_by_the_program():
    ring = lit(LONELY, [(0, 1), (2, 3)], [(1, 2), (0, 3)])
    far = asks(LONELY, (0, 2, 1e12))  # two ways of two hops
    assert fluid_seconds(LONELY, ring, far) == pytest.approx(transfer_seconds(1e12, 2 * RATE))
    assert fluid_seconds(LONELY, lit(LONELY, [(0, 1)]), far) == float("inf")
    both = asks(FOUR, (0, 1, 1e12))
    mixed = transfer_seconds(1e12, RATE + THIN)
    assert fluid_seconds(FOUR, lit(FOUR, [(0, 1)]), both) == pytest.approx(mixed)


def test_a_triangle_fills_both_ways_of_its_half_circuits():
    """A triangle, one uplink a rack, each sends S to the next: half a circuit a pair, both ways.

    Two thirds go straight, one third round over the third rack: 2/3 S one way, 2 times 1/3 S
    the other.
    """
    fabric = rfabric(pods=1, tors=3, gpus=1, planes=1, electrical=0)
    triangle = asks(fabric, (0, 1, 1e12), (1, 2, 1e12), (2, 0, 1e12))
    assert bound(fabric, triangle).seconds == pytest.approx(
        2 / 3 * transfer_seconds(1e12, RATE / 2)
    )


# --- planes of several core OCSes ---


def test_pairs_of_different_pods_cross_the_core_that_carries_them():
    """24 servers, OCSes of 16 ports: three pods, every pair across lit by three circuits."""
    fabric = parse_fabric("topoopt,servers=24,gpus=1,degree=1,ocs_ports=16")
    pairs = [(i, i + 12) for i in range(12)]
    chosen = lit(fabric, pairs)
    names = [frozenset((fabric.racks[a], fabric.racks[b])) for a, b in pairs]
    assert joined(fabric, chosen.check(fabric)) == dict.fromkeys(names, 1)
    across = sum(
        fabric.node[fabric.racks[a]].pod != fabric.node[fabric.racks[b]].pod for a, b in pairs
    )
    assert len({c.a.node for c in chosen if fabric.node[c.a.node].tier == "core"}) > 1
    assert len(chosen) >= len(pairs) + 2 * across


# --- templates and rounds -------------------------------------------------------------------------


def test_a_tournament_of_four_and_of_five_is_the_one_drawn():
    assert [round_of("abcd", i) for i in range(3)] == [
        [("a", "d"), ("b", "c")],
        [("a", "c"), ("d", "b")],
        [("a", "b"), ("c", "d")],
    ]
    assert [turns(n) for n in range(7)] == [0, 1, 1, 3, 3, 5, 5]
    assert all(len(round_of("abcde", i)) == 2 for i in range(5))
    assert mesh("abcd", 4)[3] == mesh("abcd", 4)[0]


@pytest.mark.parametrize(
    "groups",
    [[], [[1]], [[2, 5]], [[0, 2, 3, 6], [1, 4]], [[1, 2, 4], [0, 3, 5, 6, 7]], [range(8)]],
)
def test_tournaments_by_number_are_those_by_name_side_by_side(groups):
    """The smaller begins again when it is through."""
    meets = tournaments([np.array(group, int) for group in groups], 8)
    assert len(meets) == max((turns(len(group)) for group in groups), default=0)
    for number, mates in enumerate(meets):
        wanted = [-1] * 8
        for group in groups:
            for a, b in round_of(group, number % max(turns(len(group)), 1)):
                wanted[a], wanted[b] = b, a
        assert mates.tolist() == wanted


def test_groups_of_racks_meet_in_as_many_rounds_as_the_largest_needs():
    """Two groups of four and one uplink: three rounds, not the seven of all eight."""
    fabric = rfabric(pods=1, tors=9, gpus=1, planes=1, electrical=0)
    groups = (range(4), range(4, 8))
    wanted = asks(fabric, *((a, b, 1e9) for some in groups for a, b in permutations(some, 2)))
    first, *_ = decompositions(fabric, parse_policy("demand", fabric), wanted, Circuits())
    assert len(first.circuits) == 3


def test_each_plane_of_a_bipartite_brings_another_partner():
    assert bipartite("ab", "wxyz", 2) == [[("a", "w"), ("b", "x")], [("a", "y"), ("b", "z")]]
    assert bipartite("abc", "w", 3) == [[("a", "w")], [("b", "w")], [("c", "w")]]
    assert tree("a", "b", "c", 2) == [[("a", "b")], [("b", "c")]]
    assert tree("ab", "c", "de", 3)[0] == [("a", "c"), ("b", "d")]


def test_a_pair_sends_in_the_rounds_that_join_it_by_its_circuits():
    wanted = asks(LONELY, *((a, b, 1e9) for a, b in permutations(range(4), 2)))
    some = decompositions(LONELY, parse_policy("demand", LONELY), wanted, Circuits())
    assert some
    for played in some:
        count = np.array([joins(LONELY, lit_now) for lit_now in played.circuits])
        asks_for = wanted.bytes > 0
        assert count.any(axis=0)[asks_for].all()
        assert (played.weight[:, asks_for] == count[:, asks_for]).all()
    assert (joins(LONELY, lit(LONELY, [(0, 1)], [(0, 1)]))[:2, :2] == [[0, 2], [2, 0]]).all()


@pytest.mark.parametrize(("planes_of_each", "fewest"), [(1, 3), (2, 2)])
def test_everybody_meets_everybody_in_as_few_rounds_as_planes_allow(planes_of_each, fewest):
    """Four racks meet in three matchings, as many at once as there are planes."""
    fabric = rfabric(pods=1, tors=4, gpus=1, planes=planes_of_each, electrical=0)
    wanted = asks(fabric, *((a, b, 1e9) for a, b in permutations(range(4), 2)))
    some = decompositions(fabric, parse_policy("demand", fabric), wanted, Circuits())
    assert min(len(played.circuits) for played in some) == fewest


def test_rounds_begin_with_the_one_that_is_lit():
    """Of every decomposition, whichever of its rounds is lit already is played first."""
    policy = parse_policy("demand", FOUR)
    wanted = asks(FOUR, *((a, b, 1e9) for a, b in permutations(range(4), 2)))
    for number, some in enumerate(policy.rounds(wanted, Circuits())):
        for now in some:
            first = policy.rounds(wanted, now)[number][0]
            assert not Rewire.between(now, first).size

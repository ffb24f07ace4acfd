"""Routing schemes: ways that arrive and pass no switch twice, the same for simulator and switches,
and no worse than the hash.
"""

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lighting import lit as start
from loads import busiest_seconds

from rfabric.control.core import Core
from rfabric.control.fake import FakeSwitches
from rfabric.control.schema import pairs_json, pairs_request
from rfabric.errors import RFabricError
from rfabric.fabric import fat_tree, parse_fabric, rfabric
from rfabric.optics import Circuits, Demand, light, parse_policy
from rfabric.optics.check import faults, faults_during
from rfabric.routing import Routes, routes_of
from rfabric.routing.rows import Entries
from rfabric.routing.schemes import SCHEMES, SPLIT, Routing, Sent
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder, ring, routing_of
from rfabric.units import transfer_seconds

FABRICS = {
    "fat-tree": fat_tree(pods=2, tors=2, gpus=2),
    "k-ary": fat_tree(k=4),
    "rfabric": rfabric(pods=2, tors=2, gpus=2, planes=3),
    "bare": rfabric(pods=2, tors=2, gpus=2, planes=3, electrical=0),
}


def routing(scheme, fabric, pairs, sizes=None):
    if scheme != "placed":
        return Routing(scheme)
    ends = np.array([[fabric.host_index[h] for h in pair] for pair in pairs]).reshape(-1, 2)
    return Routing(scheme, Sent(*ends.T, np.ones((1, len(pairs))) if sizes is None else sizes))


def pairs_of(fabric, numbers):
    hosts = fabric.hosts
    pairs = {(hosts[a % len(hosts)], hosts[b % len(hosts)]) for a, b in numbers}
    return sorted(pair for pair in pairs if pair[0] != pair[1])


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(FABRICS)),
    st.sampled_from((*SCHEMES, SPLIT)),
    st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=1, max_size=20),
)
def test_every_demanded_pair_arrives_without_a_loop_under_every_scheme(name, scheme, numbers):
    fabric = FABRICS[name]
    pairs = pairs_of(fabric, numbers)
    assert faults(fabric, start(fabric), pairs, routing(scheme, fabric, pairs)) == []


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from((*SCHEMES, SPLIT)),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=2, max_size=16),
    st.data(),
)
def test_who_is_not_held_arrives_while_circuits_are_dark(scheme, numbers, data):
    fabric = FABRICS["rfabric"]
    pairs = pairs_of(fabric, numbers)
    sent = np.zeros((4, 4))
    a, b = data.draw(st.permutations(range(4)))[:2]
    sent[a, b] = 1e12
    after = parse_policy("matching", fabric).decide(Demand(fabric.racks, sent), start(fabric), 0.0)
    held, wrong = faults_during(fabric, start(fabric), after, pairs, routing(scheme, fabric, pairs))
    assert wrong == [] and set(held) <= set(pairs)


def test_the_checker_sees_what_is_wrong():
    fabric = FABRICS["bare"]
    assert faults(fabric, Circuits(), [("h1", "h8")])[0].startswith("h1 -> h8: dropped at t1")
    assert "cable" in faults(fabric, Circuits.from_json(["a1:1-a1:99"]), [])[0]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", sorted(FABRICS))
def test_one_way_asked_alone_is_the_way_of_many(name, scheme):
    fabric = FABRICS[name]
    pairs = [(a, b) for a in fabric.hosts for b in fabric.hosts if a != b]
    routes = routes_of(fabric, start(fabric), routing(scheme, fabric, pairs))
    numbers = np.array([[fabric.host_index[h] for h in pair] for pair in pairs])
    offsets, links = routes.links_of(*numbers.T)
    routes = Routes(fabric, start(fabric), routes.routing)
    for i, pair in list(enumerate(pairs))[::7]:
        assert tuple(links[offsets[i] : offsets[i + 1]].tolist()) == routes.links(*pair)


@pytest.mark.parametrize("name", sorted(FABRICS))
def test_rules_along_the_links_of_a_way_are_the_rules_of_its_pair(name):
    """And one more: the last switch sends on to the host."""
    fabric = FABRICS[name]
    routes = Routes(fabric, start(fabric))
    for pair in permutations(fabric.hosts[:6], 2):
        *along, last = routes.rules_along(*pair, routes.links(*pair))
        rules = routes.rules([pair])
        assert along == [rule for rule in rules if rule.match == ("pair", *pair)]
        (home,) = (rule for rule in rules if rule.match == ("to", pair[1]))
        assert (
            (last.switch, last.out)
            == (home.switch, home.out)
            == (fabric.rack_of[pair[1]], last.out)
        )
        assert home.priority > last.priority > 0


def permutation(fabric):
    """Every host of the first half to one of the second, each rack's to one rack: network cards
    alone should limit it.
    """
    b, half = TraceBuilder(fabric.hosts), len(fabric.hosts) // 2
    b.flows(range(half), range(half, 2 * half), 1e9, phase="weight_sync", label="weights")
    return b.build()


@pytest.mark.parametrize(
    "fabric",
    [fat_tree(), fat_tree(k=8), parse_fabric("leaf-spine"), rfabric()],
    ids=lambda f: f.name,
)
def test_placed_pairs_of_a_permutation_need_what_their_cards_need(fabric):
    trace, lit = permutation(fabric), start(fabric)
    if fabric.ocses:
        half = len(fabric.racks) // 2
        lit = light(
            fabric,
            {p: list(zip(fabric.racks[:half], fabric.racks[half:], strict=True)) for p in range(4)},
        )
    seconds = {
        s: busiest_seconds(fabric, lit, routing_of(s, fabric, trace), trace, np.arange(len(trace)))
        for s in SCHEMES
    }
    assert seconds["placed"] == pytest.approx(transfer_seconds(1e9, 4e11))
    assert seconds["placed"] < seconds["ecmp"]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 15), st.integers(0, 15), st.integers(1, 9)),
        min_size=1,
        max_size=30,
    )
)
def test_placed_is_never_worse_than_a_scheme_that_knows_nothing_by_more_than_one_pair(numbers):
    """Greedy placing ends, on the busiest cable, at most one pair's bytes above any other placing
    of the same cheapest ways.
    """
    fabric = FABRICS["fat-tree"]
    pairs = pairs_of(fabric, [(a, b) for a, b, _ in numbers])
    if not pairs:
        return
    b = TraceBuilder(fabric.hosts)
    for i, (src, dst) in enumerate(pairs):
        b.flows(
            [fabric.host_index[src]], [fabric.host_index[dst]], numbers[i % len(numbers)][2] * 1e9
        )
    trace = b.build()
    rows = np.arange(len(trace))
    placed, ecmp = (
        busiest_seconds(fabric, Circuits(), routing_of(s, fabric, trace), trace, rows)
        for s in ("placed", "ecmp")
    )
    assert placed <= ecmp + transfer_seconds(float(trace.size.max()), 4e11)


def test_placed_rings_take_their_closed_form_in_the_simulator():
    fabric = fat_tree()
    b = TraceBuilder(fabric.hosts)
    for first in range(4):
        b.flows(*ring("all-reduce", range(first, 64, 4), 4e9, 1, first), label="rings")
    result = simulate(fabric, b.build())
    assert result.routing == "placed"
    assert result.step_seconds == pytest.approx(transfer_seconds(2 * 15 / 16 * 4e9, 4e11), rel=1e-4)


def test_valiant_goes_over_a_third_rack_and_wcmp_never_does():
    fabric = FABRICS["rfabric"]
    pairs = [
        (a, b) for a in fabric.hosts for b in fabric.hosts if fabric.rack_of[a] != fabric.rack_of[b]
    ]
    racks = {
        scheme: [
            {hop.into.node for hop in routes_of(fabric, start(fabric), Routing(scheme)).path(*p)}
            for p in pairs
        ]
        for scheme in ("valiant", "wcmp")
    }
    thirds = {
        s: sum(len(set(fabric.racks) & seen) > 2 for seen in by_pair)
        for s, by_pair in racks.items()
    }
    assert thirds["valiant"] > len(pairs) / 2 and thirds["wcmp"] == 0


def test_wcmp_uses_ways_in_proportion_to_their_rate():
    # three circuits of 400 and one way of 100 Gbit/s
    fabric = rfabric(pods=1, tors=2, gpus=24, planes=3)
    lit = light(fabric, dict.fromkeys(range(3), [("t1", "t2")]))
    routes = routes_of(fabric, lit, Routing("wcmp"))
    thin = [
        any(h.into.node == "x1" for h in routes.path(a, b))
        for a in fabric.hosts[:24]
        for b in fabric.hosts[24:]
    ]
    assert np.mean(thin) == pytest.approx(1 / 13, abs=0.04)


def test_the_switches_take_the_ways_of_the_simulator():
    """What the controller sends to its switches leads every pair along the links that the simulator
    charges.
    """
    fabric = rfabric(pods=2, tors=2, gpus=2, planes=2)
    b = TraceBuilder(fabric.hosts)
    b.flows(range(4), range(4, 8), [4e9, 3e9, 2e9, 1e9], phase="weight_sync", label="weights")
    trace = b.build()
    chosen = routing_of("placed", fabric, trace)
    core = Core(fabric, FakeSwitches(fabric))
    core.set_pairs(*pairs_request(pairs_json(trace.pairs(), chosen, fabric), fabric))
    routes = routes_of(fabric, core.epochs.circuits, chosen)
    for pair in trace.pairs():
        for hop in routes.path(*pair)[1:-1]:
            assert core.out_port(hop.out.node, *pair) == hop.out.number


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            {"pairs": [["h1", "h8"]], "routing": "best"},
            ("no routing 'best'; there are ecmp, wcmp, placed, valiant"),
        ),
        (
            {"pairs": [["h1", "h8"]], "routing": "split"},
            ("routing split: a pair takes several paths at once"),
        ),
        ({"pairs": [["h1", "h8"]], "routing": "placed"}, "bytes: expected a JSON array, got null"),
        (
            {"pairs": [["h1", "h8"]], "routing": "placed", "bytes": [[1, 2]]},
            "rows of 1 numbers, one a pair",
        ),
        (
            {"pairs": [["h1", "h8"]], "routing": "placed", "bytes": [[-1]]},
            "must be a number, finite and not negative",
        ),
    ],
)
def test_bad_bodies_of_pairs_are_named(body, why):
    with pytest.raises(RFabricError, match=why):
        pairs_request(body, FABRICS["rfabric"])


def test_bad_routings_say_what_there_is():
    with pytest.raises(
        RFabricError, match=("no routing 'best'; there are ecmp, wcmp, placed, valiant")
    ):
        Routing("best")
    with pytest.raises(RFabricError, match="routing placed: it must know what the pairs send"):
        Routing("placed")
    with pytest.raises(RFabricError, match="a pair stands twice; add its bytes up"):
        Sent(np.array([0, 0]), np.array([1, 1]), np.ones((1, 2)))
    with pytest.raises(RFabricError, match="sent: 1 pairs need finite bytes >= 0 per kind"):
        Sent(np.array([0]), np.array([1]), np.array([[-1.0]]))


@pytest.mark.parametrize("name", sorted(FABRICS))
def test_loads_of_many_pairs_are_those_of_few_added_up(name, monkeypatch):
    fabric = FABRICS[name]
    ways, racks = routes_of(fabric, start(fabric)).ways, len(fabric.racks)
    sent = np.random.default_rng(1).integers(1, 9, (racks, racks)) * (1.0 - np.eye(racks))
    alone = sum(
        ways.loads(
            Entries.of(np.where(np.arange(racks * racks).reshape(racks, racks) == i, sent, 0))
        )
        for i in range(racks * racks)
    )
    assert ways.loads(Entries.of(sent)) == pytest.approx(alone)
    monkeypatch.setattr("rfabric.routing.ways.MOST_CANDIDATES", 3)
    assert ways.loads(Entries.of(sent)) == pytest.approx(alone)


def test_a_pair_that_was_not_named_is_left_to_the_hash():
    fabric = FABRICS["fat-tree"]
    placed, hashed = Routes(fabric, (), routing("placed", fabric, [("h1", "h8")])), Routes(fabric)
    assert placed.links("h2", "h7") == hashed.links("h2", "h7")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("named", [0, 1])
@pytest.mark.parametrize("name", sorted(FABRICS))
def test_pairs_that_were_named_and_others_are_laid_out_together(name, named, dark):
    """Every second pair is named, the last one or the one before it; some have no way."""
    fabric = FABRICS[name]
    pairs = [(a, b) for a in fabric.hosts[:5] for b in fabric.hosts if a != b]
    lit = Circuits() if dark else start(fabric)
    routes = Routes(fabric, lit, routing("placed", fabric, pairs[named::2]))
    numbers = np.array([[fabric.host_index[h] for h in pair] for pair in pairs])
    offsets, links = routes.links_of(*numbers.T)
    assert len(offsets) == len(pairs) + 1 and offsets[-1] == len(links)
    alone = [routes.links(*pair) for pair in pairs]
    assert [tuple(links[a:b].tolist()) for a, b in pairwise(offsets.tolist())] == alone
    hashed = Routes(fabric, lit)
    assert all(alone[i] == hashed.links(*pairs[i]) for i in range(1 - named, len(pairs), 2))
    assert (() in alone) == (dark and name == "bare")


def test_routes_that_somebody_holds_are_not_worked_out_again():
    fabric = rfabric(pods=4)
    lit = start(fabric).ordered
    held, *others = [Circuits(frozenset(lit[:n])) for n in range(12)]
    routes = routes_of(fabric, held)
    for circuits in others:  # more than are kept
        routes_of(fabric, circuits)
    assert routes_of(fabric, held) is routes

"""Placing: colourings fair at every vertex, trees of packet switches as good as one switch, every
pair by the same rule.
"""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lighting import lit

from rfabric.fabric import Fabric, Link, Node, Port, fat_tree, parse_fabric
from rfabric.fabric.cabling import cabling_of
from rfabric.optics.check import faults
from rfabric.routing import placing, routes_of, schemes
from rfabric.routing.colouring import coloured
from rfabric.routing.rows import Entries
from rfabric.routing.schemes import Routing, Sent, split
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder, routing_of
from rfabric.units import transfer_seconds

RATE = 4e11
TREES = [
    "fat-tree,k=4",
    "fat-tree,k=6",
    "fat-tree,k=8",
    "fat-tree",
    "fat-tree,pods=3,tors=2,gpus=5",
    "fat-tree,pods=2,tors=3,gpus=6",
    "leaf-spine",
    "leaf-spine,tors=6,gpus=7",
    "rail-optimized",
    "rail-optimized,pods=3,servers=5,gpus=2",
]
OPTICAL = ["rfabric,pods=2,tors=2,gpus=4", "mixnet", "topoopt", "opus", "rotor,tors=6"]


def at_once(spec: str) -> Fabric:
    """A fabric whose cables have no delay: what is left of a step is bytes over rates."""
    made = parse_fabric(spec)
    return Fabric(made.name, made.nodes, tuple(replace(link, delay=0.0) for link in made.links))


def tree(arity: int, tiers: int) -> Fabric:
    """A k-ary n-tree (Petrini, Vanneschi 1997): k^n hosts below n tiers of switches with k cables
    down and k up, no delay.
    """
    wide = arity ** (tiers - 1)
    names = [[f"s{tier}x{i}" for i in range(wide)] for tier in range(tiers)]
    kinds = ["edge", "aggregation", *["core"] * tiers]
    nodes = [Node(f"h{i + 1}", "host", "host") for i in range(wide * arity)]
    nodes += [
        Node(names[t][i], "eps", kinds[t], dpid=t * wide + i + 1)
        for t in range(tiers)
        for i in range(wide)
    ]
    ends = [(f"h{i + 1}", names[0][i // arity]) for i in range(wide * arity)]
    for t, i, digit in product(range(tiers - 1), range(wide), range(arity)):
        at = arity**t
        ends.append((names[t][i], names[t + 1][i + (digit - i // at % arity) * at]))
    used, links = Counter(), []
    for pair in ends:
        used.update(pair)
        links.append(Link(*(Port(name, used[name]) for name in pair), RATE))
    return Fabric("tree", nodes, links)


def seconds(fabric: Fabric, src, dst, sent) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each kind at the busiest cable between switches, and at the busiest network
    card.
    """
    sent = np.atleast_2d(np.asarray(sent, float))
    routes = routes_of(fabric, lit(fabric), Routing("placed", Sent(src, dst, sent)))
    offsets, links = routes.links_of(src, dst)
    count, cards = 2 * len(fabric.links), cabling_of(fabric).host_link
    rows = [np.bincount(links, np.repeat(kind, np.diff(offsets)), minlength=count) for kind in sent]
    need = transfer_seconds(np.array(rows), cabling_of(fabric).rate)
    at_card = np.isin(np.arange(count) // 2, cards // 2)
    return need[:, ~at_card].max(1), need[:, at_card].max(1)


def permutations(hosts: int, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Distinct pairs of `count` permutations of the hosts: everyone sends and receives as often,
    but for those left out.
    """
    order = rng.permutation(hosts)
    src = np.concatenate([order] * count)
    dst = np.concatenate(
        [np.roll(order, turn) for turn in rng.choice(np.arange(1, hosts), count, replace=False)]
    )
    return src, dst


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2)), max_size=80),
)
def test_every_vertex_and_every_group_of_its_edges_has_equally_many_of_each_colour(colours, edges):
    left, right, group = (np.array([edge[i] for edge in edges], np.int64) for i in range(3))
    colour = coloured(left, right, colours, (group,))
    assert ((colour >= 0) & (colour < colours)).all()
    for side in (left, right):
        for vertex in (side, side * 3 + group):
            table = np.bincount(vertex * colours + colour, minlength=18 * colours).reshape(
                -1, colours
            )
            assert (np.ptp(table, axis=1) <= 1).all()


@pytest.mark.parametrize("colours", [3, 5, 7, 12, 16])
def test_a_regular_graph_of_many_edges_takes_as_many_colours_as_its_degree(colours):
    rng = np.random.default_rng(colours)
    left = np.tile(np.arange(200), colours)
    right = np.concatenate([rng.permutation(200) for _ in range(colours)])
    colour = coloured(left, right, colours)
    for side in (left, right):
        assert len(np.unique(side * colours + colour)) == len(left)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spec", TREES)
def test_a_permutation_on_a_full_tree_takes_what_it_takes_on_one_switch(spec, seed):
    fabric, rng = at_once(spec), np.random.default_rng(seed)
    hosts = len(fabric.hosts)
    b = TraceBuilder(fabric.hosts)
    to = rng.permutation(hosts)
    some = np.flatnonzero(to != np.arange(hosts))
    b.flows(some, to[some], 1e9, phase="weight_sync", label="weights")
    trace = b.build()
    ideal = simulate(at_once(f"ideal,gpus={hosts}"), trace).step_seconds
    assert simulate(fabric, trace).step_seconds == pytest.approx(ideal, rel=1e-9)


@pytest.mark.parametrize(("arity", "tiers"), [(2, 2), (2, 4), (3, 3), (4, 3), (2, 5)])
def test_a_permutation_on_a_tree_of_any_number_of_tiers_takes_what_it_takes_on_one_switch(
    arity, tiers
):
    fabric = tree(arity, tiers)
    for seed in range(3):
        src, dst = permutations(len(fabric.hosts), 1, np.random.default_rng(seed))
        b = TraceBuilder(fabric.hosts)
        b.flows(src, dst, 1e9, label="all")
        assert simulate(fabric, b.build()).step_seconds == pytest.approx(
            transfer_seconds(1e9, RATE), rel=1e-9
        )


@pytest.mark.parametrize("spec", TREES)
def test_a_regular_demand_on_a_full_tree_takes_what_it_takes_on_one_switch(spec):
    fabric = at_once(spec)
    src, dst = permutations(len(fabric.hosts), 5, np.random.default_rng(7))
    b = TraceBuilder(fabric.hosts)
    b.flows(src, dst, 1e9, label="all")
    assert simulate(fabric, b.build()).step_seconds == pytest.approx(
        transfer_seconds(5e9, RATE), rel=1e-9
    )


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(TREES),
    st.lists(
        st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 1)),
        min_size=1,
        max_size=150,
    ),
)
def test_no_cable_of_a_full_tree_needs_longer_than_the_busiest_card(spec, drawn):
    """For pairs that send equally much, each in one kind of communication: in every kind."""
    fabric = parse_fabric(spec)
    hosts = len(fabric.hosts)
    pairs = {(a % hosts, b % hosts): kind for a, b, kind in drawn if a % hosts != b % hosts}
    if not pairs:
        return
    src, dst = np.array(list(pairs)).T
    kind = np.array(list(pairs.values()))
    cable, card = seconds(
        fabric, src, dst, [np.where(kind == 0, 1e9, 0), np.where(kind == 1, 1e9, 0)]
    )
    assert (cable <= card * (1 + 1e-9)).all()


@pytest.mark.parametrize("ratio", [2, 4])
def test_an_oversubscribed_tree_needs_what_its_uplinks_need(ratio):
    fabric = fat_tree(pods=4, tors=4, gpus=8, oversubscription=ratio)
    hosts = len(fabric.hosts)
    src = np.arange(hosts)
    cable, _ = seconds(fabric, src, (src + hosts // 2) % hosts, np.full(hosts, 1e9))
    assert cable == pytest.approx(transfer_seconds(ratio * 1e9, RATE))


def test_more_pairs_than_ever_are_placed_too():
    """20,000 pairs on 1,024 GPUs, of equal size: no cable needs longer than a card, as some do by
    the hash.
    """
    fabric = parse_fabric("fat-tree", 1024)
    src, dst = permutations(1024, 20, np.random.default_rng(1))
    cable, card = seconds(fabric, src, dst, np.full(len(src), 1e9))
    assert len(src) > 20_000 and cable[0] == pytest.approx(card[0])
    b = TraceBuilder(fabric.hosts)
    b.flows(src, dst, 1e9)
    trace = b.build()
    assert routing_of("placed", fabric, trace).scheme == "placed"
    offsets, links = routes_of(fabric, ()).links_of(src, dst)
    assert np.bincount(links).max() > 20


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([*OPTICAL, "two-clusters", "leaf-spine"]),
    st.lists(
        st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(1, 9), st.integers(0, 9)),
        min_size=1,
        max_size=60,
    ),
    st.randoms(use_true_random=False),
)
def test_pairs_of_any_size_and_kind_arrive_and_their_order_changes_nothing(spec, drawn, random):
    fabric = parse_fabric(spec)
    hosts = len(fabric.hosts)
    pairs = {(a % hosts, b % hosts): sizes for a, b, *sizes in drawn if a % hosts != b % hosts}
    if not pairs:
        return
    names = [(fabric.hosts[a], fabric.hosts[b]) for a, b in pairs]
    assert faults(fabric, lit(fabric), names, placed(fabric, pairs)) == []
    again = dict(random.sample(list(pairs.items()), len(pairs)))
    ways = [
        routes_of(fabric, lit(fabric), placed(fabric, some)).links_of(*np.array(list(pairs)).T)
        for some in (pairs, again)
    ]
    assert all((one == other).all() for one, other in zip(*ways, strict=True))


def placed(fabric: Fabric, pairs: dict) -> Routing:
    return Routing("placed", Sent(*np.array(list(pairs)).T, 1e9 * np.array(list(pairs.values())).T))


@pytest.mark.parametrize("spec", OPTICAL)
def test_placed_pairs_need_no_longer_than_hashed_ones_on_circuits(spec):
    """Of pairs of random sizes, drawn a few times, the busiest cable of the placed ones is never
    the busier one.
    """
    fabric = parse_fabric(spec)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        src, dst = permutations(len(fabric.hosts), 6, rng)
        size = rng.integers(1, 10, len(src)) * 1e9
        offsets, links = routes_of(fabric, lit(fabric)).links_of(src, dst)
        load = np.bincount(
            links, np.repeat(size, np.diff(offsets)), minlength=2 * len(fabric.links)
        )
        hashed = transfer_seconds(load, cabling_of(fabric).rate).max()
        cable, card = seconds(fabric, src, dst, size)
        assert max(cable[0], card[0]) <= hashed * (1 + 1e-9)


def test_what_sends_nothing_is_placed_all_the_same():
    fabric = parse_fabric("rfabric,pods=2,tors=2,gpus=2")
    src, dst = np.array([0, 1, 2]), np.array([7, 6, 5])
    cable, card = seconds(fabric, src, dst, np.zeros(3))
    assert cable == card == 0


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([*TREES, *OPTICAL]),
    st.lists(
        st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(1, 9)),
        min_size=1,
        max_size=30,
    ),
)
def test_split_pairs_send_all_they_have_over_ways_that_join_them(spec, drawn):
    fabric = parse_fabric(spec)
    hosts, cabling = len(fabric.hosts), cabling_of(fabric)
    pairs = {(a % hosts, b % hosts): size for a, b, size in drawn if a % hosts != b % hosts}
    if not pairs:
        return
    src, dst = np.array(list(pairs)).T
    parts = split(routes_of(fabric, lit(fabric)).choices, src, dst)
    assert np.add.reduceat(parts.share, parts.first[:-1]) == pytest.approx(1.0)
    pair = np.repeat(np.arange(len(src)), np.diff(parts.first))
    first, last = parts.links[parts.offsets[:-1]], parts.links[parts.offsets[1:] - 1]
    assert (first == cabling.host_link[src[pair]]).all() and (
        last == cabling.host_link[dst[pair]] ^ 1
    ).all()
    on = np.flatnonzero(np.diff(np.repeat(np.arange(len(pair)), np.diff(parts.offsets))) == 0)
    assert (cabling.node[parts.links[on] ^ 1] == cabling.node[parts.links[on + 1]]).all()


@pytest.mark.parametrize("spec", TREES)
def test_split_pairs_load_every_cable_as_an_even_split_at_every_switch_does(spec):
    fabric = parse_fabric(spec)
    src, dst = permutations(len(fabric.hosts), 2, np.random.default_rng(3))
    routes, c = routes_of(fabric, ()), cabling_of(fabric)
    parts = split(routes.choices, src, dst)
    share = np.repeat(parts.share, np.diff(parts.offsets))
    load = np.bincount(parts.links, share, minlength=2 * len(fabric.links))
    sent = np.zeros((len(fabric.racks),) * 2)
    np.add.at(sent, (c.host_rack[src], c.host_rack[dst]), c.host_rack[src] != c.host_rack[dst])
    lights = routes.lights
    between = np.setdiff1d(
        np.arange(len(lights)), np.flatnonzero(np.isin(lights.out // 2, c.host_link // 2))
    )
    assert load[lights.links[lights.offsets[between]]] == pytest.approx(
        routes.ways.loads(Entries.of(sent))[between]
    )


def test_pairs_of_hundreds_of_kinds_are_placed_by_all_that_they_send():
    rng = np.random.default_rng(0)
    src, dst = (ends.ravel() for ends in np.meshgrid(np.arange(40), np.arange(40), indexing="ij"))
    src, dst = src[src != dst], dst[src != dst]
    many = (rng.random((300, len(src))) < 0.1) * 1e9
    lumped = schemes._lumped(Sent(src, dst, many))
    assert lumped.bytes.shape == (1, len(src)) and (lumped.bytes[0] == many.sum(0)).all()
    few = Sent(src, dst, many[:20])  # as jobs have
    alike = Sent(src, dst, np.repeat(many[:1], 300, 0))
    assert schemes._lumped(few) is few and schemes._lumped(alike) is alike


@pytest.mark.parametrize(
    ("kinds", "combined", "each"), [(64, 600, True), (65, 512, True), (65, 513, False)]
)
def test_kinds_are_placed_each_while_they_or_their_combinations_are_few(kinds, combined, each):
    """Pairs send in the kinds that the binary digits of their number say, `combined` in turn."""
    src, dst = np.divmod(np.arange(600), 25)
    sent = np.zeros((kinds, 600))
    sent[:10] = 1e9 * (np.arange(600) % combined >> np.arange(10)[:, None] & 1)
    assert len(schemes._lumped(Sent(src, dst, sent)).bytes) == (kinds if each else 1)


@given(st.integers(0, 2**32 - 1))
def test_what_some_pairs_send_is_as_if_nothing_else_were_sent(seed):
    rng = np.random.default_rng(seed)
    codes = np.sort(rng.choice(64, rng.integers(1, 12), replace=False))
    sent = Sent(codes // 8, codes % 8, (rng.random((3, len(codes))) < 0.6) * rng.random(len(codes)))
    some = np.flatnonzero(rng.random(len(codes)) < 0.7)
    part, made = sent.part(some), Sent(sent.src[some], sent.dst[some], sent.bytes[:, some])
    for name in ("src", "dst", "bytes", "codes"):
        assert np.array_equal(getattr(part, name), getattr(made, name))
    assert sent.part(some.copy()) is part  # kept
    assert sent.part(np.zeros(0, np.int64)) is not part or not len(some)
    kinds, rate = part.kinds, rng.uniform(1e9, 4e9, 8)
    for ends in (part.src, part.dst):
        loads = [np.bincount(ends, of_kind, minlength=8) for of_kind in part.bytes]
        assert kinds.busiest(ends, rate).tolist() == [
            transfer_seconds(load, rate).max() for load in loads
        ]
    for pair in range(len(some)):
        own = slice(kinds.first[pair], kinds.first[pair + 1])
        assert kinds.kind[own].tolist() == np.flatnonzero(part.bytes[:, pair]).tolist()
        assert kinds.bytes[own].tolist() == part.bytes[part.bytes[:, pair] > 0, pair].tolist()
        assert kinds.kinds[kinds.signature[pair]].tolist() == kinds.kind[own].tolist()
        heavier = kinds.total[kinds.total > kinds.total[pair]]
        assert kinds.lightness[pair] == len(set(heavier.tolist()))


@pytest.mark.parametrize("most", [2, 5, 40])
@pytest.mark.parametrize("late", [2, 3, 7, 10, 32])
def test_of_pairs_on_one_late_cable_few_are_looked_at_at_a_time(late, most, monkeypatch):
    """One by one while they are no more than `most`; else in so many rounds of about equally many.
    Each of them is looked at once.
    """
    monkeypatch.setattr(placing, "MOST_PARTS", most)
    fabric = parse_fabric(f"leaf-spine,tors=2,gpus={late}")
    src = np.arange(late)
    sent = Sent(src, late + src, 1e9 + src)
    choices = routes_of(fabric, lit(fabric)).choices
    racks = cabling_of(fabric).host_rack
    placer = placing.Placer(choices, sent.kinds, racks[sent.src], racks[sent.dst])
    one_way = np.repeat(choices.every(np.array([0]), np.array([1])).rows[:1], late, 0)
    placer._place(one_way, np.array([np.inf]))
    rounds = []
    monkeypatch.setattr(placer, "_shift", lambda pairs, *_: rounds.append(pairs) or len(pairs))
    assert placer._move(np.zeros(1)) == late
    assert len(rounds) == min(late, most)
    assert sorted(np.concatenate(rounds)) == src.tolist()
    assert np.ptp([len(some) for some in rounds]) <= 1


def test_a_pair_waits_for_others_a_few_rounds_and_no_more(monkeypatch):
    """Where all arcs are taken, for ever: of several ways it then takes the cheapest."""
    fabric, rounds = parse_fabric("leaf-spine,tors=2,gpus=3"), []
    one = Sent(np.array([0]), np.array([4]), np.array([1e9]))
    placer = placing.Placer(
        routes_of(fabric, lit(fabric)).choices, one.kinds, *np.array([[0], [1]])
    )
    monkeypatch.setattr(placing, "loops", lambda: None)
    monkeypatch.setattr(placer, "_claims", lambda arcs: rounds.append(1) or np.zeros(1, bool))
    placer._place(np.zeros((1, 0), np.int64), np.array([np.inf]))
    assert len(rounds) == placing.PATIENCE + 1 and (placer.arcs < placer.nowhere).any()

"""Light paths, ways and schemes against networkx on `Fabric.graph`, closed forms and brute
force.
"""

from collections import Counter
from dataclasses import replace
from itertools import islice, permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.fabric import Fabric, fat_tree, parse_fabric, rfabric
from rfabric.fabric.cabling import cabling_of
from rfabric.optics import Circuit, Circuits, light
from rfabric.routing import Routes, colouring, light_paths, placing, routes_of
from rfabric.routing.choices import Bundles
from rfabric.routing.colouring import coloured
from rfabric.routing.placing import Kinds, Placer
from rfabric.routing.rows import Entries, some_of
from rfabric.routing.schemes import Sent, _over, _two_hops, _weighted, split
from rfabric.routing.tiers import tiered
from rfabric.routing.ways import KEPT_LOADS
from rfabric.units import transfer_seconds

FABRICS = {
    "two pods": rfabric(pods=2, tors=2, gpus=2, planes=2),
    "no thin cables": rfabric(pods=2, tors=3, gpus=1, planes=2, electrical=0),
    "rotor": parse_fabric("rotor,tors=4,gpus=2"),
}
FOUR = rfabric(pods=1, tors=4, gpus=1, planes=2)


def any_circuits(fabric):
    """Any matching of the ports of each OCS: ways may end in the dark, or run in a ring."""

    def matched(orders, count):
        pairs = [(order[i], order[i + 1]) for order in orders for i in range(0, len(order) - 1, 2)]
        return Circuits(frozenset(Circuit.of(a, b) for a, b in pairs[: count * len(pairs) // 4]))

    orders = st.tuples(*(st.permutations(fabric.ports[node.name]) for node in fabric.ocses))
    return st.builds(matched, orders, st.integers(0, 4))


DRAWN = st.sampled_from(sorted(FABRICS)).flatmap(
    lambda name: st.tuples(st.just(FABRICS[name]), any_circuits(FABRICS[name]))
)


def switches(fabric, circuits):
    """The packet switches of `Fabric.graph` alone, with what a light path costs: reference over its
    rate.
    """
    graph = fabric.graph(circuits)
    graph.remove_nodes_from(fabric.hosts)
    reference = max(cable.rate for cable in fabric.links)
    for *_, light_path in graph.edges(data=True):
        light_path["cost"] = reference / light_path["rate"]
    return graph


@settings(max_examples=25, deadline=None)
@given(DRAWN)
def test_the_graph_people_get_has_the_light_paths_that_packets_take(drawn):
    fabric, circuits = drawn
    # where a directed link ends
    ports = [end for cable in fabric.links for end in (cable.b, cable.a)]
    edges = fabric.graph(circuits).edges(data=True)
    of_graph = {(e["out"], ports[e["links"][-1]], e["links"], e["rate"]) for _, _, e in edges}
    paths = light_paths(fabric, circuits)
    assert len(paths) == len(edges)
    assert {(p.out, p.into, p.links, p.rate) for p in paths} == of_graph


@settings(max_examples=25, deadline=None)
@given(DRAWN)
def test_light_paths_are_the_same_however_cables_are_ordered(drawn):
    """Here those of OCSes come first, and begin there."""
    fabric, circuits = drawn
    ocses = {node.name for node in fabric.ocses}
    turned = [replace(c, a=c.b, b=c.a) if c.b.node in ocses else c for c in fabric.links]
    links = sorted(turned, key=lambda cable: cable.a.node not in ocses)
    paths, others = (
        {(p.out, p.into, len(p.links), p.rate) for p in light_paths(some, circuits)}
        for some in (fabric, Fabric("turned", fabric.nodes, links))
    )
    assert paths == others


@settings(max_examples=25, deadline=None)
@given(DRAWN)
def test_a_directed_link_is_on_one_light_path_at_most(drawn):
    lit = routes_of(*drawn).lights
    ends = zip(lit.offsets, lit.offsets[1:], strict=False)
    on = {link: i for i, (a, b) in enumerate(ends) for link in lit.links[a:b].tolist()}
    assert len(on) == len(lit.links)
    assert lit.path_of.tolist() == [on.get(link, len(lit)) for link in range(len(lit.cross))]


@settings(max_examples=20, deadline=None)
@given(DRAWN)
def test_costs_and_cuts_are_those_of_networkx(drawn):
    fabric, circuits = drawn
    routes, graph = Routes(fabric, circuits), switches(fabric, circuits)
    reached = dict(nx.all_pairs_dijkstra_path_length(graph, weight="cost"))
    for node in graph:
        for rack in fabric.racks:
            assert routes.cost(node, rack) == pytest.approx(reached[node].get(rack, np.inf))
    apart = [a for a in fabric.racks if not nx.has_path(graph, fabric.racks[0], a)]
    assert routes.joins_all == (not apart)
    lost = routes.lost([(fabric.hosts[0], host) for host in fabric.hosts])
    assert {fabric.rack_of[host] for _, host in lost} == set(apart)


@settings(max_examples=15, deadline=None)
@given(DRAWN)
def test_the_cheapest_ways_are_all_shortest_paths(drawn):
    """As rows of switches; `every` has those of one and two bundles and on cables alone besides."""
    fabric, circuits = drawn
    choices, graph = routes_of(fabric, circuits).choices, switches(fabric, circuits)
    names = [node.name for node in fabric.nodes if node.kind == "eps"]
    pairs = list(permutations(range(len(fabric.racks)), 2))
    cheapest = ways_of(choices.cheapest, choices.bundles, names, fabric.racks, pairs)
    every = ways_of(choices.every, choices.bundles, names, fabric.racks, pairs)
    direct = ways_of(choices.direct, choices.bundles, names, fabric.racks, pairs)
    calm = switches(fabric, ())
    for pair, offered in cheapest.items():
        shortest = all_shortest(graph, pair)
        assert set(offered) == shortest and len(offered) == len(shortest)
        short = {
            way
            for way in nx.all_simple_paths(nx.DiGraph(graph), *pair, cutoff=2)
            for way in [tuple(way)]
        }
        wanted = shortest | short | all_shortest(calm, pair)
        assert set(every[pair]) == wanted and len(every[pair]) == len(wanted)
        passes = {way for way in wanted if not set(way[1:-1]) & set(fabric.racks)}
        assert set(direct[pair]) == shortest | passes


def all_shortest(graph, pair):
    """Rows of switches of the cheapest ways; none where nothing leads there."""
    if not nx.has_path(graph, *pair):
        return set()
    plain = nx.DiGraph()
    for a, b, light_path in graph.edges(data=True):
        cost = min(light_path["cost"], plain.get_edge_data(a, b, {"cost": np.inf})["cost"])
        plain.add_edge(a, b, cost=cost)
    every = nx.all_shortest_paths(plain, *pair, weight="cost")
    return set(map(tuple, islice(every, 128)))


def ways_of(offered, bundles, names, racks, pairs):
    """By names of racks: the rows of switches that are offered."""
    offers = offered(*(np.array(ends) for ends in zip(*pairs, strict=True)))
    ways = {}
    for i, (a, b) in enumerate(pairs):
        rows = offers.rows[offers.first[i] : offers.first[i + 1]]
        leads = [[names[bundles.leads[x]] for x in row if x < bundles.nowhere] for row in rows]
        ways[racks[a], racks[b]] = [(racks[a], *way) for way in leads]
    return ways


@settings(max_examples=15, deadline=None)
@given(DRAWN, st.integers(0, 5), st.integers(1, 5))
def test_loads_split_evenly_at_every_switch(drawn, a, step):
    fabric, circuits = drawn
    racks = fabric.racks
    src, dst = racks[a % len(racks)], racks[(a + step) % len(racks)]
    graph, routes = switches(fabric, circuits), routes_of(fabric, circuits)
    if src == dst or not nx.has_path(graph, src, dst):
        return
    left = nx.single_source_dijkstra_path_length(graph.reverse(), dst, weight="cost")
    held, wanted = {src: 1.0}, {}
    for node in sorted(left, key=left.get, reverse=True):
        if node == dst or node not in held:
            continue
        onward = [
            (b, e) for _, b, e in graph.out_edges(node, data=True)
            if b in left and left[b] + e["cost"] == pytest.approx(left[node])
        ]  # fmt: skip
        for b, e in onward:
            wanted[e["links"]] = held[node] / len(onward)
            held[b] = held.get(b, 0.0) + held[node] / len(onward)
    sent = Entries(*(np.array([routes.fabric.rack_index[rack]]) for rack in (src, dst)), np.ones(1))
    load = routes.ways.loads(sent)
    loads = {routes.light_path(i).links: x for i, x in enumerate(load.tolist()) if x}
    assert loads == pytest.approx(wanted) and held[dst] == pytest.approx(1.0)


# --- what schemes choose --------------------------------------------------------------------------


def named(fabric, *matchings):
    return light(
        fabric, {i: [(f"t{a}", f"t{b}") for a, b in some] for i, some in enumerate(matchings)}
    )


def test_what_goes_over_a_rack_passes_no_switch_twice_and_is_whole():
    """t1 stands between all others: nothing can go over a third rack, whichever it is."""
    star = rfabric(pods=1, tors=4, gpus=1, planes=3, electrical=0)
    hub = routes_of(star, named(star, [(1, 2)], [(1, 3)], [(1, 4)])).choices
    triples = np.array([t for t in permutations(range(4), 3) if 0 not in t])
    codes = np.arange(len(triples), dtype=np.uint64)
    none = _over(hub, *triples.T, codes)
    assert (none == hub.bundles.nowhere).all()
    over = _over(hub, np.array([1]), np.array([0]), np.array([2]), codes[:1])
    assert hub.bundles.leads[over[over < hub.bundles.nowhere]].tolist() == [0, 2]


def test_half_a_way_is_none():
    """t1 and t2 are joined, t3 is not: over t2 nobody comes from t1 to t3."""
    pair = rfabric(pods=1, tors=4, gpus=1, planes=1, electrical=0)
    some = routes_of(pair, named(pair, [(1, 2)])).choices
    rows = _over(some, np.array([0]), np.array([1]), np.array([2]), np.zeros(1, np.uint64))
    assert (rows == some.bundles.nowhere).all()


def test_valiant_goes_over_a_third_rack_wherever_one_leads_on():
    """Four racks, each joined to each other: always two circuits, over either of the two others."""
    full = rfabric(pods=1, tors=4, gpus=4, planes=3, electrical=0)
    routes = routes_of(full, named(full, [(1, 2), (3, 4)], [(1, 3), (2, 4)], [(1, 4), (2, 3)]))
    c = cabling_of(full)
    src, dst = np.nonzero(c.host_rack[:, None] != c.host_rack)
    rack, to = c.host_rack[src], c.host_rack[dst]
    hops = _two_hops(routes.choices, Sent(src, dst, np.ones((1, len(src)))), rack, to)
    assert ((hops >= 0).sum(1) == 2).all()
    into = c.row[c.node[routes.lights.into[hops[hops >= 0].reshape(-1, 2)]]]
    assert (into[:, 1] == c.rack_row[to]).all()
    middles = Counter(zip(rack.tolist(), into[:, 0].tolist(), to.tolist(), strict=True))
    assert all(len({a, m, b}) == 3 for a, m, b in middles) and len(middles) == 24


def test_wcmp_takes_ways_as_often_as_they_are_wide():
    """A circuit of 400 Gbit/s beside a thin cable of 100: four of five, of 1,024 pairs give or take
    three sigma.
    """
    two = rfabric(pods=1, tors=2, gpus=32, planes=1)
    routes = routes_of(two, named(two, [(1, 2)]))
    src, dst = (
        ends.ravel() for ends in np.meshgrid(np.arange(32), np.arange(32, 64), indexing="ij")
    )
    sent = Sent(src, dst, np.ones((1, len(src))))
    hops = _weighted(routes.choices, sent, np.zeros(len(src), int), np.ones(len(src), int))
    fast = routes.lights.rate[hops[:, 0]] == 4e11
    assert abs(fast.mean() - 0.8) < 3 * (0.8 * 0.2 / len(src)) ** 0.5


def test_shares_of_a_split_flow_follow_the_width_of_its_ways():
    """Two circuits and none thin: half each; they add up to one for every pair."""
    routes = routes_of(FOUR, named(FOUR, [(1, 2), (3, 4)], [(1, 2)]))
    every = np.array(list(permutations(range(4), 2)))
    ways = split(routes.choices, *every.T)
    assert np.add.reduceat(ways.share, ways.first[:-1]) == pytest.approx(1.0)
    assert ways.share[ways.first[0] : ways.first[1]].tolist() == [0.5, 0.5]
    one = ways.share[ways.first[len(every) - 1] :]
    assert one.tolist() == [1.0]  # t4 to t3: one circuit


def test_of_many_ways_each_pair_keeps_so_many_spread_over_all():
    key = np.repeat([0, 1, 2], [100, 3, 40])
    kept = some_of(key, 20)
    assert np.bincount(key[kept]).tolist() == [20, 3, 20] and (np.diff(kept) > 0).all()
    assert kept[:20].max() >= 50 and kept[:20].min() < 50  # no corner is preferred
    assert some_of(key, 100).tolist() == list(range(143))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(0, 4)] * 2, st.integers(0, 1)), min_size=1, max_size=60),
    st.integers(1, 7),
)
def test_colours_are_dealt_evenly_at_every_vertex_and_in_every_group(edges, colours):
    left, right, group = (np.array(column) for column in zip(*edges, strict=True))
    colour = coloured(left, right, colours, (group,))
    assert ((colour >= 0) & (colour < colours)).all()
    for side in (left, right):
        for cell in (side, 2 * side + group):
            counts = np.zeros((cell.max() + 1, colours), int)
            np.add.at(counts, (cell, colour), 1)
            assert (counts.max(1) - counts.min(1) <= 1).all()


@pytest.mark.parametrize("colours", [2, 4, 8, 6])
def test_a_power_of_two_of_colours_is_made_by_halves_alone(colours, monkeypatch):
    """Dealing, and splitting uneven pairs of colours anew, is for what halves leave: 6 = 2 x 3."""
    dealt, deal = [], colouring._dealt
    monkeypatch.setattr(colouring, "_dealt", lambda *some: dealt.append(some[2]) or deal(*some))
    left, right = (np.array(ends) for ends in zip(*permutations(range(9), 2), strict=True))
    colour = coloured(left, right, colours)
    assert dealt == ([3] if colours == 6 else [])
    assert set(colour.tolist()) == set(range(colours))


@pytest.mark.parametrize(
    "fabric", [fat_tree(pods=2, tors=2, gpus=2), fat_tree(k=4), parse_fabric("leaf-spine")],
    ids=["two tiers", "k-ary", "leaf-spine"],
)  # fmt: skip
def test_every_pair_of_a_tree_climbs_to_a_part_both_ends_reach(fabric):
    bundles = Bundles(routes_of(fabric).ways)
    rack_row = cabling_of(fabric).rack_row
    start, end = rack_row[np.array(list(permutations(range(len(fabric.racks)), 2))).T]
    rows = tiered(bundles, start, end, ())
    at = start.copy()
    for bundle in rows.T:
        on = bundle < bundles.nowhere
        assert (bundles.leaves[bundle[on]] == at[on]).all()
        at[on] = bundles.leads[bundle[on]]
    assert (at == end).all()
    first = Counter(zip(start.tolist(), rows[:, 0].tolist(), strict=True))
    for rack in set(start.tolist()):
        taken = [n for (a, _), n in first.items() if a == rack]
        assert max(taken) - min(taken) <= 1 and len(taken) == (bundles.leaves == rack).sum()


def test_a_rack_takes_as_long_as_all_its_cables_together_would():
    """t1 sends 1 TB to t2 and 1 TB to t3 over a circuit and a thin cable; t4 sends nothing."""
    choices = routes_of(FOUR, named(FOUR, [(1, 2)])).choices
    sent = np.array([[1e12, 0.0], [0.0, 1e12]])
    placer = Placer(choices, Kinds(sent), np.array([0, 0]), np.array([1, 2]))
    both, thin = transfer_seconds(1e12, 5e11), transfer_seconds(1e12, 1e11)
    # t3 receives by its thin cable alone
    assert placer._rack_seconds == pytest.approx([both, thin])


def test_the_last_few_loads_are_not_counted_again(monkeypatch):
    ways, counted = Routes(FOUR, named(FOUR, [(1, 2)])).ways, []
    evenly = ways._by_arc
    monkeypatch.setattr(ways, "_by_arc", lambda sent: counted.append(sent) or evenly(sent))

    def asked(number):
        sent = np.zeros((4, 4))
        sent[0, 1] = number
        return ways.loads(Entries.of(sent)).sum()

    loads = [asked(number) for number in range(1, KEPT_LOADS + 1)]
    assert [asked(number) for number in range(1, KEPT_LOADS + 1)] == loads
    assert len(counted) == KEPT_LOADS and loads[2] == pytest.approx(3 * loads[0])
    asked(KEPT_LOADS + 1)
    asked(2)
    assert len(counted) == KEPT_LOADS + 1
    asked(1)  # the one that was asked longest ago is no longer kept
    assert len(counted) == KEPT_LOADS + 2


def test_many_pairs_look_at_few_ways_each(monkeypatch):
    """Few pairs at all that a rack has; more at LEAST_WAYS at least, while memory holds those."""
    choices = routes_of(FOUR, named(FOUR, [(1, 2)])).choices
    monkeypatch.setattr(placing, "MOST_ROWS", 2000)
    monkeypatch.setattr(placing, "ALL_ROWS", 6000)

    def most(pairs):
        ends = np.zeros(pairs, int), np.ones(pairs, int)
        return Placer(choices, Kinds(np.ones((1, pairs))), *ends).most

    assert [most(n) for n in (0, 1, 100, 200)] == [128, 128, 20, placing.LEAST_WAYS]
    assert [most(n) for n in (600, 6000, 7000)] == [10, 1, 1]


def test_pairs_whose_cheapest_way_begins_at_another_rack_are_not_dealt_by_tiers():
    choices = routes_of(FOUR, named(FOUR, [(1, 2)])).choices
    every = np.array(list(permutations(range(4), 2)))
    placer = Placer(choices, Kinds(np.ones((1, len(every)))), *every.T)
    level = dict(zip(placer.racks.tolist(), placer._level.tolist(), strict=True))
    across = {(a, b) for a, b in every.tolist() if level[a << 32 | b]}
    assert across == {(0, 1), (1, 0)}


def test_links_of_ways_laid_out_at_once_are_those_walked_one_by_one():
    """Hosts of one rack, of racks one circuit apart and of racks that a thin cable alone joins."""
    fabric = FABRICS["two pods"]
    routes = Routes(fabric, named(fabric, [(1, 3)], [(1, 2)]))
    every = np.array(list(permutations(range(len(fabric.hosts)), 2)))
    offsets, links = routes.ways.links(*every.T)
    for i, (src, dst) in enumerate(every.tolist()):
        walked = routes.links(fabric.hosts[src], fabric.hosts[dst])
        assert tuple(links[offsets[i] : offsets[i + 1]].tolist()) == walked
        assert fabric.links[walked[0] // 2].a.node == fabric.hosts[src]
        assert fabric.links[walked[-1] // 2].a.node == fabric.hosts[dst]


def test_pairs_alike_take_the_arcs_of_a_bundle_in_turn():
    """Eight pairs of hosts from leaf to leaf over bundles of two: every light path carries as
    many.
    """
    fabric = parse_fabric("rfabric,pods=1,tors=2,gpus=8,planes=4,electrical=0")
    routes = routes_of(fabric, named(fabric, *[[(1, 2)]] * 4))
    src, dst = np.arange(8), np.arange(8, 16)
    hops = Placer(routes.choices, Kinds(np.ones((1, 8))), np.zeros(8, int), np.ones(8, int)).run(
        np.zeros(1)
    )
    c, into = cabling_of(fabric), Counter(hops[hops >= 0].tolist())
    assert sorted(into.values()) == [2, 2, 2, 2] and (c.host_rack[src] != c.host_rack[dst]).all()

"""Networks so small that every way of them can be listed, and placings with a closed form."""

from collections import Counter
from itertools import pairwise, permutations, product

import numpy as np
import pytest

from rfabric.errors import RFabricError
from rfabric.fabric import Fabric, Link, Node, Port, parse_fabric, rfabric
from rfabric.fabric.cabling import cabling_of
from rfabric.optics import Circuits, light
from rfabric.routing import Routes, choices, placing, routes_of, schemes, ways
from rfabric.routing.choices import Bundles
from rfabric.routing.placing import Kinds, Placer
from rfabric.routing.rows import Entries
from rfabric.routing.schemes import CHOOSERS, SCHEMES, Routing, Sent, _leads, split
from rfabric.routing.tiers import tiered
from rfabric.units import transfer_seconds

FAST, THIN = 4e11, 1e11


@pytest.fixture(params=["core", "python"])
def either(request, monkeypatch):
    """The inner loops in the compiled core, and in Python."""
    if request.param == "python":
        for room in (ways, choices, placing):
            monkeypatch.setattr(room, "loops", lambda: None)


def cabled(*cables: tuple[str, str, float]) -> Fabric:
    """Hosts h*, racks t* and spines s*, joined by these cables (rate in bit/s), in this order."""
    names = sorted({name for *ends, _ in cables for name in ends})
    kinds = {"h": ("host", "host"), "t": ("eps", "edge"), "s": ("eps", "core")}
    switches = [name for name in names if name[0] != "h"]
    nodes = [Node(name, *kinds["h"]) for name in names if name[0] == "h"]
    nodes += [Node(name, *kinds[name[0]], dpid=i) for i, name in enumerate(switches, 1)]
    used, links = Counter(), []
    for *ends, rate in cables:
        used.update(ends)
        links.append(Link(*(Port(name, used[name]) for name in ends), rate))
    return Fabric("cabled", nodes, links)


def line(rate: float = FAST) -> list[tuple[str, str, float]]:
    """Two racks and the cable between them, which stands first: its links are 0 and 1."""
    return [("t1", "t2", rate), *((f"h{i}", f"t{1 + i // 2}", FAST) for i in range(4))]


def full() -> tuple[Fabric, Circuits]:
    """Four racks, each with a circuit to each other and a thin cable to a common switch."""
    fabric = rfabric(pods=1, tors=4, gpus=2, planes=3)
    rounds = ((1, 2), (3, 4)), ((1, 3), (2, 4)), ((1, 4), (2, 3))
    return fabric, light(
        fabric, {i: [(f"t{a}", f"t{b}") for a, b in some] for i, some in enumerate(rounds)}
    )


def switches_on(fabric: Fabric, links) -> list[str]:
    """The switches that directed links lead to, the last one's host left out."""
    ends = [(fabric.links[i // 2].a, fabric.links[i // 2].b)[1 - i % 2].node for i in links]
    return ends[:-1]


# --- numbers of cables and of pairs mean nothing --------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_first_cable_of_a_fabric_is_one_like_any_other(scheme, either):
    """Light path 0 is the one that every pair must take."""
    fabric = cabled(*line())
    src, dst = np.array([0, 2, 0]), np.array([3, 1, 1])
    sent = Sent(src, dst, np.ones((1, 3))) if scheme == "placed" else None
    routes = Routes(fabric, (), Routing(scheme, sent))
    told = switches_on(fabric, routes.links("h0", "h3"))
    # no rack is left to go over: valiant takes the cheapest way
    assert told == ["t1", "t2"] and routes.links("h2", "h1")[1:-1] == (1,)
    assert switches_on(fabric, routes.links("h0", "h1")) == ["t1"]
    offsets, links = routes.links_of(src, dst)
    assert offsets.tolist() == [0, 3, 6, 8] and links[[1, 4]].tolist() == [0, 1]


def test_a_split_flow_takes_the_first_cable_too():
    fabric = cabled(*line())
    parts = split(routes_of(fabric).choices, np.array([0, 0]), np.array([3, 1]))
    assert parts.share.tolist() == [1.0, 1.0] and np.diff(parts.offsets).tolist() == [3, 2]
    assert parts.links[1] == 0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_pair_has_one_way_whoever_asked_before(scheme):
    """Alone, after another one, and among all: with several ways to choose from."""
    fabric, lit = full()
    src, dst = (ends.ravel() for ends in np.indices((8, 8)))
    src, dst = src[src != dst], dst[src != dst]
    sent = Sent(src, dst, np.ones((1, len(src)))) if scheme == "placed" else None
    routing = Routing(scheme, sent)
    offsets, links = routes_of(fabric, lit, routing).links_of(src, dst)
    asked = Routes(fabric, lit, routing)
    for i in range(0, len(src), 3):
        alone = asked.links(fabric.hosts[src[i]], fabric.hosts[dst[i]])
        assert tuple(links[offsets[i] : offsets[i + 1]].tolist()) == alone


@pytest.mark.parametrize("spec", ["circuits", "leaf-spine,tors=3,gpus=3"])
def test_every_way_is_offered_once_and_direct_ones_pass_no_third_rack(spec):
    """With circuits: straight, over either other rack, over the thin cables."""
    fabric, lit = full() if spec == "circuits" else (parse_fabric(spec), ())
    choices, racks = routes_of(fabric, lit).choices, len(fabric.racks)
    some, is_rack = choices.bundles, cabling_of(fabric).rack_row
    rack, to = np.array(list(permutations(range(racks), 2))).T
    for offers, count in ((choices.every(rack, to), 4), (choices.direct(rack, to), 2)):
        assert (offers.counts == (count if fabric.ocses else len(fabric.switches) - racks)).all()
        for i in range(len(rack)):
            rows = offers.rows[offers.first[i] : offers.first[i + 1]]
            assert len(np.unique(rows, axis=0)) == len(rows)
            for row in rows:
                passed = np.isin(some.leads[row[row < some.nowhere]], is_rack).sum()
                assert passed == 1 or (count == 4 and passed == 2)


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5])
def test_no_more_ways_are_offered_than_asked_for_the_cheapest_first(most):
    """Of four: straight on, over either other rack, over the thin cables."""
    fabric, lit = full()
    choices = routes_of(fabric, lit).choices
    rack, to = np.array(list(permutations(range(len(fabric.racks)), 2))).T
    offers, cheapest = choices.every(rack, to, most), choices.cheapest(rack, to, most)
    assert (offers.counts == min(most, 4)).all() and (cheapest.counts == 1).all()
    width = cheapest.rows.shape[1]
    assert (offers.rows[offers.first[:-1], :width] == cheapest.rows).all()


# --- rows of light paths --------------------------------------------------------------------------


def walked(choices, row: list[int], rack: int, to: int) -> bool:
    """Whether a row leads from rack to rack, step by step, and passes no switch twice."""
    c, lit = choices.ways.cabling, choices.ways.lights
    end = len(row)
    while end and row[end - 1] == -1:
        end -= 1
    racks = [int(np.flatnonzero(c.row == c.rack_row[i])[0]) for i in (rack, to)]
    passed = racks[:1]  # nodes
    for path in row[:end]:
        if not 0 <= path < len(lit) or c.node[lit.out[path]] != passed[-1]:
            return False
        passed.append(int(c.node[lit.into[path]]))
    return passed[-1] == racks[1] and len(set(passed)) == len(passed)


def test_a_strangers_row_passes_where_a_walk_along_it_arrives():
    """Every row of three light paths, numbers too low and too high among them, and those from and
    to hosts: they pass nothing on.
    """
    spines = [(t, s, FAST) for t in ("t1", "t2") for s in ("s1", "s2")]
    choices = routes_of(cabled(("t1", "t2", FAST), *spines, ("h1", "t1", 1e9), ("h2", "t2", 1e9)))
    choices = choices.choices
    count = len(choices.ways.lights)
    rows = np.array(list(product(range(-2, count + 1), repeat=3)))
    ends = np.zeros(len(rows), int), np.ones(len(rows), int)
    passed = _leads(choices, rows, *ends)
    assert passed.tolist() == [walked(choices, row, 0, 1) for row in rows.tolist()]
    assert passed.sum() == 1 + 2  # straight on, and over either spine


@pytest.mark.parametrize("name", sorted(CHOOSERS))
@pytest.mark.parametrize("spec", ["leaf-spine,tors=3,gpus=3", "rfabric,pods=2,tors=2,gpus=2"])
def test_our_own_schemes_answer_as_a_strangers_must(name, spec):
    fabric = parse_fabric(spec)
    pairs = {}
    if fabric.ocses:
        pairs = {0: [("t1", "t2"), ("t3", "t4")], 1: [("t1", "t3")]}
    choices = routes_of(fabric, light(fabric, pairs)).choices
    c = cabling_of(fabric)
    src, dst = np.nonzero(c.host_rack[:, None] != c.host_rack)
    ends = c.host_rack[src], c.host_rack[dst]
    paths = CHOOSERS[name](choices, Sent(src, dst, np.ones((1, len(src)))), *ends)
    assert _leads(choices, paths, *ends).all()


STRANGER = """
import numpy as np
def first(choices, sent, rack, to):
    offers, some = choices.cheapest(rack, to), choices.bundles
    rows = offers.rows[offers.first[:-1]]
    paths = np.append(some.path, -1)[np.append(some.first, -1)[rows]]
    return {answer}
routings = {{"first": first}}
"""


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("paths", ""),
        ("paths[0]", "not whole numbers of shape"),
        ("paths[1:]", "not whole numbers of shape"),
        ("paths * 1.0", "not whole numbers of shape"),
        ("paths[::-1]", "is no path from rack 0 to rack 1"),
    ],
)
def test_a_strangers_scheme_is_taken_where_every_row_is_a_way(answer, why, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(STRANGER.format(answer=answer))
    fabric = cabled(*line())
    routes = Routes(fabric, (), Routing(str(file)))
    asked = np.array([0, 2]), np.array([3, 1])
    if why:
        with pytest.raises(RFabricError, match=why):
            routes.links_of(*asked)
    else:
        assert routes.links_of(*asked)[1][[1, 4]].tolist() == [0, 1]


# --- what is placed -------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [5, 10, 40])
def test_pairs_move_to_a_second_way_until_both_need_as_long(pairs, either):
    """A circuit of 400 Gbit/s beside a thin path of 100: four of five on the circuit."""
    two = rfabric(pods=1, tors=2, gpus=40, planes=1)
    routes = routes_of(two, light(two, {0: [("t1", "t2")]}))
    ends = np.zeros(pairs, int), np.ones(pairs, int)
    hops = Placer(routes.choices, Kinds(np.full((1, pairs), 1e9)), *ends).run(np.zeros(1))
    fast = routes.lights.rate[hops[:, 0]] == FAST
    assert fast.sum() == pairs * 4 // 5
    # what network cards need anyway is no reason to leave the circuit
    calm = Placer(routes.choices, Kinds(np.full((1, pairs), 1e9)), *ends).run(np.full(1, 1e3))
    assert (routes.lights.rate[calm[:, 0]] == FAST).all()


@pytest.mark.parametrize(
    ("faster", "late", "moves"),
    [(1.0005, 9.0, False), (1.002, 9.0, True), (2.0, 1.0, False), (2.0, 1.0005, False),
     (2.0, 1.002, True)],
)  # fmt: skip
def test_a_pair_moves_for_more_than_a_thousandth_of_its_seconds(faster, late, moves, either):
    """It lies over one spine, whose cables need so many times what cards do; those of the other are
    faster.
    """
    rates = ("s1", FAST), ("s2", faster * FAST)
    spines = [(t, s, rate) for t in ("t1", "t2") for s, rate in rates]
    fabric = cabled(*spines, *line()[1:])
    choices, c = routes_of(fabric).choices, cabling_of(fabric)
    row = {node.name: c.row[i] for i, node in enumerate(fabric.nodes)}
    placer = Placer(choices, Kinds(np.full((1, 1), 1e9)), np.array([0]), np.array([1]))
    on = [
        [choices.bundles.across(row[a], row[b]) for a, b in (("t1", spine), (spine, "t2"))]
        for spine in ("s1", "s2")
    ]
    placer._place(np.array(on[:1]), np.array([transfer_seconds(1e9, FAST) / late]))
    assert placer.arcs[0, :2].tolist() == on[moves]  # bundles of one: arcs have their numbers


@pytest.mark.parametrize(
    ("moved", "seconds", "looks"),
    [(0, [9.0], 1), (1, [10.0, 9.0, 8.995, 1.0], 3), (1, [10.0, 9.0, 8.99, 9.5, 1.0], 4),
     (1, [0.9**i for i in range(99)], placing.MOST_ROUNDS)],
)  # fmt: skip
def test_pairs_are_looked_at_again_while_that_shortens_the_busiest_cable(moved, seconds, looks):
    """By more than a thousandth of its seconds, and a few times at most."""

    class Told(Placer):
        looked = 0

        def _move(self, enough):
            self.looked += 1
            return moved

        @property
        def _seconds(self):
            return np.array([seconds[self.looked - 1]])

    placer = Told(routes_of(cabled(*line())).choices, Kinds(np.ones((1, 1))), *np.array([[0], [1]]))
    placer._place(np.zeros((1, 0), int), np.zeros(1))
    assert placer.looked == looks


@pytest.mark.parametrize(
    ("seconds", "all_dealt", "chosen"),
    [([10.5, 1.0], True, 0), ([10.6, 10.2], True, 1), ([10.6, 10.6], True, 0),
     ([10.6, 11.0], True, 0), ([99.0, 1.0], False, 0)],
)  # fmt: skip
def test_one_after_another_is_tried_where_colouring_leaves_a_kind_late(seconds, all_dealt, chosen):
    """By more than a twentieth of what cards and racks need anyway, 8 and 10 s; what is no sooner
    is not taken. Pairs that colouring cannot place are placed so in any case.
    """

    class Told(Placer):
        tried = 0

        def _place(self, rows, enough):
            assert rows.shape[1] == (2 if self.tried == 0 else 0) and enough.tolist() == [10.0]
            self.arcs, self.tried = np.array([[self.tried]]), self.tried + 1

        def _tiered(self):
            dealt = 0 if all_dealt else self.bundles.nowhere
            return np.array([[dealt, self.bundles.nowhere]])

        @property
        def _seconds(self):
            return np.array([seconds[self.tried - 1]])

    placer = Told(routes_of(cabled(*line())).choices, Kinds(np.ones((1, 1))), *np.array([[0], [1]]))
    placer.__dict__["_rack_seconds"] = np.array([10.0])
    hops = placer.run(np.array([8.0]))
    assert hops.tolist() == [[placer.bundles.path[chosen]]]
    assert placer.tried == (1 if seconds[0] == 10.5 or not all_dealt else 2)


def test_kinds_of_pairs_alike_are_what_each_of_them_sends():
    """Four pairs of three different sets of kinds, one of them of none."""
    sent = np.array([[1.0, 0.0, 1.0, 0.0], [1.0, 2.0, 3.0, 0.0], [1.0, 0.0, 2.0, 0.0]])
    ends = np.zeros(4, int), np.ones(4, int)
    placer = Placer(routes_of(cabled(*line())).choices, Kinds(sent), *ends)
    first, kinds = placer._kinds_of
    own = [kinds[a:b].tolist() for a, b in pairwise(first.tolist())]
    assert [own[s] for s in placer.signature] == [[0, 1, 2], [1], [0, 1, 2], []]
    assert len(own) == 3 and len(kinds) == first[-1] == 4


def test_light_paths_side_by_side_share_what_goes_over_their_switches():
    """Two cables up and three down by one spine, one each way by the other: the first carries two
    thirds, evenly on each cable.
    """
    cables = [("t1", "s1", FAST)] * 2 + [("t2", "s1", FAST)] * 3
    cables += [("t1", "s2", FAST), ("t2", "s2", FAST)]
    fabric = cabled(*cables, *line()[1:])
    parts = split(routes_of(fabric).choices, np.array([0]), np.array([3]))
    load = np.bincount(parts.links, np.repeat(parts.share, np.diff(parts.offsets)))
    assert load[[0, 2]].tolist() == pytest.approx([1 / 3] * 2)
    assert load[[5, 7, 9]].tolist() == pytest.approx([2 / 9] * 3)
    assert load[[10, 13]].tolist() == pytest.approx([1 / 3] * 2)
    assert len(parts.share) == 6 + 1


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("scheme", [*SCHEMES, "split"])
def test_cables_side_by_side_of_unequal_rates_in_whatever_order(scheme, order, either):
    """Cables of 4, 1 and 1 between two racks, and pairs that send 4 and 1: on the fastest both take
    5/4; placed, each on a cable of its own, 1. Two that send 4: both on the fastest.
    """
    rates = np.array([FAST, FAST / 4, FAST / 4])[list(order)]
    fabric = cabled(*(("t1", "t2", rate) for rate in rates), *line()[1:])
    src, dst = np.array([0, 1]), np.array([2, 3])
    for size, placed in (((4.0, 1.0), 1.0), ((4.0, 4.0), 2.0), ((4.0, 0.4), 1.0)):
        sent = Sent(src, dst, np.array([size]) * FAST / 8 / 4)
        if scheme == "split":
            parts = split(routes_of(fabric).choices, src, dst)
            offsets, links, share = parts.offsets, parts.links, parts.share
            assert np.diff(parts.first).tolist() == [1, 1]
        else:
            routing = Routing(scheme, sent if scheme == "placed" else None)
            (offsets, links), share = Routes(fabric, (), routing).links_of(src, dst), [1.0, 1.0]
        took = np.bincount(links[offsets[:-1] + 1] // 2, sent.bytes[0] * share, minlength=3)
        seconds = transfer_seconds(took[:3], rates).max()
        assert seconds == pytest.approx(placed if scheme == "placed" else sum(size) / 4)


def test_kinds_that_are_sent_one_after_another_share_a_cable(either):
    """Two kinds of two pairs each over two spines: each kind takes both, whatever the other does;
    a pair of both kinds counts in both.
    """
    spines = [(t, s, FAST) for t in ("t1", "t2") for s in ("s1", "s2")]
    hosts = [(f"h{i}", f"t{1 + i // 2}", FAST) for i in range(4)]
    fabric = cabled(*spines, *hosts)
    src, dst = np.array([0, 0, 1, 1]), np.array([2, 3, 2, 3])
    kinds = np.array([[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]]) * 1e9
    routes = Routes(fabric, (), Routing("placed", Sent(src, dst, kinds)))
    offsets, links = routes.links_of(src, dst)
    up = links[offsets[:-1] + 1]
    assert up[0] != up[3] and up[1] != up[2]


def test_uplinks_are_alike_where_all_their_cables_together_are(either):
    """Two cables of half the rate to one spine are as good as one to the other; two whole ones are
    not, and are left to placing by load: two of three pairs.
    """
    for half, fits in ((FAST / 2, True), (FAST, False)):
        cables = [(t, s, r) for t in ("t1", "t2") for s, r in (("s1", half), ("s1", half))]
        cables += [(t, "s2", FAST) for t in ("t1", "t2")]
        fabric = cabled(*cables, *line()[1:])
        some = Bundles(routes_of(fabric).ways)
        start, end = cabling_of(fabric).rack_row[np.array([[0, 0, 0], [1, 1, 1]])]
        rows = tiered(some, start, end, ())
        assert (rows < some.nowhere).any() == fits
    pairs = np.zeros(3, int), np.ones(3, int)
    hops = Placer(routes_of(fabric).choices, Kinds(np.full((1, 3), 1e9)), *pairs).run(np.zeros(1))
    assert len(set(hops[:, 0].tolist())) == 3  # each on a cable of its own


def test_pairs_on_a_fabric_without_a_way_have_none(either):
    apart = cabled(("h0", "t1", FAST), ("h1", "t2", FAST))
    routes = Routes(apart)
    assert routes.links("h0", "h1") == () and not routes.joins_all
    sent = Entries(np.array([0]), np.array([1]), np.ones(1))
    assert np.isinf(routes.ways.loads(sent)).all()
    assert routes.ways.reach.tolist() == [[True, False], [False, True]]


def test_kinds_are_lumped_beyond_their_limits_alone(monkeypatch):
    """Three kinds, in which pairs send in four combinations: none, one, another, all."""
    src, dst = np.arange(4), np.arange(4) + 4
    sent = Sent(src, dst, np.array([[0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 1, 1]]) * 1e9)
    for kinds, combined, kept in ((3, 1, True), (2, 4, True), (2, 3, False)):
        monkeypatch.setattr(schemes, "MOST_KINDS", kinds)
        monkeypatch.setattr(schemes, "MOST_COMBINED", combined)
        lumped = schemes._lumped(sent)
        assert (lumped is sent) == kept and lumped.bytes.sum() == sent.bytes.sum()
        assert len(lumped.bytes) == (3 if kept else 1)

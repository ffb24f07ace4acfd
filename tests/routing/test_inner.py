"""The inner loops of ways and placing: the compiled core does what Python does, to the last bit."""

import gc
from itertools import chain, pairwise
from unittest import mock
from weakref import ref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lighting import lit

from rfabric import native
from rfabric.errors import RFabricError
from rfabric.fabric import Fabric, Link, Node, Port, parse_fabric
from rfabric.fabric.cabling import cabling_of
from rfabric.optics import Circuits, Demand, light, outlook, parse_policy
from rfabric.optics.outlook import Load
from rfabric.routing import choices, colouring, inner, lightpaths, placing, rings, routes_of, ways
from rfabric.routing.choices import Offers
from rfabric.routing.paths import forget
from rfabric.routing.rows import Entries
from rfabric.routing.schemes import Routing, Sent
from rfabric.simulate.build import build
from rfabric.simulate.compiled import library

RATE = 4e11
ROOMS = ways, rings, lightpaths, colouring, choices, placing  # that ask for the loops
SPECS = [
    "fat-tree",
    "fat-tree,pods=3,tors=2,gpus=5",
    "leaf-spine,tors=6,gpus=7",
    "rail-optimized",
    "rfabric,pods=2,tors=2,gpus=4",
    "rfabric,pods=6,tors=6,gpus=4",
    "mixnet",
    "topoopt",
    "opus",
    "rotor,tors=6",
]


@pytest.fixture(scope="module", autouse=True)
def compiled_core():
    """The core is built where it is missing: without it these tests would compare Python with
    itself.
    """
    if native.core() is None:
        build()
        for known in (native.core, inner.loops, library):
            known.cache_clear()
    assert inner.loops() is not None


def ring(switches: int) -> Fabric:
    """Switches in a ring, two hosts each: ways of up to half of it."""
    names = [f"s{i}" for i in range(switches)]
    nodes = [Node(name, "eps", "edge", dpid=i + 1) for i, name in enumerate(names)]
    nodes += [Node(f"h{i}", "host", "host") for i in range(2 * switches)]
    links = [
        Link(Port(f"h{i}", 1), Port(names[i // 2], 1 + i % 2), RATE) for i in range(2 * switches)
    ]
    links += [Link(Port(a, 3), Port(b, 4), RATE) for a, b in pairwise([*names, names[0]])]
    return Fabric("ring", nodes, links)


def told(fabric: Fabric, circuits: Circuits, seed: int) -> list[np.ndarray]:
    """All that the loops have a part in, for random traffic; equal sizes and unequal ones in
    turn.
    """
    random, hosts, racks = np.random.default_rng(seed), len(fabric.hosts), len(fabric.racks)
    codes = np.unique(random.integers(0, hosts, (6 * hosts, 2)) @ np.array([1 << 32, 1]))
    src, dst = codes >> 32, codes & 0xFFFFFFFF
    src, dst = src[src != dst], dst[src != dst]
    sizes = (
        random.integers(1, 50, (3, len(src))) * 1.7e7
        if seed % 2
        else np.full((3, len(src)), 1e9 / 3)
    )
    sent = np.where(random.random((3, len(src))) < 0.6, sizes, 0.0)
    matrix = (
        random.random((racks, racks))
        * (random.random((racks, racks)) < 0.5)
        * (1 - np.eye(racks))
        * 1e9
    )
    routes = routes_of(fabric, circuits, Routing("placed", Sent(src, dst, sent)))
    around = routes.ways._rings
    return [
        *routes.links_of(src, dst),
        *routes.ways.links(src, dst),
        routes.ways.loads(Entries.of(matrix)),
        *around,
    ]


def both(fabric: Fabric, seed: int, monkeypatch) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """`told` by the core, and by Python."""
    idle = Demand.none(fabric.racks)
    circuits = (
        parse_policy("static", fabric).decide(idle, Circuits(), 0.0) if fabric.ocses else Circuits()
    )
    core = told(fabric.named("core"), circuits, seed)
    for room in ROOMS:
        monkeypatch.setattr(room, "loops", lambda: None)
    return core, told(fabric.named("python"), circuits, seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spec", SPECS)
def test_the_core_finds_the_ways_loads_and_places_that_python_finds(spec, seed, monkeypatch):
    for core, python in zip(*both(parse_fabric(spec), seed, monkeypatch), strict=True):
        assert core.dtype == python.dtype and core.tobytes() == python.tobytes()


@pytest.mark.parametrize("join", ["1Mbit/s", "1kbit/s", "1bit/s"])
def test_a_very_slow_link_hides_no_way_that_leads_back(join, monkeypatch):
    fabric = parse_fabric(f"two-clusters,join={join}")
    core, python = both(fabric, 0, monkeypatch)
    for one, other in zip(core, python, strict=True):
        assert one.tobytes() == other.tobytes()
    shortest = routes_of(fabric.named("arcs"), Circuits(), Routing("ecmp")).ways
    switches, racks = np.divmod(np.arange(shortest.switches * len(fabric.racks)), len(fabric.racks))
    owner, arcs = shortest._fitting(switches, racks)
    nearer = (
        shortest.cost(shortest.leads[arcs], racks[owner]) < shortest.cost(switches, racks)[owner]
    )
    assert nearer.all() and len(arcs)


@pytest.mark.parametrize("kinds", [1, 7, 8, 20, 150])
def test_pairs_of_many_kinds_take_the_places_that_python_finds(kinds, monkeypatch):
    """Bundles of several light paths: which is the least loaded depends on how kinds add up."""
    random, fabric = np.random.default_rng(kinds), parse_fabric("rfabric,pods=4,tors=4,gpus=8", 0)
    racks, hosts = fabric.racks, len(fabric.hosts)
    across = list(zip(racks[:8], racks[8:], strict=True))
    beside = list(zip(racks[::2], racks[1::2], strict=True))
    lit = light(fabric, dict(enumerate([across, across, across, beside])))
    assert routes_of(fabric, lit).choices.bundles.width.max() == 3
    src, dst = np.divmod(np.unique(random.integers(0, hosts * hosts, 4 * hosts)), hosts)
    src, dst = src[src != dst], dst[src != dst]
    sent = random.random((kinds, len(src))) * (random.random((kinds, len(src))) < 0.7) * 1e9
    links = []
    for compiled in (True, False):
        if not compiled:
            for room in ROOMS:
                monkeypatch.setattr(room, "loops", lambda: None)
        routing = Routing("placed", Sent(src, dst, sent))
        links.append(routes_of(fabric.named(f"f{compiled}"), lit, routing).links_of(src, dst))
    for core, python in zip(*links, strict=True):
        assert core.tobytes() == python.tobytes()


@pytest.mark.parametrize("most", [1, 3, 128])
@pytest.mark.parametrize("spec", SPECS)
def test_the_ways_of_many_pairs_of_racks_are_those_python_finds(spec, most, monkeypatch):
    """Of one pair those that stand beyond `most` are left out by their hash; a rack reaches itself;
    of the ways on cables alone some need light that circuits have moved.
    """
    fabric, random = parse_fabric(spec), np.random.default_rng(most)
    lit = parse_policy("static", fabric).decide(Demand.none(fabric.racks), Circuits(), 0.0)
    dark, cheapest = (routes_of(fabric, some).ways for some in (Circuits(), lit))
    rack, to = random.integers(0, len(fabric.racks), (2, 60))
    found = []
    for core in (inner.loops, lambda: None):
        monkeypatch.setattr(choices, "loops", core)
        some = choices.Choices(cheapest, dark)
        descents = [by_key(*some._descend(over, rack, to, most)) for over in (cheapest, dark)]
        found.append([*chain(*descents), *vars(some.every(rack, to, most)).values()])
    for core, python in zip(*found, strict=True):
        assert core.dtype == python.dtype and np.array_equal(core, python)
    assert len(found[0][0]) >= 60  # the ways of each key, and perhaps several


def by_key(key: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The core goes from key to key, Python from hop to hop."""
    order = np.argsort(key, kind="stable")
    return key[order], rows[order]


DRAWN = "rfabric,pods=2,tors=3,gpus=2", "rotor,tors=4,gpus=2", "opus", "topoopt"


@given(st.sampled_from(DRAWN), st.integers(0, 1 << 32), st.floats(0, 1))
def test_light_goes_where_python_sends_it(spec, seed, share):
    """Any matching of the ports of each OCS: light may end in the dark, or pass an OCS twice."""
    fabric, random, lit = parse_fabric(spec), np.random.default_rng(seed), []
    for ocs in fabric.ocses:
        ports = fabric.ports[ocs.name]
        some = random.permutation(len(ports))[: int(share * len(ports)) // 2 * 2]
        ends = [ports[i] for i in some.tolist()]
        lit += zip(ends[::2], ends[1::2], strict=True)
    found = []
    for core in (inner.loops, lambda: None):
        with mock.patch.object(lightpaths, "loops", core):
            found.append(vars(lightpaths.lights(fabric, lit)))
    for name, column in found[0].items():
        assert column.dtype == found[1][name].dtype and np.array_equal(column, found[1][name])


@given(data=st.data())
def test_rings_are_those_that_python_grows(data):
    """Some switches hold racks; light paths of few costs, not all of them there and back."""
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    switches, arcs = data.draw(st.integers(1, 150)), data.draw(st.integers(0, 300))
    racks = np.flatnonzero(random.random(switches) < data.draw(st.floats(0, 1)))
    ends, steps = random.integers(0, switches, (2, arcs)), np.array([1.0, 4.0, 4 / 3])
    costs = random.choice(steps[: data.draw(st.integers(1, 3))], arcs)
    found = []
    for core in (inner.loops, lambda: None):
        with mock.patch.object(rings, "loops", core):
            found.append(rings.grown(racks, switches, *ends, costs))
    for core, python in zip(*found, strict=True):
        assert core.dtype == python.dtype and np.array_equal(core, python)


@given(data=st.data())
def test_what_flows_ask_of_links_is_added_up_as_python_does(data):
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    flows, links = data.draw(st.integers(0, 200)), data.draw(st.integers(1, 40))
    beyond = data.draw(st.booleans())
    load = Load(
        random.integers(0, 50, flows),
        random.integers(0, 8, flows),
        random.integers(0, links + beyond, 60).astype(np.int32),
        random.random(flows) * 1e9 * (random.random(flows) < 0.9),
        random.integers(-3, 4, flows) << 40,
    )
    rate, told = random.choice([1e11, 4e11, 1e9 / 3], links), []
    for core in (inner.loops, lambda: None):
        with mock.patch.object(outlook, "loops", core):
            seconds = np.zeros(links)
            least = outlook._ask(load, rate, seconds)
        told.append((least, seconds.tobytes() if np.isfinite(least) else b""))
    assert told[0] == told[1]


@given(
    st.integers(1, 12),
    st.lists(st.tuples(*[st.integers(0, 4)] * 2, *[st.integers(0, 2)] * 2), max_size=60),
)
def test_edges_take_the_colours_that_python_finds(colours, edges):
    left, right, *groups = np.array(edges, np.int64).reshape(-1, 4).T
    found = []
    for core in (inner.loops, lambda: None):
        with mock.patch.object(colouring, "loops", core):
            found.append(colouring.coloured(left, right, colours, groups).tolist())
    assert found[0] == found[1]


@given(data=st.data())
def test_rows_that_claim_arcs_are_those_that_python_finds(data):
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    nowhere, shape = data.draw(st.integers(0, 30)), random.integers(0, 12, 2)
    arcs = random.integers(0, nowhere + 1, shape)
    nothing = np.zeros(0, np.int64)
    placer = object.__new__(placing.Placer)
    placer.nowhere, placer._laid = nowhere, None
    held = np.zeros((1, nowhere + 1))
    laid = inner.Laid(nothing, nothing, nothing, held[0], held)
    assert (laid.claims(arcs) == placer._claims(arcs)).all()
    assert (laid.claims(arcs) == placer._claims(arcs)).all()  # nothing is left of the first call


@pytest.mark.parametrize("core", [True, False])
@pytest.mark.parametrize("spec", ["fat-tree,k=4", "rfabric,pods=2,tors=2,gpus=4", "topoopt"])
def test_what_lies_on_an_arc_is_what_the_pairs_placed_there_send(spec, core, monkeypatch):
    """Kind by kind, after pairs were placed one after another and moved off late arcs."""
    for room in () if core else ROOMS:
        monkeypatch.setattr(room, "loops", lambda: None)
    fabric, random = parse_fabric(spec), np.random.default_rng(3)
    racks, circuits = cabling_of(fabric).host_rack, lit(fabric)
    src, dst = np.divmod(np.arange(len(fabric.hosts) ** 2), len(fabric.hosts))
    src, dst = src[racks[src] != racks[dst]], dst[racks[src] != racks[dst]]
    sent = Sent(src, dst, random.random((2, len(src))) * (random.random((2, len(src))) < 0.4))
    some = routes_of(fabric.named(f"f{core}"), circuits).choices
    placer = placing.Placer(some, sent.kinds, racks[src], racks[dst])
    placer._place(np.zeros((len(src), 0), np.int64), np.zeros(2))
    assert (placer.arcs[:, 0] < placer.nowhere).all()
    for load, bytes in zip(placer.load, sent.bytes, strict=True):
        lies = sum(np.bincount(arc, bytes, placer.nowhere + 1) for arc in placer.arcs.T)
        assert load[:-1] == pytest.approx(lies[:-1], rel=1e-9)


def test_ways_around_a_ring_are_the_same(monkeypatch):
    for core, python in zip(*both(ring(20), 1, monkeypatch), strict=True):
        assert core.tobytes() == python.tobytes()


@pytest.mark.parametrize("hops", [1, 2, 5, 8, 9, 10, 30, 129, 300])
def test_seconds_on_a_way_are_added_up_in_the_order_of_numpy(hops):
    random, arcs, pairs = np.random.default_rng(hops), 400, 50
    load, seconds, sent = random.random((1, arcs)), random.random(arcs), random.random(pairs)
    seconds = np.where(
        np.arange(arcs) == 0, 0.0, -seconds
    )  # else the busiest arc, a million times heavier, hides the sum
    nowhere = arcs - 1  # the last: ways end there that are shorter than others
    seconds[nowhere] = 0.0
    every, rows = np.arange(pairs + 1), random.integers(0, nowhere, (pairs, hops))
    rows[:, hops // 2] = 0
    ends = random.integers(hops // 2 + 1, hops + 1, pairs)
    rows[np.arange(hops) >= ends[:, None]] = nowhere
    laid = inner.Laid(every, np.zeros(pairs, np.int64), sent, seconds, load)
    signature = np.zeros(pairs, np.int64)
    cost, way = laid.cheapest(
        every[:-1], signature, every[:-1], Offers(every, rows), np.arange(arcs)[None], None
    )
    need = (load[0][rows] + sent[:, None]) * seconds[rows]
    assert (
        np.array_equal(way, rows) and cost.tobytes() == (need.max(1) + 1e-6 * need.sum(1)).tobytes()
    )


@pytest.mark.parametrize("kinds", [1, 3, inner.KINDS])
def test_an_arc_leads_to_the_one_ring_that_is_nearer_by_its_cost(kinds):
    """Rings at 0, 1, ..., 19 and those of no way; arcs of cost 1, 2, ..."""
    steps = np.arange(1, kinds + 1)
    nearer = inner._nearer(np.append(np.arange(20.0), np.inf), steps.astype(float))
    for here in range(20):
        there = [here - step if step <= here else inner.NO_RING for step in steps]
        assert nearer[here, :kinds].tolist() == there
    assert (nearer[20:] == inner.NO_RING).all() and (nearer[:, kinds:] == inner.NO_RING).all()


def test_rings_too_near_to_tell_apart_and_too_many_costs_have_no_table():
    assert inner._nearer(np.array([0.0, 1e-9, 1.0]), np.array([1.0])) is None
    assert inner._nearer(np.array([0.0, 1.0]), np.arange(inner.KINDS + 1) + 1.0) is None


def test_who_has_no_way_has_endless_load():
    fabric = parse_fabric("rfabric,pods=2,tors=2,gpus=4,electrical=0Gbit/s")
    matrix = np.zeros((len(fabric.racks),) * 2)
    matrix[0, 1] = 1.0
    assert np.isinf(routes_of(fabric).ways.loads(Entries.of(matrix))).all()


def test_rings_let_go_are_found_again(monkeypatch):
    monkeypatch.setattr(ways, "MOST_RINGS", 0)
    fabric = parse_fabric("rfabric,pods=2,tors=2,gpus=4")
    lit = parse_policy("static", fabric).decide(Demand.none(fabric.racks), Circuits(), 0.0)
    one, other = routes_of(fabric).ways, routes_of(fabric, lit).ways
    before = [some._rings[0].copy() for some in (one, other)]
    assert one._around is None and other._around is not None and not np.array_equal(*before)
    assert np.array_equal(one._rings[0], before[0]) and other._around is None


def test_rings_of_few_sets_of_circuits_are_kept_and_take_little(monkeypatch):
    monkeypatch.setattr(ways, "MOST_RINGED", 3)
    fabric = parse_fabric("rfabric,pods=2,tors=2,gpus=4")
    lit = parse_policy("static", fabric).decide(Demand.none(fabric.racks), Circuits(), 0.0)
    met = [
        routes_of(fabric, Circuits(frozenset(lit.ordered[:n]))).ways for n in range(len(lit) + 1)
    ]
    for some in met:
        assert sum(part.nbytes for part in some._rings) < 4096
    assert [some._around is not None for some in met[-4:]] == [False, True, True, True]
    assert len(fabric.memo["rings"]) == 3


def test_what_is_forgotten_of_a_fabric_goes_without_a_search_for_cycles():
    fabric = parse_fabric("rfabric,pods=2,tors=2,gpus=4")
    assert routes_of(fabric).ways.joins_all  # its rings are grown
    ways_of = ref(routes_of(fabric).ways)
    gc.disable()
    try:
        forget(fabric)
        assert ways_of() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("racks", [20, 600])
def test_a_rack_that_nothing_joins_is_told_however_many_rings_there_are(racks):
    whole = ring(racks)
    nodes = [*whole.nodes, Node("s", "eps", "edge", dpid=racks + 1), Node("h", "host", "host")]
    apart = Fabric("apart", nodes, [*whole.links, Link(Port("h", 1), Port("s", 1), RATE)])
    some = routes_of(apart).ways
    assert some.reach[:-1, :-1].all() and not some.joins_all
    assert some.reach[-1].tolist() == some.reach[:, -1].tolist() == [False] * racks + [True]
    around, costs = some._rings
    assert len(costs) == 1 << 8 * around.itemsize and np.isfinite(costs).sum() == racks // 2 + 1


def test_more_rings_than_there_are_numbers_for_are_an_error(monkeypatch):
    """Around each of 30 switches in a ring there are 16."""
    monkeypatch.setattr(rings, "FAR", 16)
    assert routes_of(ring(30)).ways.reach.all()
    monkeypatch.setattr(rings, "FAR", 15)
    with pytest.raises(RFabricError, match="more than 15 different costs; give the links fewer"):
        routes_of(ring(30)).ways.reach.all()


@pytest.mark.parametrize("racks", [508, 512, 600])
def test_more_rings_than_a_byte_can_number(racks, monkeypatch):
    """Half as many rings as racks, and one: 255 is the last count of which a byte tells each from
    none.
    """
    fabric = ring(racks)
    core = routes_of(fabric.named("core")).ways
    for room in ROOMS:
        monkeypatch.setattr(room, "loops", lambda: None)
    python = routes_of(fabric.named("python")).ways
    for one in (core, python):
        assert one._rings[0].itemsize == (1 if racks == 508 else 2) and one.reach.all()
    assert all(a.tobytes() == b.tobytes() for a, b in zip(core._rings, python._rings, strict=True))
    rank = np.arange(racks)
    far = np.minimum(rank, racks - rank)  # switches from the first rack
    assert np.allclose(core.cost(core.cabling.rack_row, np.zeros(racks, int)), far)
    sent = Entries(np.array([racks // 2 - 1]), np.array([0]), np.array([1e9]))
    assert core.loads(sent).tobytes() == python.loads(sent).tobytes()
    assert core.loads(sent).sum() == pytest.approx(1e9 * (racks // 2 - 1))

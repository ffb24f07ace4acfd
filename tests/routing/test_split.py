"""Routing split: every pair over all its equal ways at once, against closed forms and the ideal
switch.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loads import busiest_seconds

from rfabric.cli import main
from rfabric.emulate.world import emulate
from rfabric.errors import RFabricError
from rfabric.fabric import fat_tree, parse_fabric, rfabric
from rfabric.fabric.cabling import cabling_of
from rfabric.optics import Circuits, Timing
from rfabric.optics.check import faults
from rfabric.report.result import Scale
from rfabric.routing import routes_of
from rfabric.routing.schemes import SPLIT, Routing, split
from rfabric.simulate.world import simulate
from rfabric.study.planning import stage_circuits
from rfabric.study.run import Case, RunSettings
from rfabric.trace import TraceBuilder, Traffic, pairs, ring
from rfabric.trace.pairs import PARTS, Pairs, PairWays
from rfabric.units import transfer_seconds

RATE, HOSTS = 4e11, 16


def undelayed(fabric):
    return replace(fabric, links=tuple(replace(link, delay=0.0) for link in fabric.links))


def of(spec):
    return undelayed(parse_fabric(spec, HOSTS))


IDEAL, TREE = of("ideal"), of("fat-tree")
CLOS = [TREE, of("leaf-spine"), of("fat-tree,k=6"), of("fat-tree,pods=2,tors=2,gpus=4")]
OPTICAL = [
    of(spec) for spec in ("rfabric", "rfabric,pods=2,tors=2,gpus=4", "topoopt", "mixnet", "rotor")
]
HOST = st.integers(0, HOSTS - 1)


@st.composite
def traces(draw, waiting=True):
    """Flows that start by the clock or wait for each other, some of them computing."""
    b, rows = TraceBuilder([f"h{i + 1}" for i in range(HOSTS)]), []
    for _ in range(draw(st.integers(1, 12))):
        ends = draw(
            st.lists(
                st.tuples(HOST, HOST).filter(lambda e: e[0] != e[1]),
                min_size=1,
                max_size=6,
                unique=True,
            )
        )
        about = {"phase": draw(st.sampled_from("ab")), "label": draw(st.sampled_from("xy"))}
        if waiting:
            about["gap"] = draw(st.sampled_from([0.0, 0.0, 0.03]))
            about["start"] = draw(st.sampled_from([0.0, 0.0, 0.1]))
            about["after"] = (
                draw(st.lists(st.sampled_from(rows), max_size=3, unique=True)) if rows else []
            )
        size = draw(st.sampled_from([0, 1, 1_000_003, 5e8, 1e9, 4e9]))
        rows += b.flows([a for a, _ in ends], [z for _, z in ends], size, **about)
    return b.build()


# --- packet fabrics: the ways are the parts -------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(traces(), st.sampled_from(CLOS))
def test_a_non_blocking_tree_is_one_ideal_switch_to_every_flow(trace, fabric):
    ours, ideal = (simulate(some, trace, routing=SPLIT) for some in (fabric, IDEAL))
    assert ours.finish == pytest.approx(ideal.finish, rel=1e-6, abs=1e-12)
    assert ours.start == pytest.approx(ideal.start, rel=1e-6, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.permutations(range(HOSTS)), min_size=1, max_size=5),
    st.sampled_from(CLOS),
    st.integers(1, 9),
)
def test_what_no_card_limits_beyond_t_ends_at_t(drawn, fabric, size):
    b, busiest = TraceBuilder(fabric.hosts[:HOSTS]), np.zeros(HOSTS)
    for to in drawn:
        src = np.flatnonzero(np.array(to) != np.arange(HOSTS))
        b.flows(src, np.array(to)[src], size * 1e9)
        busiest[src] += size * 1e9
    most = transfer_seconds(busiest.max(), RATE)
    assert simulate(fabric, b.build(), routing=SPLIT).step_seconds == pytest.approx(most, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(traces(waiting=False), st.sampled_from(CLOS))
def test_no_cable_of_a_non_blocking_tree_needs_longer_than_the_busiest_card(trace, fabric):
    rows = np.flatnonzero(trace.size > 0)
    cards = max(
        np.bincount(ends[rows], trace.size[rows]).max(initial=0) for ends in (trace.src, trace.dst)
    )
    seconds = busiest_seconds(fabric, Circuits(), Routing(SPLIT), trace, rows)
    assert seconds == pytest.approx(transfer_seconds(cards, RATE), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    st.permutations(range(HOSTS)),
    st.sampled_from([*CLOS, of("fat-tree,oversubscription=2"), of("fat-tree,oversubscription=4")]),
)
def test_a_permutation_never_ends_later_than_under_ecmp(to, fabric):
    b, src = TraceBuilder(fabric.hosts[:HOSTS]), np.flatnonzero(np.array(to) != np.arange(HOSTS))
    b.flows(src, np.array(to)[src], 1e9)
    ours, ecmp = (simulate(fabric, b.build(), routing=way).step_seconds for way in (SPLIT, "ecmp"))
    assert ours <= ecmp * (1 + 1e-9)


def test_one_flow_loads_all_its_ways_alike_and_its_latency_counts():
    fabric = fat_tree(k=4)
    b = TraceBuilder(fabric.hosts)
    b.flows([0], [15], 5e9)
    result = simulate(fabric, b.build(), routing=SPLIT)
    assert result.finish[0] == pytest.approx(
        transfer_seconds(5e9, RATE) + 6 * fabric.links[0].delay, rel=1e-12
    )
    loads = result.link_bytes[result.link_bytes > 0]
    assert sorted(loads) == pytest.approx([1.25e9] * 8 + [2.5e9] * 4 + [5e9] * 2)


# --- circuits: ways change under the parts --------------------------------------------------------


def thin_circuits(planes):
    """Two racks of one GPU each side by side, whose circuits carry together what a network card
    does.
    """
    fabric = undelayed(rfabric(pods=2, tors=1, gpus=4, planes=planes, electrical=0))
    ocs = {node.name for node in fabric.ocses}
    thin = [
        replace(link, rate=RATE / planes) if {link.a.node, link.b.node} & ocs else link
        for link in fabric.links
    ]
    return replace(fabric, links=tuple(thin))


@pytest.mark.parametrize("planes", [1, 2, 3, 4, 6, 8])
def test_one_pair_uses_all_its_direct_circuits(planes):
    fabric = thin_circuits(planes)
    b = TraceBuilder(fabric.hosts)
    b.flows([0], [7], 5e9)
    took = {
        way: simulate(fabric, b.build(), "static", routing=way).step_seconds
        for way in (SPLIT, "ecmp")
    }
    assert took[SPLIT] == pytest.approx(transfer_seconds(5e9, RATE), rel=1e-9)
    assert took["ecmp"] == pytest.approx(planes * took[SPLIT], rel=1e-9)


@pytest.mark.parametrize("planes", [5, 7, 9])
def test_ways_that_parts_do_not_share_evenly_are_off_by_one_part(planes):
    fabric = thin_circuits(planes)
    b = TraceBuilder(fabric.hosts)
    b.flows([0], [7], 5e9)
    result = simulate(fabric, b.build(), "static", routing=SPLIT)
    on_circuits = result.link_bytes[(result.link_bytes > 0) & (result.link_bytes < 5e9)]
    # four cables a circuit: ToR, pod's OCS, core OCS, and down again
    assert len(on_circuits) == 4 * planes
    assert np.abs(on_circuits / 5e9 - 1 / planes).max() <= 1 / PARTS


@settings(max_examples=40, deadline=None)
@given(
    traces(),
    st.sampled_from(OPTICAL),
    st.sampled_from(["own", "static"]),
    st.sampled_from(["hold", "drain", "drop"]),
)
def test_every_byte_arrives_whatever_is_rewired(trace, fabric, policy, in_flight):
    result = simulate(fabric, trace, policy, routing=SPLIT, timing=Timing(in_flight=in_flight))
    assert result.trace is trace and len(result.finish) == len(trace)
    host = np.array([fabric.host_index[name] for name in trace.hosts])
    back = result.link_bytes[np.arange(len(result.link_bytes)) ^ 1]
    for ends, links in ((trace.src, result.link_bytes), (trace.dst, back)):
        cards = np.bincount(host[ends], trace.size, minlength=len(fabric.hosts))
        assert links[cabling_of(fabric).host_link] == pytest.approx(cards, rel=1e-9)
    assert (result.start >= result.ready + trace.gap - 1e-9).all()
    nic = cabling_of(fabric).rate[cabling_of(fabric).host_link][host[trace.src]]
    assert (result.finish >= result.start + transfer_seconds(trace.size, nic) * (1 - 1e-9)).all()


@settings(max_examples=40, deadline=None)
@given(traces())
def test_parts_on_one_way_are_what_their_flow_would_be(trace):
    """Two racks under one circuit: 24 parts of a flow take from others what the flow takes."""
    fabric = undelayed(rfabric(pods=2, tors=1, gpus=8, planes=1, electrical=0))
    ours, whole = (simulate(fabric, trace, routing=way) for way in (SPLIT, "ecmp"))
    assert ours.finish == pytest.approx(whole.finish, rel=1e-9, abs=1e-12)
    assert ours.start == pytest.approx(whole.start, rel=1e-9, abs=1e-12)
    assert ours.link_bytes == pytest.approx(whole.link_bytes, rel=1e-9)
    assert ours.rewires == whole.rewires


@settings(max_examples=40, deadline=None)
@given(traces(waiting=False), st.sampled_from([*CLOS, *OPTICAL]))
def test_parts_load_every_link_as_the_ways_do_to_one_part(trace, fabric):
    if not (trace.size > 0).any():
        return
    routing = Routing(SPLIT)
    lit = (
        simulate(fabric, trace, "static", routing=SPLIT).epochs[0][1]
        if fabric.ocses
        else Circuits()
    )
    sent = Pairs(fabric, trace, routing)
    ways = split(routes_of(fabric, lit, routing).choices, sent.src, sent.dst)
    for pair in range(len(sent.src)):
        row = np.flatnonzero(sent.of == pair)[:1]
        load = PairWays(fabric, sent, lit, routing).load(row, np.ones(1))
        ours = np.zeros(2 * len(fabric.links))
        for first, count, size in zip(load.first, load.count, load.size, strict=True):
            np.add.at(ours, load.links[first : first + count], size)
        mine = slice(ways.first[pair], ways.first[pair + 1])
        hops = np.diff(ways.offsets)[mine]
        links = ways.links[ways.offsets[mine.start] : ways.offsets[mine.stop]]
        true = np.bincount(
            links, np.repeat(ways.share[mine], hops), minlength=2 * len(fabric.links)
        )
        assert np.abs(ours - true).max() <= (len(hops) / PARTS if fabric.ocses else 1e-12)
        assert ours[cabling_of(fabric).host_link[sent.src[pair]]] == pytest.approx(1.0)


def job(fabric):
    """Two collectives of different shapes, computing before each: circuits follow them."""
    b = TraceBuilder(fabric.hosts)
    work = b.compute(0, 1.0, phase="training", label="backward")
    sent = b.flows(
        *ring("all-reduce", range(HOSTS), 20e9, 2),
        after=[work],
        phase="training",
        label="all-reduce",
    )
    half = HOSTS // 2
    b.flows(range(half), range(half, HOSTS), 20e9, after=sent, phase="weight_sync", label="weights")
    return b.build()


def test_circuits_are_rewired_for_parts_and_every_link_twice_as_fast_takes_half():
    fabric = OPTICAL[1]
    result = simulate(fabric, job(fabric), "demand", routing=SPLIT)
    assert result.rewires and result.routing == SPLIT
    fast = replace(fabric, links=tuple(replace(link, rate=2 * link.rate) for link in fabric.links))
    slow, quick = (simulate(some, job(fabric), "static", routing=SPLIT) for some in (fabric, fast))
    assert slow.step_seconds - 1.0 == pytest.approx(2 * (quick.step_seconds - 1.0), rel=1e-9)


# --- what it is not carried by, and its limits ----------------------------------------------------


def test_one_way_cannot_be_asked_of_it():
    routes = routes_of(TREE, Circuits(), Routing(SPLIT))
    with pytest.raises(
        RFabricError, match=("routing split: a pair takes several paths at once, which the rules")
    ):
        routes.path("h1", "h16")
    with pytest.raises(RFabricError, match="choose one of ecmp, wcmp, placed, valiant"):
        routes.links_of(np.array([0]), np.array([15]))


def test_emulation_refuses_it_before_anything_starts(tmp_path, capsys):
    with pytest.raises(RFabricError, match="the rules of a switch cannot express; simulate it"):
        emulate(TREE, job(TREE), scale=Scale(), routing=SPLIT, out=tmp_path / "runs")
    for verb in (
        ["emulate", "--topo", "fat-tree"],
        ["compare", "--engine", "emulate", "--topo", "fat-tree", "--topo", "rfabric"],
    ):
        assert main([*verb, "--routing", SPLIT, "--out", str(tmp_path / "runs")]) == 2
        assert "routing split: a pair takes several paths at once" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("fabric", [TREE, OPTICAL[0]], ids=["packets", "circuits"])
def test_too_many_ways_are_refused_with_the_limit(fabric, monkeypatch):
    monkeypatch.setattr(pairs, "MOST_PARTS", 10)
    with pytest.raises(
        RFabricError,
        match=("take more than 10 paths on fabric .*; choose a routing with one path a pair"),
    ):
        simulate(fabric, job(fabric), routing=SPLIT)


def test_a_pair_without_a_way_is_told():
    bare = rfabric(pods=2, tors=2, gpus=2, electrical=0)
    assert faults(bare, Circuits(), [("h1", "h8")], Routing(SPLIT)) == ["h1 -> h8: dropped at t1:1"]


def test_it_is_planned_and_compared(tmp_path, capsys):
    case, traffic = Case(OPTICAL[1], "demand"), Traffic(job(OPTICAL[1]), "mine", ())
    stages = stage_circuits(case, traffic, RunSettings(routing=SPLIT))
    assert [str(stage.stage) for stage in stages] == [
        "training/0 all-reduce",
        "weight_sync/0 weights",
    ]
    assert all(stage.completion >= stage.bound.seconds * (1 - 1e-9) for stage in stages)
    words = [
        "compare",
        "--topo",
        "fat-tree",
        "--topo",
        "rfabric",
        "--routing",
        SPLIT,
        "--out",
        str(tmp_path),
        "--json",
        "-q",
    ]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert [run["routing"] for run in told["runs"]] == [SPLIT, SPLIT]

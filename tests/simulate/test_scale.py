"""Thousands of GPUs: what is worked out for all ports and rows at once is what one gets one by one,
and no byte is lost.
"""

import csv
import functools
import io
import json
import random
import time
import tracemalloc

import networkx as nx
import numpy as np
import pytest

from rfabric.cli import terminal
from rfabric.fabric import fat_tree, parse_fabric
from rfabric.fabric.cabling import cabling_of
from rfabric.optics import Circuits, Demand, Rewire, changed_cables, joined, light, planes
from rfabric.optics.circuits import together
from rfabric.optics.planner import refuse_cut
from rfabric.optics.policies import _partners
from rfabric.optics.solvers import asked
from rfabric.optics.templates import mesh, round_of, turns
from rfabric.report.amounts import by_tier, demands
from rfabric.report.page import pictures
from rfabric.rl import read_recipe, trace_of
from rfabric.routing import Routes, light_paths, routes_of
from rfabric.routing.paths import mix
from rfabric.routing.rows import Entries, mixed
from rfabric.routing.ways import Ways
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder, read_trace, write_trace
from rfabric.trace.formats.records import COLUMNS

GPUS = 4096
fabric_of = functools.cache(lambda spec: parse_fabric(spec, GPUS))


@functools.cache
def lit(spec, turn=0):
    fabric = fabric_of(spec)
    every = mesh(fabric.racks, 2 * len(planes(fabric)))[turn:]
    return light(fabric, dict(zip(planes(fabric), every, strict=False)))


@functools.cache
def step():
    sizes = ("cluster.training_gpus=2048", "cluster.generation_gpus=2048", "generation.batch=512")
    return trace_of(read_recipe("grpo-1024", sizes), 1)


@functools.cache
def run(spec, policy="demand"):
    told = []
    return simulate(fabric_of(spec), step(), policy, progress=told.append), told


def followed(fabric, circuits):
    """Every light path, port by port: {port it leaves: (port it ends at, links, rate)}."""
    cross = {a: b for pair in circuits for a, b in (pair, pair[::-1])}
    paths = {}
    for out in (port for port in fabric.peer if fabric.node[port.node].kind != "ocs"):
        links, port = [], out
        while port is not None:
            link, into = fabric.peer[port]
            links.append(link)
            if fabric.node[into.node].kind != "ocs":
                paths[out] = into, tuple(links), min(fabric.links[k // 2].rate for k in links)
                break
            port = cross.get(into)
    return paths


@pytest.mark.parametrize("spec", ["rfabric", "fat-tree", "rfabric,electrical=0"])
def test_light_paths_are_those_followed_port_by_port(spec):
    fabric = fabric_of(spec)
    circuits = (
        Circuits(frozenset(random.Random(1).sample(lit(spec).ordered, 3000)))
        if fabric.ocses
        else Circuits()
    )
    expected = followed(fabric, circuits)
    paths = light_paths(fabric, circuits)
    assert [path.out for path in paths] == sorted(expected)
    assert {path.out: (path.into, path.links, path.rate) for path in paths} == expected


@pytest.mark.parametrize("spec", ["rfabric", "fat-tree", "rfabric,electrical=0"])
def test_ways_of_many_pairs_are_the_paths_of_each_and_cheapest(spec):
    fabric = fabric_of(spec)
    circuits = lit(spec) if fabric.ocses else Circuits()
    if "electrical=0" in spec:  # some pairs are joined by nothing
        circuits = Circuits(frozenset(random.Random(1).sample(circuits.ordered, 2000)))
    routes = Routes(fabric, circuits)
    drawn = np.random.default_rng(2).integers(0, GPUS, (2, 300))
    offsets, links = routes.ways.links(*drawn)
    graph = nx.DiGraph()
    for out, (into, _, rate) in followed(fabric, circuits).items():
        if out.node not in fabric.host_index and into.node not in fabric.host_index:
            known = graph.get_edge_data(out.node, into.node, {"weight": np.inf})["weight"]
            graph.add_edge(out.node, into.node, weight=min(4e11 / rate, known))
    cost = functools.cache(
        lambda rack: (
            nx.single_source_dijkstra_path_length(graph, rack) if rack in graph else {rack: 0}
        )
    )
    for i, (src, dst) in enumerate(drawn.T.tolist()):
        names = fabric.hosts[src], fabric.hosts[dst]
        hops = routes.path(*names)
        assert links[offsets[i] : offsets[i + 1]].tolist() == [
            link for hop in hops for link in hop.links
        ]
        racks = [fabric.rack_of[name] for name in names]
        if hops:
            assert sum(4e11 / hop.rate for hop in hops[1:-1]) == pytest.approx(
                cost(racks[0])[racks[1]]
            )
        else:
            assert racks[1] not in cost(racks[0])
    lost = routes.lost([(fabric.hosts[a], fabric.hosts[b]) for a, b in drawn.T.tolist()])
    assert len(lost) == np.count_nonzero(np.diff(offsets) == 0)
    assert bool(lost) == ("electrical=0" in spec)


def test_loads_are_those_of_a_walk_from_the_farthest_inwards():
    fabric = parse_fabric("rfabric,pods=4,tors=8,gpus=4")
    routes = routes_of(fabric, light(fabric, dict(enumerate(mesh(fabric.racks, 4)))))
    random_ = np.random.default_rng(4)
    sent = random_.random((32, 32)) * (random_.random((32, 32)) < 0.2) * (1 - np.eye(32))
    expected = {}
    for j, rack in enumerate(fabric.racks):
        waiting = {fabric.racks[i]: sent[i, j] for i in np.flatnonzero(sent[:, j])}
        while waiting:
            node = max(waiting, key=lambda name: routes.cost(name, rack))
            hops = routes.next_hops(node, rack)
            share = waiting.pop(node) / len(hops)
            for hop in hops:
                expected[hop.links] = expected.get(hop.links, 0.0) + share
                if hop.into.node != rack:
                    waiting[hop.into.node] = waiting.get(hop.into.node, 0.0) + share
    loads = routes.ways.loads(Entries.of(sent))
    carried = {routes.light_path(i).links: loads[i] for i in np.flatnonzero(loads).tolist()}
    assert carried == pytest.approx(expected)


@functools.cache
def wide():
    """1,024 racks and their mesh, the ways found."""
    fabric = parse_fabric("rfabric,pods=32,tors=32,gpus=4")
    lit = light(fabric, dict(enumerate(mesh(fabric.racks, len(planes(fabric))))))
    assert routes_of(fabric, lit).joins_all
    # what is kept about a fabric is no demand's to pay for
    asked(fabric, Demand.none(fabric.racks))
    return fabric, lit


def peak(work):
    """Bytes that `work` holds at most, beyond what it found."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def planned(partners):
    """Work out what the planner asks of a demand between each of 1,024 racks and so many
    neighbours.
    """
    fabric, lit = wide()
    rack = np.arange(len(fabric.racks))
    ends = (
        np.tile(rack, partners),
        np.concatenate([(rack + far) % len(rack) for far in range(1, partners + 1)]),
    )
    demand = together(
        [Demand(fabric.racks, Entries.summed(*ends, np.ones(len(ends[0])), len(rack)))] * 2
    )
    refuse_cut(fabric, lit, [demand])
    asked(fabric, demand)
    return routes_of(fabric, lit).ways.loads(demand.sent)


def test_memory_of_planning_grows_with_the_pairs_that_send_not_with_racks_squared(monkeypatch):
    # a batch is a fixed size, no matter of pairs
    monkeypatch.setattr("rfabric.routing.ways.MOST_CANDIDATES", 1 << 12)
    planned(1)
    dense = 8 * len(wide()[0].racks) ** 2
    few, many = (peak(lambda n=n: planned(n)) for n in (1, 4))
    assert few < dense / 4 and many < 6 * few


def test_ways_hold_a_few_bytes_a_switch_and_rack():
    fabric, lit = wide()
    ways = Ways(fabric, routes_of(fabric, lit).lights, 4e11)
    assert peak(lambda: ways.reach) < 8 * ways.switches * len(fabric.racks)


def test_a_mesh_of_many_racks_is_made_round_by_round():
    def rounds(some):
        return [round_of(some, turn) for turn in range(turns(len(some)))]

    racks = [f"t{i}" for i in range(1024)]
    assert peak(lambda: mesh(racks, 4)) < peak(lambda: rounds(racks[:128]))
    assert mesh(racks[:9], 12) == [*rounds(racks[:9]), *rounds(racks[:9])[:3]]


def test_the_hash_of_many_is_the_hash_of_each():
    words = np.random.default_rng(3).integers(0, 2**64, 1000, dtype=np.uint64)
    assert mixed(words).tolist() == [mix(word) for word in words.tolist()]


def test_racks_joined_and_cables_changed_are_those_of_the_circuits():
    fabric, old, new = fabric_of("rfabric"), lit("rfabric"), lit("rfabric", 5)
    pairs = [
        frozenset((fabric.racks[a], fabric.racks[b]))
        for partner in _partners(fabric, new)
        for a, b in enumerate(partner)
        if b > a
    ]
    assert {pair: pairs.count(pair) for pair in pairs} == joined(fabric, new)
    before, then = (routes_of(fabric, c).lights.cross for c in (old, new))
    changed = np.flatnonzero((before != then).reshape(-1, 2).any(1))
    assert set(changed.tolist()) == changed_cables(fabric, Rewire.between(old, new))


@pytest.mark.parametrize(
    ("spec", "policy"), [("rfabric", "demand"), ("rfabric", "phase"), ("fat-tree", "demand")]
)
def test_every_byte_crosses_its_nics_once(spec, policy):
    result, _ = run(spec, policy)
    trace, fabric = step(), fabric_of(spec)
    assert np.isfinite(result.finish).all() and (result.finish >= result.start).all()
    out, into = (np.bincount(ends, trace.size, minlength=GPUS) for ends in (trace.src, trace.dst))
    up = cabling_of(fabric).host_link
    assert result.link_bytes[up] == pytest.approx(out) and result.link_bytes[
        up ^ 1
    ] == pytest.approx(into)
    assert result.phases[1].comm > 0 and bool(result.rewires) == bool(fabric.ocses)


def test_on_packet_switches_each_flow_loads_exactly_its_path():
    result = simulate(fabric_of("fat-tree"), step(), routing="ecmp")
    trace, routes = step(), Routes(fabric_of("fat-tree"))
    expected = np.zeros(len(result.link_bytes))
    for pair in trace.pairs():
        src, dst = (fabric_of("fat-tree").host_index[name] for name in pair)
        expected[list(routes.links(*pair))] += trace.size[
            (trace.src == src) & (trace.dst == dst)
        ].sum()
    assert result.link_bytes == pytest.approx(expected, rel=1e-9)


def test_progress_tells_phases_and_bytes():
    _, told = run("rfabric")
    phases = dict.fromkeys(news["phase"].split()[0] for news in told)
    assert list(phases) == ["generation/0", "training/0", "weight_sync/0"]
    done = [news["done_bytes"] for news in told]
    assert done == sorted(done) and any(0 < some < done[-1] for some in done)
    assert done[-1] == told[0]["total_bytes"] == step().size.sum()


def test_what_takes_long_is_said_even_when_nothing_new_happens(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "PATIENCE", 0.05)
    with terminal.Talk() as talk:
        talk.tell("a", {"stage": "trace"})
        talk.late.join(5)
        assert capsys.readouterr().err == "a: trace\n"
    with terminal.Talk(quiet=True) as talk:
        talk.tell("a", {"stage": "trace"})
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_a_trace_file_holds_what_a_csv_writer_would_write(tmp_path):
    trace = step()
    write_trace(trace, tmp_path / "t.csv")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for i in range(len(trace)):
        writer.writerow(
            (
                i,
                trace.hosts[trace.src[i]],
                trace.hosts[trace.dst[i]],
                int(trace.size[i]),
                float(trace.start[i]),
                " ".join(map(str, trace.waits_for(i))),
                float(trace.gap[i]),
                int(trace.step[i]),
                trace.phases[trace.phase[i]],
                trace.labels[trace.label[i]],
            )
        )
    body = [
        line
        for line in (tmp_path / "t.csv").read_text().splitlines(True)
        if not line.startswith("#")
    ]
    assert "".join(body) == text.getvalue()


def test_a_row_may_wait_for_tens_of_thousands(tmp_path):
    builder = TraceBuilder(["h1", "h2"])
    rows = builder.flows([0] * 40_000, [1] * 40_000, 1)
    builder.compute(0, 1.0, after=rows)
    write_trace(builder.build(), tmp_path / "t.csv")
    assert read_trace(tmp_path / "t.csv").waits_for(40_000).tolist() == rows


def test_pictures_sum_up_what_cannot_be_told_apart():
    result, _ = run("rfabric")
    lit = pictures.circuits(result)
    sent = pictures.demand(*demands(step(), result.fabric))
    used = pictures.load(["rfabric"], [by_tier(result)])
    drawn = lit, sent, used, pictures.cables(result.fabric)
    assert len(json.dumps(drawn)) < 5e4
    assert lit["by_pod"] and sent["unit"] == "pod" and lit["names"] == list(sent["names"])
    assert (
        sum(count for epoch in lit["epochs"] for *_, count in epoch["paths"])
        == sum(
            sum(joined(result.fabric, circuits).values())
            for _, circuits in result.epochs[: pictures.MOST_EPOCHS]
        )
        > 0
    )


def test_lanes_are_as_many_as_flows_of_a_pair_may_overlap():
    from rfabric.emulate.worker import lanes

    b = TraceBuilder(fat_tree().hosts)
    b.flows([0, 0, 2], [1, 1, 3], 1e9)  # two of a pair at once
    first = b.flows([4], [5], 1e9)
    b.flows([4], [5], 1e9, after=first)  # again, when the first is done if nothing is late
    assert lanes(b.build()) == {("h1", "h2"): 2, ("h3", "h4"): 1, ("h5", "h6"): 2}

"""The fabrics that come with rfabric: what they are made of, what holds of all, what is refused."""

import ast
import random
import re
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lighting import lit, some_matching, switches

from rfabric.errors import RFabricError
from rfabric.fabric import BUILDERS, Fabric, fabric_names, parse_fabric
from rfabric.fabric.builders.parts import core_switches, tiers_of
from rfabric.fabric.shipped import load_topology
from rfabric.optics import joined, light, planes, regions
from rfabric.routing import Routes, routes_of, unreachable, where_lost
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder
from rfabric.units import transfer_seconds

ROOT = Path(__file__).parents[2]


SMALL = st.integers(1, 5)


RATE = 4e11


SETTINGS = {  # small fabrics of every kind; None of the draws is impossible
    "fat-tree": {"pods": SMALL, "tors": SMALL, "gpus": st.integers(2, 5)},
    "leaf-spine": {"tors": SMALL, "gpus": st.integers(2, 6)},
    "rail-optimized": {"pods": SMALL, "servers": st.integers(2, 5), "gpus": SMALL},
    "rfabric": {
        "pods": SMALL,
        "tors": SMALL,
        "gpus": st.integers(2, 4),
        "planes": st.integers(1, 4),
        "electrical": st.sampled_from([1e11, 25e9]),
    },
    "topoopt": {"servers": st.integers(2, 9), "gpus": SMALL, "degree": st.integers(2, 5)},
    "mixnet": {
        "servers": st.sampled_from([2, 4, 6, 8]),
        "gpus": st.integers(2, 4),
        "region": st.sampled_from([1, 2]),
    },
    "opus": {"servers": st.integers(2, 9), "gpus": SMALL, "nic_ports": st.integers(2, 3)},
    "rotor": {"tors": st.integers(2, 9), "gpus": st.integers(2, 4)},
    "two-clusters": {
        "training": st.integers(1, 20),
        "generation": st.integers(1, 20),
        "gpus": st.integers(1, 4),
    },
    "ideal": {"gpus": st.integers(2, 40)},
}


A_FABRIC = st.sampled_from(sorted(SETTINGS)).flatmap(
    lambda name: st.fixed_dictionaries(SETTINGS[name]).map(lambda values: BUILDERS[name](**values))
)


# --- what they are made of ------------------------------------------------------------------------


def test_every_fabric_has_a_file_and_every_file_a_drawing():
    assert fabric_names() == sorted([*BUILDERS, "torus"])
    for file in sorted((ROOT / "topologies").glob("*.py")):
        text, table = ast.get_docstring(ast.parse(file.read_text())), load_topology(file)
        for name in table:
            assert (
                f"--topo {name}" in text
                and f"mn --custom topologies/{file.name} --topo {name}" in text
            )
            assert "h1" in text and "defaults:" in text


@pytest.mark.parametrize("name", fabric_names())
def test_the_drawing_counts_right(name):
    """Every number of hosts, switches, cables, ... in a docstring is the default fabric's."""
    file = ROOT / "topologies" / f"{name.replace('-', '_')}.py"
    fabric = load_topology(file)[name]()
    tiers = Counter(n.tier for n in fabric.switches)
    kinds = Counter(n.kind for n in fabric.switches)
    real = {
        "hosts": len(fabric.hosts),
        "switches": len(fabric.switches),
        "cables": len(fabric.links),
        "OCSes": kinds["ocs"],
        "panels": kinds["ocs"],
        "rotors": kinds["ocs"],
        "servers": tiers["server"],
        "ToRs": tiers["edge"],
        "leaves": sum(n.name[0] in "tl" for n in fabric.switches),
        "spines": tiers["core"],
        "rail switches": tiers["edge"],
    }
    text = ast.get_docstring(ast.parse(file.read_text())).partition("rfabric simulate")[0]
    counted = re.findall(
        r"(\d+) (hosts|switches|cables|OCSes|panels|rotors|servers|ToRs|leaves|spines|"
        r"rail switches)\b",
        text,
    )
    assert {"hosts", "cables"} <= {what for _, what in counted}
    for number, what in counted:
        assert int(number) == real[what], f"{name}: {number} {what}, it has {real[what]}"


@pytest.mark.parametrize("file", sorted((ROOT / "topologies").glob("*.py")), ids=lambda f: f.stem)
def test_topology_files_load_as_mn_loads_them(file):
    """mn executes them without __file__, under a Python without numpy; it would clean up after an
    exception.
    """
    code = (
        "import sys; names = {}; exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'), "
        "names, names)\nprint(sorted(names['topos']), [m for m in ('numpy', 'networkx', "
        "'mininet') if m in sys.modules])\nlist(names['topos'].values())[0](-1)"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code, str(file)], capture_output=True, text=True
    )
    assert ran.returncode == 2 and "=-1 must be a whole number" in ran.stderr, ran.stderr
    assert ran.stdout.strip().endswith("[]")


def test_a_leaf_meets_every_spine_once():
    fabric = BUILDERS["leaf-spine"](tors=6, gpus=4, oversubscription=2)
    assert switches(fabric) == {"eps edge": 6, "eps core": 2}
    ends = Counter(
        (link.a.node, link.b.node) for link in fabric.links if link.b.node.startswith("c")
    )
    assert set(ends.values()) == {1} and len(ends) == 12


def test_rail_switch_i_takes_gpu_i_of_every_server():
    fabric = BUILDERS["rail-optimized"](pods=2, servers=3, gpus=4)
    for i, host in enumerate(fabric.hosts):
        pod, gpu = i // 12, i % 4
        assert fabric.rack_of[host] == f"t{pod * 4 + gpu + 1}"
    routes = Routes(fabric)
    assert len(routes.path("h1", "h5")) == 2  # the same rail: one switch between
    assert (
        len(routes.path("h1", "h2")) == 4
    )  # another rail of the same server: over a spine, NVLink is not in the fabric


def test_servers_take_the_place_of_tors_where_ocses_are_cabled_to_them():
    for name in ("topoopt", "opus"):
        fabric = BUILDERS[name]()
        assert {n.tier for n in fabric.switches if n.kind == "eps"} == {"server"}
        assert fabric.racks[0] == "s1" and fabric.rack_of["h9"] == "s2"
    assert switches(BUILDERS["mixnet"]()) == {
        "eps server": 8, "ocs aggregation": 8, "eps aggregation": 2, "eps core": 16
    }  # fmt: skip


def test_an_opus_nic_is_split_and_a_mixnet_circuit_waits_for_the_nic():
    opus = BUILDERS["opus"](nic_ports=2, delay="10ms", reinit="2s")
    assert {link.rate for link in opus.links} == {
        1.6e12,
        RATE / 2,
    } and opus.reconfig_delay == pytest.approx(2.01)
    assert BUILDERS["mixnet"](reinit=0).reconfig_delay == pytest.approx(0.025)
    assert (
        BUILDERS["topoopt"]().reconfig_delay == 120
        and BUILDERS["topoopt"](optics="ocs").reconfig_delay == 0.01
    )
    assert BUILDERS["topoopt"](delay="30s").reconfig_delay == 30


def test_two_clusters_of_different_size_and_speed_share_one_slow_cable():
    fabric = BUILDERS["two-clusters"](
        training=8, generation=20, gpus=4, generation_oversubscription=2, join="20Gbit/s"
    )
    assert [fabric.node[h].pod for h in fabric.hosts] == [0] * 8 + [1] * 20
    assert {fabric.rate(fabric.ports[h][0]) for h in fabric.hosts[:8]} == {RATE}
    assert {fabric.rate(fabric.ports[h][0]) for h in fabric.hosts[8:]} == {2e11}
    assert Counter(n.pod for n in fabric.nodes if n.tier == "aggregation") == {0: 4, 1: 2}
    crossing = [hop for hop in Routes(fabric).path("h1", "h28") if hop.rate == 2e10]
    assert len(crossing) == 1 and fabric.links[crossing[0].links[0] // 2].delay == pytest.approx(
        50e-6
    )


# --- invariants of all ----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(A_FABRIC)
def test_any_fabric_is_well_made_and_joins_all_its_hosts(fabric):
    assert len({n.name for n in fabric.nodes}) == len(fabric.nodes) and all(
        len(n.name) <= 8 for n in fabric.nodes
    )
    for node in fabric.nodes:
        assert [p.number for p in fabric.ports[node.name]] == list(
            range(1, len(fabric.ports[node.name]) + 1)
        )
    assert Fabric.from_json(fabric.to_json()) == fabric
    circuits = lit(fabric).check(fabric)
    assert not unreachable(
        routes_of(fabric, circuits), list(product(fabric.hosts[:3], fabric.hosts))
    )


@settings(max_examples=25, deadline=None)
@given(A_FABRIC, st.randoms(use_true_random=False))
def test_any_matching_inside_regions_is_lit_as_asked(fabric, chance):
    matchings = {plane: some_matching(regions(fabric)[plane], chance) for plane in planes(fabric)}
    circuits = light(fabric, matchings).check(fabric)
    asked = Counter(frozenset(pair) for pairs in matchings.values() for pair in pairs)
    assert joined(fabric, circuits) == asked


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_rules_alone_bring_packets_home(name):
    fabric = BUILDERS[name]()
    circuits = lit(fabric)
    pairs = [(a, b) for a in fabric.hosts[::9] for b in fabric.hosts[::7] if a != b]
    rules = routes_of(fabric, circuits).rules(pairs)
    assert where_lost(rules, fabric, circuits, pairs) == [""] * len(pairs)


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_a_small_trace_arrives_on_every_fabric_and_no_nic_beats_its_rate(name):
    fabric = BUILDERS[name]()
    b = TraceBuilder(fabric.hosts)
    n = len(fabric.hosts)
    first = b.flows(
        range(n), [(i + n // 2) % n for i in range(n)], 1e8, phase="training", label="shift"
    )
    b.flows([0] * 4, [9, 18, 27, 36], 1e8, after=first, phase="weight_sync", label="fan-out")
    result = simulate(fabric, b.build(), "static")
    assert np.isfinite(result.finish).all() and (result.received == result.sent).all()
    slow = fabric.rate(fabric.ports["h1"][0])
    assert result.finish[0] - result.start[0] >= transfer_seconds(1e8, slow) * (1 - 1e-9)


def test_nothing_beats_the_ideal_switch():
    b = TraceBuilder([f"h{i + 1}" for i in range(64)])
    chance = random.Random(7)
    for _ in range(3):
        to = chance.sample(range(64), 64)
        b.flows(
            range(64),
            [j if j != i else (j + 1) % 64 for i, j in enumerate(to)],
            1e8,
            label="shuffle",
        )
    trace = b.build()
    bound = simulate(BUILDERS["ideal"](), trace).step_seconds
    for name in ("fat-tree", "leaf-spine", "rail-optimized", "rfabric", "rotor", "two-clusters"):
        assert simulate(BUILDERS[name](), trace, "static").step_seconds >= bound * (1 - 1e-9)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            "fat-tree,gpus=6,oversubscription=4",
            "1.5 uplinks, .*; use oversubscription=6 .* or oversubscription=3",
        ),
        ("fat-tree,k=5", "the nearest that works is k=4"),
        (
            "fat-tree,gpus=40",
            "a ToR would need 80 ports, the limit is 64; use fewer GPUs a ToR, or radix=80",
        ),
        (
            "fat-tree,tors=40",
            "the limit is 64 pods of 32; the nearest that works is tors=32, or radix=80",
        ),
        (
            "fat-tree,pods=65,tors=2",
            "do not join 65 pods of tors=2.*use at most pods=64, or radix=65",
        ),
        ("fat-tree,k=66", "a ToR would need 66 ports, the limit is 64"),
        ("fat-tree,gpus=32,rate=800Gbit/s", "a ToR would need 64 ports, the limit is 32"),
        ("fat-tree,radix=3", "radix=3 must be a whole number, 4 or more"),
        (
            "leaf-spine,tors=97",
            (
                "two tiers end at 64, three at 2048; the nearest that works is tors=96, or take a "
                "larger"
            ),
        ),
        (
            "leaf-spine,tors=80,radix=8",
            "do not join 80 leaves evenly: two tiers end at 8, three at 32; .* tors=32,",
        ),
        ("leaf-spine,tors=0", "tors=0 must be a whole number, 1 or more"),
        ("rail-optimized,servers=6,oversubscription=4", "6 servers a pod 1.5 uplinks"),
        (
            "rail-optimized,servers=33",
            "a rail switch would need 66 ports, the limit is 64; use fewer servers a pod",
        ),
        (
            "rail-optimized,pods=67",
            "do not join 536 leaves evenly: .*; the nearest that works is pods=66,",
        ),
        (
            "rfabric,gpus=32",
            (
                "a ToR would need 65 ports, the limit is 64; use fewer GPUs a ToR "
                "or planes, or radix=65"
            ),
        ),
        ("rfabric,ocs=lamp", "ocs='lamp' is not known; there are mems, calient, palomar, piezo"),
        (
            "rfabric,ocs=liquid-crystal",
            "no published delay of ocs=liquid-crystal .Coherent. was found; say delay=",
        ),
        (
            "mixnet,servers=388",
            "do not join 97 leaves evenly: .*; the nearest that works is servers=384,",
        ),
        ("mixnet,servers=4,tiers=3", "one region has nothing above its leaf; use tiers=2"),
        (
            "mixnet,servers=384,tiers=2",
            "end at 64 regions of 4 servers, there are 96; use tiers=3 or radix=96",
        ),
        ("mixnet,tiers=4", "tiers=4 is not 2 or 3"),
        ("two-clusters,training=776", "do not join 97 leaves evenly: two tiers end at 63"),
        ("rfabric,tors=200", "do not join 4 pods of tors=200; the nearest that works is tors=160"),
        ("rfabric,pods=40,tors=9", "the nearest that works is tors=8"),
        ("rfabric,pods=400,tors=2", "use at most pods=160"),
        ("topoopt,servers=1", "servers=1 must be a whole number, 2 or more"),
        (
            "topoopt,servers=17,ocs_ports=16",
            "do not join servers=17 evenly; the nearest that works is servers=16",
        ),
        ("topoopt,optics=glass", "optics='glass' is not one of patch-panel, ocs"),
        (
            "mixnet,servers=9",
            "servers=9 do not fill regions of 4; the nearest that works is servers=8",
        ),
        (
            "mixnet,optical=8",
            "optical=8 leaves no NIC for the packet switches; use optical=7 at most",
        ),
        ("mixnet,region=16,servers=16,ocs_ports=8", "the nearest that works is region=8"),
        ("opus,nic_ports=0", "nic_ports=0 must be a whole number, 1 or more"),
        ("opus,reinit=1y", "reinit: unknown unit 'y'"),
        (
            "rotor,tors=600",
            (
                "600 ToRs are more than a rotor switch has ports, 512; the nearest "
                "that works is tors=512"
            ),
        ),
        ("two-clusters,training=0", "training=0 must be a whole number, 1 or more"),
        ("two-clusters,generation_oversubscription=3", "gives 8 GPUs a leaf 2.67 uplinks"),
        ("ideal,gpus=1", "gpus=1 must be a whole number, 2 or more"),
    ],
)
def test_impossible_settings_name_the_nearest_that_works(spec, why):
    with pytest.raises(RFabricError, match=why):
        parse_fabric(spec)


@pytest.mark.parametrize(
    "spec", ["rfabric,tors=160", "rfabric,pods=40,tors=8", "topoopt,servers=16,ocs_ports=16,gpus=1"]
)
def test_the_nearest_that_works_works(spec):
    assert parse_fabric(spec).hosts


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(BUILDERS))
@pytest.mark.parametrize("hosts", [2, 64, 72, 1000, 1024])
def test_a_spec_without_a_size_makes_room_for_the_traffic(name, hosts):
    fabric = parse_fabric(name, hosts)
    assert max(hosts, 64) <= len(fabric.hosts) <= max(2 * hosts, 64)
    tight = parse_fabric(name, hosts, least=1)
    assert hosts <= len(tight.hosts) <= max(2 * hosts, 16)


def holds(name, room):
    """How many GPUs the settings of a room hold."""
    if name == "two-clusters":
        return room["training"] + room["generation"]
    return int(np.prod([room[key] for key in ("pods", "servers", "tors", "gpus") if key in room]))


@settings(deadline=None)
@given(st.sampled_from(sorted(set(BUILDERS) - {"ideal"})), st.integers(1, 65536))
def test_a_room_holds_what_was_asked_for_and_little_more(name, hosts):
    if name == "rotor" and hosts > 512 * 32:  # a rotor switch has no second stage
        with pytest.raises(RFabricError, match="16,384; take a larger ocs_ports or radix"):
            BUILDERS[name].room(hosts, 64)
        return
    room = BUILDERS[name].room(hosts, 64)
    assert max(hosts, 64) <= holds(name, room) <= max(2 * hosts, 64)
    if name == "rfabric":
        assert core_switches(room["pods"], room["tors"], 320) is not None
    if name == "opus":
        assert tiers_of(room["servers"], 320) is not None

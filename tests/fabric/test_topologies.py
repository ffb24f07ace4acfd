"""Every fabric of `topologies/`: what it is made of, that it joins everyone, what it refuses, and
networks read from files.
"""

import ast
import random
import re
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import BUILDERS, Fabric, fabric_names, parse_fabric
from rfabric.fabric.builders.crossbars import CROSSBARS
from rfabric.fabric.builders.parts import core_switches, tiers_of
from rfabric.fabric.cost import bill
from rfabric.fabric.shipped import load_topology
from rfabric.fabric.spec import size_keys, with_setting
from rfabric.optics import (
    Circuits,
    Demand,
    joined,
    light,
    optical_paths,
    parse_policy,
    planes,
    regions,
)
from rfabric.optics.cores import cores_of
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


def lit(fabric):
    """A mesh of the racks, as every run begins."""
    idle = Demand(fabric.racks, np.zeros((len(fabric.racks),) * 2))
    return (
        parse_policy("static", fabric).decide(idle, Circuits(), 0.0) if fabric.ocses else Circuits()
    )


def switches(fabric):
    return Counter(f"{n.kind} {n.tier}" for n in fabric.switches)


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


def some_matching(region, chance):
    racks = list(region)
    chance.shuffle(racks)
    pairs, left = [], racks
    while left:
        a, *left = left
        b = next((rack for rack in left if region[rack] == region[a]), None)
        if b and chance.random() < 0.8:
            pairs.append((a, b))
            left = [rack for rack in left if rack != b]
    return pairs


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_rules_alone_bring_packets_home(name):
    fabric = BUILDERS[name]()
    circuits = lit(fabric)
    pairs = [(a, b) for a in fabric.hosts[::9] for b in fabric.hosts[::7] if a != b]
    rules = routes_of(fabric, circuits).rules(pairs)
    assert [where_lost(rules, fabric, circuits, a, b) for a, b in pairs] == [""] * len(pairs)


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


# --- optical radix --------------------------------------------------------------------------------


def test_a_plane_too_wide_for_one_core_ocs_gets_several():
    fabric = BUILDERS["rfabric"](pods=8, tors=8, gpus=2, planes=2, ocs_ports=32)
    cores = [n for n in fabric.ocses if n.tier == "core"]
    assert len(cores) == 2 * 2 and all(len(fabric.ports[n.name]) == 32 for n in cores)
    assert (
        len(
            [
                n
                for n in BUILDERS["rfabric"](pods=8, tors=8, gpus=2, planes=2).ocses
                if n.tier == "core"
            ]
        )
        == 2
    )


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([(4, 4, 8), (8, 8, 32), (6, 12, 24), (5, 8, 20)]),
    st.randoms(use_true_random=False),
)
def test_any_matching_crosses_several_core_ocses(size, chance):
    pods, tors, ports = size
    fabric = BUILDERS["rfabric"](
        pods=pods, tors=tors, gpus=1, planes=1, electrical=0, ocs_ports=ports
    )
    assert all(len(fabric.ports[n.name]) <= ports for n in fabric.ocses)
    pairs = some_matching(regions(fabric)[0], chance)
    circuits = light(fabric, {0: pairs}).check(fabric)
    assert {frozenset((p.out.node, p.into.node)) for p in optical_paths(fabric, circuits)} == set(
        map(frozenset, pairs)
    )


def test_servers_beyond_the_radix_get_a_second_stage():
    fabric = BUILDERS["topoopt"](servers=24, gpus=1, degree=1, ocs_ports=16)
    assert max(len(fabric.ports[n.name]) for n in fabric.ocses) <= 16 and fabric.pods == 3
    racks = list(fabric.racks)
    pairs = list(zip(racks[:12], racks[12:], strict=True))
    assert set(joined(fabric, light(fabric, {0: pairs}))) == set(map(frozenset, pairs))


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(2, 8), st.randoms(use_true_random=False))
def test_no_core_gets_more_pairs_of_a_pod_than_it_has_cables(half, cores, pods, chance):
    cables = 2 * half * cores
    stubs = [pod for pod in range(pods) for _ in range(cables)]
    chance.shuffle(stubs)
    pairs = [(a, b) for a, b in zip(stubs[::2], stubs[1::2], strict=False) if a != b]
    load = Counter()
    for (a, b), core in zip(pairs, cores_of(pairs, cables, cores), strict=True):
        assert 0 <= core < cores
        load.update([(a, core), (b, core)])
    assert max(load.values(), default=0) <= 2 * half


@given(st.integers(1, 64), st.integers(1, 64), st.integers(2, 64))
def test_core_switches_are_few_equal_and_within_the_radix(pods, tors, ports):
    cores = core_switches(pods, tors, ports)
    if not cores:
        return
    assert (
        pods * tors // cores <= ports and not tors % cores and (cores == 1 or not tors // cores % 2)
    )
    assert cores == 1 or pods * tors > ports


def test_light_between_regions_is_refused():
    fabric = BUILDERS["mixnet"]()
    assert len(set(regions(fabric)[0].values())) == 2
    with pytest.raises(RFabricError, match="no OCS joins s1 and s5; they lie in different regions"):
        light(fabric, {0: [("s1", "s5")]})


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("fat-tree,gpus=6,oversubscription=4", "gives 1.5 uplinks; .* the nearest that works is 3"),
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
        ("rail-optimized,servers=6,oversubscription=4", "6 servers a pod gives 1.5 uplinks"),
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
        ("two-clusters,generation_oversubscription=3", "8 GPUs a leaf gives 2.66667 uplinks"),
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


# --- radix of packet switches ---------------------------------------------------------------------


def boxes(fabric):
    """Ports in use of every packet switch one buys, by name; a server is none."""
    return {
        n.name: len(fabric.ports[n.name])
        for n in fabric.switches
        if n.kind == "eps" and n.tier != "server"
    }


def full_above_racks(fabric):
    """Whether every packet switch above the racks, but those on top and the borders, has as much up
    as down.
    """
    height = {"edge": 0, "aggregation": 1, "core": 2}
    for node in fabric.switches:
        if node.tier != "aggregation" or node.kind != "eps" or node.name[0] == "l":
            continue
        up = [height[fabric.node[fabric.peer[p][1].node].tier] > 1 for p in fabric.ports[node.name]]
        if any(up) and 2 * sum(up) != len(up):
            return False
    return True


ELECTRICAL = sorted(set(BUILDERS) - {"ideal", "topoopt", "opus"})


@pytest.mark.parametrize("name", ELECTRICAL)
@pytest.mark.parametrize("hosts", [64, 1024, 2048, 4096, 5000, 16384])
def test_no_switch_has_more_cables_than_ports_and_a_third_tier_is_full(name, hosts):
    fabric = parse_fabric(name, hosts)
    assert max(boxes(fabric).values()) <= fabric.parameters["radix"] == 64
    assert len({n.dpid for n in fabric.switches}) == len(fabric.switches)
    assert name == "two-clusters" or full_above_racks(fabric)


@pytest.mark.parametrize("name", sorted(set(ELECTRICAL) - {"rotor"}))
def test_65536_gpus_keep_to_the_ports_too(name):
    fabric = parse_fabric(name, 65536)
    assert len(fabric.hosts) == 65536 and max(boxes(fabric).values()) <= 64


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ELECTRICAL), st.integers(2, 700), st.sampled_from([16, 24, 48]))
def test_any_radix_is_kept(name, hosts, radix):
    try:
        fabric = parse_fabric(f"{name},radix={radix}", hosts, least=1)
    # only where switches so small cannot hold so many, or a region's leaf
    except RFabricError as error:
        assert re.search("larger radix|, or radix=", str(error))
        return
    assert len(fabric.hosts) >= hosts and max(boxes(fabric).values()) <= radix
    assert not unreachable(
        routes_of(fabric, lit(fabric)), [(fabric.hosts[0], h) for h in fabric.hosts[1:]]
    )


@pytest.mark.parametrize(
    "spec",
    [
        "fat-tree,pods=16,tors=8,gpus=2,radix=16",
        "leaf-spine,tors=32,gpus=8,radix=16",
        "rail-optimized,pods=4,servers=8,gpus=8,radix=16",
        "mixnet,servers=40,region=2,gpus=4,radix=16,tiers=3",
    ],
)
def test_the_core_of_three_tiers_carries_all_that_leaves_the_nics(spec):
    fabric = parse_fabric(spec)

    def rate(tier, peers):
        """bit/s between the switches of a tier and what stands in `peers`."""
        ends = [
            p
            for n in fabric.switches
            if n.tier == tier and n.kind == "eps"
            for p in fabric.ports[n.name]
        ]
        return sum(
            fabric.rate(p) for p in ends if fabric.node[fabric.peer[p][1].node].tier in peers
        )

    nics = rate("edge", ("host",)) or rate("aggregation", ("server",))
    assert rate("core", ("aggregation",)) == nics > 0
    assert len(boxes(fabric)) > 2 and max(boxes(fabric).values()) <= 16


def test_rails_of_one_number_meet_below_the_core():
    # 32 rail switches: 8 groups of 4
    fabric = BUILDERS["rail-optimized"](pods=4, servers=2, gpus=8, radix=8)
    routes = Routes(fabric)
    assert len(routes.path("h1", f"h{3 * 16 + 1}")) == 4  # rail 1, the farthest pod
    assert len(routes.path("h1", f"h{3 * 16 + 2}")) == 6  # rail 2: over the core


def test_more_tors_than_ports_get_a_tree_that_is_always_on():
    fabric = BUILDERS["rfabric"](
        pods=4, tors=10, gpus=1, planes=1, radix=8
    )  # 40 ToRs: 10 x 4, then 4 planes of their own
    thin = {n.name: len(fabric.ports[n.name]) for n in fabric.switches if n.tier == "electrical"}
    assert max(thin.values()) <= 8 and len(thin) > 10
    routes = Routes(fabric)  # all circuits dark
    assert not unreachable(routes, [("h1", h) for h in fabric.hosts[1:]])
    assert [
        n.name
        for n in BUILDERS["rfabric"](pods=4, tors=16, gpus=1).switches
        if n.tier == "electrical"
    ] == ["x1"]


# --- OCSes by name --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rfabric", "rotor", "topoopt", "mixnet", "opus"])
def test_an_ocs_by_name_brings_its_ports_and_its_delay(name):
    more = {"reinit": 0} if name in ("mixnet", "opus") else {}
    for key, row in CROSSBARS.items():
        if row.delay is None or row.ports < 64:
            continue
        fabric = BUILDERS[name](ocs=key, **more)
        assert fabric.reconfig_delay == row.delay and fabric.parameters["ocs_ports"] == row.ports
        assert {line.item for line in bill(fabric).lines} >= {f"{row.item}-port"}
    fabric = BUILDERS[name](ocs="piezo", delay="1ms", ocs_ports=64, **more)
    assert fabric.reconfig_delay == 1e-3 and fabric.parameters["ocs_ports"] == 64


def test_every_figure_of_an_ocs_has_a_source():
    for row in CROSSBARS.values():
        assert row.ports_source and row.item in ("ocs", "patch-panel")
        assert (row.delay is None) == (not row.delay_source) and (row.loss_db is None) == (
            not row.loss_source
        )


def test_a_smaller_ocs_makes_more_of_them():
    large, small = (parse_fabric(f"rfabric,ocs={name}", 2048) for name in ("piezo", "palomar"))
    assert len(small.hosts) >= 2048 and len(small.ocses) > len(large.ocses)
    assert max(len(small.ports[n.name]) for n in small.ocses) <= 136


def test_a_size_that_is_said_is_taken_and_what_else_is_said_bounds_the_room():
    assert len(parse_fabric("rotor,tors=4,gpus=4", 65536).hosts) == 16
    assert len(parse_fabric("leaf-spine,radix=128", 4096).hosts) == 4096
    assert parse_fabric("mixnet,region=3", 100).parameters["servers"] == 15
    assert parse_fabric("mixnet,region=1", 16, least=1).parameters["region"] == 1
    assert not [
        n for n in parse_fabric("leaf-spine,radix=128", 4096).switches if n.tier == "aggregation"
    ]
    with pytest.raises(
        RFabricError,
        match="16,384 GPUs: three tiers of switches of 32 ports end at 8,192; take a larger",
    ):
        parse_fabric("fat-tree,rate=800Gbit/s", 16384)
    with pytest.raises(
        RFabricError, match="OCSes of 8 ports do not join 16,384 GPUs; take a larger ocs_ports"
    ):
        parse_fabric("opus,ocs_ports=8", 16384)


def test_what_a_spec_leaves_open_can_be_filled_in():
    assert size_keys("topoopt") == ("servers", "gpus") and size_keys("ideal,rate=1Gbit/s") == (
        "gpus",
    )
    assert with_setting("rfabric,pods=2", "rate", "100G") == "rfabric,pods=2,rate=100G"
    assert with_setting("rfabric,rate=200G", "rate", "100G") == "rfabric,rate=200G"
    assert with_setting("mine.json", "rate", "100G") == "mine.json"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "import nosuch",
            "mine.py, line 1: ModuleNotFoundError: No module named 'nosuch'; mend the file",
        ),
        ("\ndef (", "mine.py, line 2: SyntaxError"),
        ("raise SystemExit(3)", "mine.py, line 1: SystemExit: 3"),
        ("fabrics = {'mine': 3}", "offers no fabrics = {name: builder}"),
        (
            "def mine():\n    return 1 / 0\nfabrics = {'mine': mine}",
            "mine.py, line 2: ZeroDivisionError",
        ),
        ("def mine():\n    return 3\nfabrics = {'mine': mine}", "mine returned 3, no Fabric"),
    ],
)
@pytest.mark.parametrize("verb", ["topo", "check"])
def test_a_topology_file_that_breaks_is_told_by_its_line(
    tmp_path, monkeypatch, capsys, text, why, verb
):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(text + "\n")
    assert main([verb, "mine.py"]) == 2
    out, err = capsys.readouterr()
    assert why in out + err and "Traceback" not in out + err


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("fat-tre,k=4", "did you mean fat-tree?"),
        ("fat-tree,pod=4", "did you mean pods?"),
        ("qqq", "'qqq'; there are"),
    ],
)
def test_what_may_have_been_meant_is_said(spec, hint):
    with pytest.raises(RFabricError, match=re.escape(hint)):
        parse_fabric(spec)


def test_a_builder_of_ones_own_is_sized_its_own_way(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from rfabric.fabric import leaf_spine\nfrom rfabric.fabric.builders import sized\n"
        "@sized(lambda hosts, least: {'leaves': -(-hosts // 16)})\n"
        "def mine(leaves: int = 2):\n    return leaf_spine(tors=leaves, gpus=16)\n"
        "fabrics = {'mine': mine}\n"
    )
    assert len(parse_fabric(str(file), 100).hosts) == 112
    assert len(parse_fabric(f"{file},leaves=3", 100).hosts) == 48


# --- networks from files --------------------------------------------------------------------------

UNEVEN = """# a Clos as it was built
ip,ToR,agg,core
10.1.0.1,leaf-a,agg-1 agg-2,core-1;core-2
10.1.0.2,leaf-a,agg-1 agg-2,core-1;core-2

10.1.0.3,leaf-b,agg-2,core-2
10.2.0.1,leaf-c,agg-3,core-1
"""
PAIRS = (
    "a,b,rate,delay\n"
    "x1,leaf,100Gbit/s,\n"
    "x2,leaf,200Gbit/s,1us\n"
    "leaf,top,400Gbit/s,\n"
    "other,top,40Gbit/s,5us\n"
    "y,other,10G,\n"
)


def test_an_uneven_clos_is_read_as_it_is(tmp_path):
    (tmp_path / "clos.csv").write_text(UNEVEN)
    fabric = parse_fabric(f"{tmp_path}/clos.csv,rate=100Gbit/s,uplink_rate=400Gbit/s")
    assert switches(fabric) == {"eps edge": 3, "eps aggregation": 3, "eps core": 2}
    names = fabric.parameters["names"]
    cables = {frozenset((names[k.a.node], names[k.b.node])): k.rate for k in fabric.links}
    assert len(cables) == len(fabric.links) == 4 + 4 + 5
    assert (
        cables[frozenset(("leaf-a", "agg-2"))] == 4e11
        and cables[frozenset(("10.1.0.3", "leaf-b"))] == 1e11
    )
    assert frozenset(("agg-2", "core-1")) in cables and frozenset(("agg-3", "core-2")) not in cables
    assert not unreachable(Routes(fabric), list(product(fabric.hosts, fabric.hosts)))
    assert Fabric.from_json(fabric.to_json()) == fabric
    b = TraceBuilder(fabric.hosts)
    b.flows([0, 1], [3, 2], 1e9)
    assert simulate(fabric, b.build()).step_seconds >= transfer_seconds(1e9, 1e11)


def test_endpoint_pairs_carry_rates_and_delays(tmp_path):
    (tmp_path / "pairs.csv").write_text(PAIRS)
    fabric = parse_fabric(f"{tmp_path}/pairs.csv")
    assert [fabric.parameters["names"][h] for h in fabric.hosts] == ["x1", "x2", "y"]
    assert {fabric.parameters["names"][n.name]: n.tier for n in fabric.switches} == {
        "leaf": "edge", "other": "edge", "top": "aggregation"
    }  # fmt: skip
    assert [k.rate for k in fabric.links] == [1e11, 2e11, 4e11, 4e10, 1e10]
    assert fabric.links[1].delay == pytest.approx(1e-6) and fabric.links[3].delay == pytest.approx(
        5e-6
    )
    assert not unreachable(Routes(fabric), [("h1", "h3")])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1: the header must be ip,ToR,agg,core or a,b,rate.*; it is missing"),
        ("host,switch\n", "line 1: the header must be .*; it is host,switch"),
        ("ip,ToR,agg,core\n", "it has no host"),
        ("ip,ToR,agg,core\n1,t,a\n", "line 2: 3 cells, the header has 4"),
        ("ip,ToR,agg,core\n1,,a,c\n", "line 2, column tor: '' must be one name"),
        ("ip,ToR,agg,core\n1,t u,a,c\n", "line 2, column tor: 't u' must be one name"),
        (
            "ip,ToR,agg,core\n1,t,a,c\n# more\n1,t,a,c\n",
            "line 4, column ip: 1 stands in an earlier row",
        ),
        ("ip,ToR,agg,core\n1,t,a,c\n2,a,a,c\n", "line 3, column tor: a stands in another column"),
        ("ip,ToR,agg,core\n1,t,,c\n", "line 2, column agg: empty, but column core names c"),
        ("a,b,rate\nx,t,fast\n", "line 2, column rate: 'fast' is not a quantity"),
        ("a,b,rate\nx,t,0\n", "line 2, column rate: '0' must be above 0"),
        ("a,b,rate,delay\nx,t,1G,5m\n", "line 2, column delay: unknown unit 'm'"),
        ("a,b,rate\nt,t,1G\n", "line 2, column b: t is joined to itself"),
        (
            "a,b,rate\nx,t,1G\ny,t,1G\nu,v,1G\n",
            "line 4, column b: u and v are joined to nothing else",
        ),
    ],
)
def test_a_bad_network_file_says_file_line_and_column(tmp_path, text, why):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(RFabricError, match=f"bad.csv(, )?.*{why}"):
        parse_fabric(f"{tmp_path}/bad.csv")


def test_check_knows_a_network_from_a_trace(tmp_path, capsys):
    (tmp_path / "clos.csv").write_text(UNEVEN)
    (tmp_path / "flows.csv").write_text("src,dst,size_bytes\nh1,h2,1000\n")
    assert main(["check", f"{tmp_path}/clos.csv", f"{tmp_path}/flows.csv"]) == 0
    said = capsys.readouterr().out
    assert (
        "OK, fabric clos of 4 GPUs and 8 switches" in said
        and "OK, trace of 1 rows among 2 hosts" in said
    )


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_mininet_gets_the_fabrics_names_ports_and_addresses(name):
    pytest.importorskip("mininet.topo", reason="no mininet in this Python: apt-get install mininet")
    from rfabric.emulate.topo import topo_of

    fabric = BUILDERS[name]()
    topo = topo_of(fabric)
    assert sorted(topo.hosts()) == sorted(fabric.hosts) and sorted(topo.switches()) == sorted(
        n.name for n in fabric.switches
    )
    joined_ports = {
        frozenset([(i["node1"], i["port1"]), (i["node2"], i["port2"])])
        for *_, i in topo.links(withInfo=True)
    }
    assert joined_ports == {frozenset([tuple(k.a), tuple(k.b)]) for k in fabric.links}
    assert all(int(topo.nodeInfo(n.name)["dpid"], 16) == n.dpid for n in fabric.switches)


def test_a_missing_network_file_and_an_unknown_setting_are_named(tmp_path):
    with pytest.raises(RFabricError, match="fabric file .*none.csv"):
        parse_fabric(f"{tmp_path}/none.csv")
    with pytest.raises(
        RFabricError,
        match="'pods=2' is not a setting; write KEY=VALUE with one of rate, uplink_rate",
    ):
        parse_fabric(f"{tmp_path}/none.csv,pods=2")

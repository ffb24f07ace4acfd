"""Ports a switch has: optical radix, packet switches of a radix, OCSes by name."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lighting import lit, some_matching

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import BUILDERS, parse_fabric
from rfabric.fabric.builders.crossbars import CROSSBARS
from rfabric.fabric.builders.parts import core_switches
from rfabric.fabric.cost import bill
from rfabric.fabric.spec import with_setting
from rfabric.optics import joined, light, optical_paths, regions
from rfabric.optics.cores import cores_of
from rfabric.routing import Routes, routes_of, unreachable

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
    dealt = cores_of(np.array(pairs, int).reshape(-1, 2).T, cables, cores)
    for (a, b), core in zip(pairs, dealt.tolist(), strict=True):
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


# --- radix of packet switches ---------------------------------------------------------------------


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
    assert with_setting("rfabric,pods=2", "rate", "100G") == "rfabric,pods=2,rate=100G"
    assert with_setting("rfabric,rate=200G", "rate", "100G") == "rfabric,rate=200G"
    assert with_setting("mine.json", "rate", "100G") == "mine.json"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "import nosuch",
            "mine.py, line 1: ModuleNotFoundError: No module named 'nosuch'; correct the file",
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


def test_a_quarter_of_a_million_gpus_get_a_fabric_where_switches_have_the_ports():
    fabric = parse_fabric("fat-tree,radix=128", 262144)
    assert len(fabric.hosts) == 262144 and len(fabric.racks) == 4096
    with pytest.raises(RFabricError, match="switches of 64 ports end at 65,536; take a larger"):
        parse_fabric("fat-tree", 262144)
    with pytest.raises(RFabricError, match="names GPU h262145; 262,144 at most get a fabric"):
        parse_fabric("fat-tree,radix=128", 262145)

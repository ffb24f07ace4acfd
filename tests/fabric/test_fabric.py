import json
import re

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.errors import RFabricError
from rfabric.fabric import (
    Fabric,
    Link,
    Needs,
    Node,
    Port,
    fat_tree,
    host_ip,
    host_mac,
    parse_fabric,
    rfabric,
)
from rfabric.fabric.spec import shape_for
from rfabric.optics import Circuits, light, planes
from rfabric.optics.templates import mesh
from rfabric.routing import Routes, unreachable, where_lost  # fmt: skip


def lit(fabric):
    return light(
        fabric, dict(zip(planes(fabric), mesh(fabric.racks, len(planes(fabric))), strict=True))
    )


@pytest.mark.parametrize(
    ("fabric", "hosts", "switches", "links"),
    [
        (fat_tree(), 64, 36, 192),
        (fat_tree(oversubscription=2), 64, 26, 128),
        # (5/4) k^2 switches, k^3/4 hosts, 3 k^3/4 cables (Al-Fares 2008)
        (fat_tree(k=4), 16, 20, 48),
        (fat_tree(k=8), 128, 80, 384),
        (rfabric(), 64, 37, 208),
        (rfabric(electrical=0), 64, 36, 192),
        (rfabric(pods=1, tors=2, gpus=1), 2, 4, 6),
    ],
)
def test_counts(fabric, hosts, switches, links):
    assert (len(fabric.hosts), len(fabric.switches), len(fabric.links)) == (hosts, switches, links)


def test_k_ary_core_switches_have_k_ports():
    fabric = fat_tree(k=8)
    assert {len(fabric.ports[n.name]) for n in fabric.switches} == {8}


@pytest.mark.parametrize(
    "fabric", [fat_tree(), fat_tree(k=4), rfabric(), rfabric(pods=3, tors=2, gpus=2, planes=3)]
)
def test_port_numbers_are_dense_and_names_fit_linux(fabric):
    for node in fabric.nodes:
        numbers = [p.number for p in fabric.ports[node.name]]
        assert numbers == list(range(1, len(numbers) + 1))
        assert all(len(p.interface) <= 15 for p in fabric.ports[node.name])


def test_json_round_trip_is_exact():
    fabric = rfabric(pods=2, delay="25us")
    again = Fabric.from_json(json.dumps(fabric.to_json()))
    assert again == fabric


def test_addresses_are_distinct_for_65536_hosts():
    assert (
        host_ip(0) == "10.0.0.1"
        and host_mac(0) == "00:00:00:00:00:01"
        and host_ip(255) == "10.0.1.0"
    )
    assert (
        len({host_ip(i) for i in range(65536)}) == len({host_mac(i) for i in range(65536)}) == 65536
    )


@pytest.mark.parametrize("fabric", [fat_tree(), rfabric()])
def test_effective_graph_joins_all_hosts(fabric):
    graph = fabric.graph(lit(fabric) if fabric.ocses else ())
    assert nx.is_strongly_connected(graph)
    assert not any(n.name in graph for n in fabric.ocses)


def test_dark_rfabric_keeps_only_the_electrical_path():
    fabric = rfabric()
    routes = Routes(fabric)
    assert [str(hop.out) for hop in routes.path("h1", "h64")] == ["h1:1", "t1:9", "x1:16", "t16:4"]
    bare = rfabric(electrical=0)
    assert unreachable(Routes(bare), [("h1", "h2"), ("h1", "h64")]) == [("h1", "h64")]


def test_fast_circuits_beat_the_thin_electrical_path():
    fabric = rfabric()
    far = light(fabric, {0: [("t1", "t2")], 1: [("t2", "t3")]})
    assert [hop.out.node for hop in Routes(fabric, far).path("h1", "h9")] == [
        "h1",
        "t1",
        "t2",
        "t3",
    ]


@pytest.mark.parametrize("fabric", [fat_tree(), fat_tree(k=4), rfabric()])
def test_every_packet_arrives_by_the_rules_alone(fabric):
    circuits = lit(fabric) if fabric.ocses else Circuits()
    routes = Routes(fabric, circuits)
    pairs = [(a, b) for a in fabric.hosts[::7] for b in fabric.hosts[::5] if a != b]
    rules = routes.rules(pairs)
    assert len({(r.switch, r.match) for r in rules}) == len(set(rules))
    assert where_lost(rules, fabric, circuits, pairs) == [""] * len(pairs)


def test_a_walk_ends_where_a_circuit_is_missing():
    fabric = rfabric(electrical=0)
    pairs = [("h1", "h64")]
    ends = where_lost(Routes(fabric, lit(fabric)).rules(pairs), fabric, Circuits(), pairs)
    assert ends[0].startswith("dropped at a")


def test_ecmp_spreads_pairs_over_all_uplinks():
    fabric = fat_tree()
    routes = Routes(fabric)
    ups = [routes.path(a, b)[1].out.number for a in fabric.hosts[:16] for b in fabric.hosts[16:]]
    counts = [ups.count(p) for p in range(5, 9)]
    assert min(counts) > 0.7 * len(ups) / 4


def test_specs_of_files_names_and_json(tmp_path):
    assert len(parse_fabric("rfabric,pods=2").hosts) == 32
    assert parse_fabric("fat-tree,k=4,rate=100Gbit/s").links[0].rate == 1e11
    (tmp_path / "f.json").write_text(json.dumps(fat_tree(k=4).to_json()))
    assert len(parse_fabric(str(tmp_path / "f.json")).hosts) == 16
    (tmp_path / "mine.py").write_text(
        "from rfabric.fabric import fat_tree\nfabrics = {'a': fat_tree, 'b': fat_tree}\n"
    )
    assert parse_fabric(f"{tmp_path}/mine.py:b,k=4").name == "fat-tree"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("toruses", "no fabric named 'toruses', .*there are fat-tree, ideal, leaf-spine"),
        (
            "rfabric,pod=2",
            (
                "'pod=2' is not a setting, did you mean pods.; write KEY=VALUE with "
                "one of pods, tors"
            ),
        ),
        ("rfabric,pods=0", "pods=0 must be a whole number, 1 or more"),
        ("rfabric,pods=2.5", "pods=2.5 must be a whole number"),
        ("rfabric,delay=10m", "delay: unknown unit 'm' in '10m'"),
        ("rfabric,rate=0", r"rate 0 bit/s must be 1 to 1e\+18"),
        ("leaf-spine,rate=1e-300bit/s", r"rate 1e-300 bit/s must be 1 to 1e\+18"),
        ("leaf-spine,rate=1e300bit/s", r"rate 1e\+300 bit/s must be 1 to 1e\+18"),
        ("two-clusters,join_delay=1e200s", r"delay 1e\+200 s 0 to 1e\+09"),
        ("fat-tree,k=5", "k=5 must be even"),
        (
            "fat-tree,oversubscription=3",
            r"oversubscription=3 gives 4 GPUs a ToR 1.33 uplinks, which must be a whole number, 1 "
            r"to 4; use oversubscription=4 \(1 uplink\) or oversubscription=2 \(2 uplinks\)$",
        ),
        ("fat-tree,oversubscription=nan", "must be a number"),
        ("fat-tree,pods=1,tors=1,gpus=1", "is one GPU; a fabric needs two"),
        ("fat-tree,tors=600", "the limit is 64 pods of 32; the nearest that works is tors=32"),
        ("nowhere.py", "no fabric file nowhere.py"),
        ("nowhere.json", "fabric file nowhere.json"),
    ],
)
def test_bad_specs_say_what_and_the_way_out(spec, why):
    with pytest.raises(RFabricError, match=why):
        parse_fabric(spec)


UPLINKS = (
    ("fat-tree,gpus=8", "oversubscription"),
    ("fat-tree,gpus=60,radix=64", "oversubscription"),
    ("leaf-spine,gpus=7", "oversubscription"),
    ("leaf-spine,gpus=12,tors=4", "oversubscription"),
    ("rail-optimized,servers=6", "oversubscription"),
    ("mixnet,servers=8,region=4,gpus=8,optical=2", "oversubscription"),
    ("two-clusters,gpus=8", "oversubscription"),
    ("two-clusters,gpus=8", "generation_oversubscription"),
)


@pytest.mark.parametrize(("spec", "key"), UPLINKS)
@pytest.mark.parametrize("ratio", ["3.1", "7.3", "1.01", "0.5", "0", "-2", "1000", "1e-12"])
def test_every_oversubscription_that_is_offered_is_accepted(spec, key, ratio):
    with pytest.raises(RFabricError, match=f"{key}={ratio} ") as told:
        parse_fabric(f"{spec},{key}={ratio}")
    ways = re.findall(r"(\w+=[\d.]+) \((\d+) uplinks?\)", str(told.value).split("; use ")[1])
    assert 1 <= len(ways) <= 2
    for way, up in ways:
        fabric = parse_fabric(f"{spec},{way}")
        assert way.startswith(key)
        assert round(fabric.parameters[key] * int(up), 6) in (6.0, 7.0, 8.0, 12.0, 24.0, 60.0)


def test_two_cables_in_one_port_are_refused():
    nodes = [
        Node("t1", "eps", "edge", dpid=1),
        Node("h1", "host", "host"),
        Node("h2", "host", "host"),
    ]
    links = [Link(Port("h1", 1), Port("t1", 1), 1e9), Link(Port("h2", 1), Port("t1", 1), 1e9)]
    with pytest.raises(RFabricError, match="port t1:1 holds two cables"):
        Fabric("broken", nodes, links)


def test_names_that_a_shell_or_linux_would_trip_over_are_refused():
    for name in ("a;rm", "switch-of-nine", "", "t 1", "t1/.."):
        with pytest.raises(RFabricError, match="use 1 to 8 ASCII letters and digits"):
            Node(name, "eps", "edge")


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.sampled_from([1, 2, 4]))
def test_random_fat_trees_are_connected_and_full(pods, tors, gpus, ratio):
    if pods * tors * gpus < 2 or gpus % ratio:
        return
    fabric = fat_tree(pods, tors, gpus, ratio)
    routes = Routes(fabric)
    assert not unreachable(routes, [(fabric.hosts[0], h) for h in fabric.hosts[1:]])


@pytest.mark.parametrize(
    ("hosts", "shape"), [(2, (4, 4, 4)), (64, (4, 4, 4)), (1024, (16, 8, 8)), (65536, (64, 32, 32))]
)
def test_a_spec_without_a_size_makes_room_for_the_traffic(hosts, shape):
    assert tuple(shape_for(hosts).values()) == shape
    if hosts <= 1024:
        assert len(parse_fabric("rfabric,delay=1ms", hosts).hosts) == max(hosts, 64)
    assert len(parse_fabric("rfabric,pods=2", hosts).hosts) == 32


@given(st.integers(1, 65536))
def test_every_size_fits_its_shape(hosts):
    shape = shape_for(hosts)
    assert shape["pods"] * shape["tors"] * shape["gpus"] >= hosts
    # of a Fat-Tree of 64-port switches
    assert shape["gpus"] <= 32 and shape["tors"] <= 32 and shape["pods"] <= 64


@pytest.mark.parametrize(
    ("where", "change", "said"),
    [
        (("nodes", 0), {"name": 5}, "node name 5"),
        (("nodes", 0), {"pod": "x"}, "pod 'x' must be a whole number"),
        (("nodes", 0), {"tier": "core"}, "h1: kind 'host' with tier 'core'; hosts, and they alone"),
        (("nodes", 2), {"tier": "host"}, "kind 'eps' with tier 'host'; hosts, and they alone"),
        (("nodes", 2), {"dpid": -1}, "dpid -1 must be 0 to 18446744073709551615"),
        (("nodes", 2), {"dpid": 1 << 64}, "dpid 18446744073709551616 must be 0 to"),
        (("links", 0), {"a": "h1:4294967041"}, "numbers of ports are 1 to 4294967040"),
        (("links", 0), {"a": "h1:" + "9" * 5000}, "numbers of ports are 1 to 4294967040"),
        (("links", 0), {"a": "h1:0"}, "port h1:0: numbers of ports are 1 to"),
        (("links", 0), {"rate_bps": "400Gbit/s"}, "rate_bps '400Gbit/s' must be a number, 1e"),
        (("links", 0), {"rate_bps": 10**400}, "rate_bps 10+ must be a number, 1e.18 at most"),
        ((), {"reconfig_delay_s": "1ms"}, "reconfig_delay_s '1ms' must be a number"),
        ((), {"reconfig_delay_s": True}, "reconfig_delay_s True must be a number"),
        (("links", 0), {"rate_bps": float("inf")}, "rate inf"),
        ((), {"reconfig_delay_s": float("inf")}, "reconfiguration delay inf"),
        ((), {"links": []}, "host h1 is cabled to nothing; it needs one cable, to a ToR"),
        ((), {"nodes": [], "links": []}, "it has no host"),
        ((), {"parameters": [1]}, "fabric file"),
    ],
)
def test_a_broken_fabric_file_is_refused(where, change, said):
    data = fat_tree(pods=2, tors=1, gpus=1).to_json()
    place = data
    for key in where:
        place = place[key]
    place.update(change)
    with pytest.raises(RFabricError, match=said):
        Fabric.from_json(data)


def test_a_setting_given_twice_or_against_k_is_refused():
    with pytest.raises(RFabricError, match="stands twice"):
        parse_fabric("rfabric,pods=2,pods=3")
    with pytest.raises(RFabricError, match="k=4 sets pods=4"):
        parse_fabric("fat-tree,k=4,pods=8")


@pytest.mark.parametrize("name", ["topoopt", "mixnet", "opus"])
def test_what_a_spec_leaves_open_is_as_the_job_needs_it(name):
    needs = Needs(60, 6, 1e11)
    made = needs.fabric(name)
    assert (
        made.parameters["gpus"] == 6
        and len(made.hosts) >= 60
        and made.parameters["rate_bps"] == 1e11
    )
    assert needs.fabric(f"{name},rate=200Gbit/s").parameters["rate_bps"] == 2e11
    assert needs.fabric(f"{name},servers=8,gpus=8").parameters["gpus"] == 8
    assert Needs().fabric(name).to_json() == parse_fabric(name).to_json()


def test_a_file_with_a_rate_of_its_own_keeps_it(tmp_path):
    (tmp_path / "slow.py").write_text(
        "from rfabric.fabric import ideal\ndef slow(gpus=8, rate='25Gbit/s'):\n    return "
        "ideal(gpus, rate)\nfabrics = {'slow': slow}\n"
    )
    assert Needs(8, 8, 1e11).fabric(str(tmp_path / "slow.py")).links[0].rate == 25e9


def test_mixnet_has_no_servers_of_one_gpu():
    with pytest.raises(RFabricError, match="so two GPUs; the job's servers have one"):
        Needs(8, 1).fabric("mixnet")


@pytest.mark.parametrize("text", ["{}", "[" * 100_000, '{"nodes": ' + "1" * 5000 + "}"])
def test_a_fabric_file_that_is_none_is_named(tmp_path, text):
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(RFabricError, match=r"fabric file .*f\.json: ."):
        parse_fabric(str(tmp_path / "f.json"))

"""Topologies that people have: each format read and written, round trips, broken and hostile files.

Files are written by hand from the formats' published descriptions; those in shared/data are read
where they are there.
"""

import gzip
import json
import random
import re
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import networkx as nx
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from test_miniedit import edited

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import Fabric, fat_tree, leaf_spine, parse_fabric
from rfabric.fabric.builders import Sketch
from rfabric.fabric.formats import TOPOLOGIES, written
from rfabric.fabric.formats.graphs import graph_of
from rfabric.optics import joined, light, planes
from rfabric.routing import Routes, unreachable
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data" / "formats"
SUFFIX = {"graphml": ".graphml", "gml": ".gml", "node-link": ".json", "containerlab": ".clab.yml",
          "ns3-topology": ".ns3", "graphviz": ".dot"}  # fmt: skip


def read(path, **settings):
    words = "".join(f",{key}={value}" for key, value in settings.items())
    return parse_fabric(f"{path}{words}")


def cables(fabric, names=None):
    """Cables as pairs of names with rate and delay, however often each."""
    names = names or fabric.parameters.get("names") or {n.name: n.name for n in fabric.nodes}
    return Counter(
        (frozenset((names[k.a.node], names[k.b.node])), k.rate, k.delay) for k in fabric.links
    )


def plain(fabric):
    return {n.name: n.name for n in fabric.nodes}


def made(path, text):
    path.write_text(text)
    return path


# --- round trips ----------------------------------------------------------------------------------


@st.composite
def networks(draw):
    """Uneven racks below switches of any rates, some cabled twice, in one part."""
    rates = st.sampled_from([1e9, 25e9, 53.125e9, 100e9, 400e9, 1.0 + 1e11 / 3])
    delays = st.sampled_from([0.0, 5e-7, 1e-6, 123e-9, 1e-3 / 3])
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    above = draw(st.integers(1, 3))
    sketch = Sketch()
    hosts = iter(sketch.hosts([sum(sizes)]))
    tors = [sketch.switch(f"t{i + 1}", "eps", "edge", (0, i), 0) for i in range(len(sizes))]
    aggs = [sketch.switch(f"a{i + 1}", "eps", "aggregation", (0, i), 0) for i in range(above)]
    for tor, size in zip(tors, sizes, strict=True):
        for _ in range(size):
            sketch.cable(next(hosts), tor, draw(rates), draw(delays))
    for tor, agg in product(tors, aggs):
        for _ in range(draw(st.integers(1, 2))):
            sketch.cable(tor, agg, draw(rates), draw(delays))
    return Fabric("drawn", sketch.nodes, sketch.links)


@pytest.mark.parametrize("form", SUFFIX)
@given(fabric=networks())
@settings(max_examples=25, deadline=None)
def test_there_and_back_hosts_cables_rates_and_delays_are_kept(tmp_path_factory, form, fabric):
    path = tmp_path_factory.mktemp("trip") / f"drawn{SUFFIX[form]}"
    path.write_text(written(fabric, path, form))
    back = parse_fabric(str(path))
    names = back.parameters["names"]
    if form == "ns3-topology":  # numbers nodes
        order = [*fabric.hosts, *(n.name for n in fabric.switches)]
        names = {new: order[int(old)] for new, old in names.items()}
    assert [names[h] for h in back.hosts] == list(fabric.hosts)
    assert {names[h]: names[t] for h, t in back.rack_of.items()} == fabric.rack_of
    assert cables(back, names) == cables(fabric)


@pytest.mark.parametrize("form", ["graphml", "gml", "node-link", "containerlab", "graphviz"])
@pytest.mark.parametrize("name", ["rfabric", "mixnet", "opus", "two-clusters", "rail-optimized"])
def test_what_the_nodes_are_is_kept_with_their_circuits(tmp_path, form, name):
    fabric = parse_fabric(name)
    back = read(made(tmp_path / f"f{SUFFIX[form]}", written(fabric, "", form)))
    names = back.parameters["names"]
    kept = {names[n.name]: (n.kind, n.tier, n.pod, n.plane) for n in back.nodes}
    assert kept == {n.name: (n.kind, n.tier, n.pod, n.plane) for n in fabric.nodes}
    assert cables(back) == cables(fabric) and back.reconfig_delay == fabric.reconfig_delay


def test_the_same_network_takes_the_same_time_from_every_format(tmp_path):
    fabric = leaf_spine(tors=4, gpus=2)
    b = TraceBuilder(fabric.hosts)
    b.flows([0, 1, 2, 5], [7, 6, 4, 1], 1e9)
    took = {simulate(fabric, b.build()).step_seconds}
    for form, end in SUFFIX.items():
        path = made(tmp_path / f"f{end}", written(fabric, "", form))
        took.add(simulate(parse_fabric(str(path)), b.build()).step_seconds)
    assert len(took) == 1


def test_our_own_json_comes_back_as_it_was(tmp_path, capsys):
    assert main(["topo", "rfabric", "-o", str(tmp_path / "f.json")]) in (0, None)
    assert read(tmp_path / "f.json").links == parse_fabric("rfabric").links
    assert main(["topo", f"{tmp_path}/f.json,rate=1G"]) == 2
    assert "rate" in capsys.readouterr().err


# --- tables ---------------------------------------------------------------------------------------


def cluster(header, hosts=847):
    """847 hosts in uneven racks, pods of six racks with two PSWs each, four DSWs."""
    rng, rows, rack = random.Random(7), [",".join(header)], 0
    while hosts:
        size = min(rng.choice([3, 7, 16, 24, 31]), hosts)
        hosts -= size
        pod = rack // 6
        cell = {"ASW": f"asw{rack}", "PSW": f"psw{pod}-1;psw{pod}-2", "DSW": "d1 d2 d3 d4"}
        for i in range(size):
            cell["ip"] = f"10.{rack}.0.{i}"
            rows.append(",".join(cell[name] for name in header))
        rack += 1
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize(
    "header", [("ip", "DSW", "PSW", "ASW"), ("PSW", "ip", "ASW", "DSW"), ("ASW", "ip")]
)
def test_847_hosts_with_uneven_racks_whatever_the_order_and_number_of_columns(
    tmp_path, caplog, header
):
    text = cluster(header)
    rows = [dict(zip(header, line.split(","), strict=True)) for line in text.splitlines()[1:]]
    if "PSW" not in header:
        rows = [row for row in rows if row["ASW"] == "asw0"]
        text = "\n".join([",".join(header), *(",".join(row.values()) for row in rows)])
    fabric = read(made(tmp_path / "c.csv", text), rate="200Gbit/s", uplink_rate="800Gbit/s")
    names = fabric.parameters["names"]
    assert {names[h]: names[t] for h, t in fabric.rack_of.items()} == {
        row["ip"]: row["ASW"] for row in rows
    }
    pairs = {(row["ip"], row["ASW"]) for row in rows}
    for row in rows:
        uppers = [re.split("[ ;]", row[t]) for t in ("ASW", "PSW", "DSW") if t in row]
        for low, high in zip(uppers, uppers[1:], strict=False):
            pairs |= set(product(low, high))
    assert {tuple(sorted(p)) for p, *_ in cables(fabric)} == {tuple(sorted(p)) for p in pairs}
    assert len(fabric.links) == len(pairs)
    assert f"{len(rows)} hosts" in caplog.text and "took 200 Gbit/s" in caplog.text
    few = list(product(fabric.hosts[:20], fabric.hosts[-20:]))
    assert not unreachable(Routes(fabric), few)


def test_an_847_host_table_simulates_compares_draws_and_is_priced(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "cluster.csv", cluster(("ip", "DSW", "PSW", "ASW")))
    made(tmp_path / "f.csv", "src,dst,size_bytes\nh1,h847,1000000\nh400,h3,5000000\n")
    assert main(["topo", "cluster.csv", "--png", "c.png"]) in (0, None)
    assert main(["cost", "--topo", "cluster.csv"]) in (0, None)
    assert main(["replay", "f.csv", "--topo", "cluster.csv"]) in (0, None)
    said = capsys.readouterr()
    assert "847" in said.out and (tmp_path / "c.png").stat().st_size and "Traceback" not in said.err


def test_columns_of_unknown_names_are_ordered_by_how_many_switches_they_hold(tmp_path, caplog):
    text = "machine,big,mid,low\n" + "".join(
        f"n{i},B{i % 1},M{i // 4},L{i // 2}\n" for i in range(8)
    )
    fabric = read(made(tmp_path / "c.csv", text))
    assert "tiers from below: low, mid, big, the one with more switches lower" in caplog.text
    tier = {fabric.parameters["names"][n.name]: n.tier for n in fabric.switches}
    assert tier["L0"] == "edge" and tier["M1"] == "aggregation" and tier["B0"] == "core"
    with pytest.raises(RFabricError, match="columns x and y hold 1 switches each.*tiers=x;y"):
        read(made(tmp_path / "d.csv", "ip,x,y\n1,t,a\n2,t,a\n"))
    told = read(made(tmp_path / "d.csv", "ip,x,y\n1,t,a\n2,t,a\n"), tiers="y;x")
    assert told.parameters["names"]["t1"] == "a"


def test_a_serial_number_is_no_tier_and_mere_numbers_are_names_of_their_column(tmp_path, caplog):
    fabric = read(made(tmp_path / "c.csv", "serial;ip;leaf;spine\nx1;a;1;1\nx2;b;2;1\n"))
    assert set(fabric.parameters["names"].values()) == {"a", "b", "leaf1", "leaf2", "spine1"}
    assert "columns left out: serial" in caplog.text
    caplog.clear()
    text = "Source,Target,Speed_Mbps,Owner\na,leaf,25000,me\nb,leaf,25000,me\n"
    assert read(made(tmp_path / "p.csv", text)).links[0].rate == 25e9
    assert "columns left out: owner" in caplog.text
    assert "2 hosts told by their single cable" in caplog.text


# --- graphs ---------------------------------------------------------------------------------------

ZOO = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d1"/>
  <key attr.name="latency_us" attr.type="double" for="edge" id="d2"/>
  <key attr.name="type" attr.type="string" for="node" id="d3"/>
  <graph edgedefault="undirected">
    <node id="0"><data key="d3">Leaf switch</data></node>
    <node id="1"><data key="d3">spine</data></node>
    <node id="2"><data key="d3">server</data></node>
    <node id="3"><data key="d3">server</data></node>
    <edge source="2" target="0"><data key="d1">1e11</data><data key="d2">2</data></edge>
    <edge source="3" target="0"/>
    <edge source="0" target="1"><data key="d1">4e11</data></edge>
  </graph>
</graphml>
"""


def test_graphml_says_roles_rates_and_delays_by_the_words_people_use(tmp_path, caplog):
    fabric = read(made(tmp_path / "zoo.xml", ZOO), rate="50Gbit/s")
    names = fabric.parameters["names"]
    assert [names[h] for h in fabric.hosts] == ["2", "3"]
    assert [(k.rate, round(k.delay, 9)) for k in fabric.links] == [
        (1e11, 2e-6), (5e10, 5e-7), (4e11, 5e-7)
    ]  # fmt: skip
    assert "1 cables to hosts without a rate took 50 Gbit/s" in caplog.text


def node_link(edges, nodes=None, **more):
    """Node-link JSON of `a-b` pairs, or mappings."""
    links = [dict(zip(("source", "target"), e, strict=True)) | more if isinstance(e, tuple) else e
             for e in edges]  # fmt: skip
    names = nodes or dict.fromkeys(n for e in links for n in (e["source"], e["target"]))
    return json.dumps({"nodes": [{"id": n} for n in names], "links": links})


def test_the_speeds_of_the_topology_zoo_and_attributes_that_say_nothing_here(tmp_path, caplog):
    edges = [{"source": a, "target": "leaf", "LinkSpeed": "10", "LinkSpeedUnits": "G", "weight": 3}
             for a in ("x", "y")]  # fmt: skip
    assert read(made(tmp_path / "z.json", node_link(edges))).links[0].rate == 1e10
    assert "attributes of edges left out: weight" in caplog.text
    edges[0]["LinkSpeedRaw"] = 4e10
    assert read(made(tmp_path / "z.json", node_link(edges))).links[0].rate == 4e10


@pytest.mark.parametrize("said", [False, True])
def test_planes_of_ocses_are_told_by_their_cables_unless_the_file_says_them(said, tmp_path, caplog):
    """Two pods of two ToRs. Two planes meet in a core each, of the third each pod is alone."""
    edges = [(f"h{i}", f"tor{i}") for i in range(4)]
    for i, plane in product(range(4), "xyz"):
        edges.append((f"tor{i}", f"{plane}{i // 2}"))
    edges += [(f"{plane}{pod}", f"{plane}-core") for plane in "xy" for pod in "0011"]
    told = json.loads(node_link(edges, rate="400G"))
    for node in told["nodes"]:
        if node["id"][0] in "xyz":
            node |= {"kind": "ocs"} | ({"plane": 7 + "xyz".index(node["id"][0])} if said else {})
        elif node["id"][0] == "h":
            node["kind"] = "host"
    fabric = read(made(tmp_path / "o.json", json.dumps(told)))
    names, first = fabric.parameters["names"], 7 if said else 0
    assert {names[n.name]: n.plane - first for n in fabric.ocses} == {
        "x0": 0, "x1": 0, "x-core": 0, "y0": 1, "y1": 1, "y-core": 1, "z0": 2, "z1": 2,
    }  # fmt: skip
    assert ("3 planes of OCSes told by their cables" in caplog.text) != said
    racks = dict(zip((names[rack] for rack in fabric.racks), fabric.racks, strict=True))
    far, near = (racks["tor0"], racks["tor2"]), (racks["tor0"], racks["tor1"])
    circuits = light(fabric, {first: [far], first + 1: [far], first + 2: [near]})
    assert joined(fabric, circuits) == {frozenset(far): 2, frozenset(near): 1}
    with pytest.raises(RFabricError, match="no OCS joins t1 and t3"):
        light(fabric, {first + 2: [far]})


def test_two_cables_to_one_ocs_are_refused_before_circuits_are_sought(tmp_path):
    edges = [("h0", "tor0"), ("h1", "tor1"), *[("tor0", "o")] * 2, ("tor1", "o")]
    told = json.loads(node_link(edges, rate="400G"))
    told["nodes"][-1]["kind"] = "ocs"
    fabric = read(made(tmp_path / "o.json", json.dumps(told)))
    assert fabric.ocses[0].plane == 0
    with pytest.raises(RFabricError, match="plane 0: rack t1 has 2 uplinks to its OCSes; in a"):
        planes(fabric)


def test_a_host_of_several_cables_is_as_many_and_no_switch(tmp_path, caplog):
    edges = [("server1", "leaf1"), ("server1", "leaf2"), ("server2", "leaf1"), ("leaf1", "s"),
             ("leaf2", "s")]  # fmt: skip
    fabric = read(made(tmp_path / "n.json", node_link(edges, rate="100G")))
    names = fabric.parameters["names"]
    assert [names[h] for h in fabric.hosts] == ["server1:1", "server1:2", "server2"]
    assert "1 hosts with several cables (server1) are 2 hosts of one NIC" in caplog.text


def test_both_directions_of_a_directed_graph_are_one_cable(tmp_path, caplog):
    both = [{"source": a, "target": b, "bandwidth": "10Gbit/s"}
            for a, b in (("x", "leaf"), ("leaf", "x"), ("y", "leaf"), ("leaf", "y"))]  # fmt: skip
    text = json.loads(node_link(both)) | {"directed": True}
    assert len(read(made(tmp_path / "d.json", json.dumps(text))).links) == 2
    assert "4 edges of one direction are 2 cables" in caplog.text
    text["links"][0]["bandwidth"] = "1Gbit/s"
    with pytest.raises(RFabricError, match="leaf to x and x to leaf differ"):
        read(made(tmp_path / "d.json", json.dumps(text)))


def test_a_number_without_a_unit_is_refused_until_its_unit_is_said(tmp_path):
    path = made(tmp_path / "u.json", node_link([("x", "leaf"), ("y", "leaf")], bandwidth=100))
    with pytest.raises(RFabricError, match=r"x - leaf bandwidth 100 has no unit.*rate_unit=Gbit/s"):
        read(path)
    assert read(path, rate_unit="Gbit/s").links[0].rate == 1e11


def test_switches_alone_get_hosts_below_their_tors(tmp_path, caplog):
    edges = [(leaf, spine) for leaf in ("leaf1", "leaf2") for spine in ("spine1", "spine2")]
    path = made(tmp_path / "s.json", node_link(edges, rate="400G"))
    with pytest.raises(RFabricError, match="it has no host.*hosts=8 hangs 8 below every ToR"):
        read(path)
    fabric = read(path, hosts=8)
    assert len(fabric.hosts) == 16 and len(fabric.racks) == 2
    assert "8 hosts hung below each of 2 switches (leaf1, leaf2)" in caplog.text


def test_of_several_parts_one_is_named(tmp_path, caplog):
    path = made(tmp_path / "p.json", node_link([("a", "t"), ("b", "t"), ("c", "u"), ("d", "u")]))
    with pytest.raises(RFabricError, match="2 parts: no path leads from a to c.*part=a"):
        read(path)
    assert len(read(path, part="u").hosts) == 2 and "3 nodes that no cable joins" in caplog.text


# --- others ---------------------------------------------------------------------------------------

LAB = """name: lab
topology:
  defaults: {kind: nokia_srlinux}
  nodes:
    leaf1: {group: leaf}
    spine1: {}
    c1: {kind: linux}
    c2: {kind: linux, image: alpine}
  links:
    - endpoints: ["c1:eth1", "leaf1:e1-1"]
    - endpoints: ["c2:eth1", "leaf1:e1-2"]
      vars: {rate: 25Gbit/s}
    - type: veth
      endpoints: [{node: leaf1, interface: e1-49}, {node: spine1, interface: e1-1}]
    - endpoints: ["leaf1:mgmt", "host:leaf1-mgmt"]
"""


def test_containerlab_with_defaults_groups_and_links_out_of_the_lab(tmp_path, caplog):
    fabric = read(made(tmp_path / "lab.clab.yml", LAB))
    names = fabric.parameters["names"]
    assert [names[h] for h in fabric.hosts] == ["c1", "c2"] and fabric.links[1].rate == 25e9
    assert len(fabric.links) == 3 and "1 links out of the lab left out" in caplog.text


def test_a_written_lab_is_one(tmp_path):
    lab = yaml.safe_load(written(fat_tree(), "x.clab.yml"))
    nodes = lab["topology"]["nodes"]
    ends = [end for link in lab["topology"]["links"] for end in link["endpoints"]]
    assert all(end.partition(":")[0] in nodes for end in ends) and len(ends) == len(set(ends))
    assert all(re.fullmatch(r"\w+:eth[1-9]\d*", end) for end in ends)


TABLE = """{prompt}
Capability codes: (R) Router, (B) Bridge, (O) Other
LocalPort    RemoteDevice    RemotePortID    Capability    RemotePortDescr
-----------  --------------  --------------  ------------  -----------------
{rows}
--------------------------------------------------
Total entries displayed:  3
"""


def lldp(prompt, *rows):
    cells = "\n".join(f"{a:<13}{b:<16}{c:<16}BR            {c}" for a, b, c in rows)
    return TABLE.format(prompt=prompt, rows=cells)


def test_lldp_tables_of_several_switches_make_one_network(tmp_path, caplog):
    leaf = lldp("", ("Ethernet0", "node-a", "eth0"), ("Ethernet4", "node-b", "eth0"),
                ("Ethernet64", "spine1", "Ethernet0"))  # fmt: skip
    spine = lldp("", ("Ethernet0", "leaf1", "Ethernet64"), ("Ethernet4", "leaf2", "Ethernet64"))
    folder = tmp_path / "tables"
    folder.mkdir()
    made(folder / "leaf1.txt", leaf)
    made(folder / "spine1.txt", spine)
    made(folder / "leaf2.txt", lldp("", ("Ethernet0", "node-c", "eth0"),
                                    ("Ethernet64", "spine1", "Ethernet4")))  # fmt: skip
    fabric = read(folder)
    names = fabric.parameters["names"]
    assert sorted(names[h] for h in fabric.hosts) == ["node-a", "node-b", "node-c"]
    assert len(fabric.links) == 5 and "neighbours of 3 switches" in caplog.text
    one = lldp("admin@leaf1:~$ show lldp table", *[("Ethernet0", "node-a", "eth0")]) + lldp(
        "admin@leaf1:~$ show lldp table", ("Ethernet4", "node-b", "eth0"))  # fmt: skip
    assert set(read(made(tmp_path / "any.txt", one)).parameters["names"].values()) == {
        "leaf1", "node-a", "node-b"
    }  # fmt: skip


def test_two_ends_that_name_their_ports_differently_are_still_one_cable(tmp_path, caplog):
    folder = tmp_path / "t"
    folder.mkdir()
    made(folder / "leaf1.txt", lldp("", ("eth0", "oob-switch", "7"), ("Ethernet0", "node-a", "a"),
                                    ("Ethernet64", "spine1", "etp1"),
                                    ("Ethernet68", "spine1", "etp2")))  # fmt: skip
    made(folder / "spine1.txt", lldp("", ("Ethernet0", "leaf1", "etp17"),
                                     ("Ethernet4", "leaf1", "etp18"),
                                     ("Ethernet8", "node-b", "a")))  # fmt: skip
    fabric = read(folder)
    assert len(fabric.links) == 4 and len(fabric.hosts) == 2
    assert "1 neighbours of management ports left out" in caplog.text
    made(folder / "spine1.txt", lldp("", ("Ethernet0", "leaf1", "etp17"),
                                     ("Ethernet8", "node-b", "a")))  # fmt: skip
    assert len(read(folder).links) == 4 and "the larger taken: leaf1 and spine1" in caplog.text
    made(folder / "spine1.txt", lldp("", ("Ethernet0", "leaf1", "x"), ("Ethernet0", "b", "y")))
    with pytest.raises(RFabricError, match="port Ethernet0 of spine1 has two neighbours"):
        read(folder)


def test_lldpctl_and_config_db(tmp_path):
    entry = {"chassis": {"node-a": {"id": {"value": "00:11"}}}, "port": {"id": {"value": "eth0"}}}
    other = {"chassis": {"node-b": {}}, "port": {"id": {"value": "eth0"}}}
    text = json.dumps({"lldp": {"interface": [{"Ethernet0": entry}, {"Ethernet4": other}]}})
    assert len(read(made(tmp_path / "leaf1.json", text)).hosts) == 2
    config = {
        "DEVICE_METADATA": {"localhost": {"hostname": "tor7", "type": "ToRRouter"}},
        "PORT": {"Ethernet0": {"speed": "100000"}, "Ethernet4": {"speed": "400000"}},
        "DEVICE_NEIGHBOR": {
            "Ethernet0": {"name": "ARISTA01T1", "port": "Ethernet1"},
            "Ethernet4": {"name": "box1", "port": "eth0"},
        },
        "DEVICE_NEIGHBOR_METADATA": {"ARISTA01T1": {"type": "LeafRouter"}},
    }
    fabric = read(made(tmp_path / "config_db.json", json.dumps(config)))
    names = fabric.parameters["names"]
    assert [names[h] for h in fabric.hosts] == ["box1"]
    assert cables(fabric)[(frozenset(("tor7", "box1")), 4e11, 5e-7)] == 1


@pytest.mark.parametrize("speed, told", [("400000", 1e11), ("100000", 1e11), (None, 1e11)])
def test_two_ends_of_a_cable_that_say_different_rates(tmp_path, caplog, speed, told):
    """The lower counts, whichever end it is; where one end says none, that of the other."""
    (tmp_path / "net").mkdir()
    for name, other, rate in (("leaf1", "spine1", "100000"), ("spine1", "leaf1", speed)):
        config = {
            "DEVICE_METADATA": {"localhost": {"hostname": name}},
            "DEVICE_NEIGHBOR": {"Ethernet0": {"name": other, "port": "Ethernet0"}},
            "PORT": {"Ethernet0": {"speed": rate} if rate else {}},
        }
        config["DEVICE_NEIGHBOR"] |= {f"Ethernet{4 * i}": {"name": f"server{i}", "port": "eth0"}
                                      for i in (1, 2) if name == "leaf1"}  # fmt: skip
        made(tmp_path / "net" / f"{name}.json", json.dumps(config))
    fabric = read(tmp_path / "net")
    names = fabric.parameters["names"]
    called = {frozenset((names[k.a.node], names[k.b.node])): k.rate for k in fabric.links}
    assert called[frozenset(("leaf1", "spine1"))] == told
    said = "two ends say different rates, the lower taken: leaf1 and spine1"
    assert (said in caplog.text) == (speed == "400000")


INFRA = """name: two
devices:
- name: server
  components: [{name: xpu, count: 4, choice: xpu}, {name: nic, count: 4, choice: nic}]
  links: [{name: pcie}]
  edges: [{ep1: {component: xpu}, ep2: {component: nic}, scheme: one2one, link: pcie}]
- name: switch
  components: [{name: port, count: 16, choice: port}]
  links: []
  edges: []
instances:
- {name: host, device: server, count: 3}
- {name: tor, device: switch, count: 2}
- {name: top, device: switch, count: 1}
links:
- name: access
  physical: {bandwidth: {choice: gigabits_per_second, gigabits_per_second: 200}}
- {name: trunk, physical: {bandwidth: {gigabytes_per_second: 100}, latency: {us: 2}}}
edges:
- {ep1: {instance: "host[0:2]", component: nic}, ep2: {instance: "tor[0]", component: "port[0:8]"},
   scheme: one2one, link: access}
- {ep1: {instance: "host[2]", component: nic}, ep2: {instance: "tor[1]", component: "port[:4]"},
   scheme: one2one, link: access}
- {ep1: {instance: tor, component: "port[15]"}, ep2: {instance: "top", component: "port[0]"},
   scheme: many2many, link: trunk}
"""


def test_infragraph_has_a_host_for_each_nic(tmp_path, caplog):
    for path in (
        made(tmp_path / "i.yaml", INFRA),
        made(tmp_path / "i.json", json.dumps(yaml.safe_load(INFRA))),
    ):
        fabric = read(path)
        assert [len(fabric.hosts), len(fabric.racks), len(fabric.links)] == [12, 2, 14]
        assert fabric.links[0].rate == 2e11 and fabric.links[-1].rate == 8e11
        assert fabric.links[-1].delay == pytest.approx(2e-6)
    assert "each of 12 NICs of servers is a host" in caplog.text


def test_one_to_one_of_more_ends_with_fewer_is_as_many_cables_as_the_fewer(tmp_path, caplog):
    fabric = read(made(tmp_path / "i.yaml", INFRA.replace("port[0:8]", "port")))
    assert [len(fabric.hosts), len(fabric.racks), len(fabric.links)] == [12, 2, 14]
    assert re.search(
        r"1 edges one2one of more ends with fewer \(edges.0. of 8 and \d+\)", caplog.text
    )


def test_an_edge_stands_for_as_many_cables_as_it_says(tmp_path, caplog):
    text = "a,b,rate,count\nh1,leaf1,400G,\nh2,leaf2,400G,1\nleaf1,spine1,800G,4\n"
    text += "leaf2,spine1,800G,4\n"
    fabric = read(made(tmp_path / "c.csv", text))
    assert Counter(k.rate for k in fabric.links) == {4e11: 2, 8e11: 8}
    assert "left out" not in caplog.text
    assert "2 rows stand for 8 cables, each of the rate that stands there" in caplog.text
    edges = [("h1", "leaf1", 1), ("h2", "leaf2", 1), ("leaf1", "spine1", 3), ("leaf2", "spine1", 3)]
    graph = {
        "nodes": [{"id": name} for name in ("h1", "h2", "leaf1", "leaf2", "spine1")],
        "links": [{"source": a, "target": b, "multiplicity": n} for a, b, n in edges],
    }
    assert len(read(made(tmp_path / "g.json", json.dumps(graph))).links) == 8
    graph["nodes"][0]["count"] = 8
    read(made(tmp_path / "h.json", json.dumps(graph)))
    assert "attributes of nodes left out: count" in caplog.text
    twice = "a,b,rate,count\n10.1.0.1,leaf1,400G,2\n10.1.0.2,leaf1,400G,2\n10.1.0.3,leaf1,400G,1\n"
    fabric = read(made(tmp_path / "e.csv", twice))  # two cables of one row are a host's as well
    assert len(fabric.hosts) == len(fabric.links) == 5 and len(fabric.racks) == 1
    with pytest.raises(RFabricError, match="count: 'many' is no number of cables, 1 to 1,024"):
        read(made(tmp_path / "d.csv", text.replace("G,4", "G,many")))


def nvlinked(**attributes):
    said = " ".join(f'{k}="{v}"' for k, v in attributes.items())
    gpus = "".join(
        f'<pci busid="0000:0{i}:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">'
        f'<gpu dev="{i}" sm="80" rank="{i}" gdr="1"><nvlink {said}/></gpu></pci>'
        for i in range(4)
    )
    return f'<system version="1"><cpu numaid="0" arch="x86_64">{gpus}</cpu></system>'


def test_nccl_takes_nvlink_where_there_is_any_and_prices_nothing(tmp_path, capsys, caplog):
    path = made(tmp_path / "n.xml", nvlinked(target="0", count=12, tclass="0x068000"))
    fabric = read(path)
    assert len(fabric.hosts) == 4 and {k.rate for k in fabric.links} == {12 * 20e9 * 8}
    assert main(["topo", str(path)]) in (0, None)
    assert "inside of a server" in caplog.text and "Cost" not in capsys.readouterr().out


def test_nccl_finds_gpus_of_any_class_and_machines_that_tell_no_speed(tmp_path, caplog):
    text = nvlinked(target="0").replace('<nvlink target="0"/>', "").replace("0x030200", "0x030000")
    fabric = read(made(tmp_path / "cards.xml", text))
    assert [k.rate for k in fabric.links] == [pytest.approx(16e9 * 16 * 128 / 130)] * 4
    blind = text.replace('link_speed="16 GT/s" link_width="16"', 'link_speed="Unknown" '
                         'link_width="255"')  # fmt: skip
    assert {k.rate for k in read(made(tmp_path / "vm.xml", blind)).links} == {4e11}
    assert "400 Gbit/s" in caplog.text


def test_nccl_of_several_servers_on_one_nvlink(tmp_path, caplog):
    one = nvlinked(target="fffffff:ffff:ff", count=18, tclass="0x068000").replace("80", "90", 1)
    cpu = one[one.index("<cpu") : one.index("</system>")]
    both = "".join(cpu.replace("<cpu", f'<cpu host_hash="0x{n}"') for n in (1, 2))
    fabric = read(made(tmp_path / "rack.xml", f'<system version="1">{both}</system>'))
    assert len(fabric.hosts) == 8 and len(fabric.switches) == 1 and len(fabric.links) == 8
    assert "2 servers on one NVLink" in caplog.text
    assert main(["topo", str(tmp_path / "rack.xml")]) in (0, None)
    assert "rack is the inside of a rack of 2 servers, whose price holds it" in caplog.text
    bare = re.sub("<nvlink[^>]*>", "", both)
    with pytest.raises(RFabricError, match="2 servers that no NVLink joins; give the file of one"):
        read(made(tmp_path / "two.xml", f'<system version="1">{bare}</system>'))


def test_nccl_of_nvlinks_from_gpu_to_gpu(tmp_path):
    text = nvlinked(target="TO", count=2, tclass="0x030200")
    for i in (1, 2, 3, 0):
        text = text.replace("TO", f"0000:0{i}:00.0", 1)
    fabric = read(made(tmp_path / "ring.xml", text))
    assert len(fabric.links) == 8 and {k.rate for k in fabric.links} == {2 * 20e9 * 8}
    with pytest.raises(RFabricError, match="NVLink to '9', which is no other GPU"):
        read(made(tmp_path / "bad.xml", text.replace('"0000:02:00.0" count', '"9" count', 1)))


def test_the_server_of_amazon_is_read_by_pcie(caplog):
    path = DATA / "nccl_topology" / "p4d-24xl-topo.xml"
    if not path.exists():
        pytest.skip("needs shared/data/, which is not part of the repository")
    fabric = parse_fabric(str(path))
    assert [len(fabric.hosts), len(fabric.racks)] == [8, 4] and "4 NICs" in caplog.text
    assert fabric.links[0].rate == pytest.approx(8e9 * 16 * 128 / 130)  # PCIe 3.0 x16


# --- only written ---------------------------------------------------------------------------------


def test_a_simgrid_platform_has_every_cable_and_simgrid_reads_it(tmp_path):
    from xml.etree import ElementTree

    fabric = fat_tree(pods=2, tors=2, gpus=2)
    text = written(fabric, "p.xml")
    zone = ElementTree.fromstring(text).find("zone")
    assert [h.get("id") for h in zone.findall("host")] == list(fabric.hosts)
    routes = {(r.get("src"), r.get("dst")) for r in zone.findall("route")}
    assert routes == {e for k in fabric.links for e in
                      ((k.a.node, k.b.node), (k.b.node, k.a.node))}  # fmt: skip
    simgrid = pytest.importorskip("simgrid", reason="no SimGrid here: apt install python3-simgrid")
    engine = simgrid.Engine(["test"])
    engine.load_platform(str(made(tmp_path / "p.xml", text)))
    assert {host.name for host in engine.all_hosts} == set(fabric.hosts)


def test_several_cables_are_one_link_of_all_their_rate_and_it_is_said():
    sketch = Sketch()
    for i, host in enumerate(sketch.hosts([2])):
        sketch.cable(host, sketch.switch(f"t{i + 1}", "eps", "edge", (0, i)), 1e11)
    for _ in range(3):
        sketch.cable("t1", "t2", 1e11)
    text = written(Fabric("wide", sketch.nodes, sketch.links), "p.xml")
    assert 'bandwidth="300000000000bps"' in text and "1 links stand for several cables" in text


def test_htsim_gets_the_counts_of_every_tier_or_a_reason():
    fabric = fat_tree(pods=4, tors=4, gpus=4)
    words = [line.split() for line in written(fabric, "f.topo").splitlines()]
    assert words[:3] == [["Nodes", "64"], ["Tiers", "3"], ["Podsize", "16"]]
    tiers = [words[i + 1 : i + 5] for i, line in enumerate(words) if line[0] == "Tier"]
    radix = [{k: v for k, v in tier if k[0] in "RB"} for tier in tiers]
    assert radix[0] == radix[1] == {"Radix_Up": "4", "Radix_Down": "4"}
    assert radix[2] == {"Radix_Down": "16", "Bundle": "4"}  # one core a plane, four cables a pod
    two = written(leaf_spine(tors=4, gpus=2), "f.topo")
    assert "Tiers 2\nPodsize 8\n" in two
    with pytest.raises(RFabricError, match="t5 differs from t1"):
        written(parse_fabric("two-clusters"), "f.topo")


@pytest.mark.parametrize("end", [".ns3", ".xml", ".topo"])
def test_what_knows_no_circuits_refuses_an_ocs(end):
    with pytest.raises(RFabricError, match="rfabric has 20 OCSes, and .* knows packet switches"):
        written(parse_fabric("rfabric"), f"f{end}")


def test_drawings_name_every_cable():
    fabric = fat_tree(pods=2, tors=2, gpus=2)
    assert written(fabric, "f.dot").count(" -- ") == len(fabric.links)
    assert written(fabric, "f.mmd").count("---|") == len(fabric.links)
    with pytest.raises(RFabricError, match="f.png: a fabric is written as .json, "):
        written(fabric, "f.png")


# --- bad input ------------------------------------------------------------------------------------

BOMB = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'
YAML_BOMB = "topology:\n  nodes: &a {x: {}}\n  links: [*a, *a]\n"
BAD = {
    "bomb.graphml": (ZOO.replace("<graphml", f"{BOMB}<graphml", 1), "declares entities, which"),
    "bomb.xml": (nvlinked(target="0").replace("<system", f"{BOMB}<system", 1), "entities, which"),
    "cut.graphml": (ZOO[:700], "is no whole XML: .*line 1"),
    "twice.graphml": (ZOO.replace('<node id="3">', '<node id="2">'), "node 2 stands twice"),
    "nowhere.graphml": (ZOO.replace('target="1"', 'target="9"'), "ends at 9, which is no node"),
    "zero.graphml": (ZOO.replace("1e11", "0"), "LinkSpeedRaw: 0.0 must be above 0"),
    "minus.graphml": (ZOO.replace("1e11", "-1"), "must be finite and not negative"),
    "loop.json": (node_link([("x", "x"), ("x", "t")]), "x is joined to itself"),
    "twice.json": (node_link([("x", "t")], ["x", "t", "x"]), "node x stands twice"),
    "cut.json": (node_link([("x", "t"), ("y", "t")])[:-9], "node-link file"),
    "none.json": (node_link([("x", "t")], ["x"]), "ends at t, which is no node"),
    "pair.json": (node_link([("x", "y")]), "joined to nothing else; a ToR is missing"),
    "huge.json": (node_link([("x", "t"), ("y", "t")], rate_bps="1e999"), "must be finite"),
    "list.json": (node_link([("x", "t"), ("y", "t")], rate_bps=[1]), "'a list' is not a quantity"),
    "dup.gml": ('graph [ node [ id 1 label "a" ] node [ id 1 label "b" ] ]', "is duplicated"),
    "cut.gml": ('graph [ node [ id 1 label "a" ]', "is no GML that networkx reads"),
    "alias.clab.yml": (YAML_BOMB, "aliases are not read"),
    "object.clab.yml": (LAB.replace("{}", "!!python/object/apply:os.system [id]"), "python/object"),
    "key.clab.yml": (LAB.replace("spine1: {}", "leaf1: {}"), "key leaf1 stands twice"),
    "gone.clab.yml": (LAB.replace('"c1:eth1"', '"c9:eth1"'), "links.0. ends at c9"),
    "one.clab.yml": (LAB.replace('"c1:eth1", ', ""), "1 endpoints; a cable has two"),
    "sceme.yaml": (INFRA.replace("many2many", "any"), "scheme 'any' is none of"),
    "count.yaml": (INFRA.replace("tor[1]", "tor[7]"), r"tor\[7\] is beyond its count, 2"),
    "many.yaml": (INFRA.replace("count: 3", "count: 99999999999"), "count 99999999999 must be"),
    "leaf.txt": (lldp("", ("", "node-a", "eth0")), "names no port and device"),
    "short.ns3": ("3 1 2\n2\n0 2 1Gbps 1us 0\n", "1 cables, line 1 says 2; is the file whole"),
    "node.ns3": ("3 1 1\n2\n0 7 1Gbps 1us 0\n", "line 3: node 7, and there are 0 to 2"),
    "sm.xml": (nvlinked(target="0", tclass="0x068000").replace('sm="80"', 'sm="3"'), "sm '3'"),
    "bus.xml": (nvlinked(target="0").replace(":02:", ":01:"), "busid .*01:.* stands twice"),
    "xgmi.xml": (nvlinked(target="0").replace("nvlink", "xgmi"), "no rate of xgmi is known of gcn"),
    "cpus.xml": (nvlinked(target="0").replace("<cpu", '<cpu numaid="0"/><cpu'), "numaid cpu0"),
    "width.xml": (
        nvlinked(target="0").replace('link_width="16"', 'link_width="x"', 1), "is no speed such as"
    ),
    "both.csv": ("ip,leaf,ToR\n1,a,b\n", "columns leaf and tor are both of one tier"),
    "two.csv": ("ip,tor1,tor2\n1,a,b\n2,c,b\n3,e,d\n", "tor1 and tor2 are both .* of a,b,rate"),
    "twice.csv": ("ip,tor,tor\n1,a,b\n", "column 'tor' stands twice"),
    "zip.csv": ("ip,tor\n1,a\x00\n", "holds a NUL"),
    "odd.bin": ("something else", "no format knows it; say which it is by format=NAME"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_one_clear_error_and_exit_2(tmp_path, capsys, name):
    text, why = BAD[name]
    path = made(tmp_path / name, text)
    assert main(["topo", str(path)]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert re.search(why, err) and name in err and "Traceback" not in err, err


@pytest.mark.parametrize("form", SUFFIX)
def test_a_file_cut_anywhere_is_read_or_refused(tmp_path, form):
    """Whole lines may be missing that no format could miss; a traceback never."""
    text = written(leaf_spine(tors=2, gpus=2), "", form)
    for cut in range(0, len(text), max(len(text) // 40, 1)):
        path = made(tmp_path / f"cut{SUFFIX[form]}", text[:cut])
        try:
            parse_fabric(str(path))
        except RFabricError as error:
            assert "cut" in str(error)


def test_packed_files_are_read_and_broken_ones_named(tmp_path):
    (tmp_path / "zoo.graphml.gz").write_bytes(gzip.compress(ZOO.encode()))
    assert len(read(tmp_path / "zoo.graphml.gz").hosts) == 2
    (tmp_path / "cut.graphml.gz").write_bytes(gzip.compress(ZOO.encode())[:-20])
    with pytest.raises(RFabricError, match="cut.graphml.gz: is a damaged gzip file"):
        read(tmp_path / "cut.graphml.gz")


def test_our_own_json_may_be_packed_and_xml_may_begin_with_empty_lines(tmp_path):
    text = written(leaf_spine(tors=2, gpus=2), "f.json")
    (tmp_path / "f.json.gz").write_bytes(gzip.compress(text.encode()))
    assert read(tmp_path / "f.json.gz").links == leaf_spine(tors=2, gpus=2).links
    assert len(read(made(tmp_path / "z.graphml", f"\n\n{ZOO}")).hosts) == 2


def test_a_format_is_named_where_the_content_says_nothing(tmp_path, capsys):
    path = made(tmp_path / "table.out", "machine,box\na,r1\nb,r1\nc,r2\n")
    assert main(["topo", str(path)]) == 2
    assert main(["topo", str(path), "--format", "csv-hots"]) == 2
    assert "no format 'csv-hots' is read, did you mean csv-hosts?" in capsys.readouterr().err
    made(path, "machine,box,top\na,r1,x\nb,r1,x\nc,r2,x\n")
    assert main(["topo", str(path), "--format", "csv-hosts"]) in (0, None)
    assert main(["topo", f"{path},format=csv-hosts"]) in (0, None)


def test_check_says_what_a_topology_holds(tmp_path, capsys):
    files = [made(tmp_path / "lab.clab.yml", LAB), made(tmp_path / "z.graphml", ZOO),
             made(tmp_path / "i.yaml", INFRA)]  # fmt: skip
    assert main(["check", *map(str, files)]) == 0
    assert "fabric i of 12 GPUs and 3 switches" in capsys.readouterr().out


def test_every_format_is_listed(capsys):
    assert main(["list", "formats", "--json"]) in (0, None)
    assert set(TOPOLOGIES) <= set(json.loads(capsys.readouterr().out)["formats"])


def test_fabrics_need_no_library_until_a_file_does():
    """Mininet's Python, which opens topologies/, may have none of them."""
    code = "import sys, rfabric.fabric as f; f.parse_fabric('rfabric'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"yaml", "networkx", "numpy", "defusedxml"} & set(done.stdout.split())


# --- the tables of docs/inputs.md -----------------------------------------------------------------

INFINIBAND = (
    'Switch 40 "S-1" # "MF0;sw1:MQM8700/U1" enhanced port 0 lid 1 lmc 0\n'
    '[1] "H-1"[1](11) # "node1 mlx5_0" lid 3 4xHDR\n[2] "H-2"[1](12) # "node2 mlx5_0" lid 4 4xHDR\n'
)
OWNED = {
    "cluster.csv": lambda path: made(path, cluster(("ip", "DSW", "PSW", "ASW"), 64)),
    "campus.graphml": lambda path: made(path, ZOO),
    "pod.gexf": lambda path: nx.write_gexf(graph_of(leaf_spine(tors=2, gpus=2)), path),
    "switches.json": lambda path: made(path, node_link([("leaf1", "spine1"), ("leaf2", "spine1")])),
    "net.edgelist": lambda path: made(path, "h1 t1\nh2 t1 {'rate': '400Gbit/s'}\n"),
    "net.dot": lambda path: made(path, 'graph { h1 -- t1 [speed=100G]; "h2":"eth0" -- t1 }'),
    "lab.clab.yml": lambda path: made(path, LAB),
    "topology.yml": lambda path: made(path, "nodes: [h1, h2, leaf]\nlinks: [h1-leaf, h2-leaf]\n"),
    "network.yml": lambda path: made(path, "topology: [Ring, Switch]\nnpus_count: [2, 4]\n"
                                     "bandwidth: [200.0, 50.0]\nlatency: [50, 500]\n"),
    "lab.mn": lambda path: made(path, json.dumps(edited())),
    "rack.yaml": lambda path: made(path, INFRA),
    "cluster.xml": lambda path: made(path, written(leaf_spine(tors=2, gpus=2), "x.xml")),
    "server.xml": lambda path: made(path, nvlinked(target="0", tclass="0x068000")),
    "tables/": lambda path: (path.mkdir(), made(path / "leaf1.txt", lldp(
        "", ("Ethernet0", "node-a", "eth0"), ("Ethernet4", "node-b", "eth0")))),
    "topology.txt": lambda path: made(path, written(fat_tree(), "x.ns3")),
    "ib.txt": lambda path: made(path, INFINIBAND),
}  # fmt: skip
PAGE = (ROOT / "docs/inputs.md").read_text(encoding="utf-8")
TYPED = [
    line for line in re.findall(r"^\|[^|]*\| `rfabric ([^`]*)` \|", PAGE, re.M)
    if line.startswith("topo ") or any(name in line for name in OWNED)
]  # fmt: skip


def test_the_page_has_a_row_for_each():
    assert {name for name in OWNED if any(name in line for line in TYPED)} == set(OWNED)
    outs = {form.suffixes[0] for form in TOPOLOGIES.values() if form.write}
    assert {end for end in outs if any(end in line for line in TYPED)} == outs


@pytest.mark.parametrize("line", TYPED)
def test_each_row_of_the_page_runs(tmp_path, monkeypatch, capsys, line):
    monkeypatch.chdir(tmp_path)
    for name, make in OWNED.items():
        if name in line:
            make(tmp_path / name.rstrip("/"))
    made(tmp_path / "flows.csv", "src,dst,size_bytes\nh1,h2,1000000\n")
    assert main(line.split()) in (0, None), capsys.readouterr().err

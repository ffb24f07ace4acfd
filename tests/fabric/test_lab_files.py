"""Labs, drawings and graphs of inventories as tools leave them: routers in containers, what only
watches a lab, other words for the ends of an edge, servers whose GPUs are linked in groups.
"""

import json

import pytest

from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder

FRR = "{kind: linux, image: 'quay.io/frrouting/frr:10.4.1'}"


def lab(tmp_path, nodes, links, more=""):
    ends = [f'    - endpoints: ["{a}:eth{i}", "{b}:eth{i}"]\n' for i, (a, b) in enumerate(links)]
    said = "".join(f"    {name}: {what}\n" for name, what in nodes.items())
    path = tmp_path / "lab.clab.yml"
    path.write_text(f"name: lab\ntopology:\n{more}  nodes:\n{said}  links:\n{''.join(ends)}")
    return str(path)


def hosts(fabric):
    return {fabric.parameters["names"][host] for host in fabric.hosts}


def test_a_container_with_the_image_of_a_router_is_a_switch_beside_hosts(tmp_path):
    nodes = {"ce1": FRR, "pe1": FRR, "pc": "{kind: linux, image: alpine}"}
    links = [("pc", "pe1"), ("pe1", "ce1")]
    assert hosts(parse_fabric(lab(tmp_path, nodes, links))) == {"pc"}


@pytest.mark.parametrize("more, node", [
    ("  kinds: {linux: {image: 'docker-sonic-vs:latest'}}\n", "{kind: linux}"),
    ("  defaults: {kind: linux, image: 'pierky/bird:2.0'}\n", "{}"),
    ("  groups: {r: {kind: linux, image: frr}}\n", "{group: r}"),
])  # fmt: skip
def test_an_image_is_that_of_the_kind_the_group_or_all(tmp_path, more, node):
    nodes = dict.fromkeys(("ce1", "ce2", "pe"), node)
    nodes["pc"] = "{kind: linux, image: alpine}"
    path = lab(tmp_path, nodes, [("pc", "pe"), ("pe", "ce1"), ("pe", "ce2")], more)
    assert hosts(parse_fabric(path)) == {"pc"}


@pytest.mark.parametrize("kind", ["generic_vm", "ext-container", "keysight_ixia-c-one"])
def test_machines_and_traffic_generators_are_hosts(tmp_path, kind):
    nodes = {"vm": f"{{kind: {kind}}}", "pc": "{kind: linux}", "sw": "{kind: nokia_srlinux}"}
    fabric = parse_fabric(lab(tmp_path, nodes, [("vm", "sw"), ("pc", "sw")]))
    assert hosts(fabric) == {"vm", "pc"} and len(fabric.switches) == 1


ALPINE, LEAF = "{kind: linux, image: alpine}", "{kind: nokia_srlinux}"


def vm(image):
    return f"{{kind: generic_vm, image: '{image}'}}"


def test_beside_hosts_routers_are_hosts_by_name_or_below_a_switch_with_a_note(tmp_path, caplog):
    nodes = {"leaf1": LEAF, "leaf2": LEAF, "server1": FRR, "server2": FRR, "x": FRR, "rr": FRR,
             "spine3": FRR, "pc": ALPINE}  # fmt: skip
    links = [("server1", "leaf1"), ("server2", "leaf1"), ("server2", "leaf2"), ("x", "leaf2"),
             ("rr", "leaf1"), ("rr", "leaf2"), ("spine3", "leaf1"), ("pc", "leaf1")]  # fmt: skip
    fabric = parse_fabric(lab(tmp_path, nodes, links))
    assert hosts(fabric) == {"server1", "server2:1", "server2:2", "x", "pc"}
    assert len(fabric.switches) == 4
    assert "3 nodes that might be routers are hosts by name or by a single cable" in caplog.text


@pytest.mark.parametrize("image", ["docker-sonic-mgmt:latest", "frr-host:1", "x/frr_exporter"])
def test_what_speaks_with_a_router_is_a_host(tmp_path, caplog, image):
    nodes = {"leaf1": LEAF, "leaf2": LEAF, "tg": f"{{kind: linux, image: '{image}'}}", "pc": ALPINE}
    links = [("pc", "leaf1"), ("tg", "leaf1"), ("tg", "leaf2")]
    assert hosts(parse_fabric(lab(tmp_path, nodes, links))) == {"pc", "tg:1", "tg:2"}
    assert "might be routers" not in caplog.text


@pytest.mark.parametrize("image", ["vrnetlab/opnsense:24", "vrnetlab/mikrotik_routeros:7", "any"])
def test_a_machine_between_two_switches_is_one_unless_its_name_is_a_hosts(tmp_path, image):
    nodes = {"leaf1": LEAF, "leaf2": LEAF, "fw": vm(image), "server1": vm("any"), "pc": ALPINE}
    links = [(name, leaf) for name in ("fw", "server1") for leaf in ("leaf1", "leaf2")]
    fabric = parse_fabric(lab(tmp_path, nodes, [*links, ("pc", "leaf1")]))
    assert hosts(fabric) == {"pc", "server1:1", "server1:2"} and len(fabric.switches) == 3


def test_where_all_are_routers_those_of_one_cable_are_hosts_with_a_note(tmp_path, caplog):
    links = [("ce1", "pe1"), ("up1", "pe1"), ("pe1", "pe2"), ("peer1", "pe2")]
    path = lab(tmp_path, dict.fromkeys(("ce1", "pe1", "pe2", "up1", "peer1"), FRR), links)
    assert hosts(parse_fabric(path)) == {"ce1", "up1", "peer1"}
    assert "3 hosts told by their single cable" in caplog.text


def test_a_ring_of_routers_takes_hosts(tmp_path):
    ring = lab(tmp_path, dict.fromkeys("xyz", FRR), [("x", "y"), ("y", "z"), ("z", "x")])
    with pytest.raises(RFabricError, match="it has no host.*hosts=8"):
        parse_fabric(ring)
    assert len(parse_fabric(f"{ring},hosts=2").hosts) == 6


def test_containers_without_a_link_are_left_out_with_a_note(tmp_path, caplog):
    linux = "{kind: linux, image: alpine}"
    nodes = {"grafana": linux, "leaf1": "{kind: ceos}", "pc1": linux, "pc2": linux}
    path = lab(tmp_path, nodes, [("pc1", "leaf1"), ("pc2", "leaf1")])
    assert hosts(parse_fabric(path)) == {"pc1", "pc2"}
    assert "1 nodes without a link left out (grafana)" in caplog.text
    bare = lab(tmp_path, nodes | {"leaf2": "{kind: ceos}"}, [("leaf1", "leaf2")])
    with pytest.raises(RFabricError, match="it has no host.*3 nodes without a link left out"):
        parse_fabric(bare)


def test_hosts_cabled_to_one_another_are_not_said_to_be_alone(tmp_path):
    linux = "{kind: linux, image: alpine}"
    path = lab(tmp_path, dict.fromkeys("xyz", linux), [("x", "y"), ("y", "z"), ("z", "x")])
    with pytest.raises(RFabricError, match="x and y are both hosts.*it is a switch"):
        parse_fabric(path)


def graph(tmp_path, data, name="net.json"):
    (tmp_path / name).write_text(json.dumps(data))
    return f"{tmp_path}/{name}"


NODES = [{"id": "leaf1", "role": "leaf"}, {"id": "n1", "role": "server"}, {"id": "n2"}]


def test_a_host_without_a_cable_is_called_by_its_name(tmp_path):
    nodes = [*NODES, {"id": "spare", "role": "server"}]
    links = [{"source": "n1", "target": "leaf1"}]
    with pytest.raises(RFabricError, match="hosts without a cable: spare;.*by part=n1"):
        parse_fabric(graph(tmp_path, {"nodes": nodes, "links": links}))


@pytest.mark.parametrize("a, b", [("from", "to"), ("src", "dst")])
def test_other_words_for_the_ends_of_an_edge(tmp_path, caplog, a, b):
    edges = [{a: "leaf1", b: n, "bandwidth": "100Gbps"} for n in ("n1", "n2")]
    nodes = [NODES[0], *({"id": n, "role": "server"} for n in ("n1", "n2"))]
    fabric = parse_fabric(graph(tmp_path, {"nodes": nodes, "edges": edges}))
    assert hosts(fabric) == {"n1", "n2"} and {link.rate for link in fabric.links} == {1e11}
    assert "left out" not in caplog.text


@pytest.mark.parametrize("inner", ["attributes", "data"])
def test_what_is_said_one_deeper_counts(tmp_path, inner):
    nodes = [{"key": i, inner: {"role": role}} for i, role in enumerate(("leaf", "gpu", "gpu"))]
    edges = [{"source": 0, "target": i, inner: {"speed_gbps": "100"}} for i in (1, 2)]
    fabric = parse_fabric(graph(tmp_path, {"attributes": {}, "nodes": nodes, "edges": edges}))
    assert hosts(fabric) == {"1", "2"} and {link.rate for link in fabric.links} == {1e11}


DRAWN = {1: "leaf1", 2: "leaf2", 3: "server1", 4: "server2", 7: "spine1"}
DRAWN_EDGES = [(3, 1), (3, 2), (4, 1), (4, 2), (1, 7), (2, 7)]


@pytest.mark.parametrize("form", ["vis", "cytoscape", "rustworkx", "graphology"])
def test_nodes_are_called_by_what_their_labels_say(tmp_path, caplog, form):
    if form == "vis":
        nodes = [{"id": i, "label": name} for i, name in DRAWN.items()]
        data = {"nodes": nodes, "edges": [{"from": a, "to": b} for a, b in DRAWN_EDGES]}
    elif form == "cytoscape":
        nodes = [{"data": {"id": str(i), "name": name}} for i, name in DRAWN.items()]
        edges = [{"data": {"source": str(a), "target": str(b)}} for a, b in DRAWN_EDGES]
        data = {"elements": {"nodes": nodes, "edges": edges}}
    elif form == "rustworkx":
        nodes = [{"id": i, "data": {"name": name}} for i, name in DRAWN.items()]
        edges = [{"source": a, "target": b, "data": None} for a, b in DRAWN_EDGES]
        data = {"directed": False, "nodes": nodes, "links": edges}
    else:
        nodes = [{"key": f"n{i}", "attributes": {"label": name}} for i, name in DRAWN.items()]
        edges = [{"source": f"n{a}", "target": f"n{b}"} for a, b in DRAWN_EDGES]
        data = {"nodes": nodes, "edges": edges}
    fabric = parse_fabric(graph(tmp_path, data))
    assert hosts(fabric) == {"server1:1", "server1:2", "server2:1", "server2:2"}
    assert {fabric.parameters["names"][s.name] for s in fabric.switches} == {
        "leaf1", "leaf2", "spine1"
    }  # fmt: skip
    assert "2 hosts told by their names" in caplog.text and "left out" not in caplog.text


def test_an_id_that_alone_says_what_a_node_is_stays_its_name(tmp_path):
    nodes = [{"id": "leaf1", "label": "Oslo"}, {"id": "server1", "name": "a"},
             {"id": "n2", "label": "twin"}, {"id": "n3", "label": "twin"}]  # fmt: skip
    edges = [{"source": n["id"], "target": "leaf1"} for n in nodes[1:]]
    fabric = parse_fabric(graph(tmp_path, {"nodes": nodes, "edges": edges}))
    assert set(fabric.parameters["names"].values()) == {
        "leaf1", "server1", "twin (n2)", "twin (n3)"
    }  # fmt: skip


def test_edges_end_at_ids_alone(tmp_path):
    nodes = [{"id": 1, "label": "leaf1"}, {"id": 3, "label": "2"}]
    data = {"nodes": nodes, "edges": [{"from": 3, "to": 1}, {"from": 2, "to": 1}]}
    with pytest.raises(RFabricError, match=r"links\[1\].from ends at 2, which is no node of the f"):
        parse_fabric(graph(tmp_path, data))


def test_the_ends_of_an_edge_are_both_of_one_pair_of_words(tmp_path):
    edges = [{"from": n, "to": "leaf1", "source": "lldp"} for n in ("n1", "n2")]
    assert hosts(parse_fabric(graph(tmp_path, {"nodes": NODES, "edges": edges}))) == {"n1"}


@pytest.mark.parametrize("elements", [None, {}, []])
def test_elements_beside_nodes_say_nothing(tmp_path, elements):
    links = [{"source": "n1", "target": "leaf1"}]
    data = {"elements": elements, "nodes": NODES[:2], "links": links}
    assert hosts(parse_fabric(graph(tmp_path, data))) == {"n1"}


@pytest.mark.parametrize("grouped", [True, False])
def test_elements_of_cytoscape_as_one_list(tmp_path, grouped):
    edges = [{"source": n, "target": "leaf1"} for n in ("server1", "server2")]
    said = [("nodes", {"id": n}) for n in ("leaf1", "server1", "server2")]
    told = [({"group": group} if grouped else {}) | {"data": data}
            for group, data in (*said, *(("edges", edge) for edge in edges))]  # fmt: skip
    fabric = parse_fabric(graph(tmp_path, {"elements": told}))
    assert hosts(fabric) == {"server1", "server2"} and len(fabric.switches) == 1
    for strange in ("leaves", ["nodes"]):
        told[0]["group"] = strange
        with pytest.raises(RFabricError, match=r"elements\[0\].group: .* is none of nodes, edges"):
            parse_fabric(graph(tmp_path, {"elements": told}))


def test_elements_of_cytoscape_as_networkx_writes_them(tmp_path):
    networkx = pytest.importorskip("networkx")
    drawn = networkx.MultiGraph()
    drawn.add_nodes_from((n["id"], {"role": "leaf" if "leaf" in n["id"] else "server"})
                         for n in NODES)  # fmt: skip
    drawn.add_edges_from([("leaf1", n, {"bandwidth": "100Gbps"}) for n in ("n1", "n2", "n2")])
    fabric = parse_fabric(graph(tmp_path, networkx.cytoscape_data(drawn), "net.cyjs"))
    assert hosts(fabric) == {"n1", "n2:1", "n2:2"}
    assert [link.rate for link in fabric.links] == [1e11] * 3


def test_elements_without_data_are_named(tmp_path):
    with pytest.raises(RFabricError, match=r"elements.nodes\[0\].data: a mapping is expected"):
        parse_fabric(graph(tmp_path, {"elements": {"nodes": [{"id": "x"}]}}, "net.cyjs"))


def test_interfaces_are_no_switches(tmp_path):
    nodes = [*NODES, {"id": "eth0", "type": "interface"}]
    links = [{"source": "n1", "target": "eth0"}, {"source": "eth0", "target": "leaf1"}]
    with pytest.raises(RFabricError, match="node eth0: type 'interface' is a part of a device"):
        parse_fabric(graph(tmp_path, {"nodes": nodes, "links": links}))


def test_a_host_of_class_port_is_one(tmp_path):
    nodes = [*NODES[:2], {"id": "server2", "role": "host", "class": "port"}]
    links = [{"source": n, "target": "leaf1"} for n in ("n1", "server2")]
    fabric = parse_fabric(graph(tmp_path, {"nodes": nodes, "links": links}))
    assert hosts(fabric) == {"n1", "server2"}


def test_what_yed_leaves_without_a_type_is_no_warning(tmp_path, recwarn):
    ends = "".join(f'<edge id="e{i}" source="leaf1" target="n{i}"/>' for i in (1, 2))
    (tmp_path / "d.graphml").write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:y="http://www.yworks.com/y">'
        '<key id="d1" for="node" attr.name="NodeStyle"/><graph edgedefault="undirected">'
        '<node id="leaf1"><port name="p"/></node><node id="n1"/><node id="n2"/>'
        f"{ends}</graph></graphml>"
    )
    assert hosts(parse_fabric(f"{tmp_path}/d.graphml")) == {"n1", "n2"} and not recwarn


def test_keys_of_graphml_that_nodes_and_edges_share_are_refused(tmp_path):
    keys = "".join(f'<key id="d1" for="{of}" attr.name="{name}" attr.type="string"/>'
                   for of, name in (("node", "role"), ("edge", "rate")))  # fmt: skip
    (tmp_path / "d.graphml").write_text(
        f'<graphml xmlns="http://graphml.graphdrawing.org/xmlns">{keys}<graph/></graphml>'
    )
    with pytest.raises(RFabricError, match="key d1 stands twice; give what is said of nodes"):
        parse_fabric(f"{tmp_path}/d.graphml")


def test_names_that_nodes_and_edges_share_may_be_keys(tmp_path):
    networkx = pytest.importorskip("networkx")
    drawn = networkx.star_graph(["leaf1", "x", "y"])
    for said in (*(drawn.nodes[n] for n in drawn), *(s for *_, s in drawn.edges(data=True))):
        said["type"] = "gpu"
    drawn.nodes["leaf1"]["type"] = "leaf"
    networkx.write_graphml(drawn, f"{tmp_path}/d.graphml", named_key_ids=True)
    assert hosts(parse_fabric(f"{tmp_path}/d.graphml")) == {"x", "y"}


def test_json_that_no_format_knows(tmp_path):
    with pytest.raises(RFabricError, match="No such file"):
        parse_fabric(f"{tmp_path}/gone.json,hosts=2")
    strange = graph(tmp_path, {"nodes": {"leaf1": {}}, "links": []}, "a.json")
    with pytest.raises(RFabricError, match="is none that rfabric wrote; say what else it is"):
        parse_fabric(strange)
    with pytest.raises(RFabricError, match="'nodes' is missing; say what else it is by format="):
        parse_fabric(graph(tmp_path, {"content": {}}, "b.json"))
    named = graph(tmp_path, {"nodes": ["x"], "links": [{"a": "x", "b": "y"}]}, "c.json")
    with pytest.raises(RFabricError, match=r"links\[0\].source: a name is expected"):
        parse_fabric(f"{named},format=node-link")


def server(*gpus, before=""):
    """NCCL's topology of GPUs, below two CPUs each half: what stands in each <gpu>."""
    told = [
        f'<pci busid="0000:0{i}:00.0" class="0x038000" link_speed="16 GT/s" link_width="16">'
        f'<gpu dev="{i}" sm="86" gcn="910">{links}</gpu></pci>'
        for i, links in enumerate(gpus)
    ]
    half = len(gpus) // 2
    cpus = [f'<cpu numaid="{i}">{"".join(told[i * half :][:half])}</cpu>' for i in (0, 1)]
    return f'{before}<system version="1">{"".join(cpus)}</system>'


def bridge(other, kind="xgmi", count=4):
    return f'<{kind} target="0000:0{other}:00.0" count="{count}" tclass="0x038000"/>'


def seconds(fabric, src, dst):
    """Of 1 GB between two of its hosts."""
    builder = TraceBuilder(fabric.hosts)
    builder.flows([src], [dst], 1e9)
    return simulate(fabric, builder.build()).step_seconds


PCIE = 16e9 * 16 * 128 / 130 / 8  # byte/s


@pytest.mark.parametrize("kind, rate", [("xgmi", 36e9), ("nvlink", 12e9)])
def test_pairs_of_gpus_have_pcie_between_them(tmp_path, caplog, kind, rate):
    path = tmp_path / "pairs.xml"
    path.write_text(server(*(bridge(other, kind) for other in (1, 0, 3, 2))))
    fabric = parse_fabric(str(path))
    assert seconds(fabric, 0, 1) == pytest.approx(1e9 / (4 * rate), rel=0.01)
    assert seconds(fabric, 1, 2) == pytest.approx(1e9 / min(4 * rate, PCIE), rel=0.01)
    assert "PCIe between 2 groups of them" in caplog.text and "between CPUs" in caplog.text


def test_a_gpu_beside_a_bridged_pair_comes_by_pcie(tmp_path):
    path = tmp_path / "three.xml"
    path.write_text(server(bridge(1), bridge(0), "", ""))
    fabric = parse_fabric(str(path))
    assert len(fabric.hosts) == 4
    assert seconds(fabric, 0, 3) == seconds(fabric, 2, 3) == pytest.approx(1e9 / PCIE, rel=0.01)


def test_models_of_rccl_are_read_below_their_comments(tmp_path):
    path, dashes = tmp_path / "hive.xml", "-" * 20
    text = server(*(bridge(o, count=1) + bridge(p, count=1)
                    for o, p in ((1, 3), (0, 2), (1, 3), (2, 0))))  # fmt: skip
    path.write_text(f"<!{dashes}\n - Copyright\n {dashes}>\n{text}")
    fabric = parse_fabric(str(path))
    assert {link.rate for link in fabric.links} == {36e9 * 8, 2 * 36e9 * 8}
    path.write_text(text.replace('gcn="910"', 'gcn="gfx1"'))
    with pytest.raises(RFabricError, match="no rate of xgmi is known of gcn 'gfx1'; of 906, 908"):
        parse_fabric(str(path))


def test_lldpctl_with_a_list_of_everything(tmp_path, caplog):
    def seen(port, name):
        said = [{"value": name}] if name else []
        chassis = {"id": [{"type": "mac", "value": "02:00:00:00:00:07"}], "name": said}
        return {"name": port, "via": "LLDP", "chassis": [chassis], "port": [{"ttl": []}]}

    every = [seen("swp1", "gpu1"), seen("swp2", ""), seen("eth0", "mgmt-sw")]
    path = tmp_path / "leaf1.json"
    path.write_text(json.dumps({"lldp": [{"interface": every}]}))  # as lldpctl -f json0 writes
    fabric = parse_fabric(str(path))
    assert hosts(fabric) == {"gpu1", "02:00:00:00:00:07"} and len(fabric.racks) == 1
    assert "1 neighbours of management ports left out" in caplog.text
    path.write_text(json.dumps({"lldp": [{"interface": [{"name": "swp1"}]}]}))
    with pytest.raises(RFabricError, match="interface swp1.chassis: a name is expected"):
        parse_fabric(str(path))


def test_hosts_with_a_table_of_neighbours_are_hosts(tmp_path, caplog):
    """lldpd runs on servers too."""
    cables = [("server1", "gpu-sw1"), ("server2", "gpu-sw1"), ("gpu-sw1", "gpu-sw2"),
              ("server3", "gpu-sw2")]  # fmt: skip
    names = sorted({name for cable in cables for name in cable} - {"server2"})
    for name in names:
        near = [b if a == name else a for a, b in cables if name in (a, b)]
        every = [{f"swp{i}": {"chassis": {other: {}}}} for i, other in enumerate(near)]
        (tmp_path / f"{name}.json").write_text(json.dumps({"lldp": {"interface": every}}))
    fabric = parse_fabric(f"{tmp_path}/")
    called = fabric.parameters["names"]
    assert {called[host] for host in fabric.hosts} == {"server1", "server2", "server3"}
    assert len(fabric.racks) == 2 and len(fabric.links) == 4
    assert "2 with a table are hosts (server1, server3); neighbours of 2 switches" in caplog.text


def test_rates_of_a_lab_may_stand_in_labels(tmp_path):
    (tmp_path / "x.clab.yml").write_text(
        "topology:\n  nodes: {sw1: {kind: ceos}, h1: {kind: linux}, h2: {kind: linux}}\n  links:\n"
        '  - {endpoints: ["h1:eth1", "sw1:eth1"], labels: {rate: 25G}}\n'
        '  - {endpoints: ["h2:eth1", "sw1:eth2"], labels: {rate: 1G}, vars: {rate: 25G}}\n'
    )
    assert {k.rate for k in parse_fabric(f"{tmp_path / 'x.clab.yml'}").links} == {25e9}


def test_two_lists_of_cables_are_refused(tmp_path):
    one, two = ({"source": name, "target": "leaf"} for name in ("server1", "server2"))
    said = {"nodes": [{"id": name} for name in ("server1", "server2", "leaf")], "links": [one, two]}
    path = tmp_path / "g.json"
    for edges in ([], [one, two]):
        path.write_text(json.dumps(said | {"edges": edges}))
        assert len(parse_fabric(f"{path}").links) == 2
    path.write_text(json.dumps(said | {"edges": [two]}))
    with pytest.raises(RFabricError, match="holds links and edges, which differ"):
        parse_fabric(f"{path}")

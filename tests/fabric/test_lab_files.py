"""Labs, drawings and graphs of inventories as tools leave them: routers in containers, what only
watches a lab, other words for the ends of an edge.
"""

import json

import pytest

from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric

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


def test_what_yed_leaves_without_a_type_is_no_warning(tmp_path, recwarn):
    ends = "".join(f'<edge id="e{i}" source="leaf1" target="n{i}"/>' for i in (1, 2))
    (tmp_path / "d.graphml").write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:y="http://www.yworks.com/y">'
        '<key id="d1" for="node" attr.name="NodeStyle"/><graph edgedefault="undirected">'
        '<node id="leaf1"><port name="p"/></node><node id="n1"/><node id="n2"/>'
        f"{ends}</graph></graphml>"
    )
    assert hosts(parse_fabric(f"{tmp_path}/d.graphml")) == {"n1", "n2"} and not recwarn


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

"""Networks whose files hold little: edge lists, names of igraph and Graphviz, ends of any name."""

import networkx as nx
import pytest

from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric

# a leaf with a single cable: told from a host by its name alone
NAMES = "leaf1", "gpu-a", "gpu-b", "spine1", "leaf2"
PAIRS = (1, 0), (2, 0), (0, 3), (4, 3)


def kinds(fabric):
    """What each node is, by the name that the file gives it."""
    called = fabric.parameters["names"]
    return {called[node.name]: node.kind for node in fabric.nodes}


EXPECTED = dict(zip(NAMES, ("eps", "host", "host", "eps", "eps"), strict=True))
GML = (
    "graph\n[\n  directed 0\n"
    + "".join(f'  node\n  [\n    id {i}\n    name "{n}"\n  ]\n' for i, n in enumerate(NAMES))
    + "".join(f"  edge\n  [\n    source {a}\n    target {b}\n  ]\n" for a, b in PAIRS)
    + "]\n"
)
GRAPHML = (
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    '<key id="v_name" for="node" attr.name="name" attr.type="string"/>'
    '<graph id="G" edgedefault="undirected">'
    + "".join(f'<node id="n{i}"><data key="v_name">{n}</data></node>' for i, n in enumerate(NAMES))
    + "".join(f'<edge source="n{a}" target="n{b}"/>' for a, b in PAIRS)
    + "</graph></graphml>"
)
EDGES = "".join(f"{NAMES[a]} {NAMES[b]} {{}}\n" for a, b in PAIRS)


@pytest.mark.parametrize("file, text", [("g.gml", GML), ("g.graphml", GRAPHML), ("g.edges", EDGES)])
def test_names_tell_what_nodes_are(file, text, tmp_path):
    (tmp_path / file).write_text(text)
    assert kinds(parse_fabric(f"{tmp_path}/{file}")) == EXPECTED


@pytest.mark.parametrize(
    "key, names, called",
    [
        ("name", ("Oslo", "Rome", "Bern", "Graz"), ("server1", "server2", "leaf1", "spine1")),
        ("name", ("gpu-a", "gpu-b", "tor1", "agg1"), ("gpu-a", "gpu-b", "tor1", "agg1")),
        ("label", ("Oslo", "Rome", "Bern", "Graz"), ("Oslo", "Rome", "Bern", "Graz")),
        ("label", (0, 1, 2, 3), ("0", "1", "2", "3")),
        ("label", ("", "", "", ""), ("server1", "server2", "leaf1", "spine1")),
    ],
)
def test_a_name_that_says_no_role_does_not_hide_an_id_that_does(key, names, called, tmp_path):
    ids = ("server1", "server2", "leaf1", "spine1")
    graph = nx.Graph([("server1", "leaf1"), ("server2", "leaf1"), ("leaf1", "spine1")])
    nx.set_node_attributes(graph, dict(zip(ids, names, strict=True)), key)
    nx.write_graphml(graph, tmp_path / "g.graphml")
    fabric = parse_fabric(f"{tmp_path}/g.graphml")
    assert set(fabric.parameters["names"].values()) == set(called)
    if called[0] not in ("Oslo", "0"):
        assert len(fabric.hosts) == 2 and [s.tier for s in fabric.switches] == [
            "edge", "aggregation",
        ]  # fmt: skip


def test_an_edge_list_has_rates_cables_twice_and_comments(tmp_path):
    (tmp_path / "net.edgelist").write_text(
        "# networkx\nh1 leaf1 {'rate': '100Gbit/s', 'delay': '2us'}\n\nh2 leaf1 {}\n"
        "leaf1 spine1 {'bandwidth_gbps': 800}\nleaf1 spine1 {'bandwidth_gbps': 800}  # again\n"
    )
    links = parse_fabric(f"{tmp_path}/net.edgelist").links
    assert sorted(link.rate for link in links) == [1e11, 4e11, 8e11, 8e11]
    assert max(link.delay for link in links) == 2e-6


def test_an_edge_list_of_both_directions_has_each_cable_once(tmp_path, caplog):
    """As networkx writes a DiGraph; two cables side by side in one direction are two."""
    pairs = ("server1 leaf1", "server2 leaf1", "leaf1 spine1", "leaf1 spine1")
    both = [*pairs, *(" ".join(reversed(pair.split())) for pair in pairs)]
    for name, lines in (("once", pairs), ("both", both)):
        (tmp_path / f"{name}.edgelist").write_text("".join(f"{line} {{}}\n" for line in lines))
        assert len(parse_fabric(f"{tmp_path}/{name}.edgelist").links) == 4
    assert "8 edges of one direction are 4 cables" in caplog.text


def test_an_edge_list_of_both_directions_that_differ_is_refused(tmp_path):
    lines = "h1 t1 {'rate': '1G'}\nh2 t1 {}\nt1 h1 {'rate': '2G'}\nt1 h2 {}\n"
    (tmp_path / "net.edgelist").write_text(lines)
    with pytest.raises(RFabricError, match="h1 to t1 and t1 to h1 differ in number, rate or delay"):
        parse_fabric(f"{tmp_path}/net.edgelist")


@pytest.mark.parametrize(
    "text, why",
    [
        ("h1 leaf1 400\n", "line 1: 'h1 leaf1 400': behind two names stands a mapping"),
        ("h1 leaf1\nh2\n", "line 2: 'h2' is no edge; write two names"),
        ("h1 leaf1 {'rate': \n", "line 1: .* stands a mapping"),
        ("h1 leaf1 {'rate': '400'}\n", "400 has no unit"),
        ("", "it has no host"),
    ],
)
def test_what_is_no_edge_is_named(text, why, tmp_path):
    (tmp_path / "net.edgelist").write_text(text)
    with pytest.raises(RFabricError, match=why):
        parse_fabric(f"{tmp_path}/net.edgelist")


@pytest.mark.parametrize(
    "header",
    ["device_a,device_b", "Side A Device,Side B Device", "A-End,Z-End", "source node,target node",
     "node1,node2", "a_node,b_node"],
)  # fmt: skip
def test_ends_of_a_cable_by_many_names(header, tmp_path):
    (tmp_path / "k.csv").write_text(f"{header},speed (Gb/s)\nh1,t1,100\nh2,t1,100\n")
    fabric = parse_fabric(f"{tmp_path}/k.csv")
    assert len(fabric.hosts) == 2 and {link.rate for link in fabric.links} == {1e11}


@pytest.mark.parametrize("header", ["label,a,b", "label,ip,ToR"])
def test_rows_that_begin_as_comments_do_are_said(header, tmp_path, caplog):
    text = f"# a comment, and no row\n{header}\nx1,h1,t1\n#2,h2,t1\nx3,h3,t1\n# two, cells\n"
    (tmp_path / "k.csv").write_text(text)
    assert len(parse_fabric(f"{tmp_path}/k.csv").hosts) == 2
    assert "rows that begin with # left out as comments: 1" in caplog.text


@pytest.mark.parametrize("ends", [("Side A", "Side B"), ("source", "target"), ("a", "z")])
def test_devices_of_a_cable_count_before_the_ports_beside_them(ends, tmp_path):
    """NetBox's list of cables: two ports called alike were one switch."""
    header = ",".join(f"{end},{end} Device" for end in ends)
    rows = "1,eth0,gpu-01,Ethernet1,leaf01\n2,eth0,gpu-02,Ethernet2,leaf01\n"
    (tmp_path / "k.csv").write_text(f"ID,{header}\n{rows}")
    fabric = parse_fabric(f"{tmp_path}/k.csv")
    assert sorted(fabric.parameters["names"].values()) == ["gpu-01", "gpu-02", "leaf01"]


@pytest.mark.parametrize(
    "header",
    ["host,switch_a,switch_b", "hostname,device_a,device_b", "ip,node_a,node_b",
     "ip,switch1,switch2", "ip,switch1,switch2,speed_gbps"],
)  # fmt: skip
def test_two_switches_behind_a_host_are_no_ends_of_a_cable(header, tmp_path):
    more = ",400" * header.count("speed")
    rows = [f"{row}{more}" for row in ("n1,t1,a1", "n2,t1,a1", "n3,t2,a1")]
    (tmp_path / "k.csv").write_text("\n".join([header, *rows, ""]))
    fabric = parse_fabric(f"{tmp_path}/k.csv")
    called = fabric.parameters["names"]
    assert [called[host] for host in fabric.hosts] == ["n1", "n2", "n3"]
    assert {called[s.name]: s.tier for s in fabric.switches} == {
        "t1": "edge", "t2": "edge", "a1": "aggregation",
    }  # fmt: skip


def test_an_address_behind_a_cable_and_its_rate_makes_no_host_of_it(tmp_path, caplog):
    (tmp_path / "k.csv").write_text("a,b,rate,ip\nh1,t1,1G,10.0.0.1\nh2,t1,1G,10.0.0.2\n")
    assert len(parse_fabric(f"{tmp_path}/k.csv").hosts) == 2
    assert "columns left out: ip" in caplog.text


@pytest.mark.parametrize(
    "file, text",
    [
        ("k.csv", "a,b,speed_gbps\nh1,t1,400\nh2,t1,40"),
        ("k.csv", "ip,ToR\n10.0.0.1,t1\n10.0.0.2,t1"),
        ("k.edgelist", "h1 t1\nh2 t1"),
        ("k.ns3", "3 1 2\n2\n0 2 400Gbps 1us 0\n1 2 400Gbps 1us 0"),
    ],
)
def test_a_last_line_that_may_be_cut_is_said(file, text, tmp_path, caplog):
    (tmp_path / file).write_text(text)
    parse_fabric(f"{tmp_path}/{file}")
    assert "its last line has no end; is the file whole?" in caplog.text
    caplog.clear()
    (tmp_path / file).write_text(text + "\n")
    parse_fabric(f"{tmp_path}/{file}")
    assert "no end" not in caplog.text


def test_rows_that_stand_twice_are_said(tmp_path, caplog):
    """Two cables, or one that was copied: only who wrote it knows."""
    (tmp_path / "k.csv").write_text("a,b,rate\nh1,t1,1G\nh2,t1,1G\nt1,s1,1G\nt1,s1,1G\n")
    assert len(parse_fabric(f"{tmp_path}/k.csv").links) == 4
    assert "1 rows repeat others, each a cable of its own" in caplog.text


def test_the_rings_that_nccl_chose_are_no_topology(tmp_path):
    (tmp_path / "graph.xml").write_text('<graphs version="1"><graph id="0"/></graphs>')
    with pytest.raises(RFabricError, match="NCCL_GRAPH_DUMP_FILE.*NCCL_TOPO_DUMP_FILE writes it"):
        parse_fabric(f"{tmp_path}/graph.xml")

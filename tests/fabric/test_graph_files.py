"""Files of graphs: what GraphML and GEXF say of all nodes or edges, groups of nodes, GEXF of any
version, Pajek's sections, SimAI's servers. What must come out is worked out by hand.
"""

import json

import networkx as nx
import pytest

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import leaf_spine, parse_fabric
from rfabric.fabric.formats.graphs import graph_of
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder


def read(path, **settings):
    return parse_fabric(str(path) + "".join(f",{k}={v}" for k, v in settings.items()))


def made(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def rates(fabric):
    """Gbit/s of each cable, by the names of its ends."""
    called = fabric.parameters["names"]
    ends = (sorted((called[k.a.node], called[k.b.node])) for k in fabric.links)
    return sorted((*pair, k.rate / 1e9) for pair, k in zip(ends, fabric.links, strict=True))


# two servers at 25 Gbit/s but where an edge says 100, below a leaf
SPOKEN = [("leaf", "server1", 25.0), ("leaf", "server2", 25.0), ("leaf", "spine", 100.0)]
GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d0" for="node" attr.name="role" attr.type="string"><default>switch</default></key>
  <key id="d1" {what} attr.name="bandwidth_gbps" attr.type="double"><default>25</default></key>
  <key id="d2" for="edge" attr.name="note" attr.type="int"><default/></key>
  <graph edgedefault="undirected">
    <node id="server1"><data key="d0">host</data></node>
    <node id="server2"><data key="d0">host</data></node>
    <node id="leaf"/><node id="spine"/>
    <edge source="server1" target="leaf"/><edge source="server2" target="leaf"/>
    <edge source="leaf" target="spine"><data key="d1">100</data></edge>
  </graph>
</graphml>"""


@pytest.mark.parametrize("what", ['for="edge"', 'for="all"', ""])
def test_the_default_of_a_key_holds_where_an_edge_says_nothing(what, tmp_path, caplog):
    fabric = read(made(tmp_path / "d.graphml", GRAPHML.format(what=what)))
    assert rates(fabric) == SPOKEN
    assert "without a rate" not in caplog.text


NESTED = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d1" for="edge" attr.name="rate" attr.type="string"/>
  <graph edgedefault="undirected">
    <node id="hosts" {folder}><graph edgedefault="undirected">
      <node id="server1"/><node id="server2"/>
      <node id="rack" {folder}><graph edgedefault="undirected">
        <node id="leaf"/><edge source="leaf" target="server2"><data key="d1">25G</data></edge>
      </graph></node>
    </graph></node>
    <node id="spine"/>
    <edge source="server1" target="leaf"><data key="d1">25G</data></edge>
    <edge source="leaf" target="spine"><data key="d1">100G</data></edge>
  </graph>
</graphml>"""


@pytest.mark.parametrize("kind", ["", "group", "folder"])
def test_a_graph_within_a_node_is_part_of_the_whole(kind, tmp_path):
    """`hosts` and `rack` are groups, which nothing is cabled to."""
    text = NESTED.format(folder=kind and f'yfiles.foldertype="{kind}"')
    assert rates(read(made(tmp_path / "n.graphml", text))) == SPOKEN


# --- GEXF -----------------------------------------------------------------------------------------

GEXF = """<?xml version="1.0" encoding="UTF-8"?>
<gexf xmlns="{space}" xmlns:viz="{space}/viz" version="1.3">
  <meta lastmodifieddate="2024-01-01"><creator>Gephi 0.10.1</creator></meta>
  <graph defaultedgetype="undirected" mode="static">
    <attributes class="node" mode="static">
      <attribute id="0" title="role" type="string"><default>switch</default></attribute>
      <attribute id="1" title="size" type="short"/>
    </attributes>
    <attributes class="edge" mode="static">
      <attribute id="0" title="bandwidth_gbps" type="double"><default>25</default></attribute>
    </attributes>
    <nodes>
      <node id="0" label="server1"><attvalues><attvalue for="0" value="host"/></attvalues></node>
      <node id="1" label="server2"><attvalues><attvalue for="0" value="host"/>
        <attvalue for="1" value="7"/></attvalues><viz:color r="1.5" g="2" b="3"/></node>
      <node id="2" label="leaf"/>
      <node id="3" label="spine"/>
    </nodes>
    <edges>
      <edge id="0" source="0" target="2" weight="1.0"/>
      <edge id="1" source="1" target="2"/>
      <edge id="2" source="2" target="3">
        <attvalues><attvalue for="0" value="100"/></attvalues></edge>
    </edges>
  </graph>
</gexf>"""
V13 = GEXF.format(space="http://gexf.net/1.3")


@pytest.mark.parametrize(
    "space",
    ["http://gexf.net/1.3", "http://www.gexf.net/1.3", "http://www.gexf.net/1.2draft",
     "http://www.gexf.net/1.1draft"],
)  # fmt: skip
def test_gexf_of_any_version_is_read_by_its_labels_and_defaults(space, tmp_path, caplog):
    fabric = read(made(tmp_path / "g.gexf", GEXF.format(space=space)))
    assert rates(fabric) == SPOKEN
    assert "attributes of nodes left out: size" in caplog.text and "weight" in caplog.text


def test_gexf_is_told_by_its_content(tmp_path):
    assert len(read(made(tmp_path / "g.xml", V13)).hosts) == 2


def test_parallel_edges_of_gexf_are_cables_and_both_directions_are_one(tmp_path, caplog):
    again = '<edge id="7" source="2" target="3"/></edges>'
    assert len(read(made(tmp_path / "p.gexf", V13.replace("</edges>", again))).links) == 4
    said = '<attvalues><attvalue for="0" value="%s"/></attvalues>'
    ways = "".join(
        f'<edge id="{7 + i}" source="{b}" target="{a}">{said % rate}</edge>'
        for i, (a, b, rate) in enumerate([(0, 2, 25), (1, 2, 25), (2, 3, 100)])
    )
    both = V13.replace("</edges>", f"{ways}</edges>").replace("undirected", "directed")
    assert rates(read(made(tmp_path / "b.gexf", both))) == SPOKEN
    assert "6 edges of one direction are 3 cables" in caplog.text


# --- Pajek ----------------------------------------------------------------------------------------

PAJEK = """% made by hand
*Network pod
*Vertices 4
1 "server 1" 0.1 0.2 0.5 ellipse role host
2 server2 role host
3 "leaf"

% 4 has a number alone
*Arcs
*Edges
1 3 1 bandwidth_gbps 25
2 3 1 bandwidth_gbps 25 c Blue
3 4 bandwidth_gbps 100
"""


def test_pajek_has_vertices_edges_and_comments(tmp_path, caplog):
    fabric = read(made(tmp_path / "p.net", PAJEK))
    assert rates(fabric) == [
        ("4", "leaf", 100.0), ("leaf", "server 1", 25.0), ("leaf", "server2", 25.0),
    ]  # fmt: skip
    assert "attributes of edges left out: c, weight" in caplog.text


def test_lists_of_pajek_and_arcs_both_ways(tmp_path, caplog):
    """Each list leads from its first number: 3 to both servers, and they back."""
    head = "*vertices 3\r\n1 server1\r\n2 server2\r\n3 leaf\r\n"
    fabric = read(made(tmp_path / "l.net", f"{head}*Arcslist\r\n3 1 2\r\n1 3\r\n2 3\r\n"))
    assert len(fabric.links) == 2 and len(fabric.hosts) == 2
    assert "4 edges of one direction are 2 cables" in caplog.text
    assert len(read(made(tmp_path / "e.net", f"{head}*Edgeslist\n3 1 2\n")).links) == 2


@pytest.mark.parametrize("form", ["gexf", "pajek"])
def test_what_networkx_writes_is_read(form, tmp_path):
    """Pajek holds text alone."""
    fabric = leaf_spine(tors=3, gpus=2)
    graph, path = graph_of(fabric), tmp_path / f"f.{'net' if form == 'pajek' else form}"
    if form == "pajek":
        for said in (*dict(graph.nodes).values(), *(said for *_, said in graph.edges(data=True))):
            said.update({key: str(value) for key, value in said.items()})
    getattr(nx, f"write_{form}")(graph, path)
    back = read(path)
    called = back.parameters["names"]
    assert [called[h] for h in back.hosts] == list(fabric.hosts)
    tiers = {(called[node.name], node.tier) for node in back.nodes}
    assert tiers == {(node.name, node.tier) for node in fabric.nodes}
    assert sorted(k.rate for k in back.links) == sorted(k.rate for k in fabric.links)
    assert {k.delay for k in back.links} == {k.delay for k in fabric.links}


BOMB = '<!DOCTYPE x [<!ENTITY a "ha">]><gexf'
BAD = {
    "bomb.gexf": (V13.replace("<gexf", BOMB, 1), "declares entities, which"),
    "cut.gexf": (V13[:900], "is no whole XML"),
    "twice.gexf": (V13.replace('node id="1"', 'node id="0"'), "node 0 stands twice"),
    "edge.gexf": (V13.replace('edge id="1" source="1"', 'edge id="0" source="0"'), "edge 0 stands"),
    "none.gexf": (V13.replace('target="3"', 'target="9"'), "ends at 9, which is no node"),
    "for.gexf": (V13.replace('for="1" value="7"', 'for="5" value="7"'), "networkx reads: No attr"),
    "class.gexf": (V13.replace('class="edge"', 'class="graph"'), "is no GEXF that networkx reads"),
    "far.net": (PAJEK.replace("3 4 band", "3 5 band"), "line 13: '5' is no vertex; there are 1"),
    "many.net": (PAJEK.replace("Vertices 4", "Vertices 99999999999"), "a whole number up to"),
    "none.net": ("*Vertices\n1 a\n", "line 1: '' vertices"),
    "matrix.net": (PAJEK + "*Matrix\n0 1\n", r"line 14: \*Matrix is not read"),
    "one.net": (PAJEK + "3\n", "line 14: '3' is no edge; write two numbers"),
    "unit.net": (PAJEK.replace("bandwidth_gbps 25 c", "rate 25 c"), "line 12 rate 25 has no unit"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_graph_files_are_one_clear_error(name, tmp_path, capsys):
    text, why = BAD[name]
    made(tmp_path / name, text)
    with pytest.raises(RFabricError, match=why):
        read(tmp_path / name)
    assert main(["topo", str(tmp_path / name)]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "text, end", [(V13, "gexf"), (PAJEK, "net"), (NESTED.format(folder=""), "graphml")]
)
def test_a_graph_cut_anywhere_is_read_or_refused(text, end, tmp_path):
    for cut in range(0, len(text), max(len(text) // 40, 1)):
        try:
            read(made(tmp_path / f"cut.{end}", text[:cut]))
        except RFabricError as error:
            assert "cut" in str(error)


# --- SimAI's topology text ------------------------------------------------------------------------

# two servers of two GPUs, an NVSwitch each (4, 5), two rails (6, 7) below a spine (8)
SIMAI = """9 2 2 3 10 H100
4 5 6 7 8
0 4 2880Gbps 0.000025ms 0
1 4 2880Gbps 0.000025ms 0
2 5 2880Gbps 0.000025ms 0
3 5 2880Gbps 0.000025ms 0
0 6 200Gbps 0.0005ms 0
1 7 200Gbps 0.0005ms 0
2 6 200Gbps 0.0005ms 0
3 7 200Gbps 0.0005ms 0
6 8 400Gbps 0.0005ms 0
7 8 400Gbps 0.0005ms 0
"""


def test_a_gpu_of_simai_is_one_host_that_uses_its_nvlink_and_its_nic(tmp_path, caplog):
    """360 MB take 1 ms over NVLink and 14.4 ms over the NIC; both at once take no longer."""
    fabric = read(made(tmp_path / "simai.txt", SIMAI))
    called = fabric.parameters["names"]
    assert [called[h] for h in fabric.hosts] == ["0", "1", "2", "3"]
    assert "4 hosts pass on between NVSwitches and NICs" in caplog.text
    for pairs, ms in (([(0, 1)], 1.0), ([(0, 2)], 14.4), ([(0, 1), (0, 2)], 14.4)):
        rows = TraceBuilder(fabric.hosts)
        rows.flows(*zip(*pairs, strict=True), 360e6)
        assert 1e3 * simulate(fabric, rows.build()).step_seconds == pytest.approx(ms, rel=1e-3)


# --- InfraGraph -----------------------------------------------------------------------------------

# as InfraGraph 3.1.0 makes a de Bruijn graph of two switches: 0 to 0 and 1, 1 to 1 and 0
DE_BRUIJN = """
devices:
- {name: server, components: [{name: nic, count: 1, choice: nic}]}
- {name: switch, components: [{name: port, count: 8, choice: port}]}
instances:
- {name: host, device: server, count: 2}
- {name: switch, device: switch, count: 2}
edges:
- {ep1: {instance: "host[0]", component: nic}, ep2: {instance: "switch[0]", component: "port[0]"}}
- {ep1: {instance: "host[1]", component: nic}, ep2: {instance: "switch[1]", component: "port[0]"}}
"""
LOOPS = "".join(
    f'- {{ep1: {{instance: "switch[{a}]", component: "port[{2 + k}]"}}, '
    f'ep2: {{instance: "switch[{b}]", component: "port[{4 + k}]"}}}}\n'
    for k, (a, b) in enumerate([(0, 0), (0, 1), (1, 1), (1, 0)])
)


def test_a_cable_of_infragraph_from_a_switch_to_itself_carries_nothing(tmp_path, caplog):
    fabric = read(made(tmp_path / "b.yaml", DE_BRUIJN + LOOPS))
    assert len(fabric.hosts) == 2 and len(fabric.links) == 4
    assert "2 cables from a switch to itself left out" in caplog.text


# --- JSON, and names of columns -------------------------------------------------------------------


def drawn() -> nx.Graph:
    graph = nx.Graph()
    for *ends, rate in SPOKEN:
        graph.add_edge(*ends, rate=f"{rate:g}G")
    return graph


def json_graph(listed: bool) -> dict:
    """As the JSON Graph Format has it: nodes by name, or (before version 2) in a list."""
    graph = drawn()
    nodes = [{"id": n} for n in graph] if listed else {n: {"metadata": {"x": 1}} for n in graph}
    edges = [
        {"source": a, "target": b, "metadata": {"rate": said["rate"]}}
        for a, b, said in graph.edges(data=True)
    ]
    return {"graph": {"directed": False, "nodes": nodes, "edges": edges}}


@pytest.mark.parametrize(
    "said",
    [
        json_graph(listed=True), json_graph(listed=False), nx.adjacency_data(drawn()),
        nx.adjacency_data(nx.MultiGraph(drawn())), nx.adjacency_data(drawn().to_directed()),
    ],
)  # fmt: skip
def test_json_graph_format_and_networkx_adjacency(said, tmp_path):
    assert rates(read(made(tmp_path / "g.json", json.dumps(said)))) == SPOKEN


@pytest.mark.parametrize(
    "said",
    [
        {"graph": {"nodes": 5, "edges": []}}, {"graph": {"nodes": {"a": 5}}},
        {"nodes": [{"id": 1}], "adjacency": [5]}, {"nodes": [{"id": 1}], "adjacency": [[{}]]},
    ],
)  # fmt: skip
def test_bad_graphs_in_json_are_one_clear_error(said, tmp_path):
    with pytest.raises(RFabricError, match="g.json: .*expected"):
        read(made(tmp_path / "g.json", json.dumps(said)), format="node-link")


@pytest.mark.parametrize(
    "column, cell", [("Port Speed", "25GbE"), ("PortSpeed_gbps", "25"), ("line rate", "25GE")]
)
def test_a_column_may_say_where_its_speed_is(column, cell, tmp_path, caplog):
    """Cables are listed from both ends, by their ports; the speed of one is not known."""
    text = (
        f"Device A,Port A,Device B,Port B,{column}\n"
        f"leaf,1,server1,1,{cell}\nserver1,1,leaf,1,{cell}\nleaf,2,server2,1,{cell}\n"
        "leaf,9,spine,3,n/a\n"
    )
    fabric = read(made(tmp_path / "k.csv", text), uplink_rate="100Gbit/s")
    assert rates(fabric) == SPOKEN
    assert "4 rows name 3 cables by their ports" in caplog.text


def test_speed_counts_before_the_speed_of_a_port(tmp_path):
    text = "source,target,port_speed,speed\nserver1,leaf,400G,25G\nserver2,leaf,25G,\n"
    assert {k.rate for k in read(made(tmp_path / "s.csv", text)).links} == {25e9}


def test_commas_between_thousands_are_told(tmp_path):
    path = made(tmp_path / "t.csv", 'source,target,speed_mbps\nserver1,leaf,"100,000"\nx,leaf,1\n')
    with pytest.raises(RFabricError, match="line 2, .*no commas between thousands"):
        read(path)


def test_two_rows_of_one_cable_do_not_differ(tmp_path):
    head = "Device A,Port A,Device B,Port B,speed\n"
    rows = "leaf,1,server1,1,{}\nserver1,1,leaf,1,{}\nleaf,2,server2,1,25G\n"
    fabric = read(made(tmp_path / "k.csv", head + rows.format("n/a", "25G")))
    assert {k.rate for k in fabric.links} == {25e9}
    with pytest.raises(RFabricError, match="line 3, column speed: '25G', but '100G' in line 2"):
        read(made(tmp_path / "k.csv", head + rows.format("100G", "25G")))


@pytest.mark.parametrize("key, gbps", [
    ("bandwidth_GBs", 400), ("bw_GB_s", 400), ("rate (GB/s)", 400), ("speed_GBps", 400),
    ("bandwidth_Gbs", 50), ("bw_gb_s", 50), ("SPEED_GBPS", 50),
])  # fmt: skip
def test_bytes_in_the_name_of_a_rate_are_not_bits(key, gbps, tmp_path):
    rows = f"a,b,{key}\nserver1,leaf,50\nserver2,leaf,50\n"
    links = [{"source": f"server{i}", "target": "leaf", key: 50} for i in (1, 2)]
    nodes = [{"id": name} for name in ("server1", "server2", "leaf")]
    text = json.dumps({"nodes": nodes, "links": links})
    for path in (made(tmp_path / "b.csv", rows), made(tmp_path / "b.json", text)):
        assert {k.rate for k in read(path).links} == {gbps * 1e9}


def test_cables_in_both_directions_among_others_are_told(tmp_path, caplog):
    rows = "a,b\nserver1,leaf1\nserver2,leaf2\nleaf1,leaf2\nleaf2,leaf1\n"
    edges = [line.split(",") for line in rows.splitlines()[1:]]
    links = [{"source": a, "target": b} for a, b in edges]
    nodes = [{"id": name} for name in dict.fromkeys(sum(edges, []))]
    text = json.dumps({"nodes": nodes, "links": links})
    for path in (made(tmp_path / "b.csv", rows), made(tmp_path / "b.json", text)):
        caplog.clear()
        assert len(read(path).links) == 4
        assert "1 pairs stand in both directions, each time as a cable of its own" in caplog.text


def test_directed_multigraphs_of_networkx_number_each_direction(tmp_path):
    graph = nx.MultiGraph([("leaf", "server1"), ("leaf", "server2"), *[("leaf", "spine")] * 2])
    nx.write_graphml(graph.to_directed(), tmp_path / "d.graphml")
    assert len(read(tmp_path / "d.graphml").links) == 4


@pytest.mark.parametrize("host", ["host", "machine name"])
def test_the_index_of_pandas_is_no_tier_of_switches(host, tmp_path, caplog):
    text = f",{host},low,high\n0,x1,s1,a1\n1,x2,s1,a1\n2,x3,s2,a1\n"
    fabric = read(made(tmp_path / "t.csv", text))
    assert len(fabric.hosts) == 3 and len(fabric.racks) == 2 and len(fabric.switches) == 3
    assert "columns left out: one without a name" in caplog.text


def test_nan_is_no_switch(tmp_path):
    text = "ip,ToR,agg\nx1,t1,a1\nx2,t2,a1\nx3,{},{}\n"
    with pytest.raises(RFabricError, match="line 4, column tor: 'NaN' must be one name"):
        read(made(tmp_path / "t.csv", text.format("NaN", "a1")))
    fabric = read(made(tmp_path / "t.csv", text.format("t2", "NaN")))
    assert sorted(fabric.parameters["names"].values()) == ["a1", "t1", "t2", "x1", "x2", "x3"]


def test_servers_of_two_cables_may_be_called_srv(tmp_path):
    rows = "".join(f"rack1-srv{i},leaf{k}\n" for i in (1, 2) for k in (1, 2))
    fabric = read(made(tmp_path / "s.csv", f"a,b\n{rows}leaf1,leaf2\n"))
    assert len(fabric.hosts) == 4 and len(fabric.switches) == 2


def test_hosts_of_ns3_behind_a_switch_are_told(tmp_path, caplog):
    """Node n of a flow list is h(n+1), which is another host where a switch is node 0."""
    text = "3 1 2\n{}\n{} 100Gbps 0.001ms 0\n{} 100Gbps 0.001ms 0\n"
    read(made(tmp_path / "s.ns3", text.format(2, "0 2", "1 2")))
    assert "hosts do not come first" not in caplog.text
    read(made(tmp_path / "s.ns3", text.format(0, "0 1", "0 2")))
    said = "hosts do not come first: node 1 is h1, where a flow list takes it for h2"
    assert said in caplog.text


PORTS = [(f"h{i}", f"sw{i // 3}", f"Eth{i % 3}") for i in range(6)]


def test_ports_of_a_switch_are_no_tier_of_switches(tmp_path, caplog):
    """Who is plugged in where, as a list says that counts ports anew in each switch."""
    rows = "".join(",".join(row) + "\n" for row in PORTS[:3])
    fabric = read(made(tmp_path / "p.csv", "Server,Switch,Port\n" + rows))
    assert len(fabric.hosts) == 3 and len(fabric.switches) == 1
    assert "columns left out: port (tiers=" in caplog.text
    rows = "".join(",".join(row) + "\n" for row in PORTS)
    path = made(tmp_path / "p.csv", "Server,box,place\n" + rows)
    with pytest.raises(
        RFabricError, match="line 5, column place: Eth0 stands beside sw1 and, befor"
    ):
        read(path)


def test_nics_of_ns3s_hosts_shift_the_numbers_of_a_flow_list(tmp_path, caplog):
    head, cables = "5 2 5\n3 4\n", ("0 3", "0 4", "1 3", "2 4", "3 4")
    text = head + "".join(f"{ends} 400Gbps 1us 0\n" for ends in cables)
    read(made(tmp_path / "s.ns3", text))
    said = "a flow list's numbers do not hold from node 0 on, whose 2 NICs are a host each"
    assert said in caplog.text


def test_edges_of_one_direction_alone_are_said_to_be_cables_of_both(tmp_path, caplog):
    graph = nx.DiGraph([("server1", "leaf1"), ("server2", "leaf1"), ("leaf1", "server2")])
    nx.write_graphml(graph, tmp_path / "g.graphml")
    read(tmp_path / "g.graphml")
    assert "3 edges of one direction are 2 cables; 1 edges without one back are" in caplog.text


def test_the_inside_of_a_server_of_several_planes_delays_nothing(tmp_path, caplog):
    """From NIC to NIC a byte takes the delays of the two cables of its plane."""
    rows = "".join(f"server{s},leaf{n},100Gbit/s\n" for s in (1, 2) for n in (1, 2))
    fabric = read(made(tmp_path / "g.csv", "a,b,rate\n" + rows))
    job = TraceBuilder(["h1", "h3"])
    job.flows([0], [1], [1e6])
    assert simulate(fabric, job.build()).finish.tolist() == pytest.approx([80e-6 + 2 * 0.5e-6])
    assert "without a delay" not in caplog.text


def test_a_delay_that_some_cables_leave_out_is_said(tmp_path, caplog):
    rows = "a,b,rate,delay\nserver1,leaf1,100Gbit/s,2us\nserver2,leaf1,100Gbit/s,{}\n"
    read(made(tmp_path / "g.csv", rows.format("")))
    assert "1 cables without a delay took 500 ns, others say theirs" in caplog.text
    caplog.clear()
    read(made(tmp_path / "g.csv", rows.format("1us")))
    assert "without a delay" not in caplog.text

"""Networks from files of one's own."""

import json
from itertools import product

import pytest
from lighting import switches

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import BUILDERS, Fabric, parse_fabric, rfabric
from rfabric.fabric.roles import named_role, word_role
from rfabric.routing import Routes, unreachable
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder
from rfabric.units import transfer_seconds

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
        ("src,size_bytes\n", "line 1: the header must be .*; it is src,size_bytes"),
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


def test_the_mininet_topology_has_the_fabrics_numbers():
    pytest.importorskip("mininet.topo", reason="no mininet in this Python: apt-get install mininet")
    from rfabric.emulate.topo import topo_of

    fabric = rfabric(pods=2, tors=2, gpus=2)
    topo = topo_of(fabric)
    assert sorted(topo.hosts()) == sorted(fabric.hosts) and len(topo.links()) == len(fabric.links)
    host = topo.nodeInfo("h3")
    assert (host["ip"], host["mac"]) == ("10.0.0.3/8", "00:00:00:00:00:03")
    assert int(topo.nodeInfo("a2")["dpid"], 16) == fabric.node["a2"].dpid
    joined = {
        tuple(sorted([(i["node1"], i["port1"]), (i["node2"], i["port2"])]))
        for *_, i in topo.links(withInfo=True)
    }
    assert joined == {tuple(sorted([tuple(k.a), tuple(k.b)])) for k in fabric.links}


def test_a_missing_network_file_and_an_unknown_setting_are_named(tmp_path):
    with pytest.raises(RFabricError, match="fabric file .*none.csv"):
        parse_fabric(f"{tmp_path}/none.csv")
    with pytest.raises(
        RFabricError,
        match="'pods=2' is not a setting; write KEY=VALUE with one of rate, uplink_rate",
    ):
        parse_fabric(f"{tmp_path}/none.csv,pods=2")


@pytest.mark.parametrize(
    "name, ends, kind",
    [
        ("gpu-leaf-1", 6, "eps"),  # a GPU leaf is a leaf, and a leaf's server a server
        ("dgx-spine-2", 4, "eps"),
        ("server-switch-1", 4, "eps"),
        ("leaf1-server3", 2, "host"),
        ("host-leaf1", 1, "host"),
        ("rack3-u12", 1, None),  # where it stands
        ("rack3-server2", 1, "host"),
        ("rack3", 5, "eps"),
        ("node7.fabric.com", 1, None),  # a domain
        ("server1.dc1.fabric.com", 2, "host"),
        ("leaf1.server-farm.local", 4, "eps"),
    ],
)
def test_names_say_what_their_last_word_is(name, ends, kind):
    role = named_role(name, ends)
    assert (role and role.kind) == kind


def test_tiers_by_words_of_several():
    tiers = {word: word_role(word).tier for word in ("fabric-leaf", "leaf switch", "ToR-Router")}
    assert set(tiers.values()) == {"edge"}
    sonic = ("BackEndToRRouter", "BackEndLeafRouter", "LowerSpineRouter")
    assert [word_role(word).tier for word in sonic] == ["edge", "aggregation", "core"]


def test_servers_named_by_their_rack_are_hosts(tmp_path):
    rows = [f"rack{r}-u{u},rack{r},400G" for r in range(2) for u in range(3)]
    (tmp_path / "racks.csv").write_text(
        "a,b,rate\nnode-x,rack0,400G\n" + "\n".join(rows) + "\nrack0,top,800G\nrack1,top,800G\n"
    )
    fabric = parse_fabric(f"{tmp_path}/racks.csv")
    assert len(fabric.hosts) == 7 and switches(fabric) == {"eps edge": 2, "eps aggregation": 1}


def test_frr_spines_without_hosts_are_switches(tmp_path):
    nodes = "".join(f"    {n}: {{kind: linux}}\n" for n in ("spine1", "leaf1", "leaf2", "p1", "p2"))
    links = [("spine1", "leaf1"), ("spine1", "leaf2"), ("leaf1", "p1"), ("leaf2", "p2")]
    ends = "".join(f'    - endpoints: ["{a}:{b}", "{b}:{a}"]\n' for a, b in links)
    (tmp_path / "l.clab.yml").write_text(f"topology:\n  nodes:\n{nodes}  links:\n{ends}")
    fabric = parse_fabric(f"{tmp_path}/l.clab.yml")
    assert len(fabric.hosts) == 2 and switches(fabric) == {"eps edge": 2, "eps aggregation": 1}


@pytest.mark.parametrize("file, table", [("sw1", "sw1.example.com"), ("sw1.example.com", "sw1")])
def test_a_switch_is_one_by_its_short_and_its_whole_name(tmp_path, file, table):
    def seen(*neighbours):
        entries = [{f"Ethernet{i}": {"chassis": {n: {}}}} for i, n in enumerate(neighbours)]
        return json.dumps({"lldp": {"interface": entries}})

    (tmp_path / "t").mkdir()
    (tmp_path / "t" / f"{file}.json").write_text(seen("n1", "n2", "top.example.com"))
    (tmp_path / "t" / "top.json").write_text(seen(table))
    fabric = parse_fabric(f"{tmp_path}/t")
    assert set(fabric.parameters["names"].values()) == {"n1", "n2", file, "top"}
    assert len(fabric.hosts) == 2 and len(fabric.links) == 3


@pytest.mark.parametrize(
    "column, rate",
    [
        ("Bandwidth (Gbps)", 1e11),
        ("link_speed_gbps", 1e11),
        ("bandwidthGbps", 1e11),
        ("Rate [Gbit/s]", 1e11),
        ("bw_GBps", 8e11),  # bytes
        ("Speed (GB/s)", 8e11),
        ("Speed (Gb/s)", 1e11),
        ("capacity_gbit", 1e11),
    ],
)
def test_units_in_the_names_of_columns(tmp_path, column, rate):
    rows = "h1,t,100,2\nh2,t,100,2\n"
    (tmp_path / "k.csv").write_text(f"a,b,{column},Latency (\u00b5s)\n{rows}")
    links = parse_fabric(f"{tmp_path}/k.csv").links
    assert {(k.rate, k.delay) for k in links} == {(rate, 2e-6)}
    edges = [{"source": h, "target": "t", column: 100} for h in ("h1", "h2")]
    (tmp_path / "k.json").write_text(json.dumps({"nodes": ["t", "h1", "h2"], "edges": edges}))
    assert {k.rate for k in parse_fabric(f"{tmp_path}/k.json").links} == {rate}


def test_labels_name_the_nodes_of_drawings(tmp_path):
    label = '<data key="l">{}</data>'
    names = ("leaf1", "leaf2", "server", "server", "")
    nodes = "".join(f'<node id="n{i}">{label.format(n)}</node>' for i, n in enumerate(names))
    pairs = ((2, 0), (2, 1), (3, 0), (3, 1), (0, 1), (4, 1))
    edges = "".join(f'<edge id="e{a}{b}" source="n{a}" target="n{b}"/>' for a, b in pairs)
    (tmp_path / "y.graphml").write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        '<key id="l" for="node" attr.name="label" attr.type="string"/>'
        f'<graph edgedefault="undirected">{nodes}{edges}</graph></graphml>'
    )
    fabric = parse_fabric(f"{tmp_path}/y.graphml")
    assert sorted(fabric.parameters["names"][h] for h in fabric.hosts) == [
        "n4", "server (n2):1", "server (n2):2", "server (n3):1", "server (n3):2"
    ]  # fmt: skip
    assert switches(fabric) == {"eps edge": 2}
    (tmp_path / "y.graphml").write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected">'
        '<node id="a"/><node id="b"/>' + 2 * '<edge id="e" source="a" target="b"/>'
        + "</graph></graphml>"
    )  # fmt: skip
    with pytest.raises(RFabricError, match="edge e stands twice"):
        parse_fabric(f"{tmp_path}/y.graphml")


def test_gml_with_a_label_twice_and_parallel_edges(tmp_path):
    nodes = "".join(f'node [ id {i} label "{n}" ]\n' for i, n in enumerate(("a", "None", "None")))
    edges = "".join(f'edge [ source 0 target {b} label "x" ]\n' for b in (1, 2, 2))
    (tmp_path / "z.gml").write_text(f"graph [\n{nodes}{edges}]\n")
    fabric = parse_fabric(f"{tmp_path}/z.gml")
    assert set(fabric.parameters["names"].values()) == {"a", "None (1)", "None (2)"}
    assert len(fabric.links) == 3


def test_links_beside_an_empty_list_of_edges(tmp_path):
    links = [{"source": h, "target": "t"} for h in ("h1", "h2")]
    said = {"nodes": ["t", "h1", "h2"], "links": [], "edges": links}
    (tmp_path / "n.json").write_text(json.dumps(said))
    assert len(parse_fabric(f"{tmp_path}/n.json").links) == 2


DUAL = "a,b,rate\n" + "".join(f"server{i},leaf{p},400G\n" for i in range(2) for p in range(2))


def test_planes_that_only_hosts_join_are_joined_by_servers(tmp_path, caplog):
    """A NIC reaches every other: the server passes on to the plane of either."""
    (tmp_path / "dual.csv").write_text(DUAL)
    fabric = parse_fabric(f"{tmp_path}/dual.csv")
    assert switches(fabric) == {"eps server": 2, "eps aggregation": 2}
    assert "as they alone join its 2 parts, each is a server" in caplog.text
    # 8 flows of 5 GB leave and reach each server over its two NICs of 400 Gbit/s
    assert crossed(fabric).step_seconds == pytest.approx(4 * 5e9 / 100e9, rel=1e-3)


def crossed(fabric):
    """Every NIC sends to every NIC of other servers."""
    pairs = [(a, b) for a in range(4) for b in range(4) if a // 2 != b // 2]
    builder = TraceBuilder(fabric.hosts)
    builder.flows(*map(list, zip(*pairs, strict=True)), 5e9)
    return simulate(fabric, builder.build())


@pytest.mark.parametrize("name", ["d.graphml", "d.gml", "d.json", "d.clab.yml", "d.ns3"])
def test_a_dual_plane_network_goes_out_and_comes_back(tmp_path, name):
    (tmp_path / "dual.csv").write_text(DUAL)
    fabric = parse_fabric(f"{tmp_path}/dual.csv")
    assert main(["topo", f"{tmp_path}/dual.csv", "-o", str(tmp_path / name)]) == 0
    back = parse_fabric(f"{tmp_path / name}")
    assert crossed(back).finish.tolist() == crossed(fabric).finish.tolist()


def test_two_planes_carry_what_one_of_twice_the_rate_does(tmp_path):
    """Rings over servers, at one rate through two planes and at twice that through one."""
    said = {
        "two": "".join(f"server{i},leaf{p},100G\n" for i in range(6) for p in range(2)),
        "one": "".join(f"server{i},leaf,200G\n" for i in range(6)),
    }
    took = {}
    for name, rows in said.items():
        (tmp_path / f"{name}.csv").write_text("a,b,rate\n" + rows)
        fabric = parse_fabric(f"{tmp_path}/{name}.csv")
        nics = len(fabric.hosts) // 6
        builder = TraceBuilder(fabric.hosts)
        for nic in range(nics):
            ends = [nics * i + nic for i in range(6)]
            builder.flows(ends, ends[1:] + ends[:1], 12e9 / nics)
        took[name] = simulate(fabric, builder.build()).step_seconds
    assert took["two"] == pytest.approx(took["one"], rel=1e-4)


BOTH = {
    "ports.csv": "local,local_port,remote,remote_port\nh1,e0,t,1\nh2,e0,t,2\nt,1,h1,e0\n",
    "ways.csv": "a,b,rate\nh1,t,400G\nt,h1,400G\nh2,t,400G\nt,h2,400G\n",
    "ways.json": json.dumps({"nodes": ["h1", "t", "h2"], "edges": [
        {"source": a, "target": b} for h in ("h1", "h2") for a, b in ((h, "t"), ("t", h))]}),
}  # fmt: skip


@pytest.mark.parametrize("name", BOTH)
def test_a_cable_listed_from_both_ends_is_one(tmp_path, caplog, name):
    (tmp_path / name).write_text(BOTH[name])
    fabric = parse_fabric(f"{tmp_path}/{name}")
    assert len(fabric.hosts) == len(fabric.links) == 2 and "2 cables" in caplog.text


def test_an_interface_twice_and_a_link_that_is_not_there_are_refused(tmp_path):
    ends = "".join(f'    - endpoints: ["a:e1", "{h}:e1"]\n' for h in ("h1", "h2"))
    nodes = "    a: {kind: srl}\n    h1: {kind: linux}\n    h2: {kind: linux}\n"
    (tmp_path / "l.clab.yml").write_text(f"topology:\n  nodes:\n{nodes}  links:\n{ends}")
    with pytest.raises(RFabricError, match="a:e1 ends two links"):
        parse_fabric(f"{tmp_path}/l.clab.yml")
    kinds = {"server": ("nic", "nic"), "switch": ("port", "port")}
    ig = {
        "devices": [{"name": d, "components": [{"name": n, "count": 2, "choice": c}]}
                    for d, (n, c) in kinds.items()],
        "instances": [{"name": d, "device": d, "count": 2} for d in kinds],
        "links": [{"name": "fibre", "physical": {"bandwidth": {"gigabits_per_second": 100}}}],
        "edges": [{"ep1": {"instance": "server[0:2]", "component": "nic[0]"}, "link": "fiber",
                   "ep2": {"instance": "switch[0]", "component": "port[0:2]"},
                   "scheme": "one2one"}],
    }  # fmt: skip
    (tmp_path / "i.json").write_text(json.dumps(ig))
    with pytest.raises(RFabricError, match=r"there is no link 'fiber'.*fibre"):
        parse_fabric(f"{tmp_path}/i.json")


def test_gml_that_ends_in_a_string_is_no_traceback(tmp_path):
    (tmp_path / "b.gml").write_text('graph [\n node [ id 1 label "a\n\n"\n ]\n]\n')
    with pytest.raises(RFabricError, match="is no GML"):
        parse_fabric(f"{tmp_path}/b.gml")


OWN_NUMBERS = "a,b,rate\nh1,t1,10G\nh2,t1,20G\nh10,t2,30G\nh3,t2,40G\nt1,t2,400G\n"


def nics(path, text, caplog):
    """bit/s of each host's NIC, by its name here, and what was said."""
    path.write_text(text)
    caplog.clear()
    fabric = parse_fabric(str(path))
    return {k.a.node: k.rate for k in fabric.links if k.a.node in fabric.rack_of}, caplog.text


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (2, 0, 4, 1, 3)])
def test_hosts_that_a_file_calls_as_traces_do_keep_their_numbers(tmp_path, caplog, order):
    head, *rows = OWN_NUMBERS.replace("h10", "h4").splitlines()
    text = "\n".join([head, *(rows[i] for i in order)])
    rates, said = nics(tmp_path / "net.csv", text, caplog)
    assert rates == {"h1": 1e10, "h2": 2e10, "h4": 3e10, "h3": 4e10}
    assert "numbered anew" not in said


def test_hosts_that_cannot_keep_their_numbers_are_said(tmp_path, caplog):
    rates, said = nics(tmp_path / "net.csv", OWN_NUMBERS, caplog)
    assert rates == {"h1": 1e10, "h2": 2e10, "h3": 4e10, "h4": 3e10}
    assert "its hosts are numbered anew: h10 of the file is h4" in said
    zero = OWN_NUMBERS.replace("h1,", "h0,").replace("h10,", "x,")
    rates, said = nics(tmp_path / "net.csv", zero, caplog)
    assert rates == {"h1": 1e10, "h2": 2e10, "h3": 3e10, "h4": 4e10}  # in the file's order
    assert "its hosts are numbered anew: h0 of the file is h1" in said
    two = OWN_NUMBERS + "h1,t2,50G\n"  # a host by its name, though it has two cables
    rates, said = nics(tmp_path / "net.csv", two, caplog)
    assert rates == {"h1": 1e10, "h2": 5e10, "h3": 2e10, "h4": 4e10, "h5": 3e10}
    assert "its hosts are numbered anew: h1:2 of the file is h2" in said

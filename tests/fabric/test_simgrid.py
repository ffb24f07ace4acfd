"""SimGrid platforms: what rfabric writes read back, routes, clusters, and what is no cable."""

from collections import Counter

import pytest

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import leaf_spine, parse_fabric
from rfabric.fabric.formats import written

HEAD = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
"""
FLOYD = f"""{HEAD}  <zone id="net" routing="Floyd">
    <host id="n0" speed="1Gf"/>
    <host id="n1" speed="1Gf"/>
    <router id="sw"/>
    <link id="l0" bandwidth="125MBps" latency="50us"/>
    <link id="l1" bandwidth="41.279125MiBps" latency="0.00002" sharing_policy="SPLITDUPLEX"/>
    <link id="spare" bandwidth="1Gbps" latency="1us"/>
    <route src="n0" dst="sw"><link_ctn id="l0"/></route>
    <route src="n1" dst="sw" symmetrical="NO"><link_ctn id="l1" direction="UP"/></route>
    <route src="sw" dst="n1" symmetrical="NO"><link_ctn id="l1" direction="DOWN"/></route>
  </zone>
</platform>
"""
CLUSTERS = f"""{HEAD}  <zone id="grid" routing="Full">
    <cluster id="a" prefix="a-" suffix=".org" radical="0-2,7" speed="1Gf" bw="125MBps" lat="50us"
             bb_bw="2.25GBps" bb_lat="500us"/>
    <cluster id="b" prefix="b" suffix="" radical="1-2" speed="1Gf" bw="10Gbps" lat="1us"
             router_id="edge"/>
    <link id="wide" bandwidth="1.25GBps" latency="5ms"/>
    <zoneRoute src="a" dst="b" gw_src="a-a_router.org" gw_dst="edge">
      <link_ctn id="wide"/>
    </zoneRoute>
  </zone>
</platform>
"""


def tree(parameters, last=15):
    return (
        f'{HEAD}<zone id="w" routing="Full"><cluster id="t" prefix="n" suffix="" speed="1Gf" '
        f'radical="0-{last}" bw="12.5GBps" lat="1us" topology="FAT_TREE" '
        f'topo_parameters="{parameters}"/></zone></platform>'
    )


def made(path, text):
    path.write_text(text)
    return path


def cables(fabric):
    names = fabric.parameters["names"]
    return Counter(
        (*sorted((names[k.a.node], names[k.b.node])), k.rate, round(k.delay, 9))
        for k in fabric.links
    )


def test_what_is_written_comes_back(tmp_path):
    fabric = leaf_spine(tors=4, gpus=2)
    back = parse_fabric(f"{made(tmp_path / 'platform.xml', written(fabric, 'platform.xml'))}")
    names = back.parameters["names"]
    assert [names[h] for h in back.hosts] == list(fabric.hosts)
    plain = {(*sorted((k.a.node, k.b.node)), k.rate, round(k.delay, 9)) for k in fabric.links}
    assert cables(back) == Counter(plain)
    assert {names[h]: names[t] for h, t in back.rack_of.items()} == fabric.rack_of


def test_routes_of_one_link_are_cables_in_the_units_of_simgrid(tmp_path, caplog):
    """125 MB/s are 1 Gbit/s; 41.279125 MiB/s are 346,274,397.2 bit/s; a bare latency is in s."""
    fabric = parse_fabric(f"{made(tmp_path / 'floyd.xml', FLOYD)}")
    assert cables(fabric) == {
        ("n0", "sw", 1e9, 5e-5): 1, ("n1", "sw", 41.279125 * 2**20 * 8, 2e-5): 1,
    }  # fmt: skip
    assert "1 links that both ways share (not SPLITDUPLEX) have each its rate" in caplog.text
    assert "1 links in no route left out" in caplog.text


def test_clusters_are_switches_that_a_zone_route_joins(tmp_path, caplog):
    fabric = parse_fabric(f"{made(tmp_path / 'grid.xml', CLUSTERS)}")
    names = fabric.parameters["names"]
    assert [names[h] for h in fabric.hosts] == [
        "a-0.org", "a-1.org", "a-2.org", "a-7.org", "b1", "b2"
    ]  # fmt: skip
    assert cables(fabric)["a-a_router.org", "edge", 1e10, 5e-3] == 1
    assert Counter((k.rate, round(k.delay, 9)) for k in fabric.links) == {
        (1e9, 5e-5): 4, (1e10, 1e-6): 2, (1e10, 5e-3): 1
    }  # fmt: skip
    assert "bb_bw 2.25GBps, bb_lat 500us of cluster a left out" in caplog.text


def test_a_fat_tree_has_the_switches_of_its_parameters(tmp_path):
    """16 hosts below 4 edge switches, each with 2 parents, of 2 in all, by 2 cables each."""
    fabric = parse_fabric(f"{made(tmp_path / 'tree.xml', tree('2;4,4;1,2;1,2'))}")
    names = fabric.parameters["names"]
    assert (len(fabric.hosts), len(fabric.racks), len(fabric.switches)) == (16, 4, 4 + 2)
    assert len(fabric.links) == 16 + 4 * 2 * 2
    assert {k.rate for k in fabric.links} == {1e11}
    rack = {names[h]: names[t] for h, t in fabric.rack_of.items()}
    assert rack["n0"] == rack["n3"] != rack["n4"] == rack["n7"]
    slim = parse_fabric(f"{made(tmp_path / 'slim.xml', tree('3;2,2,2;1,2,1;1,1,2', 7))}")
    tiers = Counter(node.tier for node in slim.switches)
    assert tiers == {"edge": 4, "aggregation": 4, "core": 2} and len(slim.links) == 8 + 8 + 8


BAD = {
    "entity.xml": (FLOYD.replace('dtd">', 'dtd" [<!ENTITY a "b">]>'), "declares entities, which"),
    "full.xml": (FLOYD.replace('<link_ctn id="l0"/>', '<link_ctn id="l0"/><link_ctn id="spare"/>'),
                 "n0 - sw is over 2 links and says of no node between"),
    "bus.xml": (FLOYD.replace('id="l1" dir', 'id="l0" dir'), "link l0 is in the routes n0 - sw"),
    "gone.xml": (FLOYD.replace('<link_ctn id="l0"/>', '<link_ctn id="l9"/>'), "no link 'l9'"),
    "end.xml": (FLOYD.replace('dst="sw">', 'dst="swx">'), "ends at swx.*did you mean sw"),
    "twice.xml": (FLOYD.replace('"n1" speed', '"n0" speed'), "n0 stands twice"),
    "zero.xml": (FLOYD.replace("125MBps", "0MBps"), "link l0 bandwidth: '0MBps' must be above 0"),
    "peer.xml": (FLOYD.replace("<router", '<peer id="p"/><router'), "<peer> is not read"),
    "torus.xml": (tree("2;4,4;1,2;1,2").replace("FAT_TREE", "TORUS"), "topology TORUS is not read"),
    "few.xml": (tree("2;4,4;1,2;1,2", 14), "make 16 hosts, and its radical 15"),
    "odd.xml": (tree("2;4,4;1,2"), "is none such as 2;4,4;1,2;1,2"),
    "short.xml": (tree("3;4,4;1,2;1,2"), "is none such as 2;4,4;1,2;1,2"),
    "many.xml": (tree("1;16;99999;99999"), "more than 1,000,000 cables"),
    "radical.xml": (CLUSTERS.replace("0-2,7", "0-2,x"), "radical '0-2,x' is none such as 0-3,7"),
    "again.xml": (CLUSTERS.replace("0-2,7", "0-2,1"), "names a host twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_network_of_cables_is_one_clear_error(name, tmp_path, capsys):
    text, why = BAD[name]
    with pytest.raises(RFabricError, match=why):
        parse_fabric(f"{made(tmp_path / name, text)}")
    assert main(["topo", str(tmp_path / name)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_doctype_is_no_reason_to_refuse_other_xml(tmp_path):
    text = (
        '<!DOCTYPE graphml SYSTEM "http://graphml.graphdrawing.org/dtds/1.0rc/graphml.dtd">'
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected">'
        '<node id="h1"/><node id="h2"/><node id="t1"/><edge source="h1" target="t1"/>'
        '<edge source="h2" target="t1"/></graph></graphml>'
    )
    assert len(parse_fabric(f"{made(tmp_path / 'old.graphml', text)}").hosts) == 2

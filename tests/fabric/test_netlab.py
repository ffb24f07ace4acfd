"""netlab's topologies: nodes and links in every way that netlab takes them."""

from collections import Counter

import pytest

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric

LINKS = """
links:
- h1-leaf1
- {h2: {ipv4: 10.0.0.1}, leaf1: , bandwidth: 25G, prefix: 10.0.0.0/24}
- [h3, leaf2]
- interfaces: [h4, {node: leaf2}]
  delay: 2us
  tc: {rate: 10000}
- group: core
  members: [leaf1-spine1, {leaf2: , spine1: }]
- leaf1:
- {leaf1: , leaf2: , disable: True}
"""
DICT = """name: lab
module: [ospf]
defaults: {device: eos}
nodes:
  leaf1: {bgp.as: 65000}
  leaf2:
  spine1: {device: frr, id: 3}
  h1: {device: linux}
  h2: {role: host, device: eos}
  h3: {device: linux}
  h4: {device: linux}
"""
GROUPS = """defaults.device: eos
groups:
  clients: {members: [h1, h2, h3, h4], device: linux}
  empty:
nodes: [leaf1, leaf2, {name: spine1}, h1, h2, h3, h4]
"""
NESTED = """defaults.device: eos
groups:
  _auto_create: False
  clients: {members: [two], device: linux}
  two: [h1, h2]
nodes: {leaf1: , leaf2: , spine1: , h1: , h2: , h3: {group: clients}, h4: {group: [two, more]}}
"""


def made(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize("nodes", [DICT, GROUPS, NESTED])
def test_every_way_to_say_a_link(nodes, tmp_path, caplog):
    fabric = parse_fabric(f"{made(tmp_path / 'topology.yml', nodes + LINKS)}")
    called = fabric.parameters["names"]
    assert [called[h] for h in fabric.hosts] == ["h1", "h2", "h3", "h4"]
    tiers = {called[node.name]: node.tier for node in fabric.switches}
    assert tiers == {"leaf1": "edge", "leaf2": "edge", "spine1": "aggregation"}
    assert Counter(link.rate for link in fabric.links) == {4e11: 5, 25e9: 1}
    assert max(link.delay for link in fabric.links) == 2e-6
    assert "2 links of one end, or disabled, left out; tc of 1 links left out" in caplog.text


def test_a_link_of_several_ends_is_a_switch(tmp_path, caplog):
    text = "nodes: [h1, h2, h3]\nlinks: [h1-h2-h3]\n"
    fabric = parse_fabric(f"{made(tmp_path / 'lan.yml', text)}")
    assert len(fabric.hosts) == 3 and len(fabric.racks) == 1
    assert "1 links of several ends are a switch each" in caplog.text
    text = "defaults.device: frr\nnodes: [s1, s2, s3]\nlinks: [s1-s2, s2-s3, s1-s2-s3]\n"
    fabric = parse_fabric(f"{made(tmp_path / 's.yml', text)},hosts=2")
    assert len(fabric.hosts) == 6 and len(fabric.racks) == 3 and len(fabric.links) == 6 + 2 + 3


def test_routers_alone_get_hosts(tmp_path):
    text = "defaults.device: frr\nnodes: [s1, s2]\nlinks: [s1-s2]\n"
    path = made(tmp_path / "r.yml", text)
    with pytest.raises(RFabricError, match="it has no host.*hosts=8 hangs 8"):
        parse_fabric(f"{path}")
    assert len(parse_fabric(f"{path},hosts=2").hosts) == 4


def test_a_bare_bandwidth_is_in_kbit_a_second_unless_said(tmp_path):
    text = "nodes: [h1, h2, leaf]\nlinks:\n- {h1: , leaf: , bandwidth: 100000}\n"
    path = made(tmp_path / "k.yml", text + "- {h2: , leaf: , bandwidth: 25G}\n")
    assert [link.rate for link in parse_fabric(f"{path}").links] == [1e8, 25e9]
    told = parse_fabric(f"{path},rate_unit=Mbit/s")
    assert [link.rate for link in told.links] == [1e11, 25e9]


@pytest.mark.parametrize(
    "link",
    ["{h1: {bandwidth: 25000000}, leaf: {bandwidth: 25G}}", "{h1: , leaf: , bandwidth: 25000000}",
     "{interfaces: [{node: h1, bandwidth: 25G}, leaf], bandwidth: 25G}",
     "[{node: h1, bandwidth: 25G}, {node: leaf, bandwidth: 25G}]"],
)  # fmt: skip
def test_an_end_of_a_link_may_say_its_bandwidth(link, tmp_path):
    text = f"nodes: [h1, h2, leaf]\nlinks:\n- {link}\n- h2-leaf\n"
    path = made(tmp_path / "k.yml", text)
    assert [cable.rate for cable in parse_fabric(f"{path}").links] == [25e9, 4e11]


def test_ends_on_one_network_have_their_own_bandwidth(tmp_path):
    text = "nodes: [h1, h2, h3]\nlinks: [{h1: {bandwidth: 1000}, h2: , h3: , bandwidth: 5000}]\n"
    path = made(tmp_path / "k.yml", text)
    assert [cable.rate for cable in parse_fabric(f"{path}").links] == [1e6, 5e6, 5e6]


BAD = {
    "ends.yml": (DICT + "links: [{h1: {bandwidth: 5}, leaf1: , bandwidth: 9}]\n",
                 "links.1.: h1 and leaf1 differ in bandwidth; a cable is the same both ways"),
    "gone.yml": (DICT + "links: [h1-leaf9]\n", "links.1. ends at 'leaf9', which is no node"),
    "kind.yml": (DICT + "links: [5]\n", "links.1..interfaces: a list is expected, not 5"),
    "list.yml": (DICT + "links: h1-leaf1\n", "links: a list is expected"),
    "name.yml": ("nodes: [[a]]\nlinks: []\n", r"nodes.0..name: a name is expected"),
    "none.yml": ("nodes: 5\nlinks: []\n", "nodes: a list is expected, not 5"),
    "slip.yml": (DICT + "links: [{h1: , lief1: }]\n", "links.1. ends at 'lief1', which is no node"),
    "text.yml": (GROUPS.replace("[h1, h2, h3, h4], d", "h1, d") + "links: []\n",
                 "clients.members: a list is expected, not 'h1'"),
    "many.yml": (GROUPS.replace("h4], d", "h5], d") + "links: []\n", "clients.members: 'h5' is no"),
    "unit.yml": (DICT + "links: [{h1: , leaf1: , bandwidth: 0}]\n", "bandwidth: 0 must be above 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_topologies_are_one_clear_error(name, tmp_path, capsys):
    text, why = BAD[name]
    with pytest.raises(RFabricError, match=why):
        parse_fabric(f"{made(tmp_path / name, text)}")
    assert main(["topo", str(tmp_path / name)]) == 2
    assert "Traceback" not in capsys.readouterr().err

"""Edges of a file whose state is down are no cables."""

import json
from pathlib import Path

import pytest

from rfabric.errors import RFabricError
from rfabric.fabric.formats import cable_rows, containerlab, lldp
from rfabric.fabric.formats.base import Reading
from rfabric.fabric.formats.node_link import _read
from rfabric.fabric.formats.states import is_down
from rfabric.fabric.network import Assumed, Network, fabric_of


@pytest.mark.parametrize("key", ["status", "state", "oper_status", "adminStatus"])
def test_an_edge_that_is_down_is_left_out_and_counted(tmp_path: Path, key: str) -> None:
    ends = [("h1", "leaf1"), ("h2", "leaf1"), ("leaf1", "spine1"), ("leaf1", "spine1")]
    states = ["up", "UP", "up", "Down"]
    links = [
        {"source": a, "target": b, "rate": "100Gbit/s", key: state}
        for (a, b), state in zip(ends, states, strict=True)
    ]
    nodes = [{"id": name} for name in ("h1", "h2", "leaf1", "spine1")]
    file = tmp_path / "net.json"
    file.write_text(json.dumps({"nodes": nodes, "links": links}))
    network = _read(file, Reading())
    assert [(cable.a, cable.b) for cable in network.cables] == ends[:3]
    assert network.dropped == ("edges that are down left out: 1",)


ENDS = ("h1", "leaf1", "100"), ("h2", "leaf1", "100"), ("leaf1", "spine1", "400")


def _graph(tmp_path: Path, links: list[dict], directed: bool = True) -> Network:
    nodes = [{"id": name} for name in ("h1", "h2", "leaf1", "spine1")]
    file = tmp_path / "net.json"
    file.write_text(json.dumps({"directed": directed, "nodes": nodes, "links": links}))
    return _read(file, Reading())


def _both_ways(spare: int) -> list[dict]:
    """Edges of each direction, `spare` cables more to the spine."""
    every = [*ENDS, *[ENDS[-1]] * spare]
    return [
        {"source": x, "target": y, "rate": f"{rate}Gbit/s"}
        for a, b, rate in every
        for x, y in ((a, b), (b, a))
    ]


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(("spare", "left"), [(0, 2), (1, 3)])
def test_a_cable_of_which_one_direction_is_down_is_left_out(
    tmp_path: Path, directed: bool, spare: int, left: int
) -> None:
    links = _both_ways(spare)
    links[-1]["status"] = "down"
    network = _graph(tmp_path, links, directed)
    assert len(network.cables) == left
    assert "edges whose other way is down left out: 1" in network.dropped


def test_both_directions_down_are_one_cable_less(tmp_path: Path) -> None:
    links = _both_ways(1)
    links[-1]["status"] = links[-2]["state"] = "down"
    network = _graph(tmp_path, links)
    assert len(network.cables) == 3
    assert not any("other way" in said for said in network.dropped)


@pytest.mark.parametrize(
    ("said", "down"),
    [
        ({"Status": "Planned"}, True), ({"status": "Decommissioning"}, True),
        ({"admin_state": "disabled"}, True), ({"link status": "err-disabled"}, True),
        ({"oper_status": "lowerLayerDown"}, True), ({"enabled": False}, True),
        ({"disabled": "yes"}, True), ({"is_up": "false"}, True),
        ({"Status": "Connected"}, False), ({"enabled": True}, False), ({"shutdown": "no"}, False),
        ({"status": "degraded"}, False), ({"up": 4}, False), ({"state": None}, False),
        ({"country": "down"}, False),
    ],
)  # fmt: skip
def test_words_of_inventories_that_say_a_cable_is_down(said: dict, down: bool) -> None:
    assert is_down(said) is down


def test_rows_of_cables_that_are_down_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "cables.csv"
    rows = [",".join((*ends, "Connected")) for ends in ENDS] + ["leaf1,spine1,0,Planned"]
    file.write_text("\n".join(["device a,device b,speed_gbps,status", *rows]))
    network = cable_rows._read(file, Reading())
    assert len(network.cables) == 3
    assert network.dropped == ("rows of cables that are down left out: 1",)


def test_a_cable_listed_from_both_ends_is_down_where_one_end_says_so(tmp_path: Path) -> None:
    file = tmp_path / "cables.csv"
    file.write_text(
        "device1,port1,device2,port2,speed,oper_status\n"
        "h1,e0,leaf1,e1,100G,up\nleaf1,e1,h1,e0,100G,up\nh2,e0,leaf1,e2,100G,up\n"
        "leaf1,e9,spine1,e1,0,down\nspine1,e1,leaf1,e9,400G,up\n"
        "leaf1,e8,spine1,e2,400G,up\nspine1,e2,leaf1,e8,400G,up\n"
    )
    network = cable_rows._read(file, Reading())
    assert [(cable.a, cable.b) for cable in network.cables] == [ends[:2] for ends in ENDS]


def test_a_link_of_a_lab_whose_state_is_down_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "lab.clab.yml"
    file.write_text(
        "topology:\n  nodes: {leaf1: {kind: ceos}, h1: {kind: linux}, h2: {kind: linux}}\n"
        "  links:\n  - endpoints: ['h1:eth1', 'leaf1:eth1']\n"
        "  - endpoints: ['h2:eth1', 'leaf1:eth2']\n"
        "  - endpoints: ['h2:eth2', 'leaf1:eth3']\n    vars: {state: down}\n"
    )
    network = containerlab._read(file, Reading())
    assert len(network.cables) == 2
    assert network.dropped == ("links that are down left out: 1",)


def test_a_host_whose_only_cable_is_down_is_told_that(tmp_path: Path) -> None:
    links = _both_ways(0)[::2]
    links[0]["status"] = "down"
    with pytest.raises(RFabricError, match=r"h1 \(edges that are down left out: 1\)"):
        fabric_of(_graph(tmp_path, links, directed=False), "node-link", Assumed(1e9, 1e9))


def test_ports_that_a_switch_has_down_have_no_cable(tmp_path: Path) -> None:
    """SONiC's config_db of two switches, of which one has a port between them down."""
    ends = {"leaf1": "spine1", "spine1": "leaf1"}
    for switch, other in ends.items():
        uplinks = {f"Ethernet{n}": {"name": other, "port": f"Ethernet{n}"} for n in (48, 52)}
        hosts = {f"Ethernet{n}": {"name": f"{switch}-server{n}", "port": "e"} for n in (0, 4)}
        down = {"leaf1": "Ethernet52", "spine1": "Ethernet4"}[switch]
        ports = {p: {"speed": "100000", "admin_status": "up"} for p in (*hosts, *uplinks)}
        ports[down]["admin_status"] = "down"
        said = {"DEVICE_METADATA": {"localhost": {"hostname": switch}}, "PORT": ports,
                "DEVICE_NEIGHBOR": hosts | uplinks}  # fmt: skip
        (tmp_path / f"{switch}.json").write_text(json.dumps(said))
    network = lldp._read(tmp_path, Reading())
    assert sorted((cable.a, cable.b) for cable in network.cables) == [
        ("leaf1", "leaf1-server0"), ("leaf1", "leaf1-server4"), ("leaf1", "spine1"),
        ("spine1", "spine1-server0"),
    ]  # fmt: skip
    assert "neighbours of ports that are down left out: 3" in network.dropped


def test_a_node_that_is_down_is_left_out_with_its_edges(tmp_path: Path) -> None:
    names = ("h1", "h2", "leaf1", "spine1", "spine2")
    nodes = [{"id": name, "status": "active"} for name in names]
    nodes[-1]["status"] = "failed"
    pairs = [*(ends[:2] for ends in ENDS), ("leaf1", "spine2")]
    links = [{"source": a, "target": b, "rate": "100Gbit/s"} for a, b in pairs]
    (file := tmp_path / "net.json").write_text(json.dumps({"nodes": nodes, "links": links}))
    network = _read(file, Reading())
    assert [(cable.a, cable.b) for cable in network.cables] == pairs[:3]
    assert "spine2" not in network.nodes
    assert network.dropped == ("nodes that are down left out: 1 (spine2), and 1 edges to them",)

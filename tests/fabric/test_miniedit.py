"""MiniEdit's networks: files as its versions save them, and what of a link is read."""

import json
import re

import pytest

from rfabric.cli import main
from rfabric.fabric import parse_fabric
from rfabric.trace import TRACE_SUFFIXES, is_trace


def node(number, name, **options):
    said = {"hostname": name, "nodeNum": number} if name else {}
    return {"number": str(number), "opts": said | options, "x": "100.0", "y": "200.0"}


def link(src, dest, **options):
    return {"src": src, "dest": dest, "opts": options}


def edited(*links, **more):
    """Two hosts below a switch each, and a router between these; the keys sorted, as it does."""
    usual = [
        link("h1", "s1", bw=100, delay="5ms"), link("h2", "s2"), link("s1", "r3", bw=1000),
        link("s2", "r3", delay="20"),
    ]  # fmt: skip
    return {
        "application": {"ipBase": "10.0.0.0/8", "switchType": "ovs"},
        "controllers": [{"opts": {"hostname": "c0", "remotePort": 6633}, "x": "1", "y": "1"}],
        "hosts": [node(1, "h1", sched="host"), node(2, "h2", sched="host")],
        "links": [*(links or usual)],
        "switches": [
            node(1, "s1", controllers=["c0"], switchType="default"),
            node(2, "s2", controllers=["c0"], switchType="legacySwitch"),
            node(3, "r3", switchType="legacyRouter"),
        ],
        "version": "2",
    } | more  # fmt: skip


def read(tmp_path, said, name="lab.mn", **settings):
    text = json.dumps(said, sort_keys=True, indent=4, separators=(",", ": "))
    (tmp_path / name).write_text(text)
    words = "".join(f",{key}={value}" for key, value in settings.items())
    return parse_fabric(f"{tmp_path / name}{words}")


def cables(fabric):
    called = fabric.parameters["names"]
    return {
        frozenset((called[k.a.node], called[k.b.node])): (k.rate, k.delay) for k in fabric.links
    }


@pytest.mark.parametrize("name", ["lab.mn", "lab.json", "lab"])
def test_bandwidths_are_megabits_and_delays_as_tc_has_them(tmp_path, caplog, name):
    fabric = read(
        tmp_path, edited(), name, rate="2Gbit/s", uplink_rate="3Gbit/s", format="miniedit"
    )
    told = cables(fabric)
    assert told[frozenset(("h1", "s1"))] == (1e8, pytest.approx(5e-3))
    assert told[frozenset(("h2", "s2"))][0] == 2e9
    assert told[frozenset(("s1", "r3"))][0] == 1e9
    assert told[frozenset(("s2", "r3"))] == (3e9, pytest.approx(20e-6))
    assert [fabric.parameters["names"][host] for host in fabric.hosts] == ["h1", "h2"]
    assert (
        "miniedit, 2 hosts, 2 racks, 2 tiers of 3 switches, 4 cables of 100 Mbit/s" in caplog.text
    )
    assert "left out" not in caplog.text


def test_it_is_told_by_its_content_and_no_trace(tmp_path):
    assert len(read(tmp_path, edited(), "lab.dat").hosts) == 2
    assert ".mn" not in TRACE_SUFFIXES and not is_trace(tmp_path / "lab.dat")


def test_what_else_a_link_does_is_left_out_and_said(tmp_path, caplog):
    options = {"loss": 2, "jitter": "1ms", "max_queue_size": 50, "speedup": 1, "delay": "3 msecs"}
    said = edited(link("h1", "s1", **options), link("h2", "s1"), switches=[node(1, "s1")])
    fabric = read(tmp_path, said)
    assert cables(fabric)[frozenset(("h1", "s1"))][1] == pytest.approx(3e-3)
    assert "jitter, loss, max_queue_size, ... of links left out" in caplog.text


def test_files_of_before_name_nodes_by_their_number(tmp_path):
    said = edited(
        link("h1", "s7"), link("h2", "s7"), version="1", controllers={"c0": {}},
        hosts=[node(1, ""), node(2, "")], switches=[node(7, "")],
    )  # fmt: skip
    assert set(cables(read(tmp_path, said))) == {frozenset(("h1", "s7")), frozenset(("h2", "s7"))}


def test_a_host_of_two_links_is_two_and_parallel_links_are_cables(tmp_path, caplog):
    said = edited(link("h1", "s1"), link("h1", "s2"), link("h2", "s2"), link("s1", "s2", bw=10),
                  link("s2", "s1", bw=20), switches=[node(1, "s1"), node(2, "s2")])  # fmt: skip
    fabric = read(tmp_path, said)
    assert len(fabric.hosts) == 3 and "1 hosts with several cables (h1)" in caplog.text
    assert sorted(k.rate for k in fabric.links)[:2] == [1e7, 2e7]


BAD = {
    "nowhere": (edited(link("h1", "s9")), "links.0. ends at s9, which is no host and no switch"),
    "twice": (edited(hosts=[node(1, "h1"), node(2, "h1")]), "h1 stands twice"),
    "number": (edited(hosts=[{"opts": {}}]), "hosts.0..number: a name is expected"),
    "lone": (edited(hosts=[node(1, "h1"), node(2, "h2"), node(3, "h3")]), "without a cable: h3"),
    "minus": (edited(link("h1", "s1", bw=-5)), "links.0..opts.bw: .* must be .* not negative"),
    "none": (edited(link("h1", "s1", bw=0)), "links.0..opts.bw: 0 must be above 0"),
    "unit": (edited(link("h1", "s1", delay="5m")), "links.0..opts.delay: unknown unit 'm'"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_one_clear_error(tmp_path, capsys, name):
    said, why = BAD[name]
    (tmp_path / "lab.mn").write_text(json.dumps(said))
    assert main(["topo", str(tmp_path / "lab.mn")]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert re.search(why, err) and "lab.mn" in err, err

"""ASTRA-sim's analytical networks: dimensions as cables, in its units."""

import math
from collections import Counter

import pytest

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder

THREE = """# three dimensions
topology: [ Ring, FullyConnected, Switch ]
npus_count: [ 2, 8, 4 ]  # number of NPUs
bandwidth: [ 200.0, 100.0, 50.0 ]  # GB/s
latency: [ 50, 500, 2000 ]  # ns
"""
GBPS = 2**30 * 8  # bit/s of ASTRA-sim's GB/s


def one(shape, npus=8, bandwidth=50.0, latency=500.0):
    return (
        f"topology: [ {shape} ]\nnpus_count: [ {npus} ]\nbandwidth: [ {bandwidth} ]\n"
        f"latency: [ {latency} ]\n"
    )


def read(tmp_path, text, **settings):
    path = tmp_path / "network.yml"
    path.write_text(text)
    return parse_fabric(",".join([f"{path}", *(f"{k}={v}" for k, v in settings.items())]))


def joined(fabric):
    names = fabric.parameters["names"]
    return Counter(frozenset((names[k.a.node], names[k.b.node])) for k in fabric.links)


def test_three_dimensions_are_the_cables_of_each(tmp_path, caplog):
    """64 NPUs: 32 pairs, 8 groups of 8 with 28 links each, 16 switches of 4."""
    fabric = read(tmp_path, THREE)
    names = fabric.parameters["names"]
    assert [names[h] for h in fabric.hosts] == [f"npu{i}" for i in range(64)]
    assert Counter((k.rate, round(k.delay, 12)) for k in fabric.links) == {
        (950.0 * GBPS, 0.0): 64, (200.0 * GBPS, 5e-8): 32, (100.0 * GBPS, 5e-7): 8 * 28,
        (50.0 * GBPS, 2e-6): 64,
    }  # fmt: skip
    assert sum(node.tier == "aggregation" for node in fabric.switches) == 16
    pairs = joined(fabric)
    for other in ("npu1", "npu2", "npu14"):  # along the ring, and near and far of the group
        assert pairs[frozenset(("npu0 links", f"{other} links"))] == 1
    switch = next(pair for pair in pairs if "npu0 links" in pair and "dim2.0" in pair) - {
        "npu0 links"
    }
    assert {n for pair in pairs if switch < pair for n in pair} - switch == {
        f"npu{16 * i} links" for i in range(4)
    }
    assert "each of 64 NPUs passes on between its links" in caplog.text


@pytest.mark.parametrize("npus, links", [(2, 1), (3, 3), (8, 8)])
def test_two_npus_in_a_ring_have_one_link(npus, links, tmp_path):
    fabric = read(tmp_path, one("Ring", npus))
    assert len(fabric.links) - npus == links


@pytest.mark.parametrize("shape, other, links", [("Ring", 3, 3), ("FullyConnected", 7, 1),
                                                 ("Switch", 7, 2)])  # fmt: skip
def test_a_message_takes_its_bytes_and_the_latency_of_its_links(shape, other, links, tmp_path):
    """50 GiB over links of 50 GiB/s and 1 ms."""
    fabric = read(tmp_path, one(shape, latency=1e6))
    b = TraceBuilder(fabric.hosts)
    b.flows([0], [other], 50.0 * 2**30)
    assert math.isclose(simulate(fabric, b.build()).step_seconds, 1 + links * 1e-3, rel_tol=1e-9)


def test_a_switch_alone_holds_the_hosts_and_a_dimension_of_one_is_none(tmp_path):
    for text in (one("Switch"), THREE.replace("2, 8, 4", "1, 1, 8")):
        fabric = read(tmp_path, text)
        assert (len(fabric.hosts), len(fabric.racks), len(fabric.links)) == (8, 1, 8)
        assert {k.rate for k in fabric.links} == {50.0 * GBPS}


def test_other_units_may_be_said(tmp_path):
    fabric = read(tmp_path, one("Switch"), rate_unit="GB/s", delay_unit="us")
    assert {(k.rate, round(k.delay, 9)) for k in fabric.links} == {(4e11, 5e-4)}


OLD = """{"topology-name": "Hierarchical", "topologies-per-dim": ["Ring"], "dimensions-count": 1,
"units-count": [8], "links-count": [2], "link-latency": [500], "link-bandwidth": [50]}
"""
BAD = {
    "old.json": (OLD, "first version, which does not say what its links join; write topology, n"),
    "lists.yml": (THREE.replace("2, 8, 4", "2, 8"), "topology has 3, npus_count has 2, bandwidth"),
    "shape.yml": (one("Torus2D"), "'Torus2D' is not read; Ring, FullyConnected, Switch are"),
    "slip.yml": (one("switch"), "'switch' is not read, did you mean Switch"),
    "count.yml": (one("Ring", "8.5"), "npus_count '8.5' must be 1 to 1,000,000"),
    "many.yml": (one("FullyConnected", 5000), "5,000 NPUs of 12,497,500 cables; 1,000,000 at most"),
    "none.yml": (one("Ring", bandwidth=0), "bandwidth.0.: 0 must be above 0"),
    "less.yml": (one("Ring").replace("latency", "late"), "latency is missing; a network of ASTRA"),
    "bare.yml": (one("Ring").replace("[ 8 ]", "8"), "npus_count: a list is expected, not 8"),
    "alone.yml": (one("Ring", 1), "npus_count: one NPU is no network; 2 at"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_networks_are_one_clear_error(name, tmp_path, capsys):
    text, why = BAD[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(RFabricError, match=why):
        parse_fabric(f"{tmp_path / name}")
    assert main(["topo", str(tmp_path / name)]) == 2
    assert "Traceback" not in capsys.readouterr().err

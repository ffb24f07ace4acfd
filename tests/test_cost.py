"""Cost and power: parts counted by hand, prices with sources, the Fat-Tree of equal cost."""

import csv
from pathlib import Path

import pytest

from rfabric.errors import RFabricError
from rfabric.fabric import Fabric, Link, Node, Port, fat_tree, rfabric
from rfabric.fabric.cost import TABLE, bill, equal_cost_fat_tree, parts, price_table

COSTS = Path(__file__).parents[2] / "shared/data/costs/component_prices_mixnet.csv"
G400, G100 = 400e9, 100e9


def test_parts_of_the_default_rfabric_are_what_its_drawing_shows():
    assert parts(rfabric()) == {
        ("nic", G400): 64,
        ("electrical-port", G400): 16 * (4 + 4),  # ToR: 4 GPUs, 4 planes
        ("electrical-port", G100): 16 + 16,  # each ToR and x1
        ("ocs-port", G400): 16 * 8 + 4 * 16,  # aggregation and core
        ("transceiver", G400): 2 * 64 + 64,  # both ends of host cables, the ToR's end of uplinks
        ("transceiver", G100): 32,
    }


def test_parts_of_a_classic_fat_tree():
    k = 4
    found = parts(fat_tree(k=k))
    assert found["electrical-port", G400] == 5 * k**2 // 4 * k
    assert found["transceiver", G400] == 2 * 3 * k**3 // 4
    assert ("ocs-port", G400) not in found


def test_a_bill_is_count_times_price():
    found = {(line.item, line.rate): line for line in bill(rfabric()).lines}
    assert found["ocs-port", G400].usd == 192 * 520
    assert found["nic", G400].watts is None
    assert bill(rfabric()).usd == pytest.approx(sum(line.usd for line in found.values()))
    assert bill(fat_tree()).watts > bill(rfabric()).watts > 0
    assert (
        bill(fat_tree(rate="800Gbit/s")).watts is None
    )  # the table has no watts for ports that fast: no sum without them


def test_every_figure_has_a_source():
    for price in price_table():
        assert price.usd_source
        assert (price.watts is None) == (not price.watts_source)
    assert all(bill(rfabric()).sources)


def test_a_figure_without_a_source_is_refused(tmp_path):
    table = tmp_path / "prices.csv"
    table.write_text("item,rate_gbps,usd,watts,usd_source,watts_source\nnic,100,1,,,\n")
    with pytest.raises(RFabricError, match="nic at 100 Gbit/s: usd has no source"):
        price_table(table)


def pair(rate):
    nodes = Node("h1", "host", "host"), Node("t1", "eps", "edge", dpid=1), Node("h2", "host", "host")
    links = Link(Port("h1", 1), Port("t1", 1), rate), Link(Port("h2", 1), Port("t1", 2), rate)
    return Fabric("pair", nodes, links)


def test_a_rate_between_those_sold_takes_the_next_higher_one():
    assert bill(pair(50e9)).usd == bill(pair(G100)).usd < bill(pair(150e9)).usd == bill(pair(200e9)).usd


def test_a_rate_nobody_sells_is_refused():
    with pytest.raises(RFabricError, match=r"no price for a .* of 2 Tbit/s; the table prices.csv ends at 800 Gbit/s"):
        bill(pair(2e12))


def test_the_fat_tree_of_equal_cost_is_the_nearest_of_all():
    optical = rfabric()
    tree, share = equal_cost_fat_tree(optical)
    assert tree.parameters["oversubscription"] == 2
    assert tree.spec == "fat-tree,oversubscription=2"
    target = bill(optical).usd
    others = [fat_tree(oversubscription=ratio) for ratio in (1, 4 / 3, 4)]
    assert all(abs(bill(tree).usd - target) < abs(bill(other).usd - target) for other in others)
    assert share == pytest.approx(bill(tree).usd / target)


def test_the_fat_tree_of_equal_cost_keeps_shape_and_rate():
    tree, _ = equal_cost_fat_tree(rfabric(pods=2, tors=3, gpus=6, rate="200Gbit/s"))
    assert (tree.parameters["pods"], tree.parameters["tors"], tree.parameters["gpus"]) == (2, 3, 6)
    assert {link.rate for link in tree.links} == {200e9}
    from rfabric.fabric import parse_fabric

    assert parse_fabric(tree.spec).links == tree.links


def test_a_fabric_without_a_shape_has_no_equal():
    with pytest.raises(RFabricError, match="without pods, tors, gpus, rate_bps no Fat-Tree can be fitted"):
        equal_cost_fat_tree(pair(G400))


@pytest.mark.skipif(not COSTS.exists(), reason="the published price table is not at hand")
def test_prices_are_those_of_the_published_calculator():
    columns = {
        "transceiver_usd": "transceiver", "nic_usd": "nic",
        "eps_port_usd": "electrical-port", "ocs_port_usd": "ocs-port",
    }  # fmt: skip
    ours = {(p.item, p.rate): p.usd for p in price_table()}
    with open(COSTS, newline="") as file:
        theirs = {
            (item, float(row["link_gbps"]) * 1e9): float(row[column])
            for row in csv.DictReader(file)
            for column, item in columns.items()
        }
    assert ours == theirs
    assert TABLE.exists()

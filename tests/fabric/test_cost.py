"""Cost and power: parts counted by hand, prices with sources, fabrics of equal cost or bandwidth,
the price that decides.
"""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import (
    BUILDERS,
    Fabric,
    Link,
    Node,
    Port,
    fat_tree,
    mixnet,
    opus,
    parse_fabric,
    rail_optimized,
    rfabric,
    topoopt,
)
from rfabric.fabric.cost import METRES, TABLE, bill, flips, parts, price_table
from rfabric.fabric.dollars import HOURS_A_YEAR, Gpus, step_cost
from rfabric.fabric.match import (
    bandwidth,
    build,
    equal_cost_fat_tree,
    matched,
    settings_of,
    variants,
)

COSTS = Path(__file__).parents[3] / "shared/data/costs/component_prices_mixnet.csv"
G400, G100 = 400e9, 100e9


def test_parts_of_the_default_rfabric_are_what_its_drawing_shows():
    assert parts(rfabric()) == {
        ("nic", G400, 0): 64,
        ("electrical-port", G400, 0): 16 * (4 + 4),  # ToR: 4 GPUs, 4 planes
        ("electrical-port", G100, 0): 16 + 16,  # each ToR and x1
        ("ocs-port", G400, 0): 16 * 8 + 4 * 16,  # aggregation and core
        ("transceiver", G400, 100): 2 * 64,  # both ends of host cables
        # the ToR's end of uplinks: their light goes on through OCSes
        ("transceiver", G400, 500): 64,
        ("transceiver", G100, 100): 32,
        ("fibre-metre", 0, 0): 64 * 3 + 64 * 30 + 64 * 100 + 16 * 30,
    }


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 6).map(lambda half: 2 * half))
def test_a_non_blocking_fat_tree_has_five_switch_ports_a_nic(k):
    counted = parts(fat_tree(k=k))
    hosts = k**3 // 4
    assert counted["nic", G400, 0] == hosts
    # (5/4) k^2 switches of k ports (Al-Fares 2008)
    assert counted["electrical-port", G400, 0] == 5 * hosts
    assert counted["transceiver", G400, 100] == 2 * 3 * hosts
    assert not any(part.item == "ocs-port" for part in counted)
    # the pods form alike
    assert parts(fat_tree(pods=4, tors=4, gpus=4))["electrical-port", G400, 0] == 5 * 64


def test_a_server_on_ocses_has_nics_and_no_switch_port():
    counted = parts(topoopt(servers=16, gpus=8, degree=4))
    assert (
        counted["nic", G400, 0]
        == counted["transceiver", G400, 500]
        == counted["patch-panel-port", G400, 0]
        == 16 * 4
    )
    assert {part.item for part in counted} == {
        "nic",
        "transceiver",
        "patch-panel-port",
        "fibre-metre",
    }
    assert parts(topoopt(optics="ocs"))["ocs-port", G400, 0] == 64


def test_a_split_nic_is_one_nic():
    counted = parts(opus(servers=4, gpus=8, nic_ports=2))
    assert counted["nic", G400, 0] == 32
    assert counted["ocs-port", 200e9, 0] == 64
    # its ports share one
    assert counted["transceiver", G400, 500] == 32 and not counted["transceiver", 200e9, 500]


def test_mixnet_counts_both_networks():
    counted = parts(mixnet(servers=8, gpus=8, region=4, optical=6))
    assert counted["nic", G400, 0] == 64 and counted["ocs-port", G400, 0] == 48
    assert counted["electrical-port", G400, 0] == 16 + 2 * 8 + 2 * 8  # leaf down, leaf up, spine


def test_copper_takes_the_place_of_optics_in_the_rack(tmp_path):
    glass, copper = parts(fat_tree()), parts(fat_tree(), copper=True)
    assert copper["copper-cable", G400, 0] == 64
    assert glass["transceiver", G400, 100] - copper["transceiver", G400, 100] == 128
    assert glass["fibre-metre", 0, 0] - copper["fibre-metre", 0, 0] == 64 * METRES["host"]
    # rail switches stand too far off
    assert parts(rail_optimized(), copper=True)["copper-cable", G400, 0] == 0
    with pytest.raises(
        RFabricError, match=("copper-cable of 400 Gbit/s; the table of prices has none: add a row")
    ):
        bill(fat_tree(), copper=True)
    table = tmp_path / "mine.csv"
    table.write_text(TABLE.read_text() + "copper-cable,400,200,0,an offer,passive\n")
    assert bill(fat_tree(), price_table(table), copper=True).usd < bill(fat_tree()).usd


def test_a_cable_that_states_its_delay_states_its_length():
    far = replace(pair(G400), links=tuple(replace(link, delay=5e-6) for link in pair(G400).links))
    assert parts(far)["fibre-metre", 0, 0] == pytest.approx(2 * 1000)
    assert parts(far)["transceiver", G400, 2000] == 4


def test_a_transceiver_that_reaches_far_enough_is_bought(tmp_path):
    table = tmp_path / "mine.csv"
    lines = [
        line for line in TABLE.read_text().splitlines() if not line.startswith(("#", "transceiver"))
    ]
    rows = [f"{lines[0]},reach_m", *(f"{line}," for line in lines[1:])]
    rows += ["transceiver,400,300,8,near,near,100", "transceiver,400,700,12,far,far,500"]
    table.write_text("\n".join(rows))
    usd = {
        str(line.part): line.price.usd
        for line in bill(rfabric(electrical=0), price_table(table)).lines
    }
    assert (
        usd["transceiver 400 Gbit/s to 100 m"] == 300
        and usd[("transceiver 400 Gbit/s to 500 m")] == 700
    )


def test_a_bill_is_count_times_price():
    lines = {line.part: line for line in bill(rfabric()).lines}
    assert lines["ocs-port", G400, 0].usd == 192 * 520
    assert lines["nic", G400, 0].watts is None
    assert bill(rfabric()).usd == pytest.approx(sum(line.usd for line in lines.values()))
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
    nodes = (
        Node("h1", "host", "host"),
        Node("t1", "eps", "edge", dpid=1),
        Node("h2", "host", "host"),
    )
    links = Link(Port("h1", 1), Port("t1", 1), rate), Link(Port("h2", 1), Port("t1", 2), rate)
    return Fabric("pair", nodes, links)


def test_a_rate_between_those_sold_takes_the_next_higher_one():
    assert (
        bill(pair(50e9)).usd
        == bill(pair(G100)).usd
        < bill(pair(150e9)).usd
        == bill(pair(200e9)).usd
    )


def test_a_rate_nobody_sells_is_refused():
    with pytest.raises(
        RFabricError,
        match=(
            r"no price for a .* of 2 Tbit/s; the table of prices ends at 800 Gbit/s: add a row to "
            r"a copy of prices.csv, and name it with --prices"
        ),
    ):
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


def test_a_fabric_without_racks_gets_the_fat_tree_of_as_many_gpus():
    tree, share = equal_cost_fat_tree(topoopt())
    assert len(tree.hosts) == 64 and share == pytest.approx(bill(tree).usd / bill(topoopt()).usd)


@pytest.mark.parametrize("name", BUILDERS)
def test_a_fabric_can_be_built_again_from_its_parameters(name):
    fabric = BUILDERS[name]()
    again = build(name, settings_of(fabric))
    assert (again.nodes, again.links, again.spec) == (fabric.nodes, fabric.links, name)
    assert parse_fabric(again.spec).links == fabric.links


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("by", ["cost", "bandwidth"])
def test_no_variant_is_nearer_than_the_match(name, by):
    target, fabric = rfabric(), BUILDERS[name]()
    measure = bandwidth if by == "bandwidth" else lambda f: bill(f).usd
    nearest = matched(fabric, target, by)
    assert nearest.share == pytest.approx(measure(nearest.fabric) / measure(target))
    others = [measure(build(name, wanted)) / measure(target) for wanted in variants(fabric)]
    assert abs(nearest.share - 1) == pytest.approx(min(abs(share - 1) for share in others))
    assert len(nearest.fabric.hosts) == len(fabric.hosts)


def test_bandwidth_of_thinned_fabrics():
    assert bandwidth(fat_tree(oversubscription=2)) == pytest.approx(200e9)
    assert bandwidth(rfabric(planes=2, electrical=0)) == pytest.approx(200e9)
    assert bandwidth(topoopt(degree=2)) == pytest.approx(100e9)
    assert (
        matched(fat_tree(), topoopt(degree=2), "bandwidth").fabric.spec
        == "fat-tree,oversubscription=4"
    )


def test_what_cannot_be_matched_is_refused():
    with pytest.raises(RFabricError, match="match by 'watts': there are cost, bandwidth"):
        matched(fat_tree(), rfabric(), "watts")
    with pytest.raises(RFabricError, match="pair: only the fabrics fat-tree"):
        matched(pair(G400), rfabric(), "cost")


def test_a_switch_that_nobody_sells_has_no_price():
    assert bill(parse_fabric("ideal,gpus=64")).usd > 0
    with pytest.raises(
        RFabricError,
        match=("a packet switch of 1,024 ports such as t1 is not sold, the limit is 64"),
    ):
        bill(parse_fabric("ideal,gpus=1024"))


def test_at_the_factor_of_a_flip_both_cost_the_same():
    bills = {"tree": bill(fat_tree(oversubscription=2)), "optical": bill(rfabric())}
    every = flips(bills)
    assert {flip.prices[0].item for flip in every} == {
        p.price.item for b in bills.values() for p in b.lines
    }
    for flip in every:
        if flip.factor is None:
            continue
        table = tuple(
            replace(p, usd=p.usd * flip.factor) if p in flip.prices else p for p in price_table()
        )
        tree, optical = bill(fat_tree(oversubscription=2), table).usd, bill(rfabric(), table).usd
        assert tree == pytest.approx(optical)
    assert next(f for f in every if f.prices[0].item == "nic").factor is None  # both have as many
    order = [abs(f.factor - 1) for f in every if f.factor]
    assert order[0] == min(order)


def test_prices_that_do_not_depend_on_the_rate_change_together():
    factors = {
        str(flip): flip.factor for flip in flips({"mixnet": bill(mixnet()), "opus": bill(opus())})
    }
    both = factors["ocs-port 200 Gbit/s or 400 Gbit/s"]
    assert bill(mixnet()).usd + 32 * 520 * (both - 1) == pytest.approx(
        bill(opus()).usd + 128 * 520 * (both - 1)
    )


def test_a_step_costs_gpus_network_and_power_and_nothing_twice():
    network = bill(fat_tree())
    life, nics = 4 * HOURS_A_YEAR, 64 * 1499
    kwh = network.watts / 1e3 / 2
    bought = step_cost(1800.0, Gpus(20.0, 7e3, holds=()), network, years=4, usd_per_kwh=0.1)
    assert bought.parts == pytest.approx(
        {
            "gpus": 10.0,
            "gpu_power": 0.35,
            "nics": nics / life / 2,
            "network": (network.usd - nics) / life / 2,
            "network_power": 0.1 * kwh,
        }
    )
    # the rent pays for power and NICs
    rented = step_cost(1800.0, Gpus(20.0, 7e3), network, years=4, usd_per_kwh=0.1)
    assert bought.usd - rented.usd == pytest.approx(bought.gpu_power + bought.nics)
    assert rented.usd == pytest.approx(10.0 + rented.network + rented.network_power)
    unknown = step_cost(1800.0, Gpus(20.0), bill(fat_tree(rate="800Gbit/s")))
    assert (
        unknown.gpu_power is None
        and unknown.network_power is None
        and "gpu_power" not in unknown.parts
    )


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from(sorted(BUILDERS)),
    st.floats(1e-3, 1e4),
    st.floats(0.5, 20),
    st.floats(0.1, 1),
    st.floats(2, 9),
)
def test_dollars_grow_with_time_and_shrink_with_use(name, seconds, factor, busy, price):
    network, gpus = bill(BUILDERS[name]()), Gpus(64 * price, 64 * 700.0)
    one, longer = (step_cost(s, gpus, network, busy=busy) for s in (seconds, seconds * factor))
    assert longer.usd == pytest.approx(one.usd * factor)
    assert step_cost(seconds, gpus, network, busy=1).usd <= one.usd * (1 + 1e-12)
    assert one.usd == pytest.approx(sum(one.parts.values())) and min(one.parts.values()) >= 0
    never = step_cost(seconds, gpus, network, years=1e9, usd_per_kwh=0.0)
    assert never.usd == pytest.approx(64 * price * seconds / 3600, rel=1e-6)


def test_gpus_have_a_share_of_the_cards_and_no_more():
    with pytest.raises(RFabricError, match=r"GPUs: cards=1\.5 is no share; it is 0 to 1"):
        Gpus(1.0, cards=1.5)


@pytest.mark.parametrize(
    ("gpus", "options", "why"),
    [
        (Gpus(1e3), {"years": 0}, "years=0 must be above 0"),
        (Gpus(1e3), {"usd_per_kwh": -1}, "usd_per_kwh=-1"),
        (
            Gpus(0.1, 7e5),
            {},
            (
                "0.1 USD an hour do not pay for the power and nics that this price of GPUs is said "
                "to hold"
            ),
        ),
        (Gpus(1e3), {"busy": 0}, "busy=0 above 0"),
    ],
)
def test_dollars_of_nonsense_are_refused(gpus, options, why):
    with pytest.raises(RFabricError, match=why):
        step_cost(1.0, gpus, bill(fat_tree()), **options)
    with pytest.raises(RFabricError, match="a price holds power, nics or nothing, not coffee"):
        Gpus(1.0, holds=("coffee",))


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_parts_of_a_printed_step_add_up_on_every_fabric(name, capsys):
    words = [
        "cost",
        "--topo",
        name,
        "--step-s",
        "200",
        "--gpu-usd-per-hour",
        "5.28",
        "--gpu-watts",
        "700",
    ]
    assert main([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["usd_per_step"] == pytest.approx(sum(printed["usd_per_step_parts"].values()))
    assert printed["network_usd"] == pytest.approx(
        sum(p["count"] * p["unit_usd"] for p in printed["parts"])
    )
    spread = 4 * HOURS_A_YEAR * 3600 / 200
    parts = printed["usd_per_step_parts"]
    assert (parts["nics"] + parts["network"]) * spread == pytest.approx(printed["network_usd"])
    assert main(words) == 0
    assert f"{printed['usd_per_step']:,.3f}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("item,usd\nnic,1\n", "column rate_gbps is missing; it has item, usd"),
        (
            "item,rate_gbps,usd,watts,usd_source,watts_source\nnic,100,dear,,a,\n",
            "line 2: .* usd 'dear' must be a number",
        ),
        (
            "item,rate_gbps,usd,watts,usd_source,watts_source\nnic,100,-1,,a,\n",
            "usd '-1' must be a number, 0 or more",
        ),
        (
            "item,rate_gbps,usd,watts,usd_source,watts_source\nnic,100,1,,a,\nnic,100,2,,b,\n",
            "line 3: nic at 100 Gbit/s stands twice; keep one",
        ),
        (
            "item,rate_gbps,usd,watts,usd_source,watts_source\nnic,100,1,,my quote, 2025,,x\n",
            "line 2: more cells than the header has; quote text with commas",
        ),
        (
            "item,rate_gbps,usd,watts,usd_source,watts_source\ntransciever,100,1,,a,\n",
            "line 2: no part is called 'transciever', did you mean transceiver",
        ),
        *(
            (
                f"item,rate_gbps,usd,watts,usd_source,watts_source\n{slip},100,1,,a,\n",
                f"line 2: no part is called '{slip}', did you mean {known}",
            )
            for slip, known in (
                ("osc-port", "ocs-port"),
                ("oc-port", "ocs-port"),
                ("eletrical-port", "electrical-port"),
                ("ocs-prot", "ocs-port"),
                ("NIC", "nic"),
                ("Electrical-port", "electrical-port"),
                ("OCS port", "ocs-port"),
                (" fibre_metre", "fibre-metre"),
            )
        ),
        (
            "item,rate_gbps,usd,watts,usd_source,watts_source\nchassis,100,1,,a,\n",
            "line 2: no part is called 'chassis'; there are nic, .*, and OPTICS-port",
        ),
        (
            'item,rate_gbps,usd,watts,usd_source,watts_source\nnic,100,1,,"a,\n',
            "price table .*mine.csv: unexpected end of data",
        ),
    ],
)
def test_a_bad_price_table_is_refused(tmp_path, text, why):
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(RFabricError, match=why):
        price_table(tmp_path / "mine.csv")


def test_ports_of_optics_of_your_own_and_empty_cells_at_the_end_are_no_slips(tmp_path):
    own = [f"{optics}-port" for optics in ("mems", "oxc", "wss", "lcos", "piezo", "optical")]
    (tmp_path / "mine.csv").write_text(
        "item,rate_gbps,usd,watts,usd_source,watts_source\n"
        + "".join(f"{item},400,1,1,a,b,\n" for item in ("nic", *own))
    )
    assert [price.item for price in price_table(tmp_path / "mine.csv")] == ["nic", *own]


def test_a_source_may_have_several_lines(tmp_path):
    (tmp_path / "mine.csv").write_text(
        'item,rate_gbps,usd,watts,usd_source,watts_source\nnic,100,1,,"a quote\nof May",\n'
        "nic,200,2,,b,\n"
    )
    assert [price.usd for price in price_table(tmp_path / "mine.csv")] == [1, 2]


def test_a_missing_price_table_is_named(tmp_path):
    with pytest.raises(RFabricError, match="price table .*none.csv"):
        price_table(tmp_path / "none.csv")


def test_the_verb_tells_parts_sums_and_sources(capsys):
    assert (
        main(["cost", "--topo", "fat-tree", "--gpus", "128", "--rate", "400Gbit/s", "--json"]) == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert printed["gpus"] == 128 and printed["network_watts"] > 0
    assert printed["network_usd"] == pytest.approx(
        sum(p["count"] * p["unit_usd"] for p in printed["parts"])
    )
    assert all(
        {"part", "count", "unit_usd", "source"} <= set(p) and p["source"] for p in printed["parts"]
    )
    counts = {p["part"]: p["count"] for p in printed["parts"]}
    assert counts["electrical-port 400 Gbit/s"] == 5 * counts["nic 400 Gbit/s"] == 640


@pytest.mark.parametrize("gpus", [16, 48, 64, 512])
@pytest.mark.parametrize("name", [name for name in BUILDERS if name != "ideal"])
def test_every_fabric_has_a_price_at_every_size(name, gpus, capsys):
    assert main(["cost", "--topo", name, "--gpus", str(gpus), "--rate", "200Gbit/s", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert gpus <= printed["gpus"] < 2 * gpus + 16 and printed["network_usd"] > 0


def test_the_verb_compares_and_sweeps(capsys):
    words = ["cost", "--topo", "fat-tree,oversubscription=2", "--topo", "rfabric", "--sweep"]
    assert main([*words, "--step-s", "100", "--gpu-usd-per-hour", "5.28", "--json"]) == 0
    both = json.loads(capsys.readouterr().out)
    assert [f["fabric"] for f in both["fabrics"]] == ["fat-tree", "rfabric"]
    assert main(["cost", "--topo", "rfabric", "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert one["fabrics"] == [{k: v for k, v in one.items() if k != "fabrics"}]
    assert both["fabrics"][0]["usd_per_step"] > 64 * 5.28 / 36
    assert {"part", "cheaper", "dearer", "flips_at_factor", "flips_at_usd", "unit_usd"} == set(
        both["sweep"][0]
    )
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "Which price flips the order" in said and "rfabric" in said and "note: " not in said


def test_what_the_order_of_networks_does_not_tell_is_said(capsys):
    """100 GPUs make a Fat-Tree of 128 hosts and a leaf-spine of 104; a delay costs nothing."""
    topos = ["fat-tree,oversubscription=2", "leaf-spine", "rfabric", "rfabric,delay=1ms"]
    words = ["cost", "--gpus", "100", *(word for topo in topos for word in ("--topo", topo))]
    sizes = "note: the networks have room for different numbers of GPUs, and dollars are those of"
    assert main([*words]) == 0
    said = capsys.readouterr().out
    assert sizes in said and "cost the same" not in said
    assert main([*words, "--sweep"]) == 0
    said = capsys.readouterr().out
    assert sizes in said
    assert "note: rfabric and rfabric,delay=1ms cost the same: none is the cheaper" in said
    assert main([*words, "--sweep", "--json"]) == 0
    sweep = json.loads(capsys.readouterr().out)["sweep"]
    assert not [one for one in sweep if {one["cheaper"], one["dearer"]} == set(topos[2:])]


def test_a_network_asked_for_twice_by_two_specs_is_one_of_the_sweep(capsys):
    topos = ["fat-tree", "fat-tree,rate=400Gbit/s", "fat-tree,pods=4"]
    words = [word for topo in topos for word in ("--topo", topo)]
    assert main(["cost", "--rate", "400Gbit/s", *words, "--sweep"]) == 0
    said = capsys.readouterr().out
    same = "fat-tree,rate=400Gbit/s and fat-tree,pods=4,rate=400Gbit/s cost the same"
    assert said.count("cost the same") == 1 and same in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--topo", "rfabric", "--sweep"], "give --topo twice"),
        (
            ["--topo", "rfabric", "--metres", "tower=3"],
            ("write TIER=METRES with one of host, server"),
        ),
        (["--topo", "rfabric", "--metres", "edge=-3"], "'edge=-3'"),
        (["--topo", "rfabric", "--copper"], "no price for a copper-cable"),
        (["--topo", "rfabric", "--rate", "3Tbit/s"], "no price for a .* of 3 Tbit/s"),
    ],
)
def test_the_verb_refuses_what_makes_no_sense(words, why, capsys):
    import re

    assert main(["cost", *words]) == 2
    assert re.search(why, capsys.readouterr().err)


def test_a_fabric_without_a_shape_has_no_equal():
    with pytest.raises(
        RFabricError, match=("without pods, tors, gpus, rate_bps no Fat-Tree can be fitted")
    ):
        equal_cost_fat_tree(pair(G400))


@pytest.mark.skipif(not COSTS.exists(), reason="the published price table is not at hand")
def test_prices_are_those_of_the_published_calculator():
    columns = {
        "transceiver_usd": "transceiver",
        "nic_usd": "nic",
        "eps_port_usd": "electrical-port",
        "ocs_port_usd": "ocs-port",
        "patch_panel_port_usd": "patch-panel-port",
    }
    ours = {(p.item, p.rate): p.usd for p in price_table()}
    fibre = ours.pop(("fibre-metre", 0.0))
    with open(COSTS, newline="") as file:
        theirs = {
            (item, float(row["link_gbps"]) * 1e9): float(row[column])
            for row in csv.DictReader(file)
            for column, item in columns.items()
        }
    assert ours == theirs
    with open(COSTS, newline="") as file:
        assert {float(row["fiber_usd_per_m"]) for row in csv.DictReader(file)} == {fibre}

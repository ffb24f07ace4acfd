"""Planes of fabrics that people bring: several cores, parts that no core joins, packet cores."""

import numpy as np
import pytest

from rfabric.errors import RFabricError
from rfabric.fabric import Fabric, parse_fabric
from rfabric.fabric.builders.parts import Sketch
from rfabric.optics import Circuits, Demand, joined, light, parse_policy
from rfabric.optics.bound import bound
from rfabric.optics.planes import regions
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder

RATE = 100e9


def pods(count, tors, cables, core="ocs"):
    """`count` pods of one aggregation OCS and `tors` racks of one host; cables[c] says to which
    pods core c has how many cables, `core` what all cores are, or each.
    """
    kinds = [core] * len(cables) if isinstance(core, str) else core
    sketch, racks = Sketch(), []
    hosts = sketch.hosts([1] * count * tors)
    for pod in range(count):
        racks += [sketch.switch(f"t{pod * tors + i + 1}", "eps", "edge", (pod, i), pod)
                  for i in range(tors)]  # fmt: skip
    for host, rack in zip(hosts, racks, strict=True):
        sketch.cable(host, rack, RATE, 0.0)
    middle = [sketch.switch(f"a{p + 1}", "ocs", "aggregation", (0, p), p, 0) for p in range(count)]
    tops = [sketch.switch(f"c{c + 1}", kind, "core", (0, c), -1, 0) for c, kind in enumerate(kinds)]
    thin = sketch.switch("x1", "eps", "electrical", (0, 0))
    for number, rack in enumerate(racks):
        sketch.cable(rack, middle[number // tors], RATE, 0.0)
        sketch.cable(rack, thin, RATE / 10, 0.0)
    for top, share in zip(tops, cables, strict=True):
        for pod, some in share.items():
            for _ in range(some):
                sketch.cable(middle[pod], top, RATE, 0.0)
    return Fabric("own", sketch.nodes, sketch.links, 1e-3)


def pairs_lit(fabric, pairs):
    circuits = light(fabric, {0: pairs})
    Circuits.from_json(circuits.to_json()).check(fabric)
    return circuits, joined(fabric, circuits)


@pytest.mark.parametrize(
    ("cables", "share"),
    [
        ([{0: 1, 1: 1}] * 2, "1 of a1's cables lead to c1"),
        ([{0: 3, 1: 3}] * 2, "3 of a1's cables lead to c1"),
        ([{0: 4, 1: 4}, {0: 2, 1: 2}], "2 of a1's cables lead to c2"),
        ([{0: 2, 1: 2, 2: 2}, {0: 2, 2: 2}], "0 of a2's cables lead to c2"),
    ],
)
def test_cores_that_cannot_carry_every_matching_are_refused(cables, share):
    fabric = pods(3 if 2 in cables[0] else 2, 6, cables)
    with pytest.raises(RFabricError, match=f"plane 0: 2 core OCSes join its pods, and {share}"):
        light(fabric, {0: [("t1", "t7")]})


def test_several_cores_with_even_shares_carry_a_matching_of_all_racks():
    fabric = pods(2, 4, [{0: 2, 1: 2}] * 2)
    _, lit = pairs_lit(fabric, [(f"t{i}", f"t{i + 4}") for i in range(1, 5)])
    assert lit == {frozenset((f"t{i}", f"t{i + 4}")): 1 for i in range(1, 5)}


def test_cores_of_their_own_pods_are_regions():
    fabric = pods(4, 2, [{0: 2, 1: 2}, {2: 2, 3: 2}])
    assert list(regions(fabric)[0].values()) == [0] * 4 + [1] * 4
    _, lit = pairs_lit(fabric, [("t1", "t3"), ("t5", "t7")])
    assert lit == {frozenset(("t1", "t3")): 1, frozenset(("t5", "t7")): 1}
    with pytest.raises(RFabricError, match="no OCS joins t1 and t5"):
        light(fabric, {0: [("t1", "t5")]})


def test_regions_of_several_cores_each_are_dealt_by_themselves():
    fabric = pods(4, 4, [{0: 2, 1: 2}] * 2 + [{2: 2, 3: 2}] * 2)
    pairs = [(f"t{i}", f"t{i + 4}") for i in (1, 2, 3, 4, 9, 10, 11, 12)]
    assert pairs_lit(fabric, pairs)[1] == {frozenset(pair): 1 for pair in pairs}


def test_an_ocs_with_racks_is_no_core():
    """A cable between two OCSes of pods lets a packet through two of them, which no circuit here
    uses.
    """
    fabric = pods(2, 2, [])
    sketch = Sketch()
    sketch.nodes, sketch.links = list(fabric.nodes), list(fabric.links)
    sketch._ports.update({name: len(ports) for name, ports in fabric.ports.items()})
    for _ in range(2):
        sketch.cable("a1", "a2", RATE, 0.0)
    chained = Fabric("own", sketch.nodes, sketch.links)
    assert list(regions(chained)[0].values()) == [0, 0, 1, 1]


def test_racks_of_one_ocs_are_joined_though_it_keeps_cables_up_for_some_alone():
    """Of four racks a pod two have a cable up."""
    fabric = pods(2, 4, [{0: 2, 1: 2}])
    assert list(regions(fabric)[0].values()) == [0, 0, 1, 1, 0, 0, 2, 2]
    assert pairs_lit(fabric, [("t1", "t4")])[0].to_json() == ["a1:1-a1:4"]
    with pytest.raises(RFabricError, match="no OCS joins t3 and t7"):
        light(fabric, {0: [("t3", "t7")]})


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("ends", "lit"), [((0, 3), ["a1:1-a1:4"]), ((2, 6), ["a1:3-a1:5", "a2:3-a2:5", "c1:1-c1:3"])]
)
def test_no_circuits_beat_the_bound_where_pods_have_fewer_cables_up_than_racks(ends, lit, whole):
    """1 GB by light, at 100 Gbit/s and a tenth of it beside by the thin switch: 0.073 s."""
    fabric = pods(2, 4, [{0: 2, 1: 2}])
    racks = [fabric.racks[i] for i in ends]
    assert joined(fabric, Circuits.from_json(lit)) == {frozenset(racks): 1}
    sent = np.zeros((8, 8))
    sent[ends] = 1e9
    least = bound(fabric, Demand(fabric.racks, sent), whole=whole).seconds
    assert least == pytest.approx(8e9 / 110e9, rel=1e-6)


def test_a_packet_core_needs_no_circuit():
    fabric = pods(2, 2, [{0: 2, 1: 2}], core="eps")
    circuits, lit = pairs_lit(fabric, [("t1", "t3")])
    assert circuits.to_json() == ["a1:1-a1:3", "a2:1-a2:3"]
    assert lit == {frozenset(("t1", "c1")): 1, frozenset(("t3", "c1")): 1}


def test_racks_below_two_packet_cores_are_two_regions():
    fabric = pods(2, 2, [{0: 1, 1: 1}] * 2, core="eps")
    assert list(regions(fabric)[0].values()) == [0, 1, 0, 1]
    assert pairs_lit(fabric, [("t2", "t4")])[0].to_json() == ["a1:2-a1:4", "a2:2-a2:4"]
    with pytest.raises(RFabricError, match="no OCS joins t1 and t4"):
        light(fabric, {0: [("t1", "t4")]})


@pytest.mark.parametrize("optical", [1, 2])
def test_racks_below_a_packet_core_beside_optical_ones_are_a_region(optical):
    tors = 2 * optical + 2
    fabric = pods(2, tors, [{0: 2, 1: 2}] * (optical + 1), core=["ocs"] * optical + ["eps"])
    assert list(regions(fabric)[0].values()) == ([0] * 2 * optical + [1] * 2) * 2
    pairs = [(f"t{i}", f"t{i + tors}") for i in range(1, tors + 1)]
    _, lit = pairs_lit(fabric, pairs)
    dark = {frozenset(("c" + str(optical + 1), rack)): 1 for pair in pairs[-2:] for rack in pair}
    assert lit == {frozenset(pair): 1 for pair in pairs[:-2]} | dark
    with pytest.raises(RFabricError, match="no OCS joins"):
        light(fabric, {0: [("t1", f"t{2 * tors}")]})


def test_a_rack_on_a_core_leaves_the_others_theirs():
    fabric = pods(2, 2, [{0: 2, 1: 2}])
    sketch = Sketch()
    sketch.nodes, sketch.links = list(fabric.nodes), list(fabric.links)
    sketch._ports.update({name: len(ports) for name, ports in fabric.ports.items()})
    sketch.cable(sketch.switch("t9", "eps", "edge", (2, 0), 2), "c1", RATE, 0.0)
    wider = Fabric("own", sketch.nodes, sketch.links)
    assert list(regions(wider)[0].values()) == [0] * 4 + [1]
    assert pairs_lit(wider, [("t1", "t3")])[1] == {frozenset(("t1", "t3")): 1}


def test_a_job_on_two_optical_regions_gets_their_circuits():
    """Two pods each below a core of their own: 1 GB at 100 Gbit/s by light is 0.08 s, at the tenth
    of it by the thin switch 0.8 s.
    """
    fabric = pods(4, 2, [{0: 2, 1: 2}, {2: 2, 3: 2}])
    job = TraceBuilder(fabric.hosts)
    job.flows([0, 4], [2, 6], 1e9, phase="training")
    assert simulate(fabric, job.build(), "demand").finish.max() == pytest.approx(0.08, rel=0.1)


@pytest.mark.parametrize("both", [("t2", "t3"), ("t2", "t2")])
def test_pairs_of_a_policy_that_have_a_rack_twice_are_refused(both):
    fabric = parse_fabric("rfabric,pods=2,tors=2,gpus=1,planes=2")
    policy, wanted = parse_policy("demand", fabric), Demand.none(fabric.racks)
    pairs = [("t1", other) for other in both]
    with pytest.raises(RFabricError, match="plane 0: rack t1 has one uplink, it cannot be joined"):
        policy.light([pairs, []], wanted, Circuits())

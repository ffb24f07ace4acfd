"""Which fabric the switches make up, by their ids and ports alone; and when it cannot be told."""

import random

import pytest
from ground import SMALL

from rfabric.control.infer import contradiction, infer
from rfabric.fabric import parse_fabric

SHAPES = [
    "rfabric,pods=2",
    "rfabric,pods=1,tors=3,gpus=2",
    "rfabric,pods=3,tors=2,gpus=4,planes=2,electrical=0",
]
SHAPES += [
    "fat-tree,k=4",
    "fat-tree,pods=2,tors=3,gpus=4,oversubscription=2",
    "fat-tree,pods=1,tors=2,gpus=1",
    "fat-tree,k=2",
    "fat-tree,pods=8,tors=4,gpus=2,radix=16",
    "rfabric,pods=4,tors=5,gpus=2,planes=2,radix=8",
]


@pytest.mark.parametrize("spec", SHAPES)
def test_a_fabric_is_known_when_its_last_switch_connects_and_not_before(spec):
    fabric = parse_fabric(spec)
    ports = {n.dpid: {p.number for p in fabric.ports[n.name]} for n in fabric.switches}
    for seed in range(5):
        order, seen = sorted(ports), {}
        random.Random(seed).shuffle(order)
        for dpid in order[:-1]:
            seen[dpid] = ports[dpid]
            assert infer(fabric.name, seen).fabric is None and infer(fabric.name, seen).trouble
        inferred = infer(fabric.name, ports).fabric
        assert (inferred.nodes, [(k.a, k.b) for k in inferred.links]) == (
            fabric.nodes,
            [(k.a, k.b) for k in fabric.links],
        )
        assert parse_fabric(inferred.spec).nodes == fabric.nodes


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("rfabric,pods=2", "rfabric,pods=2,tors=4,gpus=4,planes=4"),
        ("rfabric,pods=1,tors=3,gpus=2", "rfabric,pods=1,tors=3,gpus=2,planes=2"),
        ("rfabric,pods=3,tors=2,gpus=4,planes=2,electrical=0", ""),
        ("rfabric,pods=4,tors=5,gpus=2,planes=2,radix=8", ""),
        ("rotor,tors=4,gpus=2", "rfabric,pods=1,tors=4,gpus=2,planes=2,electrical=0"),
        ("fat-tree,k=2", ""),
        ("fat-tree,k=4", ""),
        ("fat-tree,k=6", ""),
        ("fat-tree,pods=1,tors=2,gpus=1,oversubscription=1", ""),
        ("fat-tree,pods=2,tors=2,gpus=1,oversubscription=1", ""),
        ("fat-tree,pods=2,tors=3,gpus=4,oversubscription=2", ""),
        ("fat-tree,pods=4,tors=2,gpus=3,oversubscription=1.5", ""),
        ("fat-tree,pods=4,tors=2,gpus=3,oversubscription=1.5,radix=5", ""),
        ("fat-tree,pods=6,tors=3,gpus=6,oversubscription=2,radix=9", ""),
        ("fat-tree,pods=8,tors=4,gpus=2,oversubscription=1,radix=16", ""),
    ],
)
def test_a_fabric_is_what_its_switches_make_up_and_told_as_one_would_say_it(spec, told):
    """By its `k` where it has the hosts of the classic fat-tree as well as its switches."""
    fabric = parse_fabric(spec)
    ports = {n.dpid: {p.number for p in fabric.ports[n.name]} for n in fabric.switches}
    made = infer("fat-tree" if fabric.name == "fat-tree" else "rfabric", ports).fabric
    assert made.nodes == fabric.nodes and made.spec == (told or spec)
    assert [(k.a, k.b) for k in made.links] == [(k.a, k.b) for k in fabric.links]


@pytest.mark.parametrize(
    ("ports", "said"), [({1, 2, 3}, "1..3"), ({1, 3}, "1, 3"), ({2}, "2..2"), (set(), "none")]
)
def test_ports_that_a_switch_should_not_have_are_told_as_ranges_or_one_by_one(ports, said):
    text = contradiction(SMALL, {SMALL.node["t1"].dpid: ports})
    assert f"has ports {said}, in the fabric" in text


@pytest.mark.parametrize("kind", ["rfabric", "fat-tree"])
def test_no_fabric_is_built_while_tors_are_missing(kind):
    """Ids say of which pod they are, and which of its ToRs: the last that there could be alone
    would stand for 16 million.
    """
    last, core = 0x1FFFFFF, 0x3000000
    for seen, said in (
        ({core: {1, 2}}, "0 of 1 or more ToRs have connected; wait for all switches"),
        ({last: {1, 2}}, "1 of 16777216 or more ToRs have connected"),
        ({last: {1, 2}, 0x1000001: {1, 2}}, "2 of 16777216 or more ToRs"),
        ({0x1001000: {1}, 0x1000001: {1}, 0x1000000: {1}}, "3 of 4 or more ToRs have connected"),
    ):
        inferred = infer(kind, seen)
        assert inferred.fabric is None and inferred.trouble.startswith(said)


def test_switches_that_contradict_the_fabric_are_named_with_the_way_out():
    assert "switch 0x1 is not of an rfabric topology" in infer("rfabric", {1: {1, 2}}).trouble
    assert "--custom topologies/fat_tree.py --topo fat-tree" in infer("fat-tree", {1: {1}}).trouble
    ports = {n.dpid: {p.number for p in SMALL.ports[n.name]} for n in SMALL.switches}
    wrong = infer("fat-tree", ports).trouble
    assert "run controller/ocs.py if it is the other kind" in wrong and "RFABRIC_TOPO=NAME" in wrong
    assert contradiction(SMALL, ports) == ""
    fewer = {**ports, SMALL.node["t1"].dpid: {1, 2}}
    assert (
        contradiction(SMALL, fewer)
        == "switch t1 (0x1000000) has ports 1..2, in the fabric rfabric it has 1..5"
    )
    assert contradiction(SMALL, {0x1009000: {1}}) == "switch 0x1009000 is not in the fabric rfabric"


def test_servers_that_forward_are_not_taken_for_tors():
    ports = {n.dpid: {1} for n in parse_fabric("opus,servers=2,gpus=2").switches}
    assert (
        "forwards for a server" in (said := infer("rfabric", ports).trouble)
        and "`rfabric control --topo NAME" in said
    )

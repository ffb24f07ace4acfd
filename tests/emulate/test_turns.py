"""What an emulation is told of its simulation: who crosses which cable, and a turn for each."""

import json
from collections import Counter, defaultdict
from itertools import permutations

import numpy as np
import pytest

from rfabric.emulate import shaping
from rfabric.emulate.foreseen import SimulatedTraffic, foreseen, ways
from rfabric.fabric import parse_fabric
from rfabric.simulate.world import simulate
from rfabric.study import selftest
from rfabric.trace import TraceBuilder


def sent_to_all(fabric, policy="static", several=1):
    """The simulation of an all-to-all, `several` flows of each two hosts."""
    b = TraceBuilder(fabric.hosts)
    n = len(fabric.hosts)
    ends = [pair for pair in permutations(range(n), 2) for _ in range(several)]
    b.flows(*zip(*ends, strict=True), 1e8, phase="a", label="all-to-all")
    return simulate(fabric, b.build(), policy)


def crossing(fabric, known):
    """By port that is shaped, its flows: (sender's number, receiver's, which of theirs)."""
    number = {host: i for i, host in enumerate(fabric.hosts, 1)}
    flows = defaultdict(list)
    for (src, dst), cables in known.ways.items():
        for cable in cables:
            link = fabric.links[cable // 2]
            several = range(known.at_once[src, dst])
            flows[(link.a, link.b)[cable % 2]] += [(number[src], number[dst], f) for f in several]
    return {port: flows[port] for port in shaping.paced(fabric)}


@pytest.mark.parametrize(("hosts", "several"), [(16, 1), (16, 3), (64, 1)])
@pytest.mark.parametrize("name", selftest.PARTS[:5])
def test_each_flow_of_an_all_to_all_has_a_turn_at_every_cable(name, hosts, several):
    fabric = selftest.fabrics(hosts)[name]
    known = foreseen(sent_to_all(fabric, several=several))
    turns = shaping.turns_of(fabric, known.at_once, ways=known.ways)
    assert turns.keys() == shaping.paced(fabric)
    assert sum(len(port.taken) for port in turns.values()) <= shaping.MOST_CLASSES
    shared = every = 0
    for port, flows in crossing(fabric, known).items():
        of, taken, step = turns[port]
        used = Counter(shaping.turn_of(*flow, of, step) for flow in flows)
        assert used.keys() == set(taken)
        shared, every = shared + sum(n for n in used.values() if n > 1), every + len(flows)
    assert shared <= 0.02 * every


@pytest.mark.parametrize("most", [200, 500, 2000])
def test_where_classes_are_few_flows_share_turns_and_none_is_left_out(most):
    fabric = selftest.fabrics(16)["fat-tree"]
    known = foreseen(sent_to_all(fabric))
    turns = shaping.turns_of(fabric, known.at_once, most, known.ways)
    classes = sum(len(port.taken) for port in turns.values())
    assert classes <= most or {port.of for port in turns.values()} == {min(shaping.STEPS)}
    for port, flows in crossing(fabric, known).items():
        of, taken, step = turns[port]
        assert {shaping.turn_of(*flow, of, step) for flow in flows} == set(taken)


def test_a_way_leads_from_the_sender_to_the_receiver():
    fabric = parse_fabric("leaf-spine,tors=4,gpus=2")
    for (src, dst), cables in ways(sent_to_all(fabric)).items():
        at = src
        for cable in cables:
            link = fabric.links[cable // 2]
            a, b = (link.b, link.a) if cable % 2 else (link.a, link.b)
            assert a.node == at
            at = b.node
        assert at == dst


def test_of_circuits_that_may_change_no_way_is_foreseen():
    fabric = parse_fabric("rfabric,pods=2,tors=2,gpus=2")
    assert ways(sent_to_all(fabric)) is not None
    assert ways(sent_to_all(fabric, "demand")) is None


@pytest.mark.parametrize("policy", ["static", "demand"])
def test_it_goes_through_json(policy):
    fabric = parse_fabric("rfabric,pods=2,tors=2,gpus=2")
    known = foreseen(sent_to_all(fabric, policy, several=2))
    assert SimulatedTraffic.from_json(json.loads(json.dumps(known.to_json()))) == known
    assert (
        SimulatedTraffic.from_json(json.loads(json.dumps(SimulatedTraffic().to_json())))
        == SimulatedTraffic()
    )
    assert np.sum([*known.at_once.values()]) == 2 * 8 * 7

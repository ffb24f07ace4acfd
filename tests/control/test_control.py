"""The controller: epochs, flow-mods, fake switches, REST, inference; as root with Ryu, Open vSwitch
and mn.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from http.server import ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real import NAMESPACE, RYU_PYTHON, WITHOUT_RYU, free_port, listens, private_ovs, until

from rfabric.control import flowmods, frames, schema, seam
from rfabric.control.client import Client
from rfabric.control.core import Core, RolledBackError, UnavailableError, _in_one_order
from rfabric.control.epochs import (
    MESSAGE_S,
    TIMEOUT,
    UNDER_WAY,
    Epochs,
    NotFoundError,
    StateError,
    violations,
)
from rfabric.control.fake import FakeClock, FakeSwitches, RealClock, apply, decode
from rfabric.control.infer import contradiction, infer
from rfabric.control.launch import app_file, command
from rfabric.control.rest import Handler, answer
from rfabric.control.schema import Intent, PlanRequest
from rfabric.control.switches import crossbar_of
from rfabric.errors import RFabricError, RunError
from rfabric.fabric import Port, fat_tree, host_ip, host_mac, parse_fabric, rfabric
from rfabric.optics import Circuit, Circuits, Demand, Rewire, light, planes
from rfabric.optics.check import faults_during
from rfabric.routing import LightPath, Rule
from rfabric.routing.schemes import ECMP, Routing, Sent

ROOT = Path(__file__).parents[2]
SMALL = rfabric(pods=2, tors=2, gpus=2)


def all_pairs(fabric):
    return list(itertools.permutations(fabric.hosts, 2))


def controlled(fabric=SMALL, **kind):
    """A core over fake switches that are all connected."""
    switches = FakeSwitches(fabric, FakeClock(step=1e-3), **kind)
    core = Core(fabric, switches, switches.clock)
    core.connected(core.name_of)
    return core, switches


def explicit(circuits, **options):
    return PlanRequest(circuits=Circuits(frozenset(circuits)), **options)


def demand_of(fabric, seed=1, **kind):
    n = len(fabric.racks)
    return Demand(fabric.racks, np.random.default_rng(seed).integers(0, 100, (n, n)) * 1e6, **kind)


def inside_pods(**kind):
    """Demand that the circuits of the start do not fit: nothing between pods."""
    return Demand(SMALL.racks, np.kron(np.eye(2), [[0, 1e11], [1e11, 0]]), **kind)


def other_circuits(fabric, pairs=(("t1", "t2"), ("t3", "t4"))):
    return light(fabric, dict.fromkeys(planes(fabric), pairs))


WCMP = Routing("wcmp")

# --- epochs ---------------------------------------------------------------------------------------

A, B, C = (Circuit.parse(f"a1:{text}") for text in ("1-2", "3-4", "1-3"))


def rewire(down, up):
    return Rewire(Circuits(frozenset(down)), Circuits(frozenset(up)))


def began(epochs):
    return epochs.propose(rewire([A], [C]), delay=0.01).ready(1).commit(1, now=5.0)


def test_a_plan_runs_through_its_states_and_becomes_the_epoch():
    start = Epochs(Circuits(frozenset([A])))
    one = (
        began(start).programmed(1, 5.002).light(1, 5.012).usable(1, 5.013).verified(1, lost_bytes=7)
    )
    plan = one.plan(1)
    assert (one.active, plan.state, plan.lost_bytes) == (1, "ACTIVE", 7)
    assert set(one.circuits) == {C} and set(start.circuits) == {A}
    assert (plan.requested, plan.programmed, plan.dark_until, plan.usable) == pytest.approx(
        (5, 5.002, 5.012, 5.013)
    )
    two = (
        one.propose(rewire([C], [A]), 0.01)
        .ready(2)
        .commit(2, 6)
        .programmed(2, 6)
        .light(2, 6.01)
        .usable(2, 6.01)
    )
    assert two.verified(2).plan(1).state == "PAST"


def test_a_control_time_that_is_told_stands_for_the_one_of_the_switches_unless_they_take_longer():
    epochs = (
        Epochs(Circuits(frozenset([A])))
        .propose(rewire([A], [C]), 0.01, 10, control=0.005)
        .ready(1)
        .commit(1, now=1.0)
    )
    done = epochs.programmed(1, 1.048, took=0.008)
    assert done.plan(1).programmed == pytest.approx(1.05) and done.plan(
        1
    ).dark_until == pytest.approx(1.15)
    done = done.light(1, 1.151).usable(1, 1.152)
    assert done.plan(1).usable == pytest.approx(1.152) and done.plan(1).took == 0.008
    assert epochs.programmed(1, 1.07).plan(1).programmed == 1.07


def test_time_dilation_stretches_dark_and_control_time():
    epochs = (
        Epochs(Circuits(frozenset([A]))).propose(rewire([A], [C]), delay=0.01, dilation=10).ready(1)
    )
    epochs = epochs.commit(1, now=1.0).programmed(1, 1.003)
    assert epochs.plan(1).programmed == pytest.approx(1.03) and epochs.plan(
        1
    ).dark_until == pytest.approx(1.13)
    epochs = epochs.light(1, 1.13).usable(1, 1.131)
    assert epochs.plan(1).usable == pytest.approx(1.14)


def test_it_is_dark_until_the_delay_is_over():
    dark = began(Epochs(Circuits(frozenset([A])))).programmed(1, 5.002)
    with pytest.raises(StateError, match="plan 1 is dark for another 0.002"):
        dark.light(1, 5.010)
    assert dark.light(1, 5.012).plan(1).state == "LIGHTING"


def test_a_failure_rolls_back_to_the_circuits_before():
    epochs = began(Epochs(Circuits(frozenset([A])))).failed(1, "a1 kept silent")
    assert epochs.under_way.state == "ROLLBACK" and set(epochs.circuits) == {A}
    done = epochs.rolled_back(1)
    assert (
        done.under_way is None
        and done.plan(1).state == "ABORTED"
        and done.plan(1).error == "a1 kept silent"
    )


def test_what_does_not_fit_the_state_is_refused_and_says_what_does():
    start = Epochs(Circuits(frozenset([A])))
    open_ = start.propose(rewire([A], [C]), 0.01)
    with pytest.raises(
        StateError, match="plan 1 is PLANNED and can become PREPARED or ABORTED, not PROGRAMMING"
    ):
        open_.commit(1, 0)
    two = open_.ready(1).propose(rewire([], [B]), 0.01).ready(2).commit(1, 0)
    with pytest.raises(StateError, match="plan 2 must wait: plan 1 is PROGRAMMING"):
        two.commit(2, 0)
    with pytest.raises(
        StateError, match="plan 1 is PROGRAMMING: a rewire that has begun ends by itself"
    ):
        two.abort(1)
    done = two.programmed(1, 0).light(1, 1).usable(1, 1).verified(1)
    assert done.plan(2).error == "plan 1 became active first"
    with pytest.raises(StateError, match="plan 2 is ABORTED and can become nothing else"):
        done.commit(2, 2)
    with pytest.raises(NotFoundError, match="no plan 9; the last is 2"):
        done.commit(9, 0)
    with pytest.raises(StateError, match="not made for the circuits of epoch 0"):
        start.propose(rewire([B], [C]), 0.01)
    with pytest.raises(
        RFabricError, match="port a1:1 is already in circuit a1:1-a1:2; tear it down"
    ):
        start.propose(rewire([], [C]), 0.01)


VERBS = (
    "propose",
    "ready",
    "commit",
    "programmed",
    "light",
    "usable",
    "verified",
    "failed",
    "rolled_back",
    "abort",
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(VERBS), st.integers(1, 5)), max_size=60), st.randoms())
def test_whatever_happens_the_books_stay_in_order(script, rng):
    everything = [Circuit.parse(f"a1:{a}-{b}") for a, b in itertools.combinations(range(1, 7), 2)]
    epochs, now, good = Epochs(Circuits(frozenset([A]))), 0.0, {0: frozenset([A])}
    for verb, n in script:
        now += 0.02
        before = epochs
        try:
            if verb == "propose":
                rng.shuffle(everything)
                chosen = [
                    c
                    for i, c in enumerate(everything[:3])
                    if not set(c) & {p for d in everything[:i] for p in d}
                ]
                epochs = epochs.propose(
                    Rewire.between(epochs.circuits, Circuits(frozenset(chosen))), 0.01
                )
            elif verb in ("commit", "programmed", "light", "usable"):
                epochs = getattr(epochs, verb)(n, now)
            else:
                epochs = getattr(epochs, verb)(n, *(["broken"] if verb == "failed" else []))
        except (StateError, NotFoundError):
            assert epochs is before
        assert not violations(epochs)
        good.setdefault(epochs.active, epochs.circuits.items)
        # the circuits that count change with the epoch alone
        assert epochs.circuits.items == good[epochs.active]
        assert epochs.active >= before.active or before.plan(before.active).state == "ACTIVE"


def test_the_checker_finds_books_that_are_wrong():
    epochs = began(Epochs(Circuits(frozenset([A])))).programmed(1, 5.002)
    wrong = Epochs(epochs.circuits, active=3, plans={1: epochs.plan(1), 2: epochs.plan(1)})
    assert len(violations(wrong)) == 2


# --- flow-mods ------------------------------------------------------------------------------------

RULES = [
    Rule("a1", ("port", 3), 7, 100),
    Rule("t1", ("to", "h2"), 2, 300),
    Rule("t1", ("pair", "h1", "h70000"), 40, 200),
]


def address(host):
    return host_ip(int(host[1:]) - 1)


def by_the_framework(rule, command, cookie):
    """The same flow-mod, made by Ryu's or os-ken's own classes."""
    of, make = seam.offline(), seam.parser
    kind, *values = rule.match
    match = {
        "port": lambda: {"in_port": values[0]},
        "to": lambda: {"eth_type": 0x800, "ipv4_dst": address(values[0])},
    }
    match["pair"] = lambda: {
        "eth_type": 0x800,
        "ipv4_src": address(values[0]),
        "ipv4_dst": address(values[1]),
    }
    act = [
        make.OFPInstructionActions(of.ofproto.OFPIT_APPLY_ACTIONS, [make.OFPActionOutput(rule.out)])
    ]
    instructions = act if command == flowmods.ADD else []
    anywhere = {"out_port": of.ofproto.OFPP_ANY, "out_group": of.ofproto.OFPG_ANY}
    fields = make.OFPMatch(**match[kind]())
    mod = make.OFPFlowMod(
        of,
        cookie=cookie,
        command=command,
        priority=rule.priority,
        match=fields,
        instructions=instructions,
        **anywhere,
    )
    return seam.wire(mod)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.match[0])
def test_flow_mods_are_the_bytes_the_framework_makes(rule):
    assert flowmods.add(rule, address, epoch=5) == by_the_framework(rule, flowmods.ADD, 5)
    assert flowmods.delete(rule, address) == by_the_framework(rule, flowmods.DELETE_STRICT, 0)


def test_the_other_messages_say_to_the_framework_what_they_should():
    ofproto = seam.ofproto
    miss, arp, unknown = map(seam.decode, flowmods.base("eps", 3))
    assert (miss.priority, miss.instructions, len(miss.match.items())) == (0, [], 0)
    for message, kind in ((arp, 0x0806), (unknown, 0x0800)):
        action = message.instructions[0].actions[0]
        assert message.match["eth_type"] == kind
        assert (action.port, action.max_len) == (ofproto.OFPP_CONTROLLER, ofproto.OFPCML_NO_BUFFER)
    assert len(flowmods.base("ocs")) == 1
    dropped = seam.decode(flowmods.unreachable("h1", "h2", address))
    assert (dropped.instructions, dropped.hard_timeout, dropped.match["ipv4_dst"]) == (
        [],
        1,
        "10.0.0.2",
    )
    wiped = seam.decode(flowmods.delete_all())
    assert (wiped.command, wiped.table_id) == (ofproto.OFPFC_DELETE, ofproto.OFPTT_ALL)
    asked = seam.parser.OFPPortStatsRequest(seam.offline(), 0, ofproto.OFPP_ANY)
    assert flowmods.count_ports() == seam.wire(asked)


@pytest.mark.parametrize("asked", [{}, {"cookie": 7}, {"cookie": 0}, {"port": 3}], ids=str)
def test_flows_are_asked_for_as_the_framework_does(asked):
    make, of = seam.parser, seam.ofproto
    match = make.OFPMatch(**({"in_port": asked["port"]} if "port" in asked else {}))
    cookie, mask = asked.get("cookie", 0), (1 << 64) - 1 if "cookie" in asked else 0
    request = make.OFPFlowStatsRequest(
        seam.offline(), 0, of.OFPTT_ALL, of.OFPP_ANY, of.OFPG_ANY, cookie, mask, match
    )
    wire = flowmods.ask_flows(**asked)
    assert wire == seam.wire(request)
    entries = {
        (cookie, port): flowmods.Entry(100, (("in_port", port),), 9, cookie)
        for cookie in (0, 7) for port in (3, 4)
    }  # fmt: skip
    told = {key for key, entry in entries.items() if flowmods.asks_for(wire, entry)}
    want = (asked.get("cookie"), asked.get("port"))
    assert told == {k for k in entries if all(w in (None, v) for w, v in zip(want, k, strict=True))}


def test_roles_and_strikes_are_the_bytes_the_framework_makes():
    role = seam.parser.OFPRoleRequest(seam.offline(), seam.ofproto.OFPCR_ROLE_MASTER, 5)
    assert flowmods.role(flowmods.MASTER, 5) == seam.wire(role)
    for rule in RULES:
        _, entry = decode(flowmods.add(rule, address, epoch=9))
        command, struck = decode(flowmods.strike(entry))
        assert command == flowmods.DELETE_STRICT and struck.key == entry.key
        assert flowmods.strike(entry) == flowmods.delete(rule, address)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.match[0])
def test_a_flow_as_the_framework_tells_it_is_the_entry_that_was_sent(rule):
    wire = flowmods.add(rule, address, epoch=9)
    assert flowmods.entry_of(seam.decode(wire)) == decode(wire)[1]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.match[0])
def test_fake_switches_read_what_was_packed(rule):
    kind, entry = decode(flowmods.add(rule, address, epoch=9))
    assert (kind, entry.priority, entry.out, entry.cookie) == (
        flowmods.ADD,
        rule.priority,
        rule.out,
        9,
    )
    expected = {"port": {"in_port": 3}, "to": {"eth_type": 2048, "dst": "10.0.0.2"}}
    expected["pair"] = {"eth_type": 2048, "src": "10.0.0.1", "dst": "10.1.17.112"}
    assert dict(entry.match) == expected[rule.match[0]]
    with pytest.raises(ValueError, match="not one OpenFlow 1.3 flow-mod"):
        decode(flowmods.add(rule, address) + b"x")


# --- core and fake switches -----------------------------------------------------------------------

FABRICS = [
    SMALL,
    rfabric(pods=2, tors=2, gpus=2, electrical=0),
    rfabric(pods=1, tors=4, gpus=1),
    fat_tree(k=4),
]


@pytest.mark.parametrize("fabric", FABRICS, ids=["rfabric", "no-electrical", "one-pod", "fat-tree"])
def test_every_pair_arrives_with_the_circuits_of_the_start(fabric):
    core, switches = controlled(fabric)
    assert core.ready
    core.set_pairs(all_pairs(fabric))
    reached = [p for p in all_pairs(fabric) if not switches.where_lost(*p)]
    assert reached == [p for p in all_pairs(fabric) if core.routes.path(*p)]
    assert (
        len(reached) == len(all_pairs(fabric))
        or fabric.name == "rfabric"
        and not fabric.parameters["electrical_bps"]
    )


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["demand", "phase"]), st.integers(0, 999)), min_size=1, max_size=4
    )
)
def test_every_pair_arrives_after_every_epoch(intents):
    core, switches = controlled()
    for policy, seed in intents:
        phase = random.Random(seed).choice(["generation", "training", "weight_sync"])
        demand = demand_of(SMALL, seed, phase=phase)
        plan, _, _ = core.plan(PlanRequest(Intent(policy, demand), pairs=tuple(all_pairs(SMALL))))
        if plan is not None:
            assert core.commit(plan.epoch).state == "ACTIVE"
        assert [switches.where_lost(*p) for p in all_pairs(SMALL)] == [""] * len(all_pairs(SMALL))
        assert not violations(core.epochs)


def test_what_stays_is_not_touched():
    core, switches = controlled()
    core.set_pairs(all_pairs(SMALL))
    keep = core.epochs.circuits.of("a2")
    switches.sent.clear()
    circuits = (core.epochs.circuits.items - core.epochs.circuits.of("a1").items) | {
        Circuit.parse("a1:1-a1:2")
    }
    plan, _, _ = core.plan(explicit(circuits))
    assert not switches.sent  # a plan sends nothing
    core.commit(plan.epoch)
    touched = {n for n, count in switches.sent.items() if count}
    assert touched & {n.name for n in SMALL.ocses} == {"a1"}
    crossed = {
        dict(e.match)["in_port"]: e.cookie
        for e in switches.tables[SMALL.node["a2"].dpid].values()
        if e.match
    }
    assert len(crossed) == 2 * len(keep) and set(crossed.values()) == {0}
    changed = {
        dict(e.match)["in_port"]: e.cookie
        for e in switches.tables[SMALL.node["a1"].dpid].values()
        if e.match
    }
    assert changed == {1: 1, 2: 1}
    again, decision, _ = core.plan(explicit(circuits))
    assert again is None and decision.why == "circuits already fit"


def test_packets_under_way_end_somewhere_whatever_turns_under_them():
    """No switch counts how far a packet has come: one in a circle would stay there."""
    fabric = rfabric(pods=1, tors=6, gpus=2)
    ring = [("t2", "t3"), ("t4", "t5"), ("t6", "t1")]
    shifted = [("t1", "t2"), ("t3", "t4"), ("t5", "t6")]
    core, switches = controlled(fabric)
    core.set_pairs(all_pairs(fabric))
    first, *others = planes(fabric)
    core.commit(core.plan(explicit(light(fabric, {first: ring, others[0]: shifted})))[0].epoch)
    before = {pair: switches.way(*pair)[0] for pair in all_pairs(fabric)}
    core.commit(core.plan(explicit(light(fabric, {first: ring, others[0]: ring})))[0].epoch)
    for pair, way in before.items():
        for sent in range(len(way)):
            assert "loop" not in switches.way(*pair, begun=way[:sent])[1]


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [("t1 t2 t3", "t1 t2 t3", True), ("t1 t2 t4", "t1 t3 t4", True), ("t1 t4", "t1 t2 t4", True),
     ("t1 t2 t3 t4", "t1 t3 t2 t4", False)],
)  # fmt: skip
def test_a_pair_turns_while_it_is_dark_where_its_ways_meet_switches_in_another_order(
    old, new, kept
):
    """t2 by the old rule and t3 by the new one would send packets to each other."""

    def way(racks):
        ends = [Port(rack, 1) for rack in racks.split()]
        return [LightPath(a, b, (0,), 1e9) for a, b in itertools.pairwise(ends)]

    assert _in_one_order(way(old), way(new)) == kept


def two_mixes(fabric):
    """Circuits of four racks between which, with WCMP, some pairs move to or from the electrical
    path and have light all the time.
    """
    one, two, three = (
        tuple(pairs.split("-") for pairs in text.split())
        for text in ("t1-t2 t3-t4", "t1-t3 t2-t4", "t1-t4 t2-t3")
    )
    mixes = (three, two, two, one), (three, one, two, one)
    return [light(fabric, dict(zip(planes(fabric), mix, strict=True))) for mix in mixes]


def test_a_rewire_that_is_rolled_back_leaves_nothing_that_the_books_do_not_have():
    fabric = rfabric(pods=2, tors=2, gpus=4)
    core, switches = controlled(fabric)
    core.set_pairs(all_pairs(fabric), WCMP)
    for circuits in two_mixes(fabric):
        core.commit(core.plan(explicit(circuits))[0].epoch)
    assert core.left
    plan, *_ = core.plan(explicit(other_circuits(fabric, (("t1", "t3"), ("t2", "t4")))))
    switches.moods[min(plan.rewire.down.items).a.node] = "refusing"
    with pytest.raises(RolledBackError):
        core.commit(plan.epoch)
    held = {
        (node.name, *(ends[end] for end in ("src", "dst")), e.out)
        for node in fabric.switches
        for e in switches.tables[node.dpid].values()
        if "src" in (ends := dict(e.match))
    }
    assert held == {
        (rule.switch, *map(core._addresses.__getitem__, rule.match[1:]), rule.out)
        for rule in core.table.values()
        if rule.match[0] == "pair"
    }


def test_rules_of_ways_that_were_left_go_with_the_next_rewire():
    fabric = rfabric(pods=2, tors=2, gpus=4)
    core, switches = controlled(fabric)
    core.set_pairs(all_pairs(fabric), WCMP)
    here, there = two_mixes(fabric)
    counts = []
    for circuits in [there, here] * 4:
        plan, *_ = core.plan(explicit(circuits))
        core.commit(plan.epoch)
        held = sum(len(table) for table in switches.tables.values())
        counts.append((len(core.table), len(core.left), held))
    assert len(set(counts[2:])) == 2 and counts[2:4] == counts[6:8] and counts[-1][1]
    core.set_pairs(all_pairs(fabric)[:5])
    assert not core.left and sum(rule.match[0] == "pair" for rule in core.table.values()) < 40


def test_old_circuits_go_before_new_ones_come_and_it_is_dark_between():
    core, switches = controlled()
    seen = []
    push = switches.push

    def watched(messages, timeout_s):
        done = push(messages, timeout_s)
        if any(SMALL.node[switches.names[d]].kind == "ocs" for d in messages):
            seen.append(
                (round(done.started_s, 6), crossbar_rules(switches), core.port_states("a1"))
            )
        return done

    switches.push = watched
    before, after = core.epochs.circuits, other_circuits(SMALL)
    plan, _, least = core.plan(explicit(after))
    done = core.commit(plan.epoch)
    kept = 2 * len(before.items & after.items)
    down, counted, up, _ = seen
    assert down[1] == counted[1] == kept and up[1] == 2 * len(after)
    assert up[0] == pytest.approx(done.dark_until)
    assert done.dark_until == pytest.approx(done.programmed + 0.01)
    assert (
        done.requested < done.programmed < done.dark_until <= done.usable
        and least == pytest.approx(0.016)
    )
    words = {word for word, _ in counted[2].values()}
    assert "PENDING_CONNECTION" in words and "PENDING_DISCONNECTION" not in words
    assert {word for word, _ in down[2].values()} >= {"PENDING_CONNECTION", "PENDING_DISCONNECTION"}
    assert {word for word, _ in core.port_states("a1").values()} == {"CONNECTED", "DISCONNECTED"}


def crossbar_rules(switches):
    """How many rules of crossbars there are."""
    return sum("in_port" in dict(e.match) for t in switches.tables.values() for e in t.values())


def after_each_push(switches, look):
    push = switches.push

    def watched(messages, timeout_s):
        done = push(messages, timeout_s)
        look()
        return done

    switches.push = watched


def test_pairs_that_keep_their_light_take_new_ways_when_others_have_left_them():
    """As in the simulation: a way that others will leave is full as long as it is dark."""
    fabric, moved = rfabric(pods=2, tors=2, gpus=4), []
    pairs = all_pairs(fabric)
    ends = np.array([[fabric.hosts.index(host) for host in pair] for pair in pairs]).T

    def rewired(seed):
        core, switches = controlled(fabric)
        draw = np.random.default_rng(seed)
        sent = Sent(*ends, draw.integers(1, 100, (1, len(pairs))) * 1e6)
        core.set_pairs(pairs, Routing("placed", sent))
        matchings = [
            (("t1", t), tuple(sorted({"t2", "t3", "t4"} - {t}))) for t in ("t2", "t3", "t4")
        ]
        drawn = {plane: matchings[draw.integers(3)] for plane in planes(fabric)}
        old, new = core.epochs.circuits, light(fabric, drawn)
        plan, *_ = core.plan(explicit(new))
        held, wrong = faults_during(fabric, old, new, pairs, core.routing)
        flowing = sorted(set(pairs) - set(held))
        before = {pair: switches.way(*pair) for pair in flowing}

        def look():
            for pair, (way, _) in before.items():
                now, lost = switches.way(*pair)
                assert not lost and (now == way or crossbar_rules(switches) == 2 * len(new))
                begun = range(len(way))  # packets are under way
                assert not any(switches.way(*pair, begun=way[:sent])[1] for sent in begun)

        after_each_push(switches, look)
        core.commit(plan.epoch)
        assert not wrong and not any(switches.where_lost(*pair) for pair in pairs)
        moved.extend(pair for pair in flowing if before[pair] != switches.way(*pair))

    for seed in range(6):
        rewired(seed)
    assert len(moved) > 6


@pytest.mark.parametrize("turns", [(3e-3, 1e-5), (1e-5, 3e-3), (3e-3, 0.02, 1e-5)])
def test_no_circuit_is_dark_for_less_than_the_delay_however_quick_a_switch_is_this_time(turns):
    core, switches = controlled()
    held, push, turn = [], switches.push, iter(turns)

    def of_any_speed(messages, timeout_s):
        plan, began = core.epochs.under_way, switches.clock.now()
        switches.clock.step = next(turn) if plan and plan.state == "LIGHTING" else 1e-3
        done = push(messages, timeout_s)
        if plan and plan.state == "LIGHTING":
            held.append(began - went[-1])  # the first circuit may be up as soon as that
        if plan and plan.state == "PROGRAMMING":
            went.append(switches.clock.now())  # the last circuit may go as late as that
        return done

    switches.push, went = of_any_speed, []
    circuits = other_circuits(SMALL), core.epochs.circuits
    for n in range(len(turns)):
        core.commit(core.plan(explicit(circuits[n % 2]))[0].epoch)
    assert len(held) == len(turns) and min(held) >= SMALL.reconfig_delay - 1e-9


def test_old_circuits_carry_until_the_control_time_that_was_told_is_over():
    core, switches = controlled()
    down, push = [], switches.push

    def watched(messages, timeout_s):
        if (plan := core.epochs.under_way) and plan.state == "PROGRAMMING":
            down.append(switches.clock.now() - plan.requested)
        return push(messages, timeout_s)

    switches.push, circuits = watched, (other_circuits(SMALL), core.epochs.circuits)
    for wanted in circuits:
        plan = core.plan(explicit(wanted, time_dilation=4, control=0.02))[0]
        done = core.commit(plan.epoch)
        assert done.programmed - done.requested == pytest.approx(
            0.08, abs=1.1e-3
        ) and done.took == pytest.approx(1e-3)
    assert down == pytest.approx([0.08, 0.079])  # a way down took 1 ms


def test_dilation_makes_the_dark_time_longer():
    core, switches = controlled()
    plan, _, _ = core.plan(explicit(other_circuits(SMALL), time_dilation=20))
    done = core.commit(plan.epoch)
    assert done.programmed - done.requested == pytest.approx(20 * 1e-3)
    assert done.dark_until - done.programmed == pytest.approx(20 * 0.01)
    assert switches.clock.now() >= done.usable


def test_an_ocs_delay_of_its_own_stands_for_the_fabrics_in_one_plan():
    core, _ = controlled()
    plan = core.plan(explicit(other_circuits(SMALL), time_dilation=3, delay=0.0))[0]
    done = core.commit(plan.epoch)
    assert done.dark_until == done.programmed and done.state == "ACTIVE"
    request = schema.plan_request({"circuits": [], "delay_s": 0.25}, SMALL)
    assert (
        request.delay == 0.25
        and schema.plan_request({"circuits": [], "delay_s": None}, SMALL).delay is None
    )
    with pytest.raises(RFabricError, match="delay_s: -1 must be a number, finite and not negative"):
        schema.plan_request({"circuits": [], "delay_s": -1}, SMALL)


def test_servers_that_forward_are_not_taken_for_tors():
    ports = {n.dpid: {1} for n in parse_fabric("opus,servers=2,gpus=2").switches}
    assert (
        "forwards for a server" in (said := infer("rfabric", ports).trouble)
        and "`rfabric control --topo NAME" in said
    )


def test_bytes_that_meet_the_dark_are_counted_and_good_ones_are_not():
    fabric = rfabric(pods=1, tors=2, gpus=1, electrical=0, delay="10ms")
    core, switches = controlled(fabric)
    core.set_pairs([("h1", "h2")])
    push, sent = switches.push, []

    def sending(messages, timeout_s):  # a sender that does not stop: one packet after each step
        done = push(messages, timeout_s)
        sent.append(switches.where_lost("h1", "h2", size_bytes=500))
        return done

    switches.push = sending
    # h1 and h2 keep their circuit but lose it for the time of the rewire: down and up by way of two
    # epochs
    plan, _, _ = core.plan(explicit([], in_flight="drop", pairs=()))
    done = core.commit(plan.epoch)
    assert done.lost_bytes == 500 * sum("dropped at a1" in lost for lost in sent[:2]) > 0
    plan, _, _ = core.plan(explicit([Circuit.parse("a1:1-a1:2")], in_flight="drop"))
    before = len(sent)
    done = core.commit(plan.epoch)
    dark = sum("dropped at a1" in lost for lost in sent[before:])
    assert done.lost_bytes == 500 * dark


def test_an_ocs_that_times_its_dark_is_told_all_at_once_and_the_others_wait():
    """Two of the OCSes that change: one is told what goes dark, for how long, and what comes."""
    core, switches = controlled()
    circuits = other_circuits(SMALL)
    plan, _, _ = core.plan(explicit(circuits, time_dilation=3.0))
    moved = Rewire.between(core.epochs.circuits, Circuits(frozenset(circuits)))
    timed, plain = sorted({c.a.node for c in moved.down})[:2]
    switches.timed = {timed: []}
    ends = sorted({p.number for c in (*moved.down, *moved.up) for p in c if p.node == timed})
    push, held = switches.push, []

    def watched(messages, timeout_s):
        done = push(messages, timeout_s)
        held.append([crossbar_of(switches.tables[SMALL.node[n].dpid]) for n in (timed, plain)])
        return done

    switches.push = watched
    done = core.commit(plan.epoch)
    (ports, dark, at), (asked, _, when) = switches.timed[timed]
    assert list(ports) == ends and asked == () and dark == pytest.approx(3 * SMALL.reconfig_delay)
    assert at <= done.programmed and when >= done.dark_until
    first, last = held[0], held[-1]
    assert first[0] == last[0] == crossbar_of(switches.tables[SMALL.node[timed].dpid])
    assert first[1] != last[1]  # nothing of what comes up before the dark time is over


def test_what_met_the_dark_is_what_an_ocs_that_times_it_says():
    core, switches = controlled()
    plan, _, _ = core.plan(explicit(other_circuits(SMALL)))
    (node, number), *_ = (port for c in plan.rewire.down for port in c)
    switches.timed, dpid = {node: []}, SMALL.node[node].dpid
    switches.received = lambda dpid: {number: 10**9}  # of which nothing was lost
    met = {1: 5, 2: 75}  # when it was told to move, and when it was asked after that
    switches.lost = lambda d: {number: met.get(len(switches.timed[node]))} if d == dpid else None
    assert core.commit(plan.epoch).lost_bytes == 70


def test_where_a_switch_counts_nothing_no_byte_is_lost():
    core, switches = controlled()
    switches.received = lambda dpid: {}
    plan, _, _ = core.plan(explicit(other_circuits(SMALL)))
    assert core.commit(plan.epoch).lost_bytes == 0


def test_a_plan_that_disconnects_demand_is_refused_and_nothing_happens():
    fabric = rfabric(pods=2, tors=2, gpus=1, electrical=0)
    core, switches = controlled(fabric)
    core.set_pairs([("h1", "h4")])
    with pytest.raises(
        RFabricError,
        match="the plan disconnects 1 pairs with demand, first h1 -> h4; give the ToRs an",
    ):
        core.plan(explicit(other_circuits(fabric)))
    assert not core.epochs.plans
    plan, _, _ = core.plan(explicit(other_circuits(fabric), pairs=(("h1", "h2"),)))
    assert plan.state == "PREPARED"


def test_the_window_rule_keeps_circuits():
    core, _ = controlled()
    plan, decision, least = core.plan(
        PlanRequest(Intent("demand", inside_pods(window=0.01)), pairs=())
    )
    assert (
        plan is None
        and decision.why == "window 10 ms is not above 16 ms: circuits stay"
        and least == pytest.approx(0.016)
    )


@pytest.mark.parametrize("mood", ["silent", "refusing", "forgetful"])
@pytest.mark.parametrize("step", ["down", "up", "read"])
def test_a_switch_that_fails_brings_the_last_good_circuits_back(mood, step):
    core, switches = controlled()
    core.set_pairs(all_pairs(SMALL))
    before, calls = core.epochs.circuits, []
    push, flows = switches.push, switches.flows

    def failing(messages, timeout_s):
        calls.append(messages)
        if (step, len(calls)) in (("down", 1), ("up", 4)):
            switches.moods["a1"] = mood
        return push(messages, timeout_s)

    def reading(asked, timeout_s):
        if step == "read":
            switches.moods["a1"] = mood
            switches.tables[SMALL.node["a1"].dpid].pop((100, (("in_port", 1),)), None)
        return flows(asked, timeout_s)

    switches.push, switches.flows = failing, reading
    plan, _, _ = core.plan(explicit(other_circuits(SMALL)))
    with pytest.raises(
        RolledBackError, match="plan 1 failed: .*a1.*; circuits of epoch 0 are back"
    ) as failed:
        core.commit(plan.epoch)
    assert (
        failed.value.plan.state == "ABORTED"
        and core.epochs.circuits == before
        and core.epochs.under_way is None
    )
    switches.push, switches.flows = push, flows
    switches.moods.clear()
    core.synced.discard("a1")
    core.restore()
    assert core.ready and [switches.where_lost(*p) for p in all_pairs(SMALL)] == [""] * len(
        all_pairs(SMALL)
    )
    again, _, _ = core.plan(explicit(other_circuits(SMALL)))
    assert core.commit(again.epoch).state == "ACTIVE"


def test_a_time_out_grows_with_what_is_told():
    """A switch is silent while few rules are told, and while many are."""
    waited = {}
    for pairs in (all_pairs(SMALL)[:2], all_pairs(SMALL)):
        core, switches = controlled()
        before, switches.moods["t1"] = switches.clock.now(), "silent"
        with pytest.raises(RunError, match="adding routes: t1 did not answer within 1"):
            core.set_pairs(pairs)
        told = sum(rule.match[0] == "pair" for rule in core.table.values())
        waited[told] = switches.clock.now() - before
        assert waited[told] == pytest.approx(TIMEOUT + MESSAGE_S * told)
    assert len(waited) == 2


def test_a_time_out_takes_as_long_as_it_says_and_names_the_switch():
    core, switches = controlled()
    plan, _, _ = core.plan(explicit(other_circuits(SMALL)))
    other, _, _ = core.plan(explicit(other_circuits(SMALL)))  # while all was well
    switches.moods["c1"] = "silent"
    with pytest.raises(
        RolledBackError, match="tearing down circuits: c1 did not answer within 1 s"
    ):
        core.commit(plan.epoch)
    assert core.waiting_for == ["c1"]
    with pytest.raises(
        UnavailableError, match="no answer from c1; wait until GET /health says ready"
    ):
        core.commit(other.epoch)
    assert core.epochs.plan(other.epoch).state == "PREPARED"
    switches.moods.clear()
    core.restore()
    assert core.commit(other.epoch).state == "ACTIVE"


def test_a_switch_that_comes_back_gets_everything_again():
    core, switches = controlled()
    core.set_pairs(all_pairs(SMALL))
    plan, _, _ = core.plan(explicit(other_circuits(SMALL)))
    switches.away.add("a1")
    core.disconnected(SMALL.node["a1"].dpid)
    with pytest.raises(UnavailableError, match="not connected: a1"):
        core.commit(plan.epoch)
    switches.tables[SMALL.node["a1"].dpid].clear()
    switches.away.clear()
    core.connected([SMALL.node["a1"].dpid])
    core.commit(plan.epoch)
    assert core.ready and not any(switches.where_lost(*p) for p in all_pairs(SMALL))


def test_unknown_pairs_are_learned_and_lost_ones_dropped_for_a_second():
    fabric = rfabric(pods=2, tors=2, gpus=1, electrical=0)
    core, switches = controlled(fabric)
    assert switches.where_lost("h1", "h4") == "asks the controller at t1:1"
    assert core.learn([("h1", "h4")]) == []
    assert switches.where_lost("h1", "h4") == "" == switches.where_lost("h4", "h1")
    assert core.learn([("h1", "h2")]) == [("h1", "h2")]
    assert switches.where_lost("h1", "h2") == "dropped at t1:1"
    assert core.out_port("t1", "h1", "h4") == 2 and core.out_port("t1", "h1", "h2") is None
    core.set_pairs([])
    assert switches.where_lost("h1", "h4") == "asks the controller at t1:1"


def test_plans_survive_pairs_learned_after_them():
    core, switches = controlled()
    plan, _, _ = core.plan(explicit(other_circuits(SMALL), pairs=(("h1", "h3"),)))
    core.learn([("h2", "h8")])
    core.commit(plan.epoch)
    for pair in (("h1", "h3"), ("h3", "h1"), ("h2", "h8"), ("h8", "h2")):
        assert switches.where_lost(*pair) == "" and pair in core.pairs


# --- REST -----------------------------------------------------------------------------------------


class Served:
    """What the REST handler needs, over fake switches."""

    def __init__(self, fabric=SMALL, **kind):
        self.core, self.switches = controlled(fabric, **kind)

    def health(self):
        return {"ready": self.core.ready, "waiting_for": self.core.waiting_for, "trouble": ""}


@pytest.fixture
def served():
    return Served()


def ask(served, method, path, body=None):
    reply = answer(served, method, path, b"" if body is None else json.dumps(body).encode())
    return reply.status, reply.body


def test_rest_from_plan_to_epoch(served):
    status, plan = ask(
        served,
        "POST",
        "/plans",
        {"circuits": other_circuits(SMALL).to_json(), "pairs": [["h1", "h8"]]},
    )
    assert (
        status == 200
        and (plan["epoch"], plan["state"]) == (1, "PREPARED")
        and plan["least_window_s"] > 0
    )
    assert ask(served, "GET", "/epoch")[1]["epoch"] == 0
    status, done = ask(served, "POST", "/plans/1/commit", {})
    assert (
        status == 200
        and done["state"] == "ACTIVE"
        and done["usable_s"] >= done["dark_until_s"] > done["programmed_s"]
    )
    assert ask(served, "GET", "/plans/1")[1] == done == ask(served, "GET", "/plans")[1]["plans"][0]
    assert ask(served, "GET", "/epoch")[1]["epoch"] == 1
    assert ask(served, "GET", "/circuits")[1]["circuits"] == other_circuits(SMALL).to_json()
    assert ask(served, "POST", "/plans/1/commit")[0] == 409


def test_rest_rewires_one_ocs(served):
    status, done = ask(served, "PUT", "/ocs/a1/circuits", {"circuits": ["a1:1-a1:2"]})
    assert status == 200 and done["circuits"] == ["a1:1-a1:2"] and done["epoch"] == 1
    assert ask(served, "GET", "/ocs/a1/circuits")[1]["circuits"] == ["a1:1-a1:2"]
    assert (
        ask(served, "PUT", "/ocs/a1/circuits", {"circuits": ["a1:2-1"]})[1]["state"] == "UNCHANGED"
    )
    ports = {
        p["port"]: (p["state"], p["connected_to"], p["cable"])
        for p in ask(served, "GET", "/ocs/a1")[1]["ports"]
    }
    assert ports["a1:1"] == ("CONNECTED", "a1:2", "t1:3") and ports["a1:3"] == (
        "DISCONNECTED",
        None,
        "c1:1",
    )


def test_rest_shows_fabric_switches_pairs_and_ports(served):
    assert ask(served, "GET", "/fabric")[1] == SMALL.to_json()
    assert ask(served, "PUT", "/pairs", {"pairs": [["h1", "h8"]]})[1]["pairs"] == 1
    assert ask(served, "GET", "/pairs/")[1] == {
        "pairs": [("h1", "h8")],
        "routed": [("h1", "h8"), ("h8", "h1")],
    }
    shown = ask(served, "GET", "/switches")[1]["switches"]
    assert [s["name"] for s in shown] == [n.name for n in SMALL.switches] and all(
        s["programmed"] for s in shown
    )
    assert len(ask(served, "GET", "/ocs")[1]["ocs"]) == len(SMALL.ocses)
    assert ask(served, "GET", "/health")[1]["ready"]


PLAN = {
    "policy": "demand",
    "demand": {"racks": list(SMALL.racks), "bytes": demand_of(SMALL).bytes.tolist()},
}


def changed(**keys):
    return {**PLAN, **keys}


def with_demand(**keys):
    return {**PLAN, "demand": {**PLAN["demand"], **keys}}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        (
            "POST",
            "/plans",
            changed(polcy="x"),
            400,
            "unknown key 'polcy'; it takes policy, demand, pairs",
        ),
        ("POST", "/plans", {"policy": "demand"}, 400, "'demand' is missing"),
        (
            "POST",
            "/plans",
            changed(policy="best"),
            400,
            "no policy named 'best'; there are own, static, demand, phase",
        ),
        (
            "POST",
            "/plans",
            changed(pairs=[["h1", "h99"]]),
            400,
            "'h99' is not a host of rfabric; there are h1 to h8",
        ),
        ("POST", "/plans", changed(pairs=[["h1", "h1"]]), 400, "must be two different hosts"),
        ("POST", "/plans", changed(time_dilation=0.5), 400, "time_dilation 0.5 must be 1 or more"),
        (
            "POST",
            "/plans",
            changed(in_flight="keep"),
            400,
            "in_flight 'keep' is not one of hold, drain, drop",
        ),
        (
            "POST",
            "/plans",
            changed(now_s=-1),
            400,
            "now_s: -1 must be a number, finite and not negative",
        ),
        ("POST", "/plans", changed(upcoming=[{}]), 400, r"upcoming\[0\]: 'racks' is missing"),
        (
            "POST",
            "/plans",
            with_demand(racks=["t1"]),
            400,
            "demand.racks must be the fabric's racks in order: t1, t2",
        ),
        (
            "POST",
            "/plans",
            with_demand(bytes=[[0]]),
            400,
            "demand.bytes must be 4 rows of 4 numbers",
        ),
        (
            "POST",
            "/plans",
            with_demand(bytes=[["1GB"] * 4] * 4),
            400,
            "demand.bytes: '1GB' must be a number",
        ),
        (
            "POST",
            "/plans",
            with_demand(lead_s=10**400),
            400,
            r"demand.lead_s: 10+... \(401 characters\) is above the limit, 1e\+15 s",
        ),
        (
            "POST",
            "/plans",
            changed(upcoming=[with_demand(follows=[1.5])["demand"]]),
            400,
            (r"upcoming\[0\].follows: 1.5 must be a whole number of places"),
        ),
        (
            "POST",
            "/plans",
            with_demand(follows=[0]),
            400,
            "demand follows what stands 0 places before it: at least 1, or none",
        ),
        (
            "POST",
            "/plans",
            with_demand(window="1s"),
            400,
            "unknown key 'window'; it takes racks, bytes, window_s, phase",
        ),
        ("POST", "/plans", {"circuits": "a1:1-2"}, 400, "circuits: expected a JSON array, got str"),
        (
            "POST",
            "/plans",
            {"circuits": ["a1:1-2", "a1:2-3"]},
            400,
            "port a1:2 is already in circuit a1:1-a1:2; tear it",
        ),
        (
            "POST",
            "/plans",
            {"circuits": ["a1:1-2", "a1:2-1"]},
            400,
            "circuit a1:1-a1:2 is listed twice",
        ),
        ("POST", "/plans", {"circuits": ["t1:1-2"]}, 400, "t1 is not an OCS of rfabric"),
        ("POST", "/plans", {"circuits": ["a1:1-99"]}, 400, "no cable at a1:99; a1 has 4"),
        ("POST", "/plans", [], 400, "expected a JSON object, got list"),
        (
            "PUT",
            "/ocs/a1/circuits",
            {"circuits": ["a2:1-2"]},
            400,
            "circuit a2:1-a2:2 is not on a1; PUT it to /ocs/a2",
        ),
        (
            "PUT",
            "/ocs/a9/circuits",
            {"circuits": []},
            404,
            "no OCS 'a9' in rfabric; there are a1, a2",
        ),
        ("GET", "/ocs/t1", None, 404, "no OCS 't1'"),
        ("PUT", "/pairs", {"pairs": [["h1"]]}, 400, "must be two different hosts"),
        (
            "POST",
            "/plans/1/commit",
            None,
            404,
            "no plan 1; none was made yet: POST /plans makes one",
        ),
        ("POST", "/plans/1/abort", {"now": 1}, 400, "unknown key 'now'; it takes none"),
        ("DELETE", "/plans", None, 405, "/plans takes GET or POST, not DELETE"),
        ("GET", "/nothing", None, 404, "no path /nothing; there are /health, /epoch"),
    ],
)
def test_bad_requests_are_named_and_change_nothing(served, method, path, body, status, text):
    got, reply = ask(served, method, path, body)
    assert got == status
    with pytest.raises(RFabricError, match=text):
        raise RFabricError(reply["error"])
    assert not served.core.epochs.plans


@pytest.mark.parametrize(
    "body", [b"{", b"\xff", b'{"circuits": NaN}', b'{"circuits": [1]}', b"null", b"[" * 100_000]
)
def test_broken_bodies_are_bad_requests(served, body):
    assert answer(served, "POST", "/plans", body).status == 400


def test_rest_before_the_fabric_is_known():
    class Waiting:
        core = None

        def health(self):
            return {"ready": False, "trouble": "the fabric rfabric still lacks c1"}

    assert ask(Waiting(), "GET", "/circuits") == (
        503,
        {"error": "the fabric is not known yet: the fabric rfabric still lacks c1"},
    )


AMOUNT = st.floats(0, 1e15)
RACKS = len(SMALL.racks)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(AMOUNT, min_size=RACKS, max_size=RACKS), min_size=RACKS, max_size=RACKS),
    st.one_of(st.just(math.inf), AMOUNT),
    st.text(max_size=5),
    st.tuples(AMOUNT, AMOUNT, AMOUNT),
    st.lists(st.integers(1, 9), max_size=3).map(tuple),
)
def test_a_demand_comes_back_from_its_json_as_it_was(rows, window, phase, times, follows):
    wanted = Demand(SMALL.racks, rows, window, phase, *times, follows)
    body = schema.parse_json(json.dumps(schema.demand_json(wanted)).encode())
    demand = schema.demand(body, SMALL, "demand")
    assert demand.bytes.tolist() == wanted.bytes.tolist()
    for name in ("racks", "window", "phase", "floor", "lead", "ahead", "follows"):
        assert getattr(demand, name) == getattr(wanted, name)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_pairs_and_what_they_send_come_back_from_their_json_as_they_were(data):
    chosen = data.draw(st.lists(st.sampled_from(all_pairs(SMALL)), min_size=1, unique=True))
    sent = data.draw(st.lists(AMOUNT, min_size=len(chosen), max_size=len(chosen)))
    ends = ([SMALL.host_index[pair[end]] for pair in chosen] for end in (0, 1))
    routing = Routing("placed", Sent(*ends, [sent]))
    body = schema.parse_json(json.dumps(schema.pairs_json(chosen, routing, SMALL)).encode())
    assert body["bytes"] == [sent]  # in the order of the pairs
    pairs, read = schema.pairs_request(body, SMALL)
    assert list(pairs) == chosen and read.scheme == "placed"
    assert read.sent.codes.tolist() == routing.sent.codes.tolist()
    assert read.sent.bytes.tolist() == routing.sent.bytes.tolist()
    stranger = next(pair for pair in all_pairs(SMALL) if pair not in chosen[:-1])
    more = schema.pairs_json([*chosen[:-1], stranger], routing, SMALL)["bytes"][0]
    assert more[-1] == (sent[-1] if stranger == chosen[-1] else 0.0)  # it knows nothing of others


def test_plans_and_routing_without_bytes_say_no_more_than_they_know():
    assert schema.pairs_json([("h1", "h2")], ECMP, SMALL) == {
        "pairs": [["h1", "h2"]], "routing": "ecmp",
    }  # fmt: skip
    assert schema.parse_json(b"") == {}


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["policy", "demand", "circuits", "pairs", "racks", "bytes"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_json_gets_past_the_schema_as_a_crash(data):
    with contextlib.suppress(RFabricError):
        schema.plan_request(data, SMALL)


@pytest.fixture
def server():
    """REST over fake switches on a real socket."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Served()
    served.core.clock = served.switches.clock = RealClock()
    server.core, server.health, server.served = served.core, served.health, served
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_web_page_cannot_ask(server):
    asked = urllib.request.Request(
        f"http://127.0.0.1:{server.server_address[1]}/epoch",
        headers={"Origin": "http://evil.example"},
    )
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(asked, timeout=5)


def test_the_client_drives_a_rewire(server):
    client = Client(f"http://127.0.0.1:{server.server_address[1]}")
    assert client.wait_ready(5)["ready"] and client.fabric() == SMALL and client.epoch() == 0
    client.put_pairs(all_pairs(SMALL))
    demand = inside_pods(phase="training")
    planned = client.plan(
        "demand",
        demand,
        all_pairs(SMALL),
        1.0,
        upcoming=[demand],
        time_dilation=2,
        in_flight="drain",
    )
    assert planned.rewire and planned.why.startswith("demand:") and planned.state == "PREPARED"
    done = client.commit(planned.epoch)
    assert done.circuits_changed == planned.rewire.size and done.usable - done.programmed >= 0.02
    assert client.circuits() == server.served.core.epochs.circuits and client.epoch() == 1
    again = client.plan("demand", demand, all_pairs(SMALL))
    assert not again.rewire and again.state == "UNCHANGED"
    other = client.plan_circuits(Circuits())
    assert client.abort(other.epoch)["state"] == "ABORTED" and len(client.plans()) == 2


def test_the_client_tells_bad_input_from_a_broken_run(server):
    client = Client(f"http://127.0.0.1:{server.server_address[1]}")
    with pytest.raises(RFabricError, match="controller: no plan 7") as error:
        client.commit(7)
    assert not isinstance(error.value, RunError)
    planned = client.plan_circuits(other_circuits(SMALL))
    server.served.switches.moods["a2"] = "refusing"
    with pytest.raises(
        RunError, match="plan 1 failed: tearing down circuits: a2 refused: FLOW_MOD_FAILED"
    ):
        client.commit(planned.epoch)
    with pytest.raises(RunError, match="is not ready after 0.2 s: waiting for a2"):
        client.wait_ready(0.2)
    gone = Client("http://127.0.0.1:9", timeout=1)
    with pytest.raises(RunError, match="the controller at http://127.0.0.1:9 is gone"):
        gone.epoch()
    with pytest.raises(RFabricError, match="write http://HOST:PORT"):
        Client("localhost:8080")


def test_what_is_asked_while_it_is_dark_is_answered_at_once(server):
    client = Client(f"http://127.0.0.1:{server.server_address[1]}")
    planned = client.plan_circuits(other_circuits(SMALL), time_dilation=40)
    commit = threading.Thread(target=client.commit, args=(planned.epoch,))
    commit.start()
    while not (busy := client.get("/epoch")["under_way"]):
        assert commit.is_alive()
    assert busy["epoch"] == planned.epoch and busy["state"] in UNDER_WAY and commit.is_alive()
    words = {p["state"] for o in client.get("/ocs")["ocs"] for p in o["ports"]}
    assert "PENDING_CONNECTION" in words and commit.is_alive()
    with pytest.raises(RFabricError, match=f"plan {planned.epoch} is ACTIVE"):
        client.commit(planned.epoch)  # waits for its turn, then finds the work done
    commit.join()


# --- what fabric is it? ---------------------------------------------------------------------------

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


def test_pairs_may_come_one_by_one():
    core, switches = controlled()
    assert core.set_pairs(pair for pair in [("h1", "h5")])["pairs"] == 1
    assert switches.where_lost("h1", "h5") == switches.where_lost("h5", "h1") == ""


def test_wiping_a_switch_leaves_no_entry_not_even_the_one_that_matches_all():
    table = {}
    for wire in flowmods.base("eps", 3):
        apply(table, wire)
    assert any(not entry.match for entry in table.values())
    apply(table, flowmods.delete_all())
    assert not table


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


# --- frames, launcher, topology files -------------------------------------------------------------


def test_arp_is_read_and_answered():
    asker, target = bytes.fromhex("000000000001"), host_mac(7)
    request = (
        b"\xff" * 6 + asker + bytes.fromhex("08060001080006040001") + asker + bytes([10, 0, 0, 1])
    )
    request += bytes(6) + bytes([10, 0, 0, 8])
    packet = frames.parse(request)
    assert (packet.src, packet.dst, packet.request) == ("10.0.0.1", "10.0.0.8", True)
    hosts = frames.Hosts(SMALL)
    assert hosts.mac(packet.dst) == target and hosts.name("10.0.0.9") is None
    reply = frames.arp_reply(target, packet.dst, packet.src_mac, packet.src)
    back = frames.parse(reply)
    assert len(reply) == 60 and reply[:6] == asker and not back.request
    assert (back.src, back.dst, back.src_mac.hex(":")) == ("10.0.0.8", "10.0.0.1", target)
    assert (
        frames.parse(request[:30]) is None
        and frames.parse(b"\x00" * 12 + b"\x86\xdd" + bytes(60)) is None
    )


def test_the_launcher_picks_the_app_the_fabric_needs():
    assert app_file("rfabric,pods=2").endswith("controller/ocs.py") and app_file("").endswith(
        "controller/ocs.py"
    )
    assert app_file("fat-tree,k=4").endswith("controller/ecmp.py")
    options = [
        "--topo",
        "rfabric,pods=2",
        "--port",
        "8181",
        "--sdn",
        "os-ken",
        "--ofp-port",
        "6653",
    ]
    argv = command("rfabric,pods=2", port=8181, sdn="os-ken")
    assert argv == [sys.executable, "-m", "rfabric.control", *options]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--topo", "nowhere"], "no fabric named 'nowhere'"),
        (["/nowhere/app.py"], "controller app /nowhere/app.py: no such file or module"),
        (["--port", "70000"], "RFABRIC_REST_PORT='70000': choose a port from 1 to 65535"),
        (
            ["--topo", "rfabric,pods=1", str(ROOT / "controller/ecmp.py")],
            "has optical switches; run controller/ocs.py",
        ),
    ],
)
def test_a_controller_that_cannot_start_says_why(options, text):
    argv = [*command(), *options, "--ofp-port", str(free_port())]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2 and text in ran.stderr and "Traceback" not in ran.stderr, ran.stderr


@pytest.mark.parametrize("sdn", [pytest.param("ryu", marks=WITHOUT_RYU), "os-ken"])
def test_the_hello_is_text_to_mininet(sdn, tmp_path):
    """Mininet 2.3 looks for a controller with telnet: it fails on what is not UTF-8, and waits for
    ever after a byte 1.
    """
    port, rest = free_port(), free_port()
    with child(
        command("rfabric,pods=1", port=rest, sdn=sdn, ofp_port=port), tmp_path / "control.out"
    ) as controller:
        until(lambda: listens(port) or controller.poll() is not None, "the controller to listen")
        for _ in range(8):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as telnet:
                heard = telnet.recv(64)
                assert (
                    heard.startswith(b"\x04\x00\x00\x08\x00\x00\x00 ")
                    and max(heard) < 127
                    and 1 not in heard
                )


@pytest.mark.parametrize("file", sorted((ROOT / "topologies").glob("*.py")), ids=lambda f: f.stem)
def test_topology_files_load_as_mn_loads_them(file):
    """mn executes them without __file__, under a Python without numpy; it would clean up after an
    exception.
    """
    code = (
        "import sys; names = {}; exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'), "
        "names, names)\nprint(sorted(names['topos']), [m for m in ('numpy', 'networkx', "
        "'mininet') if m in sys.modules])\nlist(names['topos'].values())[0](-1)"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code, str(file)], capture_output=True, text=True
    )
    assert ran.returncode == 2 and "=-1 must be a whole number" in ran.stderr, ran.stderr
    assert ran.stdout.strip().endswith("[]")


def test_the_mininet_topology_has_the_fabrics_numbers():
    pytest.importorskip("mininet.topo", reason="no mininet in this Python: apt-get install mininet")
    from rfabric.emulate.topo import topo_of

    topo = topo_of(SMALL)
    assert sorted(topo.hosts()) == sorted(SMALL.hosts) and len(topo.links()) == len(SMALL.links)
    host = topo.nodeInfo("h3")
    assert (host["ip"], host["mac"]) == ("10.0.0.3/8", "00:00:00:00:00:03")
    assert int(topo.nodeInfo("a2")["dpid"], 16) == SMALL.node["a2"].dpid
    joined = {
        tuple(sorted([(i["node1"], i["port1"]), (i["node2"], i["port2"])]))
        for *_, i in topo.links(withInfo=True)
    }
    assert joined == {tuple(sorted([tuple(k.a), tuple(k.b)])) for k in SMALL.links}


# --- as root: Ryu, Open vSwitch and Mininet in namespaces of their own ----------------------------


def prepare_namespace():
    """lo up, this namespace's own /sys, no IPv6 chatter; and no way for mn to raise limits of the
    whole machine.
    """
    for argv in (
        ["ip", "link", "set", "lo", "up"],
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "sysfs", "sysfs", "/sys"],
    ):
        subprocess.run(argv, check=True)
    for scope in ("all", "default"):
        Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1")
    subprocess.run(["mount", "--bind", "/proc/sys", "/proc/sys"], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", "/proc/sys"], check=True)


@contextlib.contextmanager
def child(argv, log, **env):
    """A process that does not outlive the block."""
    with Path(log).open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out, env={**os.environ, **env})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def in_namespace(function, *arguments):
    """Run a test file's function as process 1 of private namespaces; its last line, as JSON."""
    module, name = function.__module__, function.__name__
    code = (
        f"import sys; sys.path.insert(0, sys.argv[1]); import {module} as t; "
        f"t.{name}(*sys.argv[2:])"
    )
    argv = [
        *NAMESPACE,
        sys.executable,
        "-c",
        code,
        str(Path(__file__).parent),
        *map(str, arguments),
    ]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    logs = "".join(
        f"--- {p.name}\n{p.read_text()[-3000:]}" for p in sorted(Path(arguments[0]).glob("*.out"))
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-3000:] + logs
    return json.loads(ran.stdout.splitlines()[-1])


def mn_and_ryu_manager(folder, app, file, topo, named=""):
    """The two commands of a user: ryu-manager on an app, mn on a topology file; every host pings
    every other.

    The app is told what fabric it steers where `named` is not empty.
    """
    prepare_namespace()
    ryu = [str(RYU_PYTHON), "-m", "ryu.cmd.manager", str(ROOT / "controller" / app)]
    mn = [
        "mn",
        "--custom",
        str(ROOT / "topologies" / file),
        "--topo",
        topo,
        "--controller",
        "remote",
    ]
    harmless = Path(folder, "bin")  # mn cleans up machine-wide after an exception: not from a test
    harmless.mkdir()
    for program in ("rm", "pkill", "killall"):
        (harmless / program).symlink_to("/bin/true")
    os.environ["PATH"] = f"{harmless}:{os.environ['PATH']}"
    with private_ovs(Path(folder)) as env, child(ryu, f"{folder}/ryu.out", RFABRIC_TOPO=named):
        os.environ.update(env, PATH=os.environ["PATH"])
        until(lambda: listens(6653), "ryu-manager to listen")
        ran = subprocess.run(
            [*mn, "--switch", "ovs,datapath=user", "--test", "pingall"],
            capture_output=True,
            text=True,
        )
        said = ran.stdout + ran.stderr
        assert "Results:" in said, said
        print(
            json.dumps(
                {"mn": said, "fabric": Client().health()["fabric"], "left": Client().get("/pairs")}
            )
        )


@WITHOUT_RYU
@pytest.mark.root
@pytest.mark.parametrize(
    ("app", "file", "topo"),
    [
        ("ocs.py", "rfabric.py", "rfabric,pods=2,tors=2,gpus=1"),
        ("ecmp.py", "fat_tree.py", "fat-tree,pods=2,tors=2,gpus=1"),
    ],
)
def test_mn_and_ryu_manager_need_no_settings(app, file, topo, run_dir):
    said = in_namespace(mn_and_ryu_manager, run_dir, app, file, topo)
    assert "Results: 0% dropped (12/12 received)" in said["mn"], said["mn"]
    assert said["fabric"].startswith(topo)
    assert len(said["left"]["routed"]) == 12 and said["left"]["pairs"] == []


@WITHOUT_RYU
@pytest.mark.root
@pytest.mark.parametrize(
    ("app", "topo"),
    [
        ("ecmp.py", "two-clusters,training=2,generation=2,gpus=2"),
        ("ocs.py", "mixnet,servers=2,gpus=2,region=1"),
        ("ocs.py", "opus,servers=2,gpus=2"),
    ],
)
def test_mn_and_ryu_manager_carry_other_fabrics_once_named(app, topo, run_dir):
    file = f"{topo.partition(',')[0].replace('-', '_')}.py"
    said = in_namespace(mn_and_ryu_manager, run_dir, app, file, topo, topo)
    assert "Results: 0% dropped (12/12 received)" in said["mn"], said["mn"]
    assert said["fabric"] == topo


DELAY = 0.1  # s: long enough that a loaded machine cannot hide it


@contextlib.contextmanager
def network_under_control(folder, spec, sdn="", words=()):
    """A started Mininet network of `spec` in switches of its own, its client, its controller, and
    the circuits that are lit: each pair of ToRs over every plane. words: what starts it instead.
    """
    prepare_namespace()
    from mininet.net import Mininet
    from mininet.node import OVSSwitch, RemoteController

    from rfabric.emulate.topo import topo_of

    fabric = parse_fabric(spec)
    with (
        private_ovs(Path(folder)) as env,
        child(words or command(spec, sdn=sdn), f"{folder}/control.out") as controller,
    ):
        os.environ.update(env)
        until(lambda: listens(6653) or controller.poll() is not None, "the controller to listen")
        Mininet.inited = True
        switch = functools.partial(OVSSwitch, datapath="user")
        net = Mininet(topo=topo_of(fabric), switch=switch, controller=None, build=False)
        net.addController("c0", RemoteController, ip="127.0.0.1", port=6653)
        net.build()
        net.start()
        client = Client()
        client.wait_ready(30)
        client.put_pairs(all_pairs(fabric))
        straight = light(fabric, dict.fromkeys(planes(fabric), [("t1", "t4"), ("t2", "t3")]))
        first = client.plan_circuits(straight)
        if first.rewire:
            client.commit(first.epoch)
        yield net, client, controller, straight


def rewire_with_probes(folder, sdn):
    """A small fabric under the controller: probed rewires, a frozen switch, a killed controller."""
    spec = f"rfabric,pods=2,tors=2,gpus=1,delay={DELAY * 1e3:g}ms"
    fabric = parse_fabric(spec)
    with network_under_control(folder, spec, sdn) as (net, client, controller, straight):
        told = {"lossless": ping(net, fabric)}
        told["probed"] = [
            probed(net, client, circuits) for circuits in (crossed(fabric, straight), straight)
        ]
        told["meanwhile"] = asked_meanwhile(client, crossed(fabric, straight), straight)
        told["frozen"] = frozen(folder, client, crossed(fabric, straight))
        told["after"] = ping(net, fabric)
        told["held"] = crossbar("a1") == {
            p.number: q.number for c in straight.of("a1") for p, q in (c, c[::-1])
        }
        controller.kill()
        controller.wait()
        with pytest.raises(RunError) as gone:
            client.plan_circuits(straight)
        told["gone"] = str(gone.value)
    print(json.dumps(told))


def crossed(fabric, circuits):
    """The same light paths over the other core cables: every circuit moves, no route does."""
    tors = fabric.parameters["tors"]

    def moved(port):
        if fabric.node[port.node].tier == "aggregation":
            up = port.number - tors
            return Port(port.node, port.number if up < 1 else tors + up % tors + 1)
        pod, up = divmod(port.number - 1, tors)
        return Port(port.node, pod * tors + (up + 1) % tors + 1)

    return Circuits(frozenset(Circuit.of(moved(c.a), moved(c.b)) for c in circuits))


def ping(net, fabric):
    """How many of all ordered host pairs answer a ping."""
    pairs = all_pairs(fabric)
    argv = [["mnexec", "-a", str(net[a].pid), "ping", "-c1", "-W5", net[b].IP()] for a, b in pairs]
    return [sum(subprocess.run(a, capture_output=True).returncode == 0 for a in argv), len(pairs)]


def probed(net, client, circuits):
    """A rewire with probes from h1 to h4 through it: the controller's record, the probes'."""
    source, sink = net["h1"], net["h4"]
    probe = [sys.executable, str(ROOT / "traffic/probe.py")]
    listen = [
        "mnexec",
        "-a",
        str(sink.pid),
        *probe,
        "listen",
        "--interface",
        "h4-eth1",
        "--seconds",
        "20",
    ]
    send = [
        "mnexec",
        "-a",
        str(source.pid),
        *probe,
        "send",
        "--interface",
        "h1-eth1",
        "--seconds",
        "2",
        "--interval-ms",
        "1",
    ]
    planned = client.plan_circuits(circuits, in_flight="drop")
    with subprocess.Popen(
        listen, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as listener:
        listener.stderr.readline()
        seen = "/sys/class/net/t1-eth1/statistics/rx_packets"
        before = int(Path(seen).read_text())
        with subprocess.Popen([*send, "--to-ip", sink.IP(), "--to-mac", sink.MAC()]) as sender:
            until(lambda: int(Path(seen).read_text()) > before + 200, "probes")
            done = client.commit(planned.epoch)
            sender.wait()
        report = json.loads(listener.communicate()[0])
    return {"commit": dataclasses.asdict(done), "probe": report}


def asked_meanwhile(client, *both):
    """States seen by other requests during a rewire five times as long, there and back."""
    seen = set()
    for circuits in both:
        planned = client.plan_circuits(circuits, time_dilation=5)
        commit = threading.Thread(target=client.commit, args=(planned.epoch,))
        commit.start()
        while commit.is_alive():
            seen.add((client.get("/epoch")["under_way"] or {"state": ""})["state"])
            seen |= {port["state"] for port in client.get("/ocs/a1")["ports"]}
    return sorted(seen)


def frozen(folder, client, circuits):
    """A commit while ovs-vswitchd stands still: the error, and the plan's state afterwards."""
    planned, vswitchd = (
        client.plan_circuits(circuits),
        int((Path(folder) / "ovs-vswitchd.pid").read_text()),
    )
    os.kill(vswitchd, signal.SIGSTOP)
    try:
        with pytest.raises(RunError) as error:
            client.commit(planned.epoch)
    finally:
        os.kill(vswitchd, signal.SIGCONT)
    client.wait_ready(30)
    return {
        "error": str(error.value),
        "state": client.get(f"/plans/{planned.epoch}")["state"],
        "epoch": client.epoch(),
    }


def crossbar(bridge):
    """in-port -> out-port of a real bridge, as ovs-ofctl sees it."""
    dump = ["ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "--no-names", "dump-flows", bridge]
    flows = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    return {int(a): int(b) for a, b in re.findall(r"in_port=(\d+) actions=output:(\d+)", flows)}


@pytest.mark.root
@pytest.mark.parametrize("sdn", [pytest.param("ryu", marks=WITHOUT_RYU), "os-ken"])
def test_a_rewire_with_real_switches(sdn, run_dir):
    pytest.importorskip("scapy", reason="no scapy: pip install 'rfabric[probe]'")
    said = in_namespace(rewire_with_probes, run_dir, sdn)
    assert said["lossless"] == said["after"] == [12, 12]
    for run in said["probed"]:
        done, probe = run["commit"], run["probe"]
        longest = max(probe["gaps"], key=lambda gap: gap["to_s"] - gap["from_s"])
        assert done["dark_until"] - done["programmed"] == pytest.approx(DELAY)
        # Dark as long as configured: not shorter but for what switches after the circuit did with
        # the last packet before it, not longer than the rewire.
        assert probe["longest_gap_s"] > 0.8 * DELAY
        assert (
            longest["from_s"] > done["requested"] - 0.05 and longest["to_s"] < done["usable"] + 0.05
        )
        frame = 14 + 20 + 8 + 20
        assert done["lost_bytes"] == pytest.approx(frame * longest["lost"], rel=0.3)
    assert "did not answer within 1 s; circuits of epoch" in said["frozen"]["error"].replace(
        "; a2", ""
    )
    assert {"DARK", "PENDING_CONNECTION", "CONNECTED"} <= set(said["meanwhile"])
    assert said["frozen"]["state"] == "ABORTED" and said["held"]
    assert "the controller at http://127.0.0.1:8080 is gone" in said["gone"]

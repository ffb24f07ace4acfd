"""The core over fake switches: what arrives, what a rewire touches and for how long it is dark, and
the way back from one that fails.
"""

import itertools
import random

import numpy as np
import pytest
from ground import SMALL, all_pairs, controlled, demand_of, explicit, inside_pods, other_circuits
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.control import schema
from rfabric.control.core import RolledBackError, UnavailableError, _in_one_order
from rfabric.control.epochs import MESSAGE_S, TIMEOUT, violations
from rfabric.control.schema import Intent, PlanRequest
from rfabric.control.switches import crossbar_of
from rfabric.errors import RFabricError, RunError
from rfabric.fabric import Port, fat_tree, rfabric
from rfabric.optics import Circuit, Circuits, Rewire, light, planes
from rfabric.optics.check import faults_during
from rfabric.routing import LightPath
from rfabric.routing.schemes import Routing, Sent

WCMP = Routing("wcmp")

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


def test_pairs_may_come_one_by_one():
    core, switches = controlled()
    assert core.set_pairs(pair for pair in [("h1", "h5")])["pairs"] == 1
    assert switches.where_lost("h1", "h5") == switches.where_lost("h5", "h1") == ""


def test_plans_survive_pairs_learned_after_them():
    core, switches = controlled()
    plan, _, _ = core.plan(explicit(other_circuits(SMALL), pairs=(("h1", "h3"),)))
    core.learn([("h2", "h8")])
    core.commit(plan.epoch)
    for pair in (("h1", "h3"), ("h3", "h1"), ("h2", "h8"), ("h8", "h2")):
        assert switches.where_lost(*pair) == "" and pair in core.pairs

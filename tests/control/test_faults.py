"""What a controller does where switches fail or it was cut short itself: in which order, how long
it stays dark, and whom it asks.
"""

import logging
from itertools import pairwise

import pytest
from ground import SMALL, all_pairs, controlled, explicit, inside_pods, other_circuits

from rfabric.control import flowmods
from rfabric.control.core import Core, RolledBackError
from rfabric.control.fake import FakeClock, FakeSwitches
from rfabric.control.journal import Journal
from rfabric.control.schema import Intent, PlanRequest
from rfabric.control.switches import crossbar_of
from rfabric.fabric import rfabric
from rfabric.optics import Circuits, Decision, Demand, Rewire

DILATION = 3.0
DARK = DILATION * SMALL.reconfig_delay
OCSES = {node.dpid for node in SMALL.ocses}


class Killed(BaseException):
    """The end of a controller, at an instant of our choice."""


class Heard(FakeSwitches):
    """Keeps what each of its pushes changed: when it began, of which switch, what it was."""

    def push(self, messages, timeout_s):
        at = self.clock.now()
        self.__dict__.setdefault("told", []).extend(
            (at, dpid, flowmods.decode(wire)[0])
            for dpid, wires in messages.items()
            for wire in wires
            if wire[1] == flowmods.FLOW_MOD
        )
        return super().push(messages, timeout_s)

    def when(self, kind, ocses=True):
        """The instants at which OCSes, or else packet switches, were told to add or delete."""
        return [at for at, dpid, k in self.told if k == kind and (dpid in OCSES) is ocses]


def heard(folder=None):
    switches = Heard(SMALL, FakeClock(step=1e-3))
    return begun(switches, folder), switches


def begun(switches, folder=None):
    journal = Journal(folder, SMALL) if folder else None
    core = Core(SMALL, switches, switches.clock, journal=journal)
    core.connected(core.name_of)
    return core


def cut_short(folder, core, switches, where, at=1):
    """Kill the controller when it calls `where` of its switches or clock for the `at`th time in a
    commit; the next one, before it has seen a switch.
    """
    plan, _, _ = core.plan(explicit(other_circuits(SMALL), time_dilation=DILATION))
    owner = switches.clock if where == "sleep_until" else switches
    real, calls = getattr(owner, where), []

    def killing(*what):
        calls.append(what)
        if len(calls) == at:
            raise Killed
        return real(*what)

    setattr(owner, where, killing)
    with pytest.raises(Killed):
        core.commit(plan.epoch)
    setattr(owner, where, real)
    core.journal.close()
    switches.told.clear()
    return Core(SMALL, switches, switches.clock, journal=Journal(folder, SMALL)), plan


def lit(switches):
    """The circuits that are there both ways."""
    crossbars = {n.name: crossbar_of(switches.tables[n.dpid]) for n in SMALL.ocses}
    return Circuits.from_json(
        f"{name}:{a}-{b}"
        for name, cross in crossbars.items()
        for a, b in cross.items()
        if a < b and cross.get(b) == a
    )


# --- a controller that was cut short --------------------------------------------------------------


def test_a_rewire_that_was_all_done_is_finished_without_a_touch(tmp_path):
    core, switches = heard(tmp_path)
    core.set_pairs(all_pairs(SMALL)[:5])
    after, plan = cut_short(tmp_path, core, switches, "flows")  # by which it is read back
    began = switches.clock.now()
    after.connected(after.name_of)
    assert after.epochs.active == plan.epoch and after.ready and not switches.told
    assert switches.clock.now() - began < SMALL.reconfig_delay
    assert lit(switches) == after.epochs.circuits == other_circuits(SMALL)
    after.journal.close()


def test_circuits_that_come_back_after_a_restart_do_so_after_the_dark_time(tmp_path):
    core, switches = heard(tmp_path)
    core.set_pairs(all_pairs(SMALL))
    before = core.epochs.circuits
    after, plan = cut_short(tmp_path, core, switches, "push", at=4)  # before any comes up
    began = switches.clock.now()
    after.connected(after.name_of)
    assert after.epochs.plan(plan.epoch).state == "ABORTED" and after.ready
    assert lit(switches) == after.epochs.circuits == before
    routes, adds = switches.when(flowmods.ADD, ocses=False), switches.when(flowmods.ADD)
    assert routes and not switches.when(flowmods.DELETE_STRICT)
    assert began + DARK <= min(adds) <= max(adds) < began + DARK + 0.1
    assert max(routes) <= min(adds) - DARK  # they change while it is dark
    after.journal.close()


def test_a_rollback_that_was_cut_short_takes_new_circuits_down_first(tmp_path):
    core, switches = heard(tmp_path)
    core.set_pairs(all_pairs(SMALL))
    before, push = core.epochs.circuits, switches.push

    def refusing(messages, timeout_s):
        plan = core.epochs.under_way
        switches.moods = {"a1": "refusing"} if plan and plan.state == "LIGHTING" else {}
        return push(messages, timeout_s)

    switches.push = refusing
    after, plan = cut_short(tmp_path, core, switches, "push", at=5)  # the first of the way back
    switches.push, switches.moods = push, {}
    assert after.epochs.plan(plan.epoch).state == "ROLLBACK"
    after.connected(after.name_of)
    assert lit(switches) == after.epochs.circuits == before and after.ready
    strikes, adds = switches.when(flowmods.DELETE_STRICT), switches.when(flowmods.ADD)
    assert strikes and max(strikes) + DARK <= min(adds)
    after.journal.close()


def test_what_was_cut_short_waits_until_its_own_ocses_are_there(tmp_path):
    core, switches = heard(tmp_path)
    after, plan = cut_short(tmp_path, core, switches, "push", at=4)
    moved = {c.a.node for some in (plan.rewire.down, plan.rewire.up) for c in some}
    everybody = {node.name for node in SMALL.switches}
    switches.away = set(everybody)
    after.restore()  # nobody is there to be asked
    assert after.epochs.under_way
    one = min(moved)
    for away in (everybody - moved | {one}, everybody - moved):
        switches.away = away
        after.connected([d for d, name in after.name_of.items() if name not in away])
        assert bool(after.epochs.under_way) is (one in away)
    assert after.synced == moved
    after.journal.close()


# --- a rewire that fails --------------------------------------------------------------------------


def test_the_way_back_is_as_dark_as_the_way_there():
    core, switches = heard()
    push = switches.push

    def refusing(messages, timeout_s):
        plan = core.epochs.under_way
        switches.moods = {"a1": "refusing"} if plan and plan.state == "LIGHTING" else {}
        return push(messages, timeout_s)

    switches.push = refusing
    plan, _, _ = core.plan(explicit(other_circuits(SMALL), time_dilation=DILATION))
    switches.told.clear()
    with pytest.raises(RolledBackError):
        core.commit(plan.epoch)
    a2 = SMALL.node["a2"].dpid
    told = [(at, kind) for at, dpid, kind in switches.told if dpid == a2]
    turns = [at for (_, kind), (at, then) in pairwise(told) if kind != then]
    assert [kind for _, kind in told][:: len(told) - 1] == [flowmods.DELETE_STRICT, flowmods.ADD]
    up, back_down, back_up = turns
    assert back_up - back_down >= DARK and back_up - back_down < DARK + 0.1 and up < back_down


def test_who_is_silent_is_not_waited_for_at_each_step_of_the_way_back():
    core, switches = heard()
    core.set_pairs(all_pairs(SMALL))
    plan, _, _ = core.plan(explicit(other_circuits(SMALL)))
    switches.moods["c1"] = "silent"
    began = switches.clock.now()
    with pytest.raises(RolledBackError):
        core.commit(plan.epoch)
    assert switches.clock.now() - began < 2.5  # once in the commit, once whether it is back


def test_an_ocs_that_does_not_say_what_it_holds_is_told_from_one_that_holds_something_else():
    core, switches = controlled()
    flows = switches.flows

    def silent(asked, timeout_s):
        switches.moods["a1"] = "silent"
        return flows(asked, timeout_s)

    switches.flows = silent
    plan, _, _ = core.plan(explicit(other_circuits(SMALL)))
    with pytest.raises(RolledBackError, match="a1 did not say what it holds within 1 s; circuits"):
        core.commit(plan.epoch)


def test_bytes_are_lost_from_the_first_count_on():
    """A port that nobody had counted before had received nothing."""
    core, switches = controlled()
    plan, _, _ = core.plan(explicit(other_circuits(SMALL)))
    dark = {p for some in (plan.rewire.down, plan.rewire.up) for c in some for p in c}
    counts = {}

    def received(dpid):
        counts[dpid] = counts.get(dpid, 0) + 1
        return {} if counts[dpid] == 1 else {p.number: 50 for p in SMALL.ports[core.name_of[dpid]]}

    switches.received = received
    assert core.commit(plan.epoch).lost_bytes == 50 * len(dark)


# --- who is out -----------------------------------------------------------------------------------


def planned(core, **kind):
    request = PlanRequest(Intent("demand", inside_pods(**kind)), pairs=())
    plan, decision, _ = core.plan(request)
    if plan:
        core.abort(plan.epoch)
    return plan, decision


def test_a_plan_leaves_what_is_out_as_it_is_and_moves_the_rest():
    core, _ = controlled()
    whole, now = planned(core)[1], core.epochs.circuits
    moved = sorted({c.a.node for some in (whole.rewire.down, whole.rewire.up) for c in some})
    assert len(moved) > 1
    core.out = frozenset(moved[:1])
    plan, some = planned(core)
    assert some.why == plan.why == f"{whole.why}; without {moved[0]}"
    for node in SMALL.ocses:
        wanted = now if node.name == moved[0] else whole.circuits
        assert some.circuits.of(node.name) == wanted.of(node.name)
    assert moved[0] not in {c.a.node for c in (*some.rewire.down, *some.rewire.up)}
    core.out = frozenset(moved)
    plan, none = planned(core)
    assert plan is None and not none.rewire and none.circuits == now
    assert none.why == f"{whole.why}; without {', '.join(moved)}"


def test_a_plan_that_touches_nothing_of_what_is_out_is_as_it_would_be():
    core, _ = controlled()
    whole = planned(core)[1]
    core.out = frozenset({"elsewhere"})
    assert core._around(whole, frozenset()) is whole
    core.out = frozenset(node.name for node in SMALL.ocses)
    quiet = PlanRequest(Intent("demand", Demand.none(SMALL.racks)), pairs=())
    plan, decision, _ = core.plan(quiet)
    assert plan is None and "without" not in decision.why


def test_a_switch_that_is_back_by_then_is_not_out():
    core, switches = controlled()
    a1, a2 = (SMALL.node[name].dpid for name in ("a1", "a2"))
    switches.away = {"a2"}
    core.gone([a1, a2])
    assert core.out == {"a2"} and core.waiting_for == ["a2"]


def test_only_ocses_that_were_told_something_are_asked_what_they_hold():
    core, switches = heard()
    flows, asked = switches.flows, []
    switches.flows = lambda who, timeout_s: asked.append(set(who)) or flows(who, timeout_s)
    core.set_pairs(all_pairs(SMALL))
    core.connected(core.name_of)
    assert asked == [set(core.name_of)]  # all is in order
    a1, t1 = (SMALL.node[name].dpid for name in ("a1", "t1"))
    for dpid in (a1, t1):
        switches.tables[dpid].popitem()
    asked.clear()
    core.connected(core.name_of)
    assert asked == [set(core.name_of), {a1}]


def test_rules_that_are_not_taken_are_logged(caplog):
    caplog.set_level(logging.ERROR)
    core, switches = controlled()
    assert not caplog.records
    switches.moods["t1"] = "refusing"
    switches.tables[SMALL.node["t1"].dpid].clear()
    core.disconnected(SMALL.node["t1"].dpid)
    core.connected([SMALL.node["t1"].dpid])
    assert "rules not taken: switch 0x1000000 refused message 0" in caplog.text
    assert core.waiting_for == ["t1"]


# --- what is answered -----------------------------------------------------------------------------


def test_it_is_told_when_a_demand_will_have_arrived_where_it_has_a_way():
    """Circuits of the start lead from pod to pod; without an electrical path nothing else does."""
    fabric = rfabric(pods=2, tors=2, gpus=1, electrical=0)
    for whole, arrives in ((SMALL, True), (fabric, False)):
        core, _ = controlled(whole)
        now, request = core.epochs.circuits, PlanRequest(Intent("static", inside_pods()), pairs=())
        stays = Decision(Rewire.between(now, now), "it waits", now)
        seconds = core.completion(request, stays)
        assert (seconds is not None and seconds > 0) is arrives
        assert core.completion(explicit(now), stays) is None

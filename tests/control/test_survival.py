"""A controller that is killed, and the one that comes after it; switches and fibres that fail."""

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from ground import SMALL, all_pairs, demand_of, explicit, other_circuits
from peers import Peers
from real import ROOT, RYU_PYTHON, WITHOUT_RYU, child, free_port, listens, until
from test_seam import FakeSwitch

from rfabric.control import epochs
from rfabric.control.alone import HeldError
from rfabric.control.client import Client
from rfabric.control.core import LONGEST_WAIT_S, Core, RolledBackError, UnavailableError
from rfabric.control.epochs import StateError, violations
from rfabric.control.fake import FakeClock, FakeSwitches
from rfabric.control.flowmods import MASTER
from rfabric.control.journal import Journal, folder_of
from rfabric.control.launch import ENVIRONMENT, command, control_options
from rfabric.control.recovery import PLAN_LIFE_S
from rfabric.control.schema import Intent, PlanRequest
from rfabric.control.switches import crossbar_of
from rfabric.emulate.live import start_controller
from rfabric.errors import RFabricError, RunError
from rfabric.fabric import Port, host_ip, rfabric
from rfabric.optics import Circuits, Demand, parse_policy
from rfabric.routing.schemes import Routing

PAIRS = all_pairs(SMALL)
SPEC = "rfabric,pods=2,tors=2,gpus=2"


class Killed(BaseException):
    """The end of a controller, at an instant of our choice."""


class Mortal(FakeSwitches):
    """Switches that watch over their crossbars, and kill their controller after `left` steps: each
    flow-mod they take is one, and so are asking and answering.
    """

    left = None
    steps = 0
    kept = Circuits()  # what no rewire touches

    def step(self):
        self.steps += 1
        self.watch()
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                raise Killed

    def watch(self):
        for node in self.fabric.ocses:
            cross = crossbar_of(self.tables[node.dpid])
            assert len(set(cross.values())) == len(cross), f"{node.name}: a port in two circuits"
            assert all(cross.get(b, a) == a for a, b in cross.items()), f"{node.name}: {cross}"
        assert not self.kept.items - self.lit().items

    def lit(self):
        """The circuits that are there both ways."""
        both = set()
        for node in self.fabric.ocses:
            cross = crossbar_of(self.tables[node.dpid])
            both |= {
                f"{node.name}:{a}-{b}" for a, b in cross.items() if a < b and cross.get(b) == a
            }
        return Circuits.from_json(both)

    def push(self, messages, timeout_s):
        self.step()
        done = super().push(messages, timeout_s)
        self.step()
        return done

    def flows(self, asked, timeout_s):
        self.step()
        return super().flows(asked, timeout_s)

    def _take(self, dpid, wires):
        for wire in wires:
            self.step()
            super()._take(dpid, [wire])


class MortalJournal(Journal):
    """A journal that may be the last thing a controller writes, or nearly."""

    switches = None

    def write(self, facts, decision=""):
        if self.switches:
            self.switches.step()
        super().write(facts, decision)
        if self.switches:
            self.switches.step()


def started(folder, switches, fabric=SMALL):
    journal = MortalJournal(folder, fabric)
    journal.switches = switches if isinstance(switches, Mortal) else None
    try:
        core = Core(fabric, switches, switches.clock, journal=journal)
        core.connected(core.name_of)
    except BaseException:
        journal.close()
        raise
    return core


def restarted(folder, switches, fabric=SMALL):
    """The controller after the next, should the next die as well."""
    while True:
        try:
            return started(folder, switches, fabric)
        except Killed:
            switches.left = None


def rewired(core, wanted):
    return core.commit(core.plan(explicit(wanted))[0].epoch)


def steps_of_a_rewire(folder):
    core = started(folder, switches := Mortal(SMALL, FakeClock(step=1e-3)))
    core.set_pairs(PAIRS[::7])
    plan = core.plan(explicit(other_circuits(SMALL)))[0]
    before = switches.steps
    core.commit(plan.epoch)
    core.journal.close()
    return switches.steps - before


def test_whenever_it_dies_the_next_one_finds_the_circuits_before_or_after(tmp_path):
    rng = random.Random(4)
    steps, ends = steps_of_a_rewire(tmp_path / "once"), Counter()
    for life in range(200):
        folder = tmp_path / str(life)
        core = started(folder, switches := Mortal(SMALL, FakeClock(step=1e-3)))
        core.set_pairs(PAIRS[::7])
        before, after = core.epochs.circuits, other_circuits(SMALL)
        plan = core.plan(explicit(after))[0]
        spare = core.plan(explicit([*after][1:]))[0]
        switches.kept = Circuits(before.items & after.items)
        switches.left = rng.randint(1, steps)
        with pytest.raises(Killed):
            core.commit(plan.epoch)
        core.journal.close()
        switches.left = rng.choice([None, rng.randint(1, 60)])  # it may die again
        core = restarted(folder, switches)
        switches.left = None
        lit, state = switches.lit(), core.epochs.plan(plan.epoch).state
        assert lit == core.epochs.circuits == (after if state == "ACTIVE" else before)
        assert core.ready and not violations(core.epochs) and core.demanded == frozenset(PAIRS[::7])
        assert not any(switches.where_lost(*pair) for pair in PAIRS[::7])
        other = core.epochs.plan(spare.epoch).state
        assert (state, other) in (
            ("ACTIVE", "ABORTED"), ("ABORTED", "PREPARED"), ("PREPARED", "PREPARED")
        )  # fmt: skip
        if other == "PREPARED":
            assert core.commit(spare.epoch).state == "ACTIVE"
        core.journal.close()
        ends[state] += 1
    assert ends["ACTIVE"] > 20 and ends["ABORTED"] > 20, ends


def test_an_idle_restart_touches_nothing(tmp_path):
    core = started(tmp_path, switches := FakeSwitches(SMALL))
    core.set_pairs(PAIRS[:9], Routing("ecmp"))
    core.learn([("h8", "h1")])
    rewired(core, other_circuits(SMALL))
    plan = core.plan(explicit([], pairs=(("h2", "h7"),)))[0]
    old, sent = core, Counter(switches.sent)
    core.journal.close()
    core = started(tmp_path, switches)
    assert Counter(switches.sent) == sent and core.ready
    assert (core.epochs.circuits, core.epochs.active) == (old.epochs.circuits, 1)
    assert (core.pairs, core.demanded, core.table) == (old.pairs, old.demanded, old.table)
    assert core.epochs.plan(plan.epoch) == plan
    assert "recovered from" in core.said[-1] and "epoch 1" in core.said[-1]
    core.commit(plan.epoch)
    assert switches.where_lost("h2", "h7") == "" and not len(core.epochs.circuits)


def test_what_was_lit_by_nobody_goes_and_what_is_missing_comes(tmp_path):
    core = started(tmp_path, switches := FakeSwitches(SMALL))
    core.set_pairs(PAIRS)
    a1, t1 = (SMALL.node[name].dpid for name in ("a1", "t1"))
    whole = {d: dict(table) for d, table in switches.tables.items()}
    switches.tables[a1].popitem()
    switches.tables[t1].pop(next(key for key in switches.tables[t1] if key[0] == 200))
    sent = sum(switches.sent.values())
    core.connected([a1, t1])
    assert {d: set(table) for d, table in switches.tables.items()} == {
        d: set(table) for d, table in whole.items()
    }
    assert sum(switches.sent.values()) == sent + 2


def test_a_plan_cut_short_waits_for_its_switches_but_not_for_ever(tmp_path):
    core = started(tmp_path, switches := Mortal(SMALL, FakeClock(step=1e-3)))
    plan = core.plan(explicit(other_circuits(SMALL)))[0]
    switches.left = 12
    with pytest.raises(Killed):
        core.commit(plan.epoch)
    core.journal.close()
    switches.left, switches.away = None, {"a1"}
    core = started(tmp_path, switches)
    assert core.epochs.under_way and not core.synced
    with pytest.raises(StateError, match="plan 1 must wait: plan 1 was cut short"):
        core.commit(plan.epoch)
    core.restore()  # a1 does not come
    assert core.epochs.under_way is None and core.waiting_for == ["a1"]
    switches.away = set()
    core.connected([SMALL.node["a1"].dpid])
    assert core.ready and switches.lit() == core.epochs.circuits


# --- errors -----------------------------------------------------------------------------------


def test_any_error_in_a_commit_brings_the_circuits_back():
    switches = FakeSwitches(SMALL, FakeClock(step=1e-3))
    core = Core(SMALL, switches, switches.clock)
    core.connected(core.name_of)
    before, sleep = core.epochs.circuits, switches.clock.sleep_until

    def failing(instant):
        switches.clock.sleep_until = sleep
        raise OverflowError("timestamp too large")

    plan = core.plan(explicit(other_circuits(SMALL)))[0]
    switches.clock.sleep_until = failing
    with pytest.raises(RolledBackError, match="plan 1 failed: .*circuits of epoch 0 are back"):
        core._carry_out, carry = (lambda *a: (carry(*a), failing(0))), core._carry_out
        core.commit(plan.epoch)
    core._carry_out = carry
    assert core.epochs.plan(1).state == "ABORTED" and core.epochs.circuits == before
    assert rewired(core, other_circuits(SMALL)).state == "ACTIVE"


@pytest.mark.parametrize("delay", [None, 0.0])
def test_a_dilation_that_would_keep_it_dark_for_ever_is_refused_or_rolled_back(delay):
    switches = FakeSwitches(SMALL, FakeClock(step=1e-3))
    core = Core(SMALL, switches, switches.clock)
    core.connected(core.name_of)
    request = explicit(other_circuits(SMALL), time_dilation=1e300, delay=delay)
    if delay is None:
        with pytest.raises(
            RFabricError, match="the OCS delay of 10 ms would take 1e.298 s, the li"
        ):
            core.plan(request)
    else:
        plan = core.plan(request)[0]
        with pytest.raises(RolledBackError, match="lower time_dilation; circuits of epoch 0"):
            core.commit(plan.epoch)
    assert switches.clock.now() < LONGEST_WAIT_S
    assert rewired(core, other_circuits(SMALL)).state == "ACTIVE"


def test_a_disk_that_takes_nothing_rolls_back_and_is_named(tmp_path):
    core = started(tmp_path, FakeSwitches(SMALL, FakeClock(step=1e-3)))
    before, write = core.epochs.circuits, core.journal.write
    plan = core.plan(explicit(other_circuits(SMALL)))[0]

    def full(facts, decision=""):
        raise RunError("journal: database or disk is full")

    core.journal.write = full
    with pytest.raises(RunError, match="disk is full"):
        core.plan(explicit([]))
    with pytest.raises(RunError, match="disk is full"):  # before anything was sent
        core.commit(plan.epoch)
    assert core.epochs.plan(plan.epoch).state == "PREPARED" and not core.epochs.under_way
    core.journal.write = lambda facts, decision="": (
        full(facts) if "epoch" in facts and facts["epoch"]["active"] else write(facts, decision)
    )
    with pytest.raises(RolledBackError, match="disk is full; circuits of epoch 0 are back"):
        core.commit(plan.epoch)
    assert core.epochs.circuits == before


def test_plans_that_nobody_commits_expire(tmp_path):
    core = started(tmp_path, switches := FakeSwitches(SMALL))
    plan = core.plan(explicit(other_circuits(SMALL)))[0]
    switches.clock.at += PLAN_LIFE_S + 1
    with pytest.raises(StateError, match="plan 1 is ABORTED .*: not committed within 3600 s"):
        core.commit(plan.epoch)
    assert rewired(core, other_circuits(SMALL)).state == "ACTIVE"
    core.journal.close()
    assert started(tmp_path, switches).epochs.plan(1).state == "ABORTED"


# --- faults -----------------------------------------------------------------------------------


def controlled(fabric=SMALL):
    switches = FakeSwitches(fabric, FakeClock(step=1e-3))
    core = Core(fabric, switches, switches.clock)
    core.connected(core.name_of)
    core.set_pairs(all_pairs(fabric))
    return core, switches


def crosses(core, name):
    """Whether any pair's route leads to the OCS."""
    ports = {core.fabric.peer[port][1] for port in core.fabric.ports[name]}
    return any(
        Port(switch, rule.out) in ports for (switch, match), rule in core.table.items()
        if match[0] == "pair"
    )  # fmt: skip


def test_an_ocs_that_programs_half_is_gone_around_within_its_delay():
    core, switches = controlled()
    flows, failed_at = switches.flows, []

    def half(asked, timeout_s):
        if not failed_at:
            switches.tables[SMALL.node["a1"].dpid].popitem()
            switches.moods["a1"] = "forgetful"
            failed_at.append(switches.clock.now())
        return flows(asked, timeout_s)

    switches.flows = half
    with pytest.raises(RolledBackError, match="a1 does not hold what was intended"):
        rewired(core, other_circuits(SMALL))
    assert switches.clock.now() - failed_at[0] <= SMALL.reconfig_delay + 0.05
    assert core.out == {"a1"} and not crosses(core, "a1") and crosses(core, "a2")
    assert not any(switches.where_lost(*pair) for pair in PAIRS)
    plan, decision, _ = core.plan(PlanRequest(Intent("demand", demand_of(SMALL, seed=3))))
    if plan:
        assert "without a1" in decision.why or not {
            c for c in (*plan.rewire.down, *plan.rewire.up) if c.a.node == "a1"
        }
        assert core.commit(plan.epoch).state == "ACTIVE"
    switches.moods.clear()
    core.restore()
    assert core.ready and not core.out and crosses(core, "a1")
    assert not any(switches.where_lost(*pair) for pair in PAIRS)


@pytest.mark.parametrize("mood", ["silent", "refusing", "forgetful"])
def test_an_ocs_that_does_nothing_stays_out_until_it_does_something(mood):
    core, switches = controlled()
    switches.moods["a1"] = mood
    with pytest.raises(RolledBackError):
        rewired(core, other_circuits(SMALL))
    core.restore()
    assert core.out == {"a1"} and not crosses(core, "a1")
    assert not any(switches.where_lost(*pair) for pair in PAIRS)
    switches.moods.clear()
    core.restore()
    assert not core.out and rewired(core, other_circuits(SMALL)).state == "ACTIVE"


def test_a_fibre_that_dies_is_gone_around_and_back():
    core, switches = controlled()
    used = next(rule for (switch, match), rule in core.table.items()
                if switch == "t1" and match[0] == "pair" and rule.out > 2)  # fmt: skip
    port = Port("t1", used.out)
    before = dict(core.table)
    core.unlit([port])
    assert not any(
        rule.out == port.number for (switch, match), rule in core.table.items()
        if switch == "t1" and match[0] == "pair"
    )  # fmt: skip
    assert not any(switches.where_lost(*pair) for pair in PAIRS)
    core.unlit([])
    assert core.table == before


def test_what_an_ocs_proved_to_the_controller_before_is_no_proof_for_the_next():
    core, switches = controlled()
    switches.moods["a1"] = "silent"
    with pytest.raises(RolledBackError):
        rewired(core, other_circuits(SMALL))
    switches.moods.clear()
    core.restore()
    assert not core.out  # a1 holds what it was given as a proof
    after = Core(SMALL, switches, switches.clock)
    after.connected(after.name_of)
    after.set_pairs(PAIRS)
    switches.moods["a1"] = "forgetful"
    with pytest.raises(RolledBackError):
        rewired(after, other_circuits(SMALL))
    after.restore()
    assert after.out == {"a1"}


def test_where_there_is_no_other_way_the_only_one_is_kept():
    fabric = rfabric(pods=1, tors=2, gpus=1, electrical=0)
    core, switches = controlled(fabric)
    switches.away.add("a1")
    core.gone([fabric.node["a1"].dpid])
    assert "a1" in core.out and switches.where_lost("h1", "h2") == ""


def test_explicit_circuits_on_an_ocs_that_is_out_are_refused_before_they_are_tried():
    core, switches = controlled()
    switches.moods["a1"] = "forgetful"
    with pytest.raises(RolledBackError):
        rewired(core, other_circuits(SMALL))
    number, stay = len(core.epochs.plans), core.epochs.circuits.of("a1").to_json()
    with pytest.raises(UnavailableError, match="a1 does not do what it is told") as refused:
        core.plan(explicit(other_circuits(SMALL)))
    assert ", ".join(stay) in str(refused.value) and len(core.epochs.plans) == number
    others = [c for c in other_circuits(SMALL) if c.a.node != "a1"]
    kept = [*core.epochs.circuits.of("a1")]
    assert rewired(core, Circuits(others + kept)).state == "ACTIVE"  # the way out
    switches.moods.clear()
    assert rewired(core, other_circuits(SMALL)).state == "ACTIVE"


def test_only_what_changed_is_read_back():
    core, switches = controlled()
    first = next(iter(core.epochs.circuits))
    wanted = Circuits(core.epochs.circuits.items - {first})
    flows, read = switches.flows, []

    def counting(asked, timeout_s):
        held = flows(asked, timeout_s)
        read.extend(entry for entries in held.values() for entry in entries.values())
        return held

    switches.flows = counting
    rewired(core, wanted)
    assert not read  # two ports went, nothing came
    rewired(core, Circuits(wanted.items | {first}))
    assert len(read) == 2 and {entry.cookie for entry in read} == {2}


@pytest.mark.parametrize("change", ["stays", "missing", "elsewhere"])
def test_every_port_that_changed_is_compared(change):
    core, switches = controlled()
    first = next(iter(core.epochs.circuits))
    dpid, key = SMALL.node[first.a.node].dpid, (100, (("in_port", first.a.number),))
    entry, flows = switches.tables[dpid][key], switches.flows
    coming = change != "stays"
    wanted = Circuits(core.epochs.circuits.items - {first})
    if coming:
        rewired(core, wanted)
        wanted = Circuits(wanted.items | {first})

    def meddled(asked, timeout_s):
        switches.flows = flows
        if change == "missing":
            del switches.tables[dpid][key]
        else:
            out = first.a.number if coming else entry.out
            cookie = core.epochs.last.epoch if coming else entry.cookie
            switches.tables[dpid][key] = replace(entry, out=out, cookie=cookie)
        return flows(asked, timeout_s)

    switches.flows = meddled
    with pytest.raises(RolledBackError, match=f"not hold what .* at ports {first.a.number};"):
        rewired(core, wanted)
    assert switches.tables[dpid].get(key, entry).out == entry.out


# --- one of each ------------------------------------------------------------------------------


def test_a_fabric_has_one_controller(tmp_path):
    first = Journal(tmp_path, SMALL)
    with pytest.raises(HeldError, match="fabric rfabric is under the control of process") as error:
        Journal(tmp_path, SMALL)
    assert error.value.pid > 1
    Journal(tmp_path, rfabric(pods=1)).close()  # another fabric has a journal of its own
    first.close()
    Journal(tmp_path, SMALL).close()


def test_the_controller_of_an_emulation_keeps_and_finds_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RFABRIC_JOURNAL", str(tmp_path / "mine"))
    monkeypatch.setenv("RFABRIC_STANDBY", "1")
    started = []
    box = SimpleNamespace(start=lambda *words: started.append(words))
    start_controller(box, SMALL, tmp_path)
    (_, argv, env), parser = started[0], argparse.ArgumentParser()
    control_options(parser)
    said = vars(parser.parse_args(argv[3:]))
    env |= {ENVIRONMENT[key]: said[key] for key in ("journal", "standby") if said[key]}
    assert folder_of(env) is None and not env["RFABRIC_STANDBY"]


@pytest.mark.parametrize(
    ("environment", "root", "folder"),
    [
        ({"RFABRIC_JOURNAL": "here", "XDG_STATE_HOME": "/x"}, True, "here"),
        ({"RFABRIC_JOURNAL": "none", "XDG_STATE_HOME": "/x"}, True, None),
        ({"XDG_STATE_HOME": "/x"}, True, "/x/rfabric"),
        ({}, True, "/var/lib/rfabric"),
        ({}, False, str(Path("~/.local/state/rfabric").expanduser())),
    ],
)
def test_where_the_journals_lie(environment, root, folder, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    assert folder_of(environment) == (Path(folder) if folder else None)


def test_plans_that_are_forgotten_leave_the_journal(tmp_path, monkeypatch):
    monkeypatch.setattr(epochs, "MAX_PLANS", 3)
    core = started(tmp_path, switches := FakeSwitches(SMALL))
    for _ in range(6):
        core.abort(core.plan(explicit(other_circuits(SMALL)))[0].epoch)
    known = dict(core.epochs.plans)
    core.journal.close()
    assert started(tmp_path, switches).epochs.plans == known and len(known) == 3


def test_a_rewire_after_its_first_plans_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(epochs, "MAX_PLANS", 3)
    core = started(tmp_path, FakeSwitches(SMALL))
    for wanted in [other_circuits(SMALL), Circuits()] * 4:
        assert rewired(core, wanted).state == "ACTIVE"
    assert len(core.epochs.plans) == 3 and not core._meant
    assert [name for name in core.journal.read() if name.startswith("pairs/")] == []


def test_a_plan_that_was_made_first_of_all_is_remembered(tmp_path):
    core = started(tmp_path, switches := FakeSwitches(SMALL))
    assert not core.said  # there was nothing to recover
    plan = core.plan(explicit(other_circuits(SMALL)))[0]
    core.journal.close()
    core = started(tmp_path, switches)
    assert core.epochs.plan(plan.epoch) == plan and "1 plans" in core.said[-1]
    assert core.commit(plan.epoch).state == "ACTIVE"


def test_pairs_are_remembered_as_they_were_put_last(tmp_path):
    """The way back of a pair has routes as well, but nobody has put it."""
    core = started(tmp_path, switches := FakeSwitches(SMALL))
    for pair in (("h1", "h5"), ("h5", "h1")):
        core.set_pairs([pair])
    core.learn([("h2", "h7")])
    core.journal.close()
    core = started(tmp_path, switches)
    assert core.demanded == {("h5", "h1")} and "0 plans" in core.said[-1]
    assert core.pairs == {("h1", "h5"), ("h5", "h1"), ("h2", "h7"), ("h7", "h2")}


def test_the_last_twenty_decisions_are_told_after_a_restart_as_well(tmp_path):
    core = started(tmp_path, switches := FakeSwitches(SMALL))
    for number in range(25):
        core.note(f"decision {number}")
    assert list(core.said) == [f"decision {number}" for number in range(5, 25)]
    core.journal.close()
    assert list(started(tmp_path, switches).said) == list(core.said)


def test_a_journal_that_cannot_be_read_is_named(tmp_path):
    journal = Journal(tmp_path, SMALL)
    journal.write({"epoch": {"active": 0, "circuits": []}})
    journal.close()
    journal.path.write_bytes(b"no such thing" * 999)
    with pytest.raises(RFabricError, match="journal .*file is not a database; move it away"):
        Journal(tmp_path, SMALL)


def test_a_write_returns_when_it_has_reached_the_disk(tmp_path):
    """What a process that is killed leaves behind is in memory all the same: a machine's end is
    what this is for, and SQLite's word what there is to look at.
    """
    journal = Journal(tmp_path, SMALL)
    asked = (journal._file.execute(f"PRAGMA {what}") for what in ("journal_mode", "synchronous"))
    assert [answer.fetchone()[0] for answer in asked] == ["wal", 2]  # 2: FULL
    journal.close()


# --- processes, over TCP ------------------------------------------------------------------------


@contextlib.contextmanager
def process(folder, ofp, rest, topo=SPEC, **env):
    """A controller of SMALL, as a process with its journal in `folder`; killed at the end."""
    log, env = folder / f"{rest}.log", {"RFABRIC_JOURNAL": str(folder), **env}
    words = command(topo, port=rest, sdn="os-ken", ofp_port=ofp)
    with child(words, log, **env) as controller:
        try:
            yield controller
        finally:
            print(log.read_text()[-2000:])  # what pytest shows of a test that fails


@contextlib.contextmanager
def peers(*ports):
    made = Peers(SMALL, *ports)
    try:
        yield made
    finally:
        made.close()


def control(rest):
    return Client(f"http://127.0.0.1:{rest}", timeout=20)


def kill(controller):
    controller.kill()
    controller.wait()


def test_a_process_killed_in_a_rewire_is_followed_by_one_that_ends_it(tmp_path):
    rng, ofp, rest = random.Random(7), free_port(), free_port()
    wanted = [parse_policy("static", SMALL).decide(Demand.none(SMALL.racks), Circuits(), 0.0)]
    wanted.append(other_circuits(SMALL))
    with peers(ofp) as switches:
        for life in range(6):
            with process(tmp_path, ofp, rest) as controller:
                client = control(rest)
                client.wait_ready(30)
                epoch, lit = client.epoch(), client.circuits()
                assert lit in wanted and switches.lit() == lit
                client.put_pairs(PAIRS)
                at = wanted.index(lit)
                plan = client.plan_circuits(wanted[1 - at])
                asked = threading.Thread(target=suppressed, args=(client.commit, plan.epoch))
                asked.start()
                time.sleep(rng.uniform(0, 0.03))
                kill(controller)
                asked.join()
            with process(tmp_path, ofp, rest) as controller:
                sent = switches.wires
                client.wait_ready(30)
                after, plans = client.circuits(), {p["epoch"]: p for p in client.plans()}
                state = plans[plan.epoch]["state"]
                assert after == switches.lit() == wanted[1 - at if state == "ACTIVE" else at]
                assert state in ("ACTIVE", "ABORTED", "PREPARED") and life <= len(plans)
                assert client.epoch() == (plan.epoch if state == "ACTIVE" else epoch)
                assert len(client.get("/pairs")["pairs"]) == len(PAIRS)
                assert not any(switches.held.where_lost(*pair) for pair in PAIRS)
                if state == "PREPARED":
                    assert switches.wires == sent  # nothing had begun, nothing is touched
                kill(controller)
    assert not switches.watched


def test_who_stands_by_takes_over_where_the_leader_ended(tmp_path):
    (ofp, other_ofp), (rest, other) = (free_port(), free_port()), (free_port(), free_port())
    with peers(ofp, other_ofp) as switches, process(tmp_path, ofp, rest) as leader:
        first, second = control(rest), control(other)
        first.wait_ready(30)
        with process(tmp_path, other_ofp, other, RFABRIC_STANDBY="1"):
            until(lambda: listens(other), "the other to listen")
            until(lambda: second.health()["connected"] == len(SMALL.switches), "its switches")
            assert second.health()["role"] == f"stands by for process {leader.pid}"
            with pytest.raises(RunError, match="stands by"):
                second.epoch()
            first.put_pairs(PAIRS)
            first.commit(first.plan_circuits(other_circuits(SMALL)).epoch)
            sent = switches.wires
            kill(leader)
            until(lambda: second.health()["ready"], "the other to lead")
            assert second.epoch() == 1 and second.circuits() == switches.lit()
            assert switches.wires == sent
            second.commit(second.plan_circuits(Circuits()).epoch)
            roles = {switches.roles[n.dpid, other_ofp] for n in SMALL.switches}
            assert roles == {MASTER} and second.health()["role"] == "leads"
    assert not switches.watched and not len(switches.lit())


def test_a_port_without_light_and_a_stranger_are_dealt_with(tmp_path):
    ofp, rest = free_port(), free_port()
    with peers(ofp) as switches, process(tmp_path, ofp, rest):
        client = control(rest)
        client.wait_ready(30)
        client.put_pairs(PAIRS)
        port = SMALL.ports["a1"][0]
        cable = str(SMALL.peer[port][1])
        switches.darken(port)
        until(lambda: client.health()["dark_ports"] == [str(port)], "the port to be seen")
        until(lambda: all(used(switches, pair).isdisjoint({cable}) for pair in PAIRS), "new routes")
        # switch by switch: the first on a new way may have it before the last
        until(lambda: not any(switches.held.where_lost(*pair) for pair in PAIRS), "all of them")
        switches.darken(port, dark=False)
        until(lambda: not client.health()["dark_ports"], "the port to be back")
        foreign, twin = FakeSwitch(ofp, 0x999), FakeSwitch(ofp, SMALL.node["a1"].dpid)
        for stranger in (foreign, twin):
            stranger.thread.join(20)
            assert not stranger.thread.is_alive() and not stranger.rules
            stranger.close()
        health = client.health()
        assert health["ready"] and health["connected"] == len(SMALL.switches)
        assert any("switch 0x999 is not in the fabric" in line for line in health["refused"])
        log = tmp_path / f"{rest}.log"
        for text in ("audit: switch 0x999", "its id is taken by a switch that answers"):
            until(lambda text=text: text in log.read_text(), text)


def test_a_fabric_that_is_read_from_its_switches_has_one_controller_too(tmp_path):
    (ofp, other_ofp), (rest, other) = (free_port(), free_port()), (free_port(), free_port())
    with peers(ofp, other_ofp), process(tmp_path, ofp, rest, "") as first:
        control(rest).wait_ready(30)
        with process(tmp_path, other_ofp, other, ""):
            until(lambda: listens(other), "the other to listen")
            text = f"fabric rfabric is under the control of process {first.pid} "
            until(lambda: text in control(other).health()["trouble"], "it to say whose it is")
            assert control(other).health()["fabric"] is None
            kill(first)
            control(other).wait_ready(30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_in_the_dark_it_stops_and_is_followed(tmp_path, number):
    ofp, rest = free_port(), free_port()
    with peers(ofp) as switches:
        with process(tmp_path, ofp, rest) as controller:
            client = control(rest)
            client.wait_ready(30)
            before = client.circuits()
            plan = client.plan_circuits(other_circuits(SMALL), delay_s=300.0)
            threading.Thread(target=suppressed, args=(client.commit, plan.epoch)).start()
            until(lambda: client.get(f"/plans/{plan.epoch}")["state"] == "DARK", "it to be dark")
            controller.send_signal(number)
            assert controller.wait(30) == 0  # 30 s are a tenth of what it stays dark
        with process(tmp_path, ofp, rest):
            until(lambda: listens(rest), "the next to listen")
            until(lambda: client.health()["connected"] == len(SMALL.switches), "its switches")
            assert client.get(f"/plans/{plan.epoch}")["state"] != "ACTIVE"
            assert before.items >= switches.lit().items
    assert not switches.watched


def test_a_reader_that_reads_no_more_does_not_keep_it():
    code = """
import os, sys
from rfabric.control.launch import _exit
read, write = os.pipe()
os.set_blocking(write, False)
try:
    while os.write(write, b"x" * 4096):
        pass
except BlockingIOError:
    os.set_blocking(write, True)
sys.stderr = os.fdopen(write, "w", 4096)
sys.stderr.write("last words")
_exit(0)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0


@pytest.mark.parametrize(
    "starts",
    [
        pytest.param("rfabric control", id="rfabric"),
        pytest.param("ryu-manager", id="ryu-manager", marks=WITHOUT_RYU),
    ],
)
def test_it_remembers_as_typed(tmp_path, starts):
    ofp, rest, state = free_port(), free_port(), tmp_path / "state"
    env = {"XDG_STATE_HOME": str(state), "RFABRIC_JOURNAL": "", "RFABRIC_TOPO": SPEC}
    env |= {"RFABRIC_REST_PORT": str(rest), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "rfabric", "control", "--ofp-port", str(ofp), "--sdn", "os-ken"]
    if starts == "ryu-manager":
        words = [str(RYU_PYTHON), "-m", "ryu.cmd.manager", "--ofp-tcp-listen-port", str(ofp)]
        words.append(str(ROOT / "controller/ocs.py"))
    with peers(ofp) as switches:
        for life in (0, 1):
            with child(words, tmp_path / "log", **env) as controller:
                client = control(rest)
                client.wait_ready(60)
                assert client.epoch() == life and client.circuits() == switches.lit()
                assert Path(client.health()["journal"]).parent == state / "rfabric"
                if not life:
                    client.commit(client.plan_circuits(other_circuits(SMALL)).epoch)
                kill(controller)
        if starts == "ryu-manager":
            return
        with child([*words, "--no-journal"], tmp_path / "log", **env):
            client.wait_ready(60)
            assert client.epoch() == 0 and client.health()["journal"] is None


def test_a_second_controller_is_told_whose_port_it_is(tmp_path):
    (ofp, other_ofp), (rest, other) = (free_port(), free_port()), (free_port(), free_port())
    with process(tmp_path, ofp, rest) as first:
        until(lambda: listens(rest), "the first to listen")
        for ports, folder, text in (
            ((ofp, other), "a", f"OpenFlow address 127.0.0.1:{ofp}: .*process {first.pid} "),
            ((other_ofp, rest), "b", f"REST address 127.0.0.1:{rest}: .*process {first.pid} "),
            ((other_ofp, other), "", f"fabric rfabric is under .* of process {first.pid} "),
        ):
            (home := tmp_path / "homes" / (folder or "c")).mkdir(parents=True)
            journal = str(home if folder else tmp_path)
            with process(home, *ports, RFABRIC_JOURNAL=journal) as late:
                assert late.wait(30) == 2
            assert re.search(text, (home / f"{ports[1]}.log").read_text())


def suppressed(do, *words):
    with contextlib.suppress(RFabricError):
        do(*words)


def used(switches, pair):
    """The ports by which packet switches send a pair."""
    ips = [host_ip(SMALL.hosts.index(host)) for host in pair]
    return {
        str(Port(switches.held.names[dpid], entry.out))
        for dpid, table in switches.held.tables.items()
        for entry in list(table.values())
        if [dict(entry.match).get(name) for name in ("src", "dst")] == ips
    }

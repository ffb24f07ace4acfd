"""The benchmark of planning: every try is a plan of its own, of demands that policies are for."""

import numpy as np
import pytest

from rfabric.optics import POLICIES
from rfabric.optics.solvers import SOLVERS
from rfabric.study import planning_bench
from rfabric.study.planning_bench import TRIES, demand, measure


@pytest.mark.parametrize(("long_s", "plans"), [(60.0, 1 + TRIES), (0.0, 1)])
def test_every_try_asks_the_solver_and_what_takes_long_is_tried_once(monkeypatch, long_s, plans):
    asked, solve = [], SOLVERS["matching"]
    monkeypatch.setitem(SOLVERS, "matching", lambda *words: asked.append(1) or solve(*words))
    monkeypatch.setattr(planning_bench, "POLICIES", ("matching",))
    monkeypatch.setattr(planning_bench, "LONG_S", long_s)
    (row,) = measure(["planning-64-rings"], peer=False)
    assert len(asked) == plans and row.sets == 1 and row.circuits_changed > 0


def test_every_policy_is_measured_and_of_slots_and_rounds_all_sets():
    once, turns = (measure([f"planning-64-rings{more}"], peer=False) for more in ("", "-in-turn"))
    assert {row.policy for row in once} == {*POLICIES} - {"static"}
    assert {row.policy for row in once if row.sets > 1} == {"rotor"}
    assert [row.sets > 1 for row in turns] == [True, True]
    assert all(row.decide_s > 0 for row in (*once, *turns))


def test_demands_are_those_that_templates_are_for():
    answers, sync = demand(64, "answers"), demand(64, "sync")
    assert (answers.bytes == answers.bytes.T).all() and (answers.partners == 4).all()
    assert sync.sends.sum() == 8 and (sync.receives & ~sync.sends).sum() == 56
    assert (answers.phase, sync.phase) == ("generation", "weight_sync")


def test_two_demands_are_hard_to_match():
    """Some racks are sent far more than others by all; one rack sends far more than any other."""
    experts, hot = demand(64, "experts").bytes, demand(64, "hot").bytes
    received = np.sort(experts.sum(axis=0))
    assert received[-1] > 5 * received[0] and (experts.sum(axis=1).std() < received.std())
    assert hot[3].sum() > 100 * np.delete(hot.sum(axis=1), 3).max()

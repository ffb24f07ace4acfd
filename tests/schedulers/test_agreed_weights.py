"""Which weight sync is agreed with a network and when it begins, by seconds worked out by hand."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from rfabric.rl import read_recipe
from rfabric.rl.phases import handover
from rfabric.schedulers import networks
from rfabric.schedulers.base import Answer
from rfabric.schedulers.networks import (
    Start,
    _later,
    _proposing,
    _soonest,
    _takes,
    agreed_start,
    agreed_sync,
)
from rfabric.schedulers.table import scheduled
from rfabric.trace import Flows

INF = float("inf")


def sends(seconds):
    """Flows that a network which tells their bytes takes so many seconds for."""
    return Flows([0], [40], [float(seconds)])


@dataclass
class Tells:
    """It takes a second a byte; `crowded` s more beside anything else. What has a lead is late by
    `slow`.
    """

    crowded: float = 0.0
    slow: float = 0.0
    name: str = "tells"
    asked: list = field(default_factory=list)

    def answer(self, sends, beside=(), lead=0.0):
        self.asked.append((sum(sends.size), len(beside), lead))
        seconds = sum(sends.size) + (self.crowded if beside else 0) + (self.slow if lead else 0)
        return Answer(seconds, "no way" if seconds == INF else "")


# --- which ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "flat", "tree", "rank0", "taken"),
    [
        ("flat", 100, 96, 97, "flat"),  # less than a twentieth
        ("flat", 100, 95.01, 97, "flat"),
        ("flat", 100, 97, 94.99, "rank0"),
        ("flat", 100, 100, 100, "flat"),
        ("tree", 90, 100, 90, "flat"),  # the first of those alike
        ("rank0", 200, 300, 100, "rank0"),
        ("flat", INF, 500, INF, "tree"),
        ("flat", 100, INF, INF, "flat"),
    ],
)
def test_another_weight_sync_must_save_a_twentieth_of_what_its_own_takes(
    own, flat, tree, rank0, taken, monkeypatch
):
    """Seconds of each, software included, in two levels."""
    w = read_recipe("grpo-64", (f"weight_sync.strategy={own}",))
    takes = {"flat": flat, "tree": tree, "rank0": rank0}

    def levels(job):
        wire = takes[job.weight_sync.strategy] - sum(handover(job).values())
        return [sends(0.25 * wire), sends(0.75 * wire)]

    monkeypatch.setattr(networks, "_levels", levels)
    made, told = agreed_sync(w, Tells())
    assert made.weight_sync.strategy == told["weight_sync"] == taken
    assert told["weight_sync_s"] == {
        name: None if s == INF else pytest.approx(s) for name, s in takes.items()
    }


def test_a_twentieth_itself_is_not_enough(monkeypatch):
    costs = {"flat": 100.0, "tree": 95.0, "rank0": 100.0}
    monkeypatch.setattr(networks, "handover", lambda w: {})
    monkeypatch.setattr(networks, "_levels", lambda w: [sends(costs[w.weight_sync.strategy])])
    assert agreed_sync(read_recipe("grpo-64", ()), Tells())[1]["weight_sync"] == "flat"


# --- when -----------------------------------------------------------------------------------------


@pytest.fixture
def four(monkeypatch):
    """Weights of two levels that take 1 and 3 s."""
    monkeypatch.setattr(networks, "_levels", lambda w: [sends(1), sends(3)])


def round_of(start, seconds, size=2.0):
    return SimpleNamespace(start=start, window=seconds), sends(size)


def test_levels_follow_one_another_and_only_the_first_has_notice(four):
    network = Tells(crowded=0.5)
    assert _takes(None, network) == 4.0
    assert _takes(None, network, [sends(9)], 2.0) == 5.0  # each beside the other
    assert network.asked == [(1, 0, 0.0), (3, 0, 0.0), (1, 1, 2.0), (3, 1, 0.0)]


def test_kv_is_later_by_what_the_worst_level_beside_it_makes_it(four):
    assert _later(Tells(crowded=0.5), sends(9), [sends(1), sends(3)]) == 0.5
    assert _later(Tells(crowded=0.5), sends(9), []) == 0.0

    class Shared(Tells):
        def answer(self, sends, beside=(), lead=0.0):
            return Answer(sum(sends.size) + sum(sum(one.size) for one in beside))

    for levels in ([sends(1), sends(3)], [sends(3), sends(1)]):
        assert _later(Shared(), sends(9), levels) == 3.0
    assert _later(Tells(), sends(INF), [sends(1)]) == 0.0  # refused in any case


@pytest.mark.parametrize(
    ("trained", "generated", "rounds", "crowded", "slow", "at"),
    [
        (10.0, 20.0, (), 0.0, 0.0, 16.0),  # so late that they arrive as generation ends
        (16.5, 20.0, (), 0.0, 0.0, 17.5),  # as soon as they are trained, NOTICE after
        (25.0, 20.0, (), 0.0, 0.0, 25.0),  # nothing to do beside
        (19.0, 20.0, (), 0.0, 0.0, 20.0),  # with its notice it would be no sooner
        (18.81, 20.0, (), 0.0, 0.0, 20.0),  # 0.19 s sooner: less than a twentieth of 4 s
        (18.79, 20.0, (), 0.0, 0.0, 19.79),  # 0.21 s
        (10.0, 20.0, (), 0.0, 2.0, 14.0),  # asked for ahead they take 6 s
        (10.0, 20.0, (), 0.0, INF, 20.0),  # refused
        # beside KV, each level takes 1 s more, and so does the KV: generation ends 1 s later
        (10.0, 20.0, ((12.0, 7.0),), 1.0, 0.0, 14.0),
        (10.0, 20.0, ((15.0, 4.0),), 1.0, 0.0, 11.0),  # there before KV moves
        (10.0, 20.0, ((10.0, 4.0),), 1.0, 0.0, 16.0),  # KV that is there before
    ],
)  # fmt: skip
def test_weights_leave_as_late_as_they_are_there_soonest(
    trained, generated, rounds, crowded, slow, at, four
):
    every = [round_of(*one) for one in rounds]
    start = _soonest(None, Tells(crowded, slow), trained, generated, every)
    assert start.at == pytest.approx(at)


def test_a_start_is_done_with_generation_and_with_its_own_bytes():
    assert Start(10.0, 4.0).done(20.0) == 20.0
    assert Start(17.0, 4.0).done(20.0) == 21.0
    assert Start(10.0, 4.0, late=2.0).done(20.0) == 22.0


def test_kv_counts_that_moves_while_weights_do(four):
    """Weights leave at 12 s and take 4; generation ends at 15."""
    told = {}
    for start, seconds in ((5, 6.9), (5, 7.0), (5, 7.1), (14.9, 9), (15, 9), (15.5, 9)):
        ask = _proposing(None, Tells(0.5), 15.0, [round_of(start, seconds)])
        told[start, seconds] = ask(12.0)
    beside = {key for key, start in told.items() if start.late}
    assert beside == {(5, 7.1), (14.9, 9)}
    for key, start in told.items():
        assert start == Start(12.0, 5.0 if key in beside else 4.0, 0.5 if key in beside else 0.0)
    # while nobody generates any more nothing is late
    early = _proposing(None, Tells(0.5), 99.0, [round_of(15.9, 1)])
    assert early(12.0).late and not early(11.8).late


def test_the_rounds_that_count_are_those_of_the_step_that_generates_beside():
    asked = []
    words = ("pipeline=one-step-off", "steps=3", "generation.batch=16")
    plain = scheduled(read_recipe("grpo-64", words), 0, "one-step-off")
    made = agreed_start(plain, 0, Tells(), lambda n: asked.append(n) or ())
    assert asked == [1, 2] and set(made.facts["weight_sync_ahead_s"]) == {"0", "1"}

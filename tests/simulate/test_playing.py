"""Rounds on the clock of the flow-level world: whose turn it is, for how long, and what comes
next.
"""

from dataclasses import dataclass, field

import numpy as np
import pytest

from rfabric.errors import RFabricError
from rfabric.fabric import rfabric
from rfabric.optics import Circuits, Timing, light, parse_policy, planes
from rfabric.optics.rounds import Rounds
from rfabric.routing.schemes import ECMP
from rfabric.simulate.playing import RoundWays, RunningRounds
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder
from rfabric.trace.pairs import Pairs
from rfabric.units import transfer_seconds

RATE = 4e11
FABRIC = rfabric(pods=1, tors=3, gpus=1, planes=1, electrical=RATE)
BOTH, FIRST = 0, 1  # rows: h1 -> h2 sends in both rounds, h3 -> h2 in the first alone


@dataclass
class FakeEngine:
    """What the rounds ask of an engine."""

    now: float = 0.0
    flying: list = field(default_factory=list)
    left: dict = field(default_factory=dict)

    def active(self):
        return np.array(self.flying, dtype=np.int64)

    def remaining(self, rows):
        return np.array([self.left[row] for row in rows.tolist()], dtype=float)


def lit(fabric, *pairs):
    return light(fabric, dict.fromkeys(planes(fabric), pairs))


def running(others=0.0):
    """Two rounds, t1=t2 and t1=t3; of h1 -> h2 a quarter goes in the first."""
    b = TraceBuilder(FABRIC.hosts)
    b.flows([0, 2], [1, 1], 8e9)
    trace, weight = b.build(), np.zeros((2, 3, 3))
    weight[:, 0, 1], weight[0, 2, 1] = (1, 3), 1
    rounds = Rounds((lit(FABRIC, ("t1", "t2")), lit(FABRIC, ("t1", "t3"))), weight)
    pairs = Pairs(FABRIC, trace, ECMP)
    beside = np.full(len(pairs.src), others)
    return RunningRounds(
        FABRIC, trace, pairs, rounds, (), np.array([BOTH, FIRST]), np.full(2, 8e9), ECMP, beside
    )


def test_a_round_lasts_as_long_as_its_busiest_cable_and_turns_stand_between():
    rounds = running()
    assert rounds.seconds == pytest.approx(
        [transfer_seconds(10e9, RATE), transfer_seconds(6e9, RATE)]
    )
    assert rounds.lasts(0.5, waves=3) == pytest.approx(transfer_seconds(16e9, RATE) + 3 * 0.5)


def test_rows_of_other_rounds_stand():
    rounds = running()
    assert rounds.stands(np.array([BOTH, FIRST, 7])).tolist() == [False, False, False]
    rounds.turn(1)
    assert rounds.stands(np.array([BOTH, FIRST, 7])).tolist() == [False, True, False]


def test_the_clock_of_a_round_starts_with_its_rows_and_counts_their_shares():
    rounds, engine = running(), FakeEngine(3.0, [], {BOTH: 8e9, FIRST: 8e9})
    assert not rounds.is_over(engine) and rounds.until is None
    engine.flying = [BOTH]
    assert not rounds.is_over(engine)
    assert rounds.goal[BOTH] == 6e9 and np.isnan(rounds.goal[FIRST])
    assert rounds.until == pytest.approx(3.0 + transfer_seconds(2e9, RATE))
    engine.now, engine.flying, engine.left[BOTH] = 3.01, [BOTH, FIRST], 7e9  # one more starts
    assert not rounds.is_over(engine)
    assert rounds.goal.tolist() == [6e9, 0.0]
    assert rounds.until == pytest.approx(3.01 + transfer_seconds(9e9, RATE))


def test_a_round_is_over_with_its_clock_unless_it_is_the_last_of_the_pass_for_a_row():
    rounds, engine = running(), FakeEngine(0.0, [BOTH, FIRST], {BOTH: 8e9, FIRST: 8e9})
    rounds.is_over(engine)
    engine.now = rounds.until
    assert not rounds.is_over(engine) and rounds.until == np.inf  # FIRST has no other round
    rounds, engine = running(), FakeEngine(0.0, [BOTH, FIRST], {BOTH: 8e9, FIRST: 8e9})
    rounds.is_over(engine)
    engine.flying, engine.left[FIRST] = [BOTH], 0.0
    assert not rounds.is_over(engine)
    engine.now = rounds.until
    assert rounds.is_over(engine)  # BOTH has its other round to come


def test_it_is_over_when_all_that_send_in_it_have_finished():
    rounds, engine = running(), FakeEngine(1.0, [], {BOTH: 0.0, FIRST: 0.0})
    assert rounds.is_over(engine) and rounds.next_round(engine) is None
    rounds.turn(1)
    # nothing to do here, something in another round
    engine.flying, engine.left[FIRST] = [FIRST], 5.0
    assert rounds.is_over(engine) and rounds.next_round(engine) == 0


def test_rounds_follow_in_order_and_what_has_not_started_waits_for_its_round():
    rounds, engine = running(), FakeEngine(0.0, [BOTH], {BOTH: 8e9, FIRST: 8e9})
    assert rounds.next_round(engine) == 1
    rounds.turn(1)
    assert rounds.to_come == [1] and rounds.until is None
    assert rounds.next_round(engine) == 0  # a new pass
    rounds.turn(0)
    assert rounds.to_come == [0, 1]
    engine.flying = []
    assert rounds.next_round(engine) == 0  # all have bytes left: the present round first
    engine.left[FIRST] = 0.0
    rounds.turn(1)
    assert rounds.next_round(engine) == 1


def test_others_are_met_where_one_round_leads_them_over_a_cable_that_turns():
    rounds = running(others=1e9)
    assert rounds.meets(np.array([BOTH]), rounds.rounds.circuits[0])  # t1=t2: in the first round
    # t3 -> t2: never by light
    assert not rounds.meets(np.array([FIRST]), rounds.rounds.circuits[0])
    assert not rounds.meets(np.zeros(0, np.int64), Circuits())


def test_of_light_paths_between_two_racks_the_heaviest_pairs_choose_first_the_least_loaded():
    fabric = rfabric(pods=1, tors=2, gpus=2, planes=2, electrical=0)
    b = TraceBuilder(fabric.hosts)
    b.flows([0, 0, 1, 1], [2, 3, 2, 3], 1e9)
    pairs = Pairs(fabric, b.build(), ECMP)
    sent, none = np.array([3.0, 5.0, 1.0, 4.0]), np.zeros(4)
    light_path = RoundWays(fabric, pairs, lit(fabric, ("t1", "t2")), ECMP, sent, none).light
    assert light_path[1] != light_path[3]  # 5 and 4 part
    assert light_path[0] == light_path[3] and light_path[2] == light_path[1]  # 3 to 4, 1 to 5
    idle = RoundWays(fabric, pairs, lit(fabric, ("t1", "t2")), ECMP, none, none).light
    assert idle.tolist() == [-1] * 4


@pytest.mark.parametrize(
    ("delay", "electrical", "size"),
    [(0.01, "50Gbit/s", 1e8), (0.03, "50Gbit/s", 3e8), (0.01, "100Gbit/s", 3e8)],
)
def test_rounds_begin_at_once_where_the_first_is_lit_already(delay, electrical, size):
    """Three rounds and two turns; would the first cost a turn too, one set of circuits were
    taken.
    """
    fabric = rfabric(pods=2, tors=2, gpus=1, planes=1, delay=delay, electrical=electrical)
    b = TraceBuilder(fabric.hosts)
    last = b.flows([0], [1], 2e9, phase="a", label="one")
    src, dst = np.nonzero(~np.eye(4, dtype=bool))
    b.flows(src, dst, size, after=last, phase="b", label="all-to-all")
    timing = Timing(control=0.0, guard=0.0)
    result = simulate(fabric, b.build(), "demand,granularity=intra-collective", timing=timing)
    took = transfer_seconds(2e9 + 3 * size, RATE) + 3 * delay
    assert result.step_seconds == pytest.approx(took, abs=1e-4)
    assert len(result.rewires) == 3


@pytest.mark.parametrize("as_object", [False, True])
def test_rounds_beside_several_ways_a_pair_are_refused_by_the_name_of_the_policy(as_object):
    words = "bvn,granularity=intra-collective"
    b = TraceBuilder(FABRIC.hosts)
    b.flows([0], [1], 8e9)
    policy = parse_policy(words, FABRIC) if as_object else words
    with pytest.raises(RFabricError, match="^policy bvn: in a round a pair sends on the circuit"):
        simulate(FABRIC, b.build(), policy, routing="split")

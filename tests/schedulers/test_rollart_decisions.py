"""RollArt's decisions one by one: an engine driven by hand, rules of steps, shares of a batch."""

from dataclasses import replace
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest

from rfabric.compute.gpus import GPUS
from rfabric.compute.named import read_model
from rfabric.compute.roofline import CHUNK_TOKENS, Server, step_of
from rfabric.compute.sync_time import UNPACK
from rfabric.errors import RFabricError
from rfabric.folders import data_dir
from rfabric.rl import phases, read_recipe
from rfabric.schedulers.rollart import _facts, _step, engines, mixed
from rfabric.schedulers.rollart.engines import AgentEngine, AgentTurn, Pool, Trajectory
from rfabric.schedulers.rollart.pools import pools_of
from rfabric.schedulers.rollart.recipe import RecipeTrajectories, _parts
from rfabric.schedulers.rollart.rules import Iteration, RolloutOutcome, RolloutRules
from rfabric.schedulers.rollart.tasks import TASKS, Episode, Task, draw
from rfabric.schedulers.rollart.trajectories import _Rollouts, play
from rfabric.schedulers.rollart.weights import BUCKET, PULL, PUSH, transfer

MODEL = read_model(data_dir("traffic") / "models" / "Qwen3-8B.json")
SERVER = Server(MODEL, GPUS["H800"])
STEP = step_of(SERVER)
TASK = Task("task", (1, 4), 2000, 100, 0.0, 3000)


def engine(utilisation=0.9):
    return AgentEngine(0, Pool("H800", Server(MODEL, GPUS["H800"], utilisation=utilisation), 1))


def someone(number=0, group=None, task=TASK, outputs=(100, 100), prompt=2000):
    own = number if group is None else group
    return Trajectory(Episode(number, task, own, prompt, outputs, (0.0,) * len(outputs)), 0)


def turn(who, n=0, computed=0):
    return AgentTurn(who, who.episode.context(n), who.episode.outputs[n], computed)


def played_out(e, now=0.0):
    """(when, turns that ended) until the engine has nothing to do."""
    while (when := e.plan(now)) is not None:
        now = when
        yield from ((now, one) for one in e.fire())


# --- an engine ------------------------------------------------------------------------------------


def test_a_new_engine_has_nothing_and_a_used_one_keeps_the_context():
    e, who = engine(), someone()
    assert (e.clock, e.context, e.held, e.kept, e.live, e.peak) == (0,) * 6
    assert e.plan(3.0) is None
    e.submit(turn(who), 1.0)
    assert e.queued == 2100
    ((when, _),) = played_out(e, 1.0)
    assert when == 1 + STEP.mixed(0, 0, 2000, 2000**2 / 2) + STEP.seconds(1, 2001, 99)
    assert (e.queued, e.held, e.context, e.kept, e.peak) == (0, 0, 0, 2100, 2100)
    assert e.clock == 1 * 0 + 99  # the first token comes with the prompt
    assert e.prefill == pytest.approx(STEP.mixed(0, 0, 2000, 2000**2 / 2))
    assert e.decode == pytest.approx(STEP.seconds(1, 2001, 99))
    e.forget(who)
    assert e.kept == 0


def test_the_next_turn_prefills_what_is_new_and_others_prefill_the_prompt_of_their_group_once():
    e, who = engine(), someone()
    e.submit(turn(who), 0.0)
    ((first, _),) = played_out(e)
    who.turn = 1
    e.submit(turn(who, 1), first)
    ((second, _),) = played_out(e, first)
    again = STEP.mixed(0, 0, 3000, 3000 * (2100 + 1500)) + STEP.seconds(1, 5101, 99)
    assert second - first == pytest.approx(again, rel=1e-9)
    e.submit(turn(someone(1, group=0)), second)
    ((third, _),) = played_out(e, second)
    shared = STEP.mixed(0, 0, 1, 1999.5) + STEP.seconds(1, 2001, 99)
    assert third - second == pytest.approx(shared, rel=1e-9)


def test_what_is_rendered_anew_each_turn_is_prefilled_whole_but_for_the_prompt_of_the_first():
    """5,100 tokens in the second turn, whoever computed the prompt; in the first of a group-mate
    the last token of it alone.
    """
    task = replace(TASK, caches=False)
    e, now = engine(), 0.0
    for who, n, computed, prompt in (
        (someone(task=task), 0, 0, 2000), (someone(task=task), 1, 0, 5100),
        (someone(1, group=0, task=task), 0, 1999, 2000),
    ):  # fmt: skip
        who.turn = n
        e.submit(turn(who, n), now)
        before, ((now, _),) = now, played_out(e, now)
        new = prompt - computed
        filled = STEP.mixed(0, 0, new, new * (computed + new / 2))
        assert now - before == pytest.approx(filled + STEP.seconds(1, prompt + 1, 99), rel=1e-9)


def test_the_context_of_a_turn_that_is_not_continued_is_of_no_use():
    """The same trajectory, turn after turn."""
    e, who = engine(), someone(task=replace(TASK, caches=False))
    e.submit(turn(who), 0.0)
    ((first, _),) = played_out(e)
    who.turn = 1
    e.submit(turn(who, 1), first)
    ((second, _),) = played_out(e, first)
    again = STEP.mixed(0, 0, 5100, 5100**2 / 2) + STEP.seconds(1, 5101, 99)
    assert second - first == pytest.approx(again, rel=1e-9)


@pytest.mark.parametrize("spare", [0, 1])
def test_turns_that_fill_an_engine_to_the_last_token_run_side_by_side(spare):
    """Two of half its tokens each; of one token more, the second waits."""
    e = engine(0.25)
    half = e.capacity // 2
    for k, need in enumerate((half, e.capacity - half + spare)):
        e.submit(turn(someone(k, outputs=(need - 50,), prompt=50)), 0.0)
    assert e.busy is bool(spare)
    assert len(list(played_out(e))) == 2
    assert e.peak == (e.capacity - half + 1 if spare else e.capacity)


@pytest.mark.parametrize("observed", [0, 1, 2, 50])
def test_a_next_turn_computes_what_was_observed_and_one_token_at_least(observed):
    """2,100 tokens are found; the last of a prompt is computed in any case: it gives the next."""
    e, who = engine(), someone(task=Task("terse", (1, 4), 2000, 100, 0.0, observed))
    e.submit(turn(who), 0.0)
    ((first, _),) = played_out(e)
    who.turn = 1
    e.submit(turn(who, 1), first)
    ((second, _),) = played_out(e, first)
    prompt, new = 2100 + observed, max(observed, 1)
    again = STEP.mixed(0, 0, new, new * (prompt - new + new / 2)) + STEP.seconds(1, prompt + 1, 99)
    assert second - first == pytest.approx(again, rel=1e-9)


def test_where_those_that_decode_fill_a_chunk_a_prompt_comes_one_token_a_step(monkeypatch):
    monkeypatch.setattr(engines, "CHUNK_TOKENS", 3)
    e, now = engine(), 0.0
    for k in range(4):
        e.submit(turn(someone(k, outputs=(50,), prompt=1)), now)
        now = e.plan(now)
        e.fire()
    assert len(e.inside) == 4
    e.submit(turn(someone(9, outputs=(1,), prompt=2)), now)
    for ended in (0, 1):
        context, before = e.context, now
        now = e.plan(now)
        assert now - before == pytest.approx(STEP.mixed(4, context, 1, ended + 0.5))
        assert len(e.fire()) == ended


def test_long_prompts_are_prefilled_in_chunks_beside_who_decodes():
    e, short, long = (
        engine(),
        someone(0, outputs=(50,), prompt=10),
        someone(1, outputs=(1,), prompt=CHUNK_TOKENS + 7),
    )
    e.submit(turn(short), 0.0)
    now = e.plan(0.0)
    e.fire()
    begun = e.plan(now)
    assert begun == pytest.approx(now + STEP.seconds(1, 11, 49))
    e.submit(turn(long), now + 1e-9)  # decoding stops after the step under way
    now2 = e.plan(now)
    assert now2 == pytest.approx(now + STEP.seconds(1, 11, 1))
    assert e.fire() == []
    part = CHUNK_TOKENS - 1
    now3 = e.plan(now2)
    assert now3 == pytest.approx(now2 + STEP.mixed(1, 12, part, part**2 / 2))
    assert e.fire() == []
    now4 = e.plan(now3)
    assert now4 == pytest.approx(now3 + STEP.mixed(1, 13, 8, 8 * (part + 4)))
    assert [t.who for t in e.fire()] == [long]
    ((end, last),) = played_out(e, now4)
    assert last.who is short and end == pytest.approx(now4 + STEP.seconds(1, 14, 46))
    assert e.prefill + e.decode == pytest.approx(end)  # it was never idle


def test_who_has_no_room_waits_and_kept_contexts_give_way():
    e = engine(0.25)
    half = e.capacity // 2 + 1
    one, two = (someone(k, outputs=(half - 50,), prompt=50) for k in (0, 1))
    e.submit(turn(one), 0.0)
    assert not e.busy
    e.submit(turn(two), 0.0)
    assert e.busy
    (first, a), (second, b) = played_out(e)
    assert (a.who, b.who) == (one, two) and second > first
    assert e.peak == half and e.kept == half and list(e.left_behind) == [two]
    exact = someone(3, outputs=(e.capacity - 50,), prompt=50)
    e.submit(turn(exact), second)
    too_long = someone(2, outputs=(e.capacity,), prompt=50)
    with pytest.raises(RFabricError, match="a turn needs"):
        e.submit(turn(too_long), second)


def test_new_weights_prefill_all_that_is_in_flight_again():
    e, who = engine(), someone()
    e.submit(turn(who), 0.0)
    now = e.plan(0.0)
    e.fire()
    e.plan(now)
    ten = now + STEP.seconds(1, 2001, 10)
    e.update(ten - 1e-9, 4.0)  # in the tenth step
    assert e.plan(ten) == pytest.approx(ten)
    e.fire()
    when = e.plan(ten)
    assert when == pytest.approx(ten - 1e-9 + 4 + STEP.mixed(0, 0, 2011, 2011**2 / 2))
    e.fire()
    ((end, _),) = played_out(e, when)
    assert end == pytest.approx(when + STEP.seconds(1, 2012, 88))
    assert e.kept == 2100


def test_an_aborted_turn_leaves_after_the_step_under_way():
    e, one, two = engine(), someone(0), someone(1)
    turns = [turn(one), turn(two)]
    for each in turns:
        e.submit(each, 0.0)
    now = e.plan(0.0)
    e.fire()
    e.plan(now)
    e.abort(turns[0], now + 1e-9)
    assert e.plan(now) == pytest.approx(now + STEP.seconds(2, 4002, 1))
    e.fire()
    ((end, last),) = played_out(e, now + STEP.seconds(2, 4002, 1))
    assert last is turns[1]
    assert end == pytest.approx(now + STEP.seconds(2, 4002, 1) + STEP.seconds(1, 2002, 98))
    assert (e.held, e.context, e.kept) == (0, 0, 2100)


def test_kv_that_came_from_elsewhere_is_not_prefilled():
    e, who = engine(), someone()
    e.submit(AgentTurn(who, 2001, 99, computed=2001), 0.0)
    ((when, _),) = played_out(e)
    assert when == STEP.seconds(1, 2001, 99) and e.prefill == 0


# --- rules, outcome -------------------------------------------------------------------------------


def test_steps_ahead_are_those_said_or_the_staleness():
    assert RolloutRules(8, staleness=3).steps_ahead == 3
    assert RolloutRules(8, staleness=3, ahead=0).steps_ahead == 0
    assert RolloutRules(8).staleness == 1  # the paper's alpha
    rules = RolloutRules(24, 4, redundancy=1.5)
    assert (rules.members, rules.slots, rules.environments) == (6, 6, 36)


@pytest.mark.parametrize(
    ("fits", "too_far", "said"),
    [
        ({"batch": 1}, {"batch": 0}, "a batch of 0"),
        ({"batch": 8, "group": 4}, {"batch": 8, "group": 3}, "divide into groups of 3"),
        ({"batch": 8, "group": 1}, {"batch": 8, "group": 0}, "divide into groups of 0"),
        ({"redundancy": 1.0}, {"redundancy": 0.99}, "redundancy 0.99"),
        ({"staleness": 0}, {"staleness": -1}, "staleness -1"),
        ({"continuous": True, "staleness": 1}, {"continuous": True, "staleness": 0}, "staleness 0"),
        ({"reward_slots": 1}, {"reward_slots": 0}, "0 reward slots"),
        ({"batched": True}, {"batched": True, "redundancy": 1.5}, "batched turns"),
        ({"continuous": True, "redundancy": 1.5}, {"batched": True, "continuous": True}, "batched"),
    ],
)
def test_rules_have_bounds_that_are_just_allowed(fits, too_far, said):
    assert RolloutRules(**{"batch": 6} | fits)
    with pytest.raises(RFabricError, match=said):
        RolloutRules(**{"batch": 6} | too_far)


@pytest.mark.parametrize(("tokens", "crosses"), [(1, False), (2, True)])
def test_the_kv_of_a_prefilled_turn_crosses_where_tokens_are_left_to_decode(tokens, crosses):
    """The prefill gives the first token; 2,001 contexts cross at 1 GB/s."""
    pools = [Pool("fill", SERVER, 1, prefill_for="decode", link=1e9), Pool("decode", SERVER, 1)]
    train = RolloutRules(1)
    made = play(pools, lambda k: someone(k, outputs=(tokens,)).episode, lambda _: 1.0, train, 1)
    filled = STEP.mixed(0, 0, 2000, 2000**2 / 2)
    rest = 2001 * MODEL.kv_bytes_per_token / 1e9 + STEP.seconds(1, 2001, 1) if crosses else 0.0
    assert made.iterations[0].ready == pytest.approx(filled + rest, rel=1e-9)


def test_kv_that_crosses_while_weights_change_is_computed_anew_where_it_arrives():
    """Trajectory 3 crosses for 5 s, a step trains 1 s; the others have nothing left to decode."""
    link = 2001 * MODEL.kv_bytes_per_token / 5.0
    pools = [Pool("fill", SERVER, 1, prefill_for="decode", link=link), Pool("decode", SERVER, 1)]
    rules = RolloutRules(2, parallel=True, continuous=True, staleness=20)
    made = _Rollouts(
        pools,
        lambda k: someone(k, outputs=(2,) if k == 3 else (1,)).episode,
        lambda _: 1.0,
        rules,
        12,
    )
    made.run()
    assert any(what == "end" and number == 3 for _, what, number in made.log)
    _, decoder = made.engines
    assert decoder.prefill == pytest.approx(STEP.mixed(0, 0, 2001, 2001**2 / 2), rel=1e-9)
    assert decoder.decode == 0  # the prefill gives the last token


def test_prefills_are_dealt_evenly_and_leave_when_their_trajectory_does():
    """Four at once to two engines that prefill; the kept ones and the superfluous all leave."""
    pools = [Pool("fill", SERVER, 2, prefill_for="decode", link=1e9), Pool("decode", SERVER, 1)]
    for rules in (RolloutRules(4), RolloutRules(4, 4, redundancy=2.0)):
        made = _Rollouts(
            pools, lambda k: someone(k, outputs=(40 + k, 7)).episode, lambda _: 1.0, rules, 1
        )
        taken = made.run().iterations[0].batch
        assert sorted(who.prefill for who in taken) == [0, 0, 1, 1]
        assert [e.live for e in made.engines] == [0, 0, 0]


def test_the_first_goes_where_most_room_is_and_the_next_where_fewest_are_for_it():
    """An H20 has 96 GB for an H800's 80: the third is the H20's second."""
    pools = [Pool("H800", SERVER, 1), Pool("H20", Server(MODEL, GPUS["H20"]), 1)]
    small, large = (pool.server.kv_capacity_tokens for pool in pools)
    assert small < large < 2 * small
    made = play(pools, lambda k: someone(k).episode, lambda _: 1.0, RolloutRules(3), 1)
    where = {who.episode.number: who.engine for who in made.iterations[0].batch}
    assert [where[k] for k in range(3)] == [1, 0, 1]


@pytest.mark.parametrize(("slots", "ends"), [(None, 5.0), (1, 15.0), (2, 10.0), (3, 5.0)])
def test_rewards_wait_for_a_free_place(slots, ends):
    """Three answers of one token at once, 5 s of reward each; serverless rewards never wait."""
    judged = replace(TASK, rewarded=5.0)
    rules = RolloutRules(3, reward_slots=slots)
    made = play(
        [Pool("H800", SERVER, 3)],
        lambda k: someone(k, task=judged, outputs=(1,)).episode,
        lambda _: 1.0,
        rules,
        1,
    )
    filled = STEP.mixed(0, 0, 2000, 2000**2 / 2)
    assert made.iterations[0].ready == pytest.approx(filled + ends, rel=1e-9)
    assert made.reward_busy == 15.0


@pytest.mark.parametrize("decode_gpus", [2, 8, 30])
def test_replicas_of_the_other_gpu_are_the_last_and_all_are_there(decode_gpus):
    w = read_recipe("grpo-64", ("generation.tp=2",))
    first, last = pools_of(w, [TASK], "H20", decode_gpus)
    assert (first.server.gpu, last.server.gpu) == (w.gpu, GPUS["H20"])
    assert last.gpus == decode_gpus and first.gpus == w.cluster.generation_gpus - decode_gpus
    (alone,) = pools_of(w, [TASK], None, 0)
    assert alone.gpus == w.cluster.generation_gpus and alone.server.gpu == w.gpu
    for count in (0, 3, w.cluster.generation_gpus):
        with pytest.raises(RFabricError, match="decode_gpus"):
            pools_of(w, [TASK], "H20", count)


def test_of_two_tasks_each_goes_to_its_gpus_and_a_single_one_to_all():
    w = read_recipe("grpo-64")
    named = [TASKS["GEM-Math"], TASKS["FrozenLake"]]
    assert [pool.tasks for pool in pools_of(w, named, "H20", 8)] == [("FrozenLake",), ("GEM-Math",)]
    assert [pool.tasks for pool in pools_of(w, named[:1], "H20", 8)] == [(), ()]


def test_the_mean_step_leaves_the_first_out():
    ends = (10.0, 16.0, 26.0, 31.0)
    steps = tuple(Iteration(i, 0.0, 0.0, 0.0, (0.0, end), (), ()) for i, end in enumerate(ends))
    outcome = RolloutOutcome(steps, {}, (), ())
    assert outcome.step_seconds() == 7
    assert outcome.step_seconds(2) == 7.5
    assert outcome.step_seconds(0) == 31 / 4


def outcome(*stale, busy=((0.0, 0.0),), began=0.0, ready=1.0, before=0.0):
    """Steps of one trajectory each that lacked so many updates; of the last, when it began and was
    ready, as the one before was at `before`.
    """
    who = someone()
    who.engine = 0
    made = [
        Iteration(i, 0.0, before, before, (0.0, 1.0), (who,), some, busy)
        for i, some in enumerate(stale)
    ]
    made[-1] = replace(made[-1], began=began, ready=ready)
    counts = {"trained": len(made), "stale": 2, "surplus": 3, "unfinished": 4}
    return RolloutOutcome(tuple(made), counts, (), (77,))


def test_the_stalest_trajectory_of_all_steps_is_told_and_all_that_began_are_counted():
    told = _facts(outcome((0, 1), (3, 0), (1, 2)), [Pool("H800", SERVER, 2)], RolloutRules(8, 4))
    assert told["stale_max"] == 3 and told["trajectories"] == 3 + 2 + 3 + 4
    assert told["environments"] == 8 and told["pools"] == {"H800-0": 2 * SERVER.gpus}


@pytest.mark.parametrize(
    ("suspended", "times"), [(0.0, (5.0, 2.5, 2.5)), (2.0, (6.0, 3.0, 3.0)), (5.0, (6.0, 3.0, 6.0))]
)
def test_of_what_an_engine_did_since_the_last_batch_a_step_has_its_share_and_no_more(
    suspended, times
):
    """6 s of prefill and 3 of decode in the 12 s between two batches, of which the rollouts of this
    one take 10; while engines stand still for weights they do neither.
    """
    played = outcome((0,), (0,), busy=((6.0, 3.0),), began=10.0, ready=20.0, before=8.0)
    w, rules = SimpleNamespace(replicas=(None,)), RolloutRules(1, suspended=suspended)
    made = _step(w, played.iterations[1], None, played, rules).generated
    ((prefill, decode, peak, idle, _),) = made.times
    assert (prefill, decode, idle) == pytest.approx(times) and peak == 77
    assert prefill + decode + idle == pytest.approx(10 + suspended)
    assert [part.tolist() for part in (*made.prompts, *made.outputs)] == [[2000], [200]]
    first = outcome((0,), busy=((6.0, 3.0),), began=0.0, ready=9.0)
    ((prefill, decode, _, idle, _),) = _step(
        w, first.iterations[0], None, first, rules
    ).generated.times
    assert (prefill, decode, idle) == (6, 3, 0)  # nothing is suspended before the first
    at_once = outcome((0,), (0,), busy=((6.0, 3.0),), began=8.0, ready=8.0, before=8.0)
    ((*times, _, idle, _),) = _step(w, at_once.iterations[1], None, at_once, rules).generated.times
    assert (times, idle) == ([0, 0], suspended)  # of no time at all none is its own


def test_continuous_groups_begin_anew_for_as_many_steps_as_they_may_be_ahead():
    """Rollouts of 1 s, training of 100 s: a batch waits, the next is there, `ahead` more."""
    quick = Task("quick", (1, 1), 10, 5, 0, 0, reset=1.0)
    for ahead in (1, 2, 4):
        rules = RolloutRules(4, 2, parallel=True, continuous=True, staleness=8, ahead=ahead)
        outcome = play(
            [Pool("H800", SERVER, 1)],
            lambda k: draw(quick, k, 0, 999, 2),
            lambda _: 100.0,
            rules,
            3,
        )
        begun = [at for at, what, _ in outcome.events if what == "begin" and at < 99]
        assert len(begun) == 4 * (3 + ahead)


def test_groups_that_grew_too_old_begin_anew_once_each():
    """Rollouts of 1 s, training of 100 s: at any time as many groups have begun as steps that took
    their batch, one more and `ahead`; those that grew too old do not count.
    """
    quick = Task("quick", (1, 1), 10, 5, 0, 0, reset=1.0)
    rules = RolloutRules(4, 2, parallel=True, continuous=True, staleness=1, ahead=4)
    made = play(
        [Pool("H800", SERVER, 1)], lambda k: draw(quick, k, 0, 999, 2), lambda _: 100.0, rules, 6
    )
    assert made.counts["stale"] > 0
    for step in made.iterations[:-1]:
        now = step.training[1] - 1.0
        begun, stale = (
            sum(at < now and what == kind for at, what, _ in made.events)
            for kind in ("begin", "stale")
        )
        taken = sum(other.ready < now for other in made.iterations)
        assert begun - stale == 4 * (taken + 1 + 4)


def test_waiting_for_weights_and_standing_still_for_them():
    """A step trains 5 s; its weights are 4 s on their way, and engines then stand still for 2 s."""
    task = Task("quick", (1, 1), 10, 5, 0, 0, reset=1.0)
    rules = RolloutRules(2, parallel=True, continuous=True, suspended=2.0, transfer=4.0)
    outcome = play(
        [Pool("H800", SERVER, 1)], lambda k: draw(task, k, 0, 999), lambda _: 5.0, rules, 3
    )
    first, second, third = outcome.iterations
    assert first.resumed == first.ready
    assert second.resumed == pytest.approx(first.training[1] + 4 + 2)
    assert third.training == pytest.approx((second.training[1] + 6, second.training[1] + 11))


def test_what_engines_did_is_told_once_of_the_batch_it_was_done_for():
    """In step: after the last batch nobody does anything."""
    task = Task("quick", (1, 3), 10, 50, 1.0, 20)
    made = _Rollouts(
        [Pool("H800", SERVER, 2)],
        lambda k: draw(task, k, 0, 999),
        lambda _: 1.0,
        RolloutRules(6),
        4,
    )
    steps = made.run().iterations
    assert [step.number for step in steps] == [0, 1, 2, 3]
    for number, engine in enumerate(made.engines):
        prefill, decode = zip(*(step.busy[number] for step in steps), strict=True)
        assert sum(prefill) == pytest.approx(engine.prefill)
        assert sum(decode) == pytest.approx(engine.decode)
        assert min(prefill) > 0 and min(decode) > 0


def test_in_step_nobody_begins_before_the_step_it_is_for():
    """A batch at a time: as many begin as one step takes, once the one before has been trained."""
    task = Task("quick", (1, 1), 10, 5, 0, 0)
    made = play(
        [Pool("H800", SERVER, 1)],
        lambda k: draw(task, k, 0, 999),
        lambda _: 7.0,
        RolloutRules(2),
        3,
    )
    begun = [at for at, what, _ in made.events if what == "begin"]
    trained = [step.training[1] for step in made.iterations]
    assert begun == [at for at in (0.0, *trained[:-1]) for _ in range(2)]
    assert [step.stale for step in made.iterations] == [(0, 0)] * 3


@pytest.mark.parametrize("redundancy", [1.0, 2.0])
def test_an_engine_counts_who_is_on_it(redundancy):
    """Members that others made superfluous leave once, whether they still answer or are judged."""
    judged = Task("judged", (1, 3), 10, 50, 1.0, 20, rewarded=0.5)
    rules = RolloutRules(8, 4, redundancy=redundancy, reward_slots=1)
    play = _Rollouts(
        [Pool("H800", SERVER, 2)], lambda k: draw(judged, k, 0, 999, 4), lambda _: 1.0, rules, 4
    )
    play.run()
    there = [who.engine for who in play.live.values() if who.turn < len(who.episode.outputs)]
    assert [e.live for e in play.engines] == [there.count(e.number) for e in play.engines]


# --- tasks, weights -------------------------------------------------------------------------------


def test_environments_are_dealt_to_tasks_in_turn_and_keep_theirs_step_after_step():
    """Four groups of environments a step, of three trajectories each; two groups are of the first
    task, one each of the others.
    """
    tasks = [replace(TASK, name=name) for name in "abc"]
    rules = RolloutRules(8, 2, redundancy=1.5)
    episodes = [mixed(tasks, 0, 9999, rules)(number) for number in range(2 * rules.environments)]
    assert "".join(e.task.name for e in episodes) == 2 * "aaabbbcccaaa"
    assert [e.group for e in episodes] == np.repeat(np.arange(8), 3).tolist()


def test_contexts_grow_by_answers_and_what_is_observed():
    e = someone(outputs=(100, 50, 7)).episode
    assert [e.context(t) for t in range(3)] == [2000, 5100, 8150]
    assert (e.tokens, e.response) == (8157, 157)
    cut = draw(Task("cut", (3, 3), 10, 50, 0.0, 20), 0, 0, 100)
    assert cut.outputs == (50, 20) and cut.tokens == 100
    assert draw(Task("cut", (3, 3), 10, 50, 0.0, 40), 0, 0, 100).outputs == (50,)
    assert draw(TASK, 7, 0, 9999).group == 7 and draw(TASK, 7, 0, 9999, 4).group == 1


def test_a_response_is_cut_into_turns_as_even_as_they_go():
    assert _parts(10, 3) == (3, 3, 4) and _parts(2, 3) == (1, 1) and _parts(9, 1) == (9,)


def test_own_trajectories_are_the_recipe_s_responses_and_spare_ones_are_others():
    w = read_recipe(
        "grpo-64", ["generation.batch=16", "generation.group_size=4", "training.mini_batches=1"]
    )
    made = RecipeTrajectories(w, Task("own", (1, 1), 1, 1, 0, 0, latency=2.0), 3, 5)
    prompts, outputs = phases.responses(w, 3, 0)
    for number in range(80):
        group, member = divmod(number, 5)
        e = made.episode(number)
        assert (e.group, e.prompt) == (group, prompts[4 * group])
        if member < 4:
            assert e.outputs == (outputs[4 * group + member],)
    later = phases.responses(w, 3, 1)
    assert made.episode(80).outputs == (later[1][0],) and made.episode(80).prompt == later[0][0]
    spare = {made.episode(5 * group + 4).outputs for group in range(16)}
    assert len(spare - {(n,) for n in outputs}) > 12


def test_weights_go_in_buckets_the_last_of_which_is_pulled_alone():
    sent = transfer(4 * BUCKET)
    assert sent.push == pytest.approx(4 * BUCKET / PUSH + BUCKET / PULL)
    assert (sent.pull, sent.load) == (4 * BUCKET / PULL, 4 * BUCKET / UNPACK)
    tiny = transfer(BUCKET / 2)
    assert tiny.push == pytest.approx(BUCKET / 2 * (1 / PUSH + 1 / PULL))


def test_a_model_of_32b_takes_as_long_from_cluster_to_cluster_as_was_measured():
    """65.5 GB: 29.649 s over TCP, then the last gigabyte's part of 9.442 s over RDMA."""
    sent = transfer(65.5e9)
    assert sent.pull == pytest.approx(9.442)
    assert sent.push == pytest.approx(29.649 + 9.442 / 65.5)


@pytest.mark.parametrize(
    ("name", "turns", "prompt", "observed", "output"),
    [("FrozenLake", (10, 20), 512, 200, 100), ("GEM-Math", (1, 4), 512, 100, 32768 / 7 / 2.5),
     ("SWE-bench", (10, 48), 1024, 407, 445)],
)  # fmt: skip
def test_tasks_have_the_turns_and_tokens_of_their_sources(name, turns, prompt, observed, output):
    """Turns are bimodal, below 5 or from 10 to 48; a trajectory reads its prompt, what it wrote
    and what it observed.
    """
    task = TASKS[name]
    drawn = [draw(task, k, 0, 10**9) for k in range(400)]
    counts = [len(one.outputs) for one in drawn]
    assert (min(counts), max(counts)) == turns == task.turns
    for one in drawn[:20]:
        last = len(one.outputs) - 1
        assert one.context(0) == prompt
        assert one.context(last) == prompt + last * (one.outputs[0] + observed)
    assert np.mean([one.outputs[0] for one in drawn]) == pytest.approx(output, rel=0.15)
    assert task.output == pytest.approx(output)


def test_environments_of_coding_agents_take_their_published_share_of_a_step():
    """Of 366 s reset takes 15 %, 48 answers 8 %, as widely spread; a reset that fails takes 147 s
    more. No other task has an environment that is waited for.
    """
    task, step = TASKS["SWE-bench"], 366
    assert task.reset / step == pytest.approx(0.15)
    assert 48 * task.latency / step == pytest.approx(0.08) and task.spread == task.latency
    assert task.repair == 513 - step
    others = [one for name, one in TASKS.items() if name != "SWE-bench"]
    assert {(one.reset, one.latency, one.spread, one.failure) for one in others} == {(0, 0, 0, 0)}


@pytest.mark.parametrize(
    ("change", "said"),
    [({"failure": 1.0}, "is a chance"), ({"failure": -0.1}, "is a chance"),
     ({"output": 0.5}, "1 token or more"), ({"spread": float("nan")}, "must be 0 or more"),
     ({"heavy": ""}, "use prefill or decode")],
)  # fmt: skip
def test_tasks_have_limits(change, said):
    about = {"name": "t", "turns": (1, 1), "prompt": 1, "output": 1, "tail": 0, "observed": 0}
    assert Task(**about).failure == 0 and Pool("p", SERVER, 1).link == inf
    with pytest.raises(RFabricError, match=said):
        Task(**about | change)


def test_a_reward_model_is_busy_for_the_seconds_that_were_published():
    """Four H800 for 7.4 % of a step of 366 s on 128 trajectories, 0.85 GPU seconds each."""
    assert pytest.approx(0.074 * 366, rel=1e-9) == TASKS["GEM-Math"].rewarded * 128 / 4
    assert TASKS["GEM-Math"].rewarded == pytest.approx(0.85, abs=0.005)


def test_environments_that_answer_before_they_are_asked_answer_at_once():
    task = Task("quick", (4, 4), 10, 5, 0, 0, latency=0.1, spread=5.0, reset=3.0)
    drawn = [draw(task, k, 0, 999).latencies for k in range(50)]
    assert {one[0] for one in drawn} == {3.0}
    assert np.min(drawn) == 0.0

"""RollPacker: books of prompts, rounds, planner rules, time-outs, the stream trainer; and as a
compute scheduler.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute.serving import Batching
from rfabric.errors import RFabricError
from rfabric.rl import read_recipe
from rfabric.schedulers.rollpacker import (
    LONG,
    PLAIN,
    SHORT,
    STREAMING,
    SYNCHRONOUS,
    Books,
    Judges,
    Rewards,
    RollpackerSettings,
    draw,
    judged,
    launch,
    may_free,
    play,
    projected_peak,
    replanned,
    run,
    runs,
    schedule,
    settled,
    streamed,
    timeout,
    with_tp,
    work_done,
)
from rfabric.schedulers.table import scheduled

BATCH, GROUP = 16, 4


@cache
def job(**changes):
    kinds = {
        "model": "Qwen2.5-7B",
        "placement": "colocated",
        "cluster.training_gpus": 8,
        "cluster.generation_gpus": 8,
        "cluster.gpus_per_pod": 8,
        "generation.tp": 2,
        "generation.batch": BATCH,
        "generation.group_size": GROUP,
        "generation.max_prompt": 512,
        "generation.max_response": 4096,
        "training.mini_batches": 1,
        "training.micro_batch_tokens": 8192,
    }
    kinds |= {key.replace("__", "."): value for key, value in changes.items()}
    return read_recipe("grpo-64", [f"{key}={value}" for key, value in kinds.items()])


def one(policy=RollpackerSettings(), seed=0, books=Books(), w=None):
    w = w or job()
    made = launch(books, BATCH, GROUP, policy.prompts, policy.responses)
    return play(w, made, draw(w, seed, made, books, policy.alike))


# --- books ----------------------------------------------------------------------------------------

etas = st.sampled_from([1.0, 1.1, 1.25, 1.5, 2.0])


@given(
    st.integers(1, 40),
    st.integers(1, 16),
    etas,
    etas,
    st.integers(1, 30),
    st.randoms(use_true_random=False),
)
def test_every_prompt_is_trained_once_or_waits(batch, group, eta_p, eta_r, rounds, random):
    books, trained = Books(), []
    for _ in range(rounds):
        made = launch(books, batch, group, eta_p, eta_r)
        kept = random.sample(made.prompts, batch)
        trained += kept
        books = settled(books, made, kept)
        extra = -(-batch * eta_p // 1) - batch
        assert len(books.waiting) < batch + extra + 1
        assert made.keep_prompts == batch and made.keep_responses == group
    assert sorted([*trained, *books.waiting]) == list(range(books.fresh))
    assert set(books.attempts) == set(books.waiting)


def test_four_short_rounds_fill_a_long_one():
    kinds = [step.kind for step in run(job(), 0, RollpackerSettings(planner=0, stream=0), 10)]
    assert kinds == [SHORT] * 4 + [LONG] + [SHORT] * 4 + [LONG]


def test_a_long_round_runs_the_oldest_of_the_queue_without_spare_ones():
    made = launch(Books(fresh=40, waiting=tuple(range(20))), BATCH, GROUP)
    assert (made.kind, made.prompts, made.responses) == (LONG, tuple(range(16)), GROUP)


def test_without_redundancy_nothing_waits():
    made = launch(Books(), BATCH, GROUP, 1, 1)
    assert made.kind == PLAIN and settled(Books(), made, made.prompts) == Books(fresh=BATCH)


def test_an_aborted_prompt_keeps_its_tokens_and_is_answered_anew():
    w, made = job(), launch(Books(), BATCH, GROUP)
    again = launch(Books(40, made.prompts[:16], dict.fromkeys(made.prompts, 1)), BATCH, GROUP)
    before = draw(w, 0, made, Books())
    after = draw(w, 0, again, Books(attempts=dict.fromkeys(made.prompts, 1)))
    assert (before.prompts[:16] == after.prompts).all()
    assert (before.outputs[:16, :GROUP] != after.outputs).any()


@pytest.mark.parametrize("alike", [0.0, 0.5, 1.0])
def test_lengths_are_those_of_the_recipe_and_as_alike_as_said(alike):
    w, made = job(generation__batch=1000), launch(Books(), 1000, GROUP, 1, 1)
    drawn = draw(w, 3, made, Books(), alike).outputs
    expected = np.minimum(w.generation.lengths.at(np.linspace(0, 1, 9)[1:-1]), 4096)
    assert np.quantile(drawn, np.linspace(0, 1, 9)[1:-1]) == pytest.approx(expected, rel=0.15)
    correlation = np.corrcoef(np.log(drawn[:, 0]), np.log(drawn[:, 1]))[0, 1]
    assert correlation == pytest.approx(alike, abs=0.12)


# --- rounds ---------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(etas, etas, st.integers(0, 1000))
def test_rounds_keep_p0_prompts_with_r0_responses(eta_p, eta_r, seed):
    outcome = one(RollpackerSettings(eta_p, eta_r), seed)
    assert outcome.outputs.shape == outcome.kept_ends.shape == (BATCH, GROUP)
    assert (outcome.first.sum(axis=1) == GROUP).all()
    assert outcome.seconds == outcome.kept_ends.max()
    others = np.setdiff1d(np.arange(len(outcome.launch.prompts)), outcome.kept)
    assert (outcome.group_ends[others] >= outcome.seconds).all()
    assert all(t.seconds <= outcome.seconds + 1e-9 for t in outcome.times)
    assert all(t.peak_kv_tokens <= outcome.w.kv_capacity_tokens for t in outcome.times)


def test_kept_responses_are_the_shortest_of_their_prompt():
    outcome = one()
    for row in range(len(outcome.launch.prompts)):
        kept, spare = (
            outcome.drawn.outputs[row][outcome.first[row]],
            outcome.drawn.outputs[row][~outcome.first[row]],
        )
        assert kept.max() <= spare.min()
        assert (outcome.played[row] <= kept.max()).all()


def test_a_plain_round_takes_what_the_recipe_does():
    """Without redundancy a round is an ordinary rollout of the same responses."""
    from rfabric.rl.timing import replica_time

    outcome, w = one(SYNCHRONOUS), job()
    parts = (
        np.split(np.repeat(outcome.drawn.prompts, GROUP), 4),
        np.split(outcome.drawn.outputs.ravel(), 4),
    )
    assert outcome.seconds == max(
        replica_time(w, p, o).seconds for p, o in zip(*parts, strict=True)
    )


def test_redundancy_shortens_a_short_round():
    plain, short = one(SYNCHRONOUS, w=job()), one()
    assert short.seconds < plain.seconds and short.outputs.max() < plain.outputs.max()


def test_pace_stretches_all_times_alike():
    w, made = job(), launch(Books(), BATCH, GROUP)
    drawn = draw(w, 0, made, Books())
    assert play(w, made, drawn, 2.0).seconds == pytest.approx(2 * play(w, made, drawn).seconds)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: launch(Books(), 4, 4, 0.5),
            ("rollpacker prompts: 0.5 must lie between 1 (no redundancy) and 10"),
        ),
        (lambda: launch(Books(), 4, 4, 1, float("nan")), "rollpacker responses: nan must lie"),
        (lambda: one(RollpackerSettings(alike=2)), "rollpacker alike: 2 must lie between 0"),
        (lambda: RollpackerSettings(planner=2), "rollpacker planner: 2 must be 1 (on) or 0 (off)"),
        (lambda: RollpackerSettings(free=1), "rollpacker free: 1 must be a share below 1"),
        (lambda: run(job(), pace=0), "rollpacker: pace 0 must lie above 0"),
        (
            lambda: run(job(generation__turns=2)),
            ("rollpacker: generation.turns 2: rounds of one turn only"),
        ),
        (
            lambda: run(replace(read_recipe("grpo-64"), pipeline="one-step-off")),
            "the job's pipeline is one-step-off",
        ),
        (lambda: Judges(0), "judges: 0 workers can judge nothing"),
        (lambda: Judges(1, right=1.5), "judges: right 1.5 must be a share"),
        (
            lambda: timeout(1.0, least=5, most=4),
            ("time-out: least 5 s must lie above 0 s and be 4 s"),
        ),
        (
            lambda: scheduled(job(), 0, "rollpacker,eta=2"),
            "'eta=2' is not a setting; write KEY=VALUE with one of prompts",
        ),
    ],
)
def test_errors_name_value_and_limit(call, message):
    with pytest.raises(RFabricError) as caught:
        call()
    assert message in str(caught.value)


# --- planner --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "preempted, tp",
    [
        ([], 2),
        ([100], 2),
        ([100, 105], 2),
        ([100, 106], 4),
        ([0, 1], 4),
        ([100, 50], 2),
        ([0, 0, 0], 2),
        ([0, 0, 0, 0], 1),
        ([5, 0, 0, 0, 0], 1),
        ([0, 0, 0, 5, 5], 2),
    ],
)
def test_rule_of_the_planner(preempted, tp):
    assert replanned(2, preempted) == tp


def test_tp_1_is_not_halved():
    assert replanned(1, [0] * 4) == 1


def test_replicas_stay_in_a_server_and_hold_the_model():
    w = job()
    assert with_tp(w, 4).generation.tp == 4
    assert with_tp(w, 16) is None
    assert (
        with_tp(job(generation__memory_utilisation=0.2), 1) is None
    )  # a fifth of the HBM holds the weights of two GPUs only


def test_planner_follows_preemptions_one_step_late():
    steps = run(job(), 0, RollpackerSettings(stream=0), 6)
    assert [s.played.preempted for s in steps] == [0] * 6
    assert [s.w.generation.tp for s in steps] == [2, 2, 2, 2, 1, 1]


def test_planner_doubles_where_the_cache_is_too_small():
    w = job(
        generation__batch=512,
        generation__group_size=16,
        generation__memory_utilisation=0.3,
        generation__tp=1,
    )
    steps = run(w, 0, RollpackerSettings(stream=0), 6)
    tp, since = 1, []
    for step in steps:
        assert step.w.generation.tp == tp
        since.append(step.played.preempted)
        other = replanned(tp, since)
        if other != tp and with_tp(w, other):
            tp, since = other, []
    assert sum(step.played.preempted for step in steps) and tp > 1


# --- reward ---------------------------------------------------------------------------------------


@given(st.floats(0, 100))
def test_time_out_follows_the_anchor_between_its_bounds(anchor):
    assert timeout(anchor) == min(max(2.0, 1.5 * anchor), 30.0)
    assert timeout(None) == 30.0


@given(st.integers(0, 50))
def test_no_run_takes_longer_than_its_time_out_and_correct_ones_set_it(seed):
    fixed, adaptive = (runs(Judges(4, hanging=0.5), 8, 4, seed, way) for way in (False, True))
    assert (adaptive <= fixed).all() and (fixed <= 30).all() and (adaptive >= 0).all()
    assert (adaptive[fixed < 2] == fixed[fixed < 2]).all()


@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 10)), min_size=1, max_size=30),
    st.integers(1, 40),
)
def test_judges_serve_first_come_first_served(rows, workers):
    ready, seconds = (np.array(c) for c in zip(*rows, strict=True))
    ends = judged(ready, seconds, workers)
    assert (ends >= ready + seconds - 1e-9).all()
    assert ends.max() >= max(seconds.sum() / workers, (ready + seconds).max()) - 1e-9
    for at in (ends - seconds + 1e-6)[:5]:
        assert ((ends - seconds <= at) & (at < ends)).sum() <= workers
    if workers >= len(rows):
        assert ends == pytest.approx(ready + seconds)


def test_judging_each_sample_at_once_hides_the_reward():
    late, at_once = (
        run(job(), 0, SYNCHRONOUS, 2, Rewards(Judges(8), way, way)) for way in (False, True)
    )
    for a, b in zip(late, at_once, strict=True):
        assert b.seconds < a.seconds and b.judged >= b.played.seconds


# --- stream trainer -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "done, looked, free",
    [
        (0.19, 0, False),
        (0.2, 0.15, True),
        (0.2, 0.16, False),
        (0.5, 0.45, True),
        (0.51, 0.2, False),
    ],
)
def test_window_in_which_gpus_are_freed(done, looked, free):
    assert may_free(done, looked) is free


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.15, 0.18, 0.19, 0.2, 0.9]))
def test_the_stream_trainer_never_exceeds_memory(seed, utilisation):
    w = job(
        generation__memory_utilisation=utilisation, generation__batch=64, generation__group_size=8
    )
    made = launch(Books(), 64, 8)
    before = play(w, made, draw(w, seed, made, Books()))
    stream = streamed(before)
    if stream is None:
        return
    stay = len(w.replicas) - len(stream.freed)
    assert len(stream.freed) == len(w.replicas) // 2
    assert 0.2 <= stream.done <= 0.5
    assert stream.peak <= stay * w.kv_capacity_tokens * (1 - Batching().watermark)
    assert all(t.peak_kv_tokens <= w.kv_capacity_tokens for t in stream.played.times)


def test_nothing_is_freed_where_the_rest_does_not_fit(monkeypatch):
    w = job()
    before = one(w=w)
    monkeypatch.setattr("rfabric.schedulers.rollpacker.stream._room", lambda played: 10.0)
    assert streamed(before) is None and streamed(before, fixed=0.3) is not None


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.2, 0.5), st.sampled_from((1, 3, 5, BATCH)))
def test_what_was_there_stays_and_all_else_still_comes(seed, share, prompts):
    """Also where replicas, eight of them, got no prompt."""
    w, made = job(generation__tp=1), launch(Books(), prompts, GROUP)
    before = play(w, made, draw(w, seed, made, Books()))
    stream = streamed(before, fixed=share)
    after = stream.played
    there = before.ends <= stream.at
    assert (after.ends[there] == before.ends[there]).all()
    assert (after.ends[~there] > stream.at).all()
    assert after.outputs.shape == before.outputs.shape
    assert after.seconds >= stream.at
    assert all(after.times[r].seconds <= stream.at + 1e-9 for r in stream.freed)


def test_projection_of_known_responses():
    """All responses of one length: they go on to it together."""
    from rfabric.rl.lengths import Lengths

    flat = Lengths("flat", [0, 1], [1000, 1001])
    peak = projected_peak(np.array([600, 700]), np.array([100, 200]), flat, 1001)
    assert peak == pytest.approx(600 + 700 + 2 * 800, rel=0.02)
    assert projected_peak(np.array([]), np.array([]), flat, 1001) == 0


@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(1, 100)), min_size=1, max_size=20),
    st.floats(0.1, 100),
    st.floats(0, 60),
)
def test_work_done_early_is_bounded_by_time_and_by_what_is_there(rows, rate, start):
    ready, tokens = (np.array(c) for c in zip(*rows, strict=True))
    end = 55.0
    share = work_done(ready, tokens, rate, start, end)
    assert 0 <= share <= min(1, max(end - start, 0) * rate / tokens.sum()) + 1e-9
    assert share <= tokens[ready < end].sum() / tokens.sum() + 1e-9
    assert work_done(ready, tokens, 1e12, 0.0, 60.0) == pytest.approx(1.0)


def test_streaming_leaves_less_training_and_never_negative():
    off, on = (run(job(), 0, RollpackerSettings(planner=0, stream=way), 5) for way in (0, 1))
    for a, b in zip(off, on, strict=True):
        assert 0 <= b.early <= 1 and 0 < b.training <= a.training + 1e-9


def test_pools_apart_free_nothing():
    assert all(
        step.freed is None
        for step in run(read_recipe("grpo-64"), 0, RollpackerSettings(planner=0), 2)
    )


# --- as a scheduler -------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", ["colocated", "disaggregated"])
def test_a_schedule_has_its_rounds_in_steps_plan_and_trace(placement):
    w = replace(job(), placement=placement, steps=6)
    made = scheduled(w, 0, "rollpacker")
    assert made.facts["rounds"] == [SHORT] * 4 + [LONG] + [SHORT]
    assert len(made.steps) == len({p.step for p in made.plan.phases}) == 6
    for step in made.steps:
        assert sum(len(part) for part in step.generated.outputs) == BATCH * GROUP
        assert len(step.generated.times) == len(w.replicas)
    assert made.trace.provenance["scheduler"] == "rollpacker"
    assert made.facts["tensor_parallelism"] == [2, 2, 2, 2, 1, 1]
    assert any(early for early in made.facts["trained_early_share"])
    assert any(p.kind == STREAMING for p in made.plan.phases) == (placement == "disaggregated")


def test_steps_at_another_tp_stand_on_the_recipe_s_replicas():
    """Halved replicas: the training tokens of a step are those of its round whatever replicas made
    them.
    """
    w = replace(job(), steps=6)
    for packed, step in zip(run(w, 0), schedule(w, 0, {}).steps, strict=True):
        tokens = sum(int(part.sum()) for part in step.generated.outputs)
        assert tokens == int(packed.played.outputs.sum())
        assert step.generated.seconds == pytest.approx(max(t.seconds for t in packed.played.times))
        assert step.trained.seconds(w.training.buckets) == pytest.approx(packed.training)


def test_freed_gpus_are_drawn_at_work_as_long_as_they_worked():
    w = replace(job(), steps=5)
    early = [
        span
        for span in schedule(w, 0, {}).spans
        if span.what == "training" and len(span.gpus) < w.gpus
    ]
    work = [(len(p.freed.freed) * p.w.generation.tp, p.early, p) for p in run(w, 0) if p.early]
    assert len(early) == len(work) > 0
    for span, (gpus, share, packed) in zip(early, work, strict=True):
        whole = packed.trained.log_prob.max() + packed.trained.mini_batches[0].first.max()
        assert len(span.gpus) == gpus and span.seconds * gpus == pytest.approx(
            share * whole * w.gpus
        )
        assert span.seconds <= packed.played.seconds - packed.freed.ready + 1e-9


def test_same_seed_same_schedule():
    w = replace(job(), steps=3)
    a, b = (scheduled(w, 7, "rollpacker,prompts=1.5") for _ in range(2))
    assert a.plan == b.plan and a.facts == b.facts
    assert scheduled(w, 8, "rollpacker,prompts=1.5").plan != a.plan


# --- the paper ------------------------------------------------------------------------------------


def test_lengths_of_the_paper_have_its_quantiles():
    from rfabric.study.reproduce.rollpacker_inputs import JOBS, LONGEST_OVER_MEDIAN, P75, lengths

    for of in JOBS.values():
        made = lengths(of.most)
        assert made.at(0.5) == pytest.approx(JOBS["14B"].most / LONGEST_OVER_MEDIAN, rel=0.01)
        assert made.at(0.75) == pytest.approx(P75, rel=0.01)
        assert made.at(1.0) == of.most


def test_a_step_of_verl_has_the_shares_that_the_paper_states():
    from rfabric.study.reproduce import rollpacker_inputs as paper

    rollout, reward, training = paper.SHARES["code"]
    w = paper.trained_at_share(paper.job("14B"), paper.trained_at())
    (step,) = run(w, 0, SYNCHRONOUS, 1)
    assert step.seconds - step.judged == pytest.approx(277 * training / rollout, rel=0.01)
    assert paper.makespan(paper.pool(), False) <= 277 * reward / rollout
    assert paper.makespan(Judges(paper.pool().workers - 1), False) > 277 * reward / rollout


def test_redundancy_gains_more_the_longer_the_tail():
    """Both kinds of it, Fig. 11: 1.7, 3.1 and 4.0 x in the paper."""
    from rfabric.study.reproduce import rollpacker_inputs as paper

    gains = [paper.mean_rollout(n) / paper.mean_rollout(n, 1.25, 1.25) for n in paper.JOBS]
    assert 1 < gains[0] < gains[1] < gains[2]

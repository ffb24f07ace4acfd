"""RollPacker in waves and freed halves: plan against simulation where the network adds nothing, and
what holds for every response whoever computes it.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from rfabric.fabric import BUILDERS
from rfabric.rl import read_recipe
from rfabric.rl.lengths import Lengths
from rfabric.schedulers.rollpacker import (
    STREAMING,
    Books,
    RollpackerSettings,
    _facts,
    draw,
    generated_of,
    launch,
    play,
    projected_peak,
    run,
    schedule,
    streamed,
    with_tp,
)
from rfabric.schedulers.rollpacker.sent import on_replicas_of
from rfabric.schedulers.rollpacker.stream import _left
from rfabric.schedulers.table import scheduled
from rfabric.simulate.world import simulate

SMALL = (
    "model=Qwen2.5-7B",
    "generation.batch=32",
    "generation.max_prompt=1024",
    "generation.max_response=4096",
    "training.micro_batch_tokens=8192",
    "cluster.nic=1Gbit/s",  # thin, so that what is sent shows beside what is computed
)
# what replicas send in waves, judges in between, and replicas that exchange between servers
SENT = {
    "waves": ((), ""),
    "no log-probs": (("training.log_prob_passes=0", "training.mini_batches=1"), ""),
    "judges": ((), ",judge=Qwen2.5-7B"),
    "wide replicas": (("model=Qwen3-8B", "generation.tp=16"), ",planner=0"),
}


@cache
def job(*changes):
    return read_recipe("grpo-64", [*SMALL, *changes])


@cache
def packed(placement, policy=RollpackerSettings(planner=0)):
    return run(replace(job(), placement=placement), 0, policy, 1)[0]


@pytest.mark.parametrize("name", SENT)
def test_a_network_without_delay_takes_what_the_plan_says_of_waves(name):
    changes, policy = SENT[name]
    w = job(*changes)
    made = scheduled(w, 0, f"rollpacker{policy}")
    ideal = BUILDERS["ideal"](w.hosts, w.nic_bps)
    ideal = replace(ideal, links=tuple(replace(link, delay=0.0) for link in ideal.links))
    took = {phase.key.phase: phase.seconds for phase in simulate(ideal, made.trace).phases}
    for phase in made.plan.phases:
        # what a wave waits for its bytes is no part of the phase that computes beside it
        near = 1e-3 if phase.kind == STREAMING else 1e-7
        assert took[phase.kind] == pytest.approx(phase.seconds + phase.comm, rel=near), phase.kind
    assert STREAMING in took


def test_an_exchange_inside_training_that_streams_is_planned_as_it_is_simulated():
    """Context-parallel training sends in every micro-batch; waves overlap with it, give or take."""
    w = job("training.tp=4", "training.cp=4")
    made = scheduled(w, 0, "rollpacker")
    took = simulate(BUILDERS["ideal"](w.hosts, w.nic_bps), made.trace)
    (generation,) = (p for p in made.plan.phases if p.kind == "generation")
    simulated = next(p.seconds for p in took.phases if p.key.phase == "generation")
    assert simulated == pytest.approx(generation.seconds + generation.comm, rel=1e-3)
    assert generation.comm > 1


@pytest.mark.parametrize("judge", ["", "Qwen2.5-7B"])
def test_a_replica_sends_each_response_once_and_never_before_it_ended(judge):
    policy = RollpackerSettings(planner=0, judge=judge)
    done = packed("disaggregated", policy)
    made, played = on_replicas_of(done.w, done), done.played
    maker, last = played.replica[played.kept], dict[int, float]()
    for wave, sent in zip(made.waves, made.sent, strict=True):
        for s in sent:
            mine = wave.groups[maker[wave.groups] == s.replica]
            last[s.replica] = max(last.get(s.replica, 0.0), played.kept_ends[mine].max())
            assert s.ended == last[s.replica] <= wave.at
    tokens = sum(s.tokens for sent in made.sent for s in sent)
    assert tokens == played.outputs.sum()
    asked = [(s.replica, s.asked) for sent in made.sent for s in sent]
    assert any(len(flows.src) for _, flows in asked) == bool(judge)
    stand = {gpus[0] for gpus in done.judges}
    for replica, flows in asked:
        assert set(flows.src) <= {done.w.replicas[replica][0]} and set(flows.dst) <= stand


@pytest.mark.parametrize("judge", ["", "Qwen2.5-7B"])
def test_it_is_told_how_long_after_the_last_response_the_last_is_judged(judge):
    """A rule takes no time."""
    done = packed("disaggregated", RollpackerSettings(planner=0, judge=judge))
    (late,) = _facts([done])["judged_after_s"]
    assert late == pytest.approx(done.waves[-1].at - done.played.kept_ends.max())
    assert (late > 0) == bool(judge)


def test_as_many_judges_as_replicas_stand_beside_each():
    count = len(job().replicas)
    done = packed("disaggregated", RollpackerSettings(planner=0, judge="Qwen2.5-7B", judges=count))
    assert list(done.judges) == list(done.w.replicas) and count > 1


# --- halves that are freed ------------------------------------------------------------------------


@cache
def played(seed=0):
    w, made = replace(job(), placement="colocated"), launch(Books(), 32, 8)
    return play(w, made, draw(w, seed, made, Books()))


@pytest.mark.parametrize("seed", range(3))
def test_what_is_left_at_any_instant_has_a_token_to_come(seed):
    """Also an instant before a response ends, when others of its replica are far ahead."""
    before = played(seed)
    for at in np.quantile(before.ends, [0.0, 0.1, 0.3, 0.7, 0.99]) * (1 - 1e-9):
        rest = _left(before, float(at))
        assert len(rest.row) == (before.ends > at).sum()
        assert rest.to_come.min() >= 1 and rest.made.min() >= 0
        assert (rest.to_come + rest.made == before.played[rest.row, rest.column]).all()
        assert (rest.context - rest.made == before.drawn.prompts[rest.row]).all()


def test_contexts_that_moved_are_prefilled_again_and_the_slowest_replica_tells_how_long():
    before = played()
    found = streamed(before, fixed=0.3)
    stay = [r for r in range(len(before.times)) if r not in found.freed]
    more = [found.played.times[r].prefill - before.times[r].prefill for r in stay]
    assert min(more) >= 0 and found.recompute == pytest.approx(max(more)) and max(more) > min(more)


def test_nobody_goes_on_beyond_the_longest_response():
    """Lengths up to 3,000 tokens, cut at 1,000: after 999 one more would be the last."""
    even = Lengths("even", np.array([0.0, 1.0]), np.array([1.0, 3000.0]))
    assert projected_peak(np.array([10]), np.array([999]), even, 1000) == 10
    # 1,000 tokens: all that begin are there to the end but those that are shorter
    begun = projected_peak(np.array([0]), np.array([0]), even, 1000)
    assert begun == pytest.approx(999 * (1 - 998 / 2999), rel=0.02)


def test_the_peak_of_few_tokens_to_come_is_looked_for_at_every_token():
    """Of lengths even up to 1,001, with 900 made: after t more 1 - t / 101 of them go on."""
    even = Lengths("even", np.array([0.0, 1.0]), np.array([1.0, 1001.0]))
    for context in (0, 10, 37, 60):
        peak = projected_peak(np.array([context]), np.array([900]), even, 1001)
        assert peak == pytest.approx(max((1 - t / 101) * (context + t) for t in range(101)))


def test_training_is_drawn_beside_the_rollout_from_when_a_wave_begins():
    made = schedule(replace(job(), steps=2), 0, {"planner": "0"})
    begin = {p.step: p.start for p in made.plan.phases if p.kind == "generation"}
    kinds = "generation", "training", "weight_sync"
    assert {(s.what, s.step) for s in made.spans} >= {(k, n) for k in kinds for n in (0, 1)}
    for step in made.steps:
        busy = [wave for wave in step.generated.waves if wave.part]
        mine = [s for s in made.spans if (s.what, s.step) == (STREAMING, step.number)]
        at = begin[step.number]
        assert [s.start for s in mine] == pytest.approx([at + wave.begins for wave in busy])
        assert [s.seconds for s in mine] == pytest.approx([wave.seconds for wave in busy])
        assert busy and begin[1] > 0


def test_either_half_of_a_replica_twice_as_wide_takes_its_time():
    wide = with_tp(job(), 4)
    done = run(wide, 0, RollpackerSettings(planner=0, stream=0), 1)[0]
    own, halves = generated_of(done.played).times, on_replicas_of(job(), done).times
    assert len(set(own)) > 1 and len(halves) == 2 * len(own)
    assert halves == [own[r // 2] for r in range(len(halves))]


def test_the_freed_half_trains_no_more_than_what_the_others_leave_time_for():
    """Gradients done early take GPUs as long as they would later: time x GPUs is kept."""
    w = replace(job(), placement="colocated", steps=1)
    done = packed("colocated")
    (span,) = (
        s for s in schedule(w, 0, {"planner": "0"}).spans
        if s.what == "training" and len(s.gpus) < w.gpus
    )  # fmt: skip
    freed = {gpu for r in done.freed.freed for gpu in done.w.replicas[r]}
    assert set(span.gpus) == freed and 2 * len(freed) == w.gpus
    before = done.trained.log_prob.max() + done.trained.mini_batches[0].first.max()
    after = done.left.log_prob.max() + done.left.mini_batches[0].first.max()
    assert span.seconds * len(freed) == pytest.approx((before - after) * w.gpus)
    assert span.start == done.freed.ready

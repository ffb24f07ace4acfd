"""Responses in flight: played event by event beside the closed form, and in plans and traces."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.errors import RFabricError
from rfabric.folders import data_dir
from rfabric.rl import read_recipe, trace_of
from rfabric.rl.explain import explain
from rfabric.rl.in_flight import period, play
from rfabric.rl.phases import step_of
from rfabric.rl.plan import plan_of, step_period
from rfabric.simulate.world import simulate

SMALL = ("generation.batch=8", "generation.group_size=4", "generation.max_response=4096")
DEPTHS = (0, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 4, 8)
SLOTS, ROUNDS = 8, 8  # so that parts of a batch of 64 fill slots in whole rounds


def drawn(seed: int, steps: int = 8, batch: int = 24) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(0, 1.2, (steps, batch))


def job(*overrides: str):
    return read_recipe("grpo-64", [*SMALL, "steps=3", *overrides])


# --- two ways to a step ---------------------------------------------------------------------------


@pytest.mark.parametrize("trained", [1.0, 3.0, 7.5, 8.0, 20.0])
@pytest.mark.parametrize("ahead", [0, 0.125, 0.25, 0.5, 0.875, 1, 1.25, 2, 4, 8])
def test_the_play_of_even_responses_is_the_closed_form(trained, ahead):
    even = np.ones((24, SLOTS * ROUNDS))
    assert play(even, SLOTS, trained, ahead).period == pytest.approx(period(8.0, trained, ahead))


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.floats(0, 60))
def test_no_pipeline_is_slower_for_being_deeper(seed, slots, trained):
    lasts, before = drawn(seed), np.inf
    for ahead in DEPTHS:
        played = play(lasts, slots, trained, ahead)
        assert (played.published <= before + 1e-9).all()
        before = played.published
        # nor for more slots
        assert (play(lasts, slots + 1, trained, ahead).published <= before + 1e-9).all()


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.floats(0.1, 60), st.sampled_from(DEPTHS))
def test_what_is_in_flight_keeps_the_rule(seed, slots, trained, ahead):
    lasts = drawn(seed)
    steps, batch = lasts.shape
    played = play(lasts, slots, trained, ahead)
    for step, at in enumerate([0.0, *played.published[:-1]]):  # just before weights come
        until = played.published[step]
        begun = np.count_nonzero(played.begun < until)
        assert begun <= (step + 1 + ahead) * batch and at <= played.starts[step]
    assert (np.diff(played.ready) >= 0).all() and (played.starts >= played.ready).all()
    assert len(played.lag) == steps * batch and played.left <= slots
    assert (np.diff(played.published) >= trained - 1e-9).all()


@given(st.integers(0, 10**6), st.floats(0.1, 60))
def test_on_policy_a_step_is_its_slowest_replica_and_training(seed, trained):
    lasts = drawn(seed)
    played = play(lasts, lasts.shape[1], trained, 0)
    assert not played.lag.any() and not played.left
    assert np.diff([0, *played.published]) == pytest.approx(lasts.max(axis=1) + trained)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.floats(0, 60))
def test_so_deep_that_nothing_waits_the_slowest_resource_decides(seed, slots, trained):
    lasts = drawn(seed, steps=12)
    played = play(lasts, slots, trained, 100)
    busy = float(lasts.sum()) / slots / len(lasts)
    whole = played.published[-1] / len(lasts)
    most = (lasts.max() + trained) / len(lasts)  # what fills and drains it
    assert max(busy - most, trained) - 1e-9 <= whole
    # what is begun beyond the last batch takes slots as well, of those that end before
    assert whole <= max(busy, trained) + most + trained / len(lasts) + busy


def test_a_deeper_pipeline_hides_the_longest_behind_other_batches():
    lasts = drawn(1, steps=40)
    periods = [play(lasts, 12, 0.5, ahead).period for ahead in (0, 0.5, 2)]
    busy = lasts.sum() / 12 / len(lasts)
    assert periods[0] > 1.3 * periods[1] and periods[2] == pytest.approx(busy, rel=0.1)
    lags = [play(lasts, 12, 0.5, ahead).lag.mean() for ahead in (0, 0.5, 2)]
    assert lags[0] == 0 < lags[1] < 1 and lags[1] < lags[2] < 3


@pytest.mark.parametrize(
    ("lasts", "more", "message"),
    [
        (np.ones((1, 4)), (1, 1.0, 1.0), "steps 1 must be 2 or more"),
        (np.ones((2, 4)), (0, 1.0, 1.0), "slots 0 must be 1 or more"),
        (np.ones((2, 4)), (1, -1.0, 1.0), "trained -1 must be 0 or more"),
        (np.ones((2, 4)), (1, 1.0, float("nan")), "ahead nan must be 0 or more"),
        (-np.ones((2, 4)), (1, 1.0, 1.0), "the shortest response -1 must be 0"),
    ],
)
def test_what_cannot_be_played_is_refused(lasts, more, message):
    with pytest.raises(RFabricError, match=message):
        play(lasts, *more)


# --- in plans and traces --------------------------------------------------------------------------


@pytest.fixture
def even(tmp_path):
    """A job whose every step is the same."""
    (tmp_path / "even.csv").write_text("tokens\n3000\n3000\n")
    (tmp_path / "prompt.csv").write_text("tokens\n100\n100\n")
    (tmp_path / "job.yaml").write_text((data_dir("traffic") / "grpo-64.yaml").read_text())
    files = "generation.lengths=even.csv", "generation.prompt_lengths=prompt.csv"
    return lambda *more: read_recipe(tmp_path / "job.yaml", [*files, *SMALL, "steps=12", *more])


@pytest.mark.parametrize("pipeline", ["bounded-staleness", "async"])
@pytest.mark.parametrize("training_gpus", [8, 64])
def test_the_period_of_parts_is_the_closed_form(even, pipeline, training_gpus):
    periods = []
    for staleness in (0.01, 0.1, 0.5, 0.75, 1, 1.5, 2, 8):
        w = even(
            f"pipeline={pipeline}",
            f"staleness={staleness}",
            f"cluster.training_gpus={training_gpus}",
            "training.tp=8",
        )
        plan = plan_of(w, 1)
        one = {p.kind: p.seconds for p in plan.phases}
        ends = [p.start + p.seconds for p in plan.phases if p.kind == "training"]
        periods.append(step_period(w, **one))
        assert ends[-1] - ends[-5] == pytest.approx(4 * periods[-1], rel=1e-9)
    on_policy = even(f"cluster.training_gpus={training_gpus}", "training.tp=8")
    one = {p.kind: p.seconds for p in plan_of(on_policy, 1).phases}
    assert (np.diff(periods) <= 0).all()
    assert step_period(on_policy, **one) >= 0.99 * periods[0] > periods[4]


@settings(deadline=None, max_examples=15)
@given(
    st.sampled_from(["bounded-staleness", "async"]),
    st.sampled_from([0.1, 0.5, 0.6, 1.5, 2.25]),
    st.sampled_from(["grpo-64", "grpo-64-moe"]),
    st.sampled_from([(), ("generation.turns=3", "environments.servers=2")]),
    st.integers(0, 2**16),
)
def test_traces_of_parts_are_those_of_the_plan(pipeline, staleness, recipe, more, seed):
    words = (f"pipeline={pipeline}", f"staleness={staleness}", "steps=4", *more)
    w = read_recipe(recipe, [*SMALL, *words])
    plan, trace = plan_of(w, seed), trace_of(w, seed)  # which checks seconds and bytes
    assert trace.compute_only()[1].max() == pytest.approx(plan.seconds, rel=1e-9)
    deeper = [
        plan_of(read_recipe(recipe, [*SMALL, *words, f"staleness={n}"]), seed).seconds
        for n in (0.01, staleness, staleness + 0.3, 8)
    ]
    assert (np.diff(deeper) <= 1e-9 * deeper[0]).all()


def test_on_a_network_too_a_deeper_pipeline_is_no_slower():
    seconds = []
    for words in ((), *((f"staleness={n}",) for n in (0.01, 0.3, 0.7, 1))):
        w = job(*(("pipeline=bounded-staleness",) * bool(words)), *words)
        seconds.append(simulate(w.needs.fabric("ideal"), trace_of(w, 1)).step_seconds)
    assert (np.diff(seconds) <= 1e-9 * seconds[0]).all() and seconds[0] > 1.05 * seconds[-1]


def test_readers_of_whole_batches_refuse_parts():
    words = ("pipeline=bounded-staleness", "staleness=0.5", "generation.prefill_gpus=4")
    with pytest.raises(RFabricError, match="staleness: 0.5 cuts batches in two, and generation.pr"):
        job(*words)


def test_the_explanation_says_how_far_responses_lag():
    whys, lags = [], []
    for staleness in (0.25, 1, 4):
        items = explain(job("pipeline=async", f"staleness={staleness}"))
        (item,) = [item for item in items if item.item == "in flight"]
        assert item.count == (1 + staleness) * 32
        lags.append(float(item.why.split("trained on ")[1].split()[0]))
        whys.append(items[-1].why)
    assert lags == sorted(lags) and lags[0] < 0.5 < lags[2] <= 5
    assert "75% of it and training" in whys[0] and "75%" not in whys[1]
    assert not [item for item in explain(job()) if item.item == "in flight"]


# --- how many are under way -----------------------------------------------------------------------


@pytest.mark.parametrize("pipeline", ["sync", "async"])
def test_fewer_prompts_under_way_take_longer(pipeline):
    made = [step_of(job(f"pipeline={pipeline}"), 1, 0).generated]
    for prompts in (1000, 8, 4, 2):
        w = job(f"pipeline={pipeline}", f"generation.concurrent={prompts}")
        made.append(step_of(w, 1, 0).generated)
        assert w.slots == min(1024, max(1, prompts * 4 // len(w.decoding)))
    seconds = [one.seconds for one in made]
    assert seconds[0] == seconds[1] and seconds == sorted(seconds) and seconds[1] < seconds[-1]
    tokens = {sum(map(one.response_tokens, range(len(one.outputs)))) for one in made}
    assert len(tokens) == 1


def test_no_prompt_under_way_is_refused():
    with pytest.raises(RFabricError, match="generation.concurrent: 0 must be 1 or more"):
        job("generation.concurrent=0")

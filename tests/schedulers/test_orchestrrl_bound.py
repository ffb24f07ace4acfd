"""The bound on generation: what a token takes at least, and which programs are solved."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric.compute.roofline import DecodeStep
from rfabric.rl import read_recipe
from rfabric.rl.phases import responses, step_of
from rfabric.schedulers.orchestrrl import engines_of
from rfabric.schedulers.orchestrrl import least as bounds
from rfabric.schedulers.orchestrrl.least import (
    BINS,
    Configuration,
    _configurations,
    _parts,
    _ranges,
    least_generation,
    least_seconds,
)
from rfabric.schedulers.orchestrrl.outlook import Cut, Engines

# of each step one term alone decides, reading or computing, whatever the context below
READS = DecodeStep(
    3.0, 0.01, 1e-6, 1e-7, 0.5, 0.02, experts_s=2.0, missed_share=0.5, own_s_per_response=0.03,
    window_kv_s_per_token=0.004, window=50,
)  # fmt: skip
COMPUTES = replace(READS, weights_s=0.0, experts_s=0.0, kv_s_per_token=0.0,
                   window_kv_s_per_token=0.0, matmul_s_per_response=4.0,
                   attention_s_per_token=0.02)  # fmt: skip


@given(st.integers(1, 300), st.floats(1, 3))
def test_every_number_of_responses_lies_in_one_range_that_grows_no_more_than_it_may(most, growth):
    ranges = list(_ranges(most, growth))
    assert [n for low, high in ranges for n in range(low, high + 1)] == list(range(1, most + 1))
    for low, high in ranges:
        assert high <= low * growth and (high == most or high + 1 > low * growth)


@pytest.mark.parametrize("step", [READS, COMPUTES], ids=["reads", "computes"])
@pytest.mark.parametrize(("fewest", "most", "replicas"), [(1, 1, 1), (3, 5, 2), (8, 8, 4)])
def test_tokens_of_one_step_together_take_what_it_takes(step, fewest, most, replicas):
    """n alike: n shares of a server are the step of n, and what a token delays the fewest is
    theirs.
    """
    made = Configuration(step, replicas, fewest, most)
    for context in (np.array([20.0]), np.array([80.0])):
        whole = step.decode(np.array([float(most)]), most * context)
        assert most * replicas * made.share(context) == pytest.approx(whole)
        few = np.array([float(fewest)])
        assert made.delay(context) == pytest.approx(step.decode(few, fewest * context))
        assert made.latency(context) == pytest.approx(step.decode(few, context))


@given(st.lists(st.integers(1, 200), min_size=1, max_size=6))
def test_shares_of_unlike_tokens_are_no_more_than_their_step(contexts):
    n, context = len(contexts), np.array(contexts, float)
    for step in (READS, COMPUTES, replace(READS, matmul_s_per_response=1.0)):
        whole = step.decode(np.array([float(n)]), np.array([context.sum()]))
        made = Configuration(step, 1, n, n)
        assert made.share(context).sum() <= whole * (1 + 1e-9)
        assert (made.latency(context) <= whole * (1 + 1e-9)).all()


def test_tokens_are_counted_by_class_and_by_their_place_in_a_response():
    """A response of 48 tokens, one of 12 and 14 without any, in eight classes; a place is of two
    tokens.
    """
    prompts = np.array([5, 9, *[20] * 13, 4])
    parts = _parts(prompts, np.array([48, 12, *[0] * 14]), np.arange(16.0))
    assert parts.waits.tolist() == [4.0 * i + 1 for i in range(8)]
    assert parts.members.tolist() == [2.0] * 8
    assert parts.tokens[0].tolist() == [4.0] * 6 + [2.0] * 18 and not parts.tokens[1:].any()
    assert parts.context[0].tolist() == [5.0 + 2 * i for i in range(BINS)]
    assert parts.context[:, 0].tolist() == [5.0] + [20.0] * 6 + [4.0]
    none = _parts(np.array([3, 4]), np.zeros(2, int), np.zeros(2))
    assert not none.tokens.any() and none.members.tolist() == [1.0, 1.0]


def test_each_cut_decodes_as_many_at_once_as_its_attention_replicas_have_places():
    step = DecodeStep(0, 0, 0, 0, 1.0, 0)
    engines = Engines((Cut(1), Cut(2, 3)), (step, step), (10**9,) * 2, (6, 1))
    every = _configurations(engines, 4, 9.0)
    assert [(one.replicas, one.fewest, one.most) for one in every] == [
        (6, 1, 4), (1, 1, 9), (1, 10, 12),
    ]  # fmt: skip


def alone(seconds):
    """A server of one replica whose steps take so long, however many decode."""
    return Engines((Cut(1),), (DecodeStep(0, 0, 0, 0, seconds, 0),), (10**9,), (1,))


@pytest.mark.parametrize("waits", [0.0, 3.0])
@pytest.mark.parametrize(
    ("tokens", "servers", "seconds"),
    [([10], 1, 20.0), ([10], 4, 20.0), ([0], 1, 0.0), ([0, 0], 1, 0.0), ([10, 10], 2, 20.0),
     ([10, 10], 1, 40.0), ([30, 0, 0], 1, 60.0), ([10, 10, 10, 10], 2, 40.0)],
)  # fmt: skip
def test_the_bound_of_few_responses_is_known(tokens, servers, seconds, waits):
    """Steps take 2 s, one response has a place: tokens follow one another; what stands still while
    an environment answers takes its time beside those of others.
    """
    tokens = np.array(tokens)
    told = least_seconds(alone(2.0), servers, np.ones(len(tokens), int), tokens, 1, waits)
    mean = 2.0 * tokens.max() + waits  # of the longest, which no other need wait for
    assert told == pytest.approx(max(seconds, mean))


def test_turns_give_their_first_token_as_they_are_read_and_wait_between(monkeypatch):
    asked = []
    monkeypatch.setattr(bounds, "least_seconds", lambda *given: asked.append(given) or 7.0)
    words = ("generation.turns=3", "generation.environment_latency=5s", "generation.batch=16")
    w = read_recipe("grpo-64", words)
    assert least_generation(w, 3, 1) == 7.0
    ((engines, servers, prompts, tokens, places, waits),) = asked
    given = responses(w, 3, 1)
    assert engines.cuts == engines_of(w).cuts and servers == 4
    assert (prompts == given[0]).all() and places == w.generation.max_num_seqs
    assert (tokens == given[1] - 3).all() and (waits == 10.0).all()


@pytest.mark.parametrize(
    ("tokens", "waits", "seconds"),
    [([0, 0], [3, 7], 7.0), ([10, 1], [0, 50], 52.0), ([10, 1], [0, 1], 22.0),
     ([0, 10, 0], [9, 8, 40], 40.0)],
)  # fmt: skip
def test_each_response_stands_still_as_long_as_it_does(tokens, waits, seconds):
    """Of steps of 2 s, one response at once: who waits longest, or all that is decoded."""
    tokens = np.array(tokens)
    told = least_seconds(
        alone(2.0), 1, np.ones(len(tokens), int), tokens, 1, np.array(waits, float)
    )
    assert told == pytest.approx(seconds)


@pytest.mark.parametrize("turns", [2, 27, 40, 300])
def test_no_step_of_many_turns_is_under_its_bound(turns):
    """Also where responses have fewer tokens than turns, so that they take no more than tokens."""
    words = (
        "generation.batch=32", "generation.group_size=1", "generation.max_response=64",
        f"generation.turns={turns}", "generation.observation=1",
        "generation.environment_latency=5s",
    )  # fmt: skip
    w = read_recipe("grpo-64", words)
    least, played = least_generation(w, 0, 0), step_of(w, 0, 0).generated.seconds
    answers = min(turns, responses(w, 0, 0)[1].max()) - 1
    assert 5 * answers <= least <= played < 1.5 * least

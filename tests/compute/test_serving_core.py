"""Continuous batching: the compiled core plays it as Python does, to the last bit."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric import native
from rfabric.compute import serving, serving_core
from rfabric.compute.ffn_apart import Sides
from rfabric.compute.requests import Requests, closed_loop, in_turns, independent
from rfabric.compute.roofline import DecodeStep
from rfabric.compute.serving import Batching, Served, serve
from rfabric.simulate.build import build

SECONDS = st.sampled_from([0.0, 1e-6, 1 / 3e4, 7e-3])


@pytest.fixture(scope="module", autouse=True)
def compiled_core():
    """The core is built where it is missing: without it Python would be compared with itself."""
    if native.core() is None:
        build()
        for known in (native.core, serving_core.core):
            known.cache_clear()
    assert serving_core.core() is not None


@st.composite
def steps(draw):
    """Rooflines with and without experts and windows; which side is the slower one changes."""
    seconds = [draw(SECONDS) for _ in range(13)]
    seconds[7] = draw(st.sampled_from([1.0, 0.96875, 0.3]))  # the share of experts left out
    seconds[4] = draw(st.sampled_from([1e-3, 1 / 7]))  # a step takes some time
    return DecodeStep(*seconds, window=draw(st.integers(0, 90)))


@st.composite
def asked(draw):
    """Requests that come at once, in groups, from clients, in the turns of agents, here and
    there.
    """
    n = draw(st.integers(1, 24))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    prompt, output = random.integers(1, 41, n), random.integers(1, 61, n)
    kind = draw(st.sampled_from(["groups", "clients", "turns", "scattered"]))
    if kind == "clients":
        return closed_loop(n, int(prompt[0]), int(output[0]), 3, draw(SECONDS))
    if kind == "turns":
        size = draw(st.integers(1, 4))
        return in_turns(prompt[np.arange(n) // size * size], output, 3, draw(SECONDS), 4, size)
    if kind == "scattered":
        gap = random.choice([0.0, 0.1, np.nextafter(0.1, 1), 2.0], n)
        return Requests(prompt, output, np.full(n, -1), gap, np.zeros(n), np.full(n, -1))
    size = draw(st.integers(1, 4))
    return independent(prompt[np.arange(n) // size * size], output, size)


ENGINES = st.builds(
    Batching,
    st.sampled_from([1, 7, 64, 8192]),
    st.sampled_from([1, 3, 64]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 0.7, 1.0]),
    st.sampled_from([0.0, 0.01]),
)


def by_python(*words) -> Served:
    with mock.patch.object(serving, "core", lambda: None):
        return serve(*words)


@given(steps(), st.integers(240, 900), ENGINES, asked(), st.sampled_from([None, 0.0, 0.5, 1.0]))
def test_the_core_serves_as_python_does(step, capacity, batching, requests, there):
    resident = None if there is None else np.arange(len(requests)) < there * len(requests)
    ours, theirs = (
        play(step, capacity, batching, requests, resident) for play in (serve, by_python)
    )
    for name in ("arrival", "first", "end", "output"):
        one, other = getattr(ours, name), getattr(theirs, name)
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes(), name
    for name in ("prefill", "decode", "idle", "peak_kv_tokens", "preempted"):
        assert getattr(ours, name) == getattr(theirs, name), name


def test_what_is_drawn_fills_the_cache_and_finds_contexts():
    """The cases above are worth little where nothing is preempted, or shared, or comes back."""
    step = DecodeStep(1e-2, 1e-6, 1e-4, 1e-7, 1e-3, 1e-5, matmul_s_per_prompt_token=1e-4)
    random = np.random.default_rng(0)
    prompt, output = random.integers(1, 41, 24), random.integers(1, 61, 24)
    tight = by_python(step, 300, Batching(), independent(prompt, output))
    assert tight.preempted > 0
    turns = in_turns(prompt, output, 3, 0.5, 4)
    kept, lost = (by_python(step, tokens, Batching(), turns) for tokens in (10**5, 300))
    assert kept.prefill < lost.prefill


def test_a_step_of_two_sides_is_played_in_python():
    side = DecodeStep(1e-2, 1e-6, 1e-4, 1e-7, 1e-3, 1e-5)
    requests = independent(np.array([30]), np.array([9]))
    served = serve(Sides(side, side), 100, Batching(), requests)
    assert served.seconds == serve(side, 100, Batching(), requests).seconds


def test_prompts_of_others_are_refused():
    side = DecodeStep(1e-2, 1e-6, 1e-4, 1e-7, 1e-3, 1e-5)
    requests = independent(np.array([30]), np.array([9]))
    with pytest.raises(ValueError, match="2 prompts that are there or not, of 1 requests"):
        serve(side, 100, Batching(), requests, np.zeros(2, bool))

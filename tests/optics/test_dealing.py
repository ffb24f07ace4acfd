"""Pairs of pods dealt to core OCSes: the compiled core against Python."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric import native
from rfabric.optics import cores
from rfabric.optics.cores import by_core, by_python, cores_of

WAYS = [
    pytest.param(
        by_core, marks=pytest.mark.skipif(native.core() is None, reason="the core was not built")
    ),
    by_python,
]


def some_pairs(pods, most, share, seed):
    """Pairs of pods, a part of those of which no pod stands in more than `most`: int64[2, n]."""
    rng = np.random.default_rng(seed)
    stubs = rng.permutation(np.repeat(np.arange(pods), most))
    ends = stubs[: len(stubs) // 2 * 2].reshape(-1, 2)
    return ends[(ends[:, 0] != ends[:, 1]) & (rng.random(len(ends)) < share)].T


@pytest.mark.skipif(native.core() is None, reason="the core was not built")
@given(
    st.integers(2, 12),
    st.integers(1, 12),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 2**32 - 1),
)
def test_core_and_python_give_each_pair_the_same_colour(pods, colours, share, seed):
    """Few pods of many pairs too, where chains of two colours are swapped."""
    pairs = some_pairs(pods, 2 * colours, share, seed)
    colour = by_core(pairs, colours)
    np.testing.assert_array_equal(colour, by_python(pairs, colours))
    stand = Counter((pod, one) for ends in pairs for pod, one in zip(ends, colour, strict=True))
    assert max(stand.values(), default=0) <= 2


@pytest.mark.parametrize("way", WAYS)
def test_more_pairs_than_cables_are_refused(way):
    with pytest.raises(ValueError):
        way(np.array([[0] * 5, [1] * 5]), 2)
    assert sorted(way(np.array([[0] * 4, [1] * 4]), 2).tolist()) == [0, 0, 1, 1]


def test_where_the_core_was_never_built_python_deals(monkeypatch):
    pairs = some_pairs(5, 8, 1.0, 0)
    dealt = cores_of(pairs, 8, 2)
    monkeypatch.setattr(cores, "_core", lambda: None)
    np.testing.assert_array_equal(cores_of(pairs, 8, 2), dealt)

"""Passes over rows: the compiled core does what Python does level by level, to the last bit."""

import pickle
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric import native
from rfabric.routing.rows import offsets_of
from rfabric.simulate.build import build
from rfabric.trace import Trace, sweeps


@pytest.fixture(scope="module", autouse=True)
def compiled_core():
    """The core is built where it is missing: without it Python would be compared with itself."""
    if native.core() is None:
        build()
        for known in (native.core, sweeps.core):
            known.cache_clear()
    assert sweeps.core() is not None


def drawn(random, rows: int, shuffled: bool) -> Trace:
    """A trace of so many rows of three phases, each of which waits for up to four before it; where
    `shuffled`, they stand in any order.
    """
    place = random.permutation(rows) if shuffled else np.arange(rows)
    waits = [random.integers(0, i, random.integers(0, 5)) if i else [] for i in range(rows)]
    after = [np.zeros(0, int)] * rows
    for i, some in enumerate(waits):
        after[place[i]] = place[np.unique(some).astype(int)]
    counts = np.array([len(some) for some in after], int)
    times = random.choice([0.0, 1 / 3, 0.1, 7.0], (2, rows))
    return Trace(
        ("h1", "h2"),
        np.zeros(rows, int),
        np.ones(rows, int),
        np.ones(rows, int),
        times[0] * (random.random(rows) < 0.2),
        times[1],
        offsets_of(counts),
        np.concatenate([np.zeros(0, int), *after]),
        random.integers(0, 2, rows),
        random.integers(0, 2, rows),
        np.zeros(rows, int),
        ("training", "weight_sync"),
        ("",),
    )


@given(rows=st.integers(0, 60), seed=st.integers(0, 1 << 32))
def test_rows_are_as_deep_by_the_core_as_level_by_level(rows, seed):
    trace = drawn(np.random.default_rng(seed), rows, False)
    with mock.patch.object(sweeps, "core", lambda: None):
        python = [level.tolist() for level in pickle.loads(pickle.dumps(trace)).levels]
    assert [level.tolist() for level in trace.levels] == python


def passes(trace: Trace, spent: np.ndarray, numbers: np.ndarray) -> list[np.ndarray]:
    """What every pass says of a trace."""
    return [
        *trace.times(spent),
        *trace.times(spent, apart=True),
        *trace.times(spent, others=spent[::-1]),
        trace.chains(spent),
        trace.latest(numbers),
        trace.depths(numbers),
    ]


@given(data=st.data())
def test_the_core_passes_over_rows_as_python_does(data):
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    rows, shuffled = data.draw(st.integers(0, 60)), data.draw(st.booleans())
    trace = drawn(random, rows, shuffled)
    spent = random.choice([0.0, 1e-9, 0.3, 2.0, np.inf], rows, p=[0.3, 0.3, 0.2, 0.19, 0.01])
    if data.draw(st.booleans()):
        spent[random.random(rows) < 0.05] = np.nan  # of rows that never finished
    numbers = random.integers(-1, 4, rows)
    core = passes(trace, spent, numbers)
    with mock.patch.object(sweeps, "core", lambda: None):
        python = passes(trace, spent, numbers)
    for one, other in zip(core, python, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other, equal_nan=one.dtype == float)


def test_rows_wait_in_a_line_where_they_do_not_stand_in_one():
    trace = drawn(np.random.default_rng(0), 60, True)
    assert not trace.in_order
    longest = trace.chains(np.ones(60))
    assert 1 < longest.max() < len(trace.levels) + 1
    again = pickle.loads(pickle.dumps(trace))  # what the core was told is not kept
    assert again.chains(np.ones(60)).tolist() == longest.tolist()


def test_a_column_of_another_length_is_refused():
    trace = drawn(np.random.default_rng(0), 9, False)
    for ask in (trace.times, trace.latest, trace.depths):
        with pytest.raises(ValueError, match=r"a column of shape \(8,\) for 9 rows"):
            ask(np.zeros(8))

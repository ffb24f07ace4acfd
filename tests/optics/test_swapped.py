"""Matchings by swaps: the compiled core against Python, and against matchings of maximum weight."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric import native
from rfabric.optics import solvers, swapped
from rfabric.optics.matched import heaviest
from rfabric.optics.solvers import Asked, fewest_rounds, slots_of
from rfabric.optics.swapped import by_core, by_python
from rfabric.units import transfer_seconds

RATE = 4e11
WAYS = [
    pytest.param(
        by_core, marks=pytest.mark.skipif(native.core() is None, reason="the core was not built")
    ),
    by_python,
]


def drawn(racks, share, most, seed):
    """Columns (rack, other rack, wanted) of a part of all pairs, wanted up to 1: of `most` sizes,
    or of any.
    """
    rng = np.random.default_rng(seed)
    rows, columns = np.triu_indices(racks, 1)
    some = rng.random(len(rows)) < share
    some[-1] = True
    size = rng.integers(1, most + 1, len(rows)) if most else rng.lognormal(0, 1, len(rows))
    wanted = size[some] / size[some].max()
    turned = rng.random(len(wanted)) < 0.5
    ends = np.where(turned, (rows[some], columns[some]), (columns[some], rows[some]))
    return *ends, wanted


def one_matching(way, rows, columns, wanted, racks):
    region = np.zeros((1, racks), np.int64)
    ((mates,),) = way(rows, columns, region, wanted, 1, np.zeros(len(wanted)), False)
    return mates


@pytest.mark.skipif(native.core() is None, reason="the core was not built")
@settings(max_examples=200, deadline=None)
@given(
    st.integers(2, 20),
    st.sampled_from([0.2, 0.6, 1.0]),
    st.sampled_from([0, 1, 3]),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_core_and_python_find_the_same_matchings(racks, share, most, planes, until_met, seed):
    """Planes join some racks only, none of one; pairs have circuits already."""
    rows, columns, wanted = drawn(racks, share, most, seed)
    rng = np.random.default_rng(seed)
    region = rng.integers(-1, 2, (planes, racks)) if seed % 2 else np.zeros((planes, racks), int)
    counts = np.repeat(rng.integers(0, 3, len(wanted)).astype(float)[None], 2, axis=0)
    asked = rows, columns, region, wanted, 6
    core, python = (
        way(*asked, had, until_met)
        for way, had in zip((by_core, by_python), counts, strict=True)
    )  # fmt: skip
    np.testing.assert_array_equal(core, python)
    np.testing.assert_array_equal(*counts)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=150, deadline=None)
@given(
    st.integers(2, 24),
    st.sampled_from([0.2, 0.6, 1.0]),
    st.sampled_from([0, 1, 3]),
    st.integers(0, 2**32 - 1),
)
def test_a_matching_weighs_half_of_the_heaviest_at_least_and_no_pair_fits_beside_it(
    way, racks, share, most, seed
):
    """Whoever takes the heaviest pair first has half, whatever the weights; a swap brings more."""
    rows, columns, wanted = drawn(racks, share, most, seed)
    mates = one_matching(way, rows, columns, wanted, racks)
    joined = mates[rows] == columns
    alone = np.flatnonzero(mates < 0)
    assert (mates[mates[mates >= 0]] == np.flatnonzero(mates >= 0)).all()
    assert joined.sum() * 2 + len(alone) == racks
    assert wanted[joined].sum() >= 0.5 * wanted[heaviest(rows, columns, wanted)].sum() - 1e-9


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("other", "mates"), [(5, [2, 3, 0, 1]), (3, [1, 0, 3, 2])])
def test_two_pairs_swap_where_that_weighs_more(way, other, mates):
    """Of a ring of four 6 and 1 are taken first: 5 and 4.5 are more, 3 and 2.5 less."""
    rows, columns = np.array([0, 0, 2, 1]), np.array([1, 2, 3, 3])
    wanted = np.array([6.0, other, 1.0, other - 0.5]) / 6
    assert one_matching(way, rows, columns, wanted, 4).tolist() == mates


@pytest.mark.parametrize("way", WAYS)
def test_of_pairs_alike_the_first_is_taken(way):
    rows, columns, wanted = np.array([1, 0, 0]), np.array([2, 1, 2]), np.ones(3)
    assert one_matching(way, rows, columns, wanted, 3).tolist() == [-1, 2, 1]


@pytest.mark.parametrize("way", WAYS)
def test_what_a_pair_was_given_counts_and_who_had_none_comes_first(way):
    """A hub of three: 12, 4 and 4. Half and a third of 12 are still the most, until all must be
    met.
    """
    rows, columns, wanted = np.zeros(3, int), np.array([1, 2, 3]), np.array([12.0, 4.0, 4.0]) / 12
    region, had = np.zeros((1, 4), np.int64), np.zeros(3)
    first = way(rows, columns, region, wanted, 3, had, False)
    assert first[:, 0, 0].tolist() == [1, 1, 1] and had.tolist() == [3, 0, 0]
    assert way(rows, columns, region, wanted, 9, had, True)[:, 0, 0].tolist() == [2, 3]


def test_bytes_of_any_amount_are_measured_by_the_most():
    rows, columns, region = np.array([0, 0, 2, 1]), np.array([1, 2, 3, 3]), np.zeros((1, 4), int)
    for size in (1e-300, 1.0, 2e307):
        wanted = size * np.array([6.0, 5, 1, 5])
        mates = swapped.swapped(rows, columns, wanted, region, 1, np.zeros(4))
        assert mates.tolist() == [[[2, 3, 0, 1]]]


def test_where_the_core_was_never_built_python_answers(monkeypatch):
    monkeypatch.setattr(swapped, "_core", lambda: None)
    pair, one = (np.array([0]), np.array([5])), np.zeros(1)
    mates = swapped.swapped(*pair, one + 2, np.zeros((1, 6), np.int64), 1, one)
    assert mates[0, 0].tolist() == [5, -1, -1, -1, -1, 0]


def edges(sent, planes):
    """The pairs of a demand (bytes, racks x racks) that every plane can join."""
    busier = np.triu(np.maximum(sent, sent.T), 1)
    rows, columns = np.nonzero(busier)
    region = np.zeros((planes, len(sent)), np.int64)
    names = tuple(map(str, range(len(sent))))
    return Asked(names, region, RATE, region[0] * 0.0, rows, columns, busier[rows, columns])


def served(a, slots, delay):
    """Seconds until all of a demand is sent in turn, each pair's bytes split over its circuits; a
    turn takes `delay` s.
    """
    lit = np.array([(slot[:, a.rows] == a.columns).sum(axis=0) for slot in slots])
    assert lit.any(axis=0).all()
    share = transfer_seconds(a.wanted / lit.sum(axis=0), RATE)
    lasts = np.where(lit > 0, share, 0.0).max(axis=1)
    return lasts.sum() + ((lasts > 0).sum() - 1) * delay


def two_ways(a):
    """The slots of a demand by swaps, and by matchings of maximum weight."""
    rounds, made = fewest_rounds(a), []
    for most in (0, 10**9):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(solvers, "MOST_LOOKS", most)
            made.append(slots_of(a, rounds))
    return made


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(["any", "nearly even", "some pairs"]),
    st.sampled_from([0.0, 0.01, 0.1]),
    st.integers(0, 2**32 - 1),
)
def test_swaps_serve_a_demand_about_as_soon_as_matchings_of_maximum_weight(kind, delay, seed):
    """Demands for which swaps are used. They lost a quarter at most, and gained as often."""
    rng = np.random.default_rng(seed)
    sent = 1e9 * rng.lognormal(0, 0.1 if kind == "nearly even" else 1, (48, 48))
    sent *= ~np.eye(48, dtype=bool) & (rng.random((48, 48)) < (0.4 if kind == "some pairs" else 1))
    a = edges(sent, 8)
    assert fewest_rounds(a) * 8 * len(a.wanted) > solvers.MOST_LOOKS
    swaps, exact = (served(a, slots, delay) for slots in two_ways(a))
    assert swaps <= 1.25 * exact


def test_matchings_are_exact_up_to_a_limit():
    """Rings of twelve that weigh the same few sizes: swaps need another round."""
    sent = np.zeros((64, 64))
    for far in range(1, 13):
        sent[np.arange(64), (np.arange(64) + far) % 64] = 1e10 * (1 + far % 4)
    a = edges(sent, 8)
    swaps, exact = two_ways(a)
    assert 3 * 8 * len(a.wanted) <= solvers.MOST_LOOKS
    np.testing.assert_array_equal(slots_of(a, 3), exact)
    assert served(a, exact, 0.0) <= served(a, swaps, 0.0)

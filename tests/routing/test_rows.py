"""Rows of unequal length and matrices as entries, against loops that say what they mean."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric.routing import rows as rows_room
from rfabric.routing.paths import mix
from rfabric.routing.rows import (
    Entries,
    begins,
    closed_up,
    distinct,
    in_order,
    mixed,
    numbered,
    offsets_of,
    ranks,
    some_of,
    spread,
    summed,
    widened,
)
from rfabric.routing.schemes import Chosen, Sent

NUMBERS = st.lists(st.integers(0, 5), max_size=12)
ROWS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 4)), max_size=8)


@given(ROWS)
def test_entries_of_rows_are_counted_on_from_the_first(rows):
    first, counts = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    for core in (rows_room._core, lambda: None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rows_room, "_core", core)
            entries = spread(first.astype(np.int32), counts)
        assert entries.tolist() == [a + i for a, n in rows for i in range(n)]
    assert offsets_of(counts).tolist() == [sum(counts[:i]) for i in range(len(rows) + 1)]


@given(st.data())
def test_rows_are_ordered_as_by_lexsort(data):
    n, number = data.draw(st.integers(0, 20)), st.integers(-3, 3)
    drawn = st.lists(number | number.map(lambda x: x << 20) | number.map(lambda x: x << 58),
                     min_size=n, max_size=n)  # fmt: skip
    columns = [np.array(c, np.int64) for c in data.draw(st.lists(drawn, min_size=1, max_size=3))]
    assert in_order(*columns).tolist() == np.lexsort(columns[::-1]).tolist()
    kinds = st.sampled_from([np.uint8, np.int32, np.uint64])
    mixed = [np.abs(column).astype(data.draw(kinds)) for column in columns]
    assert in_order(*mixed).tolist() == np.lexsort(mixed[::-1]).tolist()
    codes, which = numbered(columns[0])
    assert codes.tolist() == sorted(set(columns[0].tolist()))
    assert (codes[which] == columns[0]).all()


@given(NUMBERS)
def test_equal_ones_that_stand_together_are_a_run(drawn):
    codes = np.array(sorted(drawn), np.int64)
    assert begins(codes).tolist() == [not i or codes[i] != codes[i - 1] for i in range(len(codes))]
    assert ranks(codes).tolist() == [codes[:i].tolist().count(codes[i]) for i in range(len(codes))]
    each = sorted(set(drawn))
    assert distinct(np.array(drawn, np.int64)).tolist() == each
    for some in (codes, np.array(drawn, np.int64)):
        named, which = numbered(some)
        assert named.tolist() == each and named[which].tolist() == some.tolist()


@given(NUMBERS, st.data())
def test_values_of_a_code_are_added_up(drawn, data):
    values = data.draw(
        st.lists(st.integers(0, 9), min_size=len(drawn), max_size=len(drawn)).map(np.array)
    )
    codes, sums = summed(np.array(drawn, np.int64), values.astype(float))
    assert codes.tolist() == sorted(set(drawn))
    assert sums.tolist() == [
        sum(v for code, v in zip(drawn, values, strict=True) if code == one) for one in codes
    ]


def test_rows_are_filled_up_behind_and_closed_up_in_front():
    rows = np.array([[9, 1, 9], [2, 9, 3]])
    assert closed_up(rows, 9).tolist() == [[1, 9, 9], [2, 3, 9]]
    assert widened(rows, 4, 7).tolist() == [[9, 1, 9, 7], [2, 9, 3, 7]]
    assert widened(rows, 3, 7).tolist() == rows.tolist()


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 6))
def test_of_each_key_so_many_are_kept_in_their_order(drawn, most):
    key = np.array(sorted(drawn), np.int64)
    kept = some_of(key, most)
    assert (np.diff(kept) > 0).all()
    for one in set(drawn):
        assert (key[kept] == one).sum() == min(most, drawn.count(one))


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_many_are_hashed_like_one(numbers):
    hashed = mixed(np.array(numbers, np.uint64)).tolist()
    assert hashed == [mix(number) for number in numbers]
    assert all(0 <= number < 2**64 for number in hashed)


def test_the_hash_is_the_one_that_was_published():
    """splitmix64 from 1234567: the first numbers of Vigna's reference program."""
    step, state, drawn = 0x9E3779B97F4A7C15, 1234567, []
    for _ in range(3):
        drawn.append(mix(state))
        state = (state + step) % 2**64
    assert drawn == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 3)), max_size=12))
def test_a_matrix_is_its_entries(drawn):
    matrix = np.zeros((3, 3))
    for row, column, sent in drawn:
        matrix[row, column] += sent
    rows, columns, sent = (np.array([one[i] for one in drawn], np.int64) for i in range(3))
    for entries in (Entries.of(matrix), Entries.summed(rows, columns, sent.astype(float), 3)):
        assert (entries.dense(3) == matrix).all() and (entries.bytes > 0).all()
        assert (np.diff(entries.rows * 3 + entries.columns) > 0).all()


def test_ways_of_pairs_that_were_not_chosen_are_not_known():
    codes, hops = np.array([3, 5, 9]), np.array([[7, -1], [6, 8]])
    chosen = Chosen.laid(codes, np.array([0, 2]), hops)
    rows, known = chosen.of(np.array([1, 3, 4, 5, 9, 10]))
    assert known.tolist() == [False, True, False, True, True, False]
    assert rows.tolist() == [[-1, -1], [7, -1], [-1, -1], [-1, -1], [6, 8], [-1, -1]]


def test_pairs_are_sorted_and_may_send_nothing():
    sent = Sent(np.array([2, 1, 1]), np.array([0, 5, 3]), np.array([[1.0, 0.0, 2.0]]))
    assert (sent.src.tolist(), sent.dst.tolist()) == ([1, 1, 2], [3, 5, 0])
    assert sent.bytes.tolist() == [[2.0, 0.0, 1.0]]
    assert sent.codes.tolist() == [(1 << 32) + 3, (1 << 32) + 5, 2 << 32]

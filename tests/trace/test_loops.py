"""Repetitions as data: loops of a trace, and the traces that play them."""

from dataclasses import replace

import numpy as np
import pytest
from handmade import HOSTS, looped, traces
from hypothesis import given
from hypothesis import strategies as st

from rfabric.errors import RFabricError
from rfabric.rl.lowering import trace_of
from rfabric.rl.workload import read_recipe
from rfabric.schedulers.weave.jobs import Job
from rfabric.schedulers.weave.traffic import placed, profile_of, traffic_of
from rfabric.trace import Flows, Loop, TraceBuilder
from rfabric.trace.loops import blocks


def test_a_loop_is_readable_data():
    trace = looped()
    assert trace.loops == (Loop(3, (2.0, 0.5), (0.0, 1.0)),)
    assert trace.loop.tolist() == [-1, 0, 0, 0, -1] and trace.turn.tolist() == [0, 0, 0, 1, 0]
    assert trace.total.tolist() == [0, 3_000_000, 6_000_000, 9_000_000, 5_000_000]
    assert Loop(2, (1.0,)).beside == (0.0,)


def test_unrolled_is_every_repetition_in_turn():
    trace = looped(repeat=2)
    played = trace.unrolled()
    names = [
        (played.labels[played.label[i]], float(played.gap[i]), played.waits_for(i).tolist())
        for i in range(len(played))
    ]
    assert names == [
        ("backward", 4.0, []),
        ("barrier", 1.0, [0]),  # the loop begins
        ("computing", 2.0, [1]),
        ("dispatch", 0.0, [2]),
        ("dispatch", 0.0, [2]),
        ("computing", 0.5, [3, 4]),
        ("combine", 0.0, [5]),
        ("computing beside", 1.0, [5]),
        ("barrier", 0.0, [6, 7]),
        ("computing", 2.0, [8]),
        ("dispatch", 0.0, [9]),
        ("dispatch", 0.0, [9]),
        ("computing", 0.5, [10, 11]),
        ("combine", 0.0, [12]),
        ("computing beside", 1.0, [12]),
        ("barrier", 0.0, [13, 14]),
        ("gradients", 0.0, [15]),
    ]
    assert played.origin.rows.tolist() == [
        0,
        -1,
        -1,
        1,
        2,
        -1,
        3,
        -1,
        -1,
        -1,
        1,
        2,
        -1,
        3,
        -1,
        -1,
        4,
    ]
    assert played.origin.looped is trace and played.origin.how == "unrolled" and not played.loops


def test_folded_has_blocks_of_repetitions_the_first_by_itself():
    block = [
        ("computing", 2.0, 0),
        ("dispatch", 0.0, 1_000_000),
        ("dispatch", 0.0, 2_000_000),
        ("computing", 0.5, 0),
        ("combine", 0.0, 3_000_000),
        ("computing beside", 1.0, 0),
        ("barrier", 0.0, 0),
    ]
    played = looped(repeat=3).folded()
    columns = zip(played.label, played.gap.tolist(), played.size.tolist(), strict=True)
    assert [(played.labels[k], gap, size) for k, gap, size in columns] == [
        ("backward", 4.0, 0),
        ("barrier", 1.0, 0),
        *block * 3,
        ("gradients", 0.0, 5_000_000),
    ]
    wide = looped(repeat=40).folded()
    sent = wide.size[wide.label == wide.labels.index("combine")]
    assert sent.sum() == 40 * 3_000_000 and len(sent) < 9 and sent[0] == 3_000_000


@given(st.integers(1, 10**6), st.integers(1, 30))
def test_blocks_add_up_to_all_repetitions_and_grow(repeat, most):
    turns = blocks(repeat, most)
    assert (
        turns.sum() == repeat
        and len(turns) <= most
        and (turns >= 1).all()
        and (np.diff(turns) >= -1).all()
    )
    assert turns[0] == 1 or most == 1
    assert (blocks(min(repeat, 1000), 0) == 1).all()


def test_a_trace_without_loops_plays_itself_and_each_play_is_one_object():
    b = TraceBuilder(HOSTS)
    b.flows([0], [1], 5)
    plain = b.build()
    assert plain.unrolled() is plain.folded() is plain and plain.total is plain.total
    trace = looped()
    assert trace.folded() is trace.folded() is not trace.unrolled()
    with pytest.raises(
        RFabricError, match=("a trace is not played 'backwards'; there are folded, unrolled, whole")
    ):
        trace.played("backwards")


@given(traces())
def test_every_play_sends_the_same_bytes_and_computes_as_long(trace):
    ready, finish = trace.compute_only()
    for played in (trace.unrolled(), trace.folded()):
        assert played.size.sum() == played.total.sum() == trace.total.sum()
        rows = played.origin.rows if played.origin else np.arange(len(played))
        sent = np.bincount(rows[rows >= 0], played.size[rows >= 0], minlength=len(trace))
        assert (sent == trace.total).all()
        assert played.compute_only()[1].max() == pytest.approx(finish.max())
        plain = np.flatnonzero(trace.loop < 0)
        where = [int(np.flatnonzero(rows == row)[0]) for row in plain]
        assert played.compute_only()[1][where] == pytest.approx(finish[plain])
        assert played.compute_only()[0][where] == pytest.approx(ready[plain])


def test_a_loop_computes_between_and_beside_on_a_network_without_delay():
    ready, finish = looped(repeat=10).compute_only()
    assert ready.tolist() == [0, 4, 4, 4, 40] and finish.tolist() == [4, 40, 40, 40, 40]


def test_folding_adds_no_more_rows_than_play_in_seconds(monkeypatch):
    b = TraceBuilder(HOSTS)
    b.loop([Flows([0] * 500, [1] * 500, [5] * 500)] * 2, 10**6, (1.0, 1.0), (1.0, 1.0))
    trace = b.build()
    assert len(trace.folded()) < 22 * 1006
    monkeypatch.setattr("rfabric.trace.loops.MOST_FOLDED", 100)
    assert len(replace(trace).folded()) - len(trace) <= 6
    with pytest.raises(
        RFabricError, match=("the repetitions are 1,005,000,001 rows, more than .*; fold them")
    ):
        trace.unrolled()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ((0, (1.0,)), "repeat 0 must be 1 or more"),
        ((1.5, (1.0,)), "repeat 1.5 must be 1 or more, a whole number"),
        ((2, ()), "0 turns with computing between"),
        ((2, (1.0,), (1.0, 2.0)), "1 turns with computing between, 2 with computing beside"),
        ((2, (-1.0,)), "between -1.0 s must be finite and not negative"),
        ((2, (1.0,), (float("nan"),)), "beside nan s must be finite"),
        ((10**9, (5.0,)), "repeat 1000000000 takes 5e[+]09 s of computing, at most 1e[+]09"),
    ],
)
def test_loops_that_are_none(given, why):
    with pytest.raises(RFabricError, match=why):
        Loop(*given)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"turn": [0, 0, 0, 0, 0]}, "loop 0: its rows have turns 0; it has 2, numbered from 0"),
        ({"turn": [0, 0, 1, 2, 0]}, "loop 0: its rows have turns 0, 1, 2; it has 2"),
        ({"loop": [-1] * 5}, "loop 0 has no rows; leave it out"),
        ({"loop": [-1, 0, 0, 1, -1]}, "trace row 3: loop 1, there are 1"),
        ({"loop": [-2, 0, 0, 0, -1]}, "trace row 0: loop -2, there are 1"),
        (
            {"size": [0, 1, 0, 1, 1]},
            ("trace row 2: size 0 in a loop; give what computes as between or beside"),
        ),
        (
            {"step": [0, 0, 1, 0, 0]},
            ("trace row 2: step differs from that of row 1 of the same loop"),
        ),
        ({"gap": [4, 1, 1, 2, 0]}, "trace row 3: gap differs from that of row 1 of the same loop"),
        (
            {"start": [0, 0, 3, 0, 0]},
            ("trace row 2: start differs from that of row 1 of the same loop"),
        ),
        (
            {"after_offsets": [0, 0, 1, 2, 2, 3], "after": [0, 0, 1]},
            ("trace row 3: after differs from that of row 1"),
        ),
        (
            {"after_offsets": [0, 0, 1, 2, 3, 4], "after": [0, 0, 4, 1]},
            "trace row 3: after differs from that of row 1",
        ),
        (
            {"after_offsets": [0, 0, 1, 2, 3, 4], "after": [3, 3, 3, 1]},
            "trace row 1 waits for row 3 of its own loop",
        ),
        ({"size": [0, 1, 5 * 10**17, 1, 1]}, "more than 1e[+]18 bytes in all"),
    ],
)
def test_rows_that_make_no_loop(changes, why):
    with pytest.raises(RFabricError, match=why):
        replace(looped(), **changes)


def test_the_order_of_what_rows_wait_for_says_nothing():
    b = TraceBuilder(HOSTS)
    first = [b.compute(0, 1.0), b.compute(1, 2.0)]
    b.loop([Flows([0, 1], [2, 3], [1, 1])], 2, (1.0,), after=first)
    trace = b.build()
    assert len(replace(trace, after=[0, 1, 1, 0]).folded()) == len(trace.folded())


def test_loops_that_wait_for_each_other_are_a_cycle():
    b = TraceBuilder(HOSTS)
    for wait in ([2], [0]):
        b.loop([Flows([0], [1], [1]), Flows([1], [0], [1])], 2, (0, 0), after=wait)
    with pytest.raises(RFabricError, match="waits for itself: its `after` form a cycle"):
        b.build()


def test_a_builder_refuses_turns_that_send_nothing():
    b = TraceBuilder(HOSTS)
    with pytest.raises(RFabricError, match="loop: turn 1 sends nothing; leave it out"):
        b.loop([Flows([0], [1], [1]), Flows([], [], [])], 2, (1.0, 1.0))
    with pytest.raises(RFabricError, match="loop: 1 turns, 2 between, 1 labels; give one each"):
        b.loop([Flows([0], [1], [1])], 2, (1.0, 1.0))


# --- several jobs ---------------------------------------------------------------------------------


def test_jobs_on_shared_hosts_keep_their_loops(monkeypatch):
    w = read_recipe("grpo-64")
    alone = trace_of(w)
    last = alone.communication()[0, "training", "all-gather"]
    # one collective
    last = last[
        [alone.waits_for(row).tolist() == alone.waits_for(last[-1]).tolist() for row in last]
    ]
    loop, turn = np.full(len(alone), -1), np.zeros(len(alone), int)
    loop[last], turn[last[::2]] = 0, 1
    repeated = replace(alone, loop=loop, turn=turn, loops=(Loop(6, (0.5, 0.25), (0.0, 1.0)),))
    monkeypatch.setattr("rfabric.schedulers.weave.traffic.trace_of", lambda *_: repeated)
    both = traffic_of(placed([Job(name, profile_of(w)) for name in "ab"]), {"a": w, "b": w})
    assert both.loops == repeated.loops * 2 and both.total.sum() == 2 * repeated.total.sum()
    for number in range(2):
        rows = both.loop == number
        assert _pairs(both.turn[rows], both.total[rows]) == _pairs(turn[last], repeated.total[last])
    spent = repeated.compute_only()[1].max() - alone.compute_only()[1].max()
    assert spent == pytest.approx(6 * 1.75)


def _pairs(*columns):
    return sorted(zip(*(column.tolist() for column in columns), strict=True))

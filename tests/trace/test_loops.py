"""Repetitions as data: loops of a trace, the traces that play them, and their files."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.errors import RFabricError
from rfabric.rl.lowering import trace_of
from rfabric.rl.workload import read_recipe
from rfabric.schedulers.weave.jobs import Job
from rfabric.schedulers.weave.traffic import placed, profile_of, traffic_of
from rfabric.trace import Flows, Loop, PhaseKey, TraceBuilder, read_trace, write_trace
from rfabric.trace.loops import blocks

HOSTS = [f"h{i + 1}" for i in range(8)]


def looped(repeat=3, between=(2.0, 0.5), beside=(0.0, 1.0)):
    """Computing, then a loop of dispatch and combine, then a flow that waits for one of its
    rows.
    """
    b = TraceBuilder(HOSTS)
    work = b.compute(0, 4.0, phase="training", label="backward")
    turns = [Flows([0, 1], [2, 3], [1e6, 2e6]), Flows([2], [0], [3e6])]
    rows = b.loop(
        turns,
        repeat,
        between,
        beside,
        after=[work],
        gap=1.0,
        phase="training",
        label=("dispatch", "combine"),
    )
    b.flows([0], [5], 5e6, after=[rows[0]], phase="training", label="gradients")
    return b.build({PhaseKey(0, "training"): 9.0}, {"recipe": "by hand"})


@st.composite
def traces(draw, hosts=8, most=3):
    """Traces of a few rows and loops, each waiting for some before it."""
    b, rows = TraceBuilder(HOSTS[:hosts]), []
    seconds, size = st.sampled_from([0.0, 0.25, 1.0]), st.integers(1, 4).map(lambda n: n * 1e9)
    for _ in range(draw(st.integers(1, 5))):
        after = draw(st.lists(st.sampled_from(rows), max_size=2, unique=True)) if rows else []
        kind = {
            "after": after,
            "gap": draw(seconds),
            "phase": "training",
            "label": draw(st.sampled_from("ab")),
        }
        kind["start"] = draw(seconds)
        if draw(st.booleans()):
            turns = [draw(collective(hosts, size)) for _ in range(draw(st.integers(1, most)))]
            k = len(turns)
            between, beside = (draw(st.lists(seconds, min_size=k, max_size=k)) for _ in range(2))
            rows += b.loop(turns, draw(st.integers(1, 5)), between, beside, **kind)
        else:
            rows += b.flows(*draw(collective(hosts, size)), **kind)
    return b.build()


def collective(hosts, size):
    """One to four flows between different hosts."""
    pair = st.tuples(st.integers(0, hosts - 1), st.integers(0, hosts - 1)).filter(
        lambda p: p[0] != p[1]
    )
    flows = st.lists(st.tuples(pair, size), min_size=1, max_size=4)
    return flows.map(
        lambda found: Flows(
            [p[0] for p, _ in found], [p[1] for p, _ in found], [s for _, s in found]
        )
    )


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
    played = looped(repeat=3).folded()
    columns = zip(played.label, played.gap.tolist(), played.size.tolist(), strict=True)
    assert [(played.labels[k], gap, size) for k, gap, size in columns] == [
        ("backward", 4.0, 0),
        ("barrier", 1.0, 0),
        ("computing", 2.0, 0),
        ("dispatch", 0.0, 1_000_000),
        ("dispatch", 0.0, 2_000_000),
        ("computing", 0.5, 0),
        ("combine", 0.0, 3_000_000),
        ("computing beside", 1.0, 0),
        ("barrier", 0.0, 0),
        ("computing", 2.0, 0),
        ("dispatch", 0.0, 1_000_000),
        ("dispatch", 0.0, 2_000_000),
        ("computing", 0.5, 0),
        ("combine", 0.0, 3_000_000),
        ("computing beside", 1.0, 0),
        ("barrier", 0.0, 0),
        ("computing", 2.0, 0),
        ("dispatch", 0.0, 1_000_000),
        ("dispatch", 0.0, 2_000_000),
        ("computing", 0.5, 0),
        ("combine", 0.0, 3_000_000),
        ("computing beside", 1.0, 0),
        ("barrier", 0.0, 0),
        ("gradients", 0.0, 5_000_000),
    ]
    wide = looped(repeat=40).folded()
    sent = wide.size[wide.label == wide.labels.index("combine")]
    assert sent.sum() == 40 * 3_000_000 and len(sent) < 9 and sent[0] == 3_000_000


@given(st.integers(1, 10**6), st.integers(1, 30))
def test_blocks_add_up_to_all_repetitions_and_grow(repeat, most):
    found = blocks(repeat, most)
    assert (
        found.sum() == repeat
        and len(found) <= most
        and (found >= 1).all()
        and (np.diff(found) >= -1).all()
    )
    assert found[0] == 1 or most == 1
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


# --- files ----------------------------------------------------------------------------------------

COLUMNS = (
    "src",
    "dst",
    "size",
    "start",
    "gap",
    "after_offsets",
    "after",
    "step",
    "phase",
    "label",
    "loop",
    "turn",
)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_files_round_trip(tmp_path, suffix):
    trace, path = looped(between=(1 / 3, 0.1), beside=(0.0, 1e-7)), tmp_path / f"t{suffix}"
    write_trace(trace, path)
    again = read_trace(path)
    names = {host: i for i, host in enumerate(trace.hosts)}
    assert [names[again.hosts[i]] for i in again.src] == trace.src.tolist()
    assert all(np.array_equal(getattr(again, name), getattr(trace, name)) for name in COLUMNS[2:])
    assert (again.loops, again.windows) == (trace.loops, trace.windows)


@settings(max_examples=25)
@given(traces())
def test_any_trace_round_trips(tmp_path_factory, trace):
    path = tmp_path_factory.mktemp("t") / "t.csv"
    write_trace(trace, path)
    again = read_trace(path)
    assert all(np.array_equal(getattr(again, name), getattr(trace, name)) for name in COLUMNS[2:])
    assert again.loops == trace.loops and (again.total == trace.total).all()


def test_a_hand_written_loop_needs_a_name_and_a_number(tmp_path):
    (tmp_path / "t.csv").write_text(
        "src,dst,size_bytes,loop,repeat\nh1,h2,1MB,mine,4\nh2,h1,1MB,mine,\nh1,h2,1MB,,\n"
    )
    trace = read_trace(tmp_path / "t.csv")
    assert trace.loops == (Loop(4, (0.0,)),) and trace.loop.tolist() == [0, 0, -1]
    (tmp_path / "t.csv").write_text(
        "src,dst,size_bytes,loop,turn,repeat,between_s,beside_s\n"
        "h1,h2,1,a,0,4,2ms,\nh1,h2,1,b,1,2,,1\nh1,h2,1,a,1,4,,\nh2,h1,1,b,,,,\nh1,h2,1,a,1,,1,0\n"
    )
    trace = read_trace(tmp_path / "t.csv")
    assert trace.loops == (Loop(4, (0.002, 1.0)), Loop(2, (0.0, 0.0), (0.0, 1.0)))


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("h1,h2,5,,,3,,", "row 0: repeat without a loop; name its loop"),
        ("h1,h2,5,,1,,,", "row 0: turn without a loop"),
        ("h1,h2,5,a,,,,", "loop 'a': repeat is missing; say in one of its rows how often it runs"),
        ("h1,h2,5,a,,0,,", "loop 'a': repeat 0 must be 1 or more"),
        ("h1,h2,5,a,,2,-1,", "row 0: between_s: '-1' must be finite and not negative"),
        (
            "h1,h2,5,a,,2,,\nh1,h2,5,a,,3,,",
            ("row 1: repeat 3 differs from 2 of its loop 'a'; say it once"),
        ),
        (
            "h1,h2,5,a,0,2,1,\nh1,h2,5,a,0,2,2,",
            ("row 1: between_s 2.0 differs from 1.0 of its loop 'a'"),
        ),
        ("h1,h2,5,a,1,2,,", "loop 0: its rows have turns 1; it has 2, numbered from 0"),
        ("h1,h2,5,a,40000,2,,", "row 0: turn '40000' must lie between 0 and 32,767"),
        ("h1,h2,5,a,,two,,", "row 0: repeat 'two' is not a whole number"),
        ("h1,h2,5,a,,2,,never", "row 0: beside_s: 'never' is not a quantity"),
    ],
)
def test_bad_loops_name_the_row_and_the_way_out(tmp_path, rows, why):
    (tmp_path / "bad.csv").write_text(
        f"src,dst,size_bytes,loop,turn,repeat,between_s,beside_s\n{rows}\n"
    )
    with pytest.raises(RFabricError, match=f"bad.csv: .*{why}"):
        read_trace(tmp_path / "bad.csv")


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

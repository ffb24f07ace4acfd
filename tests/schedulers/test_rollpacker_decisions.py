"""RollPacker's decisions one by one: queues, looks, freed replicas and judges with numbers by
hand.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from rfabric.compute.serving import Batching, ReplicaTime, Served
from rfabric.errors import RFabricError
from rfabric.rl import read_recipe
from rfabric.rl.lengths import Lengths
from rfabric.rl.phases import handover
from rfabric.rl.timing import decode_step
from rfabric.schedulers.rollpacker import (
    LONG,
    PLAIN,
    SHORT,
    Books,
    Judges,
    RollpackerSettings,
    draw,
    judged,
    launch,
    play,
    projected_peak,
    replanned,
    run,
    runs,
    schedule,
    settled,
    stream,
    streamable,
    streamed,
    timeout,
    with_tp,
    work_done,
)
from rfabric.schedulers.rollpacker.rounds import _paced, _shortest, _until, joined, requests_of
from rfabric.schedulers.rollpacker.stream import _left, _until_freed, looks


@cache
def job():
    return read_recipe(
        "grpo-64",
        [
            "model=Qwen2.5-7B",
            "placement=colocated",
            "cluster.training_gpus=8",
            "cluster.generation_gpus=8",
            "cluster.gpus_per_pod=8",
            "generation.tp=2",
            "generation.batch=16",
            "generation.group_size=4",
            "generation.max_prompt=512",
            "generation.max_response=4096",
            "training.mini_batches=1",
            "training.micro_batch_tokens=8192",
            "steps=2",
        ],
    )


@cache
def played(seed=0):
    made = launch(Books(), 16, 4)
    return play(job(), made, draw(job(), seed, made, Books()))


# --- books ----------------------------------------------------------------------------------------


def test_a_round_launches_as_many_as_it_says_and_rounds_up():
    made = launch(Books(fresh=7), 4, 3, 1.5, 1.1)
    assert (made.kind, made.prompts, made.responses) == (SHORT, (7, 8, 9, 10, 11, 12), 4)
    assert (made.keep_prompts, made.keep_responses) == (4, 3)
    assert launch(Books(), 10, 10, 1.1, 1.0).prompts == tuple(range(11))  # 10 x 1.1 is 11.000...2
    assert launch(Books(waiting=(1, 2, 3)), 4, 3).kind == SHORT
    for spare, kind in (((1, 1), PLAIN), ((1.5, 1), SHORT), ((1, 1.5), SHORT)):
        assert launch(Books(), 4, 4, *spare).kind == kind
    assert launch(Books(waiting=(1, 2, 3, 4)), 4, 3).kind == LONG


def test_what_is_aborted_waits_behind_the_others_and_what_ran_is_forgotten():
    books = Books(10, (3, 5), {3: 1, 5: 1})
    made = launch(books, 4, 2, 1.5, 1.0)
    after = settled(books, made, [10, 11, 13, 15])
    assert after == Books(16, (3, 5, 12, 14), {3: 1, 5: 1, 12: 1, 14: 1})
    long = launch(after, 4, 2)
    assert settled(after, long, long.prompts) == Books(16)
    assert settled(replace(after, waiting=(3, 5, 12, 14, 9)), long, ()).waiting == (9,)


def test_redundancy_has_its_limits():
    for value in (1.0, 10.0):
        launch(Books(), 2, 2, value, value)
    for value in (0.99, 10.1):
        with pytest.raises(RFabricError, match="must lie between 1"):
            launch(Books(), 2, 2, value)


# --- rounds ---------------------------------------------------------------------------------------


def test_the_shortest_are_kept_and_of_equals_the_first():
    outputs = np.array([[5, 3, 5, 1], [2, 2, 2, 2]])
    assert _shortest(outputs, 2).tolist() == [
        [False, True, False, True],
        [True, True, False, False],
    ]
    assert _shortest(outputs, 3)[0].tolist() == [True, True, False, True]


def test_a_replica_works_until_the_round_ends():
    columns = [np.zeros(1)] * 4
    served = Served(*columns, prefill=4.0, decode=10.0, idle=0.0, peak_kv_tokens=7, preempted=3)
    assert _until(served, 20.0) == ReplicaTime(4, 10, 7, 0, 3)
    assert _until(served, 9.0) == ReplicaTime(4, 5, 7, 0, 3)
    assert _until(served, 3.0) == ReplicaTime(3, 0, 7, 0, 3)
    assert _until(None, 3.0) == ReplicaTime(0, 0, 0)
    assert _until_freed(ReplicaTime(4, 10, 7), 9.0)[:2] == (4, 5)
    assert _until_freed(ReplicaTime(4, 10, 7), 3.0)[:2] == (3, 0)


def test_others_join_with_what_they_hold_and_lack():
    own = requests_of(np.array([7, 9]), np.array([[1, 2], [3, 4]]))
    assert own.prompt.tolist() == [7, 7, 9, 9] and own.group.tolist() == [0, 0, 1, 1]
    both = joined(own, np.array([50]), np.array([6]), 2.5)
    assert (both.prompt[-1], both.output[-1], both.gap[-1]) == (50, 6, 2.5)
    assert both.cached.tolist() == [0] * 5  # their KV is computed again
    assert both.after.tolist() == [-1] * 5 and both.group.tolist() == [0, 0, 1, 1, -1]


def test_a_slower_engine_takes_all_its_seconds_longer():
    step = decode_step(job())
    slow = _paced(step, 3.0)
    assert slow.seconds(5, 4000, 7) == pytest.approx(3 * step.seconds(5, 4000, 7))
    assert slow.mixed(5, 4000, 900, 1e5) == pytest.approx(3 * step.mixed(5, 4000, 900, 1e5))
    assert (slow.missed_share, slow.window) == (step.missed_share, step.window)
    assert _paced(step, 1.0) is step


# --- reward ---------------------------------------------------------------------------------------


def test_judges_take_the_first_that_is_there():
    """Two judges: 0 and 1 s begin at once, 2 s waits until 4 s, 3 s until 5 s."""
    ready, seconds = np.array([[0.0, 2.0], [3.0, 1.0]]), np.array([[4.0, 1.0], [2.0, 6.0]])
    assert judged(ready, seconds, 2).tolist() == [[4, 5], [7, 7]]
    assert judged(ready, seconds, 1).tolist() == [[4, 11], [13, 10]]


def test_time_outs_have_a_least_above_nothing():
    assert timeout(1.0, 3.0, 3.0) == 3.0
    assert [timeout(anchor) for anchor in (1.0, 10.0, 21.0, None)] == [2.0, 15.0, 30.0, 30.0]
    for least, most in ((0.0, 4.0), (5.0, 4.0)):
        with pytest.raises(RFabricError, match="must lie above 0 s"):
            timeout(1.0, least, most)


def test_correct_runs_set_the_time_out_of_those_after_them():
    """All wrong and hanging: every run ends by the time-out of the data set's own solution."""
    stuck = Judges(4, seconds=5.0, right=0.0, hanging=1.0)
    adaptive, fixed = (runs(stuck, 6, 3, 1, way) for way in (True, False))
    assert (fixed == 30).all() and (adaptive == adaptive[:, :1]).all()
    assert ((adaptive >= 2) & (adaptive <= 30)).all() and len(np.unique(adaptive)) > 3
    right = Judges(4, seconds=5.0, right=1.0)
    own, limited = (runs(right, 200, 5, 1, way) for way in (False, True))
    assert own.max() > 20 and (limited <= own).all() and (limited < own).any()
    # the first time-out of each prompt
    first = runs(replace(right, right=0.0, hanging=1.0), 200, 5, 1)[:, 0]
    before = np.maximum.accumulate(own, axis=1)
    for j in range(1, 5):
        most = np.clip(np.maximum(1.5 * before[:, j - 1], first), 2, 30)
        assert limited[:, j] == pytest.approx(np.minimum(own[:, j], most))


# --- planner --------------------------------------------------------------------------------------


def test_tp_is_at_most_a_server_and_what_the_model_allows():
    assert with_tp(job(), 4).generation.tp == 4 and with_tp(job(), 16) is None
    roomy = read_recipe("grpo-64")
    assert with_tp(roomy, roomy.gpus_per_server).generation.tp == roomy.gpus_per_server
    assert replanned(4, [20, 21]) == 4 and replanned(4, [20, 22]) == 8
    assert replanned(4, [1, 0, 0, 0]) == 4 and replanned(4, [1, 0, 0, 0, 0]) == 2


# --- stream trainer -------------------------------------------------------------------------------


def test_looks_are_as_far_apart_as_said():
    """64 responses waited for: looks at the first with a fifth, and then every four (6 %)."""
    shares, times = zip(*looks(played()), strict=True)
    ends = np.sort(played().kept_ends, axis=None)
    counts = [13, 17, 21, 25, 29]
    assert shares == tuple(n / 64 for n in counts)
    assert times == tuple(ends[n - 1] for n in counts)


def test_looks_begin_and_end_with_their_window_and_keep_their_distance():
    first, last, apart = stream.FROM, stream.UPTO, stream.APART
    for done, looked, may in (
        (first, 0.0, True), (first - 1e-6, 0.0, False), (last, 0.0, True), (last + 1e-6, 0, False),
        (first + apart, first, True), (first + apart - 1e-6, first, False),
    ):  # fmt: skip
        assert stream.may_free(done, looked) is may


def test_freed_replicas_are_those_with_least_left_and_train_when_their_states_are_there():
    stream = streamed(played(), fixed=0.3)
    rest = _left(played(), stream.at)
    load = [rest.context[rest.replica == r].sum() for r in range(4)]
    assert stream.freed == tuple(sorted(np.argsort(load, kind="stable")[:2].tolist()))
    assert (rest.made + rest.to_come == played().played[rest.row, rest.column]).all()
    assert (rest.context == played().drawn.prompts[rest.row] + rest.made).all()
    assert stream.ready == stream.at + handover(job())["offload"] / 2
    assert stream.at == np.sort(played().kept_ends, axis=None)[int(np.ceil(0.3 * 64)) - 1]
    assert stream.recompute > 0


def test_who_goes_on_has_a_token_to_come_however_near_its_end():
    last = played().ends.max()
    rest = _left(played(), float(np.nextafter(last, 0)))
    assert set(played().ends[rest.row, rest.column]) == {last}
    assert set(rest.to_come.tolist()) == {1}


def test_a_fixed_share_is_of_the_responses_that_are_there():
    """7 of 25 are 0.28 of them, though 0.28 x 25 is 7.000000000000001."""
    w = replace(job(), generation=replace(job().generation, batch=5, group_size=5))
    made = launch(Books(), 5, 5)
    round_ = play(w, made, draw(w, 0, made, Books()))
    ends = np.sort(round_.kept_ends, axis=None)
    assert 0.28 * 25 > 7
    for share, count in ((0.28, 7), (0.281, 8), (0.01, 1), (0.999, 25)):
        assert streamed(round_, fixed=share).at == ends[count - 1]


def test_the_peak_is_where_what_goes_on_holds_most():
    """Lengths even from 1 to 101 tokens: after t tokens more, 1 - t / 100 go on, and hold 50 + t.
    That is most at t = 25.
    """
    even = Lengths("even", np.array([0.0, 1.0]), np.array([1.0, 101.0]))
    one = projected_peak(np.array([50]), np.array([1]), even, 101)
    assert one == pytest.approx(0.75 * 75)
    assert projected_peak(np.array([50] * 3), np.array([1] * 3), even, 101) == pytest.approx(
        3 * one
    )
    # of those with 51 tokens half are left to go: 1 - t / 50 of them, which hold most at once
    assert projected_peak(np.array([90]), np.array([51]), even, 101) == pytest.approx(90)
    assert projected_peak(np.zeros(0, int), np.zeros(0, int), even, 101) == 0


def test_gpus_are_freed_where_the_half_that_stays_has_room_for_all(monkeypatch):
    at = next(looks(played()))[1]
    rest, g = _left(played(), at), job().generation
    peak = projected_peak(rest.context, rest.made, g.lengths, g.max_response)
    for room, first in ((peak / 2 + 1, True), (peak / 2 - 1, False)):  # of each of two replicas
        monkeypatch.setattr(stream, "_room", lambda _, room=room: room)
        found = streamed(played())
        assert (found is not None and found.at == at) == first


def test_the_room_of_a_replica_leaves_the_watermark_free():
    """Of its KV cache, as its batches do: a hundredth."""
    capacity, free = job().kv_capacity_tokens, Batching().watermark
    assert free > 0 and stream._room(played()) + free * capacity == pytest.approx(capacity)


def test_one_of_two_replicas_is_freed_and_none_of_one():
    four = ("training_gpus", "generation_gpus", "gpus_per_pod")
    small = replace(job().cluster, **dict.fromkeys(four, 4))
    for wide, count in ((with_tp(job(), 4), 1), (replace(with_tp(job(), 4), cluster=small), 0)):
        made = launch(Books(), 16, 4)
        found = streamed(play(wide, made, draw(wide, 0, made, Books())), fixed=0.5)
        assert (len(found.freed) if found else 0) == count


def test_work_is_done_group_by_group_as_they_come():
    """10 tokens/s from 1 s: 20 tokens until 3 s, nothing until 5 s, 15 of 30 until 6.5 s."""
    ready, tokens = np.array([5.0, 0.0]), np.array([30.0, 20.0])
    assert work_done(ready, tokens, 10.0, 1.0, 6.5) == pytest.approx(35 / 50)
    assert work_done(ready, tokens, 10.0, 1.0, 2.0) == pytest.approx(10 / 50)
    assert work_done(ready, tokens, 10.0, 6.0, 5.0) == 0


def test_freed_gpus_are_drawn_from_when_they_are_ready():
    settings = {"planner": "0"}
    steps = run(job(), 0, RollpackerSettings(planner=0))
    made = schedule(job(), 0, settings)
    begin = {p.step: p.start for p in made.plan.phases if p.kind == "generation"}
    early = {s.step: s for s in made.spans if s.what == "training" and len(s.gpus) < 8}
    assert early and begin[1] > 0
    for step in steps:
        if step.early:
            span = early[step.number]
            assert span.start == pytest.approx(begin[step.number] + step.freed.ready)
            assert span.seconds == pytest.approx(step.early * streamable(step.trained) * 2)

"""The flow engine: closed forms, the reference as oracle over random cases, conservation, and what
it refuses.
"""

import csv
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from engines import engine_alone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rfabric import native
from rfabric.errors import RFabricError
from rfabric.simulate import (
    FINISHED,
    READY,
    Deadlock,
    Engine,
    bench,
    completion_times,
    deadlock,
    workloads,
)
from rfabric.simulate.build import build
from rfabric.simulate.compiled import library
from rfabric.simulate.reference import max_min_rates

G = 1e9


@pytest.fixture(scope="module", autouse=True)
def compiled_core():
    """The core is built where it is missing: else the reference is compared with itself."""
    if library() is None:
        build()
        native.core.cache_clear()
        library.cache_clear()
    assert library() is not None


@pytest.fixture(params=["compiled", "reference"])
def core(request):
    return request.param


def csr(rows) -> tuple[np.ndarray, np.ndarray]:
    flat = [link for row in rows for link in row]
    return np.cumsum([0, *map(len, rows)]), np.array(flat, np.int32)


def flows(paths, size, **columns) -> dict:
    """Arguments of `add` from lists; `after` as a list of lists."""
    offsets, links = csr(paths)
    after = columns.pop("after", None)
    if after is not None:
        columns["after_offsets"], columns["after"] = csr(after)
    return {"path_offsets": offsets, "path_links": links, "size": size, **columns}


# --- closed forms ---------------------------------------------------------------------------------


def test_single_flow_takes_size_over_rate_plus_latency(core):
    done = completion_times(
        capacity=[10 * G], **flows([[0]], [1.25 * G], start=[2.0], latency=[0.5]), core=core
    )
    assert done == pytest.approx([3.5], rel=1e-12)


def test_incast_shares_the_last_link(core):
    n = 7
    done = completion_times(
        capacity=[10 * G] * (n + 1), **flows([[i, n] for i in range(n)], [1e6] * n), core=core
    )
    assert done == pytest.approx([n * 8e6 / (10 * G)] * n, rel=1e-12)


CROWD = """
import resource, sys
import numpy as np
from rfabric.simulate import Engine
n, long = 50_000, 1000
most = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
engine = Engine(np.full(long, 1e9))
hops = np.append(long, np.ones(n, np.int64))
before = most()
engine.add(
    path_offsets=np.append(0, np.cumsum(hops)),
    path_links=np.append(np.arange(long), np.arange(n) % long),
    size=np.full(n + 1, 1e6), after_offsets=np.append(0, np.arange(n + 1)), after=np.zeros(n, int),
)
engine.run()
assert np.isfinite(engine.finish_times()).all()
print(most() - before)
"""


def test_a_long_path_takes_no_room_beside_a_crowd_of_short_ones():
    done = subprocess.run([sys.executable, "-c", CROWD], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100_000  # kB; 1,024 places beside each would be 400 MB


@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
def test_paths_of_many_lengths_come_and_go_as_the_reference_has_them(again):
    links, crowd = 40, [[i % 40] for i in range(60)]
    long, half = list(range(links)), list(range(0, links, 2))
    paths = [long, *crowd, half, *([long, *crowd] if again else [])]
    after = [[], *[[0]] * 60, [3], *([[61], *[[62]] * 60] if again else [])]
    size = [1e6 + 1e4 * i for i in range(len(paths))]
    case = flows(paths, size, after=after)
    compiled, expected = (
        completion_times(capacity=[G] * links, **case, core=core)
        for core in ("compiled", "reference")
    )
    assert compiled == pytest.approx(expected, rel=1e-9)


def test_parking_lot_gives_max_min_rates_not_equal_ones(core):
    # one long flow over links of 10, 4 and 10; a short one on each:
    # the long one gets 2, the shorts 8, 2 and 8
    engine = Engine([10.0, 4.0, 10.0], core=core)
    engine.add(**flows([[0, 1, 2], [0], [1], [2]], [100.0] * 4))
    engine.run(until=8.0)
    assert engine.remaining([0, 1, 2, 3]) == pytest.approx([98, 92, 98, 92], rel=1e-12)


@pytest.mark.parametrize("lots, cables, entering", [(1, 1, 3), (2, 40, 1), (3, 20, 4)])
def test_flows_of_a_parking_lot_share_its_last_cable(core, lots, cables, entering):
    work = workloads.parking_lots(lots, cables, entering)
    size = np.sort(work.columns["size"].reshape(lots, -1), axis=1)
    many = size.shape[1]
    # the k-th to end has waited for its own bytes and as much of each that is larger
    shared = np.diff(size, axis=1, prepend=0.0) * np.arange(many, 0, -1)
    expected = np.cumsum(shared, axis=1) * 8 / workloads.RATE_BPS
    done = completion_times(capacity=work.capacity, **work.columns, core=core)
    assert np.sort(done.reshape(lots, -1), axis=1) == pytest.approx(expected, rel=1e-9)


def test_flows_of_long_paths_share_a_clock_where_fewer_of_short_ones_do_not():
    joined = []
    for cables in (4, 40):
        work = workloads.parking_lots(1, cables, 40 // cables)
        engine = Engine(work.capacity)
        engine.add(**work.columns)
        engine.run()
        joined.append(engine.counters()["joined"])
    assert joined[0] == 0 < joined[1]


@pytest.mark.parametrize("n", [2, 3, 8])
def test_ring_all_reduce_takes_two_n_minus_one_over_n(core, n):
    steps, chunk = 2 * (n - 1), 1e6
    paths = [[i, n + (i + 1) % n] for _ in range(steps) for i in range(n)]
    after = [[(s - 1) * n + (i - 1) % n] if s else [] for s in range(steps) for i in range(n)]
    done = completion_times(
        capacity=[100 * G] * (2 * n), **flows(paths, [chunk] * len(paths), after=after), core=core
    )
    assert done.max() == pytest.approx(2 * (n - 1) / n * (n * chunk) * 8 / (100 * G), rel=1e-12)


def test_a_ring_solves_its_rates_once():
    n, steps = 8, 14
    paths = [[i, n + (i + 1) % n] for _ in range(steps) for i in range(n)]
    after = [[(s - 1) * n + (i - 1) % n] if s else [] for s in range(steps) for i in range(n)]
    engine = Engine([G] * (2 * n))
    engine.add(**flows(paths, [1e6] * len(paths), after=after))
    engine.run()
    assert engine.counters()["takeovers"] == n * (steps - 1)
    assert engine.counters()["instants"] == steps


def test_all_to_all_takes_n_minus_one_messages(core):
    n = 6
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    done = completion_times(
        capacity=[G] * (2 * n),
        **flows([[i, n + j] for i, j in pairs], [1e6] * len(pairs)),
        core=core,
    )
    assert done == pytest.approx([(n - 1) * 8e-3] * len(pairs), rel=1e-12)


def test_weight_stands_for_that_many_flows(core):
    alone = completion_times(
        capacity=[10 * G, 4 * G], **flows([[0]] * 3 + [[0, 1]], [1e6] * 4), core=core
    )
    folded = completion_times(
        capacity=[10 * G, 4 * G], **flows([[0], [0, 1]], [1e6] * 2, weight=[3, 1]), core=core
    )
    assert folded == pytest.approx(alone[[0, 3]], rel=1e-12)


def test_max_min_rates_of_the_reference():
    offsets, links = csr([[0, 1], [1, 2], [2, 3], [0]])
    rates = max_min_rates(np.array([12.0, 4.0, 8.0, 5.0]), offsets, links)
    assert rates == pytest.approx([2, 2, 5, 10])


def test_tolerance_bounds_the_error():
    rng = np.random.default_rng(3)
    paths = [rng.choice(12, 3, replace=False).tolist() for _ in range(300)]
    case = {
        "capacity": [G] * 12,
        **flows(paths, rng.uniform(1e5, 1e6, 300), start=rng.uniform(0, 0.01, 300)),
    }
    exact = completion_times(**case)
    assert completion_times(**case, tolerance=1e-6) == pytest.approx(exact, rel=1e-4)


# --- time, dependencies, a network that changes ---------------------------------------------------


def test_start_waits_for_the_last_of_after_then_the_gap(core):
    engine = Engine([8.0], core=core)
    engine.add(
        **flows([[0], [], [0]], [1, 0, 1], after=[[], [], [0, 1]], start=[0, 5, 2], gap=[9, 9, 0.5])
    )
    engine.run()
    assert engine.start_times() == pytest.approx([0, 5, 5.5])
    assert engine.finish_times() == pytest.approx([1, 5, 6.5])


def test_markers_chain_within_one_instant(core):
    engine = Engine([8.0], core=core)
    engine.add(**flows([[0], [], [], [], [0]], [2, 0, 0, 0, 1], after=[[], [0], [1], [1, 2], [3]]))
    engine.run()
    assert engine.finish_times() == pytest.approx([2, 2, 2, 2, 3])


def test_watch_stops_at_ready_then_at_finish(core):
    engine = Engine([8.0], core=core)
    engine.add(**flows([[0], [0]], [3, 1], after=[[], [0]], gap=[0, 10]))
    engine.watch([1])
    assert engine.run().tolist() == [(3.0, 1, READY)]
    assert engine.now == 3.0 and not len(engine.active())
    assert engine.run(until=5).tolist() == [] and engine.now == 5.0
    assert engine.run().tolist() == [(14.0, 1, FINISHED)]
    assert engine.run().tolist() == [] and engine.now == 14.0


def test_watch_reports_a_flow_that_is_ready_already(core):
    engine = Engine([8.0], core=core)
    engine.add(**flows([[0]], [1], start=[4]))
    engine.watch([0])
    assert engine.run().tolist() == [(0.0, 0, READY)]
    assert engine.run().tolist() == [(5.0, 0, FINISHED)]


def test_a_dark_link_holds_its_flows_and_lets_them_go(core):
    engine = Engine([8.0, 8.0], core=core)
    engine.add(**flows([[0], [1]], [10, 10]))
    engine.run(until=4)
    engine.set_capacity([0], [0])
    engine.run(until=7)
    assert engine.remaining([0, 1]) == pytest.approx([6, 3])
    engine.set_capacity([0], [16])
    engine.run()
    assert engine.finish_times() == pytest.approx([10, 10])
    assert engine.link_bytes() == pytest.approx([10, 10])
    assert engine.busy_time() == pytest.approx([10, 10])


def test_utilisation_is_the_share_of_capacity_in_each_bin(core):
    engine = Engine([8.0, 16.0, 0.0], core=core)
    # 1 B/s each; from 5 s the second alone
    engine.add(**flows([[0, 1], [1], [2]], [4, 6, 1], start=[1, 2, 0]))
    engine.watch([0, 1])
    assert engine.utilisation([0, 2, 4, 6, 9]) == pytest.approx(
        np.array([[0.5, 0.25, 0], [1, 1, 0], [0.5, 1, 0], [0, 1 / 6, 0]])
    )
    engine.set_capacity([2], [0.5])
    assert engine.utilisation([9, 17]) == pytest.approx(np.array([[0, 0, 1]]))
    assert engine.utilisation([17]).shape == (0, 3) and engine.now == 17


def test_reroute_keeps_what_is_left_and_counts_both_links(core):
    engine = Engine([8.0, 16.0, 8.0], core=core)
    engine.add(**flows([[0], [0]], [10, 10], after=[[], [0]]))
    engine.run(until=4)
    engine.reroute([0, 1], *csr([[1], [2, 1]]))
    engine.run()
    assert engine.finish_times() == pytest.approx([7, 17])
    assert engine.link_bytes() == pytest.approx([4, 16, 10])


def test_flows_may_be_added_under_way_and_wait_for_finished_ones(core):
    engine = Engine([8.0], core=core)
    engine.add(**flows([[0]], [2]))
    engine.run(until=6)
    engine.add(**flows([[0], [0]], [1, 1], after=[[0], [0]], gap=[1, 7]))
    engine.run()
    assert engine.start_times() == pytest.approx([0, 6, 9])


def test_a_longer_path_later_does_not_disturb_flows_in_flight(core):
    engine = Engine([8.0] * 12, core=core)
    engine.add(**flows([[0], [0]], [4, 4]))
    engine.run(until=1)
    engine.add(**flows([list(range(12))], [3]))
    engine.run()
    # 7 B left on link 0 at 1 s, in thirds until the short ones (3.5 B each) and the long one
    # (3 B) end
    assert engine.finish_times() == pytest.approx([11, 11, 10])


def test_deadlock_is_inf_and_named(core):
    case = flows([[0], [1], [1]], [1, 1, 1], after=[[], [], [1]])
    with pytest.warns(
        Deadlock,
        match="2 of 3 flows never finish; 1 are stalled on dark links: 1; 1 wait for them: 2",
    ):
        done = completion_times(capacity=[8.0, 0.0], **case, core=core)
    assert done.tolist() == [1.0, np.inf, np.inf]


# --- the reference as oracle ----------------------------------------------------------------------

SIZES = st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0, 1e3]) | st.floats(0.5, 50)
TIMES = st.sampled_from([0.0, 0.0, 1.0, 2.0]) | st.floats(0, 5)
RATES = st.sampled_from([0.0, 8.0, 8.0, 8.0, 16.0, 24.0]) | st.floats(1, 100)


@st.composite
def paths_of(draw, n, links, sizes=None):
    rows = []
    for i in range(n):
        least = 0 if sizes is not None and sizes[i] == 0 else 1
        rows.append(
            draw(st.lists(st.integers(0, links - 1), min_size=least, max_size=4, unique=True))
        )
    return rows


@st.composite
def batches(draw, links, first):
    n = draw(st.integers(1, 14))
    size = draw(st.lists(SIZES, min_size=n, max_size=n))
    columns = {"start": draw(st.lists(TIMES, min_size=n, max_size=n))}
    if draw(st.booleans()):
        columns["after"] = [
            draw(st.lists(st.integers(0, first + i - 1), max_size=3)) if first + i else []
            for i in range(n)
        ]
        columns["gap"] = draw(st.lists(TIMES, min_size=n, max_size=n))
    if draw(st.booleans()):
        columns["latency"] = draw(st.lists(TIMES, min_size=n, max_size=n))
    if draw(st.booleans()):
        columns["weight"] = draw(
            st.lists(st.sampled_from([1.0, 1.0, 2.0, 3.5]), min_size=n, max_size=n)
        )
    return flows(draw(paths_of(n, links, size)), size, **columns)


@st.composite
def stories(draw):
    """A network, and what a user does with it: calls as (method, positional, named)."""
    links = draw(st.integers(1, 7))
    capacity = draw(st.lists(RATES, min_size=links, max_size=links))
    calls, known = [], 0
    for _ in range(draw(st.integers(1, 5))):
        batch = draw(batches(links, known))
        calls.append(("add", (), batch))
        known += len(batch["size"])
        ids = st.lists(st.integers(0, known - 1), max_size=4, unique=True)
        if draw(st.booleans()):
            calls.append(("watch", (draw(ids),), {}))
        if draw(st.booleans()):
            which = draw(st.lists(st.integers(0, links - 1), max_size=links, unique=True))
            bps = draw(st.lists(RATES, min_size=len(which), max_size=len(which)))
            calls.append(("set_capacity", (which, bps), {}))
        if draw(st.booleans()):
            moved = draw(ids)
            calls.append(("reroute", (moved, *csr(draw(paths_of(len(moved), links)))), {}))
        calls.append(
            ("run", (), {}) if draw(st.booleans()) else ("pass", (draw(st.floats(0, 4)),), {})
        )
    return capacity, calls


def live(capacity, calls, core):
    """Play a story; yield what can be seen after each call."""
    engine = Engine(capacity, core=core)
    for name, positional, named in [*calls, *[("run", (), {})] * 60]:
        events = ()
        if name == "pass":
            events = engine.run(until=engine.now + positional[0])
        elif name == "run":
            events = engine.run()
        else:
            getattr(engine, name)(*positional, **named)
        yield engine, name, events


def check_story(story):
    for (a, name, seen), (b, _, expected) in zip(
        live(*story, "compiled"), live(*story, "reference"), strict=True
    ):
        close = {"rtol": 1e-9, "atol": 1e-9 * max(1.0, b.now)}
        np.testing.assert_allclose(a.now, b.now, rtol=1e-9, err_msg=name)
        np.testing.assert_allclose(a.finish_times(), b.finish_times(), **close)
        np.testing.assert_allclose(a.start_times(), b.start_times(), **close)
        everybody = np.arange(a.flows)
        np.testing.assert_allclose(
            a.remaining(everybody), b.remaining(everybody), rtol=1e-9, atol=1e-7
        )
        np.testing.assert_allclose(a.link_bytes(), b.link_bytes(), rtol=1e-9, atol=1e-7)
        np.testing.assert_allclose(a.busy_time(), b.busy_time(), **close)
        np.testing.assert_array_equal(a.active(), b.active())
        assert [e[1:] for e in map(tuple, seen)] == [e[1:] for e in map(tuple, expected)]
    assert a.counters()["fallbacks"] == 0
    return a.counters()


@given(stories())
@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
def test_the_core_tells_the_same_story_as_the_reference(story):
    check_story(story)


def random_case(rng) -> dict:
    """Many flows on few links, with ties: enough in flight that single events are repaired, not
    solved anew.
    """
    links, n = int(rng.integers(3, 16)), int(rng.integers(40, 160))
    paths = [
        rng.choice(links, rng.integers(1, min(links, 5)), replace=False).tolist() for _ in range(n)
    ]
    ties = rng.random() < 0.5
    size = rng.integers(1, 9, n) * 10.0 if ties else rng.lognormal(3, 2, n)
    size[rng.random(n) < 0.05] = 0
    start = rng.integers(0, 30, n) * 1.0 if ties else rng.uniform(0, 30, n)
    after = [
        rng.integers(0, i, rng.integers(0, 3)).tolist() if i and rng.random() < 0.3 else []
        for i in range(n)
    ]
    capacity = rng.integers(1, 4, links) * 8.0 if ties else rng.uniform(1, 50, links)
    capacity[rng.random(links) < 0.03] = 0
    weight = rng.choice([1, 1, 1, 2, 5], n) if rng.random() < 0.3 else None
    return {
        "capacity": capacity,
        "weight": weight,
        **flows(paths, size, start=start, after=after, gap=0.25),
    }


@pytest.mark.parametrize("seed", range(60))
def test_crowded_links_give_the_times_of_the_reference(seed):
    case = random_case(np.random.default_rng(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Deadlock)
        np.testing.assert_allclose(
            completion_times(**case), completion_times(**case, core="reference"), rtol=1e-9
        )


def random_story(rng):
    """The same crowd, while links go dark, come back and change, and flows are rerouted and added
    under way.
    """
    case = random_case(rng)
    capacity = np.maximum(case.pop("capacity"), 8.0)
    links, n = len(capacity), len(case["size"])
    calls = [("add", (), case), ("watch", (rng.choice(n, 5),), {})]
    for _ in range(12):
        calls.append(("pass", (rng.choice([0.0, 1.0, 2.5, rng.uniform(0, 6)]),), {}))
        which = rng.choice(links, rng.integers(1, links), replace=False)
        bps = rng.choice([0.0, 8.0, 8.0, 16.0, rng.uniform(1, 50)], len(which))
        calls.append(("set_capacity", (which, bps), {}))
        moved = rng.choice(n, rng.integers(1, 9), replace=False)
        ways = [
            rng.choice(links, rng.integers(1, min(links, 5)), replace=False).tolist() for _ in moved
        ]
        calls.append(("reroute", (moved, *csr(ways)), {}))
    calls.append(("add", (), flows([[f % links] for f in range(40)], rng.uniform(0, 20, 40))))
    calls.append(("set_capacity", (np.arange(links), capacity), {}))
    return capacity, calls


@pytest.mark.parametrize("seed", range(25))
def test_a_crowd_on_a_changing_network_tells_the_story_of_the_reference(seed):
    check_story(random_story(np.random.default_rng(seed)))


@pytest.mark.parametrize("seed", range(20))
def test_bytes_are_conserved(seed):
    case = random_case(np.random.default_rng(seed))
    engine = Engine(case.pop("capacity") + 1.0)
    engine.add(**case)
    engine.run()
    assert deadlock(engine) is None
    weight = np.ones(engine.flows) if case["weight"] is None else case["weight"]
    sent = np.repeat(weight * np.asarray(case["size"]), np.diff(case["path_offsets"]))
    expected = np.bincount(case["path_links"], sent, minlength=engine.links)
    assert engine.link_bytes() == pytest.approx(expected, rel=1e-12)


def test_the_same_input_gives_the_same_bytes():
    def once():
        return completion_times(**random_case(np.random.default_rng(11))).tobytes()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Deadlock)
        assert once() == once()


def test_progress_is_called_and_may_interrupt():
    rng = np.random.default_rng(1)
    paths = [rng.choice(40, 3, replace=False).tolist() for _ in range(20000)]
    seen = []

    def progress(now, finished, known):
        seen.append((now, finished, known))
        raise KeyboardInterrupt

    engine = Engine([G] * 40, progress=progress)
    engine.add(**flows(paths, rng.uniform(1e5, 1e6, 20000), start=rng.uniform(0, 0.1, 20000)))
    engine._called = -1e9
    with pytest.raises(KeyboardInterrupt):
        engine.run()
    assert seen[0][2] == 20000 and 0 < seen[0][0] == engine.now


def test_a_long_instant_is_left_for_a_breath_and_taken_up_again():
    """Within one instant of a large collective Python is asked again and again, and may look at
    everything.
    """
    work = workloads.all_to_all(16, 384, spread="balanced")
    expected = completion_times(capacity=work.capacity, **work.columns)
    engine, seen = Engine(work.capacity), []
    engine.add(**work.columns)

    def interrupt():
        seen.append((engine.now, len(engine.active())))
        if engine.now == 0:
            assert engine.remaining(engine.active()).sum() == pytest.approx(
                np.sum(work.columns["size"]), rel=1e-12
            )
            assert engine.link_bytes().sum() == 0
        raise KeyboardInterrupt

    while deadlock(engine):
        try:
            engine._engine.run(np.inf, interrupt)
        except KeyboardInterrupt:
            continue
    assert seen.count((0.0, work.flows)) >= 2 and engine.counters()["instants"] == 1
    assert engine.finish_times().tobytes() == expected.tobytes()


# Plays stories with a core that breathes at every step, and changes the network while an instant is
# half done.
BREATHLESS = """
import sys
import warnings

import numpy as np

sys.path.insert(0, sys.argv[1])
import test_engine as t
from rfabric.simulate.compiled import CompiledEngine

warnings.simplefilter("ignore", t.Deadlock)
breaths = 0


def count():
    global breaths
    breaths += 1


run = CompiledEngine.run
CompiledEngine.run = lambda self, until, breath=None: run(self, until, breath or count)
for seed in range(6):
    t.check_story(t.random_story(np.random.default_rng(seed)))
assert breaths > 1000


class Enough(Exception):
    pass


def leave():
    raise Enough


def step(engine):
    try:
        engine._engine.run(np.inf, leave)
    except Enough:
        return True
    return False


rng = np.random.default_rng(5)
case = t.random_case(rng)
capacity, n = np.maximum(case.pop("capacity"), 8.0), len(case["size"])
one, two = t.Engine(capacity), t.Engine(capacity, core="reference")
for engine in (one, two):
    engine.add(**case)
for _ in range(300):
    if not step(one):
        break
    two.run(one.now)
    which, moved = rng.choice(len(capacity), 2, replace=False), rng.choice(n, 2, replace=False)
    bps = rng.uniform(8, 50, 2)
    ways = [rng.choice(len(capacity), 3, replace=False).tolist() for _ in moved]
    for engine in (one, two):
        engine.set_capacity(which, bps)
        engine.reroute(moved, *t.csr(ways))
one.run(), two.run()
np.testing.assert_allclose(one.finish_times(), two.finish_times(), rtol=1e-9)
np.testing.assert_allclose(one.link_bytes(), two.link_bytes(), rtol=1e-9, atol=1e-7)
"""


def play_with_a_core_of(flag, script, tmp_path):
    """Run the script with a core that was built with this flag."""
    core = engine_alone(tmp_path / "core.so", "-O1", flag)
    environment = {**os.environ, "RFABRIC_CORE": str(core)}
    command = [sys.executable, "-c", script, str(Path(__file__).parent)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_core_that_breathes_at_every_step_tells_the_same_stories(tmp_path):
    play_with_a_core_of("-DRFABRIC_BREATH=1", BREATHLESS, tmp_path)


# Plays stories with a core in which two flows are a crowd.
CROWDED = """
import sys
import warnings

import numpy as np

sys.path.insert(0, sys.argv[1])
import test_engine as t

warnings.simplefilter("ignore", t.Deadlock)
joined = 0
for seed in range(8):
    t.check_story(t.random_story(np.random.default_rng(seed)))
for seed in range(16):
    joined += t.check_story(t.incast_story(np.random.default_rng(seed)))["joined"]
assert joined > 2000, joined
"""


def incast_story(rng):
    """Senders with cards of their own, in racks, to a few receivers; other flows pass, cards go
    dark and come back, flows begin again where one has ended, some weigh more.
    """
    n, racks, receivers = int(rng.integers(20, 90)), int(rng.integers(1, 6)), rng.integers(1, 4)
    # receivers, racks up, cards
    slow = rng.choice([1.0, 0.02], n) if rng.random() < 0.4 else np.ones(n)
    wide = rng.choice([8.0, 16.0, 80.0]) * np.ones(racks)
    capacity = np.concatenate((np.full(receivers, 80.0), wide * n / racks, 80.0 * slow))
    to, rack = rng.integers(0, receivers, n), rng.integers(0, racks, n)
    paths = [
        [int(receivers + racks + f), int(receivers + rack[f]), int(to[f])][rng.integers(0, 2) :]
        for f in range(n)
    ]
    ties = rng.random() < 0.5
    size = rng.integers(1, 5, n) * 40.0 if ties else rng.uniform(10, 200, n)
    start = np.zeros(n) if rng.random() < 0.5 else np.sort(rng.uniform(0, 60, n))
    weight = rng.choice([1.0, 1.0, 3.0], n) if rng.random() < 0.3 else None
    calls = [("add", (), flows(paths, size, start=start, weight=weight))]
    again = [[i] for i in range(n)]
    calls.append(("add", (), flows(paths, size[::-1].copy(), after=again)))
    for _ in range(8):
        calls.append(("pass", (rng.choice([0.5, 3.0, rng.uniform(0, 40)]),), {}))
        some = rng.choice(len(capacity), 2, replace=False)
        calls.append(("set_capacity", (some, rng.choice([8.0, 40.0, 80.0], 2)), {}))
        moved = rng.choice(n, 2, replace=False)
        calls.append(("reroute", (moved, *csr([paths[f][::-1] for f in moved[::-1]])), {}))
        across = [
            [int(receivers + rng.integers(racks))],
            [int(receivers + racks + rng.integers(n))],
        ]
        calls.append(("add", (), flows(across, rng.uniform(1, 300, 2))))
    return capacity, calls


def test_a_core_with_the_smallest_crowds_tells_the_same_stories(tmp_path):
    play_with_a_core_of("-DRFABRIC_CROWD=2", CROWDED, tmp_path)


@pytest.mark.parametrize("seed", range(8))
def test_an_incast_tells_the_story_of_the_reference(seed):
    check_story(incast_story(np.random.default_rng(seed)))


# --- groups of flows that nothing ties together ---------------------------------------------------

# Plays stories with a core that looks for groups among any two flows.
GROUPED = """
import sys
import warnings

import numpy as np

sys.path.insert(0, sys.argv[1])
import test_engine as t

warnings.simplefilter("ignore", t.Deadlock)
for seed in range(12):
    t.check_story(t.grouped_story(np.random.default_rng(seed)))
    t.check_story(t.random_story(np.random.default_rng(seed)))
    t.check_story(t.incast_story(np.random.default_rng(seed)))
"""


def grouped_story(rng):
    """Some groups of flows on links of their own, numbered at random: flows wait for others of
    their group, also through rows without a path; some links are dark, and lit when all is at rest.
    """
    groups, each = int(rng.integers(2, 30)), int(rng.integers(2, 8))
    links = rng.permutation(groups * each).reshape(groups, each)
    capacity = rng.choice([8.0, 16.0, rng.uniform(1, 50)], groups * each)
    dark = rng.choice(groups * each, int(rng.integers(0, 2)), replace=False)
    capacity[dark] = 0.0
    paths, after, members = [], [], [[] for _ in range(groups)]
    for f in range(int(rng.integers(groups, 8 * groups))):
        group = int(rng.integers(groups))
        hops = int(rng.integers(0, 4))
        paths.append(rng.choice(links[group], min(hops, each), replace=False).tolist())
        before = members[group]
        some = int(rng.integers(0, min(len(before), 3) + 1))
        after.append(rng.choice(before, some, replace=False).tolist() if some else [])
        before.append(f)
    n = len(paths)
    size = [float(rng.integers(1, 40)) if path else 0.0 for path in paths]
    said = {
        "start": rng.choice([0.0, 1.0, rng.uniform(0, 9)], n),
        "gap": rng.choice([0.0, 0.0, 2.0], n),
        "latency": rng.choice([0.0, 0.5], n) if rng.random() < 0.5 else None,
        "weight": rng.choice([1.0, 2.5], n) if rng.random() < 0.5 else None,
    }
    calls = [("add", (), flows(paths, size, after=after, **said)), ("run", (), {})]
    calls += [("set_capacity", (dark, np.full(len(dark), 8.0)), {}), ("run", (), {})]
    calls.append(("add", (), flows([[int(links[0, 0]), int(links[1, 0])]], [7.0], after=[[0]])))
    return capacity, calls


def test_a_core_that_looks_for_the_smallest_groups_tells_the_same_stories(tmp_path):
    play_with_a_core_of("-DRFABRIC_APART=2", GROUPED, tmp_path)


def islands(groups=5, each=4000):
    """Capacities, and flows on islands of 32 links: none reaches another island, and one in eight
    waits for the one before it.
    """
    rng = np.random.default_rng(3)
    n = groups * each
    at = np.sort(rng.integers(0, groups, n))
    links = 32 * at[:, None] + np.argsort(rng.random((n, 32)), axis=1)[:, :3]
    waits = (at == np.roll(at, 1)) & (rng.random(n) < 1 / 8)
    waits[0] = False
    return np.full(32 * groups, G), {
        "path_offsets": 3 * np.arange(n + 1),
        "path_links": links.ravel(),
        "size": rng.uniform(1e3, 1e6, n),
        "start": rng.uniform(0, 1, n),
        "after_offsets": np.cumsum(np.concatenate(([0], waits))),
        "after": np.flatnonzero(waits) - 1,
    }


def all_that_is_seen(engine):
    seen = engine.start_times(), engine.finish_times(), engine.link_bytes(), engine.busy_time()
    return b"".join(array.tobytes() for array in seen)


def test_groups_take_as_long_together_as_each_by_itself():
    capacity, columns = islands()
    engine = Engine(capacity)
    engine.add(**columns)
    engine.run()
    one_by_one = Engine(capacity)
    one_by_one.add(**columns)
    while one_by_one.now < engine.now:  # who wants to see it on the way sees one engine
        one_by_one.run(until=one_by_one.now + 0.5)
    assert not deadlock(engine) and engine.now == engine.finish_times().max()
    for what in ("start_times", "finish_times", "link_bytes", "busy_time"):
        together, alone = (getattr(one, what)() for one in (engine, one_by_one))
        np.testing.assert_allclose(together, alone, rtol=1e-9, err_msg=what)


ISLANDS = """
import hashlib, os, sys
sys.path.insert(0, sys.argv[1])
import test_engine as t

for cores in (os.sched_getaffinity(0), {min(os.sched_getaffinity(0))}):
    os.sched_setaffinity(0, cores)
    capacity, columns = t.islands()
    engine = t.Engine(capacity)
    engine.add(**columns)
    engine.run()
    print(hashlib.sha256(t.all_that_is_seen(engine)).hexdigest())
"""


def test_the_last_bit_does_not_depend_on_how_many_cores_there_are():
    command = [sys.executable, "-c", ISLANDS, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(set(done.stdout.split())) == 1 and len(done.stdout.split()) == 2


def test_a_group_that_can_never_finish_is_named_and_lives_again_with_its_link():
    capacity, columns = islands()
    capacity[0] = 0.0
    engine = Engine(capacity)
    engine.add(**columns)
    engine.run()
    assert "are stalled on dark links" in deadlock(engine)
    engine.set_capacity([0], [G])
    engine.run()
    assert deadlock(engine) is None
    sent = np.bincount(columns["path_links"], np.repeat(columns["size"], 3), len(capacity))
    np.testing.assert_allclose(engine.link_bytes(), sent, rtol=1e-9)


def test_groups_that_are_interrupted_go_on_or_begin_again():
    """Who goes on gets what was begun; who changes anything gets it from the beginning."""
    capacity, columns = islands()
    expected, engine, told = Engine(capacity), Engine(capacity), []

    def interrupt():
        told.append(engine._engine.finished)
        raise KeyboardInterrupt

    for one in (expected, engine):
        one.add(**columns)
    expected.run()
    with pytest.raises(KeyboardInterrupt):
        engine._engine.run(np.inf, interrupt)
    assert engine.now == 0 and np.isnan(engine.start_times()).all() and told[0] < engine.flows
    changed = Engine(capacity)
    changed.add(**columns)
    with pytest.raises(KeyboardInterrupt):
        changed._engine.run(np.inf, interrupt)
    engine.run()
    assert all_that_is_seen(engine) == all_that_is_seen(expected)
    changed.run(until=0.25)
    assert changed.now == 0.25 and len(changed.active()) > 0
    changed.run()
    np.testing.assert_allclose(changed.finish_times(), expected.finish_times(), rtol=1e-9)
    with pytest.raises(KeyboardInterrupt):
        left = Engine(capacity)
        left.add(**columns)
        left._engine.run(np.inf, interrupt)
    left.close()  # its threads end with it


# --- work, and the benchmark ----------------------------------------------------------------------


def counted(work) -> dict[str, int]:
    engine = Engine(work.capacity)
    engine.add(**work.columns)
    engine.run()
    assert deadlock(engine) is None
    return engine.counters()


def test_an_event_is_repaired_where_it_happened():
    work = workloads.web_search(8, 2000)
    done = counted(work)
    assert done["instants"] >= 2 * work.flows - 5
    # a solve of all links at every event would be hundreds
    assert done["evaluations"] < 20 * work.flows
    assert done["fills"] < work.flows / 20 and done["fallbacks"] == 0


@pytest.mark.parametrize("kind", workloads.INCASTS)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_flow_of_an_incast_costs_the_same_however_many_there_are(kind, at_once):
    few, many = (counted(workloads.incast(n, kind, at_once))["visits"] / n for n in (2_000, 16_000))
    # slow cards take flows out of the crowd: the receiver's link looks at those that pass
    assert many < (5 if kind == "slow cards" else 1.5) * few


def test_synchronous_collectives_are_solved_once_for_all():
    done = counted(workloads.all_to_all(8, 64, spread="balanced"))
    assert done["fills"] <= 2 and done["evaluations"] == 0
    rings = workloads.rings_on_fat_tree(8, members=4)
    assert counted(rings)["takeovers"] == rings.flows - 128


def test_paths_of_the_fat_tree_begin_and_end_at_the_hosts():
    tree = workloads.FatTree(4)
    src, dst = (a.ravel() for a in np.indices((16, 16)))
    src, dst = src[src != dst], dst[src != dst]
    offsets, links = tree.paths(src, dst, workloads.ecmp(src, dst))
    assert (links[offsets[:-1]] == src).all() and (links[offsets[1:] - 1] == 16 + dst).all()
    assert np.bincount(np.diff(offsets)).tolist() == [0, 0, 16, 0, 32, 0, 192]


def test_a_repair_that_takes_too_long_gives_way_to_a_full_solve(tmp_path):
    impatient = engine_alone(tmp_path / "core.so", "-O1", "-DRFABRIC_PATIENCE=0")
    script = (
        "import sys, numpy as np; from rfabric.simulate import Engine, workloads as w; work = "
        "w.web_search(4, 400)\nengine = Engine(work.capacity); engine.add(**work.columns); "
        "engine.run()\nassert engine.counters()['fallbacks'] > 100; np.save(sys.argv[1], "
        "engine.finish_times())"
    )
    environment = {**os.environ, "RFABRIC_CORE": str(impatient)}
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "finish.npy")], check=True, env=environment
    )
    work = workloads.web_search(4, 400)
    expected = completion_times(capacity=work.capacity, **work.columns)
    np.testing.assert_allclose(np.load(tmp_path / "finish.npy"), expected, rtol=1e-9)


def test_a_missing_core_is_loud(tmp_path):
    script = (
        "from rfabric.simulate import completion_times\n"
        "print(*completion_times(capacity=[8], path_offsets=[0, 1], path_links=[0], size=[3]))"
    )
    environment = {**os.environ, "RFABRIC_CORE": str(tmp_path / "core.so")}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "3.0"
    assert "core.so is missing: run python -m rfabric.simulate.build" in done.stderr


def test_bench_tables_say_what_was_measured_and_what_was_not(tmp_path):
    own = {
        "flows": 2000,
        "cpu_s": 0.5,
        "flows_per_s": 4000.0,
        "peak_mib": 40.4,
        "bytes_per_flow": 120.2,
    }
    peer = {"peer": "SimGrid 4.1", "patience_s": 20.0}
    rows = [
        bench.Measurement(
            "mix",
            "the mix",
            **own,
            **peer,
            lazy_s=None,
            full_s=5.0,
            ratio=10.0,
            worst_difference=1e-12,
        ),
        bench.Measurement("a2a-512", "all to all", **own, **peer, ratio=40.0, at_least=True),
        bench.Measurement("web-of-128-gpus", "web", **own, visits_per_flow=17.25),
    ]
    bench.write(rows, tmp_path / "bench", "rfabric bench --patience 20s")
    page = (tmp_path / "bench/engine.md").read_text()
    assert page.startswith("`rfabric bench --patience 20s` on ")
    assert "| the mix | 2,000 | 0.5 | 4,000 | 40 | 120 | > 20 | 5 | 10.0 | 1e-12 |" in page
    assert "| all to all | 2,000 | 0.5 | 4,000 | 40 | 120 | > 20 | > 20 | > 40.0 |  |" in page
    assert "| web | 2,000 | 0.5 | 4,000 | 40 | 120 | 17.2 |\n" in page and "## Alone" not in page
    with (tmp_path / "bench/engine.csv").open() as file:
        assert [r["case"] for r in csv.DictReader(file)] == ["mix", "a2a-512", "web-of-128-gpus"]
    assert (
        "SimGrid was not run" in bench.tables([bench.Measurement("mix", "the mix", **own)])[0].note
    )


@pytest.fixture(scope="module")
def simgrid(tmp_path_factory):
    peer = bench.build_peer(tmp_path_factory.mktemp("peer"))
    if peer is None:
        pytest.skip("no SimGrid 4 is installed: name its prefix by SIMGRID_PREFIX")
    return peer


def test_simgrid_agrees(simgrid, tmp_path):
    for work in (
        workloads.web_search(4, 300),
        workloads.disjoint_rings(4, 4, 6),
        workloads.parking_lots(3, 5),
    ):
        work.columns["size"] = np.rint(work.columns["size"])
        bench.write_work(work, tmp_path / "a.work")
        _, theirs = bench.peer_time(
            simgrid, tmp_path / "a.work", work.flows, "Lazy", 60, bench.EXACT
        )
        np.testing.assert_allclose(
            completion_times(capacity=work.capacity, **work.columns), theirs, rtol=1e-9
        )


def test_simgrid_is_ended_when_patience_runs_out(simgrid, tmp_path):
    work = workloads.all_to_all(8, 128, jitter=0.1)  # tens of seconds
    bench.write_work(work, tmp_path / "a.work")
    assert bench.peer_time(simgrid, tmp_path / "a.work", work.flows, "Full", 0.01) == (None, None)


# --- what it refuses ------------------------------------------------------------------------------

GOOD = {"capacity": [8.0, 8.0], "path_offsets": [0, 1, 2], "path_links": [0, 1], "size": [1.0, 1.0]}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"size": [1.0, -3.0]}, r"size\[1\] is -3: it must be finite and >= 0"),
        ({"size": [float("nan"), 1.0]}, r"size\[0\] is nan"),
        ({"size": [1.0, float("inf")]}, r"size\[1\] is inf"),
        ({"size": ["a", "b"]}, r"size has dtype <U1: numbers are needed"),
        ({"size": [1.0, 1.0, 1.0]}, r"path_offsets has 3 values for 3 rows: 4 are needed"),
        ({"size": [[1.0, 1.0]]}, r"size has 2 dimensions: one is needed"),
        ({"size": [[1.0], [1.0, 2.0]]}, r"size is ragged"),
        ({"capacity": [8.0, -1.0]}, r"capacity\[1\] is -1: it must be finite and >= 0"),
        ({"capacity": [8.0, float("nan")]}, r"capacity\[1\] is nan"),
        ({"path_links": [0, 2]}, r"path_links\[1\] is 2: there are 2 links, 0 to 1"),
        ({"path_links": [-1, 1]}, r"path_links\[0\] is -1: there are 2 links"),
        ({"path_links": [0.0, 1.0]}, r"path_links has dtype float64: whole numbers are needed"),
        ({"path_offsets": [0, 2, 1]}, r"path_offsets\[2\] is 1 after 2: CSR offsets must ascend"),
        ({"path_offsets": [1, 1, 2]}, r"path_offsets\[0\] is 1: CSR offsets begin with 0"),
        ({"path_offsets": [0, 1, 3]}, r"path_offsets\[2\] is 3: the last offset must be 2"),
        ({"path_offsets": [0, 2, 2]}, (r"flow 1 has size 1 B and an empty path: give it links, "
                                       r"or size 0")),
        ({"path_offsets": [0, 2, 4], "path_links": [0, 1, 1, 1]}, (r"the path of flow 1 crosses "
                                                                   r"link 1 twice")),
        ({"capacity": [8.0] * 40, "path_offsets": [0, 1, 41],
          "path_links": [7, *range(20), 7, *range(21, 40)]}, r"flow 1 crosses link 7 twice"),
        ({"path_offsets": [0, 1, 1026], "path_links": [0] * 1026}, (r"the path of flow 1 has "
                                                                    r"1025 links: the limit is "
                                                                    r"1024")),
        ({"start": [0.0, float("inf")]}, r"start\[1\] is inf: it must be finite"),
        ({"gap": [0.0, -1.0]}, r"gap\[1\] is -1"),
        ({"latency": [0.0]}, r"latency has 1 values for 2 rows"),
        ({"weight": [1, 0]}, r"weight\[1\] is 0: a row stands for at least one flow"),
        ({"after_offsets": [0, 0, 1], "after": [2]}, r"after\[0\] is 2: there are 2 flows, 0 to 1"),
        ({"after_offsets": [0, 0, 1], "after": [1]}, r"wait for each other in a circle: 1 after 1"),
        ({"after_offsets": [0, 1, 2], "after": [1, 0]}, r"in a circle: 0 after 1 after 0"),
        ({"after": [0]}, r"after and after_offsets go together"),
        ({"tolerance": 0.5}, r"tolerance is 0.5: it must lie between 0"),
        ({"core": "gpu"}, r"core is 'gpu': choose"),
    ],
)  # fmt: skip
def test_bad_input_is_named_before_the_core_is_entered(change, says, core):
    with pytest.raises(RFabricError, match=says):
        completion_times(**{"core": core, **GOOD, **change})


def test_bad_calls_are_named(core):
    engine = Engine([8.0, 8.0], core=core)
    engine.add(**flows([[0]], [10]))
    engine.run(until=2)
    with pytest.raises(RFabricError, match=r"run\(until=1\): the time is 2 s already"):
        engine.run(until=1)
    with pytest.raises(RFabricError, match=r"run\(until=nan\)"):
        engine.run(until=float("nan"))
    with pytest.raises(RFabricError, match=r"edges\[0\] is 1: it must be finite and >= 2"):
        engine.utilisation([1, 3])
    with pytest.raises(RFabricError, match=r"edges\[2\] is 4 after 4: edges of bins must ascend"):
        engine.utilisation([2, 4, 4])
    with pytest.raises(RFabricError, match=r"flows\[0\] is 1: there are 1 flows"):
        engine.watch([1])
    with pytest.raises(RFabricError, match=r"links\[0\] is 2: there are 2 links"):
        engine.set_capacity([2], [1])
    with pytest.raises(RFabricError, match=r"capacity\[0\] is -1"):
        engine.set_capacity([1], [-1])
    with pytest.raises(
        RFabricError, match="flow 0 has bytes to send: it cannot be given an empty path"
    ):
        engine.reroute([0], [0, 0], [])
    assert engine.remaining([0]) == pytest.approx([8])
    engine.add(**flows([[], [0]], [0, 1]))
    with pytest.raises(RFabricError, match="flow 2 has bytes to send"):
        engine.reroute([1, 0, 2], [0, 0, 1, 1], [1])  # who sends nothing may have no path


def test_a_late_batch_may_not_wait_for_the_future(core):
    engine = Engine([8.0], core=core)
    engine.add(**flows([[0]], [1]))
    with pytest.raises(RFabricError, match=r"after\[0\] is 3: there are 3 flows"):
        engine.add(**flows([[0], [0]], [1, 1], after=[[3], []]))


def test_an_empty_engine_is_at_rest(core):
    engine = Engine([], core=core)
    engine.add(**flows([], []))
    assert not len(engine.run()) and engine.now == 0 and not len(engine.finish_times())


# --- after close, from threads, and parts of a flow -----------------------------------------------

CALLS = {
    "now": lambda engine: engine.now,
    "add": lambda engine: engine.add(**flows([[0]], [1e9])),
    "watch": lambda engine: engine.watch([0]),
    "run": lambda engine: engine.run(),
    "set_capacity": lambda engine: engine.set_capacity([0], [1e9]),
    "reroute": lambda engine: engine.reroute([0], [0, 1], [0]),
    "active": lambda engine: engine.active(),
    "remaining": lambda engine: engine.remaining([0]),
    "start_times": lambda engine: engine.start_times(),
    "finish_times": lambda engine: engine.finish_times(),
    "link_bytes": lambda engine: engine.link_bytes(),
    "busy_time": lambda engine: engine.busy_time(),
    "utilisation": lambda engine: engine.utilisation([0.0, 1.0]),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_engine_says_so(core, call):
    engine = Engine([10 * G], core=core)
    engine.add(**flows([[0]], [1e9]))
    engine.close()
    engine.close()
    with pytest.raises(RFabricError, match="closed: make another"):
        CALLS[call](engine)


def test_an_engine_closed_by_another_thread_while_it_runs_says_so():
    hosts = 64
    ring = [[i, (i + 1) % hosts] for i in range(hosts)]
    for _ in range(5):
        engine, said = Engine([G] * hosts, core="compiled"), []

        def work(engine=engine, said=said):
            try:
                engine.add(**flows(ring * 20, list(1e6 * np.arange(20 * hosts))))
                while True:
                    engine.run()
                    engine.finish_times(), engine.active()
            except RFabricError as error:
                said.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        engine.close()
        for thread in threads:
            thread.join()
        assert said == ["this engine was closed: make another"] * 2


def test_a_weight_below_one_would_beat_the_line(core):
    engine = Engine([10 * G], core=core)
    with pytest.raises(RFabricError, match=r"weight\[1\] is 0.5: a row stands for at least one"):
        engine.add(**flows([[0], [0]], [1e9, 1e9], weight=[1, 0.5]))
    for part in (0.0, 1.5):
        with pytest.raises(RFabricError, match=r"part\[0\] is .* more than 0 and at most 1"):
            engine.add(**flows([[0]], [1e9], part=[part]))


def test_a_row_of_several_parts_is_as_many_rows_of_a_part(core):
    apart, together = (Engine([8 * G], core=core) for _ in range(2))
    apart.add(**flows([[0]] * 4, [1e9] * 4, part=[0.5, 0.5, 0.5, 0.25]))
    together.add(**flows([[0]] * 2, [1e9] * 2, weight=[3.0, 1.0], part=[0.5, 0.25]))
    apart.run(), together.run()
    assert together.finish_times() == pytest.approx(apart.finish_times()[2:])
    assert together.link_bytes() == pytest.approx(apart.link_bytes())


def test_a_part_sends_its_share_of_the_bytes_at_the_line_rate(core):
    engine = Engine([8 * G, 8 * G], core=core)
    engine.add(**flows([[0], [1]], [1e9, 1e9], part=[0.25, 0.75]))
    engine.run()
    assert engine.finish_times() == pytest.approx([0.25, 0.75])
    assert engine.link_bytes() == pytest.approx([0.25e9, 0.75e9])

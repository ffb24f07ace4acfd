"""Days of jobs that share nodes, worked out by hand: who is done when, what is billed, and limits
that are just met.
"""

import math
import os

import pytest

from rfabric.errors import RFabricError
from rfabric.rl import read_recipe, trace_of
from rfabric.schedulers.weave import (
    ExecutionGroup,
    Job,
    Placement,
    Pools,
    Profile,
    Tail,
    meta_iterations,
    migrated_period,
    read_jobs,
    run,
    violations,
)
from rfabric.schedulers.weave.cluster import Stay, actual
from rfabric.schedulers.weave.jobs import FOOTPRINTS, LONGEST_S, MOST_NODES, footprint
from rfabric.schedulers.weave.optimum import GAP, _may_train, _pins, _silent, cheapest, optimum
from rfabric.schedulers.weave.traffic import is_shared, placed, profile_of, traffic_of
from rfabric.schedulers.weave.turns import NODES_OF
from rfabric.trace import PhaseKey

POOLS = Pools()
HOURLY = POOLS.roll_price + POOLS.train_price  # of one node each


def job(name, roll, train, slo=2.0, arrival=0.0, iterations=1.0, drift=(1.0, 1.0), **own):
    return Job(name, Profile(roll, train, **own), slo, arrival, iterations, drift)


def together(job, groups, pools, random):
    """A policy: all jobs on the first node of one group."""
    return Placement(0, (0,), 0) if groups else None


# --- days -----------------------------------------------------------------------------------------


def test_a_job_that_comes_later_slows_who_is_there_until_he_is_done():
    """Alone a takes 200 s a round: five by 1000 s. With b, which generates for 300 s on the same
    node, a round takes 400 s: a's other five until 3000 s. b goes on alone at its own 400 s.
    """
    a = job("a", 100, 80, iterations=10, sync=20)
    b = job("b", 300, 100, arrival=1000, iterations=7)
    bill = run([b, a], together)
    first, second = bill.stays
    assert (first.job, first.end, first.alone) == (a, pytest.approx(3000), pytest.approx(2000))
    assert (second.job, second.end, second.alone) == (b, pytest.approx(3800), pytest.approx(2800))
    assert (first.slowdown, second.slowdown) == (pytest.approx(1.5), pytest.approx(1.0))
    assert bill.hours == pytest.approx(3800 / 3600)
    assert bill.dollars == pytest.approx(HOURLY * bill.hours)
    assert bill.dollars_per_hour == pytest.approx(HOURLY)
    assert bill.busy["roll"] == pytest.approx((10 * 100 + 7 * 300, 3800))
    assert bill.busy["train"] == pytest.approx((10 * 100 + 7 * 100, 3800))
    assert bill.idle("train") == pytest.approx(1 - 1700 / 3800)
    assert (bill.peak_roll, bill.peak_train, bill.sizes) == (1, 1, {2: 1})
    assert bill.kinds == {"new group": 0.5, "direct packing": 0.5}


def test_who_lacks_less_than_a_billionth_of_its_work_is_done_with_the_others():
    ends = [
        [stay.end for stay in run([job("a", 100, 100, iterations=100), longer], together).stays]
        for longer in (job("b", 100, 100, iterations=100 * (1 + more)) for more in (5e-10, 5e-9))
    ]
    assert ends[0][0] == ends[0][1] and ends[1][0] < ends[1][1]


def test_a_job_that_stays_as_long_as_alone_leaves_work_undone():
    a = job("a", 100, 80, iterations=10, sync=20)
    b = job("b", 300, 100, arrival=1000, iterations=7)
    ends = {stay.job.name: stay.end for stay in run([a, b], together, stay="trace").stays}
    assert ends == {"a": pytest.approx(2000), "b": pytest.approx(3800)}


@pytest.mark.parametrize(
    ("stay", "slo", "seconds"),
    [
        ("trace", 1.5, 400),
        ("late", 1.5, 200 * 2 + 200),  # a is beyond its SLO: its 200 s are billed twice
        ("late", 2.0, 400),  # twice its own seconds are what it allows
        ("slowest", 2.0, 200 * 2 + 200),
    ],
)
def test_an_hour_is_billed_as_often_as_the_slowest_job_is_slower(stay, slo, seconds):
    """A round of both takes 400 s: twice what a takes alone, and what b does."""
    bill = run([job("a", 100, 90, slo, sync=10), job("b", 300, 100)], together, stay=stay)
    assert bill.dollars == pytest.approx(HOURLY * seconds / 3600)


def test_nodes_at_the_peak_are_those_of_jobs_there_at_once():
    a, b = job("a", 100, 100, roll_nodes=3), job("b", 100, 100, arrival=150, train_nodes=2)
    bill = run([a, b], "solo")
    assert (bill.peak_roll, bill.peak_train, bill.sizes) == (4, 3, {1: 2})
    assert bill.busy["roll"] == pytest.approx((3 * 100 + 100, 3 * 200 + 200))
    assert bill.busy["train"] == pytest.approx((100 + 2 * 100, 200 + 2 * 200))
    late = run([a, job("b", 100, 100, arrival=201, train_nodes=2)], "solo")
    assert (late.peak_roll, late.peak_train) == (3, 2)


def test_pools_that_are_just_taken_are_enough():
    two = [job(n, 100, 100, roll_nodes=2, train_nodes=3) for n in "ab"]
    assert run(two, "solo", Pools(roll_nodes=4, train_nodes=6)).peak_roll == 4
    for pools, more in (
        (Pools(roll_nodes=3, train_nodes=6), "job b: needs 1 more rollout nodes, all 3 of"),
        (Pools(roll_nodes=4, train_nodes=4), "job b: needs 2 more training nodes, all 4 of"),
    ):
        with pytest.raises(RFabricError, match=more):
            run(two, "solo", pools)


def test_a_drift_goes_evenly_from_begin_to_end():
    one = job("a", 1000, 100, iterations=10, drift=(0.8, 0.4))
    assert [actual(one, left) for left in (10, 5, 0)] == pytest.approx([800, 600, 400])


def test_the_optimum_alone_moves_jobs_between_arrivals():
    """Two rollouts of 1000 s each are too long for one node: 2000 s are more than 1.2 x 1500 s.
    Half way down to 500 s they are not: 2 x 750 s are 1.2 x (750 + 500) s.
    """
    falling = [job(n, 1000, 500, 1.2, iterations=40, drift=(1.0, 0.5)) for n in "ab"]
    moved, left = (run(falling, "optimum", regroup=every) for every in (3600.0, 0.0))
    second = moved.busy["roll"][1] - moved.busy["train"][1]  # seconds that a second node is held
    half = 20 * (875 + 500)  # of 20 iterations whose rollouts take 1000 to 750 s
    assert half <= second <= half + 3600
    assert left.busy["roll"][1] == pytest.approx(2 * left.busy["train"][1])
    assert moved.dollars < left.dollars
    for policy in ("solo", "weave"):
        assert run(falling, policy, regroup=3600.0) == run(falling, policy)


def test_nodes_that_regrouping_adds_count_at_the_peak_and_must_be_there():
    """The other way round: both fit one node while their rollouts take 750 s at most."""
    rising = [job(n, 1000, 500, 1.2, iterations=40, drift=(0.5, 1.0)) for n in "ab"]
    assert run(rising, "optimum").peak_roll == 1
    moved = run(rising, "optimum", regroup=3600.0)
    assert (moved.peak_roll, moved.peak_train) == (2, 1)
    with pytest.raises(RFabricError, match="regrouping at .* s: needs 1 more rollout nodes, all 1"):
        run(rising, "optimum", Pools(roll_nodes=1), regroup=3600.0)


def test_sets_and_pins_that_cannot_be_in_time_are_not_tried():
    """What the optimum leaves out before it packs: on half of its training nodes a job is late,
    beside a patient one the other must be in time too, and 200 s of rollouts fit no 150 s.
    """
    tight = job("a", 100, 50, 1.0, train_nodes=2)
    assert _may_train((tight,), 2, POOLS) and not _may_train((tight,), 1, POOLS)
    short, long = job("b", 10, 10, 9.0), job("c", 151, 10, 9.0)
    assert _may_train((tight, short), 2, POOLS) and not _may_train((tight, long), 2, POOLS)
    two = (job("d", 100, 9), job("e", 100, 9))

    def pins(count, longest):
        return list(_pins(two, count, (), [0.0] * count, [0.0] * count, longest, math.inf))

    assert pins(1, 150) == [] and pins(1, 200) == [((0,), (0,))]
    assert pins(2, 150) == [((0,), (1,))]


def test_the_bound_bills_each_moment_for_the_jobs_there():
    """Two like jobs share a node each while both are there; a third is alone, hours later."""
    there = [
        job("a", 1800, 1800, iterations=4),
        job("b", 1800, 1800, arrival=3600, iterations=1),
        job("c", 1800, 1800, arrival=36000, iterations=2, roll_nodes=2),
    ]
    assert optimum(there) == pytest.approx(4 * HOURLY + 2 * (HOURLY + POOLS.roll_price))


def test_the_bound_holds_for_who_trains_on_more_nodes_than_alone():
    """On the two training nodes of the other a trains in 50 s: a round of both takes 60 s, and both
    are done by 600 s. Nobody is done sooner than at 600 s and 300 s.
    """
    a = job("a", 10, 100, iterations=10)
    b = job("b", 20, 10, iterations=10, train_nodes=2)
    wide = POOLS.price(1, 2)
    bill = run([b, a])
    assert [stay.end for stay in bill.stays] == pytest.approx([600, 600])
    assert bill.dollars == pytest.approx(600 * wide / 3600)
    assert optimum([a, b]) == pytest.approx((300 * wide + 300 * HOURLY) / 3600)
    assert optimum([]) == 0


def test_the_bound_holds_in_whatever_order_jobs_take_their_turns():
    """a on one node, b and d on both, c on the other: a, b, d, c take 9 s a round, a, b, c, d 12 s,
    as d then waits for c and a for d. They allow 9.3 s.
    """
    a, b, c, d = (
        job(name, 3, train, 3.0, iterations=1000 / (3 + train), roll_nodes=nodes)
        for name, train, nodes in (("a", 0.1, 1), ("b", 0.1, 2), ("c", 0.1, 1), ("d", 0.2, 2))
    )
    soon = ExecutionGroup((a, b, d, c), ((0,), (0, 1), (0, 1), (1,)), 2, 1)
    late = ExecutionGroup((a, b, c, d), ((0,), (0, 1), (1,), (0, 1)), 2, 1)
    assert (soon.period, late.period) == (pytest.approx(9), pytest.approx(12))
    assert not violations(soon, POOLS) and violations(late, POOLS)
    assert optimum([d, c, b, a]) == pytest.approx(soon.price(POOLS) * 1000 / 3600, rel=GAP)
    assert cheapest([d, c, b, a])[0] > soon.price(POOLS)  # by turns in the order of their seconds


def test_an_slo_is_kept_to_a_millionth():
    one = job("a", 100, 100, arrival=50)
    for slower, met in ((2.0, True), (2 * (1 + 5e-7), True), (2 * (1 + 2e-6), False)):
        assert Stay(one, "new group", 50 + 200 * slower, 200.0).met is met


# --- limits that are just met ---------------------------------------------------------------------


def test_a_group_in_time_to_the_second_breaks_nothing():
    a, b = (job(n, 100, 100, slo=1.0) for n in "ab")
    assert not violations(ExecutionGroup.alone(a).join(b, (0,)), POOLS)
    late = ExecutionGroup.alone(a).join(job("b", 101, 100, slo=1.0), (0,))
    assert violations(late, POOLS) == ["job a: an iteration takes 201 s, its slo allows 200 s"]


def test_memory_in_excess_is_told_in_gigabytes():
    pools = Pools(roll_memory=7e11, train_memory=5e11)
    a, b = (job(n, 10, 10, slo=9.0, roll_bytes=4e11, train_bytes=3e11) for n in "ab")
    assert violations(ExecutionGroup.alone(a).join(b, (0,)), pools) == [
        "rollout node 0: 800 GB pinned, it holds 700 GB",
        "training: 600 GB pinned, a node holds 500 GB",
    ]


def test_figures_at_their_limits_are_taken():
    most = job("a", LONGEST_S, LONGEST_S, 1.0, sync=LONGEST_S, roll_nodes=MOST_NODES, train_nodes=1)
    assert most.seconds == 3 * LONGEST_S == most.longest
    with pytest.raises(RFabricError, match="job a: roll_nodes of 10001 must be a whole number"):
        job("a", 1, 1, roll_nodes=MOST_NODES + 1)
    with pytest.raises(RFabricError, match="job a: drift of 1.5 of its profile must be above 0"):
        job("a", 1, 1, drift=(1.0, 1.5))
    small = Pools(gpus_per_node=1, roll_nodes=1, train_nodes=1, roll_memory=3e9, train_memory=3e9)
    assert Pools(roll_dollars=0.01, train_memory=0.5).price(1, 0) == 8 * 0.01
    assert small.price(2, 3) == 2 * small.roll_dollars + 3 * small.train_dollars
    one = job("a", 1, 1, roll_bytes=2e9, train_bytes=2e9)
    assert small.admit(one) is one
    for own in ({"roll_bytes": 3e9}, {"train_bytes": 3e9}, {"roll_nodes": 2}, {"train_nodes": 2}):
        with pytest.raises(RFabricError, match="job a"):
            small.admit(job("a", 1, 1, **own))
    with pytest.raises(RFabricError, match="training pool: 10001 nodes of 8 GPUs hold no job"):
        Pools(train_nodes=MOST_NODES + 1)


@pytest.mark.parametrize(
    ("parameters", "size"),
    [(1e9, "7B"), (10.6e9, "7B"), (10.7e9, "14B"), (48.1e9, "32B"), (48.2e9, "70B")],
)
def test_a_model_is_as_heavy_as_the_measured_one_nearest_as_a_ratio(parameters, size):
    """Between 7.6 and 14.8 G lie 10.61 G, as many times the one as the other is times it."""
    assert footprint(parameters) is FOOTPRINTS[size]


def test_every_column_of_a_file_has_its_unit(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(
        "name,roll_s,train_s,sync_s,roll_nodes,train_nodes,roll_memory_gb,train_memory_gb,"
        "roll_switch_s,train_switch_s,slo,arrival_s,iterations\na,2,3,4,5,6,7,8,9,10,11,12,13\n"
    )
    profile = Profile(2.0, 3.0, 4.0, 5, 6, 7e9, 8e9, 9.0, 10.0)
    assert read_jobs(path) == [Job("a", profile, 11.0, 12.0, 13.0)]


def test_a_file_that_lists_jobs_is_one_of_jobs_wherever_it_stands(tmp_path):
    mine = tmp_path / "mine.yaml"
    for text, shared in (("jobs: [grpo-64]\n", True), ("steps: 2\n", False)):
        mine.write_text(text)
        assert is_shared(str(mine)) is shared
    assert is_shared("weave-2jobs") and not is_shared("grpo-64")


def test_a_file_of_jobs_names_the_row(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("name,roll_s,train_s,roll_nodes,arrival_s\nb,2,3,2,9\na,1,2,,4\n")
    assert read_jobs(path) == [
        job("a", 1.0, 2.0, arrival=4.0),
        job("b", 2.0, 3.0, arrival=9.0, roll_nodes=2),
    ]
    path.write_text("name,roll_s,train_s\na,1,2\n,2,3\n")
    with pytest.raises(RFabricError, match="row 2 has no name"):
        read_jobs(path)


# --- what groups do -------------------------------------------------------------------------------


def test_who_shares_no_node_has_the_period_of_its_own_tail():
    """One node each: no tail is moved, and training in turn takes less than either."""
    apart = ExecutionGroup.alone(job("a", 100, 10)).join(job("b", 60, 10), (1,))
    assert migrated_period(apart, {"a": Tail(0.5, 2.0)}) == apart.period == 110


def test_a_tail_moved_aside_leaves_its_node_sooner_and_is_there_later():
    pair = ExecutionGroup.alone(job("a", 100, 10)).join(job("b", 60, 10), (0,))
    first, second = meta_iterations(pair, 1, {"a": Tail(0.5, 1.25)})
    assert (first.roll, first.rolled, first.train, first.trained) == (0, 125, 125, 135)
    assert (second.roll, second.rolled, second.train, second.trained) == (50, 110, 135, 145)


def test_what_a_solver_writes_does_not_reach_stdout(capfd):
    with _silent():
        os.write(1, b"a solver's own line")
        os.write(2, b"a warning")
    os.write(1, b"a result")
    assert capfd.readouterr() == ("a result", "a warning")


def test_jobs_on_nodes_of_their_own_hold_all_that_is_paid_for():
    w = read_recipe("grpo-64")
    two = [Job(name, profile_of(w)) for name in "ab"]
    loads = {"a": w, "b": w}
    apart = traffic_of(placed(two, "solo"), loads).provenance
    shared = traffic_of(placed(two), loads).provenance
    nodes = two[0].profile.roll_nodes, two[0].profile.train_nodes
    usd = [8 * count * gpu.usd_per_hour for count, gpu in zip(nodes, _gpus(w), strict=True)]
    watts = [8 * count * gpu.power_w for count, gpu in zip(nodes, _gpus(w), strict=True)]
    for said, times in ((apart, 2), (shared, 1)):
        assert said["gpus_usd_per_hour"] == pytest.approx(times * sum(usd))
        assert said["gpus_watts"] == pytest.approx(times * sum(watts))
        held = {phase: usd[pool == "train"] for phase, pool in NODES_OF.items()}
        assert said["held"] == {"a": pytest.approx(held), "b": pytest.approx(held)}


def test_shared_turns_have_the_windows_of_their_phases_and_one_switch_a_pool():
    """Step n of the first of two jobs is turn 2 n, of the second 2 n + 1; weights leave from nodes
    that training has just had.
    """
    w = read_recipe("grpo-64", ["steps=2", "generation.batch=32"])
    two = [Job(name, profile_of(w)) for name in "ab"]
    alone = trace_of(w, 3)
    shared = traffic_of(placed(two), {"a": w, "b": w}, traces={"a": alone, "b": alone})
    assert shared.windows == {
        PhaseKey(2 * key.step + turn, key.phase): seconds
        for key, seconds in alone.windows.items()
        for turn in (0, 1)
    }
    assert len({seconds for key, seconds in alone.windows.items() if not key.step}) > 1
    own = two[0].profile
    waits = {"generation": own.roll_switch, "training": own.train_switch, "weight_sync": 0.0}
    for name in "ab":
        label = shared.labels.index(f"{name} switch")
        rows = [row for row in range(len(shared)) if shared.label[row] == label]
        assert len(rows) == 2 * len(waits)
        for row in rows:
            assert shared.gap[row] == waits[shared.phases[shared.phase[row]]]


def _gpus(w):
    return w.generation_gpu, w.gpu


def test_a_profile_is_of_whole_nodes():
    w = read_recipe("grpo-64", ["cluster.generation_gpus=12", "cluster.training_gpus=32"])
    assert (profile_of(w).roll_nodes, profile_of(w).train_nodes) == (2, 4)

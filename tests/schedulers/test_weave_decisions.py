"""Where a job goes and what groups take, one decision at a time: numbers by hand, edges met
exactly.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rfabric.errors import RFabricError
from rfabric.rl import read_recipe
from rfabric.schedulers.weave import (
    ExecutionGroup,
    Job,
    Placement,
    Pools,
    Profile,
    Tail,
    migrated_period,
    policy_of,
    read_jobs,
    violations,
)
from rfabric.schedulers.weave.optimum import cheapest, feasible, packed, pinnings
from rfabric.schedulers.weave.policies import fits, idle_share, keeps, placements, remembers, trains
from rfabric.schedulers.weave.traffic import _hosts, hardware_of
from rfabric.schedulers.weave.turns import SharedJob, _copy
from rfabric.trace import TraceBuilder

POOLS = Pools()
RANDOM = np.random.default_rng(0)


def job(name, roll, train, slo=2.0, **own):
    return Job(name, Profile(float(roll), float(train), **own), slo)


def pair(a, b, nodes=(0,)):
    return ExecutionGroup.alone(a).join(b, nodes)


# --- what a group takes ---------------------------------------------------------------------------


def test_loads_of_a_group_by_hand():
    a = job("a", 100, 40, roll_switch=3, train_switch=5, sync=4, roll_bytes=1e11, train_bytes=2e11)
    b = job(
        "b", 30, 60, roll_switch=2, train_switch=1, roll_nodes=2, roll_bytes=3e11, train_bytes=4e11
    )
    group = pair(a, b, (0, 1))
    assert group.residents == (2, 1)
    assert group.roll_loads == (130, 30) and group.roll_bytes == (4e11, 3e11)
    assert (group.train_load, group.train_switches, group.train_bytes) == (104, 6, 6e11)
    assert group.longest_alone == 144 and group.longest == min(2 * 144, 2 * 90)
    assert group.order == ((103, 49), (32, 61))
    assert (group.cycle, group.load) == (152, 135) and not group.plain
    assert ExecutionGroup.alone(a).order == ((100, 44),)


def test_idle_time_is_shared_by_all_nodes():
    """Period 200 s; two rollout nodes and one training node: 100 + 100 + 120 of 600 s are used."""
    group = pair(job("a", 100, 100), job("b", 100, 20), (1,))
    assert group.period == 200 and idle_share(group) == pytest.approx(1 - 320 / 600)
    wide = pair(job("a", 100, 100, train_nodes=2), job("b", 100, 20, train_nodes=2), (1,))
    assert idle_share(wide) == pytest.approx(1 - (200 + 2 * 120) / 800)


def test_tails_shorten_loads_and_stretch_turns():
    group = pair(job("a", 100, 10), job("b", 60, 10))
    assert migrated_period(group, {}) == 160
    assert migrated_period(group, {"a": Tail(0.5, 1.2)}) == pytest.approx(max(130, 50 + 60))
    assert migrated_period(group, {"a": Tail(0.5, 1.0)}) == pytest.approx(110)
    both = {"a": Tail(0.1, 1.0), "b": Tail(0.1, 1.0)}
    assert migrated_period(pair(job("a", 10, 90), job("b", 10, 60)), both) == 150
    assert migrated_period(ExecutionGroup.alone(job("a", 100, 10)), {"a": Tail(0.5, 2)}) == 110


def test_memory_that_is_just_full_is_too_full():
    full, half = (Pools(roll_memory=m, train_memory=m) for m in (8e11, 8.1e11))
    group = pair(job("a", 9, 9, roll_bytes=4e11), job("b", 9, 9, roll_bytes=4e11))
    assert len(violations(group, full)) == 1 and not violations(group, half)
    group = pair(job("a", 9, 9, train_bytes=4e11), job("b", 9, 9, train_bytes=4e11), (1,))
    assert len(violations(group, full)) == 1 and not violations(group, half)
    one, other = (job(n, 9, 9, roll_bytes=4e11, train_bytes=1e11) for n in "ab")
    alone = ExecutionGroup.alone(one)
    assert not remembers(alone, other, (0,), full) and remembers(alone, other, (0,), half)
    assert remembers(alone, other, (1,), full)  # a node of its own
    thirsty = replace(other, profile=replace(other.profile, roll_bytes=0.0, train_bytes=7e11))
    assert not fits(alone, thirsty, (0,), full) and fits(alone, thirsty, (0,), half)
    assert not trains(alone, thirsty, full) and trains(alone, thirsty, half)


def test_the_optimum_has_no_group_whose_memory_is_just_full():
    """Two jobs of half a memory each, of training or of rollouts: together only in a larger one."""
    rolls = [job(n, 9, 9, slo=4.0, roll_bytes=4e11) for n in "ab"]
    trains_on = [job(n, 9, 9, slo=4.0, train_bytes=4e11) for n in "ab"]
    for memory, nodes, groups in ((8e11, 2, {1}), (8.1e11, 1, {1, 2})):
        pools = Pools(roll_memory=memory, train_memory=memory)
        assert packed(tuple(rolls), 1, pools).roll_nodes == nodes
        assert {len(group.jobs) for group in feasible(trains_on, pools)} == groups
        assert any(pinnings(tuple(trains_on), 1, pools)) == (2 in groups)


def test_jobs_take_turns_on_the_nodes_they_are_pinned_to_and_all_train_on_all():
    a = job("a", 100, 40, roll_switch=3, train_switch=5, train_nodes=2)
    b = job("b", 30, 60, roll_switch=2, train_switch=1, roll_nodes=2, train_nodes=2)
    group = pair(a, b, (1, 0))
    trace = TraceBuilder(["h1"]).build()
    first, second = (SharedJob(j, trace, np.zeros(0), group, i, i, 2) for i, j in enumerate((a, b)))
    assert first.nodes("roll") == [("roll", 0)]
    assert second.nodes("roll") == [("roll", 1), ("roll", 0)]
    assert first.nodes("train") == second.nodes("train") == [("train", 0), ("train", 1)]
    for one, other in ((first, a), (second, b)):
        profile = other.profile
        assert one.switch("roll") == profile.roll_switch
        assert one.switch("train") == profile.train_switch


def test_every_column_of_a_file_of_jobs_is_read_in_its_unit(tmp_path):
    own = {
        "name": "a", "roll_s": 100, "train_s": 40, "sync_s": 4, "roll_nodes": 3, "train_nodes": 2,
        "roll_memory_gb": 300, "train_memory_gb": 400, "roll_switch_s": 6, "train_switch_s": 7,
        "slo": 1.5, "arrival_s": 90, "iterations": 11,
    }  # fmt: skip
    file = tmp_path / "jobs.csv"
    file.write_text("\n".join(",".join(map(str, row)) for row in (own, own.values())) + "\n")
    (read,) = read_jobs(file)
    about = {"roll_switch": 6, "train_switch": 7, "roll_bytes": 3e11, "train_bytes": 4e11}
    made = job("a", 100, 40, 1.5, sync=4, roll_nodes=3, train_nodes=2, **about)
    assert read == replace(made, arrival=90.0, iterations=11.0)


def test_a_loop_stands_on_the_hosts_of_its_job_turn_by_turn():
    """Two turns, one of one flow and one of two, on hosts 3, 2, 1 and 0."""
    names = ["h1", "h2", "h3", "h4"]
    own = TraceBuilder(names)
    turns = [([0], [1], [5e6]), ([2, 3], [1, 0], [6e6, 7e6])]
    rows = own.loop(turns, 9, [0.25, 0.5], phase="training", label=["out", "back"])
    one, out = job("a", 10, 10), TraceBuilder(names)
    seat = SharedJob(one, own.build(), np.arange(4)[::-1], ExecutionGroup.alone(one), 0, 0, 1)
    _copy(out, seat, rows[0], {"phase": "training"})
    made = out.build()
    assert sorted(seat.done) == rows and made.loops == seat.trace.loops
    labels = [made.labels[number] for number in made.label]
    flows = zip(made.src, made.dst, made.size, made.turn, labels, strict=True)
    assert sorted(flows) == [
        (0, 3, 7e6, 1, "a back"), (1, 2, 6e6, 1, "a back"), (3, 2, 5e6, 0, "a out"),
    ]  # fmt: skip
    for row, copy in seat.done.items():
        assert made.size[copy] == seat.trace.size[row]


def test_a_job_has_the_hosts_of_its_groups_nodes_in_the_order_it_is_pinned():
    """Training nodes 3 and 4, rollout nodes 6 and 5 of 8 hosts each; it generates on 12 GPUs."""
    a = job("a", 9, 9, roll_nodes=2, train_nodes=2)
    group = ExecutionGroup((a,), ((1, 0),), 2, 2)
    w = SimpleNamespace(cluster=SimpleNamespace(training_gpus=16, generation_gpus=12))
    hosts = _hosts(group, 0, 3, 5, 8, w).tolist()
    assert hosts == [*range(24, 40), *range(48, 56), *range(40, 44)]
    for pool, gpus in (("training", {"training_gpus": 17}), ("rollout", {"generation_gpus": 17})):
        wide = SimpleNamespace(cluster=SimpleNamespace(**vars(w.cluster) | gpus))
        with pytest.raises(RFabricError, match=f"has 17 {pool} GPUs, its nodes have 16"):
            _hosts(group, 0, 3, 5, 8, wide)


def test_jobs_whose_training_takes_as_many_nodes_are_made_for_the_same():
    """12 and 16 GPUs are two nodes of 8, 17 are three."""
    w = read_recipe("grpo-64")
    made_for = [
        hardware_of(
            SimpleNamespace(
                cluster=SimpleNamespace(training_gpus=gpus),
                gpus_per_server=8,
                gpu=w.gpu,
                generation_gpu=w.generation_gpu,
                nic_bps=w.nic_bps,
            )  # fmt: skip
        )
        for gpus in (12, 16, 17)
    ]
    assert made_for[0] == made_for[1] != made_for[2]


# --- policies -------------------------------------------------------------------------------------


def test_places_in_a_group_come_idlest_first_then_with_new_nodes():
    group = pair(job("a", 100, 9), job("b", 20, 9), (1,)).join(job("c", 50, 9), (2,))
    assert list(placements(group, job("d", 9, 9))) == [((1,), 0), ((2,), 0), ((0,), 0), ((3,), 1)]
    wide = list(placements(group, job("d", 9, 9, roll_nodes=2)))
    assert wide == [((1, 2), 0), ((2, 0), 0), ((1, 3), 1), ((3, 4), 2)]
    widest = list(placements(group, job("d", 9, 9, roll_nodes=5)))
    assert widest == [
        ((1, 2, 0, 3, 4), 2),
        ((1, 2, 3, 4, 5), 3),
        ((1, 3, 4, 5, 6), 4),
        ((3, 4, 5, 6, 7), 5),
    ]


class Narrow(ExecutionGroup):
    """May grow by one rollout node."""

    room = 1


def test_a_group_grows_by_as_many_nodes_as_are_free():
    group = ExecutionGroup.alone(job("a", 50, 50))
    narrow = Narrow(group.jobs, group.pins, group.roll_nodes, group.train_nodes)
    two, three = (job("b", 50, 50, roll_nodes=count) for count in (2, 3))
    assert list(placements(narrow, two)) == [((0, 1), 1)]
    assert list(placements(group, two)) == [((0, 1), 1), ((1, 2), 2)]
    assert not list(placements(narrow, three)) and len(list(placements(group, three))) == 2
    gavel = policy_of("gavel")
    assert gavel(two, [narrow], POOLS, RANDOM) == Placement(0, (0, 1), 1)
    assert gavel(three, [narrow], POOLS, RANDOM) is None


@pytest.mark.parametrize(
    ("roll", "train", "slo", "may"),
    [
        (10, 100, 2.0, True),  # trains 200 s a round, in 220 s
        (10, 121, 2.0, False),  # 221 s, in 220 s: a's patience
        (119, 100, 2.0, True),
        (121, 100, 1.0, False),  # its own 221 s are more than a's 220 s
        (10, 20, 2.0, False),  # a's 110 s are more than its own 60 s
    ],
)
def test_training_nodes_have_time_for_one_more_or_not(roll, train, slo, may):
    group = ExecutionGroup.alone(job("a", 10, 100))
    assert trains(group, job("b", roll, train, slo), POOLS) is may


def test_warm_switches_count_where_training_is_shared():
    group = ExecutionGroup.alone(job("a", 10, 100, train_switch=6))
    assert trains(group, job("b", 10, 100, train_switch=14), POOLS)
    assert not trains(group, job("b", 10, 100, train_switch=15), POOLS)


def test_a_jobs_own_switch_comes_on_top_of_its_own_phases():
    """190 s alone, of which it allows 1.08 times: 205.2 s."""
    group = ExecutionGroup.alone(job("a", 10, 10, slo=20.0))
    for seconds, may in ((15, True), (16, False)):
        assert trains(group, job("b", 100, 90, 1.08, train_switch=seconds), POOLS) is may


def test_an_slo_that_is_just_met_is_met():
    """Two jobs of 100 + 100 s on one node: a round of 200 s, which is what either takes alone."""
    a, b = (job(n, 100, 100, slo=1.0) for n in "ab")
    group = ExecutionGroup.alone(a)
    assert keeps(group, b, (0,)) and trains(group, b, POOLS)
    assert policy_of("weave")(b, [group], POOLS, RANDOM) == Placement(0, (0,), 0)
    assert len(cheapest([a, b])[1]) == 1
    late = job("c", 100.1, 99.9, slo=1.0)
    assert not keeps(group, late, (0,)) and keeps(group, late, (1,))
    assert [g.roll_nodes for g in cheapest([a, late])[1]] == [2]


def test_of_equally_cheap_places_the_first_is_taken_and_a_node_only_where_none_is_free():
    a, b = (ExecutionGroup.alone(job(n, 50, 10)) for n in "ab")
    assert policy_of("weave")(job("c", 40, 10), [a, b], POOLS, RANDOM).group == 0
    tight = job("c", 50, 10, slo=1.1)  # 100 s of rollout on one node are too many for 66 s
    assert policy_of("weave")(tight, [a], POOLS, RANDOM) == Placement(0, (1,), 1)
    scarce = replace(POOLS, roll_dollars=9.0)
    assert scarce.roll_price > scarce.train_price
    assert policy_of("weave")(tight, [a], scarce, RANDOM) == Placement(0, (1,), 1)
    # two new nodes cost as much as a group of its own without the training node: still less
    two = job("d", 50, 10, slo=1.1, roll_nodes=2)
    assert policy_of("weave")(two, [a], POOLS, RANDOM) == Placement(0, (1, 2), 2)


@pytest.mark.parametrize("name", ["weave", "gavel", "most-idle"])
@pytest.mark.parametrize("cent", [0.001, 0.01, 100.0])
def test_in_another_currency_all_jobs_go_where_they_went(name, cent):
    groups = [ExecutionGroup.alone(job("a", 50, 50)), pair(job("b", 90, 9), job("c", 9, 9), (1,))]
    other = replace(
        POOLS, roll_dollars=cent * POOLS.roll_dollars, train_dollars=cent * POOLS.train_dollars
    )
    for some in (
        job("d", 50, 50), job("d", 51, 50, slo=1.1), job("d", 50, 40, roll_nodes=2),
        job("d", 9, 9, slo=3.0, roll_nodes=3), job("d", 60, 60, slo=1.0),
    ):  # fmt: skip
        before, after = (policy_of(name)(some, groups, p, RANDOM) for p in (POOLS, other))
        assert before == after


def test_gavel_takes_jobs_whose_turns_one_after_the_other_are_in_time():
    a = ExecutionGroup.alone(job("a", 50, 50))
    gavel = policy_of("gavel")
    assert gavel(job("b", 50, 50), [a], POOLS, RANDOM) == Placement(0, (0,), 0)
    assert gavel(job("b", 51, 50), [a], POOLS, RANDOM) is None
    assert gavel(job("b", 50, 50, roll_nodes=2), [a], POOLS, RANDOM) == Placement(0, (0, 1), 1)
    assert gavel(job("b", 10, 10, roll_bytes=2e12), [a], POOLS, RANDOM) is None


def test_most_idle_goes_to_the_idlest_group_and_its_idlest_node():
    full = pair(job("a", 100, 100), job("b", 100, 100))
    idle = pair(job("c", 100, 100), job("d", 30, 30), (1,))
    most_idle = policy_of("most-idle")
    assert most_idle(job("e", 9, 9), [full, idle], POOLS, RANDOM) == Placement(1, (1,), 0)
    assert most_idle(job("e", 9, 9, roll_nodes=3), [full, idle], POOLS, RANDOM) is None


# --- the optimum ----------------------------------------------------------------------------------


def test_ways_to_pin_jobs_are_counted_once():
    """Two jobs of a node each: together or apart; with a third of two nodes, as many as there are
    patterns.
    """
    a, b = job("a", 100, 10), job("b", 60, 10)
    assert [g.pins for g in pinnings((a, b), 1, POOLS)] == [
        ((0,), (0,)),
        ((0,), (0,)),
        ((0,), (1,)),
    ]
    heavy = [replace(j, profile=replace(j.profile, roll_bytes=8e11)) for j in (a, b)]
    assert [g.pins for g in pinnings(tuple(heavy), 1, POOLS)] == [((0,), (1,))]
    full = [replace(j, profile=replace(j.profile, train_bytes=7.5e11)) for j in (a, b)]
    assert not list(pinnings(tuple(full), 1, POOLS))


def test_jobs_are_packed_on_as_few_nodes_as_keep_their_slo():
    a, b = job("a", 100, 10), job("b", 60, 10)
    assert packed((a, b), 1, POOLS).roll_nodes == 2  # 160 s on one node are more than b's 140 s
    assert packed((a, replace(b, slo=2.3)), 1, POOLS).roll_nodes == 1
    assert packed((a, job("c", 10, 40)), 1, POOLS) is None  # its 100 s are fewer than a's 110 s
    names = [{j.name for j in group.jobs} for group in feasible([a, b, job("c", 10, 40)], POOLS)]
    assert names == [{"c"}, {"b", "c"}, {"b"}, {"a", "b"}, {"a"}]


def test_warm_switches_of_training_keep_jobs_apart():
    """Training for 100 s each, in 220 s: 20 s are left for switches, none where a job is alone."""
    for seconds, groups in ((9.0, 1), (11.0, 2)):
        two = [job(n, 10, 100, train_switch=seconds) for n in "ab"]
        assert len(cheapest(two)[1]) == groups
    assert len(cheapest([job("a", 10, 100, slo=1.0, train_switch=50.0)])[1]) == 1


def test_a_price_is_that_of_the_nodes():
    dollars, groups = cheapest([job("a", 100, 100), job("b", 90, 90)])
    assert dollars == pytest.approx(8 * (1.85 + 5.28)) and len(groups) == 1

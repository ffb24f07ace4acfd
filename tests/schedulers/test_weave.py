"""Several jobs on shared nodes: round robin against brute force, Algorithm 1's invariants, days
of arrivals, one trace.
"""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.errors import RFabricError
from rfabric.folders import data_dir
from rfabric.rl import read_recipe, trace_of
from rfabric.rl.phases import step_of
from rfabric.rl.timing import replica_time
from rfabric.schedulers.traffic import read_traffic
from rfabric.schedulers.weave import (
    POLICIES,
    ExecutionGroup,
    Job,
    Pools,
    Profile,
    Tail,
    iteration_seconds,
    meta_iterations,
    migrated_period,
    policy_of,
    read_jobs,
    run,
    violations,
)
from rfabric.schedulers.weave.cluster import STAYS
from rfabric.schedulers.weave.optimum import cheapest, feasible, optimum
from rfabric.schedulers.weave.policies import placements
from rfabric.schedulers.weave.tail import _moved, _rest, tail
from rfabric.schedulers.weave.traffic import placed, profile_of, read_shared, traffic_of
from rfabric.schedulers.weave.turns import NODES_OF
from rfabric.trace import PhaseKey, TraceBuilder

POOLS = Pools()
DOWN = np.random.default_rng(0)


def job(name, roll, train, **rest):
    own = {k: rest.pop(k) for k in list(rest) if k in Profile.__dataclass_fields__}
    return Job(name, Profile(roll, train, **own), **rest)


SECONDS = st.integers(1, 300).map(float)


@st.composite
def jobs(draw, most=6, nodes=2):
    """Up to `most` jobs with any phases, memory, nodes and SLO."""
    count = draw(st.integers(1, most))
    return [
        job(
            f"j{i}",
            draw(SECONDS),
            draw(SECONDS),
            slo=draw(st.floats(1, 2)),
            sync=draw(st.sampled_from([0.0, 5.0])),
            roll_nodes=draw(st.integers(1, nodes)),
            train_nodes=draw(st.integers(1, nodes)),
            roll_bytes=draw(st.sampled_from([1e11, 5e11, 9e11])),
            train_bytes=draw(st.sampled_from([1e11, 5e11, 9e11])),
            roll_switch=draw(st.sampled_from([0.0, 2.0])),
            train_switch=draw(st.sampled_from([0.0, 4.0])),
            arrival=draw(st.floats(0, 5000)),
            iterations=draw(st.integers(1, 50)),
        )
        for i in range(count)
    ]


@st.composite
def groups(draw, most=5):
    """A group whose jobs are pinned anyhow."""
    inside = draw(jobs(most))
    count = max(2, *(j.profile.roll_nodes for j in inside))
    pins = tuple(tuple(draw(st.permutations(range(count)))[: j.profile.roll_nodes]) for j in inside)
    return ExecutionGroup(tuple(inside), pins, count, draw(st.integers(1, 2)))


# --- round robin ----------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(group=groups())
def test_round_robin_takes_the_longest_job_or_the_busiest_node(group):
    """The closed form is what simulating meta-iterations finds, for every job; across nodes, the
    largest mean cycle.
    """
    assert iteration_seconds(group) == pytest.approx([group.period] * len(group.jobs), rel=0.02)
    assert group.period >= max(group.cycle, group.load) * (1 - 1e-9)
    if group.plain:
        assert iteration_seconds(group) == pytest.approx(
            [max(group.cycle, group.load)] * len(group.jobs)
        )


def test_jobs_may_wait_for_each_other_across_nodes():
    pins = ((1,), (0, 1), (0,), (0,), (0, 1))
    names = tuple(job(f"j{i}", roll, 1.0) for i, roll in enumerate((1.0, 1.0, 1.0, 2.0, 1.0)))
    group = ExecutionGroup(names, pins, 2, 1)
    assert not group.plain and group.load == 5 and group.period == pytest.approx(6)
    assert iteration_seconds(group) == pytest.approx([6.0] * 5)


@settings(max_examples=100, deadline=None)
@given(group=groups(), rounds=st.integers(1, 5))
def test_a_node_serves_one_job_at_a_time_and_a_job_does_one_phase_at_a_time(group, rounds):
    turns = list(meta_iterations(group, rounds))
    assert len(turns) == rounds * len(group.jobs)
    pins = dict(zip((j.name for j in group.jobs), group.pins, strict=True))
    for a, b in combinations(turns, 2):
        if a.job.name == b.job.name:
            assert a.trained <= b.roll
        if a.job.name == b.job.name or set(pins[a.job.name]) & set(pins[b.job.name]):
            assert a.rolled <= b.roll + 1e-9 or b.rolled <= a.roll + 1e-9
        assert a.trained <= b.train + 1e-9 or b.trained <= a.train + 1e-9
    assert all(t.rolled <= t.train for t in turns)


def test_one_node_for_two_like_jobs_is_full_and_loses_nothing():
    pair = ExecutionGroup.alone(job("a", 100, 100)).join(job("b", 100, 100), (0,))
    assert pair.period == 200 and pair.saturated
    assert (
        ExecutionGroup.alone(job("a", 100, 100)).period == 200
        and not ExecutionGroup.alone(job("a", 100, 100)).saturated
    )


def test_training_follows_the_nodes_it_is_given():
    group = ExecutionGroup.alone(job("big", 100, 100, roll_nodes=2, train_nodes=2)).join(
        job("small", 50, 60, sync=4), (0,)
    )
    assert group.order[1] == (50, 32)


def best_utilisation(phases):
    """The most that a rollout and a training node can be busy together, over every schedule: Karp's
    maximum mean cycle.

    States are (stage, seconds left) of each job, second by second; 0 waits and 1 runs for rollout,
    2 and 3 for training.
    """
    start = tuple((0, 0) for _ in phases)
    index, edges, todo = {start: 0}, [], [start]
    while todo:
        state = todo.pop()
        for after, reward in moves(state, phases):
            if after not in index:
                index[after] = len(index)
                todo.append(after)
            edges.append((index[state], index[after], reward))
    return karp(np.array(edges), len(index))


def moves(state, phases):
    stages = [stage for stage, _ in state]
    rolls = [None] + [i for i, s in enumerate(stages) if s == 0] * (1 not in stages)
    trains = [None] + [i for i, s in enumerate(stages) if s == 2] * (3 not in stages)
    for roll, train in product(rolls, trains):
        now = list(state)
        if roll is not None:
            now[roll] = (1, phases[roll][0])
        if train is not None:
            now[train] = (3, phases[train][1])
        busy = sum(stage in (1, 3) for stage, _ in now)
        yield tuple(second(one) for one in now), busy


def second(one):
    stage, left = one
    if stage in (0, 2):
        return one
    return (stage, left - 1) if left > 1 else ((stage + 1) % 4, 0)


def karp(edges, count):
    best = np.full((count + 1, count), -np.inf)
    best[0, 0] = 0
    for k in range(1, count + 1):
        np.maximum.at(best[k], edges[:, 1], best[k - 1][edges[:, 0]] + edges[:, 2])
    with np.errstate(invalid="ignore"):
        means = (best[count] - best[:count]) / (count - np.arange(count))[:, None]
    means = np.where(np.isfinite(best[:count]), means, np.inf).min(axis=0)
    return means[np.isfinite(best[count])].max()


@pytest.mark.parametrize("phases", list(product(range(1, 4), repeat=4)))
def test_no_schedule_of_two_jobs_beats_round_robin_unless_they_are_more_than_full(phases):
    """Theorem 1 of Weave: optimal if the longest job is no shorter than either phase's sum."""
    a, b = job("a", *map(float, phases[:2])), job("b", *map(float, phases[2:]))
    group = ExecutionGroup.alone(a).join(b, (0,))
    ours = (a.profile.solo + b.profile.solo) / group.period
    best = best_utilisation([phases[:2], phases[2:]])
    assert ours <= best + 1e-9
    if group.cycle >= group.load:
        assert ours == pytest.approx(best)


def test_round_robin_is_not_optimal_for_three_jobs_that_may_be_starved_or_repeated():
    """The theorem's limit: two short jobs in turn keep both nodes busy, round robin does not."""
    phases = [(5, 5), (1, 1), (1, 1)]
    first, *others = (job(f"j{i}", *map(float, p)) for i, p in enumerate(phases))
    group = ExecutionGroup.alone(first).join(others[0], (0,)).join(others[1], (0,))
    assert group.cycle > group.load and sum(
        j.profile.solo for j in group.jobs
    ) / group.period == pytest.approx(1.4)
    assert best_utilisation(phases) == pytest.approx(2.0)


# --- tails ----------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(group=groups(), held=st.floats(0.2, 1), stretch=st.floats(1, 2))
def test_a_tail_moved_aside_shortens_no_more_than_the_node_is_held(group, held, stretch):
    assert migrated_period(group, {}) == group.period
    tails = {j.name: Tail(held, stretch) for j in group.jobs}
    moved = migrated_period(group, tails)
    assert moved >= held * group.period * (1 - 1e-12)
    ends = [t.trained for t in meta_iterations(group, 400, tails) if t.job == group.jobs[0]]
    assert (ends[-1] - ends[-61]) / 60 == pytest.approx(moved, rel=0.02)


@pytest.mark.parametrize(("held", "stretch"), [(1.0, 1.0), (0.5, 1.0), (0.25, 1.0), (0.5, 1.5)])
def test_tails_on_crossing_nodes_help_as_much_as_nodes_are_held_and_hurt_as_they_stretch(
    held, stretch
):
    pins = ((1,), (0, 1), (0,), (0,), (0, 1))
    names = tuple(job(f"j{i}", roll, 1.0) for i, roll in enumerate((8.0, 8.0, 8.0, 16.0, 8.0)))
    group = ExecutionGroup(names, pins, 2, 1)
    tails = {j.name: Tail(held, stretch) for j in group.jobs}
    ends = [t.trained for t in meta_iterations(group, 200, tails) if t.job == group.jobs[0]]
    moved = migrated_period(group, tails)
    assert not group.plain and moved == pytest.approx((ends[-1] - ends[-61]) / 60)
    assert held * group.period <= moved * (1 + 1e-9) <= stretch * group.period * (1 + 2e-9)


def test_what_is_moved_aside_is_decoded_from_where_it_was_cut():
    """A response alone: its first 1,000 tokens and, moved, its other 3,000 are decoded in the time
    of all 4,000; only its context is computed once more.
    """
    w, prompt = read_recipe("grpo-64"), np.array([512])
    whole, begun = (replica_time(w, prompt, np.array([n])).decode for n in (4000, 1000))
    moved, _ = _rest(w, prompt, np.array([4000]), 1000, [0])[0]
    again = replica_time(w, prompt + 1000, np.array([3000])).prefill
    assert begun + moved - again == pytest.approx(whole, rel=1e-3)


def test_who_waits_for_all_responses_moves_none():
    assert tail(read_recipe("grpo-64"), done=1.0) == Tail(1.0, 1.0)


def test_where_every_node_takes_of_the_rest_none_is_free_before_it_is_done():
    """Nodes are held until the rest moves, those that take it until it is done: on average."""
    w = read_recipe("grpo-64")
    all_take = tail(w, aside=1.0)
    assert all_take.held == pytest.approx(all_take.stretch)
    moved = _moved(w, step_of(w, 0, 0), range(4), ())
    ends = [moved.freed + moved.after if r in moved.aside else moved.freed for r in range(16)]
    held = tail(w, aside=0.25)
    assert held.held / held.stretch == pytest.approx(np.mean(ends) / max(ends))
    alone = _moved(w, step_of(w, 0, 0), range(1), ())  # of 16 replicas, one at least
    assert tail(w, aside=0.01).stretch == pytest.approx(
        alone.seconds / step_of(w, 0, 0).generated.seconds
    )


def test_a_tail_keeps_its_node_for_less_and_takes_longer():
    w = read_recipe("grpo-64")
    few, many = tail(w, aside=0.25), tail(w, aside=0.5)
    assert few.held < 1 < few.stretch and many.stretch < few.stretch
    with pytest.raises(RFabricError, match="aside 0 must lie above 0"):
        tail(w, aside=0)


# --- Algorithm 1 ----------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(arriving=jobs(10))
def test_weave_keeps_every_slo_and_residency_and_never_pays_more_than_alone(arriving):
    made = placed(arriving, "weave")
    assert sum(len(group.jobs) for group in made) == len(arriving)
    assert not [text for group in made for text in violations(group, POOLS)]
    alone = sum(ExecutionGroup.alone(j).price(POOLS) for j in arriving)
    assert sum(group.price(POOLS) for group in made) <= alone * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(arriving=jobs(8))
def test_weave_takes_the_cheapest_sound_placement_of_all(arriving):
    """Each decision against every placement in every group that has bubbles, SLO by simulation."""
    made = []
    for one in arriving:
        place = policy_of("weave")(one, made, POOLS, DOWN)
        sound = [
            group.join(one, nodes).price(POOLS) - group.price(POOLS)
            for group in made
            if not group.saturated
            for nodes, _ in placements(group, one)
            if not violations(group.join(one, nodes), POOLS)
        ]
        added = ExecutionGroup.alone(one).price(POOLS)
        if place is None:
            assert min(sound, default=added) >= added
            made.append(ExecutionGroup.alone(one))
        else:
            joined = made[place.group].join(one, place.nodes)
            assert joined.price(POOLS) - made[place.group].price(POOLS) == pytest.approx(min(sound))
            assert min(sound) < added
            made[place.group] = joined


def test_the_three_ways_to_place_a_job():
    def kinds(*arriving):
        places = (
            policy_of("weave")(one, placed(arriving[:i]), POOLS, DOWN)
            for i, one in enumerate(arriving)
        )
        return [place.kind if place else "new group" for place in places]

    assert kinds(job("a", 100, 100), job("b", 90, 90)) == ["new group", "direct packing"]
    assert kinds(job("a", 100, 20), job("b", 100, 20, slo=1.1)) == ["new group", "rollout scaling"]
    assert kinds(job("a", 20, 100), job("b", 20, 100, slo=1.1)) == ["new group", "new group"]
    full = {"roll_bytes": 9e11, "train_bytes": 1e11}
    assert kinds(job("a", 100, 100, **full), job("b", 90, 90, **full)) == [
        "new group",
        "rollout scaling",
    ]
    full = {"train_bytes": 9e11}
    assert kinds(job("a", 100, 100, **full), job("b", 90, 90, **full)) == ["new group", "new group"]


def test_a_saturated_group_takes_nobody():
    a, b, c = (job(n, 100.0, 100.0) for n in "abc")
    assert policy_of("weave")(c, placed([a, b]), POOLS, DOWN) is None


def test_a_group_gives_back_nodes_that_nobody_needs():
    group = (
        ExecutionGroup.alone(job("a", 9, 9)).join(job("b", 9, 9, roll_nodes=2), (1, 2)).leave("a")
    )
    assert (group.roll_nodes, group.pins, group.train_nodes) == (2, ((0, 1),), 1)


# --- days -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    arriving=jobs(7), policy=st.sampled_from(["weave", "solo", "gavel"]), how=st.sampled_from(STAYS)
)
def test_policies_that_know_slos_keep_them_and_every_job_ends(arriving, policy, how):
    bill = run(arriving, policy, stay=how)
    assert {stay.job.name for stay in bill.stays} == {j.name for j in arriving}
    assert bill.attained == 1
    for stay in bill.stays:
        assert stay.end - stay.job.arrival >= stay.job.seconds * (1 - 1e-6) or any(
            j.profile.train_nodes != stay.job.profile.train_nodes for j in arriving
        )


@settings(max_examples=40, deadline=None)
@given(arriving=jobs(6), seed=st.integers(0, 3))
def test_the_optimum_is_below_what_any_sound_policy_pays(arriving, seed):
    """The floor holds for jobs that leave when they would have left alone, and that stay longer."""
    floor = optimum(arriving)
    for policy, stay in product(("weave", "solo", "optimum"), STAYS):
        assert run(arriving, policy, seed=seed, stay=stay).dollars >= floor * (1 - 2e-3)


def test_alone_a_job_pays_for_its_nodes_while_it_is_there():
    bill = run([job("a", 1800, 1800, iterations=10, arrival=500, roll_nodes=2)])
    hourly = 2 * 8 * 1.85 + 8 * 5.28
    assert bill.dollars == pytest.approx(10 * hourly)
    assert bill.dollars_per_hour == pytest.approx(hourly)
    assert bill.hours == pytest.approx(10) and bill.idle("roll") == pytest.approx(0.5)


def test_sharing_halves_the_bill_of_two_like_jobs():
    pair = [job(n, 100, 100, iterations=360) for n in "ab"]
    assert run(pair, "solo").dollars == pytest.approx(2 * run(pair, "weave").dollars)
    assert run(pair, "gavel").dollars == pytest.approx(run(pair, "solo").dollars)


def test_who_ignores_slos_misses_them():
    crowd = [job(f"j{i}", 100, 100, iterations=50, slo=1.1) for i in range(12)]
    for policy in ("random", "most-idle"):
        bill = run(crowd, policy, seed=1)
        late = [stay for stay in bill.stays if stay.slowdown > 1.1 * (1 + 1e-6)]
        assert late and bill.attained == pytest.approx(1 - len(late) / len(crowd))
    assert run(crowd, "random", seed=1).dollars == run(crowd, "random", seed=1).dollars


def test_drift_changes_periods_by_the_hour():
    steady = job("a", 1000, 1000, iterations=20)
    falling = replace(steady, drift=(1.0, 0.5))
    ends = [run([one]).stays[0].end for one in (steady, falling)]
    assert ends[0] == pytest.approx(20 * 2000) and 20 * 1500 < ends[1] < ends[0]
    assert run([falling], "optimum", regroup=3600).dollars == pytest.approx(
        run([falling]).dollars, rel=0.01
    )


def partitions(items):
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for size in range(len(rest) + 1):
        for others in combinations(rest, size):
            left = [x for x in rest if x not in others]
            for more in partitions(left):
                yield [(first, *others), *more]


@settings(max_examples=25, deadline=None)
@given(present=jobs(5))
def test_the_cheapest_grouping_is_that_of_trying_all(present):
    price = {}
    for group in feasible(present, POOLS):
        assert not violations(group, POOLS)
        names = frozenset(j.name for j in group.jobs)
        price[names] = min(price.get(names, float("inf")), group.price(POOLS))
    names = [j.name for j in present]
    best = min(
        sum(price.get(frozenset(part), float("inf")) for part in parts)
        for parts in partitions(names)
    )
    dollars, chosen = cheapest(present, gap=0)
    assert dollars == pytest.approx(best)
    assert sorted(j.name for group in chosen for j in group.jobs) == sorted(names)


# --- traffic --------------------------------------------------------------------------------------


def test_two_jobs_on_one_fabric_take_turns_and_send_what_they_would_alone():
    w = read_recipe("grpo-64", ["steps=2"])
    two = [Job(name, profile_of(w)) for name in "ab"]
    shared = placed(two)
    assert len(shared) == 1 and shared[0].roll_nodes == shared[0].train_nodes == 4
    trace, alone = traffic_of(shared, {"a": w, "b": w}, 3), trace_of(w, 3)
    assert len(trace.hosts) == 64 and trace.size.sum() == 2 * alone.size.sum()
    ready, finish = trace.compute_only()
    rows = {(key.step, key.phase): trace.rows(key) for key in trace.phase_keys}
    spans = {key: (ready[those].min(), finish[those].max()) for key, those in rows.items()}
    for pool in (("generation",), ("training", "weight_sync")):
        held = sorted(span for (_, phase), span in spans.items() if phase in pool)
        assert all(a[1] <= b[0] + 1e-9 for a, b in zip(held, held[1:], strict=False))
    _, single = alone.compute_only()
    assert finish.max() < 2 * single.max()
    assert [key.step for key in trace.phase_keys if key.phase == "generation"] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "scheduler", ["sync", "one-step-off", "async", "orchestrrl", "rollpacker", "rollart"]
)
def test_jobs_take_turns_whoever_schedules_each_of_them(scheduler):
    small = ("generation.batch=32", "generation.max_response=4096", "steps=2")
    trace = read_traffic("weave-2jobs", small, 0, scheduler).trace
    alone = read_traffic("grpo-64", small, 0, scheduler).trace
    said = trace.provenance
    assert (said["scheduler"], said["shared_by"]) == (scheduler, "weave")
    assert trace.total.sum() == 2 * alone.total.sum()
    assert set(alone.phases) == set(trace.phases)
    assert trace.windows == {
        PhaseKey(2 * key.step + turn, key.phase): seconds
        for key, seconds in alone.windows.items()
        for turn in (0, 1)
    }
    ready, finish = trace.compute_only()
    held = {"roll": {}, "train": {}}
    for key in trace.phase_keys:
        pool = NODES_OF.get(key.phase, "roll")  # what moves while a step generates
        turn = (key.step, key.phase if pool == "train" else "")
        held[pool].setdefault(turn, []).append(trace.rows(key))
    for turns in held.values():
        rows = map(np.concatenate, turns.values())
        spans = sorted((ready[some].min(), finish[some].max()) for some in rows)
        assert all(a[1] <= b[0] + 1e-9 for a, b in zip(spans, spans[1:], strict=False))
    assert finish.max() > alone.compute_only()[1].max()


def test_jobs_that_take_no_turns_are_refused():
    with pytest.raises(RFabricError, match="grpo-64 is colocated; jobs share nodes by turns"):
        read_traffic("weave-2jobs", (), 0, "colocated")
    with pytest.raises(RFabricError, match="weave-2jobs has several, .*; leave network out"):
        read_traffic("weave-2jobs", (), 0, "orchestrrl,network=fabric")
    w, out = read_recipe("grpo-64"), TraceBuilder([f"h{i + 1}" for i in range(64)])
    first = out.compute(32, 1.0, phase="generation")
    trained = out.compute(0, 1.0, after=[first], phase="training")
    out.compute(32, 1.0, after=[trained], phase="generation")
    both_ways = out.build()
    with pytest.raises(RFabricError, match="a, b: phases that wait for one another both ways"):
        shared = placed([Job(name, profile_of(w)) for name in "ab"])
        traffic_of(shared, {"a": w, "b": w}, traces={"a": both_ways, "b": both_ways})


def test_jobs_in_groups_of_their_own_share_no_host_and_no_time():
    w = read_recipe("grpo-64")
    two = [Job(name, profile_of(w), slo=1.0) for name in "ab"]
    trace = traffic_of(placed(two, "solo"), {"a": w, "b": w})
    assert len(trace.hosts) == 128
    _, finish = trace.compute_only()
    _, single = trace_of(w).compute_only()
    assert finish.max() == pytest.approx(single.max())
    labels = np.array(trace.labels)[trace.label]
    phases = np.array(trace.phases)[trace.phase]
    for place, name in enumerate("ab"):
        mine = np.char.startswith(labels, f"{name} ")
        trains, generates = trace.src[mine & (phases == "training")], labels == f"{name} generate"
        assert set(trains // 32) == {place}  # 4 training nodes each, then 4 rollout nodes each
        assert set(trace.src[generates] // 32) == {2 + place}


def test_no_seed_is_the_first_seed():
    w = read_recipe("grpo-64", ["generation.batch=32"])
    assert profile_of(w) == profile_of(w, 0) != profile_of(w, 1)
    crowd = [job(f"j{i}", 100, 100, iterations=50) for i in range(6)]
    assert placed(crowd, "random") == placed(crowd, "random", seed=0)
    assert run(crowd, "random").dollars == run(crowd, "random", seed=0).dollars
    dollars = {run(crowd, "random", seed=seed).dollars for seed in range(8)}
    assert len(dollars) > 1


def file_of(folder, *jobs, **settings):
    """A file of jobs, each grpo-64 with its own sections changed."""
    for i, changes in enumerate(jobs):
        recipe = yaml.safe_load((data_dir("traffic") / "grpo-64.yaml").read_text())
        for section, values in changes.items():
            recipe[section] |= values
        (folder / f"one{i}.yaml").write_text(yaml.safe_dump(recipe))
    names = [f"one{i}.yaml" for i in range(len(jobs))]
    (folder / "all.yaml").write_text(yaml.safe_dump({"jobs": names} | settings))
    return str(folder / "all.yaml")


FEW = {"generation": {"batch": 32, "max_response": 4096}}


@pytest.mark.parametrize("policy", ["weave", "random", "most-idle", "gavel"])
@pytest.mark.parametrize(("first", "second"), [(16, 32), (32, 16)])
def test_jobs_that_train_on_more_nodes_or_fewer_share_none(tmp_path, policy, first, second):
    """The seconds of a trace are those of its own GPUs, whatever nodes a group has."""
    jobs = [FEW | {"cluster": {"training_gpus": n}} for n in (first, second)]
    traffic = read_shared(file_of(tmp_path, *jobs, policy=policy, slo=100))
    assert traffic.gpus == first + second + 2 * 32
    alike = read_shared(file_of(tmp_path, jobs[0], jobs[0], policy=policy, slo=100))
    if policy != "random":
        assert alike.gpus == first + 32


@pytest.mark.parametrize(
    "changes",
    [
        {"generation": FEW["generation"] | {"gpu": "H20"}},
        FEW | {"cluster": {"gpu": "H200"}},
        FEW | {"cluster": {"nic": "200Gbit/s"}},
    ],
)
def test_jobs_made_for_other_hardware_share_none(tmp_path, changes):
    traffic = read_shared(file_of(tmp_path, FEW, changes, slo=100))
    alike = read_shared(file_of(tmp_path, FEW, FEW, slo=100))
    assert (traffic.gpus, alike.gpus) == (128, 64)
    other = "nic" in changes.get("cluster", {})  # then the jobs ask for no rate in common
    assert (traffic.needs.nic, alike.needs.nic) == (0 if other else 400e9, 400e9)


def test_what_jobs_forecast_goes_with_their_turns():
    """Windows and ends of phases alike: by number of the turn."""
    small = ("generation.batch=32", "generation.max_response=4096", "steps=2")
    how = "one-step-off,forecast=smoothed"
    shared = read_traffic("weave-2jobs", small, 0, how).trace
    alone = read_traffic("grpo-64", small, 0, how).trace
    assert alone.paces
    for known, ours in ((alone.windows, shared.windows), (alone.paces, shared.paces)):
        twice = {PhaseKey(2 * k.step + i, k.phase): v for k, v in known.items() for i in (0, 1)}
        assert ours == twice


def test_the_shipped_file_of_jobs_is_traffic_like_any_other():
    made, again = read_traffic("weave-2jobs", seed=1), read_traffic("weave-2jobs", seed=1)
    assert made.gpus == 64 and made.name == "weave-2jobs"
    assert (made.trace.src == again.trace.src).all() and (made.trace.gap == again.trace.gap).all()
    assert len({file.name for file in made.inputs}) >= 2


@pytest.mark.parametrize("scheduler", ["sync", "rollpacker"])
def test_phases_of_several_jobs_lie_within_the_widest_of_theirs(scheduler):
    w = read_recipe("grpo-64")
    jobs = placed([Job(name, profile_of(w)) for name in "ab"])
    trace = read_traffic("grpo-64", scheduler=scheduler).trace
    own = trace.provenance["within"]
    worse = own["training"] | {"high": 9.0, "basis": "other scale"}
    other = replace(trace, provenance=trace.provenance | {"within": own | {"training": worse}})
    both = traffic_of(jobs, {"a": w, "b": w}, traces={"a": other, "b": trace})
    assert both.provenance["within"] == own | {"training": worse}
    given = replace(trace, provenance={})
    both = traffic_of(jobs, {"a": w, "b": w}, traces={"a": given, "b": trace})
    assert not both.provenance["within"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jobs: grpo-64", "must list recipes"),
        ("jobs: []", "must list recipes"),
        ("jobs: [nothing]", "no recipe named 'nothing'"),
        (
            "jobs: [grpo-64]\npolicy: nobody",
            "no policy for several jobs called 'nobody'; there are weave, solo",
        ),
        ("jobs: [grpo-64]\nslo: 0.5", "job job1: slo 0.5 cannot be met even alone"),
        ("jobs: [grpo-64]\nslo: soon", "slo: 'soon' is no number"),
        ("jobs: [grpo-64]\nslo: .nan", "slo: nan is no number"),
        ("jobs: [grpo-64]\nslo: .inf", "slo: inf is no number"),
        ("jobs: [grpo-64]\npolicy: [weave]", "no policy for several jobs called"),
        ("jobs: [grpo-64]\nsol: 2", "unknown key sol; did you mean slo"),
    ],
)
def test_bad_files_of_jobs(tmp_path, text, message):
    file = tmp_path / "two.yaml"
    file.write_text(text)
    with pytest.raises(RFabricError, match=message):
        read_shared(str(file))


def test_a_workload_must_fit_the_nodes_of_its_job():
    w = read_recipe("grpo-64")
    small = ExecutionGroup.alone(job("a", 10, 10))
    with pytest.raises(
        RFabricError, match=("job a: its workload has 32 training GPUs, its nodes have 8")
    ):
        traffic_of([small], {"a": w})
    with pytest.raises(RFabricError, match="job a: no workload is given for it; there are b"):
        traffic_of([small], {"b": w})


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: job("a", -1, 5), "job a: roll of -1 s must be above 0 and 1e[+]07 at most"),
        (lambda: job("a", 5, 0), "job a: train of 0 s must be above 0"),
        (lambda: job("a", 5, float("nan")), "job a: train of nan s must be above 0"),
        (lambda: job("a", 5, 5, sync=-1), "job a: sync of -1 s must be 0 or more"),
        (
            lambda: job("a", 5, 5, roll_nodes=0),
            "job a: roll_nodes of 0 must be a whole number, 1 to",
        ),
        (lambda: job("a", 5, 5, roll_bytes=-1), "job a: roll_bytes of -1 bytes must be 0 or more"),
        (lambda: job("a", 5, 5, iterations=0), "job a: iterations of 0 iterations must be above 0"),
        (
            lambda: job("a", 5, 5, drift=(1.0, 2.0)),
            "job a: drift of 2 of its profile must be above 0 and 1 at most",
        ),
        (
            lambda: job("a", 5, 5, slo=0.9),
            "job a: slo 0.9 cannot be met even alone, as an iteration alone takes 10 s",
        ),
        (lambda: job("a", 5, 5, slo=float("inf")), "job a: slo inf cannot be met"),
        (lambda: Pools(roll_nodes=0), "rollout pool: 0 nodes of 8 GPUs hold no job"),
        (lambda: Pools(gpus_per_node=0), "rollout pool: 10000 nodes of 0 GPUs hold no job"),
        (lambda: Pools(train_gpu="X1"), "training pool: no GPU 'X1'; there are"),
        (lambda: Pools(train_dollars=0.0), "training pool: dollars of 0.0 must be above 0"),
        (lambda: run([]), "no jobs; give one at least"),
        (lambda: run([job("a", 5, 5), job("a", 5, 5)]), "job a stands 2 times"),
        (
            lambda: run([job("a", 5, 5, roll_bytes=2e12)]),
            "job a: its rollout phase keeps 2000 GB resident on a node",
        ),
        (
            lambda: run([job("a", 5, 5, train_bytes=1.5e12)]),
            "job a: its training phase keeps 1500 GB resident",
        ),
        (
            lambda: run([job("a", 5, 5, train_nodes=3)], pools=Pools(train_nodes=2)),
            "job a: asks for 3 training nodes, the ",
        ),
        (
            lambda: run([job(n, 5, 5) for n in "ab"], "solo", Pools(train_nodes=1)),
            "job b: needs 1 more training nodes, all 1 of the pool are taken",
        ),
        (
            lambda: policy_of("fifo"),
            (
                "no policy for several jobs called 'fifo'; there are weave, solo, random, "
                "most-idle, gavel"
            ),
        ),
    ],
)
def test_bad_jobs_and_pools(made, message):
    with pytest.raises(RFabricError, match=message):
        made()


def test_jobs_from_a_file(tmp_path):
    file = tmp_path / "jobs.csv"
    file.write_text(
        "# two jobs\nname,roll_s,train_s,slo,roll_memory_gb,roll_nodes,arrival_s\n"
        "b,100,50,1.5,275.7,2,60\na,10,5,,,,\n"
    )
    a, b = read_jobs(file)
    assert (a.name, a.slo, a.profile.roll_nodes, a.arrival) == ("a", 2.0, 1, 0.0)
    assert (b.profile.roll_bytes, b.profile.roll_nodes, b.slo) == (pytest.approx(275.7e9), 2, 1.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,roll_s\na,1", "column 'train_s' is missing; the columns are name, roll_s, train_s"),
        ("name,roll_s,train_s,color\na,1,1,red", "unknown column 'color'"),
        ("name,roll_s,train_s\n", "holds no jobs"),
        ("name,roll_s,train_s\na,1,", "job a: train_s is missing; its profile must say it"),
        ("name,roll_s,train_s\na,fast,1", "job a: roll_s 'fast' is no number"),
        ("name,roll_s,train_s,roll_nodes\na,1,1,nan", "job a: roll_nodes 'nan' is no number"),
        ("name,roll_s,train_s\na,-3,1", "job a: roll of -3 s must be above 0"),
        ("name,roll_s,train_s\n,3,1", "row 1 has no name"),
        ("name,roll_s,train_s\na,3,1\na,4,1", "job a stands twice"),
        (
            "name,roll_s,train_s,roll_nodes\na,3,1,1.5",
            "job a: roll_nodes of 1.5 must be a whole number",
        ),
    ],
)
def test_bad_files_of_profiles(tmp_path, text, message):
    file = tmp_path / "jobs.csv"
    file.write_text(text)
    with pytest.raises(RFabricError, match=message):
        read_jobs(file)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(RFabricError, match="cannot be read"):
        read_jobs(tmp_path / "none.csv")


def test_every_policy_answers_for_an_empty_cluster():
    assert all(
        choose(job("a", 1, 1), [], POOLS, np.random.default_rng(0)) is None
        for choose in POLICIES.values()
    )


def test_a_job_that_needs_hardly_less_than_the_slowest_keeps_no_lead():
    """Half a second a round is used up too slowly to be seen: the slowest job's time counts for
    all of the group.
    """
    quick, slow = job("quick", roll=75.0, train=112.0, slo=1.0), job("slow", roll=172.0, train=15.5)
    group = ExecutionGroup.alone(quick).join(slow, (1,))
    assert iteration_seconds(group) == [group.period] * 2
    assert "job quick: an iteration takes 187.5 s" in violations(group, POOLS)[0]

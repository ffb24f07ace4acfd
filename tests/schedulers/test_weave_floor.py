"""Jobs that come and go on the servers of a fabric: what they take there, where they stand."""

from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.rl import read_recipe
from rfabric.rl.lowering import trace_of
from rfabric.schedulers.networks import agreed_sync
from rfabric.schedulers.weave import Job, meta_iterations, run, violations
from rfabric.schedulers.weave.cluster import OPTIMUM
from rfabric.schedulers.weave.floor import LIGHTLESS, Floor, Servers, racks_apart
from rfabric.schedulers.weave.on_fabric import (
    FabricProfiles,
    at_its_longest,
    planned_profile,
    seats,
)
from rfabric.schedulers.weave.optimum import GAP, optimum
from rfabric.schedulers.weave.policies import POLICIES
from rfabric.simulate.world import simulate

SIZE = 4
FABRICS = {
    "ideal": "ideal,gpus=96",
    "rfabric": "rfabric,pods=6,tors=4,gpus=4",
    "4:1": "fat-tree,pods=6,tors=4,gpus=4,oversubscription=4",
    "two clusters": "two-clusters,training=48,generation=48,gpus=4,join=20Gbit/s",
    "mixnet": "mixnet,servers=24,gpus=4,region=4",
}
# what jobs run: training and generation servers, settings
KINDS = {
    "small": (1, 1, ()),
    "trains longer": (1, 1, ("training.recompute=full",)),
    "flat": (1, 1, ("weight_sync.strategy=flat", "generation.max_response=1024")),
    "wide": (2, 2, ("generation.max_response=8192",)),
    "more rollouts": (1, 2, ()),
}


SMALL = (
    "model=Qwen2.5-1.5B",
    "cluster.gpus_per_server=4",
    "cluster.gpus_per_pod=16",
    "cluster.generation_gpus=4",
    "generation.tp=1",
    "training.tp=2",
    "generation.batch=256",
    "generation.max_response=4096",
)
CPUS = "environments.servers=1", "environments.rewards=true"


@cache
def workload(kind):
    train, roll, own = KINDS[kind]
    settings = (
        *SMALL,
        f"cluster.training_gpus={train * SIZE}",
        f"cluster.generation_gpus={roll * SIZE}",
        *own,
    )
    return read_recipe("grpo-64-h20", settings)


@cache
def profiles(fabric):
    return FabricProfiles(parse_fabric(FABRICS[fabric]))


def floor_of(fabric, jobs, pods=False, near=True):
    known = profiles(fabric)
    servers = (Servers.of_every_pod if pods else Servers.halves)(known.fabric, SIZE)
    kinds = {job.name: workload(job.name.split("/")[0]) for job in jobs}
    return Floor(known, servers, kinds, SIZE, near)


def job(kind, number, slo=2.0, arrival=0.0, iterations=20.0):
    profile = planned_profile(workload(kind))[0]
    return Job(f"{kind}/{number}", profile, slo, arrival, iterations)


@st.composite
def arrivals(draw, most=6):
    return [
        job(
            draw(st.sampled_from(list(KINDS))),
            number,
            draw(st.floats(1.0, 2.0)),
            draw(st.floats(0, 2000)),
            draw(st.floats(1, 60)),
        )
        for number in range(draw(st.integers(1, most)))
    ]


def refuse_two_at_once(groups):
    """No server is held by two groups, none works on two phases at once."""
    held = [server for group in groups for server in (*group.at.train, *group.at.roll)]
    assert len(held) == len(set(held))
    for group in groups:
        assert len(group.at.roll) == group.roll_nodes
        assert len(group.at.train) == group.train_nodes
        works = {server: [] for server in (*group.at.train, *group.at.roll)}
        for turn in meta_iterations(group, 4):
            for node in group.pins[group.jobs.index(turn.job)]:
                works[group.at.roll[node]].append((turn.roll, turn.rolled))
            for server in group.at.train:
                works[server].append((turn.train, turn.trained))
        for spans in works.values():
            for one, other in combinations(sorted(spans), 2):
                assert one[1] <= other[0] + 1e-6


@pytest.mark.parametrize("policy", ["weave", "solo", "gavel"])
@given(arrivals(), st.sampled_from(list(FABRICS)), st.booleans(), st.booleans())
def test_days_keep_what_was_promised_and_pay_no_less_than_the_optimum(
    policy, jobs, fabric, pods, near
):
    came = []

    def watched(arrived, groups, pools, random):
        came.append(arrived)
        refuse_two_at_once(groups)
        if policy == "weave":
            assert not [text for group in groups for text in violations(group, pools)]
        return POLICIES[policy](arrived, groups, pools, random)

    bill = run(jobs, watched, floor=floor_of(fabric, jobs, pods, near))
    assert bill.attained == 1.0 and len(bill.stays) == len(jobs)
    least = [replace(one, alone=None, slo=max(one.longest / one.profile.solo, 1.0)) for one in came]
    assert bill.dollars >= optimum(least) * (1 - GAP - 1e-9)


@given(arrivals(5), st.sampled_from(list(FABRICS)))
def test_no_fabric_is_sooner_than_network_cards(jobs, fabric):
    floor = floor_of(fabric, jobs)
    for one in jobs:
        there = floor.arriving(one, []).profile
        assert there.roll >= one.profile.roll and there.train >= one.profile.train
        if workload(one.name.split("/")[0]).weight_sync.strategy == "scatter":  # no other is alike
            assert there.sync >= one.profile.sync * (1 - 1e-9)


@pytest.mark.parametrize("fabric", list(FABRICS))
def test_jobs_of_one_kind_of_server_do_share(fabric):
    """What holds of every arrival is not held by jobs that always stand alone."""
    order = "small", "small", "more rollouts", "more rollouts", "small", "more rollouts"
    jobs = [job(kind, n, 2.0, 10.0 * n) for n, kind in enumerate(order)]
    bill = run(jobs, floor=floor_of(fabric, jobs, pods=True))
    assert set(bill.kinds) == {"new group", "direct packing", "rollout scaling"}


def test_on_the_ideal_switch_days_cost_what_they_do_by_cards():
    jobs = [job("small", n, slo=1.8, arrival=100.0 * n) for n in range(6)]
    on_cards, there = run(jobs), run(jobs, floor=floor_of("ideal", jobs))
    assert there.dollars == pytest.approx(on_cards.dollars, rel=1e-9)
    assert there.kinds == on_cards.kinds


def test_a_slower_weight_sync_admits_other_partners():
    """Two jobs whose training just fits one period on the ideal switch stand apart where their
    weights cross a thin link.
    """
    p = planned_profile(workload("trains longer"))[0]
    trained = p.train + p.sync + p.train_switch
    assert trained > p.roll + p.roll_switch
    jobs = [job("trains longer", n, slo=1.001 * 2 * trained / p.solo) for n in range(2)]
    assert 1 < jobs[0].slo < 2
    kinds = {name: run(jobs, floor=floor_of(name, jobs)).kinds for name in FABRICS}
    assert kinds["ideal"] == kinds["rfabric"] == {"new group": 0.5, "direct packing": 0.5}
    assert kinds["two clusters"] == {"new group": 1.0}


@pytest.mark.parametrize("fabric", list(FABRICS))
@pytest.mark.parametrize("kind", list(KINDS))
def test_what_the_fabric_foresees_is_what_is_simulated(kind, fabric):
    """The job alone on the servers that it was given: seconds of an iteration, two ways."""
    one = job(kind, 0)
    group = floor_of(fabric, [one]).alone(floor_of(fabric, [one]).arriving(one, []))
    w, made = workload(kind), profiles(fabric).fabric
    profile = group.jobs[0].profile
    trace = trace_of(agreed_sync(w, profiles(fabric).seated(w, group.at.train, group.at.roll))[0])
    hosts = tuple(made.hosts[host] for host in seats(w, group.at.train, group.at.roll))
    result = simulate(made, replace(trace, hosts=hosts), "own")
    assert profile.solo == pytest.approx(result.step_seconds, rel=0.03)


def test_which_racks_share_an_ocs():
    apart = racks_apart(parse_fabric("mixnet,servers=8,gpus=4,region=4"))
    assert (apart[:4, :4] == 1 - np.eye(4)).all()
    assert (apart[:4, 4:] > LIGHTLESS).all()
    apart = racks_apart(parse_fabric("rfabric,pods=2,tors=2,gpus=4"))
    assert apart[0].tolist() == [0, 1, 3, 3]  # aggregation; aggregation, core, aggregation
    apart = racks_apart(parse_fabric("fat-tree,pods=2,tors=2,gpus=4"))
    assert apart[0].tolist() == [0, LIGHTLESS + 1, LIGHTLESS + 3, LIGHTLESS + 3]


def test_a_group_grows_by_the_nearest_server_and_gives_it_back():
    jobs = [job("small", n, slo=2.0, arrival=n) for n in range(3)]
    floor = floor_of("4:1", jobs, pods=True)
    group = floor.alone(floor.arriving(jobs[0], []))
    assert group.at == Servers((0,), (2,))  # one pod: two of its servers train
    floor.arriving(jobs[1], [group])
    grown = group.join(group.seen(jobs[1], (1,)), (1,))
    assert grown.at == Servers((0,), (2, 3))
    floor.arriving(jobs[2], [grown])
    assert floor.free.train[0] == 1 and floor.free.roll[0] == 6
    assert grown.leave(jobs[0].name).at == Servers((0,), (3,))
    assert grown.leave(jobs[1].name).at == Servers((0,), (2,))


def test_who_takes_an_old_server_and_a_new_one_has_both():
    jobs = [job("small", 0), job("more rollouts", 1, arrival=1.0)]
    floor = floor_of("4:1", jobs, pods=True)
    group = floor.alone(floor.arriving(jobs[0], []))
    floor.arriving(jobs[1], [group])
    grown = group.join(group.seen(jobs[1], (0, 1)), (0, 1))
    assert (grown.at, grown.pins) == (Servers((0,), (2, 3)), ((0,), (0, 1)))


def test_the_shortest_iteration_is_taken_and_of_equals_the_first(monkeypatch):
    one = job("small", 0)
    floor = floor_of("ideal", [one])
    seconds = {1: 30.0, 2: 20.0, 3: 20.0 * (1 + 1e-12), 4: 25.0}
    profiles_at = {at: replace(one.profile, roll=s) for at, s in seconds.items()}
    monkeypatch.setattr(floor, "profile", lambda _, at: profiles_at[at])
    for places, best in (((1, 2, 3, 4), 2), ((4, 3, 2), 3), ((1,), 1)):
        assert floor.best(one, places, lambda at: at) == (best, profiles_at[best])


def test_by_number_servers_stand_where_they_come():
    jobs = [job("small", 0)]
    floor = floor_of("4:1", jobs, pods=True, near=False)
    floor.free = Servers((1, 4), (6, 10))
    assert floor.alone(jobs[0]).at == Servers((1,), (6,))


def test_jobs_made_for_other_servers_share_none():
    jobs = [job("small", 0), job("wide", 1), job("more rollouts", 2)]
    floor = floor_of("ideal", jobs)
    group = floor.alone(floor.arriving(jobs[0], []))
    assert not group.takes(jobs[1]) and group.takes(jobs[2])


def test_who_comes_is_measured_by_all_servers_and_alone_by_those_that_are_free(monkeypatch):
    """What an SLO is of does not grow with what others hold; where too few are free, alone is as
    if all were.
    """
    one = job("small", 0)
    floor = floor_of("ideal", [one])
    quick = one.profile
    slow = replace(quick, roll=2 * quick.roll)
    where = {floor.servers.roll: quick}
    monkeypatch.setattr(floor, "_best", lambda _, on: (on, where.get(on.roll, slow)))
    group = floor.alone(floor.arriving(one, []))
    taken = replace(group, at=Servers(floor.servers.train[:1], floor.servers.roll[:1]))
    come = floor.arriving(one, [taken])
    assert (come.profile, come.alone) == (quick, slow)
    full = floor.arriving(one, [replace(group, at=floor.servers)])
    assert (full.profile, full.alone) == (quick, quick)


@pytest.mark.parametrize(
    ("fabric", "jobs", "settings", "message"),
    [
        ("ideal,gpus=4", 1, (), "servers of 4 GPUs that train and that generate need two"),
        ("ideal,gpus=8", 2, (), "1 training and 1 rollout nodes of its own, 0 and 0 are free"),
        ("ideal,gpus=8", 1, ("cluster.training_gpus=8",), "asks for 2 training and 1 rollout"),
        ("ideal,gpus=16", 1, ("cluster.gpus_per_server=8",), "servers of 8 GPUs, with 0 CPU"),
        (
            "ideal,gpus=16",
            1,
            ("environments.servers=1", "environments.rewards=true"),
            "with 1 CPU servers; here stand",
        ),
    ],
)
def test_bad_floors(fabric, jobs, settings, message):
    made = parse_fabric(fabric)
    w = read_recipe("grpo-64-h20", [*SMALL, "cluster.training_gpus=4", *settings])
    some = [Job(f"job{n}", planned_profile(workload("small"))[0], 1.0) for n in range(jobs)]
    with pytest.raises(RFabricError, match=message):
        floor = Floor(
            FabricProfiles(made), Servers.halves(made, SIZE), {one.name: w for one in some}, SIZE
        )
        run(some, floor=floor)


def test_a_job_without_a_workload_and_an_optimum_on_a_fabric_are_refused():
    jobs = [job("small", 0)]
    floor = floor_of("ideal", jobs)
    with pytest.raises(RFabricError, match="job other: no workload is given for it"):
        run([replace(jobs[0], name="other")], floor=floor)
    with pytest.raises(RFabricError, match="stands on no fabric"):
        run(jobs, OPTIMUM, floor=floor)


def test_a_fabric_that_carries_nothing_between_racks_is_refused():
    jobs = [job("flat", 0)]
    made = parse_fabric("rfabric,pods=2,tors=2,gpus=4,planes=1,electrical=0")
    known = FabricProfiles(made, "static")
    floor = Floor(known, Servers.halves(made, SIZE), {jobs[0].name: workload("flat")}, SIZE)
    with pytest.raises(RFabricError, match="refuses"):
        run(jobs, floor=floor)


def test_planned_at_its_longest_no_draw_takes_longer():
    w = workload("small")
    longest = planned_profile(at_its_longest(w))[0]
    drawn = planned_profile(w)[0]
    assert longest.roll >= drawn.roll and longest.train >= drawn.train
    assert longest.sync == drawn.sync

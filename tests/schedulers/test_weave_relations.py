"""Days of jobs on shared nodes by relations: instants that meet, days that begin later, and prices
that double.
"""

from dataclasses import replace

import pytest

from rfabric.schedulers.weave import Job, Pools, Profile, run
from rfabric.schedulers.weave.cluster import actual, alone
from rfabric.schedulers.weave.policies import POLICIES

EVERY = sorted(POLICIES)


def job(name, roll, train, **own):
    return Job(name, Profile(float(roll), float(train)), **own)


def day() -> list[Job]:
    """Four jobs that fit each other more or less, two of them with rollouts that get shorter."""
    return [
        job("a", 100, 80, iterations=40),
        job("b", 60, 90, iterations=30, arrival=500, drift=(1.0, 0.5)),
        job("c", 200, 40, iterations=25, arrival=2000, slo=1.5),
        job("d", 90, 90, iterations=20, arrival=2500, drift=(0.9, 0.6)),
    ]


@pytest.mark.parametrize("policy", EVERY)
def test_who_ends_as_another_comes_is_gone(policy):
    """Two rounds of 150 s, then the next job: it has the nodes to itself, and each is alone."""
    first, second = job("a", 100, 50, iterations=2), job("b", 80, 70, iterations=3, arrival=300)
    bill = run([first, second], policy)
    assert (bill.peak_roll, bill.peak_train) == (1, 1) and bill.sizes == {1: 2}
    assert [stay.end for stay in bill.stays] == pytest.approx([300, 750])
    assert [stay.slowdown for stay in bill.stays] == pytest.approx([1, 1])
    sooner = run([first, replace(second, arrival=299.0)], policy)
    assert sooner.peak_roll == 2 or sooner.sizes != bill.sizes


@pytest.mark.parametrize("policy", EVERY)
def test_a_day_that_begins_later_and_costs_twice_is_the_same_day(policy):
    bill = run(day(), policy)
    late = [replace(one, arrival=one.arrival + 7200) for one in day()]
    pools = Pools()
    dear = replace(
        pools, roll_dollars=2 * pools.roll_dollars, train_dollars=2 * pools.train_dollars
    )
    other = run(late, policy, dear)
    assert other.dollars == pytest.approx(2 * bill.dollars)
    assert other.hours == pytest.approx(bill.hours) and other.sizes == bill.sizes
    for stay, moved in zip(bill.stays, other.stays, strict=True):
        assert moved.end == pytest.approx(stay.end + 7200)
        assert moved.alone == pytest.approx(stay.alone)


@pytest.mark.parametrize("policy", EVERY)
def test_nodes_work_no_longer_than_they_are_held_and_held_ones_are_what_is_paid(policy):
    pools = Pools()
    bill = run(day(), policy, pools)
    for worked, held in bill.busy.values():
        assert 0 < worked <= held * (1 + 1e-9)
    (_, roll), (_, train) = bill.busy["roll"], bill.busy["train"]
    paid = (roll * pools.roll_price + train * pools.train_price) / 3600
    assert bill.dollars == pytest.approx(paid)
    assert sum(bill.sizes.values()) <= len(day()) and min(bill.sizes) >= 1
    assert all(stay.slowdown >= 1 - 1e-9 for stay in bill.stays)


@pytest.mark.parametrize(("left", "share"), [(10, 0.8), (5, 0.6), (0, 0.4), (2.5, 0.5)])
def test_rollouts_drift_evenly_and_nothing_else_does(left, share):
    one = Job("a", Profile(1000.0, 100.0, sync=7.0), iterations=10, drift=(0.8, 0.4))
    assert actual(one, left) == pytest.approx(1000 * share)
    assert alone(one, left) == pytest.approx(1000 * share + 100 + 7)

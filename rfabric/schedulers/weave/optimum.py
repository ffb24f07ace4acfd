"""The offline optimum: at every moment the cheapest way to group the jobs that are there, moving
them for nothing.

A policy that places a job once, and keeps SLO and residency as `ExecutionGroup` counts them, pays
at least this: every job is there for at least as long as it would be alone, and fewer jobs never
cost more. So it is a bound from below that no online policy need reach; the paper's own optimum is
some way above it or on it.

    minimise  sum of price(g) x[g]  over groups g of present jobs that keep every SLO and fit memory
    with      each job in exactly one group: set partitioning

solved by scipy's HiGHS to within GAP, anew where jobs came or went.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import combinations

import numpy as np

from ...errors import RFabricError
from ...units import SECONDS_PER_HOUR
from .groups import SLACK, ExecutionGroup
from .jobs import Job, Pools

GAP = 1e-3  # relative: how far above the cheapest a grouping may be, as HiGHS proves it


def optimum(
    jobs: Iterable[Job], pools: Pools = Pools(), progress: Callable[[int], None] = lambda _: None
) -> float:
    """Dollars of the bound, from the first arrival to the last end of jobs never slowed."""
    jobs = [pools.admit(job) for job in jobs]
    times = sorted({t for job in jobs for t in (job.arrival, job.arrival + job.seconds)})
    priced = lru_cache(maxsize=None)(lambda present: cheapest([jobs[i] for i in present], pools)[0])
    dollars = 0.0
    for number, (begin, end) in enumerate(zip(times, times[1:], strict=False)):
        present = tuple(
            i
            for i, job in enumerate(jobs)
            if job.arrival <= begin and end <= job.arrival + job.seconds
        )
        dollars += priced(present) * (end - begin) / SECONDS_PER_HOUR if present else 0.0
        progress(number)
    return dollars


def cheapest(
    jobs: Sequence[Job], pools: Pools = Pools(), gap: float = GAP
) -> tuple[float, list[ExecutionGroup]]:
    """(dollars an hour, groups) of the cheapest grouping of `jobs`.

    RFabricError where the solver finds none.
    """
    from scipy.optimize import LinearConstraint, milp

    groups = list(_useful(feasible(jobs, pools), pools))
    prices = np.array([group.price(pools) for group in groups])
    once = LinearConstraint(_inside(jobs, groups), 1, 1)
    with _silent():
        solution = milp(
            prices, integrality=np.ones(len(groups)), constraints=once, options={"mip_rel_gap": gap}
        )
    if solution.x is None:
        raise RFabricError(f"no cheapest grouping of {len(jobs)} jobs found: {solution.message}")
    chosen = [group for group, share in zip(groups, solution.x, strict=True) if share > 0.5]
    return sum(group.price(pools) for group in chosen), chosen


def _inside(jobs: Sequence[Job], groups: Sequence[ExecutionGroup]):
    """Which job (row) is in which group (column): 1 where it is."""
    from scipy.sparse import csc_array

    index = {job.name: i for i, job in enumerate(jobs)}
    rows = np.array([index[job.name] for group in groups for job in group.jobs])
    starts = np.cumsum([0, *(len(group.jobs) for group in groups)])
    return csc_array((np.ones(len(rows)), rows, starts), shape=(len(jobs), len(groups)))


def _useful(groups: Iterable[ExecutionGroup], pools: Pools) -> Iterator[ExecutionGroup]:
    """Those that cost less than without one of their jobs and that job alone."""
    prices: dict[frozenset[str], float] = {}
    for group in groups:
        names, price = frozenset(job.name for job in group.jobs), group.price(pools)
        parts = [
            prices.get(names - {job.name}, float("inf")) + ExecutionGroup.alone(job).price(pools)
            for job in group.jobs
        ]
        if price < min(parts) * (1 - SLACK):  # always for a job alone: without it is no group
            prices[names] = min(price, prices.get(names, price))
            yield group


@contextmanager
def _silent() -> Iterator[None]:
    """HiGHS 1.12 writes lines of its own to stdout, which is for results."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def feasible(jobs: Sequence[Job], pools: Pools) -> Iterator[ExecutionGroup]:
    """Every set of jobs that may share, each as the cheapest group that keeps SLO and residency."""
    order = sorted(jobs, key=lambda job: job.profile.solo)
    for nodes in sorted({job.profile.train_nodes for job in jobs}):
        yield from _grown((), order, nodes, pools)


def _grown(
    inside: tuple[Job, ...], rest: Sequence[Job], train_nodes: int, pools: Pools
) -> Iterator[ExecutionGroup]:
    """Sets that hold `inside` and more jobs of `rest`; what does not fit is not grown further."""
    for i, job in enumerate(rest):
        jobs = (*inside, job)
        if not _may_train(jobs, train_nodes, pools):
            continue
        group = packed(jobs, train_nodes, pools)
        if group:
            yield group
            yield from _grown(jobs, rest[i + 1 :], train_nodes, pools)


def _may_train(jobs: tuple[Job, ...], nodes: int, pools: Pools) -> bool:
    longest = min(job.longest for job in jobs) * (1 + SLACK)
    switch = len(jobs) > 1
    trained = [job.profile.trained_on(nodes) + switch * job.profile.train_switch for job in jobs]
    return (
        sum(trained) <= longest
        and max(job.profile.roll + train for job, train in zip(jobs, trained, strict=True))
        <= longest
        and sum(job.profile.train_bytes for job in jobs) < pools.train_memory
    )


def packed(jobs: tuple[Job, ...], train_nodes: int, pools: Pools) -> ExecutionGroup | None:
    """The jobs on as few rollout nodes as keep SLO and residency, or None: every way of pinning
    them is tried.
    """
    longest = min(job.longest for job in jobs) * (1 + SLACK)
    groups = _pinned(jobs, train_nodes, longest, pools)
    return next((group for group in groups if group.period <= longest), None)


def pinnings(jobs: tuple[Job, ...], train_nodes: int, pools: Pools) -> Iterator[ExecutionGroup]:
    """Every way to pin all the jobs to rollout nodes that memory allows, whatever time it takes."""
    if sum(job.profile.train_bytes for job in jobs) < pools.train_memory:
        yield from _pinned(jobs, train_nodes, float("inf"), pools)


def _pinned(jobs, train_nodes, longest: float, pools: Pools) -> Iterator[ExecutionGroup]:
    """The jobs on few rollout nodes, then on more, each pinned in every way."""
    needs = [job.profile.roll_nodes for job in jobs]
    for count in range(max(needs), sum(needs) + 1):
        free = [0.0] * count
        for pins in _pins(jobs, count, (), free, free, longest, pools.roll_memory):
            yield ExecutionGroup(jobs, pins, count, train_nodes)


def _pins(jobs, count, pins, loads, used, longest, memory) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every pinning of jobs to `count` nodes, the same up to names once, within time and memory."""
    if len(pins) == len(jobs):
        yield pins
        return
    p = jobs[len(pins)].profile
    tried = set()
    for nodes in combinations(range(count), p.roll_nodes):
        like = tuple(sorted((loads[n], used[n]) for n in nodes))
        if like in tried:
            continue
        tried.add(like)
        if all(loads[n] + p.roll <= longest and used[n] + p.roll_bytes < memory for n in nodes):
            more, full = list(loads), list(used)
            for n in nodes:
                more[n], full[n] = more[n] + p.roll, full[n] + p.roll_bytes
            yield from _pins(jobs, count, (*pins, nodes), more, full, longest, memory)

"""The offline optimum: at every moment the cheapest way to group the jobs that are there, moving
them for nothing.

A policy that places a job once, and keeps SLO and residency as `ExecutionGroup` counts them, pays
at least this: no job is there for less than its phases take on the training nodes of whoever has
most, as it trains on all nodes of its group; no round takes less than the longest job and the
busiest node, whoever's turn is first; and fewer jobs never cost more, as groups may have as many
training nodes as any job of all asks for. So it is a bound from below that no online policy need
reach; the paper's own optimum is some way above it or on it.

    minimise  sum of price(g) x[g]  over groups g of present jobs that keep every SLO and fit memory
    with      each job in exactly one group: set partitioning

solved by scipy's HiGHS to within GAP, anew where jobs came or went.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import combinations
from operator import attrgetter

import numpy as np

from ...errors import RFabricError
from ...units import SECONDS_PER_HOUR
from .groups import SLACK, ExecutionGroup
from .jobs import Job, Pools

GAP = 1e-3  # relative: how far above the cheapest a grouping may be, as HiGHS proves it
# the seconds of a meta-iteration that SLOs are kept by
RoundSeconds = Callable[[ExecutionGroup], float]
AS_IT_STANDS: RoundSeconds = attrgetter("period")


def optimum(
    jobs: Iterable[Job], pools: Pools = Pools(), progress: Callable[[int], None] = lambda _: None
) -> float:
    """Dollars of the bound, from the first arrival to the last end of jobs never slowed."""
    jobs = [pools.admit(job) for job in jobs]
    ends, nodes = _soonest_ends(jobs), {job.profile.train_nodes for job in jobs}
    times = sorted({*(job.arrival for job in jobs), *ends})

    @cache
    def priced(present: tuple[int, ...]) -> float:
        return cheapest([jobs[i] for i in present], pools, GAP, _in_any_order, nodes)[0]

    dollars = 0.0
    for number, (begin, end) in enumerate(zip(times, times[1:], strict=False)):
        present = tuple(i for i, job in enumerate(jobs) if job.arrival <= begin and end <= ends[i])
        dollars += priced(present) * (end - begin) / SECONDS_PER_HOUR if present else 0.0
        progress(number)
    return dollars


def _in_any_order(group: ExecutionGroup) -> float:
    """A round at least, in whatever order jobs take their turns."""
    return max(group.cycle, group.load)


def _soonest_ends(jobs: Sequence[Job]) -> list[float]:
    """When each job may be done, in a group with the most training nodes."""
    nodes = max((job.profile.train_nodes for job in jobs), default=0)
    shortest = [job.by_itself.roll + job.by_itself.trained_on(nodes) for job in jobs]
    return [job.arrival + job.iterations * s for job, s in zip(jobs, shortest, strict=True)]


def cheapest(
    jobs: Sequence[Job],
    pools: Pools = Pools(),
    gap: float = GAP,
    seconds: RoundSeconds = AS_IT_STANDS,
    train_nodes: Collection[int] = (),
) -> tuple[float, list[ExecutionGroup]]:
    """(dollars an hour, groups) of the cheapest grouping of `jobs`, each group's in the order of
    the seconds they take alone; on as many training nodes as one of `train_nodes` says, left out:
    as one of the jobs asks for.

    RFabricError where the solver finds none.
    """
    from scipy.optimize import LinearConstraint, milp

    groups = list(_useful(feasible(jobs, pools, seconds, train_nodes), pools))
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


def feasible(
    jobs: Sequence[Job],
    pools: Pools,
    seconds: RoundSeconds = AS_IT_STANDS,
    train_nodes: Collection[int] = (),
) -> Iterator[ExecutionGroup]:
    """Every set of jobs that may share, each as the cheapest group that keeps SLO and residency."""
    order = sorted(jobs, key=lambda job: job.profile.solo)
    for nodes in sorted(train_nodes or {job.profile.train_nodes for job in jobs}):
        yield from _grown((), order, nodes, pools, seconds)


def _grown(
    inside: tuple[Job, ...],
    rest: Sequence[Job],
    train_nodes: int,
    pools: Pools,
    seconds: RoundSeconds,
) -> Iterator[ExecutionGroup]:
    """Sets that hold `inside` and more jobs of `rest`; what does not fit is not grown further."""
    for i, job in enumerate(rest):
        jobs = (*inside, job)
        if not _may_train(jobs, train_nodes, pools):
            continue
        group = packed(jobs, train_nodes, pools, seconds)
        if group:
            yield group
            yield from _grown(jobs, rest[i + 1 :], train_nodes, pools, seconds)


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


def packed(
    jobs: tuple[Job, ...], train_nodes: int, pools: Pools, seconds: RoundSeconds = AS_IT_STANDS
) -> ExecutionGroup | None:
    """The jobs, in their order, on as few rollout nodes as keep SLO and residency, or None: every
    way of pinning them is tried.
    """
    longest = min(job.longest for job in jobs) * (1 + SLACK)
    groups = _pinned(jobs, train_nodes, longest, pools)
    return next((group for group in groups if seconds(group) <= longest), None)


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

"""Where an arriving job goes: Weave's Algorithm 1, and the policies it is compared with.

    weave      Algorithm 1: direct packing | rollout scaling | a new group, whichever costs least
               and keeps every SLO
    solo       Solo-D, naive disaggregation: a new group for every job
    random     any placement that memory allows, or a new group, with equal chance
    most-idle  the group with most idle time, on its idlest nodes, if memory allows
    gavel      the cheapest group whose jobs still meet their SLO taking turns as wholes, one
               iteration at a time

Each asks its groups what the job would take there (`ExecutionGroup.seen`).

`random` and `most-idle` know neither saturation nor SLO. A policy is a function of job, groups,
pools and random generator; it returns the group to join and the nodes, or None for a new group.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import RFabricError
from .groups import SLACK, ExecutionGroup
from .jobs import Job, Pools


@dataclass(frozen=True)
class Placement:
    """A place for a job: index of the group to join, rollout nodes there (new ones numbered on)."""

    group: int
    nodes: tuple[int, ...]
    grown: int  # rollout nodes that are new

    @property
    def kind(self) -> str:
        """How the paper calls it."""
        return "rollout scaling" if self.grown else "direct packing"


NEW_GROUP = "new group"
JobPolicy = Callable[[Job, Sequence[ExecutionGroup], Pools, np.random.Generator], Placement | None]


def weave(
    job: Job, groups: Sequence[ExecutionGroup], pools: Pools, random: np.random.Generator
) -> Placement | None:
    """Algorithm 1: the placement that adds least to the hourly price; the first of equals."""
    best, least = None, pools.price(job.profile.roll_nodes, job.profile.train_nodes)
    for index, group in enumerate(groups):
        if group.saturated or not trains(group, job, pools):
            continue
        for nodes, grown in placements(group, job):
            added = grown * pools.roll_price
            if not (added < least and remembers(group, job, nodes, pools)):
                continue
            if keeps(group, group.seen(job, nodes), nodes):
                best, least = Placement(index, nodes, grown), added
    return best


def solo(
    job: Job, groups: Sequence[ExecutionGroup], pools: Pools, random: np.random.Generator
) -> None:
    """Always a new group."""
    return


def anywhere(
    job: Job, groups: Sequence[ExecutionGroup], pools: Pools, random: np.random.Generator
) -> Placement | None:
    """Any placement that memory allows, or a new group, with equal chance."""
    choices: list[Placement | None] = [None]
    for index, group in enumerate(groups):
        choices += [
            Placement(index, nodes, grown)
            for nodes, grown in placements(group, job)
            if fits(group, job, nodes, pools)
        ]
    return choices[int(random.integers(len(choices)))]


def most_idle(
    job: Job, groups: Sequence[ExecutionGroup], pools: Pools, random: np.random.Generator
) -> Placement | None:
    """The group whose nodes are idle for the largest share of their time, on the nodes with least
    to do.
    """
    for index in sorted(range(len(groups)), key=lambda i: -idle_share(groups[i])):
        for nodes, grown in placements(groups[index], job):
            if not grown and fits(groups[index], job, nodes, pools):
                return Placement(index, nodes, grown)
    return None


def gavel(
    job: Job, groups: Sequence[ExecutionGroup], pools: Pools, random: np.random.Generator
) -> Placement | None:
    """Whole jobs take turns: a group holds as many as their iterations, one after the other, leave
    within every SLO.
    """
    best, least = None, pools.price(job.profile.roll_nodes, job.profile.train_nodes)
    for index, group in enumerate(groups):
        nodes = tuple(range(job.profile.roll_nodes))
        grown = max(0, len(nodes) - group.roll_nodes)
        if grown > group.room:
            continue
        every = *group.jobs, group.seen(job, nodes)
        turns = sum(j.profile.roll + j.profile.trained_on(group.train_nodes) for j in every)
        added = grown * pools.roll_price
        patient = turns <= min(group.longest, job.longest) * (1 + SLACK)
        if added < least and patient and fits(group, job, nodes, pools):
            best, least = Placement(index, nodes, grown), added
    return best


POLICIES: dict[str, JobPolicy] = {
    "weave": weave,
    "solo": solo,
    "random": anywhere,
    "most-idle": most_idle,
    "gavel": gavel,
}


def policy_of(name: str) -> JobPolicy:
    """The policy called `name`. RFabricError where there is none."""
    if name not in POLICIES:
        raise RFabricError(
            f"no policy for several jobs called {name!r}; there are {', '.join(POLICIES)}"
        )
    return POLICIES[name]


def placements(group: ExecutionGroup, job: Job) -> Iterator[tuple[tuple[int, ...], int]]:
    """(nodes, how many are new): direct packing from each node on, idlest first, then with ever
    more new nodes.
    """
    needs, has = job.profile.roll_nodes, group.roll_nodes
    loads = group.roll_loads
    idlest = sorted(range(has), key=loads.__getitem__) if has > 1 else [0]
    for first in range(has - needs + 1):
        yield tuple(idlest[first : first + needs]), 0
    for grown in range(1, needs + 1):
        if needs - grown <= has and grown <= group.room:
            yield (*idlest[: needs - grown], *range(has, has + grown)), grown


def trains(group: ExecutionGroup, job: Job, pools: Pools) -> bool:
    """Whether the training nodes have memory and time for one more, wherever it generates."""
    p, longest = job.profile, min(group.longest, job.longest) * (1 + SLACK)
    if group.train_bytes + p.train_bytes >= pools.train_memory or group.longest_alone > longest:
        return False
    train = p.trained_on(group.train_nodes)
    switches = group.train_switches + p.train_switch
    return (
        group.train_load + train + switches <= longest
        and p.roll + train + p.train_switch <= longest
    )


def remembers(group: ExecutionGroup, job: Job, nodes: Sequence[int], pools: Pools) -> bool:
    """Residency: whether each of the rollout nodes can keep the job as well."""
    p = job.profile
    return all(
        group.roll_bytes[n] + p.roll_bytes < pools.roll_memory
        for n in nodes
        if n < group.roll_nodes
    )


def fits(group: ExecutionGroup, job: Job, nodes: Sequence[int], pools: Pools) -> bool:
    """Residency on rollout and training nodes."""
    return (
        remembers(group, job, nodes, pools)
        and group.train_bytes + job.profile.train_bytes < pools.train_memory
    )


def keeps(group: ExecutionGroup, job: Job, nodes: tuple[int, ...]) -> bool:
    """Whether every job, `job` among them, keeps its SLO in the joined group's meta-iteration."""
    longest = min(group.longest, job.longest) * (1 + SLACK)
    roll = job.profile.roll
    if any(group.roll_loads[n] + roll > longest for n in nodes if n < group.roll_nodes):
        return False
    return group.join(job, nodes).period <= longest


def idle_share(group: ExecutionGroup) -> float:
    """The share of the nodes' time that is idle, all nodes alike."""
    used = sum(group.roll_loads) + group.train_load * group.train_nodes
    return 1 - used / (group.period * (group.roll_nodes + group.train_nodes))

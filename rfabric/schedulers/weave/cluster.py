"""Jobs come and go for days: groups are made, grow, shrink and end, event by event, and every node-hour is paid for.

    arrival      the policy says where; the group's period changes for all its jobs
    departure    a job that has done its iterations leaves; rollout nodes nobody is pinned to are given back, training
                 nodes with the last job
    hour         only where rollouts drift: periods follow

A job does one iteration a period of its group. With `stretch` it stays until all are done, so jobs that share stay longer,
and pay; without, it leaves when it would have left alone, as when a recorded trace of jobs is replayed. SLO attainment is
over its whole stay: seconds, over those that the iterations it did would have taken alone.

`optimum` in place of a policy moves all jobs to the cheapest grouping at every arrival, or every `regroup` seconds, for
nothing: no online policy can.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...errors import RFabricError
from .groups import SLACK, Group
from .jobs import SECONDS_PER_HOUR, Job, Pools
from .optimum import cheapest
from .policies import NEW_GROUP, Policy, gavel, policy_of


@dataclass(frozen=True)
class Stay:
    """What became of a job: how it was placed, when it ended (s), seconds it would have taken alone."""

    job: Job
    kind: str
    end: float
    alone: float

    @property
    def slowdown(self) -> float:
        """Times as long as alone."""
        return (self.end - self.job.arrival) / self.alone

    @property
    def met(self) -> bool:
        """Whether the job kept its limit."""
        return self.slowdown <= self.job.slo * (1 + 1e-6)


@dataclass(frozen=True)
class Bill:
    """What a policy made of the jobs: dollars, the hours from first arrival to last end, nodes at the peak.

    busy: node-seconds worked and held, by pool; sizes: jobs that a group held at most, counted.
    """

    dollars: float
    hours: float
    stays: tuple[Stay, ...]
    peak_roll: int
    peak_train: int
    busy: dict[str, tuple[float, float]]
    sizes: dict[int, int]

    @property
    def dollars_per_hour(self) -> float:
        """US dollars an hour, over all hours."""
        return self.dollars / self.hours

    @property
    def attained(self) -> float:
        """The share of jobs that kept their SLO."""
        return sum(stay.met for stay in self.stays) / len(self.stays)

    @property
    def kinds(self) -> dict[str, float]:
        """The share of jobs by how they were placed."""
        return {kind: n / len(self.stays) for kind, n in Counter(stay.kind for stay in self.stays).items()}

    def idle(self, pool: str) -> float:
        """The share of a pool's paid time that is idle: bubbles."""
        worked, held = self.busy[pool]
        return 1 - worked / held


@dataclass
class _Running:
    """A group under way: what is left to do of each job, since when it has run as it does."""

    group: Group
    left: dict[str, float]
    since: float
    period: float = 0.0
    version: int = 0
    most: int = 1


@dataclass
class _World:
    """The state of a simulation, and its sums."""

    pools: Pools
    policy: Policy | None  # None: the optimum
    random: np.random.Generator
    regroup: float = 0.0
    stretch: bool = True
    running: dict[int, _Running] = field(default_factory=dict)
    events: list[tuple[float, int, int]] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    alone: dict[str, float] = field(default_factory=dict)
    stays: list[Stay] = field(default_factory=list)
    dollars: float = 0.0
    busy: dict[str, list[float]] = field(default_factory=lambda: {"roll": [0.0, 0.0], "train": [0.0, 0.0]})
    peak_roll: int = 0
    peak_train: int = 0
    sizes: Counter = field(default_factory=Counter)
    made: int = 0


OPTIMUM = "optimum"
REGROUP = -1  # the key of regrouping among the events of groups


def run(
    jobs: Iterable[Job],
    policy: str | Policy = "weave",
    pools: Pools = Pools(),
    seed: int = 0,
    regroup: float = 0.0,
    stretch: bool = True,
    progress: Callable[[int], None] = lambda _: None,
) -> Bill:
    """What `policy` makes of `jobs`, from the first arrival to the last end; RFabricError for jobs that cannot run."""
    jobs = sorted((pools.admit(job) for job in jobs), key=lambda job: job.arrival)
    _distinct(jobs)
    chosen = None if policy == OPTIMUM else policy_of(policy) if isinstance(policy, str) else policy
    world = _World(pools, chosen, np.random.default_rng(seed), regroup, stretch)
    if regroup:
        heapq.heappush(world.events, (jobs[0].arrival + regroup, REGROUP, 0))
    for done, job in enumerate(jobs):
        _pass(world, job.arrival)
        _arrive(world, job)
        progress(done)
    _pass(world, float("inf"))
    last = max(stay.end for stay in world.stays)
    return Bill(
        world.dollars, (last - jobs[0].arrival) / SECONDS_PER_HOUR, tuple(world.stays), world.peak_roll,
        world.peak_train, {pool: tuple(sums) for pool, sums in world.busy.items()}, dict(world.sizes),
    )  # fmt: skip


def actual(job: Job, left: float) -> float:
    """Seconds of a rollout of `job` now, with `left` iterations to go."""
    begin, end = job.drift
    return job.profile.roll * (end + (begin - end) * left / job.iterations)


def _distinct(jobs: Sequence[Job]) -> None:
    if not jobs:
        raise RFabricError("no jobs; give one at least")
    name, count = Counter(job.name for job in jobs).most_common(1)[0]
    if count > 1:
        raise RFabricError(f"job {name} stands {count} times; give each its own name")


def _arrive(world: _World, job: Job) -> None:
    world.alone[job.name], world.kinds[job.name] = 0.0, NEW_GROUP
    if world.policy is None:
        _begin(world, Group.alone(job), {job.name: job.iterations}, job.arrival)
        _regroup(world, job.arrival)
    else:
        _place(world, job)
    _peaks(world, job)


def _place(world: _World, job: Job) -> None:
    """Where the policy says."""
    keys = list(world.running)
    place = world.policy(job, [world.running[key].group for key in keys], world.pools, world.random)
    if place is None:
        _begin(world, Group.alone(job), {job.name: job.iterations}, job.arrival)
        return
    state = world.running[keys[place.group]]
    _settle(world, state, job.arrival)
    state.group = state.group.join(job, place.nodes)
    state.left[job.name] = job.iterations
    state.most = max(state.most, len(state.group.jobs))
    world.kinds[job.name] = place.kind
    _set_off(world, keys[place.group])


def _begin(world: _World, group: Group, left: dict[str, float], now: float) -> None:
    key, world.made = world.made, world.made + 1
    world.running[key] = _Running(group, left, now, most=len(group.jobs))
    _set_off(world, key)


def _regroup(world: _World, now: float) -> None:
    """Every job to where all together are cheapest as they are now."""
    left: dict[str, float] = {}
    for state in world.running.values():
        _settle(world, state, now)
        left |= state.left
    jobs = {job.name: job for state in world.running.values() for job in state.group.jobs}
    if not jobs:
        return
    world.running.clear()
    seen = [replace(j, profile=replace(j.profile, roll=actual(j, left[j.name]))) for j in jobs.values()]
    for group in cheapest(seen, world.pools)[1]:
        mine = tuple(jobs[job.name] for job in group.jobs)
        _begin(world, replace(group, jobs=mine), {job.name: left[job.name] for job in mine}, now)


def _pass(world: _World, until: float) -> None:
    """Everything that happens before `until`."""
    while world.events and world.events[0][0] <= until:
        now, key, version = heapq.heappop(world.events)
        if key == REGROUP:
            _tick(world, now, until)
        elif key in world.running and world.running[key].version == version:
            _end(world, key, now)


def _tick(world: _World, now: float, until: float) -> None:
    if world.policy is None:
        _regroup(world, now)
    if world.running or until < float("inf"):
        heapq.heappush(world.events, (now + world.regroup, REGROUP, 0))


def _end(world: _World, key: int, now: float) -> None:
    """Jobs of a group that have done all leave; the rest runs on."""
    state = world.running[key]
    _settle(world, state, now)
    for job in [job for job in state.group.jobs if state.left[job.name] <= SLACK * job.iterations]:
        _depart(world, state, job, now)
    if state.group.jobs:
        _set_off(world, key)
    else:
        world.sizes[state.most] += 1
        del world.running[key]


def _depart(world: _World, state: _Running, job: Job, now: float) -> None:
    del state.left[job.name]
    state.group = state.group.leave(job.name)
    world.stays.append(Stay(job, world.kinds[job.name], now, world.alone[job.name]))


def _settle(world: _World, state: _Running, now: float) -> None:
    """Book what the group did and cost since it was last looked at."""
    seconds, group = now - state.since, state.group
    state.since = now
    if seconds <= 0:
        return
    rounds = seconds / state.period
    for (roll, train), job, nodes in zip(_phases(state), group.jobs, group.pins, strict=True):
        alone = roll + job.profile.train + job.profile.sync
        world.alone[job.name] += rounds * alone
        world.busy["roll"][0] += rounds * roll * len(nodes)
        world.busy["train"][0] += rounds * train * group.train_nodes
        done = rounds if world.stretch else seconds / alone
        state.left[job.name] = max(0.0, state.left[job.name] - done)
    world.busy["roll"][1] += seconds * group.roll_nodes
    world.busy["train"][1] += seconds * group.train_nodes
    world.dollars += group.price(world.pools) * seconds / SECONDS_PER_HOUR


def _set_off(world: _World, key: int) -> None:
    """The group runs on as it is now: its next event is the first job's end, or the hour where rollouts drift."""
    state = world.running[key]
    state.version += 1
    state.period = _period(world, state)
    end = min(state.left[job.name] * _pace(world, state, job) for job in state.group.jobs)
    if any(job.drift[0] != job.drift[1] for job in state.group.jobs):
        end = min(end, SECONDS_PER_HOUR)
    heapq.heappush(world.events, (state.since + end, key, state.version))


def _pace(world: _World, state: _Running, job: Job) -> float:
    """Seconds until the job has one iteration less to go."""
    if world.stretch:
        return state.period
    return actual(job, state.left[job.name]) + job.profile.train + job.profile.sync


def _phases(state: _Running) -> list[tuple[float, float]]:
    """(roll, train) seconds of each job now, without switches."""
    group = state.group
    return [(actual(job, state.left[job.name]), job.profile.trained_on(group.train_nodes)) for job in group.jobs]


def _period(world: _World, state: _Running) -> float:
    if world.policy is gavel:
        return sum(roll + train for roll, train in _phases(state))
    if all(job.drift == (1.0, 1.0) for job in state.group.jobs):
        return state.group.period
    return drifted(state.group, [roll for roll, _ in _phases(state)]).period


def drifted(group: Group, rolls: Sequence[float]) -> Group:
    """The group with rollouts of `rolls` seconds."""
    jobs = [replace(j, profile=replace(j.profile, roll=r)) for j, r in zip(group.jobs, rolls, strict=True)]
    return replace(group, jobs=tuple(jobs))


def _peaks(world: _World, job: Job) -> None:
    roll = sum(state.group.roll_nodes for state in world.running.values())
    train = sum(state.group.train_nodes for state in world.running.values())
    for pool, used, has in (("rollout", roll, world.pools.roll_nodes), ("training", train, world.pools.train_nodes)):
        if used > has:
            raise RFabricError(f"job {job.name}: needs {used - has} more {pool} nodes, all {has} of the pool are taken")
    world.peak_roll, world.peak_train = max(world.peak_roll, roll), max(world.peak_train, train)

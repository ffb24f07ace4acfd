"""Jobs come and go for days: groups are made, grow, shrink and end, event by event, and every
node-hour is paid for.

    arrival    the policy says where; the group's period changes for all its jobs
    departure  a job that has done its iterations leaves; rollout nodes nobody is pinned to are
               given back, training nodes with the last job
    hour       only where rollouts drift: periods follow

A job does one iteration a period of its group. How long it stays, and what its group is billed for,
is one of STAYS:

    done     until its work is done: who shares stays longer, and pays
    trace    as long as it would have alone, as when a recorded trace of jobs is replayed; work that
             is left over is not paid for
    late     the same, but a group with jobs over their SLO keeps its nodes until the slowest of
             these has done its work: an hour of it is billed as often as that job is slower
    slowest  the same of all jobs, SLO or not

SLO attainment is over its whole stay: seconds, over those that the iterations it did would have
taken alone.

`optimum` in place of a policy moves all jobs to the cheapest grouping at every arrival, or every
`regroup` seconds, for nothing: no online policy can.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...errors import RFabricError
from ...units import SECONDS_PER_HOUR
from .floor import Floor
from .groups import SLACK, ExecutionGroup
from .jobs import Job, Pools
from .optimum import cheapest
from .policies import NEW_GROUP, JobPolicy, gavel, policy_of


@dataclass(frozen=True)
class Stay:
    """What became of a job: how it was placed, when it ended (s), seconds it would have taken
    alone.
    """

    job: Job
    kind: str
    end: float
    alone: float

    @property
    def slowdown(self) -> float:
        """Its stay over the seconds that it would have taken alone."""
        return (self.end - self.job.arrival) / self.alone

    @property
    def met(self) -> bool:
        """Whether it kept its SLO, to a millionth."""
        return self.slowdown <= self.job.slo * (1 + 1e-6)


@dataclass(frozen=True)
class ClusterBill:
    """What a policy made of the jobs: dollars, the hours from first arrival to last end, nodes at
    the peak.

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
        """Dollars an hour, mean from the first arrival to the last end."""
        return self.dollars / self.hours

    @property
    def attained(self) -> float:
        """The share of jobs that kept their SLO."""
        return sum(stay.met for stay in self.stays) / len(self.stays)

    @property
    def kinds(self) -> dict[str, float]:
        """The share of jobs by how they were placed."""
        return {
            kind: n / len(self.stays)
            for kind, n in Counter(stay.kind for stay in self.stays).items()
        }

    def idle(self, pool: str) -> float:
        """The share of a pool's paid time that is idle: bubbles."""
        worked, held = self.busy[pool]
        return 1 - worked / held


@dataclass
class _Running:
    """A group under way: what is left to do of each job, since when it has run as it does."""

    group: ExecutionGroup
    left: dict[str, float]
    since: float
    most: int
    period: float = 0.0
    version: int = 0


@dataclass
class _ClusterState:
    """The state of a simulation, and its sums."""

    pools: Pools
    policy: JobPolicy | None  # None: the optimum
    random: np.random.Generator
    regroup: float = 0.0
    stay: str = "done"
    running: dict[int, _Running] = field(default_factory=dict)
    events: list[tuple[float, int, int]] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    alone: dict[str, float] = field(default_factory=dict)
    stays: list[Stay] = field(default_factory=list)
    dollars: float = 0.0
    busy: dict[str, list[float]] = field(
        default_factory=lambda: {"roll": [0.0, 0.0], "train": [0.0, 0.0]}
    )
    peak_roll: int = 0
    peak_train: int = 0
    sizes: Counter = field(default_factory=Counter)
    made: int = 0
    floor: Floor | None = None

    def group_of(self, job: Job) -> ExecutionGroup:
        """A new group of this job alone."""
        return self.floor.alone(job) if self.floor else ExecutionGroup.alone(job)


OPTIMUM = "optimum"
STAYS = "done", "trace", "late", "slowest"
REGROUP = -1  # the key of regrouping among the events of groups


def run(
    jobs: Iterable[Job],
    policy: str | JobPolicy = "weave",
    pools: Pools = Pools(),
    seed: int = 0,
    regroup: float = 0.0,
    stay: str = "done",
    progress: Callable[[int], None] = lambda _: None,
    floor: Floor | None = None,
) -> ClusterBill:
    """What `policy` makes of `jobs`, from the first arrival to the last end; RFabricError for jobs
    that cannot run, or a `stay` that is none of STAYS.

    floor: the servers of a fabric that groups stand on; what jobs take is then what it answers.
    """
    if stay not in STAYS:
        raise RFabricError(f"jobs cannot stay {stay!r}; they stay {', '.join(STAYS)}")
    if floor and policy == OPTIMUM:
        raise RFabricError(
            f"{OPTIMUM} moves all jobs at every arrival, and stands on no fabric; leave the fabric "
            "out, or choose a policy"
        )
    jobs = sorted((pools.admit(job) for job in jobs), key=lambda job: job.arrival)
    _distinct(jobs)
    chosen = None if policy == OPTIMUM else policy_of(policy) if isinstance(policy, str) else policy
    random = np.random.default_rng(seed)
    cluster = _ClusterState(pools, chosen, random, regroup, stay, floor=floor)
    if regroup:
        heapq.heappush(cluster.events, (jobs[0].arrival + regroup, REGROUP, 0))
    for done, job in enumerate(jobs):
        _pass(cluster, job.arrival)
        _arrive(cluster, job)
        progress(done)
    _pass(cluster, float("inf"))
    last = max(stay.end for stay in cluster.stays)
    return ClusterBill(
        cluster.dollars,
        (last - jobs[0].arrival) / SECONDS_PER_HOUR,
        tuple(cluster.stays),
        cluster.peak_roll,
        cluster.peak_train,
        {pool: tuple(sums) for pool, sums in cluster.busy.items()},
        dict(cluster.sizes),
    )


def actual(job: Job, left: float) -> float:
    """Seconds of a rollout of `job` now, with `left` iterations to go."""
    return job.profile.roll * _drifted_to(job, left)


def alone(job: Job, left: float) -> float:
    """Seconds that an iteration of `job` would take now with nobody beside it."""
    p = job.by_itself
    return p.roll * _drifted_to(job, left) + p.train + p.sync


def _drifted_to(job: Job, left: float) -> float:
    begin, end = job.drift
    return end + (begin - end) * left / job.iterations


def _distinct(jobs: Sequence[Job]) -> None:
    if not jobs:
        raise RFabricError("no jobs; give one at least")
    name, count = Counter(job.name for job in jobs).most_common(1)[0]
    if count > 1:
        raise RFabricError(f"job {name} stands {count} times; give each its own name")


def _arrive(cluster: _ClusterState, job: Job) -> None:
    cluster.alone[job.name], cluster.kinds[job.name] = 0.0, NEW_GROUP
    if cluster.policy is None:
        _begin(cluster, ExecutionGroup.alone(job), {job.name: job.iterations}, job.arrival)
        _regroup(cluster, job.arrival)
    else:
        _place(cluster, job)
    _peaks(cluster, f"job {job.name}")


def _place(cluster: _ClusterState, job: Job) -> None:
    """Where the policy says."""
    if cluster.floor:
        job = cluster.floor.arriving(job, [state.group for state in cluster.running.values()])
    keys = [key for key, state in cluster.running.items() if state.group.takes(job)]
    place = cluster.policy(
        job, [cluster.running[key].group for key in keys], cluster.pools, cluster.random
    )
    if place is None:
        _begin(cluster, cluster.group_of(job), {job.name: job.iterations}, job.arrival)
        return
    state = cluster.running[keys[place.group]]
    _settle(cluster, state, job.arrival)
    state.group = state.group.join(state.group.seen(job, place.nodes), place.nodes)
    state.left[job.name] = job.iterations
    state.most = max(state.most, len(state.group.jobs))
    cluster.kinds[job.name] = place.kind
    _set_off(cluster, keys[place.group])


def _begin(
    cluster: _ClusterState, group: ExecutionGroup, left: dict[str, float], now: float
) -> None:
    key, cluster.made = cluster.made, cluster.made + 1
    cluster.running[key] = _Running(group, left, now, len(group.jobs))
    _set_off(cluster, key)


def _regroup(cluster: _ClusterState, now: float) -> None:
    """Every job to where all together are cheapest as they are now."""
    left: dict[str, float] = {}
    for state in cluster.running.values():
        _settle(cluster, state, now)
        left |= state.left
    jobs = {job.name: job for state in cluster.running.values() for job in state.group.jobs}
    if not jobs:
        return
    cluster.running.clear()
    seen = [
        replace(j, profile=replace(j.profile, roll=actual(j, left[j.name]))) for j in jobs.values()
    ]
    for group in cheapest(seen, cluster.pools)[1]:
        mine = tuple(jobs[job.name] for job in group.jobs)
        _begin(cluster, replace(group, jobs=mine), {job.name: left[job.name] for job in mine}, now)


def _pass(cluster: _ClusterState, until: float) -> None:
    """Everything that happens before `until`."""
    while cluster.events and cluster.events[0][0] <= until:
        now, key, version = heapq.heappop(cluster.events)
        if key == REGROUP:
            _tick(cluster, now, until)
        elif key in cluster.running and cluster.running[key].version == version:
            _end(cluster, key, now)


def _tick(cluster: _ClusterState, now: float, until: float) -> None:
    if cluster.policy is None:
        _regroup(cluster, now)
        _peaks(cluster, f"regrouping at {now:g} s")
    if cluster.running or until < float("inf"):
        heapq.heappush(cluster.events, (now + cluster.regroup, REGROUP, 0))


def _end(cluster: _ClusterState, key: int, now: float) -> None:
    """Jobs of a group that have done all leave; the rest runs on."""
    state = cluster.running[key]
    _settle(cluster, state, now)
    for job in [job for job in state.group.jobs if state.left[job.name] <= SLACK * job.iterations]:
        _depart(cluster, state, job, now)
    if state.group.jobs:
        _set_off(cluster, key)
    else:
        cluster.sizes[state.most] += 1
        del cluster.running[key]


def _depart(cluster: _ClusterState, state: _Running, job: Job, now: float) -> None:
    del state.left[job.name]
    state.group = state.group.leave(job.name)
    cluster.stays.append(Stay(job, cluster.kinds[job.name], now, cluster.alone[job.name]))


def _settle(cluster: _ClusterState, state: _Running, now: float) -> None:
    """Book what the group did and cost since it was last looked at."""
    seconds, group = now - state.since, state.group
    state.since = now
    rounds, billed = seconds / state.period, _times_billed(cluster, state)
    for (roll, train), job, nodes in zip(_phases(state), group.jobs, group.pins, strict=True):
        by_itself = alone(job, state.left[job.name])
        cluster.alone[job.name] += rounds * by_itself
        cluster.busy["roll"][0] += rounds * roll * len(nodes)
        cluster.busy["train"][0] += rounds * train * group.train_nodes
        done = rounds if cluster.stay == "done" else seconds / by_itself
        left = state.left[job.name] - done  # a late clock tells no shorter times apart
        state.left[job.name] = left if left * by_itself > math.ulp(now) else 0.0
    cluster.busy["roll"][1] += seconds * group.roll_nodes
    cluster.busy["train"][1] += seconds * group.train_nodes
    hours = billed * seconds / SECONDS_PER_HOUR
    cluster.dollars += group.price(cluster.pools) * hours


def _times_billed(cluster: _ClusterState, state: _Running) -> float:
    """How often an hour of the group is billed: see STAYS."""
    if cluster.stay in ("done", "trace"):
        return 1.0
    slower = [(state.period / alone(j, state.left[j.name]), j) for j in state.group.jobs]
    late = cluster.stay == "late"
    return max([1.0, *(x for x, job in slower if not late or x > job.slo * (1 + 1e-6))])


def _set_off(cluster: _ClusterState, key: int) -> None:
    """The group runs on as it is now: its next event is the first job's end, or the hour where
    rollouts drift.
    """
    state = cluster.running[key]
    state.version += 1
    state.period = _period(cluster, state)
    end = min(state.left[job.name] * _pace(cluster, state, job) for job in state.group.jobs)
    if any(job.drift[0] != job.drift[1] for job in state.group.jobs):
        end = min(end, SECONDS_PER_HOUR)
    heapq.heappush(cluster.events, (state.since + end, key, state.version))


def _pace(cluster: _ClusterState, state: _Running, job: Job) -> float:
    """Seconds until the job has one iteration less to go."""
    if cluster.stay == "done":
        return state.period
    return alone(job, state.left[job.name])


def _phases(state: _Running) -> list[tuple[float, float]]:
    """(roll, train) seconds of each job now, without switches."""
    group = state.group
    return [
        (actual(job, state.left[job.name]), job.profile.trained_on(group.train_nodes))
        for job in group.jobs
    ]


def _period(cluster: _ClusterState, state: _Running) -> float:
    if cluster.policy is gavel:
        return sum(roll + train for roll, train in _phases(state))
    if all(job.drift == (1.0, 1.0) for job in state.group.jobs):
        return state.group.period
    return drifted(state.group, [roll for roll, _ in _phases(state)]).period


def drifted(group: ExecutionGroup, rolls: Sequence[float]) -> ExecutionGroup:
    """The group with rollouts of `rolls` seconds."""
    jobs = [
        replace(j, profile=replace(j.profile, roll=r))
        for j, r in zip(group.jobs, rolls, strict=True)
    ]
    return replace(group, jobs=tuple(jobs))


def _peaks(cluster: _ClusterState, who: str) -> None:
    roll = sum(state.group.roll_nodes for state in cluster.running.values())
    train = sum(state.group.train_nodes for state in cluster.running.values())
    for pool, used, has in (
        ("rollout", roll, cluster.pools.roll_nodes),
        ("training", train, cluster.pools.train_nodes),
    ):
        if used > has:
            raise RFabricError(
                f"{who}: needs {used - has} more {pool} nodes, all {has} of the pool are taken"
            )
    cluster.peak_roll = max(cluster.peak_roll, roll)
    cluster.peak_train = max(cluster.peak_train, train)

"""A co-execution group: jobs that share rollout and training nodes, and their round robin.

    node r1   |  roll A  |  roll B  |.......|  roll A  |  roll B  |  two jobs on one rollout node
    training  |..........|  train A | train B |........|  train A |  one training pool, jobs in turn
              |<------- period ------------>|

Each job is pinned to rollout nodes; all share the training nodes, to which its data parallelism is
matched. Every *meta-iteration* has one rollout and one training of each job, in one fixed order on
every node. In the steady state it takes

    period = max( cycle, load )
    cycle  = max over jobs of roll + train     the longest job is never the one that waits
    load   = max( sum of train, max over nodes of the sum of roll on it )

which is what `meta_iterations` finds, phase by phase (arXiv 2512.11306; OSDI'26 Weave). Jobs on
several nodes that share some but not all of them may wait for each other across nodes: then the
period is the largest mean of a way round the phases.

A phase on a node that several jobs share begins with its warm switch. Training holds its nodes for
the sync as well; rollout nodes take new weights into host memory beside what runs.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .jobs import Job, Pools

SLACK = 1e-9  # relative, for sums of seconds and bytes
SETTLED, MEASURED = 60, 60  # rounds simulated before, and while, iterations are timed


@dataclass(frozen=True)
class JobTurn:
    """One job's part of one meta-iteration (s)."""

    job: Job
    round: int
    roll: float
    rolled: float
    train: float
    trained: float


@dataclass(frozen=True)
class ExecutionGroup:
    """Jobs and the rollout nodes (0 .. roll_nodes - 1) that each is pinned to.

    All train on `train_nodes` nodes.
    """

    jobs: tuple[Job, ...]
    pins: tuple[tuple[int, ...], ...]
    roll_nodes: int
    train_nodes: int

    @classmethod
    def alone(cls, job: Job) -> "ExecutionGroup":
        """A group of its own, on the nodes that the job asks for."""
        nodes = job.profile.roll_nodes
        return cls((job,), (tuple(range(nodes)),), nodes, job.profile.train_nodes)

    def join(self, job: Job, nodes: tuple[int, ...]) -> "ExecutionGroup":
        """The group with `job` on `nodes`; numbers beyond the last are new nodes."""
        count = max(self.roll_nodes, max(nodes) + 1)
        return ExecutionGroup((*self.jobs, job), (*self.pins, nodes), count, self.train_nodes)

    def leave(self, name: str) -> "ExecutionGroup":
        """The group without a job, and without rollout nodes that nobody is pinned to now."""
        left = [i for i, job in enumerate(self.jobs) if job.name != name]
        used = sorted({node for i in left for node in self.pins[i]})
        new = {node: number for number, node in enumerate(used)}
        pins = tuple(tuple(new[node] for node in self.pins[i]) for i in left)
        return ExecutionGroup(tuple(self.jobs[i] for i in left), pins, len(used), self.train_nodes)

    @property
    def room(self) -> float:
        """Rollout nodes that it may grow by."""
        return float("inf")

    def takes(self, job: Job) -> bool:
        """Whether its nodes are those that a job is made for."""
        return True

    def seen(self, job: Job, nodes: tuple[int, ...]) -> Job:
        """`job` with the profile that it has when it generates on `nodes` of this group."""
        return job

    def price(self, pools: Pools) -> float:
        """Dollars an hour of all its nodes."""
        return pools.price(self.roll_nodes, self.train_nodes)

    @cached_property
    def residents(self) -> tuple[int, ...]:
        """Jobs pinned to each rollout node."""
        counts = [0] * self.roll_nodes
        for nodes in self.pins:
            for node in nodes:
                counts[node] += 1
        return tuple(counts)

    @cached_property
    def roll_loads(self) -> tuple[float, ...]:
        """Seconds that each rollout node is busy in a meta-iteration, without warm switches."""
        return self._on_nodes("roll")

    @cached_property
    def roll_bytes(self) -> tuple[float, ...]:
        """Host memory pinned on each rollout node."""
        return self._on_nodes("roll_bytes")

    @cached_property
    def train_bytes(self) -> float:
        """Host memory pinned on every training node."""
        return sum(job.profile.train_bytes for job in self.jobs)

    @cached_property
    def train_load(self) -> float:
        """Seconds that the training nodes are busy in a meta-iteration, without warm switches."""
        return sum(job.profile.trained_on(self.train_nodes) for job in self.jobs)

    @cached_property
    def train_switches(self) -> float:
        """Seconds of warm switches of training, if it is shared."""
        return sum(job.profile.train_switch for job in self.jobs)

    @cached_property
    def longest(self) -> float:
        """Seconds that the least patient job lets a meta-iteration take."""
        return min(job.longest for job in self.jobs)

    @cached_property
    def longest_alone(self) -> float:
        """Seconds of the longest job's own two phases."""
        return max(job.profile.roll + job.profile.trained_on(self.train_nodes) for job in self.jobs)

    @cached_property
    def order(self) -> tuple[tuple[float, float], ...]:
        """(roll, train) seconds of each job's turn, warm switches included."""
        return tuple(self._turn(i) for i in range(len(self.jobs)))

    @cached_property
    def cycle(self) -> float:
        """The longest job's turn without waiting."""
        return max(roll + train for roll, train in self.order)

    @cached_property
    def load(self) -> float:
        """What the busiest node has to do in a meta-iteration."""
        return max(
            sum(train for _, train in self.order),
            max(busy(self, n) for n in range(self.roll_nodes)),
        )

    @cached_property
    def period(self) -> float:
        """Seconds of a meta-iteration in the steady state: every job's iteration time."""
        return max(self.cycle, self.load) if self.plain else _slowest_way_round(self, {})

    @cached_property
    def plain(self) -> bool:
        """Whether any two jobs have all their rollout nodes in common, or none."""
        kinds = [frozenset(nodes) for nodes in set(self.pins)]
        return sum(map(len, kinds)) == len(frozenset().union(*kinds))

    def frees_nodes(self, i: int) -> bool:
        """Whether job i can leave nodes to others while its tail is decoded on the rest: it has
        several, and shares some.
        """
        return len(self.pins[i]) > 1 and any(self.residents[node] > 1 for node in self.pins[i])

    @property
    def saturated(self) -> bool:
        """Whether there are no bubbles left to fill."""
        return self.load >= self.cycle * (1 - SLACK)

    def _on_nodes(self, name: str) -> tuple[float, ...]:
        sums = [0.0] * self.roll_nodes
        for job, nodes in zip(self.jobs, self.pins, strict=True):
            for node in nodes:
                sums[node] += getattr(job.profile, name)
        return tuple(sums)

    def _turn(self, i: int) -> tuple[float, float]:
        p = self.jobs[i].profile
        roll = p.roll + (p.roll_switch if any(self.residents[n] > 1 for n in self.pins[i]) else 0.0)
        return roll, p.trained_on(self.train_nodes) + (
            p.train_switch if len(self.jobs) > 1 else 0.0
        )


def busy(group: ExecutionGroup, node: int) -> float:
    """Seconds that a rollout node works in a meta-iteration."""
    return sum(roll for (roll, _), _, nodes in _each(group) if node in nodes)


@dataclass(frozen=True)
class Tail:
    """Long-tail migration of one job, as shares of its rollout: how long it keeps its nodes, how
    long it then takes.

    The last responses move aside and take longer there; what they left is free for the next job.
    `tail.tail` says how much.
    """

    held: float = 1.0
    stretch: float = 1.0


STAYS = Tail()


def migrated_period(group: ExecutionGroup, tails: Mapping[str, Tail]) -> float:
    """Seconds of a meta-iteration in which jobs (by name) on shared nodes move their tails."""
    if not group.plain:
        return _slowest_way_round(group, tails)
    turns = [
        (roll, train, _tail(group, i, tails), group.pins[i])
        for i, (roll, train) in enumerate(group.order)
    ]
    cycle = max(roll * tail.stretch + train for roll, train, tail, _ in turns)
    loads = [
        sum(r * tail.held for r, _, tail, nodes in turns if node in nodes)
        for node in range(group.roll_nodes)
    ]
    return max(cycle, sum(train for _, train, _, _ in turns), *loads)


def _slowest_way_round(group: ExecutionGroup, tails: Mapping[str, Tail]) -> float:
    """The period of any group: the largest mean cycle of one round as a max-plus map (Karp)."""
    nodes, size = group.roll_nodes, group.roll_nodes + 1 + len(group.jobs)
    step = np.empty((size, size))
    for i in range(size):
        state = np.full(size, -np.inf)
        state[i] = 0.0
        free = state[:nodes].tolist()
        end = [float(state[nodes])]
        ready = state[nodes + 1 :].tolist()
        deque(_round(group, 0, tails, free, end, ready), 0)
        step[:, i] = [*free, *end, *ready]
    longest = np.full((size + 1, size), -np.inf)
    longest[0, nodes] = 0.0  # training, which everything waits for sooner or later
    for k in range(size):
        longest[k + 1] = (step + longest[k]).max(axis=1)
    with np.errstate(invalid="ignore"):
        means = (longest[size] - longest[:size]) / (size - np.arange(size))[:, None]
    means = np.where(np.isfinite(longest[:size]), means, np.inf).min(axis=0)
    return float(means[np.isfinite(longest[size])].max())


def _tail(group: ExecutionGroup, i: int, tails: Mapping[str, Tail]) -> Tail:
    """The tail of a job; who has its nodes alone has no reason to move it."""
    shared = any(group.residents[node] > 1 for node in group.pins[i])
    return tails.get(group.jobs[i].name, STAYS) if shared else STAYS


def _each(group: ExecutionGroup) -> Iterable[tuple[tuple[float, float], Job, tuple[int, ...]]]:
    return zip(group.order, group.jobs, group.pins, strict=True)


def violations(group: ExecutionGroup, pools: Pools) -> list[str]:
    """What a group breaks: jobs beyond their SLO in a simulated meta-iteration, nodes that hold too
    much; empty if sound.
    """
    broken = [
        f"job {job.name}: an iteration takes {seconds:.4g} s, its slo allows {job.longest:.4g} s"
        for job, seconds in zip(group.jobs, iteration_seconds(group), strict=True)
        if seconds > job.longest * (1 + SLACK)
    ]
    for node, used in enumerate(group.roll_bytes):
        if used >= pools.roll_memory:
            broken.append(
                f"rollout node {node}: {used / 1e9:.4g} GB pinned, it holds "
                f"{pools.roll_memory / 1e9:.4g} GB"
            )
    if group.train_bytes >= pools.train_memory:
        broken.append(
            f"training: {group.train_bytes / 1e9:.4g} GB pinned, a node holds "
            f"{pools.train_memory / 1e9:.4g} GB"
        )
    return broken


def iteration_seconds(group: ExecutionGroup) -> list[float]:
    """Every job's iteration time in the steady state, from simulating meta-iterations.

    Jobs take turns on the same training nodes, so in the end none is faster than the slowest. One
    that needs hardly less uses up its lead over many rounds, more than are simulated: the slowest
    counts for all.
    """
    ends: dict[str, list[float]] = {job.name: [] for job in group.jobs}
    for turn in meta_iterations(group, SETTLED + MEASURED):
        ends[turn.job.name].append(turn.trained)
    slowest = max((times[-1] - times[SETTLED - 1]) / MEASURED for times in ends.values())
    return [slowest] * len(group.jobs)


def meta_iterations(
    group: ExecutionGroup, rounds: int, tails: Mapping[str, Tail] | None = None
) -> Iterable[JobTurn]:
    """Round robin, phase by phase: nodes serve jobs in the group's order, a finished phase queues
    the next on the other pool.

    `tails` moves the tails of jobs on shared nodes aside, by name.
    """
    free, end, ready = [0.0] * group.roll_nodes, [0.0], [0.0] * len(group.jobs)
    for number in range(rounds):
        yield from _round(group, number, tails or {}, free, end, ready)


def _round(
    group: ExecutionGroup,
    number: int,
    tails: Mapping[str, Tail],
    free: list,
    end: list,
    ready: list,
) -> Iterator[JobTurn]:
    """One meta-iteration from when nodes are `free`, training has its `end` and jobs are `ready`;
    all three move on.
    """
    for i, ((roll, train), job, nodes) in enumerate(_each(group)):
        tail = _tail(group, i, tails)
        begin = max(ready[i], *(free[node] for node in nodes))
        for node in nodes:
            free[node] = begin + roll * tail.held
        rolled = begin + roll * tail.stretch
        update = max(rolled, end[0])
        end[0] = ready[i] = update + train
        yield JobTurn(job, number, begin, rolled, update, end[0])

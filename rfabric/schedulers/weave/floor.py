"""Where groups of jobs stand on a fabric: which servers are free, which of them are near each
other, and what a job takes there.

    pod 1     T T T R R R      each server trains or generates; a group has training servers and
    pod 2     T T T R R R      rollout servers of its own

Near are racks that one OCS joins, then racks that light reaches through several, then the others by
the packet switches between them. Which of them serve a job best is the fabric's to say: it is asked
for a new group in every pod, with servers as near as any are free and from each distance beyond;
and likewise for servers that a group grows by. The shortest iteration is taken, of equals
the nearest.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TypeVar

import numpy as np

from ...errors import RFabricError
from ...fabric import Fabric
from ...rl.workload import Workload
from .groups import SLACK, ExecutionGroup
from .jobs import Job, Profile
from .on_fabric import FabricProfiles
from .traffic import hardware_of

Spot = TypeVar("Spot")
LIGHTLESS = 1000  # what lies between racks that no light joins, beside the switches there


@dataclass(frozen=True)
class Servers:
    """Servers that train and servers that generate, by number; server i has the hosts of the GPUs
    from i times the size of a server on.
    """

    train: tuple[int, ...]
    roll: tuple[int, ...]

    @classmethod
    def halves(cls, fabric: Fabric, size: int) -> "Servers":
        """The first half trains: pools that are clusters of their own."""
        count = _count(fabric, size)
        return cls(tuple(range(count // 2)), tuple(range(count // 2, count)))

    @classmethod
    def of_every_pod(cls, fabric: Fabric, size: int) -> "Servers":
        """The first half of each pod trains."""
        pods: dict[int, list[int]] = {}
        for server in range(_count(fabric, size)):
            pods.setdefault(_pod(fabric, server, size), []).append(server)
        train = [server for some in pods.values() for server in some[: len(some) // 2]]
        roll = [server for some in pods.values() for server in some[len(some) // 2 :]]
        return cls(tuple(train), tuple(roll))

    def without(self, taken: Iterable[int]) -> "Servers":
        """Those that are not `taken`."""
        gone = set(taken)
        return Servers(
            *(tuple(s for s in some if s not in gone) for some in (self.train, self.roll))
        )


@dataclass(frozen=True)
class StandingGroup(ExecutionGroup):
    """A group on the servers of a fabric: `at.roll[n]` is its rollout node n."""

    floor: "Floor"
    at: Servers

    @property
    def room(self) -> float:
        """Rollout servers that are free."""
        return len(self.floor.free.roll)

    def takes(self, job: Job) -> bool:
        """Whether a job is made for the same GPUs, network cards and number of training nodes."""
        of = self.floor.workload_of
        return hardware_of(of(self.jobs[0])) == hardware_of(of(job))

    def seen(self, job: Job, nodes: tuple[int, ...]) -> Job:
        """`job` with the profile that the fabric foresees for it on `nodes`."""
        servers = self._servers(job, nodes)
        return replace(job, profile=self.floor.profile(job, self._at(servers, nodes)))

    def join(self, job: Job, nodes: tuple[int, ...]) -> "StandingGroup":
        """The group with `job` on `nodes`; new ones are the free servers that serve it best."""
        return self._standing(super().join(job, nodes), self._servers(job, nodes))

    def leave(self, name: str) -> "StandingGroup":
        """The group without a job, and without servers that nobody generates on now."""
        left = (some for job, some in zip(self.jobs, self.pins, strict=True) if job.name != name)
        used = sorted({node for some in left for node in some})
        return self._standing(super().leave(name), tuple(self.at.roll[n] for n in used))

    def _servers(self, job: Job, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """The servers of the rollout nodes where `job` has generated on `nodes`."""
        more = max(nodes) + 1 - self.roll_nodes
        if more <= 0:
            return self.at.roll
        choices = self.floor.choices(self.floor.free.roll, self.at.train, more)
        grown = [(*self.at.roll, *choice) for choice in choices]
        return self.floor.best(job, grown, lambda servers: self._at(servers, nodes))[0]

    def _at(self, servers: Sequence[int], nodes: Iterable[int]) -> Servers:
        return Servers(self.at.train, tuple(sorted(servers[node] for node in nodes)))

    def _standing(self, group: ExecutionGroup, roll: tuple[int, ...]) -> "StandingGroup":
        return replace(
            self,
            jobs=group.jobs,
            pins=group.pins,
            roll_nodes=group.roll_nodes,
            at=Servers(self.at.train, roll),
        )


@dataclass(eq=False)
class Floor:
    """The servers of a fabric that jobs stand on, by name of the job its workload; `near`: whether
    they are chosen as near each other, else by number.

    RFabricError for a job whose servers are of another size, whose GPUs do both, or whose pipeline
    runs ahead.
    """

    profiles: FabricProfiles
    servers: Servers
    workloads: Mapping[str, Workload]
    size: int
    near: bool = True
    free: Servers = field(init=False)

    def __post_init__(self):
        self.free = self.servers

    @property
    def fabric(self) -> Fabric:
        """What they are cabled to."""
        return self.profiles.fabric

    def workload_of(self, job: Job) -> Workload:
        """What a job runs."""
        w = self.workloads.get(job.name)
        if w is None:
            raise RFabricError(f"job {job.name}: no workload is given for it")
        if w.gpus_per_server != self.size or w.colocated or w.environments.servers:
            raise RFabricError(
                f"job {job.name}: {w.name} asks for servers of {w.gpus_per_server} GPUs"
                f"{', colocated' * w.colocated}, with {w.environments.servers} CPU servers; here "
                f"stand servers of {self.size} GPUs that train or generate, and none of CPUs"
            )
        if w.pipeline != "sync":
            raise RFabricError(
                f"job {job.name}: {w.name} has pipeline {w.pipeline}, and iterations are planned "
                "here whose phases follow one another; use pipeline=sync"
            )
        return w

    def profile(self, job: Job, at: Servers) -> Profile:
        """What the fabric foresees for a job on these servers."""
        return self.profiles.of(self.workload_of(job), at.train, at.roll)

    def best(
        self, job: Job, some: Iterable[Spot], servers_of: Callable[[Spot], Servers]
    ) -> tuple[Spot, Profile]:
        """The place where an iteration of a job alone is shortest, the first of equals, and its
        profile there.
        """
        each = [(place, self.profile(job, servers_of(place))) for place in some]
        least = min(profile.solo for _, profile in each) * (1 + SLACK)
        return next((place, profile) for place, profile in each if profile.solo <= least)

    def arriving(self, job: Job, groups: Iterable[ExecutionGroup]) -> Job:
        """A job that comes while `groups` hold their servers: its profile where all is free, and
        alone on those that are free now; where too few are, on any.
        """
        held = [
            server
            for group in groups
            if isinstance(group, StandingGroup)
            for server in (*group.at.train, *group.at.roll)
        ]
        self.free = self.servers.without(held)
        least = self._best(job, self.servers)[1]
        place = self._best(job, self.free) if self._hold(job, self.free) else None
        here = place[1] if place else least
        return replace(job, profile=min(least, here, key=lambda p: p.solo), alone=here)

    def alone(self, job: Job) -> StandingGroup:
        """A new group of this job on free servers. RFabricError where these are too few."""
        if not self._hold(job, self.free):
            p = job.profile
            raise RFabricError(
                f"job {job.name}: asks for {p.train_nodes} training and {p.roll_nodes} rollout "
                f"nodes of its own, {len(self.free.train)} and {len(self.free.roll)} are free on "
                f"{self.profiles.network.name}; give it more GPUs"
            )
        at, profile = self._best(job, self.free)
        group = ExecutionGroup.alone(replace(job, profile=profile))
        return StandingGroup(group.jobs, group.pins, group.roll_nodes, group.train_nodes, self, at)

    def choices(
        self, servers: Sequence[int], to: Sequence[int], count: int
    ) -> Iterator[tuple[int, ...]]:
        """So many of `servers`: the nearest to others together, then without those nearest, and so
        on while they last; where nearness is no matter, the first.
        """
        apart = self._apart(servers, to) if self.near else np.zeros(len(servers))
        order = np.argsort(apart, kind="stable")
        for distance in np.unique(apart):
            beyond = order[apart[order] >= distance][:count]
            if len(beyond) == count:
                yield tuple(servers[i] for i in beyond.tolist())

    def _hold(self, job: Job, servers: Servers) -> bool:
        train, roll = self._needs(job)
        return len(servers.train) >= train and len(servers.roll) >= roll

    def _needs(self, job: Job) -> tuple[int, int]:
        c = self.workload_of(job).cluster
        return -(-c.training_gpus // self.size), -(-c.generation_gpus // self.size)

    def _best(self, job: Job, servers: Servers) -> tuple[Servers, Profile]:
        """Where a job alone is done soonest, of the places that are tried, and its profile."""
        if not self._hold(job, servers):
            train, roll = self._needs(job)
            raise RFabricError(
                f"job {job.name}: asks for {train} training and {roll} rollout nodes, "
                f"{self.profiles.network.name} has {len(servers.train)} and {len(servers.roll)}; "
                "give it more GPUs"
            )
        return self.best(job, self._places(job, servers), lambda at: at)

    def _places(self, job: Job, servers: Servers) -> Iterator[Servers]:
        """Round the first training server of each pod."""
        train, roll = self._needs(job)
        firsts: dict[int, int] = {}
        for server in servers.train if self.near else servers.train[:1]:
            firsts.setdefault(_pod(self.fabric, server, self.size), server)
        for first in firsts.values():
            for at in self.choices(servers.train, [first], train):
                for some in self.choices(servers.roll, at, roll):
                    yield Servers(tuple(sorted(at)), tuple(sorted(some)))

    def _apart(self, servers: Sequence[int], to: Sequence[int]) -> np.ndarray:
        """How far each of `servers` is from others together."""
        racks = self._racks
        return self._far[np.ix_(racks[list(servers)], racks[list(to)])].sum(axis=1)

    @cached_property
    def _far(self) -> np.ndarray:
        return racks_apart(self.fabric)

    @cached_property
    def _racks(self) -> np.ndarray:
        """The number of the rack of each server."""
        number = {rack: i for i, rack in enumerate(self.fabric.racks)}
        hosts = self.fabric.hosts[:: self.size]
        return np.array([number[self.fabric.rack_of[host]] for host in hosts])


def racks_apart(fabric: Fabric) -> np.ndarray:
    """How far racks are from each other (float64[racks, racks]): the OCSes that light passes, or
    LIGHTLESS and the switches that packets pass; inf where neither joins them.
    """
    beside: dict[str, list[str]] = {node.name: [] for node in fabric.nodes}
    for link in fabric.links:
        a, b = link.a.node, link.b.node
        beside[a].append(b)
        beside[b].append(a)
    kind = {node.name: node.kind for node in fabric.nodes}
    apart = np.full((len(fabric.racks), len(fabric.racks)), inf)
    for i, rack in enumerate(fabric.racks):
        light = _passed(rack, beside, lambda name: kind[name] == "ocs")
        packets = _passed(rack, beside, lambda name: kind[name] != "host")
        for j, other in enumerate(fabric.racks):
            apart[i, j] = min(light.get(other, inf), LIGHTLESS + packets.get(other, inf))
    return apart


def _passed(
    rack: str, beside: Mapping[str, Sequence[str]], through: Callable[[str], bool]
) -> dict[str, int]:
    """How many switches lie between a rack and every node that is reached `through` some."""
    steps, waiting = {rack: 0}, deque([rack])
    while waiting:
        node = waiting.popleft()
        for other in beside[node]:
            if other not in steps:
                steps[other] = steps[node] + 1
                if through(other):
                    waiting.append(other)
    return {node: max(count - 1, 0) for node, count in steps.items()}


def _count(fabric: Fabric, size: int) -> int:
    count = len(fabric.hosts) // size
    if count < 2:
        raise RFabricError(
            f"{fabric.spec or fabric.name} has {len(fabric.hosts)} hosts, and servers of {size} "
            "GPUs that train and that generate need two at least; give it more"
        )
    return count


def _pod(fabric: Fabric, server: int, size: int) -> int:
    return fabric.node[fabric.hosts[server * size]].pod

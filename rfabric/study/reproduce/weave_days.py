"""Weave's two weeks with the fabric in the loop: what jobs take, and so who shares nodes with whom,
is what a fabric answers.

Jobs are those of Table 3 as recipes, every response at its longest, as Weave plans: their seconds
are those of the model, none is the paper's. The same jobs, with the same work, come to each fabric.

    scatter   Weave's weight sync: one copy crosses, a shard a pair of GPUs
    flat      every replica pulls its own copy, or what the fabric agrees to instead of it

An SLO counts from what an iteration takes alone on the same fabric.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import mean

from ...fabric import Needs
from ...rl import Workload, read_recipe
from ...schedulers.weave import ClusterBill, Job, run
from ...schedulers.weave.floor import Floor, Servers
from ...schedulers.weave.on_fabric import FabricProfiles, at_its_longest, planned_profile
from ...units import SECONDS_PER_HOUR
from . import PaperRow
from .weave_inputs import GROUP_SIZE, TRACE_JOBS, WORKLOADS, trace_arrivals
from .weave_weeks import GPUS_PER_NODE, POOLS

GPUS = 512  # servers enough for every job to have its own
NIC_BPS = 400e9
# The last is as slow as the Ethernet between the paper's clusters; there it is one a pair of GPUs
FABRICS = (
    "ideal",
    "rfabric",
    "fat-tree,oversubscription=4",
    "two-clusters,join=200Gbit/s",
    "two-clusters,join=20Gbit/s",
)
# name: weight sync, and what share of Table 3's longest responses theirs may reach
CASES = {"scatter": ("scatter", 1.0), "flat": ("flat", 1.0), "flat, short": ("flat", 1 / 8)}
# fabrics on which it matters where in them a group stands
MIXED_FABRICS = "rfabric", "fat-tree,oversubscription=4", "mixnet"


@cache
def recipe_of(kind: str, case: str) -> Workload:
    """A workload of Table 3 on its nodes, H800 and H20, planned at its longest responses."""
    strategy, share = CASES[case]
    made = WORKLOADS[kind]
    gpus = GPUS_PER_NODE * made.nodes
    settings = {
        "model": made.model,
        "cluster.training_gpus": gpus,
        "cluster.generation_gpus": gpus,
        "cluster.gpus_per_pod": GPUS_PER_NODE,
        "generation.tp": made.tp,
        "generation.batch": made.batch,
        "generation.group_size": GROUP_SIZE,
        "generation.max_response": round(made.max_tokens * share),
        "training.tp": 4 if made.size == "7B" else 8,
        "weight_sync.strategy": strategy,
    }
    w = read_recipe("grpo-64-h20", [f"{key}={value}" for key, value in settings.items()])
    return at_its_longest(w)


@dataclass(frozen=True)
class Days:
    """Jobs that come and go, what each runs, and their work: iterations that take as long by
    network cards alone as the trace says that they stay.
    """

    jobs: tuple[Job, ...]
    workloads: Mapping[str, Workload]

    def on(self, spec: str, policy: str = "weave", pods: bool = False, near: bool = True) -> "Bill":
        """What a policy makes of them on a fabric; pods: servers of every pod train and generate,
        else those of two halves.
        """
        profiles = profiles_of(spec)
        layout = Servers.of_every_pod if pods else Servers.halves
        servers = layout(profiles.fabric, GPUS_PER_NODE)
        floor = Floor(profiles, servers, self.workloads, GPUS_PER_NODE, near)
        return Bill(run(self.jobs, policy, POOLS, floor=floor), self)


@dataclass(frozen=True)
class Bill:
    """What came of the days on a fabric."""

    bill: ClusterBill
    days: Days

    @property
    def kept_by_cards(self) -> float:
        """The share of jobs within the SLO that they would have by network cards alone."""
        promised = {job.name: job.slo * job.seconds for job in self.days.jobs}
        stays = self.bill.stays
        kept = [s.end - s.job.arrival <= promised[s.job.name] * (1 + 1e-6) for s in stays]
        return mean(kept)

    @property
    def sync(self) -> float:
        """Seconds of a weight sync, the mean over jobs."""
        return mean(stay.job.profile.sync for stay in self.bill.stays)

    @property
    def sync_share(self) -> float:
        """The share of an iteration alone that is weight sync, the mean over jobs."""
        return mean(stay.job.profile.sync / stay.job.profile.solo for stay in self.bill.stays)

    @property
    def syncs_at_once(self) -> float:
        """Weight syncs under way at a moment, the mean over the days."""
        seconds = sum(stay.job.profile.sync * stay.job.iterations for stay in self.bill.stays)
        return seconds / (self.bill.hours * SECONDS_PER_HOUR)

    @property
    def groups(self) -> int:
        """Groups that were formed."""
        return sum(self.bill.sizes.values())


@cache
def profiles_of(spec: str) -> FabricProfiles:
    """What jobs take on a fabric, asked once for all days."""
    return FabricProfiles(Needs(GPUS, GPUS_PER_NODE, NIC_BPS).fabric(spec))


@cache
def days_of(case: str, seed: int, count: int = TRACE_JOBS) -> Days:
    """The two weeks, every job as in one of CASES."""
    jobs, workloads = [], {}
    for i, each in enumerate(trace_arrivals(seed, count=count)):
        name = f"job-{i + 1}"
        workloads[name] = recipe_of(each.kind, case)
        profile, _ = planned_profile(workloads[name])
        jobs.append(Job(name, profile, each.slo, each.arrival, each.seconds / profile.solo))
    return Days(tuple(jobs), workloads)


def experiment_days(seed: int) -> Iterator[PaperRow]:
    """Every case on every one of FABRICS, and what it is worth to know where in a fabric servers
    stand.
    """
    for case in CASES:
        days = days_of(case, seed)
        ideal = days.on(FABRICS[0])
        for spec in FABRICS:
            shared = ideal if spec == FABRICS[0] else days.on(spec)
            yield from _rows(f"{case}, {spec}", shared, ideal, days.on(spec, "solo"))
    for spec in MIXED_FABRICS:
        yield from _where(spec, days_of("scatter", seed))


def _rows(name: str, shared: Bill, ideal: Bill, alone: Bill) -> Iterator[PaperRow]:
    bill, why = shared.bill, _why(shared, ideal)
    over = bill.dollars / ideal.bill.dollars
    yield PaperRow(f"{name}: dollars", None, bill.dollars, "$")
    yield PaperRow(f"{name}: dollars over those on the ideal switch", None, over, why=why)
    yield PaperRow(f"{name}: Solo-D over Weave, dollars", None, alone.bill.dollars / bill.dollars)
    yield PaperRow(f"{name}: jobs within their SLO", None, bill.attained, "share")
    kept = shared.kept_by_cards
    yield PaperRow(f"{name}: jobs within the SLO they have by cards", None, kept, "share")
    yield PaperRow(f"{name}: groups formed", None, shared.groups, "groups")
    yield PaperRow(f"{name}: weight sync", None, shared.sync, "s")
    yield PaperRow(f"{name}: weight sync in an iteration alone", None, shared.sync_share, "share")
    yield PaperRow(f"{name}: weight syncs at once", None, shared.syncs_at_once, "syncs")


def _why(shared: Bill, ideal: Bill) -> str:
    """What differs from the ideal switch: how jobs were placed, and what made it so."""
    if shared is ideal:
        return "what network cards allow"
    before = {stay.job.name: stay.kind for stay in ideal.bill.stays}
    other = sum(before[stay.job.name] != stay.kind for stay in shared.bill.stays)
    return (
        f"a weight sync takes {shared.sync:.3g} s in place of {ideal.sync:.3g} s: {other} of "
        f"{len(before)} jobs are placed in another way"
    )


def _where(spec: str, days: Days) -> Iterator[PaperRow]:
    """Both kinds of servers in every pod: chosen by what the fabric answers, or by number."""
    for near, name in ((True, "as the fabric answers"), (False, "by number")):
        made = days.on(spec, pods=True, near=near)
        label = f"scatter, {spec}, both pools in every pod, servers {name}"
        yield PaperRow(f"{label}: dollars", None, made.bill.dollars, "$")
        yield PaperRow(f"{label}: weight sync", None, made.sync, "s")

"""Weave's two weeks with the fabric in the loop: what jobs take, and so who shares nodes with whom,
is what a fabric answers.

Jobs are those of Table 3 as recipes, every response at its longest, as Weave plans: their seconds
are those of the model, none is the paper's. The same jobs, with the same work, come to each fabric.

    scatter   Weave's weight sync: one copy crosses, a shard a pair of GPUs
    flat      every replica pulls its own copy, or what the fabric agrees to instead of it

An SLO counts from what an iteration takes alone on the same fabric; beside it stands how many jobs
keep the one that they would have by network cards alone. What weight syncs of several groups make
of one another is not counted: `at_once` says how many are under way at a moment.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean

from ..fabric import Needs
from ..report.compare import Table
from ..rl import Workload, read_recipe
from ..schedulers.weave import ClusterBill, Job, run
from ..schedulers.weave.floor import Floor, Servers
from ..schedulers.weave.on_fabric import FabricProfiles, at_its_longest, planned_profile
from ..units import SECONDS_PER_HOUR, show_time
from .reproduce.weave_inputs import GROUP_SIZE, TRACE_JOBS, WORKLOADS, trace_arrivals
from .reproduce.weave_weeks import GPUS_PER_NODE, POOLS

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


@dataclass(frozen=True, eq=False)
class Days:
    """Jobs that come and go, what each runs, and their work: iterations that take as long by
    network cards alone as the trace says that they stay.
    """

    jobs: tuple[Job, ...]
    workloads: Mapping[str, Workload]

    def kept_by_cards(self, bill: ClusterBill) -> float:
        """The share of jobs within the SLO that they would have by network cards alone."""
        promised = {job.name: job.slo * job.seconds for job in self.jobs}
        kept = [s.end - s.job.arrival <= promised[s.job.name] * (1 + 1e-6) for s in bill.stays]
        return mean(kept)


HALVES, PODS, BY_NUMBER = "halves", "pods", "pods, by number"


@cache
def bill_of(days: Days, spec: str, where: str = HALVES, policy: str = "weave") -> ClusterBill:
    """What a policy makes of the days on a fabric; `where`: the servers of one half train, of the
    other generate, or both are in every pod, taken as the fabric answers or by number.
    """
    profiles = profiles_of(spec)
    layout = Servers.halves if where == HALVES else Servers.of_every_pod
    servers = layout(profiles.fabric, GPUS_PER_NODE)
    floor = Floor(profiles, servers, days.workloads, GPUS_PER_NODE, where != BY_NUMBER)
    return run(days.jobs, policy, POOLS, floor=floor)


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


@dataclass(frozen=True)
class DaysRow:
    """What came of the days of a case on a fabric, `where` servers were taken there.

    otherwise: jobs that were placed in another way than on the ideal switch; sync_s: seconds of a
    weight sync, sync_share: what it is of an iteration alone, both the mean over jobs; at_once:
    weight syncs under way at a moment, the mean over the days.
    """

    case: str
    fabric: str
    where: str
    usd: float
    over_ideal: float
    solo_over_weave: float
    slo_share: float
    slo_by_cards_share: float
    groups: int
    otherwise: int
    sync_s: float
    sync_share: float
    at_once: float

    def to_json(self) -> dict:
        """With stable keys that carry their units."""
        return vars(self).copy()


def days_rows(seed: int = 0, progress: Callable[[str], None] = lambda _: None) -> Iterator[DaysRow]:
    """Every case on every one of FABRICS; and what it is worth to know where in a fabric servers
    stand.
    """
    asked = [(case, spec, HALVES) for case in CASES for spec in FABRICS]
    mixed = [("scatter", spec, where) for spec in MIXED_FABRICS for where in (PODS, BY_NUMBER)]
    for case, spec, where in (*asked, *mixed):
        progress(f"{case}, {spec}, {where}")
        yield row_of_days(days_of(case, seed), case, spec, where)


def row_of_days(days: Days, case: str, spec: str, where: str = HALVES) -> DaysRow:
    """The days on a fabric, beside those on the ideal switch and those that share nothing."""
    ideal, bill = bill_of(days, FABRICS[0]), bill_of(days, spec, where)
    before = {stay.job.name: stay.kind for stay in ideal.stays}
    syncs = [stay.job.profile.sync for stay in bill.stays]
    seconds = sum(stay.job.profile.sync * stay.job.iterations for stay in bill.stays)
    return DaysRow(
        case,
        spec,
        where,
        bill.dollars,
        bill.dollars / ideal.dollars,
        bill_of(days, spec, where, "solo").dollars / bill.dollars,
        bill.attained,
        days.kept_by_cards(bill),
        sum(bill.sizes.values()),
        sum(before[stay.job.name] != stay.kind for stay in bill.stays),
        mean(syncs),
        mean(stay.job.profile.sync / stay.job.profile.solo for stay in bill.stays),
        seconds / (bill.hours * SECONDS_PER_HOUR),
    )


NOTE = (
    "Halves: one half of the servers trains, the other generates; pods: both kinds in every pod, "
    "taken as the fabric answers, or by number. SLO: of an iteration alone on this fabric; by "
    "cards: of one by network cards alone. Otherwise: jobs that were not placed as on the ideal "
    "switch. Jobs are placed once and greedily, so that another order of partners alone moves "
    "dollars by a per cent or two, either way. At once: weight syncs under way at a moment; from "
    "about one on, a join that they share makes them slower than is counted here."
)


def days_table(rows: Sequence[DaysRow]) -> Table:
    """A line for each case and fabric."""
    columns = (
        "weight sync and fabric", "servers", "dollars", "over ideal", "Solo-D over", "SLO kept",
        "by cards", "groups", "otherwise", "sync", "of an iteration", "at once",
    )  # fmt: skip
    cells = [(f"{r.case}, {r.fabric}", *_cells(r)) for r in rows]
    return Table.of("Two weeks of jobs on a fabric", columns, cells, NOTE, (0, 1))


def _cells(r: DaysRow) -> tuple[str, ...]:
    return (
        r.where,
        f"{r.usd:,.0f}",
        f"{r.over_ideal:.3f}",
        f"{r.solo_over_weave:.2f}",
        f"{r.slo_share:.1%}",
        f"{r.slo_by_cards_share:.1%}",
        f"{r.groups:,}",
        f"{r.otherwise:,}",
        show_time(r.sync_s),
        f"{r.sync_share:.2%}",
        f"{r.at_once:.2f}",
    )

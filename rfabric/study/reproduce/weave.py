"""Weave (OSDI'26; RollMux, arXiv 2512.11306) run again: decisions, simulations,
micro-benchmarks, weight sync, two weeks.

All figures are quoted from the paper. Its jobs are made of what it states (`weave_inputs`), the
schedulers are those of `schedulers.weave`: a meta-iteration has one rollout and one training of
each job, so an iteration takes the group's period. Jobs of a trace leave when they would have left
alone, as the paper divides the bills of all systems by the same 370.2 h.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from statistics import mean, median

from ...rl import Workload, read_recipe
from ...schedulers.weave import ClusterBill, ExecutionGroup, Job, Pools, migrated_period, run
from ...schedulers.weave.cluster import OPTIMUM
from ...schedulers.weave.groups import Tail
from ...schedulers.weave.jobs import SECONDS_PER_HOUR
from ...schedulers.weave.optimum import pinnings
from ...schedulers.weave.policies import weave
from ...schedulers.weave.tail import tail
from ...units import bytes_in
from . import CIRCULAR, QUOTED, PaperRow, Progress, rows_of, span
from .weave_inputs import (
    GROUP_SIZE,
    MIXES,
    SIMULATED_HOURS,
    TRACE_HOURS,
    WORKLOADS,
    simulated_jobs,
    trace_jobs,
    workload,
)

SEEDS = 3  # traces of a kind that a simulated figure is the mean of
POOLS = Pools()


def rows(seed: int = 0, progress: Progress = lambda _: None) -> list[PaperRow]:
    """Every row, in the paper's order of sections."""
    parts = (
        micro_rows,
        sync_rows,
        headline_rows,
        simulation_rows,
        latency_rows,
        drift_rows,
        left_out,
    )
    return rows_of(parts, seed, progress)


# --- micro-benchmarks -----------------------------------------------------------------------------

MICRO = {"a": "AA", "b": "DDE", "c": "CDD"}
PAPER_SPEED = {"a": 1.82, "b": 1.90, "c": 1.99}
PAPER_SLOWDOWN = {"a": 261.8 / 257.7, "b": 552.0 / 525.4, "c": 630.8 / 574.6}
TIMES_IN_ORDER = (
    "taking the paper's three iteration times, given without names, as those of a, b and c"
)
OF_TIMES = "c"  # the micro-benchmark whose jobs the paper's own iteration times tell apart
ASIDES = (1 / 8, 1 / 4, 1 / 2)  # of the rollout GPUs, to move a tail to: what serves the group best


def micro_rows(seed: int) -> Iterator[PaperRow]:
    """Tokens a second at equal cost over Solo-D: pinned by the conservative plan, tails moved where
    that serves.
    """
    assumed = {
        "a": (
            "single-turn jobs are taken as balanced, where two fill a group exactly; the "
            "paper states no shares for A"
        ),
        "b": "shares 2.5 and 6 as stated; one iteration time for D and E",
        "c": (
            "C is taken as balanced and D's iteration as in b: D's rollouts then do not fit "
            "beside C's, which 1.99 needs"
        ),
    }
    groups = {kind: _best(kind) for kind in MICRO}
    periods = {kind: _period(group, _tails(seed)) for kind, group in groups.items()}
    for kind, group in groups.items():
        jobs, speed = " + ".join(MICRO[kind]), _throughput(group, periods[kind])
        slowdown = periods[kind] / max(job.profile.solo for job in group.jobs)
        yield PaperRow(
            (f"micro-benchmark {kind} ({jobs}): throughput over Solo-D"),
            PAPER_SPEED[kind],
            speed,
            why=assumed[kind],
            trust=CIRCULAR if kind in OF_TIMES else QUOTED,
        )
        yield PaperRow(
            (f"micro-benchmark {kind}: iteration over solo"),
            PAPER_SLOWDOWN[kind],
            slowdown,
            why=TIMES_IN_ORDER,
            trust=CIRCULAR,
        )
    gains = [groups[kind].period / periods[kind] for kind in MICRO]
    yield PaperRow(
        "long-tail migration: gain in the micro-benchmarks",
        (1.06, 1.28),
        span(gains),
        why=(
            "production DeepSeek-R1 lengths; none is gained where nodes are not shared or "
            "training is what fills the group"
        ),
    )
    pairs = [_pair("D") / WORKLOADS["D"].seconds, _pair("E") / WORKLOADS["E"].seconds]
    yield PaperRow(
        "two rollout-heavy jobs on one node: slowdown",
        (1.40, 1.64),
        span(pairs),
        why="D with D, E with E",
    )


def _pair(name: str) -> float:
    """The period of two like jobs on the same nodes."""
    one, other = Job("one", workload(name)), Job("other", workload(name))
    return ExecutionGroup.alone(one).join(other, tuple(range(one.profile.roll_nodes))).period


def _best(kind: str) -> ExecutionGroup:
    """The jobs of a micro-benchmark in the one group with most throughput a dollar, planned without
    moving tails.
    """
    jobs = tuple(Job(f"{i}{name}", workload(name)) for i, name in enumerate(MICRO[kind]))
    groups = pinnings(jobs, max(job.profile.train_nodes for job in jobs), POOLS)
    return max(groups, key=lambda group: _throughput(group, group.period))


def _throughput(group: ExecutionGroup, period: float) -> float:
    """Iterations a second and dollar, over those of the same jobs alone: the mean over jobs."""
    solo = sum(ExecutionGroup.alone(job).price(POOLS) for job in group.jobs)
    return mean(job.profile.solo / period for job in group.jobs) * solo / group.price(POOLS)


def _period(group: ExecutionGroup, tails: dict[str, list[Tail]]) -> float:
    """The period with nobody's tail moved, or everybody's to one of ASIDES: the shortest."""
    moved = [{job.name: tails[job.name[-1]][i] for job in group.jobs} for i in range(len(ASIDES))]
    return min(migrated_period(group, choice) for choice in ({}, *moved))


@cache
def _tails(seed: int) -> dict[str, list[Tail]]:
    """What moving the tail saves, by workload, for each of ASIDES."""
    return {
        name: [tail(rollout(name), seed, aside=share) for share in ASIDES] for name in WORKLOADS
    }


def rollout(name: str) -> Workload:
    """The rollout of a workload of Table 3 on its H20, with the production lengths of the default
    recipe.
    """
    kind = WORKLOADS[name]
    settings = {
        "model": kind.model,
        "cluster.gpu": "H20",
        "cluster.generation_gpus": 8 * kind.nodes,
        "generation.tp": kind.tp,
        "cluster.gpus_per_pod": 8,
        "generation.batch": kind.batch,
        "generation.group_size": GROUP_SIZE,
        "generation.max_response": kind.max_tokens,
        "training.pp": 2,
    }  # fmt: skip  what trains here plays no part, but a recipe must fit its GPUs
    return read_recipe("grpo-64", [f"{key}={value}" for key, value in settings.items()])


# --- weight sync ----------------------------------------------------------------------------------

# bytes of one bf16 copy: 7.6, 14.8 and 32.8 G parameters
WEIGHTS = {"7B": 15.2e9, "14B": 29.6e9, "32B": 65.6e9}
# Stated as 20 Gbit/s Ethernet between the clusters; 15.2 GB in 0.9 s can only be a link for every
# pair of GPUs. veRL's 8 copies over 8 links in 7.5, 13.8 and 30.7 s reach 0.81 to 0.86 of it, 0.84
# in the mean: the baseline's seconds, not the ratio.
PAIR_BPS, PAIR_REACHED = 20e9, 0.84
NVLINK_BYTES_PER_S = 450e9  # H20, one way: compute/gpus.py
NIC_BPS = 400e9 / 8  # 400 Gbit/s InfiniBand a node, a share for each GPU


def sync_rows(seed: int) -> Iterator[PaperRow]:
    """Fig. 13: flat AllGather, and one copy scattered and broadcast, on GPUs of both clusters."""
    paper = {8: (7.87, 8.33), 16: (2.62, 2.75)}
    notes = {
        8: "every GPU of the flat AllGather takes a whole copy; links of 20 Gbit/s a pair of GPUs",
        16: "broadcasts of shards one after the other, each through one GPU's share of its "
        "node's InfiniBand; at once the ratio would be "
        f"{flat_seconds(1e10) / scatter_seconds(1e10, 16, at_once=True):.1f}",
    }
    for gpus, known in paper.items():
        ratios = [flat_seconds(size) / scatter_seconds(size, gpus) for size in WEIGHTS.values()]
        yield PaperRow(
            (f"weight sync {gpus} to {gpus} GPUs: veRL over Weave"),
            known,
            span(ratios),
            why=notes[gpus],
            trust=CIRCULAR,
        )
    seconds = {8: (0.9, 1.7, 3.9), 16: (3.1, 5.8, 12.3)}
    for gpus, known in seconds.items():
        for (model, size), paper_s in zip(WEIGHTS.items(), known, strict=True):
            yield PaperRow(
                (f"weight sync {gpus} to {gpus} GPUs, {model}"),
                paper_s,
                scatter_seconds(size, gpus),
                "s",
                f"a pair of GPUs reaches {PAIR_REACHED} of its link, as veRL's seconds do",
                CIRCULAR,
            )


def flat_seconds(size: float) -> float:
    """Every generation GPU takes a copy of `size` bytes from its pair."""
    return size / bytes_in(PAIR_BPS * PAIR_REACHED, 1)


def scatter_seconds(size: float, gpus: int, at_once: bool = False) -> float:
    """One copy crosses, a shard a pair; then every shard goes to all: over NVLink in a node,
    through NICs beyond one.
    """
    across = flat_seconds(size) / gpus
    inside = size / NVLINK_BYTES_PER_S
    beyond = size / bytes_in(NIC_BPS, 1) / (gpus if at_once else 1) if gpus > 8 else 0.0
    return across + max(inside, beyond)


# --- the two weeks --------------------------------------------------------------------------------

# Tokens a second at equal cost, veRL over Solo-D in the micro-benchmarks a, b, c; H800 nodes alone
# cost 1/1.35 of both pools.
VERL_SPEED = (3216.2 / 2592.7, 1218.0 / 861.2, 1195.8 / 858.6)


def verl_time() -> float:
    """An iteration of co-located veRL over one of Solo-D: what the micro-benchmarks measured."""
    return mean(POOLS.price(1, 1) / POOLS.price(0, 1) / speed for speed in VERL_SPEED)


def verl_dollars(jobs: Sequence[Job]) -> float:
    """Every job on training nodes of its own, rollouts included."""
    nodes = (max(job.profile.roll_nodes, job.profile.train_nodes) * job.seconds for job in jobs)
    return POOLS.price(0, 1) * sum(nodes) * verl_time() / SECONDS_PER_HOUR


def headline_rows(seed: int) -> Iterator[PaperRow]:
    """200 jobs of the published statistics: bills of Solo-D and veRL over Weave's, SLOs, how
    arrivals were placed.
    """
    traces = [trace_jobs(seed + i) for i in range(SEEDS)]
    shared, alone = (
        [_replayed(jobs) for jobs in traces],
        [_replayed(jobs, "solo") for jobs in traces],
    )
    yield PaperRow(
        "two weeks, 200 jobs: Solo-D over Weave, dollars",
        1.84,
        _ratio(alone, shared),
        why=_why_headline(traces),
    )
    yield PaperRow(
        "two weeks: veRL over Weave, dollars",
        1.38,
        _verl(traces, shared),
        why="its time is that of the micro-benchmarks",
    )
    yield from _scaled_rows(seed)
    yield PaperRow(
        "two weeks: jobs within their SLO", 1.0, mean(bill.attained for bill in shared), "share"
    )
    for kind, paper in (("direct packing", 0.605), ("rollout scaling", 0.15), ("new group", 0.245)):
        ours = mean(bill.kinds.get(kind, 0.0) for bill in shared)
        yield PaperRow(f"two weeks: arrivals by {kind}", paper, ours, "share")
    for pool, name, paper in (("roll", "rollout", 0.244), ("train", "training", 0.431)):
        less = mean(1 - s.idle(pool) / a.idle(pool) for s, a in zip(shared, alone, strict=True))
        yield PaperRow(
            f"two weeks: fewer bubbles in the {name} pool",
            paper,
            less,
            "share",
            "taken as a share of Solo-D's",
        )
    peaks = [
        (s.peak_roll / a.peak_roll, s.peak_train / a.peak_train)
        for s, a in zip(shared, alone, strict=True)
    ]
    for i, (gpu, paper) in enumerate((("H20", 216 / 328), ("H800", 152 / 328))):
        yield PaperRow(f"two weeks: peak {gpu} over Solo-D's", paper, mean(p[i] for p in peaks))
    hourly = mean(bill.dollars for bill in alone) / TRACE_HOURS
    yield PaperRow(
        "two weeks: Solo-D, dollars an hour",
        940.0,
        hourly,
        "$/h",
        "how many jobs ask for 16 + 16 GPUs is not stated",
    )


def _scaled_rows(seed: int) -> Iterator[PaperRow]:
    traces = [trace_jobs(seed + i, scaled=True) for i in range(SEEDS)]
    shared, alone = (
        [_replayed(jobs) for jobs in traces],
        [_replayed(jobs, "solo") for jobs in traces],
    )
    why = "iterations from 2 to 38 min seldom fit one period within an SLO of 1 to 2"
    label = "the same with maximum lengths of 4k to 32k"
    yield PaperRow(f"{label}: Solo-D over Weave, dollars", 1.84, _ratio(alone, shared), why=why)
    yield PaperRow(f"{label}: veRL over Weave, dollars", 1.38, _verl(traces, shared), why=why)


def _verl(traces: Sequence[Sequence[Job]], shared: Sequence[ClusterBill]) -> float:
    return mean(
        verl_dollars(jobs) / bill.dollars for jobs, bill in zip(traces, shared, strict=True)
    )


def _why_headline(traces: Sequence[Sequence[Job]]) -> str:
    stretched = mean(run(jobs, "solo").dollars / run(jobs).dollars for jobs in traces)
    return (
        "which job ran what, and how arrivals cluster, is not stated: Table 3 as it stands, "
        "E's share from the mean maximum length, even arrivals. Where slowed jobs stay until "
        f"their work is done: {stretched:.2f}"
    )


def _replayed(
    jobs: Sequence[Job], policy: str = "weave", seed: int = 0, regroup: float = 0.0
) -> ClusterBill:
    return run(jobs, policy, POOLS, seed, regroup, stretch=False)


def _ratio(bills: Sequence[ClusterBill], over: Sequence[ClusterBill]) -> float:
    return mean(bill.dollars / other.dollars for bill, other in zip(bills, over, strict=True))


# --- 300 jobs -------------------------------------------------------------------------------------

PAPER_COST = {"BL": 1.12, "RH": 1.10, "TH": 1.01, "mixed": 1.06}
OPTIMUM_IS = (
    "optimum: the cheapest grouping of all present jobs (to 0.1 %) at every arrival, "
    "moved for nothing"
)


def simulation_rows(seed: int) -> Iterator[PaperRow]:
    """Cost of 300 jobs with the profiles of Table 6 over the offline optimum, for Weave, Random and
    Most-Idle.
    """
    others: dict[str, list[tuple[float, float]]] = {"random": [], "most-idle": []}
    for mix in MIXES:
        traces = [simulated_jobs(mix, seed + i) for i in range(SEEDS)]
        best = [_replayed(jobs, OPTIMUM) for jobs in traces]
        ours = [_replayed(jobs) for jobs in traces]
        yield PaperRow(
            f"300 jobs, {mix}: Weave over the offline optimum, dollars",
            PAPER_COST[mix],
            _ratio(ours, best),
            why=OPTIMUM_IS,
        )
        yield PaperRow(
            (f"300 jobs, {mix}: jobs within their SLO"),
            1.0,
            mean(bill.attained for bill in ours),
            "share",
        )
        for name, found in others.items():
            bills = [_replayed(jobs, name, seed + i) for i, jobs in enumerate(traces)]
            found.append((_ratio(bills, best), mean(bill.attained for bill in bills)))
    why = (
        "its rules are not stated. Here it knows memory alone, and packs without end: cheap by "
        "the hour and far too slow, which bills of jobs that leave on time do not show"
    )
    for name, cost, slo in (
        ("random", (1.72, 2.00), (0.37, 0.58)),
        ("most-idle", (1.38, 1.89), (0.42, 0.61)),
    ):
        costs, attained = zip(*others[name], strict=True)
        yield PaperRow(
            (f"300 jobs: {name} over the offline optimum, dollars"), cost, span(costs), why=why
        )
        yield PaperRow(f"300 jobs: {name}, jobs within their SLO", slo, span(attained), "share")


# --- decisions ------------------------------------------------------------------------------------

PAPER_MS = {5: 5.6, 9: 6.5, 13: 7.6, 100: 41.9, 500: 198.0, 1000: 318.0, 2000: 591.0}
TIMED = 15  # decisions that a latency is the median of


def latency_rows(seed: int) -> Iterator[PaperRow]:
    """Table 5: one decision with so many jobs present, and how it grows."""
    ours = {count: seconds * 1e3 for count, seconds in latencies(tuple(PAPER_MS), seed).items()}
    for count, paper in PAPER_MS.items():
        yield PaperRow(
            f"decision with {count:,} jobs",
            paper,
            ours[count],
            "ms",
            "on this machine; less is better",
        )
    for low, high in ((100, 1000), (100, 2000), (1000, 2000)):
        yield PaperRow(
            (f"decision, {high:,} over {low:,} jobs"),
            PAPER_MS[high] / PAPER_MS[low],
            ours[high] / ours[low],
        )


def latencies(counts: Sequence[int], seed: int = 0) -> dict[int, float]:
    """CPU seconds of a decision (median) by how many jobs of the mixed profiles are present."""
    jobs = iter(simulated_jobs("mixed", seed, max(counts)))
    extra = simulated_jobs("mixed", seed + 1, TIMED)
    groups: list[ExecutionGroup] = []
    present, found = 0, {}
    for count in sorted(counts):
        for _ in range(count - present):
            _join(groups, next(jobs))
        present = count
        found[count] = median(_timed(job, groups) for job in extra)
    return found


def _join(groups: list[ExecutionGroup], job: Job) -> None:
    place = weave(job, groups, POOLS, None)
    if place is None:
        groups.append(ExecutionGroup.alone(job))
    else:
        groups[place.group] = groups[place.group].join(job, place.nodes)


def _timed(job: Job, groups: Sequence[ExecutionGroup]) -> float:
    """The fastest of three: what else the machine does only adds."""
    found = []
    for _ in range(3):
        began = time.process_time()
        weave(job, groups, POOLS, None)
        found.append(time.process_time() - began)
    return min(found)


# --- drift ----------------------------------------------------------------------------------------

DRIFT_JOBS = 100  # the first half of the two weeks: hourly regrouping of all is slow to work out
DRIFTS = {
    "increasing": ((0.5, 1.0),),
    "decreasing": ((1.0, 0.5),),
    "mixed": ((0.5, 1.0), (1.0, 0.5)),
}
PAPER_DRIFT = {"increasing": (1.11, 0.986), "decreasing": (1.10, 0.987), "mixed": (1.08, 0.956)}


def drift_rows(seed: int) -> Iterator[PaperRow]:
    """Placed once, by conservative profiles, while rollouts drift; over regrouping all for nothing
    every hour.
    """
    still = _drifted(seed, ((1.0, 1.0),))
    why = (
        "how far lengths drift is not stated: rollouts go from half of the conservative "
        f"profile to all of it, or back, in the first {DRIFT_JOBS} jobs; without drift the "
        f"ratio is {still[0]:.2f}"
    )
    for name, ways in DRIFTS.items():
        cost, attained = _drifted(seed, ways)
        yield PaperRow(
            (f"drift, {name}: placed once over hourly regrouping, dollars"),
            PAPER_DRIFT[name][0],
            cost,
            why=why,
        )
        yield PaperRow(
            (f"drift, {name}: jobs within their SLO"), PAPER_DRIFT[name][1], attained, "share", why
        )


def _drifted(seed: int, ways: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(cost over hourly regrouping, share of jobs within their SLO) of the two weeks with these
    drifts in turn.
    """
    jobs = [
        replace(job, drift=ways[i % len(ways)])
        for i, job in enumerate(trace_jobs(seed)[:DRIFT_JOBS])
    ]
    static, best = _replayed(jobs), _replayed(jobs, OPTIMUM, regroup=SECONDS_PER_HOUR)
    return static.dollars / best.dollars, static.attained


def left_out(seed: int) -> Iterator[PaperRow]:
    """What cannot be run, and why."""
    nodes = (
        "nodes a job asks for in the Philly trace, and so dollars over its "
        f"{SIMULATED_HOURS:g} h, are not stated"
    )
    yield PaperRow("300 jobs, mixed: Weave, dollars an hour", 870.0, None, "$/h", nodes)
    yield PaperRow("300 jobs, mixed: optimum, dollars an hour", 810.0, None, "$/h", nodes)
    for kind, paper in (("a", 1.73), ("b", 1.43), ("c", 1.78)):
        why = "how Gavel was extended to phases, and what it then chose, is not stated"
        yield PaperRow(f"micro-benchmark {kind}: throughput over Gavel+", paper, None, why=why)
    yield PaperRow(
        "drift: time spent on hourly regrouping",
        32.9,
        None,
        "h",
        "which jobs the paper's optimum moves is not stated",
    )

"""Weave (OSDI'26; RollMux, arXiv 2512.11306) run again: decisions, simulations,
micro-benchmarks, weight sync, two weeks.

All figures are quoted from the paper. Its jobs are made of what it states (`weave_inputs`), the
schedulers are those of `schedulers.weave`: a meta-iteration has one rollout and one training of
each job, so an iteration takes the group's period. The two weeks, and how all bills are counted:
`weave_weeks`.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from statistics import mean, median

from ...compute.gpus import GPUS
from ...rl import Workload, read_recipe
from ...schedulers.weave import ClusterBill, ExecutionGroup, Job, migrated_period
from ...schedulers.weave.cluster import OPTIMUM, STAYS
from ...schedulers.weave.groups import Tail
from ...schedulers.weave.optimum import pinnings
from ...schedulers.weave.policies import weave
from ...schedulers.weave.tail import tail
from ...units import SECONDS_PER_HOUR, bytes_in
from . import CIRCULAR, QUOTED, PaperRow, PartBegun, rows_of, span
from .weave_inputs import (
    GROUP_SIZE,
    MIXES,
    SIMULATED_HOURS,
    WORKLOADS,
    simulated_jobs,
    trace_jobs,
    workload,
)
from .weave_weeks import (
    POOLS,
    SEEDS,
    STAY,
    derived_mix,
    experiment_mix,
    headline_rows,
    ratio,
    replayed,
    traces,
)


def rows(seed: int = 0, progress: PartBegun = lambda _: None) -> list[PaperRow]:
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
            f"micro-benchmark {kind} ({jobs}): throughput over Solo-D",
            PAPER_SPEED[kind],
            speed,
            why=assumed[kind],
            trust=CIRCULAR if kind in OF_TIMES else QUOTED,
        )
        yield PaperRow(
            f"micro-benchmark {kind}: iteration over solo",
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
        why="production DeepSeek-R1 lengths; none is gained where nodes are not shared or "
        "training is what fills the group",
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
            f"weight sync {gpus} to {gpus} GPUs: veRL over Weave",
            known,
            span(ratios),
            why=notes[gpus],
            trust=CIRCULAR,
        )
    seconds = {8: (0.9, 1.7, 3.9), 16: (3.1, 5.8, 12.3)}
    for gpus, known in seconds.items():
        for (model, size), paper_s in zip(WEIGHTS.items(), known, strict=True):
            yield PaperRow(
                f"weight sync {gpus} to {gpus} GPUs, {model}",
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
    inside = size / GPUS["H20"].nvlink_bytes_per_s
    beyond = size / bytes_in(NIC_BPS, 1) / (gpus if at_once else 1) if gpus > 8 else 0.0
    return across + max(inside, beyond)


# --- 300 jobs -------------------------------------------------------------------------------------

PAPER_COST = {"BL": 1.12, "RH": 1.10, "TH": 1.01, "mixed": 1.06}
# policies that know no SLO: dollars over the optimum of all mixes, of the mixed one ($1.62k and
# $1.36k an hour over $0.81k), and jobs within their SLO
BLIND = {
    "random": ((1.72, 2.00), 1.62 / 0.81, (0.37, 0.58)),
    "most-idle": ((1.38, 1.89), 1.36 / 0.81, (0.42, 0.61)),
}
OPTIMUM_IS = (
    "optimum: the cheapest grouping of all present jobs (to 0.1 %) at every arrival, "
    "moved for nothing"
)


def simulation_rows(seed: int) -> Iterator[PaperRow]:
    """Cost of 300 jobs with the profiles of Table 6 over the offline optimum, for Weave, Random and
    Most-Idle.
    """
    others: dict[str, list[tuple[float, float]]] = {name: [] for name in BLIND}
    for mix in MIXES:
        jobs, best = _simulated(mix, seed)
        ours = [replayed(each) for each in jobs]
        yield PaperRow(
            f"300 jobs, {mix}: Weave over the offline optimum, dollars",
            PAPER_COST[mix],
            ratio(ours, best),
            why=OPTIMUM_IS,
        )
        yield PaperRow(
            f"300 jobs, {mix}: jobs within their SLO",
            1.0,
            mean(bill.attained for bill in ours),
            "share",
        )
        for name, per_mix in others.items():
            bills = _blind(name, jobs, seed)
            per_mix.append((ratio(bills, best), mean(bill.attained for bill in bills)))
    yield from _blind_rows(others)


def _blind_rows(others: dict[str, list[tuple[float, float]]]) -> Iterator[PaperRow]:
    why = (
        "its rules are not stated: here it knows memory alone. Nor is the bill's: of four rules "
        "(experiment billing) that is taken which comes nearest to these rows, so that they are "
        "circular: a group keeps its nodes until jobs over their SLO have done their work"
    )
    for name, (cost, mixed, slo) in BLIND.items():
        costs, attained = zip(*others[name], strict=True)
        label = f"300 jobs: {name} over the offline optimum, dollars"
        yield PaperRow(label, cost, span(costs), why=why, trust=CIRCULAR)
        ours = costs[list(MIXES).index("mixed")]
        label = f"300 jobs, mixed: {name} over the offline optimum, dollars"
        yield PaperRow(label, mixed, ours, why=why, trust=CIRCULAR)
        yield PaperRow(f"300 jobs: {name}, jobs within their SLO", slo, span(attained), "share")


@cache
def _simulated(mix: str, seed: int, stay: str = STAY) -> tuple[list[list[Job]], list[ClusterBill]]:
    """Traces of a mix, and the optimum's bill of each."""
    jobs = [simulated_jobs(mix, seed + i) for i in range(SEEDS)]
    return jobs, [replayed(each, OPTIMUM, stay=stay) for each in jobs]


def _blind(
    name: str, traced: Sequence[Sequence[Job]], seed: int, stay: str = STAY
) -> list[ClusterBill]:
    return [replayed(jobs, name, seed + i, stay=stay) for i, jobs in enumerate(traced)]


def experiment_billing(seed: int) -> Iterator[PaperRow]:
    """Each rule of billing jobs that are slowed, on every published figure that it moves: dollars
    over the offline optimum, and of the two weeks.
    """
    weeks = traces(derived_mix(seed), seed)
    for stay in STAYS:
        costs: dict[str, list[float]] = {"weave": [], **{name: [] for name in BLIND}}
        for mix in MIXES:
            jobs, best = _simulated(mix, seed, stay)
            for name, per_mix in costs.items():
                per_mix.append(ratio(_blind(name, jobs, seed, stay), best))
        for mix, ours in zip(MIXES, costs["weave"], strict=True):
            yield PaperRow(f"{stay}: Weave, {mix}, over the optimum", PAPER_COST[mix], ours)
        for name, (paper, mixed, _) in BLIND.items():
            yield PaperRow(f"{stay}: {name} over the optimum", paper, span(costs[name]))
            ours = costs[name][list(MIXES).index("mixed")]
            yield PaperRow(f"{stay}: {name}, mixed, over the optimum", mixed, ours)
        shared, alone = (
            [replayed(jobs, policy, stay=stay) for jobs in weeks] for policy in ("weave", "solo")
        )
        yield PaperRow(f"{stay}: two weeks, Solo-D over Weave", 1.84, ratio(alone, shared))


EXPERIMENTS = {"billing": experiment_billing, "mix": experiment_mix}


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
            f"decision, {high:,} over {low:,} jobs",
            PAPER_MS[high] / PAPER_MS[low],
            ours[high] / ours[low],
        )


def latencies(counts: Sequence[int], seed: int = 0) -> dict[int, float]:
    """CPU seconds of a decision (median) by how many jobs of the mixed profiles are present."""
    jobs = iter(simulated_jobs("mixed", seed, max(counts)))
    extra = simulated_jobs("mixed", seed + 1, TIMED)
    groups: list[ExecutionGroup] = []
    present, seconds = 0, {}
    for count in sorted(counts):
        for _ in range(count - present):
            _join(groups, next(jobs))
        present = count
        seconds[count] = median(_timed(job, groups) for job in extra)
    return seconds


def _join(groups: list[ExecutionGroup], job: Job) -> None:
    place = weave(job, groups, POOLS, None)
    if place is None:
        groups.append(ExecutionGroup.alone(job))
    else:
        groups[place.group] = groups[place.group].join(job, place.nodes)


def _timed(job: Job, groups: Sequence[ExecutionGroup]) -> float:
    """The fastest of three: what else the machine does only adds."""
    times = []
    for _ in range(3):
        began = time.process_time()
        weave(job, groups, POOLS, None)
        times.append(time.process_time() - began)
    return min(times)


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
            f"drift, {name}: placed once over hourly regrouping, dollars",
            PAPER_DRIFT[name][0],
            cost,
            why=why,
        )
        yield PaperRow(
            f"drift, {name}: jobs within their SLO", PAPER_DRIFT[name][1], attained, "share", why
        )


def _drifted(seed: int, ways: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(cost over hourly regrouping, share of jobs within their SLO) of the two weeks with these
    drifts in turn.
    """
    jobs = [
        replace(job, drift=ways[i % len(ways)])
        for i, job in enumerate(trace_jobs(seed, mix=derived_mix(seed))[:DRIFT_JOBS])
    ]
    static, best = replayed(jobs), replayed(jobs, OPTIMUM, regroup=SECONDS_PER_HOUR)
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

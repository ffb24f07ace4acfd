"""Several jobs on one fabric: their traces merged, phases in the order of the round robin, hosts
shared as nodes are; jobs share only nodes that all of them are made for (`hardware_of`).

    h1 ..        training nodes, group by group          a node is `gpus_per_server` hosts
    .. hN        rollout nodes, group by group

Who takes which turn on shared nodes: `turns`. A phase stays one (step, phase) of the trace: steps
count turns, round by round and job by job, and labels begin with the job's name.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...compute.gpus import Gpu
from ...compute.spread import widest
from ...errors import RFabricError
from ...fabric import Needs
from ...folders import data_dir
from ...rl.lowering import trace_of
from ...rl.plan import Plan, plan_of
from ...rl.recipe import read_yaml, refuse_unknown
from ...rl.workload import Workload, read_recipe
from ...specs import read_spec
from ...trace import Trace, TraceBuilder, Traffic
from ..base import Scheduled, as_it_stands, settings_of
from .groups import ExecutionGroup
from .jobs import Job, Pools, Profile, footprint
from .policies import POLICIES, policy_of
from .tail import TailSetting, tail_turns, trace_with_tails
from .turns import NODES_OF, Foreseen, SharedJob, merge

SLO = 2.0
KEYS = {  # of a file of jobs: what it is, its default
    "jobs": ("names or files of recipes, each a job, such as `[grpo-64, grpo-64]`", "required"),
    "policy": (f"who shares which nodes, one of {', '.join(POLICIES)}", "`weave`"),
    "slo": ("how many times its own seconds an iteration of a job may take", f"{SLO:g}"),
}


def profile_of(workload: Workload, seed: int = 0, plan: Plan | None = None) -> Profile:
    """The profile of a workload: phases of its first step as planned (`plan`: by its own
    scheduler), memory and switches as measured for its model's size.
    """
    seconds: dict[str, float] = {}
    for phase in (plan or plan_of(workload, seed)).phases:
        if phase.step == 0:
            seconds[phase.kind] = seconds.get(phase.kind, 0.0) + phase.window
    measured, size = footprint(workload.model.parameters), workload.gpus_per_server
    return Profile(
        seconds["generation"],
        seconds["training"],
        seconds["weight_sync"],
        -(-workload.cluster.generation_gpus // size),
        -(-workload.cluster.training_gpus // size),
        measured.roll_bytes,
        measured.train_bytes,
        measured.roll_warm,
        measured.train_warm,
    )


def placed(
    jobs: Sequence[Job],
    policy: str = "weave",
    pools: Pools = Pools(),
    seed: int = 0,
    hardware: Mapping[str, Hashable] | None = None,
) -> list[ExecutionGroup]:
    """The groups that `policy` makes of jobs that all are there, one after the other.

    hardware: the nodes that each job by its name is made for; only jobs with the same share nodes
    (left out: all may).
    """
    choose, random, groups = policy_of(policy), np.random.default_rng(seed), list[ExecutionGroup]()
    made_for = hardware or {}
    for job in jobs:
        alike = [
            i
            for i, group in enumerate(groups)
            if made_for.get(group.jobs[0].name) == made_for.get(job.name)
        ]
        place = choose(pools.admit(job), [groups[i] for i in alike], pools, random)
        if place is None:
            groups.append(ExecutionGroup.alone(job))
        else:
            joined = alike[place.group]
            groups[joined] = groups[joined].join(job, place.nodes)
    return groups


def hardware_of(w: Workload) -> Hashable:
    """The nodes that the trace of a workload is made for: GPUs that train and generate, NICs, and
    how many nodes train, as parallelism and seconds of a trace do not follow other nodes.
    """
    training_nodes = -(-w.cluster.training_gpus // w.gpus_per_server)
    return w.gpu.name, w.generation_gpu.name, w.nic_bps, training_nodes


def traffic_of(
    groups: Sequence[ExecutionGroup],
    workloads: Mapping[str, Workload],
    seed: int = 0,
    traces: Mapping[str, Trace] | None = None,
    tails: float = 0.0,
) -> Trace:
    """The traces of all jobs of `groups` on one fabric; `workloads` by the names of the jobs, and
    `traces`, where they are not those of the recipes as they stand.

    tails: the share of a job's nodes to which the tail of its responses moves, where it shares
    them; 0: none moves. Same seed, same trace. RFabricError for jobs whose phases wait for one
    another.
    """
    size = _server(groups, workloads)
    traces = traces or {name: trace_of(w, seed) for name, w in workloads.items()}
    hosts = sum(group.train_nodes + group.roll_nodes for group in groups) * size
    out = TraceBuilder([f"h{i + 1}" for i in range(hosts)])
    names = [job.name for group in groups for job in group.jobs]
    train, roll = 0, sum(group.train_nodes for group in groups)
    foreseen = Foreseen()
    for group in groups:
        own = _moving(group, workloads, seed, traces, tails) if tails else traces
        seats = [
            SharedJob(
                job,
                own[job.name],
                _hosts(group, i, train, roll, size, workloads[job.name]),
                group,
                i,
                names.index(job.name),
                len(names),
                tails > 0,
                size,
                roll,
            )
            for i, job in enumerate(group.jobs)
        ]
        merge(out, seats, foreseen)
        train, roll = train + group.train_nodes, roll + group.roll_nodes
    made = {name: workloads[name].name for name in names}
    within = _within([traces[name] for name in names])
    said = {"made_by": "several jobs, round robin", "jobs": made, "seed": seed, "within": within}
    trace = out.build(foreseen.windows, said | _prices(groups, workloads, size))
    return replace(trace, paces=foreseen.paces)


def _moving(
    group: ExecutionGroup,
    workloads: Mapping[str, Workload],
    seed: int,
    traces: Mapping[str, Trace],
    tails: float,
) -> dict[str, Trace]:
    """The trace of each job of a group, tails moved of those that free nodes by it."""
    loads = [workloads[job.name] for job in group.jobs]
    turns = tail_turns(group, max(w.steps for w in loads), tails)
    return {
        job.name: trace_with_tails(w, seed, turns[i][: w.steps])
        if group.frees_nodes(i)
        else traces[job.name]
        for i, (job, w) in enumerate(zip(group.jobs, loads, strict=True))
    }


def _prices(groups: Sequence[ExecutionGroup], workloads: Mapping[str, Workload], size: int) -> dict:
    """GPUs of all nodes, their USD an hour and W, None where not published; `held`: USD an hour of
    the nodes that each phase of a job holds.

    Jobs stand in the order of their turns. Nodes that jobs share are those of the first of them.
    """
    whole, held = {"usd_per_hour": 0.0, "power_w": 0.0}, {}
    for group in groups:
        first = workloads[group.jobs[0].name]
        pools = ((first.gpu, group.train_nodes), (first.generation_gpu, group.roll_nodes))
        for name in whole:
            figures = [getattr(gpu, name) for gpu, _ in pools]
            known = None not in (whole[name], *figures)
            whole[name] = whole[name] + _of(pools, figures, size) if known else None
        for job, pins in zip(group.jobs, group.pins, strict=True):
            nodes = {
                "train": (first.gpu, group.train_nodes),
                "roll": (first.generation_gpu, len(pins)),
            }
            held[job.name] = {
                phase: (nodes[pool][0].usd_per_hour or 0.0) * nodes[pool][1] * size
                for phase, pool in NODES_OF.items()
            }
    priced = whole["usd_per_hour"] is not None
    gpus = size * sum(group.train_nodes + group.roll_nodes for group in groups)
    said = {"gpus_usd_per_hour": whole["usd_per_hour"], "gpus_watts": whole["power_w"]}
    return {"gpus": gpus} | said | ({"held": held} if priced else {})


def _within(traces: Sequence[Trace]) -> dict[str, dict]:
    """How far measurements of each phase lie: the widest of all jobs that have it, as phases of
    several jobs have one name; nothing where a job was given, and not predicted.
    """
    each = [trace.provenance.get("within", {}) for trace in traces]
    names = dict.fromkeys(name for one in each for name in one) if all(each) else ()
    return {name: widest([one[name] for one in each if name in one]) for name in names}


def _of(pools: Sequence[tuple[Gpu, int]], figures: Sequence[float], size: int) -> float:
    return sum(nodes * size * figure for (_, nodes), figure in zip(pools, figures, strict=True))


def read_shared(
    name: str,
    settings: Sequence[str] = (),
    seed: int = 0,
    policy: str = "",
    schedule: Callable[[Workload, int], Scheduled] = as_it_stands,
) -> Traffic:
    """The traffic of a file of `jobs`: recipes that `policy`, else the file's, puts on shared
    nodes, each as `schedule` makes it.

    Settings go over every recipe. `weave,tail=0.25` moves the tails of generation on shared nodes
    to a quarter of a job's nodes (`tail`).

    RFabricError for a file that lists no recipes, an slo that is no number, or jobs that cannot
    share nodes: their GPUs do both, or they have CPU servers.
    """
    path = shared_path(name)
    values = read_yaml(path)
    refuse_unknown(values, KEYS)
    recipes = values.get("jobs")
    if not isinstance(recipes, list) or not recipes or not all(isinstance(r, str) for r in recipes):
        raise RFabricError(
            f"{path.name}: jobs: {recipes!r} must list recipes, such as [grpo-64, grpo-64]"
        )
    slo = values.get("slo", SLO)
    if isinstance(slo, bool) or not isinstance(slo, (int, float)) or not math.isfinite(slo):
        raise RFabricError(
            f"{path.name}: slo: {slo!r} is no number; write how many times its own seconds a "
            "job may take, as 1.5"
        )
    loads = {
        f"job{i + 1}": read_recipe(_beside(path, recipe), settings)
        for i, recipe in enumerate(recipes)
    }
    made = {job: schedule(load, seed) for job, load in loads.items()}
    loads = {job: one.workload for job, one in made.items()}
    _refuse_what_shares_no_nodes(path, loads)
    jobs = [
        Job(job, profile_of(loads[job], seed, one.plan), float(slo)) for job, one in made.items()
    ]
    policy = str(policy or values.get("policy", "weave"))
    spec = read_spec(policy, "policy", ["tail"])
    tails = settings_of(spec.head, TailSetting(), spec.settings).tail
    if tails and schedule is not as_it_stands:
        raise RFabricError(
            f"{path.name}: policy {policy} moves the tails of recipes as they stand, and another "
            "scheduler says how these generate; leave tail out, or that scheduler"
        )
    hardware = {job: hardware_of(load) for job, load in loads.items()}
    groups = placed(jobs, spec.head, seed=seed, hardware=hardware)
    server = next(iter(loads.values())).gpus_per_server
    cards = {load.nic_bps for load in loads.values()}
    gpus = sum(g.train_nodes + g.roll_nodes for g in groups) * server
    inputs = tuple(dict.fromkeys((path, *(file for load in loads.values() for file in load.files))))
    traces = {job: one.trace for job, one in made.items()}
    trace = traffic_of(groups, loads, seed, traces, tails)
    trace.provenance.update(scheduler=policy, gpus_per_server=server)
    return Traffic(
        trace, path.stem, inputs, Needs(gpus, server, cards.pop() if len(cards) == 1 else 0.0)
    )


def _refuse_what_shares_no_nodes(path: Path, loads: Mapping[str, Workload]) -> None:
    for load in loads.values():
        if load.colocated:
            raise RFabricError(
                f"{path.name}: {load.name} is colocated; jobs share nodes by turns of generation "
                "and of training, and its GPUs do both: run it alone"
            )
        if load.environments.servers:
            raise RFabricError(
                f"{path.name}: {load.name} has {load.environments.servers} CPU servers, and jobs "
                "share nodes of GPUs alone; use environments.servers=0, or run it alone"
            )


def is_shared(name: str) -> bool:
    """Whether `name` is a file of jobs: one in traffic/jobs/, or a YAML file with `jobs` in it."""
    path = shared_path(name)
    return path.is_file() and (
        path.parent == data_dir("traffic") / "jobs" or "jobs" in read_yaml(path)
    )


def shared_path(name: str) -> Path:
    """Where a file of jobs stands."""
    if Path(name).suffix in (".yaml", ".yml"):
        return Path(name)
    return data_dir("traffic") / "jobs" / f"{name}.yaml"


def _beside(path: Path, recipe: str) -> str:
    return str(path.parent / recipe) if Path(recipe).suffix else recipe


def _server(groups: Sequence[ExecutionGroup], workloads: Mapping[str, Workload]) -> int:
    """The GPUs of a node, the same for all jobs."""
    names = [job.name for group in groups for job in group.jobs]
    missing = [name for name in names if name not in workloads]
    if missing:
        raise RFabricError(
            f"job {missing[0]}: no workload is given for it; there are {', '.join(workloads)}"
        )
    sizes = {workloads[name].gpus_per_server for name in names}
    if len(sizes) != 1:
        raise RFabricError(
            f"jobs with {' and '.join(map(str, sorted(sizes)))} GPUs a server share no nodes; "
            "set one size"
        )
    return sizes.pop()


def _hosts(
    group: ExecutionGroup, place: int, train: int, roll: int, size: int, workload: Workload
) -> np.ndarray:
    """The hosts of a job's GPUs: its training GPUs on the first training nodes, its generation GPUs
    on its own nodes.
    """
    name = group.jobs[place].name
    training, generation = workload.cluster.training_gpus, workload.cluster.generation_gpus
    for needs, has, pool in (
        (training, group.train_nodes * size, "training"),
        (generation, len(group.pins[place]) * size, "rollout"),
    ):
        if needs > has:
            raise RFabricError(
                f"job {name}: its workload has {needs} {pool} GPUs, its nodes have {has}"
            )
    first = [train * size + i for i in range(training)]
    rest = [(roll + node) * size + i for node in group.pins[place] for i in range(size)][
        :generation
    ]
    return np.array(first + rest)

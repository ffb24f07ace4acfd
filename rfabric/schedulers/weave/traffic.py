"""Several jobs on one fabric: their traces merged, phases in the order of the round robin, hosts
shared as nodes are.

    h1 ..        training nodes, group by group          a node is `gpus_per_server` hosts
    .. hN        rollout nodes, group by group

    rollout nodes shared  generation of A, round 0 --> generation of B, round 0 --> A, round 1
    training nodes        training and sync of A   --> training and sync of B   --> ...

A job's own trace comes from its workload, as if alone; only the waiting for shared nodes is added,
with the warm switch of a phase. A phase stays one (step, phase) of the trace: steps count turns,
round by round and job by job, and labels begin with the job's name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...compute.gpus import Gpu
from ...errors import RFabricError
from ...fabric import Needs
from ...folders import data_dir
from ...rl.lowering import trace_of
from ...rl.plan import plan_of
from ...rl.recipe import read_yaml, refuse_unknown
from ...rl.workload import Workload, read_recipe
from ...trace import Flows, PhaseKey, Trace, TraceBuilder, Traffic
from .groups import ExecutionGroup
from .jobs import Job, Pools, Profile, footprint
from .policies import policy_of

# whose nodes a phase holds
NODES_OF = {"generation": "roll", "training": "train", "weight_sync": "train"}


def profile_of(workload: Workload, seed: int = 0) -> Profile:
    """The profile of a workload: phases of its first step as planned, memory and switches as
    measured for its model's size.
    """
    seconds: dict[str, float] = {}
    for phase in plan_of(workload, seed).phases:
        if phase.step == 0:
            seconds[phase.kind] = seconds.get(phase.kind, 0.0) + phase.window
    found, size = footprint(workload.model.parameters), workload.gpus_per_server
    return Profile(
        seconds["generation"],
        seconds["training"],
        seconds["weight_sync"],
        -(-workload.cluster.generation_gpus // size),
        -(-workload.cluster.training_gpus // size),
        found.roll_bytes,
        found.train_bytes,
        found.roll_warm,
        found.train_warm,
    )


def placed(
    jobs: Sequence[Job], policy: str = "weave", pools: Pools = Pools(), seed: int = 0
) -> list[ExecutionGroup]:
    """The groups that `policy` makes of jobs that all are there, one after the other."""
    choose, random, groups = policy_of(policy), np.random.default_rng(seed), list[ExecutionGroup]()
    for job in jobs:
        place = choose(pools.admit(job), groups, pools, random)
        if place is None:
            groups.append(ExecutionGroup.alone(job))
        else:
            groups[place.group] = groups[place.group].join(job, place.nodes)
    return groups


def traffic_of(
    groups: Sequence[ExecutionGroup], workloads: Mapping[str, Workload], seed: int = 0
) -> Trace:
    """The traces of all jobs of `groups` on one fabric; `workloads` by the names of the jobs.

    Same seed, same trace.
    """
    size = _server(groups, workloads)
    hosts = sum(group.train_nodes + group.roll_nodes for group in groups) * size
    out = TraceBuilder([f"h{i + 1}" for i in range(hosts)])
    names = [job.name for group in groups for job in group.jobs]
    train, roll = 0, sum(group.train_nodes for group in groups)
    windows: dict[PhaseKey, float] = {}
    for group in groups:
        seats = [
            _Seat(
                job,
                workloads[job.name],
                _hosts(group, i, train, roll, size, workloads[job.name]),
                group,
                i,
                names.index(job.name),
                len(names),
                seed,
            )
            for i, job in enumerate(group.jobs)
        ]
        _merge(out, seats, windows)
        train, roll = train + group.train_nodes, roll + group.roll_nodes
    made = {name: workloads[name].name for name in names}
    said = {"made_by": "several jobs, round robin", "jobs": made, "seed": seed}
    return out.build(windows, said | _prices(groups, workloads, size))


def _prices(groups: Sequence[ExecutionGroup], workloads: Mapping[str, Workload], size: int) -> dict:
    """USD an hour and W of all nodes, None where not published; `held`: USD an hour of the nodes
    that each phase of a job holds.

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
    return {"gpus_usd_per_hour": whole["usd_per_hour"], "gpus_watts": whole["power_w"]} | (
        {"held": held} if priced else {}
    )


def _of(pools: Sequence[tuple[Gpu, int]], figures: Sequence[float], size: int) -> float:
    return sum(nodes * size * figure for (_, nodes), figure in zip(pools, figures, strict=True))


def read_shared(
    name: str, settings: Sequence[str] = (), seed: int = 0, policy: str = ""
) -> Traffic:
    """The traffic of a file of `jobs`: recipes that `policy`, else the file's, puts on shared
    nodes.

    Settings go over every recipe.

    RFabricError for a file that lists no recipes, or an slo that is no number.
    """
    path = shared_path(name)
    values = read_yaml(path)
    refuse_unknown(values, ["jobs", "policy", "slo"])
    recipes = values.get("jobs")
    if not isinstance(recipes, list) or not recipes or not all(isinstance(r, str) for r in recipes):
        raise RFabricError(
            f"{path.name}: jobs: {recipes!r} must list recipes, such as [grpo-64, grpo-64]"
        )
    slo = values.get("slo", 2.0)
    if isinstance(slo, bool) or not isinstance(slo, (int, float)):
        raise RFabricError(
            f"{path.name}: slo: {slo!r} is no number; write how many times its own seconds a "
            "job may take, as 1.5"
        )
    loads = {
        f"job{i + 1}": read_recipe(_beside(path, recipe), settings)
        for i, recipe in enumerate(recipes)
    }
    jobs = [Job(job, profile_of(load, seed), float(slo)) for job, load in loads.items()]
    policy = str(policy or values.get("policy", "weave"))
    groups = placed(jobs, policy, seed=seed)
    server, cards = (
        next(iter(loads.values())).gpus_per_server,
        {load.nic_bps for load in loads.values()},
    )
    gpus = sum(g.train_nodes + g.roll_nodes for g in groups) * server
    inputs = tuple(dict.fromkeys((path, *(file for load in loads.values() for file in load.files))))
    trace = traffic_of(groups, loads, seed)
    trace.provenance.update(scheduler=policy, gpus_per_server=server)
    return Traffic(
        trace, path.stem, inputs, Needs(gpus, server, cards.pop() if len(cards) == 1 else 0.0)
    )


def is_shared(name: str) -> bool:
    """Whether `name` is a file of jobs: one in traffic/jobs/, or a YAML file with `jobs` in it."""
    path = shared_path(name)
    return path.is_file() and (
        path.parent == data_dir("traffic") / "jobs" or "jobs" in read_yaml(path)
    )


def shared_path(name: str) -> Path:
    """Where a file of jobs stands."""
    return (
        Path(name)
        if Path(name).suffix in (".yaml", ".yml")
        else data_dir("traffic") / "jobs" / f"{name}.yaml"
    )


def _beside(path: Path, recipe: str) -> str:
    return (
        str(path.parent / recipe)
        if Path(recipe).suffix and not Path(recipe).is_absolute()
        else recipe
    )


@dataclass(frozen=True, eq=False)
class _Seat:
    """A job of a group on the fabric: `hosts` are those of its GPUs, `turn` its number among all
    `jobs` jobs.
    """

    job: Job
    workload: Workload
    hosts: np.ndarray
    group: ExecutionGroup
    place: int
    turn: int
    jobs: int
    seed: int

    def switch(self, pool: str) -> float:
        """Seconds until a phase is back on nodes that others use as well."""
        nodes, profile = self.group.pins[self.place], self.job.profile
        if pool == "roll":
            return profile.roll_switch if any(self.group.residents[n] > 1 for n in nodes) else 0.0
        return profile.train_switch if len(self.group.jobs) > 1 else 0.0


def _merge(out: TraceBuilder, seats: Sequence[_Seat], windows: dict[PhaseKey, float]) -> None:
    """The turns of one group, in the order of its round robin; a turn waits for who had its nodes
    before.
    """
    traces = [trace_of(seat.workload, seat.seed) for seat in seats]
    rows: list[dict[int, int]] = [{} for _ in seats]
    held: dict[tuple[str, int], int] = {}
    for step in range(max(seat.workload.steps for seat in seats)):
        for seat, trace, done in zip(seats, traces, rows, strict=True):
            for key in [key for key in trace.phase_keys if key.step == step]:
                number = step * seat.jobs + seat.turn
                _phase(out, seat, trace, key, number, done, held)
                if key in trace.windows:
                    windows[PhaseKey(number, key.phase)] = trace.windows[key]


def _phase(
    out: TraceBuilder, seat: _Seat, trace: Trace, key: PhaseKey, number: int, done: dict, held: dict
) -> None:
    """One phase of one job: what it waits for, its rows, and the barrier at its end that the next
    in line waits for.
    """
    pool = NODES_OF[key.phase]
    nodes = [
        (pool, node)
        for node in (
            seat.group.pins[seat.place] if pool == "roll" else range(seat.group.train_nodes)
        )
    ]
    kind = {"step": number, "phase": key.phase}
    mine = trace.rows(key)
    host = int(seat.hosts[trace.src[mine[0]]])
    before = {held[node] for node in nodes if node in held}
    entries = set(trace.entries(key).tolist())
    # a permit is for who is ready
    before |= {done[int(wait)] for row in entries for wait in trace.waits_for(row)}
    follows = key.phase == "weight_sync"  # training, on the same nodes: nobody comes between
    seconds = 0.0 if follows else seat.switch(pool)
    gate = [
        out.compute(host, seconds, after=sorted(before), label=f"{seat.job.name} switch", **kind)
    ]
    for row in mine.tolist():
        if row in done:  # with the loop it belongs to
            continue
        after = [done[int(wait)] for wait in trace.waits_for(row)] + (
            gate if row in entries else []
        )
        own = {"after": after, "gap": float(trace.gap[row]), "start": float(trace.start[row])}
        _copy(out, seat, trace, row, kind | own, done)
    end = out.compute(
        host,
        0.0,
        after=[done[row] for row in _exits(trace, mine)],
        label=f"{seat.job.name} barrier",
        **kind,
    )
    held.update(dict.fromkeys(nodes, end))


def _copy(out: TraceBuilder, seat: _Seat, trace: Trace, row: int, kind: dict, done: dict) -> None:
    """A row on the hosts of a seat, with all others of its loop if it belongs to one."""
    if trace.loop[row] < 0:
        done[row] = out.flows(*_seated(seat, trace, [row]), label=_label(seat, trace, row), **kind)[
            0
        ]
        return
    loop, number = trace.loops[trace.loop[row]], trace.loop[row]
    turns = [
        np.flatnonzero((trace.loop == number) & (trace.turn == turn))
        for turn in range(len(loop.between))
    ]
    labels = [_label(seat, trace, int(turn[0])) for turn in turns]
    flows = [_seated(seat, trace, turn) for turn in turns]
    rows = out.loop(flows, loop.repeat, loop.between, loop.beside, label=labels, **kind)
    done.update(zip(np.concatenate(turns).tolist(), rows, strict=True))


def _seated(seat: _Seat, trace: Trace, rows: Sequence[int]) -> Flows:
    return Flows(
        *(seat.hosts[ends[rows]].tolist() for ends in (trace.src, trace.dst)),
        trace.size[rows].tolist(),
    )


def _label(seat: _Seat, trace: Trace, row: int) -> str:
    return f"{seat.job.name} {trace.labels[trace.label[row]]}"


def _exits(trace: Trace, rows: np.ndarray) -> list[int]:
    """The rows that no other of `rows` waits for."""
    inside = np.isin(trace.owner, rows)
    awaited = set(trace.after[inside].tolist())
    return [row for row in rows.tolist() if row not in awaited]


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

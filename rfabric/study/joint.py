"""What is gained where compute and network decide together: the step under the best separate
schedule, under the best joint one, and what no schedule can be under.

    separate  a compute scheduler that knows no fabric, beside the circuit policy that serves it
              best: the recipe's pipeline and orchestrrl, by each of CIRCUITS
    told      the same one, with the best of the weight syncs that software takes alike, found by
              playing them all: what a network that is asked could know of it, and no more
    joint     the same schedulers with network=fabric, by each of CIRCUITS
    bound     generation (`schedulers.orchestrrl.least`), training and weight sync, each at its
              least on this fabric, in the pipeline's order

Training takes at least what computing and network cards need (`report.result.phase_floors`), and
what the fabric's hardware needs for its bytes (`optics.bound`). Weight sync takes its software and
what the hardware needs for its bytes, of the strategy and the width of replicas for which both are
least. Nothing is moved. Several steps: `rl.plan` puts the phases one after another.

rollpacker and rollart are left out: they play other responses, or other weights, than the recipe.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..errors import RFabricError
from ..fabric import Fabric
from ..optics.bound import bound
from ..report.compare import Table
from ..report.result import phase_floors
from ..rl import flows
from ..rl.phases import handover
from ..rl.plan import plan_of_steps
from ..rl.traffic import weight_levels
from ..rl.workload import Workload, read_recipe
from ..schedulers import DEFAULT_CIRCUITS
from ..schedulers.base import Scheduled
from ..schedulers.networks import ALIKE, foreseen
from ..schedulers.orchestrrl import engines_of
from ..schedulers.orchestrrl.least import least_generation
from ..schedulers.orchestrrl.seats import with_replicas_of
from ..schedulers.table import parse_policies
from ..trace import PhaseKey, Trace
from ..units import show_size, show_time
from .asked import played

FABRICS = ("ideal", "rfabric", "fat-tree,oversubscription=4", "two-clusters,join=200Gbit/s")
# circuits of a fabric that has any: its own policy, and two that change them more often
CIRCUITS = (DEFAULT_CIRCUITS, "phase", "demand,granularity=per-collective")


@dataclass(frozen=True)
class JointCase:
    """A job: a recipe and what is put over it."""

    recipe: str
    settings: tuple[str, ...] = ()

    @property
    def workload(self) -> Workload:
        """The job, read."""
        return read_recipe(self.recipe, self.settings)


# Agents: turns, seconds and tokens of the environment are assumed. Weights go as in the other two
# jobs, so that all have the same to decide.
CASES = {
    "dense, 64 H800": JointCase("grpo-64", ("generation.batch=512",)),
    "experts, 1,024 H800": JointCase("grpo-1024-235b"),
    "agents, 32 H800 + 32 H20": JointCase(
        "grpo-64-h20",
        (
            "generation.turns=4",
            "generation.environment_latency=2s",
            "generation.observation=500",
            "training.micro_batch_tokens=19932",
            "weight_sync.strategy=flat",
        ),
    ),
}


@dataclass(frozen=True)
class ScheduledStep:
    """A job under one schedule on one fabric: the schedule's words, seconds of the step, what the
    compute scheduler decided.
    """

    policy: str
    seconds: float
    facts: dict

    def to_json(self) -> dict:
        """With stable keys."""
        return {"policy": self.policy, "step_s": self.seconds, "facts": self.facts}


@dataclass(frozen=True)
class JointRow:
    """A job on a fabric: its best schedules, the weight sync of `told`, and the bound (s)."""

    job: str
    fabric: str
    separate: ScheduledStep
    told: ScheduledStep
    told_sync: str
    joint: ScheduledStep
    bound: float

    @property
    def gain(self) -> float:
        """Share of the separate step that the joint one saves."""
        return 1 - self.joint.seconds / self.separate.seconds

    def to_json(self) -> dict:
        """With stable keys that carry their units."""
        return {
            "job": self.job,
            "fabric": self.fabric,
            "separate": self.separate.to_json(),
            "told": self.told.to_json() | {"weight_sync": self.told_sync},
            "joint": self.joint.to_json(),
            "gain": self.gain,
            "bound_s": self.bound,
        }


def joint_rows(
    seed: int = 0, progress: Callable[[str], None] = lambda _: None
) -> Iterator[JointRow]:
    """Every job of CASES on every one of FABRICS."""
    for name, case in CASES.items():
        for spec in FABRICS:
            progress(f"{name}, {spec}")
            yield row_of_case(name, case, spec, seed)


def row_of_case(name: str, case: JointCase, spec: str, seed: int) -> JointRow:
    """A job on a fabric."""
    w = case.workload
    fabric = w.needs.fabric(spec)
    separate, made = _best(w, fabric, seed, "")
    joint, _ = _best(w, fabric, seed, ",network=fabric")
    told, strategy = _told(w, fabric, seed, separate)
    least = least_step(made, seed, fabric)
    return JointRow(name, spec, separate, told, strategy, joint, least)


def _best(w: Workload, fabric: Fabric, seed: int, asks: str) -> tuple[ScheduledStep, Scheduled]:
    """The shortest step of all schedulers by all circuit policies, and its schedule."""
    circuits = CIRCUITS if fabric.ocses else CIRCUITS[:1]
    candidates = [
        _played(w, fabric, seed, f"{scheduler}{asks}+{policy}")
        for scheduler in schedulers_of(w)
        for policy in circuits
    ]
    return min(candidates, key=lambda one: one[0].seconds)


def schedulers_of(w: Workload) -> tuple[str, ...]:
    """Those that a job is given to: its own pipeline, and orchestrrl where its responses have one
    turn.

    RFabricError for a pipeline that no scheduler has by name.
    """
    if w.pipeline not in ("sync", "one-step-off"):
        raise RFabricError(
            f"joint: pipeline {w.pipeline} is not compared; use sync or one-step-off"
        )
    return (w.pipeline, "orchestrrl") if w.generation.turns == 1 else (w.pipeline,)


def _played(w: Workload, fabric: Fabric, seed: int, policy: str) -> tuple[ScheduledStep, Scheduled]:
    made, result = played(w, fabric, parse_policies(policy), seed)
    return ScheduledStep(policy, result.step_seconds, made.facts), made


def _told(
    w: Workload, fabric: Fabric, seed: int, separate: ScheduledStep
) -> tuple[ScheduledStep, str]:
    """The separate schedule with the weight sync that serves it best, of those alike."""
    by_strategy = {w.weight_sync.strategy: separate}
    for job in _alike(w)[1:]:
        by_strategy[job.weight_sync.strategy] = _played(job, fabric, seed, separate.policy)[0]
    best = min(by_strategy, key=lambda name: by_strategy[name].seconds)
    return by_strategy[best], best


def _alike(w: Workload) -> list[Workload]:
    """The job with each weight sync that software takes alike, its own first."""
    own = w.weight_sync.strategy
    names = dict.fromkeys((own, *ALIKE)) if own in ALIKE and not w.colocated else (own,)
    return [replace(w, weight_sync=replace(w.weight_sync, strategy=name)) for name in names]


# --- the bound ------------------------------------------------------------------------------------


def least_step(made: Scheduled, seed: int, fabric: Fabric) -> float:
    """Seconds under which no schedule of this job can be on this fabric; `made` is any one of them,
    of which only training is read.

    RFabricError as `least_generation`.
    """
    w = made.workload
    floors = phase_floors(fabric, made.trace)
    sync = least_sync(w, fabric)

    def lasts(_, step, kind: str) -> tuple[float, float]:
        if kind == "weight_sync":
            return sync, 0.0
        if kind == "generation":
            return least_generation(w, seed, step.number), 0.0
        key = PhaseKey(step.number, kind)
        return max(floors[key], _hardware(fabric, made.trace, key)), 0.0

    return plan_of_steps(w, made.steps, lasts).seconds


def _hardware(fabric: Fabric, trace: Trace, key: PhaseKey) -> float:
    return bound(fabric, trace.demand_of(fabric, trace.rows(key))).seconds


def least_sync(w: Workload, fabric: Fabric) -> float:
    """Seconds that a weight sync of this job takes at least on a fabric, whichever of those alike
    is taken, to replicas of whatever width.
    """
    widths = {cut.gpus for cut in engines_of(w).cuts} if not w.colocated else set()
    jobs = [w, *(with_replicas_of(w, gpus) for gpus in sorted(widths))]
    every = [one for job in dict.fromkeys(jobs) for one in _alike(job)]
    return min(sum(handover(one).values()) + _wire(one, fabric) for one in every)


def _wire(w: Workload, fabric: Fabric) -> float:
    sent = (flows.leaving(w, level.flows) for level in weight_levels(w))
    network = foreseen(fabric)
    return bound(fabric, network.demand(flows.join(sent))).seconds


# --- shown ----------------------------------------------------------------------------------------


def joint_table(rows: Sequence[JointRow]) -> Table:
    """A line for each job and fabric."""
    columns = (
        "job and fabric", "separate", "sync told", "joint", "gain", "bound", "over bound",
        "moved", "KV", "weight sync", "separate by", "joint by",
    )  # fmt: skip
    note = (
        "Sync told: the separate schedule with the best of the weight syncs that software takes "
        "alike. Moved, KV and weight sync are the joint schedule's, beside the separate one's."
    )
    cells = [(f"{r.job}, {r.fabric}", *_cells(r)) for r in rows]
    return Table.of("Compute and network decide together", columns, cells, note, (0, 9, 10, 11))


def _cells(r: JointRow) -> tuple[str, ...]:
    apart, agreed = r.separate.facts, r.joint.facts
    return (
        show_time(r.separate.seconds),
        show_time(r.told.seconds),
        show_time(r.joint.seconds),
        f"{round(r.gain, 3) + 0.0:.1%}",  # never -0.0%
        show_time(r.bound),
        f"{r.joint.seconds / r.bound - 1:.0%}",
        f"{agreed.get('moved', 0):,} / {apart.get('moved', 0):,}",
        f"{show_size(agreed.get('kv_bytes', 0))} / {show_size(apart.get('kv_bytes', 0))}",
        agreed.get("weight_sync", ""),
        r.separate.policy,
        r.joint.policy.replace(",network=fabric", ""),
    )

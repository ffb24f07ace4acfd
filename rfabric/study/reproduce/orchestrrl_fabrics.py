"""OrchestrRL's fabrics (arXiv 2601.01209) run again: one step under its scheduler, every fabric
under the circuit policy that serves it best.

    dense   grpo-64 and grpo-1024 (Qwen2.5-72B, as the paper's simulations had), and that on 2,048
    MoE     grpo-64-moe (Qwen3-30B-A3B) and grpo-1024-235b (Qwen3-235B-A22B, the paper's other
            model, which does not fit 64): their experts are exchanged over the fabric

A fabric's best policy is that of POLICIES with the shortest step; fabrics without OCSes have none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial

from ...fabric import Fabric, parse_fabric
from ...fabric.cost import bill
from ...schedulers.table import DEFAULT_CIRCUITS
from ...schedulers.traffic import read_traffic
from ...trace import Traffic
from ..run import Case, RunSettings, simulated
from . import SECOND_HAND, PaperRow

# name: (spec, performance and cost of a table that contradicts itself)
FABRICS = {
    "Fat-Tree 4:1": ("fat-tree,oversubscription=4", (0.72, 0.35)),
    "rail-optimised": ("rail-optimized", None),
    "TopoOpt": ("topoopt", (0.94, 0.62)),
    "MixNet": ("mixnet", (0.89, 0.58)),
    "RFabric": ("rfabric", (0.98, 0.52)),
}
REFERENCE = "fat-tree"
POLICIES = (
    DEFAULT_CIRCUITS,
    "phase",
    "matching,granularity=one-shot",
    "matching,granularity=per-collective",
    "demand,granularity=per-collective",
)
ONE_SHOT = ("topoopt",)  # set once a job: what changes while it runs is another fabric


@dataclass(frozen=True)
class FabricCase:
    """A job on every fabric: GPUs, its recipe and what is put over it, and whether its experts are
    exchanged between servers.
    """

    gpus: int
    recipe: str
    settings: tuple[str, ...] = ()
    model: str = ""


CASES = (
    FabricCase(64, "grpo-64"),
    FabricCase(1024, "grpo-1024"),
    FabricCase(
        2048,
        "grpo-1024",
        ("cluster.training_gpus=1024", "cluster.generation_gpus=1024", "generation.batch=1024"),
    ),
    FabricCase(64, "grpo-64-moe", model=", Qwen3-30B-A3B"),
    FabricCase(1024, "grpo-1024-235b", model=", Qwen3-235B-A22B"),
)
WHY_DENSE = (
    "no target: the only table found contradicts itself, and sources disagree on "
    "cost-efficiency (2.2 to 3.1, 1.53 to 2.06); a dense model's step is computing, so fabrics "
    "differ by their price"
)
WHY_EXPERTS = "no target, as for dense jobs; experts are exchanged over the fabric"


@dataclass(frozen=True)
class FabricStep:
    """A step on a fabric: seconds, of them exposed communication, the network's USD, and the policy
    that served best.
    """

    seconds: float
    exposed: float
    usd: float
    policy: str


def fabric_rows(seed: int) -> Iterator[PaperRow]:
    """Step time, network cost and both together, against a Fat-Tree, for every job."""
    for case in CASES:
        base = best_step(case, REFERENCE, seed)
        for name, (spec, paper) in FABRICS.items():
            yield from _against(case, name, paper, best_step(case, spec, seed), base)


def _against(
    case: FabricCase,
    name: str,
    paper: tuple[float, float] | None,
    ours: FabricStep,
    base: FabricStep,
) -> Iterator[PaperRow]:
    speed, price = base.seconds / ours.seconds, ours.usd / base.usd
    why = WHY_EXPERTS if case.model else WHY_DENSE
    if ours.policy != DEFAULT_CIRCUITS:
        why = f"{why}; circuits by {ours.policy}"
    row = partial(PaperRow, trust=SECOND_HAND, why=why)
    label = f"{case.gpus:,} H800{case.model}, {name}"
    speed_there, price_there = paper or (None, None)
    worth = paper and speed_there / price_there
    yield row(f"{label}: throughput over Fat-Tree", speed_there, speed)
    yield row(f"{label}: exposed communication over Fat-Tree", None, ours.exposed / base.exposed)
    yield row(f"{label}: network cost over Fat-Tree", price_there, price)
    yield row(f"{label}: throughput at network cost over Fat-Tree", worth, speed / price)


@cache
def best_step(case: FabricCase, spec: str, seed: int) -> FabricStep:
    """The shortest step on a fabric, over POLICIES where it has circuits to change."""
    traffic = _traffic(case, seed)
    fabric = parse_fabric(spec, traffic.gpus)
    policies = POLICIES if fabric.ocses and spec not in ONE_SHOT else (DEFAULT_CIRCUITS,)
    steps = [played(fabric, traffic, policy, seed) for policy in policies]
    return min(steps, key=lambda step: step.seconds)


def played(fabric: Fabric, traffic: Traffic, policy: str, seed: int) -> FabricStep:
    """A step under one policy."""
    result = simulated(Case(fabric, policy), traffic, RunSettings(seed=seed))
    alone = float(traffic.trace.compute_only()[1].max())
    step = result.step_seconds
    return FabricStep(step, step - alone, bill(fabric).usd, policy)


@cache
def _traffic(case: FabricCase, seed: int) -> Traffic:
    return read_traffic(case.recipe, case.settings, seed, "orchestrrl")


def experiment_policies(seed: int) -> Iterator[PaperRow]:
    """Steps of the jobs with experts under each policy, over the Fat-Tree's."""
    for case in (case for case in CASES if case.model):
        traffic = _traffic(case, seed)
        base = best_step(case, REFERENCE, seed).seconds
        for name in ("MixNet", "RFabric"):
            fabric = parse_fabric(FABRICS[name][0], traffic.gpus)
            for policy in POLICIES:
                speed = base / played(fabric, traffic, policy, seed).seconds
                label = f"{case.gpus:,} H800{case.model}, {name}, {policy}"
                yield PaperRow(f"{label}: throughput over Fat-Tree", None, speed)

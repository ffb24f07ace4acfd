"""Jobs nobody here wrote, and every recipe: no step is shorter than its phases, and what is worked
out twice agrees.

The jobs are real configurations of five frameworks, in ../shared/data/configs beside the
repository; every fourth of them runs in the ordinary suite, all with RFABRIC_ALL_JOBS=1, and so do
the largest recipes.
"""

import csv
import functools
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.rl import explain, read_recipe, recipe_names
from rfabric.rl.imports import FRAMEWORKS, import_job
from rfabric.rl.plan import phase_order, step_period, waits
from rfabric.schedulers.base import as_it_stands
from rfabric.schedulers.table import scheduled
from rfabric.schedulers.traffic import read_traffic
from rfabric.simulate.world import simulate
from rfabric.trace import PhaseKey

CONFIGS = Path(__file__).parents[3] / "shared" / "data" / "configs"
ALL = bool(os.environ.get("RFABRIC_ALL_JOBS"))
MOST_GPUS = 1024  # of a job in the ordinary suite
FEW = ("generation.batch=64", "generation.group_size=4")
PIPELINES = {"one-step-off": "grpo-64", "bounded-staleness": "grpo-64-moe", "async": "grpo-64-h20"}
JOBS = [
    path.relative_to(CONFIGS) for name in FRAMEWORKS for path in sorted((CONFIGS / name).rglob("*"))
]
JOBS = [path for path in JOBS if path.suffix in (".sh", ".yaml")]
DRAWN = JOBS if ALL else JOBS[::4]


@functools.cache
def imported(path: Path):
    """The workload of a job's file; None where rfabric says why it has none."""
    try:
        job = import_job(path.parts[0], CONFIGS / path)
        with TemporaryDirectory() as folder:
            (Path(folder) / "job.yaml").write_text(job.yaml(), encoding="utf-8")
            return read_recipe(Path(folder) / "job.yaml")
    except RFabricError as error:
        assert len(str(error)) > 20
        return None


def path_seconds(w, seconds: dict[PhaseKey, float]) -> float:
    """The end of the last phase of a job whose phases take so long."""
    ends: dict[PhaseKey, float] = {}
    for key in phase_order(w):
        ends[key] = seconds[key] + max((ends[other] for other in waits(w, key)), default=0.0)
    return max(ends.values())


def check(made) -> None:
    """What must hold of any job that is scheduled: between trace, plan, explanation and a run on
    the ideal switch.
    """
    w, trace = made.workload, made.trace
    result = simulate(w.needs.fabric("ideal"), trace)
    took = {phase.key: phase.seconds for phase in result.phases}
    assert all(result.step_seconds >= 0.999 * seconds for seconds in took.values())
    if w.pipeline == "sync":
        own = sum(took[key] for key in phase_order(w))
        assert result.step_seconds >= 0.98 * own
    assert result.step_seconds == pytest.approx(path_seconds(w, made.plan.windows), rel=0.01)
    assert result.step_seconds == pytest.approx(path_seconds(w, took), rel=0.01)


def check_explained(made) -> None:
    """The first step, item by item, where the recipe runs as it stands."""
    w, trace, items = made.workload, made.trace, explain(made.workload)
    said: dict[tuple[str, str], int] = {}
    for item in items:
        if item.bytes and item.item != "KV cache":
            said[item.phase, item.item] = said.get((item.phase, item.item), 0) + item.bytes
    sent = {key[1:]: rows for key, rows in trace.communication().items() if key[0] == 0}
    assert said.keys() == sent.keys()
    for key, rows in sent.items():
        whole = 1 + int(
            (trace.total[rows] // trace.size[rows]).sum()
        )  # every repetition of a row is sent in whole bytes
        assert said[key] == pytest.approx(int(trace.total[rows].sum()), abs=whole)
    result = simulate(w.needs.fabric("ideal"), trace)
    took = {phase.key.phase: phase.seconds for phase in result.phases if phase.key.step == 0}
    (step,) = [item for item in items if item.phase == "step"]
    assert step.seconds == pytest.approx(step_period(w, **took), rel=0.01)


@pytest.mark.parametrize("name", [*recipe_names()])
@pytest.mark.parametrize("placement", ["", "colocated"])
def test_a_recipe_adds_up(name, placement):
    w = read_recipe(name)
    if w.gpus > MOST_GPUS and not ALL:
        pytest.skip(f"{w.gpus} GPUs; RFABRIC_ALL_JOBS=1 runs it")
    if placement and w.generation_gpu is not w.gpu:
        pytest.skip("two kinds of GPU are two pools")
    made = scheduled(w, 0, placement)
    check(made)
    check_explained(made)


@pytest.mark.parametrize(("pipeline", "name"), PIPELINES.items())
@pytest.mark.parametrize("steps", [1, 3])
def test_a_pipeline_adds_up(pipeline, name, steps):
    made = scheduled(read_recipe(name, [*FEW, f"pipeline={pipeline}", f"steps={steps}"]))
    check(made)
    check_explained(made)


@pytest.mark.parametrize("nic", ["1Gbit/s", "50Gbit/s", "1Tbit/s"])
@pytest.mark.parametrize("name", ["grpo-64", "grpo-64-moe"])
def test_a_job_with_cards_of_its_own_adds_up(name, nic):
    made = scheduled(read_recipe(name, [*FEW, f"cluster.nic={nic}"]))
    check(made)
    check_explained(made)


@pytest.mark.parametrize("fabric", ["topoopt", "mixnet", "opus"])
def test_what_leaves_a_small_server_leaves_it_on_every_fabric(fabric):
    """Tensor-parallel groups over two servers of four: no fabric may carry them inside one of
    eight.
    """
    traffic = read_traffic("grpo-64", [*FEW, "cluster.gpus_per_server=4", "training.tp=8"])
    ideal, other = (
        simulate(traffic.needs.fabric(spec), traffic.trace) for spec in ("ideal", fabric)
    )
    assert other.step_seconds >= ideal.step_seconds


@pytest.mark.parametrize("policy", ["rollpacker", "rollart", "orchestrrl", "colocated rollpacker"])
def test_what_a_scheduler_makes_adds_up(policy):
    *placed, policy = policy.split()
    placed = ["placement=colocated", "cluster.generation_gpus=32"] if placed else []
    check(scheduled(read_recipe("grpo-64", [*FEW, *placed, "steps=2"]), 0, policy))


@pytest.mark.skipif(not JOBS, reason=f"no jobs in {CONFIGS}: they are not part of the repository")
def test_of_real_jobs_nineteen_in_twenty_are_modelled():
    """Of those that generate and train: AReaL's SFT and DPO jobs are refused as such."""
    why = {path: unfit(path) for path in JOBS if is_job(path)}
    refused = {path: said for path, said in why.items() if said}
    assert len(refused) <= len(why) / 20, refused


def is_job(path: Path) -> bool:
    """Whether the manifest of the files has it as a job that generates and trains."""
    return str(path) in manifest() and not {"sft", "dpo"} & set(re.split(r"[_.]", path.name))


@functools.cache
def manifest() -> frozenset[str]:
    with open(CONFIGS / "MANIFEST.csv", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["note"] == "a job"]
    return frozenset(row["file"].removeprefix("configs/") for row in rows)


def unfit(path: Path) -> str:
    """Why a job's file is no recipe that runs; empty where it is."""
    try:
        return import_job(path.parts[0], CONFIGS / path).misfit
    except RFabricError as error:
        return str(error)


@pytest.mark.skipif(not JOBS, reason=f"no jobs in {CONFIGS}: they are not part of the repository")
@pytest.mark.parametrize("path", DRAWN, ids=str)
def test_a_real_job_adds_up_or_is_refused(path):
    w = imported(path)
    if w is not None:
        made = as_it_stands(w, 0)
        check(made)
        check_explained(made)


def test_jobs_that_share_nodes_add_up():
    traffic = read_traffic("weave-2jobs", ["generation.batch=64"])
    result = simulate(parse_fabric("ideal", traffic.gpus), traffic.trace)
    assert all(result.step_seconds >= phase.seconds > 0 for phase in result.phases)
    assert result.step_seconds >= traffic.trace.compute_only()[1].max()

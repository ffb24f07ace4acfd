"""One size of the curve, alone in its process: a whole run, stage by stage.

python -m rfabric.study.pipeline_costs 4096    # JSON: stages -> CPU seconds and bytes
"""

import gc
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from ..report.folder import new_folder, write_folder
from ..report.html import write_page
from ..report.outcome import Outcome
from ..report.summary import summary_of
from ..rl.lowering import trace_of_steps
from ..rl.phases import step_of
from ..rl.plan import plan_of_steps
from ..rl.workload import Workload, read_recipe
from ..schedulers.table import DEFAULT_CIRCUITS
from ..simulate import world
from ..simulate.compiled import CompiledEngine
from ..trace import Traffic
from ..trace.pairs import PairWays
from .run import Case, RunSettings, play
from .stopwatch import Cost, Stopwatch, resident_bytes

FABRIC = "rfabric,radix=128,ocs_ports=320"  # the same switches at every size, and enough of them
RECIPE = "grpo-65536"
# What a run does inside `simulate`, and where it is called; the rest of it is the event loop's own.
INSIDE = {
    "placement": [(world, "routing_of"), (PairWays, "_find_new")],
    "policies": [(world, "first_circuits"), (world._World, "_decide")],
    "core": [(CompiledEngine, call) for call in ("add", "run", "reroute", "remaining")],
}
STAGES = ("start", "plan", "trace", "fabric", "simulate", *INSIDE, "folder", "page")


def job(gpus: int) -> Workload:
    """`grpo-65536` cut down to so many GPUs, or blown up: two prompts a replica at every size."""
    sizes = {
        "cluster.training_gpus": gpus // 2,
        "cluster.generation_gpus": gpus // 2,
        "cluster.gpus_per_pod": gpus // 8,
        "generation.batch": gpus // 8,
        "training.recompute": "full",  # one data-parallel rank of 64 GPUs does not fit otherwise
    }
    return read_recipe(RECIPE, [f"{key}={value}" for key, value in sizes.items()])


def measured(gpus: int) -> dict:
    """{"rows": of the trace, "rewires": .., "peak_bytes": of the process, "folder_bytes": ..,
    "stages": {name: Cost as a dict}} of the whole run of `job(gpus)` on FABRIC.
    """
    start = Cost(time.process_time(), resident_bytes())
    gc.disable()  # as the verb `simulate` does
    watch = Stopwatch()
    with watch.part("plan"):
        w = job(gpus)
        steps = [step_of(w, 0, 0)]
        plan = plan_of_steps(w, steps)
    with watch.part("trace"):
        traffic = Traffic(trace_of_steps(w, steps, plan, 0), w.name, w.files, w.needs)
    with watch.part("fabric"):
        fabric = traffic.needs.fabric(FABRIC)
    with watch.part("simulate"), watch.within(INSIDE):
        runs = play([Case(fabric, DEFAULT_CIRCUITS)], traffic, RunSettings())
    with tempfile.TemporaryDirectory(prefix="rfabric-curve-") as scratch:
        written = _written(watch, runs, Path(scratch))
    return {
        "rows": len(traffic.trace),
        "rewires": len(runs[0].result.rewires),
        "peak_bytes": watch.highest,
        "folder_bytes": written,
        "stages": {"start": asdict(start)} | {n: asdict(c) for n, c in watch.costs.items()},
    }


def _written(watch: Stopwatch, runs: list[Outcome], scratch: Path) -> int:
    """Bytes of the run folder, its page among them."""
    with new_folder(scratch) as folder:
        with watch.part("folder"):
            summary = summary_of(runs, "", folder.created)
            write_folder(folder.path, runs, summary, runs[0].inputs)
        with watch.part("page"):
            write_page(folder.path, runs, summary)
    return sum(file.stat().st_size for file in folder.final.rglob("*") if file.is_file())


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]))))

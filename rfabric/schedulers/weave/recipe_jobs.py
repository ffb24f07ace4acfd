"""Jobs that come and go as recipes, on a fabric: a CSV with the columns of `RECIPE_COLUMNS`.

    name,recipe,slo,arrival_s,iterations
    a,grpo-64-h20,1.5,0,200
    b,mine.yaml,1.2,3600,50

Every response is planned at its longest. A recipe that is a file stands beside the CSV.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import RFabricError
from ...fabric import Needs
from ...rl.workload import Workload, read_recipe
from .cluster import ClusterBill, run
from .floor import Floor, Servers
from .jobs import COLUMNS, Column, Job, Pools, figures_of, rows_of
from .on_fabric import FabricProfiles, at_its_longest, planned_profile

RECIPE_COLUMNS: dict[str, Column] = {"recipe": ("recipe", None, False)} | {
    column: COLUMNS[column] for column in ("name", "slo", "arrival_s", "iterations")
}


def read_recipe_jobs(
    path: str | Path, settings: Sequence[str] = ()
) -> tuple[list[Job], dict[str, Workload]]:
    """The jobs of a CSV, by arrival, and what each runs, by name; `settings` go over all recipes.

    RFabricError as `read_jobs` and `read_recipe`.
    """
    jobs, workloads = [], {}
    made: dict[str, Workload] = {}  # one workload a recipe, whose answers are kept
    for name, row in rows_of(path, RECIPE_COLUMNS).items():
        recipe = (row.get("recipe") or "").strip()
        if not recipe:
            raise RFabricError(f"jobs {path}: job {name} has no recipe; name one, such as grpo-64")
        if recipe not in made:
            made[recipe] = at_its_longest(read_recipe(_beside(Path(path), recipe), settings))
        workloads[name] = made[recipe]
        profile, _ = planned_profile(workloads[name])
        jobs.append(Job(name, profile, **figures_of(name, row, RECIPE_COLUMNS)))
    return sorted(jobs, key=lambda job: job.arrival), workloads


def run_on_fabric(
    jobs: Sequence[Job], workloads: Mapping[str, Workload], spec: str, policy: str, seed: int = 0
) -> ClusterBill:
    """What a policy makes of the jobs on a fabric, one half of whose servers trains. Where the spec
    says nothing of size, it has room for all jobs at once.

    RFabricError for jobs with servers of several kinds, or GPUs without a price.
    """
    some = _alike(workloads)
    size, profiles = some.gpus_per_server, [job.profile for job in jobs]
    half = max(sum(p.train_nodes for p in profiles), sum(p.roll_nodes for p in profiles))
    known = FabricProfiles(Needs(2 * half * size, size, some.nic_bps).fabric(spec))
    floor = Floor(known, Servers.halves(known.fabric, size), workloads, size)
    return run(jobs, policy, _pools(some), seed, floor=floor)


def _alike(workloads: Mapping[str, Workload]) -> Workload:
    """One of them, where all have the same servers."""
    kinds = {
        (w.gpus_per_server, w.gpu.name, w.generation_gpu.name, w.nic_bps): w
        for w in workloads.values()
    }
    if len(kinds) > 1:
        told = "; ".join(
            f"{size} {train} and {size} {generate} with {nic / 1e9:g} Gbit/s a GPU"
            for size, train, generate, nic in sorted(kinds)
        )
        raise RFabricError(
            f"jobs on one fabric need servers of one kind for training and one for generation, not "
            f"{told}; set cluster.gpus_per_server, cluster.gpu, generation.gpu and cluster.nic"
        )
    return next(iter(kinds.values()))


def _pools(w: Workload) -> Pools:
    """Servers as a job has them, at the price of its GPUs."""
    for gpu in (w.gpu, w.generation_gpu):
        if gpu.usd_per_hour is None:
            raise RFabricError(
                f"no price is known for {gpu.name}, so that no policy can tell what sharing saves; "
                "use another GPU, such as H800 (--set cluster.gpu=H800)"
            )
    return Pools(
        w.generation_gpu.name,
        w.gpu.name,
        w.gpus_per_server,
        w.generation_gpu.usd_per_hour,
        w.gpu.usd_per_hour,
    )


def _beside(path: Path, recipe: str) -> str:
    own = Path(recipe).suffix and not Path(recipe).is_absolute()
    return str(path.parent / recipe) if own else recipe

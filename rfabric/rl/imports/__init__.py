"""A user's own job as a recipe: the settings of verl, ROLL, slime, NeMo-RL, AReaL or OpenRLHF, read
from their YAML files or launch scripts.

    job = import_job("verl", "run_grpo.sh")
    print(job.yaml())         a recipe; each line says which key it came from, or that it is assumed
    job.unmapped              what the file sets and a recipe cannot say

Nothing is run and nothing is guessed in silence: what a file leaves out is the framework's own
default where that is known, else an assumption; either is marked as one beside the value.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from ...compute.gpus import GPUS, find_gpu
from ...errors import RFabricError
from ..workload import read_recipe
from .effects import read_effects
from .job_models import put_model, shaped
from .racks import note_rack
from .settings import JobSettings, read_settings
from .sourced_values import SourcedValues

FRAMEWORKS = {
    "verl": ("verl", "github.com/verl-project/verl"),
    "roll": ("roll", "github.com/alibaba/ROLL"),
    "slime": ("slime", "github.com/THUDM/slime"),
    "nemo-rl": ("nemo_rl", "github.com/NVIDIA-NeMo/RL"),
    "areal": ("areal", "github.com/inclusionAI/AReaL"),
    "openrlhf": ("openrlhf", "github.com/OpenRLHF/OpenRLHF"),
}
LENGTHS = ("deepseek-r1", "deepseek-r1-prompts")


@dataclass(frozen=True)
class Imported:
    """A job read: recipe values by key with where each came from, and what did not go into them.

    `assumed`: recipe keys whose value the file does not say; `unmapped`: `key = value` that no
    recipe key can say; `ignored`: keys that change neither time nor traffic, such as the learning
    rate; `notes`: what was decided while reading, such as a variable's default in a script.
    """

    framework: str
    file: str
    values: dict[str, Any]
    origin: dict[str, str]
    assumed: tuple[str, ...]
    unmapped: tuple[str, ...]
    ignored: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def recipe(self) -> dict:
        """The mapping that the recipe file holds."""
        return _nested(self.values)

    @cached_property
    def misfit(self) -> str:
        """Why the recipe cannot run as it is, say a model too large for its GPUs; else empty."""
        return _misfit(self.values)

    @property
    def way_out(self) -> str:
        """The changes that would make a recipe run that cannot, one of them each; empty where none
        is known.
        """
        ways = _ways_out(self.values) if self.misfit else ()
        return f"; it would run with {' or with '.join(ways)}" if ways else ""

    def yaml(self) -> str:
        """The recipe file, a comment beside each value."""
        lines = [
            f"# Imported from the {self.framework} job {Path(self.file).name}; lengths are tokens."
        ]
        section = ""
        for key, value in self.values.items():
            outer, _, last = key.rpartition(".")
            if outer and outer != section:
                lines += ["", f"{outer}:"]
            section = outer
            said = yaml.safe_dump(value, width=10**6, default_flow_style=True).splitlines()[0]
            text = f"{'  ' if outer else ''}{last}: {said}"
            lines.append(f"{text:<40} # {self.origin[key]}")
        return "\n".join([*lines, ""])


def import_job(
    framework: str,
    path: str | Path,
    model: str = "",
    gpu: str = "",
    lengths: str = "",
    environment: Mapping[str, str] | None = None,
) -> Imported:
    """The recipe of a job's file; `model`, `gpu` and `lengths` stand in where it is silent,
    `environment` for the variables that a script finds set where it runs.

    RFabricError where the file cannot be read, or lacks what a recipe cannot do without.
    """
    if framework not in FRAMEWORKS:
        raise RFabricError(f"no importer for {framework!r}; there are {', '.join(FRAMEWORKS)}")
    settings = read_settings(path, environment)
    recipe = SourcedValues(settings)
    module = import_module(f".{FRAMEWORKS[framework][0]}", __name__)
    said = list(settings.values)
    try:
        module.fill(recipe, settings)
    except RFabricError:
        if settings.used:  # what another framework's job lacks is no news
            _check_known(settings, said, framework)
        raise
    _check_known(settings, said, framework)
    put_model(recipe, model)
    _gpu(recipe, gpu)
    _lengths(recipe, lengths)
    read_effects(recipe, settings, shaped(recipe.values["model"]))
    unmapped, ignored = _left(settings, module.NO_EFFECT.split())
    _fit(recipe)
    note_rack(recipe, settings)
    values = {key: recipe.values[key] for key in sorted(recipe.values, key=_place)}
    return Imported(
        framework,
        str(path),
        values,
        recipe.origin,
        tuple(recipe.assumed),
        unmapped,
        ignored,
        settings.notes,
    )


def _check_known(settings: JobSettings, said: list[str], framework: str) -> None:
    """RFabricError for a job that `said` no setting of the framework's own."""
    if not settings.used & set(said):
        names = ", ".join(said[:3]) + ", ..." * (len(said) > 3) if said else "nothing by a name"
        raise RFabricError(
            f"{settings.file}: sets {names}, none of which is known of {framework}; jobs of "
            f"{', '.join(FRAMEWORKS)} can be read, others not"
        )


def _nested(values: Mapping[str, Any]) -> dict:
    nested: dict[str, Any] = {}
    for key, value in values.items():
        section, _, last = key.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[last] = value
    return nested


def _misfit(values: Mapping[str, Any]) -> str:
    """What `read_recipe` has against these values."""
    try:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "job.yaml"
            path.write_text(yaml.safe_dump(_nested(values)), encoding="utf-8")
            read_recipe(path)
    except RFabricError as error:
        return str(error).removeprefix("recipe job: ")
    return ""


def _ways_out(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Changes with which a recipe runs, by kind the least of each; beside engines that are as wide
    as they must be where one change is not enough.
    """
    engines = ({}, *({"generation.tp": values["generation.tp"] * 2**i} for i in range(1, 5)))
    for engine in engines:
        ways = [way for kind in _changes(values) if (way := _least(values, engine, kind))]
        # more GPUs are no way where the same split does without
        least = [w for w in ways if not any(o.items() < w.items() for o in ways)]
        if least:
            return tuple(", ".join(f"{k} {v}" for k, v in way.items()) for way in least)
    return ()


def _least(values: Mapping, beside: dict, ways: Iterator[dict]) -> dict | None:
    """The first of `ways` with which a recipe runs, and what stands beside it."""
    return next((beside | way for way in ways if not _misfit({**values, **beside, **way})), None)


def _changes(values: Mapping[str, Any]) -> Iterator[Iterator[dict]]:
    """Wider or other splits, more GPUs, recomputation, Adam on the hosts: from little to much."""
    yield iter(({"training.recompute": "full"}, {"training.host_optimizer": True}))
    for keys in _WIDER:
        yield ({key: values.get(key, 1) * 2**i for key in keys} for i in range(1, 6))
    yield iter({"generation.tp": n} for n in (4, 2, 1) if n < values["generation.tp"])


_GPUS = ("cluster.training_gpus", "cluster.generation_gpus")
_WIDER = (
    ("generation.tp",),
    ("training.tp",),
    ("training.pp",),
    ("training.ep",),
    _GPUS,
    (*_GPUS, "training.pp"),
    (*_GPUS, "training.ep"),
    (*_GPUS, "training.tp"),
)


def _fit(recipe: SourcedValues) -> None:
    """Other assumptions where the job cannot run with the first ones: it did run, on GPUs and with
    settings that its file does not name. Where none is enough, positions are stretched all the
    same, so that what else stands in its way is heard of.
    """
    if not (why := _misfit(recipe.values)):
        return
    ways = (o for o in _other_assumptions(recipe) if not _misfit(recipe.values | o))
    longest = _stretched(recipe)
    heard = longest if _misfit(recipe.values | longest) != why else {}
    taken, values = next(ways, heard), dict(recipe.values)
    for key, value in taken.items():
        others = {other: taken[other] for other in taken if other != key}
        recipe.assume(key, value, f"else it could not run: {_misfit(values | others) or why}")


def _stretched(recipe: SourcedValues) -> dict[str, Any]:
    """As many positions as the job's own lengths need."""
    return {"generation.context": recipe.longest}


def _other_assumptions(recipe: SourcedValues) -> Iterator[dict[str, Any]]:
    """What else may be assumed, the least change first: positions that are stretched to the job's
    own lengths, larger GPUs, weights as the checkpoint has them, full recomputation.
    """
    free = set(recipe.assumed)
    longest = _stretched(recipe)
    gpus = [recipe.values["cluster.gpu"]]
    if "cluster.gpu" in free:
        small = recipe.values.get("cluster.gpus_per_server") == 4  # as GB200 servers come
        gpus += ["GB200"] if small else ["H200", "B200"]
    full = [{"training.recompute": "full"}] if "training.recompute" in free else []
    stored = _STORED.get(shaped(recipe.values["model"]).stored)
    if stored and "generation.precision" not in recipe.values:
        full += [{"generation.precision": stored} | each for each in ({}, *full)]
    for also in ({}, longest, *full, *(longest | each for each in full)):
        for gpu in gpus:
            yield ({} if gpu == gpus[0] else {"cluster.gpu": gpu}) | also


_STORED = {"fp8": "fp8", "fp8_block": "fp8", "int4": "int4", "mxfp4": "mxfp4"}


def _left(settings: JobSettings, words: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What nobody asked for: as `key = value`, and the keys that change neither time nor traffic,
    which hold one of `words`; a judge or reward model on GPUs has its own time.
    """
    left = settings.left()
    harmless = re.compile("|".join(map(_begun, words)))
    without = tuple(k for k in sorted(left) if harmless.search(k) and not _HARMS.search(k))
    return tuple(f"{key} = {left[key]}" for key in sorted(left) if key not in without), without


def _begun(word: str) -> str:
    """The pattern of keys one of whose words begins so: load-format, not offload."""
    return ("" if word.startswith(".") else r"(?:^|[^A-Za-z0-9])") + re.escape(word)


# What changes memory, traffic or time under a word that mostly does not, as `optimizer` and `moe-`.
_HARMS = re.compile(
    r"offload|precision.aware|fp8|dispatcher|deepep|\.device_mapping$|overlap|chunk|recompute|fusion"
    r"|fused|gemm|rm.url|capacity|dense.tp|load.format|load.balancing.type|(first|last|per).\w*pipeline"
    r"|a2a|runner|force.load|log.probs|exp.avg|main.(grads|params)|master.weights|remainders"
    r"|(cache|reduce).dtype"
    r"|entropy.checkpoint|config_overrides\.(num|hidden|intermediate|vocab)"
)


def _gpu(recipe: SourcedValues, told: str) -> None:
    asked = recipe.settings.gpus
    if not told and len(asked) == 1 and (named := find_gpu(asked[0])) is not None:
        recipe.put("cluster.gpu", named.name, f"the launcher asks for {asked[0]}")
        return
    if not told:
        unknown = f"{asked[0]} is not in the catalog" if asked else "the file does not name the GPU"
        why = f"the file names {', '.join(asked)}" if len(asked) > 1 else unknown
        recipe.assume("cluster.gpu", "H100", f"{why}; say --gpu")
        return
    gpu = find_gpu(told)
    if gpu is None:
        raise RFabricError(
            f"--gpu {told!r} is not in the catalog, which tells siblings apart; it has "
            f"{', '.join(GPUS)}"
        )
    recipe.put("cluster.gpu", gpu.name, "given with --gpu")


def _lengths(recipe: SourcedValues, told: str) -> None:
    why = (
        "no file says how long responses are; production DeepSeek-R1, cut at the maxima; "
        "say --lengths FILE.csv"
    )
    if told:
        recipe.put(
            "generation.lengths",
            told if told == Path(told).stem else str(Path(told).resolve()),
            "given with --lengths",
        )
    else:
        recipe.assume("generation.lengths", LENGTHS[0], why)
    recipe.assume("generation.prompt_lengths", LENGTHS[1], "as above, its prompts")


_SECTIONS = ("", "cluster", "generation", "training", "weight_sync")


def _place(key: str) -> int:
    return _SECTIONS.index(key.rpartition(".")[0])

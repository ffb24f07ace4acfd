"""An RL post-training job: model, cluster and recipe, checked when it is made.

You cannot hold one that does not fit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..compute.configs import model_of
from ..compute.models import Model
from ..compute.named import find_config, likely_models, read_model
from ..errors import RFabricError, meant
from ..folders import data_dir
from .checks import check
from .lengths import Lengths, rates_beside
from .recipe import choice, count, make, number, override, read_yaml, refuse_unknown
from .sections import Cluster, Efficiency, Environments, Generation, Training, WeightSync
from .setup import PIPELINES, Setup


@dataclass(frozen=True, eq=False)
class Workload(Setup):
    """A job that fits its GPUs; RFabricError names the first thing that does not, its limit and the
    nearest setting that does.
    """

    __repr__ = Setup.__repr__

    def __post_init__(self):
        count(high=10**4)(self.steps, "steps")
        choice(*PIPELINES)(self.pipeline, "pipeline")
        choice("disaggregated", "colocated")(self.placement, "placement")
        if self.staleness is not None:
            number(0.01, 1000)(self.staleness, "staleness")
        check(self)


SECTIONS = {
    "cluster": Cluster,
    "generation": Generation,
    "training": Training,
    "weight_sync": WeightSync,
    "efficiency": Efficiency,
    "environments": Environments,
}


def read_recipe(name_or_path: str | Path, overrides: Iterable[str] = ()) -> Workload:
    """The workload of a recipe in traffic/ or at a path, with settings such as `training.tp=2` put
    over it. RFabricError says which key is wrong.
    """
    path = _recipe_path(str(name_or_path))
    values = override(read_yaml(path), overrides)
    try:
        return _workload(path, values)
    except RFabricError as error:
        raise RFabricError(f"recipe {path.stem}: {error}") from error


def recipe_names() -> list[str]:
    """The recipes in traffic/."""
    return sorted(path.stem for path in data_dir("traffic").glob("*.yaml"))


def _recipe_path(name: str) -> Path:
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return path
    if name not in recipe_names():
        jobs = [file.stem for file in (data_dir("traffic") / "jobs").glob("*.yaml")]
        if name in jobs:
            raise RFabricError(
                f"{name} is a file of several jobs; one is asked for here, such as "
                f"{', '.join(recipe_names())}, or a FILE.yaml"
            )
        hint = meant(name, [*recipe_names(), *jobs])
        raise RFabricError(
            f"no recipe named {name!r}{hint}; there are {', '.join(recipe_names())}, or give a "
            "FILE.yaml"
        )
    return data_dir("traffic") / f"{name}.yaml"


def _workload(path: Path, values: dict) -> Workload:
    refuse_unknown(values, ["model", *SCALARS, *SECTIONS])
    for required in ("model", "cluster", "generation", "training"):
        if required not in values:
            raise RFabricError(f"{required} is missing; the recipe must say it")
    generation = values["generation"]
    files = {"recipe": path}
    if not isinstance(values["model"], dict):
        files["model"] = _data(path, "models", "model", values["model"])
    if isinstance(generation, dict):
        files |= {k: _data(path, "lengths", k, generation[k]) for k in _LENGTHS if k in generation}
        generation = generation | {
            k: Lengths.read(file, _LENGTHS[k]) for k, file in files.items() if k in _LENGTHS
        }
    sections = {
        k: make(cls, values[k]) for k, cls in SECTIONS.items() if k in values and k != "generation"
    }
    return Workload(
        name=path.stem,
        model=read_model(files["model"]) if "model" in files else _inline(values["model"]),
        generation=make(Generation, generation),
        **{name: values[name] for name in SCALARS if name in values},
        recipe=values,
        files=(*files.values(), *_beside_lengths(files)),
        **sections,
    )


def _beside_lengths(files: Mapping[str, Path]) -> list[Path]:
    """The rates that weight the lengths of files."""
    rates = (rates_beside(file) for key, file in files.items() if key in _LENGTHS)
    return list(dict.fromkeys(file for file in rates if file))


def _inline(config: dict) -> Model:
    """The model whose config stands in the recipe itself, under a `name`."""
    fields = dict(config)
    name = fields.pop("name", "model")
    if not isinstance(name, str) or not name.isprintable():
        raise RFabricError(f"model.name: {name!r} is no name; write for example name: My-7B")
    return model_of(fields, name)


SCALARS = ("steps", "pipeline", "staleness", "placement")
_LENGTHS = {"lengths": "output", "prompt_lengths": "prompt"}


def _data(recipe: Path, folder: str, key_name: str, value: object) -> Path:
    """The file that a recipe names: one of its own, beside it, or a name from traffic/`folder`."""
    if not isinstance(value, str) or not value:
        raise RFabricError(
            f"{key_name}: {value!r} is not a name; name a file or one in traffic/{folder}/"
        )
    shipped = {path.stem: path for path in sorted((data_dir("traffic") / folder).iterdir())}
    if value in shipped:
        return shipped[value]
    if (recipe.parent / value).is_file():
        return recipe.parent / value
    config = find_config(value) if folder == "models" else None
    if config:
        return config
    there = likely_models(value) if folder == "models" else ", ".join(shipped)
    raise RFabricError(
        f"{key_name}: no file {value!r} beside the recipe; traffic/{folder}/ has {there}"
    )

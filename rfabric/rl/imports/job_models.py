"""The model of a job: a name in traffic/models, the user's own config file, the shape that the job
spells out, or the model that its words mean or are nearest to, which is an assumption.
"""

import re
from pathlib import Path

from ...compute.configs import model_of
from ...compute.likeness import config_like
from ...compute.models import Model
from ...compute.named import find_model, likely_models, load_model
from ...compute.sizes import SLACK, stated_sizes
from ...errors import RFabricError
from .settings import JobSettings
from .sourced_values import SourcedValues


def put_model(recipe: SourcedValues, told: str) -> None:
    """Put the model: a name in traffic/models, the user's own config file, a shape, or what is
    nearest to its name, as assumed. RFabricError where it says too little.
    """
    stated = told or str(recipe.values.get("model", ""))
    if told.endswith(".json"):
        recipe.put("model", str(Path(told).resolve()), "given with --model")
        return
    if _SEES.search(_last(stated).lower()):
        recipe.settings.notes += (f"{stated}: its parts for vision and audio are not counted",)
    known = find_model(stated) if stated else None
    if known is not None:
        layers = recipe.shape.get("num_hidden_layers", known.layers)
        if layers != known.layers:
            said = f"the job's own flags say {layers} layers; {known.name} has {known.layers}"
            recipe.settings.notes += (f"{said}, and is taken; --model config.json makes it exact",)
        recipe.put("model", known.name, "given with --model" if told else recipe.origin["model"])
    elif recipe.shape:
        own = {"name": _last(stated) or "model"} | recipe.shape
        recipe.put("model", own, "the shape that the job's own flags spell out")
    elif (named := _worded(stated)) is not None:
        why = f"{stated!r} is no model; words of its name mean {named}; say --model NAME"
        recipe.assume("model", named, why)
    elif (like := config_like(stated)) is not None:
        config, shape = like
        name = _last(stated)
        why = f"{name} has no config here; {shape}, by the size it states; say --model config.json"
        recipe.assume("model", {"name": name} | config, why)
    elif (hint := _hinted(recipe.settings, stated)) is not None:
        recipe.assume("model", hint[0], f"{stated!r} is no model; {hint[1]}; say --model NAME")
    else:
        none = f"it names no model{recipe.settings.away}"
        said = f"model {stated!r} has no config here" if stated else none
        also = f", which has {likely_models(stated)}" if stated else ""
        raise RFabricError(
            f"{recipe.settings.file}: {said}; say --model config.json, or one "
            f"of traffic/models/{also}"
        )


# Names of models that see or hear: Qwen2.5-VL, Kimi-VL, GLM-4.5V, MiniCPM-o, Qwen3-Omni.
_SEES = re.compile(r"[-_.](vl|omni|[ov])([-_.]|$)|\dv([-_.]|$)")


def _last(stated: str) -> str:
    """The last part of a path or of a name with its maker."""
    return re.split(r"[/:]", stated.rstrip("/"))[-1]


def _worded(stated: str) -> str | None:
    """The model that words of a checkpoint's name mean, as of dapo-qwen3-14b-step200, where it is
    of the size that the name states.
    """
    sizes, name = stated_sizes(stated), _named_in(_last(stated))
    if sizes is None or name is None:
        return None
    return name if abs(load_model(name).parameters / sizes.total - 1) <= SLACK else None


def _hinted(s: JobSettings, stated: str) -> tuple[str, str] | None:
    """The model that the words of its path mean, the file's name or a name of the run; and which
    of them.
    """
    texts = {"its words": stated, "the file's name": Path(s.file).stem}
    texts |= {key: str(value) for key, value in s.values.items() if _RUN_NAME.search(key)}
    named = ((_named_in(text), where) for where, text in texts.items())
    return next(((name, where) for name, where in named if name), None)


_RUN_NAME = re.compile(r"(^|[._-])(exp|experiment|trial|project|run)_name$|wandb[._-](name|group)$")


def _named_in(text: str) -> str | None:
    """The model that the longest run of words in a text means, where none behind it says that it is
    a smaller or larger one: Phi-4-mini is no Phi-4.
    """
    words = re.split(r"[^A-Za-z0-9.]+", text)
    ends = [(i, j) for i in range(len(words)) for j in range(i + 1, len(words) + 1)]
    runs = [run for i, j in ends if _is_whole(run := "-".join(words[i:j]), *words[j : j + 1])]
    named = (find_model(run) for run in sorted(runs, key=len, reverse=True) if len(run) > 3)
    return next((model.name for model in named if model is not None), None)


def _is_whole(run: str, behind: str = "") -> bool:
    """Whether the word behind a name leaves it as it is."""
    return not _OTHER_SIZE.fullmatch(behind) or bool(re.search(r"\d[bB]$", run))


_OTHER_SIZE = re.compile(r"(?i)mini|small|tiny|nano|micro|lite|medium|large|max|ultra")


def shaped(said: str | dict) -> Model:
    """The model that a recipe names, or whose config stands in it."""
    if isinstance(said, dict):
        return model_of({k: v for k, v in said.items() if k != "name"}, str(said.get("name")))
    return load_model(said)

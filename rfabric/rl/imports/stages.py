"""Layers over pipeline stages: chunks of a stage, and stages that do not hold equally many."""

import re
from typing import Any

from ...compute.models import Model
from .approximations import above, is_on
from .endings import take_ending
from .settings import JobSettings
from .sourced_values import SourcedValues


def read_stages(recipe: SourcedValues, s: JobSettings, model: Model) -> None:
    """Put how many chunks a stage holds, and the layers of each where stages are unlike.

    Megatron-LM's rules (get_num_layers_to_build in megatron/core/transformer/transformer_block.py):
    the layers that the first and the last stage are told, the rest equally over the others; or the
    embedding and the loss each count as a layer of theirs; or a layout that names each.
    """
    _chunks(recipe, s, model)
    stages = recipe.values.get("training.pp", 1)
    if stages == 1:
        return
    mean = model.layers / stages
    layout = take_ending(s, "pipeline_model_parallel_layout")
    said, layers = _held(s, model.layers, stages)
    if layout and layout[1]:
        said, layers = f"{layout[0]} = {layout[1]}", _laid_out(str(layout[1]), stages)
        if sum(layers) != model.layers:
            s.notes += (f"{said}: not read; each stage holds {mean:g} layers here",)
            return
        if (chunks := len(_parts(str(layout[1]))) // stages) > 1:
            recipe.put("training.vp", chunks, layout[0])
    if sum(layers) != model.layers or min(layers) < 0:
        beside = f"{said}: beside these, " if said else ""
        s.notes += (
            f"{beside}{model.layers} layers do not divide over {stages} pipeline stages; here each "
            f"holds {mean:g}",
        )
        return
    if max(layers) > mean:
        _unlike(recipe, s, said, layers)
    chunks = int(recipe.values.get("training.vp", 1))
    if any(count % chunks for count in layers):
        s.notes += (
            f"{recipe.origin['training.vp']}: stages of {_runs(layers)} layers do not divide into "
            f"{chunks} chunks; here all chunks of a stage are alike",
        )


def _unlike(recipe: SourcedValues, s: JobSettings, said: str, layers: list[int]) -> None:
    """Stages with the layers that `said` gives each; of stages without any there are none here."""
    stages = f"{said}: stages of {_runs(layers)} layers"
    mean = sum(layers) / len(layers)
    if min(layers) == 0:
        s.notes += (
            f"{stages}; here none is without, and each holds {mean:g}, so that the widest may take "
            f"{max(layers) / mean:.2f} times as long and as much memory",
        )
        return
    recipe.put("training.stage_layers", layers, " ".join(said.split()))


def _chunks(recipe: SourcedValues, s: JobSettings, model: Model) -> None:
    """Chunks of a pipeline stage, or the layers of each."""
    names = (f"virtual_pipeline_{kind}parallel_size" for kind in ("model_", ""))
    said = take_ending(s, *names, "num_virtual_stages_per_pipeline_rank")
    each = take_ending(s, "num_layers_per_virtual_pipeline_stage")
    stages = recipe.values.get("training.pp", 1)
    if each and above(0)(each[1]):
        layers = model.layers + len(_counted(s))
        said = each[0], layers // max(1, stages * int(each[1]))
    if said and above(1)(said[1]) and stages > 1:
        recipe.put("training.vp", said[1], said[0])


_ENDS = (
    ("num_layers_in_first_pipeline_stage", "decoder_first_pipeline_num_layers"),
    ("num_layers_in_last_pipeline_stage", "decoder_last_pipeline_num_layers"),
)
_COUNTED = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")


def _held(s: JobSettings, layers: int, stages: int) -> tuple[str, list[int]]:
    """What says that stages differ, and the layers of each; fewer in all than the model's where the
    rest does not divide.
    """
    ends = [take_ending(s, *names) for names in _ENDS]
    told = [end if end and above(0)(end[1]) else None for end in ends]
    counted = _counted(s)
    if any(told):
        others = stages - sum(map(bool, told))
        own = [[int(end[1])] if end else [] for end in told]
        rest = layers - sum(map(sum, own))
        held = own[0] + [rest // max(1, others)] * others + own[1]
    else:
        each = (layers + len(counted)) // stages
        held = [each] * stages
        held[0] -= _COUNTED[0] in counted
        held[-1] -= _COUNTED[1] in counted
    which = (*(end for end in told if end), *counted.values())
    return ", ".join(f"{key} = {value}" for key, value in which), held


def _counted(s: JobSettings) -> dict[str, tuple[str, Any]]:
    """What counts as a layer of the stage that holds it, by name: the embedding, the loss."""
    said = {name: take_ending(s, name) for name in _COUNTED}
    return {name: told for name, told in said.items() if told and is_on(told[1])}


def _laid_out(layout: str, stages: int) -> list[int]:
    """The layers of each stage by Megatron's layout, whose parts go round the stages. Empty of one
    that says no such stages.

    >>> _laid_out("Et*3|(tt|)*2tL", 2), _laid_out("Et|tL", 2), _laid_out("Et|tL", 3)
    ([5, 3], [1, 1], [])
    """
    parts = _parts(layout)
    whole = parts and len(parts) % stages == 0
    return [sum(parts[stage::stages]) for stage in range(stages)] if whole else []


def _parts(layout: str) -> list[int]:
    """The layers of each part of Megatron's layout (parse_str_to_list in its
    pipeline_parallel_layer_layout.py): t is a layer, | ends a part, x*3 and (x)*3 repeat. Empty of
    another text.
    """
    text = re.sub(r"[\s,'\"]", "", layout)[:_MOST]
    for repeated in (r"\(([^()]*)\)\*(\d{1,3})", r"([\w|])\*(\d{1,3})"):
        text = re.sub(repeated, lambda m: m[1] * int(m[2]), text)
        if len(text) > _MOST:
            return []
    known = re.fullmatch(r"[EtmL|]+", text)
    return [part.count("t") for part in text.split("|")] if known else []


_MOST = 10_000  # characters of a layout


def _runs(layers: list[int]) -> str:
    """Equal neighbours once: 3, 14 x 4, 2."""
    runs: list[list[int]] = []
    for count in layers:
        if runs and runs[-1][1] == count:
            runs[-1][0] += 1
        else:
            runs.append([1, count])
    return ", ".join(f"{times} x {count}" if times > 1 else f"{count}" for times, count in runs)

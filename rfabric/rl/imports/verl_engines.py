"""What trains in a verl job: Megatron, FSDP or an engine built on it, each with settings of its own
for the same things.
"""

import re

from .approximations import is_on
from .endings import ending, take_ending
from .fsdp_units import put_units
from .settings import JobSettings
from .sourced_values import SourcedValues

ACTOR = "actor_rollout_ref.actor"
FSDP = f"{ACTOR}.fsdp_config"
MEGATRON = ("megatron", "mindspeed")  # the latter is it on NPUs, by the same names

# What the engines beside Megatron call the ways in which they cut the training.
_WAYS = {
    "veomni": {"cp": "ulysses_parallel_size", "ep": "expert_parallel_size"},
    "torchtitan": {
        "tp": "tensor_parallel_size",
        "pp": "pipeline_parallel_size",
        "cp": "context_parallel_size",
        "ep": "expert_parallel_size",
    },
    "automodel": {"tp": "tp_size", "pp": "pp_size", "cp": "cp_size", "ep": "ep_size"},
}


def engine_of(s: JobSettings) -> str:
    """What trains: by the strategy, the engine or config named, or by Megatron's keys, as where a
    variable that is not set stands for the name, which is noted.
    """
    key, said = _named(s)
    known = "$" not in said
    engine = next((engine for engine in (*MEGATRON, *_WAYS) if known and engine in said), "")
    unnamed = key == _CONFIG or not known
    keys = unnamed and any(key.startswith(f"{ACTOR}.megatron.") for key in s.values)
    engine = engine or ("megatron" if keys else "fsdp")
    if not known:
        why = "by its section" if keys else "by default"
        s.notes += (f"{key} is {said}: {engine} trains here, {why}; {s.way_out(key)}",)
    return engine


def _named(s: JobSettings) -> tuple[str, str]:
    """The key that names what trains, with its value; the config's own name where there is none."""
    named = s.find(f"{ACTOR}.strategy", "model_engine", "actor@actor_rollout_ref.actor")
    key, said = named or (_CONFIG, s.values.get(_CONFIG, ""))
    return key, str(said)


_CONFIG = "config-name"


def drop_unused(s: JobSettings, engine: str) -> None:
    """Forget the sections of engines that do not train, which a config may hold beside the one, and
    say so; none where the name says something that is not known.
    """
    if not _ENGINE.fullmatch(_named(s)[1]):
        return
    for other in sorted({*MEGATRON, *_WAYS, "fsdp_config"} - {engine}):
        section = f"{ACTOR}.{other}."
        unused = other != "fsdp_config" or engine in MEGATRON  # what is built on FSDP may read its
        if unused and any(key.startswith(section) for key in s.values):
            s.drop(section)
            s.notes += (f"{section}*: of an engine that does not train, left out",)


_NAMES = "|".join(("dp", "fsdp2?", *MEGATRON, *_WAYS))
_ENGINE = re.compile(rf"(ppo_)?({_NAMES})(_actor|_trainer(\.yaml)?)?")


def put_sharded(recipe: SourcedValues, s: JobSettings, engine: str) -> None:
    """An engine that shards parameters: FSDP, and those built on it."""
    recipe.put("training.tp", 1, f"{engine}: parameters are sharded, not cut by tensor")
    recipe.put("training.optimizer", "sharded", engine)
    plain = f"{ACTOR}.ulysses_sequence_parallel_size", f"{FSDP}.ulysses_sequence_parallel_size"
    own = _WAYS.get(engine, {})
    ways: dict[str, tuple[str, ...]] = {w: (f"{ACTOR}.{engine}.{own[w]}",) for w in own}
    ways["cp"] = (*ways.get("cp", ()), *plain)
    for way, keys in ways.items():
        recipe.take(f"training.{way}", *keys, default=1)
    if recipe.values["training.cp"] > 1 and "ulysses" in recipe.origin["training.cp"]:
        recipe.put("training.context_exchange", "ulysses", f"{engine}'s sequence parallelism")
    _copies(recipe, s, engine)
    if engine == "fsdp":
        put_units(recipe, s, ACTOR)
    if engine == "automodel" and s.value(_KIND, default="fsdp2") == "ddp":
        recipe.put("training.optimizer", "replicated", f"{_KIND} = ddp")
        if "training.fsdp_size" in recipe.values:
            recipe.drop("training.fsdp_size")
        s.notes += (
            f"{_KIND} = ddp: gradients are summed in every micro-batch; here once an update",
        )


_KIND = f"{ACTOR}.automodel.distributed_strategy"


def _copies(recipe: SourcedValues, s: JobSettings, engine: str) -> None:
    """Parameters sharded over part of the GPUs; -1, and as many as train or more, are all. VeOmni
    counts data-parallel ranks, torchtitan and Automodel the copies.
    """
    v = recipe.values
    ranks = v["cluster.training_gpus"] // max(1, v["training.tp"] * v.get("training.pp", 1))
    if engine in _COPIES:
        said = s.number(f"{ACTOR}.{engine}.{_COPIES[engine]}")
        each = ranks // said[1] if said and said[1] else 0
    else:
        key = f"{ACTOR}.veomni.fsdp_size" if engine == "veomni" else f"{FSDP}.fsdp_size"
        said = None if str(s.value(key)).startswith("-") else s.number(key)
        each = said[1] * (v["training.cp"] if engine == "veomni" else 1) if said else 0
    if said and 0 < each < ranks:
        recipe.put("training.fsdp_size", each, said[0])


_COPIES = {"torchtitan": "data_parallel_replicate_size", "automodel": "dp_replicate_size"}


def put_padding(recipe: SourcedValues, s: JobSettings, engine: str) -> None:
    """What sequences are filled up to where padding stays: those of a micro-batch to its longest,
    or with Megatron in verl 0.9 to the longest of a rank's mini-batch.
    """
    said = ending(s, "use_remove_padding")
    s.used |= {key for key, _ in said}
    off = next((f"{key} = {value}" for key, value in said if not is_on(value)), "")
    if not off:
        if not said and engine == "fsdp":
            s.notes += (
                f"{_MODEL}.use_remove_padding is not set: padding is taken away, as by default "
                f"since verl 0.7; before it is computed, {_BEFORE}",
            )
    elif engine not in MEGATRON:
        flash = engine in ("fsdp", "veomni")
        kernel = take_ending(s, "attn_implementation")
        flash &= kernel is None or "flash" in str(kernel[1])
        beside = ", but for attention" * flash
        note = f"up to the longest sequence of each micro-batch{beside}; before verl 0.8 {_BEFORE}"
        recipe.padding("micro-batch", off, note, not flash)
    elif (whole := take_ending(s, "pad_bshd_to_minibatch_max")) and not is_on(whole[1]):
        note = "up to the longest sequence of each micro-batch"
        recipe.padding("micro-batch", f"{off}, {whole[0]} = {whole[1]}", note)
    else:
        note = (
            "up to the longest sequence of a mini-batch, as in verl 0.9; in 0.7 and 0.8 of a "
            "micro-batch, say training.padding=micro-batch; before not at all, say none"
        )
        recipe.padding("mini-batch", off, note)


_BEFORE = "up to max_prompt_length + max_response_length, which training.padding=maximum says"


def put_recompute(recipe: SourcedValues, s: JobSettings, engine: str) -> None:
    """What is computed again in the backward pass, which some engines say in their own section, and
    verl 0.4's Megatron in that of the model (verl/single_controller/base/megatron/worker.py there).
    """
    model = s.find(f"{_MODEL}.enable_gradient_checkpointing")
    if engine in MEGATRON:
        said = s.find(*(f"{ACTOR}.{engine}.{section}.{_GRANULARITY}" for section in _EXTRAS))
        old = s.find(f"{_MODEL}.gradient_checkpointing_kwargs.activations_checkpoint_granularity")
        if model and s.flag(model[0]):
            said = said or old
        key, mode = said or (_GRANULARITY, None)
        recipe.recompute(mode == "full", key.split(".")[-1], said is not None)
    elif engine in _AGAIN:
        key = f"{ACTOR}.{engine}.{_AGAIN[engine]}"
        mode = s.value(key, default="selective" if engine == "torchtitan" else False)
        if mode == "selective":
            recipe.recompute_some(key)
        else:
            recipe.recompute(mode == "full" or is_on(mode), key, s.find(key) is not None)
    else:
        full = model is None or s.flag(model[0])
        recipe.recompute(full, "enable_gradient_checkpointing", model is not None)


_MODEL = "actor_rollout_ref.model"
_GRANULARITY = "recompute_granularity"
_EXTRAS = ("override_transformer_config", "extra")  # the latter is verl 0.4's
_AGAIN = {"torchtitan": "activation_checkpoint", "automodel": "activation_checkpointing"}

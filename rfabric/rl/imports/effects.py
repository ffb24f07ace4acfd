"""Settings that change time, traffic or memory under the same name in several frameworks: read into
the recipe where it has a key for them, else said as an approximation.

A setting is known by the last part of its key (`endings`).
"""

import re
from pathlib import Path
from typing import Any

from ...compute.models import Model
from .approximations import APPROXIMATIONS, MORE_TURNS, above, is_on
from .caches import read_caches
from .endings import OTHER_ROLES, ending, take_ending
from .fsdp_units import fit_units
from .settings import JobSettings
from .sourced_values import SourcedValues
from .stages import read_stages

_Said = list[tuple[str, Any]]  # keys with their values


def read_effects(recipe: SourcedValues, s: JobSettings, model: Model) -> None:
    """Put what the recipe can say of such settings, and note what it cannot."""
    for read in _READERS:
        read(recipe, s)
    for fit in (read_stages, read_caches, fit_units, _cut_experts, _engine):
        fit(recipe, s, model)
    for names, holds, text in APPROXIMATIONS:
        for key, value in ending(s, *names):
            s.used.add(key)
            told = text is MORE_TURNS and "generation.turns" in recipe.values
            if holds(value) and not told and not _section_is_off(s, key):
                s.notes += (f"{key} = {value}: {text}",)


def _section_is_off(s: JobSettings, key: str) -> bool:
    """Whether a setting stands in a section that is off, as verl's own files have them all: turns
    without `enable`, drafts of MTP without `enable_rollout`.
    """
    section, _, last = key.rpartition(".")
    switches = ["enable", "enabled"] + ["enable_rollout"] * ("speculative" in last)
    said = (s.values.get(f"{section}.{name}") for name in switches if name != last)
    return any(value is not None and not is_on(value) for value in said)


def _precision(recipe: SourcedValues, s: JobSettings) -> None:
    """Of the engine's weights: said, or in the name of the checkpoint that it loads."""
    said = [
        (key, str(value).lower())
        for key, value in ending(s, "quantization", "sglang_quantization", "precision")
        if key.split(".")[-1] != "precision" or "generation" in key
    ]
    s.used |= {key for key, _ in said}
    for key, text in said:
        word = next((word for word in _FORMATS if word in text), "")
        if word and "generation.precision" not in recipe.values:
            recipe.put("generation.precision", _FORMATS[word], key)
        if word == "fp4":
            s.notes += (f"{key} = {text}: computed as int4, with about its bytes a weight",)
        elif not word and text not in _PLAIN:
            s.notes += (f"{key} = {text}: weights of engines in it are not modelled; here in BF16",)
    stated = s.values.get("hf-checkpoint", s.values.get("actor_rollout_ref.model.path", ""))
    names = {"the checkpoint's name": str(stated).lower()}
    names |= {"the file's name": "int4" if "int4" in Path(s.file).stem.lower() else ""}
    for where, text in names.items():
        kind = next((kind for kind in ("fp8", "int4") if kind in text), "")
        if kind and "generation.precision" not in recipe.values:
            recipe.put("generation.precision", kind, where)


# Words in the names of formats, mxfp4 before fp4, and the precision that stands for each.
_FORMATS = {"mxfp4": "mxfp4", "fp4": "int4", "fp8": "fp8"} | dict.fromkeys(
    ("int4", "w4a16", "awq", "gptq"), "int4"
)
_PLAIN = ("", "none", "null", "false", "auto", "half", "bf16", "bfloat16", "fp16", "float16",
          "fp32", "float32")  # fmt: skip


def _matmuls(recipe: SourcedValues, s: JobSettings) -> None:
    """FP8 in training: Transformer Engine's format, where its section is not off."""
    areal = [(k, v) for k, v in s.values.items() if _AREAL_FP8.fullmatch(k)]
    for key, value in ending(s, "fp8", "fp8_format") + areal:
        on = _text(value) not in ("", "none", "null", "disabled") and not _is_off(s, key)
        if not _generates(key) and "fp8" in key:
            s.used.add(key)
            if on:
                recipe.put("training.precision", "fp8", key)


_AREAL_FP8 = re.compile(r"actor\.(\w+\.)?fp8_config\.mode")


def _optimizer(recipe: SourcedValues, s: JobSettings) -> None:
    """Adam on the host, or its states with every rank."""
    on_host = take_ending(s, *_ON_HOST)
    sharded = recipe.values.get("training.optimizer") == "sharded"
    if on_host and is_on(on_host[1]) and (sharded or "optimizer" in on_host[0]):
        _put_on_host(recipe, s, on_host[0])
    fsdp = take_ending(s, "use_megatron_fsdp", "use_custom_fsdp")
    if fsdp and is_on(fsdp[1]) and not sharded:
        recipe.put("training.optimizer", "sharded", fsdp[0])
        s.notes += (f"{fsdp[0]}: a bf16 copy of each shard, 2 bytes a parameter, is not counted",)
    distributed = take_ending(s, "use_distributed_optimizer")
    sharded = recipe.values.get("training.optimizer") == "sharded"
    if distributed and not is_on(distributed[1]) and not sharded:
        recipe.put("training.optimizer", "replicated", distributed[0])


_ON_HOST = (
    "optimizer_cpu_offload",
    "cpu_offload",
    "offload_params",
    "offload_policy",  # FSDP2's, of verl
    "fsdp_cpu_offload",
    "enable_fsdp_offload",  # VeOmni's, of verl
    "fsdp_offload_enabled",  # NeMo-RL 0.2
)


def _put_on_host(recipe: SourcedValues, s: JobSettings, key: str) -> None:
    """Adam on the host, or that share of it which Megatron's fraction says."""
    share = next(iter(ending(s, "optimizer_offload_fraction")), (key, 1))
    s.used.add(share[0])
    if share[1] != 0:
        recipe.put("training.host_optimizer", True, key)
    if not key.replace("-", "_").endswith("optimizer_cpu_offload"):
        s.notes += (
            f"{key}: sharded parameters are in the hosts' memory as well; here they stay in the "
            "HBM, which takes less time and more room",
        )
    if type(share[1]) in (int, float) and 0 < share[1] < 1:
        s.notes += (
            f"{share[0]} = {share[1]}: the other states of Adam stay in the HBM; here all of them "
            "are on the hosts, which takes longer and leaves more room",
        )


def _gradients(recipe: SourcedValues, s: JobSettings) -> None:
    """What gradients are sent as, in FSDP's words or in that of Megatron."""
    sharded = recipe.values.get("training.optimizer") == "sharded"
    if said := take_ending(s, *(_REDUCED if sharded else ("grad_reduce_in_fp32",))):
        fp32 = "32" in str(said[1]) if sharded else is_on(said[1])
        recipe.put("training.grad_dtype", "fp32" if fp32 else "bf16", said[0])
    elif not sharded and (short := _short_gradients(s)):
        recipe.put("training.grad_dtype", "bf16", short)


def _short_gradients(s: JobSettings) -> str:
    """What says that verl reduces Megatron's gradients in less than FP32: the optimizer's own are
    so (_resolve_override_ddp_config in verl/workers/engine/megatron/transformer_impl.py).
    """
    main = next(iter(ending(s, "main_grads_dtype")), None)
    aware = ending(s, "use_precision_aware_optimizer")
    short = main and "32" not in str(main[1]) and any(is_on(value) for _, value in aware)
    return main[0] if main and short else ""


_REDUCED = ("reduce_dtype", "mp_reduce_dtype", "grad_reduce_dtype")  # verl's, Automodel's, AReaL's


def _cut_experts(recipe: SourcedValues, s: JobSettings, model: Model) -> None:
    """Of how many ways experts are cut, what the model and its GPUs have room for."""
    v = recipe.values
    if "training.etp" not in v:
        return
    if not model.experts or v["training.etp"] == 1:
        recipe.drop("training.etp")
        return
    stage = v["cluster.training_gpus"] // v["training.pp"]
    if "training.etp" in recipe.assumed and stage % (v["training.ep"] * v["training.etp"]):
        s.notes += (
            f"expert_tensor_parallel_size is not set: {v['training.etp']}, as tp, by Megatron's "
            f"default, which refuses {v['training.ep']} x {v['training.etp']} on the {stage} GPUs "
            "of a pipeline stage; here experts are dealt whole, not cut",
        )
        recipe.drop("training.etp")


def _exchange(recipe: SourcedValues, s: JobSettings) -> None:
    """Context parallelism by all-to-alls in place of a ring, as Megatron calls it."""
    said = take_ending(s, "cp_comm_type")
    if said and _text(said[1]) == "a2a" and recipe.values.get("training.cp", 1) > 1:
        recipe.put("training.context_exchange", "ulysses", said[0])


def _epochs(recipe: SourcedValues, s: JobSettings) -> None:
    said = take_ending(s, "ppo_epochs")
    if said and above(1)(said[1]):
        recipe.put("training.epochs", int(said[1]), said[0])


def _critic(recipe: SourcedValues, s: JobSettings) -> None:
    """A critic beside the policy, where advantages are estimated with one."""
    said = take_ending(s, "adv_estimator") or s.find(
        *(k for k in s.values if k.endswith(_ESTIMATOR))
    )
    switch = next((k for k in ("critic.enable", "critic.is_critic") if s.find(k)), "")
    learns = s.flag(switch) if switch else bool(said and _text(said[1]) == "gae")
    if not learns:
        return
    where = said[0] if said else switch
    recipe.put("training.critic", True, f"{where}; a critic of the policy's shape")
    passes = recipe.values.get("training.log_prob_passes", 1) + 1
    recipe.put("training.log_prob_passes", passes, "as the policy's, and the critic's values")
    s.notes += (
        f"{where}: a critic is trained on the policy's GPUs, with its layout and shape; what "
        "critic.* says of another is not modelled",
    )


def _adapters(recipe: SourcedValues, s: JobSettings) -> None:
    """Adapters that learn in place of the weights: their rank, and what of them engines get."""
    if "training.lora_rank" not in recipe.values:
        _rank(recipe, s)
    if not recipe.values.get("training.lora_rank"):
        return
    stated = "training.lora_rank" not in recipe.assumed
    key = recipe.origin["training.lora_rank"] if stated else "LoRA"
    merged = [k for k, v in s.values.items() if k.endswith("model.lora.merge") and is_on(v)]
    s.used |= set(merged)
    nemo = key.startswith("policy.")
    if merged:
        recipe.put("weight_sync.adapters", "merged", merged[0])
    elif nemo:
        recipe.assume("weight_sync.adapters", "merged", "NeMo-RL's engines get whole weights")
    whole = recipe.values.get("weight_sync.adapters") == "merged"
    told = "whole weights" if whole else "the adapters alone"
    s.notes += (
        f"{key}: adapters beside every matrix of the layers are trained, experts' too, and a "
        f"weight sync sends {told}; which matrices the job leaves out is not read",
    )


def _rank(recipe: SourcedValues, s: JobSettings) -> None:
    """The rank of adapters, in the words that most frameworks have for it."""
    ranks = [(key, value) for key, value in ending(s, "lora_rank") if key not in s.used] + [
        (key, value)
        for key, value in s.values.items()
        if key.endswith(("model.lora.rank", "lora_cfg.dim", "megatron_cfg.peft.dim"))
        and not set(key.split(".")) & set(OTHER_ROLES)
    ]
    s.used |= {key for key, _ in ranks}
    learning = [(k, v) for k, v in ranks if above(0)(v) and not _is_off(s, k)]
    if learning:
        recipe.put("training.lora_rank", int(learning[0][1]), learning[0][0])
        return
    s.notes += tuple(
        f"{key}: its rank is in the adapter's own files; say training.lora_rank, without which "
        "all weights are trained here"
        for key, value in ending(s, "lora_adapter_path")
        if value and not _is_off(s, key)
    )


def _is_off(s: JobSettings, key: str) -> bool:
    """Whether the section of a rank says that it is not used."""
    section = key.rpartition(".")[0]
    switches = [f"{section}.enabled", f"{section}.use_lora"]
    return any(s.find(name) is not None and not s.flag(name) for name in switches)


_ESTIMATOR = ".adv_estimator.name"  # NeMo-RL's


def _text(value: Any) -> str:
    return value.lower() if isinstance(value, str) else ""


def _host_copies(recipe: SourcedValues, s: JobSettings) -> None:
    """States that leave the HBM between phases: where generation is colocated, they always do."""
    said = ending(s, "param_offload", "optimizer_offload", "grad_offload")
    s.used |= {key for key, _ in said}
    if "placement" in recipe.values:
        stay = [key for key, value in said if not is_on(value)]
        if stay:
            s.notes += (
                f"{', '.join(stay)}: these states stay in the HBM; here all of them leave it for "
                "generation, which takes longer and leaves it more room",
            )
    elif any(is_on(value) for _, value in said):
        keys = ", ".join(key for key, value in said if is_on(value))
        s.notes += (f"{keys}: the copies to the host and back in each step are not counted",)


def _engine(recipe: SourcedValues, s: JobSettings, model: Model) -> None:
    """An engine of several attention replicas, which share their experts; of pipeline stages:
    tensor parallelism over as many of its GPUs as the heads divide by.
    """
    tp = recipe.values["generation.tp"]
    replicas, stages, inside = (
        [(key, value) for key, value in ending(s, *names) if _generates(key) and above(1)(value)]
        for names in (
            ("data_parallel_size",),
            ("pipeline_parallel_size", "pipeline_model_parallel_size"),
            ("sglang_dp_size", "dp_size"),
        )
    )
    dealt = [(k, v) for k, v in ending(s, "expert_parallel_size") if _generates(k)]
    if not replicas and dealt and above(tp)(dealt[0][1]) and dealt[0][1] % tp == 0:
        replicas = [(dealt[0][0], dealt[0][1] // tp)]  # vLLM's experts stand on all of an engine
    if not stages and _shares_experts(recipe, s, model, replicas, inside):
        return
    wide = tp
    for _, value in replicas[:1] + stages[:1]:
        wide *= int(value)
    said = [key for key, _ in replicas + stages + inside]
    s.used |= set(said)
    if not said or recipe.values["cluster.generation_gpus"] % wide:
        return
    cut = next(n for n in range(wide, 0, -1) if wide % n == 0 and model.heads % n == 0)
    if cut != tp:
        recipe.put("generation.tp", cut, f"{', '.join(said)}: {wide} GPUs an engine, see the note")
    s.notes += (
        f"{', '.join(said)}: an engine of {wide} GPUs in replicas of attention or stages is taken "
        f"as tensor parallelism over {cut}",
    )


def _shares_experts(
    recipe: SourcedValues, s: JobSettings, model: Model, replicas: _Said, inside: _Said
) -> bool:
    """Whether this is an engine whose attention replicas are as the recipe can say: vLLM's
    data_parallel_size beside tp, or SGLang's dp-size cut out of it where --enable-dp-attention is
    on. A dense model has nothing to share, and each of vLLM's is a replica of its own.
    """
    tp = recipe.values["generation.tp"]
    on = take_ending(s, "sglang_enable_dp_attention", "enable_dp_attention")
    attention, wide = tp, tp
    if replicas:
        wide = tp * int(replicas[0][1])
    elif inside and on and is_on(on[1]) and tp % int(inside[0][1]) == 0:
        attention = tp // int(inside[0][1])
    if attention == wide:
        return False
    if model.experts is None:
        s.used |= {key for key, _ in replicas}
        return bool(replicas)
    server = recipe.values.get("cluster.gpus_per_server", attention)
    if recipe.values["cluster.generation_gpus"] % wide or attention > server:
        return False
    if model.experts.count % wide or model.heads % attention:
        return False
    said = [key for key, _ in replicas + inside]
    s.used |= {*said, *(key for key, _ in ending(s, *_EXPERT_PARALLEL) if _generates(key))}
    if attention != tp:
        recipe.put("generation.tp", attention, f"{said[0]}: attention replicas of an engine")
    recipe.put("generation.ep", wide, f"{said[0]}: {wide // attention} attention replicas")
    return True


def _generates(key: str) -> bool:
    own = key.removeprefix("actor_rollout_ref.")  # verl's section of every worker
    return any(word in own for word in ("rollout", "generation", "infer", "sglang"))


_READERS = (
    _precision,
    _matmuls,
    _optimizer,
    _gradients,
    _exchange,
    _epochs,
    _critic,
    _adapters,
    _host_copies,
)
_EXPERT_PARALLEL = (
    "expert_parallel_size",
    "enable_expert_parallel",
    "sglang_ep_size",
    "sglang_expert_parallel_size",
)

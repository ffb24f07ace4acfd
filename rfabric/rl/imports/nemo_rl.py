"""NeMo-RL: the YAML file of a GRPO run; `defaults:` names its parent."""

import re
from typing import Any

from ...errors import RFabricError
from .settings import JobSettings
from .sourced_values import SourcedValues

MEGATRON, DTENSOR, GENERATION = "policy.megatron_cfg", "policy.dtensor_cfg", "policy.generation"
RESOURCES, JUDGE = f"{GENERATION}.colocated.resources", "env.reward_model"
WAYS = ("grpo", "ppo")
NO_EFFECT = """
    optimizer. scheduler lr_ logger. checkpointing loss_fn. data. env. seed val_ max_num_steps
    max_num_epochs temperature top_p top_k stop_ tokenizer normalize baseline policy.model_name
    hf_config overlong reward_
"""


def fill(recipe: SourcedValues, s: JobSettings) -> None:
    """Put the job's settings into the recipe's keys."""
    _refuse_others(s)
    _inherit(s)
    if s.flag(f"{MEGATRON}.enabled") and s.flag(f"{DTENSOR}.enabled"):
        s.notes += (f"{MEGATRON} and {DTENSOR}: both are enabled, which NeMo-RL refuses",)
    s.drop(f"{DTENSOR}." if _config(s) == MEGATRON else f"{MEGATRON}.")
    for way in WAYS:
        if not s.flag(f"{way}.async_{way}.enabled"):
            s.drop(f"{way}.async_{way}.")
    recipe.put("model", str(s.value("policy.model_name", default="")), "policy.model_name")
    _cluster(recipe, s)
    _generation(recipe, s)
    _training(recipe, s)
    if any(key.startswith("on_policy_distillation.") for key in s.values):
        s.notes += ("on_policy_distillation: passes and GPUs of the teachers are not modelled",)
    recipe.put(
        "weight_sync.strategy", "flat", "NeMo-RL: weights are broadcast to every inference worker"
    )


# What examples/configs/grpo_math_1B.yaml of NeMo-RL 0.4 says of these: most jobs inherit from it,
# and leave out what they have alike. The others there say more.
_BASE = {
    "policy.model_name": "Qwen/Qwen2.5-1.5B",
    "policy.max_total_sequence_length": 512,
    "policy.train_global_batch_size": 512,
    "policy.train_micro_batch_size": 4,
    "policy.sequence_packing.enabled": True,
    f"{MEGATRON}.expert_tensor_parallel_size": 1,
    f"{MEGATRON}.distributed_data_parallel_config.grad_reduce_in_fp32": False,
    "grpo.num_prompts_per_step": 32,
    "grpo.num_generations_per_prompt": 16,
    "cluster.gpus_per_node": 1,
    "cluster.num_nodes": 1,
}
_LARGER = {
    "grpo.num_prompts_per_step": 64,
    "grpo.num_generations_per_prompt": 32,
    "policy.train_micro_batch_size": 1,
    "policy.max_total_sequence_length": 4096,
    "cluster.gpus_per_node": 8,
}
_LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
_ON_MEGATRON = {f"{MEGATRON}.enabled": True}
_VLLM = f"{GENERATION}.vllm_cfg"
_BASES: dict[str, dict[str, Any]] = {
    "1B": {},
    "1B_megatron": _ON_MEGATRON,
    "8B": _LARGER | {"policy.model_name": _LLAMA},
    "8B_megatron": _LARGER
    | _ON_MEGATRON
    | {"policy.model_name": _LLAMA, f"{MEGATRON}.pipeline_model_parallel_size": 2},
    "70B_megatron": _LARGER
    | _ON_MEGATRON
    | {
        "policy.model_name": "meta-llama/Llama-3.3-70B-Instruct",
        f"{MEGATRON}.tensor_model_parallel_size": 4,
        f"{MEGATRON}.pipeline_model_parallel_size": 4,
        f"{_VLLM}.tensor_parallel_size": 8,
        "cluster.num_nodes": 8,
    },
    "qwen30ba3b_megatron": _LARGER
    | _ON_MEGATRON
    | {
        "policy.model_name": "Qwen/Qwen3-30B-A3B",
        "policy.sequence_packing.enabled": False,
        f"{MEGATRON}.tensor_model_parallel_size": 2,
        f"{MEGATRON}.expert_model_parallel_size": 8,
        f"{_VLLM}.tensor_parallel_size": 4,
        f"{_VLLM}.gpu_memory_utilization": 0.7,
        "cluster.num_nodes": 8,
    },
}
_PARENT = re.compile(
    r"(?:defaults: |the config file )(?:\S*/)?grpo_math_(\w+?)(?:\.yaml)? is not (?:beside|near)"
)
_ENTRY = re.compile(r"(?:.*/)?run_grpo(_math)?\.py")  # which has the first of them by default


def _parent(s: JobSettings) -> str:
    """Which of the files that NeMo-RL ships a job inherits from, and that is not there."""
    named = next((found[1] for note in s.notes if (found := _PARENT.match(note))), "")
    own = any(note.startswith("the config file ") for note in s.notes)
    return named or "1B" * (not own and any(map(_ENTRY.fullmatch, s.words)))


def _inherit(s: JobSettings) -> None:
    """Take what the parent of most jobs says where it is named and not there."""
    named = _parent(s)
    if named not in _BASES:
        return
    base = _BASE | _BASES[named]
    taken = {key: value for key, value in base.items() if s.values.get(key) is None}
    s.values |= taken
    tokens = s.values["policy.max_total_sequence_length"], s.values["policy.train_micro_batch_size"]
    if all(type(count) is int for count in tokens):
        for way in ("sequence_packing", "dynamic_batching"):
            if s.flag(f"policy.{way}.enabled"):
                s.values.setdefault(f"policy.{way}.train_mb_tokens", tokens[0] * tokens[1])
    said = ", ".join(f"{key} = {value}" for key, value in taken.items())
    said = said or "which adds nothing"
    s.notes += (f"grpo_math_{named}.yaml: as NeMo-RL 0.4 has it, {said}",)


def _refuse_others(s: JobSettings) -> None:
    sections = {key.partition(".")[0] for key in s.values}
    others = {"sft": "SFT", "dpo": "DPO", "rm": "a reward model's training"}
    section = next((name for name in (*others, "distillation") if name in sections), None)
    if section is None or sections & {"grpo", "ppo"}:
        return
    why = others.get(section, "distillation from a teacher, whose log-probs no recipe key can say")
    raise RFabricError(
        f"{s.file}: {section}: is {why}; a recipe is a GRPO or PPO step, which generates responses "
        "and trains on them"
    )


def _cluster(recipe: SourcedValues, s: JobSettings) -> None:
    each = s.number("cluster.gpus_per_node") or ("", 1)
    nodes = s.number("cluster.num_nodes") or ("", 1)
    judges = _judges(s, each[1], nodes[1])
    every = each[1] * nodes[1] - judges
    origin = "cluster.num_nodes x cluster.gpus_per_node" + f", less {JUDGE}" * bool(judges)
    colocated = s.find(f"{GENERATION}.colocated.enabled")
    own_nodes, own = s.number(f"{RESOURCES}.num_nodes"), s.number(f"{RESOURCES}.gpus_per_node")
    if colocated is None or s.flag(colocated[0]):
        recipe.gpus(every, every, True, f"{origin}, colocated")
        ahead = next((k for k in _ASYNC if s.find(k) and s.flag(k)), "")
        if ahead:
            s.notes += (
                f"{ahead}: on the same GPUs generation and training take turns, and a step waits "
                "for its longest response; that responses go on in the next is not modelled",
            )
    else:
        generates = (own_nodes[1] if own_nodes else 1) * (own[1] if own else each[1])
        recipe.gpus(
            every - generates, generates, False, f"{origin}, less {RESOURCES} for generation"
        )
        _pipeline(recipe, s)
    recipe.put("cluster.gpus_per_server", each[1], "cluster.gpus_per_node")


def _judges(s: JobSettings, each: float, nodes: float) -> float:
    """GPUs of the cluster that a reward model has for itself: whole nodes of several, else its part
    of the one.
    """
    own = s.number(f"{JUDGE}.resources.gpus_per_node")
    taken = s.number(f"{JUDGE}.resources.num_nodes") or ("", 1)
    beside = s.number("env.nemo_gym.num_gpu_nodes")
    if beside and beside[1]:
        s.notes += (f"{beside[0]} = {beside[1]}: models of the environments are not modelled",)
    if own is None or (s.find(f"{JUDGE}.enabled") and not s.flag(f"{JUDGE}.enabled")):
        return 0
    gpus = taken[1] * each if nodes > 1 else own[1]
    s.notes += (f"{JUDGE}: a reward model has {gpus} of the GPUs; its passes are not modelled",)
    return gpus


_ASYNC = tuple(f"{way}.async_{way}.enabled" for way in WAYS)


def _pipeline(recipe: SourcedValues, s: JobSettings) -> None:
    enabled = s.find(*_ASYNC)
    age = s.number(
        "grpo.async_grpo.max_trajectory_age_steps",
        "ppo.async_ppo.max_trajectory_age_steps",
        "async_rl.sampler.max_staleness_versions",
        "async_rl.sampler.max_lookahead_versions",
    )
    inside = [f"{way}.async_{way}.in_flight_weight_updates" for way in WAYS]
    goes_on = next((key for key in inside if s.find(key) and s.flag(key)), "")
    single = age and age[0].startswith("async_rl")  # which is asynchronous by itself
    if not single and (not enabled or not s.flag(enabled[0])):
        recipe.put("pipeline", "sync", "grpo.async_grpo.enabled is not set")
    elif single and not age[1]:
        recipe.put("pipeline", "sync", f"{age[0]} = 0")
    elif goes_on or (age and age[1] > 1):
        recipe.behind(*(age[::-1] if age else (1, "grpo.async_grpo, by default")), goes_on)
    else:
        recipe.put("pipeline", "one-step-off", "grpo.async_grpo, max_trajectory_age_steps 1")


# What each engine calls its width, its share of the HBM, the responses it decodes at once and the
# GPUs it deals experts to; Megatron generates as it trains where its own section does not say.
_ENGINES = {
    "vllm": ("tensor_parallel_size", "gpu_memory_utilization", "max_num_seqs", ""),
    "sglang": ("tp_size", "mem_fraction_static", "max_running_requests", ""),
    "trtllm": (
        "tensor_parallel_size",
        "gpu_memory_utilization",
        "max_batch_size",
        "moe_expert_parallel_size",
    ),
    "megatron": ("tensor_model_parallel_size", "", "", "expert_model_parallel_size"),
}


def _engine(recipe: SourcedValues, s: JobSettings) -> None:
    """The engine that generates; the sections of the others are there, and off."""
    named = str(s.value(f"{GENERATION}.backend", default="vllm"))
    recipe.engine = engine = named if named in _ENGINES else "vllm"
    own = f"{GENERATION}.{'mcore_generation_config' if engine == 'megatron' else f'{engine}_cfg'}"
    for off in _ENGINES.keys() - {engine}:
        s.drop(f"{GENERATION}.{'mcore_generation_config' if off == 'megatron' else f'{off}_cfg'}.")
    wide, share, most, experts = _ENGINES[engine]
    other = [f"{MEGATRON}.{wide}"] if engine == "megatron" else []
    other += [f"{own}.gpus_per_server"] if engine == "sglang" else []  # of older files
    recipe.take("generation.tp", f"{own}.{wide}", *other, default=1)
    other = [f"{MEGATRON}.{experts}"] if engine == "megatron" else []
    dealt = s.number(f"{own}.{experts}", *other) if experts else None
    if dealt and dealt[1] > recipe.values["generation.tp"]:
        recipe.put("generation.ep", dealt[1], dealt[0])
    if not share:
        recipe.assume("generation.memory_utilisation", 0.6, "as vLLM's here; Megatron has no share")
        recipe.assume("generation.max_num_seqs", 1024, "as vLLM's; Megatron fits it to memory")
        return
    recipe.take("generation.memory_utilisation", f"{own}.{share}", default=0.6)
    names = (f"{own}.{most}", f"{GENERATION}.{engine}_kwargs.{most}")
    recipe.take("generation.max_num_seqs", *names, default=1024, why="the order of size of engines")


def _generation(recipe: SourcedValues, s: JobSettings) -> None:
    _engine(recipe, s)
    recipe.take("generation.batch", *(f"{way}.num_prompts_per_step" for way in WAYS))
    sampling = next((k for w in WAYS if s.flag(k := f"{w}.use_dynamic_sampling")), "")
    if sampling:
        several = (f"{way}.batch_multiplier" for way in WAYS)
        origin, times = s.number(*several) or (sampling, 1)
        recipe.rolled_out(origin, recipe.values["generation.batch"] * times)
    recipe.take("generation.group_size", *(f"{way}.num_generations_per_prompt" for way in WAYS))
    if most := s.number("async_rl.max_inflight_prompts"):
        recipe.put("generation.concurrent", *most[::-1])
    total = s.number("policy.max_total_sequence_length")
    if total is None:
        raise RFabricError(s.lacks("policy.max_total_sequence_length"))
    bounds = (recipe.above_zero(f"{GENERATION}.{key}") for key in _LONGEST)
    total = min([total, *filter(None, bounds)], key=lambda said: said[1])
    response = s.number(f"{GENERATION}.max_new_tokens")
    prompt = s.number("data.max_input_seq_length")
    given = prompt[1] if prompt and prompt[1] < total[1] else min(2048, total[1] // 2)
    if prompt and prompt[1] < total[1]:
        recipe.put("generation.max_prompt", prompt[1], prompt[0])
    else:
        recipe.assume(
            "generation.max_prompt", given, "prompts share max_total_sequence_length with responses"
        )
    recipe.put(
        "generation.max_response",
        min(response[1] if response else total[1], total[1] - given),
        f"what {total[0].split('.')[-1]} leaves",
    )
    recipe.stretched("policy.hf_config_overrides.max_position_embeddings")


_LONGEST = ("vllm_cfg.max_model_len", "sglang_cfg.context_length", "trtllm_cfg.max_seq_len")


def _config(s: JobSettings) -> str:
    """The section of the engine that trains; the other's settings are there, and off."""
    return MEGATRON if s.flag(f"{MEGATRON}.enabled") else DTENSOR


_TOGETHER = ("policy.sequence_packing", "policy.dynamic_batching")


def _packed(s: JobSettings, what: str = "train_mb_tokens") -> tuple[str, float] | None:
    """Tokens of a micro-batch where sequences are packed or batched by their length."""
    on = [way for way in _TOGETHER if s.flag(f"{way}.enabled")]
    return s.number(*(f"{way}.{what}" for way in on))


def _training(recipe: SourcedValues, s: JobSettings) -> None:
    config = _config(s)
    recipe.parallel(f"{config}.", cut=1)  # a key that it demands, and its examples set to 1
    if config == DTENSOR:
        recipe.put("training.optimizer", "sharded", f"{DTENSOR}: FSDP2")
    micro = s.number("policy.train_micro_batch_size") or (
        "policy.train_micro_batch_size, by default",
        1,
    )
    cp, packed = recipe.values["training.cp"], _packed(s)
    if packed:
        recipe.micro_batch(-(-packed[1] // cp), f"{packed[0]} / cp")
    else:
        recipe.whole_sequences(micro[1], micro[0])
        if not any(s.flag(f"{way}.enabled") for way in _TOGETHER):
            recipe.padding(
                "mini-batch",
                f"neither {' nor '.join(_TOGETHER)} is enabled",
                "up to the longest sequence of a step; here of an update, where it has several",
            )
    samples = recipe.samples
    size = s.number("policy.train_global_batch_size")
    recipe.mini_batches(
        samples,
        min(size[1], samples) if size else samples,
        "samples / policy.train_global_batch_size",
    )
    penalty = s.number("loss_fn.reference_policy_kl_penalty")
    skipped = [
        key for w in WAYS if s.flag(key := f"{w}.skip_reference_policy_logprobs_calculation")
    ]
    recipe.log_probs((penalty is None or bool(penalty[1])) and not skipped)
    ratio = "loss_fn.force_on_policy_ratio"
    if s.find(ratio) and s.flag(ratio):
        s.notes += (
            f"{ratio}: the old policy's log-probs are not needed, and versions of NeMo-RL leave "
            "their pass out; it is counted here, training.log_prob_passes has one less without",
        )
    if packed and (ahead := _packed(s, "logprob_mb_tokens")):
        recipe.log_prob_micro_batch((f"{ahead[0]} / cp", -(-ahead[1] // cp)), None)
    elif not packed:
        recipe.log_prob_micro_batch(None, s.number("policy.logprob_batch_size"))
    names = f"{config}.activation_checkpointing", "policy.activation_checkpointing_enabled"
    said = s.find(*names)  # the latter: NeMo-RL 0.2 with FSDP1
    again = said or (names[0], False)
    granularity = s.find(f"{config}.recompute_granularity") or ("", "full")
    full = s.flag(again[0]) and granularity[1] == "full"
    origin = f"{again[0]}{', ' * bool(granularity[0])}{granularity[0]}"
    recipe.recompute(full, origin if said else again[0], said is not None)

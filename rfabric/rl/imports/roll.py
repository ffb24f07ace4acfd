"""ROLL: the YAML file of an RLVR or agentic pipeline.

Roles stand on `device_mapping`; equal ones are colocated.
"""

import ast
import math
import re
from typing import Any

from ...errors import RFabricError
from .arithmetic import whole_number
from .settings import JobSettings, shown
from .sourced_values import SourcedValues

TRAIN, INFER = "actor_train", "actor_infer"
CONFIG = "strategy_args.strategy_config"
NO_EFFECT = """
    exp_name seed logging output checkpoint tracker track_with track_project save_steps eval
    max_steps lr learning_rate weight_decay warmup clip gamma lambd whiten advantage init_kl kl_
    temperature top_p top_k reward rewards model_args. data_args tracker profiler rpc_timeout
    system_envs hydra num_beams num_workers validation pretrain norm_
"""
_RANGE = re.compile(r"list\(range\((.*)\)\)|\[\*range\((.*)\)\]|range\((.*)\)")
_MOST = 10**6  # GPUs of a job


def fill(recipe: SourcedValues, s: JobSettings) -> None:
    """Put the job's settings into the recipe's keys."""
    _refuse_others(s)
    model = s.find("pretrain", f"{TRAIN}.model_args.model_name_or_path", f"{TRAIN}.pretrain")
    recipe.put(
        "model",
        str(model[1]).rstrip("/").rpartition("/")[2] if model else "",
        model[0] if model else "",
    )
    _cluster(recipe, s)
    _generation(recipe, s)
    _training(recipe, s)
    if "adv_estimator" not in s.values and s.find("critic.device_mapping"):
        s.values["adv_estimator"] = "gae"  # ROLL's default, so `effects` adds the critic
    if s.values.get("adv_estimator") != "gae":  # with gae a critic is trained
        s.used.add("adv_estimator")
    recipe.put("weight_sync.strategy", "flat", "ROLL: every inference worker receives its own copy")


def _refuse_others(s: JobSettings) -> None:
    """RFabricError for ROLL's pipelines that are no RL."""
    roles = {key.partition(".")[0] for key in s.values}
    why = next((why for role, why in _OTHERS.items() if role in roles), "")
    if not why and TRAIN in roles and INFER not in roles:
        why = f"there is no {INFER}: the job only trains (DPO and SFT do)"
    if why:
        raise RFabricError(
            f"{s.file}: {why}; a recipe is a step that generates responses and trains on them"
        )


_OTHERS = {
    "student": "student and teacher: distillation, which generates nothing",
    "sft_train": "sft_train: the job only trains (SFT)",
}


def devices(value: Any, where: str) -> set[int]:
    """GPUs of a device_mapping, read without running it: a list, or sums of lists and of
    `list(range(a, b))`, whose ends may be worked out, as 8*2.
    """
    if isinstance(value, list) and all(isinstance(i, int) for i in value):
        return set(value)
    text = re.sub(r"\s+", "", str(value))
    parts = re.split(r"\+(?![^(\[]*[)\]])", text)
    return set().union(*(_run(part) or _listed(part, where) for part in parts))


def _run(text: str) -> set[int]:
    """The numbers of a range; none where it is something else."""
    run = _RANGE.fullmatch(text)
    ends = [whole_number(end) for end in run[run.lastindex or 0].split(",")] if run else []
    known = [end for end in ends if end is not None and 0 <= end <= _MOST]
    fits = len(known) == len(ends) in (1, 2, 3) and all(known[2:])
    return set(range(*known)) if fits else set()


def _listed(text: str, where: str) -> set[int]:
    try:
        value = ast.literal_eval(text.strip())
        return {int(i) for i in value}
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise RFabricError(
            f"{where}: {shown(text)} names no GPUs; write list(range(0,8)) or [0, 1]"
        ) from error


def _mapped(s: JobSettings, role: str) -> set[int]:
    key = f"{role}.device_mapping"
    value = s.value(key)
    if value is None:
        raise RFabricError(f"{s.file}: {key} is not set; a recipe must know the GPUs of {role}")
    return devices(value, f"{s.file}: {key}")


def _cluster(recipe: SourcedValues, s: JobSettings) -> None:
    train, infer = _mapped(s, TRAIN), _mapped(s, INFER)
    ratio, alone = s.number("async_generation_ratio"), infer - train
    ahead, shared = bool(ratio and ratio[1]), bool(train & infer)
    origin = f"{TRAIN}.device_mapping and {INFER}.device_mapping"
    if shared and ahead and alone:
        recipe.gpus(len(train), len(alone), False, origin)
        s.notes += (
            f"{origin}: {len(train & infer)} GPUs of {TRAIN} generate too while it does not; here "
            f"generation has the other {len(alone)} alone",
        )
    elif shared:
        recipe.gpus(len(train | infer), len(train | infer), True, origin)
        if train != infer:
            s.notes += (
                f"{origin}: {TRAIN} stands on {len(train)} GPUs, {INFER} on {len(infer)}, "
                f"{len(train & infer)} of them shared; here each has all {len(train | infer)}",
            )
    else:
        recipe.gpus(len(train), len(infer), False, origin)
    if ratio and ahead:
        if "placement" in recipe.values:
            s.notes += (
                f"{ratio[0]}: on the same GPUs generation and training take turns; that responses "
                "go on in the next step is not modelled",
            )
        elif ratio[1] == 1:
            recipe.put("pipeline", "one-step-off", ratio[0])
        else:
            recipe.behind(ratio[1], ratio[0])
    recipe.take("cluster.gpus_per_server", "num_gpus_per_node", default=8)
    _judges(s, train | infer)


def _judges(s: JobSettings, known: set[int]) -> None:
    """Notes of reward models, which stand on GPUs: those that only look at rules do not."""
    for key in [key for key in s.values if re.fullmatch(r"rewards?(\.\w+)?\.device_mapping", key)]:
        if s.values[key] and (stands := devices(s.values[key], f"{s.file}: {key}")):
            own = len(stands - known)
            alone = f", and {own} GPUs of its own are not counted" if own else ""
            role = key.removesuffix(".device_mapping")
            s.notes += (
                f"{role}: a reward model on {len(stands)} GPUs: its passes are not modelled{alone}",
            )


def _generation(recipe: SourcedValues, s: JobSettings) -> None:
    recipe.engine = str(s.value(f"{INFER}.strategy_args.strategy_name", default=""))
    recipe.take(
        "generation.tp",
        f"{INFER}.{CONFIG}.tensor_parallel_size",
        f"{INFER}.{CONFIG}.tp_size",
        f"{INFER}.num_gpus_per_worker",
        default=1,
    )
    turns = _prompts(recipe, s)
    lengths = "response_length", f"{INFER}.generating_args.max_new_tokens"
    response = s.number(*(lengths[::-1] if turns else lengths))  # the latter is of one action
    total, prompt = s.number("sequence_length"), s.number("prompt_length")
    if response is None:
        raise RFabricError(s.lacks("response_length"))
    if turns and total:
        whole = response[1] * turns
        if whole >= total[1]:  # the actions alone would fill it
            whole = max(1, total[1] - (prompt[1] if prompt else min(2048, total[1] // 2)))
        recipe.put(
            "generation.max_response", whole, f"{response[0]} x {turns} actions, in sequence_length"
        )
        response = response[0], whole
    else:
        recipe.put("generation.max_response", response[1], response[0])
    if prompt:
        recipe.put("generation.max_prompt", prompt[1], prompt[0])
    elif total and total[1] > response[1]:
        recipe.put(
            "generation.max_prompt", total[1] - response[1], "sequence_length less the response"
        )
    else:
        recipe.assume(
            "generation.max_prompt", 2048, "neither prompt_length nor sequence_length bounds it"
        )
    recipe.bounded(*(f"{INFER}.{CONFIG}.{key}" for key in ("max_model_len", "context_length")))
    recipe.take(
        "generation.memory_utilisation",
        f"{INFER}.{CONFIG}.gpu_memory_utilization",
        f"{INFER}.{CONFIG}.mem_fraction_static",
        default=0.9,
        why="vLLM's default",
    )
    _sequences_at_once(recipe, s)


def _sequences_at_once(recipe: SourcedValues, s: JobSettings) -> None:
    """Responses that an engine decodes together: what its settings say, and no more than ROLL's
    scheduler gives each.
    """
    own = (f"{INFER}.{CONFIG}.max_num_seqs", f"{INFER}.{CONFIG}.max_running_requests")
    key = "generation.max_num_seqs"
    most = recipe.take(key, *own, default=1024, why="vLLM's order of size")
    if (given := recipe.above_zero("max_running_requests")) and given[1] < most:
        recipe.put(key, *given[::-1])


def _prompts(recipe: SourcedValues, s: JobSettings) -> int:
    """Prompts and responses to each; the most actions of a trajectory in agentic pipelines, where a
    rollout batch counts trajectories and environments come in groups, else 0.
    """
    group = s.number("train_env_manager.group_size")
    batch = s.number("rollout_batch_size")
    if group and batch and group[1] and batch[1] % group[1] == 0:
        recipe.put("generation.batch", batch[1] // group[1], f"{batch[0]} / {group[0]}")
        recipe.put("generation.group_size", group[1], group[0])
        s.used.add(f"{INFER}.generating_args.num_return_sequences")
        actions = s.number("max_actions_per_traj") or _actions(s)
        if actions[1] > 1:
            recipe.put("generation.turns", actions[1], actions[0])
        return actions[1]
    recipe.take("generation.batch", "rollout_batch_size")
    recipe.take(
        "generation.group_size",
        "num_return_sequences_in_group",
        f"{INFER}.generating_args.num_return_sequences",
        "train_env_manager.group_size",
        default=1,
    )
    return 0


def _actions(s: JobSettings) -> tuple[str, int | float]:
    """The most actions of a trajectory that the environments of training allow themselves."""
    tags = s.value("train_env_manager.tags", default=[])
    said = [
        number
        for tag in (tags if isinstance(tags, list) else [tags])
        if (number := s.number(*(f"custom_envs.{tag}.{key}" for key in _STEPS)))
    ]
    return max(said, key=lambda number: number[1], default=("", 1))


_STEPS = ("max_actions_per_traj", "max_steps")


def _training(recipe: SourcedValues, s: JobSettings) -> None:
    config = f"{TRAIN}.{CONFIG}"
    recipe.parallel(f"{config}.")
    ulysses = s.number(f"{TRAIN}.model_args.ulysses_size", f"{config}.ulysses_size")
    if ulysses and ulysses[1] > 1:
        recipe.put("training.cp", *ulysses[::-1])
        recipe.put("training.context_exchange", "ulysses", ulysses[0])
    each = s.number(f"{TRAIN}.training_args.per_device_train_batch_size") or (
        "per_device_train_batch_size, by default",
        1,
    )
    if budget := _budget(s):
        recipe.micro_batch(-(-budget[1] // recipe.values["training.cp"]), f"{budget[0]} / cp")
    else:
        recipe.whole_sequences(each[1], each[0])
        _padding(recipe, s)
    accumulated = s.number(f"{TRAIN}.training_args.gradient_accumulation_steps")
    t = recipe.values
    together = t["training.tp"] * t["training.pp"] * t["training.cp"]
    ranks = len(_mapped(s, TRAIN)) // max(1, together)
    samples = recipe.samples
    size = each[1] * accumulated[1] * ranks if accumulated else samples
    if size and samples % size and s.find("train_env_manager.group_size"):
        size = _evened_out(s, samples, size)
    recipe.mini_batches(
        samples,
        min(size, samples),
        "samples / (per_device_train_batch_size x gradient_accumulation_steps x ranks)",
    )
    strategy = str(s.value(f"{TRAIN}.strategy_args.strategy_name", default="megatron_train"))
    if "megatron" in strategy:
        s.used.discard(f"{TRAIN}.strategy_args.strategy_name")
        _gradients(recipe, s, config)
    else:
        _shards(recipe, s, config, strategy)
    _adapters(recipe, s)
    reference = s.find("reference.device_mapping") is not None
    reference = reference and (s.find("enable_reference") is None or s.flag("enable_reference"))
    skip = "system_envs.SKIP_OLD_LOG_PROBS"  # RollPacker
    again = "enable_old_logprobs_recompute"  # without it, a lone update takes its own
    if recipe.values["training.mini_batches"] == 1 and s.find(again) and not s.flag(again):
        recipe.put("training.log_prob_passes", int(reference), f"{again} = False")
    else:
        recipe.log_probs(reference, "", skip if s.flag(skip) else "")
    _log_prob_micro_batch(recipe, s)
    _recompute(recipe, s, config, "megatron" in strategy)


def _padding(recipe: SourcedValues, s: JobSettings) -> None:
    """ROLL fills sequences up to `sequence_length`, and may cut each micro-batch to its longest."""
    packs, cuts = (f"{TRAIN}.{way}" for way in ("use_sequence_packing", "use_remove_padding"))
    if s.flag(packs):
        return
    if s.find(cuts) and s.flag(cuts):
        recipe.padding("micro-batch", cuts, "up to the longest sequence of each micro-batch")
        return
    total = s.number("sequence_length")
    whole = f"up to sequence_length{f' = {total[1]}' if total else ''}"
    note = f"{whole}; here to {recipe.longest}, the longest that may be"
    recipe.padding("maximum", f"neither {packs} nor {cuts} is on", note)


def _log_prob_micro_batch(recipe: SourcedValues, s: JobSettings) -> None:
    """Micro-batches of the passes for log-probabilities, by the words of the policy's section."""
    budget = s.number(f"{TRAIN}.max_tokens_per_microbatch_in_infer")
    each = s.number(f"{TRAIN}.infer_batch_size")
    if s.flag(f"{TRAIN}.use_dynamic_batching_in_infer") and budget:
        tokens = -(-budget[1] // recipe.values["training.cp"])
        recipe.log_prob_micro_batch((f"{budget[0]} / cp", tokens), None)
    elif not _budget(s):
        recipe.log_prob_micro_batch(None, each)


def _evened_out(s: JobSettings, samples: int, size: float) -> float:
    """The mini-batch of an agentic pipeline, which copies trajectories, or drops some, until a
    batch holds whole mini-batches; here they are all a little smaller, or larger.
    """
    mode = s.value("batch_adjust_mode", default="copy")
    updates = max(1, math.floor(samples / size) if mode == "delete" else math.ceil(samples / size))
    updates = next(n for n in range(updates, 0, -1) if samples % n == 0)
    s.notes += (
        f"{samples} trajectories are no whole mini-batches of {size}: batch_adjust_mode = {mode} "
        f"makes them so; here {updates} of {samples // updates}",
    )
    return samples // updates


def _budget(s: JobSettings) -> tuple[str, int | float] | None:
    """Tokens of a micro-batch where sequences are batched by their length, or packed and the packs
    balanced; other ways of packing keep the number of sequences.
    """
    batched = s.number(f"{TRAIN}.max_tokens_per_microbatch_in_train")
    if s.flag(f"{TRAIN}.use_dynamic_batching_in_train"):
        return batched
    args = f"{TRAIN}.sequence_packing_args"
    packed = s.number(f"{args}.max_packed_sequence_length_train")
    balanced = s.value(f"{args}.algorithm", default="none") != "none"
    return packed if s.flag(f"{TRAIN}.use_sequence_packing") and balanced else None


def _shards(recipe: SourcedValues, s: JobSettings, config: str, strategy: str) -> None:
    """What DeepSpeed's stage or FSDP shards: the optimizer's states alone until stage 3."""
    zero, name = f"{config}.zero_optimization", str(s.value(config, default=""))
    if "deepspeed" in strategy:
        named = re.search(r"zero(\d)", name)  # ${deepspeed_zero3}, whose file is not there
        stage = s.number(f"{zero}.stage") or (config, int(named[1]) if named else 3)
        recipe.zero(stage[1], stage[0])
    else:
        recipe.put("training.optimizer", "sharded", f"{strategy}: parameters are sharded")
    size = s.value(f"{config}.fsdp_size") if "fsdp" in strategy else None
    if type(size) is int and 0 < size < recipe.values["cluster.training_gpus"]:
        recipe.put("training.fsdp_size", size, f"{config}.fsdp_size")
    device = str(s.value(f"{zero}.offload_optimizer.device", default=name))
    if "cpu" in device:
        recipe.put("training.host_optimizer", True, f"{zero}.offload_optimizer")


def _gradients(recipe: SourcedValues, s: JobSettings, config: str) -> None:
    """Megatron's flag for the format of gradients, which ROLL's settings share."""
    key = f"{config}.accumulate_allreduce_grads_in_fp32"
    if s.find(key):
        recipe.put("training.grad_dtype", "fp32" if s.flag(key) else "bf16", key)
    else:
        why = f"as Megatron-LM has it beside BF16 weights; {key} is not set"
        recipe.assume("training.grad_dtype", "fp32", why)


def _recompute(recipe: SourcedValues, s: JobSettings, config: str, megatron: bool) -> None:
    """Megatron's granularity; DeepSpeed and FSDP recompute all unless they are told not to."""
    off = f"{TRAIN}.model_args.disable_gradient_checkpointing"
    if megatron:
        mode = s.value(f"{config}.recompute_granularity")
        recipe.recompute(mode == "full", "recompute_granularity", mode is not None)
    else:
        said = s.find(off) is not None
        recipe.recompute(not (said and s.flag(off)), off, said)


def _adapters(recipe: SourcedValues, s: JobSettings) -> None:
    """LoRA, which is on where lora_target names matrices; engines have settings of their own."""
    args = f"{TRAIN}.model_args"
    on = s.find(f"{args}.lora_target") is not None
    recipe.adapters(f"{args}.lora_target", on, f"{args}.lora_rank", default=8)
    s.used.add(f"{INFER}.model_args.lora_rank")

"""OpenRLHF: flags of train_ppo_ray, by the names of 0.11 (`--actor.num_nodes`) or those before it
(`--actor_num_nodes`).

Defaults are those of its argument parser (openrlhf/cli/train_ppo_ray.py of OpenRLHF 0.11.2); of
older names, whose defaults differ, those of 0.8.
"""

import re

from ...errors import RFabricError
from .approximations import MORE_TURNS
from .settings import JobSettings
from .sourced_values import SourcedValues

NO_EFFECT = """
    adam. muon. lr learning_rate optim l2 eps_clip clip max_norm logger. wandb use_wandb tensorboard
    ckpt. save save_path save_steps ckpt_path eval logging max_samples data.prompt_ prompt_data
    prompt_split data.input_ data.label_ data.apply_ data.disable data.dataloader input_key
    label_key input_template apply_chat seed temperature top_p algo.advantage. algo.kl. kl_ lambd
    gamma normalize_reward reward.clip reward.normalize reward.overlong value_head entropy
    num_episodes train.num_episodes load_checkpoint use_tensorboard critic.value advantage_
    dynamic_filtering_ attn_implementation local_rank warmup
"""
# Each setting by its name today and before, where the words changed.
_NAMES = {
    "model": ("actor.model_name_or_path", "pretrain"),
    "colocated": ("train.colocate_all", "colocate_all_models"),
    "ahead": ("train.async_enable", "async_train"),
    "queue": ("train.async_queue_size", "async_queue_size"),
    "partial": ("train.partial_rollout_enable", "partial_rollout"),
    "engines": ("vllm.num_engines", "vllm_num_engines"),
    "wide": ("vllm.tensor_parallel_size", "vllm_tensor_parallel_size"),
    "share": ("vllm.gpu_memory_utilization", "vllm_gpu_memory_utilization"),
    "batch": ("rollout.batch_size", "rollout_batch_size"),
    "begun": ("rollout.vllm_generate_batch_size", "vllm_generate_batch_size"),
    "group": ("rollout.n_samples_per_prompt", "n_samples_per_prompt"),
    "filter": ("algo.dynamic_filtering_enable", "dynamic_filtering"),
    "whole": ("data.max_len", "max_len"),
    "response": ("rollout.max_new_tokens", "max_new_tokens", "generate_max_len"),
    "tp": ("ds.tensor_parallel_size", "ds_tensor_parallel_size"),
    "cp": ("ds.ring_attn_size", "ring_attn_size"),
    "zero": ("ds.zero_stage", "zero_stage"),
    "zpg": ("ds.zpg", "zpg"),
    "host": ("ds.adam_offload", "adam_offload"),
    "lora": ("ds.lora.rank", "lora_rank"),
    "packed": ("ds.packing_samples", "packing_samples"),
    "attention": ("ds.attn_implementation", "attn_implementation"),
    "dynamic": ("train.dynamic_batch_enable", "use_dynamic_batch"),
    "budget": ("train.max_tokens_per_gpu", "train_max_tokens_per_gpu"),
    "micro": ("train.micro_batch_size", "micro_train_batch_size"),
    "ahead_micro": ("rollout.micro_batch_size", "micro_rollout_batch_size"),
    "ahead_budget": ("rollout.max_tokens_per_gpu", "rollout_max_tokens_per_gpu"),
    "update": ("train.batch_size", "train_batch_size"),
    "epochs": ("train.max_epochs", "max_epochs"),
    "again": ("actor.gradient_checkpointing_enable", "gradient_checkpointing"),
    "penalty": ("algo.kl.init_coef", "init_kl_coef"),
    "estimator": ("algo.advantage.estimator", "advantage_estimator"),
    "judge": ("reward.remote_url", "remote_rm_url"),
    "agent": ("train.agent_func_path", "agent_func_path"),
    "train_sleeps": ("ds.enable_sleep", "deepspeed_enable_sleep"),
    "engine_sleeps": ("vllm.enable_sleep", "vllm_enable_sleep"),
    "with_actor": ("train.colocate_actor_ref", "colocate_actor_ref"),
}
_OTHER_ENTRY = re.compile(r"train_(sft|dpo|rm|kto|kd|prm)\b|serve_rm|batch_inference|lora_combiner")
_NODE = 8  # GPUs of a node


def fill(recipe: SourcedValues, s: JobSettings) -> None:
    """Put the job's flags into the recipe's keys; RFabricError for a job that is no RL."""
    other = next((word for word in s.words if _OTHER_ENTRY.search(word)), None)
    if other is not None:
        raise RFabricError(
            f"{s.file}: {other} only trains or only serves; a recipe is a step that generates "
            "responses and trains on them"
        )
    model = s.find(*_NAMES["model"])
    recipe.put("model", str(model[1]) if model else "", f"--{model[0]}" if model else "")
    _cluster(recipe, s)
    _generation(recipe, s)
    _training(recipe, s)
    _beside(recipe, s)
    recipe.put("weight_sync.strategy", "flat", "OpenRLHF: each engine receives its own copy")


def _on(s: JobSettings, name: str) -> bool:
    return s.find(*_NAMES[name]) is not None and s.flag(*_NAMES[name])


def _older(s: JobSettings) -> bool:
    """Whether the flags are those before 0.11, which have no dots."""
    return any(name in s.values for name in ("pretrain", "actor_num_nodes", "vllm_num_engines"))


def _gpus(s: JobSettings, role: str) -> tuple[float, float]:
    """GPUs of a role, and of each of its nodes."""
    nodes, each = (
        (s.number(f"{role}.{last}", f"{role}_{last}") or ("", usual))[1]
        for last, usual in (("num_nodes", 1), ("num_gpus_per_node", _NODE))
    )
    return nodes * each, each


def _cluster(recipe: SourcedValues, s: JobSettings) -> None:
    trains, each = _gpus(s, "actor")
    engines = s.number(*_NAMES["engines"])
    if engines is None or not engines[1]:
        raise RFabricError(
            f"{s.file}: --{_NAMES['engines'][0]} is not set, so that the trainer generates by "
            "itself, which a recipe cannot say"
        )
    wide = recipe.take("generation.tp", *_NAMES["wide"], default=1)
    origin, ahead = "actor's num_nodes x num_gpus_per_node", _on(s, "ahead")
    colocated = _on(s, "colocated") and not ahead
    if colocated:
        recipe.gpus(int(trains), int(trains), True, f"{origin}; all are colocated")
        _asleep(s)
        if engines[1] * wide != trains:
            s.notes += (
                f"--{engines[0]} {engines[1]} x {wide} GPUs are not the {trains} that train, which "
                "OpenRLHF refuses where all are colocated",
            )
    else:
        recipe.gpus(int(trains), int(engines[1] * wide), False, f"{origin}; --{engines[0]} x tp")
        _pipeline(recipe, s, ahead)
    server = each if colocated or each > _NODE else _NODE
    recipe.put("cluster.gpus_per_server", int(server), "the actor's GPUs of a node, or 8")


def _asleep(s: JobSettings) -> None:
    """That what trains, or generates, stays in the HBM where nothing tells it to leave."""
    stay = [_NAMES[name][0] for name in ("train_sleeps", "engine_sleeps") if not _on(s, name)]
    s.notes += tuple(
        f"--{name} is not set: what it would free stays in the HBM; here it leaves it for the "
        "other phase, which leaves that more room"
        for name in stay
    )


def _pipeline(recipe: SourcedValues, s: JobSettings, ahead: bool) -> None:
    """How many batches generation may begin before one is trained on: those of the queue, whose
    place is free when the training takes a batch (openrlhf/trainer/ppo_trainer_async.py).
    """
    queue = s.number(*_NAMES["queue"]) or (_NAMES["queue"][0], 1)
    goes_on = f"--{_NAMES['partial'][0]}" if _on(s, "partial") else ""
    if not ahead:
        recipe.put("pipeline", "sync", f"--{_NAMES['ahead'][0]} is not set")
    elif queue[1] > 1 or goes_on:
        recipe.behind(queue[1], f"--{queue[0]}", goes_on)
    else:
        recipe.put("pipeline", "one-step-off", f"--{_NAMES['ahead'][0]}")


def _generation(recipe: SourcedValues, s: JobSettings) -> None:
    batch = recipe.take("generation.batch", *_NAMES["batch"], default=1024)
    recipe.take("generation.group_size", *_NAMES["group"], default=1)
    begun = s.number(*_NAMES["begun"])
    if _on(s, "filter"):
        recipe.rolled_out(f"--{_NAMES['filter'][0]}", begun[1] if begun else 0)
    elif begun and begun[1] > batch:
        s.notes += (
            f"--{begun[0]} {begun[1]}: so many prompts are begun at once, for batches of {batch} "
            "one after the other; here each is begun by itself",
        )
    _lengths(recipe, s)
    recipe.take("generation.memory_utilisation", *_NAMES["share"], default=0.95)
    recipe.assume("generation.max_num_seqs", 1024, "vLLM's order of size; OpenRLHF does not say")
    if agent := s.find(*_NAMES["agent"]):
        s.notes += (f"--{agent[0]} = {agent[1]}: {MORE_TURNS}",)


def _lengths(recipe: SourcedValues, s: JobSettings) -> None:
    """Prompt and response: each by itself before 0.11, since then what both have together."""
    whole, response = s.number(*_NAMES["whole"]), s.number(*_NAMES["response"])
    if whole is None and _older(s):
        recipe.take("generation.max_prompt", "prompt_max_len", default=1024)
        recipe.take("generation.max_response", *_NAMES["response"], default=1024)
        return
    key, total = whole or (f"{_NAMES['whole'][0]}, by default", 2048)
    if response and response[1] < total:
        recipe.put("generation.max_response", response[1], f"--{response[0]}")
        recipe.put("generation.max_prompt", total - response[1], f"--{key} less the response")
        return
    prompt = min(2048, total // 2)
    recipe.assume("generation.max_prompt", prompt, f"prompts share --{key} with responses")
    recipe.put("generation.max_response", total - prompt, f"--{key} less the prompt")


def _training(recipe: SourcedValues, s: JobSettings) -> None:
    tp = recipe.take("training.tp", *_NAMES["tp"], default=1)
    recipe.take("training.cp", *_NAMES["cp"], default=1)
    stage = s.number(*_NAMES["zero"]) or ("zero_stage, by default", 2)
    recipe.zero(stage[1], f"--{stage[0]}")
    if (zpg := s.number(*_NAMES["zpg"])) and zpg[1] > 1:
        s.notes += (
            f"--{zpg[0]} {zpg[1]}: layers are gathered inside groups of so many GPUs, which hold "
            "a second copy (ZeRO++); here over all of them",
        )
    if _on(s, "host"):
        recipe.put("training.host_optimizer", True, f"--{_NAMES['host'][0]}")
    if (rank := s.number(*_NAMES["lora"])) and rank[1]:
        recipe.put("training.lora_rank", rank[1], f"--{rank[0]}")
        recipe.put("weight_sync.adapters", "merged", "OpenRLHF sends all parameters to its engines")
    _micro_batch(recipe, s, tp)
    update = s.number(*_NAMES["update"]) or (f"{_NAMES['update'][0]}, by default", 128)
    recipe.whole_batches(update[1], f"samples / --{update[0]}", "OpenRLHF")
    epochs = s.number(*_NAMES["epochs"])
    if epochs and epochs[1] > 1:
        recipe.put("training.epochs", epochs[1], f"--{epochs[0]}")
    penalty = s.number(*_NAMES["penalty"])
    recipe.log_probs(penalty is None or bool(penalty[1]), " (init_coef)")
    _log_prob_micro_batch(recipe, s, tp)
    again = s.find(*_NAMES["again"])
    recipe.recompute(_on(s, "again"), f"--{(again or _NAMES['again'])[0]}", again is not None)


def _micro_batch(recipe: SourcedValues, s: JobSettings, tp: int) -> None:
    budget = s.number(*_NAMES["budget"]) or (f"{_NAMES['budget'][0]}, by default", 16192)
    usual = 4 if _older(s) else 1
    micro = s.number(*_NAMES["micro"]) or (f"{_NAMES['micro'][0]}, by default", usual)
    if _on(s, "dynamic"):
        recipe.micro_batch(budget[1] * tp, f"--{budget[0]} x tp")
        return
    recipe.whole_sequences(micro[1], f"--{micro[0]}")
    if not _on(s, "packed") and recipe.values["training.cp"] == 1:  # rings pack by themselves
        _padding(recipe, s)


def _padding(recipe: SourcedValues, s: JobSettings) -> None:
    """Of a micro-batch that is not packed (make_experience_batch, concat_experiences). Older jobs
    have a switch for FlashAttention, which is off.
    """
    said = s.find(*_NAMES["attention"])
    flash = "flash" in str(said[1]) if said else not _older(s) or s.find("flash_attn") is not None
    beside = "but for attention, which leaves it out" if flash else "by attention as well"
    origin = f"--{_NAMES['packed'][0]} is not set"
    note = f"up to the longest sequence of each micro-batch, {beside}"
    recipe.padding("micro-batch", origin, note, not flash)


def _log_prob_micro_batch(recipe: SourcedValues, s: JobSettings, tp: int) -> None:
    """Micro-batches of the passes for log-probabilities, which have words of their own."""
    if _on(s, "dynamic"):
        budget = s.number(*_NAMES["ahead_budget"])  # as the training's where it is not said
        tokens = (f"--{budget[0]} x tp", budget[1] * tp) if budget else None
        recipe.log_prob_micro_batch(tokens, None)
        return
    name, usual = _NAMES["ahead_micro"][0], 8 if _older(s) else 1
    each = s.number(*_NAMES["ahead_micro"]) or (f"{name}, by default", usual)
    recipe.log_prob_micro_batch(None, (f"--{each[0]}", each[1]))


def _beside(recipe: SourcedValues, s: JobSettings) -> None:
    """The critic, whose estimator is the default, and notes on who else has GPUs."""
    together = _on(s, "colocated")
    estimator = s.find(*_NAMES["estimator"])
    if estimator is None or estimator[1] == "gae":
        why = (
            f"--{estimator[0]} gae" if estimator else f"--{_NAMES['estimator'][0]}, gae by default"
        )
        recipe.put("training.critic", True, f"{why}; a critic of the policy's shape")
        passes = recipe.values["training.log_prob_passes"] + 1
        recipe.put("training.log_prob_passes", passes, "as the policy's, and the critic's values")
        own = "" if together else f", which has {_gpus(s, 'critic')[0]} of its own there"
        s.notes += (f"{why}: the critic is trained on the policy's GPUs here, after it{own}",)
    if not together and not _on(s, "with_actor") and recipe.values["training.log_prob_passes"]:
        penalty = s.number(*_NAMES["penalty"])
        if penalty is None or penalty[1]:
            s.notes += (
                f"the reference policy has {_gpus(s, 'ref')[0]} GPUs of its own; here its pass is "
                "on those that train",
            )
    if s.find(*_NAMES["judge"]) is None and s.find(*_NAMES["agent"]) is None:
        s.notes += (
            f"the reward model{'' if together else ', on GPUs of its own'}: its passes are not "
            "modelled",
        )

"""verl: Hydra overrides of a launch script, or the trainer's YAML file.

Defaults are those of verl's own trainer configuration (verl/trainer/config/ppo_trainer.yaml and
what it includes).
"""

from .settings import Settings
from .sourced_values import SourcedValues

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
MEGATRON = f"{ACTOR}.megatron"
_NO_EFFECT = """
    .optim. optim. trainer.logger trainer.project trainer.experiment trainer.save trainer.test
    trainer.total trainer.val trainer.default trainer.resume trainer.max_ trainer.log
    trainer.rollout_data trainer.balance data.train_files data.val_files data.shuffle data.seed
    data.prompt_key data.truncation data.filter data.val data.return data.image data.reward
    data.tokenizer data.trust algorithm.gamma algorithm.lam algorithm.norm algorithm.kl_ctrl
    algorithm.kl_penalty clip_ kl_loss_ entropy grad_clip temperature top_p top_k val_kwargs
    loss_agg reward_model. custom_reward trust_remote checkpoint model.path ignore_eos do_sample
    seed nsys
"""


def without_effect(key: str) -> bool:
    """Whether a key changes neither time nor traffic."""
    return any(part in key for part in _NO_EFFECT.split())


def fill(recipe: SourcedValues, s: Settings) -> None:
    """Put the job's settings into the recipe's keys."""
    model = s.find("actor_rollout_ref.model.path")
    recipe.put("model", str(model[1]) if model else "", "actor_rollout_ref.model.path")
    _cluster(recipe, s)
    _generation(recipe, s)
    _training(recipe, s)
    s.used.add("algorithm.adv_estimator")
    recipe.put("weight_sync.strategy", "flat", "verl: every rollout replica receives its own copy")


def _cluster(recipe: SourcedValues, s: Settings) -> None:
    per_node = (s.number("trainer.n_gpus_per_node") or ("", 8))[1]
    nodes = (s.number("trainer.nnodes") or ("", 1))[1]
    rollout = s.find("rollout.nnodes")
    s.used |= {"rollout.n_gpus_per_node"}
    trains = nodes * per_node
    if rollout and rollout[1]:
        generates = (
            s.number("rollout.nnodes")[1]
            * (s.number("rollout.n_gpus_per_node") or ("", per_node))[1]
        )
        recipe.gpus(trains, generates, False, "trainer.* and rollout.*: nnodes x n_gpus_per_node")
        _pipeline(recipe, s)
    else:
        recipe.gpus(trains, trains, True, "trainer.nnodes x trainer.n_gpus_per_node")
    recipe.put("cluster.gpus_per_server", per_node, "trainer.n_gpus_per_node")


def _pipeline(recipe: SourcedValues, s: Settings) -> None:
    staleness = s.number("async_training.staleness_threshold")
    if staleness is None:
        recipe.put(
            "pipeline", "one-step-off", ("rollout.nnodes: GPUs of its own, without async_training")
        )
    elif staleness[1]:
        recipe.put("pipeline", "bounded-staleness", staleness[0])
        recipe.put(
            "staleness",
            max(1, round(staleness[1])),
            f"{staleness[0]} = {staleness[1]} of a step's batch, in whole steps",
        )
    else:
        recipe.put("pipeline", "sync", f"{staleness[0]} = 0")


def _generation(recipe: SourcedValues, s: Settings) -> None:
    recipe.take("generation.tp", f"{ROLLOUT}.tensor_model_parallel_size", default=2)
    per_update = s.number("async_training.require_batches") or ("", 1)
    if s.value("data.train_batch_size") == 0:  # verl streams: updates, not batches, are counted
        size = s.number(f"{ACTOR}.ppo_mini_batch_size") or ("", 256)
        times = s.number("async_training.trigger_parameter_sync_step") or ("", 1)
        recipe.put(
            "generation.batch",
            size[1] * per_update[1] * times[1],
            "ppo_mini_batch_size x require_batches x trigger_parameter_sync_step",
        )
    else:
        recipe.take(
            "generation.batch", "data.train_batch_size", "data.gen_batch_size", default=1024
        )
    recipe.take("generation.group_size", f"{ROLLOUT}.n", default=1)
    recipe.take("generation.max_prompt", "data.max_prompt_length", default=512)
    recipe.take("generation.max_response", "data.max_response_length", default=512)
    recipe.take("generation.memory_utilisation", f"{ROLLOUT}.gpu_memory_utilization", default=0.5)
    recipe.take("generation.max_num_seqs", f"{ROLLOUT}.max_num_seqs", default=1024)


def _training(recipe: SourcedValues, s: Settings) -> None:
    megatron = s.value(f"{ACTOR}.strategy") == "megatron" or any(
        key.startswith(MEGATRON) for key in s.values
    )
    if megatron:
        for key, name in (
            ("tp", "tensor"),
            ("pp", "pipeline"),
            ("cp", "context"),
            ("ep", "expert"),
        ):
            recipe.take(
                f"training.{key}",
                f"{MEGATRON}.{name}_model_parallel_size",
                f"{MEGATRON}.{name}_parallel_size",
                default=1,
            )
    else:
        recipe.put("training.tp", 1, "FSDP: parameters are sharded, not cut by tensor")
        recipe.put("training.optimizer", "sharded", "FSDP")
        if recipe.take("training.cp", f"{ACTOR}.ulysses_sequence_parallel_size", default=1) > 1:
            recipe.put("training.context_exchange", "ulysses", "FSDP's sequence parallelism")
    dynamic = s.flag(f"{ACTOR}.use_dynamic_bsz") if s.find(f"{ACTOR}.use_dynamic_bsz") else False
    longest = recipe.values["generation.max_prompt"] + recipe.values["generation.max_response"]
    budget = s.number(f"{ACTOR}.ppo_max_token_len_per_gpu")
    sequences = s.number(f"{ACTOR}.ppo_micro_batch_size_per_gpu", f"{ACTOR}.ppo_micro_batch_size")
    if dynamic and budget:
        recipe.micro_batch(budget[1], budget[0])
    elif sequences:
        cp = recipe.values.get("training.cp", 1)
        recipe.put(
            "training.micro_batch_tokens",
            -(-sequences[1] * longest // cp),
            f"{sequences[0]} x the longest sequence / cp",
        )
    else:
        recipe.assume("training.micro_batch_tokens", longest, "one sequence at a time")
    size = s.number(f"{ACTOR}.ppo_mini_batch_size") or (
        (f"{ACTOR}.ppo_mini_batch_size, by default"),
        256,
    )
    batch = recipe.values["generation.batch"]
    recipe.mini_batches(batch, min(size[1], batch), f"train batch / {size[0]}")
    reference = s.flag(f"{ACTOR}.use_kl_loss") if s.find(f"{ACTOR}.use_kl_loss") else False
    reference = reference or (
        s.flag("algorithm.use_kl_in_reward") if s.find("algorithm.use_kl_in_reward") else False
    )
    recipe.put(
        "training.log_prob_passes",
        1 + reference,
        "old policy" + ((" and reference policy (KL)") if reference else ""),
    )
    checkpointing = s.find("actor_rollout_ref.model.enable_gradient_checkpointing")
    full = s.value(f"{MEGATRON}.override_transformer_config.recompute_granularity")
    if megatron:
        recipe.put(
            "training.recompute", "full" if full == "full" else "selective", "recompute_granularity"
        )
    elif checkpointing is None or s.flag(checkpointing[0]):
        recipe.put("training.recompute", "full", "enable_gradient_checkpointing")

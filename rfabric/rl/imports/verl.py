"""verl: Hydra overrides of a launch script, or the trainer's YAML file.

Defaults are those of verl's own trainer configuration (verl/trainer/config/ppo_trainer.yaml and
what it includes), and of the asynchronous trainers beside it, as verl 0.9.1 has them.
"""

import math
import re
from itertools import pairwise

from ...errors import RFabricError
from .approximations import MORE_TURNS
from .settings import JobSettings
from .sourced_values import SourcedValues
from .verl_ahead import entry, note_turns, put_pipeline, put_under_way, streams
from .verl_engines import (
    ACTOR,
    MEGATRON,
    drop_unused,
    engine_of,
    put_padding,
    put_recompute,
    put_sharded,
)
from .verl_rollout import ROLLOUT, put_engines

FILTER, BYPASS = "algorithm.filter_groups.enable", "algorithm.rollout_correction.bypass_mode"
NO_EFFECT = """
    .optim. optim. trainer.logger trainer.project trainer.experiment trainer.save trainer.test
    trainer.total trainer.val trainer.default trainer.resume trainer.max_ trainer.log
    trainer.rollout_data rollout.test rollout.total hydra. dropout pdrop data.train_files
    data.val_files data.shuffle data.seed data.prompt_key data.truncation data.filter data.val
    data.return data.image data.reward data.tokenizer data.trust algorithm.gamma algorithm.lam
    algorithm.norm algorithm.kl_ctrl algorithm.kl_penalty clip_ kl_loss_ entropy grad_clip
    temperature top_p top_k val_kwargs loss_agg reward_model.reward_manager
    reward_model.reward_kwargs overlong_buffer filter_groups.metric custom_reward trust_remote
    .checkpoint. dist_checkpointing ignore_eos do_sample seed nsys critic_warmup lora_alpha
"""
_NO_CRITIC = re.compile(r"main_(sppo|spin|gkd)$")  # their own config has no estimator
_OTHER_ENTRY = re.compile(r"sft_trainer|main_generation|main_eval")


def fill(recipe: SourcedValues, s: JobSettings) -> None:
    """Put the job's settings into the recipe's keys; RFabricError for a job that is no RL."""
    _refuse_others(s)
    model = s.find(_MODEL, "model_path")  # the latter is RAGEN's
    recipe.put("model", *((str(model[1]), model[0]) if model else ("", _MODEL)))
    _cluster(recipe, s)
    _generation(recipe, s)
    _training(recipe, s)
    if s.find("algorithm.adv_estimator") is None and not any(map(_NO_CRITIC.search, s.words)):
        s.values["algorithm.adv_estimator"] = "gae"  # so `effects` adds the critic
        s.notes += ("algorithm.adv_estimator is not set: gae, verl's default",)
    _others(s)
    recipe.put("weight_sync.strategy", "flat", "verl: every rollout replica receives its own copy")


def _foreign(words: tuple[str, ...]) -> str:
    """The module or file that starts a job, the last where others wrap it, where none is verl's
    own; else empty.
    """
    pairs = pairwise(("", *words))
    entries = [word for before, word in pairs if before == "-m" or word.endswith(".py")]
    return "" if any(map(_OWN.search, words)) or not entries else entries[-1]


_OWN = re.compile(r"^(verl|recipe)(\.\w+)+$|^(.*/)?(verl|recipe)/.*\.py$|(^|/)main_\w+\.py$")


def _refuse_others(s: JobSettings) -> None:
    other = next((w for w in s.words if _OTHER_ENTRY.search(w)), None)
    if other is not None:
        raise RFabricError(
            f"{s.file}: {other} is SFT, generation or evaluation alone; a recipe is a step that "
            "generates responses and trains on them"
        )


def _others(s: JobSettings) -> None:
    """Notes on models and responses beside the policy's, whose time no key says."""
    for switch, who in _BESIDE.items():
        told = switch == _PATH and s.find("reward_model.enable")  # that it is on, or off
        if s.find(switch) and not told and (s.flag(switch) or switch == _PATH):
            s.notes += (f"{switch}: {who}, and GPUs of its own, are not modelled",)
    if entry := _foreign(s.words):
        s.notes += (
            f"{entry} is no trainer of verl's own: its settings are read as verl's, and where it "
            "is silent, as verl's defaults; what it does otherwise is not known",
        )
    if any("main_ppo_split" in word for word in s.words):
        s.notes += (
            "main_ppo_split: policy and critic have half of the GPUs each; here all of them train "
            "both, one after the other",
        )
    if any("main_gkd" in word for word in s.words):
        s.notes += ("main_gkd: the teacher's passes, on servers of its own, are not modelled",)
    if s.value("trainer.device", default="cuda") != "cuda":
        device = s.values["trainer.device"]
        s.notes += (f"trainer.device = {device}: computed as the GPU of cluster.gpu; say --gpu",)
    if s.values.get("algorithm.adv_estimator") == "remax":
        s.notes += (
            "algorithm.adv_estimator = remax: the greedy response to each prompt, its baseline, "
            "is not modelled",
        )


_PATH = "reward_model.model.path"
_BESIDE = {
    "reward.reward_model.enable": "the passes of the reward model",
    "reward_model.enable": "the passes of the reward model",
    _PATH: "the passes, and with PRIME the training, of the reward model",
    "distillation.enabled": "the passes of the teacher",
}


def _cluster(recipe: SourcedValues, s: JobSettings) -> None:
    per_node = (s.number("trainer.n_gpus_per_node") or ("", 8))[1]
    nodes = (s.number("trainer.nnodes") or ("", 1))[1]
    apart = next((p for p in ("rollout", ROLLOUT) if s.find(f"{p}.nnodes")), "rollout")
    rollout, own = s.find(f"{apart}.nnodes"), s.number(f"{apart}.n_gpus_per_node")
    trains, server, origin = nodes * per_node, per_node, "trainer.n_gpus_per_node"
    alone = next((t for t in ("one_step_off", "fully_async") if entry(s, t)), "")
    if (rollout and rollout[1]) or (own and not rollout) or (alone and not rollout):
        each = (own or ("", per_node if apart == ROLLOUT else _NODE))[1]
        generates = (s.number(f"{apart}.nnodes") or ("", 1))[1] * each
        if not rollout and not own:
            s.notes += (f"{apart}.nnodes is not set: 1 x {each} GPUs, {alone}'s own default",)
        recipe.gpus(trains, generates, False, "trainer.* and rollout.*: nnodes x n_gpus_per_node")
        put_pipeline(recipe, s)
        if per_node + each <= _NODE:
            server, origin = per_node + each, f"{origin} + rollout.n_gpus_per_node, of one node"
            if nodes > 1:
                s.notes += (
                    f"{origin}: Ray may deal {per_node} GPUs of each of {nodes} nodes to training; "
                    "here training fills whole servers, so that more of its traffic stays inside",
                )
    else:
        recipe.gpus(trains, trains, True, "trainer.nnodes x trainer.n_gpus_per_node")
        note_turns(s)
    recipe.put("cluster.gpus_per_server", server, origin)


_NODE = (
    8  # GPUs of a node: parts of it that train and generate, and are no more together, share one
)


_MODEL = "actor_rollout_ref.model.path"


def _generation(recipe: SourcedValues, s: JobSettings) -> None:
    recipe.take("generation.tp", f"{ROLLOUT}.tensor_model_parallel_size", default=2)
    per_update = s.number("async_training.require_batches") or ("", 1)
    streaming = streams(s)
    if not s.value("data.train_batch_size", default=0 if streaming else 1024):
        # verl streams: updates, not batches, are counted
        size = s.number(f"{ACTOR}.ppo_mini_batch_size") or ("", 256)
        times = s.number("async_training.trigger_parameter_sync_step") or (
            "",
            4 if streaming else 1,
        )
        recipe.put(
            "generation.batch",
            size[1] * per_update[1] * times[1],
            "ppo_mini_batch_size x require_batches x trigger_parameter_sync_step",
        )
    else:
        recipe.take("generation.batch", "data.train_batch_size", default=1024)
        _begun(recipe, s)
    _group(recipe, s)
    for side in ("prompt", "response"):
        own = f"{ROLLOUT}.{side}_length"  # by default the name of the data's
        data, told = f"data.max_{side}_length", [own] * (recipe.above_zero(own) is not None)
        # the data's bounds prompts, which it filters, and the engine's what it generates
        names = (data, *told) if side == "prompt" else (*told, data)
        recipe.take(f"generation.max_{side}", *names, default=512)
    if over := s.number("data.oversample_factor"):  # PRIME's, whose filter keeps a batch of them
        recipe.rolled_out(over[0], recipe.values["generation.batch"] * over[1])
    overrides, longest = "actor_rollout_ref.model.override_config", "max_position_embeddings"
    recipe.stretched(f"{overrides}.{longest}", f"{overrides}.model_config.{longest}")
    recipe.bounded(f"{ROLLOUT}.max_model_len")
    shares = [f"{ROLLOUT}.gpu_memory_utilization"]
    if streaming and "placement" not in recipe.values:
        put_under_way(recipe, s)
        shares.insert(0, f"{ROLLOUT}.standalone_gpu_memory_utilization")
    recipe.take("generation.memory_utilisation", *shares, default=0.5)
    put_engines(recipe, s)


def _begun(recipe: SourcedValues, s: JobSettings) -> None:
    """Prompts that a step begins: what the loader deals, of which a filter may drop some."""
    key = "data.gen_batch_size"
    if s.flag(FILTER):
        recipe.rolled_out(*(s.number(key) or (FILTER, 0)))
    elif (dealt := recipe.above_zero(key)) and 1 < dealt[1] != recipe.values["generation.batch"]:
        s.notes += (
            f"{dealt[0]} = {dealt[1]}: without {FILTER} verl before 0.9 trains on so many prompts "
            "a step, in place of data.train_batch_size; 0.9 on the latter, as here",
        )


def _group(recipe: SourcedValues, s: JobSettings) -> None:
    """Responses to a prompt; Search-R1 and verl-agent count its agents beside them, which,
    as rLLM's, may take many turns.
    """
    samples = recipe.take("generation.group_size", f"{ROLLOUT}.n", default=1)
    for agents in (f"{ROLLOUT}.n_agent", "env.rollout.n"):
        if said := s.number(agents):
            recipe.put("generation.group_size", samples * said[1], f"{ROLLOUT}.n x {agents}")
    for turns in ("env.max_steps", "rllm.agent.max_steps"):
        if (steps := s.number(turns)) and steps[1] > 1:
            s.notes += (f"{turns} = {steps[1]}: {MORE_TURNS}",)


_SizeSaid = tuple[str, int | float] | None
_BatchSaid = tuple[_SizeSaid, _SizeSaid]


def _training(recipe: SourcedValues, s: JobSettings) -> None:
    engine = engine_of(s)
    megatron = engine in MEGATRON
    drop_unused(s, engine)
    if megatron:
        recipe.parallel(f"{ACTOR}.{engine}.")
    else:
        put_sharded(recipe, s, engine)
    dynamic = s.flag(f"{ACTOR}.use_dynamic_bsz") if s.find(f"{ACTOR}.use_dynamic_bsz") else False
    budget = s.number(f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ACTOR}.max_token_len")
    each = f"{ACTOR}.ppo_micro_batch_size_per_gpu", f"{ACTOR}.micro_batch_size"  # GKD's
    sequences = s.number(*each) or _of_all_ranks(recipe, s)
    if dynamic:
        recipe.micro_batch(
            *(budget[::-1] if budget else (16384, "ppo_max_token_len_per_gpu, by default"))
        )
    elif sequences:
        recipe.whole_sequences(sequences[1], sequences[0])
    else:
        recipe.assume("training.micro_batch_tokens", recipe.longest, "one sequence at a time")
        recipe.assume("training.micro_batch_sequences", 1, "one sequence at a time")
    _updates(recipe, s, megatron)
    reference = _reference(s)
    spin = any(word.endswith("main_spin") for word in s.words)
    engines = _bypass(s)
    recipe.log_probs(reference or spin, " (DPO)" if spin else " (KL)", engines)
    _log_prob_micro_batch(recipe, s, dynamic, not engines)
    put_padding(recipe, s, engine)
    put_recompute(recipe, s, engine)


def _log_prob_micro_batch(
    recipe: SourcedValues, s: JobSettings, dynamic: bool, old_policy: bool
) -> None:
    """Micro-batches of the passes for log-probabilities: of the old policy, whose words stand in
    the section of the rollout, or where it has none, of the reference.
    """
    rollout, reference = (_ahead(recipe, s, section, dynamic) for section in (ROLLOUT, _REFERENCE))
    recipe.log_prob_micro_batch(*(rollout if old_policy else reference))
    sizes = [[said and said[1] for said in both] for both in (rollout, reference)]
    if any(sizes[1]) and sizes[0] != sizes[1] and recipe.values["training.log_prob_passes"] > 1:
        s.notes += (
            f"{_REFERENCE}.log_prob_*: micro-batches of the reference's pass are not those of the "
            "old policy's; here they are",
        )


def _ahead(recipe: SourcedValues, s: JobSettings, section: str, dynamic: bool) -> _BatchSaid:
    """Tokens or sequences of a micro-batch, by the words of a section."""
    switch, tokens = (f"{section}.log_prob_{key}" for key in ("use_dynamic_bsz", "max_token_len"))
    budget = s.number(f"{tokens}_per_gpu")
    each = s.number(f"{section}.log_prob_micro_batch_size_per_gpu")
    every = s.number(f"{section}.log_prob_micro_batch_size")
    if every and not each:
        each = f"{every[0]} / ranks", max(1, every[1] // _ranks(recipe))
    by_tokens = s.flag(switch) if s.find(switch) else dynamic
    return (budget, None) if by_tokens else (None, each)


def _updates(recipe: SourcedValues, s: JobSettings, megatron: bool) -> None:
    """Optimizer updates: the batch in mini-batches of ppo_mini_batch_size prompts. Each rank has
    its part of both, a mini-batch's rounded down before verl 0.8, and splits what it has; the last
    mini-batch is smaller (FSDP before 0.8), or filled up with sequences of 128 tokens (0.9).
    """
    key = f"{ACTOR}.ppo_mini_batch_size"
    said, prompts = s.number(key) or (f"{key}, by default", 256)
    v = recipe.values
    ranks, group, batch = _ranks(recipe), v["generation.group_size"], v["generation.batch"]
    prompts, samples = min(prompts, batch), batch * group
    mine = prompts * group // ranks
    each, whole = (mine * ranks or prompts * group), prompts * group
    pads = _pads(recipe, s)
    if samples % ranks:
        fills = ", but for 0.9, which fills up" if pads else ""
        s.notes += (
            f"{samples} sequences of a step do not divide among {ranks} ranks, so that verl "
            f"refuses them{fills}",
        )
    if each != whole:
        s.notes += (
            f"{said} = {prompts}: {whole} sequences an update over {ranks} ranks are {mine} a "
            f"rank, {each} in all; verl from 0.8 on refuses them",
        )
    if samples % each == 0:
        recipe.mini_batches(samples, each, f"train batch / {said}")
        return
    why = f"{said} = {prompts}: updates of {each} do not divide the {samples} sequences of a step"
    if megatron and mine and (each != whole or not pads):
        raise RFabricError(f"{s.file}: {why}, which verl's Megatron actor refuses")
    recipe.put("training.mini_batch_responses", each, f"{said} x rollout.n, the last one smaller")
    s.notes += (
        f"{why}: the last mini-batch is smaller; verl 0.8 refuses that"
        f"{', and Megatron before it' if megatron else ''}",
    )


def _pads(recipe: SourcedValues, s: JobSettings) -> bool:
    """Whether verl 0.9 fills up mini-batches, which its trainer of colocated jobs alone does."""
    old = "trainer.use_v1"
    return "placement" in recipe.values and not (s.find(old) and not s.flag(old))


def _reference(s: JobSettings) -> bool:
    """Whether KL to a reference policy is asked for, in the loss or in the reward. Before verl had
    a switch for the latter, every reward held it: in jobs that set neither and still count
    micro-batches over all ranks.
    """
    switches = (f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward")
    said = [s.flag(switch) for switch in switches if s.find(switch)]
    asks = s.values.get(_KL) or any(".ref." in key for key in s.values)
    if said or not asks or s.values.get(f"{ACTOR}.ppo_micro_batch_size") is None:
        return any(said)
    s.notes += (
        f"{ACTOR}.ppo_micro_batch_size is of verl before algorithm.use_kl_in_reward, whose rewards "
        "hold KL to a reference policy; write the switch out for a later one",
    )
    return True


_KL = "algorithm.kl_ctrl.kl_coef"
_REFERENCE = "actor_rollout_ref.ref"


def _bypass(s: JobSettings) -> str:
    """What says that the old policy's log-probs are those of generation, which the asynchronous
    trainers do by themselves, that of one step off since it is part of verl; else empty.
    """
    proximal = "async_training.compute_prox_log_prob"
    if s.find(proximal) and s.flag(proximal):
        return ""
    said = s.find(BYPASS, "async_training.use_rollout_log_probs")
    if said:
        return said[0] if s.flag(said[0]) else ""
    if streams(s):
        return f"{BYPASS}, by default of fully_async"
    ours = entry(s, "verl.experimental.one_step_off")
    return f"{BYPASS}, by default of one_step_off" if ours else ""


def _of_all_ranks(recipe: SourcedValues, s: JobSettings) -> tuple[str, int] | None:
    """The older ppo_micro_batch_size, sequences of all data-parallel ranks, as those of one."""
    size = s.number(f"{ACTOR}.ppo_micro_batch_size")
    if size is None:
        return None
    ranks = _ranks(recipe)
    return f"{size[0]} / {ranks} ranks", max(1, size[1] // ranks)


def _ranks(recipe: SourcedValues) -> int:
    """Data-parallel ranks."""
    v = recipe.values
    together = math.prod(v.get(f"training.{way}", 1) for way in ("tp", "pp", "cp"))
    return max(1, v["cluster.training_gpus"] // max(1, together))

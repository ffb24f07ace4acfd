"""slime: flags of a launch script; those of Megatron keep Megatron's names.

Defaults are those of slime's and Megatron-LM's argument parsers.
"""

import math
import re
from pathlib import PurePosixPath
from typing import Any

from ...compute.named import find_model
from ...errors import RFabricError
from .settings import JobSettings
from .sourced_values import SourcedValues

NO_EFFECT = """
    lr optimizer adam weight-decay wandb tensorboard save load prompt-data input-key label-key rm-
    eval seed clip eps kl- entropy advantage-eps temperature top- dropout ref-load hf-checkpoint
    apply-chat shuffle num-rollout log- metadata normalization norm-epsilon rotary init-method bias
    swiglu position vocab tie untie num-layers hidden-size ffn attention-heads group-query
    query-groups kv-channels qk-layernorm moe- make-vocab attention-softmax normalize stop-token
    num-experts runtime-env-json address start-rollout q-lora-rank kv-lora-rank qk- v-head-dim
    multi-latent-attention mscale
"""


def fill(recipe: SourcedValues, s: JobSettings) -> None:
    """Put the job's flags into the recipe's keys."""
    _refuse_others(s)
    _model(recipe, s)
    _cluster(recipe, s)
    _generation(recipe, s)
    _training(recipe, s)
    if s.value("advantage-estimator") == "on_policy_distillation":
        s.notes += (f"--advantage-estimator on_policy_distillation: {_TEACHER}",)
    if s.values.get("advantage-estimator") == "ppo":
        _critic(recipe, s)
    recipe.put("weight_sync.strategy", "flat", "slime: every engine receives its own copy")
    if s.value("train-backend") != "fsdp":
        recipe.put("weight_sync.gather", "bucket", "slime: Megatron's shards, a bucket at once")
    _stored(recipe, s)
    for flag, (usual, said) in _APART.items():
        value = s.value(flag, default=usual)
        if value != usual:
            s.notes += (f"--{flag} {value}: {said}",)


_TEACHER = "the teacher's passes are not modelled"
_STAYS = "this stays in the HBM; here it leaves it for the other phase, which leaves that more room"
_STAGES = "stages of an engine are taken as tensor parallelism over all its GPUs"
_APART: dict[str, tuple[int | str, str]] = {  # beside what changes nothing
    "sglang-config": (
        "",
        "groups of servers, such as those for prompts, are not read: all are as the flags say; say "
        "generation.prefill_gpus",
    ),
    "sglang-pp-size": (1, _STAGES),
    "sglang-pipeline-parallel-size": (1, _STAGES),
    "update-weights-interval": (1, "weights are sent after each step here, not after so many"),
    "opd-teacher-load": (0, _TEACHER),
    "use-opd": (False, _TEACHER),
    "no-offload-train": (False, _STAYS),
    "no-offload-rollout": (False, _STAYS),
    "partial-rollout": (
        False,
        "responses that are cut off when a step has enough go on in the next; here none is begun "
        "that its step does not need",
    ),
}


def _stored(recipe: SourcedValues, s: JobSettings) -> None:
    """SGLang serves a checkpoint as it is stored, and slime sends it so: in FP8 by its name, or as
    the model was published where the name says no other.
    """
    name = PurePosixPath(str(s.values.get("hf-checkpoint", "")).lower()).name
    model = find_model(name) if name else None
    published = model is not None and model.stored.startswith("fp8")
    if "k2-thinking" in name:
        recipe.put("generation.precision", "int4", "--hf-checkpoint, as it was published")
    elif "fp8" in name or (published and not re.search("bf16|int4", name)):
        recipe.put("generation.precision", "fp8", "--hf-checkpoint, as it is stored")
        recipe.put("weight_sync.precision", "fp8", "--hf-checkpoint: slime sends what it stores")


def _critic(recipe: SourcedValues, s: JobSettings) -> None:
    """PPO's critic, whose GPUs are its own; colocated engines stand on those too
    (create_placement_groups in slime/ray/placement_group.py).
    """
    recipe.put("training.critic", True, "--advantage-estimator ppo")
    passes = recipe.values["training.log_prob_passes"] + 1
    recipe.put("training.log_prob_passes", passes, "as the policy's, and the critic's values")
    own = [recipe.above_zero(f"critic-{last}") or s.number(f"actor-{last}") for last in _GROUP]
    nodes, each = (said[1] if said else usual for said, usual in zip(own, (1, 8), strict=True))
    engines = ", and engines stand on both" if "placement" in recipe.values else ""
    s.notes += (
        "--advantage-estimator ppo: slime gives the critic GPUs of its own (--critic-num-*, by "
        f"default as many as the actor's: {nodes * each} here){engines}; a critic of the policy's "
        "shape is trained on the policy's GPUs here, after it",
    )


_GROUP = ("num-nodes", "num-gpus-per-node")


def _refuse_others(s: JobSettings) -> None:
    half = {
        "--loss-type sft_loss: the job only trains (SFT)": s.value("loss-type") == "sft_loss",
        "--debug-train-only: the job only trains": s.find("debug-train-only"),
        "--load-debug-rollout-data: the job only trains": s.find("load-debug-rollout-data"),
        "--debug-rollout-only: the job only generates": s.find("debug-rollout-only"),
    }
    if why := next((why for why, holds in half.items() if holds), ""):
        raise RFabricError(
            f"{s.file}: {why}, and a recipe is a step that generates responses and trains on them"
        )


def _model(recipe: SourcedValues, s: JobSettings) -> None:
    """Named by the checkpoint, or by the file of shapes that the script sources."""
    stated = s.find("hf-checkpoint", "ref-load", "load")
    recipe.shape = _shape(s)
    sourced = [word for word in s.words if re.search(r"models/[\w.-]+\.sh$", word)]
    if stated:
        recipe.put("model", PurePosixPath(str(stated[1]).rstrip("/")).name, f"--{stated[0]}")
    elif sourced:
        recipe.put(
            "model", PurePosixPath(sourced[-1]).stem, f"source {PurePosixPath(sourced[-1]).name}"
        )


# Megatron's flags, which slime's files of shapes set, as Hugging Face's fields.
_SHAPE = {
    "num-layers": "num_hidden_layers",
    "hidden-size": "hidden_size",
    "ffn-hidden-size": "intermediate_size",
    "num-attention-heads": "num_attention_heads",
    "num-query-groups": "num_key_value_heads",
    "kv-channels": "head_dim",
    "vocab-size": "vocab_size",
    "max-position-embeddings": "max_position_embeddings",
    "moe-router-topk": "num_experts_per_tok",
    "moe-ffn-hidden-size": "moe_intermediate_size",
    "q-lora-rank": "q_lora_rank",
    "kv-lora-rank": "kv_lora_rank",
    "qk-head-dim": "qk_nope_head_dim",
    "qk-pos-emb-head-dim": "qk_rope_head_dim",
    "v-head-dim": "v_head_dim",
}
_LONGEST = 131_072  # tokens, where no flag bounds the context


def _shape(s: JobSettings) -> dict:
    """The model's config as the flags spell it out; empty where they do not, or say more than a
    decoder of this shape. Experts are as wide as a dense MLP where no flag says how wide, and
    latent attention needs none (Megatron-LM, TransformerConfig: moe_ffn_hidden_size).
    """
    said = {field: s.values[flag] for flag, field in _SHAPE.items() if flag in s.values}
    whole = all(type(value) is int for value in said.values())
    needed = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    if not whole or any(field not in said for field in needed) or "spec" in s.values:
        return {}
    said.setdefault("max_position_embeddings", _LONGEST)
    said["tie_word_embeddings"] = "untie-embeddings-and-output-weights" not in s.values
    experts, shared = s.value("num-experts"), s.value("moe-shared-expert-intermediate-size")
    if experts:
        said["n_routed_experts"] = experts
        if "intermediate_size" in said:
            said.setdefault("moe_intermediate_size", said["intermediate_size"])
        where = _with_experts(s.value("moe-layer-freq", default=1), said["num_hidden_layers"])
        if not where:
            return {}
        said |= where
        if shared:
            said["shared_expert_intermediate_size"] = shared
    if "kv_lora_rank" in said:
        said.pop("head_dim", None)
        return {"n_routed_experts": 0} | said | {"model_type": "deepseek_v3"}
    kind = "qwen3" if "qk-layernorm" in s.values else "llama"
    kind = "qwen2" if "add-qkv-bias" in s.values else kind
    return said | {"model_type": _WITH_EXPERTS[kind] if experts else kind}


# The first DeepSeek-MoE has attention and MLPs as Llama.
_WITH_EXPERTS = {"llama": "deepseek", "qwen2": "qwen2_moe", "qwen3": "qwen3_moe"}


def _with_experts(frequency: Any, layers: int) -> dict:
    """Which layers have experts, as a config says it: the first of every so many, or those with a 1
    in a list such as `([0]*3+[1]*75)` (moe_freq_type in Megatron-LM's arguments.py). Empty where
    the flag is no such thing, or lists another number of layers.

    >>> _with_experts("[0]*3+[1]*75", 78), _with_experts("([0] + [1]*2)*2", 6)
    ({'first_k_dense_replace': 3}, {'moe_layer_freq': [0, 1, 1, 0, 1, 1]})
    """
    text = re.sub(r"[\s'\"]", "", str(frequency))
    if text.isdecimal():
        return {"moe_layer_freq": int(text)} if int(text) else {}
    # each list as a run of letters, dense or with experts, which no count runs into
    text = re.sub(r"\[([01,]*)\]", lambda m: m[1].replace(",", "").translate(_LETTERS), text)
    before = ""
    while before != text and len(text) < _MOST:
        before = text
        text = re.sub(r"([dx]+)\*(\d{1,3})", lambda m: m[1] * int(m[2]), text)
        text = re.sub(r"\(([dx+]+)\)", lambda m: m[1].replace("+", ""), text)
    each = [int(letter == "x") for letter in text.replace("+", "")]
    if len(each) != layers or not re.fullmatch(r"[dx+]+", text):
        return {}
    dense = layers - sum(each)
    return {"first_k_dense_replace": dense} if all(each[dense:]) else {"moe_layer_freq": each}


_LETTERS = str.maketrans("01", "dx")
_MOST = 10_000  # characters of such a list, written out


def _cluster(recipe: SourcedValues, s: JobSettings) -> None:
    nodes = s.number("actor-num-nodes") or ("", 1)
    each = s.number("actor-num-gpus-per-node") or ("", 8)
    trains = nodes[1] * each[1]
    origin = "--actor-num-nodes x --actor-num-gpus-per-node"
    colocated = s.find("colocate") is not None
    rollout = s.number("rollout-num-gpus")
    if colocated:
        recipe.gpus(trains, trains, True, f"{origin}, --colocate")
        if rollout and rollout[1] != trains:
            s.notes += (f"--rollout-num-gpus {rollout[1]}: --colocate sets it to {trains}",)
    elif rollout:
        recipe.gpus(trains, rollout[1], False, f"{origin}, --rollout-num-gpus")
        _pipeline(recipe, s)
    else:
        raise RFabricError(
            f"{s.file}: neither --colocate nor --rollout-num-gpus is set; one must say where "
            "rollouts run"
        )
    servers = s.number("num-gpus-per-node") or (
        ("actor-num-gpus-per-node", each[1])
        if colocated or each[1] > _NODE
        else ("num-gpus-per-node, by default", _NODE)
    )
    recipe.put("cluster.gpus_per_server", servers[1], f"--{servers[0]}")


_LESS_PROMPT = "--rollout-max-context-len less the prompt"
_NODE = 8  # GPUs of a node, slime's --num-gpus-per-node by default


def _pipeline(recipe: SourcedValues, s: JobSettings) -> None:
    """Of GPUs of their own: how far generation runs ahead."""
    function = str(s.value("rollout-function-path", default=""))
    if "fully_async" in function:
        recipe.behind(
            1, "a batch of prompts is always under way", f"--rollout-function-path {function}"
        )
        recipe.put("generation.concurrent", s.value("rollout-batch-size"), "--rollout-batch-size")
    elif any(word.endswith("train_async.py") for word in s.words):
        recipe.put("pipeline", "one-step-off", "train_async.py")
    else:
        recipe.put("pipeline", "sync", "train.py")


def _generation(recipe: SourcedValues, s: JobSettings) -> None:
    recipe.engine = "sglang"
    recipe.take("generation.tp", "rollout-num-gpus-per-engine", default=1)
    recipe.take("generation.batch", "rollout-batch-size")
    recipe.take("generation.group_size", "n-samples-per-prompt", default=1)
    if s.find(filtered := "dynamic-sampling-filter-path"):
        recipe.rolled_out(f"--{filtered}", 0)
    response = recipe.take("generation.max_response", "rollout-max-response-len", default=1024)
    context = s.number("rollout-max-context-len")
    prompt = s.number("rollout-max-prompt-len")
    if prompt:
        recipe.put("generation.max_prompt", prompt[1], "--rollout-max-prompt-len")
        if context and prompt[1] < context[1] < prompt[1] + response:
            recipe.put("generation.max_response", context[1] - prompt[1], _LESS_PROMPT)
    elif context and context[1] > response:
        recipe.put(
            "generation.max_prompt",
            context[1] - response,
            "--rollout-max-context-len less the response",
        )
    elif context and context[1] > 1:
        longest = min(2048, context[1] // 2)
        recipe.assume("generation.max_prompt", longest, "no flag bounds the prompt")
        recipe.put("generation.max_response", context[1] - longest, _LESS_PROMPT)
    else:
        budget, cp = s.number("max-tokens-per-gpu"), s.number("context-parallel-size") or ("", 1)
        packed = budget and s.find("use-dynamic-batch-size")
        left = budget[1] * cp[1] - response if packed else 2048
        recipe.assume(
            "generation.max_prompt",
            min(2048, left) if left > 0 else 2048,
            "no flag bounds the prompt",
        )
    recipe.take(
        "generation.memory_utilisation",
        "sglang-mem-fraction-static",
        default=0.9,
        why="SGLang's usual share",
    )
    _sequences_at_once(recipe, s)
    if servers := s.number("prefill-num-servers"):
        recipe.prefill(servers[1] * recipe.values["generation.tp"], f"--{servers[0]}")


def _sequences_at_once(recipe: SourcedValues, s: JobSettings) -> None:
    """Responses that an engine decodes together: what its server takes, and no more than slime asks
    of all engines at once, so many of each (GenerateState in slime/rollout/sglang_rollout.py).
    """
    asked = recipe.above_zero("sglang-server-concurrency")
    said = [way for way in (s.number("sglang-max-running-requests"), asked) if way]
    least = min(said, key=lambda way: way[1], default=("", math.inf))
    if asked or least[1] <= _ASKED:
        recipe.put("generation.max_num_seqs", least[1], f"--{least[0]}")
    else:
        why = "slime asks an engine for so many at once; sglang-server-concurrency is not set"
        recipe.assume("generation.max_num_seqs", _ASKED, why)


_ASKED = 512  # of each engine at once, slime's --sglang-server-concurrency by default


def _training(recipe: SourcedValues, s: JobSettings) -> None:
    recipe.parallel("", "-")
    budget, sequences = s.number("max-tokens-per-gpu"), s.number("micro-batch-size")
    if budget and s.find("use-dynamic-batch-size"):
        recipe.micro_batch(budget[1], "--max-tokens-per-gpu")
    else:
        recipe.whole_sequences((sequences or ("", 1))[1], "--micro-batch-size")
    _updates(recipe, s)
    reference = bool(s.find("use-kl-loss")) or bool(s.number("kl-coef") and s.number("kl-coef")[1])
    own, again = s.find("use-rollout-logprobs"), s.find("get-mismatch-metrics")
    recipe.log_probs(reference, engines="--use-rollout-logprobs" if own and not again else "")
    if budget and s.find("use-dynamic-batch-size"):
        recipe.log_prob_micro_batch(s.number("log-probs-max-tokens-per-gpu"), None)
    if s.value("train-backend") == "fsdp":
        recipe.put("training.optimizer", "sharded", "--train-backend fsdp")
    if s.value("qkv-format") == "bshd":
        note = "up to the longest sequence of a step on each rank; here of an update on all"
        recipe.padding("mini-batch", "--qkv-format bshd", note)
    _recompute(recipe, s)
    _gradients(recipe, s)


def _updates(recipe: SourcedValues, s: JobSettings) -> None:
    """Optimizer updates (RolloutManager in slime/ray/rollout.py)."""
    steps, size = s.number("num-steps-per-rollout"), s.number("global-batch-size")
    samples = recipe.samples
    if steps and steps[1]:
        recipe.whole_batches(samples // steps[1], "--num-steps-per-rollout", "slime")
    else:
        each = size[1] if size else samples
        recipe.whole_batches(each, "samples of a rollout / --global-batch-size", "slime")


def _recompute(recipe: SourcedValues, s: JobSettings) -> None:
    """FSDP's checkpoints, or Megatron's granularity, for which --recompute-activations is another
    word: selective.
    """
    said = {
        "--gradient-checkpointing": s.find("gradient-checkpointing") and "full",
        "--recompute-granularity": s.value("recompute-granularity"),
        "--recompute-activations": s.find("recompute-activations") and "selective",
    }
    key = next((key for key, mode in said.items() if mode), "--recompute-granularity")
    recipe.recompute(said[key] == "full", key, bool(said[key]))


def _gradients(recipe: SourcedValues, s: JobSettings) -> None:
    """Sent in FP32 beside BF16 weights, as Megatron-LM and slime's FSDP have it unless told."""
    s.find("accumulate-allreduce-grads-in-fp32")
    short = s.find("grad-reduce-in-bf16")
    if short or s.value("main-grads-dtype") == "bf16":
        recipe.put(
            "training.grad_dtype",
            "bf16",
            f"--{'grad-reduce-in-bf16' if short else 'main-grads-dtype'}",
        )
    else:
        recipe.put("training.grad_dtype", "fp32", "by default beside BF16 weights")

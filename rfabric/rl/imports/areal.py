"""AReaL: the YAML file of an experiment.

GPUs are told by backends, `sglang:d4p1t2` for generation and `megatron:(attn:d4p4t2|ffn:d2p4e4)`
for training (d data, p pipeline, t tensor, c context, e expert parallel), or by one older
`allocation_mode` that joins both with + (GPUs of their own) or | (the same GPUs). Defaults are
those of AReaL's own arguments (areal/api/cli_args.py of AReaL 1.0.4).
"""

import re
from dataclasses import dataclass
from math import prod

from ...errors import RFabricError
from .approximations import MORE_TURNS
from .settings import JobSettings, shown
from .sourced_values import SourcedValues

NO_EFFECT = """
    experiment_name trial_name seed fileroot tokenizer_path scheduler. scheduling_ name_resolve
    optimizer. eps_clip reward_ adv_norm temperature top_p top_k greedy valid_dataset saver.
    recover. evaluator. stats_logger. perf_tracer. total_train tracing dump_to_file shuffle
    num_workers pin_memory drop_last dropout init_from_scratch dtype rejection_sampling
    min_new_tokens path type
    log_ random_seed skip_tokenizer econfig. timeout retries
    discount gae_lambda kl_ parser workflow queue_size stop_token lora_alpha lora_name peft_type
    enable_lora max_lora_rank rollout.use_lora
"""
# Which setting of an engine says how much is recomputed, and what it is by default.
_AGAIN = {
    "megatron": ("actor.megatron.recompute_granularity", "full"),
    "archon": ("actor.archon.ac_mode", "selective"),
}
_OLD_POLICY = ("actor.use_decoupled_loss", "actor.recompute_logprob")  # the former implies it
# What settings were called until AReaL 0.3 (training/main_async_ppo.py), and are today.
_RENAMED = {
    "n_nodes": "cluster.n_nodes",
    "n_gpus_per_node": "cluster.n_gpus_per_node",
    "max_head_offpolicyness": "rollout.max_head_offpolicyness",
    "max_concurrent_rollouts": "rollout.max_concurrent_rollouts",
    "dataset.train_bs_n_seqs": "train_dataset.batch_size",
    "dataset.max_prompt_len": "train_dataset.max_length",
    "group_size": "gconfig.n_samples",
    "ppo.gen.max_new_tokens": "gconfig.max_new_tokens",
    "actor_train.mb_spec.max_tokens_per_mb": "actor.mb_spec.max_tokens_per_mb",
    "actor.sglang.mem_fraction_static": "sglang.mem_fraction_static",
    "actor.sglang.max_running_requests": "sglang.max_running_requests",
} | {
    f"ppo.{key}": f"actor.{key}"
    for key in ("ppo_n_minibatches", "kl_ctl", "recompute_logprob", "use_decoupled_loss")
}
_BACKEND = re.compile(
    r"(?:(?P<engine>[a-z_]+)(?:\[\w+\])?[:.])?(?P<sizes>\(.*\)|[dptmces\d]+)", re.DOTALL
)
# m, model parallel, is what the oldest allocation modes call tensor parallel
_WAYS = {"d": "data", "p": "pipeline", "t": "tensor", "m": "tensor", "e": "expert"}
_WAYS |= {"c": "context", "s": "context"}


@dataclass(frozen=True)
class Backend:
    """An engine and how many ways it is parallel; `cut`: the ways in which each expert is cut."""

    engine: str
    data: int = 1
    pipeline: int = 1
    tensor: int = 1
    context: int = 1
    expert: int = 1
    cut: int = 1

    @property
    def trainer(self) -> str:
        """The engine that trains: the one named, else AReaL's choice by what it must split."""
        return self.engine or ("megatron" if self.pipeline * self.expert > 1 else "fsdp")

    @property
    def gpus(self) -> int:
        """GPUs of all its replicas; experts stand inside the others."""
        return self.data * self.pipeline * self.tensor * self.context


def read_backend(text: str, where: str) -> Backend:
    """The backend that `sglang:d4p1t1` means; RFabricError where it means none.

    >>> read_backend("megatron:(attn:d4p4t2|ffn:d2p4e4)", "actor.backend").gpus
    32
    """
    whole = _BACKEND.fullmatch(_bracketed(str(text).strip()))
    if whole is None:
        raise RFabricError(f"{where}: {shown(text)} is no backend; write for example sglang:d4p1t1")
    engine = whole["engine"] or ("megatron" if "m" in whole["sizes"] else "")  # the oldest's
    parts = dict(
        part.partition(":")[::2] if ":" in part else ("attn", part)
        for part in whole["sizes"].strip("()").split("|")
    )
    ways = _ways(parts.get("attn", ""), where)
    experts = _ways(parts.get("ffn", ""), where)
    own = {"expert": experts["expert"]} if "expert" in experts else {}
    return Backend(engine, **ways | own, cut=experts.get("tensor", 1))


def _ways(text: str, where: str) -> dict[str, int]:
    pairs = re.findall(r"([dptmces])(\d{1,6})", text)
    if (
        "".join(letter + number for letter, number in pairs) != text
        or prod(int(number) for _, number in pairs) < 1
    ):
        raise RFabricError(f"{where}: {shown(text)} is no parallelism; write for example d4p1t2")
    return {_WAYS[letter]: int(number) for letter, number in pairs}


def fill(recipe: SourcedValues, s: JobSettings) -> None:
    """Put the job's settings into the recipe's keys."""
    old = _rename(s)
    model = s.find("actor.path", "model.path")
    recipe.put("model", str(model[1]) if model else "", model[0] if model else "")
    generation, training, colocated = _backends(s)
    _drop_idle(s, generation, training)
    _cluster(recipe, s, generation, training, colocated)
    _generation(recipe, s, generation)
    _training(recipe, s, training)
    _recompute(recipe, s, training.trainer, old)
    _log_prob_passes(recipe, s, old)
    off = "ppo.disable_value"  # of AReaL 0.3, whose files have the section in any case
    if any(key.startswith("critic.") for key in s.values) and not (s.find(off) and s.flag(off)):
        s.values.setdefault("critic.is_critic", True)  # a section is enough; `effects` adds it
    if s.find("teacher.path", "teacher.backend"):
        s.notes += ("teacher: its passes, and GPUs of its own, are not modelled",)
    recipe.put("weight_sync.strategy", "flat", "AReaL: every inference engine gets its own copy")


def _rename(s: JobSettings) -> bool:
    """Call the settings of older jobs as they are called today; whether there were any."""
    old = [key for key in _RENAMED if key in s.values and _RENAMED[key] not in s.values]
    for held in (s.values, s.environment):
        held |= {_RENAMED[key]: held.pop(key) for key in old if key in held}  # type: ignore
    if old:
        said = ", ".join(f"{key}: {_RENAMED[key]}" for key in old)
        s.notes += (f"names of AReaL 0.3, by those of today: {said}",)
    return bool(old)


def _backends(s: JobSettings) -> tuple[Backend, Backend, bool]:
    """The backends of generation and training, and whether they share GPUs."""
    mode = s.value("allocation_mode")
    if isinstance(mode, str) and mode:
        return _allocated(mode, f"{s.file}: allocation_mode")
    rollout, actor = s.find("rollout.backend"), s.find("actor.backend")
    if rollout is None or actor is None:
        lacks = "rollout.backend" if rollout is None else "actor.backend"
        raise RFabricError(
            f"{s.file}: {lacks} is not set: the job generates no responses or trains nothing (SFT, "
            "DPO and reward models do not), and a recipe is a step that does both"
        )
    shared = s.value("rollout.scheduling_strategy.target") == "actor" or (
        s.value("actor.scheduling_strategy.target") == "rollout"
    )
    return (
        read_backend(rollout[1], f"{s.file}: {rollout[0]}"),
        read_backend(actor[1], f"{s.file}: {actor[0]}"),
        shared,
    )


def _allocated(mode: str, where: str) -> tuple[Backend, Backend, bool]:
    """The backends that an allocation mode joins: + by GPUs of their own, | on the same ones."""
    pools = [_split(r"\|", pool) for pool in _split(r"\+", _bracketed(mode))]
    parts = [part for pool in pools for part in pool]
    if len(parts) < 2:
        raise RFabricError(f"{where}: {shown(mode)} generates nothing; a recipe needs both")
    if parts[1] in ("eval", "cpu"):
        raise RFabricError(f"{where}: {shown(mode)} trains nothing; a recipe needs both")
    rollout = next((part for part in parts if re.match("sglang|vllm", part)), parts[0])
    at = next(pool for pool in pools if rollout in pool)
    apart = [part for pool in pools if pool is not at for part in pool]
    others = apart + [part for part in at if part is not rollout]
    actor = next((part for part in others if "[actor]" in part), others[0])
    if len(pools) > 1 + (actor in apart):
        raise RFabricError(
            f"{where}: {shown(mode)} has {len(pools)} parts with GPUs of their own; a recipe has "
            "generation and training, no critic or reference on GPUs of its own"
        )
    return read_backend(rollout, where), read_backend(actor, where), actor not in apart


def _bracketed(mode: str) -> str:
    """A mode whose attention and experts, which may stand without, are in brackets."""
    return re.sub(r"(?<![(\w])attn:\w+\s*\|\s*ffn:\w+", r"(\g<0>)", mode)


def _split(sign: str, mode: str) -> list[str]:
    """The parts of a mode at a sign outside brackets."""
    return [part.strip() for part in re.split(sign + r"(?![^(]*\))", mode)]


def _drop_idle(s: JobSettings, generation: Backend, training: Backend) -> None:
    """Forget the sections of engines that the job does not use: most files have them all."""
    for engine in {"megatron", "archon", "fsdp"} - {training.trainer}:
        s.drop(f"actor.{engine}.")
    s.drop("sglang." if generation.engine == "vllm" else "vllm.")


def _cluster(
    recipe: SourcedValues, s: JobSettings, generation: Backend, training: Backend, colocated: bool
) -> None:
    origin = "allocation_mode" if "allocation_mode" in s.used & set(s.values) else "backends"
    recipe.gpus(training.gpus, generation.gpus, colocated, origin)
    recipe.take("cluster.gpus_per_server", "cluster.n_gpus_per_node", default=8)
    _check_size(recipe, s, origin)
    key = "rollout.max_head_offpolicyness"
    age = s.number(key) or (key, 0)
    if colocated:
        recipe.put("pipeline", "sync", "the same GPUs generate and train, in turn")
    elif s.find(key) is None:
        recipe.assume("pipeline", "sync", f"the framework's default; {key} is not set")
    elif not age[1]:
        recipe.put("pipeline", "sync", f"{key} = 0")
    else:
        recipe.behind(age[1], age[0], "AReaL: responses are interrupted, and go on")


def _check_size(recipe: SourcedValues, s: JobSettings, origin: str) -> None:
    """A note where the backends stand on more GPUs than the cluster is said to have, or on less."""
    nodes, v = s.number("cluster.n_nodes"), recipe.values
    has = nodes[1] * v["cluster.gpus_per_server"] if nodes else 0
    pools = 1 if "placement" in v else 2
    needs = sum((v["cluster.training_gpus"], v["cluster.generation_gpus"])[:pools])
    if 0 < has < needs:
        s.notes += (
            f"{origin}: {needs} GPUs, though cluster.n_nodes x cluster.n_gpus_per_node is {has}; "
            f"the {needs} are taken",
        )
    elif needs < has:
        s.notes += (
            f"{origin}: {needs} GPUs of the {has} of cluster.n_nodes x cluster.n_gpus_per_node; "
            "the others stand idle, and are not counted here",
        )


def _generation(recipe: SourcedValues, s: JobSettings, backend: Backend) -> None:
    recipe.put("generation.tp", backend.tensor * backend.pipeline, "the backend's t x p")
    recipe.take("generation.batch", "train_dataset.batch_size", "rollout.consumer_batch_size")
    recipe.take("generation.group_size", "gconfig.n_samples", default=1)
    if s.flag("actor.dynamic_sampling"):
        recipe.rolled_out("actor.dynamic_sampling", 0)
    most, batch = "rollout.max_concurrent_rollouts", recipe.values["generation.batch"]
    recipe.take("generation.concurrent", most, default=batch, why="consumer_batch_size, by default")
    response = recipe.take("generation.max_response", "gconfig.max_new_tokens", default=16384)
    prompt = recipe.take("generation.max_prompt", "train_dataset.max_length", default=1024)
    total = s.number("gconfig.max_tokens")
    if total and prompt < total[1] < prompt + response:
        recipe.put("generation.max_response", total[1] - prompt, f"{total[0]} less the prompt")
    _trajectories(recipe, s, response + prompt)
    recipe.engine = engine = "vllm" if backend.engine == "vllm" else "sglang"
    recipe.bounded(f"{engine}.{'max_model_len' if engine == 'vllm' else 'context_length'}")
    share = "gpu_memory_utilization" if engine == "vllm" else "mem_fraction_static"
    recipe.take("generation.memory_utilisation", f"{engine}.{share}", default=0.9)
    most = "generation.max_num_seqs"
    if engine == "vllm":
        recipe.take(most, "vllm.max_num_seqs", default=256)
    else:
        why = "SGLang fits it to memory"
        recipe.take(most, "sglang.max_running_requests", default=1024, why=why)


def _trajectories(recipe: SourcedValues, s: JobSettings, one_turn: int) -> None:
    """What agents' own settings say: trajectories of a prompt, tokens of all turns of one."""
    each, whole = s.number("n_trajs"), s.number("max_tokens_per_trajectory")
    if each and each[1] > 1:
        group = recipe.values["generation.group_size"] * each[1]
        recipe.put("generation.group_size", group, f"gconfig.n_samples x {each[0]}")
    if whole and whole[1] > one_turn:
        rest = whole[1] - recipe.values["generation.max_prompt"]
        recipe.put("generation.max_response", rest, f"{whole[0]} less the prompt")
    turns = s.find("econfig.max_steps", "rollout.agent.mode", "rollout.openai.mode")
    if turns:
        s.notes += (f"{turns[0]} = {turns[1]}: {MORE_TURNS}",)


def _training(recipe: SourcedValues, s: JobSettings, backend: Backend) -> None:
    origin = "actor.backend"
    for key, ways in (
        ("tp", backend.tensor),
        ("pp", backend.pipeline),
        ("cp", backend.context),
        ("ep", backend.expert),
    ):
        recipe.put(f"training.{key}", ways, origin)
    if backend.cut > 1:
        recipe.put("training.etp", backend.cut, f"{origin}, ffn:t{backend.cut}")
    if backend.trainer != "megatron":
        recipe.put("training.optimizer", "sharded", f"{backend.trainer}: FSDP2")
        if backend.context > 1:
            recipe.put("training.context_exchange", "ulysses", f"{backend.trainer}: Ulysses")
    budget = s.number("actor.mb_spec.max_tokens_per_mb")
    if budget:
        recipe.micro_batch(-(-budget[1] // backend.context), f"{budget[0]} / cp")
    else:
        why = "one sequence at a time; actor.mb_spec.max_tokens_per_mb is not set, and AReaL takes "
        why += "all of an update at once, or in mb_spec.n_mbs parts"
        recipe.assume("training.micro_batch_tokens", recipe.longest, why)
    recipe.take("training.mini_batches", "actor.ppo_n_minibatches", default=4)
    if s.find("actor.optimizer.offload") and s.flag("actor.optimizer.offload"):
        recipe.put("training.host_optimizer", True, "actor.optimizer.offload")
    on = s.find("actor.use_lora") is not None and s.flag("actor.use_lora")
    recipe.adapters("actor.use_lora", on, "actor.lora_rank", default=32)


def _recompute(recipe: SourcedValues, s: JobSettings, trainer: str, old: bool) -> None:
    """What is computed again in the backward pass: nothing unless asked for, which `old` jobs do
    by default; else as much as the engine's own section says.
    """
    switch = "actor.gradient_checkpointing"
    key, usual = _AGAIN.get(trainer, (f"actor.{trainer}.recompute_granularity", "full"))
    on, mode = s.find(switch), s.value(key)
    again = (s.flag(switch) if on else old) and (mode or usual)
    full = again == "full"
    if again and trainer == "archon" and again not in ("full", "none"):
        recipe.recompute_some(f"{key} = {again}")
    else:
        recipe.recompute(full, f"{switch}, {key}" if mode else switch, bool(on or mode))


def _log_prob_passes(recipe: SourcedValues, s: JobSettings, old: bool) -> None:
    """The old policy's where it is asked for, else the engine's own log-probs serve; the
    reference's where there is one and a KL penalty, 0.1 by default.
    """
    decoupled, again = (bool(s.find(key)) and s.flag(key) for key in _OLD_POLICY)
    line = s.value("actor.prox_logp_method") == "loglinear"
    again = not line if decoupled else again
    penalty = s.number("actor.kl_ctl") or ("", 0.1)
    there = old or any(key.startswith("ref.") for key in s.values)
    reference = bool(penalty[1]) and there
    said = ["old policy"] * again + ["reference policy (kl_ctl)"] * reference
    none = f"neither {' nor '.join(_OLD_POLICY)} is on"
    none = "actor.prox_logp_method = loglinear" if decoupled and line else none
    passes = " and ".join(said) or none
    recipe.put("training.log_prob_passes", len(said), passes)

"""What generates in a verl job: how much an engine takes at once, what is said in its own words,
and engines for prompts.
"""

import re

from .settings import JobSettings
from .sourced_values import SourcedValues

ROLLOUT = "actor_rollout_ref.rollout"


def put_engines(recipe: SourcedValues, s: JobSettings) -> None:
    """What engines take at once, as verl or they themselves have it, and which read prompts."""
    _sequences_at_once(recipe, s)
    _own_words(recipe, s)
    _prefill(recipe, s)


def _prefill(recipe: SourcedValues, s: JobSettings) -> None:
    """Engines for prompts: so many of each replica, whose others decode, all as wide (per_replica
    in verl/workers/rollout/vllm_rollout/vllm_rollout.py).
    """
    section = f"{ROLLOUT}.disaggregation"
    if not (s.find(switch := f"{section}.enabled") and s.flag(switch)):
        return
    reads, decodes = (
        (s.number(f"{section}.{kind}_replicas") or ("", 1))[1] for kind in ("prefill", "decode")
    )
    tp, whole = recipe.values["generation.tp"], recipe.values["cluster.generation_gpus"]
    wide = s.number(f"{section}.decode_tensor_model_parallel_size") or ("", tp)
    replicas, rest = divmod(whole, tp * (reads + decodes))
    recipe.prefill(0 if rest or wide[1] != tp else replicas * reads * tp, switch)


def _sequences_at_once(recipe: SourcedValues, s: JobSettings) -> None:
    """Responses that an engine decodes together: 1024 by default, but 256 since verl 0.9, which a
    job's words tell from those of long before it alone.
    """
    late = next((k for k in (*s.values, *s.words) if _LATE.match(k.replace("/", "."))), "")
    new = f"verl 0.9's default, 1024 before; {late} is of 0.8 or later"
    usual, why = (256, new) if late else (1024, "the framework's default")
    recipe.take("generation.max_num_seqs", f"{ROLLOUT}.max_num_seqs", default=usual, why=why)


def _own_words(recipe: SourcedValues, s: JobSettings) -> None:
    """What is said in the engine's own words, which verl's servers take above its settings."""
    recipe.engine = engine = str(s.values.get(f"{ROLLOUT}.name", ""))
    for key, word in _ENGINES.get(engine, {}).items():
        if own := s.number(f"{ROLLOUT}.engine_kwargs.{engine}.{word}"):
            recipe.put(key, *own[::-1])


_ENGINES = {
    engine: {"generation.max_num_seqs": at_once, "generation.memory_utilisation": share}
    for engine, at_once, share in (
        ("vllm", "max_num_seqs", "gpu_memory_utilization"),
        ("sglang", "max_running_requests", "mem_fraction_static"),
    )
} | {"trtllm": {"generation.max_num_seqs": "max_batch_size"}}
_LATE = re.compile(r"model_engine$|reward\.|distillation\.|trainer\.(use_)?v1|verl\.experimental\.")

"""How far generation runs ahead of the training in a verl job, by the trainer that runs it: verl's
own, one step off, or fully asynchronous (verl/experimental of verl 0.9.1).
"""

from .settings import JobSettings
from .sourced_values import SourcedValues
from .verl_rollout import ROLLOUT

MODE = "trainer.v1.trainer_mode"
_HYBRID = "trainer.v1.separate_async.hybrid_rollout"
_DYNAMIC = "async_training.use_dynamic_resource_scheduling"


def streams(s: JobSettings) -> bool:
    """Whether verl's fully asynchronous trainer runs the job."""
    return bool(entry(s, "fully_async")) or any(
        key.startswith("async_training.") for key in s.values
    )


def entry(s: JobSettings, trainer: str) -> str:
    """What names this trainer beside the usual one: the module that starts, by name or as a file,
    or its configuration; else empty.
    """
    named = (*s.words, str(s.values.get("config-name", "")))
    return next((word for word in named if trainer in word.replace("/", ".")), "")


def _separate(recipe: SourcedValues, s: JobSettings) -> None:
    """verl 0.9's trainer beside GPUs that generate: so many batches are begun ahead, and go on over
    weight updates.
    """
    key = "trainer.v1.separate_async.num_warmup_batches"
    s.find("trainer.v1.separate_async.parameter_sync_step")  # of mini-batches: a whole batch
    ahead = s.number(key) or (f"{key}, by default", 1)
    if ahead[1]:
        recipe.behind(ahead[1], ahead[0], f"{MODE} = separate_async")
    else:
        recipe.put("pipeline", "sync", f"{key} = 0")
    hybrid, switch = "actor_rollout_ref.hybrid_engine", f"{_HYBRID}.enable_switch"
    if s.flag(switch) and (s.find(hybrid) is None or s.flag(hybrid)):
        s.notes += (f"{switch}: GPUs that train generate too while they wait; here they do not",)


def put_pipeline(recipe: SourcedValues, s: JobSettings) -> None:
    """How far ahead GPUs that only generate are."""
    if s.value(MODE) == "separate_async":
        _separate(recipe, s)
        return
    if s.flag(_DYNAMIC):
        s.notes += (f"{_DYNAMIC}: GPUs that train generate too while they wait; here they do not",)
    staleness = s.number("async_training.staleness_threshold")
    if staleness is None and not streams(s):
        recipe.put(
            "pipeline", "one-step-off", "rollout.nnodes: GPUs of its own, without async_training"
        )
        return
    staleness = staleness or ("async_training.staleness_threshold, by default", 0.1)
    if staleness[1]:
        key = "async_training.partial_rollout"  # on by default
        on = s.find(key) is None or s.flag(key)
        recipe.behind(staleness[1], f"{staleness[0]}, of a step's batch", key if on else "")
    else:
        recipe.put("pipeline", "sync", f"{staleness[0]} = 0")


def note_turns(s: JobSettings) -> None:
    """That generation and training on the same GPUs take turns, where the trainer would not wait:
    0.9's colocate_async, and the fully asynchronous one without GPUs that only generate.
    """
    said = f"{MODE} = colocate_async" * (s.value(MODE) == "colocate_async")
    if said := said or f"{_DYNAMIC}, rollout.nnodes = 0" * (streams(s) and s.flag(_DYNAMIC)):
        s.notes += (
            f"{said}: on the same GPUs generation and training take turns; that responses go on in "
            "the next step is not modelled",
        )


def put_under_way(recipe: SourcedValues, s: JobSettings) -> None:
    """Prompts whose responses are under way at once in a fully asynchronous job: so many for each
    replica, and no more than may be begun before the next weights (set_max_required_samples in
    verl/experimental/fully_async_policy/fully_async_rollouter.py).
    """
    key, v = "async_training.concurrent_samples_per_replica", recipe.values
    said, copies = recipe.above_zero(key), recipe.above_zero(f"{ROLLOUT}.data_parallel_size")
    replicas = v["cluster.generation_gpus"] // (v["generation.tp"] * (copies or ("", 1))[1])
    begun = int(v["generation.batch"] * (1 + v.get("staleness", 0)))
    most = int(max(1, min(replicas * (said or (key, _A_REPLICA))[1], begun)))
    if said:
        recipe.put("generation.concurrent", most, f"{key} x {replicas} replicas")
    else:
        why = f"{_A_REPLICA} prompts for each of {replicas} replicas, verl's default"
        recipe.assume("generation.concurrent", most, f"{why}; {key} is not set")


_A_REPLICA = 16  # prompts under way, also before there was a key for it

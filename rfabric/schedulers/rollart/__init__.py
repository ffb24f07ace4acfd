"""RollArt (arXiv 2512.22560, OSDI'26) as a compute scheduler: tasks on the GPUs that suit them,
trajectories one by one.

    get_batch -> suspend -> update -> resume -> recompute the KV of what is in flight -> train,
    beside the next rollouts

    affinity   prefill-heavy tasks on GPUs of many FLOP/s, decode-heavy ones on GPUs of much HBM
               rate per dollar; another
               pool where the own one has no room
    rollouts   each trajectory on its own: turns, environments of any latency, failures;
               `redundancy` begins more of a group
    reward     serverless: at once; or on GPUs of its own
    staleness  a trajectory in the buffer began `alpha` weight updates ago at most; older ones are
               aborted
    weights    pushed once, bucket by bucket, to a store on the generation side, pulled while
               engines go on (relay): only
               what engines load is exposed

    rfabric timeline --policy rollart,alpha=2 --traffic grpo-64
    --policy rollart,tasks=FrozenLake/GEM-Math,decode_gpu=H20,decode_gpus=8

Without `tasks` the recipe is its own task: its lengths, turns and environment. What is played:
`trajectories` of `tasks` on `engines`, by `rules`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...compute.serving import ReplicaTime
from ...compute.sync_time import UNPACK
from ...errors import RFabricError
from ...rl.lowering import trace_of_steps
from ...rl.phases import Generated, Step, Trained, trained_on
from ...rl.plan import plan_of_steps, weight_sync_comm
from ...rl.popularity import routing
from ...rl.weight_sync import software_seconds, sync_bytes
from ...rl.workload import Workload
from ..base import (
    Scheduled,
    refuse_cpu_servers,
    refuse_dropped,
    refuse_unlike_replicas,
    settings_of,
    spans_of,
)
from .engines import Pool
from .pools import affinity, pools_of, with_affinity
from .recipe import RecipeTrajectories
from .rules import Iteration, RolloutOutcome, RolloutRules
from .tasks import TASKS, Episode, Task, draw, named_tasks
from .trajectories import play
from .weights import transfer

__all__ = [
    "RollartSettings",
    "TASKS",
    "affinity",
    "mixed",
    "named_tasks",
    "schedule",
    "transfer",
    "with_affinity",
]


@dataclass(frozen=True)
class RollartSettings:
    """What `rollart,KEY=VALUE` may say; `reward_gpus` 0: serverless; the last `decode_gpus`
    generate on `decode_gpu`.
    """

    alpha: float = 1
    redundancy: float = 1.0
    spread_s: float = 0.0
    reset_s: float = 0.0
    failure: float = 0.0
    repair_s: float = 0.0
    reward_s: float = 0.0
    reward_gpus: float = 0
    decode_gpus: float = 0


def schedule(w: Workload, seed: int, settings: Mapping[str, str]) -> Scheduled:
    """The job as RollArt runs it: trajectories bounded in staleness, weights through a store.

    RFabricError for a job whose pools are one, for unknown tasks or GPUs, for settings out of
    bounds.
    """
    words = {key: settings[key] for key in ("tasks", "decode_gpu") if key in settings}
    s = settings_of(
        "rollart", RollartSettings(), {k: v for k, v in settings.items() if k not in words}
    )
    alpha, decode_gpus, reward_gpus = (
        _whole(s, key) for key in ("alpha", "decode_gpus", "reward_gpus")
    )
    refuse_unlike_replicas("rollart", w)
    refuse_dropped("rollart", w)
    if w.colocated:
        raise RFabricError(
            "scheduler rollart needs pools of its own for either side; use placement disaggregated"
        )
    if "tasks" in words:  # whose turns are not the recipe's
        refuse_cpu_servers("rollart with tasks", w)
    store = replace(w.weight_sync, strategy="relay")
    w = replace(w, pipeline="async", staleness=alpha, weight_sync=store)
    tasks = named_tasks(words["tasks"]) if "tasks" in words else [_own_task(w, s)]
    pools = pools_of(w, tasks, words.get("decode_gpu"), decode_gpus)
    load = sync_bytes(w) / UNPACK
    rules = RolloutRules(
        w.generation.responses,
        w.generation.group_size,
        parallel=True,
        continuous=True,
        redundancy=s.redundancy,
        staleness=alpha,
        suspended=load,
        transfer=max(0.0, weight_sync_comm(w) + software_seconds(w) - load),
        reward_slots=reward_gpus or None,
    )
    episodes = mixed(tasks, seed, w.generation.longest, rules)
    if "tasks" not in words:
        episodes = RecipeTrajectories(w, tasks[0], seed, rules.members).episode
    return _scheduled(w, pools, episodes, rules, seed)


def _scheduled(w: Workload, pools, episodes, rules: RolloutRules, seed: int) -> Scheduled:
    trained: list[Trained] = []

    def train(batch: Sequence[Episode]) -> float:
        """Seconds of training on a batch; what it was is kept for its step."""
        lengths = np.array([e.tokens for e in batch], dtype=float)
        trained.append(trained_on(w, lengths, routing(w, seed, len(trained))))
        return trained[-1].seconds(w.training.buckets)

    played = play(pools, episodes, train, rules, w.steps)
    steps = [_step(w, it, trained[i], played, rules) for i, it in enumerate(played.iterations)]
    plan = plan_of_steps(w, steps)
    trace = trace_of_steps(w, steps, plan, seed)
    return Scheduled(
        w, tuple(steps), plan, trace, spans_of(w, steps, plan), _facts(played, pools, rules)
    )


def _whole(s: RollartSettings, key: str) -> int:
    value = getattr(s, key)
    least = 1 if key == "alpha" else 0
    if value != int(value) or value < least:
        raise RFabricError(
            f"scheduler rollart: {key}={value:g} must be a whole number, {least} or more"
        )
    return int(value)


def mixed(
    tasks: Sequence[Task], seed: int, longest: int, rules: RolloutRules
) -> Callable[[int], Episode]:
    """Trajectories of all tasks, groups of environments dealt to tasks in turn."""

    def episode(number: int) -> Episode:
        """Trajectory `number`, of its group's task."""
        task = tasks[number // rules.members % rules.slots % len(tasks)]
        return draw(task, number, seed, longest, rules.members)

    return episode


def _own_task(w: Workload, s: RollartSettings) -> Task:
    """The recipe's own task: its lengths are drawn by `phases.responses`, so only the environment
    is said here.
    """
    g = w.generation
    return Task(
        w.name,
        (1, g.turns),
        1,
        1,
        0,
        g.observation,
        g.environment_latency,
        s.spread_s,
        s.reset_s,
        s.failure,
        s.repair_s,
        s.reward_s,
    )


def _step(
    w: Workload, it: Iteration, trained: Trained, played: RolloutOutcome, rules: RolloutRules
) -> Step:
    """A batch as a step of `phases`: by the engine that made it, and what engines did since the
    batch before.
    """
    by_engine: list[list[Episode]] = [[] for _ in w.replicas]
    for who in it.batch:
        by_engine[who.engine].append(who.episode)
    prompts = [np.array([e.prompt for e in part], dtype=np.int64) for part in by_engine]
    outputs = [np.array([e.response for e in part], dtype=np.int64) for part in by_engine]
    before = played.iterations[it.number - 1].ready if it.number else 0.0
    seconds = max(0.0, it.ready - it.began) + (rules.suspended if it.number else 0.0)
    share = min(1.0, seconds / (it.ready - before)) if it.ready > before else 0.0
    times = [
        ReplicaTime(a * share, b * share, peak, max(0.0, seconds - (a + b) * share))
        for (a, b), peak in zip(it.busy, played.peak_tokens, strict=True)
    ]
    return Step(it.number, Generated(prompts, outputs, times), trained)


def _facts(played: RolloutOutcome, pools: Sequence[Pool], rules: RolloutRules) -> dict:
    counts = played.counts
    began = sum(counts.values())
    return {
        "staleness": rules.staleness,
        "stale_max": max(max(it.stale) for it in played.iterations),
        "environments": rules.environments,
        "trajectories": began,
        **{f"trajectories_{name}": count for name, count in counts.items()},
        "suspended_s": rules.suspended,
        "transfer_s": rules.transfer,
        "pools": {f"{pool.name}-{i}": pool.gpus for i, pool in enumerate(pools)},
    }

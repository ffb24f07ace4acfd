"""RollArt (arXiv 2512.22560, OSDI'26) as a compute scheduler: tasks on the GPUs that suit them, trajectories one by one.

    get_batch -> suspend -> update -> resume -> recompute the KV of what is in flight -> train, beside the next rollouts

    affinity     prefill-heavy tasks on GPUs of many FLOP/s, decode-heavy ones on GPUs of much HBM rate per dollar; another
                 pool where the own one has no room
    rollouts     each trajectory on its own: turns, environments of any latency, failures; `redundancy` begins more of a group
    reward       serverless: at once; or on GPUs of its own
    staleness    a trajectory in the buffer began `alpha` weight updates ago at most; older ones are aborted
    weights      pushed once, bucket by bucket, to a store on the generation side, pulled while engines go on (relay): only
                 what engines load is exposed

    rfabric timeline --policy rollart,alpha=2 --traffic grpo-64
    --policy rollart,tasks=FrozenLake/GEM-Math,decode_gpu=H20,decode_gpus=8

Without `tasks` the recipe is its own task: its lengths, turns and environment. Its world: `trajectories` of `agents`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...compute.gpus import GPUS
from ...compute.serving import ReplicaTime
from ...compute.sync_time import UNPACK
from ...errors import RFabricError
from ...rl import phases
from ...rl.lowering import trace_of_steps
from ...rl.phases import Generated, Step, Trained, trained_on
from ...rl.plan import plan_of_steps, weight_sync_comm
from ...rl.popularity import routing
from ...rl.timing import server_of
from ...rl.weight_sync import software_seconds, sync_bytes
from ...rl.workload import Workload
from .. import base as schedules
from .agents import Episode, Pool, Task, draw
from .trajectories import Iteration, Manner, Played, play

# Turns are bimodal, below 5 or above 10, and 48 at most (RollArt, section 3.1 and production); many turns are heavy in prefill,
# few in decode. The longest response of a production batch is 5 to 9 times the mean: of 512 log-normal ones, 7 times for a sigma
# of 0.74. Within 32k of context the mean is then 4.7k tokens.
TAIL = 0.74
# A reward model held 4 H800 busy for 7.4 % of a step of 366 s on 128 trajectories: 0.85 GPU seconds each.
REWARD_S = 0.074 * 366 * 4 / 128
TASKS = {
    # A board and a move a turn; each prompt is rendered anew, so that no context is found cached. Tokens are assumed.
    "FrozenLake": Task("FrozenLake", (10, 20), 512, 100, TAIL, 200, caches=False, heavy="prefill"),
    # Long answers in few turns, judged by a model.
    "GEM-Math": Task("GEM-Math", (1, 4), 512, 32768 / 7 / 2.5, TAIL, 100, rewarded=REWARD_S),
    # Tokens of recorded coding agents (13,234 calls of 242 agents): outputs of 445 tokens in the mean, 407 new tokens between
    # calls in the median. Of a step of 366 s (RollArt) reset takes 15 %; generation and training leave
    # 8 % for 48 answers at most; in 1 of 10 iterations of 128 a reset fails, which takes 513 - 366 s more.
    "SWE-bench": Task(
        "SWE-bench", (10, 48), 1024, 445, TAIL, 407, latency=0.08 * 366 / 48, spread=0.08 * 366 / 48, reset=0.15 * 366,
        failure=1 - 0.9 ** (1 / 128), repair=147, rewarded=REWARD_S, heavy="prefill",
    ),
}  # fmt: skip

# Mooncake moved the 65.5 GB of Qwen3-32B in 29.649 s over TCP, from one cluster to the other, and in 9.442 s over RDMA inside one.
PUSH, PULL = 65.5e9 / 29.649, 65.5e9 / 9.442
BUCKET = 1e9


@dataclass(frozen=True)
class Transfer:
    """Seconds of new weights on their way: pushed over the slow link, pulled from the store, loaded by engines."""

    push: float
    pull: float
    load: float

    @property
    def naive(self) -> float:
        """One after the other, engines suspended."""
        return self.push + self.pull + self.load

    @property
    def exposed(self) -> float:
        """What engines stand still for when all but loading goes on beside rollouts."""
        return self.load

    @property
    def hidden(self) -> float:
        """From the end of training until the last bucket is pulled: the pull of all others hides behind the push."""
        return max(self.push, self.pull)


def transfer(size: float) -> Transfer:
    """A copy of `size` bytes from one cluster to the other, in buckets."""
    found = Transfer(size / PUSH, size / PULL, size / UNPACK)
    last = min(1.0, BUCKET / size)
    return replace(found, push=found.push + last * found.pull)


def with_affinity(pools: Sequence[Pool], hw_mapping: Mapping[str, str], tasks: Sequence[Task]) -> list[Pool]:
    """The pools, each with the tasks that go to its kind of GPU: `hw_mapping` says which, by task or as `default`."""
    kinds = {pool.server.gpu.name for pool in pools}
    for task, kind in hw_mapping.items():
        if kind not in kinds:
            raise RFabricError(f"affinity {task}: {kind} is in no pool; there are {', '.join(sorted(kinds))}")
    home = {task.name: hw_mapping.get(task.name, hw_mapping.get("default")) for task in tasks}
    return [replace(p, tasks=tuple(t for t, kind in home.items() if kind in (None, p.server.gpu.name))) for p in pools]


def affinity(tasks: Sequence[Task], prefill: str, decode: str) -> dict[str, str]:
    """hw_mapping by what tasks are heavy in."""
    return {task.name: prefill if task.heavy == "prefill" else decode for task in tasks}


def mixed(tasks: Sequence[Task], seed: int, longest: int, manner: Manner) -> Callable[[int], Episode]:
    """Trajectories of all tasks, groups of environments dealt to tasks in turn."""

    def episode(number: int) -> Episode:
        task = tasks[number // manner.members % manner.slots % len(tasks)]
        return draw(task, number, seed, longest, manner.members)

    return episode


# --- the scheduler ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """What `rollart,KEY=VALUE` may say; `reward_gpus` 0: serverless; the last `decode_gpus` generate on `decode_gpu`."""

    alpha: float = 1
    redundancy: float = 1.0
    spread_s: float = 0.0
    reset_s: float = 0.0
    failure: float = 0.0
    repair_s: float = 0.0
    reward_s: float = 0.0
    reward_gpus: float = 0
    decode_gpus: float = 0


def schedule(w: Workload, seed: int, settings: Mapping[str, str]) -> "schedules.Scheduled":
    """The job as RollArt runs it: trajectories bounded in staleness, weights through a store."""
    words = {key: settings[key] for key in ("tasks", "decode_gpu") if key in settings}
    s = schedules.settings_of("rollart", Settings(), {k: v for k, v in settings.items() if k not in words})
    alpha, decode_gpus, reward_gpus = (_whole(s, key) for key in ("alpha", "decode_gpus", "reward_gpus"))
    if w.colocated:
        raise RFabricError("scheduler rollart needs pools of its own for either side; use placement disaggregated")
    store = replace(w.weight_sync, strategy="relay")
    w = replace(w, pipeline="async", staleness=max(1, alpha), weight_sync=store)
    tasks = named_tasks(words["tasks"]) if "tasks" in words else [_own_task(w, s)]
    pools = _pools(w, tasks, words.get("decode_gpu"), decode_gpus)
    load = sync_bytes(w) / UNPACK
    manner = Manner(
        w.generation.responses, w.generation.group_size, parallel=True, continuous=True, redundancy=s.redundancy,
        staleness=alpha, suspended=load,
        transfer=max(0.0, weight_sync_comm(w) + software_seconds(w) - load), reward_slots=reward_gpus or None,
    )  # fmt: skip
    episodes = mixed(tasks, seed, w.generation.longest, manner)
    if "tasks" not in words:
        episodes = _Own(w, tasks[0], seed, manner.members).episode
    return _scheduled(w, pools, episodes, manner, seed)


def _scheduled(w: Workload, pools, episodes, manner: Manner, seed: int) -> "schedules.Scheduled":
    trained: list[Trained] = []

    def train(batch: Sequence[Episode]) -> float:
        lengths = np.array([e.tokens for e in batch], dtype=float)
        trained.append(trained_on(w, lengths, routing(w, seed, len(trained))))
        return trained[-1].seconds(w.training.buckets)

    played = play(pools, episodes, train, manner, w.steps)
    steps = [_step(w, it, trained[i], played, manner) for i, it in enumerate(played.iterations)]
    plan = plan_of_steps(w, steps)
    trace = trace_of_steps(w, steps, plan, seed)
    return schedules.Scheduled(
        w, tuple(steps), plan, trace, schedules.spans_of(w, steps, plan), _facts(played, pools, manner)
    )


def _whole(s: Settings, key: str) -> int:
    value = getattr(s, key)
    least = 1 if key == "alpha" else 0
    if value != int(value) or value < least:
        raise RFabricError(f"scheduler rollart: {key}={value:g} must be a whole number, {least} or more")
    return int(value)


def named_tasks(text: str) -> list[Task]:
    """The tasks that `A/B/C` names."""
    unknown = [name for name in text.split("/") if name not in TASKS]
    if unknown:
        raise RFabricError(f"scheduler rollart: no task {unknown[0]!r}; there are {', '.join(TASKS)}, joined by /")
    return [TASKS[name] for name in text.split("/")]


def _own_task(w: Workload, s: Settings) -> Task:
    """The recipe's own task: its lengths are drawn by `phases.responses`, so only the environment is said here."""
    g = w.generation
    return Task(
        w.name, (1, g.turns), 1, 1, 0, g.observation, g.environment_latency, s.spread_s, s.reset_s, s.failure, s.repair_s,
        s.reward_s,
    )  # fmt: skip


def _pools(w: Workload, tasks: Sequence[Task], decode_gpu: str | None, decode_gpus: int) -> list[Pool]:
    """The replicas of the recipe; the last of them on `decode_gpu` where one is named."""
    tp, all_gpus = w.generation.tp, w.cluster.generation_gpus
    if (decode_gpu is None) != (decode_gpus == 0):
        raise RFabricError(
            "scheduler rollart: decode_gpu and decode_gpus go together, such as decode_gpu=H20,decode_gpus=8"
        )
    server = server_of(w)
    if decode_gpu is None:
        return [Pool(w.gpu.name, server, len(w.replicas))]
    if decode_gpu not in GPUS:
        raise RFabricError(f"scheduler rollart: decode_gpu {decode_gpu!r} is not known; use one of {', '.join(GPUS)}")
    if decode_gpus % tp or not 0 < decode_gpus < all_gpus:
        raise RFabricError(
            f"scheduler rollart: decode_gpus={decode_gpus} must be a multiple of generation.tp {tp} below the {all_gpus} "
            f"generation GPUs"
        )
    pools = [
        Pool(w.gpu.name, server, (all_gpus - decode_gpus) // tp),
        Pool(decode_gpu, replace(server, gpu=GPUS[decode_gpu]), decode_gpus // tp),
    ]
    return with_affinity(pools, affinity(tasks, w.gpu.name, decode_gpu), tasks) if len(tasks) > 1 else pools


_NEVER = 10**6


class _Own:
    """Trajectories of the recipe itself, the same responses that every other scheduler draws."""

    def __init__(self, w: Workload, task: Task, seed: int, members: int):
        self.w, self.task, self.seed, self.members = w, task, seed, members
        self.drawn: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def episode(self, number: int) -> Episode:
        g = self.w.generation
        group, member = divmod(number, self.members)
        extra, i = divmod(member, g.group_size)  # redundant ones are drawn of a step that never comes
        step, first = divmod(group * g.group_size, g.responses)
        _, outputs = self._drawn(step + extra * _NEVER)
        parts = _parts(int(outputs[first + i]), g.turns)
        prompt = int(self._drawn(step)[0][first])
        return Episode(number, self.task, group, prompt, parts, self._latencies(number, len(parts)))

    def _drawn(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        if step not in self.drawn:
            self.drawn[step] = phases.responses(self.w, self.seed, step)
        return self.drawn[step]

    def _latencies(self, number: int, turns: int) -> tuple[float, ...]:
        random, t = np.random.default_rng([self.seed, number, 1]), self.task
        found = np.maximum(0.0, random.normal(t.latency, t.spread, turns))
        found[0] = t.reset + (t.repair if random.random() < t.failure else 0.0)
        return tuple(found.tolist())


def _parts(tokens: int, turns: int) -> tuple[int, ...]:
    """A response in as equal turns as whole tokens allow."""
    return tuple(part for t in range(turns) if (part := tokens * (t + 1) // turns - tokens * t // turns))


def _step(w: Workload, it: Iteration, trained: Trained, played: Played, manner: Manner) -> Step:
    """A batch as a step of `phases`: by the engine that made it, and what engines did since the batch before."""
    by_engine: list[list[Episode]] = [[] for _ in w.replicas]
    for who in it.batch:
        by_engine[who.engine].append(who.episode)
    prompts = [np.array([e.prompt for e in part], dtype=np.int64) for part in by_engine]
    outputs = [np.array([e.response for e in part], dtype=np.int64) for part in by_engine]
    before = played.iterations[it.number - 1].ready if it.number else 0.0
    seconds = max(0.0, it.ready - it.began) + (manner.suspended if it.number else 0.0)
    share = min(1.0, seconds / (it.ready - before)) if it.ready > before else 0.0
    times = [
        ReplicaTime(a * share, b * share, peak, max(0.0, seconds - (a + b) * share))
        for (a, b), peak in zip(it.busy, played.peak_tokens, strict=True)
    ]
    return Step(it.number, Generated(prompts, outputs, times), trained)


def _facts(played: Played, pools: Sequence[Pool], manner: Manner) -> dict:
    counts = played.counts
    began = sum(counts.values())
    return {
        "staleness": manner.staleness,
        "stale_max": max(max(it.stale) for it in played.iterations),
        "environments": manner.environments,
        "trajectories": began,
        **{f"trajectories_{name}": count for name, count in counts.items()},
        "suspended_s": manner.suspended,
        "transfer_s": manner.transfer,
        "pools": {f"{pool.name}-{i}": pool.gpus for i, pool in enumerate(pools)},
    }

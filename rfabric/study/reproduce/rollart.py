"""RollArt (OSDI'26, arXiv 2512.22560) run again: affinity, environments, rewards, staleness,
weights, and the chain of systems.

Rollouts are played trajectory by trajectory (`rl.trajectories`) on the GPUs the paper names, with
the tasks of `rl.rollart`: the paper states turns and how prompts and responses weigh, not their
tokens. Training is `rl.training`'s on 32 H800. Figures are quoted from the paper where they are not
marked second-hand (a note on it). Nothing is fitted to a speed-up.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from ...compute.between import NIC_ONE_PAIR
from ...compute.communication import network
from ...compute.gpus import GPUS, HBM_SHARE
from ...compute.layout import Layout
from ...compute.models import Model
from ...compute.named import read_model
from ...compute.roofline import Server
from ...compute.sync_time import Sync, tensors_of, weight_sync_seconds
from ...folders import data_dir
from ...rl import Workload, read_recipe
from ...rl.phases import trained_on
from ...schedulers.rollart import TASKS, affinity, mixed, transfer, with_affinity
from ...schedulers.rollart.engines import Pool
from ...schedulers.rollart.rules import RolloutOutcome, RolloutRules
from ...schedulers.rollart.tasks import Episode, Task
from ...schedulers.rollart.trajectories import play
from ...units import bytes_in
from . import CIRCULAR, SECOND_HAND, PaperRow, PartBegun, rows_of, span

LONGEST, BATCH, GROUP = 32768, 512, 8
TRAINING_GPUS = 32
LINK = bytes_in(400e9, 1) * NIC_ONE_PAIR  # bytes/s of a turn's KV from one engine to another
# rollout tp 1, 2, 4
MODELS = {"8B": ("Qwen3-8B", 1), "14B": ("Qwen3-14B", 2), "32B": ("Qwen3-32B", 4)}
# Megatron on 32 H800 (tp, cp, recompute): the fastest in this model whose 32k of context fit the
# HBM; the paper names none.
LAYOUTS = {"8B": (2, 2, "selective"), "14B": (2, 4, "selective"), "32B": (4, 2, "full")}
MEASURED = 4  # steps timed, once the pipeline has settled
MIX = ("FrozenLake", "GEM-Math", "SWE-bench")
MIX_IS = (
    "which tasks share a batch, and their tokens, are not stated: FrozenLake, GEM-Math and "
    "SWE-bench in turn"
)


def rows(seed: int = 0, progress: PartBegun = lambda _: None) -> list[PaperRow]:
    """Every row, in the paper's order of sections."""
    parts = (
        characterised_rows,
        chain_rows,
        scaling_rows,
        affinity_rows,
        latency_rows,
        reward_rows,
        staleness_rows,
        weight_rows,
        redundancy_rows,
        prefill_rows,
        left_out,
    )
    return rows_of(parts, seed, progress)


# --- what runs ------------------------------------------------------------------------------------


@cache
def job(size: str) -> Workload:
    """The training of a model on H800, 32k of context; its generation section only fills a pool."""
    name, tp = MODELS[size]
    train_tp, cp, recompute = LAYOUTS[size]
    settings = {
        "model": name,
        "cluster.gpu": "H800",
        "cluster.training_gpus": TRAINING_GPUS,
        "cluster.generation_gpus": 64,
        "generation.tp": tp,
        "generation.batch": BATCH // GROUP,
        "generation.group_size": GROUP,
        "generation.max_prompt": 1024,
        "generation.max_response": LONGEST - 1024,
        "training.tp": train_tp,
        "training.recompute": recompute,
        "training.cp": cp,
        "training.micro_batch_tokens": LONGEST // cp,
    }
    return read_recipe("grpo-64", [f"{key}={value}" for key, value in settings.items()])


def train_of(size: str) -> Callable[[Sequence[Episode]], float]:
    """Seconds of training on a batch of trajectories."""
    w = job(size)

    def train(batch: Sequence[Episode]) -> float:
        return trained_on(w, np.array([e.tokens for e in batch], dtype=float)).seconds(
            w.training.buckets
        )

    return train


def pool(
    size: str,
    gpu: str,
    gpus: int,
    model: str | None = None,
    tp: int | None = None,
    slower: float = 1.0,
) -> Pool:
    """As many engines as `gpus` hold; `slower`: so many times less of the HBM's rate is reached on
    an H20.
    """
    w, tp = job(size), tp or MODELS[size][1]
    hbm = HBM_SHARE / slower if gpu == "H20" else HBM_SHARE
    made = Server(w.model if model is None else _model(model), GPUS[gpu], tp, hbm=hbm)
    return Pool(gpu, made, gpus // tp)


def _model(name: str) -> Model:
    return read_model(data_dir("traffic") / "models" / f"{name}.json")


def rollout(pools: Sequence[Pool], tasks: Sequence[Task], rules: RolloutRules, seed: int) -> float:
    """Seconds until the first batch is there."""
    played = play(pools, mixed(tasks, seed, LONGEST, rules), lambda _: 0.0, rules, 1)
    return played.iterations[0].ready


def named(*names: str) -> list[Task]:
    """The tasks of these names."""
    return [TASKS[name] for name in names]


# --- one step -------------------------------------------------------------------------------------


def characterised_rows(seed: int) -> Iterator[PaperRow]:
    """SWE-bench, Qwen3-8B, 128 trajectories on 32 H800."""
    task = replace(TASKS["SWE-bench"], failure=0.0)
    rules = RolloutRules(128, GROUP, reward_slots=4)
    trained: list[float] = []

    def train(batch: Sequence[Episode]) -> float:
        trained.append(train_of("8B")(batch))
        return trained[-1]

    played = play([pool("8B", "H800", 32)], mixed([task], seed, LONGEST, rules), train, rules, 1)
    step = played.iterations[0].training[1]
    why = (
        "trajectories one by one; reset, environments and reward are inputs, tokens those of "
        "coding agents"
    )
    yield PaperRow("SWE-bench, 8B on 32 H800: seconds of a step", 366.0, step, "s", why, CIRCULAR)
    why = (
        "as fast as training of this size is measured elsewhere; the paper's takes three times as "
        "long, of which it says nothing"
    )
    yield PaperRow(
        "SWE-bench: training's share of a step", 0.23, trained[0] / step, "share", why, CIRCULAR
    )


# --- the chain ------------------------------------------------------------------------------------

SYSTEMS = ("Sync", "Sync+", "One-off", "AReaL", "RollArt")
SYSTEMS_ARE = {
    "Sync+": (
        "Sync has turns in step, and rewards after all on 4 GPUs; in Sync+ both go "
        "trajectory by trajectory"
    ),
    "One-off": "training beside the next step's rollouts; weights over NCCL in both",
    "AReaL": (
        "rollouts go on over updates, one step ahead in AReaL's count, which is on par "
        "with One-off's"
    ),
    "RollArt": "64 H800 and 32 H20 by affinity, a store for weights, alpha 1",
}
# What most misses have in common.
HALF_IDLE = (
    "here rollouts of 512 trajectories wait for the longest while GPUs are half idle; the "
    "paper's GPUs seem fuller: more tokens, or contexts prefilled anew in all tasks (experiment "
    "fuller, which gets half of the way)"
)


def broadcast_seconds(size: str, to_gpus: int) -> float:
    """NCCL between GPUs of one cluster: what systems without a store do."""
    w = job(size)
    made = Sync(
        w.model.weight_bytes,
        tensors_of(w.model),
        Layout.over(TRAINING_GPUS),
        Layout.over(to_gpus, MODELS[size][1]),
        network(GPUS["H800"]),
        "broadcast",
    )
    return weight_sync_seconds(made)


def rules_of(system: str, size: str, staleness: int = 1) -> RolloutRules:
    """How each of the five makes steps."""
    stop = broadcast_seconds(size, 96)
    sent = transfer(job(size).model.weight_bytes)
    return {
        "Sync": RolloutRules(BATCH, GROUP, batched=True, reward_slots=4, suspended=stop),
        "Sync+": RolloutRules(BATCH, GROUP, suspended=stop),
        "One-off": RolloutRules(BATCH, GROUP, parallel=True, suspended=stop),
        "AReaL": RolloutRules(
            BATCH,
            GROUP,
            parallel=True,
            continuous=True,
            staleness=staleness,
            ahead=0,
            suspended=stop,
        ),
        "RollArt": RolloutRules(
            BATCH,
            GROUP,
            parallel=True,
            continuous=True,
            staleness=staleness,
            suspended=sent.exposed,
            transfer=sent.hidden,
        ),
    }[system]


def pools_of(system: str, size: str, tasks: Sequence[Task]) -> list[Pool]:
    """Generation GPUs: 96 H800, 4 of them for rewards in Sync; RollArt: 64 H800 and 32 H20."""
    if system == "RollArt":
        pools = [pool(size, "H800", 64), pool(size, "H20", 32)]
        return with_affinity(pools, affinity(tasks, "H800", "H20"), tasks)
    return [pool(size, "H800", 92 if system == "Sync" else 96)]


@cache
def played(system: str, size: str, seed: int, staleness: int = 1, **changed) -> RolloutOutcome:
    """Some steps of one of the five, with some of its rules changed."""
    tasks, rules = named(*MIX), replace(rules_of(system, size, staleness), **changed)
    episodes = mixed(tasks, seed, LONGEST, rules)
    return play(
        pools_of(system, size, tasks), episodes, train_of(size), rules, settling(rules) + MEASURED
    )


def settling(rules: RolloutRules) -> int:
    """Steps until rollouts that go on have settled: they begin with what ends first, and may do so
    for `staleness` steps.
    """
    return 3 + 2 * rules.staleness if rules.continuous else 1


def step_seconds(system: str, size: str, seed: int, staleness: int = 1, **changed) -> float:
    """Seconds from step to step, once rollouts have settled."""
    skip = settling(rules_of(system, size, staleness))
    return played(system, size, seed, staleness, **changed).step_seconds(skip)


def chain_rows(seed: int) -> Iterator[PaperRow]:
    """Throughput of each system over the one before, over three models; time to score, whose
    throughput alone can be run.
    """
    paper = ((1.40, 2.40), (1.31, 1.47), (1.03, 1.06), (1.22, 1.36))
    seconds = {size: [step_seconds(system, size, seed) for system in SYSTEMS] for size in MODELS}
    for i, known in enumerate(paper):
        ratios, later = [each[i] / each[i + 1] for each in seconds.values()], SYSTEMS[i + 1]
        why = f"{SYSTEMS_ARE[later]}; {MIX_IS}"
        yield PaperRow(f"throughput: {later} over {SYSTEMS[i]}", known, span(ratios), why=why)
    total = [each[0] / each[-1] for each in seconds.values()]
    yield PaperRow("throughput: RollArt over Sync", (2.65, 4.58), span(total), why=MIX_IS)
    why = "throughput alone: what staleness does to learning is not modelled"
    for i, known in ((1, 2.05), (2, 1.35), (3, 1.31)):
        ratio = seconds["32B"][i] / seconds["32B"][-1]
        yield PaperRow(f"time to score 0.85, 32B: RollArt over {SYSTEMS[i]}", known, ratio, why=why)


def scaling_rows(seed: int) -> Iterator[PaperRow]:
    """RollArt's design on 64 and 128 H800, 32 of which train."""
    ratios = [_on_h800(size, 64, seed) / _on_h800(size, 128, seed) for size in MODELS]
    why = (
        "32 GPUs train in both, the batch is the same: how the paper divides them is not stated; "
        f"{HALF_IDLE}"
    )
    yield PaperRow("throughput: 128 over 64 H800", (1.33, 2.08), span(ratios), why=why)


def _on_h800(size: str, gpus: int, seed: int, tasks: Sequence[Task] = ()) -> float:
    tasks, rules = tasks or named(*MIX), rules_of("RollArt", size)
    pools, episodes = [pool(size, "H800", gpus - TRAINING_GPUS)], mixed(tasks, seed, LONGEST, rules)
    skip = settling(rules)
    return play(pools, episodes, train_of(size), rules, skip + MEASURED).step_seconds(skip)


def experiment_fuller(seed: int) -> Iterator[PaperRow]:
    """What fuller GPUs do to the gain from 64 to 128 H800, all three models: tasks as they are,
    contexts prefilled anew in each turn, and turns of two and four times the tokens.
    """
    tasks = named(*MIX)
    kinds = {
        "tasks as they are": tasks,
        "contexts prefilled anew": [replace(task, caches=False) for task in tasks],
        "twice the tokens a turn": [replace(task, output=2 * task.output) for task in tasks],
        "four times the tokens a turn": [replace(task, output=4 * task.output) for task in tasks],
    }
    for name, changed in kinds.items():
        seconds = [[_on_h800(size, gpus, seed, changed) for gpus in (64, 128)] for size in MODELS]
        gains = [few / many for few, many in seconds]
        yield PaperRow(f"{name}: throughput, 128 over 64 H800", (1.33, 2.08), span(gains))


# Generation of verl's colocated rows on H20, measured over modelled: the least, middle and most of
# the three there are (`rfabric validate`, group "verl colocated phases").
H20_SLOWER = (1.09, 1.30, 1.92)


def experiment_h20(seed: int) -> Iterator[PaperRow]:
    """What affinity gains where an H20 decodes as much slower than modelled as was measured, and an
    H800 as modelled.
    """
    for slower in (1.0, *H20_SLOWER):
        for row in affinity_rows(seed, slower):
            yield replace(row, metric=f"H20 {slower:g} x slower: {row.metric}", why="")


EXPERIMENTS = {"fuller": experiment_fuller, "h20": experiment_h20}


# --- R1: affinity ---------------------------------------------------------------------------------


def affinity_rows(seed: int, slower: float = 1.0) -> Iterator[PaperRow]:
    """A task on GPUs of equal cost; then pools of equal cost for tasks of both kinds; `slower`: as
    of `pool`.
    """
    rules = RolloutRules(128, GROUP)
    # the least tensor parallelism whose KV cache holds a trajectory, and that divides 2 and 6 GPUs
    least = {"8B": 1, "14B": 1, "32B": 2}

    def over(task: Task, size: str) -> float:
        """Seconds on 2 H800 over those on 6 H20."""
        two, six = (
            rollout([pool(size, gpu, gpus, None, least[size], slower)], [task], rules, seed)
            for gpu, gpus in (("H800", 2), ("H20", 6))
        )
        return two / six

    lake, maths = TASKS["FrozenLake"], TASKS["GEM-Math"]
    anew, cached = over(lake, "8B"), over(replace(lake, caches=True), "8B")
    why = (
        f"128 trajectories of 8B, contexts prefilled anew each turn; {cached:.2f} where engines "
        "find them cached"
    )
    yield PaperRow("FrozenLake: 2 H800 over 6 H20, seconds", 0.53, anew, why=why)
    ratios = [1 / over(maths, size) for size in MODELS]
    yield PaperRow(
        "GEM-Math: 6 H20 over 2 H800, seconds",
        (0.49, 0.79),
        span(ratios),
        why="8B to 32B; 128 trajectories",
    )
    yield from _equal_cost_rows(seed, slower)


def _equal_cost_rows(seed: int, slower: float) -> Iterator[PaperRow]:
    tasks, rules = named("FrozenLake", "GEM-Math"), RolloutRules(BATCH, GROUP)
    ratios: dict[str, list[float]] = {"208 H20": [], "72 H800": []}
    for size in MODELS:
        mixed_pools = [pool(size, "H800", 64), pool(size, "H20", 24, slower=slower)]
        own = rollout(
            with_affinity(mixed_pools, affinity(tasks, "H800", "H20"), tasks), tasks, rules, seed
        )
        for name in ratios:
            gpus, gpu = name.split()
            alone = [pool(size, gpu, int(gpus), slower=slower)]
            ratios[name].append(rollout(alone, tasks, rules, seed) / own)
    why = (
        "rollouts of one batch, FrozenLake and GEM-Math in halves: the paper's mix and what it "
        "timed are not stated; 512 trajectories are 2.5 an H20, whose decode is then bound by "
        "HBM alone, where it is the better GPU"
    )
    for name, known in (("208 H20", (1.30, 1.68)), ("72 H800", (1.12, 1.37))):
        yield PaperRow(
            f"affinity: 64 H800 + 24 H20 over {name}", known, span(ratios[name]), why=why
        )


# --- R2, R3: environments and rewards -------------------------------------------------------------


def latency_rows(seed: int) -> Iterator[PaperRow]:
    """Turns in step against trajectories one by one, with environments of N(10 s, 1 to 10 s)."""
    paper = {1: 1.23, 10: 2.27}
    for spread, known in paper.items():
        lake, other = (_in_step(name, float(spread), seed) for name in ("FrozenLake", "SWE-bench"))
        yield PaperRow(
            f"environments of N(10 s, {spread} s): turns in step over one by one", known, lake,
            why="128 trajectories of FrozenLake, 8B on 32 H800: task and size are not stated; "
            f"{other:.2f} with SWE-bench, whose turns differ more",
        )  # fmt: skip


def _in_step(task: str, spread: float, seed: int) -> float:
    """Rollout seconds with turns in step over those one by one."""
    slow = replace(TASKS[task], latency=10.0, spread=spread, failure=0.0)
    pools = [pool("8B", "H800", 32)]
    both = [
        rollout(pools, [slow], RolloutRules(128, GROUP, batched=batched), seed)
        for batched in (True, False)
    ]
    return both[0] / both[1]


def reward_rows(seed: int) -> Iterator[PaperRow]:
    """A reward model on 4 GPUs of its own against a serverless one, whose GPUs generate."""
    tasks, dedicated = named("GEM-Math"), RolloutRules(128, GROUP, reward_slots=4)
    episodes = mixed(tasks, seed, LONGEST, dedicated)
    one = play([pool("8B", "H800", 4)], episodes, lambda _: 0.0, dedicated, 1)
    seconds = one.iterations[0].ready
    other = rollout([pool("8B", "H800", 8)], tasks, RolloutRules(128, GROUP), seed)
    why = (
        "128 trajectories of GEM-Math, 8B, on 8 H800 of which 4 hold the reward: the paper's "
        "task and count are not stated; the longest trajectory takes as long on 4 GPUs as on 8"
    )
    yield PaperRow(
        "serverless reward: rollout over that with a dedicated one",
        77 / 158,
        other / seconds,
        why=why,
    )
    yield PaperRow(
        "dedicated reward: its GPUs' utilisation", 0.06, one.reward_busy / 4 / seconds, "share", why
    )


# --- R4: staleness --------------------------------------------------------------------------------


def staleness_rows(seed: int) -> Iterator[PaperRow]:
    """Step time with alpha = 1 over that with more, the 8B."""
    base = step_seconds("RollArt", "8B", seed)
    gains = {alpha: base / step_seconds("RollArt", "8B", seed, alpha) for alpha in (2, 6)}
    each = " and ".join(f"{gain:.2f} with {alpha}" for alpha, gain in gains.items())
    why = f"{each}; {HALF_IDLE}, so that more of them at once costs nothing"
    yield PaperRow(
        "staleness: step with alpha 1 over alpha 2 to 6, at most, 8B",
        1.22,
        max(gains.values()),
        why=why,
    )


# --- weights --------------------------------------------------------------------------------------


def weight_rows(seed: int) -> Iterator[PaperRow]:
    """Push and pull in turn, what of it is exposed, and what hiding it does to a step."""
    sent = {size: transfer(job(size).model.weight_bytes) for size in MODELS}
    naive, exposed = {"8B": 38.6, "14B": 84.1, "32B": 157.0}, {"8B": 1.4, "14B": 5.1, "32B": 9.6}
    why = (
        "TCP and RDMA at the rates of the note (29.6 and 9.4 s for 32B); the paper's naive path "
        "reaches a quarter of them"
    )
    for size, known in naive.items():
        yield PaperRow(
            f"weights: naive push and pull, {size}", known, sent[size].naive, "s", why, CIRCULAR
        )
    why = (
        "what engines load while they stand still, at the rate fitted on verl's delta weight "
        "sync, whatever their tp"
    )
    for size, known in exposed.items():
        trust = {"trust": SECOND_HAND} if size == "14B" else {}
        yield PaperRow(f"weights: exposed, {size}", known, sent[size].exposed, "s", why, **trust)
    hidden = [1 - t.exposed / (t.pull + t.exposed) for t in sent.values()]
    why = "the pull at the rate of the note"
    yield PaperRow(
        "weights: share of the pull that is hidden",
        (0.67, 0.78),
        span(hidden),
        "share",
        why,
        CIRCULAR,
    )
    yield from _asynchronous_rows(seed, naive, exposed)


def _asynchronous_rows(
    seed: int, naive: dict[str, float], exposed: dict[str, float]
) -> Iterator[PaperRow]:
    gains = []
    for size in MODELS:
        stop = step_seconds("RollArt", size, seed, suspended=naive[size], transfer=0.0)
        gains.append(
            stop
            / step_seconds("RollArt", size, seed, suspended=exposed[size], transfer=naive[size])
        )
    why = "the paper's own seconds of transfer, naive and exposed"
    yield PaperRow(
        "asynchronous weight transfer: step time",
        (1.10, 1.16),
        span(gains),
        why=why,
        trust=CIRCULAR,
    )


# --- redundancy, disaggregated prefill ------------------------------------------------------------


def redundancy_rows(seed: int) -> Iterator[PaperRow]:
    """More environments than a group needs, the first of which are kept."""
    task = TASKS["SWE-bench"]
    one = rollout([pool("8B", "H800", 32)], [task], RolloutRules(128, GROUP), seed)
    gains = {
        extra: one
        / rollout(
            [pool("8B", "H800", 32)], [task], RolloutRules(128, GROUP, redundancy=extra), seed
        )
        for extra in (1.25, 1.5, 2.0)
    }
    each = ", ".join(f"{gain:.2f} with {extra:g}" for extra, gain in gains.items())
    why = (
        f"128 trajectories of SWE-bench, 8B on 32 H800; times as many environments: {each}; the "
        "paper states the best only"
    )
    yield PaperRow("redundant environments: rollout, at most", 1.62, max(gains.values()), why=why)


def prefill_rows(seed: int) -> Iterator[PaperRow]:
    """Prefill on H800 and decode on H20, in servers of 8, against the same servers that do both."""
    paper = {
        ("32B", "1P3D"): 1.03,
        ("32B", "2P2D"): 1.05,
        ("30B-A3B", "1P3D"): 1.11,
        ("30B-A3B", "2P2D"): 1.21,
    }
    tasks, rules = named(*MIX), RolloutRules(256, GROUP)
    for (model, split), known in paper.items():
        first, rest = int(split[0]) * 8, int(split[2]) * 8
        name = None if model == "32B" else "Qwen3-30B-A3B"
        pools = [pool("32B", "H800", first, name), pool("32B", "H20", rest, name)]
        apart = [replace(pools[0], prefill_for="H20", link=LINK), pools[1]]
        gain = rollout(pools, tasks, rules, seed) / rollout(apart, tasks, rules, seed)
        why = (
            "256 trajectories; servers of 8, KV over a 400 Gbit/s NIC; which gain is which "
            "split's is our reading of the paper"
        )
        yield PaperRow(f"prefill apart from decode, {model} {split}: rollout", known, gain, why=why)


def left_out(seed: int) -> Iterator[PaperRow]:
    """What cannot be run, and why."""
    why = "a week on more than 3,000 GPUs of jobs whose recipes are not stated"
    yield PaperRow("production: gain of tuning over the first 25 steps", 1.66, None, why=why)

"""RollPacker (NSDI'26, arXiv 2509.21009): synchronous, on-policy RL whose long responses wait for each other.

    tail batching         short rounds launch too much and keep what comes first; long rounds run what was left    rounds.py
    parallelism planner   tensor parallelism of the rollout follows KV preemptions, one step late                  planner.py
    reward scheduler      each response is judged when it is there, its time-out follows its prompt                reward.py
    stream trainer        half of the GPUs leave the rollout early and compute gradients                           stream.py

    steps = run(read_recipe("grpo-64"), seed=0, policy=RollPacker(), steps=10)
    schedule(workload, seed, {"prompts": "1.5", "stream": "0"})                     what `--policy rollpacker,...` calls

GPUs generate and train in turn in RollPacker (placement: colocated). Where a job keeps pools apart, nothing is freed and the
stream trainer is off. A step takes rollout + what reward it does not hide + training that is left + handover of the weights.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...compute.serving import ReplicaTime
from ...errors import RFabricError
from ...rl.phases import Generated, Step, Trained, handover, trained_on
from ...rl.popularity import routing
from ...rl.workload import Workload
from ...trace import Span
from ..base import Scheduled, Settings, of_steps, settings_of
from .planner import replanned, with_tp
from .reward import Judges, judged, runs, timeout
from .rounds import ALIKE, LONG, PLAIN, SHORT, Books, Launch, Played, draw, generated_of, launch, play, settled
from .stream import Streamed, may_free, projected_peak, streamed, work_done

__all__ = [
    "ALIKE", "LONG", "PLAIN", "SHORT", "Books", "Launch", "Packed", "Played", "Policy", "Streamed", "Judges", "draw",
    "generated_of", "judged", "launch", "may_free", "play", "projected_peak", "replanned", "run", "runs", "schedule", "settled",
    "streamed", "timeout", "with_tp", "work_done",
]  # fmt: skip


@dataclass(frozen=True)
class Policy:
    """What is on: redundancy of prompts and responses (1: none), planner and stream trainer (0: off); `alike`: see rounds.py.

    free: a fixed share of responses at which the stream trainer frees GPUs, whatever fits; 0: by the rule.
    """

    prompts: float = 1.25
    responses: float = 1.25
    planner: float = 1
    stream: float = 1
    alike: float = ALIKE
    free: float = 0

    def __post_init__(self):
        for name in ("planner", "stream"):
            if getattr(self, name) not in (0, 1):
                raise RFabricError(f"rollpacker {name}: {getattr(self, name):g} must be 1 (on) or 0 (off)")
        if not 0 <= self.free < 1:
            raise RFabricError(f"rollpacker free: {self.free:g} must be a share below 1; 0 leaves it to the rule")


SYNCHRONOUS = Policy(prompts=1, responses=1, planner=0, stream=0)  # verl: nothing but rounds of the batch


@dataclass(frozen=True)
class Rewards:
    """How responses are judged: by `judges`, each when it is there or all after the rollout, with time-outs that adapt or not."""

    judges: Judges
    per_sample: bool = True
    adaptive: bool = True


@dataclass(frozen=True, eq=False)
class Packed:
    """One step: its round, when all is judged (s), its training; `early`: the share of `streamable` done before."""

    number: int
    w: Workload
    played: Played
    judged: float
    trained: Trained
    freed: Streamed | None = None
    early: float = 0.0

    @property
    def kind(self) -> str:
        return self.played.launch.kind

    @property
    def training(self) -> float:
        """Seconds of training after rollout and reward."""
        return self.trained.seconds(self.w.training.buckets) - self.early * streamable(self.trained)

    @property
    def seconds(self) -> float:
        """Of the whole step, communication between servers not counted."""
        return self.judged + self.training + sum(handover(self.w).values())


def run(
    w: Workload, seed: int = 0, policy: Policy = Policy(), steps: int | None = None, rewards: Rewards | None = None,
    pace: float = 1.0,
) -> list[Packed]:  # fmt: skip
    """The steps of a job, one after the other: each prompt is trained once, in the order in which rounds finish.

    pace: how much slower than modelled the engine generates, where that was measured.
    """
    _check(w, pace)
    return list(_steps(w, seed, policy, w.steps if steps is None else steps, rewards, pace))


def _check(w: Workload, pace: float) -> None:
    if w.generation.turns > 1:
        raise RFabricError(
            f"rollpacker: generation.turns {w.generation.turns}: rounds of one turn only are batched by their tails; use "
            f"scheduler sync, or turns 1"
        )
    if w.pipeline != "sync":
        raise RFabricError(f"rollpacker: trains on-policy, but the job's pipeline is {w.pipeline}; use pipeline sync")
    if not pace > 0:
        raise RFabricError(f"rollpacker: pace {pace:g} must lie above 0; 1 is as modelled")


def _steps(
    w: Workload, seed: int, policy: Policy, steps: int, rewards: Rewards | None, pace: float
) -> Iterator[Packed]:
    g, books, since = w.generation, Books(), []
    for number in range(steps):
        made = launch(books, g.batch, g.group_size, policy.prompts, policy.responses)
        done = _step(number, w, play(w, made, draw(w, seed, made, books, policy.alike), pace), policy, rewards, seed)
        yield done
        books = settled(books, made, done.played.kept_prompts)
        since.append(done.played.preempted)
        if policy.planner:
            tp = replanned(w.generation.tp, since)
            other = with_tp(w, tp) if tp != w.generation.tp else None
            w, since = (other, []) if other else (w, since)


def _step(number: int, w: Workload, played: Played, policy: Policy, rewards: Rewards | None, seed: int) -> Packed:
    freed = streamed(played, policy.free or None) if policy.stream and w.colocated else None
    played = freed.played if freed else played
    ready = _judged(played, rewards, [seed, number])
    lengths = (played.prompts[:, None] + played.outputs).astype(float)
    trained = trained_on(w, lengths.ravel(), routing(w, seed, number))
    end = max(float(ready.max()), played.seconds)
    early = 0.0
    if freed:
        share = len(freed.freed) / len(played.times)
        rate = float(lengths.sum()) * share / streamable(trained)
        early = work_done(ready.max(axis=1), lengths.sum(axis=1), rate, freed.ready, end)
    return Packed(number, w, played, end, trained, freed, early)


def _judged(played: Played, rewards: Rewards | None, seed: list[int]) -> np.ndarray:
    """When each response that is trained on has its reward (float64[P0, R0]); a rule takes no time."""
    if rewards is None:
        return played.kept_ends
    ready = played.kept_ends if rewards.per_sample else np.full(played.kept_ends.shape, played.seconds)
    order = np.argsort(ready, axis=1, kind="stable")
    drawn = runs(rewards.judges, *ready.shape, int(np.random.default_rng(seed).integers(2**31)), rewards.adaptive)
    seconds = np.empty_like(drawn)
    np.put_along_axis(seconds, order, drawn, axis=1)
    return judged(ready, seconds, rewards.judges.workers)


def streamable(trained: Trained) -> float:
    """Seconds of training that need no other update: log-probabilities, and the first update up to its last micro-batch."""
    return float(trained.log_prob.max() + trained.mini_batches[0].first.max())


# --- as a compute scheduler ------------------------------------------------------------------------------------------


def schedule(w: Workload, seed: int, settings: Settings) -> Scheduled:
    """Short rounds that leave long responses to long rounds (arXiv 2509.21009).

    Its trace keeps the recipe's replicas: a step at another tp stands on theirs.
    """
    policy = settings_of("rollpacker", Policy(), settings)
    done = run(w, seed, policy)
    found = of_steps(w, [_as_step(w, packed) for packed in done], seed, _facts(done))
    return replace(found, spans=(*found.spans, *_early(w, done, found)))


def _as_step(w: Workload, packed: Packed) -> Step:
    return Step(packed.number, _on_replicas_of(w, packed), _rest(packed.trained, packed.early))


def _on_replicas_of(w: Workload, packed: Packed) -> Generated:
    """What the replicas of a step made, by the recipe's replicas: on the one that holds a replica's first GPU."""
    made, n = generated_of(packed.played), len(w.replicas)
    firsts = [replica[0] for replica in w.replicas]
    home = [int(np.searchsorted(firsts, replica[0], side="right")) - 1 for replica in packed.w.replicas]
    owner = [int(np.searchsorted([r[0] for r in packed.w.replicas], first, side="right")) - 1 for first in firsts]
    rows = [[s for s, h in enumerate(home) if h == r] for r in range(n)]
    empty = np.zeros(0, dtype=np.int64)
    prompts = [np.concatenate([empty, *(made.prompts[s] for s in part)]) for part in rows]
    outputs = [np.concatenate([empty, *(made.outputs[s] for s in part)]) for part in rows]
    times = [_longest([made.times[s] for s in part or [owner[r]]]) for r, part in enumerate(rows)]
    return Generated(prompts, outputs, times)


def _longest(times: list[ReplicaTime]) -> ReplicaTime:
    return max(times, key=lambda time: time.seconds)


def _rest(trained: Trained, early: float) -> Trained:
    """The training that is left when a share of what can be streamed is done."""
    first, *others = trained.mini_batches
    left = replace(first, first=first.first * (1 - early))
    return replace(trained, log_prob=trained.log_prob * (1 - early), mini_batches=[left, *others])


def _early(w: Workload, done: list[Packed], found: Scheduled) -> Iterator[Span]:
    """The freed GPUs at work on gradients while the others generate; what they wait for groups is drawn after their work."""
    starts = {phase.step: phase.start for phase in found.plan.phases if phase.kind == "generation"}
    for packed in done:
        if packed.freed and packed.early:
            gpus = tuple(gpu for r in packed.freed.freed for gpu in packed.w.replicas[r])
            busy = packed.early * streamable(packed.trained) * len(packed.played.times) / len(packed.freed.freed)
            yield Span("training", gpus, starts[packed.number] + packed.freed.ready, busy, "training", packed.number)


def _facts(done: list[Packed]) -> dict:
    return {
        "rounds": [packed.kind for packed in done],
        "tensor_parallelism": [packed.w.generation.tp for packed in done],
        "preemptions": [packed.played.preempted for packed in done],
        "longest_response_tokens": [int(packed.played.outputs.max()) for packed in done],
        "freed_at_share": [packed.freed.done if packed.freed else None for packed in done],
        "trained_early_share": [packed.early for packed in done],
    }

"""RollPacker (NSDI'26, arXiv 2509.21009): synchronous, on-policy RL whose long responses wait for
each other.

    rounds.py   tail batching: short rounds launch too much and keep what comes first; long rounds
                run what was left
    planner.py  parallelism planner: the rollout's tensor parallelism follows KV preemptions, one
                step late
    reward.py   reward scheduler: each response is judged when it is there, its time-out follows its
                prompt
    stream.py   stream trainer: half of the GPUs leave the rollout early and compute gradients

    steps = run(read_recipe("grpo-64"), seed=0, settings=RollpackerSettings(), steps=10)
    # what `--policy rollpacker,...` calls
    schedule(workload, seed, {"prompts": "1.5", "stream": "0"})

GPUs generate and train in turn in RollPacker (placement: colocated). Where a job keeps pools apart,
nothing is freed and the stream trainer is off. A step takes rollout + what reward it does not hide
+ training that is left + handover of the weights.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...compute.serving import ReplicaTime
from ...rl.phases import Generated, Step, Trained
from ...rl.workload import Workload
from ...trace import Span
from ..base import Scheduled, Settings, of_steps, settings_of
from .planner import replanned, with_tp
from .reward import Judges, judged, runs, timeout
from .rounds import ALIKE, LONG, PLAIN, SHORT, Books, draw, generated_of, launch, play, settled
from .steps import SYNCHRONOUS, Packed, Rewards, RollpackerSettings, run, streamable
from .stream import may_free, projected_peak, streamed, work_done

__all__ = [
    "ALIKE", "LONG", "PLAIN", "SHORT", "SYNCHRONOUS", "Books", "Judges", "Packed", "Rewards",
    "RollpackerSettings", "draw", "generated_of", "judged", "launch", "may_free", "play",
    "projected_peak", "replanned", "run", "runs", "schedule", "settled", "streamed", "timeout",
    "with_tp", "work_done",
]  # fmt: skip


def schedule(w: Workload, seed: int, settings: Settings) -> Scheduled:
    """Short rounds that leave long responses to long rounds (arXiv 2509.21009).

    Its trace keeps the recipe's replicas: a step at another tp stands on theirs.
    """
    policy = settings_of("rollpacker", RollpackerSettings(), settings)
    done = run(w, seed, policy)
    scheduled = of_steps(w, [_as_step(w, packed) for packed in done], seed, _facts(done))
    return replace(scheduled, spans=(*scheduled.spans, *_early(w, done, scheduled)))


def _as_step(w: Workload, packed: Packed) -> Step:
    return Step(packed.number, _on_replicas_of(w, packed), _rest(packed.trained, packed.early))


def _on_replicas_of(w: Workload, packed: Packed) -> Generated:
    """What the replicas of a step made, by the recipe's replicas: on the one that holds a replica's
    first GPU.
    """
    made, n = generated_of(packed.played), len(w.replicas)
    firsts = [replica[0] for replica in w.replicas]
    home = [
        int(np.searchsorted(firsts, replica[0], side="right")) - 1 for replica in packed.w.replicas
    ]
    owner = [
        int(np.searchsorted([r[0] for r in packed.w.replicas], first, side="right")) - 1
        for first in firsts
    ]
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


def _early(w: Workload, done: list[Packed], scheduled: Scheduled) -> Iterator[Span]:
    """The freed GPUs at work on gradients while the others generate; what they wait for groups is
    drawn after their work.
    """
    starts = {
        phase.step: phase.start for phase in scheduled.plan.phases if phase.kind == "generation"
    }
    for packed in done:
        if packed.freed and packed.early:
            gpus = tuple(gpu for r in packed.freed.freed for gpu in packed.w.replicas[r])
            busy = (
                packed.early
                * streamable(packed.trained)
                * len(packed.played.times)
                / len(packed.freed.freed)
            )
            yield Span(
                "training",
                gpus,
                starts[packed.number] + packed.freed.ready,
                busy,
                "training",
                packed.number,
            )


def _facts(done: list[Packed]) -> dict:
    return {
        "rounds": [packed.kind for packed in done],
        "tensor_parallelism": [packed.w.generation.tp for packed in done],
        "preemptions": [packed.played.preempted for packed in done],
        "longest_response_tokens": [int(packed.played.outputs.max()) for packed in done],
        "freed_at_share": [packed.freed.done if packed.freed else None for packed in done],
        "trained_early_share": [packed.early for packed in done],
    }

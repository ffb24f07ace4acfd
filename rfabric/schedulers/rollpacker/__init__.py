"""RollPacker (NSDI'26, arXiv 2509.21009): synchronous, on-policy RL whose long responses wait for
each other.

    rounds.py   tail batching: short rounds launch too much and keep what comes first; long rounds
                run what was left
    planner.py  parallelism planner: the rollout's tensor parallelism follows KV preemptions, one
                step late
    reward.py   reward scheduler: each response is judged when it is there, its time-out follows its
                prompt
    judge.py    a judge beside the actor, on the GPUs that generate
    stream.py   stream trainer: half of the GPUs leave the rollout early and compute gradients
    apart.py    the same where training has GPUs of its own: they begin on what is there
    sent.py     what a step sends, in waves where rewards or training do not wait

    steps = run(read_recipe("grpo-64"), seed=0, settings=RollpackerSettings(), steps=10)
    # what `--policy rollpacker,...` calls
    schedule(workload, seed, {"prompts": "1.5", "stream": "0"})
    schedule(workload, seed, {"judge": "Qwen2.5-7B"})

GPUs generate and train in turn in RollPacker (placement: colocated). Where a job keeps pools apart,
nothing is freed: training begins on groups that are there. A step takes rollout + what reward it
does not hide + training that is left + handover of the weights.
"""

from collections.abc import Iterator
from dataclasses import replace

from ...rl.phases import Step
from ...rl.workload import Workload
from ...trace import Span
from ..base import Scheduled, Settings, settings_of, spans_of
from .apart import Wave, trained_ahead, waves_of
from .judge import Judge, Verdicts, in_batches, verdicts
from .planner import replanned, with_tp
from .reward import Judges, judged, runs, timeout
from .rounds import ALIKE, LONG, PLAIN, SHORT, Books, draw, generated_of, launch, play, settled
from .sent import STREAMING, InWaves, on_replicas_of, plan_of, streaming_spans, trace_of
from .steps import SYNCHRONOUS, Packed, Rewards, RollpackerSettings, run, streamable
from .stream import may_free, projected_peak, streamed, work_done

__all__ = [
    "ALIKE", "LONG", "PLAIN", "SHORT", "STREAMING", "SYNCHRONOUS", "Books", "InWaves", "Judge",
    "Judges", "Packed", "Rewards", "RollpackerSettings", "Verdicts", "Wave", "draw", "generated_of",
    "in_batches", "judged", "launch", "may_free", "play", "projected_peak", "replanned", "run",
    "runs", "schedule", "settled", "streamed", "timeout", "trained_ahead", "verdicts", "waves_of",
    "with_tp", "work_done",
]  # fmt: skip


def schedule(w: Workload, seed: int, settings: Settings) -> Scheduled:
    """Short rounds that leave long responses to long rounds (arXiv 2509.21009).

    Its trace keeps the recipe's replicas: a step at another tp stands on theirs.
    """
    done = run(w, seed, settings_of("rollpacker", RollpackerSettings(), settings))
    steps = tuple(Step(packed.number, on_replicas_of(w, packed), packed.left) for packed in done)
    plan = plan_of(w, steps)
    pipeline = replace(plan, phases=tuple(p for p in plan.phases if p.kind != STREAMING))
    made = Scheduled(w, steps, plan, trace_of(w, steps, plan, seed), (), _facts(done))
    ahead = streaming_spans(w, steps, plan)
    spans = (*spans_of(w, steps, pipeline), *_early(w, done, made), *ahead)
    return replace(made, spans=spans)


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
        "judged_after_s": [packed.judged - packed.played.seconds for packed in done],
    }

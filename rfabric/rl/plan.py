"""The Plan: what the compute scheduler decides, phase by phase, and the window each phase is
predicted to last.

Each phase waits for others (`waits`); = is communication alone:

    sync             generation  |###### 0 ######|             |###### 1 ######|
                     training                    |### 0 ###|                   |### 1 ###|
                     weight sync                           |=|                           |=|

    one-step-off     generation  |###### 0 ######|###### 1 ######|   |###### 2 ######|
                     training                    |### 0 ###|         |### 1 ###|
                     weight sync                                 |=|                 |=|

    bounded-staleness, async: weights leave when a step is trained and come while replicas generate;
    of a staleness such as 0.5, half of a batch waits for an update more than the other half
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import RFabricError
from ..trace import PHASES, PhaseKey
from . import flows
from .environments import environments_exposed
from .exchanges import Repeated
from .in_flight import period
from .phases import MiniBatch, Step, handover, step_of
from .sharing import log_probs_exposed, update_exposed_sharded
from .timing import COMMUNICATION, PHASE_KINDS, phase_within, residuals
from .traffic import UpdateTraffic, generation_traffic, training_traffic, weight_levels
from .workload import Workload


@dataclass(frozen=True)
class Phase:
    """One phase: its GPUs (indices), start and seconds when nothing had to be sent.

    `comm` is what the bytes that compute cannot hide add (s) when only NICs limit them.
    """

    kind: str
    step: int
    gpus: tuple[int, ...]
    start: float
    seconds: float
    comm: float

    @property
    def window(self) -> float:
        """The time this phase is predicted to keep its demand."""
        return self.seconds + self.comm


@dataclass(frozen=True)
class Plan:
    """Phases over time."""

    phases: tuple[Phase, ...]

    @property
    def seconds(self) -> float:
        """The end of the last phase, of computing alone."""
        return max(p.start + p.seconds for p in self.phases)

    @property
    def windows(self) -> dict[PhaseKey, float]:
        """The predicted seconds of each phase, communication included."""
        return {PhaseKey(p.step, p.kind): p.window for p in self.phases}


# Seconds of computing of a phase of this kind, and what its bytes add.
PhaseTimes = Callable[[Workload, Step, str], tuple[float, float]]


def phase_order(w: Workload) -> list[PhaseKey]:
    """The phases of a job, each after those it waits for."""
    order: list[PhaseKey] = []
    made = 0
    for step in range(w.steps):
        upto = min(step + math.floor(w.ahead) + 1, w.steps)
        order += [PhaseKey(n, "generation") for n in range(made, upto)]
        order += [PhaseKey(step, "training"), PhaseKey(step, "weight_sync")]
        made = upto
    return order


def waits(w: Workload, phase: PhaseKey) -> list[PhaseKey]:
    """The phases after which `phase` may begin."""
    n, ahead = phase.step, w.steps_ahead
    if phase.phase == "generation":
        before = [PhaseKey(n - 1 - ahead, "weight_sync")]
        before += [PhaseKey(n - 1, "generation")] if ahead else []
    elif phase.phase == "training":
        before = [PhaseKey(n, "generation")]
        before += [PhaseKey(n - 1, "weight_sync")] if ahead else []
    else:
        before = [PhaseKey(n, "training")]
        before += [PhaseKey(n + 1, "generation")] if w.pipeline == "one-step-off" else []
    return [key for key in before if 0 <= key.step < w.steps]


def late(w: Workload, step: int) -> tuple[float, PhaseKey | None]:
    """The part of generation `step` that waits for a weight sync more than `waits` says, and that
    sync; None where there is none to wait for, or no such part.
    """
    whole = math.floor(w.ahead)
    sync = step - 1 - whole
    if w.ahead == whole or sync < 0:
        return 0.0, None
    return 1 - (w.ahead - whole), PhaseKey(sync, "weight_sync")


def refuse_parts(w: Workload) -> None:
    """RFabricError for a staleness that cuts batches, where a scheduler orders whole ones."""
    if w.ahead != w.steps_ahead:
        raise RFabricError(
            f"staleness: {w.staleness} cuts batches in two, and this scheduler orders whole ones; "
            f"use {w.steps_ahead}, or a plain scheduler such as async"
        )


def step_period(w: Workload, generation: float, training: float, weight_sync: float) -> float:
    """Seconds from one step to the next, once the pipeline is full, of phases that take so long (s)
    in every step.
    """
    if w.pipeline == "one-step-off":
        return max(generation, training) + weight_sync
    return period(generation, training + weight_sync, w.ahead)


def step_within(w: Workload, parts: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """(low, high) s of a step of phases that compute, and wait for bytes, so long (s): that of
    phases which are all as low, or all as high, as measurements of their kinds were.
    """
    ends = zip(*(phase_within(w, kind, *parts[kind]) for kind in PHASES), strict=True)
    low, high = (step_period(w, *phases) for phases in ends)
    return low, high


def plan_of(workload: Workload, seed: int = 0) -> Plan:
    """The schedule of generation, training and weight sync of every step."""
    return plan_of_steps(workload, [step_of(workload, seed, n) for n in range(workload.steps)])


def plan_of_steps(w: Workload, steps: Sequence[Step], lasts: PhaseTimes | None = None) -> Plan:
    """The plan of steps that are already drawn; `lasts` says what a phase takes where a scheduler
    has its own way.
    """
    lasts = lasts or phase_seconds
    train = tuple(range(w.cluster.training_gpus))
    generate = tuple(range(w.first_generation_gpu, w.gpus))
    gpus = {
        "generation": generate,
        "training": train,
        "weight_sync": train if w.colocated else train + generate,
    }
    phases: dict[PhaseKey, Phase] = {}
    for key in phase_order(w):
        before = [phases[other] for other in waits(w, key)]
        start = max((phase.start + phase.seconds for phase in before), default=0.0)
        seconds, comm = lasts(w, steps[key.step], key.phase)
        part, sync = late(w, key.step) if key.phase == "generation" else (0.0, None)
        if sync:  # as if it were made in one piece that ends when it does
            last = phases[sync]
            start = max(start, last.start + last.seconds - (1 - part) * seconds)
        phases[key] = Phase(key.phase, key.step, gpus[key.phase], start, seconds, comm)
    return Plan(tuple(phases.values()))


def plan_beside(
    w: Workload,
    steps: Sequence[Step],
    lasts: PhaseTimes,
    more: Callable[[Workload, Step, float], Iterable[Phase]],
) -> Plan:
    """`plan_of_steps` with the phases that a scheduler adds beside each generation: `more` makes
    them of a step and when it begins to generate (s).
    """
    pipeline = plan_of_steps(w, steps, lasts)
    starts = {p.step: p.start for p in pipeline.phases if p.kind == "generation"}
    added = (phase for step in steps for phase in more(w, step, starts[step.number]))
    return Plan((*pipeline.phases, *added))


def phase_seconds(w: Workload, step: Step, kind: str) -> tuple[float, float]:
    """Seconds of computing of a phase, and what its bytes add."""
    if kind == "generation":
        return step.generated.seconds, generation_comm(w, step)
    if kind == "training":
        return step.trained.seconds(w.training.buckets), training_comm(w, step)
    return sum(handover(w).values()), weight_sync_comm(w)


def generation_comm(w: Workload, step: Step) -> float:
    """What the slowest replica gets and sends: the KV cache of its prompts, to experts and to
    environments while it generates; when it is done, its all-reduces between servers, its calls for
    rewards and its experience (s).
    """
    sent = generation_traffic(w, step)
    alone = sent.kv, sent.tensor, sent.rewards, sent.experience
    experts = (loop.exposed(w) if loop else 0.0 for loop in sent.experts)
    ends = [
        time.seconds + max(beside) + sum(flows.wire_seconds(w, one) for one in others)
        for time, beside, others in zip(
            step.generated.times,
            zip(experts, environments_exposed(w, sent.environments), strict=True),
            zip(*alone, strict=True),
            strict=True,
        )
    ]
    return max(ends) - step.generated.seconds


def training_comm(w: Workload, step: Step) -> float:
    """The collectives of training that compute cannot hide (s)."""
    sent, batches = training_traffic(w, step), step.trained.mini_batches
    updates = sum(_update_comm(w, *update) for update in zip(batches, sent.updates, strict=True))
    return log_probs_exposed(w, sent.log_probs.loop, sent.log_probs.sharded) + updates


def _update_comm(w: Workload, batch: MiniBatch, sent: UpdateTraffic) -> float:
    """Exchanges of an update and what goes beside them: gradients, also behind them, or layers
    gathered and scattered; gradients of a tied embedding; parameters.
    """
    pieces = [Repeated((), 0, batch.piece)] * w.training.buckets
    beside = update_exposed_sharded(w, sent.loops or pieces, sent.sharded)
    after = (sent.embedding, flows.parameters(w))
    return beside + sum(flows.wire_seconds(w, some) for some in after)


def weight_sync_comm(w: Workload) -> float:
    """Its levels, one after the other."""
    return sum(flows.wire_seconds(w, flows.leaving(w, level.flows)) for level in weight_levels(w))


def within_of(w: Workload, plan: Plan) -> dict[str, dict]:
    """For a trace: the residuals of each phase, and of what bytes add to it; of a phase that a
    scheduler adds, those of what its GPUs do.
    """
    kinds = PHASE_KINDS | {COMMUNICATION: COMMUNICATION}
    said = {name: residuals(w, kind).shares() for name, kind in kinds.items()}
    for phase in plan.phases:
        trains = not w.colocated and max(phase.gpus, default=0) < w.cluster.training_gpus
        said.setdefault(phase.kind, said["training" if trains else "generation"])
    return said

"""The Plan: what the compute scheduler decides, phase by phase, and the window each phase is predicted to last.

Synchronous and on-policy; = is communication alone:

    generation  |#################|                       |####...
    training                      |##########|
    weight sync                              |=|
"""

from dataclasses import dataclass

from ..trace import PhaseKey
from . import flows
from .phases import MiniBatch, Step, step_of
from .weight_sync import STRATEGIES
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


def plan_of(workload: Workload, seed: int = 0) -> Plan:
    """The synchronous on-policy schedule: in each step generation, training, weight sync."""
    return plan_of_steps(workload, [step_of(workload, seed, n) for n in range(workload.steps)])


def plan_of_steps(w: Workload, steps: list[Step]) -> Plan:
    """The plan of steps that are already drawn."""
    train = tuple(range(w.cluster.training_gpus))
    generate = tuple(range(w.cluster.training_gpus, w.gpus))
    phases, now = [], 0.0
    for step in steps:
        for kind, gpus, seconds, comm in (
            ("generation", generate, step.generated.seconds, generation_comm(w, step)),
            ("training", train, step.trained.seconds(w.training.buckets), training_comm(w, step)),
            ("weight_sync", train + generate, 0.0, weight_sync_comm(w)),
        ):
            phases.append(Phase(kind, step.number, gpus, now, seconds, comm))
            now += seconds
    return Plan(tuple(phases))


def generation_comm(w: Workload, step: Step) -> float:
    """What the slowest replica sends when it is done: its all-reduces between servers, and its experience."""
    made = step.generated
    ends = []
    for r, time in enumerate(made.times):
        tensor = flows.tensor_generation(w, r, made.computed_tokens(r, w.generation.group_size))
        sent = flows.experience(w, r, made.response_tokens(r))
        ends.append(time.seconds + flows.wire_seconds(w, tensor) + flows.wire_seconds(w, sent))
    return max(ends) - made.seconds


def training_comm(w: Workload, step: Step) -> float:
    """The collectives of training that compute cannot hide."""
    t, trained = w.training, step.trained
    passes = [(trained.log_prob_tokens, t.log_prob_passes)]
    passes += [(batch.tokens, training_passes(w)) for batch in trained.mini_batches]
    exposed = [made(w, *each) for made in (flows.tensor_training, flows.experts_training) for each in passes]
    gradients = sum(_exposed_gradients(w, batch) for batch in trained.mini_batches)
    parameters = len(trained.mini_batches) * flows.wire_seconds(w, flows.parameters(w))
    return sum(flows.wire_seconds(w, turn) for turn in exposed) + gradients + parameters


def training_passes(w: Workload) -> int:
    """Passes of tensor-parallel traffic in an update: forward, backward, and forward again when recomputed."""
    return 3 if w.training.recompute == "full" else 2


def weight_sync_comm(w: Workload) -> float:
    """The levels of the strategy, one after the other."""
    return sum(flows.wire_seconds(w, level.flows) for level in STRATEGIES[w.weight_sync.strategy](w))


def _exposed_gradients(w: Workload, batch: MiniBatch) -> float:
    """Seconds from the end of the backward pass until the last bucket has been summed."""
    bucket = flows.wire_seconds(w, flows.gradients(w))
    sent = 0.0
    for i in range(w.training.buckets):
        sent = max(sent, (i + 1) * batch.piece) + bucket
    return sent - w.training.buckets * batch.piece

"""All that a step sends between servers, worked out once: plan, lowering and explanation read the
same.

    training_traffic(workload, step).updates[0].loops

`totals` counts the same bytes by closed form and reads none of this.
"""

from dataclasses import dataclass
from functools import lru_cache

from ..trace import Flows
from . import exchanges, flows, tied_embedding
from .environments import environment_loop, reward_calls
from .exchanges import Repeated
from .phases import MiniBatch, Step, Trained
from .prompts_apart import prompts_read
from .weight_sync import Level, levels
from .workload import Workload

# plan, lowering and explanation of a step follow one another; more would hold memory
STEPS_KEPT = 4


@dataclass(frozen=True, eq=False)
class GenerationTraffic:
    """By replica that decodes: the KV cache of prompts that others read, all-reduces of one wider
    than a server, tokens to experts dealt to several servers, turns of environments on CPU servers,
    calls for rewards, and its experience.
    """

    kv: tuple[Flows, ...]
    tensor: tuple[Flows, ...]
    experts: tuple[Repeated | None, ...]
    environments: tuple[Repeated | None, ...]
    rewards: tuple[Flows, ...]
    experience: tuple[Flows, ...]


@dataclass(frozen=True, eq=False)
class LogProbTraffic:
    """What the forward passes before the first update exchange, sharded layers (None: nothing), and
    activations between stages.
    """

    loop: Repeated | None
    sharded: Repeated | None
    pipeline: Flows

    @property
    def loops(self) -> list[Repeated]:
        """The loops that send something."""
        return [loop for loop in (self.loop, self.sharded) if loop]


@dataclass(frozen=True, eq=False)
class UpdateTraffic:
    """Of one update: a loop a bucket of gradients (none: layers exchange nothing), sharded layers,
    activations, gradients of a tied embedding.
    """

    loops: tuple[Repeated, ...]
    sharded: Repeated | None
    pipeline: Flows
    embedding: Flows


@dataclass(frozen=True, eq=False)
class TrainingTraffic:
    """What training sends, but for what is the same in each step: `flows.gradients`,
    `flows.parameters`.
    """

    log_probs: LogProbTraffic
    updates: tuple[UpdateTraffic, ...]

    @property
    def loops(self) -> list[Repeated]:
        """The loops that send something, in order."""
        every: list[Repeated | None] = [*self.log_probs.loops]
        for update in self.updates:
            every += [*update.loops, update.sharded]
        return [loop for loop in every if loop and loop.repeat]


@lru_cache(STEPS_KEPT)
def generation_traffic(w: Workload, step: Step) -> GenerationTraffic:
    """What the replicas of a step send; the step's `generated` must be dealt to the replicas of
    this very workload.
    """
    made, group, replicas = step.generated, w.generation.group_size, range(len(w.decoding))
    tokens = [made.computed_tokens(r, group) for r in replicas]
    prompts = [made.prompts[r][::group] for r in replicas]
    return GenerationTraffic(
        tuple(prompts_read(w, r, prompts[r].tolist()) for r in replicas),
        tuple(flows.tensor_generation(w, r, tokens[r]) for r in replicas),
        tuple(exchanges.of_replica(w, r, tokens[r], made.times[r].seconds) for r in replicas),
        tuple(environment_loop(w, made, r) for r in replicas),
        tuple(reward_calls(w, made, r) for r in replicas),
        tuple(flows.experience(w, r, made.response_tokens(r)) for r in replicas),
    )


@lru_cache(STEPS_KEPT)
def training_traffic(w: Workload, step: Step) -> TrainingTraffic:
    """What the training of a step sends."""
    trained = step.trained
    updates = (_update(w, batch, trained) for batch in trained.mini_batches)
    return TrainingTraffic(_log_probs(w, trained), tuple(updates))


@lru_cache(2)
def weight_levels(w: Workload) -> tuple[Level, ...]:
    """What a weight sync sends: the levels of the strategy; where generation is colocated, what
    resharding moves.

    Sharded parameters are gathered by all that train before any leaves; in p2p each rank sends its
    own.
    """
    if w.colocated:
        return (Level("weights", flows.reshard(w)),)
    gathered = flows.gathered(w) if w.weight_sync.strategy != "p2p" else flows.NONE
    first = [Level("gather", gathered)] if len(gathered.src) else []
    return (*first, *levels(w))


def _log_probs(w: Workload, trained: Trained) -> LogProbTraffic:
    forward = flows.pipeline(w, trained.log_prob_tokens, w.training.log_prob_passes, 0)
    sharded = exchanges.of_sharded_ahead(w, trained)
    return LogProbTraffic(exchanges.of_log_probs(w, trained), sharded, forward)


def _update(w: Workload, batch: MiniBatch, trained: Trained) -> UpdateTraffic:
    return UpdateTraffic(
        tuple(exchanges.of_update(w, batch, trained.routing)),
        exchanges.of_sharded(w, batch),
        flows.pipeline(w, batch.tokens, 1, 1),
        flows.NONE if batch.critic else tied_embedding.summed(w),
    )

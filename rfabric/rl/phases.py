"""What one RL step computes and how long each part takes: responses drawn, dealt to replicas and to
training ranks.

The reward is a rule and takes no time; lengths within a group are drawn independently. With
pipeline `async` responses go on over weight updates, others take the place of those that end, of as
many batches as the staleness lets be under way, and a replica's step takes what its tokens take at
that many at once:

    seconds = prefill + tokens x decode step of n responses / n
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..compute.memory import engine_weight_bytes
from ..compute.serving import ReplicaTime
from ..compute.sync_time import SOFTWARE, expert_tensors
from ..compute.training import PassSeconds, bubble_share, host_optimizer_seconds, optimizer_seconds
from .padding import Ranks, ranks_of
from .popularity import imbalance, routing
from .sections import Generation
from .timing import decode_step, passes_of, prefill_seconds, replica_time, trainer_of
from .weight_sync import software_seconds
from .workload import Workload

# Weights that colocated GPUs take over from training, bytes/s a GPU: 26.6 GB in 3.47 s and 58.8 GB
# in 6.22 s on 8 H800 (github.com/MoonshotAI/checkpoint-engine README, GLM-4.5-Air and
# Qwen3-235B-A22B).
RESHARD_BYTES_PER_S = 8.5e9
# Training states that leave the HBM for generation and come back, bytes/s a GPU: 4.1 GB to and fro
# make a weight sync 3.7 s longer (verl delta_weight_sync, Qwen2.5-32B on 16 H100, offload on and
# off).
OFFLOAD_BYTES_PER_S = 2.2e9
ROUNDING = 1e-12  # relative: of seconds that are alike


@dataclass(frozen=True, eq=False)
class Generated:
    """One step's responses, by replica: `prompts[r]`, `outputs[r]` tokens (int64), and the time of
    each replica.

    reading: seconds in which others read its prompts, where they do; its time holds as idle what it
    waits for them and for those whose turn was before.
    """

    prompts: list[np.ndarray]
    outputs: list[np.ndarray]
    times: list[ReplicaTime]
    reading: tuple[float, ...] = ()

    @cached_property
    def first_responses(self) -> np.ndarray:
        """int64[replicas + 1]: the first response of the step that each replica has, and how many
        there are.
        """
        return np.cumsum([0, *map(len, self.outputs)])

    @property
    def seconds(self) -> float:
        """When the last replica is done."""
        return max(t.seconds for t in self.times)

    def response_tokens(self, replica: int) -> int:
        """Tokens of a replica's responses."""
        return int(self.outputs[replica].sum())

    def prompt_tokens(self, replica: int, group_size: int) -> int:
        """Tokens of the prompts of a replica's responses, each group's once."""
        return int(self.prompts[replica][::group_size].sum())

    def computed_tokens(self, replica: int, group_size: int) -> int:
        """Tokens a replica passed through the model: each group's prompt once, and every
        response.
        """
        return self.prompt_tokens(replica, group_size) + self.response_tokens(replica)


def _slowest(took: np.ndarray, passes: PassSeconds) -> int:
    """The rank that takes the longest; of those that wait alike for their hosts, the one that
    computes the most.
    """
    longest = took >= took.max() * (1 - ROUNDING)
    return int(np.where(longest, passes.seconds - passes.host, -1.0).argmax())


@dataclass(frozen=True, eq=False)
class MiniBatch:
    """One optimizer update, by data-parallel rank: seconds `first` and `tokens` (float64[dp] both).

    `first` ends where the backward pass of the last micro-batch begins, which takes all ranks the
    same and comes in `buckets` pieces of `piece` s. `ahead`, `back`: the forward and the backward
    pass by rank; `critic`: a critic learns, not the policy.
    """

    first: np.ndarray
    piece: float
    tokens: np.ndarray
    micro_batches: int
    ahead: PassSeconds
    back: PassSeconds
    critic: bool = False

    @property
    def slowest(self) -> tuple[PassSeconds, PassSeconds]:
        """The forward and the backward pass of the rank that takes the longest."""
        rank = _slowest(self.first, self.ahead + self.back)
        return self.ahead.of_rank(rank), self.back.of_rank(rank)

    @property
    def passes(self) -> PassSeconds:
        """Both passes of the slowest rank."""
        ahead, back = self.slowest
        return ahead + back

    @property
    def forward_share(self) -> float:
        """Share of the forward pass in the seconds of both."""
        ahead, back = self.slowest
        return ahead.seconds / (ahead + back).seconds

    def seconds(self, buckets: int) -> float:
        """Until the slowest rank is through, its last pass in `buckets` pieces, s."""
        return float(self.first.max()) + buckets * self.piece


@dataclass(frozen=True, eq=False)
class Trained:
    """One step's training: log-probabilities, then mini-batches and their optimizer steps.

    log_prob (s), log_prob_tokens: float64[dp]; log_prob_pass: one by rank, by what takes it;
    log_prob_micro_batches: of one pass; routing: who takes the tokens, see `popularity.routing`.
    """

    log_prob: np.ndarray
    log_prob_tokens: np.ndarray
    log_prob_pass: PassSeconds
    log_prob_micro_batches: int
    mini_batches: list[MiniBatch]
    optimizer: float
    routing: np.ndarray | None = None

    @property
    def slowest_log_prob_pass(self) -> PassSeconds:
        """That of the rank that takes the longest."""
        return self.log_prob_pass.of_rank(_slowest(self.log_prob, self.log_prob_pass))

    def seconds(self, buckets: int) -> float:
        """Seconds of computing alone."""
        updates = sum(b.seconds(buckets) + self.optimizer for b in self.mini_batches)
        return float(self.log_prob.max()) + updates


@dataclass(frozen=True, eq=False)
class Step:
    """The computing of one RL step."""

    number: int
    generated: Generated
    trained: Trained


def step_of(w: Workload, seed: int, number: int) -> Step:
    """Draw the responses of step `number` and work out its computing; a (seed, step) always gives
    the same.
    """
    prompts, outputs = responses(w, seed, number)
    trained = trained_on(w, trained_lengths(w, prompts, outputs), routing(w, seed, number))
    return Step(number, _generate(w, prompts, outputs), trained)


def trained_lengths(w: Workload, prompts: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Tokens of the sequences that a step with these responses is trained on (float64[responses]),
    with what environments said.
    """
    g = w.generation
    return (prompts + outputs + g.heard).astype(float)[: g.responses]


def responses(w: Workload, seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of the prompt and of the response of each sequence that step `number` rolls out
    (int64 both); those that it is trained on come first.
    """
    random, g = np.random.default_rng([seed, number]), w.generation
    drawn = [_drawn(g, random, n) for n in (g.batch, g.rolled_out - g.batch) if n]
    return np.concatenate([p for p, _ in drawn]), np.concatenate([o for _, o in drawn])


def _drawn(g: Generation, random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The responses to `n` prompts."""
    prompts = np.repeat(g.prompt_lengths.sample(random, n, g.max_prompt), g.group_size)
    return prompts, g.lengths.sample(random, len(prompts), g.max_response)


def _generate(w: Workload, prompts: np.ndarray, outputs: np.ndarray) -> Generated:
    """Whole groups go to replicas, in order, as evenly as they divide; where there are more
    replicas than groups, single responses do.
    """
    whole = w.generation.group_size if w.generation.rolled_out >= len(w.decoding) else 1
    parts = np.array_split(np.arange(len(outputs) // whole), len(w.decoding))
    cuts = [int(part[0]) * whole for part in parts[1:]]
    per_prompt, per_output = np.split(prompts, cuts), np.split(outputs, cuts)
    time = steady_time if w.pipeline == "async" else replica_time
    times = [time(w, p, o) for p, o in zip(per_prompt, per_output, strict=True)]
    if not w.prefilling:
        return Generated(per_prompt, per_output, times)
    reading = tuple(_reading(w, p) for p in per_prompt)
    waits = zip(times, ready_at(w, reading), strict=True)
    times = [t._replace(idle=t.idle + ready) for t, ready in waits]
    return Generated(per_prompt, per_output, times, reading)


def _reading(w: Workload, prompts: np.ndarray) -> float:
    """Seconds of a replica that reads these prompts, one after the other, each group's once."""
    return sum(prefill_seconds(w, float(prompt)) for prompt in prompts[:: w.generation.group_size])


def ready_at(w: Workload, reading: Sequence[float]) -> list[float]:
    """When the prompts of each replica are read: those that read take the replicas in turn."""
    count = len(w.prefilling)
    return [sum(reading[r % count : r + 1 : count]) for r in range(len(reading))]


def steady_time(w: Workload, prompts: np.ndarray, outputs: np.ndarray) -> ReplicaTime:
    """These responses on a replica whose batch never runs dry: as many decode at once as are asked
    for by all steps that may be under way, fit, and have slots.
    """
    n, context = under_way(w, prompts, outputs)
    decode = float((outputs - 1).sum()) * decode_step(w).seconds(n, n * context) / n
    return ReplicaTime(_reading(w, prompts), decode, int(n * context))


def under_way(w: Workload, prompts: np.ndarray, outputs: np.ndarray) -> tuple[int, float]:
    """How many such responses a replica decodes at once, and their mean context (tokens)."""
    # of a response met while it decodes
    context = float((outputs * (prompts + outputs / 2)).sum() / outputs.sum())
    asked = int(len(outputs) * max(1, w.ahead))
    return max(1, min(asked, w.slots, int(w.kv_capacity_tokens / context))), context


def trained_on(w: Workload, lengths: np.ndarray, shares: np.ndarray | None = None) -> Trained:
    """The training of one step on sequences of `lengths` tokens (float64[responses]); `shares`: a
    `popularity.routing`.
    """
    ranks = ranks_of(w, lengths, w.training.log_prob_micro_batch)
    ahead, _ = _passes(w, ranks, imbalance(shares))
    micro, passes = ranks.micro_batches, w.training.log_prob_passes
    bubble = bubble_share(trainer_of(w).layout, micro, ahead.logits_share, backward=False)
    log_prob = passes * ahead.seconds * (1 + bubble)
    updates = [_mini_batch(w, part, imbalance(shares)) for part in w.in_updates(lengths)]
    updates *= w.training.epochs
    updates += [replace(batch, critic=True) for batch in updates] if w.training.critic else []
    seconds = host_optimizer_seconds if w.training.host_optimizer else optimizer_seconds
    optimizer = seconds(trainer_of(w), w.training.optimizer == "replicated")
    return Trained(log_prob, ranks.tokens, ahead, micro, updates, optimizer, shares)


def _mini_batch(w: Workload, lengths: np.ndarray, hottest: float) -> MiniBatch:
    ranks = ranks_of(w, lengths, w.training.micro_batch)
    ahead, back = _passes(w, ranks, hottest)
    layout, micro, both = trainer_of(w).layout, ranks.micro_batches, ahead + back
    # of the slowest stage, which has the most gradients to send beside it
    last = float(np.min(layout.slowest(back.logits_share) * back.seconds)) / micro
    whole = both.seconds * (1 + bubble_share(layout, micro, both.logits_share))
    return MiniBatch(whole - last, last / w.training.buckets, ranks.tokens, micro, ahead, back)


def _passes(w: Workload, ranks: Ranks, hottest: float) -> tuple[PassSeconds, PassSeconds]:
    """The forward and the backward pass by rank."""
    return passes_of(w, ranks.tokens, ranks.squares, ranks.micro_batches, hottest)


def handover(w: Workload) -> dict[str, float]:
    """Seconds of a weight sync beside the wire, by what takes them.

    Colocated: training states leave the HBM and come back, each GPU takes over its part of the
    weights, of which experts come tensor by tensor unless a bucket at once is gathered. Else:
    gathering, packing and loading.
    """
    if not w.colocated:
        return {"load": software_seconds(w)}
    g = w.generation
    moved = 2 * max(
        states["parameters"] + states["optimizer"] + states.get("critic", 0.0)
        for states in w.stage_bytes
    )
    taken = w.synced * engine_weight_bytes(w.model, g.tp, ep=g.gpus)
    seconds = {"offload": moved / OFFLOAD_BYTES_PER_S, "reshard": taken / RESHARD_BYTES_PER_S}
    if w.model.experts and w.weight_sync.gather == "tensor":
        each = SOFTWARE.local_tensor if experts_in_servers(w) else SOFTWARE.tensor
        seconds["experts"] = each * expert_tensors(w.model)
    return seconds


def experts_in_servers(w: Workload) -> bool:
    """Whether the ranks that share the experts of a layer share a server as well."""
    return w.training.expert_gpus <= w.gpus_per_server

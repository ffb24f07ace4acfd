"""What one RL step computes and how long each part takes: responses drawn, dealt to replicas and to training ranks.

Synchronous and on-policy: generation -> training -> weight sync, one after the other. The reward is a rule and takes
no time; lengths within a group are drawn independently.
"""

from dataclasses import dataclass

import numpy as np

from .roofline import ReplicaTime, backward_factor, forward_seconds, optimizer_seconds, replica_time
from .workload import Workload


@dataclass(frozen=True, eq=False)
class Generated:
    """One step's responses, by replica: `prompts[r]`, `outputs[r]` tokens (int64), and the time of each replica."""

    prompts: list[np.ndarray]
    outputs: list[np.ndarray]
    times: list[ReplicaTime]

    @property
    def seconds(self) -> float:
        """When the last replica is done."""
        return max(t.seconds for t in self.times)

    def response_tokens(self, replica: int) -> int:
        """Tokens of a replica's responses."""
        return int(self.outputs[replica].sum())

    def computed_tokens(self, replica: int, group_size: int) -> int:
        """Tokens a replica passed through the model: each group's prompt once, and every response."""
        return int(self.prompts[replica][::group_size].sum()) + self.response_tokens(replica)


@dataclass(frozen=True, eq=False)
class MiniBatch:
    """One optimizer update, by data-parallel rank: seconds `first` and `tokens` (float64[dp] both).

    `first` ends where the backward pass of the last micro-batch begins, which takes all ranks the same and comes in
    `buckets` pieces of `piece` s.
    """

    first: np.ndarray
    piece: float
    tokens: np.ndarray
    micro_batches: int

    def seconds(self, buckets: int) -> float:
        return float(self.first.max()) + buckets * self.piece


@dataclass(frozen=True, eq=False)
class Trained:
    """One step's training: log-probabilities (s, tokens: float64[dp]), then mini-batches and their optimizer steps."""

    log_prob: np.ndarray
    log_prob_tokens: np.ndarray
    mini_batches: list[MiniBatch]
    optimizer: float

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
    """Draw the responses of step `number` and work out its computing; a (seed, step) always gives the same."""
    random = np.random.default_rng([seed, number])
    g = w.generation
    prompts = np.repeat(g.prompt_lengths.sample(random, g.batch, g.max_prompt), g.group_size)
    outputs = g.lengths.sample(random, g.responses, g.max_response)
    return Step(number, _generate(w, prompts, outputs), _train(w, (prompts + outputs).astype(float)))


def _generate(w: Workload, prompts: np.ndarray, outputs: np.ndarray) -> Generated:
    """Whole groups go to replicas, in order, as evenly as they divide."""
    groups = np.array_split(np.arange(w.generation.batch), len(w.replicas))
    cuts = [int(part[0]) * w.generation.group_size for part in groups[1:]]
    per_prompt, per_output = np.split(prompts, cuts), np.split(outputs, cuts)
    times = [replica_time(w, p, o) for p, o in zip(per_prompt, per_output, strict=True)]
    return Generated(per_prompt, per_output, times)


def _train(w: Workload, lengths: np.ndarray) -> Trained:
    forward, tokens, micro = _forward(w, lengths)
    log_prob = w.training.log_prob_passes * forward * _bubble(w, micro)
    updates = [_mini_batch(w, part) for part in np.split(lengths, w.training.mini_batches)]
    return Trained(log_prob, tokens, updates, optimizer_seconds(w))


def _mini_batch(w: Workload, lengths: np.ndarray) -> MiniBatch:
    forward, tokens, micro = _forward(w, lengths)
    backward = backward_factor(w)
    last = float(forward.min()) * backward / micro
    first = forward * (1 + backward) * _bubble(w, micro) - last
    return MiniBatch(first, last / w.training.buckets, tokens, micro)


def _forward(w: Workload, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """(forward seconds, tokens) by data-parallel rank, and how many micro-batches the fullest rank needs."""
    ranks = balance(lengths, w.dp)
    tokens = np.array([lengths[r].sum() for r in ranks])
    forward = np.array([forward_seconds(w, lengths[r].sum(), (lengths[r] ** 2).sum()) for r in ranks])
    return forward, tokens, int(-(-tokens.max() // (w.training.micro_batch_tokens * w.training.cp)))


def _bubble(w: Workload, micro_batches: int) -> float:
    """How much longer a pipeline takes than its work: pp - 1 micro-batches to fill and drain (GPipe, 1F1B)."""
    return (micro_batches + w.training.pp - 1) / micro_batches


def balance(lengths: np.ndarray, ranks: int) -> list[np.ndarray]:
    """Sequences dealt to ranks, longest first to the rank with fewest tokens: verl's balance_batch does the like."""
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    load = np.zeros(ranks)
    for i in np.argsort(-lengths, kind="stable").tolist():
        rank = int(load.argmin())
        dealt[rank].append(i)
        load[rank] += lengths[i]
    return [np.array(part, dtype=np.int64) for part in dealt]

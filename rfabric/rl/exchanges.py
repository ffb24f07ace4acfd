"""What training sends while it computes, layer by layer, as loops that plan, lowering and
explanation all read.

    tensor          all-reduces of activations, where tp is wider than a server:
                    computing, then the collective
    context         keys and values, where cp is wider than a server: a ring turns beside its
                    attention, after the other computing; all-to-alls follow computing
    all-to-all      tokens to their experts and back, where ep is wider than a server:
                    computing, then the collective; beside computing with overlap_batches
    all-gather,     parameters and gradients of a layer, where the optimizer is sharded:
    reduce-scatter, beside computing, in a loop of its own
    all-reduce
    all-reduce      gradients of a micro-batch, where only they are sharded: bucket after bucket,
                    each beside the next piece of the backward pass

    an update of M micro-batches:
    |..first pieces and micro-batches, piece 1 of the last backward..|..piece 2..|..piece 3..|
     loop 1: M x layers x passes, less what follows                   loop 2      loop 3
    gradients:                                          bucket 1 ---> bucket 2 -> bucket 3 ->

Each layer of each pass exchanges: forward, backward, and forward again where activations are
recomputed. Stages and groups keep step, so that a loop is all that the training GPUs send at once;
the computing of their slowest is dealt evenly over its turns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..compute.expert_exchange import DISPATCH_AND_COMBINE
from ..compute.layout import ALL_REDUCES_PER_LAYER
from ..compute.training import PassSeconds
from ..trace import Flows
from . import flows
from .phases import MiniBatch, Trained
from .workload import Workload

EXPERTS = "all-to-all"
CONTEXT = "context"
FFN = "ffn"
HALVES = 2  # of a batch, one of which computes while the tokens of the other travel


@dataclass(frozen=True, eq=False)
class Turn:
    """A collective: what one repetition sends, and which share of the computing goes before it, and
    which beside it.
    """

    label: str
    flows: Flows
    before: float
    beside: float = 0.0


@dataclass(frozen=True, eq=False)
class Repeated:
    """Turns that run `repeat` times, and `seconds` of computing in all, dealt over them.

    repeat 0: nothing is sent, there is only the computing.
    """

    turns: tuple[Turn, ...]
    repeat: int
    seconds: float

    def before(self, turn: Turn) -> float:
        """Seconds of computing before one run of a turn."""
        return self.seconds * turn.before / self.repeat

    def beside(self, turn: Turn) -> float:
        """Seconds of computing that run beside it."""
        return self.seconds * turn.beside / self.repeat

    def split(self, late: float) -> "tuple[Repeated, Repeated]":
        """All but its last part, and its share `late` of the computing with as many of the runs."""
        runs = round(late * self.repeat)
        first = Repeated(self.turns, self.repeat - runs, (1 - late) * self.seconds)
        return first, Repeated(self.turns, runs, late * self.seconds)

    def exposed(self, w: Workload) -> float:
        """What the bytes add to the computing when nothing but NICs limits them (s)."""
        hidden = ((turn, self.beside(turn)) for turn in self.turns if self.repeat)
        return self.repeat * sum(
            max(0.0, flows.wire_seconds(w, turn.flows) - beside) for turn, beside in hidden
        )


@dataclass(frozen=True, eq=False)
class _Body:
    """The turns of a body by label, with the bytes of all repetitions; `once`: repetitions in one
    pass of one micro-batch; `attention`: its share of the computing, beside which rings turn.

    `once` is not whole where layers do not divide by stages, or by the layers told apart.
    """

    turns: tuple[tuple[str, Flows], ...]
    once: float
    attention: float = 0.0

    def repeated(
        self, w: Workload, passes: int, micro_batches: int
    ) -> tuple[tuple[Turn, ...], int]:
        """Turns with the bytes of one repetition, and how many there are in so many passes."""
        halved = w.training.overlap_batches
        repeat = max(1, round(self.once * passes * micro_batches * (HALVES if halved else 1)))
        return tuple(
            Turn(label, _scaled(sent, 1 / repeat), *shares)
            for (label, sent), shares in zip(self.turns, self._shares(halved), strict=True)
        ), repeat

    def _shares(self, halved: bool) -> list[tuple[float, float]]:
        """Of the computing, what goes before each turn and what beside it; with halves, all of it
        beside what goes to experts.
        """
        labels = [label for label, _ in self.turns]
        if halved and EXPERTS in labels:
            count = labels.count(EXPERTS)
            return [(0.0, float(label == EXPERTS) / count) for label in labels]
        hidden = self.attention / max(1, labels.count(CONTEXT))
        each = (1 - hidden * labels.count(CONTEXT)) / len(labels)
        return [(each, hidden if label == CONTEXT else 0.0) for label in labels]


def of_replica(w: Workload, replica: int, tokens: int, seconds: float) -> Repeated | None:
    """What a replica sends to experts in other servers while it generates, a turn for all its
    passes through a layer; to an FFN apart, beside computing, as the halves of a batch take turns.
    None where nothing leaves a server.
    """
    apart = flows.ffn_generation(w, replica, tokens)
    if len(apart.src):
        repeat = HALVES * w.model.layers
        return Repeated((Turn(FFN, _scaled(apart, 1 / repeat), 0.0, 1.0),), repeat, seconds)
    sent = flows.experts_generation(w, replica, tokens)
    if not len(sent.src):
        return None
    layers = w.model.experts.layers
    return Repeated((Turn(EXPERTS, _scaled(sent, 1 / layers), 1.0),), layers, seconds)


def training_passes(w: Workload) -> int:
    """Passes of exchanges in an update: forward, backward, and forward again when recomputed."""
    return 3 if w.training.recompute == "full" else 2


def of_log_probs(w: Workload, trained: Trained) -> Repeated | None:
    """What forward passes alone exchange; None where nothing leaves a server."""
    passes = w.training.log_prob_passes
    share = _hides(w, trained.slowest_log_prob_pass)
    ahead = (passes, 0)
    body = _body(w, trained.log_prob_tokens, ahead, trained.routing, share) if passes else None
    if not body:
        return None
    made = body.repeated(w, passes, trained.log_prob_micro_batches)
    return Repeated(*made, float(trained.log_prob.max()))


def of_update(w: Workload, batch: MiniBatch, routing: np.ndarray | None) -> list[Repeated]:
    """What an update exchanges, by the bucket of gradients that leaves after it; none where nothing
    leaves a server.
    """
    passes, pieces = training_passes(w), w.training.buckets
    body = _body(w, batch.tokens, (passes - 1, 1), routing, _hides(w, batch.passes))
    if not body:
        return []
    turns, repeat = body.repeated(w, passes, batch.micro_batches)
    # how many of them are in the last backward pass
    last = round(repeat * (passes - 1) / (passes * batch.micro_batches))
    cuts = [repeat - last + last * i // pieces for i in range(1, pieces + 1)]
    counts = [b - a for a, b in zip([0, *cuts[:-1]], cuts, strict=True)]
    seconds = [float(batch.first.max()) + batch.piece, *[batch.piece] * (pieces - 1)]
    return [Repeated(turns, n, s) for n, s in zip(counts, seconds, strict=True)]


def of_sharded(w: Workload, batch: MiniBatch) -> Repeated | None:
    """Parameters gathered for each layer, forward and backward, its gradients scattered and summed
    over copies, in every micro-batch.

    All run beside the computing of a neighbouring layer. The first gather of a pass has none before
    it: one in `layers`, left out.
    """
    sent = flows.sharded(w) if w.training.optimizer in ("zero2", "sharded") else {}
    sums = w.training.sums_each_micro_batch
    sent = {k: one for k, one in sent.items() if len(one.src) and (sums or k == "all-gather")}
    if not sent:
        return None
    if w.training.optimizer == "zero2":
        return _of_buckets(w, batch, sent)
    repeat = max(1, round(batch.micro_batches * w.model.layers / w.training.pp))
    each = batch.micro_batches / repeat
    again = {"all-gather": flows.gathered_again(w)} if "all-gather" in sent else {}
    backward = {label: _scaled(one, each) for label, one in (sent | again).items()}
    lasts = {label: flows.wire_seconds(w, one) for label, one in backward.items()}
    # dealt in proportion: those of a layer hide behind it together
    back = (1 - batch.forward_share) / sum(lasts.values())
    turns = [Turn(label, one, 0.0, back * lasts[label]) for label, one in backward.items()]
    if again:
        ahead = _scaled(sent["all-gather"], each)
        turns.insert(0, Turn("all-gather", ahead, 0.0, batch.forward_share))
    else:  # shards of a server: nothing is sent forward
        turns[0] = replace(turns[0], before=batch.forward_share)
    return Repeated(tuple(turns), repeat, batch.seconds(w.training.buckets))


def _of_buckets(w: Workload, batch: MiniBatch, sent: dict[str, Flows]) -> Repeated:
    """Gradients of each micro-batch, a bucket after each piece of its backward pass, which the next
    piece hides; DeepSpeed waits for the last (independent_gradient_partition_epilogue in
    runtime/zero/stage_1_and_2.py).
    """
    ((label, summed),) = sent.items()
    buckets, seconds = w.training.buckets, batch.seconds(w.training.buckets)
    piece = batch.piece * batch.micro_batches / seconds
    one, before = _scaled(summed, 1 / buckets), 1 - (buckets - 1) * piece
    shares = zip([before] + [0.0] * (buckets - 1), [piece] * (buckets - 1) + [0.0], strict=True)
    turns = tuple(Turn(label, one, *share) for share in shares)
    return Repeated(turns, batch.micro_batches, seconds)


def of_sharded_ahead(w: Workload, trained: Trained) -> Repeated | None:
    """Parameters gathered for each layer in every micro-batch of the passes for log-probabilities,
    beside the computing of the layer before; those outside of layers stay gathered for all of a
    pass.
    """
    passes = w.training.log_prob_passes
    micro = passes * trained.log_prob_micro_batches
    if not micro or w.training.optimizer != "sharded":
        return None
    whole, layers = flows.arrays(flows.sharded(w)["all-gather"]), flows.gathered_again(w)
    if not len(whole.src):
        return None
    repeat = max(1, round(micro * w.model.layers / w.training.pp))
    size = passes * whole.size + (micro - passes) * layers.size
    turn = Turn("all-gather", Flows(whole.src, whole.dst, size / repeat), 0.0, 1.0)
    return Repeated((turn,), repeat, float(trained.log_prob.max()))


def _hides(w: Workload, passes: PassSeconds) -> float:
    """Share of the computing that rings of keys and values run beside: attention, where the job's
    passes say what it takes.
    """
    return passes.attention / passes.seconds if w.training.context_exchange == "ring" else 0.0


def _body(
    w: Workload,
    tokens: Sequence[float],
    both: tuple[int, int],
    routing: np.ndarray | None,
    attention: float,
) -> _Body | None:
    """What `both` passes, forward and backward, over `tokens` (one count a data-parallel rank)
    exchange between servers; None: nothing.

    Where routing is even, the dispatch and combine of all layers are alike, so that one turn stands
    for either. `attention`: its share of the computing.
    """
    t, m, passes = w.training, w.model, sum(both)
    context = flows.context_training(w, tokens, *both)
    tensor = flows.tensor_training(w, tokens, passes)
    even = flows.experts_training(w, tokens, passes)
    if len(context.src) and not len(even.src):
        turns = [turn for turn in ((CONTEXT, context), ("tensor", tensor)) if len(turn[1].src)]
        return _Body(tuple(turns), m.layers / t.pp, attention)
    if not len(even.src):
        times = ALL_REDUCES_PER_LAYER * m.layers / t.pp
        return _Body((("tensor", tensor),), times) if len(tensor.src) else None
    if routing is None and not len(tensor.src) and not len(context.src):
        return _Body(((EXPERTS, even),), DISPATCH_AND_COMBINE * m.experts.layers / t.pp)
    told_apart = [None] if routing is None else list(routing)
    turns = []
    for shares in told_apart:
        there, back = (
            _sending(flows.dispatch(w, tokens, passes, shares, way)) for way in (False, True)
        )
        turns += [(CONTEXT, context), ("tensor", tensor), (EXPERTS, there), (EXPERTS, back)]
    turns = [(label, _scaled(one, 1 / len(told_apart))) for label, one in turns if len(one.src)]
    once = m.experts.layers / t.pp / len(told_apart)
    return _Body(tuple(turns), once, attention if len(context.src) else 0.0)


def _scaled(some: Flows, times: float) -> Flows:
    return Flows(some.src, some.dst, np.multiply(times, some.size))


def _sending(some: Flows) -> Flows:
    """Without the pairs that send nothing, as experts that are never chosen."""
    kept = np.flatnonzero(some.size)
    return Flows(*(np.asarray(column)[kept] for column in some)) if len(kept) else flows.NONE

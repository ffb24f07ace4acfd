"""Every second of a step by the term that made it, and where the numbers of that term are from.

    for phase in accounts(workload):
        for term in phase.terms:
            term.part, term.term, term.seconds, term.sources

Terms are worked out from the model's own pieces: step by step of the replica that is done last,
pass by pass of the slowest data-parallel rank, transfer by transfer; a phase's seconds are the
plan's, its bytes' included. Both must agree.

What hides behind something else has no term. Where several things go on beside one another, a term
is what it adds to those named before it: gradients to what layers exchange, layers gathered and
scattered to both.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import fsum, isclose

import numpy as np

from ..compute.gpus import KERNEL_S
from ..compute.training import PassSeconds, bubble_share, pass_kernels
from ..errors import RunError
from ..trace import PHASES
from . import exchanges, flows
from .cited import cited
from .environments import environments_exposed
from .exchanges import Repeated
from .phases import Generated, MiniBatch, Step, handover, ready_at, step_of, under_way
from .plan import phase_seconds
from .sharing import log_probs_exposed, update_exposed, update_exposed_sharded
from .sources import Source, source_of
from .step_terms import played_steps, reading_steps, seconds_by_term, steady_steps
from .timing import trainer_of
from .traffic import (
    LogProbTraffic,
    UpdateTraffic,
    generation_traffic,
    training_traffic,
    weight_levels,
)
from .weight_sync import software_parts
from .workload import Workload

ROUNDING = 1e-9  # relative: of sums in another order
NOTHING = 1e-12  # relative: what of a phase is rounding alone
AccountSeconds = dict[tuple[str, str], float]  # part of a phase, term


@dataclass(frozen=True)
class Term:
    """Seconds of one kind in a `part` of a phase; `sources`: names of `sources.source_of`."""

    part: str
    term: str
    seconds: float
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Account:
    """A phase: `seconds` as the plan has them, what bytes add included, and the terms that add up
    to them, none of 0 s.
    """

    phase: str
    seconds: float
    terms: tuple[Term, ...]


def accounts(workload: Workload, seed: int = 0) -> list[Account]:
    """Of each phase of the first step; RunError where terms do not add up to the plan's seconds."""
    step = step_of(workload, seed, 0)
    return [account_of(workload, step, phase) for phase in PHASES]


def account_of(w: Workload, step: Step, phase: str) -> Account:
    """Of one phase of a step; RunError where its terms do not add up to the plan's seconds."""
    made = {"generation": _generation, "training": _training}.get(phase)
    seconds = made(w, step) if made else _weight_sync(w)
    planned = sum(phase_seconds(w, step, phase))
    terms = tuple(
        Term(part, term, took, cited(w, part, term))
        for (part, term), took in seconds.items()
        if abs(took) > NOTHING * planned
    )
    total = fsum(term.seconds for term in terms)
    if not isclose(total, planned, rel_tol=ROUNDING):
        raise RunError(
            f"terms of {phase} add up to {total!r} s, the plan says {planned!r} s: a term is "
            "missing or counted twice"
        )
    return Account(phase, planned, terms)


def sources_of(w: Workload, accounts: Iterable[Account]) -> dict[str, Source]:
    """The sources of all terms by their names, in the order in which terms first name them."""
    names = (name for phase in accounts for term in phase.terms for name in term.sources)
    return {name: source_of(w, name) for name in dict.fromkeys(names)}


def _generation(w: Workload, step: Step) -> AccountSeconds:
    """Of the replica whose last byte leaves last."""
    made, sent = step.generated, _sent(w, step)
    times = made.times
    r = max(range(len(times)), key=lambda r: times[r].seconds + sum(sent[r].values()))
    ready = ready_at(w, made.reading)[r] if w.prefilling else 0.0
    waited = {"environments": _beyond(times[r].idle, ready)}
    return {
        **_computed(w, made, r),
        **_named("between turns", waited),
        **_named("network", sent[r]),
    }


def _computed(w: Workload, made: Generated, r: int) -> AccountSeconds:
    """What a replica's engine computes, and before it begins others that read its prompts."""
    group, count = w.generation.group_size, len(w.prefilling)
    own = made.prompts[r], made.outputs[r]
    terms: AccountSeconds = {}
    if count:
        before = np.concatenate([p[::group] for p in made.prompts[r % count : r + 1 : count]])
        terms |= _named("prompts read apart", seconds_by_term(w, reading_steps(before)))
    if w.pipeline == "async":
        n, context = under_way(w, *own)
        reading = reading_steps(own[0][::group])
        decoding = steady_steps(n, n * context, (own[1] - 1).sum() / n)
    else:
        reading, decoding = played_steps(w, *own)
    terms |= _named("prefill", seconds_by_term(w, reading))
    return terms | _named("decode", seconds_by_term(w, decoding))


def _sent(w: Workload, step: Step) -> list[dict[str, float]]:
    """By replica: what bytes add to its computing, beside it (the longest alone) or after it."""
    sent = generation_traffic(w, step)
    environments = environments_exposed(w, sent.environments)
    ends = {
        "KV": sent.kv,
        "tensor": sent.tensor,
        "reward": sent.rewards,
        "experience": sent.experience,
    }
    every = []
    for r, loop in enumerate(sent.experts):
        experts = _exposed(w, [loop] if loop else [])
        beside = max(experts, {"environments": environments[r]}, key=lambda x: sum(x.values()))
        after = {label: flows.wire_seconds(w, one[r]) for label, one in ends.items()}
        every.append(_added((beside, after)))
    return every


def _exposed(w: Workload, loops: Iterable[Repeated]) -> dict[str, float]:
    """What the turns of loops add to the computing they run in, by label (s)."""
    return _added(
        {turn.label: loop.repeat * max(0.0, flows.wire_seconds(w, turn.flows) - loop.beside(turn))}
        for loop in loops
        for turn in loop.turns
        if loop.repeat
    )


def _training(w: Workload, step: Step) -> AccountSeconds:
    """Of the slowest rank in each pass, and of the collectives that computing cannot hide."""
    t, trained, sent = w.training, step.trained, training_traffic(w, step)
    one, micro = trained.slowest_log_prob_pass, trained.log_prob_micro_batches
    log_prob = _pass_terms(w, one, micro, 1, backward=False)
    launched = 1 + exchanges.training_passes(w)  # a backward pass launches twice
    computed, exposed = [], [_log_prob_bytes(w, sent.log_probs)]
    for batch, traffic in zip(trained.mini_batches, sent.updates, strict=True):
        computed.append(_pass_terms(w, batch.passes, batch.micro_batches, launched))
        exposed.append(_update_bytes(w, batch, traffic))
    return {
        **_named("log-prob", {term: t.log_prob_passes * took for term, took in log_prob.items()}),
        **_named("forward-backward", _added(computed)),
        ("optimizer", "Adam"): len(trained.mini_batches) * trained.optimizer,
        **_named("network", _added(exposed)),
    }


def _pass_terms(
    w: Workload, took: PassSeconds, micro_batches: int, launched: int, backward: bool = True
) -> dict[str, float]:
    """Of passes of one rank in so many micro-batches, which launch as many kernels as so many
    forward passes.
    """
    once = 0.0 if w.efficiency.training else pass_kernels(trainer_of(w)) * KERNEL_S
    kernels = launched * micro_batches * once
    terms = {
        "matmul": took.matmul,
        "attention": took.attention,
        "activations through HBM": took.memory - kernels,
        "kernel launches": kernels,
        "tensor collectives in servers": took.tensor,
        "context collectives in servers": took.context,
        "expert collectives in servers": took.experts,
        "host": took.host,
    }
    share = bubble_share(trainer_of(w).layout, micro_batches, took.logits_share, backward)
    return terms | {"pipeline bubble": share * sum(terms.values())}


def _log_prob_bytes(w: Workload, sent: LogProbTraffic) -> dict[str, float]:
    """What the bytes of passes for log-probabilities add: exchanges, sharded layers to these."""
    layers = _exposed(w, [sent.loop] if sent.loop else [])
    both = log_probs_exposed(w, sent.loop, sent.sharded)
    return {**layers, "sharded layers": _beyond(both, sum(layers.values()))}


def _update_bytes(w: Workload, batch: MiniBatch, sent: UpdateTraffic) -> dict[str, float]:
    """What the bytes of an update add: exchanges of layers, gradients to these, sharded layers to
    both; parameters.
    """
    layers = _exposed(w, sent.loops)
    pieces = sent.loops or [Repeated((), 0, batch.piece)] * w.training.buckets
    every = update_exposed_sharded(w, pieces, sent.sharded)
    gradients = every if w.training.optimizer == "zero2" else update_exposed(w, pieces)
    return {
        **layers,
        "gradients": _beyond(gradients, sum(layers.values())),
        "sharded layers": _beyond(every, gradients),
        "tied embedding": flows.wire_seconds(w, sent.embedding),
        "parameters": flows.wire_seconds(w, flows.parameters(w)),
    }


def _weight_sync(w: Workload) -> AccountSeconds:
    """Of the software, or what colocated GPUs hand over; then level after level."""
    software = handover(w) if w.colocated else software_parts(w)
    levels = (
        {level.label: flows.wire_seconds(w, flows.leaving(w, level.flows))}
        for level in weight_levels(w)
    )
    return {**_named("software", software), **_named("network", _added(levels))}


def _beyond(seconds: float, others: float) -> float:
    """What is left of seconds beyond others; nothing where only rounding is."""
    return seconds - others if seconds - others > ROUNDING * seconds else 0.0


def _named(part: str, terms: Mapping[str, float]) -> AccountSeconds:
    return {(part, term): seconds for term, seconds in terms.items()}


def _added(every: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The sums over mappings, key by key."""
    total: dict[str, float] = {}
    for terms in every:
        for term, seconds in terms.items():
            total[term] = total.get(term, 0.0) + seconds
    return total

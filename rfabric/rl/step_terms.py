"""What takes the seconds of an engine's steps, term by term.

A step takes the longer of memory and computing, and its overheads beside: memory's terms stand for
a step that reads longer than it computes, computing's for the others.

    memory      weights, experts and KV cache from HBM
    computing   matmul, attention
    beside      kernel launches, collectives in servers, activations through HBM, host, states of
                layers without attention

Steps are taken one by one here, where `compute.roofline` has closed sums of those between two
events: that both come to the same is checked wherever a step is accounted for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..compute.ffn_apart import FFN_KERNELS, HALVES, Sides
from ..compute.gpus import KERNEL_S
from ..compute.layout import ALL_REDUCES_PER_LAYER
from ..compute.roofline import LAYER_KERNELS, DecodeStep, of_response, overheads
from .timing import decode_step, replica_time, server_of
from .workload import Workload

OVERHEADS = {  # of `roofline.overheads` and `of_response`, as terms
    "kernels": "kernel launches",
    "collectives": "collectives in servers",
    "activations": "activations through HBM",
    "host": "host",
    "states": "states through HBM",
}
StepParts = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class EngineSteps:
    """Steps of an engine as columns (float64[n] each): `responses` that decode with `context`
    tokens in all, prompt `tokens` that attend to `pairs`, and how many `times` each is taken.
    """

    responses: np.ndarray
    context: np.ndarray
    tokens: np.ndarray
    pairs: np.ndarray
    times: np.ndarray


def reading_steps(prompts: np.ndarray) -> EngineSteps:
    """Steps that each read one prompt (tokens, int64[n]) alone."""
    tokens = prompts.astype(float)
    none = np.zeros(len(tokens))
    return EngineSteps(none, none, tokens, tokens**2 / 2, np.ones(len(tokens)))


def steady_steps(responses: int, context: float, times: float) -> EngineSteps:
    """A decode step of so many responses and tokens of context, taken so often."""
    return EngineSteps(*(np.array([float(x)]) for x in (responses, context, 0, 0, times)))


def played_steps(
    w: Workload, prompts: np.ndarray, outputs: np.ndarray
) -> tuple[EngineSteps, EngineSteps]:
    """The steps of a replica that serves these responses: those that read prompts, whatever decodes
    beside, and those that decode alone.
    """
    noted = _Noted(decode_step(w))
    replica_time(w, prompts, outputs, noted)
    return noted.reading(), noted.decoding()


def seconds_by_term(w: Workload, steps: EngineSteps) -> dict[str, float]:
    """Seconds of these steps on one generation replica, by what takes them."""
    sides = [_parts(side, steps) for side in _sides(w)]
    slowest = np.argmax([sum(parts.values()) for parts in sides], axis=0)
    taken = [steps.times * (slowest == i) for i in range(len(sides))]
    return {
        term: float(sum(parts[term] @ times for parts, times in zip(sides, taken, strict=True)))
        for term in sides[0]
    }


@dataclass(frozen=True)
class _Side:
    """A roofline, and what its overheads are made of, by the names of OVERHEADS: seconds a step, a
    token, and a response that decodes.
    """

    step: DecodeStep
    once: Mapping[str, float]
    each: Mapping[str, float]
    own: Mapping[str, float]


def _sides(w: Workload) -> list[_Side]:
    """The roofline of a replica; with an FFN apart, of its two sides, whose halves of a batch each
    launch their own kernels.
    """
    step, s = decode_step(w), server_of(w)
    own = {name: seconds / (s.dp * s.pp) for name, seconds in of_response(s).items()}
    if not isinstance(step, Sides):
        beside = overheads(s)
        each = {name: token / (s.dp * s.pp) for name, (_, token) in beside.items()}
        return [_Side(step, {name: once for name, (once, _) in beside.items()}, each, own)]
    alone = overheads(replace(s, dp=1, ep=1))
    each = {name: token / s.dp for name, (_, token) in alone.items()}
    launched = HALVES * w.model.layers * (LAYER_KERNELS - FFN_KERNELS) * KERNEL_S
    attention = {
        "kernels": launched,
        "collectives": HALVES * alone["collectives"][0] / ALL_REDUCES_PER_LAYER,
        "host": alone["host"][0],
    }
    ffn = {"kernels": HALVES * alone["kernels"][0] - launched}
    return [_Side(step.attention, attention, each, own), _Side(step.ffn, ffn, {}, {})]


def _parts(side: _Side, s: EngineSteps) -> StepParts:
    """Seconds of each step by term, as if this side were all there is."""
    memory, computing = _memory(side.step, s), _computing(side.step, s)
    reads = sum(memory.values()) >= sum(computing.values())
    parts = {term: np.where(reads, seconds, 0.0) for term, seconds in memory.items()}
    parts |= {term: np.where(reads, 0.0, seconds) for term, seconds in computing.items()}
    every = s.responses + s.tokens
    for name, term in OVERHEADS.items():
        parts[term] = side.once.get(name, 0.0) + side.each.get(name, 0.0) * every
        parts[term] = parts[term] + side.own.get(name, 0.0) * s.responses
    return parts


def _memory(step: DecodeStep, s: EngineSteps) -> StepParts:
    """What is read: weights, the experts that tokens touch, the context of layers that see all or a
    window of it.
    """
    touched = 1 - step.missed_share ** (s.responses + s.tokens)
    seen = np.minimum(s.context, s.responses * step.window)
    return {
        "weights from HBM": np.full(len(s.times), step.weights_s),
        "experts from HBM": step.experts_s * touched,
        "KV cache from HBM": step.kv_s_per_token * s.context + step.window_kv_s_per_token * seen,
    }


def _computing(step: DecodeStep, s: EngineSteps) -> StepParts:
    """Matmuls of responses and of prompt tokens; attention to context and within prompts."""
    pairs = np.minimum(s.pairs, s.tokens * step.window)
    return {
        "matmul": step.matmul_s_per_response * s.responses
        + step.matmul_s_per_prompt_token * s.tokens,
        "attention": step.attention_s_per_token * s.context
        + step.attention_s_per_pair * s.pairs
        + step.window_attention_s_per_pair * pairs,
    }


class _Noted:
    """A roofline that notes the steps it is asked for."""

    def __init__(self, step: DecodeStep | Sides):
        self.step = step
        self.mixes: list[tuple[float, ...]] = []
        self.runs: list[tuple[float, ...]] = []
        # what a session asks for right after a step that also read prompts: what decoding alone
        # would have taken, which is no step of its own
        self.beside: tuple[float, float] | None = None

    def mixed(self, n: int, context: float, tokens: float, pairs: float) -> float:
        self.mixes.append((n, context, tokens, pairs))
        self.beside = (n, context) if n else None
        return self.step.mixed(n, context, tokens, pairs)

    def seconds(self, n: int, context: float, steps: int = 1) -> float:
        if self.beside is None:
            self.runs.append((n, context, steps))
        self.beside = None
        return self.step.seconds(n, context, steps)

    def __getattr__(self, name: str) -> Any:
        """What takes no step, as the roofline itself has it."""
        return getattr(self.step, name)

    def reading(self) -> EngineSteps:
        """Steps that read prompts."""
        columns = _columns(self.mixes, 4)
        return EngineSteps(*columns, np.ones(len(self.mixes)))

    def decoding(self) -> EngineSteps:
        """Steps that only decode, one by one: contexts grow by a token a response."""
        n, context, steps = _columns(self.runs, 3)
        steps = steps.astype(np.int64)
        number = np.arange(steps.sum()) - np.repeat(np.cumsum(steps) - steps, steps)
        responses = np.repeat(n, steps)
        none = np.zeros(len(number))
        grown = np.repeat(context, steps) + responses * number
        return EngineSteps(responses, grown, none, none, np.ones(len(number)))


def _columns(rows: Sequence[tuple[float, ...]], width: int) -> np.ndarray:
    return np.array(rows, dtype=float).reshape(len(rows), width).T

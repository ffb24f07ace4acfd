"""The least seconds in which a step's responses could be generated, whoever schedules them: a
linear program that no plan of replicas, widths and moves can beat.

    least  T
    so that   every token is decoded in some configuration: a cut of a server, and how many
              responses a replica of it decodes at once
              the mean response of each class of alike lengths takes T at most, one token after
              another
              all servers together take T each at most

Responses may change their configuration with every token, at no cost, all lengths are known, KV has
room everywhere and nothing is prefilled: a relaxation, so no bound on how near a plan can come.
A configuration is a range of how many decode at once. A token takes its response the seconds of a
step with the fewest of these, and with no context but its own; it takes the server its own share of
a step with the most: what a step reads and computes for it, and an even part of the rest. Both are
less than any real step takes. HiGHS solves it, in a second.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...compute.roofline import DecodeStep
from ...errors import RFabricError
from ...rl.phases import responses
from ...rl.workload import Workload
from .outlook import Engines
from .seats import engines_of, seat_gpus

ALONE, CLASSES = 4, 12  # the longest responses, each a class of its own; and classes of the others
BINS = 32  # of the tokens of the longest response
GROWTH = 1.25  # of the batches of one configuration, the most over the fewest


def least_generation(w: Workload, seed: int, number: int) -> float:
    """Seconds that the generation of step `number` takes at least; environments answer between the
    turns of each response.

    RFabricError for pipeline async, whose steps have no end of their own, and for replicas wider
    than a server.
    """
    if w.pipeline == "async":
        raise RFabricError(
            "a bound on generation is of steps that end; pipeline async has none: use another"
        )
    if seat_gpus(w) % w.generation.tp:
        raise RFabricError(
            f"a bound on generation is of replicas within a server; generation.tp "
            f"{w.generation.tp} does not divide {seat_gpus(w)} GPUs: use one that does"
        )
    prompts, outputs = responses(w, seed, number)
    g = w.generation
    tokens = np.maximum(outputs - g.turns, 0)  # a prefill gives the first of each turn
    waits = (g.turns - 1) * g.environment_latency
    seats = w.cluster.generation_gpus // seat_gpus(w)
    return least_seconds(engines_of(w), seats, prompts, tokens, g.max_num_seqs, waits)


def least_seconds(
    engines: Engines,
    seats: int,
    prompts: np.ndarray,
    tokens: np.ndarray,
    places: int,
    waits: float = 0.0,
) -> float:
    """Seconds in which `seats` servers decode responses of so many `tokens` after their prompts
    (int64[n] both) at least; `places` of each attention replica, `waits`: s that every response
    stands still.
    """
    every = _configurations(engines, min(places, len(tokens)))
    return _solved(_parts(prompts, tokens), every, waits, seats)


@dataclass(frozen=True, eq=False)
class Configuration:
    """A cut of a server into `replicas`, each decoding between `fewest` and `most` at once."""

    step: DecodeStep
    replicas: int
    fewest: int
    most: int

    def latency(self, context: np.ndarray) -> np.ndarray:
        """The least seconds of a step in which a response has so much context."""
        n = np.full(context.shape, float(self.fewest))
        return self.step.decode(n, context)

    def share(self, context: np.ndarray) -> np.ndarray:
        """The least seconds that a token takes of the whole server."""
        s, n = self.step, float(self.most)
        own = s.overhead_s_per_token + s.host_s_per_response + s.overhead_s / n
        reads = s.kv_s_per_token * context + s.window_kv_s_per_token * np.minimum(context, s.window)
        memory = float(s.shared(n) - s.overhead_s) / n + reads
        computing = s.matmul_s_per_response + s.attention_s_per_token * context
        # either is less than a step's larger one, as long as all tokens take the same of both
        larger = memory if memory.sum() >= computing.sum() else computing
        return (own + larger) / self.replicas


@dataclass(frozen=True, eq=False)
class _Parts:
    """Tokens to decode, by class of responses and bin of their place in a response (float64[C, B]),
    context at least before those (float64[C, B]), and the responses of each class (float64[C]).
    """

    tokens: np.ndarray
    context: np.ndarray
    members: np.ndarray


def _parts(prompts: np.ndarray, tokens: np.ndarray) -> _Parts:
    order = np.argsort(-tokens, kind="stable")
    rest = order[ALONE:]
    classes = [*order[:ALONE, None], *np.array_split(rest, min(CLASSES, len(rest)) or 1)]
    classes = [c for c in classes if len(c)]
    edges = np.linspace(0, max(tokens.max(), 1), BINS + 1)
    inside = np.clip(tokens[:, None] - edges[None, :-1], 0, np.diff(edges))
    return _Parts(
        np.array([inside[c].sum(0) for c in classes]),
        np.array([prompts[c].min() + edges[:-1] for c in classes]),
        np.array([float(len(c)) for c in classes]),
    )


def _configurations(engines: Engines, most: int) -> list[Configuration]:
    """Every cut with every range of batches; each attention replica has `most` places."""
    return [
        Configuration(step, replicas, low, high)
        for cut, step, replicas in zip(engines.cuts, engines.steps, engines.replicas, strict=True)
        for low, high in _ranges(most * cut.dp)
    ]


def _ranges(most: int) -> Iterator[tuple[int, int]]:
    low = 1
    while low <= most:
        high = min(int(low * GROWTH), most)
        yield low, high
        low = high + 1


def _solved(p: _Parts, every: list[Configuration], waits: float, seats: int) -> float:
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    latency = np.array([c.latency(p.context) for c in every])  # [S, C, B]
    share = np.array([c.share(p.context) for c in every])
    config, row, column = np.nonzero(_undominated(latency, share) & (p.tokens > 0))
    if not len(config):
        return waits
    wanted = p.tokens > 0
    cell = np.where(wanted, np.cumsum(wanted.ravel()).reshape(wanted.shape) - 1, -1)
    count, classes = len(config), len(p.members)
    at, amount = np.arange(count), p.tokens[row, column]
    # x: the part of a cell's tokens in a configuration; the last column is T
    equal = coo_array((np.ones(count), (cell[row, column], at)), (wanted.sum(), count + 1))
    time = np.append(amount * latency[config, row, column], -p.members)
    work = np.append(amount * share[config, row, column], -float(seats))
    rows = np.concatenate((row, np.arange(classes), np.full(count + 1, classes)))
    columns = np.concatenate((at, np.full(classes, count), np.append(at, count)))
    upper = coo_array((np.append(time, work), (rows, columns)), (classes + 1, count + 1))
    goal = np.append(np.zeros(count), 1.0)
    limits = np.append(-waits * p.members, 0.0)
    done = linprog(goal, upper, limits, equal, np.ones(wanted.sum()), method="highs")
    if not done.success:
        raise RFabricError(f"the bound on generation was not solved: {done.message}")
    return float(done.fun)


def _undominated(latency: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Which configurations of a cell no other beats in both, as a mask."""
    order = np.lexsort((share, latency), axis=0)
    sorted_share = np.take_along_axis(share, order, 0)
    before = np.minimum.accumulate(sorted_share, axis=0)
    better = np.ones(share.shape, bool)
    better[1:] = sorted_share[1:] < before[:-1]
    found = np.empty_like(better)
    np.put_along_axis(found, order, better, 0)
    return found

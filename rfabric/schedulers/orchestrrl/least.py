"""The least seconds in which a step's responses could be generated, whoever schedules them: linear
programs that no plan of replicas, widths and moves can beat.

    least  T
    so that   every token is decoded in some configuration: a cut of a server, and how many
              responses a replica of it decodes at once
              the mean response of each class of alike lengths takes T at most, one token after
              another
              the mean response of all takes T at most, where each token delays whoever decodes
              beside it
              all servers together take T each at most

Once for all responses, and once for the longest 1, 2, 4, 8, ..., as if the others were not there:
the largest T is the bound. A step of generation that ends with few long responses is bound by
these. Whichever has the largest is solved again with narrower configurations, which is no less.

Responses may change their configuration with every token, at no cost, all lengths are known, KV has
room everywhere and nothing is prefilled: a relaxation, so no plan need come near it. A
configuration is a range of how many decode at once. A token takes its response the seconds of a
step with the fewest of these, and with no context but its own; it takes the server its own share of
a step with the most: what a step reads and computes for it, and an even part of the rest; and it
delays those beside it by its share of a step with the fewest. All are less than any real step
takes. HiGHS solves them, in a second or two.
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

CLASSES = 8  # of alike lengths
BINS = 24  # of the tokens of the longest response
# of the batches of one configuration, the most over the fewest: to look for the largest bound, and
# to solve that again (narrower still, 1.02, adds another 1 % at most and takes four times as long)
GROWTH, NARROW = 1.3, 1.05


def least_generation(w: Workload, seed: int, number: int) -> float:
    """Seconds that the generation of step `number` takes at least; environments answer between the
    turns of each response.

    RFabricError for pipeline async, whose steps have no end of their own, and for replicas that no
    cut of a server is.
    """
    _check(w)
    prompts, outputs = responses(w, seed, number)
    g = w.generation
    turns = np.minimum(outputs, g.turns)  # none is without a token
    tokens = outputs - turns  # a prefill gives the first of each turn
    waits = (turns - 1) * g.environment_latency
    seats = w.cluster.generation_gpus // seat_gpus(w)
    return least_seconds(engines_of(w), seats, prompts, tokens, g.max_num_seqs, waits)


def _check(w: Workload) -> None:
    g, seat = w.generation, seat_gpus(w)
    if w.pipeline == "async":
        raise RFabricError(
            "a bound on generation is of steps that end; pipeline async has none: use another"
        )
    wrong = {
        f"generation.prefill_gpus is {g.prefill_gpus}: use 0": w.prefilling,
        f"generation.ffn_gpus is {g.ffn_gpus}: use 0": g.ffn_gpus,
        f"generation.ep {g.ep} makes them {g.gpus} wide: use 1": g.gpus > g.tp,
        f"generation.tp {g.tp} does not divide {seat} GPUs: use one that does": seat % g.tp,
    }
    for text, bad in wrong.items():
        if bad:
            raise RFabricError(
                "a bound on generation is of replicas of tp GPUs of one server that read their own "
                f"prompts; {text}"
            )


def least_seconds(
    engines: Engines,
    seats: int,
    prompts: np.ndarray,
    tokens: np.ndarray,
    places: int,
    waits: np.ndarray | float = 0.0,
) -> float:
    """Seconds in which `seats` servers decode responses of so many `tokens` after their prompts
    (int64[n] both) at least; `places` of each attention replica, `waits`: s that each response
    stands still (float64[n], or alike).
    """
    stands = np.broadcast_to(waits, tokens.shape)
    order = np.lexsort((-stands, -tokens))

    def least(count: int, growth: float) -> float:
        some = order[:count]
        every = _configurations(engines, min(places, count), growth)
        return _solved(_parts(prompts[some], tokens[some], stands[some]), every, seats)

    counts = sorted({*(2**i for i in range(len(order).bit_length())), len(order)})
    bounds = {count: least(count, GROWTH) for count in counts}
    most = max(bounds, key=bounds.__getitem__)
    return max(bounds[most], least(most, NARROW))


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
        return self._part(context, self.most) / self.replicas

    def delay(self, context: np.ndarray) -> np.ndarray:
        """The least seconds that a token takes all who decode with it, together."""
        return self.fewest * self._part(context, self.fewest)

    def _part(self, context: np.ndarray, n: int) -> np.ndarray:
        """Of a step of n responses: what a token takes itself, and an even part of the rest."""
        s = self.step
        own = s.overhead_s_per_token + s.own_s_per_response + s.overhead_s / n
        reads = s.kv_s_per_token * context + s.window_kv_s_per_token * np.minimum(context, s.window)
        memory = float(s.shared(n) - s.overhead_s) / n + reads
        computing = s.matmul_s_per_response + s.attention_s_per_token * context
        # either is less than the larger of a step, as long as all its tokens count the same one
        return own + (memory if memory.sum() >= computing.sum() else computing)


@dataclass(frozen=True, eq=False)
class _Parts:
    """Tokens to decode, by class of responses and bin of their place in a response (float64[C, B]),
    context at least before those (float64[C, B]), the responses of each class and the seconds that
    they stand still together (float64[C] both).
    """

    tokens: np.ndarray
    context: np.ndarray
    members: np.ndarray
    waits: np.ndarray


def _parts(prompts: np.ndarray, tokens: np.ndarray, waits: np.ndarray) -> _Parts:
    """Of responses with the longest first."""
    classes = np.array_split(np.arange(len(tokens)), min(CLASSES, len(tokens)))
    edges = np.linspace(0, tokens.max(), BINS + 1)
    inside = np.clip(tokens[:, None] - edges[None, :-1], 0, np.diff(edges))
    return _Parts(
        np.array([inside[c].sum(0) for c in classes]),
        np.array([prompts[c].min() + edges[:-1] for c in classes]),
        np.array([float(len(c)) for c in classes]),
        np.array([waits[c].sum() for c in classes]),
    )


def _configurations(engines: Engines, most: int, growth: float) -> list[Configuration]:
    """Every cut with every range of batches; each attention replica has `most` places."""
    return [
        Configuration(step, replicas, low, high)
        for cut, step, replicas in zip(engines.cuts, engines.steps, engines.replicas, strict=True)
        for low, high in _ranges(most * cut.dp, growth)
    ]


def _ranges(most: int, growth: float) -> Iterator[tuple[int, int]]:
    low = 1
    while low <= most:
        high = min(int(low * growth), most)
        yield low, high
        low = high + 1


def _solved(p: _Parts, every: list[Configuration], seats: int) -> float:
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    wanted = p.tokens > 0
    cells, classes, members = int(wanted.sum()), len(p.members), p.members.sum()
    if not cells:
        return float((p.waits / p.members).max())
    row, column = np.nonzero(wanted)
    context, amount = p.context[wanted], p.tokens[wanted]
    # a variable: the part of a cell's tokens in a configuration; the last one is T
    latency, share, delay = (
        np.concatenate([amount * getattr(c, name)(context) for c in every])
        for name in ("latency", "share", "delay")
    )
    count = len(latency)
    at, once = np.arange(count), np.ones(count)
    equal = coo_array((once, (np.tile(np.arange(cells), len(every)), at)), (cells, count + 1))
    total = [np.full(count, classes), np.full(count, classes + 1)]
    rows = np.concatenate((np.tile(row, len(every)), *total, np.arange(classes + 2)))
    columns = np.concatenate((at, at, at, np.full(classes + 2, count)))
    takes = np.concatenate((latency, delay, share, -p.members, [-members, -float(seats)]))
    upper = coo_array((takes, (rows, columns)), (classes + 2, count + 1))
    goal = np.append(np.zeros(count), 1.0)
    limits = np.concatenate((-p.waits, [-p.waits.sum(), 0.0]))
    done = linprog(goal, upper, limits, equal, np.ones(cells), method="highs")
    if not done.success:
        raise RFabricError(f"the bound on generation was not solved: {done.message}")
    return float(done.fun)

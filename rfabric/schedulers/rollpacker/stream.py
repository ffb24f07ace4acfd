"""The stream trainer: half of the rollout's GPUs stop generating early, and compute gradients of
what is there.

    GPU 0..15   |== rollout ==|== rollout, with what the others left ===|== training ==|
    GPU 16..31  |== rollout ==|= states =|== gradients of whole groups =|== training ==|
                              ^
                              0.2 to 0.5 of the responses are there, 5 % more than at the last look,
                              and what is left fits the KV cache of the half at its projected peak

Responses move as tokens; their KV cache is computed again. No weights change before the rollout
ends: the gradients of all samples make one update. RollPacker, arXiv 2509.21009, Algorithm 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...compute.serving import Batching, ReplicaTime, Served
from ...rl.lengths import Lengths
from ...rl.phases import handover
from .rounds import RoundOutcome, finished, joined, requests_of, served_on

# shares of responses: window in which GPUs are freed, and how far looks are apart
FROM, UPTO, APART = 0.2, 0.5, 0.05
POINTS = 128  # of the projection


@dataclass(frozen=True, eq=False)
class Streamed:
    """A round whose rollout gave up `freed` replicas `at` s, at share `done`; `peak` tokens of KV
    were projected for the rest.

    ready: when the freed GPUs can train (s); recompute: seconds of prefill that the move cost.
    """

    played: RoundOutcome
    freed: tuple[int, ...]
    at: float
    done: float
    peak: float
    ready: float
    recompute: float


def may_free(done: float, looked: float) -> bool:
    """Whether to look at share `done`, after a last look at `looked`."""
    return FROM <= done <= UPTO and done - looked >= APART - 1e-12


def projected_peak(context: np.ndarray, made: np.ndarray, lengths: Lengths, most: int) -> float:
    """The most tokens of KV that these responses are expected to hold at once as they go on
    together.

    context, made: tokens each holds and has given; how many go on is what `lengths`, cut at `most`,
    says of those so long.
    """
    if not len(made):
        return 0.0
    more = np.unique(np.linspace(0, max(most - int(made.min()), 0), POINTS).astype(int))
    alive = _survival(lengths, made[:, None] + more[None, :], most)
    alive = alive / np.maximum(_survival(lengths, made, most), 1e-12)[:, None]
    return float((np.minimum(alive, 1.0) * (context[:, None] + more[None, :])).sum(axis=0).max())


def _survival(lengths: Lengths, tokens: np.ndarray, most: int) -> np.ndarray:
    return np.where(tokens < most, 1 - np.interp(tokens, lengths.tokens, lengths.quantile), 0.0)


def looks(played: RoundOutcome) -> Iterator[tuple[float, float]]:
    """(share of the responses waited for, when they are there) at every look of the window, the
    first to come first.
    """
    ends = np.sort(played.kept_ends, axis=None)
    looked = FROM - APART
    for i, end in enumerate(ends.tolist(), start=1):
        if may_free(i / len(ends), looked):
            looked = i / len(ends)
            yield looked, end


def streamed(played: RoundOutcome, fixed: float | None = None) -> Streamed | None:
    """The round with half of its GPUs freed at the first look that fits, or at share `fixed`
    whatever fits; None: never.
    """
    if len(played.times) < 2:
        return None
    if fixed is not None:
        ends = np.sort(played.kept_ends, axis=None)
        shares = np.arange(1, len(ends) + 1) / len(ends)
        return _consolidated(played, fixed, float(ends[np.searchsorted(shares, fixed)]))
    for done, at in looks(played):
        rest = _left(played, at)
        g, stay = played.w.generation, len(played.times) - len(played.times) // 2
        peak = projected_peak(rest.context, rest.made, g.lengths, g.max_response)
        if peak <= stay * _room(played):
            return _consolidated(played, done, at)
    return None


def _room(played: RoundOutcome) -> float:
    """Tokens of KV that a replica may fill."""
    return played.w.kv_capacity_tokens * (1 - Batching().watermark)


@dataclass(frozen=True, eq=False)
class _Left:
    """Responses that go on: row and column, tokens given and held, tokens to come; replica."""

    row: np.ndarray
    column: np.ndarray
    made: np.ndarray
    context: np.ndarray
    to_come: np.ndarray
    replica: np.ndarray


def _left(played: RoundOutcome, at: float) -> _Left:
    row, column = np.nonzero(played.ends > at)
    made = np.minimum(_clock(played, at)[played.replica[row]], played.played[row, column] - 1)
    context = played.drawn.prompts[row] + made
    return _Left(row, column, made, context, played.played[row, column] - made, played.replica[row])


def _clock(played: RoundOutcome, at: float) -> np.ndarray:
    """Tokens that a response still running has given at `at`, by replica: between those of the ones
    that ended around it.
    """
    clock = np.zeros(len(played.times), dtype=np.int64)
    for r in range(len(clock)):
        rows = played.replica == r
        ends, tokens = played.ends[rows].ravel(), played.played[rows].ravel()
        order = np.argsort(ends, kind="stable")
        if len(order):
            known = np.maximum.accumulate(tokens[order])
            clock[r] = np.interp(at, np.append(0.0, ends[order]), np.append(0.0, known))
    return clock


def _consolidated(played: RoundOutcome, done: float, at: float) -> Streamed:
    """What the freed half had left, longest context first, in turn to the replicas that stay: those
    with most to do already.
    """
    w, rest, count = played.w, _left(played, at), len(played.times)
    load = np.bincount(rest.replica, weights=rest.context, minlength=count)
    freed = tuple(sorted(np.argsort(load, kind="stable")[: count // 2].tolist()))
    moved = np.flatnonzero(np.isin(rest.replica, freed))
    moved = moved[np.argsort(-rest.context[moved], kind="stable")]
    stay = [r for r in range(count) if r not in freed]
    ends = played.ends.copy()
    served: list[Served | None] = [None] * count
    for i, r in enumerate(stay):
        if (played.replica == r).any():  # one that got no prompt stays where nothing moves
            served[r] = _go_on(played, rest, moved[i :: len(stay)], r, at, ends)
    after = finished(replace(played, ends=ends), served)
    times = tuple(
        _until_freed(t, at) if r in freed else after.times[r] for r, t in enumerate(played.times)
    )
    recompute = max(s.prefill - t.prefill for s, t in zip(served, played.times, strict=True) if s)
    peak = projected_peak(rest.context, rest.made, w.generation.lengths, w.generation.max_response)
    ready = at + float(handover(w).get("offload", 0.0)) / 2
    return Streamed(replace(after, times=times), freed, at, done, peak, ready, recompute)


def _go_on(
    played: RoundOutcome, rest: _Left, moved: np.ndarray, replica: int, at: float, ends: np.ndarray
) -> Served:
    """A replica that stays: as it ran, with others' responses coming `at` s, their context to
    prefill; writes `ends`.
    """
    rows = np.flatnonzero(played.replica == replica)
    own = requests_of(played.drawn.prompts[rows], played.played[rows])
    served = served_on(
        played.w, joined(own, rest.context[moved], rest.to_come[moved], at), played.pace
    )
    ends[rows] = served.end[: len(own)].reshape(len(rows), -1)
    ends[rest.row[moved], rest.column[moved]] = served.end[len(own) :]
    return served


def _until_freed(time: ReplicaTime, at: float) -> ReplicaTime:
    prefill = min(time.prefill, at)
    return time._replace(prefill=prefill, decode=min(time.decode, at - prefill))


def work_done(
    ready: np.ndarray, tokens: np.ndarray, rate: float, start: float, end: float
) -> float:
    """Share of the tokens of training that GPUs work off from `start` to `end` (s) at `rate`
    tokens/s.

    Groups come at `ready` with so many `tokens` (float64[groups] both) and are taken in that order,
    in pieces as small as needed.
    """
    order = np.argsort(ready, kind="stable")
    now, done = start, 0.0
    for at, size in zip(ready[order].tolist(), tokens[order].tolist(), strict=True):
        now = max(now, at)
        if now >= end:
            break
        part = min(size, (end - now) * rate)
        now, done = now + part / rate, done + part
    return done / float(tokens.sum())

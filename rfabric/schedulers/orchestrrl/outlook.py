"""What OrchestrRL expects (arXiv 2601.01209): how long responses will be, and what a server cut
each way would still take.

    forecast  how long responses will be, from the steps before  their quantiles, by `forecasts`:
                                                                 Holt's smoothing, or ARIMA
    outlook   what a server cut each way would still take        roofline x expected survivors,
                                                                 later cuts included

A *seat* is a server of the generation pool (or what divides both): a cut never leaves it, so
weights and KV that change hands within it take NVLink. Nobody knows how long a response will be:
those with as many tokens are alike. Tokens, seconds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...compute.roofline import DecodeStep
from ...errors import RFabricError
from ..forecasts import ahead

QUANTILES = 512  # that a forecast is made of
GRID = 96  # steps in which an outlook goes through the tokens to come
AGES = 24  # responses are sorted into so many, by tokens made
FITTED = 9  # of the quantiles, those that a model is fitted to; others lie between


@dataclass(frozen=True, order=True)
class Cut:
    """How a seat is cut: replicas of tp x dp GPUs, dp attention replicas that share their experts;
    ep follows.
    """

    tp: int
    dp: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of a replica."""
        return self.tp * self.dp

    def __str__(self) -> str:
        return f"tp{self.tp}" + (f"xdp{self.dp}" if self.dp > 1 else "")


@dataclass(frozen=True, eq=False)
class LengthForecast:
    """Tokens of responses as expected: `tokens` (float64[QUANTILES], ascending) at even quantiles,
    `limit` at most; `fell_back` as of `forecasts.Expected`.
    """

    tokens: np.ndarray
    limit: int
    fell_back: int = 0

    def remaining(self, made: float) -> np.ndarray:
        """Tokens to come of a response that has `made`, each equally likely; half of what is
        allowed where none got so far.
        """
        later = self.tokens[self.tokens > made]
        return later - made if len(later) else np.array([max((self.limit - made) / 2, 1.0)])


def forecast(history: Sequence[np.ndarray], limit: int, how: str = "smoothed") -> LengthForecast:
    """The next step's lengths from those of the steps before, oldest first: each quantile by
    itself (`forecasts.ahead`).

    RFabricError without a step to go by, or for lengths that are not finite.
    """
    if not history:
        raise RFabricError("forecast: no lengths to go by; give those of one step at least")
    at = (np.arange(QUANTILES) + 0.5) / QUANTILES
    seen = np.array([np.quantile(lengths, at) for lengths in history])
    if how == "arima":
        few = np.linspace(0, QUANTILES - 1, FITTED).round().astype(int)
        known = ahead(seen[:, few], how)
        quantiles = np.interp(at, at[few], known.values)
    else:
        known = ahead(seen)
        quantiles = known.values
    return LengthForecast(np.sort(np.clip(quantiles, 1, limit)), limit, known.fell_back)


@dataclass(frozen=True, eq=False)
class Engines:
    """What a seat is when it is cut each way: decode step and tokens of KV of one replica, and how
    many replicas.
    """

    cuts: tuple[Cut, ...]
    steps: tuple[DecodeStep, ...]
    kv_tokens: tuple[int, ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class CutOutlook:
    """By cut: seconds that a seat takes however few responses it has, and for each response
    (float64[S], float64[S, n]), which is one of an even share: of n / seats, or alone there.
    """

    fixed: np.ndarray
    work: np.ndarray

    def seconds(self, seats: int) -> np.ndarray:
        """What seats with an even share take, by cut they begin with (float64[S])."""
        return self.fixed + self.work.sum(1) / self._used(seats)

    def of_replicas(self, seats: int, replicas: Sequence[int]) -> np.ndarray:
        """The seconds of each response where a replica counts alone, of so many a seat by cut
        (float64[S, n]).
        """
        alone = self._used(seats * np.array(replicas)) / self._used(seats)
        return self.work * alone[:, None]

    def _used(self, places):
        """The places that have a response when they are dealt evenly."""
        return np.minimum(places, self.work.shape[1])


def outlook(
    engines: Engines,
    expected: LengthForecast,
    made: np.ndarray,
    context: np.ndarray,
    seats: int,
    switch: float,
    left: np.ndarray | None = None,
) -> CutOutlook:
    """What is left of responses with `made` tokens and `context` before the next (int64[n]) on
    `seats` seats, evenly dealt.

    Each begins with a cut and goes on with whatever cut is best for those that are left, every
    switch paid. left: tokens that each has still to come, where they are known (float64[n]).
    """
    if left is None:
        ages, which = _ages(made)
        rest = [expected.remaining(age) for age in ages]
        counts, share = np.bincount(which), np.array([r.mean() for r in rest])[which]
    else:
        rest, counts, share = [left.astype(float)], np.array([len(left)]), left.astype(float)
    grid, alive = _survivors(rest, counts)
    costs = _costs(engines, np.maximum(alive / seats, 1.0), float(context.mean()), grid, seats)
    cost, base = (np.array(part) for part in zip(*costs, strict=True))
    total, fixed = _best_path(cost, base, switch)
    work = (total - fixed)[:, None] * (share / share.sum())[None, :] * min(seats, len(share))
    return CutOutlook(fixed, work)


def _ages(made: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ages (tokens made) that stand for all, and which of them each response has."""
    ages, which = np.unique(made, return_inverse=True)
    if len(ages) <= AGES:
        return ages, which
    edges = np.unique(np.quantile(made, np.linspace(0, 1, AGES + 1)[1:-1]))
    which = np.searchsorted(edges, made, side="right")
    count = np.bincount(which, minlength=len(edges) + 1)
    return np.bincount(which, made, minlength=len(count)) / np.maximum(count, 1), which


def _survivors(rest: Sequence[np.ndarray], counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(tokens from now: float64[GRID + 1], responses still there in each interval), until the last
    is expected to be done.
    """
    tokens = np.concatenate(rest)
    weights = np.repeat(counts / [len(r) for r in rest], [len(r) for r in rest])
    order = np.argsort(tokens, kind="stable")
    tokens, gone = tokens[order], np.cumsum(weights[order])
    total = gone[-1]
    last = tokens[np.searchsorted(gone, total - min(0.5, total / 2))]
    grid = np.unique(
        np.concatenate(
            (
                [0.0],
                np.interp(np.linspace(0, 1, GRID)[1:], gone / total, tokens),
                np.linspace(0, last, GRID // 4)[1:],
            )
        )
    )
    grid = grid[grid <= last]
    middle = (grid[1:] + grid[:-1]) / 2
    index = np.searchsorted(tokens, middle, side="right")
    return grid, total - np.concatenate(([0.0], gone))[index]


def _costs(
    engines: Engines, load: np.ndarray, context: float, grid: np.ndarray, seats: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """By cut: (seconds of each interval, how many of them do not grow with responses) of the
    replica that is done last.

    Replicas begin alike, but lengths are drawn: of m, the fullest has sqrt(2 ln m) standard
    deviations more than the mean.
    """
    for step, kv, replicas in zip(engines.steps, engines.kv_tokens, engines.replicas, strict=True):
        n = load / replicas
        n = np.maximum(n + np.sqrt(2 * np.log(replicas * seats) * n * (1 - load / load[0])), 1.0)
        c = n * (context + grid[:-1])
        # the share that runs at once; others wait their turn
        fits = np.minimum(1.0, kv / np.maximum(c, 1.0))
        each = np.diff(grid) / fits
        yield each * step.decode(n * fits, c * fits), each * step.shared(n * fits)


def _best_path(cost: np.ndarray, base: np.ndarray, switch: float) -> tuple[np.ndarray, np.ndarray]:
    """By first cut: (seconds to the end, how many of them are fixed) where cuts change whenever
    that pays (float64[S] both).
    """
    total, fixed = np.zeros(len(cost)), np.zeros(len(cost))
    for j in range(cost.shape[1] - 1, -1, -1):
        best = int(total.argmin())
        leave = total[best] + switch < total
        total, fixed = (
            np.where(leave, total[best] + switch, total),
            np.where(leave, fixed[best] + switch, fixed),
        )
        total, fixed = total + cost[:, j], fixed + base[:, j]
    return total, np.minimum(fixed, total)

"""The stream trainer where training has GPUs of its own: they begin on what is there while others
still generate.

    generation   |====== group 7 ======= group 2 ===== ... ====== the longest ======|
                          rewards, experience: in waves
    training               | wave 1 |     | wave 2 |           | wave 9 |           | what is left |

Nothing is freed, and no response moves. From a fifth of the groups on, and whenever a twentieth of
them has come since, groups whose responses and rewards are all there go to training, as RollPacker
looks (arXiv 2509.21009, Algorithm 1). Groups fill micro-batches in the order in which they come, so
the first mini-batch is made of the first groups. Training computes whole micro-batches:
log-probabilities of all, gradients of the first mini-batch. No weights change before the rollout
ends, so its last micro-batch, whose backward pass sends gradients, always waits for that; a
micro-batch that would not be done by then is not begun.

With several stages each wave fills and drains them anew, and so does what is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...compute.training import PassSeconds, bubble_share
from ...rl.phases import MiniBatch, Trained
from ...rl.timing import trainer_of
from ...rl.workload import Workload
from .stream import APART, FROM


@dataclass(frozen=True, eq=False)
class Wave:
    """Groups (rows of those trained on) that go to training at `at` s; from `begins` s on it
    computes `part`, None where that fills no micro-batch.
    """

    at: float
    groups: np.ndarray
    begins: float = 0.0
    part: Trained | None = None

    @property
    def seconds(self) -> float:
        """Of computing."""
        return seconds_of(self.part) if self.part else 0.0


def seconds_of(part: Trained) -> float:
    """Seconds of log-probabilities and gradients that need no other update."""
    first = (batch.first.max() for batch in part.mini_batches[:1])
    return float(part.log_prob.max() + sum(first))


def waves_of(ready: np.ndarray, begin: float = FROM) -> list[Wave]:
    """Groups that have all their rewards at `ready` (s), in waves: at share `begin` of them, and at
    each APART more; the last takes what is left.
    """
    order, count = np.argsort(ready, kind="stable"), len(ready)
    waves, sent, looked = [], 0, begin - APART
    for i in range(1, count + 1):
        share = i / count
        if i == count or (share >= begin and share - looked >= APART - 1e-12):
            waves.append(Wave(float(ready[order[i - 1]]), order[sent:i]))
            sent, looked = i, share
    return waves


@dataclass(frozen=True, eq=False)
class _MicroBatches:
    """`total` micro-batches by data-parallel rank: seconds of `one`, and how many of them fill the
    stages (float64[dp] both).
    """

    one: np.ndarray
    fill: np.ndarray
    total: int

    def fitting(self, wanted: int, seconds: float) -> int:
        """How many of those wanted are done within so many seconds."""
        if seconds <= 0 or not self.one.any():
            return 0
        with np.errstate(divide="ignore"):  # a rank that computes nothing has room for any
            room = int((seconds / self.one - self.fill).min())
        return max(0, min(wanted, room))

    def by_rank(self, count: int) -> np.ndarray:
        """Seconds of so many of them, on empty stages (float64[dp])."""
        return (count + self.fill) * self.one if count else np.zeros_like(self.one)


def _work(
    w: Workload, whole: np.ndarray, micro_batches: int, passes: PassSeconds, backward: bool = True
) -> _MicroBatches:
    layout, logits = trainer_of(w).layout, passes.logits_share
    bubble = bubble_share(layout, micro_batches, logits, backward)
    slowest = layout.slowest(logits)
    # each takes as long as in the slowest stage
    fill = (bubble - (slowest - 1)) * micro_batches / slowest
    return _MicroBatches(slowest * whole / (1 + bubble) / micro_batches, fill, micro_batches)


def trained_ahead(
    w: Workload, trained: Trained, waves: Sequence[Wave], tokens: np.ndarray
) -> tuple[list[Wave], Trained]:
    """The waves with what training computes of each before the last one comes, and what is left.

    tokens: of each group (float64[groups]).
    """
    batch = trained.mini_batches[0]
    passes, count = trained.log_prob_pass, trained.log_prob_micro_batches
    ahead = _work(w, trained.log_prob, count, passes, backward=False)
    last = w.training.buckets * batch.piece
    back = _work(w, batch.first + last, batch.micro_batches, batch.ahead + batch.back)
    updates = trained.mini_batches[: len(w.updates)]  # of one epoch
    # share of the first mini-batch
    first = float(batch.tokens.sum() / sum(each.tokens.sum() for each in updates))
    come, now, n, m = 0.0, 0.0, 0, 0
    made = []
    for wave in waves:
        come += float(tokens[wave.groups].sum() / tokens.sum())
        begins = max(now, wave.at)
        left = waves[-1].at - begins
        more = ahead.fitting(_filled(ahead.total * come) - n, left)
        n, left = n + more, left - float(ahead.by_rank(more).max())
        known = n / ahead.total if w.training.log_prob_passes else come
        filled = min(_filled(back.total * known / first), back.total - 1)
        also = back.fitting(filled - m, left)
        m += also
        part = _part(trained, ahead, back, more, also) if more or also else None
        made.append(replace(wave, begins=begins, part=part))
        now = begins + made[-1].seconds
    return made, _left(trained, ahead, back, n, m)


def _filled(micro_batches: float) -> int:
    """Those of them that are full, but for the rounding of sums."""
    return int(micro_batches + 1e-9)


def _part(trained: Trained, ahead: _MicroBatches, back: _MicroBatches, n: int, m: int) -> Trained:
    """n micro-batches of log-probabilities and m of gradients, as a training of their own."""
    batch = trained.mini_batches[0]
    first = replace(
        batch,
        first=back.by_rank(m),
        piece=0.0,
        tokens=batch.tokens * (m / back.total),
        micro_batches=m,
    )
    return _with(trained, ahead.by_rank(n), n / ahead.total, n, [first] if m else [])


def _left(trained: Trained, ahead: _MicroBatches, back: _MicroBatches, n: int, m: int) -> Trained:
    """What is left of a training after so many micro-batches; it fills the stages again."""
    batch, *others = trained.mini_batches
    first = replace(
        batch,
        first=batch.first - m * back.one,
        tokens=batch.tokens * (1 - m / back.total),
        micro_batches=back.total - m,
    )
    share = 1 - n / ahead.total
    return _with(
        trained, trained.log_prob - n * ahead.one, share, ahead.total - n, [first, *others]
    )


def _with(
    trained: Trained, log_prob: np.ndarray, share: float, count: int, batches: list[MiniBatch]
) -> Trained:
    return replace(
        trained,
        log_prob=log_prob,
        log_prob_tokens=trained.log_prob_tokens * share,
        log_prob_micro_batches=count,
        mini_batches=batches,
    )

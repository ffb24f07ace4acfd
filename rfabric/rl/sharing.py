"""How long an update takes while the gradients of its last backward pass leave beside what its
layers exchange.

Flows on a NIC share its rate evenly. A turn of an exchange is over when its largest flows are, and
each flow of gradients gets as much on their NIC meanwhile; what exchanges leave of a NIC, while
others are still busy or while all compute, gradients share among themselves:

    hot NIC    |=== exchange ===|- gradients -|.. computing ..|  turn: u + n m beside n gradients
    another    |= exchange =|-- gradients ----|.. computing ..|  (u: its bytes, m: its largest flow)

Where parameters are sharded, layers are gathered and scattered in a loop of their own, beside the
exchanges. Both loops are played at the end of a NIC that is busiest with them: while both send,
their flows share it evenly.

Bytes become seconds at the rate of the NIC, and a GPU has two ends: out of it and into it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..trace import Flows
from ..units import transfer_seconds
from . import flows
from .exchanges import Repeated
from .workload import Workload

# of a loop, at least: flows of a bucket that end nearer to one another end together
PARTS = 32
# of two loops that are played against each other; more are put together, as many of either
MOST_TURNS = 4000


@dataclass(frozen=True, eq=False)
class _NicTime:
    """What flows ask of the ends of NICs (float64[2 x GPUs]): seconds in all, and of the largest
    flow.
    """

    busy: np.ndarray
    largest: np.ndarray


@dataclass(frozen=True, eq=False)
class _Bucket:
    """The flows of a bucket: the two ends of each (int64[n]), and the seconds it takes alone
    (float64[n]).
    """

    out: np.ndarray
    into: np.ndarray
    seconds: np.ndarray
    ends: int

    def by_end(self, each: np.ndarray) -> np.ndarray:
        """The sum over the flows at each end (float64[ends])."""
        return np.bincount(self.out, each, self.ends) + np.bincount(self.into, each, self.ends)

    def slower(self, of_ends: np.ndarray) -> np.ndarray:
        """The less of what the two ends of each flow have (float64[n])."""
        return np.minimum(of_ends[self.out], of_ends[self.into])


@dataclass(frozen=True, eq=False)
class _TurnSeconds:
    """Seconds of computing before a collective and beside it, and what it asks of NICs."""

    before: float
    beside: float
    asked: _NicTime


def update_exposed(w: Workload, loops: Sequence[Repeated]) -> float:
    """What exchanges and gradients add to the computing of an update (s).

    loops: what computes and exchanges, a bucket of gradients leaving at the end of each.
    """
    leaving, asked = _Leaving(_bucket(w)), _asked_by_turn(w, loops)
    took = 0.0
    for loop in loops:
        turns = _turns(w, loop, asked)
        took += leaving.pass_beside(turns, max(loop.repeat, 1))
        leaving.waiting += 1
    return float(took + leaving.rest() - sum(loop.seconds for loop in loops))


def update_exposed_sharded(
    w: Workload, loops: Sequence[Repeated], sharded: Repeated | None
) -> float:
    """What exchanges, and `sharded` layers gathered and scattered beside them, add to the computing
    of an update (s); where one of the two is not there, what the other adds.
    """
    return _beside(w, update_exposed(w, loops), [one for one in loops if one.repeat], sharded)


def log_probs_exposed(w: Workload, loop: Repeated | None, sharded: Repeated | None) -> float:
    """The same of the passes for log-probabilities, after which no gradients leave."""
    return _beside(w, loop.exposed(w) if loop else 0.0, [loop] if loop else [], sharded)


def _beside(
    w: Workload, exchanged: float, sending: Sequence[Repeated], sharded: Repeated | None
) -> float:
    """What loops that `exchanged` so much by themselves (s) add where sharded layers go beside."""
    if not sharded:
        return exchanged
    alone = max(exchanged, sharded.exposed(w))
    if not sending:
        return alone
    together = _seconds_of_two(*_at_one_end(w, [sending, [sharded]]))
    return max(alone, together - sum(loop.seconds for loop in sending))


@dataclass
class _TurnAtEnd:
    """What is left of a turn at one end of a NIC: seconds of computing before it sends, of sending
    alone, of computing beside; and how many flows send there.
    """

    before: float
    wire: float
    beside: float
    flows: float

    @property
    def sends(self) -> bool:
        return self.before <= 0 < self.wire

    @property
    def over(self) -> bool:
        return max(self.before, self.wire, self.beside) <= 0

    def next(self, share: float) -> float:
        """Seconds until something of it ends, when it has this share of the NIC."""
        if self.before > 0:
            return self.before
        ends = (self.wire / share, self.beside)
        return min(end for end in ends if end > 0)

    def advance(self, seconds: float, share: float) -> None:
        """Go on by so many seconds."""
        if self.before > 0:
            self.before = _less(self.before, seconds)
            return
        self.wire, self.beside = _less(self.wire, seconds * share), _less(self.beside, seconds)


def _less(left: float, by: float) -> float:
    """What is left; nothing where only rounding is."""
    return left - by if left - by > 1e-9 * left else 0.0


def _asked_by_turn(w: Workload, loops: Sequence[Repeated]) -> dict[int, _NicTime]:
    """What turns ask of NICs, by their id: loops of an update send the same turns."""
    turns = {id(turn): turn for loop in loops for turn in loop.turns}
    return {key: _asked(w, turn.flows) for key, turn in turns.items()}


def _at_one_end(w: Workload, two: Sequence[Sequence[Repeated]]) -> list[Iterator[_TurnAtEnd]]:
    """Both sides' turns at the end that is busiest with both."""
    every = [loop for side in two for loop in side]
    asked = _asked_by_turn(w, every)
    busy = np.zeros(2 * w.gpus)
    for loop in every:
        busy += loop.repeat * sum(asked[id(turn)].busy for turn in loop.turns)
    turns = sum(loop.repeat * len(loop.turns) for loop in every)
    end, together = int(busy.argmax()), max(1.0, turns / MOST_TURNS)
    return [_stages(side, asked, end, together) for side in two]


def _stages(
    side: Sequence[Repeated], asked: dict[int, _NicTime], end: int, together: float
) -> Iterator[_TurnAtEnd]:
    """The turns of a side's loops, one after the other, so many repetitions put `together`."""
    for loop in side:
        count = max(1, round(loop.repeat / together))
        times = loop.repeat / count
        for turn in loop.turns * count:
            its = asked[id(turn)]
            wire, largest = float(its.busy[end]), float(its.largest[end])
            seconds = (times * some for some in (loop.before(turn), wire, loop.beside(turn)))
            yield _TurnAtEnd(*seconds, flows=wire / largest if wire else 0.0)


def _seconds_of_two(one: Iterator[_TurnAtEnd], other: Iterator[_TurnAtEnd]) -> float:
    """Seconds until both sides have played all their turns."""
    took, sides, now = 0.0, [one, other], [next(one, None), next(other, None)]
    while any(now):
        rivals = sum(stage.flows for stage in now if stage and stage.sends)
        shares = [s.flows / rivals if s and s.sends and rivals else 1.0 for s in now]
        under_way = [(s, share) for s, share in zip(now, shares, strict=True) if s]
        seconds = min((s.next(share) for s, share in under_way if not s.over), default=0.0)
        for stage, share in under_way:
            stage.advance(seconds, share)
        now = [next(side, None) if s and s.over else s for side, s in zip(sides, now, strict=True)]
        took += seconds
    return took


def _turns(w: Workload, loop: Repeated, asked: dict[int, _NicTime]) -> list[_TurnSeconds]:
    """One repetition of a loop; of one that sends nothing, all its computing."""
    if not loop.repeat:
        return [_TurnSeconds(loop.seconds, 0.0, _asked(w, flows.NONE))]
    return [
        _TurnSeconds(loop.before(turn), loop.beside(turn), asked[id(turn)]) for turn in loop.turns
    ]


class _Leaving:
    """Buckets one after the other: seconds that each flow of the first still takes alone, and how
    many wait.
    """

    def __init__(self, bucket: _Bucket):
        self.bucket, self.left, self.waiting = bucket, np.zeros(len(bucket.seconds)), 0

    def pass_beside(self, turns: Sequence[_TurnSeconds], repeat: int) -> float:
        """Seconds that the turns take, `repeat` times, with what leaves beside them."""
        took, to_go = 0.0, float(repeat)
        while to_go > 0:
            self._next()
            sends = self.left > 0
            lasts, moved = self._once(turns, sends)
            if not sends.any():
                return took + to_go * lasts
            runs = min(to_go, self._runs(moved[sends], self.left[sends], repeat / PARTS))
            took, to_go = took + runs * lasts, to_go - runs
            self.left = np.where(self.left > runs * moved * (1 + 1e-9), self.left - runs * moved, 0)
        return took

    def rest(self) -> float:
        """Seconds until all is sent, when nothing goes beside it."""
        ends = self.bucket.by_end
        first, each = ends(self.left), ends(self.bucket.seconds)
        return float(first.max() + self.waiting * each.max())

    def _next(self) -> None:
        if self.waiting and not (self.left > 0).any():
            self.left, self.waiting = self.bucket.seconds, self.waiting - 1

    def _once(self, turns: Sequence[_TurnSeconds], sends: np.ndarray) -> tuple[float, np.ndarray]:
        """Seconds of all turns once, and how many of its own each flow that `sends` gets done."""
        rivals = self.bucket.by_end(sends)
        lasts, moved = 0.0, np.zeros(len(sends))
        for turn in turns:
            wire = (turn.asked.busy + rivals * turn.asked.largest).max()
            seconds = turn.before + max(turn.beside, wire)
            free = (seconds - turn.asked.busy) / np.maximum(rivals, 1)
            lasts, moved = lasts + seconds, moved + self.bucket.slower(free)
        return lasts, moved

    @staticmethod
    def _runs(moved: np.ndarray, left: np.ndarray, least: float) -> float:
        """Repetitions until the next flow ends, `least` or until the last one does."""
        runs = left / np.maximum(moved, np.finfo(float).tiny)
        return max(runs.min(), min(runs.max(), least))


@lru_cache(2)
def _bucket(w: Workload) -> _Bucket:
    sent = flows.gradients(w)
    src, dst = (np.asarray(one, dtype=np.int64) for one in (sent.src, sent.dst))
    return _Bucket(2 * src, 2 * dst + 1, _seconds(w, sent), 2 * w.gpus)


def _asked(w: Workload, sent: Flows) -> _NicTime:
    ends = np.concatenate((2 * np.array(sent.src, np.int64), 2 * np.array(sent.dst, np.int64) + 1))
    seconds, largest = np.tile(_seconds(w, sent), 2), np.zeros(2 * w.gpus)
    np.maximum.at(largest, ends, seconds)
    return _NicTime(np.bincount(ends, seconds, 2 * w.gpus), largest)


def _seconds(w: Workload, sent: Flows) -> np.ndarray:
    return transfer_seconds(np.array(sent.size, dtype=float), w.nic_bps)

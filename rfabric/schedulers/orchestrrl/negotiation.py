"""What is moved once the network has been asked.

    proposed   the plan as if network cards were all there is
    answered   when its KV will have arrived: how much slower the network is than the cards
    proposed   the same plan, what is dearer to carry than to compute again computed again; and the
               plan that is made at the network's price
    answered   each of them
    decided    the plan whose longest seat is done first, waiting included, where that is worth it
               by the rule of `replanning`; else all stays where it is

A replica that takes KV over serves nothing before it has arrived. What the network refuses to carry
is computed again; nothing is lost. Tokens, bytes, seconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...rl import flows
from ...trace import Flows, point_to_point
from ..base import Answer, AnsweringNetwork
from .replanning import Assignment, Problem, keep, limits, seat_seconds
from .seats import Seats, seat_gpus

AS_CARDS = 1.05  # a network no slower than that is as good as the cards: the plan stays as it is
REFUSED = 1e9  # so much dearer is KV that the network will not carry
GpuNumbers = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Alive:
    """Responses that are not done: number, replica (its place among all), tokens of context, tokens
    to come, KV there.
    """

    ids: np.ndarray
    replica: np.ndarray
    context: np.ndarray
    left: np.ndarray
    resident: np.ndarray


@dataclass(frozen=True, eq=False)
class Places:
    """Where responses can be: GPUs of each place, and its seat (int64[places])."""

    gpus: Sequence[GpuNumbers]
    seat: np.ndarray

    @classmethod
    def of_seats(cls, seats: Seats) -> "Places":
        """All seats, each with all its GPUs."""
        size, first = seat_gpus(seats.workload), seats.workload.first_generation_gpu
        starts = range(first, first + seats.count * size, size)
        return cls([tuple(range(a, a + size)) for a in starts], np.arange(seats.count))


@dataclass(frozen=True, eq=False)
class Kv:
    """The KV of N responses: bytes, and the seconds to carry it by cards alone or to compute it
    again (float64[N]); `source` says in which of the places `at` it is, `to` are those of the
    problem.
    """

    size: np.ndarray
    carry: np.ndarray
    prefill: np.ndarray
    source: np.ndarray
    at: Places
    to: Places

    @classmethod
    def of(cls, seats: Seats, cut: int, alive: Alive, at: Places, to: Places) -> "Kv":
        """Where servers are cut like `cut`."""
        size = alive.context * seats.workload.served.kv_bytes_per_token * alive.resident
        spent = seats.carry(cut, alive.context), seats.prefill(cut, alive.context)
        return cls(size, *spent, alive.replica, at, to)

    def far(self, place: np.ndarray) -> np.ndarray:
        """Which responses leave their seat when they go to these places, as a mask."""
        return self.at.seat[self.source] != self.to.seat[place]

    def goes(self, place: np.ndarray, carried: np.ndarray) -> np.ndarray:
        """Of which responses KV is sent when they go there and those `carried` take theirs along,
        as a mask.
        """
        return self.far(place) & carried & (self.size > 0)

    def price(self, slow: float) -> np.ndarray:
        """Seconds to bring each elsewhere on a network so much slower than the cards."""
        return np.minimum(slow * self.carry, self.prefill)


@dataclass(frozen=True, eq=False)
class Settled:
    """What was agreed: where responses go, what is sent, how much `slow`er than cards it is priced,
    and when it arrives.

    refused: why the network would not carry the first proposal; given_up: nothing is moved, which
    cards alone would have been worth.
    """

    assignment: Assignment
    sends: Flows
    slow: float
    answer: Answer
    refused: str = ""
    given_up: bool = False


def settle(
    seats: Seats, p: Problem, kv: Kv, find: Callable[[Problem], Assignment], beside: Sequence[Flows]
) -> Settled:
    """Propose, ask, propose again, decide; `find` makes a plan at the prices of a problem,
    `beside` is in flight already.
    """
    first, server = find(p), seats.workload.gpus_per_server
    if seats.network is None:
        return Settled(first, flows.NONE, 1.0, Answer(0.0))
    sends = _sends(kv, first.seat, np.ones(len(kv.size), bool), server)
    if not len(sends.src):
        return Settled(first, sends, 1.0, Answer(0.0))
    ask = _asking(seats.network, beside)
    answer, cards = ask(sends), flows.wire_seconds(seats.workload, sends)
    slow = min(answer.seconds / cards, REFUSED)
    if slow <= AS_CARDS:
        return Settled(first, sends, 1.0, Answer(0.0))
    at_price = find(replace(p, move=kv.price(slow)))
    plans = ((first, 1.0), (first, slow), (at_price, slow))
    proposals = [_proposal(p, kv, plan, price, ask, server) for plan, price in plans]
    done = _decided(p, proposals, limits(p, 0.0))  # each has cleared the hysteresis at its price
    return replace(done, refused=answer.why) if answer.refused else done


def _asking(network: AnsweringNetwork, beside: Sequence[Flows]) -> Callable[[Flows], Answer]:
    """Asks a network, the same proposal only once."""
    known: list[tuple[Flows, Answer]] = [(flows.NONE, Answer(0.0))]

    def ask(sends: Flows) -> Answer:
        same = (answer for asked, answer in known if asked == sends)
        answer = next(same, None) or network.answer(sends, beside)
        known.append((sends, answer))
        return answer

    return ask


def _decided(p: Problem, proposals: Sequence[Settled], worth: dict[bool, float]) -> Settled:
    best = min(proposals, key=lambda one: one.assignment.seconds)
    changes = bool((best.assignment.cut != p.cut).any())
    if best.assignment.seconds < worth[changes]:
        return best
    return Settled(keep(p), flows.NONE, 1.0, Answer(0.0), given_up=True)


def _proposal(
    p: Problem,
    kv: Kv,
    plan: Assignment,
    slow: float,
    ask: Callable[[Flows], Answer],
    gpus_per_server: int,
) -> Settled:
    """A plan that carries only what is cheaper to carry at this price; who takes KV over waits for
    all that is sent.
    """
    carried = slow * kv.carry <= kv.prefill
    sends = _sends(kv, plan.seat, carried, gpus_per_server)
    answer = ask(sends)
    again = np.where(carried | ~kv.far(plan.seat), 0.0, kv.prefill)
    load = seat_seconds(replace(p, move=again), plan.seat, plan.cut)
    load[np.unique(plan.seat[kv.goes(plan.seat, carried)])] += answer.seconds
    return Settled(replace(plan, seconds=float(load.max())), sends, slow, answer)


def _sends(kv: Kv, place: np.ndarray, carried: np.ndarray, gpus_per_server: int) -> Flows:
    """The KV that leaves a seat, from all GPUs that hold it to all of the place it goes to."""
    goes = kv.goes(place, carried)
    many = len(kv.to.gpus)
    routes, which = np.unique(kv.source[goes] * many + place[goes], return_inverse=True)
    sizes = np.bincount(which, kv.size[goes])
    return flows.join(
        _between(kv.at.gpus[route // many], kv.to.gpus[route % many], size, gpus_per_server)
        for route, size in zip(routes.tolist(), sizes.tolist(), strict=True)
    )


def _between(a: GpuNumbers, b: GpuNumbers, size: float, gpus_per_server: int) -> Flows:
    n = max(len(a), len(b))
    pairs = [(a[i * len(a) // n], b[i * len(b) // n]) for i in range(n)]
    return point_to_point(pairs, size / n, gpus_per_server)

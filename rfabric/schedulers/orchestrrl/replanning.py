"""OrchestrRL's decisions (arXiv 2601.01209): which server serves each response, and how each server
is cut into replicas.

    replan  min over seats and cuts of the longest server  the mixes enumerated, responses dealt
                                                           longest first
    evened  the same cuts, some responses moved            from the longest server to the shortest,
                                                           one by one
    exact   the same as replan by a mixed-integer program  small cases; the oracle of the tests

    seconds of server k, cut s = fixed[s] + sum over its responses of (work[s, i] + move[i] where it
    is not there yet)
                                 + switch, where it is cut another way now;  0 without responses

Seats, cuts and what is expected of them: `outlook`. Tokens, seconds.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...errors import RFabricError
from .outlook import CutOutlook

SPLITS = 8  # shares of the seats that a mix of two cuts is tried with
SCREENED = 2  # mixes that responses are dealt for, the best by an even share


@dataclass(frozen=True, eq=False)
class Problem:
    """N responses, K seats, S cuts.

    seat: where each response is, -1 for nowhere yet (int64[N]); cut: of each seat (int64[K]).

    fixed, work: a CutOutlook; kv: tokens of KV each holds (N); capacity: of a seat, by cut (S);
    move: seconds that the server takes to which a response goes (N); switch: seconds to cut a seat
    another way; static: the outlook of seats that are never cut another way again, where that is
    another one.

    RFabricError for none of either, other shapes, figures that are negative or not finite.
    """

    fixed: np.ndarray
    work: np.ndarray
    kv: np.ndarray
    capacity: np.ndarray
    move: np.ndarray
    seat: np.ndarray
    cut: np.ndarray
    switch: float
    static: CutOutlook | None = None

    def __post_init__(self):
        n, cuts = len(self.seat), len(self.fixed)
        if not n or not len(self.cut):
            raise RFabricError(
                f"replanning: {n} responses on {len(self.cut)} seats; there must be one of "
                "each at least"
            )
        shapes = {"work": (cuts, n), "kv": (n,), "capacity": (cuts,), "move": (n,)}
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise RFabricError(
                    f"replanning: {name} is {getattr(self, name).shape}, must be {shape}"
                )
        for name in ("fixed", "work", "kv", "capacity", "move"):
            if not (getattr(self, name) >= 0).all() or not np.isfinite(getattr(self, name)).all():
                raise RFabricError(f"replanning: {name} must be finite and not negative")

    @property
    def placed(self) -> bool:
        """Whether every response has a seat."""
        return bool((self.seat >= 0).all())


@dataclass(frozen=True, eq=False)
class Assignment:
    """A seat for each response and a cut for each seat; `seconds`: of the longest seat, as the
    problem counts.
    """

    seat: np.ndarray
    cut: np.ndarray
    seconds: float


def seat_seconds(p: Problem, seat: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """Seconds of each seat (float64[K])."""
    seats = len(p.cut)
    each = p.work[cut[seat], np.arange(len(seat))] + np.where(
        (seat != p.seat) & (p.seat >= 0), p.move, 0.0
    )
    some = np.bincount(seat, minlength=seats) > 0
    fixed = p.fixed[cut] + np.where(cut != p.cut, p.switch, 0.0)
    return np.bincount(seat, each, minlength=seats) + np.where(some, fixed, 0.0)


def overfull(p: Problem, seat: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """The seats that hold more KV than they can."""
    return np.flatnonzero(np.bincount(seat, p.kv, minlength=len(p.cut)) > p.capacity[cut])


def assigned(p: Problem, seat: np.ndarray, cut: np.ndarray) -> Assignment:
    """The assignment with its seconds."""
    return Assignment(seat, cut, float(seat_seconds(p, seat, cut).max()))


def keep(p: Problem) -> Assignment:
    """Everything stays where it is; what has no seat yet is dealt to the cuts that are there."""
    return assigned(p, p.seat, p.cut) if p.placed else _dealt(p, p.cut)


def replan(p: Problem, hysteresis: float = 0.0) -> Assignment:
    """The best assignment found.

    It must take a `hysteresis` share less than `keep`, and where servers are cut another way less
    than if they never were: then now is the time, as `keep` counts with a cut that comes later.
    """
    stay, worth = keep(p), limits(p, hysteresis)
    plans = [
        a for cut in _screened(p) for a in _tried(p, cut) if not len(overfull(p, a.seat, a.cut))
    ]
    plans = [a for a in plans if a.seconds < worth[bool((a.cut != p.cut).any())]]
    return min(plans, key=lambda a: a.seconds, default=stay)


def limits(p: Problem, hysteresis: float) -> dict[bool, float]:
    """The seconds below which an assignment is better than `keep`, by whether it cuts servers."""
    stay = keep(p)
    if len(overfull(p, stay.seat, stay.cut)):
        return {True: np.inf, False: np.inf}
    for_good = (1 - hysteresis) * float(seat_seconds(_for_good(p), stay.seat, stay.cut).max())
    return {False: (1 - hysteresis) * stay.seconds, True: min(stay.seconds, for_good)}


def _for_good(p: Problem) -> Problem:
    """The problem were no server ever cut another way."""
    return p if p.static is None else replace(p, fixed=p.static.fixed, work=p.static.work)


def _tried(p: Problem, cut: np.ndarray) -> Iterator[Assignment]:
    yield _dealt(p, cut)
    if p.placed:
        yield evened(p, cut)


def _screened(p: Problem) -> list[np.ndarray]:
    """Cuts of the seats worth dealing for: those that are there, and the best mixes were the
    responses a fluid.
    """
    mixes = list(_mixes(p))
    work = p.work.sum(1)
    seconds = [_fluid(p, cut, work) for cut in mixes]
    best = sorted(range(len(mixes)), key=seconds.__getitem__)[:SCREENED]
    return [p.cut, *(mixes[i] for i in best if (mixes[i] != p.cut).any())]


def _mixes(p: Problem) -> Iterator[np.ndarray]:
    """All seats cut alike, or some one way and the rest another; the busiest change last, seats
    that are cut so already first.
    """
    seats, cuts = len(p.cut), len(p.fixed)
    load = np.bincount(p.seat[p.seat >= 0], minlength=seats)
    shares = sorted({max(1, round(seats * i / SPLITS)) for i in range(1, SPLITS)} - {seats})
    for s in range(cuts):
        yield np.full(seats, s)
        for other in range(cuts):
            order = np.lexsort((load, p.cut != other))
            for count in shares if other != s else ():
                mixed = np.full(seats, s)
                mixed[order[:count]] = other
                yield mixed


def _fluid(p: Problem, cut: np.ndarray, work: np.ndarray) -> float:
    """Seconds were all responses poured so that all seats end together."""
    fixed = p.fixed[cut] + np.where(cut != p.cut, p.switch, 0.0)
    rate = 1 / np.maximum(work[cut], 1e-12)  # shares of all the work a second
    order = np.argsort(fixed)
    cumulated = np.cumsum(rate[order])
    ends = (1 + np.cumsum((rate * fixed)[order])) / cumulated
    following = np.append(fixed[order][1:], np.inf)
    return float(ends[np.flatnonzero(ends <= following)[0]])


def _dealt(p: Problem, cut: np.ndarray) -> Assignment:
    """Longest first, each to the seat that is done first with it and has room; its own seat where
    that is as good.
    """
    fixed = (p.fixed[cut] + np.where(cut != p.cut, p.switch, 0.0)).tolist()
    room = p.capacity[cut].tolist()
    heaps = {
        s: [(fixed[k], k) for k in np.flatnonzero(cut == s).tolist()] for s in set(cut.tolist())
    }
    for heap in heaps.values():
        heapq.heapify(heap)
    load, seat = list(fixed), p.seat.copy()
    order = np.argsort(-p.work.max(0), kind="stable").tolist()
    work, kv, move, before = p.work.tolist(), p.kv.tolist(), p.move.tolist(), p.seat.tolist()
    for i in order:
        k = _seat_for(i, cut, heaps, load, room, work, kv, move, before)
        load[k] += work[cut[k]][i] + (move[i] if before[i] not in (-1, k) else 0.0)
        room[k] -= kv[i]
        heapq.heappush(heaps[cut[k]], (load[k], k))
        seat[i] = k
    return assigned(p, seat, cut)


def _seat_for(i: int, cut, heaps, load, room, work, kv, move, before) -> int:
    """The seat that is done first with response i; one that is full only where all are."""
    best, end = -1, float("inf")
    own = before[i]
    if own >= 0 and room[own] >= kv[i]:
        best, end = own, load[own] + work[cut[own]][i]
    for s, heap in heaps.items():
        k = _lightest(heap, load, room, kv[i])
        added = work[s][i] + (move[i] if own >= 0 else 0.0)
        if k is not None and load[k] + added < end:
            best, end = k, load[k] + added
    return best if best >= 0 else min(range(len(load)), key=lambda k: -room[k])


def _lightest(heap: list, load: list, room: list, needs: float) -> int | None:
    """The seat of a heap with the least load that has room; outdated entries are dropped."""
    aside, seat = [], None
    while heap:
        at, k = heap[0]
        if at != load[k]:
            heapq.heappop(heap)
        elif room[k] < needs:
            aside.append(heapq.heappop(heap))
        else:
            seat = k
            break
    for entry in aside:
        heapq.heappush(heap, entry)
    return seat


def evened(p: Problem, cut: np.ndarray, most: int | None = None) -> Assignment:
    """Responses stay, but for `most` that go one by one from the longest seat to the shortest while
    that shortens the longest.
    """
    seat = p.seat.copy()
    load = seat_seconds(p, seat, cut)
    room = p.capacity[cut] - np.bincount(seat, p.kv, minlength=len(cut))
    fixed = p.fixed[cut] + np.where(cut != p.cut, p.switch, 0.0)
    stay = [np.flatnonzero(seat == k) for k in range(len(cut))]  # a response is moved once
    for _ in range(len(seat) if most is None else most):
        a, b = int(load.argmax()), int(load.argmin())
        here = stay[a][p.kv[stay[a]] <= room[b]]
        if not len(here):
            break
        begins = fixed[b] if load[b] == 0 else 0.0
        after = load[b] + begins + p.work[cut[b]][here] + p.move[here]
        left = load[a] - p.work[cut[a]][here]
        i = int(np.maximum(after, left).argmin())
        if max(after[i], left[i]) >= load[a]:
            break
        moved = here[i]
        stay[a] = stay[a][stay[a] != moved]
        load[a], load[b], seat[moved] = left[i], after[i], b
        room[a], room[b] = room[a] + p.kv[moved], room[b] - p.kv[moved]
    return assigned(p, seat, cut)


# --- the oracle -----------------------------------------------------------------------------------


def exact(p: Problem) -> Assignment:
    """The least seconds of the longest seat by a mixed-integer program (HiGHS): a few seats, cuts
    and dozens of responses.

    RFabricError where no assignment fits the KV.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    n, seats, cuts = len(p.seat), len(p.cut), len(p.fixed)
    x = np.arange(n * seats * cuts).reshape(n, seats, cuts)  # response i on seat k, cut s
    y = np.arange(seats * cuts).reshape(seats, cuts) + x.size  # seat k cut s and used
    time = x.size + y.size
    rows: list[tuple[dict[int, float], float, float]] = []
    rows += [({int(v): 1.0 for v in x[i].ravel()}, 1, 1) for i in range(n)]
    rows += [({int(v): 1.0 for v in y[k]}, 0, 1) for k in range(seats)]
    moves = np.where(
        (np.arange(seats)[None, :] != p.seat[:, None]) & (p.seat[:, None] >= 0),
        p.move[:, None],
        0.0,
    )
    for k in range(seats):
        used = {int(y[k, s]): float(p.fixed[s] + p.switch * (s != p.cut[k])) for s in range(cuts)}
        spent = {
            int(x[i, k, s]): float(p.work[s, i] + moves[i, k])
            for i in range(n)
            for s in range(cuts)
        }
        rows.append((used | spent | {time: -1.0}, -np.inf, 0))
        for s in range(cuts):
            rows.append(
                (
                    {int(x[i, k, s]): float(p.kv[i]) for i in range(n)}
                    | {int(y[k, s]): -float(p.capacity[s])},
                    -np.inf,
                    0,
                )
            )
            rows += [({int(x[i, k, s]): 1.0, int(y[k, s]): -1.0}, -np.inf, 0) for i in range(n)]
    matrix = np.zeros((len(rows), time + 1))
    for r, (entries, _, _) in enumerate(rows):
        matrix[r, list(entries)] = list(entries.values())
    low, high = np.array([r[1] for r in rows], float), np.array([r[2] for r in rows], float)
    goal = np.zeros(time + 1)
    goal[time] = 1.0
    whole = np.ones(time + 1)
    whole[time] = 0
    bounds = Bounds(np.zeros(time + 1), np.append(np.ones(time), np.inf))
    done = milp(
        goal, constraints=LinearConstraint(matrix, low, high), integrality=whole, bounds=bounds
    )
    if not done.success:
        raise RFabricError(
            f"replanning: {n} responses do not fit the KV of {seats} seats: {done.message}"
        )
    return _solution(p, np.round(done.x), x, y)


def _solution(p: Problem, values: np.ndarray, x: np.ndarray, y: np.ndarray) -> Assignment:
    used = values[y].any(1)
    cut = np.where(used, values[y].argmax(1), p.cut)
    return assigned(p, values[x].any(2).argmax(1), cut)

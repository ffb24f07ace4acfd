"""A step generated tick by tick: replicas serve, the planner cuts servers anew, the balancer moves
responses.

    tick     every `balance`, or `period` where that is shorter; nothing is decided while the last
             plan is not in force yet
    planner  every `period`: `replanning.replan`, by the forecast of lengths; else the balancer:
             `replanning.evened`

A replica that gains or loses responses ends a segment and begins another (`segments`). Seconds from
the begin of the phase.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from ...compute.requests import Requests, independent
from ...compute.serving import ServingSession
from ...rl.phases import Step, responses, trained_on
from ...rl.popularity import routing
from ...trace import Flows
from ..forecasts import FELL_BACK
from .negotiation import Alive, Kv, Places, settle
from .outlook import CutOutlook, LengthForecast, forecast, outlook
from .replanning import Assignment, Problem, evened, keep, replan
from .seats import Seats, seat_gpus
from .segments import Move, Orchestrated, Segment, merged

BALANCING = "balancing"  # the phase in which the balancer moves responses


@dataclass(eq=False)
class _Replica:
    """A replica: its responses and their session, which began at `base`; `ready` is when it can
    serve (s both).
    """

    seat: int
    cut: int
    gpus: tuple[int, ...]
    ids: np.ndarray
    ready: float = 0.0
    session: ServingSession | None = None
    base: float = 0.0
    segment: dict = field(default_factory=dict)  # of its Segment, what is known as it begins

    @property
    def now(self) -> float:
        """Seconds from the begin of the phase that it has served up to."""
        return self.base + (self.session.now if self.session else 0.0)


@dataclass(frozen=True, eq=False)
class StepOutcome:
    """A step, the cuts of its seats at the end, when each seat was done (s), what was
    decided, and what the network refused at first.
    """

    step: Step
    cuts: np.ndarray
    done: np.ndarray
    counts: Mapping[str, int]
    refusal: str = ""


def generate(
    seats: Seats, seed: int, history: list[np.ndarray], first: int, numbers: Sequence[int]
) -> list[StepOutcome]:
    """The job's steps of these numbers, one after the other: each forecast from the lengths of
    those before it.

    history: lengths of steps before the first, oldest first; first: the cut that a step begins
    with.
    """
    w, outcomes = seats.workload, list[StepOutcome]()
    ready = np.zeros(seats.count)
    for number in numbers:
        prompts, outputs = responses(w, seed, number)
        expected = forecast(history, w.generation.max_response, seats.tuning.forecast)
        play = _Generating(seats, prompts, outputs, expected, first, ready)
        outcomes.append(play.run(number, routing(w, seed, number)))
        history = [*history, outputs]
        ready = _ready(seats, outcomes[-1], first)
    return outcomes


def _ready(seats: Seats, last: StepOutcome, first: int) -> np.ndarray:
    """When each seat is back at the first cut (s from the begin of the next generation).

    A sync pipeline hides that behind training; in the others the next generation begins as this one
    ends.
    """
    idle = (
        last.step.trained.seconds(seats.workload.training.buckets)
        if seats.workload.steps_ahead == 0
        else 0.0
    )
    back = np.where(last.cuts != first, seats.tuning.switch_s, 0.0)
    return np.maximum(last.done + back - last.step.generated.seconds - idle, 0.0)


class _Generating:
    """A step of generation, tick by tick."""

    def __init__(
        self,
        seats: Seats,
        prompts,
        outputs,
        expected: LengthForecast,
        first: int,
        ready: np.ndarray,
    ):
        self.seats, self.expected, self.prompts, self.outputs = seats, expected, prompts, outputs
        self.segments: list[Segment] = []
        self.last: dict[int, int] = {}  # GPU: the segment it was last in
        self.counts = dict.fromkeys(
            ("plans", "replans", "servers_cut", "moved", "recomputed", "balanced"), 0
        ) | ({"refused": 0, "given_up": 0} if seats.network else {})
        if seats.tuning.forecast == "arima":
            self.counts[FELL_BACK] = expected.fell_back
        self.now = self.part = 0.0  # s; what of a response the balancer has not moved yet
        self.slow = 1.0  # so much slower than cards is the network for the KV that is moved now
        self.refusal = ""
        self.flying: list[tuple[float, Flows]] = []  # until when, what is sent
        self.cuts = np.full(seats.count, first)
        self.replicas = self._begin(first, ready)

    def run(self, number: int, shares: np.ndarray | None) -> StepOutcome:
        """The step, played to its end; shares: of experts, by which training takes its time."""
        tuning, tick = self.seats.tuning, 0
        next_plan = tuning.period_s
        while any(r.session and r.session.unfinished for r in self.replicas):
            tick += 1
            self.now = tick * tuning.tick_s
            for r in self.replicas:
                if r.session:
                    r.session.run(self.now - r.base)
            if any(r.session and r.base > self.now for r in self.replicas):
                continue  # the last plan is not in force yet
            alive = self._alive()
            if len(alive.ids) and self.now >= next_plan - 1e-9:
                while self.now >= next_plan - 1e-9:  # those that came due under way are one
                    next_plan += tuning.period_s
                self._replan(alive)
            elif len(alive.ids):
                self._balance(alive)
        for r in self.replicas:
            self._close(r)
        w = self.seats.workload
        made = Orchestrated([self.prompts], [self.outputs], [], segments=tuple(self.segments))
        lengths = (self.prompts + self.outputs).astype(float)[: w.generation.responses]
        trained = trained_on(w, lengths, shares)
        step = Step(number, made, trained)
        return StepOutcome(step, self.cuts, self._seats_done(), self.counts, self.refusal)

    def _begin(self, cut: int, ready: np.ndarray) -> list[_Replica]:
        """Whole groups, longest prompts first, to seats and then to their replicas: nothing else is
        known of them. Where there are more replicas than groups, single responses, as `rl.phases`.
        """
        seats, size = self.seats, self.seats.workload.generation.group_size
        count = seats.count * seats.engines.replicas[cut]
        size = size if len(self.prompts) >= count * size else 1
        groups = np.argsort(-self.prompts[::size], kind="stable")
        replicas = []
        for place in range(count):
            seat, replica = place % seats.count, place // seats.count
            ids = (groups[place::count, None] * size + np.arange(size)[None, :]).ravel()
            at, gpus = float(ready[seat]), seats.gpus(seat, cut, replica)
            made = _Replica(seat, cut, gpus, np.sort(ids), at, base=at, segment={"switch": at})
            replicas.append(made)
        for r in replicas:
            if len(r.ids):
                self._serve(r, independent(self.prompts[r.ids], self.outputs[r.ids], size))
        return replicas

    def _serve(self, r: _Replica, requests: Requests, resident: np.ndarray | None = None) -> None:
        engines = self.seats.engines
        r.session = ServingSession(
            engines.steps[r.cut],
            engines.kv_tokens[r.cut],
            self.seats.batching(r.cut),
            requests,
            resident,
        )

    def _alive(self) -> Alive:
        parts = []
        for place, r in enumerate(self.replicas):
            if r.session and r.session.unfinished:
                s = r.session.standing()
                some = s.left > 0
                parts.append(
                    (
                        r.ids[some],
                        np.full(some.sum(), place),
                        s.context[some],
                        s.left[some],
                        s.resident[some],
                    )
                )
        columns = zip(*parts, strict=True) if parts else [[np.zeros(0, int)]] * 5
        return Alive(*(np.concatenate(column) for column in columns))

    # --- deciding

    def _outlook(self, alive: Alive, switch: float | None = None) -> CutOutlook:
        made, seats = alive.context - self.prompts[alive.ids], self.seats
        switch = seats.tuning.switch_s if switch is None else switch
        left = alive.left if seats.tuning.forecast == "oracle" else None
        return outlook(seats.engines, self.expected, made, alive.context, seats.count, switch, left)

    def _kv(self, alive: Alive, to: Places) -> Kv:
        cut = int(np.bincount(self.cuts).argmax())
        return Kv.of(self.seats, cut, alive, self._here(), to)

    def _here(self) -> Places:
        seat = np.array([r.seat for r in self.replicas])
        return Places([r.gpus for r in self.replicas], seat)

    def _settled(self, p: Problem, kv: Kv, find: Callable[[Problem], Assignment]) -> Assignment:
        """What is done: as it was found, or as it was agreed where a network is asked."""
        self.flying = [one for one in self.flying if one[0] > self.now]
        done = settle(self.seats, p, kv, find, [sends for _, sends in self.flying])
        self.slow = done.slow
        if self.seats.network:
            self.counts["refused"] += bool(done.refused)
            self.refusal = self.refusal or done.refused
            self.counts["given_up"] += done.given_up
            self.flying.append((self.now + done.answer.seconds, done.sends))
        return done.assignment

    def _replan(self, alive: Alive) -> None:
        self.counts["plans"] += 1
        seen, engines = self._outlook(alive), self.seats.engines
        seat = np.array([r.seat for r in self.replicas])[alive.replica]
        capacity = np.array(engines.kv_tokens, float) * engines.replicas
        kv = self._kv(alive, Places.of_seats(self.seats))
        p = Problem(
            seen.fixed,
            seen.work,
            alive.context.astype(float),
            capacity,
            kv.price(1.0),
            seat,
            self.cuts,
            self.seats.tuning.switch_s,
            self._outlook(alive, inf),
        )
        plan = self._settled(p, kv, lambda some: replan(some, self.seats.tuning.hysteresis))
        if (plan.seat != seat).any() or (plan.cut != self.cuts).any():
            self._follow(alive, plan, seat)

    def _balance(self, alive: Alive) -> None:
        """Responses from stragglers to light replicas, cuts as they are."""
        tuning, engines = self.seats.tuning, self.seats.engines
        most, self.part = tuning.moves_in_look(self.part)
        counts = np.bincount(alive.replica, minlength=len(self.replicas))
        if counts.max() - counts.min() < 2 or not most:
            return
        seen, cut = self._outlook(alive), np.array([r.cut for r in self.replicas])
        work = seen.of_replicas(self.seats.count, engines.replicas)
        kv = self._kv(alive, self._here())
        p = Problem(
            seen.fixed,
            work,
            alive.context.astype(float),
            np.array(engines.kv_tokens, float),
            kv.price(1.0),
            alive.replica,
            cut,
            tuning.switch_s,
        )

        def find(some: Problem) -> Assignment:
            even, stay = evened(some, cut, most), keep(some)
            return even if even.seconds < (1 - tuning.hysteresis) * stay.seconds else stay

        plan = self._settled(p, kv, find)
        if (plan.seat != alive.replica).any():
            self.counts["balanced"] += 1
            self._rebuild(alive, plan.seat, BALANCING)

    # --- doing

    def _follow(self, alive: Alive, plan: Assignment, seat: np.ndarray) -> None:
        """Cut servers and move responses as planned: new replicas on cut servers, the emptiest of
        others take what comes.
        """
        self.counts["replans"] += 1
        name, seats, changed = (
            f"migration-{self.counts['replans']}",
            self.seats,
            np.flatnonzero(plan.cut != self.cuts),
        )
        self.counts["servers_cut"] += len(changed)
        self.cuts = plan.cut.copy()
        new = [
            _Replica(k, c, seats.gpus(k, c, i), np.zeros(0, int), self.now + seats.tuning.switch_s)
            for k, c in ((int(k), int(plan.cut[k])) for k in changed)
            for i in range(seats.engines.replicas[c])
        ]
        old = self.replicas
        stays = [r for r in old if r.seat not in set(changed.tolist())]
        place = {id(r): i for i, r in enumerate([*stays, *new])}
        target = np.array([place.get(id(r), -1) for r in old])[alive.replica]
        target[seat != plan.seat] = -1
        load = np.bincount(target[target >= 0], minlength=len(place))
        of_seat = [
            [i for i, r in enumerate([*stays, *new]) if r.seat == k] for k in range(seats.count)
        ]
        for i in np.flatnonzero(target < 0)[
            np.argsort(-alive.context[target < 0], kind="stable")
        ].tolist():
            target[i] = min(of_seat[plan.seat[i]], key=lambda j: (load[j], j))
            load[target[i]] += 1
        self._rebuild(alive, target, name, [*stays, *new])

    def _rebuild(
        self, alive: Alive, target: np.ndarray, name: str, replicas: list[_Replica] | None = None
    ) -> None:
        """Put responses on their replicas; those that gain, lose or are new begin a segment, others
        run on.
        """
        old, replicas = self.replicas, list(replicas or self.replicas)
        touched = {id(r) for r in old} - {id(r) for r in replicas} | {id(r) for r in replicas} - {
            id(r) for r in old
        }
        came_from = np.array([id(r) for r in old])[alive.replica]
        goes_to = np.array([id(r) for r in replicas])[target]
        moves = came_from != goes_to
        touched |= set(came_from[moves].tolist()) | set(goes_to[moves].tolist())
        sources = {id(r): self._close(r) for r in old if id(r) in touched}
        self.replicas = [
            self._renewed(r, alive, np.flatnonzero(target == i), sources, name)
            if id(r) in touched
            else r
            for i, r in enumerate(replicas)
        ]

    def _renewed(
        self, r: _Replica, alive: Alive, rows: np.ndarray, sources: dict, name: str
    ) -> _Replica:
        """The replica with these responses, from when all that it waits for is there."""
        came = [self.replicas[place] for place in alive.replica[rows]]
        far = np.array([c.seat != r.seat for c in came], bool)
        context = alive.context[rows]
        carried = self.slow * self.seats.carry(r.cut, context) <= self.seats.prefill(r.cut, context)
        resident = alive.resident[rows] & (~far | carried)
        resident &= (
            np.cumsum(alive.context[rows] * resident + 1)
            < 0.99 * self.seats.engines.kv_tokens[r.cut]
        )
        sizes = alive.context[rows] * self.seats.workload.served.kv_bytes_per_token
        before = tuple(sorted({self.last[g] for g in r.gpus if g in self.last}))
        takes = zip(came, sizes, far & resident, strict=True)
        moves = [Move(sources[id(c)], float(size) if sent else 0.0) for c, size, sent in takes]
        arrivals = merged([move for move in moves if move.segment not in before])
        free = max(
            (self.segments[s].end for s in (*before, *(m.segment for m in arrivals))),
            default=self.now,
        )
        base = max(free, r.ready)
        known = {"before": before, "arrivals": arrivals, "round": name, "switch": base - free}
        self.counts["moved"] += int(far.sum())
        self.counts["recomputed"] += int((far & ~resident).sum())
        new = _Replica(r.seat, r.cut, r.gpus, alive.ids[rows], r.ready, base=base, segment=known)
        if len(rows):
            self._serve(new, independent(alive.context[rows], alive.left[rows]), resident)
        return new

    def _close(self, r: _Replica) -> int | None:
        """End the replica's segment and return its number; None where it had nothing to do."""
        if r.session is None:
            return None
        done = r.session.standing().left == 0
        tokens = int(self.outputs[r.ids[done]].sum())
        s = Segment(
            r.gpus,
            str(self.seats.engines.cuts[r.cut]),
            r.base,
            r.now,
            **r.segment,
            tokens=tokens,
            responses=int(done.sum()),
            peak_kv_tokens=r.session.peak_kv_tokens,
        )
        self.segments.append(s)
        self.last.update(dict.fromkeys(r.gpus, len(self.segments) - 1))
        return len(self.segments) - 1

    def _seats_done(self) -> np.ndarray:
        done = np.zeros(self.seats.count)
        size, first = seat_gpus(self.seats.workload), self.seats.workload.first_generation_gpu
        for s in self.segments:
            seat = (s.gpus[0] - first) // size
            done[seat] = max(done[seat], s.end)
        return done

"""OrchestrRL's compute scheduler (arXiv 2601.01209): replicas are cut anew and responses move while a step generates.

    seat (a server)   |tp2 ######### |tp2 ####### |..switch..| tp8 ########## |      planner, every `period`
                      |tp2 ####### --kv--> another replica, on this seat or not      balancer, every `balance`
                      |tp2 ##########|tp2 ####### |..........|

The planner goes by a forecast of how long responses will be, never by how long they turn out to be (`replanning`). A plan is
followed where it shortens the longest server by more than `hysteresis`, every switch and move paid for. A response that goes to
another server takes its KV along, or its context is computed again there, whichever is done sooner.

In the trace each round of a plan is a phase of its own, migration-1, migration-2, ...: its KV is a demand with a window, so the
fabric's circuits are chosen for it as for any phase, and nothing that was moved computes before it has arrived. The balancer's
moves are phase `balancing`. A cut stays within a server, where weights and KV change hands over NVLink: no fabric carries that.
Every step begins with the same cut, so that weight sync knows its replicas; a server cut otherwise at the end of a step goes
back first.

Single-turn responses; pipelines sync, one-step-off and bounded-staleness. Where the paper is silent, constants are settings.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd, inf

import numpy as np

from ...compute.roofline import Server, step_of
from ...compute.serving import Batching, Requests, Session, independent
from ...errors import RFabricError
from ...rl import flows
from ...rl.lowering import trace_of_steps
from ...rl.phases import Generated, Step, responses, trained_on
from ...rl.plan import Phase, Plan, phase_seconds, plan_of_steps
from ...rl.popularity import routing
from ...rl.timing import server_of
from ...rl.workload import Workload
from ...trace import Flows, Span, point_to_point
from ...units import bytes_in
from ..base import GENERATION, Scheduled, Settings, settings_of, spans_of
from .replanning import Assignment, Cut, Engines, Forecast, Outlook, Problem, evened, forecast, keep, outlook, replan

HISTORY = 4  # steps whose lengths are known before the first
_BEFORE = 10**6  # their numbers, which no step of a trace has
BALANCING = "balancing"


@dataclass(frozen=True)
class Tuning:
    """Settings of the scheduler, `orchestrrl,period=10s,switch=2s`.

    period: between two plans (assumed); balance: between two looks at the balance (assumed); hysteresis: share that a change must
    gain (assumed); switch: to cut a server another way, 2 to 5 s as notes on the paper have it; moves: responses a second that
    the balancer may move, 1 to 2 as the same notes say.
    """

    period_s: float = 5.0
    balance_s: float = 1.0
    hysteresis: float = 0.05
    switch_s: float = 3.5
    moves: float = 2.0

    def __post_init__(self):
        for key, low in (("period_s", 0.1), ("balance_s", 0.1), ("hysteresis", 0), ("switch_s", 0), ("moves", 0)):
            if not low <= getattr(self, key) or (getattr(self, key) == inf and key != "period_s"):
                raise RFabricError(f"orchestrrl: {key.removesuffix('_s')} {getattr(self, key):g} must be {low} or more")


def schedule(w: Workload, seed: int, settings: Settings) -> Scheduled:
    """Replicas replanned while they generate, responses moved (arXiv 2601.01209)."""
    return orchestrate(w, seed, settings_of("orchestrrl", Tuning(), settings))


def orchestrate(w: Workload, seed: int, tuning: Tuning) -> Scheduled:
    """The same with a Tuning; `period_s` inf: no planner, servers stay cut as the recipe says."""
    _check(w)
    job = _Job(w, engines_of(w), tuning)
    history = [responses(w, seed, _BEFORE + i)[1] for i in range(HISTORY)]
    first = start_cut(job, forecast(history, w.generation.max_response), responses(w, seed, 0)[0])
    runs, w = _steps(job, seed, history, first), _with_tp(w, job.engines.cuts[first].gpus)
    steps = tuple(run.step for run in runs)
    plan = _plan(w, steps)
    trace = trace_of_steps(w, steps, plan, seed, {GENERATION: _lowered})
    return Scheduled(w, steps, plan, trace, _spans(w, steps, plan), _facts(job, runs, first))


def _check(w: Workload) -> None:
    g = w.generation
    if w.pipeline == "async":
        raise RFabricError(
            "scheduler orchestrrl plans steps that end; pipeline async has none: use sync, one-step-off or bounded-staleness"
        )
    if g.turns > 1:
        raise RFabricError(f"scheduler orchestrrl plans single-turn responses; generation.turns is {g.turns}: use 1")
    if g.tp > w.gpus_per_server:
        raise RFabricError(
            f"scheduler orchestrrl cuts servers; generation.tp {g.tp} is wider than one of {w.gpus_per_server} GPUs: use "
            f"{w.gpus_per_server} at most"
        )


# --- what servers can be ---------------------------------------------------------------------------------------------


def engines_of(w: Workload) -> Engines:
    """The cuts of a seat that hold the model and its longest sequence; expert parallelism where there are experts."""
    seat = seat_gpus(w)
    cuts = [cut for cut in _cuts(w, seat) if _holds(w, cut)]
    if not cuts:
        raise RFabricError(
            f"scheduler orchestrrl: no cut of {seat} GPUs holds {w.model.name} and {w.generation.longest} tokens"
        )
    servers = [_server(w, cut) for cut in cuts]
    kv = tuple(server.kv_capacity_tokens for server in servers)
    return Engines(tuple(cuts), tuple(map(step_of, servers)), kv, tuple(seat // cut.gpus for cut in cuts))


def seat_gpus(w: Workload) -> int:
    """GPUs of a seat: of a server, or what divides the pool and a server."""
    return gcd(w.cluster.generation_gpus, w.gpus_per_server)


def _cuts(w: Workload, seat: int) -> list[Cut]:
    wide = [n for n in range(1, seat + 1) if seat % n == 0]
    return [Cut(tp, n // tp) for n in wide for tp in wide if n % tp == 0 and (n == tp or w.model.experts)]


def _holds(w: Workload, cut: Cut) -> bool:
    try:
        if cut.dp == 1:
            replace(w, generation=replace(w.generation, tp=cut.tp))
    except RFabricError:  # columns that it does not divide, or no room for the longest sequence
        return False
    fits = w.model.heads % cut.tp == 0 and (cut.dp == 1 or w.model.experts.count % cut.gpus == 0)
    return fits and _server(w, cut).kv_capacity_tokens >= cut.dp * w.generation.longest


def _server(w: Workload, cut: Cut) -> Server:
    return replace(server_of(w), tp=cut.tp, dp=cut.dp, ep=cut.gpus if cut.dp > 1 else 1)


def _with_tp(w: Workload, gpus: int) -> Workload:
    """The job with replicas of so many GPUs, where its checks allow: weight sync goes to these."""
    try:
        return replace(w, generation=replace(w.generation, tp=gpus))
    except RFabricError:
        return w


@dataclass(frozen=True, eq=False)
class _Job:
    workload: Workload
    engines: Engines
    tuning: Tuning

    @property
    def seats(self) -> int:
        return self.workload.cluster.generation_gpus // seat_gpus(self.workload)

    def gpus(self, seat: int, cut: int, replica: int) -> tuple[int, ...]:
        """The GPUs of a replica of a seat."""
        size = self.engines.cuts[cut].gpus
        first = self.workload.first_generation_gpu + seat * seat_gpus(self.workload) + replica * size
        return tuple(range(first, first + size))

    def batching(self, cut: int) -> Batching:
        return Batching(max_num_seqs=self.workload.generation.max_num_seqs * self.engines.cuts[cut].dp)

    def prefill(self, cut: int, context: np.ndarray) -> np.ndarray:
        """Seconds to compute contexts of so many tokens again (float64[n])."""
        step = self.engines.steps[cut]
        return np.array([step.mixed(0, 0, c, c * c / 2) for c in context.tolist()])

    def carry(self, cut: int, context: np.ndarray) -> np.ndarray:
        """Seconds to send the KV of such contexts through the NICs of a replica (float64[n])."""
        size = context * self.workload.model.kv_bytes_per_token
        return size / bytes_in(1.0, self.workload.nic_bps * self.engines.cuts[cut].gpus)


def start_cut(job: _Job, expected: Forecast, prompts: np.ndarray) -> int:
    """The cut with which every step begins: the one that a seat is expected to be done soonest with, later cuts included."""
    if job.tuning.period_s == inf:
        return job.engines.cuts.index(Cut(job.workload.generation.tp))
    seen = outlook(job.engines, expected, np.zeros(len(prompts), int), prompts, job.seats, job.tuning.switch_s)
    return int(seen.seconds(job.seats).argmin())


# --- one step played -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Move:
    """KV that comes from the replica of another segment."""

    segment: int
    size: float


@dataclass(frozen=True)
class Segment:
    """A replica from one decision to the next (s from the begin of the phase): `before` are the segments whose GPUs it takes over.

    arrivals: responses that came from elsewhere, of 0 bytes where they are computed again; round: the phase they come in;
    switch: seconds it waits to be cut; tokens: of responses that end in it.
    """

    gpus: tuple[int, ...]
    cut: str
    start: float
    end: float
    before: tuple[int, ...] = ()
    arrivals: tuple[Move, ...] = ()
    round: str = ""
    switch: float = 0.0
    tokens: int = 0
    responses: int = 0
    peak_kv_tokens: int = 0


@dataclass(frozen=True, eq=False)
class Orchestrated(Generated):
    """A step's responses, generated in segments."""

    segments: tuple[Segment, ...] = ()

    @property
    def seconds(self) -> float:
        return max(s.end for s in self.segments)

    @property
    def rounds(self) -> list[str]:
        """The phases in which responses moved or servers were cut, in order."""
        return list(dict.fromkeys(s.round for s in self.segments if s.round))


@dataclass(eq=False)
class _Replica:
    """A replica: its responses and their session, which began at `base`; `ready` is when it can serve (s both)."""

    seat: int
    cut: int
    gpus: tuple[int, ...]
    ids: np.ndarray
    ready: float = 0.0
    session: Session | None = None
    base: float = 0.0
    segment: dict = field(default_factory=dict)  # of its Segment, what is known as it begins

    @property
    def now(self) -> float:
        return self.base + (self.session.now if self.session else 0.0)


@dataclass(frozen=True, eq=False)
class _Alive:
    """Responses that are not done: number, replica (its place among all), tokens of context, tokens to come, KV there."""

    ids: np.ndarray
    replica: np.ndarray
    context: np.ndarray
    left: np.ndarray
    resident: np.ndarray


@dataclass(frozen=True, eq=False)
class Played:
    """A step, the cuts of its seats at the end, when each seat was done (s), and what was decided."""

    step: Step
    cuts: np.ndarray
    done: np.ndarray
    counts: Mapping[str, int]


def _steps(job: _Job, seed: int, history: list[np.ndarray], first: int) -> list[Played]:
    w, found = job.workload, list[Played]()
    ready = np.zeros(job.seats)
    for number in range(w.steps):
        prompts, outputs = responses(w, seed, number)
        play = _Play(job, prompts, outputs, forecast(history, w.generation.max_response), first, ready)
        found.append(play.run(number, routing(w, seed, number)))
        history = [*history, outputs]
        ready = _ready(job, found[-1], first)
    return found


def _ready(job: _Job, last: Played, first: int) -> np.ndarray:
    """When each seat is back at the first cut (s from the begin of the next generation).

    A sync pipeline hides that behind training; in the others the next generation begins as this one ends.
    """
    idle = last.step.trained.seconds(job.workload.training.buckets) if job.workload.steps_ahead == 0 else 0.0
    back = np.where(last.cuts != first, job.tuning.switch_s, 0.0)
    return np.maximum(last.done + back - last.step.generated.seconds - idle, 0.0)


class _Play:
    """A step of generation, tick by tick."""

    def __init__(self, job: _Job, prompts, outputs, expected: Forecast, first: int, ready: np.ndarray):
        self.job, self.expected, self.prompts, self.outputs = job, expected, prompts, outputs
        self.segments: list[Segment] = []
        self.last: dict[int, int] = {}  # GPU: the segment it was last in
        self.served = np.zeros(len(prompts), int)
        self.counts = dict.fromkeys(("plans", "replans", "servers_cut", "moved", "recomputed", "balanced"), 0)
        self.now = 0.0
        self.cuts = np.full(job.seats, first)
        self.replicas = self._begin(first, ready)

    def run(self, number: int, shares: np.ndarray | None) -> Played:
        tuning, tick = self.job.tuning, 0
        next_plan = tuning.period_s
        while any(r.session and r.session.unfinished for r in self.replicas):
            tick += 1
            self.now = tick * min(tuning.balance_s, tuning.period_s)
            for r in self.replicas:
                if r.session:
                    r.session.run(self.now - r.base)
            if any(r.session and r.base > self.now for r in self.replicas):
                continue  # the last plan is not in force yet
            alive = self._alive()
            if len(alive.ids) and self.now >= next_plan - 1e-9:
                next_plan += tuning.period_s
                self._replan(alive)
            elif len(alive.ids):
                self._balance(alive)
        for r in self.replicas:
            self._close(r)
        w = self.job.workload
        made = Orchestrated([self.prompts], [self.outputs], [], tuple(self.segments))
        trained = trained_on(w, (self.prompts + self.outputs).astype(float), shares)
        return Played(Step(number, made, trained), self.cuts, self._seats_done(), self.counts)

    def _begin(self, cut: int, ready: np.ndarray) -> list[_Replica]:
        """Whole groups, longest prompts first, to seats and then to their replicas: nothing else is known of them."""
        job, size = self.job, self.job.workload.generation.group_size
        count = job.seats * job.engines.replicas[cut]
        groups = np.argsort(-self.prompts[::size], kind="stable")
        found = []
        for place in range(count):
            seat, replica = place % job.seats, place // job.seats
            ids = (groups[place::count, None] * size + np.arange(size)[None, :]).ravel()
            at, gpus = float(ready[seat]), job.gpus(seat, cut, replica)
            found.append(_Replica(seat, cut, gpus, np.sort(ids), at, base=at, segment={"switch": at}))
        for r in found:
            if len(r.ids):
                self._serve(r, independent(self.prompts[r.ids], self.outputs[r.ids], size))
        return found

    def _serve(self, r: _Replica, requests: Requests, resident: np.ndarray | None = None) -> None:
        engines = self.job.engines
        r.session = Session(
            engines.steps[r.cut], engines.kv_tokens[r.cut], self.job.batching(r.cut), requests, resident
        )

    def _alive(self) -> _Alive:
        parts = []
        for place, r in enumerate(self.replicas):
            if r.session and r.session.unfinished:
                s = r.session.standing()
                some = s.left > 0
                parts.append((r.ids[some], np.full(some.sum(), place), s.context[some], s.left[some], s.resident[some]))
        columns = zip(*parts, strict=True) if parts else [[np.zeros(0, int)]] * 5
        return _Alive(*(np.concatenate(column) for column in columns))

    # --- deciding

    def _outlook(self, alive: _Alive, switch: float | None = None) -> Outlook:
        made, job = alive.context - self.prompts[alive.ids], self.job
        switch = job.tuning.switch_s if switch is None else switch
        return outlook(job.engines, self.expected, made, alive.context, job.seats, switch)

    def _move_seconds(self, alive: _Alive) -> np.ndarray:
        cut = int(np.bincount(self.cuts).argmax())
        return np.minimum(self.job.carry(cut, alive.context), self.job.prefill(cut, alive.context))

    def _replan(self, alive: _Alive) -> None:
        self.counts["plans"] += 1
        seen, engines = self._outlook(alive), self.job.engines
        seat = np.array([r.seat for r in self.replicas])[alive.replica]
        capacity = np.array(engines.kv_tokens, float) * engines.replicas
        p = Problem(
            seen.fixed, seen.work, alive.context.astype(float), capacity, self._move_seconds(alive), seat, self.cuts,
            self.job.tuning.switch_s, self._outlook(alive, inf),
        )  # fmt: skip
        found = replan(p, self.job.tuning.hysteresis)
        if (found.seat != seat).any() or (found.cut != self.cuts).any():
            self._follow(alive, found, seat)

    def _balance(self, alive: _Alive) -> None:
        """Responses from stragglers to light replicas, cuts as they are."""
        tuning, engines = self.job.tuning, self.job.engines
        most = int(tuning.moves * tuning.balance_s)
        counts = np.bincount(alive.replica, minlength=len(self.replicas))
        if counts.max() - counts.min() < 2 or not most:
            return
        seen, cut = self._outlook(alive), np.array([r.cut for r in self.replicas])
        work = seen.work * np.array(engines.replicas)[:, None]
        p = Problem(
            seen.fixed, work, alive.context.astype(float), np.array(engines.kv_tokens, float), self._move_seconds(alive),
            alive.replica, cut, tuning.switch_s,
        )  # fmt: skip
        found = evened(p, cut, most)
        if found.seconds < (1 - tuning.hysteresis) * keep(p).seconds:
            self.counts["balanced"] += 1
            self._rebuild(alive, found.seat, BALANCING)

    # --- doing

    def _follow(self, alive: _Alive, found: Assignment, seat: np.ndarray) -> None:
        """Cut servers and move responses as planned: new replicas on cut servers, the emptiest of others take what comes."""
        self.counts["replans"] += 1
        name, job, changed = f"migration-{self.counts['replans']}", self.job, np.flatnonzero(found.cut != self.cuts)
        self.counts["servers_cut"] += len(changed)
        self.cuts = found.cut.copy()
        new = [
            _Replica(k, c, job.gpus(k, c, i), np.zeros(0, int), self.now + job.tuning.switch_s)
            for k, c in ((int(k), int(found.cut[k])) for k in changed)
            for i in range(job.engines.replicas[c])
        ]
        old = self.replicas
        stays = [r for r in old if r.seat not in set(changed.tolist())]
        place = {id(r): i for i, r in enumerate([*stays, *new])}
        target = np.array([place.get(id(r), -1) for r in old])[alive.replica]
        target[seat != found.seat] = -1
        load = np.bincount(target[target >= 0], minlength=len(place))
        of_seat = [[i for i, r in enumerate([*stays, *new]) if r.seat == k] for k in range(job.seats)]
        for i in np.flatnonzero(target < 0)[np.argsort(-alive.context[target < 0], kind="stable")].tolist():
            target[i] = min(of_seat[found.seat[i]], key=lambda j: (load[j], j))
            load[target[i]] += 1
        self._rebuild(alive, target, name, [*stays, *new])

    def _rebuild(self, alive: _Alive, target: np.ndarray, name: str, replicas: list[_Replica] | None = None) -> None:
        """Put responses on their replicas; those that gain, lose or are new begin a segment, others run on."""
        old, replicas = self.replicas, list(replicas or self.replicas)
        touched = {id(r) for r in old} - {id(r) for r in replicas} | {id(r) for r in replicas} - {id(r) for r in old}
        came_from = np.array([id(r) for r in old])[alive.replica]
        goes_to = np.array([id(r) for r in replicas])[target]
        moves = came_from != goes_to
        touched |= set(came_from[moves].tolist()) | set(goes_to[moves].tolist())
        sources = {id(r): self._close(r) for r in old if id(r) in touched}
        self.replicas = [
            self._renewed(r, alive, np.flatnonzero(target == i), sources, name) if id(r) in touched else r
            for i, r in enumerate(replicas)
        ]

    def _renewed(self, r: _Replica, alive: _Alive, rows: np.ndarray, sources: dict, name: str) -> _Replica:
        """The replica with these responses, from when all that it waits for is there."""
        came = [self.replicas[place] for place in alive.replica[rows]]
        far = np.array([c.seat != r.seat for c in came], bool)
        carried = self.job.carry(r.cut, alive.context[rows]) <= self.job.prefill(r.cut, alive.context[rows])
        resident = alive.resident[rows] & (~far | carried)
        resident &= np.cumsum(alive.context[rows] * resident + 1) < 0.99 * self.job.engines.kv_tokens[r.cut]
        sizes = alive.context[rows] * self.job.workload.model.kv_bytes_per_token
        before = tuple(sorted({self.last[g] for g in r.gpus if g in self.last}))
        takes = zip(came, sizes, far & resident, strict=True)
        moves = [Move(sources[id(c)], float(size) if sent else 0.0) for c, size, sent in takes]
        arrivals = _merged([move for move in moves if move.segment not in before])
        free = max((self.segments[s].end for s in (*before, *(m.segment for m in arrivals))), default=self.now)
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
        self.served[r.ids[done]] += 1
        s = Segment(
            r.gpus, str(self.job.engines.cuts[r.cut]), r.base, r.now, **r.segment, tokens=tokens, responses=int(done.sum()),
            peak_kv_tokens=r.session.peak_kv_tokens,
        )  # fmt: skip
        self.segments.append(s)
        self.last.update(dict.fromkeys(r.gpus, len(self.segments) - 1))
        return len(self.segments) - 1

    def _seats_done(self) -> np.ndarray:
        done = np.zeros(self.job.seats)
        size, first = seat_gpus(self.job.workload), self.job.workload.first_generation_gpu
        for s in self.segments:
            seat = (s.gpus[0] - first) // size
            done[seat] = max(done[seat], s.end)
        return done


def _merged(moves: Sequence[Move]) -> tuple[Move, ...]:
    """One move a source."""
    sums: dict[int, float] = {}
    for move in moves:
        sums[move.segment] = sums.get(move.segment, 0.0) + move.size
    return tuple(Move(*item) for item in sums.items())


# --- plan and trace --------------------------------------------------------------------------------------------------


def _plan(w: Workload, steps: Sequence[Step]) -> Plan:
    """The pipeline's phases, and those in which responses move."""
    found = plan_of_steps(w, steps, _lasts)
    starts = {p.step: p.start for p in found.phases if p.kind == GENERATION}
    return Plan((*found.phases, *(p for step in steps for p in _migrations(w, step, starts[step.number]))))


def _lasts(w: Workload, step: Step, kind: str) -> tuple[float, float]:
    if kind != GENERATION:
        return phase_seconds(w, step, kind)
    made = step.generated
    moved = sum(flows.wire_seconds(w, _kv(w, made, name)) for name in made.rounds)
    ends = [s.end + flows.wire_seconds(w, _experience(w, s)) for s in made.segments]
    return made.seconds, moved + max(ends) - made.seconds


def _migrations(w: Workload, step: Step, start: float) -> list[Phase]:
    """A phase a round, from the first segment that ends for it; the balancer's lasts as long as it moves anything."""
    found, made = [], step.generated
    for name in made.rounds:
        mine = [s for s in made.segments if s.round == name]
        begins = [s.start - s.switch for s in mine]
        seconds = max(s.start for s in mine) - min(begins)
        gpus = tuple(sorted({gpu for s in mine for gpu in s.gpus}))
        found.append(
            Phase(name, step.number, gpus, start + min(begins), seconds, flows.wire_seconds(w, _kv(w, made, name)))
        )
    return found


def _kv(w: Workload, made: Orchestrated, name: str) -> Flows:
    """All the KV that moves in a round."""
    mine = [s for s in made.segments if s.round == name]
    return flows.join(_sent(w, made.segments[m.segment], s, m.size) for s in mine for m in s.arrivals)


def _sent(w: Workload, source: Segment, target: Segment, size: float) -> Flows:
    """KV from the GPUs of one replica to those of another, each an even part; none within a server."""
    n = max(len(source.gpus), len(target.gpus))
    pairs = [(source.gpus[i * len(source.gpus) // n], target.gpus[i * len(target.gpus) // n]) for i in range(n)]
    return point_to_point(pairs, size / n, w.gpus_per_server) if size else flows.NONE


def _experience(w: Workload, s: Segment) -> Flows:
    """What a segment's responses send to a training server; replicas take turns at them."""
    servers, turn = w.cluster.training_gpus // w.gpus_per_server, (s.gpus[0] - w.first_generation_gpu) // len(s.gpus)
    sink = turn % servers * w.gpus_per_server + turn // servers % w.gpus_per_server
    return point_to_point([(s.gpus[0], sink)], float(s.tokens) * flows.EXPERIENCE_BYTES_PER_TOKEN, w.gpus_per_server)


def _lowered(out, step: Step, before: list[int]) -> int:
    """Segments as rows of computing, KV between them, experience after each."""
    segments = step.generated.segments
    place, arrived = [-1] * len(segments), list[int]()
    for i in sorted(range(len(segments)), key=lambda i: (segments[i].start, i)):
        place[i] = _segment(out, step, segments[i], place, before)
        arrived += out.send(_experience(out.workload, segments[i]), "experience", [place[i]])
    return out.barrier(0, [*place, *arrived])


def _segment(out, step: Step, s: Segment, place: list[int], before: list[int]) -> int:
    """What a segment waits for, in the phase of its round, then its computing; `place`: the rows of segments so far."""
    waits, sent = [place[i] for i in (*s.before, *(m.segment for m in s.arrivals))] or list(before), list[int]()
    out.phase(step, s.round or GENERATION)
    for m in s.arrivals:
        sent += out.send(_sent(out.workload, step.generated.segments[m.segment], s, m.size), "kv", [place[m.segment]])
    if s.switch:
        waits = [out.compute(s.gpus[0], s.switch, "switch", waits)]
    out.phase(step, GENERATION)
    return out.compute(s.gpus[0], s.end - s.start, "generate", [*dict.fromkeys(waits + sent)])


def _spans(w: Workload, steps: Sequence[Step], plan: Plan) -> tuple[Span, ...]:
    others = [p for p in plan.phases if p.kind in ("training", "weight_sync")]
    found = list(spans_of(w, steps, Plan(tuple(others))))
    for p in plan.phases:
        if p.kind == GENERATION:
            pool = "training" if w.colocated else GENERATION
            for s in steps[p.step].generated.segments:
                if s.switch:
                    found.append(Span(pool, s.gpus, p.start + s.start - s.switch, s.switch, "switch", p.step))
                found.append(Span(pool, s.gpus, p.start + s.start, s.end - s.start, f"{GENERATION} {s.cut}", p.step))
    return tuple(found)


def _facts(job: _Job, runs: Sequence[Played], first: int) -> dict:
    """What was decided, over all steps."""
    counts = {key: sum(run.counts[key] for run in runs) for key in runs[0].counts}
    kv = sum(m.size for run in runs for s in run.step.generated.segments for m in s.arrivals)
    last = [dict(Counter(str(job.engines.cuts[c]) for c in sorted(run.cuts))) for run in runs]
    return {"first_cut": str(job.engines.cuts[first]), "last_cuts": last, "kv_bytes": round(kv), **counts}

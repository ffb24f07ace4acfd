"""Agents at work, event by event: trajectories of turns, the engines that answer them, environments that take their time.

    reset -> turn 1 -> environment -> turn 2 -> ... -> last turn -> reward -> buffer -> a batch to train on
             engine    latency        engine                                 `-> or aborted: too old, broken, not needed

An engine decodes all it holds together; between two of its events the batch stays as it is, and its decode steps are one closed
sum (`roofline.DecodeStep`). A turn joins when all the KV it may need fits: nothing is preempted. It finds the context that the
turn before left on its engine, unless others needed the room (the longest unused goes first) or weights changed meanwhile:
then all of it is prefilled again. Of a group, the first on an engine prefills the prompt; its KV is counted for each.

    pool A (prefill-heavy tasks)  engine engine ...        a task goes to the pool of its affinity; where that has no room, to
    pool B (decode-heavy tasks)   engine engine ...        one that has. A pool may `prefill_for` another: then each turn is
                                                           prefilled there, and its KV crosses to an engine of the other

Tokens, seconds, bytes. The same input gives the same events: ties go by who was planned first.
"""

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..errors import RFabricError
from .roofline import CHUNK_TOKENS, Server, step_of


@dataclass(frozen=True)
class Task:
    """A domain of tasks. turns: fewest and most, drawn evenly; output: mean tokens of a turn, as many in all turns of a
    trajectory, log-normal over trajectories with `tail` as sigma.

    latency, spread: of an environment's answer, normal and never below 0; reset: of a new environment, which fails with
    chance `failure` and then takes `repair` more; rewarded: seconds of the reward. caches: the next turn's prompt
    continues this one's; heavy: what the GPUs are asked for most, `prefill` or `decode`.
    """

    name: str
    turns: tuple[int, int]
    prompt: int
    output: float
    tail: float
    observed: int
    latency: float = 0.0
    spread: float = 0.0
    reset: float = 0.0
    failure: float = 0.0
    repair: float = 0.0
    rewarded: float = 0.0
    caches: bool = True
    heavy: str = "decode"

    def __post_init__(self):
        least, most = self.turns
        if not 1 <= least <= most:
            raise RFabricError(f"task {self.name}: turns {least} to {most} must be 1 or more, the fewest first")
        for key in ("latency", "spread", "reset", "repair", "rewarded", "observed", "tail"):
            if not getattr(self, key) >= 0:
                raise RFabricError(f"task {self.name}: {key} {getattr(self, key)} must be 0 or more")
        if not 0 <= self.failure < 1:
            raise RFabricError(f"task {self.name}: failure {self.failure} is a chance: 0 or more, below 1")
        if self.heavy not in ("prefill", "decode"):
            raise RFabricError(f"task {self.name}: heavy {self.heavy!r} is not known; use prefill or decode")
        if not (self.prompt >= 1 and self.output >= 1):
            raise RFabricError(
                f"task {self.name}: prompt {self.prompt} and output {self.output:g} must be 1 token or more"
            )


@dataclass(frozen=True)
class Episode:
    """One trajectory as it will go if nobody aborts it: tokens of each turn, seconds before each (the reset first)."""

    number: int
    task: Task
    group: int
    prompt: int
    outputs: tuple[int, ...]
    latencies: tuple[float, ...]

    def context(self, turn: int) -> int:
        """Tokens that turn `turn` reads."""
        return self.prompt + sum(self.outputs[:turn]) + self.task.observed * turn

    @property
    def tokens(self) -> int:
        """All it reads and writes: what is trained on."""
        return self.context(len(self.outputs) - 1) + self.outputs[-1]

    @property
    def response(self) -> int:
        return sum(self.outputs)


def draw(task: Task, number: int, seed: int, longest: int, group_size: int = 1) -> Episode:
    """Trajectory `number` of a task, cut where its context reaches `longest`; the same number is the same trajectory."""
    random = np.random.default_rng([seed, number])
    turns = int(random.integers(task.turns[0], task.turns[1] + 1))
    drawn = np.exp(task.tail * random.standard_normal() - task.tail**2 / 2)
    outputs = [max(1, round(task.output * drawn))] * turns
    latencies = np.maximum(0.0, random.normal(task.latency, task.spread, turns))
    latencies[0] = task.reset + (task.repair if random.random() < task.failure else 0.0)
    return Episode(
        number, task, number // group_size, task.prompt, _cut(task, outputs, longest), tuple(latencies.tolist())
    )


def _cut(task: Task, outputs: list[int], longest: int) -> tuple[int, ...]:
    context, kept = task.prompt, []
    for output in outputs:
        if context >= longest:
            break
        kept.append(min(output, longest - context))
        context += output + task.observed
    if not kept:
        raise RFabricError(f"task {task.name}: its prompt of {task.prompt} tokens leaves no room in {longest}")
    return tuple(kept)


@dataclass(frozen=True)
class Pool:
    """`engines` servers of one kind; tasks: whose affinity they have. prefill_for: the pool whose turns it prefills, at `link`
    bytes/s for a turn's KV.
    """

    name: str
    server: Server
    engines: int
    tasks: tuple[str, ...] = ()
    prefill_for: str | None = None
    link: float = float("inf")

    def __post_init__(self):
        if self.engines < 1:
            raise RFabricError(f"pool {self.name}: {self.engines} engines; it needs 1 or more")

    @property
    def gpus(self) -> int:
        return self.engines * self.server.gpus


@dataclass(slots=True, eq=False)
class Trajectory:
    """An episode under way: the weight version it began with, its engines, the turn it is in and where that is (`job`, `at`)."""

    episode: Episode
    version: int
    engine: int = -1
    prefill: int = -1
    turn: int = 0
    job: "_Turn | None" = None
    at: int = -1
    ended: bool = False


@dataclass(slots=True, eq=False)
class _Turn:
    """A turn on an engine: tokens before its next token, tokens to come, tokens of its prompt that need no computing."""

    who: Trajectory
    prompt: int
    left: int
    computed: int = 0
    end: int = -1  # decode step after which it is done
    dead: bool = False

    @property
    def need(self) -> int:
        return self.prompt + self.left


class Engine:
    """One server: what it decodes, prefills and keeps. `plan` says when its next event is, `fire` lets it happen."""

    def __init__(self, number: int, pool: Pool):
        self.number, self.pool = number, pool
        self.step, self.capacity = step_of(pool.server), pool.server.kv_capacity_tokens
        self.clock = self.context = self.held = self.kept = self.live = 0
        self.free_at = 0.0
        self.inside: list[_Turn] = []  # those that decode
        self.ends: list[tuple[int, int, _Turn]] = []
        self.waiting: deque[_Turn] = deque()
        self.filling: deque[_Turn] = deque()
        self.left_behind: dict[Trajectory, int] = {}
        self.prompts: set[int] = set()
        self.doing: tuple | None = None
        self.epoch = self.joined = 0
        self.queued = 0  # tokens of KV that those who wait need
        self.again = False  # weights changed: all KV is to be recomputed
        self.purging = False  # some were aborted
        self.prefill = self.decode = 0.0
        self.peak = 0

    @property
    def busy(self) -> bool:
        """Whether a turn would have to wait for room."""
        return self.held + self.queued > self.capacity

    def submit(self, turn: _Turn, now: float) -> None:
        """A turn comes; it joins when the step under way is over."""
        if turn.need > self.capacity:
            raise RFabricError(
                f"pool {self.pool.name}: a turn needs {turn.need} tokens of KV cache, an engine holds {max(self.capacity, 0)}; "
                "use more GPUs an engine or shorter trajectories"
            )
        self.waiting.append(turn)
        self.queued += turn.need
        self._cut(now)

    def abort(self, turn: _Turn, now: float) -> None:
        """The turn leaves between two steps."""
        turn.dead = self.purging = True
        self._cut(now)

    def forget(self, who: Trajectory) -> None:
        """Its context is not needed again."""
        self.kept -= self.left_behind.pop(who, 0)

    def update(self, now: float, seconds: float) -> None:
        """Suspended for `seconds`, with other weights after that: whatever is in flight is prefilled anew."""
        self._cut(now)
        self.free_at = max(self.free_at, now) + seconds
        self.again = True
        self.left_behind.clear()
        self.prompts.clear()
        self.kept = 0

    def _cut(self, now: float) -> None:
        """Decoding stops after the step under way."""
        if self.doing and self.doing[0] == "decode":
            _, begin, steps, _ = self.doing
            seconds, (n, context) = now - begin, (len(self.inside), self.context)
            fewer = 1 + bisect_left(range(1, steps), seconds, key=lambda k: self.step.seconds(n, context, k))
            self.doing = ("decode", begin, fewer, begin + self.step.seconds(n, context, fewer))
            self.epoch += 1

    def plan(self, now: float) -> float | None:
        """When its next event is; None: nothing to do."""
        if self.doing is None:
            self._purge()
            self._recompute()
            self._let_in()
            begin = max(now, self.free_at)
            if self.filling:
                self.doing = self._fill(begin)
            elif self.inside:
                n, steps = len(self.inside), self._next_end() - self.clock
                self.doing = ("decode", begin, steps, begin + self.step.seconds(n, self.context, steps))
            self.epoch += 1
        return self.doing[3] if self.doing else None

    def fire(self) -> list[_Turn]:
        """What was planned has happened; the turns that ended."""
        kind, begin, what, end = self.doing
        self.doing = None
        if kind == "decode":
            self.decode += end - begin
            self._advance(what)
        else:
            alone = self.step.seconds(len(self.inside), self.context) if self.inside else 0.0
            self.decode, self.prefill = self.decode + alone, self.prefill + end - begin - alone
            self._advance(1)
            for turn in what:
                self._start(turn)
        return self._finish()

    def _advance(self, steps: int) -> None:
        self.clock += steps if self.inside else 0
        self.context += steps * len(self.inside)

    def _let_in(self) -> None:
        """First come, first served, while all that a turn may need fits; kept contexts give way."""
        while self.waiting:
            turn = self.waiting[0]
            if not turn.dead:
                if self.held + turn.need > self.capacity and self.held:
                    return
                self._take(turn)
            self.waiting.popleft()
            self.queued -= turn.need

    def _take(self, turn: _Turn) -> None:
        left = self.left_behind.pop(turn.who, 0)
        self.kept -= left
        usable = left if turn.who.episode.task.caches else 0
        turn.computed = max(turn.computed, min(usable, turn.prompt - 1))
        self.held += turn.need
        while self.held + self.kept > self.capacity and self.left_behind:
            self.forget(next(iter(self.left_behind)))
        self.peak = max(self.peak, self.held)
        if turn.computed >= turn.prompt:  # its KV came from elsewhere
            self._join(turn)
        else:
            self.filling.append(turn)

    def _fill(self, begin: float) -> tuple:
        """One step with prefill, in chunks, beside all that decode."""
        n, tokens, pairs, done = len(self.inside), 0, 0.0, []
        budget = max(CHUNK_TOKENS - n, 1)
        while self.filling and tokens < budget:
            turn = self.filling[0]
            turn.computed = max(turn.computed, min(self._shared(turn), turn.prompt - 1))
            part = min(turn.prompt - turn.computed, budget - tokens)
            pairs += part * (turn.computed + part / 2)
            tokens, turn.computed = tokens + part, turn.computed + part
            if turn.computed < turn.prompt:
                break
            self.prompts.add(turn.who.episode.group)
            done.append(self.filling.popleft())
        return ("fill", begin, done, begin + self.step.mixed(n, self.context, tokens, pairs))

    def _shared(self, turn: _Turn) -> int:
        """Tokens of its prompt that others of its group computed here: those of the first turn, if later ones continue it."""
        e = turn.who.episode
        return e.prompt if e.group in self.prompts and (e.task.caches or not turn.who.turn) else 0

    def _start(self, turn: _Turn) -> None:
        """Its prompt is computed, which gives its next token."""
        turn.prompt, turn.left = turn.prompt + 1, turn.left - 1
        self._join(turn)

    def _join(self, turn: _Turn) -> None:
        turn.end = self.clock + turn.left
        self.joined += 1
        self.inside.append(turn)
        self.context += turn.prompt
        heapq.heappush(self.ends, (turn.end, self.joined, turn))

    def _next_end(self) -> int:
        return self.ends[0][0]

    def _finish(self) -> list[_Turn]:
        done = []
        while self.ends and self._next_end() <= self.clock:
            turn = heapq.heappop(self.ends)[2]
            self._leave(turn)
            if not turn.dead and not self.again:
                self.left_behind[turn.who] = turn.prompt + turn.left
                self.kept += turn.prompt + turn.left
            if not turn.dead:
                done.append(turn)
        return done

    def _leave(self, turn: _Turn) -> None:
        self.inside.remove(turn)
        self.held -= turn.need
        self.context -= turn.prompt + turn.left - (turn.end - self.clock)

    def _purge(self) -> None:
        """Those that were aborted leave."""
        if not self.purging:
            return
        self.purging = False
        for turn in [t for t in self.inside if t.dead]:
            self._leave(turn)
        self.held -= sum(turn.need for turn in self.filling if turn.dead)
        self.filling = deque(turn for turn in self.filling if not turn.dead)
        if any(end[2].dead for end in self.ends):
            self.ends = [end for end in self.ends if not end[2].dead]
            heapq.heapify(self.ends)

    def _recompute(self) -> None:
        """With new weights, what decodes is prefilled with all it has so far; what was being prefilled starts over."""
        if not self.again:
            return
        self.again = False
        for turn in self.inside:
            made = turn.left - (turn.end - self.clock)
            turn.prompt, turn.left = turn.prompt + made, turn.left - made
        for turn in (*self.inside, *self.filling, *self.waiting):
            turn.computed = 0
        self.filling.extendleft(reversed(self.inside))
        self.inside, self.ends, self.context = [], [], 0


@dataclass(frozen=True)
class Manner:
    """How a system makes steps of trajectories.

    parallel: training runs beside the rollouts of the next step; continuous: a group of environments begins anew when it is
    complete, for up to `ahead` (None: `staleness`) steps after the next (else a step's begin together); batched: all
    trajectories take their turns in step.
    batch: trajectories a step, in groups of `group` with the same prompt, which train together; redundancy: how many more of a
    group are begun, of which the first `group` to end are kept.
    staleness: weight updates that a buffered or running trajectory may lack; older ones are aborted.
    suspended: seconds engines stand still for an update; transfer: seconds before, from the end of training, in which they
    go on. reward_slots: rewards at a time on dedicated GPUs, after the rollouts where batched; None: serverless, at once.
    """

    batch: int
    group: int = 1
    parallel: bool = False
    continuous: bool = False
    batched: bool = False
    redundancy: float = 1.0
    staleness: int = 1
    ahead: int | None = None
    suspended: float = 0.0
    transfer: float = 0.0
    reward_slots: int | None = None

    def __post_init__(self):
        if self.batch < 1:
            raise RFabricError(f"rollouts: a batch of {self.batch} trajectories; it needs 1 or more")
        if self.group < 1 or self.batch % self.group:
            raise RFabricError(
                f"rollouts: a batch of {self.batch} trajectories does not divide into groups of {self.group}"
            )
        if not self.redundancy >= 1:
            raise RFabricError(f"rollouts: redundancy {self.redundancy:g} must be 1 (none) or more, such as 1.25")
        if self.staleness < 0 or (self.continuous and self.staleness < 1):
            raise RFabricError(
                f"rollouts: staleness {self.staleness} must be 1 or more where trajectories go on over weight updates"
            )
        if self.reward_slots is not None and self.reward_slots < 1:
            raise RFabricError(f"rollouts: {self.reward_slots} reward slots; a dedicated reward needs 1 or more")
        if self.batched and (self.continuous or self.redundancy > 1):
            raise RFabricError(
                "rollouts: batched turns wait for every trajectory, all started together; neither continuous nor redundant"
            )

    @property
    def members(self) -> int:
        """Trajectories of a group that are begun."""
        return round(self.group * self.redundancy)

    @property
    def steps_ahead(self) -> int:
        """Steps after the next for which trajectories may begin."""
        return self.staleness if self.ahead is None else self.ahead

    @property
    def slots(self) -> int:
        """Groups of environments: a step takes as many groups of trajectories."""
        return self.batch // self.group

    @property
    def environments(self) -> int:
        """Trajectories under way at most."""
        return self.slots * self.members


@dataclass(frozen=True, eq=False)
class Iteration:
    """One step: when rollouts for it began, when its batch was there, when its training began and ended (s).

    resumed: when engines went on with new weights; stale: updates that each trajectory of the batch lacked when taken.
    """

    number: int
    began: float
    ready: float
    resumed: float
    training: tuple[float, float]
    batch: tuple[Trajectory, ...]
    stale: tuple[int, ...]
    busy: tuple[tuple[float, float], ...] = ()  # seconds of prefill and decode of each engine since the last batch


@dataclass(frozen=True, eq=False)
class Played:
    """What came of it; of all trajectories begun: trained, or why not; `events`: (time, what, number) of starts and ends."""

    iterations: tuple[Iteration, ...]
    counts: dict[str, int]
    events: tuple[tuple[float, str, int], ...]
    peak_tokens: tuple[int, ...]
    reward_busy: float = 0.0

    def step_seconds(self, skip: int = 1) -> float:
        """Seconds from one step's end of training to the next's: the mean, without the first `skip`."""
        ends = [it.training[1] for it in self.iterations]
        return (ends[-1] - ends[skip - 1]) / (len(ends) - skip) if skip else ends[-1] / len(ends)


def play(
    pools: Sequence[Pool],
    episodes: Callable[[int], Episode],
    train: Callable[[Sequence[Episode]], float],
    manner: Manner,
    iterations: int,
) -> Played:
    """So many steps: `episodes` gives trajectory k, `train` the seconds of training on a batch."""
    if not pools:
        raise RFabricError("rollouts: there are no pools; give one with 1 engine or more")
    return _World(pools, episodes, train, manner, iterations).run()


@dataclass(eq=False)
class _World:
    """The state of all between two events."""

    pools: Sequence[Pool]
    episodes: Callable[[int], Episode]
    train: Callable[[Sequence[Episode]], float]
    manner: Manner
    iterations: int
    now: float = 0.0
    steps: int = 0
    version: int = 0
    order: int = 0
    trained_until: float = 0.0
    gathered: bool = False  # a batch is taken, its step not begun
    live: dict = field(default_factory=dict)
    groups: dict = field(default_factory=dict)  # those under way, by slot: all their members
    buffer: list = field(default_factory=list)  # those complete, in whole groups
    events: list = field(default_factory=list)
    log: list = field(default_factory=list)
    done: list = field(default_factory=list)
    at_barrier: list = field(default_factory=list)
    unrewarded: list = field(default_factory=list)
    reward_free: list = field(default_factory=list)
    reward_busy: float = 0.0
    began: float = 0.0

    def __post_init__(self):
        self.engines: list[Engine] = []
        for pool in self.pools:
            self.engines += [Engine(len(self.engines) + i, pool) for i in range(pool.engines)]
        self.decoders = [e for e in self.engines if e.pool.prefill_for is None]
        self.prefillers = {p.prefill_for: [e for e in self.engines if e.pool is p] for p in self.pools if p.prefill_for}
        if not self.decoders:
            raise RFabricError("rollouts: every pool prefills for another; one must decode")
        self.counts = {"trained": 0, "stale": 0, "surplus": 0, "unfinished": 0}
        self.reward_free = [0.0] * (self.manner.reward_slots or 0)
        self.spent = [(0.0, 0.0)] * len(self.engines)
        self.complete = [0] * self.manner.slots
        self.again = [0] * self.manner.slots

    def run(self) -> Played:
        self._launch()
        while len(self.done) < self.iterations:
            if not self.events:
                raise RFabricError(
                    f"rollouts: {len(self.buffer)} of {self.manner.batch} trajectories came and no more will; raise staleness"
                )
            self.now, _, what, args = heapq.heappop(self.events)
            what(*args)
        self.counts["unfinished"] = sum(map(len, self.groups.values())) + len(self.buffer)
        peaks = tuple(e.peak for e in self.engines)
        return Played(tuple(self.done), self.counts, tuple(self.log), peaks, self.reward_busy)

    def _at(self, time: float, what: Callable, *args) -> None:
        self.order += 1
        heapq.heappush(self.events, (time, self.order, what, args))

    # --- trajectories ---

    def _launch(self) -> None:
        """Groups of environments begin that are free and not too far ahead of the weights."""
        m = self.manner
        upto = self.steps + m.steps_ahead if m.continuous else self.steps
        for slot in range(m.slots):
            if slot not in self.groups and self.complete[slot] <= upto:
                self._begin(slot)
        self._try_barrier()

    def _begin(self, slot: int) -> None:
        """The environments of a group begin; its n-th trajectories are the same whenever they begin."""
        first = (self.again[slot] * self.manner.slots + slot) * self.manner.members
        self.again[slot] += 1
        self.groups[slot] = [Trajectory(self.episodes(first + i), self.version) for i in range(self.manner.members)]
        for who in self.groups[slot]:
            self.live[who.episode.number] = who
            self.log.append((self.now, "begin", who.episode.number))
            self._wait(who)

    def _wait(self, who: Trajectory) -> None:
        """Its environment takes its time; in step with all others where turns are batched."""
        if self.manner.batched:
            self.at_barrier.append(who)
        else:
            self._at(self.now + who.episode.latencies[who.turn], self._turn, who)

    def _try_barrier(self) -> None:
        acting = len(self.live) - len(self.unrewarded)
        if self.manner.batched and self.at_barrier and len(self.at_barrier) == acting:
            slowest = max(who.episode.latencies[who.turn] for who in self.at_barrier)
            for who in self.at_barrier:
                self._at(self.now + slowest, self._turn, who)
            self.at_barrier = []

    def _turn(self, who: Trajectory) -> None:
        if who.ended:
            return
        e = who.episode
        if who.engine < 0:
            who.engine = self._route(e.task).number
            self.engines[who.engine].live += 1
        engine = self.engines[who.engine]
        first = self.prefillers.get(engine.pool.name)
        if first:
            if who.prefill < 0:
                who.prefill = min(first, key=lambda x: (x.live, x.number)).number
                self.engines[who.prefill].live += 1
            engine = self.engines[who.prefill]
        self._submit(engine, _Turn(who, e.context(who.turn), 1 if first else e.outputs[who.turn]))

    def _submit(self, engine: Engine, turn: _Turn) -> None:
        turn.who.job, turn.who.at = turn, engine.number
        engine.submit(turn, self.now)
        self._plan(engine)

    def _route(self, task: Task) -> Engine:
        """The engine with fewest trajectories, by the room it has, of its pool; of another where only that has room."""
        own = [e for e in self.decoders if task.name in e.pool.tasks] or self.decoders
        best = min(own, key=_load)
        if best.busy:
            idle = [e for e in self.decoders if not e.busy]
            best = min(idle, key=_load) if idle else best
        return best

    def _plan(self, engine: Engine) -> None:
        when = engine.plan(self.now)
        if when is not None:
            self._at(max(when, self.now), self._fire, engine, engine.epoch)

    def _fire(self, engine: Engine, epoch: int) -> None:
        if epoch != engine.epoch:
            return
        for turn in engine.fire():
            self._turn_ended(engine, turn)
        self._plan(engine)

    def _turn_ended(self, engine: Engine, turn: _Turn) -> None:
        who, e = turn.who, turn.who.episode
        who.job = None
        if engine.pool.prefill_for is not None and e.outputs[who.turn] > 1:
            self._cross(who, engine.pool.link)
            return
        who.turn += 1
        if who.turn < len(e.outputs):
            self._wait(who)
        else:
            self._rolled_out(who)
        self._try_barrier()

    def _cross(self, who: Trajectory, link: float) -> None:
        """The KV of a prefilled turn goes to the engine that decodes it."""
        decoder, context = self.engines[who.engine], who.episode.context(who.turn) + 1
        size = context * decoder.pool.server.model.kv_bytes_per_token
        self._at(self.now + size / link, self._hand_over, who, decoder, context)

    def _hand_over(self, who: Trajectory, decoder: Engine, context: int) -> None:
        if not who.ended:
            self._submit(decoder, _Turn(who, context, who.episode.outputs[who.turn] - 1, computed=context))

    # --- rewards, buffer, abort ---

    def _rolled_out(self, who: Trajectory) -> None:
        self._off(who)
        if not self.manner.batched:
            self._reward(who)
            return
        self.unrewarded.append(who)
        if len(self.unrewarded) == len(self.live):
            waiting, self.unrewarded = self.unrewarded, []
            for each in waiting:
                self._reward(each)

    def _off(self, who: Trajectory) -> None:
        for number in (who.engine, who.prefill):
            if number >= 0:
                self.engines[number].live -= 1
                self.engines[number].forget(who)

    def _reward(self, who: Trajectory) -> None:
        seconds = who.episode.task.rewarded
        begin = self.now
        if self.reward_free:
            begin = max(begin, heapq.heappop(self.reward_free))
            heapq.heappush(self.reward_free, begin + seconds)
        self.reward_busy += seconds
        self._at(begin + seconds, self._finished, who)

    def _finished(self, who: Trajectory) -> None:
        if who.ended:
            return
        who.ended = True
        del self.live[who.episode.number]
        self.log.append((self.now, "end", who.episode.number))
        group = who.episode.number // self.manner.members % self.manner.slots
        ended = [other for other in self.groups[group] if other.ended]
        if len(ended) == self.manner.group:
            self._complete(group, ended)

    def _complete(self, group: int, ended: list[Trajectory]) -> None:
        """As many of a group as train together have ended: the others are not needed."""
        for who in self.groups.pop(group):
            if not who.ended:
                self._abort(who, "surplus")
        self.buffer += ended
        self.complete[group] += 1
        self._try_batch()
        if self.manner.continuous:
            self._launch()

    def _abort(self, who: Trajectory, why: str) -> None:
        self.counts[why] += 1
        self.log.append((self.now, why, who.episode.number))
        if who.ended:
            return
        who.ended = True
        del self.live[who.episode.number]
        if who.engine >= 0 and who.turn < len(who.episode.outputs):
            if who.job:
                engine = self.engines[who.at]
                engine.abort(who.job, self.now)
                self._plan(engine)
            self._off(who)

    # --- steps ---

    def _try_batch(self) -> None:
        """get_batch: as soon as `batch` trajectories are buffered, and the step before has been trained where it must."""
        if self.gathered or len(self.buffer) < self.manner.batch or len(self.done) >= self.iterations:
            return
        self.gathered = True
        taken, self.buffer = self.buffer[: self.manner.batch], self.buffer[self.manner.batch :]
        self.counts["trained"] += len(taken)
        if self.manner.continuous:
            self.steps += 1
            self._launch()
        busy = self._busy()
        if self.manner.parallel:  # weights of the last step first, then training beside rollouts
            first = not self.done
            when = self.now if first else max(self.now, self.trained_until + self.manner.transfer)
            self._at(when, self._step, tuple(taken), busy, self.now, not first)
        else:
            self._step(tuple(taken), busy, self.now, False)

    def _busy(self) -> tuple[tuple[float, float], ...]:
        """Seconds of prefill and decode of each engine since it was asked last."""
        spent = [(e.prefill, e.decode) for e in self.engines]
        found = tuple((a - c, b - d) for (a, b), (c, d) in zip(spent, self.spent, strict=True))
        self.spent = spent
        return found

    def _step(self, taken: tuple[Trajectory, ...], busy: tuple, ready: float, update: bool) -> None:
        """suspend, update and resume where there are weights to take; then train."""
        stale = tuple(self.version - who.version for who in taken)
        resumed = self.now
        if update:
            resumed += self.manner.suspended
            self._update(self.manner.suspended)
        seconds = self.train([who.episode for who in taken])
        self.trained_until = resumed + seconds
        self.done.append(
            Iteration(len(self.done), self.began, ready, resumed, (resumed, self.trained_until), taken, stale, busy)
        )
        self.began, self.gathered = resumed, False
        if self.manner.continuous:
            self._launch()
            self._try_batch()
        elif self.manner.parallel:
            self.steps += 1
            self._at(resumed, self._launch)
        else:
            self._at(self.trained_until + self.manner.transfer + self.manner.suspended, self._next_step)

    def _next_step(self) -> None:
        """Synchronous: all stood still while weights came."""
        self._update(0.0)
        self.began, self.steps = self.now, self.steps + 1
        self._launch()

    def _update(self, seconds: float) -> None:
        """Engines take new weights and recompute what is in flight; what began too many versions ago is aborted."""
        self.version += 1
        m = self.manner
        for engine in self.engines:
            engine.update(self.now, seconds)
            self._plan(engine)
        if m.continuous:
            least = self.version - m.staleness
            old = [who for who in self.buffer if who.version < least]
            self.buffer = [who for who in self.buffer if who.version >= least]
            for who in old[:: m.group]:
                self.complete[who.episode.number // m.members % m.slots] -= 1
            for group in [g for g, members in self.groups.items() if members[0].version < least]:
                old += self.groups.pop(group)
            for who in old:
                self._abort(who, "stale")


def _load(engine: Engine) -> tuple[float, int]:
    return (engine.live + 1) / engine.capacity, engine.number

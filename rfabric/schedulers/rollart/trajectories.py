"""Agents at work, event by event: trajectories on engines, environments that take their time, steps
that training takes.

    reset -> turn 1 -> environment -> turn 2 -> ... -> last turn -> reward -> buffer -> a batch to
    train on
             engine    latency        engine             `-> or aborted: too old, broken, not needed

    pool A (prefill-heavy tasks)  engine engine ...  a task goes to the pool of its affinity; where
                                                     that has no room, to
    pool B (decode-heavy tasks)   engine engine ...  one that has. A pool may `prefill_for` another:
                                                     then each turn is
                                                     prefilled there, and its KV crosses to an
                                                     engine of the other

Groups of environments stand in slots, as many as a step takes; a slot's next group begins when this
one is complete. Tokens, seconds, bytes. The same input gives the same events: ties go by who was
planned first.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...errors import RFabricError
from .engines import AgentEngine, AgentTurn, Pool, Trajectory
from .rules import Iteration, RolloutOutcome, RolloutRules
from .tasks import Episode, Task


def play(
    pools: Sequence[Pool],
    episodes: Callable[[int], Episode],
    train: Callable[[Sequence[Episode]], float],
    rules: RolloutRules,
    iterations: int,
) -> RolloutOutcome:
    """So many steps: `episodes` gives trajectory k, `train` the seconds of training on a batch.

    RFabricError without pools that decode, for turns that never fit, or where trajectories run out.
    """
    if not pools:
        raise RFabricError("rollouts: there are no pools; give one with 1 engine or more")
    return _Rollouts(pools, episodes, train, rules, iterations).run()


@dataclass(eq=False)
class _Rollouts:
    """The state of all between two events."""

    pools: Sequence[Pool]
    episodes: Callable[[int], Episode]
    train: Callable[[Sequence[Episode]], float]
    rules: RolloutRules
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
        self.engines: list[AgentEngine] = []
        for pool in self.pools:
            self.engines += [AgentEngine(len(self.engines) + i, pool) for i in range(pool.engines)]
        self.decoders = [e for e in self.engines if e.pool.prefill_for is None]
        self.prefillers = {
            p.prefill_for: [e for e in self.engines if e.pool is p]
            for p in self.pools
            if p.prefill_for
        }
        if not self.decoders:
            raise RFabricError("rollouts: every pool prefills for another; one must decode")
        self.counts = {"trained": 0, "stale": 0, "surplus": 0, "unfinished": 0}
        self.reward_free = [0.0] * (self.rules.reward_slots or 0)
        self.spent = [(0.0, 0.0)] * len(self.engines)
        self.complete = [0] * self.rules.slots
        self.again = [0] * self.rules.slots

    def run(self) -> RolloutOutcome:
        """Event by event until all steps are there; RFabricError where trajectories run out
        before.
        """
        self._launch()
        while len(self.done) < self.iterations:
            if not self.events:
                raise RFabricError(
                    f"rollouts: {len(self.buffer)} of {self.rules.batch} trajectories came and "
                    "no more will; raise staleness"
                )
            self.now, _, what, args = heapq.heappop(self.events)
            what(*args)
        self.counts["unfinished"] = sum(map(len, self.groups.values())) + len(self.buffer)
        peaks = tuple(e.peak for e in self.engines)
        return RolloutOutcome(
            tuple(self.done), self.counts, tuple(self.log), peaks, self.reward_busy
        )

    def _at(self, time: float, what: Callable, *args) -> None:
        self.order += 1
        heapq.heappush(self.events, (time, self.order, what, args))

    # --- trajectories ---

    def _launch(self) -> None:
        """Groups of environments begin that are free and not too far ahead of the weights."""
        m = self.rules
        upto = self.steps + m.steps_ahead if m.continuous else self.steps
        for slot in range(m.slots):
            if slot not in self.groups and self.complete[slot] <= upto:
                self._begin(slot)
        self._try_barrier()

    def _begin(self, slot: int) -> None:
        """The environments of a group begin; its n-th trajectories are the same whenever they
        begin.
        """
        first = (self.again[slot] * self.rules.slots + slot) * self.rules.members
        self.again[slot] += 1
        self.groups[slot] = [
            Trajectory(self.episodes(first + i), self.version) for i in range(self.rules.members)
        ]
        for who in self.groups[slot]:
            self.live[who.episode.number] = who
            self.log.append((self.now, "begin", who.episode.number))
            self._wait(who)

    def _wait(self, who: Trajectory) -> None:
        """Its environment takes its time; in step with all others where turns are batched."""
        if self.rules.batched:
            self.at_barrier.append(who)
        else:
            self._at(self.now + who.episode.latencies[who.turn], self._turn, who)

    def _try_barrier(self) -> None:
        acting = len(self.live) - len(self.unrewarded)
        if self.rules.batched and self.at_barrier and len(self.at_barrier) == acting:
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
        self._submit(
            engine, AgentTurn(who, e.context(who.turn), 1 if first else e.outputs[who.turn])
        )

    def _submit(self, engine: AgentEngine, turn: AgentTurn) -> None:
        turn.who.job, turn.who.at = turn, engine.number
        engine.submit(turn, self.now)
        self._plan(engine)

    def _route(self, task: Task) -> AgentEngine:
        """The engine with fewest trajectories, by the room it has, of its pool; of another where
        only that has room.
        """
        own = [e for e in self.decoders if task.name in e.pool.tasks] or self.decoders
        best = min(own, key=_load)
        if best.busy:
            idle = [e for e in self.decoders if not e.busy]
            best = min(idle, key=_load) if idle else best
        return best

    def _plan(self, engine: AgentEngine) -> None:
        when = engine.plan(self.now)
        if when is not None:
            self._at(max(when, self.now), self._fire, engine, engine.epoch)

    def _fire(self, engine: AgentEngine, epoch: int) -> None:
        if epoch != engine.epoch:
            return
        for turn in engine.fire():
            self._turn_ended(engine, turn)
        self._plan(engine)

    def _turn_ended(self, engine: AgentEngine, turn: AgentTurn) -> None:
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
        self._at(self.now + size / link, self._hand_over, who, decoder, context, self.version)

    def _hand_over(self, who: Trajectory, decoder: AgentEngine, context: int, version: int) -> None:
        """KV of weights that changed while it crossed is of no use: it is in flight like others."""
        if not who.ended:
            computed = context if version == self.version else 0
            left = who.episode.outputs[who.turn] - 1
            self._submit(decoder, AgentTurn(who, context, left, computed))

    # --- rewards, buffer, abort ---

    def _rolled_out(self, who: Trajectory) -> None:
        self._off(who)
        if not self.rules.batched:
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
        group = who.episode.number // self.rules.members % self.rules.slots
        ended = [other for other in self.groups[group] if other.ended]
        if len(ended) == self.rules.group:
            self._complete(group, ended)

    def _complete(self, group: int, ended: list[Trajectory]) -> None:
        """As many of a group as train together have ended: the others are not needed."""
        for who in self.groups.pop(group):
            if not who.ended:
                self._abort(who, "surplus")
        self.buffer += ended
        self.complete[group] += 1
        self._try_batch()
        if self.rules.continuous:
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
        """get_batch: as soon as `batch` trajectories are buffered, and the step before has been
        trained where it must.
        """
        if (
            self.gathered
            or len(self.buffer) < self.rules.batch
            or len(self.done) >= self.iterations
        ):
            return
        self.gathered = True
        taken, self.buffer = self.buffer[: self.rules.batch], self.buffer[self.rules.batch :]
        self.counts["trained"] += len(taken)
        if self.rules.continuous:
            self.steps += 1
            self._launch()
        busy = self._busy()
        if self.rules.parallel:  # weights of the last step first, then training beside rollouts
            first = not self.done
            when = self.now if first else max(self.now, self.trained_until + self.rules.transfer)
            self._at(when, self._step, tuple(taken), busy, self.now, not first)
        else:
            self._step(tuple(taken), busy, self.now, False)

    def _busy(self) -> tuple[tuple[float, float], ...]:
        """Seconds of prefill and decode of each engine since it was asked last."""
        spent = [(e.prefill, e.decode) for e in self.engines]
        busy = tuple((a - c, b - d) for (a, b), (c, d) in zip(spent, self.spent, strict=True))
        self.spent = spent
        return busy

    def _step(self, taken: tuple[Trajectory, ...], busy: tuple, ready: float, update: bool) -> None:
        """suspend, update and resume where there are weights to take; then train."""
        stale = tuple(self.version - who.version for who in taken)
        resumed = self.now
        if update:
            resumed += self.rules.suspended
            self._update(self.rules.suspended)
        seconds = self.train([who.episode for who in taken])
        self.trained_until = resumed + seconds
        self.done.append(
            Iteration(
                len(self.done),
                self.began,
                ready,
                resumed,
                (resumed, self.trained_until),
                taken,
                stale,
                busy,
            )
        )
        self.began, self.gathered = resumed, False
        if self.rules.continuous:
            self._launch()
            self._try_batch()
        elif self.rules.parallel:
            self.steps += 1
            self._at(resumed, self._launch)
        else:
            self._at(
                self.trained_until + self.rules.transfer + self.rules.suspended, self._next_step
            )

    def _next_step(self) -> None:
        """Synchronous: all stood still while weights came."""
        self._update(0.0)
        self.began, self.steps = self.now, self.steps + 1
        self._launch()

    def _update(self, seconds: float) -> None:
        """Engines take new weights and recompute what is in flight; what began too many versions
        ago is aborted.
        """
        self.version += 1
        m = self.rules
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


def _load(engine: AgentEngine) -> tuple[float, int]:
    return (engine.live + 1) / engine.capacity, engine.number

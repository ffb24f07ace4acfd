"""The servers that answer agents' turns: one server, event by event.

An engine decodes all it holds together; between two of its events the batch stays as it is, and its
decode steps are one closed sum (`roofline.DecodeStep`). A turn joins when all the KV it may need
fits: nothing is preempted. It finds the context that the turn before left on its engine, unless
others needed the room (the longest unused goes first) or weights changed meanwhile:
then all of it is prefilled again. Of a group, the first on an engine prefills the prompt; its KV is
counted for each.

A server of `compute.serving` plays requests that are all known before; an engine is told of turns,
aborts and new weights as they come. Its other rules differ as well: it never preempts, counts the
KV of a shared prompt for each of a group, keeps no watermark, and has chunks beside decode only.
Tokens, seconds, bytes.
"""

import heapq
from collections import deque
from dataclasses import dataclass

from ...compute.roofline import CHUNK_TOKENS, Server, step_of
from ...errors import RFabricError
from .tasks import Episode


@dataclass(frozen=True)
class Pool:
    """`engines` servers of one kind; tasks: whose affinity they have.

    prefill_for: the pool whose turns it prefills, at `link`
    bytes/s for a turn's KV.

    RFabricError without engines.
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
        """GPUs of all its engines."""
        return self.engines * self.server.gpus


@dataclass(slots=True, eq=False)
class Trajectory:
    """An episode under way: the weight version it began with, its engines, the turn it is in and
    where that is (`job`, `at`).
    """

    episode: Episode
    version: int
    engine: int = -1
    prefill: int = -1
    turn: int = 0
    job: "AgentTurn | None" = None
    at: int = -1
    ended: bool = False


@dataclass(slots=True, eq=False)
class AgentTurn:
    """A turn on an engine: tokens before its next token, tokens to come, tokens of its prompt that
    need no computing.
    """

    who: Trajectory
    prompt: int
    left: int
    computed: int = 0
    end: int = -1  # decode step after which it is done
    dead: bool = False

    @property
    def need(self) -> int:
        """Tokens of KV that it may come to hold."""
        return self.prompt + self.left


class AgentEngine:
    """One server: what it decodes, prefills and keeps.

    `plan` says when its next event is, `fire` lets it happen.
    """

    def __init__(self, number: int, pool: Pool):
        self.number, self.pool = number, pool
        self.step, self.capacity = step_of(pool.server), pool.server.kv_capacity_tokens
        self.clock = self.context = self.held = self.kept = self.live = 0
        self.free_at = 0.0
        self.inside: list[AgentTurn] = []  # those that decode
        self.ends: list[tuple[int, int, AgentTurn]] = []
        self.waiting: deque[AgentTurn] = deque()
        self.filling: deque[AgentTurn] = deque()
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

    def submit(self, turn: AgentTurn, now: float) -> None:
        """A turn comes; it joins when the step under way is over.

        RFabricError for one that never fits.
        """
        if turn.need > self.capacity:
            raise RFabricError(
                f"pool {self.pool.name}: a turn needs {turn.need} tokens of KV cache, an "
                f"engine holds {max(self.capacity, 0)}; use more GPUs an engine or shorter "
                "trajectories"
            )
        self.waiting.append(turn)
        self.queued += turn.need
        self._cut(now)

    def abort(self, turn: AgentTurn, now: float) -> None:
        """The turn leaves between two steps."""
        turn.dead = self.purging = True
        self._cut(now)

    def forget(self, who: Trajectory) -> None:
        """Its context is not needed again."""
        self.kept -= self.left_behind.pop(who, 0)

    def update(self, now: float, seconds: float) -> None:
        """Suspended for `seconds`, with other weights after that: whatever is in flight is
        prefilled anew.
        """
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
            n, context = len(self.inside), self.context
            fewer = self.step.steps_in(now - begin, n, context, steps)
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
                self.doing = (
                    "decode",
                    begin,
                    steps,
                    begin + self.step.seconds(n, self.context, steps),
                )
            self.epoch += 1
        return self.doing[3] if self.doing else None

    def fire(self) -> list[AgentTurn]:
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

    def _take(self, turn: AgentTurn) -> None:
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

    def _shared(self, turn: AgentTurn) -> int:
        """Tokens of its prompt that others of its group computed here: those of the first turn, if
        later ones continue it.
        """
        e = turn.who.episode
        return e.prompt if e.group in self.prompts and (e.task.caches or not turn.who.turn) else 0

    def _start(self, turn: AgentTurn) -> None:
        """Its prompt is computed, which gives its next token."""
        turn.prompt, turn.left = turn.prompt + 1, turn.left - 1
        self._join(turn)

    def _join(self, turn: AgentTurn) -> None:
        turn.end = self.clock + turn.left
        self.joined += 1
        self.inside.append(turn)
        self.context += turn.prompt
        heapq.heappush(self.ends, (turn.end, self.joined, turn))

    def _next_end(self) -> int:
        return self.ends[0][0]

    def _finish(self) -> list[AgentTurn]:
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

    def _leave(self, turn: AgentTurn) -> None:
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
        """With new weights, what decodes is prefilled with all it has so far; what was being
        prefilled starts over.
        """
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

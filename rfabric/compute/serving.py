"""Continuous batching played event by event: what an engine does with requests that join and leave
while it decodes.

    waiting -> (slots? KV?) -> prefill in chunks -> decode, one token a step -> done -> the next
    turn, after its gap
       ^--------- preempted: the KV cache is full; its tokens are recomputed --------'

Between two events the batch stays as it is and its decode steps are one closed sum
(`roofline.DecodeStep`), so a replica costs O(requests log requests), not O(tokens): 100,000
requests take seconds. Tokens, seconds; one server a play.

A step holds `batched_tokens` at most. vLLM and TensorRT-LLM put a chunk of prefill and the decode
of all others into one step; SGLang lets decode wait until all that could join is prefilled.
TensorRT-LLM lets a request in when all the KV it may need fits, SGLang when 0.7 of it does
(init_new_token_ratio), vLLM when its prompt does: it preempts the last that joined.

Prefix caching: requests of one `group` share their prompt while one of them stays; a turn finds the
context that the turn before it left, unless others needed the room meanwhile (the one unused
longest goes first).
"""

import heapq
from collections import deque
from dataclasses import InitVar, dataclass, field
from typing import NamedTuple

import numpy as np

from ..errors import RFabricError
from .requests import Requests
from .roofline import CHUNK_TOKENS, DecodeStep
from .serving_core import Rules, core, played


@dataclass(frozen=True)
class Batching:
    """How an engine forms its steps; `reserve`: share of the tokens still to come that must fit for
    a request to join.

    watermark: share of the KV cache that stays free when one joins others (vLLM's
    CacheConfig.watermark).
    """

    batched_tokens: int = CHUNK_TOKENS
    max_num_seqs: int = 1024
    prefill_first: bool = False
    chunked: bool = True
    reserve: float = 0.0
    watermark: float = 0.01

    def __post_init__(self):
        for key in ("batched_tokens", "max_num_seqs"):
            if getattr(self, key) < 1:
                raise RFabricError(
                    f"{key}: {getattr(self, key)} must be 1 or more; engines use 2048 to 16384 "
                    "and 256 to 2048"
                )

    def rules(self, capacity: int) -> Rules:
        """The same for a server with so many tokens of KV cache."""
        steps = self.batched_tokens, self.max_num_seqs, self.prefill_first, self.chunked
        return Rules(capacity, *steps, self.reserve, self.watermark)


# Defaults on GPUs of 80 GB: vLLM engine/arg_utils.py (OpenAI server), SGLang server_args.py and
# schedule_policy.py, TensorRT-LLM llmapi (max_num_tokens, max_batch_size, GUARANTEED_NO_EVICT;
# chunked context off).
ENGINES = {
    "vllm": Batching(),
    "sglang": Batching(max_num_seqs=4096, prefill_first=True, reserve=0.7),
    "trtllm": Batching(max_num_seqs=2048, chunked=False, reserve=1.0),
}


@dataclass(frozen=True, eq=False)
class Served:
    """When each request came, gave its first token and ended (s, float64[n]); what the seconds went
    to.
    """

    arrival: np.ndarray
    first: np.ndarray
    end: np.ndarray
    output: np.ndarray
    prefill: float
    decode: float
    idle: float
    peak_kv_tokens: int
    preempted: int

    @property
    def seconds(self) -> float:
        """When the last request ends, s."""
        return float(self.end.max())

    @property
    def ttft(self) -> np.ndarray:
        """Seconds to the first token."""
        return self.first - self.arrival

    @property
    def tpot(self) -> np.ndarray:
        """Seconds from a token to the next, by request, of those with two tokens or more."""
        long = self.output > 1
        return (self.end - self.first)[long] / (self.output[long] - 1)


def serve(
    step: DecodeStep,
    capacity: int,
    batching: Batching,
    requests: Requests,
    resident: np.ndarray | None = None,
) -> Served:
    """Play `requests` on a server with `capacity` tokens of KV cache; RFabricError for one that
    never fits.

    resident: as of a ServingSession.
    """
    if core() is None or type(step) is not DecodeStep:
        return ServingSession(step, capacity, batching, requests, resident).run().served()
    _refuse_too_long(capacity, requests)
    there = np.zeros(len(requests), bool) if resident is None else resident
    *times, prefill, decode, idle, peak, preempted = played(
        step, batching.rules(capacity), requests, there
    )
    return Served(*times, requests.output, prefill, decode, idle, peak, preempted)


def _refuse_too_long(capacity: int, requests: Requests) -> None:
    """RFabricError where a request never fits, and where the weights leave no room at all."""
    most = int((requests.prompt + requests.output).max())
    if most <= capacity:
        return
    lengths = f"lengths of {capacity} at most" if capacity > 0 else "a GPU with more HBM"
    beside = "" if capacity > 0 else " beside its weights"
    raise RFabricError(
        f"requests: one needs {most} tokens of KV cache, the server holds "
        f"{max(capacity, 0)}{beside}; use a larger tp, a higher memory_utilisation or {lengths}"
    )


@dataclass(frozen=True, eq=False)
class PausedRequests:
    """Requests of a paused server: tokens before the next one, tokens still to come (int64[n]
    both), whether their KV is there.
    """

    context: np.ndarray
    left: np.ndarray
    resident: np.ndarray


@dataclass(slots=True, eq=False)
class _Request:
    """One request on its way: tokens before its next token, tokens to come, tokens of its prompt
    already computed.
    """

    number: int
    prompt: int
    left: int
    group: int
    cached: int
    computed: int = 0
    own: int = 0  # tokens of KV that it alone holds
    end: int = -1  # decode step after which it is done
    started: bool = False


@dataclass(slots=True, eq=False)
class _Group:
    members: int = 0
    ready: bool = False  # their prompt is computed


@dataclass(eq=False)
class ServingSession:
    """A server that can be paused, so that requests go on elsewhere: its state between two events.

    `resident` (bool[n]): the KV of their prompts is there; `now`: seconds since it began;
    `unfinished`: requests that have not ended; `peak_kv_tokens`: most that were held at once so
    far; `clock` counts decode steps.
    """

    step: DecodeStep
    capacity: int
    batching: Batching
    requests: Requests
    resident: InitVar[np.ndarray | None] = None
    now: float = 0.0
    clock: int = 0
    decoding: int = 0
    context: int = 0  # tokens of context of those that decode
    to_come: int = 0  # tokens that those let in have still to give
    held: int = 0  # tokens of KV of those let in
    kept: int = 0  # tokens of KV that finished turns left for the next
    peak_kv_tokens: int = 0
    preempted: int = 0
    prefill: float = 0.0
    decode: float = 0.0
    idle: float = 0.0
    waiting: deque = field(default_factory=deque)
    filling: deque = field(default_factory=deque)
    inside: dict = field(default_factory=dict)  # those let in, by number, in order
    ends: list = field(default_factory=list)
    coming: list = field(default_factory=list)
    # request: tokens its context keeps in the cache
    left_behind: dict = field(default_factory=dict)
    groups: dict = field(default_factory=dict)

    def __post_init__(self, resident: np.ndarray | None):
        r = self.requests
        _refuse_too_long(self.capacity, r)
        n = len(r)
        self.arrival, self.first, self.end = np.zeros(n), np.zeros(n), np.zeros(n)
        self.following = r.following.tolist()
        self.columns = [c.tolist() for c in (r.prompt, r.output, r.group, r.cached, r.gap)]
        starts = np.flatnonzero(r.after < 0)
        self.coming = sorted(zip(r.gap[starts].tolist(), starts.tolist(), strict=True))
        self.unfinished = n
        # requests whose prompt need not be prefilled but for its last token
        self.cached_prompts = set() if resident is None else set(np.flatnonzero(resident).tolist())

    def run(self, until: float = float("inf")) -> "ServingSession":
        """Play on until all requests are done, or the first step that ends at `until` or later."""
        while self.unfinished and self.now < until:
            self._arrive()
            self._let_in()
            if self.filling:
                self._fill()
            elif self.decoding:
                self._decode(until)
            else:
                self.idle += self.coming[0][0] - self.now
                self.now = self.coming[0][0]
        return self

    def standing(self) -> PausedRequests:
        """How far each request is."""
        prompt, output = (np.array(column) for column in self.columns[:2])
        left = np.where(self.end > 0, 0, output)
        resident = np.isin(np.arange(len(prompt)), list(self.cached_prompts))
        for request in (*self.waiting, *self.inside.values()):
            decodes = request.end >= 0
            left[request.number] = request.end - self.clock if decodes else request.left
            resident[request.number] = decodes or request.number in self.cached_prompts
        return PausedRequests(prompt + output - left, left, resident)

    def served(self) -> Served:
        """When each request came and ended; what the seconds so far went to."""
        spent = self.prefill, self.decode, self.idle, self.peak_kv_tokens, self.preempted
        return Served(self.arrival, self.first, self.end, self.requests.output, *spent)

    def _arrive(self) -> None:
        prompt, output, group, cached, _ = self.columns
        while self.coming and self.coming[0][0] <= self.now:
            at, i = heapq.heappop(self.coming)
            self.arrival[i] = at
            self.waiting.append(_Request(i, prompt[i], output[i], group[i], cached[i]))

    def _let_in(self) -> None:
        """First come, first served, while a slot and KV are there."""
        reserve, most = self.batching.reserve, self.batching.max_num_seqs
        limit = self.capacity * (1 - self.batching.watermark)
        while self.waiting and len(self.inside) < most:
            request = self.waiting[0]
            tokens = (
                request.prompt + 1 - (self._shared(request) if request.group in self.groups else 0)
            )
            # Alone any request has room: `serve` has refused those that never fit.
            if self.inside and self.held + tokens + reserve * (self.to_come + request.left) > limit:
                return
            self.waiting.popleft()
            self._take(request)

    def _shared(self, request: _Request) -> int:
        """Tokens of its prompt that its group shares."""
        return self.columns[0][request.number] if request.group >= 0 else 0

    def _take(self, request: _Request) -> None:
        """Give it its KV: what its last turn left, what its group shares, and room for the rest and
        its first token.
        """
        before = int(self.requests.after[request.number]) if request.cached else -1
        if before in self.left_behind:
            self.kept -= self.left_behind.pop(before)
            request.computed = min(request.cached, request.prompt - 1)
        if request.number in self.cached_prompts:
            self.cached_prompts.discard(request.number)
            request.computed = request.prompt - 1
        if request.group >= 0:
            group = self.groups.setdefault(request.group, _Group())
            self.held += 0 if group.members else self._shared(request)
            group.members += 1
        request.own = request.prompt + 1 - self._shared(request)
        self.held += request.own
        self.to_come += request.left
        self.inside[request.number] = request
        self.filling.append(request)
        self._make_room()

    def _make_room(self) -> None:
        """Forget contexts that wait for their next turn, the oldest first, until what is held
        fits.
        """
        while self.held + self.kept > self.capacity and self.left_behind:
            self.kept -= self.left_behind.pop(next(iter(self.left_behind)))
        self.peak_kv_tokens = max(self.peak_kv_tokens, self.held)

    def _fill(self) -> None:
        """One step with prefill: whole prompts or chunks, first come first, up to the budget."""
        alone = self.batching.prefill_first
        n, context = (0, 0) if alone else (self.decoding, self.context)
        budget = max(self.batching.batched_tokens - n, 1)
        tokens, pairs, done = 0, 0.0, []
        while self.filling and tokens < budget:
            request = self.filling[0]
            if request.group >= 0 and self.groups[request.group].ready:
                request.computed = max(
                    request.computed, min(self._shared(request), request.prompt - 1)
                )
            need = request.prompt - request.computed
            if not self.batching.chunked and tokens and tokens + need > budget:
                break
            part = min(need, budget - tokens) if self.batching.chunked else need
            pairs += part * (request.computed + part / 2)
            tokens, request.computed = tokens + part, request.computed + part
            if part < need:
                break
            if request.group >= 0:
                self.groups[request.group].ready = True
            done.append(self.filling.popleft())
        self._pass(tokens, pairs, n, context, done)

    def _pass(self, tokens: int, pairs: float, n: int, context: int, done: list[_Request]) -> None:
        """The step itself: `tokens` of prefill beside n that decode; `done` are prefilled and give
        a first token.
        """
        if n and self.held + n > self.capacity:
            self._preempt(n)
            n, context = self.decoding, self.context
        seconds = self.step.mixed(n, context, tokens, pairs)
        alone = self.step.seconds(n, context) if n else 0.0
        self.now += seconds
        self.prefill, self.decode = self.prefill + seconds - alone, self.decode + alone
        if n:
            self._advance(1)
        for request in done:
            if request.number in self.inside:
                self._start(request)
        self._finish()

    def _start(self, request: _Request) -> None:
        """Its first token: it decodes from now on."""
        if not request.started:
            request.started, self.first[request.number] = True, self.now
        request.prompt, request.left = request.prompt + 1, request.left - 1
        self.to_come -= 1
        request.end = self.clock + request.left
        self.decoding, self.context = self.decoding + 1, self.context + request.prompt
        heapq.heappush(self.ends, (request.end, request.number))

    def _decode(self, until: float = float("inf")) -> None:
        """Decode steps until the next response ends, the KV cache is full, it is `until`, or
        another request may join.
        """
        if self.held + self.decoding > self.capacity:
            self._preempt(self.decoding)
        n = self.decoding
        if not n:
            return
        steps = min(self._next_end() - self.clock, max((self.capacity - self.held) // n, 1))
        if self.coming and not self.waiting and len(self.inside) < self.batching.max_num_seqs:
            steps = self.step.steps_in(self.coming[0][0] - self.now, n, self.context, steps)
        if until < float("inf"):
            steps = self.step.steps_in(until - self.now, n, self.context, steps)
        seconds = self.step.seconds(n, self.context, steps)
        self.now, self.decode = self.now + seconds, self.decode + seconds
        self._advance(steps)
        self._finish()

    def _advance(self, steps: int) -> None:
        grown = self.decoding * steps
        self.clock += steps
        self.context += grown
        self.held += grown
        self.to_come -= grown
        if self.held + self.kept > self.capacity:
            self._make_room()
        self.peak_kv_tokens = max(self.peak_kv_tokens, self.held)

    def _next_end(self) -> int:
        while True:
            end, number = self.ends[0]
            request = self.inside.get(number)
            if request is not None and request.end == end:
                return end
            heapq.heappop(self.ends)  # it was preempted

    def _finish(self) -> None:
        """Let out those whose last token this was; their next turn comes after its gap."""
        while self.decoding and self._next_end() <= self.clock:
            _, number = heapq.heappop(self.ends)
            request = self.inside.pop(number)
            self.end[number] = self.now
            self.unfinished -= 1
            made = request.left
            self._leave(request, request.own + made, request.prompt + made)
            following = self.following[number]
            if following >= 0:
                heapq.heappush(self.coming, (self.now + self.columns[4][following], following))
                self._keep(number, following, request.prompt + made)

    def _joined(self, request: _Request) -> int:
        """The decode step at which it gave its first token since it was let in."""
        return request.end - request.left

    def _keep(self, number: int, following: int, tokens: int) -> None:
        if self.columns[3][following]:
            self.left_behind[number] = tokens
            self.kept += tokens
            self._make_room()

    def _leave(self, request: _Request, own: int, context: int) -> None:
        """Give back its KV and its place among those that decode."""
        self.decoding -= 1
        self.context -= context
        self.held -= own
        self._leave_group(request)

    def _leave_group(self, request: _Request) -> None:
        if request.group >= 0:
            group = self.groups[request.group]
            group.members -= 1
            if not group.members:
                self.held -= self._shared(request)
                del self.groups[request.group]

    def _preempt(self, need: int) -> None:
        """Send back the last that were let in until `need` tokens of KV are free; all they had is
        computed again.
        """
        self._make_room()
        while self.held + min(need, self.decoding) > self.capacity and len(self.inside) > 1:
            _, request = self.inside.popitem()
            self.preempted += 1
            made = 0
            if request.end >= 0:
                made = self.clock - self._joined(request)
                self._leave(request, request.own + made, request.prompt + made)
                self.to_come -= request.left - made
            else:
                if request in self.filling:
                    self.filling.remove(request)
                self.held -= request.own
                self.to_come -= request.left
                self._leave_group(request)
            self.waiting.appendleft(
                _Request(
                    request.number,
                    request.prompt + made,
                    request.left - made,
                    request.group,
                    0,
                    started=request.started,
                )
            )


class ReplicaTime(NamedTuple):
    """Seconds a replica spends in prefill, in decode and waiting for environments; the most tokens
    of KV cache it held.
    """

    prefill: float
    decode: float
    peak_kv_tokens: int
    idle: float = 0.0
    preempted: int = 0

    @property
    def seconds(self) -> float:
        """All that it takes, s."""
        return self.prefill + self.decode + self.idle

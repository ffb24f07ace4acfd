"""Tail batching: short rounds that leave their longest responses to a long round.

Only the order of prompts changes.

    short round   eta P0 prompts x eta R0 responses, P0 = 4, R0 = 2, eta = 1.5:

                  prompt 1  ==== | ===== | ------    R0 responses are there: the third is aborted
                  prompt 2  === | ====== | -------
                  ...
                  prompt 6  =========--------------  P0 prompts are there: aborted, into the queue
                                                     of long prompts

    long round    as soon as P0 prompts wait there: those, R0 responses each, all the way to the end

Every response is drawn anew from the current weights, so training stays on-policy. RollPacker,
NSDI'26, arXiv 2509.21009.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import NormalDist

import numpy as np

from ...compute.requests import Requests, independent
from ...compute.roofline import DecodeStep
from ...compute.serving import Batching, ReplicaTime, Served, serve
from ...errors import RFabricError
from ...rl.phases import Generated
from ...rl.timing import decode_step
from ...rl.workload import Workload

SHORT, LONG, PLAIN = "short", "long", "plain"
# Share of the variance of (normal) lengths that lies between prompts, none of it being stated:
# half. That it is not 0 shows in Fig. 11 of RollPacker: two spare responses of ten save 3 to 16 %
# of a rollout, as the hard prompts stay long.
ALIKE = 0.5
# eta of prompts and of responses: of what RollPacker's Fig. 11 tries, what takes least time.
REDUNDANCY = 1.25


@dataclass(frozen=True)
class Books:
    """Which prompts come next: `fresh` is the first that was never launched, `waiting` the queue of
    long prompts.

    attempts: how often a prompt in the queue has been aborted, by prompt.
    """

    fresh: int = 0
    waiting: tuple[int, ...] = ()
    attempts: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Launch:
    """A round before it runs: `prompts` with `responses` each, of which `keep_prompts` x
    `keep_responses` are waited for.
    """

    kind: str
    prompts: tuple[int, ...]
    responses: int
    keep_prompts: int
    keep_responses: int


def launch(
    books: Books,
    batch: int,
    group_size: int,
    prompts: float = REDUNDANCY,
    responses: float = REDUNDANCY,
) -> Launch:
    """The next round: long when `batch` prompts wait, else short with `prompts` x batch fresh ones
    and spare responses.

    RFabricError for redundancy below 1 or above 10.
    """
    for name, value in (("prompts", prompts), ("responses", responses)):
        if not 1 <= value <= 10:
            raise RFabricError(
                f"rollpacker {name}: {value:g} must lie between 1 (no "
                f"redundancy) and 10; it takes {REDUNDANCY:g}"
            )
    if len(books.waiting) >= batch:
        return Launch(LONG, books.waiting[:batch], group_size, batch, group_size)
    count, each = (
        math.ceil(n * eta - 1e-9) for n, eta in ((batch, prompts), (group_size, responses))
    )
    kind = SHORT if count > batch or each > group_size else PLAIN
    return Launch(kind, tuple(range(books.fresh, books.fresh + count)), each, batch, group_size)


def settled(books: Books, made: Launch, kept: Sequence[int]) -> Books:
    """The books after a round that kept the prompts `kept`: what was aborted joins the queue."""
    kept = set(kept)
    if made.kind == LONG:
        return Books(
            books.fresh, books.waiting[made.keep_prompts :], _without(books.attempts, made.prompts)
        )
    aborted = tuple(p for p in made.prompts if p not in kept)
    return Books(
        made.prompts[-1] + 1, books.waiting + aborted, books.attempts | dict.fromkeys(aborted, 1)
    )


def _without(attempts: dict[int, int], prompts: Sequence[int]) -> dict[int, int]:
    return {p: n for p, n in attempts.items() if p not in set(prompts)}


@dataclass(frozen=True, eq=False)
class Drawn:
    """Tokens of prompts (int64[p]) and of their responses (int64[p, r])."""

    prompts: np.ndarray
    outputs: np.ndarray


def draw(w: Workload, seed: int, made: Launch, books: Books, alike: float = ALIKE) -> Drawn:
    """Lengths of a round: a prompt keeps its own and its hardness, each attempt at it has responses
    of its own.

    The normal quantile of a response is sqrt(alike) x that of its prompt + sqrt(1 - alike) x its
    own.

    RFabricError for `alike` beyond 0 to 1.
    """
    if not 0 <= alike <= 1:
        raise RFabricError(
            f"rollpacker alike: {alike:g} must lie between 0 (responses know nothing of their "
            "prompt) and 1"
        )
    g = w.generation
    prompts, hardness, own = [], [], []
    for p in made.prompts:
        random = np.random.default_rng([seed, p])
        prompts.append(random.random())
        hardness.append(random.standard_normal())
        own.append(
            np.random.default_rng([seed, p, 1 + books.attempts.get(p, 0)]).standard_normal(
                made.responses
            )
        )
    z = math.sqrt(alike) * np.array(hardness)[:, None] + math.sqrt(1 - alike) * np.array(own)
    outputs = np.minimum(g.lengths.at(_cdf(z)), g.max_response)
    return Drawn(np.minimum(g.prompt_lengths.at(np.array(prompts)), g.max_prompt), outputs)


_GRID = np.linspace(-6, 6, 4801)
_CDF = np.array([NormalDist().cdf(z) for z in _GRID])


def _cdf(z: np.ndarray) -> np.ndarray:
    return np.interp(z, _GRID, _CDF)


@dataclass(frozen=True, eq=False)
class RoundOutcome:
    """A round as it ran: columns of prompts and responses, and when it ended (s).

    played: int64[p, r], tokens until the response ended or was aborted for its prompt having R0;
    ends: float64[p, r], their times; first: bool[p, r], the R0 of each; replica: int64[p]; kept:
    int64[P0], rows of the first P0 prompts, in order;
    times: prefill, decode, idle and preemptions of each replica up to the end; pace: how much
    slower than modelled they are.
    """

    w: Workload
    launch: Launch
    drawn: Drawn
    played: np.ndarray
    ends: np.ndarray
    first: np.ndarray
    replica: np.ndarray
    kept: np.ndarray
    seconds: float
    times: tuple[ReplicaTime, ...]
    pace: float = 1.0

    @property
    def preempted(self) -> int:
        """Preemptions of all replicas."""
        return sum(t.preempted for t in self.times)

    @property
    def kept_prompts(self) -> list[int]:
        """The prompts that are trained on, in order."""
        return [self.launch.prompts[row] for row in self.kept]

    @property
    def outputs(self) -> np.ndarray:
        """Tokens of the responses that are trained on: int64[P0, R0]."""
        return self.drawn.outputs[self.kept][self.first[self.kept]].reshape(len(self.kept), -1)

    @property
    def prompts(self) -> np.ndarray:
        """Tokens of the prompts that are trained on: int64[P0]."""
        return self.drawn.prompts[self.kept]

    @property
    def kept_ends(self) -> np.ndarray:
        """When each response that is trained on was there: float64[P0, R0]."""
        return self.ends[self.kept][self.first[self.kept]].reshape(len(self.kept), -1)

    @property
    def group_ends(self) -> np.ndarray:
        """When each launched prompt has its R0 responses: float64[p]."""
        return np.where(self.first, self.ends, 0.0).max(axis=1)


def play(w: Workload, made: Launch, drawn: Drawn, pace: float = 1.0) -> RoundOutcome:
    """Run a round on the replicas of `w`, whole prompts to each as evenly as they divide; `pace`:
    see RoundOutcome.

    The first R0 responses of a prompt are its shortest: they decode side by side, a token a step.
    """
    first = _shortest(drawn.outputs, made.keep_responses)
    until = np.where(first, drawn.outputs, 0).max(axis=1)
    played = np.minimum(drawn.outputs, until[:, None])
    replica = np.repeat(
        np.arange(len(w.replicas)), [len(p) for p in np.array_split(made.prompts, len(w.replicas))]
    )
    ends = np.zeros(played.shape)
    served: list[Served | None] = [None] * len(w.replicas)
    for r in np.unique(replica).tolist():
        rows = np.flatnonzero(replica == r)
        served[r] = served_on(w, requests_of(drawn.prompts[rows], played[rows]), pace)
        ends[rows] = served[r].end.reshape(len(rows), -1)
    return finished(
        RoundOutcome(w, made, drawn, played, ends, first, replica, np.zeros(0, int), 0.0, (), pace),
        served,
    )


def finished(running: RoundOutcome, served: Sequence[Served | None]) -> RoundOutcome:
    """The round with its end: when P0 prompts are there all else is aborted."""
    order = np.argsort(running.group_ends, kind="stable")[: running.launch.keep_prompts]
    seconds = float(running.group_ends[order[-1]])
    times = tuple(_until(replica, seconds) for replica in served)
    return replace(running, kept=np.sort(order), seconds=seconds, times=times)


def requests_of(prompts: np.ndarray, outputs: np.ndarray) -> Requests:
    """Prompts with their responses (int64[p], int64[p, r]), all there at the start."""
    return independent(np.repeat(prompts, outputs.shape[1]), outputs.ravel(), outputs.shape[1])


def joined(own: Requests, context: np.ndarray, to_come: np.ndarray, at: float) -> Requests:
    """Requests, and others that come `at` s with the `context` tokens they had elsewhere and those
    still `to_come`.
    """
    n = len(context)
    columns = {
        "prompt": context,
        "output": to_come,
        "after": -1,
        "gap": at,
        "cached": 0,
        "group": -1,
    }
    return Requests(
        *(np.append(getattr(own, k), np.broadcast_to(v, n)) for k, v in columns.items())
    )


def served_on(w: Workload, requests: Requests, pace: float = 1.0) -> Served:
    """Requests on one replica of `w`."""
    batching = Batching(max_num_seqs=w.slots)
    return serve(_paced(decode_step(w), pace), w.kv_capacity_tokens, batching, requests)


def _paced(step: DecodeStep, pace: float) -> DecodeStep:
    """The step at `pace` times its seconds: all its terms are seconds but two."""
    if pace == 1:
        return step
    seconds = [f.name for f in fields(step) if f.name not in ("missed_share", "window")]
    return replace(step, **{name: pace * getattr(step, name) for name in seconds})


def _shortest(outputs: np.ndarray, keep: int) -> np.ndarray:
    """bool[p, r]: the `keep` shortest of each row, of equals the first."""
    rank = np.argsort(np.argsort(outputs, axis=1, kind="stable"), axis=1, kind="stable")
    return rank < keep


def _until(served: Served | None, seconds: float) -> ReplicaTime:
    """What a replica did up to `seconds`, where all that it still runs is aborted."""
    if served is None:
        return ReplicaTime(0.0, 0.0, 0)
    prefill = min(served.prefill, seconds)
    decode = min(served.decode, seconds - prefill)
    return ReplicaTime(prefill, decode, served.peak_kv_tokens, 0.0, served.preempted)


def generated_of(played: RoundOutcome) -> Generated:
    """What a round gives to training, by the replica that made it."""
    rows = [played.kept[played.replica[played.kept] == r] for r in range(len(played.times))]
    outputs = [played.drawn.outputs[part][played.first[part]] for part in rows]
    each = played.launch.keep_responses
    return Generated(
        [np.repeat(played.drawn.prompts[part], each) for part in rows], outputs, list(played.times)
    )

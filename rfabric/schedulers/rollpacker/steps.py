"""The steps of a job under RollPacker: rounds, rewards and training, with replicas that the planner
changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...errors import RFabricError
from ...rl.phases import Trained, handover, trained_on
from ...rl.popularity import routing
from ...rl.workload import Workload
from ..base import refuse_cpu_servers, refuse_dropped, refuse_unlike_replicas
from .planner import replanned, with_tp
from .reward import Judges, judged, runs
from .rounds import ALIKE, Books, RoundOutcome, draw, launch, play, settled
from .stream import Streamed, streamed, work_done


@dataclass(frozen=True)
class RollpackerSettings:
    """What is on: redundancy of prompts and responses (1: none), planner and stream trainer (0:
    off); `alike`: see rounds.py.

    free: a fixed share of responses at which the stream trainer frees GPUs, whatever fits; 0: by
    the rule.

    RFabricError for settings out of bounds.
    """

    prompts: float = 1.25
    responses: float = 1.25
    planner: float = 1
    stream: float = 1
    alike: float = ALIKE
    free: float = 0

    def __post_init__(self):
        for name in ("planner", "stream"):
            if getattr(self, name) not in (0, 1):
                raise RFabricError(
                    f"rollpacker {name}: {getattr(self, name):g} must be 1 (on) or 0 (off)"
                )
        if not 0 <= self.free < 1:
            raise RFabricError(
                f"rollpacker free: {self.free:g} must be a share below 1; 0 leaves it to the rule"
            )


# verl: nothing but rounds of the batch
SYNCHRONOUS = RollpackerSettings(prompts=1, responses=1, planner=0, stream=0)


@dataclass(frozen=True)
class Rewards:
    """How responses are judged: by `judges`, each when it is there or all after the rollout, with
    time-outs that adapt or not.
    """

    judges: Judges
    per_sample: bool = True
    adaptive: bool = True


@dataclass(frozen=True, eq=False)
class Packed:
    """One step: its round, when all is judged (s), its training; `early`: the share of `streamable`
    done before.
    """

    number: int
    w: Workload
    played: RoundOutcome
    judged: float
    trained: Trained
    freed: Streamed | None = None
    early: float = 0.0

    @property
    def kind(self) -> str:
        """Of its round: short, long or plain."""
        return self.played.launch.kind

    @property
    def training(self) -> float:
        """Seconds of training after rollout and reward."""
        return self.trained.seconds(self.w.training.buckets) - self.early * streamable(self.trained)

    @property
    def seconds(self) -> float:
        """Of the whole step, communication between servers not counted."""
        return self.judged + self.training + sum(handover(self.w).values())


def run(
    w: Workload,
    seed: int = 0,
    settings: RollpackerSettings = RollpackerSettings(),
    steps: int | None = None,
    rewards: Rewards | None = None,
    pace: float = 1.0,
) -> list[Packed]:
    """The steps of a job, one after the other: each prompt is trained once, in the order in which
    rounds finish.

    pace: how much slower than modelled the engine generates, where that was measured.
    """
    _check(w, pace)
    return list(_steps(w, seed, settings, w.steps if steps is None else steps, rewards, pace))


def _check(w: Workload, pace: float) -> None:
    refuse_unlike_replicas("rollpacker", w)
    refuse_cpu_servers("rollpacker", w)
    refuse_dropped("rollpacker", w)
    if w.generation.turns > 1:
        raise RFabricError(
            f"rollpacker: generation.turns {w.generation.turns}: rounds of one turn only are "
            f"batched by their tails; use scheduler sync, or turns 1"
        )
    if w.pipeline != "sync":
        raise RFabricError(
            "rollpacker: trains on-policy, but the job's pipeline is "
            f"{w.pipeline}; use pipeline sync"
        )
    if not pace > 0:
        raise RFabricError(f"rollpacker: pace {pace:g} must lie above 0; 1 is as modelled")


def _steps(
    w: Workload,
    seed: int,
    settings: RollpackerSettings,
    steps: int,
    rewards: Rewards | None,
    pace: float,
) -> Iterator[Packed]:
    g, books, since = w.generation, Books(), []
    for number in range(steps):
        made = launch(books, g.batch, g.group_size, settings.prompts, settings.responses)
        done = _step(
            number,
            w,
            play(w, made, draw(w, seed, made, books, settings.alike), pace),
            settings,
            rewards,
            seed,
        )
        yield done
        books = settled(books, made, done.played.kept_prompts)
        since.append(done.played.preempted)
        if settings.planner:
            tp = replanned(w.generation.tp, since)
            other = with_tp(w, tp) if tp != w.generation.tp else None
            w, since = (other, []) if other else (w, since)


def _step(
    number: int,
    w: Workload,
    played: RoundOutcome,
    settings: RollpackerSettings,
    rewards: Rewards | None,
    seed: int,
) -> Packed:
    freed = streamed(played, settings.free or None) if settings.stream and w.colocated else None
    played = freed.played if freed else played
    ready = _judged(played, rewards, [seed, number])
    lengths = (played.prompts[:, None] + played.outputs).astype(float)
    trained = trained_on(w, lengths.ravel(), routing(w, seed, number))
    end = max(float(ready.max()), played.seconds)
    early = 0.0
    if freed:
        share = len(freed.freed) / len(played.times)
        rate = float(lengths.sum()) * share / streamable(trained)
        early = work_done(ready.max(axis=1), lengths.sum(axis=1), rate, freed.ready, end)
    return Packed(number, w, played, end, trained, freed, early)


def _judged(played: RoundOutcome, rewards: Rewards | None, seed: list[int]) -> np.ndarray:
    """When each response that is trained on has its reward (float64[P0, R0]); a rule takes no
    time.
    """
    if rewards is None:
        return played.kept_ends
    ready = (
        played.kept_ends if rewards.per_sample else np.full(played.kept_ends.shape, played.seconds)
    )
    order = np.argsort(ready, axis=1, kind="stable")
    drawn = runs(
        rewards.judges,
        *ready.shape,
        int(np.random.default_rng(seed).integers(2**31)),
        rewards.adaptive,
    )
    seconds = np.empty_like(drawn)
    np.put_along_axis(seconds, order, drawn, axis=1)
    return judged(ready, seconds, rewards.judges.workers)


def streamable(trained: Trained) -> float:
    """Seconds of training that need no other update: log-probabilities, and the first update up to
    its last micro-batch.
    """
    return float(trained.log_prob.max() + trained.mini_batches[0].first.max())

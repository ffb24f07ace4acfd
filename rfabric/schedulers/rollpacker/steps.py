"""The steps of a job under RollPacker: rounds, rewards and training, with replicas that the planner
changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...compute.named import load_model
from ...errors import RFabricError
from ...rl.phases import Trained, handover, trained_on
from ...rl.popularity import routing
from ...rl.workload import Workload
from ..base import refuse_cpu_servers, refuse_dropped, refuse_unlike_replicas
from .apart import Wave, seconds_of, trained_ahead, waves_of
from .judge import SHARE, Judge, Verdicts, verdicts
from .planner import replanned, with_tp
from .reward import Judges, judged, runs
from .rounds import ALIKE, REDUNDANCY, Books, RoundOutcome, draw, launch, play, settled
from .stream import FROM, Streamed, streamed, work_done


@dataclass(frozen=True)
class RollpackerSettings:
    """What is on: redundancy of prompts and responses (1: none), planner and stream trainer (0:
    off); `alike`: see rounds.py.

    free: a fixed share of responses at which the stream trainer frees GPUs, whatever fits, or, with
    pools apart, of groups at which it begins; 0: by the rule.
    judge: the model of judges beside the actor, '' for rewards that take no time; judges,
    judge_share: how many (0: one a replica) and of the SMs, see judge.py.

    RFabricError for settings out of bounds.
    """

    prompts: float = REDUNDANCY
    responses: float = REDUNDANCY
    planner: float = 1
    stream: float = 1
    alike: float = ALIKE
    free: float = 0
    judge: str = ""
    judges: float = 0
    judge_share: float = SHARE

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
        if not self.judge and (self.judges, self.judge_share) != (0, SHARE):
            raise RFabricError(
                "rollpacker judges and judge_share describe a judge beside the actor, and none "
                "is named; name its model too, such as judge=Qwen2.5-7B"
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
    """One step: its round, when all is judged (s), its training and what of it is `left` after
    that; `early`: the share of `streamable` done before.

    waves: groups on their way to judges or to training that does not wait; judges: GPUs of each;
    judged_by: the judge of each response that is trained on (int64[P0, R0]).
    """

    number: int
    w: Workload
    played: RoundOutcome
    judged: float
    trained: Trained
    left: Trained
    freed: Streamed | None = None
    early: float = 0.0
    waves: tuple[Wave, ...] = ()
    judges: tuple[list[int], ...] = ()
    judged_by: np.ndarray | None = None

    @property
    def kind(self) -> str:
        """Of its round: short, long or plain."""
        return self.played.launch.kind

    @property
    def training(self) -> float:
        """Seconds of training after rollout and reward."""
        return self.left.seconds(self.w.training.buckets)

    @property
    def seconds(self) -> float:
        """Of the whole step, communication between servers not counted."""
        return self.judged + self.training + sum(handover(self.w).values())


def run(
    w: Workload,
    seed: int = 0,
    settings: RollpackerSettings = RollpackerSettings(),
    steps: int | None = None,
    rewards: Rewards | Judge | None = None,
    pace: float = 1.0,
) -> list[Packed]:
    """The steps of a job, one after the other: each prompt is trained once, in the order in which
    rounds finish.

    rewards: left out, the judge of `settings`, if any. pace: how much slower than modelled the
    engine generates, where that was measured.
    """
    _check(w, pace)
    rewards = rewards or _judge_of(w, settings)
    return list(_steps(w, seed, settings, w.steps if steps is None else steps, rewards, pace))


def _judge_of(w: Workload, settings: RollpackerSettings) -> Judge | None:
    if not settings.judge:
        return None
    if settings.judges > len(w.replicas):
        raise RFabricError(
            f"rollpacker judges: {settings.judges:g} exceed the {len(w.replicas)} replicas that "
            "they stand beside; use fewer, or a narrower generation.tp"
        )
    return Judge(load_model(settings.judge), settings.judge_share, settings.judges)


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
    rewards: Rewards | Judge | None,
    pace: float,
) -> Iterator[Packed]:
    g, books, since = w.generation, Books(), []
    for number in range(steps):
        made = launch(books, g.batch, g.group_size, settings.prompts, settings.responses)
        actor = rewards.actor(w) if isinstance(rewards, Judge) else w
        played = play(actor, made, draw(w, seed, made, books, settings.alike), pace)
        done = _step(number, w, played, settings, rewards, seed)
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
    rewards: Rewards | Judge | None,
    seed: int,
) -> Packed:
    freed = streamed(played, settings.free or None) if settings.stream and w.colocated else None
    played = freed.played if freed else played
    judged = _judged(w, played, rewards, [seed, number])
    apart = bool(settings.stream) and not w.colocated
    waves = waves_of(judged.ends.max(axis=1), settings.free or FROM)
    lengths = (played.prompts[:, None] + played.outputs).astype(float)
    # where they stream, the first groups to come make the first mini-batch
    order = np.concatenate([wave.groups for wave in waves]) if apart else slice(None)
    trained = trained_on(w, lengths[order].ravel(), routing(w, seed, number))
    end = max(float(judged.ends.max()), played.seconds)
    packed = Packed(number, w, played, end, trained, trained, freed)
    if isinstance(rewards, Judge):
        stand = tuple(rewards.stand_on(w))
        packed = replace(packed, waves=tuple(waves), judges=stand, judged_by=judged.judge)
    if apart:
        waves, left = trained_ahead(w, trained, waves, lengths.sum(axis=1))
        early = 1 - seconds_of(left) / streamable(trained)
        return replace(packed, waves=tuple(waves), left=left, early=early)
    return _by_freed(packed, judged.ends, lengths, rewards) if freed else packed


def _by_freed(
    packed: Packed, ready: np.ndarray, lengths: np.ndarray, rewards: Rewards | Judge | None
) -> Packed:
    """The step with what the freed GPUs compute before all is judged; a judge keeps its SMs."""
    freed, trained = packed.freed, packed.trained
    share = len(freed.freed) / len(packed.played.times)
    if isinstance(rewards, Judge):
        share *= 1 - rewards.share
    rate = float(lengths.sum()) * share / streamable(trained)
    early = work_done(ready.max(axis=1), lengths.sum(axis=1), rate, freed.ready, packed.judged)
    first, *others = trained.mini_batches
    first = replace(first, first=first.first * (1 - early))
    left = replace(trained, log_prob=trained.log_prob * (1 - early), mini_batches=[first, *others])
    return replace(packed, left=left, early=early)


def _judged(
    w: Workload, played: RoundOutcome, rewards: Rewards | Judge | None, seed: list[int]
) -> Verdicts:
    """When each response that is trained on has its reward; a rule takes no time."""
    if rewards is None:
        return Verdicts(played.kept_ends)
    if isinstance(rewards, Judge):
        return verdicts(rewards, w, played.kept_ends, played.prompts[:, None] + played.outputs)
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
    return Verdicts(judged(ready, seconds, rewards.judges.workers))


def streamable(trained: Trained) -> float:
    """Seconds of training that need no other update: log-probabilities, and the first update up to
    its last micro-batch.
    """
    return seconds_of(trained)

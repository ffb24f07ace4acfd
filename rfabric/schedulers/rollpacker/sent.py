"""A step under RollPacker as rows of a trace: on the replicas of the recipe, and in waves where
rewards or training do not wait for the end of the rollout.

    generate r ---.-> judge: prompts, responses -> judge ---.-> experience r -> training: `part`
    generate r ---'                                         '-> ...             (phase streaming)
        |
    generate r -> ...        the next wave

Generation ends with the last wave; what is left of training begins then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from ...compute.serving import ReplicaTime
from ...rl import flows
from ...rl.exchanges import Repeated
from ...rl.lowering import trace_of_steps
from ...rl.phases import Generated, Step, Trained
from ...rl.plan import Phase, Plan, phase_seconds, plan_beside
from ...rl.traffic import UpdateTraffic, generation_traffic, training_traffic
from ...rl.workload import Workload
from ...trace import Flows, Span, Trace, point_to_point
from ..base import GENERATION, TRAINING
from .apart import Wave
from .rounds import generated_of
from .steps import Packed

STREAMING = "streaming"  # the phase of what training computes beside a rollout
MERGED_WAVES = (
    "groups go to judges and to training in waves: what a replica sends of one leaves when the "
    "last response of that wave has ended there, one flow a pair of GPUs"
)
JUDGE = "judge"  # prompts and responses on their way to judges


@dataclass(frozen=True, eq=False)
class WavePart:
    """What a replica sends of a wave: its last response ends at `ended` s; tokens of responses;
    `asked`: to judges.
    """

    replica: int
    ended: float
    tokens: int
    asked: Flows


@dataclass(frozen=True, eq=False)
class InWaves(Generated):
    """A step's responses, sent in waves; `sent[k]`: by the replicas that have some in `waves[k]`;
    `judge`: the first GPU of one, None where nobody judges.
    """

    waves: tuple[Wave, ...] = ()
    sent: tuple[tuple[WavePart, ...], ...] = ()
    judge: int | None = None

    @property
    def seconds(self) -> float:
        """When all is judged."""
        return self.waves[-1].at


def on_replicas_of(w: Workload, packed: Packed) -> Generated:
    """What the replicas of a step made, by the recipe's replicas: on the one that holds a replica's
    first GPU.
    """
    made, n, home = generated_of(packed.played), len(w.replicas), _homes(w, packed)
    starts = [replica[0] for replica in packed.w.replicas]
    owner = np.searchsorted(starts, [replica[0] for replica in w.replicas], side="right") - 1
    rows = [np.flatnonzero(home == r).tolist() for r in range(n)]
    empty = np.zeros(0, dtype=np.int64)
    prompts = [np.concatenate([empty, *(made.prompts[s] for s in part)]) for part in rows]
    outputs = [np.concatenate([empty, *(made.outputs[s] for s in part)]) for part in rows]
    times = [_longest([made.times[s] for s in part or [owner[r]]]) for r, part in enumerate(rows)]
    if not packed.waves:
        return Generated(prompts, outputs, times)
    sent = tuple(_sent(w, packed, home))
    judge = packed.judges[0][0] if packed.judges else None
    return InWaves(prompts, outputs, times, waves=packed.waves, sent=sent, judge=judge)


def _homes(w: Workload, packed: Packed) -> np.ndarray:
    """The recipe's replica of each replica of a step (int64)."""
    starts = [replica[0] for replica in w.replicas]
    return np.searchsorted(starts, [r[0] for r in packed.w.replicas], side="right") - 1


def _longest(times: list[ReplicaTime]) -> ReplicaTime:
    return max(times, key=lambda time: time.seconds)


def _sent(w: Workload, packed: Packed, home: np.ndarray) -> Iterator[tuple[WavePart, ...]]:
    played = packed.played
    maker = played.replica[played.kept]
    ended = np.zeros(len(w.replicas))  # of what a replica has sent so far
    for wave in packed.waves:
        parts = []
        for r in np.unique(home[maker[wave.groups]]).tolist():
            mine = wave.groups[home[maker[wave.groups]] == r]
            ended[r] = max(ended[r], float(played.kept_ends[mine].max()))
            tokens = int(played.outputs[mine].sum())
            parts.append(WavePart(r, float(ended[r]), tokens, _asked(w, packed, mine, maker[mine])))
        yield tuple(parts)


def _asked(w: Workload, packed: Packed, groups: np.ndarray, maker: np.ndarray) -> Flows:
    """Prompts and responses of groups to their judges, as text; none inside a server."""
    if packed.judged_by is None:
        return flows.NONE
    played, sizes = packed.played, dict[tuple[int, int], float]()
    size = (played.prompts[groups, None] + played.outputs[groups]) * w.environments.text_bytes
    for row, s in enumerate(maker.tolist()):
        source = packed.w.replicas[s][0]
        for judge, one in zip(packed.judged_by[groups[row]], size[row], strict=True):
            pair = source, packed.judges[judge][0]
            sizes[pair] = sizes.get(pair, 0.0) + float(one)
    return flows.join(
        point_to_point([pair], total, w.gpus_per_server) for pair, total in sizes.items()
    )


# --- plan -----------------------------------------------------------------------------------------


def plan_of(w: Workload, steps: Sequence[Step]) -> Plan:
    """The pipeline's phases, and what training computes beside the rollouts."""
    return plan_beside(w, steps, _lasts, _streaming)


def _lasts(w: Workload, step: Step, kind: str) -> tuple[float, float]:
    """Seconds of computing of a phase, and what its bytes add: to generation those of the last
    wave, and of training beside it.
    """
    made = step.generated
    if kind != GENERATION or not isinstance(made, InWaves):
        return phase_seconds(w, step, kind)
    there, now = 0.0, 0.0
    for wave, sent in zip(made.waves, made.sent, strict=True):
        asked = flows.wire_seconds(w, flows.join(s.asked for s in sent))
        experience = (flows.experience(w, s.replica, s.tokens) for s in sent)
        there = wave.at + asked + flows.wire_seconds(w, flows.join(experience))
        if wave.part:
            now = max(now, there) + wave.seconds + _exposed(w, step, wave.part)
    tensor = max(flows.wire_seconds(w, one) for one in generation_traffic(w, step).tensor)
    return made.seconds, max(there + tensor, now) - made.seconds


def _exposed(w: Workload, step: Step, part: Trained) -> float:
    sent = training_traffic(w, replace(step, trained=part))
    loops = [*sent.log_probs.loops, *(loop for update in sent.updates for loop in _loops(update))]
    return sum(loop.exposed(w) for loop in loops)


def _streaming(w: Workload, step: Step, start: float) -> Iterator[Phase]:
    """The phase in which training computes ahead, from its first wave to the end of its last."""
    busy = _busy(step)
    if busy:
        begins = busy[0].begins
        comm = sum(_exposed(w, step, wave.part) for wave in busy if wave.part)
        gpus = tuple(range(w.cluster.training_gpus))
        seconds = busy[-1].begins + busy[-1].seconds - begins
        yield Phase(STREAMING, step.number, gpus, start + begins, seconds, comm)


def _busy(step: Step) -> list[Wave]:
    """The waves in which training computes."""
    made = step.generated
    return [wave for wave in made.waves if wave.part] if isinstance(made, InWaves) else []


def streaming_spans(w: Workload, steps: Sequence[Step], plan: Plan) -> Iterator[Span]:
    """The training GPUs at work beside the rollouts."""
    gpus = tuple(range(w.cluster.training_gpus))
    starts = {p.step: p.start for p in plan.phases if p.kind == GENERATION}
    for step in steps:
        for wave in _busy(step):
            at = starts[step.number] + wave.begins
            yield Span(TRAINING, gpus, at, wave.seconds, STREAMING, step.number)


# --- trace ----------------------------------------------------------------------------------------


def trace_of(w: Workload, steps: Sequence[Step], plan: Plan, seed: int) -> Trace:
    """Steps in waves where they have some, else as any pipeline's."""
    if not any(isinstance(step.generated, InWaves) for step in steps):
        return trace_of_steps(w, steps, plan, seed)
    trace = trace_of_steps(w, steps, plan, seed, {GENERATION: _lowered})
    trace.provenance["merged"] = [*trace.provenance["merged"], MERGED_WAVES]
    return trace


def _lowered(out, step: Step, before: list[int]) -> int:
    """Replicas that generate, wave by wave what they send, and training beside them."""
    w, made = out.workload, cast(InWaves, step.generated)
    last = [list(before) for _ in w.decoding]  # by replica: what its next row waits for
    until, trained, rows = np.zeros(len(last)), list[int](), list[int]()
    for wave, sent in zip(made.waves, made.sent, strict=True):
        out.phase(step, GENERATION)
        for s in sent:
            r = s.replica
            row = out.compute(w.decoding[r][0], s.ended - until[r], "generate", last[r])
            last[r], until[r] = [row], s.ended
        come = _wave(out, made, wave, sent, last)
        rows += come
        if wave.part:
            trained = [_train_ahead(out, step, wave.part, [*come, *trained])]
    out.phase(step, GENERATION)
    for r, tensor in enumerate(generation_traffic(w, step).tensor):
        rest = max(0.0, made.times[r].seconds - until[r])
        done = [out.compute(w.decoding[r][0], rest, "generate", last[r])]
        rows += out.send(tensor, "tensor", done) or done
    return out.barrier(0, rows + trained)


def _wave(
    out, made: InWaves, wave: Wave, sent: Sequence[WavePart], last: Sequence[list[int]]
) -> list[int]:
    """What a wave sends, to judges where there are any, then to training: the rows to wait for."""
    judged: list[int] = []
    if made.judge is not None:
        asked = [row for s in sent for row in out.send(s.asked, JUDGE, last[s.replica])]
        ends = [row for s in sent for row in last[s.replica]]
        seconds = wave.at - max(s.ended for s in sent)
        judged = [out.compute(made.judge, seconds, JUDGE, [*ends, *asked])]
    rows: list[int] = []
    for s in sent:
        done = judged or last[s.replica]
        there = out.send(flows.experience(out.workload, s.replica, s.tokens), "experience", done)
        rows += there or done
    return list(dict.fromkeys(rows))


def _train_ahead(out, step: Step, part: Trained, before: list[int]) -> int:
    """Log-probabilities and gradients of whole micro-batches, and what their layers exchange."""
    out.phase(step, STREAMING)
    sent, done = training_traffic(out.workload, replace(step, trained=part)), out.barrier(0, before)
    if part.log_prob_micro_batches:
        ahead = sent.log_probs
        done = _beside(out, ahead.loops, part.log_prob, ahead.pipeline, done)
    for batch, update in zip(part.mini_batches, sent.updates, strict=True):
        done = _beside(out, _loops(update), batch.first, update.pipeline, done)
    return done


def _loops(update: UpdateTraffic) -> list[Repeated]:
    """The loops of micro-batches none of which is the last: one of exchanges, as no gradients leave
    between, and one of sharded layers.
    """
    parts = update.loops
    whole = [
        Repeated(loop.turns, sum(p.repeat for p in parts), sum(p.seconds for p in parts))
        for loop in parts[:1]
    ]
    return [*whole, *([update.sharded] if update.sharded else [])]


def _beside(
    out, loops: Sequence[Repeated], seconds: np.ndarray, pipeline: Flows, before: int
) -> int:
    """Computing of each data-parallel rank beside all that is sent."""
    w = out.workload
    rows = [out.repeat(loop, [before]) for loop in loops]
    rows += [
        out.compute(w.rank(0, d), s, "forward-backward", [before]) for d, s in enumerate(seconds)
    ]
    return out.barrier(0, rows + out.send(pipeline, "pipeline", [before]))

"""From a Workload to its Trace: computing as gaps, communication as flows, order as `after`.

    generation   replica computes -> [tensor] -> experience ---.
    training     log-prob (rank by rank) ---------------------' -> for each update:
                 forward, backward -> backward piece 1 -> piece 2 -> ...  -> optimizer -> all-gather
                                          `-> bucket 1 ---> bucket 2 --> ... --'
                 where layers exchange something between servers, forward, backward and pieces are
                 loops: `exchanges`
    weight sync  the levels of the strategy, ahead of the software where they leave early;
                 colocated: weights change hands inside servers, then what comes from others

Which phase waits for which is the pipeline's: `plan.waits`. Rows without bytes stand for
computing (gap = its seconds) and for barriers (gap 0), so that edges grow as rows do.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from .. import __version__
from ..compute.models import Model
from ..errors import RunError
from ..trace import Flows, PhaseKey, Trace, TraceBuilder
from . import flows, tied_embedding
from .environments import REWARD, servers_paid
from .exchanges import Repeated
from .phases import MiniBatch, Step, Trained, handover, ready_at, step_of
from .plan import Plan, late, phase_order, plan_of_steps, refuse_parts, waits, within_of
from .totals import check_bytes
from .traffic import (
    GenerationTraffic,
    LogProbTraffic,
    UpdateTraffic,
    generation_traffic,
    training_traffic,
    weight_levels,
)
from .weight_sync import Level
from .workload import Workload

MERGED = (
    "a ring's identical steps are one flow an edge",
    "the gradient buckets of an update are merged into training.buckets",
    (
        "gradients of all micro-batches but the last are summed locally and never sent, unless "
        "they or parameters are sharded"
    ),
    (
        "pipeline activations of an update are one flow a pair of ranks and direction, beside its "
        "computing"
    ),
    "tensor-parallel all-reduces that leave a server: in generation those of all layers and "
    "tokens of a replica are one ring after its computing, without their latencies; in "
    "training a loop over layers, passes and micro-batches, computing dealt evenly between; "
    "all stages keep step",
)
MERGED_SHARDED = (
    (
        "sharded parameters and gradients, summed over copies: a loop over layers and "
        "micro-batches, beside computing dealt evenly, as is what is gathered outside of layers: "
        "once a micro-batch of an update, also where an embedding is a unit of its own"
    ),
    "a weight sync gathers sharded parameters in one all-gather before it sends them; in p2p a "
    "part of the weights that several data-parallel ranks hold in shards is one flow, from "
    "each of them in turn",
)
MERGED_CONTEXT = (
    "context-parallel groups that leave a server: a loop over layers, passes and micro-batches; a "
    "turn stands for all steps of a ring, beside its attention, and for both all-to-alls of a "
    "layer, and the tensor-parallel all-reduces of a layer are one; state-space layers exchange "
    "nothing there",
)
MERGED_EXPERTS = (
    "tokens to and from experts: a loop over layers, passes and micro-batches, computing of "
    "the slowest rank dealt evenly over it; all groups and stages keep step; a token goes once "
    "to each of its experts",
)
MERGED_SERVED_EXPERTS = (
    "tokens to and from experts while generating: a loop over layers, a turn of which stands for "
    "all passes of a replica through one; experts are chosen evenly",
)
MERGED_FFN = (
    "tokens to an FFN apart and back: a loop over layers and the halves of a batch, beside "
    "computing, a turn of which stands for all passes of a replica; both ways go at once, and "
    "experts are chosen evenly",
)
MERGED_READ_ELSEWHERE = (
    "prompts that other replicas read: one after the other, and all those of a replica that "
    "decodes are there before it begins; their KV cache is one flow a pair of GPUs",
)
MERGED_ENVIRONMENTS = (
    "environments on CPU servers: a loop over turns beside a replica's computing, a turn of which "
    "stands for that of all its responses; its calls for rewards leave when it is done",
)
EVEN = (
    (
        "experts are chosen evenly: the dispatch and combine of all layers are alike, a turn "
        "of one loop"
    ),
)
SKEWED = (
    (
        "experts are chosen by Zipf's law: training.skew_layers layers of a stage take turns "
        "at standing for all"
    ),
)


def trace_of(workload: Workload, seed: int = 0) -> Trace:
    """What the job sends and when: the same workload and seed give the same bytes."""
    steps = [step_of(workload, seed, n) for n in range(workload.steps)]
    return trace_of_steps(workload, steps, plan_of_steps(workload, steps), seed)


PhaseLowering = Callable[["_StepBuilder", Step, list[int]], int]
NOTICE = 1.0  # s before weights leave early that circuits are asked for them: assumed
SAME = 1e-9  # of seconds worked out twice: sums in another order


def trace_of_steps(
    w: Workload,
    steps: Sequence[Step],
    plan: Plan,
    seed: int = 0,
    parts: Mapping[str, PhaseLowering] | None = None,
    holds: Mapping[int, float] | None = None,
) -> Trace:
    """The trace of steps that are already drawn, with the windows of `plan`.

    parts: how a scheduler lowers a kind of phase its own way: (rows so far, step, rows to wait for)
    -> the last row. holds: by step, how long the generation after it runs when its weights leave
    (s), NOTICE after training at the earliest; loading waits for all that a weight sync waits for.
    RunError where trace and plan differ in seconds of computing, or trace and
    formula in bytes (of kinds without such a way).
    """
    if "generation" in (parts or {}):
        refuse_parts(w)
    out = _StepBuilder(w, holds or {})
    done: dict[PhaseKey, int] = {}
    lower = {"generation": _generation, "training": _training, "weight_sync": _weight_sync} | dict(
        parts or {}
    )
    for key in phase_order(w):
        before = [done[other] for other in waits(w, key)]
        if key.phase == "generation":
            out.hold(key.step, before)
            part, sync = late(w, key.step)
            out.late = (part, done[sync]) if sync else None
        done[key] = lower[key.phase](out, steps[key.step], before)
    trace = out.builder.build(plan.windows, _provenance(w, plan, seed))
    _check_seconds(trace, plan, done)
    check_bytes(trace, w, steps, [kind for kind in lower if kind not in (parts or {})])
    return trace


def _check_seconds(trace: Trace, plan: Plan, done: Mapping[PhaseKey, int]) -> None:
    """RunError where the plan has a phase end at another second than the trace does on a network
    that takes no time.
    """
    _, finish = trace.compute_only()
    for phase in plan.phases:
        # none: a scheduler's own phase, beside those of the pipeline
        row = done.get(PhaseKey(phase.step, phase.kind))
        planned = phase.start + phase.seconds
        if row is not None and not math.isclose(finish[row], planned, rel_tol=SAME, abs_tol=SAME):
            raise RunError(
                f"{phase.kind}/{phase.step}: without communication the trace ends it at "
                f"{finish[row]:.9g} s, the plan at {planned:.9g} s"
            )


class _StepBuilder:
    """A TraceBuilder that knows the workload, when weights leave early, and the phase it is in."""

    def __init__(self, workload: Workload, holds: Mapping[int, float]):
        self.workload, self.holds = workload, holds
        self.held: dict[int, int] = {}  # by step, the row that its weights wait for, if any
        self.late: tuple[float, int] | None = None  # part of a generation that waits for a row more
        self.builder = TraceBuilder([f"h{i + 1}" for i in range(workload.hosts)])
        self.kind: dict = {}

    def phase(self, step: Step, name: str) -> None:
        self.kind = {"step": step.number, "phase": name}

    def hold(self, beside: int, before: list[int]) -> None:
        """Time passes beside generation `beside`, from its begin until circuits are asked for the
        weights of the step before it.
        """
        if (seconds := self.holds.get(beside - 1)) is not None:
            self.kind = {"step": beside, "phase": "generation"}
            self.held[beside - 1] = self.wait(max(seconds - NOTICE, 0.0), before)

    def notice(self, beside: int, trained: int) -> int:
        """The row after which weights leave early: time for circuits to follow."""
        self.kind = {"step": beside, "phase": "generation"}
        return self.wait(NOTICE, [self.held[beside - 1], trained])

    def wait(self, seconds: float, after: list[int]) -> int:
        return self.compute(self.workload.replicas[0][0], seconds, "hold", after)

    def compute(self, gpu: int, seconds: float, label: str, after: list[int]) -> int:
        return self.builder.compute(gpu, float(seconds), after=after, label=label, **self.kind)

    def barrier(self, gpu: int, after: list[int]) -> int:
        return self.compute(gpu, 0.0, "barrier", after)

    def repeat(self, what: Repeated, after: list[int], gpu=0, label="backward") -> int:
        """A loop, or its computing where nothing is sent: the row to wait for, which stands for all
        of the loop.
        """
        if not what.repeat:
            return self.compute(gpu, what.seconds, label, after)
        between = [what.before(turn) for turn in what.turns]
        beside = [what.beside(turn) for turn in what.turns]
        sent, labels = [turn.flows for turn in what.turns], [turn.label for turn in what.turns]
        return self.builder.loop(
            sent, what.repeat, between, beside, after=after, label=labels, **self.kind
        )[0]

    def in_parts(self, what: Repeated, after: list[int], gpu: int) -> int:
        """What `gpu` generates, its late part when the weights are there that this waits for."""
        if not self.late:
            return self.repeat(what, after, gpu, "generate")
        part, weights = self.late
        first, rest = what.split(part)
        begun = self.repeat(first, after, gpu, "generate")
        return self.repeat(rest, [begun, weights], gpu, "generate")

    def send(self, what: Flows, label: str, after: list[int]) -> list[int]:
        return self.builder.flows(*what, after=after, label=label, **self.kind)


def _generation(out: _StepBuilder, step: Step, before: list[int]) -> int:
    out.phase(step, "generation")
    w, ends, sent = out.workload, [], generation_traffic(out.workload, step)
    read = _prompts_read(out, step, sent, before) if w.prefilling else [before] * len(w.decoding)
    ready = ready_at(w, step.generated.reading) or [0.0] * len(w.decoding)
    for r, replica in enumerate(w.decoding):
        seconds = step.generated.times[r].seconds - ready[r]
        exchanged = sent.experts[r] or Repeated((), 0, seconds)
        done = [out.in_parts(exchanged, read[r], replica[0])]
        if turns := sent.environments[r]:
            done.append(out.repeat(turns, read[r]))
        done = out.send(sent.rewards[r], REWARD, done) or done
        done = out.send(sent.tensor[r], "tensor", done) or done
        ends += out.send(sent.experience[r], "experience", done) or done
    return out.barrier(0, ends)  # of every replica, whether or not its responses leave the server


def _prompts_read(
    out: _StepBuilder, step: Step, sent: GenerationTraffic, before: list[int]
) -> list[list[int]]:
    """The rows after which each replica that decodes has the KV cache of its prompts."""
    w, read = out.workload, []
    last: dict[int, list[int]] = {}
    for r, seconds in enumerate(step.generated.reading):
        reader = w.prefilling[r % len(w.prefilling)][0]
        last[reader] = [out.compute(reader, seconds, "prefill", last.get(reader, before))]
        read.append(out.send(sent.kv[r], "KV", last[reader]) or last[reader])
    return read


def _training(out: _StepBuilder, step: Step, before: list[int]) -> int:
    out.phase(step, "training")
    sent, trained = training_traffic(out.workload, step), step.trained
    done = _log_probs(out, trained, sent.log_probs, before)
    for batch, update in zip(trained.mini_batches, sent.updates, strict=True):
        done = _update(out, batch, update, trained.optimizer, done)
    return done


def _log_probs(out: _StepBuilder, trained: Trained, sent: LogProbTraffic, before: list[int]) -> int:
    rows = [out.repeat(loop, before) for loop in sent.loops]
    rows += [] if sent.loop else _ranks(out, trained.log_prob, "log-prob", before)
    return out.barrier(0, rows + out.send(sent.pipeline, "pipeline", before))


def _update(
    out: _StepBuilder, batch: MiniBatch, sent: UpdateTraffic, optimizer: float, before: int
) -> int:
    """Forward and backward, gradients beside the last pieces and after; optimizer; parameters."""
    w = out.workload
    beside = [out.repeat(sent.sharded, [before])] if sent.sharded else []
    if sent.loops:  # these compute what comes before the last backward pass as well
        beside += out.send(sent.pipeline, "pipeline", [before])
        done = before
    else:
        rows = _ranks(out, batch.first, "forward-backward", [before])
        done = out.barrier(0, rows + out.send(sent.pipeline, "pipeline", [before]))
    summed: list[int] = []
    for loop in sent.loops or [None] * w.training.buckets:
        done = out.repeat(loop, [done]) if loop else out.compute(0, batch.piece, "backward", [done])
        bucket = out.send(flows.gradients(w), w.training.gradient_collective, [done, *summed])
        summed = [out.barrier(0, bucket)] if bucket else []
    summed = out.send(sent.embedding, tied_embedding.LABEL, [done, *summed]) or summed
    done = out.compute(0, optimizer, "optimizer", [done, *summed, *beside])
    gathered = out.send(flows.parameters(w), "all-gather", [done])
    return out.barrier(0, gathered) if gathered else done


def _ranks(out: _StepBuilder, seconds, label: str, after: list[int]) -> list[int]:
    """One compute row a data-parallel rank, on its first GPU."""
    return [out.compute(out.workload.rank(0, d), s, label, after) for d, s in enumerate(seconds)]


def _weight_sync(out: _StepBuilder, step: Step, before: list[int]) -> int:
    early, first = step.number in out.held, out.workload.replicas[0][0]
    # of what it waits for, training is first
    leave = [out.notice(step.number + 1, before[0])] if early else []
    out.phase(step, "weight_sync")
    if early:
        return out.barrier(first, _software(out, [*_weights(out, leave), *before]))
    before = _software(out, before)
    return out.barrier(first, _weights(out, before) or before)


def _software(out: _StepBuilder, before: list[int]) -> list[int]:
    for what, seconds in handover(out.workload).items():
        before = [out.compute(out.workload.replicas[0][0], seconds, what, before)]
    return before


def _weights(out: _StepBuilder, before: list[int]) -> list[int]:
    rows: list[int] = []
    every: list[int] = []  # what no later level passes on must arrive as well
    for level in weight_levels(out.workload):
        rows = _level(out, level, rows or before) or rows
        every += rows
    return every


def _level(out: _StepBuilder, level: Level, before: list[int]) -> list[int]:
    """A row for each flow of a level, so that the next can wait for it; inside a server, over
    NVLink, a row without bytes.
    """
    if level.waits is None:
        ready = before if len(before) == 1 else [out.barrier(out.workload.replicas[0][0], before)]
        waits = [ready] * len(level.flows.src)
    else:
        waits = [[before[wait]] for wait in level.waits]
    stays = (~flows.leave(out.workload, level.flows)).tolist()
    if level.waits is None and not any(stays):
        return out.send(level.flows, level.label, waits[0] if waits else before)
    rows = []
    for stay, src, dst, size, wait in zip(stays, *level.flows, waits, strict=True):
        rows += (
            [out.barrier(dst, wait)]
            if stay
            else out.send(Flows([src], [dst], [size]), level.label, wait)
        )
    return rows


def _provenance(w: Workload, plan: Plan, seed: int) -> dict:
    g = w.generation
    return {
        "made_by": f"rfabric {__version__}",
        "recipe": w.name,
        "settings": w.recipe,
        "seed": seed,
        "model": _model(w.model),
        "gpu": dataclasses.asdict(w.gpu),
        "generation_gpu": dataclasses.asdict(w.generation_gpu),
        "gpus": w.gpus,
        "gpus_usd_per_hour": w.usd_per_hour,
        "gpus_watts": w.gpu_watts,
        **servers_paid(w),
        "efficiency": dataclasses.asdict(w.efficiency),
        "lengths": {
            kind: {"name": lengths.name, "source": lengths.source}
            for kind, lengths in (("responses", g.lengths), ("prompts", g.prompt_lengths))
        },
        "merged": _merged(w),
        "within": within_of(w, plan),
    }


def _merged(w: Workload) -> list[str]:
    """What the trace says of this job in fewer rows than the job sends."""
    merged = [*MERGED, *(MERGED_SHARDED if w.training.optimizer == "sharded" else ())]
    if w.training.cp > 1 and w.gpus_per_server % (w.training.tp * w.training.cp):
        merged += MERGED_CONTEXT
    if w.prefilling:
        merged += MERGED_READ_ELSEWHERE
    if w.generation.deals_experts:
        merged += MERGED_SERVED_EXPERTS
    if w.generation.ffn_gpus:
        merged += MERGED_FFN
    if w.environments.servers:
        merged += MERGED_ENVIRONMENTS
    if w.model.experts:
        merged += [*MERGED_EXPERTS, *(SKEWED if w.training.skew else EVEN)]
    return merged


def _model(model: Model) -> dict:
    facts = dataclasses.asdict(model) | {"parameters": model.parameters}
    experts = facts.pop("experts")
    more = {"experts": experts, "active_parameters": model.active_parameters} if experts else {}
    return facts | more

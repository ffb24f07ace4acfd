"""From a Workload to its Trace: computing as gaps, communication as flows, order as `after`.

    generation    replica computes -> [tensor] -> experience ---.
    training      log-prob (rank by rank) ---------------------' -> for each update:
                  forward and backward -> backward piece 1 -> piece 2 -> ...  -> optimizer -> all-gather
                                              `-> bucket 1 ---> bucket 2 --> ... --'
    weight sync   the levels of the strategy; colocated: weights change hands inside servers, then what comes from others

Which phase waits for which is the pipeline's: `plan.waits`.
Rows without bytes stand for computing (gap = its seconds) and for barriers (gap 0), so that edges grow as rows do.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from .. import __version__
from ..trace import Flows, PhaseKey, Trace, TraceBuilder
from . import flows
from .models import Model
from .phases import MiniBatch, Step, handover, step_of
from .plan import Plan, phase_order, plan_of_steps, training_passes, waits, weight_levels
from .weight_sync import Level
from .workload import Workload

MERGED = (
    "a ring's identical steps are one flow an edge",
    "the gradient buckets of an update are merged into training.buckets",
    "gradients of all micro-batches but the last are summed locally and never sent",
    "pipeline activations of an update are one flow a pair of ranks and direction, beside its computing",
    "tensor-parallel all-reduces that leave a server are one ring a group and update (or replica), after its computing",
)
MERGED_EXPERTS = (
    "tokens to and from experts: the dispatch and combine of all layers and micro-batches of an update, forward and "
    "backward, are one flow a pair of GPUs, after its computing; routing is even, and a token goes once to each expert",
)


def trace_of(workload: Workload, seed: int = 0) -> Trace:
    """What the job sends and when: the same workload and seed give the same bytes."""
    steps = [step_of(workload, seed, n) for n in range(workload.steps)]
    return trace_of_steps(workload, steps, plan_of_steps(workload, steps), seed)


Part = Callable[["_Rows", Step, list[int]], int]


def trace_of_steps(
    w: Workload, steps: Sequence[Step], plan: Plan, seed: int = 0, parts: Mapping[str, Part] | None = None
) -> Trace:
    """The trace of steps that are already drawn, with the windows of `plan`.

    parts: how a scheduler lowers a kind of phase its own way: (rows so far, step, rows to wait for) -> the last row.
    """
    out = _Rows(w)
    done: dict[PhaseKey, int] = {}
    lower = {"generation": _generation, "training": _training, "weight_sync": _weight_sync} | dict(parts or {})
    for key in phase_order(w):
        before = [done[other] for other in waits(w, key)]
        done[key] = lower[key.phase](out, steps[key.step], before)
    return out.builder.build(plan.windows, _provenance(w, seed))


class _Rows:
    """A TraceBuilder that knows the workload and the phase it is in."""

    def __init__(self, workload: Workload):
        self.workload = workload
        self.builder = TraceBuilder([f"h{i + 1}" for i in range(workload.gpus)])
        self.kind: dict = {}

    def phase(self, step: Step, name: str) -> None:
        self.kind = {"step": step.number, "phase": name}

    def compute(self, gpu: int, seconds: float, label: str, after: list[int]) -> int:
        return self.builder.compute(gpu, float(seconds), after=after, label=label, **self.kind)

    def barrier(self, gpu: int, after: list[int]) -> int:
        return self.compute(gpu, 0.0, "barrier", after)

    def send(self, what: Flows, label: str, after: list[int]) -> list[int]:
        return self.builder.flows(*what, after=after, label=label, **self.kind)


def _generation(out: _Rows, step: Step, before: list[int]) -> int:
    out.phase(step, "generation")
    w, made, ends = out.workload, step.generated, []
    for r, replica in enumerate(w.replicas):
        done = [out.compute(replica[0], made.times[r].seconds, "generate", before)]
        tensor = flows.tensor_generation(w, r, made.computed_tokens(r, w.generation.group_size))
        done = out.send(tensor, "tensor", done) or done
        ends += out.send(flows.experience(w, r, made.response_tokens(r)), "experience", done) or done
    return out.barrier(0, ends)  # of every replica, whether or not its responses leave the server


def _training(out: _Rows, step: Step, before: list[int]) -> int:
    out.phase(step, "training")
    done = _log_probs(out, step, before)
    for batch in step.trained.mini_batches:
        done = _update(out, batch, step.trained.optimizer, done)
    return done


def _log_probs(out: _Rows, step: Step, before: list[int]) -> int:
    w, trained = out.workload, step.trained
    passes = w.training.log_prob_passes
    rows = _ranks(out, trained.log_prob, "log-prob", before)
    rows += out.send(flows.pipeline(w, trained.log_prob_tokens, passes, 0), "pipeline", before)
    return _exposed(out, trained.log_prob_tokens, passes, rows)


def _update(out: _Rows, batch: MiniBatch, optimizer: float, before: int) -> int:
    """Forward and backward; buckets of gradients beside the last backward pieces; optimizer; parameters."""
    w = out.workload
    rows = _ranks(out, batch.first, "forward-backward", [before])
    rows += out.send(flows.pipeline(w, batch.tokens, 1, 1), "pipeline", [before])
    done, sent = _exposed(out, batch.tokens, training_passes(w), rows), []
    for _ in range(w.training.buckets):
        done = out.compute(0, batch.piece, "backward", [done])
        bucket = out.send(flows.gradients(w), flows.gradient_collective(w), [done, *sent])
        sent = [out.barrier(0, bucket)] if bucket else []
    done = out.compute(0, optimizer, "optimizer", [done, *sent])
    gathered = out.send(flows.parameters(w), "all-gather", [done])
    return out.barrier(0, gathered) if gathered else done


def _exposed(out: _Rows, tokens, passes: int, after: list[int]) -> int:
    """The barrier after `after`, and after what tensor and expert parallelism send then, where they leave a server."""
    done = out.barrier(0, after)
    for label, made in (("tensor", flows.tensor_training), ("all-to-all", flows.experts_training)):
        rows = out.send(made(out.workload, tokens, passes), label, [done])
        done = out.barrier(0, rows) if rows else done
    return done


def _ranks(out: _Rows, seconds, label: str, after: list[int]) -> list[int]:
    """One compute row a data-parallel rank, on its first GPU."""
    return [out.compute(out.workload.rank(0, d), s, label, after) for d, s in enumerate(seconds)]


def _weight_sync(out: _Rows, step: Step, before: list[int]) -> int:
    out.phase(step, "weight_sync")
    for what, seconds in handover(out.workload).items():
        before = [out.compute(out.workload.replicas[0][0], seconds, what, before)]
    rows: list[int] = []
    every: list[int] = []  # what no later level passes on must arrive as well
    for level in weight_levels(out.workload):
        rows = _level(out, level, rows or before) or rows
        every += rows
    return out.barrier(out.workload.replicas[0][0], every or before)


def _level(out: _Rows, level: Level, before: list[int]) -> list[int]:
    """A row for each flow of a level, so that the next can wait for it; inside a server, over NVLink, a row without bytes."""
    if level.waits is None:
        ready = before if len(before) == 1 else [out.barrier(out.workload.replicas[0][0], before)]
        waits = [ready] * len(level.flows.src)
    else:
        waits = [[before[wait]] for wait in level.waits]
    stays = [not flows.leaves(out.workload, a, b) for a, b in zip(level.flows.src, level.flows.dst, strict=True)]
    if level.waits is None and not any(stays):
        return out.send(level.flows, level.label, waits[0] if waits else before)
    rows = []
    for stay, src, dst, size, wait in zip(stays, *level.flows, waits, strict=True):
        rows += [out.barrier(dst, wait)] if stay else out.send(Flows([src], [dst], [size]), level.label, wait)
    return rows


def _provenance(w: Workload, seed: int) -> dict:
    g = w.generation
    return {
        "made_by": f"rfabric {__version__}",
        "recipe": w.name,
        "settings": w.recipe,
        "seed": seed,
        "model": _model(w.model),
        "gpu": dataclasses.asdict(w.gpu),
        "generation_gpu": dataclasses.asdict(w.generation_gpu),
        "efficiency": dataclasses.asdict(w.efficiency),
        "lengths": {
            kind: {"name": lengths.name, "source": lengths.source}
            for kind, lengths in (("responses", g.lengths), ("prompts", g.prompt_lengths))
        },
        "merged": [*MERGED, *(MERGED_EXPERTS if w.model.experts else ())],
    }


def _model(model: Model) -> dict:
    found = dataclasses.asdict(model)
    experts = found.pop("experts")
    found["parameters"] = model.parameters
    return found | {"experts": experts, "active_parameters": model.active_parameters} if experts else found

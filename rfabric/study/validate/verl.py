"""Asynchronous RL against colocated: `rl_measured/verl_*.csv`, seconds a step and its parts, of
verl's fully_async_policy README.

    model, gpu, max_response, mode, gpus, rollout_gpus, train_gpus, step_s, gen_s, old_log_prob_s,
    update_actor_s, ...

The table leaves the lengths open, and they differ, as each row is the mean of a run in which
responses grew. A row's mean is taken from its own update seconds (a lognormal, cut at
max_response), which are no points therefore; everything else is modelled with it: seconds a step of
every row, generation and log-probabilities of colocated rows, and the gain of each other row over
the colocated one on as many GPUs.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...compute.gpus import Gpu, find_gpu
from ...compute.models import Model
from ...compute.named import find_model
from ...errors import RFabricError
from ...rl import Lengths, Workload
from ...rl.phases import responses, step_of, trained_on
from ...rl.plan import plan_of_steps, step_period
from ...rl.sections import Cluster, Generation, Training
from . import Point, PointGroup
from .nemo_rl import lognormal
from .tables import attempt, named, number, same_side, whole
from .tables import rows as read_rows

# verl verl/experimental/fully_async_policy/README.md and its scripts shell/dapo_7b_math_fsdp2_*.sh:
# batch 512 x 16, updates of 32 prompts, prompts of 2048 at most, gen_tp 4, sp_size 4, DAPO without
# reference policy.
PROMPTS, GROUP, UPDATE_PROMPTS, MAX_PROMPT, TP, SEQUENCE_RANKS = 512, 16, 32, 2048, 4, 4
_USUAL = "verl_fully_async_7b"  # the name of a file whose groups need not name it
# a problem of DAPO-Math-17k with its instructions: small beside thousands of response tokens
PROMPT_TOKENS = 150
PARTS = {"gen_s": "generation", "old_log_prob_s": "log-probabilities"}  # what columns time


@dataclass(frozen=True)
class _MeasuredLine:
    """One line: what it measured, and the mean of its lengths."""

    name: str
    values: dict
    model: Model
    gpu: Gpu

    @property
    def colocated(self) -> bool:
        return "colocate" in self.values["mode"]

    @property
    def kind(self) -> tuple[str, str, str]:
        return self.model.name, self.gpu.name, self.values["max_response"]

    def seconds(self, column: str) -> float | None:
        return number(self.values, column) if self.values.get(column) else None


@dataclass(frozen=True)
class _Modelled:
    row: _MeasuredLine
    period: float
    generation: float
    log_prob: float


def check(path: Path, data: Path) -> Iterable[PointGroup]:
    """Seconds a step, those of the parts of colocated steps, and the gain over colocated on as many
    GPUs.
    """
    file = str(path.relative_to(data))
    rows, left = _rows(path, data)
    made, refused = attempt(
        (row.name, lambda row=row: _modelled(row, _mean_length(row))) for row in rows
    )
    done, left = made, left + refused
    left += [f"{m.row.name}: no step_s" for m in done if not m.row.seconds("step_s")]
    steps = [
        Point(m.row.name, m.row.seconds("step_s"), m.period, "s")
        for m in done
        if m.row.seconds("step_s")
    ]
    gains = [_gain(m, on) for m in done if not m.row.colocated for on in done if _beside(m, on)]
    right = same_side(gains) if gains else 1.0
    yield PointGroup(
        named("verl step", path, _USUAL),
        file,
        tuple(steps),
        tuple(left),
        "lengths from each row's update seconds",
    )
    yield PointGroup(named("verl colocated phases", path, _USUAL), file, tuple(_parts(done)))
    yield PointGroup(
        named("verl asynchronous gain", path, _USUAL),
        file,
        tuple(gains),
        extra=(("sign_right", right),),
    )


def _rows(path: Path, data: Path) -> tuple[list[_MeasuredLine], list[str]]:
    rows, left = [], []
    for line, values in enumerate(read_rows(path, "model", "gpu", "mode", "gpus", "step_s"), 2):
        name = f"line {line}, " + " ".join(
            values.get(key) or "" for key in ("model", "gpu", "gpus", "mode")
        )
        model, gpu = find_model(values["model"], [data / "models"]), find_gpu(values["gpu"])
        if model is None or gpu is None:
            left.append(f"{name}: no {'model' if model is None else 'GPU'} is known by that name")
        else:
            rows.append(_MeasuredLine(name, values, model, gpu))
    return rows, left


def _beside(m: _Modelled, on: _Modelled) -> bool:
    same = on.row.kind == m.row.kind and on.row.values["gpus"] == m.row.values["gpus"]
    return same and on.row.colocated and bool(on.row.seconds("step_s") and m.row.seconds("step_s"))


def _gain(m: _Modelled, on: _Modelled) -> Point:
    measured = on.row.seconds("step_s") / m.row.seconds("step_s")
    return Point(m.row.name, measured, on.period / m.period, "x")


def _parts(done: Sequence[_Modelled]) -> Iterable[Point]:
    for m in done:
        for column, modelled in (("gen_s", m.generation), ("old_log_prob_s", m.log_prob)):
            measured = m.row.seconds(column) if m.row.colocated else None
            if measured:
                part = f"{PARTS[column]} on {m.row.gpu.name}"
                yield Point(f"{m.row.name} {column}", measured, modelled, "s", part)


def _mean_length(row: _MeasuredLine) -> float:
    """The mean response with which the updates of a row take as long as measured."""
    measured = row.seconds("update_actor_s")
    if not measured:
        raise RFabricError("no update_actor_s tells how long its responses are")
    low, high = 10.0, 0.98 * whole(row.values, "max_response")
    for _ in range(12):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if _update_seconds(row, middle) > measured else (middle, high)
    return (low * high) ** 0.5


def _update_seconds(row: _MeasuredLine, mean: float) -> float:
    w = _workload(row, mean)
    prompts, outputs = responses(w, 0, 0)
    trained = trained_on(w, (prompts + outputs).astype(float))
    return trained.seconds(w.training.buckets) - float(trained.log_prob.max())


def _modelled(row: _MeasuredLine, mean: float) -> _Modelled:
    w = _workload(row, mean)
    step = step_of(w, 0, 0)
    windows = {phase.kind: phase.window for phase in plan_of_steps(w, [step]).phases}
    period = step_period(w, windows["generation"], windows["training"], windows["weight_sync"])
    return _Modelled(row, period, windows["generation"], float(step.trained.log_prob.max()))


def _workload(row: _MeasuredLine, mean: float) -> Workload:
    """The job of a row.

    FSDP cuts all weights over all GPUs: where they would not fit, experts are dealt to more, and no
    more
    than a server's GPUs, which is the nearest to it that needs no other fabric."""
    first: RFabricError | None = None
    for ep in (1, 2, 4, 8) if row.model.experts else (1,):
        try:
            return _job(row, mean, ep)
        except RFabricError as error:
            first = first or error
    raise first


def _job(row: _MeasuredLine, mean: float, ep: int) -> Workload:
    limit = whole(row.values, "max_response")
    longest = MAX_PROMPT + limit
    train, generate = whole(row.values, "train_gpus"), whole(row.values, "rollout_gpus")
    streams = bool(re.search("async", row.values["mode"]))
    return Workload(
        name=row.name,
        model=replace(row.model, context=max(row.model.context, longest)),
        cluster=Cluster(gpu=row.gpu.name, training_gpus=train, generation_gpus=generate),
        generation=Generation(
            tp=TP,
            batch=PROMPTS,
            group_size=GROUP,
            max_prompt=MAX_PROMPT,
            max_response=limit,
            lengths=lognormal(mean, limit),
            prompt_lengths=Lengths.of_samples("problem", [PROMPT_TOKENS]),
            memory_utilisation=0.8,
        ),
        training=Training(
            tp=1,
            cp=SEQUENCE_RANKS,
            ep=ep,
            micro_batch_tokens=-(-longest // SEQUENCE_RANKS),
            mini_batches=PROMPTS // UPDATE_PROMPTS,
            log_prob_passes=1 if row.colocated else 0,
            recompute="full",
        ),
        placement="colocated" if row.colocated else "disaggregated",
        pipeline="async" if streams else "sync",
    )

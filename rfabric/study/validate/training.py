"""Training throughput: tokens a second and GPU, model against `measured/training_*.csv`, in either
of two column sets.

    model, seq, gpus, micro_batch, grad_accum, tok_s_gpu, act_ckpt, params, ...
        llm-foundry's MPT under PyTorch FSDP; the GPU is a column or stands in the file's name
    system, model, gpus, precision, gbs, mbs, seq, fsdp, tp, pp, cp, vp, ep, ga, tok_s_gpu, ...
        Megatron

A step's gradients are summed over micro-batches; the model says how long one step takes. The second
set does not say what is recomputed: as few layers as HBM asks for. Nor does it say that adapters
alone learn; but the FLOPs of a token that it counts, `model_tflops_gpu` over `tok_s_gpu`, are then
those of two forward passes and not of three, whatever the speed, as weights have no gradients.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...compute.adapters import share_that_learns
from ...compute.gpus import find_gpu
from ...compute.models import Model
from ...compute.named import find_model
from ...compute.training import (
    FSDP,
    MEGATRON,
    Breakdown,
    Layout,
    Trainer,
    share_recomputed,
    training_step,
)
from ...errors import RFabricError
from . import Point, PointGroup
from .tables import attempt, flag, number, rows, whole

ONE_STEP = "tokens of one optimizer step over its seconds and GPUs"
ADAPTERS_BELOW = 2.2  # forward passes: 1.9 are counted for adapters, 2.4 to 3.0 for all weights
ADAPTER_RANK = 16  # no row says it; ranks of 8 and 64 are equally fast within 1 %
# Columns that say which job a row measured; `container`, under which software.
_JOB = (
    "system", "model", "gpus", "precision", "seq", "gbs", "mbs", "micro_batch", "fsdp", "tp", "pp",
    "cp", "vp", "ep",
)  # fmt: skip
# How a row's precision is told: by these words in it.
_PRECISIONS = {"fp4": "fp4", "fp8": "fp8", "bf16": "bf16", "fp16": "bf16"}


@dataclass(frozen=True)
class MeasuredTraining:
    """A measured training step: its row, what is trained how, in how many micro-batches of so many
    sequences, tokens of a step for each GPU, tokens a second and GPU as measured, and what the
    model says a step takes.
    """

    row: Mapping[str, str]
    part: str
    trainer: Trainer
    micro_batches: int
    micro_batch: int
    tokens: float
    measured: float
    step: Breakdown

    @property
    def model(self) -> str:
        """Its name, without that of who published it."""
        return self.trainer.model.name.rpartition("--")[2]

    @property
    def mixed(self) -> bool:
        """Whether it is a mixture of experts."""
        return bool(self.trainer.model.experts)

    @property
    def gpu(self) -> str:
        """The name of the GPU that it is trained on."""
        return self.trainer.gpu.name

    @property
    def job(self) -> tuple[str, ...]:
        """What its row shares with those of the same job under other software."""
        return tuple(self.row.get(key, "") for key in _JOB)

    @property
    def seconds(self) -> float:
        """Of a step, as measured."""
        return self.tokens / self.measured

    def changed(self, **constants: float) -> "MeasuredTraining":
        """The same with other constants of the Trainer: `grouped`, `host_layer`."""
        trainer = replace(self.trainer, **constants)
        sequences = self.micro_batch * self.micro_batches * trainer.layout.dp
        step = training_step(trainer, sequences, whole(self.row, "seq"), self.micro_batch)
        return replace(self, trainer=trainer, step=step)

    def point(self, seconds: float | None = None) -> Point:
        """Beside what the model says, or beside a step that takes so long."""
        modelled = self.tokens / (self.step.seconds if seconds is None else seconds)
        return Point(_name(0, self.row), self.measured, modelled, "tokens/s/GPU", self.part)


def check(path: Path, data: Path) -> Iterable[PointGroup]:
    """The rows of one file, each a training step of its own."""
    made, left = steps_of(path, data)
    name, note = f"training {path.stem.removeprefix('training_')}", ONE_STEP
    dense, mixed = ([one.point() for one in made if one.mixed == told] for told in (False, True))
    if dense or left or not mixed:
        yield PointGroup(name, str(path.relative_to(data)), tuple(dense), tuple(left), note)
    if mixed:  # of which some constants were fitted on, see `leave_one_out`
        yield PointGroup(f"{name}, MoE", str(path.relative_to(data)), tuple(mixed), note=note)


def steps_of(path: Path, data: Path) -> tuple[list[MeasuredTraining], list[str]]:
    """The measured steps of a file, and the rows left out with the reason."""
    return attempt(
        (_name(i, row), lambda row=row: _modelled(row, path, data))
        for i, row in enumerate(rows(path, "model", "gpus", "seq", "tok_s_gpu"), 2)
    )


def _part(row: dict, path: Path) -> str:
    """GPU, dense or MoE, and how many GPUs: an 8-GPU server, up to 128, or more."""
    model = None if "act_ckpt" in row else find_model(row["model"])
    kind = "MoE" if model and model.experts else "dense"
    gpus = whole(row, "gpus")
    scale = "up to 8 GPUs" if gpus <= 8 else "16 to 128 GPUs" if gpus <= 128 else "more GPUs"
    return f"{_gpu(row, path).name}, {kind}, {scale}"


def _name(line: int, row: Mapping[str, str]) -> str:
    said = " ".join(f"{key} {row[key]}" for key in (*_JOB, "container") if row.get(key))
    return f"row {line} {said}" if line else said


def _modelled(row: dict, path: Path, data: Path) -> MeasuredTraining:
    measured = number(row, "tok_s_gpu")
    trainer, micro, micro_batches = (_foundry if "act_ckpt" in row else _megatron)(row, path, data)
    sequences, length = micro * micro_batches * trainer.layout.dp, whole(row, "seq")
    step = training_step(trainer, sequences, length, micro)
    tokens = sequences * length / trainer.layout.gpus
    return MeasuredTraining(
        row, _part(row, path), trainer, micro_batches, micro, tokens, measured, step
    )


def _foundry(row: dict, path: Path, data: Path) -> tuple[Trainer, int, int]:
    layout = Layout(dp=whole(row, "gpus"), sharded=True)
    recompute = "full" if flag(row["act_ckpt"]) else "none"
    told = row.get("precision") or path.stem
    trainer = Trainer(_mpt(row, data), _gpu(row, path), layout, _precision(told), recompute, FSDP)
    return trainer, whole(row, "micro_batch"), whole(row, "grad_accum")


def _mpt(row: dict, data: Path) -> Model:
    """MPT of a size, with as many learned positions as the row's sequence has tokens; RFabricError
    where the counts differ.
    """
    model = find_model(f"MPT-{row['model']}", [data / "models"])
    if model is None:
        raise RFabricError(
            f"no config of MPT-{row['model']}; put its config.json into {data.name}/models"
        )
    model = replace(
        model, positions=whole(row, "seq"), context=max(model.context, whole(row, "seq"))
    )
    if row.get("params") and abs(model.parameters / float(row["params"]) - 1) > 0.005:
        raise RFabricError(
            f"the row counts {row['params']} parameters, MPT-{row['model']} has {model.parameters}"
        )
    return model


def _megatron(row: dict, path: Path, data: Path) -> tuple[Trainer, int, int]:
    model = find_model(row["model"], [data / "models"])
    if model is None:
        raise RFabricError(
            f"no config of {row['model']}; put its config.json into {data.name}/models"
        )
    tp, pp, cp, vp, ep = (_count(row.get(key)) for key in ("tp", "pp", "cp", "vp", "ep"))
    gpus = whole(row, "gpus")
    if gpus % (tp * pp * cp):
        raise RFabricError(f"{gpus} GPUs are no multiple of tp {tp} x pp {pp} x cp {cp}")
    dp, micro = gpus // (tp * pp * cp), whole(row, "mbs")
    layout = Layout(tp, pp, vp, cp, ep, dp, flag(row.get("fsdp")))
    trainer = Trainer(
        model, _gpu(row, path), layout, _precision(row["precision"]), "none", MEGATRON,
        learns=_learns(row, model),
    )  # fmt: skip
    micro_batches = whole(row, "gbs") / (dp * micro)
    if micro_batches < 1:
        raise RFabricError(
            f"a global batch of {row['gbs']} is less than dp {dp} x micro-batch {micro}"
        )
    recomputed = share_recomputed(trainer, micro * whole(row, "seq"), round(micro_batches))
    return replace(trainer, recomputed_share=recomputed), micro, round(micro_batches)


def _learns(row: dict, model: Model) -> float:
    """The share of the parameters that learn, by the FLOPs that the row counts; 1 where it counts
    none.
    """
    if not row.get("model_tflops_gpu"):
        return 1.0
    counted = number(row, "model_tflops_gpu") * 1e12 / number(row, "tok_s_gpu")
    length = whole(row, "seq")
    passes = counted * length / model.forward_flops(length, length**2)
    return share_that_learns(model, ADAPTER_RANK) if passes < ADAPTERS_BELOW else 1.0


def _gpu(row: dict, path: Path):
    told = row.get("system") or row.get("gpu") or path.stem
    gpu = find_gpu(told)
    if gpu is None:
        raise RFabricError(f"no GPU is known by {told!r}")
    return gpu


def _precision(text: str) -> str:
    return next((kind for word, kind in _PRECISIONS.items() if word in text.lower()), "bf16")


def _count(text: str | None) -> int:
    """A degree of parallelism; empty or n/a is 1."""
    return int(float(text)) if text and text.strip()[:1].isdigit() and float(text) >= 1 else 1

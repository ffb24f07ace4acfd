"""What pipeline stages hold of a model: each its layers, the first the embedding before them, the
last the norm behind them and the matrix of the logits.

    stage 1               stage 2 ...    stage pp
    embedding, layers     layers         layers, norm, logits

Megatron-LM builds them so (`pre_process` and `post_process` in megatron/core/models/gpt/
gpt_model.py). A tied embedding stands on both: the last stage multiplies with a copy of its own,
and their gradients are summed between the two after the pipeline has drained (`embd_group`,
megatron/core/distributed/finalize_model_grads.py).
"""

from dataclasses import dataclass

from .layout import Layout
from .models import BF16_BYTES, STORED_BYTES, Model


@dataclass(frozen=True)
class StageParameters:
    """Parameters of a pipeline stage, whole: of what all tokens pass, and of experts."""

    dense: float
    experts: float

    @classmethod
    def of(cls, model: Model) -> "StageParameters":
        """A stage that holds all of a model."""
        return cls(model.dense_parameters, model.expert_parameters)

    @property
    def total(self) -> float:
        """Both."""
        return self.dense + self.experts


def held(model: Model, layout: Layout) -> list[StageParameters]:
    """What each stage trains.

    >>> from .named import load_model
    >>> [f"{stage.total / 1e9:.2f}" for stage in held(load_model("Qwen3-8B"), Layout(pp=3))]
    ['2.94', '2.32', '2.94']
    """
    stages = held_once(model, layout)
    if model.tied and layout.pp > 1:
        copied = stages[-1].dense + model.logits_parameters
        stages[-1] = StageParameters(copied, stages[-1].experts)
    return stages


def held_once(model: Model, layout: Layout) -> list[StageParameters]:
    """The same with each parameter once: a tied embedding is the first stage's."""
    ends = model.parameters_before_layers, model.parameters_behind_layers
    dense = _with_ends(layout, model.dense_parameters, ends)
    experts = _dealt(layout, model.expert_parameters)
    return [StageParameters(*stage) for stage in zip(dense, experts, strict=True)]


def roots(model: Model, layout: Layout) -> list[StageParameters]:
    """What of each stage is outside its layers, which FSDP gathers as one unit, its root: embedding
    and learned positions, last norm, matrix of the logits.

    >>> from .named import load_model
    >>> [f"{stage.total / 1e9:.2f}" for stage in roots(load_model("Qwen3-8B"), Layout(pp=3))]
    ['0.62', '0.00', '0.62']
    """
    ends = [0.0] * layout.pp
    ends[0] += model.parameters_before_layers
    ends[-1] += model.parameters_behind_layers
    if model.tied and layout.pp > 1:
        ends[-1] += model.logits_parameters
    return [StageParameters(size, 0.0) for size in ends]


def in_layers(model: Model, layout: Layout) -> list[StageParameters]:
    """What of each stage is in its layers."""
    both = zip(held(model, layout), roots(model, layout), strict=True)
    return [StageParameters(whole.dense - root.dense, whole.experts) for whole, root in both]


def learning(model: Model, layout: Layout, learns: float) -> list[StageParameters]:
    """What of each stage a share `learns` learns of: where all does, what it holds; adapters stand
    beside the matrices of layers alone (`adapters`), and are counted as an even share of these.
    """
    return held(model, layout) if learns == 1 else _in_layers(model, layout)


def sent(model: Model, layout: Layout, synced: float) -> list[StageParameters]:
    """What of each stage a weight sync sends a share `synced` of: where all, each parameter once;
    else adapters, as in `learning`.
    """
    return held_once(model, layout) if synced == 1 else _in_layers(model, layout)


@dataclass(frozen=True)
class StageBytes:
    """Bytes of one copy of the weights that a stage sends, whole: of what all tokens pass, of the
    MLPs among that, and of experts.
    """

    dense: float
    mlps: float
    experts: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.dense + self.experts


def sent_bytes(model: Model, layout: Layout, synced: float, precision: str) -> list[StageBytes]:
    """Of which stage the bytes of a copy at a precision are, in a weight sync of a share `synced`
    as in `sent`: embedding and matrix of the logits stay in bf16 (`Model.weight_bytes_at`).

    >>> from .named import load_model
    >>> stages = sent_bytes(load_model("Qwen3-8B"), Layout(pp=3), 1.0, "fp8_block")
    >>> [f"{stage.total / 1e9:.2f}" for stage in stages]
    ['3.56', '2.32', '3.56']
    """
    each = STORED_BYTES[precision]
    experts = each * model.expert_parameters
    outside = BF16_BYTES if synced == 1 else 0
    ends = outside * model.parameters_before_layers, outside * model.parameters_behind_layers
    dense = _with_ends(layout, model.weight_bytes_at(precision) - experts, ends)
    mlps = _dealt(layout, each * model.mlp_parameters)
    stages = zip(dense, mlps, _dealt(layout, experts), strict=True)
    return [StageBytes(*stage) for stage in stages]


def _in_layers(model: Model, layout: Layout) -> list[StageParameters]:
    """All parameters, as if layers had them."""
    each = (_dealt(layout, size) for size in (model.dense_parameters, model.expert_parameters))
    return [StageParameters(*stage) for stage in zip(*each, strict=True)]


def _with_ends(layout: Layout, whole: float, ends: tuple[float, float]) -> list[float]:
    """What each stage has of a whole that is in layers but for what stands before and behind."""
    before, behind = ends
    stages = _dealt(layout, whole - before - behind)
    stages[0] += before
    stages[-1] += behind
    return stages


def _dealt(layout: Layout, whole: float) -> list[float]:
    """What is in layers, to each stage as much as it has of these."""
    return [layout.times(stage) / layout.pp * whole for stage in range(layout.pp)]

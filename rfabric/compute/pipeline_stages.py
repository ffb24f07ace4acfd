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
from .models import Model


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
    before, behind = model.parameters_before_layers, model.parameters_behind_layers
    stages = _dealt(layout, model.dense_parameters - before - behind, model.expert_parameters)
    dense = [stage.dense for stage in stages]
    dense[0] += before
    dense[-1] += behind
    return [StageParameters(d, s.experts) for d, s in zip(dense, stages, strict=True)]


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


def _in_layers(model: Model, layout: Layout) -> list[StageParameters]:
    """All parameters, as if layers had them."""
    return _dealt(layout, model.dense_parameters, model.expert_parameters)


def _dealt(layout: Layout, dense: float, experts: float) -> list[StageParameters]:
    """Parameters of layers, to each stage as many as it has of these."""
    shares = [layout.times(stage) / layout.pp for stage in range(layout.pp)]
    return [StageParameters(share * dense, share * experts) for share in shares]

"""A model whose config is not at hand, by the sizes that its name states: a stated approximation.

    config_like("Qwen/Qwen3.5-122B-A10B")    (config, "shaped like Qwen3-235B-A22B with 51 layers")

The nearest published shape in traffic/models, dense or with experts as the name says, gets as many
layers as give the stated parameters. Widths, heads and vocabulary are the other model's; bytes of
weights and gradients, the bulk of time and traffic, are within SLACK of the name's.
"""

import functools
import re
from dataclasses import dataclass
from math import log

from ..errors import RFabricError
from ..folders import data_dir
from .config_fields import read_config
from .configs import model_of
from .models import Model
from .sizes import SLACK, Sizes, stated_sizes

_EACH_LAYER = ("layer_types", "hybrid_override_pattern", "layers_block_type", "moe_layer_freq")
_LIKE = 0.7  # how much closer, in the logarithm of parameters, a model of the same maker counts
# How many times the parameters of the largest dense model here a dense one may have: what is larger
# was trained with experts alone, and its name leaves out how many parameters are active.
_LARGEST = 1.4
# How much farther one whose heads 16 GPUs cannot share, or of the time before gated MLPs.
_ODD = 0.5


def config_like(name: str) -> tuple[dict, str] | None:
    """The config of a model shaped like the one that `name` states, and what it is; None where the
    name states no size, one that only experts have without the active one, or nothing here comes
    within SLACK of it.
    """
    sizes = stated_sizes(name)
    if sizes is None or (sizes.active == sizes.total and _leaves_experts_out(name, sizes.total)):
        return None
    ranked = sorted(_known(), key=lambda known: _distance(sizes, known))
    for known in ranked[:5]:
        config = _resized(known, sizes)
        if config is not None:
            layers = next(config[key] for key in _LAYERS if key in config)
            return config, f"shaped like {known.model.name} with {layers} layers"
    return None


def _leaves_experts_out(name: str, parameters: float) -> bool:
    """Whether a model has experts, by its name or its size, though the name states one size."""
    dense = max(known.model.parameters for known in _known() if known.model.experts is None)
    return bool(_EXPERTS.search(name)) or parameters > _LARGEST * dense


_EXPERTS = re.compile(r"(?i)moe(?![a-z])[^/:]*/?$")  # in the last part of a path


@dataclass(frozen=True)
class _KnownModel:
    model: Model
    config: dict


_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


@functools.cache
def _known() -> tuple[_KnownModel, ...]:
    configs = [(f.stem, read_config(f)) for f in sorted((data_dir("traffic") / "models").glob("*"))]
    return tuple(_KnownModel(model_of(config, name), config) for name, config in configs)


def _distance(sizes: Sizes, known: _KnownModel) -> float:
    model = known.model
    dense = sizes.active == sizes.total
    if dense != (model.experts is None):
        return 1e9
    kin = known.model.name.lower().startswith(sizes.family) and bool(sizes.family)
    return (
        abs(log(model.parameters / sizes.total))
        + abs(log(model.active_parameters / sizes.active))
        - _LIKE * kin
        + _ODD * (bool(model.heads % 16) + (not model.gated))
    )


def _resized(known: _KnownModel, sizes: Sizes) -> dict | None:
    """The config with as many layers as give the stated parameters, where they come near."""
    config = {key: value for key, value in known.config.items() if not key.startswith("_")}
    key = next((key for key in _LAYERS if key in config), "")
    try:
        if not any(config.get(each) for each in _EACH_LAYER) and key:
            apart = known.model.parameters - _parameters(config | {key: config[key] - 1})
            more = (sizes.total - known.model.parameters) / apart
            config[key] = max(1, round(config[key] + more))
        near = abs(_parameters(config) / sizes.total - 1) <= SLACK
    except RFabricError:  # its layers differ, and each is told apart
        return None
    return config if near else None


def _parameters(config: dict) -> int:
    return model_of(config, "resized").parameters

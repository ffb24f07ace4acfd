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

from ..folders import data_dir
from .config_fields import read_config
from .configs import model_of
from .models import Model

SLACK = 0.1  # parameters of the approximation, from those that the name states
_EACH_LAYER = ("layer_types", "hybrid_override_pattern", "layers_block_type", "moe_layer_freq")
# Of each expert of an NxM model beyond the first; attention is theirs together. Two experts work on
# a token: Mixtral 8x7B has 46.7 billion parameters, 12.9 of them active; 8x22B 141 and 39.
_SHARED = 0.81
_LIKE = 0.7  # how much closer, in the logarithm of parameters, a model of the same maker counts
# How much farther one whose heads 16 GPUs cannot share, or of the time before gated MLPs.
_ODD = 0.5


@dataclass(frozen=True)
class Sizes:
    """Parameters, all and those a token passes, as a name states them; `family` its letters."""

    total: float
    active: float
    family: str


def stated_sizes(name: str) -> Sizes | None:
    """The sizes in a model's name; None where it states none.

    >>> stated_sizes("Qwen/Qwen3.5-122B-A10B")
    Sizes(total=122000000000.0, active=10000000000.0, family='qwen')
    """
    last = re.split(r"[/:]", name.rstrip("/"))[-1].lower()
    total = re.search(r"(?<![a-z\d.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bt])(?![a-z]*\d*b)", last) or (
        re.search(r"(?<![a\d.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bt])", last)
    )
    if total is None:
        return None
    active = re.search(r"(?<![a-z])a(\d+(?:\.\d+)?)b|(?<=b)a(\d+(?:\.\d+)?)b", last)
    each, experts = float(total[2]) * (1e12 if total[3] == "t" else 1e9), int(total[1] or 1)
    count = each * (_SHARED * (experts - 1) + 1)
    dense = count if experts == 1 else each * (_SHARED + 1)
    passes = float(active[1] or active[2]) * 1e9 if active else dense
    family = re.match(r"[a-z]*", re.sub(r"^[^a-z]*", "", last))
    return Sizes(count, passes, family[0] if family else "") if count > 0 else None


def config_like(name: str) -> tuple[dict, str] | None:
    """The config of a model shaped like the one that `name` states, and what it is; None where the
    name states no size, or nothing here comes within SLACK of it.
    """
    sizes = stated_sizes(name)
    if sizes is None:
        return None
    ranked = sorted(_known(), key=lambda known: _distance(sizes, known))
    for known in ranked[:5]:
        config = _resized(known, sizes)
        if config is not None:
            layers = next(config[key] for key in _LAYERS if key in config)
            return config, f"shaped like {known.model.name} with {layers} layers"
    return None


@dataclass(frozen=True)
class _Known:
    model: Model
    config: dict


_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


@functools.cache
def _known() -> tuple[_Known, ...]:
    configs = [(f.stem, read_config(f)) for f in sorted((data_dir("traffic") / "models").glob("*"))]
    return tuple(_Known(model_of(config, name), config) for name, config in configs)


def _distance(sizes: Sizes, known: _Known) -> float:
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


def _resized(known: _Known, sizes: Sizes) -> dict | None:
    """The config with as many layers as give the stated parameters, where they come near."""
    config = {key: value for key, value in known.config.items() if not key.startswith("_")}
    key = next((key for key in _LAYERS if key in config), "")
    if not any(config.get(each) for each in _EACH_LAYER) and key:
        apart = known.model.parameters - _parameters(config | {key: config[key] - 1})
        more = (sizes.total - known.model.parameters) / apart
        config[key] = max(1, round(config[key] + more))
    near = abs(_parameters(config) / sizes.total - 1) <= SLACK
    return config if near else None


def _parameters(config: dict) -> int:
    return model_of(config, "resized").parameters

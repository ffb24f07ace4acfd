"""Published `config.json` files as `Model`s: the families of decoders in use and the spellings they
give the same facts.

    model_of(config, name)  FAMILIES[model_type] says what the class of that name does and no field
                            tells (biases, norms, gates); SPELLINGS says under which names a fact is
                            looked for; all else is in the fields

What changes an architecture and is not understood is an error that names the field, whatever the
model type. An unknown model_type is read as its fields say if all of them are understood, and the
model notes it. Source of FAMILIES: the classes in transformers.
"""

from dataclasses import replace

from ..errors import RFabricError
from .config_fields import SPELLINGS, Fields, check_understood, flat, left_to_classes
from .families import OTHERS, Family, known_family, likely_families
from .mixers import mixers_of
from .models import Model
from .quantised import stored_as
from .restated import restated
from .sizes import SLACK, stated_sizes


def model_of(config: dict, name: str) -> Model:
    """The model that the fields of a config describe; RFabricError names what is not understood."""
    fields, approximated = _fields(config, name)
    kind = fields.raw("model_type")
    family = _family(fields, kind)
    shape = _shape(fields, family)
    stored, unsure = stored_as(fields)
    mixing = mixers_of(fields, family, shape)
    model = Model(
        name=name,
        **shape | mixing,
        gated=family.gated,
        tied=bool(fields.raw("tie_word_embeddings", family.tied)),
        **_windows(fields, family, shape["layers"]),
        next_layers=fields.count("next_layers", 0),
        stored=stored,
        **_published(fields),
    )
    return replace(
        model,
        **_vectors(family, model),
        notes=_notes(config, bool(approximated))
        + approximated
        + unsure
        + _understood(fields, model),
    )


def _fields(config: dict, name: str) -> tuple[Fields, tuple[str, ...]]:
    """The fields of a config, restated where its architecture is another, and what that leaves
    out.
    """
    laid_open = {key: value for key, value in flat(config).items() if key != "text_config"}
    try:
        as_known, notes = restated(laid_open)
    except RFabricError as error:
        raise RFabricError(f"model {name}: {error}") from error
    return Fields(as_known, name), notes


def _understood(fields: Fields, model: Model) -> tuple[str, ...]:
    """Notes on fields that were passed over. What changes a shape and is not understood is one too
    where the parameters come within SLACK of those stated all the same, else an RFabricError.
    """
    kind = fields.raw("model_type")
    try:
        return check_understood(fields, kind, known_family(kind) is not None)
    except RFabricError as error:
        named = stated_sizes(model.name)
        stated = model.published_b * 1e9 if model.published_b else named.total if named else 0
        if not stated or abs(model.parameters / stated - 1) > SLACK:
            raise
        return (
            f"an approximation, of {model.parameters / 1e9:.4g} billion parameters where "
            f"{stated / 1e9:.4g} are stated: {error}",
        )


def _notes(config: dict, approximated: bool) -> tuple[str, ...]:
    apart = [
        key.removesuffix("_config") for key in ("vision_config", "audio_config") if config.get(key)
    ]
    notes = (f"its parts for {' and '.join(apart)} are not counted",) if apart else ()
    if left := left_to_classes(config):
        said = ", ".join(f"{key} {value}" for key, value in left.items())
        notes += (f"its config leaves {said} to its class",)
    if config.get("index_topk") and not approximated:
        notes += (
            (
                f"attention counts all tokens before one, not only the {config['index_topk']} that "
                "its indexer picks"
            ),
        )
    return notes


MOST_LAYERS = 10_000
PUBLISHED = ("total_b", "active_b")


def _published(fields: Fields) -> dict[str, float]:
    """The parameters that its maker states, which the configs in traffic/models carry."""
    said = fields.raw("_published", {})
    stated = said if isinstance(said, dict) else {}
    for key, value in stated.items():
        if key not in PUBLISHED or not isinstance(value, (int, float)) or isinstance(value, bool):
            raise RFabricError(
                f"model {fields.name}: _published {key}: {value!r} is no number of billions under "
                f"one of {', '.join(PUBLISHED)}"
            )
    return {f"published_{k.removeprefix('total_')}": float(v) for k, v in stated.items()}


def _family(fields: Fields, kind: object) -> Family:
    if not isinstance(kind, str) or kind in OTHERS or fields.raw("is_encoder_decoder", False):
        raise RFabricError(
            f"model {fields.name}: model_type {kind!r} is not modelled; {likely_families(kind)} are"
        )
    return _as_configured(
        fields, known_family(kind) or Family(gated=_is_gated(fields, kind), mixture=True)
    )


def _is_gated(fields: Fields, kind: str) -> bool:
    """Whether the MLP of an unknown class has a gate, which its activation tells: SiLU comes with
    one, ReLU without.
    """
    activation = fields.get("activation", "")
    activation = str(activation.get("name") if isinstance(activation, dict) else activation).lower()
    if "glu" in activation or activation in ("silu", "swish"):
        return True
    if activation.startswith("relu"):
        return False
    raise RFabricError(
        f"model {fields.name}: model_type {kind!r} is not modelled, and hidden_act "
        f"{activation!r} does not tell whether its MLP is gated; {likely_families(kind)} are"
    )


def _as_configured(fields: Fields, family: Family) -> Family:
    """The family with the switches that its config sets."""
    on = (
        fields.get("qkv_bias")
        if len(set(map(str, fields.said("qkv_bias").values()))) < 2
        else fields.raw("attention_bias")
    )
    if on is not None:
        family = replace(
            family,
            bias=(family.bias or _BIAS_KIND[next(iter(fields.said("qkv_bias")))]) if on else "",
        )
    mlp = fields.said("mlp_bias")
    if mlp:
        family = replace(family, mlp_bias=bool(next(iter(mlp.values()))))
    if fields.raw("no_bias") is False:
        family = replace(family, bias="all", mlp_bias=True, norm_bias=True)
    if fields.raw("learned_pos_emb") is False or fields.raw("alibi", False):
        family = replace(family, learned=None)
    if (
        fields.get("qk_norm")
        and not family.qk_norm
        and fields.raw("model_type") not in ("llama4", "llama4_text")
    ):
        family = replace(family, qk_norm="wide" if family.norms == 1 else "head")
    if fields.raw("scale_qk") is not None:
        raise RFabricError(f"model {fields.name}: scale_qk is not modelled; leave it out")
    if fields.get("qk_norm") is False and "use_qk_norm" in fields.values:
        family = replace(family, qk_norm="")
    return replace(family, norms=_norms(fields, family))


_BIAS_KIND = dict.fromkeys(SPELLINGS["qkv_bias"], "all") | dict.fromkeys(
    ("use_qkv_bias", "add_qkv_bias", "qkv_bias"), "qkv"
)


def _norms(fields: Fields, family: Family) -> int:
    """Norms a layer; those of Falcon depend on how it was wired."""
    new, beside = fields.raw("new_decoder_architecture"), fields.raw("parallel_attn")
    if fields.raw("model_type") != "falcon":
        return family.norms
    return (
        fields.number("num_ln_in_parallel_attn", 2) if new else 1 if beside or beside is None else 2
    )


def _shape(fields: Fields, family: Family) -> dict[str, int]:
    """The counts every decoder has."""
    layers = fields.count("layers")
    if layers > MOST_LAYERS:
        raise RFabricError(
            f"model {fields.name}: {layers:.3g} layers; {MOST_LAYERS:,} at most: is it the "
            "published config.json?"
        )
    hidden, heads = fields.get("hidden"), fields.get("heads")
    for fact in ("hidden", "heads"):
        if not set(SPELLINGS[fact]) & set(fields.values):
            raise RFabricError(
                f"model {fields.name}: its config lacks {SPELLINGS[fact][0]}; give the "
                "published config.json"
            )
    wrong = [v for v in (hidden, heads) if isinstance(v, bool) or not isinstance(v, int) or v < 1]
    if wrong:
        raise RFabricError(
            f"model {fields.name}: hidden_size and num_attention_heads must be "
            "whole numbers above 0"
        )
    if fields.raw("word_embed_proj_dim", hidden) != hidden:
        raise RFabricError(
            f"model {fields.name}: word_embed_proj_dim is not modelled beside hidden_size {hidden}"
        )
    return {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": _kv_heads(fields, heads),
        "head_dim": fields.count("head_dim", family.head_dim or hidden // heads),
        "intermediate": _columns(fields, hidden),
        "vocab": fields.count("vocab"),
        "context": fields.count("context"),
    }


def _kv_heads(fields: Fields, heads: int) -> int:
    shared, new = fields.raw("multi_query"), fields.raw("new_decoder_architecture")
    if not fields.raw("multi_query_attention", True):
        fields.values.pop("multi_query_group_num", None)
    if fields.raw("model_type") in ("falcon", "gpt_bigcode") and not new:
        fields.said("kv_heads")
        return 1 if shared or shared is None else heads
    return fields.count("kv_heads", heads)


def _columns(fields: Fields, hidden: int) -> int:
    """Columns of the MLP; older models give a ratio, or mean four times as many as the hidden
    size.
    """
    expansion = fields.raw("expansion_ratio")
    if fields.get("dense_columns"):
        fields.get("intermediate")
        return fields.count("dense_columns")
    older = fields.raw("model_type") in ("gpt2", "gpt_bigcode", "bloom", "falcon", "mpt", "gptj")
    if isinstance(expansion, bool) or not isinstance(expansion or 4, (int, float)):
        raise RFabricError(f"model {fields.name}: expansion_ratio {expansion!r} must be a number")
    default = int((expansion or 4) * hidden) if expansion or older else None
    return fields.count("intermediate", default or fields.get("expert_columns"))


def _windows(fields: Fields, family: Family, layers: int) -> dict[str, int]:
    """How far back layers with a window see, and how many there are."""
    key = "sliding_window" if fields.raw("sliding_window") else "attention_chunk_size"
    window = fields.raw(key) or 0
    every = fields.raw("sliding_window_pattern")
    kinds = [str(kind) for kind in fields.each("layer_types", layers)]
    used = fields.raw("use_sliding_window", True)
    strange = set(kinds) - {"full_attention", "attention", *_WINDOWED}
    strange -= _LINEAR if family.hybrid else set()
    if strange:
        raise RFabricError(
            f"model {fields.name}: layer_types {', '.join(sorted(strange))} is not modelled"
        )
    if not used:
        return {}
    if isinstance(window, list):  # one a layer
        window, kinds = _one_window(fields, key, layers)
    if isinstance(window, bool) or not isinstance(window, int) or window < 0:
        raise RFabricError(f"model {fields.name}: {key} {window!r} must be a number of tokens")
    if not window:
        return {}
    whole = fields.raw("max_window_layers")  # Qwen: so many layers see all, those above do not
    if kinds:
        number = sum(kind in _WINDOWED for kind in kinds)
    elif type(whole) is int and fields.raw("use_sliding_window"):
        number = max(layers - max(whole, 0), 0)
    else:
        every = every if type(every) is int and every > 0 else family.window_every
        number = layers if every == 1 else layers - layers // every
    return {"window": window, "windowed": number} if number else {}


def _one_window(fields: Fields, key: str, layers: int) -> tuple[int, list[str]]:
    """The window of a list of them, and which layers have it."""
    windows = fields.each(key, layers)
    several = {window for window in map(str, windows) if window not in ("None", "0")}
    if len(several) > 1:
        raise RFabricError(
            f"model {fields.name}: {key} of {len(several)} sizes is not modelled; keep one"
        )
    kinds = ["sliding_attention" if window else "full_attention" for window in windows]
    return next(filter(None, windows), 0), kinds


_WINDOWED = {"sliding_attention", "chunked_attention"}
_LINEAR = {"linear_attention", "mamba"}


def _vectors(family: Family, m: Model) -> dict[str, int]:
    """Norms and biases: in all layers, outside of them, and rows of learned positions."""
    norm = m.hidden * (1 + family.norm_bias)
    own = (
        m.layers - (m.experts.layers if m.experts else 0) if m.mlp_layers is None else m.mlp_layers
    )
    mlp = ((1 + m.gated) * m.intermediate + m.hidden) * own if family.mlp_bias else 0
    return {
        "vectors": m.layers * family.norms * norm
        + m.kv_layers * _attention_vectors(family, m)
        + mlp,
        "once": norm * ((family.norms > 0) + family.embedding_norm)
        + (m.vocab if family.head_bias else 0),
        "positions": 0 if family.learned is None else m.context + family.learned,
    }


def _attention_vectors(family: Family, m: Model) -> int:
    """Norms of queries and keys, biases and sinks of one layer."""
    queries, keys = m.heads * m.head_dim, m.kv_heads * m.head_dim
    sinks = m.heads if family.sinks else 0
    if m.latent:
        return m.latent.query_rank + m.latent.kv_rank + sinks
    norms = {"": 0, "head": 2 * m.head_dim, "wide": queries + keys}[family.qk_norm]
    biases = {"": 0, "qkv": queries + 2 * keys, "all": queries + 2 * keys + m.hidden}[family.bias]
    return norms + biases + sinks

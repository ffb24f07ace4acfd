"""The fields of a config under all their spellings, which were read, and what is wrong with those
that were not.

SPELLINGS says under which names a fact is looked for. What changes an architecture and was not read
is an error that names the field, whatever the model type.
"""

import re
from pathlib import Path
from typing import Any

from ..errors import RFabricError
from ..files import read_json
from .families import CLASS_SIZES, likely_families

SPELLINGS = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": (
        "num_key_value_heads",
        "num_kv_heads",
        "n_head_kv",
        "kv_n_heads",
        "multi_query_group_num",
    ),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "intermediate": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "context": (
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "max_sequence_length",
        "seq_length",
        "model_max_length",
        "n_ctx",
    ),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "per_token": (
        "num_experts_per_tok",
        "num_experts_per_token",
        "experts_per_token",
        "moe_topk",
        "moe_top_k",
        "moe_k",
    ),
    "expert_columns": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "shared_columns": (
        "shared_expert_intermediate_size",
        "shared_intermediate_size",
        "moe_shared_expert_intermediate_size",
    ),
    "shared": (
        "n_shared_experts",
        "num_shared_experts",
        "num_shared_expert",
        "moe_num_shared_experts",
    ),
    "next_layers": (
        "num_nextn_predict_layers",
        "num_mtp_modules",
        "mtp_num_layers",
        "mtp_num_hidden_layers",
    ),
    "dtype": ("dtype", "torch_dtype"),
    "qkv_bias": (
        "attention_bias",
        "use_qkv_bias",
        "add_qkv_bias",
        "qkv_bias",
        "use_bias",
        "bias",
        "add_bias_linear",
    ),
    "mlp_bias": ("mlp_bias", "use_bias", "bias", "add_bias_linear"),
    "activation": (
        "hidden_act",
        "hidden_activation",
        "activation_function",
        "mlp_hidden_act",
        "ffn_act_fn",
    ),
    "dense_columns": ("intermediate_size_mlp",),
    "qk_norm": ("use_qk_norm", "qk_layernorm"),
    "indexer": ("index_n_heads",),
}

ONE_VALUE = ("layers", "hidden", "vocab", "context")  # no layer has its own: a list says nothing

# Fields that change no shape: training, tokens, numerics, routing scores, positions.
_HARMLESS = re.compile(
    r"""_.*|architectures|auto_map|transformers_version|model_type|.*tokens?_(id|ids|index)|.*(dropout|_pdrop).*|.*init.*|.*eps(ilon)?|
    .*rope.*|.*rotary.*|.*(loss|coef|scal|softcap|multiplier|temperature|logit).*|use_cache|output_.*|return_.*|pretraining_tp|
    .*_act|.*act.*_fn|.*activation.*|norm_.*|scoring_func|topk_(method|group)|n_group|num_expert_group|.*router_.*|gradient_checkpointing|
    tokenizer_class|problem_type|id2label|label2id|task_specific_params|summary_.*|.*name_or_path|.*implementation|ep_size|swiglu_limit|
    max_window_layers|is_decoder|alibi.*|position_embedding_type|clip_qkv|.*flash.*|bos_.*|eos_.*|pad_.*|sep_.*|cache_.*|parallel_attn|
    (vision|audio|image|video|projector|mm)_.*|n_ctx|.*(parallel|kernel|fused|fusion).*|partial_.*|mrope.*|layer_norm.*|.*_residual.*|
    moe_(use|gate|norm|capacity|group|multimodal|renorm|score|statics|implementation|dense_act).*|verbose|embedding_fraction|
    logit_.*|attn_(pdrop|type|impl|uses_sequence_id|scale)|prefix_lm|qk_(ln|norm_type)|qk_head_dim|rotary_dim|original_max.*|apply_.*|fp32_.*|
    post_layer_norm|.*precision.*|interleaved_.*|use_(mamba_kernels|routing_bias|parallel.*|mrope|moe|mtp|rms.*|alibi)|hidden_dropout.*|
    finetuning_task|decoder_start.*|num_logits.*|num_labels|pruned_heads|remove_.*|chunk_size_feed_forward|cross_attention_hidden_size|
    floor_scale|attn_temperature.*|no_rope.*|for_llm_compressor|residual.*|time_step.*|chunk_size|rescale.*|tie_.*|torchscript|
    .*penalty|num_return_sequences|top_[kp]|do_sample|.*beams?|.*beam_.*|m(ax|in)_length|diversity.*|length_.*|bad_words.*|forced_.*|suppress.*|typical_p|
    begin_.*|exponential.*|early_stopping|prefix|tf_legacy_loss|use_bfloat16|no_repeat.*|encoder_no_repeat.*|order|source|license|
    shared_moe_mode|mamba_.*dtype|use_conv_bias|moe_shared_expert_overlap|use_mixed.*|moe_(drop|random).*|.*use_expert.*|use_mla|
    mtp_use_dedicated_embeddings|.*expert_(bias|assignment)|initial_context_length|_?attn_logit.*|query_pre_attn_scalar|tie_word_embeddings|seq_aux|training_.*""",
    re.VERBOSE,
)
# Fields whose names tell that they change a shape: an error unless they were understood, also in
# known model types.
_CHANGES = re.compile(
    r"""ssm|mamba|linear_|lightning|delta|rwkv|recurren|retention|hyena|conv_|cross_attention|encoder|lora_rank|expert|moe|index_|
    altup|laurel|per_layer|block_config|hybrid|pattern|hc_|engram|state_size|kv_share|shared_kv|type_list|memory|latent|num_.*layers|
    n_layer|ffn_mult|mixture|word_embed_proj|sparse|use_cla|output_gate""",
    re.VERBOSE,
)


def read_config(path: str | Path) -> dict:
    """The object that a config file holds. RFabricError where it cannot be read or holds none."""
    try:
        config = read_json(path)
    except (OSError, ValueError) as error:
        raise RFabricError(f"model config {path}: {error}") from error
    if not isinstance(config, dict):
        raise RFabricError(f"model config {path}: holds no object; give a Hugging Face config.json")
    return config


class Fields:
    """The fields of a config, under any spelling; `used` grows by those that were asked for."""

    def __init__(self, config: dict, name: str):
        self.name, self.values, self.used = name, flat(config), set()

    def raw(self, key: str, default: object = None) -> Any:
        """The field `key` as it stands; null counts as absent."""
        self.used.add(key)
        value = self.values.get(key)
        return default if value is None else value

    def said(self, fact: str) -> dict[str, object]:
        """The spellings of `fact` that the config has, with their values."""
        self.used.update(SPELLINGS[fact])
        values = ((key, self.values.get(key)) for key in SPELLINGS[fact])
        return {
            key: value if fact in ONE_VALUE else same_value(value)
            for key, value in values
            if value is not None
        }

    def get(self, fact: str, default: object = None) -> Any:
        """The value of `fact`; RFabricError where two spellings of it disagree."""
        spelled = self.said(fact)
        if len({str(value) for value in spelled.values()}) > 1 and fact != "context":
            both = " and ".join(f"{key} {value!r}" for key, value in spelled.items())
            raise RFabricError(f"model {self.name}: {both} contradict each other; keep one")
        return next(iter(spelled.values()), default)

    def count(self, fact: str, default: int | None = None) -> int:
        """A whole number; RFabricError where it is another thing, or absent without a default."""
        value = self.get(fact, default)
        if value is None:
            raise RFabricError(
                f"model {self.name}: its config lacks {SPELLINGS[fact][0]}; give the published "
                "config.json"
            )
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            key = next(iter(self.said(fact)), SPELLINGS[fact][0])
            raise RFabricError(f"model {self.name}: {key} {value!r} must be a whole number above 0")
        return value

    def number(self, key: str, default: int = 0) -> int:
        """The whole number in the field `key`. RFabricError where it holds none, or one below 0 and
        below the default.
        """
        value = self.raw(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < min(0, default):
            raise RFabricError(f"model {self.name}: {key} {value!r} must be a whole number above 0")
        return value

    def each(self, key: str, layers: int) -> list:
        """What the list in the field `key` says of each of so many layers; [] where there is none.
        RFabricError where it is no list, or of another length.
        """
        value = self.raw(key, [])
        if isinstance(value, list) and len(value) in (0, layers):
            return value
        raise RFabricError(
            f"model {self.name}: {key} {_short(value)} must list one of each of {layers} layers"
        )


def flat(config: dict) -> dict:
    """A config with the part of its language model laid open, which multimodal models and some
    others nest.
    """
    for part in _NESTED:
        inner = config.get(part)
        if isinstance(inner, dict):
            around = {key: config[key] for key in _AROUND if config.get(key) is not None}
            own = {k: value for k, value in inner.items() if value is not None or k not in around}
            config = around | _of_the_class(inner, config) | own
    flat = dict(config)
    for part in ("attn_config", "ffn_config"):
        inner = flat.pop(part, None)
        flat |= (
            {key: value for key, value in inner.items() if key not in flat}
            if isinstance(inner, dict)
            else {}
        )
    return flat


def left_to_classes(config: dict) -> dict[str, int]:
    """The sizes that a language model nested in a config does not say and its class has."""
    found: dict[str, int] = {}
    for part in _NESTED:
        if isinstance(inner := config.get(part), dict):
            found |= _of_the_class(inner, config)
            config = inner
    return found


def _of_the_class(inner: dict, around: dict) -> dict[str, int]:
    sizes = CLASS_SIZES.get(str(inner.get("model_type")), {})
    return {
        key: value
        for key, value in sizes.items()
        if key not in inner and (key not in _AROUND or around.get(key) is None)
    }


_NESTED = ("thinker_config", "text_config", "llm_config", "language_config")
# What the class around a language model may say of it; the rest of its fields are those of encoders
# and of glue.
_AROUND = (
    "model_type",
    "tie_word_embeddings",
    "torch_dtype",
    "dtype",
    "quantization_config",
    "vocab_size",
    "max_position_embeddings",
    "text_config",
)


def same_value(value: object) -> object:
    """The one value of a list that repeats it a layer, else the value as it is."""
    alike = isinstance(value, list) and value and all(v == value[0] for v in value)
    return value[0] if alike else value


def check_understood(fields: Fields, kind: str, known: bool) -> tuple[str, ...]:
    """RFabricError naming the fields that change a shape and were not understood; notes on what was
    passed over.
    """
    rest = {
        k: v
        for k, v in fields.values.items()
        if k not in fields.used and v not in (None, False, 0, [], {}, "")
    }
    rest = {
        k: v
        for k, v in rest.items()
        if not _HARMLESS.fullmatch(k) and same_value(v) not in (None, False)
    }
    # softmax attention in all layers
    if kind.startswith("minimax") and same_value(rest.get("attn_type_list")) == 1:
        del rest["attn_type_list"]
    bad = [key for key in rest if not known or _CHANGES.search(key)]
    if bad:
        said = ", ".join(f"{key} {_short(rest[key])}" for key in bad)
        raise RFabricError(
            f"model {fields.name}: model_type {kind!r} with {said} is not modelled: what that "
            f"changes is not known; {likely_families(kind)} are, with the fields of their "
            "published configs"
        )
    return () if known else (f"model_type {kind} is not known by name: read as its fields say",)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."

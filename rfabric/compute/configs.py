"""Published `config.json` files as `Model`s: the families of decoders in use and the spellings they give the same facts.

    model_of(config, name)    FAMILIES[model_type] says what the class of that name does and no field tells (biases, norms, gates);
                              SPELLINGS says under which names a fact is looked for; all else is in the fields

What changes an architecture and is not understood is an error that names the field, whatever the model type. An unknown model_type
is read as its fields say if all of them are understood, and the model notes it. Source of FAMILIES: the classes in transformers.
"""

import difflib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import RFabricError
from .models import Experts, Latent, Model


@dataclass(frozen=True)
class Family:
    """What a class of models does where its config is silent.

    bias: of `qkv`, of `all` four projections of attention, or none; a config may switch it. mlp_bias: so the MLP.
    norms: a layer, each with a bias where `norm_bias`; qk_norm: one weight a column of a `head`, or of all heads (`wide`).
    learned: a table of positions, so many rows longer than the context. window_every: each n-th layer sees all, 1: none does.
    shared_gate, router_bias, sinks, attention_gate, head_bias, embedding_norm: parameters that only such classes have.
    hybrid: what stands in the place of attention in some layers.
    """

    gated: bool = True
    bias: str = ""
    mlp_bias: bool = False
    norms: int = 2
    norm_bias: bool = False
    qk_norm: str = ""
    tied: bool = False
    learned: int | None = None
    window_every: int = 1
    mixture: bool = False
    shared_gate: bool = False
    expert_bias: bool = False
    router_bias: bool = False
    sinks: bool = False
    attention_gate: bool = False
    head_bias: bool = False
    embedding_norm: bool = False
    hybrid: str = ""


_LLAMA = Family()
_QWEN3 = Family(qk_norm="head")
_DEEPSEEK = Family(mixture=True, router_bias=True)
_GPT = Family(gated=False, bias="all", mlp_bias=True, norm_bias=True, tied=True, learned=0)
_COHERE = Family(norms=1, tied=True, window_every=4)
_GEMMA3 = Family(norms=4, qk_norm="head", tied=True, window_every=6)
_GLM = Family(bias="qkv", norms=4)

FAMILIES = {
    **dict.fromkeys(("llama", "mistral", "ministral", "granite", "smollm3", "baichuan", "yi", "phi3"), _LLAMA),
    **dict.fromkeys(("internlm2", "internlm3"), _LLAMA),
    **dict.fromkeys(("mixtral", "granitemoe", "granitemoeshared"), Family(mixture=True)),
    "seed_oss": Family(bias="qkv"),
    "qwen2": Family(bias="qkv"),
    "qwen2_moe": Family(bias="qkv", mixture=True, shared_gate=True),
    "qwen3": _QWEN3,
    "qwen3_moe": replace(_QWEN3, mixture=True),
    "qwen3_next": Family(qk_norm="head", mixture=True, shared_gate=True, attention_gate=True, hybrid="delta"),
    **dict.fromkeys(("deepseek_v3", "kimi_k2", "kimi_k25"), _DEEPSEEK),
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), _DEEPSEEK),
    "deepseek_v2": replace(_DEEPSEEK, router_bias=False),
    "deepseek": Family(mixture=True),
    "bailing_moe": Family(mixture=True),
    "dots1": replace(_DEEPSEEK, qk_norm="head"),
    "glm": replace(_GLM, norms=2),
    "chatglm": replace(_GLM, norms=2),
    "glm4": _GLM,
    "glm4_moe": replace(_DEEPSEEK, bias="qkv"),
    "gpt_oss": Family(bias="all", mixture=True, expert_bias=True, sinks=True, window_every=2),
    "gemma": Family(tied=True),
    "gemma2": Family(norms=4, tied=True, window_every=2),
    "gemma3_text": _GEMMA3,
    "gemma3": _GEMMA3,
    "phi": Family(gated=False, bias="all", mlp_bias=True, norms=1, norm_bias=True, head_bias=True),
    "phimoe": Family(bias="all", mixture=True, norm_bias=True, head_bias=True),
    "olmo": Family(norms=0),
    "olmo2": Family(qk_norm="wide"),
    "olmo3": Family(qk_norm="wide", window_every=4),
    "olmoe": Family(qk_norm="wide", mixture=True),
    "exaone4": Family(qk_norm="head", window_every=4),
    "cohere": _COHERE,
    "cohere2": _COHERE,
    "stablelm": Family(norm_bias=True),
    "nemotron": Family(gated=False, norm_bias=True),
    "nemotron_h": Family(gated=False, norms=1, mixture=True, router_bias=True, hybrid="mamba"),
    "minimax_m2": Family(qk_norm="wide", mixture=True, router_bias=True),
    "llama4_text": Family(mixture=True, window_every=4),
    "llama4": Family(mixture=True, window_every=4),
    "ernie4_5": Family(tied=True),
    "ernie4_5_moe": Family(tied=True, mixture=True, router_bias=True),
    "hunyuan_v1_dense": _QWEN3,
    "hunyuan_v1_moe": replace(_QWEN3, mixture=True),
    "hunyuan": replace(_QWEN3, mixture=True),
    "dbrx": Family(mixture=True),
    "arcee": Family(gated=False),
    "apertus": Family(gated=False, qk_norm="head"),
    "starcoder2": Family(gated=False, bias="all", mlp_bias=True, norm_bias=True, tied=True),
    "gpt2": _GPT,
    "gpt_bigcode": _GPT,
    "opt": replace(_GPT, learned=2),
    "gpt_neox": replace(_GPT, tied=False, learned=None),
    "bloom": replace(_GPT, learned=None, embedding_norm=True),
    "mpt": Family(gated=False, tied=True, learned=0),
    "falcon": Family(gated=False, norms=2, norm_bias=True, tied=True),
}  # fmt: skip
# Not decoders of this shape, whatever their fields look like.
_OTHERS = (
    "jetmoe",
    "mamba",
    "mamba2",
    "rwkv",
    "t5",
    "bert",
    "bart",
    "jamba",
    "zamba",
    "zamba2",
    "bamba",
    "recurrent_gemma",
    "gemma3n",
)

SPELLINGS = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads", "multi_query_group_num"),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "intermediate": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "context": ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length",
                "model_max_length", "n_ctx"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "per_token": ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k", "moe_k"),
    "expert_columns": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "shared_columns": ("shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size"),
    "shared": ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "next_layers": ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_layers"),
    "dtype": ("dtype", "torch_dtype"),
    "qkv_bias": ("attention_bias", "use_qkv_bias", "add_qkv_bias", "qkv_bias", "use_bias", "bias", "add_bias_linear"),
    "mlp_bias": ("mlp_bias", "use_bias", "bias", "add_bias_linear"),
    "activation": ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act", "ffn_act_fn"),
    "dense_columns": ("intermediate_size_mlp",),
    "qk_norm": ("use_qk_norm", "qk_layernorm"),
    "indexer": ("index_n_heads",),
}  # fmt: skip

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
    post_layer_norm|.*precision.*|interleaved_.*|use_(mamba_kernels|routing_bias|parallel.*|mrope|cla|moe|mtp|rms.*|alibi)|hidden_dropout.*|
    finetuning_task|decoder_start.*|num_logits.*|num_labels|pruned_heads|remove_.*|chunk_size_feed_forward|cross_attention_hidden_size|
    floor_scale|attn_temperature.*|no_rope.*|for_llm_compressor|residual.*|time_step.*|chunk_size|rescale.*|tie_.*|torchscript|
    .*penalty|num_return_sequences|top_[kp]|do_sample|.*beams?|.*beam_.*|m(ax|in)_length|diversity.*|length_.*|bad_words.*|forced_.*|suppress.*|typical_p|
    begin_.*|exponential.*|early_stopping|prefix|tf_legacy_loss|use_bfloat16|no_repeat.*|encoder_no_repeat.*|order|source|license|
    shared_moe_mode|mamba_.*dtype|use_conv_bias|moe_shared_expert_overlap|use_mixed.*|moe_(drop|random).*|.*use_expert.*|use_mla|
    .*expert_(bias|assignment)|initial_context_length|_?attn_logit.*|query_pre_attn_scalar|tie_word_embeddings|seq_aux|training_.*""",
    re.VERBOSE,
)
# Fields whose names tell that they change a shape: an error unless they were understood, also in known model types.
_CHANGES = re.compile(
    r"""ssm|mamba|linear_|lightning|delta|rwkv|recurren|retention|hyena|conv_|cross_attention|encoder|lora_rank|expert|moe|index_|
    altup|laurel|per_layer|block_config|hybrid|pattern|hc_|engram|state_size|kv_share|shared_kv|type_list|memory|latent|num_.*layers|
    n_layer|ffn_mult|mixture|word_embed_proj|sparse""",
    re.VERBOSE,
)


def read_config(path: str | Path) -> dict:
    """The object that a config file holds."""
    try:
        config = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RFabricError(f"model config {path}: {error}") from error
    if not isinstance(config, dict):
        raise RFabricError(f"model config {path}: holds no object; give a Hugging Face config.json")
    return config


class Fields:
    """The fields of a config, under any spelling; `used` grows by those that were asked for."""

    def __init__(self, config: dict, name: str):
        self.name, self.values, self.used = name, _flat(config), set()

    def raw(self, key: str, default: object = None) -> Any:
        """The field `key` as it stands; null counts as absent."""
        self.used.add(key)
        value = self.values.get(key)
        return default if value is None else value

    def said(self, fact: str) -> dict[str, object]:
        """The spellings of `fact` that the config has, with their values."""
        self.used.update(SPELLINGS[fact])
        return {key: _same(self.values[key]) for key in SPELLINGS[fact] if self.values.get(key) is not None}

    def get(self, fact: str, default: object = None) -> object:
        """The value of `fact`; RFabricError where two spellings of it disagree."""
        found = self.said(fact)
        if len({str(value) for value in found.values()}) > 1 and fact != "context":
            both = " and ".join(f"{key} {value!r}" for key, value in found.items())
            raise RFabricError(f"model {self.name}: {both} contradict each other; keep one")
        return next(iter(found.values()), default)

    def count(self, fact: str, default: int | None = None) -> int:
        """A whole number; RFabricError where it is another thing, or absent without a default."""
        value = self.get(fact, default)
        if value is None:
            raise RFabricError(
                f"model {self.name}: its config lacks {SPELLINGS[fact][0]}; give the published config.json"
            )
        if isinstance(value, bool) or not isinstance(value, int):
            key = next(iter(self.said(fact)))
            raise RFabricError(f"model {self.name}: {key} {value!r} must be a whole number above 0")
        return value

    def number(self, key: str, default: int = 0) -> int:
        """The whole number in the field `key`."""
        value = self.raw(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise RFabricError(f"model {self.name}: {key} {value!r} must be a whole number above 0")
        return value


def model_of(config: dict, name: str) -> Model:
    """The model that the fields of a config describe; RFabricError names what is not understood."""
    fields = Fields(config, name)
    kind = fields.raw("model_type")
    family = _family(fields, kind)
    shape = _shape(fields)
    mixing = _mixing(fields, family, shape)
    model = Model(
        name=name,
        **shape | mixing,
        gated=family.gated,
        tied=bool(fields.raw("tie_word_embeddings", family.tied)),
        **_windows(fields, family, shape["layers"]),
        next_layers=_next_layers(fields),
        stored=_stored(fields),
        **_published(fields),
    )
    return replace(
        model,
        **_vectors(family, model),
        notes=_notes(config) + _check_understood(fields, kind, _known(kind) is not None),
    )


def _notes(config: dict) -> tuple[str, ...]:
    apart = [key.removesuffix("_config") for key in ("vision_config", "audio_config") if config.get(key)]
    found = (f"its parts for {' and '.join(apart)} are not counted",) if apart else ()
    if config.get("index_topk"):
        found += (
            f"attention counts all tokens before one, not only the {config['index_topk']} that its indexer picks",
        )
    return found


def _known(kind: str) -> Family | None:
    names = kind, kind.removesuffix("_text")
    return next((found[name] for name in names for found in (FAMILIES, _FROM_VISION) if name in found), None)


def _mixing(fields: Fields, family: Family, shape: dict[str, int]) -> dict:
    """What mixes tokens and columns in the layers: attention of one kind or another, experts, what stands in their places."""
    experts, latent = _experts(fields, family, shape), _latent(fields)
    hybrid = _HYBRIDS[family.hybrid](fields, shape) if family.hybrid else {}
    sparse = hybrid.pop("sparse_layers", None)
    if sparse is not None and experts:
        experts = replace(experts, layers=sparse) if sparse else None
    if latent and fields.get("indexer"):
        hybrid["others"] = shape["layers"] * _indexer(fields, shape["hidden"], latent)
    if latent:
        hybrid |= {"head_dim": latent.nope + latent.rope, "kv_heads": shape["heads"]}
    if family.attention_gate:
        gates = hybrid.get("attention_layers", shape["layers"]) * shape["hidden"] * shape["heads"] * shape["head_dim"]
        hybrid["others"] = hybrid.get("others", 0) + gates
    return {"experts": experts, "latent": latent, **hybrid}


def _published(fields: Fields) -> dict[str, float]:
    """The parameters that its maker states, which the configs in traffic/models carry."""
    said = fields.raw("_published", {})
    return {f"published_{k.removeprefix('total_')}": v for k, v in said.items()} if isinstance(said, dict) else {}


def _flat(config: dict) -> dict:
    """A config with the part of its language model laid open, which multimodal models and some others nest."""
    for part in ("thinker_config", "text_config", "llm_config", "language_config"):
        inner = config.get(part)
        if isinstance(inner, dict):
            around = {key: config[key] for key in _AROUND if config.get(key) is not None}
            config = around | {key: value for key, value in inner.items() if value is not None or key not in around}
    flat = dict(config)
    for part in ("attn_config", "ffn_config"):
        inner = flat.pop(part, None)
        flat |= {key: value for key, value in inner.items() if key not in flat} if isinstance(inner, dict) else {}
    return flat


# What the class around a language model may say of it; the rest of its fields are those of encoders and of glue.
_AROUND = (
    "model_type", "tie_word_embeddings", "torch_dtype", "dtype", "quantization_config", "vocab_size", "max_position_embeddings",
    "text_config",
)  # fmt: skip


def _same(value: object) -> object:
    """The one value of a list that repeats it a layer, else the value as it is."""
    return value[0] if isinstance(value, list) and value and all(v == value[0] for v in value) else value


def _family(fields: Fields, kind: object) -> Family:
    if not isinstance(kind, str) or kind in _OTHERS or fields.raw("is_encoder_decoder", False):
        raise RFabricError(f"model {fields.name}: model_type {kind!r} is not modelled; {_families(kind)} are")
    return _as_configured(fields, _known(kind) or Family(gated=_is_gated(fields, kind), mixture=True))


_FROM_VISION = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen2_5_omni"), FAMILIES["qwen2"]),
    **dict.fromkeys(("qwen3_vl",), FAMILIES["qwen3"]),
    **dict.fromkeys(("qwen3_vl_moe", "qwen3_omni_moe"), FAMILIES["qwen3_moe"]),
    **dict.fromkeys(("mistral3", "llava", "pixtral"), FAMILIES["llama"]),
    **dict.fromkeys(("glm4v_moe", "Glm4vMoe"), FAMILIES["glm4_moe"]),
}


def _is_gated(fields: Fields, kind: str) -> bool:
    """Whether the MLP of an unknown class has a gate, which its activation tells: SiLU comes with one, ReLU without."""
    activation = fields.get("activation", "")
    activation = str(activation.get("name") if isinstance(activation, dict) else activation).lower()
    if "glu" in activation or activation in ("silu", "swish"):
        return True
    if activation.startswith("relu"):
        return False
    raise RFabricError(
        f"model {fields.name}: model_type {kind!r} is not modelled, and hidden_act {activation!r} does not tell whether its "
        f"MLP is gated; {_families(kind)} are"
    )


def _as_configured(fields: Fields, family: Family) -> Family:
    """The family with the switches that its config sets."""
    on = (
        fields.get("qkv_bias")
        if len(set(map(str, fields.said("qkv_bias").values()))) < 2
        else fields.raw("attention_bias")
    )
    if on is not None:
        family = replace(family, bias=(family.bias or _BIAS_KIND[_first_key(fields, "qkv_bias")]) if on else "")
    mlp = fields.said("mlp_bias")
    if mlp:
        family = replace(family, mlp_bias=bool(next(iter(mlp.values()))))
    if fields.raw("no_bias") is False:
        family = replace(family, bias="all", mlp_bias=True, norm_bias=True)
    if fields.raw("learned_pos_emb") is False or fields.raw("alibi", False):
        family = replace(family, learned=None)
    if fields.get("qk_norm") and not family.qk_norm and fields.raw("model_type") not in ("llama4", "llama4_text"):
        family = replace(family, qk_norm="wide" if family.norms == 1 else "head")
    if fields.raw("scale_qk") is not None:
        raise RFabricError(f"model {fields.name}: scale_qk is not modelled; leave it out")
    if fields.get("qk_norm") is False and "use_qk_norm" in fields.values:
        family = replace(family, qk_norm="")
    return replace(family, norms=_norms(fields, family))


_BIAS_KIND = dict.fromkeys(SPELLINGS["qkv_bias"], "all") | dict.fromkeys(
    ("use_qkv_bias", "add_qkv_bias", "qkv_bias"), "qkv"
)


def _first_key(fields: Fields, fact: str) -> str:
    return next(iter(fields.said(fact)))


def _norms(fields: Fields, family: Family) -> int:
    """Norms a layer; those of Falcon depend on how it was wired."""
    new, beside = fields.raw("new_decoder_architecture"), fields.raw("parallel_attn")
    if fields.raw("model_type") != "falcon":
        return family.norms
    return fields.number("num_ln_in_parallel_attn", 2) if new else 1 if beside or beside is None else 2


def _shape(fields: Fields) -> dict[str, int]:
    """The counts every decoder has."""
    layers = fields.count("layers")
    hidden, heads = fields.get("hidden"), fields.get("heads")
    for fact in ("hidden", "heads"):
        if not set(SPELLINGS[fact]) & set(fields.values):
            raise RFabricError(
                f"model {fields.name}: its config lacks {SPELLINGS[fact][0]}; give the published config.json"
            )
    wrong = [v for v in (hidden, heads) if isinstance(v, bool) or not isinstance(v, int) or v < 1]
    if wrong:
        raise RFabricError(f"model {fields.name}: hidden_size and num_attention_heads must be whole numbers above 0")
    if fields.raw("word_embed_proj_dim", hidden) != hidden:
        raise RFabricError(f"model {fields.name}: word_embed_proj_dim is not modelled beside hidden_size {hidden}")
    return {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": _kv_heads(fields, heads),
        "head_dim": fields.count("head_dim", hidden // heads),
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
    """Columns of the MLP; older models give a ratio, or mean four times as many as the hidden size."""
    expansion = fields.raw("expansion_ratio")
    if fields.get("dense_columns"):
        fields.get("intermediate")
        return fields.count("dense_columns")
    older = fields.raw("model_type") in ("gpt2", "gpt_bigcode", "bloom", "falcon", "mpt", "gptj")
    default = int((expansion or 4) * hidden) if expansion or older else None
    return fields.count("intermediate", default or fields.get("expert_columns"))


def _latent(fields: Fields) -> Latent | None:
    """The compressed attention of DeepSeek-V2 and after."""
    ranks = {key: fields.number(key) for key in _LATENT}
    if not ranks["kv_lora_rank"] or fields.raw("use_mla") is False:
        fields.raw("q_lora_rank")
        return None
    lacks = [key for key in _LATENT[1:] if not ranks[key]]
    if lacks:
        raise RFabricError(f"model {fields.name}: its config has kv_lora_rank, but lacks {', '.join(lacks)}")
    return Latent(fields.number("q_lora_rank"), *ranks.values())


def _indexer(fields: Fields, hidden: int, latent: Latent) -> int:
    """Parameters of one layer's indexer, which picks the tokens that sparse attention (DeepSeek-V3.2) then looks at.

    Queries from the compressed ones, one key, a weight a head and a norm with bias: DeepSeek-V3.2-Exp inference/model.py, Indexer.
    """
    heads, width = fields.count("indexer"), fields.number("index_head_dim", 128)
    fields.raw("index_topk")
    return (latent.query_rank or hidden) * heads * width + hidden * (width + heads) + 2 * width


_LATENT = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def _experts(fields: Fields, family: Family, shape: dict[str, int]) -> Experts | None:
    """The mixtures of a config, where it has some."""
    said = fields.get("experts")
    if said is None or (
        said in (0, 1) and not isinstance(said, bool) and fields.raw("model_type") not in _ALWAYS_MIXED
    ):
        for fact in ("per_token", "expert_columns", "shared_columns", "shared"):
            fields.said(fact)
        return None
    if not family.mixture:
        keys = " and ".join(fields.said("experts"))
        raise RFabricError(f"model {fields.name}: model_type {fields.raw('model_type')!r} with {keys} is not modelled")
    fields.number("n_group")
    columns = fields.count("expert_columns", fields.count("intermediate", 0) or shape["intermediate"])
    sparse = _sparse_layers(fields, shape["layers"])
    return Experts(
        count=fields.count("experts"),
        per_token=fields.count("per_token"),
        intermediate=columns,
        layers=len(sparse),
        shared=_shared(fields, columns),
        shared_gate=family.shared_gate and bool(_shared(fields, columns)),
        biased=family.expert_bias,
        router_bias=family.router_bias,
    )


_ALWAYS_MIXED = ("qwen2_moe", "qwen3_moe", "mixtral")


def _shared(fields: Fields, columns: int) -> int:
    """Columns of the experts that every token passes."""
    if fields.raw("model_type") in ("llama4", "llama4_text"):
        return columns
    each = fields.get("shared_columns")
    number = fields.get("shared")
    if isinstance(each, int) and each:
        return each
    return fields.count("shared", 0) * columns if number else 0


def _sparse_layers(fields: Fields, layers: int) -> list[int]:
    """Which layers have experts, told in one of five ways: transformers, the decoder layers of the families named."""
    step = fields.raw("decoder_sparse_step", 1)  # Qwen
    dense = fields.raw("mlp_only_layers", [])
    if isinstance(step, bool) or not isinstance(step, int) or step < 1 or not isinstance(dense, list):
        raise RFabricError(
            f"model {fields.name}: decoder_sparse_step {step!r} must be a whole number above 0, mlp_only_layers {dense!r} a list"
        )
    first = fields.number("first_k_dense_replace") or fields.number("moe_layer_start_index")  # DeepSeek, GLM, ERNIE
    last = fields.number("moe_layer_end_index", -1)
    every = _same(fields.raw("moe_layer_freq", 1))
    if isinstance(every, list):  # a 1 for each layer with experts
        return [i for i, one in enumerate(every) if one]
    every = max(1, every, fields.number("moe_layer_interval", 1))
    apart = fields.number("interleave_moe_layer_step", 1)  # Llama 4: the last of each so many
    listed = fields.raw("moe_layers")
    if isinstance(listed, list) and listed:
        return listed
    ends = range(first, layers if last < 0 else min(layers, last + 1))
    return [i for i in ends if (i + 1) % step == 0 and i not in dense and i % every == 0 and (i + 1) % apart == 0]


def _windows(fields: Fields, family: Family, layers: int) -> dict[str, int]:
    """How far back layers with a window see, and how many there are."""
    window = fields.raw("sliding_window") or fields.raw("attention_chunk_size") or 0
    every = fields.raw("sliding_window_pattern")
    kinds = fields.raw("layer_types", [])
    used = fields.raw("use_sliding_window", True)
    strange = (
        sorted({str(kind) for kind in kinds} - {"full_attention", "attention", *_WINDOWED, *_LINEAR}) if kinds else []
    )
    if strange or (_LINEAR & set(kinds) and not family.hybrid):
        raise RFabricError(f"model {fields.name}: layer_types {', '.join(strange or _LINEAR)} is not modelled")
    if not window or not used or isinstance(window, list):
        return {}
    if kinds:
        number = sum(kind in _WINDOWED for kind in kinds)
    else:
        every = every if isinstance(every, int) and not isinstance(every, bool) and every else family.window_every
        number = layers if every == 1 else layers - layers // every
    return {"window": int(window), "windowed": number} if number else {}


_WINDOWED, _LINEAR = {"sliding_attention", "chunked_attention"}, {"linear_attention"}


def _mamba(fields: Fields, shape: dict[str, int]) -> dict[str, int]:
    """Nemotron-H: one block a layer, which a letter tells: M for Mamba-2, * for attention, - for an MLP, E for experts."""
    pattern = str(fields.raw("hybrid_override_pattern", ""))
    if len(pattern) != shape["layers"] or set(pattern) - set("M*-E") or "*" not in pattern:
        raise RFabricError(
            f"model {fields.name}: hybrid_override_pattern {pattern!r} must tell each of {shape['layers']} layers by M, *, - or "
            f"E, and one at least by *"
        )
    heads, state = fields.number("mamba_num_heads"), fields.number("ssm_state_size")
    groups, kernel, expand = fields.number("n_groups", 1), fields.number("conv_kernel", 4), fields.raw("expand")
    inner = heads * fields.number("mamba_head_dim") or int(expand or 2) * shape["hidden"]
    mixed = inner + 2 * groups * state  # what passes the convolution: x, B and C
    one = shape["hidden"] * (inner + mixed + heads) + inner * shape["hidden"] + mixed * (kernel + 1) + 3 * heads + inner
    blocks = pattern.count("M")
    return {
        "attention_layers": pattern.count("*"),
        "mlp_layers": pattern.count("-"),
        "sparse_layers": pattern.count("E"),
        "others": blocks * one,
        "state_bytes": blocks * 2 * (inner * state + mixed * kernel),
    }


def _delta(fields: Fields, shape: dict[str, int]) -> dict[str, int]:
    """Qwen3-Next: attention in each n-th layer, a gated delta net in the others."""
    kinds, layers = fields.raw("layer_types", []), shape["layers"]
    attention = kinds.count("full_attention") if kinds else layers // fields.number("full_attention_interval", 4)
    fields.raw("full_attention_interval")
    keys = fields.number("linear_num_key_heads") * fields.number("linear_key_head_dim")
    heads, width = fields.number("linear_num_value_heads"), fields.number("linear_value_head_dim")
    kernel, values = fields.number("linear_conv_kernel_dim"), heads * width
    one = shape["hidden"] * (2 * keys + 3 * values + 2 * heads) + kernel * (2 * keys + values) + 2 * heads + width
    state = heads * fields.number("linear_key_head_dim") * width + kernel * (2 * keys + values)
    blocks = layers - attention
    return {"attention_layers": attention, "others": blocks * one, "state_bytes": 2 * blocks * state}


_HYBRIDS = {"mamba": _mamba, "delta": _delta}


def _vectors(family: Family, m: Model) -> dict[str, int]:
    """Norms and biases: in all layers, outside of them, and rows of learned positions."""
    norm = m.hidden * (1 + family.norm_bias)
    own = m.layers - (m.experts.layers if m.experts else 0) if m.mlp_layers is None else m.mlp_layers
    mlp = ((1 + m.gated) * m.intermediate + m.hidden) * own if family.mlp_bias else 0
    return {
        "vectors": m.layers * family.norms * norm + m.kv_layers * _attention_vectors(family, m) + mlp,
        "once": norm * ((family.norms > 0) + family.embedding_norm) + (m.vocab if family.head_bias else 0),
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


def _next_layers(fields: Fields) -> int:
    value = fields.get("next_layers", 0)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _stored(fields: Fields) -> str:
    """How the published weights are stored, a key of STORED_BYTES."""
    quantised = fields.raw("quantization_config")
    if isinstance(quantised, dict):
        return _quantisation(quantised)
    return {"float32": "fp32", "float16": "fp16"}.get(str(fields.get("dtype", "")), "bf16")


def _quantisation(q: dict) -> str:
    method, algorithm = str(q.get("quant_method", "")).lower(), str(q.get("quant_algo", "")).lower()
    text = json.dumps(q).lower()
    if method in ("mxfp4", "fp8"):
        return "fp8_block" if method == "fp8" and q.get("weight_block_size") else method
    if "nvfp4" in algorithm or "nvfp4" in text:
        return "nvfp4"
    if "fp8" in algorithm or ('"num_bits": 8' in text and '"float"' in text):
        return "fp8"
    bits = q.get("bits") or q.get("w_bit") or (8 if '"num_bits": 8' in text else 4)
    return "int8" if bits == 8 else "int4"


def _check_understood(fields: Fields, kind: str, known: bool) -> tuple[str, ...]:
    """RFabricError naming the fields that change a shape and were not understood; notes on what was passed over."""
    rest = {k: v for k, v in fields.values.items() if k not in fields.used and v not in (None, False, 0, [], {}, "")}
    rest = {k: v for k, v in rest.items() if not _HARMLESS.fullmatch(k) and _same(v) not in (None, False)}
    if kind.startswith("minimax") and _same(rest.get("attn_type_list")) == 1:  # softmax attention in all layers
        del rest["attn_type_list"]
    bad = [key for key in rest if not known or _CHANGES.search(key)]
    if bad:
        said = ", ".join(f"{key} {_short(rest[key])}" for key in bad)
        raise RFabricError(
            f"model {fields.name}: model_type {kind!r} with {said} is not modelled: what that changes is not known; "
            f"{_families(kind)} are, with the fields of their published configs"
        )
    return () if known else (f"model_type {kind} is not known by name: read as its fields say",)


def _families(kind: object) -> str:
    """The model types that are read, those like `kind` first."""
    like = difflib.get_close_matches(str(kind), FAMILIES, n=4, cutoff=0.0)
    return f"{', '.join(like)} and {len(FAMILIES) - len(like)} more"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."

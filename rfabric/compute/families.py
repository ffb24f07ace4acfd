"""The families of decoders in use: what the class of a model type does and no field of its config
tells.

Source: the classes in transformers.
"""

import difflib
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Family:
    """What a class of models does where its config is silent.

    bias: of `qkv`, of `all` four projections of attention, or none; a config may switch it.
    mlp_bias: so the MLP.
    norms: a layer, each with a bias where `norm_bias`; qk_norm: one weight a column of a `head`, or
    of all heads (`wide`).
    learned: a table of positions, so many rows longer than the context. window_every: each n-th
    layer sees all, 1: none does.
    shared_gate, router_bias, sinks, attention_gate, head_bias, embedding_norm: parameters that only
    such classes have.
    hybrid: what stands in the place of attention in some layers.
    head_dim: columns of a head; 0: the hidden size over the heads.
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
    head_dim: int = 0


_LLAMA = Family()
_QWEN3 = Family(qk_norm="head")
# Qwen3-Next and after: attention with an output gate, a gated delta net in most layers.
_QWEN3_5 = Family(
    qk_norm="head", mixture=True, shared_gate=True, attention_gate=True, hybrid="delta"
)
_DEEPSEEK = Family(mixture=True, router_bias=True)
_GPT = Family(gated=False, bias="all", mlp_bias=True, norm_bias=True, tied=True, learned=0)
_COHERE = Family(norms=1, tied=True, window_every=4)
_GEMMA3 = Family(norms=4, qk_norm="head", tied=True, window_every=6, head_dim=256)
_GLM = Family(bias="qkv", norms=4)

FAMILIES = {
    **dict.fromkeys(
        ("llama", "mistral", "ministral", "granite", "smollm3", "baichuan", "yi", "phi3"), _LLAMA
    ),
    **dict.fromkeys(("internlm2", "internlm3"), _LLAMA),
    **dict.fromkeys(("mixtral", "granitemoe", "granitemoeshared"), Family(mixture=True)),
    "granitemoehybrid": Family(mixture=True, hybrid="granite"),
    "seed_oss": Family(bias="qkv"),
    **dict.fromkeys(("qwen2", "mimo"), Family(bias="qkv")),
    "qwen2_moe": Family(bias="qkv", mixture=True, shared_gate=True),
    "qwen3": replace(_QWEN3, head_dim=128),
    "qwen3_moe": replace(_QWEN3, mixture=True),
    "qwen3_next": _QWEN3_5,
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe"), _QWEN3_5),
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
    "gemma": Family(tied=True, head_dim=256),
    "gemma2": Family(norms=4, tied=True, window_every=2, head_dim=256),
    "gemma3_text": _GEMMA3,
    "gemma3": _GEMMA3,
    **dict.fromkeys(("gemma4_text", "gemma4"), replace(_GEMMA3, mixture=True)),
    "nemotron-nas": Family(hybrid="blocks"),
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
}
_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "num_key_value_heads",
    "sliding_window",
)
# Not decoders of this shape, whatever their fields look like.
OTHERS = (
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

# What a class has where a config nested in another does not say it: saving leaves out there what is
# as the class has it.
CLASS_SIZES = {
    kind: dict(zip(_SIZES, sizes, strict=False))
    for kind, sizes in {
        "llama": (32000, 4096, 11008, 32, 32, 2048),
        "mistral": (32000, 4096, 14336, 32, 32, 131072, 8, 4096),
        "qwen2": (151936, 4096, 22016, 32, 32, 32768, 32),
        "gemma": (256000, 3072, 24576, 28, 16, 8192, 16),
        "gemma2": (256000, 2304, 9216, 26, 8, 8192, 4, 4096),
        "gemma3_text": (262208, 2304, 9216, 26, 8, 131072, 4, 4096),
    }.items()
}

_FROM_VISION = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen2_5_omni"), FAMILIES["qwen2"]),
    **dict.fromkeys(("qwen3_vl",), FAMILIES["qwen3"]),
    **dict.fromkeys(("qwen3_vl_moe", "qwen3_omni_moe"), FAMILIES["qwen3_moe"]),
    **dict.fromkeys(("mistral3", "llava", "pixtral"), FAMILIES["llama"]),
    "glm4v": FAMILIES["glm4"],
    **dict.fromkeys(("glm4v_moe", "Glm4vMoe"), FAMILIES["glm4_moe"]),
}


def known_family(kind: str) -> Family | None:
    """The family of a model type; None where no class of that name is known."""
    names = kind, kind.removesuffix("_text")
    return next(
        (table[name] for name in names for table in (FAMILIES, _FROM_VISION) if name in table), None
    )


def likely_families(kind: object) -> str:
    """The model types that are read, those like `kind` first."""
    like = difflib.get_close_matches(str(kind), FAMILIES, n=4, cutoff=0.0)
    return f"{', '.join(like)} and {len(FAMILIES) - len(like)} more"

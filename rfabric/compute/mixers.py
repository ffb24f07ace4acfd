"""What mixes tokens and columns in the layers of a config: latent attention, experts, state-space
layers in its place.
"""

from dataclasses import replace

from ..errors import RFabricError
from .config_fields import SPELLINGS, Fields
from .families import Family
from .models import BF16_BYTES, FP32_BYTES, Experts, Latent


def mixers_of(fields: Fields, family: Family, shape: dict[str, int]) -> dict:
    """What mixes tokens and columns in the layers: attention of one kind or another, experts, what
    stands in their places.
    """
    experts, latent = _experts(fields, family, shape), _latent(fields)
    hybrid = _HYBRIDS[family.hybrid](fields, shape) if family.hybrid else {}
    if hybrid.get("states"):
        hybrid["state_number"] = _state_number(fields)
    sparse = hybrid.pop("sparse_layers", None)
    if sparse is not None and experts:
        experts = replace(experts, layers=sparse) if sparse else None
    if latent and fields.get("indexer"):
        hybrid["others"] = shape["layers"] * _indexer(fields, shape["hidden"], latent)
    if latent:
        hybrid |= {"head_dim": latent.nope + latent.rope, "kv_heads": shape["heads"]}
    if family.attention_gate and fields.raw("attn_output_gate", True):
        gates = (
            hybrid.get("attention_layers", shape["layers"])
            * shape["hidden"]
            * shape["heads"]
            * shape["head_dim"]
        )
        hybrid["others"] = hybrid.get("others", 0) + gates
    return {"experts": experts, "latent": latent, **hybrid}


def _state_number(fields: Fields) -> int:
    """Bytes of a number in the states of a sequence, where engines take a config at its word: vLLM
    of Nemotron-H and Qwen3.5 (vllm/model_executor/models/config.py); else those of activations.
    """
    said = (fields.raw(key) for key in ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"))
    return FP32_BYTES if any(str(dtype).endswith("float32") for dtype in said) else BF16_BYTES


def _latent(fields: Fields) -> Latent | None:
    """The compressed attention of DeepSeek-V2 and after."""
    ranks = {key: fields.number(key) for key in _LATENT}
    if not ranks["kv_lora_rank"] or fields.raw("use_mla") is False:
        fields.raw("q_lora_rank")
        return None
    lacks = [key for key in _LATENT[1:] if not ranks[key]]
    if lacks:
        raise RFabricError(
            f"model {fields.name}: its config has kv_lora_rank, but lacks {', '.join(lacks)}"
        )
    return Latent(fields.number("q_lora_rank"), *ranks.values())


def _indexer(fields: Fields, hidden: int, latent: Latent) -> int:
    """Parameters of one layer's indexer, which picks the tokens that sparse attention
    (DeepSeek-V3.2) then looks at.

    Queries from the compressed ones, one key, a weight a head and a norm with bias:
    DeepSeek-V3.2-Exp inference/model.py, Indexer.
    """
    heads, width = fields.count("indexer"), fields.number("index_head_dim", 128)
    fields.raw("index_topk")
    return (latent.query_rank or hidden) * heads * width + hidden * (width + heads) + 2 * width


_LATENT = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def _experts(fields: Fields, family: Family, shape: dict[str, int]) -> Experts | None:
    """The mixtures of a config, where it has some; RFabricError where a class that always has them
    does not say how many, or how wide.
    """
    said = fields.get("experts")
    for fact, kinds in _TOLD.items():
        asked = fact == "experts" or said not in (None, 0)  # none need no columns
        if asked and fields.get(fact) is None and fields.raw("model_type") in kinds:
            raise RFabricError(
                f"model {fields.name}: its config lacks {' or '.join(SPELLINGS[fact][:3])}; give "
                "the published config.json"
            )
    if said is None or (
        said in (0, 1)
        and not isinstance(said, bool)
        and fields.raw("model_type") not in _ALWAYS_MIXED
    ):
        for fact in ("per_token", "expert_columns", "shared_columns", "shared"):
            fields.said(fact)
        return None
    if not family.mixture:
        keys = " and ".join(fields.said("experts"))
        raise RFabricError(
            f"model {fields.name}: model_type {fields.raw('model_type')!r} with "
            f"{keys} is not modelled"
        )
    fields.number("n_group")
    columns = fields.count(
        "expert_columns", fields.count("intermediate", 0) or shape["intermediate"]
    )
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


# What configs of these classes say: else experts were none, or as wide as a dense MLP.
_OWN_COLUMNS = ("qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe")
_TOLD = {"experts": ("mixtral", "gpt_oss", *_OWN_COLUMNS), "expert_columns": _OWN_COLUMNS}
_ALWAYS_MIXED = ("qwen2_moe", "qwen3_moe", "mixtral")


def _shared(fields: Fields, columns: int) -> int:
    """Columns of the experts that every token passes."""
    if fields.raw("model_type") in ("llama4", "llama4_text"):
        return columns
    number = fields.count("shared", 0)
    return fields.count("shared_columns", 0) or number * columns


def _sparse_layers(fields: Fields, layers: int) -> list[int]:
    """Which layers have experts, told in one of five ways: transformers, the decoder layers of the
    families named.
    """
    step = fields.raw("decoder_sparse_step", 1)  # Qwen
    dense = fields.raw("mlp_only_layers", [])
    if (
        isinstance(step, bool)
        or not isinstance(step, int)
        or step < 1
        or not isinstance(dense, list)
    ):
        raise RFabricError(
            f"model {fields.name}: decoder_sparse_step {step!r} must be a whole number above "
            f"0, mlp_only_layers {dense!r} a list"
        )
    # DeepSeek, GLM, ERNIE
    first = fields.number("first_k_dense_replace") or fields.number("moe_layer_start_index")
    last = fields.number("moe_layer_end_index", -1)
    if isinstance(fields.raw("moe_layer_freq"), list):  # a 1 for each layer with experts
        return [i for i, one in enumerate(fields.each("moe_layer_freq", layers)) if one]
    every = max(1, fields.number("moe_layer_freq", 1), fields.number("moe_layer_interval", 1))
    # Llama 4: the last of each so many
    apart = max(1, fields.number("interleave_moe_layer_step", 1))
    listed = fields.raw("moe_layers")
    if isinstance(listed, list) and listed:
        if any(type(i) is not int or not 0 <= i < layers for i in listed):
            raise RFabricError(
                f"model {fields.name}: moe_layers {listed!r:.60} must be layers, 0 to {layers - 1}"
            )
        return listed
    ends = range(first, layers if last < 0 else min(layers, last + 1))
    return [
        i
        for i in ends
        if (i + 1) % step == 0 and i not in dense and i % every == 0 and (i + 1) % apart == 0
    ]


def _mamba(fields: Fields, shape: dict[str, int]) -> dict[str, int]:
    """Nemotron-H: one block a layer, which a letter tells: M for Mamba-2, * for attention, - for an
    MLP, E for experts.
    """
    pattern = str(fields.raw("hybrid_override_pattern", ""))
    if len(pattern) != shape["layers"] or set(pattern) - set("M*-E") or "*" not in pattern:
        raise RFabricError(
            f"model {fields.name}: hybrid_override_pattern {pattern!r} must tell each of "
            f"{shape['layers']} layers by M, *, - or E, and one at least by *"
        )
    heads, state = fields.number("mamba_num_heads"), fields.number("ssm_state_size")
    groups = fields.number("n_groups", 1)
    kernel = fields.number("conv_kernel", 4)
    expand = fields.raw("expand")
    inner = heads * fields.number("mamba_head_dim") or int(expand or 2) * shape["hidden"]
    return {
        "attention_layers": pattern.count("*"),
        "mlp_layers": pattern.count("-"),
        "sparse_layers": pattern.count("E"),
        **_mamba2(pattern.count("M"), shape["hidden"], inner, heads, groups * state, kernel, state),
    }


def _mamba2(
    blocks: int, hidden: int, inner: int, heads: int, shared: int, kernel: int, state: int
) -> dict[str, int]:
    """Parameters of so many Mamba-2 blocks, and what they hold of a sequence; shared: columns of B,
    as many of C.
    """
    mixed = inner + 2 * shared  # what passes the convolution: x, B and C
    one = (
        hidden * (inner + mixed + heads) + inner * hidden + mixed * (kernel + 1) + 3 * heads + inner
    )
    held = {"states": blocks * inner * state, "convolved": blocks * mixed * kernel}
    return {"others": blocks * one, **held}


def _granite(fields: Fields, shape: dict[str, int]) -> dict[str, int]:
    """Granite 4: attention or Mamba-2 in a layer, the latter where it does not say, and its MLP in
    all.
    """
    kinds = fields.each("layer_types", shape["layers"]) or ["mamba"] * shape["layers"]
    heads, state = fields.number("mamba_n_heads"), fields.number("mamba_d_state")
    groups, kernel = fields.number("mamba_n_groups", 1), fields.number("mamba_d_conv", 4)
    inner = fields.number("mamba_expand", 2) * shape["hidden"]
    for key in ("d_head", "chunk_size", "conv_bias", "proj_bias"):
        fields.raw(f"mamba_{key}")
    blocks = sum(kind in ("mamba", "linear_attention") for kind in kinds)  # transformers 4, and 5
    made = _mamba2(blocks, shape["hidden"], inner, heads, groups * state, kernel, state)
    return {"attention_layers": shape["layers"] - blocks, **made}


def _delta(fields: Fields, shape: dict[str, int]) -> dict[str, int]:
    """Qwen3-Next: attention in each n-th layer, a gated delta net in the others."""
    layers = shape["layers"]
    kinds = fields.each("layer_types", layers)
    attention = (
        kinds.count("full_attention")
        if kinds
        else layers // max(1, fields.number("full_attention_interval", 4))
    )
    fields.raw("full_attention_interval")
    keys = fields.number("linear_num_key_heads") * fields.number("linear_key_head_dim")
    heads, width = fields.number("linear_num_value_heads"), fields.number("linear_value_head_dim")
    kernel, values = fields.number("linear_conv_kernel_dim"), heads * width
    one = (
        shape["hidden"] * (2 * keys + 3 * values + 2 * heads)
        + kernel * (2 * keys + values)
        + 2 * heads
        + width
    )
    state = heads * fields.number("linear_key_head_dim") * width
    blocks = layers - attention
    return {
        "attention_layers": attention,
        "others": blocks * one,
        "states": blocks * state,
        "convolved": blocks * kernel * (2 * keys + values),
    }


def _blocks(fields: Fields, shape: dict[str, int]) -> dict[str, int]:
    """Llama-Nemotron: some layers without attention, some without an MLP."""
    counts = {
        key: fields.number(key, shape["layers"]) for key in ("attention_layers", "mlp_layers")
    }
    wrong = [key for key, count in counts.items() if not 0 < count <= shape["layers"]]
    if wrong:
        raise RFabricError(
            f"model {fields.name}: {wrong[0]} must be 1 to {shape['layers']}, its layers"
        )
    return counts


_HYBRIDS = {"mamba": _mamba, "granite": _granite, "delta": _delta, "blocks": _blocks}

"""Configs of architectures that no other field of a Model says, restated as the nearest that is:
each with a note of what is approximated.

    restated(config, name)    (config, notes)

    hyper-connections, compressed attention   DeepSeek-V4: latent attention
    experts of a latent width                 Nemotron 3 Super and Ultra: narrower experts
    heads of two sizes                        Gemma 4, MiMo-V2: those of the layers that see all
    blocks of their own sizes                 Llama-Nemotron (NAS): their mean

Parameters come within 5 % of the published totals (tests/compute/test_models.py). What the fields
do: the classes of those names in transformers and beside the published configs.
"""

from collections.abc import Callable

from ..errors import RFabricError

Restated = tuple[dict, tuple[str, ...]]


def restated(config: dict) -> Restated:
    """The config as one of the families in `families`, and what that leaves out; itself where it
    needs no such reading. RFabricError names a field that such an architecture lacks.
    """
    kind = config.get("model_type")
    read = _KINDS.get(kind) if isinstance(kind, str) else None
    if read is None:
        return config, ()
    try:
        return read(dict(config))
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        why = f"lacks {error}" if isinstance(error, KeyError) else f"is none: {error}"
        raise RFabricError(f"model_type {kind!r}: its config {why}") from error


def _deepseek_v4(c: dict) -> Restated:
    """One key of `head_dim` for all heads, and an output in groups of low rank, whose parameters
    the columns of latent attention's values stand for; layers that see one key for `ratio` tokens.
    """
    if "compress_ratios" not in c:
        return c, ()
    heads, hidden, rope = c["num_attention_heads"], c["hidden_size"], c["qk_rope_head_dim"]
    nope = rank = c["head_dim"] - rope
    output = c["o_lora_rank"] * (heads * c["head_dim"] + c["o_groups"] * hidden)
    value = round((output - rank * heads * nope) / (heads * (rank + hidden)))
    layers = c["num_hidden_layers"]
    ratios = [ratio for ratio in c["compress_ratios"][:layers] if ratio]
    whole = max(1, round(sum(1 / ratio for ratio in ratios)))
    for key in ("hc_mult", "hc_sinkhorn_iters", "hc_eps", "o_groups", "o_lora_rank", "head_dim"):
        c.pop(key, None)
    for key in ("index_n_heads", "index_head_dim", "index_topk", "num_hash_layers"):
        c.pop(key, None)
    if c.pop("expert_dtype", None) == "fp4":
        c["quantization_config"] = {"quant_method": "mxfp4"}
    c.pop("compress_ratios")
    kinds = ["full_attention"] * whole + ["sliding_attention"] * (layers - whole)
    c |= {"model_type": "deepseek_v3", "kv_lora_rank": rank, "qk_nope_head_dim": nope}
    c |= {"v_head_dim": value, "layer_types": kinds}
    return c, (
        f"compressed attention is taken as latent attention of which {whole} of {layers} layers "
        f"see all tokens, as many as its compressed keys come to, and the others "
        f"{c.get('sliding_window')}; its indexer and hyper-connections are not counted",
    )


def _nemotron_h(c: dict) -> Restated:
    """Blocks by letter; experts that work on a latent width are as many narrower ones."""
    if blocks := c.pop("layers_block_type", None):
        letters = {"mamba": "M", "moe": "E", "attention": "*", "mlp": "-"}
        c["hybrid_override_pattern"] = "".join(letters[block] for block in blocks)
        c.setdefault("num_hidden_layers", len(blocks))
    c.pop("mtp_layers_block_type", None)
    c.pop("mtp_hybrid_override_pattern", None)
    latent = c.pop("moe_latent_size", None)
    if not latent:
        return c, ()
    hidden = c["hidden_size"]
    c["moe_intermediate_size"] = round(c["moe_intermediate_size"] * latent / hidden)
    # into the latent width and back: as many parameters as an ungated MLP of its columns
    c["moe_shared_expert_intermediate_size"] += latent
    return c, (
        f"experts of a latent width of {latent} are taken as narrower experts of {hidden}: their "
        f"parameters and FLOPs are the same, tokens travel to them with {hidden / latent:g} times "
        "the bytes",
    )


def _gemma4(c: dict) -> Restated:
    """Heads of full attention may be larger than those of a window; an MLP beside the experts."""
    notes: tuple[str, ...] = ()
    wide, own = c.pop("global_head_dim", None), c.get("head_dim")
    heads = c.pop("num_global_key_value_heads", None)
    if wide and heads and wide != own:
        c["num_key_value_heads"] = heads * wide // own
        notes = (
            f"heads of full attention, {heads} of {wide} columns, are taken as "
            f"{heads * wide // own} of {own}: as much cache, fewer FLOPs",
        )
    for key in ("attention_k_eq_v", "vocab_size_per_layer_input", "use_bidirectional_attention"):
        c.pop(key, None)
    if c.pop("enable_moe_block", False):
        c["num_experts_per_tok"] = c.pop("top_k_experts")
        c["shared_expert_intermediate_size"] = c["intermediate_size"]
    return c, notes


def _mimo_v2(c: dict) -> Restated:
    """Keys of one width, values of another; windowed layers with heads of their own."""
    keys, values, pattern = c["head_dim"], c.pop("v_head_dim"), c.pop("hybrid_layer_pattern")
    c = {key: value for key, value in c.items() if not key.startswith(("swa_", "add_"))}
    c.pop("sliding_window_size", None)
    c.pop("attention_chunk_size", None)
    kinds = ["sliding_attention" if windowed else "full_attention" for windowed in pattern]
    c |= {"model_type": "deepseek_v3", "head_dim": (keys + values) // 2, "layer_types": kinds}
    return c, (
        f"keys of {keys} columns and values of {values} are taken as {(keys + values) // 2} each; "
        "layers with a window have the heads of those without",
    )


def _blocks(c: dict) -> Restated:
    """Blocks without attention, MLPs of their own widths: the mean over those that have one."""
    if "block_configs" not in c:
        return c, ()
    blocks, hidden = c.pop("block_configs"), c["hidden_size"]
    with_attention = [b["attention"] for b in blocks if b["attention"]["n_heads_in_group"]]
    widths = [b["ffn"]["ffn_mult"] for b in blocks if b["ffn"]["ffn_mult"]]
    columns = [-(-int(2 * width * hidden / 3) // 256) * 256 for width in widths]
    c |= {
        "intermediate_size": round(sum(columns) / len(columns) / 256) * 256,
        "num_key_value_heads": c["num_attention_heads"] // with_attention[0]["n_heads_in_group"],
        "attention_layers": len(with_attention),
        "mlp_layers": len(columns),
    }
    return c, (
        f"{len(with_attention)} of {len(blocks)} layers have attention; MLPs of their own widths "
        f"are taken as their mean, {c['intermediate_size']} columns",
    )


def _granite_hybrid(c: dict) -> Restated:
    """Where there are no experts, each layer has the MLP that is shared beside them elsewhere."""
    if not c.get("num_local_experts") and (columns := c.pop("shared_intermediate_size", None)):
        c["intermediate_size"] = columns
    return c, ()


_KINDS: dict[str, Callable[[dict], Restated]] = {
    "deepseek_v4": _deepseek_v4,
    "nemotron_h": _nemotron_h,
    "granitemoehybrid": _granite_hybrid,
    "gemma4_text": _gemma4,
    "gemma4": _gemma4,
    "mimo_v2_flash": _mimo_v2,
    "nemotron-nas": _blocks,
}

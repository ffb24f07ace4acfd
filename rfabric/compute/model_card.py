"""The card of a model: parameters, bytes and FLOPs, its share on each GPU of an engine, and the
GPUs it fits.

>>> from rfabric.compute.named import find_model
>>> model_card(find_model("Qwen3-32B"), Layout(tp=4), context=4096)["kv_bytes_per_token"]
262144

Keys carry their units. FLOPs of prefill and training are those of a token in a sequence of
`context` tokens, on average; of decode those of the token after it.
"""

from ..errors import RFabricError
from . import memory
from .gpus import GPUS, Gpu
from .layout import Layout
from .models import STORED_BYTES, Model

DEFAULT_CONTEXT = 4096


def model_card(
    model: Model, layout: Layout = Layout(), context: int | None = None, precision: str = "bf16"
) -> dict:
    """All that is known of a model, as one JSON document, with the share of a GPU of an engine of
    this layout: experts are cut over its tp GPUs, or over ep where these are more. RFabricError
    where the layout or the context does not suit the model.
    """
    tokens = context or min(DEFAULT_CONTEXT, model.context)
    check_layout(model, layout, tokens, precision)
    return {
        "model": model.name,
        "shape": _shape(model),
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "expert_parameters": model.expert_parameters,
        "embedding_parameters": model.vocab * model.hidden * (1 if model.tied else 2),
        "mtp_parameters": model.mtp_parameters,
        "precision": precision,
        "weight_bytes": model.weight_bytes_at(precision),
        "published_precision": model.stored,
        "published_weight_bytes": model.stored_bytes,
        "layer_weight_bytes": _layers(model, precision),
        "kv_bytes_per_token": model.kv_bytes_per_token,
        "context_tokens": tokens,
        "kv_bytes_at_context": model.kv_bytes(tokens),
        "prefill_flops_per_token": model.forward_flops(tokens, tokens**2) / tokens,
        "decode_flops_per_token": model.decode_flops(tokens),
        "training_flops_per_token": model.training_flops(tokens, tokens**2) / tokens,
        "split": _share(model, layout, precision),
        "gpus": {gpu.name: _on(model, gpu, layout, tokens, precision) for gpu in GPUS.values()},
        "notes": list(model.notes),
    }


def check_layout(model: Model, layout: Layout, tokens: int, precision: str) -> None:
    """RFabricError naming what of a layout or context does not suit the model, and what does."""
    if precision not in STORED_BYTES:
        raise RFabricError(
            f"precision {precision!r} is not known; use one of {', '.join(STORED_BYTES)}"
        )
    if tokens > model.context:
        raise RFabricError(
            f"context: {tokens} exceeds the {model.context} tokens of {model.name}; use "
            f"{model.context} at most"
        )
    if model.heads % layout.tp:
        raise RFabricError(
            f"tp: {layout.tp} does not divide the {model.heads} heads of {model.name}; use "
            f"{_near(layout.tp, model.heads)}"
        )
    if layout.pp > model.layers:
        raise RFabricError(
            f"pp: {layout.pp} exceeds the {model.layers} layers of {model.name}; use "
            f"{model.layers} at most"
        )
    if layout.ep > 1 and model.experts is None:
        raise RFabricError(
            f"ep: {layout.ep}, but {model.name} has no experts to deal out; leave it out"
        )
    if layout.ep > 1 and model.experts.count % layout.ep:
        near = _near(layout.ep, model.experts.count)
        raise RFabricError(
            f"ep: {layout.ep} does not divide the {model.experts.count} experts of "
            f"{model.name}; use {near}"
        )


def _near(value: int, of: int) -> int:
    """The divisor of `of` that is nearest to `value`."""
    return min((n for n in range(1, of + 1) if of % n == 0), key=lambda n: abs(n - value))


def _shape(m: Model) -> dict:
    told = {
        key: getattr(m, key)
        for key in ("layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab")
    }
    told |= {"context_tokens": m.context, "tied_embeddings": m.tied}
    if m.experts:
        told["experts"] = {
            key: getattr(m.experts, key)
            for key in ("count", "per_token", "intermediate", "shared", "layers")
        }
    if m.latent:
        told["latent_attention"] = {
            key: getattr(m.latent, key)
            for key in ("query_rank", "kv_rank", "nope", "rope", "value")
        }
    if m.windowed:
        told |= {"window_tokens": m.window, "windowed_layers": m.windowed}
    if m.kv_layers < m.layers:
        told |= {"attention_layers": m.kv_layers, "state_bytes_per_sequence": m.state_bytes}
    return told


def _layers(m: Model, precision: str) -> dict[str, float]:
    """Bytes of a layer, of each kind the model has."""
    sparse = m.experts.layers if m.experts else 0
    kinds = {
        "dense": sparse < m.layers and m.kv_layers == m.layers,
        "experts": sparse > 0 and m.kv_layers == m.layers,
    }
    if not any(kinds.values()):  # layers of several kinds: their mean
        return {"mean": STORED_BYTES[precision] * m.layer_mean}
    stored = STORED_BYTES["bf16" if precision == "mxfp4" else precision]
    bytes_of = {
        kind: stored * m.layer_parameters(kind == "experts")
        for kind, there in kinds.items()
        if there
    }
    if precision == "mxfp4" and kinds["experts"]:
        each = m.expert_parameters / sparse
        bytes_of["experts"] -= each * (stored - STORED_BYTES["mxfp4"])
    return bytes_of


def _ranks(layout: Layout) -> int:
    """How many GPUs share the experts."""
    return max(layout.tp, layout.expert_gpus)


def _share(m: Model, layout: Layout, precision: str) -> dict:
    tp, pp, ep = layout.tp, layout.pp, _ranks(layout)
    return {
        "tp": tp,
        "pp": pp,
        "ep": ep if m.experts else None,
        "weight_bytes_per_gpu": memory.engine_weight_bytes(m, tp, pp, ep, precision),
        "kv_bytes_per_token_per_gpu": memory.kv_bytes_per_gpu(m, tp, pp),
    }


def _on(m: Model, gpu: Gpu, layout: Layout, tokens: int, precision: str) -> dict:
    """How the model fits one kind of GPU; 0 tokens of KV cache: its weights do not fit at this
    layout.
    """
    room = memory.kv_capacity_tokens(
        m, gpu, layout.tp, memory.UTILISATION, layout.pp, _ranks(layout), precision, tokens
    )
    return {
        "hbm_bytes": gpu.hbm_bytes,
        "kv_capacity_tokens": max(room, 0),
        "fewest_gpus_to_serve": memory.fewest_gpus(m, gpu, tokens, precision=precision),
        "fewest_gpus_to_train": memory.fewest_training_gpus(m, gpu),
    }

"""Whether what generation asks for beyond plain replicas goes together: experts dealt out, FFN
and prompts apart, environments on CPU servers.
"""

from ..compute.ffn_apart import side_weight_bytes
from ..compute.memory import room_for_kv
from ..errors import RFabricError
from .sections import Environments
from .setup import Setup


def check_generation(w: Setup) -> None:
    """RFabricError naming what does not go together, and the way out."""
    _check_served_experts(w)
    _check_ffn(w)
    _check_prefill(w)
    _check_environments(w)


def _check_served_experts(w: Setup) -> None:
    g, experts = w.generation, w.model.experts
    if g.ep == 1:
        return
    if experts is None:
        raise RFabricError(
            f"generation.ep: {g.ep}, but {w.model.name} has no experts to deal out; leave it out"
        )
    if experts.count % g.ep:
        raise RFabricError(
            f"generation.ep: {g.ep} does not divide the {experts.count} experts of "
            f"{w.model.name}; use a divisor"
        )
    if g.ep % g.tp:
        raise RFabricError(
            f"generation.ep: {g.ep} is not a multiple of generation.tp {g.tp}, so that whole "
            f"attention replicas share the experts; use {multiple_near(g.ep, g.tp)}"
        )
    if g.ep > g.tp > w.gpus_per_server:
        raise RFabricError(
            f"generation.tp: {g.tp} is wider than a server of {w.gpus_per_server} GPUs, and so is "
            f"generation.ep {g.ep}; use tp {w.gpus_per_server} at most where experts are dealt out"
        )


def _check_ffn(w: Setup) -> None:
    g, ffn = w.generation, w.generation.ffn_gpus
    if not ffn:
        if g.attention_gpus:
            raise RFabricError(
                f"generation.attention_gpus: {g.attention_gpus}, but generation.ffn_gpus is 0, so "
                "that all GPUs of a replica attend; set ffn_gpus too, or leave it out"
            )
        return
    apart = "where the FFN stands on GPUs of its own (generation.ffn_gpus)"
    wrong = {
        f"placement: colocated has no replicas {apart}; use placement disaggregated": w.colocated,
        f"generation.ep: {g.ep} {apart}, which experts are dealt to; leave it out": g.ep > 1,
        f"generation.prefill_gpus: {g.prefill_gpus} {apart}; use 0": g.prefill_gpus,
        (
            f"generation.tp: {g.tp} is wider than a server of {w.gpus_per_server} GPUs {apart}; "
            f"use {w.gpus_per_server} at most"
        ): g.tp > w.gpus_per_server,
        (
            f"generation.attention_gpus: {g.attending} is not a multiple of generation.tp {g.tp}; "
            f"use {multiple_near(g.attending, g.tp)}"
        ): g.attending % g.tp,
    }
    for text, bad in wrong.items():
        if bad:
            raise RFabricError(text)
    _check_ffn_parts(w)


def _check_ffn_parts(w: Setup) -> None:
    """Experts and columns divide by the GPUs of the FFN, whose HBM holds them."""
    g, m, ffn = w.generation, w.model, w.generation.ffn_gpus
    parts = {f"{m.intermediate} columns of {m.name}'s MLP": m.intermediate}
    if m.experts:
        parts = {f"{m.experts.count} experts of {m.name}": m.experts.count}
        if m.experts.shared:
            parts[f"{m.experts.shared} columns of {m.name}'s shared expert"] = m.experts.shared
    for what, count in parts.items():
        if count % ffn:
            raise RFabricError(
                f"generation.ffn_gpus: {ffn} does not divide the {what}; use a divisor"
            )
    _, size = side_weight_bytes(m, g.tp, ffn, g.precision)
    if room_for_kv(w.generation_gpu, g.memory_utilisation, size) < 0:
        raise RFabricError(
            f"generation.ffn_gpus: {ffn} {w.generation_gpu.name} hold {size / 1e9:.1f} GB of "
            f"{m.name}'s MLPs and experts each, more than generation.memory_utilisation leaves; "
            "use more"
        )


def _check_prefill(w: Setup) -> None:
    g, all_gpus = w.generation, w.cluster.generation_gpus
    if not g.prefill_gpus:
        return
    if g.prefill_gpus % g.gpus or g.prefill_gpus >= all_gpus:
        fits = f"{g.gpus} or 0" if g.gpus < all_gpus else "0, or more cluster.generation_gpus"
        raise RFabricError(
            f"generation.prefill_gpus: {g.prefill_gpus} must be a multiple of the {g.gpus} GPUs "
            f"of a replica below the {all_gpus} that generate; use {fits}"
        )
    if g.gpus > w.gpus_per_server:
        raise RFabricError(
            f"generation.prefill_gpus: replicas of {g.gpus} GPUs leave servers of "
            f"{w.gpus_per_server}; use 0, or replicas inside a server"
        )
    if g.turns > 1 or w.pipeline == "async":
        what = f"{g.turns} turns" if g.turns > 1 else "pipeline async"
        raise RFabricError(
            f"generation.prefill_gpus: with {what} prompts come while others decode, and here all "
            "are read before; use 0"
        )


def _check_environments(w: Setup) -> None:
    """RFabricError for CPU servers that nothing is sent to, and for bytes and prices without
    servers.
    """
    e, g = w.environments, w.generation
    if e.servers and g.turns == 1 and not e.rewards:
        raise RFabricError(
            f"environments.servers: {e.servers} are asked for nothing, as responses have one turn "
            "and rewards are computed in place; set generation.turns or environments.rewards=true, "
            "or use 0"
        )
    asked = {
        "rewards": e.rewards,
        "observation_bytes": e.observation_bytes,
        "reward_bytes": e.reward_bytes,
    }
    paid = {"kind": e.kind != Environments.kind and e.kind, "usd_per_hour": e.usd_per_hour}
    for key, value in asked.items():
        if value and not e.servers:
            raise RFabricError(
                f"environments.{key}: {value} go to no server, as environments.servers is 0; say "
                "how many CPU servers there are, or leave it out"
            )
    for key, value in paid.items():
        if value and not e.servers:
            raise RFabricError(
                f"environments.{key}: {value} pays for no server, as environments.servers is 0; "
                "say how many CPU servers there are, or leave it out"
            )
    if e.reward_bytes and not e.rewards:
        raise RFabricError(
            f"environments.reward_bytes: {e.reward_bytes} of a call, but rewards are computed in "
            "place; set environments.rewards=true, or leave it out"
        )


def multiple_near(value: int, of: int) -> str:
    """The multiples of `of` next to `value`, in words."""
    below = value // of * of
    return f"{below} or {below + of}" if below else str(of)

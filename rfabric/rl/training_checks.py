"""Whether what training deals out divides: layers, experts, and copies of sharded parameters."""

import math

from ..errors import RFabricError
from .setup import Setup


def check_stages(w: Setup) -> None:
    """RFabricError unless each stage has layers, and stages that are told theirs have all."""
    t, m = w.training, w.model
    if t.pp * t.vp > m.layers:
        raise RFabricError(
            f"training.pp: {t.pp} stages x vp {t.vp} leave some without any of the "
            f"{m.layers} layers of {m.name}; use {m.layers} at most for both together"
        )
    if t.vp > 1 and t.pp == 1:
        raise RFabricError(
            f"training.vp: {t.vp} chunks a stage, but there is one stage (pp 1); leave it out"
        )
    if t.stage_layers is None:
        return
    said = ",".join(map(str, t.stage_layers[:_SHOWN])) + ",..." * (len(t.stage_layers) > _SHOWN)
    if len(t.stage_layers) != t.pp:
        raise RFabricError(
            f"training.stage_layers: {said} are {len(t.stage_layers)} stages, training.pp is "
            f"{t.pp}; write one number for each stage, or leave it out where all are alike"
        )
    if (total := sum(t.stage_layers)) != m.layers:
        raise RFabricError(
            f"training.stage_layers: {said} are {total} layers, {m.name} has {m.layers}; write "
            "numbers that add up to them, or leave it out where all are alike"
        )


_SHOWN = 16  # stages in an error


def check_experts(w: Setup) -> None:
    """RFabricError unless experts are dealt and cut evenly, and stages have whole copies."""
    t, experts = w.training, w.model.experts
    if experts is None:
        for key in ("ep", "etp"):
            if (ways := getattr(t, key)) > 1:
                raise RFabricError(
                    f"training.{key}: {ways}, but {w.model.name} has no experts to "
                    f"{'deal out' if key == 'ep' else 'cut'}; leave it out"
                )
        return
    if experts.count % t.ep:
        raise RFabricError(
            f"training.ep: {t.ep} does not divide the {experts.count} experts of "
            f"{w.model.name}; use a divisor"
        )
    if experts.intermediate % t.etp or w.gpus_per_server % t.etp:
        raise RFabricError(
            f"training.etp: {t.etp} must divide the {experts.intermediate} columns of "
            f"{w.model.name}'s experts and the {w.gpus_per_server} GPUs of a server; use a "
            f"divisor of {math.gcd(experts.intermediate, w.gpus_per_server)}"
        )
    if w.stage_gpus % t.expert_gpus:
        ways = f"{t.ep}" + (f" x etp {t.etp} = {t.expert_gpus}" if t.etp > 1 else "")
        raise RFabricError(
            f"training.ep: {ways} does not divide the tp {t.tp} x cp {t.cp} x {w.dp} "
            f"data-parallel ranks = {w.stage_gpus} GPUs of a pipeline stage; use a divisor of "
            f"{math.gcd(experts.count, w.stage_gpus // math.gcd(w.stage_gpus, t.etp))}"
        )


def check_copies(w: Setup) -> None:
    """RFabricError unless copies of sharded parameters are whole, with all experts, and gradients
    are sent where parameters are sharded alone in a way of theirs.
    """
    t, ranks = w.training, w.dp * w.training.cp
    if t.no_sync and (t.optimizer != "sharded" or w.copies > 1):
        what = (
            f"fsdp_size {t.fsdp_size}" if t.optimizer == "sharded" else f"optimizer {t.optimizer}"
        )
        raise RFabricError(
            "training.no_sync: true is of sharded parameters in one copy, and training."
            f"{what} is not that; leave it out"
        )
    if not t.fsdp_size:
        return
    if t.optimizer != "sharded":
        raise RFabricError(
            f"training.fsdp_size: {t.fsdp_size} ranks shard a copy of the parameters, which "
            f"training.optimizer {t.optimizer} does not shard; leave it out, or use sharded"
        )
    if ranks % t.fsdp_size or t.tp * t.fsdp_size % t.expert_gpus:
        fit = [n for n in range(1, ranks + 1) if ranks % n == 0 and t.tp * n % t.expert_gpus == 0]
        experts = f" and hold ep {t.ep} x etp {t.etp}" if t.expert_gpus > 1 else ""
        raise RFabricError(
            f"training.fsdp_size: {t.fsdp_size} must divide the cp {t.cp} x {w.dp} data-parallel "
            f"ranks = {ranks}{experts}; use one of {', '.join(map(str, fit))}, or 0 for all"
        )

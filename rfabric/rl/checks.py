"""Whether a job fits its GPUs: parallelism divides, sequences fit the context, model and states fit the HBM."""

import math
from typing import TYPE_CHECKING

from ..errors import RFabricError
from . import memory
from .models import Model

if TYPE_CHECKING:
    from .workload import Workload

MOST_RESPONSES = 10**7  # each is drawn and played; a step of this many takes about a minute and a gigabyte


def check(workload: "Workload") -> None:
    """RFabricError naming the first thing that does not fit, its limit and the nearest setting that does."""
    _check_split(workload)
    _check_batch(workload)
    _check_memory(workload)


def _check_split(w: "Workload") -> None:
    server, c, t, g = w.gpus_per_server, w.cluster, w.training, w.generation
    if c.training_gpus % server:
        raise RFabricError(
            f"cluster.training_gpus: {c.training_gpus} is not a multiple of {server} GPUs a server, so a server would "
            f"train and generate; use {_multiple(c.training_gpus, server)}"
        )
    cut = _columns(w.model)
    kept = cut[:-1] if w.model.experts else cut  # in training, experts are dealt to ep GPUs whole
    for name, tp, columns in (("generation.tp", g.tp, cut), ("training.tp", t.tp, kept)):
        _check_tensor(name, tp, w.model, columns, server)
    if c.generation_gpus % g.tp:
        raise RFabricError(
            f"cluster.generation_gpus: {c.generation_gpus} is not a multiple of generation.tp {g.tp}; "
            f"use {_multiple(c.generation_gpus, g.tp)}"
        )
    product = t.tp * t.cp * t.pp
    if c.training_gpus % product:
        raise RFabricError(
            f"cluster.training_gpus: {c.training_gpus} is not a multiple of tp {t.tp} x cp {t.cp} x pp {t.pp} = "
            f"{product}; use {_multiple(c.training_gpus, product)}"
        )
    _check_experts(w)
    if w.model.layers % t.pp:
        raise RFabricError(
            f"training.pp: {t.pp} does not divide the {w.model.layers} layers of {w.model.name}; use a divisor"
        )
    if t.cp > 1 and server % (t.tp * t.cp):
        raise RFabricError(
            f"training.cp: tp {t.tp} x cp {t.cp} = {t.tp * t.cp} GPUs do not divide a server of {server}; context "
            f"parallelism is modelled inside a server only: use a smaller cp or tp"
        )


def _columns(model: Model) -> list[tuple[int, str]]:
    """The columns that tensor parallelism cuts and whose they are; those of experts, which only generation cuts, last."""
    experts = model.experts
    if experts is None:
        return [(model.intermediate, "MLP")]
    found = [(model.intermediate, "MLP")] if experts.layers < model.layers else []
    found += [(experts.shared, "shared expert")] if experts.shared else []
    return [*found, (experts.intermediate, "experts")]


def _check_experts(w: "Workload") -> None:
    t, experts = w.training, w.model.experts
    if experts is None:
        if t.ep > 1:
            raise RFabricError(f"training.ep: {t.ep}, but {w.model.name} has no experts to deal out; leave it out")
        return
    if experts.count % t.ep:
        raise RFabricError(
            f"training.ep: {t.ep} does not divide the {experts.count} experts of {w.model.name}; use a divisor"
        )
    if w.stage_gpus % t.ep:
        raise RFabricError(
            f"training.ep: {t.ep} does not divide the tp {t.tp} x cp {t.cp} x {w.dp} data-parallel ranks = "
            f"{w.stage_gpus} GPUs of a pipeline stage; use a divisor of {math.gcd(experts.count, w.stage_gpus)}"
        )


def _check_tensor(name: str, tp: int, model: Model, columns: list[tuple[int, str]], server: int) -> None:
    wrong = {
        f"does not divide the {model.heads} heads of {model.name}": lambda n: model.heads % n,
        **{
            f"does not divide the {width} columns of {model.name}'s {what}": lambda n, width=width: width % n
            for width, what in columns
        },
        f"neither divides nor is a multiple of a server's {server} GPUs": lambda n: server % n and n % server,
    }
    fits = [n for n in range(1, 65) if not any(is_wrong(n) for is_wrong in wrong.values())]
    for why, is_wrong in wrong.items():
        if is_wrong(tp):
            raise RFabricError(f"{name}: {tp} {why}; use one of {', '.join(map(str, fits))}")


def _check_batch(w: "Workload") -> None:
    g, t = w.generation, w.training
    longest = g.max_prompt + g.max_response
    if g.responses > MOST_RESPONSES:
        raise RFabricError(
            f"generation.batch: {g.batch} prompts x group_size {g.group_size} are {g.responses:,} responses a step; "
            f"{MOST_RESPONSES:,} at most are drawn, use a smaller batch"
        )
    if longest > w.model.context:
        raise RFabricError(
            f"generation.max_response: {g.max_response} after a prompt of {g.max_prompt} exceeds the context of "
            f"{w.model.name}, {w.model.context} tokens; use {w.model.context} at most for both together"
        )
    if longest > t.micro_batch_tokens * t.cp:
        raise RFabricError(
            f"training.micro_batch_tokens: {t.micro_batch_tokens} x cp {t.cp} cannot hold a sequence of {longest} "
            f"tokens (max_prompt + max_response); use {-(-longest // t.cp)} at least"
        )
    if g.batch % t.mini_batches:
        raise RFabricError(
            f"training.mini_batches: {t.mini_batches} does not divide generation.batch {g.batch}; use a divisor"
        )
    each = g.responses // t.mini_batches
    if each < w.dp:
        raise RFabricError(
            f"training.mini_batches: {t.mini_batches} leaves {each} responses an update for {w.dp} data-parallel "
            f"ranks; use a larger generation.batch or fewer mini_batches"
        )
    if g.batch < len(w.replicas):
        raise RFabricError(
            f"generation.batch: {g.batch} prompts leave some of the {len(w.replicas)} replicas idle; "
            f"use {len(w.replicas)} at least, or a larger generation.tp"
        )


def _check_memory(w: "Workload") -> None:
    g, t = w.generation, w.training
    longest = g.max_prompt + g.max_response
    if w.kv_capacity_tokens < longest:
        raise RFabricError(
            f"generation.tp: {g.tp} {w.gpu.name} hold {w.model.name} and {max(w.kv_capacity_tokens, 0)} tokens of KV "
            f"cache, one sequence may need {longest}; use a larger tp or a higher memory_utilisation"
        )
    need = memory.training_bytes(w.model, t, w.dp)
    total = sum(need.values())
    if total > w.gpu.hbm_bytes:
        parts = ", ".join(f"{name} {size / 1e9:.1f}" for name, size in need.items())
        raise RFabricError(
            f"training: {w.model.name} needs {total / 1e9:.1f} GB a GPU ({parts}), a {w.gpu.name} has "
            f"{w.gpu.hbm_bytes / 1e9:.0f} GB; {_more_memory(w)}"
        )


def _more_memory(w: "Workload") -> str:
    """The way out of a job that does not fit: full recomputation when that is enough, else more ranks a model."""
    t = w.training
    full = memory.training_bytes(w.model, t, w.dp, recompute="full")
    if sum(full.values()) <= w.gpu.hbm_bytes:
        return "use training.recompute=full, or a larger training.tp or pp"
    return f"use a larger training.tp{', training.ep' if w.model.experts else ''} or training.pp"


def _multiple(value: int, of: int) -> str:
    below = value // of * of
    return f"{below} or {below + of}" if below else str(of)

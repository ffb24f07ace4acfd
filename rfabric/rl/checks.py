"""Whether a job fits its GPUs: parallelism divides, sequences fit the context, model and states fit
the HBM.
"""

import math
from dataclasses import fields, replace

from ..compute import memory
from ..compute.models import Model
from ..errors import RFabricError
from .generation_checks import check_generation, multiple_near
from .popularity import check_skew
from .setup import Setup
from .training_checks import check_copies, check_experts, check_stages

# each response is drawn and played; a step of this many takes about a minute and a gigabyte
MOST_RESPONSES = 10**7

SLOWEST_NIC = 1e6  # bit/s: less is a number without its unit


def check(workload: Setup) -> None:
    """RFabricError naming what does not fit first, its limit and the nearest setting that does."""
    _check_pipeline(workload)
    _check_split(workload)
    _check_senders(workload)
    _check_batch(workload)
    _check_memory(workload)


def _check_pipeline(w: Setup) -> None:
    if w.staleness is not None and w.pipeline not in ("bounded-staleness", "async"):
        raise RFabricError(
            f"staleness: {w.staleness} has no meaning with pipeline {w.pipeline}, which is "
            f"{w.steps_ahead} updates behind; leave it out, or use pipeline bounded-staleness "
            "or async"
        )
    if w.ahead != w.steps_ahead and w.generation.prefill_gpus:
        raise RFabricError(
            f"staleness: {w.staleness} cuts batches in two, and generation.prefill_gpus "
            f"{w.generation.prefill_gpus} read whole ones; use {w.steps_ahead}, or 0 of them"
        )
    if not w.colocated:
        return
    if w.pipeline != "sync":
        raise RFabricError(
            f"placement: colocated GPUs train and generate in turn, so pipeline {w.pipeline} "
            f"gains nothing there; use pipeline sync, or placement disaggregated"
        )
    if w.generation_gpu is not w.gpu:
        raise RFabricError(
            f"generation.gpu: {w.generation.gpu} cannot be where placement is colocated, as "
            f"the {w.gpu.name} that train generate too; leave it out, or use placement "
            "disaggregated"
        )
    if w.cluster.generation_gpus != w.cluster.training_gpus:
        raise RFabricError(
            f"cluster.generation_gpus: {w.cluster.generation_gpus} must be the "
            f"{w.cluster.training_gpus} training_gpus where placement is colocated, as they "
            f"are the same GPUs; use {w.cluster.training_gpus}"
        )


_SENT_BY_ITSELF = {"p2p": "every training rank", "rank0": "data-parallel rank 0"}


def _check_senders(w: Setup) -> None:
    """Senders, and the NICs each stripes over, are there and are what the strategy asks for."""
    sync, t = w.weight_sync, w.training
    if sync.senders is None:
        if sync.nics > 1:
            raise RFabricError(
                f"weight_sync.nics: {sync.nics} are of each sender, and weight_sync.senders is "
                "not given; set weight_sync.senders too, or leave both out"
            )
        return
    if w.colocated:
        raise RFabricError(
            f"weight_sync.senders: {sync.senders} have no meaning with placement colocated, where "
            "each GPU takes over its own part; leave it out, or use placement disaggregated"
        )
    if sync.strategy in _SENT_BY_ITSELF:
        raise RFabricError(
            f"weight_sync.senders: {sync.senders}, but with strategy {sync.strategy} "
            f"{_SENT_BY_ITSELF[sync.strategy]} sends; leave it out, or use strategy flat"
        )
    _check_nics(w, w.cluster.training_gpus // t.pp)


def _check_nics(w: Setup, stage: int) -> None:
    sync = w.weight_sync
    # a stage may begin inside a server, and a sender's NICs are those of one
    if math.gcd(w.gpus_per_server, stage) % sync.nics:
        raise RFabricError(
            f"weight_sync.nics: {sync.nics} must divide the {w.gpus_per_server} GPUs of a server "
            f"and the {stage} of a stage, so that a sender's NICs are of one server; use a divisor"
        )
    # a server's part of experts or tensors that are dealt to several is held by its like alone
    wide = max(w.training.tp, w.training.expert_gpus)
    held = stage // max(1, -(-wide // w.gpus_per_server))
    if sync.senders * sync.nics > held:
        raise RFabricError(
            f"weight_sync.senders: {sync.senders} x {sync.nics} NICs exceed the {held} GPUs that "
            f"hold a part of the weights; use {max(1, held // sync.nics)} at most"
        )


def _check_split(w: Setup) -> None:
    server, c, t, g = w.gpus_per_server, w.cluster, w.training, w.generation
    cut = _columns(w.model)
    kept = cut[:-1] if w.model.experts else cut  # in training, etp cuts experts, and not tp
    served = [] if g.ffn_gpus else cut  # apart, the FFN is cut by its own GPUs
    for name, tp, columns in (("generation.tp", g.tp, served), ("training.tp", t.tp, kept)):
        _check_tensor(name, tp, w.model, columns, server)
    check_generation(w)
    if c.generation_gpus % g.gpus:
        name = "tp" if g.gpus == g.tp else "ep" if g.deals_experts else "attention_gpus + ffn_gpus"
        also = ", and as many training_gpus" if w.colocated else ""
        raise RFabricError(
            f"cluster.generation_gpus: {c.generation_gpus} is not a multiple of generation.{name} "
            f"{g.gpus}; use {multiple_near(c.generation_gpus, g.gpus)}{also}"
        )
    product = t.tp * t.cp * t.pp
    if c.training_gpus % product:
        raise RFabricError(
            f"cluster.training_gpus: {c.training_gpus} is not a multiple of tp {t.tp} x cp "
            f"{t.cp} x pp {t.pp} = {product}; use {multiple_near(c.training_gpus, product)}"
        )
    check_experts(w)
    check_copies(w)
    check_skew(w)
    check_stages(w)
    w.gpu.peak(t.precision)  # an error where its tensor cores lack that
    if t.context_exchange == "ulysses" and w.model.heads % (t.tp * t.cp):
        raise RFabricError(
            f"training.cp: ulysses deals the {w.model.heads // t.tp} heads of a tensor rank of "
            f"{w.model.name} to cp {t.cp}, which does not divide them; use one of "
            f"{_divisors(w.model.heads // t.tp)}"
        )


def _divisors(n: int) -> str:
    return ", ".join(str(d) for d in range(1, n + 1) if n % d == 0)


def _columns(model: Model) -> list[tuple[int, str]]:
    """The columns that tensor parallelism cuts and whose they are; those of experts, which only
    generation cuts, last.
    """
    experts = model.experts
    if experts is None:
        return [(model.intermediate, "MLP")]
    columns = [(model.intermediate, "MLP")] if experts.layers < model.layers else []
    columns += [(experts.shared, "shared expert")] if experts.shared else []
    return [*columns, (experts.intermediate, "experts")]


def _check_tensor(
    name: str, tp: int, model: Model, columns: list[tuple[int, str]], server: int
) -> None:
    wrong = {
        f"does not divide the {model.heads} heads of {model.name}": lambda n: model.heads % n,
        **{
            (
                f"does not divide the {width} columns of {model.name}'s {what}"
            ): lambda n, width=width: width % n
            for width, what in columns
        },
        f"neither divides nor is a multiple of a server's {server} GPUs": lambda n: (
            server % n and n % server
        ),
    }
    fits = [n for n in range(1, 65) if not any(is_wrong(n) for is_wrong in wrong.values())]
    for why, is_wrong in wrong.items():
        if is_wrong(tp):
            raise RFabricError(f"{name}: {tp} {why}; use one of {', '.join(map(str, fits))}")


def _check_batch(w: Setup) -> None:
    g, t = w.generation, w.training
    longest = g.longest
    if w.nic_bps < SLOWEST_NIC:
        raise RFabricError(
            f"cluster.nic: {w.nic_bps:g} bit/s is no NIC of a GPU; write its unit, such as "
            f"{w.nic_bps:g}Gbit/s"
        )
    least = float(g.lengths.tokens.min())
    if least > g.max_response:
        raise RFabricError(
            f"generation.max_response: {g.max_response} cuts every response, the shortest of "
            f"lengths {g.lengths.name} has {least:g} tokens; use {least:g} at least, or other "
            "lengths"
        )
    if g.rolled_out < g.batch:
        raise RFabricError(
            f"generation.prompts: {g.prompts} prompts are fewer than the batch of {g.batch} that "
            "is trained on; use at least that many, or leave it out"
        )
    if (drawn := g.rolled_out * g.group_size) > MOST_RESPONSES:
        raise RFabricError(
            f"generation.batch: {g.rolled_out} prompts x group_size {g.group_size} are "
            f"{drawn:,} responses a step; {MOST_RESPONSES:,} at most are drawn, use a "
            "smaller batch"
        )
    if longest > (context := max(w.model.context, g.context or 0)):
        raise RFabricError(
            f"generation.max_response: {g.max_response} after a prompt of "
            f"{g.max_prompt}{_observed(w)} exceeds the context of {w.model.name}, "
            f"{context} tokens; use {context} at most for both together, or say "
            f"generation.context={longest} where its positions are stretched that far"
        )
    held = longest * max(1, t.micro_batch_sequences)
    if held > t.micro_batch_tokens * t.cp:
        several = t.micro_batch_sequences > 1
        what = f"{t.micro_batch_sequences} sequences" if several else "a sequence"
        raise RFabricError(
            f"training.micro_batch_tokens: {t.micro_batch_tokens} x cp {t.cp} cannot hold {what} "
            f"of {longest} tokens (max_prompt + max_response); use {-(-held // t.cp)} at least"
        )
    ahead = t.log_prob_micro_batch
    if not ahead.sequences and longest > ahead.tokens * t.cp:
        raise RFabricError(
            f"training.log_prob_micro_batch_tokens: {ahead.tokens} x cp {t.cp} cannot hold a "
            f"sequence of {longest} tokens (max_prompt + max_response); use "
            f"{-(-longest // t.cp)} at least, or 0"
        )
    if t.mini_batch_responses and t.mini_batches > 1:
        raise RFabricError(
            f"training.mini_batches: {t.mini_batches} beside mini_batch_responses "
            f"{t.mini_batch_responses}, which makes {len(w.updates)} updates of {g.responses} "
            "responses; leave one of them out"
        )
    if not t.mini_batch_responses and g.responses % t.mini_batches:
        raise RFabricError(
            f"training.mini_batches: {t.mini_batches} does not divide the {g.responses} responses "
            f"of a step (generation.batch {g.batch} x group_size {g.group_size}); use a divisor"
        )
    if (each := w.updates[-1]) < w.dp:
        few = (
            f"training.mini_batch_responses: {t.mini_batch_responses} leaves {each} responses the "
            f"last update for {w.dp} data-parallel ranks; use a multiple of {w.dp}"
            if t.mini_batch_responses
            else f"training.mini_batches: {t.mini_batches} leaves {each} responses an update for "
            f"{w.dp} data-parallel ranks; use a larger generation.batch or fewer mini_batches"
        )
        raise RFabricError(few)
    if g.rolled_out * g.group_size < len(w.decoding):
        raise RFabricError(
            f"generation.batch: {g.rolled_out} prompts x group_size {g.group_size} leave some of "
            f"the {len(w.decoding)} replicas idle; use a larger batch or a larger generation.tp"
        )


def _observed(w: Setup) -> str:
    """What environments say, as the errors on lengths put it."""
    g = w.generation
    if g.longest <= g.max_prompt + g.max_response:
        return ""
    return f" and {g.turns - 1} observations of {g.observation}"


def _check_memory(w: Setup) -> None:
    g, longest = w.generation, w.generation.longest
    if w.kv_capacity_tokens < longest * g.attention_replicas:
        raise RFabricError(
            f"generation.tp: {g.tp} {w.generation_gpu.name} {_held(w)}, one sequence may need "
            f"{longest}; {_more_cache(w, longest)}"
        )
    need = w.training_bytes
    total = sum(need.values())
    if total > w.gpu.hbm_bytes:
        parts = ", ".join(f"{name} {size / 1e9:.1f}" for name, size in need.items())
        raise RFabricError(
            f"training: {w.model.name} needs {total / 1e9:.1f} GB a GPU{_at(w)} ({parts}), a "
            f"{w.gpu.name} has {w.gpu.hbm_bytes / 1e9:.0f} GB; {_more_memory(w)}"
        )


def _at(w: Setup) -> str:
    """Which stage needs the most, and of unequal ones, with how many layers."""
    if w.layout.pp == 1:
        return ""
    totals = [sum(held.values()) for held in w.stage_bytes]
    stage = totals.index(max(totals))
    layers = f" with its {w.layout.stages[stage]} layers" if w.layout.widest > 1 else ""
    return f" of stage {stage + 1}{layers}"


def _held(w: Setup) -> str:
    """What an engine's GPUs hold, as the error says it."""
    g, gpu = w.generation, w.generation_gpu
    if w.kv_capacity_tokens > 0:
        each = w.kv_capacity_tokens // g.attention_replicas
        part = w.model.name if g.gpus == g.tp else f"their part of {w.model.name}"
        return f"hold {part} and {each} tokens of KV cache"
    return (
        f"give an engine {gpu.hbm_bytes * g.memory_utilisation / 1e9:.1f} GB of HBM each "
        f"({memory.RESERVED_BYTES / 1e9:.1f} of it reserved), the weights of {w.model.name} "
        f"alone take {w.attending_bytes / 1e9:.1f} GB: no KV cache is left"
    )


def _more_cache(w: Setup, longest: int) -> str:
    """The nearest engine that holds the longest sequence beside the weights."""
    for tp in (w.generation.tp * 2**i for i in range(1, 7)):
        other = _as_if(w, generation=replace(w.generation, tp=tp))
        if (
            _splits(other)
            and other.kv_capacity_tokens >= longest * other.generation.attention_replicas
        ):
            return f"use generation.tp={tp}"
    room = max(w.kv_capacity_tokens // w.generation.attention_replicas, 0)
    return (
        "no larger tp that divides the model does: "
        f"use max_prompt + max_response of {room} at most, or GPUs with more HBM"
    )


def _more_memory(w: Setup) -> str:
    """The nearest settings with which a job fits that does not: one changed, else one beside one
    copy of sharded parameters, full recomputation, or both.
    """
    copy = [{}, {"fsdp_size": 0}] if w.training.fsdp_size else [{}]
    for also in [one | more for more in ({}, {"recompute": "full"}) for one in copy]:
        ways = [also] if also and _holds(w, also) else []
        for key in () if ways else ("fsdp_size", "tp", "ep", "pp"):
            larger = ({key: value} | also for value in _larger(w, key))
            ways += [way for way in larger if _holds(w, way)][:1]
        if ways:
            return "use " + " or ".join(map(_settings, ways))
    return (
        f"use a larger training.tp{', training.ep' if w.model.experts else ''} or training.pp "
        "with more training_gpus"
    )


def _larger(w: Setup, key: str) -> list[int]:
    """Values of a key of training to try, those first that change least."""
    value, ranks = getattr(w.training, key), w.dp * w.training.cp
    if key != "fsdp_size":
        return [value * 2**i for i in range(1, 7)]
    return [*(n for n in range(value + 1, ranks) if ranks % n == 0), 0] if value else []


def _settings(way: dict) -> str:
    return " with ".join(f"training.{key}={value}" for key, value in way.items())


def _holds(w: Setup, way: dict) -> bool:
    """Whether the job fits its GPUs with other settings of training."""
    other = _as_if(w, training=replace(w.training, **way))
    return _splits(other) and sum(other.training_bytes.values()) <= w.gpu.hbm_bytes


def _splits(w: Setup) -> bool:
    try:
        _check_split(w)
    except RFabricError:
        return False
    return True


def _as_if(w: Setup, **sections) -> Setup:
    """The job with other sections, unchecked, to try what would fit."""
    return Setup(**{field.name: getattr(w, field.name) for field in fields(Setup)} | sections)

"""Where a step's seconds and bytes come from: one row an item of what is computed or sent, with its
formula; `account` has every second by the term that made it.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..compute.training import SUSTAINED, PassSeconds, bubble_share
from ..trace import PHASES
from ..units import show_rate, show_time
from . import flows, tied_embedding
from .exchanges import Repeated
from .generation_items import generation_items
from .items import Item, sent_item
from .phases import OFFLOAD_BYTES_PER_S, RESHARD_BYTES_PER_S, Step, handover, step_of
from .plan import phase_seconds, step_period, step_within
from .popularity import imbalance
from .timing import COMMUNICATION, residuals, trainer_of
from .traffic import training_traffic, weight_levels
from .weight_sync import packers, software_parts, sync_bytes
from .workload import Workload

# item, of a phase's own work: the kind of prediction it is
_KINDS = {
    "prefill": "first token",
    "decode": "decode",
    "log-prob": "training",
    "forward-backward": "training",
    "optimizer": "training",
    **dict.fromkeys(("load", "offload", "reshard", "experts"), "weight sync"),
}


def explain(workload: Workload, seed: int = 0) -> list[Item]:
    """The items of the first step, in the order in which they happen."""
    step = step_of(workload, seed, 0)
    items = [
        *generation_items(workload, step),
        *_training(workload, step),
        *_weight_sync(workload),
        _pipeline(workload, step),
    ]
    return [_with_residuals(workload, item) for item in items]


def _with_residuals(w: Workload, item: Item) -> Item:
    kind = _KINDS.get(item.item) or (COMMUNICATION if item.bytes else None)
    if not kind or not item.seconds:
        return item
    of = residuals(w, kind)
    return replace(item, residuals=of, within=of.around(item.seconds))


def _pipeline(w: Workload, step: Step) -> Item:
    """How the phases of this step add up to the time from one step to the next."""
    parts = {kind: phase_seconds(w, step, kind) for kind in PHASES}
    windows = (sum(both) for both in parts.values())
    return Item(
        "step",
        w.pipeline,
        w.steps_ahead,
        step_period(w, *windows),
        0,
        f"{_adds(w)}; {w.placement}, communication included",
        within=step_within(w, parts),
    )


def _adds(w: Workload) -> str:
    if 0 < w.ahead < 1:
        return (
            f"the longer of generation, and {1 - w.ahead:.0%} of it and training with its weight "
            "sync: so much of a batch waits for these weights"
        )
    return _ADDS[w.pipeline]


_ADDS = {
    "sync": "generation + training + weight sync, one after the other",
    "one-step-off": (
        "the longer of generation and training, and the weight sync, for which replicas stop"
    ),
    "bounded-staleness": (
        "the longer of generation and training with its weight sync; weights "
        "come while replicas generate"
    ),
    "async": (
        "the longer of generation and training with its weight sync; responses go on over "
        "weight updates"
    ),
}


_CONTEXT = {
    "ring": "keys and values round rings of {} GPUs wider than a server, beside attention",
    "ulysses": "tokens for heads and back among {} GPUs wider than a server, between computing",
}


_HANDOVER = {
    "offload": f"training states out of the HBM and back at {OFFLOAD_BYTES_PER_S / 1e9} GB/s a GPU",
    "reshard": f"a GPU takes over its part of the weights at {RESHARD_BYTES_PER_S / 1e9} GB/s",
    "experts": "the matrices of experts gathered one by one: compute/sync_time",
}


def _training(w: Workload, step: Step) -> list[Item]:
    t, trained = w.training, step.trained
    batches, updates = trained.mini_batches, len(trained.mini_batches)
    padded, one = _PADDED[t.padding], trained.slowest_log_prob_pass
    ahead = _bubble(w, one, trained.log_prob_micro_batches, backward=False)
    bubble = _bubble(w, batches[0].passes, batches[0].micro_batches)
    again = "all activations computed again, " if t.recompute == "full" else ""
    log_prob, forward = float(trained.log_prob.max()), sum(b.seconds(t.buckets) for b in batches)
    micro = sum(b.micro_batches for b in batches)
    sent = training_traffic(w, step)
    pipeline = [sent.log_probs.pipeline, *(update.pipeline for update in sent.updates)]
    ring_of, learn = f"rings of {w.dp * t.cp} ranks", _of_adapters(w)
    hidden = f"{t.buckets} buckets beside the last {batches[0].piece * t.buckets:.2f} s of backward"
    gradients = [flows.gradients(w)] * (t.buckets * updates)
    parameters = [flows.parameters(w)] * updates
    tied = [update.embedding for update in sent.updates]
    return [
        Item(
            "training",
            "log-prob",
            t.log_prob_passes,
            log_prob,
            0,
            f"{padded}{ahead}: {_shares(w, one)}",
        ),
        Item(
            "training",
            "forward-backward",
            micro,
            forward,
            0,
            f"{again}{padded}{bubble}: {_shares(w, batches[0].passes)}",
        ),
        Item(
            "training",
            "optimizer",
            updates,
            updates * trained.optimizer,
            0,
            "Adam on the hosts' CPUs" if t.host_optimizer else "Adam states through HBM",
        ),
        *sent_item(
            w, "training", "pipeline", pipeline, "activations between stages, beside computing"
        ),
        *_looped(w, sent.loops, trained.routing),
        *sent_item(
            w,
            "training",
            t.gradient_collective,
            gradients,
            f"{ring_of}; {t.grad_dtype}{learn}, {hidden}",
        ),
        *sent_item(
            w,
            "training",
            tied_embedding.LABEL,
            tied,
            f"{t.grad_dtype} gradients of a tied embedding, between the first stage and the last",
        ),
        *sent_item(w, "training", "all-gather", parameters, f"{ring_of}; bf16 parameters{learn}"),
    ]


_PADDED = {
    "none": "",
    "micro-batch": "sequences as long as the longest of their micro-batch, ",
    "mini-batch": "sequences as long as the longest of the update, ",
    "maximum": "sequences as long as the longest that may be, ",
}


def _bubble(w: Workload, passes: PassSeconds, micro_batches: int, backward: bool = True) -> str:
    """How much longer the pipeline takes than its work, and by which rule."""
    layout = trainer_of(w).layout
    logits = passes.logits_share
    share = f"{bubble_share(layout, micro_batches, logits, backward):.0%} of bubble"
    if layout.pp == 1:
        return "no bubble"
    slowest = f"the slowest stage takes {layout.slowest(logits):.3g} x as long as the mean one"
    if layout.widest > 1:
        return f"{share}, operation by operation: {slowest}"
    return f"{share}, w - 1 + (pp - w) / (vp x micro-batches): {slowest}, w"


def _of_adapters(w: Workload) -> str:
    return f" of adapters of rank {w.training.lora_rank}, {w.learns:.2%}" if w.learns < 1 else ""


def _shares(w: Workload, parts: PassSeconds) -> str:
    """What a pass of the slowest rank is made of, and at which rate."""
    if w.efficiency.training:
        return f"FLOPs at efficiency.training, {w.efficiency.training:.0%} of peak"
    trainer = trainer_of(w)
    rate = trainer.matmul_flops(w.training.precision) / w.gpu.peak(w.training.precision)
    words = {
        "matmul": f"matmul at {rate:.0%} of {w.training.precision} peak (tuned x {SUSTAINED})",
        "attention": f"attention at {trainer.attention_flops / w.gpu.bf16_flops:.0%}",
        "memory": "memory-bound",
        "tensor": "tensor-parallel",
        "context": "context-parallel",
        "experts": "to experts and back",
        "host": "waiting for the host",
    }
    shares = {said: getattr(parts, name) / parts.seconds for name, said in words.items()}
    return ", ".join(f"{share:.0%} {word}" for word, share in shares.items() if share >= 0.005)


def _looped(w: Workload, loops: list[Repeated], routing: np.ndarray | None) -> Iterator[Item]:
    """One item a label of what layers exchange: the flows of all loops, what their bytes take and
    how often they go.
    """
    t = w.training
    where = "beside the other half of a micro-batch" if t.overlap_batches else "between computing"
    chosen = (
        (
            f"by Zipf's law, exponent {t.skew:g}: the busiest GPU takes {imbalance(routing):.2g} x "
            "an even share"
        )
        if t.skew
        else "evenly"
    )
    summed = (
        f"of each micro-batch, rings of {w.dp * t.cp} ranks, {t.buckets} buckets beside backward"
        if t.optimizer == "zero2"
        else f"among {w.copies} copies of sharded parameters, beside computing"
    )
    cut = f"; each cut over {t.etp} GPUs of a server" if t.etp > 1 else ""
    why = {
        "tensor": "all-reduces of tp wider than a server, between computing",
        "context": _CONTEXT[t.context_exchange].format(t.cp),
        "all-to-all": f"tokens to experts on {t.ep} GPUs and back, {where}; chosen {chosen}{cut}",
        "all-gather": "bf16 parameters, layer by layer, beside computing",
        "reduce-scatter": f"{t.grad_dtype} gradients{_of_adapters(w)}, beside computing",
        "all-reduce": f"{t.grad_dtype} gradients{_of_adapters(w)} {summed}",
    }
    for label, text in why.items():
        turns = [
            (loop.repeat, turn.flows)
            for loop in loops
            for turn in loop.turns
            if turn.label == label
        ]
        if turns:
            seconds = sum(repeat * flows.wire_seconds(w, sent) for repeat, sent in turns)
            size = int(sum(repeat * sum(sent.size) for repeat, sent in turns))
            runs, rows = sum(repeat for repeat, _ in turns), sum(len(sent.src) for _, sent in turns)
            yield Item(
                "training",
                label,
                rows,
                seconds,
                size,
                f"{text}; {runs:,} times; {show_rate(w.nic_bps)} NICs",
            )


_SOFTWARE = {
    "setup": "groups set up and engines paused",
    "pack": "packing beyond the wire",
    "compare": "comparing shards with what was sent last",
    "gather": "gathering",
    "load": "loading",
    "efficiency": "what weight_sync.efficiency leaves",
}


def _software(w: Workload) -> str:
    """The parts of what a weight sync takes beside the wire, and where their constants are from."""
    parts = [
        f"{_SOFTWARE[name]} {show_time(seconds)}"
        for name, seconds in software_parts(w).items()
        if seconds
    ]
    if w.weight_sync.efficiency or w.weight_sync.strategy == "p2p":
        return ", ".join(parts) or "in place, hidden by the wire"
    how, source = _GATHERED[w.weight_sync.gather]
    count = packers(w)
    return f"{', '.join(parts)}; {how} by {count} sender{'s' * (count > 1)} ({source})"


_GATHERED = {
    "tensor": ("tensor by tensor", "fitted on verl and checkpoint-engine: compute/sync_time"),
    "bucket": ("a bucket at once", "a pair of GPUs over a NIC; miles: compute/sync_time"),
}


def _weight_sync(w: Workload) -> list[Item]:
    strategy = "colocated" if w.colocated else w.weight_sync.strategy
    items = [
        Item("weight_sync", what, 1, seconds, 0, _HANDOVER.get(what) or _software(w))
        for what, seconds in handover(w).items()
    ]
    each = sync_bytes(w) / w.model.parameters
    alone = _of_adapters(w) if w.synced < 1 else ""
    for level in weight_levels(w):
        why = (
            f"rings of {w.dp * w.training.cp // w.copies} ranks; sharded parameters, whole before "
            "they are sent"
            if level.label == "gather"
            else (
                f"{strategy}: {w.model.parameters / 1e9:.2f} B parameters x {each:.3g} B to "
                f"{len(w.replicas)} replicas{alone}"
            )
        )
        items += sent_item(w, "weight_sync", level.label, [flows.leaving(w, level.flows)], why)
    return items

"""What the explanation of a step says of its generation."""

from collections.abc import Sequence

import numpy as np

from ..compute.memory import kv_bytes_per_gpu
from ..trace import Flows
from ..units import show_time
from . import flows
from .environments import ACTION, OBSERVATION, REWARD
from .exchanges import EXPERTS, FFN
from .in_flight import play
from .items import Item, sent_item
from .phases import Generated, Step, handover, ready_at, under_way
from .timing import decode_step, server_of
from .traffic import GenerationTraffic, generation_traffic
from .workload import Workload


def generation_items(w: Workload, step: Step) -> list[Item]:
    """Of generation: the slowest replica's seconds, and what all of them send."""
    made, g, m = step.generated, w.generation, w.served
    slowest = max(made.times, key=lambda t: t.seconds)
    outputs = np.concatenate(made.outputs)
    one = decode_step(w)
    seconds = [t.seconds for t in made.times]
    sent = generation_traffic(w, step)
    tensor, experience = flows.join(sent.tensor), flows.join(sent.experience)
    tokens = [made.computed_tokens(r, g.group_size) for r in range(len(w.decoding))]
    experts = flows.join(flows.experts_generation(w, r, n) for r, n in enumerate(tokens))
    return [
        Item(
            "generation",
            "prefill",
            g.rolled_out,
            slowest.prefill,
            0,
            f"slowest of {len(seconds)} replicas; 2 N tokens + attention at "
            f"{server_of(w).matmul:.0%} of peak; {g.prompt_lengths.name}, cut at {g.max_prompt}",
        ),
        Item(
            "generation",
            "decode",
            int(outputs.sum()),
            slowest.decode,
            0,
            f"slowest replica (fastest {min(seconds):.1f} s, median {np.median(seconds):.1f} "
            f"s); one response alone {1e3 * one.seconds(1, g.max_prompt):.2f} ms a token: "
            f"weights / tp at {w.efficiency.hbm:.0%} of HBM",
        ),
        *_in_flight(w, step),
        *_prompts_read(w, made, sent.kv),
        *_environment(w, slowest.idle),
        Item(
            "generation",
            "lengths",
            len(outputs),
            0.0,
            0,
            f"{g.lengths.name}: mean {outputs.mean():.0f}, median {np.median(outputs):.0f}, "
            f"max {outputs.max()} tokens, {np.count_nonzero(outputs == g.max_response)} cut at "
            f"{g.max_response}",
        ),
        Item(
            "generation",
            "KV cache",
            w.kv_capacity_tokens,
            0.0,
            int(kv_bytes_per_gpu(m, 1, length=w.usual_context) * w.kv_capacity_tokens),
            (
                f"tokens a replica holds{_of_usual(w)}; at most "
                f"{max(t.peak_kv_tokens for t in made.times)} were reserved"
            ),
        ),
        *sent_item(
            w, "generation", "tensor", [tensor], "all-reduces of replicas wider than a server"
        ),
        *sent_item(
            w,
            "generation",
            EXPERTS,
            [experts],
            f"tokens to experts on {g.ep} GPUs and back, between computing; chosen evenly",
        ),
        *sent_item(
            w,
            "generation",
            FFN,
            [flows.join(flows.ffn_generation(w, r, n) for r, n in enumerate(tokens))],
            f"tokens from {g.attending} attention GPUs to {g.ffn_gpus} of the FFN and back, beside "
            "the computing of half a batch",
        ),
        *_cpu_servers(w, sent),
        *sent_item(
            w,
            "generation",
            "experience",
            [experience],
            f"{flows.EXPERIENCE_BYTES_PER_TOKEN} B a token",
        ),
    ]


def _of_usual(w: Workload) -> str:
    some = w.model.windowed or w.model.state_bytes
    return f", in sequences of {w.usual_context:.0f}" if some else ""


def _in_flight(w: Workload, step: Step) -> list[Item]:
    """Responses that may be begun before newer weights come, where they go on over weight updates;
    how far they lag behind, played with those of the first replica.
    """
    if w.pipeline != "async":
        return []
    outputs = step.generated.outputs[0]
    n, context = under_way(w, step.generated.prompts[0], outputs)
    lasts = np.tile(outputs * decode_step(w).seconds(n, n * context), (2 * w.steps_ahead + 4, 1))
    trained = step.trained.seconds(w.training.buckets) + sum(handover(w).values())
    lag = play(lasts, n, trained, w.ahead).lag[-lasts.size // 2 :]
    why = (
        f"(1 + {w.ahead:g}) batches before newer weights come, {n * len(w.decoding):,} decode at "
        f"once; trained on {lag.mean():.2f} updates after they began, {lag.max()} at most"
    )
    count = int((1 + w.ahead) * w.generation.rolled_out * w.generation.group_size)
    return [Item("generation", "in flight", count, 0.0, 0, why)]


def _prompts_read(w: Workload, made: Generated, kv: Sequence[Flows]) -> list[Item]:
    """What replicas wait for others that read their prompts, where they do, and the KV cache."""
    if not w.prefilling:
        return []
    last, model = max(ready_at(w, made.reading)), w.served
    why = f"{len(w.prefilling)} replicas read the prompts of {len(w.decoding)}, in turn"
    each = f"{model.kv_bytes_per_token:,} B a token of a prompt"
    each += ", of a window in layers that have one" * bool(model.windowed)
    each += f", and {model.state_bytes:,} B of states" * bool(model.state_bytes)
    return [
        Item("generation", "prompts", w.generation.rolled_out, last, 0, why),
        *sent_item(w, "generation", "KV", [flows.join(kv)], each),
    ]


def _cpu_servers(w: Workload, sent: GenerationTraffic) -> list[Item]:
    """What goes to CPU servers and back, where there are any."""
    e, loops = w.environments, [loop for loop in sent.environments if loop]
    text = f"{e.text_bytes:g} B of text a token"
    why = {
        ACTION: f"{text}, after every turn but the last, to {e.servers} CPU servers",
        OBSERVATION: f"{text} and {e.observation_bytes:,} B an observation, beside computing",
    }
    items = []
    for label, words in why.items():
        turns = [turn.flows for loop in loops for turn in loop.turns if turn.label == label]
        one = flows.join(turns)
        all_turns = [one] * (w.generation.turns - 1)
        items += sent_item(w, "generation", label, all_turns if len(one.src) else [], words)
    calls = f"{text} of prompt and response, {e.reward_bytes:,} B beside"
    return [*items, *sent_item(w, "generation", REWARD, [flows.join(sent.rewards)], calls)]


def _environment(w: Workload, idle: float) -> list[Item]:
    """What the slowest replica waits for environments between turns, where there are any."""
    g = w.generation
    why = (
        f"nothing to decode while environments answer: {g.turns} turns, "
        f"{show_time(g.environment_latency)} between two"
    )
    return [Item("generation", "environment", g.turns, idle, 0, why)] if g.turns > 1 else []

"""What layers with a window, and those without attention, hold and read of a sequence: a window of
it; a state, however long it is.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric.compute.gpus import GPUS
from rfabric.compute.memory import fewest_gpus, kv_bytes_per_gpu, kv_capacity_tokens, room_for_kv
from rfabric.compute.named import find_model
from rfabric.compute.roofline import Server, step_of
from rfabric.rl import explain, read_recipe
from rfabric.rl.phases import responses

WINDOWED = ["gpt-oss-120b", "gemma-3-27b", "gemma-2-9b"]
STATES = ["Qwen3-Next-80B-A3B", "Nemotron-H-8B", "Nemotron-3-Nano-30B-A3B"]


def test_half_the_layers_of_gpt_oss_see_128_tokens():
    """36 layers, each second with a window; 8 heads of 64 keys and as many values, bf16."""
    model, layer = find_model("gpt-oss-120b"), 2 * 8 * 64 * 2
    of_sequence = 18 * 4096 * layer + 18 * 128 * layer
    assert kv_bytes_per_gpu(model, 1, length=4096) == of_sequence / 4096
    assert kv_bytes_per_gpu(model, 4, 2, 4096) == of_sequence / 4096 / 4 / 2
    assert kv_bytes_per_gpu(model, 1, length=100) == 36 * layer == kv_bytes_per_gpu(model, 1)


def test_a_state_is_shared_by_all_heads_of_a_server():
    """Of 8 KV heads and a state, 16 GPUs hold an eighth and a sixteenth."""
    model = find_model("Nemotron-H-8B")
    assert (model.kv_heads, model.kv_layers) == (8, 4)
    kv, state = 4 * 2 * 8 * 128 * 2, model.state_bytes
    assert state > 1000 * kv
    assert kv_bytes_per_gpu(model, 16, length=500) == kv / 8 + state / 16 / 500


@given(st.sampled_from([*WINDOWED, *STATES, "Qwen3-8B"]), st.integers(1, 200_000))
def test_a_token_takes_its_part_of_what_a_sequence_holds(name, length):
    model = find_model(name)
    each = kv_bytes_per_gpu(model, 1, length=length)
    assert each * length == pytest.approx(model.kv_bytes(length), rel=1e-12)
    assert kv_bytes_per_gpu(model, 1, length=length + 1) <= each


@pytest.mark.parametrize("name", [*WINDOWED, *STATES])
def test_a_server_holds_as_many_sequences_as_there_is_room_for(name):
    model, gpu, length = find_model(name), GPUS["B200"], 8192
    server = Server(model, gpu, tp=8, length=length)
    room = room_for_kv(gpu, server.utilisation, server.weight_bytes)
    heads = min(8, model.kv_heads)
    held = (model.kv_bytes(length) - model.state_bytes) / heads + model.state_bytes / 8
    assert server.kv_capacity_tokens / length == pytest.approx(room / held, rel=1e-4)
    asked = model, gpu, 8, server.utilisation
    assert kv_capacity_tokens(*asked, length=length) == server.kv_capacity_tokens
    assert (kv_capacity_tokens(*asked) < server.kv_capacity_tokens) == (name in WINDOWED)


def test_a_long_context_of_windows_needs_fewer_gpus():
    assert fewest_gpus(find_model("gemma-3-27b"), GPUS["H100"], 131072) == 1


def job(model, *more):
    overrides = f"model={model}", "training.tp=8", "generation.tp=8", "training.recompute=full"
    overrides += "generation.max_prompt=1024", "generation.max_response=7000"
    return read_recipe("grpo-64", [*overrides, *more])


@pytest.mark.parametrize("more", [(), ("generation.turns=3", "generation.observation=500")])
def test_the_usual_context_is_that_of_the_responses_drawn(more):
    w = job("Qwen2.5-14B", *more, "generation.batch=8000")
    prompts, outputs = (column.astype(float) for column in responses(w, 0, 0))
    heard = w.generation.observation * (w.generation.turns - 1) / 2
    met = float((outputs * (prompts + outputs / 2)).sum() / outputs.sum())
    assert w.usual_context == pytest.approx(met + heard, rel=0.02)


@pytest.mark.parametrize("name", ["gemma-3-12b", "Nemotron-H-8B", "Qwen2.5-14B"])
def test_a_job_has_room_for_sequences_as_long_as_usual(name):
    w = job(name)
    room = room_for_kv(w.generation_gpu, w.generation.memory_utilisation, w.attending_bytes)
    each = kv_bytes_per_gpu(w.model, 8, length=w.usual_context)
    assert w.kv_capacity_tokens == int(room // each)
    (item,) = [item for item in explain(w) if item.item == "KV cache"]
    assert item.count == w.kv_capacity_tokens
    assert (f"in sequences of {w.usual_context:.0f}" in item.why) == (name != "Qwen2.5-14B")


def test_lengths_are_met_as_often_as_they_are_long():
    w = job("Qwen2.5-14B")
    tokens = np.minimum(w.generation.lengths.at(np.linspace(0, 1, 100_001)), 1000).astype(float)
    assert w.generation.lengths.mean(1000) == pytest.approx(tokens.mean(), rel=1e-3)
    met = (tokens**2).mean() / tokens.mean() / 2
    assert w.generation.lengths.before(1000) == pytest.approx(met, rel=1e-3)


@pytest.mark.parametrize("name", STATES)
def test_a_decoding_response_reads_and_writes_its_state(name):
    """Of each of 4 GPUs a quarter, at the rate of HBM; a prompt of many tokens makes it once."""
    model, gpu, n = find_model(name), GPUS["H100"], 100
    step, without = (
        step_of(Server(m, gpu, tp=4)) for m in (model, replace(model, states=0, convolved=0))
    )
    took = n * 2 * model.state_bytes / 4 / (gpu.hbm_bytes_per_s * Server(model, gpu).hbm)
    for taken in (
        lambda one: one.seconds(n, n * 3000),
        lambda one: one.mixed(n, n * 3000, 0, 0),
        lambda one: one.seconds(n, n * 3000, 7) / 7,
        lambda one: one.mixed(n, n * 3000, 5000, 5000**2 / 2),
    ):
        assert taken(step) - taken(without) == pytest.approx(took)
    assert step.mixed(0, 0, 5000, 5000**2 / 2) == without.mixed(0, 0, 5000, 5000**2 / 2)

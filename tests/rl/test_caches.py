"""Formats of what engines keep of a sequence: a KV cache in 8 bits, states in 32; what of it goes
from those that read prompts to those that decode.
"""

from dataclasses import replace

import numpy as np
import pytest
import yaml

from rfabric.compute.configs import model_of
from rfabric.compute.named import find_config, find_model
from rfabric.files import read_json
from rfabric.rl import read_recipe, trace_of
from rfabric.rl.imports import import_job
from rfabric.rl.phases import step_of
from rfabric.rl.timing import server_of

HYBRID, WINDOWED = "Nemotron-H-8B", "gpt-oss-20b"


def job(model, *more):
    overrides = f"model={model}", "training.tp=8", "generation.tp=8", "training.recompute=full"
    overrides += "generation.max_prompt=1024", "generation.max_response=7000"
    return read_recipe("grpo-64", [*overrides, *more])


def test_states_in_fp32_take_twice_the_room_but_for_convolutions():
    """24 Mamba-2 layers of 128 heads of 64 columns and 128 states; 8192 + 2 x 8 x 128 columns pass
    a convolution of 4.
    """
    short, long = (find_model(HYBRID), job(HYBRID, "generation.state_dtype=fp32").served)
    convolved = 24 * 2 * (8192 + 2 * 8 * 128) * 4
    assert short.state_bytes == 24 * 2 * 8192 * 128 + convolved
    assert long.state_bytes == 24 * 4 * 8192 * 128 + convolved
    assert server_of(job(HYBRID, "generation.state_dtype=fp32")).model == long


@pytest.mark.parametrize("key", ["mamba_ssm_cache_dtype", "mamba_ssm_dtype"])
def test_a_config_says_what_its_states_are_in(key):
    config = read_json(find_config(HYBRID)) | {key: "float32"}
    assert (
        model_of(config, "m").state_bytes
        == job(HYBRID, "generation.state_dtype=fp32").served.state_bytes
    )
    bf16 = replace(model_of(config, "m"), state_number=2)
    assert bf16.state_bytes == find_model(HYBRID).state_bytes


def test_a_cache_in_eight_bits_holds_twice_the_tokens():
    half, whole = (job("Qwen2.5-14B", f"generation.kv_dtype={d}") for d in ("fp8", "bf16"))
    assert half.kv_capacity_tokens == pytest.approx(2 * whole.kv_capacity_tokens, abs=1)
    one, two = (server_of(w) for w in (half, whole))
    assert 2 * one.kv_bytes_per_token == two.kv_bytes_per_token
    assert half.kv_capacity_tokens == pytest.approx(one.kv_capacity_tokens, abs=1)


@pytest.mark.parametrize(
    ("name", "dtype"), [(WINDOWED, "bf16"), (WINDOWED, "fp8"), (HYBRID, "bf16")]
)
def test_a_window_and_states_are_all_that_others_get_of_a_prompt(name, dtype):
    more = "generation.tp=8", "generation.prefill_gpus=8", f"generation.kv_dtype={dtype}"
    more += ("training.ep=8",) * (name == WINDOWED)
    w = job(name, *more)
    trace, m = trace_of(w), w.model
    made = step_of(w, 0, 0).generated
    prompts = np.concatenate([p[:: w.generation.group_size] for p in made.prompts])
    assert prompts.max() > 500
    layer = 2 * m.kv_heads * m.head_dim * {"bf16": 2, "fp8": 1}[dtype]
    kept = (m.kv_layers - m.windowed) * prompts + m.windowed * np.minimum(prompts, 128)
    rows = trace.communication()[0, "generation", "KV"]
    whole = float(kept.sum()) * layer + len(prompts) * m.state_bytes
    assert int(trace.total[rows].sum()) == pytest.approx(whole, abs=len(rows))


VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=128 \\
  data.max_prompt_length=1024 data.max_response_length=3072 \\
  actor_rollout_ref.model.path=/m/{model} actor_rollout_ref.rollout.n=8 \\
  actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\
  actor_rollout_ref.actor.ppo_mini_batch_size=32 actor_rollout_ref.actor.use_dynamic_bsz=True \\
  trainer.n_gpus_per_node=8 trainer.nnodes=2 {more}
"""
VLLM = "+actor_rollout_ref.rollout.engine_kwargs.vllm"


@pytest.mark.parametrize(
    ("model", "more", "states", "cache"),
    [
        ("Nemotron-Nano-9B-v2", "", None, None),
        ("Nemotron-Nano-9B-v2", f"{VLLM}.mamba_ssm_cache_dtype=float32", "fp32", None),
        ("Nemotron-Nano-9B-v2", f"{VLLM}.mamba_ssm_cache_dtype=auto", None, None),
        ("Qwen3-8B", f"{VLLM}.mamba_ssm_cache_dtype=float32", None, None),
        ("Qwen3-8B", f"{VLLM}.kv_cache_dtype=fp8_e4m3", None, "fp8"),
        ("Qwen3-8B", f"{VLLM}.kv_cache_dtype=auto", None, None),
    ],
)
def test_formats_that_a_job_says(tmp_path, model, more, states, cache):
    (path := tmp_path / "run.sh").write_text(VERL.format(model=model, more=more))
    made = import_job("verl", path)
    generation = made.recipe()["generation"]
    assert (generation.get("state_dtype"), generation.get("kv_dtype")) == (states, cache)
    assert not any("dtype" in said for said in made.unmapped)


@pytest.mark.parametrize(("said", "noted"), [("int8", True), ("bfloat16", False)])
def test_a_cache_in_a_format_that_is_not_modelled_is_noted(tmp_path, said, noted):
    more = f"{VLLM}.kv_cache_dtype={said}"
    (path := tmp_path / "run.sh").write_text(VERL.format(model="Qwen3-8B", more=more))
    made = import_job("verl", path)
    assert "kv_dtype" not in made.recipe()["generation"]
    assert any("numbers of the KV cache" in note for note in made.notes) == noted


def test_formats_of_a_yaml_job(tmp_path):
    policy = {
        "model_name": "nvidia/NVIDIA-Nemotron-Nano-9B-v2",
        "max_total_sequence_length": 4096,
        "generation": {
            "vllm_cfg": {"kv_cache_dtype": "fp8"},
            "vllm_kwargs": {"mamba_ssm_cache_dtype": "float32"},
        },
    }
    grpo = {"num_prompts_per_step": 32, "num_generations_per_prompt": 8}
    values = {"policy": policy, "grpo": grpo, "cluster": {"gpus_per_node": 8, "num_nodes": 2}}
    (path := tmp_path / "job.yaml").write_text(yaml.safe_dump(values))
    generation = import_job("nemo-rl", path).recipe()["generation"]
    assert (generation["state_dtype"], generation["kv_dtype"]) == ("fp32", "fp8")

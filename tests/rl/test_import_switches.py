"""Settings of jobs that only count where another turns them on, or that contradict each other:
adapters, copies on the host, recomputation, GPUs that a cluster lacks; and what scripts leave open.
"""

import re

import pytest
import yaml

from rfabric.compute.configs import model_of
from rfabric.errors import RFabricError
from rfabric.rl.imports import import_job
from rfabric.rl.imports.settings import read_settings

AREAL = """
cluster: {n_nodes: 2, n_gpus_per_node: 8}
rollout: {backend: "sglang:d8", max_head_offpolicyness: 2}
gconfig: {n_samples: 8, max_new_tokens: 2048}
actor: {backend: "fsdp:d8", path: Qwen/Qwen3-8B}
train_dataset: {batch_size: 32}
"""
ROLL = """
num_gpus_per_node: 8
rollout_batch_size: 64
num_return_sequences_in_group: 8
prompt_length: 1024
response_length: 4096
pretrain: Qwen/Qwen3-8B
actor_train:
  training_args: {per_device_train_batch_size: 1, gradient_accumulation_steps: 64}
  strategy_args: {strategy_name: deepspeed_train}
  device_mapping: list(range(0,8))
actor_infer: {device_mapping: "list(range(0,8))"}
"""


@pytest.fixture
def job(tmp_path):
    """Reads a job with settings of a worker beside its own."""

    def read(framework, text, worker, **said):
        values = yaml.safe_load(text)
        values[worker] |= said
        (path := tmp_path / "job.yaml").write_text(yaml.safe_dump(values))
        return import_job(framework, path)

    return read


@pytest.mark.parametrize(
    ("framework", "said", "rank", "note"),
    [
        ("areal", {"use_lora": True, "lora_rank": 16}, 16, "the adapters alone"),
        ("areal", {"use_lora": True}, 32, "LoRA: adapters beside"),
        ("areal", {"use_lora": False, "lora_rank": 16}, None, "actor.use_lora turns no adapters"),
        ("areal", {"lora_rank": 16}, None, "actor.use_lora turns no adapters on"),
        ("areal", {}, None, ""),
        ("roll", {"model_args": {"lora_target": "q_proj", "lora_rank": 64}}, 64, "adapters alone"),
        ("roll", {"model_args": {"lora_target": "q_proj"}}, 8, "LoRA: adapters beside"),
        ("roll", {"model_args": {"lora_rank": 64}}, None, "model_args.lora_target turns no"),
    ],
)
def test_adapters_learn_where_the_frameworks_switch_is_on(job, framework, said, rank, note):
    text, worker = (AREAL, "actor") if framework == "areal" else (ROLL, "actor_train")
    made = job(framework, text, worker, **said)
    assert made.recipe()["training"].get("lora_rank") == rank
    assert ("training.lora_rank" in made.assumed) == (rank in (8, 32))
    assert not note or any(note in each for each in made.notes)
    assert not any("lora_rank" in each for each in made.unmapped)
    assert not made.misfit


def test_an_engines_own_adapters_are_not_trained(job):
    infer = {"model_args": {"lora_target": "q_proj", "lora_rank": 64}}
    assert "lora_rank" not in job("roll", ROLL, "actor_infer", **infer).recipe()["training"]


@pytest.mark.parametrize(
    "said", [{"optimizer": {"offload": True}}, {"fsdp": {"offload_params": True}}]
)
def test_what_areal_keeps_on_the_host(job, said):
    assert job("areal", AREAL, "actor", **said).recipe()["training"]["host_optimizer"]


@pytest.mark.parametrize(
    ("said", "recompute"),
    [
        ({}, "full"),
        ({"model_args": {"disable_gradient_checkpointing": True}}, "selective"),
        ({"strategy_args": {"strategy_name": "megatron_train"}}, "selective"),
    ],
)
def test_roll_recomputes_unless_told_otherwise(job, said, recompute):
    made = job("roll", ROLL, "actor_train", **said)
    assert made.recipe()["training"]["recompute"] == recompute


def test_backends_wider_than_the_cluster_are_noted(job):
    said = "backends: 24 GPUs, though cluster.n_nodes x cluster.n_gpus_per_node is 16"
    wide = job("areal", AREAL, "actor", backend="fsdp:d16")
    assert any(note.startswith(said) for note in wide.notes)
    assert not any("n_nodes" in note for note in job("areal", AREAL, "actor").notes)


def test_gpus_of_a_cluster_that_no_backend_has_are_noted(job):
    said = "backends: 12 GPUs of the 16 of cluster.n_nodes x cluster.n_gpus_per_node; the others"
    made = job("areal", AREAL, "actor", backend="fsdp:d4")
    assert any(note.startswith(said) for note in made.notes)


@pytest.mark.parametrize(
    ("framework", "worker", "said"),
    [
        ("areal", "actor", {"dtype": "float32"}), ("areal", "actor", {"dtype": "bfloat16"}),
        ("roll", "actor_train", {"model_args": {"dtype": "fp32"}}),
        ("roll", "actor_train", {"model_args": {"dtype": "bf16"}}),
    ],
)  # fmt: skip
def test_weights_in_fp32_are_said_to_take_twice_the_bytes(job, framework, worker, said):
    made = job(framework, AREAL if framework == "areal" else ROLL, worker, **said)
    noted = any("computed with and sent in FP32; here in BF16" in note for note in made.notes)
    assert noted is ("32" in str(said))
    assert not any("dtype" in each for each in made.unmapped)


@pytest.mark.parametrize(
    ("stands", "said"),
    [
        ("list(range(8,12))", "4 GPUs: its passes are not modelled, and 4 GPUs of its own are not"),
        ("list(range(0,8))", "8 GPUs: its passes are not modelled"),
        (None, ""),
    ],
)
def test_reward_models_that_stand_on_gpus_are_noted(tmp_path, stands, said):
    judge = {"worker_cls": "LLMJudge"} | ({"device_mapping": stands} if stands else {})
    values = yaml.safe_load(ROLL) | {"rewards": {"math": {"world_size": 8}, "judge": judge}}
    (path := tmp_path / "job.yaml").write_text(yaml.safe_dump(values))
    made = import_job("roll", path)
    noted = [note for note in made.notes if note.startswith("rewards.")]
    assert len(noted) == bool(said) and all(f"judge: a reward model on {said}" in n for n in noted)


def test_a_number_that_the_environment_may_set_is_one(job, tmp_path):
    made = job("areal", AREAL, "train_dataset", batch_size="${oc.env:BATCH,48}")
    assert made.recipe()["generation"]["batch"] == 48
    with pytest.raises(RFabricError, match="'many', not a number"):
        job("areal", AREAL, "train_dataset", batch_size="many")


@pytest.mark.parametrize("said", ["4.8e1", "480e-1", "48."])
def test_a_number_with_an_exponent_is_one(job, said):
    made = job("areal", AREAL, "train_dataset", batch_size=said)
    assert made.recipe()["generation"]["batch"] == 48


@pytest.mark.parametrize("said", [-1, "-1e3", "1e15", ".nan"])
def test_a_number_out_of_range_names_the_range(job, said):
    with pytest.raises(RFabricError, match="batch_size is .*, not a number from 0 to 1e15"):
        job("areal", AREAL, "train_dataset", batch_size=said)


@pytest.mark.parametrize(
    ("line", "note"),
    [
        (
            "source <(curl -s http://host/env.sh)",
            r"source <\(curl .*: what it prints cannot be known",
        ),
        ("for v in ${!TRAIN_*}; do A+=($v); done", r"TRAIN_\*.* only the environment sets"),
        ("if N=$(nvidia-smi -L | wc -l); then A=1; fi", "holds cannot be known; taken as no"),
    ],
)
def test_what_a_script_leaves_open_is_said(tmp_path, line, note):
    (path := tmp_path / "job.sh").write_text(f"{line}\npython train.py --tp 8\n")
    read = read_settings(path)
    assert read.values == {"tp": 8}
    assert any(re.search(note, said) for said in read.notes)


# --- what stands above, and what changes nothing --------------------------------------------------

VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 \\
actor_rollout_ref.actor.ppo_mini_batch_size=64 data.max_response_length=40000 trainer.nnodes=2 \\
actor_rollout_ref.model.path=Qwen/Qwen2.5-Math-7B actor_rollout_ref.rollout.name={name} {more}
"""
SLIME = """python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate \\
--hf-checkpoint Qwen3-30B-A3B --rollout-batch-size 32 --n-samples-per-prompt 8 \\
--global-batch-size 256 --use-dynamic-batch-size --max-tokens-per-gpu 4096 {more}
"""


@pytest.fixture
def script(tmp_path):
    """Reads a job of a script."""

    def read(framework, text):
        (path := tmp_path / "job.sh").write_text(text)
        return import_job(framework, path)

    return read


@pytest.mark.parametrize(
    ("name", "key", "at_once"),
    [
        ("sglang", "sglang.max_running_requests", 128),
        ("vllm", "vllm.max_num_seqs", 128),
        ("trtllm", "trtllm.max_batch_size", 128),
        ("vllm", "sglang.max_running_requests", 512),  # of an engine that does not run
    ],
)
def test_an_engines_own_words_stand_above_verls(script, name, key, at_once):
    """verl's servers take `engine_kwargs` over what they make of `rollout.max_num_seqs`."""
    rollout = "actor_rollout_ref.rollout"
    more = f"{rollout}.max_num_seqs=512 +{rollout}.engine_kwargs.{key}=128"
    made = script("verl", VERL.format(name=name, more=more))
    assert made.values["generation.max_num_seqs"] == at_once


@pytest.mark.parametrize(
    ("name", "word"), [("vllm", "gpu_memory_utilization"), ("sglang", "mem_fraction_static")]
)
def test_an_engines_own_share_of_the_memory_stands_above_verls(script, name, word):
    rollout = "actor_rollout_ref.rollout"
    more = f"{rollout}.gpu_memory_utilization=0.5 +{rollout}.engine_kwargs.{name}.{word}=0.7"
    made = script("verl", VERL.format(name=name, more=more))
    assert made.values["generation.memory_utilisation"] == 0.7


@pytest.mark.parametrize("inside", ["", "model_config."])
def test_positions_are_stretched_in_either_engines_words(script, inside):
    key = f"+actor_rollout_ref.model.override_config.{inside}max_position_embeddings"
    made = script("verl", VERL.format(name="vllm", more=f"{key}=40960"))
    assert made.values["generation.context"] == 40960
    assert "generation.context" not in made.assumed


def test_a_split_of_policy_and_critic_is_told(script):
    text = VERL.format(name="vllm", more="").replace(
        "-m verl.trainer.main_ppo", "main_ppo_split.py"
    )
    assert any("have half of the GPUs each" in note for note in script("verl", text).notes)


def test_responses_from_a_file_are_no_generation(script):
    more = "--load-debug-rollout-data /data/{rollout_id}.pt"
    with pytest.raises(RFabricError, match="--load-debug-rollout-data: the job only trains"):
        script("slime", SLIME.replace("{more}", more))


@pytest.mark.parametrize(
    "flag",
    [
        "sglang-moe-a2a-backend deepep",
        "sglang-moe-runner-backend triton",
        "moe-router-force-load-balancing",
    ],
)
def test_flags_that_change_time_or_traffic_are_not_called_harmless(script, flag):
    made = script("slime", SLIME.format(more=f"--{flag}"))
    assert any(said.startswith(flag.split()[0]) for said in made.unmapped)


@pytest.mark.parametrize(("worker", "key"), [("sglang", "kv_cache_dtype"), ("ref", "dtype")])
def test_a_caches_format_is_not_harmless_as_the_reference_s_is(tmp_path, worker, key):
    values = yaml.safe_load(AREAL) | {worker: {key: "fp8_e5m2"}}
    (path := tmp_path / "job.yaml").write_text(yaml.safe_dump(values))
    made = import_job("areal", path)
    assert (f"{worker}.{key}" in made.ignored) == (key == "dtype")


def test_flags_that_contradict_the_named_model_are_told(script):
    shape = "--hidden-size 2048 --num-attention-heads 32 --vocab-size 151936 --num-layers {}"
    say = "the job's own flags say 4 layers; Qwen3-30B-A3B has 48, and is taken"
    made = script("slime", SLIME.format(more=shape.format(4)))
    assert any(note.startswith(say) for note in made.notes)
    made = script("slime", SLIME.format(more=shape.format(48)))
    assert not any("own flags" in note for note in made.notes)


SHAPE = """--hidden-size 2048 --num-attention-heads 16 --vocab-size 151936 --num-layers 4 \
--ffn-hidden-size 768 """
LATENT = "--kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 "


@pytest.mark.parametrize("ways", ["--kv-channels 128 --qk-layernorm ", "", LATENT])
@pytest.mark.parametrize("said", ["", "--moe-ffn-hidden-size 768 "])
def test_experts_are_as_wide_as_a_dense_mlp_unless_flags_say_more(script, ways, said):
    """Megatron-LM: moe_ffn_hidden_size is ffn_hidden_size where it is not set."""
    mixed = (
        f"--num-experts 128 --moe-router-topk 8 --moe-shared-expert-intermediate-size 768 {said}"
    )
    text = SLIME.replace("Qwen3-30B-A3B", "own").format(more=SHAPE + ways + mixed)
    held = model_of(script("slime", text).values["model"], "own").experts
    assert (held.count, held.intermediate, held.shared) == (128, 768, 768)


@pytest.mark.parametrize(
    ("said", "layers"),
    [
        ("", 4),
        ("1", 4),
        ("2", 2),  # layers 0 and 2
        ("[0]*1+[1]*3", 3),
        ("'([0]*1+[1]*3)'", 3),  # as Megatron-LM's own help has it
        ("[0]+[0]*1+[1]*2", 2),
        ("'([0]+[1])*2'", 2),
        ("[1,1,1,0]", 3),
    ],
)
def test_layers_with_experts_are_those_that_the_flag_says(script, said, layers):
    """Megatron-LM: a number is every which layer has experts, a list has a 1 for each of them."""
    mixed = "--num-experts 64 --moe-router-topk 8 --moe-ffn-hidden-size 768 --qk-layernorm"
    more = f"{SHAPE} {mixed} --moe-shared-expert-intermediate-size 512"
    more += f" --moe-layer-freq {said}" * bool(said)
    made = script("slime", SLIME.replace("Qwen3-30B-A3B", "own").format(more=more))
    held = model_of(made.values["model"], "own").experts
    assert (held.layers, held.shared) == (layers, 512)


@pytest.mark.parametrize("said", ["[0]*1+[1]*30", "'[1]*4 if deep else 1'", "0"])
def test_layers_with_experts_that_are_not_understood_are_no_shape(script, said):
    more = f"{SHAPE} --num-experts 64 --moe-router-topk 8 --moe-layer-freq {said}"
    with pytest.raises(RFabricError, match="model 'own' has no config here"):
        script("slime", SLIME.replace("Qwen3-30B-A3B", "own").format(more=more))


@pytest.mark.parametrize("layout", ["thd", "bshd"])
def test_a_layout_that_pads_is_read(script, layout):
    made = script("slime", SLIME.format(more=f"--qkv-format {layout}"))
    padding = made.recipe()["training"].get("padding")
    assert padding == ("mini-batch" if layout == "bshd" else None)
    assert any("padding is computed" in note for note in made.notes) == (layout == "bshd")


def test_latent_attention_needs_no_experts(script):
    text = SLIME.replace("Qwen3-30B-A3B", "own").format(more=SHAPE + LATENT)
    held = model_of(script("slime", text).values["model"], "own")
    assert held.experts is None and held.latent.kv_rank == 512


@pytest.mark.parametrize(("nodes", "told"), [(1, False), (2, True)])
def test_nodes_that_train_and_generate_in_part_are_told(script, nodes, told):
    more = f"trainer.n_gpus_per_node=4 rollout.nnodes={nodes} rollout.n_gpus_per_node=4"
    text = VERL.format(name="vllm", more=more).replace("nnodes=2", f"nnodes={nodes}", 1)
    made = script("verl", text)
    assert made.values["cluster.gpus_per_server"] == 8
    assert made.values["cluster.training_gpus"] == nodes * 4
    say = "Ray may deal 4 GPUs of each of 2 nodes to training"
    assert any(say in note for note in made.notes) == told


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("model.mtp.enable=False {m}.model.mtp.enable_rollout=True", False),
        ("model.mtp.enable=True {m}.model.mtp.enable_rollout=False", False),
        ("model.mtp.enable=True {m}.model.mtp.enable_rollout=True", True),
        ("model.mtp.enable_rollout=True", True),
    ],
)
def test_drafts_of_a_section_that_is_off_are_not_spoken_of(script, said, told):
    """verl's own configuration names EAGLE and one token, and turns neither on."""
    m = "actor_rollout_ref"
    drafts = f"{m}.model.mtp.speculative_algorithm=EAGLE {m}.model.mtp.num_speculative_tokens=1"
    made = script("verl", VERL.format(name="vllm", more=f"{drafts} {m}.{said.format(m=m)}"))
    assert any("decoding ahead" in note for note in made.notes) == told


@pytest.mark.parametrize(("on", "told"), [("False", False), ("True", True)])
def test_turns_that_are_off_are_none(script, on, told):
    turns = "actor_rollout_ref.rollout.multi_turn"
    more = f"{turns}.enable={on} {turns}.max_assistant_turns=5"
    made = script("verl", VERL.format(name="vllm", more=more))
    assert any("turns with an environment" in note for note in made.notes) == told

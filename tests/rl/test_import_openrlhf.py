"""Jobs of OpenRLHF, by today's flags and by those before."""

import re

import pytest

from rfabric.errors import RFabricError
from rfabric.rl.imports import import_job

NEW = """ray job submit --address=http://h:8265 --runtime-env-json='{{"working_dir": "/o"}}' \\
  -- python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 2 --actor.num_gpus_per_node 8 \\
  --vllm.num_engines 4 --vllm.tensor_parallel_size 2 --actor.model_name_or_path Qwen/Qwen3-8B \\
  --rollout.batch_size 128 --rollout.n_samples_per_prompt 8 --train.batch_size 256 \\
  --data.max_len 8192 --rollout.max_new_tokens 6144 --ds.zero_stage 3 --ds.packing_samples \\
  --algo.advantage.estimator reinforce_baseline --reward.remote_url http://h:5000 \\
  --actor.adam.lr 5e-7 --actor.adam.betas 0.9 0.95 --train.colocate_actor_ref {more}
"""
OLD = """read -r -d '' training_commands <<EOF
openrlhf.cli.train_ppo_ray
   --ref_num_nodes 1 --ref_num_gpus_per_node 4 --reward_num_nodes 1 --reward_num_gpus_per_node 4
   --critic_num_nodes 1 --critic_num_gpus_per_node 4 --actor_num_nodes 1
   --actor_num_gpus_per_node 4 --vllm_num_engines 2 --vllm_tensor_parallel_size 2
   --pretrain meta-llama/Llama-3.1-8B-Instruct --reward_pretrain x/rm --zero_stage 2
   --micro_train_batch_size 8 --train_batch_size 128 --rollout_batch_size 1024
   --prompt_max_len 1024 --generate_max_len 1024 --max_epochs 1 --bf16 --adam_offload
   --gradient_checkpointing --packing_samples {more}
EOF
python3 -m $training_commands
"""


@pytest.fixture
def new(tmp_path):
    """Reads a job of today with more flags."""

    def read(more=""):
        (path := tmp_path / "run.sh").write_text(NEW.format(more=more))
        return import_job("openrlhf", path)

    return read


@pytest.fixture
def old(tmp_path):
    """Reads a job of before with more flags."""

    def read(more=""):
        (path := tmp_path / "run.sh").write_text(OLD.format(more=more))
        return import_job("openrlhf", path)

    return read


def test_a_job_of_todays_flags(new):
    made = new()
    recipe = made.recipe()
    assert recipe["model"] == "Qwen3-8B" and recipe["pipeline"] == "sync"
    cluster, generation, training = (recipe[k] for k in ("cluster", "generation", "training"))
    gpus = cluster["training_gpus"], cluster["generation_gpus"], cluster["gpus_per_server"]
    assert gpus == (16, 8, 8)
    assert (generation["tp"], generation["batch"], generation["group_size"]) == (2, 128, 8)
    assert (generation["max_prompt"], generation["max_response"]) == (2048, 6144)
    assert generation["memory_utilisation"] == 0.95
    assert (training["optimizer"], training["mini_batches"]) == ("sharded", 4)
    assert training["micro_batch_sequences"] == 1 and training["micro_batch_tokens"] == 8192
    assert training["log_prob_passes"] == 2 and "critic" not in training
    assert training["recompute"] == "selective"
    assert not made.misfit and not made.notes
    assert not any("actor" in said or "vllm" in said for said in made.unmapped)


def test_a_job_of_flags_before(old):
    made = old()
    recipe = made.recipe()
    cluster, generation, training = (recipe[k] for k in ("cluster", "generation", "training"))
    assert (cluster["training_gpus"], cluster["generation_gpus"]) == (4, 4)
    assert (generation["max_prompt"], generation["max_response"]) == (1024, 1024)
    assert training["critic"] is True and training["log_prob_passes"] == 3
    assert training["host_optimizer"] is True and "optimizer" in training
    assert (training["recompute"], training["mini_batches"]) == ("full", 8)
    assert (training["micro_batch_sequences"], training["micro_batch_tokens"]) == (8, 16384)
    said = " ".join(made.notes)
    for note in ("critic is trained", "4 of its own", "reference policy has 4", "reward model"):
        assert note in said


def test_all_on_the_same_gpus(old):
    made = old("--colocate_all_models --vllm_enable_sleep --advantage_estimator group_norm")
    recipe = made.recipe()
    assert recipe["placement"] == "colocated" and recipe["cluster"]["training_gpus"] == 4
    assert not any("of its own" in note for note in made.notes)
    assert ["ds.enable_sleep" in note for note in made.notes if "stays in the HBM" in note] == [
        True
    ]
    odd = old("--colocate_all_models --vllm_num_engines 4")
    assert any("which OpenRLHF refuses" in note for note in odd.notes)


@pytest.mark.parametrize(
    ("flags", "pipeline", "staleness"),
    [
        ("--train.async_enable", "one-step-off", None),
        ("--train.async_enable --train.async_queue_size 3", "bounded-staleness", 3),
        ("--train.async_enable --train.partial_rollout_enable", "async", 1),
        ("--train.async_enable --train.colocate_all", "one-step-off", None),
    ],
)
def test_how_far_generation_runs_ahead(new, flags, pipeline, staleness):
    recipe = new(flags).recipe()
    assert (recipe["pipeline"], recipe.get("staleness")) == (pipeline, staleness)
    assert recipe["cluster"]["generation_gpus"] == 8


@pytest.mark.parametrize(
    ("flags", "key", "value"),
    [
        ("--ds.tensor_parallel_size 2", "tp", 2),
        ("--ds.ring_attn_size 2", "cp", 2),
        ("--ds.zero_stage 0", "optimizer", "replicated"),
        ("--ds.zero_stage 1", "optimizer", "zero1"),
        ("--ds.zero_stage 2", "optimizer", "zero2"),
        ("--ds.zero_stage 3", "ends", "apart"),
        (
            "--train.dynamic_batch_enable --train.max_tokens_per_gpu 9000",
            "micro_batch_tokens",
            9000,
        ),
        ("--train.dynamic_batch_enable --ds.tensor_parallel_size 2", "micro_batch_tokens", 32384),
        ("--train.max_epochs 2", "epochs", 2),
        ("--algo.kl.init_coef 0", "log_prob_passes", 1),
        ("--ds.lora.rank 16", "lora_rank", 16),
        ("--train.max_epochs 1", "grad_dtype", "bf16"),
        ("--train.batch_size 384", "mini_batches", 2),
        ("--actor.gradient_checkpointing_enable", "recompute", "full"),
        ("--train.micro_batch_size 4", "micro_batch_sequences", 4),
    ],
)
def test_a_flag_of_the_training(new, flags, key, value):
    assert new(flags).recipe()["training"][key] == value


def test_engines_get_all_weights_beside_those_of_adapters(new):
    made = new("--ds.lora.rank 16")
    assert made.recipe()["weight_sync"]["adapters"] == "merged"
    assert any("a weight sync sends whole weights" in note for note in made.notes)


@pytest.mark.parametrize(
    ("flags", "prompt", "response"),
    [
        ("--rollout.max_new_tokens 9000", 2048, 6144),
        ("--data.max_len 1024", 512, 512),
        ("--data.max_len 7168", 1024, 6144),
    ],
)
def test_a_total_that_bounds_prompt_and_response(new, flags, prompt, response):
    generation = new(flags).recipe()["generation"]
    assert (generation["max_prompt"], generation["max_response"]) == (prompt, response)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--ds.zpg 8", "ZeRO++"),
        ("--train.agent_func_path a.py", "turns with an environment"),
        ("--algo.dynamic_filtering_enable", "groups whose rewards are alike"),
        ("--rollout.vllm_generate_batch_size 512", "so many prompts are begun at once"),
        ("--train.batch_size 384", "leaves the last 256 of 1024 samples out"),
    ],
)
def test_what_a_recipe_cannot_say_is_spoken_of(new, flags, said):
    assert any(said in note for note in new(flags).notes)
    assert not any(said in note for note in new().notes)


def test_a_filter_begins_more_prompts(new):
    flags = "--algo.dynamic_filtering_enable --rollout.vllm_generate_batch_size 256"
    assert new(flags).recipe()["generation"]["prompts"] == 256


@pytest.mark.parametrize(
    ("text", "more", "padding", "attention"),
    [
        (NEW, "", "micro-batch", False),
        (NEW, "--ds.attn_implementation eager", "micro-batch", None),
        (NEW, "--ds.ring_attn_size 2", None, None),  # rings pack by themselves
        (OLD, "", "micro-batch", None),
        (OLD, "--flash_attn", "micro-batch", False),
    ],
)
def test_padding_is_read(tmp_path, text, more, padding, attention):
    """FlashAttention leaves it out of attention."""
    text = re.sub(r"--\S*packing_samples", "", text.format(more=more))
    (path := tmp_path / "run.sh").write_text(text)
    made = import_job("openrlhf", path)
    training = made.recipe()["training"]
    assert (training.get("padding"), training.get("padded_attention")) == (padding, attention)
    assert any("padding is computed" in note for note in made.notes) == bool(padding)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("train_ppo_ray", "train_sft"), "only trains or only serves"),
        (("--vllm.num_engines 4", ""), "the trainer generates by itself"),
        (("--vllm.num_engines 4", "--vllm.num_engines 0"), "the trainer generates by itself"),
        (("--train.batch_size 256", "--train.batch_size 2048"), "does not divide the batch"),
        (("--actor.num_nodes 2", "--actor.num_nodes 0"), "leaves 0 GPUs for training"),
        (("--actor.model_name_or_path Qwen/Qwen3-8B", ""), "it names no model"),
    ],
)
def test_what_is_no_step_is_refused(tmp_path, change, why):
    (path := tmp_path / "run.sh").write_text(NEW.format(more="").replace(*change))
    with pytest.raises(RFabricError, match=why):
        import_job("openrlhf", path)

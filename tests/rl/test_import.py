"""Recipes from jobs of other frameworks: what is mapped, what is assumed, what is listed. Scripts
are read, never run.
"""

import contextlib
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.cli import main
from rfabric.compute.configs import model_of
from rfabric.compute.named import read_model
from rfabric.compute.sizes import SLACK
from rfabric.errors import RFabricError
from rfabric.folders import data_dir
from rfabric.rl.imports import FRAMEWORKS, import_job
from rfabric.rl.imports.roll import devices
from rfabric.rl.imports.settings import read_settings
from rfabric.rl.workload import read_recipe

VERL = r"""#!/usr/bin/env bash
set -xeuo pipefail
prompt=$((1024 * 2))            # tokens
answer=$((1024 * 8))
NODES=${NODES:-2}
MODEL=${MODEL:-"$HOME/models/Qwen2.5-7B"}
python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files="$HOME/train.parquet" \
    data.train_batch_size=512 \
    data.max_prompt_length=${prompt} \
    data.max_response_length=${answer} \
    actor_rollout_ref.model.path="${MODEL}" \
    actor_rollout_ref.actor.strategy=megatron \
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 \
    actor_rollout_ref.actor.ppo_mini_batch_size=128 \
    actor_rollout_ref.actor.use_dynamic_bsz=True \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$((prompt + answer)) \
    actor_rollout_ref.actor.use_kl_loss=True \
    +actor_rollout_ref.rollout.chunks=3 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
    actor_rollout_ref.rollout.n=16 \
    trainer.n_gpus_per_node=8 trainer.nnodes="${NODES}" $@
"""

SLIME = """
touch {witness}
HERE="$(cd "$(dirname "$0")" && pwd)"
source "${{HERE}}/models/qwen2.5-7B.sh"
ROLLOUT_ARGS=(
   --rollout-batch-size 32
   --n-samples-per-prompt 8      # a comment's quote: it's fine
   --rollout-max-response-len 8192
   --global-batch-size 256
   --balance-data
)
PERF_ARGS=( --tensor-model-parallel-size 2 --recompute-granularity full
   --use-dynamic-batch-size --max-tokens-per-gpu 9216 )
ray job submit -- python3 train_async.py \\
   --actor-num-nodes 1 --actor-num-gpus-per-node 4 \\
   --rollout-num-gpus 4 --rollout-num-gpus-per-engine 2 \\
   "${{ROLLOUT_ARGS[@]}}" ${{PERF_ARGS[@]}}
"""

ROLL = """
num_gpus_per_node: 8
rollout_batch_size: 64
num_return_sequences_in_group: 8
prompt_length: 2048
response_length: 8192
async_generation_ratio: 1
pretrain: Qwen/Qwen2.5-7B
actor_train:
  training_args:
    {per_device_train_batch_size: 1, gradient_accumulation_steps: 32, learning_rate: 1.0e-6}
  strategy_args:
    strategy_name: megatron_train
    strategy_config: {tensor_model_parallel_size: 2, recompute_granularity: full}
  device_mapping: list(range(0,8))
actor_infer:
  generating_args: {max_new_tokens: "${response_length}"}
  strategy_args: {strategy_config: {gpu_memory_utilization: 0.8, block_size: 16}}
  device_mapping: list(range(8,16))
reference: {device_mapping: "list(range(0,8))"}
"""

PARENT = """
grpo: {num_prompts_per_step: 64, num_generations_per_prompt: 32, async_grpo: {enabled: false}}
policy:
  model_name: Qwen/Qwen2.5-7B
  train_global_batch_size: 512
  train_micro_batch_size: 1
  max_total_sequence_length: 4096
  dtensor_cfg: {enabled: true, tensor_parallel_size: 2, activation_checkpointing: true}
  generation:
    vllm_cfg: {tensor_parallel_size: 2, gpu_memory_utilization: 0.6}
    colocated: {enabled: true, resources: {gpus_per_node: null, num_nodes: null}}
data: {max_input_seq_length: "${policy.max_total_sequence_length}"}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""

NEMO = """
defaults: parent.yaml
grpo: {async_grpo: {enabled: true, max_trajectory_age_steps: 1}}
policy: {generation: {colocated: {enabled: false, resources: {num_nodes: 1, gpus_per_node: 8}}}}
"""


AREAL = """
cluster: {n_nodes: 1, n_gpus_per_node: 8}
rollout: {backend: "sglang:d4p1t1", max_head_offpolicyness: 2}
gconfig: {n_samples: 4, max_new_tokens: 1024}
actor:
  backend: "fsdp:d4p1t1"
  path: Qwen/Qwen2.5-1.5B-Instruct
  mb_spec: {max_tokens_per_mb: 10240}
  ppo_n_minibatches: 1
sglang: {mem_fraction_static: 0.8}
train_dataset: {batch_size: 256, max_length: 1024}
"""


@pytest.fixture
def job(tmp_path):
    """Writes a job's file, reads it."""

    def read(framework, text, name="", **told):
        path = tmp_path / (name or f"job.{'sh' if framework in ('verl', 'slime') else 'yaml'}")
        path.write_text(text)
        return import_job(framework, path, **told)

    return read


def section(job, name):
    return job.recipe()[name]


def test_verl_script(job):
    imported = job("verl", VERL)
    generation, training = section(imported, "generation"), section(imported, "training")
    # shell arithmetic
    assert (generation["max_prompt"], generation["max_response"]) == (2048, 8192)
    assert (generation["batch"], generation["group_size"], generation["tp"]) == (512, 16, 2)
    assert (
        training["micro_batch_tokens"] == 10240
        and training["mini_batches"] == 4
        and training["tp"] == 4
    )
    assert training["log_prob_passes"] == 2
    assert imported.recipe()["model"] == "Qwen2.5-7B"  # a default beside $HOME
    assert (
        section(imported, "cluster")["training_gpus"] == 16
        and imported.recipe()["placement"] == "colocated"
    )
    assert imported.unmapped == ("actor_rollout_ref.rollout.chunks = 3",)
    assert "data.train_files" in imported.ignored
    assert "cluster.gpu" in imported.assumed and "generation.batch" not in imported.assumed


def test_verl_yaml_says_the_same_as_its_script(job):
    script = job("verl", VERL)
    nested = {}
    for key, value in read_settings(script.file).values.items():
        *outer, last = key.split(".")
        at = nested
        for part in outer:
            at = at.setdefault(part, {})
        at[last] = value
    assert job("verl", yaml.safe_dump(nested), "job.yaml").recipe() == script.recipe()


def test_verl_with_rollout_nodes_of_its_own_is_asynchronous(job):
    text = VERL.replace("$@", "rollout.nnodes=1 async_training.staleness_threshold=0.5")
    imported = job("verl", text)
    assert (
        section(imported, "cluster")["generation_gpus"] == 8
        and "placement" not in imported.recipe()
    )
    assert imported.recipe()["pipeline"] == "async" and imported.recipe()["staleness"] == 0.5
    assert (
        job("verl", VERL.replace("$@", "rollout.nnodes=1")).recipe()["pipeline"] == "one-step-off"
    )


def test_fsdp_shards_parameters_and_megatron_does_not(job):
    fsdp = VERL.replace("strategy=megatron", "strategy=fsdp2").replace(
        "megatron.tensor_model_parallel_size", "loss"
    )
    assert section(job("verl", fsdp), "training")["optimizer"] == "sharded"
    assert "optimizer" not in section(job("verl", VERL), "training")


@pytest.mark.parametrize(
    ("size", "read"),
    [("-1", None), ("0", None), ("2", 2), ("8", 8), ("16", None), ("64", None), ("null", None)],
)
def test_fsdp_may_shard_over_part_of_the_gpus(job, size, read):
    fsdp = VERL.replace("strategy=megatron", "strategy=fsdp2").replace(
        "megatron.tensor_model_parallel_size", "loss"
    )
    key = "actor_rollout_ref.actor.fsdp_config.fsdp_size"
    made = job("verl", fsdp.replace("$@", f"{key}={size}"))  # of 16 GPUs
    assert section(made, "training").get("fsdp_size") == read
    assert not any("fsdp_size" in note for note in made.notes)


def test_a_critic_is_trained_as_well_and_that_is_said(job):
    without, with_one = (job("verl", VERL.replace("=grpo", f"={one}")) for one in ("grpo", "gae"))
    assert section(with_one, "training")["critic"] is True
    assert (
        section(with_one, "training")["log_prob_passes"]
        == section(without, "training")["log_prob_passes"] + 1
    )
    assert any("critic" in note for note in with_one.notes) and not without.notes[1:]


def test_slime_script_is_read_and_not_run(job, tmp_path):
    imported = job("slime", SLIME.format(witness=tmp_path / "witness"))
    assert not (tmp_path / "witness").exists()
    assert imported.recipe()["model"] == "Qwen2.5-7B"  # from the file of shapes it sources
    assert (
        section(imported, "cluster")["training_gpus"] == 4
        and section(imported, "cluster")["generation_gpus"] == 4
    )
    assert section(imported, "training")["micro_batch_tokens"] == 9216
    assert section(imported, "training")["recompute"] == "full"
    assert section(imported, "weight_sync")["gather"] == "bucket"
    assert section(imported, "generation")["max_response"] == 8192
    assert imported.recipe()["pipeline"] == "one-step-off"
    assert "balance-data = True" in imported.unmapped


def test_a_micro_batch_is_cut_over_context_ranks(job):
    perf = "--tensor-model-parallel-size 2 --context-parallel-size 2 --micro-batch-size 1"
    text = (
        SLIME.format(witness="x")
        .replace("--tensor-model-parallel-size 2", perf)
        .replace("--use-dynamic-batch-size", "")
    )
    imported = job("slime", text)
    longest = section(imported, "generation")["max_prompt"] + 8192
    assert section(imported, "training")["micro_batch_tokens"] == longest // 2


@pytest.mark.parametrize(
    ("framework", "text"),
    [
        ("verl", "A=0123456789\n" + "A=$A$A\n" * 60),
        ("roll", "a0: xxxxxxxx\n" + "".join(
            f"a{i}: ${{a{i - 1}}}${{a{i - 1}}}\n" for i in range(1, 60))),
        ("roll", "a0: &a0 {x: 1, y: 2}\n" + "".join(
            f"a{i}: &a{i} {{x: *a{i - 1}, y: *a{i - 1}}}\n" for i in range(1, 60))),
    ],
)  # fmt: skip
def test_a_small_file_that_stands_for_gigabytes_is_refused(job, framework, text):
    with pytest.raises(RFabricError, match="that is no job's file"):
        job(framework, text)


def test_slime_must_say_where_rollouts_run(job):
    with pytest.raises(RFabricError, match="neither --colocate nor --rollout-num-gpus is set"):
        job("slime", "python3 train.py --hf-checkpoint /m/Qwen2.5-7B --rollout-batch-size 8")


def test_roll(job):
    imported = job("roll", ROLL)
    assert (
        section(imported, "cluster")["training_gpus"]
        == section(imported, "cluster")["generation_gpus"]
        == 8
    )
    # response_length, and what refers to it
    assert section(imported, "generation")["max_response"] == 8192
    assert section(imported, "training")["mini_batches"] == 512 // (1 * 32 * 4)
    assert imported.recipe()["pipeline"] == "one-step-off"
    assert any("block_size = 16" in key for key in imported.unmapped)


def test_roll_roles_on_shared_gpus_are_colocated(job):
    imported = job("roll", ROLL.replace("range(8,16)", "range(0,8)"))
    assert (
        imported.recipe()["placement"] == "colocated"
        and section(imported, "cluster")["training_gpus"] == 8
    )


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("list(range(0,4))", {0, 1, 2, 3}),
        (("list(range(2)) + list(range(6, 8))"), {0, 1, 6, 7}),
        ("[1, 3]", {1, 3}),
        ("range(4 * 1, 4 * 2)", {4, 5, 6, 7}),
        ("[*range(2)] + [8 ]", {0, 1, 8}),
    ],
)
def test_device_mapping(text, gpus):
    assert devices(text, "x") == gpus


@pytest.mark.parametrize(
    "text", ["__import__('os').system('true')", "list(range(x))", "", "{}[0]", "list(range(0,8)"]
)
def test_device_mapping_is_never_run(text):
    with pytest.raises(RFabricError, match="names no GPUs"):
        devices(text, "x")


def test_nemo_rl_inherits(job, tmp_path):
    (tmp_path / "parent.yaml").write_text(PARENT)
    imported = job("nemo-rl", NEMO)
    assert (
        section(imported, "cluster")["training_gpus"] == 8
        and section(imported, "cluster")["generation_gpus"] == 8
    )
    assert imported.recipe()["pipeline"] == "one-step-off"
    assert section(imported, "training")["mini_batches"] == 2048 // 512
    assert section(imported, "training")["recompute"] == "full"
    together = section(imported, "generation")
    assert together["max_prompt"] + together["max_response"] == 4096


def test_inheritance_in_a_circle_is_an_error(job, tmp_path):
    (tmp_path / "parent.yaml").write_text("defaults: job.yaml\n")
    with pytest.raises(RFabricError, match="lead back to itself"):
        job("nemo-rl", NEMO)


def test_what_is_imported_is_a_recipe_that_runs(job, tmp_path):
    (tmp_path / "parent.yaml").write_text(PARENT)
    for framework, text in (
        ("verl", VERL),
        ("slime", SLIME.format(witness="x")),
        ("roll", ROLL),
        ("nemo-rl", NEMO),
    ):
        imported = job(framework, text)
        path = tmp_path / f"{framework}.recipe.yaml"
        path.write_text(imported.yaml())
        assert not imported.misfit
        workload = read_recipe(path)
        assert workload.generation.batch == section(imported, "generation")["batch"]
        assert all("#" in line for line in imported.yaml().splitlines() if ": " in line)


def test_the_verb_writes_a_recipe_and_says_what_it_left_out(tmp_path, capsys):
    (script := tmp_path / "run.sh").write_text(VERL)
    out = tmp_path / "mine.yaml"
    assert main(["import", "verl", str(script), "-o", str(out), "--gpu", "h800"]) == 0
    said = capsys.readouterr().err
    assert "not mapped, may change time: 1 (actor_rollout_ref.rollout.chunks)" in said
    assert main(["import", "verl", str(script), "-v"]) == 0
    assert "not mapped: actor_rollout_ref.rollout.chunks = 3" in capsys.readouterr().err
    assert read_recipe(out).gpu.name == "H800"
    assert main(["import", "verl", str(script), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["recipe"]["generation"]["batch"] == 512 and told["misfit"] == ""
    assert set(told) == {
        "framework",
        "file",
        "assumed",
        "unmapped",
        "ignored",
        "recipe",
        "misfit",
        "notes",
    }


@pytest.mark.parametrize(
    ("framework", "text", "message"),
    [
        ("verl", "", "is empty"),
        ("verl", "echo", "sets nothing"),
        ("verl", VERL.replace("Qwen2.5-7B", "MyOwn"),
         "MyOwn' has no config here; say --model config.json, or one of"),
        ("verl", VERL.replace("train_batch_size=512", "train_batch_size=many"),
         "data.train_batch_size is 'many', not a number"),
        ("verl", VERL.replace("batch_size=128", "batch_size=100 trainer.use_v1=False"),
         "= 100: updates of 1600 do not divide the 8192 sequences of a step, which verl's Megatron "
         "actor refuses"),
        ("verl", VERL.replace('"$HOME/train.parquet"', '"open'),
         "a quote or bracket is opened and not closed"),
        ("verl", VERL.replace("{NODES:-2}", "{NODES}"),
         "trainer.nnodes is .*NODES.*; say --env NODES=VALUE"),
        ("roll", "a: [", "while parsing"),
        ("roll", "- 1", "holds no mapping"),
        ("roll", ROLL.replace("response_length: 8192", "").replace("max_new_tokens", "other"),
         "response_length is not set"),
        ("roll", ROLL.replace("list(range(8,16))", "all"),
         "actor_infer.device_mapping: 'all' names no GPUs"),
        ("nemo-rl", "policy: {model_name: Qwen2.5-7B}", "num_prompts_per_step is not set"),
    ],
)  # fmt: skip
def test_bad_jobs(job, framework, text, message):
    with pytest.raises(RFabricError, match=message):
        job(framework, text)


def test_bad_options(job, tmp_path):
    with pytest.raises(RFabricError, match="no importer for 'trl'; there are verl"):
        import_job("trl", tmp_path / "x")
    with pytest.raises(RFabricError, match="--gpu 'abacus' is not in the catalog"):
        job("verl", VERL, gpu="abacus")
    with pytest.raises(RFabricError, match="cannot be read"):
        import_job("verl", tmp_path / "none.sh")
    assert main(["import", "verl", str(tmp_path / "none.sh")]) == 2


def test_an_error_names_its_file_once(tmp_path):
    (tmp_path / "empty.yaml").touch()
    with pytest.raises(RFabricError) as error:
        import_job("verl", tmp_path / "empty.yaml")
    assert str(error.value).count("empty.yaml") == 1


OPENRLHF = """python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen3-8B --actor_num_nodes 1 \\
  --vllm_num_engines 4 --vllm_tensor_parallel_size 2 --prompt_max_len 1024 --zero_stage 3
"""


@settings(max_examples=150, deadline=None)
@given(
    framework=st.sampled_from(sorted(FRAMEWORKS)),
    cut=st.integers(0, 1500),
    noise=st.text(max_size=40),
    script=st.booleans(),
)
def test_garbage_is_an_error_and_never_a_traceback(tmp_path_factory, framework, cut, noise, script):
    texts = {"verl": VERL, "slime": SLIME, "roll": ROLL, "nemo-rl": PARENT, "areal": AREAL}
    text = (texts | {"openrlhf": OPENRLHF})[framework]
    path = tmp_path_factory.mktemp("garbage") / ("job.sh" if script else "job.yaml")
    path.write_text(text[:cut] + noise + text[cut:], encoding="utf-8", errors="replace")
    with contextlib.suppress(RFabricError):
        import_job(framework, path).yaml()


# --- AReaL ----------------------------------------------------------------------------------------


def test_areal_backends_are_gpus_and_parallelism(job):
    made = job("areal", AREAL)
    cluster = section(made, "cluster")
    assert (cluster["training_gpus"], cluster["generation_gpus"]) == (4, 4)
    assert made.recipe()["staleness"] == 2 and made.recipe()["pipeline"] == "async"
    assert section(made, "training")["optimizer"] == "sharded" and not made.misfit
    wide = AREAL.replace("fsdp:d4p1t1", "megatron:(attn:d4p4t2|ffn:d2p4e4)")
    training = section(job("areal", wide.replace("d4p1t1", "d8t4")), "training")
    assert (training["tp"], training["pp"]) == (2, 4)


@pytest.mark.parametrize(
    ("mode", "gpus", "placement"),
    [
        ("sglang:d4p1t2+fsdp:d8", (8, 8), None),
        ("sglang.d8t1p1+d4t2p1", (8, 8), None),
        ("sglang:d8|fsdp:d8", (8, 8), "colocated"),
        ("vllm:d2t4+megatron:(attn:d4t2|ffn:d2e4)", (8, 8), None),
    ],
)
def test_areal_allocation_mode(job, mode, gpus, placement):
    made = job("areal", AREAL + f'allocation_mode: "{mode}"\n')
    cluster = section(made, "cluster")
    assert (cluster["training_gpus"], cluster["generation_gpus"]) == gpus
    assert made.recipe().get("placement") == placement


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sglang:d4p1t1", "sglang:4", "is no parallelism; write for example d4p1t2"),
        ("sglang:d4p1t1", "sglang d4", "is no backend; write for example sglang:d4p1t1"),
        ('{backend: "sglang:d4p1t1", ', "{", "rollout.backend is not set"),
    ],
)
def test_bad_areal_jobs(job, old, new, message):
    with pytest.raises(RFabricError, match=message):
        job("areal", AREAL.replace(old, new))


# --- what the file does not say -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("checkpoint", "means"),
    [
        ("/ckpt/dapo-qwen3-14b-base-step200", "Qwen3-14B"),
        ("/ckpt/run7_Qwen2.5-Math-7B-16k-think", "Qwen2.5-Math-7B"),
        ("/ckpt/my-qwen3-30b-a3b-sft-e3", "Qwen3-30B-A3B"),
    ],
)
def test_a_checkpoints_name_may_hold_the_models_between_words_of_its_own(job, checkpoint, means):
    made = job("verl", ONE_LINE.replace("Qwen/Qwen3-8B", checkpoint))
    assert made.values["model"] == means and "model" in made.assumed


def test_a_name_that_says_experts_and_one_size_says_too_little(job):
    """As dense as Qwen3-32B, each token would pass ten times the parameters of Qwen3-30B-A3B."""
    with pytest.raises(RFabricError, match="'/ckpt/qwen3_moe_30b' has no config here"):
        job("verl", ONE_LINE.replace("Qwen/Qwen3-8B", "/ckpt/qwen3_moe_30b"))


def test_a_model_without_a_config_is_shaped_by_the_size_its_name_states(job):
    made = job("verl", VERL.replace("Qwen2.5-7B", "MyOwn-9B"))
    model = made.recipe()["model"]
    assert model["name"] == "MyOwn-9B" and "model" in made.assumed
    assert "shaped like" in made.origin["model"] and not made.misfit
    assert model_of({k: v for k, v in model.items() if k != "name"}, "x").parameters == (
        pytest.approx(9e9, rel=SLACK)
    )


def test_an_assumption_under_which_the_job_cannot_run_gives_way_and_says_so(job):
    long = VERL.replace("answer=$((1024 * 8))", "answer=132000")
    assert long != VERL
    made = job("verl", long)
    assert section(made, "generation")["context"] > 132_000
    assert "else it could not run" in made.origin["generation.context"]
    assert "exceeds the context" in made.origin["generation.context"]


def test_the_environment_is_what_was_told_and_nothing_else(job, monkeypatch):
    monkeypatch.setenv("NODES", "64")
    assert section(job("verl", VERL), "cluster")["training_gpus"] == 16
    made = job("verl", VERL, environment={"NODES": "4"})
    assert section(made, "cluster")["training_gpus"] == 32
    assert "NODES=2" in " ".join(job("verl", VERL).notes)


def test_an_agentic_roll_job_counts_trajectories_in_groups_of_environments(job):
    agentic = ROLL.replace("response_length: 8192", "response_length: 512") + (
        "sequence_length: 8192\nmax_actions_per_traj: 10\n"
        "train_env_manager: {group_size: 8, num_env_groups: 16}\n"
    )
    assert agentic.count("sequence_length") == 1
    made = job("roll", agentic)
    generation = section(made, "generation")
    assert (generation["batch"], generation["group_size"]) == (64 // 8, 8)
    assert (generation["turns"], generation["max_response"]) == (10, 5120)


# --- settings of the same name everywhere -----------------------------------------------------


def with_settings(*lines, fsdp=False):
    """The verl job with further settings; with FSDP in Megatron's place."""
    kept = [line for line in VERL.splitlines() if not (fsdp and "megatron" in line)]
    return "\n".join(kept) + " \\\n " + " \\\n ".join(lines) + "\n"


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        ("+actor_rollout_ref.actor.optim.optimizer_cpu_offload=True", "host_optimizer", True),
        ("actor_rollout_ref.actor.ppo_epochs=3", "epochs", 3),
        ("actor_rollout_ref.actor.ulysses_sequence_parallel_size=2", "context_exchange", "ulysses"),
    ],
)
def test_a_setting_that_changes_training_is_in_the_recipe(job, setting, key, value):
    imported = job("verl", with_settings(setting, fsdp="ulysses" in setting))
    assert section(imported, "training")[key] == value
    assert not any(setting.split("=")[0].strip("+") in said for said in imported.unmapped)


@pytest.mark.parametrize(
    ("settings", "rank", "adapters"),
    [
        (["actor_rollout_ref.model.lora_rank=32"], 32, None),
        (["actor_rollout_ref.model.lora_rank=32", "+actor_rollout_ref.model.lora.merge=True"],
         32, "merged"),
        (["actor_rollout_ref.model.lora.rank=8"], 8, None),
        (["actor_rollout_ref.model.lora_rank=0"], None, None),
    ],
)  # fmt: skip
def test_adapters_learn_in_place_of_the_weights(job, settings, rank, adapters):
    made = job("verl", with_settings(*settings, fsdp=True))
    assert section(made, "training").get("lora_rank") == rank
    assert section(made, "weight_sync").get("adapters") == adapters
    assert any("a weight sync sends" in note for note in made.notes) == (rank is not None)


def test_reference_and_reward_workers_have_settings_of_their_own(job):
    made = job("verl", with_settings("+actor_rollout_ref.ref.optim.optimizer_cpu_offload=True"))
    assert "host_optimizer" not in section(made, "training")


@pytest.mark.parametrize(("dtype", "told"), [("bf16", "bf16"), ("float32", "fp32")])
def test_gradients_of_fsdp_are_reduced_as_its_precision_says(job, dtype, told):
    key = "actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype"
    made = job("verl", with_settings(f"+{key}={dtype}", fsdp=True))
    assert section(made, "training")["grad_dtype"] == told
    assert not any(key in said for said in made.unmapped)


def test_states_of_the_optimizer_in_fewer_bits_are_not_without_effect(job):
    key = "actor_rollout_ref.actor.optim.override_optimizer_config.main_grads_dtype"
    assert f"{key} = bf16" in job("verl", with_settings(f"+{key}=bf16")).unmapped


@pytest.mark.parametrize(("aware", "dtype"), [("True", "bf16"), ("False", None)])
def test_megatrons_gradients_are_sent_in_as_few_bits_as_its_optimizer_holds(job, aware, dtype):
    optimizer = "+actor_rollout_ref.actor.optim.override_optimizer_config"
    made = job(
        "verl",
        with_settings(
            "actor_rollout_ref.actor.strategy=megatron",
            f"{optimizer}.main_grads_dtype=bfloat16",
            f"{optimizer}.use_precision_aware_optimizer={aware}",
        ),
    )
    assert section(made, "training").get("grad_dtype") == dtype


def test_gradients_and_chunks_of_megatron(job):
    megatron = "actor_rollout_ref.actor.megatron"
    made = job(
        "verl",
        with_settings(
            "actor_rollout_ref.actor.strategy=megatron",
            f"{megatron}.pipeline_model_parallel_size=2",
            f"{megatron}.virtual_pipeline_model_parallel_size=2",
            f"+{megatron}.override_ddp_config.grad_reduce_in_fp32=False",
            f"+{megatron}.override_ddp_config.use_distributed_optimizer=False",
        ),
    )
    training = section(made, "training")
    assert (training["vp"], training["grad_dtype"], training["optimizer"]) == (
        2,
        "bf16",
        "replicated",
    )


ROLLOUT = "actor_rollout_ref.rollout"
MIXTURE = (
    "actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B",
    "actor_rollout_ref.actor.megatron.expert_model_parallel_size=16",
)


def engine(made):
    generation = section(made, "generation")
    return generation["tp"], generation.get("ep", 1)


def test_attention_replicas_of_an_engine_share_its_experts(job):
    """vLLM's data_parallel_size: beside tp, and of a model without experts a replica each."""
    for replicas, ep in ((1, 1), (2, 4), (4, 8)):
        words = (f"{ROLLOUT}.data_parallel_size={replicas}",)
        words += (f"{ROLLOUT}.expert_parallel_size={2 * replicas}",)
        made = job("verl", with_settings(*MIXTURE, *words))
        assert engine(made) == (2, ep) and not made.misfit
        assert not any("tensor parallelism" in note for note in made.notes)
        assert engine(job("verl", with_settings(*words))) == (2, 1)


@pytest.mark.parametrize(
    ("words", "tp", "ep"),
    [
        ("--sglang-dp-size 4 --sglang-enable-dp-attention --sglang-ep-size 4", 1, 4),
        ("--sglang-dp-size 2 --sglang-enable-dp-attention", 2, 4),
        ("--sglang-dp-size 4", 4, 1),  # without it, dp-size is of whole servers
    ],
)
def test_sglang_cuts_attention_replicas_out_of_an_engine(job, words, tp, ep):
    text = SLIME.format(witness="x").replace("qwen2.5-7B.sh", "qwen3-30B-A3B.sh")
    text = text.replace(
        "--rollout-num-gpus-per-engine 2", f"--rollout-num-gpus-per-engine 4 {words}"
    )
    text = text.replace("--tensor-model-parallel-size 2", "--tensor-model-parallel-size 2 "
                        "--expert-model-parallel-size 4")  # fmt: skip
    assert engine(job("slime", text)) == (tp, ep)


def test_an_engine_of_pipeline_stages_is_taken_as_tensor_parallel(job):
    made = job("verl", with_settings(f"{ROLLOUT}.pipeline_parallel_size=4"))
    assert engine(made) == (4, 1)  # 8 do not divide the 28 heads
    assert any("8 GPUs" in note and "over 4" in note for note in made.notes)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("+actor_rollout_ref.rollout.max_turns=5", "say generation.turns"),
        ("+actor_rollout_ref.rollout.multi_turn.max_user_turns=5", "say generation.turns"),
        ("actor_rollout_ref.model.mtp.enable_rollout=True", "takes a pass"),
        ("actor_rollout_ref.rollout.update_weights_bucket_megabytes=512", "one transfer"),
    ],
)
def test_what_a_recipe_cannot_say_is_a_note(job, setting, said):
    imported = job("verl", with_settings(setting))
    assert any(said in note and setting.strip("+").split("=")[0] in note for note in imported.notes)
    assert not imported.misfit


def test_settings_left_out_are_few_lines(tmp_path, capsys):
    more = [f"+strange.of_nobody.number_{i}={i}" for i in range(40)]
    more += [f"+actor_rollout_ref.rollout.batch_{i}={i}" for i in range(40)]
    (script := tmp_path / "run.sh").write_text(with_settings(*more))
    assert main(["import", "verl", str(script), "-o", str(tmp_path / "a.yaml")]) == 0
    lines = [ln for ln in capsys.readouterr().err.splitlines() if ln.startswith("not mapped")]
    assert len(lines) <= 4 and any("40 (" in line for line in lines)
    assert main(["import", "verl", str(script), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["unmapped"]) >= 80


def test_a_recipe_that_cannot_run_is_refused_and_nothing_is_written(tmp_path, capsys):
    large = with_settings("actor_rollout_ref.model.path=Qwen/Qwen2.5-72B-Instruct")
    (script := tmp_path / "run.sh").write_text(
        large.replace("tensor_model_parallel_size=", "tensor_model_parallel_size=1 x=")
    )
    out = tmp_path / "mine.yaml"
    assert main(["import", "verl", str(script), "-o", str(out), "--gpu", "H100"]) == 2
    said = capsys.readouterr()
    assert not out.exists() and not said.out
    assert "the recipe cannot run: " in said.err and "it would run with" in said.err


def test_a_config_of_an_unknown_field_is_noted_where_its_size_is_met(job, tmp_path):
    config = json.loads((data_dir("traffic") / "models" / "Qwen2.5-7B.json").read_text())
    config = {k: v for k, v in config.items() if not k.startswith("_")} | {"engram_size": 7}
    (near := tmp_path / "Mine-7.6B.json").write_text(json.dumps(config))
    model = read_model(near)
    assert any("engram_size" in note and "approximation" in note for note in model.notes)
    (far := tmp_path / "Mine-30B.json").write_text(json.dumps(config))
    with pytest.raises(RFabricError, match="engram_size"):
        read_model(far)


ONE_LINE = (
    "python3 -m verl.trainer.main_ppo data.train_batch_size=512 data.max_prompt_length=1024 "
    "data.max_response_length=1024 actor_rollout_ref.model.path=Qwen/Qwen3-8B "
    "actor_rollout_ref.actor.ppo_mini_batch_size=128 trainer.n_gpus_per_node=8 "
)
ADVANTAGE = "algorithm.adv_estimator="


@pytest.mark.parametrize(
    ("words", "tokens"),
    [
        ("actor_rollout_ref.actor.ppo_micro_batch_size=64", 64 // 8 * 2048),
        ("actor_rollout_ref.actor.use_dynamic_bsz=True", 16384),
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=null", 2048),
    ],
)
def test_verl_micro_batches_of_older_scripts_and_by_default(job, words, tokens):
    assert section(job("verl", ONE_LINE + words), "training")["micro_batch_tokens"] == tokens


def test_verl_says_what_its_defaults_add(job):
    silent = job("verl", ONE_LINE)
    assert section(silent, "training")["critic"] is True
    assert any("gae, verl's default" in note for note in silent.notes)
    text = f"{ONE_LINE} {ADVANTAGE}grpo reward_model.enable=True data.gen_batch_size=1536"
    imported = job("verl", text)
    assert "critic" not in section(imported, "training")
    assert imported.unmapped == () and any("of the reward model" in n for n in imported.notes)


@pytest.mark.parametrize(
    ("words", "sharded"),
    [
        ("--config-name=ppo_megatron_trainer", False),
        ("model_engine=megatron", False),
        ("actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.actor.megatron.seed=1", True),
    ],
)
def test_verl_engine_is_the_one_named(job, words, sharded):
    training = section(job("verl", ONE_LINE + words), "training")
    assert ("optimizer" in training) == sharded


def test_verl_rollout_gpus_without_nodes_are_of_one_node(job):
    imported = job("verl", ONE_LINE.replace("=8 ", "=6 ") + "rollout.n_gpus_per_node=2")
    assert section(imported, "cluster")["generation_gpus"] == 2
    assert imported.recipe()["pipeline"] == "one-step-off"


@pytest.mark.parametrize(
    ("framework", "text", "why"),
    [
        ("verl", "torchrun -m verl.trainer.fsdp_sft_trainer data.x=1", "is SFT"),
        ("verl", "python -m verl.trainer.main_generation data.x=1", "generation"),
        ("slime", "python train.py --colocate --loss-type sft_loss", "sft_loss"),
        ("nemo-rl", "dpo: {max_num_steps: 1}", "is DPO"),
        ("nemo-rl", "distillation: {num_prompts_per_step: 1}", "teacher"),
        ("areal", AREAL + "allocation_mode: sglang:d4+fsdp:d2+fsdp:d2", "3 parts"),
    ],
)
def test_what_is_no_step_of_rl_is_refused_with_the_reason(job, framework, text, why):
    named = {"verl": "run_qwen2.5-7b.sh", "slime": "run.sh"}
    with pytest.raises(RFabricError, match=why):
        job(framework, text, named.get(framework, "job.yaml"))


def test_a_command_stands_above_the_config_file_it_names(job, tmp_path):
    (tmp_path / "grpo.yaml").write_text(PARENT)
    words = "cluster.num_nodes=4 policy.max_total_sequence_length=8192"
    imported = job("nemo-rl", f"uv run examples/run_grpo.py --config grpo.yaml {words}", "run.sh")
    generation = section(imported, "generation")
    assert section(imported, "cluster")["training_gpus"] == 32 and generation["batch"] == 64
    assert generation["max_prompt"] + generation["max_response"] == 8192
    missing = job("verl", ONE_LINE + "--config-path=config --config-name=mine").notes
    assert any("config/mine is not near" in note for note in missing)


def test_a_sweep_says_which_command_was_read(job):
    text = f"for n in 4 8; do {ONE_LINE} actor_rollout_ref.rollout.n=$n; done"
    assert any("2 commands set as much" in note for note in job("verl", text).notes)


def test_slime_on_fsdp_shards_and_ppo_trains_a_critic(job):
    words = " --train-backend fsdp --gradient-checkpointing --advantage-estimator ppo"
    imported = job("slime", SLIME.format(witness="x").replace("full", "selective").rstrip() + words)
    training = section(imported, "training")
    assert training["optimizer"] == "sharded" and training["recompute"] == "full"
    assert "gather" not in section(imported, "weight_sync")
    assert training["critic"] is True
    assert any("a critic of the policy's shape" in note for note in imported.notes)


def test_roll_shards_where_megatron_does_not_train_and_says_who_else_has_gpus(job):
    text = ROLL.replace("megatron_train", "deepspeed_train").replace("list(range(8,16))", "[8]")
    imported = job("roll", text + "rewards: {judge: {device_mapping: '[9]'}}\nadv_estimator: gae\n")
    assert section(imported, "training")["optimizer"] == "sharded"
    assert "rewards.judge.device_mapping = [9]" in imported.unmapped
    assert section(imported, "training")["critic"] is True
    assert devices("list(range(0,16,2))", "x") == set(range(0, 16, 2))


@pytest.mark.parametrize("mode", ["sglang[rollout]:d4+fsdp[actor]:d2t2", "sglang.d4m1p1+d2m2p1"])
def test_areal_allocations_with_names_and_model_parallelism(job, mode):
    imported = job("areal", f"allocation_mode: {mode}" + AREAL)
    assert section(imported, "cluster")["training_gpus"] == 4
    assert section(imported, "training")["tp"] == 2


def _hydra(tmp_path, words):
    (tmp_path / "conf").mkdir(exist_ok=True)
    (tmp_path / "conf" / "base.yaml").write_text(
        "data: {train_batch_size: 64, max_prompt_length: 512, max_response_length: 1024}\n"
        "actor_rollout_ref:\n  model: {path: Qwen/Qwen2.5-7B}\n"
        "  actor: {use_kl_loss: true, ppo_mini_batch_size: 32, ulysses_sequence_parallel_size: 4}\n"
        "trainer: {nnodes: 1}\n"
    )
    script = tmp_path / "run.sh"
    script.write_text(
        "python -m verl.trainer.main_ppo --config-path=conf --config-name=base "
        f"algorithm.adv_estimator=grpo {words}\n"
    )
    return import_job("verl", script)


def test_a_key_that_hydra_takes_away(tmp_path):
    job = _hydra(tmp_path, "'~actor_rollout_ref.actor.use_kl_loss'")
    assert (job.values["training.log_prob_passes"], job.values["training.cp"]) == (1, 4)
    job = _hydra(tmp_path, "~actor_rollout_ref.actor.ulysses_sequence_parallel_size=4 ~no.such")
    assert (job.values["training.log_prob_passes"], job.values["training.cp"]) == (2, 1)


def test_a_mapping_on_the_command_line(tmp_path):
    job = _hydra(
        tmp_path,
        "'+actor_rollout_ref.actor.megatron={tensor_model_parallel_size:4,"
        "override_transformer_config:{recompute_granularity:full}}' '+data.x={}'",
    )
    assert (job.values["training.tp"], job.values["training.recompute"]) == (4, "full")


def test_words_that_set_nothing_known_are_named(tmp_path):
    job = _hydra(tmp_path, "actor_rollout_ref.$ROLE.n=4 'x y.z=1'")
    assert "not understood, left out: 'actor_rollout_ref.$ROLE.n=4', 'x y.z=1'" in job.notes


def test_how_weights_are_synced_is_not_called_without_effect(tmp_path):
    job = _hydra(tmp_path, "+actor_rollout_ref.rollout.checkpoint_engine.backend=nccl")
    assert job.ignored == ()
    assert "actor_rollout_ref.rollout.checkpoint_engine.backend = nccl" in job.unmapped


def test_a_section_of_an_engine_that_is_off_says_nothing(tmp_path):
    on = "megatron_cfg: {enabled: true, optimizer: {optimizer_cpu_offload: true}}"
    off = "megatron_cfg: {enabled: false, optimizer: {optimizer_cpu_offload: true}}"
    for said, host in ((on, True), (off, None)):
        (tmp_path / "job.yaml").write_text(
            PARENT.replace("dtensor_cfg: {", f"{said}\n  dtensor_cfg: {{cpu_offload: false, ")
        )
        job = import_job("nemo-rl", tmp_path / "job.yaml")
        assert job.values.get("training.host_optimizer") is host
        assert not any("megatron_cfg" in key for key in job.unmapped) or host


@pytest.mark.parametrize("way", ["sequence_packing", "dynamic_batching"])
def test_micro_batches_of_packed_sequences(tmp_path, way):
    packed = f"{way}: {{enabled: true, train_mb_tokens: 16384}}\n  dtensor_cfg: {{"
    (tmp_path / "job.yaml").write_text(PARENT.replace("dtensor_cfg: {", packed))
    job = import_job("nemo-rl", tmp_path / "job.yaml")
    assert job.values["training.micro_batch_tokens"] == 16384
    (tmp_path / "job.yaml").write_text(
        PARENT.replace("dtensor_cfg: {", packed.replace("true", "false"))
    )
    job = import_job("nemo-rl", tmp_path / "job.yaml")
    assert job.values["training.micro_batch_tokens"] == 4096


@pytest.mark.parametrize(
    ("said", "passes"),
    [("", 0), ("use_decoupled_loss: true", 1), ("recompute_logprob: true, kl_ctl: 0.1", 2)],
)
def test_areal_computes_the_old_policy_where_it_is_asked_for(tmp_path, said, passes):
    (tmp_path / "job.yaml").write_text(AREAL.replace("actor:\n", f"actor:\n  {said}\n", 1).replace(
        ", kl_ctl", "\n  kl_ctl"
    ))  # fmt: skip
    with (tmp_path / "job.yaml").open("a") as file:
        file.write("ref: {path: a reference}\n" if passes == 2 else "")
    job = import_job("areal", tmp_path / "job.yaml")
    assert job.values["training.log_prob_passes"] == passes


def test_mappings_that_share_some_gpus_say_so(tmp_path):
    text = ROLL.replace("list(range(8,16))", "list(range(0,16))").replace(
        "async_generation_ratio: 1", "async_generation_ratio: 0"
    )
    (tmp_path / "job.yaml").write_text(text)
    job = import_job("roll", tmp_path / "job.yaml")
    assert any("8 of them shared; here each has all 16" in note for note in job.notes)
    assert job.values["training.mini_batches"] == 64 * 8 // (1 * 32 * (8 // 2))  # ranks of 8 GPUs


@pytest.mark.parametrize(
    ("framework", "text"),
    [
        ("verl", "python3 -m openrlhf.cli.train_ppo_ray --pretrain a/b --train_batch_size 128"),
        ("verl", "uv run -m skyrl_train.entrypoints.main_base trainer.policy.model.path=a/b"),
        ("slime", "python3 train.py --colocation 8 --train_batch_size 4"),
    ],
)
def test_a_job_of_another_framework_is_no_job_of_defaults(tmp_path, framework, text):
    (tmp_path / "run.sh").write_text(text)
    with pytest.raises(RFabricError, match="none of which is known|one must say where rollouts"):
        import_job(framework, tmp_path / "run.sh", model="Qwen2.5-7B")


@pytest.mark.parametrize("name", ["rl.toml", "job.json", "train.py"])
def test_files_that_no_job_of_these_is(tmp_path, name):
    (tmp_path / name).write_text("[model]\nname = 'Qwen/Qwen3-8B'\n")
    with pytest.raises(RFabricError, match=r"launch script, not \.\w+"):
        import_job("verl", tmp_path / name)


def test_stages_of_one_script_are_said(tmp_path):
    (tmp_path / "run.sh").write_text("\n".join([
        "go data.a=1 data.b=2 data.c=3 data.d=4", "go data.a=1 data.b=2 data.c=3 data.d=4 e.f=1",
    ]))  # fmt: skip
    notes = read_settings(tmp_path / "run.sh").notes
    assert notes == ("2 commands set much the same; the one on line 2, which sets most, was read",)


def test_a_file_in_place_of_a_framework_is_told_what_comes_first(tmp_path, capsys):
    path = tmp_path / "run.sh"
    path.write_text("python3 -m verl.trainer.main_ppo\n")
    assert main(["import", str(path)]) == 2
    assert f"say whose job it is before it, such as import verl {path}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("framework", "text", "prompts"),
    [
        ("verl", f"{ONE_LINE} algorithm.filter_groups.enable=True data.gen_batch_size=3072", 3072),
        ("verl", f"{ONE_LINE} algorithm.filter_groups.enable=True", None),
        ("verl", f"{ONE_LINE} algorithm.filter_groups.enable=False data.gen_batch_size=99", None),
        (
            "nemo-rl",
            PARENT.replace(
                "grpo: {", "grpo: {use_dynamic_sampling: true, batch_multiplier: 1.55, "
            ),
            100,  # of 64 that are trained on
        ),
    ],
)
def test_a_filter_of_groups_has_more_prompts_rolled_out(job, framework, text, prompts):
    imported = job(framework, text)
    assert section(imported, "generation").get("prompts") == prompts
    filtered = any("rewards are alike are dropped" in note for note in imported.notes)
    assert filtered == ("=False" not in text)


# --- asynchrony -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "text", "pipeline", "staleness"),
    [
        ("nemo-rl", "max_trajectory_age_steps: 1", "one-step-off", None),
        ("nemo-rl", "max_trajectory_age_steps: 4", "bounded-staleness", 4),
        ("nemo-rl", "max_trajectory_age_steps: 1, in_flight_weight_updates: true", "async", 1),
        ("nemo-rl", "max_trajectory_age_steps: 8, in_flight_weight_updates: true", "async", 8),
        ("roll", "async_generation_ratio: 0", None, None),
        ("roll", "async_generation_ratio: 0.5", "bounded-staleness", 0.5),
        ("roll", "async_generation_ratio: 1", "one-step-off", None),
        ("roll", "async_generation_ratio: 2.5", "bounded-staleness", 2.5),
        ("verl", "staleness_threshold=0", "sync", None),
        ("verl", "staleness_threshold=0.1", "async", 0.1),
        ("verl", "staleness_threshold=1", "async", 1),
        (
            "verl",
            "staleness_threshold=1 async_training.partial_rollout=False",
            "bounded-staleness",
            1,
        ),
    ],
)
def test_how_far_a_job_runs_ahead_is_read_as_it_says(job, framework, text, pipeline, staleness):
    texts = {
        "nemo-rl": NEMO.replace("max_trajectory_age_steps: 1", text),
        "roll": ROLL.replace("async_generation_ratio: 1", text),
        "verl": VERL.replace("$@", f"rollout.nnodes=1 async_training.{text}"),
    }
    if framework == "nemo-rl":
        job("nemo-rl", PARENT, "parent.yaml")
    recipe = job(framework, texts[framework]).recipe()
    assert (recipe.get("pipeline"), recipe.get("staleness")) == (pipeline, staleness)


@pytest.mark.parametrize(("said", "prompts"), [("", 256), (", max_concurrent_rollouts: 64", 64)])
def test_areal_bounds_the_prompts_under_way(job, said, prompts):
    text = AREAL.replace("max_head_offpolicyness: 2", f"max_head_offpolicyness: 2{said}")
    made = job("areal", text)
    assert section(made, "generation")["concurrent"] == prompts and not made.misfit
    assert ("generation.concurrent" in made.assumed) == (not said)


def test_what_slime_begins_beyond_what_it_keeps_is_said(job):
    more = "--rollout-batch-size 32 --over-sampling-batch-size 64"
    made = job("slime", SLIME.format(witness="x").replace("--rollout-batch-size 32", more))
    (note,) = [note for note in made.notes if "over-sampling" in note]
    assert note.startswith("over-sampling-batch-size = 64: prompts begun beyond")
    assert not [word for word in made.unmapped if "over-sampling" in word]

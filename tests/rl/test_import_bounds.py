"""What bounds a job's generation beside its own numbers: prompts under way at once, an engine's
longest sequence, its share of the memory and the format of its weights; and batches that are not
whole.
"""

import pytest
import yaml

from rfabric.rl.imports import import_job

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
VERL = f"""python3 -m {{entry}} algorithm.adv_estimator=grpo data.train_batch_size=0 \\
  data.max_prompt_length=1024 data.max_response_length=3072 \\
  actor_rollout_ref.model.path=Qwen/Qwen2.5-7B {ROLLOUT}.n=8 {ACTOR}.use_dynamic_bsz=True \\
  {ROLLOUT}.tensor_model_parallel_size=2 {ACTOR}.ppo_mini_batch_size=64 \\
  trainer.n_gpus_per_node=8 trainer.nnodes=2 rollout.nnodes=1 rollout.n_gpus_per_node=8 {{more}}
"""
STREAMS = "verl.experimental.fully_async_policy.fully_async_main"
ONE_OFF = "verl.experimental.one_step_off_policy.main_ppo"
SLIME = """python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 --colocate \\
  --hf-checkpoint /ckpt/Qwen3-8B --rollout-batch-size 32 --n-samples-per-prompt 8 \\
  --rollout-max-response-len 4096 --rollout-num-gpus-per-engine 2 {more}
"""
ROLL = {
    "num_gpus_per_node": 8,
    "rollout_batch_size": 64,
    "num_return_sequences_in_group": 8,
    "prompt_length": 1024,
    "response_length": 4096,
    "pretrain": "Qwen/Qwen3-8B",
    "actor_train": {
        "training_args": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 64},
        "strategy_args": {"strategy_name": "megatron_train"},
        "device_mapping": "list(range(0,8))",
    },
    "actor_infer": {"device_mapping": "list(range(0,8))"},
}
AREAL = {
    "cluster": {"n_nodes": 2, "n_gpus_per_node": 8},
    "rollout": {"backend": "sglang:d8", "max_head_offpolicyness": 2},
    "gconfig": {"n_samples": 4, "max_new_tokens": 4096},
    "actor": {"backend": "fsdp:d8", "path": "Qwen/Qwen3-8B"},
    "train_dataset": {"batch_size": 32},
}
NEMO = {
    "grpo": {"num_prompts_per_step": 64, "num_generations_per_prompt": 8},
    "policy": {"model_name": "Qwen/Qwen3-8B", "max_total_sequence_length": 8192, "generation": {}},
    "cluster": {"gpus_per_node": 8, "num_nodes": 2},
}
ALONE = "prompt and response together are no longer"


@pytest.fixture
def verl(tmp_path):
    """Reads a verl job with more words."""

    def read(*more, entry=STREAMS):
        (path := tmp_path / "run.sh").write_text(VERL.format(entry=entry, more=" ".join(more)))
        return import_job("verl", path)

    return read


@pytest.fixture
def job(tmp_path):
    """Reads a job of YAML."""

    def read(framework, values):
        (path := tmp_path / "job.yaml").write_text(yaml.safe_dump(values))
        return import_job(framework, path)

    return read


@pytest.fixture
def slime(tmp_path):
    """Reads a slime job with more flags."""

    def read(more):
        (path := tmp_path / "run.sh").write_text(SLIME.format(more=more))
        return import_job("slime", path)

    return read


# --- prompts under way ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "most", "stated"),
    [
        ((), 64, False),
        (("+async_training.concurrent_samples_per_replica=8",), 32, True),
        ((f"{ROLLOUT}.tensor_model_parallel_size=4",), 32, False),
        ((f"{ROLLOUT}.data_parallel_size=2",), 32, False),
        # no more than begin before the next weights come
        (("async_training.trigger_parameter_sync_step=1", f"{ACTOR}.ppo_mini_batch_size=32",
          "async_training.staleness_threshold=0.5"), 48, False),
    ],
)  # fmt: skip
def test_verls_fully_asynchronous_trainer_bounds_the_prompts_under_way(verl, words, most, stated):
    made = verl(*words)
    assert made.recipe()["generation"]["concurrent"] == most
    assert ("generation.concurrent" not in made.assumed) == stated
    assert not made.misfit


def test_other_trainers_of_verl_bound_no_prompts(verl):
    made = verl("data.train_batch_size=128", entry=ONE_OFF)
    assert "concurrent" not in made.recipe()["generation"]


def test_replicas_alone_on_their_gpus_have_a_share_of_their_own(verl):
    words = f"{ROLLOUT}.gpu_memory_utilization=0.4", f"{ROLLOUT}.standalone_gpu_memory_utilization"
    share = [verl(*words[:1], f"{words[1]}={said}") for said in ("0.8", "null")]
    assert [m.recipe()["generation"]["memory_utilisation"] for m in share] == [0.8, 0.4]


def test_streaming_on_the_same_gpus_takes_turns(verl):
    dynamic = "async_training.use_dynamic_resource_scheduling=True"
    made = verl(dynamic, "rollout.nnodes=0")
    assert made.recipe()["placement"] == "colocated"
    assert any("go on in the next step is not modelled" in note for note in made.notes)
    assert not any("go on in the next step" in note for note in verl(dynamic).notes)


# --- an engine's longest sequence -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("longest", "response", "noted"),
    [(4096, 3072, False), (3584, 3072, True), (2048, 1024, False), ("null", 3072, False)],
)
def test_verls_engines_take_no_longer_sequence(verl, longest, response, noted):
    made = verl(f"{ROLLOUT}.max_model_len={longest}")
    assert made.recipe()["generation"]["max_response"] == response
    assert any(ALONE in note for note in made.notes) == noted
    assert not any("max_model_len" in said for said in made.unmapped)


@pytest.mark.parametrize(("longest", "response"), [(8192, 6144), (4096, 2048), (None, 6144)])
def test_nemos_engine_bounds_all_of_a_sequence(job, longest, response):
    engine = {"tensor_parallel_size": 1} | ({"max_model_len": longest} if longest else {})
    policy = NEMO["policy"] | {"generation": {"vllm_cfg": engine}}
    made = job("nemo-rl", NEMO | {"policy": policy})
    assert made.recipe()["generation"]["max_response"] == response


@pytest.mark.parametrize(("longest", "response"), [(5120, 4096), (4096, 4096), (2048, 1024)])
def test_engines_of_roll_and_areal_take_no_longer_sequence(job, longest, response):
    infer = {"strategy_args": {"strategy_config": {"max_model_len": longest}}}
    roll = job("roll", ROLL | {"actor_infer": ROLL["actor_infer"] | infer})
    areal = job("areal", AREAL | {"sglang": {"context_length": longest}})
    for made in (roll, areal):
        assert made.recipe()["generation"]["max_response"] == response
        assert any(ALONE in note for note in made.notes) == (longest == 4096)


# --- formats and recomputation --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "precision", "noted"),
    [
        ("fp8", "fp8", False),
        ("nvfp4", "int4", True),
        ("modelopt_fp4", "int4", True),
        ("mxfp4", "mxfp4", False),
        ("awq_marlin", "int4", False),
        ("w8a8_int8", None, True),
        ("null", None, False),
        ("none", None, False),
    ],
)
def test_the_format_of_engines_weights_is_read_or_spoken_of(verl, said, precision, noted):
    made = verl(f"{ROLLOUT}.quantization={said}")
    assert made.recipe()["generation"].get("precision") == precision
    assert any("quantization" in note for note in made.notes) == noted


@pytest.mark.parametrize(("method", "noted"), [("block", True), ("uniform", False)])
def test_recomputation_of_some_layers_is_spoken_of(slime, method, noted):
    some = f"--recompute-granularity full --recompute-method {method} --recompute-num-layers 4"
    assert any("recompute_num_layers" in note for note in slime(some).notes) == noted


def test_layers_that_stay_gathered_are_spoken_of(verl):
    key = f"{ACTOR}.fsdp_config.reshard_after_forward"
    for value, noted in (("False", True), ("True", False)):
        assert any("stay gathered" in note for note in verl(f"{key}={value}").notes) == noted
    reference = key.replace("actor.fsdp", "ref.fsdp")
    assert not any("stay gathered" in note for note in verl(f"{reference}=False").notes)


# --- batches that are not whole -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "updates", "left"),
    [
        ("--global-batch-size 64", 4, ""),
        ("--global-batch-size 96", 2, "the last 64 of 256"),
        ("--global-batch-size 80", 2, "the last 16 of 256"),
        ("--num-steps-per-rollout 4", 4, ""),
        ("--num-steps-per-rollout 3", 2, "the last 1 of 256"),
    ],
)
def test_slime_leaves_out_what_is_no_whole_batch(slime, flags, updates, left):
    made = slime(flags)
    assert made.recipe()["training"]["mini_batches"] == updates and not made.misfit
    assert any("samples out" in note for note in made.notes) == bool(left)
    assert not left or any(left in note for note in made.notes)


# --- what is only spoken of -----------------------------------------------------------------------


def test_prompts_that_roll_begins_beyond_its_batch_are_spoken_of(job):
    more = {"max_additional_running_prompts": 16}
    for on in (True, False):
        made = job("roll", ROLL | more | {"is_use_additional_prompts": on})
        assert any("begun beyond" in note for note in made.notes) == on


def test_areals_agents_and_its_weights_on_disk_are_spoken_of(job):
    agents = AREAL["rollout"] | {"agent": {"mode": "inline"}}
    for values, on in ((AREAL | {"rollout": agents}, True), (AREAL, False)):
        made = job("areal", values)
        assert any("turns with an environment" in note for note in made.notes) == on
    for mode, said in (("disk", "shared disk"), ("xccl", "not its buckets")):
        made = job("areal", AREAL | {"actor": AREAL["actor"] | {"weight_update_mode": mode}})
        assert [said in note for note in made.notes if "weight_update_mode" in note] == [True]

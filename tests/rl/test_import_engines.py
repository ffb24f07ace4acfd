"""What trains and what generates in jobs of each framework, and whose log-probs the update uses:
engines beside the usual ones, defaults of other entry points, and jobs that are no RL.
"""

import pytest
import yaml

from rfabric.errors import RFabricError
from rfabric.rl.imports import import_job

VERL = """python3 -m {entry} algorithm.adv_estimator={estimator} \\
  data.train_batch_size={batch} data.max_prompt_length=1024 data.max_response_length=3072 \\
  actor_rollout_ref.model.path={model} actor_rollout_ref.rollout.n=8 \\
  actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\
  actor_rollout_ref.actor.ppo_mini_batch_size=32 actor_rollout_ref.actor.use_dynamic_bsz=True \\
  trainer.n_gpus_per_node=8 trainer.nnodes=2 {more}
"""
MAIN, STREAMS = "verl.trainer.main_ppo", "verl.experimental.fully_async_policy.fully_async_main"
ACTOR = "actor_rollout_ref.actor"
MOE = "Qwen/Qwen3-30B-A3B"


@pytest.fixture
def verl(tmp_path):
    """Reads a verl job with more words."""

    def read(*more, entry=MAIN, batch=128, estimator="grpo", model="Qwen/Qwen2.5-7B"):
        (path := tmp_path / "run.sh").write_text(
            VERL.format(
                entry=entry, batch=batch, estimator=estimator, model=model, more=" ".join(more)
            )
        )
        return import_job("verl", path)

    return read


@pytest.mark.parametrize(
    ("engine", "words", "ways"),
    [
        ("veomni", ("ulysses_parallel_size=4", "expert_parallel_size=8"), (1, 1, 4, 8)),
        (
            "torchtitan",
            ("tensor_parallel_size=2", "context_parallel_size=2", "expert_parallel_size=8"),
            (2, 1, 2, 8),
        ),
        ("automodel", ("tp_size=2", "pp_size=2", "ep_size=4"), (2, 2, 1, 4)),
    ],
)
def test_verl_engines_name_their_parallelism_each_in_its_way(verl, engine, words, ways):
    own = [f"{ACTOR}.{engine}.{word}" for word in words]
    made = verl(f"model_engine={engine}", *own, model=MOE)
    training = made.recipe()["training"]
    assert tuple(training.get(way, 1) for way in ("tp", "pp", "cp", "ep")) == ways
    assert training["optimizer"] == "sharded"
    assert ("context_exchange" in training) == (engine == "veomni")
    assert not made.misfit and not any(engine in said for said in made.unmapped)


def test_verl_sequence_parallelism_of_the_engines_own_section(verl):
    made = verl(f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size=4")
    assert made.recipe()["training"]["cp"] == 4
    assert made.recipe()["training"]["context_exchange"] == "ulysses"


@pytest.mark.parametrize(
    ("entry", "words", "passes"),
    [
        (MAIN, (), 1),
        (MAIN, ("algorithm.rollout_correction.bypass_mode=True",), 0),
        (MAIN, ("algorithm.rollout_correction.bypass_mode=True", f"{ACTOR}.use_kl_loss=True"), 1),
        (STREAMS, (), 0),
        (STREAMS, ("algorithm.rollout_correction.bypass_mode=False",), 1),
        (STREAMS, ("async_training.use_rollout_log_probs=False",), 1),
        (STREAMS, ("async_training.compute_prox_log_prob=True",), 1),
    ],
)
def test_verl_passes_for_the_old_policy_where_generation_does_not_tell(verl, entry, words, passes):
    apart = () if entry == MAIN else ("rollout.nnodes=2", "rollout.n_gpus_per_node=8")
    made = verl(*apart, *words, entry=entry, batch=128 if entry == MAIN else 0)
    assert made.recipe()["training"]["log_prob_passes"] == passes
    assert not made.misfit


def test_verl_defaults_of_the_asynchronous_trainer(verl):
    """Of its own configuration: 0.1 of a batch ahead, weights after four updates."""
    made = verl("rollout.nnodes=1", "rollout.n_gpus_per_node=8", entry=STREAMS, batch=0)
    recipe = made.recipe()
    assert (recipe["pipeline"], recipe["staleness"]) == ("async", 0.1)
    assert (recipe["generation"]["batch"], recipe["training"]["mini_batches"]) == (4 * 32, 4)


@pytest.mark.parametrize(("train", "generate", "server"), [(6, 2, 8), (4, 4, 8), (8, 8, 8)])
def test_verl_parts_of_a_node_are_of_one_server(verl, train, generate, server):
    words = (f"trainer.n_gpus_per_node={train}", "trainer.nnodes=1")
    made = verl(*words, f"rollout.n_gpus_per_node={generate}", "rollout.nnodes=1", batch=96)
    cluster = made.recipe()["cluster"]
    assert (cluster["training_gpus"], cluster["generation_gpus"]) == (train, generate)
    assert cluster["gpus_per_server"] == server


@pytest.mark.parametrize(
    ("estimator", "words", "critic"),
    [
        ("grpo", ("actor_rollout_ref.rollout.name=vllm",), None),
        ("gae", (), True),
        ("gae", ("critic.enable=False",), None),
        ("grpo", ("critic.enable=True",), True),
    ],
)
def test_verl_critic(verl, estimator, words, critic):
    made = verl(*words, estimator=estimator)
    assert made.recipe()["training"].get("critic") is critic


def test_the_name_of_an_engine_is_no_estimator(tmp_path):
    """Wherever it stands: `rollout.name` before `adv_estimator`."""
    text = VERL.format(entry=MAIN, estimator="gae", batch=128, model="Qwen/Qwen2.5-7B", more="")
    text = text.replace(
        "algorithm.adv_estimator=gae",
        "actor_rollout_ref.rollout.name=vllm algorithm.adv_estimator=gae",
    )
    (path := tmp_path / "run.sh").write_text(text)
    assert import_job("verl", path).recipe()["training"]["critic"] is True


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("reward.reward_model.enable=True", "reward model"),
        ("reward_model.model.path=x", "reward model"),
        ("distillation.enabled=True", "teacher"),
        ("algorithm.adv_estimator=remax", "greedy response"),
    ],
)
def test_verl_models_and_responses_beside_are_noted(verl, words, said):
    assert any(said in note for note in verl(words).notes)
    assert not any(said in note for note in verl(words.partition("=")[0] + "=null").notes)


NEMO = {
    "grpo": {"num_prompts_per_step": 64, "num_generations_per_prompt": 8},
    "loss_fn": {"reference_policy_kl_penalty": 0.01},
    "policy": {
        "model_name": MOE,
        "train_global_batch_size": 512,
        "max_total_sequence_length": 4096,
        "megatron_cfg": {
            "enabled": True,
            "tensor_model_parallel_size": 2,
            "expert_model_parallel_size": 8,
            "activation_checkpointing": True,
        },
        "generation": {"vllm_cfg": {"tensor_parallel_size": 1, "precision": "fp8"}},
    },
    "cluster": {"gpus_per_node": 8, "num_nodes": 2},
}


def over(below, above):
    both = {key: over(below[key], above[key]) for key in below.keys() & above.keys()
            if isinstance(below[key], dict)}  # fmt: skip
    return below | above | both


@pytest.fixture
def job(tmp_path):
    """Reads a YAML job with more settings."""

    def read(framework, values, **more):
        (path := tmp_path / "job.yaml").write_text(yaml.safe_dump(over(values, more)))
        return import_job(framework, path)

    return read


@pytest.mark.parametrize(
    ("generation", "tp", "ep", "precision"),
    [
        ({}, 1, 1, "fp8"),
        ({"vllm_cfg": {"tensor_parallel_size": 2, "expert_parallel_size": 8}}, 2, 8, "fp8"),
        ({"backend": "sglang", "sglang_cfg": {"tp_size": 4}}, 4, 1, None),
        ({"backend": "trtllm", "trtllm_cfg": {"tensor_parallel_size": 4}}, 4, 1, None),
        ({"backend": "megatron"}, 2, 8, "fp8"),
        (
            {
                "backend": "megatron",
                "mcore_generation_config": {
                    "tensor_model_parallel_size": 4,
                    "expert_model_parallel_size": 4,
                },
            },
            4,
            1,
            "fp8",
        ),
    ],
)
def test_nemo_engine_that_generates_is_the_one_named(job, generation, tp, ep, precision):
    made = job("nemo-rl", NEMO, policy={"generation": generation})
    told = made.recipe()["generation"]
    assert (told["tp"], told.get("ep", 1)) == (tp, ep)
    if generation.get("backend") != "megatron":
        assert told.get("precision") == precision
    assert not made.misfit


@pytest.mark.parametrize(
    ("megatron", "recompute"),
    [
        ({}, "full"),
        ({"recompute_granularity": "full"}, "full"),
        ({"recompute_granularity": "selective"}, "selective"),
        ({"activation_checkpointing": False, "recompute_granularity": "full"}, "selective"),
    ],
)
def test_nemo_recomputes_what_its_granularity_says(job, megatron, recompute):
    made = job("nemo-rl", NEMO, policy={"megatron_cfg": megatron})
    assert made.recipe()["training"]["recompute"] == recompute


@pytest.mark.parametrize(("on", "precision"), [(True, "fp8"), (False, None)])
def test_nemo_trains_in_fp8_where_its_section_is_on(job, on, precision):
    fp8 = {"fp8_cfg": {"enabled": on, "fp8": "e4m3", "fp8_recipe": "blockwise"}}
    made = job("nemo-rl", NEMO, policy={"megatron_cfg": fp8})
    assert made.recipe()["training"].get("precision") == precision and not made.misfit


def test_nemo_passes_that_are_skipped_and_gpus_that_take_turns(job):
    skip = {"skip_reference_policy_logprobs_calculation": True, "async_grpo": {"enabled": True}}
    assert job("nemo-rl", NEMO).recipe()["training"]["log_prob_passes"] == 2
    made = job("nemo-rl", NEMO, grpo=skip)
    assert made.recipe()["training"]["log_prob_passes"] == 1
    assert any("take turns" in note for note in made.notes)


def test_a_setting_that_a_missing_file_would_set_names_the_file(job):
    values = {key: value for key, value in NEMO.items() if key != "grpo"}
    with pytest.raises(RFabricError, match=r"num_prompts_per_step is not set, .*base\.yaml is not"):
        job("nemo-rl", {"defaults": "../base.yaml"} | values)


SLIME = """python3 {entry} --actor-num-nodes 1 --actor-num-gpus-per-node 4 --rollout-num-gpus 4 \\
  --hf-checkpoint /ckpt/{model} --rollout-batch-size 32 --n-samples-per-prompt 8 \\
  --rollout-max-response-len 8192 --global-batch-size 256 --rollout-num-gpus-per-engine 2 \\
  --tensor-model-parallel-size 2 --context-parallel-size 2 --use-dynamic-batch-size \\
  --max-tokens-per-gpu 4608 {more}
"""


@pytest.fixture
def slime(tmp_path):
    """Reads a slime job with more flags."""

    def read(more="", entry="train.py", model="Qwen3-8B"):
        text = SLIME.format(entry=entry, model=model, more=more)
        (path := tmp_path / "run.sh").write_text(text)
        return import_job("slime", path)

    return read


@pytest.mark.parametrize(
    ("more", "passes"),
    [
        ("", 1),
        ("--use-kl-loss", 2),
        ("--use-rollout-logprobs", 0),
        ("--use-rollout-logprobs --get-mismatch-metrics", 1),
    ],
)
def test_slime_passes(slime, more, passes):
    assert slime(more).recipe()["training"]["log_prob_passes"] == passes


def test_slime_of_one_node(slime):
    """Four GPUs train and four generate behind one set of NICs; a budget of tokens is of each
    context-parallel rank, so that it leaves 2 x 4,608 - 8,192 for the prompt.
    """
    made = slime()
    assert made.recipe()["cluster"]["gpus_per_server"] == 8
    assert made.recipe()["generation"]["max_prompt"] == 1024
    assert made.recipe()["training"]["micro_batch_tokens"] == 4608
    four = slime("--num-gpus-per-node 4").recipe()["cluster"]["gpus_per_server"]
    assert four == 4 and not made.misfit


def test_slime_in_fp8(slime):
    made = slime("--fp8-format e4m3", model="Qwen3-8B-FP8").recipe()
    assert made["training"]["precision"] == "fp8"
    assert made["generation"]["precision"] == made["weight_sync"]["precision"] == "fp8"


@pytest.mark.parametrize(
    ("entry", "function", "pipeline"),
    [
        ("train.py", "", "sync"),
        ("train_async.py", "", "one-step-off"),
        ("train_async.py", "slime.rollout.fully_async_rollout.generate", "async"),
    ],
)
def test_slime_runs_ahead_as_its_entry_and_its_rollout_say(slime, entry, function, pipeline):
    made = slime(f"--rollout-function-path {function}" if function else "", entry=entry)
    assert made.recipe()["pipeline"] == pipeline and not made.misfit
    assert made.recipe()["generation"].get("concurrent") == (32 if pipeline == "async" else None)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--prefill-num-servers 2", "say generation.prefill_gpus"),
        ("--update-weights-interval 2", "after each step"),
        ("--opd-teacher-load /ckpt/x", "teacher"),
        ("--dynamic-sampling-filter-path f.check", "alike are dropped"),
    ],
)
def test_slime_workers_beside_are_noted(slime, flag, said):
    assert any(said in note for note in slime(flag).notes)
    assert not any(said in note for note in slime("--update-weights-interval 1").notes)


ROLL = {
    "num_gpus_per_node": 8,
    "rollout_batch_size": 64,
    "num_return_sequences_in_group": 8,
    "prompt_length": 1024,
    "response_length": 4096,
    "pretrain": "Qwen/Qwen3-8B",
    "actor_train": {
        "training_args": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 64},
        "strategy_args": {"strategy_name": "deepspeed_train"},
        "device_mapping": "list(range(0,8))",
    },
    "actor_infer": {"device_mapping": "list(range(0,8))"},
    "reference": {"device_mapping": "list(range(0,8))"},
}


@pytest.mark.parametrize(
    ("config", "optimizer", "host"),
    [
        (None, "sharded", None),
        ("${deepspeed_zero3}", "sharded", None),
        ("${deepspeed_zero2}", "zero2", None),
        ("${deepspeed_zero3_cpuoffload}", "sharded", True),
        ({"zero_optimization": {"stage": 0}}, "replicated", None),
        ({"zero_optimization": {"stage": 1}}, "zero1", None),
        (
            {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}},
            "sharded",
            True,
        ),
    ],
)
def test_roll_shards_as_far_as_deepspeeds_stage_says(job, config, optimizer, host):
    made = job("roll", ROLL, actor_train={"strategy_args": {"strategy_config": config}})
    training = made.recipe()["training"]
    assert (training.get("optimizer"), training.get("host_optimizer")) == (optimizer, host)
    assert training["grad_dtype"] == "bf16"


@pytest.mark.parametrize(("said", "dtype"), [(None, "fp32"), (True, "fp32"), (False, "bf16")])
def test_roll_reduces_megatrons_gradients_as_it_is_told(job, said, dtype):
    config = {} if said is None else {"accumulate_allreduce_grads_in_fp32": said}
    args = {"strategy_name": "megatron_train", "strategy_config": config}
    made = job("roll", ROLL, actor_train={"strategy_args": args})
    assert made.recipe()["training"]["grad_dtype"] == dtype
    assert ("training.grad_dtype" in made.assumed) == (said is None)


def test_roll_sequence_parallelism_of_fsdp(job):
    args = {"strategy_args": {"strategy_name": "fsdp2_train"}, "model_args": {"ulysses_size": 2}}
    training = job("roll", ROLL, actor_train=args).recipe()["training"]
    assert (training["cp"], training["context_exchange"]) == (2, "ulysses")
    assert training["mini_batches"] == 64 * 8 // (64 * 4) and "grad_dtype" not in training


@pytest.mark.parametrize(("size", "told"), [(4, 4), (-1, None), (8, None), (16, None)])
def test_roll_shards_in_copies_of_so_many_gpus(job, size, told):
    args = {"strategy_name": "fsdp2_train", "strategy_config": {"fsdp_size": size}}
    training = job("roll", ROLL, actor_train={"strategy_args": args}).recipe()["training"]
    assert training.get("fsdp_size") == told


@pytest.mark.parametrize(
    ("given", "engine", "most"),
    [
        (None, {}, 1024),
        (2048, {}, 1024),
        (128, {"max_num_seqs": 256}, 128),
        (0, {"max_num_seqs": 256}, 256),
        ("none", {"max_num_seqs": 256}, 256),
        (None, {"max_running_requests": 64}, 64),
        (256, {"max_running_requests": 64}, 64),
    ],
)
def test_roll_gives_an_engine_so_many_at_once(job, given, engine, most):
    more = {} if given is None else {"max_running_requests": given}
    made = job("roll", ROLL, actor_infer={"strategy_args": {"strategy_config": engine}}, **more)
    assert made.recipe()["generation"]["max_num_seqs"] == most
    said = f"max_running_requests = {given} is no number above 0; left out"
    assert (said in made.notes) == (given in (0, "none"))
    assert not any("max_running_requests" in key for key in made.unmapped)


@pytest.mark.parametrize(
    ("more", "passes"),
    [
        ({}, 2),
        ({"enable_reference": False}, 1),
        ({"system_envs": {"SKIP_OLD_LOG_PROBS": "True"}}, 1),
    ],
)
def test_roll_passes(job, more, passes):
    assert job("roll", ROLL, **more).recipe()["training"]["log_prob_passes"] == passes


def test_roll_trains_a_critic_that_has_gpus_unless_told_otherwise(job):
    critic = {"critic": {"device_mapping": "list(range(0,8))"}}
    assert job("roll", ROLL, **critic).recipe()["training"]["critic"] is True
    made = job("roll", ROLL, adv_estimator="grpo", **critic)
    assert "critic" not in made.recipe()["training"]


def test_roll_actions_of_the_environments_that_train(job):
    more = {
        "train_env_manager": {"group_size": 8, "tags": ["A", "B"]},
        "custom_envs": {"A": {"max_steps": 5}, "B": {"max_steps": 7}, "C": {"max_steps": 99}},
        "sequence_length": 8192,
        "response_length": 128,
    }
    generation = job("roll", ROLL, **more).recipe()["generation"]
    assert (generation["turns"], generation["max_response"]) == (7, 7 * 128)


@pytest.mark.parametrize(
    ("framework", "text", "why"),
    [
        ("roll", "actor_train: {device_mapping: [0]}\nbeta: 0.1", "no actor_infer: the job only"),
        ("roll", "student: {device_mapping: [0]}\nteacher: {device_mapping: [0]}", "distillation"),
        ("roll", "sft_train: {device_mapping: [0]}", "only trains"),
        ("areal", "allocation_mode: sglang:d8+eval", "trains nothing"),
    ],
)
def test_jobs_that_only_train_or_only_generate_are_refused(tmp_path, framework, text, why):
    (path := tmp_path / "job.yaml").write_text(text)
    with pytest.raises(RFabricError, match=why):
        import_job(framework, path)


@pytest.mark.parametrize(
    ("stated", "model"),
    [
        ("'<path_to_dsv3_config>'", "DeepSeek-V3"),
        ("/ckpt/Qwen3-8B/global_step_100/actor", "Qwen3-8B"),
        ("openbmb/MiniCPM-o-2_6", "Qwen2.5-7B"),
    ],
)
def test_a_model_that_words_of_its_path_mean(verl, stated, model):
    made = verl(model=stated)
    assert made.recipe()["model"] == model
    assert ("model" in made.assumed) == ("MiniCPM" not in stated)
    assert any("vision" in note for note in made.notes) == ("MiniCPM" in stated)


def test_verl_rollout_nodes_in_the_section_of_the_engine(verl):
    """`actor_rollout_ref.rollout.nnodes`, which is 0 where generation has no GPUs of its own."""
    rollout = "actor_rollout_ref.rollout"
    made = verl(f"{rollout}.nnodes=3", f"{rollout}.n_gpus_per_node=4").recipe()
    assert (made["cluster"]["generation_gpus"], made["pipeline"]) == (12, "one-step-off")
    assert verl(f"{rollout}.nnodes=0").recipe()["placement"] == "colocated"


AREAL = {
    "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
    "rollout": {"backend": "sglang:d4", "max_head_offpolicyness": 2},
    "gconfig": {"n_samples": 4, "max_new_tokens": 1024},
    "actor": {"backend": "fsdp:d4", "path": "Qwen/Qwen3-8B", "use_decoupled_loss": True},
    "train_dataset": {"batch_size": 32},
}


@pytest.mark.parametrize(
    ("actor", "passes"),
    [({}, 1), ({"prox_logp_method": "recompute"}, 1), ({"prox_logp_method": "loglinear"}, 0)],
)
def test_areal_old_policy_by_a_line_between_versions_takes_no_pass(job, actor, passes):
    made = job("areal", AREAL, actor=actor)
    assert made.recipe()["training"]["log_prob_passes"] == passes


@pytest.mark.parametrize(
    ("framework", "values", "more", "said"),
    [
        ("areal", AREAL, {"teacher": {"path": "Qwen/Qwen3-32B"}}, "teacher"),
        ("areal", AREAL, {"actor": {"dynamic_sampling": True}}, "alike are dropped"),
        ("nemo-rl", NEMO, {"on_policy_distillation": {"teachers": [1]}}, "teachers"),
    ],
)
def test_what_else_jobs_do_is_noted(job, framework, values, more, said):
    assert any(said in note for note in job(framework, values, **more).notes)
    assert not any(said in note for note in job(framework, values).notes)


@pytest.mark.parametrize(
    "listed", ["nvidia-smi -L | wc -l", "rocm-smi --showid | grep GPU | wc -l"]
)
def test_gpus_that_a_machine_would_count_are_the_frameworks_default(verl, listed):
    made = verl(f"trainer.n_gpus_per_node=$({listed})")
    assert made.recipe()["cluster"]["gpus_per_server"] == 8
    program = listed.partition(" ")[0]
    assert any(f"n_gpus_per_node: what {program} prints" in note for note in made.notes)
    with pytest.raises(RFabricError, match=r"trainer.nnodes is '\$SLURM_NNODES'"):
        verl("trainer.nnodes=$(scontrol show hostnames | wc -l)")

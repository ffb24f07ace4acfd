"""What frameworks do where a job says nothing, as verl 0.9.1 and AReaL 1.0.4 have it, and jobs with
settings of engines that they do not use.
"""

import pytest
import yaml

from rfabric.errors import RFabricError
from rfabric.rl.imports import import_job

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
VERL = f"""python3 -m {{entry}} algorithm.adv_estimator=grpo \\
  data.train_batch_size={{batch}} data.max_prompt_length=1024 data.max_response_length=3072 \\
  actor_rollout_ref.model.path={{model}} {ROLLOUT}.n=8 {ROLLOUT}.tensor_model_parallel_size=2 \\
  {ACTOR}.ppo_mini_batch_size=32 {ACTOR}.use_dynamic_bsz=True \\
  trainer.n_gpus_per_node={{each}} trainer.nnodes=2 {{more}}
"""
MAIN, MOE = "verl.trainer.main_ppo", "Qwen/Qwen3-30B-A3B"
OFF_ONE = "recipe.one_step_off_policy.main_ppo"
AREAL = {
    "cluster": {"n_nodes": 2, "n_gpus_per_node": 8},
    "rollout": {"backend": "sglang:d8", "max_head_offpolicyness": 2},
    "gconfig": {"n_samples": 4, "max_new_tokens": 1024},
    "actor": {"backend": "fsdp:d8", "path": "Qwen/Qwen3-8B"},
    "train_dataset": {"batch_size": 32},
}

SLIME = (
    "python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 "
    "--hf-checkpoint /models/Qwen3-8B --rollout-batch-size 32 --n-samples-per-prompt 8 "
    "--rollout-max-response-len 4096 --global-batch-size 256 --rollout-num-gpus-per-engine 4"
)


@pytest.fixture
def verl(tmp_path):
    """Reads a verl job with more words."""

    def read(*more, entry=MAIN, batch=128, model="Qwen/Qwen2.5-7B", each=8):
        text = VERL.format(entry=entry, batch=batch, model=model, each=each, more=" ".join(more))
        (path := tmp_path / "run.sh").write_text(text)
        return import_job("verl", path)

    return read


@pytest.fixture
def areal(tmp_path):
    """Reads a job of AReaL whose sections hold more."""

    def read(**more):
        sections = {key: said for key, said in more.items() if isinstance(said, dict)}
        merged = {key: {**AREAL.get(key, {}), **said} for key, said in sections.items()}
        (path := tmp_path / "job.yaml").write_text(yaml.safe_dump(AREAL | more | merged))
        return import_job("areal", path)

    return read


# --- verl


@pytest.mark.parametrize(
    ("entry", "pipeline"),
    [
        (OFF_ONE, "one-step-off"),
        ("verl.experimental.fully_async_policy.fully_async_main", "async"),
        (f"{MAIN} --config-name=one_step_off_ppo_trainer", "one-step-off"),
    ],
)
def test_a_trainer_apart_from_rollouts_gives_them_a_node(verl, entry, pipeline):
    made = verl(entry=entry, each=4)
    cluster = made.recipe()["cluster"]
    assert (cluster["training_gpus"], cluster["generation_gpus"]) == (8, 8)
    assert made.recipe()["pipeline"] == pipeline
    assert any("rollout.nnodes is not set: 1 x 8 GPUs" in note for note in made.notes)
    told = verl("rollout.nnodes=2", "rollout.n_gpus_per_node=6", entry=entry)
    assert told.recipe()["cluster"]["generation_gpus"] == 12
    assert not any("is not set: 1 x 8" in note for note in told.notes)
    assert verl(f"{ROLLOUT}.name=vllm").recipe()["placement"] == "colocated"


@pytest.mark.parametrize(
    ("entry", "passes"), [(OFF_ONE, 1), (OFF_ONE.replace("recipe", "verl.experimental"), 0)]
)
def test_one_step_off_takes_the_engines_log_probs_since_it_is_verls_own(verl, entry, passes):
    """Whether the trainer is named as a module or as a file."""
    assert verl(entry=entry).recipe() == verl(entry=f"{entry.replace('.', '/')}.py").recipe()
    assert verl(entry=entry).recipe()["training"]["log_prob_passes"] == passes
    again = verl("algorithm.rollout_correction.bypass_mode=False", entry=entry)
    assert again.recipe()["training"]["log_prob_passes"] == 1


@pytest.mark.parametrize(
    ("words", "most"),
    [
        ((), 1024),
        (("model_engine=dp",), 256),
        (("trainer.use_v1=False",), 256),
        (("model_engine=dp", f"{ROLLOUT}.max_num_seqs=512"), 512),
    ],
)
def test_responses_that_an_engine_decodes_at_once(verl, words, most):
    made = verl(*words)
    assert made.recipe()["generation"]["max_num_seqs"] == most
    assert ("generation.max_num_seqs" in made.assumed) == (most != 512)


def test_a_trainer_beside_gpus_that_generate_begins_a_batch_ahead(verl):
    mode = "trainer.v1.trainer_mode=separate_async"
    apart = f"{ROLLOUT}.nnodes=1", f"{ROLLOUT}.n_gpus_per_node=8"
    made = verl(mode, *apart, "trainer.v1.separate_async.parameter_sync_step=4")
    recipe = made.recipe()
    assert (recipe["pipeline"], recipe["staleness"]) == ("async", 1)
    assert recipe["cluster"]["generation_gpus"] == 8
    assert not any("generate too while they wait" in note for note in made.notes)
    assert not any("v1" in said for said in made.unmapped)
    switch = "trainer.v1.separate_async.hybrid_rollout.enable_switch=True"
    lent = verl(mode, *apart, switch, "trainer.v1.separate_async.num_warmup_batches=2")
    assert lent.recipe()["staleness"] == 2
    assert any("generate too while they wait" in note for note in lent.notes)
    alone = verl(mode, *apart, switch, "actor_rollout_ref.hybrid_engine=False")
    assert not any("generate too while they wait" in note for note in alone.notes)
    none = verl(mode, *apart, "trainer.v1.separate_async.num_warmup_batches=0")
    assert none.recipe()["pipeline"] == "sync"


def test_what_verl_does_with_gpus_that_wait_is_noted(verl):
    same = verl("trainer.v1.trainer_mode=colocate_async")
    assert same.recipe()["placement"] == "colocated"
    assert any("go on in the next step is not modelled" in note for note in same.notes)
    streams = "verl.experimental.fully_async_policy.fully_async_main"
    dynamic = "async_training.use_dynamic_resource_scheduling=True"
    said = "GPUs that train generate too"
    assert any(said in note for note in verl(dynamic, entry=streams).notes)
    assert not any(said in note for note in verl(entry=streams).notes)


def test_stages_of_verls_engines_widen_them(verl):
    made = verl(f"{ROLLOUT}.pipeline_model_parallel_size=2")
    assert made.recipe()["generation"]["tp"] == 4
    assert any("an engine of 4 GPUs in replicas of attention or stages" in n for n in made.notes)
    megatron = verl("model_engine=megatron", f"{ACTOR}.megatron.pipeline_model_parallel_size=2")
    assert megatron.recipe()["generation"]["tp"] == 2


@pytest.mark.parametrize(
    ("words", "gpus", "noted"),
    [
        (("enabled=False",), None, False),
        (("enabled=True",), 8, False),
        (("enabled=True", "prefill_replicas=1", "decode_replicas=3"), 4, False),
        (("enabled=True", "decode_replicas=2"), None, True),  # 6 of 16 GPUs a replica
        (("enabled=True", "decode_tensor_model_parallel_size=4"), None, True),
    ],
)
def test_engines_of_their_own_for_prompts(verl, words, gpus, noted):
    """verl's replica is prefill_replicas and decode_replicas engines, here of two GPUs."""
    made = verl(*(f"{ROLLOUT}.disaggregation.{word}" for word in words))
    assert made.recipe()["generation"].get("prefill_gpus") == gpus and not made.misfit
    assert any("say generation.prefill_gpus" in note for note in made.notes) == noted


@pytest.mark.parametrize(("staleness", "gpus"), [(0.5, None), (1, 4)])
def test_engines_for_prompts_read_whole_batches(verl, staleness, gpus):
    words = f"staleness_threshold={staleness}", "partial_rollout=False"
    more = f"{ROLLOUT}.disaggregation.enabled=True", *(f"async_training.{word}" for word in words)
    made = verl(*more, entry="verl.experimental.fully_async_policy.fully_async_main")
    assert not made.misfit and made.recipe()["generation"].get("prefill_gpus") == gpus
    assert any("say generation.prefill_gpus" in note for note in made.notes) == (gpus is None)


@pytest.mark.parametrize("model", ["DeepSeek-V3.2", "MiniMax-M2.5"])
def test_checkpoints_that_are_published_in_fp8_are_served_so(tmp_path, model):
    text = SLIME.replace("Qwen3-8B", model).replace("num-nodes 2", "num-nodes 64")
    (path := tmp_path / "run.sh").write_text(f"{text} --colocate\n")
    assert import_job("slime", path).recipe()["generation"]["precision"] == "fp8"


@pytest.mark.parametrize(
    ("engine", "words", "recompute"),
    [
        ("dp", (), "full"),
        ("veomni", (), "full"),
        ("veomni", ("actor_rollout_ref.model.enable_gradient_checkpointing=False",), "selective"),
        ("torchtitan", (), "selective"),
        ("torchtitan", (f"{ACTOR}.torchtitan.activation_checkpoint=full",), "full"),
        ("automodel", (), "selective"),
        ("automodel", (f"{ACTOR}.automodel.activation_checkpointing=True",), "full"),
    ],
)
def test_engines_recompute_by_their_own_default(verl, engine, words, recompute):
    made = verl(f"model_engine={engine}", *words)
    assert made.recipe()["training"].get("recompute") == recompute
    assert not any("checkpoint" in said for said in made.unmapped)
    assert ("training.recompute" in made.assumed) == (not words)


def test_what_recomputes_in_part_recomputes_all_where_it_would_not_fit(verl):
    long = "data.max_response_length=60000", f"{ACTOR}.ppo_max_token_len_per_gpu=65536"
    made = verl("model_engine=torchtitan", *long)
    assert made.recipe()["training"]["recompute"] == "full"
    assert "else it could not run" in made.origin["training.recompute"]


def test_parallelism_of_none_is_no_size_of_a_copy(verl):
    """Whoever reads the recipe refuses it."""
    made = verl("model_engine=torchtitan", f"{ACTOR}.torchtitan.tensor_parallel_size=0").recipe()
    assert made["training"]["tp"] == 0 and "fsdp_size" not in made["training"]


@pytest.mark.parametrize(
    ("engine", "words", "size"),
    [
        ("torchtitan", ("data_parallel_replicate_size=2", "tensor_parallel_size=2"), 4),
        ("torchtitan", ("data_parallel_replicate_size=1",), None),
        ("automodel", ("dp_replicate_size=4",), 4),
        ("veomni", ("fsdp_size=4", "ulysses_parallel_size=2"), 8),
        ("veomni", ("fsdp_size=8", "ulysses_parallel_size=2"), None),
        ("veomni", ("fsdp_size=-1",), None),
    ],
)
def test_engines_count_the_copies_of_what_they_shard_in_their_own_way(verl, engine, words, size):
    made = verl(f"model_engine={engine}", *(f"{ACTOR}.{engine}.{word}" for word in words))
    assert made.recipe()["training"].get("fsdp_size") == size
    assert not any(engine in said for said in made.unmapped)


def test_copies_of_what_is_not_sharded_are_no_size(verl):
    own = f"{ACTOR}.automodel"
    words = f"{own}.distributed_strategy=ddp", f"{own}.dp_replicate_size=4"
    training = verl("model_engine=automodel", *words).recipe()["training"]
    assert training["optimizer"] == "replicated" and "fsdp_size" not in training


def test_megatron_on_npus_is_cut_as_megatron(verl):
    own = f"{ACTOR}.mindspeed"
    made = verl(
        "model_engine=mindspeed",
        f"{own}.tensor_model_parallel_size=4",
        f"{own}.pipeline_model_parallel_size=2",
        f"+{own}.override_transformer_config.recompute_granularity=full",
    )
    training = made.recipe()["training"]
    assert (training["tp"], training["pp"], training["recompute"]) == (4, 2, "full")
    assert "optimizer" not in training


@pytest.mark.parametrize(
    ("words", "host"),
    [
        (("model_engine=veomni", f"{ACTOR}.veomni.enable_fsdp_offload=True"), True),
        (("model_engine=veomni", f"{ACTOR}.veomni.enable_fsdp_offload=False"), None),
    ],
)
def test_what_veomni_keeps_on_the_hosts(verl, words, host):
    assert verl(*words).recipe()["training"].get("host_optimizer") == host


def test_states_in_bf16_are_said_to_take_half_the_room(verl):
    said = "here in FP32, which takes twice the room"
    made = verl(f"{ACTOR}.fsdp_config.model_dtype=bf16")
    assert any(said in note for note in made.notes)
    for words in (
        f"{ACTOR}.fsdp_config.model_dtype=fp32",
        "actor_rollout_ref.ref.model_dtype=bf16",
    ):
        assert not any(said in note for note in verl(words).notes)


# --- AReaL


@pytest.mark.parametrize(
    ("backend", "actor", "recompute"),
    [
        ("fsdp:d8", {}, "selective"),
        ("fsdp:d8", {"gradient_checkpointing": True}, "full"),
        ("fsdp:d8", {"gradient_checkpointing": False}, "selective"),
        ("megatron:d8", {"gradient_checkpointing": True}, "full"),
        (
            "megatron:d8",
            {"gradient_checkpointing": True, "megatron": {"recompute_granularity": "selective"}},
            "selective",
        ),
        ("archon:d8", {"gradient_checkpointing": True}, "selective"),
        (
            "archon:d8",
            {"gradient_checkpointing": False, "archon": {"ac_mode": "full"}},
            "selective",
        ),
        ("archon:d8", {"gradient_checkpointing": True, "archon": {"ac_mode": "full"}}, "full"),
        (
            "fsdp:d8",
            {"gradient_checkpointing": True, "megatron": {"recompute_granularity": "selective"}},
            "full",
        ),
    ],
)
def test_areal_recomputes_what_its_engine_is_told_to(areal, backend, actor, recompute):
    made = areal(actor={"backend": backend, **actor})
    assert made.recipe()["training"]["recompute"] == recompute
    partly = backend == "archon:d8" and actor.get("archon") is None
    assert ("training.recompute" in made.assumed) == (partly or not actor)


def test_sections_of_engines_that_areal_does_not_use_say_nothing(areal):
    idle = {
        "actor": {
            "backend": "archon:d8",
            "fsdp": {"offload_params": True},
            "megatron": {"fp8_config": {"mode": "e4m3"}, "virtual_pipeline_parallel_size": 2},
        },
        "sglang": {"dp_size": 4, "enable_dp_attention": True},
        "vllm": {"gpu_memory_utilization": 0.7},
        "rollout": {"backend": "vllm:d4t2", "max_head_offpolicyness": 2},
    }
    recipe = areal(**idle).recipe()
    assert not {"host_optimizer", "precision", "vp"} & recipe["training"].keys()
    assert recipe["generation"]["memory_utilisation"] == 0.7
    assert areal(actor={"fsdp": {"offload_params": True}}).recipe()["training"]["host_optimizer"]


@pytest.mark.parametrize(("mode", "precision"), [("e4m3", "fp8"), ("disabled", None), (None, None)])
def test_areal_matmuls_in_eight_bits(areal, mode, precision):
    actor = {"backend": "archon:d8", "archon": {"fp8_config": {"mode": mode}}}
    assert areal(actor=actor).recipe()["training"].get("precision") == precision


@pytest.mark.parametrize(
    ("more", "passes"),
    [
        ({}, 0),
        ({"ref": {"path": "x"}}, 1),
        ({"ref": {"path": "x"}, "actor": {"kl_ctl": 0.0}}, 0),
        ({"actor": {"kl_ctl": 0.2}}, 0),
        ({"actor": {"recompute_logprob": True, "prox_logp_method": "loglinear"}}, 1),
        ({"actor": {"use_decoupled_loss": True, "prox_logp_method": "loglinear"}}, 0),
    ],
)
def test_areal_passes_of_the_old_and_the_reference_policy(areal, more, passes):
    """A penalty of 0.1 by default, of a reference where there is one."""
    assert areal(**more).recipe()["training"]["log_prob_passes"] == passes


@pytest.mark.parametrize(
    ("critic", "learns"),
    [({"path": "x"}, True), ({"path": "x", "is_critic": True}, True), (None, None)],
)
def test_a_section_is_enough_for_a_critic_of_areal(areal, critic, learns):
    made = areal(**({"critic": critic} if critic else {}))
    assert made.recipe()["training"].get("critic") == learns
    off = areal(**({"critic": critic} if critic else {}), ppo={"disable_value": True})  # 0.3
    assert off.recipe()["training"].get("critic") in (None, bool((critic or {}).get("is_critic")))


@pytest.mark.parametrize(("total", "response"), [(1500, 1500 - 1024), (4096, 1024), (900, 1024)])
def test_areal_bounds_prompt_and_response_together(areal, total, response):
    recipe = areal(gconfig={"n_samples": 4, "max_new_tokens": 1024, "max_tokens": total}).recipe()
    assert recipe["generation"]["max_response"] == response


@pytest.mark.parametrize(("backend", "most"), [("sglang:d8", 1024), ("vllm:d8", 256)])
def test_areal_responses_at_once(areal, backend, most):
    made = areal(rollout={"backend": backend, "max_head_offpolicyness": 2})
    assert made.recipe()["generation"]["max_num_seqs"] == most


@pytest.mark.parametrize(
    ("mode", "gpus", "ways", "shared"),
    [
        ("fsdp:d4t2+sglang:d2t2", (8, 4), (2, 1), False),
        ("sglang:d4t2+megatron:attn:d4p2|ffn:d2p2e2", (8, 8), (1, 2), False),
        ("sglang[rollout]:d4t2|megatron:(attn:d4p2|ffn:d2p2e2)", (8, 8), (1, 2), True),
    ],
)
def test_areal_modes_in_any_order_and_without_brackets(areal, mode, gpus, ways, shared):
    recipe = areal(allocation_mode=mode, actor={"path": MOE}).recipe()
    cluster, training = recipe["cluster"], recipe["training"]
    assert (cluster["training_gpus"], cluster["generation_gpus"]) == gpus
    assert (training["tp"], training["pp"]) == ways
    assert ("placement" in recipe) == shared


NEMO = {
    "ppo": {"num_prompts_per_step": 32, "num_generations_per_prompt": 4},
    "policy": {
        "model_name": "Qwen/Qwen2.5-1.5B",
        "max_total_sequence_length": 2048,
        "train_global_batch_size": 128,
        "dtensor_cfg": {"enabled": True, "cpu_offload": False},
    },
    "value": {"dtensor_cfg": {"enabled": True, "cpu_offload": True}},
    "cluster": {"num_nodes": 1, "gpus_per_node": 8},
}


@pytest.fixture
def nemo(tmp_path):
    """Reads a job of NeMo-RL with more at its top."""

    def read(**more):
        (path := tmp_path / "job.yaml").write_text(yaml.safe_dump(NEMO | more))
        return import_job("nemo-rl", path)

    return read


def test_a_critic_of_nemo_rl_says_nothing_of_the_policy(nemo):
    assert "host_optimizer" not in nemo().recipe()["training"]
    policy = NEMO["policy"] | {"dtensor_cfg": {"enabled": True, "cpu_offload": True}}
    assert nemo(policy=policy).recipe()["training"]["host_optimizer"]


@pytest.mark.parametrize("forced", [True, False])
def test_a_ratio_that_needs_no_log_probs_is_noted(nemo, forced):
    made = nemo(loss_fn={"force_on_policy_ratio": forced})
    assert any("force_on_policy_ratio: the old" in note for note in made.notes) == forced


def test_an_older_offload_of_nemo_rl(nemo):
    policy = NEMO["policy"] | {"fsdp_offload_enabled": True, "dtensor_cfg": {"enabled": False}}
    assert nemo(policy=policy, value={}).recipe()["training"]["host_optimizer"]


def test_areal_parts_beyond_two_are_refused(areal):
    with pytest.raises(RFabricError, match="no critic or reference on GPUs of its own"):
        areal(allocation_mode="sglang:d8|fsdp[actor]:d8+fsdp[critic]:d8")


# --- slime


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--colocate --rollout-num-gpus 8", "--rollout-num-gpus 8: --colocate sets it to 16"),
        ("--colocate --rollout-num-gpus 16", ""),
        ("--colocate --sglang-pp-size 2", "--sglang-pp-size 2: stages of an engine are taken as"),
        ("--colocate --sglang-config a.yaml", "--sglang-config a.yaml: groups of servers"),
    ],
)
def test_what_slime_takes_in_its_own_way_is_noted(tmp_path, more, said):
    (path := tmp_path / "run.sh").write_text(f"{SLIME} {more}\n")
    made = import_job("slime", path)
    assert made.recipe()["cluster"]["generation_gpus"] == 16
    assert made.recipe()["generation"]["tp"] == 4
    assert any(said in note for note in made.notes) if said else not made.notes


@pytest.mark.parametrize(
    ("more", "mode", "stated"),
    [
        ("", "selective", False),
        ("--recompute-activations", "selective", True),
        ("--recompute-activations --recompute-granularity full", "full", True),
        ("--recompute-granularity selective", "selective", True),
        ("--train-backend fsdp --gradient-checkpointing", "full", True),
    ],
)
def test_what_slime_recomputes_is_stated_by_each_of_its_words(tmp_path, more, mode, stated):
    (path := tmp_path / "run.sh").write_text(f"{SLIME} --colocate {more}\n")
    made = import_job("slime", path)
    assert made.recipe()["training"]["recompute"] == mode
    assert ("training.recompute" not in made.assumed) == stated


# --- parents that are not there

CHILD = "policy: {max_total_sequence_length: 8192}\ncluster: {num_nodes: 4}\n"


@pytest.mark.parametrize(
    ("parent", "model", "gpus", "ways"),
    [
        ("grpo_math_1B.yaml", "Qwen2.5-1.5B", 4, (1, 1, 1)),
        ("../../grpo_math_8B.yaml", "Llama-3.1-8B", 32, (1, 1, 1)),
        ("../grpo_math_8B_megatron", "Llama-3.1-8B", 32, (1, 2, 1)),
        ("grpo_math_70B_megatron.yaml", "Llama-3.1-70B", 32, (4, 4, 8)),
        ("grpo_math_qwen30ba3b_megatron.yaml", "Qwen3-30B-A3B", 32, (2, 1, 4)),
    ],
)
def test_a_job_of_nemo_rl_takes_what_its_parent_says(tmp_path, parent, model, gpus, ways):
    (path := tmp_path / "job.yaml").write_text(f"defaults: {parent}\n{CHILD}")
    made = import_job("nemo-rl", path)
    recipe = made.recipe()
    assert recipe["model"] == model and recipe["cluster"]["training_gpus"] == gpus
    training, generation = recipe["training"], recipe["generation"]
    assert (training["tp"], training["pp"], generation["tp"]) == ways
    assert generation["max_prompt"] + generation["max_response"] == 8192
    assert ("optimizer" in training) == ("megatron" not in parent)
    assert any("as NeMo-RL 0.4 has it" in note for note in made.notes)


@pytest.mark.parametrize(
    ("words", "group"),
    [
        ("examples/run_grpo_math.py", 16),
        ("examples/run_grpo.py --config examples/configs/grpo_math_8B.yaml", 32),
    ],
)
def test_a_command_of_nemo_rl_has_the_first_config_unless_it_names_one(tmp_path, words, group):
    (path := tmp_path / "run.sh").write_text(
        f"uv run {words} policy.model_name=Qwen/Qwen3-8B policy.max_total_sequence_length=4096 "
        "cluster.num_nodes=2 cluster.gpus_per_node=8\n"
    )
    assert import_job("nemo-rl", path).recipe()["generation"]["group_size"] == group


def test_a_config_that_a_command_of_nemo_rl_names_stands_for_itself(tmp_path):
    (path := tmp_path / "run.sh").write_text("uv run examples/run_grpo.py --config job.yaml\n")
    config = tmp_path / "job.yaml"
    config.write_text(
        "policy: {model_name: Qwen/Qwen3-8B, max_total_sequence_length: 4096}\n"
        "grpo: {num_prompts_per_step: 8, num_generations_per_prompt: 8}\n"
        "cluster: {num_nodes: 4, gpus_per_node: 8}\n"
    )
    made, alone = import_job("nemo-rl", path), import_job("nemo-rl", config)
    assert made.recipe() == alone.recipe()
    assert not any("as NeMo-RL 0.4 has it" in note for note in made.notes)
    config.write_text(f"defaults: ./grpo-ours.yaml\n{CHILD}")
    with pytest.raises(RFabricError, match="not set"):
        import_job("nemo-rl", path)


def test_what_a_missing_parent_may_say_is_said(tmp_path):
    (path := tmp_path / "job.yaml").write_text(f"defaults: ./grpo-ours.yaml\n{CHILD}")
    with pytest.raises(RFabricError, match="not set.*grpo-ours.yaml is not beside job.yaml"):
        import_job("nemo-rl", path)
    path.write_text(
        f"defaults: ./grpo-ours.yaml\n{CHILD}"
        "grpo: {num_prompts_per_step: 8, num_generations_per_prompt: 8}\n"
    )
    with pytest.raises(RFabricError, match="it names no model .*grpo-ours.yaml is not beside"):
        import_job("nemo-rl", path)


def test_areal_says_why_a_job_does_not_run_ahead(areal):
    silent = areal(rollout={"max_head_offpolicyness": None})
    assert "max_head_offpolicyness is not set" in silent.origin["pipeline"]
    assert "pipeline" in silent.assumed
    shared = areal(allocation_mode="sglang:d8|fsdp:d8")
    assert shared.origin["pipeline"].startswith("the same GPUs")

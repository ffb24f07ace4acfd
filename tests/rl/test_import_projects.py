"""Jobs of older verl, and of projects that are built on verl and slime."""

import pytest

from rfabric.rl.imports import import_job

ACTOR, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.model"
ROLLOUT = "actor_rollout_ref.rollout"
VERL = f"""{{entry}} algorithm.adv_estimator=grpo data.train_batch_size=128 \\
  data.max_prompt_length=1024 data.max_response_length=3072 {{model}}=/m/Qwen2.5-7B \\
  {ROLLOUT}.n=8 {ROLLOUT}.tensor_model_parallel_size=2 {ACTOR}.ppo_mini_batch_size=32 \\
  {ACTOR}.use_dynamic_bsz=True trainer.n_gpus_per_node=8 trainer.nnodes=2 {{more}}
"""
MAIN = "python3 -m verl.trainer.main_ppo"
SLIME = """python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 \\
  --hf-checkpoint /ckpt/Qwen3-8B --rollout-batch-size 32 --n-samples-per-prompt 8 \\
  --rollout-max-response-len 4096 --global-batch-size 256 --rollout-num-gpus-per-engine 2 {more}
"""


@pytest.fixture
def verl(tmp_path):
    """Reads a verl job with more words, of another entry or with its model under another key."""

    def read(*more, entry=MAIN, model=f"{MODEL}.path"):
        text = VERL.format(entry=entry, model=model, more=" ".join(more))
        (path := tmp_path / "run.sh").write_text(text)
        return import_job("verl", path)

    return read


@pytest.fixture
def slime(tmp_path):
    """Reads a slime job with more flags."""

    def read(more=""):
        (path := tmp_path / "run.sh").write_text(SLIME.format(more=more))
        return import_job("slime", path)

    return read


KWARGS = f"{MODEL}.gradient_checkpointing_kwargs.activations_checkpoint"


@pytest.mark.parametrize(
    ("words", "recompute"),
    [
        ((f"{MODEL}.enable_gradient_checkpointing=True", f"{KWARGS}_granularity=full"), "full"),
        ((f"{MODEL}.enable_gradient_checkpointing=False", f"{KWARGS}_granularity=full"), None),
        ((f"{MODEL}.enable_gradient_checkpointing=True", f"{KWARGS}_num_layers=1"), None),
        ((f"+{ACTOR}.megatron.extra.recompute_granularity=full",), "full"),
    ],
)
def test_what_megatron_of_verl_04_recomputes(verl, words, recompute):
    made = verl(f"{ACTOR}.strategy=megatron", *words)
    assert made.recipe()["training"]["recompute"] == (recompute or "selective")
    assert ("training.recompute" in made.assumed) == (recompute is None)


@pytest.mark.parametrize(
    ("words", "times"),
    [
        ("reward_model.enable=True reward_model.model.path=/m/rm", 1),
        ("reward_model.enable=True", 1),
        ("reward_model.enable=False reward_model.model.path=/m/rm", 0),
        ("reward_model.model.path=/m/rm", 1),
    ],
)
def test_a_reward_model_is_spoken_of_where_it_is_on(verl, words, times):
    assert sum("of the reward model" in note for note in verl(words).notes) == times


@pytest.mark.parametrize(
    ("entry", "foreign"),
    [
        ("python3 -m siirl.main_dag", True),
        ("python train.py", True),
        (MAIN, False),
        ("python3 -m recipe.dapo.main_dapo", False),
        ("python3 /opt/verl/trainer/main_ppo.py", False),
        ("python3 main_ppo.py", False),
        ("python3 -m debugpy --listen 5678 -m verl.trainer.main_ppo", False),
        ("python3 -m torch.distributed.run --standalone -m verl.trainer.main_ppo", False),
        ("python3 -m cProfile -o x.prof verl/trainer/main_ppo.py", False),
        ("python3 -m debugpy --listen 5678 -m siirl.main_dag", True),
    ],
)
def test_a_trainer_of_another_project_is_named(verl, entry, foreign):
    notes = verl(entry=entry).notes
    named = [note.split()[0] for note in notes if "is no trainer of verl's own" in note]
    assert named == [entry.split()[-1]] * foreign


def test_the_model_of_ragen(verl):
    made = verl(entry="python train.py", model="model_path")
    assert made.recipe()["model"] == "Qwen2.5-7B" and "model" not in made.assumed


def test_an_engine_bounds_its_responses_before_the_data_do(verl):
    told = verl(f"{ROLLOUT}.prompt_length=2048 {ROLLOUT}.response_length=1024").recipe()
    assert told["generation"]["max_prompt"] == told["generation"]["max_response"] == 1024


@pytest.mark.parametrize(
    ("words", "noted"),
    [
        ("data.gen_batch_size=384", True),
        ("data.gen_batch_size=128", False),
        ("data.gen_batch_size=384 algorithm.filter_groups.enable=True", False),
    ],
)
def test_what_the_loader_deals_without_a_filter_is_said(verl, words, noted):
    made = verl(words)
    assert any("before 0.9 trains on so many" in note for note in made.notes) == noted
    assert made.recipe()["generation"].get("prompts") == (384 if "filter" in words else None)


LEFT_OUT = "is no number above 0; left out"


@pytest.mark.parametrize(
    "word",
    ["data.gen_batch_size=$N", "data.gen_batch_size=-1"]
    + [f"{ROLLOUT}.response_length={said}" for said in ("-1", "$N")],
)
def test_what_is_no_number_does_not_end_an_import(verl, word):
    made = verl(word)
    assert f"{word.replace('=', ' = ')} {LEFT_OUT}" in made.notes
    assert made.recipe()["generation"]["max_response"] == 3072


@pytest.mark.parametrize(
    "flag", ["sglang-server-concurrency 0", "critic-num-gpus-per-node $N", "critic-num-nodes -1"]
)
def test_what_is_no_number_does_not_end_an_import_of_slime(slime, flag):
    made = slime(f"--colocate --advantage-estimator ppo --{flag}")
    assert f"{flag.replace(' ', ' = ')} {LEFT_OUT}" in made.notes
    assert made.recipe()["generation"]["max_num_seqs"] == 512 and not made.misfit
    assert any("by default as many as the actor's: 16 here" in note for note in made.notes)


@pytest.mark.parametrize(
    ("flags", "most"),
    [
        ("", 512),
        ("--sglang-server-concurrency 1024", 1024),
        ("--sglang-max-running-requests 256", 256),
        ("--sglang-max-running-requests 2048", 512),
        ("--sglang-max-running-requests 2048 --sglang-server-concurrency 1024", 1024),
        ("--sglang-max-running-requests 256 --sglang-server-concurrency 1024", 256),
    ],
)
def test_slime_asks_an_engine_for_so_many_at_once(slime, flags, most):
    """Its semaphore lets 512 responses an engine through, unless told otherwise."""
    made = slime(f"--colocate {flags}")
    assert made.recipe()["generation"]["max_num_seqs"] == most
    assert ("generation.max_num_seqs" in made.assumed) == (
        "concurrency" not in flags and "256" not in flags
    )


def test_slime_reads_prompts_on_servers_of_their_own(slime):
    made = slime("--rollout-num-gpus 8 --prefill-num-servers 1").recipe()
    assert made["generation"]["prefill_gpus"] == 2
    whole = slime("--rollout-num-gpus 8 --prefill-num-servers 4")
    assert "prefill_gpus" not in whole.recipe()["generation"]
    assert any("say generation.prefill_gpus" in note for note in whole.notes)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--colocate", "16 here), and engines stand on both"),
        ("--rollout-num-gpus 8 --critic-num-nodes 1", "8 here); a critic"),
    ],
)
def test_slime_gives_a_critic_gpus_of_its_own(slime, flags, said):
    assert any(said in note for note in slime(f"--advantage-estimator ppo {flags}").notes)


@pytest.mark.parametrize(("strategy", "precision"), [("fsdp", None), ("megatron", "fp8")])
def test_a_section_of_an_engine_that_does_not_train_is_not_read(verl, strategy, precision):
    config = f"+{ACTOR}.megatron.override_transformer_config"
    words = f"{config}.fp8=hybrid {ACTOR}.megatron.param_offload=False"
    offload = f"{ACTOR}.fsdp_config.param_offload=False"
    made = verl(f"{ACTOR}.strategy={strategy}", words, offload)
    assert made.recipe()["training"].get("precision") == precision
    (stay,) = (note for note in made.notes if "stay in the HBM" in note)
    assert ("megatron" in stay, "fsdp" in stay) == (strategy == "megatron", strategy == "fsdp")
    left_out = [note for note in made.notes if "of an engine that does not train" in note]
    assert len(left_out) == 1 and ("fsdp_config" in left_out[0]) == (strategy == "megatron")


def test_an_engine_that_a_variable_names_is_asked_for(verl):
    cut = f"{ACTOR}.megatron.tensor_model_parallel_size=4"
    made = verl(f"{ACTOR}.strategy=$BACKEND", cut)
    assert made.recipe()["training"]["tp"] == 4
    said = f"{ACTOR}.strategy is $BACKEND: megatron trains here, by its section"
    assert f"{said}; say --env BACKEND=VALUE" in made.notes
    made = verl(f"{ACTOR}.strategy=$BACKEND")
    assert made.recipe()["training"]["tp"] == 1
    assert any("fsdp trains here, by default; say --env BACKEND" in note for note in made.notes)


def test_no_section_is_left_out_beside_an_engine_that_is_not_known(verl):
    cut = f"{ACTOR}.mindspeed.tensor_model_parallel_size"
    assert f"{cut} = 4" in verl(f"{ACTOR}.strategy=mindspeed_megatron", f"{cut}=4").unmapped

"""What FSDP gathers together and when it sends gradients: its root, ends apart, no_sync."""

import pytest

from rfabric.errors import RFabricError
from rfabric.rl import flows, read_recipe, trace_of
from rfabric.rl.imports import import_job
from rfabric.rl.phases import step_of

SHARDED = "training.optimizer=sharded", "training.recompute=full", "training.tp=1"
EACH = "training.micro_batch_sequences=1", "generation.batch=32", "generation.group_size=8"


def job(*more):
    return read_recipe("grpo-64", [*SHARDED, *EACH, "model=Qwen2.5-1.5B", *more])


def sent(w):
    rows = trace_of(w).communication()
    trace = trace_of(w)
    return {key[2]: int(trace.total[r].sum()) for key, r in rows.items() if key[1] == "training"}


def test_ends_apart_are_gathered_as_layers_are():
    root, apart = job(), job("training.ends=apart")
    step = step_of(root, 0, 0).trained
    micro = sum(b.micro_batches for b in step.mini_batches)
    passes, ahead = root.training.log_prob_passes, step.log_prob_micro_batches
    whole = sum(flows.sharded(root)["all-gather"].size)
    assert sent(apart)["all-gather"] == pytest.approx(
        (2 * micro + passes * ahead) * whole, rel=1e-6
    )
    m = root.model
    ends = (m.vocab * m.hidden + m.hidden) / m.parameters * whole  # tied
    less = (micro + passes * (ahead - 1)) * ends
    assert sent(apart)["all-gather"] - sent(root)["all-gather"] == pytest.approx(less, rel=1e-5)


def test_no_sync_sends_gradients_once_an_update_and_holds_them_whole():
    one = "training.mini_batches=1"
    each, once = job(one), job(one, "training.no_sync=true")
    batches = step_of(each, 0, 0).trained.mini_batches
    assert [b.micro_batches for b in batches] == [8]
    assert sent(each)["reduce-scatter"] == pytest.approx(8 * sent(once)["reduce-scatter"], rel=1e-5)
    assert sent(each)["all-gather"] == sent(once)["all-gather"]
    m = each.model
    assert once.training_bytes["gradients"] == 4 * m.parameters
    assert each.training_bytes["gradients"] == pytest.approx(4 * m.parameters / 32)
    lone = job(one, "training.no_sync=true", "generation.batch=4")
    assert lone.training_bytes["gradients"] == pytest.approx(4 * m.parameters / 32)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("training.optimizer=distributed",), "training.optimizer distributed is not that"),
        (("training.fsdp_size=8",), "training.fsdp_size 8 is not that"),
    ],
)
def test_no_sync_is_of_one_sharded_copy(more, said):
    with pytest.raises(RFabricError, match=said):
        job("training.no_sync=true", *more)


ACTOR = "actor_rollout_ref.actor"
VERL = f"""python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
  data.train_batch_size=128 data.max_prompt_length=1024 data.max_response_length=3072 \\
  actor_rollout_ref.model.path=/m/{{model}} actor_rollout_ref.rollout.n=8 \\
  actor_rollout_ref.rollout.tensor_model_parallel_size=2 {ACTOR}.ppo_mini_batch_size=32 \\
  {ACTOR}.use_dynamic_bsz=True trainer.n_gpus_per_node=8 trainer.nnodes=2 {{more}}
"""
FSDP, NO_SYNC = f"{ACTOR}.fsdp_config", "use_no_sync_for_gradient_accumulation"


@pytest.mark.parametrize(
    ("model", "more", "ends", "no_sync"),
    [
        ("Qwen3-8B", "", None, None),
        ("Qwen3-8B", f"{ACTOR}.strategy=fsdp2", "apart", None),
        ("Qwen3-8B", f"{FSDP}.strategy=fsdp2", "apart", None),
        ("Qwen3-1.7B", f"{ACTOR}.strategy=fsdp2", None, None),  # tied
        ("Qwen3-8B", f"{FSDP}.{NO_SYNC}=True", None, True),
        ("Qwen3-8B", f"{FSDP}.{NO_SYNC}=False", None, None),
        ("Qwen3-8B", f"{ACTOR}.strategy=megatron {FSDP}.{NO_SYNC}=True", None, None),
        ("Qwen3-8B", f"{FSDP}.{NO_SYNC}=True {FSDP}.fsdp_size=8", None, None),
    ],
)
def test_verls_fsdp(tmp_path, model, more, ends, no_sync):
    (path := tmp_path / "run.sh").write_text(VERL.format(model=model, more=more))
    made = import_job("verl", path)
    training = made.recipe()["training"]
    assert (training.get("ends"), training.get("no_sync")) == (ends, no_sync)
    assert training.get("buckets") == (36 if no_sync else None)
    noted = "fsdp_size" in more
    assert any(NO_SYNC in note for note in made.notes) == noted

"""Pipeline stages that hold unequally many layers: how many, and what is said of them, by hand."""

import pytest
import yaml

from rfabric.rl.imports import import_job
from rfabric.rl.imports.stages import _laid_out

SLIME = """python3 train.py --actor-num-nodes 8 --actor-num-gpus-per-node 8 --colocate \
--hf-checkpoint {model} --rollout-batch-size 32 --n-samples-per-prompt 8 --global-batch-size 256 \
--tensor-model-parallel-size 4 --rollout-num-gpus-per-engine 8 --micro-batch-size 1 \
--pipeline-model-parallel-size {stages} {more}
"""
VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 \
actor_rollout_ref.actor.ppo_mini_batch_size=64 data.max_response_length=1024 trainer.nnodes=8 \
actor_rollout_ref.model.path=Qwen/Qwen3-235B-A22B actor_rollout_ref.actor.strategy=megatron \
actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=8 {more}
"""
INSIDE = "+actor_rollout_ref.actor.megatron.override_transformer_config"


@pytest.fixture
def read(tmp_path):
    """The job of a script."""

    def of(framework, text):
        (path := tmp_path / "job.sh").write_text(text)
        return import_job(framework, path)

    return of


@pytest.fixture
def notes(read):
    """The notes of a job that speak of layers."""
    return lambda *job: [note for note in read(*job).notes if "layers" in note]


@pytest.mark.parametrize(
    ("stages", "more", "layers"),
    [
        # 94 layers of Qwen3-235B-A22B: (94 - 22) / 3 = 24
        (4, "--decoder-last-pipeline-num-layers 22", [24, 24, 24, 22]),
        (4, "--decoder-first-pipeline-num-layers 25", [25, 23, 23, 23]),
        (
            8,
            "--decoder-first-pipeline-num-layers 11 --decoder-last-pipeline-num-layers 11",
            [11, *[12] * 6, 11],
        ),
        (2, "--decoder-first-pipeline-num-layers 40", [40, 54]),
    ],
)
def test_unlike_stages_are_read(read, stages, more, layers):
    job = read("slime", SLIME.format(model="Qwen3-235B-A22B", stages=stages, more=more))
    assert job.values["training.stage_layers"] == layers
    assert more.split()[0].strip("-") in job.origin["training.stage_layers"]
    assert not [note for note in job.notes if "layers" in note]
    assert yaml.safe_load(job.yaml())["training"]["stage_layers"] == layers


@pytest.mark.parametrize(
    ("model", "stages", "more"),
    [
        ("Qwen3-235B-A22B", 2, ""),
        ("Qwen3-235B-A22B", 1, "--decoder-last-pipeline-num-layers 22"),
        ("GLM-4.5", 4, "--decoder-last-pipeline-num-layers 23"),  # of 92: all alike
    ],
)
def test_equal_stages_need_no_word(read, model, stages, more):
    job = read("slime", SLIME.format(model=model, stages=stages, more=more))
    assert not [note for note in job.notes if "layers" in note]
    assert "training.stage_layers" not in job.values


@pytest.mark.parametrize(
    ("stages", "more"), [(4, ""), (4, "--decoder-last-pipeline-num-layers 23"), (8, "")]
)
def test_layers_that_do_not_divide_are_told(notes, stages, more):
    (note,) = notes("slime", SLIME.format(model="Qwen3-235B-A22B", stages=stages, more=more))
    assert f"94 layers do not divide over {stages} pipeline stages; here each holds" in note


def test_embedding_and_loss_counted_as_layers(notes, read):
    """(94 + 2) / 8 = 12, one less in the first and the last stage."""
    both = f"{INSIDE}.account_for_embedding_in_pipeline_split=True "
    both += f"{INSIDE}.account_for_loss_in_pipeline_split=True"
    assert not notes("verl", VERL.format(more=both))
    layers = read("verl", VERL.format(more=both)).values["training.stage_layers"]
    assert layers == [11, *[12] * 6, 11]
    (note,) = notes("verl", VERL.format(more=both.replace("True", "False")))
    assert note == "94 layers do not divide over 8 pipeline stages; here each holds 11.75"


LAYOUT = "actor_rollout_ref.actor.megatron.pipeline_model_parallel_layout"


def test_a_layout_says_the_layers_of_each_stage(notes, read):
    even = "|".join(["t*12"] * 7)
    assert not notes("verl", VERL.format(more=f"{LAYOUT}='Et*10|{even},L'"))
    job = read("verl", VERL.format(more=f"{LAYOUT}='Et*10|{even},L'"))
    assert job.values["training.stage_layers"] == [10, *[12] * 7]
    assert "training.vp" not in job.values
    (note,) = notes("verl", VERL.format(more=f"{LAYOUT}='Et*12|t*82L'"))
    assert note.endswith("= Et*12|t*82L: not read; each stage holds 11.75 layers here")


def test_a_layout_of_more_parts_than_stages_is_interleaved(read):
    """Sixteen parts on eight stages: each holds the i-th and the (i + 8)-th, 12 layers or 11."""
    parts = "|".join(["t*6"] * 14 + ["t*5"] * 2)
    job = read("verl", VERL.format(more=f"{LAYOUT}='E{parts}L'"))
    assert job.values["training.vp"] == 2
    assert job.values["training.stage_layers"] == [*[12] * 6, 11, 11]


def test_layers_of_a_chunk_are_out_of_those_that_are_counted(read):
    """46 layers, embedding and loss are 48: 4 stages of 12, each of 2 chunks of 6."""
    counted = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
    more = f"{counted} --num-layers-per-virtual-pipeline-stage 6"
    job = read("slime", SLIME.format(model="GLM-4.5-Air", stages=4, more=more))
    assert job.values["training.vp"] == 2
    assert job.values["training.stage_layers"] == [11, 12, 12, 11]


def test_a_stage_without_layers_is_told(read):
    job = read("verl", VERL.format(more=f"{LAYOUT}='Et*10|{'t*14|' * 6}L'"))
    assert "training.stage_layers" not in job.values
    (note,) = [note for note in job.notes if "layers" in note]
    assert "stages of 10, 6 x 14, 0 layers; here none is without, and each holds 11.75" in note
    assert "the widest may take 1.19 times as long" in note


@pytest.mark.parametrize(
    ("layout", "stages", "layers"),
    [
        ("Et*6|t*6|t*6|t*5|t*5|t*5|t*5|t*5L", 8, [6, 6, 6, 5, 5, 5, 5, 5]),
        ("Et|(tt|)*6tL", 8, [1, 2, 2, 2, 2, 2, 2, 1]),
        ("Et|(tt|)*6t,m|L", 3, [5, 5, 4]),  # 1 2 2 | 2 2 2 | 2 1 0, dealt to 3 stages in turn
        ("Et|(tt|)*6t,m|L", 4, []),  # of nine parts
        ("(t*999)*999", 1, []),
        ("[[embedding, decoder], [decoder, loss]]", 2, []),
    ],
)
def test_layers_of_a_layout(layout, stages, layers):
    assert _laid_out(layout, stages) == layers


def test_the_references_layout_is_its_own(notes):
    other = LAYOUT.replace(".actor.", ".ref.")
    (note,) = notes("verl", VERL.format(more=f"{other}='Et*10|(t*12|)*7L'"))
    assert "94 layers do not divide" in note


def test_chunks_that_do_not_divide_a_stage_are_told(notes):
    """47 layers a stage are no two chunks; 24 and 22 are."""
    flag = "--num-virtual-stages-per-pipeline-rank 2"
    (note,) = notes("slime", SLIME.format(model="Qwen3-235B-A22B", stages=2, more=flag))
    assert "stages of 2 x 47 layers do not divide into 2 chunks; here all chunks of a" in note
    flag += " --decoder-last-pipeline-num-layers 22"
    assert not notes("slime", SLIME.format(model="Qwen3-235B-A22B", stages=4, more=flag))

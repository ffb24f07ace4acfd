"""What pipeline stages hold of a model, by hand and beside one another."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute import memory
from rfabric.compute.gpus import GPUS
from rfabric.compute.layout import Layout
from rfabric.compute.named import load_model
from rfabric.compute.pipeline_stages import held, held_once, learning, sent
from rfabric.compute.training import Trainer, data_seconds, share_recomputed

TIED, UNTIED = "Command-R-35B", "Llama-3-70B"


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        # 256,000 words of 8,192 columns, which the last stage holds a copy of
        (TIED, 256000 * 8192),
        (UNTIED, 128256 * 8192),
    ],
)
def test_the_first_and_the_last_stage_hold_a_vocabulary_more(name, ends):
    model = load_model(name)
    first, second, third, last = held(model, Layout(pp=4))
    assert second == third
    assert first.dense - second.dense == ends
    assert last.dense - second.dense == ends + 8192  # the last norm
    copies = ends if name == TIED else 0
    assert sum(stage.total for stage in (first, second, third, last)) == model.parameters + copies


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([TIED, UNTIED, "Qwen3-30B-A3B", "DeepSeek-V3", "Llama-3.2-1B"]),
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
)
def test_all_stages_together_hold_the_model(name, layers):
    model, layout = load_model(name), Layout(pp=len(layers), stages=tuple(layers))
    for stages in (held_once(model, layout), sent(model, layout, 1.0), sent(model, layout, 0.01)):
        assert sum(stage.dense for stage in stages) == pytest.approx(model.dense_parameters)
        assert sum(stage.experts for stage in stages) == pytest.approx(model.expert_parameters)
    if len(layers) == 1:
        (one,) = held(model, layout)
        assert (one.dense, one.experts) == (model.dense_parameters, model.expert_parameters)


def test_adapters_stand_in_layers_alone():
    model, layout = load_model(UNTIED), Layout(pp=2, stages=(20, 60))
    first, last = learning(model, layout, 0.01)
    assert 3 * first.total == pytest.approx(last.total)
    assert learning(model, layout, 1) == held(model, layout)
    taught = memory.training_bytes(model, layout, 4096, learns=0.01, stage=0)
    assert taught["gradients"] == pytest.approx(4 * 0.01 * model.parameters / 4)
    base = held(model, layout)[0].total
    assert taught["parameters"] == pytest.approx(2 * (base + 0.01 * model.parameters / 4))


def test_the_stage_that_lacks_the_most_room_recomputes():
    """By hand, 70 B in two stages: the first holds two micro-batches, the last one and the logits.
    Vocabularies are alike, and so are the states.
    """
    trainer = Trainer(load_model(UNTIED), GPUS["H100"], Layout(tp=8, pp=2, dp=8))
    states = 128256 * 8192 + 40 * trainer.model.layer_mean
    room = GPUS["H100"].hbm_bytes - memory.RESERVED_BYTES - states / 8 * (2 + 4 + 12 / 8)
    columns = 8 * 8192 + 4 * (8192 + 1024) + 6 * 28672
    first = 2 * 40 * columns * 32768 / 8
    assert room < first and first > first / 2 + 6 * 128256 * 32768 / 8
    assert share_recomputed(trainer, 32768) == pytest.approx(1 - room / first, rel=1e-3)


def test_gradients_of_the_largest_stage_are_waited_for():
    """Both ends of 70 B send a vocabulary more than the stages between them."""
    model, gpu = load_model(UNTIED), GPUS["H100"]
    two, four = (Trainer(model, gpu, Layout(pp=pp, dp=64)) for pp in (2, 4))
    each = model.layer_mean
    ends = 128256 * 8192
    ratio = (20 * each + ends) / (40 * each + ends)
    took = [data_seconds(trainer, 0.0, 0.0, 1) for trainer in (four, two)]
    assert took[0] / took[1] == pytest.approx(ratio, rel=5e-3)  # but for latencies

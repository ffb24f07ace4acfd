"""How far measurements lie from predictions: which residuals speak for a job, and that they hold on
the measurements they were taken from.
"""

from pathlib import Path

import pytest

from rfabric.compute.gpus import find_gpu
from rfabric.compute.named import find_model
from rfabric.compute.spread import OTHER, SAME, SCALE, spread
from rfabric.errors import RFabricError
from rfabric.rl import explain, read_recipe
from rfabric.study.validate import nemo_rl, training
from rfabric.study.validate.leave_one_out import leave_one_out

DATA = Path(__file__).parents[3] / "shared" / "data"
DENSE, MOE = find_model("Qwen3-32B"), find_model("DeepSeek-V3")


def test_the_farther_from_what_was_measured_the_wider():
    same = spread("training", DENSE, find_gpu("H100"), 64)
    other = spread("training", DENSE, find_gpu("B200"), 64)
    scale = spread("training", DENSE, find_gpu("H100"), 4096)
    assert [one.basis for one in (same, other, scale)] == [SAME, OTHER, SCALE]
    widths = [one.high / one.low for one in (same, other, scale)]
    assert widths == sorted(widths) and len(set(widths)) == 3
    assert scale.low <= min(same.low, other.low) and scale.high >= max(same.high, other.high)


def test_a_mixture_of_experts_is_judged_by_mixtures():
    dense, sparse = (spread("training", model, find_gpu("GB200"), 64) for model in (DENSE, MOE))
    assert (dense.of, sparse.of) == ("dense", "MoE") and dense.rows != sparse.rows
    assert spread("decode", MOE, find_gpu("H100"), 8).basis == OTHER


def test_a_kind_that_was_never_measured_has_no_interval():
    with pytest.raises(RFabricError, match="no residuals of 'luck'; there are those of decode"):
        spread("luck", DENSE, find_gpu("H100"), 8)


def test_every_predicted_second_but_those_of_bytes_has_an_interval():
    items = {item.item: item for item in explain(read_recipe("grpo-64"))}
    for name in ("prefill", "decode", "log-prob", "forward-backward", "optimizer", "load", "sync"):
        low, high = items[name].within
        assert low < items[name].seconds < high
    assert items["all-gather"].within is None and items["lengths"].within is None


@pytest.mark.skipif(not DATA.is_dir(), reason="no shared/data beside the clone")
@pytest.mark.parametrize(
    ("kind", "check", "file", "of", "part"),
    [
        ("training", training, "measured/training_mfu_llm_foundry_h100.csv", 24, ""),
        ("training", training, "measured/training_megatron_bridge_by_model.csv", 45, "dense"),
        ("training", training, "measured/training_megatron_bridge_by_model.csv", 63, "MoE"),
        ("step", nemo_rl, "rl_measured/nemo_rl_step_times.csv", 13, ""),
        ("step", nemo_rl, "rl_measured/nemo_rl_qwen3_30b_step_times.csv", 7, ""),
    ],
)
def test_seven_in_ten_of_the_rows_lie_within(kind, check, file, of, part):
    from rfabric.compute.spread import _table

    group = next(iter(check.check(DATA / file, DATA)))
    ratios = [p.measured / p.modelled for p in group.points if part in p.part]
    if group.points[0].unit.startswith("tokens"):
        ratios = [1 / ratio for ratio in ratios]  # of seconds, as the table has them
    row = next(
        one for one in _table() if one.kind == kind and file in one.source and one.rows == of
    )
    assert len(ratios) == of
    assert sum(row.low - 0.01 <= ratio <= row.high + 0.01 for ratio in ratios) >= 0.7 * of


@pytest.mark.skipif(not DATA.is_dir(), reason="no shared/data beside the clone")
def test_seven_in_ten_of_what_is_left_out_lie_within():
    from rfabric.compute.spread import _table

    groups = {group.name: group for group in leave_one_out(DATA)}
    for kind, name in (("weight sync", "weight sync"), ("first token", "first tokens")):
        row = next(one for one in _table() if one.kind == kind and "left out" in one.source)
        points = groups[f"{name}, each system left out"].points
        inside = [row.low - 0.01 <= p.measured / p.modelled <= row.high + 0.01 for p in points]
        assert len(inside) == row.rows and sum(inside) >= 0.7 * row.rows

"""How far measurements lie from predictions: which residuals speak for a job, that they are those
of the measurements, and that measured steps lie where their phases say.
"""

from pathlib import Path

import pytest

from rfabric.cli import main
from rfabric.compute.gpus import find_gpu
from rfabric.compute.named import find_config, find_model
from rfabric.compute.spread import FILE, OTHER, SAME, SCALE, spread
from rfabric.errors import RFabricError
from rfabric.rl import explain, read_recipe
from rfabric.rl.plan import step_period, step_within
from rfabric.rl.timing import phase_within
from rfabric.study.validate import nemo_rl
from rfabric.study.validate.residuals import residuals

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


def test_every_predicted_second_has_an_interval():
    items = {item.item: item for item in explain(read_recipe("grpo-64"))}
    for name in ("prefill", "decode", "log-prob", "forward-backward", "optimizer", "load", "sync"):
        low, high = items[name].within
        assert low < items[name].seconds < high
    for name in ("reduce-scatter", "all-gather", "weights"):  # never less than at NIC rate
        low, high = items[name].within
        assert items[name].seconds < low < high
    assert {item.item for item in items.values() if not item.within} == {"lengths", "KV cache"}


@pytest.mark.parametrize("pipeline", ["sync", "one-step-off", "async"])
def test_a_step_is_as_low_or_high_as_its_phases_together(pipeline):
    w = read_recipe("grpo-64", [f"pipeline={pipeline}"])
    parts = {"generation": (100.0, 1.0), "training": (60.0, 2.0), "weight_sync": (5.0, 3.0)}
    within = {kind: phase_within(w, kind, *both) for kind, both in parts.items()}
    for end, seconds in enumerate(step_within(w, parts)):
        assert seconds == step_period(w, *(within[kind][end] for kind in parts))
    alone = {kind: (both[0], 0.0) for kind, both in parts.items()}
    assert step_within(w, alone)[1] < step_within(w, parts)[1]


def test_a_table_of_residuals_needs_all_that_it_is_made_of(tmp_path, capsys):
    config = tmp_path / "models" / "Qwen3-32B.json"
    config.parent.mkdir()
    config.write_text(find_config("Qwen3-32B").read_text(encoding="utf-8"), encoding="utf-8")
    row = "vllm,Qwen/Qwen3-32B,h100_sxm,agg,512,16,2,1,1,80"
    columns = "backend,model_path,system,mode,isl,osl,conc,tp_size,moe_ep_size,silicon_ttft_ms"
    table = tmp_path / "measured" / "serving_ttft_tpot.csv"
    table.parent.mkdir()
    table.write_text(f"{columns}\n{row}\n", encoding="utf-8")
    new = tmp_path / "new.csv"
    assert main(["validate", str(tmp_path), "--residuals", str(new)]) == 2
    said = capsys.readouterr().err
    assert "residuals of decode (same system): no rows of serving TPOT" in said
    assert not new.exists()


@pytest.mark.skipif(not DATA.is_dir(), reason="no shared/data beside the clone")
def test_the_table_of_residuals_is_what_the_measurements_give():
    """Where it is not: `rfabric validate ../shared/data --residuals rfabric/compute/residuals.csv`,
    and README and docs with it.
    """
    assert residuals(DATA) == FILE.read_text(encoding="utf-8")


@pytest.mark.skipif(not DATA.is_dir(), reason="no shared/data beside the clone")
def test_three_in_four_measured_steps_lie_within_the_sums_of_their_phases():
    """No residual of a step went into its interval."""
    shares = []
    for path in sorted((DATA / "rl_measured").glob("nemo_rl_*step_times.csv")):
        steps = next(iter(nemo_rl.check(path, DATA)))
        shares += [dict(steps.extra)["share_within_their_interval"]] * len(steps.points)
    assert len(shares) == 23 and sum(shares) / len(shares) >= 0.75

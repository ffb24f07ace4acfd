"""`rfabric validate DIR --experiment NAME`: that it stands on the rows of the miss, that what it
changes does what it says, and what it says where a file is missing; on tables made up here, and on
the measured ones where they are.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from rfabric.cli import main
from rfabric.compute.training import GROUPED
from rfabric.errors import RFabricError
from rfabric.study.validate import deepep, nemo_rl, training
from rfabric.study.validate.experiments import EXPERIMENTS, experiment
from rfabric.study.validate.leave_one_out import fit_grouped, leave_one_out
from rfabric.study.validate.standing import CIRCULAR, FITTED

SHARED = Path(__file__).parents[3] / "shared" / "data"
measured = pytest.mark.skipif(
    not SHARED.is_dir(), reason="needs ../shared/data, the measured tables"
)
TRAINED = """\
system,model,gpus,precision,gbs,mbs,seq,fsdp,tp,pp,cp,vp,ep,ga,tok_s_gpu,container
DGX-H100,Qwen3_30B_a3B,16,FP8,256,1,4096,0,1,1,1,,16,,4000,26.02
DGX-H100,Qwen3_30B_a3B,16,FP8,256,1,4096,0,1,1,1,,16,,8000,26.04
DGX-B200,Qwen3_30B_a3B,8,MXFP8,256,1,4096,0,1,1,1,,8,,9000,26.02
DGX-H100,GPT OSS 120B,64,BF16,640,1,4096,0,1,4,1,,8,,6000,26.04
DGX-H100,LLAMA3_8B,8,FP8,64,1,8192,1,1,1,1,,1,,14000,26.04
"""
STEPS = """\
version,system,precision,model,policy,max_seq,avg_seq,gpus,gen_gbs,train_gbs,gen_tp_pp,\
train_parallel,tokens_s_gpu,step_time_s
v1,DGX-H100,BF16,Qwen3-30B-A3B,On policy,4096,3200,32,256,64,[2 1],[1 1 8 1 n/a],,40
v1,DGX-H100,BF16,Qwen3-30B-A3B,1-step Off,4096,3200,32,256,64,[2 1],[1 1 8 1 n/a],,35
v2,GB200-NVL72,BF16,Qwen3-30B-A3B,On policy,4096,3200,16,256,64,[1 1],[1 1 16 1 n/a],,45
"""
RECIPES = """\
recipe,model,num_generations_per_prompt,train_micro_batch,max_total_seq,gpus_per_node,async
usual,Qwen/Qwen3-30B-A3B,32,1,4096,8,False
"""
README = "kind,ep,dispatch_GBps,dispatch_us,combine_GBps,combine_us,bottleneck\n"
FILES = {
    "measured/training_megatron_bridge_by_model.csv": TRAINED,
    "rl_measured/nemo_rl_qwen3_30b_step_times.csv": STEPS,
    "rl_measured/nemo_rl_qwen3_30b_recipes.csv": RECIPES,
    "measured/deepep_v1_h800.csv": README + "normal 4096 tokens,16,43,,43,,RDMA\n",
    "measured/deepep_h200_ib_2nodes.csv": README + "normal 4096 tokens,16,40,,40,,RDMA\n",
    "measured/deepep_normal_h100_nodes.csv": (
        "device,op_name,node_num,hidden_size,num_token,num_topk,num_experts,dispatch_sms,"
        "dispatch_transmit_us,combine_sms,combine_transmit_us\n"
        "NVIDIA H100,normal,2,7168,4096,8,256,24,750,24,1800\n"
        "NVIDIA H100,normal,2,7168,4096,8,256,8,2000,8,4900\n"
        "NVIDIA H100,normal,2,7168,64,8,256,24,90,24,120\n"
    ),
}


def folder(path, files=FILES):
    for name, text in files.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text)
    return path


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("made_up"))


def by_name(folder, name):
    return {group.name: group for group in experiment(folder, name)}


def errors(group, part=""):
    return [abs(point.error) for point in group.points if part in point.part]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_first_group_is_what_the_model_says_of_these_rows(made_up, name):
    first = experiment(made_up, name)[0]
    assert first.name == "as predicted"
    file = EXPERIMENTS[name].files[0]
    if name == "deepep":  # as rates there, as times in the file
        one = next(e for e in deepep.exchanges_of(made_up / file)[0] if e.sms == 24)
        assert first.points[0].error == pytest.approx(1 / (1 + one.point().error) - 1)
        return
    check = {"on-policy": nemo_rl, "experts": training}[name].check
    checked = check(made_up / file, made_up)
    points = {(p.name, p.modelled) for group in checked for p in group.points}
    assert {(p.name, p.modelled) for p in first.points} <= points


def test_a_phase_taken_longer_brings_steps_on_policy_nearer_and_no_factor_is_better(made_up):
    groups = by_name(made_up, "on-policy")
    before = np.median(errors(groups["as predicted"], "on policy"))
    tried = [group for name, group in groups.items() if " x " in name]
    assert [group.name.split(" x ")[0] for group in tried] == list(nemo_rl.PHASES)
    for group in tried:
        assert group.basis == FITTED
        assert np.median(errors(group, "on policy")) <= before
    made, _ = nemo_rl.steps_of(made_up / EXPERIMENTS["on-policy"].files[0], made_up)
    one = made[0]
    longer = one.predicted(training=2.0) - one.predicted()
    assert longer == pytest.approx(one.phases["training"][0])


def test_training_as_slow_as_measured_elsewhere_is_by_chip_and_names_what_was_not(made_up):
    groups = by_name(made_up, "on-policy")
    before, after = (groups[f"training as measured {w} 26.02.01"] for w in ("before", "from"))
    assert dict(before.extra)["training on H100 took, x"] == pytest.approx(
        2 * dict(after.extra)["training on H100 took, x"]
    )
    assert (len(before.points), len(after.points)) == (3, 2)
    assert "has no such row of GB200" in after.unmodelled[0]
    assert before.points[0].modelled > after.points[0].modelled


def test_a_host_is_told_by_rows_of_other_gpus_alone(made_up):
    groups = by_name(made_up, "experts")
    own = {p.name: p.modelled for p in groups["as predicted"].points}
    none, others = (groups[n] for n in ("no host is waited for", "hosts by rows of other GPUs"))
    assert [p.part for p in none.points] == ["H100, 26.02", "H100, 26.04", "B200, 26.02"]
    assert all(p.modelled >= own[p.name] for p in none.points)
    assert none.points[-1].modelled > 1.5 * own[none.points[-1].name]  # the fastest GPU waits
    layer = 4096 / 9000 / 48  # s: B200's only row, of one sequence in 48 layers
    told = dict(others.extra)
    assert told["H100: host_ms_a_layer"] == pytest.approx(1e3 * layer)
    assert told["B200: host_ms_a_layer"] == pytest.approx(
        1e3 * 4096 / 48 * (1 / 4000 + 1 / 8000) / 2
    )
    slowest = 4096 / 48 / (told["B200: host_ms_a_layer"] / 1e3)  # tokens/s, the optimizer aside
    assert others.points[-1].modelled == pytest.approx(slowest, rel=0.01)
    assert {p.name: p.measured for p in others.points} == {p.name: p.measured for p in none.points}


def test_slower_links_make_exchanges_over_two_servers_no_faster(made_up):
    groups = by_name(made_up, "deepep")
    first = groups["as predicted"]
    assert [p.part for p in first.points] == ["H100"] * 2 + ["H800"] * 2 + ["H200"] * 2
    assert {p.unit for p in first.points} == {"GB/s"}
    for name in ("NVLink of H800", "cards at half their rate", "16 multiprocessors"):
        for slow, usual in zip(groups[name].points, first.points, strict=True):
            assert slow.modelled <= usual.modelled * (1 + 1e-12)
    h800 = [p.modelled for p in groups["NVLink of H800"].points if p.part == "H800"]
    assert h800 == [p.modelled for p in first.points if p.part == "H800"]
    (other,) = (group for name, group in groups.items() if name.startswith("H200 by"))
    assert [p.modelled for p in other.points] == [p.measured for p in first.points[:2]]
    assert other.basis == CIRCULAR


def test_a_term_taken_longer_is_for_one_model_and_one_figure_a_job_is_its_median(made_up):
    groups = by_name(made_up, "experts")
    assert len(groups["as predicted"].points) == 4  # the dense row is left out
    for name, group in groups.items():
        if " x " in name:
            model, _ = name.split(": ")
            same = [e for p, e in zip(*_points_of(groups["as predicted"], model), strict=True)]
            assert np.median(errors(group)) <= np.median(same)
    alike = groups["experts' matmuls as fast as others"]
    pairs = list(zip(alike.points, groups["as predicted"].points, strict=True))
    assert all(faster.modelled >= usual.modelled for faster, usual in pairs)
    assert any(faster.modelled > usual.modelled for faster, usual in pairs)
    (floor,) = (group for name, group in groups.items() if name.startswith("one figure a job"))
    assert [p.modelled for p in floor.points] == [6000, 6000]
    assert dict(floor.extra)["fastest_over_slowest_widest"] == pytest.approx(2)


def _points_of(group, model):
    points = [p for p in group.points if p.part.startswith(model)]
    return points, [abs(p.error) for p in points]


def mixtures_of(path, shares):
    """A folder of jobs that no host holds up, as fast as where experts' matmuls sustain these
    shares, by model.
    """
    lines = [
        f"DGX-{gpu},{model},{gpus},FP8,256,4,4096,0,1,1,1,,{gpus},,1,26.04"
        for model in ("Qwen3_30B_a3B", "GPT OSS 120B")
        for gpu, gpus in (("H100", 16), ("B200", 8), ("GB300", 8))
    ]
    head = TRAINED.splitlines()[0]
    file = folder(path, {"measured/training_made_up.csv": "\n".join([head, *lines])})
    file = file / "measured/training_made_up.csv"
    made, left = training.steps_of(file, path)
    assert not left
    rates = [one.changed(grouped=shares[one.model]).point().modelled for one in made]
    told = [
        line.replace(",1,26.04", f",{rate!r},26.04")
        for line, rate in zip(lines, rates, strict=True)
    ]
    file.write_text("\n".join([head, *told]))
    return path


def test_a_mixture_is_predicted_by_the_share_that_others_ask_for(tmp_path):
    """Rows made up with a share of each model: each is recovered, and predicts the other model."""
    shares = {"Qwen3-30B-A3B": 0.45, "gpt-oss-120b": 0.8}
    where = mixtures_of(tmp_path, shares)
    by_model, by_gpu = leave_one_out(where)
    others = dict(zip(shares, reversed(shares.values()), strict=True))
    assert dict(by_model.extra) == pytest.approx({f"{m}: grouped": s for m, s in others.items()})
    made, _ = training.steps_of(where / "measured/training_made_up.csv", where)
    for one, point in zip(made, by_model.points, strict=True):
        assert point.part == one.model and point.measured == one.measured
        told = one.changed(grouped=others[one.model]).point()
        assert point.modelled == pytest.approx(told.modelled)
        assert (point.modelled > point.measured) == (others[one.model] > shares[one.model])
    assert [name for name, _ in by_gpu.extra] == [
        f"{gpu}: grouped" for gpu in ("H100", "B200", "GB300")
    ]


def test_one_share_of_all_mixtures_is_recovered_and_leaves_no_error(tmp_path):
    where = mixtures_of(tmp_path, {"Qwen3-30B-A3B": 0.7, "gpt-oss-120b": 0.7})
    for group in leave_one_out(where):
        assert [share for _, share in group.extra] == pytest.approx([0.7] * len(group.extra))
        assert len(group.points) == 6 and max(errors(group)) < 1e-9


def test_a_model_alone_has_no_other_to_be_predicted_by(tmp_path):
    where = folder(
        tmp_path, {"measured/training_made_up.csv": TRAINED.replace("GPT OSS 120B", "?")}
    )
    by_model, by_gpu = leave_one_out(where)
    assert not by_model.points and by_model.unmodelled == (
        "Qwen3-30B-A3B: no row is of another model",
    )
    assert [point.part for point in by_gpu.points] == ["H100", "H100", "B200"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_missing_file_is_named(tmp_path, capsys, name):
    gone = EXPERIMENTS[name].files[-1]
    here = folder(tmp_path, {file: text for file, text in FILES.items() if file != gone})
    assert main(["validate", str(here), "--experiment", name]) == 2
    assert f"experiment {name} reads {gone}, which {here} lacks" in capsys.readouterr().err


def test_an_unknown_experiment_is_refused_with_those_that_there_are(made_up):
    with pytest.raises(RFabricError, match="no experiment 'deep'.*on-policy, deepep, experts"):
        experiment(made_up, "deep")


def test_an_experiment_is_one_document(made_up, capsys):
    assert main(["validate", str(made_up), "--experiment", "deepep", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["experiment"] == "deepep"
    assert told["groups"]["as predicted"]["modelled"] == 6
    assert main(["validate", str(made_up), "--experiment", "experts", "--rows"]) == 0
    assert "as predicted, by container" in capsys.readouterr().out


@measured
def test_what_docs_say_of_the_causes_is_what_the_measured_rows_do():
    """docs/trust.md, "What is asked and missed": limits are those of `goals`."""
    steps, pairs, trained = (by_name(SHARED, name) for name in EXPERIMENTS)
    on = {name: np.median(errors(group, "on policy")) for name, group in steps.items()}
    assert on["as predicted"] == pytest.approx(0.182, abs=5e-4)
    assert max(errors(pairs["NVLink of H800"], "H200")) < 0.20
    assert min(errors(pairs["NVLink of H800"], "H100")) > 0.20
    assert min(errors(pairs["H200 by what another source measured on H100"])) > 0.40
    assert trained["as predicted"].median_error == pytest.approx(0.0789, abs=5e-4)
    alike = trained["experts' matmuls as fast as others"]
    assert alike.median_error == pytest.approx(0.196, abs=5e-4)
    none, others = (trained[n] for n in ("no host is waited for", "hosts by rows of other GPUs"))
    nearer = [abs(b.error) < abs(a.error) for a, b in zip(none.points, others.points, strict=True)]
    assert len(nearer) == 7 and all(nearer)


@measured
def test_experts_of_each_model_ask_for_the_share_that_predicts_the_other():
    """docs/trust.md, "Experts' matmuls": nothing but the share is fitted, on the other model."""
    made, _ = training.steps_of(SHARED / EXPERIMENTS["experts"].files[0], SHARED)
    made = [one for one in made if one.mixed]
    models = {one.model for one in made}
    assert len(models) == 2
    for model in models:
        share = fit_grouped([one for one in made if one.model != model])
        assert share == pytest.approx(GROUPED, abs=0.05)
        told = [one.changed(grouped=share).point() for one in made if one.model == model]
        assert np.median([abs(point.error) for point in told]) < 0.12

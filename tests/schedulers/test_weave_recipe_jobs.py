"""Days of jobs that are recipes, on a fabric: `rfabric timeline --jobs FILE --topo FABRIC`."""

import json

import pytest

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.schedulers.weave.recipe_jobs import read_recipe_jobs, run_on_fabric

HEAD = "name,recipe,slo,arrival_s,iterations\n"
TWO = HEAD + "a,grpo-64-h20,2,60,20\nb,grpo-64-h20,2,0,10\n"
FEW = "generation.batch=32", "generation.max_response=2048"


def written(folder, text):
    (folder / "jobs.csv").write_text(text)
    return folder / "jobs.csv"


def test_jobs_are_recipes_at_their_longest(tmp_path):
    jobs, workloads = read_recipe_jobs(written(tmp_path, TWO), FEW)
    assert [job.name for job in jobs] == ["b", "a"]
    assert workloads["a"] is workloads["b"]
    assert set(workloads["a"].generation.lengths.tokens) == {2048}
    assert jobs[0].iterations == 10 and jobs[1].arrival == 60


def test_what_is_paid_is_the_price_of_the_recipes_gpus(tmp_path):
    text = HEAD + "a,grpo-64,2,0,20\n"
    jobs, workloads = read_recipe_jobs(written(tmp_path, text), FEW)
    bill = run_on_fabric(jobs, workloads, "ideal", "weave")
    hourly = 64 * workloads["a"].gpu.usd_per_hour
    assert bill.dollars == pytest.approx(hourly * jobs[0].seconds / 3600, rel=1e-6)


@pytest.mark.parametrize(("training", "nodes"), [(16, (4, 2)), (64, (4, 8))])
def test_either_half_of_a_fabric_has_room_for_all_of_its_pool(tmp_path, training, nodes):
    settings = (*FEW, f"cluster.training_gpus={training}")
    jobs, workloads = read_recipe_jobs(written(tmp_path, HEAD + "a,grpo-64,2,0,1\n"), settings)
    bill = run_on_fabric(jobs, workloads, "ideal", "weave")
    assert (bill.peak_roll, bill.peak_train) == nodes


def test_the_verb_says_what_days_cost_on_a_fabric(tmp_path, capsys):
    words = ["timeline", "-q", "--jobs", str(written(tmp_path, TWO)), "--json"]
    words += [f"--set={one}" for one in FEW]
    costs = []
    for fabric in ("ideal", "two-clusters,join=5Gbit/s"):
        assert main([*words, "--topo", fabric]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["fabric"] == fabric and said["slo_share"] == 1
        costs.append(said["usd"])
    assert costs[1] > costs[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,slo\na,2\n", "column 'recipe' is missing; the columns are recipe, name, slo"),
        (HEAD + "a,,2,0,1\n", "job a has no recipe; name one, such as grpo-64"),
        (HEAD + "a,grpo-63,2,0,1\n", "no recipe named 'grpo-63'"),
        (HEAD + "a,none.yaml,2,0,1\n", "none.yaml"),
        (HEAD + "a,grpo-64,x,0,1\n", "job a: slo 'x' is no number"),
        (HEAD + "a,grpo-64,0.5,0,1\n", "job a: slo 0.5 cannot be met even alone"),
        (HEAD + "a,grpo-64,2,0,1\na,grpo-64,2,0,1\n", "job a stands twice"),
        (HEAD, "holds no jobs"),
    ],
)
def test_bad_files(tmp_path, text, message):
    with pytest.raises(RFabricError, match=message):
        read_recipe_jobs(written(tmp_path, text), FEW)


@pytest.mark.parametrize(
    ("recipes", "settings", "message"),
    [
        (("grpo-64", "grpo-64-h20"), (), "need servers of one kind .* 8 H800 and 8 H20 with 400"),
        (("grpo-64",), ("cluster.gpu=H200",), "no price is known for H200"),
    ],
)
def test_servers_that_have_no_one_price(tmp_path, recipes, settings, message):
    text = HEAD + "".join(f"job{i},{recipe},2,0,1\n" for i, recipe in enumerate(recipes))
    jobs, workloads = read_recipe_jobs(written(tmp_path, text), (*FEW, *settings))
    with pytest.raises(RFabricError, match=message):
        run_on_fabric(jobs, workloads, "ideal", "weave")


@pytest.mark.parametrize("pipeline", ["one-step-off", "async"])
def test_pipelines_that_run_ahead_are_refused(tmp_path, pipeline):
    settings = (*FEW, f"pipeline={pipeline}")
    jobs, workloads = read_recipe_jobs(written(tmp_path, TWO), settings)
    with pytest.raises(RFabricError, match=f"has pipeline {pipeline}.*use pipeline=sync"):
        run_on_fabric(jobs, workloads, "ideal", "weave")


@pytest.mark.parametrize("arrival", ["1732374000", "1e10"])
def test_short_jobs_end_however_late_the_clock_is(tmp_path, arrival):
    text = HEAD + "".join(f"job{i},grpo-64-h20,2,{arrival},{i}\n" for i in (1e-9, 1, 2, 3))
    jobs, workloads = read_recipe_jobs(written(tmp_path, text), FEW)
    bill = run_on_fabric(jobs, workloads, "ideal", "solo")
    for stay in bill.stays:
        took = stay.end - stay.job.arrival
        assert took == pytest.approx(stay.job.iterations * stay.job.profile.solo, abs=1e-5)


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        (TWO, [], "recipes are read with a fabric: --topo FABRIC"),
        ("name,roll_s,train_s\na,1,1\n", ["--topo", "rfabric"], "are read without --topo"),
        ("name,roll_s,train_s\na,1,1\n", ["--set", "steps=2"], "--set changes a recipe"),
    ],
)
def test_the_other_kind_of_file_is_told_how_it_is_read(tmp_path, capsys, text, more, message):
    assert main(["timeline", "--jobs", str(written(tmp_path, text)), *more]) == 2
    assert message in capsys.readouterr().err

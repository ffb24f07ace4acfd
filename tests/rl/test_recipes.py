"""Models, lengths and recipes: what they hold is checked."""

import csv
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import recipe

from rfabric.compute.configs import model_of
from rfabric.compute.named import read_model
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.folders import data_dir
from rfabric.rl import Lengths, phases, read_recipe, recipe_names, trace_of
from rfabric.rl.sections import Cluster, Efficiency, Generation, Training, WeightSync

TRACES = Path(__file__).parents[3] / "shared" / "data" / "traces"


MODELS = {path.stem: path for path in (data_dir("traffic") / "models").glob("*.json")}


# --- models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen2.5-7B", 7.62),
        ("Qwen2.5-14B", 14.77),
        ("Qwen2.5-32B", 32.76),
        ("Qwen2.5-72B", 72.71),
        ("Qwen3-30B-A3B", 30.5),
        ("Qwen3-235B-A22B", 235),
    ],  # model cards
)
def test_parameters_are_the_published_ones(name, billions):
    assert read_model(MODELS[name]).parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_kv_and_flops_of_the_default_model():
    model = recipe().model
    assert model.kv_bytes_per_token == 2 * 48 * 8 * 128 * 2
    assert model.weight_bytes == 2 * model.parameters
    assert model.matmul_parameters == model.parameters - 152064 * 5120
    dense = model.forward_flops(1000, 0)
    assert dense == 2 * model.matmul_parameters * 1000
    # token i attends to i before it
    whole = sum(model.attention_flops_per_context_token * i for i in range(1000))
    assert model.forward_flops(1000, 1000**2) - dense == pytest.approx(whole, rel=0.01)


@pytest.mark.parametrize(
    "path", sorted((TRACES.parent / "models").glob("*.json")), ids=lambda p: p.stem
)
def test_configs_are_read_as_published(path):
    stated = {
        "Qwen--Qwen3-32B": 32.8,
        "Qwen--Qwen3-8B": 8.2,
        "Qwen--Qwen3-0.6B": 0.6,
        "meta-llama--Meta-Llama-3.1-8B": 8.03,
        "Qwen--Qwen3-30B-A3B": 30.5,
        "Qwen--Qwen3-235B-A22B": 235,
        "deepseek-ai--DeepSeek-V3": 671,
        "meta-llama--Meta-Llama-3.1-70B": 70.55,
        "mistralai--Mixtral-8x7B-v0.1": 46.7,
    }
    billions = read_model(path).parameters / 1e9
    assert billions == pytest.approx(stated[path.stem], rel=0.02)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is not modelled"),
        (
            {"hidden_size": None},
            ("model m: hidden_size and num_attention_heads must be whole numbers above 0"),
        ),
        ({"num_hidden_layers": -3}, "model m: num_hidden_layers -3 must be a whole number above 0"),
        ({"num_key_value_heads": 7}, "model m: 7 KV heads do not divide 40 heads"),
    ],
)
def test_a_bad_config_is_refused(change, message):
    config = yaml.safe_load(MODELS["Qwen2.5-14B"].read_text())
    with pytest.raises(RFabricError, match=message):
        model_of(config | change, "m")


def test_a_config_without_layers_is_refused():
    config = yaml.safe_load(MODELS["Qwen2.5-14B"].read_text())
    del config["num_hidden_layers"]
    with pytest.raises(
        RFabricError, match="its config lacks num_hidden_layers; give the published config.json"
    ):
        model_of(config, "m")


# --- lengths --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"), [("deepseek-r1", "output"), ("deepseek-r1-prompts", "input")]
)
def test_restated_quantiles_are_those_of_the_source(ours, theirs):
    source = TRACES / f"servegen_deepseek_r1_{theirs}_tokens.csv"
    if not source.exists():
        pytest.skip(f"the source table is not here: {source}")
    table = Lengths.read(data_dir("traffic") / "lengths" / f"{ours}.csv")
    with open(source) as file:
        rows = list(csv.DictReader(file))
    cdf = np.array([float(row["cdf"]) for row in rows])
    tokens = np.array([float(row[f"{theirs}_tokens"]) for row in rows])
    grid = np.linspace(0.005, 0.9995, 400)
    exact = tokens[np.searchsorted(cdf, grid)]
    assert np.median(np.abs(table.at(grid) / exact - 1)) < 0.01
    assert (
        np.abs(table.at(grid) / exact - 1).max() < 0.4
    )  # the worst stands in the prompts' first percents: 5 or 7 tokens
    direct = Lengths.read(source)
    even = (np.arange(20000) + 0.5) / 20000
    assert table.at(even).mean() == pytest.approx(direct.at(even).mean(), rel=0.02)


def test_the_default_lengths_have_the_stated_quantiles():
    lengths = recipe().generation.lengths
    assert lengths.at([0.5, 0.99, 1.0]).tolist() == [502, 16016, 32768]


def test_bring_your_own_lengths(tmp_path):
    forms = {
        "samples": "tokens\n5\n7\n7\n9\n",
        "counts": "# mine\noutput_tokens,expected_requests\n7,2\n5,1\n9,1\n",
        "cdf": "output_tokens,expected_requests,cdf\n5,1,.25\n7,2,.75\n9,1,1\n",
        "only-cdf": "tokens,cdf\n5,.25\n7,.75\n9,1\n",
    }
    for name, text in forms.items():
        path = tmp_path / f"{name}.csv"
        path.write_text(text)
        drawn = Lengths.read(path).sample(np.random.default_rng(1), 4000, 8)
        assert set(drawn.tolist()) == {5, 7, 8}, name  # 9 is cut
        assert [np.mean(drawn == t) for t in (5, 7, 8)] == pytest.approx(
            [0.25, 0.5, 0.25], abs=0.05
        ), name
    (tmp_path / "job.yaml").write_text((data_dir("traffic") / "grpo-64.yaml").read_text())
    workload = read_recipe(tmp_path / "job.yaml", ["generation.lengths=samples.csv"])
    assert set(np.concatenate(phases.step_of(workload, 1, 0).generated.outputs)) == {5, 7, 9}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tokens\n", "holds no rows"),
        ("length\n4\n", r"unknown columns \['length'\]; there are tokens, output_tokens"),
        ("tokens\nmany\n", "column tokens must hold numbers"),
        ("tokens\n0\n", "tokens must ascend and be 1 or more"),
        (
            "quantile,tokens\n0,1\n0.9,4\n",
            ("quantiles must ascend from 0 to 1; add the missing rows"),
        ),
        ("quantile,tokens\n0,9\n1,4\n", "tokens must ascend"),
        ("tokens,expected_requests\n4,-1\n", "counts must be finite, not negative and not all 0"),
        ("tokens,cdf\n8,.5\n4,1\n", "tokens fall beside a cdf; sort the rows by tokens"),
        ("tokens,cdf\n4,.5\n8,.9\n", r"cdf ends at 0.9; the last row is 1 \(or 100\)"),
        ("tokens\nnan\n", "tokens must ascend and be 1 or more"),
    ],
)
def test_bad_lengths_are_refused(tmp_path, text, message):
    (tmp_path / "l.csv").write_text(text)
    with pytest.raises(RFabricError, match=message):
        Lengths.read(tmp_path / "l.csv")


# --- recipes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_makes_a_trace_that_fits_a_fabric(name):
    workload = read_recipe(name)
    trace_of(workload, 1).fit(parse_fabric("fat-tree", workload.gpus))


def test_the_default_recipe_is_the_one_described():
    w = recipe()
    assert (w.gpus, w.cluster.training_gpus, len(w.replicas), w.dp, w.gpu.name) == (
        64,
        32,
        16,
        8,
        "H800",
    )
    assert w.replicas[0] == [32, 33] and w.replicas[-1] == [62, 63]  # h33, h34 ... h63, h64
    assert w.nic_bps == 400e9 and w.gpus_per_server == 8


def test_ranks_follow_megatron():
    w = recipe("training.tp=2", "training.cp=2", "training.pp=2", "training.recompute=full")
    assert w.dp == 4
    assert [w.rank(0, 0, 0, 1), w.rank(0, 0, 1, 0), w.rank(0, 1), w.rank(1, 0)] == [1, 2, 4, 16]
    groups = [g for stage in range(2) for g in w.data_groups(stage)]
    assert sorted(sum(groups, [])) == list(range(32))  # every rank in one group
    assert w.data_groups(1)[1] == [17, 19, 21, 23, 25, 27, 29, 31]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["training.tpp=2"],
            (
                r"recipe grpo-64: unknown key training.tpp; did you mean "
                r"training.tp\?"
            ),
        ),
        (["trainng.tp=2"], r"unknown key trainng; did you mean training\?"),
        (["training.tp=-4"], "training.tp: -4 must be 1 or more"),
        (["training.tp=0"], "training.tp: 0 must be 1 or more"),
        (
            ["training.tp=2GB"],
            ("training.tp: '2GB' is not a whole number; write one such as 8, without a unit"),
        ),
        (["training.tp=true"], "training.tp: True is not a whole number"),
        (["training.tp=2.5"], "training.tp: 2.5 is not a whole number"),
        (["training.tp="], "training.tp: None is not a whole number"),
        (
            ["training.tp=3"],
            ("training.tp: 3 does not divide the 40 heads of Qwen2.5-14B; use one of 1, 2, 4, 8"),
        ),
        (
            ["training.tp=5"],
            (
                "training.tp: 5 does not divide the 13824 columns of Qwen2.5-14B's MLP; use one of "
                "1, 2, 4, 8"
            ),
        ),
        (
            ["model=Qwen2.5-7B", "training.tp=7"],
            ("tp: 7 does not divide the 18944 columns .*; use one of 1, 2, 4$"),
        ),
        (
            ["cluster.gpus_per_server=6", "cluster.training_gpus=24", "training.tp=4"],
            "neither divides nor is a multiple of",
        ),
        (
            ["cluster.nic=400Gbyte"],
            ("cluster.nic: unknown unit 'Gbyte' in '400Gbyte'; write for example 400Gbit/s"),
        ),
        (["cluster.nic=0"], "cluster.nic: 0 must be above 0"),
        (
            ["cluster.gpu=H900"],
            (
                "cluster.gpu: 'H900' is not known, did you mean H800.; use one of A100, .*H100, "
                ".*H800, H20"
            ),
        ),
        (
            ["cluster.training_gpus=30"],
            "cluster.training_gpus: 30 is not a multiple of tp 4 .* = 4; use 28 or 32",
        ),
        (
            ["cluster.generation_gpus=33"],
            "cluster.generation_gpus: 33 is not a multiple of generation.tp 2; use 32 or 34",
        ),
        (
            ["placement=colocated", "cluster.training_gpus=4", "cluster.generation_gpus=4"]
            + ["generation.tp=8"],
            "4 is not a multiple of generation.tp 8; use 8, and as many training_gpus",
        ),
        (
            ["cluster.training_gpus=24", "training.pp=4"],
            "24 is not a multiple of tp 4 x cp 1 x pp 4 = 16; use 16 or 32",
        ),
        (
            ["training.pp=8", "training.tp=1"],
            ("training: Qwen2.5-14B needs .* GB a GPU .*activations.*a H800 has 86 GB"),
        ),
        (["training.tp=2"], "training: Qwen2.5-14B needs 136.2 GB a GPU .*; use training.tp=4$"),
        (
            ["training.tp=4", "training.cp=4", "training.context_exchange=ulysses"],
            ("training.cp: ulysses deals the 10 heads of a tensor rank of Qwen2.5-14B to cp 4"),
        ),
        (
            ["training.pp=64", "training.tp=1", "cluster.training_gpus=64"],
            (
                "training.pp: 64 stages x vp 1 leave some without any of the 48 layers.*use 48 at "
                "most for both together"
            ),
        ),
        (
            ["training.mini_batches=3"],
            ("training.mini_batches: 3 does not divide the 1024 responses"),
        ),
        (
            ["training.optimizer=zero3"],
            ("training.optimizer: 'zero3' is not known, did you mean sharded.; use one of"),
        ),
        (
            ["training.micro_batch_tokens=8192"],
            "8192 x cp 1 cannot hold a sequence of 18432 tokens.*use 18432 at least",
        ),
        (["generation.max_response=131072"], "exceeds the context of Qwen2.5-14B, 131072 tokens"),
        (
            ["generation.memory_utilisation=90"],
            ("generation.memory_utilisation: 90 must lie above 0 and be 1 at most"),
        ),
        (
            ["generation.memory_utilisation=0.22"],
            ("generation.tp: 2 H800 hold Qwen2.5-14B and .*; use generation.tp=4$"),
        ),
        (
            ["generation.batch=8", "generation.group_size=1", "training.mini_batches=1"],
            "generation.batch: 8 prompts x group_size 1 leave some of the 16 replicas idle",
        ),
        (
            ["generation.lengths=mine.csv"],
            "lengths: no file 'mine.csv' beside the recipe; traffic/lengths/ has deepseek-r1",
        ),
        (
            ["model=Qwen9"],
            ("model: no file 'Qwen9' beside the recipe; traffic/models/ has Qwen.* and .* more"),
        ),
        (
            ["weight_sync.strategy=magic"],
            ("weight_sync.strategy: 'magic' is not known; use one of flat, tree, scatter"),
        ),
        (["training=4"], "training: 4 is not a mapping; its keys are tp, pp, cp"),
        (["steps=0"], "steps: 0 must be 1 or more"),
        (
            ["generation.batch=100000000"],
            "are 800,000,000 responses a step; 10,000,000 at most are drawn, use a smaller",
        ),
        (["training.buckets=4000"], "training.buckets: 4000 must be 1 or more and 1,000 at most"),
        (
            ["training"],
            ("'training' is not a setting; write SECTION.KEY=VALUE, such as training.tp=2"),
        ),
        (["a.b.c=4"], "'a.b.c=4' is not a setting"),
        (["model.x=4"], "model is 'Qwen2.5-14B', no section; write model=VALUE"),
        (["training.tp=[1"], r"'training.tp=\[1' has no value"),
    ],
)
def test_a_bad_setting_is_an_error_that_names_the_way_out(overrides, message):
    with pytest.raises(RFabricError, match=message):
        read_recipe("grpo-64", overrides)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "model: Qwen2.5-14B\nmodel: Qwen2.5-7B\n",
            ("key model stands twice, again in line 2; keep one"),
        ),
        ("cluster: {gpu: H800, gpu: H20}\n", "key gpu stands twice"),
        ("a: &a [x, x]\nmodel: [*a, *a]\n", "line 2: aliases are not read"),
        ("a: [1\n", "recipe .*job.yaml: while parsing"),
        ("- 1\n", "holds no mapping; copy one of the files in traffic/"),
        ("!!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
        ("model: Qwen2.5-14B\n", "recipe job: cluster is missing; the recipe must say it"),
        ("\x00", "recipe .*job.yaml"),
    ],
)
def test_a_bad_file_is_refused(tmp_path, text, message):
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(RFabricError, match=message):
        read_recipe(tmp_path / "job.yaml")


def test_an_unknown_name_lists_the_recipes_there_are(tmp_path):
    with pytest.raises(
        RFabricError, match="no recipe named 'nope'; there are .*grpo-64.*, or give a FILE.yaml"
    ):
        read_recipe("nope")
    with pytest.raises(RFabricError, match="cannot be read"):
        read_recipe(tmp_path / "none.yaml")


def test_a_missing_key_is_named(tmp_path):
    values = yaml.safe_load((data_dir("traffic") / "grpo-64.yaml").read_text())
    del values["training"]["tp"]
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(
        RFabricError, match="recipe job: training.tp is missing; the recipe must say it"
    ):
        read_recipe(tmp_path / "job.yaml")


KEYS = ["model", "steps", "cluster", *(
    section.section + key.name
    for section in (Cluster, Generation, Training, WeightSync, Efficiency)
    for key in dataclasses.fields(section)
)]  # fmt: skip


VALUES = st.one_of(
    st.integers(-4, 40).map(str),
    st.sampled_from(
        [
            ".inf",
            "-.nan",
            "1e400",
            "null",
            "{}",
            "[]",
            "2024-01-01",
            "!!set {a}",
            "*x",
            "''",
            "0x10",
            "1GB",
        ]
    ),
    st.text(max_size=6),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.builds("{}={}".format, st.sampled_from(KEYS), VALUES), min_size=1, max_size=2))
def test_any_setting_makes_a_workload_or_a_clear_error(overrides):
    try:
        workload = read_recipe("grpo-64", overrides)
    except RFabricError as error:
        assert len(str(error)) > 20
    else:
        assert trace_of(workload, 1).windows


def test_a_workload_is_checked_from_python_too():
    with pytest.raises(RFabricError, match="training.tp: -1 must be 1 or more"):
        dataclasses.replace(recipe().training, tp=-1)
    with pytest.raises(RFabricError, match="cluster.training_gpus: 6 is not a multiple of tp 4"):
        dataclasses.replace(
            recipe(), cluster=dataclasses.replace(recipe().cluster, training_gpus=6)
        )

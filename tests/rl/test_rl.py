"""The RL phase model: recipes are checked, bytes follow closed forms, times follow rooflines, seeds
give traces.
"""

import csv
import dataclasses
import functools
import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute import GPUS
from rfabric.compute.configs import model_of
from rfabric.compute.named import read_model
from rfabric.compute.roofline import DecodeStep
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.folders import data_dir
from rfabric.rl import (
    STRATEGIES,
    Lengths,
    explain,
    flows,
    phases,
    plan_of,
    read_recipe,
    recipe_names,
    trace_of,
)
from rfabric.rl.phases import step_of
from rfabric.rl.timing import decode_step
from rfabric.trace import PHASES, PhaseKey

TRACES = Path(__file__).parents[3] / "shared" / "data" / "traces"
MODELS = {path.stem: path for path in (data_dir("traffic") / "models").glob("*.json")}

recipe = functools.cache(lambda *overrides: read_recipe("grpo-64", overrides))


def sent(trace, phase: str, label: str) -> np.ndarray:
    """Bytes of the rows of one communication phase, in the order they stand."""
    return trace.total[trace.communication().get((0, phase, label), np.zeros(0, int))]


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
        ({"num_hidden_layers": -3}, "model m: layers -3 must be a whole number above 0"),
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
        RFabricError, match=("its config lacks num_hidden_layers; give the published config.json")
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
            ["cluster.training_gpus=28"],
            ("cluster.training_gpus: 28 is not a multiple of 8 GPUs a server.*use 24 or 32"),
        ),
        (
            ["cluster.generation_gpus=33"],
            "cluster.generation_gpus: 33 is not a multiple of generation.tp 2; use 32 or 34",
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
            ["training.tp=8", "training.cp=2"],
            ("training.cp: tp 8 x cp 2 = 16 GPUs do not divide a server of 8"),
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
            ("training.optimizer: 'zero3' is not known; use one of distributed, replicated"),
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
        RFabricError, match=("no recipe named 'nope'; there are .*grpo-64.*, or give a FILE.yaml")
    ):
        read_recipe("nope")
    with pytest.raises(RFabricError, match="cannot be read"):
        read_recipe(tmp_path / "none.yaml")


def test_a_missing_key_is_named(tmp_path):
    values = yaml.safe_load((data_dir("traffic") / "grpo-64.yaml").read_text())
    del values["training"]["tp"]
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(
        RFabricError, match=("recipe job: training.tp is missing; the recipe must say it")
    ):
        read_recipe(tmp_path / "job.yaml")


KEYS = ["model", "steps", "cluster", *(
    f"{section}.{key}"
    for section, keys in yaml.safe_load((data_dir("traffic") / "grpo-64.yaml").read_text()).items()
    if isinstance(keys, dict)
    for key in keys
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


# --- rooflines ------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.builds(DecodeStep, *[st.floats(0, 1e-3) for _ in range(6)]),
    st.integers(1, 300),
    st.integers(0, 10**5),
    st.integers(0, 60),
)
def test_steps_in_a_row_are_the_sum_of_single_steps(step, n, context, steps):
    weights, kv = step.weights_s, step.kv_s_per_token
    matmul, attention = step.matmul_s_per_response, step.attention_s_per_token
    single = sum(
        max(weights + kv * c, matmul * n + attention * c)
        + (step.overhead_s + step.overhead_s_per_token * n)
        for c in range(context, context + n * steps, n)
    )
    assert step.seconds(n, context, steps) == pytest.approx(single, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("n", [1, 64, 512])
def test_decode_gets_slower_with_context_and_batch_and_faster_with_tp(n):
    step = decode_step(recipe())
    assert step.seconds(n, 1000 * n) < step.seconds(n, 2000 * n)
    assert (
        step.seconds(n, 1000 * n)
        < step.seconds(2 * n, 2000 * n)
        < 2 * step.seconds(n, 1000 * n) + step.overhead_s
    )
    times = [decode_step(recipe(f"generation.tp={tp}")).seconds(n, 1000 * n) for tp in (1, 2, 4, 8)]
    assert times == sorted(times, reverse=True)


def test_decode_of_one_response_reads_the_weights_once():
    w = recipe("generation.tp=1")
    step = decode_step(w)
    bare = (
        step.seconds(1, 0) - step.overhead_s - step.overhead_s_per_token - step.host_s_per_response
    )
    expected = 2 * w.model.matmul_parameters / (3.35e12 * 0.8)
    assert bare == pytest.approx(expected)


def test_training_takes_its_flops_over_its_peak():
    w = recipe("training.mini_batches=1", "training.log_prob_passes=0", "efficiency.training=0.4")
    step = phases.step_of(w, 1, 0)
    lengths = np.concatenate(
        [p + o for p, o in zip(step.generated.prompts, step.generated.outputs, strict=True)]
    )
    flops = 6 * w.model.matmul_parameters * lengths.sum()
    flops += 3 * w.model.attention_flops_per_context_token * (lengths.astype(float) ** 2).sum() / 2
    ideal = flops / (32 * 989e12 * 0.4)
    # data-parallel ranks are not quite even
    assert ideal <= step.trained.seconds(w.training.buckets) <= 1.05 * ideal


@pytest.mark.parametrize(
    ("slower", "faster"),
    [
        ("training.recompute=full", "training.recompute=selective"),
        ("efficiency.training=0.3", "efficiency.training=0.5"),
        ("training.log_prob_passes=2", "training.log_prob_passes=1"),
        ("cluster.training_gpus=32", "cluster.training_gpus=64"),
        ("training.pp=4", "training.pp=1"),
    ],
)
def test_training_gets_slower(slower, faster):
    seconds = [plan_of(read_recipe("grpo-64", [s]), 1).phases[1].seconds for s in (slower, faster)]
    assert seconds[0] > seconds[1]


@settings(deadline=None)
@given(st.lists(st.integers(1, 20000), min_size=8, max_size=60), st.integers(1, 8))
def test_balance_deals_every_sequence_once_and_evenly(lengths, ranks):
    lengths = np.array(lengths, dtype=float)
    dealt = phases.balance(lengths, ranks)
    assert sorted(np.concatenate(dealt).tolist()) == list(range(len(lengths)))
    loads = [lengths[part].sum() for part in dealt]
    assert max(loads) - min(loads) <= lengths.max()


# --- bytes ----------------------------------------------------------------------------------------


def test_gradients_and_parameters_are_the_rings_closed_form():
    w, trace = recipe(), trace_of(recipe(), 1)
    shard, edges = w.model.parameters / 4, 4 * 2 * 4  # 4 tensor ranks x 2 channels x 4 servers
    each = 7 / 8 * shard / 2  # (n-1)/n of the shard, over two channels
    gradients = sent(trace, "training", "reduce-scatter")
    assert len(gradients) == 4 * 3 * edges
    assert gradients == pytest.approx(4 * each / 3, rel=1e-6)
    parameters = sent(trace, "training", "all-gather")
    assert len(parameters) == 4 * edges
    assert parameters == pytest.approx(2 * each, rel=1e-6)


def test_a_replicated_optimizer_all_reduces():
    w = recipe("training.optimizer=replicated", "training.grad_dtype=bf16", "training.tp=8")
    trace = trace_of(w, 1)
    assert not len(sent(trace, "training", "all-gather"))
    total = sent(trace, "training", "all-reduce").sum()
    assert total == pytest.approx(
        4 * 4 * 2 * 3 / 4 * w.model.parameters * 2, rel=1e-6
    )  # updates, edges, 2(n-1)/n, bytes


@pytest.mark.parametrize("strategy", ["flat", "tree", "scatter"])
@pytest.mark.parametrize("tp", [1, 2, 8])
def test_weight_sync_bytes(strategy, tp):
    w = recipe(f"weight_sync.strategy={strategy}", f"generation.tp={tp}")
    trace, copy, replicas = trace_of(w, 1), w.model.parameters * 2, 32 // tp
    first, second = (
        int(sent(trace, "weight_sync", label).sum()) for label in ("weights", "fan-out")
    )
    expected = {
        "flat": (replicas * copy, 0),
        "tree": (replicas // 2 * copy, replicas // 2 * copy),
        "scatter": (copy, 4 * 31 / 32 * copy),
    }[strategy]
    assert (first, second) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("strategy", ["flat", "tree", "scatter"])
def test_every_generation_gpu_gets_its_shard(strategy):
    w = recipe(f"weight_sync.strategy={strategy}")
    trace = trace_of(w, 1)
    rows = trace.rows(PhaseKey(0, "weight_sync"))
    received = np.bincount(trace.dst[rows], trace.size[rows], minlength=64)
    least = w.model.weight_bytes / 2 if strategy != "scatter" else w.model.weight_bytes / 32
    assert (received[32:] >= least).all() and not received[:32].any()


def test_flat_sources_are_spread_evenly():
    for overrides in (
        (),
        ("generation.tp=4",),
        ("cluster.generation_gpus=24",),
        ("cluster.generation_gpus=80",),
    ):
        w = recipe(*overrides)
        (level,) = STRATEGIES["flat"](w)
        counts = np.bincount(level.flows.src, minlength=32)
        assert counts.max() - counts.min() <= 1 and counts.sum() == w.cluster.generation_gpus


def test_the_tree_passes_on_only_what_has_arrived():
    w = recipe("weight_sync.strategy=tree", "cluster.gpus_per_pod=8")
    assert [len(pod) for pod in w.pods] == [4, 4, 4, 4]
    trace = trace_of(w, 1)
    for row in trace.communication()[(0, "weight_sync", "fan-out")]:
        (before,) = trace.waits_for(row)
        assert trace.dst[before] == trace.src[row] and trace.size[before] == trace.size[row]


def test_experience_is_tokens_and_log_probabilities():
    w = recipe()
    made = phases.step_of(w, 1, 0).generated
    rows = sent(trace_of(w, 1), "generation", "experience")
    assert rows.tolist() == [12 * int(o.sum()) for o in made.outputs]


def test_pipeline_stages_send_activations_between_servers():
    assert not len(sent(trace_of(recipe(), 1), "training", "pipeline"))
    w = recipe("training.pp=2")
    trace, step = trace_of(w, 1), phases.step_of(w, 1, 0)
    tokens = sum(
        p.sum() + o.sum()
        for p, o in zip(step.generated.prompts, step.generated.outputs, strict=True)
    )
    # passes forward, one update forward and backward
    expected = tokens * 5120 * 2 * (w.training.log_prob_passes + 2)
    assert sent(trace, "training", "pipeline").sum() == pytest.approx(expected, rel=1e-6)
    rows = trace.communication()[(0, "training", "pipeline")]
    assert set(np.abs(trace.src[rows] - trace.dst[rows]).tolist()) == {16}  # a stage is 16 ranks


WIDE = ("model=Qwen2.5-72B", "generation.tp=16", "training.tp=16", "training.recompute=full")


def test_tensor_parallelism_wider_than_a_server_sends():
    assert not len(sent(trace_of(recipe(), 1), "generation", "tensor"))
    w = recipe(*WIDE)
    trace, step = trace_of(w, 1), phases.step_of(w, 1, 0)
    per_token = 2 * 80 * 8192 * 2  # two all-reduces a layer of hidden bf16 values
    edges = 2 * 2 * 15 / 16  # two servers, 2(n-1)/n each
    made = sum(step.generated.computed_tokens(r, 8) for r in range(2))
    assert sent(trace, "generation", "tensor").sum() == pytest.approx(
        made * per_token * edges, rel=1e-6
    )
    # log-prob passes; forward, backward and forward again
    trained = step.trained.log_prob_tokens.sum() * (2 + 3)
    assert sent(trace, "training", "tensor").sum() == pytest.approx(
        trained * per_token * edges, rel=1e-6
    )


def test_neighbouring_rings_run_opposite_ways():
    w = recipe("training.tp=8")  # one GPU of each group a server: one channel a group
    edges = set(zip(*flows.gradients(w)[:2], strict=True))
    assert (0, 8) in edges and (9, 1) in edges and (8, 0) not in edges


# --- the trace ------------------------------------------------------------------------------------

JOBS = st.fixed_dictionaries(
    {
        "training.tp": st.sampled_from([2, 4, 8]),
        "training.pp": st.sampled_from([1, 2]),
        "training.buckets": st.integers(1, 4),
        "training.mini_batches": st.sampled_from([1, 2, 4]),
        "training.optimizer": st.sampled_from(["distributed", "replicated"]),
        "generation.tp": st.sampled_from([1, 2, 4, 8]),
        "generation.group_size": st.integers(2, 6),
        "weight_sync.strategy": st.sampled_from(sorted(STRATEGIES)),
        "steps": st.integers(1, 2),
    }
)


@settings(deadline=None, max_examples=25)
@given(JOBS, st.integers(0, 2**32))
def test_every_job_keeps_the_rules(job, seed):
    if job["training.optimizer"] == "replicated":
        job = job | {"training.tp": 8}  # whole Adam states do not fit a GPU below
    job = job | {"training.recompute": "full", "generation.batch": 64}
    w = read_recipe("grpo-64", [f"{k}={v}" for k, v in job.items()])
    trace, plan = trace_of(w, seed), plan_of(w, seed)
    sending = trace.size > 0
    # NVLink traffic never enters the fabric
    assert (trace.src[sending] // 8 != trace.dst[sending] // 8).all()
    assert trace.compute_only()[1].max() == pytest.approx(plan.seconds, rel=1e-9)
    assert [(k.step, k.phase) for k in trace.phase_keys] == [
        (s, p) for s in range(w.steps) for p in PHASES
    ]
    assert trace.windows == plan.windows and all(v > 0 for v in trace.windows.values())
    assert len(trace.after) < 4 * len(trace)
    last = len(trace) - 1  # everything is done before the last row
    seen, todo = {last}, [last]
    while todo:
        for row in trace.waits_for(todo.pop()).tolist():
            if row not in seen:
                seen.add(row)
                todo.append(row)
    assert len(seen) == len(trace)


def test_the_same_seed_gives_the_same_trace_and_another_seed_another():
    w = recipe("steps=2")
    first, again, other = trace_of(w, 7), trace_of(w, 7), trace_of(w, 8)
    for column in ("src", "dst", "size", "gap", "after", "after_offsets", "step", "phase", "label"):
        assert (getattr(first, column) == getattr(again, column)).all()
    assert first.provenance == again.provenance
    assert (first.gap[: len(other)] != other.gap[: len(first)]).any()
    one = trace_of(recipe(), 7)
    assert (first.gap[: len(one)] == one.gap).all()  # a step does not depend on how many follow


def test_the_default_step_is_small_enough_to_emulate():
    trace = trace_of(recipe(), 1)
    assert 300 < np.count_nonzero(trace.size) < 1500
    assert trace.hosts == tuple(f"h{i}" for i in range(1, 65))
    training = trace.rows(PhaseKey(0, "training"))
    assert trace.src[training].max() < 32
    assert {k[2] for k in trace.communication()} == {
        "experience",
        "reduce-scatter",
        "all-gather",
        "weights",
    }


def test_buckets_follow_their_computing_and_each_other():
    trace = trace_of(recipe(), 1)
    label = np.array(trace.labels)[trace.label]
    finish = trace.compute_only()[1]
    rows = trace.communication()[(0, "training", "reduce-scatter")]
    starts = sorted(set(finish[rows].tolist()))
    backward = np.flatnonzero(label == "backward")
    # on a free network a bucket leaves when its piece is done
    assert starts == sorted(set(finish[backward].tolist()))
    assert len(starts) == len(backward) == 4 * 3
    second = rows[32]
    # its piece, and the bucket before
    assert {label[r] for r in trace.waits_for(second)} == {"backward", "barrier"}


def test_windows_hold_communication_that_compute_cannot_hide():
    plan = plan_of(recipe(), 1)
    generation, training, sync = plan.phases
    assert sync.seconds == sum(phases.handover(recipe()).values())
    assert sync.comm == pytest.approx(recipe().model.weight_bytes / 2 * 8 / 400e9)
    # seconds a byte of every parameter on two channels
    ring = 7 / 8 * recipe().model.parameters / 4 / 2 * 8 / 400e9
    assert training.comm == pytest.approx(
        4 * (4 * ring / 3 + 2 * ring), rel=1e-6
    )  # the last bucket, and the all-gather
    assert training.start == generation.seconds and generation.gpus == tuple(range(32, 64))
    slow = plan_of(recipe("cluster.nic=4Gbit/s"), 1).phases[1]
    assert slow.comm > 100 * training.comm  # now earlier buckets are exposed too


def test_provenance_says_what_made_the_trace():
    w = recipe("training.buckets=2")
    source = trace_of(w, 3).provenance
    assert (
        source["recipe"] == "grpo-64"
        and source["seed"] == 3
        and source["settings"]["training"]["buckets"] == 2
    )
    assert source["lengths"]["responses"]["name"] == "deepseek-r1"
    assert "ServeGen" in source["lengths"]["prompts"]["source"]
    assert any("merged" in line or "one flow" in line for line in source["merged"])
    assert source["made_by"].startswith("rfabric ")


def test_explain_adds_up_to_the_plan_and_the_trace():
    for overrides in ((), ("training.pp=2",), WIDE, ("weight_sync.strategy=scatter",)):
        w = recipe(*overrides)
        items, trace, plan = explain(w, 1), trace_of(w, 1), plan_of(w, 1)
        computing = {
            "prefill",
            "decode",
            "environment",
            "log-prob",
            "forward-backward",
            "optimizer",
            *phases.handover(w),
        }
        for phase in plan.phases:
            mine = [i for i in items if i.phase == phase.kind]
            assert sum(i.seconds for i in mine if i.item in computing) == pytest.approx(
                phase.seconds
            )
            labels = {key[2] for key in trace.communication() if key[1] == phase.kind}
            for label in labels:
                (item,) = [i for i in mine if i.item == label]
                rows = trace.communication()[(0, phase.kind, label)]
                assert item.count == len(rows) and math.isclose(
                    item.bytes, trace.total[rows].sum(), rel_tol=1e-6
                )
        assert all(i.why for i in items)


def test_every_gpu_names_its_source():
    assert all(
        gpu.source and gpu.bf16_flops > 1e14 and gpu.hbm_bytes > 1e10 for gpu in GPUS.values()
    )


def test_a_workload_knows_the_files_it_was_read_from():
    names = [path.name for path in read_recipe("grpo-64").files]
    assert names == [
        "grpo-64.yaml",
        "Qwen2.5-14B.json",
        "deepseek-r1.csv",
        "deepseek-r1-prompts.csv",
    ]


def test_two_clusters_generate_and_train_on_their_own_gpus():
    mixed, uniform = read_recipe("grpo-64-h20"), read_recipe("grpo-64-h20", ["generation.gpu=H800"])
    assert (mixed.gpu.name, mixed.generation_gpu.name) == ("H800", "H20")
    assert mixed.kv_capacity_tokens > uniform.kv_capacity_tokens  # 96 GB against 80
    a, b = (step_of(w, 0, 0) for w in (mixed, uniform))
    assert a.trained.seconds(mixed.training.buckets) == b.trained.seconds(uniform.training.buckets)
    assert a.generated.seconds != b.generated.seconds
    assert mixed.usd_per_hour == pytest.approx(32 * 5.28 + 32 * 1.85)


def test_colocated_gpus_are_of_one_kind():
    with pytest.raises(
        RFabricError, match=("generation.gpu: H20 cannot be where placement is colocated")
    ):
        read_recipe("grpo-64-h20", ["placement=colocated"])

"""The training model: closed forms, what makes it slower, errors, the published tables."""

import csv
import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute import GPUS, training
from rfabric.compute.named import find_model
from rfabric.compute.training import (
    FSDP,
    RL,
    Layout,
    PassSeconds,
    Trainer,
    backward,
    forward,
    matmul_seconds,
    training_step,
)
from rfabric.errors import RFabricError
from rfabric.rl import read_recipe, timing
from rfabric.study.validate import nemo_rl, verl, vidur_mlp
from rfabric.study.validate.training import check

DATA = Path(__file__).parents[3] / "shared" / "data"
model = functools.cache(find_model)


def data(pattern: str) -> Path:
    """The first file of the measured tables that a pattern names."""
    files = sorted(DATA.glob(pattern))
    if not files:
        pytest.skip(f"the measured tables are not here: {pattern}")
    return files[0]


def trainer(name="Llama-3.1-8B", gpu="H100", **changes) -> Trainer:
    layout = {f.name: changes.pop(f.name) for f in dataclasses.fields(Layout) if f.name in changes}
    return Trainer(model(name), GPUS[gpu], Layout(**layout), **changes)


# --- one pass -------------------------------------------------------------------------------------


def test_large_matmuls_reach_the_tuned_rate_and_small_ones_the_memory():
    gpu = GPUS["H100"]
    rate = 794.5e12 * training.SINGLE
    assert matmul_seconds(gpu, 8192, 8192, 65536) == pytest.approx(
        2 * 8192 * 8192 * 65536 / rate, rel=0.01
    )
    weights = 2 * 8192 * 28672 / (3.35e12 * training.HBM_SHARE)
    assert matmul_seconds(gpu, 1, 8192, 28672) == pytest.approx(
        weights + training.KERNEL_S, rel=0.01
    )


def test_a_pass_takes_its_matmuls_at_the_sustained_rate_and_its_attention_at_the_kernels():
    t, tokens = trainer(), 2**20
    parts = forward(t, tokens, tokens * 8192)
    flops = 2 * t.model.matmul_parameters * tokens
    assert parts.matmul == pytest.approx(flops / (794.5e12 * training.SUSTAINED), rel=0.001)
    assert parts.attention == pytest.approx(4 * 32 * 4096 * tokens * 8192 / 2 / (0.6 * 989e12))
    assert parts.tensor == parts.context == parts.experts == 0


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(["Llama-3.1-8B", "Qwen3-30B-A3B", "DeepSeek-V3"]),
    st.sampled_from([(1, 1), (2, 1), (4, 2), (8, 8)]),
    st.integers(1, 20),
    st.integers(10, 17),
)
def test_a_pass_grows_with_its_tokens_and_micro_batches(name, split, micro, power):
    tp, pp = split
    t = trainer(name, tp=tp, pp=pp, host_layer=0.0)
    one, two = (forward(t, n * 2**power, n * 2**power * 4096, micro) for n in (1, 2))
    assert one.seconds < two.seconds < 2 * one.seconds * (1 + 1e-9)
    assert forward(t, 2**power, 2**power * 4096, 2 * micro).seconds > one.seconds
    assert all(getattr(one, f.name) >= 0 for f in dataclasses.fields(PassSeconds))


def test_backward_computes_twice_as_much_and_layers_again_with_full_recomputation():
    """Logits and loss are no part of a layer: 128,256 x 4,096 weights of Llama-3.1-8B, and a third
    of 22 bytes for each logit.
    """
    t = trainer(tp=4, stack=RL)
    once, back = forward(t, 1e6, 4e9), backward(t, 1e6, 4e9)
    assert (
        back.matmul == 2 * once.matmul
        and back.attention == 2.5 * once.attention
        and back.tensor == once.tensor
    )
    again = backward(dataclasses.replace(t, recompute="full"), 1e6, 4e9)
    head = 2 * 128256 * 4096 * 1e6 / 4 / t.matmul_flops() + 22 / 3 * 128256 * 1e6 / 4 / t.hbm
    assert once.logits == pytest.approx(head)
    assert again.seconds == pytest.approx(back.seconds + once.seconds - head)
    assert again.logits == back.logits


@pytest.mark.parametrize(
    ("slower", "faster"),
    [
        ({"gpu": "A100"}, {}),
        ({"gpu": "H100"}, {"gpu": "B200"}),
        ({}, {"precision": "fp8"}),
        ({"recompute": "full"}, {}),
        ({"tp": 8, "stack": RL}, {"tp": 8}),  # collectives beside matmuls
        ({"tp": 16}, {"tp": 8, "dp": 2}),  # beyond a server
        ({"pp": 4}, {"pp": 4, "vp": 4}),
        ({"stack": FSDP}, {}),
        ({"dp": 8, "sharded": True}, {"dp": 8}),
    ],
)
def test_a_step_gets_slower(slower, faster):
    rates = []
    for changes in (slower, faster):
        t = trainer(**changes)
        rates.append(32 * 8192 / training_step(t, 32, 8192).seconds / t.layout.gpus)
    assert rates[0] < rates[1]


def test_experts_cost_their_exchange_and_small_ones_their_tiles():
    t = trainer("Qwen3-30B-A3B", ep=8, dp=8)
    assert forward(t, 4096, 4096**2).experts > 0
    assert forward(trainer("Qwen3-30B-A3B", dp=8), 4096, 4096**2).experts == 0
    alike, tokens = dataclasses.replace(t, grouped=1.0), 2**24
    chosen = 2 * t.model.matmul_parameters / t.matmul_flops()  # s a token
    assert forward(alike, 4096, 4096**2).matmul > 1.05 * chosen * 4096  # each's rows fill tiles
    many = forward(alike, tokens, 1.0).matmul
    assert many == pytest.approx(chosen * tokens, rel=0.01)
    experts = t.model.experts.per_token * t.model.expert_parameters / t.model.experts.count
    longer = 2 * experts * tokens / t.matmul_flops() * (1 / training.GROUPED - 1)
    assert forward(t, tokens, 1.0).matmul - many == pytest.approx(longer, rel=0.01)


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(["Llama-3.1-8B", "Qwen3-30B-A3B", "DeepSeek-V3"]),
    st.sampled_from(["H100", "B200"]),
    st.sampled_from([(1, 1, 1), (2, 1, 8), (1, 4, 16), (8, 8, 8)]),
    st.sampled_from(["selective", "full"]),
    st.booleans(),
    st.integers(1, 20),
    st.integers(8, 15),
)
def test_no_pass_is_sooner_done_than_its_host(name, gpu, split, recompute, whole, micro, power):
    """The longer of both, not their sum; what is left to a fabric is no wait for the host."""
    tp, pp, ep = split
    t = trainer(name, gpu, tp=tp, pp=pp, ep=ep, dp=16, recompute=recompute, between_servers=whole)
    alone, all_of_it = dataclasses.replace(t, host_layer=0.0), {"between_servers": True}
    layers = t.model.experts.layers / pp if t.model.experts else 0
    passed = micro * 2.0**power, micro * 4.0**power, micro
    for once, parts in ((forward, 1), (backward, 3 if recompute == "full" else 2)):
        host = parts / 3 * training.HOST_LAYER_S * layers * micro
        computed = once(alone, *passed).seconds
        sent = once(dataclasses.replace(alone, **all_of_it), *passed).seconds - computed
        took = max(computed + sent, host) - sent if host > computed else computed
        assert once(t, *passed).seconds == pytest.approx(took)


def test_micro_batches_of_one_sequence_wait_for_their_host_and_longer_ones_do_not():
    t = trainer("Qwen3-30B-A3B", "B200", ep=8, dp=8)
    short, long = (training_step(t, 64, 4096, mbs).passes.host for mbs in (1, 8))
    assert short > 0 and long == 0
    dense = trainer("Llama-3.1-8B", "B200", dp=8)
    assert training_step(dense, 64, 128).passes.host == 0  # measured of layers with experts alone


# What Megatron-Core runs in experts with biases: bytes read and written, of a column of a token's
# copy. "two": of both inputs of the activation.
BIASED_EXPERTS = {
    "hidden": {
        "b * p": (0, 4), "t + b * p": (2 + 4, 4), "joined": (4, 4), "to bf16": (4, 2),
        "its gradient to fp32": (2, 4), "of t to bf16": (4, 2), "of b": (4 + 4, 4),
        "of p": (4 + 4, 4), "of t joined": (2, 2),
    },
    "two": {
        "clamped": (2, 2), "joined": (2, 2), "gradients joined": (2, 2),
        # gate: <= limit, chosen; linear: >=, <=, both, chosen
        "gradient": ((2 + 1 + 2 + 2 + 2 + 2 + 1 + 2) / 2, (1 + 2 + 1 + 1 + 1 + 2) / 2),
    },
}  # fmt: skip


def test_experts_with_biases_add_and_clamp_operation_by_operation():
    biased = trainer("gpt-oss-120b", ep=8, dp=8)
    experts = dataclasses.replace(biased.model.experts, biased=False)
    plain = dataclasses.replace(biased, model=dataclasses.replace(biased.model, experts=experts))
    moved = {where: sum(map(sum, ops.values())) for where, ops in BIASED_EXPERTS.items()}
    a_copy = 2880 * moved["hidden"] + 2 * 2880 * moved["two"]  # hidden and inner width are alike
    seconds = []
    for t in (biased, plain):
        passed = t, 4096, 4096**2
        seconds.append(forward(*passed).memory + backward(*passed).memory)
    expected = 4096 * 4 * 36 * a_copy / biased.hbm  # to 4 experts in each of 36 layers
    assert seconds[0] - seconds[1] == pytest.approx(expected)


def test_windows_leave_pairs_out():
    windowed = trainer("gpt-oss-120b")
    full = dataclasses.replace(
        windowed, model=dataclasses.replace(windowed.model, windowed=0, window=0)
    )
    short, long = 100, 8192
    assert forward(windowed, short, short**2).attention == forward(full, short, short**2).attention
    ratio = forward(windowed, long, long**2).attention / forward(full, long, long**2).attention
    # every other layer sees 128 tokens
    assert ratio == pytest.approx(0.5 + 0.5 * 2 * 128 / 8192, rel=0.01)


# --- one step -------------------------------------------------------------------------------------


def test_the_bubble_is_the_closed_form():
    """Logits and the loss, by hand: half a step's matmuls and 22 bytes a word, of 32 sequences."""
    t = trainer(pp=4, vp=2, dp=2)
    step = training_step(t, 64, 4096)
    tokens, words = 32 * 4096, 128256
    logits = 6 * words * 4096 * tokens / t.matmul_flops() + 22 * words * tokens / t.hbm
    layers = 4 * step.passes.seconds - logits  # of all stages
    took = layers / 4 + logits + 3 * layers / 4 / (2 * 32)
    assert step.bubble + step.passes.seconds == pytest.approx(took)
    assert training_step(trainer(dp=2), 64, 4096).bubble == 0


def test_adam_moves_its_states_through_memory():
    t = trainer(dp=8)
    share = t.model.parameters / 8
    assert training.optimizer_seconds(t) == pytest.approx(share * (2 + 24 + 2) / (3.35e12 * 0.8))
    assert training.optimizer_seconds(t, replicated=True) == pytest.approx(
        8 * training.optimizer_seconds(t)
    )


def test_collectives_beside_computing_leave_one_piece_at_least():
    alone = training.data_seconds(trainer(dp=8, sharded=True), 0.0, 0.0, 1)
    hidden = training.data_seconds(trainer(dp=8, sharded=True), 1e3, 1e3, 1)
    assert training.CHANNELS / training.SMS * alone < hidden < 0.3 * alone
    assert training.data_seconds(trainer(), 1.0, 1.0, 1) == 0  # one rank sends nothing


def test_what_leaves_a_server_is_left_to_the_fabric():
    w = read_recipe(
        "grpo-64",
        ["model=Qwen2.5-72B", "training.tp=16", "training.recompute=full", "generation.tp=8"],
    )
    t = timing.trainer_of(w)
    inside = forward(dataclasses.replace(t, layout=Layout(tp=8, dp=2)), 1e5, 1e9)
    assert forward(t, 1e5, 1e9).tensor == pytest.approx(inside.tensor)
    assert forward(dataclasses.replace(t, between_servers=True), 1e5, 1e9).tensor > inside.tensor


def test_a_recipe_may_say_what_share_of_the_peak_is_reached():
    w = read_recipe("grpo-64", ["efficiency.training=0.25"])
    ahead, back = timing.passes_of(w, 1e6, 1e9, 10)
    assert ahead.seconds == pytest.approx(w.model.forward_flops(1e6, 1e9) / (4 * 989e12 * 0.25))
    assert back.seconds == pytest.approx(2 * ahead.seconds)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Layout(tp=0), "layout: tp 0 must be 1 or more"),
        (
            lambda: Layout(tp=2, ep=3),
            "layout: ep 3 does not divide tp 2 x cp 1 x dp 1; use a divisor",
        ),
        (
            lambda: trainer(precision="int3"),
            "precision 'int3' is not known; use one of bf16, fp8, fp4",
        ),
        (
            lambda: trainer(recompute="some"),
            "recompute 'some' is not known; use none, selective or full",
        ),
        (
            lambda: training_step(trainer(dp=3), 32, 4096),
            "32 sequences do not divide into 3 .* use a multiple of 3",
        ),
        (
            lambda: training_step(trainer(gpu="A100", precision="fp8"), 32, 4096),
            "GPU A100 has no fp8 matmul",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(RFabricError, match=message):
        make()


# --- tables ---------------------------------------------------------------------------------------


def test_throughput_is_that_of_the_published_table():
    path = data("measured/training_*foundry*.csv")
    (group,) = check(path, DATA)
    assert len(group.points) >= 20 and not group.unmodelled
    assert group.median_error <= 0.15 and group.p90_error <= 0.25


def test_the_fit_holds_on_sizes_it_was_not_made_on(monkeypatch):
    path = data("measured/training_*foundry*.csv")
    (group,) = check(path, DATA)
    sizes = [point.name.split()[1] for point in group.points]
    errors = {}
    for sustained in np.linspace(0.55, 0.8, 11):
        monkeypatch.setattr(training, "SUSTAINED", sustained)
        errors[sustained] = np.array(
            [point.error for point in next(iter(check(path, DATA))).points]
        )
    left_out = []
    for size in set(sizes):
        out = np.array([s == size for s in sizes])
        best = min(errors, key=lambda s: np.median(np.abs(errors[s][~out])))
        left_out += np.abs(errors[best][out]).tolist()
    assert np.median(left_out) <= 0.15


def test_single_matmuls_take_what_was_measured():
    path = data("measured/vidur_*mlp*.csv")
    matmul, moved = vidur_mlp.check(path, DATA)
    assert matmul.median_error <= 0.15 and len(matmul.points) > 1000
    assert moved.median_error <= 0.5


MEGATRON_ROWS = """\
system,model,gpus,precision,gbs,mbs,seq,fsdp,tp,pp,cp,vp,ep,ga,tok_s_gpu,model_tflops_gpu
DGX-H100,LLAMA3.1_8B,8,BF16,128,1,8192,0,1,1,2,n/a,1,32,9000,
DGX-GB200,Qwen3 30B A3B,8,MXFP8,512,4,4096,0,1,1,1,1,8,16,20000,
DGX-GB200,Meta-Llama-3.1-70B,64,NVFP4,128,1,8192,1,1,1,1,,1,2,5000,
DGX-A100,Llama3.1 8B,8,FP8,128,1,8192,0,1,1,1,1,1,16,9000,
DGX-H100,Nobody-9B,8,BF16,128,1,8192,0,1,1,1,1,1,16,9000,
Abacus,Llama3.1 8B,8,BF16,128,1,8192,0,1,1,1,1,1,16,9000,
DGX-H100,Llama3.1 8B,12,BF16,128,1,8192,0,8,1,1,1,1,16,9000,
DGX-H100,Llama3.1 8B,8,BF16,4,1,8192,0,1,1,1,1,1,16,9000,
"""


def test_a_table_of_megatron_rows_is_read_and_what_cannot_be_modelled_is_named(tmp_path):
    path = tmp_path / "training_megatron.csv"
    path.write_text(MEGATRON_ROWS)
    group, mixed = check(path, tmp_path)
    assert (len(group.points), len(mixed.points)) == (2, 1) and not mixed.unmodelled
    assert all(3000 < p.modelled < 60000 for p in (*group.points, *mixed.points))
    reasons = (
        "GPU A100 has no fp8 matmul",
        "no config of Nobody-9B",
        "no GPU is known by 'Abacus'",
        "12 GPUs are no multiple of tp 8 x pp 1 x cp 1",
        "a global batch of 4 is less than dp 8 x micro-batch 1",
    )
    assert len(group.unmodelled) == len(reasons)
    for told, reason in zip(group.unmodelled, reasons, strict=True):
        assert reason in told and "seq 8192" in told
    assert group.to_json()["rows"] == 7


def test_steps_of_nemo_rl_take_what_was_measured_and_going_off_policy_gains_as_much():
    step, gain = nemo_rl.check(data("rl_measured/nemo_rl_step_times.csv"), DATA)
    assert len(step.points) == 13 and not step.unmodelled
    assert step.median_error <= 0.20
    assert gain.median_error <= 0.20 and dict(gain.extra)["sign_of_step_change_right"] == 1


def test_asynchronous_steps_of_verl_gain_what_was_measured():
    step, phases, gain = verl.check(data("rl_measured/verl_*.csv"), DATA)
    assert not step.unmodelled and step.median_error <= 0.25 and phases.points
    assert dict(gain.extra)["sign_right"] == 1 and gain.median_error <= 0.25


NEMO_COLUMNS = (
    "version,system,precision,model,policy,max_seq,avg_seq,gpus,gen_gbs,train_gbs,gen_tp_pp,"
    "train_parallel,step_time_s"
)


def test_rows_of_nemo_rl_without_a_recipe_or_a_known_model_are_modelled_or_named(tmp_path):
    path = tmp_path / "nemo_rl_step_times.csv"
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(NEMO_COLUMNS.split(","))
        both = ["v9", "DGX-H100", "BF16"]
        for model, policy, gpus, generation, training in (
            ("Qwen3-30B3A", "On policy", 32, "[2 1]", "[1 1 8 1 n/a]"),
            ("Nobody-9B", "On policy", 32, "[2 1]", "[1 1 8 1 n/a]"),
            ("Qwen3-32B", "1-step Off", 64, "[3 1]", "[4 1 1 4 n/a]"),
        ):
            batches = 2048, 512
            sent = [model, policy, 4096, 3196, gpus, *batches, generation, training, 200]
            out.writerow([*both, *sent])
    step, _ = nemo_rl.check(path, tmp_path)
    assert [p.name for p in step.points] == ["v9 DGX-H100 Qwen3-30B3A On policy 32 BF16"]
    assert (
        "no model is known by 'Nobody-9B'" in step.unmodelled[0]
        and "generation.tp: 3" in step.unmodelled[1]
    )


@settings(deadline=None, max_examples=40)
@given(st.floats(2, 4000), st.integers(4100, 40000), st.floats(0.2, 1.5))
def test_lognormal_lengths_have_the_mean_asked_for(mean, limit, sigma):
    lengths = nemo_rl.lognormal(mean, limit, sigma)
    drawn = lengths.tokens
    assert np.trapezoid(drawn, lengths.quantile) == pytest.approx(mean, rel=0.01)
    assert drawn.min() >= 1 and drawn.max() <= limit


def test_a_mean_beyond_the_cut_is_refused():
    with pytest.raises(RFabricError, match="a mean of 5000 tokens must lie between 1 and the 4096"):
        nemo_rl.lognormal(5000, 4096)

"""Mixtures of experts: parameters and FLOPs of what a token passes, bytes of dispatch and combine,
whose gradients meet.
"""

import functools

import numpy as np
import pytest
import yaml

from rfabric.compute import memory
from rfabric.compute.configs import model_of
from rfabric.compute.models import Experts
from rfabric.compute.named import read_model
from rfabric.errors import RFabricError
from rfabric.folders import data_dir
from rfabric.rl import explain, flows, plan_of, read_recipe, trace_of
from rfabric.rl.exchanges import training_passes
from rfabric.rl.phases import step_of
from rfabric.rl.timing import decode_step
from rfabric.trace import PhaseKey

MODELS = data_dir("traffic") / "models"
SETTINGS = (
    "model=Qwen3-30B-A3B",
    "training.tp=4",
    "training.pp=1",
    "training.ep=16",
    "training.recompute=full",
    "training.mini_batches=2",
    "generation.tp=4",
    "cluster.training_gpus=64",
)


@functools.cache
def job(*overrides):
    return read_recipe("grpo-64", (*SETTINGS, *overrides))


def config(name="Qwen3-30B-A3B"):
    return yaml.safe_load((MODELS / f"{name}.json").read_text())


@pytest.mark.parametrize(
    ("name", "total", "active"), [("Qwen3-30B-A3B", 30.5, 3.3), ("Qwen3-235B-A22B", 235, 22)]
)
def test_total_and_active_parameters_are_those_of_the_model_card(name, total, active):
    model = read_model(MODELS / f"{name}.json")
    assert model.parameters / 1e9 == pytest.approx(total, rel=0.02)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.02)
    assert model.dense_parameters + model.expert_parameters == model.parameters
    embedding = model.vocab * model.hidden
    assert model.forward_flops(10, 0) == 20 * (model.active_parameters - embedding)


def test_layers_without_experts_and_shared_experts_count():
    model = model_of(config(), "m")
    assert model.experts == Experts(128, 8, 768, 48)
    every_other = model_of(config() | {"decoder_sparse_step": 2, "mlp_only_layers": [1, 2]}, "m")
    assert every_other.experts.layers == 23  # layers 3, 5, ... 47
    sparse, dense = 128 * 3 * 2048 * 768 + 2048 * 128, 3 * 2048 * 6144
    assert model.parameters - every_other.parameters == 25 * (sparse - dense)
    shared = model_of(
        config() | {"model_type": "qwen2_moe", "shared_expert_intermediate_size": 5632}, "m"
    )
    norms = 48 * 2 * 128  # of queries and keys, which qwen2_moe has not
    assert shared.parameters - model.parameters + norms == 48 * (3 * 2048 * 5632 + 2048)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_experts": 0}, "model m: experts.count 0 must be a whole number above 0"),
        ({"num_experts_per_tok": 129}, "a token cannot take 129 of 128 experts"),
        ({"decoder_sparse_step": 0}, "decoder_sparse_step 0 must be a whole number above 0"),
        ({"mlp_only_layers": 4}, "mlp_only_layers 4 a list"),
        ({"decoder_sparse_step": 49}, "experts.layers 0 must be"),
        ({"model_type": "qwen3"}, "model_type 'qwen3' with num_experts is not modelled"),
        (
            {"n_routed_experts": 256},
            ("num_experts 128 and n_routed_experts 256 contradict each other; keep one"),
        ),
    ],
)
def test_a_bad_mixture_is_refused(change, message):
    with pytest.raises(RFabricError, match=message):
        model_of(config() | change, "m")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["training.ep=24"],
            ("training.ep: 24 does not divide the 128 experts of Qwen3-30B-A3B; use a divisor"),
        ),
        (
            ["training.ep=128"],
            (
                "training.ep: 128 does not divide the tp 4 x cp 1 x 16 data-parallel ranks = 64 "
                "GPUs.*of 64"
            ),
        ),
        (["training.ep=1"], "training: Qwen3-30B-A3B needs .* use training.ep=4 or training.pp=4"),
        (
            ["model=Qwen2.5-14B"],
            ("training.ep: 16, but Qwen2.5-14B has no experts to deal out; leave it out"),
        ),
        (["training.ep=0"], "training.ep: 0 must be 1 or more"),
    ],
)
def test_an_ep_that_does_not_fit_is_an_error_that_names_the_way_out(overrides, message):
    with pytest.raises(RFabricError, match=message):
        job(*overrides)


def test_decode_reads_the_experts_that_a_batch_touches():
    w = job()
    step, model = decode_step(w), w.model
    hbm = w.gpu.hbm_bytes_per_s * w.efficiency.hbm * w.generation.tp
    embedding = model.vocab * model.hidden
    one = 2 * (model.active_parameters - embedding) / hbm
    each = step.overhead_s_per_token + step.own_s_per_response
    # one token reads what it passes
    assert step.seconds(1, 0) - step.overhead_s - each == pytest.approx(one)
    everything = 2 * (model.parameters - embedding) / hbm
    assert step.weights_s + step.experts_s == pytest.approx(everything)
    two = step.weights_s + step.experts_s * (1 - (1 - 8 / 128) ** 2)
    busy = max(two, 2 * step.matmul_s_per_response)
    assert step.seconds(2, 0) == pytest.approx(busy + step.overhead_s + 2 * each)


def test_groups_follow_megatron_and_every_gpu_stands_in_one():
    w = job("training.pp=2")
    assert w.stage_gpus == 32
    groups = w.expert_groups(1)
    assert groups[0] == [32, 48] and groups[15] == [47, 63]
    assert sorted(sum(groups, [])) == list(range(32, 64))


@pytest.mark.parametrize(
    "overrides", [(), ("training.pp=2",), ("training.ep=32",), ("training.tp=2", "training.ep=32")]
)
def test_all_to_all_sends_the_closed_form(overrides):
    """What a GPU dispatches over the whole step, counted token by token: k copies forth and k back,
    to all but its server.
    """
    w = job(*overrides)
    t, m, e = w.training, w.model, w.model.experts
    step = step_of(w, 1, 0)
    tokens = np.array([100.0 + 7 * d for d in range(w.dp)])
    sent = flows.experts_training(w, tokens, 1)
    # bytes of one dispatch of all tokens in all layers
    copies = tokens.sum() * e.per_token * m.hidden * 2 * e.layers
    away = 1 - min(w.gpus_per_server, t.ep) / t.ep  # even routing
    assert sum(sent.size) == pytest.approx(2 * copies * away)
    pairs = dict(zip(zip(sent.src, sent.dst, strict=True), sent.size, strict=True))
    assert len(pairs) == len(sent.src) == w.stage_gpus * t.pp * (t.ep - 8)
    assert all(
        a // 8 != b // 8 and a // t.ep == b // t.ep and pairs[b, a] == size
        for (a, b), size in pairs.items()
    )
    trace = trace_of(w, 1)
    rows = trace.communication()[0, "training", "all-to-all"]
    updates = sum(b.tokens.sum() for b in step.trained.mini_batches) * training_passes(w)
    both = updates + step.trained.log_prob_tokens.sum() * t.log_prob_passes
    assert trace.total[rows].sum() == pytest.approx(
        2 * both * e.per_token * m.hidden * 2 * e.layers * away, rel=1e-6
    )


def test_tensor_ranks_reduce_after_attention_but_not_after_experts():
    """Experts are dealt, not cut: of the two all-reduces a layer only the one of attention is left,
    forward and backward.
    """
    w = job("training.tp=16", "training.ep=32")
    m = w.model
    assert m.experts.layers == m.layers
    sent = flows.tensor_training(w, np.full(w.dp, 1000.0), 2)
    ring = 2 * 15 / 16 * m.hidden * 2 * m.layers * 1000 * 2  # bytes an edge, two passes
    assert sum(sent.size) == pytest.approx(w.dp * 2 * ring)  # two servers a ring: two edges


def test_inside_a_server_nothing_is_sent_and_dense_models_have_no_experts():
    assert flows.experts_training(job("training.ep=8"), np.ones(16), 2).src == []
    dense = read_recipe("grpo-64")
    assert flows.experts_training(dense, np.ones(dense.dp), 2).src == []
    assert "experts" not in trace_of(dense).provenance["model"]


def test_all_to_all_is_on_the_critical_path_and_said():
    w = job()
    trace = trace_of(w, 1)
    rows = trace.communication()[0, "training", "all-to-all"]
    assert (trace.loop[rows] >= 0).all() and len(
        trace.loops
    ) == 1 + w.training.mini_batches * w.training.buckets
    offsets, following = trace.followers
    after = {
        trace.labels[trace.label[r]]
        for row in rows
        for r in following[offsets[row] : offsets[row + 1]]
    }
    assert after == {
        "barrier",
        "all-to-all",
        "reduce-scatter",
        "optimizer",
    }  # nothing goes on before the loop has ended
    assert any("even" in text for text in trace.provenance["merged"])
    assert trace.provenance["model"]["active_parameters"] == w.model.active_parameters
    items = [i for i in explain(w, 1) if i.phase == "training"]
    item = next(i for i in items if i.item == "all-to-all")
    assert (item.count, item.bytes) == (len(rows), pytest.approx(trace.total[rows].sum(), rel=1e-6))
    computing = sum(
        i.seconds for i in items if i.item in ("log-prob", "forward-backward", "optimizer")
    )
    assert plan_of(w, 1).windows[PhaseKey(0, "training")] > computing + 0.9 * item.seconds


def test_gradients_of_experts_meet_in_their_own_groups():
    w = job()
    t, m = w.training, w.model
    sent = flows.gradients(w)
    dense, experts = m.dense_parameters / t.tp, m.expert_parameters / t.ep
    # rings over 16 data-parallel ranks in 8 servers (two channels each), and over 4 holders of the
    # same experts
    ends = 4 * (15 / 16 * dense / 2) * 8 * 2 + 16 * (3 / 4 * experts) * 4
    assert sum(sent.size) == pytest.approx(t.grad_bytes / t.buckets * ends)
    shards = memory.training_shards(m, w.layout, w.stages_held[0])
    assert shards == [(dense, 16), (experts, 4)]
    need = w.training_bytes
    assert need["parameters"] == 2 * (dense + experts)
    assert need["optimizer"] == pytest.approx(12 * (dense / 16 + experts / 4))


def test_the_whole_model_goes_to_every_replica():
    w = job()
    trace = trace_of(w, 1)
    rows = trace.communication()[0, "weight_sync", "weights"]
    assert trace.size[rows].sum() == pytest.approx(len(w.replicas) * w.model.weight_bytes, rel=1e-6)

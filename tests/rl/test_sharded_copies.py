"""Hybrid sharding (HSDP): copies of sharded parameters, `training.fsdp_size` ranks each.

of S bytes of a stage, n GPUs a copy, c copies, in servers of 8, by edges between servers:

    all-gather, reduce-scatter   of each copy that leaves a server    (n-1)/n S  a server of it
    all-reduce                   of each of n shards among copies     2 (c-1)/c S/n  a server of it
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute.communication import RankGroup, collective_seconds
from rfabric.compute.gpus import GPUS
from rfabric.compute.layout import Layout
from rfabric.compute.memory import training_shards
from rfabric.compute.named import find_model
from rfabric.compute.pipeline_stages import StageParameters
from rfabric.compute.training import FSDP, MEGATRON, Trainer, data_seconds, state_bytes
from rfabric.errors import RFabricError
from rfabric.rl import explain, flows, plan_of, read_recipe, trace_of
from rfabric.rl.phases import step_of
from rfabric.rl.weight_sync import software_parts
from rfabric.schedulers.pipelines import colocated

SMALL = "generation.batch=32", "generation.group_size=4"
SHARDED = "training.optimizer=sharded", "training.recompute=full", "training.tp=1"
LITTLE = "model=Qwen2.5-1.5B"  # all its states fit on one GPU


def job(*more):
    return read_recipe("grpo-64", (*SMALL, *SHARDED, LITTLE, *more))


def in_copies(size, *more):
    return job(f"training.fsdp_size={size}", *more)


@pytest.mark.parametrize(
    ("size", "gather", "reduce"),
    # 32 GPUs in servers of 8: servers of all rings, times what goes over each edge, in copies of S
    [
        (32, 4 * 31 / 32, 0),
        (16, 4 * 15 / 16, 16 * 2 * 2 * (1 / 2) / 16),
        (8, 0, 8 * 4 * 2 * (3 / 4) / 8),
        (4, 0, 4 * 4 * 2 * (7 / 8) / 4),
        (1, 0, 4 * 2 * (31 / 32)),
    ],
)
def test_copies_gather_by_themselves_and_sum_over_all(size, gather, reduce):
    w = in_copies(size)
    assert (w.dp, w.gpus_per_server) == (32, 8)
    sent = {label: sum(one.size) for label, one in flows.sharded(w).items()}
    parameters = w.model.parameters
    assert sent["all-gather"] == pytest.approx(gather * 2 * parameters)
    assert sent["reduce-scatter"] == pytest.approx(gather * 4 * parameters)
    assert sent["all-reduce"] == pytest.approx(reduce * 4 * parameters)


def test_one_copy_on_all_gpus_is_as_without_copies():
    alone, said = (trace_of(one) for one in (job(), in_copies(32)))
    assert (alone.src == said.src).all() and (alone.size == said.size).all()
    assert plan_of(job()) == plan_of(in_copies(32))


@pytest.mark.parametrize("size", [4, 8, 16])
def test_every_micro_batch_sums_over_copies(size):
    w = in_copies(size)
    trace, trained = trace_of(w), step_of(w, 0, 0).trained
    micro = sum(b.micro_batches for b in trained.mini_batches)
    rows = trace.communication()[0, "training", "all-reduce"]
    each = sum(flows.sharded(w)["all-reduce"].size)
    assert trace.total[rows].sum() == pytest.approx(micro * each, rel=1e-6)
    assert any(item.item == "all-reduce" and "copies" in item.why for item in explain(w))


def test_the_smaller_a_copy_the_more_a_gpu_holds():
    held = [in_copies(size).training_bytes for size in (32, 16, 8)]
    for kind in ("parameters", "gradients", "optimizer"):
        assert held[1][kind] == pytest.approx(2 * held[0][kind])
        assert held[2][kind] == pytest.approx(4 * held[0][kind])
    assert held[0]["activations"] == held[2]["activations"]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_sharded_parameter_takes_sixteen_bytes(dtype):
    """Its fp32 master, gradient and two moments (FSDP), or 2 + 2 + 12 (ZeRO-3)."""
    states = "parameters", "gradients", "optimizer"
    held, host = (
        w.training_bytes
        for w in (
            job(f"training.grad_dtype={dtype}", *more)
            for more in ((), ("training.host_optimizer=true",))
        )
    )
    each = job().model.parameters / 32
    assert [held[key] / each for key in states] == pytest.approx([4, 4, 8])
    assert [host[key] / each for key in states] == pytest.approx([2, 0, 0])


def test_a_second_model_of_the_same_shape_is_held_as_the_first():
    held = job("training.critic=true").training_bytes
    assert held["critic"] == pytest.approx(held["parameters"] + held["optimizer"])


def test_what_a_trainer_holds_and_sends():
    model, gpu = find_model("Qwen2.5-7B"), GPUS["H100"]
    one, four = (
        Trainer(model, gpu, Layout(dp=32, sharded=True, copies=n), "bf16", "full", FSDP)
        for n in (1, 4)
    )
    assert training_shards(model, four.layout, StageParameters.of(model)) == [(model.parameters, 8)]
    assert state_bytes(four) == pytest.approx(4 * state_bytes(one))
    assert state_bytes(one) == pytest.approx(16 * model.parameters / 32)
    megatron = replace(one, stack=MEGATRON)
    assert state_bytes(megatron) == pytest.approx(18 * model.parameters / 32)
    # a server's NVLink gathers and scatters, and the sums of shards leave it
    here, apart = RankGroup(8, 1), RankGroup(4, 4)
    took = sum(
        times * collective_seconds(kind, bytes_each * model.parameters, group, four.network)
        for times, kind, bytes_each, group in (
            (2, "all-gather", 2, here),
            (1, "reduce-scatter", four.gradient_bytes, here),
            (1, "all-reduce", four.gradient_bytes / 8, apart),
        )
    )
    assert data_seconds(four, 0.0, 0.0, 1) == pytest.approx(took)


@settings(max_examples=25, deadline=None)
@given(
    size=st.sampled_from([1, 2, 4, 8, 16, 32]),
    server=st.sampled_from([1, 2, 4, 8]),
    cp=st.sampled_from([1, 2]),
    strategy=st.sampled_from(["flat", "p2p", "scatter"]),
)
def test_what_is_sent_is_what_formulas_say(size, server, cp, strategy):
    """Writing a trace compares every label with its closed form."""
    w = in_copies(
        size,
        "training.mini_batches=1",
        f"cluster.gpus_per_server={server}",
        "generation.tp=1",
        f"training.cp={cp}",
        f"weight_sync.strategy={strategy}",
    )
    assert trace_of(w).size.sum() > 0


@pytest.mark.parametrize("size", [8, 16])
def test_copies_of_experts(size):
    w = read_recipe(
        "grpo-64-moe",
        (
            *SMALL,
            *SHARDED,
            "model=DeepSeek-V2-Lite",
            "training.pp=1",
            "training.ep=8",
            f"training.fsdp_size={size}",
        ),
    )
    assert w.copies == w.dp // size
    assert trace_of(w).size.sum() > 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("training.fsdp_size=5",), "must divide the cp 1 x 32 data-parallel ranks"),
        (("training.fsdp_size=64",), "use one of 1, 2, 4, 8, 16, 32, or 0 for all"),
        (("training.fsdp_size=8", "training.optimizer=distributed"), "does not shard; leave it"),
        (("training.fsdp_size=-1",), "training.fsdp_size"),
    ],
)
def test_copies_that_cannot_be_are_refused(more, said):
    with pytest.raises(RFabricError, match=said):
        job(*more)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("training.fsdp_size=1",), "use training.fsdp_size=8 or"),
        # 18 ranks: the divisors are no powers of two
        (
            ("model=Qwen2.5-14B", "training.fsdp_size=2", "cluster.training_gpus=18"),
            "use training.fsdp_size=6$",
        ),
        (("training.fsdp_size=1", "cluster.training_gpus=5"), "use training.fsdp_size=0"),
    ],
)
def test_where_a_copy_is_too_small_larger_ones_are_advised(more, said):
    few = "generation.batch=90", "training.mini_batches=1"
    with pytest.raises(RFabricError, match=said):
        read_recipe("grpo-64", (*SMALL, *SHARDED, *few, *more))


def test_tensor_parallelism_that_needs_whole_ranks_is_advised_with_one_copy():
    large = "model=Qwen2.5-72B", "generation.tp=8", "training.fsdp_size=32"
    large += ("training.micro_batch_tokens=24576",)
    with pytest.raises(RFabricError, match="use training.tp=2 with training.fsdp_size=0"):
        read_recipe("grpo-64", (*SMALL, *SHARDED, *large))


def test_each_rank_compares_its_shard_of_its_copy():
    alone, copies = (
        software_parts(in_copies(size, "weight_sync.strategy=delta"))["compare"] for size in (32, 8)
    )
    assert copies == pytest.approx(4 * alone)


def test_a_copy_on_one_gpu_gathers_nothing():
    assert "gathered" not in in_copies(1).training_bytes
    assert in_copies(2).training_bytes["gathered"] > 0


def test_one_copy_of_a_pool_is_one_of_both():
    once = "training.mini_batches=1", "generation.batch=96"
    pooled = colocated(in_copies(32, *once), 0, {}).workload
    assert pooled.cluster.training_gpus == 64 and pooled.copies == 1
    with pytest.raises(RFabricError, match="where all 64 GPUs train: .*24"):
        colocated(
            in_copies(24, *once, "cluster.training_gpus=48", "cluster.generation_gpus=16"), 0, {}
        )


def test_a_copy_has_all_experts():
    with pytest.raises(RFabricError, match="and hold ep 16 x etp 1; use one of 16, 32, or 0"):
        read_recipe(
            "grpo-64-moe",
            (*SMALL, *SHARDED, "training.pp=1", "training.ep=16", "training.fsdp_size=8"),
        )


def test_a_layout_says_what_copies_do_not_divide():
    with pytest.raises(RFabricError, match="3 copies do not divide"):
        Layout(dp=8, sharded=True, copies=3)

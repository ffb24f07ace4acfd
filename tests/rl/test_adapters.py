"""LoRA: what learns is small, what is gathered to compute is not."""

import pytest

from rfabric.compute.adapters import adapter_parameters, share_that_learns
from rfabric.compute.named import load_model
from rfabric.rl import explain, read_recipe
from rfabric.rl.weight_sync import sync_bytes
from rfabric.schedulers.table import scheduled
from rfabric.simulate.world import simulate

SMALL = ("generation.batch=64", "generation.group_size=4")


def test_adapters_of_a_dense_layer_by_hand():
    """Qwen3-8B: 36 layers of hidden 4096, 32 heads of 128, 8 KV heads, MLP of 12,288."""
    q_and_o, k_and_v, mlp = 2 * (4096 + 4096), 2 * (4096 + 1024), 3 * (4096 + 12288)
    assert adapter_parameters(load_model("Qwen3-8B"), 16) == 16 * 36 * (q_and_o + k_and_v + mlp)


@pytest.mark.parametrize("name", ["Qwen3-8B", "Qwen3-30B-A3B", "DeepSeek-V3"])
def test_the_share_that_learns_goes_with_the_rank(name):
    model = load_model(name)
    assert share_that_learns(model, 0) == 1
    assert share_that_learns(model, 32) == pytest.approx(2 * share_that_learns(model, 16))
    assert share_that_learns(model, 16) < 0.05


@pytest.mark.parametrize("optimizer", ["distributed", "replicated", "zero1", "zero2", "sharded"])
def test_gradients_states_and_sync_are_of_the_adapters(optimizer):
    settings = [f"training.optimizer={optimizer}", "training.tp=8"]
    whole, small = (
        read_recipe("grpo-64", [*settings, f"training.lora_rank={rank}"]) for rank in (0, 16)
    )
    before, after = whole.training_bytes, small.training_bytes
    for part in ("gradients", "optimizer"):
        assert after[part] == pytest.approx(small.learns * before[part])
    assert after["parameters"] == pytest.approx((1 + small.learns) * before["parameters"])
    assert sync_bytes(small) == pytest.approx(small.learns * sync_bytes(whole))


@pytest.mark.parametrize("strategy", ["flat", "relay", "p2p"])
def test_adapters_alone_are_sent_in_bf16(strategy):
    """Whole weights in FP8 take half the bytes; adapters are not quantised."""
    settings = [*SMALL, f"weight_sync.strategy={strategy}", "training.lora_rank=16"]
    plain, fp8 = (
        read_recipe("grpo-64", [*settings, f"weight_sync.precision={kind}"])
        for kind in ("bf16", "fp8")
    )
    assert sync_bytes(fp8) == sync_bytes(plain)
    assert scheduled(fp8).trace.total.tolist() == scheduled(plain).trace.total.tolist()
    whole = read_recipe("grpo-64", ["weight_sync.precision=fp8", "weight_sync.adapters=merged"])
    assert sync_bytes(whole) < 0.6 * sync_bytes(read_recipe("grpo-64"))


def test_merged_adapters_are_sent_as_whole_weights():
    w = read_recipe("grpo-64", ["training.lora_rank=16", "weight_sync.adapters=merged"])
    assert sync_bytes(w) == sync_bytes(read_recipe("grpo-64"))


@pytest.mark.parametrize("optimizer", ["distributed", "zero2", "sharded"])
@pytest.mark.parametrize("placement", ["", "colocated"])
def test_a_job_with_adapters_adds_up_and_is_sooner_done(optimizer, placement):
    settings = [*SMALL, f"training.optimizer={optimizer}"]
    settings += ["placement=colocated", "cluster.generation_gpus=32"] if placement else []
    whole, small = (read_recipe("grpo-64", [*settings, f"training.lora_rank={r}"]) for r in (0, 16))
    took = [
        simulate(w.needs.fabric("ideal"), scheduled(w).trace).step_seconds for w in (whole, small)
    ]
    assert took[1] < took[0]
    sent = scheduled(small).trace.communication()
    for item in explain(small):
        rows = sent.get((0, item.phase, item.item))
        if item.bytes and rows is not None:
            assert item.bytes == pytest.approx(scheduled(small).trace.total[rows].sum(), rel=0.01)
    assert any("adapters of rank 16" in item.why for item in explain(small))

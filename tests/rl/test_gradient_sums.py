"""How gradients are summed over data-parallel ranks, by `training.optimizer`.

of S bytes of gradients and P of bf16 parameters of a stage, n ranks, by edges between servers:

    zero1   an update          2 (n-1)/n S all-reduced, (n-1)/n P gathered
    zero2   a micro-batch      2 (n-1)/n S all-reduced
            an update          (n-1)/n P gathered
"""

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute.memory import BUCKET
from rfabric.errors import RFabricError
from rfabric.rl import explain, flows, plan_of, read_recipe, trace_of
from rfabric.rl.phases import step_of
from rfabric.simulate.world import simulate
from rfabric.trace import PhaseKey

# whole states and gradients fit on each GPU
SMALL = (
    "generation.batch=32",
    "generation.group_size=4",
    "model=Qwen2.5-1.5B",
    "training.tp=1",
    "training.recompute=full",
    "training.mini_batches=2",  # of two sequences a rank
)
TWO_EACH = "training.micro_batch_sequences=1"

job = functools.cache(lambda *overrides: read_recipe("grpo-64", [*SMALL, *overrides]))


def by(optimizer, *overrides):
    return job(f"training.optimizer={optimizer}", *overrides)


def micro_batches(w):
    return sum(b.micro_batches for b in step_of(w, 0, 0).trained.mini_batches)


def training_seconds(w):
    """On one ideal switch."""
    phases = simulate(w.needs.fabric("ideal"), trace_of(w)).phases
    return sum(phase.seconds for phase in phases if phase.key.phase == "training")


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("buckets", [1, 3])
def test_gradients_are_summed_once_an_update_or_in_every_micro_batch(dtype, buckets):
    more = TWO_EACH, f"training.grad_dtype={dtype}", f"training.buckets={buckets}"
    one, two = by("zero1", *more), by("zero2", *more)
    n, updates, servers = 32, 2, 4
    assert one.dp == n and micro_batches(one) == 2 * updates
    edges = servers * (n - 1) / n * one.model.parameters
    for w, sums in ((one, updates), (two, micro_batches(two))):
        sent = trace_of(w).communication()
        total = {
            k[2]: trace_of(w).total[rows].sum() for k, rows in sent.items() if k[1] == "training"
        }
        assert total == {
            "all-reduce": pytest.approx(sums * 2 * edges * w.training.grad_bytes, rel=1e-6),
            "all-gather": pytest.approx(updates * edges * 2, rel=1e-6),
        }


@pytest.mark.parametrize("nic", ["400Gbit/s", "5Gbit/s"])
@pytest.mark.parametrize("buckets", [1, 2, 5])
def test_with_one_micro_batch_both_stages_are_alike(nic, buckets):
    """Gradients are then summed once either way."""
    more = f"cluster.nic={nic}", f"training.buckets={buckets}"
    one, two = by("zero1", *more), by("zero2", *more)
    assert micro_batches(one) == len(step_of(one, 0, 0).trained.mini_batches)
    assert training_seconds(two) == pytest.approx(training_seconds(one), rel=1e-9)
    windows = [w.windows[PhaseKey(0, "training")] for w in map(plan_of, (one, two))]
    assert windows[1] == pytest.approx(windows[0], rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(
    nic=st.sampled_from(["5Gbit/s", "50Gbit/s", "400Gbit/s"]),
    buckets=st.integers(1, 4),
    pp=st.sampled_from([1, 2]),
    cp=st.sampled_from([1, 2, 16]),
    server=st.sampled_from([2, 8]),
    rank=st.sampled_from([0, 16]),
)
def test_the_plan_is_the_simulated_step_and_no_sooner_than_summing_once(
    nic, buckets, pp, cp, server, rank
):
    more = (
        TWO_EACH,
        f"cluster.nic={nic}",
        f"training.buckets={buckets}",
        f"training.pp={pp}",
        f"training.cp={cp}",
        f"cluster.gpus_per_server={server}",
        f"training.lora_rank={rank}",
    )
    try:
        one, two = by("zero1", *more), by("zero2", *more)
    except RFabricError:
        return  # it does not fit
    took = [training_seconds(w) for w in (one, two)]
    windows = [w.windows[PhaseKey(0, "training")] for w in map(plan_of, (one, two))]
    assert windows == pytest.approx(took, rel=0.05)
    if cp <= server:  # else rings of keys and values go beside gradients, each in its own loop
        assert took[1] >= took[0] * (1 - 1e-9) and windows[1] >= windows[0] * (1 - 1e-9)


def test_a_rank_holds_its_part_of_gradients_and_states():
    """2 + (2 + 12) / n bytes a parameter: ZeRO, arXiv 1910.02054, section 3.1, figure 1."""
    bf16, n = "training.grad_dtype=bf16", 32
    held = by("zero2", bf16).training_bytes
    each = job().model.parameters
    assert held["parameters"] == pytest.approx(2 * each)
    assert held["gradients"] + held["optimizer"] == pytest.approx(14 / n * each)
    assert held["bucket"] == 2 * BUCKET
    one, distributed = (by(kind, bf16).training_bytes for kind in ("zero1", "distributed"))
    assert one == distributed and one["gradients"] == pytest.approx(2 * each)


def test_gradients_for_adam_on_the_hosts_stay_in_no_gpu():
    """ZeRO-Offload, arXiv 2101.06840: they go to the host as they are made."""
    held = by("zero2", "training.host_optimizer=true").training_bytes
    assert (held["gradients"], held["optimizer"]) == (0, 0) and held["bucket"] > 0


def test_what_is_sent_is_explained():
    w = by("zero2", TWO_EACH, "training.buckets=3")
    (item,) = [item for item in explain(w) if item.item == "all-reduce"]
    assert "of each micro-batch, rings of 32 ranks, 3 buckets" in item.why
    assert item.bytes == pytest.approx(micro_batches(w) * sum(flows.sharded(w)["all-reduce"].size))
    assert not len(flows.gradients(w).src)

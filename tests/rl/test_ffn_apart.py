"""Generation whose FFN stands on GPUs of its own: bytes and weights by role, seconds of the two
sides, circuits between them, and jobs that cannot be.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute.ffn_apart import Sides, side_weight_bytes, sides_of
from rfabric.compute.roofline import DecodeStep, step_of
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.rl import STRATEGIES, accounts, read_recipe, trace_of
from rfabric.rl.phases import step_of as step_of_job
from rfabric.rl.plan import plan_of
from rfabric.rl.timing import server_of
from rfabric.rl.weight_sync import sync_bytes
from rfabric.schedulers.traffic import read_traffic
from rfabric.simulate.world import simulate


def job(*overrides, attention=8, ffn=8, name="grpo-64-moe"):
    apart = [f"generation.attention_gpus={attention}", f"generation.ffn_gpus={ffn}"]
    return read_recipe(name, [*apart, *overrides])


def sent(trace):
    """Bytes between attention and FFN in the first step."""
    return int(trace.total[trace.communication()[0, "generation", "ffn"]].sum())


@settings(max_examples=15)
@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    shape=st.sampled_from([(8, 8), (16, 16), (8, 24), (24, 8)]),
    strategy=st.sampled_from(["flat", "tree", "rank0", "p2p", "delta"]),
    ep=st.sampled_from([8, 16]),
)
def test_every_gpu_receives_what_its_side_holds(tp, shape, strategy, ep):
    name = "DeepSeek-V2-Lite" if shape[1] != 24 else "Qwen3-30B-A3B"
    attention, ffn = shape if name == "DeepSeek-V2-Lite" else (8, 8)
    w = job(
        f"model={name}", f"generation.tp={tp}", f"training.ep={ep}",
        f"weight_sync.strategy={strategy}", "cluster.generation_gpus=96",
        attention=attention, ffn=ffn,
    )  # fmt: skip
    got = sum(
        np.bincount(level.flows.dst, level.flows.size, w.gpus) for level in STRATEGIES[strategy](w)
    )
    attends, holds = side_weight_bytes(w.model, tp, ffn, "bf16")
    scale = sync_bytes(w) / w.model.weight_bytes
    part = np.array([attends] * attention + [holds] * ffn) * scale
    assert got[: w.first_generation_gpu].sum() == 0
    for replica in w.replicas:
        assert got[replica] == pytest.approx(part)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("pipeline", ["sync", "one-step-off", "async"])
def test_every_strategy_and_pipeline_serves_them(strategy, pipeline):
    w = job(f"weight_sync.strategy={strategy}", f"pipeline={pipeline}", "steps=2")
    assert sent(trace_of(w))  # a trace is held against formulas and the plan


@pytest.mark.parametrize(
    ("name", "copies"), [("grpo-64-moe", 48 * 8), ("grpo-64", 48 * 1)], ids=["experts", "dense"]
)
def test_a_token_goes_to_its_experts_or_to_each_server_of_the_ffn(name, copies):
    for servers in (1, 2):
        w = job("cluster.generation_gpus=96", name=name, attention=16, ffn=8 * servers)
        made = step_of_job(w, 0, 0).generated
        tokens = sum(
            made.computed_tokens(r, w.generation.group_size) for r in range(len(w.replicas))
        )
        each = 2 * w.model.hidden * 2 * copies * (servers if name == "grpo-64" else 1)
        assert sent(trace_of(w)) == pytest.approx(tokens * each, rel=1e-4)


def test_inside_a_server_nothing_crosses():
    trace = trace_of(job(attention=4, ffn=4, name="grpo-64"))
    assert (0, "generation", "ffn") not in trace.communication()


def test_sending_hides_beside_the_other_half_until_it_takes_longer():
    fast, slow = job(), job("cluster.nic=10Gbit/s")
    for w, exposed in ((fast, False), (slow, True)):
        phase = plan_of(w).phases[0]
        assert (phase.comm > 0.1 * phase.seconds) == exposed
        result = simulate(parse_fabric("ideal", w.gpus, nic=w.nic_bps), trace_of(w))
        assert result.phases[0].seconds == pytest.approx(phase.window, rel=0.02)


def test_two_sides_do_what_one_engine_does():
    w = job("generation.tp=1")
    s = server_of(w)
    both, whole = sides_of(s, 8), step_of(s)
    assert both.attention.kv_s_per_token == whole.kv_s_per_token
    for work in ("matmul_s_per_response", "matmul_s_per_prompt_token"):
        parts = getattr(both.attention, work) * s.ranks + getattr(both.ffn, work) * 8
        assert parts == pytest.approx(getattr(whole, work) * s.ranks)
    # either side reads its weights for each half of a batch
    assert both.ffn.experts_s == pytest.approx(2 * whole.experts_s)
    more = sides_of(s, 16)
    assert more.ffn.seconds(64, 1e5) < both.ffn.seconds(64, 1e5)
    assert more.attention == both.attention


@given(
    base=st.floats(0, 2), grows=st.floats(0, 0.01), ffn=st.floats(0, 3), n=st.integers(1, 50),
    steps=st.integers(1, 200), context=st.integers(0, 500),
)  # fmt: skip
def test_steps_in_a_row_are_the_sum_of_steps(base, grows, ffn, n, steps, context):
    sides = Sides(
        DecodeStep(base, grows, 0.0, 0.0, 0.1, 0.0), DecodeStep(ffn, 0.0, 0.0, 0.0, 0.1, 0.0)
    )
    each = sum(sides.seconds(n, context + n * i) for i in range(steps))
    assert sides.seconds(n, context, steps) == pytest.approx(each)
    assert sides.mixed(n, context, 0, 0) == pytest.approx(sides.seconds(n, context))


@given(
    base=st.floats(0, 2), grows=st.floats(0, 0.01), ffn=st.floats(0, 3), n=st.integers(1, 50),
    most=st.integers(1, 200), context=st.integers(0, 500), seconds=st.floats(0, 500),
)  # fmt: skip
def test_the_steps_of_a_time_are_the_fewest_that_take_it(
    base, grows, ffn, n, most, context, seconds
):
    attention = DecodeStep(base, grows, 0.0, 0.0, 0.1, 0.0)
    for engine in (attention, Sides(attention, DecodeStep(ffn, 0.0, 0.0, 0.0, 0.1, 0.0))):
        few = engine.steps_in(seconds, n, context, most)
        assert few == most or engine.seconds(n, context, few) >= seconds
        assert few == 1 or engine.seconds(n, context, few - 1) < seconds


@pytest.mark.parametrize("pipeline", ["sync", "async"])
def test_agents_take_their_turns(pipeline):
    """Who comes back from its environment joins between two steps of those that decode."""
    few = "generation.batch=16", "generation.group_size=4", "generation.max_response=4096"
    turns = "generation.turns=3", "generation.environment_latency=20s"
    w = job(*few, *turns, "generation.observation=50", f"pipeline={pipeline}")
    assert {account.phase for account in accounts(w)} == {p.kind for p in plan_of(w).phases}
    result = simulate(parse_fabric("ideal", w.gpus, nic=w.nic_bps), trace_of(w))
    for phase in result.phases:
        assert phase.seconds == pytest.approx(plan_of(w).windows[phase.key], rel=0.02)


def test_circuits_join_attention_with_its_ffn():
    overrides = [f"cluster.{pool}_gpus=64" for pool in ("training", "generation")]
    w = job("cluster.nic=2Gbit/s", *overrides, attention=16, ffn=16)
    fabric, trace = w.needs.fabric("rfabric,electrical=1Gbit/s"), trace_of(w).folded()
    took = {
        name: simulate(fabric, trace, name).phases[0].seconds
        for name in ("static", "isolated-pod", "bipartite", "phase")
    }
    assert took["bipartite"] < 0.9 * took["isolated-pod"] < 0.9 * took["static"]
    assert took["phase"] <= 1.01 * took["bipartite"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["generation.attention_gpus=8"], "attention_gpus: 8, but generation.ffn_gpus is 0"),
        (["generation.ffn_gpus=12"], "12 does not divide the 128 experts of Qwen3-30B-A3B"),
        (["generation.ffn_gpus=8", "generation.ep=8"], "generation.ep: 8 where the FFN stands on"),
        (
            ["generation.ffn_gpus=4", "generation.attention_gpus=6"],
            "attention_gpus: 6 is not a multiple of generation.tp 4; use 4 or 8",
        ),
        (["generation.ffn_gpus=8", "generation.prefill_gpus=12"], "generation.prefill_gpus: 12"),
        (
            ["generation.ffn_gpus=8", "placement=colocated", "cluster.generation_gpus=32"],
            "placement: colocated has no replicas where the FFN",
        ),
        (["generation.ffn_gpus=16"], "not a multiple of generation.attention_gpus . ffn_gpus 20"),
        (["generation.ffn_gpus=-4"], "generation.ffn_gpus: -4 must be 0 or more"),
        (
            ["model=Qwen3-235B-A22B", "generation.ffn_gpus=4", "training.ep=32"],
            "ffn_gpus: 4 H800 hold .* GB of Qwen3-235B-A22B's MLPs and experts each",
        ),
    ],
)
def test_what_cannot_stand_apart_is_refused(overrides, message):
    with pytest.raises(RFabricError, match=message):
        read_recipe("grpo-64-moe", overrides)


def test_a_dense_mlp_is_cut_by_its_own_gpus():
    with pytest.raises(RFabricError, match="ffn_gpus: 5 does not divide the 13824 columns of"):
        job(name="grpo-64", attention=2, ffn=5)


@pytest.mark.parametrize("scheduler", ["orchestrrl", "rollpacker", "rollart"])
def test_schedulers_of_plain_replicas_say_so(scheduler):
    with pytest.raises(RFabricError, match=f"scheduler {scheduler} .* whose GPUs all attend"):
        read_traffic("grpo-64", ["generation.ffn_gpus=2"], scheduler=scheduler)

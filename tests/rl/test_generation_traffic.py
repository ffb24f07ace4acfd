"""What generation sends: tokens to experts that are dealt to more GPUs than tp, KV cache of prompts
that others read; what each GPU takes of the weights, and jobs that cannot be.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute.memory import engine_weight_bytes
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.rl import STRATEGIES, read_recipe, trace_of
from rfabric.rl.phases import step_of
from rfabric.rl.plan import plan_of
from rfabric.rl.timing import decode_step
from rfabric.rl.traffic import generation_traffic
from rfabric.rl.weight_sync import sync_bytes
from rfabric.schedulers.traffic import read_traffic
from rfabric.simulate.world import simulate

WHOLE = ("flat", "tree", "rank0", "p2p", "delta")  # a GPU receives its part and nothing else


def job(*overrides, ep=16, name="grpo-64-moe"):
    return read_recipe(name, [f"generation.ep={ep}", *overrides])


@settings(max_examples=20)
@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    ep=st.sampled_from([8, 16, 32]),
    pod=st.sampled_from([16, 32]),
    training=st.sampled_from([8, 16, 32]),
    strategy=st.sampled_from(WHOLE),
)
def test_every_gpu_receives_its_part_once_from_who_trains(tp, ep, pod, training, strategy):
    w = job(
        f"generation.tp={tp}", f"cluster.gpus_per_pod={pod}", f"training.ep={training}",
        f"weight_sync.strategy={strategy}", ep=ep,
    )  # fmt: skip
    got = sum(
        np.bincount(level.flows.dst, level.flows.size, w.gpus) for level in STRATEGIES[strategy](w)
    )
    part = engine_weight_bytes(w.model, tp, ep=ep) * sync_bytes(w) / w.model.weight_bytes
    assert got[: w.first_generation_gpu].sum() == 0
    assert got[w.first_generation_gpu :] == pytest.approx(part)


@settings(max_examples=10)
@given(tp=st.sampled_from([1, 2, 4, 8]), ep=st.sampled_from([8, 16, 32]))
def test_each_token_goes_to_its_experts_and_back(tp, ep):
    w = job(f"generation.tp={tp}", ep=ep)
    step = step_of(w, 0, 0)
    m, server, sent = w.model, w.gpus_per_server, 0.0
    for r, replica in enumerate(w.replicas):
        tokens = step.generated.computed_tokens(r, w.generation.group_size)
        elsewhere = 1 - server / len(replica)  # of experts chosen evenly: not in a token's server
        sent += 2 * tokens * m.experts.layers * m.experts.per_token * m.hidden * 2 * elsewhere
    loops = [loop for loop in generation_traffic(w, step).experts if loop]
    assert bool(loops) == (ep > server)
    flows = [(loop.repeat, turn.flows) for loop in loops for turn in loop.turns]
    assert sum(repeat * sum(f.size) for repeat, f in flows) == pytest.approx(sent)
    assert all(
        a // server != b // server for _, f in flows for a, b in zip(f.src, f.dst, strict=True)
    )


def test_dealing_makes_room_and_costs_the_fabric():
    cut, dealt = job(ep=1), job(ep=16)
    assert (len(cut.replicas), len(dealt.replicas)) == (8, 2)
    per_gpu = [w.kv_capacity_tokens / w.generation.gpus for w in (cut, dealt)]
    assert per_gpu[1] > per_gpu[0]
    trace = trace_of(dealt)
    assert {"all-to-all", "experience"} == {
        label for step, phase, label in trace.communication() if phase == "generation"
    }
    fast, slow = (
        generation_of(simulate(parse_fabric(name), trace))
        for name in ("fat-tree", "fat-tree,oversubscription=4")
    )
    plan = plan_of(dealt)
    assert plan.phases[0].window == pytest.approx(fast, rel=0.02)
    assert slow > fast * 1.02


def generation_of(result):
    return next(p.seconds for p in result.phases if p.key.phase == "generation")


def test_tokens_inside_a_server_take_no_wire_and_their_own_time():
    inside, across = decode_step_of(8), decode_step_of(32)
    assert inside.overhead_s_per_token > 0
    # of 32 GPUs a quarter is reached over NVLink, so a token costs NVLink less than among 8
    assert across.overhead_s_per_token * 4 < inside.overhead_s_per_token * 1.5


def decode_step_of(ep):
    return decode_step(job("generation.tp=1", ep=ep))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["generation.ep=24"], "24 does not divide the 128 experts of Qwen3-30B-A3B"),
        (["generation.ep=2"], "2 is not a multiple of generation.tp 4"),
        (["generation.ep=64"], "32 is not a multiple of generation.ep 64"),
        (["generation.ep=0"], "generation.ep"),
        (["generation.tp=1", "generation.ep=128"], "multiple of generation.ep 128"),
    ],
)
def test_what_cannot_be_dealt_is_refused(overrides, message):
    with pytest.raises(RFabricError, match=message):
        read_recipe("grpo-64-moe", overrides)


def test_a_dense_model_has_nothing_to_deal():
    with pytest.raises(RFabricError, match="no experts to deal out; leave it out"):
        job(name="grpo-64")


@pytest.mark.parametrize("scheduler", ["orchestrrl", "rollpacker", "rollart"])
def test_schedulers_that_cut_by_tp_say_so(scheduler):
    with pytest.raises(RFabricError, match=f"scheduler {scheduler} knows replicas of tp GPUs"):
        read_traffic("grpo-64-moe", ["generation.ep=16"], scheduler=scheduler)
    with pytest.raises(RFabricError, match=f"scheduler {scheduler} .* read their own prompts"):
        read_traffic("grpo-64", ["generation.prefill_gpus=8"], scheduler=scheduler)


@pytest.mark.parametrize(
    "how", ["pipeline=sync", "pipeline=one-step-off", "pipeline=async", "placement=colocated"]
)
def test_every_pipeline_serves_them(how):
    w = job(how, "steps=2")
    trace = trace_of(w)  # holds bytes and seconds against formulas and the plan
    assert any(key[1:] == ("generation", "all-to-all") for key in trace.communication())


# --- prompts that other replicas read -------------------------------------------------------------


@settings(max_examples=15)
@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    reading=st.integers(1, 3),
    server=st.sampled_from([4, 8]),
    pipeline=st.sampled_from(["sync", "one-step-off", "bounded-staleness"]),
)
def test_kv_of_all_prompts_crosses_and_every_wait_is_in_the_plan(tp, reading, server, pipeline):
    tp = min(tp, server)
    w = read_recipe(
        "grpo-64",
        [
            f"generation.tp={tp}", f"generation.prefill_gpus={reading * tp}",
            f"cluster.gpus_per_server={server}", f"pipeline={pipeline}",
        ],
    )  # fmt: skip
    trace = trace_of(w)  # holds bytes and seconds against formulas and the plan
    step = step_of(w, 0, 0)
    made, group = step.generated, w.generation.group_size
    assert len(made.times) == len(w.replicas) - reading
    prompts = sum(int(p[::group].sum()) for p in made.prompts)
    rows = trace.communication().get((0, "generation", "KV"), [])
    sent = sum(int(trace.total[row]) for row in rows)
    assert sent <= prompts * w.model.kv_bytes_per_token + len(rows)
    readers = {gpu for replica in w.prefilling for gpu in replica}
    assert not readers & {gpu for replica in w.decoding for gpu in replica}
    if tp == server:  # a replica a server: nothing stays inside
        assert sent >= prompts * w.model.kv_bytes_per_token


def test_who_reads_alone_reads_in_turn_and_decoding_pays_for_no_prompt():
    own = read_recipe("grpo-64")
    one = read_recipe("grpo-64", ["generation.prefill_gpus=2"])
    two = read_recipe("grpo-64", ["generation.prefill_gpus=4"])
    made = [step_of(w, 0, 0).generated for w in (own, one, two)]
    assert made[0].reading == () and len(made[1].reading) == 15
    assert made[1].times[-1].idle == pytest.approx(sum(made[1].reading))
    assert max(t.idle for t in made[2].times) < made[1].times[-1].idle
    for apart in made[1:]:
        # reading leaves those that decode the last token of each prompt
        assert max(t.prefill for t in apart.times) < min(t.prefill for t in made[0].times) / 4


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["generation.prefill_gpus=5"], "5 must be a multiple of the 2 GPUs of a replica"),
        (["generation.prefill_gpus=32"], "below the 32 that generate; use 2 or 0"),
        (
            ["generation.prefill_gpus=2", "cluster.generation_gpus=2"],
            "below the 2 that generate; use 0, or more cluster.generation_gpus",
        ),
        (["generation.prefill_gpus=-4"], "prefill_gpus"),
        (["generation.prefill_gpus=16", "generation.tp=16"], "16 GPUs leave servers of 8"),
        (["generation.prefill_gpus=4", "generation.turns=3"], "with 3 turns prompts come while"),
        (["generation.prefill_gpus=4", "pipeline=async"], "with pipeline async prompts come"),
    ],
)
def test_what_cannot_read_apart_is_refused(overrides, message):
    with pytest.raises(RFabricError, match=message):
        read_recipe("grpo-64-moe" if "tp=16" in str(overrides) else "grpo-64", overrides)

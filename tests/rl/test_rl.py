"""The RL phase model: times follow rooflines, bytes closed forms, and the trace the plan."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import recipe

from rfabric.compute import GPUS
from rfabric.compute.roofline import DecodeStep
from rfabric.errors import RFabricError
from rfabric.rl import STRATEGIES, explain, flows, padding, phases, plan_of, read_recipe, trace_of
from rfabric.rl.phases import step_of
from rfabric.rl.timing import decode_step
from rfabric.schedulers.traffic import read_traffic
from rfabric.trace import PHASES, PhaseKey


def sent(trace, phase: str, label: str) -> np.ndarray:
    """Bytes of the rows of one communication phase, in the order they stand."""
    return trace.total[trace.communication().get((0, phase, label), np.zeros(0, int))]


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
        step.seconds(1, 0) - step.overhead_s - step.overhead_s_per_token - step.own_s_per_response
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
    dealt = padding.balance(lengths, ranks)
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


@pytest.mark.parametrize(("pp", "vp", "boundaries"), [(2, 3, 5), (2, 2, 3), (4, 3, 11)])
def test_stages_in_chunks_send_activations_at_every_boundary_of_a_chunk(pp, vp, boundaries):
    """Where each stage fills servers of its own, from each chunk to the next: vp pp - 1 times."""
    one = recipe(f"training.pp={pp}", "training.tp=8", "training.recompute=full")
    many = recipe(f"training.pp={pp}", "training.tp=8", "training.recompute=full",
                  f"training.vp={vp}")  # fmt: skip
    once, often = (sent(trace_of(w, 1), "training", "pipeline").sum() for w in (one, many))
    assert often == pytest.approx(once * boundaries / (pp - 1), rel=1e-6)


@pytest.mark.parametrize("tp, pp", [(2, 2), (4, 2), (2, 4), (2, 8)])
@pytest.mark.parametrize("times", [(1, 1), (3, 0), (0, 0)])
def test_activations_are_those_of_each_rank(tp, pp, times):
    w = recipe(f"training.tp={tp}", f"training.pp={pp}", "training.recompute=full")
    tokens, every = np.arange(w.dp) / 3, []
    for stage in range(pp - 1):
        for d, count in enumerate(tokens):
            first, size = w.rank(stage, d), count * w.model.hidden * 2 / tp
            pairs = [(a, a + w.rank(1, 0)) for a in range(first, first + tp)]
            for many, ends in zip(times, (pairs, [(b, a) for a, b in pairs]), strict=True):
                every += [(*pair, size * many) for pair in ends if many]
    leaving = [flow for flow in every if flow[0] // 8 != flow[1] // 8]
    assert list(zip(*flows.pipeline(w, tokens, *times), strict=True)) == leaving


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


JOBS = st.fixed_dictionaries(
    {
        "training.tp": st.sampled_from([2, 4, 8]),
        "training.pp": st.sampled_from([1, 2]),
        "training.buckets": st.integers(1, 4),
        "training.mini_batches": st.sampled_from([1, 2, 4]),
        "training.optimizer": st.sampled_from(["distributed", "replicated", "zero1"]),
        "generation.tp": st.sampled_from([1, 2, 4, 8]),
        "generation.group_size": st.integers(2, 6),
        "weight_sync.strategy": st.sampled_from(sorted(STRATEGIES)),
        "steps": st.integers(1, 2),
    }
)


# --- the trace ------------------------------------------------------------------------------------


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
        RFabricError, match="generation.gpu: H20 cannot be where placement is colocated"
    ):
        read_recipe("grpo-64-h20", ["placement=colocated"])


# --- responses that are dropped -------------------------------------------------------------------


@given(st.integers(0, 200), st.integers(0, 9))
@settings(max_examples=10)
def test_dropped_responses_take_generation_and_teach_nothing(more, seed):
    plain = recipe()
    g = plain.generation
    w = recipe(f"generation.prompts={g.batch + more}")
    alone, step = step_of(plain, seed, 0), step_of(w, seed, 0)
    assert step.trained.seconds(1) == alone.trained.seconds(1)
    assert np.array_equal(step.trained.log_prob_tokens, alone.trained.log_prob_tokens)
    assert sum(map(len, step.generated.outputs)) == (g.batch + more) * g.group_size
    outputs = np.concatenate(step.generated.outputs)
    assert np.array_equal(outputs[: g.responses], np.concatenate(alone.generated.outputs))
    if not more:
        assert step.generated.seconds == alone.generated.seconds


def test_prompts_are_no_fewer_than_those_trained_on():
    with pytest.raises(RFabricError, match="generation.prompts: 1 prompts are fewer than"):
        recipe("generation.prompts=1")


@pytest.mark.parametrize("scheduler", ["rollart", "rollpacker"])
def test_who_chooses_what_is_trained_on_refuses_prompts_to_drop(scheduler):
    with pytest.raises(RFabricError, match=f"scheduler {scheduler} chooses what is trained on"):
        read_traffic("grpo-64", ["generation.prompts=1024"], 0, scheduler)

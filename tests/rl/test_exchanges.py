"""What training exchanges layer by layer: as many bytes and seconds as the job has, dealt over
loops; skewed experts.
"""

import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rfabric.compute import training
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.rl import explain, flows, plan_of, read_recipe, trace_of
from rfabric.rl.exchanges import of_log_probs, of_sharded, of_update, training_passes
from rfabric.rl.phases import step_of
from rfabric.rl.popularity import imbalance, popularity, routing
from rfabric.rl.sharing import log_probs_exposed, update_exposed_sharded
from rfabric.rl.timing import trainer_of
from rfabric.rl.traffic import training_traffic
from rfabric.simulate.world import simulate
from rfabric.trace import Flows, PhaseKey

SMALL = ("generation.batch=32", "generation.group_size=4")
WIDE = ("training.tp=8", "cluster.gpus_per_server=4")  # tensor-parallel groups over two servers
SHARDED = ("training.optimizer=sharded", "training.recompute=full", "training.mini_batches=2")

job = functools.cache(lambda name, *overrides: read_recipe(name, [*SMALL, *overrides]))
# 26 layers with experts
LITE = ("model=DeepSeek-V2-Lite", "training.mini_batches=1", "training.log_prob_passes=1")
OVERLAPPED = (
    "training.ep=16",
    "training.recompute=selective",
    "training.buckets=5",
    "training.mini_batches=2",
    "training.log_prob_passes=0",
    "training.overlap_batches=true",
)
EXCHANGING = [
    ("grpo-64-moe", *LITE),
    ("grpo-64", *WIDE, "training.mini_batches=1"),
    ("grpo-64", *SHARDED),
    ("grpo-64-moe", *LITE, "training.skew=0.7"),
    ("grpo-64-moe", *LITE, "cluster.gpus_per_server=2"),
    # by exchanges that all go before gradients the plan would be 4 % and 5 % too long
    ("grpo-64-moe", *OVERLAPPED, "training.skew=0.5", "training.skew_layers=2"),
    ("grpo-64-moe", *OVERLAPPED, "training.skew=1.2", "training.skew_layers=3"),
]


def training_seconds(w, trace) -> float:
    """Seconds of training on one ideal switch."""
    (seconds,) = [
        p.seconds
        for p in simulate(parse_fabric("ideal", w.gpus), trace).phases
        if p.key.phase == "training"
    ]
    return seconds


MIXTURES = st.fixed_dictionaries(
    {
        "training.ep": st.sampled_from([16, 32]),
        "training.pp": st.sampled_from([1, 2]),
        "training.recompute": st.sampled_from(["full", "selective"]),
        "training.buckets": st.integers(1, 5),
        "training.mini_batches": st.sampled_from([1, 2]),
        "training.log_prob_passes": st.integers(0, 2),
        "training.micro_batch_tokens": st.sampled_from([18432, 40000]),
        "training.overlap_batches": st.sampled_from(["true", "false"]),
        "training.skew": st.sampled_from([0, 0, 0.5, 1.2]),
        "training.skew_layers": st.integers(1, 3),
    }
)


@settings(deadline=None, max_examples=15)
@given(MIXTURES, st.integers(0, 2**16))
def test_loops_send_all_and_compute_all(wanted, seed):
    try:
        w = job("grpo-64-moe", *(f"{k}={v}" for k, v in wanted.items()))
    except RFabricError:
        assume(False)
    trace, trained = trace_of(w, seed), step_of(w, seed, 0).trained
    rows = trace.communication()[0, "training", "all-to-all"]
    merged = [(trained.log_prob_tokens, w.training.log_prob_passes)]
    merged += [(batch.tokens, training_passes(w)) for batch in trained.mini_batches]
    even = sum(sum(flows.experts_training(w, *each).size) for each in merged)
    # uneven ranks meet uneven experts
    own = max(np.ptp(tokens) / tokens.mean() for tokens, _ in merged)
    assert trace.total[rows].sum() == pytest.approx(
        even, rel=1e-5 + (own if w.training.skew else 0)
    )
    plan = plan_of(w, seed)
    assert trace.compute_only()[1].max() == pytest.approx(plan.seconds, rel=1e-9)
    (seconds,) = [p.window for p in plan.phases if p.kind == "training"]
    assert training_seconds(w, trace.folded()) == pytest.approx(seconds, rel=0.01)


def test_every_layer_of_every_pass_and_micro_batch_exchanges():
    w = job("grpo-64-moe")
    t, layers, step = w.training, w.model.experts.layers, step_of(w, 0, 0)
    trained = step.trained
    micro = trained.log_prob_micro_batches
    assert of_log_probs(w, trained).repeat == 2 * layers * t.log_prob_passes * micro
    for batch in trained.mini_batches:
        loops = of_update(w, batch, None)
        assert len(loops) == t.buckets and t.recompute == "full"
        assert sum(loop.repeat for loop in loops) == 2 * layers * 3 * batch.micro_batches
        assert [loop.repeat for loop in loops[1:]] == [2 * layers * 2 // t.buckets] * (
            t.buckets - 1
        )
        assert sum(loop.seconds for loop in loops) == pytest.approx(batch.seconds(t.buckets))
    assert len(training_traffic(w, step).loops) == len(trace_of(w).loops)


def test_buckets_leave_while_the_last_backward_pass_exchanges():
    w = job("grpo-64-moe", *LITE)
    trace = trace_of(w)
    bucket, experts = (
        trace.communication()[0, "training", x] for x in ("reduce-scatter", "all-to-all")
    )
    waits = [int(trace.loop[trace.waits_for(row)].max()) for row in bucket]
    # all but the loop of the log-probabilities
    assert sorted(set(waits)) == [n for n in range(len(trace.loops)) if n]
    result = simulate(parse_fabric("ideal", w.gpus), trace.unrolled())
    made = result.trace
    start, finish = (
        getattr(result, name)[made.label == made.labels.index("reduce-scatter")]
        for name in ("start", "finish")
    )
    mine = result.start[(made.label == made.labels.index("all-to-all")) & (made.size > 0)]
    assert (
        sum(((mine > a) & (mine < b)).any() for a, b in zip(start, finish, strict=True))
        > len(bucket) / 3
    )
    # each GPU and the eight of its group in the other server
    assert len(experts) == len(trace.loops) * 32 * 8


@pytest.mark.parametrize("which", EXCHANGING, ids=str)
def test_all_ways_to_the_seconds_of_training_agree(which):
    """Plan, folded and every repetition on an ideal switch."""
    w = job(*which)
    trace, planned = trace_of(w), plan_of(w).windows[PhaseKey(0, "training")]
    folded, every = training_seconds(w, trace.folded()), training_seconds(w, trace.unrolled())
    assert [folded, every] == pytest.approx([planned, planned], rel=0.01)
    (step,) = [item for item in explain(w) if item.phase == "step"]
    result = simulate(parse_fabric("ideal", w.gpus), trace)
    assert step.seconds == pytest.approx(result.step_seconds, rel=0.01)


def test_overlap_hides_what_is_shorter():
    """max(computing, exchange) instead of their sum, with the same bytes in twice as many exchanges
    of half the size.
    """
    plain, overlapped = job("grpo-64-moe"), job("grpo-64-moe", "training.overlap_batches=true")
    a, b = (training_traffic(w, step_of(w, 0, 0)).loops for w in (plain, overlapped))
    for one, other in zip(a, b, strict=True):
        (turn,), (half,) = one.turns, other.turns
        wire = one.repeat * flows.wire_seconds(plain, turn.flows)
        assert other.exposed(overlapped) == pytest.approx(max(0.0, wire - other.seconds), abs=1e-9)
        assert one.exposed(plain) == pytest.approx(wire) and one.seconds == other.seconds
        assert other.repeat == pytest.approx(2 * one.repeat, abs=1)
        assert sum(half.flows.size) * other.repeat == pytest.approx(
            sum(turn.flows.size) * one.repeat
        )
    assert training_seconds(overlapped, trace_of(overlapped).folded()) < training_seconds(
        plain, trace_of(plain).folded()
    )


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_sharded_parameters_are_gathered_and_gradients_scattered_in_every_micro_batch(ahead):
    """Layers twice in those of an update, once in those of passes for log-probabilities; embedding
    and logits, FSDP's root, once in either: all micro-batches of the latter keep them.
    """
    w = job("grpo-64", *SHARDED, f"training.log_prob_passes={ahead}")
    gather, scatter, _ = flows.sharded(w).values()
    root = 2 * 152_064 * 5120 + 5120  # Qwen2.5-14B
    again = sum(gather.size) * (1 - root / w.model.parameters)
    assert sum(flows.gathered_again(w).size) == pytest.approx(again)
    (n, m, t) = w.dp, w.model, w.training
    # a data-parallel group runs a channel for each of its GPUs in a server
    rings = t.tp * min(8 // t.tp, n)
    assert sum(gather.size) == pytest.approx(
        (n - 1) / n * 2 * m.parameters / t.tp * t.tp * (4 * rings) / rings
    )
    trace, trained = trace_of(w), step_of(w, 0, 0).trained
    micro = sum(b.micro_batches for b in trained.mini_batches)
    for label, sent in (
        (
            "all-gather",
            (micro + ahead) * sum(gather.size)
            + (micro + ahead * (trained.log_prob_micro_batches - 1)) * again,
        ),
        ("reduce-scatter", micro * sum(scatter.size)),
    ):
        rows = trace.communication()[0, "training", label]
        assert trace.total[rows].sum() == pytest.approx(sent, rel=1e-6)
        assert (trace.loop[rows] >= 0).all()
    assert sum(scatter.size) == 2 * sum(gather.size)  # fp32 and bf16


@pytest.mark.parametrize("nic", ["400Gbit/s", "20Gbit/s", "5Gbit/s"])
def test_what_computing_does_not_hide_of_sharded_layers_is_exposed(nic):
    w = job("grpo-64", *SHARDED, f"cluster.nic={nic}")
    for batch in step_of(w, 0, 0).trained.mini_batches:
        loop, (gather, scatter, _) = (
            of_sharded(w, batch),
            (flows.wire_seconds(w, f) for f in flows.sharded(w).values()),
        )
        again = flows.wire_seconds(w, flows.gathered_again(w))
        computing = batch.seconds(w.training.buckets)
        ahead, back = batch.micro_batches * gather, batch.micro_batches * (again + scatter)
        expected = max(ahead, batch.forward_share * computing) + max(
            back, (1 - batch.forward_share) * computing
        )
        assert computing + loop.exposed(w) == pytest.approx(expected)


@pytest.mark.parametrize("nic", ["400Gbit/s", "5Gbit/s"])
def test_what_log_probabilities_do_not_hide_of_sharded_layers_is_exposed(nic):
    w = job("grpo-64", *SHARDED, f"cluster.nic={nic}")
    step = step_of(w, 0, 0)
    sent, computing = training_traffic(w, step).log_probs, float(step.trained.log_prob.max())
    gather = flows.wire_seconds(w, flows.sharded(w)["all-gather"])
    again = flows.wire_seconds(w, flows.gathered_again(w))
    later = step.trained.log_prob_micro_batches - 1
    gathers = w.training.log_prob_passes * (gather + later * again)
    lasts = computing + log_probs_exposed(w, sent.loop, sent.sharded)
    assert lasts == pytest.approx(max(computing, gathers))
    assert (gathers > computing) == (nic == "5Gbit/s")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("grpo-64-moe", ()),
        ("grpo-64-moe", ("cluster.nic=50Gbit/s",)),
        ("grpo-64", ("training.cp=4", "cluster.nic=100Gbit/s")),
        ("grpo-64", ("cluster.gpus_per_server=2", "training.buckets=1")),
        ("grpo-64", ("cluster.gpus_per_server=1", "training.tp=2")),
    ],
)
def test_sharded_layers_and_exchanges_share_their_nics(name, changes):
    """The plan against the simulated trace; no NIC sends more than its rate."""
    w = job(name, *SHARDED, *changes)
    made = plan_of(w)
    (window,) = [phase.window for phase in made.phases if phase.kind == "training"]
    result = simulate(w.needs.fabric("ideal"), trace_of(w))
    (took,) = [phase.seconds for phase in result.phases if phase.key.phase == "training"]
    assert window == pytest.approx(took, rel=0.05)
    step = step_of(w, 0, 0)
    for batch, sent in zip(
        step.trained.mini_batches, training_traffic(w, step).updates, strict=True
    ):
        loops = [*sent.loops, sent.sharded]
        every = [
            Flows(turn.flows.src, turn.flows.dst, np.multiply(turn.flows.size, loop.repeat))
            for loop in loops
            for turn in loop.turns
        ]
        computing = batch.seconds(w.training.buckets)
        lasts = computing + update_exposed_sharded(w, sent.loops, sent.sharded)
        assert lasts >= flows.wire_seconds(w, flows.join(every)) * (1 - 1e-9)
        assert lasts >= computing + update_exposed_sharded(w, sent.loops, None) * (1 - 1e-9)
        assert lasts >= computing + sent.sharded.exposed(w) * (1 - 1e-9)


def test_sharding_leaves_room_in_memory_and_nothing_to_gather_after_the_update():
    whole, parts = job("grpo-64", "training.recompute=full"), job("grpo-64", *SHARDED)
    needs = [w.training_bytes for w in (whole, parts)]
    m, tp = parts.model, parts.training.tp
    root = (2 * m.vocab * m.hidden + m.hidden) / tp
    layer = (m.parameters / tp - root) / m.layers
    of_a_stage = whole.model.parameters / whole.training.tp
    for key, size, of_fp32 in (("parameters", 2, 4), ("gradients", 4, 4)):
        assert needs[0][key] == size * of_a_stage
        assert whole.dp * needs[1][key] == of_fp32 * of_a_stage
    gathered = layer * (2 * 2 + 4) + root * (2 + 2)
    assert needs[1]["gathered"] == pytest.approx(gathered) and "gathered" not in needs[0]
    assert not flows.parameters(parts).src and not flows.gradients(parts).src
    # which fits no other way
    assert read_recipe("grpo-64", ["training.tp=1", *SHARDED]).training.tp == 1
    with pytest.raises(RFabricError, match="training: Qwen2.5-14B needs .* GB a GPU"):
        read_recipe("grpo-64", ["training.tp=1", "training.recompute=full"])


def test_colocated_replicas_wait_for_sharded_parameters_of_other_servers():
    w = job("grpo-64", *SHARDED, "placement=colocated", "cluster.generation_gpus=32")
    trace = trace_of(w)
    rows = trace.communication()[0, "weight_sync", "weights"]
    assert trace.size[rows].sum() == pytest.approx(
        sum(flows.sharded(w)["all-gather"].size), rel=1e-6
    )


# --- skewed experts -------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 64), st.floats(0, 10))
def test_popularity_is_a_share_of_tokens_that_takes_no_token_twice(count, per_token, skew):
    assume(per_token <= count)
    shares = popularity(count, per_token, skew)
    assert len(shares) == count and shares.sum() == pytest.approx(1)
    assert (np.diff(shares) <= 1e-15).all() and shares.min() >= 0
    assert shares.max() <= 1 / per_token * (1 + 1e-12)
    if skew == 0:
        assert shares == pytest.approx(np.full(count, 1 / count))
    unfilled = shares[shares < shares.max() * (1 - 1e-9)]
    # Zipf's law among those that not every token takes
    if len(unfilled) > 1 and unfilled[-1] > 1e-12:
        first = count - len(unfilled) + 1
        assert unfilled[-1] / unfilled[0] == pytest.approx((first / count) ** skew, rel=1e-6)


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 2**16), st.integers(0, 4), st.floats(0.1, 3), st.sampled_from([0, 0.1, 0.5, 1])
)
def test_popularity_drifts_from_step_to_step(seed, step, skew, drift):
    w = job("grpo-64-moe", f"training.skew={skew}", f"training.drift={drift}", "training.ep=32")
    now, then, again = (routing(w, seed, n) for n in (step, step + 1, step))
    assert (
        now.shape == (2, 1, 32)
        and (now == again).all()
        and now.sum(axis=2) == pytest.approx(np.ones((2, 1)))
    )
    assert (now == then).all() == (drift == 0)
    assert not (now[0] == now[1]).all()  # each layer has ranks of its own
    assert 1 < imbalance(now) <= 32


def test_drift_moves_as_many_experts_as_it_says():
    settings = ("training.skew=1", "training.ep=32", "training.drift=0.25")
    w = read_recipe("grpo-1024-235b", [*settings, "training.ep=128", "training.skew_layers=1"])
    now, then = (routing(w, 3, n)[0, 0] for n in (0, 1))  # one expert a GPU
    assert (now != then).sum() == round(0.25 * 128)
    assert sorted(now) == pytest.approx(sorted(then))


@pytest.mark.parametrize("skew", [0.3, 1.0, 3.0])
def test_dispatch_follows_popularity_and_combine_is_its_transpose(skew):
    w = job("grpo-64-moe", f"training.skew={skew}", "training.ep=32", "training.skew_layers=1")
    shares, tokens = routing(w, 1, 0)[0], np.full(w.dp, 1000.0)
    there, back = (flows.dispatch(w, tokens, 1, shares, way) for way in (False, True))
    matrix, other = np.zeros((32, 32)), np.zeros((32, 32))
    matrix[there.src, there.dst], other[back.src, back.dst] = there.size, back.size
    assert (other == matrix.T).all()
    for gpu in range(32):
        sent = matrix[:, gpu][matrix[:, gpu] > 0]
        assert sent == pytest.approx(np.full(24, sent[0])) and sent[0] / shares[
            0, gpu
        ] == pytest.approx(there.size[0] / shares[0, there.dst[0]])
    even = flows.experts_training(w, tokens, 1)
    assert sum(there.size) + sum(back.size) == pytest.approx(sum(even.size))
    assert max(there.size) > 1.1 * max(even.size) / 2


def test_more_skew_takes_longer_and_none_is_as_without():
    plain = trace_of(job("grpo-64-moe"))
    same = trace_of(
        job("grpo-64-moe", "training.skew=0", "training.drift=0.5", "training.skew_layers=3")
    )
    assert all(
        (getattr(plain, name) == getattr(same, name)).all()
        for name in ("src", "dst", "size", "gap", "after")
    )
    assert plain.loops == same.loops
    rising = [
        job("grpo-64-moe", f"training.skew={s}", "training.drift=0.5") for s in (0, 0.3, 0.6, 1)
    ]
    computing, comm = (
        [getattr(plan_of(w).phases[1], what) for w in rising] for what in ("seconds", "comm")
    )
    assert (
        computing == sorted(computing)
        and comm == sorted(comm)
        and comm[0] < comm[1]
        and computing[0] < computing[1]
    )
    steps = [step_of(rising[-1], 0, n).trained.routing for n in range(2)]
    assert not (steps[0] == steps[1]).all()


def test_the_busiest_gpu_computes_for_all():
    """Tokens' share of the experts' matmuls grows by their imbalance, all else stays."""
    w = job("grpo-64-moe", "training.skew=1", "efficiency.training=0.4")
    even = job("grpo-64-moe", "efficiency.training=0.4")
    hot, cold = (step_of(x, 0, 0).trained for x in (w, even))
    m = w.model
    tokens = hot.log_prob_tokens  # of each rank
    extra = (
        (imbalance(hot.routing) - 1) * 2 * (m.active_parameters - m.dense_parameters) * tokens / 4
    )
    seconds = extra / (w.gpu.bf16_flops * 0.4)
    assert (hot.log_prob_pass.seconds - cold.log_prob_pass.seconds) == pytest.approx(seconds)
    modelled = [
        step_of(job("grpo-64-moe", f"training.skew={s}"), 0, 0).trained.log_prob_pass
        for s in (0, 1)
    ]
    assert (modelled[1].matmul > modelled[0].matmul).all()
    assert (modelled[1].attention == modelled[0].attention).all()


@pytest.mark.parametrize("policy", ["rollpacker", "orchestrrl", "rollart"])
def test_every_scheduler_trains_on_skewed_experts(policy):
    from rfabric.schedulers.table import scheduled

    made = scheduled(
        job("grpo-64-moe", "training.skew=1", "steps=2", "training.drift=0.5"), 3, policy
    )
    for step in made.steps:
        assert (step.trained.routing == routing(made.workload, 3, step.number)).all()


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("grpo-64-moe", ["training.skew=-0.1"], ("training.skew: -0.1 must be 0 or more and 10 "
                                                 "at most")),
        ("grpo-64-moe", ["training.skew=.nan"], "training.skew: nan must be 0 or more"),
        ("grpo-64-moe", ["training.skew=high"], "training.skew: 'high' is not a number"),
        ("grpo-64-moe", ["training.drift=1.5"], ("training.drift: 1.5 must be 0 or more and 1 "
                                                 "at most")),
        ("grpo-64-moe", ["training.drift=0.01"], ("training.drift: 0.01 of 128 experts moves "
                                                  "fewer than two.*use 0.016")),
        ("grpo-64-moe", ["training.skew_layers=0"], "training.skew_layers: 0 must be 1 or more"),
        (
            "grpo-64-moe",
            ["training.skew=1", "training.skew_layers=49"],
            ("training.skew_layers: 49, but a pipeline stage of Qwen3-30B-A3B has 48 layers "
             "with experts; use 48 at most"),
        ),
        ("grpo-64", ["training.skew=1"], ("training.skew: 1.0, but Qwen2.5-14B has no experts; "
                                          "leave it out")),
        ("grpo-64", ["training.drift=0.5"], "training.drift: 0.5, but Qwen2.5-14B has no experts"),
        ("grpo-64", ["training.overlap_batches=true"], ("training.overlap_batches: True, but "
                                                        "Qwen2.5-14B has no experts")),
        ("grpo-64-moe", ["training.overlap_batches=1"], ("training.overlap_batches: 1 is "
                                                         "neither true nor false")),
        (
            "grpo-64-moe",
            ["training.overlap_batches=true", "training.ep=8"],
            ("experts on ep 8 GPUs stay in a server of 8, so no exchange enters the fabric; "
             "leave it out, or use a larger"),
        ),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(name, overrides, message):
    with pytest.raises(RFabricError, match=message):
        read_recipe(name, overrides)


# --- what the model's seconds and the trace's bytes count -----------------------------------------


@pytest.fixture(scope="module")
def a_second_a_byte():
    """Each collective of the model takes a second for a byte, and attention hides nothing."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(training, "collective_of", lambda t, kind, size, ranks, span: size)
        patched.setattr(
            training,
            "exchange_seconds",
            lambda what, *_: what.tokens * what.topk * what.hidden * 2.0,
        )
        patched.setattr(training, "_attention", lambda t, tokens, squares: 0.0)
        yield


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from(["Qwen3-30B-A3B", "Qwen2.5-7B", "DeepSeek-V2-Lite"]),
    tp=st.sampled_from([1, 2, 4]),
    cp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2]),
    ep=st.sampled_from([1, 2, 8]),
    exchange=st.sampled_from(["ring", "ulysses"]),
    recompute=st.sampled_from(["selective", "full"]),
)
@pytest.mark.usefixtures("a_second_a_byte")
def test_model_and_trace_count_the_same_collectives(model, tp, cp, pp, ep, exchange, recompute):
    """With one GPU a server everything leaves it. A ring's all-reduce of n ranks sends 2 (n - 1)
    times its bytes, the others the (n - 1)/n that a rank does not keep.
    """
    try:
        w = read_recipe(
            "grpo-64",
            [
                *(f"model={model}", "cluster.gpus_per_server=1", "cluster.training_gpus=32"),
                *(f"training.{key}={n}" for key, n in (("tp", tp), ("cp", cp), ("pp", pp))),
                *(f"training.context_exchange={exchange}", f"training.recompute={recompute}"),
                *(f"training.ep={ep}", "generation.tp=1", "placement=disaggregated"),
            ],
        )
    except RFabricError:
        assume(False)
    t = replace(trainer_of(w), between_servers=True, gpus_per_server=1)
    tokens, passes = np.full(w.dp, 1e6), training_passes(w)
    for made, both in (
        (training.forward(t, 1e6, 1e6), (1, 0)),
        (training.forward(t, 1e6, 1e6) + training.backward(t, 1e6, 1e6), (passes - 1, 1)),
    ):
        sent = {
            "tensor": flows.tensor_training(w, tokens, sum(both)),
            "context": flows.context_training(w, tokens, *both),
            "experts": flows.experts_training(w, tokens, sum(both)),
        }
        said = {
            "tensor": made.tensor * 2 * (tp - 1) * cp * pp * w.dp,
            "context": made.context * (cp - 1) / cp * t.layout.gpus,
            "experts": made.experts * (ep - 1) / ep * t.layout.gpus,
        }
        for label, one in sent.items():
            assert sum(one.size) == pytest.approx(said[label], rel=1e-9, abs=1e-3), label

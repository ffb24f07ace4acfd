"""How steps follow one another: what waits for what, in the plan and in the trace; colocated and
disaggregated.
"""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.folders import data_dir
from rfabric.rl import explain, flows, phases, plan_of, read_recipe, trace_of
from rfabric.rl.plan import phase_order, step_period, waits
from rfabric.simulate.world import simulate
from rfabric.trace import PhaseKey

PIPELINES = ("sync", "one-step-off", "bounded-staleness", "async")
COLOCATED = ("placement=colocated", "cluster.generation_gpus=32")
SMALL = ("generation.batch=32", "generation.group_size=4", "training.mini_batches=2")

job = functools.cache(lambda *overrides: read_recipe("grpo-64", overrides))


@pytest.fixture
def even(tmp_path):
    """A recipe whose responses are all of one length, so that every step takes as long."""
    (tmp_path / "even.csv").write_text("tokens\n3000\n3000\n")
    (tmp_path / "prompt.csv").write_text("tokens\n100\n100\n")
    (tmp_path / "job.yaml").write_text((data_dir("traffic") / "grpo-64.yaml").read_text())
    files = "generation.lengths=even.csv", "generation.prompt_lengths=prompt.csv"
    return lambda *settings: read_recipe(tmp_path / "job.yaml", [*files, *SMALL, *settings])


def behind(trace, key: PhaseKey) -> set[PhaseKey]:
    """The phases of which some row must be done before the last row of `key` is."""
    last = int(trace.rows(key)[-1])
    seen, todo = {last}, [last]
    while todo:
        for row in trace.waits_for(todo.pop()).tolist():
            if row not in seen:
                seen.add(row)
                todo.append(row)
    return {PhaseKey(int(trace.step[row]), trace.phases[trace.phase[row]]) for row in seen}


JOBS = st.fixed_dictionaries(
    {
        "pipeline": st.sampled_from(PIPELINES),
        "staleness": st.integers(1, 3),
        "steps": st.integers(1, 4),
        "training.pp": st.sampled_from([1, 2]),
        "generation.tp": st.sampled_from([2, 4]),
    }
)


@settings(deadline=None, max_examples=30)
@given(JOBS, st.integers(0, 2**16))
def test_the_trace_waits_as_the_plan_does(wanted, seed):
    if wanted["pipeline"] in ("sync", "one-step-off"):
        wanted = {k: v for k, v in wanted.items() if k != "staleness"}
    w = read_recipe("grpo-64", [*SMALL, *(f"{k}={v}" for k, v in wanted.items())])
    trace, plan = trace_of(w, seed), plan_of(w, seed)
    assert trace.compute_only()[1].max() == pytest.approx(plan.seconds, rel=1e-9)
    assert [PhaseKey(p.step, p.kind) for p in plan.phases] == phase_order(w)
    assert set(trace.phase_keys) == set(phase_order(w)) and trace.windows == plan.windows
    before = {key: behind(trace, key) for key in trace.phase_keys}
    for key in trace.phase_keys:
        assert set(waits(w, key)) <= before[key]
        # and nothing waits in a circle
        assert not any(key in before[other] for other in waits(w, key))
    for n in range(w.steps):
        fresh = {k.step for k in before[PhaseKey(n, "generation")] if k.phase == "weight_sync"}
        # on weights that lack `steps_ahead` updates at most
        assert fresh == set(range(max(0, n - w.steps_ahead)))
        assert PhaseKey(n, "generation") in before[PhaseKey(n, "training")]


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("training_gpus", [8, 64])  # training, or generation, takes longer
def test_the_period_is_the_closed_form(even, pipeline, training_gpus):
    w = even(
        f"pipeline={pipeline}",
        "steps=8",
        f"cluster.training_gpus={training_gpus}",
        "training.recompute=full",
        "training.tp=8",
    )
    plan = plan_of(w, 1)
    ends = {p.step: p.start + p.seconds for p in plan.phases if p.kind == "training"}
    one = {p.kind: p.seconds for p in plan.phases}
    assert ends[7] - ends[5] == pytest.approx(2 * step_period(w, **one), rel=1e-9)


def test_going_off_policy_gains_what_overlaps(even):
    periods = [plan_of(even(f"pipeline={p}", "steps=6"), 1).seconds for p in PIPELINES]
    assert periods[0] > periods[1] > periods[2] and periods[2] < 0.9 * periods[0]
    # where all are as long, none waits for the longest
    assert periods[3] == pytest.approx(periods[2], rel=0.01)


def test_partial_rollouts_do_not_wait_for_the_longest():
    w, asynchronous = job(), job("pipeline=async")
    one, other = (phases.step_of(x, 1, 0).generated for x in (w, asynchronous))
    assert (np.concatenate(one.outputs) == np.concatenate(other.outputs)).all()
    assert other.seconds < 0.5 * one.seconds
    total = sum(t.decode for t in other.times)
    tokens = sum(int(o.sum()) for o in other.outputs)
    # a full batch shares its steps
    assert total / tokens < 16 * phases.decode_step(w).seconds(1, 0)
    same = phases.steady_time(w, np.full(4, 10), np.full(4, 500))
    step = phases.decode_step(w).seconds(4, 4 * 260.0)
    assert same.decode == pytest.approx(4 * 499 * step / 4)


def test_as_many_batches_are_under_way_as_the_staleness_lets():
    """Until slots or memory are full: what decodes together shares its steps."""
    prompts, outputs = np.full(4, 10), np.full(4, 500)
    decode = [
        phases.steady_time(job("pipeline=async", f"staleness={n}"), prompts, outputs).decode
        for n in (1, 2, 8)
    ]
    w = job("pipeline=async", "staleness=2")
    step = phases.decode_step(w).seconds(8, 8 * 260.0)
    assert decode[1] == pytest.approx(4 * 499 * step / 8)
    assert decode[0] > decode[1] > decode[2]
    full = [
        phases.steady_time(
            job("pipeline=async", f"staleness={n}", "generation.max_num_seqs=4"), prompts, outputs
        )
        for n in (1, 8)
    ]
    assert full[0] == full[1]


def test_weights_come_while_replicas_generate_only_where_they_need_not_stop():
    keys = {p: job(f"pipeline={p}", "steps=3") for p in PIPELINES}
    sync = PhaseKey(0, "weight_sync")
    assert PhaseKey(1, "generation") in waits(keys["one-step-off"], sync)
    for pipeline in ("sync", "bounded-staleness", "async"):
        assert waits(keys[pipeline], sync) == [PhaseKey(0, "training")]


def test_colocated_phases_take_turns_on_the_same_gpus():
    w = job(*COLOCATED)
    assert w.gpus == 32 and w.replicas[0] == [0, 1] and len(w.replicas) == 16
    plan, trace = plan_of(w, 1), trace_of(w, 1)
    assert len({p.gpus for p in plan.phases}) == 1 and len(trace.hosts) == 32
    starts = [p.start for p in plan.phases]
    assert starts == sorted(starts) and plan.phases[2].start == pytest.approx(
        sum(p.seconds for p in plan.phases[:2])
    )
    # a server trains all that its replicas need
    assert (0, "weight_sync", "weights") not in trace.communication()
    sent = trace.size > 0
    assert (trace.src[sent] // 8 != trace.dst[sent] // 8).all()
    assert plan.phases[2].seconds == sum(phases.handover(w).values()) > 0


@pytest.mark.parametrize("pp", [2, 4])
def test_colocated_replicas_gather_the_stages_of_other_servers(pp):
    w = job(*COLOCATED, f"training.pp={pp}")
    trace = trace_of(w, 1)
    rows = trace.communication()[0, "weight_sync", "weights"]
    # of its half, each GPU lacks all stages but its own; the ends hold embedding and logits
    ends = 2 * 152064 * 5120
    own = np.full(pp, (w.model.weight_bytes - 2 * ends) / pp)
    own[[0, -1]] += ends
    lacks = np.repeat(w.model.weight_bytes - own, 32 // pp) / 2
    assert trace.size[rows].sum() == pytest.approx(lacks.sum(), rel=1e-6)
    received = np.bincount(trace.dst[rows], trace.size[rows], minlength=32)
    assert received == pytest.approx(lacks, rel=1e-6)


def test_colocated_replicas_gather_experts_from_the_servers_that_hold_them():
    settings = (
        "model=Qwen3-30B-A3B",
        "training.recompute=full",
        "training.tp=4",
        "generation.tp=4",
    )
    near, far = (job(*COLOCATED, *settings, f"training.ep={ep}") for ep in (8, 32))
    assert not flows.reshard(near).src
    sent = flows.reshard(far)
    experts = 2 * far.model.expert_parameters / 4
    assert sum(sent.size) == pytest.approx(32 * experts * 3 / 4)  # three of four servers are others
    assert all(a // 8 != b // 8 for a, b in zip(sent.src, sent.dst, strict=True))


@pytest.mark.parametrize("server", [1, 3, 5, 6, 8])
@pytest.mark.parametrize(("ep", "pp"), [(4, 1), (16, 1), (8, 2)])
def test_servers_that_groups_of_experts_do_not_fill_take_what_none_of_their_gpus_trains(
    server, ep, pp
):
    w = job(
        *("model=DeepSeek-V2-Lite", "placement=colocated", "training.recompute=full"),
        *("training.tp=1", f"training.pp={pp}", "generation.tp=1", f"training.ep={ep}"),
        *("cluster.training_gpus=48", "cluster.generation_gpus=48", "training.mini_batches=1"),
        *(f"cluster.gpus_per_server={server}", "generation.batch=96", "cluster.gpu=B200"),
    )
    sent, n = flows.reshard(w), 48 // pp
    received, dense = np.bincount(sent.dst, sent.size, minlength=48), w.model.dense_parameters
    for gpu in range(48):
        here = [other for other in range(48) if other // server == gpu // server]
        expected = 0.0
        for first in range(0, 48, n):
            held = {(other - first) % ep for other in here if first <= other < first + n}
            expected += 2 / pp * w.model.expert_parameters * (1 - len(held) / ep)
            whole = range(first // server, -(-(first + n) // server))
            expected += 0 if gpu // server in whole else 2 / pp * dense
        assert received[gpu] == pytest.approx(expected)
    for src, dst in zip(sent.src, sent.dst, strict=True):
        assert 0 <= src < 48 and src // server != dst // server
    assert trace_of(w, 1).size.sum() > 0  # with its closed forms, where there are any


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["pipeline=eager"],
            (
                "pipeline: 'eager' is not known; use one of sync, one-step-off, "
                "bounded-staleness, async"
            ),
        ),
        (
            ["placement=apart"],
            ("placement: 'apart' is not known; use one of disaggregated, colocated"),
        ),
        (
            ["staleness=2"],
            (
                "staleness: 2 has no meaning with pipeline sync, which is 0 updates behind; leave "
                "it out, or use"
            ),
        ),
        (
            ["pipeline=one-step-off", "staleness=2"],
            ("no meaning with pipeline one-step-off, which is 1 updates behind"),
        ),
        (["pipeline=async", "staleness=0"], "staleness: 0 must be 0.01 or more and 1000 at most"),
        (["pipeline=async", "staleness=two"], "staleness: 'two' is not a number"),
        (
            ["placement=colocated"] + ["pipeline=async"],
            "colocated GPUs train and generate in turn, so pipeline async gains",
        ),
        (
            ["placement=colocated", "cluster.generation_gpus=16"],
            "generation_gpus: 16 must be the 32 training_gpus .* use 32",
        ),
        (["training.vp=2"], "training.vp: 2 chunks a stage, but there is one stage"),
        (["training.precision=fp8", "cluster.gpu=A100"], "GPU A100 has no fp8 matmul; use bf16"),
    ],
)
def test_what_makes_no_pipeline_is_refused(overrides, message):
    with pytest.raises(RFabricError, match=message):
        read_recipe("grpo-64", overrides)


@pytest.mark.parametrize("pipeline", PIPELINES[1:])
def test_overlapping_phases_run_on_a_fabric(pipeline):
    w = job(*SMALL, f"pipeline={pipeline}", "steps=3")
    trace = trace_of(w, 1)
    result = simulate(parse_fabric("fat-tree", w.gpus), trace)
    least = plan_of(w, 1).seconds
    assert least < result.step_seconds < least + sum(p.comm for p in plan_of(w, 1).phases) * 1.5 + 1


def test_explain_says_how_the_step_adds_up():
    for overrides in ((), ("pipeline=one-step-off",), ("pipeline=async", "staleness=2"), COLOCATED):
        w = job(*overrides)
        items = explain(w, 1)
        (step,) = [i for i in items if i.phase == "step"]
        windows = {p.kind: p.window for p in plan_of(w, 1).phases}
        expected = step_period(
            w, windows["generation"], windows["training"], windows["weight_sync"]
        )
        assert (
            step.seconds == pytest.approx(expected)
            and step.item == w.pipeline
            and w.placement in step.why
        )
        assert {i.item for i in items if i.phase == "weight_sync"} >= set(phases.handover(w))
        (forward,) = [i for i in items if i.item == "forward-backward"]
        assert "matmul at" in forward.why and "%" in forward.why

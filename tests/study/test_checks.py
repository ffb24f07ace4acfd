"""What every run checks of itself: each number, broken by hand, ends the run with both that
differ.
"""

from dataclasses import replace

import numpy as np
import pytest

from rfabric.errors import RunError
from rfabric.fabric import cost, dollars, parse_fabric
from rfabric.report.result import card_seconds, phase_floors
from rfabric.rl import flows, lowering, read_recipe, totals
from rfabric.schedulers.base import as_it_stands
from rfabric.schedulers.traffic import read_traffic
from rfabric.simulate.flows import Engine
from rfabric.simulate.world import simulate
from rfabric.trace import Flows, PhaseKey, TraceBuilder

FEW = ("generation.batch=16", "generation.group_size=2")
FABRIC = parse_fabric("leaf-spine", 8)


def made(name="grpo-64", *settings):
    return as_it_stands(read_recipe(name, [*FEW, *settings]), 0)


def small(size=1e9):
    b = TraceBuilder(FABRIC.hosts)
    work = b.compute(0, 0.5, phase="training", label="work")
    rows = b.flows([0, 0], [4, 5], size, after=[work], phase="training", label="sent")
    b.compute(0, 0.25, after=rows, phase="weight_sync", label="end")
    return b.build()


# --- plan and formula against trace ---------------------------------------------------------------


def test_a_phase_that_the_plan_ends_elsewhere_is_an_error():
    job = made()
    first, *rest = job.plan.phases
    late = replace(job.plan, phases=(replace(first, seconds=first.seconds + 1e-3), *rest))
    with pytest.raises(
        RunError,
        match=r"generation/0: without communication the trace ends it at .* s, the "
        r"plan at .* s",
    ):
        lowering.trace_of_steps(job.workload, job.steps, late)


@pytest.mark.parametrize(
    ("label", "maker", "name", "settings"),
    [
        ("reduce-scatter", "gradients", "grpo-64", []),
        ("all-gather", "parameters", "grpo-64", []),
        ("experience", "experience", "grpo-64", []),
        ("pipeline", "pipeline", "grpo-64", ["training.pp=2"]),
        ("tensor", "tensor_training", "grpo-64", ["cluster.gpus_per_server=4", "training.tp=8"]),
        ("all-to-all", "experts_training", "grpo-64-moe", []),
        ("gather", "gathered", "grpo-64", ["training.optimizer=sharded"]),
        (
            "weights",
            "reshard",
            "grpo-64",
            ["placement=colocated", "cluster.generation_gpus=32", "training.pp=2"],
        ),
    ],
)
def test_a_label_that_sends_other_bytes_than_its_formula_is_an_error(
    monkeypatch, label, maker, name, settings
):
    right = getattr(flows, maker)

    def more(*args, **kwargs):
        sent = right(*args, **kwargs)
        return Flows(sent.src, sent.dst, [size * 1.001 for size in sent.size])

    made(name, *settings)
    monkeypatch.setattr(flows, maker, more)
    with pytest.raises(
        RunError,
        match=rf"/0 {label}: the trace sends [\d,]+ bytes, its "
        r"formula says [\d,]+",
    ):
        made(name, *settings)


def test_a_label_that_is_left_out_or_that_no_formula_knows_is_an_error(monkeypatch):
    w = made().workload
    steps = made().steps
    trace = lowering.trace_of_steps(w, steps, made().plan)
    kept = trace.label != trace.labels.index("reduce-scatter")
    with pytest.raises(RunError, match="training/0 reduce-scatter: the trace sends 0 bytes"):
        totals.check_bytes(
            replace(trace, size=np.where(kept, trace.size, 0)), w, steps, ["training"]
        )
    renamed = replace(
        trace, labels=tuple(name.replace("all-gather", "strange") for name in trace.labels)
    )
    with pytest.raises(RunError, match="training/0 .*its formula says"):
        totals.check_bytes(renamed, w, steps, ["training"])


@pytest.mark.parametrize("strategy", ["flat", "tree", "scatter", "rank0", "relay", "p2p", "delta"])
@pytest.mark.parametrize(
    "settings", [[], ["generation.tp=2", "training.pp=2"], ["training.optimizer=sharded"]]
)
def test_weight_syncs_send_what_their_closed_forms_say(strategy, settings):
    assert len(made("grpo-64", f"weight_sync.strategy={strategy}", *settings).trace)


# --- runs against what no network can beat --------------------------------------------------------


def test_a_run_that_is_too_soon_is_an_error(monkeypatch):
    right = Engine.finish_times
    monkeypatch.setattr(Engine, "finish_times", lambda self: right(self) * 0.9)
    with pytest.raises(
        RunError,
        match=r"the step took 0\.6.* s, but 0\.75 s on a network that "
        r"takes no time",
    ):
        simulate(FABRIC, small(1))
    with pytest.raises(
        RunError, match=r"row 0 was done at .* s, but computing and NICs need 0\.5 s"
    ):
        simulate(FABRIC, small(8e10))


def test_a_phase_whose_bytes_do_not_fit_its_seconds_is_an_error():
    right = simulate(FABRIC, small(8e10))
    row = card_seconds(FABRIC, right.trace)[1]
    # two rows through one card
    assert right.phases[0].seconds == pytest.approx(0.5 + 2 * row, rel=1e-4)
    assert phase_floors(FABRIC, right.trace)[PhaseKey(0, "training")] == pytest.approx(
        0.5 + 2 * row
    )
    finish = right.finish.copy()
    finish[[1, 2]] = 0.5 + row * 1.2  # each slower than alone, both together too soon
    finish[3] = finish[1] + 0.25
    with pytest.raises(
        RunError,
        match=r"training/0 took .* s, but computing and NICs "
        r"need .* s for it",
    ):
        replace(right, finish=finish).check_floor()


# --- parts against total --------------------------------------------------------------------------


def test_a_step_whose_parts_are_not_what_is_paid_is_an_error(monkeypatch):
    gpus, priced = dollars.Gpus(100.0, 5e4), cost.bill(FABRIC)
    dollars.step_cost(10.0, gpus, priced)
    right = dollars.StepCost
    monkeypatch.setattr(dollars, "StepCost", lambda own, *parts: right(own * 1.01, *parts))
    with pytest.raises(RunError, match=r"the parts of a step cost .* USD, all that is paid .* USD"):
        dollars.step_cost(10.0, gpus, priced)


def test_ports_that_are_not_priced_are_an_error(monkeypatch):
    fabric = parse_fabric("rfabric", 64)
    right = cost._by
    monkeypatch.setattr(cost, "_by", lambda values: right(values[1:]))
    with pytest.raises(
        RunError,
        match=r"rfabric: [\d,]+ ports are priced, its cables have "
        r"[\d,]+ ends",
    ):
        cost.parts(fabric)


# --- several jobs ---------------------------------------------------------------------------------


def test_jobs_pay_together_what_is_paid_by_gpu_time():
    from rfabric.report.summary import Run, run_summary

    traffic = read_traffic("weave-2jobs", [*FEW, "steps=2"])
    said = run_summary(Run(simulate(parse_fabric("fat-tree", traffic.gpus), traffic.trace)))["cost"]
    each = said["usd_per_step_jobs"]
    assert list(each) == ["job1", "job2"] and sum(each.values()) == pytest.approx(
        2 * said["usd_per_step"]
    )
    held = traffic.trace.provenance["held"]
    assert (
        held["job1"]["training"] + held["job1"]["generation"]
        == traffic.trace.provenance["gpus_usd_per_hour"]
    )

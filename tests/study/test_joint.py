"""What deciding together gains: the bound against closed forms and engines, the table."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from rfabric.cli import main
from rfabric.cli.reproducing import page
from rfabric.compute.requests import independent
from rfabric.compute.roofline import DecodeStep
from rfabric.compute.serving import Batching, serve
from rfabric.errors import RFabricError
from rfabric.rl import read_recipe
from rfabric.schedulers.orchestrrl import engines_of, least
from rfabric.schedulers.orchestrrl.least import least_generation, least_seconds
from rfabric.schedulers.orchestrrl.outlook import Cut, Engines
from rfabric.schedulers.table import scheduled
from rfabric.simulate.world import simulate
from rfabric.study import joint
from rfabric.study.joint import JointCase, least_step, least_sync, row_of_case

PLACES = 1024
SMALL = ("generation.batch=32", "generation.max_response=4096")


def engines(*steps, replicas=1):
    cuts = tuple(Cut(1) for _ in steps)
    return Engines(cuts, steps, (10**6,) * len(steps), (replicas,) * len(steps))


def drawn(seed, n=200):
    rng = np.random.default_rng(seed)
    return rng.integers(1, 500, n), rng.lognormal(6, 1, n).astype(int).clip(2, 8000)


# --- generation -----------------------------------------------------------------------------------


def test_one_response_takes_its_own_steps_on_the_cut_that_is_fastest():
    slow, fast = (DecodeStep(w, 1e-6, 0.0, 0.0, 0.0, 0.0) for w in (2e-3, 1e-3))
    prompt, tokens = np.array([100]), np.array([4000])
    exact = float(fast.decode(np.ones(4000), 100 + np.arange(1.0, 4001)).sum())
    least = least_seconds(engines(slow, fast), 3, prompt, tokens, PLACES)
    assert 0.97 * exact < least <= exact


def test_many_short_responses_take_the_work_that_all_seats_share():
    """Nothing but matmuls, which batching does not make less."""
    step = DecodeStep(0.0, 0.0, 1e-4, 0.0, 0.0, 0.0)
    prompts, tokens = np.full(6000, 10), np.full(6000, 50)
    least = least_seconds(engines(step, replicas=2), 3, prompts, tokens, PLACES)
    assert least == pytest.approx(6000 * 50 * 1e-4 / (2 * 3), rel=1e-6)


def test_environments_are_waited_for():
    step = DecodeStep(1e-3, 0.0, 0.0, 0.0, 0.0, 0.0)
    one = [np.array([9]), np.array([1000])]
    alone = least_seconds(engines(step), 1, *one, PLACES)
    assert least_seconds(engines(step), 1, *one, PLACES, waits=7.0) == pytest.approx(alone + 7)
    assert least_seconds(engines(step), 1, one[0], np.array([0]), PLACES, waits=7.0) == 7


@pytest.mark.parametrize("recipe", ["grpo-64", "grpo-64-moe", "grpo-64-h20"])
@pytest.mark.parametrize("seed", range(3))
def test_no_engine_of_any_width_is_sooner(recipe, seed):
    w, (prompts, tokens) = read_recipe(recipe), drawn(seed)
    choices = engines_of(w)
    least = least_seconds(choices, 1, prompts, tokens - 1, PLACES)
    for i, replicas in enumerate(choices.replicas):
        batching = Batching(max_num_seqs=PLACES * choices.cuts[i].dp)
        parts = (np.array_split(column, replicas) for column in (prompts, tokens))
        ends = [
            serve(choices.steps[i], choices.kv_tokens[i], batching, independent(*part, 1)).seconds
            for part in zip(*parts, strict=True)
        ]
        assert least <= max(ends)


def test_narrower_configurations_bound_no_less(monkeypatch):
    """And more, where many decode at once."""
    prompts, tokens = np.full(300, 100), np.full(300, 1000)
    choices = engines_of(read_recipe("grpo-64"))
    narrow = least_seconds(choices, 1, prompts, tokens, PLACES)
    monkeypatch.setattr(least, "NARROW", least.GROWTH)
    assert least_seconds(choices, 1, prompts, tokens, PLACES) < narrow


@pytest.mark.parametrize("seed", range(3))
def test_twice_the_seconds_of_every_step_are_twice_the_bound_and_more_seats_no_more(seed):
    prompts, tokens = drawn(seed)
    choices = engines_of(read_recipe("grpo-64"))
    times = ("weights_s", "kv_s_per_token", "matmul_s_per_response", "attention_s_per_token")
    times += ("overhead_s", "overhead_s_per_token", "own_s_per_response")
    slower = replace(
        choices,
        steps=tuple(replace(s, **{t: 2 * getattr(s, t) for t in times}) for s in choices.steps),
    )
    least = least_seconds(choices, 1, prompts, tokens, PLACES)
    assert least_seconds(slower, 1, prompts, tokens, PLACES) == pytest.approx(2 * least, rel=1e-6)
    assert least_seconds(choices, 4, prompts, tokens, PLACES) <= least * (1 + 1e-9)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (("pipeline=async",), "of steps that end; pipeline async has none"),
        (("generation.tp=4", "cluster.gpus_per_server=2"), "tp 4 does not divide 2 GPUs"),
        (("generation.prefill_gpus=8",), "prefill_gpus is 8: use 0"),
    ],
)
def test_jobs_without_a_bound_are_told_why(changes, text):
    with pytest.raises(RFabricError, match=text):
        least_generation(read_recipe("grpo-64", changes), 0, 0)


# --- the whole step -------------------------------------------------------------------------------

# what depends on no fabric is worked out once for all of them
LEAST_GENERATION = cache(least_generation)


@cache
def made_of(recipe, changes, scheduler):
    return scheduled(read_recipe(recipe, changes), 0, scheduler)


@pytest.mark.parametrize("spec", joint.FABRICS)
@pytest.mark.parametrize(
    ("recipe", "changes", "scheduler"),
    [
        ("grpo-64-moe", SMALL, "orchestrrl"),
        ("grpo-64-h20", (*SMALL, "generation.turns=3", "generation.environment_latency=9s"), ""),
        ("grpo-64", (*SMALL, "steps=3", "pipeline=bounded-staleness"), ""),
        ("grpo-64", (*SMALL, "steps=3"), "colocated"),
    ],
)
def test_no_schedule_is_under_the_bound(recipe, changes, scheduler, spec, monkeypatch):
    monkeypatch.setattr(joint, "least_generation", LEAST_GENERATION)
    made = made_of(recipe, changes, scheduler)
    fabric = made.workload.needs.fabric(spec)
    assert 0 < least_step(made, 0, fabric) <= simulate(fabric, made.trace, "own").step_seconds


def test_a_thin_join_is_in_the_bound_of_weight_sync():
    """One copy at least crosses it."""
    w = read_recipe("grpo-64")
    wide, thin = (
        least_sync(w, w.needs.fabric(f"two-clusters,join={join}Gbit/s")) for join in (400, 10)
    )
    assert thin - wide > 0.9 * w.model.weight_bytes * 8 / 10e9 * (1 - 10 / 400)


# --- the table ------------------------------------------------------------------------------------

THIN = "two-clusters,join=50Gbit/s"


def test_a_row_is_what_the_runs_come_to():
    case = JointCase("grpo-64", SMALL)
    row = row_of_case("small", case, THIN, 0)
    fabric = case.workload.needs.fabric(THIN)
    apart = [
        simulate(fabric, scheduled(case.workload, 0, name).trace, "own").step_seconds
        for name in ("sync", "orchestrrl")
    ]
    assert row.separate.seconds == min(apart) and row.separate.policy == "orchestrrl+own"
    assert row.told_sync == "rank0" == row.joint.facts["weight_sync"]
    assert row.bound < row.told.seconds < row.separate.seconds
    assert row.gain == 1 - row.joint.seconds / row.separate.seconds > 0.05


def test_the_table_is_printed_as_text_as_json_and_for_a_page(monkeypatch, capsys):
    monkeypatch.setattr(joint, "CASES", {"small": JointCase("grpo-64", SMALL)})
    monkeypatch.setattr(joint, "FABRICS", ("ideal", THIN))
    assert main(["reproduce", "joint", "-q", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["fabric"] for row in printed["rows"]] == ["ideal", THIN]
    assert all(row["bound_s"] < row["joint"]["step_s"] for row in printed["rows"])
    assert abs(printed["rows"][0]["gain"]) < 0.01 < printed["rows"][1]["gain"]
    monkeypatch.setattr(joint, "FABRICS", (THIN,))
    assert main(["reproduce", "joint", "-q"]) == 0
    text = capsys.readouterr().out
    assert f"small, {THIN}" in text and "rank0" in text
    row = joint.joint_table([row_of_case("small", joint.CASES["small"], THIN, 0)])
    lines = list(page("joint", 0, row))
    assert lines[0] == "## joint" and len({line.count("|") for line in lines if "|" in line}) == 1


def test_jobs_that_are_not_compared_are_refused(capsys):
    with pytest.raises(RFabricError, match="pipeline async is not compared; use sync or one-step"):
        row_of_case("a", JointCase("grpo-64", ("pipeline=async",)), "ideal", 0)
    assert main(["reproduce", "joint", "-q", "--experiment", "any"]) == 2
    assert "joint has no experiment 'any'; there are forecasts" in capsys.readouterr().err

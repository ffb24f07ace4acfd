"""Compute schedulers as `--policy` has them: names, baselines, the trace they make, timelines, and
the verb `schedule`.
"""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.report.timeline import Timeline, perfetto, timeline_of_trace
from rfabric.rl import read_recipe, trace_of
from rfabric.rl.plan import step_period
from rfabric.schedulers.base import settings_of
from rfabric.schedulers.table import (
    DEFAULT_CIRCUITS,
    SCHEDULERS,
    Policies,
    parse_policies,
    scheduled,
    schedulers,
)
from rfabric.schedulers.traffic import read_traffic
from rfabric.study.grid import Grid
from rfabric.trace import Span

ONE_JOB = ("sync", "colocated", "one-step-off", "async", "orchestrrl")


@cache
def timeline(name, made):
    return Timeline(name, made.pools, made.spans, made.seconds, made.workload.steps)


def made(policy, *changes, seed=0):
    return scheduled(read_recipe("grpo-64", changes), seed, policy)


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("demand", Policies("", "demand")),
        ("phase,granularity=per-collective", Policies("", "phase,granularity=per-collective")),
        ("orchestrrl", Policies("orchestrrl", DEFAULT_CIRCUITS)),
        ("orchestrrl,period=5s+rotor,slot=1s", Policies("orchestrrl,period=5s", "rotor,slot=1s")),
        ("async,staleness=2 + static", Policies("async,staleness=2", "static")),
        ("weave", Policies("weave", DEFAULT_CIRCUITS)),
    ],
)
def test_a_policy_names_a_scheduler_circuits_or_both(text, expected):
    assert parse_policies(text) == expected


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "best",
            (
                "no policy named 'best'; circuits are chosen by .*demand.*computing is "
                "scheduled by sync"
            ),
        ),
        (
            "phase+sync",
            (
                "policy phase\\+sync: 'phase' is no compute scheduler; before the \\+ "
                "stands one of sync"
            ),
        ),
        ("sync+fast", "no policy named 'fast'"),
        ("sync+", "no policy named ''"),
    ],
)
def test_other_words_are_refused(text, error):
    with pytest.raises(RFabricError, match=error):
        parse_policies(text)


@pytest.mark.parametrize(
    ("policy", "changes", "error"),
    [
        ("weave", (), "no compute scheduler named 'weave' for one job; it is for a file of jobs"),
        ("sync,fast=1", (), "scheduler sync: 'fast=1' is not a setting; it has none"),
        ("async,staleness=0", (), "staleness: 0 must be 0.01 or more and 1000 at most"),
        ("async,staleness=deep", (), "staleness 'deep' is no number of weight updates"),
        (
            "orchestrrl",
            ("pipeline=bounded-staleness", "staleness=0.5"),
            "staleness: 0.5 cuts batches in two",
        ),
        ("async,staleness", (), "'staleness' is not a setting; write KEY=VALUE"),
        ("async,staleness=1,staleness=2", (), "a setting stands twice"),
        ("sync", ("placement=colocated",), "needs a pool for each side"),
    ],
)
def test_bad_schedulers_are_refused(policy, changes, error):
    with pytest.raises(RFabricError, match=error):
        made(policy, *changes)


def test_settings_are_read_by_the_names_of_fields():
    from rfabric.schedulers.orchestrrl import Tuning

    tuning = settings_of("orchestrrl", Tuning(), {"period": "250ms", "moves": "3"})
    assert (tuning.period_s, tuning.moves, tuning.switch_s) == (0.25, 3.0, Tuning().switch_s)


def test_names_of_schedulers_and_of_circuit_policies_differ():
    from rfabric.optics import POLICIES

    assert not set(schedulers()) & set(POLICIES)
    assert set(ONE_JOB) <= set(SCHEDULERS)


# --- baselines ------------------------------------------------------------------------------------


def test_the_recipe_as_it_stands_is_what_trace_has():
    alone, plain = made(""), trace_of(read_recipe("grpo-64"), 0)
    assert (alone.trace.size == plain.size).all()
    assert "scheduler" not in alone.trace.provenance
    assert (made("sync").trace.gap == plain.gap).all()


def test_pipelines_are_as_long_as_their_formula_once_they_are_full():
    for policy in ("sync", "one-step-off"):
        few, many = (made(policy, f"steps={n}") for n in (2, 6))
        w, phases = many.workload, {p.kind: p for p in many.plan.phases if p.step == 3}
        longest = {
            kind: [p.seconds for p in many.plan.phases if p.kind == kind and p.step > 0]
            for kind in phases
        }  # steps differ by the responses that are drawn
        least, most = (
            4
            * step_period(w, *(pick(longest[k]) for k in ("generation", "training", "weight_sync")))
            for pick in (min, max)
        )
        assert least <= many.plan.seconds - few.plan.seconds <= most


def test_less_waiting_is_faster():
    seconds = [
        made(policy, "steps=4").plan.seconds
        for policy in ("sync", "one-step-off", "async,staleness=2")
    ]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > seconds[2]


def test_colocated_has_the_same_gpus_twice():
    s = made("colocated")
    assert s.workload.gpus == 64
    assert {name: len(gpus) for name, gpus in s.pools.items()} == {"training": 64}
    assert {len(p.gpus) for p in s.plan.phases} == {64}


@pytest.mark.parametrize("policy", ONE_JOB)
def test_every_scheduler_names_itself_and_uses_gpus_that_are_there(policy):
    s = made(policy)
    assert s.trace.provenance["scheduler"] == policy
    assert len(s.trace.hosts) == s.workload.gpus == 64
    assert s.plan.seconds == pytest.approx(float(s.trace.compute_only()[1].max()))
    for span in s.spans:
        assert span.start >= 0
        assert span.start + span.seconds <= s.plan.seconds + 1e-6
        assert set(span.gpus) <= set(range(64))


@pytest.mark.parametrize("policy", ["sync", "colocated"])
def test_what_computes_is_drawn_in_the_pool_of_its_gpus(policy):
    s = made(policy, "generation.batch=16")
    assert {span.what for span in s.spans} == {"generation", "training", "weight_sync"}
    for span in s.spans:
        if span.what != "weight_sync":
            assert span.pool == ("training" if policy == "colocated" else span.what)
            assert set(span.gpus) <= set(s.pools[span.pool])


def test_a_job_ends_with_its_last_phase_or_with_what_is_drawn_after():
    s = made("sync", "generation.batch=16")
    end = s.plan.seconds
    for spans, ends in (
        ((), end),
        ((Span("training", (0,), 0.0, end / 2, "x"),), end),
        ((Span("training", (0,), end, 3.0, "x"), Span("training", (0,), 1.0, 1.0, "x")), end + 3.0),
    ):
        assert replace(s, spans=spans).seconds == pytest.approx(ends)


@pytest.mark.parametrize("policy", ONE_JOB)
def test_traffic_takes_a_scheduler(policy):
    traffic = read_traffic("grpo-64", (), 0, policy)
    assert (traffic.trace.size == made(policy).trace.size).all()
    assert traffic.gpus == 64


def test_a_trace_file_cannot_be_scheduled(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("src,dst,size_bytes\nh1,h2,10\n")
    with pytest.raises(
        RFabricError,
        match=r"policy sync schedules recipes; .*mine.csv is a "
        r"trace file",
    ):
        read_traffic(str(file), (), 0, "sync")


def test_jobs_that_share_nodes_take_their_policies():
    names = [
        read_traffic("weave-2jobs", (), 0, name).trace.provenance["scheduler"]
        for name in ("", "solo")
    ]
    assert names == ["weave", "solo"]
    with pytest.raises(RFabricError, match="no compute scheduler named 'nobody'"):
        read_traffic("weave-2jobs", (), 0, "nobody")


def test_a_grid_runs_fabrics_without_ocs_once_a_scheduler():
    policies = ("sync+static", "sync+demand", "orchestrrl+static", "orchestrrl")
    grid = Grid(("fat-tree", "rfabric"), policies, ("grpo-64",), (0,))
    assert [c.policy for c in grid.cells() if c.fabric == "fat-tree"] == [
        "sync+static",
        "orchestrrl+static",
    ]
    assert [c.policy for c in grid.cells() if c.fabric == "rfabric"] == list(policies)
    assert grid.schedulers == ("sync", "orchestrrl")


# --- timelines ------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 4), st.floats(0, 50), st.floats(0.1, 20)),
        min_size=1,
        max_size=12,
    )
)
def test_idle_and_busy_are_the_whole_of_a_pool(bars):
    """Against counting on a fine grid; spans of one GPU may overlap."""
    spans = tuple(
        Span("p", tuple(range(g, min(g + n, 4))), start, length, "x")
        for g, n, start, length in bars
    )
    line = Timeline("t", {"p": (0, 1, 2, 3)}, spans, 70.0)
    at = (np.arange(70_000) + 0.5) / 1000
    busy = np.zeros((4, len(at)), bool)
    for s in spans:
        busy[list(s.gpus)] |= (at >= s.start) & (at < s.start + s.seconds)
    assert line.idle("p") == pytest.approx(1 - busy.mean(), abs=2e-3)


@pytest.mark.parametrize("policy", ONE_JOB)
def test_events_of_a_thread_do_not_overlap(policy):
    document = perfetto(timeline(policy, made(policy, "steps=2")))
    lanes = {}
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            lanes.setdefault((event["pid"], event["tid"]), []).append(
                (event["ts"], event["ts"] + event["dur"])
            )
    assert lanes
    for events in lanes.values():
        events.sort()
        # microseconds
        assert all(
            end <= start + 1 for (_, end), (start, _) in zip(events, events[1:], strict=False)
        )


def test_jobs_that_share_a_fabric_are_drawn_by_job_and_phase():
    traffic = read_traffic("weave-2jobs")
    line = timeline_of_trace("two", traffic.trace, 8)
    assert {s.what for s in line.spans} == {
        f"job{i} {phase}" for i in (1, 2) for phase in ("generation", "training", "weight_sync")
    }
    assert {len(s.gpus) for s in line.spans if s.what.endswith("weight_sync")} == {64}
    assert {len(s.gpus) for s in line.spans if s.what.endswith("training")} == {32}


def test_the_picture_has_a_panel_a_pool(tmp_path):
    pytest.importorskip("matplotlib")
    from rfabric.report.timeline import figure, write_png

    line = timeline("grpo-64, orchestrrl", made("orchestrrl"))
    drawn = figure(line)
    assert [axes.get_title(loc="left").partition(":")[0] for axes in drawn.axes] == [
        "training",
        "generation",
    ]
    write_png(tmp_path / "a.png", line)
    assert (tmp_path / "a.png").stat().st_size > 10_000


# --- the verb -------------------------------------------------------------------------------------


def test_timeline_prints_one_document(capsys, tmp_path):
    trace = tmp_path / "trace.json"
    code = main(
        [
            "timeline",
            "--policy",
            "orchestrrl",
            "--json",
            "-q",
            "--perfetto",
            str(trace),
            "--seed",
            "1",
        ]
    )
    printed = json.loads(capsys.readouterr().out)
    assert code == 0
    keys = (
        "traffic",
        "policy",
        "seed",
        "gpus",
        "steps",
        "seconds",
        "step_s",
        "pools",
        "usd_per_step",
        "facts",
        "phases",
        "spans",
    )
    assert set(keys) <= set(printed)
    assert printed["usd_per_step"] == pytest.approx(
        printed["usd_per_hour"] * printed["step_s"] / 3600
    )
    assert all(0 <= pool["idle_share"] < 1 for pool in printed["pools"].values())
    assert json.loads(trace.read_text())["traceEvents"]


def test_gpus_of_two_kinds_are_paid_each_its_own(capsys):
    w = read_recipe("grpo-64-h20")
    assert w.gpu.usd_per_hour != w.generation_gpu.usd_per_hour
    assert main(["timeline", "--json", "--traffic", "grpo-64-h20"]) == 0
    paid = (
        w.cluster.training_gpus * w.gpu.usd_per_hour
        + w.cluster.generation_gpus * w.generation_gpu.usd_per_hour
    )
    assert json.loads(capsys.readouterr().out)["usd_per_hour"] == pytest.approx(paid)


def test_timeline_prints_tables(capsys):
    assert main(["timeline", "-q", "--traffic", "weave-2jobs", "--policy", "solo"]) == 0
    assert "weave-2jobs, solo" in capsys.readouterr().out


def test_timeline_runs_days_of_jobs(capsys, tmp_path):
    file = tmp_path / "jobs.csv"
    file.write_text("name,roll_s,train_s,iterations,arrival_s\na,100,60,10,0\nb,90,50,10,30\n")
    assert main(["timeline", "-q", "--jobs", str(file), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["jobs"] == 2
    assert 0 < printed["slo_share"] <= 1


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--policy", "demand"], "--policy demand must name a compute scheduler alone"),
        (["--policy", "sync+demand"], "must name a compute scheduler alone"),
        (["--policy", "fifo"], "no policy named 'fifo'"),
        (["--traffic", "ring.csv"], "is a trace file"),
        (["--jobs", "none.csv"], "jobs none.csv: cannot be read"),
        (["--jobs", "none.csv", "--png", "a.png"], "--png and --perfetto draw a recipe"),
    ],
)
def test_timeline_refuses_with_exit_2(args, error, capsys):
    assert main(["timeline", "-q", *args]) == 2
    assert error in capsys.readouterr().err


def test_one_run_has_one_compute_scheduler(capsys):
    assert main(["simulate", "-q", "--policy", "sync", "--policy", "orchestrrl"]) == 2
    assert "`rfabric compare` puts several side by side" in capsys.readouterr().err


def test_runs_name_their_scheduler(capsys, tmp_path):
    args = [
        "--topo",
        "rfabric",
        "--policy",
        "orchestrrl+phase",
        "--out",
        str(tmp_path),
        "--json",
        "-q",
    ]
    assert main(["simulate", *args]) == 0
    run = json.loads(capsys.readouterr().out)["runs"][0]
    assert (run["scheduler"], run["policy"]) == ("orchestrrl", "phase")


def test_compare_puts_schedulers_side_by_side(capsys, tmp_path):
    policies = ["--policy", "sync", "--policy", "orchestrrl"]
    assert (
        main(
            [
                "compare",
                "--topo",
                "fat-tree",
                *policies,
                "--out",
                str(tmp_path),
                "--json",
                "-q",
                "--jobs",
                "1",
            ]
        )
        == 0
    )
    comparison = json.loads(capsys.readouterr().out)
    assert [row["label"] for row in comparison["rows"]] == ["fat-tree sync", "fat-tree orchestrrl"]
    assert comparison["rows"][0]["step_s"] > comparison["rows"][1]["step_s"]
    assert "recipe, seed and compute scheduler" in comparison["fairness"][0]


@pytest.mark.parametrize(
    ("policy", "phase", "alike"),
    [("rollpacker", "streaming", "training"), ("orchestrrl", "migration-1", "generation")],
)
def test_phases_that_a_scheduler_adds_are_off_as_what_their_gpus_do(policy, phase, alike):
    within = read_traffic("orchestrrl-64", (), 0, policy).trace.provenance["within"]
    assert within[phase] == within[alike]
    assert within[phase]["low"] <= 1 <= within[phase]["high"]

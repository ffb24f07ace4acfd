"""What is asked is made ready in one way, whoever asks: words, objects, the command line, a cell of
a grid, an experiment.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import rfabric
from rfabric.cli import main
from rfabric.cli.arguments import parse
from rfabric.cli.asked import asked_of, settings_of
from rfabric.errors import RFabricError
from rfabric.fabric import Needs, parse_fabric
from rfabric.rl import read_recipe
from rfabric.schedulers.table import parse_policies
from rfabric.study import beside
from rfabric.study.asked import AskedRun, played, prepared, traffic_of, traffic_on, usual_fabrics
from rfabric.study.grid import Cell, Grid, case_of
from rfabric.study.run import RunSettings, play

FEW = ("generation.batch=16", "generation.group_size=4", "training.mini_batches=1")
OPTICAL = "rfabric,pods=4"
AGREED = "sync,network=fabric+phase"


def said(words):
    """What the command line makes of these words."""
    args = parse(words)
    return asked_of(args), settings_of(args, "simulate", args.seed)


def test_a_word_said_twice_is_asked_once():
    words = "simulate --policy demand --policy static --policy demand --topo ideal --topo ideal"
    asked, _ = said(words.split())
    assert asked.policies == ("demand", "static") and asked.fabrics == ("ideal",)


def test_options_reach_the_settings_of_the_run():
    words = "simulate --seed 3 --routing split --in-flight drain --repetitions all --transport tcp"
    _, settings = said(words.split())
    assert settings == RunSettings("simulate", 3, "split", "drain", "all", transport="tcp")
    assert settings.timing.in_flight == "drain"


def test_in_flight_is_checked_before_anything_is_read():
    with pytest.raises(RFabricError, match="in-flight policy 'pray' is not one of"):
        RunSettings(in_flight="pray")


@pytest.mark.parametrize(
    ("policies", "traffic"),
    [([], "grpo-64-moe"), (["orchestrrl"], "orchestrrl-64"), (["weave"], "weave-2jobs")],
)
def test_traffic_that_is_not_named_is_what_its_policies_are_shown_on(policies, traffic):
    asked, _ = said(["simulate", *(f"--policy={name}" for name in policies)])
    assert asked.traffic == traffic


def test_no_fabric_is_the_usual_ones_and_no_policy_that_of_the_fabric():
    ready = prepared(AskedRun((), "grpo-64", (), FEW), RunSettings())
    assert tuple(case.fabric.spec for case in ready.cases) == usual_fabrics(Needs(64))
    assert {case.policy for case in ready.cases} == {"own"}
    assert "fat-tree,oversubscription=2" in usual_fabrics(Needs(64))


def test_what_is_made_ready_is_told():
    told = []
    asked = AskedRun(["ideal"], read_recipe("grpo-64", FEW))
    prepared(asked, RunSettings(), lambda name, news: told.append((name, news["stage"])))
    assert told == [("grpo-64", "trace"), ("grpo-64", "fabric")]


def test_words_and_objects_come_to_the_same():
    w, fabric = read_recipe("grpo-64", FEW), parse_fabric(OPTICAL, 64)
    words = prepared(AskedRun([OPTICAL], "grpo-64", [AGREED], FEW), RunSettings(seed=2))
    objects = prepared(AskedRun([fabric], w, [AGREED]), RunSettings(seed=2))
    for one in (words, objects):
        assert one.traffic.trace.provenance["scheduler_facts"]["network"] == OPTICAL
        assert [case.policy for case in one.cases] == ["phase"] and one.traffic.name == "grpo-64"
    assert np.array_equal(words.traffic.trace.size, objects.traffic.trace.size)
    assert words.traffic.trace.provenance == objects.traffic.trace.provenance
    assert words.traffic.inputs == objects.traffic.inputs


def test_one_step_of_a_pipeline_has_its_note_whoever_brings_the_job():
    settings = (*FEW, "pipeline=one-step-off")
    words, w = traffic_of("grpo-64", settings), traffic_of(read_recipe("grpo-64", settings))
    assert words.notes == w.notes != ()


def test_a_cell_of_a_grid_is_what_a_run_is():
    asked = AskedRun([OPTICAL], "grpo-64", [AGREED], FEW)
    settings = RunSettings(seed=2)
    ready = prepared(asked, settings)
    grid = Grid((OPTICAL,), (AGREED,), ("grpo-64",), (2,), settings=FEW)
    (cell,) = grid.cells()
    assert cell == Cell(OPTICAL, AGREED, "grpo-64", 2)
    (one,) = play(ready.cases, ready.traffic, settings)
    case, traffic = case_of(grid, cell)
    (other,) = play([case], traffic, settings)
    assert np.array_equal(one.result.finish, other.result.finish)
    assert one.result.policy == other.result.policy == "phase"


def test_a_plan_is_agreed_under_the_circuits_and_the_timing_of_the_run():
    """What the network is asked with is what the run has."""

    class Asks(Exception):
        pass

    def place(needs):
        raise Asks

    policies = [parse_policies(AGREED)]
    with pytest.raises(Asks):
        traffic_on("grpo-64", FEW, 0, policies, [place])
    with pytest.raises(RFabricError, match="one plan with one fabric, and 2 fabrics under 1"):
        traffic_on("grpo-64", FEW, 0, policies, [place, place])
    assert len(traffic_on("grpo-64", FEW, 0, [parse_policies("sync")], [place, place]).trace)


def test_an_experiment_plays_what_a_run_does():
    w, fabric = read_recipe("grpo-64", FEW), parse_fabric(OPTICAL, 64)
    made, result = played(w, fabric, parse_policies(AGREED), 2)
    run = rfabric.simulate(OPTICAL, w, AGREED, seed=2)
    assert made.facts["network"] == OPTICAL and result.seed == 2
    assert np.array_equal(result.finish, run.result.finish)
    assert result.policy == run.result.policy == "phase"


def test_the_command_line_leaves_the_files_that_the_library_leaves(tmp_path, capsys):
    words = ["simulate", "--topo", "leaf-spine", "--topo", OPTICAL, "--traffic", "grpo-64"]
    words += ["--policy", "static", "--policy", "greedy", "--seed", "2", "--in-flight", "drain"]
    words += [f"--set={setting}" for setting in FEW]
    assert main([*words, "--no-report", "--json", "--out", str(tmp_path / "runs")]) == 0
    theirs = Path(json.loads(capsys.readouterr().out)["folder"])
    asked = ["leaf-spine", OPTICAL], rfabric.recipe("grpo-64", *FEW), ["static", "greedy"]
    compared = rfabric.compare(*asked, seed=2, in_flight="drain")
    ours = compared.save(tmp_path / "mine")
    files = [f.relative_to(theirs) for f in theirs.rglob("*") if f.suffix in (".csv", ".json")]
    assert len(files) > 12
    for name in files:
        if name.name == "summary.json":
            one, other = (json.loads((at / name).read_text())["runs"] for at in (theirs, ours))
            assert one == other
        else:
            assert (theirs / name).read_bytes() == (ours / name).read_bytes(), name


def test_the_same_fabrics_are_simulated_at_larger_sizes(monkeypatch):
    monkeypatch.setattr(beside, "LARGER", ("grpo-64", "grpo-64-h20"))
    ready = prepared(AskedRun(["ideal", "leaf-spine"], "grpo-64", (), FEW), RunSettings())
    told = []
    entries = beside.at_sizes(ready, 3, lambda name, _: told.append(name))
    assert [(one["traffic"], one["fabric"], one["seed"]) for one in entries] == [
        ("grpo-64", "ideal", 3), ("grpo-64", "leaf-spine", 3),
        ("grpo-64-h20", "ideal", 3), ("grpo-64-h20", "leaf-spine", 3),
    ]  # fmt: skip
    assert set(told) == {"at size"}


def test_plans_are_those_of_orchestrrl_where_no_fabric_is_named(monkeypatch):
    monkeypatch.setattr(beside, "ASKED", ("leaf-spine",))
    some, named = AskedRun((), "grpo-64", ["orchestrrl"], FEW), ["ideal"]
    told = beside.plans(some, prepared(some, RunSettings()), 0)
    assert [plan["network"] for plan in told] == ["network cards", "leaf-spine"]
    for other in (
        AskedRun(named, "grpo-64", ["orchestrrl"], FEW),
        AskedRun((), "grpo-64", ["sync"], FEW),
    ):
        assert beside.plans(other, prepared(other, RunSettings()), 0) == []

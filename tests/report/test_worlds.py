"""The same run in several worlds side by side."""

import json

import pytest

from rfabric.cli import main
from rfabric.report import worlds

SMALL = ["--topo", "leaf-spine,tors=2,gpus=2"]
TRACE = "src,dst,size_bytes,phase\nh1,h3,4000000,training\nh2,h4,4000000,training\n"


def entry(engine, step, **phases):
    """A run of some world; `phases`: seconds there, and as simulated."""
    scored = {n: {"emulated_s": a, "simulated_s": b} for n, (a, b) in phases.items()}
    return {
        "engine": engine, "step_s": step, "label": "rfabric", "fabric": "rfabric", "policy": "own",
        "traffic": "t", "seed": 0, "fidelity": {"phases": scored} if scored else None,
    }  # fmt: skip


def test_three_worlds_stand_side_by_side_with_their_differences():
    runs = [
        entry("emulate", 12.0, training=(1.2, 1.0)),
        entry("simulate", 10.0),
        entry("ns3", 11.0, training=(1.1, 1.0)),
    ]
    table = worlds.table(runs)
    assert table.columns[2:] == (
        "simulated", "ns-3 packets", "real packets", "ns-3 to simulated", "real to simulated",
        "real to ns-3",
    )  # fmt: skip
    step, training = (row.cells for row in table.rows)
    assert step[0] == "step" and step[4:] == ("+10.0%", "+20.0%", "+9.1%")
    assert training[0] == "training" and training[4:] == ("+10.0%", "+20.0%", "+9.1%")


def test_packets_alone_know_what_a_fluid_says():
    (step, training) = worlds.side_by_side([
        entry("ns3", 11.0, training=(1.1, 1.0)), entry("emulate", 12.0, training=(1.2, 1.0)),
    ])  # fmt: skip
    assert step["seconds"] == {"emulate": 12.0, "ns3": 11.0}
    assert training["seconds"] == {"simulate": 1.0, "ns3": 1.1, "emulate": 1.2}


def test_a_phase_that_one_world_cannot_resolve_is_left_open():
    runs = [entry("ns3", 11.0, sync=(1.1, 1.0)), entry("emulate", 12.0)]
    assert worlds.table(runs).rows[1].cells[2:] == ("1.100 s", "–", "+10.0%", "–", "–")


def test_runs_of_one_label_are_told_by_what_they_differ_in():
    runs = [
        entry(engine, 1.0) | {"traffic": traffic, "seed": seed}
        for engine in ("simulate", "ns3")
        for traffic in ("a", "b")
        for seed in (0, 1)
    ]
    labels = [row["label"] for row in worlds.side_by_side(runs)]
    assert labels == [f"rfabric, {traffic}, seed {seed}" for traffic in "ab" for seed in (0, 1)]


def test_other_runs_do_not_stand_beside_each_other():
    runs = [entry("simulate", 1.0), entry("ns3", 2.0) | {"seed": 1}]
    assert worlds.side_by_side(runs) == [] and not worlds.table(runs).rows


def test_one_command_plays_several_worlds(tmp_path, monkeypatch, capsys):
    pytest.importorskip("ns3", reason="ns-3 is not installed: rfabric[ns3]")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(TRACE)
    words = ["compare", *SMALL, "--traffic", "t.csv", "--engine", "ns3,simulate", "--no-report"]
    assert main([*words, "--json", "-q"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [c["runs"][0]["engine"] for c in document["comparisons"]] == ["simulate", "ns3"]
    (step, training) = document["worlds"]
    assert step["phase"] == "step" and set(training["seconds"]) == {"simulate", "ns3"}
    assert 1 < training["seconds"]["ns3"] / training["seconds"]["simulate"] < 2
    # the folders say the same by themselves
    folders = [c["folder"] for c in document["comparisons"]]
    assert main(["report", *folders, "-o", "both.html"]) == 0
    assert "The same in several worlds" in capsys.readouterr().out


def test_an_engine_that_is_none(capsys):
    assert main(["compare", "--engine", "ns3,fluit"]) == 2
    assert "no engine 'fluit'; there are simulate, ns3, emulate" in capsys.readouterr().err

"""The grid of `compare`: parallel as serial, resumable after anything, one table, one picture;
fairness said.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric.cli import main
from rfabric.report.compare import on_front
from rfabric.study.fingerprint import code_here
from rfabric.study.grid import Grid, begin, read_grid

SMALL = ["--topo", "fat-tree,pods=2,tors=2,gpus=2", "--topo", "rfabric,pods=2,tors=2,gpus=2"]
TRACE = (
    "src,dst,size_bytes,phase\n"
    "h1,h5,40000000,training\n"
    "h2,h8,30000000,training\n"
    "h5,h1,20000000,weight_sync\n"
)


@pytest.fixture
def traces(tmp_path):
    """Two small traces and where to put what comes out."""
    for name, factor in (("one", "0000000"), ("two", "00000000")):
        (tmp_path / f"{name}.csv").write_text(TRACE.replace("0000000", factor))
    return [w for name in ("one", "two") for w in ("--traffic", str(tmp_path / f"{name}.csv"))]


def compared(capsys, *words):
    assert main(["compare", *words, "--json", "-q"]) == 0
    return json.loads(capsys.readouterr().out)


def grid_words(tmp_path, traces):
    two = ["--policy", "static", "--policy", "demand", "--seeds", "2"]
    return [*SMALL, *traces, *two, "--out", str(tmp_path / "runs")]


def same(summary):
    """A summary without what tells two runs of the same apart."""
    left_out = {"created", "command", "folder", "versions", "grid"}
    return {k: v for k, v in summary.items() if k not in left_out}


def test_processes_change_nothing(tmp_path, traces, capsys):
    words = grid_words(tmp_path, traces)
    serial, parallel = (compared(capsys, *words, "--jobs", jobs) for jobs in ("1", "2"))
    # traces x seeds x (fat-tree once, rfabric under both policies)
    assert len(serial["runs"]) == 2 * 2 * 3
    assert len(serial["rows"]) == 2 * 3
    assert same(serial) == same(parallel)


def test_the_grid_folder_has_a_page_and_can_be_reported_again(tmp_path, traces, capsys):
    folder = compared(capsys, *grid_words(tmp_path, traces))["folder"]
    folder = Path(folder)
    page = (folder / "report.html").read_text()
    assert (
        'data-picture="front"' in page
        and "Fairness" in page
        and "one" in page
        and "rfabric,pods=2,tors=2,gpus=2 static" in page
    )
    before = json.loads((folder / "summary.json").read_text())
    assert main(["report", str(folder)]) == 0
    assert "one: 8 hosts" in capsys.readouterr().out
    assert before["rows"] == json.loads((folder / "summary.json").read_text())["rows"]


def test_two_files_of_one_name_are_two_jobs(tmp_path, traces, capsys):
    """Their steps are no two seeds of one job."""
    files = [tmp_path / "one.csv", tmp_path / "other" / "one.csv"]
    files[1].parent.mkdir()
    files[1].write_text((tmp_path / "two.csv").read_text())
    words = [*SMALL, *(word for file in files for word in ("--traffic", str(file)))]
    made = compared(capsys, *words, "--out", str(tmp_path / "runs"), "--no-report")
    told = [(row["traffic"], row["seeds"]) for row in made["rows"]]
    assert told == [(str(file), [0]) for file in files for _ in range(2)]
    assert made["rows"][2]["step_s"] > 5 * made["rows"][0]["step_s"]


def test_resume_runs_what_is_missing_and_nothing_else(tmp_path, traces, capsys):
    words = grid_words(tmp_path, traces)
    whole = compared(capsys, *words)
    cells = sorted(os.scandir(f"{whole['folder']}/cells"), key=lambda e: e.name)
    lost, kept = cells[3], [c for c in cells if c.name != cells[3].name]
    times = {c.name: os.stat(f"{c.path}/summary.json").st_mtime_ns for c in kept}
    subprocess.run(["rm", "-r", lost.path, f"{whole['folder']}/summary.json"], check=True)
    again = compared(capsys, "--resume", whole["folder"])
    assert same(again) == same(whole)
    assert times == {c.name: os.stat(f"{c.path}/summary.json").st_mtime_ns for c in kept}


def begun(tmp_path, traces, *more, **how):
    """A comparison in a process of its own, of which a cell is done."""
    words = ["compare", *grid_words(tmp_path, traces), *more]
    heeding = ["env", "--default-signal=INT"]  # a shell's background jobs ignore Ctrl-C
    process = subprocess.Popen([*heeding, sys.executable, "-m", "rfabric", *words], **how)
    while process.poll() is None and not list((tmp_path / "runs").glob("*/cells/*/summary.json")):
        time.sleep(0.01)
    return process


def test_killed_in_the_middle_it_goes_on(tmp_path, traces, capsys):
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = begun(tmp_path, traces, "--jobs", "1", "-q", **silent)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (folder,) = (tmp_path / "runs").iterdir()
    (folder / f"cells/.000-half-a-cell-0.{process.pid}.part").mkdir()
    comparison = compared(capsys, "--resume", str(folder))
    assert len(comparison["runs"]) == 12
    assert not list(folder.glob("cells/.*.part"))


def test_told_to_end_it_keeps_what_is_done_and_says_how_to_go_on(tmp_path, traces):
    process = begun(
        tmp_path, traces, "--jobs", "2",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume" in said and "Traceback" not in said
    assert said.count("interrupted") == 1 and "nothing of the run is left" not in said
    with pytest.raises(ProcessLookupError):  # no worker outlives it for long
        for _ in range(1000):
            os.killpg(process.pid, 0)
            time.sleep(0.01)


def test_one_trace_becomes_a_run_folder_in_detail(tmp_path, traces, capsys):
    comparison = compared(capsys, *SMALL, *traces[:2], "--out", str(tmp_path / "runs"))
    assert "rows" not in comparison and len(comparison["runs"]) == 2
    names = {path.name for path in (tmp_path / "runs").glob("*/*")}
    assert {
        "summary.json",
        "report.html",
        "trace.csv",
        "simulate-fat-tree",
        "simulate-rfabric",
    } <= names
    assert not names & {"cells", "grid.json"}
    assert main(["check", comparison["folder"]]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--topo", "rfabric"], "compare needs two fabrics, policies or engines"),
        (["--resume", "nowhere"], "nowhere is no folder of a comparison to resume"),
        ([*SMALL, "--traffic", "none.csv"], "cannot be read"),
        (
            ["--topo", "fat-tree", "--topo", "rfabric", "--policy", "clever"],
            "no policy named 'clever'",
        ),
        (
            [*SMALL, "--traffic", "grpo-64"],
            "names 56 hosts that fat-tree,pods=2,tors=2,gpus=2 lacks",
        ),
    ],
)
def test_bad_input_leaves_nothing(tmp_path, capsys, words, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *words, "-q"]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_comparison_of_which_no_run_is_done_has_no_report(more, tmp_path, capsys):
    grid = Grid(("fat-tree", "rfabric"), ("demand",), ("grpo-64",), (0,))
    begin(grid, tmp_path)
    unfinished = tmp_path / "cells" / ".000-fat-tree.1.part"
    unfinished.mkdir(parents=True)
    (unfinished / "summary.json").write_text("{}")
    assert main(["report", str(tmp_path), *more]) == 2
    said = capsys.readouterr()
    assert f"compare --resume {tmp_path}" in said.err and not said.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cells", "grid.json"]


def test_a_grid_is_read_back_as_it_was_written(tmp_path):
    grid = Grid(
        ("a", "b"), ("demand",), ("t",), (0, 1), settings=("training.tp=2",), scale=(0.1, 2.0)
    )
    (tmp_path / "grid.json").write_text(json.dumps(grid.to_json()))
    assert read_grid(tmp_path) == grid


POINTS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=9)


def test_a_dearer_fabric_that_is_faster_by_next_to_nothing_is_not_on_the_front():
    cheap, dear = (
        {"network_usd": 4e5, "step_s": 205.33199},
        {"network_usd": 7e5, "step_s": 205.33195},
    )
    assert on_front(cheap, [cheap, dear]) and not on_front(dear, [cheap, dear])
    fast = dear | {"step_s": 205.2}
    assert on_front(cheap, [cheap, fast]) and on_front(fast, [cheap, fast])
    alike = cheap | {key: cheap[key] * (1 + 1e-9) for key in ("network_usd", "step_s")}
    assert on_front(cheap, [cheap, alike]) and on_front(alike, [cheap, alike])  # a tie


@given(POINTS)
def test_the_front_is_what_nothing_beats(points):
    rows = [{"network_usd": float(x), "step_s": float(y)} for x, y in points]
    for row, (x, y) in zip(rows, points, strict=True):
        beaten = any(a <= x and b <= y and (a, b) != (x, y) for a, b in points)
        assert on_front(row, rows) is not beaten
    assert any(on_front(row, rows) for row in rows)


def test_a_comparison_goes_on_with_the_files_it_began_with_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("one.csv").write_text(TRACE)
    words = [*SMALL, "--traffic", "one.csv"]
    more = ["--seeds", "2", "--jobs", "1", "--no-report", "--no-cache", "-q", "--json"]
    with monkeypatch.context() as patch:
        patch.setattr("rfabric.cli.comparing.run", interrupted)
        assert main(["compare", *words, *more]) != 0
    (folder,) = Path("runs").iterdir()
    go_on = ["compare", "--resume", str(folder), "-q", "--no-report", "--json"]
    Path("one.csv").write_text(TRACE.replace("40000000", "80000000"))
    capsys.readouterr()
    assert main(go_on) == 2
    assert f"one.csv changed since {folder} began" in capsys.readouterr().err
    Path("one.csv").write_text(TRACE)
    with monkeypatch.context() as patch:
        other = replace(code_here(), core="other")
        patch.setattr("rfabric.study.comparison.code_here", lambda: other)
        assert main(go_on) == 2
    assert "rfabric's own code changed since" in capsys.readouterr().err
    assert main(go_on) == 0
    steps = [run["step_s"] for run in json.loads(capsys.readouterr().out)["runs"]]
    Path("one.csv").write_text(TRACE.replace("40000000", "80000000"))
    assert main(["compare", *words, *more]) == 0  # in the same process
    again = [run["step_s"] for run in json.loads(capsys.readouterr().out)["runs"]]
    assert all(after > before for before, after in zip(steps, again, strict=True))


def interrupted(*_):
    raise KeyboardInterrupt

"""Run folders that are not made twice, and cells that workers elsewhere make."""

import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from rfabric.cli import main
from rfabric.study import cell_folders, kept
from rfabric.study.grid import Cell, Grid
from rfabric.study.kept import Folders, folder_key
from rfabric.study.workers import connected
from rfabric.study.workers.base import Workers

ROOT = Path(__file__).parents[2]
TREE = "fat-tree,pods=2,tors=2,gpus=2"
TWO = ["--topo", TREE, "--topo", "rfabric,pods=2,tors=2,gpus=2"]
TRACE = "src,dst,size_bytes,phase\nh1,h5,40000000,training\nh5,h1,20000000,weight_sync\n"
GRID = Grid((TREE,), ("own",), ("one.csv",), (0,))
CELL = Cell(TREE, "own", "one.csv", 0)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder to work in with a trace, and a cache of its own that counts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("RFABRIC_CACHE")
    Path("one.csv").write_text(TRACE)


@pytest.fixture
def played(monkeypatch):
    """The cases that are simulated from now on."""
    seen, play = [], cell_folders.play

    def counted(cases, *more, **settings):
        seen.extend(cases)
        return play(cases, *more, **settings)

    monkeypatch.setattr("rfabric.study.cell_folders.play", counted)
    monkeypatch.setattr("rfabric.cli.runs.play", counted)
    return seen


def told(capsys, *said):
    capsys.readouterr()
    assert main([*said, "--json", "-q"]) == 0
    return json.loads(capsys.readouterr().out)


def compared(capsys, *more, seeds="2"):
    words = ["compare", *TWO, "--traffic", "one.csv", "--seeds", seeds, "--jobs", "1"]
    return told(capsys, *words, "--no-report", *more)


def figures(summary):
    return [{k: v for k, v in run.items() if k != "created"} for run in summary["runs"]]


# --- what is kept ---------------------------------------------------------------------------------


def test_a_cell_is_run_once_until_what_decides_it_changes(capsys, played):
    first = compared(capsys)
    assert len(played) == 4
    assert figures(compared(capsys)) == figures(first) and len(played) == 4
    compared(capsys, seeds="3")  # one more of each
    assert len(played) == 6
    compared(capsys, "--routing", "ecmp")
    assert len(played) == 10
    Path("one.csv").write_text(TRACE.replace("4", "5"))
    assert figures(compared(capsys)) != figures(first) and len(played) == 14


def test_who_refuses_has_all_run_and_nothing_kept(capsys, played, monkeypatch):
    compared(capsys)
    before = sorted(os.listdir("cache/rfabric/folders"))
    compared(capsys, "--no-cache")
    monkeypatch.setenv("RFABRIC_CACHE", "none")
    compared(capsys, seeds="3")
    assert len(played) == 4 + 4 + 6
    assert sorted(os.listdir("cache/rfabric/folders")) == before


def test_the_same_command_shows_the_run_that_it_was(capsys, played):
    words = ["simulate", *TWO, "--traffic", "one.csv"]
    first = told(capsys, *words)
    again = told(capsys, *words)
    assert len(played) == 2
    assert again.pop("folder") != first.pop("folder") and again == first
    assert main(words) == 0
    capsys.readouterr()
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "note: as it was run at 20" in out and "--no-cache runs it again" in out
    assert Path(out.split()[-1]).is_file()
    told(capsys, *words, "--seed", "1")
    assert len(played) == 2 + 2 + 2  # other words: -q and --json are words as well


@pytest.fixture
def rank_files():
    """Chakra's files of a job's ranks, and what makes another job of the last of them."""
    Path("other.csv").write_text(TRACE.replace("h5,h1,2", "h5,h1,9"))
    for name in ("one", "other"):
        assert main(["trace", f"{name}.csv", "-o", f"{name}.et", "-q"]) == 0
    last = sorted(Path("one.et").iterdir())[-1]
    return "one.et/one.0.et", lambda: shutil.copy(
        f"other.et/{last.name.replace('one', 'other')}", last
    )


@pytest.fixture
def rates_beside():
    """A recipe whose lengths are weighted by the rates in a file beside theirs, and other rates."""
    recipe = (ROOT / "traffic" / "grpo-64.yaml").read_text()
    recipe = recipe.replace("lengths: deepseek-r1 ", "lengths: chunk-0-dataset.json ")
    windows = {at: {"output_tokens": f"{{{n}: 1.0}}"} for at, n in (("0", 500), ("600", 9000))}
    Path("job.yaml").write_text(recipe)
    Path("chunk-0-dataset.json").write_text(json.dumps(windows))
    Path("chunk-0-trace.csv").write_text("0,1\n600,0\n")
    return "job.yaml", lambda: Path("chunk-0-trace.csv").write_text("0,0\n600,1\n")


@pytest.mark.parametrize("job", ["rank_files", "rates_beside"])
def test_a_file_that_is_read_beside_the_one_named_counts(capsys, played, request, job):
    traffic, change = request.getfixturevalue(job)
    words = ["simulate", "--traffic", traffic, "--topo", "ideal", "--no-report"]
    steps = [told(capsys, *words)["runs"][0]["step_s"] for _ in "12"]
    assert len(played) == 1
    change()
    assert steps[0] == steps[1] != told(capsys, *words)["runs"][0]["step_s"]
    assert len(played) == 2


def test_the_config_in_a_folder_that_a_policy_names_counts(capsys, played):
    Path("judge").mkdir()
    models = ROOT / "traffic" / "models"
    words = ["simulate", "--policy", "rollpacker,judge=judge+own", "--topo", "ideal", "--no-report"]
    for count, model in enumerate(("Qwen2.5-7B", "Qwen2.5-14B"), 1):
        shutil.copy(models / f"{model}.json", "judge/config.json")
        told(capsys, *words)
        assert len(played) == count


def test_code_of_ones_own_runs_every_time(capsys, played):
    Path("mine.py").write_text(
        "from rfabric.fabric import parse_fabric\n\n\n"
        f"def mine():\n    return parse_fabric({TREE!r})\n\n\nfabrics = {{'mine': mine}}\n"
    )
    words = ["compare", "--topo", "mine.py:mine", "--topo", TREE, "--traffic", "one.csv"]
    for _ in range(2):
        told(capsys, *words, "--jobs", "1", "--no-report")
    assert [case.fabric.spec for case in played].count("mine.py:mine") == 2
    assert [case.fabric.spec for case in played].count(TREE) == 1


@pytest.mark.parametrize("verb", [["simulate"], ["compare", "--jobs", "1"]])
def test_a_routing_of_ones_own_runs_every_time(capsys, played, verb):
    shutil.copy(ROOT / "controller" / "one_path.py", "mine.py")
    words = [*verb, *TWO, "--traffic", "one.csv", "--routing", "mine.py", "--no-report"]
    for _ in range(2):
        told(capsys, *words)
    assert len(played) == 4


def test_keys_are_of_words_code_and_files(monkeypatch):
    key = folder_key(GRID, [CELL])
    assert key and key == folder_key(GRID, [CELL])
    assert key != folder_key(GRID, [CELL], "more")
    assert folder_key(Grid.from_json(GRID.to_json() | {"engine": "emulate"}), [CELL]) == ""
    asks = Cell(TREE, r"sync,network=http\://127.0.0.1\:1+own", "grpo-64", 0)
    assert folder_key(GRID, [asks]) == ""
    assert folder_key(GRID, [Cell(TREE, "own", "none.csv", 0)]) == ""
    monkeypatch.setattr("rfabric.study.kept.parquet.is_there", lambda: None)
    assert key != folder_key(GRID, [CELL])


def test_the_cache_is_bounded_and_none_where_it_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "MOST_FOLDERS", 2)
    monkeypatch.setattr(kept, "MOST_BYTES", 1000)
    some = tmp_path / "some"
    some.mkdir()
    (some / "summary.json").write_text("{}")
    folders = Folders(tmp_path / "kept")
    for second, key in enumerate("abc"):
        folders.keep(key, some)
        os.utime(folders.home / key, (second, second)) if key != "c" else None
    assert sorted(os.listdir(folders.home)) == ["b", "c"]
    assert not folders.fetch("a", tmp_path / "x") and folders.fetch("b", tmp_path / "x")
    assert (tmp_path / "x/summary.json").read_text() == "{}"
    folders.keep("d", some)  # b was asked for after c
    assert "d" in os.listdir(folders.home) and len(os.listdir(folders.home)) == 2
    (some / "large").write_bytes(bytes(2000))
    folders.keep("e", some)
    assert "e" not in os.listdir(folders.home)
    (tmp_path / "file").write_text("")
    Folders(tmp_path / "file").keep("a", tmp_path / "x")
    assert not Folders(tmp_path / "file").fetch("a", tmp_path / "y")


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_text("")])
def test_a_kept_folder_that_is_damaged_is_made_again(capsys, played, tmp_path, damage):
    words = ["replay", "one.csv", "--topo", TREE, "--no-report"]
    told(capsys, *words)
    (summary,) = (tmp_path / "cache/rfabric/folders").glob("*/summary.json")
    damage(summary)
    for _ in "12":
        folder = Path(told(capsys, *words)["folder"])
        assert len(played) == 2
        assert sorted(os.listdir(folder / "inputs")) == ["one.csv"]
        assert "summary.json" in os.listdir(folder) and ".whole" not in os.listdir(folder)


def test_a_user_without_a_home_keeps_nothing(capsys, played, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    for count in (1, 2):
        told(capsys, "replay", "one.csv", "--topo", TREE, "--no-report")
        assert len(played) == count
    assert main(["sweep", "--store", "cells", "--traffic", "one.csv", "--topo", TREE]) == 2
    assert "set XDG_CACHE_HOME" in capsys.readouterr().err


def test_a_cache_that_may_not_be_looked_into_is_as_none(tmp_path, monkeypatch):
    def refused(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "stat", refused)
    assert not Folders(tmp_path / "locked").fetch("a", tmp_path / "y")


# --- workers elsewhere ----------------------------------------------------------------------------


@pytest.fixture
def far(monkeypatch):
    """Processes of this machine that are treated as those of others."""

    @contextmanager
    def opened(address, jobs):
        with connected("", max(jobs, 1)) as workers:
            yield Workers(workers.executor, workers.count, workers.died, remote=True)

    monkeypatch.setattr("rfabric.study.cell_folders.connected", opened)


def test_run_folders_come_back_from_workers(capsys, far, monkeypatch):
    monkeypatch.setenv("RFABRIC_CACHE", "none")
    here = compared(capsys)
    there = compared(capsys, "--workers", "tcp://elsewhere:8786")
    assert figures(there) == figures(here)
    inside = [sorted(p.name for p in Path(s["folder"]).rglob("*")) for s in (here, there)]
    assert inside[0] == inside[1]


def unchecked(grid, folder):
    (folder / "grid.json").write_text(json.dumps(grid.to_json()))


def test_a_cell_that_breaks_elsewhere_is_told(capsys, far, monkeypatch):
    monkeypatch.setattr("rfabric.study.comparison.begin", unchecked)
    words = [
        "compare",
        *TWO,
        "--topo",
        "fat-tree,pods=1,tors=1,gpus=4",
        "--traffic",
        "one.csv",
        "-q",
    ]
    assert main([*words, "--workers", "tcp://elsewhere:1", "--no-cache"]) == 1
    assert "1 of 3 cells broke, first fat-tree,pods=1,tors=1,gpus=4" in capsys.readouterr().err


def test_another_rfabric_elsewhere_is_refused(capsys, far, monkeypatch):
    task = cell_folders.task_of

    def other(grid, cells, code, files):
        said = json.loads(task(grid, cells, code, files))
        said["code"]["rfabric"] = "0.0.1"
        return json.dumps(said)

    monkeypatch.setattr("rfabric.study.cell_folders.task_of", other)
    words = ["compare", *TWO, "--traffic", "one.csv", "-q", "--workers", "tcp://elsewhere:1"]
    assert main(words) == 2
    assert "has another rfabric" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workers", "somewhere"], "--workers somewhere: give the address of a Dask scheduler"),
        (["--workers", "tcp://127.0.0.1:1"], "no Dask scheduler answers"),
    ],
)
def test_workers_that_are_none(capsys, monkeypatch, words, message):
    if "tcp" in words[1]:
        pytest.importorskip("distributed", reason="Dask is not installed: rfabric[dask]")
        monkeypatch.setattr("rfabric.study.workers.on_dask.PATIENCE", 1)
    assert main(["compare", *TWO, "--traffic", "one.csv", "-q", *words]) == 2
    assert message in capsys.readouterr().err


def test_packets_are_sent_here():
    with pytest.raises(cell_folders.RFabricError, match="an emulation measures the packets of"):
        emulated = Grid.from_json(GRID.to_json() | {"engine": "emulate"})
        cell_folders.run(emulated, Path("x"), cell_folders.Hands(workers="tcp://a:1"))

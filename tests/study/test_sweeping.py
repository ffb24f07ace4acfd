"""Sweeps: each cell run once, whoever dies; what a store holds is what single runs say."""

import errno
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import chdir, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from rfabric import native
from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.folders import data_dir
from rfabric.report.ranking import Contender, Standing, jobs_of, standings
from rfabric.report.store import open_store, table_of_cells
from rfabric.study import cells as cells_module
from rfabric.study import farm, sweeping
from rfabric.study.adaptive import is_open
from rfabric.study.cells import answered, files_of_cell, task_of, with_files
from rfabric.study.fingerprint import code_here, digest_of, files_of
from rfabric.study.grid import Cell, Grid
from rfabric.study.sweeping import Place, sweep_cells
from rfabric.study.workers import KINDS, Workers, on_ray

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'rfabric[store]'")
pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'rfabric[store]'")

DATA = data_dir("traffic")
TREE = "fat-tree,pods=2,tors=2,gpus=2"
TWO = ["--topo", TREE, "--topo", "rfabric,pods=2,tors=2,gpus=2"]
TRACE = (
    "src,dst,size_bytes,phase\n"
    "h1,h5,40000000,training\n"
    "h2,h8,30000000,training\n"
    "h5,h1,20000000,weight_sync\n"
)
# does `act` to whoever builds it, but for the process that began the sweep
DEADLY = """
import os, signal, time
from pathlib import Path
from rfabric.fabric import parse_fabric

def deadly():
    armed = Path({armed!r})
    if armed.is_file() and int(armed.read_text()) != os.getpid():
        {act}
    return parse_fabric({tree!r})

fabrics = {{"deadly": deadly}}
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder to work in with a trace, and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("one.csv").write_text(TRACE)
    return tmp_path


def words(*more, seeds=4, jobs=1):
    asked = "--traffic", "one.csv", "--seeds", str(seeds), "--jobs", str(jobs)
    return ["sweep", *TWO, *asked, *more]


def told(capsys, *said, code=0):
    """What a verb answers as JSON."""
    capsys.readouterr()
    assert main([*said, "--json", "-q"]) == code
    return json.loads(capsys.readouterr().out)


def refused(capsys, *said, code=2):
    """The one line that a verb says on stderr."""
    capsys.readouterr()
    assert main([*said, "-q"]) == code
    return capsys.readouterr().err


def rows(capsys, store="sweep"):
    query = "select * from cells order by fabric, seed"
    return told(capsys, "query", query, "--store", store)["rows"]


@pytest.fixture(scope="module")
def store_of_one_seed(tmp_path_factory):
    """The store of a sweep over one seed."""
    folder = tmp_path_factory.mktemp("one-seed")
    (folder / "one.csv").write_text(TRACE)
    with chdir(folder):
        assert main([*words("--cache", "none", seeds=1), "-q"]) == 0
    return folder / "sweep"


@pytest.fixture
def swept(place, store_of_one_seed):
    """That store, here."""
    shutil.copytree(store_of_one_seed, "sweep")


def test_one_cell_is_one_cell(capsys):
    one = "--topo", "rfabric,pods=2,tors=2,planes=1", "--traffic", "one.csv", "--jobs", "1"
    assert main(["sweep", *one, "-q"]) == 0
    assert capsys.readouterr().out.startswith("1 cell in sweep: 1 run\n")
    assert main(["merge", "sweep", "--store", "all"]) == 0
    assert capsys.readouterr().out == "1 new cell in all\n"


def test_a_store_says_what_single_runs_say(capsys):
    counts = told(capsys, *words(jobs=2))
    assert counts["cells"] == counts["run"] == 8
    single = told(capsys, "compare", *TWO, "--traffic", "one.csv", "--seeds", "4")["runs"]
    by_cell = {(run["fabric"], run["seed"]): run for run in single}
    for row in rows(capsys):
        run = by_cell.pop((row["fabric"], row["seed"]))
        assert row["step_s"] == run["step_s"] and row["dark_s"] == run["dark_s"]
        assert row["network_usd"] == run["cost"]["network_usd"]
        assert row["notes"] == run["notes"] and row["code"] == code_here().digest
        assert row["asked_traffic"] == "one.csv" and row["worker"] and row["cell_cpu_s"] > 0
    assert not by_cell
    pytest.importorskip("pandas")
    told(capsys, "sweep", "--topo", "rfabric", "--traffic", "grpo-64")  # has columns of its own
    frame = table_of_cells("sweep").to_pandas()
    assert len(frame) == 9 and frame.usd_per_step.notna().sum() == 1


def test_a_cell_is_run_once_until_a_file_that_it_names_changes(capsys):
    told(capsys, *words())
    assert told(capsys, *words())["stored"] == 8
    assert told(capsys, *words("--store", "other"))["cached"] == 8
    grown = told(capsys, *words(seeds=5))
    assert (grown["stored"], grown["run"]) == (8, 2)
    before = rows(capsys, "other")
    Path("one.csv").write_text(TRACE.replace("40000000", "80000000"))
    assert told(capsys, *words("--store", "third"))["run"] == 8
    after = rows(capsys, "third")
    assert all(b["step_s"] < a["step_s"] for b, a in zip(before, after, strict=True))


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM])
def test_ended_in_the_middle_nothing_that_finished_is_run_again(capsys, place, ended_by):
    job = ["--traffic", "grpo-64", "--seeds", "12", "--jobs", "2"]
    sweep = ["sweep", "--topo", "fat-tree", "--topo", "rfabric", *job]
    process = subprocess.Popen(
        [sys.executable, "-m", "rfabric", *sweep, "-q"], start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    while process.poll() is None and len(kept(place)) < 3:
        time.sleep(0.01)
    process.send_signal(ended_by)
    said = process.communicate(timeout=60)[1]
    if ended_by == signal.SIGTERM:
        assert process.returncode == 143 and "Traceback" not in said
        assert "finished cells are kept; go on with: rfabric sweep" in said
    before = kept(place)
    again = told(capsys, *sweep)
    assert again["run"] + again["cached"] + again["stored"] == again["cells"] == 24
    assert again["run"] == 24 - len(before) < 24
    assert before.items() <= kept(place).items()  # none was written anew


def kept(place):
    return {path: path.stat().st_mtime_ns for path in place.glob("cache/rfabric/*/*/*.json")}


KILL = "os.kill(os.getpid(), signal.SIGKILL)"
# a node of a cluster that is gone, by one of its workers; those of other nodes wait for it
NODE_GONE = """if os.environ.get("VICTIM"):
            armed.unlink()
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        while armed.exists():
            time.sleep(0.05)"""


def deadly(name, act):
    armed = Path(f"{name}.armed").absolute()
    armed.write_text(str(os.getpid()))
    Path(f"{name}.py").write_text(DEADLY.format(armed=str(armed), tree=TREE, act=act))
    return ["--topo", f"{name}.py"]


def test_a_worker_that_dies_costs_its_cells_once_more(capsys):
    sweep = words(*deadly("once", f"armed.unlink(); {KILL}"), jobs=2)
    assert told(capsys, *sweep)["run"] == 12
    assert not Path("once.armed").exists()


def test_a_file_that_comes_to_stand_beside_a_plugin_makes_its_cells_others(capsys):
    sweep = ["sweep", *deadly("mine", "pass"), "--traffic", "one.csv"]
    assert told(capsys, *sweep)["run"] == 1
    Path("helper.py").write_text("")
    assert [told(capsys, *sweep)["run"] for _ in range(2)] == [1, 0]


def test_a_comparison_outlives_a_process_that_dies(capsys):
    once, others = deadly("once", f"armed.unlink(); {KILL}"), words("--out", "runs", jobs=2)[1:]
    compare = ["compare", *once, *others]
    assert len(told(capsys, *compare)["runs"]) == 12 and not Path("once.armed").exists()


def test_a_cell_that_kills_every_worker_costs_no_other(capsys):
    said = refused(capsys, *words(*deadly("always", KILL), jobs=2), code=1)
    assert "4 of 12 cells broke, first always.py" in said and "two workers died of it" in said
    assert "go on with" in said and len(rows(capsys)) == 8


def test_cells_that_all_break_alike_end_a_sweep_early(capsys, place):
    broken = deadly("broken", "raise ValueError(f'no cable at {os.getpid()}')")
    job = ["--traffic", "one.csv", "--seeds", "1000", "--jobs", "2"]
    said = refused(capsys, "sweep", *broken, *job, code=1)
    assert "broke alike and none ran" in said and "no cable at" in said
    left = int(said.split("so the other ")[1].split()[0])
    assert left > 800 and not kept(place)


def test_shards_are_disjoint_and_merge_to_the_whole(capsys):
    whole = told(capsys, *words())["cells"]
    for i in (1, 2, 3):
        told(capsys, *words("--shard", f"{i}/3", "--store", f"s{i}", "--cache", f"c{i}"))
    parts = [{row["key"] for row in rows(capsys, f"s{i}")} for i in (1, 2, 3)]
    assert sum(map(len, parts)) == whole == len(set.union(*parts))
    assert told(capsys, "merge", "s1", "s2", "s3", "s1", "--store", "all")["new"] == whole
    assert told(capsys, "merge", "s1", "--store", "all")["new"] == 0
    assert told(capsys, *words("--shard", "1/9", "--store", "none"))["cells"] == 0
    assert told(capsys, "merge", "none", "s1", "--store", "all")["new"] == 0
    every = "step_s", "key", "fabric", "seed"
    together, alone = ([[r[n] for n in every] for r in rows(capsys, s)] for s in ("all", "sweep"))
    assert together == alone


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0"])
def test_a_shard_is_one_of_n(capsys, text):
    assert "--shard" in refused(capsys, *words("--shard", text))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--seed", str(2**63)], f"--seed: '{2**63}' must be "),
        (["--seeds", str(2**62)], "must be 1000000 at most; go on from another --seed"),
        (["--seed", "1", "--seed", "5", "--seeds", "3"], "--seeds 3 counts from one --seed"),
    ],
)
def test_seeds_that_cannot_be_are_refused(capsys, more, message):
    assert message in refused(capsys, "sweep", *TWO, "--traffic", "one.csv", *more)


def test_the_largest_seed_is_run(capsys):
    most = 2**63 - 1 - 1_000_000
    told(capsys, "sweep", *TWO, "--traffic", "one.csv", "--seed", str(most))
    assert {row["seed"] for row in rows(capsys)} == {most}


def test_stores_of_other_code_or_version_are_refused(capsys):
    told(capsys, *words(seeds=1))
    about = json.loads(Path("sweep/store.json").read_text())
    changed = about | {"code": about["code"] | {"files": "0" * 64}}
    Path("sweep/store.json").write_text(json.dumps(changed))
    assert "holds cells of another rfabric (files differ)" in refused(capsys, *words())
    assert len(rows(capsys)) == 2  # what it holds can be read still
    told(capsys, *words("--store", "new", seeds=1))
    assert "another rfabric" in refused(capsys, "merge", "sweep", "--store", "new")
    assert "another rfabric" in refused(capsys, "merge", "new", "sweep", "--store", "none")
    assert not Path("none").exists()
    Path("sweep/store.json").write_text(json.dumps(about | {"version": 99}))
    for said in (["query", "from cells"], ["best", "--minimise", "step_s"], words()):
        assert "is a store of version 99; this rfabric reads version 1" in refused(capsys, *said)


def test_a_folder_that_is_no_store_is_left_alone(capsys):
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    assert "is no store" in refused(capsys, *words("--store", "mine"))
    assert os.listdir("mine") == ["notes.txt"]
    assert "is no store of cells" in refused(capsys, "query", "from cells", "--store", "mine")


def test_stores_that_begin_together_are_one(place):
    """The shards of a job array begin at the same time; one that was killed leaves its share."""
    (place / "s").mkdir()
    (place / "s/store.json.0a1b2c3d.part").write_text("{")
    open_store(place / "s", {"files": "a"})
    with pytest.raises(RFabricError, match="files differ"):
        open_store(place / "s", {"files": "b"})
    (place / "s/store.json").unlink()
    (place / "s/part-1.parquet").write_text("")
    with pytest.raises(RFabricError, match="is no store"):
        open_store(place / "s", {"files": "a"})


def test_words_of_any_shard_are_checked_before_it_runs(capsys):
    small = "--topo", "fat-tree,pods=1,tors=1,gpus=4", "--traffic", "one.csv", "--seeds", "2"
    for shard in ("1/2", "2/2"):
        assert "lacks, first h5" in refused(capsys, "sweep", *small, "--shard", shard)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"key": 1}'])
def test_a_damaged_cell_of_the_cache_is_run_again(capsys, place, text):
    told(capsys, *words(seeds=1))
    for path in kept(place):
        path.write_text(text)
    assert told(capsys, *words("--store", "other", seeds=1))["run"] == 2


def test_a_damaged_part_says_which_and_what_to_do(capsys):
    told(capsys, *words())
    (part,) = Path("sweep").glob("part-*")
    part.write_bytes(part.read_bytes()[:100])
    assert f"{part} is damaged" in refused(capsys, "query", "from cells")
    part.unlink()
    assert told(capsys, *words())["cached"] == 8


def test_a_full_disk_loses_nothing_that_was_kept(capsys, monkeypatch, place):
    written = Path.write_text
    room = [2]

    def full(path, *args, **settings):
        if ".json." in path.name and "cache" in path.parts:
            room[0] -= 1
            if room[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return written(path, *args, **settings)

    monkeypatch.setattr(Path, "write_text", full)
    said = refused(capsys, *words(seeds=32))
    assert "No space left on device" in said and "make room" in said
    monkeypatch.setattr(Path, "write_text", written)
    # of tasks of two cells: the store has both of the one that found no room
    assert (len(kept(place)), len(rows(capsys))) == (2, 4)
    again = told(capsys, *words(seeds=32))
    assert (again["stored"], again["run"]) == (4, 60)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select fabrc from cells", "fabrc"),
        ("select * from cels", "table is called cells"),
        ("selec", "syntax error"),
        ("select * from 'one.csv'", "disabled by configuration"),
        ("copy cells to 'out.csv'", "disabled by configuration"),
        ("", "argument SQL: the word is empty"),
        ("/* no question */", "asks nothing"),
    ],
)
def test_a_question_with_a_mistake_is_an_error(capsys, swept, sql, message):
    said = refused(capsys, "query", sql)
    assert message in said and "Traceback" not in said and not Path("out.csv").exists()


def test_an_answer_is_a_table_csv_or_json(capsys, swept):
    question = "select fabric, seed, step_s from cells where fabric like 'fat%'"
    (row,) = told(capsys, "query", question)["rows"]
    assert main(["query", question, "--csv"]) == 0
    assert capsys.readouterr().out == f'fabric,seed,step_s\n"{TREE}",0,{row["step_s"]!r}\n'
    assert main(["query", question]) == 0
    assert f"{row['step_s']:.6g}" in capsys.readouterr().out


def test_no_answer_is_said(capsys, swept):
    none = "query", "select fabric from cells where fabric = 'fat-tre'"
    for more, said in (([], "no rows\n"), (["--csv"], "fabric\n")):
        assert main([*none, *more]) == 0
        assert capsys.readouterr().out == said


def test_an_answer_in_json_is_json_whatever_its_values(capsys, swept):
    strange = (
        "[now()::date] as days, {'a': 1::decimal(3, 1)} as s, 1 / 0 as far, 'nan'::double as n"
    )
    said = told(capsys, "query", f"select {strange} limit 1")["rows"][0]
    assert said["far"] == "inf" and said["n"] == "nan" and said["s"] == {"a": "1.0"}
    assert len(said["days"]) == 1
    twice = "select step_s as a, seed as a from cells"
    assert "two columns are called 'a'" in refused(capsys, "query", twice, "--json")
    assert main(["query", twice, "--csv"]) == 0
    assert capsys.readouterr().out.startswith("a,a\n")


def test_a_sweep_names_a_question_that_its_store_can_answer(capsys):
    assert main(words("-q", seeds=1)) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert main(shlex.split(said)[1:]) in (0, None)


def test_a_broken_core_is_told(monkeypatch):
    if native.core() is None:
        pytest.skip("the core is not built")
    assert native.built_from() == native.source_digest()
    monkeypatch.setattr(native, "source_digest", lambda: "0" * 64)
    with pytest.raises(RFabricError, match="built from other files"):
        native.built_from()


class TakesLong(Executor):
    """Calls at once; each call takes 1,000 s of a clock."""

    def __init__(self):
        self.now = 0.0

    def submit(self, fn, /, *args):
        self.now += 1000
        future = Future()
        future.set_result(fn(*args))
        return future


def test_what_is_left_is_told_by_the_pace_of_the_cells_that_are_run(monkeypatch):
    """The clock runs from the first answers, and what was known before is no pace."""
    engine, news = TakesLong(), []
    monkeypatch.setattr(sweeping, "time", types.SimpleNamespace(monotonic=lambda: engine.now))
    workers = Workers(engine, lambda: 1, (), remote=False)
    monkeypatch.setattr(sweeping, "connected", lambda *_: nullcontext(workers))
    place = Place(Path("sweep"), Path("kept"), 1)
    for seeds in (2, 6):
        news.clear()
        grid = Grid(tuple(TWO[1::2]), ("own",), ("one.csv",), tuple(range(seeds)))
        sweep_cells(grid, place, news.append)
    assert [(one["done"], one["of"]) for one in news] == [(n, 12) for n in (5, 7, 9, 11, 12)]
    assert [one["phase"] for one in news] == [
        "5 of 12 cells",
        "7 of 12 cells, 0.001 a second, 1:23:20 left",
        "9 of 12 cells, 0.001 a second, 0:50:00 left",
        "11 of 12 cells, 0.001 a second, 0:16:40 left",
        "12 of 12 cells",
    ]


# --- workers -----------------------------------------------------------------------------------


def test_a_worker_of_another_rfabric_is_refused_by_name(capsys, monkeypatch):
    other = replace(code_here(), rfabric="9.9", core="")
    monkeypatch.setattr(sweeping, "code_here", lambda: other)
    said = refused(capsys, *words(jobs=2))
    assert "has another rfabric: rfabric" in said and "instead of 9.9" in said
    assert "instead of missing" in said and ":" in said.split("worker ")[1]


def the_grid():
    return Grid((TREE,), ("own",), ("sub/one.csv",), (0,))


def test_files_travel_with_the_words(place, monkeypatch):
    Path("sub").mkdir()
    Path("sub/one.csv").write_text(TRACE)
    files = {"sub/one.csv": digest_of("sub/one.csv")}
    task = task_of(the_grid(), [Cell(TREE, "own", "sub/one.csv", 0)], code_here(), files)
    here = json.loads(answered(task))["cells"][0]["row"]
    sent = with_files(task)
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert "sub/one.csv has changed or gone" in json.loads(answered(task))["refused"]
    there = json.loads(answered(sent))["cells"][0]["row"]
    assert there["step_s"] == here["step_s"] and os.getcwd() == str(place / "elsewhere")
    monkeypatch.setattr(cells_module, "MOST_SENT", 10)
    monkeypatch.chdir(place)
    with pytest.raises(RFabricError, match="too much to travel"):
        with_files(task)


def test_threads_of_one_worker_each_have_the_files_of_their_task(place, monkeypatch):
    """`dask worker` has as many as cores where nothing is said."""
    Path("elsewhere").mkdir()
    monkeypatch.setattr(cells_module, "row_of_cell", lambda *_: time.sleep(0.02) or found())
    tasks = []
    for text in "abcd" * 4:
        Path("one.csv").write_text(text)
        files = {"one.csv": digest_of("one.csv")}
        cell = Cell(TREE, "own", "one.csv", 0)
        tasks.append(with_files(task_of(the_grid(), [cell], code_here(), files)))
        Path("one.csv").unlink()
    with chdir("elsewhere"), ThreadPoolExecutor(4) as threads:
        answers = [json.loads(answer)["cells"] for answer in threads.map(answered, tasks)]
    assert [cells[0].get("row", {}).get("text") for cells in answers] == list("abcd" * 4)


def found():
    return {"text": Path("one.csv").read_text()}


def test_a_worker_that_has_read_a_file_reads_it_anew_when_it_changes(place):
    Path("sub").mkdir()
    steps = []
    for size in ("40000000", "80000000"):
        Path("sub/one.csv").write_text(TRACE.replace("40000000", size))
        files = {"sub/one.csv": digest_of("sub/one.csv")}
        task = task_of(the_grid(), [Cell(TREE, "own", "sub/one.csv", 0)], code_here(), files)
        steps.append(json.loads(answered(task))["cells"][0]["row"]["step_s"])
    assert steps[0] < steps[1]


HELPED = """import os, sys
sys.path.insert(0, os.path.dirname(__file__))
import helper
from rfabric.fabric import parse_fabric

def mine():
    import later
    return parse_fabric(helper.TREE + later.MORE)

fabrics = {"mine": mine}
"""


def test_a_worker_reads_what_a_plugin_imports_anew_when_it_changes(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    steps = []
    for slower, more in (("", ""), (",oversubscription=2", ""), ("", ",oversubscription=2")):
        Path("mine.py").write_text(HELPED)
        Path("helper.py").write_text(f"TREE = {TREE + slower!r}")
        Path("later.py").write_text(f"MORE = {more!r}")
        files = {name: digest_of(name) for name in ("mine.py", "helper.py", "later.py", "one.csv")}
        grid = replace(the_grid(), fabrics=("mine.py",))
        task = with_files(task_of(grid, [Cell("mine.py", "own", "one.csv", 0)], code_here(), files))
        Path("elsewhere").mkdir(exist_ok=True)
        with chdir("elsewhere"):
            steps.append(json.loads(answered(task))["cells"][0]["row"]["step_s"])
    assert steps[0] < steps[1] == steps[2]


def test_what_a_path_names_travels_wherever_it_stands(capsys, monkeypatch, place):
    """A file of a checkout by a path from there, and one by a way down and up again."""
    Path("jobs").mkdir()
    shutil.copy(DATA / "grpo-64.yaml", "mine.yaml")
    Path("jobs/two.yaml").write_text("jobs: [../mine.yaml, ../mine.yaml]\nslo: 2.0\n")
    both = replace(the_grid(), traffics=("jobs/two.yaml",))
    cell = Cell(TREE.replace("gpus=2", "gpus=16"), "own", "jobs/two.yaml", 0)
    ours = Cell("rfabric", "own", "traffic/grpo-64.yaml", 0)
    for grid, one, where in ((both, cell, place), (the_grid(), ours, DATA.parent)):
        monkeypatch.chdir(where)
        task = with_files(task_of(grid, [one], code_here(), files_of_cell(grid, one)))
        (place / "elsewhere").mkdir(exist_ok=True)
        monkeypatch.chdir(place / "elsewhere")
        assert json.loads(answered(task))["cells"][0]["row"]["step_s"] > 0


def test_words_name_their_files(place):
    for name in ("mine.py", "helper.py", "net.graphml", "a,b.py"):
        Path(name).write_text("")
    Path("a+b").mkdir()
    Path("a+b/c+d.py").write_text("")
    assert [str(p) for p in files_of("a+b/c+d.py,rows=4")] == ["a+b/c+d.py"]
    assert files_of("rfabric,pods=4") == files_of("orchestrrl,period=5s+demand") == []
    assert {p.name for p in files_of("orchestrrl+mine.py:ring")} >= {"mine.py", "helper.py"}
    assert [p.name for p in files_of("net.graphml,hosts=8")] == ["net.graphml"]
    assert "a,b.py" in {p.name for p in files_of(r"a\,b.py:x,rows=4")}


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nowhere", "give the address of a Dask scheduler"),
        ("http://x:1", "give the address of a Dask scheduler"),
        ("tcp://127.0.0.1:1", "no Dask scheduler answers"),
    ],
)
def test_an_address_without_workers_is_an_error(capsys, monkeypatch, address, message):
    if address.startswith("tcp"):
        pytest.importorskip("distributed", reason="Dask is not installed: rfabric[dask]")
        monkeypatch.setattr("rfabric.study.workers.on_dask.PATIENCE", 1)
    assert message in refused(capsys, *words("--workers", address))


@pytest.mark.parametrize("name", sorted(set(KINDS.values())))
def test_an_adapter_of_another_engine_is_thin(name):
    lines = Path(on_ray.__file__).with_name(f"{name}.py").read_text().splitlines()
    assert len(lines) < 80


def test_a_scheduler_that_asks_a_controller_is_no_matter_for_a_cache(capsys):
    policy = r"orchestrrl,network=http\://127.0.0.1\:1"
    sweep = ["sweep", "--topo", "rfabric", "--traffic", "grpo-64", "--policy", policy]
    assert "no sweep can keep" in refused(capsys, *sweep)


@pytest.fixture
def background():
    """Starts programs that end with the test."""
    begun = []

    def start(*said, cwd=".", **more):
        env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])} | more
        with open(f"log-{len(begun)}", "w") as log:
            begun.append(
                subprocess.Popen(
                    [sys.executable, *said],
                    env=env,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    cwd=cwd,
                )  # fmt: skip
            )
        return begun[-1]

    yield start
    for process in begun:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
    for process in begun:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def killed_after(process, cells):
    """A thread that kills it as soon as so many cells are kept, and a list: of how many were."""
    count = []

    def kill():
        while process.poll() is None and len(kept(Path())) < cells:
            time.sleep(0.01)
        process.kill()
        count.append(len(kept(Path())))

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread, count


WHOLE = ["--topo", "fat-tree", "--topo", "rfabric", "--traffic", "grpo-64", "--seeds", "16"]


@pytest.fixture(scope="module")
def as_here(tmp_path_factory):
    """(key, s) of the cells of WHOLE, as processes of this machine make them."""
    folder = tmp_path_factory.mktemp("whole")
    with chdir(folder):
        assert main(["sweep", *WHOLE, "--jobs", "2", "--cache", "none", "-q"]) == 0
    cells = table_of_cells(folder / "sweep").to_pylist()
    assert len(cells) == 32
    return sorted((cell["key"], cell["step_s"]) for cell in cells)


def made_of_whole(capsys):
    """The same of the store of WHOLE."""
    return sorted((row["key"], row["step_s"]) for row in rows(capsys))


def compared_as_here(capsys, address):
    """`compare` has the same figures by workers as by processes of this machine."""
    asked = "compare", *TWO, "--traffic", "one.csv", "--seeds", "2", "--no-report", "--no-cache"
    both = [told(capsys, *asked, *how) for how in (["--workers", address], ["--jobs", "2"])]
    there, here = ([(r["fabric"], r["seed"], r["step_s"]) for r in one["runs"]] for one in both)
    assert there == here and len(here) == 4


def test_dask_workers_killed_at_random_lose_no_cell(capsys, background, as_here, monkeypatch):
    pytest.importorskip("distributed", reason="Dask is not installed: rfabric[dask]")
    place = ["--scheduler-file", "dask.json", "--no-dashboard"]
    background("-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", "0", *place)
    while not Path("dask.json").exists():
        time.sleep(0.05)
    address = json.loads(Path("dask.json").read_text())["address"]
    with monkeypatch.context() as patch:
        patch.setattr("rfabric.study.workers.on_dask.PATIENCE", 1)
        assert "the scheduler has no workers" in refused(capsys, *words("--workers", address))
    worker = ["-m", "dask", "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    Path("elsewhere").mkdir()  # where none of our files is
    victim, _ = (background(*worker, cwd="elsewhere") for _ in range(2))
    while not all("Registered to" in Path(log).read_text() for log in ("log-1", "log-2")):
        time.sleep(0.05)
    killer, count = killed_after(victim, random.randint(4, 20))
    swept = told(capsys, "sweep", *WHOLE, "--workers", address)
    killer.join(10)
    assert 4 <= count[0] < 32  # in the midst of the sweep
    assert swept["run"] == swept["cells"] == 32 and victim.wait(10) == -signal.SIGKILL
    assert made_of_whole(capsys) == as_here
    assert told(capsys, *words("--workers", address, "--store", "files"))["run"] == 8
    compared = ["compare", *TWO, "--traffic", "one.csv", "--seeds", "2", "--no-report"]
    far, here = (told(capsys, *compared, *more)["runs"] for more in (["--workers", address], []))
    assert len(far) == 4 and [run["step_s"] for run in far] == [run["step_s"] for run in here]
    deaths = words(*deadly("always", KILL), "--workers", address, "--store", "deaths")
    background(*worker, cwd="elsewhere")
    assert "no worker was there" in refused(capsys, *deaths, code=1)


def test_ray_workers_and_nodes_that_die_lose_no_cell(capsys, background, as_here, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'rfabric[ray]'")
    head, client = free_ports(2)
    small = ["--num-cpus", "1", "--object-store-memory", "100000000", "--block"]
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # a socket's path is short
        background(
            "-m", "ray.scripts.scripts", "start", "--head", "--port", str(head), *small,
            "--ray-client-server-port", str(client), "--include-dashboard", "false",
            "--temp-dir", folder, RAY_USAGE_STATS_ENABLED="0",
        )  # fmt: skip
        address = f"ray://127.0.0.1:{client}"
        swept = told(capsys, "sweep", *WHOLE, "--workers", address)
        assert swept["run"] == swept["cells"] == 32
        assert made_of_whole(capsys) == as_here
        compared_as_here(capsys, address)
        background(
            "-m", "ray.scripts.scripts", "start", "--address", f"127.0.0.1:{head}", *small,
            RAY_USAGE_STATS_ENABLED="0", VICTIM="yes",
        )  # fmt: skip
        sweep = words(
            *deadly("once", f"armed.unlink(); {KILL}"), "--workers", address, "--store", "once"
        )
        assert told(capsys, *sweep)["run"] == 12 and not Path("once.armed").exists()
        sweep = words(*deadly("always", KILL), "--workers", address, "--store", "always")
        assert "4 of 12 cells broke, first always.py" in refused(capsys, *sweep, code=1)
        assert len(rows(capsys, "always")) == 8
        lost = []

        class Told(farm.LostItems):
            def __init__(self, why):
                super().__init__(why)
                lost.append(why)

        monkeypatch.setattr(farm, "LostItems", Told)
        anew = "--store", "node", "--cache", "none"
        sweep = words(*deadly("node", NODE_GONE), "--workers", address, *anew)
        assert told(capsys, *sweep)["run"] == 12 and not Path("node.armed").exists()
        assert len(lost) == 1 and "dead or unavailable" in lost[0], lost  # NodeDiedError


@pytest.fixture
def stub_of_ray(monkeypatch):
    """What of Ray is called before the first task, with a cluster of two CPUs."""
    ray = types.ModuleType("ray")
    ray.exceptions = types.SimpleNamespace(
        WorkerCrashedError=OSError, NodeDiedError=OSError, OutOfMemoryError=OSError
    )
    ray.init = lambda address, **_: None
    ray.cluster_resources = lambda: {"CPU": 2.0}
    ray.shutdown = lambda: None
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


def test_a_ray_cluster_without_a_cpu_is_an_error_and_is_left(stub_of_ray):
    left = []
    stub_of_ray.cluster_resources = lambda: {"memory": 1e9}
    stub_of_ray.shutdown = lambda: left.append(True)
    with pytest.raises(RFabricError, match="has no CPU; add a node: ray start --address"):
        on_ray.opened("ray://there:1").__enter__()
    assert left == [True]


@pytest.mark.parametrize("refusals", [2, 3])
def test_a_ray_cluster_may_refuse_a_client_twice(stub_of_ray, refusals):
    refused = iter(
        [ConnectionAbortedError("No client:\nserver.py, line 7\nits process ended\n")] * refusals
    )

    def init(address, **_):
        for refusal in refused:
            raise refusal

    stub_of_ray.init = init
    if refusals == 2:
        with on_ray.opened("ray://there:1") as workers:
            assert workers.count() == 2
    else:
        with pytest.raises(RFabricError, match="took no client in 3 tries: its process ended"):
            on_ray.opened("ray://there:1").__enter__()


def free_ports(count):
    """Ports that nobody listens on, below those that a system deals out by itself."""
    ports = []
    for port in random.sample(range(20000, 32000), 100):
        with socket.socket() as one:
            if len(ports) < count and one.connect_ex(("127.0.0.1", port)):
                ports.append(port)
    return ports


NAMESPACES = """
set -e
mount -t tmpfs none /run
ip link set lo up
ip link add bridge type bridge
ip address add 10.9.0.1/24 dev bridge
ip link set bridge up
{python} -m dask scheduler --host 10.9.0.1 --port 8786 --no-dashboard 2>>log &
for i in 2 3; do
    ip netns add w$i
    ip link add up$i type veth peer name eth0 netns w$i
    ip link set up$i master bridge up
    ip -n w$i link set lo up
    ip -n w$i address add 10.9.0.$i/24 dev eth0
    ip -n w$i link set eth0 up
    (cd /; exec ip netns exec w$i {python} -m dask worker tcp://10.9.0.1:8786 --nthreads 1 \
        --no-nanny --no-dashboard --local-directory {folder}/w$i) 2>>log &
    worker=$!
done
until [ "$(grep -c 'Registered to' log)" = 2 ]; do sleep 0.1; done
(until [ "$(ls -d cache/rfabric/*/*/*.json 2>/dev/null | wc -l)" -ge 12 ]; do sleep 0.05; done
 sleep {seconds}; kill -9 $worker) &
{python} -m rfabric sweep {words} --workers tcp://10.9.0.1:8786 --json -q
"""


@pytest.mark.root
@pytest.mark.beside
def test_dask_workers_in_network_namespaces_of_their_own(capsys, place, as_here):
    pytest.importorskip("distributed", reason="Dask is not installed: rfabric[dask]")
    script = NAMESPACES.format(
        python=sys.executable, folder=place, seconds=random.random() / 2, words=" ".join(WHOLE)
    )
    private = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run(
        [*private, "bash", "-c", script], capture_output=True, text=True, timeout=400,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert not done.returncode, done.stderr + Path("log").read_text()
    swept = json.loads(done.stdout)
    assert swept["run"] == swept["cells"] == 32
    assert len({row["worker"] for row in rows(capsys)}) == 2
    assert made_of_whole(capsys) == as_here


README_ROWS = re.findall(
    r"^\|[^|]*\| `(rfabric (?:sweep|merge|best|query) [^`]*)` \|",
    (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8"), re.M,
)  # fmt: skip


def test_the_rows_of_the_readme_run(capsys):
    """But for the two that need a cluster: their words are those that run on clusters above."""
    assert len(README_ROWS) == 8
    told(capsys, "sweep", *WHOLE[:-1], "1", "--store", "shard-1")
    told(capsys, "sweep", *WHOLE[:-1], "2", "--store", "shard-2")
    clusters = [row for row in README_ROWS if "--workers" in row]
    assert [row.split("://")[0].split()[-1] for row in clusters] == ["tcp", "ray"]
    for row in README_ROWS:
        if row not in clusters:
            assert main(shlex.split(row)[1:]) in (0, None), row
    assert "rfabric own" in capsys.readouterr().out


# --- what is best ------------------------------------------------------------------------------


def test_the_best_is_held_against_the_others_seed_by_seed(capsys):
    told(capsys, *words())
    (job,) = told(capsys, "best", "--minimise", "network_usd")["jobs"]
    first, second = job["ranking"]
    assert job["asked_traffic"] == "one.csv" and first["more_than_best"] == 0.0
    cells = rows(capsys)
    prices = {row["asked_fabric"]: row["network_usd"] for row in cells}
    assert first["mean"] == min(prices.values()) and second["mean"] == max(prices.values())
    assert second["more_than_best"] == second["mean"] - first["mean"]
    assert second["seeds_shared"] == 4 and second["half_of_interval"] == 0.0
    (job,) = told(capsys, "best", "--maximise", "network_usd")["jobs"]
    assert job["ranking"][0]["asked_fabric"] == second["asked_fabric"]
    assert main(["best", "--minimise", "network_usd"]) == 0
    assert "more" in capsys.readouterr().out
    only = told(capsys, "best", "--minimise", "step_s", "--where", "seed = 1")["jobs"][0]
    assert [one["seeds"] for one in only["ranking"]] == [1, 1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--minimise", "steps_s"], "no column 'steps_s', did you mean step_s?"),
        (["--minimise", "fabric"], "column 'fabric' holds no numbers: such as"),
        (["--minimise", "step_s", "--where", "seed > 99"], "no cell is left to choose from"),
        (["--minimise", "step_s", "--where", "sed = 1"], 'column "sed" not found'),
        (["--minimise", "step_s", "--maximise", "step_s"], "not allowed with"),
        ([], "--minimise"),
    ],
)
def test_what_cannot_be_ranked_is_an_error(capsys, swept, more, message):
    assert message in refused(capsys, "best", *more)


def test_cells_of_a_file_that_changed_are_not_held_against_those_before(capsys):
    told(capsys, "sweep", *TWO[:2], "--traffic", "one.csv", "--seeds", "2")
    Path("one.csv").write_text(TRACE.replace("40000000", "80000000"))
    told(capsys, "sweep", *TWO[2:], "--traffic", "one.csv", "--seeds", "2")
    jobs = told(capsys, "best", "--minimise", "step_s")["jobs"]
    assert [len(job["ranking"]) for job in jobs] == [1, 1]
    assert jobs[0]["job_files"] != jobs[1]["job_files"]
    assert main(["best", "--minimise", "step_s"]) == 0
    out = capsys.readouterr().out
    assert all(f"job_files = '{job['job_files']}'" in out for job in jobs)
    told(capsys, *words(seeds=2))  # the tree on the new file, too
    jobs = told(capsys, "best", "--minimise", "step_s")["jobs"]
    assert sorted(len(job["ranking"]) for job in jobs) == [1, 2]


def test_a_fabric_whose_file_changed_is_another(capsys):
    plugin = "from rfabric.fabric import parse_fabric\n\n\n"
    plugin += "def mine():\n    return parse_fabric('{}')\n\n\nfabrics = {{'mine': mine}}\n"
    asked = "--topo", "mine.py", "--traffic", "one.csv"
    for tree in (TREE, TREE + ",oversubscription=2"):
        Path("mine.py").write_text(plugin.format(tree))
        told(capsys, "sweep", *asked)
    (job,) = told(capsys, "best", "--minimise", "network_usd")["jobs"]
    first, second = job["ranking"]
    assert first["network_files"] != second["network_files"] and first["mean"] < second["mean"]
    assert main(["best", "--minimise", "network_usd"]) == 0
    assert first["network_files"] in capsys.readouterr().out


def test_a_store_from_before_its_rows_told_of_files_is_ranked_still():
    kept = ("asked_traffic", "settings", "matched", "asked_fabric", "asked_policy", "routing",
            "in_flight", "repetitions")  # fmt: skip
    row = dict.fromkeys(kept, "x") | {"seed": 0, "step_s": 1.0}
    assert jobs_of([row, row | {"asked_fabric": "y"}], "step_s").keys() == {("x", "x", "x", "")}
    assert len(jobs_of([row, row | {"job_files": "a"}], "step_s")) == 2


def by_seed(name, *values):
    return Contender((name,), dict(enumerate(values)))


def test_who_has_fewer_seeds_is_compared_on_those_it_has():
    best, dropped = by_seed("a", 1.0, 1.0, 9.0, 9.0), by_seed("b", 2.0, 2.1)
    first, second = standings([dropped, best])
    assert first.contender is best and second.more == pytest.approx(1.05)
    assert second.verdict(1.0) == "more" and second.seeds == 2
    (_, other) = standings([best, Contender(("c",), {7: 0.5})])
    assert other.verdict(1.0) == "no seed in common"


def test_an_interval_is_within_a_share_where_both_of_its_ends_are():
    """Of a best of 100: 0.8 +- 0.9 more reaches 1.7 %, 0.05 +- 0.9 stays below 1 %."""
    one = Contender(("a",), {0: 1.0})
    assert is_open(Standing(one, 0.8, 0.9, 8), 1.0) and is_open(Standing(one, 0.0, None, 1), 1.0)
    assert not is_open(Standing(one, 0.05, 0.9, 8), 1.0)


def test_a_sweep_ends_when_its_question_is_answered(capsys):
    fabrics = [*TWO, "--topo", TREE + ",oversubscription=2"]
    sweep = ["sweep", *fabrics, "--traffic", "one.csv", "--seeds", "64", "--jobs", "2"]
    swept = told(capsys, *sweep, "--until", "1%")
    assert swept["run"] < 3 * 64
    counts = {row["asked_fabric"]: 0 for row in rows(capsys)}
    for row in rows(capsys):
        counts[row["asked_fabric"]] += 1
    (job,) = told(capsys, "best", "--minimise", "step_s")["jobs"]
    best, *others = job["ranking"]
    for one in others:
        low = one["more_than_best"] - one["half_of_interval"]
        high = one["more_than_best"] + one["half_of_interval"]
        assert low > 0 or high <= 0.01 * best["mean"] or one["seeds"] == 64
    again = told(capsys, *sweep, "--until", "1%")
    assert again["run"] == 0 and again["cells"] == again["stored"] == swept["run"]
    assert "--seeds 2 or more" in refused(capsys, *words("--until", "1%", seeds=1))
    assert "percentage" in refused(capsys, *words("--until", "1"))


def test_a_question_is_answered_though_cells_of_one_network_break(capsys):
    broken = deadly("broken", "raise ValueError('no cable')")
    asked = "--traffic", "grpo-64", "--jobs", "1", "--until", "0.000001%"
    sweep = ["sweep", "--topo", "fat-tree", "--topo", "rfabric", *asked]
    Path("broken.py").write_text(Path("broken.py").read_text().replace(TREE, "fat-tree"))
    said = refused(capsys, *sweep, *broken, "--seeds", "8", code=1)
    assert "2 of 18 cells broke, first broken.py" in said and "no cable" in said
    assert [row["seed"] for row in rows(capsys)] == [*range(8), *range(8)]
    said = refused(capsys, "sweep", *broken, *asked, "--seeds", "2", "--store", "none", code=1)
    assert "2 of 2 cells broke" in said

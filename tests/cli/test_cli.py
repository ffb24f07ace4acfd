"""The command line, as a user meets it: answers, errors, exit codes, manners."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rfabric.cli import main
from rfabric.cli.arguments import ROUTINGS, parser
from rfabric.cli.arguments.options import KINDS
from rfabric.cli.terminal import show_notes, show_tables
from rfabric.fabric import Fabric, fabric_names, parse_fabric
from rfabric.fabric.formats import TOPOLOGIES
from rfabric.optics import POLICIES
from rfabric.report.compare import Row, Table
from rfabric.report.summary import check_summary
from rfabric.schedulers.table import schedulers, usual_traffic
from rfabric.study import known
from rfabric.study.step_log import LOGS
from rfabric.trace import read_trace
from rfabric.trace.formats import FORMATS

SMALL = ["--topo", "fat-tree,pods=2,tors=2", "--topo", "rfabric,pods=2,tors=2,planes=1"]
TRACE = """# rfabric-trace 1
id,src,dst,size_bytes,start_s,after,gap_s,step,phase,label
0,h1,h1,0,0,,2.5,0,training,backward
1,h1,h9,4000000000,0,0,0,0,training,reduce-scatter
2,h9,h1,4000000000,0,0,0,0,training,reduce-scatter
3,h1,h13,2000000000,0,1 2,0,0,weight_sync,weights
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with a trace in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text(TRACE)
    return tmp_path


def run(*words, **settings):
    return subprocess.run(
        [sys.executable, "-m", "rfabric", *words], capture_output=True, text=True, **settings
    )


def failure(capsys, *words):
    """The one line that a bad request is answered with; exit code 2, nothing on stdout."""
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("rfabric: error: ") and err.count("\n") == 1
    return err


# --- runs -----------------------------------------------------------------------------------------


def test_replay_prints_the_comparison_and_leaves_a_folder(here, capsys):
    assert main(["replay", "mine.csv", *SMALL, "--seed", "3"]) == 0
    out = capsys.readouterr().out
    for words in (
        "step time",
        "exposed communication",
        "weight sync",
        "Rewires",
        "network cost",
        "fat-tree",
        "rfabric",
    ):
        assert words in out
    page = Path(out.split()[-1])
    assert page.name == "report.html" and page.is_file()
    summary = json.loads((page.parent / "summary.json").read_text())
    assert [r["seed"] for r in check_summary(summary, "")["runs"]] == [3, 3]
    assert (page.parent / "inputs/mine.csv").read_text() == TRACE
    assert len(read_trace(page.parent / "trace.csv")) == 4


@pytest.mark.parametrize(
    "words",
    [
        ["replay", "mine.csv"],
        ["compare", "--traffic", "mine.csv"],
        ["compare", "--traffic", "mine.csv", "--seeds", "2", "--jobs", "1"],
    ],
    ids=["one run", "one trace", "a grid"],
)
def test_a_page_is_drawn_when_it_is_asked_for(here, capsys, words):
    assert main([*words, *SMALL, "--no-report"]) == 0
    folder = Path(capsys.readouterr().out.split()[-1])
    assert folder.is_dir() and not (folder / "report.html").exists()
    assert main(["report", str(folder), "-q"]) == 0
    assert (folder / "report.html").is_file()


def test_json_is_one_document_on_stdout(here, capsys):
    assert main(["simulate", "--traffic", "mine.csv", *SMALL, "--json"]) == 0
    document = check_summary(json.loads(capsys.readouterr().out), "stdout")
    saved = json.loads((Path(document.pop("folder")) / "summary.json").read_text())
    assert saved == document


def test_the_default_step_runs_on_four_fabrics_two_of_about_equal_cost(here, capsys):
    assert main(["simulate", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [r["fabric"] for r in runs] == [
        "fat-tree",
        "fat-tree,oversubscription=2",
        "leaf-spine",
        "rfabric",
    ]
    assert {r["traffic"] for r in runs} == {"grpo-64-moe"} and {r["gpus"] for r in runs} == {64}
    equal, _, optical = (r["cost"]["network_usd"] for r in runs[1:])
    assert abs(equal / optical - 1) < 0.05


def test_a_scheduler_is_shown_on_traffic_of_its_own(here, capsys):
    """orchestrrl where widths switch, with the plans that fabrics would have answered."""
    words = ["simulate", "--policy", "orchestrrl", "--set", "generation.batch=256"]
    assert main([*words, "--quiet"]) == 0
    printed = capsys.readouterr().out
    table = printed[printed.index("Plans by who answers the scheduler") :]
    assert all(
        name in table for name in ("network cards", "rfabric", "fat-tree,oversubscription=4")
    )
    (folder,) = (here / "runs").iterdir()
    assert json.loads((folder / "summary.json").read_text())["runs"][0]["traffic"] == (
        "orchestrrl-64"
    )


@pytest.mark.parametrize(
    ("asked", "traffic"),
    [
        ([""], "usual"),
        (["sync"], "usual"),
        (["orchestrrl,period=2s"], "orchestrrl-64"),
        (["orchestrrl", "orchestrrl,network=fabric"], "orchestrrl-64"),
        (["orchestrrl", "sync"], "usual"),
        (["solo", "weave"], "weave-2jobs"),
    ],
)
def test_traffic_that_is_not_named_is_what_all_schedulers_are_shown_on(asked, traffic):
    assert usual_traffic(asked, "usual") == traffic


def test_the_same_seed_gives_the_same_figures(here, capsys):
    def figures(seed):
        main(["simulate", "--topo", "rfabric", "--json", "--seed", seed])
        return json.loads(capsys.readouterr().out)["runs"][0]

    assert figures("4") == figures("4") != figures("5")


def test_settings_reach_the_recipe(here, capsys):
    def bytes_sent(*words):
        main(["simulate", "--topo", "fat-tree", "--traffic", "grpo-64", "--json", *words])
        return json.loads(capsys.readouterr().out)["runs"][0]["phases"]["training"]["bytes"]

    assert bytes_sent("--set", "training.mini_batches=8") == pytest.approx(
        2 * bytes_sent(), rel=1e-6
    )


def test_policies_multiply_optical_fabrics_alone(here, capsys):
    words = [
        "compare",
        "--traffic",
        "mine.csv",
        *SMALL,
        "--policy",
        "static",
        "--policy",
        "demand",
        "--json",
    ]
    assert main(words) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(r["label"], r["policy"]) for r in runs] == [
        ("fat-tree", "ecmp"),
        ("rfabric static", "static"),
        ("rfabric demand", "demand"),
    ]


def test_report_makes_the_page_again(here, capsys):
    main(["replay", "mine.csv", *SMALL])
    page = Path(capsys.readouterr().out.split()[-1])
    before = page.read_text()
    page.unlink()
    assert main(["report", str(page.parent)]) == 0
    assert capsys.readouterr().out.split()[-1] == str(page)
    assert page.read_text() == before


def test_report_writes_long_tables_as_csv_and_nothing_else(here, capsys, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("rfabric.report.tables.LONG", 3)
    assert main(["replay", "mine.csv", *SMALL, "--no-report", "--no-cache"]) == 0
    folder = Path(capsys.readouterr().out.split()[-1])
    assert main(["report", str(folder), "--csv"]) == 0
    written = capsys.readouterr().out.split()
    assert len(written) == 2 * len(list(folder.glob("simulate-*")))
    assert all(Path(file).is_file() for file in written)
    assert not (folder / "report.html").exists()
    assert main(["report", str(folder), "--csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": []}
    assert main(["report", str(folder), "--csv", "--yours", "mine.log"]) == 2
    assert "--csv writes tables and draws no page" in capsys.readouterr().err


def test_in_flight_reaches_the_simulator(here, capsys):
    """Draining waits for the flows of the phase before; holding does not."""
    lines = TRACE.splitlines()[:2] + [
        "0,h1,h9,4e10,0,,0,0,training,a",
        "1,h1,h13,4e10,0.1,,0,0,weight_sync,b",
    ]
    Path("overlap.csv").write_text("\n".join(lines) + "\n")

    def waits(way):
        main(
            [
                "replay",
                "overlap.csv",
                "--topo",
                "rfabric,pods=2,tors=2,planes=1",
                "--in-flight",
                way,
                "--json",
            ]
        )
        run = json.loads(capsys.readouterr().out)["runs"][0]
        return max(r["programmed_s"] - r["requested_s"] for r in run["rewires"])

    assert waits("drain") > 10 * waits("hold") > 0


@pytest.mark.root
def test_emulate_measures_with_real_packets_beside_the_simulation(here):
    """A few seconds on four racks: every byte arrives, the run is compared, the folder is whole,
    nothing is left.
    """
    # small enough for a busy machine
    scale = ["--bandwidth-scale", "0.0003", "--time-dilation", "20"]
    done = run("emulate", "--traffic", "mine.csv", *SMALL[2:], *scale, "--json")
    assert done.returncode == 0, done.stderr
    document = check_summary(json.loads(done.stdout), "stdout")
    (entry,) = document["runs"]
    assert entry["engine"] == "emulate" and entry["pace"]["ok"] and entry["rewires"]
    assert entry["scale"] == {"bandwidth_scale": 0.0003, "time_dilation": 20, "sample_s": None}
    assert entry["fidelity"]["phases"] and entry["lost_bytes"] == 0
    assert {"mininet", "openvswitch", "datapath", "controller"} <= set(document["versions"])
    folder = Path(document["folder"])
    assert (folder / "report.html").is_file()
    assert [p.name for p in (here / "runs").iterdir()] == [folder.name]
    assert run("check", str(folder)).returncode == 0


@pytest.mark.root
def test_busy_loops_on_all_processors_refuse_an_emulation(here):
    """Seven seconds of packets, at a scale of the user's: one try."""
    scale = ["--bandwidth-scale", "0.0009", "--time-dilation", "60"]
    loop = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(loop) for _ in os.sched_getaffinity(0)]
    try:
        done = run("emulate", "--traffic", "mine.csv", *SMALL[2:], *scale)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert done.returncode == 1 and "others on this host took" in done.stderr
    kept = Path(re.search(r"they are kept in (\S+)", done.stderr)[1])
    (pace,) = kept.glob("*/pace.json")
    assert '"kept": false' in pace.read_text()


@pytest.mark.root
def test_doctor_calibrates_and_leaves_nothing(here):
    done = run("doctor", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["packet_hops_per_s"] > 0
    assert not (here / "runs").exists()


# --- traces, fabrics, files -----------------------------------------------------------------------


def test_trace_tells_and_writes(here, capsys):
    assert main(["trace", "grpo-64", "-o", "out.jsonl"]) == 0
    out = capsys.readouterr().out
    assert "decode" in out and "weights" in out and out.split()[-1] == "out.jsonl"
    written = read_trace("out.jsonl")
    assert main(["trace", "grpo-64", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rows"] == len(written)
    assert sum(g["bytes"] for g in document["flows"]) == written.size.sum()
    assert {i["phase"] for i in document["items"]} == {
        "generation",
        "training",
        "weight_sync",
        "step",
    }
    assert main(["trace", "grpo-64", "--explain"]) == 0
    out = capsys.readouterr().out
    assert "matmul at" in out and "What enters the fabric" not in out
    assert "weights from HBM" in out and "compute.gpus.HBM_SHARE" in out
    assert main(["trace", "grpo-64", "--explain", "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    check_every_second(explained)
    assert not {"phases", "terms", "sources"} & set(document)
    assert main(["trace", "out.jsonl", "--explain"]) == 2
    assert (
        "a trace file, which says nothing of what it was made from; give a recipe"
        in capsys.readouterr().err
    )


def check_every_second(document):
    """Phases, terms and sources of `trace --explain --json`."""
    for phase in document["phases"]:
        assert phase.keys() == {"phase", "seconds"}
        terms = [term for term in document["terms"] if term["phase"] == phase["phase"]]
        assert sum(term["seconds"] for term in terms) == pytest.approx(phase["seconds"])
        assert sum(term["share"] for term in terms) == pytest.approx(1)
    keys = {"phase", "part", "term", "seconds", "share", "sources"}
    assert all(term.keys() == keys for term in document["terms"])
    named = {name for term in document["terms"] for name in term["sources"]}
    assert named == document["sources"].keys()
    assert all(of.keys() == {"value", "basis", "text"} for of in document["sources"].values())


def test_trace_reads_trace_files_too(here, capsys):
    assert main(["trace", "mine.csv", "--json"]) == 0
    assert [g["flows"] for g in json.loads(capsys.readouterr().out)["flows"]] == [2, 1]


def test_topo_tells_draws_and_hands_over(here, capsys):
    assert main(["topo", "rfabric,pods=2", "--png", "r.png"]) == 0
    out = capsys.readouterr().out
    assert (
        "optical circuit switch" in out
        and "sum" in out
        and Path("r.png").read_bytes()[1:4] == b"PNG"
    )
    assert main(["topo", "rfabric,pods=2", "--json"]) == 0
    assert Fabric.from_json(capsys.readouterr().out) == parse_fabric("rfabric,pods=2")
    assert main(["topo", "rfabric,pods=2", "--dot"]) == 0
    dot = capsys.readouterr().out
    assert (
        dot.count(" -- ") == len(parse_fabric("rfabric,pods=2").links)
        and "a1 [shape=diamond, kind=ocs, tier=aggregation, " in dot
    )


def test_check_names_what_is_sound_and_what_is_not(here, capsys):
    Path("fabric.json").write_text(json.dumps(parse_fabric("rfabric,pods=2").to_json()))
    Path("bad.csv").write_text(TRACE.replace("1 2", "99"))
    Path("bad.json").write_text("{}")
    Path("bad.yaml").write_text("modell: x\n")
    Path("bad.py").write_text("x = 1\n")
    main(["replay", "mine.csv", *SMALL])
    folder = Path(capsys.readouterr().out.split()[-1]).parent
    repository = Path(__file__).parents[2]
    good = [
        "mine.csv",
        "fabric.json",
        str(folder),
        str(folder / "summary.json"),
        str(folder / "trace.csv"),
    ]
    good += [str(repository / "traffic/grpo-64.yaml"), str(repository / "topologies/rfabric.py")]
    assert main(["check", *good]) == 0
    assert all(": OK, " in line for line in capsys.readouterr().out.splitlines())
    bad = ["bad.csv", "bad.json", "bad.yaml", "bad.py", "none.csv", "mine.csv"]
    assert main(["check", *bad]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert [": bad: " in line for line in lines] == [True] * 5 + [False]
    assert "99" in lines[0] and "modell" in lines[2]
    assert main(["check", "--json", *bad]) == 2
    assert [f["ok"] for f in json.loads(capsys.readouterr().out)["files"]] == [False] * 5 + [True]


def test_bench_measures(here, capsys):
    words = ["bench", "--case", "rings-of-128-gpus", "--patience", "0", "--out", "mine/bench"]
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (row,) = document["bench"]
    assert row["flows"] == 2560 and row["cpu_s"] > 0 and row["peak_mib"] > 0 and document["machine"]
    assert (
        (here / "mine/bench/engine.csv")
        .read_text()
        .splitlines()[1]
        .startswith("rings-of-128-gpus,")
    )
    assert f"`rfabric {' '.join(words)} --json`" in (here / "mine/bench/engine.md").read_text()
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "packed rings of 64 x 20, 128 GPUs" in out and out.split()[-1] == "mine/bench/engine.md"


def test_clean_removes_what_a_killed_run_left(here, capsys):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = here / "runs" / f".20250721-143005-9f3a.{dead.pid}.part"
    left.mkdir(parents=True)
    assert main(["clean", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"cleaned": [left.name]}
    assert not left.exists()
    assert main(["clean"]) == 0
    assert capsys.readouterr().out == "nothing to clean\n"


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["simulat"], "no verb 'simulat', did you mean simulate?"),
        (["-q", "simulate"], "-q comes after the verb, as in `rfabric simulate -q`; see `rfabric"),
        (["--topo", "x"], "--topo comes after the verb, as in `rfabric VERB --topo`"),
        (["simulate", "--polcy", "demand"], "unknown argument --polcy, did you mean --policy?"),
        (["simulate", "--in-flight", "hodl"], "no mode 'hodl', did you mean hold?"),
        ([], "VERB"),
        (["simulate", "--seed", "-1"], "--seed"),
        (["simulate", "--seed", "x"], "'x' must be a whole number"),
        (["emulate", "--time-dilation", "0"], "scale '0' must be a number above 0"),
        (["simulate", "--topo", "fat-tre"],
         "no fabric named 'fat-tre', did you mean fat-tree?; there are"),
        (["simulate", "--topo", "rfabric,pod=3"], "'pod=3' is not a setting"),
        (["simulate", "--topo", "rfabric,pods=1"], "lacks"),
        (["simulate", "--traffic", "grpo-65"], "no recipe named 'grpo-65', did you mean grpo-64?"),
        (["simulate", "--traffic", "weave-2job"], "did you mean weave-2jobs?"),
        (["simulate", "--set", "cluster.gpu=H80"], "'H80' is not known, did you mean H800?"),
        (["simulate", "--policy", "demnd"], "no policy named 'demnd', did you mean demand?"),
        (["simulate", "--policy", "orchestrrl,perid=3s"],
         "'perid=3s' is not a setting, did you mean period?"),
        (["simulate", "--policy", "demand,granularity=per-colective"],
         "did you mean per-collective?"),
        (["circuits", "--png", "none/x.png"], "cannot write none/x.png: there is no folder none"),
        (["timeline", "--perfetto", "none/x.json"],
         "cannot write none/x.json: there is no folder none"),
        (["crossover", "--png", "."], "cannot write .: it is a folder"),
        (["simulate", "--policy", "best"], "no policy named 'best'"),
        (["simulate", "--policy", "sync+async"], "policy sync+async: 'async' chooses no circuits"),
        (["trace", "weave-2jobs"], "weave-2jobs is a file of several jobs; one is asked for here"),
        (["sweep", "--set", "training.tp=2", "--set", "training.tp=4"],
         "--set sets training.tp twice, training.tp=2 and training.tp=4; keep one"),
        (["sweep", "--by", "dark_s"],
         "--by dark_s is what --until looks at, and there is no --until; add --until 1%, or leave"),
        (["simulate", "--traffic", ""], "argument --traffic: the word is empty"),
        (["compare", "--resume="], "argument --resume: the word is empty"),
        (["topo", ""], "argument FABRIC: the word is empty"),
        (["simulate", "--traffic", "grpo-64", "--set", "pipeline=x"], "pipeline"),
        (["simulate", "--set", "training.tpp=2"], "tpp"),
        (["simulate", "--set", "training.tp"], "is not a setting"),
        (["replay", "mine.csv", "--set", "a=b"], "csv has no setting 'a'; it has none"),
        (["simulate", "--traffic", "mine.csv", "--set", "a=b"], "csv has no setting 'a'"),
        (["replay", "grpo-64"], "is no trace file"),
        (["replay", "none.csv"], "none.csv: cannot be read"),
        (["compare", "--topo", "rfabric"], "two fabrics, policies or engines"),
        (["list", "polices"],
         "no kind 'polices', did you mean policies?; there are fabrics, policies"),
        (["topo", "rfabric", "--png", "none/x.png"], "cannot write none/x.png"),
        (["trace", "grpo-64", "-o", "x.xml"], "a trace is written as .csv or .jsonl"),
        (["trace", "grpo-64", "-o", "none/x.csv"], "cannot write none/x.csv"),
        (["report", "none"], "is no run folder"),
        (["bench", "--case", "mox"], "no benchmark 'mox': choose from rings, "),
        (["emulate", "--patience", "1us"], "patience 1 us: packets that move for less than 1 s"),
        (["bench", "--patience", "-1"], "--patience: '-1' must be finite and not negative"),
        (["bench", "--patience", "nan"], "--patience: 'nan' is not a quantity"),
        (["control", "--port", "0"], "port 0 must lie between 1 and 65535"),
        (["clean", "emulation-0-0000", "--out", "none"], "emulation-0-0000"),
        (["compare", "--resume", "runs/x", "--json", "--seeds", "5"],
         "--seeds says nothing beside --resume, which takes it from the folder's grid.json"),
        (["cost", "--years", "5"], "--years is of what a step costs: say how long it is by --s"),
        (["cost", "--step-s", "5", "--price-holds", "nics"], "add --gpu-usd-per-hour"),
        (["cost", "--metres", "edge=5", "--metres", "edge=6"], "--metres sets edge twice; keep"),
        (["topo", "rfabric", "--write-as", "gml"],
         "--write-as is the format of a file: name it with --output"),
        (["topo", "rfabric", "--json", "--dot"], "--dot and --json are two forms of one answer"),
        (["timeline", "--jobs", "jobs.csv", "--traffic", "grpo-64"],
         "--traffic and --jobs are two things to schedule: give one"),
    ],
)  # fmt: skip
def test_a_bad_request_is_one_line(here, capsys, words, message):
    assert message in failure(capsys, *words)
    assert not Path("runs").exists()


def test_options_of_real_packets_are_said_to_count_for_nothing_in_a_simulation(
    here, capsys, caplog
):
    words = ["replay", "mine.csv", "--topo", "fat-tree", "--patience=2min", "--no-report", "--json"]
    assert main(words) == 0
    plain = json.loads(capsys.readouterr().out)
    assert "--patience: of real packets, and counts for nothing here" in caplog.text
    caplog.clear()
    Path("rfabric.toml").write_text('[replay]\npatience = "2min"\n')
    assert main([word for word in words if "patience" not in word]) == 0
    assert json.loads(capsys.readouterr().out)["command"].startswith(
        "rfabric replay --patience=2min mine.csv"
    )
    assert "real packets" not in caplog.text and plain["runs"]


def test_without_root_emulation_says_what_to_do(here, capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "sudo" in failure(capsys, "emulate")
    assert not Path("runs").exists()


# --- manners --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("plan", "circuits", ["--topo", "rfabric,pods=2,tors=2,planes=1", "--traffic", "mine.csv"]),
        ("schedule", "timeline", ["--traffic", "grpo-64"]),
    ],
)
def test_a_verb_by_its_old_name_does_the_same_and_says_so(here, capsys, old, new, words):
    assert main([new, *words, "--json"]) == 0
    now, silence = capsys.readouterr()
    assert main([old, *words, "--json"]) == 0
    before, note = capsys.readouterr()
    assert before == now and json.loads(now) and "note:" not in silence
    said = f"rfabric: note: `{old}` is called `{new}` now; the old name goes with the next version"
    assert said in note.splitlines()  # among lines of progress, where the machine is slow
    assert main([old, *words, "-q", "--json"]) == 0
    assert capsys.readouterr() == (now, "")


def test_list_says_what_there_is_from_the_tables_that_parse_it(capsys):
    assert main(["list", "--json"]) == 0
    everything = json.loads(capsys.readouterr().out)
    assert tuple(everything) == KINDS == tuple(known.KINDS)
    assert all(what for names in everything.values() for what in names.values())
    assert list(everything["fabrics"]) == fabric_names()
    assert set(everything["policies"]) == {"own", *POLICIES} and set(
        everything["schedulers"]
    ) == set(schedulers())
    assert set(everything["routing"]) == set(ROUTINGS) and {"grpo-64", "weave-2jobs"} <= set(
        everything["recipes"]
    )
    assert (
        "H800" in everything["gpus"]
        and "30.5 B parameters" in everything["models"]["Qwen3-30B-A3B"]
    )
    assert not set(FORMATS) & set(TOPOLOGIES) and not (set(FORMATS) | set(TOPOLOGIES)) & set(LOGS)
    assert set(everything["formats"]) == set(FORMATS) | set(TOPOLOGIES) | set(LOGS)
    assert ".htsim" in everything["formats"]["htsim"]
    assert main(["list", "policies"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("policies\n") and "rotor" in out and "H800" not in out


def test_version_and_help_exit_with_0():
    assert re.fullmatch(r"rfabric \d+\.\d+\.\d+\n", run("--version").stdout)
    done = run("--help")
    assert done.returncode == 0 and all(verb in done.stdout for verb in parser().verbs())


def test_a_closed_pipe_is_no_drama(here):
    command = f"{sys.executable} -m rfabric topo rfabric,pods=16,tors=16 --json"
    process = subprocess.Popen(command.split(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141


WAITING = """
import sys, time
from rfabric.cli import main, runs
def wait(*_):
    print("ready", flush=True)
    time.sleep(30)
runs.play = wait
sys.exit(main(["replay", "mine.csv", "--topo", "rfabric,pods=2,tors=2"]))
"""


def waiting(*before):
    """A run that waits until it is told to stop, started by the words `before`."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", WAITING],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    return process


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "SIGTERM"), ("SIGHUP", 129, "SIGHUP")],
)
def test_told_to_stop_it_cleans_up_and_says_so(here, number, code, said):
    # what background jobs ignore, and programs under nohup
    process = waiting("env", "--default-signal=INT,HUP")
    process.send_signal(getattr(signal, number))
    assert process.wait(10) == code
    talk = process.stderr.read()
    assert said in talk and talk.count("\n") == 1
    assert not Path("runs").exists()


def test_told_to_stop_while_its_verbs_are_loaded_it_says_so():
    """They are loaded where Ctrl-C is heard; before that hardly anything is."""
    code = (
        "import rfabric.cli, sys\n"
        "assert 'rfabric.cli.arguments' not in sys.modules\n"
        "class Loader:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'rfabric.cli.arguments': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Loader())\n"
        "sys.exit(rfabric.cli.main(['fabrics']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 130 and done.stderr.count("\n") == 1, done.stderr
    assert "interrupted" in done.stderr


def test_with_nohup_it_outlives_its_terminal(here):
    process = waiting("nohup")
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.terminate()
    assert process.wait(10) == 143 and "SIGTERM" in process.stderr.read()


def test_what_kill_9_leaves_goes_with_the_next_run(here):
    process = waiting()
    process.kill()
    process.communicate()
    assert len(list(Path("runs").glob(".*.part"))) == 1
    assert run("replay", "mine.csv", "--topo", "rfabric,pods=2,tors=2", "-q").returncode == 0
    assert not list(Path("runs").glob(".*"))


def test_two_runs_at_once_do_not_meet(here):
    words = [
        sys.executable,
        "-m",
        "rfabric",
        "replay",
        "mine.csv",
        "--topo",
        "rfabric,pods=2,tors=2",
        "-q",
    ]
    both = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [p.wait() for p in both] == [0, 0]
    assert len(list(Path("runs").glob("*/summary.json"))) == 2


@pytest.mark.parametrize("asked", ["", "2"])
def test_products_of_matrices_take_one_thread_unless_others_are_asked_for(asked):
    name = "OPENBLAS_NUM_THREADS"
    others = {key: value for key, value in os.environ.items() if key != name}
    code = (
        "import os; from rfabric.cli import main; main(['list', 'recipes']); import numpy;"
        f"print(os.environ['{name}'], len(os.listdir('/proc/self/task')))"
    )
    words = [sys.executable, "-c", code]
    told = subprocess.run(
        words, env=others | ({name: asked} if asked else {}), capture_output=True, text=True
    )
    chosen, threads = told.stdout.splitlines()[-1].split()
    assert chosen == (asked or "1") and int(threads) <= int(chosen)


# --- progress -------------------------------------------------------------------------------------


def test_progress_off_a_terminal_is_a_line_a_phase(capsys, monkeypatch):
    from rfabric.cli import terminal

    monkeypatch.setattr(terminal, "PATIENCE", 0.0)
    with terminal.Talk() as talk:
        for done in (0, 5, 10):
            talk.of("rfabric")(
                {"stage": "run", "phase": "training/0", "done_bytes": done, "total_bytes": 10}
            )
        talk.of("rfabric")(
            {"stage": "run", "phase": "weight_sync/0", "done_bytes": 10, "total_bytes": 10}
        )
    out, err = capsys.readouterr()
    assert out == "" and err == "rfabric: run training/0\nrfabric: run weight_sync/0\n"


def test_progress_is_silent_when_quiet_or_quick(capsys, monkeypatch):
    from rfabric.cli import terminal

    with terminal.Talk() as talk:
        talk.tell("rfabric", {"stage": "run"})
    monkeypatch.setattr(terminal, "PATIENCE", 0.0)
    with terminal.Talk(quiet=True) as talk:
        talk.tell("rfabric", {"stage": "run"})
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal_is_a_bar(capsys, monkeypatch):
    from rfabric.cli import terminal

    monkeypatch.setattr(terminal, "PATIENCE", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with terminal.Talk() as talk:
        talk.tell(
            "rfabric",
            {
                "stage": "run",
                "phase": "training/0",
                "done_bytes": 5e9,
                "total_bytes": 1e10,
                "circuits": 33,
            },
        )
        time.sleep(0.3)
    err = capsys.readouterr().err
    assert "training/0" in err and "5 GB of 10 GB" in err and "33 circuits" in err


@pytest.mark.parametrize("columns", [20, 60, 80, 100, 160])
def test_no_terminal_is_too_narrow_for_a_figure(columns, capsys, monkeypatch):
    cells = [
        (f"{1234.5 * i:,.1f} ms", "words that may be broken", f"+{i}.00 x") for i in range(1, 4)
    ]
    rows = tuple(Row(f"fabric-{i},oversubscription=2", c, best=0) for i, c in enumerate(cells))
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    title = "A title that is longer than its table and stands in one line"
    heads = "fabric, policy", "exposed communication", "why", "against the first"
    show_tables([Table(title, heads, rows, words=(0, 2))])
    show_notes(["said twice and said once", "said twice and said once"])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    for row in rows:
        assert all(text in shown for text in (row.name, row.cells[0], row.cells[2]))
    assert columns < 80 or title in shown
    if columns >= 100:
        assert max(map(len, shown.splitlines())) <= columns
    assert (
        " ".join(shown.split()).endswith("note: said twice and said once")
        and shown.count("note:") == 1
    )


def without(library, *arguments):
    """The exit code and stderr of a command line where this library is not installed."""
    code = (
        f"import sys; sys.modules['{library}'] = None; from rfabric.cli import main; "
        f"sys.exit(main({list(arguments)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.returncode, done.stderr


def test_without_the_libraries_that_draw_tables_are_made_and_pictures_refused(tmp_path):
    (tmp_path / "flows.htsim").write_text("0 7 1000000 0\n1 6 1000000 0\n")
    job = ["--traffic", str(tmp_path / "flows.htsim"), "--out", str(tmp_path / "runs")]
    topo = ["--topo", "fat-tree,pods=2,tors=2,gpus=2", "--topo", "rfabric,pods=2,tors=2,gpus=2"]
    code, said = without("jinja2", "compare", *topo, *job, "--seeds", "2", "--jobs", "1")
    assert code == 0 and "no report.html without jinja2: install rfabric[report]" in said
    assert (
        not list(tmp_path.rglob("report.html"))
        and len(list(tmp_path.glob("runs/*/summary.json"))) == 1
    )
    code, said = without(
        "matplotlib",
        "crossover",
        "--topo",
        "rfabric,pods=2,tors=2,gpus=2",
        "--delays",
        "1ms,1s",
        *job,
    )
    assert code == 2 and "drawing needs matplotlib; install rfabric[report]" in said


@pytest.mark.parametrize("words", [("drill", "--soak", "5"), ("emulate", "--sample", "5")])
def test_a_time_without_its_unit_is_of_the_option_it_was_given_to(words, capsys):
    assert main(list(words)) == 2
    assert f"argument {words[1]}: 5 has no unit; write 5ms" in capsys.readouterr().err

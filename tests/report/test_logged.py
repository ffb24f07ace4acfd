"""Your run beside the simulated ones: what a log tells, on the page's axis and in its tables."""

import json

import pytest
from test_page import CREATED, HOSTILE, at_rest, job, told

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.report import html
from rfabric.report.folder import new_folder, write_folder
from rfabric.report.page.logged import LoggedRun, beside, table
from rfabric.report.summary import Run, summary_of
from rfabric.simulate.world import simulate
from rfabric.study.step_log import read_step_log
from rfabric.trace import TraceBuilder

LOG = (
    "step:3 - timing_s/gen:4.0 - timing_s/update_actor:2.5 - timing_s/step:8.0\n"
    "step:4 - timing_s/gen:6.0 - timing_s/update_actor:3.5 - timing_s/step:11.0\n"
)


@pytest.fixture(scope="module")
def runs():
    fabrics = map(parse_fabric, ("fat-tree,pods=2,tors=2", "rfabric,pods=2,tors=2"))
    trace = job()
    return [Run(simulate(f, trace, "demand", traffic="small", seed=7)) for f in fabrics]


@pytest.fixture
def place(runs, tmp_path):
    with new_folder(tmp_path / "runs", "one") as made:
        write_folder(made.path, runs, summary_of(runs, "rfabric compare", CREATED))
    (tmp_path / "train.log").write_text(LOG)
    return made.final


def test_each_phase_has_its_error_on_each_fabric(runs):
    compared = beside(LoggedRun("a.log", "step 1", {"generation": 4.0, "training": 2.0}), runs)
    assert [phase["phase"] for phase in compared["phases"]] == ["generation", "training"]
    for phase in compared["phases"]:
        for one, run in zip(phase["runs"], runs, strict=True):
            (mine,) = [p for p in run.result.phases if p.key.phase == phase["phase"]]
            assert one["predicted_s"] == pytest.approx(mine.seconds)
            assert one["error"] == pytest.approx(mine.seconds / phase["logged_s"] - 1)
    rows = table(compared, ["a", "b"]).rows
    error = compared["phases"][1]["runs"][1]["error"]
    assert [row.name for row in rows] == ["generation", "training"]
    assert rows[1].cells[-1] == f"{error:+.1%}"


def test_predicted_is_the_mean_of_the_run_s_steps():
    builder = TraceBuilder(["h1", "h5"])
    for step, seconds in enumerate((2.0, 4.0)):
        done = builder.compute(0, seconds, label="x", phase="training", step=step)
        builder.flows([0], [1], 1e6, after=[done], phase="training", step=step)
    run = Run(simulate(parse_fabric("ideal,gpus=8"), builder.build()))
    compared = beside(LoggedRun("a.log", "", {"training": 3.0, "step": 0.0}), [run])
    training, step = (phase["runs"][0] for phase in compared["phases"])
    assert training["predicted_s"] == pytest.approx(sum(p.seconds for p in run.result.phases) / 2)
    assert step == {"predicted_s": run.result.step_seconds / 2, "error": None}


def test_a_log_of_other_phases_and_a_run_of_several_jobs_are_refused(runs):
    with pytest.raises(RFabricError, match="no phase in common: the log tells none, the run has"):
        beside(LoggedRun("a.log", "", {"step": 4.0}), runs)
    builder = TraceBuilder(["h1", "h5"])
    builder.flows([0], [1], 1e6, phase="training")
    trace = builder.build(provenance={"held": {"alice": {}, "bob": {}}})
    two = [Run(simulate(parse_fabric("ideal,gpus=8"), trace))]
    with pytest.raises(RFabricError, match="log of one job, the run holds several"):
        beside(LoggedRun("a.log", "", {"training": 4.0}), two)


def test_the_seconds_of_a_step_or_their_means(tmp_path):
    (tmp_path / "train.log").write_text(LOG + "step:9 - timing_s/gen:8.0\n")
    log = read_step_log(tmp_path / "train.log")
    assert log.numbers == (3, 4, 9)
    assert log.seconds_of() == {"generation": 6.0, "training": 3.0, "step": 9.5}
    assert log.seconds_of(9) == {"generation": 8.0}
    with pytest.raises(RFabricError, match="step 5 is not logged; the log has 3 steps from 3 to 9"):
        log.seconds_of(5)


def test_report_puts_the_log_on_the_page(place, capsys):
    log = place.parents[1] / "train.log"
    assert main(["report", str(place), "--yours", str(log), "--step", "4", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["yours"]
    text = (place / "report.html").read_text()
    assert told(text)["yours"] == said and said["which"] == "step 4"
    assert "Your run: train.log, step 4" in text
    assert f"rfabric report {place} --yours {log} --step 4" in told(text)["command"]
    assert main(["report", str(place), "-q"]) == 0
    assert told((place / "report.html").read_text())["yours"] is None


@pytest.mark.parametrize(
    "words, text",
    [
        (["--yours", "gone.log"], "gone.log"),
        (["--yours", "only.csv"], "no phase in common"),
        (["--yours", "train.log", "--step", "77"], "step 77 is not logged"),
        (["--step", "3"], "name the log with --yours"),
    ],
)
def test_what_cannot_be_compared_ends_with_one_error(place, words, text, monkeypatch, capsys):
    monkeypatch.chdir(place.parents[1])
    (place.parents[1] / "only.csv").write_text("step,step_s\n1,4.0\n")
    assert main(["report", str(place), *words]) == 2
    said = capsys.readouterr().err
    assert text in said and len(said.strip().splitlines()) == 1
    assert not (place / "report.html").exists()


def test_your_run_is_a_lane_in_a_browser(runs, tmp_path, opened):
    logged = LoggedRun(HOSTILE, "mean of 2 steps", {"generation": 5.0, "training": 30.0})
    path = tmp_path / "a.html"
    html.write_report(path, runs, summary_of(runs, "", CREATED), logged)
    phases = told(path.read_text())["yours"]["phases"]
    page = opened(path)
    assert page.title() != "taken" and not page.locator("#clock img").count()
    assert HOSTILE in page.text_content("#lanes .yours")
    for number, run in enumerate(told(path.read_text())["runs"]):
        page.select_option("#chosen", str(number))
        for phase in phases:
            (mine,) = [p for p in run["phases"] if p["phase"] == phase["phase"]]
            lane = page.locator(f".yours [data-phase={phase['phase']}]")
            error = phase["runs"][number]["error"]
            assert lane.locator(".error").text_content() == f"{error:+.1%}".replace("-", "−")
            bar = lane.locator("rect").bounding_box()
            assert bar["width"] == pytest.approx(pixels(page) * phase["logged_s"], rel=0.01)
            cursor = at(page, mine["begin_s"])
            assert bar["x"] == pytest.approx(cursor, abs=1.5)
    page.locator(".yours [data-phase=training] rect").click()
    assert "30.000 s logged (mean of 2 steps)" in page.inner_text("#reading")


def pixels(page):
    """Of a second."""
    return at(page, 1.0) - at(page, 0.0)


def at(page, t):
    """Where the cursor stands at `t`."""
    page.evaluate(f"location.hash = 't={t}'")
    at_rest(page)
    return page.locator("#lanes .cursor").bounding_box()["x"]

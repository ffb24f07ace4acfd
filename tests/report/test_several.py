"""One page of several run folders, or of a store: controls choose among runs that were made."""

import json
from dataclasses import replace

import pytest
from test_page import CREATED, HOSTILE, at_rest, job, told

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.report import several
from rfabric.report.choices import choices, choices_of_cells, menus
from rfabric.report.folder import new_folder, write_folder
from rfabric.report.result import Scale, fidelity
from rfabric.report.summary import Run, summary_of
from rfabric.simulate.world import simulate

FABRICS = "fat-tree,pods=2,tors=2", "rfabric,pods=2,tors=2", "rfabric,pods=2,tors=2,delay=1s"


def made(fabrics, policy="demand", strategy="flat", trace=None):
    trace = trace or job()
    settings = {"weight_sync": {"strategy": strategy}, "model": "m"}
    trace = replace(trace, provenance=trace.provenance | {"settings": settings})
    return [Run(simulate(parse_fabric(f), trace, policy, traffic="small", seed=7)) for f in fabrics]


def written(place, name, runs, command="rfabric compare"):
    with new_folder(place, name) as folder:
        write_folder(folder.path, runs, summary_of(runs, command, CREATED))
    return folder.final


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    first = made(FABRICS)
    slower = replace(first[1].result, engine="emulate", scale=Scale(0.002, 10))
    return [
        written(place, "one", first, "rfabric compare first"),
        written(place, "two", made(FABRICS[1:2], strategy="tree"), "rfabric compare second"),
        written(place, "three", [Run(slower, fidelity(slower, first[1].result))]),
    ]


def test_what_differs_is_chosen_and_what_does_not_concern_a_run_leaves_it():
    runs = [*made(FABRICS), *made(FABRICS[1:2], "static"), *made(FABRICS[:1], strategy="tree")]
    offered = {menu["name"]: (menu["values"], menu["of"]) for menu in menus(choices(runs))}
    assert offered == {
        "fabric": (["fat-tree", "rfabric"], [0, 1, 1, 1, 0]),
        "policy": (["demand", "static"], [-1, 0, 0, 1, -1]),
        "OCS delay": (["10 ms", "1 s"], [-1, 0, 1, 0, -1]),
        "weight sync strategy": (["flat", "tree"], [0, 0, 0, 0, 1]),
    }
    assert menus(choices(made(FABRICS[:1]))) == []


def test_cells_are_chosen_by_the_words_they_were_asked_in():
    cell = {"fabric": "rfabric,delay=1s", "policy": "demand", "scheduler": "", "routing": "placed",
            "traffic": "job", "seed": 0, "settings": "", "network_usd": 1e6}  # fmt: skip
    rows = [
        cell,
        cell | {"fabric": "rfabric", "settings": "training.tp=2"},
        cell | {"fabric": "fat-tree", "policy": "ecmp", "network_usd": None},
        cell | {"network_usd": 2e6, "seed": 1},
    ]
    offered = {menu["name"]: (menu["values"], menu["of"]) for menu in menus(choices_of_cells(rows))}
    assert offered == {
        "fabric": (["rfabric", "fat-tree"], [0, 0, 1, 0]),
        "seed": (["0", "1"], [0, 0, 0, 1]),
        "OCS delay": (["1s", "usual"], [0, 1, -1, 0]),
        "network's price": (["1,000 k$", "2,000 k$"], [0, -1, -1, 1]),
        "training tp": (["usual", "2"], [0, 1, 0, 0]),
    }


def test_a_page_of_several_tells_each_run_as_its_folder_does(places, tmp_path, capsys):
    page = tmp_path / "all.html"
    assert main(["report", *map(str, places), "-o", str(page), "--json"]) == 0
    said, text = json.loads(capsys.readouterr().out), page.read_text()
    data = told(text)
    labels = [run["label"] for run in data["runs"]]
    assert labels == [run["label"] for run in said["runs"]] and len(set(labels)) == 5
    folders = [json.loads((p / "summary.json").read_text())["runs"] for p in places]
    for run, entry in zip(data["runs"], sum(folders, []), strict=True):
        for key in ("step_s", "policy", "cost", "rewires", "engine", "fidelity"):
            assert run[key] == entry[key], key
        flows = data["traces"][run["trace"]]["flows"]
        assert max(flows["finish_s"][run["column"]]) == pytest.approx(entry["step_s"])
    assert "rfabric compare first" in text and "rfabric compare second" in text
    assert len(text.encode()) < 5e6


def test_runs_of_other_jobs_are_told_as_such(places, tmp_path, capsys):
    page = tmp_path / "all.html"
    assert main(["report", *map(str, places), "-o", str(page)]) == 0
    says = "Jobs differ in weight sync strategy: where that is other work, no run is the better."
    assert f"note: {says}" in capsys.readouterr().out and page.read_text().count(says) > 1
    assert main(["report", str(places[0]), "-o", str(page)]) == 0
    assert "Jobs differ" not in capsys.readouterr().out + page.read_text()


def test_more_runs_than_a_page_holds_and_no_run_folder_are_refused(places, monkeypatch, capsys):
    monkeypatch.setattr(several, "MOST_RUNS", 2)
    with pytest.raises(RFabricError, match="5 runs are more than the 2 that a page holds"):
        several.read_folders(places)
    assert main(["report", str(places[0]), str(places[0].parent)]) == 2
    assert "is no run folder" in capsys.readouterr().err


@pytest.fixture(scope="module")
def page_of_all(places, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "all.html"
    folders = several.read_folders(places)
    several.write_several(path, folders, several.summary_of_all(folders, "rfabric report a b"))
    return path


def rows(page):
    """The labels of the rows that are drawn."""
    return page.locator("#lanes .lane-name").all_text_contents()


def test_controls_choose_among_the_runs_that_were_made(page_of_all, opened):
    every = [run["label"] for run in told(page_of_all.read_text())["runs"]]
    page = opened(page_of_all)
    assert rows(page) == every and len(every) == 5
    page.select_option("[data-choice='OCS delay']", label="1 s")
    assert rows(page) == [every[0], every[2]]  # the Fat-Tree has no OCS, and stays
    tree = page.locator("[data-choice='weight sync strategy'] option", has_text="tree")
    assert tree.is_disabled()  # no such run was made
    page.select_option("[data-choice=fabric]", label="rfabric")
    assert rows(page) == [every[2]] and page.input_value("#chosen") == "2"
    at_rest(page)
    again = page.inner_text("#again")
    assert again.startswith("rfabric report a b") and "all.html#run=2" in again
    other = opened(f"file://{page_of_all}#{again.partition('#')[2]}")
    assert rows(other) == [every[2]]
    assert opened(f"file://{page_of_all}#only=7.x.-1.").locator("#lanes .row").count() == 5


def test_flows_that_are_read_are_those_of_the_chosen_run(page_of_all, opened):
    data = told(page_of_all.read_text())
    page = opened(page_of_all)
    page.click("details.tables summary")
    for number in (1, 3):
        one = data["runs"][number]
        flows = data["traces"][one["trace"]]["flows"]
        start, finish = (flows[key][one["column"]] for key in ("start_s", "finish_s"))
        t = max(start)
        page.evaluate(f"location.hash = 'run={number}&t={t}'")
        at_rest(page)
        due = [i for i in range(len(start)) if start[i] <= t < finish[i]]
        listed = page.locator("#tables h3", has_text="Flows in flight").locator("xpath=../div")
        ids = [text for text in listed.locator("td").all_inner_texts() if text.startswith("flow ")]
        assert {text.split()[1] for text in ids} == {str(flows["id"][i]) for i in due} != set()


def test_both_worlds_and_their_error_stand_beside_the_controls(page_of_all, opened):
    emulated = told(page_of_all.read_text())["runs"][4]
    page = opened(page_of_all)
    median = f"{emulated['fidelity']['median_error']:.1%} in the median"
    assert f"{emulated['label']} {median}" in page.inner_text("#errors")
    page.select_option("[data-choice='OCS delay']", label="1 s")
    page.check("#worlds input[value=emulate]")  # of 1 s nothing was emulated
    assert page.input_value("[data-choice='OCS delay']") == ""
    assert rows(page) == [emulated["label"]]
    delays = page.locator("[data-choice='OCS delay'] option")
    assert delays.nth(2).is_disabled() and not delays.nth(1).is_disabled()


@pytest.fixture
def store(tmp_path):
    pytest.importorskip("pyarrow", reason="rfabric[store]")
    from rfabric.report.store import add_rows, open_store

    place = tmp_path / "store"
    open_store(place, {"version": "0"})
    cell = {"label": "a", "policy": "demand", "scheduler": "", "routing": "placed", "seed": 0,
            "engine": "simulate", "traffic": HOSTILE, "step_s": 2.0, "exposed_s": 0.5,
            "rewires": 3, "dark_s": 0.1, "network_usd": 1e6, "usd_per_step": 0.25,
            "settings": ""}  # fmt: skip
    fabrics = "rfabric", "rfabric,delay=1s", "fat-tree"
    every = [cell | {"key": str(i), "fabric": f} for i, f in enumerate(fabrics)]
    add_rows(place, [*every, every[0] | {"key": "9", "traffic": "job", "step_s": 7.0}])
    return place


def test_cells_of_a_store_are_chosen_in_a_browser(store, opened, capsys):
    assert main(["report", str(store)]) == 0
    assert capsys.readouterr().out.strip() == str(store / "report.html")
    page = opened(store / "report.html")
    shown = page.locator("#cells tbody tr:visible")
    assert shown.count() == 4 and "4 of 4 cells" in page.inner_text("#left")
    assert page.title() != "taken" and HOSTILE in page.inner_text("#cells")
    page.select_option("[data-choice=recipe]", label="job")
    assert shown.count() == 1 and "7.000 s" in shown.inner_text()
    assert page.locator("[data-choice=fabric] option", has_text="fat-tree").is_disabled()


def test_short_steps_of_a_store_are_told_in_their_unit(store):
    from rfabric.report.store import add_rows, table_of_cells

    row = table_of_cells(store).to_pylist()[0]
    add_rows(store, [row | {"key": "10", "traffic": "mine.csv", "step_s": 82e-6}])
    several.write_cells(store / "report.html", store, "")
    text = (store / "report.html").read_text()
    assert "82.00 us" in text and "7.000 s" in text


def test_a_store_is_given_alone(store, places, monkeypatch, capsys):
    assert main(["report", str(store), str(places[0])]) == 2
    assert "give it alone" in capsys.readouterr().err
    monkeypatch.setattr(several, "MOST_CELLS", 3)
    assert main(["report", str(store)]) == 2
    assert "4 cells, more than the 3 of a page" in capsys.readouterr().err

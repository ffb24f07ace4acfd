"""The page that moves: its records are the run's, it is one file, and a browser can play it."""

import base64
import hashlib
import itertools
import json
import re
import shutil
import zlib
from dataclasses import replace

import numpy as np
import pytest

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import fat_tree, parse_fabric
from rfabric.fabric.cost import bill
from rfabric.optics import Circuits, optical_paths
from rfabric.report import grid, html
from rfabric.report.amounts import by_tier, demands
from rfabric.report.compare import fabric_table, on_front, phase_text
from rfabric.report.folder import new_folder, read_folder, write_folder
from rfabric.report.money import front
from rfabric.report.page import records
from rfabric.report.page.logged import LoggedRun
from rfabric.report.page.places import places
from rfabric.report.result import Scale, fidelity
from rfabric.report.summary import Run, bill_of, cost, labels, summary_of
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder, point_to_point, ring
from rfabric.units import show_size, show_time

CREATED = "2025-07-21T14:30:05+02:00"
HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=1>"


def job(hosts=16, label="all-reduce"):
    """Generation, training and weight sync: circuits that serve one do not serve the next."""
    builder = TraceBuilder([f"h{i + 1}" for i in range(hosts)])
    half = hosts // 2
    made = [builder.compute(h, 3 + h / 9, label="generate", phase="generation") for h in range(8)]
    there = list(range(half, hosts))
    passes = [
        builder.compute(h, 2.0, after=made, label="backward", phase="training") for h in there
    ]
    edges = ring("all-reduce", there, 2e10, 4)
    reduced = builder.flows(
        edges.src, edges.dst, edges.size, after=passes, label=label, phase="training"
    )
    edges = point_to_point([(half + i, i) for i in range(half)], 1e10, 2)
    builder.flows(
        edges.src, edges.dst, edges.size, after=reduced, label="weights", phase="weight_sync"
    )
    return builder.build(provenance={"gpus_usd_per_hour": 30.0, "gpus_watts": 1e3})


@pytest.fixture(scope="module")
def runs():
    trace = job()
    fabrics = map(parse_fabric, ("fat-tree,pods=2,tors=2", "rfabric,pods=2,tors=2"))
    return [Run(simulate(f, trace, "demand", traffic="small", seed=7)) for f in fabrics]


@pytest.fixture(scope="module")
def place(runs, tmp_path_factory):
    """A run folder of these runs, with its page."""
    with new_folder(tmp_path_factory.mktemp("runs"), "one") as made:
        summary = summary_of(runs, "rfabric compare --topo 'a b'", CREATED)
        write_folder(made.path, runs, summary)
        html.write_report(made.path / "report.html", runs, summary)
    return made.final


def unpacked(packed):
    return zlib.decompress(base64.b64decode(packed))


def told(text):
    """The records that stand in a page."""
    return json.loads(re.search(r'id="records">(.*?)</script>', text, re.S)[1])


def circuits_at(run, t):
    """The circuits that a page shows at `t`."""
    c = run["circuits"]
    which = np.searchsorted(c["times"], t, side="right") - 1
    return {c["names"][i] for i in c["held"][c["sets"][which]]["circuits"]}


# --- records --------------------------------------------------------------------------------------


def test_the_page_tells_what_the_run_folder_holds(place):
    data = told((place / "report.html").read_text())
    summary = json.loads((place / "summary.json").read_text())
    assert data["command"] == summary["command"]
    for run, entry in zip(data["runs"], summary["runs"], strict=True):
        for key in ("label", "step_s", "gpus", "routing", "policy", "rewires", "cost", "dark_s"):
            assert run[key] == entry[key], key
        for name, phase in entry["phases"].items():
            mine = [p for p in run["phases"] if p["phase"] == name]
            assert sum(p["exposed_s"] for p in mine) == pytest.approx(phase["exposed_s"])
            assert sum(p["bytes"] for p in mine) == phase["bytes"]
    assert {run["routing"] for run in data["runs"]} == {"placed"}


def test_circuits_of_an_instant_are_those_of_the_folder(place):
    data = told((place / "report.html").read_text())
    (folder,) = place.glob("simulate-rfabric*")
    epochs = json.loads((folder / "circuits.json").read_text())["epochs"]
    assert len(epochs) > 1 and len({str(e["circuits"]) for e in epochs}) > 1
    for epoch, later in zip(epochs, epochs[1:], strict=False):
        for t in (epoch["time_s"], (epoch["time_s"] + later["time_s"]) / 2):
            assert circuits_at(data["runs"][1], t) == set(epoch["circuits"])
    assert circuits_at(data["runs"][1], 1e9) == set(epochs[-1]["circuits"])
    assert data["runs"][0]["circuits"] is None


def test_light_paths_are_those_of_the_circuits(runs):
    result = runs[1].result
    c = records.document(runs, summary_of(runs, "", CREATED), "")["runs"][1]["circuits"]
    for held in c["held"]:
        lit = Circuits.from_json([c["names"][i] for i in held["circuits"]])
        expected = {
            (p.out.node, p.into.node, p.links)
            for p in optical_paths(result.fabric, lit)
            if p.out < p.into
        }
        drawn = [c["paths"][i] for i in held["paths"]]
        assert {(c["racks"][a], c["racks"][b], links) for a, b, _, links in drawn} == expected


def test_loads_add_up_to_the_bytes_of_links(runs):
    """Shares of the rate times seconds are what links.csv counted, to half a level; and nothing is
    loaded while nothing is sent.
    """
    result = runs[0].result
    load = records.document(runs, summary_of(runs, "", CREATED), "")["runs"][0]["load"]
    edges = np.array(load["edges"])
    levels = np.frombuffer(unpacked(load["share"]), np.uint8).reshape(-1, len(edges) - 1)
    rates = np.repeat([link.rate for link in result.fabric.links], 2)
    sent = (levels / load["levels"]) @ np.diff(edges) * rates / 8
    loaded = (levels > 0) @ np.diff(edges)
    assert (np.abs(sent - result.link_bytes) <= rates / 8 * loaded / load["levels"] + 1).all()
    sends = result.trace.size > 0
    for begin, end, column in zip(edges, edges[1:], levels.T, strict=False):
        meets = (result.start[sends] < end) & (result.finish[sends] > begin)
        assert meets.any() or not column.any()


@pytest.mark.parametrize("late", [1e6, 1e8])
def test_a_trace_that_begins_late_loads_as_one_that_begins_at_once(late):
    """Logs tell the time of day, or seconds since boot."""

    def loads(begin):
        fabric = parse_fabric("ideal,gpus=16")
        builder = TraceBuilder(fabric.hosts)
        for i in range(8):
            builder.flows([i], [8 + i], (i + 1) * 1e9, start=begin + i / 8)
        left_out = []
        load = records._load(simulate(fabric, builder.build()), left_out)
        assert not left_out
        edges = np.array(load["edges"])
        share = np.frombuffer(unpacked(load["share"]), np.uint8)
        at = np.searchsorted(edges, begin + np.arange(0.003, 1.0, 0.01), "right") - 1
        return share.reshape(-1, len(edges) - 1)[:, at] / load["levels"]

    assert np.abs(loads(late) - loads(0.0)).max() <= 0.01


def test_lanes_count_what_is_in_flight(runs):
    result = runs[1].result
    lanes = {lane["phase"]: lane for lane in records.lanes(result)}
    assert list(lanes) == ["generation", "training", "weight_sync"]
    rows = result.trace.size > 0
    for t in np.linspace(0, result.step_seconds, 37)[1:-1]:
        counted = 0
        for lane in (lane["sends"] for lane in lanes.values() if "sends" in lane):
            i = np.searchsorted(lane["time"], t, side="right") - 1
            counted += lane["count"][i] if i >= 0 else 0
        assert counted == ((result.start[rows] <= t) & (t < result.finish[rows])).sum()


def test_thinned_lanes_show_pauses_and_miss_no_peak(monkeypatch):
    """Bursts of 20 flows, one of 50, a second apart: nothing goes on between them."""
    monkeypatch.setattr(records, "MOST_STEPS", 40)
    builder = TraceBuilder(["h1", "h5"])
    for n in range(8):
        sizes = np.linspace(1e7, 2e7, 50 if n == 5 else 20)
        builder.flows(np.zeros(len(sizes), int), np.ones(len(sizes), int), sizes, start=1.0 * n)
    result = simulate(fat_tree(pods=2, tors=2), builder.build())
    (lane,) = records.lanes(result)
    sends = lane["sends"]
    assert sends["thinned"] and len(sends["time"]) <= 45 and max(sends["count"]) == 50
    for t in np.arange(8) + 0.9:
        assert not ((result.start <= t) & (t < result.finish)).any()
        assert sends["count"][np.searchsorted(sends["time"], t, side="right") - 1] == 0


def test_several_jobs_have_lanes_of_their_own():
    trace = job()
    step = np.arange(len(trace)) % 2
    trace = replace(trace, step=step, provenance={"held": {"one": {}, "two": {}}})
    lanes = records.lanes(simulate(fat_tree(pods=2, tors=2), trace))
    assert {(lane["phase"], lane["job"]) for lane in lanes} >= {("training", 0), ("training", 1)}


def test_nodes_stand_apart_and_above_what_they_serve():
    for spec in ("rfabric,pods=2,tors=2", "fat-tree,pods=2,tors=2", "leaf-spine"):
        fabric = parse_fabric(spec)
        at = places(fabric)
        assert len(at) == len(set(at.values())) == len(fabric.nodes)
        assert all(0 <= v <= 1 for spot in at.values() for v in spot)
        assert all(at[host][1] < at[rack][1] for host, rack in fabric.rack_of.items())


def test_what_is_too_much_for_a_page_is_said(runs, monkeypatch):
    monkeypatch.setattr(records, "MOST_NODES", 10)
    monkeypatch.setattr(records, "MOST_FLOWS", 3)
    text = html.page(runs, summary_of(runs, "", CREATED))
    data = told(text)
    assert data["runs"][1]["nodes"] == [] and data["runs"][1]["circuits"] is None
    assert len(data["flows"]["id"]) == 3 < data["flows"]["of"]
    assert "more than the 10 drawn; see fabric.json" in text


# --- one file -------------------------------------------------------------------------------------


def test_one_file_below_5_mb_that_asks_for_nothing(place):
    text = (place / "report.html").read_text()
    assert len(text.encode()) < 5e6
    assert not re.search(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=", text)
    assert "script-src 'sha256-" in text and "default-src 'none'" in text


def test_d3_is_the_build_that_npm_has():
    text = (html.MOVING / "d3.min.js").read_bytes()
    assert hashlib.sha256(text).hexdigest() == (
        "912111098ea99503a6f4967361d2bbdc9dbf58cf9c678c8e27e5b02d1a07f0c1"
    )
    assert "Bostock" in (html.MOVING / "d3-licence.txt").read_text()


def test_lines_of_the_page_are_no_longer_than_others():
    own = [f for f in html.MOVING.iterdir() if f.suffix in (".js", ".css", ".html")]
    lines = [(f.name, line) for f in own for line in f.read_text().splitlines()]
    assert not [x for x in lines if x[0] != "d3.min.js" and len(x[1]) > 100]


def test_the_head_of_every_page_is_written_once():
    """A page extends base.html; what is included or imported has no head."""
    templates = [*html.TEMPLATES.glob("*.html"), *html.MOVING.glob("*.html")]
    assert [f.name for f in templates if "<head>" in f.read_text()] == ["base.html"]


def test_a_hostile_name_is_text():
    run = Run(simulate(fat_tree(pods=2, tors=2), job(label=HOSTILE), traffic=HOSTILE))
    text = html.page([run], summary_of([run], HOSTILE, CREATED))
    scripts = re.findall(r"<script[^>]*>", text)
    assert scripts == ['<script type="application/json" id="records">', "<script>", "<script>"]
    assert "<img" not in text
    assert HOSTILE in told(text)["flows"]["labels"]


def test_a_time_that_is_none_is_named(runs):
    broken = replace(runs[0].result, start=np.full(len(runs[0].result.start), np.nan))
    with pytest.raises(RFabricError, match="no number"):
        records.text(records.document([Run(broken)], summary_of(runs[:1], "", CREATED), ""))


def test_captions_speak_of_what_is_there(runs):
    electrical = html.page(runs[:1], summary_of(runs[:1], "", CREATED))
    optical = html.page(runs[1:], summary_of(runs[1:], "", CREATED))
    for words in ("optical circuit switch and its cables", "always-on", "Red above: a rewire"):
        assert words not in electrical and words in optical
    assert "<i>policy</i>" not in electrical and "<i>policy</i><b>demand</b>" in optical
    assert "<i>routing</i><b>placed</b>" in electrical and "ecmp</b>" not in electrical


def test_figures_have_their_numbers_as_tables(runs):
    busy = html.in_flight(runs)
    assert busy.columns[1:] == ("fat-tree", "rfabric")
    assert {row.name for row in busy.rows} == {"training all-reduce", "weight sync weights"}
    for row in busy.rows:
        for cell, run in zip(row.cells, runs, strict=True):
            assert cell in {show_time(s) for s in run.result.communication.values()}
    links = sum(2 * len(run.result.fabric.links) for run in runs)
    rows = html.loads(labels(runs), [by_tier(run.result) for run in runs]).rows
    assert sum(int(row.cells[1].replace(",", "")) for row in rows) == links
    highest = f"{runs[0].result.utilisation.max():.1%}"
    assert highest in {row.cells[3] for row in rows if row.name == "fat-tree"}


def test_demand_topology_and_front_have_their_numbers_as_tables(runs):
    sent = html.demand_table(*demands(runs[0].result.trace, runs[0].result.fabric))
    assert sent.columns == ("phase", "from rack", "to rack", "sent") and not sent.note
    result = runs[0].result
    expected = {
        (phase_text(str(key)), d.racks[a], d.racks[b], show_size(size))
        for key in result.trace.phase_keys
        for d in [result.trace.demand(result.fabric, key)]
        for a, b, size in zip(*d.sent, strict=True)
    }
    assert {(row.name, *row.cells) for row in sent.rows} == expected and expected
    summary = summary_of(runs, "", CREATED)
    points = front(summary).rows
    assert [row.cells[0] for row in points] == [show_time(r["step_s"]) for r in summary["runs"]]
    for key, column in (("network_usd", 2), ("usd_per_step", 4)):
        both = [run | run["cost"] for run in summary["runs"]]
        fronts = [on_front(run, both, key) for run in both]
        assert [row.cells[column] == "yes" for row in points] == fronts and any(fronts)
    text = html.page(runs, summary)
    assert text.count("<summary>As a table</summary>") == 5 + len(runs)
    assert f'<p class="note">{fabric_table(result.fabric).title}</p>' in text


def test_the_headline_counts_steps(runs):
    summary = summary_of(runs, "", CREATED)
    assert html.headline(summary).startswith("In a step of ")
    several = summary | {"runs": [run | {"steps": 3} for run in summary["runs"]]}
    assert html.headline(several).startswith("In 3 steps, ")


def test_scaled_up_losses_say_how_many_real_bytes(runs):
    first, *others = runs[1].result.rewires
    rewires = (replace(first, lost_bytes=5_000_000), *others)
    result = replace(runs[1].result, engine="emulate", scale=Scale(0.002, 10), rewires=rewires)
    text = html.page([Run(result)], summary_of([Run(result)], "", CREATED))
    assert "5 MB lost stand for 10 kB of real packets" in text


def entry(fabric, seed, step):
    """A run of a grid's summary, as far as its tables read it."""
    phases = {"training": {"exposed_s": 1.0, "comm_s": 1.0}}
    cost = {"network_usd": None, "network_watts": None, "usd_per_step": None}
    return {
        "fabric": fabric, "policy": "ecmp", "scheduler": "", "traffic": "job", "engine": "simulate",
        "gpus": 16, "seed": seed, "step_s": step, "dark_s": 0.0, "rewires": [], "phases": phases,
        "cost": cost, "nic_bps": [1e11],
    }  # fmt: skip


def gridded(*steps):
    """Tables of fabrics with one list of steps each, a seed a step."""
    every = [entry(f"f{i}", n, s) for i, some in enumerate(steps) for n, s in enumerate(some)]
    return grid.tables(grid.grid_summary(every, {"fabrics": ["f0"]}, "", CREATED))


def test_seeds_are_compared_as_pairs_with_an_interval():
    """Steps that vary by 100 s from seed to seed, and by 1 s between fabrics of one seed."""
    base = [100.0, 200.0, 150.0]
    _, pairs = gridded(base, [101.0, 201.1, 150.9], [101.0, 199.0, 150.0])
    (slower, doubt) = pairs.rows
    assert slower.cells == ("+1.000 s", "+0.752 .. +1.248 s", "slower")  # t(2) = 4.303, s = 0.1
    assert doubt.cells[0] == "+0.000 s" and doubt.cells[2] == "not told apart"
    assert len(gridded(base[:1], base[1:2])) == 1  # one seed: no pairs


def test_short_steps_and_short_differences_are_told_in_their_unit():
    table, pairs = gridded([42e-6, 42e-6], [82e-6, 83e-6])
    steps = [row.cells[0] for row in table.rows]
    assert steps == ["42.00 us [42.00 .. 42.00]", "82.50 us [82.00 .. 83.00]"]
    assert pairs.rows[0].cells[0] == "+40.50 us"
    assert gridded([42e-6, 42e-6], [42e-6, 42e-6])[1].rows[0].cells[0] == "+0.00 us"
    _, pairs = gridded([80.0, 79.0], [80.0012, 79.0012])
    assert pairs.rows[0].cells == ("+1.20 ms", "+1.20 .. +1.20 ms", "slower")
    _, pairs = gridded([80.0, 79.0], [80.0, 79.0])
    assert pairs.rows[0].cells[0] == "+0.000 s"


def test_a_grid_says_what_communication_adds_to_the_run():
    """Phases that overlap may expose the same seconds: theirs add up to 2 s, the run's are 1.5."""
    phases = {name: {"exposed_s": 1.0, "comm_s": 1.0} for name in ("generation", "training")}
    whole = entry("f0", 0, 10.0) | {"phases": phases, "exposed_s": 1.5}
    summary = grid.grid_summary([whole], {"fabrics": ["f0"]}, "", CREATED)
    assert summary["rows"][0]["exposed_s"] == 1.5
    one = {"runs": [whole | {"label": "f0"}]}
    assert html.headline(one) == "In a step of 10.0 s the GPUs wait for the network 1.5 s on f0."


def test_means_of_different_seeds_are_not_told_as_alike():
    """Where a run is missing, the title and each row say so, and none is marked as the best."""
    every = [entry("f0", 0, 5.0), entry("f0", 1, 9.0), entry("f1", 0, 6.0)]
    (table,) = grid.tables(grid.grid_summary(every, {"fabrics": ["f0"]}, "", CREATED))
    assert table.title == "job: 16 hosts, mean of the seeds that each has [least .. most]"
    assert [row.name for row in table.rows] == ["f0 (seed 0, 1)", "f1 (seed 0)"]
    assert {row.best for row in table.rows} == {-1} and "Runs are missing" in table.note


def test_what_was_asked_for_in_two_words_is_no_further_seed():
    """As `--policy own --policy demand`: an interval of three seeds, not of six values."""
    each = [entry(f, seed, s) for f, s in (("f0", 5.0), ("f1", 6.0)) for seed in range(3)]
    each = [one | {"step_s": one["step_s"] + (one["seed"] == 2)} for one in each[:3]] + each[3:]
    once, twice = (grid.grid_summary(e, {"fabrics": ["f0"]}, "", CREATED) for e in (each, each * 2))
    assert twice["rows"] == once["rows"] and twice["rows"][0]["seeds"] == [0, 1, 2]
    assert grid.tables(twice) == grid.tables(once) and len(twice["runs"]) == 12


def test_fabrics_of_different_size_are_told_as_such():
    every = [entry("f0", 0, 5.0), entry("f1", 0, 6.0) | {"gpus": 1024}]
    (table,) = grid.tables(grid.grid_summary(every, {"fabrics": ["f0"]}, "", CREATED))
    assert table.title == "job: 16 to 1,024 hosts, seed 0"


def test_a_tie_is_no_win():
    (tied,) = gridded([5.0], [5.0], [6.0])
    assert {row.best for row in tied.rows} == {-1}
    (won,) = gridded([5.0], [5.5])
    assert [row.best for row in won.rows] == [0, -1]


def test_a_folder_cut_short_is_an_error_and_leaves_its_page(place, tmp_path):
    short = tmp_path / "short"
    shutil.copytree(place, short)
    flows = next(short.glob("simulate-rfabric*")) / "flows.csv"
    flows.write_text("".join(flows.read_text().splitlines(keepends=True)[:-3]))
    with pytest.raises(RFabricError, match=r"flows\.csv has \d+ rows, the trace \d+"):
        read_folder(short)
    assert (short / "report.html").read_text() == (place / "report.html").read_text()


CUTS = np.random.default_rng(11).random((20, 2)).tolist()


@pytest.mark.parametrize(("which", "where"), CUTS)
def test_a_file_cut_short_anywhere_is_named_or_was_not_needed(
    place, tmp_path, capsys, which, where
):
    """The page says what it said before, or the command what is wrong; the old page stays."""
    short = tmp_path / "short"
    shutil.copytree(place, short)
    files = sorted(f for f in short.rglob("*") if f.is_file() and f.name != "report.html")
    cut = files[int(which * len(files))]
    whole = cut.read_bytes()
    cut.write_bytes(whole[: int(where * len(whole))])
    code, before = main(["report", str(short), "-q"]), told((place / "report.html").read_text())
    said = capsys.readouterr().err
    assert (code, said) == (0, "") or (code == 2 and said.startswith("rfabric: error: ")), said
    assert code == 0 or cut.stem in said, said
    now = told((short / "report.html").read_text())
    assert now["runs"] == before["runs"] and now["flows"] == before["flows"]


def without_last_line(text):
    return "".join(text.splitlines(keepends=True)[:-1])


DAMAGED = {
    "one cell": (
        "flows.csv",
        lambda text: text.rstrip()[:-30],
        "incomplete: row [0-9]+ has [0-9]+ of 11 cells",
    ),
    "quote": ("flows.csv", lambda text: text + '"', "incomplete: unexpected end of data"),
    "empty": ("links.csv", lambda _: "", "incomplete: "),
    "column": ("rewires.csv", lambda text: text[:90], "incomplete: no column "),
    "last digit": ("links.csv", lambda text: text[:-2], "incomplete: its last line has no end"),
    "cable": ("links.csv", without_last_line, "has [0-9]+ rows, its fabric [0-9]+"),
    "rewire": ("rewires.csv", without_last_line, "has [0-9]+ rows, summary.json [0-9]+"),
    "circuits": ("circuits.json", lambda text: text[:-9], "incomplete: "),
    "no epochs": ("circuits.json", lambda _: "[]", "incomplete: "),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_of_a_folder_is_named(place, tmp_path, damage):
    name, do, text = DAMAGED[damage]
    shutil.copytree(place, tmp_path / "short")
    file = next((tmp_path / "short").glob("simulate-rfabric*")) / name
    file.write_text(do(file.read_text()))
    with pytest.raises(RFabricError, match=f"{name}:? {text}"):
        read_folder(tmp_path / "short")


def test_flows_and_summary_that_tell_of_two_runs_are_refused(place, tmp_path):
    shutil.copytree(place, tmp_path / "two")
    file = tmp_path / "two/summary.json"
    summary = json.loads(file.read_text())
    summary["runs"][1]["step_s"] *= 2
    file.write_text(json.dumps(summary))
    with pytest.raises(RFabricError, match="the last flow of flows.csv ends at .* s, summary.json"):
        read_folder(tmp_path / "two")


# --- in a browser ---------------------------------------------------------------------------------


def at_rest(page):
    """Wait until tables and address have followed the clock, which they do once it stands."""
    page.wait_for_timeout(250)


def now(page):
    """The instant that the clock shows, s."""
    return float(page.get_attribute("#lanes svg", "aria-valuenow"))


def test_play_moves_the_clock_and_pauses(place, opened):
    page = opened(place / "report.html")
    assert now(page) == 0
    page.click("#play")
    for _ in range(100):  # the page's policy lets nobody else run a script that waits
        if now(page) > 0.1:
            break
        page.wait_for_timeout(50)
    assert now(page) > 0.1
    assert page.get_attribute("#play", "aria-pressed") == "true"
    page.click("#play")
    stopped = now(page)
    page.wait_for_timeout(200)
    assert now(page) == stopped > 0


def test_scrubbing_shows_the_circuits_of_the_instant(place, opened):
    page = opened(place / "report.html")
    page.select_option("#chosen", label="rfabric")
    page.click("details.tables summary")
    (folder,) = place.glob("simulate-rfabric*")
    epochs = json.loads((folder / "circuits.json").read_text())["epochs"]
    lanes, clip = page.locator("#lanes svg"), page.locator("#inside rect")
    end = float(lanes.get_attribute("aria-valuemax"))
    wide = float(lanes.get_attribute("viewBox").split()[2])
    left, across = (float(clip.get_attribute(name)) / wide for name in ("x", "width"))
    begins = [e["time_s"] for e in epochs] + [end]
    seen = set()
    for begin, after in itertools.pairwise(begins):
        page.evaluate("scrollTo(0, 0)")  # the summary's click may have moved lanes under the bar
        box = lanes.bounding_box()
        part = left + across * (begin + after) / 2 / end
        page.mouse.click(box["x"] + part * box["width"], box["y"] + 30)
        at_rest(page)
        t = now(page)
        assert begin <= t < after
        held = [e["circuits"] for e in epochs if e["time_s"] <= t][-1]
        rows = page.locator("#tables table").first.locator("tbody td").all_inner_texts()
        assert rows == held
        drawn = page.locator("#fabric .circle .path").count()
        assert drawn == light_paths(folder, held)
        seen.add(tuple(rows))
    assert len(seen) == len(epochs) > 1


DRAG = """([x, y, frames]) => new Promise(done => {
  let told = 0, n = 0;
  const seen = new Set(), tell = history.replaceState;
  history.replaceState = (...words) => (told++, tell.apply(history, words));
  const mouse = (type, to, more) => to.dispatchEvent(new MouseEvent(type,
    {bubbles: true, cancelable: true, view: window, clientX: x + more, clientY: y}));
  mouse("mousedown", document.querySelector("#lanes svg"), 0);
  const frame = () => {
    seen.add(document.getElementById("now").textContent);
    if (n++ === frames) {
      mouse("mouseup", window, n);
      done({told, seen: seen.size});
    } else {
      mouse("mousemove", window, n);
      requestAnimationFrame(frame);
    }
  };
  frame();
})"""


def test_a_drag_moves_the_clock_at_every_frame_and_its_address_follows_at_rest(place, opened):
    """A browser takes several ms for a new address, more than for what moves."""
    page = opened(place / "report.html")
    box = page.locator("#lanes svg").bounding_box()
    dragged = page.evaluate(DRAG, [box["x"] + 200, box["y"] + 30, 60])
    assert dragged["seen"] > 50 and dragged["told"] < 60
    at_rest(page)
    there = re.search(r"&t=([\d.e-]+)&", page.inner_text("#again"))[1]
    assert float(there) == pytest.approx(now(page), abs=1e-8)


def light_paths(folder, held):
    """How many light paths these circuits make, each counted once."""
    from rfabric.fabric import Fabric

    fabric = Fabric.from_json((folder / "fabric.json").read_text())
    paths = optical_paths(fabric, Circuits.from_json(held))
    return sum(path.out < path.into for path in paths)


def test_keys_events_and_tables_read_the_run(place, opened):
    page = opened(place / "report.html")
    summary = json.loads((place / "summary.json").read_text())
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+ArrowRight")
    at_rest(page)
    assert now(page) > 0 and page.input_value("#chosen") == "1"
    page.keyboard.press("End")
    at_rest(page)
    dollars = page.locator("#live td[data-figure='$ so far']").all_inner_texts()
    expected = [f"{run['cost']['usd_per_step']:,.4f}" for run in summary["runs"]]
    assert dollars[1] == expected[1]
    page.keyboard.press("Home")
    page.locator("#lanes .over-dark").first.dispatch_event("click")
    at_rest(page)
    first = summary["runs"][1]["rewires"][0]
    assert f"usable {first['usable_s']:.6f} s" in page.inner_text("#reading")


@pytest.mark.parametrize("width, scheme", [(1400, "light"), (1400, "dark"), (420, "light"),
                                           (420, "dark")])  # fmt: skip
def test_axe_finds_no_serious_fault(runs, tmp_path, opened, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="rfabric[browser]")
    slower = replace(runs[1].result, engine="emulate", scale=Scale(0.002, 10))
    every = [*runs, Run(slower, fidelity(slower, runs[1].result))]
    logged = LoggedRun("train.log", "step 1", {"generation": 4.0, "training": 2.0})
    summary = summary_of(every, "rfabric compare", CREATED)
    html.write_report(tmp_path / "a.html", every, summary, logged)
    page = opened(tmp_path / "a.html", width=width, color_scheme=scheme)
    for closed in page.query_selector_all("details"):
        closed.evaluate("one => { one.open = true; }")
    page.evaluate("location.hash = 'run=1&t=5.9'")  # circuits, and flows in the tables
    page.wait_for_timeout(200)
    audit = axe.Axe().run(page).response
    assert len(audit["passes"]) > 20
    grave = [v for v in audit["violations"] if v["impact"] in ("serious", "critical")]
    assert not [(v["id"], node["target"]) for v in grave for node in v["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_stands_beside_a_narrow_page(place, opened, scheme):
    page = opened(place / "report.html", width=420, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    page.emulate_media(media="print")
    assert not page.is_visible(".controls") and page.is_visible("#lanes svg")
    style = "getComputedStyle(document.querySelector('.drawn')).contentVisibility"
    assert page.evaluate(style) == "visible"  # every figure is printed


def test_an_address_opens_the_view_it_names(place, opened):
    page = opened(f"file://{place / 'report.html'}#run=1&t=2.5&from=2&to=3")
    at_rest(page)
    assert now(page) == 2.5 and page.input_value("#chosen") == "1"
    assert "report.html#run=1&t=2.5&from=2&to=3" in page.inner_text("#again")


def test_simulated_and_real_packets_are_two_rows_with_their_error(runs, tmp_path, opened):
    simulated = runs[1].result
    slower = simulated.start + 1.1 * (simulated.finish - simulated.start)
    finish = np.where(simulated.trace.size > 0, slower, simulated.finish)
    real = replace(simulated, engine="emulate", finish=finish, scale=Scale(0.002, 10))
    both = [Run(simulated), Run(real, fidelity(real, simulated))]
    html.write_report(tmp_path / "a.html", both, summary_of(both, "", CREATED))
    page = opened(tmp_path / "a.html")
    assert page.locator("#lanes .row").count() == 2
    assert "10% from simulated in the median" in page.inner_text("#lanes")
    page.check("#worlds input[value=emulate]")
    assert page.locator("#lanes .row").count() == 1
    assert "real packets" in page.inner_text("#lanes")
    assert "10.0% in the median" in page.inner_text("#errors")


@pytest.fixture
def measured(runs):
    """Packets on a fabric with circuits, a tenth slower than the simulator says."""
    simulated = runs[1].result
    slower = simulated.start + 1.1 * (simulated.finish - simulated.start)
    finish = np.where(simulated.trace.size > 0, slower, simulated.finish)
    real = replace(simulated, engine="emulate", finish=finish, scale=Scale(0.002, 10))
    return Run(real, fidelity(real, simulated), simulated=simulated)


def test_a_folder_of_packets_holds_what_they_are_measured_against(measured, tmp_path):
    with new_folder(tmp_path, "one") as made:
        write_folder(made.path, [measured], summary_of([measured], "", CREATED))
    (again,), summary = read_folder(made.final)
    assert (again.simulated.finish == measured.simulated.finish).all()
    assert again.simulated.engine == "simulate" and again.simulated.rewires
    assert again.simulated.epochs == measured.simulated.epochs
    assert again.fidelity == fidelity(again.result, again.simulated)
    assert [entry["engine"] for entry in summary["runs"]] == ["emulate"]


def test_a_damaged_simulation_beside_packets_is_named(measured, tmp_path):
    with new_folder(tmp_path, "one") as made:
        write_folder(made.path, [measured], summary_of([measured], "", CREATED))
    (flows,) = made.final.glob("*/simulated/flows.csv")
    flows.write_text(without_last_line(flows.read_text()))
    with pytest.raises(RFabricError, match="simulated/flows.csv has .* rows, the trace"):
        read_folder(made.final)
    flows.with_name("run.json").unlink()
    with pytest.raises(RFabricError, match="run.json"):
        read_folder(made.final)


def test_the_page_of_one_emulation_toggles_to_its_simulation(measured, tmp_path, opened):
    html.write_report(tmp_path / "a.html", [measured], summary_of([measured], "", CREATED))
    page = opened(tmp_path / "a.html")
    assert page.locator("#lanes .row").count() == 2
    assert page.locator("#lanes .lane-name").all_text_contents() == ["rfabric", "rfabric"]
    page.check("#worlds input[value=simulate]")
    assert page.locator("#lanes .row").count() == 1
    page.locator("#lanes svg").press("End")
    at_rest(page)
    done = page.inner_text("#live td[data-figure='clock']")
    assert done == f"{measured.simulated.step_seconds:.3f} s, done"
    assert page.locator("#chosen option").all_inner_texts() == ["rfabric, simulated"]
    page.check("#worlds input[value=emulate]")
    assert "rfabric 10.0% in the median" in page.inner_text("#errors")


def test_the_page_chooses_among_prices_of_an_ocs_port(place, opened, tmp_path, capsys):
    folder = shutil.copytree(place, tmp_path / "one")
    assert main(["report", str(folder), "--ocs-port-price", "100,2000", "-q"]) == 0
    page = opened(folder / "report.html")
    figures = page.locator("#live td[data-figure='network k$']")
    fat_tree, listed = figures.all_inner_texts()
    (run,) = (run for run in read_folder(folder)[0] if run.result.fabric.ocses)
    (ports,) = (line.count for line in bill(run.result.fabric).lines if line.item == "ocs-port")
    for price in (100, 2000):
        page.select_option("#price", label=f"{price:,} $")
        at_rest(page)
        usd = bill(run.result.fabric).usd + ports * (price - 520)
        assert figures.all_inner_texts() == [fat_tree, f"{round(usd / 1e3):,}"]
        assert listed != f"{round(usd / 1e3):,}"
        assert shown_bills(page)[-1] == f"{usd:,.0f}"
        paid = cost(run.result, price)["usd_per_step"]
        assert f"{paid:,.4f}" in page.inner_text("#live") and cents(paid) in shown(page)
        assert page.locator("[data-price]:visible svg").count() == 2  # the bars, the front
    assert "--ocs-port-price 100,2000" in page.inner_text("#again")
    assert page.inner_text("#again").endswith("&price=1")
    page.select_option("#price", label="as listed")
    at_rest(page)
    assert figures.all_inner_texts() == [fat_tree, listed]
    assert shown_bills(page)[-1] == f"{bill(run.result.fabric).usd:,.0f}"


def shown(page):
    """All that the parts of the chosen price say."""
    return " ".join(page.locator("[data-price]:visible").all_inner_texts())


def cents(usd):
    """Dollars a step as the comparison has them."""
    return f"{usd:,.4f}"


def shown_bills(page):
    """The sums of the bills that are shown."""
    rows = page.locator("[data-price]:visible .columns tr", has_text="sum")
    return [row.split("\t")[2] for row in rows.all_inner_texts()]


def test_a_comparison_and_several_folders_choose_among_prices_too(tmp_path, opened, capsys):
    words = ["--traffic", "traffic/ring.csv", "--topo", "rfabric,pods=2,tors=2,gpus=4"]
    words += ["--topo", "fat-tree,pods=2,tors=2,gpus=4", "--out", str(tmp_path), "-q"]
    assert main(["compare", *words, "--ocs-port-price", "1,9000"]) == 0
    (folder,) = tmp_path.iterdir()
    every = tmp_path / "all.html"
    assert main(["report", str(folder), "-o", str(every), "--ocs-port-price", "1,9000"]) == 0
    fabric = next(run.result.fabric for run in read_folder(folder)[0] if run.result.fabric.ocses)
    for file in (folder / "report.html", every):
        page = opened(file)
        for usd in (9000, 1):
            page.select_option("#price", label=f"{usd:,} $")
            at_rest(page)
            assert f"{bill_of(fabric, usd).usd:,.0f}" in shown_bills(page)
            assert page.locator("[data-price][hidden]").count() > 0
    kept = page.inner_text("#again").partition("#")[2]
    again = opened(f"file://{every}#{kept}")
    assert shown_bills(again) == shown_bills(page)


def test_prices_that_no_page_holds_are_refused(place, tmp_path, capsys):
    many = ",".join(map(str, range(1, 15)))
    assert main(["report", str(place), f"--ocs-port-price={many}"]) == 2
    assert "14 prices are more than the 12 that a page holds" in capsys.readouterr().err
    words = ["--topo", "fat-tree", "--topo", "rfabric", "--seeds", "2", "--out", str(tmp_path)]
    assert main(["compare", *words, "--ocs-port-price", "100"]) == 2
    assert "rfabric report FOLDER -o all.html --ocs-port-price" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", ["0", "-1", "cheap", "nan", "inf", "100,,300"])
def test_prices_that_are_none_are_refused(place, words, capsys):
    before = (place / "report.html").read_bytes()
    assert main(["report", str(place), f"--ocs-port-price={words}"]) == 2
    assert "write USD above 0 and below a billion" in capsys.readouterr().err
    assert (place / "report.html").read_bytes() == before


def test_the_address_names_the_world(measured, tmp_path, opened):
    html.write_report(tmp_path / "a.html", [measured], summary_of([measured], "", CREATED))
    page = opened(tmp_path / "a.html")
    page.check("#worlds input[value=simulate]")
    at_rest(page)
    again = page.inner_text("#again").split("report.html")[-1]
    assert "world=simulate" in again
    page = opened(f"file://{tmp_path / 'a.html'}#world=simulate")
    assert page.is_checked("#worlds input[value=simulate]")
    assert page.locator("#lanes .row").count() == 1


def test_circuits_of_each_epoch_are_a_table(place, opened):
    page = opened(place / "report.html")
    page.select_option("#chosen", label="rfabric")
    page.click("details.tables summary")
    at_rest(page)
    (folder,) = place.glob("simulate-rfabric*")
    epochs = json.loads((folder / "circuits.json").read_text())["epochs"]
    rows = page.locator("[aria-label='Circuits of each epoch'] tbody tr")
    assert rows.count() == len(epochs) > 1
    before, after = (set(epoch["circuits"]) for epoch in epochs[:2])
    cells = rows.nth(1).locator("td").all_inner_texts()
    assert cells[:4] == ["1", f"{epochs[1]['time_s']:.6f} s", str(len(after)),
                         str(len(before & after))]  # fmt: skip
    assert set(cells[4].split(", ")) == after - before
    rows.nth(1).press("Enter")
    at_rest(page)
    assert now(page) == pytest.approx(epochs[1]["time_s"], abs=1e-6)


def test_a_table_of_more_epochs_than_it_lists_says_so(tmp_path, opened):
    fabric = parse_fabric("rotor,tors=4,gpus=1")
    builder = TraceBuilder(fabric.hosts)
    builder.flows([0], [2], [4e11], phase="training")
    run = Run(simulate(fabric, builder.build()))
    assert len(run.result.epochs) > 200
    html.write_report(tmp_path / "a.html", [run], summary_of([run], "", CREATED))
    page = opened(tmp_path / "a.html")
    page.click("details.tables summary")
    at_rest(page)
    name = f"Circuits of each epoch, the first 200 of {len(run.result.epochs):,}"
    assert page.locator(f"[aria-label='{name}'] tbody tr").count() == 200


def test_packets_of_ns3_are_called_so(runs, tmp_path, opened):
    packets = replace(runs[1].result, engine="ns3")
    both = [runs[1], Run(packets, fidelity(packets, runs[1].result))]
    html.write_report(tmp_path / "a.html", both, summary_of(both, "", CREATED))
    page = opened(tmp_path / "a.html")
    page.check("#worlds input[value=ns3]")
    assert page.locator("#lanes .row").count() == 1
    said = page.inner_text("#lanes")
    assert "packets of ns-3" in said and "simulated," not in said


def test_a_hostile_name_does_nothing_in_a_browser(tmp_path, opened):
    run = Run(simulate(fat_tree(pods=2, tors=2), job(label=HOSTILE), traffic=HOSTILE))
    html.write_report(tmp_path / "a.html", [run], summary_of([run], HOSTILE, CREATED))
    page = opened(tmp_path / "a.html")
    page.click("details.tables summary")
    page.keyboard.press("End")
    assert page.title() != "taken"
    assert not page.locator("#clock img").count()


def test_at_the_end_nothing_is_in_flight(tmp_path, opened):
    """Times are told to the last digit: nanoseconds are long for what takes microseconds."""
    builder = TraceBuilder([f"h{i + 1}" for i in range(8)])
    for host, (size, start) in enumerate([(1500, 0.0), (64, 1e-9), (9001, 1 / 3e6)]):
        builder.flows([host], [host + 4], size, start=start)
    run = Run(simulate(fat_tree(pods=2, tors=2), builder.build()))
    html.write_report(tmp_path / "a.html", [run], summary_of([run], "", CREATED))
    (lane,) = told((tmp_path / "a.html").read_text())["runs"][0]["lanes"]
    assert lane["sends"]["time"][-1] == run.result.step_seconds
    page = opened(f"file://{tmp_path / 'a.html'}#t=1")
    assert "done" in page.inner_text("#instant")
    assert page.inner_text('#live [data-figure="flows in flight"]') == "0"


def test_phases_of_several_jobs_are_called_by_their_jobs(tmp_path, opened):
    builder = TraceBuilder([f"h{i + 1}" for i in range(8)])
    for step in range(2):  # the first step of one job, then that of the other
        builder.flows([step], [step + 4], 1e9, phase="training", step=step)
    held = {"alice": {"training": 4}, "bob": {"training": 4}}
    run = Run(simulate(fat_tree(pods=2, tors=2), builder.build(provenance={"held": held})))
    html.write_report(tmp_path / "a.html", [run], summary_of([run], "", CREATED))
    page = opened(tmp_path / "a.html")
    assert page.inner_text("#instant").endswith("alice training, bob training")
    assert "bob training" in page.text_content("#zoom")


def test_phases_called_as_what_every_object_has_keep_their_names(tmp_path, opened):
    names = ["constructor", "toString", "__proto__", "weight_sync"]
    builder = TraceBuilder([f"h{i + 1}" for i in range(8)])
    for i, phase in enumerate(names):
        builder.flows([i], [i + 4], 1e9, phase=phase)
    run = Run(simulate(fat_tree(pods=2, tors=2), builder.build()))
    html.write_report(tmp_path / "a.html", [run], summary_of([run], "", CREATED))
    page = opened(tmp_path / "a.html")
    said = page.text_content("#lanes"), page.text_content("#instant"), page.text_content("#zoom")
    for text in said:
        assert all(name in text for name in [*names[:3], "weight sync"]), text
        assert "function" not in text and "object" not in text
    fills = page.evaluate(
        "[...document.querySelectorAll('.area')].map(a => a.getAttribute('fill'))"
    )
    assert len(fills) == 4 and all(fill.startswith("#") for fill in fills)


def test_a_large_fabric_is_drawn_by_pods_that_open(tmp_path, opened):
    fabric = parse_fabric("fat-tree,pods=4,tors=4,gpus=16")
    builder = TraceBuilder([f"h{i + 1}" for i in range(len(fabric.hosts))])
    builder.flows([0, 70], [130, 200], 1e10, phase="training", label="x")
    run = Run(simulate(fabric, builder.build()))
    html.write_report(tmp_path / "a.html", [run], summary_of([run], "", CREATED))
    page = opened(tmp_path / "a.html")
    assert page.locator("#fabric .node.host").count() == 0
    assert page.locator("#fabric .node.group").count() == 5  # pods, and the core
    page.select_option("#pods", "1")
    own = [n for n in fabric.nodes if n.pod == 1 and n.kind == "host"]
    assert page.locator("#fabric .node.host").count() == len(own) == 64

"""The still pictures of a page: their records are the run's, and a browser draws what they say."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from rfabric.cli import main
from rfabric.fabric import fat_tree, parse_fabric
from rfabric.optics import optical_paths
from rfabric.report import grid, html
from rfabric.report.amounts import by_tier, demands, panels
from rfabric.report.compare import comparison, on_front, rewires
from rfabric.report.money import front
from rfabric.report.page import pictures
from rfabric.report.page.lights import light_paths
from rfabric.report.page.records import MOST_LANES, document
from rfabric.report.summary import Run, bill_of, labels, phase_sums, summary_of
from rfabric.report.within import step_within
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder, point_to_point, ring

CREATED = "2025-07-21T14:30:05+02:00"
HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=1>"
LONG = "a name that somebody wrote who likes to say everything twice"
SPREAD = {"low": 0.8, "high": 1.5, "basis": "other system", "kind": "decode", "rows": 9}


def job(hosts=16, steps=1, label="all-reduce"):
    """Generation, training and weight sync, step by step."""
    builder = TraceBuilder([f"h{i + 1}" for i in range(hosts)])
    half, last = hosts // 2, []
    for step in range(steps):
        made = [
            builder.compute(h, 3 + h / 9, after=last, label="draw", phase="generation", step=step)
            for h in range(half)
        ]
        edges = ring("all-reduce", list(range(half, hosts)), 2e10, 4)
        reduced = builder.flows(
            edges.src, edges.dst, edges.size, after=made, label=label, phase="training", step=step
        )
        edges = point_to_point([(half + i, i) for i in range(half)], 1e10, 2)
        last = builder.flows(
            edges.src, edges.dst, edges.size, after=reduced, label="weights", phase="weight_sync",
            step=step,
        )  # fmt: skip
    said = {"gpus_usd_per_hour": 30.0, "gpus_watts": 1e3}
    names = "generation", "training", "weight_sync", "communication"
    return builder.build(provenance=said | {"within": dict.fromkeys(names, SPREAD)})


def played(trace, *fabrics, traffic="small"):
    """A run of each of these fabrics."""
    return [Run(simulate(parse_fabric(f), trace, "demand", traffic=traffic)) for f in fabrics]


@pytest.fixture(scope="module")
def runs():
    return played(job(), "fat-tree,pods=2,tors=2", "rfabric,pods=2,tors=2")


@pytest.fixture(scope="module")
def place(runs, tmp_path_factory):
    """The page of these runs."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    html.write_report(path, runs, summary_of(runs, "", CREATED))
    return path


def told(text):
    """The records of the pictures that stand in a page."""
    return json.loads(re.search(r'id="records">(.*?)</script>', text, re.S)[1])["pictures"]


# --- records --------------------------------------------------------------------------------------


def test_bars_are_the_seconds_and_dollars_of_the_runs(runs):
    step, exposed, money = panels(runs)
    for i, run in enumerate(runs):
        sums = phase_sums(run.result)
        assert step.stacks[i] == pytest.approx({n: s["seconds"] for n, s in sums.items()})
        factor = 1e3 if exposed.title.endswith("(ms)") else 1
        assert exposed.stacks[i] == pytest.approx(
            {n: max(s["exposed_s"], 0) * factor for n, s in sums.items()}
        )
        assert sum(money.stacks[i].values()) == pytest.approx(bill_of(run.result.fabric).usd / 1e3)
        within = step_within(run.result)
        assert step.ranges[i] == (within["low"], within["high"]) and not any(exposed.ranges)
        assert set(step.parts[i]) == set(sums) and not any(money.parts)
    dear = pictures.bars(runs, 2000.0)["panels"][2]
    assert sum(usd for _, usd in dear["stacks"][1]) == pytest.approx(
        bill_of(runs[1].result.fabric, 2000.0).usd / 1e3
    )
    assert dict(dear["stacks"][0]) == money.stacks[0]


def test_close_ups_hold_every_second_of_every_flow(runs):
    """The area under a curve is what flows last, added up; its length the seconds with any."""
    drawn = pictures.close_ups(runs)
    assert [c["title"] for c in drawn["columns"]] == [
        ["training", "all-reduce"],
        ["weight sync", "weights"],
    ]
    for run, row in zip(runs, drawn["rows"], strict=True):
        rows = run.result.trace.communication()
        for cell, (key, seconds) in zip(row, run.result.communication.items(), strict=True):
            lasted = (run.result.finish - run.result.start)[rows[key]].sum()
            time, count = np.array(cell["time"]), np.array(cell["count"])
            assert (np.diff(time) * count[:-1]).sum() == pytest.approx(lasted, rel=1e-3)
            assert time[-1] - time[0] == pytest.approx(seconds, rel=1e-4)
    spans = [column["span_s"] for column in drawn["columns"]]
    longest = [max(run.result.communication[k] for run in runs) for k in rows]
    assert spans == longest


def test_rewires_of_a_close_up_stand_where_flows_wait(runs):
    result = runs[1].result
    drawn = pictures.close_ups(runs)
    bands = [band for cell in drawn["rows"][1] for band in cell["bands"]]
    assert bands and {band[3] for band in bands} <= {r.epoch for r in result.rewires}
    for asked, programmed, usable, *_ in bands:
        assert asked <= programmed <= usable and usable > asked
    assert not [cell["bands"] for cell in drawn["rows"][0] if cell["bands"]]


def test_hundreds_of_phases_leave_the_longest():
    (run,) = played(job(steps=150), "fat-tree,pods=2,tors=2")
    seconds = sorted(run.result.communication.values())
    drawn = pictures.close_ups([run])
    assert len(drawn["columns"]) == pictures.MOST_COLUMNS
    assert sorted(c["span_s"] for c in drawn["columns"]) == seconds[-pictures.MOST_COLUMNS :]
    assert drawn["columns"][-1]["title"][0].startswith("weight sync, step ")


def test_what_is_left_out_of_a_picture_is_told(runs, tmp_path, opened):
    (run,) = played(job(steps=5), "fat-tree,pods=2,tors=2")
    sent = demands(run.result.trace, run.result.fabric)
    assert pictures.demand(*sent)["of"] == 10 and len(pictures.demand(*sent)["phases"]) == 4
    assert html.demand_table(*sent).note == "Of the first 4 of 10 phases that send any."
    assert pictures.close_ups([run])["of"] == 10
    html.write_report(tmp_path / "a.html", [run], summary_of([run], "", CREATED))
    page = opened(tmp_path / "a.html")
    shown = page.locator("svg text").all_text_contents()
    assert "the first 4 of 10 phases that send any" in shown
    assert "the 6 longest of 10 communication phases" in shown
    assert not html.demand_table(*demands(runs[0].result.trace, runs[0].result.fabric)).note


def test_a_cheap_network_has_its_price():
    """In thousands it was 5."""
    every = played(job(4), "fat-tree,pods=1,tors=2,gpus=2,rate=10Gbit/s")
    summary, usd = summary_of(every, "", CREATED), bill_of(every[0].result.fabric).usd
    assert 1e3 < usd < 1e4
    assert panels(every)[2].texts == (f"{usd / 1e3:.2f}",)
    assert (f"{usd / 1e3:.2f} k$",) in [row.cells for row in comparison(summary).rows]
    assert front(summary).rows[0].cells[1] == f"{usd / 1e3:.2f} k$"


def test_a_name_of_a_phase_may_have_a_step_in_it():
    builder = TraceBuilder([f"h{i + 1}" for i in range(16)])
    builder.flows([0], [8], 1e9, phase="a/3 b", label="x")
    (run,) = played(builder.build(), "fat-tree,pods=2,tors=2")
    sent = demands(run.result.trace, run.result.fabric)
    assert pictures.close_ups([run])["columns"][0]["title"] == ["a/3 b", "x"]
    assert pictures.demand(*sent)["phases"][0]["title"] == "a/3 b"
    assert html.demand_table(*sent).rows[0].name == "a/3 b"
    assert html.in_flight([run]).rows[0].name == "a/3 b x"


def test_many_names_of_phases_leave_the_longest():
    (run,) = played(phases(), "fat-tree,pods=2,tors=2")
    summary = summary_of([run], "", CREATED)
    step = panels([run])[0]
    (stack,), seconds = step.stacks, run.result.step_seconds
    assert list(stack)[0] == "p1" and list(stack)[-1] == "89 other phases" and len(stack) == 12
    assert sum(stack.values()) == pytest.approx(sum(p.seconds for p in run.result.phases))
    rows = [row.name for row in comparison(summary).rows]
    assert "p40" in rows and "p41" not in rows
    assert "Of 100 phases the 40 longest." in comparison(summary).note
    described = document([run], summary, "")["runs"][0]
    drawn = [lane["phase"] for lane in described["lanes"] if lane.get("drawn", True)]
    assert drawn == [f"p{i + 1}" for i in range(MOST_LANES)] and len(described["lanes"]) == 100
    assert "40 of 100 lanes, the shortest; their flows are counted" in described["left_out"]
    assert seconds > 0


def test_small_seconds_have_their_unit():
    (run,) = played(instants(), "fat-tree,pods=2,tors=2")
    step = panels([run])[0]
    assert step.title == "step time (us)"
    assert step.texts == (f"{run.result.step_seconds * 1e6:,.2f}",) != ("0.00",)


def test_nothing_sent_is_no_close_up_and_no_demand():
    builder = TraceBuilder(["h1"])
    builder.compute(0, 3.0, phase="training", label="backward")
    (run,) = played(builder.build(), "fat-tree,pods=2,tors=2")
    assert pictures.close_ups([run]) is None
    assert pictures.demand(*demands(run.result.trace, run.result.fabric)) is None


def test_demand_is_every_byte_that_leaves_a_rack(runs):
    trace, fabric = runs[0].result.trace, runs[0].result.fabric
    drawn = pictures.demand(*demands(trace, fabric))
    assert drawn["unit"] == "rack" and tuple(drawn["names"]) == fabric.racks
    rack = np.array([fabric.rack_index[fabric.rack_of[host]] for host in trace.hosts])
    leaves = rack[trace.src] != rack[trace.dst]
    for phase in drawn["phases"]:
        mine = leaves & (trace.phase == trace.phases.index(phase["phase"]))
        assert sum(phase["sent"][2]) == trace.size[mine].sum() > 0
    assert [phase["title"] for phase in drawn["phases"]] == ["training", "weight sync"]


@pytest.mark.parametrize("most", [3, pictures.MOST_DOTS])
def test_every_directed_link_is_in_the_picture_of_loads(runs, monkeypatch, most):
    monkeypatch.setattr(pictures, "MOST_DOTS", most)
    drawn = pictures.load(labels(runs), [by_tier(run.result) for run in runs])
    for run, row in zip(runs, drawn["used"], strict=True):
        some = [one for one in row if one]
        shown = sum(len(one["dots"]) if "dots" in one else sum(one["bins"]) for one in some)
        assert shown == sum(one["links"] for one in some) == 2 * len(run.result.fabric.links)
        assert max(one["highest"] for one in some) == run.result.utilisation.max()
        assert ("bins" in some[0]) == (most == 3)
    assert set(drawn["tiers"]) == {tier for run in runs for tier in by_tier(run.result)}


def test_every_light_path_is_told(runs):
    result = runs[1].result
    drawn = pictures.circuits(result)
    assert pictures.circuits(runs[0].result) is None and not drawn["by_pod"]
    assert len(drawn["epochs"]) == len(result.epochs) == drawn["of"] > 1
    for epoch, (time, lit) in zip(drawn["epochs"], result.epochs, strict=True):
        expected = sorted(
            (p.out.node, p.into.node, p.links)
            for p in optical_paths(result.fabric, lit)
            if p.out < p.into
        )
        names = drawn["names"]
        assert epoch["time_s"] == time and epoch["circuits"] == len(lit)
        assert sorted((names[a], names[b]) for a, b, _ in epoch["paths"]) == [
            (a, b) for a, b, _ in expected
        ]
        exact = [(names[a], names[b], links) for a, b, _, links in light_paths(result.fabric, lit)]
        assert sorted(exact) == expected
    changed = [epoch["changed"] for epoch in drawn["epochs"][1:]]
    assert changed == [rewire.circuits_changed for rewire in result.rewires]


def test_a_rewire_that_comes_with_time_is_for_no_phase(monkeypatch):
    """A rotor turns whatever is sent; and it turns often."""
    run = Run(simulate(parse_fabric("rotor"), job(64), "rotor"))
    lit, summary = pictures.circuits(run.result), summary_of([run], "", CREATED)
    assert len(lit["epochs"]) > 3 and {one["title"] for one in lit["epochs"][1:]} == {""}
    rows = rewires(summary).rows
    assert {row.cells[1] for row in rows} == {"–"} and len(rows) == lit["of"] - 1
    assert html.circuits_table(lit).rows[1].name == "1"
    monkeypatch.setattr(html, "MOST_REWIRES", 2)
    text = html.page([run], summary)
    assert f"The first 2 of {len(rows)}; all stand in rewires.csv." in text
    assert html.first_rows(rewires(summary), len(rows)) == rewires(summary)


def test_circuits_have_their_numbers_as_a_table(runs):
    result = runs[1].result
    lit = pictures.circuits(result)
    table = html.circuits_table(lit)
    for row, epoch in zip(table.rows, lit["epochs"], strict=True):
        time, circuits, changed, paths = row.cells
        assert (time, circuits) == (f"{epoch['time_s']:.6f} s", str(epoch["circuits"]))
        assert changed == ("–" if epoch["changed"] is None else str(epoch["changed"]))
        told = [pair.partition(" x ") for pair in paths.split(", ")]
        assert sum(int(count or 1) for *_, count in told) == len(epoch["paths"])
        names = {tuple(sorted((lit["names"][a], lit["names"][b]))) for a, b, _ in epoch["paths"]}
        assert {tuple(sorted(pair.split("–"))) for pair, *_ in told} == names


def test_every_cable_between_what_is_drawn_is_told(runs):
    for fabric in (runs[0].result.fabric, parse_fabric("torus"), fat_tree(pods=16, tors=16)):
        drawn = pictures.cables(fabric)
        names = [node[0] for node in drawn["nodes"]]
        between = {
            tuple(sorted((link.a.node, link.b.node)))
            for link in fabric.links
            if {link.a.node, link.b.node} <= set(names)
        }
        assert {tuple(sorted((names[a], names[b]))) for a, b, _ in drawn["links"]} == between
        assert drawn["of"] == len(fabric.nodes) >= len(names) == len(set(names))
    assert len(names) < 300


def test_pictures_of_a_large_fabric_are_small():
    fabric = parse_fabric("fat-tree,k=64")
    builder = TraceBuilder([fabric.hosts[0], fabric.hosts[-1]])
    builder.flows([0], [1], 1e9)
    run = Run(simulate(fabric, builder.build()))
    every = pictures.load(["x"], [by_tier(run.result)]), pictures.cables(fabric)
    assert len(fabric.hosts) > 60_000 and len(json.dumps(every)) < 5e4


def offered(name, step, network, bill):
    return {
        "label": name, "fabric": name, "policy": "ecmp", "traffic": "job", "step_s": step,
        "network_usd": network, "usd_per_step": bill,
    }  # fmt: skip


# the 235B job of 1,024 GPUs, as the README has it: four of ten near one another
FABRICS = [
    offered("fat-tree", 420.8, 11.206e6, 699.7),
    offered("fat-tree 2:1", 451.2, 7.604e6, 733.8),
    offered("leaf-spine", 420.7, 7.593e6, 686.5),
    offered("rail-optimized", 420.6, 7.601e6, 686.4),
    offered("rfabric", 423.5, 7.581e6, 690.7),
    offered("topoopt", 474.0, 2.321e6, 747.7),
    offered("mixnet", 423.9, 5.187e6, 682.6),
    offered("opus", 438.7, 3.293e6, 697.9),
    offered("rotor", 490.0, 6.334e6, None),
    offered("ideal", 420.6, None, None),
]


def test_fabrics_on_the_front_by_price_are_dominated_by_bill():
    points = pictures.front(FABRICS)
    fronts = [{p["label"] for p in points if p["front"][i]} for i in (0, 1)]
    by_price = {"topoopt", "opus", "mixnet", "rfabric", "leaf-spine", "rail-optimized"}
    assert fronts == [by_price, {"mixnet", "rail-optimized"}]
    for i, key in enumerate(pictures.DOLLARS):
        assert [p["usd"][i] for p in points] == [row[key] for row in FABRICS]
        assert [p["front"][i] for p in points] == [on_front(row, FABRICS, key) for row in FABRICS]
    assert [p["label"] for p in points if p["bound"]] == ["ideal"]


def test_jobs_are_no_rivals_on_the_front():
    other = [row | {"traffic": "other", "step_s": row["step_s"] / 9} for row in FABRICS]
    alone, both = pictures.front(FABRICS), pictures.front([*FABRICS, *other])
    assert both[: len(alone)] == alone


# --- the page -------------------------------------------------------------------------------------


def test_each_place_of_a_page_has_its_record(runs, place):
    text = place.read_text()
    records = told(text)
    places = re.findall(r'data-picture="(\w+)" data-number="(\d+)"', text)
    assert len(places) == len(set(places)) == sum(map(len, records.values()))
    assert all(records[kind][int(number)] for kind, number in places)
    assert {kind for kind, _ in places} == set(records)
    assert "<svg" not in text.partition("<script")[0]
    assert re.search(r"<noscript>.*tables tell the same", text, re.S)


def test_a_page_is_written_where_matplotlib_is_not(tmp_path):
    words = ["simulate", "--topo", "rfabric,pods=2,tors=2,gpus=4", "--traffic", "traffic/ring.csv"]
    words += ["--out", str(tmp_path), "--no-cache", "-q"]
    code = (
        "import sys; sys.modules['matplotlib'] = None; from rfabric.cli import main; "
        f"sys.exit(main({words!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.rstrip().endswith("report.html"), done
    assert told(next(tmp_path.glob("*/report.html")).read_text())["bars"]


# --- in a browser ---------------------------------------------------------------------------------


def drawn_in(page, kind):
    """The place of the first picture of a kind."""
    return page.locator(f'[data-picture="{kind}"]').first


def hints(part):
    """What the parts of a picture say when one points at them."""
    return part.locator("title").all_text_contents()


def test_a_browser_draws_what_the_records_say(runs, place, opened):
    page, records = opened(place), told(place.read_text())
    cells = drawn_in(page, "demand").locator("[opacity]")
    assert cells.count() == sum(len(one["sent"][2]) for one in records["demand"][0]["phases"])
    paths = sum(len(epoch["paths"]) for epoch in records["circuits"][0]["epochs"])
    assert drawn_in(page, "circuits").locator(".paths path").count() == paths > 0
    shown = hints(drawn_in(page, "circuits").locator(".paths"))
    assert sum(": plane " in hint for hint in shown) == paths
    dots = sum(len(one["dots"]) for row in records["load"][0]["used"] for one in row if one)
    assert drawn_in(page, "load").locator("circle").count() == dots
    cables = drawn_in(page, "cables")
    assert cables.locator(".link").count() == len(records["cables"][0]["links"])
    assert cables.locator(".spot").count() == len(records["cables"][0]["nodes"])
    assert "t1: electrical packet switch, edge" in hints(cables)
    close_ups = drawn_in(page, "close_ups")
    assert close_ups.locator(".flows").count() == 2 * len(runs)
    assert close_ups.locator(".dark").count() == sum(
        len(cell["bands"]) for row in records["close_ups"][0]["rows"] for cell in row
    )
    assert {"cables of fat-tree", "circuits of rfabric"} <= {
        place.get_attribute("aria-label") for place in page.locator("[data-picture]").all()
    }
    assert (
        page.locator("[data-picture] > svg[role=img][aria-label]").count()
        == page.locator("[data-picture]").count()
    )


def test_bars_are_as_long_as_what_they_stand_for(place, opened):
    page, panel = opened(place), told(place.read_text())["bars"][0]["panels"][0]
    widths = drawn_in(page, "bars").locator("g").first.locator("rect[height='25']")
    long = [float(bar.get_attribute("width")) for bar in widths.all()]
    values = [value for stack in panel["stacks"] for _, value in stack]
    assert np.allclose(np.array(long) / sum(long), np.array(values) / sum(values))
    assert len(drawn_in(page, "bars").locator(".interval").all()) > 0
    shown = drawn_in(page, "bars").locator("text").all_text_contents()
    assert set(panel["texts"]) <= set(shown) and panel["title"] in shown


# of each picture the words that meet others, or leave it
CLASHES = """() => [...document.querySelectorAll("[data-picture]")].flatMap(place => {
  place.style.contentVisibility = "visible";
  for (let one = place; one; one = one.parentElement) one.hidden = false;
  const edge = place.querySelector("svg").getBoundingClientRect();
  const words = [...place.querySelectorAll("text")].map(t => [t.textContent,
    t.getBoundingClientRect()]);
  return words.flatMap(([text, a], i) => [
    ...(a.left < edge.left - 1 || a.right > edge.right + 1 || a.top < edge.top - 1 ||
      a.bottom > edge.bottom + 1 ? [[place.dataset.picture, text, "cut off"]] : []),
    ...words.slice(0, i).filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1 &&
      a.top < b.bottom - 3 && b.top < a.bottom - 3)
      .map(([other]) => [place.dataset.picture, text, other]),
  ]);
})"""
SOME = ("fat-tree,k=8", "torus", "two-clusters", "mixnet", "rotor", "ideal,gpus=64", "opus")


def several():
    """A job on fabrics of all kinds."""
    return played(job(64, steps=2), *SOME)


def three_hosts():
    """Hosts on a switch, which is all there is."""
    builder = TraceBuilder(["h1", "h2", "h3"])
    builder.flows([0, 1], [1, 2], 1e9, phase="training", label="x")
    return played(builder.build(), "ideal,gpus=3")


def phases():
    """A hundred names of phases, the first the longest."""
    builder, last = TraceBuilder(["h1", "h2"]), []
    for i in range(100):
        name = f"p{i + 1}"
        last = builder.flows([0], [1], 1e9 - 1e6 * i, after=last, label="x", phase=name)
    return builder.build()


def instants():
    """Some bytes, sent within microseconds."""
    builder = TraceBuilder([f"h{i + 1}" for i in range(16)])
    sent = builder.flows([0], [8], 100, phase="training", label="x")
    builder.flows([1, 2], [9, 10], 1000, after=sent, phase="training", label="y")
    return builder.build()


def ages():
    """Bytes that take hours, and some that do not."""
    builder = TraceBuilder([f"h{i + 1}" for i in range(16)])
    sent = builder.flows([0], [8], 1e15, phase="training", label="x")
    builder.flows([1, 2], [9, 10], 1e15, after=sent, phase="training", label="y")
    return builder.build()


def circles():
    """64 racks, and more racks than that in 64 pods."""
    builder = TraceBuilder([f"h{i + 1}" for i in range(64)])
    edges = ring("all-reduce", list(range(64)), 1e9, 4)
    builder.flows(edges.src, edges.dst, edges.size, phase="training", label="x")
    return played(builder.build(), "rfabric,pods=8,tors=8,gpus=1", "rfabric,pods=64,tors=2,gpus=1")


def named():
    """Fabrics, labels and a job that have long names."""
    fabrics = (parse_fabric(one) for one in ("fat-tree,pods=2,tors=2", "rfabric,pods=2,tors=2"))
    some = [replace(fabric, name=f"{LONG} {fabric.name}", spec="") for fabric in fabrics]
    return [Run(simulate(one, job(label=LONG), "demand", traffic=LONG)) for one in some]


WORDY = {
    "circles": circles,
    "names": named,
    "phases": lambda: played(job(steps=120), "rfabric,pods=2,tors=2"),
    "fabrics": several,
    "hosts": three_hosts,
    "instants": lambda: played(instants(), "fat-tree,pods=2,tors=2", "rfabric,pods=2,tors=2"),
    "ages": lambda: played(ages(), "fat-tree,pods=2,tors=2", "rfabric,pods=2,tors=2"),
    "hundreds": lambda: played(phases(), "fat-tree,pods=2,tors=2", "rfabric,pods=2,tors=2"),
}


@pytest.mark.parametrize("kind", WORDY)
def test_no_word_of_a_picture_covers_another_or_is_cut_off(tmp_path, opened, kind):
    every = WORDY[kind]()
    path = tmp_path / "a.html"
    html.write_report(path, every, summary_of(every, "", CREATED), prices=(100.0,))
    page = opened(path)
    assert not page.evaluate(CLASHES)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1400
    for kind in ("bars", "load", "cables"):
        assert drawn_in(page, kind).locator("text").count() > 2


def test_what_is_cut_short_can_still_be_told_apart(tmp_path, opened):
    every = named()
    html.write_report(tmp_path / "a.html", every, summary_of(every, "", CREATED))
    part = drawn_in(opened(tmp_path / "a.html"), "bars")
    shown = [text for text in part.locator("text").all_text_contents() if "…" in text]
    assert len(shown) == len(set(shown)) == 2
    assert set(labels(every)) <= set(hints(part))


def gridded(path, rows):
    """The page of a comparison that has these points."""
    entry = {
        "exposed_s": 1.0,
        "rewires": 0,
        "network_watts": None,
        "gpus": 16,
        "pareto": False,
        "seeds": [0],
    }
    every = [row | entry | {"step_s_least": row["step_s"], "step_s_most": row["step_s"]}
             for row in rows]  # fmt: skip
    summary = {
        "rows": every, "runs": [], "versions": {}, "created": CREATED, "command": "",
        "fairness": [], "grid": {"engine": "simulate", "seeds": [0]},
    }  # fmt: skip
    grid.write_page(path, summary)


def test_names_meet_neither_names_nor_the_front(tmp_path, opened):
    gridded(tmp_path / "a.html", FABRICS)
    page = opened(tmp_path / "a.html")
    assert not page.evaluate(CLASHES)
    gridded(tmp_path / "b.html", [FABRICS[0], offered("dear", 421.0, 2e11, 308_277.9)])
    assert not opened(tmp_path / "b.html").evaluate(CLASHES)
    assert page.locator(".point").count() == 9 + 8  # one has no bill, and a bound is no point
    assert page.locator(".point.electrical").count() == 6 + 2
    assert page.locator("line.bound").count() == 2
    met = page.evaluate(
        """() => [...document.querySelectorAll(".stairs")].flatMap(line => {
          const place = line.ownerSVGElement.getScreenCTM(), long = line.getTotalLength();
          const names = [...line.parentNode.querySelectorAll("text.over")];
          return [...Array(400).keys()].flatMap(i => {
            const at = line.getPointAtLength((i / 399) * long).matrixTransform(place);
            return names.filter(name => {
              const box = name.getBoundingClientRect();
              return box.left < at.x && at.x < box.right && box.top + 2 < at.y &&
                at.y < box.bottom - 2;
            }).map(name => name.textContent);
          });
        })"""
    )
    assert not met
    assert "mixnet: 423.900 s, 683: whole bill, dollars a step" in hints(drawn_in(page, "front"))


def test_what_ties_on_the_front_is_drawn_level(tmp_path, opened):
    """Whoever is grey must not seem to be faster than what is as fast and cheaper."""
    steps = 377.38235, 377.38257, 377.38236
    rows = [offered(str(i), step, (4 - i) * 1e6, None) for i, step in enumerate(steps)]
    gridded(tmp_path / "a.html", rows)
    points = opened(tmp_path / "a.html").locator(".point")
    heights = [float(point.get_attribute("cy")) for point in points.all()]
    assert len(heights) == 3 and max(heights) - min(heights) < 0.1
    assert opened(tmp_path / "a.html").locator(".point.beaten").count() == 2


def test_phases_of_other_names_can_be_told_apart(tmp_path, opened):
    """In the bars, and by the same colour in the close-ups."""
    builder, last = TraceBuilder(["h1", "h2"]), []
    for name in ("training", "load", "constructor", "eval"):
        last = builder.flows([0], [1], 1e9, after=last, label="x", phase=name)
    every = played(builder.build(), "fat-tree,pods=2,tors=2")
    html.write_report(tmp_path / "a.html", every, summary_of(every, "", CREATED))
    page = opened(tmp_path / "a.html")
    bars = drawn_in(page, "bars").locator("g").first.locator("rect[height='25']")
    fills = [bar.get_attribute("fill") for bar in bars.all()]
    shapes = drawn_in(page, "close_ups").locator(".flows")
    assert len(set(fills)) == 4
    assert [shape.get_attribute("fill") for shape in shapes.all()] == fills


def test_signs_of_two_units_are_not_cut_in_two(tmp_path, opened):
    every = played(job(label="\U0001f9ea" * 70), "fat-tree,pods=2,tors=2")
    html.write_report(tmp_path / "a.html", every, summary_of(every, "", CREATED))
    shown = drawn_in(opened(tmp_path / "a.html"), "close_ups").locator("text").all_text_contents()
    (cut,) = [text for text in shown if "…" in text]
    assert set(cut) == {"\U0001f9ea", "…"}


def test_a_hostile_name_is_text_in_every_picture(tmp_path, opened):
    every = played(job(label=HOSTILE), "rfabric,pods=2,tors=2", "torus", traffic=HOSTILE)
    path = tmp_path / "a.html"
    html.write_report(path, every, summary_of(every, HOSTILE, CREATED))
    page = opened(path)
    assert page.title() != "taken" and not page.locator("[data-picture] img").count()
    assert any(HOSTILE in text for text in page.locator("svg text").all_text_contents())
    gridded(tmp_path / "b.html", [row | {"label": HOSTILE} for row in FABRICS[:2]])
    page = opened(tmp_path / "b.html")
    assert page.title() != "taken" and not page.locator("img").count()


def test_colours_follow_light_and_dark(place, opened):
    ink = "getComputedStyle(document.querySelector('[data-picture=bars] text.ink')).fill"
    light, dark = (opened(place, color_scheme=s).evaluate(ink) for s in ("light", "dark"))
    assert light != dark


def test_a_page_of_several_folders_draws_the_front(tmp_path, opened, capsys):
    words = ["--traffic", "traffic/ring.csv", "--topo", "rfabric,pods=2,tors=2,gpus=4"]
    words += ["--topo", "fat-tree,pods=2,tors=2,gpus=4", "--out", str(tmp_path), "-q"]
    assert main(["compare", *words]) == 0
    (folder,) = tmp_path.iterdir()
    assert main(["report", str(folder), "-o", str(tmp_path / "all.html")]) == 0
    page = opened(tmp_path / "all.html")
    assert drawn_in(page, "front").locator(".point").count() > 0
    assert not page.locator('[data-picture="bars"]').count()

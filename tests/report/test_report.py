"""What came out: summary, run folder, comparison, figures, page."""

import csv
import json
import os
import re
import resource
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from rfabric.errors import RFabricError
from rfabric.fabric import fat_tree, parse_fabric, rfabric
from rfabric.report import compare, figures, folder, html, tables
from rfabric.report.intervals import merged, squeezed
from rfabric.report.result import Pace, PhaseTime, Scale, fidelity
from rfabric.report.summary import (
    RUN_KEYS,
    Run,
    check_summary,
    labels,
    read_summary,
    run_summary,
    summary_of,
)
from rfabric.report.within import step_within
from rfabric.simulate.world import simulate
from rfabric.trace import PHASES, PhaseKey, TraceBuilder, point_to_point, ring

CREATED = "2025-07-21T14:30:05+02:00"


def small_trace(hosts=16, steps=1):
    """One generation, training and weight sync on two pods; the second half of the hosts trains."""
    builder = TraceBuilder([f"h{i + 1}" for i in range(hosts)])
    half, before = hosts // 2, []
    for step in range(steps):
        kind = {"step": step, "phase": "generation"}
        made = [
            builder.compute(h, 10 + h, after=before, label="generate", **kind) for h in range(half)
        ]
        kind["phase"] = "training"
        passes = [
            builder.compute(h, 5.0, after=made, label="backward", **kind)
            for h in range(half, hosts)
        ]
        edges = ring("all-reduce", range(half, hosts), 2e9, 2)
        reduced = builder.flows(
            edges.src, edges.dst, edges.size, after=passes, label="all-reduce", **kind
        )
        kind["phase"] = "weight_sync"
        edges = point_to_point([(half + i, i) for i in range(half)], 1e9, 2)
        before = builder.flows(
            edges.src, edges.dst, edges.size, after=reduced, label="weights", **kind
        )
    return builder.build(provenance={"made_by": "<test> & co"})


@pytest.fixture(scope="module")
def runs():
    trace = small_trace()
    fabrics = [
        parse_fabric(s)
        for s in ("fat-tree,pods=2,tors=2", "fat-tree,pods=2,tors=2,oversubscription=2")
    ]
    fabrics.append(parse_fabric("rfabric,pods=2,tors=2"))
    return [Run(simulate(fabric, trace, "demand", traffic="small", seed=7)) for fabric in fabrics]


@pytest.fixture(scope="module")
def emulated(runs):
    """The last run as if emulated: every flow 10 % longer, with scale and pace."""
    expected = runs[-1].result
    finish = np.where(
        expected.trace.size > 0,
        expected.start + 1.1 * (expected.finish - expected.start),
        expected.finish,
    )
    pace = Pace(True, 0.61, 0.0021)
    result = replace(
        expected,
        engine="emulate",
        finish=finish,
        scale=Scale(0.002, 10),
        pace=pace,
        versions={"ovs": "3.1.0"},
    )
    return Run(result, fidelity(result, expected))


@pytest.fixture(scope="module")
def summary(runs):
    return summary_of(runs, "rfabric simulate", CREATED)


# --- summary --------------------------------------------------------------------------------------


def test_a_summary_has_the_keys_that_programs_rely_on(summary):
    check_summary(json.loads(json.dumps(summary)), "summary")
    for run in summary["runs"]:
        assert set(RUN_KEYS) <= set(run)
        assert set(run["phases"]) == set(PHASES)
        assert all(
            set(p) == {"seconds", "comm_s", "exposed_s", "bytes", "within_s"}
            for p in run["phases"].values()
        )
        assert {"bandwidth_scale", "time_dilation", "sample_s"} == set(run["scale"])
        assert {"ok", "cpu", "worst_lateness_s"} <= set(run["pace"])
    times = (
        "epoch",
        "requested_s",
        "programmed_s",
        "dark_until_s",
        "usable_s",
        "circuits_changed",
        "lost_bytes",
    )
    optical = summary["runs"][-1]
    assert optical["rewires"] and all(set(times) <= set(r) for r in optical["rewires"])
    assert optical["dark_s"] > 0 == summary["runs"][0]["dark_s"]


def test_a_result_with_another_note_knows_what_was_worked_out_of_it(runs):
    result = runs[0].result
    phases, busy = result.phases, result.busy_seconds
    noted = result.noted(["one more"])
    assert noted.notes == (*result.notes, "one more") and noted.folding is result.folding
    assert noted.phases is phases and vars(noted)["busy_seconds"] == busy
    assert noted.noted([]).notes == noted.notes and noted.start is result.start


def test_phase_seconds_add_up_to_the_step(summary):
    for run in summary["runs"]:
        assert sum(p["seconds"] for p in run["phases"].values()) == pytest.approx(run["step_s"])
        assert sum(p["bytes"] for p in run["phases"].values()) == small_trace().size.sum()


def test_phases_of_several_steps_add_up():
    fabric = fat_tree(pods=2, tors=2)
    one, two = (run_summary(Run(simulate(fabric, small_trace(steps=n)))) for n in (1, 2))
    for phase in PHASES:
        for key in ("seconds", "comm_s", "exposed_s", "bytes"):
            assert two["phases"][phase][key] == pytest.approx(
                2 * one["phases"][phase][key], rel=1e-6
            )


def test_a_fabric_without_a_price_says_so():
    fabric = rfabric(pods=2, tors=2, rate="3.2Tbit/s")
    cost = run_summary(Run(simulate(fabric, small_trace())))["cost"]
    assert cost["network_usd"] is None and "3.2 Tbit/s" in cost["why"]


def priced(trace):
    """The trace, of GPUs that cost 338 USD an hour and draw 45 kW."""
    return replace(trace, provenance={"gpus_usd_per_hour": 338.0, "gpus_watts": 45e3})


def test_a_step_of_known_gpus_costs_dollars_part_by_part():
    fabric = fat_tree(pods=2, tors=2)
    one, two = (Run(simulate(fabric, priced(small_trace(steps=n)))) for n in (1, 2))
    cost, longer = (run_summary(run)["cost"] for run in (one, two))
    assert cost["usd_per_step"] == pytest.approx(sum(cost["usd_per_step_parts"].values()))
    # the rent, and a network on top
    assert cost["usd_per_step"] > 338 * one.result.step_seconds / 3600
    # a step of two as long
    assert longer["usd_per_step"] == pytest.approx(cost["usd_per_step"], rel=1e-6)
    table = compare.comparison(summary_of([one], "rfabric simulate", CREATED))
    assert row(table, "dollars a step").cells == (f"{cost['usd_per_step']:,.4f} $",)
    assert {r.name for r in table.rows if r.indent} >= set(compare.DOLLARS.values())
    assert run_summary(Run(simulate(fabric, small_trace())))["cost"]["usd_per_step"] is None


def test_a_rent_holds_the_nics_of_its_own_gpus_alone():
    """On a fabric of twice the hosts, half of the NICs are paid beside the rent."""
    fabric = fat_tree(pods=2, tors=4, gpus=4)
    trace = replace(
        priced(small_trace()),
        provenance={"gpus": 16, "gpus_usd_per_hour": 338.0, "gpus_watts": 4.5e3},
    )
    result = simulate(fabric, trace)
    parts = run_summary(Run(result))["cost"]["usd_per_step_parts"]
    hours = result.step_seconds / 3600
    assert len(fabric.hosts) == 32
    assert parts["gpus"] + parts["gpu_power"] + parts["nics"] / 2 == pytest.approx(338.0 * hours)


def told(low, high, kind="decode", basis="other system"):
    return {"low": low, "high": high, "basis": basis, "kind": kind, "rows": 7}


WITHIN = {
    "generation": told(0.5, 1.5),
    "training": told(0.8, 1.25, "training", "same system"),
    "weight_sync": told(0.6, 2.0, "weight sync"),
    "communication": told(1.25, 3.0, "communication"),
}


def predicted_run(**settings):
    trace = small_trace(**settings)
    trace = replace(trace, provenance=trace.provenance | {"within": WITHIN})
    return Run(simulate(fat_tree(pods=2, tors=2), trace))


def test_predicted_phases_have_intervals_and_a_given_trace_has_none():
    given, predicted = Run(simulate(fat_tree(pods=2, tors=2), small_trace())), predicted_run()
    entry = run_summary(predicted)
    for name, phase in entry["phases"].items():
        computes, sent = phase["seconds"] - phase["exposed_s"], phase["exposed_s"]
        for end in ("low", "high"):
            of = WITHIN[name][end] * computes + WITHIN["communication"][end] * sent
            assert phase["within_s"][end] == pytest.approx(of)
    assert {phase["within_s"] for phase in run_summary(given)["phases"].values()} == {None}
    assert run_summary(given)["step_within_s"] is None
    table = compare.comparison(summary_of([given, predicted], "rfabric simulate", CREATED))
    rows = [row for row in table.rows if row.name.startswith("80 % within")]
    assert len(rows) == 4 and all(row.cells[0] == "–" and " to " in row.cells[1] for row in rows)
    assert "training by training (same system, 7 rows)" in table.note
    table = compare.comparison(summary_of([given], "rfabric simulate", CREATED))
    assert not any(row.name.startswith("80 %") for row in table.rows)
    drawn = [figures.comparison(runs) for runs in ([given], [predicted])]
    assert [len(figure.axes[0].lines) for figure in drawn] == [0, 4]


def test_what_takes_microseconds_is_told_in_them():
    builder = TraceBuilder(["h1", "h2"])
    builder.flows([0], [1], [1000])
    run = Run(simulate(parse_fabric("ideal,gpus=2"), builder.build()))
    table = compare.comparison(summary_of([run], "rfabric simulate", CREATED))
    cells = {row.name: row.cells for row in table.rows}
    assert cells["step time"] == ("1.02 us",) and cells["dark time"] == ("0.000 s",)


@pytest.mark.parametrize(
    "strange",
    [
        3,
        {"training": WITHIN["training"]},
        WITHIN | {"training": WITHIN["training"] | {"basis": "mars"}},
        WITHIN | {"training": WITHIN["training"] | {"low": "x"}},
        WITHIN | {"training": WITHIN["training"] | {"low": 2.0, "high": 1.0}},
        WITHIN | {"training": {}},
    ],
)
def test_intervals_that_a_file_says_otherwise_are_refused(strange):
    result = predicted_run().result
    trace = replace(result.trace, provenance={"within": strange})
    with pytest.raises(RFabricError, match="provenance of the trace: within must say low and"):
        step_within(replace(result, trace=trace))


@pytest.mark.parametrize("steps", [1, 3])
def test_phases_one_after_another_make_a_step_of_their_sums(steps):
    entry = run_summary(predicted_run(steps=steps))
    for end in ("low", "high"):
        whole = sum(phase["within_s"][end] for phase in entry["phases"].values())
        assert entry["step_within_s"][end] == pytest.approx(whole)
    assert entry["step_within_s"]["basis"] == "other system"


def test_where_phases_overlap_the_widest_counts():
    result = predicted_run().result
    times = (
        PhaseTime(PhaseKey(0, "generation"), 0.0, 10.0, 0.0, 0.0, 0),
        PhaseTime(PhaseKey(0, "training"), 4.0, 12.0, 0.0, 0.0, 0),
        PhaseTime(PhaseKey(0, "weight_sync"), 13.0, 14.0, 0.0, 0.0, 0),
    )
    result = replace(result, finish=np.full_like(result.finish, 14.0))
    result.__dict__["phases"] = times
    within = step_within(result)
    assert within["low"] == pytest.approx(0.5 * 10 + 0.8 * 2 + 1 + 0.6)
    assert within["high"] == pytest.approx(1.5 * 10 + 1.25 * 2 + 1 + 2)


def test_a_run_of_several_steps_says_so_and_its_energy_is_that_of_one():
    fabric = fat_tree(pods=2, tors=2)
    one, two = (Run(simulate(fabric, small_trace(steps=n))) for n in (1, 2))
    joules = [run_summary(run)["cost"]["step_joules"] for run in (one, two)]
    assert joules[1] == pytest.approx(joules[0], rel=1e-3)
    table = compare.comparison(summary_of([two], "rfabric simulate", CREATED))
    assert table.title == "2 steps on each fabric" and table.rows[0].name == "all steps"
    table = compare.comparison(summary_of([one], "rfabric simulate", CREATED))
    assert table.title == "One step on each fabric" and table.rows[0].name == "step time"


def test_labels_name_what_differs(runs):
    assert labels(runs) == ["fat-tree 1:1", "fat-tree 2:1", "rfabric"]
    trace, optical = runs[0].result.trace, runs[-1].result.fabric
    policies = [Run(simulate(optical, trace, p)) for p in ("static", "demand")]
    assert labels([*policies, policies[0]]) == [
        "rfabric static",
        "rfabric demand",
        "rfabric static #2",
    ]
    slow = Run(simulate(parse_fabric("rfabric,pods=2,tors=2,delay=25ms"), trace))
    assert labels([runs[-1], slow]) == ["rfabric delay=10ms", "rfabric delay=25ms"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "a summary is an object"),
        ("{nonsense", "cannot be read as JSON"),
        ('{"runs": []}', "version, created, command, versions missing"),
        (
            ('{"version": 9, "created": "", "command": "", "versions": {}, "runs": []}'),
            "summary version 9",
        ),
        (
            (
                '{"version": 1, "created": "", "command": "", "versions": {}, "runs": [{"fabric": '
                '""}]}'
            ),
            r"runs\[0\]: policy",
        ),
    ],
)
def test_a_broken_summary_is_named(tmp_path, text, message):
    path = tmp_path / "summary.json"
    path.write_text(text)
    with pytest.raises(RFabricError, match=message):
        read_summary(path)


# --- folder ---------------------------------------------------------------------------------------


def write(out, runs, summary):
    with folder.new_folder(out) as new:
        folder.write_folder(new.path, runs, summary)
        html.write_report(new.path / "report.html", runs, summary)
    return new.final


def test_a_run_folder_reads_back_as_it_was_written(tmp_path, runs, emulated):
    every = [*runs[:2], emulated]
    summary = summary_of(every, "rfabric emulate", CREATED)
    again, read = folder.read_folder(write(tmp_path, every, summary))
    assert read == json.loads(json.dumps(summary))
    for ours, theirs in zip(every, again, strict=True):
        assert run_summary(theirs) == json.loads(json.dumps(run_summary(ours)))
        assert theirs.result.fabric == ours.result.fabric
        assert theirs.result.epochs == ours.result.epochs
        assert theirs.result.rewires == ours.result.rewires
        for column in ("start", "finish", "sent", "received", "link_bytes"):
            assert np.array_equal(getattr(theirs.result, column), getattr(ours.result, column))
    assert html.page(again, read) == html.page(every, read)


@pytest.fixture
def long(tmp_path, monkeypatch, emulated):
    """A folder whose tables are too long for CSV, and what it was made of."""
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(tables, "LONG", 3)
    return write(tmp_path, [emulated], summary_of([emulated], "rfabric emulate", CREATED))


def test_long_tables_are_parquet_alone_and_read_back_all_the_same(long, emulated):
    assert not list(long.rglob("flows.csv")) and not list(long.rglob("links.csv"))
    (run,), summary = folder.read_folder(long)
    for column in ("start", "finish", "sent", "received", "link_bytes"):
        assert np.array_equal(getattr(run.result, column), getattr(emulated.result, column))
    assert run_summary(run) == {k: v for k, v in summary["runs"][0].items() if k != "label"}


def test_long_tables_are_csv_on_request(long, tmp_path, monkeypatch, emulated):
    made = folder.write_long(long, folder.read_folder(long)[0])
    monkeypatch.setattr(tables, "LONG", 1 << 18)
    usual = write(tmp_path / "usual", [emulated], summary_of([emulated], "", CREATED))
    assert {path.name for path in made} == {"flows.csv", "links.csv"}
    for path in made:
        assert path.read_bytes() == (usual / path.relative_to(long)).read_bytes()
    assert folder.write_long(long, folder.read_folder(long)[0]) == []


def test_a_long_table_that_is_cut_or_cannot_be_read_is_named(long, monkeypatch):
    flows = next(long.rglob("flows.parquet"))
    whole = flows.read_bytes()
    flows.write_bytes(whole[:-9])
    with pytest.raises(RFabricError, match=r"flows\.parquet: incomplete"):
        folder.read_folder(long)
    flows.write_bytes(next(long.rglob("links.parquet")).read_bytes())
    with pytest.raises(RFabricError, match=r"flows\.parquet: incomplete: no column start_s"):
        folder.read_folder(long)
    flows.write_bytes(whole)
    monkeypatch.setattr("rfabric.report.parquet.find_spec", lambda _: None)
    with pytest.raises(RFabricError, match=r"needs pyarrow; pip install 'rfabric\[parquet\]'"):
        folder.read_folder(long)


def test_a_run_folder_holds_inputs_beside_outputs(tmp_path, runs, summary):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("steps: 1\n")
    with folder.new_folder(tmp_path / "deep/runs") as new:
        folder.write_folder(new.path, runs, summary, [recipe])
    assert (new.final / "inputs/mine.yaml").read_text() == "steps: 1\n"
    names = {p.relative_to(new.final).as_posix() for p in new.final.rglob("*") if p.is_file()}
    files = ("fabric.json", "circuits.json", "flows.csv", "links.csv", "rewires.csv")
    assert {f"simulate-rfabric/{f}" for f in files} | {"trace.csv", "summary.json"} <= names
    with open(new.final / "simulate-rfabric/flows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(runs[0].result.trace)
    assert {
        "size_bytes",
        "start_s",
        "finish_s",
        "phase",
        "label",
        "sent_bytes",
        "received_bytes",
    } <= set(rows[0])
    assert not list((tmp_path / "deep/runs").glob(".*"))


def test_two_inputs_of_one_name_are_both_kept(tmp_path, runs, summary):
    files = [tmp_path / name / "mine.yaml" for name in "ab"]
    for file in files:
        file.parent.mkdir()
        file.write_text(file.parent.name)
    with folder.new_folder(tmp_path / "runs") as new:
        folder.write_folder(new.path, runs, summary, [*files, files[0]])
    inputs = sorted((new.final / "inputs").iterdir())
    assert [(one.name, one.read_text()) for one in inputs] == [
        ("mine-2.yaml", "b"),
        ("mine.yaml", "a"),
    ]


def test_long_documents_are_what_the_encoder_makes_of_them(tmp_path, runs, summary):
    made = write(tmp_path, runs, summary)
    long = [made / f"simulate-rfabric/{name}.json" for name in ("fabric", "circuits")]
    for text in (path.read_text() for path in long):
        assert text == folder._json(json.loads(text))
    for spec in ("fat-tree", "two-clusters,join=1kbit/s", "mixnet", "rfabric,pods=2"):
        fabric = parse_fabric(spec)
        whole = [replace(link, rate=int(link.rate)) for link in fabric.links[::2]]
        mixed = replace(fabric, links=(*whole, *fabric.links[1::2]))
        for one in (fabric, mixed):
            assert folder.fabric_text(one) == folder._json(one.to_json())


def test_link_bytes_and_utilisation_fit_the_flows(tmp_path, runs, summary):
    path = write(tmp_path, runs, summary) / "simulate-fat-tree-1-1/links.csv"
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    leaving_hosts = sum(float(r["bytes"]) for r in rows if r["a"].startswith("h"))
    assert leaving_hosts == pytest.approx(runs[0].result.trace.size.sum())
    assert 0 < max(float(r["utilisation"]) for r in rows) <= 1 + 1e-9


@pytest.mark.parametrize("error", [RFabricError("broken"), KeyboardInterrupt()])
def test_nothing_is_left_of_a_run_that_broke(tmp_path, error):
    with pytest.raises(type(error)), folder.new_folder(tmp_path / "runs") as new:
        (new.path / "half").write_text("written")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RFabricError, match=r"cannot write .*file.*: Not a directory"),
        folder.new_folder(tmp_path / "file"),
    ):
        pass


def test_no_room_leaves_nothing_half_written(tmp_path):
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000));"
        "from rfabric.cli import main; sys.exit(main(['simulate', '-q', '--topo', 'rfabric', "
        "'--out', sys.argv[1]]))"
    )
    out = tmp_path / "runs"
    done = subprocess.run([sys.executable, "-c", code, out], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(
        r"rfabric: error: cannot write .*: File too large; choose another place, or make "
        r"room\n",
        done.stderr,
    )
    assert not out.exists()
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 20000


def test_only_folders_of_dead_processes_are_swept(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    names = [f".20250721-143005-9f3a.{pid}.part" for pid in (dead.pid, os.getpid())] + [
        ".other.part"
    ]
    for name in names:
        (tmp_path / name).mkdir()
    assert [p.name for p in folder.sweep(tmp_path)] == [names[0]]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(names[1:])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away: run `sudo make test`")
def test_under_sudo_the_folder_belongs_to_the_caller(tmp_path, runs, summary, monkeypatch):
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1235")
    path = write(tmp_path / "runs", runs[:1], summary_of(runs[:1], "", CREATED))
    assert {(p.stat().st_uid, p.stat().st_gid) for p in (path.parent, path, *path.rglob("*"))} == {
        (1234, 1235)
    }


def test_what_is_no_run_folder_is_refused(tmp_path, runs, summary):
    with pytest.raises(RFabricError, match="is no run folder"):
        folder.read_folder(tmp_path)
    path = write(tmp_path / "runs", runs, summary)
    (path / "simulate-rfabric/flows.csv").unlink()
    (path / "simulate-rfabric/flows.parquet").unlink(missing_ok=True)
    with pytest.raises(RFabricError, match="incomplete"):
        folder.read_folder(path)


# --- comparison -----------------------------------------------------------------------------------


def row(table, name):
    return next(r for r in table.rows if r.name == name)


def test_the_comparison_tells_every_run_and_marks_the_best(summary):
    table = compare.comparison(summary)
    assert table.columns == ("", "fat-tree 1:1", "fat-tree 2:1", "rfabric")
    steps = [r["step_s"] for r in summary["runs"]]
    assert row(table, "step time").best == int(np.argmin(steps))
    assert row(table, "generation").best == -1  # the same everywhere
    assert row(table, "rewires").cells[:2] == ("0", "0")
    assert row(table, "network cost").cells[0].endswith("k$")
    assert not any("simulation" in r.name for r in table.rows)


@pytest.mark.parametrize(
    ("joules", "shown"),
    [
        ([0.4, 12.3], ("0.4 J", "12.3 J")),
        ([3.4e3, None], ("3.40 kJ", "–")),
        ([5e4, 1.2e6], ("50 kJ", "1,200 kJ")),
    ],
)
def test_energy_is_told_in_the_unit_that_the_largest_of_the_row_asks_for(summary, joules, shown):
    runs = [
        r | {"cost": r["cost"] | {"step_joules": j}}
        for r, j in zip(summary["runs"], joules, strict=False)
    ]
    assert row(compare.comparison(summary | {"runs": runs}), "network energy a step").cells == shown


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("weight_sync/0", "weight sync"),
        ("training/1", "training, step 1"),
        ("training/0 all-to-all", "training all-to-all"),
        ("training/12 rotor round 2/3", "training rotor round 2/3, step 12"),
        ("mine/too/0", "mine/too"),
        ("/0", "flows"),
        ("", "flows"),
    ],
)
def test_a_phase_is_told_without_its_first_step(key, text):
    assert compare.phase_text(key) == text


def test_the_tables_tell_timestamps_and_errors(emulated):
    summary = summary_of([emulated], "", CREATED)
    table = compare.fidelity(summary)
    assert {r.cells[-1] for r in table.rows} <= {"+10.0%", "+9.9%"} and table.rows
    assert row(compare.comparison(summary), "error against simulation, median").cells == ("10.0%",)
    first = emulated.result.rewires[0]
    cells = compare.rewires(summary).rows[0].cells
    assert cells[3:6] == tuple(
        (f"+{1e3 * (t - first.requested):.2f} ms")
        for t in (first.programmed, first.dark_until, first.usable)
    )


# --- figures and page -----------------------------------------------------------------------------


def test_the_page_is_whole_and_asks_for_nothing(runs, summary):
    text = html.page(runs, summary)
    assert not re.search(r'(?:src|href)="(?!#|data:)', text.replace("http://www.w3.org", ""))
    assert not re.search("<script[^>]* src=", text) and "@import" not in text
    for word in ("fat-tree 2:1", "rfabric", "seed", "small", *summary["versions"].values()):
        assert word in text
    # foreign text is escaped
    assert "&lt;test&gt; &amp; co" in text or "\\u003ctest\\u003e" in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_the_page_tells_scale_and_pace(emulated):
    text = " ".join(html.page([emulated], summary_of([emulated], "", CREATED)).split())
    assert (
        "kept pace" in text
        and "CPU 61 %" in text
        and "bandwidth x 0.002, time x 10" in text
        and "3.1.0" in text
    )


def test_a_name_cannot_break_out_of_the_page():
    trace = small_trace()
    result = simulate(fat_tree(pods=2, tors=2), trace, traffic="<script>alert(1)</script>")
    assert "<script>alert" not in html.page([Run(result)], summary_of([Run(result)], "", CREATED))


def test_figures_are_sound_svg_with_tooltips(runs):
    optical = runs[-1].result
    drawn = {
        "topology": figures.topology(optical.fabric),
        "timeline": figures.timeline(optical),
        "comparison": figures.comparison(runs),
    }
    for name, figure in drawn.items():
        text = figures.svg(figure)
        titles = [
            t.text for t in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}title")
        ]
        assert titles, name
        assert not re.search("#010203|#040506|#070809|#0a0b0c", text), name
    assert sum("t1:" in t for t in _titles(figures.topology(optical.fabric))) == 1


def _titles(figure):
    return re.findall("<title>([^<]*)</title>", figures.svg(figure))


def test_a_large_fabric_is_drawn_in_part():
    fabric = fat_tree(pods=16, tors=16, gpus=16)
    assert len(figures.svg(figures.topology(fabric))) < 3e6
    assert re.search(r"[\d,]+ of [\d,]+ nodes drawn", figures.svg(figures.topology(fabric)))


@pytest.mark.parametrize("words", ["fat-tree,k=8", "torus", "two-clusters", "mixnet"])
def test_no_word_of_a_fabrics_picture_covers_another(words):
    drawn = figures.topology(parse_fabric(words))
    FigureCanvasAgg(drawn).draw()
    boxes = [(t.get_text(), t.get_window_extent()) for t in drawn.axes[0].texts]
    for (one, a), (other, b) in combinations(boxes, 2):
        assert not a.overlaps(b), (one, other)


def test_no_cable_is_drawn_through_what_it_does_not_join():
    """The rings of a torus were one line: all its switches stand in one row."""
    fabric = parse_fabric("torus")
    axes = figures.topology(fabric).axes[0]
    spots = {tuple(line.get_xydata()[0]) for line in axes.lines}
    cables = [tuple(map(tuple, path.vertices)) for path in axes.collections[0].get_paths()]
    assert len(cables) == len(fabric.links)
    for cable in cables:
        (left, y), (right, to_y) = min(cable[0], cable[-1]), max(cable[0], cable[-1])
        between = [s for s in spots if s[1] == y == to_y and left < s[0] < right]
        assert not between or min(y for _, y in cable[1:-1]) > y


def test_squeezed_time_stands_still_between_bursts():
    bursts = merged(np.array([0.0, 1.0, 5.0]), np.array([2.0, 1.5, 6.0]))
    assert bursts.tolist() == [[0.0, 2.0], [5.0, 6.0]]
    assert squeezed(np.array([-1.0, 0.0, 1.0, 3.0, 5.5, 9.0]), bursts).tolist() == [
        0,
        0,
        1,
        2,
        2.5,
        3,
    ]


def test_a_png_is_a_png(tmp_path):
    figures.png(figures.topology(rfabric(pods=2, tors=2), figures.PRINT), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]


def test_a_trace_without_phases_or_rewires_makes_a_page():
    builder = TraceBuilder(["h1", "h5"])
    builder.flows([0], [1], 1e9)
    run = Run(simulate(rfabric(pods=2, tors=2), builder.build()))
    summary = summary_of([run], "", CREATED)
    assert list(summary["runs"][0]["phases"]) == ["flows"]
    assert "Where the fabrics differ" in html.page([run], summary)


def test_a_trace_that_sends_nothing_makes_a_page():
    builder = TraceBuilder(["h1"])
    builder.compute(0, 3.0, phase="training", label="backward")
    run = Run(simulate(fat_tree(pods=2, tors=2), builder.build()))
    text = html.page([run], summary_of([run], "", CREATED))
    assert "Link load" in text and "Where the fabrics differ" not in text


def test_a_page_shows_the_front_where_two_runs_have_a_price(runs, summary):
    assert 'data-picture="front"' in html.page(runs, summary)

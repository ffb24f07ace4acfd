"""The self-test: its closed forms, its rewires, its verdicts; and as root a short one for real."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rfabric.cli import main
from rfabric.errors import PaceError, RFabricError, RunError
from rfabric.fabric import parse_fabric
from rfabric.optics import IN_FLIGHT
from rfabric.report.result import Pace
from rfabric.study import patterns, selftest
from rfabric.study.run import Case, RunSettings, simulated
from rfabric.trace import Traffic


def played(fabric, trace, policy="static", **said):
    settings = RunSettings("emulate", **said)
    return simulated(Case(fabric, policy), Traffic(trace, "self-test", ()), settings)


def on_fat_tree(hosts):
    fabric = selftest.fabrics(hosts)["fat-tree"]
    return played(fabric, patterns.patterns(fabric.hosts))


@pytest.mark.parametrize("hosts", [16, 24, 64])
def test_closed_forms_are_what_the_model_says(hosts):
    result, forms = on_fat_tree(hosts), patterns.closed()
    told = {key[2]: seconds for key, seconds in result.communication.items()}
    assert {name: told[name] for name in forms} == pytest.approx(forms, rel=1e-3)
    meet = {"permutation 1", "permutation 2", "tree all-reduce", "weight broadcast"}
    assert set(told) - set(forms) == meet


def test_cards_alone_do_not_hold_patterns_up_where_uplinks_are_half():
    fabric = selftest.fabrics(16)["leaf-spine"]
    told = played(fabric, patterns.patterns(fabric.hosts)).communication
    seconds = {key[2]: s for key, s in told.items()}
    assert seconds["one flow"] == pytest.approx(patterns.SECONDS, rel=1e-3)
    assert seconds["all-to-all"] > 1.5 * patterns.ALL_LONGER * patterns.SECONDS


def test_a_model_that_is_wrong_is_told_from_an_emulation_that_is():
    result = on_fat_tree(16)
    right = list(selftest.compared(result, result, patterns.closed()))
    assert all(one.ok for one in right)
    assert {one.against for one in right if one.pattern == "all-to-all"} == {"closed form"}
    wrong = list(selftest.compared(result, result, {"one flow": 0.5 * patterns.SECONDS}))
    assert [one.faults for one in wrong if not one.ok] == ["the model, phase"]


def test_a_run_that_did_not_keep_pace_has_rows_that_say_so(monkeypatch):
    def refuse(expected, *_):
        slow = replace(expected, pace=Pace(False, reasons=("too slow",)))
        raise PaceError("the host did not keep pace: too slow", [slow])

    monkeypatch.setattr(selftest, "tried", refuse)
    monkeypatch.setattr("rfabric.emulate.world.calibrate", lambda **_: 8e4)
    rows = selftest.selftest(only=["leaf-spine"])
    assert len(rows) == len(patterns.PATTERNS)
    assert {one.faults for one in rows} == {"the host did not keep pace"}


def test_a_run_that_broke_is_a_row_with_a_fault_and_the_others_stand(monkeypatch):
    def broken(expected, *_):
        if expected.fabric.name == "leaf-spine":
            raise RunError("packets took other paths")
        raise PaceError("too slow", [expected])

    monkeypatch.setattr(selftest, "tried", broken)
    monkeypatch.setattr("rfabric.emulate.world.calibrate", lambda **_: 8e4)
    rows = selftest.selftest(only=["leaf-spine", "rotor"])
    assert [one.faults for one in rows if not one.ok] == ["packets took other paths"]
    assert rows[0].to_json()["error"] is None and len(rows) == 1 + len(patterns.PATTERNS)
    assert selftest.summary(rows)["phases"]["worst"] == 0
    assert "–" in selftest.table(rows).rows[0].cells


def measured(error=0.0, flows=(0.0, 0.0, 0.0), broken=(), grain=(0.0,)):
    seen = 1 + error, np.array(flows), broken, np.array(grain)
    return selftest.MeasuredPattern("f", "p", "model", 1.0, *seen)


@pytest.mark.parametrize(
    ("one", "faults"),
    [
        (measured(), ""),
        (measured(error=-1.01 * selftest.PHASE_BOUND), "phase"),
        (measured(flows=[*[0.0] * 20, 1.01 * selftest.FLOW_BOUNDS["worst"]]), "flows, worst"),
        (measured(flows=[0.0, 0.0, 1.3 * selftest.FLOW_BOUNDS["p90"]]), "flows, p90"),
        (measured(flows=[-1.01 * selftest.FLOW_BOUNDS["median"]] * 3), "flows, median"),
        (measured(flows=[*[0.0] * 20, -0.3], grain=[0.14] * 21), "flows, worst"),
        (measured(flows=[*[0.0] * 20, -0.3], grain=[0.16] * 21), ""),
        (measured(flows=[0.0, 0.0, 0.08], grain=[0.05] * 3), ""),
        (measured(flows=[-0.031] * 3, grain=[0.05] * 3), "flows, median"),
        (measured(broken=("no rewire met a flow",)), "no rewire met a flow"),
    ],
)
def test_each_bound_is_held_by_itself(one, faults):
    assert (one.faults, one.ok) == (faults, not faults)
    assert one.to_json()["faults"] == faults


@pytest.mark.parametrize(
    ("rows", "faults"),
    [
        ([measured()], []),
        ([measured(0.06), *[measured()] * 20], ["p on f: phase"]),
        ([measured(-0.021)] * 3, ["all phases: median 2.1%, the limit is 2%"]),
        ([measured(flows=[0.021] * 3)], ["all flows: median 2.1%, the limit is 2%"]),
        (
            [measured(flows=[0.0] * 17 + [0.08] * 3)],
            ["p on f: flows, p90", "all flows: p90 8.0%, the limit is 5%"],
        ),
    ],
)
def test_all_patterns_together_have_bounds_of_their_own(rows, faults):
    assert selftest.faults(rows) == faults


@pytest.mark.parametrize("way", IN_FLIGHT)
def test_flows_are_under_way_where_circuits_change(way):
    fabric = parse_fabric(selftest.REWIRED)
    result = played(fabric, selftest.met(fabric), "demand", in_flight=way)
    assert len(result.rewires) == 2
    # the model loses nothing, packets do
    broken = ("0 bytes lost",) if way == "drop" else ()
    assert selftest.rewired(result, result, way).broken == broken
    still = replace(result, rewires=())
    assert "no rewire met a flow" in selftest.rewired(still, result, "hold").broken


def test_what_is_no_part_and_what_makes_no_pods_is_refused():
    with pytest.raises(RFabricError, match="--only nope: a part is one of fat-tree, .*, drop"):
        selftest.parts(["nope"])
    with pytest.raises(RFabricError, match="patience 500 ms: .* less than 1 s"):
        selftest.selftest(patience=0.5)  # before anything is measured
    for hosts, near in ((0, 16), (7, 16), (20, 16), (21, 24), (100_000, selftest.MOST_HOSTS)):
        said = f"--hosts {hosts}: pods of 8 hosts make .* hosts; the nearest that works is {near}$"
        with pytest.raises(RFabricError, match=said):
            selftest.fabrics(hosts)


def test_as_many_hosts_are_tested_as_all_five_fabrics_may_have(monkeypatch):
    every = selftest.fabrics(selftest.MOST_HOSTS).values()
    assert {len(fabric.hosts) for fabric in every} == {selftest.MOST_HOSTS}
    monkeypatch.setattr(selftest, "MOST_HOSTS", selftest.MOST_HOSTS + selftest.HOSTS_BY)
    with pytest.raises(RFabricError, match="fat-tree: .* the limit is 64 pods"):
        selftest.fabrics(selftest.MOST_HOSTS)


def test_the_summary_is_of_all_phases_and_flows():
    summary = selftest.summary([measured(0.01, [0.02, -0.04]), measured(-0.03, [0.0])])
    assert summary["phases"]["worst"] == pytest.approx(0.03)
    assert summary["flows"]["median"] == pytest.approx(0.02)
    assert summary["flows"]["worst"] == pytest.approx(0.04)


# times less patience than usual, so that a test may wait for it; of a run in three with so few
# packets one part broke a bound, by a tenth, and of more where processors are taken away
SHORTER = 3
AGAIN = 2, 1  # the same for what broke a bound, and for what still does: as long as usual


def told_of(tmp_path, capsys, shorter, *only):
    """The bounds it says are broken, and what it tells of each pattern, with less patience."""
    words = ["--patience", f"{selftest.PATIENCE / shorter:g}s", "--out", str(tmp_path)]
    parts = [word for part in only for word in ("--only", part)]
    code = main(["selftest", *words, *parts, "--json", "--quiet"])
    told = json.loads(capsys.readouterr().out)
    assert code == bool(told["faults"])
    return told["faults"], {(row["fabric"], row["pattern"]): row for row in told["selftest"]}


@pytest.mark.root
def test_real_packets_take_the_seconds_that_theory_says(tmp_path, capsys):
    """By the bounds of the command; a part that breaks one is tried AGAIN, more slowly."""
    faults, rows = told_of(tmp_path, capsys, SHORTER)
    every = {(name, pattern) for name in selftest.fabrics(16) for pattern in patterns.PATTERNS}
    assert rows.keys() == every | {("rfabric", f"rewire, {way}") for way in IN_FLIGHT}
    for shorter in AGAIN:
        again = {part_of(row) for row in rows.values() if row["faults"]}
        if faults:
            faults, rows = told_of(tmp_path, capsys, shorter, *sorted(again))
    assert not faults, (faults, [row["error"] for row in rows.values() if row["faults"]])
    assert not list(tmp_path.iterdir())


def part_of(row):
    """What `--only` calls the row's part."""
    kind, _, way = row["pattern"].partition("rewire, ")
    return row["fabric"] if kind else way

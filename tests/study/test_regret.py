"""What not knowing costs: regret against an oracle, and what became of what was expected."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.rl import read_recipe
from rfabric.rl.plan import phase_seconds
from rfabric.schedulers import forecasts
from rfabric.schedulers.forecasts import FELL_BACK, Expected, ahead, earlier_steps, foreseen
from rfabric.schedulers.networks import foreseen as answering
from rfabric.schedulers.table import scheduled
from rfabric.simulate.world import simulate
from rfabric.study import regret
from rfabric.study.regret import (
    ForecastRun,
    Regret,
    missed_rewires,
    regret_table,
    regrets_of,
    run_of,
)

SMALL = ("generation.batch=16", "generation.max_response=2048", "cluster.generation_gpus=8")
AHEAD = ("pipeline=one-step-off", "steps=3")
FABRICS = ("ideal", "rfabric", "rfabric,delay=2s", "two-clusters,join=200Gbit/s")


def job(*changes):
    return read_recipe("grpo-64", (*SMALL, *AHEAD, *changes))


def run(seconds, **counts):
    usual = {"rewires": 0, "missed": 0, "early": 0, "expected": 6, "fell_back": 0}
    return ForecastRun(seconds, **usual | counts)


def row(ours, oracle, how="smoothed"):
    return Regret("rfabric", "one-step-off", how, tuple(map(run, ours)), tuple(map(run, oracle)))


# --- relations ------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", FABRICS)
def test_a_forecast_that_is_exact_costs_nothing_at_all(spec, monkeypatch):
    """Each phase is expected to take what it takes, to the last bit."""
    w = job()
    fabric = w.needs.fabric(spec)
    known = scheduled(w, 0, "one-step-off,network=fabric,forecast=oracle", answering(fabric, "own"))
    coming = iter(
        [
            [p.seconds, p.comm]
            for p in sorted(known.plan.phases, key=lambda p: p.step)
            if p.kind in ("generation", "training", "weight_sync")
        ]
    )
    monkeypatch.setattr(forecasts, "ahead", lambda *_: Expected(np.array(next(coming))))
    (one,) = regrets_of(w, spec, "one-step-off", ("smoothed",), [0])
    assert one.by_seed.tolist() == [0.0] and one.told == "the same"
    assert one.total("early") == 0
    assert one.total("missed") == sum(known.missed for known in one.oracle)


def test_steps_that_never_change_are_forecast_exactly():
    """No window of such a job is other than the oracle's."""
    w = job("generation.turns=1")
    step = earlier_steps(w, 0)[0]
    made = scheduled(w, 0, "one-step-off")
    like = tuple(replace(step, number=n) for n in range(w.steps))
    made = replace(made, workload=w, steps=like)
    lasts = dict.fromkeys(("generation", "training", "weight_sync"))
    for kind in lasts:
        lasts[kind] = phase_seconds(w, step, kind)
    phases = tuple(
        replace(p, seconds=lasts[p.kind][0], comm=lasts[p.kind][1]) for p in made.plan.phases
    )
    made = replace(made, plan=replace(made.plan, phases=phases))
    told = foreseen(made, [step] * 12, "smoothed")
    assert set(told.trace.paces.values()) <= {1.0}
    assert not any(told.facts["later_than_forecast"].values())


@pytest.mark.parametrize("spec", FABRICS)
def test_not_knowing_costs_something_in_the_mean_or_cannot_be_told_apart(spec):
    for one in regrets_of(job(), spec, "one-step-off", ("smoothed",), range(4)):
        assert one.mean >= -one.half
        assert one.total("expected") == 4 * 2 * 3


def test_a_regret_is_what_two_runs_differ_by():
    w, spec = job(), "two-clusters,join=200Gbit/s"
    (one,) = regrets_of(w, spec, "one-step-off", ("smoothed",), [3])
    fabric = w.needs.fabric(spec)
    seconds = {}
    for how in ("oracle", "smoothed"):
        policy = f"one-step-off,network=fabric,forecast={how}"
        made = scheduled(w, 3, policy, answering(fabric, "own"))
        seconds[how] = simulate(fabric, made.trace, "own", seed=3).step_seconds
    assert one.mean == seconds["smoothed"] - seconds["oracle"] and one.half is None


# --- what became of it ----------------------------------------------------------------------------


def test_fits_that_give_no_number_are_smoothed_counted_and_said(monkeypatch, caplog):
    class Fit:
        def fit(self, **_):
            return self

        def forecast(self, _):
            return [float("nan")]

    monkeypatch.setattr(forecasts, "_statsmodels", lambda: lambda *_, **__: Fit())
    w = job()
    fabric = w.needs.fabric("ideal")
    fell = run_of(w, fabric, "one-step-off", "arima", 0)
    plain = run_of(w, fabric, "one-step-off", "smoothed", 0)
    assert fell.fell_back >= 3 * 2 and plain.fell_back == 0
    assert fell.seconds == plain.seconds and fell.early == plain.early
    assert "smoothed instead" in caplog.text


def test_fits_of_lengths_that_give_no_number_are_counted_too(monkeypatch):
    class Fit:
        def fit(self, **_):
            raise ValueError("no fit")

    monkeypatch.setattr(forecasts, "_statsmodels", lambda: lambda *_, **__: Fit())
    w = job("steps=1")
    windows = scheduled(w, 0, "one-step-off,forecast=arima").facts[FELL_BACK]
    assert scheduled(w, 0, "orchestrrl,forecast=arima").facts[FELL_BACK] > windows


def test_what_is_known_never_falls_back():
    facts = scheduled(job("steps=1"), 0, "one-step-off,forecast=smoothed").facts
    assert FELL_BACK not in facts and ahead(np.ones((9, 2))).fell_back == 0


def test_a_rewire_that_keeps_flows_waiting_for_longer_than_foreseen_is_missed():
    w = job()
    fabric = w.needs.fabric("rfabric,delay=2s")
    made = scheduled(w, 0, "one-step-off,forecast=oracle")
    result = simulate(fabric, made.trace, "own", seed=0)
    assert result.rewires
    assert missed_rewires(fabric, made, result) == 0
    late = tuple(replace(one, exposed=one.exposed + 60.0) for one in result.rewires)
    told = SimpleNamespace(rewires=late)
    assert missed_rewires(fabric, made, told) == len(late)


# --- the table ------------------------------------------------------------------------------------


def test_what_is_said_follows_the_interval():
    assert row([3.0, 4.0], [3.0, 4.0]).told == "the same"
    assert row([13.0, 14.1], [3.0, 4.0]).told == "longer"
    assert row([3.0, 4.0], [13.0, 14.1]).told.startswith("shorter: the oracle's planner is a heur")
    assert row([3.0, 14.0], [4.0, 4.0]).told == "not told apart"
    assert row([5.0], [4.0]).told == "not told apart" and row([5.0], [4.0]).half is None


def test_a_line_says_seconds_interval_and_counts():
    table = regret_table([row([101.0, 103.0], [100.0, 100.0], "arima")])
    (line,) = table.rows
    assert line.cells[:7] == (
        "one-step-off", "arima", "2", "100.00 s", "102.00 s", "2.00 ± 12.71 s", "2.00%",
    )  # fmt: skip
    assert len(line.cells) == len(table.columns) - 1


def test_the_command_prints_text_json_and_a_page(monkeypatch, capsys):
    monkeypatch.setattr(regret, "JOB", ("grpo-64", (*SMALL, *AHEAD)))
    monkeypatch.setattr(regret, "FABRICS", ("ideal",))
    monkeypatch.setattr(regret, "FORECASTS", {"one-step-off": ("smoothed",)})
    monkeypatch.setattr(regret, "SEEDS", {"one-step-off": 2})
    words = ["reproduce", "joint", "--experiment", "forecasts", "-q"]
    assert main([*words, "--json", "--seed", "5"]) == 0
    (printed,) = json.loads(capsys.readouterr().out)["rows"]
    assert printed["fabric"] == "ideal" and len(printed["seconds"]) == 2
    assert printed["regret_s"] == pytest.approx(
        np.mean(np.subtract(printed["seconds"], printed["oracle_seconds"]))
    )
    assert main(words) == 0 and "What not knowing costs" in capsys.readouterr().out
    assert main([*words, "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("## joint --experiment forecasts\n")


def test_without_the_library_nothing_is_run(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "statsmodels.tsa.arima.model", None)
    monkeypatch.setattr(regret, "run_of", None)
    with pytest.raises(RFabricError, match="pip install 'rfabric"):
        next(regret.regrets())

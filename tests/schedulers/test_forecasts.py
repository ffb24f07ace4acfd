"""Forecasts that can be wrong: what is expected of steps to come, and what not knowing costs."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.rl import read_recipe
from rfabric.rl.phases import responses
from rfabric.schedulers import forecasts, orchestrrl
from rfabric.schedulers.forecasts import KNOWN, Expected, ahead, earlier_steps, foreseen
from rfabric.schedulers.orchestrrl import outlook
from rfabric.schedulers.orchestrrl.outlook import forecast
from rfabric.schedulers.table import scheduled
from rfabric.simulate.world import simulate
from rfabric.trace import PhaseKey

SMALL = ("generation.batch=64", "cluster.generation_gpus=16")


@pytest.fixture
def statsmodels():
    pytest.importorskip("statsmodels", reason="statsmodels is an extra")


@cache
def made(policy, *changes, seed=0):
    return scheduled(read_recipe("grpo-64", (*SMALL, *changes)), seed, policy)


def series(steps, seed=0, drift=0.0):
    """Seconds about 100 that vary by a twentieth."""
    rng = np.random.default_rng(seed)
    return (100 + drift * np.arange(steps) + 5 * rng.normal(size=steps))[:, None]


# --- what is expected -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["smoothed", "arima"])
def test_what_never_changed_is_expected_to_stay(how, statsmodels):
    assert ahead(np.full((8, 3), 7.5), how).values == pytest.approx([7.5] * 3)


def test_arima_is_nearer_than_what_was_last_seen(statsmodels):
    """Of steps that are drawn alike the best forecast is the mean: ARIMA(0, 1, 1) finds so."""
    fitted, last = [], []
    for seed in range(20):
        seen = series(17, seed)
        fitted.append(abs(ahead(seen[:-1], "arima").values - seen[-1]).item())
        last.append(abs(seen[-2] - seen[-1]).item())
    assert np.mean(fitted) < 0.9 * np.mean(last)


def test_arima_is_fitted_to_a_few_quantiles_and_others_lie_between(monkeypatch):
    asked = []

    def last(seen, how):
        asked.append((seen.shape, how))
        return Expected(seen[-1], 3)

    monkeypatch.setattr(outlook, "ahead", last)
    lengths = np.arange(1, 1025)  # their quantiles lie on a line
    told = forecast([lengths, lengths], 10**6, "arima")
    assert asked == [((2, 9), "arima")] and told.fell_back == 3
    assert told.tokens == pytest.approx(np.quantile(lengths, (np.arange(512) + 0.5) / 512))


@pytest.mark.parametrize(("how", "steps"), [("lengths", 4), ("smoothed", 4 + KNOWN)])
def test_lengths_of_a_few_steps_are_known_before_the_first(how, steps, monkeypatch):
    """Four; where phases are foreseen, of all the steps that these are foreseen by."""
    seen, expected = [], orchestrrl.forecast

    def noted(history, *more):
        seen.append(len(history))
        return expected(history, *more)

    monkeypatch.setattr(orchestrrl, "forecast", noted)
    words = ("generation.batch=16", "generation.max_response=256")
    scheduled(read_recipe("grpo-64", words), 0, f"orchestrrl,forecast={how}")
    assert seen == [steps]


def test_a_drift_is_followed():
    assert ahead(series(30, drift=10.0)).values.item() > series(30, drift=10.0)[-4].item()


def test_steps_too_few_to_fit_are_smoothed(statsmodels):
    assert ahead(series(4), "arima").values == ahead(series(4)).values


@pytest.mark.parametrize("broken", [float("nan"), ValueError("no fit")])
def test_a_fit_that_gives_no_number_is_smoothed_and_says_so(broken, monkeypatch, caplog):
    class Fit:
        def fit(self, **_):
            if isinstance(broken, ValueError):
                raise broken
            return self

        def forecast(self, _):
            return [broken]

    monkeypatch.setattr(forecasts, "_statsmodels", lambda: lambda *_, **__: Fit())
    told = ahead(series(9), "arima")
    assert told.values == ahead(series(9)).values and told.fell_back == 1
    assert "ARIMA gives no forecast for 1 of 1 series of 9 steps: smoothed" in caplog.text


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_history_that_is_no_number_is_an_error(wrong):
    with pytest.raises(RFabricError, match=r"what was seen holds (nan|inf); it must be finite"):
        ahead(np.array([[1.0], [wrong]]))
    with pytest.raises(RFabricError, match="it must be finite"):
        forecast([np.array([100.0, wrong])], 1000)


def test_without_statsmodels_arima_says_what_to_install(monkeypatch, capsys):
    import sys

    monkeypatch.setitem(sys.modules, "statsmodels.tsa.arima.model", None)
    assert main(["timeline", "--policy", "orchestrrl,forecast=arima", "-q"]) == 2
    assert "pip install 'rfabric[forecast]'" in capsys.readouterr().err


@pytest.mark.parametrize("scheduler", ["orchestrrl", "sync", "async"])
def test_a_forecast_that_there_is_not_is_an_error(scheduler, capsys):
    assert main(["timeline", "--policy", f"{scheduler},forecast=oracel", "-q"]) == 2
    err = capsys.readouterr().err
    assert "no forecast 'oracel'; there are lengths, oracle, smoothed, arima" in err


# --- who goes by it -------------------------------------------------------------------------------


def test_lengths_alone_are_forecast_where_nothing_is_said():
    plain, said = made("orchestrrl"), made("orchestrrl,forecast=lengths")
    assert plain.facts == said.facts and plain.plan == said.plan
    assert not plain.trace.paces and plain.trace.windows == plain.plan.windows


def test_an_oracle_plans_by_the_lengths_that_come():
    plain, known = made("orchestrrl"), made("orchestrrl,forecast=oracle")
    assert known.plan != plain.plan and not known.trace.paces


def test_an_oracle_generates_no_longer_than_who_does_not_know():
    """On average: both plan by heuristics."""
    spent = {
        how: sum(made(f"orchestrrl,forecast={how}", seed=s).plan.seconds for s in range(4))
        for how in ("oracle", "smoothed")
    }
    assert spent["oracle"] <= 1.005 * spent["smoothed"]


@pytest.mark.parametrize("scheduler", ["orchestrrl", "sync", "one-step-off", "async"])
def test_windows_are_forecast_and_say_how_far_off_they_are(scheduler):
    one = made(f"{scheduler},forecast=smoothed", "steps=2")
    wrong = one.facts["later_than_forecast"]
    for phase in one.plan.phases:
        key = PhaseKey(phase.step, phase.kind)
        if phase.kind in ("generation", "training"):
            assert one.trace.windows[key] != phase.window
            pace = one.trace.paces[key]
            assert wrong[str(key)] == pytest.approx(1 / pace - 1, abs=1e-4)
            assert abs(wrong[str(key)]) < 0.5
        elif phase.kind not in ("weight_sync",):  # a scheduler knows what it moves
            assert one.trace.windows[key] == phase.window and key not in one.trace.paces
    assert one.facts["forecast_steps_before"] == KNOWN


def test_a_forecast_sees_no_step_that_has_not_ended():
    """Step 1 is drawn otherwise: what is expected of it stays."""
    w = read_recipe("grpo-64", (*SMALL, "steps=2"))
    one, other = (scheduled(w, seed, "sync") for seed in (0, 1))
    mixed = replace(other, steps=(one.steps[0], other.steps[1]))
    phases = {(p.kind, p.step): p for p in other.plan.phases}
    phases |= {(p.kind, p.step): p for p in one.plan.phases if p.step == 0}
    mixed = replace(other, plan=replace(other.plan, phases=tuple(phases.values())))
    earlier = earlier_steps(w, 0)
    expected = [foreseen(m, earlier, "smoothed").trace.windows for m in (one, mixed)]
    key = PhaseKey(1, "generation")
    assert expected[0][key] == expected[1][key]


def test_steps_before_the_run_are_none_of_the_run():
    w = read_recipe("grpo-64", SMALL)
    mine = responses(w, 0, 0)[1]
    earlier = [step.generated.outputs for step in earlier_steps(w, 0)]
    assert all(not np.array_equal(np.concatenate(outputs), mine) for outputs in earlier)


@pytest.mark.parametrize("topo", ["rfabric", "rfabric,delay=2s", "fat-tree,oversubscription=4"])
@pytest.mark.parametrize("how", ["oracle", "smoothed"])
def test_wrong_forecasts_lose_nothing(topo, how):
    one = made(f"one-step-off,forecast={how}", "steps=3")
    result = simulate(one.workload.needs.fabric(topo), one.trace, "own")
    assert (result.received == result.sent).all() and np.isfinite(result.finish).all()
    assert result.step_seconds >= one.plan.seconds - 1e-6

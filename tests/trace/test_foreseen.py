"""What whoever plans ahead knows of a trace: phases whose end was forecast."""

from dataclasses import replace

import numpy as np
import pytest

from rfabric.errors import RFabricError
from rfabric.fabric import rfabric
from rfabric.optics import Timing
from rfabric.simulate.world import simulate
from rfabric.trace import PhaseKey, TraceBuilder, read_trace, stages, write_trace

HEAVY = 2e11
SLOW = Timing(control=0.5)


def two_phases(**said):
    """4 s of computing, then racks 1 and 2 exchange bytes; 6 s, then racks 1 and 3."""
    out = TraceBuilder([f"h{i + 1}" for i in range(64)])
    first = out.compute(0, 4.0, phase="generation", label="generate")
    sent = out.flows(
        [0, 1, 2, 3], [4, 5, 6, 7], HEAVY, after=[first], phase="generation", label="a"
    )
    then = out.compute(0, 6.0, after=sent, phase="training", label="backward")
    body = [(np.array([0, 1]), np.array([8, 9]), np.array([1e9, 1e9]))]
    out.loop(body, 5, [0.2], [0.1], after=[then], phase="training", label="b")
    trace = out.build({PhaseKey(0, "generation"): 5.0, PhaseKey(0, "training"): 8.0})
    return trace if not said else _with(trace, said)


def _with(trace, said):
    return replace(trace, paces={PhaseKey(0, phase): pace for phase, pace in said.items()})


def test_computing_of_a_phase_is_foreseen_by_its_pace_and_others_stay():
    trace, known = two_phases(), two_phases(training=0.5)
    assert trace.foreseen is trace
    took, foreseen = trace.compute_only()[1].max(), known.foreseen.compute_only()[1].max()
    assert took == pytest.approx(4 + 6 + 5 * 0.3)
    assert foreseen == pytest.approx(4 + (6 + 5 * 0.3) / 2)
    assert known.compute_only()[1].max() == took  # what it takes is no matter of forecasts


@pytest.mark.parametrize("granularity", ["per-phase", "per-collective"])
def test_stages_are_told_leads_that_were_foreseen(granularity):
    lead = [stage.lead for stage in stages(two_phases(), granularity)]
    half = [stage.lead for stage in stages(two_phases(generation=0.5, training=2.0), granularity)]
    assert half[0] == pytest.approx(lead[0] / 2) and lead[0] == pytest.approx(4.0)
    assert half[1] == pytest.approx(2 * lead[1])


@pytest.mark.parametrize("pace", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("in_flight", ["hold", "drain", "drop"])
def test_phases_that_end_late_or_early_lose_nothing_and_cost_what_a_rewire_takes(pace, in_flight):
    fabric, timing = rfabric(pods=4, tors=4, gpus=4), Timing(control=0.5, in_flight=in_flight)
    known = simulate(fabric, two_phases(), "demand", timing=timing)
    wrong = simulate(fabric, two_phases(generation=pace, training=pace), "demand", timing=timing)
    assert (wrong.received == wrong.sent).all() and np.isfinite(wrong.finish).all()
    most = len(wrong.rewires) * timing.takes(fabric)
    assert wrong.step_seconds <= known.step_seconds + most + 1e-9


def test_a_window_that_is_forecast_too_short_for_its_bytes_is_not_believed():
    """They take what they take on the circuits as they are."""
    fabric, trace = rfabric(pods=4, tors=4, gpus=4), two_phases()
    short = replace(trace, windows=dict.fromkeys(trace.windows, 0.1))
    policy = "demand,granularity=per-phase"
    known, other = (simulate(fabric, one, policy, timing=SLOW) for one in (trace, short))
    assert known.rewires and other.step_seconds == known.step_seconds


def test_a_window_that_is_forecast_too_short_keeps_circuits_that_send_in_time():
    """The window rule, by what was foreseen: the fall-back is the circuits that are there."""
    fabric, trace = rfabric(pods=4, tors=4, gpus=4), two_phases()
    few = replace(trace, size=trace.size // 40)
    short = replace(few, windows=dict.fromkeys(few.windows, 0.1))
    policy = "demand,granularity=per-phase"
    known, missed = (simulate(fabric, one, policy, timing=SLOW) for one in (few, short))
    assert known.rewires and not missed.rewires
    assert missed.step_seconds > known.step_seconds  # the regret


def played(seconds, pace, granularity):
    """So much computing, forecast to take `pace` times as long; then 20 GB between two racks."""
    out = TraceBuilder([f"h{i + 1}" for i in range(64)])
    first = out.compute(0, seconds, phase="training", label="backward")
    out.flows([0, 1, 2, 3], [4, 5, 6, 7], 5e9, after=[first], phase="training", label="a")
    trace = replace(out.build(), paces={PhaseKey(0, "training"): pace})
    fabric = rfabric(pods=4, tors=4, gpus=4)
    return simulate(fabric, trace, f"demand,granularity={granularity}", timing=SLOW)


@pytest.mark.parametrize("granularity", ["per-phase", "per-collective"])
def test_a_phase_that_ends_sooner_than_forecast_misses_its_commit(granularity):
    """The rewire was to be hidden beside computing; bytes stand still for the rest of it."""
    known, missed = (played(0.1, pace, granularity) for pace in (1.0, 20.0))
    assert not known.rewires
    (rewire,) = missed.rewires
    assert rewire.exposed == pytest.approx(SLOW.control + 10e-3 - 0.1)
    regret = missed.step_seconds - known.step_seconds
    assert 0 < regret <= rewire.exposed


@pytest.mark.parametrize("granularity", ["per-phase", "per-collective"])
def test_a_phase_that_ends_later_than_forecast_is_not_given_what_it_had_time_for(granularity):
    """A rewire seems to come too late, so that circuits stay: the fall-back."""
    known, late = (played(4.0, pace, granularity) for pace in (1.0, 0.01))
    (rewire,) = known.rewires
    assert rewire.exposed == 0 and not late.rewires
    assert late.step_seconds > known.step_seconds


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.et"])
def test_what_was_foreseen_is_kept_in_files(name, tmp_path):
    known = two_phases(generation=0.75)
    write_trace(known, tmp_path / name)
    again = read_trace(tmp_path / name)
    assert again.paces == known.paces and again.windows == known.windows


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.et"])
def test_what_was_foreseen_in_scalars_of_numpy_is_kept_too(name, tmp_path):
    known = two_phases(generation=np.float64(0.75))
    known = replace(known, windows={key: np.float64(s) for key, s in known.windows.items()})
    write_trace(known, tmp_path / name)
    again = read_trace(tmp_path / name)
    assert again.paces == known.paces and again.windows == known.windows


@pytest.mark.parametrize("wrong", [float("nan"), -1.0, float("inf"), 1e9])
def test_a_pace_that_is_none_is_an_error(wrong):
    with pytest.raises(RFabricError, match=r"pace training/0 is .*; it must be from 0 to"):
        two_phases(training=wrong)


@pytest.mark.parametrize("wrong", [float("nan"), -1.0])
def test_a_window_that_is_no_time_is_an_error(wrong):
    """It was taken for a phase without end."""
    out = TraceBuilder(["h1", "h2"])
    out.compute(0, 1.0, phase="training")
    with pytest.raises(RFabricError, match=r"window training/0 is .*; it must be 0 or more"):
        out.build({PhaseKey(0, "training"): wrong})


def test_a_pace_in_a_file_that_is_no_number_is_said(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("# rfabric-trace 1\n# pace training/0: fast\nsrc,dst,size_bytes\nh1,h2,1\n")
    with pytest.raises(RFabricError, match="pace training/0 .*fast.* is no number"):
        read_trace(path)

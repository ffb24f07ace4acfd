"""Traces with many rows, stages or instants: nothing is done anew for all rows at each of them."""

import re
from unittest import mock

import numpy as np
import pytest

from rfabric.fabric import parse_fabric
from rfabric.optics.circuits import Circuits
from rfabric.routing.schemes import ECMP
from rfabric.simulate import transport
from rfabric.simulate.flows import Engine
from rfabric.simulate.transport import MOST_NOTES
from rfabric.simulate.world import simulate
from rfabric.study.forecast import forecast
from rfabric.trace import Trace, TraceBuilder, stages

FABRIC = parse_fabric("fat-tree")
OPTICAL = parse_fabric("rfabric")  # where a phase that begins is decided upon
ROWS = 2000


def one_by_one(size=1e6, phases=1):
    """ROWS flows that begin a millisecond apart."""
    builder = TraceBuilder(FABRIC.hosts)
    for row in range(ROWS):
        phase = f"phase{row % phases}"
        builder.flows([row % 16], [(row + 5) % 16], size, phase=phase, start=row * 1e-3)
    return builder.build()


@pytest.mark.parametrize("phases", [1, 7])
def test_the_engine_stops_where_a_phase_begins_and_not_at_each_row(phases):
    with mock.patch.object(Engine, "run", autospec=True, side_effect=Engine.run) as run:
        result = simulate(OPTICAL, one_by_one(phases=phases), "static")
    assert phases <= run.call_count <= phases + 2
    alone = 1e6 * 8 / 4e11 + 1e-5
    assert (result.finish - np.arange(ROWS) * 1e-3 <= alone).all()


def test_each_phase_begins_with_the_earliest_of_its_rows():
    builder, begun = TraceBuilder(FABRIC.hosts), []
    for name, start in (("late", 3.0), ("soon", 1.0), ("late", 2.0), ("soon", 5.0)):
        builder.flows([0], [5], 1e6, phase=name, start=start)
    told = []
    simulate(OPTICAL, builder.build(), progress=told.append)
    begun = [news["phase"] for news in told]
    assert begun == ["soon/0", "late/0", "late/0"]  # the end is told too


def test_where_no_circuit_turns_all_phases_are_played_at_once_and_the_latest_is_told(monkeypatch):
    monkeypatch.setattr("rfabric.simulate.world.BREATH_S", 0.0)
    run, runs, told = Engine.run, [], []

    def breathing(engine, until):
        engine._progress(0.0, ROWS // 4, ROWS)
        runs.append(run(engine, until))
        engine._progress(engine.now, ROWS, ROWS)
        return runs[-1]

    monkeypatch.setattr(Engine, "run", breathing)
    simulate(FABRIC, one_by_one(phases=3), progress=told.append)
    last, total = f"phase{(ROWS - 1) % 3}/0", told[0]["total_bytes"]
    assert len(runs) == 1 and [news["phase"] for news in told] == ["", last, last]
    assert [news["done_bytes"] for news in told] == [total // 4, total, total]


def test_a_run_of_an_instant_tells_of_its_end():
    told = []
    result = simulate(FABRIC, one_by_one(phases=1), progress=told.append)
    assert told[-1]["done_bytes"] == told[-1]["total_bytes"] > 0
    assert told[-1]["clock_s"] == result.finish.max()


def test_a_forecast_asks_once_who_waits_for_whom():
    builder, before = TraceBuilder(FABRIC.hosts), []
    for row in range(50):
        before = builder.flows([row % 16], [(row + 5) % 16], 1e6, after=before)
    trace, asked = builder.build(), []
    followers = Trace.followers.fget

    def counted(of):
        asked.append(of)
        return followers(of)

    with mock.patch.object(Trace, "followers", property(counted)):
        said = forecast(FABRIC, trace, ECMP, stages(trace, "per-phase"), Circuits())
    assert np.isfinite(said.finish).all() and (np.diff(said.finish) > 0).all()
    assert len(asked) <= 2


def test_of_many_kinds_of_phases_those_have_a_note_that_would_change_most(monkeypatch):
    builder, kinds = TraceBuilder(FABRIC.hosts), MOST_NOTES + 5
    for kind in range(kinds):
        builder.flows([0], [12], 1e4 * (kind + 1), phase=f"kind{kind}", start=float(kind))
    trace = builder.build()
    *notes, rest = simulate(FABRIC, trace).notes
    assert rest.startswith("fat-tree: 5 more kinds of phases")
    monkeypatch.setattr(transport, "MOST_NOTES", kinds)
    every = simulate(FABRIC, trace).notes
    assert [kind_of(note) for note in every] == [f"kind{i}/0:" for i in range(kinds)]
    assert [longer(note) for note in notes] == sorted(map(longer, every), reverse=True)[:MOST_NOTES]


def kind_of(note):
    return note.split(" ")[1]


def longer(note):
    """By how many percent a phase would be longer with TCP."""
    return float(re.findall(r"\(([\d.]+)%\)", note)[-1])

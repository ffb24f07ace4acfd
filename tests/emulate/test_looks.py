"""Looks at a replay on a wire of our own: each row, rewire and epoch told once, loads of the
seconds in which the clock ran.
"""

import base64
import time

import numpy as np
import pytest
from test_replay import FakeControl, FakeWire, play, two_phases

from rfabric.emulate import looks as module
from rfabric.emulate.clock import Clock
from rfabric.emulate.looks import LEVELS, Looks
from rfabric.fabric import fat_tree, rfabric
from rfabric.report.result import Pace

OPINION = Pace(False, 0.5, 0.1, ("slow",), "wait")


def looked_at(fabric, optical, half=0.5):
    """(what a replay measured, its looks); cables carry `half` of their rate all the time."""
    wire, told = FakeWire(0.1), []
    looks = Looks(np.full(2 * len(fabric.links), 1e6), lambda message: told.append(message["look"]))
    began, looked = time.monotonic(), [0.0]

    def watch(flying, ways):
        now = time.monotonic()
        if now - looked[0] > 0.01:
            looked[0] = now
            frames = np.full(2 * len(fabric.links), half * 1e6 * (now - began))
            looks.look(now, frames, lambda: OPINION)

    control = FakeControl(fabric, None, wire) if optical else None
    run = play(fabric, two_phases(fabric), wire, control, watch=watch)
    looks.follow(run)
    done = run.run()
    looks.end()
    return done, told


@pytest.mark.parametrize(("fabric", "optical"), [(fat_tree(), False), (rfabric(), True)])
@pytest.mark.parametrize("most", [1, 1000])
def test_all_that_a_replay_measures_is_told_once(fabric, optical, most, monkeypatch):
    monkeypatch.setattr(module, "MOST_ROWS", most)
    done, told = looked_at(fabric, optical)
    rows = [row for look in told for row in look["rows"]]
    assert max(len(look["rows"]) for look in told) <= most
    ends = {row: (begin, end) for row, begin, end in rows if end is not None}
    assert sorted(ends) == list(range(len(done.start)))
    assert len([r for r in rows if r[2] is not None]) == len(ends)
    for row, begin, end in rows:
        assert begin == done.start[row] and end in (None, done.finish[row])
    epochs = [(time_, names) for look in told for time_, names in look["circuits"]]
    assert epochs == [(time_, c.to_json()) for time_, c in done.epochs]
    rewires = [r for look in told for r in look["rewires"]]
    assert rewires == [r.to_json() | {"lost_bytes": None} for r in done.rewires]
    assert bool(rewires) == optical
    assert any(look["under_way"] for look in told) == optical


def test_flows_are_told_while_they_fly():
    _, told = looked_at(fat_tree(), False)
    flying = [look for look in told if any(end is None for *_, end in look["rows"])]
    assert flying and flying[0] is not told[-1]


def test_loads_cover_the_seconds_in_which_the_clock_ran():
    """It skips 30 s of computing: in those nothing is loaded, and none of it thins the rest."""
    done, told = looked_at(fat_tree(), False)
    loads = [look["load"] for look in told if "load" in look]
    spans = [span for load in loads for span in load["spans"]]
    assert all(begin < end for begin, end in spans)
    assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))
    assert not any(begin < 15 < end for begin, end in spans)
    flies = done.finish.max() - done.start[1:].min()
    assert sum(end - begin for begin, end in spans) == pytest.approx(flies, rel=0.3)
    for load in loads:
        levels = np.frombuffer(base64.b64decode(load["levels"]), np.uint8)
        assert len(levels) == 2 * len(fat_tree().links)
        assert (np.abs(levels - LEVELS / 2.0) <= 1).all()


def test_a_cable_is_never_more_than_full_nor_its_acknowledgements_a_load():
    for half, level in ((3.0, LEVELS), (1e-3, 0)):
        _, told = looked_at(fat_tree(), False, half)
        for load in (look["load"] for look in told if "load" in look):
            assert set(base64.b64decode(load["levels"])) == {level}


def test_the_guard_is_asked_once_a_second_at_most(monkeypatch):
    _, told = looked_at(fat_tree(), False)
    assert [look["guard"] for look in told if "guard" in look] == [OPINION.to_json()]
    monkeypatch.setattr(module, "OPINION_S", -1.0)
    _, told = looked_at(fat_tree(), False)
    assert sum("guard" in look for look in told) > 1


def test_a_clock_says_what_it_skipped():
    clock = Clock(2.0)
    clock.jump(5.0)
    clock.jump(1.0)  # past already
    ((left, reached),) = clock.jumps
    assert 0 <= left < 1 and reached == 5.0

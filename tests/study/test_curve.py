"""The curve of whole runs: what each stage of one costs, how it grows, and how it is told."""

import gc
import json
import time

import numpy as np
import pytest

from rfabric.cli.entry import main
from rfabric.errors import RFabricError
from rfabric.study import curve
from rfabric.study.curve import CurvePoint, exponents, sizes_of, tables
from rfabric.study.pipeline_costs import STAGES, job
from rfabric.study.stopwatch import Cost, Stopwatch


def point(gpus, cpu_s, peak_bytes=1000):
    stages = {name: Cost(cpu_s(gpus), peak_bytes) for name in STAGES}
    return CurvePoint(gpus, 10, 1, 2000, 3000, stages)


def burn(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


# --- the stopwatch --------------------------------------------------------------------------------


def test_each_second_counts_for_the_innermost_part():
    watch = Stopwatch()
    with watch.part("outer"):
        burn(0.05)
        with watch.part("inner"):
            burn(0.15)
        burn(0.05)
    burn(0.1)  # nobody's
    assert watch.costs["outer"].cpu_s == pytest.approx(0.1, rel=0.3)
    assert watch.costs["inner"].cpu_s == pytest.approx(0.15, rel=0.3)


def test_memory_is_the_most_in_a_turn_and_what_an_inner_part_keeps_is_its_own():
    gc.collect()  # what other tests have left would make room in the middle of it
    watch, kept = Stopwatch(), []
    with watch.part("outer"):
        with watch.part("inner"):
            kept.append(np.ones(8_000_000))
        with watch.part("inner"):
            np.ones(1_000_000)
    assert watch.costs["inner"].peak_bytes == pytest.approx(64e6, rel=0.1)
    assert watch.costs["outer"].peak_bytes < 8e6
    assert watch.highest > 64e6


class Called:
    def work(self):
        burn(0.05)
        return 7


def test_calls_count_while_it_lasts_and_are_what_they_were_afterwards():
    watch, usual = Stopwatch(), Called.work
    with watch.part("outer"), watch.within({"inner": [(Called, "work")]}):
        assert Called().work() == 7
    assert Called.work is usual
    Called().work()
    assert watch.costs["inner"].cpu_s == pytest.approx(0.05, rel=0.3)


def test_where_memory_is_not_recorded_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("rfabric.study.stopwatch.SET_BACK", tmp_path / "none" / "clear_refs")
    with pytest.raises(RFabricError, match="clear_refs cannot be written: No such file"):
        Stopwatch()


# --- sizes and exponents --------------------------------------------------------------------------


def test_large_sizes_are_run_on_request_alone():
    assert sizes_of(["curve"])[-1] == 65536
    assert sizes_of(["curve"], up_to=262144)[-1] == 262144
    assert sizes_of(["curve-262144", "curve-64"], up_to=64) == [64, 262144]
    with pytest.raises(RFabricError, match="no benchmark 'curve-65'.*of the curve there are"):
        sizes_of(["curve-65"])
    with pytest.raises(RFabricError, match="--up-to 63: the curve begins at 64 GPUs"):
        sizes_of(["curve"], up_to=63)


def test_an_exponent_is_of_the_largest_sizes():
    points = [point(gpus, lambda n: max(1e-6 * n**1.5, 0.5)) for gpus in curve.SIZES]
    assert exponents(points, "cpu_s")["page"] == pytest.approx(1.5)
    assert exponents(points, "cpu_s")["all"] == pytest.approx(1.5)
    assert exponents(points, "peak_bytes")["page"] == pytest.approx(0)
    assert exponents(points[:2], "cpu_s") == {}


def test_tables_have_a_line_a_stage_and_a_column_a_size():
    seconds, memory, facts = tables([point(gpus, lambda n: n / 1e3) for gpus in curve.SIZES[:4]])
    assert [row.name for row in seconds.rows] == [*STAGES, "all"]
    assert seconds.columns[1:] == ("64 GPUs", "256 GPUs", "1,024 GPUs", "4,096 GPUs", "exponent")
    assert seconds.rows[-2].cells == ("0.064 s", "0.26 s", "1.0 s", "4.1 s", "1.00")
    assert memory.rows[-1].cells[0] == "2 kB" and facts.rows[-1].cells[0] == "3 kB"
    assert tables([]) == []


def test_the_job_is_the_same_at_every_size():
    small, large = job(64), job(4096)
    assert small.model.parameters == large.model.parameters
    for w in (small, large):
        assert w.generation.batch * 8 == w.gpus == 2 * w.cluster.training_gpus


# --- the command ----------------------------------------------------------------------------------


def test_a_run_is_measured_stage_by_stage(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "--case", "curve-64", "--json", "-q"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["curve"]
    assert set(row["stages"]) == set(STAGES) and row["gpus"] == 64
    assert all(cost["cpu_s"] > 0 for cost in row["stages"].values())
    assert row["cpu_s"] == pytest.approx(sum(c["cpu_s"] for c in row["stages"].values()))
    lines = (tmp_path / "bench/curve.csv").read_text().splitlines()
    assert len(lines) == 1 + len(STAGES) and lines[0] == "gpus,rows,stage,cpu_s,peak_bytes"
    assert "## Seconds of each stage" in (tmp_path / "bench/engine.md").read_text()


def test_a_run_that_breaks_says_why(monkeypatch):
    monkeypatch.setattr(curve, "SIZES", (3,))
    monkeypatch.setattr(curve, "CASES", ("curve-3",))
    with pytest.raises(RFabricError, match="benchmark curve-3 ended with code 1: "):
        curve.measure([3])

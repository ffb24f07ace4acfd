"""What a stranger's scheduler may return: forecasts that are no times, and GPUs that are not there,
are errors that name the file, in every verb that plays them.
"""

import math
from dataclasses import replace
from functools import cache

import pytest

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.rl import read_recipe
from rfabric.rl.plan import Plan
from rfabric.schedulers.base import as_it_stands
from rfabric.schedulers.returned import check_made
from rfabric.trace import PhaseKey


@cache
def made():
    return as_it_stands(read_recipe("grpo-64", ["generation.batch=16"]), 0)


def planned(**changes):
    first, *others = made().plan.phases
    return replace(made(), plan=Plan((replace(first, **changes), *others)))


def drawn(**changes):
    first, *others = made().spans
    return replace(made(), spans=(replace(first, **changes), *others))


def test_what_the_job_s_own_scheduler_makes_can_be():
    check_made(made(), "mine.py:mine")
    check_made(replace(made(), spans=()), "mine.py:mine")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: planned(seconds=math.nan), "generation of step 0, which has seconds nan s"),
        (lambda: planned(start=-1.0), "generation of step 0, which has start -1.0 s"),
        (lambda: planned(comm=math.inf), "generation of step 0, which has comm inf s"),
        (lambda: planned(gpus=(64,)), "is on GPU 64; the job has GPUs 0 to 63"),
        (lambda: replace(made(), plan=Plan(())), "whose plan has no phases; `of_steps` makes"),
        (lambda: drawn(seconds=math.nan), "span generation of step 0 has seconds nan s"),
        (lambda: drawn(gpus=(-1,)), "span generation of step 0 is on GPU -1"),
        (lambda: planned(seconds="1"), "has seconds '1' s; it must be 0 or more"),
        (lambda: planned(gpus=None), "is on GPUs None; write their numbers, a tuple"),
        (lambda: planned(gpus=("a",)), "is on GPUs ('a',); write their numbers, a tuple"),
        (lambda: planned(kind=None), "None of step 0, which has kind None; it must be text"),
        (lambda: planned(step=1), "generation of step 1, which is of no step of the job, 0 to 0"),
        (lambda: replace(made(), plan=Plan(5)), "whose plan.phases are no tuple of Phases"),
        (lambda: replace(made(), plan=Plan((5,))), "whose plan.phases are no tuple of Phases"),
        (lambda: drawn(start="a"), "span generation of step 0 has start 'a' s"),
        (lambda: drawn(what=None), "span None of step 0 has what None; it must be text"),
        (lambda: drawn(gpus=()), "span generation of step 0 is on no GPU"),
        (lambda: drawn(pool=["training"]), "has pool ['training']; it must be text"),
        (lambda: drawn(pool="mine"), "is of pool 'mine'; the job has training, generation"),
        (lambda: drawn(step="x"), "span generation of step x is of no step of the job, 0 to 0"),
        (lambda: replace(made(), facts={1: 2}), "whose facts have the key 1; keys are text"),
    ],
)
def test_a_plan_that_cannot_be_is_an_error(wrong, text):
    with pytest.raises(RFabricError) as caught:
        check_made(wrong(), "mine.py:mine")
    said = str(caught.value)
    assert said.startswith("mine.py: mine returned a Scheduled whose ")
    assert text in said and said.endswith("see traffic/longest_first.py")


def test_fewer_steps_than_the_job_has_are_an_error():
    text = "a Scheduled of 0 steps, whose workload has 1; draw each of them with `step_of`"
    with pytest.raises(RFabricError, match=text):
        check_made(replace(made(), steps=()), "mine.py:mine")


@pytest.mark.parametrize("windows", [{"generation/0": 1.0}, {PhaseKey(0, "generation"): None}])
def test_windows_of_no_phase_and_no_time_are_an_error(windows):
    own = as_it_stands(made().workload, 0)
    own.trace.windows.update(windows)
    with pytest.raises(RFabricError, match="whose trace foresees .*see traffic/longest_first.py"):
        check_made(own, "mine.py")


@pytest.mark.parametrize("window", [0.0, 0, 0.5, math.inf])
def test_a_window_may_be_of_no_time_or_without_end(window):
    own = as_it_stands(made().workload, 0)
    for key in own.trace.windows:
        own.trace.windows[key] = window
    check_made(own, "mine.py")


def test_windows_that_became_no_numbers_are_an_error():
    own = as_it_stands(made().workload, 0)
    check_made(own, "mine.py")
    for key in own.trace.windows:
        own.trace.windows[key] = math.nan
    with pytest.raises(RFabricError, match="foresees a window of nan s for .*; it must be 0 or"):
        check_made(own, "mine.py")


NO_PLAN = """
from dataclasses import replace
from rfabric.rl.plan import Plan
from rfabric.schedulers.base import as_it_stands
schedulers = {"mine": lambda w, seed, settings: replace(as_it_stands(w, seed), plan=Plan(()))}
"""


@pytest.mark.parametrize("verb", [["simulate", "--topo", "rfabric"], ["timeline"]])
def test_a_plan_without_phases_ends_no_verb_in_a_traceback(verb, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(NO_PLAN)
    words = [*verb, "--traffic", "grpo-64", "--policy", "mine.py:mine", "-q"]
    assert main(words) == 2
    said = capsys.readouterr().err.strip()
    assert "mine.py, line 5: mine returned a Scheduled whose plan has no phases" in said
    assert "\n" not in said

"""The sweep over reconfiguration delays: break-even points by closed form, the verb from end to
end.
"""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.report.crossover import Crossover, DelayCurve, figure
from rfabric.study.crossover import DELAYS, Sweep, crossing, sweep

TRACE = (
    "src,dst,size_bytes,phase\n"
    "h1,h5,4000000000,training\n"
    "h2,h8,3000000000,training\n"
    "h5,h1,2000000000,weight_sync\n"
)


def test_the_default_sweep_goes_from_ten_microseconds_to_a_second():
    assert math.isclose(DELAYS[0], 1e-5) and DELAYS[-1] == 1.0 and len(DELAYS) == 11


@pytest.mark.parametrize(
    ("steps", "level", "says"),
    [
        ((1.0, 2.0, 3.0), 4.0, (None, "never slower")),
        ((1.0, 2.0, 3.0), 0.5, (None, "never faster")),
        ((3.0, 2.0, 1.0), 2.5, (None, "faster at the longest delay")),
    ],
)
def test_lines_that_do_not_meet(steps, level, says):
    assert crossing((1e-3, 1e-2, 1e-1), steps, level) == says


@given(st.floats(-4, -1), st.floats(0.1, 9))
def test_a_line_straight_over_the_logarithm_meets_where_algebra_says(where, slope):
    delays = tuple(10.0**e for e in range(-5, 1))
    steps = tuple(100 + slope * (math.log10(d) - where) for d in delays)
    delay, what = crossing(delays, steps, 100.0)
    assert what == "breaks even" and delay == pytest.approx(10.0**where, rel=1e-6)


def test_a_dip_counts_from_the_longest_delay_down():
    delay, _ = crossing((1e-3, 1e-2, 1e-1, 1.0), (5.0, 9.0, 5.0, 9.0), 7.0)
    assert 1e-1 < delay < 1.0


def sweep_of(**changes):
    given = {
        "optical": ("rfabric",),
        "flat": (),
        "granularities": ("per-phase",),
        "delays": DELAYS,
        "traffic": "grpo-64",
    }
    return Sweep(**given | changes)


def test_fabrics_that_turn_by_themselves_have_one_line():
    assert [p for _, p in sweep_of(optical=("rotor", "rfabric")).lines()] == [
        "rotor",
        "demand,granularity=per-phase",
    ]


def test_a_compute_scheduler_schedules_all_that_is_compared():
    asked = sweep_of(optical=("rotor", "rfabric"), policy="rollpacker,planner=off+phase")
    assert [p for _, p in asked.lines()] == [
        "rollpacker,planner=off+rotor",
        "rollpacker,planner=off+phase,granularity=per-phase",
    ]
    assert asked.scheduled("demand") == "rollpacker,planner=off+demand"
    alone = sweep_of(policy="rollpacker")
    assert alone.lines() == [("rfabric", "rollpacker+own,granularity=per-phase")]


def test_a_packet_fabric_plays_the_job_as_its_scheduler_makes_it(tmp_path):
    """Of a scheduler that shortens generation, the packet fabric has the short generation too."""
    asked = sweep_of(
        flat=("fat-tree",),
        delays=(1e-3, 1e-2),
        policy="rollpacker+demand",
        settings=("generation.batch=64",),
    )
    found = sweep(asked, tmp_path, jobs=1)
    assert found.levels[0][1] == pytest.approx(found.lines[0].step_s[0], rel=0.05)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delays": (1.0,)}, "two delays above 0; 1 s were given"),
        ({"delays": (0.0, 1.0)}, "two delays above 0"),
        ({"granularities": ("hourly",)}, "no granularity 'hourly'; there are one-shot"),
        ({"granularities": ("per-phases",)}, "no granularity 'per-phases', did you mean per-phase"),
    ],
)
def test_bad_sweeps(changes, message):
    with pytest.raises(RFabricError, match=message):
        sweep_of(**changes)


def test_the_verb(tmp_path, capsys):
    (tmp_path / "t.csv").write_text(TRACE)
    words = [
        "crossover",
        "--topo",
        "rfabric,pods=2,tors=2,gpus=2",
        "--against",
        "fat-tree,pods=2,tors=2,gpus=2",
    ]
    words += [
        "--traffic",
        str(tmp_path / "t.csv"),
        "--delays",
        "1ms,10ms,1s",
        "--granularity",
        "per-phase",
    ]
    words += ["--granularity", "one-shot", "--out", str(tmp_path / "runs"), "--jobs", "1", "-q"]
    assert main([*words, "--json", "--png", str(tmp_path / "c.png")]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [line["label"].split()[-1] for line in printed["lines"]] == ["per-phase", "one-shot"]
    assert printed["lines"][0]["delays_s"] == [1e-3, 1e-2, 1.0]
    once = printed["lines"][1]
    # circuits that never change feel no delay
    assert len(set(once["step_s"])) == 1 and not any(once["rewires"])
    slow = printed["lines"][0]["step_s"]
    assert slow == sorted(slow)
    assert {b["against"] for b in printed["break_evens"]} == {"fat-tree,pods=2,tors=2,gpus=2"}
    assert main([*words]) == 0  # steps of some 80 ms
    table = capsys.readouterr().out
    assert "step time (ms) by reconfiguration delay" in table and f"{1e3 * slow[0]:.2f}" in table
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    folder, _ = (tmp_path / "runs").iterdir()
    assert {path.name for path in folder.iterdir()} == {"crossover.json", "crossover.png"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--delays", "1ms"], "two delays"),
        (["--delays", "soon,later"], "--delays"),
        (["--topo", "rfabrik"], "no fabric named"),
        (
            ["--topo", "rfabric", "--topo", "fat-tree"],
            "fat-tree has no optical switch whose delay could be swept",
        ),
        (
            ["--topo", "rfabric,delay=5ms"],
            "rfabric,delay=5ms sets the delay, which crossover varies",
        ),
        (["--policy", "demnad"], "no policy named 'demnad', did you mean demand?"),
        (["--delays", "1ms,0.001s"], "two delays above 0; 1 ms"),
        (["--against", "fat-tre"], "no fabric named 'fat-tre', did you mean fat-tree?"),
    ],
)
def test_the_verb_refuses(tmp_path, capsys, words, message):
    assert main(["crossover", *words, "--out", str(tmp_path / "runs"), "-q"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_curves_that_lie_upon_each_other_are_all_seen():
    """Each but the last is wider than the one above it; those that keep apart are narrow."""
    steps = {"one-shot": 9.0, "per-phase": 5.0, "per-collective": 5.0, "intra-collective": 5.001}
    lines = [
        DelayCurve("rfabric", f"own,granularity={name}", (1e-3, 1e-2), (step, step), (0, 0))
        for name, step in steps.items()
    ]
    (axes,) = figure(Crossover("job", 0, tuple(lines), (("fat-tree", 4.0),), ())).axes
    widths = {line.get_label(): line.get_linewidth() for line in axes.lines}
    apart, lowest, middle, top = (widths[name] for name in steps)
    assert lowest > middle > top == apart

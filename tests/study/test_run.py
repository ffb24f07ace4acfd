"""One run: what is checked before, one scale for all that is emulated, and each held against its
simulation.
"""

from dataclasses import replace

import pytest

from rfabric.emulate import world as emulated_world
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.report.result import Scale
from rfabric.schedulers.traffic import read_traffic
from rfabric.simulate.world import simulate
from rfabric.study.run import Case, RunSettings, cases_of, chosen_scale, play, simulated
from rfabric.trace import TraceBuilder, Traffic, point_to_point

PACKET, OPTICAL = "fat-tree,pods=2,tors=2", "rfabric,pods=2,tors=2,planes=1"


@pytest.fixture(scope="module")
def fabrics():
    return [parse_fabric(PACKET), parse_fabric(OPTICAL)]


@pytest.fixture(scope="module")
def traffic():
    builder = TraceBuilder([f"h{i + 1}" for i in range(16)])
    edges = point_to_point([(i, 8 + i) for i in range(8)], 4e9, 1)
    builder.flows(edges.src, edges.dst, edges.size, phase="training", label="gradients")
    return Traffic(builder.build(), "mine", ())


@pytest.fixture
def packets(monkeypatch):
    """The emulator's place taken by the simulator; the list of what it was asked for."""
    asked = []

    def emulate(
        fabric, trace, policy, *, scale, out, progress, captures, looks, machines, known, **about
    ):
        asked.append((fabric.name, policy, scale, out))
        result = simulate(fabric, trace, policy, repetitions="whole", **about)
        return replace(result, engine="emulate", scale=scale)

    monkeypatch.setattr(emulated_world, "emulate", emulate)
    return asked


def calibrated(monkeypatch, packet_hops):
    monkeypatch.setattr(emulated_world, "calibrate", lambda **_: packet_hops)


def test_a_fabric_without_ocs_is_run_once(fabrics):
    cases = cases_of(fabrics, ["static", "demand"])
    assert [(case.fabric.name, case.policy) for case in cases] == [
        ("fat-tree", "static"), ("rfabric", "static"), ("rfabric", "demand"),
    ]  # fmt: skip


def test_all_are_emulated_at_one_scale_and_held_against_their_simulations(
    fabrics, traffic, packets
):
    scale, told = Scale(1e-3, 10, 0.5), []
    settings = RunSettings("emulate", seed=4, out="here").at(scale)
    runs = play(
        cases_of(fabrics, ["demand"]), traffic, settings, lambda name, news: told.append(name)
    )
    assert packets == [("fat-tree", "own", scale, "here"), ("rfabric", "demand", scale, "here")]
    assert [run.fidelity["worst_error"] for run in runs] == [0, 0]
    assert {run.result.seed for run in runs} == {4} and {run.result.traffic for run in runs} == {
        "mine"
    }
    assert {f"simulate {PACKET}", f"simulate {OPTICAL}"} <= set(told)


@pytest.mark.parametrize("policy", ["rotor", "demand,granularity=intra-collective"])
def test_what_cannot_be_emulated_is_refused_before_anything_runs(fabrics, traffic, packets, policy):
    with pytest.raises(RFabricError, match="an emulation changes"):
        play(
            cases_of(fabrics, [policy]),
            traffic,
            RunSettings("emulate", bandwidth=1e-3, dilation=10),
        )
    assert not packets


def test_what_is_left_open_of_a_scale_keeps_the_shaped_rates(fabrics, traffic, monkeypatch):
    calibrated(monkeypatch, 70e3)
    expected = [simulated(case, traffic, RunSettings()) for case in cases_of(fabrics, ["demand"])]
    free = chosen_scale(expected, RunSettings("emulate"))
    slower = chosen_scale(expected, RunSettings("emulate", dilation=2 * free.dilation))
    assert slower.dilation == 2 * free.dilation
    assert slower.bandwidth / slower.dilation == pytest.approx(free.bandwidth / free.dilation)
    smaller = chosen_scale(expected, RunSettings("emulate", bandwidth=free.bandwidth / 2))
    assert (smaller.bandwidth, smaller.dilation) == (free.bandwidth / 2, free.dilation)


def test_a_scale_that_is_known_calibrates_nothing(fabrics, traffic, monkeypatch):
    monkeypatch.setattr(emulated_world, "calibrate", lambda **_: pytest.fail("calibrated"))
    expected = [simulated(Case(fabrics[0], "own"), traffic, RunSettings())]
    assert chosen_scale(expected, RunSettings("emulate").at(Scale(1e-3, 8, 0.3))) == Scale(
        1e-3, 8, 0.3
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["pipeline=one-step-off"], True),
        (["pipeline=one-step-off", "steps=2"], False),
        (["pipeline=sync"], False),
    ],
)
def test_one_step_of_a_pipeline_is_said_to_say_nothing_of_its_overlap(settings, said):
    few = ["generation.batch=16", "generation.group_size=4", "training.mini_batches=1"]
    traffic = read_traffic("grpo-64", [*few, *settings], 0)
    fabric = traffic.needs.fabric("ideal")
    (run,) = play([Case(fabric, "own")], traffic, RunSettings())
    assert any("runs from end to end" in note for note in run.result.notes) == said

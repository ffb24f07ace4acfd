"""Loops as the simulator plays them: closed forms, folded against all, and the bound of what
folding may be off.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.cli import main
from rfabric.cli.arguments import REPETITIONS
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.report.folder import read_folder, write_folder
from rfabric.report.result import phase_floors
from rfabric.report.summary import Run, summary_of
from rfabric.simulate.world import REPETITIONS as KNOWN
from rfabric.simulate.world import simulate
from rfabric.study.cell_folders import Hands, run
from rfabric.study.grid import Grid, begin, entries_of
from rfabric.study.planning import stage_circuits
from rfabric.study.run import Case, RunSettings
from rfabric.trace import Flows, TraceBuilder, Traffic, all_to_all, read_trace, write_trace
from rfabric.units import show_time, transfer_seconds

RATE = 4e11
PACKET = parse_fabric("leaf-spine", 8)
IDEAL = parse_fabric("ideal", 8)  # one way a pair: routes do not depend on what else is sent
LEFT_ALONE = parse_fabric("topoopt,servers=4,gpus=2,degree=2")  # its circuits stay under `static`
HOSTS = [f"h{i + 1}" for i in range(8)]


def looped(turns, repeat, between, beside=(), rest=()):
    """One loop in training; `rest`: flows that begin beside it."""
    b = TraceBuilder(HOSTS)
    b.loop(turns, repeat, between, beside, phase="training", label="experts")
    for flows in rest:
        b.flows(*flows, phase="training", label="other")
    return b.build()


def exposed(result):
    return sum(phase.exposed for phase in result.phases)


def both(fabric, trace, routing="placed"):
    return [
        simulate(fabric, trace, "static", repetitions=way, routing=routing) for way in REPETITIONS
    ]


@pytest.mark.parametrize("fabric", [PACKET, LEFT_ALONE], ids=["packets", "circuits"])
@pytest.mark.parametrize(
    ("between", "beside"), [(0.25, 0.0), (0.0, 0.5), (0.0, 0.001), (0.125, 0.5), (0.0, 0.0)]
)
def test_n_repetitions_on_an_idle_path_take_the_closed_form(fabric, between, beside):
    size, n = 5e9, 12
    alone = simulate(fabric, looped([Flows([0], [7], [size])], 1, (0.0,)), "static").step_seconds
    for result in both(fabric, looped([Flows([0], [7], [size])], n, (between,), (beside,))):
        assert result.step_seconds == pytest.approx(n * (between + max(beside, alone)), rel=1e-9)
    assert simulate(
        PACKET, looped([Flows([0], [7], [size])], 1, (0.0,))
    ).step_seconds == pytest.approx(transfer_seconds(size, RATE), rel=1e-4)


def test_turns_go_one_after_the_other():
    turns = [
        all_to_all(range(8), 8e9, 2),
        Flows([0], [7], [5e9]),
        Flows([0, 1], [7, 7], [5e9, 5e9]),
    ]
    alone = [simulate(IDEAL, looped([turn], 1, (0.0,))).step_seconds for turn in turns]
    for result in both(IDEAL, looped(turns, 5, (0.1, 0.0, 0.2), (0.0, 1.0, 0.0))):
        took = 0.1 + alone[0] + max(alone[1], 1.0) + 0.2 + alone[2]
        assert result.step_seconds == pytest.approx(5 * took, rel=1e-9)
        assert exposed(result) == pytest.approx(
            5 * (alone[0] + max(alone[1] - 1.0, 0) + alone[2]), rel=1e-9
        )


def test_a_loop_of_one_repetition_is_a_plain_trace():
    turn, other = all_to_all(range(8), 8e9, 2), Flows([0, 1], [6, 7], [3e9, 4e9])
    b = TraceBuilder(HOSTS)
    work = b.compute(0, 0.25, phase="training")
    b.flows(*turn, after=[work], phase="training")
    b.flows(*other, phase="training")
    plain = simulate(IDEAL, b.build())
    for result in both(IDEAL, looped([turn], 1, (0.25,), rest=[other])):
        assert result.step_seconds == plain.step_seconds and exposed(result) == exposed(plain)
        assert result.link_bytes == pytest.approx(plain.link_bytes)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_alone_folded_is_exactly_all_and_twice_the_bytes_take_twice_as_long(data):
    pair = st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda ends: ends[0] != ends[1])
    turn = st.lists(st.tuples(pair, st.integers(1, 9)), min_size=1, max_size=6)
    turns = data.draw(st.lists(turn, min_size=1, max_size=3))
    seconds = st.lists(st.sampled_from([0.0, 0.01, 0.07]), min_size=len(turns), max_size=len(turns))
    between, beside, repeat = data.draw(seconds), data.draw(seconds), data.draw(st.integers(1, 9))
    fabric = replace(PACKET, links=tuple(replace(link, delay=0.0) for link in PACKET.links))

    def of(times):
        sent = [
            Flows([p[0] for p, _ in t], [p[1] for p, _ in t], [s * times * 5e8 for _, s in t])
            for t in turns
        ]
        return looped(sent, repeat, [times * s for s in between], [times * s for s in beside])

    folded, every = both(fabric, of(1))
    assert folded.step_seconds == pytest.approx(every.step_seconds, rel=1e-9)
    assert folded.folding.off == {} and every.folding is None
    assert folded.link_bytes == pytest.approx(every.link_bytes)
    assert both(fabric, of(2))[0].step_seconds == pytest.approx(2 * folded.step_seconds, rel=1e-9)


def test_the_note_names_the_fabric_as_it_was_asked_for():
    trace = looped([Flows([0], [7], [5e9])], 3, (0.1,))
    asked, given = parse_fabric("fat-tree,pods=2,tors=2,gpus=2"), replace(PACKET, spec="")
    for fabric, name in ((asked, "fat-tree,pods=2,tors=2,gpus=2"), (given, PACKET.name)):
        note = simulate(fabric, trace).notes[-1]
        assert note.startswith(
            f"{name}: 3 repetitions of 1 collectives (training experts) were folded"
        )


# --- the bound ------------------------------------------------------------------------------------


@st.composite
def crowded(draw):
    """Loops and flows that wait for each other at will, on few hosts: they meet."""
    b, rows = TraceBuilder(HOSTS), []
    seconds = st.sampled_from([0.0, 0.0, 0.01, 0.05, 0.2])
    pair = st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda ends: ends[0] != ends[1])
    sent = st.lists(st.tuples(pair, st.integers(1, 8)), min_size=1, max_size=4)

    def flows():
        sends = draw(sent)
        return Flows(
            [p[0] for p, _ in sends], [p[1] for p, _ in sends], [n * 5e8 for _, n in sends]
        )

    for kind in draw(
        st.lists(st.sampled_from(["loop", "flows", "compute"]), min_size=2, max_size=8)
    ):
        after = draw(st.lists(st.sampled_from(rows), max_size=2, unique=True)) if rows else []
        about = {
            "after": after,
            "gap": draw(seconds),
            "phase": draw(st.sampled_from("ab")),
            "label": "x",
        }
        if kind == "compute":
            rows += b.flows([0], [0], 0, **about)
        elif kind == "flows":
            rows += b.flows(*flows(), **about)
        else:
            k = draw(st.integers(1, 3))
            between, beside = (draw(st.lists(seconds, min_size=k, max_size=k)) for _ in range(2))
            rows += b.loop(
                [flows() for _ in range(k)], draw(st.integers(1, 6)), between, beside, **about
            )
    return b.build()


@settings(max_examples=150, deadline=None)
@given(
    crowded(),
    st.sampled_from([PACKET, LEFT_ALONE, parse_fabric("fat-tree,oversubscription=4", 8)]),
    st.sampled_from(["placed", "split"]),
)
def test_no_phase_differs_by_more_than_the_bound(trace, fabric, routing):
    folded, every = both(fabric, trace, routing)
    off = folded.folding.off if folded.folding else {}
    for one, other in zip(folded.phases, every.phases, strict=True):
        assert one.key == other.key and one.bytes == other.bytes
        assert abs(one.exposed - other.exposed) <= off.get(one.key, 0.0) * (1 + 1e-9) + 1e-8


def test_the_bound_is_what_a_meeting_takes():
    """A flow beside a loop that shares its cable; where it is done before repetitions are folded,
    and elsewhere, nothing.
    """
    loop = [Flows([0], [7], [1e9])], 10, (0.5,)
    folded, every = both(PACKET, looped(*loop, rest=[Flows([0], [6], [2e11])]))
    (off,) = folded.folding.off.values()
    assert 0 < abs(exposed(folded) - exposed(every)) <= off <= 2 * transfer_seconds(10e9, RATE)
    short, whole = both(PACKET, looped(*loop, rest=[Flows([0], [6], [5e9])]))
    assert not short.folding.off and exposed(short) == pytest.approx(exposed(whole))
    assert not simulate(PACKET, looped(*loop, rest=[Flows([2], [3], [2e11])])).folding.off


def test_where_too_many_meet_the_bound_is_not_known(monkeypatch, tmp_path):
    monkeypatch.setattr("rfabric.simulate.folding.MOST_PAIRS", 1)
    run = Run(simulate(PACKET, small()))
    assert (
        run.result.folding.seconds is None
        and "too many other flows meet them to say" in run.result.notes[0]
    )
    write_folder(tmp_path, [run], summary_of([run], "", "now"))
    assert read_folder(tmp_path)[0][0].result.folding == run.result.folding


def test_what_comes_after_a_barrier_shifts_as_a_whole():
    def trace(later):
        b = TraceBuilder(HOSTS)
        rows = b.loop([Flows([0], [7], [1e9])], 10, (0.5,), phase="training", label="experts")
        rows += b.flows([0], [6], 2e11, phase="training", label="other")
        last = b.compute(0, 0.0, after=rows, phase="training", label="barrier")
        for _ in range(later):
            b.flows([0, 0], [1, 2], 5e11, after=[last], phase="weight_sync", label="weights")
        return b.build()

    assert simulate(PACKET, trace(0)).folding.off == pytest.approx(
        simulate(PACKET, trace(3)).folding.off
    )


def test_the_shipped_trace_with_a_loop_takes_its_closed_form():
    trace = read_trace(Path(__file__).parents[2] / "traffic" / "experts.csv")
    for way in REPETITIONS:
        result = simulate(parse_fabric("ideal", 16), trace, repetitions=way)
        out = transfer_seconds(3e8, RATE)
        assert result.step_seconds == pytest.approx(48 * (0.002 + out + max(out, 0.01)), rel=1e-3)


def test_every_repetition_waits_for_light():
    far = replace(PACKET, links=tuple(replace(link, delay=1e-3) for link in PACKET.links))
    for result in both(far, looped([Flows([0], [7], [5e8])], 10, (0.0,))):
        assert result.step_seconds == pytest.approx(10 * (0.01 + 4e-3), rel=1e-3)


# --- circuits -------------------------------------------------------------------------------------


def test_a_rewire_hides_behind_one_computing_and_no_more():
    fabric = parse_fabric("rfabric,delay=100ms", 64)
    b = TraceBuilder(fabric.hosts)
    b.loop(
        [Flows(range(16), range(48, 64), [50e9] * 16)],
        8,
        (0.02,),
        phase="training",
        label="experts",
    )
    result = simulate(fabric, b.build(), "demand,granularity=per-collective")
    (record,) = result.rewires
    assert result.notes[0].endswith("exposes under the same circuits the same communication")
    assert record.dark == pytest.approx(0.1) and record.hidden == pytest.approx(0.02, rel=0.2)


def test_turns_that_differ_in_label_are_one_stage_folded_or_not():
    fabric = parse_fabric("rfabric", 64)
    b = TraceBuilder(fabric.hosts)
    turns = [Flows(range(4), range(4, 8), [1e8] * 4), Flows(range(4), range(16, 20), [1e8] * 4)]
    b.loop(turns, 300, (0.0, 0.0), phase="training", label=("dispatch", "combine"))
    folded, every = (simulate(fabric, b.build(), repetitions=way) for way in REPETITIONS)
    assert folded.step_seconds == pytest.approx(every.step_seconds, rel=0.01)
    assert len(folded.rewires) == len(every.rewires)


def test_a_phase_that_only_computes_may_be_followed_by_a_rewire():
    fabric = parse_fabric("rfabric,planes=1", 64)
    b = TraceBuilder(fabric.hosts)
    rows = b.flows(range(4), range(16, 20), 4e10, phase="training", label="a")
    work = b.compute(0, 1.0, after=rows, phase="reward", label="b")
    b.flows(range(4), range(32, 36), 4e10, after=[work], phase="weight_sync", label="c")
    for policy in ("phase", "bvn", "own"):
        assert (
            simulate(fabric, b.build(), policy).step_seconds
            <= simulate(fabric, b.build(), "static").step_seconds
        )


# --- the doors ------------------------------------------------------------------------------------


def small():
    return looped(
        [Flows([0, 1], [6, 7], [1e9, 2e9]), Flows([7], [0], [1e9])],
        20,
        (0.05, 0.0),
        (0.0, 0.01),
        rest=[Flows([0], [5], [9e10])],
    )


def test_repetitions_are_played_in_one_of_two_ways():
    with pytest.raises(
        RFabricError, match=("unknown repetitions 'some'; there are folded, all, whole")
    ):
        simulate(PACKET, small(), repetitions="some")
    assert {*REPETITIONS, "whole"} == set(KNOWN)


def test_the_note_says_what_was_folded():
    folded, every = both(PACKET, small())
    (note,) = folded.notes
    what = f"{PACKET.spec}: 40 repetitions of 2 collectives (training experts) were folded"
    assert note == (
        f"{what}; how far that is from playing all is not bounded: play all with --repetitions all"
    )
    assert folded.folding.seconds >= exposed(folded) and not every.notes
    (note,) = simulate(PACKET, looped([Flows([0], [7], [1e9])], 20, (0.05,))).notes
    assert note.endswith("no other flow meets them, so playing all exposes the same communication")


def test_the_note_gives_the_bound_where_it_says_something():
    wide = simulate(
        PACKET, looped([Flows([0], [7], [1e9])], 40, (0.5,), rest=[Flows([0], [6], [8e11])])
    )
    (note,) = wide.notes
    assert wide.folding.seconds < exposed(wide)
    assert note.endswith(
        f"exposed communication differs from playing all by at most {show_bound(wide)}"
    )


def show_bound(result):
    """The bound as the note shows it."""
    seconds = result.folding.seconds
    return f"{show_time(seconds)} ({seconds / exposed(result):.1%})"


@pytest.mark.parametrize("way", REPETITIONS)
def test_a_run_folder_gives_back_what_was_played_and_the_trace_to_edit(tmp_path, way):
    run = Run(simulate(PACKET, small(), repetitions=way))
    write_folder(tmp_path, [run], summary_of([run], "", "now"))
    (again,), summary = read_folder(tmp_path)
    assert summary_of([again], "", "now")["runs"] == summary["runs"]
    assert again.result.folding == run.result.folding and again.result.phases == run.result.phases
    assert again.result.trace.origin.looped.loops == small().loops
    assert (
        simulate(PACKET, again.result.trace.origin.looped).step_seconds
        == simulate(PACKET, small()).step_seconds
    )


def test_replay_plays_a_file_with_loops_either_way(tmp_path, capsys):
    write_trace(small(), tmp_path / "mine.csv")
    steps = {}
    for way in REPETITIONS:
        asked = [
            "replay",
            str(tmp_path / "mine.csv"),
            "--topo",
            "leaf-spine",
            "--repetitions",
            way,
            "--json",
        ]
        assert main([*asked, "--out", str(tmp_path)]) == 0
        (replayed,) = json.loads(capsys.readouterr().out)["runs"]
        steps[way] = replayed["step_s"]
        assert replayed["repetitions"]["played"] == {"folded": "folded", "all": "unrolled"}[way]
    folded, every = both(parse_fabric("leaf-spine", 8), small())
    assert steps == {"folded": folded.step_seconds, "all": every.step_seconds}


def test_a_grid_and_a_plan_play_as_they_are_asked(tmp_path):
    write_trace(small(), tmp_path / "mine.csv")
    grid = Grid(
        ("leaf-spine", "ideal"), ("demand",), (str(tmp_path / "mine.csv"),), (0,), repetitions="all"
    )
    begin(grid, tmp_path)
    assert [e["repetitions"]["played"] for e in entries_of(run(grid, tmp_path, Hands(jobs=1)))] == [
        "unrolled",
        "unrolled",
    ]
    fabric = parse_fabric("rfabric", 8)
    for way in REPETITIONS:
        traffic, played = Traffic(small(), "mine", ()), RunSettings(repetitions=way)
        stages = stage_circuits(Case(fabric, "own"), traffic, played)
        assert sum(stage.demand.bytes.sum() for stage in stages) == plan_bytes(fabric)


def plan_bytes(fabric):
    """Bytes that `small` sends from rack to rack."""
    trace = small()
    racks = [fabric.rack_of[host] for host in trace.hosts]
    return sum(
        int(t)
        for a, b, t in zip(trace.src, trace.dst, trace.total, strict=True)
        if racks[a] != racks[b]
    )


def test_no_run_is_sooner_than_its_cards_so_the_bound_stops_there():
    """A loop that nobody can make shorter: what it meets may only make it longer in full."""
    trace = looped(
        [Flows([0], [7], [4e9])],
        30,
        (0.0,),
        rest=[Flows([1], [6], [1e11]), Flows([2], [7], [1e10])],
    )
    folded, every = both(parse_fabric("fat-tree,oversubscription=4", 8), trace)
    (phase,), floor = folded.phases, phase_floors(folded.fabric, folded.trace)
    assert all(one.phases[0].seconds >= floor[phase.key] for one in (folded, every))
    assert folded.folding.off.get(phase.key, 0.0) >= abs(exposed(folded) - exposed(every))

"""Stages of any trace, against their definition written out row by row."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.fabric import parse_fabric
from rfabric.optics.circuits import Circuits
from rfabric.optics.outlook import Load, Outlook
from rfabric.routing.schemes import ECMP
from rfabric.trace import Demands, Scene, TraceBuilder, stages
from rfabric.trace.pairs import Pairs, PairWays
from rfabric.units import transfer_seconds

HOSTS = tuple(f"h{i}" for i in range(1, 5))
ROW = st.fixed_dictionaries(
    {
        "sends": st.booleans(),
        "after": st.lists(st.integers(1, 12), max_size=3),
        "gap": st.sampled_from((0.0, 0.0, 0.5)),
        "start": st.sampled_from((0.0, 0.0, 1.0)),
        "phase": st.sampled_from(("generation", "training")),
        "label": st.sampled_from("ab"),
        "step": st.integers(0, 1),
    }
)


def built(rows):
    builder = TraceBuilder(HOSTS)
    for i, row in enumerate(rows):
        after = sorted({i - back for back in row["after"] if back <= i})
        said = {"after": after} if after else {"start": row["start"]}
        said |= {key: row[key] for key in ("gap", "phase", "label", "step")}
        ends = [i % 4], [(i + 1) % 4]
        builder.flows(*ends, 8 if row["sends"] else 0, **said)
    return builder.build()


def waits(trace):
    """What each row waits for, at one remove."""
    return [trace.waits_for(row).tolist() for row in range(len(trace))]


def numbered(trace, every):
    return {int(row): s.number for s in every for row in s.rows if trace.size[row]}


def firsts(trace, rows):
    """Rows that wait for none of `rows`; of those alike the first."""
    inside, first = set(rows.tolist()), {}
    for row in rows.tolist():
        before = tuple(waits(trace)[row])
        if not inside & set(before):
            first.setdefault((tuple(sorted(before)), trace.start[row]), row)
    return sorted(first.values())


@settings(max_examples=150, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=24), st.sampled_from(("per-phase", "per-collective")))
def test_a_stage_follows_those_its_first_bytes_wait_for_with_no_other_between(rows, granularity):
    trace = built(rows)
    every = stages(trace, granularity)
    number, near, latest = numbered(trace, every), [], []
    for before in waits(trace):
        near.append(set().union(*({number[p]} if p in number else near[p] for p in before)))
        latest.append(max((max(latest[p], number.get(p, -1)) for p in before), default=-1))
    for stage in every:
        sends = [row for row in stage.rows.tolist() if trace.size[row]]
        least = min((latest[row] for row in sends), default=None)
        others = set().union(*(near[row] for row in sends if latest[row] == least))
        assert stage.follows == tuple(sorted(k for k in others if k < stage.number))


@settings(max_examples=150, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=24))
def test_the_first_rows_of_a_stage_wait_for_no_other_of_it(rows):
    trace = built(rows)
    (whole,) = stages(trace, "one-shot")
    assert whole.entries.tolist() == firsts(trace, np.arange(len(trace)))
    for stage in stages(trace, "per-phase"):
        inside = set(stage.rows.tolist())
        assert stage.rows.tolist() == trace.rows(stage.key).tolist()
        alone = [row for row in stage.rows.tolist() if not inside & set(waits(trace)[row])]
        assert stage.entries.tolist() == alone == trace.entries(stage.key).tolist()


def in_turn(*labels, size=8, gap=0.0):
    """Two flows a label, each after those of the label before; the first letter is the phase's."""
    builder, last = TraceBuilder(HOSTS), []
    for label in labels:
        said = {"after": last, "gap": gap, "phase": label[0], "label": label}
        last = builder.flows([0, 1], [2, 3], size, **said)
    return builder.build()


def stages_of(trace):
    return [(s.label, s.rows.tolist()) for s in stages(trace, "per-collective")]


@pytest.mark.parametrize("gap", [0.0, 0.5])
def test_rows_that_wait_for_another_phase_are_a_stage_of_their_own(gap):
    """Without a gap all of them are ready at one instant."""
    twice = in_turn("a", "b", "a", "b", gap=gap)
    assert stages_of(twice) == [("a", [0, 1]), ("b", [2, 3]), ("a", [4, 5]), ("b", [6, 7])]
    assert [s.follows for s in stages(twice, "per-collective")] == [(), (0,), (1,), (2,)]
    assert stages_of(in_turn("a", "a", "b", "b", gap=gap)) == [
        ("a", [0, 1, 2, 3]),
        ("b", [4, 5, 6, 7]),
    ]


@settings(deadline=None)
@given(st.lists(ROW, min_size=1, max_size=12))
def test_no_stage_but_of_a_tie_waits_for_one_that_begins_after_it(rows):
    trace = built(rows)
    every = stages(trace, "per-collective")
    latest = trace.latest(_numbers(trace, every))
    for stage in every:
        late = latest[stage.rows] > stage.number
        assert not late.any() or late.all()


def _numbers(trace, every):
    numbers = np.full(len(trace), -1)
    for row, number in numbered(trace, every).items():
        numbers[row] = number
    return numbers


def test_waves_are_counted_inside_a_stage_past_what_only_computes():
    builder = TraceBuilder(HOSTS)
    first = builder.flows([0, 1], [1, 2], 8, phase="training", label="a")
    work = builder.compute(0, 1.0, after=first[:1], phase="training", label="work")
    builder.flows([2], [3], 8, after=[work], phase="training", label="a")
    builder.flows([3], [0], 8, start=3.0, phase="training", label="a")
    (stage,) = stages(builder.build(), "per-collective")
    assert stage.waves.tolist() == [0, 0, 1, 0]


def test_a_wave_after_another_is_foreseen_to_send_after_it():
    """Two waves of one label over different cables take the sum of both, not the longer."""
    fabric = parse_fabric("leaf-spine,tors=2,gpus=2", 0)
    builder = TraceBuilder(fabric.hosts)
    first = builder.flows([0], [1], 4e9, phase="training", label="a")
    builder.flows([2], [3], 2e9, after=first, phase="training", label="a")
    trace = builder.build()
    (stage,) = stages(trace, "per-phase")
    left = stage.rows, trace.size.astype(float)
    scene = Scene((stage,), {stage: left}, (), Circuits(), 0.0, {stage: 0.0})
    ways = PairWays(fabric, Pairs(fabric, trace), Circuits(), ECMP)
    (alone,) = Demands(trace, fabric).prospect(scene, ways).now.alone
    assert alone == pytest.approx(transfer_seconds(6e9, fabric.links[0].rate))


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10**9), st.integers(0, 3)), max_size=300)
)
def test_an_outlook_is_the_busiest_link_of_each_kind_added_up(flows):
    fabric = parse_fabric("leaf-spine,tors=2,gpus=4", 0)
    count = 2 * len(fabric.links)
    links, size, kind = np.array(flows, dtype=np.int64).reshape(-1, 3).T
    way = np.arange(len(flows)), np.ones(len(flows), np.int64), links % count
    load = Load(*way, size.astype(float), kind)
    outlook = Outlook.of_flows(fabric, [load])
    rates = np.repeat([cable.rate for cable in fabric.links], 2)
    table = np.zeros((4, count))
    np.add.at(table, (kind, links % count), size)
    asked = transfer_seconds(table, rates)
    assert outlook.least[0] == pytest.approx(asked.max(axis=1).sum())
    np.testing.assert_allclose(outlook.seconds[0], asked.sum(axis=0))


def test_scenes_drift_apart_by_what_the_busiest_sender_has_sent_meanwhile():
    builder = TraceBuilder(HOSTS)
    builder.flows([0, 0, 1], [1, 2, 2], 100, phase="training", label="a")
    builder.flows([3], [0], 100, start=5.0, phase="weight_sync", label="b")
    before, asks = stages(builder.build(), "per-phase")
    source = np.array([0, 0, 1, 3])

    def scene(rows, left):
        still = {before: (np.array(rows), np.array(left)), asks: (asks.rows, np.array([100.0]))}
        return Scene((asks,), still, (), Circuits(), 0.0)

    ahead = scene([0, 1, 2], [100.0, 100.0, 100.0])
    assert ahead.drift(ahead, source) == 0
    # host 0 sent 60 + 100, host 1 sent 30
    now = scene([0, 2], [40.0, 70.0])
    assert ahead.drift(now, source) == now.drift(ahead, source) == 160
    # what those who ask have left does not count
    assert ahead.drift(replace(ahead, open={before: ahead.open[before]}), source) == 0

"""Which loops go out in full: those that meet something else on a cable, on any traffic."""

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric.emulate.sampling import TOUCH, loop_seconds, meeting, shares
from rfabric.emulate.scale import LEAST_SAMPLE, choose_sample, run_seconds
from rfabric.fabric import parse_fabric
from rfabric.optics import Circuits
from rfabric.report.result import Scale
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder, routing_of
from rfabric.trace.pairs import Pairs, PairWays

SPECS = "fat-tree,pods=2,tors=2,gpus=2", "leaf-spine,tors=4,gpus=2", "rfabric,pods=2,tors=2,gpus=2"
SECOND = 5e10  # bytes that a card sends in one


def played(spec, loops, flows, policy="static"):
    """The simulation of loops [(src, dst, share, start)], of 100 repetitions that take `share` s
    together, and flows [(src, dst, share, start)] beside them.
    """
    b = TraceBuilder(parse_fabric(spec).hosts)
    for i, (src, dst, share, start) in enumerate(loops):
        turn = [src], [dst], share * SECOND / 100
        b.loop([turn], 100, [0.0], start=start, phase="a", label=f"loop {i}")
    for src, dst, share, start in flows:
        b.flows([src], [dst], share * SECOND, start=start, phase="b", label="beside")
    return simulate(parse_fabric(spec), b.build(), policy, repetitions="whole")


@st.composite
def a_flow(draw):
    src = draw(st.integers(0, 7))
    dst = draw(st.integers(0, 7).filter(lambda host: host != src))
    seconds = draw(st.sampled_from([0.01, 0.1, 1.0])), draw(st.sampled_from([0.0, 0.5, 1.0, 1.25]))
    return src, dst, *seconds


def spans(result):
    """By link [(of which loop, or flow, from when, till when)], one for all rows of a loop."""
    trace, ((_, circuits),) = result.trace, result.epochs or [(0.0, Circuits())]
    routing = routing_of(result.routing, result.fabric, trace)
    ways = PairWays(result.fabric, Pairs(result.fabric, trace, routing), circuits, routing)
    crossed = []
    for row in np.flatnonzero(trace.size > 0).tolist():
        loop = int(trace.loop_of[row])
        who = ("loop", loop) if loop >= 0 else ("flow", row)
        span = float(result.start[row]), float(result.finish[row])
        crossed += [(int(link), who, *span) for link in ways.of(np.array([row]))[1]]
    for link, some in groupby(sorted(crossed), key=lambda one: one[0]):
        hulls = {}
        for _, who, begin, end in some:
            known = hulls.get(who, (begin, end))
            hulls[who] = min(begin, known[0]), max(end, known[1])
        yield link, hulls


def one_by_one(result, touch):
    """The loops that meet others for more than `touch` of their time, each beside each."""
    return {
        who[1]
        for _, hulls in spans(result)
        for who, (begin, end) in hulls.items()
        for other, (since, until) in hulls.items()
        if who[0] == "loop" and other != who
        and since < end - touch * (end - begin) and until > begin + touch * (end - begin)
    }  # fmt: skip


@given(
    st.sampled_from(SPECS),
    st.lists(a_flow(), min_size=1, max_size=4),
    st.lists(a_flow(), max_size=8),
)
def test_a_loop_meets_what_crosses_its_cables_with_it(spec, loops, flows):
    result = played(spec, loops, flows)
    assert one_by_one(result, TOUCH) <= meeting(result) <= one_by_one(result, 0.0)


@pytest.mark.parametrize("spec", SPECS)
def test_loops_meet_nobody_before_them_after_them_or_elsewhere(spec):
    loops = [(0, 4, 1.0, 0.0), (1, 5, 0.5, 0.0), (0, 4, 1.0, 1.0)]
    elsewhere = [(2, 3, 1.0, 0.0), (4, 0, 1.0, 0.0)]  # the last the other way
    assert meeting(played(spec, loops[::2], elsewhere)) == frozenset()
    assert meeting(played(spec, loops[::2], [(0, 1, 0.05, 1.5)])) == {1}
    assert meeting(played(spec, loops[::2], [(1, 4, 0.05, 0.4)])) == {0, 1}  # which ends later


def test_nothing_of_a_loop_that_meets_others_is_left_out():
    result = played(SPECS[0], [(0, 4, 1.0, 0.0), (6, 7, 1.0, 0.0)], [(0, 2, 0.05, 0.5)])
    trace, whole = result.trace, meeting(result)
    share = shares(trace, result.fabric, 0.1, whole)
    assert whole == {0}
    assert (share[trace.loop_of == 0] == 1).all()
    assert share[trace.loop_of == 1] == pytest.approx(0.1)
    assert shares(trace, result.fabric, 0.1)[trace.loop_of == 0] == pytest.approx(0.1)


def test_what_goes_out_in_full_takes_its_part_of_the_patience():
    """Two loops of 10 s, one of which meets another for a moment."""
    loops, beside = [(0, 4, 10.0, 0.0), (6, 7, 10.0, 0.0)], [(0, 2, 0.05, 0.5)]
    alone, met = (played(SPECS[0], loops, some) for some in ([], beside))
    assert choose_sample([met], 40.0) == LEAST_SAMPLE < choose_sample([alone], 40.0)
    assert choose_sample([played(SPECS[0], loops[:1], beside)], 40.0) == np.inf  # nothing to choose
    once, both = (run_seconds(some, Scale(1e-4, 1.0, LEAST_SAMPLE)) for some in (alone, met))
    assert both - once == pytest.approx(10.05, rel=0.01)
    assert loop_seconds(met.trace, met.fabric) == pytest.approx([10.0, 10.0])

"""Which flows have too few packets: by hand, and relations that hold for any traffic."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.emulate.grain import COARSE, few_packets, grain
from rfabric.emulate.network import windows_of
from rfabric.emulate.windows import window_of
from rfabric.fabric import parse_fabric
from rfabric.report.result import Scale
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder
from rfabric.trace.packets import PAYLOAD
from rfabric.units import bytes_in

FABRIC = parse_fabric("leaf-spine,tors=4,gpus=4,oversubscription=4")  # uplinks at a fourth
SCALE = Scale(1e-3, 10.0)
PACKET = PAYLOAD / SCALE.bandwidth  # bytes of the trace in one
LONE = windows_of(FABRIC, SCALE.bandwidth / SCALE.dilation)["h1"]  # packets


def played(flows, phase="p", label="flows", fabric=FABRIC):
    """The simulation of flows [(src, dst, packets, start)]."""
    b = TraceBuilder(FABRIC.hosts)
    for src, dst, packets, start in flows:
        b.flows([src], [dst], packets * PACKET, start=start, phase=phase, label=label)
    return simulate(fabric, b.build(), "static", repetitions="whole")


def test_a_lone_flow_is_true_to_a_packet():
    assert grain(played([(0, 1, 20, 0.0)]), SCALE) == pytest.approx([1 / 20])
    assert np.isnan(grain(played([]), SCALE)).all()


def test_flows_that_share_a_card_alike_wait_for_no_window():
    result = played([(0, host, 50, 0.0) for host in (1, 2, 3)])
    assert grain(result, SCALE) == pytest.approx([1 / 50] * 3)


def test_a_flow_that_stays_near_waits_while_those_held_up_far_away_fill_their_windows():
    """A rack of four sends out by one uplink's worth, so each card's way out is a fourth of it:
    of five flows of card 0 four have a sixteenth each, the one in the rack the other three fourths.
    """
    out = [(src, dst, 300, 0.0) for src in range(4) for dst in (4, 5, 8, 12)]
    result = played([*out, (0, 1, 48, 0.0)])
    near = grain(result, SCALE)[-1]
    # packets ahead of what the fluid lets them
    others = 4 * window_of(1 / 5, LONE) * (1 - (1 / 16) / (3 / 4))
    assert near == pytest.approx((1 + others) / 48, rel=1e-4)
    (note,) = few_packets(result, SCALE)
    assert note.startswith("leaf-spine: 1 of the 17 flows of flows have few packets")
    assert f"{near:.0%} off" in note and few_packets(result, Scale(1e-2, 100.0)) == []
    assert few_packets(result, SCALE, resolution=2 * result.step_seconds) == []


def test_on_each_cable_those_count_that_are_held_up_further_on():
    """Of the four flows of a rack's one uplink three go to a card that takes twelve, a twelfth each
    of the line; the fourth has the rest of the uplink, when they have filled their windows.
    """
    into = [(src, 12, 300, 0.0) for src in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13)]
    result = played([*into, (0, 8, 60, 0.0)])
    others = 3 * window_of(1, LONE) * (1 - (1 / 12) / (3 / 4))
    assert grain(result, SCALE)[-1] == pytest.approx((1 + others) / 60, rel=1e-3)


def test_a_flow_waits_for_no_more_turns_than_it_has_packets():
    """Two packets that stay near, beside two flows held up far away: each takes two turns."""
    out = [(src, dst, 300, 0.0) for src in range(4) for dst in (4, 8)]
    result = played([*out, (0, 1, 2, 0.0)])
    near = grain(result, SCALE)[-1]
    turns = 2 * 2 * (1 - (1 / 8) / (3 / 4)) * (3 / 4)  # of the card's packets, in its own
    assert near == pytest.approx((1 + turns) / 2, rel=1e-2)


def test_a_delay_is_not_taken_for_a_far_queue():
    """Forty packets to the next host and forty to another rack, whose cables take 5 ms."""
    ends = {n.name for n in FABRIC.nodes if n.kind == "host"}
    slow = [k if {k.a.node, k.b.node} & ends else replace(k, delay=5e-3) for k in FABRIC.links]
    result = played([(0, 1, 40, 0.0), (0, 4, 40, 0.0)], fabric=replace(FABRIC, links=tuple(slow)))
    assert grain(result, SCALE)[0] == pytest.approx(1 / 40)


def test_who_waits_in_the_dark_fills_no_window():
    """What stays in a rack goes on while circuits change for what leaves it."""
    fabric = parse_fabric("rfabric,pods=2,tors=2,gpus=2,delay=50ms")
    long = bytes_in(400e9, 1.0)
    b = TraceBuilder(fabric.hosts)
    b.flows([0, 1], [6, 7], long, phase="a", label="a")
    b.flows(
        [2, 3, 2], [0, 1, 3], [200 * PACKET, long, 40 * PACKET], start=0.4, phase="b", label="b"
    )
    result = simulate(fabric, b.build(), "demand", repetitions="whole")
    assert any(r.requested <= 0.4 < r.usable for r in result.rewires)
    assert grain(result, SCALE)[-1] == pytest.approx(1 / 40)
    bright = grain(replace(result, rewires=()), SCALE)[-1]
    assert bright > 1.5 / 40  # it would be as coarse as that


def test_those_that_come_slowly_fill_no_window_on_what_they_come_to():
    """Two of the four flows of an uplink, a fourth of the line each, end where one from the same
    rack has half of it.
    """
    slow = [(src, dst, 300, 0.0) for src, dst in ((4, 0), (5, 0), (6, 8), (7, 12))]
    result = played([*slow, (1, 0, 40, 0.0)])
    assert grain(result, SCALE)[-1] == pytest.approx(1 / 40)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("p", "sends"), "1 of the 1 flows of sends have"),
        (("p", ""), "1 of the 1 flows of p have"),
        (("", ""), "1 of the 1 flows have"),
    ],
)
def test_flows_are_named_by_what_the_trace_calls_them(names, said):
    (note,) = few_packets(played([(0, 1, 2, 0.0)], *names), SCALE)
    assert note.startswith(f"leaf-spine: {said} few packets")


def test_of_what_a_sample_stands_for_nothing_is_said():
    b = TraceBuilder(FABRIC.hosts)
    b.loop([([0], [8], PACKET)], 100, [0.0], phase="p", label="loop")
    result = simulate(FABRIC, b.build(), "static", repetitions="whole")
    some = Scale(1e-3, 10.0, float(result.step_seconds) / 10)
    assert np.isnan(grain(result, some)[result.trace.size > 0]).all()
    assert few_packets(result, some) == []
    assert not np.isnan(grain(result, SCALE)[result.trace.size > 0]).any()


def a_flow():
    hosts = st.integers(0, len(FABRIC.hosts) - 1)
    flow = st.tuples(hosts, hosts, st.floats(0.5, 400.0), st.sampled_from([0.0, 1e-3, 0.5]))
    return flow.filter(lambda one: one[0] != one[1])


@settings(max_examples=60, deadline=None)
@given(st.lists(a_flow(), min_size=1, max_size=25), st.randoms())
def test_relations_that_hold_for_any_traffic(flows, random):
    result = played(flows)
    sends = result.trace.size > 0
    coarse = grain(result, SCALE)[sends]
    own = PACKET / result.trace.size[sends]
    assert (coarse >= own * (1 - 1e-9)).all()  # never truer than a packet of its own
    # ten times the packets, at the same rate: a tenth of it
    finer = grain(result, Scale(10 * SCALE.bandwidth, 10 * SCALE.dilation))[sends]
    assert (finer >= coarse / 10 * (1 - 1e-9)).all()
    if (own <= 1 / LONE).all():  # a window is not all that any of them has
        assert finer == pytest.approx(coarse / 10)
    # and no flow waits for more than the windows of all others
    assert (coarse <= own * (1 + LONE * len(flows)) * (1 + 1e-9)).all()
    assert bool(few_packets(result, SCALE)) == bool((coarse > COARSE).any())
    mixed = list(range(len(flows)))
    random.shuffle(mixed)
    other = grain(played([flows[i] for i in mixed]), SCALE)
    assert other[other == other] == pytest.approx(coarse[mixed], rel=1e-3)

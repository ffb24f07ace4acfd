"""What small messages take beyond a fluid's seconds: closed forms, ns-3's packets, and the note."""

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rfabric
from rfabric.cli.arguments.options import TRANSPORTS as OFFERED
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.files import read_json
from rfabric.report.folder import new_folder
from rfabric.simulate import flows
from rfabric.simulate.transport import FLUID, RDMA, TCP, Messages
from rfabric.simulate.world import simulate
from rfabric.study.grid import Grid, run_settings
from rfabric.study.kept import folder_key
from rfabric.study.run import RunSettings, require
from rfabric.trace import TraceBuilder
from rfabric.trace.collectives import Flows
from rfabric.trace.packets import PAYLOAD, UNSCALED_WINDOW
from rfabric.units import parse_time

SMALL = "fat-tree,pods=2,tors=2,gpus=4"  # h1 to h16, cables of 400 Gbit/s and 0.5 us
RATE, HOPS, TRIP_S = 4e11, 6, 2 * 6 * 5e-7
PACKET_S = 8 * PAYLOAD / RATE
FABRIC = parse_fabric(SMALL)


def one(size, src=0, dst=12, times=1, after=()):
    builder = TraceBuilder(FABRIC.hosts)
    builder.flows([src] * times, [dst] * times, [size] * times, after=list(after))
    return builder.build()


def in_a_row(size, many, first=()):
    """Messages between h1 and h13 that wait for one another, those of sizes `first` before them."""
    builder, before = TraceBuilder(FABRIC.hosts), []
    for step, each in enumerate((*first, *[size] * many)):
        ends = ([0], [12]) if step % 2 else ([12], [0])
        before = builder.flows(*ends, [each], after=before)
    return builder.build()


def took(trace, name, fabric=FABRIC, **options):
    return simulate(fabric, trace, transport=name, **options).step_seconds


def test_a_message_of_rdma_goes_cable_by_cable():
    for size, relay in ((1e3, 5 * 8e3 / RATE), (PAYLOAD, 5 * PACKET_S), (1e7, 5 * PACKET_S)):
        fluid = took(one(size), FLUID)
        assert fluid == pytest.approx(8 * size / RATE + HOPS * 5e-7, rel=1e-9)
        assert took(one(size), RDMA) - fluid == pytest.approx(relay, rel=1e-9)


def test_tcp_shakes_hands_and_waits_for_acknowledgements():
    within = took(one(60_000), TCP) - took(one(60_000), RDMA)
    assert within == pytest.approx(TRIP_S, rel=1e-9)
    # the first window lasts less than the way there and back: one pause
    beyond = took(one(100_000), TCP) - took(one(100_000), RDMA)
    answered = TRIP_S + HOPS * PACKET_S
    pause = answered - 8 * UNSCALED_WINDOW / RATE
    assert beyond == pytest.approx(TRIP_S + pause, rel=1e-9)


def test_pauses_end_when_a_window_fills_the_way():
    many, more = (took(one(size), TCP) - took(one(size), RDMA) for size in (1e8, 1e9))
    assert many == pytest.approx(more, rel=1e-6)
    # no cable has any delay and packets are nothing: nothing to wait for
    short = Messages(np.array([1e6]), np.zeros(1), np.full(1, 8 * PAYLOAD / RATE), np.full(1, RATE))
    assert short.beyond(TCP) == short.beyond(RDMA) == 0


@given(
    st.floats(1, 1e9), st.floats(0, 1e-3), st.integers(1, 8), st.floats(1e6, 1e13),
    st.floats(1, 10),
)  # fmt: skip
def test_more_is_never_less(size, delay, hops, rate, faster):
    def sent(size, delay, hops, rate):
        relay = hops * 8 * min(size, PAYLOAD) / rate
        return Messages(*(np.array([v], float) for v in (size, hops * delay, relay, rate)))

    message = sent(size, delay, hops, rate)
    fluid, rdma, tcp = (float(message.beyond(name)[0]) for name in (FLUID, RDMA, TCP))
    slack = 1e-9 * float(message.seconds[0])
    assert fluid == 0 and -slack <= rdma <= tcp + slack
    for longer in (sent(size * 2, delay, hops, rate), sent(size, delay * 2, hops, rate)):
        assert longer.beyond(RDMA)[0] >= rdma - slack
        assert longer.beyond(TCP)[0] >= tcp - slack
    # all seconds k times shorter, and all is k times sooner
    k_times = sent(size, delay / faster, hops, rate * faster)
    assert k_times.beyond(TCP)[0] == pytest.approx(tcp / faster, rel=1e-6, abs=slack)


def test_off_is_as_without_and_on_says_so():
    trace = one(1e9)
    plain, fluid = simulate(FABRIC, trace), simulate(FABRIC, trace, transport=FLUID)
    assert plain.finish.tolist() == fluid.finish.tolist()
    assert plain.notes == fluid.notes == () and plain.transport == FLUID
    result = simulate(FABRIC, trace, transport=RDMA)
    assert result.transport == RDMA
    assert result.notes == (
        "transport rdma: packets go cable by cable; no handshake, no slow start",
    )
    with pytest.raises(RFabricError, match="no transport 'udp'; there are fluid, rdma, tcp"):
        simulate(FABRIC, trace, transport="udp")


def test_a_run_says_its_transport_wherever_it_is_kept(tmp_path):
    compared = rfabric.compare([SMALL, "leaf-spine,tors=4,gpus=4"], one(1e6), transport=RDMA)
    with new_folder(tmp_path) as made:
        compared.write(made, page=False)
    folder = made.final
    assert [run["transport"] for run in read_json(folder / "summary.json")["runs"]] == [RDMA] * 2
    assert [run.result.transport for run in rfabric.read_run(folder)] == [RDMA] * 2
    grid = Grid((SMALL,), ("own",), ("grpo-64",), (0,))
    cells, asked = grid.cells(), [replace(grid, transport=name) for name in OFFERED]
    assert len({folder_key(one, cells) for one in asked}) == len(OFFERED)
    assert [run_settings(one, cells[0]).transport for one in asked] == list(OFFERED)


def test_real_packets_have_their_own():
    with pytest.raises(RFabricError, match="--transport tcp is simulated; .*or simulate"):
        require(RunSettings("emulate", transport=TCP))


@pytest.mark.parametrize("spec", ["fat-tree", "rfabric", "mixnet", "rotor"])
@pytest.mark.parametrize("routing", ["placed", "split"])
def test_core_and_reference_and_every_routing_add_the_same(spec, routing, monkeypatch):
    fabric = parse_fabric(spec, 32)
    trace = TraceBuilder(fabric.hosts)
    before = []
    for shift in (1, 9):
        ends = range(0, 32, 4), [(i + shift) % 32 for i in range(0, 32, 4)]
        before = trace.flows(*map(list, ends), [2e5] * 8, after=before)
    trace = trace.build()
    took = {name: simulate(fabric, trace, routing=routing, transport=name) for name in OFFERED}
    for less, more in pairwise(OFFERED):
        assert took[less].step_seconds < took[more].step_seconds
    monkeypatch.setattr(flows, "_choose", lambda _: "reference")
    again = simulate(fabric, trace, routing=routing, transport=TCP)
    assert again.finish == pytest.approx(took[TCP].finish, rel=1e-9)


def test_each_repetition_of_a_loop_is_a_message():
    builder = TraceBuilder(FABRIC.hosts)
    turns, repeat = [Flows([0], [12], [1e4])], 40
    builder.loop(turns, repeat, (0.001,), phase="training", label="experts")
    trace = builder.build()
    for name in (RDMA, TCP):
        folded, every = (
            simulate(FABRIC, trace, transport=name, repetitions=way).step_seconds
            for way in ("folded", "all")
        )
        assert folded == pytest.approx(every, rel=1e-9)
        alone = took(one(1e4), name) - took(one(1e4), FLUID)
        assert every - took(trace, FLUID) == pytest.approx(repeat * alone, rel=1e-6)


def test_a_note_tells_of_phases_that_are_longer_for_it_and_of_no_other():
    builder = TraceBuilder(FABRIC.hosts)
    before = []
    for step in range(3):
        for turn in range(20 * (step + 1)):
            ends = ([0], [12]) if turn % 2 else ([12], [0])
            before = builder.flows(*ends, [1e4], after=before, step=step, phase="training")
        before = builder.flows([0], [12], [1e9], after=before, step=step, phase="weight_sync")
    trace = builder.build()
    (note,) = simulate(FABRIC, trace).notes
    start = re.escape("(and in 2 other steps): ") + r"([246]0) of \1 flows send messages so small"
    many = re.match(rf"fat-tree: training/[012] {start}", note)
    assert many and said(note)[RDMA] == pytest.approx(int(many[1]) * 5 * PACKET_S, rel=0.01)
    assert not simulate(FABRIC, one(1e9)).notes
    (note,) = simulate(FABRIC, one(1e3)).notes
    assert note.startswith("fat-tree: flows/0: 1 of 1 flows")


def said(note):
    """Seconds by which a phase may be longer, by transport."""
    rdma, tcp = re.findall(r"([\d.]+ [mun]?s) \(", note)
    return {RDMA: parse_time(rdma), TCP: parse_time(tcp)}


@pytest.mark.parametrize("name", [RDMA, TCP])
@pytest.mark.parametrize("spec", ["fat-tree", "leaf-spine,oversubscription=2", "rfabric"])
def test_a_phase_is_longer_by_no_more_than_the_note_says(name, spec):
    fabric, random = parse_fabric(spec, 32), np.random.default_rng(0)
    for _ in range(5):
        builder, before = TraceBuilder(fabric.hosts), []
        for _ in range(8):
            src = random.permutation(32)
            dst = np.roll(src, 1)
            sizes = 10 ** random.uniform(3, 6, 32)
            before = builder.flows(src.tolist(), dst.tolist(), sizes.tolist(), after=before)
        trace = builder.build()
        fluid, longer = (simulate(fabric, trace, transport=t) for t in (FLUID, name))
        added = longer.step_seconds - fluid.step_seconds
        assert 0 < added <= 1.01 * said(fluid.notes[0])[name]


@pytest.fixture(scope="module")
def packets():
    """Where ns-3 is installed (rfabric[ns3]) its packets are what all of this is held against."""
    pytest.importorskip("ns3", reason="ns-3 is not installed (rfabric[ns3])")
    from rfabric.simulate.packets import require

    require()


@pytest.mark.parametrize("spec", [SMALL, "leaf-spine,tors=2,gpus=4,rate=100Gbit/s"])
@pytest.mark.parametrize("size", [1e3, 1e4, 6e4, 1e5, 3e5, 1e6, 1e7])
def test_a_lone_message_takes_what_packets_of_tcp_take(packets, spec, size):
    fabric = parse_fabric(spec)
    builder = TraceBuilder(fabric.hosts)
    builder.flows([0], [len(fabric.hosts) - 1], [size])
    trace = builder.build()
    real = took(trace, TCP, fabric, engine="ns3")
    assert took(trace, TCP, fabric) == pytest.approx(real, rel=0.025)


@pytest.mark.parametrize("size", [1e3, 1e4, 1e5, 1e6])
def test_messages_in_a_row_take_what_packets_take(packets, size):
    """RDMA's as on connections that are open, after the messages that open them."""
    trace = in_a_row(size, 50, first=(1e6, 1e6))
    real = simulate(FABRIC, trace, engine="ns3")
    taken = real.finish[-1] - real.finish[1]
    ours, fluid = (simulate(FABRIC, trace, transport=name) for name in (RDMA, FLUID))
    assert ours.finish[-1] - ours.finish[1] == pytest.approx(taken, rel=0.01)
    assert abs(fluid.finish[-1] - fluid.finish[1] - taken) > 0.02 * taken
    row = in_a_row(size, 50)
    assert took(row, TCP) == pytest.approx(took(row, TCP, engine="ns3"), rel=0.025)


def test_shared_cables_make_it_too_much_by_no_more_than_the_pauses(packets):
    for many, size in ((2, 1e5), (8, 1e4), (8, 1e5), (8, 1e6)):
        builder = TraceBuilder(FABRIC.hosts)
        builder.flows(list(range(8, 8 + many)), [0] * many, [size] * many)  # all as far
        trace = builder.build()
        ours, real = took(trace, TCP), took(trace, TCP, engine="ns3")
        alone = one(size, 12, 0)
        pauses = took(alone, TCP) - took(alone, RDMA) - TRIP_S
        assert real * 0.99 < ours < real + pauses + 8 * PACKET_S


def test_slow_start_of_a_share_of_all_bytes_is_refused(packets):
    with pytest.raises(RFabricError, match="of 0.5 of all bytes, slow start would not be seen"):
        simulate(FABRIC, one(1e6), transport=TCP, engine="ns3", share=0.5)

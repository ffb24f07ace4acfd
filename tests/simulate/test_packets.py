"""The packet engine against what packets must take: lines, queues, order; and against the fluid."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ns3", reason="ns-3 is not installed (rfabric[ns3])")

from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.optics import Circuits, Timing
from rfabric.report.result import fidelity
from rfabric.routing.schemes import ECMP
from rfabric.simulate import packets
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder, ring
from rfabric.trace.pairs import Pairs, PairWays

SMALL = "fat-tree,pods=2,tors=2,gpus=4"  # h1 to h16, NICs of 400 Gbit/s
BYTES_S = 400e9 / 8
PACKET_S = packets.MTU / BYTES_S


@pytest.fixture(scope="module", autouse=True)
def built():
    packets.require()


def trace_of(fabric, *flows, **more):
    """(src, dst, bytes) each, hosts counted from 0, all at once."""
    builder = TraceBuilder(fabric.hosts)
    builder.flows(*map(list, zip(*flows, strict=True)), **more)
    return builder.build()


def took(fabric, trace, **options):
    result = simulate(fabric, trace, engine="ns3", **options)
    return result, result.finish - result.start


def test_a_flow_takes_its_bytes_at_line_rate_and_its_packets_ways():
    fabric = parse_fabric(SMALL)
    _, (near, far) = took(fabric, trace_of(fabric, (0, 1, 5e7), (4, 12, 5e7)))
    assert 5e7 / BYTES_S < near < far
    # a handshake, and the last packet cable by cable
    assert far < 5e7 / BYTES_S + 12 * PACKET_S + 2e-5
    assert far - near == pytest.approx(4 * PACKET_S + 4 * 5e-7 * 3, abs=8e-6)


@pytest.mark.parametrize("many", [2, 5])
def test_flows_to_one_host_share_its_cable(many):
    fabric = parse_fabric(SMALL)
    flows = [(4 + i, 0, 2e7) for i in range(many)]
    result, seconds = took(fabric, trace_of(fabric, *flows))
    assert seconds == pytest.approx(many * 2e7 / BYTES_S, rel=0.03)
    assert result.link_bytes.max() == pytest.approx(many * 2e7, rel=1e-9)


def test_both_ways_of_a_cable_are_used_in_full():
    fabric = parse_fabric(SMALL)
    _, seconds = took(fabric, trace_of(fabric, (0, 12, 5e7), (12, 0, 5e7)))
    assert seconds == pytest.approx(5e7 / BYTES_S, rel=0.03)


def test_rows_wait_for_each_other_and_compute_between():
    fabric = parse_fabric(SMALL)
    builder = TraceBuilder(fabric.hosts)
    first = builder.flows([0], [12], [1e7])
    made = [builder.compute(12, 0.25, after=first)]
    builder.flows([12], [1], [1e7], after=made)
    result, _ = took(fabric, builder.build())
    assert result.start[2] == pytest.approx(result.finish[0] + 0.25, abs=1e-9)
    assert result.finish[1] == pytest.approx(result.finish[0] + 0.25, abs=1e-9)


def test_small_messages_one_after_another_take_what_no_fluid_says():
    fabric = parse_fabric(SMALL)
    builder, before = TraceBuilder(fabric.hosts), []
    for step in range(20):
        ends = ([0], [12]) if step % 2 else ([12], [0])
        before = builder.flows(*ends, [1e4], after=before)
    trace = builder.build()
    sent, _ = took(fabric, trace)
    fluid = simulate(fabric, trace)
    assert sent.step_seconds > 1.3 * fluid.step_seconds
    # two packets over six cables, each cable's delay, and the two handshakes
    most = 20 * (7 * PACKET_S + 6 * 5e-7) + 4 * 12 * 5e-7 + 20 * 2e-6
    assert sent.step_seconds < most


@pytest.mark.parametrize("spec", ["fat-tree", "leaf-spine", "rfabric", "mixnet"])
def test_a_ring_over_racks_is_what_the_fluid_says(spec, monkeypatch):
    monkeypatch.setattr(packets, "BUDGET", 1e5)
    fabric = parse_fabric(spec, 32)
    builder = TraceBuilder(fabric.hosts)
    edges = ring("all-reduce", range(0, 32, 2), 4e10, 2)
    builder.flows(edges.src, edges.dst, edges.size)
    trace = builder.build()
    expected = simulate(fabric, trace)
    result, _ = took(fabric, trace)
    assert result.scale.bandwidth < 1
    assert fidelity(result, expected)["worst_error"] < 0.04
    assert [c for _, c in result.epochs] == [c for _, c in expected.epochs]
    sums = result.link_bytes.sum(), expected.link_bytes.sum()
    assert sums[0] == pytest.approx(sums[1], rel=0.02)


def test_flows_wait_for_their_turn_of_a_rotor():
    """What is told before anything has run must not end the wait for the next matching."""
    fabric = parse_fabric("rotor")
    trace = trace_of(fabric, (0, 1, 1), (0, 32, 5e7), (4, 49, 2e8))
    result, _ = took(fabric, trace)
    expected = simulate(fabric, trace)
    assert result.step_seconds == pytest.approx(expected.step_seconds, rel=0.02)


@pytest.mark.parametrize("how", ["hold", "drain"])
def test_circuits_change_under_flows(how, monkeypatch):
    monkeypatch.setattr(packets, "BUDGET", 1e5)
    fabric = parse_fabric("rfabric,pods=2,tors=2,gpus=4,planes=1,delay=1ms")
    builder = TraceBuilder(fabric.hosts)
    builder.flows([0, 4], [4, 0], [5e9, 5e9], phase="training", label="first")
    builder.flows([1, 9], [9, 1], [2e10, 2e10], start=0.02, phase="training", label="second")
    trace, timing = builder.build(), Timing(in_flight=how)
    policy = "demand,granularity=per-collective"
    expected = simulate(fabric, trace, policy, timing=timing)
    result, _ = took(fabric, trace, policy=policy, timing=timing)
    assert len(result.rewires) == len(expected.rewires) > 0
    assert result.step_seconds == pytest.approx(expected.step_seconds, rel=0.03)


def test_one_simulation_of_packets_at_a_time_and_the_next_after_it():
    fabric = parse_fabric(SMALL)
    first = packets.PacketEngine(fabric, 1.0)
    with pytest.raises(RFabricError, match="another simulation of packets is under way"):
        packets.PacketEngine(fabric, 1.0)
    first.close()
    packets.PacketEngine(fabric, 1.0).close()


def test_too_many_hosts_and_parts_of_a_flow_are_refused():
    fabric = parse_fabric("fat-tree,pods=8,tors=4,gpus=8")
    with pytest.raises(RFabricError, match="has 256 hosts; packets are simulated on 128"):
        took(fabric, trace_of(fabric, (0, 255, 1e6)))
    small = parse_fabric(SMALL)
    with pytest.raises(RFabricError, match="split"):
        took(small, trace_of(small, (0, 12, 1e6)), routing="split")


def test_the_same_trace_takes_the_same_time_twice():
    fabric = parse_fabric("leaf-spine,tors=4,gpus=4,oversubscription=2")
    rng = np.random.default_rng(0)
    ends = [rng.permutation(16).tolist() for _ in range(2)]
    flows = [(a, b, 1e7) for a, b in zip(*ends, strict=True) if a != b]
    once, again = (took(fabric, trace_of(fabric, *flows))[0].finish for _ in range(2))
    assert once.tolist() == again.tolist()


def test_tiny_flows_beyond_what_ns3_connects_are_refused_with_an_estimate():
    fabric = parse_fabric(SMALL)
    many = trace_of(fabric, *[(4, 0, 1000)] * 60_000)
    with pytest.raises(RFabricError, match=r"60,000 flows .* about [\d,]+ s.* --engine ns3"):
        simulate(fabric, many, engine="ns3")


FEW_PORTS = """
import sys
from pathlib import Path
from rfabric.routing.schemes import ECMP
from rfabric.simulate import packets
packets.SOURCE = Path(sys.argv[1])
from test_packets import SMALL, parse_fabric, took, trace_of
fabric = parse_fabric(SMALL)
assert took(fabric, trace_of(fabric, *[(4, 0, 1000)] * 3))[1].all()
took(fabric, trace_of(fabric, *[(4, 0, 1000)] * 4))
"""


def test_a_host_without_a_port_left_is_refused(tmp_path):
    """In a process of its own: ns-3 is loaded once in each."""
    source = packets.SOURCE.read_text()
    assert source.count("kLastPort = 65535") == 1
    few = tmp_path / "packets.cpp"
    few.write_text(source.replace("kLastPort = 65535", "kLastPort = 10002"))
    command = [sys.executable, "-c", FEW_PORTS, str(few)]
    ran = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    assert ran.returncode == 1 and "AssertionError" not in ran.stderr
    assert re.search(r"RunError: ns-3: no port is left .*\(simulate fewer flows", ran.stderr)


def test_connections_count_once_where_flows_of_a_pair_wait_for_each_other():
    fabric = parse_fabric(SMALL)

    def counted(trace, each=False):
        return packets.connections(trace, each).sum()

    builder, last = TraceBuilder(fabric.hosts), None
    for _ in range(50):
        last = builder.flows([4], [0], [1000], after=[] if last is None else last)
    assert counted(builder.build()) == counted(trace_of(fabric, (4, 0, 1000))) == 1
    assert counted(trace_of(fabric, *[(4, 0, 1000)] * 50)) == counted(builder.build(), True) == 50
    later = TraceBuilder(fabric.hosts)
    for second in range(50):
        later.flows([4], [0], [1000], start=float(second))
    assert counted(later.build()) == 1


def test_the_estimate_grows_with_packets_cables_and_connections_of_a_host():
    fabric = parse_fabric(SMALL)

    def seconds(trace, share=1.0):
        pairs = Pairs(fabric, trace)
        ways = PairWays(fabric, pairs, Circuits(), ECMP)
        return packets.run_seconds(trace, ways, share)

    far, near = (seconds(trace_of(fabric, (0, dst, 9e9))) for dst in (12, 1))
    assert far == pytest.approx(3 * near, rel=0.01)  # six cables, and two
    assert seconds(trace_of(fabric, (0, 12, 9e9)), 0.1) == pytest.approx(far / 10, rel=0.01)
    # ten times the connections, each looked through for each packet
    into_one = (seconds(trace_of(fabric, *[(12, 0, 1e3)] * many)) for many in (2000, 20_000))
    assert np.divide(*into_one) < 1 / 50
    spread = [(i, (i + 1 + k // 16) % 16, 1e3) for k in range(2000) for i in [k % 16]]
    spread = [(a, b, size) for a, b, size in spread if a != b]
    assert seconds(trace_of(fabric, *spread)) < seconds(trace_of(fabric, *[(12, 0, 1e3)] * 2000))

"""The dark-time probe: its packets, its arithmetic, and as root a path cut for a known time."""

import dataclasses
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from real import crossed, in_namespace, network_under_control, prepare_namespace

from rfabric.fabric import parse_fabric

ROOT = Path(__file__).parents[2]
PROBE = ROOT / "traffic/probe.py"
HAS_SCAPY = "no scapy: pip install 'rfabric[probe]'"


@pytest.fixture(scope="module")
def probe():
    spec = importlib.util.spec_from_file_location("probe", PROBE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def frame_of(probe, number=0, sent_ns=0, magic=None):
    frame = bytearray(14 + 20 + 8) + probe.STAMP.pack(magic or probe.MAGIC, number, sent_ns)
    frame[12:15], frame[23] = b"\x08\x00\x45", 17
    frame[36:38] = probe.PORT.to_bytes(2, "big")
    return bytes(frame)


def test_a_probe_is_read_as_it_was_written(probe):
    assert probe.parse(frame_of(probe, 7, 123)) == (probe.MAGIC, 7, 123)
    for broken in (frame_of(probe)[:50], frame_of(probe, magic=b"abcd"), b"\x00" * 80):
        assert probe.parse(broken) is None
    elsewhere = bytearray(frame_of(probe))
    elsewhere[36:38] = b"\x00\x35"
    assert probe.parse(bytes(elsewhere)) is None


def test_scapy_builds_what_the_listener_reads(probe, monkeypatch):
    pytest.importorskip("scapy", reason=HAS_SCAPY)
    import scapy.arch

    monkeypatch.setattr(scapy.arch, "get_if_addr", lambda interface: "10.0.0.1")
    monkeypatch.setattr(scapy.arch, "get_if_hwaddr", lambda interface: "00:00:00:00:00:01")
    frame = probe.build("h1-eth1", "10.0.0.2", "00:00:00:00:00:02")
    probe.STAMP.pack_into(frame, probe.HEAD, probe.MAGIC, 5, 99)
    assert len(frame) == probe.HEAD + probe.STAMP.size and probe.parse(frame) == (
        probe.MAGIC,
        5,
        99,
    )
    assert frame[:6] == bytes([0, 0, 0, 0, 0, 2]) and frame[26:34] == bytes(
        [10, 0, 0, 1, 10, 0, 0, 2]
    )


def test_the_longest_gap_is_the_dark_time(probe):
    ms = 1_000_000
    sent = [(n, n * ms) for n in range(100)]
    heard = [s for s in sent if not 20 <= s[0] < 25 and not 60 <= s[0] < 72]
    report = probe.report(heard, 100)
    assert (report["sent"], report["received"], report["lost"], report["reordered"]) == (
        100,
        83,
        17,
        0,
    )
    assert report["longest_gap_s"] == pytest.approx(0.013) and report[
        "interval_s"
    ] == pytest.approx(0.001)
    assert [(g["from_s"], g["to_s"], g["lost"]) for g in report["gaps"]] == [
        (pytest.approx(0.019), pytest.approx(0.025), 5),
        (pytest.approx(0.059), pytest.approx(0.072), 12),
    ]


def test_late_duplicate_and_reordered_probes_are_no_gap(probe):
    heard = [(0, 0), (2, 2_000_000), (1, 1_000_000), (2, 2_000_000), (3, 9_000_000)]
    report = probe.report(heard, 4)
    assert (
        report["gaps"] == []
        and report["longest_gap_s"] == 0
        and report["reordered"] == 1
        and report["lost"] == 0
    )


def test_what_passed_beside_says_how_much_of_a_gap_was_a_stall(probe):
    """Dark from 20 to 30 ms; the host stood still from 26 to 37 ms."""
    ms = 1_000_000
    at = [37 if 26 <= n < 37 else n for n in range(100)]
    beside = [(n, at[n] * ms) for n in range(100)]
    heard = [beside[n] for n in range(100) if not 20 <= n < 30]
    gap = probe.report(heard, 100, beside)["gaps"]
    assert [(g["from_s"], g["to_s"], g["lost"]) for g in gap] == [(0.019, 0.037, 10)]
    assert gap[0]["least_s"] == pytest.approx(0.017) and gap[0]["silent_s"] == pytest.approx(0.012)


def test_a_gap_in_which_nothing_passed_beside_was_the_hosts_own(probe):
    heard = [(n, n * 1_000_000) for n in (0, 1, 50, 51)]
    gap = probe.report(heard, 52, heard)["gaps"][0]
    assert gap["least_s"] == 0 and gap["silent_s"] == pytest.approx(0.049)


def test_what_waited_for_the_circuit_is_no_darkness(probe):
    """Each probe takes 3 ms longer than its twin to the circuit, which is dark from 20 to 30 ms."""
    ms = 1_000_000
    beside = [(n, n * ms) for n in range(100)]
    heard = [(n, (n + 3) * ms) for n in range(100) if not 20 <= n + 3 < 30]
    gap = probe.report(heard, 100, beside)["gaps"][0]
    assert gap["least_s"] == pytest.approx(0.009) and gap["behind_s"] == pytest.approx(0.003)


def test_without_any_probe_there_is_nothing_to_say_but_that(probe):
    report = probe.report([], None)
    assert (report["sent"], report["received"], report["interval_s"], report["gaps"]) == (
        None,
        0,
        None,
        [],
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["listen", "--interface", "nosuch-eth1"], "probe: nosuch-eth1: "),
        (["listen", "--interface", "lo", "--seconds", "0"], "0 must be above 0 and below 3600"),
        (["send", "--interface", "lo"], "--to-ip"),
    ],
)
def test_bad_arguments_end_with_a_message(options, text):
    ran = subprocess.run([sys.executable, str(PROBE), *options], capture_output=True, text=True)
    assert ran.returncode == 2 and text in ran.stderr and "Traceback" not in ran.stderr


def test_the_probe_stands_alone(probe):
    """It runs inside host namespaces: the standard library, and scapy inside one function."""
    code = (
        "import runpy, sys; before = set(sys.modules); runpy.run_path(sys.argv[1]); "
        "print([m for m in set(sys.modules) - before if m.split('.')[0] not in "
        "sys.stdlib_module_names])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(PROBE)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"


CUT = 0.25  # s


def cut_path(folder):
    """a0 == a1 -> redirect -> b1 == b0, and the redirect is taken away for a while."""
    prepare_namespace()

    def run(line):
        subprocess.run(line.split(), check=True)

    redirect = (
        "dev a1 parent ffff: prio 1 protocol all u32 match u32 0 0 "
        "action mirred egress redirect dev b1"
    )
    for end in "ab":
        run(f"ip link add {end}0 type veth peer name {end}1")
        run(f"ip link set {end}0 up")
        run(f"ip link set {end}1 up")
    run("ip address add 10.0.0.1/24 dev a0")
    run("tc qdisc add dev a1 ingress")
    run(f"tc filter add {redirect}")
    listen = [sys.executable, str(PROBE), "listen", "--interface", "b0", "--seconds", "20"]
    send = [
        sys.executable,
        str(PROBE),
        "send",
        "--interface",
        "a0",
        "--to-ip",
        "10.0.0.2",
        "--interval-ms",
        "1",
    ]
    counter = Path("/sys/class/net/b0/statistics/rx_packets")
    with subprocess.Popen(
        listen, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as listener:
        listener.stderr.readline()
        with subprocess.Popen(
            [*send, "--to-mac", "00:00:00:00:00:02", "--seconds", "1.5"]
        ) as sender:
            while int(counter.read_text()) < 200:
                time.sleep(0.01)
            before = time.monotonic()
            run("tc filter del dev a1 parent ffff: prio 1")
            cut = time.monotonic()
            time.sleep(CUT)
            mended = time.monotonic()
            run(f"tc filter add {redirect}")
            after = time.monotonic()
            sender.wait()
        report = json.loads(listener.communicate()[0])
    print(json.dumps({"report": report, "times": [before, cut, mended, after]}))


@pytest.mark.root
def test_a_cut_of_known_length_is_measured(run_dir):
    pytest.importorskip("scapy", reason=HAS_SCAPY)
    said = in_namespace(cut_path, run_dir)
    report, (before, cut, mended, after) = said["report"], said["times"]
    longest = max(report["gaps"], key=lambda gap: gap["to_s"] - gap["from_s"])
    assert (
        report["received"] + report["lost"] == report["sent"]
        and report["lost"] >= longest["lost"] > 0
    )
    assert before - 0.05 < longest["from_s"] < cut and mended < longest["to_s"] < after + 0.05
    assert (
        CUT < report["longest_gap_s"] == longest["to_s"] - longest["from_s"] < after - before + 0.1
    )


# --- rewires --------------------------------------------------------------------------------------

REWIRES = 100
DARK_S = 0.01


def rewires_heard(folder):
    """Rewires of a small fabric, heard at the port where the last circuit of the way ends."""
    spec = f"rfabric,pods=2,tors=2,gpus=2,planes=1,delay={DARK_S * 1e3:g}ms"
    fabric = parse_fabric(spec)
    with network_under_control(folder, spec) as (net, client, _, straight):
        both = crossed(fabric, straight), straight
        told = {"switches": len(fabric.switches), **heard_while(net, fabric, client, both)}
    print(json.dumps(told))


def heard_while(net, fabric, client, both):
    """What the probe heard of REWIRES rewires to and fro, and what the controller says of them."""
    source, sink, neighbour = net["h1"], net[fabric.hosts[-1]], net["h2"]
    run = [sys.executable, str(PROBE)]
    ping = ["mnexec", "-a", str(source.pid), "ping", "-c20", "-i0.01", "-q", sink.IP()]
    subprocess.run(ping, capture_output=True, check=True)
    seconds = str(REWIRES * 0.25)
    ears = ["--interface", busiest(fabric, "t4"), "--beside", port_of(fabric, "h2")]
    listen = [*run, "listen", *ears, "--seconds", "120"]
    ends = ["--to-ip", sink.IP(), "--to-mac", sink.MAC()]
    ends += ["--beside-ip", neighbour.IP(), "--beside-mac", neighbour.MAC()]
    send = ["mnexec", "-a", str(source.pid), *run, "send", "--interface", "h1-eth1", *ends]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    done = []
    with subprocess.Popen(listen, **pipes) as listener:
        listener.stderr.readline()
        with subprocess.Popen([*send, "--seconds", seconds]) as sender:
            time.sleep(1.0)
            while len(done) < REWIRES and sender.poll() is None:
                plan = client.plan_circuits(both[len(done) % 2], in_flight="drop")
                done.append(dataclasses.asdict(client.commit(plan.epoch)))
                time.sleep(0.05)  # light between two rewires
            sender.wait()
        return {"rewires": done, "probe": json.loads(listener.communicate()[0])}


def port_of(fabric, host):
    """The interface of the packet switch that a host hangs on."""
    link = next(k for k in fabric.links if host in (k.a.node, k.b.node))
    return (link.b if link.a.node == host else link.a).interface


def busiest(fabric, tor):
    """The port of a rack's switch to the optical ones that received the most packets."""
    names = [
        port.interface
        for port in fabric.ports[tor]
        if fabric.node[fabric.peer[port][1].node].kind == "ocs"
    ]
    return max(
        names, key=lambda n: int(Path(f"/sys/class/net/{n}/statistics/rx_packets").read_text())
    )


@pytest.mark.root
def test_the_dark_of_many_rewires_is_heard_apart_from_stalls_of_the_host(run_dir):
    pytest.importorskip("scapy", reason=HAS_SCAPY)
    said = in_namespace(rewires_heard, run_dir)
    gaps, rewires = said["probe"]["gaps"], said["rewires"]
    assert len(rewires) >= REWIRES / 2
    most, least, over = [], [], []
    for one in rewires:
        own = [g for g in gaps if g["from_s"] < one["dark_until"] and g["to_s"] > one["programmed"]]
        if not own:
            continue  # a sender that stood still lost nothing
        gap = max(own, key=lambda g: g["to_s"] - g["from_s"])
        most.append(gap["to_s"] - gap["from_s"])
        least.append(gap["least_s"])
        rewire = one["usable"] - one["requested"]
        waited = gap["silent_s"] + gap["behind_s"]
        over.append(gap["least_s"] - rewire - waited - said["probe"]["interval_s"])
    assert len(most) >= 0.9 * len(rewires)
    # what was lost, was lost during the rewire, give or take a packet and what it waited for: of
    # nineteen in twenty, since what other programs hold up is not all of it seen
    assert np.quantile(over, 0.95) <= 0.0
    for name, seconds in (("gap", most), ("dark for sure", least)):
        ms = np.quantile(seconds, (0, 0.5, 0.95, 1)) * 1e3
        print(f"{len(rewires)} rewires, {said['switches']} switches, {name}: ms min, p50, p95, max",
              ms.round(2))  # fmt: skip
    # Some gaps are shorter than configured, by up to 1.4 ms of 10 where it was measured; why is not
    # explained yet. Half of them are not.
    assert np.median(most) >= DARK_S
    # no stall of the host is taken for darkness: half of the gaps are explained by the rewire alone
    assert np.median(least) >= 0.8 * DARK_S

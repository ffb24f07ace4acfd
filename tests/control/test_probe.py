"""The dark-time probe: its packets, its arithmetic, and as root a path cut for a known time."""

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_control import in_namespace, prepare_namespace

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
    report = probe.report((heard, 100))
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
    report = probe.report((heard, 4))
    assert (
        report["gaps"] == []
        and report["longest_gap_s"] == 0
        and report["reordered"] == 1
        and report["lost"] == 0
    )


def test_without_any_probe_there_is_nothing_to_say_but_that(probe):
    report = probe.report(([], None))
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

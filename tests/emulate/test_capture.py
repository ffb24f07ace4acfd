"""Packets at a node of an emulation: files that other programs open, and nothing left behind."""

import subprocess

import pytest

from rfabric.cli import main
from rfabric.emulate import capture
from rfabric.fabric import parse_fabric
from rfabric.trace import read_trace

SPEC = "fat-tree,pods=2,tors=2,gpus=1"
FLOWS = "src,dst,size_bytes,start_s\nh1,h2,4000000000,0\nh1,h3,2000000000,0\n"
MTU, UNDER_WAY = 1514, 4  # bytes, packets


def test_what_is_written_is_read_with_ports_times_and_whole_lengths(tmp_path):
    scapy = pytest.importorskip("scapy.utils")
    time = 1_700_000_000_123_456_789
    (tmp_path / "t.pcapng").write_bytes(
        capture.section(["t1-eth1", "t1-eth2"])
        + capture.packet(0, time, b"\x01" * 61, 9000, capture.INBOUND)
        + capture.packet(1, time + 5, b"\x02" * 128, 128, capture.OUTBOUND)
    )
    with scapy.RawPcapNgReader(str(tmp_path / "t.pcapng")) as reader:
        (one, first), (two, second) = reader
    assert one == b"\x01" * 61 and first.wirelen == 9000 and first.ifname == b"t1-eth1"
    assert (first.tshigh << 32 | first.tslow, second.ifname) == (time, b"t1-eth2")
    assert two == b"\x02" * 128 and second.tsresol == 10**9


def test_what_cannot_be_captured_is_said_before_anything_runs(tmp_path, capsys, monkeypatch):
    (tmp_path / "t.csv").write_text(FLOWS)
    words = ["replay", str(tmp_path / "t.csv"), "--topo", SPEC, "--out", str(tmp_path / "runs")]
    assert main([*words, "--pcap", "h1"]) == 2
    assert "--pcap captures packets, and a simulation has none" in capsys.readouterr().err
    monkeypatch.setattr("rfabric.cli.runs.require", lambda _: None)
    assert main([*words, "--engine", "emulate", "--pcap", "e9"]) == 2
    assert "--pcap e9: no node of fat-tree; its 11 nodes are h1" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_files_of_fabrics_and_policies_have_names_of_their_own():
    fabric = parse_fabric(SPEC)
    names = {capture.file_name(fabric, policy, "h1") for policy in ("own", "demand,window=1s")}
    assert names == {
        "fat-tree-pods=2-tors=2-gpus=1-own-h1.pcapng",
        "fat-tree-pods=2-tors=2-gpus=1-demand-window=1s-h1.pcapng",
    }


@pytest.mark.root
def test_packets_at_a_host_and_at_a_switch_are_those_of_the_trace(tmp_path, capsys):
    pytest.importorskip("scapy")
    (tmp_path / "t.csv").write_text(FLOWS)
    words = f"--topo {SPEC} --engine emulate --bandwidth-scale 0.0005 --time-dilation 10"
    nodes = "--pcap h1 --pcap t1"
    out = tmp_path / "runs"
    code = main(["replay", str(tmp_path / "t.csv"), *words.split(), *nodes.split(), "--out",
                 str(out)])  # fmt: skip
    printed = "".join(capsys.readouterr())
    assert code in (0, None), printed
    assert "h1: " in printed and "packets captured, their first 128 bytes" in printed
    host, switch = sorted(out.glob("*/pcap/*.pcapng"))
    sent = read_trace(host)
    at = sent.provenance["hosts"]
    out_of = {
        at[sent.hosts[b]]: int(size)
        for a, b, size in zip(sent.src, sent.dst, sent.size, strict=True)
        if at[sent.hosts[a]] == "10.0.0.1"
    }
    # payload 2 MB and 1 MB, and what headers and warming add
    assert 1 < out_of["10.0.0.2"] / 2e6 < 1.1 and 1 < out_of["10.0.0.3"] / 1e6 < 1.1
    # each packet comes in at one port of the switch and goes out at another, but for those under
    # way when a capture begins or ends
    assert abs(read_trace(switch).size.sum() - 2 * sent.size.sum()) <= UNDER_WAY * MTU
    alive = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(out) not in alive and len(list(out.iterdir())) == 1

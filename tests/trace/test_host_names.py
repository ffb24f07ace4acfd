"""Traces that call hosts as the file of a network does."""

import pytest
from test_captures import capture, packet

import rfabric
from rfabric.errors import RFabricError
from rfabric.fabric import fat_tree, parse_fabric
from rfabric.fabric.called import hosts_called
from rfabric.trace.formats import read_trace

LAB = """name: lab
topology:
  nodes:
    leaf1: {kind: nokia_srlinux}
    leaf2: {kind: nokia_srlinux}
    zulu: {kind: linux}
    gpu-b: {kind: linux}
    gpu-a: {kind: linux}
  links:
    - endpoints: ["leaf1:e1", "leaf2:e1"]
    - endpoints: ["leaf1:e2", "zulu:eth1"]
    - endpoints: ["leaf1:e3", "gpu-b:eth1"]
    - endpoints: ["leaf2:e2", "gpu-a:eth1"]
"""
GML = """graph [
  node [ id 0 label "leaf1" ] node [ id 1 label "zulu" ] node [ id 2 label "gpu-b" ]
  node [ id 3 label "gpu-a" ]
  edge [ source 1 target 0 ] edge [ source 2 target 0 ] edge [ source 3 target 0 ]
]
"""
EDGES = "leaf1 zulu {}\nleaf1 gpu-b {}\nleaf1 gpu-a {}\n"
FLOWS = "src,dst,size_bytes\ngpu-a,gpu-b,1000000\nzulu,gpu-b,2000000\n"


def written(folder, name, text):
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.parametrize(
    "name, text", [("lab.clab.yml", LAB), ("net.gml", GML), ("net.edgelist", EDGES)]
)
def test_hosts_are_found_by_their_own_names(tmp_path, name, text):
    """Two flows into one NIC of 100 Gbit/s: half each, until the second has it alone."""
    flows = written(tmp_path, "f.csv", FLOWS)
    run = rfabric.simulate(f"{written(tmp_path, name, text)},rate=100Gbit/s", flows)
    result = run.result
    assert result.trace.pairs() == [("h3", "h2"), ("h1", "h2")]
    assert result.trace.provenance["hosts"] == {"h1": "zulu", "h2": "gpu-b", "h3": "gpu-a"}
    assert sorted(result.finish) == pytest.approx([160e-6, 240e-6], rel=0.02)
    called = "gpu-a is h3, gpu-b is h2, zulu is h1"
    assert f"hosts found by the names of their file: {called}" in result.notes


def test_addresses_of_a_capture_are_found_where_the_network_has_them(tmp_path):
    """Not by the order in which they talk: the first to send is the last of the network."""
    pytest.importorskip("scapy")
    table = "ip,tor\n10.0.0.1,t1\n10.0.0.2,t1\n10.0.0.3,t1\n"
    fabric = parse_fabric(written(tmp_path, "net.csv", table))
    path = capture(tmp_path / "t.pcap", packet("10.0.0.3", "10.0.0.1"))
    trace = read_trace(path)
    assert trace.pairs() == [("h1", "h2")] and trace.fit(fabric).pairs() == [("h3", "h1")]
    assert trace.fit(fabric).fit(fabric).pairs() == [("h3", "h1")]
    assert trace.fit(fat_tree(pods=2, tors=2, gpus=2)).pairs() == [("h1", "h2")]
    other = read_trace(capture(tmp_path / "t.pcap", packet("10.0.0.3", "10.0.0.9")))
    with pytest.raises(RFabricError, match="lacks, first 10.0.0.9.*: leave out what it"):
        other.fit(fabric)


def test_numbers_count_before_names():
    fabric = fat_tree(pods=2, tors=2, gpus=2)
    assert hosts_called(fabric, ["h2", "h1"]) == ("h2", "h1")


@pytest.mark.parametrize("host, why", [
    ("gpu-c", "lab.clab.yml lacks, first gpu-c, did you mean gpu-b?; it has 3 hosts, h1 to h3, in "
     "its file gpu-a, gpu-b, zulu: name all in one of these ways"),
    ("h2", "lacks, first h2 among the names of its file; it has 3 hosts, h1 to h3"),
    ("leaf1", "lacks, first leaf1; it has 3 hosts"),
    ("h9", "first h9; it has 3 hosts, h1 to h3, and one is a GPU with its NIC: give a network of"),
])  # fmt: skip
def test_a_name_that_the_file_lacks_is_said_with_those_it_has(tmp_path, host, why):
    trace = read_trace(written(tmp_path, "f.csv", FLOWS.replace("zulu", host)))
    fabric = parse_fabric(written(tmp_path, "lab.clab.yml", LAB))
    with pytest.raises(RFabricError) as error:
        trace.fit(fabric)
    assert f"names 1 hosts that {tmp_path}/" in str(error.value) and why in str(error.value)


def test_a_host_of_two_nics_is_named_by_one_of_them(tmp_path):
    lab = LAB + '    - endpoints: ["leaf2:e3", "gpu-b:eth2"]\n'
    fabric = parse_fabric(written(tmp_path, "lab.clab.yml", lab))
    with pytest.raises(RFabricError, match="first gpu-b, whose NICs are gpu-b:1, gpu-b:2; it has"):
        read_trace(written(tmp_path, "f.csv", FLOWS)).fit(fabric)
    flows = FLOWS.replace("gpu-b", "gpu-b:2")
    assert read_trace(written(tmp_path, "f.csv", flows)).fit(fabric).hosts == ("h4", "h3", "h1")


def test_networks_that_number_the_same_names_otherwise_are_not_compared(tmp_path):
    """A run folder has one trace for all of its runs."""
    files = (
        written(tmp_path, "a.edgelist", EDGES),
        written(tmp_path, "b.edgelist", "".join(EDGES.splitlines(True)[::-1])),
    )
    with pytest.raises(RFabricError, match="of f are others by number in .*a.edge.* than in .*b.e"):
        rfabric.compare(list(files), written(tmp_path, "f.csv", FLOWS))

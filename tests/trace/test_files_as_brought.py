"""Files as people bring them: damaged, empty, one behind another."""

import gzip
import json

import pytest
from test_importers import chakra, receive, send

from rfabric.errors import RFabricError
from rfabric.trace import read_trace
from rfabric.trace.formats.chakra_wire import ChakraNode

SIZES = "bytes,percent\n0,0\n1000,50\n9000,100\n"
GRAPH = {"schema": "1.1.1-chakra.0.0.4", "nodes": []}


def brought(folder, name, data):
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder / name


@pytest.mark.parametrize("name", ["t.txt", "t.csv", "t.json", "t.jsonl", "t.et"])
def test_a_packed_file_that_ends_early_is_no_file_of_another_format(tmp_path, name):
    data = gzip.compress(b"MICRO\n3\n" + b"grad_norm -1 556 NONE 0 556 NONE 0 556 NONE 0 100\n" * 3)
    with pytest.raises(RFabricError, match="cannot be read: is a damaged gzip file: .* ended bef"):
        read_trace(brought(tmp_path, name, data[:-12]))


@pytest.mark.parametrize("name", ["t.json", "t.csv", "t.txt", "t.cdf"])
@pytest.mark.parametrize("text", ["", " \n\n"])
def test_an_empty_file_is_said_to_be_empty(tmp_path, name, text):
    with pytest.raises(RFabricError, match="holds no flow: it is empty"):
        read_trace(brought(tmp_path, name, text))


@pytest.mark.parametrize("text, why", [
    (SIZES[:-7], "line 4: '90' is not `bytes,percent`"),
    (SIZES[:-9], "ends at 50; the last row is 100"),
    (SIZES + "0,0\n1,100\n", "row 4: bytes fall"),
])  # fmt: skip
def test_a_distribution_that_is_not_whole_is_still_known_as_one(tmp_path, text, why):
    with pytest.raises(RFabricError, match=why):
        read_trace(brought(tmp_path, "sizes.csv", text), load="0.3")


def test_graphs_one_behind_another_are_refused(tmp_path):
    with pytest.raises(RFabricError, match="t.json: 2 graphs, one behind the other; give each"):
        read_trace(brought(tmp_path, "t.json", json.dumps(GRAPH) * 2), "chakra-json")


def test_json_lines_say_which_line_is_cut_and_stamps_where_they_may_count_from(tmp_path):
    line = '{"src": "h1", "dst": "h2", "size_bytes": 3}\n'
    with pytest.raises(RFabricError, match="t.jsonl: line 2: no valid JSON, it may be cut short"):
        read_trace(brought(tmp_path, "t.jsonl", line + line[:20]))
    text = "src,dst,size_bytes,start_s\nh1,h2,3,1760000000.5\n"
    with pytest.raises(RFabricError, match=r"at most 1e\+09; count from the first row"):
        read_trace(brought(tmp_path, "t.csv", text))


@pytest.mark.parametrize("received", [1000, 500])
def test_a_receive_of_other_bytes_than_its_send_is_said(tmp_path, caplog, received):
    folder = chakra(tmp_path / "c", [send(0, 1, size=1000)], [receive(0, 0, size=received)])
    assert read_trace(folder).size.sum() == 1000
    assert ("other bytes than their sends: those sent count" in caplog.text) == (received == 500)


@pytest.mark.parametrize("kind, why", [
    (99, "NodeType: '99' is no whole number from 0 to 7"),
    ("COLL", "NodeType: 'COLL' is no whole number from 0 to 7"),
    ("7", ""),
])  # fmt: skip
def test_a_node_of_a_type_that_is_none_is_no_computing(tmp_path, kind, why):
    nodes = [{"Id": 1, "NodeType": kind, "runtime": 5, "comm_size": 800, "comm_type": 0}]
    path = brought(tmp_path, "t.0.json", json.dumps({"workload_graph": nodes}))
    if why:
        with pytest.raises(RFabricError, match=why):
            read_trace(path, ranks="2")
    else:
        assert read_trace(path, ranks="2").size.sum() == 1600


def test_a_node_of_protobuf_of_a_type_that_is_none_is_no_computing(tmp_path):
    folder = chakra(tmp_path / "c", [ChakraNode(0, "x", 9, [], 5, {})])
    with pytest.raises(RFabricError, match="node 0 .x.: type: '9' is no whole number from 0 to 7"):
        read_trace(folder)

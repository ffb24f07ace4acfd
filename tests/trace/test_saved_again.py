"""Traces as editors, clouds and careless copies leave them: marks, lines twice, links that fail."""

import json

import pytest

from rfabric.errors import RFabricError
from rfabric.trace import read_trace

MARK = b"\xef\xbb\xbf"
COLLECTIVE = {
    "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "ts": 20,
    "dur": 5, "args": {
        "Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000,
        "Group size": 2, "dtype": "BFloat16", "Process Group Name": "0",
        "Process Group Ranks": "[0, 1]",
    },
}  # fmt: skip
PROFILE = {
    "schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 2},
    "traceEvents": [COLLECTIVE],
}  # fmt: skip
INSPECTED = {
    "header": {"id": "0x7f", "rank": 0, "n_ranks": 2, "nnodes": 2},
    "metadata": {
        "inspector_output_format_version": "v4.2", "dump_timestamp_us": 1748030377748202,
        "hostname": "node-1", "pid": 7,
    },
    "coll_perf": {
        "coll": "AllReduce", "coll_sn": 3, "coll_msg_size_bytes": 2000, "coll_exec_time_us": 5,
    },
}  # fmt: skip


SETTINGS = {
    "sizes.csv": {"load": "0.0001", "duration": "1ms"},
    "rank0.json": {"gpus_per_server": 1},
}


@pytest.mark.parametrize(
    "name, text, sent",
    [
        ("rank0.json", json.dumps(PROFILE), 4000),
        ("inspector.jsonl", json.dumps(INSPECTED) + "\n", 4000),
        ("sizes.csv", "bytes,percent\n100,0\n100,100\n", None),
    ],
)
def test_a_mark_before_the_text_changes_nothing(name, text, sent, tmp_path):
    totals = []
    for mark in (b"", MARK):
        (tmp_path / name).write_bytes(mark + text.encode())
        settings = SETTINGS.get(name, {})
        totals.append(int(read_trace(tmp_path / name, **settings).total.sum()))
    assert totals[0] == totals[1] and totals[0] == (sent or totals[0])


def test_a_line_of_inspector_that_stands_twice_is_named(tmp_path):
    line = json.dumps(INSPECTED) + "\n"
    (tmp_path / "inspector.jsonl").write_text(line + line)
    why = "line 2: rank 0 has AllReduce 3 of communicator 0x7f twice; keep one of the two lines"
    with pytest.raises(RFabricError, match=why):
        read_trace(tmp_path / "inspector.jsonl")


def test_links_that_fail_in_htsim_are_left_out_with_a_note(tmp_path, caplog):
    text = (
        "Nodes 4\nConnections 1\nFailures 2\n0->1 id 1 start 5000000 size 1000\n"
        "failure type agg id 1 link 0\nfailure type core id 0 link 3\n"
    )
    (tmp_path / "t.cm").write_text(text)
    trace = read_trace(tmp_path / "t.cm")
    assert trace.size.tolist() == [1000] and trace.start.tolist() == [5e-6]
    assert "2 failed links left out: no link of the fabric here fails" in caplog.text
    (tmp_path / "t.cm").write_text(text.removesuffix("failure type core id 0 link 3\n"))
    with pytest.raises(RFabricError, match="says Failures 2 and holds 1; is the file whole?"):
        read_trace(tmp_path / "t.cm")


def test_a_share_just_short_of_all_is_told_with_its_digits(tmp_path):
    (tmp_path / "w.cdf").write_text("0 0\n1000 99.99999\n")
    with pytest.raises(RFabricError, match="ends at 99.99999; the last row is 100"):
        read_trace(tmp_path / "w.cdf")


def test_other_files_in_a_folder_of_inspector_are_left_out_with_a_note(tmp_path, caplog):
    folder = tmp_path / "dumps"
    folder.mkdir()
    (folder / "node-1-pid7.log").write_text(json.dumps(INSPECTED) + "\n")
    (folder / "README.md").write_text("how it was run\n")
    assert int(read_trace(folder).total.sum()) == 4000
    assert "README.md: not of NCCL Inspector, left out" in caplog.text


@pytest.mark.parametrize("odd", ["NCCL version 2.28.3+cuda12.9\n", '{"header": {"id": "0x7f\n'])
def test_a_rank_of_inspector_below_an_odd_line_is_refused_and_not_left_out(odd, tmp_path):
    folder = tmp_path / "dumps"
    folder.mkdir()
    (folder / "r0.log").write_text(json.dumps(INSPECTED) + "\n")
    (folder / "r1.log").write_text(odd + json.dumps(INSPECTED) + "\n")
    with pytest.raises(RFabricError, match="r1.log, line 1: no valid JSON"):
        read_trace(folder)


@pytest.mark.parametrize(
    "text",
    [
        ",src,dst,size_bytes\n0,h1,h2,5\n1,h2,h1,7\n",  # pandas' index
        "src,dst,size_bytes,\nh1,h2,5,\nh2,h1,7,\n",
        "Src,DST,Size_Bytes\nh1,h2,5\nh2,h1,7\n",
    ],
)
def test_columns_without_a_name_or_in_capitals(text, tmp_path, caplog):
    (tmp_path / "t.csv").write_text(text)
    trace = read_trace(tmp_path / "t.csv")
    assert trace.hosts == ("h1", "h2") and trace.size.tolist() == [5, 7]
    assert ("a column without a name left out" in caplog.text) == ("Src" not in text)


def test_hosts_of_json_lines_may_be_numbers(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"src": 0, "dst": 10, "size_bytes": 5}\n')
    assert read_trace(tmp_path / "t.jsonl").hosts == ("0", "10")


def test_a_list_of_rows_is_told_how_rows_are_written(tmp_path):
    (tmp_path / "t.json").write_text('[{"src": "h1", "dst": "h2", "size_bytes": 5}]')
    with pytest.raises(RFabricError, match="t.json: is no Chakra graph, .* are JSON lines"):
        read_trace(tmp_path / "t.json")

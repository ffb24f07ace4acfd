"""Files of profilers and simulators that say less of groups, units and times than others: what is
completed, said or refused.
"""

import json

import pytest
from test_importers import aicb, call, chakra, sent, work
from test_recorded import kernel, notes, profile, sent_by_pair

from rfabric.errors import RFabricError
from rfabric.trace import read_trace
from rfabric.trace.formats.chakra_wire import ChakraNode, _entry, encoded
from rfabric.trace.formats.kineto import KINETO
from rfabric.trace.formats.kineto_groups import listed

# --- Kineto ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size", "ranks"),
    [
        ("[0, 1, 2]", 3, [0, 1, 2]),
        ("[]", 8, None),
        ("[0, 1, ..., 15]", 16, [*range(16)]),
        ("[0, 1, ..., 15]", None, [*range(16)]),
        ("[4, 12, 20, ...]", 5, [4, 12, 20, 28, 36]),
        ("[4, 12, 20, ...]", None, None),  # nobody knows how many
        ("[0, 1, 5, ...]", 8, [0, 1, 5]),  # not even: which the reader refuses
        ("[0, 1, ..., 15]", 8, [0, 1, 15]),
    ],
)
def test_ranks_that_are_cut_short_are_completed_where_they_are_even(text, size, ranks):
    assert listed(text, size) == ranks


def test_kineto_groups_that_are_cut_short_are_completed_and_said(tmp_path):
    ranks = {"Process Group Ranks": "[0, 2, 4, ...]", "Group size": 16}
    trace = KINETO.read(profile(tmp_path / "t.json", kernel(**ranks), world=32), gpus_per_server=1)
    assert {trace.hosts[h] for h in trace.src[trace.size > 0]} == {f"h{r + 1}" for r in range(32)}
    assert trace.size.max() == 2 * 15 * 4000 // 16
    assert "1 collectives whose group's ranks are cut short: completed evenly" in notes(trace)


def test_kineto_groups_known_by_their_size_alone_are_said(tmp_path):
    for rank in (9, 14):
        less = kernel(**{"Group size": 8})
        del less["args"]["Process Group Ranks"]
        profile(tmp_path / f"r{rank}.json", less, rank=rank, world=64)
    trace = KINETO.read(tmp_path, gpus_per_server=1)
    ends = sent_by_pair(trace)
    assert len(ends) == 64 and all(a // 8 == b // 8 for a, b in ends)  # as others of such groups
    assert "1 collectives whose group's ranks are not said: taken as neighbours" in notes(trace)


def test_kineto_messages_may_name_their_peer_alone(tmp_path):
    ranks = {"Group size": 3, "Process Group Ranks": "[0, 1, 2]"}
    there, back = kernel("send", **ranks, **{"Dst Rank": 2}), kernel("recv", 300.0, **ranks)
    back["args"]["Src Rank"] = 0
    path = profile(tmp_path / "t.json", there, back, rank=1, world=3)
    trace = KINETO.read(path, gpus_per_server=1)
    ends = [(trace.hosts[a], trace.hosts[b]) for a, b in zip(trace.src, trace.dst, strict=True)]
    assert [ends[i] for i in (trace.size > 0).nonzero()[0]] == [("h2", "h3"), ("h1", "h2")]
    with pytest.raises(RFabricError, match="no collective of a known size"):
        KINETO.read(profile(path, there, back, distributedInfo={}))  # whose rank is not known


def test_early_kineto_adds_up_the_tensors_of_a_call(tmp_path):
    call_of = {
        "ph": "X", "cat": "user_annotation", "name": "nccl:all_reduce", "ts": 1.0, "dur": 1.0,
        "args": {"Input Dims": [[10, 5], [3]], "Input type": ["float", "float"]},
    }  # fmt: skip
    bare = kernel() | {"args": {}}
    trace = KINETO.read(profile(tmp_path / "t.json", call_of, bare), gpus_per_server=1)
    assert trace.size.max() == 53 * 4
    assert "1 collectives of a PyTorch that says no groups: taken as among all" in notes(trace)
    amd = bare | {"name": "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"}
    trace = KINETO.read(profile(tmp_path / "a.json", call_of, amd), gpus_per_server=1)
    assert trace.size.max() == 53 * 4
    call_of["args"]["Input type"] = ["float", "half"]
    with pytest.raises(RFabricError, match="no collective of a known size"):
        KINETO.read(profile(tmp_path / "t.json", call_of, bare))


@pytest.mark.parametrize(
    "odd",
    [
        {"deviceProperties": 3},
        {"distributedInfo": "none"},
        {"distributedInfo": {"rank": None}},
        {"traceEvents": [kernel() | {"args": 5}]},
    ],
)
def test_kineto_of_another_kind_is_no_traceback(tmp_path, odd):
    with pytest.raises(RFabricError, match="t.json: is no whole profile: what"):
        KINETO.read(profile(tmp_path / "t.json", kernel(), **odd))


def test_kineto_kernels_may_lack_their_length(tmp_path):
    brief = {key: value for key, value in kernel().items() if key != "dur"}
    assert KINETO.read(profile(tmp_path / "t.json", brief), gpus_per_server=1).size.max() == 4000


# --- Chakra ---------------------------------------------------------------------------------------


def along(folder, ranks: int, *dimensions: bool):
    """Ranks whose all-reduce is along some dimensions of the network."""
    folder.mkdir(exist_ok=True)
    values = _entry(1, b"involved_dim") + _entry(28, _entry(1, bytes(dimensions)))
    head, whole = (encoded({"version": "0.0.4"}, nodes) for nodes in ([], [call()]))
    node = whole[len(head) + 1 :] + _entry(10, values)
    for rank in range(ranks):
        (folder / f"s.{rank}.et").write_bytes(head + bytes([len(node)]) + node)
    return folder


def test_chakra_along_all_dimensions_is_among_all(tmp_path):
    every = read_trace(along(tmp_path / "all", 2, True, True))
    assert sent(every) == sent(read_trace(chakra(tmp_path / "plain", [call()], [call()])))


@pytest.mark.parametrize(
    ("dims", "said", "groups"),
    [
        ("4x2", (True, False), [{1, 2, 3, 4}, {5, 6, 7, 8}]),
        ("4x2", (False, True), [{1, 5}, {2, 6}, {3, 7}, {4, 8}]),
        ("2x2x2", (True, False, True), [{1, 2, 5, 6}, {3, 4, 7, 8}]),
        # as ASTRA-sim fills it up beyond the network's dimensions
        ("4x2", (True, False, False, False), [{1, 2, 3, 4}, {5, 6, 7, 8}]),
    ],
)
def test_chakra_along_some_dimensions_is_among_those_ranks(tmp_path, dims, said, groups):
    pairs = sent(read_trace(along(tmp_path / "c", 8, *said), dims=dims))
    found = {frozenset(int(h[1:]) for p in pairs if a in p for h in p) for a, _ in pairs}
    assert all(any(one <= group for group in groups) for one in found)
    assert {h for pair in pairs for h in pair} == {f"h{n}" for n in range(1, 9)}
    assert sum(pairs.values()) == sum(2 * (len(g) - 1) * 800 for g in groups)


@pytest.mark.parametrize(
    ("dims", "why"),
    [
        ("", r"involved_dim \[1, 0\] is among some ranks alone.*--set dims=4x2"),
        ("3x2", "dims 3x2 must be 2 numbers at most whose product is 2"),
        ("2x1x1", "dims 2x1x1 must be 2 numbers at most"),
        ("2,1", "dims '2,1': write the ranks along each dimension, such as 4x2"),
    ],
)
def test_dimensions_that_are_not_said_or_do_not_suit(tmp_path, dims, why):
    with pytest.raises(RFabricError, match=why):
        read_trace(along(tmp_path / "some", 2, True, False), dims=dims)


def test_dimensions_stand_in_workload_graphs_too(tmp_path, caplog):
    said = {"NodeType": 7, "comm_type": 0, "comm_size": 800, "involved_dim": [True, False]}
    nodes = [{"Id": 5, **said}, {"Id": 6, "NodeType": 4, "num_ops": 9, "data_deps": [5]}]
    for rank in range(8):
        (tmp_path / f"w.{rank}.json").write_text(json.dumps({"workload_graph": nodes}))
    pairs = sent(read_trace(tmp_path, dims="4x2"))
    assert not [pair for pair in pairs if (pair[0] <= "h4") != (pair[1] <= "h4")]
    assert "8 nodes say operations (num_ops)" in caplog.text
    with pytest.raises(RFabricError, match="say its npus_count, such as --set dims=4x2"):
        read_trace(tmp_path)


def test_chakra_says_which_nodes_have_operations_and_no_time(tmp_path, caplog):
    mm = ChakraNode(0, "mm", work(0, 0).type, [], 0, {"num_ops": 10**12, "tensor_size": 4})
    read_trace(chakra(tmp_path / "c", *[[mm, call(1, [0], comm_group="1")]] * 2))
    assert "2 nodes say operations (num_ops) or bytes (tensor_size) and no time" in caplog.text
    assert "attributes of collectives left out: comm_group" in caplog.text
    caplog.clear()
    read_trace(chakra(tmp_path / "d", *[[work(0, 5), call(1, [0])]] * 2))
    assert "no time" not in caplog.text and "left out" not in caplog.text


def test_kernels_joined_into_a_trace_of_pytorch_are_not_computed_besides(tmp_path, caplog):
    record = {
        "id": 4, "name": "record_param_comms", "attrs": [],
        "inputs": {"values": [[[5, 6, 0, 1000, 4, "cuda:0"]], 1, ["0", ""], 0, "allreduce"]},
    }  # fmt: skip
    kernels = [
        {"id": n, "name": name, "exclusive_dur": 50, "inputs": {"values": []}}
        for n, name in ((5, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"), (6, "gemm"))
    ]
    text = json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": [record, *kernels]})
    for rank in (0, 1):
        (tmp_path / f"s.{rank}.json").write_text(text)
    trace = read_trace(tmp_path)
    assert trace.compute_only()[1].max() == pytest.approx(50e-6)
    assert "1 kernels of NCCL left out, their records count" in caplog.text


# --- AICB and distributions -----------------------------------------------------------------------


def test_aicb_reads_its_head_with_and_without_blanks(tmp_path):
    text = (
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 4 ep: 1 pp: 1 all_gpus: 8\n"
        "1\nmlp -1 750 ALLREDUCE 4096 750 NONE 0 750 ALLREDUCE 8192 100\n"
    )
    spaced = read_trace(aicb(tmp_path, text, "a.txt"))
    joined = read_trace(aicb(tmp_path, text.replace(": ", ":"), "b.txt"))
    assert sent(spaced) == sent(joined) and len(spaced.hosts) == len(joined.hosts) == 8


def test_aicb_says_which_calls_have_a_count(tmp_path, caplog):
    head = "comm_type,comm_group,comm_group_size,msg_size,stage,count\n"
    row = "CommType.all_reduce,CommGroup.dp_group,2,4096,forward,{}\n"
    read_trace(aicb(tmp_path, head + row.format(1) + row.format(3), "w.csv"))
    assert "1 calls of a count above 1, each played once" in caplog.text


@pytest.mark.parametrize(
    ("header", "unit"),
    [
        ("bytes,percent", 1),
        ("size_KB,cdf", 1000),
        ("Flow Size (MB)\tCDF", 10**6),
        ("size_kilobytes cdf", 1000),
        ("sizeKiB,cdf", 1024),
        ("# flow size in KBytes, CDF", 1000),
        ("size_kb,cdf", 1000),
        ("size_mb,cdf", 10**6),
        ("# sizes of flows to backups", 1),
        ("# CDF of flow sizes, size in bytes and percent", 1),
        ("# flow sizes in bytes taken from packet traces, CDF", 1),
        ("# miscellaneous flow sizes, CDF", 1),
        ("# flow size in KBytes, CDF\nsize,cdf", 1000),
    ],
)
def test_a_header_says_the_unit_of_sizes(tmp_path, header, unit):
    rows = "10,0\n10,50\n10,100\n" if "," in header else "10 0\n10 50\n10 100\n"
    path = aicb(tmp_path, f"{header}\n{rows}", "sizes.cdf")
    assert set(read_trace(path, duration=f"{unit}us").size.tolist()) == {10 * unit}


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("flow size (packets),CDF", "sizes are counted in packets; write them in bytes"),
        ("# size in pkts, cdf", "sizes are counted in pkts"),
        ("size in kilobits, cdf", "sizes are counted in bits"),
        ("cdf,bytes", "sizes stand first"),
    ],
)
def test_a_header_of_other_units_is_refused(tmp_path, header, why):
    with pytest.raises(RFabricError, match=f"line 1: .*{why}"):
        read_trace(aicb(tmp_path, f"{header}\n1,0\n100,100\n", "s.cdf"))

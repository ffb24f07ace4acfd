"""Workloads in other people's formats: what is read of them, what is refused, what comes back."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
from handmade import HOSTS, looped, small, traces
from hypothesis import given, settings
from hypothesis import strategies as st
from test_formats import same
from test_recorded import capture, export, frame, kernel, line, profile

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import fat_tree
from rfabric.schedulers.traffic import read_traffic
from rfabric.simulate.world import simulate
from rfabric.trace import Trace, TraceBuilder, read_trace, write_trace
from rfabric.trace.formats.chakra_wire import (
    COLLECTIVE,
    COMPUTE,
    METADATA,
    RECEIVE,
    SEND,
    ChakraNode,
    encoded,
)

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"


def chakra(folder: Path, *ranks: list[ChakraNode], version="0.0.4") -> Path:
    """A folder of Chakra files, one a rank."""
    folder.mkdir(exist_ok=True)
    for rank, nodes in enumerate(ranks):
        (folder / f"s.{rank}.et").write_bytes(encoded({"version": version}, nodes))
    return folder


def call(number=0, deps=(), kind=0, size=800, **attrs) -> ChakraNode:
    what = {"is_cpu_op": False, "comm_type": kind, "comm_size": size} | attrs
    return ChakraNode(number, "call", COLLECTIVE, list(deps), 0, what)


def work(number, micros, deps=()) -> ChakraNode:
    return ChakraNode(number, "work", COMPUTE, list(deps), micros, {"is_cpu_op": True})


def send(number, peer, deps=(), size=1000, tag=0) -> ChakraNode:
    return ChakraNode(number, "send", SEND, list(deps), 0,
                {"comm_dst": peer, "comm_size": size, "comm_tag": tag})  # fmt: skip


def receive(number, peer, deps=(), size=1000, tag=0) -> ChakraNode:
    return ChakraNode(number, "receive", RECEIVE, list(deps), 0,
                {"comm_src": peer, "comm_size": size, "comm_tag": tag})  # fmt: skip


def sent(trace: Trace) -> dict:
    """Bytes by pair of hosts."""
    by_pair: dict = {}
    for a, b, size in zip(trace.src, trace.dst, trace.size, strict=True):
        if size:
            key = trace.hosts[a], trace.hosts[b]
            by_pair[key] = by_pair.get(key, 0) + int(size)
    return by_pair


def finishes(trace: Trace) -> list[float]:
    rows = np.flatnonzero(trace.size > 0)
    return simulate(fat_tree(), trace, "static").finish[rows].tolist()


# --- round trips ----------------------------------------------------------------------------------


def ring_of_steps() -> Trace:
    """Four hosts, three turns: what every format can say."""
    b = TraceBuilder(HOSTS[:4])
    done = b.flows([0, 1, 2, 3], [1, 2, 3, 0], [5e6, 6e6, 7e6, 8e6], start=0.002, label="a")
    for _ in range(2):
        done = b.flows([0, 1, 2, 3], [1, 2, 3, 0], 3e6, after=done, label="a")
    b.flows([0], [2], 1e6, start=0.25, label="a")
    return b.build()


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.cm", "t.et"])
def test_the_same_trace_through_each_format_ends_at_the_same_times(tmp_path, name):
    write_trace(trace := ring_of_steps(), path := tmp_path / name)
    again = read_trace(path)
    assert again.size.tolist() == trace.size.tolist() and again.hosts == trace.hosts
    assert again.start.tolist() == trace.start.tolist()
    assert (again.after.tolist(), again.after_offsets.tolist()) == (
        trace.after.tolist(), trace.after_offsets.tolist()
    )  # fmt: skip
    assert finishes(again) == finishes(trace)


@pytest.mark.parametrize("trace", [small(), looped().unrolled()], ids=["rows", "unrolled"])
def test_chakra_gives_back_what_was_written(tmp_path, trace):
    write_trace(trace, tmp_path / "t.et")
    again = read_trace(tmp_path / "t.et")
    assert same(again, trace) and again.hosts == trace.hosts
    assert (again.phases, again.labels) == (trace.phases, trace.labels)


@settings(max_examples=25, deadline=None)
@given(traces())
def test_any_trace_comes_back_from_chakra(tmp_path_factory, trace):
    path = tmp_path_factory.mktemp("t") / "t.et"
    write_trace(trace, path)
    assert same(read_trace(path), trace.unrolled())


def test_written_chakra_is_by_the_published_schema(tmp_path):
    """Ranks' own words, without ours: the same bytes between the same hosts, in the same order."""
    write_trace(small(), tmp_path / "t.et")
    files = sorted((tmp_path / "t.et").iterdir())
    assert [file.name for file in files] == ["t.0.et", "t.1.et", "t.2.et"]
    for file in files:  # attributes `rfabric` renamed: nobody knows them, as in ASTRA-sim
        file.write_bytes(file.read_bytes().replace(b"\n\x07rfabric", b"\n\x07unknown"))
    plain = read_trace(tmp_path / "t.et")
    assert sent(plain) == {  # h3 is told by a byte that h1 has computed
        ("h1", "h3"): 6_400_000_001, ("h3", "h1"): 6_400_000_000, ("h1", "h2"): 1001,
    }  # fmt: skip
    assert plain.compute_only()[1].max() == pytest.approx(13.3)


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        (small(), "row 0 computes, which htsim cannot say; write .csv or .et"),
        (looped(), "computes, which htsim cannot say"),
    ],
)
def test_what_htsim_cannot_say_is_refused(tmp_path, trace, why):
    with pytest.raises(RFabricError, match=why):
        write_trace(trace, tmp_path / "t.cm")
    assert not list(tmp_path.iterdir())


# --- Chakra ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "each"), [(0, 2 * 3 / 4 * 800), (2, 3 / 4 * 3200), (7, 3 / 4 * 800), (8, 3 / 4 * 800)]
)
def test_collectives_are_rings_of_our_own(tmp_path, kind, each):
    """`comm_size` is what a rank puts in: an all-gather ends with four times as much."""
    trace = read_trace(chakra(tmp_path / "c", *[[call(kind=kind)]] * 4))
    assert sorted(sent(trace).values()) == [each] * 4
    assert trace.provenance["bytes"] == 4 * each and trace.provenance["format"] == "chakra"


@pytest.mark.parametrize(
    ("kind", "pairs"), [(6, 12), (5, 3), (1, 3), (3, 3), (4, 3), (9, 0)]
)  # all-to-all, broadcast, reduce, gather, scatter, barrier
def test_other_collectives(tmp_path, kind, pairs):
    assert len(sent(read_trace(chakra(tmp_path / "c", *[[call(kind=kind)]] * 4)))) == pairs


def test_ranks_share_hosts(tmp_path):
    folder = chakra(tmp_path / "c", *[[call()]] * 4)
    trace = read_trace(folder, ranks_per_host=2)
    assert trace.hosts == ("h1", "h2") and sum(sent(trace).values()) == 4 * 600
    with pytest.raises(RFabricError, match="ranks_per_host: '0' is no whole number from 1"):
        read_trace(folder, ranks_per_host="0")


def test_dependencies_computing_and_messages(tmp_path):
    first = [work(0, 500), send(1, 1, [0]), receive(2, 1, tag=1), work(3, 7, [2])]
    second = [receive(0, 0), work(1, 20, [0]), send(2, 0, [1], tag=1)]
    trace = read_trace(chakra(tmp_path / "c", first, second))
    assert sent(trace) == {("h1", "h2"): 1000, ("h2", "h1"): 1000}
    assert trace.compute_only()[1].max() == pytest.approx(527e-6)


def test_process_groups_are_read(tmp_path):
    calls = [[call(pg_name=str(rank // 2))] for rank in range(4)]
    folder = chakra(tmp_path / "c", *calls)
    assert ("h2", "h3") not in sent(read_trace(folder))
    (folder / "groups.json").write_text('{"0": [0, 1], "1": [2, 3, 4]}')
    with pytest.raises(RFabricError, match=r"node 0 .*ranks missing: 4 .* --set ranks=5"):
        read_trace(folder)
    assert len(sent(read_trace(folder, ranks="5"))) == 5


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        ([[work(0, 1, [1]), work(1, 1, [0])]], r"s.0.et: node 0 waits for itself"),
        ([[work(0, 1, [7])]], "s.0.et: node 0 waits for 7, which the file lacks"),
        ([[work(0, 1), work(0, 1)]], "node ids stand twice"),
        ([[call(kind=12)]], r"node 0 \(call\): comm_type: '12' is no whole number from 0 to 9"),
        ([[call(size=0)]], r"comm_size: '0' is no whole number from 1"),
        ([[call(kind=5, root_rank=1)]], r"root_rank 1 is none of the ranks of group ''"),
        ([[call(size=2**63 - 1)]], r"comm_size: '9223372036854775807' is no whole number"),
        ([[send(0, 3)]], r"node 0 \(send\): ranks missing: 3"),
        ([[send(0, 1)], [work(0, 1)]], "1 sends to rank 1 with tag 0 are never received"),
        ([[receive(0, 1)], [work(0, 1)]], "rank 1 sends nothing with tag 0"),
        ([[call()], [work(0, 1)]], "rank 1 never joins"),
        ([[call()], [call(kind=6)]], "is a all-reduce, its partner s.1.et: node 0 another"),
        (
            [[call(0, [1], pg_name="a"), call(1, pg_name="b")],
             [call(0, pg_name="a"), call(1, [0], pg_name="b")]],
            "ranks wait for one another in a circle",
        ),
        ([[]], "holds no node"),
    ],
)  # fmt: skip
def test_bad_graphs_name_the_node(tmp_path, ranks, why):
    with pytest.raises(RFabricError, match=why):
        read_trace(chakra(tmp_path / "c", *ranks))


def test_damaged_chakra_files(tmp_path):
    folder = chakra(tmp_path / "c", [call()], [call()])
    whole_file = (folder / "s.1.et").read_bytes()
    for cut in range(len(whole_file)):
        (folder / "s.1.et").write_bytes(whole_file[:cut])
        with pytest.raises(RFabricError, match="c: "):
            read_trace(folder)
    (folder / "s.1.et").unlink()
    (folder / "s.2.et").write_bytes(whole_file)
    with pytest.raises(RFabricError, match=r"ranks missing: 1 \(1 in all\)"):
        read_trace(folder)
    with pytest.raises(RFabricError, match=r"s.0.et: schema '0.0.5'; rfabric reads 0.0.4"):
        read_trace(chakra(tmp_path / "d", [call()], version="0.0.5"))
    (folder / "t.0.et").write_bytes(whole_file)
    with pytest.raises(RFabricError, match=r"holds 2 workloads: s\.\*, t\.\*; name a file of one"):
        read_trace(folder)


@pytest.mark.parametrize("schema", ["0.0.4", "1.0.2-chakra.0.0.4", "1.1.1-chakra.0.0.4"])
def test_packed_files_of_any_name_and_schema(tmp_path, schema):
    folder = chakra(tmp_path / "c", [call()], [call()], version=schema)
    for file in list(folder.iterdir()):
        name = file.name.replace(".et", ".trace")
        (folder / name).write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    assert len(sent(read_trace(folder))) == len(sent(read_trace(folder / "s.0.trace"))) == 2


def test_long_metadata_and_packed_files_are_known_by_their_bytes(tmp_path):
    """Metadata of more than 16 kB has a length of three bytes."""
    files = chakra(tmp_path / "plain", [call()], [call()])
    facts = {"schema": "1.0.2-chakra.0.0.4", "input_file": "x" * 20_000, "version": ""}
    (tmp_path / "packed").mkdir()
    for rank in range(2):
        data = gzip.compress(encoded(facts, [call()]))
        (tmp_path / "packed" / f"s.{rank}.et.gz").write_bytes(data)
    trace = read_trace(tmp_path / "packed" / "s.0.et.gz")
    assert sent(trace) == sent(read_trace(files))


def test_workload_graphs_stand_behind_any_other_key(tmp_path):
    nodes = [{"Id": 1, "NodeType": 7, "comm_type": 0, "comm_size": 800}]
    for rank in range(2):
        said = {"ngpus": 2, "soc": "x", "workload_graph": nodes}
        (tmp_path / f"w.{rank}.json").write_text(json.dumps(said))
    assert set(sent(read_trace(tmp_path)).values()) == {800}


@pytest.mark.parametrize("key", ["ctrlDeps", "ctrl_deps", "data_deps", "dataDeps"])
def test_waits_of_workload_graphs_are_spelled_in_both_ways(tmp_path, key):
    nodes = [{"Id": i, "NodeType": 4, "runtime": 5, key: list(range(i))} for i in range(3)]
    (tmp_path / "w.0.json").write_text(json.dumps({"workload_graph": nodes}))
    trace = read_trace(tmp_path / "w.0.json")
    assert trace.compute_only()[1].max() == pytest.approx(15e-6)


def jsonizer(rank: int, kind: int | str = 0) -> str:
    values = [
        {"name": "comm_type", "int64Val": f"{kind}"},
        {"name": "comm_size", "int64Val": "800"},
    ]
    nodes = [
        {"id": "1", "name": "w", "type": "COMP_NODE", "durationMicros": str(10 + rank)},
        {"id": "2", "type": "COMM_COLL_NODE", "ctrlDeps": ["1"], "attr": values},
    ]
    return "\n".join(json.dumps(one, indent=2) for one in ({"version": "0.0.4"}, *nodes))


def pytorch(word: str) -> str:
    def node(number: int, name: str, values: list) -> dict:
        return {"id": number, "name": name, "inputs": {"values": values}, "attrs": []}

    groups = json.dumps([{"pg_name": "7", "ranks": [], "group_size": 2, "backend_id": 99}])
    tensors = [[[1, 2, 0, 100, 4, "cuda:0"]], 12, ["7", "dp"], 0, word, [], [], 0, 1, 2]
    nodes = [
        node(1, "## process_group:init ##", [groups]), node(2, "aten::mm", []),
        node(3, "record_param_comms", tensors), node(4, "record_param_comms", [1, 0, "wait"]),
    ]  # fmt: skip
    return json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes})


@pytest.mark.parametrize(
    ("texts", "each", "seconds"),
    [([jsonizer(0), jsonizer(1)], 800, 11e-6), ([pytorch("allreduce")] * 2, 400, 0.0)],
    ids=["jsonizer", "pytorch"],
)
def test_chakra_as_json(tmp_path, texts, each, seconds):
    for rank, text in enumerate(texts):
        (tmp_path / f"s.{rank}.json").write_text(text)
    trace = read_trace(tmp_path)
    assert sent(trace) == {("h1", "h2"): each, ("h2", "h1"): each}
    assert trace.compute_only()[1].max() == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("kind", "why"),
    [(2, "is a all-reduce, its partner s.1.json: node 2 another"),
     ("x", "attribute comm_type: 'x' is no whole number")],
)  # fmt: skip
def test_ranks_that_call_two_collectives_in_json(tmp_path, kind, why):
    """JSON of protobuf has numbers of 64 bits in quotes."""
    for rank, text in enumerate((jsonizer(0), jsonizer(1, kind))):
        (tmp_path / f"s.{rank}.json").write_text(text)
    with pytest.raises(RFabricError, match=why):
        read_trace(tmp_path)


def test_pytorch_counts_the_peer_of_a_message_in_its_group(tmp_path):
    """Ranks 1 and 3 are a group of the pipeline: its second rank is rank 3."""

    def graph(*calls: tuple[str, int]) -> str:
        groups = json.dumps([{"pg_name": "5", "ranks": [1, 3], "group_size": 2}])
        tensor = [[1, 2, 0, 100, 4, "cuda:0"]]
        nodes = [{"id": 1, "name": "## process_group:init ##", "inputs": {"values": [groups]}}]
        nodes += [
            {"id": 2 + i, "name": "record_param_comms", "attrs": [],
             "inputs": {"values": [tensor, 12, ["5", "pp"], peer, word]}}
            for i, (word, peer) in enumerate(calls)
        ]  # fmt: skip
        return json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes})

    calls = [(), (("send", 1), ("recv", 1)), (), (("recv", 0), ("send", 0))]
    for rank, some in enumerate(calls):
        (tmp_path / f"s.{rank}.json").write_text(graph(*some))
    assert sent(read_trace(tmp_path)) == {("h2", "h4"): 400, ("h4", "h2"): 400}


@pytest.mark.parametrize(
    ("word", "pairs"),
    [
        ("broadcast", [(3, 4), (4, 2)]),
        ("_reduce_oop", [(2, 4), (4, 3)]),
        ("gather", [(2, 3), (4, 3)]),
        ("scatter", [(3, 2), (3, 4)]),
    ],
)
def test_pytorch_counts_the_root_of_a_collective_in_its_group(tmp_path, word, pairs):
    """Ranks 1 to 3 are a group: its second rank is rank 2, h3."""
    groups = json.dumps([{"pg_name": "5", "ranks": [1, 2, 3], "group_size": 3}])
    for rank in range(4):
        elements = 0 if word == "scatter" and rank != 2 else 300  # the root alone has some
        tensors = [[1, 2, 0, elements, 4, "cuda:0"]]
        values = [[groups], [tensors, 12, ["5", "dp"], 1, word]]
        names = ["## process_group:init ##", "record_param_comms"][: 1 + (rank > 0)]
        nodes = [
            {"id": number, "name": name, "inputs": {"values": said}, "attrs": []}
            for number, (name, said) in enumerate(zip(names, values, strict=False))
        ]
        text = json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes})
        (tmp_path / f"s.{rank}.json").write_text(text)
    each = 400 if word == "scatter" else 1200
    trace = read_trace(tmp_path)
    assert sent(trace) == {(f"h{a}", f"h{b}"): each for a, b in pairs}
    assert not any("different bytes" in note for note in trace.provenance["dropped"])


def grouped(tmp_path: Path, *lists: dict, call: str = "1") -> dict:
    """Bytes by pair of ranks that each all-reduce 400 bytes in the group `call`, of which each
    file lists the ranks.
    """
    for rank, groups in enumerate(lists):
        said = [{"pg_name": name, "ranks": some, "group_size": 2} for name, some in groups.items()]
        nodes = [
            {"id": 1, "name": "## process_group:init ##", "inputs": {"values": [json.dumps(said)]}},
            {"id": 2, "name": "record_param_comms", "attrs": [],
             "inputs": {"values": [[[1, 2, 0, 100, 4, "cuda:0"]], 9, [call, "tp"], "allreduce"]}},
        ]  # fmt: skip
        text = json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes})
        (tmp_path / f"s.{rank}.json").write_text(text)
    return sent(read_trace(tmp_path))


PAIRS = {("h1", "h2"): 400, ("h2", "h1"): 400, ("h3", "h4"): 400, ("h4", "h3"): 400}


@pytest.mark.parametrize(
    "lists",
    [
        [{"1": [0, 1]}, {"1": [0, 1]}, {"1": [2, 3]}, {"1": [2, 3]}],
        [{"1": [0, 1]}, {}, {}, {"1": [3, 2]}],
    ],
    ids=["each by itself", "some list none"],
)
def test_groups_of_other_ranks_may_have_one_name(tmp_path, lists):
    """As PyTorch names those that each rank makes without the others."""
    assert grouped(tmp_path, *lists) == PAIRS


def test_a_rank_that_calls_a_group_of_others_is_refused(tmp_path):
    why = r"s.2.json: node 2 .* rank 2 calls group '1', whose ranks are 0, 1; correct that list"
    with pytest.raises(RFabricError, match=why):
        grouped(tmp_path, *[{"1": [0, 1]}] * 3)


def test_a_rank_may_put_nothing_into_a_collective(tmp_path):
    """As one that has no tokens for the experts of others."""
    folder = chakra(tmp_path / "c", [call(kind=6, size=800)], [call(kind=6, size=0)])
    assert sent(read_trace(folder)) == {("h1", "h2"): 400, ("h2", "h1"): 400}


@pytest.mark.parametrize("word", ["_broadcast_oop", "allgather_into_tensor_coalesced"])
def test_pytorch_names_collectives_in_several_ways(tmp_path, word):
    for rank in range(2):
        (tmp_path / f"s.{rank}.json").write_text(pytorch(word))
    assert sent(read_trace(tmp_path))[("h1", "h2")] == 400


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (pytorch("all_swap"), "node 3: unknown collective 'all_swap'; known: all-reduce"),
        (pytorch("allreduce").replace("1.1.1", "2.7.1"), "schema '2.7.1-chakra.0.0.4'"),
        (jsonizer(0)[:-9], "is no JSON, or cut short"),
        (jsonizer(0).replace("COMP_NODE", "COMPUTE"), "node 1: type 'COMPUTE' is none of"),
    ],
)
def test_bad_chakra_as_json(tmp_path, text, why):
    (tmp_path / "s.0.json").write_text(text)
    with pytest.raises(RFabricError, match=why):
        read_trace(tmp_path / "s.0.json")


# --- AICB -----------------------------------------------------------------------------------------

HEAD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 all_gpus: 8"
LAYER = "mlp -1 1000 ALLREDUCE 800 2000 ALLREDUCE_EP 80 3000 REDUCESCATTER 4000 100"


def aicb(folder: Path, text: str, name="w.txt") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_comments_in_aicb_are_passed_over(tmp_path):
    plain = read_trace(aicb(tmp_path, f"{HEAD}\n1\n{LAYER}\n"))
    said = read_trace(aicb(tmp_path, f"# step 3\n{HEAD}\n1\n# mlp\n{LAYER}\n"))
    assert said.size.tolist() == plain.size.tolist()
    calls = read_trace(aicb(tmp_path, f"# rank 0\n{COLUMNS}# calls\n{CALLS}", "w.csv"))
    assert calls.total.sum() == 8 * 800 + 4 * 50 + 8 * 500


def test_a_layer_of_aicb_is_played_as_simai_does(tmp_path):
    trace = read_trace(aicb(tmp_path, f"{HEAD}\n2\n{LAYER}\n{LAYER}\n"))
    by_label = {key: trace.total[rows].sum() for key, rows in trace.communication().items()}
    assert by_label == {
        (0, "forward", "all-reduce TP"): 2 * 4 * 2 * 800,  # four groups of two
        (0, "backward", "all-reduce EP"): 2 * 4 * 2 * 80,
        (0, "gradients", "reduce-scatter DP"): 2 * 2 * 3 * 4000,  # two groups of four
    }
    assert trace.compute_only()[1].max() == pytest.approx(2 * 6e-6 + 100e-9)
    assert ("h1", "h2") in trace.pairs() and ("h1", "h3") in trace.pairs()
    eight = read_trace(tmp_path / "w.txt", ranks_per_host="2")
    assert eight.hosts == ("h1", "h2", "h3", "h4") and len(eight.communication()) == 2
    assert any("stay inside hosts" in note for note in eight.provenance["dropped"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{HEAD}\n2\n{LAYER}\n", "says 2 layers and holds 1; is the file whole"),
        (f"{HEAD}\n1\n{LAYER[:-4]}\n", "line 3: 11 words; a layer has 12"),
        (f"{HEAD}\n1\n{LAYER.replace('_EP', '_XP')}\n", "line 3: input gradient: unknown coll"),
        (f"{HEAD}\n1\n{LAYER.replace('4000', '9' * 19)}\n", "line 3: bytes of the weight grad"),
        (f"{HEAD.replace('8', '6')}\n1\n{LAYER}\n", "6 GPUs are no multiple of .* --set gpus=N"),
        (f"{HEAD.replace('HYBRID_TRANSFORMER_FWD_IN_BCKWD', 'HYBRID')}\n1\n{LAYER}\n", "'HYBRID'"),
    ],
)
def test_bad_aicb(tmp_path, text, why):
    with pytest.raises(RFabricError, match=f"w.txt: .*{why}"):
        read_trace(aicb(tmp_path, text))


COLUMNS = "[rank0 ~ rank7]\ncomm_type,comm_group,comm_group_size,msg_size,stage,_elapsed_time\n"
CALLS = (
    "CommType.all_reduce,CommGroup.tp_group,2,800,forward.Row,None\n"
    "CommType.computation,None,None,0,forward.Row,1.5\n"
    "CommType.epoch_end,None,None,0,,None\n"
    "CommType.isend,CommGroup.pp_group,2,50,forward.pp,None\n"
    "CommType.all_gather,CommGroup.dp_group,2,1000,step,None\n"
)


def test_aicb_as_csv(tmp_path):
    trace = read_trace(aicb(tmp_path, COLUMNS + CALLS, "w.csv"))
    by_label = {key: trace.total[rows].sum() for key, rows in trace.communication().items()}
    assert by_label == {
        (0, "forward", "all-reduce tp"): 8 * 800,
        (1, "forward", "isend pp"): 4 * 50,
        (1, "step", "all-gather dp"): 8 * 500,
    }
    assert trace.compute_only()[1].max() == pytest.approx(0.0015)
    assert ("h1", "h5") in trace.pairs() and ("h1", "h3") in trace.pairs()


def test_columns_of_aicb_stand_in_any_order(tmp_path):
    lines = [line.split(",") for line in (COLUMNS + CALLS).splitlines()[1:]]
    turned = "".join(",".join(reversed(cells)) + "\n" for cells in lines)
    straight = read_trace(aicb(tmp_path, COLUMNS + CALLS, "w.csv"))
    back = read_trace(aicb(tmp_path, turned, "w.csv"), gpus=8)
    assert back.size.tolist() == straight.size.tolist() and back.hosts == straight.hosts


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("all_gather", "all_swap", "line 7: unknown collective 'all_swap'"),
        ("dp_group", "xp_group", "line 7: unknown group 'xp_group'"),
        (",1000,", ",1e99,", "line 7: msg_size: '1e99' is no whole number"),
        (",1000,step,None", ",1000", "line 7: fewer cells than the header"),
        ("msg_size,", "bytes,", "column 'msg_size' is missing"),
    ],
)
def test_bad_aicb_as_csv(tmp_path, old, new, why):
    with pytest.raises(RFabricError, match=f"w.csv: .*{why}"):
        read_trace(aicb(tmp_path, (COLUMNS + CALLS).replace(old, new), "w.csv"))


# --- htsim, coflows, flow sizes -------------------------------------------------------------------

MATRIX = (
    "Nodes 16\nConnections 3\nTriggers 1\n7->5 id 1 start 0 size 2000000 send_done_trigger 4\n"
    "8->5 id 2 start 1000000 size 300 recv_done_trigger 4\n9->5 id 3 trigger 4 size 5 prio 2\n"
    "trigger id 4 barrier count 2\n"
)


def test_a_connection_matrix(tmp_path):
    trace = read_trace(aicb(tmp_path, MATRIX))
    assert trace.hosts == ("h6", "h8", "h9", "h10") and trace.size.tolist() == [2_000_000, 300, 5]
    assert trace.start.tolist() == [0, 1e-6, 0] and trace.waits_for(2).tolist() == [0, 1]
    assert trace.provenance["dropped"] == ["1 times 'prio' left out"]
    assert read_trace(tmp_path / "w.txt", start_unit="us").start[1] == 1.0


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("size 300", "size 0", "line 5: size 0 sends without end in htsim"),
        ("size 300", f"size {2**64}", "line 5: size: '1844"),
        ("Connections 3", "Connections 4", "says Connections 4 and holds 3; is the file whole"),
        ("8->5", "16->5", "line 5: node: '16' is no whole number from 0 to 15"),
        ("8->5", "5->5", "line 5: node 5 sends to itself"),
        ("trigger 4 size", "trigger 5 size", "line 6: trigger 5 is not defined"),
        ("count 2", "count 3", "line 6: trigger 4 waits for 3 of 2 connections"),
        ("barrier count 2", "oneshot", "oneshot trigger 4 is fired by 2 connections"),
        ("8->5 id 2", "8 to 5", "line 5: '8 to 5 start 1000000 size 300 recv_done_trigger 4' is n"),
        ("9->5 id 3", "9->5 id 3 send_done_trigger 4", "waits for itself|waits for 2 of 3"),
    ],
)
def test_bad_connection_matrices(tmp_path, old, new, why):
    with pytest.raises(RFabricError, match=f"w.txt: .*({why})"):
        read_trace(aicb(tmp_path, MATRIX.replace(old, new)))


def test_coflows_come_evenly_from_their_mappers(tmp_path):
    trace = read_trace(aicb(tmp_path, "4 2\n1 0 2 0 1 2 2:1 1:3\n7 250 1 0 1 3:0.5\n"))
    megabyte = 2**20
    assert sent(trace) == {
        ("h1", "h3"): megabyte // 2, ("h2", "h3"): megabyte // 2,
        ("h1", "h2"): 3 * megabyte // 2, ("h1", "h4"): megabyte // 2,
    }  # fmt: skip
    assert trace.labels == ("coflow 1", "coflow 7") and trace.start[-1] == 0.25
    assert f"{3 * megabyte // 2:,} bytes stay inside racks" in trace.provenance["dropped"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("4 3\n1 0 1 0 1 2:1\n", "says 3 coflows and holds 1; is the file whole"),
        ("4 1\n1 0 3 0 1 2:1\n", "line 2: ends early"),
        ("4 1\n1 0 1 0 2 2:1\n", "line 2: says 2 reducers and names 1"),
        ("4 1\n1 0 1 9 1 2:1\n", "line 2: mapper: '9' is no whole number from 0 to 4"),
        ("4 1\n1 0 1 0 1 4:1\n", "racks 0 and 4 are both named"),
        ("4 1\n1 0 1 2 1 2:1\n", "no coflow sends"),
        ("4 1\n1 0 1 0 1 2:1e40\n", "line 2: reducer 2 '1e40' must be a number"),
    ],
)
def test_bad_coflows(tmp_path, text, why):
    with pytest.raises(RFabricError, match=f"w.txt: .*{why}"):
        read_trace(aicb(tmp_path, text))


def test_flows_drawn_from_a_distribution_fill_the_load_that_was_asked(tmp_path):
    path = aicb(tmp_path, "bytes,percent\n0,0\n1000,50\n20000,100\n", "sizes.csv")
    trace = read_trace(path, load=0.3, duration="2ms", hosts=8, rate="100Gbit/s", seed="4")
    assert trace.size.sum() == pytest.approx(0.3 * 8 * 1e11 / 8 * 0.002, rel=0.05)
    assert np.median(trace.size) == pytest.approx(1000, rel=0.2) and trace.start.max() < 0.002
    again = read_trace(path, load=0.3, duration="2ms", hosts=8, rate="100Gbit/s", seed="4")
    assert same(again, trace) and not same(read_trace(path), trace)


def test_the_seed_of_a_run_is_that_of_flows_drawn_by_chance(tmp_path):
    path = aicb(tmp_path, "bytes,percent\n0,0\n20000,100\n", "sizes.csv")

    def drawn(seed: int, *settings: str) -> Trace:
        return read_traffic(str(path), ("duration=1us", *settings), seed).trace

    assert same(drawn(0), read_trace(path, duration="1us"))
    assert not same(drawn(1), drawn(2)) and same(drawn(1), drawn(2, "seed=1"))
    assert same(drawn(1, "format=flow-sizes"), drawn(1))


@pytest.mark.parametrize(
    ("text", "set_", "why"),
    [
        ("0 0\n10 80\n", {}, "ends at 80; the last row is 100"),
        ("0 0\n10 80\n5 100\n", {}, "row 3: bytes fall"),
        ("0 0\n10 x\n", {}, "line 2: '10 x' is not `bytes,percent`"),
        ("0 0\n10 100\n", {"load": 2.0}, "load 2.0 must lie above 0, at most 1"),
        ("0 0\n10 100\n", {"duration": "9s"}, "at most: make duration shorter"),
        ("0 0\n10 100\n", {"hosts": 1}, "hosts: '1' is no whole number from 2"),
    ],
)
def test_bad_distributions(tmp_path, text, set_, why):
    with pytest.raises(RFabricError, match=why):
        read_trace(aicb(tmp_path, text, "s.cdf"), "flow-sizes", **set_)


# --- what people have on disk ---------------------------------------------------------------------

SAMPLES = {
    "formats/aicb/L7B-D1-C01_Llama7B_zero2_mbs1.csv": "aicb-csv",
    "formats/aicb/all_gather.txt": "aicb",
    "workloads/aicb/G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1_A100.txt": "aicb",
    "workloads/aicb/L7B-D1-C02_Llama7B_deepspeed_zero3_A100.txt": "aicb",
    "workloads/aicb/L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1.csv": "aicb-csv",
    "formats/chakra/all_gather.1.et": "chakra",
    "workloads/chakra/small_chakra.0.json": "chakra-json",
    "flows/WebSearch_cdf.csv": "flow-sizes",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_published_files_are_read_as_they_are(name, caplog):
    if not (DATA / name).exists():
        pytest.skip("needs shared/data/, which is not part of the repository")
    trace = read_trace(DATA / name)
    assert len(trace) and trace.provenance["format"] == SAMPLES[name]
    assert f"{Path(name).name}: {SAMPLES[name]}, {len(trace):,} rows, " in caplog.text


# --- the tables of docs/inputs.md -----------------------------------------------------------------

OWNED = {
    "step.et": lambda path: chakra(path, *[[call(), work(1, 9, [0])]] * 16),
    "torch/": lambda path: (path.mkdir(), [
        (path / f"s.{r}.json").write_text(pytorch("allreduce")) for r in (0, 1)]),
    "gpt13b.txt": lambda path: path.write_text(f"{HEAD}\n1\n{LAYER}\n"),
    "llama7b.csv": lambda path: path.write_text(COLUMNS + CALLS),
    "incast.cm": lambda path: path.write_text(MATRIX),
    "flow.txt": lambda path: path.write_text("1\n0 1 3 100 30000000 0\n"),
    "FB2010.txt": lambda path: path.write_text("4 1\n1 0 2 0 1 1 2:1\n"),
    "websearch.csv": lambda path: path.write_text("bytes,percent\n0,0\n30000000,100\n"),
    "rank0.json": lambda path: profile(path, kernel()),
    "inspector.jsonl": lambda path: path.write_text(line()),
    "rank0.sqlite": export,
    "capture.pcap": lambda path: capture(path, (1.0, frame(1, 2), 1500)),
    "grpo-64": lambda path: None,
}  # fmt: skip
TYPED = re.findall(
    r"^\|[^|]*\| `rfabric ([^`]*)` \|", (ROOT / "docs/inputs.md").read_text(encoding="utf-8"), re.M
)


def test_the_page_has_a_row_for_each():
    assert {name for name in OWNED if any(name in line for line in TYPED)} == set(OWNED)


# those of topologies, of validate, validate-run and of stores run beside their tests
OTHERS = ("topo ", "validate", "replay flows.csv", "merge ", "best ", "query ")


@pytest.mark.parametrize("line", [line for line in TYPED if not line.startswith(OTHERS)])
def test_each_row_of_the_page_runs(tmp_path, monkeypatch, capsys, line):
    monkeypatch.chdir(tmp_path)
    if ".pcap" in line:
        pytest.importorskip("scapy")
    (made,) = (name for name in OWNED if f" {name} " in f"{line} ")
    OWNED[made](tmp_path / made.rstrip("/"))
    assert main(line.split()) in (0, None), capsys.readouterr().err
    if line.startswith("replay"):  # "any run folder"
        assert list(tmp_path.glob("runs/*/*/timeline.json"))


@pytest.mark.parametrize(
    "text", ["src,dst,size_bytes\nh1,h2,2000", "Nodes 8\nConnections 1\n0->1 id 1 start 0 size 20"]
)
def test_a_last_line_that_may_be_cut_is_said(tmp_path, caplog, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    read_trace(path)
    assert "t.csv: its last line has no end; is the file whole?" in caplog.text
    caplog.clear()
    path.write_text(text + "\n")
    read_trace(path)
    path.write_bytes(gzip.compress(text.encode()))  # which has a sum of its own
    read_trace(path)
    assert "no end" not in caplog.text


def test_a_trigger_whose_count_is_cut_off_is_refused(tmp_path):
    (tmp_path / "t.cm").write_text(MATRIX.removesuffix("2\n"))
    with pytest.raises(RFabricError, match="line 7: count: '' is no whole number from 1"):
        read_trace(tmp_path / "t.cm")


@pytest.mark.parametrize("wire", [3, 4, 6, 7])
def test_chakra_of_a_wire_type_that_is_none_is_damaged(tmp_path, wire):
    path = chakra(tmp_path / "c", [call(), work(1, 5)]) / "s.0.et"
    data = path.read_bytes()
    at = data.index(b"\x12\x04call")
    path.write_bytes(data[:at] + bytes([0x10 | wire]) + data[at + 1 :])
    with pytest.raises(RFabricError, match=r"s.0.et: node 0, at byte \d+, is cut short or damaged"):
        read_trace(path)


def test_a_trace_of_more_hosts_than_usual_gets_a_fabric_with_room_for_them(tmp_path, capsys):
    (tmp_path / "t.txt").write_text("150 1\n1 0 2 0 1 1 149:1\n")
    words = ["--topo", "fat-tree", "--topo", "rfabric", "--out"]
    assert main(["replay", str(tmp_path / "t.txt"), *words, str(tmp_path / "runs")]) in (0, None)
    small = ["--topo", "fat-tree,pods=2", "--out", str(tmp_path / "runs")]
    capsys.readouterr()
    assert main(["replay", str(tmp_path / "t.txt"), *small]) == 2
    assert "hosts, h1 to h32; give one that has them" in capsys.readouterr().err


def test_bad_input_is_one_line_and_exit_2(tmp_path, capsys):
    bad = aicb(tmp_path, f"{HEAD}\n2\n{LAYER}\n")
    assert main(["replay", str(bad), "--out", str(tmp_path / "runs")]) == 2
    err = capsys.readouterr().err
    assert "says 2 layers and holds 1" in err and "Traceback" not in err
    assert main(["replay", str(bad), "--format", "aibc"]) == 2
    assert "no format 'aibc'; there are csv" in capsys.readouterr().err


def test_metadata_nodes_take_no_time(tmp_path):
    node = ChakraNode(0, "pg", METADATA, [], 0, {})
    trace = read_trace(chakra(tmp_path / "c", *[[node, call(1, [0])]] * 2))
    assert trace.compute_only()[1].max() == 0 and len(sent(trace)) == 2


def test_what_a_lone_rank_or_three_columns_leave_open_is_said(tmp_path, caplog):
    assert read_trace(chakra(tmp_path / "c", [call()])).size.sum() == 0
    assert "collectives of one rank send nothing" in caplog.text and "ranks=N" in caplog.text
    (tmp_path / "ns2.cdf").write_text("1 0 0\n6 1 0.15\n667 1 1\n")
    read_trace(tmp_path / "ns2.cdf", duration="1us")
    assert "ns-2's files count packets" in caplog.text
    (tmp_path / "two.cdf").write_text("1 0\n6 0.15\n667 1\n")
    caplog.clear()
    read_trace(tmp_path / "two.cdf", duration="1us")
    assert "packets" not in caplog.text


def test_blanks_around_names_are_no_part_of_them(tmp_path):
    (tmp_path / "b.csv").write_text("src, dst, size_bytes\nh1, h2, 100\nh2 ,h1,100\n")
    trace = read_trace(tmp_path / "b.csv")
    assert trace.hosts == ("h1", "h2") and trace.size.tolist() == [100, 100]


def test_a_wire_type_that_protobuf_lacks_is_no_traceback(tmp_path):
    path = chakra(tmp_path / "c", [call()]) / "s.0.et"
    path.write_bytes(path.read_bytes() + b"\x02\x0e\x00")
    with pytest.raises(RFabricError, match="node 1, at byte .*damaged"):
        read_trace(path)


# --- ns-3's flow lists ----------------------------------------------------------------------------


def test_flow_lists_of_ns3_say_seconds_and_count_nodes_from_zero(tmp_path, caplog):
    path = tmp_path / "flow.txt"
    path.write_text("3\n0 4 3 100 1000000 2.000005\n4 0 1 5 7 1e-6\n\n2 0 3 100 9 0\n")
    trace = read_trace(path)
    assert trace.hosts == ("h1", "h3", "h5") and trace.size.tolist() == [1_000_000, 7, 9]
    assert trace.start.tolist() == pytest.approx([2.000005, 1e-6, 0])
    assert "2 priority groups, played as one" in caplog.text


def test_flow_lists_of_conweave_have_no_port(tmp_path):
    path = tmp_path / "flow.txt"
    path.write_text("2\n0 4 3 1000000 2.000005000\n4 0 3 7 0.000001000\n")
    trace = read_trace(path)
    assert trace.size.tolist() == [1_000_000, 7] and trace.start.tolist() == [2.000005, 1e-6]
    path.write_text("2\n0 4 3 1000000 2.000005000\n4 0 3 100 7 0.000001000\n")
    with pytest.raises(RFabricError, match="line 3: .4 0 3 100 7"):
        read_trace(path)


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(1, 10**15), st.integers(0, 10**12)), min_size=1
    )
)
@settings(max_examples=20)
def test_what_ns3_is_told_is_read_again(tmp_path_factory, flows):
    b = TraceBuilder([f"h{n}" for n in range(1, 6)])
    for src, size, start in flows:
        b.flows([src], [(src + 1) % 5], size, start=start * 1e-9)
    path = tmp_path_factory.mktemp("flows") / "t.flow"
    write_trace(trace := b.build(), path)
    again = read_trace(path)
    order = np.argsort(trace.start, kind="stable")
    assert again.size.tolist() == trace.size[order].tolist()
    assert again.start == pytest.approx(trace.start[order], abs=1e-9)
    assert [again.hosts[i] for i in again.src] == [trace.hosts[i] for i in trace.src[order]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2\n0 1 3 100 5 0\n", "1 flows, line 1 says 2; is the file whole"),
        ("1\n0 1 3 100 5\n", "line 2: '0 1 3 100 5': `src dst group port bytes start`"),
        ("1\n0 1 3 100 5.5 0\n", "is expected, as in `0 1 3 100 1000000 2.0`"),
        ("1\n0 0 3 100 5 0\n", "h1"),
        ("one\n0 1 3 100 5 0\n", "line 1, the number of flows: 'one' is no whole number"),
    ],
)
def test_bad_flow_lists_of_ns3(tmp_path, text, why):
    (tmp_path / "t.flow").write_text(text)
    with pytest.raises(RFabricError, match=why):
        read_trace(tmp_path / "t.flow")


@pytest.mark.parametrize(("trace", "why"), [(small(), "row 1 waits"), (looped(), "row")])
def test_what_ns3s_flow_list_cannot_say_is_refused(tmp_path, trace, why):
    with pytest.raises(RFabricError, match=f"({why}).*cannot say; write .csv or .et"):
        write_trace(trace, tmp_path / "t.flow")
    assert not list(tmp_path.iterdir())

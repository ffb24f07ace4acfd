"""`rfabric validate` on what nccl-tests print, as people keep it: versions, labels of mpirun and
srun, several runs, NCCL's own lines between; and what is refused.
"""

import gzip
import json

import pytest

from rfabric.cli import main
from rfabric.compute.communication import HOST_LAUNCH, RankGroup, collective_seconds, network
from rfabric.compute.gpus import GPUS
from rfabric.errors import RFabricError
from rfabric.study.validate import nccl_tests, validate
from rfabric.study.validate.leave_one_out import calls_between, leave_one_out
from rfabric.study.validate.nccl import call_of

H100 = "NVIDIA H100 80GB HBM3"
TIMES = "     time   algbw   busbw #wrong"
UNITS = "     (us)  (GB/s)  (GB/s)       "
COLUMNS = f"""\
#
#{"out-of-place":>74}{"in-place":>31}
#       size         count      type   redop    root{TIMES}{TIMES}
#        (B)    (elements)                          {UNITS}{UNITS}
"""
END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 55.1\n#\n"


def head(ranks, each=8, gpu=H100, more="agg iters: 1 validation: 1 graph: 0", group=" Group  0"):
    lines = [
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 "
        f"iters: 20 {more}",
        "#",
        "# Using devices",
    ]
    lines += [
        f"#  Rank {r:2d}{group} Pid {18204 + r:6d} on {f'node-{r // each}':>10} device "
        f"{r % each:2d} [0x{7 + r % each:02x}] {gpu}"
        for r in range(ranks)
    ]
    return "\n".join(lines) + "\n"


def row(size, us, factor, again=None, redop="sum", root="-1", kind="float", wrong="0"):
    """A row as common.cu prints it; bandwidths in two decimals."""
    rates = [
        f"  {t:7.5g}  {size / t / 1e3:6.2f}  {factor * size / t / 1e3:6.2f}  {w:>5}"
        for t, w in ((us, "0"), (again or us, wrong))
    ]
    lead = f"{size:12d}  {size // 4:12d}  {kind:>8}  {redop:>6}  {root:>6}"
    return lead + "".join(rates) + "\n"


TWO_NODES = head(16) + COLUMNS + row(1024, 31.2, 1.875) + row(2**30, 5512.0, 1.875, 5490.0) + END


def points(tmp_path, text, name="all_reduce_perf.log"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return validate(path)


def seconds(groups):
    return [(p.name, pytest.approx(p.measured / 1e3)) for group in groups for p in group.points]


# what stands here is what the header and the time columns say, by hand
EXPECTED = [
    ("H100 all-reduce 16 GPUs 1073741824 B", 5512e-6),
    ("H100 all-reduce 16 GPUs 1024 B", 31.2e-6),
]


def labelled(label):
    return "".join(f"{label}{line}\n" for line in TWO_NODES.splitlines())


INFO = (
    "node-0:18204:18204 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.4<0>\n"
    "node-0:18204:18300 [0] NCCL INFO Using network IBext_v8\n"
)


@pytest.mark.parametrize(
    "text",
    [
        TWO_NODES,
        TWO_NODES.replace("\n", "\r\n"),
        "\ufeff" + TWO_NODES,
        gzip.compress(TWO_NODES.encode()),
        labelled("[1,0]<stdout>:"),
        labelled("[1,0]<stdout>: "),
        labelled("[prterun-node-0-2811@1,0]<stdout>: "),
        labelled("0: "),
        labelled(" 0: "),
        labelled("2026-03-01T12:00:00.123456789Z "),
        TWO_NODES.replace(COLUMNS, INFO + COLUMNS + INFO),
        "# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809\n"
        "# Collective test starting: all_reduce_perf\n" + TWO_NODES
        + "# Collective test concluded: all_reduce_perf\n",
        TWO_NODES.replace("[0x", "[0000:0x").replace("[0000:0x", "[0000:").replace("] N", ":00] N"),
        # the release of 2019: no groups, errors in place of #wrong, and no root
        TWO_NODES.replace(" Group  0", "").replace("#wrong", " error").replace("    root", "")
        .replace("      -1  ", "  ").replace(" graph: 0", ""),
        "+ mpirun -np 16 ./build/all_reduce_perf -b 1K -e 1G -f 1048576 -g 1\n" + TWO_NODES,
    ],
    ids=["plain", "CRLF", "mark", "gzip", "mpirun", "mpirun 4.1", "prte", "srun", "srun wide",
         "kubectl", "NCCL INFO", "2.17", "bus id", "2019", "command"],
)  # fmt: skip
def test_a_run_means_the_same_however_it_was_kept(text, tmp_path):
    assert [(n, s.expected) for n, s in seconds(points(tmp_path, text))] == [
        (n, pytest.approx(s)) for n, s in EXPECTED
    ]


def test_a_clock_whose_hour_changes_between_two_rows_is_no_label(tmp_path):
    lines = TWO_NODES.splitlines()
    last = next(i for i, line in enumerate(lines) if "1073741824" in line)
    text = "".join(
        f"{'12:59:58' if i < last else '13:00:01'} {line}\n" for i, line in enumerate(lines)
    )
    found = [(n, s.expected) for n, s in seconds(points(tmp_path, text))]
    assert found == [(n, pytest.approx(s)) for n, s in EXPECTED]


def test_ranks_of_several_processes_between_one_another(tmp_path):
    """Rank 0 prints the table, the others what NCCL says, all in one file."""
    lines = []
    for i, line in enumerate(TWO_NODES.splitlines()):
        lines += [f"[1,0]<stdout>:{line}", f"[1,{i % 16}]<stdout>:node-{i % 2}:9:9 [0] NCCL INFO x"]
    assert len(seconds(points(tmp_path, "\n".join(lines) + "\n"))) == 2


def test_several_runs_have_tests_and_hosts_of_their_own(tmp_path):
    text = (
        "+ ./build/all_gather_perf -b 1M -e 1M\n" + head(16) + COLUMNS
        + row(2**20, 100.0, 15 / 16, redop="none") + END
        + "+ ./build/alltoall_perf -b 1M -e 1M\n" + head(8) + COLUMNS
        + row(2**20, 50.0, 7 / 8, redop="none", wrong="N/A") + END
        + "+ ./build/sendrecv_perf -b 1M -e 1M\n" + head(2, each=1) + COLUMNS
        + row(2**20, 40.0, 1, redop="none", wrong="N/A") + END
    )  # fmt: skip
    assert [name for name, _ in seconds(points(tmp_path, text, "slurm-1234.out"))] == [
        "H100 all-gather 16 GPUs 1048576 B",
        "H100 all-to-all 8 GPUs 1048576 B",
        "H100 send-recv 2 GPUs 1048576 B",
    ]


def test_launches_of_the_host_count_inside_a_server_and_where_each_is_waited_for(tmp_path):
    def modelled(text):
        return points(tmp_path, text)[0].points[0].modelled / 1e3

    one = head(8) + COLUMNS + row(2**20, 50.0, 1.75)
    net = network(GPUS["H100"])
    inside = collective_seconds("all-reduce", 2**20, RankGroup(8, 1), net)
    between = collective_seconds("all-reduce", 2**20, RankGroup(16, 2), net)
    two = head(16) + COLUMNS + row(2**20, 90.0, 1.875)
    assert modelled(one) == pytest.approx(inside + HOST_LAUNCH)
    assert modelled(one.replace("graph: 0", "graph: 20")) == pytest.approx(inside)
    assert modelled(two) == pytest.approx(between)
    waited = "./all_reduce_perf -b 1M -e 1M -z 1\n" + two
    assert modelled(waited) == pytest.approx(between + HOST_LAUNCH)


def test_nodes_of_one_nvlink_domain_are_one_server(tmp_path):
    """18 nodes of 4 share the NVLink of an NVL72; a table that counts nodes says the same."""
    text = head(16, each=4, gpu="NVIDIA GB200") + COLUMNS + row(2**30, 2500.0, 1.875)
    (point,) = points(tmp_path, text)[0].points
    inside = collective_seconds("all-reduce", 2**30, RankGroup(16, 1), network(GPUS["GB200"]))
    assert point.modelled / 1e3 == pytest.approx(inside)
    cells = {
        "device": "GB200", "op_name": "all_reduce", "num_gpus": "16", "nodes": "4",
        "message_size": "1024", "latency": "1",
    }  # fmt: skip
    assert call_of(cells).group == RankGroup(16, 1)
    assert call_of(cells | {"device": "H100", "nodes": "2"}).group == RankGroup(16, 2)


def test_a_test_without_a_name_is_what_its_columns_leave_open(tmp_path):
    def named(text):
        return points(tmp_path, text, "out.txt")[0].points[0].name.split()[1]

    whole = head(16) + COLUMNS
    assert named(whole + row(2**30, 5512.0, 1.875)) == "all-reduce"
    assert named(whole + row(2**30, 5512.0, 15 / 16)) == "reduce-scatter"
    assert named(whole + row(2**30, 5512.0, 1, root="0")) == "reduce"
    assert named(whole + row(2**30, 5512.0, 1, redop="none", root="0")) == "broadcast"
    gathers = whole + row(2**30, 5512.0, 15 / 16, redop="none")
    with pytest.raises(RFabricError, match="says not which test it is .* all_gather_perf.txt"):
        named(gathers)
    assert (
        points(tmp_path, gathers, "2n-all-gather.txt")[0]
        .points[0]
        .name.startswith("H100 all-gather 16")
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (COLUMNS + row(2**20, 9.0, 1.875), "holds no `# nThread"),
        (head(16), "no row of sizes and times follows"),
        (head(0) + COLUMNS + row(2**20, 90.0, 1.875), "its header names no ranks"),
        (head(1) + COLUMNS + row(2**20, 90.0, 0), "one rank, which sends nothing; .* MPI=1"),
        (TWO_NODES.replace("#  Rank  3", "#  Rank 33"), "names 16 ranks, not all from 0 on"),
        (TWO_NODES.replace("#  Rank  3", "#  Rank  2"), "names 15 ranks, not all from 0 on"),
        (TWO_NODES.replace("node-1", "node-0"), "two ranks stand on one host and bus id"),
        (TWO_NODES.replace("Group  0 Pid  18211", "Group  1 Pid  18211"), "2 groups at once"),
        (head(12) + COLUMNS + row(2**20, 90.0, 11 / 6), "unevenly on hosts: {'node-0': 8, 'node"),
        (TWO_NODES.replace(H100, "NVIDIA H200", 3), "several kinds of GPU: NVIDIA H100 80"),
        (TWO_NODES.replace("agg iters: 1", "agg iters: 4"), "4 calls in one group"),
        (INFO.replace("IBext_v8", "Socket") + TWO_NODES, "NCCL used network Socket"),
        (TWO_NODES.replace(H100, "NVIDIA X9000"), "GPU 'NVIDIA X9000' is not in the catalog"),
        (head(16) + row(2**20, 90.0, 1.875), "no line of column names stands above"),
        (head(16) + COLUMNS + row(2**20, 90.0, 1.75), r"busbw 20.39 is not 1.875 x algbw 11.65"),
        (head(16) + COLUMNS + row(2**20, 90.0, 1.875)[:70], "is the line cut, or mixed"),
        (head(16) + COLUMNS + row(2**20, 90.0, 1.875).replace("11.65", "99.99"),
         "algbw 99.99 GB/s is not its bytes over its time"),
        ("./build/gather_perf\n" + head(16) + COLUMNS + row(2**20, 90.0, 1.875),
         "operation 'gather' is not modelled"),
    ],
)  # fmt: skip
def test_what_cannot_be_known_is_refused(text, why, tmp_path):
    with pytest.raises(RFabricError, match=why) as told:
        points(tmp_path, text)
    assert "\n" not in str(told.value)


def test_rows_that_say_nothing_are_named_and_the_others_count(tmp_path):
    wrong = row(2**21, 90.0, 1.875)
    text = (
        head(16) + COLUMNS + row(0, 0.2, 1.875) + row(2**20, 90.0, 1.875, wrong="N/A")
        + wrong.replace("      0  ", "     12  ", 1) + END
    )  # fmt: skip
    large, *_ = points(tmp_path, text)
    assert [point.name for point in large.points] == ["H100 all-reduce 16 GPUs 1048576 B"]
    assert [said.split(": ", 1)[1] for said in large.unmodelled] == [
        "0 bytes, nothing is sent",
        "#wrong is 12: the results were not right",
    ]


def test_in_place_counts_where_that_alone_was_run(tmp_path):
    line = row(2**20, 90.0, 1.875, 80.0)
    lead, rest = line[:52], line[52:].split()
    text = head(16) + COLUMNS + " ".join([lead, "N/A", "N/A", "N/A", "N/A", *rest[-4:]]) + "\n"
    assert points(tmp_path, text)[0].points[0].measured == pytest.approx(0.08)


def test_cloud_transports_are_told_by_the_network_that_nccl_names(tmp_path):
    path = tmp_path / "all_reduce.log"
    for name, transport in (("FasTrak", "tcpxo"), ("GPUDirectTCPX_v7", "tcpx"), ("IB", "rdma")):
        path.write_text(INFO.replace("IBext_v8", name) + TWO_NODES)
        calls = [call_of(call()) for _, call in nccl_tests.table_rows(path)]
        assert {call.transport for call in calls} == {transport}


def test_a_folder_takes_them_beside_tables_and_leaves_each_out(tmp_path, capsys):
    measured = tmp_path / "measured"
    measured.mkdir()
    (measured / "nccl_multinode_mine.txt").write_text("# all_reduce_perf\n" + TWO_NODES)
    (measured / "train.log").write_text("step 1: 3.2 s\n")
    (measured / "nccl_multinode_notes.txt").write_text("eight servers of a cloud\n")
    assert main(["validate", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    groups = told["groups"]
    assert groups["nccl_multinode_mine >= 1 MiB"]["modelled"] == 1
    assert groups["nccl_multinode_mine >= 1 MiB"]["basis"] == "held out"
    assert len(groups) == 2 and set(told["not_compared"]) == {
        "measured/train.log", "measured/nccl_multinode_notes.txt",
    }  # fmt: skip
    assert "holds no `# nThread" in told["not_compared"]["measured/train.log"]
    calls, refused = calls_between(tmp_path)
    assert len(calls) == 2 and not refused
    assert calls[0].system == "H100 rdma, nccl_multinode_mine.txt"


def test_a_folder_of_other_texts_alone_holds_nothing(tmp_path):
    measured = tmp_path / "measured"
    measured.mkdir()
    (measured / "NOTES.txt").write_text("how it was measured\n")
    (measured / "nccl_multinode_core.out").write_bytes(b"\xff\x00\n" * 9)
    with pytest.raises(RFabricError, match="holds nothing to validate against"):
        validate(tmp_path)
    with pytest.raises(RFabricError, match="without them nothing can be left out"):
        leave_one_out(tmp_path)


def test_a_file_by_itself_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "all_reduce_perf.log"
    path.write_text(TWO_NODES)
    assert main(["validate", str(path), "--rows"]) == 0
    assert "H100 all-reduce 16 GPUs 1073741824 B" in capsys.readouterr().out
    path.write_text("nothing\n")
    assert main(["validate", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "holds no `# nThread ... nGpus ...`" in said


TABLE = (
    "device,op_name,num_gpus,message_size,latency_us,busbw_GBps,nodes\n"
    "H100,all_reduce,16,1073741824,5512.0,365.25,2\nH100,all_reduce,16,1024,31.2,0.06,2\n"
    "H100,all_reduce,16,8,31.2,0.00,2\n"
)


def test_a_table_whose_sizes_are_bytes_and_which_does_not_say_so_is_refused(tmp_path):
    """Without `nccl_dtype` sizes count elements of two bytes; its bus bandwidth tells."""
    (tmp_path / "measured").mkdir()
    path = tmp_path / "measured" / "nccl_mine.csv"
    path.write_text(TABLE)
    large = validate(tmp_path)[0]
    assert large.points == () and "are sizes bytes (nccl_dtype int8)" in large.unmodelled[0]
    bytes_said = TABLE.replace(",2\n", ",2,int8\n").replace("nodes\n", "nodes,nccl_dtype\n")
    path.write_text(bytes_said)
    large, small = validate(tmp_path)
    assert [len(large.points), len(small.points)] == [1, 2] and not large.unmodelled
    for unstated in ("n/a", "-", "", "0e0"):
        path.write_text(bytes_said.replace("365.25", unstated))
        assert len(validate(tmp_path)[0].points) == 1
    path.write_text(bytes_said.replace("365.25", "-1"))
    assert "busbw_GBps '-1' is not above 0" in validate(tmp_path)[0].unmodelled[0]


def test_a_note_of_one_weight_sync_is_not_that_of_rows_without_a_source(tmp_path):
    (tmp_path / "weight_sync").mkdir()
    path = tmp_path / "weight_sync" / "measured.csv"
    head = "model,weights,trainer,rollout,gpu,network,transport,seconds,extra\n"
    plain = "Qwen3-8B,BF16,16,16,H100,400G,nccl broadcast,10,\n"
    path.write_text(head + plain)
    (alone,) = validate(tmp_path)[0].points
    path.write_text(head + plain + plain.replace("10,", "3,receive only"))
    assert validate(tmp_path)[0].points[0].modelled == alone.modelled

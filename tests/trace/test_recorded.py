"""Profilers' recordings and packet captures as traces: what they mean, and what is refused."""

import gzip
import json
import sqlite3
import struct
from pathlib import Path

import numpy as np
import pytest

from rfabric.errors import RFabricError
from rfabric.trace import read_trace
from rfabric.trace.formats.kineto import KINETO
from rfabric.trace.formats.nccl_inspector import NCCL_INSPECTOR
from rfabric.trace.formats.nsys import NSYS
from rfabric.trace.formats.pcap import PCAP
from rfabric.trace.recorded import RankLog, Recorded, trace_of_ranks

SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "formats"
pytest.importorskip("ijson")


def sample(name: str) -> Path:
    if not (SAMPLES / name).exists():
        pytest.skip(f"{SAMPLES / name} is not there")
    return SAMPLES / name


def reduced(start, end, number=0, size=8e9, group=(0, 1)) -> Recorded:
    return Recorded("all-reduce", size, group, "dp", number, start, end)


def notes(trace) -> str:
    return " | ".join(trace.provenance["notes"])


# --- the model of a recording ---------------------------------------------------------------------


def test_computing_between_collectives_stays_and_their_time_becomes_flows():
    busy = np.array([[0.0, 2.0], [5.0, 6.0]])
    log = RankLog(0, [reduced(2, 5), reduced(6, 7, 1)], busy)
    trace = trace_of_ranks([log], 2, 1, {})
    assert trace.compute_only()[1].max() == pytest.approx(3.0)
    assert trace.size[trace.size > 0].tolist() == [8_000_000_000] * 4  # 2 (n-1)/n S, two ways


def test_computing_beside_a_collective_goes_on_as_long_as_it_did():
    # the first second of the collective is hidden; then the GPU waits for it
    log = RankLog(0, [reduced(1, 4)], np.array([[0.0, 2.0], [4.0, 5.0]]))
    trace = trace_of_ranks([log], 2, 1, {})
    computing = {round(g, 6) for g in trace.gap.tolist() if g}
    assert computing == {1.0} and trace.compute_only()[1].max() == pytest.approx(3.0)


def test_a_collective_inside_a_server_takes_what_its_last_rank_saw():
    logs = [RankLog(0, [reduced(0, 9)]), RankLog(1, [reduced(6, 9)])]
    trace = trace_of_ranks(logs, 2, 2, {})
    assert trace.size.sum() == 0 and trace.compute_only()[1].max() == pytest.approx(3.0)
    assert "1 collectives inside a server" in notes(trace)


def test_one_rank_stands_for_all_in_groups_of_its_shape():
    log = RankLog(0, [reduced(0, 1, group=(0, 4))])
    trace = trace_of_ranks([log], 8, 4, {})
    assert sorted(trace.pairs()) == sorted(
        (f"h{a + 1}", f"h{b + 1}") for i in range(4) for a, b in ((i, i + 4), (i + 4, i))
    )
    assert "1 of 8 ranks recorded" in notes(trace)


def sent_between(logs, world, server) -> tuple[dict, str]:
    trace = trace_of_ranks(logs, world, server, {})
    return sent_by_pair(trace), notes(trace)


def test_groups_of_which_no_rank_is_recorded_do_as_the_nearest_that_is():
    """One recording more of the same job sends no fewer bytes."""
    pair = [RankLog(rank, [reduced(0, 1, group=(0, 4))]) for rank in (0, 4)]
    alone, _ = sent_between(pair[:1], 8, 4)
    assert len(alone) == 8 and sent_between(pair, 8, 4)[0] == alone
    other = [RankLog(2, [reduced(0, 1, size=4e9, group=(2, 6))])]
    sent, told = sent_between([*pair, *other], 8, 4)
    assert "3 of 8 ranks recorded; the others are taken to do as they" in told
    assert [sent[i, i + 4] for i in range(4)] == [8e9, 8e9, 4e9, 4e9]
    every = [RankLog(r, [reduced(0, 1, group=(r % 4, r % 4 + 4))]) for r in range(8)]
    assert sent_between(every, 8, 4)[0] == alone


def test_groups_of_no_shape_and_what_others_send_one_by_one_are_not_known():
    odd = [RankLog(rank, [reduced(0, 1, group=(0, 5))]) for rank in (0, 5)]
    sent, told = sent_between(odd, 8, 4)
    assert len(sent) == 2 and "1 collectives whose group has no regular shape" in told
    message = Recorded("send", 8e9, (0, 4), "pp", 1, 0, 1)
    sent, told = sent_between([RankLog(0, [message])], 8, 4)
    assert sent == {(0, 4): 8e9}
    assert "1 sends and receives: those of ranks that are not recorded are not known" in told
    every = [RankLog(rank, [message] if rank in (0, 4) else []) for rank in range(8)]
    assert "are not known" not in sent_between(every, 8, 4)[1]


def test_ranks_that_wait_for_each_other_and_ranks_that_are_not_there_are_errors():
    a = RankLog(0, [reduced(0, 1, 0), reduced(2, 3, 1)])
    b = RankLog(1, [reduced(0, 1, 1), reduced(2, 3, 0)])
    with pytest.raises(RFabricError, match="ranks wait for each other at all-reduce"):
        trace_of_ranks([a, b], 2, 1, {})
    with pytest.raises(RFabricError, match="rank 0 is recorded twice"):
        trace_of_ranks([a, a], 2, 1, {})
    with pytest.raises(RFabricError, match="names rank 9 of a job of 2"):
        trace_of_ranks([RankLog(0, [reduced(0, 1, group=(0, 9))])], 2, 1, {})
    with pytest.raises(RFabricError, match="gpus_per_server 'x'"):
        trace_of_ranks([a], 2, "x", {})


# --- Kineto ---------------------------------------------------------------------------------------


def kernel(name="allreduce", ts=100.0, dur=50.0, **more) -> dict:
    args = {
        "Collective name": name, "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 2,
        "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]",
    }  # fmt: skip
    return {
        "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
        "ts": ts, "dur": dur, "args": args | more,
    }  # fmt: skip


def profile(path: Path, *events, rank=0, world=2, **head) -> Path:
    job = {"rank": rank, "world_size": world}
    said = {"schemaVersion": 1, "distributedInfo": job, "traceEvents": list(events)} | head
    text = json.dumps(said).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_kineto_kernels_become_collectives_with_the_computing_between(tmp_path, name):
    gemm = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 0.0, "dur": 100.0}
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "ts": 0, "dur": 300}
    path = profile(tmp_path / name, step, gemm, kernel(), kernel(ts=170.0))
    trace = KINETO.read(path, gpus_per_server=1)
    assert trace.size[trace.size > 0].tolist() == [4000] * 4 and set(trace.step.tolist()) == {7}
    assert trace.compute_only()[1].max() == pytest.approx(120e-6)
    assert read_trace(path, gpus_per_server=1).size.sum() == trace.size.sum()
    assert KINETO.sniff(json.dumps({"schemaVersion": 1, "distributedInfo": {}}).encode())


def test_kineto_keeps_nanoseconds(tmp_path):
    """Of a day of ours, too: a float of microseconds since 1970 holds no less than 250."""
    at, gemm = 1_760_000_000_123_456, {"ph": "X", "cat": "kernel", "name": "gemm", "dur": 0.123}
    path = profile(tmp_path / "t.json", gemm | {"ts": 1}, kernel(ts=2, dur=50.005), kernel(ts=3))
    text = path.read_text()
    for number, told in ((1, f"{at}.001"), (2, f"{at}.124"), (3, f"{at + 60}.002")):
        text = text.replace(f'"ts": {number},', f'"ts": {told},')
    path.write_text(text.replace('"ts": 1}', f'"ts": {at}.001}}'))
    took = KINETO.read(path, gpus_per_server=1).compute_only()[1].max()
    assert took == pytest.approx(0.123e-6 + (60.002 - 50.129) * 1e-6, abs=1e-12)


def test_kineto_files_of_all_ranks_are_one_job(tmp_path):
    for rank in (0, 1):
        profile(tmp_path / f"r{rank}.json", kernel(ts=100.0 + 1e6 * rank), rank=rank)
    trace = KINETO.read(tmp_path, gpus_per_server=1)
    assert (trace.size > 0).sum() == 2 and "ranks recorded" not in notes(trace)
    profile(tmp_path / "r2.json", kernel(), rank=1)
    with pytest.raises(RFabricError, match="rank 1 is recorded twice"):
        KINETO.read(tmp_path)


def test_kineto_folders_hold_other_files_and_ranks_that_only_names_say(tmp_path):
    for rank in (0, 1):
        profile(tmp_path / f"step5_rank-{rank}.json", kernel(), distributedInfo={})
    (tmp_path / "metrics.json").write_text('{"loss": [1, 2]}')
    trace = KINETO.read(tmp_path, gpus_per_server=1)
    assert (trace.size > 0).sum() == 2 and len(trace.hosts) == 2
    assert "metrics.json: no profile, left out" in notes(trace)
    assert "rank that only its name says" in notes(trace)
    (tmp_path / "step5_rank-1.json").rename(tmp_path / "other.json")
    with pytest.raises(RFabricError, match="other.json: distributedInfo names no rank"):
        KINETO.read(tmp_path)


def exchanged(path: Path, ins: str, outs: str, rank=0, n=(0, 0), **more) -> Path:
    counts = {"In msg nelems": n[0], "Out msg nelems": n[1]}
    splits = {"In split size": ins, "Out split size": outs}
    ranks = {"Group size": 3, "Process Group Ranks": "[0, 1, 2]"}
    return profile(path, kernel("all_to_allv", **counts, **splits, **ranks, **more),
                   rank=rank, world=3)  # fmt: skip


def sent_by_pair(trace) -> dict:
    rows = trace.size > 0
    return {
        (int(a), int(b)): int(size)
        for a, b, size in zip(trace.src[rows], trace.dst[rows], trace.size[rows], strict=True)
    }


def test_kineto_all_to_alls_send_what_each_rank_split(tmp_path):
    # rows of 100 elements of 4 B, as all_to_all_single counts them
    rows = [[1, 2, 3], [0, 4, 0], [5, 0, 1]]
    for rank, row in enumerate(rows):
        column = [other[rank] for other in rows]
        exchanged(tmp_path / f"r{rank}.json", str(row), str(column), rank,
                  (100 * sum(row), 100 * sum(column)))  # fmt: skip
    trace = KINETO.read(tmp_path, gpus_per_server=1)
    assert sent_by_pair(trace) == {(0, 1): 800, (0, 2): 1200, (2, 0): 2000}
    assert "evenly" not in notes(trace) and "differ in size" not in notes(trace)


def test_one_rank_of_an_uneven_all_to_all_stands_for_the_others(tmp_path):
    path = exchanged(tmp_path / "t.json", "[1, 2, 3]", "[1, 7, 9]", n=(6, 17))
    trace = KINETO.read(path, gpus_per_server=1)
    assert sent_by_pair(trace) == {
        (0, 1): 8, (0, 2): 12, (1, 0): 28, (2, 0): 36, (1, 2): 12, (2, 1): 8,
    }  # fmt: skip
    assert "the others send as the recorded ones do on the mean" in notes(trace)


@pytest.mark.parametrize("cut", ["[1, 2, ...]", None])
def test_split_sizes_that_are_cut_or_missing_are_said(tmp_path, cut):
    path = exchanged(tmp_path / "t.json", cut, "[2, 2, 2]", n=(6, 6))
    if cut is None:
        said = json.loads(path.read_text())
        del said["traceEvents"][0]["args"]["In split size"]
        path.write_text(json.dumps(said))
    trace = KINETO.read(path, gpus_per_server=1)
    assert set(sent_by_pair(trace).values()) == {8} and "sent evenly" in notes(trace)
    assert "sent evenly" not in notes(KINETO.read(exchanged(path, "[]", "[]", n=(6, 6))))


@pytest.mark.parametrize("bad", ["[1, 2]", "[-1, 2, 5]", "[0, 0, 0]"])
def test_split_sizes_that_cannot_be_are_refused(tmp_path, bad):
    with pytest.raises(RFabricError, match=r"event 1 .*split sizes .* are none of 3 ranks; .*skip"):
        KINETO.read(exchanged(tmp_path / "t.json", bad, "[2, 2, 2]", n=(6, 6)))


def test_kineto_sizes_are_those_of_the_collective(tmp_path):
    event = kernel("_allgather_base", **{"In msg nelems": 500, "Out msg nelems": 1000})
    trace = KINETO.read(profile(tmp_path / "t.json", event), gpus_per_server=1)
    assert trace.size.max() == 2000 and "all-gather" in trace.labels  # (n-1)/n of 4,000 bytes


def test_kineto_sends_meet_their_receives_though_each_end_counts_its_own(tmp_path):
    """A pipeline of three: of the middle one the first is a receive, the second a send."""
    ranks = {"Group size": 3, "Process Group Ranks": "[0, 1, 2]"}

    def message(name, src, dst, seq, ts):
        return kernel(name, ts, **ranks, **{"Src Rank": src, "Dst Rank": dst, "Seq": seq})

    profile(tmp_path / "r0.json", message("send", 0, 1, 1, 100.0), world=3)
    middle = message("recv", 0, 1, 1, 100.0), message("send", 1, 2, 2, 400.0)
    profile(tmp_path / "r1.json", *middle, rank=1, world=3)
    profile(tmp_path / "r2.json", message("recv", 1, 2, 1, 100.0), rank=2, world=3)
    trace = KINETO.read(tmp_path, gpus_per_server=1)
    assert sent_by_pair(trace) == {(0, 1): 4000, (1, 2): 4000} and (trace.size > 0).sum() == 2
    # the second leaves once the first has come and rank 1 has computed for 250 us more
    last = np.flatnonzero(trace.size > 0)[-1]
    assert trace.compute_only()[0][last] == pytest.approx(250e-6)


def test_kineto_collectives_of_one_group_that_share_a_number_are_two(tmp_path):
    for rank in (0, 1):
        events = kernel(Seq=5), kernel(ts=170.0, Seq=5), kernel(ts=300.0, Seq=6)
        profile(tmp_path / f"r{rank}.json", *events, rank=rank)
    trace = KINETO.read(tmp_path, gpus_per_server=1)
    assert (trace.size > 0).sum() == 6 and trace.provenance["understood"].startswith("3 coll")


@pytest.mark.parametrize(
    "name", ["ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_f32(x)", "ncclSymkDevKernel_AllReduce_x"]
)
def test_kineto_kernels_on_symmetric_memory_are_no_computing(tmp_path, name):
    path = profile(tmp_path / "t.json", kernel() | {"name": name}, kernel(ts=170.0))
    assert (KINETO.read(path, gpus_per_server=1).size > 0).sum() == 4


def test_kineto_categories_were_written_with_capitals(tmp_path):
    copy = {"ph": "X", "cat": "Memcpy", "name": "Memcpy HtoD", "ts": 0.0, "dur": 100.0}
    path = profile(tmp_path / "t.json", copy, kernel() | {"cat": "Kernel"})
    trace = KINETO.read(path, gpus_per_server=1)
    assert (trace.size > 0).sum() == 2
    assert trace.compute_only()[1].max() == pytest.approx(100e-6)


def test_kineto_steps_are_those_of_the_gpu_where_the_host_is_ahead(tmp_path):
    def step(number, ts, cat):
        return {"ph": "X", "cat": cat, "name": f"ProfilerStep#{number}", "ts": ts, "dur": 1}

    host = [step(7, 0.0, "user_annotation"), step(8, 50.0, "user_annotation")]
    there = [step(7, 90.0, "gpu_user_annotation"), step(8, 160.0, "gpu_user_annotation")]
    events = kernel(ts=100.0), kernel(ts=170.0)
    ahead = KINETO.read(profile(tmp_path / "a.json", *host, *events), gpus_per_server=1)
    both = KINETO.read(profile(tmp_path / "b.json", *host, *there, *events), gpus_per_server=1)
    assert set(ahead.step[ahead.size > 0].tolist()) == {8}
    assert both.step[both.size > 0].tolist() == [7, 7, 8, 8]


def test_kineto_events_that_say_nothing_of_the_gpu_may_lack_a_time(tmp_path):
    odd = {"ph": "X", "cat": "python_function", "name": "f", "ts": 5, "dur": -1}
    assert len(KINETO.read(profile(tmp_path / "t.json", odd, odd | {"ts": None}, kernel())))


def test_kineto_says_that_each_process_saw_one_gpu(tmp_path):
    path = profile(tmp_path / "t.json", kernel(), deviceProperties=[{"id": 0}])
    assert "servers of one GPU, as each process saw one" in notes(KINETO.read(path))
    assert "servers of one" not in notes(KINETO.read(path, gpus_per_server=1))


@pytest.mark.parametrize(
    "name, counts, size",
    [("gather", (1000, 3000), {(0, 2): 4000, (1, 2): 4000}),
     ("scatter", (3000, 1000), {(2, 0): 4000, (2, 1): 4000})],
)  # fmt: skip
def test_kineto_gathers_and_scatters_have_a_root(tmp_path, name, counts, size):
    said = {"In msg nelems": counts[0], "Out msg nelems": counts[1], "Root Rank": 2}
    ranks = {"Group size": 3, "Process Group Ranks": "[0, 1, 2]"}
    path = profile(tmp_path / "t.json", kernel(name, **said, **ranks), world=3)
    assert sent_by_pair(KINETO.read(path, gpus_per_server=1)) == size


@pytest.mark.parametrize(
    "dtype, width",
    [("Float8_e4m3fnuz", 1), ("Float8_e8m0fnu", 1), ("UInt16", 2), ("UInt32", 4), ("UInt64", 8),
     ("ComplexHalf", 4), ("ComplexDouble", 16)],
)  # fmt: skip
def test_kineto_types_have_their_width(tmp_path, dtype, width):
    trace = KINETO.read(profile(tmp_path / "t.json", kernel(dtype=dtype)), gpus_per_server=1)
    assert set(trace.size[trace.size > 0].tolist()) == {1000 * width}


@pytest.mark.parametrize(
    "event, text",
    [
        (kernel("frobnicate"), r"t.json: event 1 .*unknown collective 'frobnicate'.*skip="),
        (kernel(**{"In msg nelems": 2**63}), "event 1 .*size 9223372036854775808 is no wh"),
        (kernel(**{"In msg nelems": 2**63 - 1}), r"event 1 .*size 9223372036854775807"),
        (kernel(**{"In msg nelems": -1}), "size -1 is no whole number"),
        (kernel(dtype="quux"), "unknown dtype 'quux'"),
        (kernel(**{"Group size": 5, "Process Group Ranks": "[0, 1]"}), "2 ranks of a group of 5"),
        (kernel(**{"Process Group Ranks": "[1, 1]"}), "1 ranks of a group of 2"),
        (kernel(dur=-5), "no time in microseconds"),
        ({"ph": "X", "cat": "kernel", "name": "gemm", "ts": 0, "dur": 1}, "holds no collective"),
    ],
)
def test_kineto_says_what_is_wrong_and_where(tmp_path, event, text):
    path = profile(tmp_path / "t.json", event)
    with pytest.raises(RFabricError, match=text):
        KINETO.read(path)


@pytest.mark.parametrize("rank", [2, -1])
def test_kineto_of_a_rank_that_its_job_has_not_is_refused(tmp_path, rank):
    path = profile(tmp_path / "t.json", kernel(), rank=rank)
    with pytest.raises(RFabricError, match=f"distributedInfo says rank {rank} of a job of 2; exp"):
        KINETO.read(path)


def test_kineto_of_two_runs_is_refused(tmp_path):
    """Of which the larger job was taken, and what its other ranks sent made up."""
    profile(tmp_path / "a.json", kernel())
    profile(tmp_path / "b.json", kernel(), rank=1, world=4)
    with pytest.raises(RFabricError, match="files of jobs of 2 and of 4 ranks; give the files of"):
        KINETO.read(tmp_path)


def test_kineto_skips_what_it_is_told_to_and_refuses_other_versions_and_halves(tmp_path):
    path = profile(tmp_path / "t.json", kernel("frobnicate"), kernel(ts=500.0))
    assert "skipped" in notes(KINETO.read(path, skip="frobnicate"))
    with pytest.raises(RFabricError, match="schemaVersion 9; version 1 is read"):
        KINETO.read(profile(tmp_path / "v.json", kernel(), schemaVersion=9))
    half = tmp_path / "half.json"
    half.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(
        RFabricError, match="half.json: no valid JSON after event 1 or soon.*cut short"
    ):
        KINETO.read(half)


def test_kineto_of_two_ranks_takes_as_long_as_it_did():
    trace = KINETO.read(sample("kineto/kineto_2ranks_rank0.json"), gpus_per_server=2)
    assert trace.compute_only()[1].max() == pytest.approx(trace.provenance["recorded_s"])
    assert trace.provenance["understood"].startswith("21 collectives")
    apart = KINETO.read(sample("kineto/kineto_2ranks_rank0.json"), gpus_per_server=1)
    assert apart.compute_only()[1].max() < trace.provenance["recorded_s"]
    assert apart.size.max() >= 6637568 * 4  # 2 (n-1)/n of floats, between two servers of one GPU


def test_kineto_of_early_pytorch_takes_sizes_from_the_host():
    trace = KINETO.read(sample("kineto/kineto_128ranks_rank0_old.json"))
    assert len(trace.hosts) == 128 and "6 NCCL kernels without a size" in notes(trace)
    big = 419430400 / 128  # elements of 1 byte that one of 128 ranks gets
    assert trace.size.max() == big


# --- NCCL Inspector -------------------------------------------------------------------------------


def line(coll="AllReduce", rank=0, ranks=2, nodes=2, sn=1, time=1000, size=4000, **more) -> str:
    said = {
        "header": {"id": "0xa", "rank": rank, "n_ranks": ranks, "nnodes": nodes},
        "metadata": {
            "inspector_output_format_version": more.get("version", "v4.0"),
            "dump_timestamp_us": time, "hostname": f"n{rank}", "pid": rank,
        },
        "coll_perf": {
            "coll": coll, "coll_sn": sn, "coll_msg_size_bytes": size, "coll_exec_time_us": 100,
        },
    }  # fmt: skip
    return json.dumps(said) + "\n"


def test_inspector_lines_of_both_ranks_are_one_collective(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(line(rank=r, sn=s, time=1000 * s) for s in (1, 2) for r in (0, 1)))
    trace = NCCL_INSPECTOR.read(path)
    assert trace.size[trace.size > 0].tolist() == [4000] * 4 and len(trace.hosts) == 2
    assert trace.compute_only()[1].max() == pytest.approx(900e-6)
    assert NCCL_INSPECTOR.sniff(path.read_bytes()) and len(read_trace(path)) == len(trace)


def test_inspector_sample_counts_a_reduce_scatter_as_its_speed_says():
    trace = NCCL_INSPECTOR.read(sample("nccl_inspector/inspector_v4.jsonl"))
    assert trace.size.sum() == 65536 * 31 * 4  # (n-1)/n of 32 x 64 KiB, over edges of 4 servers
    assert "1 of 8 members left lines" in notes(trace)


@pytest.mark.parametrize(
    "text, says",
    [
        (line() + line()[:-30], "t.jsonl, line 2: no valid JSON, it may be cut short"),
        (
            line(version="v9.1"),
            "^t.jsonl, line 1: inspector_output_format_version 'v9.1'; v4.x is read",
        ),
        (line(rank=5), "rank 5 of 2 on 2 nodes cannot be"),
        (line(size=2**63), "line 1: size 9223372036854775808 is no whole number"),
        (line(coll="Frob"), "unknown collective 'Frob'"),
        ('{"coll_perf": {}}\n', "line 1: header is missing"),
    ],
)
def test_inspector_says_what_is_wrong_and_where(tmp_path, text, says):
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(RFabricError, match=says):
        NCCL_INSPECTOR.read(tmp_path / "t.jsonl")


def test_inspector_takes_a_size_of_nothing(tmp_path):
    (tmp_path / "t.jsonl").write_text(line(size=0) + line(sn=2, size=100))
    trace = NCCL_INSPECTOR.read(tmp_path / "t.jsonl")
    assert trace.size[trace.size > 0].tolist() == [100, 100]


def test_inspector_counts_each_kind_of_a_communicator_by_itself(tmp_path):
    """As NCCL numbers them: the first all-reduce and the first broadcast are both 1."""
    every = (("AllReduce", 4000, 1000), ("Broadcast", 100, 2000))
    text = "".join(line(c, rank=r, size=s, time=t) for c, s, t in every for r in (0, 1))
    (tmp_path / "t.jsonl").write_text(text)
    trace = NCCL_INSPECTOR.read(tmp_path / "t.jsonl")
    assert sorted(trace.size[trace.size > 0].tolist()) == [100, 4000, 4000]
    assert "differ in size" not in notes(trace)


def member(comm, host, pid, rank, ranks, nodes, size) -> str:
    """A line of a process in a communicator."""
    said = json.loads(line(rank=rank, ranks=ranks, nodes=nodes, size=size))
    said["header"]["id"] = comm
    said["metadata"] |= {"hostname": host, "pid": pid}
    return json.dumps(said) + "\n"


def inspected(path: Path, *lines: str):
    path.write_text("".join(lines))
    trace = NCCL_INSPECTOR.read(path)
    return sent_by_pair(trace), notes(trace)


def test_inspector_of_a_job_without_a_communicator_of_all_counts_its_servers(tmp_path):
    """Two servers of two GPUs: tensor parallel inside, data parallel across."""
    inside = [member(f"0xt{h}", f"n{h}", g, g, 2, 1, 800) for h in (0, 1) for g in (0, 1)]
    across = [member(f"0xd{g}", f"n{h}", g, h, 2, 2, 4000) for g in (0, 1) for h in (0, 1)]
    pairs = dict.fromkeys(((0, 2), (2, 0), (1, 3), (3, 1)), 4000)
    for lines in ((*inside, *across), (*across, *inside)):
        sent, told = inspected(tmp_path / "t.jsonl", *lines)
        assert sent == pairs
        assert "2 processes are in no communicator of the whole job: taken as rank 2, 3" in told


def test_inspector_of_one_process_is_over_as_many_servers_as_its_communicators(tmp_path):
    """Eight GPUs of a server, and one of each of eight servers: 64 GPUs."""
    lines = [member("0xt", "n0", 7, 3, 8, 1, 800), member("0xd", "n0", 7, 0, 8, 8, 4000)]
    for some in (lines, lines[::-1]):
        sent, _ = inspected(tmp_path / "t.jsonl", *some)
        assert set(sent.values()) == {7000} and len(sent) == 64


def test_inspector_of_servers_of_unequal_many_keeps_their_ranks(tmp_path):
    """Eight GPUs and four: all of them, and the eight."""
    host = ["n0"] * 8 + ["n1"] * 4
    every = [member("0xw", host[r], r, r, 12, 2, 1200) for r in range(12)]
    inside = [member("0xt", "n0", r, r, 8, 1, 8000) for r in range(8)]
    for lines in ((*every, *inside), (*inside, *every)):
        sent, told = inspected(tmp_path / "t.jsonl", *lines)
        assert {rank for pair in sent for rank in pair} <= set(range(12))
        assert all((src < 8) != (dst < 8) for src, dst in sent) and "several hosts" not in told


def test_inspector_takes_servers_as_large_as_it_is_told(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(member("0xd", f"n{h}", 7, h, 8, 8, 4000) for h in range(8)))
    trace = NCCL_INSPECTOR.read(path, gpus_per_server=8)
    assert len(trace.hosts) == 64
    assert {(a, b) for a, b in sent_by_pair(trace) if a % 8 == 0} == {
        (8 * h, (8 * h + 8) % 64) for h in range(8)
    }


def test_inspector_of_ranks_dealt_to_hosts_in_turn_has_those_of_a_host_in_one_server(tmp_path):
    """Four GPUs of two hosts, and the two of each: 0 and 2, 1 and 3. What crosses is as if they
    were numbered host by host.
    """
    every = [member("0xw", f"n{r % 2}", r, r, 4, 2, 4000) for r in range(4)]
    inside = [member(f"0xt{r % 2}", f"n{r % 2}", r, r // 2, 2, 1, 800) for r in range(4)]
    across = [member(f"0xd{r // 2}", f"n{r % 2}", r, r % 2, 2, 2, 1000) for r in range(4)]
    sent, told = inspected(tmp_path / "t.jsonl", *every, *inside)
    rails = ((0, 2), (2, 0), (1, 3), (3, 1))
    assert sent == dict.fromkeys(rails, 2 * 3 / 4 * 4000 / 2) and "several hosts" not in told
    trace = NCCL_INSPECTOR.read(tmp_path / "t.jsonl")
    (tmp_path / "t.jsonl").write_text("".join([*every, *across]))
    both = NCCL_INSPECTOR.read(tmp_path / "t.jsonl")
    assert both.size.sum() - trace.size.sum() == 4 * 1000
    assert set(sent_by_pair(both)) == set(rails)


def test_inspector_says_where_neighbours_are_on_several_hosts(tmp_path):
    """Where not all of them left lines, or hosts have unequal many."""
    lines = [member("0xw", f"n{r % 2}", r, r, 4, 2, 4000) for r in range(4)]
    assert "neighbours are on several hosts" in inspected(tmp_path / "t.jsonl", *lines[:3])[1]
    hosts = ["n0", "n1", "n0", "n0"]
    lines = [member("0xw", hosts[r], r, r, 4, 2, 4000) for r in range(4)]
    assert "neighbours are on several hosts" in inspected(tmp_path / "t.jsonl", *lines)[1]


def test_inspector_keeps_microseconds(tmp_path):
    """Of a day of ours, too: a float of seconds since 1970 holds no less than 0.24."""
    at = 1_748_030_377_748_202
    text = "".join(line(rank=r, sn=s, time=at + 1000 * s) for s in (1, 2) for r in (0, 1))
    (tmp_path / "t.jsonl").write_text(text)
    took = NCCL_INSPECTOR.read(tmp_path / "t.jsonl").compute_only()[1].max()
    assert took == pytest.approx(900e-6, abs=1e-12)


def test_inspector_of_more_ranks_than_there_can_be_is_refused(tmp_path):
    with pytest.raises(RFabricError, match="line 1: 100000000000 ranks; there must be 1 to"):
        inspected(tmp_path / "t.jsonl", member("0xw", "n0", 1, 0, 10**11, 1, 4000))


def test_inspector_of_hosts_that_no_communicator_joins(tmp_path):
    """Two pairs of servers, and two runs of one pair."""
    pairs = [member("0xa", "n0", 5, 0, 2, 2, 4000), member("0xa", "n1", 5, 1, 2, 2, 4000)]
    others = [one.replace("0xa", "0xb").replace('"n1"', '"n3"').replace('"n0"', '"n2"')
              for one in pairs]  # fmt: skip
    sent, _ = inspected(tmp_path / "t.jsonl", *others, *pairs)
    assert sent == dict.fromkeys(((0, 1), (1, 0), (2, 3), (3, 2)), 4000)
    again = [one.replace("0xa", "0xd").replace('"pid": 5', '"pid": 6') for one in pairs]
    with pytest.raises(RFabricError, match="more processes on 'n0' than its 1 GPUs.*of one run"):
        inspected(tmp_path / "t.jsonl", *pairs, *again)


def test_what_nccl_prints_is_no_inspector(tmp_path):
    said = "n1:7:7 [0] NCCL INFO AllReduce: opCount 0 count 1024 datatype 7 op 0 root 0\n"
    (tmp_path / "nccl.log").write_text(said)
    with pytest.raises(RFabricError, match="holds no line of NCCL Inspector.* NCCL_DEBUG"):
        read_trace(tmp_path / "nccl.log")


def test_inspector_leaves_out_lines_of_sends(tmp_path):
    sends = line().replace("coll_perf", "p2p_perf")
    (tmp_path / "t.jsonl").write_text(line() + sends + line(sn=2, time=2000))
    assert "1 lines of p2p_perf dropped" in notes(NCCL_INSPECTOR.read(tmp_path / "t.jsonl"))
    (tmp_path / "t.jsonl").write_text(sends)
    with pytest.raises(RFabricError, match="holds no collective"):
        NCCL_INSPECTOR.read(tmp_path / "t.jsonl")


# --- Nsight Systems -------------------------------------------------------------------------------


def export(path: Path, ranks=2, size=4000, drop="") -> Path:
    base = sqlite3.connect(path)
    tables = {
        "StringIds": "id, value", "NVTX_EVENTS": "start, end, text, globalTid, jsonText",
        "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, correlationId, globalPid, shortName",
        "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, correlationId, globalTid",
    }  # fmt: skip
    for table, columns in tables.items():
        if table != drop:
            base.execute(f"CREATE TABLE {table} ({columns})")
    if not drop:
        names = [(1, "ncclDevKernel_AllReduce"), (2, "gemm")]
        base.executemany("INSERT INTO StringIds VALUES (?, ?)", names)
        for rank in range(ranks):
            pid = (rank + 1) << 24
            init = {"NCCL communicator ID": 7, "No. of ranks": 2, "Rank": rank}
            call = {"NCCL communicator ID": 7, "Message size [bytes]": size}
            ranges = [(0, 1, "ncclCommInitRank", pid + 1, json.dumps(init)),
                      (10, 20, "ncclAllReduce", pid + 1, json.dumps(call))]  # fmt: skip
            base.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)", ranges)
            kernels = [(1000, 2000, 5, pid, 1), (0, 1000, 6, pid, 2)]
            runtime = [(12, 14, 5, pid + 1), (2, 3, 6, pid + 1)]
            base.executemany(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?)", kernels
            )
            base.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?)", runtime)
    base.commit()
    base.close()
    return path


def test_nsight_kernels_have_the_sizes_of_the_ranges_that_launched_them(tmp_path):
    trace = NSYS.read(export(tmp_path / "t.sqlite"), gpus_per_server=1)
    assert trace.size[trace.size > 0].tolist() == [4000, 4000] and len(trace.hosts) == 2
    assert trace.compute_only()[1].max() == pytest.approx(1e-6)
    assert NSYS.sniff((tmp_path / "t.sqlite").read_bytes()[:4096])


def grouped(path: Path, calls, ends=(2000,)) -> Path:
    """Two ranks, each with a group of calls (text, what is said) that its end launched, in as many
    kernels as `ends`.
    """
    base = sqlite3.connect(export(path, ranks=2))
    for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"):
        base.execute(f"DELETE FROM {table}")
    base.execute("DELETE FROM NVTX_EVENTS WHERE text = 'ncclAllReduce'")
    for rank in range(2):
        pid = (rank + 1) << 24
        ranges = [
            (10, 11, "ncclGroupStart", pid + 1, None),
            (12, 13, "ncclGroupStart", pid + 1, None),
        ]
        ranges += [(20 + i, 20 + i, text, pid + 1, json.dumps({"NCCL communicator ID": 7} | said))
                   for i, (text, said) in enumerate(calls)]  # fmt: skip
        ranges += [(60, 61, "ncclGroupEnd", pid + 1, None), (70, 90, "ncclGroupEnd", pid + 1, None)]
        base.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)", ranges)
        for i, end in enumerate(ends):
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?)",
                         (1000, end, i, pid, 1))  # fmt: skip
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?)",
                         (75, 76, i, pid + 1))  # fmt: skip
    base.commit()
    base.close()
    return path


def test_nsight_sends_and_receives_of_a_group_are_launched_by_its_end(tmp_path):
    """An all-to-all, as PyTorch makes it: each to each, itself among them."""
    calls = [
        (text, {"Message size [bytes]": 2000, "Peer rank": peer})
        for peer in (0, 1) for text in ("ncclSend", "ncclRecv")
    ]  # fmt: skip
    trace = NSYS.read(grouped(tmp_path / "t.sqlite", calls), gpus_per_server=1)
    assert sent_by_pair(trace) == {(0, 1): 2000, (1, 0): 2000}
    assert trace.compute_only()[1].max() == 0 and "without a size" not in notes(trace)


def test_nsight_kernels_of_a_group_last_for_all_of_its_calls(tmp_path):
    calls = [("ncclAllReduce", {"Message size [bytes]": size}) for size in (4000, 6000)]
    path = grouped(tmp_path / "t.sqlite", calls, ends=(2000, 3000))
    trace = NSYS.read(path, gpus_per_server=1)
    assert sorted(trace.size[trace.size > 0].tolist()) == [4000, 4000, 6000, 6000]
    inside = NSYS.read(path, gpus_per_server=2)
    assert not inside.size.any() and inside.compute_only()[1].max() == pytest.approx(2e-6)


def test_nsight_all_to_alls_and_scatters_say_one_rank_s_share(tmp_path):
    calls = [("ncclAlltoAll", {"Message size [bytes]": 3000})]
    trace = NSYS.read(grouped(tmp_path / "a.sqlite", calls), gpus_per_server=1)
    assert sent_by_pair(trace) == {(0, 1): 3000, (1, 0): 3000}
    calls = [("ncclScatter", {"Message size [bytes]": 3000, "Root": 1})]
    trace = NSYS.read(grouped(tmp_path / "s.sqlite", calls), gpus_per_server=1)
    assert sent_by_pair(trace) == {(1, 0): 3000}


def test_nsight_of_two_communicators_that_share_no_rank_is_one_job(tmp_path):
    """Two pairs over two files, of which no communicator holds all: four ranks."""
    for rank in (0, 1):
        base = sqlite3.connect(export(tmp_path / f"{rank}.sqlite"))
        words = "UPDATE NVTX_EVENTS SET jsonText = replace(jsonText, ?, ?)"
        base.execute(words, (f'"Rank": {1 - rank}', f'"Rank": {rank}'))
        base.execute(f"{words} WHERE globalTid > {2 << 24}", ('ID": 7', 'ID": 8'))
        base.commit()
        base.close()
    trace = NSYS.read(tmp_path, gpus_per_server=1)
    assert sent_by_pair(trace) == dict.fromkeys(((0, 1), (1, 0), (2, 3), (3, 2)), 4000)


@pytest.mark.parametrize("change, why", [
    ("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL", "holds no kernel; record with nsys profile"),
    ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end=NULL", "_KERNEL: in a row end is None; export"),
    ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end=start-5", "in a row end is before start, 0; exp"),
    ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid=NULL", "in a row pid is None"),
    ("UPDATE NVTX_EVENTS SET globalTid=NULL", "table NVTX_EVENTS: in a row thread is None"),
    ("UPDATE NVTX_EVENTS SET jsonText=replace(jsonText, '\"Rank\": 1', '\"Rank\": 9')",
     "range ncclCommInitRank at 0 ns: rank 9 of 2 cannot be"),
    ("UPDATE NVTX_EVENTS SET jsonText=replace(jsonText, '\"Rank\": 1', '\"Rank\": \"1\"')",
     "rank '1' of 2 cannot be"),
])  # fmt: skip
def test_nsight_says_which_value_cannot_be(tmp_path, change, why):
    base = sqlite3.connect(export(tmp_path / "t.sqlite"))
    base.execute(change)
    base.commit()
    base.close()
    with pytest.raises(RFabricError, match=why):
        NSYS.read(tmp_path / "t.sqlite")


AT = 1_760_000_000_000_000_000


def test_nsight_keeps_nanoseconds(tmp_path):
    """Of a day of ours, too: a float of seconds since 1970 holds no less than 240."""
    base = sqlite3.connect(export(tmp_path / "t.sqlite"))
    for table in (
        "NVTX_EVENTS",
        *(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "RUNTIME")),
    ):
        for column in ("start", "end"):
            base.execute(f"UPDATE {table} SET {column} = {column} + {AT}")
    base.commit()
    base.close()
    took = NSYS.read(tmp_path / "t.sqlite", gpus_per_server=1).compute_only()[1].max()
    assert took == pytest.approx(1e-6, abs=1e-12)


def test_nsight_is_read_from_paths_of_any_name_and_not_packed(tmp_path):
    path = export(tmp_path / "räng #1?x=%41.sqlite")
    assert NSYS.read(path, gpus_per_server=1).size.sum() == 8000
    (tmp_path / "t.sqlite.gz").write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(RFabricError, match="is packed, which no database is; unpack it"):
        read_trace(tmp_path / "t.sqlite.gz")


def test_nsight_says_what_is_wrong(tmp_path):
    with pytest.raises(RFabricError, match="NVTX_EVENTS: not there; record with nsys profile"):
        NSYS.read(export(tmp_path / "a.sqlite", drop="NVTX_EVENTS"))
    with pytest.raises(RFabricError, match="size 9223372036854775807 is no whole number"):
        NSYS.read(export(tmp_path / "b.sqlite", size=2**63 - 1))
    (tmp_path / "c.sqlite").write_bytes(export(tmp_path / "d.sqlite").read_bytes()[:5000])
    with pytest.raises(RFabricError, match="c.sqlite: .*cut short"):
        NSYS.read(tmp_path / "c.sqlite")


# --- packet captures ------------------------------------------------------------------------------


def frame(src: int, dst: int, port: int = 5000, kind: bytes = b"\x08\x00") -> bytes:
    ip = struct.pack("!BBHHHBBH4B4B", 0x45, 0, 40, 0, 0, 64, 6, 0, 10, 0, 0, src, 10, 0, 0, dst)
    return b"\0" * 12 + kind + ip + struct.pack("!HH", 1000, port)


def capture(path: Path, *packets: tuple[float, bytes, int]) -> Path:
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 96, 1)
    path.write_bytes(head + b"".join(
        struct.pack("<IIII", int(t), round(t % 1 * 1e6), len(data), wire) + data
        for t, data, wire in packets
    ))  # fmt: skip
    return path


def test_conversations_are_flows_and_pauses_divide_them(tmp_path):
    pytest.importorskip("scapy")
    there, back = frame(1, 2), frame(2, 1)
    path = capture(
        tmp_path / "t.pcap",
        (10.0, there, 1500), (10.5, there, 1500), (10.6, back, 60), (13.0, there, 900),
        (13.1, frame(1, 2, kind=b"\x08\x06"), 60),
    )  # fmt: skip
    trace = PCAP.read(path)
    assert trace.size.tolist() == [3000, 60, 900]
    assert trace.start.tolist() == pytest.approx([0, 0.6, 3.0])
    assert "5 packets aggregated to 3 flows" in notes(trace) and "1 packets that are not" in notes(
        trace
    )
    assert trace.provenance["hosts"] == {"h1": "10.0.0.1", "h2": "10.0.0.2"}
    assert read_trace(path, gap="10s", threshold="100B").size.tolist() == [3900]
    with pytest.raises(RFabricError, match="holds no flow: 5 packets.*lower threshold"):
        PCAP.read(path, threshold="1MB")


def test_captures_one_behind_another_are_told_apart_by_their_clock(tmp_path):
    """As `mergecap -a` joins them: the later packets come first."""
    pytest.importorskip("scapy")
    there = frame(1, 2)
    path = capture(tmp_path / "t.pcap", (90.0, there, 900), (90.5, there, 900), (10.0, there, 60),
                   (10.4, there, 40), (9.9, there, 100))  # fmt: skip
    trace = PCAP.read(path)
    assert trace.size.tolist() == [200, 1800]
    assert trace.start.tolist() == pytest.approx([0, 80.1])


def frame6(port: int, *headers: bytes, first: int = 17) -> bytes:
    """UDP to `port` behind headers of IPv6, below a VLAN within a VLAN of the old EtherType."""
    told = struct.pack("!BBHHBB", 0x60, 0, 0, 8, first, 64) + bytes(15) + b"\1" + bytes(15) + b"\2"
    ends = bytes(12) + b"\x91\x00\0\5\x81\x00\0\6\x86\xdd"
    return ends + told + b"".join(headers) + struct.pack("!HH", 1000, port)


def test_conversations_of_ipv6_are_told_apart_behind_more_headers(tmp_path):
    pytest.importorskip("scapy")
    hop, first, later = b"\x11\0" + bytes(6), b"\x11\0\0\1" + bytes(4), b"\x11\0\0\x10" + bytes(4)
    frames = [frame6(port, hop, first=0) for port in (1, 2, 2)]
    frames += [frame6(3, first, first=44), frame6(3), frame6(0, later, first=44)]
    trace = PCAP.read(capture(tmp_path / "t.pcap", *((1.0, data, 100) for data in frames)))
    assert sorted(trace.size.tolist()) == [100, 100, 200, 200]
    assert set(trace.labels) == {"udp"} and "1 later fragments" in notes(trace)
    assert trace.provenance["hosts"].keys() == {"h1", "h2"}


def test_newer_captures_say_the_same(tmp_path):
    scapy = pytest.importorskip("scapy.utils")
    old = capture(tmp_path / "t.pcap", (1.0, frame(1, 2), 54), (1.5, frame(2, 1), 54))
    from scapy.layers.l2 import Ether

    packets = [Ether(frame(1, 2)), Ether(frame(2, 1))]
    for packet, time in zip(packets, (1.0, 1.5), strict=True):
        packet.time = time
    scapy.wrpcapng(str(tmp_path / "t.pcapng"), packets)
    one, other = PCAP.read(old), PCAP.read(tmp_path / "t.pcapng")
    assert one.start.tolist() == pytest.approx(other.start.tolist())
    assert [len(t) for t in (one, other)] == [2, 2]


def block(kind, body):
    """A block of pcapng."""
    body += bytes(-len(body) % 4)
    size = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + size + body + size


def interface(link, most=0):
    return block(1, struct.pack("<HHI", link, 0, most))


SECTION = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))


def timed(number, micros, data):
    head = struct.pack("<IIIII", number, 0, micros, len(data), len(data))
    return block(6, head + data)


def timeless(data):
    return block(3, struct.pack("<I", len(data)) + data)


def test_packets_without_a_time_stand_where_the_one_before_does(tmp_path):
    pytest.importorskip("scapy")
    path = tmp_path / "t.pcapng"
    packets = timeless(frame(1, 2)), timed(0, 500_000, frame(2, 1)), timeless(frame(2, 1))
    path.write_bytes(SECTION + interface(1) + b"".join(packets))
    trace = PCAP.read(path)
    assert trace.size.tolist() == [len(frame(1, 2)), 2 * len(frame(2, 1))]
    assert trace.start.tolist() == [0.0, 0.5]
    assert "2 packets without a time (simple packet blocks) put at that" in notes(trace)


def test_each_section_of_a_capture_has_interfaces_of_its_own(tmp_path):
    pytest.importorskip("scapy")
    path, raw = tmp_path / "t.pcapng", frame(1, 2)[14:]
    first = SECTION + interface(1) + timed(0, 0, frame(1, 2))
    path.write_bytes(first + SECTION + interface(101) + timed(0, 10, raw))
    assert PCAP.read(path).size.tolist() == [len(frame(1, 2)) + len(raw)]


@pytest.mark.parametrize("cut", [5, 30])
def test_a_capture_that_is_cut_short_is_refused(tmp_path, cut):
    pytest.importorskip("scapy")
    path = capture(tmp_path / "t.pcap", (1.0, frame(1, 2), 54), (2.0, frame(1, 2), 54))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(RFabricError, match="no valid capture after packet [12]: the file ends"):
        PCAP.read(path)


def test_a_link_layer_that_nobody_knows_is_refused(tmp_path):
    pytest.importorskip("scapy")
    path = capture(tmp_path / "t.pcap", (1.0, frame(1, 2), 54))
    data = bytearray(path.read_bytes())
    data[20] = 105
    path.write_bytes(data)
    with pytest.raises(RFabricError, match="link type 105 is not known"):
        PCAP.read(path)

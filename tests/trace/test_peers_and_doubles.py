"""Profiles whose messages count peers in their group, kernels that stand twice, and those that send
without NCCL.
"""

import sqlite3

import pytest
from test_recorded import export, kernel, notes, profile, sent_by_pair

from rfabric.trace.formats.kineto import KINETO
from rfabric.trace.formats.nsys import NSYS
from rfabric.trace.formats.other_senders import sender_of

PIPE = {"Group size": 4, "Process Group Ranks": "[1, 3, 5, 7]"}


def message(name, ts, **ends):
    ends = {f"{key.capitalize()} Rank": rank for key, rank in ends.items()}
    return kernel(name, ts, **PIPE, **ends)


def pipeline(tmp_path, peers):
    """What each rank of a pipeline of four sends on, whose peers are called by `peers`."""
    stages = (1, 3, 5, 7)
    for at, rank in enumerate(stages):
        events = [message("recv", 100.0, src=peers[at - 1])] if at else []
        events += [message("send", 400.0, dst=peers[at + 1])] if at < 3 else []
        profile(tmp_path / f"r{rank}.json", *events, rank=rank, world=8)
    return KINETO.read(tmp_path, gpus_per_server=1)


@pytest.mark.parametrize("peers", [(1, 3, 5, 7), (0, 1, 2, 3)])
def test_kineto_peers_are_counted_in_the_job_or_in_the_group(tmp_path, peers):
    trace = pipeline(tmp_path, peers)
    assert sent_by_pair(trace) == {(1, 3): 4000, (3, 5): 4000, (5, 7): 4000}
    assert "without a peer" not in notes(trace)


def test_kineto_peers_that_may_be_either_are_taken_as_the_job_s_and_said(tmp_path):
    events = message("send", 100.0, dst=1), message("recv", 300.0, src=3)
    trace = KINETO.read(profile(tmp_path / "r5.json", *events, rank=5, world=8), gpus_per_server=1)
    assert sent_by_pair(trace) == {(5, 1): 4000, (3, 5): 4000}
    assert "2 sends and receives whose peers may be counted in the job or" in notes(trace)


def test_kineto_roots_that_are_no_rank_of_the_group_are_counted_in_it(tmp_path):
    event = kernel("broadcast", **PIPE, **{"Root Rank": 2})
    trace = KINETO.read(profile(tmp_path / "t.json", event, rank=1, world=8), gpus_per_server=1)
    assert {(5, 7), (7, 1), (1, 3)} <= set(sent_by_pair(trace))


def test_kineto_kernels_that_stand_twice_count_once(tmp_path):
    one, other = kernel(ts=100.0), kernel(ts=170.0)
    path = profile(tmp_path / "t.json", one, other, one, other)
    trace = KINETO.read(path, gpus_per_server=1)
    assert (trace.size > 0).sum() == 4
    assert "2 NCCL kernels that stand twice: once dropped" in notes(trace)
    beside = kernel(ts=100.0) | {"tid": 21}  # of another stream
    trace = KINETO.read(profile(tmp_path / "t.json", one, beside), gpus_per_server=1)
    assert (trace.size > 0).sum() == 4 and "twice" not in notes(trace)


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("void deep_ep::internode::dispatch<false, 4>(int4*, float*)", "DeepEP"),
        ("nvshmemi_transfer_put", "NVSHMEM"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 4>", "an all-reduce of its own"),
        ("trtllm_allreduce_fusion::allreduce_fusion_kernel", "an all-reduce of its own"),
        ("one_shot_all_reduce_kernel", "an all-reduce of its own"),
        ("multimem_all_reduce_kernel", "symmetric memory"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp>", ""),
        ("sm90_xmma_gemm_bf16bf16_bf16f32", ""),
        ("moe_align_block_size_kernel", ""),
    ],
)  # fmt: skip
def test_kernels_that_send_without_nccl_are_told_by_their_names(name, library):
    assert sender_of(name) == library


def test_profiles_say_of_kernels_that_send_without_nccl(tmp_path):
    other = kernel(ts=300.0) | {"name": "void deep_ep::internode::combine<1>", "args": {}}
    said = notes(KINETO.read(profile(tmp_path / "t.json", kernel(), other), gpus_per_server=1))
    assert "1 kernels that send without NCCL (DeepEP) count as computing" in said
    base = sqlite3.connect(export(tmp_path / "t.sqlite"))
    base.execute("UPDATE StringIds SET value = 'nvshmem_put' WHERE value = 'gemm'")
    base.commit()
    base.close()
    said = notes(NSYS.read(tmp_path / "t.sqlite", gpus_per_server=1))
    assert said.count("1 kernels that send without NCCL (NVSHMEM)") == 2  # one a process


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL", True),
        # the driver's call within the runtime's, of the same number
        (
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT start + 1, end, correlationId,"
            " globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME",
            False,
        ),
    ],
)
def test_nsight_kernels_that_stand_twice_count_once(tmp_path, again, said):
    base = sqlite3.connect(export(tmp_path / "t.sqlite"))
    base.execute(again)
    base.commit()
    base.close()
    trace = NSYS.read(tmp_path / "t.sqlite", gpus_per_server=1)
    assert trace.size[trace.size > 0].tolist() == [4000, 4000]
    assert ("kernels that stand twice: once dropped" in notes(trace)) is said

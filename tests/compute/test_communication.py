"""Collectives: their seconds against closed forms and measurements, their flows against what each
rank must end with.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute.communication import (
    KINDS,
    RankGroup,
    algorithms,
    bus_bandwidth,
    collective_seconds,
    group_of,
    network,
    tuning_of,
)
from rfabric.compute.expert_exchange import Exchange, exchange_seconds, reached
from rfabric.compute.gpus import GPUS
from rfabric.compute.layout import Layout, layout
from rfabric.compute.named import find_model
from rfabric.compute.sync_time import (
    SOFTWARE,
    TRANSPORTS,
    Sync,
    tensors_of,
    weight_sync_parts,
    weight_sync_seconds,
)
from rfabric.errors import RFabricError
from rfabric.study.validate import allreduce, deepep, nccl, vidur, weight_sync
from rfabric.trace import scatter

SHARED = Path(__file__).parents[3] / "shared" / "data"
measured = pytest.mark.skipif(
    not SHARED.is_dir(), reason="needs ../shared/data, the measured tables"
)
H100, A100 = network(GPUS["H100"]), network(GPUS["A100"])
BIG = 2**40


# --- seconds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_a_large_ring_moves_its_share_at_the_rate_of_nvlink(gpus):
    share = (gpus - 1) / gpus
    own = BIG / gpus / A100.copy
    seconds = collective_seconds("all-reduce", BIG, gpus, A100, "ring")
    assert seconds == pytest.approx(2 * share * BIG / A100.nvlink + own, rel=1e-4)
    assert collective_seconds("all-gather", BIG, gpus, A100) == pytest.approx(
        share * BIG / A100.nvlink + own, rel=1e-4
    )


def test_over_servers_the_nics_of_all_ranks_carry_a_ring_together():
    group = RankGroup(32, 4)
    bandwidth = bus_bandwidth("all-gather", BIG, group, A100)
    assert bandwidth == pytest.approx(8 * A100.nic, rel=0.04)  # 190 GB/s below NVLink's 233
    assert bus_bandwidth("all-gather", BIG, RankGroup(4, 4), A100) == pytest.approx(
        A100.nic, rel=0.04
    )


def test_a_switch_that_reduces_sends_less_than_a_ring():
    assert "nvls" in algorithms("all-reduce", BIG, RankGroup(8), H100)
    assert "nvls" not in algorithms("all-reduce", BIG, RankGroup(8), A100)
    ring, nvls = (collective_seconds("all-reduce", BIG, 8, H100, a) for a in ("ring", "nvls"))
    assert (
        nvls == pytest.approx(BIG * (9 / 8) / (H100.nvlink * H100.tuning.nvls_share), rel=1e-3)
        and nvls < ring
    )


def test_nccl_takes_the_fastest_unless_one_is_named():
    group = RankGroup(64, 64)
    of = algorithms("all-reduce", 4096, group, H100)
    assert collective_seconds("all-reduce", 4096, group, H100) == min(of.values())
    for name, seconds in of.items():
        assert collective_seconds("all-reduce", 4096, group, H100, name) == seconds


def test_small_messages_take_the_latency_of_their_steps():
    """NCCL's own LL constants: 6.6 us and 0.6 us a hop."""
    for gpus in (2, 4, 8):
        assert collective_seconds("all-reduce", 8, gpus, H100) == pytest.approx(
            6.6e-6 + 2 * (gpus - 1) * 0.6e-6, rel=1e-3
        )


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    size=st.floats(1, 1e12),
    gpu=st.sampled_from(sorted(GPUS)),
    shape=st.sampled_from([(2, 1), (8, 1), (16, 2), (32, 4), (1024, 128), (3, 3)]),
)
def test_more_bytes_never_take_less_and_links_bound_all(kind, size, gpu, shape):
    net, group = network(GPUS[gpu]), RankGroup(*shape)
    seconds = collective_seconds(kind, size, group, net)
    assert 0 < seconds <= collective_seconds(kind, 2 * size, group, net)
    least = {"all-reduce": 1, "broadcast": 1, "reduce": 1, "send-recv": 1}.get(
        kind, (group.gpus - 1) / group.gpus
    )
    assert seconds > least * size / max(net.gpu.nvlink_bytes_per_s, group.local * net.nic_bps / 8)
    assert collective_seconds(kind.replace("-", "_"), size, group, net) == seconds


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    sizes=st.lists(st.just(0.0) | st.floats(1, 1e12), min_size=1, max_size=8),
    gpu=st.sampled_from(["A100", "H100", "B200"]),
    shape=st.sampled_from([(1, 1), (8, 1), (16, 2), (32, 4), (3, 3)]),
)
def test_collectives_of_many_sizes_take_as_long_as_each(kind, sizes, gpu, shape):
    net, group = network(GPUS[gpu]), RankGroup(*shape)
    each = [collective_seconds(kind, size, group, net) for size in sizes]
    many = np.broadcast_to(collective_seconds(kind, np.array(sizes), group, net), len(sizes))
    assert many == pytest.approx(np.array(each), rel=1e-12)


def test_groups_are_counts_numbers_or_shapes():
    assert group_of(16, H100) == group_of(range(16), H100) == RankGroup(16, 2)
    assert group_of([0, 8, 16], H100) == RankGroup(3, 3)
    assert group_of(64, network(GPUS["GB200"])) == RankGroup(64, 1)  # one NVL72 rack
    assert (
        collective_seconds("all-reduce", 1e9, 1, H100)
        == collective_seconds("all-reduce", 0, 8, H100)
        == 0
    )
    assert [tuning_of(GPUS[name]).nvls_share for name in ("A100", "H20", "B200", "GB200")] == [
        0,
        0.85,
        0.74,
        0.74,
    ]


def test_a_launch_is_added_once():
    assert collective_seconds(
        "all-reduce", 1e6, 8, network(GPUS["H100"], launch=1e-3)
    ) == pytest.approx(1e-3 + collective_seconds("all-reduce", 1e6, 8, H100))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: collective_seconds("gossip", 1, 8, H100),
            "no collective 'gossip'; there are all-reduce, all-gather",
        ),
        (
            lambda: collective_seconds("all-reduce", np.array([1.0, -1.0]), 8, H100),
            "all-reduce: -1.0 bytes must not be negative",
        ),
        (
            lambda: collective_seconds("all-reduce", -1, 8, H100),
            "all-reduce: -1 bytes must not be negative",
        ),
        (
            lambda: collective_seconds("all-gather", 1, 8, H100, "tree"),
            "all-gather has no algorithm 'tree'",
        ),
        (
            lambda: RankGroup(4, 5),
            "a group of 4 GPUs in 5 servers: every server needs a GPU; use 1 to 4",
        ),
        (
            lambda: exchange_seconds(Exchange(1, 8, 1, 4), "dispatch", RankGroup(8), H100),
            "4 experts on 8 GPUs leave some",
        ),
        (
            lambda: exchange_seconds(Exchange(1, 8, 1, 8), "scatter", RankGroup(8), H100),
            "no exchange 'normal' 'scatter'",
        ),
        (
            lambda: layout("4 nodes"),
            "layout '4 nodes' says neither GPUs nor degrees; write for example 16 (TP8) or EP8xPP2",
        ),
        (
            lambda: Sync(1, 1, Layout.over(1), Layout.over(1), H100, "pigeon"),
            "no transport 'pigeon'; there are broadcast, buckets, tensors",
        ),
    ],
)
def test_bad_input(call, text):
    with pytest.raises(RFabricError) as error:
        call()
    assert text in str(error.value)


# --- experts --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(1, 10**5),
    servers=st.sampled_from([1, 2, 4, 8]),
    direction=st.sampled_from(["dispatch", "combine"]),
    mode=st.sampled_from(["normal", "low-latency"]),
)
def test_an_exchange_grows_with_tokens_and_shrinks_with_sms(tokens, servers, direction, mode):
    def seconds(count, sms=24):
        return exchange_seconds(
            Exchange(count, 7168, 8, 256),
            direction,
            RankGroup(8 * servers, servers),
            H100,
            mode,
            sms,
        )

    assert 0 < seconds(tokens) <= seconds(2 * tokens)
    assert seconds(tokens, 4) >= seconds(tokens, 24)


def test_a_token_reaches_as_many_gpus_as_even_draws_hit():
    draws = np.random.default_rng(0).integers(0, 8, (20_000, 8))
    hit = np.mean([len(set(row)) for row in draws.tolist()])
    assert reached(Exchange(1, 1, 8, 256), RankGroup(8)) == pytest.approx((hit, 1), rel=0.01)
    assert reached(Exchange(1, 1, 8, 256), RankGroup(128, 16))[1] < 4  # kept within four servers


# --- flows ----------------------------------------------------------------------------------------


@given(n=st.integers(1, 40), sources=st.integers(1, 20), size=st.floats(1, 1e9))
def test_a_scatter_deals_equal_parts_from_even_sources(n, sources, size):
    flows = scatter(range(100, 100 + sources), list(range(n)), size)
    assert flows.dst == list(range(n)) and sum(flows.size) == pytest.approx(size)
    counts = np.bincount(np.array(flows.src) - 100, minlength=sources)
    assert counts.max() - counts.min() <= 1


# --- weight sync ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", Layout.over(8)),
        ("16 (TP16)", Layout.over(16, 16)),
        ("EP8xPP2", Layout.over(16, 1, 2, 8)),
        ("TP8xDP2", Layout.over(16, 8)),
        ("TP4, EP8, PP2", Layout.over(16, 4, 2, 8)),
        ("2x8", Layout.over(16)),
        ("4xTP8", Layout.over(32, 8)),
        ("tp=8 pp=2", Layout.over(16, 8, 2)),
        ("16 H100", Layout.over(16)),
    ],
)
def test_layouts(text, expected):
    assert layout(text) == expected


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_sync_takes_longer_with_more_bytes_and_its_parts_add_up(transport):
    one, two = (
        Sync(s, 700, Layout.over(16, 8), Layout.over(16, 8), H100, transport) for s in (60e9, 120e9)
    )
    assert weight_sync_seconds(one) == pytest.approx(sum(weight_sync_parts(one).values()))
    assert weight_sync_seconds(two) > weight_sync_seconds(one)


def test_many_senders_pack_faster_than_one_and_slow_links_bound_both():
    fast = {
        t: weight_sync_seconds(Sync(60e9, 700, Layout.over(16), Layout.over(16, 8), H100, t))
        for t in ("broadcast", "p2p")
    }
    assert fast["p2p"] < fast["broadcast"] / 4
    slow = network(GPUS["H100"], 20e9)
    assert weight_sync_seconds(
        Sync(60e9, 700, Layout.over(16), Layout.over(16, 8), slow, "broadcast")
    ) > 60e9 / (20e9 / 8)


def sync_of(transport, size=60e9, trainer="16", rollout="16 (TP8)", gpu="H100", **more):
    net = network(GPUS[gpu])
    return Sync(size, 700, layout(trainer), layout(rollout), net, transport, **more)


def test_tensor_by_tensor_each_expert_counts_and_stages_share_them():
    one, two = (sync_of("broadcast", trainer=f"EP8xPP{pp}") for pp in (1, 2))
    took = {
        (sync.trainer.pp, count): weight_sync_seconds(replace(sync, expert_tensors=count))
        for sync in (one, two)
        for count in (0, 18_432)
    }
    assert took[1, 18_432] - took[1, 0] == pytest.approx(18_432 * SOFTWARE.tensor)
    assert took[2, 18_432] - took[2, 0] == pytest.approx(9_216 * SOFTWARE.tensor)
    assert weight_sync_seconds(
        replace(sync_of("buckets"), expert_tensors=18_432)
    ) == weight_sync_seconds(sync_of("buckets"))


def test_a_bucket_passes_one_pair_of_nics_and_no_slower_packing():
    parts = weight_sync_parts(sync_of("buckets"))
    assert parts["send"] == pytest.approx(60e9 / (0.7 * 400e9 / 8))
    assert sum(parts.values()) < weight_sync_seconds(sync_of("broadcast")) / 3


def test_shard_to_shard_a_server_takes_in_one_copy():
    """As many bytes for 8 replicas in a server as for one; twice as many leave for two servers."""
    eight, one = (weight_sync_parts(sync_of("shards", rollout=r)) for r in ("8", "8 (TP8)"))
    assert eight == one and eight["send"] == pytest.approx(60e9 / 8 / H100.nic)
    few = [sync_of("shards", trainer="8", rollout=r) for r in ("8", "16")]
    one, two = (weight_sync_parts(sync)["send"] for sync in few)
    assert two == pytest.approx(2 * one)
    half = weight_sync_parts(sync_of("shards", rest=0.5))
    assert half["pack and send the rest"] == pytest.approx(30e9 / SOFTWARE.pack)


def test_a_delta_is_bound_by_comparing_shards_and_more_trainers_hold_smaller_ones():
    eight, sixteen = (weight_sync_parts(sync_of("delta", trainer=t)) for t in ("8", "16"))
    assert eight["compare"] == 2 * sixteen["compare"] == pytest.approx(60e9 / 8 / SOFTWARE.restore)
    assert eight["compare"] > sum(eight.values()) / 2


def test_an_engine_in_host_memory_is_staged_then_written_by_all_nics():
    parts = weight_sync_parts(sync_of("host-write", trainer="8", rollout="4"))
    assert parts == pytest.approx({"stage": 60e9 / SOFTWARE.stage, "write": 60e9 / 4 / H100.nic})


def test_tensors_are_those_of_a_checkpoint():
    assert tensors_of(find_model("Qwen2.5-7B")) == pytest.approx(339, rel=0.01)  # as published
    assert tensors_of(find_model("Qwen3-30B-A3B")) == pytest.approx(18_867, rel=0.02)


# --- validation -----------------------------------------------------------------------------------


def written(tmp_path, name, text):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_rows_that_cannot_be_modelled_are_named(tmp_path):
    head = "device,op_name,num_gpus,message_size,latency\n"
    rows = [
        "NVIDIA H100,all_reduce,8,1048576,0.04",
        "NVIDIA H100,gossip,8,512,0.1",
        "Abacus,all_reduce,8,512,0.1",
        "NVIDIA H100,all_reduce,8,512,",
    ]
    large, small = nccl.check(written(tmp_path, "nccl_x.csv", head + "\n".join(rows)), tmp_path)
    assert len(large.points) == 1 and not small.points
    assert large.unmodelled == (
        "row 3: operation 'gossip' is not modelled",
        "row 4: GPU 'Abacus' is not in the catalog",
        "row 5: latency is empty",
    )
    assert large.points[0].name.endswith("2097152 B")  # elements of two bytes


def test_columns_of_an_all_reduce_table_say_gpu_and_size(tmp_path):
    columns = (
        "payload_bytes,h100_4node_busbw_GBps,b200_4gpu_busbw_GBps,h20_8gpu_ring_busbw_GBps,"
        "h100_busbw_GBps"
    )
    text = f"{columns}\n17179869184,360,600,350,1\n"
    large, _ = allreduce.check(written(tmp_path, "allreduce_busbw.csv", text), tmp_path)
    assert [p.name.split()[0].split("_")[0] for p in large.points] == ["h100", "b200", "h20"]
    assert large.unmodelled == (
        "row 2 h100_busbw_GBps: says neither GPUs nor nodes, such as _8gpu_ or _4node_",
    )
    four, b200, h20 = (p.modelled for p in large.points)
    assert 300 < four < 400 and 500 < b200 < 722 and 340 < h20 < 371


def test_eight_nodes_of_an_expert_exchange(tmp_path):
    head = "device,op_name,node_num,hidden_size,num_token,num_topk,num_experts,"
    head += "dispatch_sms,dispatch_transmit_us,dispatch_notify_us\n"
    row = "NVIDIA H100,normal,{},7168,4096,8,256,24,700,50\n"
    groups = deepep.check(
        written(tmp_path, "deepep_x.csv", head + row.format(2) + row.format(8)), tmp_path
    )
    two, eight = next(iter(groups)).points
    assert two.measured == 750 and eight.modelled > 2 * two.modelled


def test_weight_sync_layouts_take_the_place_of_counts(tmp_path):
    text = (
        "source,model,weights,trainer_layout,rollout_layout,gpu,network,transport,seconds,extra\n"
        "x,Qwen3-30B-A3B,BF16,EP8xPP2,TP8xDP2,H100,400G IB,nccl broadcast,9-10,\n"
        "x,Nobody-9B,BF16,EP8xPP2,TP8xDP2,H100,,nccl broadcast,9,\n"
        "x,Qwen3-30B-A3B,BF16,EP8xPP2,TP8xDP2,H100,,carrier pigeon,9,\n"
    )
    (group,) = weight_sync.check(written(tmp_path, "measured.csv", text), tmp_path)
    assert group.points[0].measured == 9.5 and "16 -> 16 H100" in group.points[0].name
    assert group.unmodelled == (
        "row 3 Nobody-9B: no config of 'Nobody-9B' in models/ or traffic/models/",
        "row 4 Qwen3-30B-A3B: transport 'carrier pigeon' is not modelled",
    )


def test_an_empty_table_is_an_error(tmp_path):
    with pytest.raises(RFabricError, match="has no rows; delete it"):
        list(vidur.check(written(tmp_path, "vidur_h100_dgx_all_reduce.csv", "size\n"), tmp_path))


@measured
@pytest.mark.parametrize(
    ("module", "file", "most"),
    [
        (nccl, "measured/nccl_h100_sxm.csv", {">= 1 MiB": 0.15, "< 1 MiB": 0.15}),
        (
            allreduce,
            "measured/allreduce_busbw_single_node.csv",
            {">= 1 MiB": 0.15, "< 1 MiB": 0.20},
        ),
        (deepep, "measured/deepep_ll_h100_nodes.csv", {"low-latency": 0.15}),
        (deepep, "measured/deepep_normal_h100_nodes.csv", {"normal": 0.15}),
        (deepep, "measured/deepep_v1_h800.csv", {"normal": 0.15, "low-latency": 0.20}),
        (vidur, "measured/vidur_h100_dgx_all_reduce.csv", {">= 1 MiB": 0.15}),
        (vidur, "measured/vidur_h100_dgx_send_recv.csv", {">= 1 MiB": 0.15}),
        (weight_sync, "weight_sync/measured.csv", {"measured": 0.40}),
    ],
)
def test_the_model_meets_the_measured_tables(module, file, most):
    groups = [group for group in module.check(SHARED / file, SHARED) if group.points]
    assert groups and not any(group.unmodelled for group in groups)
    for ending, error in most.items():
        (group,) = (group for group in groups if group.name.endswith(ending))
        assert group.median_error <= error, group.name


@measured
def test_every_weight_sync_is_within_a_factor_of_two():
    (group,) = weight_sync.check(SHARED / "weight_sync/measured.csv", SHARED)
    assert dict(group.extra)["within_2x"] == 1.0


@pytest.mark.parametrize("gpu", ["A100", "H100", "B200"])
@pytest.mark.parametrize("servers", [4, 16])
def test_no_all_reduce_over_many_servers_beats_their_nics(gpu, servers):
    """Each server has to send 2 (m-1)/m of the buffer: 2 (n-1)/n, the bus factor, at most."""
    net = network(GPUS[gpu])
    for seconds in algorithms("all-reduce", BIG, RankGroup(8 * servers, servers), net).values():
        assert seconds >= 2 * (servers - 1) / servers * BIG / (8 * net.nic)


def test_crossing_servers_pays_for_filling_the_pipeline_up_to_its_depth():
    rails = network(GPUS["H100"]).rails
    for sent in (1e-6, 1e-4, 1e-2):
        extra = rails.seconds(20e-6, sent) - 20e-6 - sent
        assert 0 < extra <= rails.depth * (1 + 1e-6)
    assert rails.seconds(20e-6, 1.0) - rails.seconds(20e-6, 0.5) == pytest.approx(0.5)

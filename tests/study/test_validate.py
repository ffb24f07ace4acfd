"""`rfabric validate` on tables it has not seen: other models, GPUs, layouts and spellings, broken
files; and whether the model is plausible far from what it was calibrated on: monotone where physics
is, never above a peak or a wire.
"""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.cli import main
from rfabric.compute.communication import (
    KINDS,
    bus_bandwidth,
    collective_seconds,
    group_of,
    network,
)
from rfabric.compute.config_fields import read_config
from rfabric.compute.configs import model_of
from rfabric.compute.gpus import GPUS, find_gpu
from rfabric.compute.layout import layout
from rfabric.compute.memory import RESERVED_BYTES
from rfabric.compute.named import find_config, find_model
from rfabric.compute.roofline import Server, step_of
from rfabric.compute.sync_time import (
    GATHER,
    LOAD,
    TRANSPORTS,
    UNPACK,
    Sync,
    tensors_of,
    weight_sync_seconds,
)
from rfabric.compute.training import (
    Layout,
    Trainer,
    activation_bytes,
    share_recomputed,
    state_bytes,
    training_step,
)
from rfabric.errors import RFabricError
from rfabric.study.validate import (
    CHECKS,
    nemo_rl,
    rl_logs,
    serving,
    training,
    validate,
    weight_sync,
)
from rfabric.study.validate.leave_one_out import leave_one_out
from rfabric.study.validate.tables import flag

PRETRAINING = """\
system,model,gpus,precision,gbs,mbs,seq,fsdp,tp,pp,cp,vp,ep,ga,tok_s_gpu,model_tflops_gpu
DGX-H100,LLAMA3.1_405B,1024,FP8-CS,512,1,8192,0,8,8,2,8,1,64,314,792
DGX-GB200,DeepSeekV3,256,MXFP8,2048,1,4096,0,1,4,1,4,64,32,4021,1046
DGX-B200,LLAMA3_70B,64,FP8-CS,128,1,8192,0,2,4,1,5,1,16,3138,1405
DGX-GB300,LLAMA3_8B,8,NVFP4,128,4,8192,0,1,1,1,n/a,1,4,38000,2200
DGX-H100,GPT OSS 120B,64,BF16,1280,1,4096,0,1,4,1,n/a,8,80,5993,163
DGX-H100,Qwen3_235B_a22B,256,FP8-CS,2048,1,4096,0,2,8,1,4,32,128,1633,242
DGX-A100,Grok1,512,BF16,512,1,8192,,4,8,1,8,8,,100,
DGX-H100,Atlantis_9B,64,BF16,128,1,4096,0,1,1,1,n/a,1,2,1000,
DGX-Z900,LLAMA3_8B,64,BF16,128,1,4096,0,1,1,1,n/a,1,2,1000,
DGX-H100,LLAMA3_8B,64,BF16,128,1,4096,0,1,1,1,n/a,1,2,NaN,
"""
SERVING = """\
id,backend,backend_version,model_path,system,precision,mode,isl,osl,conc,tp_size,pp_size,\
attention_dp_size,moe_tp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms
moe,trtllm,1.0.0,deepseek-ai/DeepSeek-R1,b200_sxm,nvfp4,agg,1024,256,32,8,1,1,1,8,900,12
inside,sglang,0.5.6,deepseek-ai/DeepSeek-V3,h200_sxm,fp8,agg,1024,256,32,8,1,8,1,8,900,30
dense,vllm,0.10.0,meta-llama/Llama-3.1-405B-Instruct,h100_sxm,fp8,agg,1024,128,4,8,2,,,,900,40
card,vllm,0.10.0,meta-llama/Llama-3.1-8B-Instruct,l40s,,agg,1024,128,4,1,,,,,500,nan
"""
FILES = {
    "measured/training_pretraining.csv": PRETRAINING,
    "measured/serving_ttft_tpot.csv": SERVING,
    "measured/allreduce_busbw_nodes.csv": (
        "payload_MiB,h100_8node_busbw_GBps,a100_16node_busbw_GBps,h100_2gpu_algbw_Gbps\n"
        "64,300,150,900\n"
    ),
    "measured/nccl_b200_sxm.csv": (
        "latency,num_gpus,nccl_dtype,message_size,op_name,device\n"
        "0.7,64,torch.float16,134217728,AllReduce,NVIDIA B200\n"
        "0.4,16,fp16,134217728,all_gather,NVIDIA B200\n"
    ),
    "measured/deepep_normal_nodes.csv": (
        "device,op_name,node_num,hidden_size,num_token,num_topk,num_experts,"
        "dispatch_transmit_us,combine_transmit_us\n"
        "NVIDIA H200,normal,8,7168,4096,8,256,1800,3500\n"
    ),
    "weight_sync/measured.csv": (
        "source,model,weights,trainer_layout,rollout_layout,gpu,network,transport,seconds,extra\n"
        "x,GLM-4.5,BF16,EP8xPP2,TP8xDP2,H100,400G,nccl broadcast,60,\n"
        "x,Kimi-K2,FP8,256,128,H200,400 Gbit/s,RDMA p2p,1.3,\n"
        "x,Qwen3-32B,BF16,FSDP16,TP4xDP4,A100,200G,carrier pigeon,10,\n"
    ),
    "rl_measured/nemo_rl_step_times.csv": (
        "system,precision,model,policy,max_seq,avg_seq,gpus,gen_gbs,train_gbs,gen_tp_pp,"
        "train_parallel,tokens_s_gpu,step_time_s\n"
        "DGX-H100,BF16,Qwen3-30BA3B,On policy,4096,3206,32,2048,512,[2 1],[1 1 8 1 n/a],,226\n"
        "DGX-H100,BF16,Qwen3-30B-A3B,1-step Off,4096,3206,32,2048,512,[2 1],[1 1 8 1 n/a],,200\n"
    ),
    "rl_measured/verl_moe.csv": (
        "model,gpu,max_response,mode,gpus,rollout_gpus,train_gpus,step_s,gen_s,"
        "old_log_prob_s,update_actor_s\n"
        "Qwen3-30B-A3B-Base,H20,20480,colocate_sync,128,128,128,635,254,91,276\n"
    ),
    "models/published_totals.csv": (
        "model,total_b,active_b,source\n"
        "DeepSeek-V3,671,37,card\n"
        "Atlantis-9B,9,,card\n"
        "Odd,many,,card\n"
    ),
}


def folder(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
    models = tmp_path / "models"
    models.mkdir(exist_ok=True)
    (models / "DeepSeek-V3.json").write_text(
        find_config("DeepSeek-V3").read_text(encoding="utf-8"), encoding="utf-8"
    )
    return tmp_path


@pytest.fixture(scope="module")
def unseen(tmp_path_factory):
    return {
        group.name: group for group in validate(folder(tmp_path_factory.mktemp("unseen"), FILES))
    }


# --- tables it has not seen -----------------------------------------------------------------------


def test_every_row_is_modelled_or_named(unseen):
    counts = {name: (len(group.points), len(group.unmodelled)) for name, group in unseen.items()}
    assert counts["training pretraining"] == (3, 3)
    assert counts["training pretraining, MoE"] == (4, 0)
    assert counts["serving TPOT"] == (3, 1) and counts["serving TTFT"] == (4, 0)
    assert counts["allreduce_busbw_nodes >= 1 MiB"] == (3, 0)
    assert counts["nccl_b200_sxm >= 1 MiB"] == (2, 0)
    assert counts["deepep_normal_nodes normal"] == (2, 0)
    assert counts["weight sync measured"] == (2, 1)
    assert counts["nemo_rl step"] == (2, 0) and counts["nemo_rl asynchronous gain"][1] == 0
    assert counts["verl step moe"] == (1, 0)
    parts = unseen["verl colocated phases moe"].parts
    assert {name: len(part.points) for name, part in parts.items()} == {
        "generation on H20": 1,
        "log-probabilities on H20": 1,
    }
    assert counts["parameters"] == (2, 2)


def test_reasons_name_the_row_and_what_is_unknown(unseen):
    left = " | ".join(text for group in unseen.values() for text in group.unmodelled)
    for text in (
        "row 9 system DGX-H100 model Atlantis_9B",
        "no GPU is known by 'DGX-Z900'",
        "tok_s_gpu 'NaN' is not above 0",
        "card: no silicon_tpot_ms",
        "transport 'carrier pigeon' is not modelled",
        "published_totals.csv Odd: total_b 'MANY' is no number of billions",
        "Atlantis-9B: no config beside published_totals.csv",
    ):
        assert text in left, text


def test_other_models_and_gpus_stay_within_a_factor_of_three(unseen):
    """The figures in FILES are rough magnitudes, some made up: no reference, and no error is drawn
    from them. They show a factor of units, ranks or layers that slips."""
    for name in (
        "training pretraining",
        "weight sync measured",
        "parameters",
        "deepep_normal_nodes normal",
    ):
        ratios = [
            point.modelled / point.measured
            for point in unseen[name].points
            if "A100" not in point.name
        ]
        assert min(ratios) > 1 / 3 and max(ratios) < 3, (name, ratios)


def test_units_of_payloads_and_bandwidths_are_read(unseen):
    points = {
        point.name.split()[0]: point for point in unseen["allreduce_busbw_nodes >= 1 MiB"].points
    }
    assert points["h100_8node_busbw_GBps"].name.endswith(f" {64 * 2**20} B")
    assert points["h100_2gpu_algbw_Gbps"].measured == 900 / 8


def test_attention_replicas_within_tp_are_not_more_gpus():
    """SGLang's --tp 8 --dp 8 has eight GPUs; TensorRT-LLM's rows of aiconfigurator say the same by
    tp 1, dp 8.
    """
    from rfabric.study.validate.serving_rows import degrees

    model = find_model("DeepSeek-V3")
    row = {"tp_size": "8", "attention_dp_size": "8", "moe_tp_size": "1", "moe_ep_size": "8"}
    assert degrees(row, model) == (1, 1, 8, 8)
    assert degrees(row | {"tp_size": "1"}, model) == (1, 1, 8, 8)
    assert degrees(row | {"tp_size": "2", "attention_dp_size": "4"}, model) == (2, 1, 4, 8)
    assert degrees({"tp_size": "4"}, find_model("Llama-3.1-8B")) == (4, 1, 1, 1)


# --- files as people leave them -------------------------------------------------------------------


def pandas(text: str) -> str:
    """As pandas writes columns of numbers and truths of which a cell lacks."""
    said = {"True": "1.0", "False": "0.0"}
    cells = [line.split(",") for line in text.strip().splitlines()]
    turned = [[said.get(c, f"{c}.0" if c.isdigit() else c) for c in row] for row in cells]
    return "\n".join(map(",".join, turned)) + "\n"


def shuffled(text: str, seed: int) -> str:
    """The table with its columns in another order, and one more."""
    rows = [line.split(",") for line in text.strip().splitlines()]
    order = np.random.default_rng(seed).permutation(len(rows[0]))
    return "\n".join(",".join([*(row[i] for i in order), "more"]) for row in rows) + "\n"


@pytest.mark.parametrize(
    "change",
    [
        lambda t: "\ufeff" + t,
        lambda t: t.replace("\n", "\r\n"),
        lambda t: t + "," * t.splitlines()[0].count(",") + "\n\n",
        lambda t: t.replace(",", " , "),
        lambda t: "\n".join(line + ",,," if i else line for i, line in enumerate(t.splitlines())),
        lambda t: shuffled(t, 1),
        lambda t: shuffled(t, 2),
        lambda t: "# mine\n" + t,
        lambda t: t.replace(",", ";"),
        lambda t: t.replace(",", "\t"),
        pandas,
    ],
    ids=[
        "byte order mark",
        "CRLF",
        "empty rows",
        "blanks",
        "cells too many",
        "other order",
        "yet another",
        "a comment",
        "semicolons",
        "tabs",
        "pandas",
    ],
)
def test_a_table_means_the_same_however_it_was_saved(change, unseen, tmp_path):
    kept = (
        "measured/training_pretraining.csv",
        "measured/nccl_b200_sxm.csv",
        "weight_sync/measured.csv",
    )
    groups = validate(folder(tmp_path, {name: change(FILES[name]) for name in kept}))
    for group in groups:
        if group.name != "parameters":
            was = unseen[group.name]
            assert [(p.measured, p.modelled) for p in group.points] == [
                (p.measured, p.modelled) for p in was.points
            ]
            assert len(group.unmodelled) == len(was.unmodelled)


BROKEN = {
    "measured/training_of_another_kind.csv": "a,b\n1,2\n",
    "measured/training_empty.csv": "",
    "measured/training_no_rows.csv": "model,gpus,seq,tok_s_gpu\n",
    "measured/serving_ttft_tpot.csv": b"\xff\xfe\x00\x01binary\x80\n",
    "measured/nccl_other.csv": "x,y\n1,2\n",
    "measured/allreduce_busbw_other.csv": "x,y\n1,2\n",
    "measured/deepep_other.csv": "x,y\n1,2\n",
    "measured/vidur_h100_mlp.csv": "x,y\n1,2\n",
    "weight_sync/measured.csv": "x,y\n1,2\n",
    "rl_measured/nemo_rl_step_times.csv": "x,y\n1,2\n",
    "rl_measured/verl_other.csv": "x,y\n1,2\n",
    "rl_logs/gemma-2-2b.csv": "x,y\n1,2\n",
    "models/broken.json": "[1, 2",
}


def test_a_broken_file_is_named_and_the_others_go_on(tmp_path):
    groups = validate(
        folder(
            tmp_path, BROKEN | {"measured/nccl_b200_sxm.csv": FILES["measured/nccl_b200_sxm.csv"]}
        )
    )
    left = {group.file: group.unmodelled for group in groups if not group.points}
    assert {name for name in BROKEN if not name.startswith("models")} == set(left)
    assert (
        "columns a, b but no model nor gpus nor seq nor tok_s_gpu"
        in left["measured/training_of_another_kind.csv"][0]
    )
    assert (
        "has no rows" in left["measured/training_empty.csv"][0]
        and "no rows" in left["measured/training_no_rows.csv"][0]
    )
    assert "no CSV file of UTF-8 text" in left["measured/serving_ttft_tpot.csv"][0]
    assert all(left.values())
    done = {group.name: group for group in groups if group.points}
    assert set(done) == {"parameters", "nccl_b200_sxm >= 1 MiB"}
    assert "broken: model config" in done["parameters"].unmodelled[0]


def test_groups_of_several_files_have_names_of_their_own(tmp_path):
    files = {
        f"{stem}{more}.csv": FILES[f"{stem}.csv"]
        for stem in (
            "measured/serving_ttft_tpot",
            "rl_measured/nemo_rl_step_times",
            "weight_sync/measured",
        )
        for more in ("", "_b200")
    }
    names = [group.name for group in validate(folder(tmp_path, files))]
    assert len(set(names)) == len(names)
    assert {
        "serving TPOT",
        "serving TPOT b200",
        "nemo_rl step",
        "nemo_rl step b200",
        "weight sync measured_b200",
    } <= set(names)


def test_a_folder_without_data_says_what_it_may_hold(tmp_path):
    with pytest.raises(
        RFabricError,
        match=r"holds nothing to validate against; it may hold models/\*.json, "
        r"measured/serving",
    ):
        validate(tmp_path)
    with pytest.raises(RFabricError, match=r"nowhere\.log: no such file"):
        validate(tmp_path / "nowhere.log")
    with pytest.raises(RFabricError, match=r"nowhere is no folder; give one with models/\*.json"):
        validate(tmp_path / "nowhere")
    assert all(patterns for patterns in CHECKS.values())


# --- what is printed ------------------------------------------------------------------------------


def test_json_has_stable_keys_and_points_with_rows(tmp_path, capsys):
    kept = {
        name: FILES[name] for name in ("weight_sync/measured.csv", "measured/nccl_b200_sxm.csv")
    }
    where = str(folder(tmp_path, kept))
    assert main(["validate", where, "--json", "-q"]) in (0, None)
    group = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["groups"][
        "weight sync measured"
    ]
    assert {"file", "rows", "modelled", "median_error", "p90_error", "unmodelled"} <= set(group)
    assert (group["rows"], group["modelled"], len(group["unmodelled"])) == (
        3,
        2,
        1,
    ) and "points" not in group
    assert main(["validate", where, "--json", "--rows", "-q"]) in (0, None)
    points = json.loads(capsys.readouterr().out)["groups"]["weight sync measured"]["points"]
    assert len(points) == 2 and set(points[0]) == {"name", "measured", "modelled", "unit", "error"}
    assert points[0]["error"] == pytest.approx(points[0]["modelled"] / points[0]["measured"] - 1)


def test_the_table_fits_160_columns_whatever_files_are_called(tmp_path, capsys):
    long = f"measured/nccl_{'of_a_very_long_name_' * 6}.csv"
    assert main(
        ["validate", str(folder(tmp_path, {long: FILES["measured/nccl_b200_sxm.csv"]})), "-q"]
    ) in (0, None)
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 160
    # one line a group, cut in its middle; its parts have a table of their own
    groups = lines[: lines.index(next(x for x in lines if x.startswith("Within the groups")))]
    assert sum("…" in line and ">= 1 MiB" in line for line in groups) == 1


# --- plausible where nothing was measured ---------------------------------------------------------

SXM = [
    gpu for gpu in GPUS.values() if "PCIe" not in gpu.name and gpu.name not in ("H100-NVL", "L40S")
]
DENSE = ["Llama-3.1-8B", "Llama-3.1-70B", "Llama-3.1-405B", "Qwen3-32B"]
SPARSE = [
    "DeepSeek-V3",
    "Qwen3-30B-A3B",
    "Qwen3-235B-A22B",
    "gpt-oss-120b",
    "Mixtral-8x22B",
    "Kimi-K2",
]
gpus = st.sampled_from(list(GPUS.values()))


@given(
    gpus, st.sampled_from(KINDS), st.sampled_from([2, 4, 8, 16, 64, 256, 1024]), st.integers(6, 34)
)
def test_more_bytes_never_take_less_time(gpu, kind, ranks, power):
    net = network(gpu)
    assert collective_seconds(kind, 2**power, ranks, net) <= collective_seconds(
        kind, 2 ** (power + 1), ranks, net
    ) * (1 + 1e-9)


@given(
    gpus,
    st.sampled_from(["all-reduce", "all-gather", "reduce-scatter"]),
    st.sampled_from([32, 64, 128, 512, 1024]),
)
def test_no_server_sends_faster_than_its_nics(gpu, kind, ranks):
    """From four servers on; two exchange their sums once, which nccl-tests' factor counts nearly
    twice.
    """
    net = network(gpu)
    group = group_of(ranks, net)
    limit = (
        group.local * net.nic * (2 if group.servers == 2 else 1) if group.servers > 1 else np.inf
    )
    assert bus_bandwidth(kind, 2**36, group, net) <= min(limit, 2 * gpu.nvlink_bytes_per_s)


@pytest.mark.parametrize("gpu", SXM, ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("name", DENSE)
def test_tokens_come_faster_with_more_tensor_ranks(gpu, name):
    for responses in (16, 128):  # one alone waits for latencies
        step = [
            step_of(Server(find_model(name), gpu, tp)).seconds(responses, responses * 2000)
            for tp in (1, 2, 4, 8)
        ]
        assert all(a > b for a, b in itertools.pairwise(step)), (responses, step)


@given(gpus, st.sampled_from(DENSE + SPARSE), st.integers(1, 256), st.integers(1, 20000))
@settings(max_examples=60)
def test_a_decode_step_grows_with_load_and_never_beats_the_hbm(gpu, name, responses, context):
    model = find_model(name)
    step = step_of(Server(model, gpu, 8))
    took = step.seconds(responses, responses * context)
    assert (
        took
        <= step.seconds(responses + 1, (responses + 1) * context)
        <= step.seconds(responses + 1, (responses + 1) * (context + 1))
    )
    least = 2 * (model.dense_parameters - 2 * model.vocab * model.hidden) / 8
    assert took > least / gpu.hbm_bytes_per_s


@pytest.mark.parametrize("gpu", [gpu for gpu in SXM if gpu.fp8_flops], ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("name", DENSE + SPARSE)
def test_eight_bits_are_faster_than_sixteen(gpu, name):
    model, served = find_model(name), {}
    for stored in ("bf16", "fp8"):
        step = step_of(Server(model, gpu, 8, weights=stored, expert_weights=stored))
        served[stored] = step.seconds(64, 64 * 2000), step.mixed(0, 0, 8192, 8192**2 / 2)
    assert all(a < b for a, b in zip(served["fp8"], served["bf16"], strict=True))
    ep = 8 if model.experts else 1
    trainers = [Trainer(model, gpu, Layout(tp=2, pp=2, ep=ep, dp=16), p) for p in ("fp8", "bf16")]
    few, many = (training_step(trainer, 256, 4096).seconds for trainer in trainers)
    assert few <= many * (1 + 1e-12)  # alike where both wait for their hosts
    unheld = (replace(trainer, host_layer=0.0) for trainer in trainers)
    few, many = (training_step(trainer, 256, 4096).seconds for trainer in unheld)
    assert few < many


LAYOUTS = [
    (Layout(tp=2, pp=2, dp=4), 64),
    (Layout(tp=8, pp=8, dp=16), 512),
    (Layout(dp=64, sharded=True), 256),
    (Layout(tp=4, pp=4, cp=2, dp=8), 256),
]


@pytest.mark.parametrize("gpu", SXM, ids=lambda gpu: gpu.name)
@pytest.mark.parametrize(("lay", "sequences"), LAYOUTS, ids=lambda x: str(getattr(x, "gpus", x)))
def test_training_is_neither_idle_nor_faster_than_the_tensor_cores(gpu, lay, sequences):
    for name in DENSE:
        model = find_model(name)
        seconds = training_step(Trainer(model, gpu, lay), sequences, 4096).seconds
        used = (
            model.training_flops(sequences * 4096, sequences * 4096**2)
            / seconds
            / lay.gpus
            / gpu.bf16_flops
        )
        assert 0.05 < used < 0.95, (name, used)


@pytest.mark.parametrize("gpu", SXM, ids=lambda gpu: gpu.name)
def test_a_mixture_trains_faster_than_its_total_dense_and_slower_than_its_active_part(gpu):
    """Where no GPU waits for its host, which has more to launch for experts."""
    for name, total, active in (
        ("Mixtral-8x22B", "GPT-3-175B", "Yi-34B"),
        ("Qwen3-30B-A3B", "Qwen3-32B", "Llama-3.2-1B"),
    ):
        took = []
        for each in (active, name, total):
            model = find_model(each)
            lay = Layout(tp=2, pp=2, ep=8 if model.experts else 1, dp=16)
            trainer = Trainer(model, gpu, lay, host_layer=0.0)
            took.append(training_step(trainer, 256, 2048).seconds)
        assert took == sorted(took), (name, took)


PAIRS = ["8 (TP8)", "EP8xPP2", "TP8xDP2", "EP64", "16 (TP16)"]


@given(
    gpus,
    st.sampled_from(TRANSPORTS),
    st.sampled_from(PAIRS),
    st.sampled_from(PAIRS),
    st.floats(1e8, 2e12),
)
def test_weight_sync_grows_with_the_weights_and_never_beats_the_wire(
    gpu, transport, trainer, rollout, size
):
    net, tensors = network(gpu), tensors_of(find_model("Qwen3-32B"))
    sync = Sync(size, tensors, layout(trainer), layout(rollout), net, transport)
    took = weight_sync_seconds(sync)
    assert took <= weight_sync_seconds(
        Sync(size * 1.5, tensors, layout(trainer), layout(rollout), net, transport)
    )
    if transport != "delta" and not sync.in_one_domain:
        assert took >= size / (net.nic * max(sync.trainer.gpus, sync.rollout.gpus))


def test_stages_gather_their_own_weights_and_one_stage_takes_what_was_measured():
    """1 / GATHER + 1 / LOAD is 1 / UNPACK, which was fitted on trainers without a pipeline."""
    size, net = 1e12, network(GPUS["H100"])
    took = {
        pp: weight_sync_seconds(
            Sync(size, 1, layout(f"EP8xPP{pp}"), layout("TP8xDP8"), net, "broadcast")
        )
        for pp in (1, 4, 16)
    }
    assert pytest.approx(UNPACK) == 1 / (1 / GATHER + 1 / LOAD)
    assert took[1] > took[4] > took[16] > size / LOAD


SYNCS = (
    "source,model,weights,trainer,rollout,gpu,network,transport,seconds,extra\n"
    "A,Qwen2.5-7B,BF16,8,8,H100,,nccl broadcast,{a},\n"
    "A,Qwen2.5-72B,BF16,32,32,H100,,nccl broadcast,{b},\n"
    "B,Qwen2.5-14B,BF16,8,8,H100,,nccl broadcast,13.4,\n"
    "B,Qwen2.5-32B,BF16,16,16,H100,,nccl broadcast,28.8,\n"
    "C,Qwen2.5-7B,BF16,8,8,H100,,nccl broadcast,7.0,\n"
    "C,Qwen2.5-72B,BF16,32,32,H100,,nccl broadcast,62.0,\n"
)


def left_out(tmp_path, a, b):
    (tmp_path / "weight_sync").mkdir(exist_ok=True)
    (tmp_path / "weight_sync/measured.csv").write_text(SYNCS.format(a=a, b=b))
    return {group.name: group for group in leave_one_out(tmp_path)}


def test_a_weight_sync_system_is_predicted_by_the_others_alone(tmp_path):
    """Whatever A measured, what is said of A is the same, and of the others is not."""
    usual, slow = left_out(tmp_path, 7.0, 62.0), left_out(tmp_path, 70.0, 620.0)
    said = [[p.modelled for p in groups["weight sync, A"].points] for groups in (usual, slow)]
    assert said[0] == said[1]
    others = [[p.modelled for p in groups["weight sync, B"].points] for groups in (usual, slow)]
    assert others[0] != others[1]
    # two systems, half as fast as what is fitted on elsewhere, predict the third
    assert usual["weight sync, A"].median_error < 0.2
    unfitted = "weight sync, before any fit"
    assert usual["weight sync, A"].median_error < usual[unfitted].median_error


def test_weight_syncs_left_out_are_counted_by_system_and_mechanism(tmp_path, capsys):
    left_out(tmp_path, 7.0, 62.0)
    assert main(["validate", str(tmp_path), "--leave-one-out", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    groups = told["groups"]
    assert groups["weight sync, each system left out"]["modelled"] == 6
    assert groups["weight sync by broadcast"]["modelled"] == 6
    assert told["weight_sync_fitted"]["pack"] < told["weight_sync_shipped"]["pack"]
    assert main(["validate", str(tmp_path), "--leave-one-out"]) == 0
    assert "constants of weight sync" in capsys.readouterr().out


def test_nothing_to_leave_out_is_said(tmp_path, capsys):
    assert main(["validate", str(tmp_path), "--leave-one-out"]) == 2
    assert "without them nothing can be left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "transport"),
    [
        ("miles P2P weight transfer,p2p RDMA write from all training ranks", "host-write"),
        ("miles P2P weight transfer,nccl broadcast (buckets from each PP source)", "buckets"),
        ("NeMo-RL PR 2808,shard-to-shard (NCCL transfer of every tensor)", "shards"),
        ("checkpoint-engine README,p2p", "host-p2p"),
        ("someone,NIXL", "store"),
        ("someone,p2p over RDMA", "p2p"),
    ],
)
def test_what_is_called_a_transport_is_told_apart(tmp_path, row, transport):
    source, words = row.split(",")
    file = tmp_path / "measured.csv"
    file.write_text(
        "source,model,trainer,rollout,gpu,transport,seconds,extra\n"
        f"{source},Qwen3-30B-A3B,16,16 (TP8),H100,{words},2.0,\n"
        f"{source},Qwen3-30B-A3B,16,16 updated,H100,{words},2.0,FSDP1: paged back to the GPU\n"
    )
    (made,), (refused,) = weight_sync.syncs_of(file, tmp_path)
    assert made.sync.transport == transport
    assert "row 3 Qwen3-30B-A3B: FSDP1 pages the model back" in refused


def test_a_second_figure_with_checkpoint_engine_is_a_row_of_its_own(tmp_path):
    file = tmp_path / "measured.csv"
    file.write_text(
        "source,model,trainer,rollout,gpu,transport,seconds,extra\n"
        "verl,Qwen3-30B-A3B,16,16 updated,H20,without checkpoint-engine,15.76,with: 4.38\n"
        "verl,Atlantis-9B,8,4,H100,checkpoint-engine,0.7,\n"
        "verl,Atlantis-9B,8,4,H100,nccl broadcast,0.7,\n"
    )
    made, refused = weight_sync.syncs_of(file, tmp_path)
    assert [(one.sync.transport, one.seconds) for one in made] == [
        ("tensors", 15.76),
        ("host", 0.7),
        ("host", 4.38),
    ]
    assert made[1].sync.size == 18e9  # of its name, where no tensors are counted
    assert refused == [
        "row 4 Atlantis-9B: no config of 'Atlantis-9B' in models/ or traffic/models/"
    ]


RECIPES = """recipe,model,max_total_seq,act_ckpt,gen_nodes,nodes,gpus_per_node,async,max_traj_age
long,Qwen/Qwen3-30B-A3B,40960,True,,4,8,False,1
8off,Qwen/Qwen3-30B-A3B,4096,False,8,24,8,True,8
other,Qwen/Qwen3-32B,4096,True,,4,8,False,1
1off,Qwen/Qwen3-30B-A3B,4096,False,2,4,8,True,1
short,Qwen/Qwen3-30B-A3B,4096,False,,4,8,False,1
"""


@pytest.mark.parametrize(("policy", "own"), [("On policy", "short"), ("1-step Off", "1off")])
def test_a_step_is_modelled_by_the_recipe_for_its_lengths_and_steps_off_policy(
    tmp_path, policy, own
):
    """Whatever recipes of the model stand before it."""
    name = "rl_measured/nemo_rl_step_times.csv"
    head, line, _ = FILES[name].splitlines()
    steps = f"{head}\n{line.replace('On policy', policy)}\n"
    first, *recipes = RECIPES.splitlines()
    modelled = []
    for i, kept in enumerate((recipes, [r for r in recipes if r.startswith(own)], recipes[:2])):
        here = folder(tmp_path / str(i), {name: steps})
        text = "\n".join([first, *kept]) + "\n"
        (here / "rl_measured" / "nemo_rl_recipes.csv").write_text(text, encoding="utf-8")
        (group, _) = nemo_rl.check(here / name, here)
        modelled.append([point.modelled for point in group.points])
    assert modelled[0] == modelled[1] != modelled[2]


def test_numbers_and_truths_of_recipes_as_pandas_writes_them(tmp_path):
    name = "rl_measured/nemo_rl_step_times.csv"
    modelled = []
    for turned in (str, pandas):
        here = folder(tmp_path / turned.__name__, {name: turned(FILES[name])})
        (here / "rl_measured" / "nemo_rl_recipes.csv").write_text(turned(RECIPES))
        (group, _) = nemo_rl.check(here / name, here)
        modelled.append([point.modelled for point in group.points])
    assert modelled[0] == modelled[1] != []


@pytest.mark.parametrize(
    ("cell", "says"),
    [("0.0", False), ("1.0", True), ("False", False), ("TRUE", True), ("nan", False), ("", False)],
)
def test_truths_of_tables(cell, says):
    assert flag(cell) == says


def test_a_step_of_a_log_without_a_number_is_left_out_alone(tmp_path):
    head = "step,gen_s,response_mean,prompt_mean,total_tokens\n"
    whole, broken = "1,20,300,100,40000\n", "2,nan,300,100,40000\n3,20,300,100,nan\n"
    file = folder(tmp_path, {"rl_logs/verl_qwen3_8b.steps.csv": head + whole + broken})
    (group,) = rl_logs.check(file / "rl_logs/verl_qwen3_8b.steps.csv", file)
    assert [point.name for point in group.points] == ["step 1"] and len(group.unmodelled) == 2


def test_replicas_that_only_gpus_count_hold_their_weights():
    """Kimi-K2 does not fit one H200: 128 of them are no 128 replicas, nor as slow to fill."""
    model, net = find_model("Kimi-K2"), network(GPUS["H200"])
    size = model.weight_bytes_at("fp8_block")
    counted = Sync(size, 1, layout("256"), layout("128"), net, "p2p")
    assert weight_sync_seconds(counted) == pytest.approx(
        weight_sync_seconds(Sync(size, 1, layout("256"), layout("128 (TP16)"), net, "p2p"))
    )


def test_no_more_layers_are_recomputed_than_must_be():
    """A dense job that was published without recomputation needs none; with what the HBM lacks in
    activations, as many layers.
    """
    lay = Layout(tp=4, pp=8, vp=5, dp=2)
    fits = Trainer(find_model("Llama-3-70B"), GPUS["H100"], lay, "fp8", "none")
    assert share_recomputed(fits, 8192) == 0.0
    model, gpu = find_model("DeepSeek-V3"), GPUS["B200"]
    big = Trainer(model, gpu, Layout(pp=16, ep=8, dp=16), "fp8", "none")
    share, kept = share_recomputed(big, 4096), activation_bytes(big, 4096)
    assert 0 < share < 1
    assert state_bytes(big) + (1 - share) * kept == pytest.approx(gpu.hbm_bytes - RESERVED_BYTES)
    assert activation_bytes(big, 8192) == pytest.approx(2 * kept)
    shares = [share_recomputed(big, tokens) for tokens in (512, 4096, 16384, 10**6)]
    assert shares == sorted(shares) and shares[-1] <= 1
    steps = [
        training_step(replace(big, recomputed_share=share), 512, 4096).seconds
        for share in (0.0, 0.5, 1.0)
    ]
    assert steps == sorted(steps)
    full = training_step(replace(big, recompute="full"), 512, 4096).seconds
    assert steps[-1] == pytest.approx(full)


def test_adapters_alone_have_gradients_and_states():
    big = Trainer(find_model("Llama-3.1-70B"), find_gpu("H100"), Layout(tp=2, pp=4), "fp8", "none")
    small = replace(big, learns=0.003)
    assert state_bytes(small) == pytest.approx(state_bytes(big) / 9, rel=0.05)  # 2 of 18 bytes
    assert state_bytes(replace(big, learns=1.0)) == state_bytes(big)
    steps = [training_step(t, 32, 4096).seconds for t in (small, big)]
    assert 0.6 < steps[0] / steps[1] < 0.75  # 4 FLOPs a parameter, not 6, and what is no matmul


def test_what_a_row_counts_tells_whether_adapters_alone_learn(tmp_path):
    """FLOPs of a token, whatever the speed."""
    head, *_ = PRETRAINING.splitlines()
    row = "DGX-H100,LLAMA3_70B,8,FP8-CS,32,1,4096,0,2,4,1,20,1,32,{},{}"
    counted = [(1000, 6.2), (1000, 3.94), (4000, 3.94)]
    lines = [row.format(speed, speed * flops * 70.6e9 / 1e12) for speed, flops in counted]
    file = tmp_path / "measured" / "training_counted.csv"
    file.parent.mkdir()
    file.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    (group,) = training.check(file, tmp_path)
    every, adapters, faster = (point.modelled for point in group.points)
    assert adapters == faster > 1.3 * every


def test_a_stage_holds_as_many_micro_batches_as_there_are_stages_and_interleaving_adds_to_them():
    """Korthikanti et al., arXiv 2205.05198: L layers' worth at the first stage, L (1 + (p - 1) / (p
    m)) with m chunks a stage.
    """
    model, gpu = find_model("Llama-3-70B"), GPUS["H100"]

    def kept(pp, vp):
        return activation_bytes(Trainer(model, gpu, Layout(pp=pp, vp=vp, dp=16 // pp)), 4096)

    logits = 4096 * 3 * 2 * model.vocab  # of the last stage alone
    assert kept(8, 1) == pytest.approx(kept(1, 1) - logits)
    assert kept(8, 5) / kept(8, 1) == pytest.approx(1 + 7 / (8 * 5))


# --- configs --------------------------------------------------------------------------------------


def test_an_indexer_of_sparse_attention_is_counted_and_noted():
    """DeepSeek-V3.2 is V3 with an indexer: 64 heads of 128 from 1536 columns, one key, a weight a
    head, in 61 layers.
    """
    config = read_config(find_config("DeepSeek-V3"))
    sparse = config | {
        "model_type": "deepseek_v32",
        "index_n_heads": 64,
        "index_head_dim": 128,
        "index_topk": 2048,
    }
    before, after = model_of(config, "V3"), model_of(sparse, "V3.2")
    assert after.parameters - before.parameters == 61 * (
        1536 * 64 * 128 + 7168 * (128 + 64) + 2 * 128
    )
    assert "only the 2048 that its indexer picks" in after.notes[0]


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("nvidia/DeepSeek-R1-0528-FP4-v2", "DeepSeek-V3"),
        ("moonshotai/Kimi-K2.5", "Kimi-K2"),
        ("MiniMaxAI/MiniMax-M2.5", "MiniMax-M2"),
        ("zai-org/GLM-4.7-FP8", "GLM-4.5"),
        ("Grok1", "Grok-1"),
        ("GPT OSS 120B", "gpt-oss-120b"),
        ("Nemotron4 15B", "Nemotron-4-15B"),
        ("Qwen3_30B_a3B", "Qwen3-30B-A3B"),
    ],
)
def test_names_in_tables_find_their_model(name, means):
    assert find_model(name).name == means


def test_a_decode_server_without_room_is_an_error_and_no_negative_time():
    job_row = {
        "mode": "disagg",
        "model_path": "deepseek-ai/DeepSeek-V3",
        "system": "h100_sxm",
        "isl": "1000",
        "osl": "100",
        "prefill_num_workers": "1",
        "prefill_batch_size": "1",
        "prefill_tp_size": "1",
        "decode_num_workers": "1",
        "decode_batch_size": "1",
        "decode_tp_size": "1",
        "backend": "vllm",
    }
    with pytest.raises(RFabricError, match="tokens of KV cache beside its weights"):
        serving.predict(serving.job_of(job_row, []))

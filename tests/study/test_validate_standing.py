"""What `rfabric validate` says of itself: what was fitted on, what is circular, which files are not
compared, how wide a prediction is, and which model was judged.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.study.validate import Point, PointGroup, goals, left_unread, serving, standing
from rfabric.study.validate.first_token import (
    CLIENT_S,
    FITTED,
    EngineWaits,
    FirstToken,
    MeasuredFirstToken,
    fit,
    waits_of,
)
from rfabric.study.validate.leave_one_out import leave_one_out
from rfabric.study.validate.serving_rows import job_of

COLUMNS = "backend,model_path,system,mode,isl,osl,conc,tp_size,moe_ep_size,silicon_ttft_ms"
APART = {
    "mode": "disagg",
    "model_path": "deepseek-ai/DeepSeek-V3",
    "system": "b200_sxm",
    "isl": "1024",
    "osl": "64",
    "conc": "16",
    "prefill_num_workers": "1",
    "prefill_batch_size": "1",
    "prefill_tp_size": "8",
    "decode_num_workers": "1",
    "decode_batch_size": "16",
    "decode_tp_size": "8",
    "precision": "fp8",
    "backend": "sglang",
}


def points(*ratios: float) -> tuple[Point, ...]:
    """Points whose measured value is so many times the model's."""
    return tuple(Point(f"{r}", 2 * r, 2.0, "s", "a" if r < 1 else "b") for r in ratios)


def folder(tmp_path, files: dict[str, str]):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def served(*rows: str) -> str:
    return "\n".join([COLUMNS, *rows]) + "\n"


def test_the_constants_of_first_tokens_are_fitted_back():
    true, draw = FirstToken(1.5e-3, 4e-3), np.random.default_rng(1)
    rows = [
        MeasuredFirstToken(
            f"system {i % 7}", 0.0, float(draw.uniform(0.02, 0.3)), EngineWaits(layers, clients)
        )
        for i, (layers, clients) in enumerate(
            [(58, 4), (0, 256), (36, 64), (0, 16), (58, 128), (0, 0), (36, 8)] * 12
        )
    ]
    rows = [replace_measured(row, row.steps + true.seconds(row.waits)) for row in rows]
    fitted = fit(rows)
    assert fitted.layer_s == pytest.approx(true.layer_s, rel=0.1)
    assert fitted.client_s == pytest.approx(true.client_s, rel=0.1)


def replace_measured(row: MeasuredFirstToken, seconds: float) -> MeasuredFirstToken:
    return row._replace(measured=seconds)


def test_engines_that_launch_experts_from_the_host_answer_later():
    assert (
        waits_of("vllm", 58, 64) == EngineWaits(0, 0)
        and FITTED.seconds(EngineWaits(0, 0)) == CLIENT_S
    )
    row = APART | {"mode": "agg", "tp_size": "8"}
    jobs = {name: job_of(row | {"backend": name}, []) for name in ("vllm", "sglang")}
    later = serving.predict(jobs["sglang"])[0] - serving.steps_of(jobs["sglang"])[0]
    assert serving.predict(jobs["vllm"])[0] - serving.steps_of(jobs["vllm"])[0] == pytest.approx(
        CLIENT_S
    )
    assert later == pytest.approx(CLIENT_S + 58 * FITTED.layer_s + 16 * FITTED.client_s)


def test_clients_that_come_at_once_queue_for_their_first_prefill():
    """With as many prefill servers as clients nobody queues; with one all but the first do."""
    one, many = (
        serving.steady(job_of(APART | {"prefill_num_workers": n}, [])) for n in ("1", "1000")
    )
    assert one[0] > 1.3 * many[0] and one[1] == pytest.approx(many[1], rel=0.05)


def test_a_prefill_server_without_room_is_an_error_and_no_negative_time():
    row = APART | {"prefill_tp_size": "1", "system": "h100_sxm"}
    with pytest.raises(RFabricError, match="a prefill server holds 0 tokens .* use a larger tp"):
        serving.predict(job_of(row, []))


def test_first_tokens_alone_can_be_left_out_by_system(tmp_path):
    rows = [
        f"{engine},meta-llama/Llama-3.1-8B,{gpu},agg,512,16,{clients},1,1,{80 + clients}"
        for engine in ("sglang", "vllm")
        for gpu in ("h100_sxm", "h200_sxm")
        for clients in (2, 8)
    ]
    where = folder(tmp_path, {"measured/serving_ttft_tpot.csv": served(*rows)})
    together, *systems = leave_one_out(where)
    assert len(together.points) == 8 and len(systems) == 4
    # what a system measured says nothing of how it is predicted
    slower = [row if "vllm" in row or "h200" in row else f"{row}00" for row in rows]
    where = folder(tmp_path / "b", {"measured/serving_ttft_tpot.csv": served(*slower)})
    again = {group.name: group for group in leave_one_out(where)}
    own = "first token Llama-3.1-8B h100_sxm sglang"
    before = next(group for group in systems if group.name == own)
    assert [p.modelled for p in again[own].points] == [p.modelled for p in before.points]
    assert [p.measured for p in again[own].points] != [p.measured for p in before.points]


def test_a_folder_with_nothing_to_leave_out_says_what_it_may_hold(tmp_path):
    with pytest.raises(RFabricError, match="no .*nccl_multinode.*weight_sync.* or .*serving_ttft"):
        leave_one_out(tmp_path)


def test_eight_in_ten_of_what_was_measured_is_within_the_interval():
    group = PointGroup("g", "f", points(*np.linspace(0.5, 1.5, 101)))
    assert group.interval == pytest.approx((0.6, 1.4))
    assert replace(group, points=()).interval is None
    assert {name: len(part.points) for name, part in group.parts.items()} == {"a": 50, "b": 51}
    assert replace(group, points=points(0.5, 0.6)).parts == {}
    told = group.to_json()
    assert told["interval"] == pytest.approx([0.6, 1.4])
    assert told["parts"]["a"]["rows"] == 50 and told["basis"] == "held out"


def test_what_was_fitted_on_and_what_is_circular_is_marked():
    assert standing.basis("rl_measured/verl_fully_async_7b.csv", "verl step") == standing.CIRCULAR
    assert standing.basis("weight_sync/measured.csv", "weight sync measured") == standing.FITTED
    more = "measured/serving_ttft_tpot_more.csv"
    assert standing.basis(more, "serving TTFT more") == standing.FITTED
    assert standing.basis(more, "serving TPOT more") == standing.HELD_OUT


def test_every_file_is_compared_with_or_named_with_the_reason(tmp_path, capsys):
    row = "vllm,meta-llama/Llama-3.1-8B,h100_sxm,agg,512,16,2,1,1,80"
    files = {
        "measured/serving_ttft_tpot.csv": served(row),
        "measured/odd.bin": "?",
        "configs/verl/job.sh": "echo",
        "traces/lengths.csv": "tokens",
    }
    where = folder(tmp_path, files)
    assert left_unread(where) == {
        "configs/verl/job.sh": "jobs: `rfabric import` reads them, no time was measured",
        "measured/odd.bin": "no check reads such a file",
        "traces/lengths.csv": "lengths of prompts and responses: inputs of recipes",
    }
    assert main(["validate", str(where), "-q"]) in (0, None)
    out = capsys.readouterr().out
    assert "Files not compared with" in out and "no check reads such a file" in out


def test_a_model_that_was_changed_since_it_was_frozen_is_not_judged(tmp_path, capsys):
    row = "vllm,meta-llama/Llama-3.1-8B,h100_sxm,agg,512,16,2,1,1,80"
    where = str(folder(tmp_path, {"measured/serving_ttft_tpot.csv": served(row)}))
    assert main(["validate", where, "--json", "-q"]) in (0, None)
    frozen = json.loads(capsys.readouterr().out)["model_hash"]
    assert frozen == standing.model_hash() and len(frozen) == 12
    assert main(["validate", where, "-q", "--blind", frozen]) in (0, None)
    assert frozen in capsys.readouterr().out
    assert main(["validate", where, "-q", "--blind", "0" * 12]) == 2
    said = capsys.readouterr()
    assert "--blind 000000000000" in said.err and frozen in said.err and not said.out


def gains(*pairs: tuple[float, float]) -> tuple[Point, ...]:
    return tuple(Point("gain", measured, modelled, "x") for measured, modelled in pairs)


def test_what_is_asked_stands_beside_what_rows_of_each_basis_reach():
    name = "nemo_rl asynchronous gain"
    groups = [
        PointGroup(name, "a", gains((1.2, 1.1), (0.9, 1.1)), basis=standing.FITTED),
        PointGroup(f"{name} more", "b", gains((1.0, 1.1))),
        PointGroup("serving TPOT", "c", gains((1.0, 9.0))),
    ]
    asked = goals.Goal("gain", (f"{name}*",), {"right in sign": 0.9, "median": 0.15})
    told = {(one.measure, one.basis): one for one in goals.compared(asked, groups)}
    assert {key: one.rows for key, one in told.items()} == {
        ("right in sign", "held out"): 1,
        ("median", "held out"): 1,
        ("right in sign", "fitted"): 2,
        ("median", "fitted"): 2,
    }
    assert told["right in sign", "fitted"].reached == 0.5
    assert not told["right in sign", "fitted"].met
    assert told["median", "held out"].reached == pytest.approx(0.1)
    assert told["median", "held out"].met


def test_a_folder_is_asked_for_what_it_has_rows_of(tmp_path, capsys):
    rows = [
        f"{engine},meta-llama/Llama-3.1-8B,h100_sxm,agg,512,16,{clients},1,1,{80 + clients}"
        for engine in ("sglang", "vllm")
        for clients in (2, 8)
    ]
    where = folder(tmp_path, {"measured/serving_ttft_tpot.csv": served(*rows)})
    assert main(["validate", str(where), "--leave-one-out", "--json", "-q"]) in (0, None)
    (asked,) = json.loads(capsys.readouterr().out)["asked"]
    assert asked["name"] == "time to first token" and asked["basis"] == "left out"
    assert asked["rows"] == 4 and asked["met"] == (asked["reached"] <= asked["asked"])
    assert main(["validate", str(where), "--leave-one-out", "-q"]) in (0, None)
    assert "What is asked, and what is reached" in capsys.readouterr().out

"""The rows of `measured/serving_ttft_tpot*.csv` as jobs: servers, how their engines batch, clients.

What a row leaves open is taken from its model's name or config, or from how its engine is usually
run; what cannot be modelled is refused with the reason.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ...compute.gpus import find_gpu
from ...compute.memory import UTILISATION
from ...compute.models import STORED_BYTES, Model
from ...compute.named import find_model
from ...compute.roofline import Server
from ...compute.serving import ENGINES, Batching
from ...errors import RFabricError
from .first_token import EngineWaits, waits_of

# How the engines were run is not in the table. As if (fitted on it): engines were started with
# isl + batch + SLACK tokens a step, not with their defaults; SGLang from 0.5.6 on put prefill and
# decode into one step (--enable-mixed-chunk).
SLACK_TOKENS = 1500
MIXED_SGLANG = (0, 5, 6)
# Share of HBM an engine takes by default: vLLM gpu_memory_utilization; SGLang mem_fraction_static
# of 80 GB GPUs; TensorRT-LLM free_gpu_memory_fraction, which is of what weights leave.
UTILISATIONS = {"vllm": UTILISATION, "sglang": 0.85, "trtllm": 0.9}


class Disaggregated(NamedTuple):
    """A row of prefill and decode on different servers: how many `workers` of each, prompts in a
    batch of prefill.
    """

    prefill: Server
    prefill_workers: int
    prefill_batch: int
    decode: Server
    decode_workers: int
    clients: int
    prompt: int
    output: int
    waits: EngineWaits = EngineWaits(0, 0)


class ClosedLoop(NamedTuple):
    """A row as the model takes it."""

    server: Server
    batching: Batching
    clients: int
    prompt: int
    output: int
    waits: EngineWaits = EngineWaits(0, 0)


def system_of(row: dict) -> str:
    """A model on a GPU under an engine, and whether prefill runs apart: two releases or formats of
    a model's weights are one.
    """
    model = find_model(row["model_path"])
    name = model.name if model else row["model_path"]
    apart = ", disaggregated" if row.get("mode") == "disagg" else ""
    return f"{name} {row['system']} {row.get('backend', '')}{apart}"


def part_of(row: dict) -> str:
    """Its system, and whether the model is dense or a mixture of experts."""
    model = find_model(row["model_path"])
    return f"{system_of(row)}, {'MoE' if model and model.experts else 'dense'}"


def job_of(row: dict, models: list[Path]) -> ClosedLoop | Disaggregated:
    """The job of a row; RFabricError saying what in it is not modelled."""
    if row.get("mode") == "disagg":
        return _apart(row, models)
    if row.get("mode") not in ("agg", "", None):
        raise RFabricError(f"mode {row['mode']} is not modelled; agg and disagg are")
    server, backend = server_of(row, models), row.get("backend", "")
    if backend not in ENGINES:
        raise RFabricError(f"backend {backend!r} is not modelled; {', '.join(ENGINES)} are")
    clients = number_in(row, "conc") or (number_in(row, "batch_size") or 0) * server.dp
    if not clients:
        raise RFabricError("neither conc nor batch_size says how many clients there are")
    prompt, output = _lengths(row)
    return ClosedLoop(
        server,
        _batching(row, backend, prompt, int(clients), server.dp),
        int(clients),
        prompt,
        output,
        _waits(row, server, clients),
    )


def _waits(row: dict, server: Server, clients: float) -> EngineWaits:
    experts = server.model.experts
    return waits_of(row.get("backend", ""), experts.layers if experts else 0, int(clients))


def _apart(row: dict, models: list[Path]) -> Disaggregated:
    sides, workers, batches = [], [], []
    for side in ("prefill", "decode"):
        counts = [
            number_in(row, f"{side}_{key}") for key in ("num_workers", "batch_size", "tp_size")
        ]
        if not all(counts):
            raise RFabricError(
                f"a disagg row must say {side}_num_workers, {side}_batch_size and {side}_tp_size"
            )
        part = {"tp_size": row[f"{side}_tp_size"], "pp_size": row.get(f"{side}_pp_size")}
        part |= {
            key: row.get(f"{side}_{key}")
            for key in ("attention_dp_size", "moe_tp_size", "moe_ep_size")
        }
        sides.append(server_of(row | part, models))
        workers.append(int(counts[0]))
        batches.append(int(counts[1]))
    clients = number_in(row, "conc") or batches[1] * workers[1] * sides[1].dp
    return Disaggregated(
        sides[0],
        workers[0],
        batches[0] * sides[0].dp,
        sides[1],
        workers[1],
        int(clients),
        *_lengths(row),
        _waits(row, sides[0], clients),
    )


def _lengths(row: dict) -> tuple[int, int]:
    prompt, output = int(number_in(row, "isl") or 0), int(number_in(row, "osl") or 0)
    if min(prompt, output) < 1:
        raise RFabricError(f"isl {prompt} and osl {output} must be 1 or more")
    return prompt, output


def _batching(row: dict, backend: str, prompt: int, clients: int, dp: int) -> Batching:
    """How the engine of a row batched; attention replicas have a scheduler each, all in step."""
    version = tuple(int(part) for part in re.findall(r"\d+", row.get("backend_version") or "")[:3])
    mixed = backend != "sglang" or version >= MIXED_SGLANG
    first = ENGINES[backend].prefill_first and not mixed
    tokens, engine = dp * (prompt + SLACK_TOKENS) + clients, ENGINES[backend]
    return replace(
        engine, batched_tokens=tokens, max_num_seqs=dp * engine.max_num_seqs, prefill_first=first
    )


def server_of(row: dict, models: list[Path]) -> Server:
    """The server of a row. RFabricError for a model or GPU that is not known."""
    model, gpu = find_model(row["model_path"], models), find_gpu(row["system"])
    if model is None or gpu is None:
        raise RFabricError(
            f"no config of {row['model_path']}"
            if model is None
            else f"no GPU {row['system']!r} in the catalog"
        )
    tp, pp, dp, ep = degrees(row, model)
    gemm, experts = precisions(row, model)
    backend = row.get("backend", "")
    return Server(
        model,
        gpu,
        tp,
        pp,
        dp,
        ep,
        gemm,
        experts,
        kv_bytes(backend, gemm),
        UTILISATIONS.get(backend, UTILISATION),
    )


def degrees(row: dict, model: Model) -> tuple[int, int, int, int]:
    """(tp of an attention replica, pp, attention replicas, ep).

    Where the ranks that experts are dealt to are tp alone, its attention replicas are counted
    within them: SGLang's --tp 8 --dp 8 runs on 8 GPUs.
    """
    tp, pp, dp, cut, ep = (
        int(number_in(row, f"{key}_size") or 1)
        for key in ("tp", "pp", "attention_dp", "moe_tp", "moe_ep")
    )
    if model.experts and dp > 1 and cut * ep == tp != tp * dp and tp % dp == 0:
        tp //= dp
    return tp, pp, dp, ep


def kv_bytes(backend: str, weights: str) -> float:
    """Bytes of a number in the KV cache: TensorRT-LLM's fp8 and fp4 checkpoints (ModelOpt) say fp8,
    others leave bf16.
    """
    return 1.0 if backend == "trtllm" and weights != "bf16" else 2.0


def precisions(row: dict, model: Model) -> tuple[str, str]:
    """How the weights, and those of experts, are stored: as stated, else as name or config say;
    never larger than published.
    """
    overall = row.get("precision") or _in_name(row.get("model_path") or "")
    gemm = _precision(row.get("gemm_quant_mode") or overall) or model.stored
    experts = _precision(row.get("moe_quant_mode") or overall) or model.stored
    if STORED_BYTES[model.stored] < STORED_BYTES[experts]:
        experts = model.stored
    return gemm, experts


def _in_name(model_path: str) -> str:
    """What a model's name says of its weights: Qwen3-32B-FP8, DeepSeek-R1-NVFP4."""
    match = re.search(r"[-_](nvfp4|mxfp4|fp8|fp4|int4)(?=[-_]|$)", model_path.lower())
    return match[1] if match else ""


def _precision(name: str) -> str | None:
    """A name such as fp8_block, nvfp4, w4a16_mxfp4 or bfloat16 as a key of STORED_BYTES; None where
    it says nothing.
    """
    text = name.lower()
    if text in ("", "none"):
        return None
    for stored, marks in _MARKS.items():
        if any(mark in text for mark in marks):
            return stored
    raise RFabricError(f"precision {name!r} is not modelled; names of {', '.join(_MARKS)} are")


_MARKS = {
    "mxfp4": ("mxfp4",),
    "int4": ("int4", "w4a"),
    "nvfp4": ("fp4",),
    "fp8_block": ("fp8_block",),
    "fp8": ("fp8", "w8a8", "int8"),
    "bf16": ("bf16", "fp16", "bfloat16", "float16", "half"),
}


def number_in(row: dict, key: str) -> float | None:
    """A column's number; None where it is empty or says nan. RFabricError where it is none."""
    text = (row.get(key) or "").strip()
    try:
        return None if text.lower() in _NOTHING else float(text)
    except ValueError:
        raise RFabricError(f"{key} {text!r} is no number") from None


_NOTHING = ("", "nan", "none", "null", "n/a", "na", "-")

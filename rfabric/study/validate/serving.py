"""Serving: time to first token and time per output token of engines under a closed loop of clients,
model against measurement.

    columns: backend, backend_version, model_path, system, mode, isl, osl, batch_size, conc,
             tp_size, pp_size, attention_dp_size, moe_ep_size, precision, gemm_quant_mode,
             moe_quant_mode, prefill_*, decode_*, silicon_ttft_ms, silicon_tpot_ms

A row is `conc` clients (else batch_size a replica) that each send requests of isl tokens and take
osl tokens, one after the other, all starting at once; means over all requests are compared, as
benchmarks report them. Rows of mode disagg name workers of either phase. Of them the steady state
is modelled, X requests a second in all:

    X = min( prefill workers x batch / seconds of a batch,
             clients / (prefill + KV on its way + osl x decode step) )
    TPOT = decode step of X osl TPOT / workers responses
    TTFT = clients / X - osl TPOT       (Little)

Figures beside the errors: of pairs that differ in TP alone, the share whose order of TPOT is right
(`tp_pairs`, `tp_order`).
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...compute.gpus import find_gpu
from ...compute.models import BF16_BYTES, STORED_BYTES, Model
from ...compute.named import find_model
from ...compute.requests import closed_loop
from ...compute.roofline import Server, step_of
from ...compute.serving import ENGINES, Batching, Served, serve
from ...errors import RFabricError
from ...units import bytes_in
from . import Point, PointGroup
from .tables import attempt, named, rows

# How the engines were run is not in the table. As if (fitted on it): each client sent so many
# requests, the first into the queue of the start; engines were started with isl + batch + SLACK
# tokens a step, not with their defaults; SGLang from 0.5.6 on put prefill and decode into one step
# (--enable-mixed-chunk).
ROUNDS = 8
SLACK_TOKENS = 1500
MIXED_SGLANG = (0, 5, 6)
# From a client to the engine's queue: HTTP, tokenisation (fitted on the same table); part of the
# time to the first token.
CLIENT_S = 10e-3
# Share of HBM an engine takes by default: vLLM gpu_memory_utilization; SGLang mem_fraction_static
# of 80 GB GPUs; TensorRT-LLM free_gpu_memory_fraction, which is of what weights leave.
UTILISATION = {"vllm": 0.9, "sglang": 0.85, "trtllm": 0.9}


_USUAL = "serving_ttft_tpot"  # the name of a file that is the only one of its kind


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


class ClosedLoop(NamedTuple):
    """A row as the model takes it."""

    server: Server
    batching: Batching
    clients: int
    prompt: int
    output: int


class MeasuredRow(NamedTuple):
    """One measured run: its job, seconds to the first token and for each more."""

    name: str
    row: dict
    job: ClosedLoop | Disaggregated
    ttft: float
    tpot: float


def check(path: Path, data: Path) -> Iterable[PointGroup]:
    """TTFT and TPOT of every row."""
    file = str(path.relative_to(data))
    table = [
        (row.get("id") or f"line {line}", row)
        for line, row in enumerate(rows(path, "model_path", "system"), 2)
    ]
    found, lost = attempt(
        (name, lambda name=name, row=row: _measured(name, row, data)) for name, row in table
    )
    yield _group(named("serving TPOT", path, _USUAL), file, found, lost, "tpot", _order(found))
    yield _group(named("serving TTFT", path, _USUAL), file, found, lost, "ttft", ())


def _measured(name: str, row: dict, data: Path) -> MeasuredRow:
    job = job_of(row, [data / "models"])
    return MeasuredRow(name, row, job, *predict(job))


def _group(
    name: str, file: str, found: list[MeasuredRow], lost: list[str], key: str, extra: tuple
) -> PointGroup:
    column = f"silicon_{key}_ms"
    points, without = [], []
    for m in found:
        measured = _number(m.row, column)
        if measured:
            points.append(Point(m.name, measured, 1e3 * getattr(m, key), "ms"))
        else:
            without.append(f"{m.name}: no {column}")
    return PointGroup(name, file, tuple(points), (*lost, *without), extra=extra)


def predict(job: ClosedLoop | Disaggregated) -> tuple[float, float]:
    """(mean TTFT, mean TPOT) as a client sees them, s."""
    if isinstance(job, Disaggregated):
        ttft, tpot = steady(job)
        return ttft + CLIENT_S, tpot
    served = play(job)
    return float(served.ttft.mean()) + CLIENT_S, float(
        served.tpot.mean()
    ) if job.output > 1 else 0.0


def steady(a: Disaggregated) -> tuple[float, float]:
    """(TTFT, TPOT) of servers that prefill and servers that decode, in the steady state."""
    tokens = a.prompt * a.prefill_batch
    batch = step_of(a.prefill).mixed(0, 0, tokens, tokens * a.prompt / 2)
    sent = a.prefill.model.kv_bytes_per_token * a.prompt * a.prefill.kv_bytes / BF16_BYTES
    sent_s = sent / (bytes_in(a.prefill.gpu.nic_bps, 1) * min(a.prefill.tp, a.decode.tp))
    most = a.prefill_workers * a.prefill_batch / batch
    context, longest = a.prompt + a.output / 2, a.prompt + a.output
    room = a.decode.kv_capacity_tokens
    if room < longest:
        raise RFabricError(
            f"a decode server holds {max(room, 0)} tokens of KV cache beside its weights, a "
            f"request needs {longest}; use a larger tp or ep, or shorter lengths"
        )

    def decoding(n: float) -> float:
        return step_of(a.decode).seconds(n, n * context)

    low, high = (0.0, min(a.clients / a.decode_workers, room / longest))
    for _ in range(50):  # responses a decode worker holds: as many as X brings it
        n = (low + high) / 2
        brought = (
            min(most, a.clients / (batch + sent_s + a.output * decoding(n)))
            * a.output
            * decoding(n)
        )
        low, high = (n, high) if brought / a.decode_workers > n else (low, n)
    tpot = decoding(low)
    rate = min(most, low * a.decode_workers / (a.output * tpot))
    return max(a.clients / rate - a.output * tpot, batch + sent_s), tpot


def play(job: ClosedLoop) -> Served:
    """The closed loop of a row."""
    requests = closed_loop(job.clients, job.prompt, job.output, ROUNDS, CLIENT_S)
    return serve(step_of(job.server), job.server.kv_capacity_tokens, job.batching, requests)


def job_of(row: dict, models: list[Path]) -> ClosedLoop | Disaggregated:
    """The job of a row; RFabricError saying what in it is not modelled."""
    if row.get("mode") == "disagg":
        return _apart(row, models)
    if row.get("mode") not in ("agg", "", None):
        raise RFabricError(f"mode {row['mode']} is not modelled; agg and disagg are")
    server, backend = server_of(row, models), row.get("backend", "")
    if backend not in ENGINES:
        raise RFabricError(f"backend {backend!r} is not modelled; {', '.join(ENGINES)} are")
    clients = _number(row, "conc") or (_number(row, "batch_size") or 0) * server.dp
    if not clients:
        raise RFabricError("neither conc nor batch_size says how many clients there are")
    prompt, output = _lengths(row)
    return ClosedLoop(
        server,
        _batching(row, backend, prompt, int(clients), server.dp),
        int(clients),
        prompt,
        output,
    )


def _apart(row: dict, models: list[Path]) -> Disaggregated:
    sides, workers, batches = [], [], []
    for side in ("prefill", "decode"):
        counts = [_number(row, f"{side}_{key}") for key in ("num_workers", "batch_size", "tp_size")]
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
    clients = _number(row, "conc") or batches[1] * workers[1] * sides[1].dp
    return Disaggregated(
        sides[0],
        workers[0],
        batches[0] * sides[0].dp,
        sides[1],
        workers[1],
        int(clients),
        *_lengths(row),
    )


def _lengths(row: dict) -> tuple[int, int]:
    prompt, output = int(_number(row, "isl") or 0), int(_number(row, "osl") or 0)
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
    """The server of a row."""
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
        UTILISATION.get(backend, 0.9),
    )


def degrees(row: dict, model: Model) -> tuple[int, int, int, int]:
    """(tp of an attention replica, pp, attention replicas, ep).

    Where the ranks that experts are dealt to are tp alone, its attention replicas are counted
    within them: SGLang's --tp 8 --dp 8 runs on 8 GPUs.
    """
    tp, pp, dp, cut, ep = (
        int(_number(row, f"{key}_size") or 1)
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
    found = re.search(r"[-_](nvfp4|mxfp4|fp8|fp4|int4)(?=[-_]|$)", model_path.lower())
    return found[1] if found else ""


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


def _order(found: list[MeasuredRow]) -> tuple[tuple[str, float], ...]:
    """How many pairs of rows differ in TP alone, and the share of them whose TPOT the model puts in
    the right order.
    """
    same = defaultdict(list)
    for m in found:
        if _number(m.row, "silicon_tpot_ms"):
            keys = (
                "backend",
                "backend_version",
                "model_path",
                "system",
                "precision",
                "isl",
                "osl",
                "batch_size",
                "conc",
                "mode",
            )
            same[tuple(m.row.get(key) for key in keys)].append(m)
    right = [
        (_number(a.row, "silicon_tpot_ms") < _number(b.row, "silicon_tpot_ms")) == (a.tpot < b.tpot)
        for group in same.values()
        for a, b in combinations(group, 2)
        if _tp(a) != _tp(b)
    ]
    return (("tp_pairs", float(len(right))), ("tp_order", float(np.mean(right)))) if right else ()


def _tp(m: MeasuredRow) -> int:
    return m.job.server.tp if isinstance(m.job, ClosedLoop) else m.job.decode.tp


def _number(row: dict, key: str) -> float | None:
    """A column's number; None where it is empty or says nan."""
    text = (row.get(key) or "").strip()
    try:
        return None if text.lower() in _NOTHING else float(text)
    except ValueError:
        raise RFabricError(f"{key} {text!r} is no number") from None


_NOTHING = ("", "nan", "none", "null", "n/a", "na", "-")

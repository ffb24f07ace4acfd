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
         + clients / (prefill workers x batch / seconds of a batch) / 2 / ROUNDS

the last for the start, when all clients come at once and queue for their first prefill.
What a first token waits for beside steps is `first_token`'s.

Figures beside the errors: of pairs that differ in TP alone, the share whose order of TPOT is right
(`tp_pairs`, `tp_order`).
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...compute.models import BF16_BYTES
from ...compute.requests import closed_loop
from ...compute.roofline import Server, step_of
from ...compute.serving import Served, serve
from ...errors import RFabricError
from ...units import bytes_in
from . import Point, PointGroup
from .first_token import CLIENT_S, FITTED, MeasuredFirstToken
from .serving_rows import ClosedLoop, Disaggregated, job_of, number_in, part_of, system_of
from .tables import attempt, named, rows

# How the runs were driven is not in the table. As if (fitted on it): each client sent so many
# requests, the first into the queue of the start.
ROUNDS = 8

_USUAL = "serving_ttft_tpot"  # the name of a file that is the only one of its kind


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
    measured_rows, lost = attempt(
        (name, lambda name=name, row=row: _measured(name, row, data)) for name, row in table
    )
    yield _group(
        named("serving TPOT", path, _USUAL),
        file,
        measured_rows,
        lost,
        "tpot",
        _order(measured_rows),
    )
    yield _group(named("serving TTFT", path, _USUAL), file, measured_rows, lost, "ttft", ())


def _measured(name: str, row: dict, data: Path) -> MeasuredRow:
    job = job_of(row, [data / "models"])
    return MeasuredRow(name, row, job, *predict(job))


def _group(
    name: str, file: str, measured_rows: list[MeasuredRow], lost: list[str], key: str, extra: tuple
) -> PointGroup:
    column = f"silicon_{key}_ms"
    points, without = [], []
    for m in measured_rows:
        measured = number_in(m.row, column)
        if measured:
            points.append(Point(m.name, measured, 1e3 * getattr(m, key), "ms", part_of(m.row)))
        else:
            without.append(f"{m.name}: no {column}")
    return PointGroup(name, file, tuple(points), (*lost, *without), extra=extra)


def predict(job: ClosedLoop | Disaggregated) -> tuple[float, float]:
    """(mean TTFT, mean TPOT) as a client sees them, s."""
    ttft, tpot = steps_of(job)
    return ttft + FITTED.seconds(job.waits), tpot


def steps_of(job: ClosedLoop | Disaggregated) -> tuple[float, float]:
    """(mean TTFT, mean TPOT) of the engine's steps alone, s."""
    if isinstance(job, Disaggregated):
        return steady(job)
    served = play(job)
    return float(served.ttft.mean()), float(served.tpot.mean()) if job.output > 1 else 0.0


def answered(path: Path, data: Path) -> tuple[list[MeasuredFirstToken], list[str]]:
    """The first tokens of a file with what its steps take, and the rows left out."""

    def one(row: dict) -> MeasuredFirstToken:
        job, measured = job_of(row, [data / "models"]), number_in(row, "silicon_ttft_ms")
        if not measured:
            raise RFabricError("no silicon_ttft_ms")
        return MeasuredFirstToken(system_of(row), measured / 1e3, steps_of(job)[0], job.waits)

    return attempt(
        (f"{path.name} line {line}", lambda row=row: one(row))
        for line, row in enumerate(rows(path, "model_path", "system"), 2)
    )


def steady(a: Disaggregated) -> tuple[float, float]:
    """(TTFT, TPOT) of servers that prefill and servers that decode, in the steady state."""
    tokens = a.prompt * a.prefill_batch
    batch = step_of(a.prefill).mixed(0, 0, tokens, tokens * a.prompt / 2)
    sent = a.prefill.model.kv_bytes_per_token * a.prompt * a.prefill.kv_bytes / BF16_BYTES
    sent_s = sent / (bytes_in(a.prefill.gpu.nic_bps, 1) * min(a.prefill.tp, a.decode.tp))
    most = a.prefill_workers * a.prefill_batch / batch
    context, longest = a.prompt + a.output / 2, a.prompt + a.output
    _room("prefill", a.prefill, a.prompt)
    room = _room("decode", a.decode, longest)

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
    start = a.clients / most / 2 / ROUNDS
    return max(a.clients / rate - a.output * tpot, batch + sent_s) + start, tpot


def _room(side: str, server: Server, longest: int) -> int:
    """Tokens of KV cache of a server; RFabricError where a request does not fit."""
    room = server.kv_capacity_tokens
    if room < longest:
        raise RFabricError(
            f"a {side} server holds {max(room, 0)} tokens of KV cache beside its weights, a "
            f"request needs {longest}; use a larger tp or ep, or shorter lengths"
        )
    return room


def play(job: ClosedLoop) -> Served:
    """The closed loop of a row."""
    requests = closed_loop(job.clients, job.prompt, job.output, ROUNDS, CLIENT_S)
    return serve(step_of(job.server), job.server.kv_capacity_tokens, job.batching, requests)


def _order(measured_rows: list[MeasuredRow]) -> tuple[tuple[str, float], ...]:
    """How many pairs of rows differ in TP alone, and the share of them whose TPOT the model puts in
    the right order.
    """
    same = defaultdict(list)
    for m in measured_rows:
        if number_in(m.row, "silicon_tpot_ms"):
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
        (number_in(a.row, "silicon_tpot_ms") < number_in(b.row, "silicon_tpot_ms"))
        == (a.tpot < b.tpot)
        for group in same.values()
        for a, b in combinations(group, 2)
        if _tp(a) != _tp(b)
    ]
    return (("tp_pairs", float(len(right))), ("tp_order", float(np.mean(right)))) if right else ()


def _tp(m: MeasuredRow) -> int:
    return m.job.server.tp if isinstance(m.job, ClosedLoop) else m.job.decode.tp

"""Logged steps of RL jobs: given the lengths of each step's responses, does generation time follow,
step by step?

    columns: timing/gen or timing_s/gen or gen_s, response_length/{mean,max,min} or
    response_{mean,max,min}, prompt_length/mean or
           prompt_mean, total_tokens (where the file's name has no batch)
    name:  the model, and bszN for N responses a step:
           Qwen2.5-0.5B-bsz256_2-prompt1024-resp512-0.567.steps.csv

GPUs, engine and parallelism are not logged: one H100 is assumed for all, so the level is not
comparable (`level`: median of modelled over measured) and the errors of the points say as little;
correlation is what counts.

    correlation        of measured and modelled seconds over steps
    correlation_of_10  of their means over 10 steps in a row
    linear_bound       of the best linear function of all logged lengths, fitted to this very log:
                       what the lengths can explain
"""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ...compute.gpus import GPUS
from ...compute.models import Model
from ...compute.named import find_model
from ...compute.requests import independent
from ...compute.roofline import Server, step_of
from ...compute.serving import Batching, serve
from ...errors import RFabricError
from ...rl.lengths import Lengths
from . import Point, PointGroup
from .tables import rows as table_of

GENERATION = ("timing/gen", "timing_s/gen", "gen_s")
RESPONSE, PROMPT = ("response_length/{}", "response_{}"), ("prompt_length/{}", "prompt_{}")


def check(path: Path, data: Path) -> Iterable[PointGroup]:
    """Generation time of every step of one log."""
    file = str(path.relative_to(data))
    name = f"rl log {path.name.removesuffix('.csv').removesuffix('.steps')}"
    rows = table_of(path)
    model = model_of(path.name, [data / "models"])
    if model is None:
        missing = "no config of the model in the file's name"
        unread = (f"step {row.get('step', i)}: {missing}" for i, row in enumerate(rows))
        return [PointGroup(name, file, (), tuple(unread))]
    points, lost, logged = [], [], []
    for i, row in enumerate(rows):
        step = f"step {row.get('step', i)}"
        try:
            points.append(_point(step, row, model, path.name))
            logged.append(_logged(row))
        except RFabricError as error:
            lost.append(f"{step}: {error}")
    return [
        PointGroup(
            name,
            file,
            tuple(points),
            tuple(lost),
            "one H100 assumed: correlation counts",
            _figures(points, logged),
        )
    ]


def model_of(name: str, folders: list[Path]) -> Model | None:
    """The model of the longest run of words in a file's name that one has."""
    words = re.split(r"[-_\s]+", re.sub(r"(\.steps)?\.csv$", "", name))
    for count in range(len(words), 0, -1):
        for first in range(len(words) - count + 1):
            model = find_model("-".join(words[first : first + count]), folders)
            if model:
                return model
    return None


def _point(step: str, row: dict, model: Model, name: str) -> Point:
    measured = _first(row, GENERATION)
    mean = _of(row, RESPONSE, "mean")
    prompt = _of(row, PROMPT, "mean")
    if measured is None or mean is None or prompt is None or measured <= 0:
        raise RFabricError(
            "a row must have generation seconds and the means of response and prompt tokens"
        )
    responses = _responses(row, name, mean + prompt)
    most, least = _of(row, RESPONSE, "max") or mean, _of(row, RESPONSE, "min") or 1.0
    return Point(
        step,
        measured,
        generation_seconds(model, responses, prompt, mean, max(least, 1.0), most),
        "s",
    )


def generation_seconds(
    model: Model, responses: int, prompt: float, mean: float, least: float, most: float
) -> float:
    """Seconds of a step on the assumed GPU, of responses whose lengths have these statistics."""
    lengths = Lengths.of_moments("step", mean, least, most, responses)
    # the last is the longest
    outputs = lengths.at((np.arange(responses) + 2 ** (-1 / responses)) / responses)
    server = Server(model, GPUS["H100"])
    prompts = np.full(responses, max(round(prompt), 1))
    return serve(
        step_of(server), server.kv_capacity_tokens, Batching(), independent(prompts, outputs)
    ).seconds


def _responses(row: dict, name: str, tokens: float) -> int:
    """Responses a step: from the file's name, else from all tokens of the step."""
    match = re.search(r"bsz(\d+)", name)
    total = _first(row, ("total_tokens",))
    if not match and not total:
        raise RFabricError(
            "neither the file's name (bszN) nor total_tokens says how many responses a step has"
        )
    return int(match[1]) if match else max(round(total / tokens), 1)


def _figures(points: list[Point], logged: list[list[float]]) -> tuple[tuple[str, float], ...]:
    measured, modelled = (
        np.array([getattr(p, key) for p in points]) for key in ("measured", "modelled")
    )
    if len(points) < 3:
        return ()
    table = np.column_stack([np.ones(len(points)), np.array(logged)])
    table = table[:, [0, *(i for i in range(1, table.shape[1]) if np.ptp(table[:, i]) > 0)]]
    figures = [
        ("level", float(np.median(modelled / measured))),
        ("correlation", _correlation(measured, modelled)),
    ]
    if len(points) >= 30:
        ten = np.ones(10) / 10
        means = (np.convolve(series, ten, "valid") for series in (measured, modelled))
        figures.append(("correlation_of_10", _correlation(*means)))
    if len(points) > 2 * table.shape[1]:
        best = table @ np.linalg.lstsq(table, measured, rcond=None)[0]
        figures.append(("linear_bound", _correlation(measured, best)))
    return tuple((key, value) for key, value in figures if np.isfinite(value))


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) and np.ptp(b) else float("nan")


def _logged(row: dict) -> list[float]:
    """All logged lengths of a step, 0 where one is not."""
    return [
        _of(row, names, key) or 0.0
        for names in (RESPONSE, PROMPT)
        for key in ("mean", "max", "min")
    ]


def _of(row: dict, names: tuple[str, ...], key: str) -> float | None:
    return _first(row, tuple(name.format(key) for name in names))


def _first(row: dict, names: tuple[str, ...]) -> float | None:
    """The number in the first of these columns that holds one."""
    for name in names:
        text = (row.get(name) or "").strip()
        if text and text.lower() != "nan":
            try:
                return float(text)
            except ValueError as error:
                raise RFabricError(f"column {name} holds {text!r}, no number") from error
    return None

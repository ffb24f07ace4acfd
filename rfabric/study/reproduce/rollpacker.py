"""RollPacker (NSDI'26, arXiv 2509.21009) run again: tail batching, planner, reward scheduler, stream trainer.

Its jobs (`JOBS`) run on `rl.rollpacker`, at this project's times of generation and training on H800. Taken from the paper: models,
GPUs, parallelism, lengths (median, P75, longest) and the shares of reward and training in a step of veRL, which set the seconds of
both beside a rollout. Never taken: a speed-up. The breakdown is that of code: its 1.48 x of tail batching at 14B is said of code.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist, mean

import numpy as np

from ...rl import Workload, read_recipe
from ...rl.lengths import Lengths
from ...rl.rollpacker import LONG, SHORT, SYNCHRONOUS, Packed, Policy, Rewards, Tests, run, runs, with_tp
from . import Row, span

Progress = Callable[[str], None]
STEPS = 20  # of a run: four cycles of four short rounds and a long one at 1.25


def rows(seed: int = 0, progress: Progress = lambda _: None) -> list[Row]:
    """Every row."""
    parts = (baseline_rows, round_rows, breakdown_rows, grid_rows, planner_rows, reward_rows, stream_rows, left_out)
    found: list[Row] = []
    for part in parts:
        progress(part.__name__.removesuffix("_rows"))
        found += part(seed)
    return found


# --- inputs ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A job of the evaluation: GPUs, tokens of the longest response, tp of the rollout; tp, pp, cp of training."""

    model: str
    gpus: int
    most: int
    tp: int
    training: tuple[int, int, int]


JOBS = {
    "7B": Job("Qwen2.5-7B", 16, 8192, 1, (2, 1, 1)),
    "14B": Job("Qwen2.5-14B", 32, 16384, 2, (2, 2, 2)),
    "32B": Job("Qwen2.5-32B", 64, 32768, 2, (4, 1, 2)),
}
MAXIMA = {"7B": "8k", "14B": "16k", "32B": "32k"}
PROMPTS, GROUP, MAX_PROMPT = 128, 8, 2048  # P0, R0; the longest prompt is not stated: that of the default recipe
# Stated of 14B and 16k: P75 755 to 1.1k tokens by task, the longest response 25 to 32 x the median. Middles of both.
P75, LONGEST_OVER_MEDIAN = (755 + 1100) / 2, (25 + 32) / 2
# Shares of rollout, reward and training in a step of veRL (14B, 16k) by task.
SHARES = {"math": (0.72, 0.05, 0.23), "code": (0.66, 0.13, 0.21), "LLM judge": (0.71, 0.07, 0.22)}
TASK = "code"


def lengths(most: int) -> Lengths:
    """Responses cut at `most`: log-normal through median and P75, and on to the longest of a batch, which is `most`.

    The median is that of the 16k job in all three: what is typical does not depend on the maximum.
    """
    normal = NormalDist()
    last = 1 - 1 / (PROMPTS * GROUP)
    knots = [0.5, 0.75, last]
    tokens = np.log([JOBS["14B"].most / LONGEST_OVER_MEDIAN, P75, most])
    z = np.array([normal.inv_cdf(q) for q in knots])
    quantile = np.unique(np.concatenate([np.linspace(0, 1, 201), 1 - np.geomspace(0.05, 1 / (PROMPTS * GROUP), 60), knots]))
    at = np.array([normal.inv_cdf(q) for q in np.clip(quantile, 1e-4, last)])
    low = tokens[0] + (at - z[0]) * (tokens[1] - tokens[0]) / (z[1] - z[0])
    high = tokens[1] + (at - z[1]) * (tokens[2] - tokens[1]) / (z[2] - z[1])
    return Lengths(f"rollpacker-{most}", quantile, np.exp(np.where(at <= z[1], low, high)), "quantiles that RollPacker states")


@cache
def job(name: str) -> Workload:
    """A job of the evaluation: all GPUs generate, then all of them train, one update a step."""
    of = JOBS[name]
    tp, pp, cp = of.training
    settings = {
        "model": of.model, "placement": "colocated", "cluster.training_gpus": of.gpus, "cluster.generation_gpus": of.gpus,
        "generation.tp": of.tp, "generation.batch": PROMPTS, "generation.group_size": GROUP, "generation.max_prompt": MAX_PROMPT,
        "generation.max_response": min(of.most, 32768 - MAX_PROMPT),
        "training.tp": tp, "training.pp": pp, "training.cp": cp, "training.mini_batches": 1,
        "training.micro_batch_tokens": -(-(of.most + MAX_PROMPT) // cp), "training.recompute": "full",
    }  # fmt: skip  the context of Qwen2.5-32B is 32,768 tokens, prompt included
    w = read_recipe("grpo-64", [f"{key}={value}" for key, value in settings.items()])
    return replace(w, generation=replace(w.generation, lengths=lengths(w.generation.max_response)))

"""What RollPacker (NSDI'26, arXiv 2509.21009) says it ran: jobs, lengths, shares of a step; and
what follows of them.

Taken from the paper: models, GPUs, parallelism, lengths (median, P75, longest) and the shares of
reward and training in a step of veRL, which set the seconds of both beside a rollout. What it
leaves open is chosen here, and said.
"""

from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist, mean

import numpy as np

from ...rl import Workload, read_recipe
from ...rl.lengths import Lengths
from ...schedulers.rollpacker import (
    ALIKE,
    SYNCHRONOUS,
    Judges,
    RollpackerSettings,
    judged,
    run,
    runs,
)

# of a run: three cycles of four short rounds and a long one (eta 1.25), five of two and one (1.5)
STEPS = 15


@dataclass(frozen=True)
class PaperJob:
    """A job of the evaluation: GPUs, tokens of the longest response, tp of the rollout; tp, pp, cp
    of training.

    The paper trains 32B at cp 4; cp 2 here, so that the 4 x 2 GPUs of a group share a server.
    """

    model: str
    gpus: int
    most: int
    tp: int
    training: tuple[int, int, int]


JOBS = {
    "7B": PaperJob("Qwen2.5-7B", 16, 8192, 1, (2, 1, 1)),
    "14B": PaperJob("Qwen2.5-14B", 32, 16384, 2, (2, 2, 2)),
    "32B": PaperJob("Qwen2.5-32B", 64, 32768, 2, (4, 1, 2)),
}
MAXIMA = {"7B": "8k", "14B": "16k", "32B": "32k"}
# P0, R0; the longest prompt is not stated: that of the default recipe
PROMPTS, GROUP, MAX_PROMPT = 128, 8, 2048
# Stated of 14B and 16k: P75 755 to 1.1k tokens by task, the longest response 25 to 32 x the median.
# Middles of both.
P75, LONGEST_OVER_MEDIAN = (755 + 1100) / 2, (25 + 32) / 2
# Shares of rollout, reward and training in a step of veRL (14B, 16k) by task.
SHARES = {"math": (0.72, 0.05, 0.23), "code": (0.66, 0.13, 0.21), "LLM judge": (0.71, 0.07, 0.22)}
TASK = "code"


def lengths(most: int) -> Lengths:
    """Responses cut at `most`: log-normal through median and P75, and on to the longest of a batch,
    which is `most`.

    The median is that of the 16k job in all three: what is typical does not depend on the maximum.
    """
    normal = NormalDist()
    last = 1 - 1 / (PROMPTS * GROUP)
    knots = [0.5, 0.75, last]
    tokens = np.log([JOBS["14B"].most / LONGEST_OVER_MEDIAN, P75, most])
    z = np.array([normal.inv_cdf(q) for q in knots])
    quantile = np.unique(
        np.concatenate(
            [np.linspace(0, 1, 201), 1 - np.geomspace(0.05, 1 / (PROMPTS * GROUP), 60), knots]
        )
    )
    at = np.array([normal.inv_cdf(q) for q in np.clip(quantile, 1e-4, last)])
    low = tokens[0] + (at - z[0]) * (tokens[1] - tokens[0]) / (z[1] - z[0])
    high = tokens[1] + (at - z[1]) * (tokens[2] - tokens[1]) / (z[2] - z[1])
    return Lengths(
        f"rollpacker-{most}",
        quantile,
        np.exp(np.where(at <= z[1], low, high)),
        "quantiles that RollPacker states",
    )


@cache
def job(name: str) -> Workload:
    """A job of the evaluation: all GPUs generate, then all of them train, one update a step."""
    of = JOBS[name]
    tp, pp, cp = of.training
    settings = {
        "model": of.model,
        "placement": "colocated",
        "cluster.training_gpus": of.gpus,
        "cluster.generation_gpus": of.gpus,
        "generation.tp": of.tp,
        "generation.batch": PROMPTS,
        "generation.group_size": GROUP,
        "generation.max_prompt": MAX_PROMPT,
        "generation.max_response": min(of.most, 32768 - MAX_PROMPT),
        "training.tp": tp,
        "training.pp": pp,
        "training.cp": cp,
        "training.mini_batches": 1,
        "training.micro_batch_tokens": -(-(of.most + MAX_PROMPT) // cp),
        "training.recompute": "full",
    }  # fmt: skip  the context of Qwen2.5-32B is 32,768 tokens, prompt included
    w = read_recipe("grpo-64", [f"{key}={value}" for key, value in settings.items()])
    return replace(w, generation=replace(w.generation, lengths=lengths(w.generation.max_response)))


# Mean rollout of veRL in Fig. 11 (s): what it took before anything was sped up. Ours, modelled, is
# `pace` times shorter.
ROLLOUT_S = {"7B": 82.0, "14B": 277.0, "32B": 673.0}


@cache
def mean_rollout(
    name: str, prompts: float = 1.0, responses: float = 1.0, seed: int = 0, alike: float = ALIKE
) -> float:
    """Seconds of the rollout, mean over STEPS rounds of all kinds, as modelled."""
    policy = RollpackerSettings(prompts, responses, planner=0, stream=0, alike=alike)
    return mean(step.played.seconds for step in run(job(name), seed, policy, STEPS))


def pace(name: str, seed: int) -> float:
    """How much slower than modelled the paper's engine generated when nothing was sped up."""
    return ROLLOUT_S[name] / mean_rollout(name, seed=seed)


@cache
def trained_at() -> float:
    """The share of peak FLOP/s at which training of 14B takes its share of a step of veRL, for all
    three jobs.
    """
    rollout, _, training = SHARES[TASK]
    seconds = ROLLOUT_S["14B"] * training / rollout

    def takes(share: float) -> float:
        """Seconds of training at this share of peak FLOP/s."""
        w = trained_at_share(job("14B"), share)
        (step,) = run(w, 0, SYNCHRONOUS, 1)
        return step.seconds - step.judged

    # a / share + b: passes, and what else there is
    a = (takes(0.25) - takes(0.5)) / 2
    return a / (seconds - takes(0.5) + 2 * a)


def trained_at_share(w: Workload, share: float) -> Workload:
    """The job with training at this share of peak FLOP/s."""
    return replace(w, efficiency=replace(w.efficiency, training=share))


@cache
def pool() -> Judges:
    """The fewest sandboxes that judge a batch of 14B, after its rollout and with time-outs of 30 s,
    in no more than its share.
    """
    rollout, reward, _ = SHARES[TASK]
    most = ROLLOUT_S["14B"] * reward / rollout
    few, many = 1, 2048
    while few < many:
        workers = (few + many) // 2
        few, many = (
            (few, workers) if makespan(Judges(workers), False) <= most else (workers + 1, many)
        )
    return Judges(few)


def makespan(judges: Judges, adaptive: bool) -> float:
    """Seconds to judge a batch that is all there: mean over some draws."""
    ready = np.zeros((PROMPTS, GROUP))
    return mean(
        float(judged(ready, runs(judges, PROMPTS, GROUP, n, adaptive), judges.workers).max())
        for n in range(5)
    )

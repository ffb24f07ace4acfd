"""What Weave (OSDI'26; RollMux, arXiv 2512.11306) says it ran: workloads, profiles, host memory,
switches, traces.

Every number is restated from the paper, with its table or figure beside it. What it leaves open is
chosen here, and said.
"""

from dataclasses import dataclass

import numpy as np

from ...schedulers.weave import Job, Profile
from ...schedulers.weave.jobs import FOOTPRINTS
from ...units import SECONDS_PER_HOUR


@dataclass(frozen=True)
class Kind:
    """A workload of Table 3: size, nodes of 8 GPUs on either side, rollout's share of the seconds
    it takes alone.

    The 8B of D counts as a 7B.
    """

    size: str
    nodes: int
    roll_share: float
    seconds: float
    model: str
    max_tokens: int
    batch: int
    tp: int


# Table 3. D generates about 2.5 and E about 6 times as long as it trains; A, B and C, single-turn,
# are taken as balanced (the BL profiles of Table 6). Seconds: the paper's solo iterations are 257.7
# (7B), 525.4 and 574.6 s (with a 32B); which workload took which is read from the order of the
# micro-benchmarks a (A alone), b (D and E) and c (C and D); B counts as E does.
WORKLOADS = {
    "A": Kind("7B", 1, 1 / 2, 257.7, "Qwen2.5-7B", 8192, 256, 1),
    "B": Kind("14B", 1, 1 / 2, 525.4, "Qwen2.5-14B", 8192, 256, 1),
    "C": Kind("32B", 2, 1 / 2, 574.6, "Qwen2.5-32B", 8192, 256, 2),
    "D": Kind("7B", 1, 2.5 / 3.5, 525.4, "Qwen3-8B", 8192, 256, 1),
    "E": Kind("14B", 1, 6 / 7, 525.4, "Qwen3-14B", 16384, 64, 1),
}
# responses a prompt; the paper gives the batch only. RollPacker (arXiv 2509.21009) takes 8
GROUP_SIZE = 8

# Table 6: seconds of rollout and training; None: training takes what its rollout does.
PROFILES = {
    ("BL", "S"): ((50, 100), None),
    ("BL", "M"): ((100, 200), None),
    ("BL", "L"): ((200, 300), None),
    ("RH", "S"): ((100, 200), (25, 50)),
    ("RH", "M"): ((200, 400), (50, 100)),
    ("RH", "L"): ((400, 600), (100, 200)),
    ("TH", "S"): ((25, 50), (100, 200)),
    ("TH", "M"): ((50, 100), (200, 400)),
    ("TH", "L"): ((100, 200), (400, 600)),
}
# Table 6 names no models: their memory and switches go with the size
SIZES = {"S": "7B", "M": "14B", "L": "32B"}
MIXES = {"BL": ("BL",), "RH": ("RH",), "TH": ("TH",), "mixed": ("BL", "RH", "TH")}

SIMULATED_JOBS, SIMULATED_HOURS, SIMULATED_MEAN_HOURS = 300, 580.0, 14.4  # of the Philly trace
TRACE_JOBS, TRACE_HOURS, TRACE_MEAN_HOURS = 200, 370.2, 27.9  # two weeks in production
TRACE_MAX_TOKENS = 4096, 8192, 16384, 32768  # production ranges from 4k to 32k
MEAN_MAX_TOKENS = 12100  # of the trace


def profile(size: str, roll: float, train: float, nodes: int = 1) -> Profile:
    """A profile with the memory and the warm switches of a model's size."""
    f = FOOTPRINTS[size]
    return Profile(
        roll,
        train,
        roll_nodes=nodes,
        train_nodes=nodes,
        roll_bytes=f.roll_bytes,
        train_bytes=f.train_bytes,
        roll_switch=f.roll_warm,
        train_switch=f.train_warm,
    )


def workload(name: str, times: float = 1.0) -> Profile:
    """The profile of a workload of Table 3, its phases `times` as long."""
    kind = WORKLOADS[name]
    seconds = kind.seconds * times
    return profile(
        kind.size, seconds * kind.roll_share, seconds * (1 - kind.roll_share), kind.nodes
    )


def simulated_jobs(mix: str, seed: int, count: int = SIMULATED_JOBS) -> list[Job]:
    """Jobs with the profiles of Table 6: SLO ~ U(1, 2), arrivals even over the 580 h, exponential
    durations.

    The Philly trace itself is not at hand: its count, span and mean are kept.
    """
    random = np.random.default_rng([seed, 6])
    return [
        _job(i, _drawn(mix, random), arrival, seconds, random)
        for i, (arrival, seconds) in enumerate(
            _stays(random, count, SIMULATED_HOURS, SIMULATED_MEAN_HOURS)
        )
    ]


@dataclass(frozen=True)
class TraceMix:
    """What the paper leaves open of its two weeks: the share of C, which takes two nodes of either
    pool, among A to D; that of D, which generates longer than it trains, among A, B and D; and how
    arrivals cluster, Beta(bunched, bunched) over the weeks (1: evenly).
    """

    wide: float = 1 / 4
    heavy: float = 1 / 3
    bunched: float = 1.0


EVEN = TraceMix()


def trace_jobs(
    seed: int, scaled: bool = False, count: int = TRACE_JOBS, mix: TraceMix = EVEN
) -> list[Job]:
    """The two weeks: jobs of Table 3 as they stand, E as often as the mean maximum length asks for,
    the others as `mix` says.

    scaled: all five alike often, maximum lengths of 4k to 32k with that mean, and phases as long as
    they say.
    """
    return [
        Job(
            f"job-{i + 1}",
            made := workload(each.kind, each.times),
            each.slo,
            each.arrival,
            each.seconds / made.solo,
        )
        for i, each in enumerate(trace_arrivals(seed, scaled, count, mix))
    ]


@dataclass(frozen=True)
class ArrivingJob:
    """A job of the two weeks: its workload of Table 3 with phases `times` as long, when it comes
    and how long it takes alone (s), its SLO.
    """

    kind: str
    times: float
    arrival: float
    seconds: float
    slo: float


def trace_arrivals(
    seed: int, scaled: bool = False, count: int = TRACE_JOBS, mix: TraceMix = EVEN
) -> list[ArrivingJob]:
    """Who comes in the two weeks: see `trace_jobs`."""
    random = np.random.default_rng([seed, 3])
    stays = _stays(random, count, TRACE_HOURS, TRACE_MEAN_HOURS, mix.bunched)
    weights, arrivals = kind_weights(mix), []
    for arrival, seconds in stays:
        kind, times = (
            _scaled(random) if scaled else (str(random.choice(sorted(WORKLOADS), p=weights)), 1.0)
        )
        arrivals.append(ArrivingJob(kind, times, arrival, seconds, random.uniform(1, 2)))
    return arrivals


def kind_weights(mix: TraceMix = EVEN) -> np.ndarray:
    """Chances of A to E with the published mean of the maximum lengths; E alone has 16k tokens, the
    others 8k.
    """
    short, long = WORKLOADS["A"].max_tokens, WORKLOADS["E"].max_tokens
    share = (MEAN_MAX_TOKENS - short) / (long - short)
    narrow = (1 - share) * (1 - mix.wide)
    even = narrow * (1 - mix.heavy) / 2
    return np.array([even, even, (1 - share) * mix.wide, narrow * mix.heavy, share])


def _scaled(random: np.random.Generator) -> tuple[str, float]:
    name = sorted(WORKLOADS)[int(random.integers(len(WORKLOADS)))]
    tokens = TRACE_MAX_TOKENS[int(random.choice(len(TRACE_MAX_TOKENS), p=length_weights()))]
    return name, tokens / WORKLOADS[name].max_tokens


def length_weights() -> np.ndarray:
    """Chances of 4k, 8k, 16k and 32k with the published mean: geometric, the spread-out choice for
    a given mean.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        ratio = (low + high) / 2
        weights = ratio ** np.arange(len(TRACE_MAX_TOKENS))
        mean = float(weights @ TRACE_MAX_TOKENS / weights.sum())
        low, high = (ratio, high) if mean < MEAN_MAX_TOKENS else (low, ratio)
    return weights / weights.sum()


def _stays(
    random: np.random.Generator, count: int, hours: float, mean: float, bunched: float = 1.0
) -> list[tuple[float, float]]:
    """(arrival, seconds alone) of jobs, by arrival."""
    even = bunched == 1
    drawn = random.uniform(0, 1, count) if even else random.beta(bunched, bunched, count)
    arrivals = np.sort(drawn) * hours * SECONDS_PER_HOUR
    return list(
        zip(
            arrivals.tolist(),
            (random.exponential(mean, count) * SECONDS_PER_HOUR).tolist(),
            strict=True,
        )
    )


def _drawn(mix: str, random: np.random.Generator) -> Profile:
    kind = MIXES[mix][int(random.integers(len(MIXES[mix])))]
    size = "SML"[int(random.integers(3))]
    rolls, trains = PROFILES[kind, size]
    roll = random.uniform(*rolls)
    return profile(SIZES[size], roll, random.uniform(*trains) if trains else roll)


def _job(
    number: int, made: Profile, arrival: float, seconds: float, random: np.random.Generator
) -> Job:
    return Job(f"job-{number + 1}", made, random.uniform(1, 2), arrival, seconds / made.solo)

"""Steps of NeMo RL: `rl_measured/nemo_rl_*step_times*.csv`, seconds a GRPO step; the recipes in
`nemo_rl_*recipes*.csv` beside it.

    system, precision, model, policy, max_seq, avg_seq, gpus, gen_gbs, train_gbs, gen_tp_pp,
    train_parallel, step_time_s

On policy the GPUs train and generate in turn (colocated, sync); one step off policy half of them
trains and half generates, or what the recipe says; `8-step Off` is async, with as many batches
under way. `train_parallel` is [tp cp ep ... pp vp].
Lengths: a lognormal of the row's mean, cut at max_seq. What a row leaves open comes from the recipe
of its model, GPUs a server and policy; where there is none, from the defaults below.

A second group holds the gain of going off policy: tokens a second and GPU over those of the
on-policy row beside it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np

from ...compute.gpus import Gpu, find_gpu
from ...compute.models import Model
from ...compute.named import find_model
from ...errors import RFabricError
from ...rl import Lengths, Workload
from ...rl.phases import Step, step_of
from ...rl.plan import plan_of_steps, step_period, step_within
from ...rl.sections import Cluster, Generation, Training
from ...trace import PHASES
from . import Point, PointGroup
from .tables import attempt, flag, named, number, same_side, whole
from .tables import rows as table_of

# A problem with its instructions: what tokens_s_gpu x GPUs x seconds / responses exceeds avg_seq by
# in NeMo RL's tables, 100 to 132 tokens (github.com/NVIDIA-NeMo/RL
# docs/about/performance-summary.md, OpenMathInstruct-2).
PROMPT_TOKENS = 120
# Of the logarithm of lengths, for one mathematical task: between 0.41 of school problems (31 to 476
# tokens, 6.6 of it apart, in a batch of 2,048; eric-haibin-lin/verl-data, gemma-2-2b on GSM8K) and
# 1.49 of all that DeepSeek-R1 is asked (median 502, 99 % within 16,016; ServeGen).
SIGMA = 1.0
DEFAULTS = {
    "num_generations_per_prompt": "32",
    "train_micro_batch": "1",
    "gpu_mem_util": "0.6",
    "act_ckpt": "",
}
UPDATES_A_STEP = 4
_USUAL = "nemo_rl_step_times"  # the name of a file that is the only one of its kind


@dataclass(frozen=True)
class MeasuredStep:
    """A measured step: its name, seconds, the job and its computing; of each phase the seconds of
    computing, and of waiting for bytes, that are predicted of it.

    same: what its row shares with those of the same job under another policy.
    """

    name: str
    same: tuple[str, ...]
    version: str
    on_policy: bool
    seconds: float
    job: Workload
    step: Step
    phases: Mapping[str, tuple[float, float]]

    @property
    def gpus(self) -> int:
        """GPUs of the job, those that train and those that generate."""
        return self.job.gpus

    @property
    def part(self) -> str:
        """Whether it is on or off policy."""
        return f"{'on' if self.on_policy else 'off'} policy"

    @property
    def within(self) -> tuple[float, float]:
        """Between what the step is said to lie (s)."""
        return step_within(self.job, self.phases)

    def predicted(self, **times: float) -> float:
        """Seconds of the step, the computing of phases that are named taken so many times as
        long.
        """
        return step_period(
            self.job,
            *(
                times.get(kind, 1.0) * self.phases[kind][0] + self.phases[kind][1]
                for kind in PHASES
            ),
        )


def check(path: Path, data: Path) -> Iterable[PointGroup]:
    """Step seconds of every row, and the gain of each off-policy row over its on-policy one."""
    file = str(path.relative_to(data))
    rows, left = steps_of(path, data)
    points = [Point(row.name, row.seconds, row.predicted(), "s", row.part) for row in rows]
    pairs = [
        (on, off)
        for off in rows
        if not off.on_policy
        for on in rows
        if on.on_policy and on.same == off.same
    ]
    yield PointGroup(
        named("nemo_rl step", path, _USUAL),
        file,
        tuple(points),
        tuple(left),
        "seconds of one GRPO step",
        _shares_held(rows),
    )
    yield PointGroup(
        named("nemo_rl asynchronous gain", path, _USUAL),
        file,
        tuple(_gain(off, on) for on, off in pairs),
        note="tokens/s/GPU over on policy",
        extra=_signs(pairs),
    )


def steps_of(path: Path, data: Path) -> tuple[list[MeasuredStep], list[str]]:
    """The measured steps of a file, with what is predicted of their phases, and the rows left out
    with the reason.
    """
    recipes = [
        row
        for other in sorted(path.parent.glob("nemo_rl_*recipes*.csv"))
        for row in table_of(other)
    ]
    table = table_of(path, "system", "model", "policy", "gpus", "step_time_s")
    return attempt(
        (f"line {i}, {_name(row)}", lambda row=row: _modelled(row, recipes, data))
        for i, row in enumerate(table, 2)
    )


def _name(row: dict) -> str:
    return " ".join(
        row.get(key) or "" for key in ("version", "system", "model", "policy", "gpus", "precision")
    )


def _shares_held(rows: Sequence[MeasuredStep]) -> tuple[tuple[str, float], ...]:
    """The share of steps that were measured within the interval of their prediction."""
    held = [row.within[0] <= row.seconds <= row.within[1] for row in rows]
    return (("share_within_their_interval", float(np.mean(held))),) if held else ()


def _gain(off: MeasuredStep, on: MeasuredStep) -> Point:
    measured, modelled = (
        a / b * on.gpus / off.gpus
        for a, b in ((on.seconds, off.seconds), (on.predicted(), off.predicted()))
    )
    return Point(off.name, measured, modelled, "x")


def _signs(pairs: Sequence[tuple[MeasuredStep, MeasuredStep]]) -> tuple[tuple[str, float], ...]:
    """Shares of the pairs in which a step gets shorter, or a GPU does more, in the model as
    measured.
    """
    if not pairs:
        return ()
    steps = [(on.seconds > off.seconds) == (on.predicted() > off.predicted()) for on, off in pairs]
    gains = same_side([_gain(off, on) for on, off in pairs])
    return ("sign_of_step_change_right", float(np.mean(steps))), ("sign_of_gain_a_gpu_right", gains)


def _modelled(row: dict, recipes: Sequence[dict], data: Path) -> MeasuredStep:
    w = _workload(row, recipes, data)
    step = step_of(w, 0, 0)
    return MeasuredStep(
        _name(row),
        (w.model.name, w.gpu.name, *(row.get(key, "") for key in ("version", "precision"))),
        row.get("version", ""),
        not _steps_off(row),
        number(row, "step_time_s"),
        w,
        step,
        {p.kind: (p.seconds, p.comm) for p in plan_of_steps(w, [step]).phases},
    )


def _workload(row: dict, recipes: Sequence[dict], data: Path) -> Workload:
    """The job of a row; where it does not fit the HBM as its recipe says, with all activations
    recomputed, or more for engines.
    """
    gpu, model = find_gpu(row["system"]), _model(row["model"], data)
    if gpu is None or model is None:
        what = "system" if gpu is None else "model"
        raise RFabricError(f"no {what} is known by {row[what]!r}")
    recipe = DEFAULTS | {
        k: v for k, v in _recipe(row, model, gpu, recipes, data).items() if v not in (None, "")
    }
    first: RFabricError | None = None
    for more in ({}, {"act_ckpt": "true"}, {"act_ckpt": "true", "gpu_mem_util": "0.9"}):
        try:
            return _job(row, gpu, model, recipe | more)
        except RFabricError as error:
            first = first or error
    raise first


def _model(name: str, data: Path) -> Model | None:
    """Also by `Qwen3-30B3A`, as the table writes Qwen3-30B-A3B."""
    return find_model(re.sub(r"(\d+B)(\d+)A$", r"\1-A\2B", name.strip()), [data / "models"])


def _job(row: dict, gpu: Gpu, model: Model, recipe: dict) -> Workload:
    gpus, on_policy = whole(row, "gpus"), not _steps_off(row)
    generate, train = (gpus, gpus) if on_policy else _split(gpus, recipe)
    limit = whole(row, "max_seq") - PROMPT_TOKENS
    return Workload(
        name=_name(row),
        model=model,
        cluster=Cluster(
            gpu=gpu.name,
            training_gpus=train,
            generation_gpus=generate,
            gpus_per_server=_joined(gpu, train),
        ),
        generation=_generation(row, recipe, limit),
        training=_training(row, recipe),
        placement="colocated" if on_policy else "disaggregated",
        **_pipeline(_steps_off(row)),
    )


def _pipeline(steps: int) -> dict:
    """More than a step off policy trajectories are made without waiting for a step's others."""
    if steps > 1:
        return {"pipeline": "async", "staleness": steps}
    return {"pipeline": "one-step-off" if steps else "sync"}


def _joined(gpu: Gpu, gpus: int) -> int | None:
    """GPUs that NVLink joins, where that is more than a server: the most of a rack that divide the
    training GPUs.
    """
    if gpu.nvlink_gpus <= gpu.gpus_per_server:
        return None
    return max(n for n in range(gpu.gpus_per_server, gpu.nvlink_gpus + 1) if gpus % n == 0)


def _recipe(row: dict, model: Model, gpu: Gpu, recipes: Sequence[dict], data: Path) -> dict:
    """The first recipe of this model and as many GPUs a server, on or off policy; before others one
    as many steps off policy, and for sequences as long.
    """
    steps = _steps_off(row)
    same = [
        recipe
        for recipe in recipes
        if (trained := _model(recipe["model"], data))
        and trained.name == model.name
        and whole(recipe, "gpus_per_node") == gpu.gpus_per_server
        and (not flag(recipe["async"])) == (steps == 0)
    ]

    def other(recipe: dict) -> tuple[bool, bool]:
        allowed = steps and int(float(recipe.get("max_traj_age") or 1))
        both = (recipe.get("max_total_seq") or "", row["max_seq"])
        longest = (text.removesuffix(".0") for text in both)
        return allowed != steps, len(set(longest)) > 1

    return min(same, key=other, default={})


def _steps_off(row: dict) -> int:
    """Steps off policy that a row was measured at: `8-step Off`; 0 on policy."""
    if "on" in re.split(r"\W+", row["policy"].lower()):
        return 0
    return int((re.match(r"\d+", row["policy"]) or ["1"])[0])


def _split(gpus: int, recipe: dict) -> tuple[int, int]:
    """GPUs that generate, and that train."""
    share = whole(recipe, "gen_nodes") / whole(recipe, "nodes") if recipe.get("gen_nodes") else 0.5
    return round(gpus * share), gpus - round(gpus * share)


def _generation(row: dict, recipe: dict, limit: int) -> Generation:
    group = whole(recipe, "num_generations_per_prompt")
    tp, pp = (_numbers(row["gen_tp_pp"]) + [1])[:2]
    return Generation(
        tp=tp * pp,  # a pipeline of engines holds and does as much
        batch=max(1, whole(row, "gen_gbs") // group),
        group_size=group,
        max_prompt=PROMPT_TOKENS,
        max_response=limit,
        lengths=lognormal(min(number(row, "avg_seq"), 0.99 * limit), limit),
        prompt_lengths=Lengths.of_samples("problem", [PROMPT_TOKENS]),
        memory_utilisation=float(recipe["gpu_mem_util"]),
        precision=_precision(row, "generation"),
    )


def _training(row: dict, recipe: dict) -> Training:
    parallel = _numbers(row["train_parallel"])
    tp, cp, ep = parallel[:3]
    pp, vp = parallel[-2:] if len(parallel) > 4 else (parallel[-1], 1)
    return Training(
        tp=tp, cp=cp, ep=ep, pp=pp, vp=vp if pp > 1 else 1,
        micro_batch_tokens=whole(row, "max_seq") * whole(recipe, "train_micro_batch"),
        mini_batches=_updates(row),
        recompute="full" if flag(recipe["act_ckpt"]) else "selective",
        precision=_precision(row, "training"),
    )  # fmt: skip


def _updates(row: dict) -> int:
    """Updates of a step; UPDATES_A_STEP where the row leaves them open."""
    if not row.get("train_gbs"):
        return UPDATES_A_STEP
    return max(1, whole(row, "gen_gbs") // whole(row, "train_gbs"))


def _numbers(text: str) -> list[int]:
    """The numbers in `[4 1 1 4 n/a]`; n/a is 1."""
    return [
        1 if word.lower() == "n/a" else int(word)
        for word in re.findall(r"\d+|n/a", text, re.IGNORECASE)
    ]


def _precision(row: dict, part: str) -> str:
    """What `Training BF16; Generation FP8` says of a part; one word alone says it of both."""
    told = next(
        (p for p in row["precision"].lower().split(";") if part in p), row["precision"].lower()
    )
    return "fp8" if "fp8" in told else "bf16"


def lognormal(mean: float, limit: int, sigma: float = SIGMA) -> Lengths:
    """A lognormal cut at `limit` tokens whose mean, cut ones counted as `limit`, is `mean`;
    RFabricError where none is.
    """
    if not 1 < mean < limit:
        raise RFabricError(
            f"a mean of {mean:g} tokens must lie between 1 and the {limit} at "
            "which responses are cut"
        )
    quantile = np.linspace(0, 1, 1001)
    normal = np.array([NormalDist().inv_cdf(min(max(q, 1e-4), 1 - 1e-4)) for q in quantile])
    low, high = -20.0, np.log(limit) + 20
    for _ in range(60):
        middle = (low + high) / 2
        tokens = np.clip(np.exp(middle + sigma * normal), 1, limit)
        low, high = (middle, high) if np.trapezoid(tokens, quantile) < mean else (low, middle)
    return Lengths(f"lognormal of mean {mean:g}", quantile, tokens)

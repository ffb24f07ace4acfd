"""What the model's misses do when their likely cause is changed: `validate DIR --experiment NAME`.

    on-policy   steps of Qwen3-30B-A3B under NeMo RL: one phase taken longer, training as slow as
                another source measured that model
    deepep      tokens to experts over two servers: slower NVLink, slower cards, fewer
                multiprocessors, and two sources beside one another
    experts     training of mixtures of experts: by model, container and GPU, one term taken longer,
                hosts as those of other GPUs, experts' matmuls as fast as others, and what no model
                of GPUs can tell apart

An experiment gives groups of all its rows, each with one thing changed; the first is what the model
says. Basis of a group: a factor was chosen on these rows (`fitted`), they were measured themselves
(`circular`), or neither (`held out`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from ...compute.communication import GpuNetwork, network
from ...compute.gpus import GPUS
from ...errors import RFabricError, meant
from ...trace import PHASES
from . import Point, PointGroup, deepep, nemo_rl, training
from .standing import CIRCULAR, FITTED, HELD_OUT

STEPS = "rl_measured/nemo_rl_qwen3_30b_step_times.csv"
RECIPES = "rl_measured/nemo_rl_qwen3_30b_recipes.csv"
TRAINED = "measured/training_megatron_bridge_by_model.csv"
EXCHANGES = {
    "H100": "measured/deepep_normal_h100_nodes.csv",
    "H800": "measured/deepep_v1_h800.csv",
    "H200": "measured/deepep_h200_ib_2nodes.csv",
}
FACTORS = np.arange(5, 81) / 20  # tried of a term: 0.25 to 4
QWEN = "Qwen3-30B-A3B"
# The container from which on the table's H100 row of one layout is 1.8 times as fast as before.
FASTER_FROM = "26.02.01"


@dataclass(frozen=True)
class Experiment:
    """The files of a folder that it needs, and what makes its groups of that folder."""

    files: tuple[str, ...]
    groups: Callable[[Path], Iterable[PointGroup]]


def experiment(folder: str | Path, name: str) -> list[PointGroup]:
    """The groups of an experiment; RFabricError for an unknown one, or one that lacks a file."""
    if name not in EXPERIMENTS:
        raise RFabricError(
            f"no experiment {name!r}{meant(name, EXPERIMENTS)}; there are {', '.join(EXPERIMENTS)}"
        )
    root, made = Path(folder), EXPERIMENTS[name]
    for file in made.files:
        if not (root / file).is_file():
            raise RFabricError(
                f"experiment {name} reads {file}, which {folder} lacks; put it there"
            )
    return list(made.groups(root))


def on_policy(root: Path) -> Iterable[PointGroup]:
    """Steps of NeMo RL on and off policy. A factor is the best for those on policy; whether it is
    the cause, those off policy tell, whose phases run beside one another.
    """
    made, left = nemo_rl.steps_of(root / STEPS, root)
    bridge = [b for b in training.steps_of(root / TRAINED, root)[0] if b.row.get("mbs") == "1"]

    def group(
        name: str,
        times: Callable[[nemo_rl.MeasuredStep], Mapping[str, float]],
        basis: str = HELD_OUT,
    ) -> PointGroup:
        points = [
            Point(one.name, one.seconds, one.predicted(**times(one)), "s", one.part) for one in made
        ]
        return PointGroup(name, STEPS, tuple(points), basis=basis)

    def error(kind: str, factor: float) -> float:
        points = group("", lambda _: {kind: factor}).points
        return _median([p for p in points if p.part == "on policy"])

    predicted = group("as predicted", lambda _: {})
    yield replace(predicted, unmodelled=tuple(left))
    by_version = zip(made, predicted.points, strict=True)
    points = tuple(replace(p, part=f"{p.part}, {one.version}") for one, p in by_version)
    yield replace(predicted, name="as predicted, by version", points=points)
    for kind in PHASES if any(one.on_policy for one in made) else ():
        factor = _best(partial(error, kind))
        yield group(f"{kind} x {factor:.2f}", lambda _, k=kind, f=factor: {k: f}, FITTED)
    for when, newer in (("before", False), ("from", True)):
        some = [b for b in bridge if (_container(b) >= FASTER_FROM) == newer]
        yield _as_measured(f"training as measured {when} {FASTER_FROM}", made, some)


def _as_measured(
    name: str, made: Sequence[nemo_rl.MeasuredStep], bridge: Iterable[training.MeasuredTraining]
) -> PointGroup:
    """The steps with training as many times longer than predicted as another source measured it of
    the model on the chip (the median of `bridge`).
    """
    took: dict[tuple[str, str], list[float]] = {}
    for row in bridge:
        took.setdefault((row.model, _chip(row.gpu)), []).append(row.seconds / row.step.seconds)
    points, left, used = [], [], {}
    for one in made:
        key = one.job.model.name.rpartition("--")[2], _chip(one.job.gpu.name)
        if key not in took:
            left.append(f"{one.name}: {TRAINED} has no such row of {one.job.gpu.name}")
            continue
        used[f"training on {key[1]} took, x"] = factor = median(took[key])
        seconds = one.predicted(training=factor)
        points.append(Point(one.name, one.seconds, seconds, "s", one.part))
    return PointGroup(name, STEPS, tuple(points), tuple(left), extra=tuple(used.items()))


def _chip(gpu: str) -> str:
    """The GPU without the Grace beside it: GB200 has B200's chip."""
    return gpu.removeprefix("G")


def two_servers(root: Path) -> Iterable[PointGroup]:
    """DeepEP's normal mode over two servers: what was measured with as many tokens as H200's rows
    and the usual count of multiprocessors, all as rates.
    """
    made = [_as_rate(e) for file in EXCHANGES.values() for e in deepep.exchanges_of(root / file)[0]]
    pairs = [e for e in made if _over_two(e)]

    def group(name: str, net: Callable[[GpuNetwork], GpuNetwork], sms: int = 0) -> PointGroup:
        tried = [(e, replace(e, sms=sms or e.sms).point(net(network(e.gpu)))) for e in pairs]
        points = [replace(point, name=e.name, part=e.gpu.name) for e, point in tried]
        return PointGroup(name, "measured/deepep_*.csv", tuple(points))

    slow = GPUS["H800"].nvlink_bytes_per_s

    def slowed(net: GpuNetwork) -> GpuNetwork:
        return replace(net, gpu=replace(net.gpu, nvlink_bytes_per_s=slow))

    yield group("as predicted", lambda net: net)
    yield group("NVLink of H800", slowed)
    yield group("cards at half their rate", lambda net: replace(net, nic_bps=net.nic_bps / 2))
    for sms in (16, 12):
        yield group(f"{sms} multiprocessors", lambda net: net, sms)
    on_h100 = {e.direction: e.value for e in pairs if e.gpu.name == "H100"}
    points = [
        replace(e.point(), modelled=on_h100[e.direction], part="H200")
        for e in pairs
        if e.gpu.name == "H200" and e.direction in on_h100
    ]
    name = "H200 by what another source measured on H100"  # the same NVLink and cards
    yield PointGroup(name, EXCHANGES["H200"], tuple(points), basis=CIRCULAR)


def _as_rate(one: deepep.MeasuredExchange) -> deepep.MeasuredExchange:
    if one.unit != "us":
        return one
    return replace(one, value=one.rate(one.value / 1e6), unit="GB/s")


def _over_two(one: deepep.MeasuredExchange) -> bool:
    asked = one.mode == "normal" and one.group.servers == 2
    return asked and one.what.tokens == 4096 and one.sms == deepep.DEFAULT_SMS


_GroupOf = Callable[[training.MeasuredTraining], str]
TERMS = ("matmul", "attention", "memory", "experts")


def mixtures(root: Path) -> Iterable[PointGroup]:
    """Training of mixtures of experts under Megatron Bridge. Each factor is the best of one term
    for one model.
    """
    every, left = training.steps_of(root / TRAINED, root)
    made = [one for one in every if one.mixed]

    def group(
        name: str, some: Sequence[training.MeasuredTraining], part: _GroupOf, **times: float
    ) -> PointGroup:
        points = [replace(one.point(_taken(one, times)), part=part(one)) for one in some]
        return PointGroup(name, TRAINED, tuple(points), basis=FITTED)

    def error(some: Sequence[training.MeasuredTraining], term: str, factor: float) -> float:
        return _median(group("", some, by_model, **{term: factor}).points)

    def by_model(one: training.MeasuredTraining) -> str:
        return f"{one.model}, {one.trainer.precision}"

    yield replace(group("as predicted", made, by_model), unmodelled=tuple(left))
    yield group("as predicted, by container", made, _container)
    yield group("as predicted, by GPU", made, lambda one: f"{one.model}, {one.gpu}")
    alike = [one.changed(grouped=1.0) for one in made]
    yield replace(group("experts' matmuls as fast as others", alike, by_model), basis=HELD_OUT)
    yield _one_figure(made, by_model)
    yield from _hosts([one for one in made if (one.model, one.row.get("mbs")) == (QWEN, "1")])
    for model in dict.fromkeys(one.model for one in made):
        some = [one for one in made if one.model == model]
        for term in TERMS:
            factor = _best(partial(error, some, term))
            yield group(f"{model}: {term} x {factor:.2f}", some, by_model, **{term: factor})


def _container(one: training.MeasuredTraining) -> str:
    """The software that ran it."""
    return one.row.get("container", "")


def _taken(one: training.MeasuredTraining, times: Mapping[str, float]) -> float:
    """Seconds of a step whose terms take so many times as long, its bubble with them; a GPU that
    waits for its host waits the less.
    """
    passes = one.step.passes
    more = sum((factor - 1) * getattr(passes, term) for term, factor in times.items())
    more = max(0.0, more - passes.host) if passes.host else more
    return one.step.seconds + more * (1 + one.step.bubble / passes.seconds)


def _hosts(some: Sequence[training.MeasuredTraining]) -> Iterable[PointGroup]:
    """Steps with one sequence a micro-batch: with hosts that nobody waits for, and with those that
    rows of other GPUs tell; extra: how slow these are.
    """
    made: dict[str, list[Point]] = {"no host is waited for": [], "hosts by rows of other GPUs": []}
    figures, left = [], []
    for gpu in dict.fromkeys(one.gpu for one in some):
        others = [one for one in some if one.gpu != gpu]
        if not others:
            left.append(f"{gpu}: no row is of another GPU")
            continue
        layer = host_layer(others)
        figures.append((f"{gpu}: host_ms_a_layer", 1e3 * layer))
        for points, each in zip(made.values(), (0.0, layer), strict=True):
            mine = (one.changed(host_layer=each) for one in some if one.gpu == gpu)
            points += [replace(o.point(), part=f"{o.gpu}, {_container(o)}") for o in mine]
    for name, points in made.items():
        yield PointGroup(name, TRAINED, tuple(points), tuple(left), extra=tuple(figures))


def host_layer(some: Iterable[training.MeasuredTraining]) -> float:
    """Seconds of a layer of experts in a micro-batch, forward and backward: the median of these
    rows; the host's where its GPU waits for it, as `compute.training.HOST_LAYER_S` says of B200.
    """
    return median(
        one.seconds * one.trainer.layout.pp / one.micro_batches / one.trainer.model.experts.layers
        for one in some
    )


def _one_figure(made: Iterable[training.MeasuredTraining], part: _GroupOf) -> PointGroup:
    """Each job that several containers ran, predicted by the median of what they reached: what is
    left is software, which no model of GPUs tells apart. Extra: fastest over slowest of a job.
    """
    jobs: dict[tuple[str, ...], list[training.MeasuredTraining]] = {}
    for one in made:
        jobs.setdefault(one.job, []).append(one)
    again = [some for some in jobs.values() if len(some) > 1]
    points = []
    for some in again:
        usual = median(one.measured for one in some)
        points += [replace(one.point(), modelled=usual, part=part(one)) for one in some]
    apart = [max(o.measured for o in some) / min(o.measured for o in some) for some in again]
    figures = (
        ("jobs_run_again", float(len(again))),
        ("fastest_over_slowest_median", float(np.median(apart)) if apart else 1.0),
        ("fastest_over_slowest_widest", max(apart, default=1.0)),
    )
    name = "one figure a job: median of its containers"
    return PointGroup(name, TRAINED, tuple(points), extra=figures, basis=CIRCULAR)


def _best(error: Callable[[float], float]) -> float:
    return float(min(FACTORS, key=error))


def _median(points: Iterable[Point]) -> float:
    return float(np.median([abs(point.error) for point in points]))


EXPERIMENTS = {
    "on-policy": Experiment((STEPS, RECIPES, TRAINED), on_policy),
    "deepep": Experiment(tuple(EXCHANGES.values()), two_servers),
    "experts": Experiment((TRAINED,), mixtures),
}

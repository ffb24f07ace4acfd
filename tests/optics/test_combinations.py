"""The default against its own alternatives, over jobs and fabrics that nobody chose by hand.

Every shipped recipe of 64 GPUs, its parallelism and its pipeline changed, on every optical fabric:
the default may not end later than circuits left alone, nor than the same solver asked once a phase.
RFABRIC_ALL_COMBINATIONS=1 runs all, else a sample.
"""

import os
import random
from functools import lru_cache
from itertools import product
from math import inf, isfinite

import pytest

from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.schedulers.traffic import read_traffic
from rfabric.simulate.world import simulate
from rfabric.trace import PHASES, TraceBuilder

ALL = os.environ.get("RFABRIC_ALL_COMBINATIONS") == "1"
SAMPLE = 12
SLACK = 0.01  # share of a step that is nobody's concern
FABRICS = ("rfabric", "topoopt", "mixnet", "opus")  # a rotor turns blindly, by its nature
DEFAULT, OTHERS = "own", ("static", "demand,granularity=per-phase")
AHEAD = [
    (),
    ("pipeline=one-step-off", "steps=3"),
    ("pipeline=bounded-staleness", "staleness=2", "steps=3"),
    ("pipeline=async", "staleness=2", "steps=3"),
]
# tp, pp, cp that fit
DENSE = [(4, 1, 1), (4, 2, 1), (4, 4, 1), (4, 1, 2), (4, 2, 2), (8, 1, 1), (8, 2, 1), (8, 4, 1)]
# tp, pp, cp, ep: experts are dealt to the GPUs of a pipeline stage
EXPERTS = [
    (tp, pp, cp, ep)
    for tp, pp, cp, ep in product((2, 4), (1, 2, 4), (1, 2), (8, 16, 32))
    if 32 // pp % ep == 0
]


def training(*sizes: int) -> tuple[str, ...]:
    """Settings of a layout."""
    return tuple(
        f"training.{key}={n}" for key, n in zip(("tp", "pp", "cp", "ep"), sizes, strict=False)
    )


JOBS = [
    *(("grpo-64", training(*layout) + run) for layout, run in product(DENSE, AHEAD)),
    *(
        ("grpo-64-h20", training(*layout) + (f"weight_sync.strategy={how}",))
        for layout in DENSE
        for how in ("scatter", "flat")
    ),
    *(
        ("grpo-64-moe", training(*layout) + run)
        for layout, run in product(EXPERTS, (AHEAD[0], AHEAD[3]))
    ),
    *(("weave-2jobs", training(*layout) + ("steps=2",)) for layout in DENSE[:4]),
]
COMBINATIONS = [(recipe, settings, fabric) for (recipe, settings), fabric in product(JOBS, FABRICS)]
# stages that send at once: a pipeline beside experts, two jobs on rings without a switch, replicas
# of the next step
ALWAYS = [
    ("grpo-64-moe", ("training.pp=2",), "rfabric"),
    ("weave-2jobs", (), "opus"),
    ("grpo-64-moe", training(2, 2, 1, 16) + AHEAD[3], "rfabric"),
]
CHOSEN = ALWAYS + (COMBINATIONS if ALL else random.Random(0).sample(COMBINATIONS, SAMPLE))


@lru_cache(1)  # all fabrics of one job come one after another
def traffic_of(recipe, settings):
    return read_traffic(recipe, settings)


def ends(recipe, settings, fabric):
    """Seconds of the step by policy; inf where a policy leaves flows without a way."""
    job = traffic_of(recipe, settings)
    made = parse_fabric(fabric, job.gpus)
    return {policy: end(made, job.trace, policy) for policy in (DEFAULT, *OTHERS)}


def end(fabric, trace, policy):
    try:
        return simulate(fabric, trace, policy).step_seconds
    except RFabricError:
        return inf


def test_there_are_enough_of_them():
    assert len(COMBINATIONS) >= 300 and len(set(COMBINATIONS)) == len(COMBINATIONS)


@pytest.mark.parametrize(
    ("recipe", "settings", "fabric"), CHOSEN, ids=[" ".join((r, *s, f)) for r, s, f in CHOSEN]
)  # fmt: skip
def test_the_default_ends_no_later_than_its_alternatives(recipe, settings, fabric):
    seconds = ends(recipe, settings, fabric)
    assert isfinite(seconds[DEFAULT]), f"{DEFAULT} never ends: {seconds}"
    assert seconds[DEFAULT] <= min(seconds.values()) * (1 + SLACK), seconds


@pytest.mark.parametrize("delay", ["0s", "1ms", "10ms"])
def test_circuits_for_each_collective_are_no_worse_than_for_each_phase_where_racks_tell_little(
    delay,
):
    """MixNet's servers are racks of several ways: how flows share them is not seen from rack to
    rack.
    """
    job = traffic_of("grpo-64-moe", ())
    fabric = parse_fabric(f"mixnet,reinit=0s,delay={delay}", job.gpus)
    by_collective = end(fabric, job.trace, "demand,granularity=per-collective")
    others = [end(fabric, job.trace, policy) for policy in OTHERS]
    assert all(by_collective <= (1 + SLACK) * other for other in others)


def chain(fabric, delay, seed):
    """Flows of three phases in turn, again and again, each after those before it: they last from a
    thirtieth to five of the delay, and some compute comes before.
    """
    drawn, builder, last = random.Random(seed), TraceBuilder(fabric.hosts), []
    hosts, kinds = range(len(fabric.hosts)), []
    for phase in PHASES:
        pairs = [drawn.sample(hosts, 2) for _ in range(drawn.choice([4, 12, 24]))]
        seconds = delay * 10 ** drawn.uniform(-1.5, 0.7)
        gap = drawn.choice([0.0, 0.1, 0.5]) * delay
        kinds.append((phase, *map(list, zip(*pairs, strict=True)), seconds * 5e10, gap))
    for _ in range(drawn.choice([2, 4, 8])):
        for phase, src, dst, size, gap in kinds:
            last = builder.flows(src, dst, size, after=last, gap=gap, phase=phase, label=phase)
    return builder.build()


@pytest.mark.parametrize("seed", [*range(8), 10, 37, 50, 59])
def test_slow_circuits_are_left_alone_where_a_rewire_does_not_pay(seed):
    """The rest of a phase waits for the others; nobody may count it as sent beside them."""
    fabric = parse_fabric("rfabric,pods=2,tors=3,gpus=4,planes=2,delay=1s")
    trace = chain(fabric, 1.0, seed)
    static, own = (end(fabric, trace, policy) for policy in ("static", DEFAULT))
    assert own <= static * (1 + SLACK)

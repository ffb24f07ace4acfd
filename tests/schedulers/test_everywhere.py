"""Every scheduler on every fabric that ships, of one job and of two that share nodes: all of these
run in the simulator, and what must hold whatever the input holds for each.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from rfabric.errors import RFabricError
from rfabric.fabric import BUILDERS, fabric_names
from rfabric.optics import Timing
from rfabric.schedulers.table import NEGOTIATING, SCHEDULERS
from rfabric.schedulers.traffic import read_traffic
from rfabric.schedulers.weave import POLICIES
from rfabric.simulate.world import simulate
from rfabric.study.negotiation import networks

SMALL = ("generation.batch=16", "generation.max_response=2048", "training.mini_batches=1")
STEPS = (*SMALL, "steps=2")
# colocated GPUs have no turns: an error of its own
APART = [scheduler for scheduler in SCHEDULERS if scheduler != "colocated"]
JUDGED = "rollpacker,judge=Qwen2.5-7B"
ONE = [("grpo-64", STEPS, scheduler) for scheduler in (*SCHEDULERS, JUDGED)]
FEW = ("generation.batch=8", *SMALL[1:])  # as every token goes to experts
EXPERTS = [("grpo-64-moe", FEW, scheduler) for scheduler in SCHEDULERS]
TWO = [("weave-2jobs", STEPS, policy) for policy in (*POLICIES, *APART, JUDGED)]
ASKED = [("grpo-64", SMALL, f"{scheduler},network=fabric") for scheduler in NEGOTIATING]
JOBS = [*ONE, *EXPERTS, *TWO, *ASKED]
FABRICS = fabric_names()
EVERY = [
    pytest.param(*job, fabric, id=" ".join((job[0], job[2], fabric)))
    for job in JOBS
    for fabric in FABRICS
]
BLIND = ("rotor",)  # circuits that turn whatever is sent may lose to ones that stay
SLACK = 0.01  # share of a step that is nobody's concern
NO_TIME = Timing(0.0, 0.0, 0.0)


@lru_cache(4)
def traffic_of(recipe, settings, scheduler, fabric=""):
    answering = networks(scheduler, lambda needs: needs.fabric(fabric), "own") if fabric else None
    return read_traffic(recipe, settings, 0, scheduler, answering)


@lru_cache(8)
def on_one_switch(job, hosts, rate):
    """Seconds on the ideal switch."""
    return simulate(BUILDERS["ideal"](hosts, rate), job.trace).step_seconds


def ideal_seconds(job, fabric):
    """On one switch with cards as fast as what a GPU reaches the fabric by: where a server's GPUs
    share all its cards, that is faster than a card.
    """
    fastest = max(link.rate for link in fabric.links if {"host"} & kinds(fabric, link))
    return on_one_switch(job, len(fabric.hosts), fastest)


def kinds(fabric, link):
    return {fabric.node[port.node].kind for port in (link.a, link.b)}


def test_every_scheduler_meets_every_fabric_with_one_job_and_with_two():
    assert {job[2] for job in ONE} >= set(SCHEDULERS) <= {job[2] for job in EXPERTS}
    assert {job[2] for job in TWO} >= {*POLICIES, *SCHEDULERS} - {"colocated"}
    assert len(EVERY) == len({case.id for case in EVERY}) == len(JOBS) * len(FABRICS)


@pytest.mark.parametrize(("recipe", "settings", "scheduler", "fabric"), EVERY)
def test_it_runs_and_relations_hold(recipe, settings, scheduler, fabric):
    asked = fabric if "network" in scheduler else ""
    if asked == "rotor":
        with pytest.raises(RFabricError, match="leave network=fabric out"):
            traffic_of(recipe, settings, scheduler, asked)
        return
    job = traffic_of(recipe, settings, scheduler, asked)
    made = job.needs.fabric(fabric)
    result = simulate(made, job.trace, "own")
    assert np.isfinite(result.finish).all() and result.lost_bytes == 0
    # nothing is done before what it computes is, nor sooner than one switch has it done
    assert result.step_seconds >= job.trace.compute_only()[1].max() * (1 - 1e-9)
    assert result.step_seconds >= ideal_seconds(job, made) * (1 - 1e-6)
    if recipe == "weave-2jobs" and not made.ocses and scheduler in APART:
        alone = simulate(made, traffic_of("grpo-64", settings, scheduler).trace).step_seconds
        assert result.step_seconds >= alone * (1 - 1e-6)
    if made.ocses and fabric not in BLIND:
        assert result.step_seconds <= left_alone(made, job.trace) * (1 + SLACK)
    if fabric == "rfabric":
        quick = simulate(replace(made, reconfig_delay=0.0), job.trace, "own", timing=NO_TIME)
        if [lit for _, lit in quick.epochs] == [lit for _, lit in result.epochs]:
            assert quick.step_seconds <= result.step_seconds * (1 + SLACK)


def left_alone(fabric, trace):
    """Seconds under circuits that stay; inf where they leave flows without a way."""
    try:
        return simulate(fabric, trace, "static").step_seconds
    except RFabricError:
        return float("inf")

"""Every scheduler on every fabric that ships, of one job and of two that share nodes.

RFABRIC_ALL_COMBINATIONS=1 runs all, else a sample in which each scheduler and each fabric is.
"""

import os
from functools import lru_cache

import numpy as np
import pytest

from rfabric.errors import RFabricError
from rfabric.fabric import BUILDERS, fabric_names
from rfabric.schedulers.table import NEGOTIATING, SCHEDULERS
from rfabric.schedulers.traffic import read_traffic
from rfabric.schedulers.weave import POLICIES
from rfabric.simulate.world import simulate
from rfabric.study.negotiation import networks

ALL = os.environ.get("RFABRIC_ALL_COMBINATIONS") == "1"
SMALL = ("generation.batch=32", "generation.max_response=4096")
ONE = [("grpo-64", (*SMALL, "steps=2"), scheduler) for scheduler in SCHEDULERS]
EXPERTS = [("grpo-64-moe", SMALL, scheduler) for scheduler in SCHEDULERS]
# colocated GPUs have no turns: an error of its own
APART = [scheduler for scheduler in SCHEDULERS if scheduler != "colocated"]
TWO = [("weave-2jobs", (*SMALL, "steps=2"), policy) for policy in (*POLICIES, *APART)]
ASKED = [("grpo-64", SMALL, f"{scheduler},network=fabric") for scheduler in NEGOTIATING]
JOBS = [*ONE, *EXPERTS, *TWO, *ASKED]
FABRICS = fabric_names()
EVERY = [(*job, fabric) for job in JOBS for fabric in FABRICS]
CHOSEN = EVERY if ALL else [(*job, FABRICS[i % len(FABRICS)]) for i, job in enumerate(JOBS)]


@lru_cache(4)
def traffic_of(recipe, settings, scheduler, fabric=""):
    answering = networks(scheduler, lambda needs: needs.fabric(fabric), "own") if fabric else None
    return read_traffic(recipe, settings, 0, scheduler, answering)


def ideal_for(fabric):
    """One switch with cards as fast as what a GPU reaches the fabric by: where a server's GPUs
    share all its cards, that is faster than a card.
    """
    fastest = max(link.rate for link in fabric.links if {"host"} & kinds(fabric, link))
    return BUILDERS["ideal"](len(fabric.hosts), fastest)


def kinds(fabric, link):
    return {fabric.node[port.node].kind for port in (link.a, link.b)}


def test_the_sample_has_every_scheduler_and_every_fabric():
    assert {scheduler for _, _, scheduler, _ in CHOSEN} == {scheduler for _, _, scheduler in JOBS}
    assert {fabric for *_, fabric in CHOSEN} == set(FABRICS)


@pytest.mark.parametrize(("recipe", "settings", "scheduler", "fabric"), CHOSEN)
def test_it_runs_and_nothing_is_lost(recipe, settings, scheduler, fabric):
    asked = fabric if "network" in scheduler else ""
    if asked == "rotor":
        with pytest.raises(RFabricError, match="leave network=fabric out"):
            traffic_of(recipe, settings, scheduler, asked)
        return
    job = traffic_of(recipe, settings, scheduler, asked)
    made = job.needs.fabric(fabric)
    result = simulate(made, job.trace, "own")
    assert np.isfinite(result.finish).all() and result.lost_bytes == 0
    assert result.step_seconds >= job.trace.compute_only()[1].max() * (1 - 1e-9)
    bound = simulate(ideal_for(made), job.trace).step_seconds
    assert result.step_seconds >= bound * (1 - 1e-6)

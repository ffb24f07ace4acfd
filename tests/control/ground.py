"""What tests of the controller stand on: a small fabric, a core over fake switches, requests."""

import itertools
import json
import time

import numpy as np

from rfabric.control.core import Core
from rfabric.control.fake import FakeClock, FakeSwitches
from rfabric.control.rest import answer
from rfabric.control.schema import PlanRequest
from rfabric.fabric import rfabric
from rfabric.optics import Circuits, Demand, light, planes

SMALL = rfabric(pods=2, tors=2, gpus=2)


class RealClock(FakeClock):
    """A `FakeClock` that runs and really sleeps, for a controller served over REST."""

    def now(self) -> float:
        return time.monotonic()

    def sleep_until(self, instant: float) -> None:
        time.sleep(max(0.0, instant - time.monotonic()))


def all_pairs(fabric):
    return list(itertools.permutations(fabric.hosts, 2))


def controlled(fabric=SMALL, **kind):
    """A core over fake switches that are all connected."""
    switches = FakeSwitches(fabric, FakeClock(step=1e-3), **kind)
    core = Core(fabric, switches, switches.clock)
    core.connected(core.name_of)
    return core, switches


def explicit(circuits, **options):
    return PlanRequest(circuits=Circuits(frozenset(circuits)), **options)


def demand_of(fabric, seed=1, **kind):
    n = len(fabric.racks)
    return Demand(fabric.racks, np.random.default_rng(seed).integers(0, 100, (n, n)) * 1e6, **kind)


def inside_pods(**kind):
    """Demand that the circuits of the start do not fit: nothing between pods."""
    return Demand(SMALL.racks, np.kron(np.eye(2), [[0, 1e11], [1e11, 0]]), **kind)


def other_circuits(fabric, pairs=(("t1", "t2"), ("t3", "t4"))):
    return light(fabric, dict.fromkeys(planes(fabric), pairs))


class Served:
    """What the REST handler needs, over fake switches."""

    def __init__(self, fabric=SMALL, **kind):
        self.core, self.switches = controlled(fabric, **kind)

    def health(self):
        return {"ready": self.core.ready, "waiting_for": self.core.waiting_for, "trouble": ""}


def ask(served, method, path, body=None):
    reply = answer(served, method, path, b"" if body is None else json.dumps(body).encode())
    return reply.status, reply.body


PLAN = {
    "policy": "demand",
    "demand": {"racks": list(SMALL.racks), "bytes": demand_of(SMALL).bytes.tolist()},
}


def changed(**keys):
    return {**PLAN, **keys}


def with_demand(**keys):
    return {**PLAN, "demand": {**PLAN["demand"], **keys}}

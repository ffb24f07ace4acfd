"""What the controller plans for a scene, weighed by the ways of every flow."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np

from ..control.client import Committed, PlannedRewire
from ..fabric import Fabric
from ..optics import Circuits, Decision, Demand
from ..optics.rewiring import NONE, Rewiring
from ..routing.schemes import Routing
from ..trace import Demands, Scene, Trace
from ..trace.pairs import Pairs, PairWays

BothWays = tuple[PairWays, PairWays]  # of flows and of their acknowledgements


class Control(Protocol):
    """What rewires: see `emulate.live`. Its calls block and may run in a thread."""

    def plan(
        self,
        demand: Demand,
        pairs: list[tuple[str, str]],
        now: float,
        upcoming: list[Demand],
        sending: list[Demand],
        also: Sequence[Circuits],
    ) -> PlannedRewire:
        """A plan for the circuits that its policy wants at `now` (s): `demand` is about to be sent
        by `pairs`, `upcoming` later, `sending` is in flight; `also` are weighed as well.
        """

    def plan_circuits(self, circuits: Circuits, pairs: list[tuple[str, str]]) -> PlannedRewire:
        """A plan for these circuits, while `pairs` send."""

    def abort(self, epoch: int) -> None:
        """Give up a plan that was not committed."""

    def commit(self, epoch: int) -> Committed:
        """Carry out a plan; returns when it was verified."""


@dataclass(frozen=True)
class Answered:
    """What came of a scene: the decision, the plan's epoch, and the ways after it."""

    scene: Scene
    decision: Decision
    epoch: int
    ways: BothWays | None


class ScenePlanner:
    """Asks the controller what to do in a scene of a trace; `contract` says what is in force."""

    def __init__(
        self,
        fabric: Fabric,
        trace: Trace,
        control: Control | None,
        routing: Routing,
        contract: Rewiring,
    ):
        self.fabric, self.trace, self.routing = fabric, trace, routing
        self.control, self.contract = control, contract
        self.demands = Demands(trace, fabric)
        # acknowledgements go the other way
        self.pairs = Pairs(fabric, trace), Pairs(fabric, trace).back

    def answer(self, scene: Scene, now: float, present: BothWays) -> Answered:
        """The controller's plan at `now` (s) and the ways after it, weighed. It takes a while.

        present: the ways now.
        """
        asked, sending, coming = self.demands.told(scene)
        least = self.contract.timing.least_window(self.fabric)
        rows = np.concatenate([NONE, *(rows for rows, _ in scene.open.values())])
        pairs, back = self.trace.pairs(rows), self.contract.back if asked.window > least else ()
        plan = self.control.plan(asked, pairs, now, coming, sending, back)
        wanted = plan.rewire.apply(scene.circuits)
        decision = Decision(plan.rewire, plan.why, wanted, plan.later, plan.wait, plan.others)
        if plan.wait:
            return Answered(scene, decision, plan.epoch, None)
        ways = cache(
            lambda circuits: present if circuits == scene.circuits else self.ways_under(circuits)
        )
        prospect = cache(lambda circuits: self.demands.prospect(scene, ways(circuits)[0]))
        decision = self.contract.weigh(decision, back, prospect, scene.begins)
        if plan.rewire and decision.circuits != wanted:
            self.control.abort(plan.epoch)
        if decision.rewire and decision.circuits != wanted:
            plan = self.control.plan_circuits(decision.circuits, pairs)
        return Answered(
            scene, decision, plan.epoch, ways(decision.circuits) if decision.rewire else None
        )

    def ways_under(self, circuits: Circuits) -> BothWays:
        """Of flows and of their acknowledgements."""
        there, back = (PairWays(self.fabric, pairs, circuits, self.routing) for pairs in self.pairs)
        return there, back

"""Who answers a scheduler's proposals.

    Cards          network cards alone: what a plan without a fabric takes for granted
    FabricNetwork  a fabric: the circuits that its policy would light by then, the delay of that
                   rewire, and what else is in flight, as `optics.planner` decides it; a controller
                   does the same when it is asked over REST

A fabric is asked before the run, so nothing it answers is a measurement of the run. Racks are what
it knows: every pair split evenly over equal ways, so what hashing collides is not foreseen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import RFabricError, RunError
from ..fabric import Fabric
from ..optics import Circuits, Demand, Timing, arrival, intend, parse_policy
from ..rl import flows
from ..rl.phases import handover
from ..rl.traffic import weight_levels
from ..rl.workload import Workload
from ..trace import Flows, rack_demand
from .base import Answer, Network

# Weight syncs of whole copies, packed by one sender a stage and loaded as they come: software takes
# them alike, so the network alone tells them apart.
ALIKE = ("flat", "tree", "rank0")
WORTH = 0.05  # share of its seconds that another weight sync must save: assumed

# seconds until a demand has arrived beside those already in flight; RFabricError: it is refused
Ask = Callable[[Demand, Sequence[Demand]], float]


@dataclass(frozen=True, eq=False)
class Cards:
    """A network that nothing limits but the cards of a job's GPUs."""

    workload: Workload
    name: str = "network cards"

    def answer(self, sends: Flows, beside: Sequence[Flows] = ()) -> Answer:
        """What the busiest card takes."""
        return Answer(flows.wire_seconds(self.workload, flows.join([sends, *beside])))


@dataclass(frozen=True, eq=False)
class FabricNetwork:
    """A fabric that is asked: flows between GPUs become demand between its racks."""

    fabric: Fabric
    ask: Ask

    @property
    def name(self) -> str:
        """The fabric, as it was asked for."""
        return self.fabric.spec or self.fabric.name

    def answer(self, sends: Flows, beside: Sequence[Flows] = ()) -> Answer:
        """As it is foreseen; a plan that the fabric refuses is an answer, not an error."""
        if not len(sends.src):
            return Answer(0.0)
        demands = [self.demand(some) for some in (sends, *beside)]
        try:
            return Answer(self.ask(demands[0], demands[1:]))
        except RunError:  # nobody is there to answer
            raise
        except RFabricError as error:
            return Answer(float("inf"), str(error))

    def demand(self, sends: Flows) -> Demand:
        """Rack to rack bytes of flows between GPUs; RFabricError for one that the fabric lacks."""
        src, dst = (np.array(ends, np.int64) for ends in (sends.src, sends.dst))
        last = int(max(src.max(initial=0), dst.max(initial=0)))
        hosts = self.fabric.host_index
        if f"h{last + 1}" not in hosts:
            raise RFabricError(
                f"the job has GPU h{last + 1}, which {self.name} lacks; it has {len(hosts)} hosts: "
                "give it more, or a smaller job"
            )
        index = np.array([hosts[f"h{gpu + 1}"] for gpu in range(last + 1)])
        return rack_demand(self.fabric, index[src], index[dst], np.array(sends.size, float))


def foreseen(fabric: Fabric, policy: str = "own", timing: Timing = Timing()) -> FabricNetwork:
    """A fabric under a circuit policy, from circuits that suit all racks alike (`static`)."""
    asked = parse_policy(policy, fabric)
    if fabric.ocses and asked.granularity in ("time-slotted", "intra-collective"):
        raise RFabricError(
            f"policy {policy}: circuits that turn by {asked.granularity} are not foreseen stage by "
            "stage, so nothing can be negotiated over them; leave network=fabric out, or choose "
            "another policy"
        )
    static = parse_policy("static", fabric)
    lit = static.decide(Demand.none(fabric.racks), Circuits(), 0.0) if fabric.ocses else Circuits()

    def ask(demand: Demand, sending: Sequence[Demand]) -> float:
        decision = intend(fabric, asked, demand, lit, 0.0, timing=timing, sending=sending)
        return arrival(fabric, lit, decision, demand, sending, timing.takes(fabric))

    return FabricNetwork(fabric, ask)


def agreed_sync(w: Workload, network: Network) -> tuple[Workload, dict]:
    """The job with the weight sync that the network is done with soonest, and what it answered.

    The recipe's own stays where none saves WORTH of it, or software would not take another alike.
    RFabricError where the network refuses every one of them.
    """
    if w.colocated:
        return w, {}
    own = w.weight_sync.strategy
    names = (own, *ALIKE) if own in ALIKE else (own,)
    jobs = {name: replace(w, weight_sync=replace(w.weight_sync, strategy=name)) for name in names}
    asked = {name: [network.answer(level) for level in _levels(job)] for name, job in jobs.items()}
    seconds = {name: _seconds(jobs[name], answers) for name, answers in asked.items()}
    best = min(seconds, key=seconds.__getitem__)
    if seconds[best] == float("inf"):
        why = next(answer.why for answer in asked[own] if answer.refused)
        raise RFabricError(f"{network.name} refuses every weight sync of {', '.join(jobs)}: {why}")
    if not seconds[best] < (1 - WORTH) * seconds[own]:
        best = own
    told = {name: None if s == float("inf") else s for name, s in seconds.items()}
    return w if best == own else jobs[best], {"weight_sync": best, "weight_sync_s": told}


def _levels(w: Workload) -> list[Flows]:
    """What a weight sync sends between servers, level by level."""
    found = (flows.leaving(w, level.flows) for level in weight_levels(w))
    return [level for level in found if len(level.src)]


def _seconds(w: Workload, answers: Sequence[Answer]) -> float:
    """Of a weight sync: its software, and its levels one after the other."""
    return sum(handover(w).values()) + sum(answer.seconds for answer in answers)

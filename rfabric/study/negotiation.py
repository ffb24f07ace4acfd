"""Whom a compute scheduler asks before a run: the fabric that the run is on, or the controller that
steers it, over REST.

    orchestrrl,network=fabric                        the planner that controllers decide by, here
    orchestrrl,network=http\\://127.0.0.1\\:8080     the controller there: POST /plans, never
                                                     committed

The plan is made for one fabric under one circuit policy: who compares several makes one for each.
"""

from collections.abc import Callable, Sequence

from ..errors import RFabricError
from ..fabric import Fabric, Needs
from ..optics import Demand, Timing
from ..schedulers.base import AnsweringNetwork
from ..schedulers.networks import FabricNetwork, foreseen
from ..schedulers.table import asked_network
from ..schedulers.traffic import Networks

FabricFor = Callable[[Needs], Fabric]  # the fabric of a job of these needs


def networks(
    scheduler: str, fabric: FabricFor, circuits: str, timing: Timing = Timing()
) -> Networks | None:
    """Who answers the scheduler of a job on the fabric that is made for its needs; None where it
    asks nobody.
    """
    asked = asked_network(scheduler)
    if not asked:
        return None
    if asked == "fabric":
        return lambda needs: foreseen(fabric(needs), circuits, timing)
    return lambda needs: controlled(asked, fabric(needs), circuits, timing)


def one_network(
    scheduler: str, fabrics: Sequence[FabricFor], circuits: Sequence[str], timing: Timing = Timing()
) -> Networks | None:
    """The same for a run of one fabric under one policy.

    RFabricError for several: one trace cannot be agreed with all of them.
    """
    if not asked_network(scheduler):
        return None
    if len(fabrics) != 1 or len(set(circuits)) != 1:
        raise RFabricError(
            f"policy {scheduler} agrees one plan with one fabric, and {len(fabrics)} fabrics under "
            f"{len(set(circuits))} circuit policies are asked for: give one --topo and one "
            "--policy, or `rfabric compare`, which makes a plan for each"
        )
    return networks(scheduler, fabrics[0], circuits[0], timing)


def controlled(
    url: str, fabric: Fabric, circuits: str, timing: Timing = Timing()
) -> AnsweringNetwork:
    """A controller, asked over REST; what it would prepare is given up at once.

    RFabricError where it steers another fabric, RunError where it is gone.
    """
    from ..control.client import Client, token_of  # HTTP, and all of a controller's schema

    client = Client(url, token=token_of())
    steered = client.fabric()
    if steered.links != fabric.links:
        raise RFabricError(
            f"the controller at {url} steers {steered.spec or steered.name}, the run is on "
            f"{fabric.spec or fabric.name}: start it with the same --topo"
        )

    def ask(demand: Demand, sending: Sequence[Demand]) -> float:
        plan = client.plan(
            circuits, demand, (), in_flight=timing.in_flight, sending=sending,
            control=timing.control,
        )  # fmt: skip
        if plan.state == "PREPARED":
            client.abort(plan.epoch)
        return plan.completion

    return FabricNetwork(fabric, ask)

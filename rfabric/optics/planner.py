"""When to rewire: the window rule, and the record of what a rewire did.

    intent -> plan (epoch n) -> prepare -> commit -> verify

    requested        programmed             dark until            usable
        |---- control ----|------ OCS delay -----|---- settling -----|
                          `------ the circuits that change are dark ------

A rewire is worth its time only where the phase is predicted to keep its demand longer than control + OCS delay + settling +
guard; else the circuits stay.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import RFabricError
from ..fabric import Fabric, unreachable
from ..units import show_time
from .circuits import Circuits, Demand, Rewire
from .policies import Policy

Pair = tuple[str, str]  # host names
IN_FLIGHT = ("hold", "drain", "drop")


@dataclass(frozen=True)
class Timing:
    """Seconds a rewire takes beside the OCS delay: `control` (flow-mods and barriers), `settle` (light to usable), `guard`.

    `control` is the prediction; the emulator measures it. 5 ms bounds what Ryu and Open vSwitch took at 36 switches. `in_flight`
    says what happens to traffic under way on circuits that change: senders pause and the network empties (`hold`), flows
    finish first (`drain`), or senders go on and lose what they send (`drop`).
    """

    control: float = 5e-3
    settle: float = 0.0
    guard: float = 1e-3
    in_flight: str = "hold"

    def __post_init__(self):
        if self.in_flight not in IN_FLIGHT:
            raise RFabricError(f"in-flight policy {self.in_flight!r} is not one of {', '.join(IN_FLIGHT)}")

    def least_window(self, fabric: Fabric) -> float:
        """The window (s) a phase must exceed to deserve a rewire."""
        return self.control + fabric.reconfig_delay + self.settle + self.guard


@dataclass(frozen=True)
class Decision:
    """What the planner made of an intent: the rewire (empty when the circuits stay), why, and the circuits after it."""

    rewire: Rewire
    why: str
    circuits: Circuits


def intend(
    fabric: Fabric,
    policy: Policy,
    demand: Demand,
    circuits: Circuits,
    now: float,
    plan: Sequence[Demand] = (),
    timing: Timing = Timing(),
    pairs: Iterable[Pair] = (),
) -> Decision:
    """Ask `policy` and apply the window rule; RFabricError when what comes out disconnects one of the demanded `pairs`."""
    stay = Rewire(Circuits(), Circuits())
    if not fabric.ocses:
        return Decision(stay, "no OCS", circuits)
    wanted = policy.decide(demand, circuits, now, plan).check(fabric)
    return weigh(fabric, policy.name, wanted, demand.window, circuits, timing, pairs)


def weigh(
    fabric: Fabric, who: str, wanted: Circuits, window: float, circuits: Circuits, timing: Timing, pairs: Iterable[Pair] = ()
) -> Decision:  # fmt: skip
    """The window rule for circuits that `who` wants; RFabricError when what comes out disconnects one of the demanded `pairs`.

    A stage that has no way at all under the circuits in force gets its own however short it is.
    """
    stay = Rewire(Circuits(), Circuits())
    rewire, pairs = Rewire.between(circuits, wanted), list(pairs)
    least = timing.least_window(fabric)
    if not rewire:
        decision = Decision(stay, "circuits already fit", circuits)
    elif len(circuits) and window <= least and not unreachable(fabric.routes(circuits), pairs):
        text = f"window {show_time(window)} is not above {show_time(least)}"
        decision = Decision(stay, f"{text}: circuits stay", circuits)
    else:
        decision = Decision(rewire, f"{who}: {rewire.size} circuits change", wanted)
    refuse_disconnection(fabric, decision.circuits, pairs)
    return decision


def refuse_disconnection(fabric: Fabric, circuits: Circuits, pairs: Iterable[tuple[str, str]]) -> None:
    """RFabricError when `circuits` leave a demanded host pair without any path."""
    routes = fabric.routes(circuits)
    lost = [] if routes.joins_all else unreachable(routes, pairs)
    if lost:
        src, dst = lost[0]
        raise RFabricError(
            f"the plan disconnects {len(lost)} pairs with demand, first {src} -> {dst}; "
            f"give the ToRs an electrical path (electrical=100Gbit/s) or join their racks"
        )


def changed_cables(fabric: Fabric, rewire: Rewire) -> frozenset[int]:
    """The cables at the ports that a rewire touches: what is dark while it lasts."""
    ports = {port for circuits in (rewire.down, rewire.up) for circuit in circuits.items for port in circuit}
    return frozenset(fabric.peer[port][0] // 2 for port in ports)


@dataclass(frozen=True)
class RewireRecord:
    """One rewire as it happened, on the run's clock (s): the four timestamps, circuits torn down plus set up, what was lost.

    `exposed` is how long, from request to usable, some flow that was ready stood still for it; the rest was hidden: beside
    compute, or beside flows on circuits that stayed.
    """

    epoch: int
    phase: str
    requested: float
    programmed: float
    dark_until: float
    usable: float
    circuits_changed: int
    lost_bytes: int = 0
    why: str = ""
    exposed: float = 0.0

    @property
    def hidden(self) -> float:
        """Seconds of the reconfiguration delay that no flow waited for."""
        return max(self.usable - self.requested - self.exposed, 0.0)

    @property
    def dark(self) -> float:
        """Seconds from the first circuit down to usable: from programmed on, at the earliest."""
        return self.usable - self.programmed

    def to_json(self) -> dict:
        return {
            "epoch": self.epoch,
            "phase": self.phase,
            "requested_s": self.requested,
            "programmed_s": self.programmed,
            "dark_until_s": self.dark_until,
            "usable_s": self.usable,
            "circuits_changed": self.circuits_changed,
            "lost_bytes": self.lost_bytes,
            "why": self.why,
            "hidden_s": self.hidden,
            "exposed_s": self.exposed,
        }

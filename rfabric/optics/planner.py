"""When to rewire: one decision for all that sends, begins and comes; and the record of what a
rewire did.

    intent -> plan (epoch n) -> prepare -> commit -> verify

    requested        programmed             dark until            usable
        |---- control ----|------ OCS delay -----|---- settling -----|
                          `------ the circuits that change are dark ------

A rewire is worth its time only where the stages that begin are predicted to keep their demand
longer than control + OCS delay + settling + guard, and where all that is in flight and begins is
predicted to end sooner (`outlook`); else the circuits stay. No racks that send are cut off from
each other, whatever the policy.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import RFabricError
from ..fabric import Fabric, Pair
from ..fabric.cabling import cabling_of
from ..routing import routes_of, unreachable
from ..units import show_time
from .circuits import Circuits, Demand, Rewire, together
from .outlook import NEVER, Begins, Outlook, Prospect, ends_after, gain
from .policies import Policy

IN_FLIGHT = ("hold", "drain", "drop")
# up to so many racks circuits are also sought for all that begins or comes, taken together: one
# more run of the solver
MOST_RACKS_AHEAD = 256


@dataclass(frozen=True)
class Timing:
    """Seconds a rewire takes beside the OCS delay: `control` (flow-mods and barriers), `settle`
    (light to usable), `guard`.

    `control` is what a controller is taken to need, in both worlds; Ryu and Open vSwitch took 2 to
    14 ms at 36 switches, and what they take stands with every emulation. `in_flight` says what
    happens to traffic under way on circuits that change: senders pause and the network empties
    (`hold`), flows finish first (`drain`), or senders go on and lose what they send (`drop`).
    """

    control: float = 5e-3
    settle: float = 0.0
    guard: float = 1e-3
    in_flight: str = "hold"

    def __post_init__(self):
        if self.in_flight not in IN_FLIGHT:
            raise RFabricError(
                f"in-flight policy {self.in_flight!r} is not one of {', '.join(IN_FLIGHT)}"
            )

    def takes(self, fabric: Fabric) -> float:
        """Seconds from request to usable, as predicted."""
        return self.control + fabric.reconfig_delay + self.settle

    def least_window(self, fabric: Fabric) -> float:
        """The window (s) a phase must exceed to deserve a rewire."""
        return self.takes(fabric) + self.guard


@dataclass(frozen=True)
class Decision:
    """What the planner made of intents: the rewire (empty when the circuits stay), why, and the
    circuits after it.

    later: seconds that stages to come are predicted to gain; wait: what begins has no way until
    something in flight has ended; others: circuits that are predicted to gain less, the best first.
    """

    rewire: Rewire
    why: str
    circuits: Circuits
    later: float = 0.0
    wait: bool = False
    others: tuple[Circuits, ...] = ()


STAY = Rewire(Circuits(), Circuits())


def intend(
    fabric: Fabric,
    policy: Policy,
    demand: Demand,
    circuits: Circuits,
    now: float,
    coming: Sequence[Demand] = (),
    timing: Timing = Timing(),
    sending: Sequence[Demand] = (),
    pairs: Iterable[Pair] = (),
    dark: float | None = None,
    in_turn: bool = False,
    also: Sequence[Circuits] = (),
) -> Decision:
    """Ask `policy` for circuits for `demand`, which begins, beside what others are `sending`, and
    decide.

    `coming` are the demands of stages that follow; `dark` is how long (s) a rewire keeps flows
    waiting, where it is not what `timing` and the fabric say: 0 before the job begins. RFabricError
    when what comes out disconnects racks that send or a pair of `pairs`; with `in_turn` the
    decision says `wait` instead, as rounds may join them one after another. `also`: circuits to be
    weighed beside those of the policy.
    """
    if not fabric.ocses:
        return Decision(STAY, "no OCS", circuits)
    least, dark = timing.least_window(fabric), timing.takes(fabric) if dark is None else dark
    if len(circuits) and demand.window <= least and not _cut(fabric, circuits, [demand]):
        text = f"window {show_time(demand.window)} is not above {show_time(least)}: circuits stay"
        decision = Decision(STAY, text, circuits)
    else:
        every, guard = [*sending, demand], timing.guard if dark else 0.0
        stay = Prospect.of_racks(fabric, circuits, every, coming)
        decision = Decision(STAY, "circuits already fit", circuits)
        if _at_stake(stay, every, coming, dark, guard) > guard:
            proposed = _candidates(fabric, policy, demand, circuits, now, coming, sending)
            candidates = dict.fromkeys([*proposed, *also])
            decision = _best(
                fabric, policy.name, candidates, every, coming, circuits, stay, dark, guard
            )
    if decision.wait and (sending or in_turn):
        return decision
    refuse_cut(fabric, decision.circuits, [*sending, demand])
    refuse_disconnection(fabric, decision.circuits, pairs)
    return decision


def _candidates(
    fabric: Fabric,
    policy: Policy,
    demand: Demand,
    circuits: Circuits,
    now: float,
    coming: Sequence[Demand],
    sending: Sequence[Demand],
) -> list[Circuits]:
    """What the policy would light: for all in flight and what begins; for that and what comes; for
    what begins alone.
    """
    asked = [[demand, *sending]]
    if coming and len(fabric.racks) <= MOST_RACKS_AHEAD:
        asked.append([demand, *sending, *coming])
    if sending:
        asked.append([demand])
    lit = (policy.decide(together(some), circuits, now, coming).check(fabric) for some in asked)
    return list(dict.fromkeys(lit))


def _best(
    fabric: Fabric,
    who: str,
    candidates: Iterable[Circuits],
    demands: Sequence[Demand],
    coming: Sequence[Demand],
    circuits: Circuits,
    stay: Prospect,
    dark: float,
    guard: float,
) -> Decision:
    """The candidate that gains most over the circuits as they are; they stay where none gains more
    than `guard` s.
    """
    others = [wanted for wanted in candidates if wanted != circuits]
    blocked = bool(np.isinf(stay.now.least).any())
    if not others:
        return Decision(STAY, "circuits already fit", circuits, wait=blocked)
    begins, gains, least = Begins.of(demands, coming), [], -NEVER
    for wanted in others:
        after = Prospect.of_racks(fabric, wanted, demands, coming)
        cables = cable_mask(fabric, circuits, wanted)
        gains.append(gain(stay, after, begins, cables, dark, min(least, guard)))
        least = max(least, gains[-1].seconds)
    (most, wanted), *rest = sorted(zip(gains, others, strict=True), key=lambda one: -one[0].seconds)
    if most.seconds > guard:
        rewire = Rewire.between(circuits, wanted)
        text = f"{who}: {rewire.size} circuits change"
        less = tuple(lit for gained, lit in rest if gained.seconds > guard)
        return Decision(rewire, text, wanted, most.later, others=less)
    return Decision(STAY, refusal(most.seconds), circuits, wait=blocked)


def arrival(
    fabric: Fabric,
    circuits: Circuits,
    decision: Decision,
    demand: Demand,
    sending: Sequence[Demand] = (),
    dark: float = 0.0,
) -> float:
    """Seconds from now until all of `demand` has arrived beside what others are `sending`, by what
    was decided of `circuits`: a rewire takes `dark` s. inf where it has no way.
    """
    every = [*sending, demand]
    before = Outlook.of_racks(fabric, circuits, every)
    leads = np.array([one.lead for one in every])
    if not decision.rewire:
        return float(before.ends_from(leads)[-1])
    after = Outlook.of_racks(fabric, decision.circuits, every)
    cables = cable_mask(fabric, circuits, decision.circuits)
    return float(ends_after(before, after, leads, cables, dark)[-1])


def refusal(seconds: float) -> str:
    """Why circuits stay, where a rewire would gain so many seconds."""
    if seconds == -NEVER:
        return "would cut off what is in flight: circuits stay"
    when = "later" if seconds < 0 else "sooner"
    return f"predicted to end {show_time(abs(seconds))} {when}: circuits stay"


def _at_stake(
    stay: Prospect,
    demands: Sequence[Demand],
    coming: Sequence[Demand],
    dark: float,
    enough: float = NEVER,
) -> float:
    """Seconds that no rewire could gain more than: the network cards need theirs in any case.

    Where what sends now has more than `enough` at stake, what comes is left out.
    """
    soon = sum(max(end - d.floor, 0.0) for end, d in zip(stay.now.ends, demands, strict=True))
    if soon > enough:
        return float(soon)
    waits = (max(dark - d.lead, 0.0) for d in coming)
    each = zip(stay.later.alone, coming, waits, strict=True)
    return float(soon + sum(min(max(end - d.floor, 0.0), wait) for end, d, wait in each))


def turn(
    fabric: Fabric, who: str, wanted: Circuits, slot: float, circuits: Circuits, timing: Timing
) -> Decision:
    """The turn to the next circuits of a cycle, which nobody weighs, where a slot (s) is longer
    than it takes.
    """
    rewire, least = Rewire.between(circuits, wanted), timing.least_window(fabric)
    if rewire and slot <= least:
        return Decision(
            STAY,
            (f"window {show_time(slot)} is not above {show_time(least)}: circuits stay"),
            circuits,
        )
    return Decision(
        rewire,
        (f"{who}: {rewire.size} circuits change") if rewire else "circuits already fit",
        wanted,
    )


def refuse_cut(fabric: Fabric, circuits: Circuits, demands: Sequence[Demand]) -> None:
    """RFabricError when `circuits` leave two racks that send to each other without any path."""
    if cut := _cut(fabric, circuits, demands):
        raise RFabricError(
            f"the plan disconnects {len(cut)} pairs of racks with demand, first "
            f"{' -> '.join(cut[0])}; give the ToRs an electrical path (electrical=100Gbit/s) "
            "or join their racks"
        )


def _cut(fabric: Fabric, circuits: Circuits, demands: Sequence[Demand]) -> list[tuple[str, str]]:
    """Racks that send to each other and have no way under `circuits`."""
    routes = routes_of(fabric, circuits)
    if routes.joins_all:
        return []
    rows, columns, _ = together(demands).sent
    cut = np.isinf(routes.ways.cost(cabling_of(fabric).rack_row[rows], columns))
    return [
        (fabric.racks[a], fabric.racks[b])
        for a, b in zip(rows[cut].tolist(), columns[cut].tolist(), strict=True)
    ]


def refuse_disconnection(
    fabric: Fabric, circuits: Circuits, pairs: Iterable[tuple[str, str]]
) -> None:
    """RFabricError when `circuits` leave a demanded host pair without any path."""
    routes = routes_of(fabric, circuits)
    lost = [] if routes.joins_all else unreachable(routes, pairs)
    if lost:
        src, dst = lost[0]
        raise RFabricError(
            f"the plan disconnects {len(lost)} pairs with demand, first {src} -> {dst}; "
            f"give the ToRs an electrical path (electrical=100Gbit/s) or join their racks"
        )


def changed_cables(fabric: Fabric, rewire: Rewire) -> frozenset[int]:
    """The cables at the ports that a rewire touches: what is dark while it lasts."""
    ports = {
        port
        for circuits in (rewire.down, rewire.up)
        for circuit in circuits.items
        for port in circuit
    }
    return frozenset(fabric.peer[port][0] // 2 for port in ports)


def cable_mask(fabric: Fabric, old: Circuits, new: Circuits) -> np.ndarray:
    """`changed_cables` between two sets of circuits, as bool[links]."""
    before, after = (routes_of(fabric, circuits).lights.cross for circuits in (old, new))
    changed = before != after
    return changed[::2] | changed[1::2]


@dataclass(frozen=True)
class RewireRecord:
    """One rewire as it happened, on the run's clock (s): the four timestamps, circuits torn down
    plus set up, what was lost.

    `exposed` is how long, from request to usable, some flow that was ready stood still for it; the
    rest was hidden: beside compute, or beside flows on circuits that stayed.
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
        """The columns of a result; `from_json` is the inverse."""
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

    @classmethod
    def from_json(cls, data: Mapping) -> "RewireRecord":
        """Read what `to_json` wrote: `hidden_s` follows from the others."""
        times = ("requested_s", "programmed_s", "dark_until_s", "usable_s")
        keys = ("epoch", "phase", *times, "circuits_changed", "lost_bytes", "why", "exposed_s")
        return cls(*(data[key] for key in keys))

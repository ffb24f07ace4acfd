"""The policy that words or an object mean; a stranger's is guarded.

    demand,granularity=per-phase      one of `policies.POLICIES`
    mine.py:ring,skip=2               a class in the table `policies` of a file
    Ring(fabric, "ring", skip=2)      an object, from Python

What a stranger's class raises is told by file and line, and each of its answers is checked: from a
file and from Python alike.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from ..errors import RFabricError, meant
from ..fabric import Fabric
from ..plugins import KINDS, called, checked, entry, file_of, is_file, place_of, running
from ..specs import escaped, field_values, read_spec
from .circuits import Circuits, Demand
from .policies import (
    GRANULARITIES,
    POLICIES,
    SETTINGS,
    SLOT_DELAYS,
    USUAL,
    CircuitPolicy,
    Policy,
    spelled,
)

EXAMPLE = KINDS["policies"].example
MEMBERS = ("name", "granularity", "slot", "decide", "options", "cycle", "rounds")


def parse_policy(asked: str | Policy, fabric: Fabric) -> Policy:
    """The policy of `NAME[,granularity=WHEN][,slot=TIME]`, `FILE.py[:NAME][,...]` for `fabric`.

    One that is an object stays what it is, guarded where its class is not one of ours.
    RFabricError: there is none of this name, a setting it cannot have, an object that is no policy
    or was made for another fabric.
    """
    if not isinstance(asked, str):
        return _of_object(asked, fabric)
    spec = read_spec(spelled(asked, fabric), "policy", SETTINGS)
    made = _class_of(spec.head)
    said = field_values(made, spec, "fabric", "name")
    usual = {"granularity": USUAL.get(spec.head, made.granularity)}
    usual["slot"] = max(made.slot, SLOT_DELAYS * fabric.reconfig_delay)
    if not is_file(spec.head):
        return _timed(made(fabric, spec.head, **usual | said), fabric, "slot" in said)
    own = called(spec.head, "policies", CircuitPolicy, fabric, spec.head, **usual | said)
    if not (hasattr(own, "fabric") and hasattr(own, "name")):
        where = place_of(file_of(spec.head), made.__init__)
        raise RFabricError(f"{where}: its __init__ keeps no fabric and name; see {EXAMPLE}")
    return _guarded(_timed(own, fabric, "slot" in said), fabric, spec.head)


def _class_of(head: str) -> type[CircuitPolicy]:
    """The class that is called so, or stands in a file."""
    if not is_file(head):
        if head not in POLICIES:
            raise RFabricError(
                f"no policy named {head!r}; there are own, {', '.join(POLICIES)}, or give a FILE.py"
            )
        return POLICIES[head]
    offered = entry(head, "policies")
    if not (isinstance(offered, type) and issubclass(offered, CircuitPolicy)):
        where = place_of(file_of(head), offered)
        raise RFabricError(f"{where}: {offered!r} is no CircuitPolicy; see {EXAMPLE}")
    return offered


def check_policy(asked: Any) -> None:
    """RFabricError for an object that lacks what every policy has."""
    missing = [name for name in MEMBERS if not hasattr(asked, name)]
    if missing or isinstance(asked, type):
        why = f"lacks {', '.join(missing)}" if missing else "is a class: give one made from it"
        raise RFabricError(
            f"policy {asked!r} {why}; derive it from rfabric.optics.CircuitPolicy, or give a name"
        )
    if not isinstance(asked.name, str):
        raise RFabricError(f"policy {asked.name!r}: its name must be text")


def _of_object(policy: Policy, fabric: Fabric) -> Policy:
    check_policy(policy)
    known = getattr(policy, "fabric", fabric)
    if fabric.ocses and isinstance(known, Fabric) and known is not fabric and known != fabric:
        raise RFabricError(
            f"policy {policy.name} was made for {known.spec or known.name}, and is to rewire "
            f"{fabric.spec or fabric.name}; make one for each fabric, or give a name"
        )
    policy = _timed(policy, fabric, told=False)
    ours = type(policy) in (GuardedPolicy, *POLICIES.values())
    return policy if ours else _guarded(policy, fabric, _where(policy))


def _where(policy: Policy) -> str:
    """`FILE.py:NAME` of the policy's class, as plug-ins are named; none: it was typed in."""
    file = getattr(sys.modules.get(type(policy).__module__), "__file__", None)
    return f"{escaped(file)}:{policy.name}" if file else f"policy {policy.name}"


def _timed(policy: Policy, fabric: Fabric, told: bool) -> Policy:
    """The policy, when its slots fit granularity and OCSes; `told`: their length was said."""
    who, dark = f"policy {policy.name}", fabric.reconfig_delay
    if policy.granularity not in GRANULARITIES:
        hint, every = meant(str(policy.granularity), GRANULARITIES), ", ".join(GRANULARITIES)
        raise RFabricError(f"{who}: no granularity {policy.granularity!r}{hint}; there are {every}")
    if policy.granularity != "time-slotted" and told:
        raise RFabricError(
            f"{who}: slot goes with granularity=time-slotted; leave it out of {policy.granularity}"
        )
    if not isinstance(policy.slot, Real) or not math.isfinite(policy.slot):
        raise RFabricError(f"{who}: slot {policy.slot!r} must be a number of seconds")
    if policy.granularity == "time-slotted" and not policy.slot > dark:
        wanted = f"must be longer than the reconfiguration delay, {dark:g} s"
        raise RFabricError(f"{who}: slot {policy.slot:g} s {wanted}")
    return policy


def _guarded(own: Policy, fabric: Fabric, where: str) -> "GuardedPolicy":
    return GuardedPolicy(fabric, own.name, own.granularity, own.slot, own, where)


@dataclass(frozen=True)
class GuardedPolicy(CircuitPolicy):
    """A stranger's policy `own`: mistakes are told by file and line, answers fit the fabric.

    where: `FILE.py:NAME`, which errors begin with.
    """

    own: Policy | None = None
    where: str = ""

    def decide(
        self, demand: Demand, circuits: Circuits, now: float, upcoming: Sequence[Demand] = ()
    ) -> Circuits:
        return self._fits(self._asked("decide", demand, circuits, now, upcoming), "decide")

    def options(self, demand: Demand, circuits: Circuits) -> list[Circuits]:
        return self._all_fit(self._asked("options", demand, circuits), "options")

    def cycle(self, demand: Demand, circuits: Circuits) -> list[Circuits]:
        return self._all_fit(self._asked("cycle", demand, circuits), "cycle")

    def rounds(self, demand: Demand, circuits: Circuits) -> list[list[Circuits]]:
        ways = self._asked("rounds", demand, circuits)
        return [self._all_fit(turns, "rounds") for turns in self._listed(ways, "rounds")]

    def _asked(self, method: str, *args) -> Any:
        asked = getattr(self.own, method)
        with running(file_of(self.where), asked):
            return asked(*args)

    def _all_fit(self, answers: Any, method: str) -> list[Circuits]:
        return [self._fits(answer, method) for answer in self._listed(answers, method)]

    def _listed(self, answers: Any, method: str) -> list:
        if isinstance(answers, Iterable):
            with running(file_of(self.where)):
                answers = list(answers)
        return checked(self.where, answers, list, EXAMPLE, getattr(self.own, method))

    def _fits(self, answer: Any, method: str) -> Circuits:
        asked = getattr(self.own, method)
        circuits = checked(self.where, answer, Circuits, EXAMPLE, asked)
        try:
            return circuits.check(self.fabric)
        except RFabricError as error:
            where = place_of(file_of(self.where), asked)
            raise RFabricError(f"{where}: {self.name}: {error}") from error

"""From a journal and what the switches hold to what is true. Pure: nothing is sent from here.

    a plan was cut short, and its OCSes hold          it is
    some of the new circuits                          finished: no old one is left
    none of them, and not all of the old ones         rolled back: no new one is up
    the old ones all                                  rolled back: nothing had been done
    (the way back had begun)                          rolled back

Nothing lit is torn down by either: a circuit comes up after the last old one has gone.
"""

from collections.abc import Iterable, Mapping

from ..optics import Circuit, Circuits
from .epochs import Epochs, RewirePlan
from .switches import Crossbar


def facts_of(old: Epochs, new: Epochs) -> dict[str, object]:
    """What the journal must be told to lead from one state of the books to the next."""
    facts: dict[str, object] = {
        f"plan/{n}": plan.to_json() for n, plan in new.plans.items() if old.plans.get(n) is not plan
    }
    if (old.active, old.circuits) != (new.active, new.circuits):
        facts["epoch"] = {"active": new.active, "circuits": new.circuits.to_json()}
    return facts


def epochs_of(facts: Mapping, fresh: Epochs) -> Epochs:
    """The books as a journal has them; `fresh` where it is empty."""
    if "epoch" not in facts:
        return fresh
    plans = [RewirePlan.from_json(fact) for name, fact in facts.items() if name[:5] == "plan/"]
    by_number = {plan.epoch: plan for plan in sorted(plans, key=lambda plan: plan.epoch)}
    epoch = facts["epoch"]
    circuits = Circuits.from_json(epoch["circuits"])
    return Epochs(circuits, epoch["active"], by_number, fresh.timeout)


def judge(plan: RewirePlan, crossbars: Mapping[str, Crossbar]) -> tuple[bool, str]:
    """Whether a plan that was cut short is finished, or else rolled back; and why, in words."""
    up, down = (_lit(c, crossbars) for c in (plan.rewire.up, plan.rewire.down))
    new, old = (sum(some) for some in (up, down))
    seen = f"{old} of {len(down)} old and {new} of {len(up)} new circuits were lit"
    if plan.state == "ROLLBACK":
        return False, f"rolled back: its rollback had begun, {seen}"
    return new > 0, f"{'finished' if new else 'rolled back'}: {seen}"


def _lit(circuits: Iterable[Circuit], crossbars: Mapping[str, Crossbar]) -> list[bool]:
    """Whether either direction of each is there."""
    found = []
    for a, b in circuits:
        held = crossbars.get(a.node, {})
        found.append(held.get(a.number) == b.number or held.get(b.number) == a.number)
    return found

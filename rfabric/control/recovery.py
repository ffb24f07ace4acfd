"""What a controller remembers; and from a journal and what the switches hold to what is true.
Nothing is sent from here.

    a plan was cut short, and its OCSes hold          it is
    some of the new circuits                          finished: no old one is left
    none of them, and not all of the old ones         rolled back: no new one is up
    the old ones all                                  rolled back: nothing had been done
    (the way back had begun)                          rolled back

Nothing lit is torn down by either: a circuit comes up after the last old one has gone.
"""

import contextlib
import logging
from collections import deque
from collections.abc import Iterable, Mapping

from ..errors import RunError
from ..fabric import Fabric, Pair
from ..optics import Circuit, Circuits
from ..routing.schemes import ECMP, Routing
from .epochs import Epochs, RewirePlan
from .journal import Journal
from .schema import pairs_json, pairs_request
from .switches import PortMap
from .watch import Watched

PLAN_LIFE_S = 3600.0  # a plan that nobody commits by then is given up
RETOLD = 20  # decisions that `GET /health` tells

_log = logging.getLogger(__name__)


class Remembered:
    """Epochs, plans and pairs of one fabric; with a journal what it had said before is there again.

    `fresh` are the epochs where there is nothing to remember.
    """

    epochs = Watched()  # who reads GET /events is told

    def __init__(self, fabric: Fabric, journal: Journal | None, fresh: Epochs):
        self.fabric, self.journal = fabric, journal
        self.said: deque[str] = deque(journal.decisions(RETOLD) if journal else (), RETOLD)
        facts = journal.read() if journal else {}
        self.epochs = self._written = epochs_of(facts, fresh)
        self.routing: Routing = ECMP
        self.demanded: frozenset[Pair] = frozenset()  # the pairs of PUT /pairs
        self.pairs: frozenset[Pair] = frozenset()  # all pairs that have routes, both directions
        if "demanded" in facts:
            demanded, self.routing = pairs_request(facts["demanded"], fabric)
            self.demanded = frozenset(demanded)
            self.pairs = both_ways(demanded) | frozenset(map(tuple, facts.get("learned", ())))
        self._kept = self.pairs
        self._meant = {  # the pairs that prepared plans bring
            int(name[6:]): frozenset(map(tuple, fact))
            for name, fact in facts.items()
            if name.startswith("pairs/")
        }
        if journal and not facts.keys().isdisjoint(("epoch", "demanded")):
            self.note(f"recovered from {journal.path}: {self._state()}")

    def note(self, text: str) -> None:
        """Say what was decided: in the log, to who asks, and in the journal."""
        _log.warning("%s", text)
        self.said.append(text)
        if self.journal:
            with contextlib.suppress(RunError):  # it was said elsewhere
                self.journal.write({}, text)

    def _write(self, epochs: Epochs, facts: Mapping[str, object] | None = None) -> None:
        """These are the books now: on the disk first."""
        if self.journal:
            facts = {**facts_of(self._written, epochs), **(facts or {})}
            # at the first word all is told: circuits of the start are those of this controller
            if not self._written.plans:
                whole = {"active": epochs.active, "circuits": epochs.circuits.to_json()}
                facts = {"epoch": whole, **facts}
            self.journal.write(facts)
            self._written = epochs
        self.epochs = epochs

    def _write_if_possible(self, epochs: Epochs) -> None:
        """As `_write`; where the disk takes nothing, what is done must be done all the same."""
        try:
            self._write(epochs)
        except RunError as error:
            _log.error("%s", error)
            self.epochs = epochs

    def _write_pairs(self, pairs: frozenset[Pair], anew: bool = False) -> None:
        if self.journal and (anew or pairs != self._kept):
            body = pairs_json(sorted(self.demanded), self.routing, self.fabric)
            learned = sorted(pairs - both_ways(self.demanded))
            self.journal.write({"demanded": body, "learned": learned})
        self._kept = pairs

    def _write_verified(self, epochs: Epochs) -> None:
        """A plan is the epoch now: what others meant, none of which can be committed any more, is
        forgotten.
        """
        self._write(epochs, {f"pairs/{n}": None for n in self._meant})
        self._meant = {}

    def _expire(self) -> None:
        epochs = self.epochs.expired(self.clock.now(), PLAN_LIFE_S)
        if epochs is self.epochs:
            return
        for n, plan in epochs.plans.items():
            if plan is not self.epochs.plans[n]:
                self._changes.pop(n, None)
                self.note(f"plan {n} has expired: {plan.error}")
        self._write(epochs)

    def _state(self) -> str:
        busy = self._interrupted()
        return (
            f"epoch {self.epochs.active}, {len(self.epochs.circuits)} circuits, "
            f"{len(self.pairs)} routed pairs, {len(self.epochs.plans)} plans"
            + (f"; {busy}" if busy else "")
        )

    def _interrupted(self) -> str:
        plan = self.epochs.under_way
        return f"plan {plan.epoch} was cut short" if plan else ""


def both_ways(pairs: Iterable[Pair]) -> frozenset[Pair]:
    """The pairs and their way back, by which acknowledgements travel."""
    return frozenset(p for a, b in pairs if a != b for p in ((a, b), (b, a)))


def facts_of(old: Epochs, new: Epochs) -> dict[str, object]:
    """What the journal must be told to lead from one state of the books to the next."""
    facts: dict[str, object] = {f"plan/{n}": None for n in old.plans.keys() - new.plans.keys()}
    facts |= {
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


def judge(plan: RewirePlan, crossbars: Mapping[str, PortMap]) -> tuple[bool, str]:
    """Whether a plan that was cut short is finished, or else rolled back; and why, in words."""
    up, down = (_lit(c, crossbars) for c in (plan.rewire.up, plan.rewire.down))
    new, old = (sum(some) for some in (up, down))
    seen = f"{old} of {len(down)} old and {new} of {len(up)} new circuits were lit"
    if plan.state == "ROLLBACK":
        return False, f"rolled back: its rollback had begun, {seen}"
    return new > 0, f"{'finished' if new else 'rolled back'}: {seen}"


def _lit(circuits: Iterable[Circuit], crossbars: Mapping[str, PortMap]) -> list[bool]:
    """Whether either direction of each is there."""
    ends = ((crossbars.get(a.node, {}), a.number, b.number) for a, b in circuits)
    return [held.get(a) == b or held.get(b) == a for held, a, b in ends]

"""What the switches hold and what works of the fabric: kept in order whatever fails.

A switch that connects is asked what it holds, and told the difference: rules that stay are never
sent again. An OCS that keeps silent, refuses or does not hold what it was told is `out`: plans
leave it as it is, and routes lead around it, as around `dead` ports, wherever there is another way.
What a controller was in the midst of when it died the next one finds in its journal and on the
switches, and finishes or rolls back (`recovery`).
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..errors import RunError
from ..fabric import Fabric, Pair, Port, host_ip
from ..optics import Circuits, Demand, parse_policy
from ..routing import Routes
from . import flowmods
from .epochs import MESSAGE_S, Epochs, RewirePlan
from .journal import Journal
from .recovery import Remembered, judge
from .seam import Push
from .switches import HeldFlows, Switches, SystemClock, crossbar_of
from .tables import Change, Key, RuleTable, Wires, change_of, repair, table_of, without

# s that one rewire may keep all others waiting: its dark time or its control time, dilated
LONGEST_WAIT_S = 3600.0
PROOF = 1 << 63  # cookies from here on tell no epoch

_log = logging.getLogger(__name__)


class UnavailableError(RunError):
    """Switches or the fabric are not there yet (HTTP 503)."""


class Upkeep(Remembered):
    """The table of every switch, the routes among what works, and the way to the switches."""

    def __init__(
        self,
        fabric: Fabric,
        switches: Switches,
        clock: SystemClock,
        timeout: float,
        journal: Journal | None,
    ):
        circuits = parse_policy("static", fabric).decide(Demand.none(fabric.racks), Circuits(), 0.0)
        super().__init__(fabric, journal, Epochs(circuits, timeout=timeout))
        self.switches, self.clock = switches, clock
        self.name_of = {n.dpid: n.name for n in fabric.switches}
        self._addresses = {h: host_ip(i) for i, h in enumerate(fabric.hosts)}
        self._lock = threading.Lock()
        self._ocs_ids = {n.dpid for n in fabric.ocses}
        # an OCS may still hold what it proved to a controller before: each begins where none was
        self._proofs = itertools.count(time.time_ns())
        self.out: frozenset[str] = frozenset()  # OCSes that do not do what they are told
        self.dead: frozenset[Port] = frozenset()  # ports without light
        self.sound = fabric  # what of it works
        self.routes = Routes(fabric, self.epochs.circuits, self.routing)
        self.table: RuleTable = table_of(self.epochs.circuits, self.routes, self.pairs)
        self.left: frozenset[Key] = frozenset()  # of `table`, what no pair needs any more
        self.synced: set[str] = set()  # switches that hold what `table` says
        self._changes: dict[int, tuple[Routes, frozenset[Pair], Change]] = {}  # of prepared plans

    def connected(self, dpids: Iterable[int]) -> None:
        """Switches have (re)connected: they get the rules they lack, and lose those they should not
        have. What is as it should be is not touched.
        """
        with self._lock:
            if self._settled():
                self._resync([self.name_of[d] for d in dpids])
                self._reroute()

    def disconnected(self, dpid: int) -> None:
        """A switch has gone; when it comes back it is given what it lacks."""
        self.synced.discard(self.name_of[dpid])

    def gone(self, dpids: Iterable[int]) -> None:
        """Switches have gone and may not forward any more: routes lead around OCSes among them."""
        with self._lock:
            names = {self.name_of[d] for d in set(dpids) - self.switches.present()}
            self._unfit(names, "gone")
            self._reroute()

    def unlit(self, ports: Iterable[Port]) -> None:
        """These ports, and no others, have no light: their cables carry nothing."""
        dead = frozenset(ports)
        if dead == self.dead:
            return
        with self._lock:
            names = ", ".join(map(str, sorted(dead ^ self.dead)[:8]))
            self.note(f"light has {'gone' if dead - self.dead else 'come back'} at {names}")
            self.dead = dead
            self._reroute()

    def restore(self) -> None:
        """Give their rules to switches that kept silent or refused and stayed connected.

        To be called from time to time.
        """
        with self._lock:
            self._expire()
            if self._settled(wait=False):
                self._restore(set(self.name_of.values()))
                self._reroute()

    # --- after a restart --------------------------------------------------------------------------

    def _settled(self, wait: bool = True) -> bool:
        """Whether no plan is half done; one that was cut short is finished or rolled back now.

        False where its OCSes are not all there yet, and no longer with `wait` False.
        """
        plan = self.epochs.under_way
        if plan is None:
            return True
        present = self.switches.present()
        ocses = {c.a.node for some in (plan.rewire.down, plan.rewire.up) for c in some}
        dpids = {self.fabric.node[name].dpid for name in ocses}
        if not present or (wait and not dpids <= present):
            return False
        held = self._held(dpids & present, self.epochs.timeout)
        crossbars = {self.name_of[dpid]: crossbar_of(flows) for dpid, flows in held.items()}
        finish, why = judge(plan, crossbars)
        self._settle(plan, finish, why)
        return True

    def _settle(self, plan: RewirePlan, finish: bool, why: str) -> None:
        self._write(self.epochs.resumed(plan.epoch, finish, why))
        self._changes = {}
        circuits, pairs = self.epochs.circuits, self.pairs
        if finish:
            circuits = plan.rewire.apply(circuits)
            pairs |= self._meant.get(plan.epoch, frozenset())
        self.routes = Routes(self.sound, circuits, self.routing)
        self.pairs, self.left = pairs, frozenset()
        self.table = self._table(circuits, self.routes, pairs)
        present = self.switches.present()
        self._resync([n.name for n in self.fabric.switches if n.dpid in present], plan)
        if finish:
            self._write_pairs(pairs)
            self._write_verified(self.epochs.verified(plan.epoch))
        else:
            self._write(self.epochs.rolled_back(plan.epoch))
        self.note(f"plan {plan.epoch} was cut short and is {why}")

    # --- what the switches shall hold -------------------------------------------------------------

    def _table(self, circuits: Circuits, routes: Routes, pairs: frozenset[Pair]) -> RuleTable:
        """What all switches shall hold; pairs that only what is broken connects keep that way."""
        if routes.fabric is self.fabric:
            return table_of(circuits, routes, pairs)
        cut = frozenset(routes.lost(sorted(pairs)))
        table = table_of(circuits, routes, pairs - cut)
        whole = Routes(self.fabric, circuits, self.routing)
        return {**table_of(circuits, whole, cut), **table} if cut else table

    def _change(
        self, old: RuleTable, new: RuleTable, epoch: int, lit: Callable[[Pair], bool] | None = None
    ) -> Change:
        return change_of(self.fabric, self._addresses, old, new, epoch, lit, self.left)

    def _route(self, pairs: frozenset[Pair]) -> None:
        """Make `pairs` the pairs that have routes, under the circuits that count now."""
        if pairs == self.pairs:
            return
        change = self._change(
            self.table, self._table(self.epochs.circuits, self.routes, pairs), self.epochs.active
        )
        self.pairs, self.table, self.left = pairs, change.new, change.left
        present = self.switches.present()
        self._push({d: w for d, w in change.routes.items() if d in present}, "adding routes")

    def _looked(self) -> bool:
        """Whether what works of the fabric is other than it was; it is `sound` from here on."""
        broken = frozenset(p for name in self.out for p in self.fabric.ports[name]) | self.dead
        sound = without(self.fabric, broken)
        if sound.links == self.sound.links:
            return False
        self.sound = sound
        return True

    def _reroute(self) -> None:
        """Lead around what is broken, or back: the same circuits, other routes."""
        if not self._looked():
            return
        self.routes = Routes(self.sound, self.epochs.circuits, self.routing)
        table = self._table(self.epochs.circuits, self.routes, self.pairs)
        change = self._change(self.table, table, self.epochs.active)
        self.table, self.left = table, change.left
        around = f" around {', '.join(sorted(self.out))}" if self.out else ""
        self.note(f"routes lead{around or ' by every cable that has light'}")
        self._push_what_answers(change.routes)

    # --- what they hold ---------------------------------------------------------------------------

    def _resync(self, names: Sequence[str], dark: RewirePlan | None = None) -> None:
        """Give switches what they lack of `table` and take what they have beside it; between the
        two OCSes of a plan that was cut short stay `dark` for as long as it says.
        """
        dpids, ocses = [self.fabric.node[n].dpid for n in names], self._ocs_ids
        held = self._held(dpids, 10 * self.epochs.timeout)
        strikes, adds = self._missing(names, held)
        first = {d: w for d, w in strikes.items() if d in ocses and w}
        if dark and (first or any(adds.get(d) for d in ocses)):
            self._push_what_answers(first, first)
            strikes |= dict.fromkeys(first, [])
            self._told({d: [*w, *adds[d]] for d, w in strikes.items() if d not in ocses})
            length = min(dark.dilation * dark.delay, LONGEST_WAIT_S)
            self.clock.sleep_until(self.clock.now() + length)
            strikes = {d: w for d, w in strikes.items() if d in ocses}
        self._told({d: [*w, *adds[d]] for d, w in strikes.items()})

    def _held(self, dpids: Iterable[int], timeout_s: float) -> dict[int, HeldFlows]:
        """All that those of these switches hold that answer."""
        asked = {d: [flowmods.ask_flows()] for d in sorted(dpids)}
        return self.switches.flows(asked, timeout_s) if asked else {}

    def _missing(self, names: Sequence[str], held: Mapping[int, HeldFlows]) -> tuple[Wires, Wires]:
        """By switch, what it must lose and what it must get to hold what `table` says."""
        epoch, address = self.epochs.active, self._addresses.__getitem__
        wanted = {n: flowmods.base(self.fabric.node[n].kind, epoch) for n in names}
        for rule in self.table.values():
            if rule.switch in wanted:
                wanted[rule.switch].append(flowmods.add(rule, address, epoch))
        both = {d: repair(wanted[self.name_of[d]], flows) for d, flows in held.items()}
        return {d: gone for d, (gone, _) in both.items()}, {d: new for d, (_, new) in both.items()}

    def _told(self, wires: Wires) -> None:
        """Switches that take this and then hold what they should are fit again.

        One that is out must show that it does what it is told: its drop of everything else is set
        anew, under a cookie of its own.
        """
        proof = PROOF | next(self._proofs)
        on_trial = {d for d in wires if self.name_of[d] in self.out}
        wires = {
            d: [*w, *(flowmods.base("ocs", proof) if d in on_trial else ())]
            for d, w in wires.items()
        }
        if not wires:
            return
        push = self.switches.push(wires, self._patience(wires, 10))
        refused = {dpid for dpid, _, _ in push.refused}
        took = set(push.done_s) - refused
        doubtful = {d for d in took if wires[d] and d in self._ocs_ids}
        held = self._held(doubtful, self.epochs.timeout)
        gone, new = self._missing([self.name_of[d] for d in held], held)
        bad = {d for d in doubtful if d not in held or gone[d] or new[d]}
        bad |= {d for d in on_trial & set(held) if not _proven(held[d], proof)}
        self._fit({self.name_of[d] for d in took - bad})
        self._unfit({self.name_of[d] for d in bad}, "does not hold what it was told")
        if not push.ok:
            _log.error("rules not taken: %s", push)

    def _fit(self, names: set[str]) -> None:
        self.synced |= names
        self.out -= names

    def _unfit(self, names: set[str], why: str) -> None:
        """These no longer hold what the table says; OCSes among them are out."""
        self.synced -= names
        new = {n for n in names if self.fabric.node[n].kind == "ocs"} - self.out
        if new:
            self.out |= new
            self.note(f"{', '.join(sorted(new))}: {why}; taken out of plans and routes")

    def _restore(self, names: set[str]) -> None:
        """Give all rules to those of these switches that are connected and failed before, if they
        answer now.
        """
        dpids = {self.fabric.node[n].dpid for n in names - self.synced} & self.switches.present()
        if dpids:
            alive = self.switches.push({d: [] for d in sorted(dpids)}, self.epochs.timeout).done_s
            self._resync([self.name_of[d] for d in alive])

    # --- sending ----------------------------------------------------------------------------------

    def _patience(self, wires: Wires, times: float = 1.0) -> float:
        """s that the barriers behind these messages may take."""
        return times * self.epochs.timeout + MESSAGE_S * sum(map(len, wires.values()))

    def _push(self, wires: Wires, doing: str) -> Push:
        if not wires:
            return Push(self.clock.now(), {})
        patience = self._patience(wires)
        push = self.switches.push(wires, patience)
        self._forget_unfit(push)
        if not push.ok:
            raise RunError(f"{doing}: {self._said(push, patience)}")
        return push

    def _push_what_answers(self, wires: Wires, answer: Iterable[int] = ()) -> None:
        """Send to the switches that have not failed yet; no use in waiting for the others again."""
        able = {d: w for d, w in wires.items() if d in answer or self.name_of[d] in self.synced}
        try:
            self._forget_unfit(self.switches.push(able, self._patience(able)))
        except RunError as error:  # the event loop hangs: nothing is known of any of them
            _log.error("%s", error)
            self._unfit({self.name_of[d] for d in able}, "unknown")

    def _forget_unfit(self, push: Push) -> None:
        """Switches that refused or kept silent no longer hold what the table says."""
        self._unfit({self.name_of[d] for d in push.silent}, "no answer")
        self._unfit({self.name_of[r[0]] for r in push.refused}, "refuses")

    def _said(self, push: Push, patience: float) -> str:
        said = [f"{self.name_of[d]} refused: {reason}" for d, _, reason in push.refused]
        said += [f"{self.name_of[d]} did not answer within {patience:.3g} s" for d in push.silent]
        return "; ".join(said[:8])

    def _require(self, dpids: set[int]) -> None:
        gone = sorted(self.name_of[d] for d in dpids - self.switches.present())
        if gone:
            raise UnavailableError(
                f"not connected: {', '.join(gone)}; wait until GET /health says ready"
            )
        self._restore({self.name_of[d] for d in dpids})
        unfit = sorted(self.name_of[d] for d in dpids if self.name_of[d] not in self.synced)
        if unfit:
            raise UnavailableError(
                f"no answer from {', '.join(unfit)}; wait until GET /health says ready"
            )


def _proven(flows: HeldFlows, proof: int) -> bool:
    """Whether a switch has taken the drop of everything else under this cookie."""
    return any(not e.match and e.cookie == proof for e in flows.values())

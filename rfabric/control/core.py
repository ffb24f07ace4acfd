"""The controller without OpenFlow: intents become plans, plans become batches of flow-mods in the
right order and time.

    POST /plans           intent -> policy -> window rule -> rewire -> flow-mods        PREPARED
    POST /plans/n/commit  old circuits deleted, barriers from all OCSes that change   programmed
                          routes of the packet switches changed, while it is dark           dark
                          after the OCS delay: new circuits, barriers                     usable
                          crossbars read back and compared                 ACTIVE or rolled back

`Core` is given a `Switches`, which is Ryu in `app.py` and memory in `fake.py`, and a clock. One
lock serialises everything that sends; what is asked meanwhile (`GET`) is answered from immutable
snapshots. Rules that stay are never sent again: a switch that connects is asked what it holds, and
told the difference.

With a `Journal` nothing that was answered is forgotten. What a controller was in the midst of when
it died the next one finds there and on the switches, and finishes or rolls back (`recovery`).

An OCS that keeps silent, refuses or does not hold what it was told is `out`: plans leave it as it
is, and routes lead around it, as around `dead` ports, wherever there is another way.
"""

import contextlib
import gc
import logging
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..errors import RFabricError, RunError
from ..fabric import Fabric, Port, host_ip
from ..optics import (
    Circuits,
    Decision,
    Demand,
    Rewire,
    Timing,
    intend,
    parse_policy,
    refuse_disconnection,
)
from ..routing import Routes
from ..routing.schemes import ECMP, Routing
from ..units import show_time
from . import flowmods
from .epochs import TIMEOUT, Epochs, NotFoundError, RewirePlan, StateError, port_words
from .journal import Journal
from .recovery import epochs_of, facts_of, judge
from .schema import Intent, PlanRequest, pairs_json, pairs_request
from .seam import Push
from .switches import Flows, Switches, SystemClock
from .tables import Change, Pair, Table, Wires, change_of, crossbars_of, repair, table_of, without

PLAN_LIFE_S = 3600.0  # a plan that nobody commits by then is given up
# s that one rewire may keep all others waiting: its dark time or its control time, dilated
LONGEST_WAIT_S = 3600.0
PROOF = 1 << 63  # cookies from here on tell no epoch
RETOLD = 20  # decisions that `GET /health` tells

_log = logging.getLogger(__name__)


class UnavailableError(RunError):
    """Switches or the fabric are not there yet (HTTP 503)."""


class RolledBackError(RunError):
    """A rewire failed, the last good circuits are back (HTTP 500); `plan`: what became of it."""

    def __init__(self, text: str, plan: RewirePlan):
        super().__init__(text)
        self.plan = plan


class Core:
    """One fabric under control. Public methods may be called from any thread."""

    def __init__(
        self,
        fabric: Fabric,
        switches: Switches,
        clock: SystemClock | None = None,
        timeout: float = TIMEOUT,
        journal: Journal | None = None,
    ):
        self.fabric, self.switches, self.clock = fabric, switches, clock or SystemClock()
        self.name_of = {n.dpid: n.name for n in fabric.switches}
        self._addresses = {h: host_ip(i) for i, h in enumerate(fabric.hosts)}
        self._lock = threading.Lock()
        circuits = parse_policy("static", fabric).decide(Demand.none(fabric.racks), Circuits(), 0.0)
        self.journal = journal
        self._ocs_ids, self._proofs = {n.dpid for n in fabric.ocses}, 0
        self.said: deque[str] = deque(journal.decisions(RETOLD) if journal else (), RETOLD)
        facts = journal.read() if journal else {}
        self.epochs = self._written = epochs_of(facts, Epochs(circuits, timeout=timeout))
        self.routing = ECMP
        self.demanded: frozenset[Pair] = frozenset()  # the pairs of PUT /pairs
        self.pairs: frozenset[Pair] = frozenset()  # all pairs that have routes, both directions
        if "demanded" in facts:
            demanded, self.routing = pairs_request(facts["demanded"], fabric)
            self.demanded = frozenset(demanded)
            self.pairs = _both_ways(demanded) | frozenset(map(tuple, facts.get("learned", ())))
        self.out: frozenset[str] = frozenset()  # OCSes that do not do what they are told
        self.dead: frozenset[Port] = frozenset()  # ports without light
        self.sound = fabric  # what of it works
        self.routes = Routes(fabric, self.epochs.circuits, self.routing)
        self.table: Table = table_of(self.epochs.circuits, self.routes, self.pairs)
        self.synced: set[str] = set()  # switches that hold what `table` says
        self._changes: dict[int, tuple[Routes, frozenset[Pair], Change]] = {}  # of prepared plans
        self._kept = self.pairs
        self._meant = {  # the pairs that prepared plans bring
            int(name[6:]): frozenset(map(tuple, fact))
            for name, fact in facts.items()
            if name.startswith("pairs/")
        }
        if journal and not facts.keys().isdisjoint(("epoch", "demanded")):
            self.note(f"recovered from {journal.path}: {self._state()}")
        # to tear down and to set up the circuits of the last rewire
        self._took_s: tuple[float, float] | None = None

    # --- questions: no lock, no waiting -----------------------------------------------------------

    @property
    def waiting_for(self) -> list[str]:
        """The switches that are not connected, or do not hold their rules yet."""
        present = self.switches.present()
        return [
            n.name
            for n in self.fabric.switches
            if n.dpid not in present or n.name not in self.synced
        ]

    @property
    def ready(self) -> bool:
        """Whether every switch is connected and holds its rules."""
        return not self.waiting_for

    def port_states(self, ocs: str) -> dict[Port, tuple[str, Port | None]]:
        """State word and partner of every cabled port of an OCS.

        CONNECTED, DISCONNECTED, and while a rewire is under way PENDING_CONNECTION (dark, a circuit
        is on its way) or PENDING_DISCONNECTION: the words of the OCP optical-circuit-switch model;
        UNKNOWN where the switch is not connected.
        """
        self._ocs(ocs)
        if self.fabric.node[ocs].dpid not in self.switches.present():
            return dict.fromkeys(self.fabric.ports[ocs], ("UNKNOWN", None))
        return port_words(self.epochs, ocs, self.fabric.ports[ocs])

    def out_port(self, switch: str, src: str, dst: str) -> int | None:
        """The port by which a packet switch sends a pair's packets; None: it has no rule for it."""
        keys = ((switch, ("to", dst)), (switch, ("pair", src, dst)))
        return next((self.table[k].out for k in keys if k in self.table), None)

    # --- orders -----------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Say what was decided: in the log, to who asks, and in the journal."""
        _log.warning("%s", text)
        self.said.append(text)
        if self.journal:
            with contextlib.suppress(RunError):  # it was said elsewhere
                self.journal.write({}, text)

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

    def set_pairs(self, pairs: Iterable[Pair], routing: Routing = ECMP) -> dict:
        """Keep routes for exactly these host pairs and their way back, in this epoch and all to
        come, as `routing` says.
        """
        with self._lock:
            self.demanded, wanted = frozenset(pairs), _both_ways(pairs)
            if routing is not self.routing:
                self.routing, self.pairs = routing, frozenset() if wanted else self.pairs
                self.routes = Routes(self.sound, self.epochs.circuits, routing)
            self._route(wanted)
            self._write_pairs(self.pairs, anew=True)
            return {"pairs": len(self.demanded), "rules": len(self.table)}

    def learn(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Add routes for pairs seen on the wire; returns those that nothing connects: they are
        dropped for a second.
        """
        with self._lock:
            lost = [p for p in pairs if not self.routes.path(*p)]
            self._route(self.pairs | (_both_ways(pairs) - set(lost)))
            self._write_pairs(self.pairs)
            drop: Wires = defaultdict(list)
            for src, dst in lost:
                rack = self.fabric.node[self.fabric.rack_of[src]].dpid
                drop[rack].append(flowmods.unreachable(src, dst, self._addresses.__getitem__))
            self._push(drop, "unreachable pairs")
            return lost

    def plan(self, request: PlanRequest) -> tuple[RewirePlan | None, Decision, float]:
        """A prepared plan, or None where the circuits stay; what was decided; and the least window
        (s) that deserves a rewire.
        """
        with self._lock:
            self._expire()
            pairs = self.demanded if request.pairs is None else frozenset(request.pairs)
            control = Timing.control if request.control is None else request.control
            timing = Timing(control, in_flight=request.in_flight)
            decision = self._decide(request, timing, pairs)
            if request.intent:  # explicit circuits are meant as they stand
                decision = self._around(decision, pairs)
            least = timing.least_window(self.fabric)
            if not decision.rewire:
                self._route(self.pairs | _both_ways(pairs))
                return None, decision, least
            phase = request.intent.demand.phase if request.intent else ""
            delay = self.fabric.reconfig_delay if request.delay is None else request.delay
            dilation, now = request.time_dilation, self.clock.now()
            _refuse_long("the OCS delay", dilation, delay)
            _refuse_long("the control time", dilation, request.control or 0.0)
            words = {"why": decision.why, "phase": phase, "in_flight": request.in_flight}
            proposed = self.epochs.propose(
                decision.rewire, delay, dilation, request.control, now, **words
            )
            epoch, pairs = proposed.last.epoch, self.pairs | _both_ways(pairs)
            self._prepare(proposed.last, pairs)
            new = sorted(pairs - self.pairs)
            self._write(proposed.ready(epoch), {f"pairs/{epoch}": new} if new else {})
            self._meant[epoch] = frozenset(new)
            return self.epochs.plan(epoch), decision, least

    def abort(self, epoch: int) -> RewirePlan:
        """Give up a plan that was not committed."""
        with self._lock:
            self._write(self.epochs.abort(epoch))
            self._changes.pop(epoch, None)
            return self.epochs.plan(epoch)

    def commit(self, epoch: int) -> RewirePlan:
        """Carry out a prepared plan; returns it ACTIVE, or raises RolledBackError with the last
        good circuits back.
        """
        requested = self.clock.now()
        with self._lock, _undisturbed():
            self._expire()
            if not self._settled():
                raise StateError(f"plan {epoch} must wait: {self._interrupted()}")
            began = self.epochs.commit(epoch, requested)
            pairs, change = self._changed(began.plan(epoch))
            self._require(change.touched)
            self._write(began)
            try:
                lost = self._carry_out(epoch, change)
                self._verify(change)
                done = self.epochs.verified(epoch, lost)
                self._write_pairs(pairs)
                self._write(done, dict.fromkeys(self._stale(done)))
            except Exception as error:  # whatever it was, no circuit stays dark for it
                if not isinstance(error, RunError):
                    _log.exception("plan %d", epoch)
                raise self._roll_back(epoch, change, _named(error)) from error
            self.routes, self.pairs, _ = self._changes[epoch]
            self.table, self._changes = change.new, {}
            return self.epochs.plan(epoch)

    def _changed(self, plan: RewirePlan) -> tuple[frozenset[Pair], Change]:
        """What a plan changes from the present table, anew where that is another than then."""
        known = self._changes.get(plan.epoch)
        if known and known[2].old is self.table:
            return known[1:]
        # made before a restart, or routes were learned since
        pairs = known[1] if known else self._meant.get(plan.epoch, frozenset())
        return self.pairs | pairs, self._prepare(plan, self.pairs | pairs)

    # --- what is remembered -----------------------------------------------------------------------

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

    def _write_pairs(self, pairs: frozenset[Pair], anew: bool = False) -> None:
        if self.journal and (anew or pairs != self._kept):
            body = pairs_json(sorted(self.demanded), self.routing, self.fabric)
            learned = sorted(pairs - _both_ways(self.demanded))
            self.journal.write({"demanded": body, "learned": learned})
        self._kept = pairs

    def _stale(self, epochs: Epochs) -> list[str]:
        """The facts on plans that can no longer be committed."""
        return [f"pairs/{n}" for n in self._meant if epochs.plans[n].state != "PREPARED"]

    def _expire(self) -> None:
        epochs = self.epochs.expired(self.clock.now(), PLAN_LIFE_S)
        for n in epochs.plans if epochs is not self.epochs else ():
            if epochs.plans[n] is not self.epochs.plans[n]:
                self._changes.pop(n, None)
                self.note(f"plan {n} has expired: {epochs.plans[n].error}")
        if epochs is not self.epochs:
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
        found = self.switches.crossbars(sorted(dpids & present), self.epochs.timeout)
        finish, why = judge(plan, {self.name_of[d]: held for d, held in found.items()})
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
        self.pairs, self.table = pairs, self._table(circuits, self.routes, pairs)
        present = self.switches.present()
        self._resync([n.name for n in self.fabric.switches if n.dpid in present], plan)
        if finish:
            self._write_pairs(pairs)
            done = self.epochs.verified(plan.epoch)
            self._write(done, dict.fromkeys(self._stale(done)))
        else:
            self._write(self.epochs.rolled_back(plan.epoch))
        self.note(f"plan {plan.epoch} was cut short and is {why}")

    # --- planning ---------------------------------------------------------------------------------

    def _decide(self, request: PlanRequest, timing: Timing, pairs: frozenset[Pair]) -> Decision:
        circuits = self.epochs.circuits
        if request.intent:
            i: Intent = request.intent
            policy = parse_policy(i.policy, self.fabric)
            some = sorted(pairs)
            return intend(
                self.fabric,
                policy,
                i.demand,
                circuits,
                i.now,
                i.upcoming,
                timing,
                i.sending,
                some,
                request.delay,
                also=i.also,
            )
        wanted = request.circuits
        if request.ocs:  # only this switch changes
            self._ocs(request.ocs)
            stranger = next((c for c in wanted if c.a.node != request.ocs), None)
            if stranger:
                raise RFabricError(
                    f"circuit {stranger} is not on {request.ocs}; PUT it to "
                    f"/ocs/{stranger.a.node}/circuits"
                )
            wanted = Circuits((circuits.items - circuits.of(request.ocs).items) | wanted.items)
        wanted.check(self.fabric)
        rewire = Rewire.between(circuits, wanted)
        if rewire:
            refuse_disconnection(self.fabric, wanted, sorted(pairs))
        why = f"explicit: {rewire.size} circuits change" if rewire else "circuits already fit"
        return Decision(rewire, why, wanted)

    def _around(self, decision: Decision, pairs: frozenset[Pair]) -> Decision:
        """The decision without what it would have OCSes do that are out."""
        moved = {c.a.node for some in (decision.rewire.down, decision.rewire.up) for c in some}
        if not decision.rewire or not moved & self.out:
            return decision
        now = self.epochs.circuits
        kept = {c for c in now if c.a.node in self.out}
        wanted = Circuits(kept | {c for c in decision.circuits if c.a.node not in self.out})
        rewire = Rewire.between(now, wanted)
        if rewire:
            refuse_disconnection(self.sound, wanted, sorted(pairs))
        why = f"{decision.why}; without {', '.join(sorted(moved & self.out))}"
        return replace(decision, rewire=rewire, circuits=wanted, why=why)

    def _prepare(self, plan: RewirePlan, pairs: frozenset[Pair]) -> Change:
        circuits = plan.rewire.apply(self.epochs.circuits)
        routes = Routes(self.sound, circuits, self.routing)
        change = self._change(self.table, self._table(circuits, routes, pairs), plan.epoch)
        self._changes[plan.epoch] = routes, pairs, change
        return change

    def _table(self, circuits: Circuits, routes: Routes, pairs: frozenset[Pair]) -> Table:
        """What all switches shall hold; pairs that only what is broken connects keep that way."""
        if routes.fabric is self.fabric:
            return table_of(circuits, routes, pairs)
        cut = frozenset(routes.lost(sorted(pairs)))
        table = table_of(circuits, routes, pairs - cut)
        whole = Routes(self.fabric, circuits, self.routing)
        return {**table_of(circuits, whole, cut), **table} if cut else table

    def _change(self, old: Table, new: Table, epoch: int) -> Change:
        return change_of(self.fabric, self._addresses, old, new, epoch)

    # --- sending ----------------------------------------------------------------------------------

    def _carry_out(self, epoch: int, change: Change) -> int:
        """Old circuits down, routes while it is dark, new circuits up, each with barriers; returns
        the bytes lost.
        """
        plan, order = self.epochs.plan(epoch), self._in_order(change.ocses)
        counted = {d: [flowmods.count_ports()] for d in order}
        # Senders that go on lose most in the first instant: ports are counted in the same message
        # as circuits go. Where senders were stopped before, counting waits until it delays nobody:
        # reading counters takes a switch longer than its rules do.
        within = counted if plan.in_flight == "drop" else dict.fromkeys(order, ())
        torn_down, set_up = self._took_s or (0.0, None)
        if plan.control is not None:  # the old circuits carry until then
            self._wait_until(plan.requested + plan.dilation * plan.control - torn_down)
        # OCSes that only gain circuits answer as well: programmed means that all know what to do.
        push = self._push(
            {d: [*within[d], *change.down.get(d, ())] for d in order}, "tearing down circuits"
        )
        # What comes up is sent ahead by what that took last time (this way down, the first time),
        # so that a circuit is dark for the OCS delay and not for that and two ways through the
        # switch software.
        torn_down = push.programmed_s - push.started_s
        lead = min(torn_down if set_up is None else set_up, plan.dilation * plan.delay / 2)
        self.epochs = self.epochs.programmed(epoch, self.clock.now(), lead, torn_down)
        if within is not counted:
            self._push(counted, "counting")
        before = {d: self.switches.received(d) for d in order}
        self._push(change.routes, "changing routes")
        # With a dilation d the switch software does not run d times slower with the clock:
        # `programmed` and `usable` count the control time measured d times, and the app waits for
        # the part that did not pass by itself.
        dark_until = self.epochs.plan(epoch).dark_until
        self._wait_until(dark_until - lead)
        self.epochs = self.epochs.light(epoch, self.clock.now())
        push = self._push(
            {d: [*change.up.get(d, ()), *within[d]] for d in order}, "setting up circuits"
        )
        self._took_s = torn_down, push.programmed_s - push.started_s
        self.epochs = self.epochs.usable(epoch, max(self.clock.now(), dark_until))
        if within is not counted:
            self._push(counted, "counting")
        self._wait_until(self.epochs.plan(epoch).usable)
        return self._lost(epoch, before)

    def _wait_until(self, instant: float) -> None:
        """Sleep, but not for ever: nobody else can rewire meanwhile."""
        if not (left := instant - self.clock.now()) <= LONGEST_WAIT_S:
            raise RunError(
                f"a step would take {show_time(left)}, the limit is {show_time(LONGEST_WAIT_S)}: "
                "lower time_dilation"
            )
        self.clock.sleep_until(instant)

    def _in_order(self, ocses: set[int]) -> list[int]:
        """Plane by plane: no path crosses two planes, so its OCSes are told close together."""
        return [
            n.dpid
            for n in sorted(self.fabric.ocses, key=lambda n: (n.plane, n.dpid))
            if n.dpid in ocses
        ]

    def _lost(self, epoch: int, before: Mapping[int, Mapping[int, int]]) -> int:
        """Bytes that arrived at the ports that were dark, while they were.

        Not the counter of the table-miss rule: Open vSwitch adds packets to its rules up to a
        second late, and then to those that are there by then, so a second of good traffic would
        count as lost and what was lost as good.
        """
        rewire, lost = self.epochs.plan(epoch).rewire, 0
        dark = {
            port
            for circuits in (rewire.down, rewire.up)
            for circuit in circuits
            for port in circuit
        }
        for node, number in dark:
            dpid = self.fabric.node[node].dpid
            lost += self.switches.received(dpid).get(number, 0) - before[dpid].get(number, 0)
        return max(lost, 0)

    def _verify(self, change: Change) -> None:
        """Compare the crossbars of the OCSes that changed with what was intended."""
        wanted = crossbars_of(change.new)
        found = self.switches.crossbars(sorted(change.ocses), self.epochs.timeout)
        for dpid in sorted(change.ocses):
            name = self.name_of[dpid]
            want, have = wanted.get(name, {}), found.get(dpid)
            if want == have:
                continue
            self._unfit({name}, "half programmed")
            if have is None:
                raise RunError(f"{name} did not say what it holds within {self.epochs.timeout:g} s")
            ports = sorted(p for p in want.keys() | have if want.get(p) != have.get(p))
            raise RunError(
                f"{name} does not hold what was intended at ports {', '.join(map(str, ports[:8]))}"
            )

    def _roll_back(self, epoch: int, change: Change, why: str) -> RolledBackError:
        """Back to the circuits before; switches that do not answer get all their rules when they
        are back.
        """
        failed = self.epochs.failed(epoch, why)
        self._write_if_possible(failed)
        plan, circuits = failed.plan(epoch), failed.circuits
        _log.error("plan %d: %s; rolling back to epoch %d", epoch, why, failed.active)
        self._looked()
        self.routes = Routes(self.sound, circuits, self.routing)
        self.table = self._table(circuits, self.routes, self.pairs)
        back = self._change(change.new, self.table, failed.active)
        self._push_what_answers(back.down)
        self._push_what_answers(back.routes)
        # mirrors take their time back, too
        dark = min(plan.dilation * plan.delay, LONGEST_WAIT_S)
        self.clock.sleep_until(self.clock.now() + dark)
        self._push_what_answers(back.up)
        self._changes.pop(epoch, None)
        with contextlib.suppress(RunError):  # it is tried again from time to time
            self._restore({self.name_of[d] for d in change.touched})
        self._reroute()
        self._write_if_possible(self.epochs.rolled_back(epoch))
        text = f"plan {epoch} failed: {why}; circuits of epoch {plan.base} are back"
        away = sorted(self.name_of[d] for d in change.touched if self.name_of[d] not in self.synced)
        if away:
            text += f" but at {', '.join(away)}, which will get all rules when it answers again"
        return RolledBackError(text, self.epochs.plan(epoch))

    def _write_if_possible(self, epochs: Epochs) -> None:
        """As `_write`; where the disk takes nothing, what is done must be done all the same."""
        try:
            self._write(epochs)
        except RunError as error:
            _log.error("%s", error)
            self.epochs = epochs

    def _push_what_answers(self, wires: Wires, answer: Iterable[int] = ()) -> None:
        """Send to the switches that have not failed yet; no use in waiting for the others again."""
        able = {d: w for d, w in wires.items() if d in answer or self.name_of[d] in self.synced}
        try:
            self._forget_unfit(self.switches.push(able, self.epochs.timeout))
        except RunError as error:  # the event loop hangs: nothing is known of any of them
            _log.error("%s", error)
            self._unfit({self.name_of[d] for d in able}, "unknown")

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
        self.table = table
        around = f" around {', '.join(sorted(self.out))}" if self.out else ""
        self.note(f"routes lead{around or ' by every cable that has light'}")
        self._push_what_answers(change.routes)

    def _route(self, pairs: frozenset[Pair]) -> None:
        """Make `pairs` the pairs that have routes, under the circuits that count now."""
        if pairs == self.pairs:
            return
        change = self._change(
            self.table, self._table(self.epochs.circuits, self.routes, pairs), self.epochs.active
        )
        self.pairs, self.table = pairs, change.new
        present = self.switches.present()
        self._push({d: w for d, w in change.routes.items() if d in present}, "adding routes")

    def _resync(self, names: Sequence[str], dark: RewirePlan | None = None) -> None:
        """Give switches what they lack of `table` and take what they have beside it; between the
        two OCSes of a plan that was cut short stay `dark` for as long as it says.
        """
        dpids, ocses = [self.fabric.node[n].dpid for n in names], self._ocs_ids
        held = self.switches.flows(dpids, 10 * self.epochs.timeout) if dpids else {}
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

    def _missing(self, names: Sequence[str], held: Mapping[int, Flows]) -> tuple[Wires, Wires]:
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
        self._proofs += 1
        proof = PROOF | self._proofs
        on_trial = {d for d in wires if self.name_of[d] in self.out}
        wires = {
            d: [*w, *(flowmods.base("ocs", proof) if d in on_trial else ())]
            for d, w in wires.items()
        }
        if not wires:
            return
        push = self.switches.push(wires, 10 * self.epochs.timeout)
        refused = {dpid for dpid, _, _ in push.refused}
        took = set(push.done_s) - refused
        doubtful = {d for d in took if wires[d] and d in self._ocs_ids}
        held = self.switches.flows(sorted(doubtful), self.epochs.timeout) if doubtful else {}
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

    def _push(self, wires: Wires, doing: str) -> Push:
        if not wires:
            return Push(self.clock.now(), {})
        push = self.switches.push(wires, self.epochs.timeout)
        self._forget_unfit(push)
        if not push.ok:
            raise RunError(f"{doing}: {self._said(push)}")
        return push

    def _forget_unfit(self, push: Push) -> None:
        """Switches that refused or kept silent no longer hold what the table says."""
        self._unfit({self.name_of[d] for d in push.silent}, "no answer")
        self._unfit({self.name_of[r[0]] for r in push.refused}, "refuses")

    def _said(self, push: Push) -> str:
        said = [f"{self.name_of[d]} refused: {reason}" for d, _, reason in push.refused]
        said += [
            (f"{self.name_of[d]} did not answer within {self.epochs.timeout:g} s")
            for d in push.silent
        ]
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

    def _ocs(self, name: str) -> None:
        if name not in self.fabric.node or self.fabric.node[name].kind != "ocs":
            known = ", ".join(n.name for n in self.fabric.ocses[:8]) or "none"
            raise NotFoundError(f"no OCS {name!r} in {self.fabric.name}; there are {known}")


class _undisturbed:
    """No garbage collection while light is being moved: a full one takes milliseconds."""

    def __enter__(self) -> None:
        gc.disable()

    def __exit__(self, *_) -> None:
        gc.enable()


def _both_ways(pairs: Iterable[Pair]) -> frozenset[Pair]:
    """The pairs and their way back, by which acknowledgements travel."""
    return frozenset(p for a, b in pairs if a != b for p in ((a, b), (b, a)))


def _named(error: Exception) -> str:
    """What went wrong; of a fault of ours the kind too."""
    return str(error) if isinstance(error, RunError) else f"{type(error).__name__}: {error}"


def _refuse_long(what: str, dilation: float, seconds: float) -> None:
    if dilation * seconds > LONGEST_WAIT_S:
        raise RFabricError(
            f"time_dilation {dilation:g}: {what} of {show_time(seconds)} would take "
            f"{dilation * seconds:g} s, the limit is {LONGEST_WAIT_S:g} s; lower time_dilation"
        )


def _proven(flows: Flows, proof: int) -> bool:
    """Whether a switch has taken the drop of everything else under this cookie."""
    return any(not e.match and e.cookie == proof for e in flows.values())

"""The controller without OpenFlow: intents become plans, plans become batches of flow-mods in the
right order and time.

    POST /plans           intent -> policy -> window rule -> rewire -> flow-mods        PREPARED
    POST /plans/n/commit  old circuits deleted, barriers from all OCSes that change   programmed
                          routes of the packet switches changed, while it is dark           dark
                          after the OCS delay: new circuits, barriers                     usable
                          crossbars read back and compared                 ACTIVE or rolled back

`Core` is given a `Switches`, which is Ryu in `app.py` and memory in `fake.py`, and a clock. One
lock serialises everything that sends; what is asked meanwhile (`GET`) is answered from immutable
snapshots. Rules that stay are never sent again.
"""

import contextlib
import gc
import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

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
from . import flowmods
from .epochs import TIMEOUT, Epochs, NotFoundError, RewirePlan, port_words
from .schema import Intent, PlanRequest
from .seam import Push
from .switches import Switches, SystemClock
from .tables import Change, Pair, Table, Wires, change_of, crossbars_of, table_of
from .watch import Watched

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

    epochs = Watched()  # who reads GET /events is told

    def __init__(
        self,
        fabric: Fabric,
        switches: Switches,
        clock: SystemClock | None = None,
        timeout: float = TIMEOUT,
    ):
        self.fabric, self.switches, self.clock = fabric, switches, clock or SystemClock()
        self.name_of = {n.dpid: n.name for n in fabric.switches}
        self._addresses = {h: host_ip(i) for i, h in enumerate(fabric.hosts)}
        self._lock = threading.Lock()
        circuits = parse_policy("static", fabric).decide(Demand.none(fabric.racks), Circuits(), 0.0)
        self.epochs = Epochs(circuits, timeout=timeout)
        self.routing = ECMP
        self.routes = Routes(fabric, circuits, self.routing)
        self.demanded: frozenset[Pair] = frozenset()  # the pairs of PUT /pairs
        self.pairs: frozenset[Pair] = frozenset()  # all pairs that have routes, both directions
        self.table: Table = table_of(circuits, self.routes, ())
        self.synced: set[str] = set()  # switches that hold what `table` says
        self._changes: dict[int, tuple[Routes, frozenset[Pair], Change]] = {}  # of prepared plans
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

    def connected(self, dpids: Iterable[int]) -> None:
        """Switches have (re)connected: give them all their rules, whatever they held before."""
        with self._lock:
            self._resync([self.name_of[d] for d in dpids])

    def disconnected(self, dpid: int) -> None:
        """A switch has gone; when it comes back it gets all its rules again."""
        self.synced.discard(self.name_of[dpid])

    def restore(self) -> None:
        """Give their rules to switches that kept silent or refused and stayed connected.

        To be called from time to time.
        """
        with self._lock:
            self._restore(set(self.name_of.values()))

    def set_pairs(self, pairs: Iterable[Pair], routing: Routing = ECMP) -> dict:
        """Keep routes for exactly these host pairs and their way back, in this epoch and all to
        come, as `routing` says.
        """
        with self._lock:
            self.demanded, wanted = frozenset(pairs), _both_ways(pairs)
            if routing is not self.routing:
                self.routing, self.pairs = routing, frozenset() if wanted else self.pairs
                self.routes = Routes(self.fabric, self.epochs.circuits, routing)
            self._route(wanted)
            return {"pairs": len(self.demanded), "rules": len(self.table)}

    def learn(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Add routes for pairs seen on the wire; returns those that nothing connects: they are
        dropped for a second.
        """
        with self._lock:
            lost = [p for p in pairs if not self.routes.path(*p)]
            self._route(self.pairs | (_both_ways(pairs) - set(lost)))
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
            pairs = self.demanded if request.pairs is None else frozenset(request.pairs)
            control = Timing.control if request.control is None else request.control
            timing = Timing(control, in_flight=request.in_flight)
            decision = self._decide(request, timing, pairs)
            least = timing.least_window(self.fabric)
            if not decision.rewire:
                self._route(self.pairs | _both_ways(pairs))
                return None, decision, least
            phase = request.intent.demand.phase if request.intent else ""
            delay = self.fabric.reconfig_delay if request.delay is None else request.delay
            dilation = request.time_dilation
            words = {"why": decision.why, "phase": phase, "in_flight": request.in_flight}
            self.epochs = self.epochs.propose(
                decision.rewire, delay, dilation, request.control, **words
            )
            plan = self.epochs.last
            self._prepare(plan, self.pairs | _both_ways(pairs))
            self.epochs = self.epochs.ready(plan.epoch)
            return self.epochs.plan(plan.epoch), decision, least

    def abort(self, epoch: int) -> RewirePlan:
        """Give up a plan that was not committed."""
        with self._lock:
            self.epochs = self.epochs.abort(epoch)
            self._changes.pop(epoch, None)
            return self.epochs.plan(epoch)

    def commit(self, epoch: int) -> RewirePlan:
        """Carry out a prepared plan; returns it ACTIVE, or raises RolledBackError with the last
        good circuits back.
        """
        requested = self.clock.now()
        with self._lock, _undisturbed():
            began = self.epochs.commit(epoch, requested)
            _, pairs, change = self._changes[epoch]
            if change.old is not self.table:  # routes were learned since
                change = self._prepare(began.plan(epoch), self.pairs | pairs)
            self._require(change.touched)
            self.epochs = began
            try:
                lost = self._carry_out(epoch, change)
                self._verify(change)
            except RunError as error:
                raise self._roll_back(epoch, change, str(error)) from error
            self.epochs = self.epochs.verified(epoch, lost)
            self.routes, self.pairs, _ = self._changes[epoch]
            self.table, self._changes = change.new, {}
            return self.epochs.plan(epoch)

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

    def _prepare(self, plan: RewirePlan, pairs: frozenset[Pair]) -> Change:
        circuits = plan.rewire.apply(self.epochs.circuits)
        routes = Routes(self.fabric, circuits, self.routing)
        change = self._change(self.table, table_of(circuits, routes, pairs), plan.epoch)
        self._changes[plan.epoch] = routes, pairs, change
        return change

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
            self.clock.sleep_until(plan.requested + plan.dilation * plan.control - torn_down)
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
        self.clock.sleep_until(dark_until - lead)
        self.epochs = self.epochs.light(epoch, self.clock.now())
        push = self._push(
            {d: [*change.up.get(d, ()), *within[d]] for d in order}, "setting up circuits"
        )
        self._took_s = torn_down, push.programmed_s - push.started_s
        self.epochs = self.epochs.usable(epoch, max(self.clock.now(), dark_until))
        if within is not counted:
            self._push(counted, "counting")
        self.clock.sleep_until(self.epochs.plan(epoch).usable)
        return self._lost(epoch, before)

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
            self.synced.discard(name)
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
        self.epochs = self.epochs.failed(epoch, why)
        back, plan = (
            self._change(change.new, change.old, self.epochs.active),
            self.epochs.plan(epoch),
        )
        _log.error("plan %d: %s; rolling back to epoch %d", epoch, why, self.epochs.active)
        self._push_what_answers(back.down)
        self._push_what_answers(back.routes)
        # mirrors take their time back, too
        self.clock.sleep_until(self.clock.now() + plan.dilation * plan.delay)
        self._push_what_answers(back.up)
        self._changes.pop(epoch, None)
        with contextlib.suppress(RunError):  # it is tried again from time to time
            self._restore({self.name_of[d] for d in change.touched})
        self.epochs = self.epochs.rolled_back(epoch)
        text = f"plan {epoch} failed: {why}; circuits of epoch {plan.base} are back"
        away = sorted(self.name_of[d] for d in change.touched if self.name_of[d] not in self.synced)
        if away:
            text += f" but at {', '.join(away)}, which will get all rules when it answers again"
        return RolledBackError(text, self.epochs.plan(epoch))

    def _push_what_answers(self, wires: Wires) -> None:
        """Send to the switches that have not failed yet; no use in waiting for the others again."""
        able = {d: w for d, w in wires.items() if self.name_of[d] in self.synced}
        try:
            self._forget_unfit(self.switches.push(able, self.epochs.timeout))
        except RunError as error:  # the event loop hangs: nothing is known of any of them
            _log.error("%s", error)
            self.synced -= {self.name_of[d] for d in able}

    def _route(self, pairs: frozenset[Pair]) -> None:
        """Make `pairs` the pairs that have routes, under the circuits that count now."""
        if pairs == self.pairs:
            return
        change = self._change(
            self.table, table_of(self.epochs.circuits, self.routes, pairs), self.epochs.active
        )
        self.pairs, self.table = pairs, change.new
        present = self.switches.present()
        self._push({d: w for d, w in change.routes.items() if d in present}, "adding routes")

    def _resync(self, names: Sequence[str]) -> None:
        rules: dict[str, list[bytes]] = {
            n: [flowmods.delete_all(), *flowmods.base(self.fabric.node[n].kind, self.epochs.active)]
            for n in names
        }
        for rule in self.table.values():
            if rule.switch in rules:
                rules[rule.switch].append(
                    flowmods.add(rule, self._addresses.__getitem__, self.epochs.active)
                )
        push = self.switches.push(
            {self.fabric.node[n].dpid: w for n, w in rules.items()}, 10 * self.epochs.timeout
        )
        refused = {dpid for dpid, _, _ in push.refused}
        self.synced |= {self.name_of[d] for d in push.done_s if d not in refused}
        if not push.ok:
            _log.error("rules not taken: %s", push)

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
        self.synced -= {self.name_of[d] for d in (*push.silent, *(r[0] for r in push.refused))}

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

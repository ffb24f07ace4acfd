"""The controller without OpenFlow: intents become plans, plans become batches of flow-mods in the
right order and time.

    POST /plans           intent -> policy -> window rule -> rewire -> flow-mods        PREPARED
    POST /plans/n/commit  old circuits deleted, barriers from all OCSes that change   programmed
                          routes of the packet switches changed, while it is dark           dark
                          after the OCS delay: new circuits, barriers                     usable
                          routes of pairs that it did not darken
                          what changed is read back                       ACTIVE or rolled back

An OCS that times its dark itself (`flowmods.move`) is told old and new circuits in one message.

`Core` is given a `Switches`, which is Ryu in `app.py` and memory in `fake.py`, and a clock. One
lock serialises everything that sends; what is asked meanwhile (`GET`) is answered from immutable
snapshots.

What is remembered is in `recovery`; what the switches hold, and what is done where they fail, in
`faults`.
"""

import contextlib
import gc
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from ..errors import RFabricError, RunError
from ..fabric import Fabric, Pair, Port
from ..optics import (
    Circuits,
    Decision,
    Rewire,
    Timing,
    arrival,
    intend,
    parse_policy,
    refuse_disconnection,
)
from ..routing import LightPath, Routes, circuit_rules
from ..routing.schemes import ECMP, Routing
from ..units import show_time
from . import flowmods
from .epochs import TIMEOUT, Epochs, NotFoundError, RewirePlan, StateError, port_words
from .faults import LONGEST_WAIT_S, UnavailableError, Upkeep
from .journal import Journal
from .recovery import both_ways
from .schema import Intent, PlanRequest
from .switches import PortMap, Switches, SystemClock, crossbar_of
from .tables import Change, Wires

_log = logging.getLogger(__name__)
UNKNOWN = -1  # no port: of a rule that a switch may or may not hold


class RolledBackError(RunError):
    """A rewire failed, the last good circuits are back (HTTP 500); `plan`: what became of it."""

    def __init__(self, text: str, plan: RewirePlan):
        super().__init__(text)
        self.plan = plan


class Core(Upkeep):
    """One fabric under control. Public methods may be called from any thread."""

    def __init__(
        self,
        fabric: Fabric,
        switches: Switches,
        clock: SystemClock | None = None,
        timeout: float = TIMEOUT,
        journal: Journal | None = None,
    ):
        super().__init__(fabric, switches, clock or SystemClock(), timeout, journal)
        self._took_s = 0.0  # to tear down the circuits of the last rewire

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

    def completion(self, request: PlanRequest, decision: Decision) -> float | None:
        """Seconds until what an intent is about has arrived as it was decided; None where it has no
        way, or explicit circuits were asked for.
        """
        if request.intent is None:
            return None
        intent, circuits = request.intent, self.epochs.circuits
        seconds = arrival(
            self.fabric, circuits, decision, intent.demand, intent.sending,
            sum(self._times(request)),
        )  # fmt: skip
        return seconds if seconds < float("inf") else None

    def _times(self, request: PlanRequest) -> tuple[float, float]:
        """Control time and OCS delay (s) that a request is planned with."""
        control = Timing.control if request.control is None else request.control
        delay = self.fabric.reconfig_delay if request.delay is None else request.delay
        return control, delay

    # --- orders -----------------------------------------------------------------------------------

    def set_pairs(self, pairs: Iterable[Pair], routing: Routing = ECMP) -> dict:
        """Keep routes for exactly these host pairs and their way back, in this epoch and all to
        come, as `routing` says.
        """
        with self._lock:
            self.demanded = frozenset(pairs)
            wanted = both_ways(self.demanded)
            if routing is not self.routing:
                self.routing, self.pairs = routing, frozenset() if wanted else self.pairs
                self.routes = Routes(self.sound, self.epochs.circuits, routing)
            self._route(wanted)
            self._write_pairs(self.pairs, anew=True)
            return {"pairs": len(self.demanded), "rules": len(self.table)}

    def learn(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Add routes for pairs seen on the wire; returns those that nothing connects: they are
        dropped for a second.
        """
        with self._lock:
            lost = [p for p in pairs if not self.routes.path(*p)]
            self._route(self.pairs | (both_ways(pairs) - set(lost)))
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
            control, delay = self._times(request)
            timing = Timing(control, in_flight=request.in_flight)
            decision = self._decide(request, timing, pairs)
            if request.intent:  # explicit circuits are meant as they stand
                decision = self._around(decision, pairs)
            least = timing.least_window(self.fabric)
            if not decision.rewire:
                self._route(self.pairs | both_ways(pairs))
                return None, decision, least
            phase = request.intent.demand.phase if request.intent else ""
            dilation, now = request.time_dilation, self.clock.now()
            _refuse_long("the OCS delay", dilation, delay)
            _refuse_long("the control time", dilation, request.control or 0.0)
            words = {"why": decision.why, "phase": phase, "in_flight": request.in_flight}
            proposed = self.epochs.propose(
                decision.rewire, delay, dilation, request.control, now, **words
            )
            return self._proposed(proposed, both_ways(pairs)), decision, least

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
            pairs, change = self._changed(began.plan(epoch))  # anew where that restored a switch
            self._write(began)
            try:
                lost = self._carry_out(epoch, change)
                self._verify(self.epochs.plan(epoch))
                done = self.epochs.verified(epoch, lost)
                self._write_pairs(pairs)
                self._write_verified(done)
            except Exception as error:  # whatever it was, no circuit stays dark for it
                if not isinstance(error, RunError):
                    _log.exception("plan %d", epoch)
                raise self._roll_back(epoch, change, _named(error)) from error
            self.routes, self.pairs, _ = self._changes[epoch]
            self.table, self.left, self._changes = change.new, change.left, {}
            return self.epochs.plan(epoch)

    def rewire(
        self, request: PlanRequest, base: int | None = None
    ) -> tuple[RewirePlan | None, Decision]:
        """`plan` and `commit` as one order, which leaves no plan behind where it fails. `base`: the
        epoch it was asked in; StateError where another has begun since.
        """
        plan, decision, _ = self.plan(request)
        if plan is None:
            return None, decision
        try:
            if base is not None and plan.base != base:
                raise StateError(
                    f"epoch {plan.base} began while epoch {base} was being changed; ask again"
                )
            return self.commit(plan.epoch), decision
        except RFabricError:
            with contextlib.suppress(RFabricError):  # it may have ended by itself
                self.abort(plan.epoch)
            raise

    def _proposed(self, proposed: Epochs, pairs: frozenset[Pair]) -> RewirePlan:
        """The last plan of these books, ready to be committed; or nothing of it is kept."""
        epoch, before, new = proposed.last.epoch, self.epochs, sorted(pairs - self.pairs)
        self.epochs = proposed
        try:
            self._prepare(proposed.last, self.pairs | pairs)
            self._write(proposed.ready(epoch), {f"pairs/{epoch}": new} if new else {})
        except BaseException:
            self.epochs = before
            self._changes.pop(epoch, None)
            raise
        self._meant[epoch] = frozenset(new)
        return self.epochs.plan(epoch)

    def _changed(self, plan: RewirePlan) -> tuple[frozenset[Pair], Change]:
        """What a plan changes from the present table, anew where that is another than then."""
        known = self._changes.get(plan.epoch)
        if known and known[2].old is self.table:
            return known[1:]
        # made before a restart, or routes were learned since
        pairs = known[1] if known else self._meant.get(plan.epoch, frozenset())
        return self.pairs | pairs, self._prepare(plan, self.pairs | pairs)

    # --- planning ---------------------------------------------------------------------------------

    def _decide(self, request: PlanRequest, timing: Timing, pairs: frozenset[Pair]) -> Decision:
        if request.intent:
            return self._intended(request.intent, request.delay, timing, pairs)
        wanted = self._beside_others(request) if request.ocs else request.circuits
        wanted.check(self.fabric)
        rewire = Rewire.between(self.epochs.circuits, wanted)
        if rewire:
            self._refuse_out(rewire)
            refuse_disconnection(self.fabric, wanted, sorted(pairs))
        why = f"explicit: {rewire.size} circuits change" if rewire else "circuits already fit"
        return Decision(rewire, why, wanted)

    def _intended(
        self, intent: Intent, delay: float | None, timing: Timing, pairs: frozenset[Pair]
    ) -> Decision:
        policy = parse_policy(intent.policy, self.fabric)
        return intend(
            self.fabric, policy, intent.demand, self.epochs.circuits, intent.now, intent.upcoming,
            timing, intent.sending, sorted(pairs), delay, also=intent.also,
        )  # fmt: skip

    def _beside_others(self, request: PlanRequest) -> Circuits:
        """The circuits asked for of one OCS, and those of all others as they are."""
        self._ocs(request.ocs)
        stranger = next((c for c in request.circuits if c.a.node != request.ocs), None)
        if stranger:
            raise RFabricError(
                f"circuit {stranger} is not on {request.ocs}; PUT it to "
                f"/ocs/{stranger.a.node}/circuits"
            )
        lit = self.epochs.circuits
        return Circuits((lit.items - lit.of(request.ocs).items) | request.circuits.items)

    def _refuse_out(self, rewire: Rewire) -> None:
        """UnavailableError where a plan would move circuits of an OCS that does nothing."""
        moved = rewire.down.items | rewire.up.items
        self._restore({c.a.node for c in moved} & self.out)  # it may be well again
        self._reroute()
        if out := sorted({c.a.node for c in moved} & self.out):
            stay = Circuits(c for c in self.epochs.circuits if c.a.node in out).to_json()
            raise UnavailableError(
                f"{', '.join(out)} does not do what it is told (GET /health: out): leave its "
                f"circuits as they are ({', '.join(stay[:8]) or 'none'}), or plan again when it is "
                "in order"
            )

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
        lit = _lit(plan.rewire, pairs, self.routes, routes)
        table = self._table(circuits, routes, pairs)
        change = self._change(self.table, table, plan.epoch, lit)
        self._changes[plan.epoch] = routes, pairs, change
        return change

    # --- carrying out -----------------------------------------------------------------------------

    def _carry_out(self, epoch: int, change: Change) -> int:
        """Old circuits down, routes while it is dark, new circuits up, each with barriers, and then
        the routes of pairs that had light all the time; returns the bytes lost.

        A switch that does not take the last gets them when it answers: old ways carry until then.
        """
        plan, order = self.epochs.plan(epoch), self._in_order(change.ocses)
        moves = self._moves(plan, change, order)
        others = [d for d in order if d not in moves]
        counted = {d: [flowmods.count_ports()] for d in others}
        # Senders that go on lose most in the first instant: ports are counted in the same message
        # as circuits go. Where senders were stopped before, counting waits until it delays nobody:
        # reading counters takes a switch longer than its rules do.
        within = counted if plan.in_flight == "drop" else dict.fromkeys(others, ())
        if plan.control is not None:  # the old circuits carry until then
            self._wait_until(plan.requested + plan.dilation * plan.control - self._took_s)
        # OCSes that only gain circuits answer as well: programmed means that all know what to do.
        down = {d: [*within[d], *change.down.get(d, ())] for d in others}
        push = self._push(moves | down, "tearing down circuits")
        self._took_s = push.programmed_s - push.started_s
        self.epochs = self.epochs.programmed(epoch, self.clock.now(), self._took_s)
        if within is not counted:
            self._push(counted, "counting")
        before = {d: self._met_dark(d) for d in order}
        self._push(change.routes, "changing routes")
        # With a dilation d the switch software does not run d times slower with the clock:
        # `programmed` and `usable` count the control time measured d times, and the app waits for
        # the part that did not pass by itself.
        # What comes up is not sent ahead of that instant by what it should take: a switch that is
        # quicker than usual would end the dark time before the OCS delay is over.
        self._wait_until(self.epochs.plan(epoch).dark_until)
        self.epochs = self.epochs.light(epoch, self.clock.now())
        up = {d: [*change.up.get(d, ()), *within[d]] for d in others}
        asked = {d: [flowmods.move((), 0.0)] for d in moves}
        self._push(up | asked, "setting up circuits")
        self.epochs = self.epochs.usable(epoch, self.clock.now())
        if within is not counted:
            self._push(counted, "counting")
        self._push_what_answers(change.late)
        self._push_what_answers(change.swept)
        self._wait_until(self.epochs.plan(epoch).usable)
        return self._lost(epoch, before)

    def _moves(self, plan: RewirePlan, change: Change, dpids: Iterable[int]) -> Wires:
        """All of a rewire at once, for those of these OCSes that time their dark themselves."""
        ports, dark = _in_ports(plan.rewire), plan.dilation * plan.delay
        return {
            d: [
                flowmods.move(sorted(ports[self.name_of[d]]), dark),
                *change.down.get(d, ()),
                *change.up.get(d, ()),
            ]
            for d in dpids
            if self.switches.lost(d) is not None
        }

    def _met_dark(self, dpid: int) -> Mapping[int, int]:
        """Bytes by port that the loss of a rewire is the difference of."""
        lost = self.switches.lost(dpid)
        return self.switches.received(dpid) if lost is None else lost

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
            lost += self._met_dark(dpid).get(number, 0) - before[dpid].get(number, 0)
        return max(lost, 0)

    def _verify(self, plan: RewirePlan) -> None:
        """Compare what changed on the OCSes with what was intended.

        What came up is told by its cookie, what went by its ports: not the whole of a crossbar is
        asked for.
        """
        wanted = _in_ports(plan.rewire)
        asked = {
            self.fabric.node[name].dpid: [
                flowmods.ask_flows(plan.epoch),
                *(flowmods.ask_flows(port=port) for port, out in ports.items() if out is None),
            ]
            for name, ports in wanted.items()
        }
        answers = self.switches.flows(asked, self.epochs.timeout)
        for name, ports in sorted(wanted.items()):
            flows = answers.get(self.fabric.node[name].dpid)
            held = None if flows is None else crossbar_of(flows)
            wrong = [p for p, out in sorted(ports.items()) if held is None or held.get(p) != out]
            if wrong:
                self._unfit({name}, "half programmed")
                raise RunError(self._not_as_intended(name, held, wrong))

    def _not_as_intended(self, name: str, held: PortMap | None, ports: list[int]) -> str:
        if held is None:
            return f"{name} did not say what it holds within {self.epochs.timeout:g} s"
        return f"{name} does not hold what was intended at ports {', '.join(map(str, ports[:8]))}"

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
        self.table, self.left = self._table(circuits, self.routes, self.pairs), frozenset()
        # what was to go may still be there, and what was to come may be there or not
        doubtful = {
            key: replace(rule, out=UNKNOWN)
            for key, rule in (change.old | change.new).items()
            if change.old.get(key) != change.new.get(key)
        }
        back = self._change(change.old | doubtful, self.table, failed.active)
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

    def _ocs(self, name: str) -> None:
        if name not in self.fabric.node or self.fabric.node[name].kind != "ocs":
            known = ", ".join(n.name for n in self.fabric.ocses[:8]) or "none"
            raise NotFoundError(f"no OCS {name!r} in {self.fabric.name}; there are {known}")


def _lit(rewire: Rewire, pairs: frozenset[Pair], *routes: Routes) -> Callable[[Pair], bool]:
    """Whether one of `pairs` has a way by each of these routes that the rewire does not darken, and
    no packet can go in a circle where some switches lead by one of them and some by another.
    """
    ports = {p for some in (rewire.down, rewire.up) for circuit in some for p in circuit}
    dark = []
    for some in routes:
        some.ask(sorted(pairs))
        peer = some.fabric.peer  # without what is broken
        dark.append({peer[port][0] // 2 for port in ports & peer.keys()})

    def lit(pair: Pair) -> bool:
        paths = [some.path(*pair) for some in routes]
        dims = any(
            link // 2 in cables
            for path, cables in zip(paths, dark, strict=True)
            for hop in path
            for link in hop.links
        )
        return all(paths) and not dims and _in_one_order(*paths)

    return cache(lit)


def _in_one_order(*paths: Sequence[LightPath]) -> bool:
    """Whether all of these ways meet the switches that they share in the same order."""
    nodes = [[hop.into.node for hop in path] for path in paths]
    shared = set(nodes[0]).intersection(*nodes)
    orders = [[node for node in some if node in shared] for some in nodes]
    return all(order == orders[0] for order in orders)


class _undisturbed:
    """No garbage collection while light is being moved: a full one takes milliseconds."""

    def __enter__(self) -> None:
        gc.disable()

    def __exit__(self, *_) -> None:
        gc.enable()


def _named(error: Exception) -> str:
    """What went wrong; of a fault of ours the kind too."""
    return str(error) if isinstance(error, RunError) else f"{type(error).__name__}: {error}"


def _refuse_long(what: str, dilation: float, seconds: float) -> None:
    if dilation * seconds > LONGEST_WAIT_S:
        raise RFabricError(
            f"time_dilation {dilation:g}: {what} of {show_time(seconds)} would take "
            f"{dilation * seconds:g} s, the limit is {LONGEST_WAIT_S:g} s; lower time_dilation"
        )


def _in_ports(rewire: Rewire) -> dict[str, dict[int, int | None]]:
    """By OCS, where each in-port of a rewire leads after it; None: nowhere."""
    leads_to: dict[str, dict[int, int | None]] = defaultdict(dict)
    for circuits in (rewire.down, rewire.up):
        for rule in circuit_rules(circuits):
            leads_to[rule.switch][rule.match[1]] = rule.out if circuits is rewire.up else None
    return leads_to

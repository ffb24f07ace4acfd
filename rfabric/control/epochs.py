"""Epochs: what state each plan is in, and which circuits count. Pure: time is an argument,
nothing is sent from here.

    propose    ready       commit        programmed  light       usable       verified
    --> PLANNED --> PREPARED --> PROGRAMMING --> DARK --> LIGHTING --> VERIFYING --> ACTIVE --> PAST
           |            |             |            |          |            |
           `-- abort ---'             `--- failed: an error, a mismatch, time-out
                 |                                      |
                 v            rolled_back               v
              ABORTED <---------------------------- ROLLBACK

Epoch 0 is what was lit at the start; plan n, once verified, is epoch n. At most one plan is between
PROGRAMMING and VERIFYING (or in ROLLBACK). A plan holds only for the epoch it was made in: when
another becomes active, it is aborted. Until a plan is verified the circuits of the epoch before are
the ones that count, and the ones a rollback returns to.

Times are CLOCK_MONOTONIC seconds. With a time dilation d one second of the emulated network takes d
seconds here: the dark time is d times longer. The switch software is not slowed down with it, so
every control time counts d times as well (`programmed`, `usable`); or what it takes is told
(`control`), and the old circuits stay until d times that is nearly over.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..errors import RFabricError
from ..fabric import Port
from ..optics import Circuits, Rewire

# s for the barriers of one step; a switch that has not answered by then is taken for dead
TIMEOUT = 1.0
# s that each message of a step adds to it: some ten times what one takes Open vSwitch and us
MESSAGE_S = 2e-4

MAX_PLANS = 1000  # that are remembered; those that wait or count are never forgotten

NEXT = {
    "PLANNED": ("PREPARED", "ABORTED"),
    "PREPARED": ("PROGRAMMING", "ABORTED"),
    "PROGRAMMING": ("DARK", "ROLLBACK"),
    "DARK": ("LIGHTING", "ROLLBACK"),
    "LIGHTING": ("VERIFYING", "ROLLBACK"),
    "VERIFYING": ("ACTIVE", "ROLLBACK"),
    "ROLLBACK": ("ABORTED",),
    "ACTIVE": ("PAST",),
    "PAST": (),
    "ABORTED": (),
}
UNDER_WAY = ("PROGRAMMING", "DARK", "LIGHTING", "VERIFYING", "ROLLBACK")

TIMES = ("delay", "control", "took", "made", "requested", "programmed", "dark_until", "usable")
WORDS_OF_A_PLAN = ("why", "phase", "in_flight", "state", "lost_bytes", "error")

# Words of the ports whose circuits go down and come up, by the state of the plan under way.
WORDS = {
    "PROGRAMMING": ("PENDING_DISCONNECTION", "PENDING_CONNECTION"),
    "DARK": ("DISCONNECTED", "PENDING_CONNECTION"),
    "LIGHTING": ("DISCONNECTED", "PENDING_CONNECTION"),
    "VERIFYING": ("DISCONNECTED", "CONNECTED"),
    "ROLLBACK": ("PENDING_CONNECTION", ""),
}


class StateError(RFabricError):
    """A request that does not fit the state of a plan or the epoch it was made in (HTTP 409)."""


class NotFoundError(RFabricError):
    """A plan, a switch or a path that does not exist (HTTP 404)."""


@dataclass(frozen=True)
class RewirePlan:
    """One rewire on its way; `base` is the epoch it was made in, `delay` (s) the dark time at
    dilation 1.

    control: s at dilation 1 from requested to programmed, at the least; None: what the switches
    take, which is `took` (s).
    """

    epoch: int
    base: int
    rewire: Rewire
    delay: float
    dilation: float = 1.0
    control: float | None = None
    why: str = ""
    phase: str = ""
    in_flight: str = "hold"
    state: str = "PLANNED"
    made: float = 0.0
    requested: float | None = None
    took: float | None = None
    programmed: float | None = None
    dark_until: float | None = None
    usable: float | None = None
    lost_bytes: int = 0
    error: str = ""

    def to_json(self) -> dict:
        """The plan as REST shows it."""
        return {
            "epoch": self.epoch,
            "state": self.state,
            "made_in_epoch": self.base,
            "why": self.why,
            "phase": self.phase,
            "in_flight": self.in_flight,
            "time_dilation": self.dilation,
            "delay_s": self.delay,
            "control_s": self.control,
            "took_s": self.took,
            **self.rewire.to_json(),
            "circuits_changed": self.rewire.size,
            "made_s": self.made,
            "requested_s": self.requested,
            "programmed_s": self.programmed,
            "dark_until_s": self.dark_until,
            "usable_s": self.usable,
            "lost_bytes": self.lost_bytes,
            "error": self.error,
        }

    @classmethod
    def from_json(cls, data: Mapping) -> "RewirePlan":
        """Read what `to_json` wrote."""
        times = {name: data[f"{name}_s"] for name in TIMES}
        return cls(
            data["epoch"],
            data["made_in_epoch"],
            Rewire.from_json(data),
            dilation=data["time_dilation"],
            **{name: data[name] for name in WORDS_OF_A_PLAN},
            **times,
        )


@dataclass(frozen=True)
class Epochs:
    """All plans and the circuits that count.

    Each verb returns the Epochs after it, or raises StateError.
    """

    circuits: Circuits
    active: int = 0
    plans: Mapping[int, RewirePlan] = field(default_factory=dict)
    timeout: float = TIMEOUT

    def plan(self, epoch: int) -> RewirePlan:
        """Plan number `epoch`; NotFoundError where none was made."""
        if epoch not in self.plans:
            known = f"the last is {max(self.plans)}" if self.plans else "none was made yet"
            raise NotFoundError(f"no plan {epoch}; {known}: POST /plans makes one")
        return self.plans[epoch]

    @property
    def under_way(self) -> RewirePlan | None:
        """The plan whose rewire is in progress."""
        return next((p for p in self.plans.values() if p.state in UNDER_WAY), None)

    @property
    def last(self) -> RewirePlan:
        """The plan proposed last."""
        return self.plans[max(self.plans)]

    def propose(
        self,
        rewire: Rewire,
        delay: float,
        dilation: float = 1.0,
        control: float | None = None,
        made: float = 0.0,
        **words: str,
    ) -> "Epochs":
        """A new plan for the present epoch, `made` now; `words`: why, phase, in_flight."""
        if not rewire:
            raise StateError("a plan that changes no circuit needs no epoch")
        if not rewire.down.items <= self.circuits.items or rewire.up.items & self.circuits.items:
            raise StateError(f"the plan was not made for the circuits of epoch {self.active}")
        rewire.apply(self.circuits)  # a port in two circuits is an error here
        epoch, words = max(self.plans, default=0) + 1, {"made": made, **words}
        plan = RewirePlan(epoch, self.active, rewire, delay, dilation, control, **words)
        return replace(self, plans={**_kept(self.plans), plan.epoch: plan})

    def ready(self, epoch: int) -> "Epochs":
        """Its rules are computed and serialised."""
        return self._to(epoch, "PREPARED")

    def commit(self, epoch: int, now: float) -> "Epochs":
        """The rewire begins."""
        plan, busy = self.plan(epoch), self.under_way
        if busy and busy is not plan:
            raise StateError(
                f"plan {epoch} must wait: plan {busy.epoch} is {busy.state}; "
                "commit again when it is done"
            )
        if plan.state == "PREPARED" and plan.base != self.active:
            raise StateError(
                f"plan {epoch} was made in epoch {plan.base}, now is {self.active}; make a new plan"
            )
        return self._to(epoch, "PROGRAMMING", requested=now)

    def programmed(self, epoch: int, now: float, took: float | None = None) -> "Epochs":
        """All old circuits are down, which took `took` s: dark from here for the OCS delay."""
        plan = self.plan(epoch)
        at = now if plan.requested is None else _dilated(plan, plan.requested, now, plan.control)
        ends = {"programmed": at, "dark_until": at + plan.dilation * plan.delay}
        return self._to(epoch, "DARK", **ends, took=took)

    def light(self, epoch: int, now: float) -> "Epochs":
        """The new circuits are being set up; not before the dark time is over."""
        plan = self.plan(epoch)
        if plan.state == "DARK" and now < plan.dark_until:
            raise StateError(f"plan {epoch} is dark for another {plan.dark_until - now:.6f} s")
        return self._to(epoch, "LIGHTING")

    def usable(self, epoch: int, now: float) -> "Epochs":
        """All new circuits and the routes over them are in place; what the switches held is being
        read back.
        """
        plan = self.plan(epoch)
        # a control time that is told holds what setting up takes
        told = None if plan.control is None else 0.0
        at = now if plan.dark_until is None else _dilated(plan, plan.dark_until, now, told)
        return self._to(epoch, "VERIFYING", usable=at)

    def verified(self, epoch: int, lost_bytes: int = 0) -> "Epochs":
        """The switches hold what was intended: the plan is the epoch now, and plans made
        before it are void.
        """
        done = self._to(epoch, "ACTIVE", lost_bytes=lost_bytes)
        plans = dict(done.plans)
        if self.active in plans:
            plans[self.active] = replace(plans[self.active], state="PAST")
        for n, plan in plans.items():
            if plan.state in ("PLANNED", "PREPARED"):
                plans[n] = replace(plan, state="ABORTED", error=f"plan {epoch} became active first")
        return replace(
            done, active=epoch, circuits=plans[epoch].rewire.apply(self.circuits), plans=plans
        )

    def failed(self, epoch: int, why: str) -> "Epochs":
        """A switch refused, kept silent or holds something else: back to the last good circuits."""
        return self._to(epoch, "ROLLBACK", error=why)

    def rolled_back(self, epoch: int) -> "Epochs":
        """The last good circuits are back."""
        return self._to(epoch, "ABORTED")

    def abort(self, epoch: int) -> "Epochs":
        """Give up a plan that has not begun."""
        plan = self.plan(epoch)
        if plan.state in UNDER_WAY:
            raise StateError(
                f"plan {epoch} is {plan.state}: a rewire that has begun ends by itself, ACTIVE "
                "or rolled back"
            )
        return self._to(epoch, "ABORTED", error="aborted on request")

    def resumed(self, epoch: int, finish: bool, why: str) -> "Epochs":
        """What is done about a plan that was cut short: its last step, or the way back, is taken
        once more; `verified` or `rolled_back` ends it.
        """
        plan = replace(self.plan(epoch), state="VERIFYING" if finish else "ROLLBACK", error=why)
        return replace(self, plans={**self.plans, epoch: plan})

    def expired(self, now: float, life: float) -> "Epochs":
        """Plans that nobody committed within `life` s are given up; so are those made before this
        clock began.
        """
        plans = {
            n: replace(p, state="ABORTED", error=f"not committed within {life:g} s; plan again")
            for n, p in self.plans.items()
            if p.state == "PREPARED" and not 0 <= now - p.made <= life
        }
        return replace(self, plans={**self.plans, **plans}) if plans else self

    def _to(self, epoch: int, state: str, **changes) -> "Epochs":
        plan = self.plan(epoch)
        if state not in NEXT[plan.state]:
            allowed = " or ".join(NEXT[plan.state]) or "nothing else"
            text = f"plan {epoch} is {plan.state} and can become {allowed}, not {state}"
            raise StateError(f"{text}: {plan.error}" if plan.error else text)
        return replace(self, plans={**self.plans, epoch: replace(plan, state=state, **changes)})


def _kept(plans: Mapping[int, RewirePlan]) -> dict[int, RewirePlan]:
    """The plans without the oldest of those that have ended, where there are MAX_PLANS."""
    ended = [n for n, plan in plans.items() if plan.state in ("PAST", "ABORTED")]
    gone = set(sorted(ended)[: max(len(plans) - MAX_PLANS + 1, 0)])
    return {n: plan for n, plan in plans.items() if n not in gone}


def _dilated(plan: RewirePlan, since: float, now: float, seconds: float | None) -> float:
    """When a step of `plan` ends that the switches were done with `now`: `seconds` of it are told,
    None: as many as it took.
    """
    return (
        since + plan.dilation * (now - since)
        if seconds is None
        else max(since + plan.dilation * seconds, now)
    )


def port_words(
    epochs: Epochs, ocs: str, ports: Iterable[Port]
) -> dict[Port, tuple[str, Port | None]]:
    """State word and partner of each of the `ports` of an OCS.

    By the circuits that count and, over them, what the plan under way does to them.
    """
    words: dict[Port, tuple[str, Port | None]] = dict.fromkeys(ports, ("DISCONNECTED", None))
    layers = [("CONNECTED", epochs.circuits)]
    if plan := epochs.under_way:
        down, up = WORDS[plan.state]
        layers += [(down, plan.rewire.down), *([(up, plan.rewire.up)] if up else [])]
    for word, circuits in layers:
        for circuit in circuits.of(ocs):
            for port, other in (circuit, circuit[::-1]):
                words[port] = (word, None if word == "DISCONNECTED" else other)
    return words


def violations(epochs: Epochs) -> list[str]:
    """What is wrong with the books; empty when they are in order. The checker beside Epochs."""
    wrong = []
    busy = [p.epoch for p in epochs.plans.values() if p.state in UNDER_WAY]
    if len(busy) > 1:
        wrong.append(f"plans {busy} are under way at once")
    active = [p.epoch for p in epochs.plans.values() if p.state == "ACTIVE"]
    if active != ([epochs.active] if epochs.active else []):
        wrong.append(f"plans {active} are ACTIVE, the epoch is {epochs.active}")
    for plan in epochs.plans.values():
        times = [
            t
            for t in (plan.requested, plan.programmed, plan.dark_until, plan.usable)
            if t is not None
        ]
        if times != sorted(times):
            wrong.append(f"plan {plan.epoch}: its times {times} run backwards")
        if plan.state in ("PLANNED", "PREPARED") and plan.base != epochs.active:
            wrong.append(
                f"plan {plan.epoch} for epoch {plan.base} is still open in epoch {epochs.active}"
            )
    return wrong

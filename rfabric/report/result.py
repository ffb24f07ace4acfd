"""What came out of a run: the same columns from the simulator and from the emulator.

    start, finish   float64[n]  s on the run's clock, per row of the trace
    sent, received  int64[n]    bytes counted at both ends (the trace's bytes, before any scale)
    link_bytes      float64[2m] bytes per directed link of the fabric

Phase times follow from them: a phase lasts from the instant its first row may start to its last
finish; `comm` is the time in which at least one of its flows is in flight; `exposed` is how much
sooner the phase would end if its own bytes took no time and everything else took what it took. It
is never negative, and never more than `comm`. Where phases come one after the other, it is what a
phase takes beyond its compute, and those of all phases add up to what the run takes beyond its own.

`exposed_seconds` is that of the run: how much sooner it would end if no bytes took any time. It is
never more than the run, nor than the time with a flow in flight. Phases that overlap may each
expose the same seconds, or hide what others wait for, so that theirs add up to more, or to less.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ..errors import RunError
from ..fabric import Fabric
from ..fabric.cabling import cabling_of, host_numbers
from ..optics import Circuits, RewireRecord
from ..trace import PhaseKey, Trace
from ..units import show_time, transfer_seconds

Progress = Callable[[dict], None]  # is told the news of a run, in plain values
ROUNDING = 1e-12  # of the time of day: what differences of two of them are off by
# share by which a run may be sooner than its bound: rounding, a clock
SLACK = {"simulate": 1e-6, "ns3": 0.01, "emulate": 0.01}


@dataclass(frozen=True)
class Scale:
    """How an emulation is smaller and slower than what it stands for; 1 and 1 for a simulation.

    Emulated bytes = bytes x `bandwidth`; emulated rates = rates x `bandwidth` / `dilation`; a
    second takes `dilation` seconds. Of a loop's repetitions only so many are sent as take `sample`
    s on idle network cards, one at least; their seconds stand for those of all.
    """

    bandwidth: float = 1.0
    dilation: float = 1.0
    sample: float = float("inf")

    def to_json(self) -> dict:
        sample = self.sample if self.sample < float("inf") else None
        return {
            "bandwidth_scale": self.bandwidth,
            "time_dilation": self.dilation,
            "sample_s": sample,
        }

    @classmethod
    def from_json(cls, data: dict) -> "Scale":
        """What `to_json` wrote."""
        sample = data.get("sample_s")
        return cls(
            data["bandwidth_scale"],
            data["time_dilation"],
            float("inf") if sample is None else sample,
        )


@dataclass(frozen=True)
class Pace:
    """Whether a run kept pace: CPU share used (0..1), worst lateness (s, wall), and what to do if
    not.

    control: s that the switches took to program a rewire, in the median; 0 without one.
    foreign: the share of the processors that others on the host had while packets moved.
    idle: of the communication phase that is worst in this, the share of its time in which no cable
    was full that its flows cross.
    waited: of the communication phase that is worst in this, the share of its time in which the
    switches waited for a processor.
    resent: packets that TCP sent again.
    """

    ok: bool = True
    cpu: float = 0.0
    worst_lateness: float = 0.0
    reasons: tuple[str, ...] = ()
    advice: str = ""
    control: float = 0.0
    foreign: float = 0.0
    idle: float = 0.0
    waited: float = 0.0
    resent: int = 0

    def to_json(self) -> dict:
        return {
            "ok": self.ok,
            "cpu": self.cpu,
            "worst_lateness_s": self.worst_lateness,
            "reasons": list(self.reasons),
            "advice": self.advice,
            "control_s": self.control,
            "foreign": self.foreign,
            "idle": self.idle,
            "waited": self.waited,
            "resent_packets": self.resent,
        }

    @classmethod
    def from_json(cls, data: dict) -> "Pace":
        """What `to_json` wrote."""
        words = (
            data["ok"],
            data["cpu"],
            data["worst_lateness_s"],
            tuple(data["reasons"]),
            data["advice"],
        )
        shares = (data.get(key, 0.0) for key in ("control_s", "foreign", "idle", "waited"))
        return cls(*words, *shares, data.get("resent_packets", 0))


@dataclass(frozen=True)
class Folding:
    """A run in which each turn of a loop was sent once for all: how many collectives, for how many
    repetitions of them.

    names: their phases and labels, each once.
    off: s by which the exposed communication of a phase may differ from playing all; phases that
    cannot differ are left out; None where too many flows meet to say. seconds: the same of the run.
    """

    collectives: int
    repetitions: int
    names: tuple[str, ...]
    off: dict[PhaseKey, float] | None
    seconds: float | None

    def note(self, name: str, exposed: float, rewired: bool) -> str:
        """What a reader of the run `name` must know, where `exposed` s are exposed in it and
        circuits changed, or not.
        """
        names = ", ".join(self.names)
        loops = f"{self.repetitions:,} repetitions of {self.collectives:,} collectives"
        what = f"{name}: {loops} ({names}) were folded"
        if self.seconds is None:
            return (
                f"{what}; too many other flows meet them to say how far that is from playing all "
                "(--repetitions all)"
            )
        # decisions at other times may be others
        given = "under the same circuits " if rewired else ""
        if not self.seconds:
            same = f"so playing all exposes {given}the same communication"
            return f"{what}; no other flow meets them, {same}"
        # a bound that says nothing: no less than nothing is exposed, and twice as much is no figure
        if self.seconds >= exposed:
            return (
                f"{what}; how far that is from playing all is not bounded: play all with "
                "--repetitions all"
            )
        most = f"{show_time(self.seconds)} ({self.seconds / exposed:.1%})"
        return f"{what}; exposed communication differs {given}from playing all by at most {most}"

    def to_json(self) -> dict:
        phases = (
            None if self.off is None else {str(key): seconds for key, seconds in self.off.items()}
        )
        return {
            "collectives": self.collectives,
            "repetitions": self.repetitions,
            "names": list(self.names),
            "exposed_off_s": self.seconds,
            "phases": phases,
        }

    @classmethod
    def from_json(cls, data: dict) -> "Folding":
        """The Folding that `to_json` wrote."""
        phases = data["phases"]
        off = (
            None
            if phases is None
            else {PhaseKey.of(key): seconds for key, seconds in phases.items()}
        )
        counts = data["collectives"], data["repetitions"]
        return cls(*counts, tuple(data["names"]), off, data["exposed_off_s"])


@dataclass(frozen=True)
class PhaseTime:
    """Seconds of one phase: from begin to end, in communication, exposed; and the bytes it sent."""

    key: PhaseKey
    begin: float
    end: float
    comm: float
    exposed: float
    bytes: int

    @property
    def seconds(self) -> float:
        """From begin to end, s."""
        return self.end - self.begin


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """One run of one trace on one fabric.

    `epochs` lists (time s, circuits) as they came into force, the first at 0.
    """

    engine: str
    fabric: Fabric
    policy: str
    trace: Trace
    traffic: str
    seed: int
    start: np.ndarray
    finish: np.ndarray
    link_bytes: np.ndarray
    sent: np.ndarray
    received: np.ndarray
    rewires: tuple[RewireRecord, ...] = ()
    epochs: tuple[tuple[float, Circuits], ...] = ()
    scale: Scale = Scale()
    pace: Pace = Pace()
    versions: dict = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    routing: str = "ecmp"
    folding: Folding | None = None
    transport: str = "fluid"

    def __repr__(self) -> str:
        where = f"{self.fabric.spec or self.fabric.name}, policy {self.policy}, seed {self.seed}"
        took = f"step {self.step_seconds:.3f} s, {self.exposed_seconds:.3f} s of it exposed"
        took = f"{took}, {len(self.rewires)} rewires"
        return f"<{self.engine} {self.traffic or 'a trace'} on {where}: {took}>"

    def noted(self, notes: Iterable[str], folding: Folding | None = None) -> "Result":
        """The same with more notes, and with how it was folded; what was worked out of it stays."""
        made = replace(self, notes=(*self.notes, *notes), folding=folding or self.folding)
        vars(made).update(
            {name: vars(self)[name] for name in vars(self).keys() - vars(made).keys()}
        )
        return made

    @property
    def step_seconds(self) -> float:
        """From the first instant to the last finish."""
        return float(self.finish.max(initial=0.0))

    @cached_property
    def exposed_seconds(self) -> float:
        """What communication adds: how much sooner the run would end if no bytes took any time."""
        free = np.minimum(self.row_seconds, self.trace.computing)
        return self._exposed(self.step_seconds, float(self.trace.times(free)[1].max(initial=0.0)))

    @staticmethod
    def _exposed(end: float, without: float) -> float:
        exposed = end - without
        return exposed if abs(exposed) > ROUNDING * end else 0.0

    @property
    def dark_seconds(self) -> float:
        """Seconds in which some circuit was dark."""
        return sum(r.dark for r in self.rewires)

    @property
    def lost_bytes(self) -> int:
        """Bytes that all rewires lost."""
        return sum(r.lost_bytes for r in self.rewires)

    @cached_property
    def ready(self) -> np.ndarray:
        """When each row was ready: the last finish of what it waits for, or its `start` where it
        waits for nothing.
        """
        ready = self.trace.start.copy()
        counts = np.diff(self.trace.after_offsets)
        some = counts > 0
        if some.any():
            ready[some] = np.maximum.reduceat(
                self.finish[self.trace.after], self.trace.after_offsets[:-1][some]
            )
        return ready

    @cached_property
    def row_seconds(self) -> np.ndarray:
        """What each row took from when it could begin: float64[n], s; of one that only computes 0
        beside a clock's error.
        """
        trace = self.trace
        return self.finish - np.maximum(trace.start, self.ready + trace.gap)

    @cached_property
    def phases(self) -> tuple[PhaseTime, ...]:
        """One PhaseTime per (step, phase), in the order they begin in the trace."""
        times, without = [], ends_without(self.trace, self.row_seconds)
        for key, rows in self.trace.rows_by_phase.items():
            sending = rows[self.trace.size[rows] > 0]
            begin, end = float(self.ready[rows].min()), float(self.finish[rows].max())
            comm = union_seconds(self.start[sending], self.finish[sending])
            exposed = self._exposed(end, without[key])
            times.append(
                PhaseTime(key, begin, end, comm, exposed, int(self.trace.total[rows].sum()))
            )
        return tuple(times)

    @cached_property
    def communication(self) -> dict[tuple[int, str, str], float]:
        """Seconds with a flow in flight of each communication phase (step, phase, label)."""
        groups = self.trace.communication()
        return {
            key: union_seconds(self.start[rows], self.finish[rows]) for key, rows in groups.items()
        }

    @cached_property
    def busy_seconds(self) -> float:
        """Seconds with any flow in flight."""
        sending = self.trace.size > 0
        return union_seconds(self.start[sending], self.finish[sending])

    @cached_property
    def utilisation(self) -> np.ndarray:
        """Bytes of each directed link over what it could have carried in the busy seconds."""
        rates, busy = cabling_of(self.fabric).rate, self.busy_seconds
        return transfer_seconds(self.link_bytes, rates) / busy if busy else np.zeros(len(rates))

    def check(self) -> "Result":
        """Self, when all rows finished, all bytes sent arrived and the step is no shorter than its
        computing; else a RunError.
        """
        late = np.flatnonzero(~np.isfinite(self.finish))
        if len(late):
            row = late[0]
            src, dst = self.trace.hosts[self.trace.src[row]], self.trace.hosts[self.trace.dst[row]]
            raise RunError(f"{len(late)} flows never finished, first row {row}: {src} -> {dst}")
        lost = np.flatnonzero(self.sent != self.received)
        if len(lost):
            row = lost[0]
            raise RunError(
                f"row {row}: {self.sent[row]} bytes sent, {self.received[row]} received "
                f"({len(lost)} such rows)"
            )
        _, computed = self.trace.compute_only()
        step, alone = self.step_seconds, float(computed.max(initial=0.0))
        if step < alone * (1 - SLACK[self.engine]):
            raise RunError(
                f"the step took {step:.9g} s, but {alone:.9g} s on a network that takes no time"
            )
        return self

    def check_floor(self) -> "Result":
        """Self, when nothing was sooner than computing and network cards allow, whatever the
        network, and neither a phase nor the run exposes less than nothing, or more than its flows
        were in flight; else a RunError.
        """
        trace = self.trace
        soonest = trace.times(card_seconds(self.fabric, trace))[1]
        early = np.flatnonzero(self.finish < soonest * (1 - SLACK[self.engine]))
        if len(early):
            row = early[0]
            raise RunError(
                f"row {row} was done at {self.finish[row]:.9g} s, but computing and NICs need "
                f"{soonest[row]:.9g} s ({len(early)} such rows)"
            )
        floors = phase_floors(self.fabric, trace)
        slack = SLACK[self.engine] * self.step_seconds
        for phase in self.phases:
            least = floors[phase.key]
            if phase.seconds < least - slack:
                raise RunError(
                    f"{phase.key} took {phase.seconds:.9g} s, but computing and NICs need "
                    f"{least:.9g} s for it"
                )
        whole = ("the run", self.exposed_seconds, self.busy_seconds)
        each = ((str(phase.key), phase.exposed, phase.comm) for phase in self.phases)
        for name, exposed, most in (whole, *each):
            if not 0 <= exposed <= most + slack:
                raise RunError(
                    f"{name} exposes {exposed:.9g} s, but its flows were in flight for {most:.9g} s"
                )
        return self


def ends_without(trace: Trace, seconds: np.ndarray) -> dict[PhaseKey, float]:
    """When each phase would end (s) if its own bytes took no time, and each row of another phase
    the `seconds` (float64[n]) that it took.
    """
    free = np.minimum(seconds, trace.computing)
    if trace.in_turn:
        _, finish = trace.times(free, others=trace.times(seconds)[1])
        return {key: float(finish[rows].max()) for key, rows in trace.rows_by_phase.items()}
    ends = {}
    for key, rows in trace.rows_by_phase.items():
        mine = seconds.copy()
        mine[rows] = free[rows]
        ends[key] = float(trace.times(mine)[1][rows].max())
    return ends


def phase_floors(fabric: Fabric, trace: Trace) -> dict[PhaseKey, float]:
    """Seconds that each phase takes at least, on any network between these cards, whatever else is
    sent beside it.

    Rows compute and send one after the other at the rate of their cards; and what one host sends,
    or gets, does not begin before the first row of it can, and takes all these bytes at the rate of
    its card.
    """
    own, rate = card_seconds(fabric, trace), _card_rates(fabric, trace)
    _, finish = trace.times(own, apart=True)
    floors = {}
    for key in trace.phase_keys:
        rows = trace.rows(key)
        least, rows = float(finish[rows].max()), rows[trace.size[rows] > 0]
        for ends in (trace.src[rows], trace.dst[rows]):
            begin = np.full(len(rate), np.inf)
            np.minimum.at(begin, ends, (finish - own)[rows])
            busy = np.isfinite(begin)
            seconds = transfer_seconds(
                np.bincount(ends, trace.size[rows], minlength=len(rate)), rate
            )
            least = max(least, float((begin + seconds)[busy].max(initial=0.0)))
        floors[key] = least
    return floors


def card_seconds(fabric: Fabric, trace: Trace) -> np.ndarray:
    """Seconds that the bytes of each row take at the rate of the slower of its two network cards:
    float64[n].
    """
    rate = _card_rates(fabric, trace)
    return transfer_seconds(trace.size, np.minimum(rate[trace.src], rate[trace.dst]))


def _card_rates(fabric: Fabric, trace: Trace) -> np.ndarray:
    """bit/s of the network card of each host of the trace."""
    host = host_numbers(fabric, trace.hosts)
    return cabling_of(fabric).rate[cabling_of(fabric).host_link[host]]


def union_seconds(start: np.ndarray, finish: np.ndarray) -> float:
    """Seconds covered by the union of the intervals [start, finish]."""
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    start, finish = start[order], finish[order]
    reach = np.maximum.accumulate(finish)
    before = np.concatenate(([start[0]], reach[:-1]))
    return float(np.maximum(reach - np.maximum(start, before), 0).sum())


def fidelity(emulated: Result, simulated: Result, resolution: float = 0.0) -> dict:
    """Relative error of each communication phase, emulated against simulated: how far to trust a
    run.

    Communication phases shorter than `resolution` (s) in the simulation are listed under
    `unresolved`, not scored.
    """
    expected = simulated.communication
    phases, unresolved = {}, []
    for key, seconds in emulated.communication.items():
        name = f"{key[1]}/{key[0]} {key[2]}".strip()
        if expected[key] <= resolution:
            unresolved.append(name)
            continue
        phases[name] = {
            "emulated_s": seconds,
            "simulated_s": expected[key],
            "error": seconds / expected[key] - 1,
        }
    errors = np.abs([p["error"] for p in phases.values()]) if phases else np.zeros(0)
    return {
        "phases": phases,
        "median_error": float(np.median(errors)) if len(errors) else None,
        "worst_error": float(errors.max()) if len(errors) else None,
        "resolution_s": resolution,
        "unresolved": unresolved,
    }

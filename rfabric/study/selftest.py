"""Do packets on this host do what theory says? Patterns whose times are known, on five fabrics.

    one trace of all patterns, one after another  --emulated-->  seconds of each phase and flow
                                                  --against-->   closed form | flow-level model

On the Fat-Tree only network cards hold most of these patterns up, so that a closed form says how
long they take: `SECONDS` of a card, by the sizes chosen here. Elsewhere, and for each flow, the
flow-level simulator says. Circuits stand still, but for the last three rows: there they change
while a flow is under way.

What a host of two processors measured against the bounds stands in the README.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ..errors import PaceError, RFabricError, RunError
from ..fabric import Fabric, parse_fabric
from ..fabric.builders.parts import nearest
from ..optics import IN_FLIGHT
from ..report.compare import Table
from ..report.result import Result
from ..trace import Trace, TraceBuilder, Traffic
from ..units import bytes_in, show_time
from .patterns import RATE, SECONDS, closed, patterns
from .run import SLOWER_TRIES, Case, RunSettings, Tell, simulated, tried

PHASE_BOUND = 0.05  # of the seconds of a pattern
# of the seconds of its flows: half of them, nine in ten, each
FLOW_BOUNDS = {"median": 0.03, "p90": 0.05, "worst": 0.1}
# times what its packets alone may make of a flow's error, for where it begins and where it ends:
# who is so far off counts neither among one in ten nor as the worst
PACKETS_OFF = 2
ALL_BOUNDS = {"median": 0.02, "p90": 0.05}  # of all patterns together, and of all flows
# s of wall clock for the packets of one fabric of LEAST_HOSTS; of more, cables are slower
PATIENCE = 120.0
PARTS = "fat-tree", "leaf-spine", "rfabric", "mixnet", "rotor", *IN_FLIGHT
REWIRED = "rfabric,pods=2,tors=2,gpus=2"  # a few hosts, for whom circuits change, however many else
LEAST_HOSTS, HOSTS_BY = 16, 8
MOST_HOSTS = HOSTS_BY * 64  # a core switch of the Fat-Tree has 64 ports, one for each pod
LATER = 0.4  # s after which a second flow wants other circuits
LONG = bytes_in(RATE, 10 * SECONDS)  # bytes of flows that a rewire meets


@dataclass(frozen=True)
class MeasuredPattern:
    """One pattern on one fabric: seconds expected and emulated; errors of its flows, relative.

    against: `closed form` or `model`. broken: what is wrong with it, nothing where all is well.
    grain: what packets alone may make of each flow's error, relative (`emulate.grain`).
    """

    fabric: str
    pattern: str
    against: str
    expected: float
    emulated: float
    flows: np.ndarray
    broken: tuple[str, ...] = ()
    grain: np.ndarray = field(default_factory=lambda: np.zeros(1))

    @property
    def error(self) -> float:
        """Of the pattern's seconds; +0.1 is 10 % too long."""
        return self.emulated / self.expected - 1

    def to_json(self) -> dict:
        """Plain values, errors relative."""
        return {
            "fabric": self.fabric,
            "pattern": self.pattern,
            "against": self.against,
            "expected_s": _known(self.expected),
            "emulated_s": _known(self.emulated),
            "error": _known(self.error),
            "flow_errors": self.flows.tolist(),
            "flow_grain": self.grain.tolist(),
            "faults": self.faults,
        }

    @property
    def ok(self) -> bool:
        """Whether all bounds hold."""
        return not self.faults

    @property
    def faults(self) -> str:
        """The bounds that are broken, in words."""
        broken = [*self.broken]
        broken += ["phase"] if abs(self.error) > PHASE_BOUND else []
        few = np.abs(self.flows) <= PACKETS_OFF * self.grain
        off = quantiles(np.where(few, 0.0, self.flows))
        off["median"] = quantiles(self.flows)["median"]
        broken += [f"flows, {what}" for what, most in FLOW_BOUNDS.items() if off[what] > most]
        return ", ".join(broken)


def quantiles(errors: np.ndarray) -> dict[str, float]:
    """Median, p90 and worst of errors (relative), whatever their sign."""
    off = np.abs(errors[~np.isnan(errors)])
    if not len(off):
        return dict.fromkeys(FLOW_BOUNDS, np.nan)
    return {
        "median": float(np.median(off)),
        "p90": float(np.quantile(off, 0.9)),
        "worst": float(off.max()),
    }


def fabrics(hosts: int) -> dict[str, Fabric]:
    """The five, with as many hosts, four to a rack or server. RFabricError where so many do not
    make pods.
    """
    if not _makes_pods(hosts):
        near = nearest(min(max(hosts, LEAST_HOSTS), MOST_HOSTS), _makes_pods)
        raise RFabricError(
            f"--hosts {hosts}: pods of {HOSTS_BY} hosts make a self-test, of {LEAST_HOSTS} to "
            f"{MOST_HOSTS} hosts; the nearest that works is {near}"
        )
    pods, racks = hosts // HOSTS_BY, hosts // 4
    specs = (
        f"fat-tree,pods={pods},tors=2,gpus=4",
        f"leaf-spine,tors={racks},gpus=4,oversubscription=2",
        f"rfabric,pods={pods},tors=2,gpus=4",
        f"mixnet,servers={racks},gpus=4,region=2",
        f"rotor,tors={racks},gpus=4",
    )
    return {spec.partition(",")[0]: parse_fabric(spec) for spec in specs}


def _makes_pods(hosts: int) -> bool:
    return LEAST_HOSTS <= hosts <= MOST_HOSTS and not hosts % HOSTS_BY


def parts(only: Sequence[str] = ()) -> Sequence[str]:
    """What is asked for, all of PARTS where nothing is; RFabricError for what is none."""
    if wrong := [name for name in only if name not in PARTS]:
        raise RFabricError(f"--only {wrong[0]}: a part is one of {', '.join(PARTS)}")
    return only or PARTS


def selftest(
    hosts: int = LEAST_HOSTS,
    only: Sequence[str] = (),
    out: str | Path = "runs",
    tell: Tell = lambda *_: None,
    patience: float = 0.0,
) -> list[MeasuredPattern]:
    """Every pattern on every fabric with `hosts` hosts, then rewires under flows (root); or `only`
    some of PARTS. patience: s of wall clock of the packets of each; 0: PATIENCE, by hosts.

    A run that broke is a row with a fault.
    """
    from ..emulate.world import calibrate

    every, wanted = fabrics(hosts), parts(only)
    patience = patience or PATIENCE * hosts / LEAST_HOSTS
    settings = RunSettings("emulate", patience=patience, out=out)
    carries = calibrate(progress=lambda news: tell("calibrate", news), out=out)
    traffic = Traffic(patterns(every["fat-tree"].hosts), "self-test", ())
    measured: list[MeasuredPattern] = []
    for name in (name for name in every if name in wanted):
        case = Case(every[name], "static")
        forms = closed() if name == "fat-tree" else {}
        try:
            measured += compared(*_played(case, traffic, settings, carries, tell), forms)
        except RunError as error:
            measured.append(failed(name, "all patterns", error))
    for way in (way for way in IN_FLIGHT if way in wanted):
        case = Case(parse_fabric(REWIRED), "demand")
        late = Traffic(met(case.fabric), "self-test", ())
        asked = replace(settings, in_flight=way)
        try:
            measured.append(rewired(*_played(case, late, asked, carries, tell), way))
        except RunError as error:
            measured.append(failed(case.fabric.name, f"rewire, {way}", error))
    return measured


def _played(
    case: Case, traffic: Traffic, settings: RunSettings, carries: float, tell: Tell
) -> tuple[Result, Result]:
    """(emulated, simulated), at a scale of its own for the `carries` packet-hops/s of the host.

    Where the host did not keep pace the last that was refused: its rows are marked.
    """
    from ..emulate.scale import choose_scale

    expected = simulated(case, traffic, settings, tell)
    at = settings.at(choose_scale([expected], carries, settings.patience))
    try:
        return tried(expected, traffic, at, 1 + SLOWER_TRIES, tell).result, expected
    except PaceError as error:
        tell(case.fabric_name, {"stage": str(error)})
        return error.refused[-1], expected


def _refused(result: Result) -> list[str]:
    return [] if result.pace is None or result.pace.ok else ["the host did not keep pace"]


def failed(fabric: str, pattern: str, error: RunError) -> MeasuredPattern:
    """The row of a run that broke: nothing was measured, and it is a fault."""
    return MeasuredPattern(fabric, pattern, "model", np.nan, np.nan, np.zeros(0), (str(error),))


def compared(
    result: Result, expected: Result, closed: dict[str, float]
) -> Iterator[MeasuredPattern]:
    """Each pattern of an emulation beside its closed form (s by label), or else the simulation."""
    from ..emulate.grain import grain

    coarse = grain(expected, result.scale)
    for key, rows in result.trace.communication().items():
        label, model = key[2], expected.communication[key]
        seconds = closed.get(label, model)
        broken = _refused(result) + (["the model"] if abs(model / seconds - 1) > 1e-3 else [])
        flows = (result.finish - result.start)[rows] / (expected.finish - expected.start)[rows] - 1
        against = "closed form" if label in closed else "model"
        emulated = result.communication[key]
        seen = emulated, flows, tuple(broken), coarse[rows]
        yield MeasuredPattern(result.fabric.name, label, against, seconds, *seen)


def summary(measured: Sequence[MeasuredPattern]) -> dict[str, dict[str, float]]:
    """`quantiles` of the errors of all phases, and of all flows, of the runs that did not break."""
    return {
        "phases": quantiles(np.array([m.error for m in measured])),
        "flows": quantiles(np.concatenate([m.flows for m in measured])),
    }


def faults(measured: Sequence[MeasuredPattern]) -> list[str]:
    """Every bound that is broken, of one pattern or of all together, in words; none: it passed."""
    each = [f"{m.pattern} on {m.fabric}: {m.faults}" for m in measured if not m.ok]
    every = [
        f"all {name}: {what} {errors[what]:.1%}, the limit is {most:.0%}"
        for name, errors in summary(measured).items()
        for what, most in ALL_BOUNDS.items()
        if errors[what] > most
    ]
    return each + every


def in_words(measured: Sequence[MeasuredPattern]) -> str:
    """The summary, for people."""
    return "; ".join(
        f"{name}: " + ", ".join(f"{what} {error:.1%}" for what, error in errors.items())
        for name, errors in summary(measured).items()
    )


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


def _text(value: float, show: Callable[[float], str]) -> str:
    return "–" if np.isnan(value) else show(value)


def table(measured: Sequence[MeasuredPattern]) -> Table:
    """A row a pattern and fabric."""
    rows = [
        (
            m.fabric,
            m.pattern,
            m.against,
            _text(m.expected, show_time),
            _text(m.emulated, show_time),
            _text(m.error, "{:+.1%}".format),
            *(_text(off, "{:.1%}".format) for off in quantiles(m.flows).values()),
            m.faults or "ok",
        )
        for m in measured
    ]
    columns = "fabric", "pattern", "against", "expected", "emulated", "error"
    flows = "flows: median", "p90", "worst", "bounds"
    return Table.of("Self-test", (*columns, *flows), rows, words=(0, 1, 2, 9))


# --- rewires under flows --------------------------------------------------------------------------


def met(fabric: Fabric) -> Trace:
    """Flows between two racks, and later others for which circuits change under them."""
    made, n = TraceBuilder(fabric.hosts), len(fabric.hosts)
    made.flows([0, 1], [n - 2, n - 1], LONG, phase="first", label="first")
    made.flows([2, 3], [0, 1], LONG, start=LATER, phase="second", label="second")
    return made.build()


def rewired(result: Result, expected: Result, way: str) -> MeasuredPattern:
    """Flows that a rewire met, and what became of their bytes in flight."""
    took, model = ((r.finish - r.start) for r in (result, expected))
    under = [
        r
        for r in result.rewires
        if ((result.start < r.requested) & (result.finish > r.requested)).any()
    ]
    broken = _refused(result) + ([] if under else ["no rewire met a flow"])
    if bool(result.lost_bytes) != (way == "drop"):
        broken.append(f"{result.lost_bytes} bytes lost")
    seconds = expected.step_seconds, result.step_seconds
    name = f"rewire, {way}"
    return MeasuredPattern(
        result.fabric.name, name, "model", *seconds, took / model - 1, tuple(broken)
    )

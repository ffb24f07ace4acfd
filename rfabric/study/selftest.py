"""Do packets on this host do what theory says? Patterns whose times are known, on five fabrics.

    one trace of all patterns, one after another  --emulated-->  seconds of each phase and flow
                                                  --against-->   closed form | flow-level model

On the Fat-Tree only network cards hold these patterns up, so that a closed form says how long they
take: `SECONDS` of a card, by the sizes chosen here. Elsewhere, and for single flows, the flow-level
simulator says. Circuits stand still, but for the last three rows: there they change while a flow is
under way.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import RFabricError
from ..fabric import Fabric, parse_fabric
from ..optics import Timing
from ..report.compare import Row, Table
from ..report.outcome import Outcome
from ..report.result import Result
from ..trace import TraceBuilder, Traffic, all_to_all, ring
from ..units import bytes_in, show_time
from .run import Case, RunSettings, Tell, play, simulated

SECONDS = 0.1  # that the busiest card of a pattern is busy
RATE = 400e9  # bit/s of a card, on all these fabrics
FULL = bytes_in(RATE, SECONDS)
PHASE_BOUND = 0.05  # of the seconds of a pattern
FLOW_BOUND = 0.15  # of the seconds of each flow that is long enough to be resolved
MEDIAN_BOUND = 0.05  # of the seconds of the flow in the middle
PATIENCE = 40.0  # s of wall clock for the packets of one fabric
REWIRE_PATIENCE = 15.0
WAYS = "hold", "drain", "drop"
LEVELS = 3  # times as long as the others: flows that wait for each other are short ones
LEAST_HOSTS, HOSTS_BY = 16, 8
LATER = 0.16  # s after which a second flow wants other circuits
LONG = bytes_in(RATE, 4 * SECONDS)  # bytes of flows that a rewire meets


@dataclass(frozen=True)
class Measured:
    """One pattern on one fabric: seconds expected and emulated; errors of its flows, relative.

    against: `closed form` or `model`. broken: what is wrong with it, nothing where all is well.
    """

    fabric: str
    pattern: str
    against: str
    expected: float
    emulated: float
    flows: np.ndarray
    broken: str = ""

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
            "expected_s": self.expected,
            "emulated_s": self.emulated,
            "error": self.error,
            "flow_errors": self.flows.tolist(),
            "faults": self.faults,
        }

    @property
    def ok(self) -> bool:
        """Whether all bounds hold."""
        return not self.faults

    @property
    def faults(self) -> str:
        """The bounds that are broken, in words."""
        worst, middle = np.abs(self.flows).max(initial=0.0), np.median(np.abs(self.flows))
        found = [self.broken] if self.broken else []
        found += ["phase"] if abs(self.error) > PHASE_BOUND else []
        found += ["a flow"] if worst > FLOW_BOUND else []
        found += ["the median flow"] if middle > MEDIAN_BOUND else []
        return ", ".join(found)


def fabrics(hosts: int) -> list[Fabric]:
    """The five, with as many hosts, four to a rack or server."""
    if hosts < LEAST_HOSTS or hosts % HOSTS_BY:
        raise RFabricError(
            f"--hosts {hosts}: pods of {HOSTS_BY} hosts make a self-test, {LEAST_HOSTS} at least"
        )
    pods, racks = hosts // HOSTS_BY, hosts // 4
    return [
        parse_fabric(f"fat-tree,pods={pods},tors=2,gpus=4"),
        parse_fabric(f"leaf-spine,tors={racks},gpus=4,oversubscription=2"),
        parse_fabric(f"rfabric,pods={pods},tors=2,gpus=4"),
        parse_fabric(f"mixnet,servers={racks},gpus=4,region=2"),
        parse_fabric(f"rotor,tors={racks},gpus=4"),
    ]


def selftest(
    hosts: int = LEAST_HOSTS, out: str | Path = "runs", tell: Tell = lambda *_: None
) -> list[Measured]:
    """Every pattern on every fabric with `hosts` hosts, then rewires under flows (root).

    RunError and PaceError where a run broke.
    """
    found = fabrics(hosts)
    traffic = Traffic(patterns(found[0].hosts), "self-test", ())
    settings = RunSettings("emulate", patience=PATIENCE, out=out)
    cases = [Case(fabric, "static") for fabric in found]
    measured = []
    for case, run in zip(cases, play(cases, traffic, settings, tell), strict=True):
        expected = simulated(case, traffic, settings)
        closed = CLOSED if case.fabric.name == "fat-tree" else {}
        measured += list(compared(run.result, expected, closed))
    return measured + [_rewired(found[2], way, out, tell) for way in WAYS]


def compared(result: Result, expected: Result, closed: dict[str, float]) -> Iterator[Measured]:
    """Each pattern of an emulation beside its closed form (s by label), or else the simulation."""
    for key, rows in result.trace.communication().items():
        label, model = key[2], expected.communication[key]
        seconds = closed.get(label, model)
        broken = "the model" if abs(model / seconds - 1) > 1e-3 else ""
        flows = (result.finish - result.start)[rows] / (expected.finish - expected.start)[rows] - 1
        against = "closed form" if label in closed else "model"
        emulated = result.communication[key]
        yield Measured(result.fabric.name, label, against, seconds, emulated, flows, broken)


def table(measured: Sequence[Measured]) -> Table:
    """A row a pattern and fabric."""
    rows = [
        Row(
            m.fabric,
            (
                m.pattern,
                m.against,
                show_time(m.expected),
                show_time(m.emulated),
                f"{m.error:+.1%}",
                f"{np.median(np.abs(m.flows)):.1%}",
                f"{np.abs(m.flows).max(initial=0.0):.1%}",
                m.faults or "ok",
            ),
        )
        for m in measured
    ]
    columns = "fabric", "pattern", "against", "expected", "emulated", "error"
    flows = "median flow", "worst flow", "bounds"
    return Table("Self-test", (*columns, *flows), tuple(rows), words=(0, 1, 2, 8))


# --- the patterns ---------------------------------------------------------------------------------


def patterns(hosts: Sequence[str]):
    """The trace of all patterns, each after the one before."""
    made, last = TraceBuilder(hosts), ()
    for label, lay in PATTERNS.items():
        first = [made.compute(0, SECONDS / 10, after=last, phase="test", label="pause")]
        last = tuple(lay(made, len(hosts), first, label))
    return made.build()


def _one(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    return made.flows([0], [n - 1], FULL, after=after, phase="test", label=label)


def _incast(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    return made.flows(range(4), [n - 1] * 4, FULL / 4, after=after, phase="test", label=label)


def _permutation(seed: int) -> Callable[..., list[int]]:
    def lay(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
        order = np.random.default_rng(seed).permutation(n)
        ends = order.tolist(), np.roll(order, 1).tolist()  # one circle: nobody sends to itself
        return made.flows(*ends, FULL, after=after, phase="test", label=label)

    return lay


def _ring(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    flows = ring("all-reduce", range(n), FULL * n / (2 * (n - 1)), 1)
    return made.flows(*flows, after=after, phase="test", label=label)


def _tree(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    """Up a binary tree and down again, a level at a time: a host's children are 2i+1 and 2i+2."""
    levels = [range(2**k - 1, min(2 ** (k + 1) - 1, n)) for k in range(n.bit_length())]
    levels = [level for level in levels[1:] if level]
    share, last = LEVELS * FULL / (4 * len(levels)), list(after)
    for level, up in [(one, True) for one in levels[::-1]] + [(one, False) for one in levels]:
        ends = list(level), [(i - 1) // 2 for i in level]
        last = made.flows(
            *(ends if up else ends[::-1]), share, after=last, phase="test", label=label
        )
    return last


def _exchange(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    flows = all_to_all(range(n), FULL * n / (n - 1), 1)
    return made.flows(*flows, after=after, phase="test", label=label)


def _broadcast(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    """A quarter of the hosts send all they have to three others each."""
    src = [i for i in range(n // 4) for _ in range(3)]
    dst = range(n // 4, n // 4 + len(src))
    return made.flows(src, dst, FULL / 3, after=after, phase="test", label=label)


def _staggered(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    rows: list[int] = []
    for i in range(3):
        rows += made.flows(
            [4 * i % (n - 1)], [n - 1], FULL / 3,
            after=after, gap=i * SECONDS / 4, phase="test", label=label,
        )  # fmt: skip
    return rows


def _parking_lot(made: TraceBuilder, n: int, after: Sequence[int], label: str) -> list[int]:
    """Three into one card, a third each; one beside the first of them has what that leaves."""
    ends = [0, 1, 2, 0], [n - 1, n - 1, n - 1, n - 2]
    sizes = [FULL / 3] * 3 + [FULL * 2 / 3]
    return made.flows(*ends, sizes, after=after, phase="test", label=label)


PATTERNS: dict[str, Callable[..., list[int]]] = {
    "one flow": _one,
    "incast 4:1": _incast,
    "permutation 1": _permutation(1),
    "permutation 2": _permutation(2),
    "ring all-reduce": _ring,
    "tree all-reduce": _tree,
    "all-to-all": _exchange,
    "weight broadcast": _broadcast,
    "staggered starts": _staggered,
    "parking lot": _parking_lot,
}
# s, where nothing but cards holds a pattern up
CLOSED = {
    name: SECONDS
    for name in (
        "one flow", "incast 4:1", "ring all-reduce", "weight broadcast", "staggered starts",
        "parking lot",
    )
}  # fmt: skip


def _rewired(fabric: Fabric, way: str, out: str | Path, tell: Tell) -> Measured:
    """Flows between two racks, and later others for which circuits change under them."""
    made, n = TraceBuilder(fabric.hosts), len(fabric.hosts)
    made.flows([0, 1], [n - 2, n - 1], LONG, phase="first", label="first")
    made.flows([4, 5], [0, 1], LONG, start=LATER, phase="second", label="second")
    traffic = Traffic(made.build(), "self-test", ())
    settings = RunSettings(
        "emulate", timing=Timing(in_flight=way), patience=REWIRE_PATIENCE, out=out
    )
    case = Case(fabric, "demand")
    run, expected = play([case], traffic, settings, tell)[0], simulated(case, traffic, settings)
    return _met(run, expected, way)


def _met(run: Outcome, expected: Result, way: str) -> Measured:
    result = run.result
    took, model = ((r.finish - r.start) for r in (result, expected))
    met = [
        r
        for r in result.rewires
        if ((result.start < r.requested) & (result.finish > r.requested)).any()
    ]
    broken = "" if met else "no rewire met a flow"
    if bool(result.lost_bytes) != (way == "drop"):
        broken = f"{result.lost_bytes} bytes lost"
    seconds = expected.step_seconds, result.step_seconds
    name = f"rewire, {way}"
    return Measured(result.fabric.name, name, "model", *seconds, took / model - 1, broken)

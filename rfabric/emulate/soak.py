"""A soak: rewires again and again while packets flow, and what must not grow is counted.

    memory, descriptors   of the controller, Open vSwitch and the process that sends
    rules                 of all switches          namespaces      of all processes of this world

Counts are taken under the same circuits, so that nothing but a leak changes them. What grows is
judged by the slope over the later part of the run (see `Grown`).
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..errors import RunError
from ..optics import Circuits, Rewire
from .drills import WELL_S, turned
from .live import CONTROLLER, READY_S, Live
from .sandbox import run
from .stream import Stream, TcpFlows

PAUSE_S = 0.1  # between two rewires: packets flow
SAMPLE_S = 1.0  # between two counts, at the least
EARLY = 0.4  # of the samples that are not judged: what is made at first use is made by then
LEAST_SAMPLES = 5  # that are judged
SURE = 0.95  # how sure a slope must be to count as one
SENDER = "sender"
TRIES = 3  # of one rewire
# bytes a rewire that memory may grow by. The controller remembers its last 1,000 plans (see
# `epochs.MAX_PLANS`), 300 to 500 bytes for each circuit that one changes; measured, it grows no
# more after them. Open vSwitch grew by 1,600 in 480 rewires.
PER_CIRCUIT, PER_REWIRE = 700, 4096


@dataclass(frozen=True)
class Grown:
    """One count: its first and last sample, its growth in 100 rewires and the most that may be."""

    what: str
    first: float
    last: float
    slope: float
    allowed: float

    @property
    def ok(self) -> bool:
        """Whether it stays as it is."""
        return self.slope <= self.allowed


@dataclass(frozen=True)
class Soaked:
    """What a soak counted: by name a number each sample, and how many rewires were before it.

    changed: circuits that each of them tore down and set up. rolled_back: rewires of which some
    switch did not answer in time, as happens on a busy host; each was made once more.
    """

    rewires: Sequence[int]
    counted: Mapping[str, Sequence[float]]
    packets_sent: int
    packets_lost: int
    changed: int
    rolled_back: int = 0

    def grown(self) -> list[Grown]:
        """Each count judged; RunError where there are too few samples to tell."""
        begin = int(EARLY * len(self.rewires))
        rewires = self.rewires[begin:]
        if len(rewires) < LEAST_SAMPLES:
            raise RunError(
                f"{len(self.rewires)} samples are too few to tell what grows; soak for longer"
            )
        return [
            Grown(what, values[0], values[-1], _slope(rewires, values[begin:]), self._allowed(what))
            for what, values in self.counted.items()
        ]

    def _allowed(self, what: str) -> float:
        """The growth in 100 rewires that is no leak."""
        if "bytes" not in what:
            return 0.0
        remembered = PER_CIRCUIT * self.changed if CONTROLLER in what else 0
        return 100.0 * max(remembered, PER_REWIRE)

    def to_json(self) -> dict:
        """Plain values; `from_json` is `Soaked(**...)`."""
        return asdict(self)


def _slope(rewires: Sequence[int], values: Sequence[float]) -> float:
    """The growth in 100 rewires that is certain: the least that fits (Theil and Sen), 0 where it
    may as well be none.
    """
    from scipy.stats import theilslopes

    low, high = theilslopes(values, rewires, SURE)[2:]
    return 100 * float(low if low > 0 else min(high, 0.0))


def soaked(
    up: Live, stream: Stream, flows: TcpFlows, seconds: float, tell: Callable[[dict], None]
) -> dict:
    """Rewire for so many s of wall clock; returns a Soaked as plain values. RunError where a TCP
    flow loses a byte.
    """
    back = up.rest.circuits()
    there = turned(back)
    so_far = Soaked([], {name: [] for name in counts(up)}, 0, 0, Rewire.between(back, there).size)
    end = due = time.monotonic()
    end, done = end + seconds, 0
    while time.monotonic() < end:
        for circuits in there, back:  # counts are taken under the same circuits
            again = _rewired(up, circuits)
            so_far = replace(so_far, rolled_back=so_far.rolled_back + again)
            time.sleep(PAUSE_S)
        done += 2
        if time.monotonic() >= due:
            due = time.monotonic() + SAMPLE_S
            so_far = _sampled(so_far, done, up, stream)
            tell({"stage": "soak", "clock_s": seconds - (end - time.monotonic())})
    if short := flows.short(WELL_S):
        raise RunError("; ".join(short))
    return so_far.to_json()


def _rewired(up: Live, circuits: Circuits) -> int:
    """Rewire; how often it was rolled back before. RunError after TRIES."""
    for again in range(TRIES):
        try:
            done = up.rewire(circuits)
        except RunError:
            if again == TRIES - 1:
                raise
            up.rest.wait_ready(READY_S)  # what did not answer is asked for what it holds
        else:
            _require_done(done)
            break
    return again


def _sampled(so_far: Soaked, done: int, up: Live, stream: Stream) -> Soaked:
    loss, now = stream.loss(), counts(up)
    stream.mark()
    return replace(
        so_far,
        rewires=[*so_far.rewires, done],
        counted={name: [*values, now[name]] for name, values in so_far.counted.items()},
        packets_sent=so_far.packets_sent + loss.sent,
        packets_lost=so_far.packets_lost + loss.lost,
    )


def _require_done(done: object) -> None:
    if done is None:
        raise RunError("a rewire changed nothing: no OCS has two circuits to turn")


def counts(up: Live) -> dict[str, float]:
    """What must not grow, now."""
    processes = _processes()
    pids = {name: child.pid for name, child in up.box.children.items()} | {SENDER: os.getpid()}
    counted = {f"memory of {name}, bytes": memory(pid) for name, pid in pids.items()}
    counted |= {f"descriptors of {name}": _descriptors(pid) for name, pid in pids.items()}
    counted["rules"] = sum(_rules(node.name) for node in up.fabric.switches)
    counted["processes"] = len(processes)
    counted["network namespaces"] = len({_namespace(pid) for pid in processes} - {""})
    return counted


def memory(pid: int) -> float:
    """Bytes that a process holds alone: RssAnon of /proc/PID/status."""
    text = Path(f"/proc/{pid}/status").read_text()
    return 1024 * float(text.partition("RssAnon:")[2].split()[0])


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _rules(bridge: str) -> int:
    said = run(["ovs-ofctl", "-OOpenFlow13", "dump-aggregate", bridge])
    return int(said.partition("flow_count=")[2].split()[0])


def _processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _namespace(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:  # it has just ended
        return ""

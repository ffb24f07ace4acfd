"""Process 1 of a private world: builds the network, runs the controller, replays the trace, writes
what it measured.

Started by `world` with a folder that holds job.json and trace.csv; talks JSON lines on stdout:
progress, then one last word.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..control.addresses import OFP_PORT
from ..errors import RFabricError, told
from ..fabric import Fabric
from ..optics import Circuits, Timing, parse_policy
from ..report.result import Scale
from ..routing import routes_of
from ..routing.schemes import Routing
from ..trace import Trace, read_trace, routing_of
from ..trace.beforehand import first_circuits
from ..trace.packets import MTU
from ..units import transfer_seconds
from . import calibrate, guard
from .capture import captured
from .counters import PortCounters, payload, settle
from .drills import DRILLS, FLOWS, RATE, UP, drilled, streamed
from .foreseen import SimulatedTraffic
from .fullness import Fullness
from .live import READY_S, Controller, Live, live, rest_of, start_controller
from .looks import Looks
from .lost import Waits
from .machines.leader import Leader, led
from .machines.spread import SpreadFabric
from .network import EmulatedNetwork
from .orders import Orders, answer
from .replay import Replay
from .sampling import shares, what_was_sent
from .sandbox import Sandbox, datapath
from .scale import blur
from .shaping import OVERHEAD
from .soak import soaked
from .stream import Stream, TcpFlows
from .watch import RunWatch, before_others
from .wire import Carrier, Wire

PROGRESS_S = 0.2  # s between two progress lines
CALIBRATED_S = 60.0  # s that machines may take to calibrate
STILL = 4  # packets of the slowest cable: a time in which one that is under way is seen
NOTES = [
    "packets are not delayed by cables: link delay is added to when their flow ends",
    "cables carry their nominal rate as payload: headers are added on top",
]


def main(folder: Path) -> None:
    """Do the job; whatever goes wrong becomes the last word."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's to handle
    job = json.loads((folder / "job.json").read_text())
    try:
        say({"done": TASKS[job["task"]](job, folder)})
    except RFabricError as error:
        say(told(error))
        os._exit(1)  # process 1 ends, and its world with it; no thread is waited for


def say(message: dict) -> None:
    """One JSON line to whoever started us."""
    print(json.dumps(message), flush=True)


# tasks


def replay(job: dict, folder: Path) -> dict:
    """Emulate one trace on one fabric; measured.npz gets the columns, the answer the rest."""
    fabric = Fabric.from_json(job["fabric"])
    trace = read_trace(folder / "trace.csv").fit(fabric).whole()
    scale, timing = Scale(**job["scale"]), Timing(**job["timing"])
    factor = scale.bandwidth / scale.dilation
    known = SimulatedTraffic.from_json(job["known"])
    known = replace(known, at_once=dict.fromkeys(trace.pairs(), 1) | known.at_once)
    with led_by(job, folder) as leader, Sandbox(folder) as box:
        say({"stage": "build"})
        start_controller(box, fabric, folder, job["policy"], job["routing"])
        up: Here | SpreadFabric
        if leader:
            up = SpreadFabric(leader, box, fabric, factor)
            up.start(job["addresses"], known.at_once)
        else:
            up = Here(box, fabric, factor, known, lossless=timing.in_flight != "drop")
        dark = scale.dilation * fabric.reconfig_delay
        rest = rest_of(trace.pairs(), 2 * dark)  # there and, rolled back, back again
        health = rest.wait_ready(READY_S, box.check)
        routing = routing_of(job["routing"], fabric, trace)
        rest.put_pairs(trace.pairs(), routing, fabric)
        with captured(job["pcap"], box, up.network, folder) as captures:
            wire = up.wire()
            lit = rest.circuits() if fabric.ocses else Circuits()
            # where more flows of a pair overlap than in the simulation it opens more
            several = {pair: max(n, known.at_once[pair]) for pair, n in lanes(trace).items()}
            wire.open(joined(several, fabric, lit))
            wire.warm()
            slowest = min(link.rate for link in fabric.links) * factor
            still = STILL * transfer_seconds(MTU, slowest)
            settle(up.ports().read, lambda: wire.unacked(()), still)
            asked = job["live"], known.whole
            run = EmulatedRun(fabric, trace, scale, timing, up, wire, routing, *asked)
            control = Controller(rest, job["policy"], scale, timing) if fabric.ocses else None
            done = run.replay(control, box, folder)
        notes = [*done["notes"], *captures]
        return done | {"notes": notes, "versions": versions(health)}


def led_by(job: dict, folder: Path) -> contextlib.AbstractContextManager[Leader | None]:
    """The agents of the job's machines, or None where it has none but this."""
    if "pipes" not in job:
        return contextlib.nullcontext()
    return led(job["names"], job["pipes"], folder)


class Here:
    """A fabric in this world alone, every rate times `factor`, up with the controller it waits
    for.
    """

    def __init__(
        self, box: Sandbox, fabric: Fabric, factor: float, known: SimulatedTraffic, lossless: bool
    ):
        self.box, self.fabric = box, fabric
        self.network = EmulatedNetwork(
            box, fabric, factor, datapath(), OFP_PORT, known.at_once,
            lossless=lossless, ways=known.ways,
        )  # fmt: skip
        self.network.start(until_listening=lambda: box.wait_port(OFP_PORT, "controller", READY_S))
        self.unlit = self.network.unlit

    def wire(self) -> Wire:
        """What sends and receives."""
        return Wire(self.network)

    def ports(self) -> PortCounters:
        """What the switches counted."""
        return PortCounters(self.fabric)

    def guard(self, wire: Wire, may_drop: bool) -> guard.Guard:
        """What watches the host, from now on."""
        return guard.Guard(self.box, self.network, may_drop)


def between(job: dict, folder: Path) -> dict:
    """Measure what the network between machines carries."""
    with led(job["names"], job["pipes"], folder) as leader, Sandbox(folder) as box:
        say({"stage": "the network between the machines"})
        spread = SpreadFabric(leader, box, Fabric.from_json(job["fabric"]), 1.0)
        spread.plug(job["addresses"])
        rates = spread.measured().rates
        return {"between": [[a, b, rate] for (a, b), rate in rates.items()]}


def calibration(job: dict, folder: Path) -> dict:
    """Measure what the datapath moves, here or on each of the job's machines, all at once."""
    if "pipes" in job:
        with led(job["names"], job["pipes"], folder) as leader:
            say({"stage": "calibrate"})
            return {"packet_hops": leader.ask("calibration", CALIBRATED_S)}
    with Sandbox(folder) as box:
        say({"stage": "calibrate"})
        return {"packet_hops": calibrate.packet_hops(box)}


def drill(job: dict, folder: Path) -> dict:
    """Strike a fabric that is up with the faults asked for, one after another."""
    rows = []
    with drilled_on(job, folder) as (up, stream, flows):
        for name in job["faults"]:
            say({"stage": DRILLS[name].what})
            rows.append(drilled(name, up, stream, flows).to_json())
    return {"drills": rows}


def soak(job: dict, folder: Path) -> dict:
    """Rewire a fabric that is up again and again; what is counted by the way."""
    with drilled_on(job, folder) as (up, stream, flows):
        return soaked(up, stream, flows, job["seconds"], say)


def shell(job: dict, folder: Path) -> dict:
    """A fabric that is up and does what stdin says, line by line; it ends with stdin."""
    say({"stage": "build"})
    fabric = Fabric.from_json(job["fabric"])
    named = job["traffic"]
    trace = read_trace(folder / "trace.csv").fit(fabric).whole() if named else None
    # what `phase` plays is measured
    delays = not named and calibrate.has_qdisc("netem")
    with live(folder, fabric, job["rate"], plugins=[job["policy"]], delays=delays) as up:
        orders = Orders(up, lambda text: say({"text": text}), trace, job["policy"])
        answer(orders, say)
    return {}


def wait(job: dict, folder: Path) -> dict:
    """A fabric that is up, with packets flowing, until somebody ends it."""
    with drilled_on(job, folder):
        say({"stage": UP})
        signal.pause()
    return {}


@contextlib.contextmanager
def drilled_on(job: dict, folder: Path) -> Iterator[tuple[Live, Stream, TcpFlows]]:
    """The fabric of a job, whose controller has a journal, and packets in it."""
    say({"stage": "build"})
    fabric = Fabric.from_json(job["fabric"])
    with live(folder, fabric, RATE, keeps=True) as up:
        pairs = streamed(up)
        with Stream(up.network, pairs) as stream, TcpFlows(up.network, pairs[:FLOWS]) as flows:
            yield up, stream, flows


TASKS = {
    "replay": replay,
    "calibrate": calibration,
    "between": between,
    "drill": drill,
    "soak": soak,
    "shell": shell,
    "wait": wait,
}


def lanes(trace: Trace) -> dict[tuple[str, str], int]:
    """How many flows of each host pair could start at one instant on a network without delay: to
    open one then takes too long.

    And one to spare where a pair sends again: on a network that takes its time one may meet the
    next.
    """
    ready, _ = trace.compute_only()
    rows = np.flatnonzero(trace.size > 0)
    start = np.maximum(ready + trace.gap, trace.start)[rows].round(6)
    ends = [
        (trace.hosts[a], trace.hosts[b])
        for a, b in zip(trace.src[rows], trace.dst[rows], strict=True)
    ]
    at_once = Counter(zip(ends, start.tolist(), trace.label[rows].tolist(), strict=True))
    most: dict[tuple[str, str], int] = {}
    for (pair, _, _), several in at_once.items():
        most[pair] = max(most.get(pair, 0), several)
    times = Counter(ends)
    return {pair: count + (times[pair] > count) for pair, count in sorted(most.items())}


def joined(
    lanes: dict[tuple[str, str], int], fabric: Fabric, lit: Circuits
) -> dict[tuple[str, str], int]:
    """Those of pairs that have a way under these circuits; others are opened as they first send."""
    lost = set(routes_of(fabric, lit).lost(lanes))
    return {pair: count for pair, count in lanes.items() if pair not in lost}


@dataclass(frozen=True)
class EmulatedRun:
    """A network that is up, and what is to be replayed on it.

    live: somebody follows it. whole: the loops of which no sample will do.
    """

    fabric: Fabric
    trace: Trace
    scale: Scale
    timing: Timing
    up: Here | SpreadFabric
    wire: Carrier
    routing: Routing
    live: bool = False
    whole: Collection[int] = ()

    def replay(self, control: Controller | None, box: Sandbox, folder: Path) -> dict:
        """Replay, check that the host kept pace, and gather what was measured."""
        policy = parse_policy(control.policy if control else "static", self.fabric)
        if control and policy.granularity == "one-shot":
            first = first_circuits(self.fabric, self.trace, policy, self.routing)
            control.before_the_job(first, self.trace.pairs())
        circuits = control.rest.circuits() if control else Circuits()
        ports = self.up.ports()
        before, _ = ports.read()
        may_drop = self.timing.in_flight == "drop"
        fullness = Fullness(self.fabric, self.trace, self.scale)
        looks = Looks(fullness.room, say) if self.live else None
        watcher, waits = self.up.guard(self.wire, may_drop), Waits(self.trace)
        watch = RunWatch(box, watcher, self.scale, fullness, waits, looks)
        run = Replay(
            self.fabric,
            self.trace,
            self.wire,
            control,
            circuits,
            self.scale,
            self.timing,
            Lines(),
            watch,
            self.routing,
            policy.granularity,
            self.share,
            blur(self.fabric, self.scale),
        )
        if looks:
            looks.follow(run)
        with before_others():
            done = run.run()
        if looks:
            looks.end()
        pace = watch.verdict(done.late, (done.finish - done.start) * self.scale.dilation)
        plans = control.done() if done.rewires else {}
        pace = replace(
            pace, control=float(np.median([p["took_s"] for p in plans.values()])) if plans else 0.0
        )
        whole = OVERHEAD * self.scale.bandwidth  # frames of this run to bytes of what it stands for
        sent, received = (self._unscaled(counted) for counted in self.wire.counted(len(self.trace)))
        carried = payload(ports.read()[0] - before) / self.scale.bandwidth + done.unsent
        columns = {"sent": sent, "received": received, "link_bytes": carried}
        np.savez(folder / "measured.npz", start=done.start, finish=done.finish, **columns)
        return {
            "rewires": [
                r.to_json() | {"lost_bytes": round(plans[r.epoch]["lost_bytes"] / whole)}
                for r in done.rewires
            ],
            "epochs": [
                {"time_s": at, "circuits": circuits.to_json()} for at, circuits in done.epochs
            ],
            "pace": pace.to_json(),
            "notes": [*NOTES, *self._unlit(), *what_was_sent(self.trace, self.share)],
        }

    def _unlit(self) -> list[str]:
        why = self.up.unlit
        late = "light follows the rules of Open vSwitch, some milliseconds late"
        return [f"{late} ({why})"] if why else []

    def _unscaled(self, counted: np.ndarray) -> np.ndarray:
        """Counted bytes as bytes of the trace: a row whose every scaled byte was counted is
        whole.
        """
        scaled = self.scale.bandwidth * self.share
        exact = counted == np.ceil(self.trace.size * scaled)
        return np.where(exact, self.trace.size, np.round(counted / scaled)).astype(np.int64)

    @property
    def share(self) -> np.ndarray:
        """Of each row's bytes, what goes out."""
        return shares(self.trace, self.fabric, self.scale.sample, self.whole)


class Lines:
    """Progress as JSON lines, a few a second."""

    def __init__(self):
        self.said = 0.0

    def __call__(self, message: dict) -> None:
        if time.monotonic() - self.said > PROGRESS_S:
            self.said = time.monotonic()
            say(message)


def versions(health: dict) -> dict:
    """What carried the packets and what steered them."""
    from mininet.net import VERSION

    words = (
        subprocess.run(["ovs-vswitchd", "--version"], capture_output=True, text=True)
        .stdout.split("\n")[0]
        .split()
    )
    return {
        "mininet": VERSION,
        "openvswitch": words[-1] if words else "",
        "datapath": datapath(),
        "controller": health["control"],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))

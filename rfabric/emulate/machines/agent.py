"""What a run does on one of its machines: `rfabric agent`, started by the leader through ssh.

    leader ==== ssh ==== rfabric agent ---- process 1 of a private world: Open vSwitch, this
                         (waits)            machine's part of the fabric, the ends of its flows

It says that it is there, then does what it is asked, in frames on stdin and stdout. When its stdin
ends, or the leader is silent for long, its world ends, and with it all that it made here.
"""

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ... import __version__
from ...control.addresses import OFP_PORT
from ...errors import RFabricError, told
from ...fabric import Fabric
from ...report.result import Pace
from .. import calibrate
from ..counters import PortCounters
from ..guard import Guard
from ..network import EmulatedNetwork
from ..processors import Processors
from ..sandbox import DATAPATH, Namespace, Sandbox
from ..watch import before_others
from .ends import FINE, Ends
from .pipe import Calls, Pipe
from .slices import Slices, sliced
from .tunnels import Flood, Tunnel, got, make, silent

STOOD_S = 5.0  # s between two turns of the loop: it never waits so long
SILENT_S = 30.0  # s without a word of the other end: then it is taken to be gone


def facts() -> dict:
    """What the leader wants to know of a machine before it gives it work."""
    host = calibrate.probe_host()
    return {
        "version": __version__,
        "datapath": host.datapath,
        "cores": host.cores,
        "boot_id": calibrate.boot_id(),
    }


class SliceGuard(Guard):
    """Watches one machine's part; what others take of its processors the leader works out, who
    knows which worlds share a kernel.
    """

    def foreign(self) -> float:
        """Nothing: see above."""
        return 0.0


class Agent:
    """The inside of one machine's world; every order is one of `ORDERS`."""

    def __init__(self, folder: Path, home: int, pipe: Pipe):
        self.folder, self.home, self.pipe = folder, Namespace(None, home), pipe
        self.calls = Calls(pipe, OFP_PORT)
        self.orders: queue.SimpleQueue[tuple[dict, float]] = queue.SimpleQueue()
        self._woken, self._wake = socket.socketpair()
        self.due: list[tuple[float, list]] = []  # starts that wait for their instant
        self.ends: Ends | None = None
        self.stack = contextlib.ExitStack()
        self.heard = self.moved = time.monotonic()

    def run(self) -> None:
        """Do what is asked until it is over."""
        threading.Thread(target=self._listen, daemon=True).start()
        self.pipe.say({"hello": facts()})
        while True:
            while not self.orders.empty() or not self.ends:
                self._obey(*self._next_order())
            self._move()

    def _listen(self) -> None:
        with contextlib.suppress(RFabricError, OSError, ValueError):
            for frame in self.pipe.frames():
                if "call" in frame:
                    self.calls.hear(frame["call"], frame["data"])
                    continue
                self.orders.put((frame, time.monotonic()))
                self._wake.send(b"1")
        os._exit(1)  # process 1 ends, and its world with it

    def _next_order(self) -> tuple[dict, float]:
        try:
            return self.orders.get(timeout=4 * SILENT_S)
        except queue.Empty:
            raise RFabricError(f"the leader has said nothing for {4 * SILENT_S:g} s") from None

    def _obey(self, order: dict, at: float) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096, socket.MSG_DONTWAIT)
        self.heard = at
        answer = ORDERS[order["do"]](self, **order["with"])
        if "ask" in order:
            times = {"got": at, "at": time.monotonic()}
            self.pipe.say({"reply": order["ask"], "is": answer} | times)

    def _move(self) -> None:
        """Start what is due, and carry bytes until something happens."""
        now = time.monotonic()
        if now - self.moved > STOOD_S:  # it is this process that was held up, not the leader
            self.heard = now
        self.moved = now
        if now - self.heard > SILENT_S:
            raise RFabricError(f"the leader has said nothing for {SILENT_S:g} s")
        self.due.sort()
        while self.due and self.due[0][0] <= now:
            due, flows = self.due.pop(0)
            self.ends.start(flows, due)
        until = self.due[0][0] - time.monotonic() if self.due else 1.0
        if arrived := self.ends.poll(max(until, 0.0) if until < 1.0 else 1.0 + FINE):
            self.pipe.say({"arrived": [[a.flow, a.at, a.begun, a.early] for a in arrived]})

    # orders

    def clock(self) -> None:
        """What a clock shows is in every answer."""

    def calibration(self) -> float:
        """Packet-hops a second that the datapath here moves."""
        return calibrate.packet_hops(self.stack.enter_context(Sandbox(self.folder)))

    def plug(self, fabric: dict, machine: int, addresses: list[str], vni: int) -> None:
        """Make this machine's world, and its ends of the tunnels."""
        self.fabric = Fabric.from_json(fabric)
        self.slices, self.machine = sliced(self.fabric, len(addresses)), machine
        self.box = self.stack.enter_context(Sandbox(self.folder))
        self.tunnels = {t.interface: t for t in tunnels_of(self.slices, machine, addresses, vni)}
        if self.tunnels:
            make(self.tunnels.values(), self.home, self.box.children[DATAPATH].pid)
        self.flood = Flood(self.tunnels)
        self.hidden = self.flood.hidden() if self.tunnels else 0

    def try_tunnels(self) -> list[str]:
        """Send a full frame into each tunnel until one has come from each; those that stay
        silent.
        """
        before = dict.fromkeys(self.tunnels, 0)
        for _ in range(3):
            self.flood.send(1e6, 0.05)
        return silent(self.tunnels, before)

    def pour(self, interfaces: list[str], rate: float, seconds: float) -> dict[str, int]:
        """Flood tunnels; how many frames went into each."""
        flood = Flood(interfaces)
        try:
            return flood.send(rate, seconds)
        finally:
            flood.close()

    def poured(self, interfaces: list[str]) -> dict[str, int]:
        """How many frames have come through each of these tunnels."""
        return got(interfaces)

    def build(self, scale: float, datapath: str, at_once: list, wait: float) -> str:
        """Bring the part of the fabric up; its switches reach the controller through the pipe.

        Why light is late here, '' where it is not.
        """
        self.flood.close()
        self.ports = PortCounters(self.fabric, dict.fromkeys(self.tunnels, self.hidden))
        self.calls.listen()
        here = self.slices.nodes(self.machine)
        flows = {(src, dst): several for src, dst, several in at_once}
        self.network = EmulatedNetwork(
            self.box, self.fabric, scale, datapath, OFP_PORT, flows, here
        )
        self.network.start(wait)
        return self.network.unlit

    def listen(self, hosts: list[str]) -> None:
        """Take connections to hosts that are here."""
        if self.ends is None:
            self.ends = Ends(self.network, self._woken.fileno())
        self.ends.listen(hosts)

    def start(self, flows: list, at: float) -> None:
        """Start flows at an instant of the clock here."""
        self.due.append((at, flows))

    def counted(self) -> dict:
        """Bytes sent and read by flow."""
        return {"sent": self.ends.sent, "got": self.ends.got}

    def lag(self) -> float:
        """The most s between when a flow was to start here and when it did."""
        return self.ends.lag

    def watch(self, may_drop: bool) -> None:
        """From now on the guard looks, and flows start at once when they are due."""
        self.stack.enter_context(before_others())
        self.guard = SliceGuard(self.box, self.network, may_drop, self.ports)

    def look(self) -> dict:
        """The guard looks, and says what was counted."""
        self.box.check()
        self.guard.sample()
        return {
            "received": self.ends.bytes_received,
            "processors": vars(Processors.now()),
            "frames": self.guard.frames.tolist(),
            "waited": self.guard.waited,
        }

    def counters(self) -> dict:
        """Frames by directed cable, of the ends that are here."""
        frames, dropped = self.ports.read()
        return {"frames": frames.tolist(), "dropped": dropped}

    def verdict(self, bandwidth: float) -> dict:
        """What the guard here thinks of the run."""
        import numpy as np

        none = np.zeros(0)
        pace: Pace = self.guard.verdict(none, none, bandwidth)
        return pace.to_json()

    def end(self) -> None:
        """Over: the world ends when it has been said."""
        threading.Timer(0.05, os._exit, (0,)).start()


def _of_ends(name: str) -> Callable:
    """What the ends of flows here do as they are told."""
    return lambda agent, **words: getattr(agent.ends, name)(**words)


OF_ENDS = ["connect", "accept", "expect", "pause", "resume", "held", "acknowledge", "arriving"]
ORDERS: dict[str, Callable] = {
    name: method
    for name, method in vars(Agent).items()
    if not name.startswith("_") and name != "run"
} | {name: _of_ends(name) for name in OF_ENDS}


def tunnels_of(slices: Slices, machine: int, addresses: list[str], vni: int) -> list[Tunnel]:
    """This machine's ends of all cut cables; identifiers go up from `vni` by cable."""
    tunnels = []
    for number, link in enumerate(slices.tunnels):
        cable, places = slices.fabric.links[link], slices.ends(link)
        for port, at, other in zip((cable.a, cable.b), places, places[::-1], strict=True):
            if at == machine:
                tunnels.append(
                    Tunnel(port.interface, vni + number, addresses[machine], addresses[other])
                )
    return tunnels


def main(folder: str, home: str) -> None:
    """Process 1 of this machine's world."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = Pipe(os.dup(0), os.dup(1))
    os.dup2(2, 1)  # whatever else prints is no frame
    try:
        Agent(Path(folder), int(home), pipe).run()
    except RFabricError as error:
        pipe.say(told(error))
        os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])

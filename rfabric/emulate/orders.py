"""What the prompt on a fabric that is up understands: the words of `mn`, and those of an OCS.

Each order says lines of text; what it cannot do is an RFabricError. `stop` ends the one under way,
from any thread.
"""

import contextlib
import json
import os
import queue
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import takewhile

import numpy as np

from ..errors import RFabricError, meant
from ..fabric import Fabric
from ..optics import Timing
from ..report.result import Scale
from ..routing.rows import offsets_of
from ..routing.schemes import ECMP
from ..trace import PhaseKey, Trace
from ..units import show_rate, show_size, show_time, transfer_seconds
from .live import Controller, Live
from .replay import Replay
from .sandbox import which
from .shaping import LEAST_DELAY
from .wire import Wire

PINGS = ("-c", "4")  # what mn leaves out: a ping without an end
PHASE_S = 4.0  # s of wall clock that a phase takes at the least
IPERF_S = 2
LOOK_S = 0.05  # s between looks whether a silent command has ended
ORDERS = {
    "nodes": "the hosts, packet switches and OCSes",
    "links": "every cable, and whether it has light",
    "net": "what each interface leads to",
    "dump": "every node with its addresses and process",
    "circuits": "circuits [OCS]: what is lit",
    "connect": "connect OCS A B: light a circuit from port A to port B",
    "disconnect": "disconnect OCS A B: tear it down",
    "phase": "phase: those of --traffic; phase NAME: play it, without a check of the pace",
    "pingall": "every host pings every other",
    "iperf": f"iperf HOST HOST: TCP for {IPERF_S} s",
    "xterm": "xterm HOST: a terminal on it",
}
MOST_WORDS = {"circuits": 1, "connect": 3, "disconnect": 3, "phase": 1, "iperf": 2, "xterm": 1}
REFUSED = {
    "sh": "no shell of this machine here: it has one already",
    "py": "no Python here: `import rfabric` has everything",
}


class StoppedError(RFabricError):
    """The order was ended from outside."""


class Orders:
    """What can be asked of a fabric that is up; `trace` is played by `phase` under `policy`."""

    def __init__(self, up: Live, say: Callable[[str], None], trace: Trace | None, policy: str):
        self.up, self.say, self.trace, self.policy = up, say, trace, policy
        self._running: subprocess.Popen | None = None
        self._stopped = False

    def obey(self, line: str) -> None:
        """Do what one line asks for."""
        self._stopped = False
        word, command = (*line.split(maxsplit=1), "")[:2]
        words = list(takewhile(lambda word: word[0] != "#", command.split()))
        if word in self.up.fabric.hosts:
            self._on_host(word, command)
        elif word in ORDERS:
            if len(words) > MOST_WORDS.get(word, 0):
                raise RFabricError(f"{line}: too many words; {word}: {ORDERS[word]}")
            getattr(self, f"_{word}")(*words)
        else:
            known = [*ORDERS, *self.up.fabric.hosts]
            raise RFabricError(
                REFUSED.get(word, f"no order {word!r}{meant(word, known)}; `help` lists them")
            )

    def stop(self) -> None:
        """End the order under way, as Ctrl-C does; asked twice, what does not heed that as well."""
        how, self._stopped = signal.SIGKILL if self._stopped else signal.SIGINT, True
        if running := self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, how)

    # --- what is there ----------------------------------------------------------------------------

    def _nodes(self) -> None:
        for kind, what in (("host", "hosts"), ("eps", "switches"), ("ocs", "OCSes")):
            names = [node.name for node in self.up.fabric.nodes if node.kind == kind]
            self.say(f"{what}: {' '.join(names) or 'none'}")

    def _links(self) -> None:
        dark = set(self.up.rest.health()["dark_ports"])
        for link in self.up.fabric.links:
            emulated = show_rate(link.rate * self.up.network.bandwidth_scale)
            light = "dark" if dark & {str(link.a), str(link.b)} else "ok"
            late = f"  {show_time(link.delay)}" if link.delay >= LEAST_DELAY else ""
            late += ", here none" if late and not self.up.network.delays else ""
            self.say(f"{link.a} {link.b}  {show_rate(link.rate)}, here {emulated}{late}  {light}")

    def _net(self) -> None:
        fabric = self.up.fabric
        for node in fabric.nodes:
            ends = ((p.interface, fabric.peer[p][1].interface) for p in fabric.ports[node.name])
            self.say(f"{node.name} {' '.join(f'{a}:{b}' for a, b in ends)}")

    def _dump(self) -> None:
        for node in self.up.fabric.nodes:
            self.say(repr(self.up.network.mininet[node.name]))

    # --- circuits ---------------------------------------------------------------------------------

    def _circuits(self, ocs: str = "") -> None:
        names, lit = self._ocses(ocs), self.up.rest.circuits()
        for name in names:
            pairs = [f"{c.a.number}-{c.b.number}" for c in lit.of(name).ordered]
            self.say(f"{name}: {' '.join(pairs) or 'dark'}")
        self.say(f"epoch {self.up.rest.epoch()}")

    def _ocses(self, ocs: str = "") -> list[str]:
        """The names of all OCSes, or the one that is meant."""
        names = [node.name for node in self.up.fabric.ocses]
        if not names:
            raise RFabricError(f"{self.up.fabric.name} has no OCS, so there are no circuits in it")
        return [_one_of(names, ocs, "OCS")] if ocs else names

    def _connect(self, *words: str) -> None:
        self._cross_connect("connect", words)

    def _disconnect(self, *words: str) -> None:
        self._cross_connect("disconnect", words)

    def _cross_connect(self, order: str, words: Sequence[str]) -> None:
        if len(words) != 3:
            example = f"{order} {self._ocses()[0]} 1 3"
            raise RFabricError(f"{order}: write an OCS and two of its ports: {example}")
        ocs, a, b = words
        self._ocses(ocs)
        done = self.up.rest.cross_connect(order, ocs, [f"{a}-{b}"])
        self.say(f"{ocs}: {done['result']}, {done['circuits_changed']} circuits changed, "
                 f"epoch {done['epoch']}")  # fmt: skip

    # --- packets ----------------------------------------------------------------------------------

    def _on_host(self, host: str, command: str) -> None:
        """A command of the shell on a host; names of hosts in it are addresses there, as in mn."""
        words = command.split()
        if not words:
            raise RFabricError(f"{host}: write a command for it: {host} ping {self._other(host)}")
        if words[0] == "ping" and not {"-c", "-w"} & {word[:2] for word in words}:
            command = " ".join((words[0], *PINGS, command[len(words[0]) :]))
        ip = self.up.network.ip
        told = re.sub(r"\S+", lambda word: ip.get(word[0], word[0]), command)
        for line in self._run(host, ["sh", "-c", told]):
            self.say(line)

    def _pingall(self) -> None:
        came = asked = 0
        for host in self.up.fabric.hosts:
            heard = [
                other if self._answers(host, other) else "X"
                for other in self.up.fabric.hosts
                if other != host
            ]
            came, asked = came + len(heard) - heard.count("X"), asked + len(heard)
            self.say(f"{host} -> {' '.join(heard)}")
        self.say(f"*** Results: {1 - came / asked:.0%} dropped ({came}/{asked} received)")

    def _answers(self, host: str, other: str) -> bool:
        ping = ["ping", "-c1", "-W1", self.up.network.ip[other]]
        said = list(self._run(host, ping))  # to its end, whatever the first lines say
        return any(" 1 received" in line for line in said)

    def _iperf(self, *words: str) -> None:
        if len(words) != 2 or words[0] == words[1]:
            raise RFabricError("iperf: write two hosts: iperf h1 h2")
        src, dst = (_one_of(self.up.fabric.hosts, word, "host") for word in words)
        if not which("iperf3"):
            raise RFabricError("no iperf3 here: apt-get install iperf3")
        with self._process(dst, ["iperf3", "-s", "-1"]) as server:
            time.sleep(0.3)
            ask = ["iperf3", "-J", "-t", str(IPERF_S), "-c", self.up.network.ip[dst]]
            try:
                text = "\n".join(self._run(src, ask))
            finally:
                server.kill()  # it waits for a client, who may have been stopped before
        told = json.loads(text)
        if "error" in told:
            raise RFabricError(f"iperf3: {told['error']}")
        rates = (told["end"][end]["bits_per_second"] for end in ("sum_sent", "sum_received"))
        self.say(f"*** Results: {', '.join(map(show_rate, rates))} sent, received")

    def _xterm(self, *words: str) -> None:
        if len(words) != 1:
            raise RFabricError("xterm: write one host: xterm h1")
        host = _one_of(self.up.fabric.hosts, words[0], "host")
        if not os.environ.get("DISPLAY") or not which("xterm"):
            raise RFabricError(
                "xterm: there is no X here (DISPLAY and the program xterm); "
                f"write what it is to do: {host} ip addr"
            )
        self._process(host, ["xterm", "-title", host])

    def _process(self, host: str, words: Sequence[str]) -> subprocess.Popen:
        pid = str(self.up.network.mininet[host].pid)
        try:
            return subprocess.Popen(
                ["mnexec", "-a", pid, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise RFabricError(f"{host}: {error}") from None

    def _run(self, host: str, words: Sequence[str]) -> Iterator[str]:
        """The lines that a command on a host writes until it ends, whatever it leaves running;
        StoppedError where it was stopped.
        """
        if self._stopped:
            raise StoppedError("stopped")
        self._running = self._process(host, words)
        yield from map(str.rstrip, _lines(self._running))
        self._running = None
        if self._stopped:
            raise StoppedError("stopped")

    def _other(self, host: str) -> str:
        return next(other for other in self.up.fabric.hosts if other != host)

    # --- a phase ----------------------------------------------------------------------------------

    @cached_property
    def _wire(self) -> Wire:
        return Wire(self.up.network)

    def _phase(self, name: str = "") -> None:
        if self.trace is None:
            raise RFabricError("phase: there is no traffic; start with --traffic RECIPE or FILE")
        sending = [key for key in self.trace.phase_keys if self._sent(key)]
        if not name:
            for key in sending:
                self.say(f"{key}  {show_size(self._sent(key))}")
            return
        keys = {str(key): key for key in sending} | {key.phase: key for key in sending[::-1]}
        self._play(keys[_one_of(list(keys), name, "phase that sends")])

    def _sent(self, key: PhaseKey) -> float:
        return float(self.trace.size[self.trace.rows(key)].sum())

    def _play(self, key: PhaseKey) -> None:
        trace = part_of(self.trace, key)
        scale = scale_of(trace, self.up)
        control = Controller(self.up.rest, self.policy, scale, Timing())
        optical, began = bool(self.up.fabric.ocses), time.monotonic()
        done = Replay(
            self.up.fabric, trace, self._wire, control if optical else None,
            self.up.rest.circuits(), scale, watch=self._look, routing=ECMP,
        ).run()  # fmt: skip
        took = np.nanmax(done.finish) - np.nanmin(done.start)
        self.say(
            f"{key}: {show_time(float(took))}, {len(done.rewires)} rewires; with packets at "
            f"bandwidth x {scale.bandwidth:.3g}, time x {scale.dilation:.3g}: "
            f"{show_time(time.monotonic() - began)}"
        )

    def _look(self, *_) -> None:
        if self._stopped:
            raise StoppedError("stopped; what was under way is lost")


def _lines(running: subprocess.Popen) -> Iterator[str]:
    """What it writes, by lines. What it leaves in the background writes on, to nobody."""
    out, left, poller = running.stdout.fileno(), b"", select.poll()
    poller.register(out, select.POLLIN)
    while True:
        ended = running.poll() is not None
        if poller.poll(0 if ended else 1000 * LOOK_S):
            if not (piece := os.read(out, 1 << 16)):
                break
            *lines, left = (left + piece).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
        elif ended:
            break
    if left:
        yield left.decode(errors="replace")
    running.wait()
    threading.Thread(target=_drain, args=(running,), daemon=True).start()


def _drain(running: subprocess.Popen) -> None:
    while os.read(running.stdout.fileno(), 1 << 16):
        pass
    running.stdout.close()


def answer(orders: Orders, say: Callable[[dict], None]) -> None:
    """Obey what stdin says, a JSON line {"order": text} at a time, or {"stop": true} meanwhile;
    each order ends with {"ready": true}, or {"refused": why}. RunError where the fabric has broken.
    """
    asked: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_listen, args=(orders, asked), daemon=True).start()
    say({"ready": True})
    while (line := asked.get()) is not None:
        orders.up.box.check()
        try:
            orders.obey(line)
            say({"ready": True})
        except RFabricError as error:
            say({"refused": str(error)})


def _listen(orders: Orders, asked: queue.Queue) -> None:
    for line in sys.stdin:
        told = json.loads(line)
        if "stop" in told:
            orders.stop()
        else:
            asked.put(told["order"])
    orders.stop()
    asked.put(None)


def part_of(trace: Trace, key: PhaseKey) -> Trace:
    """One phase of a trace by itself: it begins at 0, and waits for nothing of others."""
    rows = trace.rows(key)
    number = np.full(len(trace), -1)
    number[rows] = np.arange(len(rows))
    kept = (number[trace.owner] >= 0) & (number[trace.after] >= 0)
    waits = np.bincount(number[trace.owner[kept]], minlength=len(rows))
    names = "src", "dst", "size", "gap", "step", "phase", "label", "loop", "turn"
    columns = {name: getattr(trace, name)[rows] for name in names}
    start = trace.start[rows] - trace.start[rows].min(initial=np.inf)
    links = {"after_offsets": offsets_of(waits), "after": number[trace.after[kept]]}
    return replace(trace, **columns, **links, start=start, origin=None)


def scale_of(trace: Trace, up: Live) -> Scale:
    """The scale at which the busiest card takes PHASE_S: the network is as it is, time is not."""
    n, fabric = len(trace.hosts), up.fabric
    busy = np.maximum(*(np.bincount(end, trace.size, n) for end in (trace.src, trace.dst)))
    cards = zip(busy, trace.hosts, strict=True)
    seconds = max(transfer_seconds(sent, _card(fabric, host)) for sent, host in cards)
    dilation = PHASE_S / seconds
    return Scale(up.network.bandwidth_scale * dilation, dilation)


def _card(fabric: Fabric, host: str) -> float:
    return fabric.rate(fabric.ports[host][0])


def _one_of(known: Sequence[str], name: str, what: str) -> str:
    if name not in known:
        raise RFabricError(f"no {what} {name!r}{meant(name, known)}; there are {', '.join(known)}")
    return name

"""What happens in a controller, told while it happens: `GET /events`, and counted: `GET /metrics`.

    Core.epochs = ...  --->  Watch  --- a bounded queue a reader --->  server-sent events
    switches, links    --->         --- counters ------------------->  Prometheus text format

Who tells never waits: a reader whose queue is full is dropped. Events: `plan` (its new state),
`rewire` (one has ended: its four times, what was lost), `switch` (connected, programmed), `link`
(a port of a switch has come up or gone down). The last ones are kept, so that a reader who lost his
connection goes on where he was (`Last-Event-ID`).
"""

import itertools
import json
import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .epochs import Epochs, RewirePlan

MAX_READERS = 16
MAX_BEHIND = 256  # events a reader may be behind, and events that are kept
POLL_S = 0.5  # how often the switches are looked at while somebody reads
ALIVE_S = 15.0  # without an event after which a reader is told that the controller lives

_log = logging.getLogger("rfabric.plans")


@dataclass(frozen=True)
class Event:
    """Event `number`, at `at` (s since 1970): what happened to what."""

    number: int
    kind: str
    at: float
    about: Mapping | RewirePlan

    def wire(self) -> bytes:
        """The event as `text/event-stream` has it."""
        about = self.about.to_json() if isinstance(self.about, RewirePlan) else dict(self.about)
        data = json.dumps({"at_s": self.at, **about})
        return f"id: {self.number}\nevent: {self.kind}\ndata: {data}\n\n".encode()


class Reader:
    """Who reads events: what waits for him, and whether he was too slow."""

    def __init__(self):
        self.waiting: queue.Queue[Event] = queue.Queue(MAX_BEHIND)
        self.dropped = False

    def put(self, event: Event) -> None:
        """Have him told; drop him where he does not keep up."""
        try:
            self.waiting.put_nowait(event)
        except queue.Full:
            self.dropped = True


class Watch:
    """The readers of one core, the last events, and what was counted since the start."""

    def __init__(self):
        self.readers: list[Reader] = []
        self.recent: deque[Event] = deque(maxlen=MAX_BEHIND)
        self.counted: Counter[str] = Counter()
        self.rewires: Counter[str] = Counter()  # by how they ended
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._seen: dict[str, tuple[bool, bool]] = {}

    def tell(self, kind: str, about: Mapping | RewirePlan) -> None:
        """Something has happened. Never waits."""
        with self._lock:
            event = Event(next(self._numbers), kind, time.time(), about)
            self.recent.append(event)
            for reader in self.readers:
                reader.put(event)
            gone = [reader for reader in self.readers if reader.dropped]
            self.readers = [reader for reader in self.readers if not reader.dropped]
            self.counted["dropped"] += len(gone)
            self.counted["events"] += 1

    def read(self, after: int | None = None) -> Reader | None:
        """A new reader, of what comes and of what is kept of events after number `after`; None
        where there are MAX_READERS.
        """
        with self._lock:
            if len(self.readers) >= MAX_READERS:
                return None
            reader = Reader()
            for event in self.recent if after is not None else ():
                if event.number > after:
                    reader.put(event)
            self.readers.append(reader)
            return reader

    def leave(self, reader: Reader) -> None:
        """He reads no more."""
        with self._lock:
            self.readers = [other for other in self.readers if other is not reader]

    def changed(self, old: Epochs, new: Epochs) -> None:
        """Tell which plans are in another state than they were."""
        for number, plan in new.plans.items():
            before = old.plans.get(number)
            if plan is before or (before and before.state == plan.state):
                continue
            about = {"epoch": number, "state": plan.state, "circuits_changed": plan.rewire.size}
            self.tell("plan", about | {"active": new.active, "error": plan.error})
            if plan.state == "ACTIVE" or (before and before.state == "ROLLBACK"):
                self._ended(plan)
            elif plan.state == "PREPARED":
                self.counted["plans"] += 1

    def look(self, core: Any) -> None:
        """Tell which switches have come, gone or got their rules since somebody looked last."""
        present = core.switches.present()
        seen = {
            node.name: (node.dpid in present, node.name in core.synced)
            for node in core.fabric.switches
        }
        with self._lock:
            before, self._seen = self._seen, seen
            for name, (connected, programmed) in seen.items():
                if before and before.get(name) != (connected, programmed):
                    about = {"switch": name, "connected": connected, "programmed": programmed}
                    self.tell("switch", about)

    def replugged(self, core: Any, message: Any) -> None:
        """Tell of a port of a switch: `message` is its OFPPortStatus."""
        of, port = message.datapath.ofproto, message.desc
        gone = message.reason == of.OFPPR_DELETE
        up = not gone and not port.state & of.OFPPS_LINK_DOWN
        name = core.name_of.get(message.datapath.id, hex(message.datapath.id or 0))
        self.tell("link", {"switch": name, "port": port.port_no, "up": up})

    def _ended(self, plan: RewirePlan) -> None:
        result = "verified" if plan.state == "ACTIVE" else "rolled_back"
        self.rewires[result] += 1
        self.counted["circuits"] += plan.rewire.size
        self.counted["lost_bytes"] += plan.lost_bytes
        if result == "verified" and plan.usable is not None:  # else it was finished after a restart
            self.counted["dark_s"] += plan.dark_until - plan.programmed
            self.counted["rewire_s"] += plan.usable - plan.requested
        self.tell("rewire", plan)
        words = {"epoch": plan.epoch, "state": plan.state, "lost_bytes": plan.lost_bytes}
        _log.info("plan %d: %s", plan.epoch, result, extra={"fields": words})


class Watched:
    """An attribute of a core that holds its Epochs: each new value is told to `core.watch`."""

    def __set_name__(self, owner: type, name: str):
        self.name = f"_{name}"

    def __get__(self, core: Any, owner: type | None = None) -> Any:
        return self if core is None else getattr(core, self.name)

    def __set__(self, core: Any, new: Epochs) -> None:
        old = core.__dict__.get(self.name)
        core.__dict__[self.name] = new
        watch = core.__dict__.setdefault("watch", Watch())
        if old is not None:
            watch.changed(old, new)


def stream(core: Any, reader: Reader) -> Iterator[bytes]:
    """What a reader is sent, piece by piece, until he is dropped; now and then a comment."""
    yield b": events of rfabric\nretry: 2000\n\n"
    core.watch.look(core)
    told = time.monotonic()
    while not reader.dropped or not reader.waiting.empty():
        try:
            event = reader.waiting.get(timeout=POLL_S)
        except queue.Empty:
            core.watch.look(core)
            if time.monotonic() - told < ALIVE_S:
                continue
            yield b": alive\n\n"
        else:
            yield event.wire()
        told = time.monotonic()
    yield b": dropped: too slow\n\n"


# --- metrics --------------------------------------------------------------------------------------

PREFIX = "rfabric_"


def exposition(core: Any, requests: Mapping[tuple[str, str], int], ready: bool) -> str:
    """The metrics in Prometheus' text format 0.0.4.

    Values are read from snapshots when they are asked for, so nothing of a client library would be
    used but its spelling.
    """
    lines = _metric("ready", "gauge", "1 when every switch holds its rules.", {"": int(ready)})
    by = {f'method="{m}",status="{s}"': n for (m, s), n in sorted(requests.items())}
    lines += _metric("http_requests_total", "counter", "Requests that were answered.", by)
    if core is not None:
        lines += _of_core(core)
    return "\n".join(lines) + "\n"


def _of_core(core: Any) -> list[str]:
    watch, epochs, counted = core.watch, core.epochs, core.watch.counted
    present, switches = core.switches.present(), core.fabric.switches
    states = Counter(plan.state for plan in epochs.plans.values())
    rows = [
        ("epoch", "gauge", "The number of the last verified rewire.", epochs.active),
        ("circuits", "gauge", "Circuits that are lit.", len(epochs.circuits)),
        ("rewire_under_way", "gauge", "1 while circuits are moved.", int(bool(epochs.under_way))),
        ("switches", "gauge", "Switches of the fabric.", len(switches)),
        (
            "switches_connected", "gauge", "Switches that are connected.",
            sum(node.dpid in present for node in switches),
        ),
        (
            "switches_programmed", "gauge", "Switches that hold their rules.",
            sum(node.name in core.synced for node in switches),
        ),
        ("plans_total", "counter", "Plans that were prepared.", counted["plans"]),
        ("circuits_changed_total", "counter", "Circuits torn down or set up.", counted["circuits"]),
        ("lost_bytes_total", "counter", "Bytes that met the dark.", counted["lost_bytes"]),
        ("dark_seconds_total", "counter", "Time circuits were dark.", counted["dark_s"]),
        (
            "rewire_seconds_total", "counter", "Time from requested to usable.",
            counted["rewire_s"],
        ),
        ("events_total", "counter", "Events that were told.", counted["events"]),
        ("event_readers", "gauge", "Readers of events.", len(watch.readers)),
        (
            "event_readers_dropped_total", "counter", "Readers that were too slow.",
            counted["dropped"],
        ),
    ]  # fmt: skip
    lines = [line for *about, value in rows for line in _metric(*about, {"": value})]
    ended = {f'result="{word}"': watch.rewires[word] for word in ("verified", "rolled_back")}
    lines += _metric("rewires_total", "counter", "Rewires, by how they ended.", ended)
    kept = {f'state="{state}"': count for state, count in sorted(states.items())}
    return lines + _metric("plans_kept", "gauge", "Plans that are remembered, by state.", kept)


def _metric(name: str, kind: str, what: str, values: Mapping[str, float]) -> list[str]:
    rows = [
        f"{PREFIX}{name}{f'{{{labels}}}' if labels else ''} {value!r}"
        for labels, value in values.items()
    ]
    return [f"# HELP {PREFIX}{name} {what}", f"# TYPE {PREFIX}{name} {kind}", *rows]

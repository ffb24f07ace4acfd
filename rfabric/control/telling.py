"""What a controller tells the page that follows it (`rfabric control --live`): a line a look.

    Core, port counters --> tell --- a pipe, JSON lines --> report/controller.py --> browsers

    {"fabric": {...}, "circuits": ["a1:1-a1:3", ...], "epoch", "routing", "at_s"}        the first
    {"at_s", "health": {...}, "ended": [rewires that have], "under_way": the one that has not,
     "load": {"span_s": [from, to], "levels": base64, a byte a directed cable,
              "to_hosts_bps"}}

Times are CLOCK_MONOTONIC, s. RFABRIC_LIVE is the number of the pipe, which `rfabric control`
passes on. A look tells what has come since the one before it. Where the pipe is full the next look
waits, and then tells all of it: nothing is lost, and no rewire waits for whoever reads.
"""

import base64
import json
import logging
import os
import stat
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from ..errors import RFabricError
from ..fabric import Fabric, Link, Port
from ..units import BITS_PER_BYTE
from .core import Core
from .epochs import RewirePlan

LOOK_S = 1.0  # s between two looks
CABLES_PER_S = 2_000  # whose counters are asked for, at the most: answers take the processor
LEVELS = 200  # a byte of load: 200 is the cable's rate, as in the page's records
FULL_S = 0.2  # s until a full pipe is tried again
ENDED = ("ACTIVE", "PAST", "ABORTED")

# Of each switch when it answered last (s of CLOCK_MONOTONIC), and by port the bytes that it had
# received and sent by then.
Counters = Mapping[int, tuple[float, Mapping[int, tuple[int, int]]]]

_log = logging.getLogger(__name__)


class Told(Protocol):
    """The app that is told of."""

    core: Core | None
    counters: Counters

    def health(self) -> dict:
        """The answer to `GET /health`."""

    def count(self) -> None:
        """Ask its switches for new counters, and do not wait."""


def pipe_of(text: str) -> int:
    """The pipe that RFABRIC_LIVE names; RFabricError where it names none."""
    try:
        pipe = int(text)
        if stat.S_ISFIFO(os.fstat(pipe).st_mode):
            return pipe
    except (ValueError, OverflowError, OSError):
        pass
    raise RFabricError(
        f"RFABRIC_LIVE={text!r} is no pipe of this process: unset it; `rfabric control --live` "
        "sets it by itself"
    )


def tell(app: Told, pipe: int, rest: Callable[[float], None]) -> None:
    """Write looks until nobody can read them any more; `rest` sleeps and lets others run."""
    os.set_blocking(pipe, False)
    try:
        while app.core is None:
            rest(LOOK_S)
        teller = Teller(app, app.core)
        _write(pipe, teller.first(), rest)
        while True:
            app.count()
            rest(teller.pause)
            _write(pipe, teller.look(), rest)
    except OSError as error:
        _log.warning("the live page is gone: %s", error)


def _write(pipe: int, told: dict, rest: Callable[[float], None]) -> None:
    left = json.dumps(told, separators=(",", ":")).encode() + b"\n"
    while left:
        try:
            left = left[os.write(pipe, left) :]
        except BlockingIOError:
            rest(FULL_S)


class Teller:
    """What has been told of a core, and what is new."""

    def __init__(self, app: Told, core: Core):
        self.app, self.core = app, core
        self.rates = Rates(core.fabric)
        self.pause = max(LOOK_S, len(core.fabric.links) / CABLES_PER_S)
        self.told: set[int] = set()
        self.at = time.monotonic()

    def first(self) -> dict:
        """The fabric, and its circuits as they are now."""
        epochs = self.core.epochs
        self.told = {plan.epoch for plan in _ended(epochs.plans)}
        return {
            "fabric": self.core.fabric.to_json(),
            "circuits": epochs.circuits.to_json(),
            "epoch": epochs.active,
            "routing": self.core.routing.scheme,
            "at_s": self.at,
        }

    def look(self) -> dict:
        """What has come since the look before."""
        epochs, since, self.at = self.core.epochs, self.at, time.monotonic()
        ended = [plan for plan in _ended(epochs.plans) if plan.epoch not in self.told]
        self.told = (self.told | {plan.epoch for plan in ended}) & set(epochs.plans)
        busy = epochs.under_way
        return {
            "at_s": self.at,
            "health": self.app.health(),
            "ended": [plan.to_json() for plan in ended],
            "under_way": busy and busy.to_json(),
            "load": {"span_s": [since, self.at]} | self.rates.since(self.app.counters),
        }


def _ended(plans: Mapping[int, RewirePlan]) -> list[RewirePlan]:
    """The rewires that had begun and have ended, well or not, as they began."""
    ended = [p for p in plans.values() if p.requested is not None and p.state in ENDED]
    return sorted(ended, key=lambda plan: plan.requested or 0.0)


class Rates:
    """What each directed cable carries, as the switches at its ends count: 2i is cable i from end
    a to end b, 2i + 1 the way back.
    """

    def __init__(self, fabric: Fabric):
        ways = [way for link in fabric.links for way in _ways(link)]
        hosts = set(fabric.hosts)
        self.places = [_counted(fabric, *way) for way in ways]
        self.room = np.repeat([link.rate for link in fabric.links], 2)
        self.to_host = np.array([end.node in hosts for _, end in ways], dtype=bool)
        self.before: Counters = {}

    def since(self, counters: Counters) -> dict:
        """Loads since this was asked last; none where a switch has not answered since."""
        counters = dict(counters)  # answers come meanwhile
        bps = np.array([self._bps(counters, *place) for place in self.places])
        self.before = counters
        levels = (LEVELS * bps / self.room).clip(0, LEVELS).round().astype(np.uint8)
        return {
            "levels": base64.b64encode(levels.tobytes()).decode(),
            "to_hosts_bps": float(bps[self.to_host].sum()),
        }

    def _bps(self, counters: Counters, dpid: int, port: int, which: int) -> float:
        nothing = (0.0, {})
        (then, old), (now, new) = self.before.get(dpid, nothing), counters.get(dpid, nothing)
        if now <= then or port not in old or port not in new:
            return 0.0
        # a switch that began anew counts from 0 again
        counted = max(new[port][which] - old[port][which], 0)
        return counted * BITS_PER_BYTE / (now - then)


def _ways(link: Link) -> tuple[tuple[Port, Port], tuple[Port, Port]]:
    return (link.a, link.b), (link.b, link.a)


def _counted(fabric: Fabric, source: Port, end: Port) -> tuple[int, int, int]:
    """Who counts what goes this way: switch and port, 0: as received, 1: as sent."""
    if fabric.node[end.node].kind != "host":
        return fabric.node[end.node].dpid, end.number, 0
    return fabric.node[source.node].dpid, source.number, 1

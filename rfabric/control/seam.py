"""The seam: one set of names for Ryu 4.34 and for os-ken, so that one app file runs on either.

    ryu-manager controller/ocs.py        Ryu loads the file, the file imports its names here
    rfabric control controller/ocs.py    launch.run_apps() loads it, under Ryu or os-ken

An app file says `from rfabric.control import seam` and derives one class from `seam.App`. Nothing
of Ryu or os-ken is imported before the first such name is used, and nothing is monkey-patched but
in `launch.run_apps`. `RFABRIC_SDN=ryu|os-ken` forces the choice; else Ryu where it is installed.
os-ken runs on eventlet too, where that is installed, unless `OSKEN_HUB_TYPE` says `native`
(threads).

Threads. All state of an app belongs to its event loop. A REST request runs in a thread of its own
(a green one under eventlet) and reaches in by two doors; both wait with a time limit that holds
under every hub:

    REST thread                           event loop of the app                     switch
    app.call(fn)     -- fn ------------>  fn() reads and changes the state
                     <-- its result ----
    app.push(mods)   -- bytes --------->  one write: flow-mods, barrier  --------->
                                          barrier reply, errors          <---------
                     <-- Push ----------  (times are time.monotonic())

`hub.Event` is not one of the doors: under os-ken's native hub its wait() has no working time limit
and can miss a set(). Names: `App`, `AppBase`, `hub`, `set_ev_cls`, the four `*_DISPATCHER`,
`ofp_event`, `event`, `ofproto` and `parser` (OpenFlow 1.3).
"""

import contextlib
import functools
import importlib
import importlib.util
import logging
import os
import socket
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from ..errors import RFabricError, RunError
from .addresses import endpoint
from .alone import claim_port

Returned = TypeVar("Returned")

PACKAGES = {"ryu": "ryu", "os-ken": "os_ken"}
BASES = {"ryu": "RyuApp", "os-ken": "OSKenApp"}
MODULES = {
    "hub": "lib.hub",
    "cfg": "cfg",
    "controller": "controller.controller",
    "event": "controller.event",
    "ofp_event": "controller.ofp_event",
    "ofproto": "ofproto.ofproto_v1_3",
    "parser": "ofproto.ofproto_v1_3_parser",
    "protocol": "ofproto.ofproto_protocol",
}
HANDLER_NAMES = (
    "set_ev_cls",
    "HANDSHAKE_DISPATCHER",
    "CONFIG_DISPATCHER",
    "MAIN_DISPATCHER",
    "DEAD_DISPATCHER",
)

DISPUTE_S = 1.0  # s within which a switch must answer to whom another says it is the same

_log = logging.getLogger(__name__)


# --- which of the two -----------------------------------------------------------------------------
def flavour() -> str:
    """Which framework this interpreter offers, `ryu` or `os-ken`; RFABRIC_SDN forces one.
    RFabricError where there is none, or it names another.
    """
    wanted = os.environ.get("RFABRIC_SDN", "")
    if wanted and wanted not in PACKAGES:
        raise RFabricError(f"RFABRIC_SDN={wanted}: unknown; use ryu or os-ken")
    for name in (wanted,) if wanted else PACKAGES:
        if importlib.util.find_spec(PACKAGES[name]):
            return name
    raise RFabricError(
        f"{sys.executable} has no {wanted or 'Ryu and no os-ken'}: run the controller from the "
        "environment that `make setup` builds (.venv-ryu), or add os-ken with: pip install "
        "'rfabric[control]'"
    )


def interpreter() -> str:
    """The Python to run the controller: RFABRIC_CONTROL_PYTHON, .venv-ryu, or this one."""
    named = os.environ.get("RFABRIC_CONTROL_PYTHON")
    if named:
        return named
    beside = Path(__file__).resolve().parents[2] / ".venv-ryu/bin/python"
    if beside.exists() and os.environ.get("RFABRIC_SDN", "ryu") == "ryu":
        return str(beside)
    flavour()
    return sys.executable


def version() -> str:
    """What runs and on which hub, for provenance: `ryu 4.34 on eventlet 0.41.3`."""
    stack = framework()
    package = sys.modules[PACKAGES[stack.name]]
    number = getattr(package, "__version__", None) or package.version
    hub = (
        f"eventlet {sys.modules['eventlet'].__version__}"
        if stack.hub.HUB_TYPE == "eventlet"
        else "threads"
    )
    return f"{stack.name} {number} on {hub}"


@functools.cache
def prepare(name: str) -> Any:
    """The hub module of a framework, its environment mended before anything of it loads."""
    warnings.filterwarnings("ignore", r"\s*Eventlet is deprecated")
    if importlib.util.find_spec("eventlet"):
        os.environ.setdefault("OSKEN_HUB_TYPE", "eventlet")
        wsgi = importlib.import_module("eventlet.wsgi")
        # dropped by eventlet 0.30.3, imported by Ryu 4.34
        vars(wsgi).setdefault("ALREADY_HANDLED", b"")
    return importlib.import_module(f"{PACKAGES[name]}.lib.hub")


@functools.cache
def framework() -> SimpleNamespace:
    """Every name of the chosen framework under rfabric's name for it."""
    name = flavour()
    prepare(name)
    package = PACKAGES[name]
    manager = importlib.import_module(f"{package}.base.app_manager")
    handler = importlib.import_module(f"{package}.controller.handler")
    stack = SimpleNamespace(
        name=name, AppManager=manager.AppManager, AppBase=getattr(manager, BASES[name])
    )
    vars(stack).update(
        {key: importlib.import_module(f"{package}.{path}") for key, path in MODULES.items()}
    )
    vars(stack).update({key: getattr(handler, key) for key in HANDLER_NAMES})
    return stack


def hub_module(name: str) -> Any:
    """The module `socket` or `ssl` whose sockets let others run: eventlet's where the hub is
    eventlet's, which os-ken does not put in the place of Python's.
    """
    green = framework().hub.HUB_TYPE == "eventlet"
    return importlib.import_module(f"eventlet.green.{name}" if green else name)


def __getattr__(name: str) -> Any:
    if name == "App":
        return _app_class()
    if name in MODULES or name in HANDLER_NAMES or name == "AppBase":
        return getattr(framework(), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")


# --- messages without a switch --------------------------------------------------------------------
def offline() -> Any:
    """What a message maker takes for its datapath without a switch: OpenFlow 1.3's descriptor."""
    return framework().protocol.ProtocolDesc(framework().ofproto.OFP_VERSION)


def wire(message: Any) -> bytes:
    """One OpenFlow message as it goes over the wire; its number is set when it is sent."""
    if message.xid is None:
        message.set_xid(0)
    message.serialize()
    return bytes(message.buf)


def decode(data: bytes) -> Any:
    """The OpenFlow message in these bytes: the inverse of `wire`."""
    kind, size, xid = struct.unpack_from("!xBHI", data)
    ofproto_parser = importlib.import_module(f"{PACKAGES[framework().name]}.ofproto.ofproto_parser")
    return ofproto_parser.msg(offline(), data[0], kind, size, xid, data)


# --- the app --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Push:
    """What became of messages pushed to switches. Times are `time.monotonic()`.

    `done_s` holds for each datapath id when its barrier reply came; `refused` the switches' errors
    as (id, index of the message, reason); `silent` the ids that are not connected, went away, or
    were late.
    """

    started_s: float
    done_s: Mapping[int, float]
    refused: tuple[tuple[int, int, str], ...] = ()
    silent: tuple[int, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every switch took every message."""
        return not self.refused and not self.silent

    @property
    def programmed_s(self) -> float:
        """When the last barrier reply came."""
        return max(self.done_s.values(), default=self.started_s)

    def __str__(self) -> str:
        if self.ok:
            took_ms = (self.programmed_s - self.started_s) * 1e3
            return f"{len(self.done_s)} switches in {took_ms:.1f} ms"
        said = [
            f"switch {dpid:#x} refused message {index}: {reason}"
            for dpid, index, reason in self.refused
        ]
        said += [f"switch {dpid:#x} did not answer" for dpid in self.silent]
        return "; ".join(said)


@dataclass(eq=False)
class _PushedRules:
    """What one push sent one switch: transaction numbers first..last, the barrier's."""

    datapath: Any
    first: int
    last: int
    answers: Any


@dataclass
class _LoopCall:
    """A function for the event loop, and the queue in which its result is awaited."""

    fn: Callable[[], Any]
    answer: Any
    begun: bool = False
    given_up: bool = False


def _here() -> Any:
    """What runs this line: the green thread under eventlet, the thread under native."""
    if framework().hub.HUB_TYPE == "eventlet":
        return importlib.import_module("greenlet").getcurrent()
    return threading.get_ident()


@functools.cache
def _work_event() -> type:
    """The event that carries a _Call to the event loop."""
    return type("WorkEvent", (framework().event.EventBase,), {})


class Doors:
    """An OpenFlow 1.3 app with the two doors of the seam; derive one class a file from it.

    `switches` maps datapath ids to connected switches. `switch_up` and `switch_down` are called in
    the event loop.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.switches: dict[int, Any] = {}
        self._loop: Any = None
        self._pending: dict[int, list[_PushedRules]] = {}
        self.register_handler(_work_event(), self._do_work)

    def stranger(self, dpid: int) -> str:
        """Why a switch has no business here, or ''. For the app to override."""
        return ""

    def switch_up(self, dpid: int) -> None:
        """A switch has connected. For the app to override."""

    def switch_down(self, dpid: int) -> None:
        """A switch has gone. For the app to override."""

    def call(self, fn: Callable[[], Returned], timeout_s: float = 5.0) -> Returned:
        """Run `fn()` in the app's event loop, from any thread; return or raise what it does.

        Raises RunError when there is no result in time; `fn` is then dropped, unless it has begun.
        """
        if _here() == self._loop:
            return fn()
        work, event = _LoopCall(fn, framework().hub.Queue()), _work_event()()
        event.work = work
        self._send_event(event, None)
        try:
            result, error = work.answer.get(timeout=timeout_s)
        except framework().hub.QueueEmpty:
            work.given_up = True
            late = (
                "began it, which goes on"
                if work.begun
                else "was busy with other work; this is dropped"
            )
            raise RunError(
                f"controller {self.name}: no result in {timeout_s:g} s: its loop {late}"
            ) from None
        if error is not None:
            raise error
        return result

    def push(self, messages: Mapping[int, Sequence[bytes]], timeout_s: float = 5.0) -> Push:
        """Send each switch (by datapath id) its messages (from `wire`) and a barrier; wait for all
        replies.

        Not from the event loop, which must read the replies. Never raises for what a switch does:
        see Push.
        """
        if _here() == self._loop:
            raise RunError(
                f"controller {self.name}: push() waits for replies that its own loop must read"
            )
        answers, started_s = framework().hub.Queue(), time.monotonic()
        batches = self.call(lambda: self._send(messages, answers), timeout_s)
        done, refused, waiting = {}, [], set(batches)
        while waiting and (left_s := started_s + timeout_s - time.monotonic()) > 0:
            try:
                dpid, index, reason, at_s = answers.get(timeout=left_s)
            except framework().hub.QueueEmpty:
                break
            if reason is not None:
                refused.append((dpid, index, reason))
                continue
            waiting.discard(dpid)
            if at_s is not None:
                done[dpid] = at_s
        for dpid in waiting:
            self._forget(dpid, batches[dpid])
        return Push(started_s, done, tuple(refused), tuple(sorted(set(messages) - set(done))))

    def _event_loop(self) -> None:
        self._loop = _here()
        super()._event_loop()

    def _do_work(self, ev: Any) -> None:
        if ev.work.given_up:
            return
        ev.work.begun = True
        try:
            ev.work.answer.put((ev.work.fn(), None))
        except Exception as error:
            ev.work.answer.put((None, error))

    def _send(
        self, messages: Mapping[int, Sequence[bytes]], answers: Any
    ) -> dict[int, _PushedRules]:
        barrier = wire(framework().parser.OFPBarrierRequest(offline()))
        present = {dpid: self.switches[dpid] for dpid in messages if dpid in self.switches}
        return {
            dpid: self._send_one(dp, [*messages[dpid], barrier], answers)
            for dpid, dp in present.items()
        }

    def _send_one(self, datapath: Any, wires: list[bytes], answers: Any) -> _PushedRules:
        if datapath.xid + len(wires) > datapath.ofproto.MAX_XID:
            datapath.xid = 0
        first = datapath.xid + 1
        datapath.xid += len(wires)
        batch = _PushedRules(datapath, first, datapath.xid, answers)
        self._pending.setdefault(datapath.id, []).append(batch)
        numbered = [w[:4] + struct.pack("!I", first + i) + w[8:] for i, w in enumerate(wires)]
        datapath.send(b"".join(numbered))  # one write a switch
        return batch

    def _admit(self, datapath: Any) -> None:
        if why := self.stranger(datapath.id):
            self._turn_away(datapath, why)
        elif datapath.state != framework().DEAD_DISPATCHER:
            self.switches[datapath.id] = datapath
            self.switch_up(datapath.id)

    def _dispute(self, holder: Any, newcomer: Any) -> None:
        """Two connections say they are one switch: the first keeps its place while it answers."""
        try:
            answers = bool(self.push({holder.id: []}, DISPUTE_S).done_s)
        except RunError:  # the event loop is busy: it was not asked
            answers = True
        if answers and self.switches.get(holder.id) is holder:
            self._turn_away(newcomer, "its id is taken by a switch that answers")
            return
        self.call(holder.close)
        self.call(lambda: self.switches.pop(newcomer.id, None))
        self.call(lambda: self._admit(newcomer))

    def _turn_away(self, datapath: Any, why: str) -> None:
        self.logger.warning(
            "audit: switch %#x from %s refused: %s", datapath.id, datapath.address, why
        )
        datapath.close()

    def _forget(self, dpid: int, batch: _PushedRules) -> None:
        with contextlib.suppress(ValueError):  # the other thread was first
            self._pending[dpid].remove(batch)

    def _batch_of(self, msg: Any) -> _PushedRules | None:
        batches = self._pending.get(msg.datapath.id, ())
        return next(
            (
                b
                for b in tuple(batches)
                if b.datapath is msg.datapath and b.first <= msg.xid <= b.last
            ),
            None,
        )

    def _barrier_replied(self, ev: Any) -> None:
        batch = self._batch_of(ev.msg)
        if batch is not None and ev.msg.xid == batch.last:
            batch.answers.put((ev.msg.datapath.id, None, None, time.monotonic()))
            self._forget(ev.msg.datapath.id, batch)

    def _switch_refused(self, ev: Any) -> None:
        msg, of = ev.msg, framework().ofproto
        reason = (
            f"{of.ofp_error_type_to_str(msg.type)}, {of.ofp_error_code_to_str(msg.type, msg.code)}"
        )
        batch = self._batch_of(msg)
        if batch is None:
            self.logger.warning("switch %#x: %s", msg.datapath.id or 0, reason)
        else:
            batch.answers.put((msg.datapath.id, msg.xid - batch.first, reason, None))

    def _switch_changed(self, ev: Any) -> None:
        datapath = ev.datapath
        if ev.state == framework().MAIN_DISPATCHER:
            holder = self.switches.get(datapath.id)
            if holder is None or holder is datapath:
                self._admit(datapath)
            else:
                framework().hub.spawn(self._dispute, holder, datapath)
            return
        for batch in tuple(self._pending.get(datapath.id, ())):
            if batch.datapath is datapath:
                batch.answers.put((datapath.id, None, None, None))
                self._forget(datapath.id, batch)
        if self.switches.get(datapath.id) is datapath:
            del self.switches[datapath.id]
            self.switch_down(datapath.id)


@functools.cache
def _app_class() -> type:
    """`App`: the doors before the base class of whichever framework is there."""
    stack = framework()
    connected, ready, dead = stack.CONFIG_DISPATCHER, stack.MAIN_DISPATCHER, stack.DEAD_DISPATCHER
    stack.set_ev_cls(stack.ofp_event.EventOFPBarrierReply, ready)(Doors._barrier_replied)
    stack.set_ev_cls(stack.ofp_event.EventOFPErrorMsg, [connected, ready])(Doors._switch_refused)
    stack.set_ev_cls(stack.ofp_event.EventOFPStateChange, [ready, dead])(Doors._switch_changed)
    own = {
        "OFP_VERSIONS": [stack.ofproto.OFP_VERSION],
        "__doc__": Doors.__doc__,
        "__module__": __name__,
    }
    return type("App", (Doors, stack.AppBase), own)


# --- REST -----------------------------------------------------------------------------------------
def serve_http(
    handler: type[BaseHTTPRequestHandler], app: Any, port: int = 0, host: str = "127.0.0.1"
) -> tuple[str, int]:
    """Serve HTTP in the app's process, each connection in a thread of the hub; returns the address
    bound.

    `handler` finds the app as `self.server`. http.server's own server class is not used: its
    selector is chosen when it is imported, and an eventlet patch made later does not reach it.
    RFabricError where the address is taken.
    """
    hub = framework().hub

    def serve_one(connection: socket.socket, address: Any) -> None:
        try:
            handler(connection, address, app)
        except (ConnectionError, TimeoutError) as error:
            _log.debug("REST client %s went away: %s", address, error)
        finally:
            connection.close()

    if port:
        claim_port("REST address", host, port)
    try:
        server = hub.StreamServer((host, port), serve_one)
    except OSError as error:
        raise RFabricError(
            f"REST address {endpoint(host, port)}: {error.strerror}; name a free port"
        ) from None
    hub.spawn(server.serve_forever)
    return server.server.getsockname()[:2]
